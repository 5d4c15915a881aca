"""Columns of one type as another: what was read as its declared kind, and back to the type of its origin."""

import contextlib
from datetime import datetime

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import SchemaError
from understudy.schema import Column, Schema, is_text
from understudy.tables.engine import computed, quoted
from understudy.tables.origins import style_of
from understudy.tables.texts import LEAST, MOST, by_distinct, found_spelling, is_untyped, read_as, unknown_format

MICROSECONDS_PER_DAY = 86_400_000_000
WHOLE = ("integer", "boolean")
"""Kinds whose values are floats only by accident: pandas makes floats of integers where one is missing."""


def conform(table: pa.Table, schema: Schema) -> pa.Table:
    """Reads each column as its declared kind; what cannot be read so becomes null. Never an error over a value.

    Integers are rounded, and clamped to 64 bits. Columns that the schema does not name stay as they are. Spelling (a
    field's metadata) is what the schema declares; of a drafted schema, what it leaves open is found from the values.
    """
    columns: list[pa.ChunkedArray] = []
    fields: list[pa.Field] = []
    for field, values in zip(table.schema, table.columns, strict=True):
        style = {key: value for key, value in style_of(field).items() if key != "untyped"}
        if field.name in schema and schema[field.name].modelled:
            column = schema[field.name]
            values, found = _as_declared(values, column, untyped=is_untyped(field), drafted=schema.drafted)
            style = (style | found if schema.drafted else {}) | _declared_spelling(column)
        columns.append(values)
        fields.append(field.with_type(values.type).with_metadata(style or None))
    return pa.table(columns, schema=pa.schema(fields, table.schema.metadata))


def given_back(own: pa.Schema, conformed: pa.Schema, schema: Schema) -> pa.Schema:
    """The types to give back, with their spelling: a column's own, or where it had none that of its declared kind."""
    fields = []
    for field, read in zip(own, conformed, strict=True):
        column = schema[field.name] if field.name in schema and schema[field.name].modelled else None
        fields.append(read.with_type(_type_given_back(field, read, column, drafted=schema.drafted)))
    return pa.schema(fields, own.metadata)


def _type_given_back(own: pa.Field, read: pa.Field, column: Column | None, *, drafted: bool) -> pa.DataType:
    if is_untyped(own) or pa.types.is_null(_held(own.type)):
        return pa.string() if column is None else read.type
    if column is not None and not drafted and pa.types.is_floating(own.type) and read_kind(column) in WHOLE:
        return pa.int64()
    return own.type


def read_kind(column: Column) -> str:
    """The kind to read values as: of declared categories, that of their type."""
    if column.kind == "categorical" and column.categories is not None:
        return {bool: "boolean", int: "integer", float: "real"}.get(type(column.categories[0]), "categorical")
    return column.kind


def _held(arrow_type: pa.DataType) -> pa.DataType:
    return arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type


def _declared_spelling(column: Column) -> dict[str, str]:
    """How text files write the column, as far as the schema says."""
    if column.format is not None and column.kind != "boolean":
        try:  # now, since writing comes after the budget is spent
            computed(f"strftime(v, {quoted(column.format)})", pa.array([datetime(2000, 1, 1)], pa.timestamp("us")))
        except duckdb.Error:
            raise unknown_format(column.format) from None
    style = {} if column.format is None else {"format": column.format}
    return style if column.decimals is None else {**style, "decimals": str(column.decimals), "padded": "true"}


def _as_declared(
    values: pa.ChunkedArray, column: Column, *, untyped: bool, drafted: bool
) -> tuple[pa.ChunkedArray, dict[str, str]]:
    """One column as its declared kind, with nulls where a value cannot be read so; and the spelling, if `drafted`."""
    kind, held = read_kind(column), _held(values.type)
    if pa.types.is_null(held):
        values, held = pa.chunked_array([pa.nulls(len(values), pa.string())]), pa.string()
    if kind == "categorical" and (is_text(held) or (column.categories is None and not untyped)):
        return values, {}
    if is_text(held):
        values = values.cast(pa.dictionary(pa.int32(), pa.string())) if held != pa.string() else values

        def convert(texts: pa.Array) -> tuple[pa.Array, dict[str, str]]:
            read = read_as(texts, kind, column.format, zoned=_is_zoned(column))
            return read, found_spelling(texts, kind) if drafted else {}

        return by_distinct(values, convert)
    try:
        values = _retyped(values, held, kind)
        return (_in_declared_type(values, kind, zoned=_is_zoned(column)) if untyped else values), {}
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise SchemaError(
            f"Column {column.name!r} is declared {column.kind!r}, and the table holds {held} there."
            " Change its kind in the schema, or the table."
        ) from None


def _is_zoned(column: Column) -> bool:
    """Whether a datetime column has a zone, by its format or its bounds."""
    least = column.bounds[0] if column.bounds else None
    return (column.format or "").endswith(("%z", "Z")) or (isinstance(least, datetime) and least.tzinfo is not None)


def _in_declared_type(values: pa.ChunkedArray, kind: str, *, zoned: bool) -> pa.ChunkedArray:
    """The values in the one type of their kind, where their own was guessed from them."""
    declared = {
        "categorical": pa.string(),
        "integer": pa.int64(),
        "real": pa.float64(),
        "boolean": pa.bool_(),
        "datetime": pa.timestamp("us", "UTC" if zoned else None),
        "date": pa.date32(),
    }[kind]
    return rounded(values) if pa.types.is_uint64(values.type) else as_type(values, declared)


def _retyped(values: pa.ChunkedArray, held: pa.DataType, kind: str) -> pa.ChunkedArray:
    """A typed column as another kind."""
    types = pa.types
    if types.is_dictionary(values.type):
        values = values.cast(held)
    number = types.is_integer(held) or types.is_floating(held) or types.is_decimal(held) or types.is_boolean(held)
    if kind == "categorical":
        return as_text(values)
    if kind == "integer" and number:
        return values if types.is_integer(held) else rounded(values)
    if kind == "real" and number:
        return values if types.is_floating(held) else values.cast(pa.float64(), safe=False)
    if kind == "boolean" and number:
        return values if types.is_boolean(held) else pc.not_equal(values.cast(pa.float64(), safe=False), 0.0)
    if kind == "date" and (types.is_date(held) or types.is_timestamp(held)):
        local = pc.local_timestamp(values) if types.is_timestamp(held) and held.tz else values
        return local.cast(pa.date32(), safe=False)
    if kind == "datetime" and (types.is_date(held) or types.is_timestamp(held)):
        return values if types.is_timestamp(held) else _midnights(values)
    raise pa.ArrowTypeError("no rule")


def rounded(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Reals as the nearest 64-bit integers; NaN is null, infinities are the ends."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int64())
    reals = pc.round(values.cast(pa.float64(), safe=False))
    if pa.types.is_decimal(values.type):  # exact where it fits; floats end at 53 bits
        inside = pc.less(pc.abs(reals), 2.0**62)
        exact = pc.round(pc.if_else(inside, values, pa.scalar(0, values.type))).cast(pa.int64(), safe=False)
        return pc.if_else(inside, exact, rounded(reals))
    reals = pc.if_else(pc.is_nan(reals), pa.scalar(None, pa.float64()), reals)
    fits = pc.less(pc.abs(reals), 2.0**63)
    whole = pc.if_else(fits, reals, 0.0).cast(pa.int64())
    return pc.if_else(fits, whole, pc.if_else(pc.greater(reals, 0.0), MOST, LEAST))


def _midnights(dates: pa.ChunkedArray) -> pa.ChunkedArray:
    """Days as timestamps; days beyond the reach of 64 bits of microseconds are clamped."""
    days = dates.cast(pa.date32(), safe=False).cast(pa.int32()).cast(pa.int64())
    reach = (2**63 - 1) // MICROSECONDS_PER_DAY
    clamped = pc.min_element_wise(pc.max_element_wise(days, -reach, skip_nulls=False), reach, skip_nulls=False)
    return pc.multiply(clamped, MICROSECONDS_PER_DAY).cast(pa.timestamp("us"))


def as_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as text. Bytes are read one by one: a cast would refuse a whole column over one row."""
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return pa.chunked_array(
            [pa.array(map(_utf8, chunk.to_pylist()), pa.string()) for chunk in values.chunks], pa.string()
        )
    return values.cast(pa.string())


def _utf8(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def inner_form(table: pa.Table) -> pa.Table:
    """One form for all: plain strings, 32-bit dictionary codes, NaN as null, dates in days."""
    columns = [_inner_column(values) for values in table.columns]
    fields = [f.with_type(c.type).with_nullable(True) for f, c in zip(table.schema, columns, strict=True)]
    return pa.table(columns, schema=pa.schema(fields, table.schema.metadata))


def _inner_column(values: pa.ChunkedArray) -> pa.ChunkedArray:
    held, types = values.type, pa.types
    if isinstance(held, pa.BaseExtensionType):
        return _inner_column(pa.chunked_array([c.storage for c in values.chunks], held.storage_type))
    if types.is_run_end_encoded(held):
        return _inner_column(pa.chunked_array([pc.run_end_decode(c) for c in values.chunks], held.value_type))
    if types.is_dictionary(held):
        value_type = pa.string() if is_text(held.value_type) else held.value_type
        plain = pa.dictionary(pa.int32(), value_type, ordered=held.ordered)
        return values.cast(plain).unify_dictionaries() if held != plain else values.unify_dictionaries()
    if types.is_large_string(held) or types.is_string_view(held):
        with contextlib.suppress(pa.ArrowInvalid):  # a piece of more than 2 GB stays large
            return values.cast(pa.string())
    if types.is_float16(held):
        values = values.cast(pa.float32())
    if types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    return values.cast(pa.date32(), safe=False) if types.is_date64(held) else values


def as_type(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """The values in another type, as nearly as it can hold them; raises where it cannot."""
    held, types = values.type, pa.types
    if held == target:
        return values
    if types.is_dictionary(target):
        if not types.is_dictionary(held):
            values = as_type(values, target.value_type)
            ordered = pa.chunked_array([pc.unique(values).drop_null().sort()])
            values = pc.index_in(values, ordered.combine_chunks())
            return _coded(values, ordered.combine_chunks(), target)
        values = values.unify_dictionaries()
        dictionary = as_type(pa.chunked_array([values.chunk(0).dictionary]), target.value_type).combine_chunks()
        return _coded(pa.chunked_array([c.indices for c in values.chunks], held.index_type), dictionary, target)
    if types.is_dictionary(held):
        return as_type(values.cast(held.value_type), target)
    if types.is_floating(held) and types.is_integer(target):
        return rounded(values).cast(target)
    if types.is_floating(held) and types.is_decimal(target):
        return pc.round(values, target.scale).cast(target)
    lossy = types.is_timestamp(held) or (types.is_floating(target) and not is_text(held))
    return values.cast(target, safe=not lossy)


def _coded(indices: pa.ChunkedArray, dictionary: pa.Array, target: pa.DictionaryType) -> pa.ChunkedArray:
    """Codes and dictionary as one column, in wider codes where the given ones are too narrow."""
    fits = len(dictionary) <= 2 ** (target.index_type.bit_width - 1)
    index_type = target.index_type if fits else pa.int32()
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.cast(index_type), dictionary, ordered=target.ordered)
        for chunk in indices.chunks
    ]
    return pa.chunked_array(chunks, pa.dictionary(index_type, dictionary.type, target.ordered))


def bare(table: pa.Table) -> pa.Table:
    """Without foreign metadata: pandas and polars write values and categories there."""
    return pa.table(table.columns, schema=pa.schema([field.remove_metadata() for field in table.schema]))
