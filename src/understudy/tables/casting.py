"""Columns of one type as another: what was read as its declared kind, and back to the type of its origin."""

from datetime import datetime
from decimal import ROUND_HALF_EVEN

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import SchemaError
from understudy.schema import Column, Schema, is_text
from understudy.tables.engine import computed, quoted
from understudy.tables.origins import flat_type, style_of
from understudy.tables.texts import (
    LEAST,
    MOST,
    arrow_texts,
    by_distinct,
    found_spelling,
    is_untyped,
    microseconds,
    read_as,
    unknown_format,
    utf8,
)

MICROSECONDS_PER_DAY = 86_400_000_000
WHOLE = ("integer", "boolean")
"""Kinds whose values are floats only by accident: pandas makes floats of integers where one is missing."""


def conform(table: pa.Table, schema: Schema) -> pa.Table:
    """Reads each column as its declared kind, value by value; what cannot be read so becomes null.

    With a declared schema the types and the spelling (a field's metadata) of the result follow from the schema alone,
    whatever the types of the table: tools choose those by the values. The same holds for the unit column, whose values
    are only compared. Integers are rounded, and clamped to 64 bits. Other columns that are not modelled stay unchanged.

    With a drafted schema the table's own types stay where they fit the kind, a type that no value of the kind can have
    is refused, and any spelling that the schema leaves open is inferred from the values.
    """
    columns: list[pa.ChunkedArray] = []
    fields: list[pa.Field] = []
    for field, values in zip(table.schema, table.columns, strict=True):
        style = {key: value for key, value in style_of(field).items() if key != "untyped"}
        if field.name in schema and schema[field.name].modelled:
            column = schema[field.name]
            if schema.drafted:
                values, found = _as_drafted(values, column)
            else:
                values, style, found = in_declared_type(values, column), {}, {}
            style = style | found | _declared_spelling(column)
        elif field.name == schema.unit and not schema.drafted:
            values = _as_unit(values)
        columns.append(values)
        fields.append(field.with_type(values.type).with_metadata(style or None))
    return pa.table(columns, schema=pa.schema(fields, table.schema.metadata))


def _as_unit(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Integers and strings are compared as they are, everything else as text."""
    held = _held(values.type)
    return values if pa.types.is_integer(held) or is_text(held) else in_declared_type(values, _AS_TEXT)


def given_back(own: pa.Schema, conformed: pa.Schema, schema: Schema, *, keep_types: bool = False) -> pa.Schema:
    """The types to give back, with their spelling: with a declared schema those of the declared kinds.

    With `keep_types`, or a drafted schema, a column's own type; if it has none, that of its kind. Columns that are not
    given back are left out.
    """
    fields = []
    for field, read in zip(own, conformed, strict=True):
        if field.name not in schema or schema[field.name].drop or schema[field.name].kind == "text":
            continue
        column = schema[field.name]
        if not (keep_types or schema.drafted):
            held = pa.int64() if column.kind == "id" else read.type
        elif column.kind == "id":
            held = _id_type(field)
        else:
            held = _type_given_back(field, read, column, drafted=schema.drafted)
        fields.append(read.with_type(held))
    return pa.schema(fields, own.metadata)


def _id_type(own: pa.Field) -> pa.DataType:
    """Fresh numbers go into whole numbers and texts; whatever else the ids were is not needed for them."""
    return own.type if pa.types.is_integer(own.type) or is_text(own.type) else pa.int64()


def _type_given_back(own: pa.Field, read: pa.Field, column: Column, *, drafted: bool) -> pa.DataType:
    held = _held(own.type)
    if is_untyped(own) or pa.types.is_null(held) or flat_type(own.type) is None:
        return read.type
    if is_text(_held(read.type)) and not is_text(held):  # categories that became texts
        number = pa.types.is_integer(held) or pa.types.is_floating(held)
        if not (number or (pa.types.is_boolean(held) and column.categories is not None)):
            dictionary = pa.types.is_dictionary(own.type)
            return pa.dictionary(pa.int32(), pa.string(), own.type.ordered) if dictionary else pa.string()
    if not drafted and pa.types.is_floating(own.type) and read_kind(column) in WHOLE:
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


_NO_RULE = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


def _as_drafted(values: pa.ChunkedArray, column: Column) -> tuple[pa.ChunkedArray, dict[str, str]]:
    """One column as the drafted kind, and the spelling of its values; a type without values of that kind is refused."""
    try:
        return _as_declared(values, column, drafted=True)
    except _NO_RULE:
        held = _held(values.type)
        found = "nested values" if pa.types.is_nested(held) else held  # field names inside may be names of people
        raise SchemaError(
            f"Column {column.name!r} is declared {column.kind!r}, and the table holds {found} there."
            " Change its kind in the schema, or the table."
        ) from None


def _as_declared(
    values: pa.ChunkedArray, column: Column, *, drafted: bool = False
) -> tuple[pa.ChunkedArray, dict[str, str]]:
    """One column as its declared kind, with nulls where a value cannot be read as such; and the spelling, if `drafted`.

    Raises one of `_NO_RULE` for a type that no value of that kind can have.
    """
    kind, held = read_kind(column), _held(values.type)
    if pa.types.is_null(held):
        values, held = pa.chunked_array([pa.nulls(len(values), pa.string())]), pa.string()
    if is_text(held):
        if kind == "categorical":
            return values, {}
        values = values.cast(pa.dictionary(pa.int32(), pa.string())) if held != pa.string() else values

        def convert(texts: pa.Array) -> tuple[pa.Array, dict[str, str]]:
            read = read_as(texts, kind, column.format, zoned=is_zoned(column))
            return read, found_spelling(texts, kind) if drafted else {}

        return by_distinct(values, convert)
    if kind == "categorical" and drafted and column.categories is None and _is_number(held):
        return values, {}
    return _retyped(values, held, kind), {}


def in_declared_type(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """A typed column in the one type of its declared kind; nulls where no value of its type can be read so.

    Each cell is read as in a column of any other type: datetimes with a zone are taken in UTC, and bytes as text.
    """
    target, held = declared_type(column), _held(values.type)
    try:
        if _is_bytes(held):
            values = as_text(values)
        elif pa.types.is_date(target) and pa.types.is_timestamp(held):
            values = microseconds(values.cast(held)).cast(pa.timestamp("us"))
        read, _ = _as_declared(values, column if column.modelled else _AS_TEXT)
    except _NO_RULE:
        return pa.chunked_array([pa.nulls(len(values), target)])
    if pa.types.is_timestamp(target):
        return microseconds(read).cast(target)
    return rounded(read) if pa.types.is_uint64(read.type) else as_type(read, target)


_AS_TEXT = Column(name="", kind="categorical")


def _is_bytes(held: pa.DataType) -> bool:
    types = pa.types
    variable = types.is_binary(held) or types.is_large_binary(held) or types.is_binary_view(held)
    return variable or types.is_fixed_size_binary(held)


def declared_type(column: Column) -> pa.DataType:
    """The one type of a declared kind, whatever the source has."""
    if not column.modelled:
        return pa.string()
    return {
        "categorical": pa.string(),
        "integer": pa.int64(),
        "real": pa.float64(),
        "boolean": pa.bool_(),
        "datetime": pa.timestamp("us", "UTC" if is_zoned(column) else None),
        "date": pa.date32(),
    }[read_kind(column)]


def is_zoned(column: Column) -> bool:
    """Whether a datetime column has a zone, by its format or its bounds."""
    least = column.bounds[0] if column.bounds else None
    return (column.format or "").endswith(("%z", "Z")) or (isinstance(least, datetime) and least.tzinfo is not None)


def _is_number(held: pa.DataType) -> bool:
    types = pa.types
    return types.is_integer(held) or types.is_floating(held) or types.is_boolean(held)


def _retyped(values: pa.ChunkedArray, held: pa.DataType, kind: str) -> pa.ChunkedArray:
    """A typed column as another kind."""
    types = pa.types
    if types.is_dictionary(values.type):
        values = values.cast(held)
    number = _is_number(held) or types.is_decimal(held)
    if kind == "categorical":
        return as_text(values)
    if kind == "integer" and number:
        return values if types.is_integer(held) else rounded(values)
    if kind == "real" and number:
        return values if types.is_floating(held) else values.cast(pa.float64(), safe=False)
    if kind == "boolean" and number:
        return values if types.is_boolean(held) else pc.not_equal(values.cast(pa.float64(), safe=False), 0.0)
    if kind == "date" and types.is_timestamp(held):
        moments = microseconds(values).cast(pa.timestamp("us", held.tz))
        return (pc.local_timestamp(moments) if held.tz else moments).cast(pa.date32(), safe=False)
    if kind == "date" and types.is_date(held):
        return values.cast(pa.date32(), safe=False)
    if kind == "datetime" and types.is_timestamp(held):
        return values if held.unit in ("us", "ns") else microseconds(values).cast(pa.timestamp("us", held.tz))
    if kind == "datetime" and types.is_date(held):
        return _midnights(values)
    raise pa.ArrowTypeError("no rule")


def rounded(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Reals as the nearest 64-bit integers; NaN is null, infinities are the ends."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int64())
    if pa.types.is_decimal(values.type):  # exact, which floats are not, and a decimal type may be too narrow to be
        return by_distinct(_encodable(values), lambda distinct: (pa.array(_whole(distinct), pa.int64()), {}))[0]
    if pa.types.is_uint64(values.type):
        return pc.min_element_wise(values, pa.scalar(MOST, pa.uint64()), skip_nulls=False).cast(pa.int64())
    reals = pc.round(values.cast(pa.float64(), safe=False))
    reals = pc.if_else(pc.is_nan(reals), pa.scalar(None, pa.float64()), reals)
    fits = pc.less(pc.abs(reals), 2.0**63)
    whole = pc.if_else(fits, reals, 0.0).cast(pa.int64())
    return pc.if_else(fits, whole, pc.if_else(pc.greater(reals, 0.0), MOST, LEAST))


def _whole(decimals: pa.Array) -> list[int | None]:
    whole = (None if d is None else int(d.to_integral_value(ROUND_HALF_EVEN)) for d in decimals.to_pylist())
    return [None if number is None else min(max(number, LEAST), MOST) for number in whole]


def _midnights(dates: pa.ChunkedArray) -> pa.ChunkedArray:
    """Days as timestamps; days beyond the reach of 64 bits of microseconds are clamped."""
    days = dates.cast(pa.date32(), safe=False).cast(pa.int32()).cast(pa.int64())
    reach = (2**63 - 1) // MICROSECONDS_PER_DAY
    clamped = pc.min_element_wise(pc.max_element_wise(days, -reach, skip_nulls=False), reach, skip_nulls=False)
    return pc.multiply(clamped, MICROSECONDS_PER_DAY).cast(pa.timestamp("us"))


def as_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as text, each by the rule of `cell_text`; raises for types that have no text, whatever the values."""
    if is_text(_held(values.type)):
        return values.cast(pa.string())
    return by_distinct(_encodable(values), lambda distinct: (arrow_texts(distinct), {}))[0]


def _encodable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """In a type that can be dictionary-encoded."""
    if pa.types.is_decimal(values.type) and values.type.bit_width < 128:
        return values.cast(pa.decimal128(values.type.precision, values.type.scale))
    return values.cast(pa.float32()) if pa.types.is_float16(values.type) else values


def inner_form(table: pa.Table) -> pa.Table:
    """One form for all: plain strings, 32-bit dictionary codes, NaN as null, dates in days. What is no text is null."""
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
        values = _without_broken_texts(values)
        value_type = pa.string() if is_text(held.value_type) else held.value_type
        plain = pa.dictionary(pa.int32(), value_type, ordered=held.ordered)
        return values.cast(plain).unify_dictionaries() if held != plain else values.unify_dictionaries()
    if is_text(held):
        values = _without_broken_texts(values)
    if types.is_large_string(held) or types.is_string_view(held):
        return pa.chunked_array([piece for chunk in values.chunks for piece in _as_strings(chunk)], pa.string())
    if types.is_float16(held):
        values = values.cast(pa.float32())
    if types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    return values.cast(pa.date32(), safe=False) if types.is_date64(held) else values


def _as_strings(texts: pa.Array) -> list[pa.Array]:
    """The same strings, in pieces of at most the 2 GB that a plain string array can hold."""
    try:
        return [texts.cast(pa.string())]
    except pa.ArrowInvalid:
        if len(texts) == 1:  # a text of more than 2 GB
            return [pa.nulls(1, pa.string())]
        half = len(texts) // 2
        return [*_as_strings(texts.slice(0, half)), *_as_strings(texts.slice(half))]


def _without_broken_texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Nulls for what calls itself text and is not UTF-8: Arrow holds it, and few can read it."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        texts = values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
        chunks = [pa.array(map(utf8, chunk.cast(pa.binary()).to_pylist()), pa.string()) for chunk in texts.chunks]
        whole = pa.chunked_array(chunks, pa.string())
        return whole.dictionary_encode() if pa.types.is_dictionary(values.type) else whole
    return values


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
