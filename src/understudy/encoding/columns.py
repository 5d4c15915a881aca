"""One column of a codec: Arrow values to integer codes and back, both directions side by side.

Encoding follows fixed public rules, so no value can make it fail: numbers are clamped to their bounds, unknown
categories become the declared `unknown` (or "other", or the first), nulls get a code of their own or, where the schema
excludes them, the column's default.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float, Int

from understudy.encoding.arrow import as_ticks, comparable, comparable_tick, from_ticks
from understudy.privacy.discovery import (
    Grid,
    Histogram,
)
from understudy.schema import Category, Scale


@dataclasses.dataclass(frozen=True)
class CategoricalCodec:
    """Codes 0 .. len(categories) - 1 in the listed order, then one for nulls if the column is nullable."""

    name: str
    categories: tuple[Category | None, ...]
    """None among them: the "other" of a bought list whose values are not text; it decodes to a null."""
    nullable: bool
    default: int
    """The code of values that are not listed."""

    @property
    def size(self) -> int:
        return len(self.categories) + self.nullable

    @property
    def extent(self) -> str:
        """In words: how many values a bought list has."""
        return f"{len(self.categories) - 1} and other"

    def encode(self, values: pa.ChunkedArray) -> Int[np.ndarray, " rows"]:
        listed, column = comparable(self.categories, values)
        codes = pc.index_in(column, value_set=listed).combine_chunks().fill_null(self.default)
        codes = np.array(codes.to_numpy(zero_copy_only=False), dtype=np.int32)
        missing = pc.is_null(column, nan_is_null=True).combine_chunks().to_numpy(zero_copy_only=False)
        codes[missing] = len(self.categories) if self.nullable else self.default
        return codes

    def decode(self, codes: Int[np.ndarray, " rows"], *, generator: np.random.Generator) -> pa.Array:
        levels = pa.array([*self.categories, None] if self.nullable else list(self.categories))
        return levels.take(pa.array(codes))

    def to_dict(self) -> dict[str, object]:
        return {
            "type": "categorical",
            "name": self.name,
            "categories": list(self.categories),
            "nullable": self.nullable,
            "default": self.default,
        }

    @classmethod
    def from_dict(cls, content: Mapping) -> "CategoricalCodec":
        return cls(content["name"], tuple(content["categories"]), content["nullable"], content["default"])


@dataclasses.dataclass(frozen=True)
class NumericCodec:
    """Codes are bins: consecutive runs of a fine histogram; one more code for nulls if the column is nullable.

    Inside a bin, decoding follows the noisy fine histogram: a run by its mass, then evenly within the run.
    """

    name: str
    kind: str
    histogram: Histogram
    first_run: np.ndarray
    """For each bin the first of its runs, and at the end the number of runs."""
    nullable: bool

    @property
    def num_bins(self) -> int:
        return len(self.first_run) - 1

    @property
    def size(self) -> int:
        return self.num_bins + self.nullable

    @property
    def extent(self) -> str:
        """In words: from where to where."""
        ends = np.asarray([self.histogram.grid.lower, self.histogram.grid.upper])
        lower, upper = from_ticks(ends, np.zeros(2, dtype=bool), self.kind).to_pylist()
        return f"{lower} to {upper}"

    def encode(self, values: pa.ChunkedArray) -> Int[np.ndarray, " rows"]:
        ticks, known = as_ticks(values, self.kind)
        cells = self.histogram.grid.cells(ticks)
        runs = np.searchsorted(self.histogram.starts, cells, side="right") - 1
        bins = np.searchsorted(self.first_run, np.maximum(runs, 0), side="right") - 1
        return np.where(known, bins, self.num_bins if self.nullable else 0).astype(np.int32)

    def places(self, values: pa.ChunkedArray) -> Float[np.ndarray, " rows"]:
        """Where each value lies between the bounds, from 0 to 1; NaN for nulls, the lower bound where none may be."""
        ticks, known = as_ticks(values, self.kind)
        places = _places_of(self.histogram.grid, np.where(known, ticks, self.histogram.grid.lower))
        return np.where(known, places, np.nan) if self.nullable else places

    @property
    def scale(self) -> Scale:
        """What is public about the places."""
        grid, histogram = self.histogram.grid, self.histogram
        cell = grid.width / _num_values(grid) if grid.integral else 1 / grid.num_cells
        edges = np.minimum(np.r_[histogram.starts, histogram.stops[-1]] * cell, 1.0)
        edges[0], edges[-1] = 0.0, 1.0
        return Scale(
            run_edges=tuple(edges.tolist()),
            run_masses=tuple(histogram.masses.tolist()),
            first_run=tuple(self.first_run.tolist()),
            whole=_num_values(grid) if grid.integral else None,
            nullable=self.nullable,
        )

    def decode(
        self,
        codes: Int[np.ndarray, " rows"],
        *,
        generator: np.random.Generator,
        places: Float[np.ndarray, " rows"] | None = None,
    ) -> pa.Array:
        """Values: at their places where these are known, else drawn inside their bins."""
        null = codes >= self.num_bins
        if places is not None and not np.isnan(places[~null]).any():
            return from_ticks(_ticks_at(self.histogram.grid, np.where(null, 0.0, places)), null, self.kind)
        bins = np.where(null, 0, codes)
        # A little mass for every cell, so that a bin whose runs are all empty still decodes evenly.
        masses = self.histogram.masses + 1e-9 * (self.histogram.stops - self.histogram.starts)
        cumulative = np.r_[0.0, np.cumsum(masses)]
        low, high = cumulative[self.first_run[bins]], cumulative[self.first_run[bins + 1]]
        runs = np.searchsorted(cumulative, low + generator.random(len(codes)) * (high - low), side="right") - 1
        runs = np.clip(runs, self.first_run[bins], self.first_run[bins + 1] - 1)
        ticks = _ticks_within(
            self.histogram.grid, self.histogram.starts[runs], self.histogram.stops[runs], generator=generator
        )
        return from_ticks(ticks, null, self.kind)

    def bin_edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Least and greatest tick of each bin."""
        grid, starts = self.histogram.grid, self.histogram.starts
        stops = np.r_[starts[self.first_run[1:-1]], self.histogram.stops[-1]]
        lower = [grid.lower + int(start) * grid.width for start in starts[self.first_run[:-1]]]
        upper = [grid.lower + int(stop) * grid.width - (1 if grid.integral else 0) for stop in stops]
        upper = [min(value, grid.upper) for value in upper]
        kind = np.int64 if grid.integral else np.float64
        return np.asarray(lower, dtype=kind), np.asarray(upper, dtype=kind)

    def bins_that_can(self, operator: str | None, constants: Sequence[object]) -> Bool[np.ndarray, " size"] | None:
        """Which codes hold a value that meets `column operator constants`; None where that cannot be told.

        A bin is ruled out only if none of its values can meet the comparison, and nulls only if they cannot.
        """
        if operator in ("is null", "is not null"):
            codes = np.arange(self.size)
            return (codes >= self.num_bins) if operator == "is null" else (codes < self.num_bins)
        ticks = [comparable_tick(constant, self.kind) for constant in constants]
        if not ticks or any(tick is None for tick in ticks):
            return None
        lower, upper = self.bin_edges()
        meets = {
            "<": lambda: lower < ticks[0],
            "<=": lambda: lower <= ticks[0],
            ">": lambda: upper > ticks[0],
            ">=": lambda: upper >= ticks[0],
            "=": lambda: (lower <= ticks[0]) & (ticks[0] <= upper),
            "in": lambda: np.any([(lower <= tick) & (tick <= upper) for tick in ticks], axis=0),
            "between": lambda: (upper >= ticks[0]) & (lower <= ticks[-1]),
        }.get(operator or "")
        return None if meets is None else np.r_[meets(), np.zeros(int(self.nullable), dtype=bool)]

    def to_dict(self) -> dict[str, object]:
        grid = self.histogram.grid
        return {
            "type": "numeric",
            "name": self.name,
            "kind": self.kind,
            "lower": grid.lower,
            "upper": grid.upper,
            "num_cells": grid.num_cells,
            "width": grid.width,
            "starts": self.histogram.starts.tolist(),
            "stops": self.histogram.stops.tolist(),
            "masses": [float(f"{mass:.6g}") for mass in self.histogram.masses],
            "first_run": self.first_run.tolist(),
            "nullable": self.nullable,
        }

    @classmethod
    def from_dict(cls, content: Mapping) -> "NumericCodec":
        integral = content["kind"] != "real"
        grid = Grid(content["lower"], content["upper"], integral, content["num_cells"], content["width"])
        runs = [np.asarray(content[key], dtype=np.int64) for key in ("starts", "stops")]
        histogram = Histogram(grid, runs[0], runs[1], np.asarray(content["masses"], dtype=float))
        first_run = np.asarray(content["first_run"], dtype=np.int64)
        return cls(content["name"], content["kind"], histogram, first_run, content["nullable"])


ColumnCodec = CategoricalCodec | NumericCodec


def _ticks_within(grid: Grid, starts: np.ndarray, stops: np.ndarray, *, generator: np.random.Generator) -> np.ndarray:
    """One tick drawn evenly from each run of cells."""
    if not grid.integral:
        place = starts + generator.random(len(starts)) * (stops - starts)
        if math.isfinite(grid.upper - grid.lower):
            return np.clip(grid.lower + place * grid.width, grid.lower, grid.upper)
        return np.clip((grid.lower / grid.width + place) * grid.width, grid.lower, grid.upper)
    # Ticks may lie anywhere in 64 bits, so offsets from the lower bound are unsigned.
    width = np.uint64(grid.width)
    span = np.uint64(int(grid.upper) - int(grid.lower))
    first = starts.astype(np.uint64) * width
    last = np.minimum(stops.astype(np.uint64) * width - np.uint64(1), span)
    offset = generator.integers(first, last, endpoint=True, dtype=np.uint64)
    return (np.asarray(grid.lower, dtype=np.int64).view(np.uint64) + offset).view(np.int64)


def _num_values(grid: Grid) -> int:
    """How many whole numbers lie between the bounds."""
    return int(grid.upper) - int(grid.lower) + 1


def _places_of(grid: Grid, ticks: np.ndarray) -> Float[np.ndarray, " rows"]:
    """From 0 to 1, clamped; whole numbers stand in the middle of their shares."""
    if grid.integral:
        clamped = np.clip(ticks, np.int64(grid.lower), np.int64(grid.upper))
        # Unsigned, as in `Grid.cells`: the difference may pass 2^63.
        offset = clamped.astype(np.int64).view(np.uint64) - np.asarray(grid.lower, dtype=np.int64).view(np.uint64)
        return (offset.astype(np.float64) + 0.5) / _num_values(grid)
    half_length = grid.upper / 2 - grid.lower / 2  # halved first: the difference may overflow
    along = np.clip(ticks, grid.lower, grid.upper) / 2 - grid.lower / 2
    return along / half_length if half_length else np.zeros(len(ticks))


def _ticks_at(grid: Grid, places: Float[np.ndarray, " rows"]) -> np.ndarray:
    """The reverse of `_places_of`."""
    if grid.integral:
        along = np.clip(places, 0.0, 1.0 - 2.0**-53) * float(_num_values(grid))
        offset = np.minimum(np.floor(along).astype(np.uint64), np.uint64(_num_values(grid) - 1))
        return (np.asarray(grid.lower, dtype=np.int64).view(np.uint64) + offset).view(np.int64)
    return np.clip(grid.lower * (1 - places) + grid.upper * places, grid.lower, grid.upper)
