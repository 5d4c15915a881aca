"""Codes of private rows, in as few bytes as they need: one byte for a column of up to 256 codes."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int, Integer

ROWS_AT_ONCE = 2**18
"""Rows that are counted at once: their cells fit into the cache of a processor."""


def code_type(sizes: Sequence[int]) -> np.dtype:
    """The smallest unsigned type that holds every code.

    >>> code_type((2, 256)).name, code_type((2, 257)).name
    ('uint8', 'uint16')
    """
    return np.min_scalar_type(max(sizes, default=1) - 1)


class CodeStore:
    """Collects the codes of a table batch by batch, each column side by side in memory."""

    def __init__(self, sizes: Sequence[int]):
        self._num_columns, self._type = len(sizes), code_type(sizes)
        self._parts: list[np.ndarray] = []

    def append(self, codes: Int[np.ndarray, "rows columns"]) -> None:
        """Adds the codes of a batch."""
        self._parts.append(np.asfortranarray(codes, dtype=self._type))

    def finish(self) -> Integer[np.ndarray, "rows columns"]:
        """All codes. The store is empty afterwards, so that they are held once."""
        total = sum(map(len, self._parts))
        whole = np.empty((total, self._num_columns), dtype=self._type, order="F")
        start = 0
        while self._parts:
            part = self._parts.pop(0)
            whole[start : start + len(part)] = part
            start += len(part)
        return whole


def count_cells(
    codes: Integer[np.ndarray, "rows columns"], at: Sequence[int], shape: Sequence[int]
) -> Int[np.ndarray, "..."]:
    """How many rows have each combination of codes in the columns `at`. Exact: noise must follow."""
    num_cells = int(np.prod(shape, dtype=np.int64))
    counts = np.zeros(num_cells, dtype=np.int64)
    for start, stop in _parts(len(codes), num_cells):
        cells = np.zeros(stop - start, dtype=np.int64)
        for column, size in zip(at, shape, strict=True):
            cells *= size
            cells += codes[start:stop, column]
        counts += np.bincount(cells, minlength=num_cells)
    return counts.reshape(tuple(shape))


def _parts(num_rows: int, num_cells: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows, each of at least as many rows as there are cells, whose counts are added."""
    step = max(ROWS_AT_ONCE, num_cells)
    return ((start, min(start + step, num_rows)) for start in range(0, num_rows, step))
