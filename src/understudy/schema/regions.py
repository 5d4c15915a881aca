"""Public regions: where the points of a location may lie. A box, polygons, a grid mask, or a list of sites.

Longitudes of a region are unwrapped: they increase from its western end, beyond 180 if it crosses the antimeridian.
Its edges are straight lines of longitude and latitude, as in GeoJSON.
"""

import csv
import dataclasses
import functools
import importlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from jaxtyping import Bool, Float, Int

from understudy._version import install_advice
from understudy.errors import SchemaError
from understudy.rules.keys import read_text
from understudy.rules.values import format_list, format_value

if TYPE_CHECKING:
    import shapely

Degrees: TypeAlias = Float[np.ndarray, " points"]
Point: TypeAlias = tuple[float, float]
Ring: TypeAlias = tuple[Point, ...]

MAX_SITES = 2**18
"""The most sites of a list: as many as an area has cells."""


@dataclasses.dataclass(frozen=True)
class Extent:
    """The smallest box around a region, in degrees; `east` may exceed 180."""

    south: float
    west: float
    north: float
    east: float

    def unwrap(self, longitudes: Degrees) -> Degrees:
        """Longitudes that increase from the western end; those inside the extent are unchanged."""
        inside = (longitudes >= self.west) & (longitudes <= self.east)
        return np.where(inside, longitudes, self.west + np.mod(longitudes - self.west, 360.0))

    @property
    def longitude_bounds(self) -> tuple[float, float]:
        """The least and the greatest longitude from -180 to 180."""
        return (self.west, self.east) if self.east <= 180 else (-180.0, 180.0)


@dataclasses.dataclass(frozen=True)
class Box:
    """Between two latitudes and two longitudes; with west > east it crosses the antimeridian."""

    south: float
    west: float
    north: float
    east: float

    def __post_init__(self) -> None:
        for value, limit in ((self.south, 90), (self.west, 180), (self.north, 90), (self.east, 180)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= limit:
                raise SchemaError(
                    "expected [south, west, north, east], latitudes from -90 to 90 and longitudes from -180 to 180; "
                    f"found {format_value([self.south, self.west, self.north, self.east])}."
                )
        if not self.south < self.north or self.west == self.east:
            raise SchemaError(
                "expected [south, west, north, east] with south < north, and west different from east; found "
                f"{format_value([self.south, self.west, self.north, self.east])}. West may exceed east where the box "
                "crosses the antimeridian."
            )

    @property
    def extent(self) -> Extent:
        """The smallest box around it."""
        east = self.east if self.west < self.east else self.east + 360
        return Extent(float(self.south), float(self.west), float(self.north), float(east))

    @property
    def rings(self) -> tuple[np.ndarray, ...]:
        """Its boundary: closed rings of longitude and latitude."""
        e = self.extent
        corners = [(e.west, e.south), (e.east, e.south), (e.east, e.north), (e.west, e.north), (e.west, e.south)]
        return (np.array(corners),)

    def contains(self, latitudes: Degrees, longitudes: Degrees) -> Bool[np.ndarray, " points"]:
        """Which points lie inside or on the boundary."""
        along, e = self.extent.unwrap(longitudes), self.extent
        return (latitudes >= e.south) & (latitudes <= e.north) & (along <= e.east)

    def overlap(self, boxes: Float[np.ndarray, "boxes 4"]) -> Int[np.ndarray, " boxes"]:
        """For boxes (west, south, east, north): 0 outside, 1 partly inside, 2 wholly inside."""
        e, (west, south, east, north) = self.extent, boxes.T
        slack = 1e-9 * (boxes[:, 2:] - boxes[:, :2])  # a cell that only touches the box is outside
        x, y = slack.T
        touches = (west + x < e.east) & (east - x > e.west) & (south + y < e.north) & (north - y > e.south)
        inside = (west >= e.west) & (east <= e.east) & (south >= e.south) & (north <= e.north)
        return np.where(touches & inside, 2, touches.astype(np.int64))

    @property
    def summary(self) -> str:
        """What it is, in a few words."""
        return f"the box {self.south} to {self.north} north, {self.west} to {self.east} east"

    def to_dict(self) -> dict[str, object]:
        return {"box": [self.south, self.west, self.north, self.east]}


@dataclasses.dataclass(frozen=True)
class Polygons:
    """Polygons in the coordinates of GeoJSON: rings of (longitude, latitude), the outer one first, then holes.

    Needs Shapely. A region that crosses the antimeridian is cut there, as RFC 7946 asks.
    """

    polygons: tuple[tuple[Ring, ...], ...]

    def __post_init__(self) -> None:
        shapely = _shapely()
        if not self.polygons:
            raise SchemaError("there is no polygon in it. Give at least one.")
        for number, rings in enumerate(self.polygons, start=1):
            for ring in rings:
                if len(ring) < 4 or ring[0] != ring[-1]:
                    raise SchemaError(
                        f"polygon {number}: expected rings of at least four points that end where they start."
                    )
                if any(abs(x) > 180 or abs(y) > 90 for x, y in ring):
                    raise SchemaError(
                        f"polygon {number}: expected points [longitude, latitude] in degrees, with longitudes from -180"
                        " to 180 and latitudes from -90 to 90. Were they swapped, or are they in metres?"
                    )
            polygon = shapely.Polygon(rings[0], rings[1:])
            if not polygon.is_valid:
                raise SchemaError(
                    f"polygon {number} is not valid: {shapely.is_valid_reason(polygon)}. Rings must not cross "
                    "themselves or each other."
                )
            if not polygon.area > 0:
                raise SchemaError(f"polygon {number} is empty. Give its corners.")

    @functools.cached_property
    def extent(self) -> Extent:
        west, south, east, north = self._shape.bounds
        return Extent(south, west, north, east)

    @functools.cached_property
    def _shape(self) -> "shapely.Geometry":
        """The union of the polygons, with unwrapped longitudes."""
        shapely = _shapely()
        west = _western_end([(min(x for x, _ in rings[0]), max(x for x, _ in rings[0])) for rings in self.polygons])
        parts = []
        for rings in self.polygons:
            shift = 360.0 if min(x for x, _ in rings[0]) < west else 0.0
            outer, *holes = [[(x + shift, y) for x, y in ring] for ring in rings]
            parts.append(shapely.Polygon(outer, holes))
        union = shapely.union_all(parts)
        shapely.prepare(union)
        return union

    @functools.cached_property
    def rings(self) -> tuple[np.ndarray, ...]:
        shapely = _shapely()
        lines = shapely.get_parts(self._shape.boundary)
        return tuple(shapely.get_coordinates(line) for line in lines)

    def contains(self, latitudes: Degrees, longitudes: Degrees) -> Bool[np.ndarray, " points"]:
        inside_any = _shapely().intersects_xy(self._shape, self.extent.unwrap(longitudes), latitudes)
        return np.asarray(inside_any, dtype=bool).reshape(np.shape(latitudes))

    def overlap(self, boxes: Float[np.ndarray, "boxes 4"]) -> Int[np.ndarray, " boxes"]:
        shapely = _shapely()
        slack = 1e-9 * np.tile(boxes[:, 2:] - boxes[:, :2], 2) * [1, 1, -1, -1]
        touches = shapely.intersects(self._shape, shapely.box(*(boxes + slack).T))
        inside = shapely.covers(self._shape, shapely.box(*boxes.T))
        return np.where(touches & inside, 2, touches.astype(np.int64))

    @property
    def summary(self) -> str:
        """What it is, in a few words."""
        return "1 polygon" if len(self.polygons) == 1 else f"{len(self.polygons):,} polygons"

    def to_dict(self) -> dict[str, object]:
        return {"region": [[[list(point) for point in ring] for ring in rings] for rings in self.polygons]}


@dataclasses.dataclass(frozen=True)
class Mask:
    """The cells of a box that are marked: lines of 0 and 1, the northernmost line first, the westernmost cell first."""

    box: Box
    lines: tuple[str, ...]

    def __post_init__(self) -> None:
        widths = {len(line) for line in self.lines}
        if len(widths) != 1 or not set("".join(self.lines)) <= {"0", "1"} or "1" not in "".join(self.lines):
            raise SchemaError("expected lines of 0 and 1, all of one length, with at least one 1.")

    @property
    def extent(self) -> Extent:
        return self.box.extent

    @functools.cached_property
    def _marked(self) -> Bool[np.ndarray, "rows columns"]:
        """From south to north."""
        return np.array([[cell == "1" for cell in line] for line in reversed(self.lines)])

    def _edges(self) -> tuple[np.ndarray, np.ndarray]:
        rows, columns = self._marked.shape
        e = self.extent
        return np.linspace(e.west, e.east, columns + 1), np.linspace(e.south, e.north, rows + 1)

    @functools.cached_property
    def rings(self) -> tuple[np.ndarray, ...]:
        x, y = self._edges()
        padded = np.pad(self._marked, 1)
        surrounded = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
        rings = []
        for row, column in zip(*np.nonzero(self._marked & ~surrounded), strict=True):
            west, east, south, north = x[column], x[column + 1], y[row], y[row + 1]
            rings.append(np.array([(west, south), (east, south), (east, north), (west, north), (west, south)]))
        return tuple(rings)

    def contains(self, latitudes: Degrees, longitudes: Degrees) -> Bool[np.ndarray, " points"]:
        along, (x, y) = self.extent.unwrap(longitudes), self._edges()
        inside_any = np.zeros(np.shape(latitudes), dtype=bool)
        for side_x in ("left", "right"):  # a point on an edge belongs to the cells on both sides
            for side_y in ("left", "right"):
                column = np.searchsorted(x, along, side=side_x) - 1
                row = np.searchsorted(y, latitudes, side=side_y) - 1
                inside = (column >= 0) & (column < len(x) - 1) & (row >= 0) & (row < len(y) - 1)
                inside_any |= inside & self._marked[np.where(inside, row, 0), np.where(inside, column, 0)]
        return inside_any

    def overlap(self, boxes: Float[np.ndarray, "boxes 4"]) -> Int[np.ndarray, " boxes"]:
        (x, y), sums = self._edges(), np.pad(np.cumsum(np.cumsum(self._marked, axis=0), axis=1), ((1, 0), (1, 0)))
        slack = 1e-9 * np.tile(boxes[:, 2:] - boxes[:, :2], 2) * [1, 1, -1, -1]
        west, south, east, north = (boxes + slack).T
        first, last = np.searchsorted(x, west, side="right") - 1, np.searchsorted(x, east, side="left")
        bottom, top = np.searchsorted(y, south, side="right") - 1, np.searchsorted(y, north, side="left")
        cut = (np.clip(first, 0, len(x) - 1), np.clip(last, 0, len(x) - 1))
        cut_y = (np.clip(bottom, 0, len(y) - 1), np.clip(top, 0, len(y) - 1))
        marked = sums[cut_y[1], cut[1]] - sums[cut_y[0], cut[1]] - sums[cut_y[1], cut[0]] + sums[cut_y[0], cut[0]]
        is_full = marked == (last - first) * (top - bottom)
        return np.where(marked > 0, 1 + is_full, 0)

    @property
    def summary(self) -> str:
        """What it is, in a few words."""
        return f"{int(self._marked.sum()):,} marked cells of {self.box.summary}"

    def to_dict(self) -> dict[str, object]:
        return {**self.box.to_dict(), "mask": list(self.lines)}


@dataclasses.dataclass(frozen=True)
class Sites:
    """A list of points (latitude, longitude): a location is one of them. With `codes`, tables hold a site's code."""

    points: tuple[Point, ...]
    codes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not self.points:
            raise SchemaError("expected at least one point, found none.")
        if len(self.points) > MAX_SITES:
            raise SchemaError(f"expected at most {MAX_SITES:,} points, found {len(self.points):,}.")
        if any(not (abs(latitude) <= 90 and abs(longitude) <= 180) for latitude, longitude in self.points):
            raise SchemaError(
                "expected points [latitude, longitude] in degrees, with latitudes from -90 to 90 and longitudes from "
                "-180 to 180. Were they swapped?"
            )
        if self.codes is not None and not len(set(self.codes)) == len(set(self.points)) == len(self.points):
            raise SchemaError("expected one code for each point, and all codes and points different.")

    @functools.cached_property
    def extent(self) -> Extent:
        latitudes, longitudes = np.array(self.points).T
        west = _western_end([(x, x) for x in longitudes.tolist()])
        along = np.where(longitudes < west, longitudes + 360, longitudes)
        return Extent(float(latitudes.min()), float(west), float(latitudes.max()), float(along.max()))

    def contains(self, latitudes: Degrees, longitudes: Degrees) -> Bool[np.ndarray, " points"]:
        return np.isin(_complex(latitudes, longitudes), _complex(*np.array(self.points).T))

    @property
    def summary(self) -> str:
        """What it is, in a few words."""
        return "1 site" if len(self.points) == 1 else f"{len(self.points):,} sites"

    def to_dict(self) -> dict[str, object]:
        codes = {} if self.codes is None else {"codes": list(self.codes)}
        return {"sites": [list(point) for point in self.points], **codes}


Area: TypeAlias = Box | Polygons | Mask
"""A region with an inside and an outside."""

Region: TypeAlias = Area | Sites

KEYS = ("box", "region", "mask", "sites", "codes", "regions", "code")
"""The keys of a schema that declare a region."""


def _complex(latitudes: np.ndarray, longitudes: np.ndarray) -> np.ndarray:
    """Points as numbers that can be sorted and compared; -180 and 180 are one longitude."""
    return np.where(longitudes == 180, -180.0, longitudes) + 1j * np.asarray(latitudes)


def _western_end(intervals: Sequence[tuple[float, float]]) -> float:
    """The longitude east of the widest gap between intervals on the circle; the least one if that is the widest."""
    ordered = sorted(intervals)
    reach, start, widest = ordered[0][1], ordered[0][0], 0.0
    for west, east in ordered[1:]:
        if west - reach > widest:
            start, widest = west, west - reach
        reach = max(reach, east)
    around = ordered[0][0] + 360 - reach
    return start if widest > around else ordered[0][0]


def _shapely() -> ModuleType:
    try:
        return importlib.import_module("shapely")
    except ImportError:
        raise SchemaError(f"Polygons need Shapely: {install_advice('geo')}.") from None


# -------------------------------------------------------------------------------------------------------------- reading


def read_region(entry: Mapping[str, object], folder: Path | None = None) -> Region:
    """The region of a location's keys. Paths are relative to `folder`; the files must be public."""
    given = [key for key in ("box", "region", "mask", "sites", "regions") if entry.get(key) is not None]
    if given not in (["box"], ["region"], ["box", "mask"], ["sites"], ["regions"]):
        raise SchemaError(
            "region: expected one public region: box = [south, west, north, east], region = a GeoJSON file, box and "
            f"mask, sites = a CSV file, or regions = a file with codes; found {', '.join(given) or 'none'}.",
            key="region",
        )
    key = given[-1]
    try:
        match key:
            case "box":
                return _read_box(entry["box"])
            case "mask":
                mask = entry["mask"]
                lines = mask if isinstance(mask, list | tuple) else _text_of(mask, folder).split("\n")
                cells = (str(line).replace(",", "").replace(" ", "").strip() for line in lines)
                return Mask(_read_box(entry["box"]), tuple(filter(None, cells)))
            case "region":
                polygons = entry["region"]
                if isinstance(polygons, str):
                    polygons = [polygon for _, listed in _features(polygons, folder) for polygon in listed]
                return Polygons(_as_polygons(polygons))
            case "sites":
                return _read_sites(entry["sites"], entry.get("code"), entry.get("codes"), folder)
            case _:
                return _read_zones(entry["regions"], entry.get("code"), folder)
    except SchemaError as error:
        raise SchemaError(f"{key}: {error}", key=key) from None


def _read_box(given: object) -> Box:
    if not isinstance(given, list | tuple) or len(given) != 4:
        raise SchemaError(f"expected [south, west, north, east], found {format_value(given)}.")
    return Box(*given)


def _as_polygons(given: object) -> tuple[tuple[Ring, ...], ...]:
    """Nested lists of numbers, as in a GeoJSON MultiPolygon."""
    try:
        return tuple(
            tuple(tuple((float(point[0]), float(point[1])) for point in ring) for ring in rings)
            for rings in given  # type: ignore[attr-defined]  # what cannot be iterated is refused below
        )
    except (TypeError, ValueError, IndexError):
        raise SchemaError("expected polygons as lists of rings of [longitude, latitude], as in GeoJSON.") from None


def _text_of(path: object, folder: Path | None) -> str:
    if not isinstance(path, str):
        raise SchemaError(f"expected the path of a file, found {format_value(path)}.")
    place = Path(path) if folder is None else folder / path
    return read_text(place, "Paths of regions are relative to the folder of the schema.")


def _features(path: object, folder: Path | None) -> list[tuple[Mapping[str, object], list[object]]]:
    """The properties and polygons of each feature of a GeoJSON file."""
    try:
        content = json.loads(_text_of(path, folder))
    except json.JSONDecodeError as error:
        raise SchemaError(f"{path} is not GeoJSON: {error}.") from None
    except RecursionError:
        raise SchemaError(f"{path} is not GeoJSON: it is nested too deeply.") from None
    if not isinstance(content, dict):
        raise SchemaError(f"{path} is not GeoJSON: expected an object.")
    features = content.get("features", [content]) if content.get("type") == "FeatureCollection" else [content]
    found = []
    for feature in features:
        is_feature = isinstance(feature, dict) and feature.get("type") == "Feature"
        geometry = feature.get("geometry") if is_feature else feature
        geometry = geometry if isinstance(geometry, dict) else {}
        kind = geometry.get("type")
        if kind not in ("Polygon", "MultiPolygon"):
            raise SchemaError(f"{path}: expected Polygon and MultiPolygon geometries, found {format_value(kind)}.")
        coordinates = geometry.get("coordinates") or []
        properties = (feature.get("properties") or {}) if is_feature else {}
        found.append((properties, [coordinates] if kind == "Polygon" else list(coordinates)))
    return found


def _read_sites(given: object, code: object, codes: object, folder: Path | None) -> Sites:
    if isinstance(given, str):
        listed = _read_points(given, code, folder)
        return Sites(tuple(point for point, _ in listed), tuple(text for _, text in listed) if code else None)
    try:
        points = tuple((float(latitude), float(longitude)) for latitude, longitude in cast(Iterable[Point], given))
    except (TypeError, ValueError):
        raise SchemaError(
            f"expected the path of a CSV file, or a list of [latitude, longitude]; found {format_value(given)}."
        ) from None
    if codes is not None and not isinstance(codes, list | tuple):
        raise SchemaError(f"codes must be a list with one code for each point, found {format_value(codes)}.")
    return Sites(points, None if codes is None else tuple(map(str, codes)))


def _read_points(path: str, code: object, folder: Path | None) -> list[tuple[Point, str]]:
    """The points of a CSV file with columns latitude and longitude (or lat, lon, lng), and their codes."""
    lines = csv.reader(_text_of(path, folder).splitlines())
    header = [name.strip() for name in next(lines, [])]
    lower = [name.lower() for name in header]
    wanted = [("latitude", "lat"), ("longitude", "lon", "lng", "long")]
    at = [next((lower.index(name) for name in names if name in lower), -1) for names in wanted]
    code_at = header.index(str(code)) if code is not None and code in header else -1
    if -1 in at or (code is not None and code_at < 0):
        extra = "" if code is None else f" and {format_value(code)}"
        raise SchemaError(f"{path} needs columns latitude and longitude{extra}; its header has {format_list(header)}.")
    points: dict[tuple[Point, str], None] = {}
    for number, row in enumerate(lines, start=2):
        if not any(cell.strip() for cell in row):
            continue
        try:
            latitude, longitude = (float(row[index]) for index in at)
            if not (math.isfinite(latitude) and math.isfinite(longitude)):
                raise ValueError
            points[(latitude, longitude), row[code_at].strip() if code_at >= 0 else ""] = None
        except (ValueError, IndexError):
            raise SchemaError(f"Line {number} of {path} has no latitude and longitude that are numbers.") from None
    return list(points)


def _read_zones(path: object, code: object, folder: Path | None) -> Sites:
    """Codes and the centroids of their polygons, from GeoJSON, or their points, from CSV."""
    if not isinstance(code, str) or not code:
        raise SchemaError('needs code, the property or column that holds the codes, such as code = "zone".')
    if isinstance(path, str) and path.lower().endswith(".csv"):
        return _read_sites(path, code, None, folder)
    shapely = _shapely()
    points, codes = [], []
    for number, (properties, polygons) in enumerate(_features(path, folder), start=1):
        value = properties.get(code)
        if value is None or isinstance(value, dict | list):
            raise SchemaError(f"feature {number} of {path} has no property {code!r}. Add it, or correct code.")
        shape = Polygons(_as_polygons(polygons))._shape
        centre = shapely.centroid(shape)
        points.append((float(centre.y), float((centre.x + 180) % 360 - 180)))
        codes.append(str(value))
    return Sites(tuple(points), tuple(codes))
