"""Data frames: the same library and types come back."""

import datetime as dt
import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import scaled
from tests.tables.table_examples import CANARY
from understudy.errors import TableError
from understudy.schema import Column, Schema
from understudy.tables import (
    Origin,
    from_frame,
    read_table,
    to_frame,
    write_table,
)


def to_pandas(table: pa.Table, origin: Origin) -> pd.DataFrame:
    frame = to_frame(table, origin)
    assert isinstance(frame, pd.DataFrame)
    return frame


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
    common = {"d": pa.dictionary(pa.int32(), pa.large_string()), "v": pa.string(), "e": pa.date32(), "h": pa.float32()}
    assert back.equals(table.cast(pa.schema([f.with_type(common.get(f.name, f.type)) for f in table.schema])))
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
        (pd.DataFrame([[1, 2]]), "Column names must be strings, found int"),
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


@settings(max_examples=scaled(40))
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


@settings(max_examples=scaled(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), min_size=1, max_size=8)
)
def test_any_text_survives_csv(tmp_path: Path, texts: list[str | None]) -> None:
    table = pa.table({"x": pa.array(texts, pa.string()), "y": range(len(texts))})
    write_table(table, tmp_path / "x.csv", force=True)
    schema = Schema(columns=(Column(name="x", kind="categorical"), Column(name="y", kind="integer")))
    assert read_table(tmp_path / "x.csv", schema=schema)[0].column("x").to_pylist() == texts


@settings(max_examples=scaled(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6).filter(any),
    st.sampled_from(["x.csv", "x.jsonl", "x.parquet", "x.sqlite::t", "x.duckdb::t"]),
)
def test_any_integer_survives_any_format(tmp_path: Path, values: list[int | None], name: str) -> None:
    write_table(pa.table({"x": pa.array(values, pa.int64())}), str(tmp_path / name), force=True)
    assert read_table(str(tmp_path / name))[0].column("x").to_pylist() == values
