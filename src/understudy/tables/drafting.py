"""Tables without a schema, whose types are drafted in one pass over their batches and never from a table held whole:
the rules of `text_types.py` see all strings of a column, part by part."""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from understudy.schema import Schema
from understudy.tables import stream
from understudy.tables.cast import conform, normalize, normalize_column
from understudy.tables.infer import convert_distinct, inference_of, inferred_field, is_untyped, mark_untyped
from understudy.tables.jsonlines import TypedJsonLines
from understudy.tables.origin import Origin, flat_type
from understudy.tables.path import require_names, require_types
from understudy.tables.reading_batches import BatchReader, RowsDigest
from understudy.tables.stream import TableStream
from understudy.tables.text_types import TextInference, TextType


class _Column(NamedTuple):
    field: pa.Field
    """In the types of the source."""
    text_type: TextType | None
    """The inferred type; None if the column stays text."""

    def convert(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """In the internal types, value by value."""
        if not is_untyped(self.field):
            return self._read(normalize_column(values))
        return normalize_column(self._read(values))

    def _read(self, strings: pa.ChunkedArray) -> pa.ChunkedArray:
        return strings if self.text_type is None else convert_distinct(strings, self.text_type.read)


def _add_strings(inferences: dict[str, TextInference], batch: pa.Table) -> None:
    """Takes in the strings of a batch.

    Columns that the source marks as untyped get a type by all rules, and other strings may turn out to be dates.
    """
    for field, values in zip(batch.schema, batch.columns, strict=True):
        strings = values if is_untyped(field) else _normal_strings(values)
        if strings is not None:
            marked = field if is_untyped(field) else mark_untyped(field, only_dates=True)
            inferences.setdefault(field.name, inference_of(marked)).add(strings.unique().drop_null())


def _normal_strings(values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The column as plain strings; None: it holds others."""
    is_plain = pa.types.is_string(normalize_column(pa.chunked_array([], values.type)).type)
    return normalize_column(values) if is_plain else None


def draft_stream(
    reader: BatchReader | TypedJsonLines, read: Callable[[], Iterator[pa.Table]], where: str, *, is_computed: bool
) -> tuple[TableStream, Origin]:
    """The rows that `read` gives, in types drafted from all of them, and their origin. Reads them once, to the end."""
    inferences, num_rows, kept = dict[str, TextInference](), 0, _Kept()
    for batch in read():
        _add_strings(inferences, batch)
        num_rows += batch.num_rows
        kept.add(batch)
    types = reader.types
    require_names(types.names, where)
    if not num_rows:
        require_types(types.empty_table(), where)
    text_types = {name: inference.found() for name, inference in inferences.items()}
    columns = [_Column(field, text_types.get(field.name)) for field in types]
    internal, own = _drafted_schemas(types, columns)
    is_final = kept.types is None or (kept.is_uniform and kept.types == types)
    is_checked = kept.is_large and is_final and not is_computed
    if is_final and not kept.is_large:
        read, is_computed = functools.partial(iter, kept.batches), False

    def convert() -> Iterator[pa.Table]:
        for batch in read():
            yield pa.table([each.convert(batch.column(each.field.name)) for each in columns], schema=internal)

    rows = TableStream(
        internal,
        convert,
        is_computed=is_computed,
        num_rows=num_rows,
        is_checked=is_checked,
        digest=kept.digest.of_table(types) if is_checked else None,
    )
    return rows, Origin.of(own, "file")


class _Kept:
    """The batches of a small table, which is then not read again; of a larger one, a hash of its rows."""

    def __init__(self) -> None:
        self.batches: list[pa.Table] = []
        self.types: pa.Schema | None = None
        self.is_large = False
        self.is_uniform = True
        """Whether all batches have the same types."""
        self._num_bytes = 0

    def add(self, batch: pa.Table) -> None:
        if self.types is None:
            self.types, self.digest = batch.schema, RowsDigest(comparable_columns(batch.schema))
        self.is_uniform = self.is_uniform and batch.schema == self.types
        self._num_bytes += batch.nbytes
        self.is_large = self._num_bytes > stream.KEPT_BYTES
        self.batches.append(batch)
        if self.is_large:
            for waiting in self.batches if self.is_uniform else ():
                self.digest.add(waiting)
                _convert_typed(waiting)
            self.batches.clear()


def _convert_typed(batch: pa.Table) -> None:
    """Converts the columns that are not text, as every later pass will, so that the first pass raises any error.

    Strings need no conversion for that: the rule that decides their type has read them all.
    """
    columns = {
        field.name: normalize_column(values)
        for field, values in zip(batch.schema, batch.columns, strict=True)
        if not is_untyped(field) and not pa.types.is_string(field.type)
    }
    if columns:
        table = pa.table(columns)
        conform(table, Schema.draft(table.schema))


def comparable_columns(types: pa.Schema) -> list[str]:
    """The columns by which two passes are compared: those that can be modelled."""
    flat = [field for field in types if not isinstance(field.type, pa.BaseExtensionType)]
    return [field.name for field in flat if flat_type(field.type) is not None]


def _drafted_schemas(types: pa.Schema, columns: list[_Column]) -> tuple[pa.Schema, pa.Schema]:
    """The internal types, and those of the source with the styles of its strings."""
    normal = normalize(types.empty_table()).schema
    internal, own = [], []
    for column, plain in zip(columns, normal, strict=True):
        field, text_type = column.field, column.text_type
        style = {} if text_type is None else text_type.style
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
