"""Conversion of columns: to the declared kind, to the internal types, and back to the types of the origin."""

import functools
from datetime import datetime
from decimal import ROUND_HALF_EVEN

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import SchemaError
from understudy.rules.sql import compute_sql, quote_text
from understudy.schema import Column, Schema
from understudy.schema.draft import is_text
from understudy.tables.cells import INT64_MAX, INT64_MIN, arrow_strings, cell_text, decode_utf8, microseconds
from understudy.tables.infer import convert_distinct, infer_style, is_untyped, read_as, unknown_format_error
from understudy.tables.origin import common_type, flat_type, is_number, style_of, value_type

MICROSECONDS_PER_DAY = 86_400_000_000
WHOLE = ("integer", "boolean")
"""Kinds whose values are floats only by accident: pandas turns integers into floats if one is missing."""


def conform(table: pa.Table, schema: Schema) -> pa.Table:
    """Reads each column as its declared kind, value by value; a value that cannot be read becomes null.

    With a declared schema the types and the style (a field's metadata) of the result depend on the schema alone and not
    on the types of the table, which tools choose by the values. The same holds for the unit column, whose values are
    only compared. Integers are rounded, and clamped to 64 bits. Other columns that are not modelled stay unchanged.

    With a drafted schema the table's own types stay if they fit the kind, a type that no value of the kind can have is
    refused, and any style that the schema leaves open is inferred from the values.
    """
    columns: list[pa.ChunkedArray] = []
    fields: list[pa.Field] = []
    for field, values in zip(table.schema, table.columns, strict=True):
        style = {key: value for key, value in style_of(field).items() if key not in ("untyped", "labels")}
        decimal = style.pop("decimal", None)  # the reader's, not inferred
        if field.name in schema and schema[field.name].modelled:
            column = schema[field.name]
            if schema.drafted:
                style |= _written_style(values, column, decimal)
                values = _as_drafted(values, column, decimal)
            else:
                values, style = as_declared_type(values, column, decimal), {}
            style |= _declared_style(column)
            if decimal == "," and pa.types.is_floating(values.type):
                style["decimal"] = decimal
        elif field.name == schema.unit and not schema.drafted:
            values = _as_unit(values, schema[field.name])
        columns.append(values)
        fields.append(field.with_type(values.type).with_metadata(style or None))
    return pa.table(columns, schema=pa.schema(fields, table.schema.metadata))


def _as_unit(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """Integers and strings are compared as they are, everything else as text."""
    values = without_missing(values, column)
    arrow_type = value_type(values.type)
    return values if pa.types.is_integer(arrow_type) or is_text(arrow_type) else as_declared_type(values, _AS_TEXT)


def output_schema(own: pa.Schema, conformed: pa.Schema, schema: Schema, *, keep_types: bool = False) -> pa.Schema:
    """The types and styles of the synthetic table: with a declared schema those of the declared kinds.

    With `keep_types`, or a drafted schema, a column's own type; if it has none, that of its kind. Columns that are not
    part of the synthetic table are left out.
    """
    fields = []
    for field, read in zip(own, conformed, strict=True):
        if field.name not in schema or schema[field.name].drop or schema[field.name].kind == "text":
            continue
        column = schema[field.name]
        if not (keep_types or schema.drafted):
            arrow_type = pa.int64() if column.kind == "id" else read.type
        elif column.kind == "id":  # synthetic ids are fresh numbers, so only integer and text types are kept
            arrow_type = field.type if pa.types.is_integer(field.type) or is_text(field.type) else pa.int64()
        else:
            arrow_type = _output_type(field, read, column, drafted=schema.drafted)
        fields.append(read.with_type(arrow_type))
    return pa.schema(fields, own.metadata)


def declared_schema(schema: Schema) -> pa.Schema:
    """The types and styles of a synthetic table with this declared schema, whatever the source."""
    own = pa.schema([pa.field(column.name, pa.string()) for column in schema.columns if not column.drop])
    return output_schema(own, conform(own.empty_table(), schema).schema, schema)


def _output_type(own: pa.Field, read: pa.Field, column: Column, *, drafted: bool) -> pa.DataType:
    arrow_type = value_type(own.type)
    if is_untyped(own) or pa.types.is_null(arrow_type) or flat_type(own.type) is None:
        return read.type
    if is_text(value_type(read.type)) and not is_text(arrow_type):  # categories that became strings
        number = pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type)
        if not (number or (pa.types.is_boolean(arrow_type) and column.categories is not None)):
            dictionary = pa.types.is_dictionary(own.type)
            return pa.dictionary(pa.int32(), pa.string(), own.type.ordered) if dictionary else pa.string()
    if not drafted and pa.types.is_floating(own.type) and value_kind(column) in WHOLE:
        return pa.int64()
    return own.type


def value_kind(column: Column) -> str:
    """The kind to read values as: for declared categories, that of their type."""
    if column.kind == "categorical" and column.categories is not None:
        return {bool: "boolean", int: "integer", float: "real"}.get(type(column.categories[0]), "categorical")
    return "categorical" if column.kind == "location" else column.kind  # text that is read later


def _declared_style(column: Column) -> dict[str, str]:
    """How text files write the column, as far as the schema declares it."""
    if column.format is not None and column.kind != "boolean":
        try:  # now: writing comes after the budget is spent
            compute_sql(
                f"strftime(v, {quote_text(column.format)})", pa.array([datetime(2000, 1, 1)], pa.timestamp("us"))
            )
        except duckdb.Error:
            raise unknown_format_error(column.format) from None
    style = {} if column.format is None else {"format": column.format}
    return style if column.decimals is None else {**style, "decimals": str(column.decimals), "padded": "true"}


_NO_RULE = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)
_ODD_VALUE = (*_NO_RULE, TypeError, ValueError, ArithmeticError, LookupError, duckdb.Error)
"""What libraries raise for a value that their conversion does not expect."""


def _written_style(values: pa.ChunkedArray, column: Column, decimal: str | None) -> dict[str, str]:
    """How the strings of a column are written, as far as its drafted kind leaves that open."""
    if value_kind(column) not in ("real", "boolean") or not is_text(value_type(values.type)):
        return {}
    distinct = without_missing(values, column).unique()
    strings = distinct.dictionary_decode() if pa.types.is_dictionary(distinct.type) else distinct
    return infer_style(strings.cast(pa.string()), value_kind(column), decimal)


def _as_drafted(values: pa.ChunkedArray, column: Column, decimal: str | None) -> pa.ChunkedArray:
    """One column as the drafted kind; refuses a type without values of that kind."""
    try:
        return _as_declared(values, column, decimal, drafted=True)
    except _NO_RULE:
        arrow_type = value_type(values.type)
        # Field names inside nested values may be names of people.
        found = "nested values" if pa.types.is_nested(arrow_type) else arrow_type
        raise SchemaError(
            f"Column {column.name!r} is declared {column.kind!r}, but the table holds {found}. Change its kind in the"
            " schema, or the table.",
            column=column.name,
            key="kind",
        ) from None


def _as_declared(
    values: pa.ChunkedArray, column: Column, decimal: str | None = None, *, drafted: bool = False
) -> pa.ChunkedArray:
    """One column as its declared kind, with nulls for values that cannot be read as such.

    Raises one of `_NO_RULE` for a type that no value of that kind can have.
    """
    read = _read_declared(without_missing(values, column), column, decimal, drafted=drafted)
    return without_missing(read, column)  # a number is missing however it is written: 9, 9.0 or 9,00


def _read_declared(values: pa.ChunkedArray, column: Column, decimal: str | None, *, drafted: bool) -> pa.ChunkedArray:
    kind, arrow_type = value_kind(column), value_type(values.type)
    if pa.types.is_null(arrow_type):
        values, arrow_type = pa.chunked_array([pa.nulls(len(values), pa.string())]), pa.string()
    if is_text(arrow_type):
        if kind == "categorical":
            return values
        values = values.cast(pa.dictionary(pa.int32(), pa.string())) if arrow_type != pa.string() else values
        read = functools.partial(read_as, kind=kind, text_format=column.format, zoned=is_zoned(column), decimal=decimal)
        return convert_distinct(values, read)
    if kind == "categorical" and drafted and column.categories is None and is_number(arrow_type):
        return values
    return _as_kind(values, arrow_type, kind)


def without_missing(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """Nulls for the values that are declared missing, each compared by its own text."""
    if not column.missing:
        return values
    words = pa.array([cell_text(word) for word in column.missing], pa.string())

    def convert(distinct: pa.Array) -> pa.Array:
        strings = distinct if is_text(distinct.type) else arrow_strings(distinct)
        is_missing = pc.is_in(pc.utf8_trim_whitespace(strings), words)
        at = pa.array(np.arange(len(distinct)), mask=is_missing.to_numpy(zero_copy_only=False))
        return distinct.take(at)  # a choice between two arrays would refuse decimals beyond their precision

    try:
        return convert_distinct(values, convert)
    except pa.ArrowTypeError:  # values without text are none of these
        return values


def plain_without_missing(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """The same, not in a dictionary, so that `null_count` counts all of them."""
    return without_missing(values.cast(value_type(values.type)), column)


def as_declared_type(values: pa.ChunkedArray, column: Column, decimal: str | None = None) -> pa.ChunkedArray:
    """A typed column in the one type of its declared kind; all nulls if no value of its type can be read as such.

    Each value is read as in a column of any other type: datetimes with a zone in UTC, and bytes as text.
    """
    target, arrow_type = declared_type(column), value_type(values.type)
    try:
        if pa.types.is_binary(arrow_type):
            values = as_text(values)
        elif pa.types.is_date(target) and pa.types.is_timestamp(arrow_type):
            values = microseconds(values.cast(arrow_type)).cast(pa.timestamp("us"))
        as_text_column = Column(name=column.name, kind="categorical", missing=column.missing)
        read = _as_declared(values, column if column.modelled else as_text_column, decimal)
    except _ODD_VALUE:
        if len(values) < 2 or not _has_rule(arrow_type, column):
            return pa.chunked_array([pa.nulls(len(values), target)])
        # One value is to blame, and it alone is null: whatever it does to a conversion, the other rows stay.
        half = len(values) // 2
        parts = [as_declared_type(part, column, decimal) for part in (values.slice(0, half), values.slice(half))]
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks], target)
    if pa.types.is_timestamp(target):
        return microseconds(read).cast(target)
    return round_to_int(read) if pa.types.is_uint64(read.type) else as_type(read, target)


def _has_rule(arrow_type: pa.DataType, column: Column) -> bool:
    """Whether values of this type can be read as the declared kind at all."""
    try:
        _as_declared(pa.chunked_array([], arrow_type), column)
    except _NO_RULE:
        return False
    return True


_AS_TEXT = Column(name="", kind="categorical")


def declared_type(column: Column) -> pa.DataType:
    """The one Arrow type of a declared kind."""
    if not column.modelled:
        return pa.string()
    return {
        "categorical": pa.string(),
        "integer": pa.int64(),
        "real": pa.float64(),
        "boolean": pa.bool_(),
        "datetime": pa.timestamp("us", "UTC" if is_zoned(column) else None),
        "date": pa.date32(),
    }[value_kind(column)]


def is_zoned(column: Column) -> bool:
    """Whether a datetime column has a zone, by its format or its bounds."""
    lower = column.bounds[0] if column.bounds else None
    return (column.format or "").endswith(("%z", "Z")) or (isinstance(lower, datetime) and lower.tzinfo is not None)


def _as_kind(values: pa.ChunkedArray, arrow_type: pa.DataType, kind: str) -> pa.ChunkedArray:
    types = pa.types
    if types.is_dictionary(values.type):
        values = values.cast(arrow_type)
    number = is_number(arrow_type) or types.is_decimal(arrow_type)
    if kind == "categorical":
        return as_text(values)
    if kind == "integer" and number:
        return values if types.is_integer(arrow_type) else round_to_int(values)
    if kind == "real" and number:
        return values if types.is_floating(arrow_type) else values.cast(pa.float64(), safe=False)
    if kind == "boolean" and number:
        return values if types.is_boolean(arrow_type) else pc.not_equal(values.cast(pa.float64(), safe=False), 0.0)
    if kind == "date" and types.is_timestamp(arrow_type):
        datetimes = microseconds(values).cast(pa.timestamp("us", arrow_type.tz))
        return (pc.local_timestamp(datetimes) if arrow_type.tz else datetimes).cast(pa.date32(), safe=False)
    if kind == "date" and types.is_date(arrow_type):
        return values.cast(pa.date32(), safe=False)
    if kind == "datetime" and types.is_timestamp(arrow_type):
        is_fine = arrow_type.unit in ("us", "ns")
        return values if is_fine else microseconds(values).cast(pa.timestamp("us", arrow_type.tz))
    if kind == "datetime" and types.is_date(arrow_type):
        return _midnights(values)
    raise pa.ArrowTypeError("no rule for this type and kind")


def round_to_int(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers as the nearest 64-bit integers; NaN becomes null, and infinities the largest or smallest integer."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int64())
    if pa.types.is_decimal(values.type):  # exact: floats are not, and the decimal type may be too narrow to round in
        return convert_distinct(values, lambda distinct: pa.array(_round_decimals(distinct), pa.int64()))
    if pa.types.is_uint64(values.type):
        return pc.min_element_wise(values, pa.scalar(INT64_MAX, pa.uint64()), skip_nulls=False).cast(pa.int64())
    reals = pc.round(values.cast(pa.float64(), safe=False))
    reals = pc.if_else(pc.is_nan(reals), pa.scalar(None, pa.float64()), reals)
    fits = pc.less(pc.abs(reals), 2.0**63)
    whole = pc.if_else(fits, reals, 0.0).cast(pa.int64())
    return pc.if_else(fits, whole, pc.if_else(pc.greater(reals, 0.0), INT64_MAX, INT64_MIN))


def _round_decimals(decimals: pa.Array) -> list[int | None]:
    whole = (None if d is None else int(d.to_integral_value(ROUND_HALF_EVEN)) for d in decimals.to_pylist())
    return [None if number is None else min(max(number, INT64_MIN), INT64_MAX) for number in whole]


def _midnights(dates: pa.ChunkedArray) -> pa.ChunkedArray:
    """Days as timestamps; days beyond 64 bits of microseconds are clamped."""
    days = dates.cast(pa.date32(), safe=False).cast(pa.int32()).cast(pa.int64())
    reach = (2**63 - 1) // MICROSECONDS_PER_DAY
    clamped = pc.min_element_wise(pc.max_element_wise(days, -reach, skip_nulls=False), reach, skip_nulls=False)
    return pc.multiply(clamped, MICROSECONDS_PER_DAY).cast(pa.timestamp("us"))


def as_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as text, each by the rule of `cell_text`; raises for types without one, whatever the values."""
    if is_text(value_type(values.type)):
        return values.cast(pa.string())
    return convert_distinct(values, arrow_strings)


def normalize(table: pa.Table) -> pa.Table:
    """The table in the internal types."""
    columns = [normalize_column(values) for values in table.columns]
    fields = [f.with_type(c.type).with_nullable(True) for f, c in zip(table.schema, columns, strict=True)]
    return pa.table(columns, schema=pa.schema(fields, table.schema.metadata))


def normalize_column(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """In a common type: plain strings, 32-bit dictionary codes, days. NaN and text that is not UTF-8 are null."""
    arrow_type, types = values.type, pa.types
    if isinstance(arrow_type, pa.BaseExtensionType):
        return normalize_column(values.cast(arrow_type.storage_type))
    if types.is_run_end_encoded(arrow_type):
        return normalize_column(_without_runs(values))
    if types.is_dictionary(arrow_type):
        return _normalize_dictionary(values)
    if is_text(arrow_type):
        strings = _without_broken_strings(values)
        return pa.chunked_array([piece for chunk in strings.chunks for piece in _as_strings(chunk)], pa.string())
    values = values.cast(common_type(arrow_type), safe=False)
    if types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    return values


def _without_runs(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """One value for each row; Arrow itself does not know how for every type of value."""
    plain = []
    for chunk in values.chunks:
        ends = chunk.run_ends.to_numpy(zero_copy_only=False).astype(np.int64)
        at = np.searchsorted(ends, np.arange(chunk.offset, chunk.offset + len(chunk)), side="right")
        plain.append(_without_view(chunk.values).take(pa.array(at)))
    return pa.chunked_array(plain, _COPIED.get(values.type.value_type, values.type.value_type))


_COPIED = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
"""Arrow cannot select among the values of these types."""


def _without_view(values: pa.Array) -> pa.Array:
    """The same bytes in a type that can be selected from, whether or not they are UTF-8."""
    plain = _COPIED.get(values.type)
    return values if plain is None else values.cast(pa.binary()).view(plain)


def _normalize_dictionary(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with 32-bit codes and one dictionary for all chunks, if possible; else its values alone."""
    value_type, ordered = values.type.value_type, values.type.ordered
    has_strings = is_text(value_type)
    common = pa.string() if has_strings else common_type(value_type)
    try:
        intact = _without_broken_strings(values) if has_strings else values
        return intact.cast(pa.dictionary(pa.int32(), common, ordered=ordered), safe=False).unify_dictionaries()
    except _NO_RULE:  # a null in a dictionary, or a value that a conversion does not expect
        plain = [_without_view(chunk.dictionary).take(chunk.indices) for chunk in values.chunks]
        coded = normalize_column(pa.chunked_array(plain, _COPIED.get(value_type, value_type))).dictionary_encode()
        return coded.cast(pa.dictionary(pa.int32(), common, ordered=ordered))


def _as_strings(strings: pa.Array) -> list[pa.Array]:
    """The same strings, in pieces of at most the 2 GB that a plain string array can hold."""
    try:
        return [strings.cast(pa.string())]
    except pa.ArrowInvalid:
        if len(strings) == 1:  # one string of more than 2 GB
            return [pa.nulls(1, pa.string())]
        half = len(strings) // 2
        return [*_as_strings(strings.slice(0, half)), *_as_strings(strings.slice(half))]


def _without_broken_strings(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Nulls for strings that are not UTF-8, which Arrow can hold and most libraries cannot read."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        strings = values.cast(value_type(values.type))
        chunks = [
            pa.array(map(decode_utf8, chunk.cast(pa.binary()).to_pylist()), pa.string()) for chunk in strings.chunks
        ]
        whole = pa.chunked_array(chunks, pa.string())
        return whole.dictionary_encode() if pa.types.is_dictionary(values.type) else whole
    return values


def as_type(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """The values in another type, as exactly as it can hold them; raises if it cannot."""
    arrow_type, types = values.type, pa.types
    if arrow_type == target:
        return values
    if types.is_dictionary(target):
        if not types.is_dictionary(arrow_type):
            values = as_type(values, target.value_type)
            ordered = pa.chunked_array([pc.unique(values).drop_null().sort()])
            values = pc.index_in(values, ordered.combine_chunks())
            return _encode_dictionary(values, ordered.combine_chunks(), target)
        values = values.unify_dictionaries()
        dictionary = as_type(pa.chunked_array([values.chunk(0).dictionary]), target.value_type).combine_chunks()
        return _encode_dictionary(
            pa.chunked_array([c.indices for c in values.chunks], arrow_type.index_type), dictionary, target
        )
    if types.is_dictionary(arrow_type):
        return as_type(values.cast(arrow_type.value_type), target)
    if types.is_floating(arrow_type) and types.is_integer(target):
        return round_to_int(values).cast(target)
    if types.is_floating(arrow_type) and types.is_decimal(target):
        return pc.round(values, target.scale).cast(target)
    lossy = types.is_timestamp(arrow_type) or (types.is_floating(target) and not is_text(arrow_type))
    return values.cast(target, safe=not lossy)


def _encode_dictionary(indices: pa.ChunkedArray, dictionary: pa.Array, target: pa.DictionaryType) -> pa.ChunkedArray:
    """Codes and dictionary as one column, with wider codes if those of the target are too narrow."""
    fits = len(dictionary) <= 2 ** (target.index_type.bit_width - 1)
    index_type = target.index_type if fits else pa.int32()
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.cast(index_type), dictionary, ordered=target.ordered)
        for chunk in indices.chunks
    ]
    return pa.chunked_array(chunks, pa.dictionary(index_type, dictionary.type, target.ordered))


def in_dictionary(values: pa.ChunkedArray, dictionary: pa.Array) -> pa.ChunkedArray:
    """Dictionary-encoded values in another dictionary, which has all of them."""
    values = values.unify_dictionaries()
    if not values.num_chunks:
        return values
    places = pc.index_in(values.chunk(0).dictionary, dictionary)
    indices = pa.chunked_array([places.take(chunk.indices) for chunk in values.chunks])
    return _encode_dictionary(indices, dictionary, values.type)


def without_metadata(table: pa.Table) -> pa.Table:
    """The table without metadata: pandas and polars write values and categories there."""
    return pa.table(table.columns, schema=pa.schema([field.remove_metadata() for field in table.schema]))
