"""A simulated city: people with homes in settlements, over a public outline. Needs Shapely."""

import numpy as np
import pyarrow as pa

import understudy as us
from benchmarks.simulated import Drawn
from understudy.schema.locations import Location
from understudy.schema.regions import Polygons

CENTRE = (52.5, 13.4)
"""Latitude and longitude of the simulated city."""
SETTLEMENTS = 60


def city_region() -> Polygons:
    """The public outline of the simulated city: about 30 km across, with a lake."""
    angle = np.linspace(0.0, 2 * np.pi, 121)
    radius = 15 * (1 + 0.15 * np.sin(3 * angle) + 0.1 * np.cos(5 * angle))
    lake = 5.0 + 1.5 * np.cos(angle[::-1]), 4.0 + 2.5 * np.sin(angle[::-1])
    rings = [(radius * np.cos(angle), radius * np.sin(angle)), lake]
    closed = []
    for east, north in rings:
        latitude, longitude = _to_degrees(east, north)
        points = [(round(x, 6), round(y, 6)) for x, y in zip(longitude.tolist(), latitude.tolist(), strict=True)]
        closed.append((*points[:-1], points[0]))
    return Polygons((tuple(closed),))


def city(rows: int = 100_000, seed: int = 0) -> Drawn:
    """People of a simulated city: a tenth anywhere, the others in settlements that differ in size and in age.

    >>> city(rows=50).train.column_names
    ['lat', 'lon', 'age', 'leaves']
    """
    draw, region = np.random.default_rng(seed), city_region()
    middle, width = 6 * draw.standard_normal((SETTLEMENTS, 2)), draw.uniform(0.2, 1.2, SETTLEMENTS)
    weights, mean_age = draw.dirichlet(np.full(SETTLEMENTS, 0.7)), draw.uniform(20, 65, SETTLEMENTS)
    parts: list[np.ndarray] = []
    while sum(map(len, parts)) < rows:
        home = draw.choice(SETTLEMENTS, rows, p=weights)
        spread = np.where(draw.random(rows) < 0.1, 12.0, width[home])
        east, north = (middle[home] + spread[:, None] * draw.standard_normal((rows, 2))).T
        latitude, longitude = (np.round(part, 6) for part in _to_degrees(east, north))
        inside = region.contains(latitude, longitude)
        parts.append(np.stack([latitude, longitude, home], axis=1)[inside])
    points = np.concatenate(parts)[:rows]
    age = np.clip(np.round(mean_age[points[:, 2].astype(int)] + 12 * draw.standard_normal(rows)), 0, 99)
    leaves = np.where(age < 67, np.round(7.5 + 1.5 * draw.standard_normal(rows)), draw.integers(0, 24, rows)) % 24
    table = {"lat": points[:, 0], "lon": points[:, 1], "age": age.astype(int), "leaves": leaves.astype(int)}
    columns = (
        us.Column(name="age", kind="integer", bounds=(0, 99), nullable=False),
        us.Column(name="leaves", kind="integer", bounds=(0, 23), nullable=False, cyclic=True),
    )
    home_of = Location(name="home", region=region, latitude="lat", longitude="lon", nullable=False)
    schema = us.Schema(columns=(*home_of.columns, *columns), locations=(home_of,), rows=rows)
    return Drawn(pa.table(table), None, schema)


def _to_degrees(east: np.ndarray, north: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Latitudes and longitudes of points in kilometres from the centre."""
    across = 111.195 * np.cos(np.radians(CENTRE[0]))
    return CENTRE[0] + north / 111.195, CENTRE[1] + east / across
