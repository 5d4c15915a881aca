"""Rows on a Spark cluster: the same counts and the same releases as here, and no row leaves the tasks.

With a real Spark of two cores on this machine, which the tests start: make spark-test.
"""

import collections
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import understudy as us
from tests.audit.outcomes import one_secret
from tests.builders import raises
from tests.examples import scaled
from understudy.cli.app import app
from understudy.errors import ClusterError, ConfigError, SchemaError, TableError
from understudy.privacy.rows import spark as spark_rows
from understudy.privacy.rows.batches import LocalBatches, add_arrays
from understudy.privacy.rows.spark import SparkBatches
from understudy.privacy.rows.table import PrivateTable, table_digest
from understudy.privacy.rows.units import count_unit_sizes
from understudy.run.failure import SpentError
from understudy.run.sources import read_private_table
from understudy.schema import as_schema
from understudy.tables.spark import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::understudy.UnderstudyWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


@pytest.fixture(scope="module")
def spark() -> "Iterator[SparkSession]":
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'understudy-dp[spark]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is missing, which Spark needs: apt install default-jre-headless")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    few = {"ui.enabled": "false", "sql.shuffle.partitions": "3", "sql.execution.arrow.maxRecordsPerBatch": "70"}
    builder = SparkSession.builder.master("local[2,2]").appName("tests")  # a task may fail once
    for name, value in few.items():
        builder = builder.config(f"spark.{name}", value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def people(num_rows: int = 300) -> pa.Table:
    draw = np.random.default_rng(0)
    known = draw.random(num_rows) < 0.9
    columns: dict[str, Any] = {
        "who": [None if number % 50 == 49 else f"p{number // 4}" for number in range(num_rows)],
        "town": draw.choice(["north", "south", "east", "west"], num_rows, p=[0.5, 0.3, 0.15, 0.05]),
        "age": draw.integers(18, 80, num_rows),
        "pay": pa.array(draw.gamma(2.0, 9.0, num_rows), mask=~known),
        "born": pa.array(draw.integers(0, 9000, num_rows).astype("datetime64[D]"), mask=~known),
        "seen.last": pa.array(draw.integers(0, 10**15, num_rows).astype("datetime64[us]")),
        "member": pa.array(draw.random(num_rows) < 0.4),
    }
    return pa.table(columns)


KINDS = {"who": "id", "town": "categorical", "age": "integer", "pay": "real"}
KINDS |= {"born": "date", "seen.last": "datetime", "member": "boolean"}
COLUMNS = {name: {"kind": kind} for name, kind in KINDS.items()}
UNITS = {"unit": "who", "max_rows_per_unit": 2}


def frame_of(
    spark: "SparkSession", table: pa.Table, parts: int = 3, before: Callable[[int], None] | None = None
) -> "DataFrame":
    """A frame in as many partitions, with the rows in their order; a task calls `before` each of its batches."""
    size = -(-max(1, table.num_rows) // parts)
    slices = [table.slice(size * part, size).combine_chunks().to_batches(max_chunksize=40) for part in range(parts)]

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers:
            for part in number.column(0).to_pylist():
                for at, batch in enumerate(slices[part]):
                    if before is not None:
                        before(at)
                    yield batch

    return spark.range(0, parts, 1, parts).mapInArrow(read, spark.createDataFrame(table.slice(0, 1)).schema)


def on_spark(spark: "SparkSession", table: pa.Table, unit: dict | None = None, parts: int = 3) -> PrivateTable:
    schema = as_schema({"table": unit or {}, "columns": COLUMNS})
    return read_private_table(frame_of(spark, table, parts), schema).table


def kept_by_spark(spark: "SparkSession") -> int:
    assert spark.sparkContext._jsc is not None
    return len(spark.sparkContext._jsc.getPersistentRDDs())


# ----------------------------------------------------------------------------------------------------- the same as here


@settings(max_examples=scaled(12))
@given(data=st.data())
def test_counts_equal_those_in_memory(spark: "SparkSession", data: st.DataObject) -> None:
    """For any codes and any workload: bit for bit, and also after a choice of columns."""
    sizes = data.draw(st.lists(st.sampled_from([1, 2, 3, 300]), min_size=2, max_size=4))
    num_rows, seed = data.draw(st.integers(1, 200)), data.draw(st.integers(0, 999))
    codes = np.random.default_rng(seed).integers(0, sizes, (num_rows, len(sizes)))
    clique = st.lists(st.integers(0, len(sizes) - 1), max_size=3, unique=True).map(tuple)
    workload = data.draw(st.lists(clique, max_size=5))
    table = pa.table({f"c{at}": codes[:, at] for at in range(len(sizes))})

    def as_codes(batch: pa.Table) -> np.ndarray:
        return np.stack([column.to_numpy() for column in batch.columns], axis=1)

    remote = SparkBatches(frame_of(spark, table, data.draw(st.integers(1, 3))), table.slice(0, 0)).map(as_codes)
    found, expected = remote.to_codes(sizes), LocalBatches([codes]).to_codes(sizes)
    counts = found.count(workload, sizes)
    assert counts.dtype == np.int64
    assert np.array_equal(counts, expected.count(workload, sizes))
    last = len(sizes) - 1
    assert np.array_equal(
        found.only([last, 0]).count([(0, 1)], [sizes[last], sizes[0]]), found.count([(last, 0)], sizes)
    )
    remote.close()


def test_large_workloads_take_several_jobs(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tasks return together is bounded; the counts are the same."""
    table = pa.table({"a": [0, 1, 2, 2], "b": [1, 1, 0, 1]})
    batches = SparkBatches(frame_of(spark, table, 2), table.slice(0, 0))
    codes = batches.map(lambda batch: np.stack([column.to_numpy() for column in batch.columns], axis=1)).to_codes(
        (3, 2)
    )
    workload = [(0,), (1,), (0, 1), (1, 0)]  # 48, 32, 96 and 96 bytes of two tasks
    whole = codes.count(workload, (3, 2))
    jobs: list[object] = []
    sound = spark_rows._run

    def recorded(frame: "DataFrame", task: Callable, check_source: Callable[[], None]) -> list:
        jobs.append(task)
        return sound(frame, task, check_source)

    monkeypatch.setattr(spark_rows, "_run", recorded)
    monkeypatch.setattr(spark_rows, "RESULT_BYTES", 100)
    assert np.array_equal(codes.count(workload, (3, 2)), whole)
    assert len(jobs) == 3
    batches.close()


@pytest.mark.parametrize("unit", [{}, UNITS], ids=["rows", "units"])
def test_a_release_is_that_of_the_local_engine(spark: "SparkSession", unit: dict) -> None:
    """Everything is estimated; with one seed, all arrays and rows are the same. Spark keeps nothing afterwards."""
    schema = {"table": unit, "columns": COLUMNS}
    here = us.fit(people(), "mst(iterations=20)", epsilon=20, schema=schema, seed=1)
    there = us.fit(frame_of(spark, people()), "mst(iterations=20)", epsilon=20, schema=schema, seed=1)
    assert there.codec.to_dict() == here.codec.to_dict()
    assert there.to_files()["model.safetensors"] == here.to_files()["model.safetensors"]
    assert there.sample_arrow(40, seed=2).equals(here.sample_arrow(40, seed=2))
    assert "Spark" in there.certificate
    assert "Spark" not in here.certificate
    assert kept_by_spark(spark) == 0


def test_a_rule_and_a_chosen_method(spark: "SparkSession") -> None:
    """Rows that break a rule are moved or left out before units are limited, there as here."""
    schema = {
        "table": {**UNITS, "rows": 280},
        "columns": {
            **COLUMNS,
            "age": {"kind": "integer", "bounds": [18, 79]},
            "pay": {"kind": "real", "bounds": [0, 90]},
            "town": {"kind": "categorical", "categories": ["north", "south", "east", "west"]},
            "born": {"kind": "date", "drop": True},
            "seen.last": {"kind": "datetime", "drop": True},
        },
        "rules": [{"keep": "age >= 21 or pay <= 30"}],
    }
    releases = [
        us.fit(table, "aim(max_rounds=2, iterations=10)", epsilon=3, schema=schema, seed=1)
        for table in (people(), frame_of(spark, people()))
    ]
    assert releases[0].sample_arrow(40, seed=2).equals(releases[1].sample_arrow(40, seed=2))


def test_a_folder_of_parquet_files(spark: "SparkSession", tmp_path: Path) -> None:
    """Read by Spark or here, with one of the columns in the names of folders: `synth` writes the same table."""
    folder = tmp_path / "people.parquet"
    for number, town in enumerate(("01", "2", "north")):
        (folder / f"town={town}").mkdir(parents=True)
        part = people().slice(100 * number, 100).drop_columns(["town"])
        pq.write_table(part, folder / f"town={town}" / "0.parquet")
    listed = {**COLUMNS, "town": {"kind": "categorical", "categories": ["01", "2", "north"]}}
    schema = tmp_path / "schema.toml"
    as_schema({"columns": listed, "table": UNITS}).write(schema)
    tables = []
    for engine in ("local", "spark"):
        out = tmp_path / f"{engine}.parquet"
        options = ["--schema", schema, "--epsilon", 9, "--seed", 1, "--method", "independent", "--engine", engine]
        result = CliRunner().invoke(app, ["synth", str(folder), "-o", str(out), *map(str, options)])
        assert result.exit_code == 0, result.output
        tables.append(pq.read_table(out))
    assert tables[0].equals(tables[1])
    stated = json.loads((tmp_path / "spark.release" / "certificate.json").read_text())
    assert "spark" in json.dumps(stated).lower()


# ---------------------------------------------------------------------------------------------------------------- units


def contents(batches: Any) -> collections.Counter:
    """The rows themselves, which only this test reads."""
    rows: collections.Counter = collections.Counter()
    for batch in batches._frame.toArrow().to_batches() if isinstance(batches, SparkBatches) else batches:
        table = pa.table(batch)
        for step in batches._steps if isinstance(batches, SparkBatches) else ():
            table = step(table)
        rows.update(map(str, table.select(sorted(table.column_names)).to_pylist()))
    return rows


NAMES = [name for name in KINDS if name != "who"]


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_rows_of_units_are_those_of_the_local_engine(spark: "SparkSession", k: int) -> None:
    """Wherever they are on the cluster."""
    schema = as_schema({"table": UNITS, "columns": COLUMNS})
    here, units = read_private_table(people(), schema).table._batches.limit_units("who", NAMES, k)
    moved = people().take(np.random.default_rng(k).permutation(300))
    there, remote = on_spark(spark, moved, UNITS)._batches.limit_units("who", NAMES, k)
    assert contents(there) == contents(batch.drop_columns(["who"]) for batch in here)
    assert np.array_equal(count_unit_sizes(remote, 3), count_unit_sizes(units, 3))
    there.close()


@pytest.mark.parametrize("gone", ["p0", "p7"])
def test_removing_a_unit_moves_no_row_of_another(spark: "SparkSession", gone: str) -> None:
    """At most k rows go, all of this unit, and one bin of the sizes moves by one."""
    k, table = 2, people(80)
    stays = pa.array([who != gone for who in table["who"].to_pylist()])
    whole, sizes = on_spark(spark, table, UNITS)._batches.limit_units("who", NAMES, k)
    fewer, less = on_spark(spark, table.filter(stays), UNITS, 2)._batches.limit_units("who", NAMES, k)
    lost = contents(whole) - contents(fewer)
    assert not contents(fewer) - contents(whole)
    assert sum(lost.values()) == k
    own = read_private_table(table.filter(pc.invert(stays)), as_schema({"table": UNITS, "columns": COLUMNS})).table
    assert not lost - contents(batch.drop_columns(["who"]) for batch in own._batches)
    moved = count_unit_sizes(sizes, k) - count_unit_sizes(less, k)
    assert moved.tolist() == [0, 1]
    whole.close()
    fewer.close()


def test_no_unit_id_is_shuffled_or_kept(spark: "SparkSession") -> None:
    """Neither as text nor as bytes, in what the shuffle takes along and Spark keeps."""
    batches = on_spark(spark, people(80), UNITS)._batches
    limited, units = batches.limit_units("who", NAMES, 2)
    assert isinstance(limited, SparkBatches)
    assert isinstance(units, spark_rows.SparkUnits)
    assert limited._empty.column_names == NAMES
    keys = units._frame.toArrow().column(0).to_pylist()
    assert {len(key) for key in keys} == {16}
    assert len(set(keys)) == 20
    assert not any(re.search(r"\bp\d", row) for row in contents(limited))
    limited.close()


OWN_SESSION = """
import os, pathlib, sys
import understudy as us

columns = {"who": {"kind": "id"}, "x": {"kind": "boolean"}}
schema = {"table": {"unit": "who", "max_rows_per_unit": 2, "rows": 4}, "columns": columns}
local, shuffled = pathlib.Path(os.environ["SPARK_LOCAL_DIRS"]), []

def look(done, what):
    shuffled.extend(path.read_bytes() for path in local.rglob("shuffle_*.data"))

us.fit(sys.argv[1], "independent", epsilon=1, schema=schema, engine="spark", progress=look)
assert shuffled, "nothing was shuffled"
assert not list(local.rglob("blockmgr*")), "shuffle files are left"
try:
    us.fit(sys.argv[2], "independent", epsilon=1, schema=schema, engine="spark")
except us.TableError as error:
    print(error)
assert not list(local.rglob("blockmgr*")), "the session of a refused table goes on"
left = [str(path) for path in local.rglob("*") if path.is_file()]
assert not left, left
"""


def test_a_session_of_its_own_is_silent_and_leaves_nothing(tmp_path: Path) -> None:
    """In a process of its own, which goes on: after the run its shuffle files are gone. The terminal has our line."""
    pytest.importorskip("pyspark")
    for name in ("sound.parquet", "damaged.parquet"):
        pq.write_table(pa.table({"who": ["a", "b"] * 20, "x": [True, False] * 20}), tmp_path / name)
    (tmp_path / "damaged.parquet").write_bytes(b"damaged")
    (tmp_path / "local").mkdir()
    paths = [str(tmp_path / "sound.parquet"), str(tmp_path / "damaged.parquet")]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    settings = {**plain, "SPARK_LOCAL_DIRS": str(tmp_path / "local"), "PYTHONWARNINGS": "ignore::UserWarning"}
    settings["PYSPARK_SUBMIT_ARGS"] = "--master local[1] --conf spark.sql.shuffle.partitions=1 pyspark-shell"
    made = subprocess.run([sys.executable, "-c", OWN_SESSION, *paths], env=settings, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("Spark cannot read ")
    assert made.stdout.count("\n") == 1
    assert made.stderr == ""


# --------------------------------------------------------------------------------------------------- what leaves a task


def test_no_row_reaches_the_driver(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of a whole run return one row of bytes for each task, of about the same size for ten times as many rows."""
    from pyspark.sql.classic.dataframe import DataFrame

    returned: list[tuple[list[str], int, int]] = []
    sound = DataFrame.toArrow

    def recorded(self: "DataFrame") -> pa.Table:
        found = sound(self)
        returned.append((found.column_names, found.num_rows, found.nbytes))
        return found

    def refused(self: "DataFrame", *args: object, **more: object) -> None:
        raise AssertionError("rows were asked for")

    schema = {"table": UNITS, "columns": {**COLUMNS, "town": {"kind": "categorical"}}}
    most = []
    for num_rows in (300, 3000):
        frame = frame_of(spark, people(num_rows))
        with monkeypatch.context() as patch:
            patch.setattr(DataFrame, "toArrow", recorded)
            for name in ("collect", "toPandas", "toLocalIterator", "take", "first", "head", "tail", "foreach"):
                patch.setattr(DataFrame, name, refused)
            us.fit(frame, "mst(iterations=2)", epsilon=5, schema=schema, seed=1)
        (_, types, _), *jobs = returned  # the types of the columns are read from a table without rows
        assert types == 0
        assert all(names == ["part"] and rows <= 3 for names, rows, _ in jobs)
        most.append(max(size for _, _, size in jobs))
        returned.clear()
    assert most[1] < 1.5 * most[0]


def test_a_task_that_dies_is_repeated_and_nothing_is_counted_twice(spark: "SparkSession") -> None:
    """In every partition the first attempt ends its process after half of its rows."""

    def die(at: int) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        if at == 1 and context is not None and context.attemptNumber() == 0:
            os._exit(1)

    table = people().select(["age"])
    unsteady = SparkBatches(frame_of(spark, table, before=die), table.slice(0, 0))
    counts = unsteady.fold(lambda batch: np.bincount(batch["age"].to_numpy(), minlength=80), add_arrays)
    assert np.array_equal(counts, np.bincount(table["age"].to_numpy(), minlength=80))


@pytest.mark.parametrize("unit", [{}, UNITS], ids=["rows", "units"])
def test_a_run_whose_tasks_fail_once_is_that_of_a_steady_one(spark: "SparkSession", tmp_path: Path, unit: dict) -> None:
    """In every stage, each partition fails once, after some of its rows. The release, the charges and the budget
    book are those of a run without failures; with units, a shuffle stands between the failure and the counts."""

    def fail_once(at: int) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        if at != 1 or context is None:
            return
        mark = tmp_path / f"failed-{context.partitionId()}-{context.stageId()}"
        if not mark.exists():
            mark.touch()
            raise OSError("a disk went away")

    schema = {"table": {**unit, "rows": 300}, "columns": COLUMNS}
    releases = []
    for name, before in (("steady", None), ("unsteady", fail_once)):
        book = us.BudgetBook.create(tmp_path / f"{name}.book", epsilon=30, delta=1e-4, unit=unit.get("unit"))
        frame: Any = frame_of(spark, people(), before=before)
        with one_secret():
            releases.append(us.fit(frame, "independent", us.Guarantee(9, 1e-6), schema=schema, book=book.path))
        (reserved,) = us.BudgetBook.open(book.path).reservations
        assert reserved.counted == reserved.cost
    first, second = releases
    assert len(list(tmp_path.glob("failed-*"))) > 3, "tasks failed, in more than one job"
    assert second.codec.to_dict() == first.codec.to_dict()
    assert second.statement.queries == first.statement.queries
    assert second.to_files()["model.safetensors"] == first.to_files()["model.safetensors"]


# --------------------------------------------------------------------------------------------------------------- faults


def test_a_job_that_fails_before_any_charge(spark: "SparkSession") -> None:
    """One line, without what Spark says, which may quote a row."""
    frame = frame_of(spark, people()).selectExpr("*", "if(age > 70, raise_error('secret'), 1) as one")
    schema = {"columns": {**COLUMNS, "one": {"kind": "integer"}}}
    with pytest.raises(ClusterError, match="A Spark job failed for good") as caught:
        us.fit(frame, "mst", epsilon=1, schema=schema)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_job_that_fails_after_a_charge(spark: "SparkSession", tmp_path: Path) -> None:
    """The reading pass succeeds; then a file appears, and every later attempt fails."""
    flag = str(tmp_path / "flag")

    def fail_later(at: int) -> None:
        if os.path.exists(flag):
            raise ValueError("secret")

    def note(done: float, what: str) -> None:
        Path(flag).touch()

    unsteady = frame_of(spark, people(), 1, before=fail_later)

    with pytest.raises(SpentError, match="A Spark job failed for good") as caught:
        us.fit(unsteady, "mst", epsilon=1, schema={"columns": COLUMNS}, progress=note)
    assert "secret" not in str(caught.value)
    assert caught.value.statement.epsilon <= 1
    assert kept_by_spark(spark) == 0


def test_errors_of_a_task_name_their_type_alone(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of an error may quote a value; Spark would send it here and write it to its log."""
    seen: list[str] = []
    sound = spark_rows._explain

    def recorded(error: Exception) -> us.UnderstudyError:
        seen.append(str(error))
        return sound(error)

    monkeypatch.setattr(spark_rows, "_explain", recorded)
    table = pa.table({"x": [4711]})

    def broken(batch: pa.Table) -> pa.Table:
        if batch.num_rows:
            raise ValueError(f"no {batch['x'][0]}")
        return batch

    with pytest.raises(TableError):
        SparkBatches(frame_of(spark, table, 1), table.slice(0, 0)).map(broken).check()
    assert "could not be counted (ValueError)" in seen[0]
    assert "4711" not in seen[0]


def test_executors_without_the_package(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that only this process can import stands for it."""
    (tmp_path / "driver_only.py").write_text("def step(batch):\n    return batch\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    table = pa.table({"x": [1]})
    batches = SparkBatches(frame_of(spark, table, 1), table.slice(0, 0))
    step: Callable[[pa.Table], pa.Table] = importlib.import_module("driver_only").step
    with pytest.raises(
        ClusterError, match=r"cannot import driver_only\. Install understudy on them, or ship"
    ) as caught:
        batches.map(step).check()
    assert "\n" not in str(caught.value)


def test_executors_with_another_version(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"x": [1]})
    batches = SparkBatches(frame_of(spark, table, 1), table.slice(0, 0))
    monkeypatch.setattr(spark_rows, "__version__", "99.0")
    with pytest.raises(ClusterError, match=r"expected 99\.0\. Install it there"):
        batches.check()


def test_errors_are_not_told_apart_by_what_a_row_may_say() -> None:
    """Spark quotes values that break its rules; only lines that Python itself writes are read."""
    for text in (
        "No module named 'numpy'",
        f"{spark_rows._OTHER_VERSION} 1",
        "x ModuleNotFoundError: No module named 'os'",
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version",
    ):
        quoted = RuntimeError(f"[CAST_INVALID_INPUT] The value '{text}' cannot be cast to BIGINT")
        assert "failed for good" in str(spark_rows._explain(quoted))


def test_executors_with_another_python() -> None:
    text = (
        "An exception was thrown from the Python worker:\n"
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
        "version: 3.10 than that in driver: 3.11, PySpark cannot run with different minor versions.\n"
    )
    assert "a different version of Python" in str(spark_rows._explain(RuntimeError(text)))


def test_a_folder_that_changes_between_jobs(spark: "SparkSession", tmp_path: Path) -> None:
    """Spark reads the files anew in every job, and all must see the same rows."""
    changes: list[Callable[[Path], object]] = [
        lambda folder: pq.write_table(people(41), folder / "1.parquet"),
        lambda folder: pq.write_table(people(5), folder / "2.parquet"),
        lambda folder: (folder / "1.parquet").unlink(),
    ]
    for at, change in enumerate(changes):
        folder = tmp_path / f"people{at}"
        folder.mkdir()
        for part in range(2):
            pq.write_table(people(40), folder / f"{part}.parquet")
        batches = read_private_table(folder, as_schema({"columns": COLUMNS}), engine="spark").table._batches
        codes = batches.map(lambda batch: np.zeros((batch.num_rows, 1), np.int64)).to_codes((2,))
        assert codes.count([(0,)], (2,)).tolist() == [80, 0]
        change(folder)
        for read in (
            lambda: batches.fold(lambda batch: np.array([batch.num_rows]), add_arrays),  # noqa: B023
            lambda: codes.count([(0,)], (2,)),  # noqa: B023
        ):
            with pytest.raises(TableError, match=r"people\d changed while it was read\. Run again\.$"):
                read()
        batches.close()


def test_a_session_at_another_address_is_named(spark: "SparkSession") -> None:
    with pytest.warns(us.UnderstudyWarning, match=r"at local\S+ is already running.*spark://elsewhere:7077"):
        open_session("spark://elsewhere:7077")


def test_what_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    """Before anything is charged, each in one line."""
    frame: Any = frame_of(spark, people(), 1)
    schema = {"columns": COLUMNS}
    with pytest.raises(SchemaError, match="needs a declared schema"):
        us.fit(frame, epsilon=1)
    with raises(ConfigError, setting="method"):
        us.fit(frame, "dpgan", epsilon=1, schema=schema)
    with raises(SchemaError, column="town"):
        us.fit(frame.drop("town"), epsilon=1, schema=schema)
    with pytest.raises(TableError, match="draws random values"):
        us.fit(frame.selectExpr("*", "rand() as chance"), epsilon=1, schema=schema)
    with pytest.raises(ConfigError, match="stay on the cluster"):
        list(on_spark(spark, people(8))._batches)
    pq.write_table(people(), tmp_path / "people.parquet")
    split = ["--engine", "spark", "--split", "0.2", "--epsilon", "1", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["fit", str(tmp_path / "people.parquet"), *split])
    assert isinstance(result.exception, ConfigError)
    assert "--split cannot hold out" in str(result.exception)


# ---------------------------------------------------------------------------------------------------------- checkpoints


def test_a_resumed_run_recognises_its_table(spark: "SparkSession") -> None:
    """In whatever order the cluster reads it; one changed value makes another table."""
    table = people(60)
    tables = (table, table.take(np.arange(60)[::-1]), table.set_column(2, "age", pa.array([20] * 60)), table.slice(1))
    digests = [table_digest(on_spark(spark, each, parts=1 + at % 2), b"key") for at, each in enumerate(tables)]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    assert table_digest(on_spark(spark, table), b"other") != digests[0]


def test_a_run_is_resumed(spark: "SparkSession", tmp_path: Path) -> None:
    """Killed after its first charges, it continues to the release of a run that was not."""
    schema = {"columns": COLUMNS}
    settings: dict[str, Any] = {"epsilon": 5, "schema": schema, "seed": 1}
    frame: Any = frame_of(spark, people())

    class KilledError(BaseException):
        pass

    def kill(done: float, what: str) -> None:
        if done > 0:
            raise KilledError

    whole = us.fit(frame, "mst(iterations=5)", **settings)
    with pytest.raises(KilledError):
        us.fit(frame, "mst(iterations=5)", **settings, checkpoint=tmp_path / "run", progress=kill)
    again = us.fit(frame, "mst(iterations=5)", **settings, checkpoint=tmp_path / "run", resume=True)
    assert again.sample_arrow(30, seed=2).equals(whole.sample_arrow(30, seed=2))


def test_empty_tables_and_partitions(spark: "SparkSession") -> None:
    empty = people().slice(0, 0)
    batches = read_private_table(
        spark.createDataFrame(people(5)).where("age < 0"),
        as_schema({"columns": COLUMNS}),
    ).table._batches
    assert batches.fold(lambda batch: np.array([batch.num_rows]), add_arrays).tolist() == [0]
    codes = batches.map(lambda batch: np.zeros((batch.num_rows, 1), np.int64)).to_codes((2,))
    assert codes.count([(0,)], (2,)).tolist() == [0, 0]
    batches.close()
    assert empty.num_rows == 0
