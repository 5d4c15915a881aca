"""Sources that are read in batches of rows, as often as wanted; and the check that they stay the same meanwhile."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from understudy.errors import TableError


class BatchReader(NamedTuple):
    """The rows of a source in its own types, from the first in each call and always in the same order."""

    types: pa.Schema
    """The types of the batches. A file of a folder may have others."""

    read: Callable[[int], Iterator[pa.Table]]
    """The rows in batches, of at most the given number of rows where the source leaves a choice."""

    own: pa.Schema | None = None
    """The types that the source declares, if the batches are in others."""


Version = tuple[tuple[int, int, int] | None, ...]


def version_of(files: Sequence[Path]) -> Version:
    """Size, time and inode of each file, and of the log in which a database keeps its latest changes."""
    return tuple(_stamp(Path(f"{file}{ending}")) for file in files for ending in ("", "-wal", ".wal"))


def _stamp(file: Path) -> tuple[int, int, int] | None:
    """None for a file that is absent or empty: even a reader of a database may create its log."""
    with contextlib.suppress(OSError):
        about = os.stat(file)
        return (about.st_size, about.st_mtime_ns, about.st_ino) if about.st_size else None
    return None


def read_unchanged(
    batches: Iterator[pa.Table], version: Version, version_now: Callable[[], Version], where: str
) -> Iterator[pa.Table]:
    """The batches; raises if the files have another version before, after, or when reading fails.

    All passes over a table must see the same rows.
    """

    def check() -> None:
        if version_now() != version:
            raise TableError(f"{where} changed while it was read. Run again.") from None

    check()
    try:
        yield from batches
    except TableError:  # a file that is being written looks damaged
        check()
        raise
    check()
