"""With a declared schema reading is row by row: one more row changes no other, nor the origin, and makes no error."""

import contextlib
import csv
import datetime as dt
import io
import json
import sqlite3
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path

import duckdb
import jax
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import understudy as us
from tests.builders import raises
from understudy.encoding import CategoricalCodec, Codec, NumericCodec
from understudy.errors import SchemaError, TableError
from understudy.privacy.rows.units import rows_within_units
from understudy.rules.sql import connect, sandbox
from understudy.schema import Column, Schema
from understudy.schema.grid import Grid, Histogram
from understudy.tables import Origin, ReadOptions, conform, from_frame, read_table, to_frame, write_table

Read = Callable[..., tuple[pa.Table, Origin]]
CANARY = "Canary-Zebra-4711"
UTC = dt.UTC

COLUMNS = {
    "integer": Column(name="x", kind="integer", bounds=(0, 10)),
    "real": Column(name="x", kind="real", bounds=(0, 10)),
    "boolean": Column(name="x", kind="boolean"),
    "words": Column(name="x", kind="boolean", format="no/yes"),
    "date": Column(name="x", kind="date", bounds=(dt.date(2000, 1, 1), dt.date(2030, 1, 1))),
    "written date": Column(name="x", kind="date", format="%d.%m.%Y", bounds=(dt.date(2000, 1, 1), dt.date(2030, 1, 1))),
    "datetime": Column(name="x", kind="datetime", bounds=(dt.datetime(2000, 1, 1), dt.datetime(2030, 1, 1))),
    "zoned": Column(
        name="x",
        kind="datetime",
        bounds=(dt.datetime(2000, 1, 1, tzinfo=UTC), dt.datetime(2030, 1, 1, tzinfo=UTC)),
    ),
    "texts": Column(name="x", kind="categorical", categories=("0", "1", "1.5", "a", "True")),
    "integers": Column(name="x", kind="categorical", categories=(1, 2)),
    "reals": Column(name="x", kind="categorical", categories=(1.5, 2.0)),
    "truths": Column(name="x", kind="categorical", categories=(True, False)),
    "bought": Column(name="x", kind="categorical"),
    "missing": Column(name="x", kind="integer", bounds=(0, 10), missing=(2, "yes", "a")),
}
ALSO_UNMODELLED = {**COLUMNS, "id": Column(name="x", kind="id"), "text": Column(name="x", kind="text")}

BASES: dict[str, list] = {
    "integers": [1, 2, 0],
    "reals": [1.0, 1.5, 2.5],
    "whole reals": [1.0, 0.0],
    "truths": [True, False],
    "texts": ["1", "yes", "01.02.2020", "a", "True", "2.5"],
    "dates": [dt.date(2020, 1, 1), dt.date(2021, 1, 1)],
    "moments": [dt.datetime(2020, 1, 1, 10), dt.datetime(2021, 1, 1)],
    "zoned": [dt.datetime(2020, 1, 1, 10, tzinfo=UTC)] * 2,
    "decimals": [Decimal("1.50"), Decimal("2")],
    "nothing": [None, None],
    "mixture": [1, 1.0, "1", True, None, dt.date(2020, 1, 1), b"a"],
    "nested": [{"a": 1}, [1]],
}
ODD: list[object] = [
    *(
        None,
        float("nan"),
        pd.NaT,
        pd.NA,
        7,
        2**70,
        -(10**500),
        1.5,
        float("inf"),
        -0.0,
        True,
        np.int8(3),
        np.float32(0.1),
    ),
    *(np.bool_(True), np.datetime64("2020-01-01"), np.datetime64("NaT"), "x", "", "\ud800", "a\x00b", "2020-01-01"),
    *(
        b"a",
        b"\xff",
        Decimal("9.99"),
        Decimal("sNaN"),
        Decimal("-Infinity"),
        Decimal("1E+999999999"),
        Decimal("1E-99999"),
    ),
    *(dt.date(1, 1, 1), dt.datetime(9999, 12, 31), dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=9)))),
    *(dt.time(10), dt.timedelta(1), pd.Timestamp("2020-01-01", tz="Europe/Berlin")),
    pd.Timestamp(np.datetime64(10**12, "s")),
    *({CANARY: 1}, [1], (1, 2), 1j, object, pd.Period("2020"), pd.Interval(0, 1), np.array([1, 2])),
]


def codec_of(column: Column) -> Codec:
    """What `fit` would make of the column, with a list of categories that it would have estimated."""
    schema = Schema(columns=(column,))
    if column.kind in ("boolean", "categorical"):
        listed = column.categories or (
            (False, True) if column.kind == "boolean" else ("1", "a", "True", "1.5", "other")
        )
        return Codec((CategoricalCodec("x", tuple(listed), True, len(listed) - 1),), schema, 10)
    numbers = {"integer": (0, 10), "real": (0.0, 10.0), "date": (0, 30_000), "datetime": (0, 10**16)}[column.kind]
    grid = Grid(*numbers, kind=column.kind)
    histogram = Histogram.flat(grid, num_bins=8)
    edges = np.arange(len(histogram.firsts) + 1)
    return Codec((NumericCodec("x", column.kind, histogram, edges, True),), schema, 10)


def outcome(read: Read, column: Column) -> tuple[pa.Array, list, pa.DataType, dict]:
    """Values and codes of all rows, the type inside, and the origin."""
    schema = Schema(columns=(column, Column(name="y", kind="integer", bounds=(0, 9))))
    table, origin = read(schema=schema)
    table = conform(table, schema)
    values = table.column("x").combine_chunks()
    values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    codes = codec_of(column).encode(table)[:, 0].tolist() if column.modelled else []
    return values, codes, table.schema.field("x").type, origin.to_dict()


def check_rowwise(reads: Sequence[Read], column: Column, num_rows: int) -> None:
    """All tables begin with the same rows; each is read as the first of them, which has no other."""
    values, codes, held, origin = outcome(reads[0], column)
    for read in reads[1:]:
        more_values, more_codes, more_held, more_origin = outcome(read, column)
        assert (more_held, more_origin) == (held, origin)
        assert more_values.slice(0, num_rows).to_string() == values.slice(0, num_rows).to_string()
        assert more_codes[:num_rows] == codes[:num_rows]


def frame_of(cells: list, dtype: object = None) -> pd.DataFrame:
    series = pd.Series(np.fromiter([*cells, None], dtype=object, count=len(cells) + 1)[:-1], dtype=object)
    return pd.DataFrame({"x": series if dtype is None else series.astype(dtype), "y": 1})


@pytest.mark.parametrize(
    "base", ["integers", "whole reals", "truths", "texts", "dates", "nothing", "mixture", "nested"]
)
@pytest.mark.parametrize("kind", ALSO_UNMODELLED)
def test_pandas_objects(kind: str, base: str) -> None:
    frames = [frame_of([*BASES[base], *odd]) for odd in ([], ODD, [1.5], ["x"])]
    if base == "mixture" and kind in ("integer", "texts", "written date", "id"):
        frames += [frame_of([*BASES[base], odd]) for odd in ODD]
    reads = [partial(from_frame, frame) for frame in frames]
    check_rowwise(reads, ALSO_UNMODELLED[kind], len(BASES[base]))


@pytest.mark.parametrize("kind", ALSO_UNMODELLED)
@pytest.mark.parametrize("base", ["integers", "whole reals", "truths", "texts", "moments", "zoned"])
def test_pandas_chooses_another_type_for_one_more_row(base: str, kind: str) -> None:
    """Integers become floats, and all become objects: pandas decides by the values, so nothing may follow from it."""
    cells = BASES[base]
    frames = [pd.DataFrame({"x": cells, "y": 1})]
    for odd in (None, 1.5, "x", 2**63):
        frames.append(pd.DataFrame({"x": [*cells, odd], "y": 1}))
        more = pd.DataFrame({"x": pd.Series([odd]), "y": 1})
        if base != "truths" or odd != 2**63:  # there pandas itself makes numbers of booleans
            frames.append(pd.concat([frames[0], more], ignore_index=True))
    if base == "zoned":  # the one type of pandas itself that is kept: it holds nulls
        frames = [frames[0], frames[1]]
    reads = [partial(from_frame, frame) for frame in frames]
    rowwise_or_refused(reads, ALSO_UNMODELLED[kind], len(cells))


@pytest.mark.parametrize("kind", COLUMNS)
def test_pandas_numpy_types_and_categories(kind: str) -> None:
    column = COLUMNS[kind]
    for dtype in ("float64", "float32", "int8", "uint64", "bool", "datetime64[s]", "datetime64[ns]", "timedelta64[s]"):
        series = pd.Series([0, 1, 1], dtype="int64").astype(dtype)
        reads = [partial(from_frame, pd.DataFrame({"x": series[:n], "y": 1})) for n in (1, 3)]
        check_rowwise(reads, column, 1)
    lists: list[list] = [
        [1, 2],
        [1, 2, "a"],
        [1, 2, *(f"v{i}" for i in range(200))],
        [1, 2, 2.5],
        [1, 2, dt.date(2020, 1, 1)],
    ]
    frames = [pd.DataFrame({"x": pd.Categorical.from_codes([0, 1], categories=names), "y": 1}) for names in lists]
    check_rowwise([partial(from_frame, frame) for frame in frames], column, 2)
    empty = pd.DataFrame({"x": [float("nan")] * 2, "y": 1})
    dated = pd.DataFrame({"x": pd.Series([None, None, "2020-01-01"], dtype=object), "y": 1})
    check_rowwise([partial(from_frame, frame) for frame in (empty, dated)], column, 2)


TYPED: dict[str, tuple[pa.DataType, list, list]] = {
    "int16": (pa.int16(), [1, 2], [None, 300]),
    "uint64": (pa.uint64(), [1, 2], [2**64 - 1]),
    "double": (pa.float64(), [1.0, 1.5], [None, float("nan"), float("inf"), 1e300]),
    "half": (pa.float16(), [1.0, 1.5], [float("nan")]),
    "bool": (pa.bool_(), [True, False], [None]),
    "string": (pa.string(), ["1", "a"], ["", "2020-01-01", "x" * 1000, "\x00"]),
    "large string": (pa.large_string(), ["1", "a"], [None, "x"]),
    "string view": (pa.string_view(), ["1", "a"], [None, "x" * 50]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["1", "a"], ["x", None]),
    "numbers by code": (pa.dictionary(pa.int8(), pa.int64()), [1, 2], [7, None]),
    "binary": (pa.binary(), [b"a", b"1"], [b"\xff", None]),
    "large binary": (pa.large_binary(), [b"a", b"1"], [b"\xff"]),
    "binary view": (pa.binary_view(), [b"a", b"1"], [b"\xff"]),
    "fixed binary": (pa.binary(1), [b"a", b"1"], [b"\xff"]),
    "narrow decimal": (pa.decimal128(3, 2), [Decimal("1.50"), Decimal("1.00")], [Decimal("9.99"), None]),
    "small decimal": (pa.decimal32(3, 2), [Decimal("1.50"), Decimal("1.00")], [Decimal("-9.99"), None]),
    "wide decimal": (pa.decimal256(76, 70), [Decimal("1.50"), Decimal("1.00")], [Decimal("999999.9"), None]),
    "huge decimal": (pa.decimal128(38, 0), [Decimal(2**60 + 1), Decimal(1)], [Decimal("1e37")]),
    "date": (pa.date32(), [dt.date(2020, 1, 1)], [None, pa.scalar(2**31 - 1, pa.int32()).cast(pa.date32())]),
    "seconds": (pa.timestamp("s"), [dt.datetime(2020, 1, 1)], [pa.scalar(2**61).cast(pa.timestamp("s"))]),
    "zoned": (
        pa.timestamp("s", "Europe/Berlin"),
        [dt.datetime(2020, 1, 1, tzinfo=UTC)],
        [pa.scalar(2**61).cast(pa.timestamp("s", "Europe/Berlin")), None],
    ),
    "nanoseconds": (pa.timestamp("ns"), [dt.datetime(2020, 1, 1)], [pa.scalar(-(2**62) - 1).cast(pa.timestamp("ns"))]),
    "time of day": (pa.time64("ns"), [dt.time(10)], [dt.time(11, 0, 0, 1)]),
    "null": (pa.null(), [None], [None]),
}


def arrow_table(name: str, odd: list) -> pa.Table:
    held, base, _ = TYPED[name]
    plain = held.value_type if pa.types.is_dictionary(held) else held
    arrays = [
        pa.array(base, plain),
        *(pa.array([cell if isinstance(cell, pa.Scalar) else pa.scalar(cell, plain)], plain) for cell in odd),
    ]
    values = pa.concat_arrays(arrays)
    return pa.table({"x": values.dictionary_encode().cast(held) if plain != held else values, "y": [1] * len(values)})


def rowwise_or_refused(reads: Sequence[Read], column: Column, num_rows: int) -> None:
    """A type that no value of the kind can have is refused for itself, so whatever the rows are."""
    try:
        outcome(reads[0], column)
        refusal = ""
    except SchemaError as error:
        refusal = str(error)
    if not refusal:
        check_rowwise(reads, column, num_rows)
    for read in reads[1:] if refusal else []:
        with pytest.raises(SchemaError) as caught:
            outcome(read, column)
        assert str(caught.value) == refusal


@pytest.mark.parametrize("name", TYPED)
def test_arrow_types_in_every_source(tmp_path: Path, name: str) -> None:
    held, base, odd = TYPED[name]
    tables = [arrow_table(name, []), *(arrow_table(name, [cell]) for cell in odd), arrow_table(name, odd)]
    sources: list[Sequence[Read]] = [[partial(from_frame, table) for table in tables]]
    storable = not any(isinstance(cell, pa.Scalar) for cell in odd)
    if not pa.types.is_decimal(held) or held.bit_width >= 128:
        for i, table in enumerate(tables):
            with contextlib.suppress(pa.ArrowNotImplementedError, pa.ArrowInvalid):  # Parquet has fewer types
                pq.write_table(table, tmp_path / f"{i}.parquet")
            pa.feather.write_feather(table, str(tmp_path / f"{i}.feather"))
        for ending in ("parquet", "feather"):
            files = [tmp_path / f"{i}.{ending}" for i in range(len(tables))]
            if all(file.exists() for file in files):
                sources.append([partial(read_table, file) for file in files])
    if storable and name not in ("half", "wide decimal", "small decimal", "null"):
        frames: list[object] = [pl.from_arrow(table) for table in tables]
        sources.append([partial(from_frame, frame) for frame in frames])
        frames = [pd.DataFrame({"x": pd.Series(pd.arrays.ArrowExtensionArray(t.column("x"))), "y": 1}) for t in tables]
        sources.append([partial(from_frame, frame) for frame in frames])
    for column in ALSO_UNMODELLED.values():
        rowwise_or_refused(sources[0], column, len(base))
    for reads in sources[1:]:  # inside they are all Arrow, so a few kinds will do
        for kind in ("integer", "texts", "bought", "id"):
            rowwise_or_refused(reads, ALSO_UNMODELLED[kind], len(base))


def test_arrow_texts_that_are_not_utf8() -> None:
    raw = pa.array([b"a", b"1", b"\xff"])
    broken = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    listed = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), broken)
    for texts in (broken, listed):
        reads = [partial(from_frame, pa.table({"x": texts.slice(0, n), "y": [1] * n})) for n in (2, 3)]
        for column in ALSO_UNMODELLED.values():
            check_rowwise(reads, column, 2)


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "boolean", "string[python]", "string[pyarrow]"])
def test_pandas_extension_types(dtype: str) -> None:
    surrogate = ["\ud800"] if dtype == "string[python]" else []
    cells: dict[str, tuple[list, list]] = {
        "Int64": ([1, 2], [None, 2**62]),
        "Float64": ([1.0, 1.5], [None, float("inf")]),
        "boolean": ([True, False], [None]),
    }
    base, odd = cells.get(dtype, (["1", "a"], [None, "x", *surrogate]))
    frames = [frame_of(base, dtype), *(frame_of([*base, cell], dtype) for cell in odd)]
    for column in ALSO_UNMODELLED.values():
        rowwise_or_refused([partial(from_frame, frame) for frame in frames], column, 2)


TEXTS = ["1", "1.5", "yes", "2020-01-01", "01.02.2020", "a", "True"]
ODD_TEXTS = ["x", "9" * 400, "1e999", "infinity", "294247-01-10", "NaN", "\u0663", "0x10", "31.02.2020", " ", "-"]


@pytest.mark.parametrize("kind", ALSO_UNMODELLED)
def test_text_files(tmp_path: Path, kind: str) -> None:
    def csv(i: int, texts: list[str]) -> Path:
        path = tmp_path / f"{i}.csv"
        path.write_text("x,y\n" + "".join(f"{text},1\n" for text in texts))
        return path

    tables = [TEXTS, [*TEXTS, *ODD_TEXTS], *([*TEXTS, odd] for odd in ODD_TEXTS[:2])]
    files = [csv(i, texts) for i, texts in enumerate(tables)]
    check_rowwise([partial(read_table, f) for f in files], ALSO_UNMODELLED[kind], len(TEXTS))


WRITTEN = {
    "decimal comma": (ReadOptions(decimal=","), ["1,5", "1.234", "1.5", "0", "1.000.000,25", "-,5", "1.23"]),
    "thousands": (ReadOptions(decimal="."), ["1.5", "1,234", "1,5", "0", "1 000 000.25", "-.5", "1,23"]),
    "no header": (ReadOptions(header=False, separator=";"), TEXTS),
    "UTF-16": (ReadOptions(encoding="utf-16"), TEXTS),
    "separator": (ReadOptions(separator="|"), TEXTS),
}


@pytest.mark.parametrize("how", WRITTEN)
@pytest.mark.parametrize("kind", ["integer", "real", "boolean", "date", "texts", "bought", "id", "missing"])
def test_text_files_with_options(tmp_path: Path, kind: str, how: str) -> None:
    reading, texts = WRITTEN[how]
    mark = reading.separator or ";"

    def csv(i: int, more: list[str]) -> Path:
        path = tmp_path / f"{i}.csv"
        rows = "".join(f"{text}{mark}1\n" for text in [*texts, *more])
        path.write_text(("" if reading.header is False else f"x{mark}y\n") + rows, encoding=reading.encoding)
        return path

    column = ALSO_UNMODELLED[kind]
    files = [csv(i, more) for i, more in enumerate([[], ODD_TEXTS, ["1.5"], ["1,5"], ["unknown"]])]
    check_rowwise([partial(read_table, file, reading=reading) for file in files], column, len(texts))


@pytest.mark.parametrize("name", ["0.csv", "0.tsv"])
@pytest.mark.parametrize("first", ["Doe, Jane", "a;b", "a|b", "a\tb", "1,5", "x" * 200_000, ""])
def test_the_first_row_does_not_choose_the_separator(tmp_path: Path, name: str, first: str) -> None:
    """Without a header it is a row like any other: it changes neither how others are read nor whether they are."""
    mark = "," if name.endswith("csv") else "\t"
    schema = Schema(columns=(Column(name="x", kind="categorical"), Column(name="y", kind="integer", bounds=(0, 9))))
    found = []
    for rows in ([], [("a", "1"), ("b", "2")], [(first, "3"), ("a", "1"), ("b", "2")]):
        text = io.StringIO()
        csv.writer(text, delimiter=mark, lineterminator="\n").writerows(rows)
        (tmp_path / name).write_text(text.getvalue())
        found.append(read_table(tmp_path / name, schema=schema, reading=ReadOptions(header=False)))
    assert [table.to_pydict()["x"] for table, _ in found] == [[], ["a", "b"], [first or None, "a", "b"]]
    assert found[0][1] == found[1][1] == found[2][1]


def test_a_row_is_not_searched_for_separators(tmp_path: Path) -> None:
    schema = Schema(columns=(Column(name="x", kind="categorical"), Column(name="y", kind="real")))
    said = []
    for start in ("", '"Doe, Jane";3\n'):
        path = tmp_path / "0.csv"
        path.write_text(f"{start}a;1\n")
        with pytest.raises(TableError, match="give --separator") as caught:
            read_table(path, schema=schema, reading=ReadOptions(header=False))
        said.append(str(caught.value))
        for reading in (ReadOptions(header=False, separator=";"), ReadOptions(header=False, decimal=",")):
            assert read_table(path, schema=schema, reading=reading)[0].column("x").to_pylist()[-1] == "a"
    assert said[0] == said[1]


@pytest.mark.parametrize("kind", ALSO_UNMODELLED)
def test_json_lines(tmp_path: Path, kind: str) -> None:
    base = [*(json.dumps({"x": x, "y": 1}) for x in (1, 1.0, "1", True, None, "2020-01-01", [1])), '{"y": 1}']
    odd = [
        *('{"x": {"a": 1}}', '{"x": 1e999}', '{"x": NaN}', '{"x": "\\ud800"}', "[2]", "3", "not JSON", '{"x": 1'),
        *(f'{{"x": 1, "{CANARY}": 2}}', '{"": 5}', '{"x": "a\\u0000b"}', "{}", "[" * 10_000),
    ]
    files = []
    for i, lines in enumerate([base, [*base, *odd], *([*base, line] for line in odd[3:9:2])]):
        files.append(tmp_path / f"{i}.jsonl")
        files[-1].write_text("\n".join(lines) + "\n")
    reads = [partial(read_table, file) for file in files]
    check_rowwise(reads, ALSO_UNMODELLED[kind], len(base))


@pytest.mark.parametrize("declared", ["", "INTEGER", "REAL", "BOOLEAN", "DATE", "TIMESTAMP", "TEXT"])
def test_sqlite_cells(tmp_path: Path, declared: str) -> None:
    files = []
    base = [1, 0, 2.5, "1", "2020-01-01", "true", None]
    odds: list[list] = [[], ["x"], [b"\xff"], [2.5e300], [-(2**63)], ["x", b"\xff", 1e300]]
    for i, odd in enumerate(odds):
        files.append(tmp_path / f"{i}.sqlite")
        with contextlib.closing(sqlite3.connect(files[-1])) as connection:
            connection.execute(f"CREATE TABLE t (x {declared}, y INTEGER)")
            connection.executemany("INSERT INTO t VALUES (?, 1)", [(cell,) for cell in [*base, *odd]])
            connection.commit()
    for kind in ("integer", "words", "date", "texts", "id"):
        reads = [partial(read_table, f) for f in files]
        rowwise_or_refused(reads, ALSO_UNMODELLED[kind], len(base))


# ------------------------------------------------------------------------------------------------- one number, one text


def test_one_number_has_one_text() -> None:
    """1, 1.0 and "1" are one category, so a null that makes floats of integers moves none."""
    for listed, expected in ((("1", "2"), [0, 1, 2]), ((1, 2), [0, 1, 2]), ((1.0, 2.0), [0, 1, 2])):
        codec = CategoricalCodec("x", listed, True, 0)
        for values in (
            pa.array([1, 2, None]),
            pa.array([1.0, 2.0, None]),
            pa.array([1.0, 2.0, float("nan")], pa.float32()),
            pa.array(["1", "2", None]),
            pa.array([1, 2, None], pa.uint8()),
            pa.array([Decimal("1.0"), Decimal("2.0"), None]),
        ):
            assert codec.encode(pa.chunked_array([values])).tolist() == expected
    truth = CategoricalCodec("x", (True, False), True, 0)
    for values in (pa.array([True, False, None]), pa.array([1, 0, None]), pa.array([1.0, 0.0, None])):
        assert truth.encode(pa.chunked_array([values])).tolist() == [0, 1, 2]
    assert truth.encode(pa.chunked_array([["True", "false", None]])).tolist() == [0, 1, 2]
    cells = [1, 1.0, np.float32(1), Decimal("1.00"), "1", b"1", True, 0.1, Decimal("0.10"), 1e22, 10**22, None, {}]
    schema = Schema(columns=(Column(name="x", kind="categorical"),))
    table, _ = from_frame(pd.DataFrame({"x": pd.Series(cells, dtype=object)}), schema=schema)
    assert table.column("x").to_pylist() == [*["1"] * 6, "True", "0.1", "0.1", str(10**22), str(10**22), None, None]


def test_cells_are_read_as_columns_of_their_types_are() -> None:
    kinds = {"integer": [2, 1, 2, 1, None, None], "real": [2.5, 1.0, 2.0, 1.0, None, None]}
    kinds |= {"date": [None, None, None, None, dt.date(2020, 1, 1), dt.date(2020, 1, 2)]}
    cells = [2.5, True, "2", Decimal(1), dt.date(2020, 1, 1), dt.datetime(2020, 1, 2, 3)]
    for kind, expected in kinds.items():
        schema = Schema(columns=(Column(name="x", kind=kind),))
        table, _ = from_frame(pd.DataFrame({"x": pd.Series(cells, dtype=object)}), schema=schema)
        assert table.column("x").to_pylist() == expected


# -------------------------------------------------------------------------------------------------------------- units


def marks(ids: object, k: int = 1) -> list[bool]:
    schema = Schema(
        columns=(Column(name="i", kind="id"), Column(name="x", kind="integer")), unit="i", max_rows_per_unit=k
    )
    frame = ids if isinstance(ids, pa.Table) else pd.DataFrame({"i": ids, "x": 1})
    table, _ = from_frame(frame, schema=schema)
    return rows_within_units([conform(table, schema)], "i", ["x"], k)[0].tolist()


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_no_id_regroups_other_units(odd: object) -> None:
    ids = [7, 7.0, "7", 8, np.int16(8), Decimal("8.0"), "a", True, "True", None, 9.5, "9.5", dt.date(2020, 1, 1)]
    series = pd.Series(ids, dtype=object)
    expected = [1, 0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1]
    assert marks(series) == [bool(mark) for mark in expected]
    more = marks(pd.Series(np.fromiter([*ids, odd], dtype=object), dtype=object))
    if odd not in (7, True) if isinstance(odd, int) else True:
        assert more[:-1] == marks(series)


def test_ids_of_every_type_are_grouped_alike() -> None:
    expected = [True, True, False, False]
    for ids in ([7, 8, 7, 8], [7.0, 8.0, 7.0, 8.0], ["7", "8", "7", "8"], [7, 8, 7.0, "8"]):
        assert marks(pd.Series(ids)) == expected
        for odd in (None, "a", 1.5):
            assert marks(pd.Series([*ids, odd]))[:4] == expected
    for held in (pa.int8(), pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.string(), pa.binary()):
        ids = pa.array(["7", "8", "7", "8", None]).cast(held)
        assert marks(pa.table({"i": ids, "x": [1] * 5}))[:4] == expected
        assert marks(pa.table({"i": ids.slice(0, 4), "x": [1] * 4})) == expected
    assert marks(pa.table({"i": [True, False, True, False], "x": [1] * 4})) == expected
    assert marks(pa.table({"i": [[7], [8], [7], [8]], "x": [1] * 4})) == [False] * 4  # no plain value is no id


def test_moments_with_a_zone_are_dates_of_utc_in_every_type() -> None:
    schema = Schema(columns=(Column(name="x", kind="date"),))
    moment = dt.datetime(2020, 1, 1, 0, 30, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    typed = pa.table({"x": pa.array([moment], pa.timestamp("us", "Europe/Berlin"))})
    objects = pd.DataFrame({"x": pd.Series([moment, "x"], dtype=object)})
    texts = pa.table({"x": [moment.isoformat()]})
    for frame in (typed, typed.to_pandas(), pl.from_arrow(typed), objects, texts):
        assert from_frame(frame, schema=schema)[0].column("x").to_pylist()[0] == dt.date(2019, 12, 31)


# ------------------------------------------------------------------------------------------------------------- origin


def test_types_given_back_by_pandas_follow_from_kinds() -> None:
    wanted = {
        **{"integer": "int64", "real": "float64", "boolean": "bool", "words": "bool", "date": "datetime64[us]"},
        **{"written date": "datetime64[us]", "datetime": "datetime64[us]", "zoned": "datetime64[us, UTC]"},
        **{"integers": "int64", "reals": "float64", "truths": "bool", "id": "int64", "missing": "int64"},
    }
    for kind, column in ALSO_UNMODELLED.items():
        schema = Schema(columns=(column,))
        origin = from_frame(pd.DataFrame({"x": pd.Series(["a"], dtype=object)}), schema=schema)[1]
        if kind == "text":
            assert not origin.columns
            continue
        assert origin.columns["x"].dtype == wanted.get(kind, "")
        cells = codec_of(column).decode if column.modelled else None
        if cells is not None:
            fake = cells(np.zeros((3, 1), dtype=np.int32), key=jax.random.key(0))
            frame = to_frame(fake, origin)
            assert isinstance(frame, pd.DataFrame)
            assert str(frame["x"].dtype) == wanted.get(kind, str(pd.Series(["a"]).dtype))


def test_ids_keep_whole_numbers_and_texts_only() -> None:
    schema = Schema(columns=(Column(name="x", kind="id"), Column(name="y", kind="integer")))
    for held, back in ((pa.int16(), "int16"), (pa.string(), "string"), (pa.float64(), "int64"), (pa.binary(), "int64")):
        table = pa.table({"x": pa.nulls(1, held), "y": [1]})
        assert from_frame(table, schema=schema, keep_types=True)[1].columns["x"].arrow == back
        assert from_frame(table, schema=schema)[1].columns["x"].arrow == "int64"


def test_no_name_inside_a_value_reaches_the_origin(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f'{{"x": 1, "labs": {{"{CANARY}": 1}}, "list": [{{"{CANARY}": 2}}]}}\n' * 3)
    frame = pd.DataFrame({"x": [1, 2], "labs": pd.Series([{CANARY: 1}, None], dtype=object)})
    tables = [
        read_table(path),
        from_frame(frame),
        from_frame(pl.from_pandas(frame)),
        from_frame(pa.Table.from_pandas(frame)),
    ]
    for table, origin in tables:
        assert list(origin.columns) == ["x"]
        drafted = Schema.draft(table.schema)
        assert "labs" in drafted
        again = (
            read_table(path, schema=drafted)[1]
            if "list" in table.column_names
            else from_frame(table, schema=drafted)[1]
        )
        assert CANARY not in json.dumps(again.to_dict()) + json.dumps(origin.to_dict())
    wrong = Schema(columns=(Column(name="labs", kind="integer"),), drafted=True)
    with pytest.raises(SchemaError) as caught:
        from_frame(pa.table({"labs": [{CANARY: 1}]}), schema=wrong)
    assert CANARY not in str(caught.value)
    digits = pd.DataFrame({"x": pd.Series([Decimal("1.5"), Decimal("123456789.125")], dtype=object)})
    assert from_frame(digits)[1].columns["x"].arrow == "double"


@pytest.mark.parametrize("num_categories", [2, 200, 40_000])
def test_the_width_of_codes_tells_nothing(tmp_path: Path, num_categories: int) -> None:
    schema = Schema(columns=(Column(name="x", kind="categorical"),))
    frame = pd.DataFrame({"x": pd.Categorical([f"v{i}" for i in range(num_categories)])})
    frame.to_feather(tmp_path / "x.feather")
    table = pa.Table.from_pandas(frame)
    wide = "dictionary<values=string, indices=int32, ordered=0>"
    kept = [
        read_table(tmp_path / "x.feather", schema=schema, keep_types=True)[1],
        from_frame(table, schema=schema, keep_types=True)[1],
    ]
    assert all(origin.columns["x"].arrow.endswith("indices=int32, ordered=0>") for origin in kept)
    assert (
        from_frame(table.cast(pa.schema([("x", pa.dictionary(pa.int32(), pa.string()))])))[1].columns["x"].arrow == wide
    )
    assert from_frame(frame, schema=schema, keep_types=True)[1].columns["x"].dtype == "category[]"
    assert from_frame(frame, schema=schema)[1].columns["x"].dtype == ""


# ------------------------------------------------------------------------------------------------------------- the rest


@pytest.mark.parametrize(
    "name", ["int16", "numbers by code", "fixed binary", "small decimal", "date", "zoned", "time of day"]
)
def test_estimated_categories_of_any_type_can_be_saved(tmp_path: Path, name: str) -> None:
    held, base, _ = TYPED[name]
    plain = held.value_type if pa.types.is_dictionary(held) else held
    values = pa.array([base[0]] * 200, plain)
    table = pa.table({"x": values.dictionary_encode() if plain != held else values})
    release = us.fit(
        table, "independent", us.Guarantee.not_private(), schema=Schema(columns=(Column(name="x", kind="categorical"),))
    )
    (column,) = release.codec.columns
    assert isinstance(column, CategoricalCodec)
    assert all(isinstance(category, str) for category in column.categories)
    release.save(tmp_path / "release")
    sampled = us.Release.load(tmp_path / "release").sample(20, seed=0)
    assert any(value is not None for value in sampled.column("x").to_pylist())
    drafted = us.fit(
        table,
        "independent",
        us.Guarantee.not_private(),
        schema=Schema(columns=(Column(name="x", kind="categorical"),), drafted=True),
    )
    drafted.save(tmp_path / "drafted")


def test_nothing_is_spilled_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[duckdb.DuckDBPyConnection] = []
    real = duckdb.connect

    def noted(*args: object, **options: object) -> duckdb.DuckDBPyConnection:
        opened.append(real(*args, **options))  # type: ignore[arg-type]  # handed on
        return opened[-1]

    settings: list[str] = []

    class Watched:
        """Notes the setting at the end of a connection's use, when nothing can change it any more."""

        def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
            self.connection = connection

        def __getattr__(self, name: str) -> object:
            return getattr(self.connection, name)

        def close(self) -> None:
            settings.extend(self.connection.execute("SELECT current_setting('temp_directory')").fetchall()[0])
            self.connection.close()

    monkeypatch.setattr(duckdb, "connect", lambda *args, **options: Watched(noted(*args, **options)))
    write_table(pa.table({"x": [1.5]}), tmp_path / "x.csv")
    write_table(pa.table({"x": [1]}), f"{tmp_path / 'x.duckdb'}::t")
    read_table(f"{tmp_path / 'x.duckdb'}::t")
    assert settings == [""] * len(opened)
    assert len(opened) == 4
    monkeypatch.undo()
    with sandbox() as inside, contextlib.closing(connect()) as plain:
        for connection in (inside, plain):
            assert connection.execute("SELECT current_setting('temp_directory')").fetchall() == [("",)]


def test_integers_of_128_bits(tmp_path: Path) -> None:
    """polars makes them of a column with one very large value. Arrow does not have them."""
    schema = Schema(columns=(Column(name="x", kind="integer"), Column(name="y", kind="categorical")))
    for cells, read in (([1, -5, None], [1, -5, None]), ([1, 10**20, -(10**20)], [1, 2**63 - 1, -(2**63)])):
        frame = pl.DataFrame({"x": pl.Series(cells, dtype=pl.Int128), "y": ["a", None, "b"]})
        frame.write_parquet(tmp_path / "x.parquet")
        frame.write_ipc(tmp_path / "x.arrow")
        tables = [read_table(tmp_path / name, schema=schema) for name in ("x.parquet", "x.arrow")]
        for table, origin in [*tables, from_frame(frame, schema=schema)]:
            assert table.to_pydict() == {"x": read, "y": ["a", None, "b"]}
            assert origin.columns["x"].arrow == "int64"


def test_polars_objects_are_read_by_value() -> None:
    schema = Schema(columns=(Column(name="x", kind="integer"),))
    frame = pl.DataFrame({"x": pl.Series([1, "2", {CANARY: 1}, None], dtype=pl.Object)})
    assert from_frame(frame, schema=schema)[0].to_pydict() == {"x": [1, 2, None, None]}
    with raises(us.TableError, column="x"):
        from_frame(frame)
