"""The counting kernel on JAX's default device, which may be a GPU. The counts are those of `counting.py`."""

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Int64, Integer

PART_ROWS = 2**20
"""Rows that are counted at once: their counts fit 32 bits."""


def count_on_device(
    codes: Integer[np.ndarray, "rows columns"], cliques: Sequence[tuple[int, ...]], sizes: Sequence[int]
) -> list[Int64[np.ndarray, " cells"]]:
    """The counts of each clique, as a vector. Each part of the rows is counted there, and the parts are added here.

    >>> [counts.tolist() for counts in count_on_device(np.array([[0, 1], [1, 1]]), [(0, 1), (1,)], (2, 2))]
    [[0, 1, 0, 1], [0, 2]]
    """
    tables = [np.zeros(math.prod(sizes[column] for column in clique), dtype=np.int64) for clique in cliques]
    for first in range(0, len(codes), PART_ROWS):
        part = codes[first : first + PART_ROWS]
        columns = [jnp.asarray(np.pad(column, (0, PART_ROWS - len(part)))) for column in part.T]
        for table, clique in zip(tables, cliques, strict=True):
            num_cells = 1 << (table.size - 1).bit_length()  # few sizes, so that few programs are compiled
            own_sizes = np.asarray([sizes[column] for column in clique], dtype=np.int32)
            counts = _counts_of_part(tuple(columns[c] for c in clique), own_sizes, np.int32(len(part)), num_cells)
            table += np.asarray(counts)[: table.size]
    return tables


@functools.partial(jax.jit, static_argnums=3)
def _counts_of_part(
    columns: tuple[Integer[Array, " rows"], ...],
    sizes: Int[Array, " columns"],
    num_rows: Int[Array, ""],
    num_cells: int,
) -> Int[Array, " cells"]:
    """Counts of the first `num_rows` rows; the rest is padding."""
    cells = jnp.zeros(PART_ROWS, jnp.int32)
    for at, column in enumerate(columns):
        cells = cells * sizes[at] + column.astype(jnp.int32)
    is_row = (jnp.arange(PART_ROWS, dtype=jnp.int32) < num_rows).astype(jnp.int32)
    return jnp.zeros(num_cells, jnp.int32).at[cells].add(is_row)
