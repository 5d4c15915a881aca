"""Counts and choices: what one unit can move, how much noise hides it, and that payment comes first."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from understudy.errors import BudgetExceeded
from understudy.privacy.events import ZCDP, DiscreteGaussian, Selections, SubsampledGaussian
from understudy.privacy.ledger import Guarantee, Ledger, Query
from understudy.privacy.mechanisms import (
    Box,
    Candidates,
    Chooser,
    Clique,
    Filter,
    Grouped,
    Rows,
    noisy_answers,
    noisy_choices,
    noisy_counts,
    noisy_size,
    pay_for_steps,
    pay_for_stretches,
)
from understudy.privacy.noise import NoiseSource, SecureNoise, SeededNoise
from understudy.schema import Domain

DOMAIN = Domain(names=("a", "b", "c"), sizes=(2, 3, 4), num_rows=20)
CLIQUES: list[Clique] = [("a",), ("c", "a"), ("a", "b", "c"), ()]
LEVEL = 1e-7  # of the chi-square tests on draws that differ in every run: a false alarm in ten million

codes = st.tuples(*(st.integers(0, size - 1) for size in DOMAIN.sizes))


def table(rows: Sequence[tuple[int, ...]], *, k: int = 1, domain: Domain = DOMAIN) -> Rows:
    return Rows(np.array(rows, dtype=np.int32).reshape(-1, len(domain.names)), domain, max_rows_per_unit=k)


def ledger(epsilon: float = 100.0, *, noise: NoiseSource | None = None, k: int = 1) -> Ledger:
    return Ledger(Guarantee(epsilon, 1e-6), noise=noise or SeededNoise(0), max_rows_per_unit=k)


class Untouchable(Rows):
    """Rows that tell when they are counted."""

    def _exact_counts(self, clique: Clique) -> np.ndarray:
        raise AssertionError("the rows were touched")


def untouchable(*, k: int = 1) -> Rows:
    return Untouchable(np.zeros((3, 3), dtype=np.int32), DOMAIN, max_rows_per_unit=k)


class ExactLaw(SeededNoise):
    """Keeps the law of each pick: the log-probabilities of softmax(scores / scale)."""

    def noisy_argmax(self, scores: np.ndarray, scale: float) -> int:
        logits = np.asarray(scores) / scale
        self.log_law = logits - np.logaddexp.reduce(logits)
        return super().noisy_argmax(scores, scale)


# --------------------------------------------------------------------------------------------------------------- counts


def naive_counts(rows: Sequence[tuple[int, ...]], clique: Clique) -> np.ndarray:
    counts = np.zeros(DOMAIN.shape(clique), dtype=int)
    for row in rows:
        counts[tuple(row[DOMAIN.index(name)] for name in clique)] += 1
    return counts


@settings(max_examples=50)
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


def chi_square(draws: np.ndarray, stddev: float) -> float:
    support = np.arange(-math.ceil(12 * stddev), math.ceil(12 * stddev) + 1)
    mass = np.exp(-(support**2) / (2 * stddev**2))
    mass /= mass.sum()
    kept = np.flatnonzero(mass * draws.size >= 50)
    inside = [np.count_nonzero(draws == support[i]) for i in kept]
    observed = np.r_[inside, draws.size - sum(inside)]
    expected = np.r_[mass[kept], 1 - mass[kept].sum()] * draws.size
    return float(stats.chisquare(observed, expected).pvalue)


@pytest.mark.parametrize("through", ["bundle", "filter"])
@pytest.mark.parametrize("noise", [SeededNoise(1), SecureNoise()])
def test_noise_on_counts_has_the_charged_scale(noise: NoiseSource, through: str) -> None:
    """The price is that of stddev 3: accept that scale and reject a tenth less or more."""
    wide = Domain(names=("x", "y"), sizes=(200, 200), num_rows=10)
    rows, book = table([], domain=wide), ledger(noise=noise)
    if through == "bundle":
        answers = noisy_counts(rows, [("x", "y"), ("y", "x")], Query("c", "c", DiscreteGaussian(3.0, 2)), book)
    else:
        purse = Filter(rows, Query("c", "c", ZCDP(2 / (2 * 3.0**2))), book)
        answers = [purse.noisy_counts(clique, 3.0) for clique in (("x", "y"), ("y", "x"))]
        assert purse.used == pytest.approx(purse.rho)
    assert not np.array_equal(answers[0], answers[1].T)  # each vector has noise of its own
    draws = np.concatenate([answer.ravel() for answer in answers])
    assert chi_square(draws, 3.0) > LEVEL
    assert max(chi_square(draws, 2.7), chi_square(draws, 3.3)) < LEVEL


def test_counts_are_of_the_rows_that_were_asked_about() -> None:
    rows = [(0, 0, 0), (1, 2, 3), (1, 2, 3)]
    answers = noisy_counts(table(rows), CLIQUES, Query("c", "c", DiscreteGaussian(0.05, 4)), ledger(1000.0))
    for clique, answer in zip(CLIQUES, answers, strict=True):
        assert answer.dtype == float
        assert np.array_equal(answer, naive_counts(rows, clique))


def test_counts_are_paid_before_the_rows_are_touched() -> None:
    book = ledger(1.0)
    with pytest.raises(BudgetExceeded, match=r"would exceed"):
        noisy_counts(untouchable(), [("a",)], Query("c", "c", DiscreteGaussian(0.5)), book)
    assert not book.queries
    query = Query("c", "c", DiscreteGaussian(50.0))
    with pytest.raises(AssertionError, match="touched"):
        noisy_counts(untouchable(), [("a",)], query, book)
    assert book.queries == (query,)


def test_counts_beyond_the_price_are_refused_untouched() -> None:
    """More marginals than priced, or more rows a unit than priced."""
    book = ledger(5.0)
    with pytest.raises(BudgetExceeded, match=r"priced for 1 marginals and 1 rows a unit, not for 2 and 1"):
        noisy_counts(untouchable(), [("a",), ("b",)], Query("c", "c", DiscreteGaussian(50.0)), book)
    with pytest.raises(BudgetExceeded, match=r"not for 1 and 2. This query was not made"):
        noisy_counts(untouchable(k=2), [("a",)], Query("c", "c", DiscreteGaussian(50.0)), book)
    assert not book.queries


def test_the_size_has_the_charged_noise_and_is_paid_first() -> None:
    query = Query("size", "size", DiscreteGaussian(4.0))
    sizes = np.array([noisy_size(range(1000), query, ledger(noise=SeededNoise(seed))) for seed in range(1500)]) - 1000
    assert chi_square(sizes, 4.0) > 1e-3
    assert max(chi_square(sizes, 3.2), chi_square(sizes, 4.8)) < 1e-3
    assert min(noisy_size((), query, ledger(noise=SeededNoise(seed))) for seed in range(50)) == 1
    book = ledger(1.0)
    with pytest.raises(BudgetExceeded):
        noisy_size(range(1000), Query("size", "size", DiscreteGaussian(0.1)), book)
    book.charge(Query("size", "size", DiscreteGaussian(100.0)))


def naive_box(rows: Sequence[tuple[int, ...]], box: Box) -> int:
    at = [DOMAIN.index(name) for name in box.clique]
    return sum(all(low <= row[i] < end for i, (low, end) in zip(at, box.ranges, strict=True)) for row in rows)


boxes = st.lists(st.sampled_from(DOMAIN.names), min_size=1, unique=True).flatmap(
    lambda clique: st.tuples(
        *(st.lists(st.integers(0, size), min_size=2, max_size=2).map(sorted) for size in DOMAIN.shape(tuple(clique)))
    ).map(lambda ranges: Box(tuple(clique), tuple((low, high) for low, high in ranges)))
)


@settings(max_examples=60)
@given(rows=st.lists(codes, max_size=12), unit=st.lists(codes, min_size=1, max_size=3), box=boxes)
def test_a_unit_moves_a_box_by_no_more_than_its_rows(
    rows: list[tuple[int, ...]], unit: list[tuple[int, ...]], box: Box
) -> None:
    without, with_unit = (table(each)._exact_answer(box) for each in (rows, rows + unit))
    assert without.tolist() == [naive_box(rows, box)]
    assert 0 <= with_unit[0] - without[0] <= len(unit)


def test_answers_one_by_one_have_the_charged_noise() -> None:
    """Marginals and boxes in turn: accept the scale that was paid, reject a tenth less or more."""
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


def test_answers_are_paid_at_once_and_no_more_are_given() -> None:
    book = ledger(1.0)
    with pytest.raises(BudgetExceeded, match=r"would exceed"):
        noisy_answers(untouchable(), Query("c", "c", DiscreteGaussian(20.0, 1000)), book)
    with pytest.raises(BudgetExceeded, match=r"priced for 1 rows a unit, not for 2. This query was not made"):
        noisy_answers(untouchable(k=2), Query("c", "c", DiscreteGaussian(50.0, 2)), book)
    assert not book.queries
    charged = Query("c", "c", DiscreteGaussian(50.0, 2))
    ask = noisy_answers(untouchable(), charged, book)
    assert book.queries == (charged,)
    for query in (("a",), Box(("a",), ((0, 1),))):
        with pytest.raises(AssertionError, match="touched"):
            ask(query)
    with pytest.raises(BudgetExceeded, match=r"All charged answers have been given. This query was not made"):
        ask(("b",))


# -------------------------------------------------------------------------------------------------------------- choices


def law_of_choice(rows: Sequence[tuple[int, ...]], candidates: Candidates, epsilon: float, *, k: int = 1) -> np.ndarray:
    noise = ExactLaw(0)
    choose = noisy_choices(table(rows, k=k), Query("t", "t", Selections(epsilon)), ledger(noise=noise, k=k))
    choose(candidates)
    return noise.log_law


def candidates(shift: float = 0.0, weights: tuple[float, ...] = (1.0, 2.0, 0.5)) -> Candidates:
    cliques: list[Clique] = [("a",), ("b",), ("a", "c")]
    expected = [np.full(DOMAIN.shape(clique), 1.3 + shift * i) for i, clique in enumerate(cliques)]
    return Candidates(cliques, expected, np.array(weights), np.array([0.5, 3.0, 1.0]))


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
def test_choices_spend_what_is_paid(k: int) -> None:
    """The worst pair of neighbours reaches the whole range: noise is as large as it must be and no larger."""
    expected = [np.array([100.0, 0.0]), np.array([-100.0, 0.0, 0.0])]  # k rows more: one error falls, the other grows
    pair = Candidates([("a",), ("b",)], expected, np.ones(2), np.zeros(2))
    rows = [(0, 0, 0)] * 4
    ratio = law_of_choice([*rows, *rows[:k]], pair, 0.7, k=k) - law_of_choice(rows, pair, 0.7, k=k)
    assert ratio.max() - ratio.min() == pytest.approx(0.7, rel=1e-6)


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


@settings(max_examples=40)
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
    rows = Rows(np.zeros((4, 2), dtype=np.int32), Domain(names=("a", "b"), sizes=(2, 3), num_rows=4))
    choose = noisy_choices(rows, Query("c", "c", Selections(1.0, 16)), ledger())
    queries: list[Any] = [("a",), ("a", "b"), Box(("a",), ((0, 1),)), Grouped(("b",), ((0, 0, 1),))]
    for query, shape in zip(queries, [(2,), (2, 3), (1,), (2,)], strict=True):
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
        rows = Rows(np.zeros((4, 1), dtype=np.int32), domain)
        candidates = Candidates([("a",)], [np.zeros(2)], np.full(1, 0.7), np.full(1, offset))
        noisy_choices(rows, Query("c", "c", Selections(1.0, 1)), paid)(candidates)
        errors = generator.random(1000) * 1000
        moved = np.abs(0.7 * (errors + 1 - offset) - 0.7 * (errors - offset)).max()
        assert moved <= noise.scale / 2
        assert noise.scale == pytest.approx(2 * 0.7, rel=1e-2 if offset < 1e13 else 10)


def test_a_chooser_makes_no_more_picks_than_were_paid() -> None:
    book, query = ledger(5.0), Query("t", "t", Selections(0.2, rounds=3))
    choose = noisy_choices(table([(0, 0, 0)]), query, book)
    assert book.queries == (query,)
    for _ in range(3):
        assert choose(candidates()) in (0, 1, 2)
    with pytest.raises(BudgetExceeded, match=r"All charged selections have been made. This query was not made"):
        choose(candidates())
    assert book.queries == (query,)


def test_several_picks_are_one_after_another_among_what_is_left() -> None:
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
        noisy_choices(rows, Query("t", "t", Selections(epsilon)), ledger(noise=noise))(some)
        return np.exp(noise.log_law)

    choose = Chooser(rows, epsilon, 8000, ledger())  # nobody could pay for so many
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
    with pytest.raises(BudgetExceeded, match="This query was not made"):
        choose.several(whole, 1)
    with pytest.raises(BudgetExceeded, match="This query was not made"):
        Chooser(rows, epsilon, 9, ledger()).several(whole, 4)


def test_choices_are_paid_before_the_rows_are_touched() -> None:
    book = ledger(1.0)
    with pytest.raises(BudgetExceeded, match=r"would exceed"):
        noisy_choices(untouchable(), Query("t", "t", Selections(5.0, 10)), book)
    assert not book.queries
    choose = noisy_choices(untouchable(), Query("t", "t", Selections(0.1)), book)
    assert len(book.queries) == 1
    with pytest.raises(AssertionError, match="touched"):
        choose(candidates())
    with pytest.raises(BudgetExceeded, match=r"All charged selections"):  # a pick that failed was made all the same
        choose(candidates())


# --------------------------------------------------------------------------------------------------------------- filter


def test_a_filter_charges_its_lump_first_and_once() -> None:
    book = ledger(1.0)
    with pytest.raises(BudgetExceeded, match=r"would exceed"):
        Filter(untouchable(), Query("r", "r", ZCDP(10.0)), book)
    query = Query("r", "r", ZCDP(0.01))
    purse = Filter(table([(0, 0, 0)]), query, book)
    assert book.queries == (query,)
    purse.noisy_counts(("a",), 20.0)
    purse.noisy_choice(candidates(), 0.05)
    assert book.queries == (query,)
    assert purse.used == pytest.approx(1 / (2 * 20.0**2) + 0.05**2 / 8)
    assert purse.remaining == pytest.approx(purse.rho - purse.used)


def test_a_filter_refuses_to_overspend_untouched() -> None:
    purse = Filter(untouchable(), Query("r", "r", ZCDP(0.01)), ledger(5.0))
    with pytest.raises(BudgetExceeded, match=r"A query at rho 0\.02 exceeds the 0.01 left.*This query was not made"):
        purse.noisy_counts(("a",), 1 / math.sqrt(2 * 0.02))
    with pytest.raises(BudgetExceeded):
        purse.noisy_choice(candidates(), math.sqrt(8 * 0.0101))
    for senseless in (math.inf, math.nan):
        with pytest.raises(BudgetExceeded):
            purse.noisy_counts(("a",), senseless)
        with pytest.raises(BudgetExceeded):
            purse.noisy_choice(candidates(), senseless)
    with pytest.raises(BudgetExceeded):
        purse.noisy_choice(candidates(), 0.0)
    assert purse.used == 0.0


@pytest.mark.parametrize("k", [1, 4])
def test_a_filter_counts_many_small_spends(k: int) -> None:
    """However the lump is cut up, the queries that were made cost no more than it in all."""
    purse = Filter(table([(0, 0, 0)], k=k), Query("r", "r", ZCDP(0.03)), ledger(50.0, k=k))
    price = 0.03 / 1000
    made = 0
    while made < 2000:
        try:
            purse.noisy_counts(("a",), k / math.sqrt(2 * price))
        except BudgetExceeded:
            break
        made += 1
    assert made * price == pytest.approx(0.03, rel=2e-3)
    assert made * price <= 0.03 * (1 + 1e-9)
    assert purse.remaining < price


def test_no_spend_is_too_small_to_count() -> None:
    """In floating point a half plus 1e-18 is a half: the running sum is rounded up instead."""
    purse = Filter(table([(0, 0, 0)]), Query("r", "r", ZCDP(0.5)), ledger(50.0))
    purse.noisy_counts(("a",), 1.001)
    before = purse.used
    for _ in range(5):
        purse.noisy_choice(candidates(), math.sqrt(8e-18))
    assert purse.used > before


def test_prices_inside_a_filter_are_those_of_the_events() -> None:
    for k in (1, 3):
        purse = Filter(table([], k=k), Query("r", "r", ZCDP(0.5)), ledger(50.0, k=k))
        assert purse.price_of_counts(7.0) == pytest.approx(DiscreteGaussian(7.0, 1, k).rho)
        assert purse.price_of_choice(0.3) == pytest.approx(Selections(0.3).rho)


def test_rows_bounded_for_smaller_units_are_refused_before_any_charge() -> None:
    """Choices and gradient steps: noise for one row a unit would not hide three."""
    book = ledger(k=3)
    with pytest.raises(BudgetExceeded, match="bounded to 1 a unit"):
        noisy_choices(untouchable(), Query("c", "choices", Selections(0.1, 2)), book)
    with pytest.raises(BudgetExceeded, match="bounded to 1 a unit"):
        noisy_answers(untouchable(), Query("c", "counts", DiscreteGaussian(50.0, 2, 3)), book)
    with pytest.raises(BudgetExceeded, match="bounded to 1 a unit"):
        pay_for_steps(untouchable(), Query("s", "steps", SubsampledGaussian(0.5, 20.0, 2)), book)
    with pytest.raises(BudgetExceeded, match="bounded to 1 a unit"):
        pay_for_stretches(untouchable(), [Query("s", "steps", SubsampledGaussian(0.5, 20.0, 2))] * 2, book)
    assert not book.queries


class Closed(Rows):
    """Rows that tell when they are read at all."""

    def __getattribute__(self, name: str) -> object:
        assert name not in ("_codes", "_places"), "the rows were touched"
        return super().__getattribute__(name)


@pytest.mark.parametrize("dear", [0, 1, 2])
def test_stretches_are_all_paid_before_the_rows_are_handed_out(dear: int) -> None:
    """Whichever does not fit, nothing is read; where all fit, each keeps its own steps and noise."""
    queries = [Query(f"s{number}", "steps", SubsampledGaussian(0.5, 20.0 + number, 3)) for number in range(3)]
    refused = [*queries[:dear], Query("dear", "steps", SubsampledGaussian(1.0, 1.0, 9)), *queries[dear + 1 :]]
    with pytest.raises(BudgetExceeded, match="This query was not made"):
        pay_for_stretches(Closed(np.zeros((3, 3), np.int32), DOMAIN), refused, ledger(5.0))
    book = ledger(5.0)
    paid = pay_for_stretches(table([(0, 0, 0)]), queries, book)
    assert book.queries == tuple(queries)
    assert [(one.rate, one.noise_multiplier, one.steps) for one in paid] == [(0.5, 20.0 + n, 3) for n in range(3)]
