"""Columns that look like identifiers, for the data steward only: this counts values, and none of it is private."""

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from understudy.rules.values import to_toml
from understudy.schema.column import Column
from understudy.schema.draft import is_text
from understudy.schema.schema import Schema
from understudy.steward.findings import Finding
from understudy.tables.origin import value_type

FEW_VALUES = 20
"""With fewer distinct values nothing looks like an identifier."""
MANY_NUMBERS = 200
"""With fewer distinct numbers only the name of a column makes it an identifier: ages, years and counts have fewer."""
DENSE = 10
"""Whole numbers are called dense if there is at least one in this many between the smallest and the largest."""
ROWS_EACH = 100
"""A column that is named like an identifier is taken for one if its values have at most this many rows on average."""
NAMES = frozenset(["id", "ids", "identifier", "key", "mrn", "no", "nr", "num", "number", "pid", "ssn", "uid", "uuid"])
"""Last words of the names of identifiers."""


def find_identifiers(schema: Schema, table: pa.Table) -> Iterator[Finding]:
    """Columns that may name a person or another privacy unit, and are not declared so.

    Kinds never follow from this: it is only reported.
    """
    for column in schema.columns:
        if column.drop or column.name == schema.unit or table.column_names.count(column.name) != 1:
            continue
        values = _countable(table.column(column.name))
        if values is None:
            continue
        num_distinct, known = pc.count_distinct(values).as_py(), len(values)
        if num_distinct < FEW_VALUES:
            continue
        repeats = num_distinct < known
        if column.kind == "id" and schema.unit is None and repeats:
            message = (
                f"It repeats: {num_distinct:,} values in {known:,} rows. If it identifies a person, set unit = "
                f"{to_toml(column.name)} in [table]; without it, each row is protected separately."
            )
            yield Finding("warning", "unit", column.name, message, num_distinct)
        elif column.kind in ("integer", "real", "categorical") and _looks_like_one(column, values, num_distinct):
            person = f"If it identifies a person, set unit = {to_toml(column.name)} in [table]; otherwise "
            message = (
                f"It looks like an identifier ({num_distinct:,} values in {known:,} rows). "
                f'{person if schema.unit is None else "If it is one, "}set kind = "id".'
            )
            yield Finding("warning", "identifier", column.name, message, num_distinct)


def _countable(values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The known values of a column of strings or whole numbers; None: no identifier has its type."""
    values = values.cast(value_type(values.type)).drop_null()
    if pa.types.is_floating(values.type):  # whole numbers with nulls, as pandas holds them
        values = values.filter(pc.is_finite(values))
        return values if pc.all(pc.equal(values, pc.floor(values))).as_py() else None
    return values if pa.types.is_integer(values.type) or is_text(values.type) else None


def _looks_like_one(column: Column, values: pa.ChunkedArray, num_distinct: int) -> bool:
    """By its name and many values, or by a value for every second row, which for numbers must be unique or dense."""
    if column.categories is not None:
        return False
    if _last_word(column.name) in NAMES and ROWS_EACH * num_distinct >= len(values):
        return True
    if 2 * num_distinct < len(values):
        return False
    if is_text(values.type):
        return True
    if num_distinct < MANY_NUMBERS or column.bounds is not None:  # bounds are declared of quantities
        return False
    if num_distinct == len(values):
        return True
    extremes = pc.min_max(values).as_py()
    return bool(extremes["max"] - extremes["min"] < DENSE * num_distinct)


def _last_word(name: str) -> str:
    """patient_no -> no, patientId -> id, "Case Number" -> number, ID2 -> id."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return words[-1].lower() if words else ""
