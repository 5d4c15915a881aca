"""The list of measured marginals: complete, after the charge, without a count, and the same in every view."""

import numpy as np
import pytest

from tests.privacy.small_tables import ledger, table
from understudy.errors import BudgetExceeded
from understudy.privacy.accounting.events import ZCDP, DiscreteGaussian, Event, Gaussian
from understudy.privacy.accounting.ledger import Guarantee, Ledger, Query
from understudy.privacy.accounting.marginal_noise import ExpectedNoise, MeasuredMarginal
from understudy.privacy.mechanisms.counts import noisy_answers, noisy_counts
from understudy.privacy.mechanisms.filters import charge_marginals, charge_zcdp
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import Box, partition_rows

ROWS = [(0, 1, 2), (1, 2, 3), (1, 0, 0)]


def _query(event: Event, partition: str | None = None) -> Query:
    return Query("m", "marginals", event, ("a", "b", "c"), partition=partition)


def test_every_mechanism_lists_what_it_measured() -> None:
    book = ledger()
    noisy_counts(table(ROWS), [("a",), ("c", "a")], _query(DiscreteGaussian(20.0, 2)), book)
    answers = noisy_answers(table(ROWS), _query(DiscreteGaussian(30.0, 2)), book)
    answers(("b",))
    budget = charge_zcdp(table(ROWS), _query(ZCDP(0.01)), book)
    budget.noisy_counts(("b", "c"), 40.0)
    bundle = charge_marginals(table(ROWS), _query(Gaussian(10.0)), book)
    bundle.noisy_counts([("a",), ("b", "c")], [50.0, 60.0])
    assert book.measurements == (
        MeasuredMarginal("m", ("a",), 2, 20.0),
        MeasuredMarginal("m", ("c", "a"), 8, 20.0),
        MeasuredMarginal("m", ("b",), 3, 30.0),
        MeasuredMarginal("m", ("b", "c"), 12, 40.0),
        MeasuredMarginal("m", ("a",), 2, 50.0),
        MeasuredMarginal("m", ("b", "c"), 12, 60.0),
    )
    assert book.statement().measurements == book.measurements


def test_the_list_does_not_depend_on_the_rows() -> None:
    """Given the answers that chose them: here all cliques are fixed."""
    books = [ledger(), ledger()]
    for rows, book in zip((ROWS, [(0, 0, 0)] * 500), books, strict=True):
        charge_marginals(table(rows), _query(Gaussian(10.0)), book).noisy_counts([("a",), ("a", "b")], [20.0, 30.0])
    assert books[0].measurements == books[1].measurements


def test_what_was_refused_is_not_listed() -> None:
    book = ledger(1.0)
    with pytest.raises(BudgetExceeded):
        noisy_counts(table(ROWS), [("a",)], _query(DiscreteGaussian(0.5)), book)
    bundle = charge_marginals(table(ROWS), _query(Gaussian(10.0)), book)
    with pytest.raises(BudgetExceeded):
        bundle.noisy_counts([("a",)], [1.0])
    assert book.measurements == ()


def test_only_a_charged_query_has_a_recorder() -> None:
    book, query = ledger(), _query(DiscreteGaussian(20.0))
    with pytest.raises(AssertionError):
        book._recorder(query)
    book.charge(query)
    book._recorder(query)


def test_single_counts_are_not_listed() -> None:
    book = ledger()
    noisy_answers(table(ROWS), _query(DiscreteGaussian(30.0)), book)(Box(("a", "b"), ((0, 1), (0, 2))))
    assert book.measurements == ()


def test_views_share_one_list() -> None:
    book = ledger()
    view = book.view(book.remaining)
    noisy_counts(table(ROWS), [("a",)], _query(DiscreteGaussian(20.0)), view)
    assert book.measurements == view.measurements == (MeasuredMarginal("m", ("a",), 2, 20.0),)


def test_partitions_are_named() -> None:
    book = ledger()
    train, _ = partition_rows(table(ROWS), 0.5, book, ("train", "held-out"))
    noisy_counts(train, [("a",)], _query(DiscreteGaussian(20.0), "train"), book)
    assert book.measurements == (MeasuredMarginal("m", ("a",), 2, 20.0, "train"),)


def test_without_a_guarantee_the_noise_is_zero() -> None:
    book = Ledger(Guarantee.not_private(), noise=SeededNoise(0))
    (counts,) = noisy_counts(table(ROWS), [("a",)], _query(DiscreteGaussian(1e-6)), book)
    (again,) = charge_marginals(table(ROWS), _query(Gaussian(1e-6)), book).noisy_counts([("a",)], [1.0])
    np.testing.assert_array_equal(counts, [1, 2])
    np.testing.assert_array_equal(again, [1, 2])
    assert [each.stddev for each in book.measurements] == [0.0, 0.0]


def test_affordable_numbers_cost_the_same() -> None:
    """The same precision, whatever the noise: marginals over variance."""
    noise = ExpectedNoise(min_order=2, max_order=2, marginals=7, stddev=12.0, exact=True)
    assert noise.affordable(12.0) == 7
    for stddev in (3.0, 10.0, 30.0, 100.0):
        assert noise.affordable(stddev) / stddev**2 <= 7 / 12.0**2 * (1 + 1e-6)
        assert (noise.affordable(stddev) + 1) / stddev**2 > 7 / 12.0**2
