"""Output columns: the types and styles of the origin, and SQL that formats values as text."""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import TableError
from understudy.rules.sql import connect, quote_text
from understudy.schema import Schema
from understudy.schema.draft import is_text
from understudy.tables.cast import as_type, in_dictionary
from understudy.tables.infer import read_as
from understudy.tables.labels import label_metadata
from understudy.tables.origin import Origin, parse_arrow_type, style_of, value_type
from understudy.tables.writing_batches import OutputBatches, consume_in_thread


def restyle(table: pa.Table, origin: Origin) -> pa.Table:
    """The table with the types, decimals and styles of its origin, as far as its values allow."""
    columns, fields = [], []
    for field, values in zip(table.schema, table.columns, strict=True):
        known = origin.columns.get(field.name)
        style = {**(known.style if known else {}), **style_of(field)}
        target = parse_arrow_type(known.arrow) if known else None
        if target is not None:
            with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
                read = _format_strings(values, style) if is_text(value_type(target)) else _parse_numbers(values, target)
                values = as_type(read, target)
        if "decimals" in style and pa.types.is_floating(values.type):
            values = pc.round(values, int(style["decimals"]))
        columns.append(values)
        fields.append(pa.field(field.name, values.type, metadata=style or None))
    return pa.table(columns, schema=pa.schema(fields, label_metadata(table.schema) or None))


def restyle_within_bounds(table: pa.Table, origin: Origin, schema: Schema) -> pa.Table:
    """The table restyled; where rounding to decimals crosses a declared bound, the nearest value inside it."""
    table = restyle(table, origin)
    for column in schema.modelled:
        if column.kind != "real" or column.bounds is None or column.name not in table.column_names:
            continue
        decimals = output_decimals(origin, column.name)
        if decimals is not None:
            at = table.column_names.index(column.name)
            table = table.set_column(at, table.field(at), _clamp(table.column(at), column.bounds, decimals))
    return table


def settle_types(origin: Origin, extremes: Mapping[str, pa.Array]) -> tuple[Origin, dict[str, pa.Array]]:
    """The origin, and dictionaries of its columns, with which all tables of values between these extremes get equal
    types: those in which `restyle` writes the extremes themselves."""
    columns, dictionaries = dict(origin.columns), {}
    for name in columns.keys() & extremes.keys():
        written = restyle(pa.table({name: extremes[name]}), origin).column(name).combine_chunks()
        columns[name] = dataclasses.replace(columns[name], arrow=str(written.type))
        if pa.types.is_dictionary(written.type):
            dictionaries[name] = written.dictionary
    return dataclasses.replace(origin, columns=columns), dictionaries


def share_dictionaries(table: pa.Table, dictionaries: Mapping[str, pa.Array]) -> pa.Table:
    """The table with these dictionaries, where they have all values of a column."""
    for name, dictionary in dictionaries.items():
        at = table.column_names.index(name)
        coded = in_dictionary(table.column(at), dictionary)
        if coded.null_count == table.column(at).null_count:
            table = table.set_column(at, table.field(at), coded)
    return table


def output_decimals(origin: Origin, name: str) -> int | None:
    """The number of decimals that a real column is rounded to in the output; None: it is not rounded."""
    known = origin.columns.get(name)
    if known is None:
        return None
    if known.arrow.startswith(("int", "uint")):
        return 0
    return int(known.style["decimals"]) if known.style.get("decimals") else None


def _clamp(values: pa.ChunkedArray, bounds: tuple[Any, ...], decimals: int) -> pa.ChunkedArray:
    """Rounded values inside their bounds, if any number with so few decimals lies inside."""
    unit = Decimal(1).scaleb(-decimals)
    lower = Decimal(repr(float(bounds[0]))).quantize(unit, ROUND_CEILING)
    upper = Decimal(repr(float(bounds[1]))).quantize(unit, ROUND_FLOOR)
    if lower > upper or pa.types.is_decimal(values.type):
        return values
    low, high = (pa.scalar(float(bound)).cast(values.type) for bound in (lower, upper))
    return pc.min_element_wise(pc.max_element_wise(values, low, skip_nulls=False), high, skip_nulls=False)


def _parse_numbers(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Categories of a numeric column, estimated privately as text, as numbers again; "other" becomes null."""
    types = pa.types
    kind = "integer" if types.is_integer(target) else "real" if types.is_floating(target) else None
    if kind is None or not is_text(values.type):
        return values
    return pa.chunked_array([read_as(chunk.cast(pa.string()), kind) for chunk in values.chunks])


def _format_strings(values: pa.ChunkedArray, style: dict[str, str]) -> pa.ChunkedArray:
    """Values of a column that was text in its source, in its declared style; without one, unchanged."""
    types = pa.types
    has_format = types.is_boolean(values.type) or types.is_date(values.type) or types.is_timestamp(values.type)
    if not (("format" in style and has_format) or ("decimals" in style and types.is_floating(values.type))):
        return values
    field = pa.field("x", values.type, metadata=style)
    return format_in_sql(pa.table([values], schema=pa.schema([field])), text_sql).column(0)


def with_formatted_dates(table: pa.Table) -> pa.Table:
    """Dates and times that have a format, as the strings that a text file would hold: a format may leave parts out."""
    for at, field in enumerate(table.schema):
        has_time = pa.types.is_date(field.type) or pa.types.is_timestamp(field.type)
        if has_time and "format" in style_of(field):
            table = table.set_column(at, field.name, _format_strings(table.column(at), style_of(field)))
    return table


def format_in_sql(table: pa.Table, expression_fn: Callable[[str, pa.DataType, dict[str, str]], str]) -> pa.Table:
    """Each column formatted by the SQL expression that `expression_fn` makes of its name, type and style."""
    with _connect_with(_sql_columns(table)) as connection:
        expressions = ", ".join(_sql_expressions(table.schema, expression_fn))
        return connection.sql(f"SELECT {expressions} FROM t").to_arrow_table()


def copy_in_sql(
    batches: OutputBatches,
    expression_fn: Callable[[str, pa.DataType, dict[str, str]], str],
    query_fn: Callable[[list[str]], str],
) -> None:
    """Executes a query over `t`, which holds the rows of all batches in their order, while they are being made.

    The columns of `t` are c0, c1, ...; `query_fn` is given the expression of each, as in `format_in_sql`.
    """

    def execute(rows: pa.RecordBatchReader) -> None:
        with _connect_with(rows) as connection:
            connection.execute(query_fn(_sql_expressions(batches.schema, expression_fn)))

    consume_in_thread(map(_sql_columns, batches), execute)


@contextlib.contextmanager
def _connect_with(rows: pa.Table | pa.RecordBatchReader) -> Iterator[duckdb.DuckDBPyConnection]:
    with contextlib.closing(connect()) as connection:
        connection.execute("SET python_enable_replacements = false")
        connection.register("t", rows)
        yield connection


def _sql_columns(table: pa.Table) -> pa.Table:
    """The columns under names that need no quotes, in types of DuckDB; the offsets of zoned times beside them."""
    columns: dict[str, pa.ChunkedArray] = {}
    for i, values in enumerate(table.columns):
        values = values.cast(value_type(values.type))
        if _is_zoned(values.type):
            seconds = values.cast(pa.timestamp("s", values.type.tz), safe=False)
            columns[f"z{i}"] = pc.strftime(seconds, format="%z")
            values = pc.local_timestamp(values)
        columns[f"c{i}"] = values
    return pa.table(columns)


def _sql_expressions(schema: pa.Schema, expression_fn: Callable[[str, pa.DataType, dict[str, str]], str]) -> list[str]:
    expressions = []
    for i, field in enumerate(schema):
        arrow_type = value_type(field.type)
        zone = {"zone": f"z{i}"} if _is_zoned(arrow_type) else {}
        expressions.append(expression_fn(f"c{i}", arrow_type, {**zone, **style_of(field)}))
    return expressions


def _is_zoned(arrow_type: pa.DataType) -> bool:
    return pa.types.is_timestamp(arrow_type) and arrow_type.tz is not None


def require_case_insensitive_names(names: Sequence[str]) -> None:
    """Raises if two column names differ only in case: for formats that ignore case."""
    lower = Counter(name.lower() for name in names)
    clashing = [name for name in names if lower[name.lower()] > 1]
    if clashing:
        raise TableError(
            f"This format cannot hold names that differ only in case: {', '.join(map(repr, clashing))}. Write CSV or"
            " Parquet.",
            column=clashing[0],
        )


def text_sql(c: str, arrow_type: pa.DataType, style: dict[str, str]) -> str:
    """SQL that formats a column as text files write it."""
    types = pa.types
    if types.is_boolean(arrow_type):
        no, yes = map(quote_text, style.get("format", "false/true").split("/"))
        return f"CASE WHEN {c} THEN {yes} WHEN NOT {c} THEN {no} END"
    if types.is_floating(arrow_type):
        text = _real_sql(c, style)
        text = f"replace({text}, '.', ',')" if style.get("decimal") == "," else text
        return f"CASE WHEN NOT isnan({c}) THEN {text} END"
    if types.is_date(arrow_type) or types.is_timestamp(arrow_type):
        return datetime_sql(c, arrow_type, style)
    return f"CAST({c} AS VARCHAR)"


def _real_sql(c: str, style: dict[str, str]) -> str:
    if "decimals" not in style:
        return f"CAST({c} AS VARCHAR)"
    decimals = int(style["decimals"])
    rounded = f"(round({c}, {decimals}) + 0.0)"  # minus zero becomes zero
    if style.get("padded"):
        return f"format('{{:.{decimals}f}}', {rounded})"
    return rf"regexp_replace(CAST({rounded} AS VARCHAR), '\.0$', '')"


def datetime_sql(c: str, arrow_type: pa.DataType, style: dict[str, str]) -> str:
    """SQL that formats dates and datetimes by their format, in their own zone."""
    day = pa.types.is_date(arrow_type)
    text_format = style.get("format", "%Y-%m-%d" if day else "")
    zone = f"left({style['zone']}, 3) || ':' || right({style['zone']}, 2)" if "zone" in style else "'+00:00'"
    if not text_format:
        return f"CAST({c}::TIMESTAMP AS VARCHAR)" + (f" || {zone}" if "zone" in style else "")
    end = ""
    if text_format.endswith("%z"):
        text_format, end = text_format[:-2], f" || {zone}"
    elif text_format.endswith("Z") and not text_format.endswith("%Z"):
        text_format, end = text_format[:-1], " || 'Z'"
    text = f"strftime({c}::TIMESTAMP, {quote_text(text_format)})"
    if text_format.endswith("%f"):
        text = f"left({text}, -{6 - int(style['decimals'])})" if style.get("decimals", "6") != "6" else text
    return text + end
