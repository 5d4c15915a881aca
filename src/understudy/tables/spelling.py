"""Spelling: columns with the types of their origin, and SQL that writes their values as text files had them."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import TableError
from understudy.schema import is_text
from understudy.tables.casting import as_type
from understudy.tables.engine import connect, quoted
from understudy.tables.origins import Origin, arrow_type, style_of
from understudy.tables.texts import read_as


def restyle(table: pa.Table, origin: Origin) -> pa.Table:
    """The table with the types, decimals and spelling of its origin, where its values allow them."""
    columns, fields = [], []
    for field, values in zip(table.schema, table.columns, strict=True):
        known = origin.columns.get(field.name)
        style = {**(known.style if known else {}), **style_of(field)}
        target = arrow_type(known.arrow) if known else None
        if target is not None:
            with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
                values = as_type(
                    _as_texts(values, style) if _holds_text(target) else _read_back(values, target), target
                )
        if "decimals" in style and pa.types.is_floating(values.type):
            values = pc.round(values, int(style["decimals"]))
        columns.append(values)
        fields.append(pa.field(field.name, values.type, metadata=style or None))
    return pa.table(columns, schema=pa.schema(fields))


def _holds_text(target: pa.DataType) -> bool:
    return is_text(target.value_type if pa.types.is_dictionary(target) else target)


def _read_back(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Categories that were bought as texts from a column of numbers; "other" is none and becomes null."""
    types = pa.types
    kind = "integer" if types.is_integer(target) else "real" if types.is_floating(target) else None
    if kind is None or not is_text(values.type):
        return values
    return pa.chunked_array([read_as(chunk.cast(pa.string()), kind) for chunk in values.chunks])


def _as_texts(values: pa.ChunkedArray, style: dict[str, str]) -> pa.ChunkedArray:
    """Values of a column that was text where it came from, by its declared spelling; without one, as they are."""
    types = pa.types
    has_format = types.is_boolean(values.type) or types.is_date(values.type) or types.is_timestamp(values.type)
    if not (("format" in style and has_format) or ("decimals" in style and types.is_floating(values.type))):
        return values
    field = pa.field("x", values.type, metadata=style)
    with spelled(pa.table([values], schema=pa.schema([field])), as_text) as (connection, (expression,)):
        return connection.sql(f"SELECT {expression} AS x FROM t").to_arrow_table().column(0)


@contextlib.contextmanager
def spelled(
    table: pa.Table, spell: Callable[[str, pa.DataType, dict[str, str]], str]
) -> Iterator[tuple[duckdb.DuckDBPyConnection, list[str]]]:
    """A connection in which `t` holds the columns as c0, c1, ..., and an expression that spells each of them."""
    columns: dict[str, pa.ChunkedArray] = {}
    expressions = []
    for i, (field, values) in enumerate(zip(table.schema, table.columns, strict=True)):
        style, held = style_of(field), values.type
        if pa.types.is_dictionary(held):
            values, held = values.cast(held.value_type), held.value_type
        if pa.types.is_timestamp(held) and held.tz:
            seconds = values.cast(pa.timestamp("s", held.tz), safe=False)
            columns[f"z{i}"] = pc.strftime(seconds, format="%z")
            values = pc.local_timestamp(values)
            style = {"zone": f"z{i}", **style}
        columns[f"c{i}"] = values
        expressions.append(spell(f"c{i}", held, style))
    with contextlib.closing(connect()) as connection:
        connection.execute("SET python_enable_replacements = false")
        connection.register("t", pa.table(columns))
        yield connection, expressions


def require_distinct_by_case(table: pa.Table) -> None:
    """Refuses names that a format, which ignores case, would take for one."""
    lower = Counter(name.lower() for name in table.column_names)
    clashing = [repr(name) for name in table.column_names if lower[name.lower()] > 1]
    if clashing:
        raise TableError(
            f"This format cannot hold names that differ only by case: {', '.join(clashing)}. Write CSV or Parquet."
        )


def as_text(c: str, held: pa.DataType, style: dict[str, str]) -> str:
    """SQL that spells a column as text files had it."""
    types = pa.types
    if types.is_boolean(held):
        no, yes = map(quoted, style.get("format", "false/true").split("/"))
        return f"CASE WHEN {c} THEN {yes} WHEN NOT {c} THEN {no} END"
    if types.is_floating(held):
        return f"CASE WHEN NOT isnan({c}) THEN {_real_text(c, style)} END"
    if types.is_date(held) or types.is_timestamp(held):
        return moment_text(c, held, style)
    return f"CAST({c} AS VARCHAR)"


def _real_text(c: str, style: dict[str, str]) -> str:
    if "decimals" not in style:
        return f"CAST({c} AS VARCHAR)"
    decimals = int(style["decimals"])
    rounded = f"(round({c}, {decimals}) + 0.0)"  # minus zero becomes zero
    if style.get("padded"):
        return f"format('{{:.{decimals}f}}', {rounded})"
    return rf"regexp_replace(CAST({rounded} AS VARCHAR), '\.0$', '')"


def moment_text(c: str, held: pa.DataType, style: dict[str, str]) -> str:
    """Dates and datetimes by their format, in their own zone."""
    day = pa.types.is_date(held)
    text_format = style.get("format", "%Y-%m-%d" if day else "")
    zone = f"left({style['zone']}, 3) || ':' || right({style['zone']}, 2)" if "zone" in style else "'+00:00'"
    if not text_format:
        return f"CAST({c}::TIMESTAMP AS VARCHAR)" + (f" || {zone}" if "zone" in style else "")
    end = ""
    if text_format.endswith("%z"):
        text_format, end = text_format[:-2], f" || {zone}"
    elif text_format.endswith("Z") and not text_format.endswith("%Z"):
        text_format, end = text_format[:-1], " || 'Z'"
    text = f"strftime({c}::TIMESTAMP, {quoted(text_format)})"
    if text_format.endswith("%f"):
        text = f"left({text}, -{6 - int(style['decimals'])})" if style.get("decimals", "6") != "6" else text
    return text + end
