"""Files of statistics packages: Stata, SPSS and SAS."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime

import pyarrow as pa

from understudy.schema import Column, Schema
from understudy.tables.cell_tables import import_reader, table_of_cells
from understudy.tables.cells import FIRST_DATETIME, LAST_DATETIME, cell_text, datetime_of
from understudy.tables.path import TablePath
from understudy.tables.reading_batches import BatchReader

_READERS = {".dta": "read_dta", ".sav": "read_sav", ".sas7bdat": "read_sas7bdat", ".xpt": "read_xport"}

_DAY = 86_400_000_000
_FORMATS: dict[str, tuple[datetime, tuple[tuple[str, bool, int], ...]]] = {
    ".dta": (datetime(1960, 1, 1), ((r"%-?t?d.*", True, _DAY), (r"%-?t[cC].*", False, 1000))),
    ".sav": (
        datetime(1582, 10, 14),
        ((r"(DATETIME|YMDHMS).*", False, 10**6), (r"([AEJS]?DATE|QYR|MOYR|WKYR).*", True, 10**6)),
    ),
    ".sas7bdat": (
        datetime(1960, 1, 1),
        (
            (r"(DATETIME|DATEAMPM|[BE]8601D[TNZX]|IS8601DT|EURDFDT|NLDATM).*", False, 10**6),
            (
                r"(DATE|DAY|DDMMYY|MMDDYY|YYMMDD|[BE]8601DA|IS8601DA|EURDF|JULIAN|MONYY|NLDATE|WORDDAT|WEEKDAT).*",
                True,
                _DAY,
            ),
        ),
    ),
}
_FORMATS[".xpt"] = _FORMATS[".sas7bdat"]
"""For each kind of file: the day that datetimes count from, and for formats of dates and datetimes whether they are
days, and the microseconds of one unit. The first that matches decides. Other formats are those of numbers."""


def open_statistics_file(table_path: TablePath, schema: Schema | None) -> BatchReader:
    """All columns, as one batch, each cell read by itself.

    Codes with a label are read as the label in a column of text categories. Without a schema a column is one of text
    categories if each of its values has a label.
    """
    columns, formats, labels = _read_file(table_path)
    read: dict[str, Sequence[object]] = {}
    for name, raw in columns.items():
        value_labels, column = labels.get(name, {}), None if schema is None or name not in schema else schema[name]
        cells = _with_dates(raw, formats.get(name) or "", table_path.suffix)
        if value_labels and _reads_labels(cells, value_labels, column):
            listed = None if column is None else column.categories
            usable = {code: label for code, label in value_labels.items() if listed is None or label in listed}
            cells = [usable.get(cell_text(cell), cell) for cell in cells]
        read[name] = [None if cell == "" else cell for cell in cells]
    table = table_of_cells(read, None if schema is None or schema.drafted else schema)
    marks = {name: {b"labels": json.dumps(by_code).encode()} for name, by_code in labels.items() if by_code}
    fields = [field.with_metadata({**field.metadata, **marks.get(field.name, {})}) for field in table.schema]
    return BatchReader.of_table(table.cast(pa.schema(fields)))


def _read_file(
    table_path: TablePath,
) -> tuple[dict[str, list[object]], dict[str, str | None], dict[str, dict[str | None, str]]]:
    """The cells of each column as plain numbers and text, its format, and the labels of its values by their text."""
    pyreadstat = import_reader("pyreadstat", "stats", table_path, "Stata, SPSS and SAS files", "the table")
    read = getattr(pyreadstat, _READERS[table_path.suffix])
    try:
        # Dates stay numbers: the package fails for a file with one that is beyond the year 9999.
        columns, about = read(str(table_path.path), output_format="dict", disable_datetime_conversion=True)
    except (pyreadstat.ReadstatError, pyreadstat.PyreadstatError):
        raise ValueError("not such a file") from None  # explained by the caller
    labels = {
        name: {cell_text(value): str(label) for value, label in value_labels.items() if str(label).strip()}
        for name, value_labels in about.variable_value_labels.items()
    }
    return {name: list(cells) for name, cells in columns.items()}, about.original_variable_types, labels


def _with_dates(cells: Sequence[object], text_format: str, suffix: str) -> Sequence[object]:
    """Days and datetimes for the numbers of a column whose format is one of dates; others stay as they are."""
    start, formats = _FORMATS[suffix]
    for pattern, is_day, unit in formats:
        if re.fullmatch(pattern, text_format):
            return [_moment(cell, start, unit, is_day=is_day) for cell in cells]
    return cells


def _moment(cell: object, start: datetime, unit: int, *, is_day: bool) -> date | datetime | None:
    """A number of units since the start, clamped to the years 1 to 9999."""
    if not isinstance(cell, int | float) or cell != cell:
        return None
    since_1970 = (start - datetime(1970, 1, 1)).days * _DAY
    timestamp = datetime_of(round(min(max(cell * unit + since_1970, FIRST_DATETIME), LAST_DATETIME)))
    return timestamp.date() if is_day else timestamp


def _reads_labels(cells: Sequence[object], labels: Mapping[str | None, str], column: Column | None) -> bool:
    """Whether codes become labels: by the schema; without one, if each value has a label."""
    if column is not None:
        texts_only = column.categories is None or isinstance(column.categories[0], str)
        return column.kind == "categorical" and texts_only
    return all(cell is None or cell == "" or cell_text(cell) in labels for cell in cells)
