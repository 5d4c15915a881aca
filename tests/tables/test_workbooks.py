"""Excel workbooks, and files of Stata, SPSS and SAS: each cell is read by itself."""

import datetime as dt
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest

import understudy as us
from tests.tables.table_examples import CANARY, refuse_reading, written
from tests.tables.test_reading_is_rowwise import ALSO_UNMODELLED, check_rowwise
from understudy.cli import run
from understudy.errors import TableError
from understudy.schema import Column, Schema
from understudy.tables import ReadOptions, check_writable, read_table


def workbook(path: Path, rows: list[list], *, sheet: str = "people", **more: list[list]) -> Path:
    book = openpyxl.Workbook()
    book.worksheets[0].title = sheet
    for title, content in {sheet: rows, **more}.items():
        page = book.worksheets[0] if title == sheet else book.create_sheet(title)
        for row in content:
            page.append(row)
    book.save(path)
    return path


# ---------------------------------------------------------------------------------------------------------------- Excel

ROWS: list[list] = [
    ["age", "weight", "born", "seen", "smoker", "ward"],
    [34, 71.5, dt.date(1990, 1, 2), dt.datetime(2020, 1, 2, 10, 30), True, "A"],
    ["unknown", 80, dt.date(1970, 5, 6), dt.datetime(2020, 1, 3), False, None],
    [None] * 6,
    [51, None, None, None, None, 7],
]


def test_sheet(tmp_path: Path) -> None:
    path = workbook(tmp_path / "t.xlsx", ROWS)
    read = {
        "age": [34, None, 51],
        "weight": [71.5, 80.0, None],
        "born": [dt.date(1990, 1, 2), dt.date(1970, 5, 6), None],
        "seen": [dt.datetime(2020, 1, 2, 10, 30), dt.datetime(2020, 1, 3), None],
        "smoker": [True, False, None],
        "ward": ["A", None, "7"],
    }
    table, _ = read_table(path)
    assert table.to_pydict() == read
    declared = Schema(columns=Schema.draft(table.schema).columns)
    assert read_table(path, schema=declared)[0].to_pydict() == read
    assert read_table(f"{path}::people")[0].equals(table)


def test_sheets_are_chosen_by_name(tmp_path: Path) -> None:
    path = workbook(tmp_path / "t.xlsx", ROWS, codes=[["a", "b"], [1, CANARY]])
    said = refuse_reading(path)
    assert "has 2 sheets: 'people', 'codes'. Choose one with --sheet NAME, or as t.xlsx::NAME" in said
    for source, options in ((path, ReadOptions(sheet="codes")), (f"{path}::codes", ReadOptions())):
        assert read_table(source, reading=options)[0].to_pydict() == {"a": [1], "b": [CANARY]}
    assert "has no sheet 'x'. It has: 'people', 'codes'." in refuse_reading(path, sheet="x")
    assert "two different sheets" in refuse_reading(f"{path}::codes", sheet="people")


def test_header_of_a_sheet(tmp_path: Path) -> None:
    path = workbook(tmp_path / "t.xlsx", [[CANARY, 34], ["bob", 51]])
    assert "field 2 looks like a number" in refuse_reading(path).replace("field 1", "")
    assert read_table(path, reading=ReadOptions(header=False))[0].to_pydict() == {
        "column_1": [CANARY, "bob"],
        "column_2": [34, 51],
    }
    schema = Schema(columns=(Column(name="name", kind="categorical"), Column(name="age", kind="integer")))
    assert "field 1 is none of them" in refuse_reading(path, schema=schema)
    twice = workbook(tmp_path / "t.xlsx", [[CANARY, CANARY], [1, 2]])
    assert "duplicate column names: columns 1 and 2" in refuse_reading(twice)
    assert "Column 1 of" in refuse_reading(workbook(tmp_path / "t.xlsx", [[None, "b"], [1, 2]]))
    assert "empty sheet" in refuse_reading(workbook(tmp_path / "t.xlsx", []))


def test_workbooks_that_cannot_be_read(tmp_path: Path) -> None:
    locked = written(tmp_path, b"\xd0\xcf\x11\xe0" + CANARY.encode() * 50, "t.xlsx")
    assert "is protected by a password, or is an old .xls file" in refuse_reading(locked)
    assert "cannot be read as Excel: it is damaged" in refuse_reading(written(tmp_path, f"PK{CANARY}", "t.xlsx"))
    for name in ("t.xls", "t.ods", "t.xlsb", "t.xls::people"):
        assert "Save it as .xlsx or CSV" in refuse_reading(str(tmp_path / name))
    for name, form in (("t.xlsx", "Excel"), ("t.sav", "SPSS"), ("t.dta", "Stata"), ("t.sas7bdat", "SAS")):
        with pytest.raises(TableError, match=f"{form} files can only be read"):
            check_writable(tmp_path / name, table=True)


CELLS = [1, 0, 1.5, "1", "yes", True, "2020-01-01", dt.date(2020, 1, 1), "a", 2]
ODD_CELLS: list[object] = [
    dt.datetime(2020, 1, 1, 10),
    "x",
    1e300,
    -(2**62),
    dt.date(1900, 1, 1),
    dt.time(10),
    " ",
    "#DIV/0!",
    "31.02.2020",
    False,
]


@pytest.mark.parametrize("kind", ALSO_UNMODELLED)
def test_sheets_are_read_row_by_row(tmp_path: Path, kind: str) -> None:
    tables = [[[cell, 1] for cell in CELLS]]
    tables += [[*tables[0], [odd, 1]] for odd in ODD_CELLS[:3]]
    tables += [[*tables[0], *([odd, 1] for odd in ODD_CELLS)], [*tables[0], [1, 1, CANARY], [None, None], [None, 1]]]
    files = [workbook(tmp_path / f"{i}.xlsx", [["x", "y"], *rows]) for i, rows in enumerate(tables)]
    check_rowwise([partial(read_table, file) for file in files], ALSO_UNMODELLED[kind], len(CELLS))


@pytest.mark.parametrize("header", [None, False])
def test_no_cell_moves_a_column(tmp_path: Path, header: bool | None) -> None:
    """A sheet has no columns left of its first value: one row must not decide where the others start."""
    schema = Schema(columns=(Column(name="x", kind="categorical"), Column(name="y", kind="integer")))
    head = [] if header is False else [["x", "y"]]
    tables: tuple[list[list[object]], ...]
    tables = [[None, 1]], [[None, 1], ["a", 2]], [[None, 1], [None, None], [None, 2, "beside"]], []
    for rows in tables:
        path = workbook(tmp_path / "t.xlsx", [*head, *rows])
        read = read_table(path, schema=schema, reading=ReadOptions(header=header))[0].to_pydict()
        assert read["y"] == [row[1] for row in rows if any(row)]
        assert read["x"] == [row[0] for row in rows if any(row)]


def test_cells_before_the_header_are_not_read(tmp_path: Path) -> None:
    schema = Schema(columns=(Column(name="x", kind="categorical"), Column(name="y", kind="integer")))
    for before in (None, CANARY):
        path = workbook(tmp_path / "t.xlsx", [[None, "x", "y"], [None, "a", 1], [before, "b", 2]])
        assert read_table(path, schema=schema)[0].to_pydict() == {"x": ["a", "b"], "y": [1, 2]}


# ------------------------------------------------------------------------------------------------- Stata, SPSS and SAS

FRAME = pd.DataFrame(
    {
        "sex": [1, 2, np.nan],
        "age": [30, 41, 99],
        "weight": [71.5, 80.25, np.nan],
        "born": [dt.date(1990, 1, 2), dt.date(1850, 5, 6), None],
        "seen": [dt.datetime(2020, 1, 2, 10, 30), dt.datetime(1955, 1, 3), None],
        "ward": ["A", "", "Köln"],
    }
)
LABELS = {"sex": {1: "Male", 2: "Female", 3: "Other"}, "age": {99: "refused"}}
READ: dict[str, list] = {
    "sex": ["Male", "Female", None],
    "age": [30, 41, 99],
    "weight": [71.5, 80.25, None],
    "born": [dt.date(1990, 1, 2), dt.date(1850, 5, 6), None],
    "seen": [dt.datetime(2020, 1, 2, 10, 30), dt.datetime(1955, 1, 3), None],
    "ward": ["A", None, "Köln"],
}
WRITERS: dict[str, Callable[..., None]] = {
    "t.dta": pyreadstat.write_dta,
    "t.sav": pyreadstat.write_sav,
    "t.xpt": pyreadstat.write_xport,
}


def statistics_file(folder: Path, name: str, frame: pd.DataFrame = FRAME, labels: dict | None = None) -> Path:
    known = {} if name == "t.xpt" or labels is None else {"variable_value_labels": labels}
    WRITERS[name](frame, str(folder / name), **known)
    return folder / name


@pytest.mark.parametrize("name", WRITERS)
def test_statistics_files(tmp_path: Path, name: str) -> None:
    path = statistics_file(tmp_path, name, labels=LABELS)
    expected = {**READ, "sex": [1, 2, None]} if name == "t.xpt" else READ
    table, _ = read_table(path)
    assert table.to_pydict() == expected
    declared = Schema(columns=Schema.draft(table.schema).columns)
    assert read_table(path, schema=declared)[0].to_pydict() == expected


def test_labels_are_found_and_declared_only_if_trusted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = str(statistics_file(tmp_path, "t.sav", labels=LABELS)), tmp_path / "s.toml"
    assert run(["schema", "draft", path, "-o", str(out)]) == 0
    drafted = us.Schema.read(out)
    assert (drafted["sex"].kind, drafted["sex"].categories, drafted["age"].kind) == ("categorical", None, "integer")
    lines = [line for line in out.read_text().splitlines() if "labels in the file" in line]
    assert lines == [
        '# labels in the file: 1 = "Male", 2 = "Female", 3 = "Other". If they come from a code book: --trust-labels'
        " declares them",
        '# labels in the file: 99 = "refused". Codes that mean a missing value: missing = [99]',
    ]
    assert run(["schema", "draft", path, "-o", str(out), "--trust-labels", "--force"]) == 0
    assert us.Schema.read(out)["sex"].categories == ("Male", "Female", "Other")
    assert us.Schema.read(out)["age"].categories is None
    capsys.readouterr()


@pytest.mark.parametrize("name", ["t.sav", "t.dta"])
def test_labels_follow_from_the_schema(tmp_path: Path, name: str) -> None:
    path = statistics_file(tmp_path, name, FRAME[["sex"]], {"sex": LABELS["sex"]})
    kinds = {
        Column(name="sex", kind="categorical"): ["Male", "Female", None],
        Column(name="sex", kind="categorical", categories=("Female", "Male")): ["Male", "Female", None],
        Column(name="sex", kind="categorical", categories=("1", "2")): ["1", "2", None],
        Column(name="sex", kind="categorical", categories=(1, 2)): [1, 2, None],
        Column(name="sex", kind="integer", bounds=(1, 2)): [1, 2, None],
        Column(name="sex", kind="categorical", missing=("Female",)): ["Male", None, None],
    }
    for column, read in kinds.items():
        assert read_table(path, schema=Schema(columns=(column,)))[0].column("sex").to_pylist() == read


def test_no_label_reaches_the_release(tmp_path: Path) -> None:
    frame = pd.DataFrame({"sex": [1, 2] * 200})
    path = statistics_file(tmp_path, "t.sav", frame, {"sex": {1: "Male", 2: "Female", 3: CANARY}})
    us.fit(path, "independent", us.Guarantee(5.0, 1e-6), seed=1).save(tmp_path / "release")
    assert CANARY not in "".join(file.read_text(errors="replace") for file in (tmp_path / "release").iterdir())
    table, origin = read_table(path)
    assert CANARY in str(table.schema.metadata) + str(table.schema.field("sex").metadata)
    assert CANARY not in json.dumps(origin.to_dict())


@pytest.mark.parametrize("name", ["t.sav", "t.dta"])
@pytest.mark.parametrize("kind", ["integer", "real", "date", "texts", "integers", "bought", "id"])
def test_statistics_files_are_read_row_by_row(tmp_path: Path, name: str, kind: str) -> None:
    """A tool that adds a word makes the column one of text; labels and formats of columns may grow."""
    cells: list[object] = [1, 2, 0, None]
    files = []
    odds: list[list[object]] = [[], [1.5], [1e300], ["x"], [None]]
    for i, odd in enumerate(odds):
        folder = tmp_path / str(i)
        folder.mkdir()
        frame = pd.DataFrame({"x": pd.Series([*cells, *odd], dtype=object if odd == ["x"] else float), "y": 1})
        if odd == ["x"]:
            frame["x"] = ["1", "2", "0", "", "x"]
        files.append(statistics_file(folder, name, frame))
    check_rowwise([partial(read_table, file) for file in files], ALSO_UNMODELLED[kind], len(cells))


def test_dates_beyond_all_years_are_clamped(tmp_path: Path) -> None:
    """The package itself fails for a file with one such value."""
    frame = pd.DataFrame({"d": [21916.0, 1e12, -1e12, np.nan], "m": [21916.0 * 86400, 1e300, -1e300, np.nan]})
    path = tmp_path / "t.sav"
    formats = {"d": "DATE11", "m": "DATETIME20"}
    pyreadstat.write_sav(frame * [86400 * 1.0, 1.0], str(path), variable_format=formats)
    schema = Schema(columns=(Column(name="d", kind="date"), Column(name="m", kind="datetime")))
    table, _ = read_table(path, schema=schema)
    assert [value.year for value in table.column("d").to_pylist()[:3]] == [1642, 9999, 1]
    assert [value.year for value in table.column("m").to_pylist()[:3]] == [1642, 9999, 1]


def test_damaged_statistics_files(tmp_path: Path) -> None:
    for name, form in (("t.sav", "SPSS"), ("t.dta", "Stata"), ("t.sas7bdat", "SAS"), ("t.xpt", "SAS")):
        assert f"cannot be read as {form}: it is damaged" in refuse_reading(written(tmp_path, CANARY * 100, name))


def test_two_readers_agree_with_pandas(tmp_path: Path) -> None:
    """pandas has readers of its own for these formats."""
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.25, 2.0], "c": ["x", "y", "z"]})
    frame.to_stata(tmp_path / "p.dta", write_index=False)
    frame.to_excel(tmp_path / "p.xlsx", index=False)
    for name in ("p.dta", "p.xlsx"):
        table, _ = read_table(tmp_path / name)
        assert table.cast(pa.schema([("a", pa.int64()), ("b", pa.float64()), ("c", pa.string())])).to_pydict() == {
            key: list(values) for key, values in frame.items()
        }
