"""Public cells over the numbers of a column: round numbers stand alone, and everything is in order."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import scaled
from understudy.schema.grid import FINEST, Grid, Histogram

DAY = 86_400 * 10**6
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    kind = draw(st.sampled_from(["integer", "real", "datetime", "date"]))
    decimals = draw(st.none() | st.integers(0, 6)) if kind == "real" else None
    numbers = FINITE if kind == "real" else st.integers(-(2**63), 2**63 - 1)
    lower, upper = sorted(draw(st.tuples(numbers, numbers)))
    finest = draw(st.sampled_from([1, 3, 256, FINEST]))
    return Grid(lower, upper, kind, decimals, finest, equal=draw(st.booleans()))


@settings(max_examples=scaled(60))
@given(grid=grids(), seed=st.integers(0, 99))
def test_cells_are_consecutive_and_hold_what_is_drawn_from_them(grid: Grid, seed: int) -> None:
    firsts = grid.firsts
    assert firsts[0] == grid.lower
    assert np.all(firsts[1:] > firsts[:-1])
    assert firsts[-1] <= grid.upper
    assert grid.num_cells <= 3 * grid.finest + 3
    histogram = Histogram(grid, firsts, np.full(len(firsts), 1 / len(firsts)))
    assert np.all(histogram.lasts >= firsts)
    cells = np.random.default_rng(seed).integers(0, len(firsts), 50)
    drawn = histogram.draw(cells, generator=np.random.default_rng(seed))
    assert np.all((drawn >= firsts[cells]) & (drawn <= histogram.lasts[cells]))
    positions = grid.positions(firsts)
    assert np.all(np.diff(positions) >= 0)
    assert 0 <= positions[0] <= positions[-1] <= 1


@settings(max_examples=scaled(60))
@given(grid=grids(), values=st.lists(FINITE, min_size=1, max_size=9))
def test_every_value_has_the_cell_of_its_nearest_number(grid: Grid, values: list[float]) -> None:
    numbers = np.asarray(values) if grid.kind == "real" else np.clip(values, -(2.0**62), 2.0**62).astype(np.int64)
    snapped = grid.snap(numbers)
    assert np.all((snapped >= grid.lower) & (snapped <= grid.upper))
    assert np.array_equal(grid.snap(snapped), snapped)
    cells = grid.cells(numbers)
    assert np.all(grid.firsts[np.maximum(cells, 0)] <= np.maximum(snapped, grid.firsts[0]))
    assert np.all(np.r_[grid.firsts, np.inf][cells + 1] > snapped)


@pytest.mark.parametrize(
    ("grid", "round_numbers"),
    [
        (Grid(0, 10**9), [0, 1, 99, 999, 1000, 5000, 100_000, 10**8]),
        (Grid(-(10**6), 10**6), [-999, -1, 0, 7, 1000]),
        (Grid(0.0, 1e6, "real"), [0.0, 0.25, 0.5, 12.5, 99.0, 1000.0, 250_000.0]),
        (Grid(0.0, 1e6, "real", 2), [0.0, 0.05, 12.99, 19.95, 1000.0]),
        (Grid(-1.0, 3.0, "real"), [-1.0, -0.5, 0.0, 0.3, 2.5]),
        (Grid(0, 10**16, "datetime"), [0, DAY, 365 * DAY, 18_000 * DAY]),
        (Grid(-20_000, 20_000, "date"), [0, 365, -7305]),
    ],
)
def test_round_numbers_have_cells_of_their_own(grid: Grid, round_numbers: list[float]) -> None:
    histogram = Histogram(grid, grid.firsts, np.zeros(grid.num_cells))
    cells = grid.cells(np.asarray(round_numbers))
    assert grid.firsts[cells].tolist() == round_numbers
    assert np.all(histogram.is_single[cells])


@pytest.mark.parametrize("parts", [1, 2, 3, 32])
def test_all_floats_are_drawn_without_overflow(parts: int) -> None:
    largest = np.finfo(float).max
    histogram = Histogram.flat(Grid(-largest, largest, "real"), num_bins=parts)
    drawn = histogram.draw(np.repeat(np.arange(parts), 100), generator=np.random.default_rng(0)).reshape(parts, -1)
    assert np.all((drawn >= histogram.firsts[:, None]) & (drawn <= histogram.lasts[:, None]))
    assert np.all(drawn.max(axis=1) / largest - drawn.min(axis=1) / largest > 1.8 / parts)


def test_cells_grow_with_the_number() -> None:
    """So that bounds a thousand times too wide leave the rows as many cells as before, up to a constant."""
    for upper in (10**6, 10**9):
        cells = Grid(0, upper).cells(np.array([10_000, 20_000]))
        assert cells[1] - cells[0] > 2000


@settings(max_examples=scaled(60))
@given(
    grid=grids(),
    masses=st.lists(st.integers(0, 9), min_size=1, max_size=9),
    parts=st.integers(1, 40),
    special=st.lists(st.floats(0, 1), max_size=5),
)
def test_ranges_are_cut_without_loss(grid: Grid, masses: list[int], parts: int, special: list[float]) -> None:
    cells = np.unique(np.linspace(0, grid.num_cells - 1, len(masses)).astype(int))
    histogram = Histogram(grid, grid.firsts[cells], np.asarray(masses[: len(cells)]) / 10)
    numbers = grid.numbers_at(np.asarray(special)).tolist()
    for cut in (histogram.divided(np.full(len(cells), parts)), histogram.separated(numbers)):
        assert np.all(cut.firsts[1:] > cut.firsts[:-1])
        assert set(histogram.firsts.tolist()) <= set(cut.firsts.tolist())
        within = np.searchsorted(histogram.firsts, cut.firsts, side="right") - 1
        assert np.bincount(within, weights=cut.masses) == pytest.approx(histogram.masses, abs=1e-9)
    alone = dict(zip(cut.firsts.tolist(), cut.is_single.tolist(), strict=True))
    assert all(alone[number] for number in grid.snap(np.asarray(numbers, dtype=histogram.firsts.dtype)).tolist())


def test_densities_join_those_of_neighbours() -> None:
    """Of three neighbouring ranges with masses 1, 4 and 1, the middle one is even, and the others rise towards it."""
    grid = Grid(0, 299_999, equal=True, finest=3)
    histogram = Histogram(grid, grid.firsts, np.array([1, 4, 1]) / 6)
    drawn = histogram.draw(np.repeat([0, 1, 2], 20_000), generator=np.random.default_rng(0)).reshape(3, -1) / 100_000
    error = 5 / math.sqrt(12 * 20_000)
    assert drawn.mean(axis=1) - np.arange(3) == pytest.approx(
        [0.5 + (2.5 - 1) / (2.5 + 1) / 6, 0.5, 0.5 - (2.5 - 1) / (2.5 + 1) / 6], abs=error
    )


@pytest.mark.parametrize("upper", [5e-324, 1e-322, 1e-310, 1e-303, 1e-300])
def test_bounds_next_to_zero_have_cells(upper: float) -> None:
    for grid in (Grid(0.0, upper, "real"), Grid(-upper, upper, "real", 15), Grid(-upper, 0.0, "real")):
        assert np.all(np.diff(grid.firsts) > 0)
        histogram = Histogram(grid, grid.firsts, np.ones(grid.num_cells)).separated([0.0])
        assert np.all(np.isfinite(histogram.lengths))
        assert 0.0 in histogram.firsts[histogram.is_single]


@pytest.mark.parametrize(("lower", "upper"), [(0.0, 0.29), (0.07, 4.35), (-4.35, -0.07)])
def test_a_bound_with_the_declared_decimals_has_a_cell_of_its_own(lower: float, upper: float) -> None:
    """100 * 0.29 is below 29, and 100 * 0.07 above 7."""
    grid = Grid(lower, upper, "real", 2)
    assert grid.num_cells == round(100 * (upper - lower)) + 1
    assert grid.firsts[-1] == upper


def test_ranges_begin_halfway_between_numbers_with_decimals() -> None:
    """So that a position that is rounded to a number lies in its bin."""
    grid = Grid(1.0, 5.0, "real", 0)
    assert grid.edge_positions(np.array([1.0, 2.0, 5.0])).tolist() == [0.0, 0.125, 0.875]


def test_a_shared_real_number_leaves_the_density_beside_it_as_it_is() -> None:
    firsts, masses = np.array([0.0, 5e-324, 1.0, 10.0, 100.0]), np.array([0.0, 0.05, 0.1, 0.8, 0.05])
    grid = Grid(0.0, 1000.0, "real")
    alone = Histogram(grid, firsts, masses).draw(np.full(2000, 2), generator=np.random.default_rng(0))
    shared = Histogram(grid, firsts, masses + 9.0 * (firsts == 0)).draw(
        np.full(2000, 2), generator=np.random.default_rng(0)
    )
    assert np.array_equal(alone, shared)
    assert np.median(alone) > 4  # more of them where the next range is dense; evenly, it would be 3.2


@pytest.mark.parametrize("decimals", range(16))
@pytest.mark.parametrize("fraction", [0.999, 0.499, 0.249])
def test_neighbours_with_decimals_are_each_others_neighbours(decimals: int, fraction: float) -> None:
    """Also of numbers with almost as many digits as a float has: else ranges overlap."""
    upper = round(2.0**52 * fraction / 10.0**decimals, decimals)
    grid = Grid(-upper, upper, "real", decimals)
    numbers = grid.snap(np.random.default_rng(0).uniform(-upper, upper, 1000))
    assert np.array_equal(grid.snap(numbers), numbers)
    assert np.array_equal(grid.before(grid.after(numbers)), numbers)
    assert np.array_equal(grid.after(grid.before(numbers)), numbers)
