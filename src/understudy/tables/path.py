"""Paths of tables, such as `people.csv` or `clinic.sqlite::patients`, and checks of what is there."""

import contextlib
import dataclasses
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import duckdb
import pyarrow as pa

from understudy.errors import TableError, UnderstudyError, raise_alone

TEXT_SUFFIXES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
POSTGRES = ("postgresql://", "postgres://")

_SUFFIXES = (".csv", ".tsv", ".parquet", ".feather", ".arrow", ".jsonl", ".ndjson", ".sqlite", ".duckdb")
_READ_ONLY = {".xlsx": "Excel", ".dta": "Stata", ".sav": "SPSS", ".sas7bdat": "SAS", ".xpt": "SAS"}
"""Formats that can be read and not written."""
_OTHER_SHEETS = (".xls", ".xlsb", ".ods", ".numbers")
_FORMATS = (*TEXT_SUFFIXES, ".jsonl", ".parquet", ".feather", ".arrow", ".sqlite", ".duckdb", *_READ_ONLY)
_ALIASES = {
    **{".pq": ".parquet", ".ipc": ".arrow", ".ndjson": ".jsonl", ".sqlite3": ".sqlite", ".ddb": ".duckdb"},
    **{".xlsm": ".xlsx", ".zsav": ".sav"},
}
_COMPRESSED = (".gz", ".zst", ".bz2")
TABLE_ENDINGS = frozenset((*_SUFFIXES, *_FORMATS, *_ALIASES, *_COMPRESSED))


def table_stem(name: str) -> str:
    """A file name without the endings of a table."""
    while Path(name).suffix.lower() in TABLE_ENDINGS:
        name = Path(name).stem
    return name


_KNOWN = (
    f"Known endings: {', '.join(_SUFFIXES)} (text also with .gz), and postgresql://user@host/db::table; to read only:"
    f" {', '.join(_READ_ONLY)}."
)


@dataclasses.dataclass(frozen=True)
class TablePath:
    """A file, a folder of Parquet files, or one table of a database."""

    path: Path
    suffix: str
    """The canonical ending of the file name, or "postgres"."""
    table: str | None = None
    url: str = ""

    @classmethod
    def parse(cls, source: str | Path) -> "TablePath":
        """Reads `people.csv`, a folder of Parquet files, `people.sqlite::patients` or a PostgreSQL address."""
        text = str(source)
        before, mark, after = text.rpartition("::")
        url, table = (before, after or None) if mark else (text, None)
        if url.startswith(POSTGRES):
            return cls(Path(), "postgres", table, url)
        if mark and _suffix_of(Path(before)) in (".sqlite", ".duckdb", ".db", ".xlsx", *_OTHER_SHEETS):
            path = Path(before)
        else:
            path, table = Path(text), None
        suffix = _suffix_of(path)
        if suffix == ".db":
            suffix = _database_kind(path)
        if path.is_dir():
            if suffix in _FORMATS and suffix != ".parquet":
                raise TableError(f"{path} is a folder, expected a file. Name a file in it.")
            return cls(path, ".parquet")
        if suffix in _OTHER_SHEETS:
            raise TableError(f"{path} ends in {suffix}, which cannot be read. Save it as .xlsx or CSV.")
        if suffix not in _FORMATS:
            raise TableError(f"{path} ends in {suffix or 'nothing'}, which is not a known format. {_KNOWN}")
        if path.suffix.lower() in _COMPRESSED and suffix not in (*TEXT_SUFFIXES, ".jsonl"):
            raise TableError(f"{path}: only text files can be compressed. Decompress it first.")
        return cls(path, suffix, table)

    @property
    def name(self) -> str:
        """The name of the file or of the table in a database, without folder or address."""
        parts = (self.path.name, self.table)
        return "::".join(part for part in parts if part) or "postgresql"

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of Parquet files."""
        return self.suffix == ".parquet" and self.path.is_dir()

    @property
    def read_only(self) -> str | None:
        """The name of the format if it cannot be written."""
        return "PostgreSQL" if self.suffix == "postgres" else _READ_ONLY.get(self.suffix)

    @property
    def _normal_name(self) -> str:
        """The table name without the default database schema; in file databases, in lower case."""
        if self.suffix == "postgres":
            return (self.table or "").removeprefix("public.")
        return (self.table or "").lower().removeprefix("main.")

    def __str__(self) -> str:
        address = re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", self.url) if self.url else str(self.path)
        return f"{address}::{self.table}" if self.table else address


SourceId: TypeAlias = TablePath | int
"""Identifies a source without holding any of its rows: the table path, or the `id` of an object."""


def source_id(source: object) -> SourceId:
    """The identity of a frame or path. That of a frame is its own only while the frame exists."""
    return TablePath.parse(os.fspath(source)) if isinstance(source, str | os.PathLike) else id(source)


def is_same_source(one: SourceId, other: SourceId) -> bool:
    """Whether two sources are the same object, file or database table. Reads no row of either."""
    if not (isinstance(one, TablePath) and isinstance(other, TablePath)):
        return one == other
    if one.suffix == "postgres" or other.suffix == "postgres":
        same = one.url == other.url
    else:
        paths = [Path(os.path.realpath(source.path)) for source in (one, other)]
        same = paths[0].is_relative_to(paths[1]) or paths[1].is_relative_to(paths[0])  # a file of the other's folder
        with contextlib.suppress(OSError):
            same = same or os.path.samefile(one.path, other.path)
    # Without a name, the only table of the database is meant.
    return same and (one.table is None or other.table is None or one._normal_name == other._normal_name)


def _suffix_of(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    return _ALIASES.get(suffix, suffix)


def _database_kind(path: Path) -> str:
    """The kind of a .db file by its first bytes; a new one becomes SQLite."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        if file.read(12)[8:] == b"DUCK":
            return ".duckdb"
    return ".sqlite"


def require_file(path: Path, *, may_be_empty: bool = False) -> None:
    """Raises unless there is a file or folder that this user may read."""
    if not path.exists():
        raise TableError(f"{path} does not exist. Check the spelling and the folder.")
    if not os.access(path, os.R_OK):
        raise TableError(f"You do not have permission to read {path}. Change its permissions.")
    if path.is_dir():
        return
    if path.stat().st_size == 0 and not may_be_empty:
        raise TableError(f"{path} is empty (0 bytes). Expected a table with a header and rows.")


def require_names(names: Sequence[str], where: str, *, advice: str = "") -> None:
    """Raises unless each column has a name, different from all others.

    `advice` is for names that may be values of the first row: the message then says where they are, and not what.
    """
    if not names:
        raise TableError(f"{where} has no columns. Expected at least one.")
    first_with: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if not name.strip():
            raise TableError(
                f"Column {position} of {where} has no name (pandas writes its index this way). Name it, or remove it."
                f"{advice}"
            )
        if name in first_with:
            twice = f"columns {first_with[name]} and {position}"
            if not advice:
                twice = ", ".join(repr(each) for each, count in Counter(names).items() if count > 1)
            raise TableError(
                f"{where} has duplicate column names: {twice}. Rename all but one.{advice}",
                column=None if advice else name,
            )
        first_with[name] = position


def require_types(table: pa.Table, where: str) -> None:
    """Raises for a table without rows whose source has no types: without a schema its kinds cannot be inferred."""
    if table.num_rows:
        return
    untyped = [f.name for f in table.schema if pa.types.is_null(f.type) or b"untyped" in (f.metadata or {})]
    if untyped:
        raise TableError(
            f"{where} has no rows, so the kinds of these columns cannot be inferred:"
            f" {', '.join(map(repr, untyped[:5]))}. Declare them in a schema.",
            column=untyped[0],
        )


@contextlib.contextmanager
def explain_errors(table_path: TablePath) -> Iterator[None]:
    """Replaces errors of other libraries, which may quote rows, by a `TableError`."""
    try:
        yield
    except UnderstudyError as error:
        raise_alone(error)
    except MemoryError:
        raise_alone(TableError(f"{table_path} does not fit in memory."))
    except (pa.ArrowException, duckdb.Error, sqlite3.Error, OSError, ValueError):
        names = {"postgres": "PostgreSQL", ".jsonl": "JSON lines", **_READ_ONLY}
        name = names.get(table_path.suffix, table_path.suffix[1:].capitalize())
        raise_alone(
            TableError(f"{table_path} cannot be read as {name}: it is damaged, truncated, or in another format.")
        )
