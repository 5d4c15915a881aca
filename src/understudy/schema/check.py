"""Compares a table with its schema, for the data steward only: this reads values, and none of it is private."""

import dataclasses
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import SchemaError
from understudy.schema.column import Column
from understudy.schema.draft import is_text
from understudy.schema.schema import Schema, match_columns
from understudy.schema.values import Bound, format_value, to_toml

_Level = Literal["error", "warning", "note"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One result of `check`. NOT private: it may contain counts and values of the table."""

    level: _Level
    """error: `fit` will refuse the table; warning: `fit` will change or lose something; note: worth knowing."""

    topic: str
    """A fixed key for programs, such as "outside bounds"."""

    column: str | None
    """None: the finding is about the whole table."""

    message: str

    count: int | None = None
    """The number of values, rows, units or categories concerned."""

    def __str__(self) -> str:
        where = "The table" if self.column is None else f"Column {self.column!r}"
        return f"{self.level}: {where}: {self.message}"


def check(schema: Schema, table: pa.Table, as_fitted: pa.Table | None = None) -> list[Finding]:
    """Compares a table with its schema. For the data steward only.

    `table` is read without the schema, so that nothing is lost; `as_fitted`, if given, as `fit` would read it.

    *Not covered*: everything. The findings are exact, contain counts and values of the table, and cost no budget, since
    they are not part of a release: do not share them. `fit` reports none of this, since each would be a query.
    """
    findings = [*_check_columns(schema, table.column_names), *_check_rows(schema, table)]
    if schema.unit is not None and table.column_names.count(schema.unit) == 1:
        findings += _check_units(schema, schema.unit, table)
    for column in schema.modelled:
        if table.column_names.count(column.name) == 1 and table.num_rows:
            values = _decode(table.column(column.name))
            findings += _check_values(column, values)
            if as_fitted is not None and not is_text(values.type):
                findings += _check_reading(column, values, as_fitted.column(column.name))
    return findings


def _check_reading(column: Column, values: pa.ChunkedArray, as_fitted: pa.ChunkedArray) -> Iterator[Finding]:
    """Values that are lost when read as the schema says, mostly by a wrong date format."""
    known = len(values) - values.null_count
    lost = as_fitted.null_count - values.null_count
    if lost <= 0:
        return
    how = f"{column.kind} with the format {column.format}" if column.format else column.kind
    message = (
        f"{lost} of {known} values cannot be read as {how}. They count as nulls. Correct the schema, or the table."
    )
    level: _Level = "error" if lost == known else "warning"
    yield Finding(level=level, topic="reading", column=column.name, message=message, count=lost)


def _check_columns(schema: Schema, column_names: Sequence[str]) -> Iterator[Finding]:
    try:
        match_columns(schema, column_names)
    except SchemaError as error:
        yield Finding(level="error", topic="columns", column=None, message=str(error))


def _check_rows(schema: Schema, table: pa.Table) -> Iterator[Finding]:
    num_rows = table.num_rows
    if not num_rows:
        yield Finding(level="warning", topic="rows", column=None, message="It has no rows.", count=0)
    elif schema.rows is None:
        message = "rows is not declared, so a noisy count is used. If the number is public, declare it."
        yield Finding(level="note", topic="rows", column=None, message=message)
        if num_rows > 1_000_000:
            message = (
                f"It has {num_rows} rows. Without declared rows delta is 1e-6, which is more than 1/{num_rows}."
                " Use a smaller --delta, or declare rows if the number is public."
            )
            yield Finding(level="warning", topic="delta", column=None, message=message, count=num_rows)
    elif schema.rows != num_rows:
        message = (
            f"rows is declared as {schema.rows}, but there are {num_rows}. Batches are planned with the declared"
            " number, and delta follows from it: correct it if it is far off."
        )
        yield Finding(level="warning", topic="rows", column=None, message=message, count=num_rows)


def _check_units(schema: Schema, unit: str, table: pa.Table) -> Iterator[Finding]:
    units = _decode(table.column(unit))
    if units.null_count:
        message = f"{_count(units.null_count, 'row has', 'rows have')} no unit and will not be used."
        yield Finding(level="warning", topic="no unit", column=unit, message=message, count=units.null_count)
    rows_of_unit = pc.value_counts(units.drop_null()).field("counts")
    surplus = pc.subtract(rows_of_unit, schema.max_rows_per_unit)
    surplus = surplus.filter(pc.greater(surplus, 0))
    if len(surplus):
        message = (
            f"{_count(len(surplus), 'unit has', 'units have')} more than max_rows_per_unit = {schema.max_rows_per_unit}"
            f" rows; {_count(pc.sum(surplus).as_py(), 'row', 'rows')} will not be used. The largest unit has"
            f" {pc.max(rows_of_unit)} rows. A larger max_rows_per_unit keeps more rows and needs more noise."
        )
        yield Finding(level="warning", topic="rows per unit", column=unit, message=message, count=len(surplus))


class _FindingOf(Protocol):
    def __call__(self, level: _Level, topic: str, message: str, count: int | None = None) -> Finding: ...


def _check_values(column: Column, values: pa.ChunkedArray) -> Iterator[Finding]:
    def finding(level: _Level, topic: str, message: str, count: int | None = None) -> Finding:
        return Finding(level=level, topic=topic, column=column.name, message=message, count=count)

    if pa.types.is_floating(values.type):
        exact_nans = _num_true(pc.is_nan(values))
        if exact_nans:
            message = f"{_count(exact_nans, 'value is', 'values are')} NaN and will count as null."
            yield finding("warning", "not a number", message, exact_nans)
            values = pc.if_else(pc.is_nan(values), None, values)
    if values.null_count == len(values):
        yield finding("warning", "all null", "Every value is null. Consider drop = true.", values.null_count)
        return
    if values.null_count and not column.nullable:
        message = (
            f"{_count(values.null_count, 'value is', 'values are')} null, but nullable is false: nulls become"
            f" {_default_of(column)}. Remove the line to give nulls a category of their own."
        )
        yield finding("warning", "null", message, values.null_count)
    values = values.drop_null()
    converted = _as_kind(column, values)
    if converted is None:
        message = f"It is declared {column.kind}, but the table holds {values.type}. Change the kind, or the table."
        yield finding("error", "kind", message)
        return
    lost = len(values) - len(converted)
    if lost:
        message = f"{_count(lost, 'value', 'values')} cannot be read as {column.kind} and will count as null."
        yield finding("warning", "kind", message, lost)
    if len(converted):
        yield from _check_domain(column, converted, finding)


def _check_domain(column: Column, values: pa.ChunkedArray, finding: _FindingOf) -> Iterator[Finding]:
    if pa.types.is_floating(values.type):
        infinite = pc.is_inf(values)
        if num := _num_true(infinite):
            message = f"{_count(num, 'value is', 'values are')} infinite and will be clamped to the bounds."
            yield finding("warning", "infinite", message, num)
            values = values.filter(pc.invert(infinite))
    num_distinct = pc.count_distinct(values).as_py()
    if num_distinct == 1:
        yield finding(
            "note",
            "constant",
            "Every value is the same. It uses budget and carries no information. Consider drop = true.",
        )
    if column.categories is not None:
        yield from _check_categories(column, values, finding)
    elif column.kind == "categorical" and num_distinct > 1000:
        message = (
            f"It has {num_distinct} distinct values, and its categories are to be estimated privately: rare ones will"
            ' become "other". Consider kind = "text", kind = "id" or drop = true.'
        )
        yield finding("note", "many categories", message, num_distinct)
    if column.kind == "integer" and pa.types.is_floating(values.type):
        fractional = pc.not_equal(values, pc.round(values))
        if num := _num_true(fractional):
            message = (
                f"{_count(num, 'value is', 'values are')} not whole{_examples(values, fractional)} and will be rounded."
            )
            yield finding("warning", "not whole", message, num)
    if column.bounds is not None:
        yield from _check_bounds(column.bounds, values, finding)


def _check_categories(column: Column, values: pa.ChunkedArray, finding: _FindingOf) -> Iterator[Finding]:
    values, declared = _comparable(values, pa.array(column.categories))
    outside = pc.invert(pc.is_in(values, declared))
    if num := _num_true(outside):
        message = (
            f"{_count(num, 'value is', 'values are')} outside the declared categories{_examples(values, outside)} and"
            f" will become {_default_of(column)}."
        )
        yield finding("warning", "outside categories", message, num)
    unused = pc.invert(pc.is_in(declared, values.unique()))
    if num := _num_true(unused):
        message = (
            f"{_count(num, 'declared category does', 'declared categories do')} not occur{_examples(declared, unused)}."
        )
        yield finding("note", "unused categories", message, num)


def _check_bounds(bounds: tuple[Bound, Bound], values: pa.ChunkedArray, finding: _FindingOf) -> Iterator[Finding]:
    if isinstance(bounds[0], datetime) and (bounds[0].tzinfo is None) != (values.type.tz is None):
        has, lacks = ("bounds", "values") if bounds[0].tzinfo else ("values", "bounds")
        message = f"The {has} have a time zone and the {lacks} do not. Write both with one, or both without."
        yield finding("warning", "time zone", message)
        return
    outside = pc.or_(_below(values, bounds[0]), _below(values, bounds[1], above=True))
    if num := _num_true(outside):
        message = (
            f"{_count(num, 'value is', 'values are')} outside the bounds [{to_toml(bounds[0])}, {to_toml(bounds[1])}]"
            f"{_examples(values, outside)} and will be clamped."
        )
        yield finding("warning", "outside bounds", message, num)


def _below(values: pa.ChunkedArray, bound: Bound, *, above: bool = False) -> pa.ChunkedArray:
    """Which values are below the bound, or above it; exact for integers of any size."""
    compare = pc.greater if above else pc.less
    if pa.types.is_integer(values.type):
        extremes = pc.min_max(values).as_py()  # a bound that the column's type cannot hold is beyond all or no values
        if not extremes["min"] <= cast(int, bound) <= extremes["max"]:
            beyond = bound < extremes["min"] if above else bound > extremes["max"]  # type: ignore[operator]
            return pa.chunked_array([pa.repeat(beyond, len(values))])
    return compare(values, pa.scalar(bound, type=values.type))


def _as_kind(column: Column, values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The values that can be read as the kind of the column, in a type to compare; None: their type allows none."""
    types, held = pa.types, values.type
    if column.kind == "categorical":
        return None if types.is_nested(held) else values
    if is_text(held):
        return _parse_as_kind(column, values)
    if column.kind in ("datetime", "date"):
        if not (types.is_timestamp(held) or types.is_date(held)):
            return None
        zone = held.tz if types.is_timestamp(held) else None
        return values.cast(pa.date32() if column.kind == "date" else pa.timestamp("us", tz=zone), safe=False)
    if types.is_boolean(held):
        return values if column.kind == "boolean" else values.cast(pa.int8())
    if not (types.is_integer(held) or types.is_floating(held) or types.is_decimal(held)):
        return None
    if types.is_integer(held) and column.kind == "integer":
        return values
    values = values.cast(pa.float64(), safe=False)
    return pc.not_equal(values, 0.0) if column.kind == "boolean" else values


def _parse_as_kind(column: Column, texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The texts that can be read as the kind of the column; None: its format is not valid."""
    import duckdb  # here, since nothing else in this folder needs it

    kinds = {"integer": "BIGINT", "real": "DOUBLE", "boolean": "BOOLEAN", "datetime": "TIMESTAMP", "date": "DATE"}
    reading, parameters = "v", []
    if column.format is not None and column.kind == "boolean":
        reading, parameters = "CASE trim(v) WHEN ? THEN false WHEN ? THEN true END", column.format.split("/")
    elif column.format is not None:
        reading, parameters = "try_strptime(v, ?)", [column.format]
    with duckdb.connect() as connection:
        connection.execute("SET temp_directory = ''")  # private rows must not be spilled to disk
        connection.register("texts", pa.table({"v": texts}))
        query = f"SELECT TRY_CAST({reading} AS {kinds[column.kind]}) AS v FROM texts"
        try:
            read = connection.sql(query, params=parameters or None).to_arrow_table()
        except duckdb.Error:
            return None
        return read.column("v").drop_null()


def _comparable(values: pa.ChunkedArray, declared: pa.Array) -> tuple[pa.ChunkedArray, pa.Array]:
    """Values and categories in one type: that of the categories if the values allow it, else text."""
    try:
        return values.cast(declared.type), declared
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return values.cast(pa.string()), declared.cast(pa.string())


def _decode(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values without dictionary, extension type or run-end encoding."""
    if isinstance(values.type, pa.BaseExtensionType):
        return _decode(values.cast(values.type.storage_type))
    if pa.types.is_dictionary(values.type):
        return _decode(values.cast(values.type.value_type))
    if pa.types.is_run_end_encoded(values.type):
        return _decode(pc.run_end_decode(values))
    computable = {pa.float16(): pa.float32(), pa.string_view(): pa.string()}  # Arrow cannot compute with the former
    return values.cast(computable.get(values.type, values.type))


def _default_of(column: Column) -> str:
    """The fixed public value that replaces one that the schema does not allow."""
    if column.unknown is not None:
        return format_value(column.unknown)
    if column.categories is not None:
        return f"the first category, {format_value(column.categories[0])}"
    return {"boolean": "false", "categorical": '"other"'}.get(column.kind, "the lower bound")


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def _num_true(mask: pa.ChunkedArray) -> int:
    return pc.sum(mask).as_py() or 0


def _examples(values: pa.ChunkedArray | pa.Array, mask: pa.ChunkedArray | pa.Array) -> str:
    """A few of the values that the mask selects."""
    some = ", ".join(format_value(value) for value in values.filter(mask).unique().slice(0, 3).to_pylist())
    return f" (such as {some})"
