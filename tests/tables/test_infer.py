"""Types of text columns, inferred from their values."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import scaled
from tests.tables.table_examples import column_of, read_csv, written
from understudy.tables import (
    read_table,
    write_table,
)
from understudy.tables.text_types import TextInference, without_null_words


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


WRITTEN = (
    *("1", "-2", "0", "1.5", "1e999", "-1e-999", ".5", "5.", "inf", "-Infinity", "1,5", "1.234,5", "9" * 30),
    *("true", "false", "NA", "", "2020-01-01", "2020-02-29", "31.12.1999", "1/2/2020", "2020-01-01T10:00:00Z"),
    *("2020-01-01 10:00:00.125", "2020-01-01T10:00:00+01:00", "2020-01-01T10:00:00+0230", "0001-01-01", "9999-12-31"),
)


@settings(max_examples=scaled(80), deadline=None)
@given(
    texts=st.lists(st.one_of(st.text("0123456789.,-+eEinfINF :/TZ", max_size=9), st.sampled_from(WRITTEN)), min_size=1),
    num_parts=st.integers(1, 3),
    decimal=st.sampled_from([None, ".", ","]),
)
def test_what_a_rule_admits_it_reads(texts: list[str], num_parts: int, decimal: str | None) -> None:
    """A later pass, after a charge, converts what the first has only inferred: it must not fail, and lose no value."""
    parts = [pa.array(texts[at::num_parts], pa.string()) for at in range(num_parts)]
    inference = TextInference(decimal=decimal)
    for part in parts:
        inference.add(part)
    found = inference.found()
    for part in parts if found is not None else ():
        assert found is not None
        assert found.read(part).null_count == without_null_words(part).null_count
