"""Means over seeds with their spread, wins beyond noise, and the front of utility against time.

Failures are counted, never dropped: a mean over the seeds that are done also says how many failed.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence

from understudy.benchmark.report.records import REAL, Metrics, Result

SEPARATION = 2.0
"""The number of standard errors beyond which a difference counts."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """One metric of one method on one table at one epsilon, over seeds.

    >>> summarise([0.4, 0.6]).mean
    0.5
    """

    values: tuple[float, ...]
    """Of the seeds that are done and define the metric."""
    num_failed: int = 0
    num_undefined: int = 0
    """Seeds that are done without this metric."""

    @functools.cached_property
    def mean(self) -> float | None:
        return math.fsum(self.values) / len(self.values) if self.values else None

    @functools.cached_property
    def std(self) -> float | None:
        """Standard deviation over seeds; None for fewer than two."""
        if self.mean is None or len(self.values) < 2:
            return None
        squares = math.fsum((value - self.mean) ** 2 for value in self.values)
        return math.sqrt(squares / (len(self.values) - 1))

    @functools.cached_property
    def stderr(self) -> float | None:
        """Standard error of the mean; None for fewer than two seeds."""
        return None if self.std is None else self.std / math.sqrt(len(self.values))

    @property
    def num_seeds(self) -> int:
        """Seeds behind the mean."""
        return len(self.values)

    @property
    def is_complete(self) -> bool:
        """Whether every cell is done and defines the metric."""
        return bool(self.values) and not self.num_failed and not self.num_undefined


def summarise(values: Iterable[float], *, num_failed: int = 0, num_undefined: int = 0) -> Summary:
    """A summary of the values of all seeds.

    >>> summarise([1.0, 2.0, 3.0], num_failed=1).std
    1.0
    """
    return Summary(tuple(values), num_failed, num_undefined)


Block = tuple[str, float | None]
"""A table and an epsilon: what methods are compared within."""
Grid = Mapping[Block, Mapping[str, Summary]]
"""The summaries of all methods in each block."""


def group_results(results: Iterable[Result], metric: str) -> dict[Block, dict[str, Summary]]:
    """The summary of one metric for each block and method. Blocks in which no method defines the metric are left out.

    >>> cells = [Result(table="car", method="mst", epsilon=1.0, seed=seed, metrics={"f1": 0.5}) for seed in (0, 1)]
    >>> group_results(cells, "f1")["car", 1.0]["mst"].num_seeds
    2
    """
    cells: dict[Block, dict[str, list[Result]]] = {}
    for result in results:
        cells.setdefault((result.table, result.epsilon), {}).setdefault(result.method, []).append(result)
    grid = {
        block: {method: _summarise_cells(found, metric) for method, found in by_method.items()}
        for block, by_method in cells.items()
    }
    return {block: found for block, found in grid.items() if any(summary.values for summary in found.values())}


def _summarise_cells(cells: Sequence[Result], metric: str) -> Summary:
    done = [cell for cell in cells if not cell.is_failed]
    values = tuple(cell.metrics[metric] for cell in done if metric in cell.metrics)
    return Summary(values, len(cells) - len(done), len(done) - len(values))


def private_blocks(grid: Grid) -> dict[Block, Mapping[str, Summary]]:
    """The blocks with an epsilon, so without real data.

    >>> sorted(private_blocks({("car", None): {}, ("car", 1.0): {}}))
    [('car', 1.0)]
    """
    return {block: found for block, found in grid.items() if block[1] is not None}


def difference(first: Summary, second: Summary) -> tuple[float, float | None] | None:
    """The mean of `first` minus that of `second`, and its standard error (None with a single seed).

    >>> gap, stderr = difference(summarise([1.0, 3.0]), summarise([0.0, 0.0]))
    >>> gap, stderr
    (2.0, 1.0)
    """
    if first.mean is None or second.mean is None:
        return None
    gap = first.mean - second.mean
    if first.stderr is None or second.stderr is None:
        return gap, None
    return gap, math.hypot(first.stderr, second.stderr)


def is_separated(gap: float, stderr: float | None) -> bool:
    """Whether a difference is larger than two standard errors; never with a single seed.

    >>> is_separated(0.1, 0.04), is_separated(0.1, 0.06), is_separated(0.1, None)
    (True, False, False)
    """
    return stderr is not None and abs(gap) > SEPARATION * stderr


def beats(first: Summary, second: Summary, *, higher_is_better: bool) -> bool:
    """Whether `first` is better by more than two standard errors, or done where the other has failed.

    >>> beats(summarise([0.8, 0.81]), summarise([0.5, 0.52]), higher_is_better=True)
    True
    >>> beats(summarise([0.5]), summarise([], num_failed=1), higher_is_better=True)
    True
    """
    if first.mean is not None and second.mean is None:
        return True
    found = difference(first, second)
    if found is None or not is_separated(*found):
        return False
    return found[0] > 0 if higher_is_better else found[0] < 0


@dataclasses.dataclass(frozen=True)
class Tally:
    """How often a method beats another, loses to it, or neither, over blocks."""

    wins: int
    losses: int
    ties: int


def count_wins(grid: Grid, *, higher_is_better: bool) -> dict[tuple[str, str], Tally]:
    """For each ordered pair of methods: blocks won and lost by more than two standard errors, and the others.

    >>> block = {"a": summarise([0.9, 0.91]), "b": summarise([0.1, 0.11])}
    >>> count_wins({("car", 1.0): block}, higher_is_better=True)["a", "b"]
    Tally(wins=1, losses=0, ties=0)
    """
    counts: dict[tuple[str, str], list[int]] = {}
    for found in private_blocks(grid).values():
        for one, first in found.items():
            for other, second in found.items():
                if one != other:
                    tally = counts.setdefault((one, other), [0, 0, 0])
                    won = beats(first, second, higher_is_better=higher_is_better)
                    lost = beats(second, first, higher_is_better=higher_is_better)
                    tally[0 if won else 1 if lost else 2] += 1
    return {pair: Tally(*tally) for pair, tally in counts.items()}


@dataclasses.dataclass(frozen=True)
class Winner:
    """The best mean of a block; `is_clear` if no other method is within two standard errors of it."""

    method: str
    summary: Summary
    is_clear: bool


def find_winners(grid: Grid, *, higher_is_better: bool) -> dict[Block, Winner]:
    """The method with the best mean in each block that has an epsilon. A method with a failed cell cannot win.

    >>> block = {"a": summarise([0.9, 0.91]), "b": summarise([0.1, 0.11])}
    >>> find_winners({("car", 1.0): block}, higher_is_better=True)["car", 1.0].method
    'a'
    """
    winners = {}
    for block, found in private_blocks(grid).items():
        able = {method: summary for method, summary in found.items() if summary.is_complete and method != REAL}
        if not able:
            continue
        best = min(able, key=lambda method: _loss(able[method], higher_is_better))
        rivals = [summary for method, summary in able.items() if method != best]
        clear = all(beats(able[best], rival, higher_is_better=higher_is_better) for rival in rivals)
        winners[block] = Winner(best, able[best], clear)
    return winners


def _loss(summary: Summary, higher_is_better: bool) -> float:
    """The mean, negated if higher is better; a missing one is last."""
    if summary.mean is None:
        return math.inf
    return -summary.mean if higher_is_better else summary.mean


def pareto_front(points: Mapping[str, tuple[float, float]], *, higher_is_better: bool) -> list[str]:
    """The methods that no other method beats on both seconds and utility; the fastest first.

    A point is (seconds, utility). A method is off the front if another is at least as good in both and better in one.

    >>> pareto_front({"a": (1, 0.5), "b": (9, 0.9), "c": (10, 0.8)}, higher_is_better=True)
    ['a', 'b']
    """
    turned = {name: (seconds, -value if higher_is_better else value) for name, (seconds, value) in points.items()}

    def is_dominated(name: str) -> bool:
        seconds, loss = turned[name]
        return any(other != (seconds, loss) and other[0] <= seconds and other[1] <= loss for other in turned.values())

    return sorted((name for name in points if not is_dominated(name)), key=lambda name: turned[name])


def group_seconds(results: Iterable[Result]) -> dict[Block, dict[str, Summary]]:
    """Seconds to fit and sample, for each block and method; failed cells are counted.

    >>> group_seconds([Result(table="car", method="mst", epsilon=1.0, seed=0, seconds=3.0)])["car", 1.0]["mst"].mean
    3.0
    """
    timed = [
        dataclasses.replace(result, metrics={} if result.seconds is None else {"seconds": result.seconds})
        for result in results
        if result.method != REAL
    ]
    return group_results(timed, "seconds")


def count_seeds(grid: Grid) -> str:
    """The number of seeds behind the means of a table, as text.

    >>> count_seeds({("car", 1.0): {"mst": summarise([0.1, 0.2]), "aim": summarise([0.1])}})
    '1 to 2 seeds'
    """
    counts = {summary.num_seeds for found in grid.values() for summary in found.values() if summary.num_seeds}
    if not counts:
        return "no seeds"
    low, high = min(counts), max(counts)
    return f"{low} to {high} seeds" if low < high else "1 seed" if low == 1 else f"{low} seeds"


def headline_metric(names: Sequence[str], metrics: Metrics, wanted: str | None) -> str | None:
    """The metric of the summary: the wanted one if it was computed, else the first.

    >>> headline_metric(["auc"], {"f1": ("F1", True), "auc": ("AUC", True)}, "f1")
    'auc'
    """
    if wanted in names and wanted in metrics:
        return wanted
    return names[0] if names else None
