"""Counting rows in joint cells of columns, and distances between two histograms.

All distances are between frequencies on one grid: equal bins over a numeric column's range, the categories of a
discrete one, a cell for nulls and one for unlisted values.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from understudy.errors import ConfigError
from understudy.evaluation.scores import Score
from understudy.evaluation.table import EncodedTable

DENSE_CELLS = 1_000_000
"""Joint tables up to this size, or that of the real table, are counted densely; larger ones by sorting the rows."""
CHUNK_ROWS = 1 << 18
"""Rows counted at a time: their joint keys stay in the cache, and memory does not grow with the table."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """Both tables as small integer codes, column by column."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    real: tuple[np.ndarray, ...]
    synthetic: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, real: EncodedTable, synthetic: EncodedTable, bins: int, names: Sequence[str] | None = None) -> "Grid":
        if bins < 1:
            raise ConfigError(f"bins must be at least 1, found {bins}.")
        names = real.layout.names if names is None else tuple(names)
        return cls.from_codes(names, [(real.bin_codes(t, bins)[0], *synthetic.bin_codes(t, bins)) for t in names])

    @classmethod
    def from_codes(cls, names: tuple[str, ...], columns: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> "Grid":
        """From the codes of both tables and their number, for each column; kept in the smallest integer type."""
        real = tuple(codes.astype(np.min_scalar_type(size - 1)) for codes, _, size in columns)
        synthetic = tuple(codes.astype(np.min_scalar_type(size - 1)) for _, codes, size in columns)
        return cls(names, tuple(size for _, _, size in columns), real, synthetic)

    def counts(self, axes: Sequence[int]) -> tuple[Int[np.ndarray, " cells"], Int[np.ndarray, " cells"]]:
        """Counts of both tables over the joint cells of some columns; of a large table only the occupied cells."""
        sizes = [self.sizes[axis] for axis in axes]
        real, synthetic = ([codes[axis] for axis in axes] for codes in (self.real, self.synthetic))
        if math.prod(sizes) <= max(DENSE_CELLS, len(real[0])):
            return dense_counts(real, sizes), dense_counts(synthetic, sizes)
        _, real_counts, synthetic_counts = align_counts(*joint_keys((real, synthetic), sizes))
        return real_counts, synthetic_counts

    def tv(self, axes: Sequence[int]) -> float:
        return total_variation(*map(frequencies, self.counts(axes)))

    def occupied_cells(self) -> tuple[Int[np.ndarray, "cells columns"], np.ndarray, np.ndarray]:
        """The joint cells of all columns that hold any row, as codes, with the counts of both tables."""
        first, *counts = align_counts(*joint_keys((self.real, self.synthetic), self.sizes))
        cells = np.stack([np.concatenate(pair)[first] for pair in zip(self.real, self.synthetic, strict=True)], axis=1)
        return cells.astype(np.int64), counts[0], counts[1]


def dense_counts(codes: Sequence[np.ndarray], sizes: Sequence[int]) -> Int[np.ndarray, " cells"]:
    """Rows in each joint cell, in C order."""
    cells = math.prod(sizes)
    counts = np.zeros(cells, dtype=np.int64)
    step = max(CHUNK_ROWS, cells)  # adding up the chunks must not cost more than counting them
    for start in range(0, len(codes[0]), step):
        part = [column[start : start + step] for column in codes]
        counts += np.bincount(joint_keys((part,), sizes)[0], minlength=cells)
    return counts


def joint_keys(tables: Sequence[Sequence[np.ndarray]], sizes: Sequence[int]) -> list[Int[np.ndarray, " rows"]]:
    """One number for each row of each table; equal exactly where all of these columns are equal."""
    first, *others = zip(*tables, strict=True)
    keys, cells = [column.astype(np.int64) for column in first], sizes[0]
    for columns, size in zip(others, sizes[1:], strict=True):
        if cells * size >= 2**62:  # number the keys that occur, so that the next column fits
            distinct, ranks = np.unique(np.concatenate(keys), return_inverse=True)
            keys, cells = np.split(ranks, np.cumsum([len(key) for key in keys])[:-1]), len(distinct)
        keys = [key * size + column for key, column in zip(keys, columns, strict=True)]
        cells *= size
    return keys


def align_counts(real: np.ndarray, synthetic: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first row of each key, in the order of the keys and counted over both tables, and how often each has it."""
    distinct, first, ranks = np.unique(np.concatenate([real, synthetic]), return_index=True, return_inverse=True)
    ours, theirs = (np.bincount(part, minlength=len(distinct)) for part in np.split(ranks, [len(real)]))
    return first, ours, theirs


def frequencies(counts: np.ndarray) -> Float[np.ndarray, " cells"]:
    return counts / counts.sum()


def total_variation(p: np.ndarray, q: np.ndarray) -> float:
    return 0.5 * float(np.abs(p - q).sum())


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> float:
    """Jensen-Shannon divergence in bits."""
    middle = (p + q) / 2
    parts = [each[each > 0] * np.log2(each[each > 0] / middle[each > 0]) for each in (p, q)]
    return max(0.0, float(sum(part.sum() for part in parts)) / 2)


def row_counts(real: EncodedTable, synthetic: EncodedTable) -> dict[str, object]:
    """The numbers of rows, for the settings of a result."""
    return {"real_rows": real.num_rows, "synthetic_rows": synthetic.num_rows}


def mean_and_max(values: Sequence[float], why: str) -> tuple[Score, Score]:
    if not values:
        return Score.none(why), Score.none(why)
    return Score(float(np.mean(values))), Score(float(np.max(values)))


def round_matrix(values: np.ndarray) -> list[list[float | None]]:
    """JSON-safe: five digits, None where there is no value."""
    return [[None if math.isnan(value) else round(value, 5) for value in row] for row in values.tolist()]
