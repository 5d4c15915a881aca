"""MWEM: costs from public facts, selections by the softmax that is charged, histograms that keep their mass."""

import dataclasses
import itertools
import math
from collections.abc import Mapping

import jax
import numpy as np
import pytest
from scipy import stats

import understudy as us
from tests.builders import raises
from understudy.certificate import to_markdown
from understudy.errors import BudgetExceeded, ConfigError
from understudy.models.graphical import GraphicalModel
from understudy.privacy.accounting.events import DiscreteGaussian, LaplaceMarginals, Selections
from understudy.privacy.accounting.ledger import Budget, Guarantee, Ledger, Query, spent_by
from understudy.privacy.mechanisms.counts import noisy_answers
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import Box, Clique, PrivateRows
from understudy.schema import Domain
from understudy.synthesizers import express, read_method
from understudy.synthesizers.mwem import (
    COMFORTABLE_CELLS,
    MWEM,
    Histogram,
    LinearQuery,
    _automatic_groups,
    _random_boxes,
)
from understudy.synthesizers.run import Run

SMALL = Domain(names=("a", "b", "c"), sizes=(2, 3, 4), num_rows=3000)
FOUR = Domain(names=("a", "b", "c", "d"), sizes=(2, 3, 5, 7), num_rows=3000, target="a")
"""All marginals have different shapes."""
PER_UNIT = 2
"""Rows a unit: from two on there is but one accountant, and plans are quick. One test does without."""
BUDGET = Budget(1.0, 1e-6, max_rows_per_unit=PER_UNIT)


def _codes(domain: Domain, seed: int = 0) -> np.ndarray:
    """Each column copies the one before, and now and then forgets it."""
    rng = np.random.default_rng(seed)
    columns = [rng.choice(domain.sizes[0], 3000, p=_falling(domain.sizes[0]))]
    for size in domain.sizes[1:]:
        forgotten = rng.random(3000) < 0.4
        columns.append(np.where(forgotten, rng.choice(size, 3000, p=_falling(size)), columns[-1] % size))
    return np.stack(columns, axis=1).astype(np.int32)


def _falling(size: int) -> np.ndarray:
    return np.arange(size, 0, -1) / sum(range(1, size + 1))


def _exact(codes: np.ndarray, domain: Domain, clique: Clique) -> np.ndarray:
    counts = np.zeros(domain.shape(clique))
    np.add.at(counts, tuple(codes[:, domain.index(name)] for name in clique), 1)
    return counts


class Recorder(SeededNoise):
    """Remembers the scores and scales of choices, and the shapes and scales of noise."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.choices: list[tuple[np.ndarray, float]] = []
        self.noises: list[tuple[float, tuple[int, ...]]] = []

    def noisy_argmax(self, scores: np.ndarray, scale: float) -> int:
        self.choices.append((np.array(scores), scale))
        return super().noisy_argmax(scores, scale)

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        self.noises.append((stddev, tuple(shape)))
        return super().discrete_gaussian(stddev, shape)


def _fit(
    method: MWEM,
    domain: Domain = FOUR,
    *,
    guarantee: Guarantee = Guarantee(1.0, 1e-6),  # noqa: B008
    codes: np.ndarray | None = None,
    noise: SeededNoise | None = None,
    per_unit: int = PER_UNIT,
) -> GraphicalModel:
    ledger = Ledger(guarantee, noise=noise or SeededNoise(0), max_rows_per_unit=per_unit)
    plan = method.plan(domain, ledger.remaining)
    rows = PrivateRows(_codes(domain) if codes is None else codes, domain, max_rows_per_unit=per_unit)
    model = method.fit(Run(rows, plan, ledger, key=jax.random.key(0)))
    assert ledger.queries == plan.queries
    return model


VARIANTS = [
    MWEM(),
    MWEM(columns_first=False),
    MWEM(measure_only=True),
    MWEM(measure_only=True, rounds=3),
    MWEM(workload="cell", rounds=15),
    MWEM(workload="range", rounds=15, boxes=40),
    MWEM(average_rounds=True),
    MWEM(score="mean", marginal_width=3, rounds=6),
    MWEM(splits=(("a", "c"), ("d", "b"))),
    MWEM(split_factor=3),
    MWEM(rounds=1000),
]


# --- The plan ---


@pytest.mark.parametrize("method", VARIANTS, ids=express)
def test_plan_fills_the_budget_and_fit_charges_it(method: MWEM) -> None:
    guarantee = Guarantee(1.0, 1e-6)
    noise = Recorder()
    model = _fit(method, guarantee=guarantee, noise=noise)
    plan = method.plan(FOUR, BUDGET)
    assert 0.995 <= spent_by(plan, guarantee).epsilon <= 1
    counts = plan["counts"].event
    assert isinstance(counts, DiscreteGaussian)
    assert [stddev for stddev, _ in noise.noises] == [counts.stddev] * counts.count  # all that was charged is used
    if "selections" in plan:
        event = plan["selections"].event
        assert isinstance(event, Selections)
        assert 0 < len(noise.choices) <= event.rounds
    assert sorted(name for group in model.cliques for name in group) == sorted(FOUR.names)
    rows = model.sample(500, key=jax.random.key(1)).codes
    assert rows.shape == (500, 4)
    assert (rows.max(axis=0) < FOUR.sizes).all()


def test_costs_depend_on_names_and_settings_alone() -> None:
    """Sizes and the number of rows may be private estimates: they change the groups, and no query."""
    other = dataclasses.replace(FOUR, sizes=(90, 80, 70, 60), num_rows=10**6)
    assert len(_automatic_groups(other)) > len(_automatic_groups(FOUR)) == 1
    for method in VARIANTS:
        if method.splits is None and method.split_factor is None:
            assert method.plan(other, BUDGET).queries == method.plan(FOUR, BUDGET).queries


@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_selection_fraction_is_a_fraction_of_zcdp(fraction: float) -> None:
    counts, choices = (query.event.rho for query in MWEM(selection_fraction=fraction).plan(FOUR, BUDGET))  # type: ignore[attr-defined]  # an event of this kind has it
    assert choices / (counts + choices) == pytest.approx(fraction)


def test_without_choices_all_goes_to_the_counts() -> None:
    plan = MWEM(measure_only=True).plan(FOUR, BUDGET)
    assert [query.key for query in plan] == ["counts"]
    assert plan["counts"].event.count == 4 + 6  # type: ignore[attr-defined]  # an event of this kind has it


def test_one_row_a_unit() -> None:
    guarantee, noise = Guarantee(1.0, 1e-6), Recorder()
    _fit(MWEM(), per_unit=1, guarantee=guarantee, noise=noise)
    plan = MWEM().plan(FOUR, Budget(1.0, 1e-6))
    assert 0.995 <= spent_by(plan, guarantee).epsilon <= 1
    assert {stddev for stddev, _ in noise.noises} == {plan["counts"].event.stddev}  # type: ignore[attr-defined]  # an event of this kind has it


def test_several_rows_a_unit_cost_as_much_more_noise() -> None:
    one, three = (MWEM().plan(FOUR, Budget(1.0, 1e-6, max_rows_per_unit=k))["counts"].event for k in (1, 3))
    assert three.sensitivity == 3  # type: ignore[attr-defined]  # an event of this kind has it
    assert three.stddev > 2.9 * one.stddev  # type: ignore[attr-defined]  # an event of this kind has it


# --- Laplace noise ---


@pytest.mark.parametrize("setting", [{}, {"measure_only": True}, {"workload": "cell", "rounds": 15}])
@pytest.mark.parametrize("per_unit", [1, 3])
def test_laplace_noise_costs_epsilon_at_delta_0(setting: dict, per_unit: int) -> None:
    """Costs add up to all of epsilon and to no more, both accountants hold it too, and fit charges it."""
    method, guarantee = MWEM(noise="laplace", **setting), Guarantee(1.0, 1e-6)
    plan = method.plan(FOUR, Budget(1.0, 1e-6, max_rows_per_unit=per_unit))
    total = sum(query.event.pure_epsilon or math.inf for query in plan)
    assert 0.9999 <= total <= 1 + 1e-9
    assert spent_by(plan, guarantee).epsilon <= 1
    ledger = Ledger(guarantee, noise=SeededNoise(0), max_rows_per_unit=per_unit)
    rows = PrivateRows(_codes(FOUR), FOUR, max_rows_per_unit=per_unit)
    method.fit(Run(rows, plan, ledger, key=jax.random.key(0)))
    assert ledger.queries == plan.queries
    assert ledger.statement().pure_epsilon == pytest.approx(total)
    assert "with epsilon 1 at delta 0, the sum of their costs" in to_markdown(ledger.statement())


def test_half_of_a_pure_epsilon_for_each_as_published() -> None:
    """T rounds of epsilon / (2 T) for each selection and each measurement."""
    plan = MWEM(noise="laplace", columns_first=False, rounds=5, selection_fraction=0.5).plan(FOUR, BUDGET)
    counts, selections = (query.event for query in plan)
    assert isinstance(counts, LaplaceMarginals)
    assert isinstance(selections, Selections)
    per_round = [counts.epsilon, selections.epsilon]
    assert per_round == pytest.approx([BUDGET.epsilon / 10] * 2, rel=1e-4)
    assert (counts.rounds, selections.rounds) == (5, 5)


def test_laplace_answers_have_the_charged_scale() -> None:
    """Two-sided, on the noise of 20,000 cells: false alarms 1 in 1000 for a fresh seed; a scale 5% off is found."""
    wide = Domain(names=("a", "b"), sizes=(200, 100), num_rows=10)
    event = LaplaceMarginals(0.5, 1, 2)
    ledger = Ledger(Guarantee(1.0, 1e-6), noise=SeededNoise(1), max_rows_per_unit=2)
    rows = PrivateRows(np.zeros((0, 2), np.int32), wide, max_rows_per_unit=2)
    noise = noisy_answers(rows, Query("counts", "counts", event), ledger)(("a", "b")).ravel()
    assert len(noise) == 20_000
    edges = np.arange(-12, 13)

    def pvalue(scale: float) -> float:
        law = stats.dlaplace(1 / scale)
        cells = np.r_[law.cdf(edges[0] - 1), law.pmf(edges), law.sf(edges[-1])]
        found = np.r_[np.sum(noise < edges[0]), [np.sum(noise == at) for at in edges], np.sum(noise > edges[-1])]
        return float(stats.chisquare(found, cells / cells.sum() * len(noise)).pvalue)

    assert pvalue(2 / 0.5) > 1e-3
    assert max(pvalue(0.95 * 4), pvalue(1.05 * 4)) < 1e-3


def test_no_more_laplace_answers_than_charged_and_none_for_fewer_rows() -> None:
    ledger = Ledger(Guarantee(1.0, 1e-6), noise=SeededNoise(0))
    rows = PrivateRows(_codes(FOUR), FOUR)
    measure = noisy_answers(rows, Query("counts", "counts", LaplaceMarginals(0.1, 1)), ledger)
    measure(("a",))
    with pytest.raises(BudgetExceeded):
        measure(("a",))
    two = PrivateRows(_codes(FOUR), FOUR, max_rows_per_unit=2)
    with raises(BudgetExceeded, query="counts", needed=None):
        noisy_answers(two, Query("counts", "counts", LaplaceMarginals(0.1, 1)), ledger)


def test_a_run_without_noise_has_no_epsilon_at_delta_0() -> None:
    """Its events have finite costs, and its noise is none."""
    ledger = Ledger(Guarantee.not_private(), noise=SeededNoise(0))
    for query in MWEM(noise="laplace").plan(FOUR, ledger.remaining):
        ledger.charge(query)
    assert ledger.statement().pure_epsilon is None


def test_a_cost_without_delta_0_before_leaves_no_pure_guarantee() -> None:
    """The sum still fits the budget, and the statement has no epsilon at delta 0."""
    before = Query("size", "size", DiscreteGaussian(20.0))
    ledger = Ledger(Guarantee(1.0, 1e-6), noise=SeededNoise(0))
    ledger.charge(before)
    for query in MWEM(noise="laplace").plan(FOUR, ledger.remaining):
        ledger.charge(query)
    assert ledger.statement().pure_epsilon is None
    assert "delta 0" not in to_markdown(ledger.statement())
    assert ledger.spent().epsilon <= 1


# --- Choices ---


def test_choices_have_the_law_that_was_charged() -> None:
    """The scores are L1 errors less the mean of |noise|, times weights; picks follow softmax(epsilon0 * score / 2)
    of the scores over their sensitivity. Chi-square at 1e-4, two-sided: a wrong epsilon0 by a fifth is told as well."""
    method, codes, noise = (
        MWEM(columns_first=False, rounds=1, marginal_width=1, target_weight=3.0),
        _codes(FOUR),
        Recorder(),
    )
    _fit(method, codes=codes, noise=noise, guarantee=Guarantee(0.02, 1e-6))
    plan = method.plan(FOUR, dataclasses.replace(BUDGET, epsilon=0.02))
    epsilon, stddev = plan["selections"].event.epsilon, plan["counts"].event.stddev  # type: ignore[attr-defined]  # an event of this kind has it
    ((scores, scale),) = noise.choices
    expected = [
        (3.0 if name == "a" else 1.0)
        * (np.abs(_exact(codes, FOUR, (name,)) - 3000 / size).sum() - math.sqrt(2 / math.pi) * stddev * size)
        for name, size in sorted(zip(FOUR.names, FOUR.sizes, strict=True), key=lambda pair: pair[1])
    ]
    np.testing.assert_allclose(scores, expected)
    sensitivity = 3.0 * PER_UNIT
    assert 1 <= scale * epsilon / (2 * sensitivity) < 1 + 1e-4  # a little more, for rounding
    tempered = scores / np.ptp(scores) * 2 * scale  # spread out so that every pick occurs
    picks = np.bincount([noise.noisy_argmax(tempered, scale) for _ in range(20_000)], minlength=4)

    def pvalue(wrong: float) -> float:
        law = np.exp(wrong * epsilon * (tempered - tempered.max()) / (2 * sensitivity))
        return float(stats.chisquare(picks, 20_000 * law / law.sum()).pvalue)

    assert pvalue(1.0) > 1e-4
    assert max(pvalue(0.8), pvalue(1.2)) < 1e-4


def test_mean_score_is_the_error_of_an_average_cell() -> None:
    noise, codes = Recorder(), _codes(FOUR)
    method = MWEM(score="mean", columns_first=False, rounds=1, marginal_width=1, target_weight=1.0)
    _fit(method, codes=codes, noise=noise)
    scores, scale = noise.choices[0]
    np.testing.assert_allclose(
        scores,
        [np.abs(_exact(codes, FOUR, (n,)) - 3000 / s).mean() for n, s in zip(FOUR.names, FOUR.sizes, strict=True)],
    )
    epsilon = method.plan(FOUR, BUDGET)["selections"].event.epsilon  # type: ignore[attr-defined]  # an event of this kind has it
    assert 1 <= scale * epsilon / PER_UNIT < 1 + 1e-4  # a row moves the mean over two cells by half


@pytest.mark.parametrize("seed", range(3))
def test_measured_queries_are_never_chosen_again(seed: int) -> None:
    """Masked before the draw: one candidate fewer each time, and each marginal measured once."""
    noise = Recorder(seed)
    _fit(MWEM(rounds=6), noise=noise)
    assert [len(scores) for scores, _ in noise.choices] == [6, 5, 4, 3, 2, 1]
    shapes = [shape for _, shape in noise.noises]
    assert shapes[:4] == [(2,), (3,), (5,), (7,)]
    assert sorted(shapes[4:]) == sorted(itertools.combinations((2, 3, 5, 7), 2))


def test_what_is_left_measures_again_in_turn() -> None:
    """Estimated sizes may split the columns so that fewer pairs are open than rounds were charged."""
    wide = Domain(names=("a", "b", "c", "d"), sizes=(1000, 900, 2, 800), num_rows=3000)
    noise = Recorder()
    model = _fit(MWEM(), wide, codes=np.zeros((50, 4), dtype=np.int32), noise=noise)
    assert {frozenset(group) for group in model.cliques} == {frozenset("cd"), frozenset("b"), frozenset("a")}
    assert len(noise.choices) == 1
    shapes = [shape for _, shape in noise.noises]
    assert len(shapes) == 8
    assert max(shapes.count(shape) for shape in set(shapes)) <= 2
    noise = Recorder()
    _fit(MWEM(measure_only=True), wide, codes=np.zeros((50, 4), dtype=np.int32), noise=noise)
    assert sorted(shape for _, shape in noise.noises) == sorted([(1000,), (900,), (2,), (800,), (2, 800)] * 2)


# --- Histograms ---


@pytest.mark.parametrize("measure_only", [False, True])
def test_without_noise_all_marginals_give_the_table(measure_only: bool) -> None:
    """On 2 x 3 x 4 cells with every cuboid: within 1% of the rows."""
    codes = _codes(SMALL)
    method = MWEM(rounds=7, marginal_width=3, mw_passes=100, measure_only=measure_only)
    model = _fit(method, SMALL, guarantee=Guarantee.not_private(), codes=codes)
    exact = _exact(codes, SMALL, SMALL.names)
    assert np.abs(model.marginal(SMALL.names) - exact).sum() < 0.01 * 3000


@pytest.mark.parametrize("workload", ["cell", "range"])
def test_single_counts_lead_to_the_table_too(workload: str) -> None:
    codes = _codes(SMALL)
    method = MWEM(workload=workload, marginal_width=3, rounds=120, boxes=600, mw_passes=4)
    model = _fit(method, SMALL, guarantee=Guarantee.not_private(), codes=codes)
    assert np.abs(model.marginal(SMALL.names) - _exact(codes, SMALL, SMALL.names)).sum() < 0.05 * 3000


def _with_answers(seed: int, *, scale: float = 300.0) -> Histogram:
    """A histogram with noisy, partly negative and inconsistent answers."""
    rng, histogram = np.random.default_rng(seed), Histogram(FOUR, FOUR.names)
    for query in [("a",), ("b", "d"), ("a", "c"), ("a", "b", "c", "d")]:
        shape = FOUR.shape(query)
        histogram.observe(query, 3000 / math.prod(shape) + scale * rng.standard_normal(shape).round(2))
    for box in _random_boxes(FOUR, FOUR.names, 5, rng):
        histogram.observe(box, 3000 * rng.random(1))
    histogram.observe(Box(("a", "d"), ((1, 2), (6, 7))), np.array([-40.0]))
    return histogram


@pytest.mark.parametrize("scale", [10.0, 300.0, 1e6])
def test_mass_is_kept_and_never_negative(scale: float) -> None:
    """Also where answers are so far off that weights round to zero, or belie the number of rows."""
    histogram = _with_answers(0, scale=scale)
    histogram.observe(("c",), np.full(5, -scale))
    for _ in range(5):
        histogram.update(50)
        shares = np.exp(histogram.log_probs)
        assert np.isfinite(histogram.log_probs).all()
        assert shares.min() >= 0
        assert shares.sum() == pytest.approx(1, abs=1e-12)
        for expected in histogram.expected([("b",), ("a", "c")]).values():
            assert expected.sum() == pytest.approx(3000)


def _directly(weights: np.ndarray, answers: Mapping[LinearQuery, np.ndarray], passes: int) -> np.ndarray:
    """A slow version on weights of all cells, renormalised after every step."""
    cells = np.indices(weights.shape)
    for _, (query, answer) in itertools.product(range(passes), answers.items()):
        if isinstance(query, Box):
            places = [cells[FOUR.index(name)] for name in query.clique]
            inside = np.all([(p >= a) & (p < b) for p, (a, b) in zip(places, query.ranges, strict=True)], axis=0)
            count = 3000 * weights[inside].sum()
            growth = inside * (answer[0] - count) / max(abs(answer[0]), count, 1)
        else:
            at = tuple(cells[FOUR.index(name)] for name in query)
            counts = np.zeros(FOUR.shape(query))
            np.add.at(counts, at, 3000 * weights)
            growth = ((answer - counts) / max(np.abs(answer).max(), counts.max(), 1))[at]
        weights = weights * np.exp(growth)
        weights /= weights.sum()
    return weights


def test_logarithms_say_what_direct_weights_say() -> None:
    histogram, weights = _with_answers(1), np.full(FOUR.shape(FOUR.names), 1 / 210)
    for passes in (3, 4):
        histogram.update(passes)
        weights = _directly(weights, histogram.answers, passes)
        np.testing.assert_allclose(np.exp(histogram.log_probs), weights, rtol=1e-9)


def test_boxes_that_all_lose_weight_lose_no_digits() -> None:
    """Only shares count: where every step takes weight off, their sum would soon be below any float."""
    histogram = Histogram(FOUR, FOUR.names)
    for code in (0, 1):
        histogram.observe(Box(("a",), ((code, code + 1),)), np.array([-1000.0 - code]))
    histogram.update(400)
    weights = _directly(np.full(FOUR.shape(FOUR.names), 1 / 210), histogram.answers, 400)
    np.testing.assert_allclose(np.exp(histogram.log_probs), weights, rtol=1e-6)


def test_repeated_answers_are_averaged() -> None:
    histogram = Histogram(FOUR, FOUR.names)
    for answer in ([1.0, 5.0], [4.0, 5.0], [4.0, 8.0]):
        histogram.observe(("a",), np.array(answer))
    np.testing.assert_allclose(histogram.answers[("a",)], [3.0, 6.0])


def test_average_is_the_mean_of_all_rounds() -> None:
    histogram, shares = _with_answers(2), []
    for passes in (1, 2, 20):
        histogram.update(passes)
        shares.append(np.exp(histogram.log_probs))
    np.testing.assert_allclose(np.exp(histogram.log_mean_probs()), np.mean(shares, axis=0))
    last, mean = (_fit(MWEM(average_rounds=average)).potentials[0] for average in (False, True))
    assert not np.allclose(last, mean)


def test_removing_a_row_moves_a_cuboid_in_one_cell_by_one() -> None:
    """What the exact answers of a run are made of."""
    codes = _codes(FOUR)
    for clique in [("a",), ("b", "d"), ("a", "c", "d")]:
        moved = PrivateRows(codes, FOUR)._exact_counts(clique) - PrivateRows(codes[1:], FOUR)._exact_counts(clique)
        assert moved.sum() == moved.max() == 1
        assert np.count_nonzero(moved) == 1


def test_no_exact_count_is_kept() -> None:
    """Neither in the model nor in what it writes: all numbers follow from the noisy answers."""
    codes = _codes(FOUR)
    one = _fit(MWEM(), codes=codes)
    assert set(one.to_arrays()[1]) == {"potential_0"}
    whole = _exact(codes, FOUR, one.cliques[0])
    assert np.abs(one.marginal(one.cliques[0]) - whole).max() > 5
    assert not any(isinstance(value, PrivateRows | Histogram) for value in vars(one).values())


def test_boxes_come_from_the_key_and_not_from_the_rows() -> None:
    def asked(codes: np.ndarray) -> list[int]:
        noise = Recorder()
        _fit(MWEM(workload="range", boxes=30, rounds=1, columns_first=False), codes=codes, noise=noise)
        return [len(scores) for scores, _ in noise.choices]

    assert asked(_codes(FOUR)) == asked(_codes(FOUR)[:10])
    boxes = _random_boxes(FOUR, FOUR.names, 300, np.random.default_rng(0))
    for axis, size in enumerate(FOUR.sizes):
        ranges = {box.ranges[axis] for box in boxes}
        assert ranges == {(low, high) for low in range(size) for high in range(low + 1, size + 1)}


# --- Groups ---


def test_automatic_groups_put_small_columns_to_the_target() -> None:
    domain = Domain(names=("w", "x", "y", "z", "t"), sizes=(900, 30, 800, 4, 25), num_rows=100, target="t")
    assert _automatic_groups(domain) == [("t", "z", "x"), ("y",), ("w",)]
    assert _automatic_groups(dataclasses.replace(domain, target=None)) == [("z", "t", "x"), ("y",), ("w",)]
    whole = Domain(names=("w", "x"), sizes=(COMFORTABLE_CELLS // 10, 10), num_rows=100)
    assert _automatic_groups(whole) == [("x", "w")]
    many = Domain(names=tuple(f"c{i}" for i in range(100)), sizes=(1,) * 100, num_rows=100)
    assert max(map(len, _automatic_groups(many))) <= 32


def test_groups_are_independent_and_whole_inside() -> None:
    model = _fit(MWEM(splits=(("a", "b"), ("c", "d"))), guarantee=Guarantee.not_private())
    across, inside = model.marginal(("b", "c")), model.marginal(("a", "b"))
    np.testing.assert_allclose(across, np.outer(across.sum(1), across.sum(0)) / 3000, atol=1e-9)
    np.testing.assert_allclose(inside, _exact(_codes(FOUR), FOUR, ("a", "b")), atol=15)


def test_split_factor_cuts_consecutive_columns() -> None:
    groups = MWEM(split_factor=3)._groups(FOUR)
    assert groups == [("a", "b", "c"), ("d",)]


@pytest.mark.parametrize("splits", [(("a", "b"), ("c", "dd")), (("a", "b"), ("c", "d", "a")), (("a", "b"), ("c",))])
def test_splits_hold_every_column_once(splits: tuple[tuple[str, ...], ...]) -> None:
    with raises(ConfigError, setting="splits"):
        MWEM(splits=splits).plan(FOUR, BUDGET)


def test_impossible_histograms_are_refused_before_any_charge() -> None:
    domain = Domain(names=("a", "b", "c", "d"), sizes=(60, 60, 60, 60), num_rows=100)
    whole = MWEM(splits=(domain.names,))
    with raises(ConfigError, setting="splits"):
        whole.plan(domain, BUDGET)
    ledger = Ledger(Guarantee(1.0, 1e-6), noise=SeededNoise(0), max_rows_per_unit=PER_UNIT)
    plan = MWEM().plan(domain, ledger.remaining)
    rows = PrivateRows(np.zeros((3, 4), dtype=np.int32), domain, max_rows_per_unit=PER_UNIT)
    with pytest.raises(ConfigError):
        whole.fit(Run(rows, plan, ledger, key=jax.random.key(0)))
    assert ledger.queries == ()
    with raises(ConfigError, setting="splits"):
        MWEM().plan(Domain(names=("a",), sizes=(20_000_000,), num_rows=100), BUDGET)
    (note,) = MWEM(splits=(("a", "b", "c"), ("d",))).plan(domain, BUDGET).notes
    assert "independent" in note.text
    large = MWEM(splits=(domain.names,)).plan(dataclasses.replace(domain, sizes=(60, 60, 60, 9)), BUDGET)
    assert "1,944,000 cells" in " ".join(map(str, large.notes))


# --- Rows ---


def test_rows_satisfy_conditions_exactly() -> None:
    """Given some codes, the law is the model's own law restricted to them. Two-sided chi-square at 1e-4."""
    model = _fit(MWEM(splits=(("a", "c"), ("b", "d"))))
    allowed = {"a": np.array([True, False]), "d": np.array([False, True, True, False, False, False, True])}
    rows = model.sample(40_000, key=jax.random.key(2), allowed=allowed).codes
    assert (rows[:, 0] == 0).all()
    assert set(rows[:, 3]) <= {1, 2, 6}
    law = model.marginal(("a", "c"))[0]
    # Draws are evened out (see GraphicalModel.sample), so the statistic is below that of independent draws.
    assert stats.chisquare(np.bincount(rows[:, 2], minlength=5), 40_000 * law / law.sum()).pvalue > 1e-4
    law = model.marginal(("b", "d"))[:, [1, 2, 6]].sum(axis=1)
    assert stats.chisquare(np.bincount(rows[:, 1], minlength=3), 40_000 * law / law.sum()).pvalue > 1e-4


def test_learns_the_chain_under_noise() -> None:
    codes = _codes(FOUR)
    model = _fit(MWEM(), codes=codes, guarantee=Guarantee(5.0, 1e-6))
    for clique in [("a", "b"), ("b", "c"), ("c", "d")]:
        exact = _exact(codes, FOUR, clique)
        apart = np.outer(exact.sum(1), exact.sum(0)) / 3000
        assert np.abs(model.marginal(clique) - exact).sum() < 0.5 * np.abs(apart - exact).sum()


@pytest.mark.parametrize("columns", [1, 2])
def test_small_tables(columns: int) -> None:
    domain = Domain(names=FOUR.names[:columns], sizes=FOUR.sizes[:columns], num_rows=3000)
    model = _fit(MWEM(), domain, codes=_codes(FOUR)[:, :columns])
    assert model.sample(100, key=jax.random.key(0)).codes.shape == (100, columns)


def test_same_seed_same_model() -> None:
    for method in (MWEM(), MWEM(workload="range", rounds=5)):
        one, two = (_fit(method, noise=SeededNoise(3)) for _ in range(2))
        np.testing.assert_array_equal(one.potentials[0], two.potentials[0])


def test_a_spent_ledger_refuses_before_any_query() -> None:
    plan = MWEM().plan(FOUR, dataclasses.replace(BUDGET, epsilon=8.0))
    ledger = Ledger(Guarantee(0.5, 1e-6), noise=SeededNoise(0), max_rows_per_unit=PER_UNIT)
    with pytest.raises(BudgetExceeded):
        MWEM().fit(
            Run(PrivateRows(_codes(FOUR), FOUR, max_rows_per_unit=PER_UNIT), plan, ledger, key=jax.random.key(0))
        )
    assert ledger.queries == ()


# --- Settings ---


def test_expressions_and_lists() -> None:
    method = read_method('mwem(splits=[[a, b], ["c d"]], workload=cell, average_rounds=true)')
    assert method == MWEM(splits=[["a", "b"], ["c d"]], workload="cell", average_rounds=True)  # type: ignore[arg-type]  # lists, as they are read
    assert read_method(express(method)) == method
    assert us.MWEM is MWEM


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"splits": ()}, "splits"),
        ({"splits": ("a", "b")}, "splits"),
        ({"splits": ((), ("a",))}, "splits"),
        ({"splits": ((1,),)}, "splits"),
        ({"splits": (("a",),), "split_factor": 2}, "split_factor"),
        ({"split_factor": 0}, "split_factor"),
        ({"marginal_width": 0}, "marginal_width"),
        ({"boxes": 0}, "boxes"),
        ({"rounds": 0}, "rounds"),
        ({"mw_passes": 0}, "mw_passes"),
        ({"workload": "cuboids"}, "workload"),
        ({"score": "max"}, "score"),
        ({"measure_only": True, "workload": "range"}, "workload"),
        ({"selection_fraction": 0.0}, "selection_fraction"),
        ({"selection_fraction": 1.0}, "selection_fraction"),
        ({"selection_fraction": math.nan}, "selection_fraction"),
        ({"target_weight": 0.5}, "target_weight"),
    ],
)
def test_bad_settings_are_refused(settings: dict, setting: str) -> None:
    with raises(ConfigError, setting=setting):
        MWEM(**settings)
