"""Mean ranks of methods over tables and epsilons, with the tests of Demsar (2006, JMLR 7)."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from understudy.benchmark.report.records import REAL
from understudy.benchmark.report.statistics import Block, Grid, Summary, private_blocks

ALPHA = 0.05
"""Level of both tests."""


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
    num_skipped: int = 0
    """Blocks in which a ranked method was not run."""

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The longest runs of methods whose mean ranks differ by less than the critical difference."""
        if self.critical_difference is None:
            return []
        names, ranks = list(self.mean_ranks), list(self.mean_ranks.values())
        runs: list[tuple[int, int]] = []
        for start in range(len(names)):
            end = max(i for i in range(start, len(names)) if ranks[i] - ranks[start] < self.critical_difference)
            if end > start and not (runs and runs[-1][1] >= end):
                runs.append((start, end))
        return [tuple(names[start : end + 1]) for start, end in runs]


def rank_methods(grid: Grid, *, higher_is_better: bool) -> Ranking | None:
    """Rank all methods but the real data over blocks of a table and an epsilon; None if no block has two methods.

    >>> from understudy.benchmark.report.statistics import summarise
    >>> blocks = {("car", e): {"a": summarise([0.9]), "b": summarise([0.5])} for e in (1.0, 3.0)}
    >>> dict(rank_methods(blocks, higher_is_better=True).mean_ranks)
    {'a': 1.0, 'b': 2.0}
    """
    blocks = [
        {method: summary for method, summary in found.items() if method != REAL}
        for found in private_blocks(grid).values()
    ]
    methods, left_out = _complete_methods(blocks)
    whole = [block for block in blocks if all(method in block for method in methods)]
    if len(methods) < 2 or not whole:
        return None
    ranks = np.array([block_ranks(block, methods, higher_is_better=higher_is_better) for block in whole])
    means = dict(sorted(zip(methods, ranks.mean(axis=0).tolist(), strict=True), key=lambda pair: pair[1]))
    statistic, p_value = friedman_test(ranks)
    spread = None if p_value is None else critical_difference(len(methods), len(whole))
    return Ranking(means, len(whole), statistic, p_value, spread, tuple(left_out), len(blocks) - len(whole))


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
    """Ranks of the methods' means in one block; ties share the mean of their ranks, failed methods the last ones.

    >>> from understudy.benchmark.report.statistics import summarise
    >>> block = {"a": summarise([0.5]), "b": summarise([0.5]), "c": summarise([0.9], num_failed=1)}
    >>> block_ranks(block, ["a", "b", "c"], higher_is_better=True)
    [1.5, 1.5, 3.0]
    """
    losses = []
    for method in methods:
        mean = block[method].mean if block[method].is_complete else None
        losses.append(math.inf if mean is None else -mean if higher_is_better else mean)
    return stats.rankdata(losses).tolist()


def friedman_test(ranks: np.ndarray) -> tuple[float | None, float | None]:
    """Friedman's statistic and p-value, corrected for ties, from ranks of shape (blocks, methods).

    Demsar (2006), section 3.2.2: whether all methods could have the same mean rank.

    >>> friedman_test(np.array([[1.0, 2.0]]))
    (None, None)
    """
    num_blocks, num_methods = ranks.shape
    if num_methods < 3 or num_blocks < 2:
        return None, None
    if np.ptp(ranks, axis=1).max() == 0:  # every block is one tie
        return 0.0, 1.0
    statistic, p_value = stats.friedmanchisquare(*ranks.T)
    return float(statistic), float(p_value)


def critical_difference(num_methods: int, num_blocks: int, alpha: float = ALPHA) -> float:
    """Nemenyi's critical difference of mean ranks: q sqrt(k (k + 1) / (6 N)), Demsar (2006), section 3.2.2.

    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    quantile = float(stats.studentized_range.ppf(1 - alpha, num_methods, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(num_methods * (num_methods + 1) / (6 * num_blocks))


def lowest_rank(ranking: Ranking) -> str:
    """The method with the best mean rank.

    >>> lowest_rank(Ranking({"a": 1.0, "b": 2.0}, 1, None, None, None))
    'a'
    """
    return next(iter(ranking.mean_ranks))


def mean_ranks_of(blocks: Mapping[Block, Mapping[str, Summary]], *, higher_is_better: bool) -> Mapping[str, float]:
    """The mean ranks alone; empty if nothing can be ranked.

    >>> mean_ranks_of({}, higher_is_better=True)
    {}
    """
    ranking = rank_methods(blocks, higher_is_better=higher_is_better)
    return ranking.mean_ranks if ranking else {}
