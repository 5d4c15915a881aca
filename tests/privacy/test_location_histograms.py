"""What is estimated about a location: one unit moves every measured vector of counts by at most what is charged."""

import functools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from tests.examples import scaled
from understudy.encoding import fit_codec, reexpress
from understudy.privacy.accounting.events import DiscreteGaussian
from understudy.privacy.accounting.ledger import Guarantee, Ledger
from understudy.privacy.mechanisms import discovery
from understudy.privacy.mechanisms.discovery import LEVELS, Binning, plan_discovery
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.table import PrivateTable
from understudy.schema import Schema

REGIONS: dict[str, dict] = {
    "box": {"box": [-40.0, 160.0, -10.0, -170.0]},
    "sites": {"sites": [[-18.0, 178.0], [-18.1, 178.4], [-17.0, -179.5], [-16.5, 179.9]]},
}
POINTS = [
    *[(-18.0, 178.0), (-18.0, 178.0), (-18.001, 178.001), (-25.0, 185.0), (-25.0, -175.0), (-39.9, 160.1)],
    *[(0.0, 0.0), (99.0, 178.0), (None, 178.0), (-18.0, 400.0)],  # outside the region, or no point at all
]


@functools.cache  # a schema keeps the cells of its region
def location_schema(region: str, *, k: int | None, nullable: bool = False) -> Schema:
    """A location in a table of units of up to k rows; None: each row is a unit."""
    place = {"name": "place", "kind": "location", "latitude": "lat", "longitude": "lon", "nullable": nullable}
    units = {} if k is None else {"unit": "id", "max_rows_per_unit": k}
    return Schema.from_dict({"rows": 40, "columns": [{"name": "id", "kind": "id"}, place | REGIONS[region]], **units})


def table_of(units: list[list[int]]) -> pa.Table:
    """The rows of each unit, as numbers of points; its id is its number."""
    rows = [(f"u{unit}", *POINTS[at]) for unit, points in enumerate(units) for at in points]
    types = (("id", pa.string()), ("lat", pa.float64()), ("lon", pa.float64()))
    return pa.table({name: pa.array([row[at] for row in rows], kind) for at, (name, kind) in enumerate(types)})


class SameAnswers(SeededNoise):
    """Noise so large that no row changes which cells are split: two tables are compared on the same noisy answers."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.generator, self.vectors = np.random.default_rng(seed), 0

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        self.vectors += shape[0]
        return np.round(1e9 * (1 + self.generator.standard_normal(shape))).astype(np.int64)


def measured(table: pa.Table, schema: Schema, bins: str) -> tuple[list[tuple], DiscreteGaussian, int]:
    """The exact counts before noise is added, with their cells; the charged event; the vectors that were drawn."""
    noise, binning, found, counts_of = SameAnswers(0), Binning(bins=bins), [], discovery._counts_of

    def recording(exact_cells: np.ndarray, width: int, wanted: np.ndarray) -> np.ndarray:
        counts = counts_of(exact_cells, width, wanted)
        found.append((width, wanted, counts))
        return counts

    book = Ledger(Guarantee(1.0, 1e-6), noise=noise, max_rows_per_unit=schema.max_rows_per_unit)
    plan = plan_discovery(reexpress(schema).modelled, book.remaining, binning)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discovery, "_counts_of", recording)
        fit_codec(PrivateTable(table), schema, plan, book, binning)
    (query,) = book.queries
    assert query.columns == ("place",)
    assert isinstance(query.event, DiscreteGaussian)
    return found, query.event, noise.vectors


def moves(units: list[list[int]], gone: int, schema: Schema, bins: str = "tree") -> list[float]:
    """How far the removal of one unit moves the counts of each level, in the norm of the charged event."""
    rest = [points if at != gone else [] for at, points in enumerate(units)]
    (whole, event, vectors), (without, *_) = (measured(table_of(each), schema, bins) for each in (units, rest))
    assert vectors <= event.count
    assert event.sensitivity == schema.max_rows_per_unit
    norms = []
    for (width, cells, exact), (same_width, same_cells, fewer) in zip(whole, without, strict=True):
        assert width == same_width
        assert np.array_equal(cells, same_cells)
        norms.append(float(np.linalg.norm(exact - fewer)))
    assert max(norms) <= event.sensitivity
    return norms


@pytest.mark.parametrize(("region", "bins"), [("box", "tree"), ("box", "equal"), ("sites", "tree")])
@settings(max_examples=scaled(8))
@given(
    units=st.lists(st.lists(st.integers(0, len(POINTS) - 1), min_size=1, max_size=6), min_size=1, max_size=5),
    gone=st.integers(0, 4),
    k=st.integers(1, 3),
    nullable=st.booleans(),
)
def test_a_unit_moves_each_level_by_at_most_the_charged_sensitivity(
    region: str, bins: str, units: list[list[int]], gone: int, k: int, nullable: bool
) -> None:
    """Also of units with more rows than declared, and of points outside the region or out of range."""
    moves(units, gone % len(units), location_schema(region, k=k, nullable=nullable), bins)


@pytest.mark.parametrize("region", REGIONS)
def test_rows_of_one_unit_at_one_point_move_the_first_level_by_all_of_it(region: str) -> None:
    """So a smaller sensitivity would be too small; every point counts, wherever it was before projection."""
    schema = location_schema(region, k=3)
    assert moves([[0] * 5, [3, 5], [6, 7, 8]], 0, schema)[0] == 3
    (whole, *_) = measured(table_of([[0] * 5, [3, 5], [6, 7, 8]]), schema, "tree")
    assert whole[0][2].sum() == 3 + 2 + 3
    assert moves([[0], [0], [5]], 2, location_schema(region, k=None))[0] == 1


@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize(("region", "levels"), [("box", LEVELS), ("sites", 1)])
def test_the_plan_of_a_location_is_what_is_charged(region: str, levels: int, k: int | None) -> None:
    schema, guarantee = location_schema(region, k=k, nullable=True), Guarantee(1.0, 1e-6)
    planned = us.plan(schema, "independent", guarantee)
    histograms = planned["histograms"]
    assert histograms.columns == ("place",)
    assert isinstance(histograms.event, DiscreteGaussian)
    assert (histograms.event.count, histograms.event.sensitivity) == (levels, k or 1)
    table = table_of([[0, 1, 2, 3], [4, 5], [6, 7, 8], [9]])
    release = us.fit(table, "independent", guarantee=guarantee, schema=schema, seed=0)
    assert release.statement.queries == planned.queries
