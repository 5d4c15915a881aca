"""Text columns: their types, inferred by fixed rules from all values, or each value read as its declared kind."""

import functools
import re
from collections.abc import Callable, Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import SchemaError
from understudy.schema.sql import compute_sql, quote_text
from understudy.tables.cells import INT64_MAX, INT64_MIN

_UNTYPED = b"untyped"
_Rule = Callable[[pa.Array, pa.Array], tuple[pa.Array, dict[str, str]] | None]

NULL_WORDS = (
    *("", "na", "n/a", "n.a.", "#n/a", "#na", "<na>", "nan", "nat", "null", "nil", "none", "unknown", "unk", "missing"),
    *("not available", "not applicable", "not known", "no data", "?", "-", "--", ".", ".."),
    *("#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!"),
)
"""Read as null in columns of numbers, booleans and dates, in any case; in a text column only the empty field is."""

_INTEGER = r"(?:0|-?[1-9][0-9]*)"
_REAL = r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_INFINITY = r"-?(?:inf|Inf|Infinity|infinity)"
_ANY_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"

_BOOLEANS = ("false/true", "False/True", "FALSE/TRUE")
_DRAFTED_BOOLEANS = (*_BOOLEANS, "f/t", "F/T", "no/yes", "No/Yes", "NO/YES", "n/y", "N/Y", "0/1")

_DATES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"\d{4}-\d{2}-\d{2}", ("%Y-%m-%d",)),
    (r"\d{4}/\d{2}/\d{2}", ("%Y/%m/%d",)),
    (r"\d{2}\.\d{2}\.\d{4}", ("%d.%m.%Y",)),
    (r"[1-9]\d?\.[1-9]\d?\.\d{4}", ("%-d.%-m.%Y",)),
    (r"\d{2}/\d{2}/\d{4}", ("%d/%m/%Y", "%m/%d/%Y")),
    (r"[1-9]\d?/[1-9]\d?/\d{4}", ("%-d/%-m/%Y", "%-m/%-d/%Y")),
    (r"\d{2}-\d{2}-\d{4}", ("%d-%m-%Y", "%m-%d-%Y")),
    (r"\d{2}-[A-Z][a-z]{2}-\d{4}", ("%d-%b-%Y",)),
)
"""Patterns and formats. If two formats read all values, the order of day and month is unknown: it stays text."""

_TIMES = (
    (r"\d{2}:\d{2}", "%H:%M"),
    (r"\d{2}:\d{2}:\d{2}", "%H:%M:%S"),
    (r"\d{2}:\d{2}:\d{2}\.\d{1,6}", "%H:%M:%S.%f"),
)
_ZONES = (("", ""), ("Z", "Z"), (r"[+-]\d{2}:?\d{2}", "%z"))

_MOMENTS = tuple(
    (date_pattern + mark + time_pattern + zone_pattern, tuple(f + mark + time_format + zone for f in date_formats))
    for date_pattern, date_formats in _DATES
    for mark in " T"
    for time_pattern, time_format in _TIMES
    for zone_pattern, zone in _ZONES
)

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
            rules = (_infer_datetime,) if field.metadata[_UNTYPED] == b"dates" else _RULES
            decimal = field.metadata.get(b"decimal", b"").decode() or None
            infer = functools.partial(_infer_type, rules=rules, decimal=decimal)
            columns[i], style = convert_distinct(columns[i], infer)
            if decimal == "," and pa.types.is_floating(columns[i].type):
                style["decimal"] = decimal
            if b"labels" in field.metadata:
                style["labels"] = field.metadata[b"labels"].decode()
            fields[i] = pa.field(field.name, columns[i].type, metadata=style or None)
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


def _infer_type(
    texts: pa.Array, *, rules: Sequence[_Rule], decimal: str | None = None
) -> tuple[pa.Array, dict[str, str]] | None:
    """The texts as integers, reals, booleans, dates or datetimes, if all are written as such; None: they stay text."""
    trimmed = _without_null_words(texts)
    if trimmed.null_count == len(trimmed):
        return None
    numbers = trimmed if decimal is None else plain_numbers(trimmed, decimal)
    for find in rules:
        of_numbers = find in (_infer_integer, _infer_real)
        if of_numbers and numbers.null_count > trimmed.null_count:
            continue
        values = numbers if of_numbers else trimmed
        found = find(values, values.drop_null())
        if found is not None:
            return found
    return None


def _without_null_words(texts: pa.Array) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.is_in(pc.utf8_lower(trimmed), pa.array(NULL_WORDS)), pa.scalar(None, pa.string()), trimmed)


_SPACES = " '\u2019\u00a0\u202f"
"""Thousands separators of either decimal mark: spaces and apostrophes."""


def plain_numbers(texts: pa.Array, decimal: str) -> pa.Array:
    """Numbers with this decimal mark, perhaps with thousands separators, as computers write them; all else is null.

    >>> plain_numbers(pa.array(["1.234,5", "0,5", "1 234 567", "1.5", "1.2345,6"]), ",").to_pylist()
    ['1234.5', '0.5', '1234567', None, None]
    """
    marks = [*_SPACES, "." if decimal == "," else ","]
    grouped = "|".join(rf"[0-9]{{1,3}}(?:{re.escape(mark)}[0-9]{{3}})+" for mark in marks)
    sign = re.escape(decimal)
    number = rf"[+-]?(?:(?:[0-9]+|{grouped})(?:{sign}[0-9]*)?|{sign}[0-9]+)(?:[eE][+-]?[0-9]+)?|{_INFINITY}"
    is_number = pc.match_substring_regex(texts, f"^(?:{number})$")
    bare = pc.replace_substring_regex(texts, f"[{re.escape(''.join(marks))}]", "")
    plain = pc.replace_substring(bare, decimal, ".")
    return pc.if_else(is_number, plain, pa.scalar(None, pa.string()))


def with_decimal_commas(table: pa.Table) -> list[str]:
    """The text columns all of whose values are written as numbers, some of them with a decimal comma."""
    return [field.name for field, values in zip(table.schema, table.columns, strict=True) if _has_commas(values)]


def _has_commas(values: pa.ChunkedArray) -> bool:
    if not pa.types.is_string(values.type):
        return False
    present = _without_null_words(pc.unique(values)).drop_null()
    has_comma = pc.any(pc.match_substring(present, ",")).as_py()
    return bool(has_comma) and plain_numbers(present, ",").null_count == 0


def looks_like_date(text: str) -> bool:
    """Whether a text has the form of a date or a datetime, in any of the known formats."""
    return any(re.fullmatch(pattern, text, re.ASCII) for pattern, _ in (*_DATES, *_MOMENTS))


def _all_match(texts: pa.Array, pattern: str) -> bool:
    """Whether all match. Tries the first few before the rest."""
    pattern = f"^(?:{pattern})$"
    return all(pc.all(pc.match_substring_regex(part, pattern)).as_py() for part in (texts[:20], texts))


def _infer_integer(trimmed: pa.Array, present: pa.Array) -> tuple[pa.Array, dict[str, str]] | None:
    if not _all_match(present, _INTEGER):
        return None
    try:
        return trimmed.cast(pa.int64()), {}
    except pa.ArrowInvalid:  # more than 64 bits is an identifier, not a quantity: it stays text
        return trimmed, {}


def _infer_real(trimmed: pa.Array, present: pa.Array) -> tuple[pa.Array, dict[str, str]] | None:
    if not _all_match(present, f"{_REAL}|{_INFINITY}"):
        return None
    return trimmed.cast(pa.float64()), _decimals(present)


def _decimals(texts: pa.Array) -> dict[str, str]:
    """The largest number of decimals, and whether all values have that many."""
    plain = texts.filter(pc.match_substring_regex(texts, f"^(?:{_ANY_NUMBER}|{_INFINITY})$"))
    if not len(plain) or pc.any(pc.match_substring_regex(plain, "[0-9.][eE]")).as_py():
        return {}
    plain = plain.filter(pc.invert(pc.match_substring(plain, "n")))  # infinities have no decimals
    if not len(plain):
        return {}
    point = pc.find_substring(plain, ".")
    written = pc.if_else(pc.less(point, 0), 0, pc.subtract(pc.subtract(pc.utf8_length(plain), point), 1))
    least, most = pc.min_max(written).as_py().values()
    if most > 15:  # digits of a binary fraction, not a precision
        return {}
    return {"decimals": str(most)} | ({"padded": "true"} if least == most else {})


def _infer_boolean(trimmed: pa.Array, present: pa.Array) -> tuple[pa.Array, dict[str, str]] | None:
    if len(present) > 2:
        return None
    words = next((s for s in _BOOLEANS if set(present.to_pylist()) <= set(s.split("/"))), None)
    if words is None:
        return None
    return pc.equal(trimmed, words.split("/")[1]), {"format": words}


def _infer_datetime(trimmed: pa.Array, present: pa.Array) -> tuple[pa.Array, dict[str, str]] | None:
    first = present[0].as_py()
    if not 8 <= len(first) <= 40:
        return None
    for is_date, (pattern, formats) in [(True, rule) for rule in _DATES] + [(False, rule) for rule in _MOMENTS]:
        if not re.fullmatch(pattern, first, re.ASCII) or not _all_match(present, pattern):
            continue
        readings = [(f, _parse_datetimes(trimmed, [f])) for f in formats]
        whole = [(f, moments) for f, moments in readings if moments.null_count == trimmed.null_count]
        if len(whole) == 1:
            return _to_dates(whole[0][1], trimmed, whole[0][0], is_date=is_date)
    return None


_RULES: tuple[_Rule, ...] = (_infer_integer, _infer_real, _infer_boolean, _infer_datetime)


def _parse_datetimes(texts: pa.Array, formats: Sequence[str]) -> pa.Array:
    """Timestamps by the first format that reads a text, else null; in UTC if the format has a zone."""
    listed = ", ".join(quote_text(text_format) for text_format in formats)
    expression = f"try_strptime(v, {listed})" if len(formats) == 1 else f"try_strptime(v, [{listed}])"
    moments = compute_sql(expression, texts)
    if formats[0].endswith("Z"):
        moments = moments.cast(pa.timestamp("us", "UTC"))
    return moments


def _to_dates(
    moments: pa.Array, texts: pa.Array, text_format: str, *, is_date: bool
) -> tuple[pa.Array, dict[str, str]]:
    """Dates, or datetimes in their zone, and how they are written."""
    style = {"format": text_format}
    if is_date:
        return moments.cast(pa.date32()), style
    if "%f" in text_format:
        digits = pc.extract_regex(texts.drop_null(), r"\.(?P<digits>[0-9]+)").field("digits")
        style["decimals"] = str(pc.max(pc.utf8_length(digits)).as_py() or 6)
    if text_format.endswith("%z"):
        zones = pc.unique(pc.utf8_slice_codeunits(pc.replace_substring(texts.drop_null(), ":", ""), -5)).to_pylist()
        zone = f"{zones[0][:3]}:{zones[0][3:]}" if len(zones) == 1 else "UTC"
        moments = moments.cast(pa.timestamp("us", zone))
    return moments, style


def read_as(
    texts: pa.Array, kind: str, text_format: str | None = None, *, zoned: bool = False, decimal: str | None = None
) -> pa.Array:
    """Texts read as the declared kind, each separately; null if that fails. Datetimes are in UTC if `zoned`.

    `decimal` is the decimal mark; None: a point, and no thousands separators. The type of the result depends on the
    other arguments alone, not on the texts.
    """
    if kind == "boolean" and text_format is not None:
        return _read_boolean(texts, text_format)
    trimmed = _without_null_words(texts)
    if decimal is not None and kind in ("integer", "real"):
        trimmed = plain_numbers(trimmed, decimal)
    if kind in _READ_SQL:
        return compute_sql(_READ_SQL[kind], trimmed)
    if text_format is None:
        return _read_unformatted(trimmed, kind, zoned=zoned)
    try:
        moments = _parse_datetimes(trimmed, [text_format])
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
    plain = [f"{day}{mark}{time}" for day in _UNAMBIGUOUS for mark in " T" for _, time in _TIMES]
    with_zone = [f"{text_format}%z" for text_format in plain]
    local = _parse_datetimes(texts, [*_UNAMBIGUOUS, *plain])
    zoned_moments = _parse_datetimes(pc.replace_substring_regex(texts, r"Z$", "+00:00"), with_zone)
    if zoned:
        return pc.coalesce(zoned_moments, local.cast(zoned_moments.type))
    moments = pc.coalesce(local, zoned_moments.cast(local.type))
    return moments.cast(pa.date32(), safe=False) if kind == "date" else moments


def infer_style(texts: pa.Array, kind: str, decimal: str | None = None) -> dict[str, str]:
    """Decimals of reals and words of booleans, inferred from the values. For drafted schemas only."""
    present = _without_null_words(texts).drop_null()
    if kind == "real":
        return _decimals(present if decimal is None else plain_numbers(present, decimal).drop_null())
    return _boolean_style(present) if kind == "boolean" else {}


def _boolean_style(texts: pa.Array) -> dict[str, str]:
    found = set(texts.to_pylist()) if len(texts) <= 2 else {""}
    fitting = [s for s in _DRAFTED_BOOLEANS if found <= set(s.split("/"))]
    return {"format": fitting[0]} if len(fitting) == 1 else {}


_INTEGER_SQL = f"""CASE
    WHEN regexp_full_match(v, '[+-]?[0-9]+')
        THEN coalesce(TRY_CAST(v AS BIGINT), CASE WHEN v LIKE '-%' THEN {INT64_MIN} ELSE {INT64_MAX} END)
    WHEN regexp_full_match(v, '{_ANY_NUMBER}|{_INFINITY}')
        THEN coalesce(TRY_CAST(round(TRY_CAST(v AS DOUBLE)) AS BIGINT),
                      CASE WHEN v LIKE '-%' THEN {INT64_MIN} ELSE {INT64_MAX} END)
    END::BIGINT"""
_REAL_SQL = f"CASE WHEN regexp_full_match(v, '{_ANY_NUMBER}|{_INFINITY}') THEN TRY_CAST(v AS DOUBLE) END::DOUBLE"
_BOOLEAN_SQL = """CASE WHEN lower(v) IN ('true', 't', 'yes', 'y', '1') THEN true
    WHEN lower(v) IN ('false', 'f', 'no', 'n', '0') THEN false END"""
_READ_SQL = {"integer": _INTEGER_SQL, "real": _REAL_SQL, "boolean": _BOOLEAN_SQL}
