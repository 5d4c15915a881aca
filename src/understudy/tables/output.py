"""Writing out: a file or a database table, whole or not at all."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa

from understudy.errors import TableError
from understudy.run.atomic import atomic_path, explained, require_free
from understudy.tables.arrowfiles import write_arrow, write_parquet
from understudy.tables.databases import tables_in, write_duckdb, write_sqlite
from understudy.tables.jsonlines import write_json_lines
from understudy.tables.origins import Origin
from understudy.tables.places import POSTGRES, TEXT_SUFFIXES, Place
from understudy.tables.spelling import restyle
from understudy.tables.textfiles import write_delimited

_WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".jsonl": write_json_lines,
    ".parquet": write_parquet,
    ".feather": write_arrow,
    ".arrow": write_arrow,
}
_DATABASE_WRITERS: dict[str, Callable[[pa.Table, Path, str], None]] = {
    ".duckdb": write_duckdb,
    ".sqlite": write_sqlite,
}
_ERRORS = (duckdb.Error, sqlite3.Error, pa.ArrowException)


def write_table(table: pa.Table, path: str | Path, *, origin: Origin | None = None, force: bool = False) -> None:
    """Writes a file or a database table (`fake.duckdb::people`), whole or not at all.

    With its origin, types and spelling are those of the table that came in. An existing file or table is replaced only
    with `force`.
    """
    check_writable(path, force=force, table=True)
    place = Place.of(path)
    if origin is not None:
        table = restyle(table, origin)
    if place.suffix in TEXT_SUFFIXES:
        delimiter = origin.delimiter if origin is not None and place.suffix == ".csv" else TEXT_SUFFIXES[place.suffix]
        with atomic_path(place.path, force=force, errors=_ERRORS) as part:
            write_delimited(table, part, delimiter)
    elif place.table is None:
        with atomic_path(place.path, force=force, errors=_ERRORS) as part:
            _WRITERS[place.suffix](table, part)
    elif place.path.exists():  # other tables live there: the database's own transaction keeps it whole
        with explained(place.path, *_ERRORS):
            _DATABASE_WRITERS[place.suffix](table, place.path, place.table)
    else:
        with atomic_path(place.path, errors=_ERRORS) as part:
            _DATABASE_WRITERS[place.suffix](table, part, place.table)


def check_writable(path: str | os.PathLike[str], *, force: bool = False, table: bool = False) -> None:
    """Raises now what writing would raise later: call it before any budget is spent.

    Serves files and folders alike; with `table` the path must also end in a format that `write_table` knows.
    """
    is_database = "::" in str(path) or str(path).startswith(POSTGRES)
    if not table and not is_database:
        require_free(Path(path), force=force)
        return
    place = Place.of(str(path))
    if place.suffix == "postgres":
        raise TableError("PostgreSQL tables are only read. Write a file, and load it with the database's own tools.")
    if place.path.suffix.lower() == ".bz2":
        raise TableError(f"{place.path}: text is written plain, as .gz or as .zst.")
    if place.suffix not in (".sqlite", ".duckdb"):
        require_free(place.path, force=force)
        return
    if place.table is None:
        raise TableError(f"Name the table to write, as in {place}::people.")
    require_free(place.path, force=True)
    if place.path.exists() and not force and place.table.lower() in tables_in(place):
        raise TableError(f"{place} exists. Choose another name, or replace it with --force (force=True).")
