"""Where cells run: worker processes on this machine, populations on an accelerator, or a Ray cluster."""

from understudy.benchmark.engines.protocol import ENGINES, Engine, Finished, Places, Task, make_engine

__all__ = ["ENGINES", "Engine", "Finished", "Places", "Task", "make_engine"]
