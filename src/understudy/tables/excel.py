"""Sheets of Excel workbooks."""

from collections.abc import Sequence

from understudy.errors import TableError
from understudy.schema import Schema
from understudy.tables.cell_tables import import_reader, table_of_cells
from understudy.tables.cells import cell_text
from understudy.tables.header import check_header, names_without_header
from understudy.tables.options import ReadOptions
from understudy.tables.path import TablePath
from understudy.tables.reading_batches import BatchReader

_OLD_FORMAT = b"\xd0\xcf\x11\xe0"
"""The first bytes of an .xls file, and of an encrypted .xlsx file."""


def open_excel(table_path: TablePath, schema: Schema | None, reading: ReadOptions) -> BatchReader:
    """One sheet, as one batch. Its columns are those of its header; what lies beside it and empty rows are not read.

    Without a header they start in the first column of the sheet, also if no row has a value there.
    """
    rows = [row for row in _read_rows(table_path, reading) if any(cell != "" for cell in row)]
    names, start = None if schema is None else schema.names, 0
    is_declared = schema is not None and not schema.drafted
    if not rows and not (is_declared and reading.header is False):
        raise TableError(f"{table_path} has an empty sheet. Expected column names in its first row.")
    first = list(rows[0]) if rows else []
    while first and first[-1] == "":
        first.pop()
    if reading.header is False:
        width = len(first) if names is None else len(names)
        header = names_without_header(width, names, str(table_path))
    else:
        start = next(at for at, cell in enumerate(first) if cell != "")
        if schema is None and any(cell != "" for row in rows for cell in row[:start]):
            start = 0  # a column without a name, which is refused
        header, rows = [cell_text(cell) or "" for cell in first[start:]], rows[1:]
        check_header(header, str(table_path), declared=names, is_header=reading.header)
    columns = {
        name: [None if len(row) <= at or row[at] == "" else row[at] for row in rows]
        for at, name in enumerate(header, start=start)
    }
    return BatchReader.of_table(table_of_cells(columns, schema if is_declared else None))


def _read_rows(table_path: TablePath, reading: ReadOptions) -> Sequence[Sequence[object]]:
    calamine = import_reader("python_calamine", "excel", table_path, "Excel files", "the sheet")
    with table_path.path.open("rb") as file:
        if file.read(4) == _OLD_FORMAT:
            raise TableError(
                f"{table_path} is protected by a password, or is an old .xls file. In Excel, save it as .xlsx without "
                "a password, or as CSV."
            )
    try:
        with calamine.CalamineWorkbook.from_path(table_path.path) as workbook:
            sheets = [sheet.name for sheet in workbook.sheets_metadata if sheet.typ == calamine.SheetTypeEnum.WorkSheet]
            sheet = workbook.get_sheet_by_name(_choose_sheet(table_path, reading, sheets))
            # The empty columns before the first value would depend on the rows.
            rows: Sequence[Sequence[object]] = sheet.to_python(skip_empty_area=False)
            return rows
    except (calamine.CalamineError, calamine.XmlError, calamine.ZipError):
        raise ValueError("not a workbook") from None  # explained by the caller


def _choose_sheet(table_path: TablePath, reading: ReadOptions, sheets: Sequence[str]) -> str:
    if table_path.table is not None and reading.sheet is not None and table_path.table != reading.sheet:
        raise TableError(f"{table_path} and --sheet name two different sheets. Name one of them.")
    name = table_path.table or reading.sheet
    names = ", ".join(map(repr, sheets))
    if name is None:
        if len(sheets) == 1:
            return sheets[0]
        raise TableError(
            f"{table_path} has {len(sheets)} sheets: {names}. Choose one with --sheet NAME, or as"
            f" {table_path.path.name}::NAME."
        )
    if name not in sheets:
        raise TableError(f"{table_path.path} has no sheet {name!r}. It has: {names}.")
    return name
