"""Noisy sums: a unit moves them by what is claimed, noise has the scale that is charged, and nothing is free."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.builders import RowsRead, over_budget, raises
from tests.examples import scaled
from understudy.errors import BudgetExceeded, ConfigError
from understudy.models.inputs import Examples, inputs_of
from understudy.privacy.accounting.accountants import gaussian_epsilon, rdp_epsilon
from understudy.privacy.accounting.events import Gaussian
from understudy.privacy.accounting.ledger import Guarantee, Ledger, Query
from understudy.privacy.mechanisms import moments
from understudy.privacy.mechanisms.moments import (
    STEPS,
    ClassBlock,
    block_weights,
    class_blocks,
    noisy_class_sums,
    noisy_gram,
    noisy_moments,
)
from understudy.privacy.noise.source import MAX_STDDEV, MAX_SUM, SecureNoise, SeededNoise, with_noise
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain, NumericDomain

DOMAIN = Domain(names=("y", "job", "age", "pay"), sizes=(3, 4, 4, 5), num_rows=50, target="y", numeric=("age", "pay"))
SCALE = NumericDomain(fine_edges=(0.0, 0.25, 0.5, 0.75, 1.0), fine_masses=(0.25,) * 4, first_fine_bin=(0, 1, 2, 3, 4))
NULLABLE = NumericDomain(
    fine_edges=SCALE.fine_edges, fine_masses=SCALE.fine_masses, first_fine_bin=SCALE.first_fine_bin, nullable=True
)
SCALES = (None, None, SCALE, NULLABLE)
ONE = Query("sums", "sums", Gaussian(1.0))
SHARES = (math.sqrt(0.5), math.sqrt(0.3), math.sqrt(0.2))


def table(codes: np.ndarray, positions: np.ndarray, *, units: np.ndarray | None = None, k: int = 1) -> PrivateRows:
    return PrivateRows(codes, DOMAIN, max_rows_per_unit=k, units=units, positions=lambda: positions, scales=SCALES)


def exact_ledger() -> Ledger:
    """Without privacy the sums come out as they are."""
    return Ledger(Guarantee.not_private(), noise=SeededNoise(0))


def made_up(seed: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    codes = generator.integers(DOMAIN.sizes, size=(size, 4), dtype=np.int32)
    # Ends of the line as well as its middle: these are what a row can do most with.
    positions = generator.choice([0.0, 1.0, 0.5, generator.random()], size=(size, 4))
    positions[:, :2] = np.nan
    missing = codes[:, 3] == 4
    positions[:, 3] = np.where(missing, np.nan, positions[:, 3])
    codes[:, 2] = np.minimum(np.floor(4 * positions[:, 2]), 3)
    return codes, positions


class Wild:
    """Features that keep no promise: the bound must hold all the same."""

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: object) -> np.ndarray:
        features = np.repeat(codes, 2, axis=1) * np.array([1e6, -3.0, 1e-9, 7.0, 0.0, 1.0, 5.0, 1e3])
        features = features + np.where(codes[:, :1] == 2, np.nan, 0.0)
        return np.c_[features, np.full(len(codes), 5.0)]


def moment_vector(rows: PrivateRows, layout: object, weights: tuple[float, float, float]) -> np.ndarray:
    """All cells over their standard deviations, in units of the query's noise multiplier: what the cost is for."""
    width = layout.encode(rows._codes[:1], rows._positions[:1], jax.random.key(0)).shape[1] - 1  # type: ignore[attr-defined]  # one of two layouts
    absent = np.zeros((width, width), dtype=bool)
    found = noisy_moments(rows, layout, ONE, exact_ledger(), weights=weights, absent=absent)  # type: ignore[arg-type]  # one of two layouts
    upper = np.triu_indices(width, 1)
    gram = np.r_[np.diag(found.gram), math.sqrt(2) * found.gram[upper]] * weights[0]
    square = 0.0 if found.square is None else found.square
    return np.r_[gram, found.cross * weights[1], square * weights[2]]


@settings(max_examples=scaled(60))
@given(seed=st.integers(0, 10**6), size=st.integers(2, 12), residual=st.booleans())
def test_a_row_moves_weighted_moments_by_one_at_most(seed: int, size: int, residual: bool) -> None:
    """Spec: X^T X, X^T y and y^T y move by 1 each; jointly by sqrt(2), or sqrt(3) with the last."""
    codes, positions = made_up(seed, size)
    inputs = inputs_of(DOMAIN, SCALES, "pay", numbers="both", intercept=True)
    weights = SHARES if residual else (math.sqrt(0.6), math.sqrt(0.4), 0.0)
    for layout in (Examples(inputs, numeric=True), Wild()):
        whole = moment_vector(table(codes, positions), layout, weights)
        less = moment_vector(table(codes[1:], positions[1:]), layout, weights)
        assert np.linalg.norm(whole - less) <= 1 + 1e-12


def test_the_bound_on_moments_is_reached() -> None:
    """A row at the end of every line: with less noise the claim would be false."""
    codes, positions = made_up(0, 1)
    positions[:, 2], positions[:, 3], codes[:, 2], codes[:, 3] = 1.0, 1.0, 3, 3
    inputs = inputs_of(DOMAIN, SCALES, "pay", numbers="both", intercept=True)
    moved = np.linalg.norm(moment_vector(table(codes, positions), Examples(inputs, numeric=True), SHARES))
    assert moved == pytest.approx(1.0, abs=1e-3)


@settings(max_examples=scaled(60))
@given(seed=st.integers(0, 10**6), size=st.integers(2, 12))
def test_a_row_moves_weighted_class_sums_by_one_at_most(seed: int, size: int) -> None:
    """Spec: L2 of sqrt(1 + d) for counts and sqrt(1 + 2 d) for sums and squares, when all weights are alike."""
    codes, positions = made_up(seed, size)
    blocks = class_blocks(DOMAIN, SCALES, "y", ["job"], ["age", "pay"])
    for weights in (block_weights(blocks), tuple(np.full(len(blocks), 1 / math.sqrt(len(blocks))))):
        vectors = []
        for rows in (table(codes, positions), table(codes[1:], positions[1:])):
            sums = noisy_class_sums(rows, "y", blocks, ONE, exact_ledger(), weights=weights)
            parts = [
                sums[block.what, block.column][0].ravel() * weight
                for block, weight in zip(blocks, weights, strict=True)
            ]
            vectors.append(np.concatenate(parts))
        assert np.linalg.norm(vectors[0] - vectors[1]) <= 1 + 1e-9


def test_plain_sensitivities_are_those_of_the_table() -> None:
    """Unweighted, one row with all numbers at an end: sqrt(1 + d) for categories, sqrt(1 + 2 d) for numbers."""
    codes, positions = made_up(1, 1)
    positions[:, 2], positions[:, 3], codes[:, 3] = 1.0, 0.0, 0

    def moved(levels: list[str], numbers: list[str], scales: tuple[NumericDomain | None, ...]) -> float:
        blocks = class_blocks(DOMAIN, scales, "y", levels, numbers)
        weight = 1 / math.sqrt(len(blocks))
        sums = noisy_class_sums(
            table(codes, positions), "y", blocks, ONE, exact_ledger(), weights=[weight] * len(blocks)
        )
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
    codes, positions = made_up(3, 40)
    inputs = inputs_of(DOMAIN, SCALES, "pay", numbers="both", intercept=True)
    layout, width = Examples(inputs, numeric=True), inputs.width
    absent = np.zeros((width, width), dtype=bool)
    weights = (0.6, 0.8, 0.0)
    exact = noisy_moments(table(codes, positions), layout, ONE, exact_ledger(), weights=weights, absent=absent)
    upper, diagonal, cross = [], [], []
    for seed in range(40):
        ledger = Ledger(Guarantee(30.0, 1e-3), noise=SeededNoise(seed))
        query = Query("m", "m", Gaussian(2.0))
        noisy = noisy_moments(table(codes, positions), layout, query, ledger, weights=weights, absent=absent)
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


def check_scale(drawn: np.ndarray, scale: float) -> None:
    """Normal of this standard deviation; two-sided, a false alarm once in 10^4; 30% off is seen in 300 draws."""
    assert stats.kstest(drawn, stats.norm(scale=scale).cdf).pvalue > 1e-4
    lower, upper = stats.chi2(drawn.size).ppf([5e-5, 1 - 5e-5])
    assert lower < np.sum((drawn / scale) ** 2) < upper


def test_every_part_of_the_moments_has_its_noise() -> None:
    """y^T y among them, and the matrix alone."""
    codes, positions = made_up(3, 20)
    inputs = inputs_of(DOMAIN, SCALES, "pay", numbers="positions", columns=["age"], intercept=True)
    layout, absent = Examples(inputs, numeric=True), np.zeros((inputs.width, inputs.width), dtype=bool)
    rows, query = table(codes, positions), Query("m", "m", Gaussian(2.0))
    exact = noisy_moments(rows, layout, ONE, exact_ledger(), weights=SHARES, absent=absent)
    alone = noisy_gram(rows, layout, ONE, exact_ledger())
    assert exact.square is not None
    squares, grams = [], []
    for seed in range(300):
        ledger = Ledger(Guarantee(30.0, 1e-3), noise=SeededNoise(seed))
        noisy = noisy_moments(rows, layout, query, ledger, weights=SHARES, absent=absent)
        assert noisy.square is not None
        squares.append(noisy.square - exact.square)
        ledger = Ledger(Guarantee(30.0, 1e-3), noise=SeededNoise(1000 + seed))
        difference = noisy_gram(rows, layout, query, ledger) - alone
        assert np.array_equal(difference, difference.T)
        grams.append(difference[np.triu_indices(len(difference))])
    check_scale(np.asarray(squares), 2.0 / SHARES[2])
    check_scale(np.concatenate(grams), 2.0)


def test_every_block_of_class_sums_has_its_noise() -> None:
    codes, positions = made_up(3, 40)
    blocks = class_blocks(DOMAIN, SCALES, "y", ["job"], ["age", "pay"])
    assert {block.what for block in blocks} == {"classes", "levels", "known", "sums", "squares"}
    weights, query = block_weights(blocks), Query("m", "m", Gaussian(2.0))
    exact = noisy_class_sums(table(codes, positions), "y", blocks, ONE, exact_ledger(), weights=weights)
    drawn: dict[tuple[str, str], list[np.ndarray]] = {}
    for seed in range(120):
        ledger = Ledger(Guarantee(30.0, 1e-3), noise=SeededNoise(seed))
        noisy = noisy_class_sums(table(codes, positions), "y", blocks, query, ledger, weights=weights)
        for name, (values, stddev) in noisy.items():
            drawn.setdefault(name, []).append((values - exact[name][0]).ravel() / stddev)
    for block, weight in zip(blocks, weights, strict=True):
        assert noisy[block.what, block.column][1] == pytest.approx(2.0 / weight)
        check_scale(np.concatenate(drawn[block.what, block.column]), 1.0)


def test_wild_numbers_move_class_sums_no_further() -> None:
    """Places beyond their bounds, infinite or none: a unit of k rows moves the weighted sums by k at most."""
    generator = np.random.default_rng(0)
    blocks = class_blocks(DOMAIN, SCALES, "y", ["job"], ["age", "pay"])
    weights = block_weights(blocks)
    for _ in range(200):
        size, k = generator.integers(0, 4), generator.integers(1, 4)
        codes = generator.integers(DOMAIN.sizes, size=(size + k, 4), dtype=np.int32)
        positions = generator.choice([0.0, 1.0, 0.5, np.nan, np.inf, -np.inf, 1e308, -5.0], size=(size + k, 4))
        vectors = []
        for end in (size, size + k):
            rows = table(codes[:end], positions[:end])
            sums = noisy_class_sums(rows, "y", blocks, ONE, exact_ledger(), weights=weights)
            parts = [sums[b.what, b.column][0].ravel() * w for b, w in zip(blocks, weights, strict=True)]
            vectors.append(np.concatenate(parts))
        assert np.linalg.norm(vectors[1] - vectors[0]) <= k + 1e-9


# -------------------------------------------------------------------------------------------------------- 64 bits


class Untouchable:
    """A layout that must not be asked."""

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: object) -> np.ndarray:
        raise RowsRead


def unread(num_rows: int = 50, *, declared: int | None = None) -> PrivateRows:
    def positions() -> np.ndarray:
        raise RowsRead

    domain = Domain(
        names=DOMAIN.names,
        sizes=DOMAIN.sizes,
        num_rows=num_rows,
        target="y",
        numeric=DOMAIN.numeric,
        declared_rows=declared,
    )
    return PrivateRows(np.zeros((5, 4), dtype=np.int32), domain, positions=positions, scales=SCALES)


def query_rows(what: str, rows: PrivateRows, query: Query, ledger: Ledger) -> object:
    if what == "moments":
        weights, absent = (0.6, 0.8, 0.0), np.zeros((2, 2), dtype=bool)
        return noisy_moments(rows, Untouchable(), query, ledger, weights=weights, absent=absent)
    if what == "gram":
        return noisy_gram(rows, Untouchable(), query, ledger)
    return noisy_class_sums(rows, "y", [ClassBlock("sums", "age", 3)], query, ledger, weights=[1.0])


@pytest.mark.parametrize("what", ["moments", "gram", "classes"])
def test_refusals_are_public_and_come_first(what: str) -> None:
    """A query that costs too much, noise beyond 64 bits, a declared number of rows that is too great. An estimated
    number of rows is a noisy answer, and refuses nothing."""
    steps = STEPS if what == "classes" else STEPS**2
    ledger = Ledger(Guarantee(1.0, 1e-5), noise=SeededNoise(0))
    with pytest.raises(BudgetExceeded):
        query_rows(what, unread(), ONE, ledger)
    with raises(ConfigError, setting="epsilon"):
        query_rows(what, unread(), Query("m", "m", Gaussian(1.01 * MAX_STDDEV / steps)), ledger)
    many = int(1.01 * MAX_SUM / steps)
    with raises(ConfigError, setting="rows"):
        query_rows(what, unread(many, declared=many), Query("m", "m", Gaussian(10.0)), ledger)
    assert not ledger.queries
    with pytest.raises(RowsRead):
        query_rows(
            what, unread(many), Query("m", "m", Gaussian(10.0)), Ledger(Guarantee(1.0, 1e-5), noise=SeededNoise(0))
        )
    with pytest.raises(RowsRead):  # what was charged is read
        query_rows(
            what, unread(int(0.99 * MAX_SUM / steps)), Query("m", "m", Gaussian(0.49 * MAX_STDDEV / steps)), ledger
        )
    assert len(ledger.queries) == 1


@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(0)])
def test_sums_with_noise_never_wrap_around(source: SecureNoise | SeededNoise) -> None:
    """At the greatest noise and the greatest sums signs stay what they are; beyond, there is no noise at all."""
    exact = np.array([2**62, -(2**62), 2**80, -(2**80)] * 50, dtype=object)
    noisy = with_noise(exact, MAX_STDDEV, source)
    assert noisy.dtype == np.int64
    assert (np.sign(noisy) == np.tile([1, -1, 1, -1], 50)).all()
    assert (np.abs(noisy.astype(float)) < 2.0**62 + 2.0**61).all()
    for stddev in (2 * MAX_STDDEV, math.inf, math.nan):
        with raises(ConfigError, setting="epsilon"):
            source.discrete_gaussian(stddev, (3,))


def test_no_number_of_rows_is_too_great(monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than sums of 64 bits hold: these must not wrap around, and nothing may refuse by the private number."""
    chunks = 2**23 // moments.CHUNK + 3
    wide = np.full((moments.CHUNK, 1), 4.0)  # each stands for 16 rows
    monkeypatch.setattr(moments, "exact_examples", lambda *_, labelled: ((wide, wide[:, 0]) for _ in range(chunks)))
    codes, positions = made_up(0, 1)
    absent = np.zeros((1, 1), dtype=bool)
    found = noisy_moments(table(codes, positions), Wild(), ONE, exact_ledger(), weights=SHARES, absent=absent)
    total = chunks * moments.CHUNK
    assert (found.gram[0, 0], found.cross[0], found.square) == (16 * total, 4 * total, total)
    assert noisy_gram(table(codes, positions), Wild(), ONE, exact_ledger())[0, 0] == 16 * total


def test_noise_grows_with_the_rows_of_a_unit() -> None:
    codes, positions = made_up(4, 6)
    inputs = inputs_of(DOMAIN, SCALES, "pay", numbers="positions", intercept=True)
    absent = np.zeros((inputs.width, inputs.width), dtype=bool)
    blocks = class_blocks(DOMAIN, SCALES, "y", ["job"], ["age"])
    for k in (1, 3):
        rows = table(codes, positions, units=np.arange(6) // 3, k=k)
        ledger = Ledger(Guarantee(30.0, 1e-3), noise=SeededNoise(0), max_rows_per_unit=k)
        query = Query("m", "m", Gaussian(2.0))
        moments = noisy_moments(
            rows, Examples(inputs, numeric=True), query, ledger, weights=(0.6, 0.8, 0.0), absent=absent
        )
        assert moments.gram_stddev == pytest.approx(k * 2 / 0.6)
        weights = block_weights(blocks)
        sums = noisy_class_sums(rows, "y", blocks, query, ledger, weights=weights)
        assert sums["classes", "y"][1] == pytest.approx(k * 2 / weights[0])


def test_absent_cells_are_neither_read_nor_noised() -> None:
    codes, positions = made_up(5, 30)
    inputs = inputs_of(DOMAIN, SCALES, "pay", numbers="positions", intercept=True)
    absent = np.zeros((inputs.width, inputs.width), dtype=bool)
    absent[0, 1] = absent[1, 0] = True
    ledger = Ledger(Guarantee(30.0, 1e-3), noise=SeededNoise(0))
    query = Query("m", "m", Gaussian(2.0))
    layout = Examples(inputs, numeric=True)
    found = noisy_moments(table(codes, positions), layout, query, ledger, weights=(0.6, 0.8, 0.0), absent=absent)
    assert found.gram[0, 1] == found.gram[1, 0] == 0.0
    assert (found.gram != 0).sum() == absent.size - 2


def test_queries_are_charged_first_and_refused_where_they_do_not_fit() -> None:
    codes, positions = made_up(6, 5)
    blocks = class_blocks(DOMAIN, SCALES, "y", ["job"], [])
    ledger = Ledger(Guarantee(1.0, 1e-5), noise=SeededNoise(0))
    with over_budget("sums"):
        noisy_class_sums(table(codes, positions), "y", blocks, ONE, ledger, weights=block_weights(blocks))
    assert not ledger.queries
    dear = Query("sums", "sums", Gaussian(5.0))
    noisy_class_sums(table(codes, positions), "y", blocks, dear, ledger, weights=block_weights(blocks))
    assert ledger.queries == (dear,)
    with raises(BudgetExceeded, query="sums", needed=None):
        noisy_class_sums(table(codes, positions), "y", blocks, dear, ledger, weights=[1.0, 1.0])
    strict = Ledger(Guarantee(1.0, 1e-5), noise=SeededNoise(0), max_rows_per_unit=2)
    with pytest.raises(BudgetExceeded, match="limited to 1 per unit"):
        noisy_class_sums(table(codes, positions), "y", blocks, dear, strict, weights=block_weights(blocks))
    assert not strict.queries


def test_an_empty_table_gives_noise_alone() -> None:
    codes, positions = made_up(8, 1)
    inputs = inputs_of(DOMAIN, SCALES, "pay", numbers="both", intercept=True)
    absent = np.zeros((inputs.width, inputs.width), dtype=bool)
    nobody = table(codes[:0], positions[:0])
    found = noisy_moments(nobody, Examples(inputs, numeric=True), ONE, exact_ledger(), weights=SHARES, absent=absent)
    assert not found.gram.any()
    assert found.gram.shape == absent.shape


def test_sums_do_not_depend_on_the_order_of_rows() -> None:
    codes, positions = made_up(7, 5000)
    inputs = inputs_of(DOMAIN, SCALES, "pay", numbers="both", intercept=True)
    layout = Examples(inputs, numeric=True)
    absent = np.zeros((inputs.width, inputs.width), dtype=bool)
    order = np.random.default_rng(0).permutation(5000)
    found = [
        noisy_moments(table(*pair), layout, ONE, exact_ledger(), weights=SHARES, absent=absent)
        for pair in ((codes, positions), (codes[order], positions[order]))
    ]
    assert np.array_equal(found[0].gram, found[1].gram)
    assert np.array_equal(found[0].cross, found[1].cross)
    assert found[0].square == found[1].square


def test_steps_are_fine_beside_the_noise() -> None:
    """What makes discrete and continuous noise one cost: their laws differ by less than any delta in use."""
    stddev = 0.05 * STEPS  # far less noise than a guarantee of epsilon 50 leaves
    at = np.arange(-int(8 * stddev), int(8 * stddev) + 1)
    discrete = np.exp(-((at / stddev) ** 2) / 2)
    discrete /= discrete.sum()
    rounded = np.diff(stats.norm(scale=stddev).cdf(np.r_[at - 0.5, at[-1] + 0.5]))
    assert np.abs(discrete - rounded).sum() / 2 < 1e-9


def test_the_laws_have_the_stated_ratio() -> None:
    """A continuous Gaussian, rounded, over a discrete one: log ratio (k^2 / s^2 - 1) / (24 s^2), up to k = 14 s."""
    stddev = 100.0
    at = np.arange(-int(14 * stddev), 1)  # by symmetry
    discrete = np.exp(-((np.arange(-3000, 3001) / stddev) ** 2) / 2).sum()
    log_discrete = -((at / stddev) ** 2) / 2 - math.log(discrete)
    rounded = np.log(stats.norm(scale=stddev).cdf(at + 0.5) - stats.norm(scale=stddev).cdf(at - 0.5))
    claimed = ((at / stddev) ** 2 - 1) / (24 * stddev**2)
    assert rounded - log_discrete == pytest.approx(claimed, abs=0.01 * np.abs(claimed).max())
    at_ten_thousand = np.abs(stats.chi2(1e6).ppf([1e-15]) - 1e6) / (24 * 1e4**2)  # a million cells; tails are even
    assert at_ten_thousand < 1e-5


@pytest.mark.parametrize("multiplier", [0.7, 3.0, 30.0])
def test_the_exact_cost_of_a_gaussian_is_that_of_its_distribution(multiplier: float) -> None:
    for delta in (1e-3, 1e-6, 1e-10):
        exact = gaussian_epsilon(multiplier, delta)
        on_a_grid = float(Gaussian(multiplier).pld(1e-3).get_epsilon_for_delta(delta))
        assert exact <= on_a_grid + 1e-9
        assert exact == pytest.approx(on_a_grid, abs=2e-3)
        assert exact <= rdp_epsilon([Gaussian(multiplier)], delta) + 1e-9
