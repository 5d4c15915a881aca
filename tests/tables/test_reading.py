"""Files read with and without a schema, and files that are refused."""

import contextlib
import dataclasses
import datetime as dt
import gzip
import itertools
import json
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import scaled
from tests.tables.table_examples import CANARY, STYLED, read_csv, refuse, written
from understudy.errors import TableError
from understudy.schema import Column, Schema
from understudy.tables import (
    Origin,
    from_frame,
    read_table,
    restyle,
    to_frame,
    write_table,
)


def to_pandas(table: pa.Table, origin: Origin) -> pd.DataFrame:
    frame = to_frame(table, origin)
    assert isinstance(frame, pd.DataFrame)
    return frame


def test_with_a_schema_nothing_is_guessed_and_nothing_fails(tmp_path: Path) -> None:
    schema = Schema(
        columns=(
            Column(name="i", kind="integer"),
            Column(name="r", kind="real"),
            Column(name="b", kind="boolean"),
            Column(name="d", kind="date", format="%m/%d/%Y"),
            Column(name="t", kind="datetime"),
            Column(name="c", kind="categorical", categories=(1, 2)),
            Column(name="z", kind="categorical"),
        )
    )
    text = (
        "i,r,b,d,t,c,z\n"
        "1.6,+1.50,Yes,01/02/2020,2020-01-01T10:00:00Z,1,007\n"
        "oops,nan,maybe,2020,never,x,1\n"
        "99999999999999999999,inf,No,12/31/1999,31.12.1999 08:30,2,\n"
        "-inf,1_0,,,2020-01-01,,\n"
    )
    table, _ = read_table(written(tmp_path, text), schema=schema)
    assert table.column("i").to_pylist() == [2, None, 2**63 - 1, -(2**63)]
    assert table.column("r").to_pylist() == [1.5, None, float("inf"), None]
    assert table.column("b").to_pylist() == [True, None, False, None]
    assert table.column("d").to_pylist() == [dt.date(2020, 1, 2), None, dt.date(1999, 12, 31), None]
    assert table.column("t").to_pylist() == [
        dt.datetime(2020, 1, 1, 10),
        None,
        dt.datetime(1999, 12, 31, 8, 30),
        dt.datetime(2020, 1, 1),
    ]
    assert table.column("c").to_pylist() == [1, None, 2, None]
    assert table.column("z").to_pylist() == ["007", "1", None, None]


DECLARED = Schema(
    columns=(
        Column(name="i", kind="integer"),
        Column(name="r", kind="real"),
        Column(name="p", kind="real", decimals=2),
        Column(name="b", kind="boolean"),
        Column(name="w", kind="boolean", format="nein/ja"),
        Column(name="d", kind="date"),
        Column(name="f", kind="date", format="%d.%m.%Y"),
        Column(name="t", kind="datetime"),
        Column(name="z", kind="datetime", format="%Y-%m-%dT%H:%M:%S%z"),
        Column(name="c", kind="categorical"),
        Column(name="n", kind="categorical", categories=(1, 2)),
        Column(name="x", kind="text"),
        Column(name="k", kind="id"),
    )
)

TEXTS: dict[str, list[str | None]] = {
    "i": ["1", "007", "3.5", "9" * 20, "true", "x", None],
    "r": ["1", "1.50", "-0.001", "1e-3", "inf", "yes", None],
    "p": ["1", "1.5", "1.125", "NA", None],
    "b": ["true", "False", "YES", "n", "0", "1", "perhaps", None],
    "w": ["ja", "nein", "Ja", "true", None],
    "d": ["2020-01-31", "31.12.2020", "2020-01-01 10:00", "soon", None],
    "f": ["31.12.2020", "2020-01-31", None],
    "t": ["2020-01-01", "2020-01-01T10:00:00.125", "2020-01-01T10:00:00+02:00", "2020-01-01 10:00:00Z", None],
    "z": ["2020-01-01T10:00:00+02:00", "2020-01-01T10:00:00+0000", "2020-01-01", None],
    "c": ["1", "007", "1.5", "true", "2020-01-01", "a", None],
    "n": ["1", "2", "x", None],
    "x": ["1", "a", None],
    "k": ["1", "17", "b", None],
}


def spelling_of(schema: Schema) -> dict[str, dict[str, str]]:
    return {c.name: {} if c.format is None else {"format": c.format} for c in schema if c.kind != "text"} | {
        c.name: {"decimals": str(c.decimals), "padded": "true"} for c in schema if c.decimals is not None
    }


DECLARED_TYPES = {
    **{"i": "int64", "r": "double", "p": "double", "b": "bool", "w": "bool", "d": "date32[day]", "f": "date32[day]"},
    **{"t": "timestamp[us]", "z": "timestamp[us, tz=UTC]", "c": "string", "n": "int64", "x": "string", "k": "string"},
}
GIVEN_BACK = {name: arrow for name, arrow in DECLARED_TYPES.items() if name != "x"} | {"k": "int64"}
"""Text is not given back, and ids are fresh numbers."""

rows_of_texts = st.lists(
    st.fixed_dictionaries({name: st.sampled_from(texts) for name, texts in TEXTS.items()}), min_size=1, max_size=4
)


def as_csv(rows: list[dict[str, str | None]]) -> str:
    return "\n".join([",".join(TEXTS), *(",".join(row[name] or "" for name in TEXTS) for row in rows)]) + "\n"


def as_json_lines(rows: list[dict[str, str | None]]) -> str:
    """Texts that are JSON as such, so that one column may hold numbers, booleans and strings."""

    def value(text: str | None) -> object:
        with contextlib.suppress(ValueError):
            return json.loads(text or "null")
        return text

    return "".join(json.dumps({name: value(text) for name, text in row.items()}) + "\n" for row in rows)


@settings(max_examples=scaled(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows_of_texts, st.sampled_from(["x.csv", "x.jsonl"]))
def test_with_a_declared_schema_no_value_reaches_the_origin(
    tmp_path: Path, rows: list[dict[str, str | None]], name: str
) -> None:
    text = as_csv(rows) if name == "x.csv" else as_json_lines(rows)
    table, origin = read_table(written(tmp_path, text, name), schema=DECLARED)
    assert {name: column.arrow for name, column in origin.columns.items()} == GIVEN_BACK
    assert {name: column.style for name, column in origin.columns.items()} == spelling_of(DECLARED)
    assert {field.name: str(field.type) for field in table.schema} == DECLARED_TYPES
    assert list(origin.to_dict()["columns"]) == list(GIVEN_BACK)  # type: ignore[call-overload]  # JSON, typed as objects


def test_a_drafted_schema_finds_the_spelling_that_it_leaves_open(tmp_path: Path) -> None:
    columns = (
        Column(name="r", kind="real"),
        Column(name="b", kind="boolean"),
        Column(name="p", kind="real", decimals=3),
    )
    path = written(tmp_path, "r,b,p\n1.50,Yes,1.5\n2.25,No,1\n")
    _, origin = read_table(path, schema=Schema(columns=columns, drafted=True))
    assert [dict(origin.columns[name].style) for name in "rbp"] == [
        {"decimals": "2", "padded": "true"},
        {"format": "No/Yes"},
        {"decimals": "3", "padded": "true"},
    ]
    _, origin = read_table(path, schema=Schema(columns=columns))
    assert [dict(origin.columns[name].style) for name in "rb"] == [{}, {}]


def test_a_draft_shows_the_spelling_that_was_found(tmp_path: Path) -> None:
    table, origin = read_table(written(tmp_path, STYLED))
    schema = Schema.draft(table.schema)
    assert (schema["r"].decimals, schema["flag"].format, schema["us"].format) == (2, "False/True", "%m/%d/%Y")
    confirmed = Schema.from_toml(schema.to_toml().replace("drafted = true", ""))
    assert not confirmed.drafted
    again, declared = read_table(tmp_path / "people.csv", schema=confirmed)
    for name in ("r", "flag", "day", "us", "moment"):
        assert declared.columns[name] == origin.columns[name]
        assert again.column(name).equals(table.column(name))


def test_declared_spelling_is_written(tmp_path: Path) -> None:
    columns = (
        Column(name="r", kind="real"),
        Column(name="p", kind="real", decimals=2),
        Column(name="b", kind="boolean"),
        Column(name="w", kind="boolean", format="None/ja"),
    )
    path = written(tmp_path, "r,p,b,w\n1.50,7,Yes,ja\n0.1,1.005,F, None\n,,,NA\n")
    table, origin = read_table(path, schema=Schema(columns=columns))
    assert table.column("w").to_pylist() == [True, False, None]
    fake = pa.table({"r": [0.1 + 0.2, 2.0], "p": [0.125, -0.001], "b": [True, False], "w": [False, True]})
    write_table(fake, tmp_path / "out.csv", origin=origin)
    assert (tmp_path / "out.csv").read_text() == ("r,p,b,w\n0.30000000000000004,0.12,true,None\n2.0,0.00,false,ja\n")


def test_json_lines_of_a_declared_schema_may_mix_types(tmp_path: Path) -> None:
    schema = Schema(
        columns=(
            Column(name="a/b~c", kind="integer"),
            Column(name='q"', kind="boolean"),
            Column(name="c", kind="categorical"),
            Column(name="never", kind="real"),
            Column(name="left out", kind="text", drop=True),
        )
    )
    text = (
        '{"c": 1.5, "a/b~c": 1}\n\n{"a/b~c": "2", "q\\"": "yes", "c": "\u00fc"}\n'
        '{"a/b~c": [3], "q\\"": false, "c": {"d": null}}\n'
    )
    table, _ = read_table(written(tmp_path, text, "x.jsonl"), schema=schema)
    assert table.to_pydict() == {
        "a/b~c": [1, 2, None],
        'q"': [None, True, False],
        "c": ["1.5", "\u00fc", '{"d":null}'],
        "never": [None, None, None],
    }
    for bad in ('{"c": "x"', '["x"]', "x", '{"c": "\\ud800"}', '{"unknown": "x"}'):
        table, _ = read_table(written(tmp_path, f'{{"c": 1}}\n\n{bad}\n', "x.jsonl"), schema=schema)
        assert table.to_pylist() == [dict.fromkeys(table.column_names) | {"c": c} for c in ("1", None)]
    with pytest.raises(TableError) as caught:
        read_table(written(tmp_path, b'{"c": "M\xfcller"}\n', "x.jsonl"), schema=schema)
    assert caught.value.line == 1


def test_many_json_lines_of_a_declared_schema(tmp_path: Path) -> None:
    text = "".join(f'{{"i": {i}}}\n' if i % 2 else f'{{"i": "{i}", "j": 1}}\n' for i in range(100_000))
    schema = Schema(columns=(Column(name="j", kind="real"), Column(name="i", kind="integer")))
    table, _ = read_table(written(tmp_path, text, "x.jsonl"), schema=schema)
    assert table.column("i").to_pylist() == list(range(100_000))
    assert table.column("j").null_count == 50_000


def test_types_of_a_parquet_file_are_kept_on_demand_and_spelling_is_declared(tmp_path: Path) -> None:
    types = [pa.int16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.date32(), pa.date32()]
    types += [pa.timestamp("ms", "Europe/Berlin"), pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.null()]
    types += [pa.string(), pa.int64()]
    empty = pa.schema(list(zip(TEXTS, types, strict=True))).empty_table()
    origins = []
    for num_nulls in (1, 3):
        table = pa.table([pa.nulls(num_nulls, t) for t in types], schema=empty.schema)
        pq.write_table(table, tmp_path / "x.parquet")
        plain = read_table(tmp_path / "x.parquet", schema=DECLARED)[1]
        assert {name: column.arrow for name, column in plain.columns.items()} == GIVEN_BACK
        assert from_frame(table, schema=DECLARED)[1].columns == plain.columns
        origins.append(read_table(tmp_path / "x.parquet", schema=DECLARED, keep_types=True)[1])
        assert from_frame(table, schema=DECLARED, keep_types=True)[1].columns == origins[-1].columns
    assert origins[0] == origins[1]
    assert [c.arrow for c in origins[0].columns.values()] == [
        *(str(t) for t in types[:-4]),
        "dictionary<values=string, indices=int32, ordered=0>",  # the width of the codes tells of the number of values
        *("int64", "int64"),  # nobody chose the type null: it is that of a column without values
    ]
    assert {name: column.style for name, column in origins[0].columns.items()} == spelling_of(DECLARED)
    fake = pa.table({"w": [True], "f": [dt.date(2020, 12, 31)], "p": [1.0]})
    assert restyle(fake, origins[0]).to_pylist() == [{"w": "ja", "f": dt.date(2020, 12, 31), "p": 1.0}]
    write_table(fake, tmp_path / "out.csv", origin=origins[0])
    assert (tmp_path / "out.csv").read_text() == "w,f,p\nja,31.12.2020,1.00\n"


def test_with_a_declared_schema_pandas_types_do_not_tell_of_missing_values() -> None:
    """pandas makes floats of integers and objects of booleans where one is missing, and objects of any mixture."""
    schema = Schema(
        columns=(
            Column(name="i", kind="integer"),
            Column(name="b", kind="boolean"),
            Column(name="n", kind="categorical", categories=(0, 1)),
            Column(name="o", kind="categorical"),
            Column(name="t", kind="datetime"),
            Column(name="c", kind="categorical"),
            Column(name="k", kind="id"),
        )
    )
    zoned = dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    objects = [(["a", "b"], ["x", "y"]), ([1, None], [zoned, None]), ([None, None], [None, None]), (["a", 1], ["x", 1])]
    origins = []
    for at, (o, t) in enumerate(objects):
        missing = at % 2
        frame = pd.DataFrame(
            {
                "i": [1, None if missing else 2],
                "b": [True, None if missing else False],
                "n": [1, None if missing else 0],
                "o": pd.Series(o, dtype=object),
                "t": pd.Series(t, dtype=object),
                "c": pd.Categorical.from_codes([0, 1], categories=[str(i) for i in range([5, 500][missing])]),
                "k": pd.Series(o, dtype=object),
            }
        )
        table, origin = from_frame(frame, schema=schema)
        origins.append(origin)
        assert [str(table.schema.field(name).type) for name in "ibnot"] == [
            *("int64", "bool", "int64", "string", "timestamp[us]")
        ]
    assert all(origin == origins[0] for origin in origins)
    fake = pa.table({"i": [3, 4], "b": [True, False], "n": [1, 0], "o": ["a", "b"], "k": [1, 2]})
    assert to_pandas(fake, origins[1]).dtypes.astype(str).to_dict() == {
        **{"i": "int64", "b": "bool", "n": "int64", "o": str(pd.Series(["a"]).dtype), "k": "int64"}
    }


def test_a_text_column_comes_back_as_text_in_its_declared_spelling() -> None:
    schema = Schema(
        columns=(Column(name="w", kind="boolean", format="no/yes"), Column(name="d", kind="date", format="%d.%m.%Y"))
    )
    frame = pl.DataFrame({"w": ["yes", "No"], "d": ["31.12.2020", "x"]})
    table, origin = from_frame(frame, schema=schema, keep_types=True)
    assert table.to_pydict() == {"w": [True, None], "d": [dt.date(2020, 12, 31), None]}
    back = to_frame(pa.table({"w": [False, True], "d": [dt.date(2020, 1, 2), None]}), origin)
    assert isinstance(back, pl.DataFrame)
    assert back.to_dict(as_series=False) == {"w": ["no", "yes"], "d": ["02.01.2020", None]}


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TableError):
        read_table(tmp_path / "none.csv")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TableError):
        read_table(tmp_path)


def test_empty_files(tmp_path: Path) -> None:
    assert "is empty (0 bytes)" in str(refuse(tmp_path, ""))
    assert "has no header line" in str(refuse(tmp_path, "\n\n"))


@pytest.mark.parametrize("text", ["a,b\n", "a,b", "a,b\n\n\n"])
def test_header_only(tmp_path: Path, text: str) -> None:
    error = refuse(tmp_path, text)
    assert error.column == "a"
    assert "has no rows, so the kinds of these columns cannot be inferred: 'a', 'b'." in str(error)
    schema = Schema(columns=(Column(name="a", kind="integer"), Column(name="b", kind="categorical")))
    for drafted in (True, False):
        table, _ = read_table(tmp_path / "people.csv", schema=dataclasses.replace(schema, drafted=drafted))
        assert table.to_pydict() == {"a": [], "b": []}


def test_ragged_lines_are_counted_as_an_editor_counts(tmp_path: Path) -> None:
    error = refuse(tmp_path, f'a,b\n1,"x\ny"\n{CANARY},4,5\n')
    assert error.line == 4
    assert "line 4: expected 2 fields as in the header, found 3" in str(error)
    assert refuse(tmp_path, f"a,b\n1,2\n{CANARY}\n").line == 3


def test_an_unclosed_quote(tmp_path: Path) -> None:
    assert "never closed" in str(refuse(tmp_path, f'a,b\n1,"{CANARY}\n3,4\n'))
    assert read_csv(tmp_path, 'a,b\n1,"2\n3"').to_pylist() == [{"a": 1, "b": "2\n3"}]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r"])
@pytest.mark.parametrize("head", ["x", "w,x"])
def test_the_last_field_may_be_quoted(tmp_path: Path, head: str, end: str) -> None:
    """Whatever it ends in: well-formed files are read, and those that end inside a quote refused."""
    names = head.split(",")
    schema = Schema(columns=tuple(Column(name=name, kind="categorical") for name in names))
    for pieces in itertools.product(['"', "\n", "\r", "\r\n", "a", ""], repeat=2):
        text = "".join(pieces)
        row = ",".join(["1"] * (len(names) - 1) + [f'"{text.replace(chr(34), chr(34) * 2)}'])
        path = written(tmp_path, f'{head}{end or chr(10)}{row}"{end}'.encode(), "x.csv")
        assert read_table(path, schema=schema)[0].column("x").to_pylist() == [text or None]
        path = written(tmp_path, gzip.compress(f"{head}{end or chr(10)}{row}{end}".encode()), "x.csv.gz")
        with pytest.raises(TableError, match="never closed"):
            read_table(path, schema=schema)


def test_not_utf8(tmp_path: Path) -> None:
    error = refuse(tmp_path, b"a,b\n1,2\n" + CANARY.encode() + b",M\xfcller\n")
    assert error.line == 3
    assert "not UTF-8 (line 3, byte 27). Give its encoding, often --encoding cp1252" in str(error)
    assert "is UTF-16, expected UTF-8. Give --encoding utf-16" in str(refuse(tmp_path, "a,b\n1,2".encode("utf-16")))
    assert "not UTF-8 (line 1, byte 0)" in str(refuse(tmp_path, b"\xffa,b\n1,2\n"))


def test_duplicate_and_missing_names(tmp_path: Path) -> None:
    assert "columns 1 and 3. Rename all but one. If the file has no header" in str(refuse(tmp_path, "a,b,a\n1,2,3\n"))
    assert "Column 1 of" in str(refuse(tmp_path, ",b\n1,2\n"))


def test_unknown_ending(tmp_path: Path) -> None:
    message = str(refuse(tmp_path, "a\n1\n", "people.docx"))
    assert "ends in .docx" in message
    assert ".parquet" in message


@pytest.mark.parametrize("name", ["x.parquet", "x.feather", "x.arrow", "x.sqlite", "x.duckdb", "x.csv.gz"])
def test_damaged_files(tmp_path: Path, name: str) -> None:
    assert "cannot be read as" in str(refuse(tmp_path, f"PAR1{CANARY}" * 50, name))


def test_a_cut_parquet_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": list(range(10_000))}), tmp_path / "whole.parquet")
    assert "damaged" in str(refuse(tmp_path, (tmp_path / "whole.parquet").read_bytes()[:2000], "cut.parquet"))


def test_bad_json_lines(tmp_path: Path) -> None:
    error = refuse(tmp_path, f'{{"a":1}}\n{{"a":"{CANARY}"}}\n', "x.jsonl")
    assert error.column == "a"
    assert "column 'a' holds both number and string" in str(error)
    assert refuse(tmp_path, f'{{"a":1}}\n{{"a":"{CANARY}\n', "x.jsonl").line == 2


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", f"x,y\n1,2\n{CANARY},3,4\n"),
        ("a.csv", f"x,y\n1,{CANARY}\n\xe9,2\n".encode("latin-1")),
        ("a.csv", f'x,y\n1,2\n"{CANARY},3\n'),
        ("a.parquet", f"PAR1{CANARY}PAR1"),
    ],
    ids=["too many fields", "another encoding", "an open quote", "damaged Parquet"],
)
@pytest.mark.parametrize("declared", [True, False])
def test_an_error_carries_no_row_however_deep(
    tmp_path: Path, name: str, content: "str | bytes", declared: bool
) -> None:
    """The errors of readers quote rows, and `from None` would leave them in `__context__`."""
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    schema = Schema(columns=tuple(Column(name=column, kind="integer") for column in "xy")) if declared else None

    with pytest.raises(TableError) as caught:
        read_table(path, schema=schema)
    errors: list[BaseException | None] = [caught.value]
    while (error := errors.pop()) is not None:
        assert CANARY not in str(error) + repr(vars(error)) + repr(error.args)
        errors += [None, *filter(None, (error.__context__, error.__cause__))]
