"""Tables written batch by batch: the same files, a few batches in memory, and all of a table or nothing."""

import gc
import itertools
import os
import weakref
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import raises
from tests.examples import scaled
from tests.tables.test_writing import leftovers, tiny_disk
from understudy.errors import TableError
from understudy.tables import read_table, write_batches, write_table

__all__ = ["tiny_disk"]  # a fixture

TEXTS = ["x.csv", "x.tsv", "x.csv.gz", "x.csv.zst", "x.jsonl", "x.ndjson.gz"]
FORMATS = [*TEXTS, "x.parquet", "x.feather", "x.arrow", "x.sqlite::t", "x.duckdb::t"]


def people(num_rows: int = 10_000) -> pa.Table:
    draw = np.random.default_rng(0)
    return pa.table(
        {
            "i": np.arange(num_rows),
            "x": pa.array(draw.normal(size=num_rows), mask=draw.random(num_rows) < 0.1),
            "s": pa.array(draw.choice(["a", "b,c", 'd"e', "f\ng", "é"], num_rows)),
            "b": pa.array(draw.random(num_rows) < 0.5),
            "d": pa.array(draw.integers(0, 20_000, num_rows).astype(np.int32)).cast(pa.date32()),
            "t": pa.array(draw.integers(0, 2**50, num_rows)).cast(pa.timestamp("us", "Europe/Berlin")),
        }
    )


def cut(table: pa.Table, *sizes: int) -> Iterator[pa.Table]:
    """The table in batches of these sizes, and the rest."""
    for start, end in itertools.pairwise([0, *itertools.accumulate(sizes), table.num_rows]):
        yield table.slice(start, end - start)


# --- The same files ---


def test_one_batch_gives_the_file_of_the_library_itself(tmp_path: Path) -> None:
    table = people(200_000)
    pq.write_table(table, tmp_path / "own.parquet", compression="zstd")
    pa.feather.write_feather(table, str(tmp_path / "own.feather"))
    plain = table.select(["i", "s", "b"])
    with duckdb.connect() as connection:
        connection.register("t", plain)
        for ending, compression in {".csv": "none", ".csv.gz": "gzip", ".csv.zst": "zstd"}.items():
            connection.execute(f"COPY t TO '{tmp_path}/own{ending}' (FORMAT csv, COMPRESSION {compression})")
        connection.execute(f"COPY t TO '{tmp_path}/own.jsonl' (FORMAT json)")
    for ending in (".parquet", ".feather", ".csv", ".csv.gz", ".csv.zst", ".jsonl"):
        write_batches([table if ending in (".parquet", ".feather") else plain], tmp_path / f"ours{ending}")
        assert (tmp_path / f"ours{ending}").read_bytes() == (tmp_path / f"own{ending}").read_bytes(), ending


@pytest.mark.parametrize("name", FORMATS)
def test_many_batches_hold_the_rows_of_the_table_in_their_order(tmp_path: Path, name: str) -> None:
    table = people(200_000 if name in ("x.csv", "x.parquet") else 10_000)  # more than one record batch, where quick
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    write_table(table, str(whole / name))
    write_batches(cut(table, 1, table.num_rows // 3, 5, table.num_rows // 2), str(parts / name))
    one, other = (read_table(str(folder / name))[0] for folder in (whole, parts))
    assert one.num_rows == table.num_rows
    assert other.equals(one)
    if name in TEXTS:
        assert (parts / name).read_bytes() == (whole / name).read_bytes()


def test_other_readers_see_every_batch_of_a_compressed_file(tmp_path: Path) -> None:
    table = people(5000).select(["i"])
    for ending in (".csv.gz", ".csv.zst"):
        write_batches(cut(table, 1000, 1000), tmp_path / f"x{ending}")
        assert len(pl.read_csv(tmp_path / f"x{ending}")) == 5000
        assert ending == ".csv.zst" or len(pd.read_csv(tmp_path / f"x{ending}")) == 5000


def test_a_batch_is_a_row_group(tmp_path: Path) -> None:
    write_batches(cut(people(50), 20, 20), tmp_path / "x.parquet")
    groups = pq.ParquetFile(tmp_path / "x.parquet").metadata
    assert [groups.row_group(at).num_rows for at in range(groups.num_row_groups)] == [20, 20, 10]


@settings(max_examples=scaled(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", None]), max_size=5), min_size=1, max_size=4))
@pytest.mark.parametrize("name", ["x.parquet", "x.feather", "x.csv", "x.jsonl", "x.sqlite::t", "x.duckdb::t"])
def test_batches_may_have_dictionaries_of_their_own(tmp_path: Path, name: str, batches: list) -> None:
    columns = [pa.array(values, pa.string()).dictionary_encode() for values in batches]
    tables = [pa.table({"n": np.arange(len(column)), "c": column}) for column in columns]
    if name == "x.feather" and not any(batches[0]) and any(map(any, batches)):
        with raises(TableError, column="c"):
            write_batches(tables, str(tmp_path / name), force=True)
        return
    write_batches(tables, str(tmp_path / name), force=True)
    values = [value for column in batches for value in column]
    if name == "x.parquet":
        read = pq.read_table(tmp_path / name)
    elif name == "x.feather":
        read = pa.feather.read_table(str(tmp_path / name))
    else:
        if not values:
            return  # text has no types, and without rows its kinds cannot be inferred
        read, _ = read_table(str(tmp_path / name))
    assert read.column("c").to_pylist() == values


def test_styles_are_those_of_the_first_batch(tmp_path: Path) -> None:
    fields = [
        pa.field("d", pa.date32(), metadata={"format": "%d.%m.%Y"}),
        pa.field("r", pa.float64(), metadata={"decimals": "2", "padded": "1"}),
    ]
    rows = [pa.table([[date(2020, 1, day)], [day / 2]], schema=pa.schema(fields)) for day in (1, 2)]
    write_batches(rows, tmp_path / "x.csv", delimiter=";")
    assert (tmp_path / "x.csv").read_text() == "d;r\n01.01.2020;0.50\n02.01.2020;1.00\n"


# --- A few batches in memory ---


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet", "x.feather", "x.sqlite::t", "x.duckdb::t"])
def test_only_a_few_batches_are_in_memory(tmp_path: Path, name: str) -> None:
    alive = most = 0

    def note_end() -> None:
        nonlocal alive
        alive -= 1

    def batches() -> Iterator[pa.Table]:
        nonlocal alive, most
        for number in range(40):
            values = np.full(500, number)
            weakref.finalize(values, note_end)
            alive += 1
            yield pa.table({"a": pa.array(values)})  # Arrow holds the memory of the array, and so the array
            del values
            most = max(most, alive)

    write_batches(batches(), str(tmp_path / name))
    assert read_table(str(tmp_path / name))[0].num_rows == 20_000
    assert most <= 6


# --- All of it or nothing ---


def broken_off(error: type[BaseException]) -> Iterator[pa.Table]:
    yield from cut(people(3000), 1000, 1000)
    raise error("a fault")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, TableError])
def test_rows_that_break_off_leave_nothing(tmp_path: Path, name: str, error: type[BaseException]) -> None:
    with pytest.raises(error, match="a fault"):
        write_batches(broken_off(error), str(tmp_path / name))
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("name", FORMATS)
def test_rows_that_break_off_keep_what_was_there(tmp_path: Path, name: str) -> None:
    write_table(people(10), str(tmp_path / name))
    before, _ = read_table(str(tmp_path / name))
    with pytest.raises(KeyboardInterrupt):
        write_batches(broken_off(KeyboardInterrupt), str(tmp_path / name), force=True)
    assert read_table(str(tmp_path / name))[0].equals(before)
    assert leftovers(tmp_path) == [name.partition("::")[0]]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "other", [pa.table({"a": [1.5]}), pa.table({"b": [1]}), pa.table({"a": [1], "b": [1]}), pa.table({})]
)
def test_a_batch_of_another_schema_is_refused(tmp_path: Path, name: str, other: pa.Table) -> None:
    with pytest.raises(TableError, match="same columns and types"):
        write_batches([pa.table({"a": [1]}), other], str(tmp_path / name))
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["x.csv", "x.csv.gz", "x.parquet", "x.feather", "x.jsonl", "x.sqlite::t", "x.duckdb::t"]
)
def test_a_full_disk_ends_an_endless_table(tiny_disk: Path, name: str) -> None:
    draw = np.random.default_rng(0)
    endless = (pa.table({"x": draw.integers(0, 2**60, 200_000)}) for _ in itertools.count())
    with pytest.raises(TableError, match="the disk is full"):
        write_batches(endless, str(tiny_disk / name))
    assert leftovers(tiny_disk) == []


def test_a_refused_path_asks_for_no_row(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("old")

    def rows() -> Iterator[pa.Table]:
        raise AssertionError
        yield

    with pytest.raises(TableError):
        write_batches(rows(), tmp_path / "x.csv")


def test_nothing_is_open_after_a_write_that_failed(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    for name in FORMATS:
        with pytest.raises(ValueError, match="a fault"):
            write_batches(broken_off(ValueError), str(tmp_path / name))
    gc.collect()
    assert not before or len(os.listdir("/proc/self/fd")) <= before + 2


def test_zones_of_every_batch_are_written(tmp_path: Path) -> None:
    moments = [datetime(2020, 1, 1, 12), datetime(2020, 7, 1, 12)]  # winter and summer
    batches = [pa.table({"t": pa.array([m]).cast(pa.timestamp("us", "Europe/Berlin"))}) for m in moments]
    write_batches(batches, tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text() == "t\n2020-01-01 13:00:00+01:00\n2020-07-01 14:00:00+02:00\n"
