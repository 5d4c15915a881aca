"""Layouts of features: there and back, row by row, and small runs with each of them."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import understudy as us
from tests.builders import encode, raises
from understudy.encoding import Codec
from understudy.encoding.features import (
    Bits,
    Block,
    Layout,
    Line,
    Modes,
    OneHot,
    Values,
    layout_of,
    num_features,
    starts,
    weighted_mixture,
)
from understudy.models.generator import GeneratorModel
from understudy.models.neural import activate
from understudy.privacy.accounting.events import SubsampledGaussian
from understudy.privacy.accounting.ledger import Budget, Query
from understudy.privacy.gradients.charges import charge_dpsgd
from understudy.privacy.gradients.clipping import Clip, add_noise, clipped_sum, unit_loss
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import PrivateRows, PrivateUnits
from understudy.schema import Domain, NumericDomain
from understudy.synthesizers import read_method
from understudy.tables import conform
from understudy.training.critics import LOSSES, Conditions, row_loss
from understudy.training.neural import Critic

ROOT = Path(__file__).parents[2]
TINY = "latent=4, generator_widths=[16, 16], critic_widths=[8], sampling_rate=1.0"  # all rows: calibration is fast
EDGES = (0.0, 0.25, 0.5, 1.0)


def people(num_rows: int = 400) -> pa.Table:
    draw = np.random.default_rng(0)
    return pa.table(
        {
            "city": draw.choice(["ham", "ulm", "bonn"], num_rows),
            "kids": pa.array(draw.integers(0, 6, num_rows), mask=draw.random(num_rows) < 0.2),
            "age": draw.integers(18, 90, num_rows),
            "income": pa.array(np.round(draw.gamma(2, 1000, num_rows), 2), mask=draw.random(num_rows) < 0.2),
        }
    )


def schema(*names: str, rows: int = 400) -> us.Schema:
    columns = (
        us.Column(name="city", kind="categorical", categories=("ham", "ulm", "bonn"), nullable=False, closed=True),
        us.Column(name="kids", kind="integer", bounds=(0, 5)),
        us.Column(name="age", kind="integer", bounds=(18, 89), nullable=False),
        us.Column(name="income", kind="real", bounds=(0.0, 10_000.0), decimals=2),
    )
    return us.Schema(columns=tuple(c for c in columns if not names or c.name in names), rows=rows)


def encoded(table: pa.Table, declared: us.Schema) -> tuple[Codec, PrivateRows]:
    return encode(conform(table, declared), declared)[:2]


# ------------------------------------------------------------------------------------------------------- there and back


@pytest.mark.parametrize("whole", range(1, 16))
@pytest.mark.parametrize("nullable", [False, True])
def test_bits_of_every_small_range(whole: int, nullable: bool) -> None:
    """Most significant first; codes that no value has become the greatest value, which is the nearest."""
    column = Bits((0.0, 1.0), whole, nullable, ())
    positions = (np.arange(whole) + 0.5) / whole
    positions = np.r_[positions, np.nan] if nullable else positions
    features = column.encode(Values(np.zeros(len(positions), int), positions, positions))
    assert features.shape[1] == num_features(column.blocks)
    back = column.decode(features)[1]
    np.testing.assert_allclose(back, positions, rtol=0, atol=1e-12)
    width = column.blocks[-1].size
    assert 2**width >= whole > (2 ** (width - 1) if width > 1 else 0)
    for index in range(whole):
        assert "".join(str(int(bit)) for bit in features[index, -width:]) == f"{index:0{width}b}"
    every = np.array([[int(bit) for bit in f"{index:0{width}b}"] for index in range(2**width)], dtype=float)
    marks = np.tile([1.0, 0.0], (len(every), 1)) if nullable else np.zeros((len(every), 0))
    decoded = column.decode(np.c_[marks, every])[1] * whole - 0.5
    np.testing.assert_allclose(decoded, np.minimum(np.arange(2**width), whole - 1), atol=1e-9)


def test_lines_there_and_back() -> None:
    positions = np.r_[0.0, np.random.default_rng(0).random(1000), 1.0, np.nan]
    column = Line(EDGES, None, True, ())
    codes, back = column.decode(
        column.encode(Values(np.zeros(len(positions), int), positions, positions)).astype(np.float32)
    )
    np.testing.assert_allclose(back, positions, atol=1e-6)
    assert codes[-1] == 3
    np.testing.assert_array_equal(codes[:-1], np.searchsorted([0.25, 0.5], back[:-1], side="right"))
    whole = Line((0.0, 1.0), 1000, False, ())  # any number becomes a whole one
    rounded = whole.decode(np.random.default_rng(1).uniform(-1, 1, (500, 1)))[1] * 1000 - 0.5
    np.testing.assert_allclose(rounded, np.rint(rounded), atol=1e-6)
    assert 0 <= rounded.min() < rounded.max() <= 999


def test_modes_there_and_back() -> None:
    """Within four standard deviations the error is below 1e-5; beyond, a number is moved to that end."""
    draw = np.random.default_rng(0)
    for mean, stddev in ((0.5, 0.1), (0.2, 1e-6), (0.7, 0.02)):
        column = Modes(EDGES, None, True, (), (mean,), (stddev,), (1.0,))
        positions = mean + stddev * np.r_[-4.0, draw.uniform(-4, 4, 500), 4.0]
        back = column.decode(column.encode(Values(np.zeros(502, int), positions, draw.random(502))).astype(np.float32))[
            1
        ]
        assert np.abs(back - positions).max() < 1e-5 * min(1, 10 * stddev)
        beyond = column.encode(Values(np.zeros(2, int), mean + stddev * np.array([-6.0, 6.0]), np.zeros(2)))
        np.testing.assert_allclose(column.decode(beyond)[1], mean + stddev * np.array([-4.0, 4.0]))
        codes, missing = column.decode(column.encode(Values(np.zeros(1, int), np.array([np.nan]), np.zeros(1))))
        assert codes[0] == 3
        assert np.isnan(missing[0])


def test_components_are_drawn_by_their_posterior() -> None:
    """By frequencies over rows with one value: a two-sided binomial test that fails by chance once in 10^6."""
    column = Modes(EDGES, None, False, (), (0.4, 0.6), (0.1, 0.05), (0.7, 0.3))
    densities = np.array([0.7 * stats.norm.pdf(0.52, 0.4, 0.1), 0.3 * stats.norm.pdf(0.52, 0.6, 0.05)])
    uniform = np.random.default_rng(3).random(20_000)
    drawn = column.encode(Values(np.zeros(20_000, int), np.full(20_000, 0.52), uniform))[:, 0].sum()
    assert stats.binomtest(int(drawn), 20_000, densities[0] / densities.sum()).pvalue > 1e-6


def test_mixtures_of_histograms() -> None:
    """Three bumps on a histogram are found with their means, spreads and weights; none is narrower than a cell."""
    edges = np.linspace(0, 1, 401)
    parts = [(0.2, 0.02, 0.5), (0.5, 0.05, 0.3), (0.9, 0.01, 0.2)]
    masses = sum(w * np.diff(stats.norm.cdf(edges, m, s)) for m, s, w in parts)
    means, stddevs, weights = weighted_mixture(edges, masses / masses.sum(), 3, iterations=500)
    np.testing.assert_allclose(np.sort(means), [0.2, 0.5, 0.9], atol=0.01)
    order = np.argsort(means)
    np.testing.assert_allclose(stddevs[order], [0.02, 0.05, 0.01], rtol=0.1)
    np.testing.assert_allclose(weights[order], [0.5, 0.3, 0.2], atol=0.02)
    coarse = np.linspace(0, 1, 11)
    spike = np.zeros(10)
    spike[3] = 1.0
    for most in (1, 4, 10):
        means, stddevs, weights = weighted_mixture(coarse, spike, most)
        assert stddevs.min() >= 0.1 - 1e-12
        assert abs(weights @ means - 0.35) < 1e-9


@pytest.mark.parametrize("features", ["typed", "modes"])
def test_a_table_there_and_back(features: str) -> None:
    """Values come back exactly after rounding, through codes, places and float32 features."""
    table, declared = people(), schema()
    codec, rows = encoded(table, declared)
    layout = layout_of(features, codec.domain, codec.scales, None)
    made = layout.encode(codec.encode(table), codec.positions(table), jax.random.key(0))
    codes, positions = layout.decode(made)
    np.testing.assert_array_equal(codes, codec.encode(table))
    back = codec.decode(codes, positions, key=jax.random.key(1))
    assert back["city"].equals(table["city"])
    assert back["age"].equals(table["age"])
    assert back["kids"].equals(table["kids"])
    for a, b in zip(back["income"].to_pylist(), table["income"].to_pylist(), strict=True):
        assert (a is None) == (b is None)
        assert a is None or abs(a - min(b, 10_000.0)) < 0.006
    again = Layout.from_list(layout.to_list())
    assert again.blocks == layout.blocks
    np.testing.assert_array_equal(again.decode(made)[1], positions)
    assert rows.scales == codec.scales


def test_two_categories_as_one_bit() -> None:
    """There and back; columns of more codes, and numbers, stay as they are."""
    domain = Domain(names=("sex", "city", "age"), sizes=(2, 3, 5), num_rows=10, numeric=("age",))
    edges = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    scale = NumericDomain(fine_edges=edges, fine_masses=(0.2,) * 5, first_fine_bin=(0, 1, 2, 3, 4, 5))
    layout = layout_of("typed", domain, [None, None, scale], None, binary="bit")
    assert layout.blocks == (Block("bits", 1), Block("one_hot", 3), Block("tanh", 1))
    assert layout.discrete == (None, 1, None)
    codes = np.array([[0, 2, 1], [1, 0, 4]])
    positions = np.array([[np.nan, np.nan, 0.3], [np.nan, np.nan, 0.9]])
    made = layout.encode(codes, positions, jax.random.key(0))
    assert made[:, 0].tolist() == [0.0, 1.0]
    np.testing.assert_array_equal(layout.decode(made)[0], codes)
    assert Layout.from_list(layout.to_list()) == layout
    assert layout_of("typed", domain, [None, None, scale], None).blocks[0] == Block("one_hot", 2)


def test_bits_need_features_that_are_not_all_one_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(us.DPGAN, "binary", "bit")
    with raises(us.ConfigError, setting="binary"):
        read_method("dpgan").plan(Domain(names=("a",), sizes=(2,), num_rows=10), Budget(1.0, 1e-6))


def test_places_at_the_ends_of_their_types() -> None:
    """Ranges that overflow their type: nothing fails, nothing leaves the bounds."""
    wide = us.Schema(
        columns=(
            us.Column(name="i", kind="integer", bounds=(-(2**63), 2**63 - 1), nullable=False),
            us.Column(name="r", kind="real", bounds=(-1.7e308, 1.7e308), nullable=False),
        ),
        rows=3,
    )
    table = pa.table({"i": [-(2**63), 0, 2**63 - 1], "r": [-1.7e308, 0.0, 1.7e308]})
    codec, _ = encoded(table, wide)
    positions = codec.positions(table)
    np.testing.assert_allclose(positions, np.array([[0, 0], [0.5, 0.5], [1, 1]]), atol=1e-12)
    back = codec.decode(codec.encode(table), positions, key=jax.random.key(0))
    np.testing.assert_allclose(back["r"].to_numpy(), [-1.7e308, 0.0, 1.7e308])
    assert back["i"].to_pylist()[0] == -(2**63)
    assert back["i"].to_pylist()[2] >= 2**63 - 2**11


# ----------------------------------------------------------------------------------------------------------- row by row


@pytest.mark.parametrize("features", ["typed", "modes"])
def test_a_row_is_encoded_by_itself(features: str) -> None:
    """Whatever the other rows are, and however many: a row and its own randomness give its features."""
    table, declared = people(), schema()
    codec, _ = encoded(table, declared)
    layout = layout_of(features, codec.domain, codec.scales, None)
    codes, positions = codec.encode(table), codec.positions(table)
    before = layout.encode(codes, positions, jax.random.key(0))
    kept = np.arange(0, 400, 7)
    other_codes, other_positions = codes[::-1].copy(), positions[::-1].copy()
    other_codes[kept], other_positions[kept] = codes[kept], positions[kept]
    after = layout.encode(other_codes, other_positions, jax.random.key(0))
    np.testing.assert_array_equal(after[kept], before[kept])
    fewer = layout.encode(codes[:100], positions[:100], jax.random.key(0))
    np.testing.assert_array_equal(fewer, before[:100])
    alone = codec.positions(table.slice(5, 1))
    np.testing.assert_array_equal(alone[0], positions[5])


def test_features_are_made_after_the_charge() -> None:
    """A refused query makes no features; a charged one has them by units."""
    domain = Domain(names=("a",), sizes=(3,), num_rows=4)
    positions = np.array([[0.1], [0.2], [0.3], [0.4]])
    rows = PrivateRows(
        np.zeros((4, 1), np.int32),
        domain,
        max_rows_per_unit=2,
        units=np.array([7, 8, 7, 9]),
        positions=lambda: positions,
    )
    called: list[int] = []

    class Recording:
        def encode(self, codes: np.ndarray, positions: np.ndarray, key: jax.Array) -> np.ndarray:
            called.append(len(codes))
            return positions.astype(np.float32)

    ledger = us.Ledger(us.Guarantee(0.5, 1e-6), noise=SeededNoise(0), max_rows_per_unit=2)
    with pytest.raises(us.BudgetExceeded):
        charge_dpsgd(rows, Query("critic", "steps", SubsampledGaussian(1.0, 2.0, 1)), ledger, Recording())
    assert called == []
    charged = charge_dpsgd(rows, Query("critic", "steps", SubsampledGaussian(1.0, 50.0, 1)), ledger, Recording())
    assert called == [4]
    units = charged._units
    assert isinstance(units, PrivateUnits)
    np.testing.assert_allclose(np.asarray(units._rows)[..., 0], [[0.1, 0.3], [0.2, 0.0], [0.4, 0.0]])
    assert np.asarray(units._present).tolist() == [[True, True], [True, False], [True, False]]


# ----------------------------------------------------------------------------------------------------------- conditions


def conditioned() -> tuple[Layout, Conditions, np.ndarray]:
    """Modes features of a table in which one row alone has its category, and conditions from its shares."""
    table = people()
    cities = table["city"].to_pylist()
    cities = ["ulm" if city == "bonn" else city for city in cities]
    cities[17] = "bonn"
    table = table.set_column(0, "city", pa.array(cities))
    codec, _ = encoded(table, schema())
    layout = layout_of("modes", codec.domain, codec.scales, None)
    codes = codec.encode(table)
    shares = [np.bincount(codes[:, at], minlength=size) / 400 for at, size in enumerate(codec.domain.sizes)]
    wanted = [column is not None for column in layout.discrete]
    assert [isinstance(column, OneHot) for column in layout.columns] == [True, True, False, False]
    conditions = Conditions.from_marginal(layout.blocks, layout.estimated_means(shares), 400, 10.0, wanted)
    return layout, conditions, layout.encode(codes, codec.positions(table), jax.random.key(0))


def test_conditions_stand_on_discrete_columns() -> None:
    """One non-zero entry, the row's own level; columns evenly (chi-square, by chance once in 10^6)."""
    layout, conditions, features = conditioned()
    assert conditions.num_blocks == 2
    keys = jax.random.split(jax.random.key(1), 4000)
    drawn = np.asarray(jax.vmap(conditions.of_row)(jnp.asarray(np.tile(features, (10, 1))), keys))
    assert ((drawn != 0).sum(axis=1) == 1).all()
    assert (drawn.sum(axis=1) == 1).all()
    ends = np.cumsum([block.size for block in layout.blocks])
    counts = [drawn[:, a:b].sum() for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    assert sum(counts[2:]) == 0
    assert stats.chisquare(counts[:2]).pvalue > 1e-6
    asked = np.asarray(conditions.draw(jax.random.key(2), 4000))
    assert (asked.sum(axis=1) == 1).all()
    assert asked[:, ends[1] :].sum() == 0
    target, weight = np.asarray(conditions.target), np.asarray(conditions.weight)
    assert abs(target.sum() - 1) < 1e-6
    assert (np.asarray(conditions.block)[ends[1] :] == -1).all()
    # Weights turn shares into targets, so where no weight is cut their mean is one.
    shares = np.asarray(conditions.marginal)
    city = slice(starts(layout.blocks)[0], ends[0])
    assert abs((shares * np.minimum(weight, 1e9))[city].sum() - 1) < 0.1 or weight[city].max() == 10


def test_a_unique_category_moves_the_sum_by_no_more_than_the_clip() -> None:
    layout, conditions, features = conditioned()
    critic = Critic(2 * features.shape[1], (8,), key=jax.random.key(0))
    critic = jax.tree_util.tree_map(lambda leaf: leaf * 20 if hasattr(leaf, "ndim") else leaf, critic)
    of_unit = unit_loss(row_loss(LOSSES["wgan"], layout.blocks, conditions, paired=False))
    bound = 0.3
    units = (
        jnp.asarray(features[:40, None]),
        jnp.ones((40, 1), bool),
        None,
        jax.random.split(jax.random.key(3), 40),
    )

    @jax.jit
    def summed(taken: jax.Array) -> list[jax.Array]:
        clip = Clip.flat(bound)
        exact = clipped_sum(of_unit, critic, units, taken, clip)
        return jax.tree_util.tree_leaves(add_noise(*exact, clip, noise_multiplier=0.0, key=jax.random.key(0)).gradient)

    everyone = summed(jnp.ones(40, bool))
    moved = []
    for row in range(40):
        without = summed(jnp.arange(40) != row)
        moved.append(np.sqrt(sum(float(((a - b) ** 2).sum()) for a, b in zip(everyone, without, strict=True))))
    assert max(moved) <= bound * (1 + 1e-4)
    assert moved[17] > 0.9 * bound  # the row with its own category is really clipped, not left out


def test_anchors_and_starts_leave_numbers_alone() -> None:
    """Shares of a layout sum to one in every block of levels and are zero elsewhere."""
    table = people()
    codec, _ = encoded(table, schema())
    codes = codec.encode(table)
    shares = [np.bincount(codes[:, at], minlength=size) / 400 for at, size in enumerate(codec.domain.sizes)]
    for features in ("typed", "modes"):
        layout = layout_of(features, codec.domain, codec.scales, shares)
        found, at = layout.estimated_means(shares), 0
        for block in layout.blocks:
            expected = 1.0 if block.kind == "one_hot" else 0.0
            assert abs(found[at : at + block.size].sum() - expected) < 1e-9
            at += block.size
        assert at == len(found)


# ----------------------------------------------------------------------------------------------------------- whole runs


@pytest.mark.parametrize(
    ("method", "features"), [("dpgan", "typed"), pytest.param("dpctgan", "modes", marks=pytest.mark.slow)]
)
def test_a_small_run_with_nulls(method: str, features: str, tmp_path: Path) -> None:
    expression = f"{method}(features={features}, steps=20, {TINY})"
    # One of the two in earnest: costs know nothing of features, and finding them takes most of the time.
    guarantee = us.Guarantee(3.0, 1e-6) if features == "modes" else us.Guarantee.not_private()
    release = us.fit(people(), expression, guarantee, schema=schema())
    assert features == "typed" or 0.99 * 3 <= release.statement.epsilon <= 3
    assert f"features={features}" in release.statement.method
    fake = release.sample(1000, seed=0)
    assert set(fake["city"].to_pylist()) <= {"ham", "ulm", "bonn"}
    assert set(fake["kids"].to_pylist()) <= {None, 0, 1, 2, 3, 4, 5}
    ages = fake["age"].to_pylist()
    assert all(isinstance(age, int) and 18 <= age <= 89 for age in ages)
    incomes = [value for value in fake["income"].to_pylist() if value is not None]
    assert 0 < len(incomes) < 1000
    assert all(0 <= value <= 10_000 for value in incomes)
    release.save(tmp_path / "r")
    again = us.Release.load(tmp_path / "r")
    assert again.sample(1000, seed=0).equals(fake)
    some = again.sample(40, where="age between 30 and 70 and city in ('ham', 'ulm') and income is not null", seed=1)
    assert all(30 <= age <= 70 for age in some["age"].to_pylist())
    assert set(some["city"].to_pylist()) <= {"ham", "ulm"}
    assert None not in some["income"].to_pylist()
    assert set(again.sample(20, where="kids is null", seed=1)["kids"].to_pylist()) == {None}
    assert isinstance(release.model, GeneratorModel)
    codes, positions = release.model.sample(500, key=jax.random.key(4))
    assert positions is not None
    table = release.codec.decode(codes, positions, key=jax.random.key(5))
    other = release.codec.decode(codes, positions, key=jax.random.key(6))
    assert table["age"].equals(other["age"])  # at its place, not drawn inside a bin


@pytest.mark.slow
def test_no_discrete_column_means_no_condition() -> None:
    expression = f"dpctgan(features=modes, num_modes=3, steps=2, {TINY})"
    numbers = people().select(["age", "income"])
    release = us.fit(numbers, expression, us.Guarantee.not_private(), schema=schema("age", "income"))
    assert isinstance(release.model, GeneratorModel)
    assert release.model.marginal is None
    assert all(18 <= age <= 89 for age in release.sample(50, seed=0)["age"].to_pylist())
    old = min(release.sample(20, where="age > 40", seed=0)["age"].to_pylist())
    assert old > 40


def test_one_hot_releases_of_earlier_versions_load() -> None:
    """Their structure knows no layout, and neither does that of a binned run today."""
    table = people().select(["city"])
    model = us.fit(table, f"dpgan(steps=1, {TINY})", us.Guarantee.not_private(), schema=schema("city")).model
    structure, arrays = model.to_arrays()
    assert set(structure) == {"network", "names", "blocks", "latent", "widths"}
    again = GeneratorModel.from_arrays(structure, arrays)
    np.testing.assert_array_equal(
        again.sample(100, key=jax.random.key(0)).codes, model.sample(100, key=jax.random.key(0)).codes
    )
    with pytest.raises(ValueError, match="layout"):
        GeneratorModel.from_arrays({**structure, "layout": [{"kind": "one_hot", "size": 4}]}, arrays)


# ------------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ("features=bins", "features"),
        ("num_modes=0", "num_modes"),
        ("betas=[0.5, 1.0]", "betas"),
    ],
)
def test_bad_settings_are_refused(settings: str, setting: str) -> None:
    with raises(us.ConfigError, setting=setting):
        read_method(f"dpgan({settings})")


def test_heads_give_what_layouts_read() -> None:
    layout = Layout((OneHot(3), Line(EDGES, 1000, True, ()), Bits((0.0, 1.0), 11, False, ())))
    logits = 3 * jax.random.normal(jax.random.key(0), (200, num_features(layout.blocks)))
    features = np.asarray(activate(logits, layout.blocks, temperature=0.5, key=jax.random.key(1)))
    np.testing.assert_allclose(features[:, :3].sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(features[:, 3:5].sum(axis=1), 1, atol=1e-5)
    codes, positions = layout.decode(features)
    assert codes.min() >= 0
    assert (codes < [column.size for column in layout.columns]).all()
    assert np.nanmin(positions) >= 0
    assert np.nanmax(positions) <= 1


def test_large_numbers_leave_gradients_finite() -> None:
    """A number far beyond its bounds must not spoil the step of all others."""
    blocks = Layout((OneHot(3), Line(EDGES, 1000, True, ()), Bits((0.0, 1.0), 11, False, ()))).blocks

    def total(logits: jax.Array) -> jax.Array:
        return activate(logits, blocks, temperature=0.5, key=jax.random.key(1)).sum()

    assert jnp.isfinite(jax.grad(total)(jnp.full((5, num_features(blocks)), 100.0))).all()


@pytest.mark.slow
def test_25_gaussians_without_privacy() -> None:
    """All modes, and at least nine points of ten in place: the published figure is 0.906. One seed, minutes."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/gaussians25.py"), "--seeds", "0"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    cells = [cell.strip() for cell in done.stdout.splitlines()[-1].strip("|").split("|")]
    assert int(cells[1]) == 25
    assert float(cells[2]) >= 0.90
