"""How much noise each marginal gets."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

LEAST_FRACTION = 0.001
"""The smallest fraction of the budget that a setting may give to anything."""
PRECISIONS = 1.4 ** -np.arange(40.0)[::-1]
"""The fractions of the extra precision that one pair may get."""


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
