"""How much precision each marginal gets: the division with the smallest total expected error.

A marginal of m cells with noise of precision p (1 / variance) on each count has an expected L1 error of
m sqrt(2 / (pi p)). For a given sum of precisions, the sum of these errors with weights w is smallest if precisions are
in proportion to (w m)^(2/3), the *need* of a marginal.
"""

import math
from typing import TypeVar

import numpy as np
from jaxtyping import Float

Number = TypeVar("Number", float, np.ndarray)

MEAN_NOISE = math.sqrt(2 / math.pi)
"""The mean of |noise|, for a standard deviation of one."""
BISECTIONS = 100
NEGLIGIBLE = 1e-3
"""Additions below this fraction of an even division are left out: each would be a query that hardly helps."""


def needs(weights: Float[np.ndarray, " n"], cells: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The fraction of the precision that each marginal should have, up to a common factor."""
    return (weights * cells) ** (2 / 3)


def expected_error(total_need: Number, precision: float) -> Number:
    """The weighted sum of expected L1 errors when precision is divided by need."""
    return MEAN_NOISE * total_need**1.5 / math.sqrt(precision)


def add_precision(
    need: Float[np.ndarray, " n"], present: Float[np.ndarray, " n"], added: float
) -> Float[np.ndarray, " n"]:
    """Divides more precision so that the total of each marginal is as close to proportional to its need as possible.

    Marginals that already have more than that get nothing; the others are raised to one precision per need.
    """
    low, high = 0.0, float((present / need).max() + added / need.sum()) * 2
    for _ in range(BISECTIONS):
        level = (low + high) / 2
        if np.maximum(0.0, level * need - present).sum() > added:
            high = level
        else:
            low = level
    extra = np.maximum(0.0, low * need - present)
    extra[extra < NEGLIGIBLE * added / len(extra)] = 0.0
    return extra * (added / extra.sum())
