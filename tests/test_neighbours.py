"""Neighbours: the command line on a table, and on the same table with one odd row more.

With a declared schema and a fixed seed nothing but noisy answers may differ: neither the exit code, nor what is said,
the files that are written, any field of release.json and certificate.json that is no noise, or the synthetic types.
"""

import contextlib
import csv
import dataclasses
import datetime as dt
import io
import json
import math
import sqlite3
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pyreadstat
import pytest

import understudy as us
from tests.audit.outcomes import Found, differences, errors_of, outcome
from tests.tables.test_databases import server as server
from understudy.release import Release
from understudy.schema import Column, Schema
from understudy.tables import read_table

# --------------------------------------------------------------------------------------------------------------- tables


@dataclasses.dataclass(frozen=True)
class Kind:
    """A declared column, and texts that are values of it."""

    column: Column
    texts: str


MOMENTS = (dt.datetime(2000, 1, 1), dt.datetime(2030, 1, 1))
DAYS = (dt.date(2000, 1, 1), dt.date(2030, 1, 1))
KINDS = {
    "real": Kind(Column(name="x", kind="real", bounds=(0.0, 100.0)), "10 20 30"),
    "real with decimals": Kind(Column(name="x", kind="real", bounds=(0.0, 100.0), decimals=1), "10 20.5 30"),
    "integer": Kind(Column(name="x", kind="integer", bounds=(0, 100)), "10 20 30"),
    "categorical": Kind(Column(name="x", kind="categorical"), "10 20 30"),
    "categorical of integers": Kind(Column(name="x", kind="categorical", categories=(10, 20)), "10 20 20"),
    "categorical of texts": Kind(Column(name="x", kind="categorical", categories=("10", "20")), "10 20 20"),
    "closed list": Kind(Column(name="x", kind="categorical", categories=("10", "20"), closed=True), "10 20 20"),
    "list without nulls": Kind(Column(name="x", kind="categorical", categories=(10, 20), nullable=False), "10 20 20"),
    "datetime": Kind(Column(name="x", kind="datetime", bounds=MOMENTS), "2020-01-01T10:00:00 2021-06-01T00:00:00"),
    "date": Kind(Column(name="x", kind="date", bounds=DAYS), "2020-01-01 2021-06-01"),
    "boolean": Kind(Column(name="x", kind="boolean"), "true false true"),
}
ODD = {
    "missing": "",
    "fraction": "1.5",
    "word": "unknown",
    "huge number": "99999999999999999999",
    "old date": "0400-01-01",
    "microseconds": "2020-01-01T10:00:00.123456",
    "quoted line break": "\n",
    "spaces": " ",
    "NUL": "a\x00b",
    "odd unicode": "\u202e\U0001f600\ufffe",
    "infinity": "inf",
    "not a number": "NaN",
}
NUM_ROWS = 240
HEAD, OTHER = "y", "1"  # the odd value stands in the last field


def as_csv(values: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((HEAD, "x"))
    writer.writerows((OTHER, value) for value in values)
    return text.getvalue()


def number(text: str) -> object:
    """A text as a tool that guesses types would store it."""
    for read in (int, float):
        with contextlib.suppress(ValueError):
            return read(text)
    return {"true": True, "false": False, "": None}.get(text, text)


def write_csv(folder: Path, values: Sequence[str]) -> str:
    (folder / "t.csv").write_text(as_csv(values), newline="")
    return "t.csv"


def write_json_lines(folder: Path, values: Sequence[str]) -> str:
    lines = (json.dumps({HEAD: int(OTHER), "x": number(value)}) + "\n" for value in values)
    (folder / "t.jsonl").write_text("".join(lines))
    return "t.jsonl"


def write_pandas(folder: Path, values: Sequence[str]) -> str:
    pd.read_csv(folder / write_csv(folder, values)).to_parquet(folder / "t.parquet")
    return "t.parquet"


def write_pandas_dates(folder: Path, values: Sequence[str]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        frame = pd.read_csv(folder / write_csv(folder, values), parse_dates=["x"], dtype_backend="numpy_nullable")
    frame.to_parquet(folder / "t.parquet")
    return "t.parquet"


def write_polars(folder: Path, values: Sequence[str]) -> str:
    name = write_csv(folder, values)
    pl.read_csv(folder / name, try_parse_dates=True, infer_schema_length=None).write_parquet(folder / "t.parquet")
    return "t.parquet"


def write_pyarrow(folder: Path, values: Sequence[str]) -> str:
    options = pa.csv.ParseOptions(newlines_in_values=True)
    pq.write_table(pa.csv.read_csv(folder / write_csv(folder, values), parse_options=options), folder / "t.parquet")
    return "t.parquet"


def write_sqlite(folder: Path, values: Sequence[str]) -> str:
    """As pandas writes a frame: the column's type is that of its values."""
    frame = pd.read_csv(folder / write_csv(folder, values))
    (folder / "t.sqlite").unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(folder / "t.sqlite")) as connection:
        frame.to_sql("t", connection, index=False)
        connection.commit()
    return "t.sqlite::t"


def write_duckdb(folder: Path, values: Sequence[str]) -> str:
    path = folder / write_csv(folder, values)
    (folder / "t.duckdb").unlink(missing_ok=True)
    with contextlib.closing(duckdb.connect(str(folder / "t.duckdb"))) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT * FROM read_csv('{path}', sample_size = -1)")
    return "t.duckdb::t"


def write_excel(folder: Path, values: Sequence[str]) -> str:
    book = openpyxl.Workbook()
    for row in [(HEAD, "x"), *((int(OTHER), number(value)) for value in values)]:
        book.worksheets[0].append(row)
    book.save(folder / "t.xlsx")
    return "t.xlsx"


def write_spss(folder: Path, values: Sequence[str]) -> str:
    pyreadstat.write_sav(pd.read_csv(folder / write_csv(folder, values)), str(folder / "t.sav"))
    return "t.sav"


def write_stata(folder: Path, values: Sequence[str]) -> str:
    pyreadstat.write_dta(pd.read_csv(folder / write_csv(folder, values)), str(folder / "t.dta"))
    return "t.dta"


SOURCES: dict[str, Callable[[Path, Sequence[str]], str]] = {
    "CSV": write_csv,
    "JSON lines": write_json_lines,
    "Parquet by pandas": write_pandas,
    "Parquet by pandas with dates": write_pandas_dates,
    "Parquet by polars": write_polars,
    "Parquet by pyarrow": write_pyarrow,
    "SQLite": write_sqlite,
    "DuckDB": write_duckdb,
    "Excel": write_excel,
    "SPSS": write_spss,
    "Stata": write_stata,
}
TOOL_ERRORS = (
    *(pa.ArrowException, pl.exceptions.PolarsError, duckdb.Error, ValueError, OverflowError),
    *(pyreadstat.PyreadstatError, pyreadstat.ReadstatError, openpyxl.utils.exceptions.IllegalCharacterError),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def schema_of(kind: str) -> Schema:
    return Schema(columns=(Column(name=HEAD, kind="integer", bounds=(0, 9)), KINDS[kind].column))


def open_in(schema: Schema) -> list[str]:
    """What the schema leaves to be estimated."""
    lists = [c.name for c in schema.columns if c.kind not in ("boolean", "id") and not (c.categories or c.bounds)]
    return [*lists, *([] if schema.rows else ["rows"])]


def check_pair(folder: Path, source: str, kind: str, odd: Sequence[str]) -> int:
    """Compares the outcome with that of each odd row; returns how many of these the tool could write."""
    schema_of(kind).write(folder / "schema.toml", force=True)
    values = (KINDS[kind].texts.split() * NUM_ROWS)[:NUM_ROWS]
    first = outcome(folder, SOURCES[source](folder, values))
    assert first["synth:exit code"] == [0], errors_of(first)
    compared = 0
    for name in odd:
        try:
            given = SOURCES[source](folder, [*values, ODD[name]])
        except TOOL_ERRORS:
            continue  # the tool that would have made the table cannot: there is none to read
        assert not differences(first, outcome(folder, given), open_in(schema_of(kind))), name
        compared += 1
    return compared


PAIRS = [
    ("CSV", "real", "quoted line break"),
    ("CSV", "boolean", "NUL"),
    ("CSV", "categorical", "odd unicode"),
    ("CSV", "closed list", "word"),
    ("Excel", "closed list", "missing"),
    ("Parquet by pandas", "list without nulls", "missing"),
    ("JSON lines", "list without nulls", "word"),
    ("JSON lines", "integer", "huge number"),
    ("JSON lines", "categorical of integers", "word"),
    ("JSON lines", "real with decimals", "not a number"),
    ("Parquet by pandas", "real", "missing"),
    ("Parquet by pandas", "categorical of texts", "fraction"),
    ("Parquet by pandas", "boolean", "word"),
    ("Parquet by pandas with dates", "datetime", "word"),
    ("Parquet by polars", "integer", "huge number"),
    ("Parquet by polars", "datetime", "microseconds"),
    ("Parquet by polars", "categorical", "fraction"),
    ("Parquet by pyarrow", "date", "microseconds"),
    ("Parquet by pyarrow", "real with decimals", "infinity"),
    ("Parquet by pyarrow", "categorical of integers", "spaces"),
    ("SQLite", "integer", "fraction"),
    ("SQLite", "categorical", "word"),
    ("SQLite", "date", "old date"),
    ("DuckDB", "real", "huge number"),
    ("DuckDB", "boolean", "missing"),
    ("DuckDB", "datetime", "old date"),
    ("Excel", "integer", "word"),
    ("Excel", "real", "fraction"),
    ("Excel", "categorical", "huge number"),
    ("SPSS", "integer", "word"),
    ("SPSS", "categorical of texts", "missing"),
    ("Stata", "real", "word"),
]


@pytest.mark.parametrize(("source", "kind", "odd"), PAIRS)
def test_one_odd_row_changes_noise_only(folder: Path, source: str, kind: str, odd: str) -> None:
    assert check_pair(folder, source, kind, [odd]) == 1


def test_the_pairs_cover_all_sources_kinds_and_odd_rows() -> None:
    sources, kinds, odd = zip(*PAIRS, strict=True)
    assert (set(sources), set(kinds), set(odd)) == (set(SOURCES), set(KINDS), set(ODD))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", SOURCES)
def test_all_odd_rows(folder: Path, source: str, kind: str) -> None:
    assert check_pair(folder, source, kind, list(ODD)) > len(ODD) / 2


# ---------------------------------------------------------------------------- statistics files and PostgreSQL servers


def write_labelled_spss(folder: Path, values: Sequence[float]) -> str:
    """With labels for some values, and codes and a range that stand for missing ones."""
    labels, missing = {1.0: "a", 2.0: "b", -9.0: "refused"}, [-9.0, {"lo": 97, "hi": 99}]
    options: dict[str, Any] = {"variable_value_labels": {"x": labels}, "missing_ranges": {"x": missing}}
    pyreadstat.write_sav(pd.DataFrame({HEAD: 1.0, "x": values}), str(folder / "t.sav"), **options)
    return "t.sav"


def write_labelled_stata(folder: Path, values: Sequence[object]) -> str:
    """With labels for some values, and letters for missing ones."""
    options: dict[str, Any] = {
        "variable_value_labels": {"x": {1: "a", 2: "b"}},
        "missing_user_values": {"x": ["a", "z"]},
    }
    pyreadstat.write_dta(
        pd.DataFrame({HEAD: 1, "x": pd.Series(values, dtype=object)}), str(folder / "t.dta"), **options
    )
    return "t.dta"


def write_spss_time(folder: Path, values: Sequence[float]) -> str:
    frame = pd.DataFrame({HEAD: 1.0, "x": values})
    pyreadstat.write_sav(frame, str(folder / "t.sav"), variable_format={"x": "DATETIME20"})
    return "t.sav"


def write_stata_day(folder: Path, values: Sequence[float]) -> str:
    frame = pd.DataFrame({HEAD: 1.0, "x": values})
    pyreadstat.write_dta(frame, str(folder / "t.dta"), variable_format={"x": "%td"})
    return "t.dta"


def write_sas(folder: Path, values: Sequence[object]) -> str:
    pyreadstat.write_xport(pd.DataFrame({HEAD: 1.0, "x": values}), str(folder / "t.xpt"))
    return "t.xpt"


STATISTICS: dict[str, tuple[Callable[[Path, Sequence[Any]], str], str, tuple[object, ...], tuple[object, ...]]] = {
    "SPSS labels": (write_labelled_spss, "categorical of texts", (1.0, 2.0), (-9.0, 98.5, 3.0, math.nan)),
    "SPSS codes": (write_labelled_spss, "categorical of integers", (1.0, 2.0), (-9.0, 98.5, 3.0, 1e300)),
    "SPSS numbers": (write_labelled_spss, "real", (1.0, 2.0), (-9.0, 97.0, 2.0**63, math.nan)),
    "SPSS times": (write_spss_time, "datetime", (13.6e9, 13.7e9), (1e300, -1e300, -5e11, 2e16, math.nan)),
    "Stata labels": (write_labelled_stata, "categorical of texts", (1, 2), ("a", "z", 3)),
    "Stata numbers": (write_labelled_stata, "integer", (1, 2), ("a", "z", 3)),
    "Stata days": (write_stata_day, "date", (20000.0, 20001.0), (1e300, -1e6, 3e6, math.nan)),
    "SAS numbers": (write_sas, "integer", (1.0, 2.0), (math.nan, 1e70, 1.5)),
    "SAS texts": (write_sas, "categorical", ("a", "b"), ("", "a ", "x" * 200, "a\nb")),
}
"""Writer, kind of the column, values, and odd ones."""


@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=pytest.mark.long if " numbers" in each else []) for each in STATISTICS]
)
def test_one_odd_row_of_a_statistics_file_changes_noise_only(folder: Path, case: str) -> None:
    """With labels, codes and letters for missing values, and times beyond every calendar."""
    write, kind, plain, odd = STATISTICS[case]
    schema_of(kind).write(folder / "schema.toml")
    values = (list(plain) * NUM_ROWS)[:NUM_ROWS]
    first = outcome(folder, write(folder, values))
    assert first["synth:exit code"] == [0], errors_of(first)
    for value in odd:
        assert not differences(first, outcome(folder, write(folder, [*values, value])), open_in(schema_of(kind))), value


POSTGRES = {
    ("date", "date"): ("'infinity'", "'0044-01-01 BC'", "'5874897-12-31'"),
    ("datetime", "timestamptz"): ("'-infinity'", "'294276-12-31'"),
    ("real", "numeric"): ("'NaN'", "'Infinity'", "1e1000"),
    ("integer", "float8"): ("'NaN'", "1e308"),
    ("categorical", "bytea"): (r"'\xff00'",),
    ("categorical", "time"): ("'24:00'",),
    ("categorical of texts", "text[]"): ("'{NULL,a}'", "'{}'"),
    ("categorical", "jsonb"): ("'1e1000'",),
}
"""Kind of a column and its type on the server: odd values of that type."""
OF_TYPE = {"date": "'2020-01-01'", "timestamptz": "'2020-01-01'", "numeric": "1", "float8": "1", "bytea": r"'\x00'"}
OF_TYPE |= {"time": "'10:00'", "text[]": "'{a}'", "jsonb": "'1'"}


@pytest.mark.parametrize(("kind", "type_there"), POSTGRES)
def test_one_odd_row_on_a_server_changes_noise_only(folder: Path, server: str, kind: str, type_there: str) -> None:
    """Values that only PostgreSQL has, such as the day 'infinity'."""
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    schema_of(kind).write(folder / "schema.toml")
    with dbapi.connect(server, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS odd")
        cursor.execute(f"CREATE TABLE odd (y integer, x {type_there})")
        cursor.execute(f"INSERT INTO odd SELECT 1, {OF_TYPE[type_there]} FROM generate_series(1, {NUM_ROWS})")
        first = outcome(folder, f"{server}::odd")
        assert first["synth:exit code"] == [0], errors_of(first)
        for value in POSTGRES[kind, type_there]:
            cursor.execute(f"INSERT INTO odd VALUES (1, {value})")
            assert not differences(first, outcome(folder, f"{server}::odd"), open_in(schema_of(kind))), value
            cursor.execute("DELETE FROM odd WHERE ctid = (SELECT max(ctid) FROM odd)")


# ---------------------------------------------------------------------------------------------------------------- rules

RULED = """
columns.sex = { kind = "categorical", categories = ["f", "m"], closed = true, nullable = false }
columns.ill = { kind = "boolean", nullable = false }
columns.x = { kind = "integer", bounds = [0, 9] }
columns.total = { kind = "integer", bounds = [0, 20] }
columns.created = { kind = "integer", bounds = [1000000000000000, 1100000000000000] }
columns.start = { kind = "datetime", bounds = ["2000-01-01", "2030-01-01"] }
columns.stop = { kind = "datetime", bounds = ["2000-01-01", "2030-01-01"] }

rules = [
    { keep = "stop >= start" },
    { keep = "CAST(TIMESTAMP '1970-01-01' + to_microseconds(created) AS VARCHAR) > '2'" },
    { keep = "CAST(start AS VARCHAR) > '1' AND CAST(stop AS VARCHAR) > '1'", on_break = "drop" },
    { keep = "x <> 3" },
    { keep = "total = x + 5" },
    { when = "sex = 'm'", then = "NOT ill" },
    { combinations = ["sex", "ill"], forbidden = [["m", true]], on_break = "drop" },
]
"""
EARLIEST = -(2**63)
"""In microseconds, a moment whose conversion to text ends DuckDB's engine. A run moves it into the years 1 to 9999
before it applies rules; a rule that is applied to a table of the user's own meets it as it is."""
RULED_ROWS: dict[str, dict[str, object]] = {
    "a row like the others": {},
    "two rules broken": {"sex": "m", "ill": True, "x": 3},
    "no value that is declared": {"sex": "?", "ill": None, "x": 10**6, "total": -1},
    "nulls": dict.fromkeys(["sex", "ill", "x", "total", "created", "start", "stop"]),
    "the least integer": {"created": EARLIEST},
    "an integer that no time can be": {"created": 2**63 - 1},
    "a time that ends the engine": {"start": EARLIEST},
    "two times that end the engine": {"start": EARLIEST, "stop": EARLIEST},
    "times in the wrong order": {"start": 2**63 - 1, "stop": EARLIEST + 1},
}


def ruled_table(rows: Sequence[dict[str, object]]) -> pa.Table:
    moment = {"start": pa.timestamp("us"), "stop": pa.timestamp("us")}
    types = {
        "sex": pa.string(),
        "ill": pa.bool_(),
        "x": pa.int64(),
        "total": pa.int64(),
        "created": pa.int64(),
    } | moment
    return pa.table({name: pa.array([row[name] for row in rows], type) for name, type in types.items()})


PLAIN: dict[str, object] = {"sex": "f", "ill": True, "x": 4, "total": 9, "created": 10**15 + 10**13, "start": 10**15}
PLAIN |= {"stop": 10**15 + 10**10}


def neighbours_under_rules(odd: str) -> list[pa.Table]:
    rows = [PLAIN | {"x": at % 4, "total": at % 4 + 5} for at in range(NUM_ROWS)]
    return [ruled_table(rows), ruled_table([*rows, PLAIN | RULED_ROWS[odd]])]


@pytest.mark.parametrize("odd", RULED_ROWS)
def test_one_row_changes_noise_only_under_rules(folder: Path, odd: str) -> None:
    (folder / "schema.toml").write_text(RULED)
    found = []
    for table in neighbours_under_rules(odd):
        pq.write_table(table, folder / "t.parquet")
        found.append(outcome(folder, "t.parquet"))
    assert found[0]["synth:exit code"] == [0], errors_of(found[0])
    assert not differences(found[0], found[1], ["rows"])


@pytest.mark.parametrize("odd", ["the least integer", "two times that end the engine"])
def test_rules_are_kept_with_and_without_an_odd_row(odd: str) -> None:
    schema = Schema.from_toml(RULED)
    for table in neighbours_under_rules(odd):
        release = us.fit(table, "independent", us.Guarantee(1.0, 1e-6), schema=schema, seed=3)
        made = release.sample_arrow(300, seed=0).to_pylist()  # checked without the engine, which might have ended
        assert not any(row["x"] == 3 or (row["sex"] == "m" and row["ill"]) for row in made)
        assert not any(row["start"] and row["stop"] and row["start"] > row["stop"] for row in made)


@pytest.mark.parametrize("odd", RULED_ROWS)
def test_one_row_says_nothing_about_whether_others_break_rules(odd: str) -> None:
    rules = Schema.from_toml(RULED).rules
    plain = PLAIN | {"sex": "m", "x": 3, "total": 1, "created": -(10**15), "stop": 10**14}
    rows = [plain] * 3
    alone = [rule.broken(ruled_table(rows)).tolist() for rule in rules]
    assert alone[3] == [True] * 3
    for _ in range(2):
        with_odd = ruled_table([plain | RULED_ROWS[odd], *rows])
        assert [rule.broken(with_odd)[1:].tolist() for rule in rules] == alone


# ------------------------------------------------------------------------------------------------------ one more unit

UNITS = """
table = { unit = "who", max_rows_per_unit = 3 }
columns.who.kind = "id"
columns.sex = { kind = "categorical", categories = ["f", "m"], per_unit = true }
columns.x = { kind = "integer", bounds = [0, 9] }
"""
MORE = {
    "one row": [("new", "f", "1")],
    "as many as are used": [("new", "f", "1")] * 3,
    "more than are used": [("new", "f", "1")] * 50,
    "two sexes": [("new", "f", "1"), ("new", "m", "2")],
    "an odd sex": [("new", "?", "1")],
    "no value": [("new", "", "")],
    "no unit": [("", "f", "1")] * 2,
}


@pytest.mark.parametrize("more", MORE)
def test_one_more_unit_changes_noise_only(folder: Path, more: str) -> None:
    """Whatever the number of its rows, and whether or not they agree in what is declared once per unit."""
    (folder / "schema.toml").write_text(UNITS)
    lines = [(f"p{at // 2}", "fm"[at % 4 // 2], str(at % 10)) for at in range(NUM_ROWS)]
    found = []
    for rows in (lines, lines + MORE[more]):
        (folder / "t.csv").write_text("\n".join(map(",".join, [("who", "sex", "x"), *rows])) + "\n")
        found.append(outcome(folder, "t.csv"))
    assert found[0]["synth:exit code"] == [0], errors_of(found[0])
    assert found[0]["fake.release/release.json:codec.rows_per_unit[#]"] == [3]
    assert not differences(found[0], found[1], ["rows"])


# ------------------------------------------------------------------------------------------------ nobody, or one person


@pytest.mark.parametrize("source", SOURCES)
def test_an_empty_table_looks_like_one_unit(folder: Path, source: str) -> None:
    """Also for the one row that has no value at all, from which a tool learns as little as from none."""
    schema_of("integer").write(folder / "schema.toml")
    found = [outcome(folder, SOURCES[source](folder, values)) for values in ([], ["10"], [""])]
    assert found[0]["synth:exit code"] == [0], errors_of(found[0])
    assert not [differences(found[0], each, ["rows"]) for each in found[1:] if differences(found[0], each, ["rows"])]


def types_of(frame: object) -> object:
    """Without the label, which has the hash of a noisy release."""
    if isinstance(frame, pa.Table):
        return frame.schema.remove_metadata()
    return frame.dtypes if isinstance(frame, pd.DataFrame) else frame.schema  # type: ignore[attr-defined]  # a frame of either library


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_empty_frames(library: str) -> None:
    schema = schema_of("categorical of texts")
    types = []
    for num_rows in (0, 1):
        table = pa.table({HEAD: [1], "x": ["10"]}).slice(0, num_rows)
        frame = {"pandas": table.to_pandas, "polars": lambda t=table: pl.from_arrow(t), "pyarrow": lambda t=table: t}
        release = us.fit(frame[library](), "independent", us.Guarantee(1.0, 1e-6), schema=schema, seed=1)
        sampled = release.sample(5, seed=0)
        types.append((release.origin, str(types_of(sampled))))
    assert types[0] == types[1]


# -------------------------------------------------------------------------------------------------------- public tables


def public_outcomes(private: object, public: object) -> str:
    """Whether a run with this public table gets past the checks."""

    class Stop(Exception):
        pass

    def stop(share: float, words: str) -> None:
        raise Stop

    try:
        us.fit(private, "dpgan(steps=8)", us.Guarantee(1.0, 1e-6), schema=PUBLIC, public=public, progress=stop)
    except us.ConfigError as error:
        return str(error)
    except Stop:
        return ""
    raise AssertionError("nothing stopped the run")


PUBLIC = Schema(columns=(Column(name="x", kind="integer", bounds=(0, 9)), Column(name="y", kind="boolean")), rows=100)


def survey(num_rows: int) -> pa.Table:
    return pa.table({"x": [1] * num_rows, "y": [True] * num_rows})


def test_a_public_table_is_no_question_about_the_private_rows() -> None:
    """Whoever knows all rows but one must not learn from a refusal whether that one is there."""
    known = survey(100)
    for private in (survey(100), survey(101), survey(100).to_pandas()):
        assert public_outcomes(private, known) == ""


@pytest.fixture
def places(folder: Path) -> Path:
    pq.write_table(survey(100), folder / "a.parquet")
    pq.write_table(survey(100), folder / "copy.parquet")
    (folder / "link.parquet").symlink_to("a.parquet")
    (folder / "hard.parquet").hardlink_to(folder / "a.parquet")
    for name in ("one.duckdb", "two.duckdb"):
        with contextlib.closing(duckdb.connect(str(folder / name))) as connection:
            connection.execute("CREATE TABLE t AS SELECT 1 AS x, true AS y FROM range(100)")
            if name == "two.duckdb":
                connection.execute("CREATE TABLE u AS FROM t")
    return folder


@pytest.mark.parametrize(
    ("private", "public", "same"),
    [
        ("a.parquet", "a.parquet", True),
        ("a.parquet", "../{folder}/a.parquet", True),
        ("a.parquet", "link.parquet", True),
        ("a.parquet", "hard.parquet", True),
        ("a.parquet", "copy.parquet", False),
        ("one.duckdb::t", "one.duckdb", True),
        ("one.duckdb::t", "one.duckdb::main.t", True),
        ("two.duckdb::t", "two.duckdb::u", False),
        ("two.duckdb::t", "one.duckdb::t", False),
    ],
)
def test_the_source_of_the_private_table_is_refused(places: Path, private: str, public: str, same: bool) -> None:
    public = public.format(folder=places.name)
    for given in (public, Path(public)):
        assert ("is the private one" in public_outcomes(private, given)) == same


def test_the_object_of_the_private_table_is_refused() -> None:
    frame = survey(100)
    assert "is the private one" in public_outcomes(frame, frame)
    assert "is the private one" in public_outcomes(frame, lambda: frame)


# ------------------------------------------------------------------------------------------------------ types on demand


def types_written(found: Found) -> object:
    (types,) = found["fake.parquet:types"]
    return types


def test_kept_types_are_a_condition(folder: Path) -> None:
    schema_of("integer").write(folder / "schema.toml")
    pq.write_table(pa.table({HEAD: pa.array([1, 2], pa.int8()), "x": pa.array([10, 20], pa.uint16())}), "t.parquet")
    plain, kept = outcome(folder, "t.parquet"), outcome(folder, "t.parquet", "--keep-types")
    assert [types_written(found) for found in (plain, kept)] == ["y: int64\nx: int64", "y: int8\nx: uint16"]
    assert "fake.release/certificate.json:conditions[]" not in plain
    (condition,) = kept["fake.release/certificate.json:conditions[]"]
    assert str(condition).startswith("the storage types of the source are taken as public")
    release = us.fit("t.parquet", "independent", us.Guarantee(1.0, 1e-6), schema=schema_of("integer"), keep_types=True)
    assert "**Condition:** the storage types of the source are taken as public" in release.certificate
    release.save("kept.release")
    assert Release.load("kept.release").statement == release.statement
    assert (
        read_table("t.parquet", schema=schema_of("integer"))[1]
        == us.fit("t.parquet", "independent", us.Guarantee(1.0, 1e-6), schema=schema_of("integer")).origin
    )


def test_drafted_types_are_a_condition(folder: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([10, 20], pa.uint16())}), "t.parquet")
    release = us.fit("t.parquet", "independent", us.Guarantee(1.0, 1e-6))
    assert "**Condition:** the kinds and storage types of the columns" in release.certificate
    assert str(release.sample_arrow(5).schema.field("x").type) == "uint16"
