"""Locations: the curve, the numbering of a region's points, projection, and the round trip through a schema."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import scaled
from understudy.encoding import reexpress
from understudy.encoding.locations import AreaNumbering, Boundary, SiteNumbering, to_cell, to_index, unit_vectors
from understudy.schema import Schema
from understudy.schema.regions import Area, Box, Mask, Polygons, Sites, read_region

SQUARE_WITH_HOLE = [
    [[10.0, 50.0], [11.0, 50.0], [11.0, 51.0], [10.0, 51.0], [10.0, 50.0]],
    [[10.4, 50.4], [10.4, 50.6], [10.6, 50.6], [10.6, 50.4], [10.4, 50.4]],
]
AREAS: dict[str, Area] = {
    "box": Box(52.3, 13.0, 52.7, 13.8),
    "antimeridian": Box(-20.0, 175.0, -12.0, -175.0),
    "pole": Box(85.0, -180.0, 90.0, 180.0),
    "south pole": Box(-90.0, -180.0, -89.0, 180.0),
    "earth": Box(-90.0, -180.0, 90.0, 180.0),
    "hole": read_region({"region": [SQUARE_WITH_HOLE]}),  # type: ignore[dict-item]
    "islands": read_region(  # type: ignore[dict-item]
        {
            "region": [
                [[[179.0, -17.0], [180.0, -17.0], [180.0, -16.0], [179.0, -17.0]]],
                [[[-180.0, -17.0], [-179.5, -16.5], [-180.0, -16.0], [-180.0, -17.0]]],
            ]
        }
    ),
    "mask": Mask(Box(0.0, 0.0, 2.0, 3.0), ("101", "010")),
}


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_the_curve_visits_every_cell_once_and_moves_to_neighbours(levels: int):
    index = np.arange(4**levels)
    x, y = to_cell(index, levels)
    assert (to_index(x, y, levels) == index).all()
    assert (np.abs(np.diff(x)) + np.abs(np.diff(y)) == 1).all()
    if levels > 1:  # the first digits are those of the larger square
        assert (to_index(x >> 1, y >> 1, levels - 1) == index >> 2).all()


@pytest.mark.parametrize("name", AREAS)
def test_every_number_is_a_point_inside_and_every_point_has_its_cell(name: str):
    area = AREAS[name]
    numbering = AreaNumbering(area, 6)
    numbers = np.random.default_rng(0).integers(0, numbering.size, 5000)
    latitude, longitude = numbering.points(numbers)
    assert area.contains(latitude, longitude).all()
    assert (np.abs(latitude) <= 90).all()
    assert (np.abs(longitude) <= 180).all()
    assert np.array_equal(np.round(latitude, 6), latitude)
    again = numbering.numbers(latitude, longitude)
    assert (again < numbering.size).all()
    same_cell = again >> 30 == numbers >> 30
    assert same_cell.mean() > 0.98  # rounding moves a few to a neighbour; others were projected there
    moved = numbering.points(again)
    assert _degrees_apart(latitude, longitude, *moved)[same_cell].max() < 2 * 360 / 512


def test_uniform_numbers_are_uniform_on_the_sphere():
    numbering = AreaNumbering(AREAS["earth"], 6)
    latitude, _ = numbering.points(np.random.default_rng(1).integers(0, numbering.size, 40_000))
    assert abs((latitude > 30).mean() - 0.25) < 0.01  # a quarter of the sphere lies north of 30 degrees
    hole = AreaNumbering(AREAS["hole"], 6)
    y, x = hole.points(np.random.default_rng(2).integers(0, hole.size, 40_000))
    inner = (x > 10.2) & (x < 10.8) & (y > 50.2) & (y < 50.8)
    assert abs(inner.mean() - (0.36 - 0.04) / (1 - 0.04)) < 0.01


@pytest.mark.parametrize("name", ["box", "antimeridian", "pole", "hole", "islands", "mask"])
def test_projection_agrees_with_brute_force(name: str):
    """The oracle compares each point with a million points of the boundary."""
    area = AREAS[name]
    generator = np.random.default_rng(3)
    centre = area.rings[0].mean(axis=0)
    near = np.stack([centre[1] + generator.normal(0, 3, 30), centre[0] + generator.normal(0, 3, 30)])
    latitude = np.r_[np.clip(near[0], -90, 90), generator.uniform(-90, 90, 30)]
    longitude = np.r_[(near[1] + 180) % 360 - 180, generator.uniform(-180, 180, 30)]
    outside = ~area.contains(latitude, longitude)
    latitude, longitude = latitude[outside], longitude[outside]
    projected = AreaNumbering(area, 6).project(latitude, longitude)
    assert area.contains(*projected).all()
    found = _degrees_apart(latitude, longitude, *projected)
    assert np.abs(found - _brute_force(area, latitude, longitude)).max() < 2e-4


def _brute_force(area: Area, latitude: np.ndarray, longitude: np.ndarray) -> np.ndarray:
    """The least great-circle distance to the boundary, in degrees."""
    points = np.concatenate(
        [
            ring[at] + np.linspace(0, 1, 4001)[:, None] * (ring[at + 1] - ring[at])
            for ring in area.rings
            for at in range(len(ring) - 1)
        ]
    )
    vectors = unit_vectors(points[:, 1], points[:, 0])
    cosines = [(vectors @ query).max() for query in unit_vectors(latitude, longitude)]
    return np.degrees(np.arccos(np.clip(cosines, -1, 1)))


def _degrees_apart(lat_a: np.ndarray, lon_a: np.ndarray, lat_b: np.ndarray, lon_b: np.ndarray) -> np.ndarray:
    chord = np.linalg.norm(unit_vectors(lat_a, lon_a) - unit_vectors(lat_b, lon_b), axis=1)
    return np.degrees(2 * np.arcsin(np.clip(chord / 2, 0, 1)))


def test_points_inside_are_not_moved():
    numbering = AreaNumbering(AREAS["hole"], 6)
    latitude, longitude = np.array([50.1, 50.5, 50.0]), np.array([10.1, 10.2, 10.0])
    moved = numbering.project(latitude, longitude)
    assert np.array_equal(moved[0], latitude)
    assert np.array_equal(moved[1], longitude)


def test_coarse_decimals_stay_inside():
    """With two decimals most points of a triangle 0.03 degrees wide would be rounded out of it."""
    area = read_region({"region": [[[[0.003, 0.003], [0.033, 0.003], [0.003, 0.033], [0.003, 0.003]]]]})
    assert isinstance(area, Polygons)
    numbering = AreaNumbering(area, 2)
    latitude, longitude = numbering.points(np.random.default_rng(4).integers(0, numbering.size, 2000))
    assert area.contains(latitude, longitude).all()
    assert area.contains(*numbering.project(np.array([5.0, -5.0]), np.array([5.0, 1.0]))).all()


def test_sites_are_found_by_great_circle_distance():
    points = ((10.0, 179.9), (10.0, -170.0), (-45.0, 0.0))
    numbering = SiteNumbering(Sites(points))
    # Across the antimeridian, 179.9 is much nearer to -179.9 than -170 is.
    assert [tuple(p) for p in np.stack(numbering.project(np.array([10.0]), np.array([-179.9])), axis=1)] == [points[0]]
    every = numbering.points(np.arange(3))
    assert sorted(zip(*(part.tolist() for part in every), strict=True)) == sorted(points)


def test_the_nearest_point_of_an_edge_is_found_between_its_ends():
    ring = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 10.0], [0.0, 10.0], [0.0, 0.0]])
    latitude, longitude = Boundary((ring,)).nearest(np.array([-1.0]), np.array([3.3]))
    assert abs(latitude[0]) < 1e-6
    assert abs(longitude[0] - 3.3) < 1e-4


# ---------------------------------------------------------------------------------------------------- through a schema


def _schema(**keys: object) -> Schema:
    entry = {"kind": "location", "box": [52.3, 13.0, 52.7, 13.8], **keys}
    return Schema.from_dict({"columns": [{"name": "home", **entry}, {"name": "sex", "kind": "boolean"}]})


@pytest.mark.parametrize(
    ("keys", "columns"),
    [
        ({"latitude": "lat", "longitude": "lon"}, {"lat": [52.4, None, 52.5], "lon": [13.1, 13.2, None]}),
        ({"format": "lat,lon"}, {"home": ["52.400000,13.100000", None, "not a point"]}),
        ({"format": "wkt"}, {"home": ["POINT (13.100000 52.400000)", None, "POINT EMPTY"]}),
    ],
)
def test_every_way_to_write_a_point_makes_the_round_trip(keys: dict, columns: dict):
    known = reexpress(_schema(**keys))
    table = pa.table({**columns, "sex": [True, False, None]})
    expressed = known.express(table)
    assert set(expressed.column_names) == {"home", "sex"}
    assert pa.types.is_int64(expressed.column("home").type)
    restored = known.restore(expressed)
    assert restored.column_names == list(known.schema.names)
    for name, values in columns.items():
        first = restored.column(name)[0].as_py()
        assert first == values[0] or abs(first - values[0]) < 1e-6
        assert restored.column(name).to_pylist()[1:] == [None, None]  # half a point is none


def test_points_without_nulls_are_the_first_of_the_curve():
    known = reexpress(_schema(latitude="lat", longitude="lon", nullable=False))
    restored = known.restore(known.express(pa.table({"lat": [None, 99.0], "lon": [13.1, 13.1], "sex": [True, True]})))
    assert restored.column("lat").null_count == restored.column("lon").null_count == 0


@pytest.mark.parametrize("text_format", [None, "lat,lon", "wkt"])
def test_longitudes_above_180_are_read_as_negative_ones(text_format: str | None):
    """Up to 360, however a point is written; what lies beyond, on either side, is no point."""
    rule = {178.5: 178.5, 180: 180, 181.62: -178.38, 188.13: -171.87, -175: -175, 360.5: None, -181: None}
    pair = {"latitude": "lat", "longitude": "lon"} if text_format is None else {"format": text_format}
    known = reexpress(_schema(box=[-40, 160, -10, -170], **pair))
    written = {"lat,lon": "-20.42,{}", "wkt": "POINT ({} -20.42)"}
    columns = (
        {"lat": [-20.42] * len(rule), "lon": pa.array(list(rule), pa.float64())}
        if text_format is None
        else {"home": [written[text_format].format(value) for value in rule]}
    )
    table = pa.table({**columns, "sex": [True] * len(rule)})
    restored = known.restore(known.express(table))
    (place,) = known.schema.locations
    latitude, longitude, found = place.read({name: restored.column(name) for name in place.names})
    assert found.tolist() == [value is not None for value in rule.values()]
    expected = [value for value in rule.values() if value is not None]
    # A number is a part of a cell, a few metres wide; 180 and -180 are one meridian.
    assert np.abs((longitude[found] - expected + 180) % 360 - 180).max() < 1e-4
    assert np.abs(latitude[found] + 20.42).max() < 1e-4
    assert (np.abs(longitude) <= 180).all()


def test_codes_of_sites_make_the_round_trip():
    keys = {"box": None, "sites": [[52.4, 13.1], [52.5, 13.2], [52.6, 13.3]], "codes": ["a", "b", "c"]}
    known = reexpress(_schema(**keys))
    table = pa.table({"home": ["b", "a", "unknown", "c", None], "sex": [True] * 5})
    restored = known.restore(known.express(table))
    assert restored.column("home").to_pylist() == ["b", "a", None, "c", None]


IN_A_BOX = reexpress(_schema(latitude="lat", longitude="lon"))


@settings(max_examples=scaled(40))
@given(
    st.lists(
        st.tuples(*[st.one_of(st.none(), st.floats(width=64), st.sampled_from([90.0, -180.0, 360.0, 1e308]))] * 2),
        min_size=1,
        max_size=8,
    )
)
def test_no_value_makes_encoding_fail_and_every_row_is_encoded_alone(points: list):
    known = IN_A_BOX

    def numbers(rows: list) -> list:
        latitude, longitude = (pa.array([row[at] for row in rows], pa.float64()) for at in (0, 1))
        table = pa.table({"lat": latitude, "lon": longitude, "sex": pa.nulls(len(rows), pa.bool_())})
        expressed = known.express(table)
        restored = known.restore(expressed)
        inside = known.schema.locations[0].read({name: restored.column(name) for name in ("lat", "lon")})
        assert known.schema.locations[0].region.contains(*inside[:2])[inside[2]].all()
        return expressed.column("home").to_pylist()

    assert numbers(points) == [numbers([row])[0] for row in points]
