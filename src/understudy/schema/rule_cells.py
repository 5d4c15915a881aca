"""Which values of a column satisfy the conditions on it alone: a list of categories, or bounds.

Numbers and times are split into cells: one per constant of a condition and one between each two. The answer is
conservative: a cell that may satisfy a condition counts as one that does.
"""

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from understudy.errors import SchemaError
from understudy.rules.conditions import where_columns
from understudy.rules.outcomes import CodeValues, outcomes
from understudy.rules.syntax import (
    Constant,
    columns_of,
    compared,
    is_column,
    is_literal,
    literal_value,
    nodes,
    parse_condition,
)
from understudy.rules.values import is_among
from understudy.schema.column import Column

MAX_CELLS = 20_000
"""Columns with more cells are not split."""

_Number = Any
"""A number, date or time, in the type of its column."""


class Comparison(NamedTuple):
    """One column compared with constants, anywhere in a condition."""

    column: str
    operator: str
    constants: tuple[Constant, ...]


@functools.lru_cache(maxsize=512)
def comparisons(condition: str, names: tuple[str, ...]) -> tuple[Comparison, ...]:
    """All comparisons of one column with constants, at any depth of a condition."""
    comparisons = []
    for node in nodes(parse_condition(condition, names, of_rule=True)):
        operator, sides = compared(node)
        columns = [side for side in sides if is_column(side)]
        constants = [literal_value(side) for side in sides if is_literal(side)] if len(columns) == 1 else []
        if constants and None not in constants:
            comparisons.append(Comparison(columns_of(columns[0])[0], operator, tuple(constants)))
    return tuple(comparisons)


def _split(column: Column, conditions: Sequence[str], arrow_type: pa.DataType) -> CodeValues:
    """One cell per integer (if these are few) or constant and between each two constants; one for nulls."""
    constants = [
        value
        for condition in conditions
        for comparison in comparisons(condition, (column.name,))
        for value in comparison.constants
    ]
    kind = _KINDS[column.kind]
    lower, upper = (kind.lowest, kind.highest) if column.bounds is None else map(naive, column.bounds)
    lower, upper = max(lower, kind.lowest), min(upper, kind.highest)
    points = sorted({point for value in constants for point in kind.points(value) if lower <= point <= upper})
    if column.kind == "integer" and upper - lower < _MAX_INTEGERS:
        points = list(range(lower, upper + 1))
    cells = []
    for point in points:
        if lower < point:
            cells.append((lower, kind.step(point, -1)))
        cells.append((point, point))
        if point == upper:
            break
        lower = kind.step(point, 1)
    else:
        cells.append((lower, upper))
    lowers, uppers = zip(*cells, strict=True)
    return CodeValues.bins(lowers, uppers, null=column.nullable, type=arrow_type)


_MAX_INTEGERS = 50
"""A column of at most this many integers has a cell for each."""


class _Kind(NamedTuple):
    """How the values of a kind are split: the widest bounds, the next value up or down, and where a constant splits."""

    lowest: _Number
    highest: _Number
    step: Callable[[_Number, int], _Number]
    points: Callable[[Constant], Sequence[_Number]]


def _real_points(value: Constant) -> Sequence[int | float]:
    """The number that SQL compares with a column of numbers."""
    try:
        number = value if isinstance(value, int) else float(value)  # type: ignore[arg-type]  # else a TypeError
        return (number,) if math.isfinite(number) else ()
    except (TypeError, ValueError, OverflowError):
        return ()


def _datetime_points(value: Constant) -> Sequence[datetime]:
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
    except ValueError:
        return ()
    if isinstance(value, datetime):
        return (naive(value),)
    return (datetime(value.year, value.month, value.day),) if isinstance(value, date) else ()


def _date_points(value: Constant) -> Sequence[date]:
    days = [point.date() for point in _datetime_points(value)]
    return [*days, *(day + timedelta(days=1) for day in days if day < date.max)]


def naive(end: _Number) -> _Number:
    """The time in UTC, as columns have it."""
    is_zoned = isinstance(end, datetime) and end.tzinfo is not None
    return end.astimezone(UTC).replace(tzinfo=None) if is_zoned else end


_KINDS = {
    "integer": _Kind(
        -(2**63),
        2**63 - 1,
        lambda value, sign: value + sign,
        lambda value: [end for number in _real_points(value) for end in (math.floor(number), math.ceil(number))],
    ),
    "real": _Kind(
        -sys.float_info.max,
        sys.float_info.max,
        lambda value, sign: math.nextafter(value, sign * math.inf),
        _real_points,
    ),
    "date": _Kind(date.min, date.max, lambda value, sign: value + sign * timedelta(days=1), _date_points),
    "datetime": _Kind(
        datetime.min, datetime.max, lambda value, sign: value + sign * timedelta(microseconds=1), _datetime_points
    ),
}


# ---------------------------------------------------------------------------------------------- rules on one column


def narrow(column: Column, conditions: Sequence[str], arrow_type: pa.DataType) -> Column:
    """The column with only values that conditions on it alone can satisfy: within these bounds, or of this list.

    A declared list stays as it is, and bounds stay open if an end is set neither by a bound nor by a condition.
    """
    if column.kind == "categorical":
        listed = [text for text in keep_list(column, conditions) or () if not is_among(text, column.missing or ())]
        if column.categories is not None or not listed:
            return column
        return dataclasses.replace(column, categories=tuple(listed), closed=True)
    if column.kind not in _KINDS:
        return column
    lower, upper = keep_limits(column, conditions, arrow_type)
    if lower is None or upper is None or (lower, upper) == column.bounds:
        return column
    if not lower < upper:  # one value: bounds need two
        step = _steps(column)
        if step is None:
            return column
        lower, upper = (
            (lower, upper + step) if column.bounds is None or upper < column.bounds[1] else (lower - step, upper)
        )
    special = tuple(value for value in column.special or () if naive(lower) <= naive(value) <= naive(upper))
    return dataclasses.replace(column, bounds=(lower, upper), special=special or None)


def _steps(column: Column) -> _Number:
    """The distance of neighbouring values; None for reals without decimals."""
    if column.kind == "real":
        return None if column.decimals is None else 10.0**-column.decimals
    return {"integer": 1, "date": timedelta(days=1), "datetime": timedelta(microseconds=1)}[column.kind]


def keep_limits(column: Column, conditions: Sequence[str], arrow_type: pa.DataType) -> tuple[_Number, _Number]:
    """The least and the greatest value of a numeric column that conditions on it alone can satisfy.

    None instead of an end: no bound or condition sets one. Raises SchemaError if no value can, not even a null.
    """
    codes = _split(column, conditions, arrow_type)
    satisfying = _satisfying(column, conditions, codes)
    if not satisfying.any():
        raise SchemaError(
            f"Column {column.name!r}: no row satisfies {' AND '.join(conditions)}. Correct the rules, or the declared "
            "bounds.",
            column=column.name,
        )
    kept = satisfying & codes.lower.is_valid().to_numpy(zero_copy_only=False)
    kind, declared = _KINDS[column.kind], column.bounds or (None, None)
    if not kept.any():
        return declared
    at = np.flatnonzero(kept)
    lower, upper = codes.lower[int(at[0])].as_py(), codes.upper[int(at[-1])].as_py()
    if column.decimals is not None:
        lower, upper = (
            _round(end, column.decimals, way) for end, way in ((lower, ROUND_CEILING), (upper, ROUND_FLOOR))
        )
    return (
        declared[0] if lower == kind.lowest else _like(lower, declared[0]),
        declared[1] if upper == kind.highest else _like(upper, declared[1]),
    )


def _satisfying(column: Column, conditions: Sequence[str], codes: CodeValues) -> np.ndarray:
    """The cells that may satisfy all conditions."""
    satisfying = np.ones(codes.size, dtype=bool)
    for condition in conditions:
        possible = outcomes(condition, {column.name: codes}, MAX_CELLS)
        if possible is not None:
            satisfying &= possible.can_be_true
    return satisfying


def keep_list(column: Column, conditions: Sequence[str]) -> tuple[str, ...] | None:
    """The strings that conditions on a categorical column alone list, each by = or IN; None if none does."""
    listed: tuple[str, ...] | None = None
    for condition in conditions:
        (part, *others) = where_columns(condition, [column.name])
        strings = tuple(dict.fromkeys(value for value in part.constants if isinstance(value, str)))
        if others or part.operator not in ("=", "in") or len(strings) < len(set(part.constants)):
            continue
        listed = strings if listed is None else tuple(text for text in listed if text in strings)
    return listed or None


def _round(end: float, decimals: int, way: str) -> float:
    """The nearest number with this many decimals inside a range; the widest bounds stay."""
    if abs(end) == sys.float_info.max:
        return end
    return float(Decimal(repr(end)).quantize(Decimal(1).scaleb(-decimals), way, _PRECISE))


_PRECISE = Context(prec=400)


def _like(end: _Number, declared: _Number) -> _Number:
    """The end of a range with a time zone if the declared bound has one."""
    is_zoned = isinstance(declared, datetime) and declared.tzinfo is not None
    return end.replace(tzinfo=UTC) if is_zoned else end
