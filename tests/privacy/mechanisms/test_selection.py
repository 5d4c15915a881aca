"""Selections among marginals: the law of the exponential mechanism, and that the charge comes first."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import RowsRead, over_budget
from tests.examples import scaled
from tests.privacy.small_tables import (
    ExactLaw,
    candidates,
    codes,
    ledger,
    table,
    untouchable,
)
from understudy.errors import BudgetExceeded
from understudy.privacy.accounting.events import Selections
from understudy.privacy.accounting.ledger import Query
from understudy.privacy.mechanisms.selection import (
    OFFSET_ROUNDING,
    ROUNDING,
    Candidates,
    MarginalSelector,
    _exact_score,
    noisy_selections,
)
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import Box, PrivateRows
from understudy.schema import Domain


def law_of_choice(rows: Sequence[tuple[int, ...]], candidates: Candidates, epsilon: float, *, k: int = 1) -> np.ndarray:
    noise = ExactLaw(0)
    choose = noisy_selections(table(rows, k=k), Query("t", "t", Selections(epsilon)), ledger(noise=noise, k=k))
    choose(candidates)
    return noise.log_law


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("shift", [0.0, 2.5, -1.0])
def test_choices_keep_their_privacy_ratio(shift: float, k: int) -> None:
    """Exact selection probabilities on neighbouring tables: within e^epsilon, and of range epsilon (for zCDP)."""
    base = [(0, 1, 2), (1, 1, 0), (1, 2, 3), (0, 0, 0)]
    here = law_of_choice(base, candidates(shift), 0.8, k=k)
    for unit in itertools.combinations_with_replacement(itertools.product((0, 1), (0, 1, 2), (0, 3)), k):
        ratio = law_of_choice([*base, *unit], candidates(shift), 0.8, k=k) - here
        assert np.abs(ratio).max() <= 0.8
        assert ratio.max() - ratio.min() <= 0.8 + 1e-12


@pytest.mark.parametrize("k", [1, 3])
def test_choices_spend_what_is_charged(k: int) -> None:
    """The worst pair of neighbours reaches the whole range: noise is as large as it must be and no larger."""
    expected = [np.array([100.0, 0.0]), np.array([-100.0, 0.0, 0.0])]  # k rows more: one error falls, the other grows
    pair = Candidates([("a",), ("b",)], expected, np.ones(2), np.zeros(2))
    rows = [(0, 0, 0)] * 4
    ratio = law_of_choice([*rows, *rows[:k]], pair, 0.7, k=k) - law_of_choice(rows, pair, 0.7, k=k)
    assert ratio.max() - ratio.min() == pytest.approx(0.7, rel=1e-4)


@pytest.mark.parametrize("weight", [1.0, 1 / 3, 7.3])
@pytest.mark.parametrize("offset", [0.0, -1e3 / 3, 1e12 / 7])
def test_rounded_scores_move_by_no_more_than_their_sensitivity(weight: float, offset: float) -> None:
    """One row more in any cell, in tables of up to 2^33 rows: the sum of errors is exact, the rest is covered."""
    draw = np.random.default_rng(0)
    sensitivity = weight * (ROUNDING + OFFSET_ROUNDING * abs(offset))
    for cells, size in itertools.product((2, 1000, 100_003), (10, 10**6, 2**33)):
        counts = draw.multinomial(size, draw.dirichlet(np.ones(cells)))
        expected = size * draw.dirichlet(np.ones(cells))
        before = _exact_score(counts, expected, weight, offset)
        for cell in draw.integers(cells, size=20):
            after = _exact_score(counts + (np.arange(cells) == cell), expected, weight, offset)
            assert abs(after - before) <= sensitivity


def test_errors_of_marginals_are_exact_sums_of_whole_steps() -> None:
    """Also where a sum of floats would lose the small errors beside a large one."""
    draw = np.random.default_rng(1)
    large = np.append(2**37, np.zeros(1000, dtype=int)), np.append(0.0, np.full(1000, 2.0**-17))
    usual = draw.multinomial(1000, draw.dirichlet(np.ones(50))), 1000 * draw.dirichlet(np.ones(50))
    for counts, expected in (large, usual):
        steps = [Fraction(round(Fraction(each) * 2**20), 2**20) for each in expected.tolist()]
        error = sum(abs(int(count) - each) for count, each in zip(counts, steps, strict=True))
        assert _exact_score(counts, expected, 1.0, 0.0) == float(error)


def test_choices_among_boxes_keep_their_privacy_ratio() -> None:
    pair = [Box(("a", "b"), ((0, 1), (1, 3))), Box(("c",), ((0, 2),)), Box(("a", "b", "c"), ((0, 2), (0, 3), (0, 4)))]
    expected = [np.array([3.0]), np.array([0.2]), np.array([2.5])]
    choice = Candidates(pair, expected, np.array([1.0, 2.0, 1.0]), np.zeros(3))
    base = [(0, 1, 2), (1, 1, 0), (1, 2, 3), (0, 0, 0)]
    here, widest = law_of_choice(base, choice, 0.8), 0.0
    for row in itertools.product(range(2), range(3), range(4)):
        ratio = law_of_choice([*base, row], choice, 0.8) - here
        widest = max(widest, np.abs(ratio).max(), ratio.max() - ratio.min())
    assert 0.2 < widest <= 0.8


@settings(max_examples=scaled(40))
@given(rows=st.lists(codes, max_size=10), row=codes, shift=st.floats(-5, 5), weight=st.floats(0.0, 10.0))
def test_scores_move_by_no_more_than_their_weight(
    rows: Sequence[tuple[int, ...]], row: tuple[int, ...], shift: float, weight: float
) -> None:
    weights = (1.0, weight, 0.5)
    laws = [law_of_choice(each, candidates(shift, weights), 0.5) for each in (rows, [*rows, row])]
    assert np.abs(laws[1] - laws[0]).max() <= 0.5 + 1e-9


class _Kept(SeededNoise):
    """Keeps the scale of the last choice."""

    def noisy_argmax(self, scores: np.ndarray, scale: float) -> int:
        self.scale = scale
        return super().noisy_argmax(scores, scale)


def test_what_is_expected_has_the_shape_of_its_query() -> None:
    """Broadcast over more cells, one row would move a score several times."""
    rows = PrivateRows(np.zeros((4, 2), dtype=np.int32), Domain(names=("a", "b"), sizes=(2, 3), num_rows=4))
    choose = noisy_selections(rows, Query("c", "c", Selections(1.0, 16)), ledger())
    queries: list[Any] = [("a",), ("a", "b"), Box(("a",), ((0, 1),))]
    for query, shape in zip(queries, [(2,), (2, 3), (1,)], strict=True):
        candidates = Candidates([query], [np.zeros(shape)], np.ones(1), np.zeros(1))
        assert choose(candidates) == 0
        for other in ((5, *shape), (), (7, 1)):
            with pytest.raises(AssertionError, match="another shape"):
                choose(Candidates([query], [np.zeros(other)], np.ones(1), np.zeros(1)))


def test_great_offsets_are_rounded_within_the_noise() -> None:
    """Scores of neighbours, as floats, differ by no more than the noise is for, however great an offset is."""
    domain = Domain(names=("a",), sizes=(2,), num_rows=4)
    generator = np.random.default_rng(0)
    for offset in (0.0, 1e9, 1e13, 3e15):
        noise = _Kept(0)
        paid = ledger(noise=noise)
        rows = PrivateRows(np.zeros((4, 1), dtype=np.int32), domain)
        candidates = Candidates([("a",)], [np.zeros(2)], np.full(1, 0.7), np.full(1, offset))
        noisy_selections(rows, Query("c", "c", Selections(1.0, 1)), paid)(candidates)
        errors = generator.random(1000) * 1000
        moved = np.abs(0.7 * (errors + 1 - offset) - 0.7 * (errors - offset)).max()
        assert moved <= noise.scale / 2
        assert noise.scale == pytest.approx(2 * 0.7, rel=1e-2 if offset < 1e13 else 10)


def test_a_chooser_makes_no_more_selections_than_were_charged() -> None:
    book, query = ledger(5.0), Query("t", "t", Selections(0.2, rounds=3))
    choose = noisy_selections(table([(0, 0, 0)]), query, book)
    assert book.queries == (query,)
    for _ in range(3):
        assert choose(candidates()) in (0, 1, 2)
    with pytest.raises(BudgetExceeded):
        choose(candidates())
    assert book.queries == (query,)


def test_several_selections_are_one_after_another_among_what_is_left() -> None:
    """In law those of single picks: the first by its own law, the next by that of the two that are left.

    4,000 runs, each frequency within 4.5 standard errors (one in 150,000 would not be).
    """
    rows, epsilon = table([(0, 0, 0), (1, 1, 1)]), 1.0
    whole = candidates()

    def law(left: list[int]) -> np.ndarray:
        noise = ExactLaw(0)
        some = Candidates(
            [whole.cliques[at] for at in left],
            [whole.expected[at] for at in left],
            whole.weights[left],
            whole.offsets[left],
        )
        noisy_selections(rows, Query("t", "t", Selections(epsilon)), ledger(noise=noise))(some)
        return np.exp(noise.log_law)

    choose = MarginalSelector(rows, epsilon, 8000, ledger())  # no budget allows this many
    picks = np.asarray([choose.several(whole, 2) for _ in range(4000)])
    first = law([0, 1, 2])
    for one in range(3):
        left = [at for at in range(3) if at != one]
        share = np.mean(picks[:, 0] == one)
        assert abs(share - first[one]) < 4.5 * math.sqrt(first[one] * (1 - first[one]) / 4000)
        if 1 in left:  # the heaviest is still there, and so is the scale
            expected, found = law(left), picks[picks[:, 0] == one, 1]
            assert abs(np.mean(found == left[0]) - expected[0]) < 4.5 * math.sqrt(
                expected[0] * expected[1] / len(found)
            )
    with pytest.raises(BudgetExceeded):
        choose.several(whole, 1)
    with pytest.raises(BudgetExceeded):
        MarginalSelector(rows, epsilon, 9, ledger()).several(whole, 4)


def test_choices_are_charged_before_the_rows_are_touched() -> None:
    book = ledger(1.0)
    with over_budget("t"):
        noisy_selections(untouchable(), Query("t", "t", Selections(5.0, 10)), book)
    assert not book.queries
    choose = noisy_selections(untouchable(), Query("t", "t", Selections(0.1)), book)
    assert len(book.queries) == 1
    with pytest.raises(RowsRead):
        choose(candidates())
    with pytest.raises(BudgetExceeded):  # a pick that failed was made all the same
        choose(candidates())
