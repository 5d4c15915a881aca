"""Costs of runs in a budget book: whole numbers that are never too small, and a limit that is never too large."""

import dataclasses
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

import understudy as us
from tests.builders import raises
from tests.examples import scaled
from understudy.errors import ConfigError
from understudy.privacy.accounting.accountants import gaussian_epsilon
from understudy.privacy.accounting.events import (
    ORDERS,
    ZCDP,
    DiscreteGaussian,
    Event,
    Gaussian,
    LaplaceCounts,
    Pure,
    Selections,
    SubsampledGaussian,
)
from understudy.privacy.accounting.ledger import Query
from understudy.privacy.accounting.release_costs import AMOUNT_DIGITS, DELTA_DIGITS, Cost, ReleaseFilter

LIMITS = [(0.05, 1e-9), (1.0, 1e-6), (3.0, 1e-5), (10.0, 1e-4), (30.0, 1e-12)]
RUN = us.Guarantee(1.0, 1e-6)


def query(event: Event, *, delta: float = 0.0, partition: str | None = None) -> Query:
    return Query("key", "what", event, delta=delta, partition=partition)


def divergence(cost: Cost) -> Fraction:
    return Fraction(cost.amount, 10**AMOUNT_DIGITS)


# --------------------------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(("epsilon", "delta"), LIMITS)
@pytest.mark.parametrize("order", [None, 2.0, 63])
def test_the_limit_is_the_largest_divergence_that_implies_the_guarantee(
    epsilon: float, delta: float, order: float | None
) -> None:
    try:
        terms = ReleaseFilter.create(epsilon, delta, order=order)
    except ConfigError:  # nothing fits at this order: the conversion alone takes more than epsilon
        assert order is not None
        assert epsilon < mpmath.log1p(-1 / order) - (mpmath.log(delta / 2) + mpmath.log(order)) / (order - 1)
        return
    assert terms.order is not None
    with mpmath.workdps(50):
        a, half = mpmath.mpf(terms.order), mpmath.mpf(delta) / 2

        def implied(r: mpmath.mpf) -> mpmath.mpf:
            return r + mpmath.log(1 - 1 / a) - (mpmath.log(half) + mpmath.log(a)) / (a - 1)

        unit, limit = mpmath.mpf(10) ** -AMOUNT_DIGITS, terms.limit.amount
        assert implied(limit * unit) <= epsilon < implied((limit + 3) * unit)
    assert Fraction(terms.limit.delta, 10**DELTA_DIGITS) <= Fraction(delta) / 2


@pytest.mark.parametrize(("epsilon", "delta"), LIMITS)
def test_the_limit_agrees_with_another_accountant(epsilon: float, delta: float) -> None:
    terms = ReleaseFilter.create(epsilon, delta)
    amount = float(divergence(terms.limit))
    at = lambda value: rdp.compute_epsilon([terms.order], [value], delta / 2)[0]  # noqa: E731
    assert at(amount) <= epsilon < at(amount * 1.001)


@pytest.mark.parametrize("composition", ["renyi", "zcdp"])
@pytest.mark.parametrize(("epsilon", "delta"), LIMITS)
def test_gaussian_noise_that_fills_the_limit_keeps_the_guarantee_exactly(
    epsilon: float, delta: float, composition: str
) -> None:
    terms = ReleaseFilter.create(epsilon, delta, composition)
    rho = float(divergence(terms.limit)) / (terms.order or 1)
    exact = gaussian_epsilon(1 / math.sqrt(2 * rho), delta / 2)
    assert 0.6 * epsilon < exact <= epsilon


@pytest.mark.parametrize(("epsilon", "delta"), LIMITS)
def test_the_limit_of_zcdp_is_near_the_best_over_all_real_orders(epsilon: float, delta: float) -> None:
    def fits(log_order: float) -> float:
        a = 1 + math.exp(log_order)
        return (epsilon - math.log1p(-1 / a) + (math.log(delta / 2) + math.log(a)) / (a - 1)) / a

    found = optimize.minimize_scalar(lambda x: -fits(x), bounds=(-3, 14), method="bounded")
    rho = float(divergence(ReleaseFilter.create(epsilon, delta, "zcdp").limit))
    assert 0.99 * -found.fun < rho <= -found.fun * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), LIMITS)
def test_the_default_order_is_the_best_for_gaussian_noise(epsilon: float, delta: float) -> None:
    terms = ReleaseFilter.create(epsilon, delta)
    assert terms.order is not None
    best = terms.limit.amount / terms.order
    for order in (1.5, 2.0, 5.0, 11, 20, 63, 256, 1024):
        try:
            other = ReleaseFilter.create(epsilon, delta, order=order)
        except ConfigError:
            continue
        assert other.limit.amount / order <= best * (1 + 1e-9)


def test_the_epsilon_of_a_full_book_is_its_limit() -> None:
    for composition in ("renyi", "zcdp", "basic"):
        terms = ReleaseFilter.create(2.0, 1e-6, composition)
        assert terms.spent_epsilon(terms.limit) == pytest.approx(2.0, rel=1e-9)
        assert terms.spent_epsilon(Cost()) == 0.0


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        ((0.0, 1e-6), "epsilon"),
        ((1.0, 0.0), "delta"),
        ((1.0, 1e-25), "delta"),
        ((1.0, 1e-6, "renyy"), "composition"),
        ((1.0, 1e-6, "basic", 4.0), "order"),
        ((1.0, 1e-6, "renyi", 65.3), "order"),
        ((1.0, 1e-6, "renyi", math.nan), "order"),
        ((1.0, 1e-6, "renyi", 2.0), "epsilon"),
    ],
)
def test_limits_that_cannot_be(arguments: tuple, setting: str) -> None:
    with raises(ConfigError, setting=setting):
        ReleaseFilter.create(*arguments)


def test_the_nearest_known_order_is_named() -> None:
    with pytest.raises(ConfigError, match="The nearest is 63"):
        ReleaseFilter.create(1.0, 1e-6, "renyi", 65.3)


# ---------------------------------------------------------------------------------------------------------------- costs


def test_a_divergence_is_that_of_its_mechanism() -> None:
    """Gaussian: order / (2 sigma^2). DP-SGD at a whole order: the binomial sum (Mironov, Talwar and Zhang 2019)."""
    terms = ReleaseFilter.create(1.0, 1e-6, order=16)
    with mpmath.workdps(40):
        q, sigma, order = mpmath.mpf("0.01"), mpmath.mpf("1.5"), 16
        terms_of = [
            mpmath.binomial(order, k) * (1 - q) ** (order - k) * q**k * mpmath.exp(k * (k - 1) / (2 * sigma**2))
            for k in range(order + 1)
        ]
        step = mpmath.log(sum(terms_of)) / (order - 1)
    cases = [
        (Gaussian(7.0), 16 / (2 * 49)),
        (DiscreteGaussian(10.0, count=3, sensitivity=2), 16 * 3 * 4 / 200),
        (Selections(0.1, 5), 16 * 5 * 0.01 / 8),
        (LaplaceCounts(0.1), 16 * 0.01 / 2),
        (SubsampledGaussian(0.01, 1.5, 100), 100 * float(step)),
    ]
    for event, expected in cases:
        assert float(divergence(terms.cost([query(event)], RUN))) == pytest.approx(expected, rel=1e-6)


def test_deltas_of_lists_and_of_finite_noise_add_up_apart() -> None:
    terms = ReleaseFilter.create(1.0, 1e-6)
    pure = Pure(0.01, 3)
    assert pure.tail_delta > 0
    cost = terms.cost([query(ZCDP(1e-4), delta=3e-9), query(pure)], RUN)
    exact = Fraction(3e-9) + Fraction(pure.tail_delta)
    assert exact <= Fraction(cost.delta, 10**DELTA_DIGITS) < exact + Fraction(3, 10**DELTA_DIGITS)


def test_partitions_cost_as_much_as_the_most_expensive() -> None:
    terms = ReleaseFilter.create(1.0, 1e-6)
    shared, left = query(ZCDP(1e-3)), query(ZCDP(2e-3), partition="left")
    right = query(ZCDP(5e-3), partition="right")
    assert terms.cost([shared, left, right], RUN) == terms.cost([shared, query(ZCDP(5e-3))], RUN)
    assert (
        terms.cost([shared, left, dataclasses.replace(right, partition=None)], RUN).amount
        > terms.cost([shared, left, right], RUN).amount
    )


@settings(max_examples=scaled(50))
@given(st.lists(st.floats(1e-18, 1.0), min_size=1, max_size=20), st.sampled_from(["renyi", "zcdp"]))
def test_costs_are_never_rounded_down_and_never_zero(rhos: list[float], composition: str) -> None:
    terms = ReleaseFilter.create(1.0, 1e-6, composition)
    factor = Fraction(terms.order or 1)
    cost = terms.cost([query(ZCDP(rho)) for rho in rhos], RUN)
    exact = sum(Fraction(float(np.float64(rho) * (terms.order or 1))) for rho in rhos)
    assert divergence(cost) >= exact
    assert divergence(cost) <= exact + Fraction(len(rhos), 10**AMOUNT_DIGITS)
    assert cost.amount >= len(rhos)
    assert factor > 0


def test_even_a_run_without_queries_costs_something() -> None:
    assert ReleaseFilter.create(1.0, 1e-6).cost([], RUN).amount > 0


def test_basic_composition_counts_the_figures_that_people_write() -> None:
    terms = ReleaseFilter.create(3.0, 1e-5, "basic")
    cost = terms.cost([query(ZCDP(1e-3))], us.Guarantee(0.1, 1e-7))
    thirty = sum([cost] * 30, Cost())
    assert thirty.amount == terms.limit.amount
    assert thirty.fits(terms.limit)
    assert not (thirty + cost).fits(terms.limit)
    assert not Cost(0, terms.limit.delta + 1).fits(terms.limit)


def test_zcdp_refuses_events_that_are_not_concentrated() -> None:
    with raises(ConfigError, setting="composition"):
        ReleaseFilter.create(1.0, 1e-6, "zcdp").cost([query(SubsampledGaussian(0.01, 1.0, 5))], RUN)


def test_an_infinite_divergence_is_refused() -> None:
    terms = dataclasses.replace(ReleaseFilter.create(1.0, 1e-6), order=ORDERS[-1])
    with raises(ConfigError, setting="order"):
        terms.cost([query(SubsampledGaussian(0.01, 1.0, 5))], RUN)
