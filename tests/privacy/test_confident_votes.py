"""Confident votes: a row is answered only if enough teachers agree, by noisy tests that are all charged."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import understudy as us
from tests.builders import over_budget, raises
from tests.privacy.gradients.test_pate import NUM_ROWS, TEACHERS, VOTING, charged_votes, private_rows, table
from understudy.errors import ConfigError
from understudy.privacy.accounting.events import Gaussian
from understudy.privacy.accounting.ledger import Budget, Ledger, Query
from understudy.privacy.gradients.charges import charge_votes
from understudy.privacy.gradients.pate import ChargedVotes, ThresholdTests, add_vote_noise, passes_test, vote_stddev
from understudy.privacy.noise.source import SeededNoise
from understudy.schema import Domain
from understudy.synthesizers import read_method
from understudy.synthesizers.run import Run
from understudy.training.pate import LabelledRows, append_labels

DOMAIN = Domain(names=("a", "b", "c"), sizes=(3, 4, 2), num_rows=NUM_ROWS)
QUERIES = 20_000


def charged(epsilon: float = 8.0, threshold: float = 0.8) -> tuple[ChargedVotes, Ledger, tuple[Query, Query]]:
    ledger = Ledger(us.Guarantee(epsilon, 1e-6), noise=SeededNoise(0))
    queries = Query("tests", "tests", Gaussian(2.0)), Query("votes", "votes", Gaussian(1.0))
    votes = charge_votes(
        private_rows(),
        queries[1],
        ledger,
        num_teachers=TEACHERS,
        num_queries=QUERIES,
        tests=queries[0],
        threshold=threshold,
    )
    return votes, ledger, queries


def with_tests(threshold: float, noise: Any = None) -> ChargedVotes:
    votes = charged_votes(*table())
    drawn = jnp.zeros(votes.num_queries, jnp.int32) if noise is None else jnp.asarray(noise, jnp.int32)
    return dataclasses.replace(votes, _tests=ThresholdTests(drawn, 1, threshold * TEACHERS))


def test_a_unit_moves_what_is_tested_by_one_at_most() -> None:
    """The majority, yes or no, of all teachers: for any count, and one more yes vote or one less."""
    for count in range(TEACHERS):
        majority = [max(votes, TEACHERS - votes) for votes in (count, count + 1)]
        assert abs(majority[0] - majority[1]) <= 1
        for needed in range(TEACHERS + 1):  # passes_test compares that very number with the threshold
            votes = with_tests(needed / TEACHERS)
            found = passes_test(votes, jnp.asarray([count, count + 1], jnp.int32), 0)
            assert np.asarray(found).tolist() == [each >= needed for each in majority]


def test_tests_and_votes_are_charged_whatever_is_answered() -> None:
    """Even if no row at all is answered: both queries are on the ledger before a row is read."""
    for threshold in (0.51, 1.0):
        votes, ledger, queries = charged(threshold=threshold)
        assert ledger.queries == queries
        assert votes._tests is not None
        assert len(votes._tests._noise) == votes.num_queries == QUERIES


def test_a_budget_for_the_votes_alone_is_refused() -> None:
    ledger = Ledger(us.Guarantee(8.0, 1e-6), noise=SeededNoise(0))
    both = Query("tests", "tests", Gaussian(0.9)), Query("votes", "votes", Gaussian(0.9))
    rows = private_rows()
    more: dict[str, Any] = {"num_teachers": TEACHERS, "num_queries": 10}
    charge_votes(rows, both[1], Ledger(us.Guarantee(8.0, 1e-6), noise=SeededNoise(0)), **more)
    with over_budget("votes"):
        charge_votes(rows, both[1], ledger, tests=both[0], threshold=0.8, **more)


def test_the_noise_of_tests_has_the_charged_scale_and_is_not_that_of_the_votes() -> None:
    """False alarms: 1 in 1000 for a fresh seed. A scale 5% off is found."""
    votes, _, _ = charged()
    assert votes._tests is not None
    noise = np.asarray(votes._tests._noise) / votes._tests._steps
    stddev = vote_stddev(2.0, num_queries=QUERIES, num_teachers=TEACHERS)
    assert stddev == pytest.approx(2.0 * math.sqrt(QUERIES))
    pvalues = [stats.kstest(noise, stats.norm(scale=factor * stddev).cdf).pvalue for factor in (1.0, 0.95, 1.05)]
    assert pvalues[0] > 1e-3
    assert max(pvalues[1:]) < 1e-3
    own = np.asarray(votes._noise) / votes._steps
    assert stats.pearsonr(noise, own).pvalue > 1e-3


def test_rows_pass_as_often_as_the_noise_says() -> None:
    """Two-sided: false alarms 1 in 1000 for a fresh seed."""
    votes, _, _ = charged(threshold=0.9)
    count = 5
    passed = int(np.asarray(passes_test(votes, jnp.full(QUERIES, count, jnp.int32), 0)).sum())
    margin = (0.9 * TEACHERS - count) / vote_stddev(2.0, num_queries=QUERIES, num_teachers=TEACHERS)
    assert stats.binomtest(passed, QUERIES, stats.norm.sf(margin)).pvalue > 1e-3


@pytest.mark.parametrize("first", [-2, 9_999, 10_000])
def test_a_test_that_was_not_charged_is_not_passed(first: int) -> None:
    found = np.asarray(passes_test(with_tests(0.1), jnp.full(3, TEACHERS, jnp.int32), first))
    at = first + np.arange(3)
    np.testing.assert_array_equal(found, (at >= 0) & (at < 10_000))


def test_without_privacy_tests_are_exact() -> None:
    ledger = Ledger(us.Guarantee.not_private(), noise=SeededNoise(0))
    queries = [Query(key, key, Gaussian(1e-9)) for key in ("tests", "votes")]
    more: dict[str, Any] = {"num_teachers": TEACHERS, "num_queries": 7, "tests": queries[0], "threshold": 0.7}
    votes = charge_votes(private_rows(), queries[1], ledger, **more)
    counts = jnp.arange(7, dtype=jnp.int32)
    assert np.asarray(passes_test(votes, counts, 0)).tolist() == [True, True, False, False, False, True, True]
    assert add_vote_noise(votes, counts, 0).tolist() == list(range(7))


def test_the_student_learns_from_answered_rows_alone() -> None:
    """In the order of the queries, in the places of the oldest; the count is that of labelled rows."""
    voting = dataclasses.replace(VOTING, threshold=0.6, memory=5)
    labelled = LabelledRows(jnp.full((5, 1), -1.0), jnp.full(5, -1.0), jnp.asarray(3, jnp.int32))
    rows, noisy = jnp.arange(4.0)[:, None], jnp.asarray([6.0, jnp.nan, 0.0, 3.0])
    found = append_labels(voting, labelled, rows, noisy)
    assert int(found.count) == 6
    assert found.rows[:, 0].tolist() == [3.0, -1.0, -1.0, 0.0, 2.0]
    assert found.labels.tolist() == pytest.approx([0.5, -1.0, -1.0, 1.0, 0.0])


@pytest.mark.parametrize("threshold", [0.51, 1.0])
def test_the_plan_is_the_charge_and_fills_the_budget(threshold: float) -> None:
    """With a threshold that most rows pass, and with one that hardly any does."""
    small = "latent=4, generator_widths=[8, 8], teacher_batch=4, student_batch=8, memory=40"
    method: Any = read_method(f"pategan(teachers=6, iterations=3, queries=12, threshold={threshold}, {small})")
    ledger = Ledger(us.Guarantee(3.0, 1e-6), noise=SeededNoise(0))
    plan = method.plan(DOMAIN, ledger.remaining)
    method.fit(Run(private_rows(), plan, ledger, key=jax.random.key(0)))
    assert ledger.queries == plan.queries
    assert [query.key for query in plan] == ["one_way", "tests", "votes"]
    assert 0.998 * 3 < ledger.spent().epsilon <= 3
    assert "12 tests and votes are charged" in str(plan.notes[-1])


@pytest.mark.parametrize("method", ["pategan", "patectgan"])
def test_the_fraction_of_tests_is_one_of_zcdp(method: str) -> None:
    plan: Any = read_method(f"{method}(threshold=0.7)").plan(DOMAIN, Budget(1.0, 1e-6))
    tests, votes = plan["tests"].event.rho, plan["votes"].event.rho
    assert tests / (tests + votes) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "settings", ["threshold=0.5", "threshold=1.2", "threshold=0.7, vote_noise=laplace, queries=300"]
)
def test_what_contradicts_is_refused(settings: str) -> None:
    with raises(ConfigError, setting="threshold"):
        read_method(f"pategan({settings})")
