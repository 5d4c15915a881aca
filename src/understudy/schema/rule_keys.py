"""Checks of the keys of a rule, as they are written in a schema file."""

import math
from collections.abc import Sequence

from understudy.errors import SchemaError
from understudy.schema.column import check_text
from understudy.schema.lookup import LookupRow, read_lookup
from understudy.schema.values import Category, format_value, to_python


def check_names(names: object, key: str, *, at_least: int = 1) -> tuple[str, ...]:
    found = tuple(names) if isinstance(names, list | tuple) else None
    if found is None or len(found) < at_least or not all(isinstance(name, str) and name for name in found):
        what = "a list of columns" if at_least == 1 else f"a list of at least {at_least} columns"
        raise SchemaError(f'{key} must be {what}, as in {key} = ["a", "b"]; found {format_value(names)}.', key=key)
    if twice := [name for name in found if found.count(name) > 1]:
        raise SchemaError(f"{key} names column {twice[0]!r} twice. Remove one.", column=twice[0], key=key)
    return found


def rows_of(given: object, columns: Sequence[str]) -> object:
    """The rows of the file, if a path is given."""
    return read_lookup(given, columns) if isinstance(given, str) else given


def check_rows(
    rows: object, key: str, columns: Sequence[str], *, nulls_from: int | None = None
) -> tuple[LookupRow, ...]:
    """Rows of a list as tuples of Python values. From column `nulls_from` on, an empty text is a null."""
    if not isinstance(rows, list | tuple) or not rows:
        raise SchemaError(
            f"{key} must be a list of rows, each with values of {', '.join(columns)}, or the path of a CSV file; found "
            f"{format_value(rows) if not isinstance(rows, list | tuple) else 'an empty list'}.",
            key=key,
        )
    checked = []
    for row in rows:
        if not isinstance(row, list | tuple) or len(row) != len(columns):
            raise SchemaError(
                f"{key}: each row must have {len(columns)} values ({', '.join(columns)}), found {format_value(row)}.",
                key=key,
            )
        values: list[Category | None] = []
        for at, value in enumerate(map(to_python, row)):
            nullable = nulls_from is not None and at >= nulls_from
            if nullable and (value is None or (isinstance(value, str) and not value)):
                values.append(None)
                continue
            if not isinstance(value, str | int | float | bool) or (
                isinstance(value, float) and not math.isfinite(value)
            ):
                raise SchemaError(
                    f"{key}: expected texts, numbers or booleans, found {format_value(value)} for {columns[at]!r}.",
                    key=key,
                )
            if isinstance(value, str):
                check_text(value, f"{key}: a value of {columns[at]!r}")
            values.append(value)
        checked.append(tuple(values))
    return tuple(checked)


def check_condition_text(condition: object, key: str) -> None:
    if not isinstance(condition, str) or not condition.strip():
        raise SchemaError(
            f'{key} must be an SQL condition, as in {key} = "age >= 18", found {format_value(condition)}.', key=key
        )
    check_text(condition, key)
