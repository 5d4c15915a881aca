"""Selections by dependence: the sensitivity of the score, the law of a selection, charges before counts."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import RowsRead
from tests.examples import scaled
from tests.privacy.small_tables import ExactLaw, codes, ledger, table, untouchable
from understudy.errors import BudgetExceeded
from understudy.privacy.accounting.events import Selections
from understudy.privacy.accounting.ledger import Query
from understudy.privacy.mechanisms.dependence import (
    SENSITIVITY,
    STEPS,
    Dependence,
    _exact_score,
    noisy_dependence_selections,
)
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain

CANDIDATES = [Dependence("a", ("b",)), Dependence("c", ("a", "b")), Dependence("b", ("c",)), Dependence("a", ())]
PAIR = Domain(names=("x", "p"), sizes=(2, 2), num_rows=10)


def query(epsilon: float = 1.0, rounds: int = 1) -> Query:
    return Query("network", "parents", Selections(epsilon, rounds))


def slow_score(rows: list[tuple[int, ...]], at: tuple[int, ...], child: int) -> Fraction:
    """The definition, cell by cell, in exact fractions."""
    if not rows:
        return Fraction(0)
    n, total = len(rows), Fraction(0)
    parents = {tuple(row[i] for i in at) for row in rows}
    for x, p in itertools.product({row[child] for row in rows}, parents):
        joint = sum(row[child] == x and tuple(row[i] for i in at) == p for row in rows)
        left, right = (sum(row[child] == x for row in rows), sum(tuple(row[i] for i in at) == p for row in rows))
        total += abs(joint - Fraction(left * right, n))
    return total / 2


@settings(max_examples=scaled(60))
@given(rows=st.lists(codes, max_size=12), row=codes)
def test_scores_are_the_definition_and_move_by_less_than_two(rows: list[tuple[int, ...]], row: tuple[int, ...]) -> None:
    names = ("a", "b", "c")
    for candidate in CANDIDATES:
        at, child = tuple(names.index(name) for name in candidate.parents), names.index(candidate.child)
        before, after = (slow_score(each, at, child) for each in (rows, [*rows, row]))
        assert abs(after - before) < SENSITIVITY
        for each, exact in ((rows, before), ([*rows, row], after)):
            found = _exact_score(table(each), candidate)
            assert exact - Fraction(1, STEPS) < Fraction(found) <= exact


def test_the_sensitivity_is_nearly_reached() -> None:
    """Rows that all agree but two: one more of a rare pair moves the score by nearly 2, so a bound of 1.9 is false."""
    common, rare = [(0, 0)] * 400, [(1, 1)]
    scores = [_exact_score(table(common + rare * k, domain=PAIR), Dependence("x", ("p",))) for k in (0, 1, 2)]
    assert scores[0] == 0
    assert 1.9 < max(np.diff(scores)) < SENSITIVITY


@pytest.mark.parametrize("k", [1, 3])
def test_a_unit_moves_log_odds_by_nearly_epsilon_and_no_more(k: int) -> None:
    """The exact law of a selection with and without a unit that raises one score and lowers another by nearly 2 k."""
    rows = [(0, 0, 0)] * 20_000 + [(1, 1, 0)] * 400 + [(0, 0, 2)] * 400
    candidates, laws = [Dependence("a", ("b",)), Dependence("a", ("c",))], []
    for each in (rows, rows + [(1, 1, 2)] * k):
        noise = ExactLaw(0)
        noisy_dependence_selections(table(each, k=k), query(0.7), ledger(noise=noise, k=k))(candidates)
        laws.append(noise.log_law)
    odds = [law[0] - law[1] for law in laws]
    assert 0.65 < odds[1] - odds[0] <= 0.7
    assert np.abs(laws[0] - laws[1]).max() <= 0.7


def test_the_strongest_dependence_is_selected() -> None:
    generator = np.random.default_rng(1)
    x = generator.integers(0, 2, 4000)
    rows = np.stack([x, generator.integers(0, 3, 4000), np.where(generator.random(4000) < 0.9, x, 2)], axis=1)
    selector = noisy_dependence_selections(table(list(map(tuple, rows))), query(1.0, 2), ledger())
    candidates = [Dependence("b", ("a",)), Dependence("c", ("a",)), Dependence("c", ("b",))]
    assert selector(candidates) == 1


def test_many_rows_do_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrivateRows, "_exact_counts", lambda self, clique: np.asarray([[2**33, 0], [0, 2**33]]))
    assert _exact_score(table([(0, 0, 0)]), Dependence("x", ("p",))) == 2.0**33


def test_no_more_selections_than_charged() -> None:
    selector = noisy_dependence_selections(table([(0, 0, 0)]), query(rounds=1), ledger())
    selector(CANDIDATES)
    with pytest.raises(BudgetExceeded):
        selector(CANDIDATES)


def test_charged_before_the_rows_are_counted() -> None:
    book = ledger(0.5)
    with pytest.raises(BudgetExceeded):
        noisy_dependence_selections(untouchable(), query(50.0, 10), book)
    assert book.queries == ()
    with pytest.raises(RowsRead):
        noisy_dependence_selections(untouchable(), query(), ledger())(CANDIDATES)
