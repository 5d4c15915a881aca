"""Text columns: their types, inferred by fixed rules from all values, or each value read as its declared kind."""

import functools
from collections.abc import Callable, Mapping, Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import SchemaError
from understudy.schema.sql import compute_sql
from understudy.tables.cells import INT64_MAX, INT64_MIN
from understudy.tables.text_types import (
    ANY_NUMBER,
    BOOLEANS,
    INFINITY,
    TIMES,
    Decimals,
    TextInference,
    parse_datetimes,
    plain_numbers,
    without_null_words,
)

_UNTYPED = b"untyped"

_DRAFTED_BOOLEANS = (*BOOLEANS, "f/t", "F/T", "no/yes", "No/Yes", "NO/YES", "n/y", "N/Y", "0/1")

_UNAMBIGUOUS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y")
"""Formats of a declared date without a `format`, tried on each value separately."""


def mark_untyped(field: pa.Field, *, only_dates: bool = False, decimal: str | None = None) -> pa.Field:
    """The field, marked as one whose source has no type for it; `decimal` is the sign that its numbers are read by."""
    mark = {_UNTYPED: b"dates" if only_dates else b"any"}
    return field.with_metadata(mark if decimal is None else {**mark, b"decimal": decimal.encode()})


def is_untyped(field: pa.Field) -> bool:
    """Whether the source has no type for this column, so that its type here could only come from the values."""
    return _UNTYPED in (field.metadata or {})


def infer_types(columns: list[pa.ChunkedArray], schema: pa.Schema) -> pa.Table:
    """Infers the type of each untyped column from all its values. Replaces the columns in the list, one by one."""
    fields = list(schema)
    for i, field in enumerate(fields):
        if is_untyped(field):
            columns[i], style = convert_distinct(columns[i], functools.partial(_infer_type, field=field))
            fields[i] = inferred_field(field, columns[i].type, style)
    return pa.table(columns, schema=pa.schema(fields, schema.metadata))


def infer_text_dates(table: pa.Table, own: pa.Schema, *, besides: Sequence[str] = ()) -> tuple[pa.Table, pa.Schema]:
    """Infers dates and datetimes in columns that the source holds as text; and the types of the source, with style.

    `own` are the types of the source. They stay: what was text comes back as text, in the same format. In columns of
    it that are marked untyped all rules apply. Columns `besides` are left as they are.
    """
    texts = [field.name for field in table.schema if pa.types.is_string(field.type) and field.name not in besides]
    mixed = [name for name in texts if is_untyped(own.field(name))]
    fields = [
        mark_untyped(field, only_dates=field.name not in mixed) if field.name in texts else field
        for field in table.schema
    ]
    read = infer_types(list(table.columns), pa.schema(fields, table.schema.metadata))
    styled = [field.with_metadata(read.field(field.name).metadata) if field.name in texts else field for field in own]
    styled = [field.with_type(read.field(field.name).type) if field.name in mixed else field for field in styled]
    return read, pa.schema(styled, own.metadata)


def convert_distinct(
    values: pa.ChunkedArray, convert: Callable[[pa.Array], tuple[pa.Array, dict[str, str]] | None]
) -> tuple[pa.ChunkedArray, dict[str, str]]:
    """Converts each distinct value once. If `convert` returns None the column is left unchanged."""
    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    coded = coded.unify_dictionaries()
    distinct = coded.chunk(0).dictionary if coded.num_chunks else pa.array([], coded.type.value_type)
    converted = convert(distinct)
    if converted is None:
        return values, {}
    array, style = converted
    return pa.chunked_array([array.take(chunk.indices) for chunk in coded.chunks], array.type), style


def inference_of(field: pa.Field) -> TextInference:
    """The inference of an untyped column, by the marks of its field."""
    decimal = field.metadata.get(b"decimal", b"").decode() or None
    return TextInference(only_dates=field.metadata[_UNTYPED] == b"dates", decimal=decimal)


def inferred_field(field: pa.Field, arrow_type: pa.DataType, style: Mapping[str, str]) -> pa.Field:
    """An untyped field in the inferred type, with the style of its texts."""
    style = dict(style)
    if field.metadata.get(b"decimal") == b"," and pa.types.is_floating(arrow_type):
        style["decimal"] = ","
    if b"labels" in field.metadata:
        style["labels"] = field.metadata[b"labels"].decode()
    return pa.field(field.name, arrow_type, metadata=style or None)


def _infer_type(texts: pa.Array, *, field: pa.Field) -> tuple[pa.Array, dict[str, str]] | None:
    """The texts in the type that all of them are written in; None: they stay text."""
    inference = inference_of(field)
    inference.add(texts)
    found = inference.found()
    return None if found is None else (found.read(texts), dict(found.style))


def with_decimal_commas(table: pa.Table) -> list[str]:
    """The text columns all of whose values are written as numbers, some of them with a decimal comma."""
    return [field.name for field, values in zip(table.schema, table.columns, strict=True) if _has_commas(values)]


def _has_commas(values: pa.ChunkedArray) -> bool:
    if not pa.types.is_string(values.type):
        return False
    present = without_null_words(pc.unique(values)).drop_null()
    has_comma = pc.any(pc.match_substring(present, ",")).as_py()
    return bool(has_comma) and plain_numbers(present, ",").null_count == 0


def read_as(
    texts: pa.Array, kind: str, text_format: str | None = None, *, zoned: bool = False, decimal: str | None = None
) -> pa.Array:
    """Texts read as the declared kind, each separately; null if that fails. Datetimes are in UTC if `zoned`.

    `decimal` is the decimal mark; None: a point, and no thousands separators. The type of the result depends on the
    other arguments alone, not on the texts.
    """
    if kind == "boolean" and text_format is not None:
        return _read_boolean(texts, text_format)
    trimmed = without_null_words(texts)
    if decimal is not None and kind in ("integer", "real"):
        trimmed = plain_numbers(trimmed, decimal)
    if kind in _READ_SQL:
        return compute_sql(_READ_SQL[kind], trimmed)
    if text_format is None:
        return _read_unformatted(trimmed, kind, zoned=zoned)
    try:
        moments = parse_datetimes(trimmed, [text_format])
    except duckdb.Error:
        raise unknown_format_error(text_format) from None
    if zoned and kind == "datetime" and moments.type.tz is None:
        moments = moments.cast(pa.timestamp("us", "UTC"))
    return moments.cast(pa.date32() if kind == "date" else moments.type, safe=False)


def unknown_format_error(text_format: str) -> SchemaError:
    """The error for a format that DuckDB cannot read or write dates with."""
    return SchemaError(
        f"{text_format!r} is not a valid strptime format. Write one such as '%d.%m.%Y %H:%M'.", key="format"
    )


def _read_boolean(texts: pa.Array, text_format: str) -> pa.Array:
    """By the two declared words alone, one of which may mean null in other columns."""
    no, yes = text_format.split("/")
    trimmed = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.is_in(trimmed, pa.array([no, yes])), pc.equal(trimmed, yes), pa.scalar(None, pa.bool_()))


def _read_unformatted(texts: pa.Array, kind: str, *, zoned: bool) -> pa.Array:
    """Dates and datetimes without a declared format: by the unambiguous formats, with or without a zone."""
    plain = [f"{day}{mark}{time}" for day in _UNAMBIGUOUS for mark in " T" for _, time in TIMES]
    with_zone = [f"{text_format}%z" for text_format in plain]
    local = parse_datetimes(texts, [*_UNAMBIGUOUS, *plain])
    zoned_moments = parse_datetimes(pc.replace_substring_regex(texts, r"Z$", "+00:00"), with_zone)
    if zoned:
        return pc.coalesce(zoned_moments, local.cast(zoned_moments.type))
    moments = pc.coalesce(local, zoned_moments.cast(local.type))
    return moments.cast(pa.date32(), safe=False) if kind == "date" else moments


def infer_style(texts: pa.Array, kind: str, decimal: str | None = None) -> dict[str, str]:
    """Decimals of reals and words of booleans, inferred from the values. For drafted schemas only."""
    present = without_null_words(texts).drop_null()
    if kind == "real":
        decimals = Decimals()
        decimals.add(present if decimal is None else plain_numbers(present, decimal).drop_null())
        return decimals.style()
    return _boolean_style(present) if kind == "boolean" else {}


def _boolean_style(texts: pa.Array) -> dict[str, str]:
    found = set(texts.to_pylist()) if len(texts) <= 2 else {""}
    fitting = [s for s in _DRAFTED_BOOLEANS if found <= set(s.split("/"))]
    return {"format": fitting[0]} if len(fitting) == 1 else {}


_INTEGER_SQL = f"""CASE
    WHEN regexp_full_match(v, '[+-]?[0-9]+')
        THEN coalesce(TRY_CAST(v AS BIGINT), CASE WHEN v LIKE '-%' THEN {INT64_MIN} ELSE {INT64_MAX} END)
    WHEN regexp_full_match(v, '{ANY_NUMBER}|{INFINITY}')
        THEN coalesce(TRY_CAST(round(TRY_CAST(v AS DOUBLE)) AS BIGINT),
                      CASE WHEN v LIKE '-%' THEN {INT64_MIN} ELSE {INT64_MAX} END)
    END::BIGINT"""
_REAL_SQL = f"CASE WHEN regexp_full_match(v, '{ANY_NUMBER}|{INFINITY}') THEN TRY_CAST(v AS DOUBLE) END::DOUBLE"
_BOOLEAN_SQL = """CASE WHEN lower(v) IN ('true', 't', 'yes', 'y', '1') THEN true
    WHEN lower(v) IN ('false', 'f', 'no', 'n', '0') THEN false END"""
_READ_SQL = {"integer": _INTEGER_SQL, "real": _REAL_SQL, "boolean": _BOOLEAN_SQL}
