"""Runs a suite: finished cells are skipped, results are saved as they arrive, and an interrupted run is resumed."""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from understudy.benchmark.cells import Cell, cells_of, check_methods, table_checksums
from understudy.benchmark.engines import Engine, Finished, Places
from understudy.benchmark.execution import complete, failed
from understudy.benchmark.results import DONE, Record, ResultStore, describe
from understudy.benchmark.suite import Limits, Suite
from understudy.errors import TableError
from understudy.progress import Progress


class Tracker(Protocol):
    """Another place where results are logged."""

    def log(self, record: Record, artefacts: Sequence[Path]) -> None: ...

    def close(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a run did."""

    done: int
    """Cells with scores, those of earlier runs included."""
    failed: int
    run: int
    """Cells that this run ran."""
    missing: dict[str, str]
    """Tables that were left out, and what is missing."""


def run_suite(
    suite: Suite,
    folder: str | os.PathLike[str],
    engine: Engine,
    *,
    retry: bool = False,
    wait: bool = False,
    tracker: Tracker | None = None,
    progress: Progress | None = None,
    environments: Path | None = None,
    note: Callable[[str], None] = lambda text: None,
    command: str = "",
    whole: Suite | None = None,
) -> Outcome:
    """Runs all cells that have no result yet; with `retry` also those that failed.

    An interruption loses only the cells that are running.
    """
    checksums, missing = table_checksums(suite)
    if missing and not checksums:
        name, why = next(iter(missing.items()))
        raise TableError(f"None of the suite's tables is available. {name}: {why}")
    cells = cells_of(suite, checksums=checksums)
    store = ResultStore(folder)
    with store.open(wait=wait):
        found = store.read()
        todo = [cell for cell in cells if _is_open(found.get(cell.key), retry=retry)]
        note(f"{len(cells):,} cells, {len(cells) - len(todo):,} of them finished earlier.")
        if todo:
            check_methods(suite)
        store.write_suite(suite, command, *_all_cells(whole or suite, cells))
        if todo:
            places = Places(store.folder.resolve(), environments or store.folder.resolve() / "environments")
            results = _run(engine, todo, suite.limits, places, note)
            _collect(suite, store, results, tracker, progress, skipped=len(cells) - len(todo), total=len(cells))
            found = store.read()
        elif not store.parquet.exists() and found:
            store.write_parquet()
    mine = [found[cell.key] for cell in cells if cell.key in found]
    done = sum(record["status"] == DONE for record in mine)
    return Outcome(done=done, failed=len(mine) - done, run=len(todo), missing=missing)


def _all_cells(whole: Suite, cells: Sequence[Cell]) -> tuple[list[Cell], dict[str, str]]:
    """The cells of the whole suite and those of a part of it, and the tables that are missing."""
    checksums, missing = table_checksums(whole)
    found = {cell.key: cell for cell in [*cells_of(whole, checksums=checksums), *cells]}
    return list(found.values()), missing


def _run(
    engine: Engine, cells: Sequence[Cell], limits: Limits, places: Places, note: Callable[[str], None]
) -> Iterator[Finished]:
    """Builds the environments of peers first, so that this does not count towards a cell's time limit."""
    from understudy.benchmark.peer import PeerUnavailable, build_environment, read_peer

    absent: dict[str, Record] = {}
    for name in sorted({cell.method.peer for cell in cells if cell.method is not None and cell.method.peer}):
        note(f"Preparing the environment of {name}.")
        try:
            build_environment(read_peer(name), places.environments)
        except PeerUnavailable as error:
            absent[name] = complete(failed(error), engine=engine.name, peak_mb=None)
    there: list[Cell] = []
    for cell in cells:
        peer = None if cell.method is None else cell.method.peer
        if peer in absent:
            yield Finished(cell, dict(absent[peer]))
        else:
            there.append(cell)
    if there:
        yield from engine.run(there, limits, places)


def _is_open(record: Record | None, *, retry: bool) -> bool:
    return record is None or (retry and record["status"] != DONE)


def _collect(
    suite: Suite,
    store: ResultStore,
    results: Iterator[Finished],
    tracker: Tracker | None,
    progress: Progress | None,
    *,
    skipped: int,
    total: int,
) -> None:
    finished = skipped
    shutil.rmtree(store.folder / "scratch", ignore_errors=True)  # left by a run that was killed
    store.scratch()
    try:
        with contextlib.closing(results):  # type: ignore[type-var]
            for each in results:
                record = keep_result(suite.name, store, each.cell, each.record)
                if tracker is not None:
                    tracker.log(record, store.artefacts(each.cell.key))
                finished += 1
                if progress is not None:
                    progress(finished / total, _describe_progress(record, finished, total))
    finally:
        shutil.rmtree(store.folder / "scratch", ignore_errors=True)
        if tracker is not None:
            tracker.close()
    store.write_parquet()


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
    epsilon = "" if record["epsilon"] is None else f", epsilon {record['epsilon']:g}"
    state = "" if record["status"] == DONE else " FAILED"
    seed = "" if record["epsilon"] is None else f", seed {record['seed']}"
    return f"{finished:,} of {total:,} cells: {record['method']} on {record['table']}{epsilon}{seed}{state}"


@dataclasses.dataclass(frozen=True)
class Status:
    """How many cells of a suite are done."""

    total: int
    done: int
    failed: int
    failures: tuple[Record, ...]
    missing: dict[str, str]
    other: int
    """Records in the folder that do not belong to this suite as it is now."""

    @property
    def open(self) -> int:
        return self.total - self.done - self.failed


def suite_status(suite: Suite, folder: str | os.PathLike[str]) -> Status:
    """Counts what is finished. Reads only the results, so it can be called while the suite runs."""
    checksums, missing = table_checksums(suite)
    cells = cells_of(suite, checksums=checksums)
    found = ResultStore(folder).read()
    mine = [found[cell.key] for cell in cells if cell.key in found]
    failures = tuple(record for record in mine if record["status"] != DONE)
    done = len(mine) - len(failures)
    return Status(len(cells), done, len(failures), failures, missing, len(found) - len(mine))
