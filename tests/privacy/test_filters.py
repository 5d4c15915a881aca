"""Privacy filters: the budget is charged once, and no query passes it."""

import math

import pytest

from tests.privacy.small_tables import candidates, ledger, table, untouchable
from understudy.errors import BudgetExceeded
from understudy.privacy.events import ZCDP, DiscreteGaussian, Selections
from understudy.privacy.filters import ZCDPFilter
from understudy.privacy.ledger import Query


def test_a_filter_charges_its_zcdp_budget_first_and_once() -> None:
    book = ledger(1.0)
    with pytest.raises(BudgetExceeded, match=r"would exceed"):
        ZCDPFilter(untouchable(), Query("r", "r", ZCDP(10.0)), book)
    query = Query("r", "r", ZCDP(0.01))
    budget = ZCDPFilter(table([(0, 0, 0)]), query, book)
    assert book.queries == (query,)
    budget.noisy_counts(("a",), 20.0)
    budget.noisy_selection(candidates(), 0.05)
    assert book.queries == (query,)
    assert budget.used == pytest.approx(1 / (2 * 20.0**2) + 0.05**2 / 8)
    assert budget.remaining == pytest.approx(budget.rho - budget.used)


def test_a_filter_refuses_rows_of_smaller_units_than_the_ledger_protects() -> None:
    """Its counts would get noise for one row of a unit that may own four."""
    book = ledger(50.0, k=4)
    with pytest.raises(BudgetExceeded, match="limited to 1 per unit, but the ledger allows 4"):
        ZCDPFilter(untouchable(k=1), Query("r", "r", ZCDP(0.01)), book)
    assert not book.queries


def test_a_filter_refuses_to_overspend_untouched() -> None:
    budget = ZCDPFilter(untouchable(), Query("r", "r", ZCDP(0.01)), ledger(5.0))
    with pytest.raises(BudgetExceeded, match=r"A query at rho 0\.02 exceeds the 0.01 left.*This query was not made"):
        budget.noisy_counts(("a",), 1 / math.sqrt(2 * 0.02))
    with pytest.raises(BudgetExceeded):
        budget.noisy_selection(candidates(), math.sqrt(8 * 0.0101))
    for senseless in (math.inf, math.nan):
        with pytest.raises(BudgetExceeded):
            budget.noisy_counts(("a",), senseless)
        with pytest.raises(BudgetExceeded):
            budget.noisy_selection(candidates(), senseless)
    with pytest.raises(BudgetExceeded):
        budget.noisy_selection(candidates(), 0.0)
    assert budget.used == 0.0


@pytest.mark.parametrize("k", [1, 4])
def test_a_filter_counts_many_small_spends(k: int) -> None:
    """However the zCDP budget is divided, the queries that were made cost no more than it in all."""
    budget = ZCDPFilter(table([(0, 0, 0)], k=k), Query("r", "r", ZCDP(0.03)), ledger(50.0, k=k))
    price = 0.03 / 1000
    made = 0
    while made < 2000:
        try:
            budget.noisy_counts(("a",), k / math.sqrt(2 * price))
        except BudgetExceeded:
            break
        made += 1
    assert made * price == pytest.approx(0.03, rel=2e-3)
    assert made * price <= 0.03 * (1 + 1e-9)
    assert budget.remaining < price


def test_no_spend_is_too_small_to_count() -> None:
    """In floating point a half plus 1e-18 is a half: the running sum is rounded up instead."""
    budget = ZCDPFilter(table([(0, 0, 0)]), Query("r", "r", ZCDP(0.5)), ledger(50.0))
    budget.noisy_counts(("a",), 1.001)
    before = budget.used
    for _ in range(5):
        budget.noisy_selection(candidates(), math.sqrt(8e-18))
    assert budget.used > before


def test_costs_inside_a_filter_are_those_of_the_events() -> None:
    for k in (1, 3):
        budget = ZCDPFilter(table([], k=k), Query("r", "r", ZCDP(0.5)), ledger(50.0, k=k))
        budget.noisy_counts(("a",), 7.0)
        assert budget.used == pytest.approx(DiscreteGaussian(7.0, 1, k).rho)
        before = budget.used
        budget.noisy_selection(candidates(), 0.3)
        assert budget.used - before == pytest.approx(Selections(0.3).rho)
