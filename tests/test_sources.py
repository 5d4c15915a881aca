"""Where a table comes from does not change its release; a source that fails is refused before anything is charged."""

import contextlib
import itertools
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import understudy as us
from tests.tables.table_examples import CANARY
from tests.tables.test_databases import server as server
from tests.tables.test_stream import sizes
from tests.test_batches import COLUMNS, people
from understudy.cli import run
from understudy.privacy.rows.table import table_digest
from understudy.run.failure import SpentError
from understudy.run.sources import read_private_table
from understudy.schema import as_schema
from understudy.tables import write_table

SCHEMA = {"table": {"unit": "who", "max_rows_per_unit": 2}, "columns": COLUMNS}
NUM_ROWS = 400


def released(source: Any) -> list[object]:
    """The codec and some rows of a seeded release."""
    release = us.fit(source, "mst", epsilon=20, schema=SCHEMA, seed=1)
    return [release.codec.to_dict(), *release.sample_arrow(50, seed=2).to_pylist()]


@pytest.fixture(scope="module")
def from_memory() -> list[object]:
    return released(people())


# ------------------------------------------------------------------------------------------------- the same release


def to_folder(folder: Path) -> Path:
    for number, start in enumerate(range(0, NUM_ROWS, 150)):
        pq.write_table(people().slice(start, 150), folder / f"part-{number}.parquet", row_group_size=40)
    return folder


def to_view(folder: Path) -> str:
    with contextlib.closing(sqlite3.connect(folder / "x.sqlite")) as connection:
        connection.execute("CREATE TABLE hidden (who TEXT, town TEXT, age INTEGER, pay REAL)")
        rows = [tuple(row.values()) for row in people().to_pylist()]
        connection.executemany("INSERT INTO hidden VALUES (?, ?, ?, ?)", rows)
        connection.execute("CREATE VIEW people AS SELECT * FROM hidden")
        connection.commit()
    return f"{folder}/x.sqlite::people"


def to_file(name: str) -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        write_table(people(), f"{folder}/{name}")
        return f"{folder}/{name}"

    return write


SOURCES: dict[str, Callable[[Path], object]] = {
    **{name: to_file(name) for name in ("x.csv", "x.csv.gz", "x.parquet", "x.arrow", "x.jsonl", "x.duckdb::t")},
    "folder": to_folder,
    "view": to_view,
    "polars": lambda folder: pl.scan_parquet(to_file("x.parquet")(folder)),
    "reader": lambda folder: people().to_reader(9),
}


@pytest.mark.parametrize("name", SOURCES)
def test_the_source_does_not_change_a_release(name: str, tmp_path: Path, from_memory: list[object]) -> None:
    with sizes(rows=90, block=1 << 11):
        assert released(SOURCES[name](tmp_path)) == from_memory


def test_a_duckdb_relation(from_memory: list[object]) -> None:
    with contextlib.closing(duckdb.connect()) as connection, sizes(rows=90):
        connection.register("people", people())
        assert released(connection.sql("SELECT * FROM people")) == from_memory


def test_a_dask_frame(from_memory: list[object]) -> None:
    frames = pytest.importorskip("dask.dataframe", reason="needs dask")
    with sizes(rows=90):
        assert released(frames.from_pandas(people().to_pandas(), npartitions=5, sort=False)) == from_memory


def test_a_postgres_table(server: str, from_memory: list[object]) -> None:
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with dbapi.connect(server) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("stays", people(), mode="replace")
        connection.commit()
    with sizes(rows=90):
        assert released(f"{server}::stays") == from_memory


# ----------------------------------------------------------------------------------------------------------- passes


@contextlib.contextmanager
def counted_passes() -> Iterator[list[int]]:
    """How many rows each pass over a CSV file has read to the end."""
    passes: list[int] = []
    open_csv = pa.csv.open_csv

    def counted(*args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        num_rows = 0
        for batch in open_csv(*args, **options):
            yield batch
            num_rows += batch.num_rows
        passes.append(num_rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pa.csv, "open_csv", counted)
        yield passes


@pytest.mark.parametrize(("kept", "most"), [(2**28, 1), (0, 4)], ids=["small", "large"])
@pytest.mark.parametrize("schema", [None, "people.toml"], ids=["drafted", "declared"])
def test_how_often_a_file_is_parsed(
    kept: int, most: int, schema: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one without a schema to draft it, for categories and bounds, for histograms, and to encode it."""
    monkeypatch.chdir(tmp_path)
    write_table(people().drop_columns(["who"]), "people.csv")
    as_schema({"columns": {name: column for name, column in COLUMNS.items() if name != "who"}}).write("people.toml")
    options = [] if schema is None else ["--schema", schema]
    with sizes(rows=90, block=1 << 11, kept=kept), counted_passes() as passes:
        command = ["synth", "people.csv", *options, "--epsilon", "9", "--method", "independent", "-o", "fake.csv"]
        assert run([*command, "--seed", "1"]) == 0
    most += schema is not None and kept == 0  # read once to check it, and once for its digest
    assert passes == [NUM_ROWS + 1] * most  # with the row that marks the end


def test_a_resumed_run_recognises_a_large_table_without_a_schema(tmp_path: Path) -> None:
    """By the hash that the first pass has made."""
    tables = [people(), people().slice(1), people().set_column(2, "age", pa.array(range(NUM_ROWS)))]
    digests = []
    for number, table in enumerate([*tables, people()]):
        path = tmp_path / f"{number}.csv"
        write_table(table, path)
        with sizes(rows=90, block=1 << 11):
            digests.append(table_digest(read_private_table(path).table, b"key"))
    assert digests[0] == digests[3]
    assert len(set(digests)) == 3


# ----------------------------------------------------------------------------------------------------------- faults
# An error that is no `SpentError` says that nothing was charged.


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def drop_column(path: Path) -> None:
    pq.write_table(people().drop_columns(["age"]), path)


def leave_note(path: Path) -> None:
    path.with_name("notes.txt").write_text(CANARY)


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("x.csv.gz", cut, "x.csv.gz cannot be read as Csv: it is damaged, truncated, or in another format."),
        ("x.parquet", cut, "x.parquet cannot be read as Parquet: it is damaged"),
        ("x.arrow", cut, "x.arrow cannot be read as Arrow: it is damaged"),
        ("x.jsonl", cut, "x.jsonl ends inside a line: it is damaged or truncated. Write it again."),
        ("folder/1.parquet", cut, "1.parquet cannot be read as Parquet: it is damaged"),
        ("folder/1.parquet", drop_column, "1.parquet lacks column 'age', unlike"),
        ("folder/1.parquet", leave_note, "folder holds 'notes.txt', expected Parquet files alone."),
        ("folder/1.parquet", Path.unlink, "folder is a folder, expected a file or a folder of Parquet files."),
    ],
)
def test_a_damaged_source_is_refused_in_one_line(
    name: str,
    damage: Callable[[Path], None],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With exit code 2, by the first pass over the table, and without a file left behind."""
    monkeypatch.chdir(tmp_path)
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    marked = people().set_column(1, "town", pa.array([CANARY] * NUM_ROWS))
    if path.parent.name and damage is not Path.unlink:
        write_table(marked, path.with_name("0.parquet"))
    write_table(marked, path)
    damage(path)
    as_schema(SCHEMA).write("people.toml")
    before = sorted(tmp_path.rglob("*"))
    source = path.parts[0]
    assert run(["fit", source, "--schema", "people.toml", "--epsilon", "1", "--method", "mst", "-o", "r"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("understudy: ")
    assert words in line
    assert CANARY not in line
    assert sorted(tmp_path.rglob("*")) == before


def test_a_computation_that_fails_is_refused_before_anything_is_charged() -> None:
    turns = itertools.count()

    def fail_later(rows: pl.DataFrame) -> pl.DataFrame:
        if next(turns):
            raise ValueError(CANARY)
        return rows

    frame = pl.from_arrow(people())
    assert isinstance(frame, pl.DataFrame)
    with sizes(rows=90), pytest.raises(us.TableError, match=r"cannot be computed \(\w+Error\)") as caught:
        us.fit(frame.lazy().map_batches(fail_later), "mst", epsilon=1, schema=SCHEMA)
    assert CANARY not in str(caught.value)


def test_rows_in_another_order_in_each_pass_are_refused_before_anything_is_charged() -> None:
    """A mark of the rows that are used would be that of other rows, and a unit could have more than it may."""
    turns = itertools.count()
    frame = pl.from_arrow(people())
    assert isinstance(frame, pl.DataFrame)
    shuffled = frame.lazy().map_batches(lambda rows: rows.sample(fraction=1, shuffle=True, seed=next(turns)))
    with sizes(rows=90), pytest.raises(us.TableError, match="change each time they are computed"):
        us.fit(shuffled, "mst", epsilon=1, schema=SCHEMA)


@pytest.mark.parametrize("change", ["grown", "gone", "cut"])
def test_a_file_that_changes_after_the_first_charge_has_spent_the_budget(change: str, tmp_path: Path) -> None:
    path = tmp_path / f"{CANARY}.csv"
    write_table(people(), path)

    def progress(fraction: float, text: str) -> None:
        """Called when the table was read once, and not again until something is charged."""
        if change == "gone":
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(path.read_bytes() + b"p1,north,5,1\n" if change == "grown" else path.read_bytes()[:99])

    with sizes(rows=90), pytest.raises(SpentError) as caught:
        us.fit(path, "mst", epsilon=1, schema={"columns": COLUMNS}, progress=progress)
    assert caught.value.failure.startswith("The table could not be read again: it changed, or its source is gone.")
    assert 0.9 < caught.value.statement.epsilon <= 1
    assert CANARY not in str(caught.value)
