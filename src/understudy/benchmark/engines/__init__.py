"""Where cells run: worker processes on this machine, populations on an accelerator, or a Ray cluster."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Protocol

from understudy.benchmark.cells import Cell
from understudy.benchmark.execution import Places
from understudy.benchmark.results import Record
from understudy.benchmark.suite import Limits
from understudy.errors import ConfigError, did_you_mean

ENGINES = ("local", "population", "ray")


@dataclasses.dataclass(frozen=True)
class Task:
    """Work for one worker process."""

    stage: str
    """cell: from table to scores; fit: cells of one program up to their synthetic tables; score: one such table."""
    cells: tuple[Cell, ...]
    deaths: int = 0
    """How many workers died with it."""
    earlier: Record = dataclasses.field(default_factory=dict)
    """For score: what the fit has already added to the cell's record."""


@dataclasses.dataclass(frozen=True)
class Finished:
    """A cell and its record, which may be that of a failure."""

    cell: Cell
    record: Record


class Engine(Protocol):
    """Runs cells in any order. Closing the iterator stops all work; cells that are not finished yield nothing."""

    @property
    def name(self) -> str: ...

    def run(self, cells: Sequence[Cell], limits: Limits, places: Places) -> Iterator[Finished]: ...


def make_engine(
    name: str, *, workers: int | None = None, trainers: int | None = None, address: str | None = None
) -> Engine:
    """An engine by name. `address` is that of an existing Ray cluster."""
    if name not in ENGINES:
        raise ConfigError(
            f"There is no engine {name!r}.{did_you_mean(name, ENGINES)} The engines: {', '.join(ENGINES)}.",
            setting="engine",
        )
    for option, value in {"workers": workers, "trainers": trainers}.items():
        if value is not None and value < 1:
            raise ConfigError(f"--{option} must be at least 1, found {value}.", setting=option)
    if address is not None and name != "ray":
        raise ConfigError("--address is for Ray clusters only. Add --engine ray, or remove it.", setting="address")
    if trainers is not None and name != "population":
        raise ConfigError("--trainers is the number of populations. Add --engine population.", setting="trainers")
    if name == "ray":
        from understudy.benchmark.engines.ray import RayEngine

        return RayEngine(address=address, workers=workers)
    from understudy.benchmark.engines.local import LocalEngine

    return LocalEngine(name=name, workers=workers, trainers=(trainers or 1) if name == "population" else 0)
