"""How much precision each marginal gets: what lowers the expected error of all of them most.

A marginal of m cells with noise of precision p (one over the variance) on each count has an expected L1 error of
m sqrt(2 / (pi p)). With weights w, the weighted sum over marginals is least, for a given sum of precisions, where
precisions are in proportion to (w m)^(2/3), the *need* of a marginal.
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
"""Additions below this part of an even share are left out: each would be a query of its own for nothing."""


def needs(weights: Float[np.ndarray, " n"], cells: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The part of the precision that each marginal should have, up to a common factor."""
    return (weights * cells) ** (2 / 3)


def expected_error(total_need: Number, precision: float) -> Number:
    """The weighted sum of expected L1 errors when precision is divided by need.

    >>> round(expected_error(8.0 ** (2 / 3), 1.0), 4)  # one marginal of 8 cells, standard deviation 1
    6.3831
    """
    return MEAN_NOISE * total_need**1.5 / math.sqrt(precision)


def add_precision(
    need: Float[np.ndarray, " n"], present: Float[np.ndarray, " n"], added: float
) -> Float[np.ndarray, " n"]:
    """Divides more precision so that afterwards all of it is as close to proportional to need as can be.

    Marginals that already have more than their part get nothing; the others are raised to one common level.

    >>> add_precision(np.ones(3), np.array([0.0, 1.0, 5.0]), 3.0).tolist()
    [2.0, 1.0, 0.0]
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
