"""One column of a codec: Arrow values to integer codes and back, both directions side by side.

Encoding follows fixed public rules, so no value can make it fail: numbers are clamped to their bounds, undeclared
categories become what the schema names for them ("other" by default), nulls get a code of their own or, where the
schema excludes them, the column's default.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float, Int

from understudy.encoding.arrow import as_numbers, comparable, comparable_number, from_numbers
from understudy.privacy.mechanisms.discovery import rounded
from understudy.schema import Category, NumericDomain
from understudy.schema.grid import INNERMOST, Grid, Histogram


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
    def is_constant(self) -> bool:
        """Whether all values of an estimated list became "other"."""
        return len(self.categories) == 1

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
    """Codes are bins, each of consecutive ranges of a histogram; one more code for nulls if the column is nullable.

    Within a bin, decoding follows the noisy histogram: a range by its mass, then a number within it.
    """

    name: str
    kind: str
    histogram: Histogram
    first_fine_bin: np.ndarray
    """The first range of each bin, and at the end the number of ranges."""
    nullable: bool

    @property
    def num_bins(self) -> int:
        return len(self.first_fine_bin) - 1

    @property
    def size(self) -> int:
        return self.num_bins + self.nullable

    @property
    def extent(self) -> str:
        """The smallest and the largest number with a mass, for messages."""
        return " to ".join(
            f"{value:.4g}" if isinstance(value, float) else str(value)
            for value in self._as_array(self.histogram.support).to_pylist()
        )

    @property
    def is_constant(self) -> bool:
        """Whether one number alone has a mass, and no other has a code of its own; or only reals next to zero have one.

        The innermost cell of the public grid of reals is what estimated bounds keep if nothing else stands out.
        """
        lower, upper = self.histogram.support
        is_next_to_zero = self.kind == "real" and -INNERMOST <= lower <= upper <= INNERMOST
        return is_next_to_zero or (bool(lower == upper) and self.num_bins == 1)

    @property
    def extremes(self) -> pa.Array:
        """Its smallest and its largest value, as `decode` returns them."""
        return self._as_array((self.histogram.grid.lower, self.histogram.grid.upper))

    def _as_array(self, numbers: Sequence[int | float]) -> pa.Array:
        return from_numbers(np.asarray(numbers), np.zeros(len(numbers), dtype=bool), self.kind)

    def encode(self, values: pa.ChunkedArray) -> Int[np.ndarray, " rows"]:
        numbers, known = as_numbers(values, self.kind)
        firsts = self.histogram.firsts[self.first_fine_bin[1:-1]]
        bins = np.searchsorted(firsts, self.histogram.grid.snap(numbers), side="right")
        return np.where(known, bins, self.num_bins if self.nullable else 0).astype(np.int32)

    def positions(self, values: pa.ChunkedArray) -> Float[np.ndarray, " rows"]:
        """The position of each value between the bounds, from 0 to 1. Nulls: NaN, or 0 if the column has none."""
        numbers, known = as_numbers(values, self.kind)
        grid = self.histogram.grid
        positions = grid.positions(np.where(known, numbers, np.asarray(grid.lower, dtype=numbers.dtype)))
        return np.where(known, positions, np.nan) if self.nullable else positions

    def scale(self, special: Collection[int | float] = ()) -> NumericDomain:
        """What is public about the column."""
        grid, histogram = self.histogram.grid, self.histogram
        is_shared = histogram.is_single & (histogram.is_spike | np.isin(histogram.firsts, list(special)))
        others = np.add.reduceat(np.where(is_shared, 0.0, histogram.masses), self.first_fine_bin[:-1])
        # A bin is one number if no other number in it has mass.
        is_shared = np.add.reduceat(is_shared, self.first_fine_bin[:-1], dtype=int) == 1
        return NumericDomain(
            fine_edges=(*grid.edge_positions(histogram.firsts).tolist(), 1.0),
            fine_masses=tuple(histogram.masses.tolist()),
            first_fine_bin=tuple(self.first_fine_bin.tolist()),
            whole=grid.num_values if grid.integral else None,
            nullable=self.nullable,
            shared=tuple(np.flatnonzero(is_shared & (others == 0)).tolist()),
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
        bins = np.where(null, 0, codes)
        cumulative = np.r_[0.0, np.cumsum(self._masses_in_bins)]
        first, last = self.first_fine_bin[bins], self.first_fine_bin[bins + 1] - 1
        along = bins + generator.random(len(codes))  # each bin has a mass of one
        ranges = np.clip(np.searchsorted(cumulative, along, side="right") - 1, first, last)
        numbers = self.histogram.draw(ranges, generator=generator)
        if positions is not None:
            located = ~np.isnan(positions)
            numbers = np.where(located, self.histogram.grid.numbers_at(np.where(located, positions, 0.0)), numbers)
        return from_numbers(numbers, null, self.kind)

    @functools.cached_property
    def _masses_in_bins(self) -> Float[np.ndarray, " ranges"]:
        """The fraction of its bin that each range has; a bin without a mass is filled evenly."""
        sizes, starts = np.diff(self.first_fine_bin), self.first_fine_bin[:-1]
        masses = np.maximum(self.histogram.masses, 0.0)
        is_empty = np.repeat(np.add.reduceat(masses, starts) <= 0, sizes)
        masses = np.where(is_empty, self.histogram.lengths, masses)
        return np.asarray(masses / np.repeat(np.add.reduceat(masses, starts), sizes))

    def bin_edges(self) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest number of each bin."""
        return self.histogram.firsts[self.first_fine_bin[:-1]], self.histogram.lasts[self.first_fine_bin[1:] - 1]

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
            "decimals": grid.decimals,
            "equal": grid.equal,
            "firsts": self.histogram.firsts.tolist(),
            "masses": rounded(self.histogram.masses).tolist(),
            "first_fine_bin": self.first_fine_bin.tolist(),
            "nullable": self.nullable,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "NumericCodec":
        grid = Grid(content["lower"], content["upper"], content["kind"], content["decimals"], equal=content["equal"])
        firsts = np.asarray(content["firsts"], dtype=np.int64 if grid.integral else np.float64)
        histogram = Histogram(grid, firsts, np.asarray(content["masses"], dtype=float))
        first_fine_bin = np.asarray(content["first_fine_bin"], dtype=np.int64)
        if not histogram.is_sound or not _is_cut(first_fine_bin, len(firsts)) or type(content["nullable"]) is not bool:
            raise ValueError("bins that no column has")
        return cls(content["name"], content["kind"], histogram, first_fine_bin, content["nullable"])


def _is_cut(first_fine_bin: np.ndarray, num_ranges: int) -> bool:
    """Whether these are the first ranges of bins, and at the end the number of ranges."""
    if first_fine_bin.ndim != 1 or len(first_fine_bin) < 2:
        return False
    return bool(first_fine_bin[0] == 0 and first_fine_bin[-1] == num_ranges and np.all(np.diff(first_fine_bin) > 0))


ColumnCodec = CategoricalCodec | NumericCodec
