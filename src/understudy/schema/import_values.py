"""Values and limits as other tools write them, compared and brought into the types of a schema."""

import functools
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple, TypeGuard

from understudy.schema.column import Column
from understudy.schema.values import Bound, Category


class Limit(NamedTuple):
    """A bound that the file states, and how to name it if it is left out."""

    value: Bound
    strict: bool
    what: str


def as_one_type(values: object) -> list[Category]:
    """Each value once and without nulls, integers among floats as floats. Empty if it is not a list of values."""
    if not isinstance(values, list):
        return []
    given = [value for value in values if value is not None]
    if not all(isinstance(value, str | int | float | bool) for value in given):
        return []
    types = set(map(type, given))
    if types == {int, float}:
        try:
            given = [float(value) for value in given]
        except OverflowError:
            return []
    return list(dict.fromkeys(given)) if bool not in types or len(types) == 1 else given


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_bound(column: Column, value: object) -> Bound | None:
    """A bound in the type of the column's kind. Texts of dates are read in the column's format, else as ISO dates."""
    if isinstance(value, bool):
        return None
    try:
        if column.kind in ("integer", "real"):
            number = float(value) if isinstance(value, str) else value
            if not isinstance(number, int | float) or not math.isfinite(number):
                return None
            return float(number) if column.kind == "real" else number
        if isinstance(value, str):
            value = datetime.strptime(value, column.format) if column.format else datetime.fromisoformat(value)
        if column.kind == "date" and isinstance(value, date):
            return value.date() if isinstance(value, datetime) else value
        if isinstance(value, date):
            return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    except (ValueError, OverflowError):
        pass
    return None


def attained_limit(column: Column, operator: str, value: Bound, what: str) -> Limit:
    """A limit. For integers, dates and decimals a strict one becomes the next value, which is not strict."""
    lower, strict = operator.startswith(">"), operator in (">", "<")
    step = 1 if lower else -1
    if column.kind == "integer" and isinstance(value, int | float):
        rounded = math.ceil(value) if lower else math.floor(value)
        return Limit(rounded + step * (strict and rounded == value), False, what)
    if column.decimals and strict and isinstance(value, int | float) and round(value, column.decimals) == value:
        return Limit(round(value + step * 10.0**-column.decimals, column.decimals), False, what)
    if column.kind == "date" and strict and isinstance(value, date) and date.min < value < date.max:
        return Limit(value + timedelta(days=step), False, what)
    return Limit(value, strict, what)


def tightest(limits: Sequence[Limit], sign: int) -> Limit | None:
    """The limit that implies the others: the greatest lower one (sign 1), the least upper one (sign -1)."""

    def implies(one: Limit, other: Limit) -> bool:
        distance = compare_bounds(one.value, other.value) * sign
        return distance > 0 or (distance == 0 and one.strict)

    return functools.reduce(lambda one, other: one if implies(one, other) else other, limits) if limits else None


def compare_bounds(one: Bound, other: Bound) -> int:
    """-1, 0 or 1, as the first is below, equal to or above the other. Times without a zone are in UTC."""
    first, second = (
        value.replace(tzinfo=value.tzinfo or UTC) if isinstance(value, datetime) else value for value in (one, other)
    )
    return (first > second) - (first < second)  # type: ignore[operator]


def is_implied(limit: Limit, sign: str, bound: Bound) -> bool:
    """Whether a declared bound implies a limit."""
    distance = compare_bounds(bound, limit.value) * (1 if sign == ">" else -1)
    return distance > 0 or (distance == 0 and not limit.strict)


def meets_limit(value: Category, limit: Limit, sign: int) -> bool:
    """Whether a category meets a limit: a lower one (sign 1) or an upper one (sign -1)."""
    try:
        distance = compare_bounds(value, limit.value) * sign  # type: ignore[arg-type]
    except TypeError:
        return True  # a text and a number: the rest of the import says what is wrong
    return distance > 0 or (distance == 0 and not limit.strict)
