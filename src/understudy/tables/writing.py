"""Writes a file or a database table, whole or batch by batch, and either all of it or nothing."""

import os
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path

import duckdb
import pyarrow as pa

from understudy.errors import TableError
from understudy.run.atomic import atomic_path, explain_failure, require_free
from understudy.tables.arrow import write_arrow, write_parquet
from understudy.tables.databases import tables_in, write_duckdb, write_sqlite
from understudy.tables.delimited import write_delimited
from understudy.tables.formatting import restyle
from understudy.tables.jsonlines import write_json_lines
from understudy.tables.location import POSTGRES, TEXT_SUFFIXES, TableLocation
from understudy.tables.origin import Origin
from understudy.tables.writing_batches import OutputBatches

_WRITERS: dict[str, Callable[[OutputBatches, Path], None]] = {
    ".jsonl": write_json_lines,
    ".parquet": write_parquet,
    ".feather": write_arrow,
    ".arrow": write_arrow,
}
_DATABASE_WRITERS: dict[str, Callable[[OutputBatches, Path, str], None]] = {
    ".duckdb": write_duckdb,
    ".sqlite": write_sqlite,
}
_ERRORS = (duckdb.Error, sqlite3.Error, pa.ArrowException)


def write_table(table: pa.Table, path: str | Path, *, origin: Origin | None = None, force: bool = False) -> None:
    """Writes a file or a database table (`fake.duckdb::people`), whole or not at all.

    With an origin, types and styles are those of the original table. An existing file or table is replaced only with
    `force`.
    """
    table = table if origin is None else restyle(table, origin)
    write_batches([table], path, delimiter="," if origin is None else origin.delimiter, force=force)


def write_batches(batches: Iterable[pa.Table], path: str | Path, *, delimiter: str = ",", force: bool = False) -> None:
    """Writes a table with only a few batches in memory at a time, whole or not at all.

    The batches, at least one, are written as they are, and must have the same columns and types, as those that
    `Release.sample_batches` makes. One batch gives the same file as `write_table`.
    `delimiter` is that of a CSV file.
    """
    check_writable(path, force=force, table=True)
    location, rows = TableLocation.parse(path), OutputBatches(batches)
    if location.suffix in TEXT_SUFFIXES:
        delimiter = delimiter if location.suffix == ".csv" else TEXT_SUFFIXES[location.suffix]
        with atomic_path(location.path, force=force, errors=_ERRORS) as part:
            write_delimited(rows, part, delimiter)
    elif location.table is None:
        with atomic_path(location.path, force=force, errors=_ERRORS) as part:
            _WRITERS[location.suffix](rows, part)
    elif location.path.exists():  # it holds other tables, so a transaction takes the place of a new file
        with explain_failure(location.path, *_ERRORS):
            _DATABASE_WRITERS[location.suffix](rows, location.path, location.table)
    else:
        with atomic_path(location.path, errors=_ERRORS) as part:
            _DATABASE_WRITERS[location.suffix](rows, part, location.table)


def check_writable(path: str | os.PathLike[str], *, force: bool = False, table: bool = False) -> None:
    """Raises now what writing would raise later: call it before any budget is spent.

    For files and folders; with `table` the path must also end in a format that `write_table` knows.
    """
    is_database = "::" in str(path) or str(path).startswith(POSTGRES)
    if not table and not is_database:
        require_free(Path(path), force=force)
        return
    location = TableLocation.parse(str(path))
    if location.suffix == "postgres":
        raise TableError("PostgreSQL tables can only be read. Write a file, and load it with the database's own tools.")
    if location.read_only is not None:
        raise TableError(f"{location.path}: {location.read_only} files can only be read. Write CSV or Parquet.")
    if location.path.suffix.lower() == ".bz2":
        raise TableError(f"{location.path}: .bz2 files can only be read. Write plain text, .gz or .zst.")
    if location.suffix not in (".sqlite", ".duckdb"):
        require_free(location.path, force=force)
        return
    if location.table is None:
        raise TableError(f"Name the table to write, as in {location}::people.")
    require_free(location.path, force=True)
    if location.path.exists() and not force and location.table.lower() in tables_in(location):
        raise TableError(f"{location} exists. Choose another name, or replace it with --force (force=True).")
