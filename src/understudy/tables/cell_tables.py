"""Cells that are Python objects, each with a type of its own: as in frames, SQLite, sheets and statistics files."""

import contextlib
import importlib
import importlib.util
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from types import ModuleType

import numpy as np
import pyarrow as pa

from understudy._version import install_advice
from understudy.errors import TableError
from understudy.schema import Column, Schema
from understudy.tables.cast import as_declared_type, declared_type, without_missing
from understudy.tables.cells import INT64_MAX, cell_text, to_plain
from understudy.tables.infer import mark_untyped
from understudy.tables.path import TablePath


def table_of_cells(columns: Mapping[str, Sequence[object]], declared: Schema | None) -> pa.Table:
    """With a declared schema each cell is read by its own type as the declared kind.

    Without one all become text, from which types are inferred as from a text file.
    """
    if declared is not None:
        read = {
            name: read_cells(cells, declared[name] if name in declared else Column(name=name, kind="text"))
            for name, cells in columns.items()
        }
        table = pa.table(read)
    else:
        table = pa.table({name: pa.array(_texts_of(cells), pa.string()) for name, cells in columns.items()})
    return table.cast(pa.schema([mark_untyped(field) for field in table.schema]))


def _texts_of(cells: Sequence[object]) -> list[str | None]:
    """Cells as text; days among datetimes as datetimes, since a sheet does not tell midnight from a day."""
    plain = [to_plain(cell) for cell in cells]
    if any(isinstance(cell, datetime) for cell in plain):
        plain = [
            datetime(cell.year, cell.month, cell.day)
            if isinstance(cell, date) and not isinstance(cell, datetime)
            else cell
            for cell in plain
        ]
    return [cell_text(cell) or None for cell in plain]


_PLAIN_TYPES = {frozenset({int}): pa.int64(), frozenset({float}): pa.float64(), frozenset({str}): pa.string()}
"""Python types whose cells are read as one column."""

_CELL_TYPES = {
    "text": pa.string(),
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "real": pa.float64(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "zoned datetime": pa.timestamp("us", "UTC"),
}


def read_cells(cells: Sequence[object] | np.ndarray, column: Column) -> pa.ChunkedArray:
    """Python objects in the type of the declared kind, each read by its own type, as in a column of that type.

    Objects of one type are read together and put back in order.
    """
    target = declared_type(column)
    plain = _PLAIN_TYPES.get(frozenset(map(type, cells)) - {type(None)})
    if plain is not None:
        with contextlib.suppress(pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            return as_declared_type(pa.chunked_array([pa.array(cells, plain, from_pandas=True)]), column)
    if pa.types.is_string(target):
        return without_missing(pa.chunked_array([pa.array(map(cell_text, cells), target)]), column)
    typed = [_typed_cell(cell) for cell in cells]
    chunks: list[pa.Array] = []
    order = np.full(len(typed), -1)
    for name, arrow_type in _CELL_TYPES.items():
        at = [position for position, (found, _) in enumerate(typed) if found == name]
        order[at] = sum(map(len, chunks)) + np.arange(len(at))
        values = pa.array([typed[position][1] for position in at], arrow_type)
        chunks += as_declared_type(pa.chunked_array([values]), column).chunks
    return pa.chunked_array(chunks, target).take(pa.array(order, mask=order < 0))


def _typed_cell(cell: object) -> tuple[str, object]:
    """The name of a cell's type, and its value; an empty name for a null or anything that is not a plain value."""
    cell = to_plain(cell)
    match cell:
        case str():
            return "text", cell
        case bool():
            return "boolean", cell
        case Decimal():
            whole = cell == cell.to_integral_value()
            return _typed_cell(int(cell)) if whole else ("real", float(cell))
        case int() if cell.bit_length() > 1023:  # outside the range of floats
            return "real", math.copysign(math.inf, cell > 0 or -1)
        case int():
            return ("integer", int(cell)) if -INT64_MAX <= cell <= INT64_MAX else ("real", float(cell))
        case float():
            return "real", cell
        case datetime():
            return "zoned datetime" if cell.tzinfo else "datetime", cell
        case date():
            return "date", cell
    return "", None


def import_reader(package: str, extra: str, table_path: TablePath, what: str, instead: str) -> ModuleType:
    """The package that reads such files, which is optional."""
    if importlib.util.find_spec(package) is None:
        name = package.replace("_", "-")
        raise TableError(
            f"{table_path}: {what} need the package {name}: {install_advice(extra)}. Or save {instead} as CSV."
        )
    return importlib.import_module(package)
