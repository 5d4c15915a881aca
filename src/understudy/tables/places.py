"""Places: what `people.csv` or `clinic.sqlite::patients` means, and what is wrong with it in one line."""

import contextlib
import dataclasses
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from understudy.errors import TableError, UnderstudyError

TEXT_SUFFIXES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
POSTGRES = ("postgresql://", "postgres://")

_SUFFIXES = (".csv", ".tsv", ".parquet", ".feather", ".arrow", ".jsonl", ".ndjson", ".sqlite", ".duckdb")
_FORMATS = (*TEXT_SUFFIXES, ".jsonl", ".parquet", ".feather", ".arrow", ".sqlite", ".duckdb")
_ALIASES = {".pq": ".parquet", ".ipc": ".arrow", ".ndjson": ".jsonl", ".sqlite3": ".sqlite", ".ddb": ".duckdb"}
_COMPRESSED = (".gz", ".zst", ".bz2")
TABLE_ENDINGS = frozenset((*_SUFFIXES, *_FORMATS, *_ALIASES, *_COMPRESSED))
_KNOWN = f"Known endings: {', '.join(_SUFFIXES)} (text also with .gz), and postgresql://user@host/db::table."


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a table lies: a file, or one table of a database."""

    path: Path
    suffix: str
    """The canonical ending, or postgres."""
    table: str | None = None
    url: str = ""
    compressed: bool = False

    @classmethod
    def of(cls, source: str | Path) -> "Place":
        """Reads `people.csv`, `people.sqlite::patients` or a PostgreSQL address."""
        text = str(source)
        before, mark, after = text.rpartition("::")
        url, table = (before, after or None) if mark else (text, None)
        if url.startswith(POSTGRES):
            return cls(Path(), "postgres", table, url)
        if mark and _suffix_of(Path(before)) in (".sqlite", ".duckdb", ".db"):
            path = Path(before)
        else:
            path, table = Path(text), None
        suffix = _suffix_of(path)
        if suffix == ".db":
            suffix = _database_kind(path)
        if path.is_dir():
            raise TableError(f"{path} is a folder, expected a file. Name one file in it.")
        if suffix not in _FORMATS:
            raise TableError(f"{path} ends in {suffix or 'nothing'}, which names no known format. {_KNOWN}")
        compressed = path.suffix.lower() in _COMPRESSED
        if compressed and suffix not in (*TEXT_SUFFIXES, ".jsonl"):
            raise TableError(f"{path}: only text files are read and written compressed. Decompress it first.")
        return cls(path, suffix, table, compressed=compressed)

    @property
    def _plain_table(self) -> str:
        """The name without the default database schema; in file databases names ignore case."""
        if self.suffix == "postgres":
            return (self.table or "").removeprefix("public.")
        return (self.table or "").lower().removeprefix("main.")

    def __str__(self) -> str:
        address = re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", self.url) if self.url else str(self.path)
        return f"{address}::{self.table}" if self.table else address


def is_same_source(first: object, second: object) -> bool:
    """Whether two sources are the same object, file or database table. Reads no row of either."""
    if not (isinstance(first, str | os.PathLike) and isinstance(second, str | os.PathLike)):
        return first is second
    one, other = (Place.of(os.fspath(source)) for source in (first, second))
    if one.suffix == "postgres" or other.suffix == "postgres":
        same = one.url == other.url
    else:
        same = os.path.realpath(one.path) == os.path.realpath(other.path)
        with contextlib.suppress(OSError):
            same = same or os.path.samefile(one.path, other.path)
    # Without a name, the only table of the database is meant.
    return same and (one.table is None or other.table is None or one._plain_table == other._plain_table)


def _suffix_of(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    return _ALIASES.get(suffix, suffix)


def _database_kind(path: Path) -> str:
    """A .db file says in its first bytes what it is; a new one becomes SQLite."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        if file.read(12)[8:] == b"DUCK":
            return ".duckdb"
    return ".sqlite"


def require_file(path: Path, *, may_be_empty: bool = False) -> None:
    """There is a file to read, and this user may."""
    if not path.exists():
        raise TableError(f"{path} does not exist. Check the spelling and the folder.")
    if not os.access(path, os.R_OK):
        raise TableError(f"{path} may not be read by this user. Change its permissions.")
    if path.stat().st_size == 0 and not may_be_empty:
        raise TableError(f"{path} is empty (0 bytes). Expected a table with a header and rows.")


def require_names(names: Sequence[str], where: str) -> None:
    """Each column has a name of its own."""
    twice = [repr(name) for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(
            f"{where} has duplicate column names: {', '.join(twice)}. Rename them, so that each is there once."
        )
    if not names:
        raise TableError(f"{where} has no columns. Expected at least one.")
    for position, name in enumerate(names, start=1):
        if not name.strip():
            raise TableError(
                f"Column {position} of {where} has no name (pandas writes its index so). Name it, or leave it out."
            )


def require_typed(table: pa.Table, where: str) -> None:
    """Without a schema, a table without rows needs types of its own: its kinds cannot be inferred otherwise."""
    if table.num_rows:
        return
    open_ = [repr(f.name) for f in table.schema if pa.types.is_null(f.type) or b"untyped" in (f.metadata or {})]
    if open_:
        raise TableError(
            f"{where} has columns but no rows, so the kinds of its columns cannot be found ({', '.join(open_[:5])})."
            " Declare them in a schema."
        )


@contextlib.contextmanager
def said_plainly(place: Place) -> Iterator[None]:
    """Errors of the readers in one line of ours: theirs quote rows."""
    try:
        yield
    except UnderstudyError:
        raise
    except MemoryError:
        raise TableError(f"{place} does not fit into memory.") from None
    except (pa.ArrowException, duckdb.Error, sqlite3.Error, OSError, ValueError):
        name = {"postgres": "PostgreSQL", ".jsonl": "JSON lines"}.get(place.suffix, place.suffix[1:].capitalize())
        raise TableError(f"{place} cannot be read as {name}: it is damaged, cut short, or of another format.") from None
