"""Values and limits as other tools write them: compared, in the types of a schema, and as the SQL of conditions."""

import functools
import math
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple, TypeGuard

from understudy.errors import SchemaError
from understudy.rules.values import Bound, Category, format_value
from understudy.schema.column import Column


class Limit(NamedTuple):
    """A bound that the file states, and how to name it if it is left out."""

    operator: str
    """<, <=, > or >=."""
    value: Bound
    what: str

    @property
    def is_lower(self) -> bool:
        return self.operator.startswith(">")

    @property
    def is_strict(self) -> bool:
        return not self.operator.endswith("=")

    def allows(self, value: Bound) -> bool:
        """Whether a value meets it."""
        found, end = ordered(value), ordered(self.value)
        return (found == end and not self.is_strict) or (found > end if self.is_lower else found < end)


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


def to_number(text: str) -> int | float | None:
    """The number that a string writes in plain digits; None if it writes none."""
    if re.fullmatch(r"[-+]?\d{1,18}", text):
        return int(text)
    return float(text) if re.fullmatch(r"[-+]?(\d{1,18}(\.\d{0,18})?|\.\d{1,18})", text) else None


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_bound(column: Column, value: object) -> Bound | None:
    """A bound in the type of the column's kind. Dates in strings are read in the column's format, else as ISO dates."""
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


def attained(column: Column, limit: Limit) -> Limit:
    """A limit that is not strict, where one means the same: for integers, dates and decimals."""
    value, step = limit.value, 1 if limit.is_lower else -1
    if column.kind == "integer" and isinstance(value, int | float):
        rounded = math.ceil(value) if limit.is_lower else math.floor(value)
        value = rounded + step * (limit.is_strict and rounded == value)
    elif not limit.is_strict:
        return limit
    elif column.decimals and isinstance(value, int | float) and round(value, column.decimals) == value:
        value = round(value + step * 10.0**-column.decimals, column.decimals)
    elif column.kind == "date" and isinstance(value, date) and date.min < value < date.max:
        value += timedelta(days=step)
    else:
        return limit
    return Limit(f"{limit.operator[0]}=", value, limit.what)


def ordered(bound: Bound) -> Any:
    """A bound to compare with others of its kind. Times without a zone are in UTC."""
    return bound.replace(tzinfo=bound.tzinfo or UTC) if isinstance(bound, datetime) else bound


def tightest(limits: Iterable[Limit]) -> tuple[Limit | None, Limit | None]:
    """The greatest of the lower limits, and the least of the upper ones: they imply the others."""
    ranked = sorted(limits, key=lambda limit: (ordered(limit.value), limit.is_strict == limit.is_lower))
    lower = [limit for limit in ranked if limit.is_lower]
    upper = [limit for limit in ranked if not limit.is_lower]
    return lower[-1] if lower else None, upper[0] if upper else None


# ----------------------------------------------------------------------------------------------------------------- SQL


def sql_name(name: str) -> str:
    """A column in a condition, quoted where SQL needs it."""
    from understudy.rules.sql import quote_name

    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.lower() not in _reserved_words()
    return name if plain else quote_name(name)


@functools.cache
def _reserved_words() -> frozenset[str]:
    from understudy.rules.sql import sandbox

    with sandbox() as connection:
        rows = connection.execute(
            "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
        ).fetchall()
    return frozenset(word.lower() for (word,) in rows)


def sql_literal(value: object) -> str:
    """A constant in a condition."""
    from understudy.rules.sql import quote_text

    match value:
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case datetime():
            return f"{'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'} {quote_text(value.isoformat(sep=' '))}"
        case date():
            return f"DATE {quote_text(value.isoformat())}"
        case str():
            return quote_text(value)
    raise SchemaError(f"expected a string, a number, a boolean or a date, found {format_value(value)}.")


def sql_in(name: str, values: Iterable[object], *, negated: bool = False) -> str:
    """The condition that a column has one of the values, or none of them."""
    return f"{sql_name(name)} {'NOT ' * negated}IN ({', '.join(map(sql_literal, values))})"


def without_parentheses(sql: str) -> str:
    """A condition without the parentheses around it, if they match each other."""
    inner = sql[1:-1]
    depth = 0
    for character in re.sub(r"'[^']*'|\"[^\"]*\"", "", inner):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return sql
    return inner if sql.startswith("(") and sql.endswith(")") else sql
