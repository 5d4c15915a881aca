"""Reads a file, a database table or a data frame in batches, with its origin. A whole table is its batches joined."""

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import duckdb
import narwhals as nw
import pyarrow as pa

from understudy.errors import TableError
from understudy.schema import Column, Schema
from understudy.tables.arrow import open_arrow, open_parquet
from understudy.tables.cast import as_declared_type, conform, normalize, output_schema
from understudy.tables.databases import open_duckdb_table, open_postgres, open_sqlite
from understudy.tables.delimited import open_delimited
from understudy.tables.drafting import comparable_columns, draft_stream
from understudy.tables.excel import open_excel
from understudy.tables.frames import Frame, explain_library, from_frame
from understudy.tables.jsonlines import TypedJsonLines, open_json_strings
from understudy.tables.options import ReadOptions, resolve_reading
from understudy.tables.origin import Origin
from understudy.tables.parquet_folders import open_parquet_folder, version_now
from understudy.tables.path import TEXT_SUFFIXES, TablePath, explain_errors, require_names
from understudy.tables.reading_batches import BatchReader, Version, read_equal
from understudy.tables.statistics_files import open_statistics_file
from understudy.tables.stream import TableStream, batch_rows, without_rows

FIRST_ROWS, FIRST_VALUES = 2**20, 2**25
"""What is held of a table to give hints at: the most rows, and the most values."""
_DATABASES = (".sqlite", ".duckdb", "postgres")

Source: TypeAlias = "Frame | str | os.PathLike[str]"


def read_table(
    source: Source, schema: Schema | None = None, *, keep_types: bool = False, reading: ReadOptions | None = None
) -> tuple[pa.Table, Origin]:
    """The whole table and its origin: the batches of `open_table`, joined."""
    rows, origin = open_table(source, schema, keep_types=keep_types, reading=reading)
    first, *others = rows
    return normalize(pa.concat_tables([first, *others])) if others else first, origin  # with one dictionary each


class DraftedTable(NamedTuple):
    """The types of a whole table, and its first rows."""

    types: pa.Schema
    first: pa.Table
    is_whole: bool
    """Whether these are all rows."""


def draft_table(source: str | os.PathLike[str], *, reading: ReadOptions | None = None) -> DraftedTable:
    """The types of a file, folder or database table, drafted from all its rows, and at most the first `FIRST_ROWS`."""
    rows, _ = open_table(source, reading=reading)
    max_rows = max(1, min(FIRST_ROWS, FIRST_VALUES // len(rows.schema)))
    batches, num_left = [], max_rows
    for batch in rows:
        batches.append(batch.slice(0, num_left))
        num_left -= batches[-1].num_rows
        if not num_left:
            break
    return DraftedTable(rows.schema, pa.concat_tables(batches), rows.num_rows is not None and rows.num_rows <= max_rows)


def open_table(
    source: Source, schema: Schema | None = None, *, keep_types: bool = False, reading: ReadOptions | None = None
) -> tuple[TableStream, Origin]:
    """A file, a folder of Parquet files, a database table or a data frame in batches, and its origin: `people.csv`,
    `people.sqlite::patients`, `postgresql://me@host/db::public.people`.

    With a schema each column is read as the declared kind, and a value that cannot be read is null, never an error.
    With a declared schema (not a drafted one) the types and styles of the origin follow from the schema alone.
    `keep_types` keeps the types of the source, if it has any. `reading` says what a text file or workbook does not.

    Without a schema, the types and styles of strings are drafted from all rows: the source is read once, to the end.
    Held whole are workbooks and files of statistics packages, frames in memory, lazy frames without a declared schema,
    and any table with a drafted one, whose columns keep styles that follow from all values.
    """
    if not isinstance(source, str | os.PathLike):
        if reading is not None:
            reading.require_use("", "The table")
        return _open_frame(nw.to_native(source, pass_through=True), schema, keep_types=keep_types)
    table_path, reading = resolve_reading(source if isinstance(source, str) else Path(source), schema, reading)
    version = version_now(table_path)
    with explain_errors(table_path):
        reader = _open_path(table_path, schema, reading)
    read: Callable[[], Iterator[pa.Table]] = functools.partial(_read_rows, reader, table_path, version)
    is_computed = table_path.suffix in _DATABASES  # a view is
    if schema is None:
        if is_computed:
            read = read_equal(read, comparable_columns(reader.types), str(table_path))
        return draft_stream(reader, read, str(table_path), is_computed=is_computed)
    if schema.drafted:
        return _read_whole(reader, read, schema, str(table_path), keep_types=keep_types)
    require_names(reader.types.names, str(table_path))
    types = conform(normalize(without_rows(reader.types)), schema).schema

    def read_declared() -> Iterator[pa.Table]:
        for batch in read():
            yield _in_types(conform(normalize(batch), schema), types, str(table_path))

    again = read_equal(read_declared, _used(types, schema), str(table_path)) if is_computed else read_declared
    return TableStream(types, again, is_computed=is_computed), _origin(reader, types, schema, keep_types=keep_types)


def _read_whole(
    reader: BatchReader | TypedJsonLines,
    read: Callable[[], Iterator[pa.Table]],
    schema: Schema,
    where: str,
    *,
    keep_types: bool,
) -> tuple[TableStream, Origin]:
    """A table by a drafted schema."""
    batches = list(read())
    if any(batch.schema != reader.types for batch in batches):  # which are known after the first pass
        batches = list(read())
    require_names(reader.types.names, where)
    table = conform(normalize(pa.concat_tables([without_rows(reader.types), *batches])), schema)
    return TableStream.of_table(table), _origin(reader, table.schema, schema, keep_types=keep_types)


def _origin(reader: BatchReader | TypedJsonLines, types: pa.Schema, schema: Schema, *, keep_types: bool) -> Origin:
    own = reader.types if reader.own is None else reader.own
    return Origin.of(output_schema(own, types, schema, keep_types=keep_types), "file")


def _used(types: pa.Schema, schema: Schema) -> list[str]:
    """The columns that a run reads: those that are modelled, and the unit."""
    return [name for name in types.names if name in schema and (schema[name].modelled or name == schema.unit)]


# Files and databases


def _open_path(table_path: TablePath, schema: Schema | None, reading: ReadOptions) -> BatchReader | TypedJsonLines:
    """The reader of a file, folder or database table."""
    declared = schema if schema is not None and not schema.drafted else None
    if table_path.is_folder:
        return open_parquet_folder(table_path, is_declared=declared is not None)
    match table_path.suffix:
        case suffix if suffix in TEXT_SUFFIXES:
            return open_delimited(table_path, reading, None if schema is None else schema.names)
        case ".jsonl":
            return TypedJsonLines(table_path) if declared is None else open_json_strings(table_path, declared)
        case ".parquet":
            return open_parquet(table_path)
        case ".feather" | ".arrow":
            return open_arrow(table_path)
        case ".sqlite":
            return open_sqlite(table_path, declared)
        case ".duckdb":
            return open_duckdb_table(table_path)
        case "postgres":
            return open_postgres(table_path)
        case ".xlsx":
            return open_excel(table_path, schema, reading)
    return open_statistics_file(table_path, schema)


def _read_rows(reader: BatchReader | TypedJsonLines, table_path: TablePath, version: Version) -> Iterator[pa.Table]:
    """The rows of a source in batches of even size, in its own types; raises if it has another version by now."""
    num_rows = batch_rows(len(reader.types))
    return _of_even_size(_unchanged(reader.read(num_rows), table_path, version), num_rows)


def _unchanged(batches: Iterator[pa.Table], table_path: TablePath, version: Version) -> Iterator[pa.Table]:
    """The batches; raises if the files have another version before, after, or when reading fails.

    All passes over a table must see the same rows.
    """

    def check() -> None:
        if version_now(table_path) != version:
            raise TableError(f"{table_path} changed while it was read. Run again.") from None

    check()
    try:
        with explain_errors(table_path):
            yield from batches
    except TableError:  # a file that is being written looks damaged
        check()
        raise
    check()


def _of_even_size(batches: Iterator[pa.Table], num_rows: int) -> Iterator[pa.Table]:
    """The same rows in batches of not much less than this number of rows and never more: each takes some time."""
    waiting: list[pa.Table] = []
    for batch in batches:
        if waiting and (sum(map(len, waiting)) + len(batch) > num_rows or batch.schema != waiting[0].schema):
            yield pa.concat_tables(waiting)
            waiting = []
        slices = [batch.slice(start, num_rows) for start in range(0, len(batch), num_rows)]
        yield from slices[:-1]
        waiting += slices[-1:]
    if waiting:
        yield pa.concat_tables(waiting)


def _in_types(batch: pa.Table, types: pa.Schema, where: str) -> pa.Table:
    """The batch in the types of all batches.

    Columns that are modelled have them by the schema. Others keep the type of the source, and become text where it is
    not the same in all files of a folder.
    """
    if batch.column_names != types.names:
        raise TableError(f"{where}: some rows have other columns than the first. Write the table again.")
    columns = [
        values if values.type == field.type else as_declared_type(values, _AS_TEXT)
        for field, values in zip(types, batch.columns, strict=True)
    ]
    return pa.table(columns, schema=types)


_AS_TEXT = Column(name="", kind="categorical")


# Data frames


def _open_frame(source: object, schema: Schema | None, *, keep_types: bool) -> tuple[TableStream, Origin]:
    """A frame in memory in slices, and a lazy one with a declared schema as its library computes it."""
    with explain_library(reads_rows=False):
        lazy = None if schema is None or schema.drafted else _open_lazy(source)
    if lazy is None or schema is None:
        table, origin = from_frame(source, schema=schema, keep_types=keep_types)
        return TableStream.of_table(table), origin
    empty, compute = lazy
    conformed, origin = from_frame(empty, schema=schema, keep_types=keep_types)

    def read() -> Iterator[pa.Table]:
        for frame in _explained_frames(compute):
            yield _in_types(from_frame(frame, schema=schema)[0], conformed.schema, "The table")

    if isinstance(source, pa.RecordBatchReader):  # it can be read only once
        batches = list(read())
        return TableStream(conformed.schema, lambda: iter(batches)), origin
    again = read_equal(read, _used(conformed.schema, schema), "The table")
    return TableStream(conformed.schema, again, is_computed=True), origin


def _open_lazy(source: object) -> tuple[object, Callable[[], Iterator[object]]] | None:
    """A frame without rows in the types of a lazy one, and the rows of that as frames; None: it is not lazy, or its
    library cannot compute it in parts."""
    if isinstance(source, pa.RecordBatchReader):
        return source.schema.empty_table(), lambda: iter(source)
    if isinstance(source, duckdb.DuckDBPyRelation):
        return source.limit(0).to_arrow_table(), lambda: _relation_batches(source)
    if nw.dependencies.is_polars_lazyframe(source) and hasattr(source, "collect_batches"):
        import polars as pl

        empty = pl.DataFrame(schema=source.collect_schema())
        return empty, lambda: iter(source.collect_batches(chunk_size=batch_rows(empty.width), maintain_order=True))
    if nw.dependencies.is_dask_dataframe(source):
        return source._meta, lambda: (partition.compute() for partition in source.partitions)
    return None


def _relation_batches(relation: duckdb.DuckDBPyRelation) -> Iterator[pa.RecordBatch]:
    # Closed also when a pass is broken off: until then its connection refuses other queries.
    with relation.to_arrow_reader(batch_rows(len(relation.columns))) as reader:
        yield from reader


def _explained_frames(compute: Callable[[], Iterator[object]]) -> Iterator[object]:
    with explain_library():
        yield from compute()
