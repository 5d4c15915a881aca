"""Codes of private rows, in as few bytes as they need: one byte for a column of up to 256 codes."""

import functools
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int, Int64, Integer

from understudy.privacy.rows.kernel import Columns, count_workload
from understudy.privacy.rows.scratch import Scratch


@runtime_checkable
class Codes(Protocol):
    """The codes of all rows: in this process, or on a cluster, which counts but does not hand out rows."""

    def count(self, workload: Sequence[Columns], sizes: Sequence[int]) -> Int64[np.ndarray, " cells"]:
        """All counts of the workload, made in one pass, as one vector (`split_counts`). Exact: noise must follow."""

    def only(self, at: Sequence[int]) -> "Codes":
        """The same rows with the columns at these indices."""

    def part(self, kept: np.ndarray) -> "Codes":
        """The rows that are marked."""

    @property
    def array(self) -> Integer[np.ndarray, "rows columns"]:
        """The rows, for methods that train on them; refused where they are remote."""


class ArrayCodes:
    """Codes in an array of this process: in memory, or mapped from a file."""

    def __init__(
        self,
        array: Integer[np.ndarray, "rows columns"],
        at: Sequence[int] | None = None,
        scratch: Scratch | None = None,
    ):
        """`at` lists the columns that are used; None: all. `scratch` is where the array is, if not in memory."""
        self._array, self._at, self._scratch = array, None if at is None else tuple(at), scratch

    def count(self, workload: Sequence[Columns], sizes: Sequence[int]) -> Int64[np.ndarray, " cells"]:
        import jax  # only here: tasks of a cluster count without it

        own = range(self._array.shape[1]) if self._at is None else self._at
        whole = np.ones(self._array.shape[1], dtype=np.int64)
        whole[list(own)] = sizes
        cliques = [tuple(own[column] for column in clique) for clique in workload]
        return count_workload(self._array, cliques, whole.tolist(), on_device=jax.default_backend() != "cpu")

    def only(self, at: Sequence[int]) -> "ArrayCodes":
        return ArrayCodes(self._array, at if self._at is None else [self._at[index] for index in at], self._scratch)

    def part(self, kept: np.ndarray) -> "ArrayCodes":
        if self._scratch is None:
            return ArrayCodes(self.array[kept])
        return ArrayCodes(self._scratch._copy(self._array, kept), self._at, self._scratch)

    @functools.cached_property
    def array(self) -> Integer[np.ndarray, "rows columns"]:
        if self._at is None:
            return self._array
        first = min(self._at, default=0)
        last = first + len(self._at)
        together = self._at == tuple(range(first, last))  # a part of a file is then not copied into memory
        return self._array[:, first:last] if together else self._array[:, list(self._at)]


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
