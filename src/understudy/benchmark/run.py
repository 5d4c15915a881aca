"""Runs a suite: finished cells are skipped, results are saved as they arrive, and an interrupted run is resumed."""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.benchmark.cells import Cell, cells_of, check_methods, table_checksums
from understudy.benchmark.engines import Engine, Finished
from understudy.benchmark.execution import Places, complete, failed
from understudy.benchmark.results import DONE, Record, ResultStore, describe
from understudy.benchmark.suite import Limits, Suite
from understudy.errors import TableError
from understudy.progress import Progress

if TYPE_CHECKING:
    from understudy.benchmark.tracking import MLflowTracker


@dataclasses.dataclass(frozen=True)
class Status:
    """How many cells of a suite are done."""

    total: int
    done: int
    """Cells with scores, those of earlier runs included."""
    failures: tuple[Record, ...]
    missing: dict[str, str]
    """Tables that were left out, and what is missing."""
    other: int
    """Records in the folder that do not belong to this suite as it is now."""
    run: int = 0
    """Cells that this run ran."""

    @property
    def failed(self) -> int:
        return len(self.failures)

    @property
    def open(self) -> int:
        return self.total - self.done - self.failed


def run_suite(
    suite: Suite,
    folder: str | os.PathLike[str],
    engine: Engine,
    *,
    retry: bool = False,
    wait: bool = False,
    tracker: "MLflowTracker | None" = None,
    progress: Progress | None = None,
    environments: Path | None = None,
    note: Callable[[str], None] = lambda text: None,
    command: str = "",
    whole: Suite | None = None,
) -> Status:
    """Runs all cells that have no result yet; with `retry` also those that failed.

    An interruption loses only the cells that are running.
    """
    checksums, missing = table_checksums(suite)
    if missing and not checksums:
        name, why = next(iter(missing.items()))
        raise TableError(f"None of the suite's tables is available. {name}: {why}")
    cells = cells_of(suite, checksums=checksums)
    store = ResultStore(folder)
    places = Places(store.folder.resolve(), environments or store.folder.resolve() / "environments")
    with store.open(wait=wait):
        records = store.read()
        closed = {key for key, record in records.items() if not retry or record["status"] == DONE}
        todo = [cell for cell in cells if cell.key not in closed]
        finished = len(cells) - len(todo)
        note(f"{len(cells):,} cells, {finished:,} of them finished earlier.")
        if todo:
            check_methods(suite)
        store.write_suite(suite, command, *_all_cells(whole or suite, cells))
        try:
            with contextlib.closing(_run(engine, todo, suite.limits, places, note)) as results:
                for result in results:
                    record = keep_result(suite.name, store, result.cell, result.record)
                    if tracker is not None:
                        tracker.log(record)
                    finished += 1
                    if progress is not None:
                        progress(finished / len(cells), _describe_progress(record, finished, len(cells)))
        finally:
            if tracker is not None:
                tracker.close()
        if todo or not store.parquet.exists():
            store.write_parquet()
        return _count(cells, missing, store.read(), run=len(todo))


def _all_cells(whole: Suite, cells: Sequence[Cell]) -> tuple[list[Cell], dict[str, str]]:
    """The cells of the whole suite and those of a part of it, and the tables that are missing."""
    checksums, missing = table_checksums(whole)
    found = {cell.key: cell for cell in [*cells_of(whole, checksums=checksums), *cells]}
    return list(found.values()), missing


def _run(
    engine: Engine, cells: Sequence[Cell], limits: Limits, places: Places, note: Callable[[str], None]
) -> Generator[Finished, None, None]:
    """The finished cells of the engine. Environments of peers are built first, outside the time limit of a cell."""
    from understudy.benchmark.peers import PeerError, read_peer

    absent: dict[str, Record] = {}
    for file in sorted({cell.method.peer_file for cell in cells if cell.method and cell.method.peer_file}):
        peer = read_peer(file)
        note(f"Preparing the environment of {peer.name}.")
        try:
            peer.prepare(places.environments)
        except PeerError as error:
            absent[file] = complete(failed(error), engine=engine.name, peak_mb=None)
    there: list[Cell] = []
    for cell in cells:
        file = "" if cell.method is None else cell.method.peer_file or ""
        if file in absent:
            yield Finished(cell, dict(absent[file]))
        else:
            there.append(cell)
    shutil.rmtree(places.scratch, ignore_errors=True)  # left by a run that was killed
    places.scratch.mkdir(parents=True)
    try:
        if there:
            yield from engine.run(there, limits, places)
    finally:
        shutil.rmtree(places.scratch, ignore_errors=True)


def keep_result(suite_name: str, store: ResultStore, cell: Cell, found: Record) -> Record:
    """Completes a record, saves the documents that came with it, and appends it to the results."""
    record = {**describe(cell, suite_name), **found}
    certificate = record.pop("certificate", None)
    fit_seconds, seconds = record.pop("fit_seconds", {}), record.get("seconds") or {}
    assert isinstance(fit_seconds, dict)
    assert isinstance(seconds, dict)
    record["seconds"] = {**fit_seconds, **seconds}
    if accelerator := record.pop("accelerator", None):
        record["machine"] = f"{record.get('machine', '')}, trained on {accelerator}"
    if certificate is not None:
        store.keep_artefact(cell.key, "certificate.json", certificate)
    if record["status"] == DONE:
        scores = {key: record[key] for key in ("table", "method", "epsilon", "seed", "metrics", "details", "rows")}
        store.keep_artefact(cell.key, "scorecard.json", scores)
    store.add(record)
    return record


def _describe_progress(record: Record, finished: int, total: int) -> str:
    which = "" if record["epsilon"] is None else f", epsilon {record['epsilon']:g}, seed {record['seed']}"
    state = "" if record["status"] == DONE else " FAILED"
    return f"{finished:,} of {total:,} cells: {record['method']} on {record['table']}{which}{state}"


def suite_status(suite: Suite, folder: str | os.PathLike[str]) -> Status:
    """Counts what is finished. Reads only the results, so it can be called while the suite runs."""
    checksums, missing = table_checksums(suite)
    return _count(cells_of(suite, checksums=checksums), missing, ResultStore(folder).read())


def _count(cells: Sequence[Cell], missing: dict[str, str], found: Mapping[str, Record], run: int = 0) -> Status:
    mine = [found[cell.key] for cell in cells if cell.key in found]
    failures = tuple(record for record in mine if record["status"] != DONE)
    return Status(len(cells), len(mine) - len(failures), failures, missing, len(found) - len(mine), run)
