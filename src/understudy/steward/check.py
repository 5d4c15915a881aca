"""Compares a table with its schema, for the data steward only: this reads values, and none of it is private."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import SchemaError
from understudy.rules.rules import Rule
from understudy.rules.values import Bound, format_value, to_toml
from understudy.schema.column import Column
from understudy.schema.draft import is_text
from understudy.schema.locations import Location, looks_swapped
from understudy.schema.schema import Schema, match_columns
from understudy.steward.findings import Finding, Level
from understudy.steward.identifiers import find_identifiers
from understudy.tables.cast import plain_without_missing
from understudy.tables.origin import value_type


def check(
    schema: Schema, table: pa.Table, as_fitted: pa.Table, on_break: Callable[[Rule], str] | None = None
) -> list[Finding]:
    """Compares a table with its schema. For the data steward only.

    `table` is read without the schema, so that nothing is lost; `as_fitted` as `fit` would read it. `on_break` says
    what `fit` does with rows that break a rule, "clamp" or "drop"; without it, only what the rule declares is known.

    *Not covered*: everything. The findings are exact, contain counts and values of the table, and cost no budget, since
    they are not part of a release: do not share them. `fit` reports none of this, since each would be a query.
    """
    findings = [*_check_columns(schema, table.column_names), *_check_rows(schema, table)]
    if schema.unit is not None and table.column_names.count(schema.unit) == 1:
        findings += _check_units(schema, schema.unit, table)
    findings += find_identifiers(schema, table)
    for column in schema.modelled:
        if table.column_names.count(column.name) == 1 and table.num_rows:
            values = plain_without_missing(table.column(column.name), column)
            if any(column.name in location.names for location in schema.locations):
                column = dataclasses.replace(column, bounds=None)  # points are moved, not clamped
            findings += _check_values(column, values, as_fitted.column(column.name))
    for location in schema.locations:
        if not location.drop and all(as_fitted.column_names.count(name) == 1 for name in location.names):
            findings += _check_points(location, as_fitted)
    return [*findings, *_check_rules(schema, as_fitted, on_break)]


def _check_points(location: Location, as_fitted: pa.Table) -> Iterator[Finding]:
    latitude, longitude, known = points = location.read({name: as_fitted.column(name) for name in location.names})
    empty = np.all([pc.is_null(as_fitted.column(name)).to_numpy() for name in location.names], axis=0)
    named = "code of the region" if location.format == "code" else "point in degrees"
    instead = "null" if location.nullable else "the first point of the region"
    about = f"no {named}: a coordinate is missing, out of range or not readable. The location becomes {instead}."
    yield from _counted("point", location.name, int((~known & ~empty).sum()), _ROWS, about)
    outside = known.copy()
    outside[known] = ~location.region.contains(latitude[known], longitude[known])
    swapped = " Latitude and longitude look swapped." if outside.any() and looks_swapped(location, points) else ""
    about = f"outside the region and will be moved to the nearest point of it.{swapped}"
    yield from _counted("outside region", location.name, int(outside.sum()), ("point is", "points are"), about)


def _check_columns(schema: Schema, column_names: Sequence[str]) -> Iterator[Finding]:
    try:
        match_columns(schema, column_names)
    except SchemaError as error:
        yield Finding("error", "columns", None, str(error))


def _check_rows(schema: Schema, table: pa.Table) -> Iterator[Finding]:
    num_rows = table.num_rows
    if not num_rows:
        yield Finding("warning", "rows", None, "It has no rows.", 0)
    elif schema.rows is None:
        message = "rows is not declared, so a noisy count is used. If the number is public, declare it."
        yield Finding("note", "rows", None, message)
        if num_rows > 1_000_000:
            message = (
                f"It has {num_rows} rows. Without declared rows delta is 1e-6, which is more than 1/{num_rows}."
                " Use a smaller --delta, or declare rows if the number is public."
            )
            yield Finding("warning", "delta", None, message, num_rows)
    elif schema.rows != num_rows:
        message = (
            f"rows is declared as {schema.rows}, but there are {num_rows}. Batches are planned with the declared"
            " number, and delta follows from it: correct it if it is far off."
        )
        yield Finding("warning", "rows", None, message, num_rows)


def _check_units(schema: Schema, unit: str, table: pa.Table) -> Iterator[Finding]:
    units = _decode(table.column(unit))
    yield from _counted("no unit", unit, units.null_count, _ROWS, "no unit and will not be used.")
    rows_of_unit = pc.value_counts(units.drop_null()).field("counts")
    surplus = pc.subtract(rows_of_unit, schema.max_rows_per_unit)
    surplus = surplus.filter(pc.greater(surplus, 0))
    if len(surplus):
        num_rows = pc.sum(surplus).as_py()
        about = (
            f"more than max_rows_per_unit = {schema.max_rows_per_unit} rows; {num_rows} row{'s' * (num_rows != 1)} will"
            f" not be used. The largest unit has {pc.max(rows_of_unit)} rows. A larger max_rows_per_unit keeps more"
            " rows and needs more noise."
        )
        yield from _counted("rows per unit", unit, len(surplus), _UNITS, about)
    for column in schema.columns:
        if column.per_unit and column.name in table.column_names:
            yield from _check_shared(column, units, _decode(table.column(column.name)))


def _check_shared(column: Column, units: pa.ChunkedArray, values: pa.ChunkedArray) -> Iterator[Finding]:
    """Units whose rows differ in a column that is declared per_unit. A null differs from a value."""
    pairs = pa.table({"unit": units, "value": values}).filter(pc.is_valid(units))
    counts = pairs.group_by("unit").aggregate([("value", "count_distinct", pc.CountOptions("all"))])
    several = pc.sum(pc.greater(counts.column("value_count_distinct"), 1)).as_py() or 0
    about = (
        "several values here, but per_unit is true. Each row is used with its own value; synthetic units have one "
        "value each."
    )
    yield from _counted("per_unit", column.name, several, _UNITS, about)


def _check_values(column: Column, values: pa.ChunkedArray, read: pa.ChunkedArray) -> Iterator[Finding]:
    known = len(values) - values.null_count
    if not known:
        yield Finding(
            "warning", "all null", column.name, "Every value is null. Consider drop = true.", values.null_count
        )
        return
    if not column.nullable:
        about = (
            f"null, but nullable is false: nulls become {_default_of(column)}. Remove the line to give nulls a category"
            " of their own."
        )
        yield from _counted("null", column.name, values.null_count, _VALUES, about)
    lost = read.null_count - values.null_count
    if lost > 0:
        how = f"{column.kind} with the format {column.format}" if column.format else column.kind
        message = (
            f"{lost} of {known} values cannot be read as {how}. They count as nulls. Correct the schema, or the table."
        )
        is_error = lost == known and not is_text(values.type)
        yield Finding("error" if is_error else "warning", "kind", column.name, message, lost)
    if lost < known:
        yield from _check_domain(column, values.drop_null(), _decode(read).drop_null())


def _check_domain(column: Column, values: pa.ChunkedArray, read: pa.ChunkedArray) -> Iterator[Finding]:
    if pa.types.is_floating(values.type):
        infinite = pc.is_inf(values)
        if num := _num_true(infinite):
            yield from _counted("infinite", column.name, num, _VALUES, "infinite and will be clamped to the bounds.")
            values, read = values.filter(pc.invert(infinite)), read.filter(pc.invert(infinite))
    num_distinct = pc.count_distinct(read).as_py()
    if num_distinct == 1:
        message = "Every value is the same. It uses budget and carries no information. Consider drop = true."
        yield Finding("note", "constant", column.name, message)
    if column.categories is not None:
        yield from _check_categories(column, read)
    elif column.kind == "categorical" and num_distinct > 1000:
        message = (
            f"It has {num_distinct} distinct values, and its categories are to be estimated privately: rare ones will"
            ' become "other". Consider kind = "text", kind = "id" or drop = true.'
        )
        yield Finding("note", "many categories", column.name, message, num_distinct)
    if pa.types.is_integer(read.type) and pa.types.is_floating(values.type):
        fractional = pc.not_equal(values, pc.round(values))
        about = f"not whole{_examples(values, fractional)} and will be rounded."
        yield from _counted("not whole", column.name, _num_true(fractional), _VALUES, about)
    if column.bounds is not None:
        yield from _check_bounds(column, values.type, read)


def _check_categories(column: Column, values: pa.ChunkedArray) -> Iterator[Finding]:
    declared = pa.array(column.categories)
    values = values.cast(declared.type, safe=False)
    outside = pc.invert(pc.is_in(values, declared))
    named = "the closed list of categories" if column.closed else "the declared categories"
    about = f"outside {named}{_examples(values, outside)} and will become {_default_of(column)}."
    yield from _counted("outside categories", column.name, _num_true(outside), _VALUES, about)
    unused = pc.invert(pc.is_in(declared, values.unique()))
    about, subject = f"not occur{_examples(declared, unused)}.", ("declared category does", "declared categories do")
    yield from _counted("unused categories", column.name, _num_true(unused), subject, about, level="note")


def _check_bounds(column: Column, held: pa.DataType, values: pa.ChunkedArray) -> Iterator[Finding]:
    bounds = column.bounds
    assert bounds is not None
    if isinstance(bounds[0], datetime) and pa.types.is_timestamp(held) and bool(bounds[0].tzinfo) != bool(held.tz):
        has, lacks = ("bounds", "values") if bounds[0].tzinfo else ("values", "bounds")
        message = f"The {has} have a time zone and the {lacks} do not. Write both with one, or both without."
        yield Finding("warning", "time zone", column.name, message)
        return
    if pa.types.is_timestamp(values.type):  # a bound may lie beyond the years of nanoseconds
        values = values.cast(pa.timestamp("us", values.type.tz), safe=False)
    outside = pc.or_(_below(values, bounds[0]), _below(values, bounds[1], above=True))
    lower, upper = map(to_toml, bounds)
    about = f"outside the bounds [{lower}, {upper}]{_examples(values, outside)} and will be clamped."
    yield from _counted("outside bounds", column.name, _num_true(outside), _VALUES, about)


def _below(values: pa.ChunkedArray, bound: Bound, *, above: bool = False) -> pa.ChunkedArray:
    """Which values are below the bound, or above it; exact for integers of any size."""
    compare = pc.greater if above else pc.less
    if pa.types.is_integer(values.type):
        extremes = pc.min_max(values).as_py()  # a bound that the column's type cannot hold is beyond all or no values
        if not extremes["min"] <= bound <= extremes["max"]:
            beyond = bound < extremes["min"] if above else bound > extremes["max"]
            return pa.chunked_array([pa.repeat(beyond, len(values))])
    return compare(values, pa.scalar(bound, type=values.type))


_ON_BREAK = {
    "clamp": "will be moved to a row that satisfies it",
    "drop": "will be left out",
    None: "will be moved to a row that satisfies it where the rule says how, else left out (on_break decides)",
}


def _check_rules(schema: Schema, as_fitted: pa.Table, on_break: Callable[[Rule], str] | None) -> Iterator[Finding]:
    """Rows that break a rule, as `fit` reads them. Rules about absent columns are left to the finding on columns."""
    for rule in schema.rules:
        if any(as_fitted.column_names.count(name) != 1 for name in rule.columns):
            continue
        broken = rule.broken(as_fitted)
        then = _ON_BREAK[rule.on_break if on_break is None else on_break(rule)]
        if broken.any():
            about = f"the rule {rule.text!r} ({100 * broken.mean():.3g}% of all rows) and {then}."
            yield from _counted("rule", None, int(broken.sum()), ("row breaks", "rows break"), about)


def _decode(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(value_type(values.type))


def _default_of(column: Column) -> str:
    """The fixed public value that replaces one that the schema does not allow."""
    if column.categories is not None:
        value = column.replacement
        if column.closed and value is not None:
            return f"the first category, {format_value(value)}"
        return "null" if value is None else format_value(value)
    named = {"boolean": "false", "categorical": '"other"', "location": "the first point of the region"}
    return named.get(column.kind, "the lower bound")


_ROWS, _UNITS, _VALUES = ("row has", "rows have"), ("unit has", "units have"), ("value is", "values are")


def _counted(
    topic: str, column: str | None, number: int, subject: tuple[str, str], about: str, *, level: Level = "warning"
) -> Iterator[Finding]:
    """A finding about this number of rows, units or values; none about 0."""
    if number:
        yield Finding(level, topic, column, f"{number} {subject[number != 1]} {about}", number)


def _num_true(mask: pa.ChunkedArray) -> int:
    return pc.sum(mask).as_py() or 0


def _examples(values: pa.ChunkedArray | pa.Array, mask: pa.ChunkedArray | pa.Array) -> str:
    some = ", ".join(format_value(value) for value in values.filter(mask).unique().slice(0, 3).to_pylist())
    return f" (such as {some})"
