"""Allocation of precision: against the closed form of the error, and against a general minimiser."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float
from scipy import optimize

from tests.examples import scaled
from understudy.marginals.allocation import MEAN_NOISE, NEGLIGIBLE, add_precision, expected_error, needs

Vector = Float[np.ndarray, " n"]


def total_error(weights: Vector, cells: Vector, precision: Vector) -> float:
    """The weighted sum of expected L1 errors: m cells, each with the mean of |noise| of variance 1 / p."""
    return float((weights * cells * np.sqrt(2 / (math.pi * precision))).sum())


sizes = st.lists(st.tuples(st.floats(0.5, 4), st.integers(1, 500)), min_size=1, max_size=8)


@settings(max_examples=scaled(50))
@given(marginals=sizes, precision=st.floats(1e-6, 1e3))
def test_precision_by_need_has_the_least_expected_error(marginals: list[tuple[float, int]], precision: float) -> None:
    """Not above uniform allocation, nor above one in proportion to cells; and its error is the stated closed form."""
    weights, cells = (np.array(column, dtype=float) for column in zip(*marginals, strict=True))
    need = needs(weights, cells)
    by_need = total_error(weights, cells, precision * need / need.sum())
    assert by_need == pytest.approx(expected_error(float(need.sum()), precision))
    for other in (np.ones_like(cells), cells, weights * cells, np.sqrt(cells)):
        assert by_need <= total_error(weights, cells, precision * other / other.sum()) * (1 + 1e-12)


def test_precision_by_need_beats_others_clearly_where_needs_differ() -> None:
    weights, cells = np.array([1.0, 1.0, 2.0]), np.array([2.0, 10.0, 400.0])
    need = needs(weights, cells)
    by_need = total_error(weights, cells, need / need.sum())
    assert by_need < 0.7 * total_error(weights, cells, np.full(3, 1 / 3))
    assert by_need < 0.98 * total_error(weights, cells, weights * cells / (weights * cells).sum())


def test_the_mean_of_noise() -> None:
    """Two-sided at five standard errors: a false alarm in two million seeds."""
    draws = np.abs(np.random.default_rng(0).normal(size=200_000))
    assert abs(draws.mean() - MEAN_NOISE) < 5 * draws.std() / math.sqrt(draws.size)


@pytest.mark.parametrize("seed", range(12))
def test_added_precision_minimises_the_error_above_what_is_present(seed: int) -> None:
    """A general minimiser finds nothing better among all additions that are not negative and have this sum."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    weights, cells = rng.uniform(0.5, 3, n), rng.integers(2, 60, n).astype(float)
    need, present = needs(weights, cells), rng.uniform(0.05, 2, n)
    added = float(rng.uniform(0.1, 4))
    found = add_precision(need, present, added)
    slow = optimize.minimize(
        lambda extra: total_error(weights, cells, present + extra),
        np.full(n, added / n),
        jac=lambda extra: -weights * cells * MEAN_NOISE / 2 * (present + extra) ** -1.5,
        bounds=[(0, added)] * n,
        constraints={"type": "eq", "fun": lambda extra: extra.sum() - added},
        method="SLSQP",
        options={"ftol": 1e-10, "maxiter": 1000},
    )
    assert slow.success
    best = total_error(weights, cells, present + slow.x)
    assert total_error(weights, cells, present + found) == pytest.approx(best, rel=1e-5)
    np.testing.assert_allclose(found, slow.x, atol=2e-3 * added)


@settings(max_examples=scaled(80))
@given(
    marginals=st.lists(st.tuples(st.floats(0.1, 1e3), st.floats(0, 1e3)), min_size=1, max_size=30),
    added=st.floats(1e-6, 1e6),
)
def test_all_that_is_added_is_divided_and_nothing_is_lowered(
    marginals: list[tuple[float, float]], added: float
) -> None:
    need, present = (np.array(column, dtype=float) for column in zip(*marginals, strict=True))
    extra = add_precision(need, present, added)
    assert extra.min() >= 0
    assert extra.sum() == pytest.approx(added, rel=1e-9)
    assert not np.any((extra > 0) & (extra < NEGLIGIBLE / 2 * added / len(extra)))
    raised = extra > 0
    levels = ((present + extra) / need)[raised]  # one common level, which those without an addition have already
    slack = 2 * NEGLIGIBLE * added / need.min()
    assert np.ptp(levels) <= slack
    assert ((present / need)[~raised] >= levels.min() - slack).all()


def test_with_nothing_present_precision_follows_need() -> None:
    need = np.array([1.0, 2.0, 5.0])
    np.testing.assert_allclose(add_precision(need, np.zeros(3), 16.0), 2 * need)
