"""Reads a file, a database table or a data frame as Arrow, with its origin."""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from understudy.schema import Schema
from understudy.tables.arrow import read_arrow, read_parquet
from understudy.tables.cast import conform, normalize, output_schema
from understudy.tables.databases import read_duckdb, read_postgres, read_sqlite
from understudy.tables.delimited import read_delimited
from understudy.tables.excel import read_excel
from understudy.tables.frames import Frame, from_frame
from understudy.tables.infer import infer_text_dates, infer_types, is_untyped
from understudy.tables.jsonlines import read_json_lines, read_json_texts
from understudy.tables.location import (
    TEXT_SUFFIXES,
    TableLocation,
    explain_errors,
    require_names,
    require_types,
)
from understudy.tables.options import ReadOptions, resolve_reading
from understudy.tables.origin import Origin
from understudy.tables.parquet_folders import read_parquet_folder
from understudy.tables.statistics_files import STATISTICS_SUFFIXES, read_statistics_file
from understudy.tables.stream import stream_location

_READERS: dict[str, Callable[[TableLocation], pa.Table]] = {
    ".jsonl": read_json_lines,
    ".parquet": read_parquet,
    ".feather": read_arrow,
    ".arrow": read_arrow,
    ".duckdb": read_duckdb,
    "postgres": read_postgres,
}


def as_arrow(
    table: "Frame | str | os.PathLike[str]",
    schema: Schema | None = None,
    *,
    keep_types: bool = False,
    reading: ReadOptions | None = None,
) -> tuple[pa.Table, Origin]:
    """Reads a data frame, or the file or database table that a path names."""
    if isinstance(table, str | os.PathLike):
        path = table if isinstance(table, str) else Path(table)
        return read_table(path, schema=schema, keep_types=keep_types, reading=reading)
    if reading is not None:
        reading.require_use("", "The table")
    return from_frame(table, schema=schema, keep_types=keep_types)


def read_table(
    source: str | Path,
    *,
    schema: Schema | None = None,
    keep_types: bool = False,
    reading: ReadOptions | None = None,
) -> tuple[pa.Table, Origin]:
    """Reads a file, a folder of Parquet files or a database table: `people.csv`, `people.sqlite::patients`, `postgresql://me@host/db::public.people`.

    With a schema each column is read as the declared kind, and a value that cannot be read is null, never an error.
    With a declared schema (not a drafted one) the types and styles of the origin follow from the schema alone.
    `keep_types` keeps the types of the source, if it has any. `reading` says what a text file or workbook does not.

    >>> read_table("people.csv", reading=ReadOptions(encoding="cp1252", decimal=","))  # doctest: +SKIP
    """
    location, reading = resolve_reading(source, schema, reading)
    declared = schema if schema is not None and not schema.drafted else None
    if location.is_folder and declared is not None:  # its files may differ in types, so each is converted by itself
        streamed = stream_location(location, declared, reading, keep_types=keep_types)
        if streamed is not None:
            return pa.concat_tables(streamed[0]), streamed[1]
    own_types: pa.Schema | None = None
    with explain_errors(location):
        if location.is_folder:
            table = read_parquet_folder(location)
        elif location.suffix == ".jsonl" and declared is not None:
            table = read_json_texts(location, [column.name for column in declared.columns if not column.drop])
        elif location.suffix == ".sqlite":
            table, own_types = read_sqlite(location, declared)
        elif location.suffix == ".xlsx":
            table = read_excel(location, schema, reading)
        elif location.suffix in STATISTICS_SUFFIXES:
            table = read_statistics_file(location, schema)
        elif location.suffix in TEXT_SUFFIXES:
            table = read_delimited(location, reading, None if schema is None else schema.names)
        else:
            table = _READERS[location.suffix](location)
    require_names(table.column_names, str(location))
    if schema is not None:
        conformed = conform(normalize(table), schema)
        own_types = table.schema if own_types is None else own_types
        return conformed, Origin.of(output_schema(own_types, conformed.schema, schema, keep_types=keep_types), "file")
    require_types(table, str(location))
    columns, fields = list(table.columns), table.schema
    del table  # frees the texts of each column as soon as it is converted
    table = infer_types(columns, fields)
    untyped = [field.name for field in fields if is_untyped(field)]
    table, own = infer_text_dates(normalize(table), table.schema, besides=untyped)
    return table, Origin.of(own, "file")
