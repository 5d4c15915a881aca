"""Charges for training: made before a row is read, and tied to the noise that is drawn."""

from typing import Any

import numpy as np
import pytest

from tests.builders import over_budget, raises
from tests.privacy.small_tables import DOMAIN, Closed, ledger, table, untouchable
from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting.events import DiscreteGaussian, Selections, SubsampledGaussian
from understudy.privacy.accounting.ledger import Guarantee, Ledger, Query
from understudy.privacy.gradients.charges import UnitCounts, charge_dpsgd, charge_langevin, event_of
from understudy.privacy.gradients.langevin import Law, Stage
from understudy.privacy.mechanisms.counts import noisy_answers
from understudy.privacy.mechanisms.selection import noisy_selections
from understudy.privacy.noise.source import SeededNoise


def test_rows_bounded_for_smaller_units_are_refused_before_any_charge() -> None:
    """Choices and gradient steps: noise for one row a unit would not hide three."""
    book = ledger(k=3)
    with raises(BudgetExceeded, query="selections", needed=None):
        noisy_selections(untouchable(), Query("c", "selections", Selections(0.1, 2)), book)
    with raises(BudgetExceeded, query="counts", needed=None):
        noisy_answers(untouchable(), Query("c", "counts", DiscreteGaussian(50.0, 2, 3)), book)
    with raises(BudgetExceeded, query="steps", needed=None):
        charge_dpsgd(untouchable(), Query("s", "steps", SubsampledGaussian(0.5, 20.0, 2)), book)
    with raises(BudgetExceeded, query="steps", needed=None):
        charge_langevin(
            untouchable(),
            [Query("s", "steps", SubsampledGaussian(0.5, 20.0, 12))],
            book,
            schedule=SCHEDULE,
            law=updates_law(),
            updates_each=2,
        )
    assert not book.queries


SCHEDULE = (Stage(3, 1e-3), Stage(2, 1e-4), Stage(1, 1e-5))
"""Six iterations, of two updates each."""


def updates_law(drift_sensitivity: float = 1e9) -> Law:
    """With a reach so great that Langevin asks for no noise beyond what is charged."""
    return Law(drift_sensitivity, 1.0, 1.0, momentum=False)


@pytest.mark.parametrize("dear", [0, 1, 2])
def test_updates_are_all_charged_before_the_rows_are_read(dear: int) -> None:
    """Whichever query does not fit, nothing is read; where all fit, each iteration has the noise of its own."""
    steps = [2 * stage.iterations for stage in SCHEDULE]
    queries = [Query(f"s{n}", "steps", SubsampledGaussian(0.5, 20.0 + n, steps[n])) for n in range(3)]
    refused = [*queries[:dear], Query("dear", "steps", SubsampledGaussian(0.5, 0.5, steps[dear])), *queries[dear + 1 :]]
    given: Any = {"schedule": SCHEDULE, "law": updates_law(), "updates_each": 2}
    with over_budget("steps"):
        charge_langevin(Closed(np.zeros((3, 3), np.int32), DOMAIN), refused, ledger(5.0), **given)
    book = ledger(5.0)
    charged = charge_langevin(table([(0, 0, 0)]), queries, book, **given)
    assert book.queries == tuple(queries)
    assert np.asarray(charged._schedule.noise_multiplier).tolist() == [20.0] * 3 + [21.0] * 2 + [22.0]
    assert (charged.num_iterations, charged.steps.num_steps, charged.steps.sampling_rate) == (6, 12, 0.5)
    assert float(charged.steps.noise_multiplier) == 20.0


def test_updates_have_the_noise_of_langevin_where_that_is_more() -> None:
    query = Query("s", "steps", SubsampledGaussian(0.5, 20.0, 12))
    charged = charge_langevin(
        table([(0, 0, 0)]), [query], ledger(5.0), schedule=SCHEDULE, law=updates_law(2.0), updates_each=2
    )
    wanted = [stage.langevin_multiplier(2.0, 1.0) for stage in SCHEDULE]
    assert wanted[0] > 20
    expected = np.repeat(np.asarray(wanted, np.float32), [3, 2, 1])
    np.testing.assert_array_equal(charged._schedule.noise_multiplier, expected)


def test_updates_that_the_plan_does_not_charge_are_refused() -> None:
    """Fewer charged than made, or of two sampling rates."""
    few = [Query("s", "steps", SubsampledGaussian(0.5, 20.0, 11))]
    mixed = [Query("s", "steps", SubsampledGaussian(rate, 20.0, 6)) for rate in (0.5, 0.25)]
    for queries in (few, mixed):
        book = ledger(5.0)
        with raises(BudgetExceeded, query=None):
            charge_langevin(
                Closed(np.zeros((3, 3), np.int32), DOMAIN),
                queries,
                book,
                schedule=SCHEDULE,
                law=updates_law(),
                updates_each=2,
            )
        assert not book.queries


def test_steps_carry_what_was_charged() -> None:
    """Sampling rate, noise multiplier and number of steps are those of the event; without privacy there is no noise."""
    query = Query("s", "steps", SubsampledGaussian(0.5, 20.0, 3))
    charged = charge_dpsgd(table([(0, 0, 0)]), query, ledger(5.0))
    assert (charged.sampling_rate, float(charged.noise_multiplier), charged.num_steps) == (0.5, 20.0, 3)
    free = charge_dpsgd(table([(0, 0, 0)]), query, Ledger(Guarantee.not_private(), noise=SeededNoise(0)))
    assert not free.is_private


def test_a_sampling_rate_that_no_coin_has_is_refused() -> None:
    """Coins would be tossed at the next greater rate of 12 binary digits, and 0.1 is not one of these."""
    query, closed = Query("s", "steps", SubsampledGaussian(0.1, 20.0, 12)), Closed(np.zeros((3, 3), np.int32), DOMAIN)
    book = ledger(5.0)
    with raises(BudgetExceeded, query="steps", needed=None):
        charge_dpsgd(closed, query, book)
    with raises(BudgetExceeded, query="steps", needed=None):
        charge_langevin(closed, [query], book, schedule=SCHEDULE, law=updates_law(), updates_each=2)
    assert not book.queries


def test_counts_of_units_are_within_the_charged_cost() -> None:
    """1 / charged^2 = 1 / gradients^2 + groups / (2 stddev)^2; counts that cost more than a step are refused."""
    query = Query("s", "steps", SubsampledGaussian(0.5, 20.0, 3))
    charged = charge_dpsgd(table([(0, 0, 0)]), query, ledger(5.0), counts=UnitCounts(2, 30.0))
    assert 1 / float(charged.noise_multiplier) ** 2 + 2 / 60.0**2 == pytest.approx(1 / 20.0**2, rel=1e-5)
    book = ledger(5.0)
    with raises(ConfigError, setting="counts"):
        charge_dpsgd(Closed(np.zeros((3, 3), np.int32), DOMAIN), query, book, counts=UnitCounts(2, 1.0))
    assert not book.queries


def test_a_query_of_another_kind_is_refused() -> None:
    query = Query("s", "steps", DiscreteGaussian(20.0))
    book = ledger(5.0)
    with raises(BudgetExceeded, query="steps", needed=None):
        charge_dpsgd(Closed(np.zeros((3, 3), np.int32), DOMAIN), query, book)
    assert not book.queries
    assert event_of(query, Selections, DiscreteGaussian) is query.event
