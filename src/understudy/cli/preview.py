"""What `understudy preview` prints. For the steward only: it is computed from the rows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from understudy.table_preview import ColumnPreview, Outlook, Preview


def show_preview(preview: "Preview") -> None:
    """Prints what a release would keep of a table."""
    from rich.console import Console

    from understudy.table_preview import WARNING

    console, chosen = Console(), preview.chosen
    console.print(WARNING)
    used = "" if preview.used_rows == preview.num_rows else f", of which {preview.used_rows:,} are used"
    console.print(f"\nThe table has {preview.num_rows:,} rows{used}. At epsilon {chosen.epsilon:g}:")
    if chosen.columns is None:
        console.print("This epsilon is too small for the method.")
    else:
        console.print(_column_table(chosen.columns))
    console.print("By epsilon:")
    console.print(_epsilon_table(preview.outlooks, preview.used_rows))
    console.print("'other' is the mean over categorical columns. Values in fewer rows than needed become 'other'.")
    if (few := chosen.note(preview.used_rows)) is not None:
        console.print(str(few), markup=False)


def _column_table(columns: "Sequence[ColumnPreview]") -> "Table":
    from rich.text import Text

    table = _table(("column", "kind"), ("values", "values kept", "rows unchanged", "'other'"))
    for column in columns:
        unchanged = "bounds estimated" if column.unchanged is None else _percent(column.unchanged)
        if column.num_values is None:
            table.add_row(Text(column.name), column.kind, "", "", unchanged, "")
        else:
            values = (f"{column.num_values:,}", f"{column.values_kept:,.0f}")
            table.add_row(Text(column.name), column.kind, *values, unchanged, _percent(column.other))
    return table


def _epsilon_table(outlooks: "Sequence[Outlook]", num_rows: int) -> "Table":
    table = _table((), ("epsilon", "noise in a count (rows)", "% of all rows", "rows a value needs", "'other'"))
    for each in outlooks:
        cells = ["cannot run", "", "", ""]
        if each.columns is not None:
            cells = ["", "", "", "" if each.other is None else _percent(each.other)]
            if each.stddev is not None:
                cells[:2] = [f"{each.stddev:.3g}", f"{100 * each.stddev / max(num_rows, 1):.2g}"]
            if each.rows_to_be_listed is not None:
                cells[2] = f"{each.rows_to_be_listed:,}"
        table.add_row(f"{each.epsilon:g}", *cells)
    return table


def _table(words: Sequence[str], numbers: Sequence[str]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in words:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _percent(fraction: float) -> str:
    """With one decimal; what is not all and not nothing is never written as 100 % or 0 %.

    >>> _percent(0.125), _percent(0.99999), _percent(1e-6)
    ('12.5 %', '> 99.9 %', '< 0.1 %')
    """
    text = f"{100 * fraction:.1f}"
    if text == "100.0" and fraction < 1:
        return "> 99.9 %"
    return "< 0.1 %" if text == "0.0" and fraction > 0 else f"{text} %"
