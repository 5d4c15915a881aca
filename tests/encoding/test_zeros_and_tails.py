"""Numbers keep the values that many rows share, their averages and their tails, by every marginal codec."""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import understudy as us
from tests.builders import raises
from tests.examples import scaled
from understudy.certificate.agreement import UNREADABLE
from understudy.encoding import NumericCodec
from understudy.encoding.features import FEATURES, layout_of
from understudy.encoding.fit import _column_codec, cut_bins, divide_coarse
from understudy.errors import SchemaError
from understudy.models.inputs import bin_middles
from understudy.privacy.mechanisms.blocks import (
    EMPTY,
    FALSE_SPIKE,
    NEAR_CELLS,
    _first_fractions,
    certain_range,
    expected_masses,
    extended,
    root_masses,
)
from understudy.privacy.mechanisms.discovery import Binning
from understudy.schema import Column, Domain
from understudy.schema.grid import Grid, Histogram

NUM_ROWS = 20_000


def amounts(seed: int = 0) -> pd.DataFrame:
    """Costs of which 90% are exactly 0, with a flag that says which."""
    draw = np.random.default_rng(seed)
    cost = np.where(draw.random(NUM_ROWS) < 0.9, 0.0, np.round(np.exp(draw.normal(6, 1.5, NUM_ROWS)), 2))
    months = draw.choice([0, 12, 24, 36, 999], NUM_ROWS, p=[0.3, 0.4, 0.2, 0.05, 0.05])
    return pd.DataFrame({"cost": cost, "any_cost": cost > 0, "months": months})


DECLARED = {
    "cost": {"kind": "real", "bounds": [0.0, 1e6], "decimals": 2},
    "any_cost": {"kind": "boolean"},
    "months": {"kind": "integer", "bounds": [0, 10_000]},
}
ESTIMATED = {"cost": {"kind": "real"}, "any_cost": {"kind": "boolean"}, "months": {"kind": "integer"}}


@pytest.mark.parametrize("columns", [DECLARED, ESTIMATED], ids=["declared", "estimated"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_zeros_stay_zero_and_agree_with_their_flag(columns: dict, seed: int) -> None:
    real = amounts()
    release = us.fit(real, "adaptive", epsilon=1, schema={"columns": columns}, seed=seed)
    table = release.sample(NUM_ROWS, seed=seed)
    assert (table.cost == 0).mean() == pytest.approx((real.cost == 0).mean(), abs=0.01)
    assert ((table.cost > 0) == table.any_cost).mean() > 0.99
    for value in (0, 12, 24, 999):
        assert (table.months == value).mean() == pytest.approx((real.months == value).mean(), abs=0.01)
    # Without a row at 30 times the real average: the noise of empty cells must not become a tail.
    assert table.cost.mean() < 3 * real.cost.mean()
    assert table.cost.max() < 30 * real.cost.quantile(0.999)


@pytest.mark.parametrize("method", ["independent", "mst", "aim", "privbayes", "mwem", "gem", "adaptive"])
def test_every_method_of_marginals_keeps_numbers_of_every_kind(method: str) -> None:
    """Zero-inflated, heavy-tailed, coded, bounded, cyclic and dated columns, at epsilon 5."""
    draw = np.random.default_rng(5)
    num_rows = 4000
    real = pd.DataFrame(
        {
            "cost": np.where(draw.random(num_rows) < 0.8, 0.0, np.round(np.exp(draw.normal(5, 1, num_rows)), 2)),
            "code": draw.choice([1, 2, 99], num_rows, p=[0.6, 0.3, 0.1]),
            "percent": np.round(100 * draw.beta(2, 5, num_rows), 1),
            "hour": draw.integers(0, 24, num_rows),
            "paid": np.datetime64("2024-01-01") + 30 * draw.integers(0, 12, num_rows).astype("timedelta64[D]"),
        }
    )
    columns = {
        "cost": {"kind": "real", "bounds": [0.0, 1e6], "decimals": 2, "nullable": False},
        "code": {"kind": "integer", "bounds": [0, 999], "special": [99], "nullable": False},
        "percent": {"kind": "real", "bounds": [0.0, 100.0], "decimals": 1, "nullable": False},
        "hour": {"kind": "integer", "bounds": [0, 23], "cyclic": True, "nullable": False},
        "paid": {"kind": "date", "bounds": ["2000-01-01", "2030-01-01"], "nullable": False},
    }
    schema = {"columns": columns, "table": {"rows": num_rows}}
    # What is tested is that nothing is biased: privbayes has more noise in a table than others, so it makes four.
    seeds = range(1, 5) if method == "privbayes" else (1,)
    releases = [us.fit(real, method, epsilon=5, schema=schema, seed=seed) for seed in seeds]
    table = pd.concat([release.sample(num_rows, seed=2) for release in releases])
    assert (table.cost == 0).mean() == pytest.approx(0.8, abs=0.05)
    assert (table.code == 99).mean() == pytest.approx(0.1, abs=0.03)
    assert table.code.isin([1, 2, 99]).mean() > 0.95
    assert 0.7 * real.cost.mean() < table.cost.mean() < 1.3 * real.cost.mean()
    assert table.cost.quantile(0.95) == pytest.approx(real.cost.quantile(0.95), rel=0.2)
    assert table.percent.mean() == pytest.approx(real.percent.mean(), abs=3)
    assert table.hour.mean() == pytest.approx(11.5, abs=1)
    assert pd.to_datetime(table.paid).isin(pd.to_datetime(real.paid.unique())).mean() > 0.9


@settings(max_examples=scaled(30))
@given(
    heavy=st.lists(st.tuples(st.integers(0, 10**6), st.integers(300, 3000)), min_size=1, max_size=5),
    spread=st.integers(0, 3000),
    seed=st.integers(0, 99),
)
def test_heavy_values_of_any_mixture_have_ranges_of_their_own(
    heavy: list[tuple[int, int]], spread: int, seed: int
) -> None:
    """Of a mixture of heavy round values and a density, without noise; fractions then follow from the masses."""
    draw = np.random.default_rng(seed)
    values = [100 * value for value, _ in heavy]
    column = np.r_[np.repeat(values, [count for _, count in heavy]), draw.integers(0, 10**8, spread)]
    schema = {
        "table": {"rows": len(column)},
        "columns": {"x": {"kind": "integer", "bounds": [0, 10**8], "nullable": False}},
    }
    release = us.fit(pa.table({"x": column}), "independent", epsilon=100, delta=1e-6, schema=schema, seed=seed)
    (codec,) = release.codec.columns
    assert isinstance(codec, NumericCodec)
    masses = dict(zip(codec.histogram.firsts.tolist(), codec.histogram.masses.tolist(), strict=True))
    for value in set(values):
        if value < 2000 or value % 100_000 == 0:  # elsewhere a rounder number may be near
            assert masses[value] == pytest.approx((column == value).mean(), abs=0.01)


def test_special_values_have_codes_of_their_own_and_come_back() -> None:
    """Even those that are too rare to stand out, and those outside estimated bounds."""
    column = {"kind": "integer", "bounds": [0, 5000], "special": [777, 4999]}
    table = pd.DataFrame({"x": np.r_[np.repeat([777, 4999], 40), np.arange(1000)], "y": 5.0})
    schema = {"columns": {"x": column, "y": {"kind": "real", "special": [-1.0]}}}
    release = us.fit(table, "independent", epsilon=1, schema=schema, seed=0)
    for name, specials in (("x", [777, 4999]), ("y", [-1.0])):
        codec = next(each for each in release.codec.columns if each.name == name)
        assert isinstance(codec, NumericCodec)
        lower, upper = codec.bin_edges()
        codes = codec.encode(pa.chunked_array([specials]))
        assert lower[codes].tolist() == upper[codes].tolist() == specials
        drawn = codec.decode(codes, generator=np.random.default_rng(0))
        assert drawn.to_pylist() == specials


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"kind": "integer", "special": 5}, "expected a list such as [0, 999], found 5."),
        ({"kind": "integer", "special": []}, "expected 1 to 1,000 values, found 0."),
        ({"kind": "integer", "special": list(range(1001))}, "expected 1 to 1,000 values, found 1,001."),
        ({"kind": "integer", "special": ["many"]}, 'expected integers of 64 bits, found "many".'),
        ({"kind": "integer", "special": [2**63]}, "expected integers of 64 bits, found 9223372036854775808."),
        ({"kind": "integer", "special": [1, 1]}, "1 listed more than once. Keep one."),
        ({"kind": "integer", "bounds": (0, 9), "special": [10]}, "10 is outside the bounds [0, 9]. Widen them, or"),
        ({"kind": "real", "decimals": 1, "special": [0.25]}, "0.25 has more than 1 decimals."),
        ({"kind": "categorical", "special": [1]}, "only for kind integer or real or datetime or date"),
        ({"kind": "date", "bounds": ("2020-01-01", "2021-01-01"), "special": [3]}, "expected dates such as"),
        (
            {"kind": "datetime", "bounds": ("2020-01-01", "2021-01-01"), "special": ["2020-06-01T00:00:00Z"]},
            "some values or bounds have a time zone and others do not.",
        ),
    ],
)
def test_special_values_are_checked_before_anything_is_charged(column: dict, message: str) -> None:
    with raises(SchemaError, column="x", key="special") as error:
        Column(name="x", **column)
    assert message in str(error.value)


def test_noise_beyond_the_rows_makes_no_tail() -> None:
    """Of 3,996 empty cells after 100 full ones, those beyond the next 128 get less than 0.1% of the mass."""
    draw = np.random.default_rng(0)
    left = []
    for _ in range(50):
        noisy = np.r_[np.full(100, 500), np.zeros(3996, dtype=int)] + np.rint(draw.normal(0, 30, 4096)).astype(int)
        masses = root_masses(noisy, np.arange(4097.0), 30.0, 50_000, complete=True)
        left.append(masses[228:].sum() / masses.sum())
    assert np.mean(left) < 1e-3


def test_few_rows_are_spread_not_dropped() -> None:
    """800 rows under noise of 70, where no cell stands out: all are kept, nearer to the real ones than if even."""
    draw = np.random.default_rng(1)
    errors, evenly = [], []
    for _ in range(40):
        exact = np.bincount(draw.integers(24, 72, 800), minlength=72)
        noisy = exact + np.rint(draw.normal(0, 70, 72)).astype(int)
        masses = root_masses(noisy, np.arange(73.0), 70.0, 800, complete=True)
        assert masses.sum() == pytest.approx(800, rel=0.2)
        errors.append(np.abs(np.cumsum(masses - exact)).mean() / 800)
        evenly.append(np.abs(np.cumsum(800 / 72 - exact)).mean() / 800)
    assert np.mean(errors) < 0.85 * np.mean(evenly)


def test_expected_fractions_are_posterior_means() -> None:
    """Against a numerical integral over a fine grid, for every component of the prior."""
    draw = np.random.default_rng(2)
    for _ in range(200):
        mass, noise = 10 ** draw.uniform(1, 4), draw.uniform(5, 100, 2) ** 2
        true = draw.choice([0.0, 1.0, draw.random()])
        sums = mass * np.array([true, 1 - true]) + draw.normal(0, np.sqrt(noise))
        lengths, few = draw.random(2) + 0.01, draw.random()
        at = (np.arange(20_000) + 0.5) / 20_000

        def likelihood(
            f: np.ndarray | float, sums: np.ndarray = sums, of: float = mass, noise: np.ndarray = noise
        ) -> Any:
            of_both = stats.norm.logpdf(sums, of * np.stack([f, 1 - np.asarray(f)], axis=-1), np.sqrt(noise))
            return of_both.sum(axis=-1)

        even, highest = lengths[0] / lengths.sum(), likelihood(at).max()
        if highest < max(likelihood(0.0), likelihood(1.0), likelihood(even)) - 700:
            continue  # nothing of the grid is left
        prior = np.array([EMPTY, EMPTY, few * (0.5 - EMPTY), few * (0.5 - EMPTY)])
        inside = np.exp(likelihood(at) - highest)
        weights = prior * np.r_[np.exp([likelihood(f) - highest for f in (0.0, 1.0, even)]), inside.mean()]
        none, every, *others = weights / weights.sum()
        expected = every + others[0] * even + others[1] * (inside @ at / inside.sum())
        expected = 0.0 if none >= 0.5 else 1.0 if every >= 0.5 else expected
        found = _first_fractions(sums[None], lengths[None], noise[None], np.array([mass]), np.array([few]))
        assert found[0] == pytest.approx(expected, abs=2e-3)


def test_a_thinning_tail_is_extended_by_one_doubling() -> None:
    edges = np.r_[0.0, 2.0 ** np.arange(11)]
    thinner = np.r_[400.0, 400.0, 200.0, 100.0, 50.0, np.zeros(6)]
    none = np.zeros(11)
    assert extended(thinner, edges, none, 1e6)[4:7].tolist() == pytest.approx([50.0, 25.0, 0.0])
    assert extended(thinner[::-1], -edges[::-1], none, 1e6)[::-1][4:7].tolist() == pytest.approx([50.0, 25.0, 0.0])
    steep = np.r_[50.0, 50.0, 100.0, 200.0, 400.0, np.zeros(6)]
    assert extended(steep, edges, none, 1e6).tolist() == steep.tolist()
    assert extended(none, edges, none, 1e6).tolist() == [0.0] * 11
    # Where counts are nearly exact, they decide.
    counted = np.where(np.arange(11) == 5, 3.0, 0.0)
    assert extended(thinner, edges, counted, 0.1)[5] == pytest.approx(3.0, abs=0.01)
    assert extended(thinner, edges, none, 0.1)[5] == pytest.approx(0.0, abs=0.01)


def test_the_noise_of_many_peaks_is_not_taken_for_rows_elsewhere() -> None:
    """99 cells of 1,000 rows and an empty one: what the noise of 99 sums leaves is not put into the empty one."""
    draw = np.random.default_rng(4)
    worst = 0.0
    for _ in range(300):
        noisy = np.r_[np.full(99, 1000), 0] + np.rint(draw.normal(0, 10, 100)).astype(int)
        worst = max(worst, expected_masses(noisy, np.ones(100), 10.0, 99_000)[-1])
    assert worst < 50
    full = np.full(64, 1000) + np.rint(draw.normal(0, 10, 64)).astype(int)
    assert np.ptp(expected_masses(full, np.ones(64), 10.0, 66_000)) < 100


def test_noise_alone_seldom_extends_a_range() -> None:
    """Rows in one of 512 cells: noise extends the range by more than 16 cells in at most about 4% of columns."""
    draw = np.random.default_rng(3)
    far = 0
    for _ in range(400):
        noisy = np.rint(draw.normal(0, 30, 512)).astype(int)
        noisy[255] += 10_000
        low, high = certain_range(noisy, 30.0)
        far += low < 255 - 2 * NEAR_CELLS or high > 256 + 2 * NEAR_CELLS
    assert far <= stats.binom.isf(1e-6, 400, 4 * FALSE_SPIKE)


def test_ranges_are_divided_only_where_rows_exceed_noise() -> None:
    histogram = Histogram(Grid(0, 10**6), np.array([0, 1, 1000]), np.array([0.5, 0.4, 0.1]))
    divided = divide_coarse(histogram, 32, 0.05)
    within = np.searchsorted(histogram.firsts, divided.firsts, side="right") - 1
    assert np.bincount(within).tolist() == [1, 8, 2]
    assert len(divide_coarse(histogram, 32, 0.3).firsts) == 3


def test_bins_follow_rows_and_totals() -> None:
    """One row in a hundred makes half of the total: it has several bins; zero has one of its own; empty ranges none."""
    grid = Grid(0, 10**6)
    firsts = np.r_[0, 1, np.arange(2, 102), np.arange(9_000, 11_000, 20), 500_000]
    masses = np.r_[0.02, np.full(101, 0.97 / 101), np.full(100, 0.01 / 100), 0.0]
    histogram = Histogram(grid, firsts, masses)
    bins = cut_bins(histogram, 32)
    starts = histogram.firsts[bins[:-1]]
    assert starts[:2].tolist() == [0, 1]
    assert np.count_nonzero(starts >= 9_000) > 5
    assert starts[-1] < 500_000


def _beside_empty_ranges(special: tuple[float, ...]) -> NumericCodec:
    """A real column without a mass at its special values and beside them."""
    histogram = Histogram(
        Grid(-1000.0, 1000.0, "real"), np.array([-1000.0, 1.0, 10.0, 500.0]), np.array([0, 0.5, 0.5, 0])
    )
    column = Column(name="x", kind="real", bounds=(-1000.0, 1000.0), special=special, nullable=False)
    codec = _column_codec(column, {}, {"x": histogram}, Binning())
    assert isinstance(codec, NumericCodec)
    return codec


@pytest.mark.parametrize("special", [(0.0,), (-1000.0, 0.0), (0.0, 1000.0), (-1000.0, -999.0, 999.0, 1000.0)])
def test_a_special_value_without_a_mass_shares_its_code_with_no_empty_range(special: tuple[float, ...]) -> None:
    codec = _beside_empty_ranges(special)
    codes = codec.encode(pa.chunked_array([special]))
    lower, upper = codec.bin_edges()
    assert lower[codes].tolist() == upper[codes].tolist() == list(special)
    drawn = codec.decode(np.repeat(codes, 5), generator=np.random.default_rng(0))
    assert drawn.to_pylist() == np.repeat(special, 5).tolist()
    assert not codec.is_constant


def test_learners_and_networks_see_special_values_without_a_mass() -> None:
    """Such a bin has neither a width nor a mass."""
    codec = _beside_empty_ranges((0.0, 999.0))
    scale = codec.scale((0.0, 999.0))
    assert len(scale.shared) == 2
    assert np.all(np.isfinite(bin_middles(scale)))
    domain = Domain(names=("x",), sizes=(codec.size,), num_rows=100)
    for features in FEATURES:
        layout = layout_of(features, domain, [scale], [np.full(codec.size, 1 / codec.size)])
        codes, positions = np.arange(codec.size, dtype=np.int32)[:, None], np.linspace(0, 1, codec.size)[:, None]
        encoded = layout.encode(codes, positions, jax.random.key(0))
        assert np.all(np.isfinite(encoded))
        assert encoded.shape[1] > 0


@pytest.mark.parametrize("features", FEATURES)
def test_networks_see_shared_numbers_as_categories(features: str) -> None:
    """Zeros and declared special values come back exactly, and no other number becomes one of them."""
    draw = np.random.default_rng(0)
    cost = np.where(draw.random(NUM_ROWS) < 0.6, 0.0, np.round(np.exp(draw.normal(6, 1, NUM_ROWS)), 2))
    cost[:50] = 999.0
    column = Column(name="cost", kind="real", bounds=(-10.0, 1e6), special=(999.0,), nullable=False)
    release = us.fit(
        pd.DataFrame({"cost": cost}), "independent", epsilon=10, schema=us.Schema(columns=(column,)), seed=1
    )
    (scale,) = release.codec.scales
    assert scale is not None
    assert len(scale.shared) == 2
    table = pa.table({"cost": cost})
    codes, positions = release.codec.encode(table), release.codec.positions(table)
    layout = layout_of(features, release.codec.domain, [scale], None)
    back = layout.decode(layout.encode(codes, positions, jax.random.key(0)))
    numbers = release.codec.decode(*back, key=jax.random.key(1)).column("cost").to_numpy()
    assert np.array_equal(numbers == 0, cost == 0)
    assert np.array_equal(numbers == 999, cost == 999)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("lower", 2**70), ("upper", 2**70), ("upper", -1), ("kind", "text"), ("decimals", -400), ("equal", None)],
        *[("firsts", []), ("firsts", 3), ("firsts", [0, 0, 2]), ("firsts", [0, 1, 2**70]), ("firsts", [1, 2, 3])],
        *[("masses", None), ("masses", [0.5, 0.5]), ("masses", [0.5, None, 0.5]), ("masses", [1, -1, 1])],
        *[("first_fine_bin", each) for each in (0, [], [3], [0, 2], [0, 2, 1, 3], [-1, 3], [0, 400, 3])],
        ("nullable", None),
    ],
)
def test_damaged_columns_are_refused_when_they_are_read(key: str, value: object) -> None:
    histogram = Histogram(Grid(0, 9), np.array([0, 4, 5]), np.array([0.25, 0.5, 0.25]))
    content = NumericCodec("x", "integer", histogram, np.array([0, 1, 3]), nullable=False).to_dict()
    assert NumericCodec.from_dict(content).to_dict() == content
    with pytest.raises(UNREADABLE):
        NumericCodec.from_dict({**content, key: value})


def test_a_nullable_column_is_not_said_to_have_lost_its_nulls() -> None:
    table = pa.table({"x": ["a"] * 1000 + [None] * 4000})
    release = us.fit(table, "independent", epsilon=3, schema={"columns": {"x": {"kind": "categorical"}}}, seed=0)
    assert release.codec.unlisted == ("x",)
    assert any("less than half of their rows; the others are null, or" in note.text for note in release.notes)


def test_a_column_of_two_shared_numbers_leaves_networks_finite() -> None:
    """Where all numbers are categories, the fraction of the others is small, not zero: its logarithm is needed."""
    histogram = Histogram(Grid(0.0, 1.0, "real"), np.array([0.0, 5e-324, 1.0]), np.array([0.5, 0.0, 0.5]))
    scale = NumericCodec("x", "real", histogram, np.array([0, 1, 2, 3]), False).scale()
    assert scale.shared == (0, 2)
    domain = Domain(names=("x",), sizes=(3,), num_rows=100)
    for features in FEATURES:
        layout = layout_of(features, domain, [scale], [np.array([0.5, 0.0, 0.5])])
        means = layout.estimated_means([np.array([0.5, 0.0, 0.5])])
        marks = means if features == "binned" else means[:-1]
        assert features == "binned" or np.all(marks > 0)


def test_reals_of_which_only_those_next_to_zero_are_left_are_named() -> None:
    """600 of 3,000 rows have costs that do not stand out when bounds are estimated: the column is named first."""
    draw = np.random.default_rng(0)
    cost = np.where(draw.random(300) < 0.8, 0.0, np.exp(draw.normal(6, 1, 300)))
    schema = us.Schema(columns=(Column(name="cost", kind="real", nullable=False),))
    assert us.fit(pa.table({"cost": cost}), "independent", epsilon=0.5, schema=schema, seed=0).codec.constant == (
        "cost",
    )
