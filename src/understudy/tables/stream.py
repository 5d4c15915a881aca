"""Tables that are read in batches of rows, by a declared schema and never whole."""

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import duckdb
import narwhals as nw
import pyarrow as pa

from understudy.errors import TableError
from understudy.schema import Column, Schema
from understudy.tables.arrow import open_arrow, open_parquet
from understudy.tables.cast import as_declared_type, conform, normalize, output_schema
from understudy.tables.databases import open_duckdb_table, open_postgres, open_sqlite
from understudy.tables.delimited import open_delimited
from understudy.tables.frames import explain_library, from_frame
from understudy.tables.jsonlines import TypedJsonLines, open_json_texts
from understudy.tables.location import TEXT_SUFFIXES, TableLocation, explain_errors, require_names
from understudy.tables.options import ReadOptions, resolve_reading
from understudy.tables.origin import Origin
from understudy.tables.parquet_folders import folder_files, open_parquet_folder
from understudy.tables.reading_batches import BatchReader, Version, read_equal, read_unchanged, version_of
from understudy.tables.statistics_files import STATISTICS_SUFFIXES

BATCH_ROWS = 2**18
"""The most rows of a batch."""
BATCH_VALUES = 2**23
"""The most values of a batch: with many columns it has fewer rows."""
KEPT_BYTES = 256 * 2**20
"""A table that takes less memory than this is kept there: it is not read again in the next pass."""


class TableStream:
    """A table as batches of rows in the types of a declared schema. It can be read again and again, always in the same
    order.

    A source is read anew in each pass, unless its table is small or can be read only once. One pass at a time. A pass
    whose rows are not those of the first raises.

    >>> schema = Schema(columns=(Column(name="age", kind="integer"),))
    >>> stream, origin = stream_table(pa.table({"age": ["41", "unknown"]}), schema=schema)
    >>> [batch.column("age").to_pylist() for batch in stream]
    [[41, None]]
    """

    schema: pa.Schema
    """The types and styles of every batch, as `conform` gives them."""
    num_rows: int | None = None
    """Private, like the rows; known once they were read to the end."""

    def __init__(
        self,
        schema: pa.Schema,
        read: Callable[[], Iterator[pa.Table]],
        *,
        is_computed: bool = False,
        num_rows: int | None = None,
    ) -> None:
        """`is_computed`: by a query, so that the rows or their order could change from pass to pass. `num_rows` is
        given if they were read to the end before."""
        self.schema, self.num_rows = schema, num_rows
        self._read: Callable[[], Iterator[pa.Table]] | None = read
        self._is_computed = is_computed
        self._kept: Sequence[pa.Table] = ()

    @property
    def column_names(self) -> list[str]:
        return self.schema.names

    def check(self) -> None:
        """Reads and converts the table, so that a damaged one is found early; twice, if its rows could change from pass
        to pass, unless they were read to the end before."""
        num_passes = 2 if self._is_computed and self.num_rows is None else 1
        for _ in range(num_passes):
            for _ in self:
                pass

    def map(self, types: pa.Schema, function: Callable[[pa.Table], pa.Table]) -> "TableStream":
        """Every batch through a function that works row by row and returns these types."""
        return TableStream(types, lambda: map(function, self), is_computed=self._is_computed, num_rows=self.num_rows)

    def __iter__(self) -> Iterator[pa.Table]:
        """Batches of at most `BATCH_ROWS` rows and `BATCH_VALUES` values; at least one, perhaps without rows."""
        if self._read is None:
            yield from self._kept
            return
        kept: list[pa.Table] = []
        num_bytes = num_rows = 0
        most = _batch_rows(len(self.schema))
        for table in self._read():
            num_rows += table.num_rows
            for start in range(0, table.num_rows, most):
                batch = table.slice(start, most)
                num_bytes += batch.nbytes
                if num_bytes <= KEPT_BYTES:
                    kept.append(batch)
                else:
                    kept.clear()
                yield batch
        self.num_rows = num_rows
        if not num_rows:
            kept = [self.schema.empty_table()]
            yield kept[0]
        if num_bytes <= KEPT_BYTES:
            self._kept, self._read = kept, None  # without its reader, the connection to a server is closed


def _batch_rows(num_columns: int) -> int:
    """The most rows of a batch with this number of columns."""
    return min(BATCH_ROWS, max(1, BATCH_VALUES // max(1, num_columns)))


def stream_table(
    source: object, *, schema: Schema, keep_types: bool = False, reading: ReadOptions | None = None
) -> tuple[TableStream, Origin] | None:
    """A file, folder, database table or data frame in batches, and its origin: as `as_arrow` would read it whole.

    None where the source cannot be streamed (a workbook, a file of a statistics package), and with a drafted schema,
    whose columns keep types and styles that follow from all values: then it is read whole, by `as_arrow`. Without a
    schema, `stream_draft` drafts one from the batches.

    >>> stream_table("people.parquet", schema=Schema.read("people.toml"))  # doctest: +SKIP
    """
    if schema.drafted:
        return None
    if isinstance(source, str | os.PathLike):
        path = source if isinstance(source, str) else Path(source)
        location, reading = resolve_reading(path, schema, reading)
        if location.suffix == ".xlsx" or location.suffix in STATISTICS_SUFFIXES:
            return None
        return stream_location(location, schema, reading, keep_types=keep_types)
    if reading is not None:
        reading.require_use("", "The table")
    return _stream_frame(nw.to_native(source, pass_through=True), schema, keep_types=keep_types)


# Files and databases


def stream_location(
    location: TableLocation, schema: Schema, reading: ReadOptions, *, keep_types: bool = False
) -> tuple[TableStream, Origin] | None:
    """The table at a location, in batches; None where it cannot be streamed."""
    version = version_now(location)
    with explain_errors(location):
        reader = _open(location, schema, reading)
    if reader is None:
        return None
    require_names(reader.types.names, str(location))
    types = conform(normalize(reader.types.empty_table()), schema).schema
    own = reader.types if reader.own is None else reader.own
    read_source = functools.partial(read_rows, reader, location, version)

    def read() -> Iterator[pa.Table]:
        for batch in read_source():
            yield _in_types(conform(normalize(batch), schema), types, str(location))

    origin = Origin.of(output_schema(own, types, schema, keep_types=keep_types), "file")
    if location.suffix in DATABASES:  # a view is computed
        return TableStream(types, read_equal(read, _used(types, schema), str(location)), is_computed=True), origin
    return TableStream(types, read), origin


def _used(types: pa.Schema, schema: Schema) -> list[str]:
    """The columns that a run reads: those that are modelled, and the unit."""
    return [name for name in types.names if name in schema and (schema[name].modelled or name == schema.unit)]


DATABASES = (".sqlite", ".duckdb", "postgres")


def _open(location: TableLocation, schema: Schema, reading: ReadOptions) -> BatchReader | None:
    """The reader of a file, folder or database table."""
    if location.suffix in TEXT_SUFFIXES:
        return open_delimited(location, reading, schema.names)
    if location.suffix == ".jsonl":
        return open_json_texts(location, [column.name for column in schema.columns if not column.drop])
    if location.suffix == ".sqlite":
        return open_sqlite(location, schema)
    if location.is_folder:
        return open_parquet_folder(location)
    return READERS[location.suffix](location)


READERS: dict[str, Callable[[TableLocation], BatchReader | None]] = {
    ".parquet": open_parquet,
    ".feather": open_arrow,
    ".arrow": open_arrow,
    ".duckdb": open_duckdb_table,
    "postgres": open_postgres,
}


def version_now(location: TableLocation) -> Version:
    """The version of the files of a table. A server has none: there, all passes are in one transaction."""
    if location.suffix == "postgres":
        return ()
    with explain_errors(location):
        return version_of(folder_files(location.path) if location.is_folder else [location.path])


def read_rows(reader: BatchReader | TypedJsonLines, location: TableLocation, version: Version) -> Iterator[pa.Table]:
    """The rows of a source in batches of even size, in its own types; raises if it has another version by now."""
    num_rows = _batch_rows(len(reader.types))
    rows = _explained(reader.read(num_rows), location)
    unchanged = read_unchanged(rows, version, lambda: version_now(location), str(location))
    return _of_even_size(unchanged, num_rows)


def _explained(batches: Iterator[pa.Table], location: TableLocation) -> Iterator[pa.Table]:
    with explain_errors(location):
        yield from batches


def _of_even_size(batches: Iterator[pa.Table], num_rows: int) -> Iterator[pa.Table]:
    """The same rows in batches of not much less than this number of rows and never more: each takes some time."""
    held: list[pa.Table] = []
    for batch in batches:
        if held and (sum(map(len, held)) + len(batch) > num_rows or batch.schema != held[0].schema):
            yield pa.concat_tables(held)
            held = []
        slices = [batch.slice(start, num_rows) for start in range(0, len(batch), num_rows)]
        yield from slices[:-1]
        held += slices[-1:]
    if held:
        yield pa.concat_tables(held)


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


def _stream_frame(source: object, schema: Schema, *, keep_types: bool) -> tuple[TableStream, Origin] | None:
    """A frame in memory in slices, and a lazy one as its library computes it."""
    with explain_library(reads_rows=False):
        lazy = _open_lazy(source)
    if lazy is None:
        if nw.dependencies.is_into_lazyframe(source):
            return None
        table, origin = from_frame(source, schema=schema, keep_types=keep_types)
        return TableStream(table.schema, lambda: iter([table])), origin
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
        return empty, lambda: iter(source.collect_batches(chunk_size=_batch_rows(empty.width), maintain_order=True))
    if nw.dependencies.is_dask_dataframe(source):
        return source._meta, lambda: (partition.compute() for partition in source.partitions)
    return None


def _relation_batches(relation: duckdb.DuckDBPyRelation) -> Iterator[pa.RecordBatch]:
    # Closed also when a pass is broken off: until then its connection refuses other queries.
    with relation.to_arrow_reader(_batch_rows(len(relation.columns))) as reader:
        yield from reader


def _explained_frames(compute: Callable[[], Iterator[object]]) -> Iterator[object]:
    with explain_library():
        yield from compute()
