"""Batches of private rows, read anew in every pass: in this process, or in the tasks of a cluster.

Queries that only count go through `fold`: each batch becomes a small part, and parts are added. Where rows live on a
cluster, its tasks make the parts, and nothing else leaves them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa

from understudy.privacy.rows.codes import ArrayCodes, Codes, CodeStore, code_type
from understudy.privacy.rows.scratch import Scratch
from understudy.privacy.rows.units import RemoteUnits, rows_within_units

Batch = TypeVar("Batch")
Batch_co = TypeVar("Batch_co", covariant=True)
Mapped = TypeVar("Mapped")
"""What a function makes of a batch: still rows."""
Part = TypeVar("Part", bound=np.ndarray | tuple[Any, ...])
"""Counts of a batch, or of its values, which are sent without pickle; in this process, those of several queries."""


@runtime_checkable
class PrivateBatches(Protocol[Batch_co]):
    """Batches of rows that queries read. The functions passed in are pure and treat each row by itself; a cluster sends
    them to its tasks, so they hold no open file or connection."""

    @property
    def is_remote(self) -> bool:
        """Whether rows stay on a cluster. A public fact."""

    @property
    def _num_rows(self) -> int | None:
        """The exact number of rows, if it was counted while reading, which saves a pass. Noise must be added to it."""
        return None

    @property
    def _digest(self) -> bytes | None:
        """A hash of all rows without a key, if one was made while reading. It must not leave memory."""
        return None

    def __iter__(self) -> Iterator[Batch_co]:
        """The batches, always in the same order; refused where they are remote."""

    def map(self, function: Callable[[Batch_co], Mapped]) -> "PrivateBatches[Mapped]":
        """Every batch mapped through a function, anew in each pass."""

    def fold(self, count: Callable[[Batch_co], Part], add: Callable[[Sequence[Part]], Part]) -> Part:
        """One pass: the sum of what `count` makes of each batch. Exact: noise must follow.

        `add` joins parts, in their order, and may reuse the memory of the first. How often it is called, and with how
        many parts, must not change the result.
        """

    def to_codes(self: "PrivateBatches[np.ndarray]", sizes: Sequence[int]) -> Codes:
        """Batches of codes as one: made once, counted many times. `sizes` has the number of codes of each column."""

    def limit_units(
        self: "PrivateBatches[pa.Table]", unit: str, columns: Sequence[str], max_rows_per_unit: int
    ) -> "tuple[PrivateBatches[pa.Table], np.ndarray | RemoteUnits]":
        """The rows that `rows_within_units` marks, and their units."""

    def close(self) -> None:
        """Ends the run: drops what a cluster kept for it."""
        return None


class LocalBatches(PrivateBatches[Batch]):
    """Batches that this process reads."""

    is_remote = False

    def __init__(self, source: Iterable[Batch], scratch: Scratch | None = None):
        """`source` must give the same rows in the same order whenever it is read. `scratch` is where their codes are
        kept; None: in memory."""
        self._source, self._scratch = source, scratch

    def __repr__(self) -> str:
        return "LocalBatches(...)"

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._source)

    @property
    def _num_rows(self) -> int | None:
        return getattr(self._source, "num_rows", None)  # a stream that was read to its end counted them

    @property
    def _digest(self) -> bytes | None:
        return getattr(self._source, "digest", None)

    def map(self, function: Callable[[Batch], Mapped]) -> "LocalBatches[Mapped]":
        return LocalBatches(_Mapped(self._source, function), self._scratch)

    def fold(self, count: Callable[[Batch], Part], add: Callable[[Sequence[Part]], Part]) -> Part:
        """Parts wait until they take as much memory as their sum so far: so each is added a few times only, and little
        is held."""
        parts = map(count, self._source)
        total = next(parts)
        waiting: list[Part] = []
        for part in parts:
            waiting.append(part)
            if sum(map(_num_bytes, waiting)) >= _num_bytes(total):
                total, waiting = add([total, *waiting]), []
        return add([total, *waiting]) if waiting else total

    def to_codes(self: "LocalBatches[np.ndarray]", sizes: Sequence[int]) -> Codes:
        store = CodeStore(sizes) if self._scratch is None else self._scratch._create(len(sizes), code_type(sizes))
        for codes in self._source:
            store.append(codes)
        return ArrayCodes(store.finish(), scratch=self._scratch)

    def reserve_scratch(self: "LocalBatches[pa.Table]", sizes: Sequence[int]) -> None:
        """Takes the space for the codes of all rows in the scratch folder, if there is one. `sizes` are the largest
        possible numbers of codes. A full disk is then found before anything is charged."""
        if self._scratch is None:
            return
        num_rows = sum(batch.num_rows for batch in self._source) if self._num_rows is None else self._num_rows
        self._scratch._reserve(num_rows, len(sizes), code_type(sizes))

    def limit_units(
        self: "LocalBatches[pa.Table]", unit: str, columns: Sequence[str], max_rows_per_unit: int
    ) -> tuple["LocalBatches[pa.Table]", np.ndarray]:
        kept, numbers = rows_within_units(self._source, unit, columns, max_rows_per_unit)
        return LocalBatches(_Marked(self._source, kept), self._scratch), numbers[kept]


def add_arrays(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The sum of counts."""
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


def add_each(parts: Sequence[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """The sums of counts, each array by itself."""
    return tuple(add_arrays(own) for own in zip(*parts, strict=True))


def _num_bytes(part: "np.ndarray | pa.Table | tuple[Any, ...]") -> int:
    return sum(map(_num_bytes, part)) if isinstance(part, tuple) else part.nbytes


class _Mapped(Generic[Batch, Mapped]):
    """Batches through a function, computed anew whenever they are read."""

    def __init__(self, source: Iterable[Batch], function: Callable[[Batch], Mapped]):
        self._source, self._function = source, function

    def __iter__(self) -> Iterator[Mapped]:
        return map(self._function, self._source)


class _Marked:
    """Batches without the rows that are not marked, in the order of the marks."""

    def __init__(self, source: Iterable[pa.Table], marks: np.ndarray):
        self._source, self._marks = source, marks

    def __iter__(self) -> Iterator[pa.Table]:
        start = 0
        for batch in self._source:
            yield batch.filter(pa.array(self._marks[start : start + batch.num_rows]))
            start += batch.num_rows
