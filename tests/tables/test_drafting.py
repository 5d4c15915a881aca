"""Tables without a schema: types and styles follow from all values, wherever batches end."""

import contextlib
import json
import sqlite3
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import understudy as us
from tests.builders import raises
from tests.examples import scaled
from tests.tables.table_examples import CANARY, written
from tests.tables.test_stream import PEOPLE, SIZES, plain, sizes
from understudy.errors import TableError
from understudy.run.sources import read_private_table
from understudy.schema import Schema
from understudy.tables import (
    conform,
    draft_table,
    drafting,
    jsonlines,
    open_table,
    read_table,
    stream,
    write_table,
)
from understudy.tables import reading as reading_module


@contextlib.contextmanager
def json_blocks(num_bytes: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonlines, "_BLOCK_BYTES", num_bytes)
        yield


def check_draft(source: str | Path, **options: Any) -> None:
    """Wherever batches end, values, types, styles and the drafted schema are the same; or the refusal is."""
    refused = None
    try:
        whole, origin = read_table(source, **options)
    except TableError as error:
        refused = str(error)
    if refused is not None:
        for size in SIZES:
            with sizes(**size), json_blocks(size["block"]), pytest.raises(TableError) as caught:
                open_table(source, **options)
            # Of several types, which two are named first depends on where blocks end.
            assert str(caught.value).partition(" holds both ")[1:2] == refused.partition(" holds both ")[1:2]
            assert "holds both" in refused or str(caught.value) == refused
        return
    schema = Schema.draft(whole.schema)
    conformed = conform(whole, schema)
    for size in SIZES:
        with sizes(**size), json_blocks(size["block"]):
            rows, own = open_table(source, **options)
            batches, again = list(rows), list(rows)
            assert (own, rows.num_rows) == (origin, whole.num_rows)
            compared = [(batches, whole), (again, whole)]
            if schema.modelled:
                fitted = read_private_table(source, **options)
                assert (fitted.schema, fitted.origin) == (schema, origin)
                compared.append((list(fitted.table._batches), conformed))
        for made, expected in compared:
            assert all(batch.schema.equals(expected.schema, check_metadata=True) for batch in made)
            assert plain(pa.concat_tables(made)).equals(plain(expected))


KINDS_OF_TEXTS = (
    ["1", "-2", " 3", "NA", "", "0"],
    ["1", "99999999999999999999", "?"],
    ["1.5", "2", "1e3", "inf", "-.25", "nan"],
    ["1.50", "-0.25", "3.00"],
    ["true", "false", " true", ""],
    ["TRUE", "FALSE"],
    ["2020-01-01", "1999-12-31", "unknown"],
    ["01/02/2020", "03/04/2021", "13/02/2020", "02/13/2020"],
    ["1.2.2020", "12.11.1999"],
    ["2020-01-01T10:00:00Z", "2021-01-01T10:00:00Z"],
    ["2020-01-01 10:00:00.1", "2020-01-01 10:00:00.125", "2020-01-01 10:00:00"],
    ["2020-01-01T10:00:00+01:00", "2020-07-01T10:00:00+02:00", "2020-07-01T10:00:00+0100"],
    ["a", "1", "2020-01-01"],
)
one_column = st.sampled_from(KINDS_OF_TEXTS).flatmap(lambda texts: st.lists(st.sampled_from(texts), max_size=8))


@settings(max_examples=scaled(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    columns=st.lists(one_column, min_size=1, max_size=3),
    num_rows=st.integers(1, 8),
    name=st.sampled_from(["x.csv", "x.jsonl", "x.parquet", "x.sqlite"]),
)
def test_texts_are_read_by_all_of_them(tmp_path: Path, columns: list[list[str]], num_rows: int, name: str) -> None:
    """Each part of the file alone would often suggest another type."""
    texts = {f"c{at}": (values * num_rows + [""] * num_rows)[:num_rows] for at, values in enumerate(columns)}
    path = tmp_path / name
    path.unlink(missing_ok=True)
    if name == "x.csv":
        rows = [",".join(row) for row in zip(*texts.values(), strict=True)]
        path.write_text("\n".join([",".join(texts), *rows, ""]))
    elif name == "x.jsonl":
        path.write_text(
            "".join(json.dumps(dict(zip(texts, r, strict=True))) + "\n" for r in zip(*texts.values(), strict=True))
        )
    elif name == "x.parquet":
        pq.write_table(pa.table(texts), path, row_group_size=2)
    else:
        with contextlib.closing(sqlite3.connect(path)) as lite:
            lite.execute(f"CREATE TABLE t ({', '.join(texts)})")  # without types
            lite.executemany(
                f"INSERT INTO t VALUES ({', '.join('?' for _ in texts)})", zip(*texts.values(), strict=True)
            )
            lite.commit()
    check_draft(path)


JSON_VALUES: tuple[object, ...] = (
    *(None, True, 1, 2**70, 1.5, "a", "2020-01-01", "2020-01-01T10:00:00Z"),
    *([], [1], [1.5], ["2020-01-01T10:00:00Z"], {}, {"k": 1}, {"k": None, "l": "x"}, {"k": "x"}),
)


@settings(max_examples=scaled(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.dictionaries(st.sampled_from("ab"), st.sampled_from(JSON_VALUES), max_size=2), min_size=1, max_size=5
    )
)
def test_json_values_of_all_types(tmp_path: Path, rows: list[dict[str, object]]) -> None:
    """Types that agree, and those that do not: whatever part of the file they are in."""
    content = "".join(json.dumps(row) + "\n" for row in rows)
    path = written(tmp_path, content, "x.jsonl")
    check_draft(path)


def test_json_lines_longer_than_a_block(tmp_path: Path) -> None:
    texts = ["a", "b" * 70, "c" * 30, "d"]
    path = written(tmp_path, "".join(json.dumps({"x": text}) + "\n\n" for text in texts), "x.jsonl")
    for block in (50, 90, 1000):
        with json_blocks(block):
            assert read_table(path)[0].column("x").to_pylist() == texts
    with json_blocks(20), pytest.raises(TableError):
        read_table(path)


def test_a_cut_file_of_json_lines_is_called_so(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"x": i, "c": CANARY}) + "\n" for i in range(50))
    for block in (64, 1 << 24):
        with json_blocks(block):
            for reading in (read_table, open_table):
                with pytest.raises(TableError, match="ends inside a line: it is damaged or truncated") as caught:
                    reading(written(tmp_path, lines[:-20], "x.jsonl"))
                assert CANARY not in str(caught.value)
                with raises(TableError, line=51):
                    reading(written(tmp_path, lines + f"{CANARY}\n", "x.jsonl"))


def test_folders(tmp_path: Path) -> None:
    for at, (year, values) in enumerate(((2020, pa.array([1, 2])), (2021, pa.array([1.5])), (2021, pa.nulls(2)))):
        place = tmp_path / "t" / f"year={year}"
        place.mkdir(parents=True, exist_ok=True)
        texts = ["2020-01-01"] * len(values) if at else ["01/01/2020"] * len(values)
        pq.write_table(pa.table({"x": values, "c": texts}), place / f"{at}.parquet")
    check_draft(tmp_path / "t")
    pq.write_table(pa.table({"x": ["a"], "c": ["2020-01-01"]}), tmp_path / "t" / "year=2021" / "9.parquet")
    check_draft(tmp_path / "t")


def test_every_batch_is_converted_before_anything_can_be_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draft reads the file to the end, but an error of its conversion must not come after a charge either. Texts are
    read by the rules that decide their types, see `test_what_a_rule_admits_it_reads`."""
    monkeypatch.setattr(stream, "KEPT_BYTES", 0)  # as for a large table
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": range(50)}), path, row_group_size=10)
    converted, convert = [], drafting.conform

    def counted(table: pa.Table, schema: Schema) -> pa.Table:
        converted.append(len(table))
        return convert(table, schema)

    monkeypatch.setattr(drafting, "conform", counted)
    with sizes(rows=10):
        read_private_table(path, None)
    assert sum(converted) == 50


def test_a_view_whose_rows_change(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    with contextlib.closing(duckdb.connect(str(path))) as connection:
        connection.execute("CREATE VIEW people AS SELECT random() AS x FROM range(1000)")
    with sizes(rows=100), pytest.raises(TableError, match="change each time they are computed"):
        read_private_table(f"{path}::people")


def test_of_a_large_table_only_the_first_rows_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "x,y\n" + "1,2\n" * 9 + "a,2\n")
    for most, num_rows in ((10, 10), (7, 7), (1, 1)):
        monkeypatch.setattr(reading_module, "FIRST_ROWS", most)
        with sizes(rows=3, block=16):
            types, first, is_whole = draft_table(path)
        assert types.field("x").type == pa.string()  # by the last row
        assert (first.num_rows, is_whole) == (num_rows, most == 10)


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet", "x.arrow", "x.duckdb::t", "x.sqlite::t"])
def test_memory_does_not_grow_with_the_table(tmp_path: Path, name: str) -> None:
    num_rows = {"x.parquet": 1_500_000, "x.jsonl": 60_000, "x.sqlite::t": 60_000}.get(name, 300_000)
    table = pa.table({"x": pa.array(range(num_rows)), "y": pa.array(range(num_rows)).cast(pa.string())})
    source = f"{tmp_path}/{name}"
    write_table(table, source)
    size, most = table.nbytes, 0
    del table
    before = pa.total_allocated_bytes()
    with sizes(rows=num_rows // 50, block=1 << 14), json_blocks(1 << 16):
        private = read_private_table(source).table
        held = pa.total_allocated_bytes() - before
        for batch in private._batches:
            most = max(most, pa.total_allocated_bytes() - before)
            del batch
    assert held < size / 10
    assert most < size / 2


@pytest.mark.parametrize("name", ["x.csv", "x.feather"])
def test_a_release_does_not_depend_on_the_batches(tmp_path: Path, name: str) -> None:
    """Also with categories, bounds and bins that are estimated privately, and with dictionaries of their own."""
    table = pa.concat_tables([PEOPLE.select(["n", "r", "c", "b", "d"])] * 30)
    table = table.set_column(2, "c", table.column("c").dictionary_encode())
    write_table(table, tmp_path / name)
    found = []
    for size in ({"rows": 10**6, "kept": 2**30}, {"rows": 100, "block": 300}):
        with warnings.catch_warnings(), sizes(**size):
            warnings.simplefilter("ignore", us.UnderstudyWarning)
            found.append(us.fit(tmp_path / name, "independent", epsilon=20, seed=0))
    assert found[0].schema == found[1].schema
    assert plain(found[0].sample_arrow(50, seed=1)).equals(plain(found[1].sample_arrow(50, seed=1)))
