"""Locations modelled as one number: the number of a point along a Hilbert curve through its public region.

The curve runs through cells of equal area, of which only those that overlap the region are numbered, so that no noise
falls outside it. A histogram over the numbers is an adaptive histogram of the map: its bins are unions of squares.
Everything here is a public function of each row and of the declared region.
"""

import dataclasses
import functools
import math

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import cKDTree

from understudy.encoding.arrow import from_numbers
from understudy.encoding.reexpression.steps import Arrays, Rows, Step, integer_column, read_integers
from understudy.errors import SchemaError
from understudy.schema import Column, Schema
from understudy.schema.locations import Location
from understudy.schema.regions import Area, Extent, Sites

LEVELS = 9
"""The region is cut into at most 512 x 512 cells."""
LEVELS_WITHIN = 15
"""Each cell is cut into 32,768 x 32,768 parts: under 3 m for the whole earth."""
TRIES = 64
"""Tries to draw a point inside the region from a cell on its boundary, before the point is projected."""
BOUNDARY_POINTS = 50_000
"""About as many points of the boundary are compared when a point outside is projected."""
NEAREST = 4
CHUNK = 2**14
"""Points that are converted at once: their arrays stay in the cache."""

Degrees = Float[np.ndarray, " points"]
Numbers = Int[np.ndarray, " points"]
Vectors = Float[np.ndarray, "points 3"]


@dataclasses.dataclass(frozen=True)
class Located(Step):
    """The step of one location: its columns are modelled as one integer, the number of a point.

    A point outside the region is moved to the nearest point inside it, by great-circle distance. A row without a point
    is null or, if the location has no nulls, the first point of the curve.
    """

    location: Location

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.location.names

    @functools.cached_property
    def numbering(self) -> "AreaNumbering | SiteNumbering":
        """The numbers of the region's points."""
        region, decimals = self.location.region, self.location.decimals
        assert decimals is not None
        if isinstance(region, Sites):
            return SiteNumbering(region)
        return AreaNumbering(region, decimals, self.location.name)

    @property
    def modelled(self) -> tuple[Column, ...]:
        bounds = (0, max(self.numbering.size - 1, 1))
        return (integer_column(self.location.columns[0], bounds, name=self.location.name),)

    def clean(self, rows: Rows) -> Arrays:
        latitude, longitude, known = self.location.read(rows)
        latitude, longitude = self.numbering.project(latitude, longitude)
        if not self.location.nullable:
            first = self.numbering.points(np.zeros(1, dtype=np.int64))
            latitude, longitude = (np.where(known, a, b) for a, b in zip((latitude, longitude), first, strict=True))
            known = np.ones_like(known)
        return self.location.write((latitude, longitude, known))

    def express(self, rows: Rows) -> Arrays:
        latitude, longitude, known = self.location.read(rows)
        numbers = np.where(known, self.numbering.numbers(latitude, longitude), 0)
        return {self.location.name: from_numbers(numbers, ~known & self.location.nullable, "integer")}

    def restore(self, rows: Rows) -> Arrays:
        numbers, known = read_integers(rows[self.location.name])
        latitude, longitude = self.numbering.points(np.clip(numbers, 0, self.numbering.size - 1))
        return self.location.write((latitude, longitude, known | (not self.location.nullable)))


def location_steps(schema: Schema) -> tuple[Located, ...]:
    """One step for each location that is modelled."""
    return tuple(Located(location) for location in schema.locations if not location.drop)


# ---------------------------------------------------------------------------------------------------------------- sites


@dataclasses.dataclass(frozen=True)
class SiteNumbering:
    """Sites in the order of the curve."""

    sites: Sites

    @property
    def size(self) -> int:
        return len(self._ordered)

    @functools.cached_property
    def _ordered(self) -> Float[np.ndarray, "sites 2"]:
        points = np.array(list(dict.fromkeys(self.sites.points)))
        frame = Frame.around(self.sites.extent)
        x, y = frame.parts(points[:, 0], self.sites.extent.unwrap(points[:, 1]))
        return points[np.argsort(to_index(x, y, LEVELS + LEVELS_WITHIN), kind="stable")]

    @functools.cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(unit_vectors(*self._ordered.T))

    def numbers(self, latitude: Degrees, longitude: Degrees) -> Numbers:
        """The number of the nearest site."""
        return np.asarray(self._tree.query(unit_vectors(latitude, longitude))[1], dtype=np.int64)

    def points(self, numbers: Numbers) -> tuple[Degrees, Degrees]:
        points = self._ordered[numbers]
        return points[:, 0], points[:, 1]

    def project(self, latitude: Degrees, longitude: Degrees) -> tuple[Degrees, Degrees]:
        return self.points(self.numbers(latitude, longitude))


# ---------------------------------------------------------------------------------------------------------------- areas


@dataclasses.dataclass(frozen=True)
class Frame:
    """A square grid around a region: longitude by the sine of the latitude, so that all cells have the same area."""

    west: float
    width: float
    """In degrees."""
    low: float
    height: float
    """In sines of the latitude."""

    @classmethod
    def around(cls, extent: Extent) -> "Frame":
        """The smallest frame whose cells are nearly square on the ground in the middle of the extent."""
        low, high = math.sin(math.radians(extent.south)), math.sin(math.radians(extent.north))
        scale = max(math.sqrt(max(1 - ((low + high) / 2) ** 2, 0.0)), 0.01)
        side = max(math.radians(extent.east - extent.west) * scale, (high - low) / scale, 1e-9)
        return cls(extent.west, math.degrees(side / scale), low, side * scale)

    def parts(self, latitude: Degrees, along: Degrees) -> tuple[Numbers, Numbers]:
        """The finest parts of points with unwrapped longitudes."""
        count = 2 ** (LEVELS + LEVELS_WITHIN)
        x = np.floor((along - self.west) / self.width * count)
        y = np.floor((np.sin(np.radians(latitude)) - self.low) / self.height * count)
        return np.clip(x, 0, count - 1).astype(np.int64), np.clip(y, 0, count - 1).astype(np.int64)

    def middles(self, x: Numbers, y: Numbers) -> tuple[Degrees, Degrees]:
        """The latitudes and unwrapped longitudes of the middles of finest parts."""
        count = 2 ** (LEVELS + LEVELS_WITHIN)
        sine = np.clip(self.low + (y + 0.5) / count * self.height, -1.0, 1.0)
        return np.degrees(np.arcsin(sine)), self.west + (x + 0.5) / count * self.width

    def boxes(self, x: Numbers, y: Numbers, level: int) -> Float[np.ndarray, "cells 4"]:
        """West, south, east and north of cells of a level, in degrees."""
        ends = [(self.low + (y + side) / 2**level * self.height) for side in (0, 1)]
        # A cell that reaches beyond a pole is not wholly inside any region.
        south, north = (np.where(end > 1 + 1e-12, 91.0, np.degrees(np.arcsin(np.clip(end, -1, 1)))) for end in ends)
        west, east = (self.west + (x + side) / 2**level * self.width for side in (0, 1))
        return np.stack([west, south, east, north], axis=1)


@dataclasses.dataclass(frozen=True)
class AreaNumbering:
    """The numbers of the points of an area: which cell that overlaps it, and which part of the cell."""

    area: Area
    decimals: int
    name: str = "location"

    @property
    def size(self) -> int:
        return len(self._cells[0]) << (2 * LEVELS_WITHIN)

    @functools.cached_property
    def frame(self) -> Frame:
        return Frame.around(self.area.extent)

    @functools.cached_property
    def _cells(self) -> tuple[Numbers, Bool[np.ndarray, " cells"]]:
        """The indices of cells that overlap the area, in order, and which of them lie wholly inside."""
        found: list[tuple[np.ndarray, bool]] = []
        partly = np.zeros(1, dtype=np.int64)
        for level in range(1, LEVELS + 1):
            index = (partly[:, None] * 4 + np.arange(4)).ravel()
            overlap = self.area.overlap(self.frame.boxes(*to_cell(index, level), level))
            inside, below = index[overlap == 2], 4 ** (LEVELS - level)
            found.append(((inside[:, None] * below + np.arange(below)).ravel(), True))
            partly = index[overlap == 1]
        found.append((partly, False))
        cells = np.concatenate([part for part, _ in found])
        inside = np.concatenate([np.full(len(part), whole) for part, whole in found])
        order = np.argsort(cells)
        if not len(cells):
            raise SchemaError(f"The region of {self.name!r} is too small. Declare a larger one.", column=self.name)
        return cells[order], inside[order]

    def numbers(self, latitude: Degrees, longitude: Degrees) -> Numbers:
        """The numbers of points inside the area."""
        index = to_index(*self.frame.parts(latitude, self.area.extent.unwrap(longitude)), LEVELS + LEVELS_WITHIN)
        at, is_known = self._find(index >> (2 * LEVELS_WITHIN))
        # A point on the boundary may fall into a cell beside it, by rounding: then the next cell's first part.
        return (at << (2 * LEVELS_WITHIN)) | np.where(is_known, index & _WITHIN, 0)

    @functools.cached_property
    def _rank(self) -> Numbers:
        """For each cell of the frame its number; -1 minus that of the next one for a cell outside."""
        cells = self._cells[0]
        ranks = np.minimum(np.searchsorted(cells, np.arange(4**LEVELS)), len(cells) - 1)
        return np.where(cells[ranks] == np.arange(4**LEVELS), ranks, -1 - ranks)

    def _find(self, cell: Numbers) -> tuple[Numbers, Bool[np.ndarray, " points"]]:
        """The numbers of cells, and which of them overlap the area; of the others, the number of the next one."""
        rank = self._rank[cell]
        is_known = rank >= 0
        return np.where(is_known, rank, -1 - rank), is_known

    def points(self, numbers: Numbers) -> tuple[Degrees, Degrees]:
        """A point inside the area for each number, rounded to the decimals: uniform in a cell for uniform numbers.

        Where the part of the cell that the number names is outside, other parts of the cell are tried in an order that
        follows from the number; if all are outside, the point is projected.
        """
        at, within = numbers >> (2 * LEVELS_WITHIN), numbers & _WITHIN
        latitude, longitude = self._rounded(at, within)
        open_rows = np.flatnonzero(~self._inside(at, latitude, longitude))
        for number in range(1, TRIES):
            if not len(open_rows):
                break
            other = _scramble(numbers[open_rows], number) & _WITHIN
            latitude[open_rows], longitude[open_rows] = self._rounded(at[open_rows], other)
            inside = self._inside(at[open_rows], latitude[open_rows], longitude[open_rows])
            open_rows = open_rows[~inside]
        if len(open_rows):
            latitude[open_rows], longitude[open_rows] = self.project(latitude[open_rows], longitude[open_rows])
        return latitude, longitude

    def project(self, latitude: Degrees, longitude: Degrees) -> tuple[Degrees, Degrees]:
        """Points inside the area unchanged; the others at the nearest point of it, rounded to the decimals."""
        latitude, longitude = np.array(latitude, dtype=float), np.array(longitude, dtype=float)
        outside = np.flatnonzero(~self._contains(latitude, longitude))
        if len(outside):
            nearest = self._boundary.nearest(latitude[outside], longitude[outside])
            latitude[outside], longitude[outside] = self._move_inside(*nearest)
        return latitude, longitude

    def _rounded(self, at: Numbers, within: Numbers) -> tuple[Degrees, Degrees]:
        index = (self._cells[0][at] << (2 * LEVELS_WITHIN)) | within
        latitude, along = self.frame.middles(*to_cell(index, LEVELS + LEVELS_WITHIN))
        return np.round(latitude, self.decimals), np.round(wrap(along), self.decimals)

    def _inside(self, at: Numbers, latitude: Degrees, longitude: Degrees) -> Bool[np.ndarray, " points"]:
        """Which rounded points are inside the area. Most cells need no test: rounding stays within two units."""
        return self._test(self._cells[1][at] & self._far_inside[at], latitude, longitude)

    @functools.cached_property
    def _far_inside(self) -> Bool[np.ndarray, " cells"]:
        """Which cells are inside together with all neighbours, so that rounding cannot leave the area."""
        cells, inside = self._cells
        grid = np.zeros((2**LEVELS + 2, 2**LEVELS + 2), dtype=bool)
        x, y = to_cell(cells, LEVELS)
        grid[x + 1, y + 1] = inside
        around = [grid[x + 1 + i, y + 1 + j] for i in (-1, 0, 1) for j in (-1, 0, 1)]
        west, south, east, north = self.frame.boxes(x, y, LEVELS).T
        wide = np.minimum(east - west, north - south) > 2 * 10.0**-self.decimals
        return np.asarray(np.all(around, axis=0) & wide)

    def _contains(self, latitude: Degrees, longitude: Degrees) -> Bool[np.ndarray, " points"]:
        """The same as the area's own test, which is left out in cells that are inside with their neighbours."""
        x, y = self.frame.parts(latitude, self.area.extent.unwrap(longitude))
        at, overlaps = self._find(to_index(x >> LEVELS_WITHIN, y >> LEVELS_WITHIN, LEVELS))
        return self._test(overlaps & self._far_inside[at], latitude, longitude)

    def _test(
        self, sure: Bool[np.ndarray, " points"], latitude: Degrees, longitude: Degrees
    ) -> Bool[np.ndarray, " points"]:
        """Which points are inside the area: those certain to be, and those that pass its test."""
        inside = sure.copy()
        inside[~sure] = self.area.contains(latitude[~sure], longitude[~sure])
        return inside

    def _move_inside(self, latitude: Degrees, longitude: Degrees) -> tuple[Degrees, Degrees]:
        """Points of the boundary, rounded, and moved by a few units of the last decimal where that leaves the area."""
        unit = 10.0**-self.decimals
        found_latitude, found_longitude = np.round(latitude, self.decimals), np.round(longitude, self.decimals)
        left = np.flatnonzero(~self.area.contains(found_latitude, found_longitude))
        for reach in (1, 2, 4, 8, 16, 64):
            for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)):
                if not len(left):
                    break
                near_latitude = np.round(np.clip(latitude[left] + y * reach * unit, -90, 90), self.decimals)
                near_longitude = np.round(wrap(longitude[left] + x * reach * unit), self.decimals)
                inside = self.area.contains(near_latitude, near_longitude)
                found_latitude[left[inside]] = near_latitude[inside]
                found_longitude[left[inside]] = near_longitude[inside]
                left = left[~inside]
        if len(left):
            anchors, tree = self._anchors
            nearest = tree.query(unit_vectors(latitude[left], longitude[left]))[1]
            found_latitude[left], found_longitude[left] = anchors[nearest].T
        return found_latitude, found_longitude

    @functools.cached_property
    def _anchors(self) -> tuple[Float[np.ndarray, "anchors 2"], cKDTree]:
        """Rounded points inside the area, about one for each cell."""
        numbers = np.arange(len(self._cells[0]), dtype=np.int64)
        found = []
        for number in range(TRIES):
            points = np.stack(self._rounded(numbers, _scramble(numbers, number) & _WITHIN), axis=1)
            found.append(points[self.area.contains(*points.T)])
            if sum(map(len, found)) >= len(numbers):
                break
        anchors = np.concatenate(found)
        if not len(anchors):
            raise SchemaError(
                f"The region of {self.name!r} has no point with {self.decimals} decimals. Declare more decimals.",
                column=self.name,
            )
        return anchors, cKDTree(unit_vectors(*anchors.T))

    @functools.cached_property
    def _boundary(self) -> "Boundary":
        return Boundary(self.area.rings)


_WITHIN = (1 << (2 * LEVELS_WITHIN)) - 1


def _scramble(numbers: Numbers, number: int) -> Numbers:
    """Numbers that look random, from others and the number of a try (the finaliser of SplitMix64)."""
    x = numbers.astype(np.uint64) + np.uint64(((number + 1) * 0x9E3779B97F4A7C15) % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)


# ---------------------------------------------------------------------------------------------------- the Hilbert curve


# An order of the cells of a square grid in which consecutive cells are neighbours on the map. The first digits of an
# index are the index of a larger square, so ranges of indices are unions of a few squares.


def to_index(x: Numbers, y: Numbers, levels: int) -> Numbers:
    """The index of each cell of a grid with `2**levels` cells on a side."""
    chunks = [slice(start, start + CHUNK) for start in range(0, max(len(x), 1), CHUNK)]
    return np.concatenate([_chunk_to_index(x[chunk], y[chunk], levels) for chunk in chunks])


def _chunk_to_index(x: Numbers, y: Numbers, levels: int) -> Numbers:
    x, y = x.astype(np.int64), y.astype(np.int64)
    last = np.int64(2**levels - 1)
    index = np.zeros_like(x)
    for level in range(levels - 1, -1, -1):
        right, up = (x >> level) & 1, (y >> level) & 1
        index = (index << 2) | ((3 * right) ^ up)
        x, y = _turn(x, y, right, up, last)
    return index


def to_cell(index: Numbers, levels: int) -> tuple[Numbers, Numbers]:
    """The inverse of `to_index`."""
    cells = [_chunk_to_cell(index[start : start + CHUNK], levels) for start in range(0, max(len(index), 1), CHUNK)]
    x, y = (np.concatenate(part) for part in zip(*cells, strict=True))
    return x, y


def _chunk_to_cell(index: Numbers, levels: int) -> tuple[Numbers, Numbers]:
    x, y = np.zeros(len(index), dtype=np.int64), np.zeros(len(index), dtype=np.int64)
    for level in range(levels):
        digit = (index >> (2 * level)) & 3
        right = digit >> 1
        up = (digit & 1) ^ right
        x, y = _turn(x, y, right, up, np.int64(2**level - 1))
        x, y = x | (right << level), y | (up << level)
    return x, y


def _turn(x: Numbers, y: Numbers, right: Numbers, up: Numbers, last: np.int64) -> tuple[Numbers, Numbers]:
    """The lower quadrants are mirrored, so that the curve enters and leaves them at their neighbours.

    In bits, without branches: x ^ last is last - x, and adding a difference to both exchanges them.
    """
    flip = -(right & (up ^ 1)) & last
    x, y = x ^ flip, y ^ flip
    exchange = (x ^ y) & -(up ^ 1)
    return x ^ exchange, y ^ exchange


# ----------------------------------------------------------------------------------------------------------- projection


class Boundary:
    """Rings of longitude and latitude, as short segments whose nearest points can be found."""

    def __init__(self, rings: tuple[Float[np.ndarray, "vertices 2"], ...]):
        total = sum(float(np.abs(np.diff(ring, axis=0)).sum()) for ring in rings)
        step = total / BOUNDARY_POINTS
        self._starts, self._ends = (np.concatenate(part) for part in zip(*(_cut(r, step) for r in rings), strict=True))
        self._vectors = tuple(unit_vectors(part[:, 1], part[:, 0]) for part in (self._starts, self._ends))
        self._tree = cKDTree((self._vectors[0] + self._vectors[1]) / 2)

    def nearest(self, latitude: Degrees, longitude: Degrees) -> tuple[Degrees, Degrees]:
        """The nearest point of the boundary to each point, by great-circle distance."""
        query = unit_vectors(latitude, longitude)
        near = self._tree.query(query, k=min(NEAREST, len(self._starts)))[1].reshape(len(query), -1)
        starts, ends = (part[near] for part in self._vectors)
        along = ends - starts
        length = np.maximum((along**2).sum(axis=2), 1e-300)
        share = np.clip(((query[:, None] - starts) * along).sum(axis=2) / length, 0.0, 1.0)
        distance = ((starts + share[..., None] * along - query[:, None]) ** 2).sum(axis=2)
        best = np.argmin(distance, axis=1)
        rows = np.arange(len(query))
        start, end, part = self._starts[near[rows, best]], self._ends[near[rows, best]], share[rows, best, None]
        points = start + part * (end - start)
        return points[:, 1], wrap(points[:, 0])


def _cut(ring: Float[np.ndarray, "vertices 2"], step: float) -> tuple[np.ndarray, np.ndarray]:
    """The starts and ends of segments of a ring no longer than a step."""
    lengths = np.abs(np.diff(ring, axis=0)).sum(axis=1)
    counts = np.maximum(np.ceil(lengths / step), 1).astype(np.int64)
    edge = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts, counts)
    side = ring[edge + 1] - ring[edge]
    return ring[edge] + side * (within / counts[edge])[:, None], ring[edge] + side * ((within + 1) / counts[edge])[
        :, None
    ]


def unit_vectors(latitude: Degrees, longitude: Degrees) -> Vectors:
    """Points of the unit sphere: their distances increase with great-circle distances."""
    y, x = np.radians(latitude), np.radians(longitude)
    return np.stack([np.cos(y) * np.cos(x), np.cos(y) * np.sin(x), np.sin(y)], axis=-1)


def wrap(longitude: Degrees) -> Degrees:
    """Longitudes from -180 to 180."""
    return np.where(np.abs(longitude) <= 180, longitude, np.mod(longitude + 180.0, 360.0) - 180.0)
