"""The numbers of a bounded column, and the public cells over which they are counted.

Cells follow from bounds, kind and decimals alone, never from a table. They are narrow near zero and grow with the
number, so that bounds far from the rows cost little; days and moments have equal cells. Of the numbers in a cell the
roundest (0, 50, 1000, midnight) has a cell of its own, so that a value that many rows share can be told apart.
"""

import dataclasses
import functools
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

FLAT = 256
"""Columns with at most this many cells have a tree of one level: each cell gets its own noisy count."""
FINEST = 2**17
"""The parts of a grid; each is at most three cells: its roundest number, what is below, and what is above."""
NEAR_ZERO = 2.0**-20
"""The fraction of the range within which parts have about equal widths; beyond it they grow with the number."""
INNERMOST = 2.0**-20
"""The upper edge of the public cell of reals that holds zero, where bounds are estimated."""
SPIKE = 5.0
"""A range is a spike if it is more than this many times as dense as each of its neighbours."""
_DAY = 86_400 * 10**6
_BELOW_2_63 = 2.0**63 - 1024  # the largest float that fits in 64 bits
_INTEGER_STEPS = np.array(sorted({m * 10**k for k in range(19) for m in (1, 5) if m * 10**k < 2**63}), dtype=np.int64)
_MICROSECOND_STEPS = np.array(
    [*(10**k for k in range(8)), *(seconds * 10**6 for seconds in (60, 600, 3600, 21_600)), _DAY], dtype=np.int64
)
"""Each step divides the next one; numbers that are multiples of a larger step are rounder."""

_REAL_STEPS = np.array([float(f"{m}e{k}") for k in range(-323, 308) for m in (1, 5)])
"""The same for reals."""
_POWERS = np.array([float(f"1e{k}") for k in range(309)])

Numbers = Int[np.ndarray, " values"] | Float[np.ndarray, " values"]


@dataclasses.dataclass(frozen=True)
class Grid:
    """The numbers between two bounds, and the cells in which they are counted.

    >>> grid = Grid(0, 10**9)
    >>> grid.num_cells < 3 * FINEST
    True
    >>> first, second = grid.cells(np.array([1000, 1001]))  # small integers have cells of their own
    >>> int(second - first)
    1
    """

    lower: int | float
    upper: int | float
    kind: str = "integer"
    """As of a column: dates are days, datetimes are microseconds; those and integers are whole."""
    decimals: int | None = None
    """Of reals, if it is known: numbers are then its multiples."""
    finest: int = FINEST
    """The largest number of parts."""
    equal: bool = False
    """Equal parts, none of which is divided further."""

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            value = getattr(self, name)
            object.__setattr__(self, name, float(value) if self.kind == "real" else int(value))

    @property
    def integral(self) -> bool:
        """Whether its numbers are whole."""
        return self.kind != "real"

    @property
    def firsts(self) -> Numbers:
        """The smallest number of each cell."""
        return _firsts(self)

    @property
    def num_cells(self) -> int:
        return len(self.firsts)

    def edges_of(self, starts: Int[np.ndarray, " parts"]) -> Float[np.ndarray, " edges"]:
        """The edges of consecutive parts that begin with these cells, over 4 so that no difference overflows."""
        return np.asarray(np.r_[self.firsts[starts].astype(float), float(self.upper) + self.integral] / 4)

    @property
    def num_values(self) -> int:
        """Of a grid of whole numbers, how many there are."""
        return int(self.upper) - int(self.lower) + 1

    @property
    def has_equal_parts(self) -> bool:
        """Whether parts do not grow with the number: of days and moments, and far from zero."""
        if self.equal or self.kind in ("date", "datetime"):
            return True
        return max(self.lower, -self.upper) >= self.upper / 2 - self.lower / 2

    @property
    def is_two_integers(self) -> bool:
        """Whether it has two cells of one integer each: two bins, whatever their counts."""
        return self.integral and self.num_values == 2

    def cells(self, values: np.ndarray) -> Int[np.ndarray, " values"]:
        """The index of each value's cell; values outside the bounds are clamped."""
        return np.maximum(np.searchsorted(self.firsts, self.snap(values), side="right") - 1, 0)

    def snap(self, values: np.ndarray) -> np.ndarray:
        """The nearest number of the grid: clamped, and rounded to the decimals."""
        if self.integral:
            return np.asarray(np.clip(values, np.int64(self.lower), np.int64(self.upper)))
        values = np.clip(values, self.lower, self.upper)
        if self.per_unit is None:
            return values
        return np.clip(np.rint(values * self.per_unit) / self.per_unit, self.lower, self.upper)

    @property
    def per_unit(self) -> float | None:
        """With decimals, how many numbers there are between 0 and 1; None if they are too fine for the bounds."""
        if self.integral or self.decimals is None or self.decimals > 15:
            return None
        per_unit = float(10**self.decimals)
        # Below 2^50, a multiple that is rounded to a float is still nearest to itself.
        return per_unit if max(abs(self.lower), abs(self.upper)) < 2**50 / per_unit else None

    def after(self, numbers: np.ndarray) -> np.ndarray:
        """The next larger number of each."""
        return self._move(numbers, 1)

    def before(self, numbers: np.ndarray) -> np.ndarray:
        """The next smaller number of each."""
        return self._move(numbers, -1)

    def _move(self, numbers: np.ndarray, by: int) -> np.ndarray:
        if self.integral:
            return np.asarray(numbers, dtype=np.int64) + by
        if self.per_unit is None:
            return np.asarray(np.nextafter(numbers, by * math.inf))
        # A bound that has more decimals is a number between two multiples.
        along = np.asarray(numbers) * self.per_unit
        whole = np.rint(along)
        is_multiple = whole / self.per_unit == numbers
        moved = np.where(is_multiple, whole + by, np.ceil(along) if by > 0 else np.floor(along))
        return np.clip(moved / self.per_unit, self.lower, self.upper)

    def levels(self, *, most: int) -> tuple[int, int]:
        """(levels, branching) of the tree over these cells."""
        levels = 1 if self.num_cells <= FLAT else most
        branching = self.num_cells if levels == 1 else math.ceil(round(self.num_cells ** (1 / levels), 9))
        return levels, branching

    def to_scale(self, numbers: np.ndarray, *, end: bool = False) -> Float[np.ndarray, " values"]:
        """Numbers on a scale on which the grid's parts are equally long; `end`: where those after them begin."""
        step = 1.0 if self.integral else 0.0 if self.per_unit is None else 1 / self.per_unit
        if not self.has_equal_parts:
            return _stretch(numbers.astype(float) + step * end, self._unit)
        if self.integral:
            return self._offsets(numbers) + float(end)
        return self.positions(numbers) + step * end / max(self.upper / 2 - self.lower / 2, 1e-300) / 2

    def from_scale(self, firsts: np.ndarray, lengths: Float[np.ndarray, " values"]) -> np.ndarray:
        """The numbers that are so far above these on the scale, rounded down to numbers of the grid."""
        if self.has_equal_parts and self.integral:
            offsets = np.floor(lengths).astype(np.uint64)
            return np.asarray(firsts.astype(np.int64).view(np.uint64) + offsets).view(np.int64)
        if self.has_equal_parts:
            half = lengths * (self.upper / 2 - self.lower / 2)  # added twice: the difference may overflow
            numbers = firsts + half + half
        else:
            numbers = _unstretch(_stretch(firsts.astype(float), self._unit) + lengths, self._unit)
        if self.integral:
            return np.clip(np.floor(numbers), -(2.0**63), _BELOW_2_63).astype(np.int64)
        return numbers if self.per_unit is None else np.floor(numbers * self.per_unit + 1e-6) / self.per_unit

    @property
    def _unit(self) -> float:
        """The size of the numbers that are near zero."""
        return _unit(self.lower, self.upper)

    def positions(self, numbers: np.ndarray) -> Float[np.ndarray, " values"]:
        """Positions between the bounds, from 0 to 1, clamped; each whole number is at the middle of an equal part."""
        if self.integral:
            return (self._offsets(np.clip(numbers, np.int64(self.lower), np.int64(self.upper))) + 0.5) / self.num_values
        half_length = self.upper / 2 - self.lower / 2  # halved first: the difference may overflow
        along = np.clip(numbers, self.lower, self.upper) / 2 - self.lower / 2
        return along / half_length if half_length else np.zeros(len(numbers))

    def edge_positions(self, numbers: np.ndarray) -> Float[np.ndarray, " values"]:
        """The positions at which the parts of these numbers begin: with decimals, halfway to the number before."""
        if self.integral:
            return self._offsets(numbers) / self.num_values
        positions = self.positions(numbers)
        return positions if self.per_unit is None else (self.positions(self.before(numbers)) + positions) / 2

    def numbers_at(self, positions: Float[np.ndarray, " values"]) -> np.ndarray:
        """The inverse of `positions`."""
        if self.integral:
            along = np.clip(positions, 0.0, 1.0 - 2.0**-53) * float(self.num_values)
            offset = np.minimum(np.floor(along).astype(np.uint64), np.uint64(self.num_values - 1))
            return np.asarray(np.asarray(self.lower, dtype=np.int64).view(np.uint64) + offset).view(np.int64)
        return np.clip(self.lower * (1 - positions) + self.upper * positions, self.lower, self.upper)

    def _offsets(self, numbers: np.ndarray) -> Float[np.ndarray, " values"]:
        """How far whole numbers are above the lower bound."""
        # Differences of 64-bit integers may exceed 2^63: in two's complement the unsigned difference is right.
        lower = np.asarray(self.lower, dtype=np.int64).view(np.uint64)
        return (np.asarray(numbers, dtype=np.int64).view(np.uint64) - lower).astype(float)


@dataclasses.dataclass(frozen=True)
class Histogram:
    """A released histogram of one numeric column: consecutive ranges of numbers with their noisy masses."""

    grid: Grid
    firsts: np.ndarray
    """The smallest number of each range, in order; the first is the lower bound."""
    masses: np.ndarray
    """If estimated, to six significant figures: digits below the noise say nothing about the column."""

    @classmethod
    def flat(cls, grid: Grid, *, num_bins: int) -> "Histogram":
        """Equal masses over equal parts: what is assumed when nothing is estimated."""
        grid = dataclasses.replace(grid, finest=num_bins, equal=True)
        lengths = cls(grid, grid.firsts, np.ones(grid.num_cells)).lengths
        return cls(grid, grid.firsts, lengths / lengths.sum())

    @property
    def is_sound(self) -> bool:
        """Whether ranges follow each other between the bounds, each with a mass: files may say anything."""
        grid, firsts, masses = self.grid, self.firsts, self.masses
        if grid.kind not in ("integer", "real", "date", "datetime") or firsts.ndim != 1 or firsts.shape != masses.shape:
            return False
        if type(grid.equal) is not bool or type(grid.decimals) not in (int, type(None)) or (grid.decimals or 0) < 0:
            return False
        greatest = 2**63 - 1 if grid.integral else sys.float_info.max
        if len(firsts) == 0 or firsts[0] != grid.lower or not firsts[-1] <= grid.upper <= greatest:
            return False
        return bool(np.all(firsts[1:] > firsts[:-1]) and np.all(np.isfinite(masses)) and np.all(masses >= 0))

    @functools.cached_property
    def lasts(self) -> np.ndarray:
        """The largest number of each range."""
        upper = np.asarray([self.grid.upper], dtype=self.firsts.dtype)
        return np.concatenate([self.grid.before(self.firsts[1:]), upper])

    @functools.cached_property
    def is_single(self) -> Bool[np.ndarray, " ranges"]:
        """Which ranges are one number."""
        return np.asarray(self.lasts == self.firsts)

    @functools.cached_property
    def is_spike(self) -> Bool[np.ndarray, " ranges"]:
        """Which ranges are several times as dense as each of their neighbours."""
        density = self.masses / self.lengths
        return np.asarray(density > SPIKE * np.maximum(np.r_[0.0, density[:-1]], np.r_[density[1:], 0.0]))

    @functools.cached_property
    def lengths(self) -> Float[np.ndarray, " ranges"]:
        """How long each range is on the grid's scale."""
        ends = self.grid.to_scale(self.lasts, end=True)
        return np.asarray(np.maximum(ends - self.grid.to_scale(self.firsts), 2.0**-60))

    @property
    def support(self) -> tuple[Any, Any]:
        """The smallest and the largest number with a mass."""
        filled = np.flatnonzero(self.masses > 0)
        if len(filled) == 0:
            return self.grid.lower, self.grid.upper
        return self.firsts[filled[0]].item(), self.lasts[filled[-1]].item()

    def draw(self, ranges: Int[np.ndarray, " rows"], *, generator: np.random.Generator) -> np.ndarray:
        """One number of each of these ranges, from a density that joins those of the neighbouring ranges."""
        low, high = self._end_densities
        low, high, uniform = low[ranges], high[ranges], generator.random(len(ranges))
        # The inverse of the distribution function of a density that goes from low to high.
        along = uniform * (low + high) / (low + np.sqrt(low**2 + (high**2 - low**2) * uniform))
        firsts, lasts = self.firsts[ranges], self.lasts[ranges]
        return np.asarray(np.clip(self.grid.from_scale(firsts, along * self.lengths[ranges]), firsts, lasts))

    def separated(self, numbers: Sequence[int | float]) -> "Histogram":
        """The same with ranges of their own for these numbers."""
        if not numbers:
            return self
        alone = self.grid.snap(np.asarray(numbers, dtype=self.firsts.dtype))
        following = self.grid.after(alone[alone < self.lasts[-1]])
        firsts = np.unique(np.concatenate([self.firsts, alone, following]))
        cut = Histogram(self.grid, firsts, np.zeros(len(firsts)))
        within = np.searchsorted(self.firsts, firsts, side="right") - 1
        fractions = cut.lengths / np.bincount(within, weights=cut.lengths)[within]
        return dataclasses.replace(cut, masses=self.masses[within] * fractions)

    def divided(self, parts: Int[np.ndarray, " ranges"]) -> "Histogram":
        """The same with each range cut into this many parts, equal on the grid's scale, where it has so many numbers.

        The mass of a range goes to its parts by the density that joins those of the neighbouring ranges.
        """
        low, high = self._end_densities
        firsts, masses = [], []
        for at in range(len(self.firsts)):
            along = np.arange(parts[at]) / parts[at]
            begins = self.grid.from_scale(np.repeat(self.firsts[at], parts[at]), along * self.lengths[at])
            begins[0] = self.firsts[at]  # exactly
            begins, kept = np.unique(np.clip(begins, self.firsts[at], self.lasts[at]), return_index=True)
            along = along[kept]
            below = np.r_[low[at] * along + (high[at] - low[at]) * along**2 / 2, (low[at] + high[at]) / 2]
            firsts.append(begins)
            masses.append(np.diff(below) / below[-1] * self.masses[at])
        return Histogram(self.grid, np.concatenate(firsts), np.concatenate(masses))

    @functools.cached_property
    def _end_densities(self) -> tuple[np.ndarray, np.ndarray]:
        """The density at both ends of each range: halfway to that of its neighbour; single numbers are passed over."""
        density = np.where(self.is_single, 0.0, np.maximum(self.masses, 0.0) / self.lengths)
        density = np.maximum(density / max(density.max(), 1e-300), 1e-12)
        spread = np.flatnonzero(~self.is_single)
        low, high = density.copy(), density.copy()
        if len(spread) > 1:
            inner = density[spread]
            low[spread[1:]] = (inner[1:] + inner[:-1]) / 2
            high[spread[:-1]] = (inner[1:] + inner[:-1]) / 2
        return low, high


@functools.lru_cache(maxsize=64)
def _firsts(grid: Grid) -> Numbers:
    firsts = _all_firsts(grid)
    firsts.setflags(write=False)
    return firsts


def _all_firsts(grid: Grid) -> Numbers:
    if grid.integral:
        return _whole_firsts(int(grid.lower), int(grid.upper), grid)
    if grid.per_unit is None:
        return _real_firsts(float(grid.lower), float(grid.upper), grid)
    along = np.array([grid.lower, grid.upper]) * grid.per_unit
    along = np.where(np.rint(along) / grid.per_unit == [grid.lower, grid.upper], np.rint(along), along)  # 0.29 is 29
    low, high = math.ceil(along[0]), math.floor(along[1])
    whole = _whole_firsts(low, high, grid) if low <= high else np.zeros(0, dtype=np.int64)
    numbers = np.unique(np.r_[float(grid.lower), whole / grid.per_unit])
    return numbers[(numbers >= grid.lower) & (numbers <= grid.upper)]


def _whole_firsts(low: int, high: int, grid: Grid) -> Int[np.ndarray, " cells"]:
    span = high - low + 1
    if span <= (grid.finest if grid.equal else 3 * grid.finest):
        return _added(low, np.arange(span, dtype=np.uint64))
    if grid.has_equal_parts:
        width, left = divmod(span, grid.finest)
        at = np.arange(grid.finest, dtype=np.uint64)
        starts = _added(low, at * np.uint64(width) + at * np.uint64(left) // np.uint64(grid.finest))
    else:
        edges = np.ceil(_stretched_edges(float(low), float(high), grid.finest))
        whole = np.clip(edges, -(2.0**63), _BELOW_2_63).astype(np.int64)
        starts = np.unique(np.r_[np.int64(low), np.clip(whole, np.int64(low), np.int64(high))])
    if grid.equal:
        return starts
    lasts = np.r_[starts[1:] - 1, np.int64(high)]
    steps = _MICROSECOND_STEPS if grid.kind == "datetime" else _INTEGER_STEPS
    at = np.searchsorted(steps, lasts - starts + 1, side="right") - 1
    roundest = starts.copy()
    for step in (steps[at], steps[np.minimum(at + 1, len(steps) - 1)]):  # the rounder one last
        quotient = starts // step
        multiple = (quotient + (quotient * step < starts)) * step
        inside = (multiple >= starts) & (multiple <= lasts)
        roundest[inside] = multiple[inside]
    return np.unique(np.concatenate([starts, roundest, roundest[roundest < lasts] + 1]))


def _real_firsts(low: float, high: float, grid: Grid) -> Float[np.ndarray, " cells"]:
    if grid.has_equal_parts:
        along = np.arange(grid.finest) / grid.finest
        starts = np.unique(np.clip(low * (1 - along) + high * along, low, high))
    else:
        starts = np.unique(np.r_[low, np.clip(_stretched_edges(low, high, grid.finest), low, high)])
    if grid.equal:
        return starts
    roundest = starts.copy()
    with np.errstate(all="ignore"):  # of numbers near 0 and infinity; what is not inside is left out
        ends = np.r_[starts[1:], np.nextafter(high, math.inf)]
        at = np.searchsorted(_REAL_STEPS, ends - starts, side="right") - 1
        for index in (np.maximum(at, 0), np.minimum(at + 1, len(_REAL_STEPS) - 1)):  # the rounder one last
            power, factor = index // 2 - 323, np.where(index % 2, 5.0, 1.0)
            up, down = _POWERS[np.maximum(power, 0)], _POWERS[np.clip(-power, 0, 308)]
            count = np.ceil(starts / _REAL_STEPS[index])
            multiple = count * factor * up / down + 0.0  # divided once: 3 / 10, not 3 * 0.1; and no negative zero
            inside = (multiple >= starts) & (multiple < ends)
            roundest[inside] = multiple[inside]
    following = np.nextafter(roundest, math.inf)
    return np.unique(np.concatenate([starts, roundest, following[following < ends]]))


def _stretched_edges(low: float, high: float, parts: int) -> Float[np.ndarray, " edges"]:
    """Inner edges that are equally far apart on the scale of `_stretch`."""
    unit = _unit(low, high)
    first, last = _stretch(np.array([low, high]), unit)
    return _unstretch(np.linspace(first, last, parts + 1)[1:-1], unit)


def _unit(low: float, high: float) -> float:
    """The size of the numbers that are near zero, given the bounds."""
    return max(float(high) * NEAR_ZERO - float(low) * NEAR_ZERO, np.finfo(float).tiny)


def _stretch(numbers: Float[np.ndarray, " values"], unit: float) -> Float[np.ndarray, " values"]:
    """A scale that is linear up to a unit, and then within each doubling of the number, which is one longer.

    Unlike a logarithm, it is the same on all processors: a run that is resumed elsewhere must count the same cells.
    """
    along = np.abs(numbers) / unit
    mantissa, exponent = np.frexp(np.maximum(along, 1.0))
    return np.asarray(np.copysign(np.where(along < 1, along, exponent + 2 * mantissa - 1), numbers))


def _unstretch(scaled: Float[np.ndarray, " values"], unit: float) -> Float[np.ndarray, " values"]:
    """The inverse of `_stretch`."""
    along = np.abs(scaled)
    doublings = np.floor(np.maximum(along - 1, 0.0))
    with np.errstate(over="ignore"):
        far = np.ldexp((along - doublings) * unit, doublings.astype(int))
    return np.asarray(np.copysign(np.where(along < 1, along * unit, far), scaled))


def _added(low: int, offsets: np.ndarray) -> Int[np.ndarray, " values"]:
    return np.asarray(np.asarray(low, dtype=np.int64).view(np.uint64) + offsets).view(np.int64)
