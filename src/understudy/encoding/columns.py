"""One column of a codec: Arrow values to integer codes and back, both directions side by side.

Encoding follows fixed public rules, so no value can make it fail: numbers are clamped to their bounds, undeclared
categories become what the schema names for them ("other" by default), nulls get a code of their own or, where the
schema excludes them, the column's default.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float, Int

from understudy.encoding.arrow import as_numbers, comparable, comparable_number, from_numbers
from understudy.privacy.mechanisms.discovery import Grid, Histogram, rounded
from understudy.schema import Category, NumericDomain

LISTED_CELLS = 2**16
"""Of a grid with more cells, their bins are not listed: 300 such lists would take more memory than a batch of rows."""


@dataclasses.dataclass(frozen=True)
class CategoricalCodec:
    """Codes 0 .. len(categories) - 1 in the listed order, then one for nulls if the column is nullable."""

    name: str
    categories: tuple[Category | None, ...]
    """None among them: the "other" of a list whose values are not text; it decodes to a null."""
    nullable: bool
    default: int
    """The code of values that are not listed; it may be that of nulls."""

    @property
    def size(self) -> int:
        return len(self.categories) + self.nullable

    @property
    def extent(self) -> str:
        """The number of values of an estimated list, for messages."""
        return f"{len(self.categories) - 1} and other"

    @property
    def extremes(self) -> pa.Array:
        """All its values, as `decode` returns them."""
        return pa.array([*self.categories, None] if self.nullable else list(self.categories))

    def encode(self, values: pa.ChunkedArray) -> Int[np.ndarray, " rows"]:
        listed, column = comparable(self.categories, values)
        codes = pc.index_in(column, value_set=listed).combine_chunks().fill_null(self.default)
        codes = np.array(codes.to_numpy(zero_copy_only=False), dtype=np.int32)
        missing = pc.is_null(column, nan_is_null=True).combine_chunks().to_numpy(zero_copy_only=False)
        codes[missing] = len(self.categories) if self.nullable else self.default
        return codes

    def decode(self, codes: Int[np.ndarray, " rows"], *, generator: np.random.Generator) -> pa.Array:
        return self.extremes.take(pa.array(codes))

    def to_dict(self) -> dict[str, object]:
        return {"type": "categorical", **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "CategoricalCodec":
        return cls(content["name"], tuple(content["categories"]), content["nullable"], content["default"])


@dataclasses.dataclass(frozen=True)
class NumericCodec:
    """Codes are bins, each of consecutive fine bins of a histogram; one more code for nulls if the column is nullable.

    Within a bin, decoding follows the noisy fine histogram: a fine bin by its mass, then uniformly within it.
    """

    name: str
    kind: str
    histogram: Histogram
    first_fine_bin: np.ndarray
    """The first fine bin of each bin, and at the end the number of fine bins."""
    nullable: bool

    @property
    def num_bins(self) -> int:
        return len(self.first_fine_bin) - 1

    @property
    def size(self) -> int:
        return self.num_bins + self.nullable

    @property
    def extent(self) -> str:
        """The bounds, for messages."""
        lower, upper = self.extremes.to_pylist()
        return f"{lower} to {upper}"

    @property
    def extremes(self) -> pa.Array:
        """Its smallest and its largest value, as `decode` returns them."""
        ends = np.asarray([self.histogram.grid.lower, self.histogram.grid.upper])
        return from_numbers(ends, np.zeros(2, dtype=bool), self.kind)

    def encode(self, values: pa.ChunkedArray) -> Int[np.ndarray, " rows"]:
        numbers, known = as_numbers(values, self.kind)
        cells = self.histogram.grid.cells(numbers)
        bins = self._bins_of(cells) if self.histogram.grid.num_cells > LISTED_CELLS else self._bin_of_cell[cells]
        return np.where(known, bins, self.num_bins if self.nullable else 0).astype(np.int32)

    @functools.cached_property
    def _bin_of_cell(self) -> Int[np.ndarray, " cells"]:
        """The bin of every cell: looking it up takes less time than a search for every value."""
        return self._bins_of(np.arange(self.histogram.grid.num_cells))

    def _bins_of(self, cells: Int[np.ndarray, " values"]) -> Int[np.ndarray, " values"]:
        fine_bins = np.searchsorted(self.histogram.starts, cells, side="right") - 1
        return np.searchsorted(self.first_fine_bin, np.maximum(fine_bins, 0), side="right") - 1

    def positions(self, values: pa.ChunkedArray) -> Float[np.ndarray, " rows"]:
        """The position of each value between the bounds, from 0 to 1. Nulls: NaN, or 0 if the column has none."""
        numbers, known = as_numbers(values, self.kind)
        positions = _positions_of(self.histogram.grid, np.where(known, numbers, self.histogram.grid.lower))
        return np.where(known, positions, np.nan) if self.nullable else positions

    @property
    def scale(self) -> NumericDomain:
        """What is public about the column."""
        grid, histogram = self.histogram.grid, self.histogram
        cell = grid.width / _num_values(grid) if grid.integral else 1 / grid.num_cells
        edges = np.minimum(np.r_[histogram.starts, histogram.stops[-1]] * cell, 1.0)
        edges[0], edges[-1] = 0.0, 1.0
        return NumericDomain(
            fine_edges=tuple(edges.tolist()),
            fine_masses=tuple(histogram.masses.tolist()),
            first_fine_bin=tuple(self.first_fine_bin.tolist()),
            whole=_num_values(grid) if grid.integral else None,
            nullable=self.nullable,
        )

    def decode(
        self,
        codes: Int[np.ndarray, " rows"],
        *,
        generator: np.random.Generator,
        positions: Float[np.ndarray, " rows"] | None = None,
    ) -> pa.Array:
        """Values at their positions where these are given, else drawn within their bins."""
        null = codes >= self.num_bins
        if positions is not None and not np.isnan(positions[~null]).any():
            return from_numbers(_numbers_at(self.histogram.grid, np.where(null, 0.0, positions)), null, self.kind)
        bins = np.where(null, 0, codes)
        # A little mass for every cell, so that an empty bin still decodes uniformly.
        masses = self.histogram.masses + 1e-9 * (self.histogram.stops - self.histogram.starts)
        cumulative = np.r_[0.0, np.cumsum(masses)]
        low, high = cumulative[self.first_fine_bin[bins]], cumulative[self.first_fine_bin[bins + 1]]
        fine_bins = np.searchsorted(cumulative, low + generator.random(len(codes)) * (high - low), side="right") - 1
        fine_bins = np.clip(fine_bins, self.first_fine_bin[bins], self.first_fine_bin[bins + 1] - 1)
        starts, stops = self.histogram.starts[fine_bins], self.histogram.stops[fine_bins]
        numbers = _numbers_within(self.histogram.grid, starts, stops, generator=generator)
        return from_numbers(numbers, null, self.kind)

    def bin_edges(self) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest number of each bin."""
        grid, starts = self.histogram.grid, self.histogram.starts
        stops = np.r_[starts[self.first_fine_bin[1:-1]], self.histogram.stops[-1]]
        lower = [grid.lower + int(start) * grid.width for start in starts[self.first_fine_bin[:-1]]]
        upper = [grid.lower + int(stop) * grid.width - (1 if grid.integral else 0) for stop in stops]
        upper = [min(value, grid.upper) for value in upper]
        kind = np.int64 if grid.integral else np.float64
        return np.asarray(lower, dtype=kind), np.asarray(upper, dtype=kind)

    def bins_that_can(self, operator: str | None, constants: Sequence[object]) -> Bool[np.ndarray, " size"] | None:
        """Which codes can hold a value that satisfies `column operator constants`; None if that cannot be decided.

        A bin is excluded only if none of its values satisfies the comparison, and nulls only if they do not.
        """
        if operator in ("is null", "is not null"):
            codes = np.arange(self.size)
            return (codes >= self.num_bins) if operator == "is null" else (codes < self.num_bins)
        numbers = [comparable_number(constant, self.kind) for constant in constants]
        if not numbers or any(number is None for number in numbers):
            return None
        lower, upper = self.bin_edges()
        meets: Callable[[], np.ndarray] | None = {
            "<": lambda: lower < numbers[0],
            "<=": lambda: lower <= numbers[0],
            ">": lambda: upper > numbers[0],
            ">=": lambda: upper >= numbers[0],
            "=": lambda: (lower <= numbers[0]) & (numbers[0] <= upper),
            "in": lambda: np.any([(lower <= number) & (number <= upper) for number in numbers], axis=0),
            "between": lambda: (upper >= numbers[0]) & (lower <= numbers[-1]),
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
            "masses": rounded(self.histogram.masses).tolist(),
            "first_fine_bin": self.first_fine_bin.tolist(),
            "nullable": self.nullable,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "NumericCodec":
        integral = content["kind"] != "real"
        grid = Grid(content["lower"], content["upper"], integral, content["num_cells"], content["width"])
        starts, stops = (np.asarray(content[key], dtype=np.int64) for key in ("starts", "stops"))
        histogram = Histogram(grid, starts, stops, np.asarray(content["masses"], dtype=float))
        first_fine_bin = np.asarray(content["first_fine_bin"], dtype=np.int64)
        return cls(content["name"], content["kind"], histogram, first_fine_bin, content["nullable"])


ColumnCodec = CategoricalCodec | NumericCodec


def _numbers_within(grid: Grid, starts: np.ndarray, stops: np.ndarray, *, generator: np.random.Generator) -> np.ndarray:
    """One number drawn uniformly from each range of cells."""
    if not grid.integral:
        offset = starts + generator.random(len(starts)) * (stops - starts)
        if math.isfinite(grid.upper - grid.lower):
            return np.asarray(np.clip(grid.lower + offset * grid.width, grid.lower, grid.upper))
        return np.asarray(np.clip((grid.lower / grid.width + offset) * grid.width, grid.lower, grid.upper))
    # Numbers may be anywhere in 64 bits, so offsets from the lower bound are unsigned.
    width = np.uint64(grid.width)
    span = np.uint64(int(grid.upper) - int(grid.lower))
    first = starts.astype(np.uint64) * width
    last = np.minimum(stops.astype(np.uint64) * width - np.uint64(1), span)
    offset = generator.integers(first, last, endpoint=True, dtype=np.uint64)
    return np.asarray(np.asarray(grid.lower, dtype=np.int64).view(np.uint64) + offset).view(np.int64)


def _num_values(grid: Grid) -> int:
    """The number of integers between the bounds."""
    return int(grid.upper) - int(grid.lower) + 1


def _positions_of(grid: Grid, numbers: np.ndarray) -> Float[np.ndarray, " rows"]:
    """Positions from 0 to 1, clamped; each integer is at the middle of an equal part."""
    if grid.integral:
        clamped = np.clip(numbers, np.int64(grid.lower), np.int64(grid.upper))
        # Unsigned, as in `Grid.cells`: the difference may exceed 2^63.
        offset = clamped.astype(np.int64).view(np.uint64) - np.asarray(grid.lower, dtype=np.int64).view(np.uint64)
        return np.asarray((offset.astype(np.float64) + 0.5) / _num_values(grid))
    half_length = grid.upper / 2 - grid.lower / 2  # halved first: the difference may overflow
    along = np.clip(numbers, grid.lower, grid.upper) / 2 - grid.lower / 2
    return along / half_length if half_length else np.zeros(len(numbers))


def _numbers_at(grid: Grid, positions: Float[np.ndarray, " rows"]) -> np.ndarray:
    """The inverse of `_positions_of`."""
    if grid.integral:
        along = np.clip(positions, 0.0, 1.0 - 2.0**-53) * float(_num_values(grid))
        offset = np.minimum(np.floor(along).astype(np.uint64), np.uint64(_num_values(grid) - 1))
        return np.asarray(np.asarray(grid.lower, dtype=np.int64).view(np.uint64) + offset).view(np.int64)
    return np.clip(grid.lower * (1 - positions) + grid.upper * positions, grid.lower, grid.upper)
