"""Rates with exact intervals, and the exact test that all checks use."""

import dataclasses
from typing import NamedTuple

from scipy.stats import binomtest, hypergeom

CONFIDENCE = 0.99
"""Of every interval: two-sided."""


@dataclasses.dataclass(frozen=True)
class Rate:
    """A number of rows out of a total, with its Clopper-Pearson interval."""

    count: int
    total: int
    value: float
    low: float
    high: float

    @classmethod
    def of(cls, count: int, total: int) -> "Rate":
        interval = binomtest(count, total).proportion_ci(CONFIDENCE, method="exact")
        return cls(count, total, count / total, float(interval.low), float(interval.high))


class Difference(NamedTuple):
    """A difference of two rates with an interval."""

    value: float
    low: float
    high: float


def difference(first: Rate, second: Rate) -> Difference:
    """The first rate minus the second. The interval combines the ends of both intervals, so it is wider than needed."""
    return Difference(first.value - second.value, first.low - second.high, first.high - second.low)


def excess_p_value(members: Rate, others: Rate) -> float:
    """The one-sided p-value of Fisher's exact test of whether the rate of the members is larger.

    It is exact if members were chosen at random: given all rows that were counted, the number of members among them is
    then hypergeometric.
    """
    counted = members.count + others.count
    return float(hypergeom.sf(members.count - 1, members.total + others.total, members.total, counted))
