"""The first rows of a synthetic table, for the page. No other file of the studio reads rows."""

from pathlib import Path

from understudy.schema import Schema
from understudy.tables import read_table

ROWS = 20


def first_rows(table: Path, schema: Schema) -> dict[str, object]:
    """Column names and rows of texts."""
    rows, _ = read_table(str(table), schema=schema)
    first = rows.slice(0, ROWS)
    cells = [["" if value is None else str(value) for value in column.to_pylist()] for column in first.columns]
    return {"columns": first.column_names, "rows": [list(row) for row in zip(*cells, strict=True)]}
