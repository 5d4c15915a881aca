"""Header, encoding, separator and decimal mark: what a text file does not say itself. And declared missing values."""

import csv
import datetime as dt
import io
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import understudy as us
from tests.builders import raises
from tests.examples import scaled
from tests.tables.table_examples import CANARY, refuse_reading, written
from understudy.cli import run
from understudy.errors import ConfigError, SchemaError, TableError
from understudy.schema import Column, Schema
from understudy.tables import ReadOptions, from_frame, read_table, write_table
from understudy.tables.header import looks_like_value
from understudy.tables.text_types import NULL_WORDS, plain_numbers

SCHEMA = Schema(columns=(Column(name="name", kind="categorical"), Column(name="age", kind="integer", bounds=(0, 120))))
any_folder = settings(max_examples=scaled(40), suppress_health_check=[HealthCheck.function_scoped_fixture])


# -------------------------------------------------------------------------------------------------------------- header

VALUES = [
    *("1", "-3", "1.5", "1,5", "1.234,56", "1,234.56", "1e5", "99 %", "<5", "0042", "2020", ".5", "1 234"),
    *("2020-12-31", "31.12.2020", "12/31/2020", "1.2.2020", "31-Dec-2020", "2020-12-31T10:00:00Z", "10:30"),
    *("true", "FALSE", "NaN", "?", "n/a", "-", "a@b.org", "P-00123", "555-12345", " 7 "),
]
NAMES = [
    *(
        "age",
        "AGE",
        "Na",
        "K",
        "No",
        "icd10",
        "x1",
        "q_2020",
        "age (years)",
        "% fat",
        "Straße",
        "dose.mg",
        "10th grade",
    ),
    *("unknown", "missing", "date of birth", "systolic/diastolic", "2nd visit", "a-b", "?why"),
]


@pytest.mark.parametrize("field", VALUES)
def test_values_in_the_first_line_are_refused(tmp_path: Path, field: str) -> None:
    path = written(tmp_path, f'{CANARY.replace("4711", "")},"{field}"\nbob,2\n')
    said = refuse_reading(path)
    assert "field 2 looks like" in said
    assert "--no-header" in said
    assert "--header" in said
    if len(field.strip()) > 2:
        assert field.strip() not in said.replace(str(path), "")


@pytest.mark.parametrize("field", NAMES)
def test_names_in_the_first_line_are_read(tmp_path: Path, field: str) -> None:
    assert looks_like_value(field) is None
    table, _ = read_table(written(tmp_path, f'id,"{field}"\n1,2\n'))
    assert table.to_pydict() == {"id": [1], field: [2]}


fields = st.sampled_from([*VALUES, *NAMES]) | st.text(st.characters(codec="ascii", exclude_characters="\r\n\x00"))


@any_folder
@given(st.lists(fields, min_size=2, max_size=4), st.lists(st.sampled_from(VALUES), max_size=3))
def test_the_first_line_is_judged_alone(tmp_path: Path, first: list[str], later: list[str]) -> None:
    """Whatever rows follow, a first line is accepted or refused, with the same words."""

    def judge(rows: list[str]) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerows([first, *([value] * len(first) for value in rows)])
        try:
            return str(read_table(written(tmp_path, text.getvalue()))[0].column_names)
        except TableError as error:
            return str(error)

    expected = judge(["x"])
    assert judge(["x", *later]) == expected
    refused = len({*first}) < len(first) or any(not name.strip() or looks_like_value(name) for name in first)
    assert refused == (not expected.startswith("["))


def test_no_header(tmp_path: Path) -> None:
    path = written(tmp_path, f"{CANARY},30\nbob,41\n")
    table, _ = read_table(path, reading=ReadOptions(header=False))
    assert table.to_pydict() == {"column_1": [CANARY, "bob"], "column_2": [30, 41]}
    declared, _ = read_table(path, schema=SCHEMA, reading=ReadOptions(header=False))
    assert declared.to_pydict() == {"name": [CANARY, "bob"], "age": [30, 41]}
    named, _ = read_table(path, reading=ReadOptions(header=True))
    assert named.column_names == [CANARY, "30"]
    wider = written(tmp_path, f"{CANARY},30,1\nbob,41,2\n")
    assert "has 3 fields in its first line, but the schema declares 2" in refuse_reading(
        wider, header=False, schema=SCHEMA
    )


def test_with_a_schema_the_first_line_holds_its_names(tmp_path: Path) -> None:
    for header in ("name,age", "age,name", '"name","age"'):
        row = "bob,41" if header.replace('"', "").startswith("name") else "41,bob"
        table, _ = read_table(written(tmp_path, f"{header}\n{row}\n"), schema=SCHEMA)
        assert table.select(["name", "age"]).to_pydict() == {"name": ["bob"], "age": [41]}
    path = written(tmp_path, f"{CANARY},30\nbob,41\n")
    said = refuse_reading(path, schema=SCHEMA)
    assert "does not hold the column names of the schema: field 1 is none of them. It lacks 'name', 'age'" in said
    assert "--no-header" in said
    misspelt = refuse_reading(written(tmp_path, "name,agee\nbob,41\n"), schema=SCHEMA)
    assert "field 2 is none of them. Did you mean 'age'?" in misspelt
    assert "agee" not in misspelt
    years = Schema(columns=(Column(name="2020", kind="integer"), Column(name="2021", kind="integer")))
    assert read_table(written(tmp_path, "2020,2021\n1,2\n"), schema=years)[0].to_pydict() == {"2020": [1], "2021": [2]}


def test_duplicate_and_empty_names_are_not_repeated(tmp_path: Path) -> None:
    for options in ({}, {"header": True}, {"schema": SCHEMA}):
        twice = refuse_reading(written(tmp_path, f"{CANARY},x,{CANARY}\n1,2,3\n"), **options)
        assert "duplicate column names: columns 1 and 3" in twice
        assert "--no-header" in twice
        assert "Column 2 of" in refuse_reading(written(tmp_path, f"{CANARY}, ,z\n1,2,3\n"), **options)


def test_every_command_takes_the_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{'ann' if i % 3 else 'bob'};{i % 7},5\n" for i in range(200))
    path = str(written(tmp_path, rows.encode("utf-16"), "people.csv"))
    how = ["--no-header", "--encoding", "utf-16", "--decimal", ","]
    place = [str(tmp_path / name) for name in ("s.toml", "fake.csv", "release")]
    assert run(["schema", "draft", path, "-o", place[0], *how]) == 0
    assert us.Schema.read(place[0]).names == ("column_1", "column_2")
    assert us.Schema.read(place[0])["column_2"].kind == "real"
    assert run(["schema", "check", path, place[0], *how]) == 0
    fit = ["--epsilon", "3", "--method", "independent", "--seed", "1", "-q"]
    assert run(["synth", path, "-o", place[1], *fit, *how]) == 0
    assert run(["fit", path, "-o", place[2], "--schema", place[0], *fit, *how]) == 0
    head, first, *_ = Path(place[1]).read_text().splitlines()
    assert head == "column_1;column_2"
    assert "," in first
    capsys.readouterr()
    assert run(["evaluate", path, place[1], "--quick", *how]) == 0
    assert "cannot be read as the kind" not in capsys.readouterr().out


def test_options_in_python(tmp_path: Path) -> None:
    rows = "".join(f"{'Jürg' if i % 3 else 'bob'};{i % 7},5\n" for i in range(200))
    path = written(tmp_path, rows.encode("cp1252"))
    reading = us.ReadOptions(header=False, encoding="cp1252", decimal=",")
    release = us.fit(path, "independent", us.Guarantee(5.0, 1e-6), reading=reading, seed=1)
    fake = release.sample_arrow(500, seed=0)
    assert set(fake.column("column_1").to_pylist()) & {"Jürg", "bob"}
    write_table(fake, tmp_path / "fake.csv", origin=release.origin)
    scores = us.evaluate(path, tmp_path / "fake.csv", effort="quick", reading=reading)
    assert scores.to_json()["synthetic"][0]["rows"] == 500


# ------------------------------------------------------------------------------------------------------------ encodings


@any_folder
@given(
    st.sampled_from(["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32", "shift_jis"]),
    st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=5),
    st.sampled_from(["x", "größe", "年齢"]),
)
def test_encodings_round_trip(tmp_path: Path, encoding: str, texts: list[str], name: str) -> None:
    def fits(text: str) -> bool:
        try:
            return text.encode(encoding).decode(encoding) == text and not set(text) & {*"\r\n\x00\ufeff"}
        except UnicodeError:
            return False

    name = name if fits(name) else "x"
    texts = [text for text in texts if fits(text)]
    content = io.StringIO()
    csv.writer(content, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([(name, "y"), *((t, "a") for t in texts)])
    path = written(tmp_path, content.getvalue().encode(encoding))
    schema = Schema(columns=(Column(name=name, kind="categorical"), Column(name="y", kind="categorical")))
    table, _ = read_table(path, schema=schema, reading=ReadOptions(encoding=encoding))
    assert table.column(name).to_pylist() == texts


def test_large_files_in_other_encodings(tmp_path: Path) -> None:
    """Longer than one block, so that characters lie across its ends."""
    texts = [f"grün{i:07d}€" for i in range(200_000)]
    path = written(tmp_path, ("x;y\n" + "".join(f"{text};1\n" for text in texts)).encode("utf-16"))
    table, origin = read_table(path, reading=ReadOptions(encoding="utf-16"))
    assert table.column("x").to_pylist() == texts
    assert origin.delimiter == ";"


def test_encodings_that_do_not_fit(tmp_path: Path) -> None:
    latin = written(tmp_path, f"a,b\n1,2\n{CANARY},M\xfcller\n".encode("latin-1"))
    assert "is not UTF-8 (line 3, byte 27). Give its encoding, often --encoding cp1252" in refuse_reading(latin)
    assert "is not ascii (line 3, byte 27). Give its encoding" in refuse_reading(latin, encoding="ascii")
    assert "is not utf-16" in refuse_reading(written(tmp_path, f"a,b\n1,{CANARY}\n"), encoding="utf-16")
    wide = written(tmp_path, f"a,b\n1,{CANARY}\n".encode("utf-16"))
    assert "is UTF-16, expected UTF-8. Give --encoding utf-16" in refuse_reading(wide)
    named = written(tmp_path, f"gr\xf6\xdfe,b\n1,{CANARY}\n".encode("latin-1"))
    assert "is not UTF-8 (line 1" in refuse_reading(named)


# -------------------------------------------------------------------------------------------------------------- numbers


def as_written(number: int | float, decimal: str, mark: str) -> str:
    text = f"{number:,}" if isinstance(number, int) else f"{number:,.3f}"
    return text.replace(",", "\0").replace(".", decimal).replace("\0", mark)


numbers = st.integers(-(10**12), 10**12) | st.floats(-1e9, 1e9).map(lambda x: round(x, 3))


@any_folder
@given(st.sampled_from([".", ","]), st.sampled_from(["", " ", "'", "\u00a0", "\u202f", "other"]), st.lists(numbers))
def test_decimals_round_trip(tmp_path: Path, decimal: str, mark: str, values: list[int | float]) -> None:
    mark = {".": ",", ",": "."}[decimal] if mark == "other" else mark
    texts = [as_written(value, decimal, mark) for value in values]
    schema = Schema(columns=(Column(name="x", kind="real"), Column(name="y", kind="integer")))
    path = written(tmp_path, "x;y\n" + "".join(f"{text};1\n" for text in texts))
    reading = ReadOptions(decimal=decimal)
    table, _ = read_table(path, schema=schema, reading=reading)
    assert table.column("x").to_pylist() == pytest.approx(values)
    if not values:
        return
    inferred, origin = read_table(path, reading=reading)
    assert inferred.column("x").to_pylist() == pytest.approx(values)
    write_table(inferred, tmp_path / "again.csv", origin=origin, force=True)
    assert read_table(tmp_path / "again.csv", reading=reading)[0].column("x").to_pylist() == pytest.approx(values)


def test_thousands_separators_follow_one_rule() -> None:
    read = {
        ",": {"1.234,56": "1234.56", "1.234": "1234", "1,5": "1.5", ",5": ".5", "1.5": None, "1.23.456": None},
        ".": {
            "1,234.56": "1234.56",
            "1,234": "1234",
            "1.5": "1.5",
            "1,5": None,
            "12,34,567": None,
            "1 234 567": "1234567",
        },
    }
    for decimal, cases in read.items():
        assert plain_numbers(pa.array(list(cases)), decimal).to_pylist() == list(cases.values())
    assert plain_numbers(pa.array(["1 234.567", "-1'234,5e3", "inf"]), ",").to_pylist() == [None, "-1234.5e3", "inf"]


def test_without_the_option_commas_are_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "w;n\n1,5;1\nunknown;2\n-0,25;3\n")
    assert read_table(path)[0].column("w").to_pylist() == ["1,5", "unknown", "-0,25"]
    assert run(["schema", "draft", str(path), "-o", str(tmp_path / "s.toml")]) == 0
    assert (
        "Column 'w': the values look like numbers with decimal commas. Give --decimal ','." in capsys.readouterr().err
    )
    with_option = ["--decimal", ",", "--force"]
    assert run(["schema", "draft", str(path), "-o", str(tmp_path / "s.toml"), *with_option]) == 0
    assert "look like" not in capsys.readouterr().err
    assert us.Schema.read(tmp_path / "s.toml")["w"].kind == "real"


def test_a_decimal_sign_that_separates_fields(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n1,2\n")
    assert "the decimal mark ',' is also the separator of its fields. Give the separator" in refuse_reading(
        path, decimal=","
    )
    with raises(ConfigError, setting="separator"):
        ReadOptions(decimal=",", separator=",")
    one = written(tmp_path, "weight\n1,5\n2,5\n")
    assert read_table(one, reading=ReadOptions(decimal=","))[0].to_pydict() == {"weight": [1.5, 2.5]}
    comma_in_name = written(tmp_path, '"a, b";c\n1,5;2\n')
    assert read_table(comma_in_name, reading=ReadOptions(decimal=","))[0].to_pydict() == {"a, b": [1.5], "c": [2]}


def test_separators(tmp_path: Path) -> None:
    path = written(tmp_path, "a, really;b\n1;2\n")
    assert read_table(path, reading=ReadOptions(separator=";"))[0].to_pydict() == {"a, really": [1], "b": [2]}
    tabs = written(tmp_path, "a,x\tb\n1\t2\n")
    assert read_table(tabs, reading=ReadOptions(separator="tab"))[0].column_names == ["a,x", "b"]


@pytest.mark.parametrize(
    "options",
    [
        {"encoding": "klingon"},
        {"encoding": "base64"},
        {"decimal": ";"},
        {"separator": "ab"},
        {"separator": '"'},
        {"sheet": ""},
        {"header": "no"},
    ],
)
def test_options_that_make_no_sense(options: dict[str, object]) -> None:
    (setting,) = options
    with raises(ConfigError, setting=setting):
        ReadOptions(**options)  # type: ignore[arg-type]  # keywords of several types


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (f"{CANARY},7\nbob,8\n".encode(), [], "give --no-header"),
        (f"{CANARY},{CANARY}\nbob,8\n".encode(), [], "duplicate column names"),
        ("größe,b\n1,2\n".encode("cp1252"), [], "--encoding cp1252"),
        (b"a,b\n1,2\n", ["--decimal", ","], "--separator"),
        (b"a,b\n1,2\n", ["--encoding", "klingon"], "is not an encoding"),
    ],
)
def test_bad_input_is_one_line_on_the_command_line(
    tmp_path: Path, content: bytes, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = str(written(tmp_path, content)), tmp_path / "out"
    for command in (["synth", path, "--epsilon", "1", "-o", f"{out}.csv"], ["schema", "draft", path, "-o", str(out)]):
        assert run([*command, *options]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert len(said.splitlines()) == 1
        assert CANARY not in said
    assert [file.name for file in tmp_path.iterdir()] == ["people.csv"]


def test_options_without_a_use_are_refused(tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"a": [1]}), tmp_path / "t.parquet")
    assert "decimal is an option for CSV and TSV files only" in refuse_reading(tmp_path / "t.parquet", decimal=",")
    assert "sheet is an option for Excel workbooks only" in refuse_reading(written(tmp_path, "a\n1\n"), sheet="x")
    with pytest.raises(TableError, match="The table: encoding is an option for CSV"):
        us.fit(pa.table({"a": [1]}), "mst", us.Guarantee(1.0), reading=ReadOptions(encoding="latin-1"))


# -------------------------------------------------------------------------------------------------------------- missing


def test_words_among_numbers_and_dates_are_null_without_a_schema(tmp_path: Path) -> None:
    for word in NULL_WORDS:
        for text in {word, word.upper(), f" {word} "}:
            path = written(tmp_path, f'n,d,t\n1,2020-01-01,a\n"{text}","{text}","{text}"\n2,2020-01-02,b\n')
            table, _ = read_table(path)
            assert table.column("n").to_pylist() == [1, None, 2]
            assert table.column("d").to_pylist() == [dt.date(2020, 1, 1), None, dt.date(2020, 1, 2)]
            assert table.column("t").to_pylist()[1] == (text or None)
    assert read_table(written(tmp_path, "n,t\nunknown,1\nunknown,2\n"))[0].column("n").to_pylist() == ["unknown"] * 2


@pytest.mark.parametrize(
    ("column", "texts", "read"),
    [
        (
            Column(name="x", kind="integer", missing=("99", "refused")),
            ["1", "99", "refused", "99.0"],
            [1, None, None, None],
        ),
        (Column(name="x", kind="real", missing=(-9,)), ["1.5", "-9", "-9.00", " -9 "], [1.5, None, None, None]),
        (
            Column(name="x", kind="categorical", missing=("unknown",)),
            ["a", "unknown", "Unknown"],
            ["a", None, "Unknown"],
        ),
        (Column(name="x", kind="categorical", categories=(1, 2), missing=(9,)), ["1", "9", "2"], [1, None, 2]),
        (
            Column(name="x", kind="date", missing=("1900-01-01",)),
            ["1900-01-01", "01.01.1900", "2020-01-01"],
            [None, None, dt.date(2020, 1, 1)],
        ),
        (Column(name="x", kind="boolean", format="no/yes", missing=("no",)), ["yes", "no"], [True, None]),
    ],
)
def test_declared_missing_values(tmp_path: Path, column: Column, texts: list[str], read: list[object]) -> None:
    schema = Schema(columns=(column, Column(name="y", kind="integer")))
    path = written(tmp_path, "x,y\n" + "".join(f"{text},1\n" for text in texts))
    assert read_table(path, schema=schema)[0].column("x").to_pylist() == read
    frame = pd.DataFrame({"x": pd.Series(texts, dtype=object), "y": 1})
    for source in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), frame.astype({"x": "category"})):
        assert from_frame(source, schema=schema)[0].column("x").to_pylist() == read
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_dict(schema.to_dict()) == schema


def test_declared_missing_values_of_typed_columns() -> None:
    schema = Schema(columns=(Column(name="x", kind="integer", missing=(99,)),))
    for cells in (pd.Series([1, 99]), pd.Series([1.0, 99.0, None]), pd.Series([1, 99, "99", "x"], dtype=object)):
        assert from_frame(pd.DataFrame({"x": cells}), schema=schema)[0].column("x").to_pylist()[:2] == [1, None]
    unit = Schema(columns=(Column(name="i", kind="id", missing=("?",)), Column(name="x", kind="integer")), unit="i")
    table, _ = from_frame(pd.DataFrame({"i": ["a", "?"], "x": 1}), schema=unit)
    assert table.column("i").to_pylist() == ["a", None]


@pytest.mark.parametrize(
    "missing",
    ["unknown", [True], ["a"]],
)
def test_missing_that_is_refused(missing: object) -> None:
    with raises(SchemaError, column="x", key="missing"):
        Column(name="x", kind="categorical", categories=("a", "b"), missing=missing)  # type: ignore[arg-type]  # a wrong type


# ----------------------------------------------------------------------------------------------------------- text dates


def test_text_dates_are_read_as_from_csv(tmp_path: Path) -> None:
    texts = ["31.12.2020", "n/a", "01.02.2021", None]
    days = [dt.date(2020, 12, 31), None, dt.date(2021, 2, 1), None]
    frame = pd.DataFrame({"d": pd.Series(texts, dtype=object), "n": 1})
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as connection:
        connection.execute("CREATE TABLE t (d TEXT, n INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?, 1)", [(text,) for text in texts])
        connection.commit()
    frame.to_parquet(tmp_path / "t.parquet")
    sources = [from_frame(frame), from_frame(pl.from_pandas(frame)), from_frame(pa.Table.from_pandas(frame))]
    sources += [read_table(tmp_path / "t.sqlite"), read_table(tmp_path / "t.parquet")]
    for table, origin in sources:
        assert table.column("d").to_pylist() == days
        assert origin.columns["d"].style == {"format": "%d.%m.%Y"}
        assert origin.columns["d"].arrow in ("string", "large_string")
    frame = pd.concat([frame] * 100, ignore_index=True)
    release = us.fit(frame, "independent", us.Guarantee(10.0, 1e-6), seed=1)
    assert release.codec.schema["d"].kind == "date"
    assert all(pd.to_datetime(release.sample(50, seed=1)["d"].dropna(), format="%d.%m.%Y").dt.year.between(2019, 2022))


def test_words_among_numbers_of_pandas() -> None:
    table, _ = from_frame(pd.DataFrame({"x": pd.Series([1, "unknown", 3.0], dtype=object)}))
    assert table.column("x").to_pylist() == [1, None, 3]
    texts, _ = from_frame(pd.DataFrame({"x": pd.Series(["1", "unknown", "3"], dtype=object)}))
    assert texts.column("x").to_pylist() == ["1", "unknown", "3"]
