"""Text columns: their types, inferred by fixed rules from all values, or each value read as its declared kind."""

from collections.abc import Callable, Mapping

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import SchemaError
from understudy.rules.sql import compute_sql
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


def infer_text_dates(table: pa.Table, own: pa.Schema) -> tuple[pa.Table, pa.Schema]:
    """Infers dates and datetimes in columns that the source holds as text; and the types of the source, with style.

    `own` are the types of the source. They stay: what was text comes back as text, in the same format. In columns of
    it that are marked untyped all rules apply.
    """
    columns, fields, styled = [], [], []
    for values, field, source in zip(table.columns, table.schema, own, strict=True):
        if pa.types.is_string(field.type):
            marked = mark_untyped(field, only_dates=not is_untyped(source))
            inference = inference_of(marked)
            inference.add(values.unique())
            found = inference.found()
            values = values if found is None else convert_distinct(values, found.read)
            field = inferred_field(marked, values.type, {} if found is None else found.style)
            source = source.with_type(field.type) if is_untyped(source) else source
            source = source.with_metadata(field.metadata)
        columns.append(values)
        fields.append(field)
        styled.append(source)
    return pa.table(columns, schema=pa.schema(fields, table.schema.metadata)), pa.schema(styled, own.metadata)


def convert_distinct(values: pa.ChunkedArray, convert: Callable[[pa.Array], pa.Array]) -> pa.ChunkedArray:
    """Converts each distinct value once."""
    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    coded = coded.unify_dictionaries()
    converted = convert(coded.chunk(0).dictionary if coded.num_chunks else pa.array([], coded.type.value_type))
    return pa.chunked_array([converted.take(chunk.indices) for chunk in coded.chunks], converted.type)


def inference_of(field: pa.Field) -> TextInference:
    """The inference of an untyped column, by the marks of its field."""
    decimal = field.metadata.get(b"decimal", b"").decode() or None
    return TextInference(only_dates=field.metadata[_UNTYPED] == b"dates", decimal=decimal)


def inferred_field(field: pa.Field, arrow_type: pa.DataType, style: Mapping[str, str]) -> pa.Field:
    """An untyped field in the inferred type, with the style of its strings."""
    style = dict(style)
    if field.metadata.get(b"decimal") == b"," and pa.types.is_floating(arrow_type):
        style["decimal"] = ","
    if b"labels" in field.metadata:
        style["labels"] = field.metadata[b"labels"].decode()
    return pa.field(field.name, arrow_type, metadata=style or None)


def with_decimal_commas(table: pa.Table) -> list[str]:
    """The text columns all of whose values are written as numbers, some of them with a decimal comma."""
    names = []
    for field, values in zip(table.schema, table.columns, strict=True):
        if pa.types.is_string(field.type):
            present = without_null_words(values.unique()).drop_null()
            has_comma = pc.any(pc.match_substring(present, ",")).as_py()
            names += [field.name] * bool(has_comma and plain_numbers(present, ",").null_count == 0)
    return names


def read_as(
    strings: pa.Array, kind: str, text_format: str | None = None, *, zoned: bool = False, decimal: str | None = None
) -> pa.Array:
    """Strings read as the declared kind, each separately; null if that fails. Datetimes are in UTC if `zoned`.

    `decimal` is the decimal mark; None: a point, and no thousands separators. The type of the result depends on the
    other arguments alone, not on the strings.
    """
    if kind == "boolean" and text_format is not None:
        return _read_boolean(strings, text_format)
    trimmed = without_null_words(strings)
    if decimal is not None and kind in ("integer", "real"):
        trimmed = plain_numbers(trimmed, decimal)
    if kind in _READ_SQL:
        return compute_sql(_READ_SQL[kind], trimmed)
    if text_format is None:
        return _read_unformatted(trimmed, kind, zoned=zoned)
    try:
        datetimes = parse_datetimes(trimmed, [text_format])
    except duckdb.Error:
        raise unknown_format_error(text_format) from None
    if zoned and kind == "datetime" and datetimes.type.tz is None:
        datetimes = datetimes.cast(pa.timestamp("us", "UTC"))
    return datetimes.cast(pa.date32() if kind == "date" else datetimes.type, safe=False)


def unknown_format_error(text_format: str) -> SchemaError:
    """The error for a format that DuckDB cannot read or write dates with."""
    return SchemaError(
        f"{text_format!r} is not a valid strptime format. Write one such as '%d.%m.%Y %H:%M'.", key="format"
    )


def _read_boolean(strings: pa.Array, text_format: str) -> pa.Array:
    """By the two declared words alone, one of which may mean null in other columns."""
    no, yes = text_format.split("/")
    trimmed = pc.utf8_trim_whitespace(strings)
    return pc.if_else(pc.is_in(trimmed, pa.array([no, yes])), pc.equal(trimmed, yes), pa.scalar(None, pa.bool_()))


def _read_unformatted(strings: pa.Array, kind: str, *, zoned: bool) -> pa.Array:
    """Dates and datetimes without a declared format: by the unambiguous formats, with or without a zone."""
    plain = [f"{day}{mark}{time}" for day in _UNAMBIGUOUS for mark in " T" for _, time in TIMES]
    with_zone = [f"{text_format}%z" for text_format in plain]
    local = parse_datetimes(strings, [*_UNAMBIGUOUS, *plain])
    with_offset = parse_datetimes(pc.replace_substring_regex(strings, r"Z$", "+00:00"), with_zone)
    if zoned:
        return pc.coalesce(with_offset, local.cast(with_offset.type))
    datetimes = pc.coalesce(local, with_offset.cast(local.type))
    return datetimes.cast(pa.date32(), safe=False) if kind == "date" else datetimes


def infer_style(strings: pa.Array, kind: str, decimal: str | None = None) -> dict[str, str]:
    """Decimals of reals and words of booleans, inferred from the values. For drafted schemas only."""
    present = without_null_words(strings).drop_null()
    if kind == "real":
        decimals = Decimals()
        decimals.add(present if decimal is None else plain_numbers(present, decimal).drop_null())
        return decimals.style()
    if kind != "boolean" or len(present) > 2:
        return {}
    fitting = [words for words in _DRAFTED_BOOLEANS if set(present.to_pylist()) <= set(words.split("/"))]
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
