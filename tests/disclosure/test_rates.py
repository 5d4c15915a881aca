"""Intervals and tests against other implementations."""

import pytest
from scipy.stats import beta, fisher_exact

from understudy.disclosure.rates import CONFIDENCE, Rate, difference, excess_p_value


@pytest.mark.parametrize(("count", "total"), [(0, 50), (1, 50), (25, 50), (50, 50), (7, 1000)])
def test_intervals_are_those_of_clopper_and_pearson(count: int, total: int) -> None:
    tail = (1 - CONFIDENCE) / 2
    rate = Rate.of(count, total)
    assert rate.low == pytest.approx(beta.ppf(tail, count, total - count + 1) if count else 0.0)
    assert rate.high == pytest.approx(beta.ppf(1 - tail, count + 1, total - count) if count < total else 1.0)


@pytest.mark.parametrize("table", [(5, 20, 1, 30), (0, 10, 0, 10), (3, 7, 7, 9), (50, 5000, 0, 1000)])
def test_the_p_value_is_that_of_fishers_test(table: tuple[int, int, int, int]) -> None:
    ours, of_ours, theirs, of_theirs = table
    expected = fisher_exact([[ours, of_ours - ours], [theirs, of_theirs - theirs]], alternative="greater").pvalue
    assert excess_p_value(Rate.of(ours, of_ours), Rate.of(theirs, of_theirs)) == pytest.approx(expected)


def test_a_difference_spans_both_intervals() -> None:
    first, second = Rate.of(30, 100), Rate.of(10, 100)
    assert difference(first, second) == pytest.approx((0.2, first.low - second.high, first.high - second.low))
