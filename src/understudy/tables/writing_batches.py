"""Tables that are written batch by batch, while their rows are being made: only a few batches are ever in memory."""

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from understudy.errors import TableError

RECORD_ROWS = 2**16
"""The most rows of a record batch that is handed to another library."""
_WAITING = 1
"""Batches that are ready while the one before them is written."""
_PATIENCE = 0.2
"""Seconds after which a thread looks whether the other one has ended."""


class OutputBatches:
    """Batches of rows of one table, read once. The first is made at once: its schema is that of the table."""

    schema: pa.Schema
    num_rows: int
    """The number of rows that have been read so far."""

    def __init__(self, batches: Iterable[pa.Table]):
        rest = iter(batches)
        first = next(rest)
        self.schema = first.schema
        self.num_rows = 0
        self._batches = itertools.chain([first], rest)

    def __iter__(self) -> Iterator[pa.Table]:
        """Refuses a batch with other columns or types: a file has room for one schema."""
        for batch in self._batches:
            if not batch.schema.equals(self.schema):
                name = next((f.name for f, g in zip(batch.schema, self.schema, strict=False) if f != g), None)
                raise TableError("The batches of a table must have the same columns and types.", column=name)
            self.num_rows += batch.num_rows
            yield batch


def consume_in_thread(batches: Iterable[pa.Table], consume: Callable[[pa.RecordBatchReader], None]) -> None:
    """Calls `consume` in a thread of its own with a stream of the rows that are made in this one.

    Errors and interrupts of both sides are raised here. One on this side ends the stream, and is raised once `consume`
    has returned: the caller must discard its result. One in `consume` is raised as soon as the next batch is made.
    """
    source = OutputBatches(batches)
    waiting: queue.Queue[pa.Table | None] = queue.Queue(_WAITING)
    broken_off = threading.Event()

    def stream() -> Iterator[pa.RecordBatch]:
        # Always ends without an error: DuckDB may wait forever for a stream that raised one.
        while not broken_off.is_set():
            with contextlib.suppress(queue.Empty):
                batch = waiting.get(timeout=_PATIENCE)
                if batch is None:
                    return
                yield from batch.to_batches(max_chunksize=RECORD_ROWS)

    with ThreadPoolExecutor(1) as executor:
        consumed = executor.submit(consume, pa.RecordBatchReader.from_batches(source.schema, stream()))

        def hand_over(batch: pa.Table | None) -> None:
            while not consumed.done():
                with contextlib.suppress(queue.Full):
                    return waiting.put(batch, timeout=_PATIENCE)

        try:
            for batch in source:
                hand_over(batch)
                if consumed.done():
                    break
            hand_over(None)
            consumed.result()
        except BaseException:
            broken_off.set()
            raise
