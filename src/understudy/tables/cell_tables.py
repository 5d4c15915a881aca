"""Tables whose cells are Python objects, each with a type of its own: sheets and files of statistics packages."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime

import pyarrow as pa

from understudy.schema import Column, Schema
from understudy.tables.cast import read_cells
from understudy.tables.cells import cell_text, to_plain
from understudy.tables.infer import mark_untyped


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
