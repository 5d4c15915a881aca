"""Density errors and the fraction inside, against counts by hand; and the map of the report."""

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from understudy.evaluation.locations import KM_PER_DEGREE, density_error
from understudy.report import page
from understudy.schema import Schema

SCHEMA = Schema.from_dict(
    {
        "columns": [
            {"name": "home", "kind": "location", "latitude": "lat", "longitude": "lon", "box": [0, 0, 0.5, 0.5]},
            {"name": "sex", "kind": "categorical", "categories": ["f", "m"], "closed": True},
        ]
    }
)


def _table(latitude: np.ndarray, longitude: np.ndarray) -> pa.Table:
    return pa.table({"lat": latitude, "lon": longitude, "sex": ["f", "m"] * (len(latitude) // 2)})


def test_density_error_agrees_with_a_count_of_each_square():
    generator = np.random.default_rng(0)
    real, fake = generator.uniform(-3, 3, (200, 2)), generator.normal(0, 1, (300, 2))
    squares = {tuple(cell) for cell in np.floor(np.concatenate([real, fake]) / 2).tolist()}
    share = [{cell: np.mean((np.floor(points / 2) == cell).all(axis=1)) for cell in squares} for points in (real, fake)]
    expected = sum(abs(share[0][cell] - share[1][cell]) for cell in squares) / 2
    assert density_error(real, fake, 2.0) == pytest.approx(expected)
    assert density_error(real, real, 1.0) == 0.0


def test_a_shift_of_three_kilometres_shows_at_one_but_not_at_25():
    generator = np.random.default_rng(1)
    y, x = 0.01 + 0.002 * generator.random((2, 400))
    real, moved = _table(y, x), _table(y + 3 / KM_PER_DEGREE, x)
    scores = us.evaluate(real, moved, schema=SCHEMA, holdout=real, metrics=["locations"])
    assert scores["density_1km"] == 1.0
    assert scores["density_25km"] == 0.0
    assert scores["inside_region"] == 1.0
    assert scores.reference("density_1km") == 0.0
    outside = us.evaluate(real, _table(y, x - 1), schema=SCHEMA, holdout=real, metrics=["inside_region"])
    assert outside["inside_region"] == 0.0


def test_longitudes_beyond_180_are_those_of_a_synthetic_table():
    """A real table counts on across the antimeridian, a synthetic one has negative longitudes: the same points."""
    place = {"name": "place", "kind": "location", "latitude": "lat", "longitude": "lon", "box": [-20, 175, -10, -175]}
    schema = Schema.from_dict({"columns": [place, {"name": "sex", "kind": "boolean"}]})
    y, x = np.random.default_rng(4).uniform([[-20], [175]], [[-10], [185]], (2, 200))
    flags = {"sex": [True, False] * 100}
    real, fake = (pa.table({"lat": y, "lon": each, **flags}) for each in (x, np.where(x > 180, x - 360, x)))
    scores = us.evaluate(real, fake, schema=schema, holdout=real, metrics=["locations", "tv1"], effort="quick")
    assert scores["density_25km"] == scores["tv1"] == 0.0
    assert scores["inside_region"] == 1.0


def test_the_report_has_a_map_of_every_table():
    y, x = 0.5 * np.random.default_rng(2).random((2, 200))
    table = _table(y, x)
    card = us.evaluate(table, table, schema=SCHEMA, holdout=table, metrics=["tv1", "locations"], effort="quick")
    html = page.render(card)
    assert 'id="maps"' in html
    assert html.count("Map of the density of") == 2
    without = us.evaluate(table, table, holdout=table, metrics=["tv1"], effort="quick")
    assert 'id="maps"' not in page.render(without)


@pytest.mark.parametrize("text_format", ["lat,lon", "wkt"])
def test_text_columns_are_compared_too(text_format: str):
    written = {"lat,lon": "{y:.4f},{x:.4f}", "wkt": "POINT ({x:.4f} {y:.4f})"}[text_format]
    schema = Schema.from_dict(
        {"columns": [{"name": "home", "kind": "location", "format": text_format, "box": [0, 0, 1, 1]},
                     {"name": "sex", "kind": "boolean"}]}
    )  # fmt: skip
    points = np.random.default_rng(3).random((50, 2))
    table = pa.table({"home": [written.format(y=y, x=x) for y, x in points], "sex": [True, False] * 25})
    scores = us.evaluate(table, table, schema=schema, holdout=table, metrics=["locations"])
    assert scores["inside_region"] == 1.0
    assert scores["density_1km"] == 0.0
