"""Noisy counts: what one unit can move, how much noise hides it, and that the charge comes first."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import RowsRead, over_budget, raises
from tests.examples import scaled
from tests.privacy.small_tables import CLIQUES, DOMAIN, LEVEL, chi_square, codes, ledger, table, untouchable
from understudy.errors import BudgetExceeded
from understudy.privacy.accounting.events import ZCDP, DiscreteGaussian
from understudy.privacy.accounting.ledger import Guarantee, Ledger, Query
from understudy.privacy.mechanisms.counts import noisy_answers, noisy_counts, noisy_size
from understudy.privacy.mechanisms.filters import charge_zcdp
from understudy.privacy.noise.source import NoiseSource, SecureNoise, SeededNoise
from understudy.privacy.rows.rows import Box, Clique
from understudy.privacy.rows.table import PrivateTable
from understudy.schema import Domain


def naive_counts(rows: Sequence[tuple[int, ...]], clique: Clique) -> np.ndarray:
    counts = np.zeros(DOMAIN.shape(clique), dtype=int)
    for row in rows:
        counts[tuple(row[DOMAIN.index(name)] for name in clique)] += 1
    return counts


@settings(max_examples=scaled(50))
@given(rows=st.lists(codes, max_size=12), unit=st.lists(codes, min_size=1, max_size=3))
def test_a_unit_moves_each_marginal_by_no_more_than_charged(
    rows: list[tuple[int, ...]], unit: list[tuple[int, ...]]
) -> None:
    """With k rows the L2 norm moves by at most k, and by exactly k when all fall into one cell."""
    k = len(unit)
    for clique in CLIQUES:
        without, with_unit = (table(each)._exact_counts(clique) for each in (rows, rows + unit))
        assert np.array_equal(without, naive_counts(rows, clique))
        moved = with_unit - without
        assert np.linalg.norm(moved) <= k + 1e-9
        assert np.abs(moved).sum() == k
        alike = table(rows + unit[:1] * k)._exact_counts(clique) - without
        assert np.linalg.norm(alike) == pytest.approx(k)


@pytest.mark.parametrize("through", ["bundle", "filter"])
@pytest.mark.parametrize("noise", [SeededNoise(1), SecureNoise()])
def test_noise_on_counts_has_the_charged_scale(noise: NoiseSource, through: str) -> None:
    """The cost is that of stddev 3: accept that scale and reject a tenth less or more."""
    wide = Domain(names=("x", "y"), sizes=(200, 200), num_rows=10)
    rows, book = table([], domain=wide), ledger(noise=noise)
    if through == "bundle":
        answers = noisy_counts(rows, [("x", "y"), ("y", "x")], Query("c", "c", DiscreteGaussian(3.0, 2)), book)
    else:
        budget = charge_zcdp(rows, Query("c", "c", ZCDP(2 / (2 * 3.0**2))), book)
        answers = [budget.noisy_counts(clique, 3.0) for clique in (("x", "y"), ("y", "x"))]
        assert budget.used == pytest.approx(budget.rho)
    assert not np.array_equal(answers[0], answers[1].T)  # each vector has noise of its own
    draws = np.concatenate([answer.ravel() for answer in answers])
    assert chi_square(draws, 3.0) > LEVEL
    assert max(chi_square(draws, 2.7), chi_square(draws, 3.3)) < LEVEL


def test_counts_are_of_the_rows_that_were_asked_about() -> None:
    rows = [(0, 0, 0), (1, 2, 3), (1, 2, 3)]
    answers = noisy_counts(table(rows), CLIQUES, Query("c", "c", DiscreteGaussian(0.05, 4)), ledger(2000.0))
    for clique, answer in zip(CLIQUES, answers, strict=True):
        assert answer.dtype == float
        assert np.array_equal(answer, naive_counts(rows, clique))


def test_counts_are_charged_before_the_rows_are_touched() -> None:
    book = ledger(1.0)
    with over_budget("c"):
        noisy_counts(untouchable(), [("a",)], Query("c", "c", DiscreteGaussian(0.5)), book)
    assert not book.queries
    query = Query("c", "c", DiscreteGaussian(50.0))
    with pytest.raises(RowsRead):
        noisy_counts(untouchable(), [("a",)], query, book)
    assert book.queries == (query,)


def test_counts_beyond_the_cost_are_refused_untouched() -> None:
    """More marginals than charged, or more rows a unit than charged."""
    book = ledger(5.0)
    with raises(BudgetExceeded, query="c", needed=None):
        noisy_counts(untouchable(), [("a",), ("b",)], Query("c", "c", DiscreteGaussian(50.0)), book)
    with raises(BudgetExceeded, query="c", needed=None):
        noisy_counts(untouchable(k=2), [("a",)], Query("c", "c", DiscreteGaussian(50.0)), book)
    assert not book.queries


def test_the_size_has_the_charged_noise_and_is_charged_first() -> None:
    query = Query("size", "size", DiscreteGaussian(4.0))
    table, empty = PrivateTable(pa.table({"x": range(1000)})), PrivateTable(pa.table({"x": []}))
    sizes = np.array([noisy_size(table, query, ledger(noise=SeededNoise(seed))) for seed in range(1500)]) - 1000
    assert chi_square(sizes, 4.0) > 1e-3
    assert max(chi_square(sizes, 3.2), chi_square(sizes, 4.8)) < 1e-3
    assert min(noisy_size(empty, query, ledger(noise=SeededNoise(seed))) for seed in range(50)) == 1
    book = ledger(1.0)
    with pytest.raises(BudgetExceeded):
        noisy_size(table, Query("size", "size", DiscreteGaussian(0.1)), book)
    book.charge(Query("size", "size", DiscreteGaussian(100.0)))


def naive_box(rows: Sequence[tuple[int, ...]], box: Box) -> int:
    at = [DOMAIN.index(name) for name in box.clique]
    return sum(all(low <= row[i] < end for i, (low, end) in zip(at, box.ranges, strict=True)) for row in rows)


ranges_of_columns = st.lists(st.sampled_from(DOMAIN.names), min_size=1, unique=True).flatmap(
    lambda clique: st.fixed_dictionaries(
        {name: st.tuples(*[st.integers(0, DOMAIN.size((name,)))] * 2).map(sorted) for name in clique}
    )
)


@settings(max_examples=scaled(60))
@given(rows=st.lists(codes, max_size=12), unit=st.lists(codes, min_size=1, max_size=3), ranges=ranges_of_columns)
def test_a_unit_moves_a_box_by_no_more_than_its_rows(
    rows: list[tuple[int, ...]], unit: list[tuple[int, ...]], ranges: dict[str, list[int]]
) -> None:
    box = Box(tuple(ranges), tuple((low, high) for low, high in ranges.values()))
    without, with_unit = (table(each)._exact_counts(box) for each in (rows, rows + unit))
    assert without.tolist() == [naive_box(rows, box)]
    assert 0 <= with_unit[0] - without[0] <= len(unit)


def test_answers_one_by_one_have_the_charged_noise() -> None:
    """Marginals and boxes in turn: accept the scale that was charged, reject a tenth less or more."""
    wide = Domain(names=("x", "y"), sizes=(200, 200), num_rows=10)
    book, query = ledger(), Query("c", "c", DiscreteGaussian(3.0, 1))
    draws = noisy_answers(table([], domain=wide), query, book)(("x", "y"))
    assert chi_square(draws, 3.0) > LEVEL
    assert max(chi_square(draws, 2.7), chi_square(draws, 3.3)) < LEVEL
    box, rows = Box(("x",), ((3, 50),)), table([(3, 0), (49, 0), (50, 0)], domain=wide)
    ask = noisy_answers(
        rows, Query("c", "c", DiscreteGaussian(3.0, 4000)), Ledger(Guarantee.not_private(), noise=SeededNoise(2))
    )
    counts = np.concatenate([ask(box) for _ in range(4000)])
    assert chi_square(counts - 2, 3.0) > 1e-3
    assert max(chi_square(counts - 2, 2.7), chi_square(counts - 2, 3.3)) < 1e-3


def test_answers_are_charged_at_once_and_no_more_are_given() -> None:
    book = ledger(1.0)
    with over_budget("c"):
        noisy_answers(untouchable(), Query("c", "c", DiscreteGaussian(20.0, 1000)), book)
    with raises(BudgetExceeded, query="c", needed=None):
        noisy_answers(untouchable(k=2), Query("c", "c", DiscreteGaussian(50.0, 2)), book)
    assert not book.queries
    charged = Query("c", "c", DiscreteGaussian(50.0, 2))
    ask = noisy_answers(untouchable(), charged, book)
    assert book.queries == (charged,)
    for query in (("a",), Box(("a",), ((0, 1),))):
        with pytest.raises(RowsRead):
            ask(query)
    with pytest.raises(BudgetExceeded):
        ask(("b",))
