"""Single values: Python objects and Arrow values as plain values, and as text."""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
FIRST_DATETIME, LAST_DATETIME = (datetime.min - _EPOCH) // _MICROSECOND, (datetime.max - _EPOCH) // _MICROSECOND
"""The years 1 to 9999, in microseconds since 1970."""

_MAX_DIGITS = 400
"""More than any float has: larger numbers are infinite."""


def to_plain(cell: object) -> object:
    """A Python object as str, bool, int, float, Decimal, date, datetime or time; None for anything else.

    Depends on this object alone, and never raises. Datetimes are clamped to the years 1 to 9999.
    """
    if isinstance(cell, np.datetime64):
        stamps = int(cell.astype("datetime64[us]").astype("int64"))
        return None if stamps == INT64_MIN else datetime_of(stamps)
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, Decimal):
        return _plain_decimal(cell)
    if isinstance(cell, datetime):
        return _plain_moment(cell)
    if isinstance(cell, float):
        return None if math.isnan(cell) else float(cell)
    if isinstance(cell, int) and not isinstance(cell, bool) and cell.bit_length() > 3 * _MAX_DIGITS:
        return math.inf if cell > 0 else -math.inf
    if isinstance(cell, bytes):
        cell = decode_utf8(cell)
    if isinstance(cell, str):
        # No file can hold surrogates.
        return str(cell) if cell.isascii() else decode_utf8(cell.encode(errors="surrogatepass"))
    return cell if isinstance(cell, bool | int | date | time) else None


def cell_text(cell: object) -> str | None:
    """A Python object as text, by its own type alone: 1, 1.0 and "1" are all "1"; None if it is not a plain value."""
    cell = to_plain(cell)
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
    if cell.is_infinite() or (cell and cell.adjusted() > _MAX_DIGITS):
        return -math.inf if cell.is_signed() else math.inf
    exact = cell and cell.adjusted() > -_MAX_DIGITS and len(cell.as_tuple().digits) < _MAX_DIGITS
    return cell if exact else float(cell)


def _plain_moment(cell: datetime) -> datetime | None:
    """In UTC if it has a zone. pandas timestamps may lie beyond the years of Python."""
    if cell != cell:  # NaT
        return None
    unit = getattr(cell, "unit", None)
    if unit is None:
        zoned = cell.tzinfo is not None and cell.utcoffset() is not None
        stamps = (cell - (_EPOCH.replace(tzinfo=UTC) if zoned else _EPOCH.replace(tzinfo=cell.tzinfo))) // _MICROSECOND
        return datetime_of(stamps, zoned=zoned)
    stamps = int(cell.asm8.astype("int64"))  # type: ignore[attr-defined]  # of pandas
    stamps = stamps // 1000 if unit == "ns" else stamps * {"s": 10**6, "ms": 10**3, "us": 1}[unit]
    return datetime_of(stamps, zoned=cell.tzinfo is not None)


def datetime_of(microseconds: int, *, zoned: bool = False) -> datetime:
    """The datetime that is this many microseconds after 1970, clamped to the years 1 to 9999."""
    naive = _EPOCH + min(max(microseconds, FIRST_DATETIME), LAST_DATETIME) * _MICROSECOND
    return naive.replace(tzinfo=UTC) if zoned else naive


def decode_utf8(value: bytes | None) -> str | None:
    """Bytes as text; None if they are not UTF-8."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def arrow_strings(distinct: pa.Array) -> pa.Array:
    """The values of a typed array as text, by the rule of `cell_text`; raises for types without one."""
    arrow_type, types = distinct.type, pa.types
    cells: Sequence[object]
    if types.is_timestamp(arrow_type):
        stamps = microseconds(distinct).to_pylist()
        cells = [None if stamp is None else datetime_of(stamp, zoned=arrow_type.tz is not None) for stamp in stamps]
    elif types.is_date(arrow_type):
        days = distinct.cast(pa.date32(), safe=False).cast(pa.int32()).to_pylist()
        cells = [None if d is None else date.fromordinal(min(max(d + 719_163, 1), date.max.toordinal())) for d in days]
    elif types.is_nested(arrow_type) or types.is_duration(arrow_type) or types.is_interval(arrow_type):
        raise pa.ArrowTypeError("no text for this type")
    elif types.is_time(arrow_type):
        cells = _within_a_day(distinct).cast(pa.time64("us"), safe=False).to_pylist()
    else:
        cells = distinct.to_pylist()
    return pa.array(map(cell_text, cells), pa.string())


def _within_a_day(times: pa.Array) -> pa.Array:
    """Times of day, clamped: files can hold others, which Python cannot."""
    ticks = times.cast(pa.int32() if pa.types.is_time32(times.type) else pa.int64())
    last = 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[times.type.unit] - 1
    clamped = pc.min_element_wise(pc.max_element_wise(ticks, 0, skip_nulls=False), last, skip_nulls=False)
    return clamped.cast(ticks.type).cast(times.type)


def microseconds(datetimes: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Timestamps of any unit as microseconds since 1970, clamped to the years 1 to 9999."""
    stamps = datetimes.cast(pa.int64())
    per_unit = {"s": 10**6, "ms": 10**3, "us": 1, "ns": 1}[datetimes.type.unit]
    if datetimes.type.unit == "ns":
        # Rounded down, as Python does: Arrow's division rounds towards zero.
        return pc.if_else(
            pc.less(stamps, 0), pc.subtract(pc.divide(pc.add(stamps, 1), 1000), 1), pc.divide(stamps, 1000)
        )
    low, high = FIRST_DATETIME // per_unit, LAST_DATETIME // per_unit
    stamps = pc.min_element_wise(pc.max_element_wise(stamps, low, skip_nulls=False), high, skip_nulls=False)
    return pc.multiply(stamps, per_unit)
