"""Cells: Python objects of any types in one column, each read by itself as the declared kind."""

import contextlib
import math
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa

from understudy.schema import Column
from understudy.tables.casting import declared_type, in_declared_type
from understudy.tables.texts import MOST, cell_text, plain_cell

_PLAIN_TYPES = {frozenset({int}): pa.int64(), frozenset({float}): pa.float64(), frozenset({str}): pa.string()}
"""Types of cells that are read as a whole column."""

_CELL_TYPES = {
    "text": pa.string(),
    "truth": pa.bool_(),
    "integer": pa.int64(),
    "real": pa.float64(),
    "day": pa.date32(),
    "moment": pa.timestamp("us"),
    "placed": pa.timestamp("us", "UTC"),
}


def read_cells(cells: Sequence[object] | np.ndarray, column: Column) -> pa.ChunkedArray:
    """Python objects in the type of the declared kind, each read by its own type, as in a column of that type.

    Objects of one type are read together and put back in their places.
    """
    target = declared_type(column)
    plain = _PLAIN_TYPES.get(frozenset(map(type, cells)) - {type(None)})
    if plain is not None:
        with contextlib.suppress(pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            return in_declared_type(pa.chunked_array([pa.array(cells, plain, from_pandas=True)]), column)
    if pa.types.is_string(target):
        return pa.chunked_array([pa.array(map(cell_text, cells), target)])
    groups: dict[str, list] = {name: [] for name in _CELL_TYPES}
    places: dict[str, list[int]] = {name: [] for name in _CELL_TYPES}
    for place, cell in enumerate(cells):
        name, value = _typed_cell(cell)
        if name:
            groups[name].append(value)
            places[name].append(place)
    read = [
        in_declared_type(pa.chunked_array([pa.array(values, _CELL_TYPES[name])]), column)
        for name, values in groups.items()
        if values
    ]
    order = np.full(len(cells), -1)
    order[[place for listed in places.values() for place in listed]] = np.arange(sum(map(len, places.values())))
    return pa.chunked_array([chunk for part in read for chunk in part.chunks], target).take(
        pa.array(order, mask=order < 0)
    )


def _typed_cell(cell: object) -> tuple[str, object]:
    """The name of a cell's type, and its value; an empty name for a null or anything that is not a plain value."""
    cell = plain_cell(cell)
    match cell:
        case str():
            return "text", cell
        case bool():
            return "truth", cell
        case Decimal():
            whole = cell == cell.to_integral_value()
            return _typed_cell(int(cell)) if whole else ("real", float(cell))
        case int() if cell.bit_length() > 1023:  # outside the range of floats
            return "real", math.copysign(math.inf, cell > 0 or -1)
        case int():
            return ("integer", int(cell)) if -MOST <= cell <= MOST else ("real", float(cell))
        case float():
            return "real", cell
        case datetime():
            return "placed" if cell.tzinfo else "moment", cell
        case date():
            return "day", cell
    return "", None
