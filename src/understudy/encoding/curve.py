"""The Hilbert curve: an order of the cells of a square grid in which consecutive cells are neighbours on the map.

The first digits of an index are the index of a larger square, so ranges of indices are unions of a few squares.
"""

import numpy as np
from jaxtyping import Int

Cells = Int[np.ndarray, " points"]

CHUNK = 2**14
"""Points that are converted at once: their arrays stay in the cache."""


def to_index(x: Cells, y: Cells, levels: int) -> Cells:
    """The index of each cell of a grid with `2**levels` cells on a side.

    >>> to_index(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 0]), 1).tolist()
    [0, 1, 2, 3]
    """
    index = np.empty(len(x), dtype=np.int64)
    for start in range(0, len(x), CHUNK):
        part = slice(start, start + CHUNK)
        index[part] = _chunk_to_index(x[part], y[part], levels)
    return index


def _chunk_to_index(x: Cells, y: Cells, levels: int) -> Cells:
    x, y = x.astype(np.int64), y.astype(np.int64)
    last = np.int64(2**levels - 1)
    index = np.zeros_like(x)
    for level in range(levels - 1, -1, -1):
        right, up = (x >> level) & 1, (y >> level) & 1
        index = (index << 2) | ((3 * right) ^ up)
        x, y = _turn(x, y, right, up, last)
    return index


def to_cell(index: Cells, levels: int) -> tuple[Cells, Cells]:
    """The inverse of `to_index`."""
    x, y = np.empty(len(index), dtype=np.int64), np.empty(len(index), dtype=np.int64)
    for start in range(0, len(index), CHUNK):
        part = slice(start, start + CHUNK)
        x[part], y[part] = _chunk_to_cell(index[part], levels)
    return x, y


def _chunk_to_cell(index: Cells, levels: int) -> tuple[Cells, Cells]:
    x, y = np.zeros(len(index), dtype=np.int64), np.zeros(len(index), dtype=np.int64)
    for level in range(levels):
        digit = (index >> (2 * level)) & 3
        right = digit >> 1
        up = (digit & 1) ^ right
        x, y = _turn(x, y, right, up, np.int64(2**level - 1))
        x, y = x | (right << level), y | (up << level)
    return x, y


def _turn(x: Cells, y: Cells, right: Cells, up: Cells, last: np.int64) -> tuple[Cells, Cells]:
    """The lower quadrants are mirrored, so that the curve enters and leaves them at their neighbours.

    In bits, without branches: x ^ last is last - x, and adding a difference to both exchanges them.
    """
    flip = -(right & (up ^ 1)) & last
    x, y = x ^ flip, y ^ flip
    exchange = (x ^ y) & -(up ^ 1)
    return x ^ exchange, y ^ exchange
