"""Names and constants of other tools in the SQL of conditions."""

import functools
import math
import re
from collections.abc import Iterable
from datetime import date, datetime

from understudy.errors import SchemaError
from understudy.schema.values import format_value


def sql_name(name: str) -> str:
    """A column in a condition, quoted where SQL needs it."""
    from understudy.schema.sql import quote_name

    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.lower() not in _reserved_words()
    return name if plain else quote_name(name)


@functools.cache
def _reserved_words() -> frozenset[str]:
    from understudy.schema.sql import sandbox

    with sandbox() as connection:
        rows = connection.execute(
            "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
        ).fetchall()
    return frozenset(word.lower() for (word,) in rows)


def sql_literal(value: object) -> str:
    """A constant in a condition."""
    from understudy.schema.sql import quote_text

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
    raise SchemaError(f"expected a text, a number, a boolean or a date, found {format_value(value)}.")


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
