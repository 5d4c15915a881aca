"""The results of a suite on disk: one JSON object per line, appended and synced as cells finish, and a Parquet copy.

Only complete lines count: a cell whose line is truncated runs again. One run writes at a time, guarded by a lock.
"""

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from understudy.benchmark.cells import Cell
from understudy.benchmark.peers import read_peer
from understudy.benchmark.suite import Suite
from understudy.errors import ConfigError, TableError, UnderstudyError
from understudy.run.atomic import atomic_path, explain_failure, json_bytes, write_file

try:
    import fcntl
except ImportError:  # Windows: two runs at once are the user's responsibility there
    fcntl = None  # type: ignore[assignment]  # no module, so no lock

Record = dict[str, object]
"""One line of results.jsonl: the fields of `describe` and of `execution.complete`."""

DONE, FAILED = "done", "failed"
GROUPS = {"metrics": "metric_", "seconds": "seconds_", "rows": "rows_", "failure": "failure_"}
"""The prefixes of the columns of the Parquet file that hold the parts of a field."""


class Locked(UnderstudyError):
    """Another run is writing to this folder."""


def describe(cell: Cell, suite_name: str) -> Record:
    """The fields of a record that are known before the cell runs."""
    method = cell.method
    return {
        "key": cell.key,
        "suite": suite_name,
        "table": cell.table.name,
        "method": cell.label,
        "expression": None if method is None else method.expression,
        "peer": None if method is None else method.peer,
        "peer_version": None,
        "wrapper": None if method is None else method.wrapper,
        "inner": None if method is None else method.inner,
        "epsilon": cell.epsilon,
        "delta": cell.delta,
        "seed": cell.seed,
        "data": cell.data,
        "code": cell.code,
    }


class ResultStore:
    """The folder of one suite's results."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(f"{folder} is a file, expected the name of a folder. Choose another one with --out.")

    @property
    def lines(self) -> Path:
        return self.folder / "results.jsonl"

    @property
    def parquet(self) -> Path:
        return self.folder / "results.parquet"

    def read(self) -> dict[str, Record]:
        """The latest record of each cell, by key. Incomplete lines are skipped."""
        try:
            content = self.lines.read_bytes()
        except FileNotFoundError:
            return {}
        records: dict[str, Record] = {}
        for line in content.splitlines():
            record = _parse(line)
            if record is not None:
                records.pop(str(record["key"]), None)  # later records stand behind earlier ones
                records[str(record["key"])] = record
        return records

    def read_current(self) -> tuple[list[Record], int, int]:
        """The records of the suite as it was last run, under its labels; the numbers of its cells and other records."""
        records, cells = self.read(), self._cells()
        if not cells:
            return list(records.values()), len(records), 0
        current = [{**record, **cells[key]} for key, record in records.items() if key in cells]
        return current, len(cells), len(records) - len(current)

    def _cells(self) -> dict[str, dict[str, object]]:
        try:
            return dict(json.loads((self.folder / "suite.json").read_text(encoding="utf-8")).get("cells", {}))
        except (OSError, ValueError):
            return {}

    @contextlib.contextmanager
    def open(self, *, wait: bool = False) -> Iterator[None]:
        """Holds the lock of the folder, which is created if it does not exist."""
        with explain_failure(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._lock(handle, wait=wait)
            self._repair()
            yield
        finally:
            os.close(handle)

    def _lock(self, handle: int, *, wait: bool) -> None:
        while fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if not wait:
                    raise Locked(
                        f"Another run is writing to {self.folder}. Wait for it (--wait), or choose another folder "
                        "with --out."
                    ) from None
                time.sleep(0.5)

    def _repair(self) -> None:
        """Ends the line that a killed run left incomplete, so that the next record is on a line of its own."""
        with contextlib.suppress(FileNotFoundError), self.lines.open("rb+") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")

    def add(self, record: Record) -> None:
        """Appends a record and syncs it to disk."""
        line = (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode()
        with explain_failure(self.lines), self.lines.open("ab", buffering=0) as file:
            if file.write(line) != len(line):
                raise TableError(f"{self.lines} cannot be written: the disk is full. Free some space and resume.")
            os.fsync(file.fileno())

    def keep_artefact(self, key: str, name: str, content: object) -> None:
        """Saves a JSON document of a cell, such as its certificate."""
        folder = self.folder / "artefacts" / key
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / name, json_bytes(content), force=True)

    def artefacts(self, key: str) -> list[Path]:
        """The saved documents of a cell."""
        folder = self.folder / "artefacts" / key
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def write_parquet(self) -> None:
        """Writes all records as one flat table, with a column for each metric."""
        write_parquet(self.read().values(), self.parquet)

    def write_suite(self, suite: Suite, command: str, cells: Sequence[Cell], missing: Collection[str]) -> None:
        """What was run, beside its results: the suite, and the labels of its cells by key.

        Cells of tables that are missing now are those of the last run.
        """
        labels = {key: kept for key, kept in self._cells().items() if kept["table"] in missing}
        for cell in cells:
            record = describe(cell, suite.name)
            labels[cell.key] = {name: record[name] for name in ("table", "method", "wrapper", "inner")}
        files = {cell.method.peer_file for cell in cells if cell.method is not None and cell.method.peer_file}
        footnotes = [note for file in sorted(files) for note in read_peer(file).footnotes]
        content = {**dataclasses.asdict(suite), "command": command, "footnotes": footnotes, "cells": labels}
        write_file(self.folder / "suite.json", json_bytes(content), force=True)


def _parse(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(record, dict) and {"key", "status", "table", "method"} <= record.keys()
    return record if whole else None


def write_parquet(records: Iterable[Mapping[str, object]], path: Path) -> None:
    """A flat Parquet table of records: nested fields become columns such as metric_f1 and seconds_fit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [_flatten(record) for record in records]
    names = list(dict.fromkeys(name for row in rows for name in row))

    def column(name: str) -> pa.Array:
        values = [row.get(name) for row in rows]
        if name.startswith(("epsilon", "delta", "peak_mb", "metric_", "seconds_")):
            return pa.array(values, pa.float64())
        if name.startswith(("seed", "population", "rows_")):
            return pa.array(values, pa.int64())
        return pa.array([None if value is None else str(value) for value in values], pa.string())

    table = pa.table({name: column(name) for name in names})
    with atomic_path(path, force=True, errors=(pa.ArrowException,)) as part:
        pq.write_table(table, part, compression="zstd")


def read_records(source: str | os.PathLike[str]) -> list[Record]:
    """The records of a results folder or of a Parquet copy; of a folder, those of the suite as it was last run."""
    path = Path(source)
    store = ResultStore(path if path.is_dir() else path.parent)
    if path.is_dir() or path.name == store.lines.name:
        if store.lines.exists():
            return store.read_current()[0]
        path = store.parquet
    if not path.is_file():
        raise ConfigError(f"{source} has no results. Expected a folder that 'understudy benchmark run' wrote.")
    return _read_parquet(path)


def _flatten(record: Mapping[str, object]) -> dict[str, object]:
    flat = {name: value for name, value in record.items() if name not in (*GROUPS, "details")}
    for name, prefix in GROUPS.items():
        group = record.get(name)
        flat |= {f"{prefix}{part}": value for part, value in group.items()} if isinstance(group, Mapping) else {}
    return {**flat, "details": json.dumps(record.get("details") or {}, sort_keys=True)}


def _read_parquet(path: Path) -> list[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: Sequence[dict[str, object]] = pq.read_table(path).to_pylist()
    except (pa.ArrowException, OSError):
        raise TableError(f"{path} is not a Parquet file of results.") from None
    return [_unflatten(row) for row in rows]


def _unflatten(row: Mapping[str, object]) -> Record:
    record = {name: value for name, value in row.items() if not name.startswith((*GROUPS.values(), "details"))}
    for group, prefix in GROUPS.items():
        parts = {name: value for name, value in row.items() if name.startswith(prefix) and value is not None}
        record[group] = {name.removeprefix(prefix): value for name, value in parts.items()}
    return {**record, "failure": record["failure"] or None, "details": json.loads(str(row.get("details") or "{}"))}
