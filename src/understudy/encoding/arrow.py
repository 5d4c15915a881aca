"""Arrow columns as numbers and as comparable categories, by rules that depend on types and on no other row."""

import contextlib
from collections.abc import Sequence
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.rules.comparison import plain_array
from understudy.schema import Bound, Category, Column
from understudy.tables.cast import as_declared_type, as_text, normalize_column


def as_numbers(values: pa.ChunkedArray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """The values of a bounded column as numbers, and which of them are not null.

    Reals are floats; integers, dates and datetimes are integers (days, microseconds), rounded where they are not whole.
    Infinities stay, to be clamped; values that cannot be read as numbers are null.
    """
    column = plain_array(as_declared_type(normalize_column(values), Column(name="", kind=kind)))
    if kind != "real":
        column = (column.cast(pa.int32()) if kind == "date" else column).cast(pa.int64())
    return column.fill_null(0).to_numpy(zero_copy_only=False), pc.is_valid(column).to_numpy(zero_copy_only=False)


def from_numbers(numbers: np.ndarray, null: np.ndarray, kind: str) -> pa.Array:
    if kind == "date":
        return pa.array(numbers.astype(np.int32), mask=null).cast(pa.date32())
    array = pa.array(numbers, mask=null)
    return array.cast(pa.timestamp("us")) if kind == "datetime" else array


def bound_numbers(column: Column) -> tuple[int | float, int | float]:
    assert column.bounds is not None
    lower, upper = (_to_number(bound) for bound in column.bounds)
    return lower, upper


def special_numbers(column: Column) -> tuple[int | float, ...]:
    """The special values of a column as numbers."""
    return tuple(_to_number(value) for value in column.special or ())


def optional_number(bound: Bound | None) -> int | float | None:
    """A bound as a number; None if there is none."""
    return None if bound is None else _to_number(bound)


def _to_number(bound: Bound) -> int | float:
    if isinstance(bound, datetime):
        microseconds = pa.scalar(bound).cast(pa.timestamp("us", tz="UTC" if bound.tzinfo else None)).cast(pa.int64())
        return int(microseconds.as_py())
    if isinstance(bound, date):
        return (bound - date(1970, 1, 1)).days
    return bound


def comparable_number(constant: object, kind: str) -> int | float | None:
    """A constant of a condition as a number that compares with the column's; None if it is of another kind."""
    if kind in ("integer", "real"):
        return constant if isinstance(constant, int | float) and not isinstance(constant, bool) else None
    if kind == "date" and isinstance(constant, date) and not isinstance(constant, datetime):
        return _to_number(constant)
    return (
        _to_number(constant) if kind == "datetime" and isinstance(constant, datetime) and not constant.tzinfo else None
    )


def comparable(categories: Sequence[Category | None], values: pa.ChunkedArray) -> tuple[pa.Array, pa.ChunkedArray]:
    """The listed categories and the column in one Arrow type, which depends on both types and on no value of a row.

    Numbers are compared as numbers of the column's type where it can hold the list, booleans as booleans, and
    everything else as text, in which 1, 1.0 and "1" are equal.
    """
    column = plain_array(normalize_column(values))
    listed = pa.array(list(categories))
    held = column.type
    if pa.types.is_boolean(listed.type) and not pa.types.is_boolean(held):
        truth = Column(name="", kind="boolean")
        return listed, as_declared_type(pa.chunked_array([column]), truth)
    if pa.types.is_floating(held) and (pa.types.is_floating(listed.type) or pa.types.is_integer(listed.type)):
        return listed.cast(held, safe=False), pa.chunked_array([column])
    if pa.types.is_integer(held) and pa.types.is_integer(listed.type):
        with contextlib.suppress(pa.ArrowInvalid):
            return listed.cast(held), pa.chunked_array([column])
    if held != listed.type or not (pa.types.is_string(held) or pa.types.is_boolean(held)):
        listed, column = _as_text(listed), _as_text(column)
    return listed, pa.chunked_array([column])


def _as_text(column: pa.Array) -> pa.Array:
    """Each value as text by itself; nulls for types that have no text, whatever the values."""
    try:
        return as_text(pa.chunked_array([column])).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.nulls(len(column), pa.string())
