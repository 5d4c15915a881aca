"""How much noise each marginal gets."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from understudy.schema import Domain

LEAST_FRACTION = 0.001
"""The smallest fraction of the budget that a setting may give to anything."""
ONE_WAY_NOISE = 0.002
"""The noise of 1-way counts over the number of rows that is aimed at."""
MAX_FOR_ONE_WAY = 0.4
"""The largest fraction of the precision for 1-way marginals."""
ONE_WAY_PER_COLUMN = 3.0
"""The same with a target, times the number of columns: pairs measure their columns too."""
TARGET_NOISE = 0.001
"""The noise of 2-way counts with the target over the number of rows that is aimed at."""
MAX_FOR_TARGET = 0.35
"""The largest fraction of the precision for 2-way marginals with the target."""
MIN_FOR_PAIRS = 0.2
"""The smallest fraction of the remaining precision that other 2-way marginals keep."""
PRECISIONS = 1.4 ** -np.arange(40.0)[::-1]
"""The fractions of the extra precision that one pair may get."""


def fraction_for_one_way(domain: Domain, precision: float, least: float) -> float:
    """The fraction of the precision for 1-way marginals: as much as they need, at least `least`, and not too much.

    >>> fraction_for_one_way(Domain(names=("a", "b"), sizes=(2, 2), num_rows=1000), 5.0, 0.1)
    0.1
    """
    enough = len(domain.names) / (ONE_WAY_NOISE * domain.num_rows) ** 2 / precision
    few = MAX_FOR_ONE_WAY if domain.target is None else ONE_WAY_PER_COLUMN / len(domain.names)
    return max(min(enough, MAX_FOR_ONE_WAY, few), least)


def precision_for_target(domain: Domain, precision: float, least_fraction: float, *, left: float) -> float:
    """The precision for 2-way marginals with the target, out of what is left after 1-way marginals."""
    enough = (len(domain.names) - 1) / (TARGET_NOISE * domain.num_rows) ** 2
    wanted = max(precision * least_fraction, min(enough, precision * MAX_FOR_TARGET))
    return min(wanted, left * (1 - MIN_FOR_PAIRS))


def allocate_noise(precision: float, cells: Sequence[int]) -> list[float]:
    """Standard deviations s_j that minimise the sum of expected errors m_j s_j under sum_j 1 / s_j^2 = precision.

    >>> [round(stddev, 3) for stddev in allocate_noise(2.0, [8, 8])]
    [1.0, 1.0]
    """
    third = np.asarray(cells, dtype=float) ** (1 / 3)
    return (math.sqrt(float(np.sum(third**2)) / precision) / third).tolist()


def allocate_extra_precision(
    precision: float,
    cells: Float[np.ndarray, " tables"],
    known: Float[np.ndarray, " tables"],
    posterior: Float[np.ndarray, "tables ratios"],
    signal: Float[np.ndarray, "tables ratios"],
) -> Float[np.ndarray, " tables"]:
    """The extra precision of each table, this much in all, that about minimises the sum of expected errors.

    The error of a count with signal variance v, measured with precision p and then q, is about (1 / v + p + q)^(-1/2).
    The marginal gain is equal for all tables with q > 0, and smaller for the others.

    >>> one = np.ones(3)
    >>> signal = np.array([[0.0], [100.0], [100.0]])
    >>> allocate_extra_precision(6.0, 4 * one, one, np.ones((3, 1)), signal).round(2).tolist()
    [0.0, 3.0, 3.0]
    """
    steps = precision * PRECISIONS
    gains = np.zeros((len(cells), len(steps)))
    for part, variance in zip(posterior.T, np.maximum(signal, 1e-30).T, strict=True):
        gains += part[:, None] * (1 / variance[:, None] + known[:, None] + steps) ** -1.5
    gains *= cells[:, None]
    amounts = np.concatenate([[0.0], steps])
    low, high = math.log(max(gains.min(), 1e-300)) - 1, math.log(max(gains.max(), 1e-300)) + 1
    for _ in range(60):
        level = (low + high) / 2
        enough = amounts[(gains > math.exp(level)).sum(axis=1)].sum() > precision
        low, high = (level, high) if enough else (low, level)
    more = amounts[(gains > math.exp(high)).sum(axis=1)]
    if not more.any():
        more = np.asarray(allocate_noise(precision, cells.astype(int).tolist())) ** -2.0
    return more * (precision / more.sum())
