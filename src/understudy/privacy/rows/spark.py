"""Private rows on a Spark cluster. Tasks there see rows; this process adds up one small result from each task.

Everything that sees a row runs in `mapInArrow`. A task returns one row: its counts, as bytes. Spark hands over the
result of one successful attempt of each task, so an attempt that died and was repeated is counted once; there are no
accumulators. Codes are kept by Spark in its memory and on its local disks until the run ends. Units need a shuffle: its
files hold the values of the modelled columns and hashes of the unit ids, until the session ends.
"""

import contextlib
import functools
import io
import itertools
import math
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from jaxtyping import Int64, Integer

from understudy._version import __version__
from understudy.errors import ClusterError, ConfigError
from understudy.privacy.rows.batches import LocalBatches, Part, PrivateBatches, add_arrays
from understudy.privacy.rows.codes import code_type
from understudy.privacy.rows.kernel import Columns, count_workload, portions
from understudy.privacy.rows.units import content_hashes, unit_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Batch = TypeVar("Batch")
Mapped = TypeVar("Mapped")
Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]

BATCH_ROWS = 2**17
"""Rows that a task converts at once; Spark itself hands over some thousands."""
BATCH_VALUES = 2**22
"""The most values of them: with many columns, fewer rows."""
RESULT_BYTES = 2**29
"""The most bytes of the counts that the tasks of one job return together; larger workloads take several jobs."""

_UNIT, _LOW, _HIGH, _RANK = "understudy_unit", "understudy_low", "understudy_high", "understudy_rank"


class SparkBatches(PrivateBatches[Batch]):
    """Batches of rows in the tasks of a cluster."""

    is_remote = True

    def __init__(
        self,
        frame: "DataFrame",
        empty: Batch,
        steps: tuple[Callable[..., Any], ...] = (),
        at_end: contextlib.ExitStack | None = None,
        check_source: Callable[[], None] | None = None,
    ):
        """`steps` make a batch of what Spark hands over as a table; `empty` is what they make of one without rows.
        `close` does what is to be done `at_end`, the last first. `check_source` raises if the files of the table are
        not what they were: it is called before and after each job."""
        self._frame, self._empty, self._steps = frame, empty, steps
        self._at_end = contextlib.ExitStack() if at_end is None else at_end
        self._check_source = check_source or _trust

    def __repr__(self) -> str:
        return "SparkBatches(...)"

    def __iter__(self) -> Iterator[Batch]:
        raise ConfigError(
            "The rows of this table stay on the cluster, which only counts them. Use a method that counts (mst, aim,"
            " auto), or the engine local."
        )

    def map(self, function: Callable[[Batch], Mapped]) -> "SparkBatches[Mapped]":
        steps = (*self._steps, function)
        return SparkBatches(self._frame, function(self._empty), steps, self._at_end, self._check_source)

    def fold(self, count: Callable[[Batch], Part], add: Callable[[Sequence[Part]], Part]) -> Part:
        """Each task adds the parts of its batches; they are added here in the order of the tasks."""
        task = functools.partial(_fold, self._steps, count, add)
        return add([count(self._empty), *_run(self._frame, task, self._check_source)])

    def to_codes(self: "SparkBatches[np.ndarray]", sizes: Sequence[int]) -> "SparkCodes":
        """Codes as blocks of bytes, one for some thousand rows: Spark keeps these."""
        frame = _map(self._frame, functools.partial(_encode, self._steps, code_type(sizes)), "codes binary")
        return SparkCodes(self._keep(frame), code_type(sizes), len(sizes), range(len(sizes)), self._check_source)

    def limit_units(
        self: "SparkBatches[pa.Table]", unit: str, columns: Sequence[str], max_rows_per_unit: int
    ) -> "tuple[SparkBatches[pa.Table], SparkUnits]":
        """At most this number of rows of each unit: those with the smallest `content_hashes`, as by
        `rows_within_units`. The shuffle takes no unit id along, unless it is one of the columns."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sql

        empty = self._empty if unit in columns else self._empty.drop_columns([unit])
        types = empty.schema
        task = functools.partial(_add_hashes, self._steps, unit, tuple(columns))
        fields = ", ".join(f"c{at} {_wire_type(field)[1]}" for at, field in enumerate(types))
        hashed = _map(self._frame, task, f"{fields}, {_UNIT} binary, {_LOW} bigint, {_HIGH} bigint")
        order = Window.partitionBy(_UNIT).orderBy(_HIGH, _LOW)
        ranked = hashed.withColumn(_RANK, sql.row_number().over(order)).where(f"{_RANK} <= {max_rows_per_unit}")
        frame = self._keep(ranked.drop(_RANK, _LOW, _HIGH))
        read = functools.partial(_from_wire, types=types)
        rows = SparkBatches(frame.drop(_UNIT), empty, (read,), self._at_end, self._check_source)
        return rows, SparkUnits(frame.select(_UNIT), self._check_source)

    def check(self) -> None:
        """Reads all rows once: what is damaged is found before anything is charged."""
        self.fold(_nothing, add_arrays)

    def _keep(self, frame: "DataFrame") -> "DataFrame":
        """Spark keeps it in its memory and on its local disks, from when it is first computed."""
        from pyspark import StorageLevel

        self._at_end.callback(frame.unpersist)
        return frame.persist(StorageLevel.MEMORY_AND_DISK)

    def close(self) -> None:
        """Drops what Spark kept, and stops the session if it was started for this table."""
        self._at_end.close()


class SparkCodes:
    """Codes of rows on a cluster, which counts them."""

    def __init__(
        self, frame: "DataFrame", dtype: np.dtype, num_columns: int, at: Sequence[int], check_source: Callable[[], None]
    ):
        self._frame, self._type, self._num_columns = frame, dtype, num_columns
        self._at, self._check_source = tuple(at), check_source

    def __repr__(self) -> str:
        return "SparkCodes(...)"

    def count(self, workload: Sequence[Columns], sizes: Sequence[int]) -> Int64[np.ndarray, " cells"]:
        whole = [1] * self._num_columns
        for column, size in zip(self._at, sizes, strict=True):
            whole[column] = size
        cliques = [tuple(self._at[column] for column in clique) for clique in workload]
        counts = [np.zeros(0, np.int64)]

        def num_bytes(clique: Columns) -> int:
            return 8 * self._num_tasks * math.prod(whole[column] for column in clique)

        for portion in portions(cliques, num_bytes, RESULT_BYTES):
            task = functools.partial(_count, portion, whole, self._type)
            parts = _run(self._frame, task, self._check_source)
            counts.append(add_arrays([_no_counts(portion, whole), *parts]))
        return np.concatenate(counts)

    @functools.cached_property
    def _num_tasks(self) -> int:
        """The number of tasks, which follows from files and settings. This job also makes the codes."""
        return len(_run(self._frame, _read_through, self._check_source))

    def only(self, at: Sequence[int]) -> "SparkCodes":
        own = [self._at[index] for index in at]
        return SparkCodes(self._frame, self._type, self._num_columns, own, self._check_source)

    def part(self, kept: np.ndarray) -> "SparkCodes":
        raise _needs_rows()

    @property
    def array(self) -> Integer[np.ndarray, "rows columns"]:
        raise _needs_rows()


class SparkUnits:
    """The units of rows on a cluster."""

    def __init__(self, frame: "DataFrame", check_source: Callable[[], None]):
        self._frame, self._check_source = frame, check_source

    def count_sizes(self, bins: int) -> Int64[np.ndarray, " bins"]:
        """How many units have 1, 2, ... `bins` (or more) rows. Exact: noise must follow."""
        task = functools.partial(_count_sizes, bins)
        sizes = self._frame.groupBy(_UNIT).count().select("count")
        return add_arrays([np.zeros(bins, np.int64), *_run(sizes, task, self._check_source)])


def _needs_rows() -> ConfigError:
    return ConfigError(
        "This method trains on batches of rows, which stay on the cluster. Use a method that counts (mst, aim,"
        " auto), or the engine local."
    )


def _no_counts(workload: Sequence[Columns], sizes: Sequence[int]) -> Int64[np.ndarray, " cells"]:
    return np.zeros(sum(math.prod(sizes[column] for column in clique) for clique in workload), dtype=np.int64)


# ------------------------------------------------------------------------------------------------------------ the tasks


def _guarded(task: Task, version: str, batches: Batches) -> Batches:
    """A task whose errors name their type and nothing else: a message may quote a value, and Spark logs it."""
    if version != __version__:
        raise RuntimeError(f"{_OTHER_VERSION} {__version__}")
    try:
        yield from task(batches)
    except Exception as error:
        raise RuntimeError(f"A batch of rows could not be counted ({type(error).__name__}).") from None


def _tables(batches: Batches, steps: Sequence[Callable[..., Any]]) -> Iterator[Any]:
    """What the steps make of the rows, in batches of even size."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= min(BATCH_ROWS, BATCH_VALUES // max(1, batch.num_columns)):
            yield _apply(steps, held)
            held = []
    if held:
        yield _apply(steps, held)


def _apply(steps: Sequence[Callable[..., Any]], batches: list[pa.RecordBatch]) -> object:
    return functools.reduce(lambda batch, step: step(batch), steps, pa.Table.from_batches(batches))


def _fold(
    steps: Sequence[Callable[..., Any]], count: Callable[..., Any], add: Callable[..., Any], batches: Batches
) -> Batches:
    tables = _tables(batches, steps)
    first = next(tables, None)
    if first is not None:
        yield _to_row(LocalBatches(itertools.chain([first], tables)).fold(count, add))


def _encode(steps: Sequence[Callable[..., Any]], dtype: np.dtype, batches: Batches) -> Batches:
    for codes in _tables(batches, steps):
        yield pa.RecordBatch.from_arrays([pa.array([codes.astype(dtype).tobytes(order="F")], pa.binary())], ["codes"])


def _blocks(batches: Batches, dtype: np.dtype, num_columns: int) -> Iterator[Integer[np.ndarray, "rows columns"]]:
    for batch in batches:
        for block in batch.column(0):
            yield np.frombuffer(block.as_buffer(), dtype).reshape(num_columns, -1).T


def _count(workload: Sequence[Columns], sizes: Sequence[int], dtype: np.dtype, batches: Batches) -> Batches:
    total = _no_counts(workload, sizes)
    for codes in _blocks(batches, dtype, len(sizes)):
        total += count_workload(codes, workload, sizes, threads=1)  # a task has one core
    yield _to_row(total)


def _add_hashes(steps: Sequence[Callable[..., Any]], unit: str, columns: Sequence[str], batches: Batches) -> Batches:
    """The rows that have a unit id, and what they are grouped and ordered by."""
    for table in _tables(batches, steps):
        known = table.filter(table.column(unit).is_valid())
        # Spark's integers have signs: this keeps the order of those without.
        low, high = (content_hashes(known, unit, columns) ^ np.uint64(1 << 63)).view(np.int64)
        carried = known if unit in columns else known.drop_columns([unit])
        wired = [
            values.cast(_wire_type(field)[0]) for field, values in zip(carried.schema, carried.columns, strict=True)
        ]
        names = [*(f"c{at}" for at in range(len(wired))), _UNIT, _LOW, _HIGH]
        keys = unit_keys(known.column(unit))
        yield from pa.table([*wired, keys, pa.array(low), pa.array(high)], names).combine_chunks().to_batches()


def _wire_type(field: pa.Field) -> tuple[pa.DataType, str]:
    """The type in which Spark carries a column from task to task, in the words of Arrow and of Spark."""
    types, kind = pa.types, field.type
    if types.is_timestamp(kind) or types.is_integer(kind):
        return pa.int64(), "bigint"
    if types.is_date32(kind):
        return pa.int32(), "int"
    known = {pa.string(): "string", pa.float64(): "double", pa.bool_(): "boolean"}
    if kind not in known:
        raise ConfigError(f"Column {field.name!r} of type {kind} cannot be used with units on Spark. Drop it.")
    return kind, known[kind]


def _from_wire(table: pa.Table, types: pa.Schema) -> pa.Table:
    return pa.table([values.cast(field.type) for field, values in zip(types, table.columns, strict=True)], schema=types)


def _count_sizes(bins: int, batches: Batches) -> Batches:
    sizes = np.concatenate([np.zeros(0, np.int64), *(batch.column(0).to_numpy() for batch in batches)])
    yield _to_row(np.bincount(np.minimum(sizes, bins), minlength=bins + 1)[1:])


def _nothing(batch: object) -> Int64[np.ndarray, " none"]:
    return np.zeros(0, dtype=np.int64)


def _read_through(batches: Batches) -> Batches:
    for _ in batches:
        pass
    yield _to_row(np.zeros(0, dtype=np.int64))


# ------------------------------------------------------------------------------------------ from tasks to this process


def _map(frame: "DataFrame", task: Task, columns: str) -> "DataFrame":
    return frame.mapInArrow(functools.partial(_guarded, task, __version__), columns)


def _run(frame: "DataFrame", task: Task, check_source: Callable[[], None]) -> list[Any]:
    """One job: the part that each task counted. The only place where anything of the tasks reaches this process."""
    check_source()
    try:
        rows = _map(frame, task, "part array<binary>").toArrow()
    except Exception as error:
        check_source()  # a file that is being written looks damaged
        raise _explain(error) from None
    check_source()  # Spark reads the files again where it could not keep what it made of them
    return [_from_row(row) for row in rows.column("part").to_pylist()]


def _trust() -> None:
    """For a table whose source cannot be seen from here."""


def _to_row(part: "np.ndarray | tuple[np.ndarray, ...] | tuple[pa.Table, ...]") -> pa.RecordBatch:
    """Counts as one row of bytes. Their number follows from the query, but for values that are counted to find
    categories. The bytes are compressed, so their size follows from the counts; it stays between the tasks and here."""
    kind = b"tuple" if isinstance(part, tuple) else b"array"
    cells = [kind, *map(_to_bytes, part if isinstance(part, tuple) else (part,))]
    return pa.RecordBatch.from_arrays([pa.array([cells], pa.list_(pa.binary()))], ["part"])


def _from_row(cells: list[bytes]) -> "np.ndarray | tuple[Any, ...]":
    part = tuple(map(_from_bytes, cells[1:]))
    return part if cells[0] == b"tuple" else part[0]


def _to_bytes(counts: "np.ndarray | pa.Table") -> bytes:
    sink = io.BytesIO()
    if isinstance(counts, np.ndarray):
        np.save(sink, counts, allow_pickle=False)
    else:
        with pa.ipc.new_stream(sink, counts.schema) as stream:
            stream.write_table(counts)
    return zlib.compress(sink.getbuffer(), level=1)


def _from_bytes(content: bytes) -> "np.ndarray | pa.Table":
    data = zlib.decompress(content)
    if data.startswith(np.lib.format.MAGIC_PREFIX):
        return np.load(io.BytesIO(data), allow_pickle=False)
    return pa.ipc.open_stream(data).read_all()


_OTHER_VERSION = "understudy on the executors has version"


def _explain(error: Exception) -> ClusterError:
    """What went wrong, without Spark's own message, which may quote rows."""
    text = str(error)
    missing = re.search(r"(?m)^\s*ModuleNotFoundError: No module named '([\w.]+)'", text)  # a whole line, of Python's
    if missing and missing[1].split(".")[0] in sys.modules:  # which no value of a row adds to
        return ClusterError(
            f"The Spark executors cannot import {missing[1].split('.')[0]}. Install understudy on them, or ship an"
            " environment that has it (docs/howto/spark.md). On one machine, set PYSPARK_PYTHON to the Python of this"
            " process before the session starts."
        )
    if re.search(r"(?m)^\s*pyspark\.[\w.]+: \[PYTHON_VERSION_MISMATCH\] Python in worker ", text):
        return ClusterError(
            "The Spark executors run a different version of Python. Set PYSPARK_PYTHON to the version of this process."
        )
    if re.search(rf"(?m)^\s*RuntimeError: {_OTHER_VERSION} ", text):
        return ClusterError(
            f"The Spark executors have another version of understudy, expected {__version__}. Install it there."
        )
    return ClusterError(
        f"A Spark job failed for good ({type(error).__name__}): a file is damaged, a value breaks a rule of Spark, or"
        " an executor was lost. The logs of the executors say more; they may quote rows."
    )
