"""Sources that are read in batches of rows, any number of times; and the check that they stay the same meanwhile."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import TableError
from understudy.tables.origin import value_type


class BatchReader(NamedTuple):
    """The rows of a source in its own types, from the first in each call and always in the same order."""

    types: pa.Schema
    """The types of the batches. A file of a folder may have others."""

    read: Callable[[int], Iterator[pa.Table]]
    """The rows in batches, of at most the given number of rows where the source leaves a choice."""

    own: pa.Schema | None = None
    """The types that the source declares, if the batches are in others."""

    @classmethod
    def of_table(cls, table: pa.Table) -> "BatchReader":
        """The rows of a source that can only be read whole."""
        return cls(table.schema, lambda _: iter([table]))


def read_on(batches: Iterable[pa.Table], others: Callable[[], Iterable[pa.Table]]) -> Iterator[pa.Table]:
    """The batches; where Arrow cannot read on, the rows that are left of `others`, which may end elsewhere."""
    num_read = 0
    try:
        for batch in batches:
            yield batch
            num_read += batch.num_rows
        return
    except pa.ArrowInvalid:
        pass
    for batch in others():
        num_skipped = min(num_read, batch.num_rows)
        num_read -= num_skipped
        yield batch.slice(num_skipped)


Version = tuple[tuple[str | int, ...], ...]


def version_of(files: Sequence[Path]) -> Version:
    """Name, size, time and inode of each file, and of the log in which a database keeps its latest changes."""
    names = [f"{file}{ending}" for file in files for ending in ("", "-wal", ".wal")]
    return tuple((name, *_stamp(name)) for name in names)


def _stamp(file: str) -> tuple[int, ...]:
    """Its size, times and inode. Empty for an absent or empty file: even a reader of a database may create its log."""
    with contextlib.suppress(OSError):
        about = os.stat(file)
        return (about.st_size, about.st_mtime_ns, about.st_ino) if about.st_size else ()
    return ()


def read_equal(
    read: Callable[[], Iterator[pa.Table]], names: Sequence[str], where: str
) -> Callable[[], Iterator[pa.Table]]:
    """`read`, for rows that are computed anew in each pass: raises where a pass differs from the first in its rows or
    their order.

    What one pass finds out about a row, such as whether it is used, the next one looks up by its place: in another
    order it would be another row.
    """
    first: list[RowsDigest] = []

    def read_again() -> Iterator[pa.Table]:
        now = RowsDigest(names)
        for batch in read():
            now.add(batch)
            if first and now.num_rows > first[0].num_rows:
                raise _differing(where)
            yield batch
        if not first:
            first.append(now)
        elif now.digest() != first[0].digest():
            raise _differing(where)

    return read_again


def _differing(where: str) -> TableError:
    return TableError(
        f"{where}: the rows or their order change each time they are computed. Sort them by a key, or write the table "
        "to a file first."
    )


class RowsDigest:
    """The number of rows and a hash of their values in these columns, in their order, whatever the batches in which
    they came.

    For comparisons only: without a `key`, which nobody else knows, it must not leave memory.
    """

    def __init__(self, names: Sequence[str], key: bytes = b"") -> None:
        self.num_rows = 0
        parts = ("is known", "length", "content")
        self._hashes = {name: [hashlib.blake2b(key=key) for _ in parts] for name in names}

    def add(self, batch: pa.Table) -> None:
        self.num_rows += batch.num_rows
        for name, (known, lengths, content) in self._hashes.items():
            values = batch.column(name)
            values = values.cast(value_type(values.type))
            known.update(pc.is_valid(values).to_numpy().tobytes())
            for chunk in values.drop_null().chunks:
                if pa.types.is_nested(chunk.type) or pa.types.is_time(chunk.type) or pa.types.is_interval(chunk.type):
                    content.update("".join(map(repr, chunk.to_pylist())).encode())
                elif not (pa.types.is_primitive(chunk.type) or pa.types.is_boolean(chunk.type)):
                    chunk = chunk.cast(pa.large_binary() if pa.types.is_binary(chunk.type) else pa.large_string())
                    lengths.update(pc.binary_length(chunk).to_numpy().tobytes())
                    ends = np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
                    content.update(memoryview(chunk.buffers()[2] or b"")[ends[0] : ends[-1]])
                else:
                    content.update(chunk.to_numpy(zero_copy_only=False).tobytes())

    def digest(self) -> bytes:
        return b"".join(part.digest() for parts in self._hashes.values() for part in parts)

    def of_table(self, schema: pa.Schema) -> bytes:
        """The same for a whole table: the names and types of its columns and the number of rows are part of it."""
        columns = [[field.name, str(field.type)] for field in schema]
        return json.dumps([self.num_rows, columns]).encode() + self.digest()
