"""What texts mean: types found by fixed rules over all values of a column, or each value read as its declared kind."""

import functools
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import SchemaError
from understudy.tables.engine import computed, quoted

_UNTYPED = b"untyped"
_Finder = Callable[[pa.Array, pa.Array], tuple[pa.Array, dict[str, str]] | None]

_NULL_WORDS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
"""Read as null in columns of numbers, booleans and dates; in a column of texts only the empty field is null."""

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
"""Pattern and formats. Where two formats read all values, the order of day and month is unknown: it stays text."""

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
"""Formats of a declared date without a `format`: tried on each value by itself."""


_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
FIRST_MOMENT, LAST_MOMENT = (datetime.min - _EPOCH) // _MICROSECOND, (datetime.max - _EPOCH) // _MICROSECOND
"""The moments that have a date, in microseconds since 1970."""
_MOST_DIGITS = 400
"""More than any float has: numbers beyond are infinite."""


def plain_cell(cell: object) -> object:
    """A cell of a column of Python objects as str, bool, int, float, Decimal, date, datetime, time; None for all else.

    Looks at this cell alone, and nothing that it holds raises. Datetimes end with the years 1 and 9999.
    """
    if isinstance(cell, np.datetime64):
        ticks = int(cell.astype("datetime64[us]").astype("int64"))
        return None if ticks == LEAST else _moment(ticks)
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, Decimal):
        return _plain_decimal(cell)
    if isinstance(cell, datetime):
        return _plain_moment(cell)
    if isinstance(cell, float):
        return None if math.isnan(cell) else float(cell)
    if isinstance(cell, int) and not isinstance(cell, bool) and cell.bit_length() > 3 * _MOST_DIGITS:
        return math.inf if cell > 0 else -math.inf
    if isinstance(cell, bytes):
        cell = utf8(cell)
    if isinstance(cell, str):
        return str(cell) if cell.isascii() or _is_unicode(cell) else None
    return cell if isinstance(cell, bool | int | date | time) else None


def cell_text(cell: object) -> str | None:
    """A cell as text, by its own type alone: 1, 1.0 and "1" are all "1"; None for what is no plain value."""
    cell = plain_cell(cell)
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() else repr(cell)
    if isinstance(cell, Decimal):
        return str(int(cell)) if cell == cell.to_integral_value() else format(cell, "f").rstrip("0")
    if isinstance(cell, datetime):
        return cell.isoformat()
    return None if cell is None else str(cell)


def _plain_decimal(cell: Decimal) -> Decimal | float | None:
    if cell.is_nan():
        return None
    if cell.is_infinite() or (cell and cell.adjusted() > _MOST_DIGITS):
        return -math.inf if cell.is_signed() else math.inf
    exact = cell and cell.adjusted() > -_MOST_DIGITS and len(cell.as_tuple().digits) < _MOST_DIGITS
    return cell if exact else float(cell)


def _plain_moment(cell: datetime) -> datetime | None:
    """In UTC where it has a zone. Timestamps of pandas may lie beyond the years of Python."""
    if cell != cell:  # NaT
        return None
    unit = getattr(cell, "unit", None)
    if unit is None:
        zoned = cell.tzinfo is not None and cell.utcoffset() is not None
        ticks = (cell - (_EPOCH.replace(tzinfo=UTC) if zoned else _EPOCH.replace(tzinfo=cell.tzinfo))) // _MICROSECOND
        return _moment(ticks, zoned=zoned)
    ticks = int(cell.asm8.astype("int64"))  # type: ignore[attr-defined]
    ticks = ticks // 1000 if unit == "ns" else ticks * {"s": 10**6, "ms": 10**3, "us": 1}[unit]
    return _moment(ticks, zoned=cell.tzinfo is not None)


def _moment(microseconds: int, *, zoned: bool = False) -> datetime:
    moment = _EPOCH + min(max(microseconds, FIRST_MOMENT), LAST_MOMENT) * _MICROSECOND
    return moment.replace(tzinfo=UTC) if zoned else moment


def utf8(value: bytes | None) -> str | None:
    """Bytes as text; None for those that are none."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _is_unicode(text: str) -> bool:
    """False for halves of characters, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def arrow_texts(distinct: pa.Array) -> pa.Array:
    """The values of a typed array as text, by the rule of `cell_text`; raises for types that have no such text."""
    held, types = distinct.type, pa.types
    cells: Sequence[object]
    if types.is_timestamp(held):
        ticks = microseconds(distinct).to_pylist()
        cells = [None if tick is None else _moment(tick, zoned=held.tz is not None) for tick in ticks]
    elif types.is_date(held):
        days = distinct.cast(pa.date32(), safe=False).cast(pa.int32()).to_pylist()
        cells = [None if d is None else date.fromordinal(min(max(d + 719_163, 1), date.max.toordinal())) for d in days]
    elif types.is_nested(held) or types.is_duration(held) or types.is_interval(held):
        raise pa.ArrowTypeError("no text for it")
    elif types.is_time(held):
        cells = distinct.cast(pa.time64("us"), safe=False).to_pylist()
    else:
        cells = distinct.to_pylist()
    return pa.array(map(cell_text, cells), pa.string())


def microseconds(moments: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Timestamps of any unit as microseconds since 1970, within the years 1 to 9999."""
    ticks = moments.cast(pa.int64())
    per_unit = {"s": 10**6, "ms": 10**3, "us": 1, "ns": 1}[moments.type.unit]
    if moments.type.unit == "ns":
        down = pc.if_else(pc.less(ticks, 0), pc.subtract(pc.divide(pc.add(ticks, 1), 1000), 1), pc.divide(ticks, 1000))
        return down
    least, most = FIRST_MOMENT // per_unit, LAST_MOMENT // per_unit
    ticks = pc.min_element_wise(pc.max_element_wise(ticks, least, skip_nulls=False), most, skip_nulls=False)
    return pc.multiply(ticks, per_unit)


def untyped(field: pa.Field, *, only_dates: bool = False) -> pa.Field:
    """The field, marked as one whose source has no type for it."""
    return field.with_metadata({_UNTYPED: b"dates" if only_dates else b"any"})


def is_untyped(field: pa.Field) -> bool:
    """Whether the source has no type for this column, so that its type here could only come from values."""
    return _UNTYPED in (field.metadata or {})


def with_found_types(columns: list[pa.ChunkedArray], schema: pa.Schema) -> pa.Table:
    """Finds each untyped column's type from all its values. Replaces the columns in the given list, one by one."""
    fields = list(schema)
    for i, field in enumerate(fields):
        if is_untyped(field):
            finders = (_found_moment,) if field.metadata[_UNTYPED] == b"dates" else _FINDERS
            columns[i], style = by_distinct(columns[i], functools.partial(_found_type, finders=finders))
            fields[i] = pa.field(field.name, columns[i].type, metadata=style or None)
    return pa.table(columns, schema=pa.schema(fields, schema.metadata))


def by_distinct(
    values: pa.ChunkedArray, convert: Callable[[pa.Array], tuple[pa.Array, dict[str, str]] | None]
) -> tuple[pa.ChunkedArray, dict[str, str]]:
    """Converts the distinct values once and spreads them; None from `convert` leaves the column as it is."""
    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    coded = coded.unify_dictionaries()
    distinct = coded.chunk(0).dictionary if coded.num_chunks else pa.array([], coded.type.value_type)
    converted = convert(distinct)
    if converted is None:
        return values, {}
    array, style = converted
    return pa.chunked_array([array.take(chunk.indices) for chunk in coded.chunks], array.type), style


def _found_type(texts: pa.Array, *, finders: Sequence[_Finder]) -> tuple[pa.Array, dict[str, str]] | None:
    """Integer, real, boolean, date or datetime, if all values are written so; None: texts."""
    trimmed = _without_null_words(texts)
    present = trimmed.drop_null()
    if not len(present):
        return None
    for find in finders:
        found = find(trimmed, present)
        if found is not None:
            return found
    return None


def _without_null_words(texts: pa.Array) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.is_in(trimmed, pa.array(_NULL_WORDS)), pa.scalar(None, pa.string()), trimmed)


def _all_match(texts: pa.Array, pattern: str) -> bool:
    """Whether all match; the first few are tried before the rest."""
    pattern = f"^(?:{pattern})$"
    return all(pc.all(pc.match_substring_regex(part, pattern)).as_py() for part in (texts[:20], texts))


def _found_integer(trimmed: pa.Array, present: pa.Array) -> tuple[pa.Array, dict[str, str]] | None:
    if not _all_match(present, _INTEGER):
        return None
    try:
        return trimmed.cast(pa.int64()), {}
    except pa.ArrowInvalid:  # more than 64 bits is a name, not a quantity: it stays text, exactly
        return trimmed, {}


def _found_real(trimmed: pa.Array, present: pa.Array) -> tuple[pa.Array, dict[str, str]] | None:
    if not _all_match(present, f"{_REAL}|{_INFINITY}"):
        return None
    return trimmed.cast(pa.float64()), _decimals(present)


def _decimals(texts: pa.Array) -> dict[str, str]:
    """How many decimals are written, and whether all values are padded to as many."""
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


def _found_boolean(trimmed: pa.Array, present: pa.Array) -> tuple[pa.Array, dict[str, str]] | None:
    if len(present) > 2:
        return None
    spelling = next((s for s in _BOOLEANS if set(present.to_pylist()) <= set(s.split("/"))), None)
    if spelling is None:
        return None
    return pc.equal(trimmed, spelling.split("/")[1]), {"format": spelling}


def _found_moment(trimmed: pa.Array, present: pa.Array) -> tuple[pa.Array, dict[str, str]] | None:
    first = present[0].as_py()
    if not 8 <= len(first) <= 40:
        return None
    for is_date, (pattern, formats) in [(True, rule) for rule in _DATES] + [(False, rule) for rule in _MOMENTS]:
        if not re.fullmatch(pattern, first, re.ASCII) or not _all_match(present, pattern):
            continue
        readings = [(f, _parsed_moments(trimmed, [f])) for f in formats]
        whole = [(f, moments) for f, moments in readings if moments.null_count == trimmed.null_count]
        if len(whole) == 1:
            return _dated(whole[0][1], trimmed, whole[0][0], is_date=is_date)
    return None


_FINDERS: tuple[_Finder, ...] = (_found_integer, _found_real, _found_boolean, _found_moment)


def _parsed_moments(texts: pa.Array, formats: Sequence[str]) -> pa.Array:
    """Timestamps by the first format that reads a text, else null; in UTC where the format has a zone."""
    listed = ", ".join(quoted(text_format) for text_format in formats)
    expression = f"try_strptime(v, {listed})" if len(formats) == 1 else f"try_strptime(v, [{listed}])"
    moments = computed(expression, texts)
    if formats[0].endswith("Z"):
        moments = moments.cast(pa.timestamp("us", "UTC"))
    return moments


def _dated(moments: pa.Array, texts: pa.Array, text_format: str, *, is_date: bool) -> tuple[pa.Array, dict[str, str]]:
    """Dates as dates, datetimes with their zone and digits, and the spelling of both."""
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


def read_as(texts: pa.Array, kind: str, text_format: str | None = None, *, zoned: bool = False) -> pa.Array:
    """Texts as the declared kind, each value by itself, else null; datetimes in UTC where they are `zoned`.

    The type of the answer follows from the other arguments, whatever the texts are.
    """
    if kind == "boolean" and text_format is not None:
        return _read_boolean(texts, text_format)
    trimmed = _without_null_words(texts)
    if kind in _READ_SQL:
        return computed(_READ_SQL[kind], trimmed)
    if text_format is None:
        return _unformatted_moments(trimmed, kind, zoned=zoned)
    try:
        moments = _parsed_moments(trimmed, [text_format])
    except duckdb.Error:
        raise unknown_format(text_format) from None
    if zoned and kind == "datetime" and moments.type.tz is None:
        moments = moments.cast(pa.timestamp("us", "UTC"))
    return moments.cast(pa.date32() if kind == "date" else moments.type, safe=False)


def unknown_format(text_format: str) -> SchemaError:
    """What to say of a format that no date can be read or written by."""
    return SchemaError(f"The format {text_format!r} is not one that strptime knows. Write it as in '%d.%m.%Y %H:%M'.")


def _read_boolean(texts: pa.Array, text_format: str) -> pa.Array:
    """By the two declared words alone, one of which may be a word for null elsewhere."""
    no, yes = text_format.split("/")
    trimmed = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.is_in(trimmed, pa.array([no, yes])), pc.equal(trimmed, yes), pa.scalar(None, pa.bool_()))


def _unformatted_moments(texts: pa.Array, kind: str, *, zoned: bool) -> pa.Array:
    """Dates and datetimes without a declared format: by those that leave no doubt, with or without a zone."""
    plain = [f"{day}{mark}{time}" for day in _UNAMBIGUOUS for mark in " T" for _, time in _TIMES]
    with_zone = [f"{text_format}%z" for text_format in plain]
    local = _parsed_moments(texts, [*_UNAMBIGUOUS, *plain])
    placed = _parsed_moments(pc.replace_substring_regex(texts, r"Z$", "+00:00"), with_zone)
    if zoned:
        return pc.coalesce(placed, local.cast(placed.type))
    moments = pc.coalesce(local, placed.cast(local.type))
    return moments.cast(pa.date32(), safe=False) if kind == "date" else moments


def found_spelling(texts: pa.Array, kind: str) -> dict[str, str]:
    """Decimals of reals and the words of booleans as the values have them: only where no person declared the schema."""
    present = _without_null_words(texts).drop_null()
    if kind == "real":
        return _decimals(present)
    return _boolean_spelling(present) if kind == "boolean" else {}


def _boolean_spelling(texts: pa.Array) -> dict[str, str]:
    found = set(texts.to_pylist()) if len(texts) <= 2 else {""}
    fitting = [s for s in _DRAFTED_BOOLEANS if found <= set(s.split("/"))]
    return {"format": fitting[0]} if len(fitting) == 1 else {}


LEAST, MOST = -(2**63), 2**63 - 1

_INTEGER_SQL = f"""CASE
    WHEN regexp_full_match(v, '[+-]?[0-9]+')
        THEN coalesce(TRY_CAST(v AS BIGINT), CASE WHEN v LIKE '-%' THEN {LEAST} ELSE {MOST} END)
    WHEN regexp_full_match(v, '{_ANY_NUMBER}|{_INFINITY}')
        THEN coalesce(TRY_CAST(round(TRY_CAST(v AS DOUBLE)) AS BIGINT),
                      CASE WHEN v LIKE '-%' THEN {LEAST} ELSE {MOST} END)
    END::BIGINT"""
_REAL_SQL = f"CASE WHEN regexp_full_match(v, '{_ANY_NUMBER}|{_INFINITY}') THEN TRY_CAST(v AS DOUBLE) END::DOUBLE"
_BOOLEAN_SQL = """CASE WHEN lower(v) IN ('true', 't', 'yes', 'y', '1') THEN true
    WHEN lower(v) IN ('false', 'f', 'no', 'n', '0') THEN false END"""
_READ_SQL = {"integer": _INTEGER_SQL, "real": _REAL_SQL, "boolean": _BOOLEAN_SQL}
