"""Means over seeds with their spread, wins beyond noise, mean ranks, and the front of utility against time.

Failures are counted, never dropped: a mean over the seeds that are done also says how many failed. Tests of ranks are
those of Demsar (2006, JMLR 7).
"""

import dataclasses
import functools
import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy import stats

from understudy.benchmark.report.records import REAL, Result

SEPARATION = 2.0
"""The number of standard errors beyond which a difference counts."""
ALPHA = 0.05
"""Level of the tests of ranks."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """One metric of one method on one table at one epsilon, over seeds."""

    values: tuple[float, ...]
    """Of the seeds that are done and define the metric."""
    num_failed: int = 0
    num_undefined: int = 0
    """Seeds that are done without this metric."""

    @functools.cached_property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @functools.cached_property
    def std(self) -> float | None:
        """Standard deviation over seeds; None for fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

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


Block = tuple[str, float | None]
"""A table and an epsilon: what methods are compared within."""
Grid = Mapping[Block, Mapping[str, Summary]]
"""The summaries of all methods in each block."""


def group_results(results: Iterable[Result], metric: str) -> dict[Block, dict[str, Summary]]:
    """The summary of one metric for each block and method. Blocks in which no method defines it are left out."""
    cells: dict[Block, dict[str, list[Result]]] = {}
    for result in results:
        cells.setdefault((result.table, result.epsilon), {}).setdefault(result.method, []).append(result)
    grid = {
        block: {method: _summarise_cells(same, metric) for method, same in by_method.items()}
        for block, by_method in cells.items()
    }
    return {block: summaries for block, summaries in grid.items() if any(s.values for s in summaries.values())}


def _summarise_cells(cells: Sequence[Result], metric: str) -> Summary:
    done = [cell for cell in cells if not cell.is_failed]
    values = tuple(cell.metrics[metric] for cell in done if metric in cell.metrics)
    return Summary(values, len(cells) - len(done), len(done) - len(values))


def private_blocks(grid: Grid) -> dict[Block, Mapping[str, Summary]]:
    """The blocks with an epsilon, so without real data."""
    return {block: summaries for block, summaries in grid.items() if block[1] is not None}


def difference(first: Summary, second: Summary) -> tuple[float, float | None] | None:
    """The mean of `first` minus that of `second`, and its standard error (None with a single seed)."""
    if first.mean is None or second.mean is None:
        return None
    gap = first.mean - second.mean
    if first.stderr is None or second.stderr is None:
        return gap, None
    return gap, math.hypot(first.stderr, second.stderr)


def is_separated(gap: float, stderr: float | None) -> bool:
    """Whether a difference is larger than two standard errors; never with a single seed."""
    return stderr is not None and abs(gap) > SEPARATION * stderr


def beats(first: Summary, second: Summary, *, higher_is_better: bool) -> bool:
    """Whether `first` is better by more than two standard errors, or done where the other has failed."""
    if first.mean is not None and second.mean is None:
        return True
    gap = difference(first, second)
    if gap is None or not is_separated(*gap):
        return False
    return gap[0] > 0 if higher_is_better else gap[0] < 0


@dataclasses.dataclass(frozen=True)
class Tally:
    """How often a method beats another, loses to it, or neither, over blocks."""

    wins: int
    losses: int
    ties: int


def count_wins(grid: Grid, *, higher_is_better: bool) -> dict[tuple[str, str], Tally]:
    """For each ordered pair of methods: blocks won and lost by more than two standard errors, and the others."""
    counts: dict[tuple[str, str], list[int]] = {}
    for summaries in private_blocks(grid).values():
        for (one, first), (other, second) in itertools.permutations(summaries.items(), 2):
            won = beats(first, second, higher_is_better=higher_is_better)
            lost = beats(second, first, higher_is_better=higher_is_better)
            counts.setdefault((one, other), [0, 0, 0])[0 if won else 1 if lost else 2] += 1
    return {pair: Tally(*tally) for pair, tally in counts.items()}


@dataclasses.dataclass(frozen=True)
class Winner:
    """The best mean of a block; `is_clear` if no other method is within two standard errors of it."""

    method: str
    summary: Summary
    is_clear: bool


def find_winners(grid: Grid, *, higher_is_better: bool) -> dict[Block, Winner]:
    """The method with the best mean in each block that has an epsilon. A method with a failed cell cannot win."""
    winners = {}
    for block, summaries in private_blocks(grid).items():
        able = {method: summary for method, summary in summaries.items() if summary.is_complete and method != REAL}
        if not able:
            continue
        best = min(able, key=lambda method: _loss(able[method], higher_is_better))
        rivals = [summary for method, summary in able.items() if method != best]
        clear = all(beats(able[best], rival, higher_is_better=higher_is_better) for rival in rivals)
        winners[block] = Winner(best, able[best], clear)
    return winners


def _loss(summary: Summary, higher_is_better: bool) -> float:
    """The mean, negated if higher is better; one of failed or undefined cells is last."""
    if summary.mean is None or not summary.is_complete:
        return math.inf
    return -summary.mean if higher_is_better else summary.mean


def pareto_front(points: Mapping[str, tuple[float, float]], *, higher_is_better: bool) -> list[str]:
    """The methods that no other method beats on both seconds and utility; the fastest first.

    A point is (seconds, utility). A method is off the front if another is at least as good in both and better in one.
    """
    turned = {name: (seconds, -value if higher_is_better else value) for name, (seconds, value) in points.items()}

    def is_dominated(name: str) -> bool:
        seconds, loss = turned[name]
        return any(other != (seconds, loss) and other[0] <= seconds and other[1] <= loss for other in turned.values())

    return sorted((name for name in points if not is_dominated(name)), key=lambda name: turned[name])


def count_seeds(grid: Grid) -> str:
    """The number of seeds behind the means of a table, as text."""
    counts = {summary.num_seeds for summaries in grid.values() for summary in summaries.values() if summary.num_seeds}
    if not counts:
        return "no seeds"
    low, high = min(counts), max(counts)
    return f"{low} to {high} seeds" if low < high else "1 seed" if low == 1 else f"{low} seeds"


# ---------------------------------------------------------------------------------------------------------------- ranks


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Mean ranks; 1 is best.

    A method with a failed cell in a block, or with one that lacks the metric, ranks last in that block.
    """

    mean_ranks: Mapping[str, float]
    """The best first."""
    num_blocks: int
    statistic: float | None
    """Friedman's chi-squared; None for fewer than three methods or two blocks."""
    p_value: float | None
    critical_difference: float | None
    """Of mean ranks, by Nemenyi's test at level 0.05; None where Friedman's test has no value."""
    left_out: tuple[str, ...] = ()
    """Methods that were not run in all of these blocks."""


def rank_methods(grid: Grid, *, higher_is_better: bool) -> Ranking | None:
    """Rank all methods but the real data over blocks of a table and an epsilon; None if no block has two methods."""
    blocks = [
        {method: summary for method, summary in summaries.items() if method != REAL}
        for summaries in private_blocks(grid).values()
    ]
    methods, left_out = _complete_methods(blocks)
    whole = [block for block in blocks if all(method in block for method in methods)]
    if len(methods) < 2 or not whole:
        return None
    ranks = np.array([block_ranks(block, methods, higher_is_better=higher_is_better) for block in whole])
    means = dict(sorted(zip(methods, ranks.mean(axis=0).tolist(), strict=True), key=lambda pair: pair[1]))
    statistic, p_value = friedman_test(ranks)
    spread = None if p_value is None else critical_difference(len(methods), len(whole))
    return Ranking(means, len(whole), statistic, p_value, spread, tuple(left_out))


def _complete_methods(blocks: Sequence[Mapping[str, Summary]]) -> tuple[list[str], list[str]]:
    """Methods that share at least half of the blocks; the rarest are left out until the others do."""
    methods = list(dict.fromkeys(method for block in blocks for method in block))
    left_out: list[str] = []
    while len(methods) > 2:
        shared = sum(all(method in block for method in methods) for block in blocks)
        if 2 * shared >= len(blocks):
            break
        rarest = min(reversed(methods), key=lambda method: sum(method in block for block in blocks))
        methods.remove(rarest)
        left_out.append(rarest)
    return methods, left_out


def block_ranks(block: Mapping[str, Summary], methods: Sequence[str], *, higher_is_better: bool) -> list[float]:
    """Ranks of the methods' means in one block; ties share the mean of their ranks, failed methods the last ones."""
    losses = [_loss(block[method], higher_is_better) for method in methods]
    return list(map(float, stats.rankdata(losses)))


def friedman_test(ranks: np.ndarray) -> tuple[float | None, float | None]:
    """Friedman's statistic and p-value, corrected for ties, from ranks of shape (blocks, methods).

    Demsar (2006), section 3.2.2: whether all methods could have the same mean rank.
    """
    num_blocks, num_methods = ranks.shape
    if num_methods < 3 or num_blocks < 2:
        return None, None
    if np.ptp(ranks, axis=1).max() == 0:  # every block is one tie
        return 0.0, 1.0
    statistic, p_value = stats.friedmanchisquare(*ranks.T)
    return float(statistic), float(p_value)


def critical_difference(num_methods: int, num_blocks: int, alpha: float = ALPHA) -> float:
    """Nemenyi's critical difference of mean ranks: q sqrt(k (k + 1) / (6 N)), Demsar (2006), section 3.2.2."""
    quantile = float(stats.studentized_range.ppf(1 - alpha, num_methods, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(num_methods * (num_methods + 1) / (6 * num_blocks))
