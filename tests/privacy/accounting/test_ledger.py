"""The ledger: no query is made before it is charged, and what was charged is what the statement says."""

import contextlib
import copy
import json
import math

import pytest

from tests.builders import raises
from understudy import certificate
from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting import accountants as accounting
from understudy.privacy.accounting.budget import default_delta
from understudy.privacy.accounting.events import ZCDP, DiscreteGaussian, Gaussian, Selections, SubsampledGaussian
from understudy.privacy.accounting.ledger import (
    Budget,
    Guarantee,
    Ledger,
    Plan,
    PublicFacts,
    Query,
    Strength,
    spent_by,
)
from understudy.privacy.accounting.statement import strength
from understudy.privacy.noise.source import SecureNoise, SeededNoise
from understudy.run.checkpoint import Slot


def ledger(epsilon: float = 1.0, delta: float | None = 1e-6, *, rows_per_unit: int = 1) -> Ledger:
    return Ledger(Guarantee(epsilon, delta), noise=SeededNoise(0), max_rows_per_unit=rows_per_unit)


def counts(
    stddev: float, count: int = 1, *, key: str = "counts", delta: float = 0.0, partition: str | None = None
) -> Query:
    return Query(key, f"{count} marginals", DiscreteGaussian(stddev, count), delta=delta, partition=partition)


# ---------------------------------------------------------------------------------------------------------- guarantee


@pytest.mark.parametrize("epsilon", [0, -1.5, math.nan, True, "1", math.inf, -math.inf, 100.5, 1000, 1e-7])
def test_an_epsilon_out_of_range_is_refused(epsilon: object) -> None:
    with raises(ConfigError, setting="epsilon"):
        Guarantee(epsilon)  # type: ignore[arg-type]  # a wrong type


@pytest.mark.parametrize(
    ("epsilon", "word"),
    [
        (0.01, "strong"),
        (1, "strong"),
        (1.01, "moderate"),
        (3, "moderate"),
        (10, "limited"),
        (10.1, "weak"),
        (1e9, "weak"),
    ],
)
def test_strength_follows_from_epsilon_alone(epsilon: float, word: str) -> None:
    assert strength(epsilon) is Strength(word)


def test_epsilon_above_10_is_called_weak() -> None:
    """In the warnings, which plan, run and certificate show; the largest epsilon still has a finite factor."""
    assert Guarantee(10.0).warnings == ()
    [warning] = Guarantee(12.0).warnings
    assert warning.startswith("This is a weak guarantee. Epsilon 12 permits")
    assert "a factor of 170,000." in warning
    assert "a factor of 10^44." in Guarantee(100.0).warnings[0]
    assert len(Guarantee(12.0, 0.005).warnings) == 2
    assert Guarantee.not_private().warnings == ()


@pytest.mark.parametrize("delta", [0, 1, -1e-6, 1.5, math.nan])
def test_a_delta_out_of_range_is_refused(delta: float) -> None:
    with raises(ConfigError, setting="delta"):
        Guarantee(1.0, delta)


def test_delta_is_given_or_follows_from_the_declared_size() -> None:
    """Never from the rows: the only inputs are the guarantee and the declared size."""
    assert Guarantee(1.0, 1e-7).with_delta_for(None).delta == 1e-7
    assert Guarantee(1.0, 1e-7).with_delta_for(1000).delta == 1e-7
    assert Guarantee(1.0).with_delta_for(None).delta == 1e-6
    assert Guarantee(1.0).with_delta_for(8802).delta == default_delta(8802) == 1.2e-6
    assert ledger(delta=None).guarantee.delta == 1e-6
    with pytest.raises(
        ConfigError, match=r"delta 0\.01 is larger than 1/1000.*whole row\. Use 1e-05 or less, or leave"
    ):
        Guarantee(1.0, 0.01).with_delta_for(1000)


def test_a_budget_follows_from_a_guarantee() -> None:
    assert Guarantee(1.0, 1e-7).budget(3) == ledger(delta=1e-7, rows_per_unit=3).remaining == Budget(1.0, 1e-7, (), 3)
    assert Guarantee(1.0).budget() == Budget(1.0, 1e-6)
    assert not Guarantee.not_private().budget().is_private


class Store:
    """All that a ledger asks of a place for states."""

    is_charged = False

    def slot(self) -> Slot:
        raise AssertionError("no training starts in these tests, so none may ask where to keep its state")


def test_only_an_accepted_charge_under_a_guarantee_marks_the_store() -> None:
    """From then on a failed run keeps its secret."""
    for guarantee, stddev, is_charged in (
        (Guarantee(1.0, 1e-6), 20.0, True),
        (Guarantee(1.0, 1e-6), 1.0, False),
        (Guarantee.not_private(), 20.0, False),
    ):
        store = Store()
        book = Ledger(guarantee, noise=SeededNoise(0), store=store)
        with contextlib.suppress(BudgetExceeded):
            book.view(book.remaining).charge(counts(stddev))
        assert store.is_charged is is_charged
    assert ledger().slot() is None


@pytest.mark.parametrize("rows", [1, 2, 99, 2154, 2155, 5000, 32561, 10**6, 21_000_000])
def test_the_default_delta_is_two_digits_below_both_bounds(rows: int) -> None:
    delta = default_delta(rows)
    exact = min(1e-5, rows**-1.5)
    assert 0.9 * exact <= delta <= exact * (1 + 1e-9)
    assert delta == float(f"{delta:.1e}")
    assert Guarantee(1.0).with_delta_for(rows).delta == delta
    assert Guarantee(1.0, delta).with_delta_for(rows).delta == delta  # the default is never refused


@pytest.mark.parametrize("rows", [22_000_000, 130_000_000, 10**9, 10**10, 10**11, 10**15])
def test_the_default_delta_of_a_large_table_is_one_that_every_method_can_honour(rows: int) -> None:
    """As far as that is possible: it never lets the guarantee fail for a tenth of a unit in expectation."""
    delta = default_delta(rows)
    assert rows * delta <= 0.1 * (1 + 1e-9)
    assert delta >= min(1e-11, 0.09 / rows)
    assert Guarantee(1.0).with_delta_for(rows).delta == delta == float(f"{delta:.1e}")
    if rows <= 10**10:
        training = [SubsampledGaussian(1e-5, 0.5, 1000)]
        accounting.check_tails(training, 0.9 * delta)  # the rest is for lists of categories
        assert accounting.tail_delta(training) < 0.1 * delta


# ------------------------------------------------------------------------------------------------------------- charging


def test_a_refused_charge_leaves_the_ledger_as_it_was() -> None:
    book = ledger()
    book.charge(counts(20.0))
    before, spent = book.queries, book.spent()
    with raises(BudgetExceeded, query="3 marginals") as refused:
        book.charge(counts(6.0, 3))
    error = refused.value
    with_it = accounting.spent([counts(20.0).event, counts(6.0, 3).event], 1e-6).epsilon
    assert (error.query, error.left) == ("3 marginals", 1.0 - spent.epsilon)
    assert error.needed == with_it - spent.epsilon > 1.0 - spent.epsilon
    assert vars(copy.copy(error)) == vars(error)
    assert book.queries == before
    assert book.spent() == spent
    book.charge(counts(20.0))  # a smaller query still fits


def test_accepted_charges_never_pass_the_guarantee() -> None:
    """Charging the same query until it is refused ends just below the target, by the better accountant."""
    book, query = ledger(), counts(25.0, 4)
    with contextlib.suppress(BudgetExceeded):
        for _ in range(1000):
            book.charge(query)
    events = [each.event for each in book.queries]
    assert len(events) < 1000
    assert accounting.spent(events, 1e-6).epsilon <= 1.0 < accounting.spent([*events, query.event], 1e-6).epsilon


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 10.0])
def test_what_calibration_fits_the_ledger_accepts(epsilon: float) -> None:
    """Also where the grid of the losses changes with the target, and by the privacy-loss accountant alone."""
    book = ledger(epsilon)
    stddev = book.remaining.calibrate(lambda noise: [DiscreteGaussian(noise, 3)])
    book.charge(counts(stddev, 3))
    spent = book.spent()
    assert spent.accountant == "privacy-loss distribution"
    assert 0.995 * epsilon <= spent.epsilon <= epsilon
    with pytest.raises(BudgetExceeded):
        book.charge(counts(stddev))


def test_deltas_of_lists_are_taken_from_the_delta_of_the_run() -> None:
    book = ledger()
    book.charge(counts(50.0, delta=4e-7))
    book.charge(counts(50.0, delta=5e-7))
    events = [query.event for query in book.queries]
    assert book.spent() == accounting.spent(events, 1e-6 - 9e-7)
    assert book.spent().epsilon > accounting.spent(events, 1e-6).epsilon
    for too_much in (1e-7, 2e-7):
        with pytest.raises(BudgetExceeded):
            book.charge(counts(1e6, delta=too_much))
    fits_whole_delta = ledger().remaining.calibrate(lambda noise: [DiscreteGaussian(noise)])
    with pytest.raises(BudgetExceeded):
        ledger().charge(counts(fits_whole_delta, delta=5e-7))


def test_a_cost_for_fewer_rows_per_unit_is_refused() -> None:
    """One forgotten factor would divide the noise by the rows that a unit may own."""
    book = ledger(5.0, rows_per_unit=3)
    assert book.remaining.max_rows_per_unit == 3
    with raises(BudgetExceeded, query="1 marginals", needed=None):
        book.charge(counts(100.0))
    assert not book.queries
    book.charge(Query("counts", "counts", DiscreteGaussian(100.0, 1, 3)))


def test_no_guarantee_is_open_about_it() -> None:
    book = Ledger(Guarantee.not_private(), noise=SeededNoise(0))
    book.charge(counts(1e-3, 1000))
    assert book.spent().epsilon == math.inf
    assert book.statement().epsilon == math.inf
    assert not book.statement().is_private
    assert book.statement().replace_one == (math.inf, 1.0)
    assert not Guarantee.not_private().is_private
    assert Guarantee.not_private().with_delta_for(10) == Guarantee.not_private()


# ------------------------------------------------------------------------------------------------- views and partitions


def test_a_capped_view_obeys_its_cap_and_all_that_surrounds_it() -> None:
    book = ledger(1.0)
    inner = book.view(book.remaining.fraction(0.3))
    stddev = inner.remaining.calibrate(lambda noise: [DiscreteGaussian(noise)])
    with raises(BudgetExceeded, query="1 marginals", left=pytest.approx(0.3)):
        inner.charge(counts(stddev / 1.1))
    assert not book.queries
    inner.charge(counts(stddev))
    assert book.queries == inner.queries == (counts(stddev),)
    with raises(BudgetExceeded, query="1 marginals", left=pytest.approx(0.0, abs=0.01)):
        inner.charge(counts(10 * stddev))
    book.charge(counts(10 * stddev))  # the outer ledger still has room


def test_the_outer_guarantee_binds_inside_a_generous_view() -> None:
    book = ledger(1.0)
    book.charge(counts(book.remaining.fraction(0.95).calibrate(lambda noise: [DiscreteGaussian(noise)])))
    inner = book.view(Budget(50.0, 1e-6))
    with raises(BudgetExceeded, query="1 marginals", left=pytest.approx(0.05, abs=0.01)):
        inner.charge(counts(5.0))
    assert len(book.queries) == 1
    assert len(inner.remaining.already) == 0
    inner.charge(counts(500.0))
    assert len(book.queries) == 2
    assert len(inner.remaining.already) == 1


def test_views_nest() -> None:
    """A charge in the innermost view counts in every view around it, and nowhere twice."""
    book = ledger(1.0)
    middle = book.view(Budget(0.5, 1e-6))
    inner = middle.view(Budget(10.0, 1e-6))
    query = counts(middle.remaining.fraction(0.9).calibrate(lambda noise: [DiscreteGaussian(noise)]))
    inner.charge(query)
    assert book.queries == middle.queries == inner.queries == (query,)
    assert middle.remaining.already == inner.remaining.already == book.remaining.already == (query,)
    with raises(BudgetExceeded, query="1 marginals", left=pytest.approx(0.05, abs=0.01)):
        inner.charge(query)
    assert book.queries == (query,)
    assert inner.noise is book.noise


def test_a_view_after_earlier_charges_counts_only_its_own() -> None:
    book = ledger(2.0)
    book.charge(counts(10.0))
    inner = book.view(Budget(0.3, 1e-6))
    assert inner.remaining.already == ()
    assert len(inner.queries) == 1  # the run's
    inner.charge(counts(50.0))
    assert len(book.queries) == 2


def parted(epsilon: float) -> Ledger:
    """A ledger whose units have been partitioned into left and right."""
    book = ledger(epsilon)
    book._partition_units("left", "right")
    return book


def test_partitions_cost_what_the_most_expensive_one_costs() -> None:
    """Each with its own queries and those on all units, composed; a maximum taken first would be too little."""
    everyone, left, right = counts(30.0, 4), counts(40.0, partition="left"), counts(28.0, partition="right")
    book = parted(5.0)
    for query in (left, everyone, right):
        book.charge(query)
    joint = accounting.spent([everyone.event, right.event], 1e-6, grid=accounting.grid_for(5.0))
    assert book.spent().epsilon == pytest.approx(joint.epsilon, rel=1e-6)
    assert book.spent().epsilon > max(accounting.spent([query.event], 1e-6).epsilon for query in book.queries)
    assert book.spent().epsilon < 0.99 * accounting.spent([query.event for query in book.queries], 1e-6).epsilon


def test_partitions_that_different_accountants_hold_still_fit() -> None:
    """A partition that only one accountant can hold does not spoil the figure of the others."""
    book = parted(1.0)
    by_pld = book.remaining.calibrate(lambda noise: [DiscreteGaussian(noise, 3)])
    book.charge(counts(by_pld, 3, partition="left"))
    book.charge(Query("filter", "filter", ZCDP(Budget(1.0, 1e-6).rho()), partition="right"))
    assert 0.995 <= book.spent().epsilon <= 1.0
    with pytest.raises(BudgetExceeded):
        book.charge(counts(by_pld, 3, partition="right"))
    with pytest.raises(BudgetExceeded):
        book.charge(counts(100.0))


def test_deltas_of_one_partition_are_not_taken_from_another() -> None:
    book = parted(5.0)
    book.charge(counts(30.0, delta=8e-7, partition="left"))
    book.charge(counts(30.0, delta=8e-7, partition="right"))
    assert book.spent() == accounting.spent([DiscreteGaussian(30.0)], 1e-6 - 8e-7, grid=accounting.grid_for(5.0))


# --------------------------------------------------------------------------------------------------- plan and statement


PLAN = Plan(
    (
        counts(60.0, key="size"),
        counts(80.0, 3, key="categories", delta=1e-7),
        Query("choice", "tree", Selections(0.05, 5), ("a", "b"), path=("mst",)),
        Query("pairs", "pairs", DiscreteGaussian(70.0, 5), ("a", "b"), path=("boosted", "mst")),
    )
)


def test_a_plan_costs_what_its_charges_cost() -> None:
    book = ledger()
    planned = spent_by(PLAN, book.guarantee)
    for query in PLAN:
        book.charge(query)
    assert book.spent() == planned
    assert book.queries == PLAN.queries
    assert PLAN["pairs"].label == "boosted > mst: pairs"
    assert "tree" not in PLAN
    assert "choice" in PLAN
    assert [query.path for query in PLAN.under("quail")][-1] == ("quail", "boosted", "mst")
    assert PLAN.under("quail").events == PLAN.events
    assert spent_by(PLAN, Guarantee(1.0)) == spent_by(PLAN, Guarantee(1.0, 1e-6))


def test_budgets_subtract_what_stands_before() -> None:
    budget = Budget(1.0, 1e-6)
    alone = budget.calibrate(lambda noise: [DiscreteGaussian(noise)])
    after = budget.after(PLAN.queries).calibrate(lambda noise: [DiscreteGaussian(noise)])
    assert after > 1.1 * alone
    queries = (*PLAN.queries, counts(after))
    assert 0.995 <= spent_by(queries, Guarantee(1.0, 1e-6)).epsilon <= 1.0
    rest = 1.0 - spent_by(PLAN.queries, Guarantee(1.0, 1e-6)).epsilon
    assert budget.after(PLAN.queries).fraction(0.5) == Budget(0.5 * rest, 1e-6)
    rho = budget.after(PLAN.queries).rho()
    assert rho < budget.rho()
    figures = spent_by((*PLAN.queries, Query("filter", "filter", ZCDP(rho))), Guarantee(1.0, 1e-6))
    assert 0.995 <= figures.epsilon <= 1.0


@pytest.mark.parametrize("source", [SeededNoise(0), SecureNoise()])
def test_the_statement_says_what_ran_and_survives_json(source: SeededNoise | SecureNoise) -> None:
    book = Ledger(Guarantee(2.0, 1e-6), noise=source)
    book._partition_units("left", "right")
    extra = (Query("train", "training", SubsampledGaussian(0.01, 20.0, 10), partition="left"), counts(90.0))
    for query in (*PLAN, Query("gauss", "gauss", Gaussian(40.0, 2)), Query("filter", "filter", ZCDP(1e-3)), *extra):
        book.charge(query)
    facts = PublicFacts(unit="person", rows_declared=100, drafted=True, declared=("rows",), estimated=("bounds of a",))
    statement = book.statement(facts, method="mst")
    assert (statement.facts, statement.method) == (facts, "mst")
    assert statement.epsilon == book.spent().epsilon <= 2.0
    assert statement.epsilon_pld == math.inf
    assert statement.seeded is source.seeded
    assert statement.is_private is not source.seeded
    assert statement.queries == book.queries
    assert statement.replace_one == (2 * statement.epsilon, (1 + math.exp(statement.epsilon)) * 1e-6)
    text = json.dumps(certificate.to_json(statement), allow_nan=False)
    assert certificate.from_json(json.loads(text)) == statement


def test_a_statement_without_guarantee_survives_json() -> None:
    statement = Ledger(Guarantee.not_private(), noise=SecureNoise()).statement()
    text = json.dumps(certificate.to_json(statement), allow_nan=False)
    assert certificate.from_json(json.loads(text)) == statement
    assert json.loads(text)["private"] is False
