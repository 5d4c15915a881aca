"""Noisy sums: a unit moves them by what is claimed, noise has the scale that is charged, and nothing is free."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from understudy.errors import BudgetExceeded
from understudy.learners.inputs import Examples, inputs_of
from understudy.privacy.accounting import Gaussian, gaussian_epsilon, rdp_epsilon
from understudy.privacy.ledger import Guarantee, Ledger, Look
from understudy.privacy.mechanisms import Rows
from understudy.privacy.noise import SeededNoise
from understudy.privacy.statistics import (
    STEPS,
    ClassBlock,
    block_weights,
    class_blocks,
    noisy_class_sums,
    noisy_moments,
)
from understudy.schema import Domain, Scale

DOMAIN = Domain(names=("y", "job", "age", "pay"), sizes=(3, 4, 4, 5), num_rows=50, target="y", numbers=("age", "pay"))
SCALE = Scale(run_edges=(0.0, 0.25, 0.5, 0.75, 1.0), run_masses=(0.25,) * 4, first_run=(0, 1, 2, 3, 4))
NULLABLE = Scale(run_edges=SCALE.run_edges, run_masses=SCALE.run_masses, first_run=SCALE.first_run, nullable=True)
SCALES = (None, None, SCALE, NULLABLE)
ONE = Look("sums", "sums", Gaussian(1.0))
SHARES = (math.sqrt(0.5), math.sqrt(0.3), math.sqrt(0.2))


def table(codes: np.ndarray, places: np.ndarray, *, units: np.ndarray | None = None, k: int = 1) -> Rows:
    return Rows(codes, DOMAIN, max_rows_per_unit=k, units=units, places=lambda: places, scales=SCALES)


def exact_ledger() -> Ledger:
    """Without privacy the sums come out as they are."""
    return Ledger(Guarantee.not_private(), noise=SeededNoise(0))


def made_up(seed: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    codes = generator.integers(DOMAIN.sizes, size=(size, 4), dtype=np.int32)
    # Ends of the line as well as its middle: these are what a row can do most with.
    places = generator.choice([0.0, 1.0, 0.5, generator.random()], size=(size, 4))
    places[:, :2] = np.nan
    missing = codes[:, 3] == 4
    places[:, 3] = np.where(missing, np.nan, places[:, 3])
    codes[:, 2] = np.minimum(np.floor(4 * places[:, 2]), 3)
    return codes, places


class Wild:
    """Features that keep no promise: the bound must hold all the same."""

    def encode(self, codes: np.ndarray, places: np.ndarray, key: object) -> np.ndarray:
        features = np.repeat(codes, 2, axis=1) * np.array([1e6, -3.0, 1e-9, 7.0, 0.0, 1.0, 5.0, 1e3])
        features = features + np.where(codes[:, :1] == 2, np.nan, 0.0)
        return np.c_[features, np.full(len(codes), 5.0)]


def moment_vector(rows: Rows, layout: object, weights: tuple[float, float, float]) -> np.ndarray:
    """All cells over their standard deviations, in units of the look's noise multiplier: what the price is for."""
    width = layout.encode(rows._codes[:1], rows._places[:1], jax.random.key(0)).shape[1] - 1  # type: ignore[attr-defined]
    absent = np.zeros((width, width), dtype=bool)
    found = noisy_moments(rows, layout, ONE, exact_ledger(), weights=weights, absent=absent)  # type: ignore[arg-type]
    upper = np.triu_indices(width, 1)
    gram = np.r_[np.diag(found.gram), math.sqrt(2) * found.gram[upper]] * weights[0]
    square = 0.0 if found.square is None else found.square
    return np.r_[gram, found.cross * weights[1], square * weights[2]]


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), size=st.integers(2, 12), residual=st.booleans())
def test_a_row_moves_weighted_moments_by_one_at_most(seed: int, size: int, residual: bool) -> None:
    """Spec: X^T X, X^T y and y^T y move by 1 each; jointly by sqrt(2), or sqrt(3) with the last."""
    codes, places = made_up(seed, size)
    inputs = inputs_of(DOMAIN, SCALES, "pay", numbers="both", intercept=True)
    weights = SHARES if residual else (math.sqrt(0.6), math.sqrt(0.4), 0.0)
    for layout in (Examples(inputs, numeric=True), Wild()):
        whole = moment_vector(table(codes, places), layout, weights)
        less = moment_vector(table(codes[1:], places[1:]), layout, weights)
        assert np.linalg.norm(whole - less) <= 1 + 1e-12


def test_the_bound_on_moments_is_reached() -> None:
    """A row at the end of every line: with less noise the claim would be false."""
    codes, places = made_up(0, 1)
    places[:, 2], places[:, 3], codes[:, 2], codes[:, 3] = 1.0, 1.0, 3, 3
    inputs = inputs_of(DOMAIN, SCALES, "pay", numbers="both", intercept=True)
    moved = np.linalg.norm(moment_vector(table(codes, places), Examples(inputs, numeric=True), SHARES))
    assert moved == pytest.approx(1.0, abs=1e-3)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), size=st.integers(2, 12))
def test_a_row_moves_weighted_class_sums_by_one_at_most(seed: int, size: int) -> None:
    """Spec: L2 of sqrt(1 + d) for counts and sqrt(1 + 2 d) for sums and squares, when all weights are alike."""
    codes, places = made_up(seed, size)
    blocks = class_blocks(DOMAIN, SCALES, "y", ["job"], ["age", "pay"])
    for weights in (block_weights(blocks), tuple(np.full(len(blocks), 1 / math.sqrt(len(blocks))))):
        vectors = []
        for rows in (table(codes, places), table(codes[1:], places[1:])):
            sums = noisy_class_sums(rows, "y", blocks, ONE, exact_ledger(), weights=weights)
            parts = [
                sums[block.what, block.column][0].ravel() * weight
                for block, weight in zip(blocks, weights, strict=True)
            ]
            vectors.append(np.concatenate(parts))
        assert np.linalg.norm(vectors[0] - vectors[1]) <= 1 + 1e-9


def test_plain_sensitivities_are_those_of_the_table() -> None:
    """Unweighted, one row with all numbers at an end: sqrt(1 + d) for categories, sqrt(1 + 2 d) for numbers."""
    codes, places = made_up(1, 1)
    places[:, 2], places[:, 3], codes[:, 3] = 1.0, 0.0, 0

    def moved(levels: list[str], numbers: list[str], scales: tuple[Scale | None, ...]) -> float:
        blocks = class_blocks(DOMAIN, scales, "y", levels, numbers)
        weight = 1 / math.sqrt(len(blocks))
        sums = noisy_class_sums(table(codes, places), "y", blocks, ONE, exact_ledger(), weights=[weight] * len(blocks))
        return math.sqrt(sum(float((values**2).sum()) for values, _ in sums.values()))

    assert moved(["job", "age", "pay"], [], SCALES) == pytest.approx(math.sqrt(1 + 3))
    assert moved([], ["age", "pay"], (None, None, SCALE, SCALE)) == pytest.approx(math.sqrt(1 + 2 * 2))


def test_weights_share_the_noise_at_least_total_variance() -> None:
    """Against the neighbours of the optimum, and a plain numerical minimum."""
    blocks = [ClassBlock("classes", "y", 3), ClassBlock("levels", "job", 12), ClassBlock("sums", "age", 3)]
    cells = np.array([block.cells for block in blocks])
    weights = np.asarray(block_weights(blocks))
    assert np.sum(weights**2) == pytest.approx(1.0)
    best = np.sum(cells / weights**2)
    assert best == pytest.approx(np.sqrt(cells).sum() ** 2)
    generator = np.random.default_rng(0)
    for _ in range(200):
        other = generator.dirichlet(np.ones(3))
        assert np.sum(cells / other) >= best - 1e-9


def test_noise_has_the_charged_scale() -> None:
    """Multiplier 2 and weight 0.6: accept 2 / 0.6 on the diagonal, over sqrt(2) beside it, and reject neighbours.

    Two-sided at 1e-3: a false alarm once in 500 seeds; the seed is fixed.
    """
    codes, places = made_up(3, 40)
    inputs = inputs_of(DOMAIN, SCALES, "pay", numbers="both", intercept=True)
    layout, width = Examples(inputs, numeric=True), inputs.width
    absent = np.zeros((width, width), dtype=bool)
    weights = (0.6, 0.8, 0.0)
    exact = noisy_moments(table(codes, places), layout, ONE, exact_ledger(), weights=weights, absent=absent)
    upper, diagonal, cross = [], [], []
    for seed in range(40):
        ledger = Ledger(Guarantee(30.0, 1e-3), noise=SeededNoise(seed))
        look = Look("m", "m", Gaussian(2.0))
        noisy = noisy_moments(table(codes, places), layout, look, ledger, weights=weights, absent=absent)
        difference = noisy.gram - exact.gram
        assert np.array_equal(difference, difference.T)
        upper.append(difference[np.triu_indices(width, 1)])
        diagonal.append(np.diag(difference))
        cross.append(noisy.cross - exact.cross)
        assert noisy.gram_stddev == pytest.approx(2 / 0.6)
        assert noisy.cross_stddev == pytest.approx(2 / 0.8)
    for values, scale in ((upper, 2 / 0.6 / math.sqrt(2)), (diagonal, 2 / 0.6), (cross, 2 / 0.8)):
        drawn = np.concatenate(values)
        assert stats.kstest(drawn, stats.norm(scale=scale).cdf).pvalue > 1e-3
        assert min(stats.kstest(drawn, stats.norm(scale=factor * scale).cdf).pvalue for factor in (0.8, 1.25)) < 0.05


def test_noise_grows_with_the_rows_of_a_unit() -> None:
    codes, places = made_up(4, 6)
    inputs = inputs_of(DOMAIN, SCALES, "pay", numbers="places", intercept=True)
    absent = np.zeros((inputs.width, inputs.width), dtype=bool)
    blocks = class_blocks(DOMAIN, SCALES, "y", ["job"], ["age"])
    for k in (1, 3):
        rows = table(codes, places, units=np.arange(6) // 3, k=k)
        ledger = Ledger(Guarantee(30.0, 1e-3), noise=SeededNoise(0), max_rows_per_unit=k)
        look = Look("m", "m", Gaussian(2.0))
        moments = noisy_moments(
            rows, Examples(inputs, numeric=True), look, ledger, weights=(0.6, 0.8, 0.0), absent=absent
        )
        assert moments.gram_stddev == pytest.approx(k * 2 / 0.6)
        weights = block_weights(blocks)
        sums = noisy_class_sums(rows, "y", blocks, look, ledger, weights=weights)
        assert sums["classes", "y"][1] == pytest.approx(k * 2 / weights[0])


def test_absent_cells_are_neither_looked_at_nor_noised() -> None:
    codes, places = made_up(5, 30)
    inputs = inputs_of(DOMAIN, SCALES, "pay", numbers="places", intercept=True)
    absent = np.zeros((inputs.width, inputs.width), dtype=bool)
    absent[0, 1] = absent[1, 0] = True
    ledger = Ledger(Guarantee(30.0, 1e-3), noise=SeededNoise(0))
    look = Look("m", "m", Gaussian(2.0))
    layout = Examples(inputs, numeric=True)
    found = noisy_moments(table(codes, places), layout, look, ledger, weights=(0.6, 0.8, 0.0), absent=absent)
    assert found.gram[0, 1] == found.gram[1, 0] == 0.0
    assert (found.gram != 0).sum() == absent.size - 2


def test_looks_are_charged_first_and_refused_where_they_do_not_fit() -> None:
    codes, places = made_up(6, 5)
    blocks = class_blocks(DOMAIN, SCALES, "y", ["job"], [])
    ledger = Ledger(Guarantee(1.0, 1e-5), noise=SeededNoise(0))
    with pytest.raises(BudgetExceeded, match="Nothing was looked at"):
        noisy_class_sums(table(codes, places), "y", blocks, ONE, ledger, weights=block_weights(blocks))
    assert not ledger.looks
    dear = Look("sums", "sums", Gaussian(5.0))
    noisy_class_sums(table(codes, places), "y", blocks, dear, ledger, weights=block_weights(blocks))
    assert ledger.looks == (dear,)
    with pytest.raises(BudgetExceeded, match="squares add up to 1"):
        noisy_class_sums(table(codes, places), "y", blocks, dear, ledger, weights=[1.0, 1.0])
    strict = Ledger(Guarantee(1.0, 1e-5), noise=SeededNoise(0), max_rows_per_unit=2)
    with pytest.raises(BudgetExceeded, match="a unit"):
        noisy_class_sums(table(codes, places), "y", blocks, dear, strict, weights=block_weights(blocks))
    assert not strict.looks


def test_a_table_with_nobody_in_it_is_noise_alone() -> None:
    codes, places = made_up(8, 1)
    inputs = inputs_of(DOMAIN, SCALES, "pay", numbers="both", intercept=True)
    absent = np.zeros((inputs.width, inputs.width), dtype=bool)
    nobody = table(codes[:0], places[:0])
    found = noisy_moments(nobody, Examples(inputs, numeric=True), ONE, exact_ledger(), weights=SHARES, absent=absent)
    assert not found.gram.any()
    assert found.gram.shape == absent.shape


def test_sums_do_not_depend_on_the_order_of_rows() -> None:
    codes, places = made_up(7, 5000)
    inputs = inputs_of(DOMAIN, SCALES, "pay", numbers="both", intercept=True)
    layout = Examples(inputs, numeric=True)
    absent = np.zeros((inputs.width, inputs.width), dtype=bool)
    order = np.random.default_rng(0).permutation(5000)
    found = [
        noisy_moments(table(*pair), layout, ONE, exact_ledger(), weights=SHARES, absent=absent)
        for pair in ((codes, places), (codes[order], places[order]))
    ]
    assert np.array_equal(found[0].gram, found[1].gram)
    assert np.array_equal(found[0].cross, found[1].cross)
    assert found[0].square == found[1].square


def test_steps_are_fine_beside_the_noise() -> None:
    """What makes discrete and continuous noise one price: their laws differ by less than any delta in use."""
    stddev = 0.05 * STEPS  # far less noise than a guarantee of epsilon 50 leaves
    at = np.arange(-int(8 * stddev), int(8 * stddev) + 1)
    discrete = np.exp(-((at / stddev) ** 2) / 2)
    discrete /= discrete.sum()
    rounded = np.diff(stats.norm(scale=stddev).cdf(np.r_[at - 0.5, at[-1] + 0.5]))
    assert np.abs(discrete - rounded).sum() / 2 < 1e-9


@pytest.mark.parametrize("multiplier", [0.7, 3.0, 30.0])
def test_the_exact_price_of_a_gaussian_is_that_of_its_distribution(multiplier: float) -> None:
    for delta in (1e-3, 1e-6, 1e-10):
        exact = gaussian_epsilon(multiplier, delta)
        on_a_grid = float(Gaussian(multiplier).pld(1e-3).get_epsilon_for_delta(delta))
        assert exact <= on_a_grid + 1e-9
        assert exact == pytest.approx(on_a_grid, abs=2e-3)
        assert exact <= rdp_epsilon([Gaussian(multiplier)], delta) + 1e-9
