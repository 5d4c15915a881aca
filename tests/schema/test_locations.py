"""Locations in a schema: regions and their files, the round trip of a schema file, bad input, and `schema check`."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.builders import raises
from tests.steward.test_check import check_as_read
from understudy.errors import SchemaError
from understudy.schema import Column, Schema
from understudy.schema.locations import Location
from understudy.schema.regions import Box, Mask, Polygons, Sites

TRIANGLE = [[[13.0, 52.3], [13.8, 52.3], [13.4, 52.7], [13.0, 52.3]]]
ZONES = {
    "type": "FeatureCollection",
    "features": [
        {"type": "Feature", "properties": {"zone": name}, "geometry": {"type": "Polygon", "coordinates": rings}}
        for name, rings in (
            ("A", TRIANGLE),
            ("B", [[[x + 1, y] for x, y in TRIANGLE[0]]]),
        )
    ],
}
FILES = {
    "city.geojson": json.dumps({"type": "Polygon", "coordinates": TRIANGLE}),
    "zones.geojson": json.dumps(ZONES),
    "sites.csv": "stop,lat,lon\nX,52.51,13.40\nY,52.52,13.41\n",
    "land.txt": "0 1 1\n1 1 0\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("lines", "region", "inside"),
    [
        ('latitude = "lat"\nlongitude = "lon"\nbox = [52.3, 13, 52.7, 13.8]', Box, (52.5, 13.4)),
        ('latitude = "lat"\nlongitude = "lon"\nregion = "city.geojson"\nnullable = false', Polygons, (52.4, 13.4)),
        ('format = "wkt"\nregion = "zones.geojson"\ndecimals = 4', Polygons, (52.4, 14.4)),
        ('sites = "sites.csv"', Sites, (52.51, 13.4)),
        ('sites = "sites.csv"\ncode = "stop"', Sites, (52.52, 13.41)),
        ('regions = "zones.geojson"\ncode = "zone"', Sites, None),
        ('box = [0, 0, 2, 3]\nmask = "land.txt"', Mask, (0.5, 0.5)),
    ],
)
def test_every_region_is_read_and_makes_the_round_trip(folder: Path, lines: str, region: type, inside: tuple | None):
    path = folder / "people.toml"
    path.write_text(f'[columns.home]\nkind = "location"\n{lines}\n\n[columns.age]\nkind = "integer"\n')
    schema = Schema.read(path)
    (location,) = schema.locations
    assert isinstance(location.region, region)
    assert inside is None or location.region.contains(*(np.array([value]) for value in inside)).all()
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema  # a release holds the region itself
    schema.write(folder / "again.toml")
    assert Schema.read(folder / "again.toml") == schema


def test_codes_are_at_the_centroids_of_their_polygons(folder: Path):
    (folder / "s.toml").write_text('[columns.home]\nkind = "location"\nregions = "zones.geojson"\ncode = "zone"\n')
    region = Schema.read(folder / "s.toml").locations[0].region
    assert isinstance(region, Sites)
    assert region.codes == ("A", "B")
    assert np.allclose(region.points, [(52.3 + 0.4 / 3, 13.4), (52.3 + 0.4 / 3, 14.4)])


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "one public region"),
        ({"box": [52.3, 13.0, 52.7, 13.8], "sites": [[1, 1]]}, "one public region"),
        ({"box": [52.7, 13.0, 52.3, 13.8]}, "south < north"),
        ({"box": [13.0, 52.3, 190.0, 52.7]}, "latitudes from -90 to 90"),
        ({"box": [1, 2, 3]}, r"\[south, west, north, east\]"),
        ({"box": [0, 0, 1, 1], "latitude": "lat"}, "both latitude and longitude"),
        ({"box": [0, 0, 1, 1], "latitude": "home", "longitude": "lon"}, "three different names"),
        ({"box": [0, 0, 1, 1], "format": "utm"}, "expected one of lat,lon, wkt, code"),
        ({"box": [0, 0, 1, 1], "longtitude": "lon"}, "did you mean 'longitude'"),
        ({"box": [0, 0, 1, 1], "mask": ["01", "0"]}, "all of one length"),
        ({"box": [0, 0, 1, 1], "mask": ["00", "00"]}, "at least one 1"),
        ({"region": []}, "no polygon"),
        ({"region": [[[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]]}, "Self-intersection"),
        ({"region": [[[[0, 0], [1, 0], [2, 0], [0, 0]]]]}, "polygon 1"),
        ({"region": [[[[52, 130], [53, 130], [53, 131], [52, 130]]]]}, "swapped"),
        ({"region": "nowhere.geojson"}, "There is no file"),
        ({"regions": "zones.geojson"}, "needs code"),
        ({"regions": "zones.geojson", "code": "district"}, "feature 1 of zones.geojson has no property 'district'"),
        ({"sites": "sites.csv", "code": "number"}, "needs columns latitude and longitude and"),
        ({"sites": [[100, 20]]}, "latitudes from -90 to 90"),
        ({"sites": [[1, 2], [3, 4]], "codes": ["a", "a"]}, "all codes and points different"),
        ({"sites": [[1, 2], [3, 4]], "codes": 5}, "codes must be a list"),
        ({"sites": [[1, 2], [3, 4]], "codes": "ab"}, "codes must be a list"),
        ({"sites": []}, "at least one point"),
    ],
)
def test_bad_regions_are_refused_in_one_line(folder: Path, keys: dict, said: str):
    from understudy.schema.locations import read_location

    with pytest.raises(SchemaError, match=r"(?i)" + said) as caught:
        read_location("home", {"kind": "location", **keys}, folder)
    assert "home" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_of_a_location_are_declared_once():
    home = Location(name="home", region=Box(0.0, 0.0, 1.0, 1.0), latitude="lat", longitude="lon")
    schema = Schema(columns=(Column(name="age", kind="integer"),), locations=(home,))
    assert schema.names == ("age", "lat", "lon")
    with raises(SchemaError, column="lat"):
        Schema(columns=(Column(name="lat", kind="real"),), locations=(home,))
    with raises(SchemaError, column="lat"):
        Schema(columns=(*home.columns, Column(name="lat", kind="real")), locations=(home,))
    with raises(SchemaError, column="home"):
        Schema(columns=(Column(name="home", kind="boolean"),), locations=(home,))
    with raises(SchemaError, column="home", key="region"):
        Schema(columns=(Column(name="home", kind="location"),))
    for key in ("unit", "target"):
        with raises(SchemaError, column="lat", key=key):
            Schema(columns=(), locations=(home,), **{key: "lat"})  # type: ignore[arg-type]  # one keyword or the other


def test_check_finds_points_outside_out_of_range_and_swapped():
    keys = {"kind": "location", "latitude": "lat", "longitude": "lon", "box": [52.3, 13.0, 52.7, 13.8]}
    schema = Schema.from_dict({"rows": 4, "columns": [{"name": "home", **keys}]})
    table = pa.table({"lat": [52.4, 99.0, None, 40.0], "lon": [13.1, 13.1, 13.1, 13.1]})
    found = {finding.topic: finding for finding in check_as_read(schema, table)}
    assert found["point"].count == 2
    assert found["outside region"].count == 1
    assert "swapped" not in found["outside region"].message
    swapped = pa.table({"lat": [13.1, 13.2, 13.3, 13.4], "lon": [52.4, 52.5, 52.6, 52.4]})
    found = {finding.topic: finding for finding in check_as_read(schema, swapped)}
    assert "look swapped" in found["outside region"].message


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ('kind = "locaton"', "found 'locaton'. Did you mean 'location'?"),
        ('kind = "point"', "found 'point'. Did you mean 'location'?"),
        ('kind = "real"', "has the key 'latitude', which is for locations. Set kind = \"location\""),
        ("", "has the key 'latitude', which is for locations"),
    ],
)
def test_a_location_under_another_kind_is_refused_for_its_kind(kind: str, said: str) -> None:
    keys = 'latitude = "lat"\nlongitude = "lon"\nbox = [0, 0, 1, 1]'
    with pytest.raises(SchemaError) as caught:
        Schema.from_toml(f"[columns.home]\n{kind}\n{keys}\n")
    assert said in str(caught.value)
