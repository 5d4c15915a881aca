"""Tables in batches: where batches end changes nothing, no more than a batch is held; a damaged source is refused."""

import bz2
import contextlib
import csv
import datetime as dt
import functools
import gzip
import io
import itertools
import os
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.builders import raises
from tests.examples import scaled
from tests.tables.table_examples import CANARY, written
from tests.tables.test_databases import server as server
from tests.tables.test_reading import DECLARED, as_csv, as_json_lines, rows_of_texts
from understudy.errors import TableError
from understudy.schema import Column, Schema
from understudy.tables import (
    ReadOptions,
    TableStream,
    delimited,
    open_table,
    read_table,
    reading,
    stream,
    write_table,
)
from understudy.tables.path import TablePath
from understudy.tables.reading_batches import read_equal

SCHEMA = Schema(
    columns=(
        Column(name="n", kind="integer"),
        Column(name="r", kind="real"),
        Column(name="c", kind="categorical"),
        Column(name="b", kind="boolean"),
        Column(name="d", kind="date"),
        Column(name="t", kind="text"),
        Column(name="u", kind="id"),
    ),
    unit="u",
)
NUM_ROWS = 23
PEOPLE = pa.table(
    {
        "n": pa.array([None if i % 7 == 3 else i * 10**14 for i in range(NUM_ROWS)]),
        "r": pa.array([None if i % 5 == 1 else i / 8 for i in range(NUM_ROWS)]),
        "c": pa.array([["ä", 'x,"y"', None, "line\nbreak"][i % 4] for i in range(NUM_ROWS)]),
        "b": pa.array([[True, False, None][i % 3] for i in range(NUM_ROWS)]),
        "d": pa.array([dt.date(2020, 1, 1 + i) if i % 6 else None for i in range(NUM_ROWS)]),
        "t": pa.array([f"note {i}" for i in range(NUM_ROWS)]),
        "u": pa.array([i // 2 for i in range(NUM_ROWS)]),
    }
)
FILES = ["x.csv", "x.tsv", "x.csv.gz", "x.jsonl", "x.jsonl.gz", "x.parquet", "x.feather", "x.arrow"]
DATABASES = ["x.sqlite::people", "x.duckdb::people"]


@contextlib.contextmanager
def sizes(*, rows: int, kept: int = 0, block: int = 1 << 22, values: int = 2**23) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BATCH_ROWS", rows)
        patch.setattr(stream, "BATCH_VALUES", values)
        patch.setattr(stream, "KEPT_BYTES", kept)
        patch.setattr(delimited, "BLOCK_BYTES", block)
        yield


def streamed(source: object, schema: Schema = SCHEMA, **options: Any) -> TableStream:
    return open_table(source, schema, **options)[0]


def plain(table: pa.Table) -> pa.Table:
    """Values alone: batches have dictionaries of their own."""
    is_coded = [pa.types.is_dictionary(field.type) for field in table.schema]
    columns = [c.cast(c.type.value_type) if coded else c for c, coded in zip(table.columns, is_coded, strict=True)]
    return pa.table(columns, names=table.column_names)


SIZES: tuple[dict[str, int], ...] = (
    {"rows": 4, "block": 64},
    {"rows": 10**6, "values": 50, "kept": 2**30, "block": 300},
)


def check_batches(source: object | Callable[[], object], schema: Schema = SCHEMA, **options: Any) -> None:
    """In two passes, and wherever batches end, values and types are the same. A source that can be read only once comes
    as a function."""
    make = source if callable(source) else lambda: source
    whole, origin = read_table(make(), schema, **options)
    for size in SIZES:
        with sizes(**size):
            found = open_table(make(), schema, **options)
            batches, again = list(found[0]), list(found[0])
        assert found[1] == origin
        assert found[0].column_names == whole.column_names
        assert found[0].schema.equals(whole.schema, check_metadata=True)
        assert all(batch.schema.equals(whole.schema, check_metadata=True) for batch in batches)
        most = min(size["rows"], max(1, size.get("values", 2**23) // whole.num_columns))
        assert all(batch.num_rows <= most for batch in batches)
        assert all(batch.num_rows for batch in batches[1:])
        for made in (batches, again):
            assert plain(pa.concat_tables(made)).equals(plain(whole))


# -------------------------------------------------------------------------------------------------------------- batches


def values(source: object) -> dict[str, list]:
    """What a run can use, whatever the types of ids and notes."""
    return read_table(source, SCHEMA)[0].select(["n", "r", "c", "b", "d"]).to_pydict()


@pytest.mark.parametrize("num_rows", [NUM_ROWS, 0])
@pytest.mark.parametrize("name", [*FILES, *DATABASES])
def test_every_format(tmp_path: Path, name: str, num_rows: int) -> None:
    path = f"{tmp_path}/{name}"
    source = path if "::" in path else Path(path)
    table = PEOPLE.slice(0, num_rows)
    write_table(table, path)
    check_batches(source, keep_types=num_rows == 0)
    assert values(source) == values(table)


def test_an_old_feather_file(tmp_path: Path) -> None:
    """It has no batches."""
    with warnings.catch_warnings():  # newer libraries warn of the format
        warnings.simplefilter("ignore", DeprecationWarning)
        pa.feather.write_feather(PEOPLE.select(["n", "r"]), str(tmp_path / "x.feather"), version=1)
        schema = Schema(columns=SCHEMA.columns[:2])
        check_batches(tmp_path / "x.feather", schema)
        assert read_table(tmp_path / "x.feather", schema)[0].equals(PEOPLE.select(["n", "r"]))


TEXT = st.text(st.sampled_from(list('ab1,;|"\n\r\t äé€')), max_size=12)


@settings(max_examples=scaled(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(TEXT, TEXT), max_size=12),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "cp1252", "utf-16"]),
    separator=st.sampled_from([None, ",", ";", "tab", "|"]),
    header=st.sampled_from([None, True, False]),
    end=st.sampled_from(["\n", "\r\n"]),
    ending=st.sampled_from(["csv", "tsv", "csv.gz"]),
    batch_rows=st.integers(1, 5),
    block=st.integers(8, 200),
)
def test_delimited_texts(
    tmp_path: Path,
    rows: list[tuple[str, str]],
    encoding: str,
    separator: str | None,
    header: bool | None,
    end: str,
    ending: str,
    batch_rows: int,
    block: int,
) -> None:
    """Quotes, separators and line breaks in fields, wherever a block ends."""
    mark = {None: "\t" if ending == "tsv" else ",", "tab": "\t"}.get(separator, separator)
    assert mark is not None
    content = io.StringIO(newline="")
    writer = csv.writer(content, delimiter=mark, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([*([] if header is False else [("x", "y")]), *rows])
    data = content.getvalue().encode(encoding)
    path = written(tmp_path, gzip.compress(data) if ending.endswith("gz") else data, f"x.{ending}")
    schema = Schema(columns=(Column(name="x", kind="categorical"), Column(name="y", kind="text")))
    assume(content.getvalue().strip())  # a table without rows and header is tested below
    reading = ReadOptions(encoding=encoding, separator=separator, header=header)
    with sizes(rows=batch_rows, block=block):
        batches = list(streamed(path, schema, reading=reading))
    assert pa.concat_tables(batches).to_pydict() == {
        "x": [x or None for x, _ in rows],
        "y": [y or None for _, y in rows],
    }


@settings(max_examples=scaled(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows_of_texts, st.sampled_from(["x.csv", "x.jsonl"]), st.integers(1, 3), st.integers(16, 300))
def test_no_row_changes_how_another_is_read(
    tmp_path: Path, rows: list[dict[str, str | None]], name: str, batch_rows: int, block: int
) -> None:
    """Wherever batches end, a row is read as it is in a file of its own, also if its values do not fit their kinds."""

    def write(some: list[dict[str, str | None]]) -> Path:
        return written(tmp_path, as_csv(some) if name == "x.csv" else as_json_lines(some), name)

    whole = pa.concat_tables([read_table(write([row]), schema=DECLARED)[0] for row in rows])
    path = write(rows)
    origin = read_table(path, schema=DECLARED)[1]
    with sizes(rows=batch_rows, block=block):
        found = open_table(path, DECLARED)
        assert pa.concat_tables(found[0]).equals(whole)
        assert found[1] == origin


def test_a_text_file_without_rows_and_header(tmp_path: Path) -> None:
    schema = Schema(columns=(Column(name="x", kind="integer"), Column(name="y", kind="real")))
    for content, name in (("", "x.csv"), ("\n\n", "x.csv"), ("\r\n", "x.csv"), ("", "x.jsonl")):
        reading = ReadOptions(header=False) if name == "x.csv" else None
        table, _ = read_table(written(tmp_path, content, name), schema, reading=reading)
        assert table.to_pydict() == {"x": [], "y": []}


def test_rows_longer_than_a_block(tmp_path: Path) -> None:
    texts = ["a", "b" * 500, "c", "d" * 3000, "e\n" * 400]
    content = io.StringIO(newline="")
    csv.writer(content).writerows([("x", "y"), *((text, "1") for text in texts)])
    path = written(tmp_path, content.getvalue())
    schema = Schema(columns=(Column(name="x", kind="categorical"), Column(name="y", kind="integer")))
    for block in (16, 64, 600, 4000):
        with sizes(rows=2, block=block):
            assert pa.concat_tables(streamed(path, schema)).column("x").to_pylist() == texts


# --------------------------------------------------------------------------------------------------------------- frames


def test_frames_whose_rows_are_computed() -> None:
    coded = pl.from_arrow(PEOPLE).with_columns(pl.col("c").cast(pl.Categorical))  # type: ignore[union-attr]  # a frame, not a series
    for num_rows, keep_types in itertools.product((NUM_ROWS, 0), (False, True)):
        table = PEOPLE.slice(0, num_rows)
        with contextlib.closing(duckdb.connect()) as connection:
            connection.register("people", table)
            check_batches(connection.sql("SELECT * FROM people"), keep_types=keep_types)
            assert values(connection.sql("SELECT * FROM people")) == values(table)
        check_batches(coded.lazy().head(num_rows), keep_types=keep_types)
        check_batches(functools.partial(table.to_reader, 4), keep_types=keep_types)
        assert values(coded.lazy().head(num_rows)) == values(table.to_reader(4)) == values(table)


def test_dask_frames() -> None:
    frames = pytest.importorskip("dask.dataframe", reason="needs dask")
    for keep_types in (False, True):
        check_batches(frames.from_pandas(PEOPLE.to_pandas(), npartitions=3), keep_types=keep_types)


def test_a_pass_may_be_broken_off(tmp_path: Path) -> None:
    with contextlib.closing(duckdb.connect()) as connection, sizes(rows=2):
        connection.register("people", PEOPLE)
        write_table(PEOPLE, f"{tmp_path}/x.duckdb::people")
        sources = [connection.sql("SELECT * FROM people"), f"{tmp_path}/x.duckdb::people"]
        for source in [*sources, pl.from_arrow(PEOPLE).lazy()]:  # type: ignore[union-attr]  # a frame, not a series
            rows = streamed(source)
            for _ in rows:
                break
            assert sum(batch.num_rows for batch in rows) == NUM_ROWS


def test_errors_of_lazy_frames_quote_no_row() -> None:
    broken = pl.LazyFrame({"n": [CANARY]}).with_columns(pl.col("n").cast(pl.Int64))
    schema = Schema(columns=(Column(name="n", kind="integer"),))
    with pytest.raises(TableError, match="cannot be computed") as caught:
        list(streamed(broken, schema))
    assert CANARY not in str(caught.value)


def test_lazy_frames_that_cannot_be_opened(tmp_path: Path) -> None:
    write_table(PEOPLE, tmp_path / "x.parquet")
    closed = duckdb.connect()
    relation = closed.sql(f"FROM '{tmp_path}/x.parquet'")
    closed.close()
    absent = pl.scan_parquet(tmp_path / "x.parquet").select("salary")
    for source, said in ((relation, "cannot be computed"), (absent, "there is no column 'salary'")):
        assert said in str(refused(source))
        with pytest.raises(TableError, match=said):
            read_table(source, None)


def test_an_error_of_a_running_computation_names_no_column() -> None:
    """A function of the query may name a column by what it has read."""

    def find_column(rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(rows["n"].item(0))

    broken = pl.LazyFrame({"n": [CANARY]}).map_batches(find_column, schema={"n": pl.String})
    for schema in (None, Schema(columns=(Column(name="n", kind="categorical"),))):
        with pytest.raises(TableError, match="cannot be computed") as caught:
            list(streamed(broken, schema)) if schema else read_table(broken, None)
        assert CANARY not in str(caught.value)


def test_lazy_frames_whose_parts_differ() -> None:
    frames = pytest.importorskip("dask.dataframe", reason="needs dask")
    whole = frames.from_pandas(PEOPLE.to_pandas(), npartitions=3, sort=False)

    def damage(part: pd.DataFrame, lacks: bool) -> pd.DataFrame:
        if part["t"].iloc[0] == "note 0":
            return part
        return part.drop(columns="r") if lacks else part.assign(n=part["t"])

    lacking = whole.map_partitions(damage, lacks=True, meta=whole._meta, enforce_metadata=False)
    assert "some rows have other columns than the first" in str(refused(lacking))
    other = whole.map_partitions(damage, lacks=False, meta=whole._meta, enforce_metadata=False)
    with sizes(rows=100):
        numbers = pa.concat_tables(streamed(other)).column("n").to_pylist()  # text is read as the declared kind
    assert numbers[0] == 0
    assert numbers[-1] is None


def shuffled(frame: pl.DataFrame) -> pl.LazyFrame:
    """The same rows, in another order whenever they are computed."""
    turns = itertools.count(1)
    return frame.lazy().map_batches(lambda rows: pl.concat([rows[(at := next(turns)) :], rows[:at]]))


def grown(frame: pl.DataFrame) -> pl.LazyFrame:
    """One row more whenever they are computed."""
    turns = itertools.count(3)
    return frame.lazy().map_batches(lambda rows: rows[: next(turns)])


@pytest.mark.parametrize("change", [shuffled, grown])
def test_every_pass_must_compute_the_same_rows(change: Callable[[pl.DataFrame], pl.LazyFrame]) -> None:
    """What one pass finds out about a row, another looks up by its place."""
    frame = pl.from_arrow(PEOPLE)
    assert isinstance(frame, pl.DataFrame)
    with sizes(rows=4):
        rows = streamed(change(frame))
        assert list(rows)
        with pytest.raises(TableError):
            list(rows)
        with pytest.raises(TableError):
            streamed(change(frame)).check()
    streamed(change(frame)).check()  # a small table is computed once


def test_a_view_whose_rows_change(tmp_path: Path) -> None:
    with contextlib.closing(duckdb.connect(str(tmp_path / "x.duckdb"))) as connection:
        connection.execute("CREATE VIEW people AS SELECT random() AS r FROM range(100)")
    with contextlib.closing(sqlite3.connect(tmp_path / "x.sqlite")) as lite:
        lite.execute("CREATE VIEW people AS SELECT random() AS r FROM (SELECT 1 UNION SELECT 2 UNION SELECT 3)")
    schema = Schema(columns=(Column(name="r", kind="real"),))
    for name in ("x.duckdb", "x.sqlite"):
        with sizes(rows=10), pytest.raises(TableError, match=f"{name}: the rows or their order change"):
            streamed(tmp_path / name, schema).check()


@settings(max_examples=scaled(60))
@given(
    cuts=st.lists(st.lists(st.integers(0, NUM_ROWS), max_size=6), min_size=2, max_size=2),
    column=st.sampled_from(SCHEMA.names[:5]),
    row=st.integers(0, NUM_ROWS - 1),
)
def test_passes_are_compared_by_rows_and_not_by_batches(cuts: list[list[int]], column: str, row: int) -> None:
    """One value that differs is found, and where batches end is not."""
    coded = PEOPLE.set_column(2, "c", PEOPLE.column("c").dictionary_encode())
    values = PEOPLE.column(column).to_pylist()
    values[row] = None if values[row] is not None else next(value for value in values if value is not None)
    at = PEOPLE.column_names.index(column)
    changed = PEOPLE.set_column(at, column, pa.array(values, PEOPLE.schema.field(column).type))

    def passes(*tables: pa.Table) -> Iterator[Iterator[pa.Table]]:
        for table, ends in zip(tables, cuts, strict=True):
            edges = [0, *sorted(ends), NUM_ROWS]
            yield iter([table.slice(start, end - start) for start, end in itertools.pairwise(edges)])

    for other, is_same in ((PEOPLE, True), (coded, True), (changed, False)):
        made = passes(PEOPLE, other)
        read = read_equal(functools.partial(next, made), PEOPLE.column_names, "x")
        list(read())
        with contextlib.nullcontext() if is_same else pytest.raises(TableError):
            list(read())


# ----------------------------------------------------------------------------------------------------------- PostgreSQL


def test_a_connection_that_is_lost(server: str) -> None:
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with dbapi.connect(server, autocommit=True) as connection, connection.cursor() as cursor, sizes(rows=100):
        rows = streamed(f"{server}::people", Schema(columns=(Column(name="n", kind="integer"),)))
        assert list(rows)
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        cursor.fetchall()
        with pytest.raises(TableError, match="cannot be read: the connection was lost, or") as caught:
            list(rows)
        assert "secret" not in str(caught.value)


def test_all_passes_over_a_server_see_one_moment(server: str) -> None:
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with dbapi.connect(server) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE numbers AS SELECT i AS n, i / 2.0::numeric AS r FROM generate_series(1, 999) i")
        connection.commit()
        schema = Schema(columns=(Column(name="n", kind="integer"), Column(name="r", kind="real")))
        check_batches(f"{server}::numbers", schema)
        with sizes(rows=100):
            rows = streamed(f"{server}::numbers", schema)
            next(iter(rows))
            first = pa.concat_tables(rows)
            cursor.execute("INSERT INTO numbers VALUES (5, 5)")
            cursor.execute("UPDATE numbers SET r = 0 WHERE n = 7")
            connection.commit()
            assert pa.concat_tables(rows).equals(first)
            assert first.num_rows == 999
            assert pa.concat_tables(streamed(f"{server}::numbers", schema)).num_rows == 1000
        del rows
        cursor.execute("SET lock_timeout = '5s'")
        cursor.execute("DROP TABLE numbers")  # fails if a stream still has its connection
        connection.commit()


# --------------------------------------------------------------------------------------------------------------- memory


def test_small_tables_are_read_once(tmp_path: Path) -> None:
    for name in FILES:
        path = tmp_path / name
        write_table(PEOPLE, path)
        rows = streamed(path)
        first = pa.concat_tables(rows)
        path.unlink()
        assert pa.concat_tables(rows).equals(first)
        write_table(PEOPLE, path)
        with sizes(rows=5):
            rows = streamed(path)
            assert sum(batch.num_rows for batch in rows) == NUM_ROWS
            path.unlink()
            with pytest.raises(TableError):
                list(rows)


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.arrow", "x.duckdb::t"])
def test_memory_does_not_grow_with_the_table(tmp_path: Path, name: str) -> None:
    """A batch, its conversion and what is read ahead: far less than the table."""
    table = pa.table({"x": pa.array(range(1_500_000)), "y": pa.array(range(1_500_000)).cast(pa.string())})
    schema = Schema(columns=(Column(name="x", kind="integer"), Column(name="y", kind="text")))
    source = f"{tmp_path}/{name}"
    if name == "x.parquet":
        pq.write_table(table, source, row_group_size=1_500_000)
    else:
        write_table(table, source)
    size, most = table.nbytes, 0
    del table
    before = pa.total_allocated_bytes()
    with sizes(rows=30_000, block=1 << 14):
        for batch in streamed(source, schema):
            most = max(most, pa.total_allocated_bytes() - before)
            del batch
    assert most < size / 2


@pytest.mark.parametrize("name", [*FILES, *DATABASES])
def test_no_reader_holds_more_rows_than_a_batch(tmp_path: Path, name: str) -> None:
    table = pa.concat_tables([PEOPLE] * 100)
    write_table(table, f"{tmp_path}/{name}")
    with sizes(rows=100, block=2000):
        reader = reading._open_path(TablePath.parse(f"{tmp_path}/{name}"), SCHEMA, ReadOptions())
        found = [batch.num_rows for batch in reader.read(100)]
    assert sum(found) == table.num_rows
    assert max(found) <= 100


def test_no_lazy_frame_is_computed_in_larger_parts_than_a_batch() -> None:
    rows = pa.concat_tables([PEOPLE] * 100).combine_chunks()
    with contextlib.closing(duckdb.connect()) as connection, sizes(rows=100):
        connection.register("rows", rows)
        connection.execute("CREATE TABLE people AS FROM rows")
        for source in (connection.sql("FROM people"), pl.from_arrow(rows).lazy()):  # type: ignore[union-attr]  # a frame, not a series
            lazy = reading._open_lazy(source)
            assert lazy is not None
            found = [len(part) for part in lazy[1]()]  # type: ignore[arg-type]  # not text here
            assert sum(found) == rows.num_rows
            assert max(found) <= 100


# --------------------------------------------------------------------------------------------------------------- faults


def refused(source: object, schema: Schema = SCHEMA, **options: Any) -> TableError:
    """The one line with which a source is refused, at once or while it is read; it holds no canary."""
    with pytest.raises(TableError) as caught:
        list(streamed(source, schema, **options))
    assert "\n" not in str(caught.value)
    assert CANARY not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("block", [16, 1 << 22])
@pytest.mark.parametrize(
    ("content", "options"),
    [
        (f'x,y\n1,"x\ny"\n{CANARY},4,5\n', {}),
        ("x,y\n" + "1,2\n" * 50 + f"{CANARY}\n", {}),
        (f'x,y\n1,"{CANARY}\n3,4\n', {}),
        ('x,"y', {"header": True}),
        (b"x,y\n" + b"1,2\n" * 50 + CANARY.encode() + b",M\xfcller\n", {}),
        (b"x,y\n1,\xc3", {}),
        (b"x,y\n1,2\n1,\xff\xff\n", {"encoding": "shift_jis"}),
        ("x,y\n1,2\n".encode("utf-16")[:-1], {"encoding": "utf-16"}),
        ("x,y\n1,2\n".encode("utf-16"), {}),
        (f"{CANARY},7\n", {}),
        ("x,x\n1,2\n", {}),
        ("", {}),
        ("\n\n", {}),
        ("x;y;z\n", {"header": False}),
        ("x,y\n1,2\n", {"decimal": ","}),
        ("x,y\n1,2\n", {"sheet": "a"}),
    ],
)
def test_the_errors_of_text_files(tmp_path: Path, content: str | bytes, options: dict[str, Any], block: int) -> None:
    path = written(tmp_path, content)
    schema = Schema(columns=(Column(name="x", kind="categorical"), Column(name="y", kind="categorical")))
    with pytest.raises(TableError) as caught:
        read_table(path, schema=schema, reading=ReadOptions(**options))
    with sizes(rows=2, block=block):
        error = refused(path, schema, reading=ReadOptions(**options))
    assert (str(error), error.line, error.column) == (str(caught.value), caught.value.line, caught.value.column)


def test_the_place_of_a_wrong_byte_is_counted_over_all_pieces(tmp_path: Path) -> None:
    """The file is checked piece by piece, and characters lie across their ends."""
    good = ("ä" * 99 + "\n") * 12_000
    for shift in range(3):
        start = f"x\n{'a' * shift}".encode() + good.encode()
        path = written(tmp_path, start + b"\xff\n")
        schema = Schema(columns=(Column(name="x", kind="categorical"),))
        assert f"is not UTF-8 (line 12002, byte {len(start)})" in str(refused(path, schema))
    wide = ("x\n" + good).encode("utf-16-le") + b"\x00\xd8\x00\x00"
    error = refused(written(tmp_path, wide), schema, reading=ReadOptions(encoding="utf-16-le"))
    assert f"byte {len(wide) - 4})" in str(error)
    # The first half of a character that has a byte like that of a line break, at the end of a piece.
    half = b"x\x00\n\x00".ljust((1 << 20) - 2, b"a") + b"\x0a\xd8"
    error = refused(written(tmp_path, half + b"a\x00\n\x00"), schema, reading=ReadOptions(encoding="utf-16-le"))
    assert (f"byte {len(half) - 2})" in str(error), error.line) == (True, 2)


@pytest.mark.parametrize("name", [*FILES[4:], "x.csv.gz", "x.sqlite", "x.duckdb"])
@pytest.mark.parametrize("fraction", [0.3, 0.9])
def test_a_file_cut_in_the_middle(tmp_path: Path, name: str, fraction: float) -> None:
    table = pa.table({"n": range(20_000), "c": [CANARY + str(hash(i) * 7919 % 10**9) for i in range(20_000)]})
    path = tmp_path / name
    write_table(table, f"{path}::people" if path.suffix in (".sqlite", ".duckdb") else path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * fraction)])
    schema = Schema(columns=(Column(name="n", kind="integer"), Column(name="c", kind="categorical")))
    assert "damaged, truncated, or in another format" in str(refused(path, schema))


@pytest.mark.parametrize("name", ["x.csv", "x.csv.zst", "x.csv.bz2", "x.jsonl", "x.jsonl.zst"])
def test_a_text_file_cut_in_the_middle(tmp_path: Path, name: str) -> None:
    """Inside a quoted field, a key, or a compressed block."""
    rows = [(i, f'{CANARY}, "{hash(i) * 7919 % 10**9}"') for i in range(20_000)]
    table = pa.table({"n": [i for i, _ in rows], "c": [text for _, text in rows]})
    schema = Schema(columns=(Column(name="n", kind="integer"), Column(name="c", kind="categorical")))
    path = tmp_path / name
    if path.suffix == ".bz2":
        write_table(table, tmp_path / "x.csv")
        path.write_bytes(bz2.compress((tmp_path / "x.csv").read_bytes()))
    else:
        write_table(table, path)
    content = path.read_bytes()
    end = len(content) * 2 // 3
    path.write_bytes(
        content[: content.index(CANARY.encode(), end) + 3] if path.suffix in (".csv", ".jsonl") else content[:end]
    )
    error = str(refused(path, schema))
    assert any(words in error for words in ("a quote is never closed", "ends inside a line", "damaged, truncated")), (
        error
    )


def test_a_cut_arrow_stream(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    with pa.ipc.new_stream(str(path), PEOPLE.schema) as writer:
        writer.write_table(PEOPLE, 5)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    assert "damaged, truncated" in str(refused(path))


def test_an_arrow_stream_cut_between_two_batches(tmp_path: Path) -> None:
    """It lacks the mark of its end: eight bytes, or four as written long ago."""
    path = tmp_path / "x.arrow"
    for old in (False, True):
        options = pa.ipc.IpcWriteOptions(use_legacy_format=old)
        ends = []
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, PEOPLE.schema, options=options) as writer:
            for start in range(0, NUM_ROWS, 5):
                ends.append(file.tell())
                writer.write_table(PEOPLE.slice(start, 5))
            ends.append(file.tell())
        check_batches(path)
        content = path.read_bytes()
        for end in ends:
            path.write_bytes(content[:end])
            assert "damaged, truncated" in str(refused(path)) or not end
            with pytest.raises(TableError):
                read_table(path)


def test_damaged_files(tmp_path: Path) -> None:
    for name in [*FILES[5:], "x.sqlite", "x.duckdb"]:
        assert "cannot be read as" in str(refused(written(tmp_path, f"PAR1{CANARY}" * 50, name)))


def test_a_table_that_changes(tmp_path: Path) -> None:
    def grow(path: Path) -> None:
        with path.open("ab") as file:
            file.write(b"1,2\n")

    def replace(path: Path) -> None:
        content, about = path.read_bytes(), path.stat()
        path.rename(tmp_path / "old")
        path.write_bytes(content)
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))

    def rewrite(path: Path) -> None:
        time.sleep(0.01)
        path.write_bytes(path.read_bytes())

    schema = Schema(columns=(Column(name="x", kind="integer"), Column(name="y", kind="integer")))
    for change in (grow, replace, rewrite, Path.unlink):
        for is_pass_over in (True, False):
            path = written(tmp_path, "x,y\n" + "1,2\n" * 1000)
            with sizes(rows=100, block=1 << 10):
                rows = streamed(path, schema)
                batches = iter(rows)
                taken = list(batches if is_pass_over else itertools.islice(batches, 2))
                assert taken
                change(path)
                with pytest.raises(TableError):
                    next(iter(rows)) if is_pass_over else list(batches)


def test_a_file_that_is_overwritten_while_it_is_read(tmp_path: Path) -> None:
    """It then looks damaged, but that is not what to say."""
    path = tmp_path / "x.parquet"
    numbers = pa.table({"x": np.random.default_rng(0).integers(2**62, size=500_000)})
    pq.write_table(numbers, path, row_group_size=10_000)
    with sizes(rows=10_000):
        batches = iter(streamed(path, Schema(columns=(Column(name="x", kind="integer"),))))
        next(batches)
        os.truncate(path, 100)
        with pytest.raises(TableError):
            list(batches)


def test_a_database_that_changes_in_its_log(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (x INTEGER)")
        connection.commit()
        with sizes(rows=10):
            rows = streamed(path, Schema(columns=(Column(name="x", kind="integer"),)))
            assert [len(list(rows)) for _ in range(2)] == [1, 1]
            connection.execute("INSERT INTO t VALUES (1)")
            connection.commit()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO t VALUES (1)")
        connection.commit()
        with sizes(rows=1):
            rows = streamed(path, Schema(columns=(Column(name="x", kind="integer"),)))
            assert [len(list(rows)) for _ in range(2)] == [2, 2]
            connection.execute("INSERT INTO t VALUES (2)")
            connection.commit()
            with pytest.raises(TableError):
                list(rows)


# -------------------------------------------------------------------------------------------------------------- folders


def write_parts(folder: Path, tables: Sequence[pa.Table], names: Sequence[str] | None = None) -> Path:
    for i, table in enumerate(tables):
        path = folder / (f"part-{i}.parquet" if names is None else names[i])
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
    return folder


def test_a_folder_is_one_table(tmp_path: Path) -> None:
    whole, origin = read_table(PEOPLE, SCHEMA)
    cuts = [PEOPLE.slice(0, 5), PEOPLE.slice(5, 0), PEOPLE.slice(5, 1), PEOPLE.slice(6)]
    cuts[2] = cuts[2].select(PEOPLE.column_names[::-1])
    for folder in (tmp_path / "people", tmp_path / "people.parquet"):
        write_parts(folder, cuts)
        (folder / "_SUCCESS").touch()
        (folder / ".part-0.parquet.crc").touch()
        check_batches(folder)
        check_batches(f"{folder}/", keep_types=True)
        table, found = read_table(folder, schema=SCHEMA)
        assert table.equals(whole)
        assert found.columns == origin.columns
        assert read_table(folder)[0].equals(read_table(write_whole(tmp_path))[0])


def write_whole(folder: Path) -> Path:
    pq.write_table(PEOPLE, folder / "whole.parquet")
    return folder / "whole.parquet"


def test_files_are_sorted_by_name(tmp_path: Path) -> None:
    names = ["10.parquet", "2.pq", "1.PARQUET", "a.parquet"]
    write_parts(tmp_path, [PEOPLE.slice(i, 1) for i in range(4)], names)
    assert pa.concat_tables(streamed(tmp_path)).column("t").to_pylist() == [f"note {i}" for i in (2, 0, 1, 3)]


def test_a_folder_whose_files_differ_in_types(tmp_path: Path) -> None:
    columns = [Column(name=name, kind="integer") for name in "ab"]
    schema = Schema(columns=(*columns, Column(name="u", kind="id"), Column(name="t", kind="text")), unit="u")
    tables = [
        pa.table({"a": [1, 2], "b": pa.array([1, 2], pa.int8()), "u": [7, 8], "t": [1, 2]}),
        pa.table({"a": ["3", "x"], "b": pa.array([None, 2.6]), "u": ["7", "007"], "t": [[1], [2]]}),
        pa.table({"a": pa.array([None], pa.null()), "b": [dt.date(2020, 1, 1)], "u": [7.0], "t": [True]}),
    ]
    write_parts(tmp_path / "x", tables)
    for keep_types in (False, True):
        check_batches(tmp_path / "x", schema, keep_types=keep_types)
        table, origin = read_table(tmp_path / "x", schema=schema, keep_types=keep_types)
        assert table.to_pydict() == {
            "a": [1, 2, 3, None, None],
            "b": [1, 2, None, 3, None],
            "u": ["7", "8", "7", "007", "7"],  # compared as text, as in a column of any other type
            "t": ["1", "2", None, None, "True"],
        }
        held = {"a": "int64", "b": "int64", "u": "string" if keep_types else "int64"}
        assert {name: column.arrow for name, column in origin.columns.items()} == held
    with raises(TableError, column="a"):
        read_table(tmp_path / "x")
    write_parts(tmp_path / "y", [tables[0], pa.table({"a": pa.array([5], pa.int32()), "b": [1.5], "u": [9], "t": [3]})])
    found = read_table(tmp_path / "y")[0].to_pydict()
    assert found == {"a": [1, 2, 5], "b": [1.0, 2.0, 1.5], "u": [7, 8, 9], "t": [1, 2, 3]}


def test_folders_named_by_values(tmp_path: Path) -> None:
    names = ["y=2019/k=a%2Fb/0.parquet", "y=2020/k=__HIVE_DEFAULT_PARTITION__/1.parquet", "y=soon/k=c/0.parquet"]
    write_parts(tmp_path, [pa.table({"n": [i, i + 1]}) for i in range(3)], names)
    schema = Schema(
        columns=(
            Column(name="n", kind="integer"),
            Column(name="y", kind="integer"),
            Column(name="k", kind="categorical"),
        )
    )
    for keep_types in (False, True):
        check_batches(tmp_path, schema, keep_types=keep_types)
    values = {
        "n": [0, 1, 1, 2, 2, 3],
        "y": [2019, 2019, 2020, 2020, None, None],
        "k": ["a/b"] * 2 + [None] * 2 + ["c"] * 2,
    }
    assert read_table(tmp_path, schema=schema)[0].to_pydict() == values
    assert read_table(tmp_path)[0].to_pydict()["y"] == ["2019", "2019", "2020", "2020", "soon", "soon"]
    (tmp_path / "y=soon/k=c/0.parquet").unlink()
    assert read_table(tmp_path)[0].to_pydict()["y"] == [2019, 2019, 2020, 2020]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "is a folder, expected a file or a folder of Parquet files. There is none in it."),
        (["_SUCCESS"], "is a folder, expected a file or a folder of Parquet files. There is none in it."),
        (["0.parquet", "notes.txt"], "x holds 'notes.txt', expected Parquet files alone"),
        (["0.csv"], "x holds '0.csv', expected Parquet files alone"),
        (["0.parquet", "more/1.parquet"], "x holds 'more', expected Parquet files alone"),
        (["0.parquet", "_delta_log/0.json"], "x holds _delta_log, so some of its files may not be part of the table"),
        (["0.parquet", "_temporary/0"], "x holds _temporary, so some of its files may not be part of the table"),
        ([f"k={CANARY}/0.parquet", "0.parquet"], "is not in the same sort of folder as"),
        ([f"k={CANARY}/0.parquet", f"k={CANARY}2/l=1/0.parquet"], "is not in the same sort of folder as"),
        ([f"k={CANARY}/0.parquet", f"k={CANARY}/notes.txt"], "x/k=* holds 'notes.txt'"),
        ([f"n={CANARY}/0.parquet"], "duplicate column names: 'n'"),
    ],
)
def test_folders_that_are_no_table(tmp_path: Path, names: list[str], words: str) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    write_parts(folder, [PEOPLE] * len(names), names)
    assert words in str(refused(folder))
    with pytest.raises(TableError) as caught:
        read_table(folder)
    assert words in str(caught.value)


def test_files_of_a_folder_with_other_columns(tmp_path: Path) -> None:
    more = PEOPLE.append_column("new", pa.nulls(NUM_ROWS, pa.string()))
    for other, words in ((PEOPLE.drop_columns(["r"]), "lacks column 'r'"), (more, "has column 'new'")):
        write_parts(tmp_path / "x", [PEOPLE, other], ["k=1/0.parquet", f"k={CANARY}/1.parquet"])
        error = refused(tmp_path / "x")
        assert f"x/k=*/1.parquet {words}, unlike" in str(error)
        assert error.column in ("r", "new")


def test_a_damaged_file_of_a_folder(tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "x", [PEOPLE] * 2, ["k=1/0.parquet", f"k={CANARY}/1.parquet"])
    bad = folder / f"k={CANARY}" / "1.parquet"
    whole = bad.read_bytes()
    bad.write_bytes(whole[:200])
    assert "x/k=*/1.parquet cannot be read as Parquet: it is damaged" in str(refused(folder))
    bad.write_bytes(whole[:4] + b"\xff" * 200 + whole[204:])  # the footer is fine
    assert "x/k=*/1.parquet cannot be read as Parquet: it is damaged" in str(refused(folder))


def test_a_folder_that_changes(tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "x", [PEOPLE] * 2)
    with sizes(rows=10):
        rows = streamed(folder)
        assert sum(batch.num_rows for batch in rows) == 2 * NUM_ROWS
        write_parts(folder, [PEOPLE], ["part-3.parquet"])
        with pytest.raises(TableError):
            list(rows)


def test_folders_are_no_place_to_write_to(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").mkdir()
    for force, words in ((False, "exists"), (True, "is a folder")):
        with pytest.raises(TableError, match=words):
            write_table(PEOPLE, tmp_path / "x.parquet", force=force)
    (tmp_path / "x.csv").mkdir()
    with pytest.raises(TableError, match="is a folder, expected a file"):
        read_table(tmp_path / "x.csv")
