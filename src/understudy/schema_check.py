"""A table held against its schema, for the steward's eyes only: all of this reads values, and none of it is private."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Literal, cast

import pyarrow as pa
import pyarrow.compute as pc

from understudy.columns import Bound, Column, shown, toml
from understudy.errors import SchemaError
from understudy.schema import Schema, is_text, match_columns

_Level = Literal["error", "warning", "note"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that `check` has to tell the steward. NOT private: it may hold counts and values of the table."""

    level: _Level
    """error: `fit` will refuse the table; warning: `fit` will alter or lose something; note: worth knowing."""

    topic: str
    """A fixed word for machines, such as "outside bounds"."""

    column: str | None
    """None where the finding is about the whole table."""

    message: str

    def __str__(self) -> str:
        where = "The table" if self.column is None else f"Column {self.column!r}"
        return f"{self.level}: {where}: {self.message}"


def check(schema: Schema, table: pa.Table, as_fitted: pa.Table | None = None) -> list[Finding]:
    """Compares a table with its schema, for the steward's eyes only.

    `table` is read without the schema, so that nothing is lost; `as_fitted`, if given, as `fit` would read it.

    *Not covered*: everything. The findings are exact, hold counts and values of the table, and cost no budget because
    they are no part of a release: do not share them. `fit` says none of this, since saying it would be a query.
    """
    findings = [*_column_findings(schema, table.column_names), *_row_findings(schema, table)]
    if schema.unit is not None and table.column_names.count(schema.unit) == 1:
        findings += _unit_findings(schema, table)
    for column in schema.modelled:
        if table.column_names.count(column.name) == 1 and table.num_rows:
            values = _decoded(table.column(column.name))
            findings += _value_findings(column, values)
            if as_fitted is not None and not is_text(values.type):
                findings += _reading_findings(column, values, as_fitted.column(column.name))
    return findings


def _reading_findings(column: Column, values: pa.ChunkedArray, as_fitted: pa.ChunkedArray) -> Iterator[Finding]:
    """Values that are lost when read as the schema says: mostly by a wrong date format."""
    known = len(values) - values.null_count
    lost = as_fitted.null_count - values.null_count
    if lost <= 0:
        return
    how = f"{column.kind} with the format {column.format}" if column.format else column.kind
    message = f"{lost} of {known} values cannot be read as {how}. They count as nulls. Mend the schema, or the table."
    yield Finding(level="error" if lost == known else "warning", topic="reading", column=column.name, message=message)


def _column_findings(schema: Schema, column_names: Sequence[str]) -> Iterator[Finding]:
    try:
        match_columns(schema, column_names)
    except SchemaError as error:
        yield Finding(level="error", topic="columns", column=None, message=str(error))


def _row_findings(schema: Schema, table: pa.Table) -> Iterator[Finding]:
    num_rows = table.num_rows
    if not num_rows:
        yield Finding(level="warning", topic="rows", column=None, message="It has no rows.")
    elif schema.rows is None:
        message = "rows is not declared, so a noisy count is bought. Where the size is public, declare it."
        yield Finding(level="note", topic="rows", column=None, message=message)
        if num_rows > 1_000_000:
            message = (
                f"It has {num_rows} rows, and without declared rows delta is 1e-6, which is more than one in that many."
                " Give a smaller --delta, or declare rows where the size is public."
            )
            yield Finding(level="warning", topic="delta", column=None, message=message)
    elif schema.rows != num_rows:
        message = (
            f"rows is declared as {schema.rows}, but there are {num_rows}. Batches are planned with the declared"
            " number, and delta follows from it: correct it if it is far off."
        )
        yield Finding(level="warning", topic="rows", column=None, message=message)


def _unit_findings(schema: Schema, table: pa.Table) -> Iterator[Finding]:
    units = _decoded(table.column(schema.unit))
    if units.null_count:
        message = f"{units.null_count} rows have no unit. They are left out."
        yield Finding(level="warning", topic="no unit", column=schema.unit, message=message)
    rows_of_unit = pc.value_counts(units.drop_null()).field("counts")
    surplus = pc.subtract(rows_of_unit, schema.max_rows_per_unit)
    surplus = surplus.filter(pc.greater(surplus, 0))
    if len(surplus):
        message = (
            f"{len(surplus)} units have more than max_rows_per_unit = {schema.max_rows_per_unit} rows;"
            f" {pc.sum(surplus)} rows will not be used. The largest unit has {pc.max(rows_of_unit)}. A larger"
            " max_rows_per_unit keeps more rows and needs more noise."
        )
        yield Finding(level="warning", topic="rows per unit", column=schema.unit, message=message)


def _value_findings(column: Column, values: pa.ChunkedArray) -> Iterator[Finding]:
    def finding(level: _Level, topic: str, message: str) -> Finding:
        return Finding(level=level, topic=topic, column=column.name, message=message)

    if pa.types.is_floating(values.type):
        exact_nans = _num_true(pc.is_nan(values))
        if exact_nans:
            yield finding("warning", "not a number", f"{exact_nans} values are NaN. They count as nulls.")
            values = pc.if_else(pc.is_nan(values), None, values)
    if values.null_count == len(values):
        yield finding("warning", "all null", "Every value is null. Consider drop = true.")
        return
    if values.null_count and not column.nullable:
        message = (
            f"{values.null_count} values are null, and nullable is false: they become {_default_of(column)}. Remove the"
            " line to give nulls a level of their own."
        )
        yield finding("warning", "null", message)
    values = values.drop_null()
    converted = _as_kind(column, values)
    if converted is None:
        message = (
            f"It is declared {column.kind}, and the table holds {values.type}. Change the kind, or mend the table."
        )
        yield finding("error", "kind", message)
        return
    if len(converted) < len(values):
        num = len(values) - len(converted)
        yield finding("warning", "kind", f"{num} values cannot be read as {column.kind}. They count as nulls.")
    if len(converted):
        yield from _domain_findings(column, converted, finding)


def _domain_findings(
    column: Column, values: pa.ChunkedArray, finding: Callable[[_Level, str, str], Finding]
) -> Iterator[Finding]:
    if pa.types.is_floating(values.type):
        infinite = pc.is_inf(values)
        if _num_true(infinite):
            message = f"{_num_true(infinite)} values are infinite. They are clamped to the bounds."
            yield finding("warning", "infinite", message)
            values = values.filter(pc.invert(infinite))
    num_distinct = pc.count_distinct(values).as_py()
    if num_distinct == 1:
        yield finding("note", "constant", "Every value is the same. It costs budget and tells nothing.")
    if column.categories is not None:
        yield from _category_findings(column, values, finding)
    elif column.kind == "categorical" and num_distinct > 1000:
        message = (
            f"It has {num_distinct} distinct values, and its categories are to be bought: the rare ones become"
            ' "other". Consider kind = "text", kind = "id" or drop = true.'
        )
        yield finding("note", "many categories", message)
    if column.kind == "integer" and pa.types.is_floating(values.type):
        broken = pc.not_equal(values, pc.round(values))
        if _num_true(broken):
            message = f"{_num_true(broken)} values are not whole{_examples(values, broken)}. They are rounded."
            yield finding("warning", "not whole", message)
    if column.bounds is not None:
        yield from _bound_findings(column, column.bounds, values, finding)


def _category_findings(
    column: Column, values: pa.ChunkedArray, finding: Callable[[_Level, str, str], Finding]
) -> Iterator[Finding]:
    values, declared = _comparable(values, pa.array(column.categories))
    outside = pc.invert(pc.is_in(values, declared))
    if _num_true(outside):
        message = (
            f"{_num_true(outside)} values are outside the declared categories{_examples(values, outside)}."
            f" They become {_default_of(column)}."
        )
        yield finding("warning", "outside categories", message)
    unused = pc.invert(pc.is_in(declared, values.unique()))
    if _num_true(unused):
        message = f"{_num_true(unused)} declared categories do not occur{_examples(declared, unused)}."
        yield finding("note", "unused categories", message)


def _bound_findings(
    column: Column,
    bounds: tuple[Bound, Bound],
    values: pa.ChunkedArray,
    finding: Callable[[_Level, str, str], Finding],
) -> Iterator[Finding]:
    if isinstance(bounds[0], datetime) and (bounds[0].tzinfo is None) != (values.type.tz is None):
        has, lacks = ("bounds", "values") if bounds[0].tzinfo else ("values", "bounds")
        yield finding(
            "warning", "time zone", f"The {has} have a time zone and the {lacks} have none. Write both alike."
        )
        return
    outside = pc.or_(_below(values, bounds[0]), _below(values, bounds[1], above=True))
    if _num_true(outside):
        message = (
            f"{_num_true(outside)} values are outside the bounds [{toml(bounds[0])}, {toml(bounds[1])}]"
            f"{_examples(values, outside)}. They are clamped."
        )
        yield finding("warning", "outside bounds", message)


def _below(values: pa.ChunkedArray, bound: Bound, *, above: bool = False) -> pa.ChunkedArray:
    """Which values lie below the bound, or above it; exact for integers of any size."""
    compare = pc.greater if above else pc.less
    if pa.types.is_integer(values.type):
        extremes = pc.min_max(values).as_py()  # a bound that the column's type cannot hold is beyond all or no values
        if not extremes["min"] <= cast(int, bound) <= extremes["max"]:
            beyond = bound < extremes["min"] if above else bound > extremes["max"]  # type: ignore[operator]
            return pa.chunked_array([pa.repeat(beyond, len(values))])
    return compare(values, pa.scalar(bound, type=values.type))


def _as_kind(column: Column, values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The values that can be read as the column's kind, in a type to compare; None where their type allows none."""
    types, held = pa.types, values.type
    if column.kind == "categorical":
        return None if types.is_nested(held) else values
    if is_text(held):
        return _read_as_kind(column, values)
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


def _read_as_kind(column: Column, texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The texts that can be read as the column's kind; None where its format is no format."""
    import duckdb  # here, because a schema is otherwise read without it

    kinds = {"integer": "BIGINT", "real": "DOUBLE", "boolean": "BOOLEAN", "datetime": "TIMESTAMP", "date": "DATE"}
    reading, words = "v", []
    if column.format is not None and column.kind == "boolean":
        reading, words = "CASE trim(v) WHEN ? THEN false WHEN ? THEN true END", column.format.split("/")
    elif column.format is not None:
        reading, words = "try_strptime(v, ?)", [column.format]
    with duckdb.connect() as connection:
        connection.execute("SET temp_directory = ''")  # private rows must not be spilled beside the user's files
        connection.register("texts", pa.table({"v": texts}))
        query = f"SELECT TRY_CAST({reading} AS {kinds[column.kind]}) AS v FROM texts"
        try:
            read = connection.sql(query, params=words or None).to_arrow_table()
        except duckdb.Error:
            return None
        return read.column("v").drop_null()


def _comparable(values: pa.ChunkedArray, declared: pa.Array) -> tuple[pa.ChunkedArray, pa.Array]:
    """Values and categories in one type: that of the categories where the values allow it, else as text."""
    try:
        return values.cast(declared.type), declared
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return values.cast(pa.string()), declared.cast(pa.string())


def _decoded(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values without their dictionary, extension or run-length wrapping."""
    if isinstance(values.type, pa.BaseExtensionType):
        return _decoded(values.cast(values.type.storage_type))
    if pa.types.is_dictionary(values.type):
        return _decoded(values.cast(values.type.value_type))
    if pa.types.is_run_end_encoded(values.type):
        return _decoded(pc.run_end_decode(values))
    plain = {pa.float16(): pa.float32(), pa.string_view(): pa.string()}  # Arrow cannot compute with the former
    return values.cast(plain.get(values.type, values.type))


def _default_of(column: Column) -> str:
    """In words: the fixed public value that stands for one that the schema does not allow."""
    if column.unknown is not None:
        return shown(column.unknown)
    if column.categories is not None:
        return f"the first category, {shown(column.categories[0])}"
    return {"boolean": "false", "categorical": '"other"'}.get(column.kind, "the lower bound")


def _num_true(mask: pa.ChunkedArray) -> int:
    return pc.sum(mask).as_py() or 0


def _examples(values: pa.ChunkedArray | pa.Array, mask: pa.ChunkedArray | pa.Array) -> str:
    some = ", ".join(shown(value) for value in values.filter(mask).unique().slice(0, 3).to_pylist())
    return f" (such as {some})"
