"""Writes a file or a database table, whole or batch by batch, and either all of it or nothing."""

import contextlib
import dataclasses
import os
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import duckdb
import pyarrow as pa

from understudy.errors import TableError
from understudy.run.atomic import atomic_path, explain_failure, require_free, sync
from understudy.tables import delimited
from understudy.tables.arrow import write_arrow, write_parquet
from understudy.tables.databases import tables_in, write_duckdb, write_sqlite
from understudy.tables.delimited import write_delimited
from understudy.tables.formatting import restyle
from understudy.tables.jsonlines import write_json_lines
from understudy.tables.labels import sidecar_path
from understudy.tables.origin import Origin
from understudy.tables.path import POSTGRES, TEXT_SUFFIXES, TablePath
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrittenTable:
    """A table whose rows have been written, for its description."""

    table_path: TablePath
    """Where it will be."""
    file: Path | None
    """The file that it is in now; None: a table of a database, which may hold others."""
    schema: pa.Schema
    """Its columns with their styles and, in the metadata, its label."""
    num_rows: int
    delimiter: str
    """That of a text file."""


Describe: TypeAlias = Callable[[WrittenTable], bytes]
"""Makes the content of the file that is written beside a table, such as fake.csv.datapackage.json."""


def write_table(
    table: pa.Table,
    path: str | Path,
    *,
    origin: Origin | None = None,
    force: bool = False,
    escape_formulas: bool = False,
    describe: Describe | None = None,
) -> None:
    """Writes a file or a database table (`fake.duckdb::people`), whole or not at all.

    With an origin, types and styles are those of the original table. An existing file or table is replaced only with
    `force`. `describe` as in `write_batches`.
    """
    table = table if origin is None else restyle(table, origin)
    delimiter = "," if origin is None else origin.delimiter
    write_batches([table], path, delimiter=delimiter, force=force, escape_formulas=escape_formulas, describe=describe)


def write_batches(
    batches: Iterable[pa.Table],
    path: str | Path,
    *,
    delimiter: str = ",",
    force: bool = False,
    escape_formulas: bool = False,
    describe: Describe | None = None,
) -> None:
    """Writes a table with only a few batches in memory at a time, whole or not at all.

    The batches, at least one, are written as they are, and must have the same columns and types, as those that
    `Release.sample_batches` makes. One batch gives the same file as `write_table`. A label in the metadata of the first
    batch is kept in files that have a place for it. `delimiter` is that of a CSV file. `describe` makes the file that
    is written beside the table; either both appear or none. `escape_formulas`, for text files: an apostrophe before
    strings and column names that begin with = + - @, a tab or a carriage return, which spreadsheets treat as formulas.
    """
    check_writable(path, force=force, table=True, sidecar=describe is not None)
    table_path = TablePath.parse(path)
    if escape_formulas:
        check_escapable(table_path)
        batches = map(delimited.escape_formulas, batches)
    rows = OutputBatches(batches)
    if table_path.suffix in TEXT_SUFFIXES and table_path.suffix != ".csv":
        delimiter = TEXT_SUFFIXES[table_path.suffix]

    with contextlib.ExitStack() as beside:
        # Entered first, so that it appears last: a description without its table would be wrong.
        sidecar = None
        if describe is not None:
            sidecar = beside.enter_context(atomic_path(sidecar_path(table_path), force=force))

        def finish(file: Path | None) -> None:
            if sidecar is None or describe is None:
                return
            written = WrittenTable(
                table_path=table_path, file=file, schema=rows.schema, num_rows=rows.num_rows, delimiter=delimiter
            )
            sidecar.write_bytes(describe(written))
            sync(sidecar)

        _write(rows, table_path, delimiter, finish, force=force)


def _write(
    rows: OutputBatches, table_path: TablePath, delimiter: str, finish: Callable[[Path | None], None], *, force: bool
) -> None:
    """Writes the rows, and calls `finish` with the file before it appears."""
    if table_path.table is None:
        with atomic_path(table_path.path, force=force, errors=_ERRORS) as part:
            if table_path.suffix in TEXT_SUFFIXES:
                write_delimited(rows, part, delimiter)
            else:
                _WRITERS[table_path.suffix](rows, part)
            finish(part)
    elif table_path.path.exists():  # it holds other tables, so a transaction takes the place of a new file
        with explain_failure(table_path.path, *_ERRORS):
            _DATABASE_WRITERS[table_path.suffix](rows, table_path.path, table_path.table)
            finish(None)
    else:
        with atomic_path(table_path.path, errors=_ERRORS) as part:
            _DATABASE_WRITERS[table_path.suffix](rows, part, table_path.table)
            finish(None)


def check_escapable(table_path: TablePath) -> None:
    """Only text files have cells that a spreadsheet reads as formulas."""
    if table_path.suffix not in TEXT_SUFFIXES:
        raise TableError(f"{table_path}: --escape-formulas (escape_formulas=True) is for CSV and other text files.")


def check_writable(
    path: str | os.PathLike[str], *, force: bool = False, table: bool = False, sidecar: bool = False
) -> None:
    """Raises now what writing would raise later: call it before any budget is spent.

    For files and folders; with `table` the path must also end in a format that `write_table` knows, and with `sidecar`
    the file that describes it must be writable too.
    """
    is_database = "::" in str(path) or str(path).startswith(POSTGRES)
    if not table and not is_database:
        require_free(Path(path), force=force)
        return
    table_path = TablePath.parse(str(path))
    if table_path.suffix == "postgres":
        raise TableError("PostgreSQL tables can only be read. Write a file, and load it with the database's own tools.")
    if table_path.read_only is not None:
        raise TableError(f"{table_path.path}: {table_path.read_only} files can only be read. Write CSV or Parquet.")
    if table_path.path.suffix.lower() == ".bz2":
        raise TableError(f"{table_path.path}: .bz2 files can only be read. Write plain text, .gz or .zst.")
    if sidecar:
        require_free(sidecar_path(table_path), force=force)
    if table_path.suffix not in (".sqlite", ".duckdb"):
        require_free(table_path.path, force=force)
        return
    if table_path.table is None:
        raise TableError(f"Name the table to write, as in {table_path}::people.")
    require_free(table_path.path, force=True)
    if table_path.path.exists() and not force and table_path.table.lower() in tables_in(table_path):
        raise TableError(f"{table_path} exists. Choose another name, or replace it with --force (force=True).")
