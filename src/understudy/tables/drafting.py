"""Tables without a schema, whose types are drafted in one pass over their batches and never from a table held whole.

The types, styles and values are those of `read_table` without a schema: the rules of `text_types.py` see all texts of a
column, part by part.
"""

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from understudy.schema import Schema
from understudy.tables import stream
from understudy.tables.cast import conform, normalize, normalize_column
from understudy.tables.databases import open_sqlite
from understudy.tables.delimited import open_delimited
from understudy.tables.infer import convert_distinct, inference_of, inferred_field, is_untyped, mark_untyped
from understudy.tables.jsonlines import TypedJsonLines
from understudy.tables.location import TEXT_SUFFIXES, TableLocation, explain_errors, require_names, require_types
from understudy.tables.options import ReadOptions, resolve_reading
from understudy.tables.origin import Origin, flat_type
from understudy.tables.parquet_folders import open_typed_folder
from understudy.tables.reading import as_arrow
from understudy.tables.reading_batches import BatchReader, read_equal
from understudy.tables.statistics_files import STATISTICS_SUFFIXES
from understudy.tables.stream import TableStream
from understudy.tables.text_types import TextInference, TextType

FIRST_ROWS, FIRST_VALUES = 2**20, 2**25
"""What is held of a table to give hints at: the most rows, and the most values."""


class _Column(NamedTuple):
    """How one column is converted."""

    field: pa.Field
    """In the types of the source."""
    text_type: TextType | None
    """Of texts that are not to stay texts."""

    def convert(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """In the internal types, value by value."""
        if not is_untyped(self.field):
            return self._read(normalize_column(values))
        return normalize_column(self._read(values))

    def _read(self, texts: pa.ChunkedArray) -> pa.ChunkedArray:
        found = self.text_type
        return texts if found is None else convert_distinct(texts, lambda distinct: (found.read(distinct), {}))[0]


class TypeInference:
    """The types of all columns of a table, from its batches: as `infer_types` and `infer_text_dates` have them.

    Columns that the source marks as untyped get a type by all rules, and other texts may turn out to be dates.
    """

    def __init__(self) -> None:
        self._texts: dict[str, TextInference] = {}

    def add(self, batch: pa.Table) -> None:
        """Takes in the texts of a batch."""
        for field, values in zip(batch.schema, batch.columns, strict=True):
            texts = values if is_untyped(field) else _normal_texts(values)
            if texts is not None:
                marked = field if is_untyped(field) else mark_untyped(field, only_dates=True)
                self._texts.setdefault(field.name, inference_of(marked)).add(texts.unique().drop_null())

    def columns(self, types: pa.Schema) -> list[_Column]:
        """How the columns of a table with these types are converted."""
        found = {name: inference.found() for name, inference in self._texts.items()}
        return [_Column(field, found.get(field.name)) for field in types]


def _normal_texts(values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The column as plain texts; None: it holds others."""
    is_plain = pa.types.is_string(normalize_column(pa.chunked_array([], values.type)).type)
    return normalize_column(values) if is_plain else None


def stream_draft(
    source: "str | os.PathLike[str]", *, reading: ReadOptions | None = None
) -> tuple[TableStream, Origin] | None:
    """A file, folder or database table in batches, in types drafted from all its rows, and its origin: as `as_arrow`
    would read it without a schema.

    Reads the source once, to the end. None where it cannot be streamed (a workbook, a file of a statistics package).
    """
    path = source if isinstance(source, str) else Path(source)
    location, reading = resolve_reading(path, None, reading)
    if location.suffix == ".xlsx" or location.suffix in STATISTICS_SUFFIXES:
        return None
    version = stream.version_now(location)
    with explain_errors(location):
        reader = _open(location, reading)
    if reader is None:
        return None
    read: Callable[[], Iterator[pa.Table]] = functools.partial(stream.read_rows, reader, location, version)
    is_computed = location.suffix in stream.DATABASES  # a view is
    if is_computed:
        read = read_equal(read, _comparable(reader.types), str(location))
    inference, num_rows, kept = TypeInference(), 0, _Kept()
    for batch in read():
        inference.add(batch)
        num_rows += batch.num_rows
        kept.add(batch)
    types = reader.types
    require_names(types.names, str(location))
    if not num_rows:
        require_types(types.empty_table(), str(location))
    columns = inference.columns(types)
    internal, own = _drafted_schemas(types, columns)
    if kept.are_all(types):
        read, is_computed = functools.partial(iter, kept.batches), False

    def convert() -> Iterator[pa.Table]:
        for batch in read():
            yield pa.table([each.convert(batch.column(each.field.name)) for each in columns], schema=internal)

    return TableStream(internal, convert, is_computed=is_computed, num_rows=num_rows), Origin.of(own, "file")


class _Kept:
    """The batches of a small table, which is then not read again."""

    def __init__(self) -> None:
        self.batches: list[pa.Table] = []
        self._num_bytes = 0

    def add(self, batch: pa.Table) -> None:
        self._num_bytes += batch.nbytes
        if self._num_bytes <= stream.KEPT_BYTES:
            self.batches.append(batch)
        else:
            self.batches.clear()

    def are_all(self, types: pa.Schema) -> bool:
        """Whether all were kept, in these types."""
        return self._num_bytes <= stream.KEPT_BYTES and all(batch.schema == types for batch in self.batches)


class DraftedTable(NamedTuple):
    """The types of a whole table, and its first rows."""

    types: pa.Schema
    first: pa.Table
    is_whole: bool
    """Whether these are all rows."""


def draft_table(source: "str | os.PathLike[str]", *, reading: ReadOptions | None = None) -> DraftedTable:
    """The types of a file, folder or database table, drafted from all its rows, and at most the first `FIRST_ROWS`."""
    streamed = stream_draft(source, reading=reading)
    if streamed is None:
        table, _ = as_arrow(source, reading=reading)
        return DraftedTable(table.schema, table, True)
    rows, _ = streamed
    most = max(1, min(FIRST_ROWS, FIRST_VALUES // len(rows.schema)))
    batches, num_left = [], most
    for batch in rows:
        batches.append(batch.slice(0, num_left))
        num_left -= batches[-1].num_rows
        if not num_left:
            break
    return DraftedTable(rows.schema, pa.concat_tables(batches), rows.num_rows is not None and rows.num_rows <= most)


def conform_stream(rows: TableStream, schema: Schema) -> TableStream:
    """Every batch read as a drafted schema says, as by `conform`."""
    types = conform(rows.schema.empty_table(), schema).schema
    return rows.map(types, lambda batch: conform(batch, schema))


def _open(location: TableLocation, reading: ReadOptions) -> BatchReader | TypedJsonLines | None:
    if location.suffix in TEXT_SUFFIXES:
        return open_delimited(location, reading)
    if location.suffix == ".jsonl":
        return TypedJsonLines(location)
    if location.suffix == ".sqlite":
        return open_sqlite(location)
    return open_typed_folder(location) if location.is_folder else stream.READERS[location.suffix](location)


def _comparable(types: pa.Schema) -> list[str]:
    """The columns by which two passes are compared: those that can be modelled."""
    flat = [field for field in types if not isinstance(field.type, pa.BaseExtensionType)]
    return [field.name for field in flat if flat_type(field.type) is not None]


def _drafted_schemas(types: pa.Schema, columns: list[_Column]) -> tuple[pa.Schema, pa.Schema]:
    """The internal types, and those of the source with the styles of its texts."""
    normal = normalize(types.empty_table()).schema
    internal, own = [], []
    for column, plain in zip(columns, normal, strict=True):
        field, found = column.field, column.text_type
        style = {} if found is None else found.style
        arrow_type = column.convert(pa.chunked_array([], field.type)).type
        if is_untyped(field):
            inferred = inferred_field(field, arrow_type, style)
            internal.append(inferred)
            own.append(inferred)
        elif pa.types.is_string(plain.type):
            internal.append(pa.field(field.name, arrow_type, metadata=dict(style) or None))
            own.append(field.with_metadata(dict(style) or None))
        else:
            internal.append(plain)
            own.append(field)
    return pa.schema(internal, types.metadata), pa.schema(own, types.metadata)
