"""Frames, text files, binary files and conditions: what goes in comes out, and what cannot is said in one line."""

import contextlib
import dataclasses
import datetime as dt
import gzip
import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from understudy.errors import ConditionError, SchemaError, TableError
from understudy.schema import Column, Schema
from understudy.tables import (
    Origin,
    atomic_folder,
    atomic_write,
    check_writable,
    conform,
    filter_where,
    from_frame,
    read_table,
    restyle,
    to_frame,
    where_columns,
    write_table,
)

CANARY = "Canary-Zebra-4711"


def written(folder: Path, content: str | bytes, name: str = "people.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read_csv(folder: Path, content: str | bytes, name: str = "people.csv") -> pa.Table:
    return read_table(written(folder, content, name))[0]


def column_of(folder: Path, *values: str) -> pa.ChunkedArray:
    """One column of a CSV with these texts; a second column keeps the lines from being empty."""
    return read_csv(folder, "x,y\n" + "".join(f"{value},1\n" for value in values)).column("x")


def to_pandas(table: pa.Table, origin: Origin) -> pd.DataFrame:
    frame = to_frame(table, origin)
    assert isinstance(frame, pd.DataFrame)
    return frame


def refusal(folder: Path, content: str | bytes, name: str = "people.csv") -> str:
    with pytest.raises(TableError) as caught:
        read_csv(folder, content, name)
    message = str(caught.value)
    assert "\n" not in message
    assert CANARY not in message
    return message


# ------------------------------------------------------------------------------------------------ kinds found in text


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "-20", "0"], pa.int64()),
        (["9007199254740993", "-9223372036854775808"], pa.int64()),
        (["1", "NA", "?", "", "null", "None"], pa.int64()),
        ([" 1", "2 "], pa.int64()),
        (["007", "12"], pa.string()),
        (["+5", "6"], pa.string()),
        (["99999999999999999999"], pa.string()),
        (["1", "2.5"], pa.float64()),
        (["1e-3", ".5", "5."], pa.float64()),
        (["inf", "-inf", "1.0"], pa.float64()),
        (["0x1F"], pa.string()),
        (["1_000"], pa.string()),
        (["01.5"], pa.string()),
        (["true", "false"], pa.bool_()),
        (["TRUE", "FALSE", ""], pa.bool_()),
        (["true", "False"], pa.string()),
        (["yes", "no"], pa.string()),
        (["2020-02-29", "1999-12-31"], pa.date32()),
        (["2021-02-29"], pa.string()),
        (["31.12.1999"], pa.date32()),
        (["13/02/2020", "01/02/2020"], pa.date32()),
        (["01/02/2020", "03/04/2020"], pa.string()),
        (["2020-01-01 10:00"], pa.timestamp("us")),
        (["2020-01-01T10:00:00.125"], pa.timestamp("us")),
        (["2020-01-01T10:00:00Z"], pa.timestamp("us", "UTC")),
        (["2020-01-01T10:00:00+01:00"], pa.timestamp("us", "+01:00")),
        (["2020-01-01T10:00:00+01:00", "2020-07-01T10:00:00+02:00"], pa.timestamp("us", "UTC")),
        (["?", "Private"], pa.string()),
        (["", ""], pa.string()),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else str(value),
)
def test_kinds_are_found_by_fixed_rules(tmp_path: Path, texts: list[str], expected: pa.DataType) -> None:
    assert column_of(tmp_path, *texts).type == expected


def test_big_integers_stay_exact(tmp_path: Path) -> None:
    assert column_of(tmp_path, "9007199254740993", "").to_pylist() == [9007199254740993, None]


def test_of_texts_only_the_empty_field_is_null(tmp_path: Path) -> None:
    assert column_of(tmp_path, "?", "NA", "", "Private").to_pylist() == ["?", "NA", None, "Private"]


def test_of_day_and_month_the_only_possible_order_is_taken(tmp_path: Path) -> None:
    field = read_csv(tmp_path, "x,y\n12/31/2020,1\n01/02/2020,1\n").schema.field("x")
    assert field.metadata[b"format"] == b"%m/%d/%Y"
    assert column_of(tmp_path, "12/31/2020", "01/02/2020").to_pylist()[1] == dt.date(2020, 1, 2)


def test_other_delimiters_are_seen_in_the_header(tmp_path: Path) -> None:
    table, origin = read_table(written(tmp_path, "age;job\n30;a,b\n"))
    assert table.to_pylist() == [{"age": 30, "job": "a,b"}]
    write_table(table, tmp_path / "out.csv", origin=origin)
    assert (tmp_path / "out.csv").read_text() == "age;job\n30;a,b\n"


def test_quotes_line_breaks_and_byte_order_mark(tmp_path: Path) -> None:
    table = read_csv(tmp_path, '\ufeffa,b\r\n"x\ny","say ""hi"""\r\n')
    assert table.to_pylist() == [{"a": "x\ny", "b": 'say "hi"'}]


def test_one_row_is_enough(tmp_path: Path) -> None:
    assert read_csv(tmp_path, "a\n5").to_pylist() == [{"a": 5}]


def test_an_empty_line_of_a_single_column_is_a_null(tmp_path: Path) -> None:
    assert read_csv(tmp_path, "a\n5\n\n7\n").column("a").to_pylist() == [5, None, 7]


# ------------------------------------------------------------------------------------------------- with a schema


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


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows_of_texts, st.sampled_from(["x.csv", "x.jsonl"]))
def test_with_a_declared_schema_no_value_reaches_the_origin(
    tmp_path: Path, rows: list[dict[str, str | None]], name: str
) -> None:
    text = as_csv(rows) if name == "x.csv" else as_json_lines(rows)
    table, origin = read_table(written(tmp_path, text, name), schema=DECLARED)
    assert {name: column.arrow for name, column in origin.columns.items()} == GIVEN_BACK
    assert {name: column.style for name, column in origin.columns.items()} == spelling_of(DECLARED)
    assert {field.name: str(field.type) for field in table.schema} == DECLARED_TYPES
    assert list(origin.to_dict()["columns"]) == list(GIVEN_BACK)  # type: ignore[call-overload]


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
    with pytest.raises(TableError, match="not UTF-8"):
        read_table(written(tmp_path, b'{"c": "M\xfcller"}\n', "x.jsonl"), schema=schema)


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


def test_zoned_bounds_make_zoned_datetimes() -> None:
    lo, hi = dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2021, 1, 1, tzinfo=dt.UTC)
    schema = Schema(columns=(Column(name="t", kind="datetime", bounds=(lo, hi)),))
    table = conform(pa.table({"t": ["2020-06-01T10:00:00+02:00", "2020-06-01 10:00"]}), schema)
    assert table.schema.field("t").type == pa.timestamp("us", "UTC")
    assert [t.hour for t in table.column("t").to_pylist()] == [8, 10]


def test_conform_retypes_typed_columns() -> None:
    schema = Schema(
        columns=(
            Column(name="i", kind="integer"),
            Column(name="b", kind="boolean"),
            Column(name="r", kind="real"),
            Column(name="d", kind="date"),
            Column(name="c", kind="categorical", categories=("1", "2")),
        )
    )
    table = pa.table(
        {
            "i": [1.4, float("inf"), None],
            "b": [0, 1, None],
            "r": pa.array([1, 2, None]).cast(pa.decimal128(20, 1)),
            "d": pa.array([dt.datetime(2020, 1, 1, 23)] * 3, pa.timestamp("ns")),
            "c": [1, 2, None],
        }
    )
    assert conform(table, schema).to_pydict() == {
        "i": [1, 2**63 - 1, None],
        "b": [False, True, None],
        "r": [1.0, 2.0, None],
        "d": [dt.date(2020, 1, 1)] * 3,
        "c": ["1", "2", None],
    }


def test_a_type_that_no_rule_reads_is_an_error_of_a_drafted_schema_only() -> None:
    """What made the table may have chosen the type by the values, so with a declared schema it makes no refusal."""
    table, columns = pa.table({"x": [dt.date(2020, 1, 1)]}), (Column(name="x", kind="integer"),)
    with pytest.raises(SchemaError, match="'x' is declared 'integer', and the table holds date32"):
        conform(table, Schema(columns=columns, drafted=True))
    assert conform(table, Schema(columns=columns)) == pa.table({"x": pa.nulls(1, pa.int64())})


def test_an_unknown_format_is_a_schema_error() -> None:
    schema = Schema(columns=(Column(name="x", kind="date", format="%Q"),))
    with pytest.raises(SchemaError, match="not one that strptime knows"):
        conform(pa.table({"x": ["2020"]}), schema)
    with pytest.raises(SchemaError, match="not one that strptime knows"):
        conform(pa.table({"x": [dt.date(2020, 1, 1)]}), schema)  # it would fail in writing, after the budget is spent


# --------------------------------------------------------------------------------------------------- bad files


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"none\.csv does not exist"):
        read_table(tmp_path / "none.csv")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="is a folder, expected a file"):
        read_table(tmp_path)


def test_empty_files(tmp_path: Path) -> None:
    assert "is empty (0 bytes)" in refusal(tmp_path, "")
    assert "has no header line" in refusal(tmp_path, "\n\n")


@pytest.mark.parametrize("text", ["a,b\n", "a,b", "a,b\n\n\n"])
def test_header_only(tmp_path: Path, text: str) -> None:
    assert "has columns but no rows, so the kinds of its columns cannot be found" in refusal(tmp_path, text)
    schema = Schema(columns=(Column(name="a", kind="integer"), Column(name="b", kind="categorical")))
    for drafted in (True, False):
        table, _ = read_table(tmp_path / "people.csv", schema=dataclasses.replace(schema, drafted=drafted))
        assert table.to_pydict() == {"a": [], "b": []}


def test_ragged_lines_are_counted_as_an_editor_counts(tmp_path: Path) -> None:
    message = refusal(tmp_path, f'a,b\n1,"x\ny"\n{CANARY},4,5\n')
    assert "line 4: expected 2 fields as in the header, found 3" in message
    assert "line 3: expected 2 fields as in the header, found 1" in refusal(tmp_path, f"a,b\n1,2\n{CANARY}\n")


def test_an_unclosed_quote(tmp_path: Path) -> None:
    assert "never closed" in refusal(tmp_path, f'a,b\n1,"{CANARY}\n3,4\n')
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
    message = refusal(tmp_path, b"a,b\n1,2\n" + CANARY.encode() + b",M\xfcller\n")
    assert "not UTF-8 (line 3, byte 27)" in message
    assert "iconv" in message
    assert "is UTF-16" in refusal(tmp_path, "a,b\n1,2".encode("utf-16"))
    assert "not UTF-8 (line 1, byte 0)" in refusal(tmp_path, b"\xffa,b\n1,2\n")


def test_duplicate_and_missing_names(tmp_path: Path) -> None:
    assert "duplicate column names: 'a'. Rename" in refusal(tmp_path, "a,b,a\n1,2,3\n")
    assert "Column 1 of" in refusal(tmp_path, ",b\n1,2\n")


def test_unknown_ending(tmp_path: Path) -> None:
    message = refusal(tmp_path, "a\n1\n", "people.xlsx")
    assert "ends in .xlsx" in message
    assert ".parquet" in message


@pytest.mark.parametrize("name", ["x.parquet", "x.feather", "x.arrow", "x.sqlite", "x.duckdb", "x.csv.gz"])
def test_damaged_files(tmp_path: Path, name: str) -> None:
    assert "cannot be read as" in refusal(tmp_path, f"PAR1{CANARY}" * 50, name)


def test_a_cut_parquet_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": list(range(10_000))}), tmp_path / "whole.parquet")
    assert "damaged" in refusal(tmp_path, (tmp_path / "whole.parquet").read_bytes()[:2000], "cut.parquet")


def test_bad_json_lines(tmp_path: Path) -> None:
    assert "column 'a' holds both number and string" in refusal(tmp_path, f'{{"a":1}}\n{{"a":"{CANARY}"}}\n', "x.jsonl")
    assert "line 2 is not a JSON object" in refusal(tmp_path, f'{{"a":1}}\n{{"a":"{CANARY}\n', "x.jsonl")


# ------------------------------------------------------------------------------------------- files, there and back

STYLED = (
    "n,r,v,zip,flag,day,us,moment,stamp,offset,job\n"
    "1,1.50,1.5,007,True,2020-01-01,12/31/2020,2020-01-01T10:00:00Z,2020-01-01 10:00:00.123,"
    '2020-01-01T10:00:00+01:00,"a,""b"\n'
    "9007199254740993,-0.25,2,012,False,2020-01-02,01/02/2020,2020-06-01T10:00:00Z,2020-01-01 10:00:00.120,"
    "2020-06-01T10:00:00+01:00,?\n"
    ",,,1,,,,,,,x\n"
)


def test_csv_comes_back_to_the_byte(tmp_path: Path) -> None:
    table, origin = read_table(written(tmp_path, STYLED))
    bare = pa.table(table.columns, names=table.column_names)  # what a codec decodes has no metadata
    origin = Origin.from_dict(json.loads(json.dumps(origin.to_dict())))
    write_table(bare, tmp_path / "out.csv", origin=origin)
    assert (tmp_path / "out.csv").read_text() == STYLED


@pytest.mark.parametrize(
    "name", ["x.csv", "x.tsv", "x.csv.gz", "x.csv.zst", "x.parquet", "x.feather", "x.arrow", "x.jsonl", "x.ndjson.gz"]
)
def test_every_file_format_gives_back_what_was_written(tmp_path: Path, name: str) -> None:
    table, origin = read_table(written(tmp_path, STYLED))
    write_table(table, tmp_path / name, origin=origin)
    back, again = read_table(tmp_path / name)
    assert back.equals(table)
    assert [again.columns[c].arrow for c in table.column_names] == [origin.columns[c].arrow for c in table.column_names]


def test_compressed_files_are_compressed(tmp_path: Path) -> None:
    write_table(pa.table({"a": [1, 2]}), tmp_path / "x.csv.gz")
    assert gzip.decompress((tmp_path / "x.csv.gz").read_bytes()) == b"a\n1\n2\n"
    with pytest.raises(TableError, match="only text files"):
        write_table(pa.table({"a": [1]}), tmp_path / "x.parquet.gz")


def test_synthetic_reals_get_the_decimals_of_the_original(tmp_path: Path) -> None:
    _, origin = read_table(written(tmp_path, "x,y\n1.50,0.5\n2.25,2\n"))
    write_table(pa.table({"x": [1.23456, -0.001], "y": [0.66, 3.0]}), tmp_path / "out.csv", origin=origin)
    assert (tmp_path / "out.csv").read_text() == "x,y\n1.23,0.7\n0.00,3\n"


def test_unpadded_dates_stay_unpadded(tmp_path: Path) -> None:
    table, origin = read_table(written(tmp_path, "x,y\n1/31/2020,1\n12/2/2020,1\n"))
    write_table(table, tmp_path / "out.csv", origin=origin)
    assert (tmp_path / "out.csv").read_text() == "x,y\n1/31/2020,1\n12/2/2020,1\n"


def test_names_that_differ_by_case(tmp_path: Path) -> None:
    table = pa.table({"A": [1], "a": [2]})
    write_table(table, tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text() == "A,a\n1,2\n"
    with pytest.raises(TableError, match="differ only by case: 'A', 'a'"):
        write_table(table, tmp_path / "x.jsonl")


def test_a_long_csv_keeps_its_order(tmp_path: Path) -> None:
    write_table(pa.table({"i": np.arange(300_000), "z": np.arange(300_000) % 7}), tmp_path / "x.csv")
    assert np.array_equal(read_table(tmp_path / "x.csv")[0].column("i").to_numpy(), np.arange(300_000))


def test_nan_is_null_everywhere_inside(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0, float("nan"), None]}), tmp_path / "x.parquet")
    assert read_table(tmp_path / "x.parquet")[0].column("x").to_pylist() == [1.0, None, None]
    assert from_frame(pl.DataFrame({"x": [1.0, float("nan")]}))[0].column("x").null_count == 1


def test_parquet_keeps_arrow_types(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([1, None], pa.int16()),
            "u": pa.array([2**64 - 1, 0], pa.uint64()),
            "s": pa.array(["a", "b"], pa.large_string()),
            "c": pa.array(["x", "y"]).dictionary_encode(),
            "t": pa.array([0, 1], pa.timestamp("ms", "Europe/Berlin")),
            "d": pa.array([1, 2]).cast(pa.decimal128(24, 3)),
            "f": pa.array([1.0, 2.0], pa.float32()),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    inside, origin = read_table(tmp_path / "x.parquet")
    assert inside.schema.field("s").type == pa.string()
    write_table(inside, tmp_path / "y.parquet", origin=origin)
    assert pq.read_table(tmp_path / "y.parquet").equals(table)


# ---------------------------------------------------------------------------------------------------------- frames


def pandas_frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "int64": [1, 2],
            "int8": pd.Series([1, 2], dtype="int8"),
            "uint64": pd.Series([2**64 - 1, 2], dtype="uint64"),
            "bool": [True, False],
            "float": [1.5, float("nan")],
            "float32": pd.Series([1, 2], dtype="float32"),
            "object": pd.Series(["a", None], dtype=object),
            "str": ["a", "b"],
            "string": pd.Series(["a", None], dtype="string"),
            "category": pd.Categorical(["x", None]),
            "ordered": pd.Categorical([3, 1], categories=[1, 3], ordered=True),
            "Int64": pd.Series([9007199254740993, None], dtype="Int64"),
            "Float64": pd.Series([1.5, None], dtype="Float64"),
            "boolean": pd.Series([True, None], dtype="boolean"),
            "zoned": pd.date_range("2020", periods=2, tz="Europe/Berlin"),
            "nanoseconds": pd.date_range("2020", periods=2).astype("datetime64[ns]"),
            "seconds": pd.date_range("2020", periods=2).astype("datetime64[s]"),
            "dates": [dt.date(2020, 1, 1), None],
            "arrow_int": pd.Series([1, None], dtype=pd.ArrowDtype(pa.int32())),
            "arrow_decimal": pd.Series([1, 2], dtype=pd.ArrowDtype(pa.decimal128(5, 2))),
            "arrow_string": pd.Series(["a", "b"], dtype=pd.ArrowDtype(pa.string())),
            "arrow_dictionary": pd.Series(["a", "b"], dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))),
        }
    )


def polars_frame() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "enum": pl.Series(["a", "b"], dtype=pl.Enum(["b", "a", "z"])),
            "categorical": pl.Series(["a", None], dtype=pl.Categorical),
            "string": ["a", "b"],
            "date": [dt.date(2020, 1, 1), None],
            "zoned": pl.Series([dt.datetime(2020, 1, 1)] * 2, dtype=pl.Datetime("ms", "Europe/Berlin")),
            "decimal": pl.Series(["1.23", "2.34"]).cast(pl.Decimal(10, 2)),
            "uint8": pl.Series([1, None], dtype=pl.UInt8),
            "big": [2**53 + 1, 0],
            "bool": [True, None],
            "float32": pl.Series([1.5, 2.5], dtype=pl.Float32),
        }
    )


def test_pandas_in_pandas_out() -> None:
    frame = pandas_frame()
    table, origin = from_frame(frame)
    pd.testing.assert_frame_equal(to_frame(table, Origin.from_dict(origin.to_dict())), frame)


def test_polars_in_polars_out() -> None:
    frame = polars_frame()
    for given_frame in (frame, frame.lazy()):
        table, origin = from_frame(given_frame)
        back = to_frame(table, origin)
        assert isinstance(back, pl.DataFrame)
        assert back.schema == frame.schema
        assert back.equals(frame)


def test_arrow_in_arrow_out() -> None:
    table = pa.table(
        {
            "d": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["x", "y"], pa.large_string())),
            "v": pa.array(["a", None], pa.string_view()),
            "t": pa.array([0, None], pa.timestamp("s", "UTC")),
            "e": pa.array([dt.date(2020, 1, 1), None], pa.date64()),
            "h": pa.array([1, 2], pa.float16()),
        }
    )
    inside, origin = from_frame(table)
    assert inside.schema.field("v").type == pa.string()
    back = to_frame(inside, origin)
    assert isinstance(back, pa.Table)
    wide = pa.dictionary(pa.int32(), pa.large_string())
    assert back.equals(table.set_column(0, "d", table.column("d").cast(wide)))
    assert from_frame(table.to_batches()[0])[1] == origin


def test_numbers_that_meet_nulls_become_nullable() -> None:
    _, origin = from_frame(pd.DataFrame({"i": [1], "u": pd.Series([1], dtype="uint8"), "b": [True], "f": [1.0]}))
    fake = pa.table({"i": [5, None], "u": [6, None], "b": [False, None], "f": [0.5, None]})
    assert to_pandas(fake, origin).dtypes.astype(str).to_dict() == {
        "i": "Int64",
        "u": "UInt8",
        "b": "boolean",
        "f": "float64",
    }


def test_categories_come_from_the_synthetic_table_alone() -> None:
    """The private frame's categories must not reach the output, nor the origin that lies in a release."""
    for frame in (
        pd.DataFrame({"c": pd.Categorical([CANARY, "x"])}),
        pl.DataFrame({"c": pl.Series([CANARY, "x"], dtype=pl.Enum([CANARY, "x"]))}),
        pl.DataFrame({"c": pl.Series([CANARY, "x"], dtype=pl.Categorical)}),
        pa.table({"c": pa.array([CANARY, "x"]).dictionary_encode()}),
    ):
        table, origin = from_frame(frame)
        assert CANARY not in json.dumps(origin.to_dict())
        assert CANARY not in str(table.schema)
        declared = pa.DictionaryArray.from_arrays(pa.array([1, 1], pa.int32()), pa.array(["other", "x", "rare"]))
        back = to_frame(pa.table({"c": declared}), origin)
        if isinstance(back, pd.DataFrame):
            assert list(back["c"].cat.categories) == ["other", "x", "rare"]
        elif isinstance(back, pl.DataFrame) and isinstance(back.schema["c"], pl.Enum):
            assert back.schema["c"].categories.to_list() == ["other", "x", "rare"]
        assert CANARY not in str(back)
        plain = to_frame(pa.table({"c": ["y", "x", None]}), origin)  # no dictionary: its own values, sorted
        if isinstance(plain, pd.DataFrame):
            assert list(plain["c"].cat.categories) == ["x", "y"]


def test_values_too_large_for_a_type_keep_a_wider_one() -> None:
    _, origin = from_frame(pd.DataFrame({"i": pd.Series([1], dtype="int8")}))
    assert to_pandas(pa.table({"i": [1000]}), origin)["i"].tolist() == [1000]


def test_columns_may_be_missing_or_new() -> None:
    _, origin = from_frame(pd.DataFrame({"a": [1], "b": ["x"]}))
    assert to_pandas(pa.table({"b": ["y"], "new": [1.5]}), origin).to_dict("list") == {"b": ["y"], "new": [1.5]}


def test_mixed_objects_become_text() -> None:
    table, _ = from_frame(pd.DataFrame({"x": pd.Series(["a", 1, None], dtype=object)}))
    assert table.column("x").to_pylist() == ["a", "1", None]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (3, "found builtins.int"),
        ("people.csv", "Read files with read_table"),
        ({"a": [1]}, "found builtins.dict"),
        (np.zeros((2, 2)), "found numpy.ndarray"),
        (pd.Series([1]), "Expected a pandas, polars or pyarrow table"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "duplicate column names: 'a'"),
        (pa.table([[1], [2]], names=["a", "a"]), "duplicate column names: 'a'"),
        (pd.DataFrame([[1, 2]]), "Column names must be texts, found int"),
        (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), "MultiIndex"),
        (pd.DataFrame({"a": [1]}, index=pd.Index([5], name="id")), "reset_index"),
        (pd.DataFrame({"a": [1]}, index=pd.MultiIndex.from_tuples([(1, 2)])), "reset_index"),
        (pd.DataFrame({"a": [1j]}), "'a' has dtype complex128"),
        (pd.DataFrame({"a": pd.period_range("2020", periods=1, freq="M")}), "not supported"),
        (pd.DataFrame({"a": pd.Series([], dtype=object)}), "no rows"),
        (pa.table({}), "no columns"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_table_is_refused(frame: object, message: str) -> None:
    with pytest.raises(TableError, match=message):
        from_frame(frame)


_CELLS: dict[str, st.SearchStrategy] = {
    "Int64": st.none() | st.integers(-(2**63), 2**63 - 1),
    "Int8": st.none() | st.integers(-128, 127),
    "Float64": st.none() | st.floats(allow_nan=False),
    "boolean": st.none() | st.booleans(),
    "string": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "category": st.none() | st.sampled_from(["x", "y", "\u00fc"]),
}


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 6))
def test_any_pandas_frame_comes_back(data: st.DataObject, num_rows: int) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(_CELLS)), min_size=1, max_size=4))
    frame = pd.DataFrame(
        {
            f"{kind}{i}": pd.Series(data.draw(st.lists(_CELLS[kind], min_size=num_rows, max_size=num_rows)), dtype=kind)
            for i, kind in enumerate(kinds)
        }
    )
    pd.testing.assert_frame_equal(to_frame(*from_frame(frame)), frame)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), min_size=1, max_size=8)
)
def test_any_text_survives_csv(tmp_path: Path, texts: list[str | None]) -> None:
    table = pa.table({"x": pa.array(texts, pa.string()), "y": range(len(texts))})
    write_table(table, tmp_path / "x.csv", force=True)
    schema = Schema(columns=(Column(name="x", kind="categorical"), Column(name="y", kind="integer")))
    assert read_table(tmp_path / "x.csv", schema=schema)[0].column("x").to_pylist() == texts


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6).filter(any),
    st.sampled_from(["x.csv", "x.jsonl", "x.parquet", "x.sqlite::t", "x.duckdb::t"]),
)
def test_any_integer_survives_any_format(tmp_path: Path, values: list[int | None], name: str) -> None:
    write_table(pa.table({"x": pa.array(values, pa.int64())}), str(tmp_path / name), force=True)
    assert read_table(str(tmp_path / name))[0].column("x").to_pylist() == values


def test_restyle_gives_back_types() -> None:
    _, origin = from_frame(pa.table({"i": pa.array([1], pa.int16()), "d": pa.array([1]).cast(pa.decimal128(20, 1))}))
    styled = restyle(pa.table({"i": [2.6], "d": [1.26]}), origin)
    assert styled.schema.types == [pa.int16(), pa.decimal128(20, 1)]
    assert [str(v) for v in styled.to_pylist()[0].values()] == ["3", "1.3"]


# ------------------------------------------------------------------------------------------- whole or not at all


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_existing_output_is_refused_without_force(tmp_path: Path) -> None:
    path = written(tmp_path, "old")
    for act in (lambda: check_writable(path), lambda: write_table(pa.table({"a": [1]}), path)):
        with pytest.raises(TableError, match=r"exists\. Choose another name, or replace it with --force"):
            act()
    assert path.read_text() == "old"
    write_table(pa.table({"a": [1]}), path, force=True)
    assert path.read_text() == "a\n1\n"
    assert leftovers(tmp_path) == ["people.csv"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_file_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    path = written(tmp_path, "old")
    with pytest.raises(error), atomic_write(path, force=True) as file:  # noqa: PT012
        file.write(b"half")
        raise error
    assert path.read_text() == "old"
    assert leftovers(tmp_path) == ["people.csv"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_folder_keeps_the_old_one(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "release"
    with atomic_folder(path) as inside:
        (inside / "release.json").write_text("old")
    with pytest.raises(TableError, match="exists"), atomic_folder(path):
        pass
    with pytest.raises(error), atomic_folder(path, force=True) as inside:  # noqa: PT012
        (inside / "release.json").write_text("new")
        raise error
    assert (path / "release.json").read_text() == "old"
    with atomic_folder(path, force=True, marker="release.json") as inside:
        (inside / "release.json").write_text("new")
    assert (path / "release.json").read_text() == "new"
    assert leftovers(tmp_path) == ["release"]


def test_force_does_not_remove_a_folder_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    written(tmp_path / "home", "precious")
    with (
        pytest.raises(TableError, match=r"not empty and has no release\.json"),
        atomic_folder(tmp_path / "home", force=True, marker="release.json"),
    ):
        pass
    assert leftovers(tmp_path / "home") == ["people.csv"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    written(tmp_path, "old", "target.csv")
    (tmp_path / "link.csv").symlink_to(tmp_path / "target.csv")
    write_table(pa.table({"a": [1]}), tmp_path / "link.csv", force=True)
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "target.csv").read_text() == "a\n1\n"


def test_bad_places_are_refused_before_any_budget_is_spent(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"does not exist, so x\.csv cannot be written"):
        check_writable(tmp_path / "none" / "x.csv")
    with pytest.raises(TableError, match="is not a folder"):
        check_writable(written(tmp_path, "x") / "x.csv")
    with pytest.raises(TableError, match="names no known format"):
        check_writable(tmp_path / "x.xlsx", table=True)
    with pytest.raises(TableError, match="only read"):
        check_writable("postgresql://me@host/db::people")
    with pytest.raises(TableError, match="Name the table to write"):
        check_writable(tmp_path / "x.duckdb", table=True)
    check_writable(tmp_path / "fake.release")


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Root may write anywhere, so for a moment be somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    for parent in [tmp_path, *tmp_path.parents][:4]:
        if parent.stat().st_uid == os.geteuid():
            parent.chmod(0o755)
    with unprivileged(), pytest.raises(TableError, match="may not be written by this user"):
        check_writable(folder / "x.csv")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs mount")
    if done.returncode:
        pytest.skip("needs the right to mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(
    "name", ["x.csv", "x.csv.gz", "x.parquet", "x.feather", "x.jsonl", "x.sqlite::t", "x.duckdb::t"]
)
def test_a_full_disk_leaves_nothing(tiny_disk: Path, name: str) -> None:
    noise = pa.table({"x": np.random.default_rng(0).integers(0, 2**60, 100_000)})
    with pytest.raises(TableError, match="the disk is full") as caught:
        write_table(noise, str(tiny_disk / name))
    assert "\n" not in str(caught.value)
    assert leftovers(tiny_disk) == []


def test_a_device_without_space() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    with pytest.raises(TableError, match=r"cannot be written|exists|may not"), atomic_write("/dev/full") as file:
        file.write(b"x")


# ------------------------------------------------------------------------------------------------------ conditions

PEOPLE = pa.table(
    {
        "age": [10, 20, None, 70],
        "sex": pa.array(["F", "M", "F", None]).dictionary_encode(),
        "income": [1.5, 2.5, 3.5, 4.5],
        "Born On": [dt.date(2000, 1, 1), dt.date(1990, 1, 1), None, dt.date(1950, 6, 1)],
        "ok": [True, False, None, True],
    }
)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("age > 15", [False, True, False, True]),
        ("AGE > 15", [False, True, False, True]),
        ("sex = 'F' AND income < 3", [True, False, False, False]),
        ("age IS NULL OR sex IS NULL", [False, False, True, True]),
        ("\"Born On\" < DATE '1980-01-01'", [False, False, False, True]),
        ("ok", [True, False, False, True]),
        ("NOT ok", [False, True, False, False]),
        ("lower(sex) LIKE 'f%'", [True, False, True, False]),
        ("income * 2 BETWEEN 4 AND 8", [False, True, True, False]),
        ("CASE WHEN age < 18 THEN true ELSE false END", [True, False, False, False]),
        ("1 = 1 -- always", [True, True, True, True]),
        ('year("Born On") IN (2000, 1950)', [True, False, False, True]),
    ],
)
def test_conditions_are_sql(expression: str, expected: list[bool]) -> None:
    assert filter_where(PEOPLE, expression).tolist() == expected


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("foo = 1", "no column 'foo'"),
        ('sex = "F"', "single quotes"),
        ("age", "expected a condition"),
        ("", "expected a condition|syntax error"),
        ("age =", "syntax error"),
        ("age = 'x'", "Could not convert"),
        ("age IN (SELECT 1)", "subquery is not allowed"),
        ("EXISTS (SELECT * FROM read_csv('/etc/passwd'))", "subquery is not allowed"),
        ("read_text('/etc/passwd') = ''", "read_text is not allowed"),
        ("random() < 0.5", "random is not allowed"),
        ("current_setting('threads') = '1'", "current_setting is not allowed"),
        ("count(*) > 1", "not allowed"),
        ("sum(age) OVER () > 1", "window is not allowed"),
        ("COLUMNS(*) = 1", "star is not allowed"),
        ("age = 1; DROP TABLE t", "syntax error|more than one"),
        ("age = 1); DROP TABLE t; SELECT (1", "Only SELECT"),
        ("age = 1); SELECT (1", "more than one"),
        ("age = 1) GROUP BY (age", "parentheses do not match"),
        ("age = 1) ORDER BY (age", "parentheses do not match"),
        ("age = 1) UNION SELECT (1", "more than one|Cannot use"),
        ("age = $1", "more than one|not allowed"),
    ],
)
def test_conditions_can_do_nothing_else(expression: str, reason: str) -> None:
    with pytest.raises(ConditionError, match=reason) as caught:
        filter_where(PEOPLE, expression)
    assert "\n" not in str(caught.value)


def test_a_bad_condition_names_the_columns() -> None:
    with pytest.raises(ConditionError, match="over the columns age, sex, income, Born On, ok"):
        where_columns("foo = 1", PEOPLE.column_names)


@pytest.mark.parametrize(
    ("expression", "operator", "constants"),
    [
        ("age = 5", "=", (5,)),
        ("5 < age", ">", (5,)),
        ("age <> -5", "<>", (-5,)),
        ("NOT age >= 5", "<", (5,)),
        ("age BETWEEN 1 AND 2", "between", (1, 2)),
        ("age NOT BETWEEN 1 AND 2", "not between", (1, 2)),
        ("sex IN ('F', 'M')", "in", ("F", "M")),
        ("sex NOT IN ('F')", "not in", ("F",)),
        ("sex IS NULL", "is null", ()),
        ("sex IS NOT NULL", "is not null", ()),
        ("income <= 1.5", "<=", (1.5,)),
        ("\"Born On\" >= DATE '2020-01-01'", ">=", (dt.date(2020, 1, 1),)),
        ("\"Born On\" < TIMESTAMP '2020-01-01 10:00:00'", "<", (dt.datetime(2020, 1, 1, 10),)),
        ("ok = true", "=", (True,)),
        ("age = NULL", None, ()),
        ("lower(sex) = 'f'", None, ()),
        ("ok", None, ()),
        ("age = 1 OR age = 2", None, ()),
    ],
)
def test_simple_parts_are_taken_apart(expression: str, operator: str | None, constants: tuple) -> None:
    (part,) = where_columns(expression, PEOPLE.column_names)
    assert (part.operator, part.constants) == (operator, constants)
    assert len(part.columns) == 1


def test_parts_together_are_the_condition() -> None:
    expression = "(age > 5 AND sex = 'F') AND income < age AND (ok OR ok IS NULL)"
    parts = where_columns(expression, PEOPLE.column_names)
    assert [part.columns for part in parts] == [("age",), ("sex",), ("income", "age"), ("ok",)]
    together = np.logical_and.reduce([filter_where(PEOPLE, part.sql) for part in parts])
    assert np.array_equal(together, filter_where(PEOPLE, expression))


def test_conditions_tell_columns_apart_that_differ_by_case() -> None:
    table = pa.table({"A": [1, 2], "a": [2, 1], "x.y": [3, 4]})
    assert filter_where(table, 'A = 1 AND a = 2 AND "x.y" = 3').tolist() == [True, False]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([2**31 - 1, 0, None], pa.int32()).cast(pa.date32()), "datetime", 3),
        (pa.array([b"a", b"\xff", None], pa.binary()), "categorical", 3),
        (pa.array([Decimal("1e30"), Decimal(2**60 + 1)], pa.decimal128(38, 0)), "integer", 2),
    ],
    ids=["extreme date", "not UTF-8", "huge decimal"],
)
def test_no_value_makes_conforming_fail_or_touches_its_neighbours(values: pa.Array, kind: str, expected: int) -> None:
    """An error over a value would be a query; and each value is read by itself."""
    categories = ("a",) if kind == "categorical" else None
    schema = Schema(columns=(Column(name="x", kind=kind, categories=categories),))
    together = conform(pa.table({"x": values}), schema).column("x")
    assert len(together) == expected
    for at in range(len(values)):
        alone = conform(pa.table({"x": values.slice(at, 1)}), schema).column("x")
        assert alone.equals(together.slice(at, 1))
