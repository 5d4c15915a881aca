"""Points of locations: whether they lie inside their public region, and how their density differs from the real one."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from understudy.encoding.reexpression.steps import in_declared_type
from understudy.evaluation.counting import align_counts, frequencies, total_variation
from understudy.evaluation.scores import Json, Result, Score, Status, no_scores
from understudy.evaluation.table import EncodedTable
from understudy.schema.locations import Location
from understudy.schema.regions import Sites

SIDES = (1, 5, 25)
"""The sides of the squares in which rows are counted, in kilometres."""
KM_PER_DEGREE = 111.195
MAP_CELLS = 40
"""The cells along the longer side of a map."""
MAX_VERTICES = 1000
"""Of the outline that a report draws."""

Points = Float[np.ndarray, "points 2"]
"""Latitudes and longitudes."""


def known_points(location: Location, encoded: EncodedTable, table: pa.Table) -> Points:
    """The points of a table, without nulls: from its encoded pair of columns, or from its text column."""
    if location.is_pair:
        values = np.stack([encoded[name] for name in location.names], axis=1)
        return values[np.isfinite(values).all(axis=1) & (np.abs(values) <= [90, 180]).all(axis=1)]
    strings = in_declared_type(table.column(location.name), location.columns[0])
    latitude, longitude, known = location.read({location.name: strings})
    return np.stack([latitude, longitude], axis=1)[known]


def location_scores(locations: Sequence[Location], real: Mapping[str, Points], fake: Mapping[str, Points]) -> Result:
    """Density errors at several distances and the fraction of points inside, averaged over the locations."""
    compared = [each for each in locations if len(real[each.name]) and len(fake[each.name])]
    if not compared:
        return no_scores("locations", "No location has points in both tables.", Status.UNDEFINED)
    details = {each.name: _compare(each, real[each.name], fake[each.name]) for each in compared}
    scores = {
        f"density_{side}km": Score(float(np.mean([found["errors"][str(side)] for found in details.values()])))
        for side in SIDES
    }
    scores["inside_region"] = Score(float(np.mean([found["inside"] for found in details.values()])))
    counts = {name: [len(points[each.name]) for each in compared] for name, points in (("real", real), ("fake", fake))}
    settings = {"sides_km": list(SIDES), "real_points": counts["real"], "synthetic_points": counts["fake"]}
    return Result(scores=scores, settings=settings, details={"locations": details})


def _compare(location: Location, real: Points, fake: Points) -> Json:
    ours, theirs = (kilometres(location, points) for points in (real, fake))
    errors = {str(side): density_error(ours, theirs, side) for side in SIDES}
    inside = float(location.region.contains(fake[:, 0], fake[:, 1]).mean())
    return {"errors": errors, "inside": inside, "map": _map(location, ours, theirs)}


def kilometres(location: Location, points: Points) -> Points:
    """Kilometres east and north of the south-western corner of the region, on a flat map that is true in its middle."""
    extent = location.region.extent
    across = KM_PER_DEGREE * np.cos(np.radians((extent.south + extent.north) / 2))
    along = extent.unwrap(points[:, 1])
    return np.stack([(along - extent.west) * across, (points[:, 0] - extent.south) * KM_PER_DEGREE], axis=1)


def density_error(real: Points, fake: Points, side: float) -> float:
    """The total variation between the fractions of points in squares of this side."""
    cells = np.floor(np.concatenate([real, fake]) / side).astype(np.int64)
    keys = np.unique(cells, axis=0, return_inverse=True)[1].ravel()
    _, *counts = align_counts(*np.split(keys, [len(real)]))
    return total_variation(*map(frequencies, counts))


def _map(location: Location, real: Points, fake: Points) -> Json:
    """What a report draws: the public outline, and the fraction of points in each cell."""
    extent = location.region.extent
    corner = kilometres(location, np.array([[extent.north, extent.east]]))[0]
    side = max(float(corner.max()), 1e-6) / MAP_CELLS
    shape = np.maximum(np.ceil(corner / side - 1e-9), 1).astype(np.int64)

    def fractions(points: Points) -> list[list[float]]:
        cells = np.floor(points / side).astype(np.int64)
        cells = cells[((cells >= 0) & (cells < shape)).all(axis=1)]
        counts = np.zeros(shape[::-1])
        np.add.at(counts, (cells[:, 1], cells[:, 0]), 1)
        return np.round(counts / max(len(points), 1), 6).tolist()

    return {
        "km": [float(part) for part in corner],
        "side": side,
        "outline": _outline(location),
        "real": fractions(real),
        "synthetic": fractions(fake),
    }


def _outline(location: Location) -> Sequence[Sequence[Sequence[float]]]:
    """The rings of an area in kilometres; a list of sites has none."""
    if isinstance(location.region, Sites):
        return []
    rings = location.region.rings
    step = max(1, -(-sum(len(ring) for ring in rings) // MAX_VERTICES))
    kept = [ring[np.unique(np.r_[0 : len(ring) : step, len(ring) - 1])] for ring in rings]
    return [np.round(kilometres(location, ring[:, ::-1]), 3).tolist() for ring in kept if len(ring) > 3]
