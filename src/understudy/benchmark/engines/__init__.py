"""Where cells run: worker processes here, populations on an accelerator, or a Ray cluster."""

from understudy.benchmark.engines.protocol import ENGINES, Engine, Finished, Places, Task, make_engine

__all__ = ["ENGINES", "Engine", "Finished", "Places", "Task", "make_engine"]
