"""What one cell does: load its table, synthesize, score. Runs in the process of whichever engine was chosen.

Runs are seeded, on public data: repeatable, and not private.
"""

import dataclasses
import datetime
import functools
import hashlib
import json
import os
import platform
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from understudy._version import __version__
from understudy.benchmark.cells import Cell, file_checksum
from understudy.benchmark.results import DONE, FAILED, Record
from understudy.benchmark.suite import Scoring, TableSpec
from understudy.benchmark.tables import BenchmarkTable, load_table, split_rows
from understudy.errors import TableError, UnderstudyError, UnderstudyWarning
from understudy.run.atomic import write_file

if TYPE_CHECKING:
    from understudy.benchmark.scoring import Reference
    from understudy.privacy.mechanisms.discovery import Binning
    from understudy.release import Release


@dataclasses.dataclass(frozen=True)
class Places:
    """Where engines and their workers read and write files."""

    folder: Path
    """The results of the suite."""
    environments: Path
    """The environments of peers."""

    @property
    def scratch(self) -> Path:
        """The folder for synthetic tables between fit and score, and for what scores need from real tables alone."""
        return self.folder / "scratch"

    def table_file(self, cell: Cell) -> Path:
        return self.scratch / f"{cell.key}.parquet"


Synthetic = tuple[pa.Table, Record]
"""A synthetic table, and the part of a record that says how it was made."""


def run_cell(cell: Cell, places: Places) -> Record:
    """One cell from table to scores. Every error becomes a record with its reason."""
    try:
        table, made = synthesize(cell, places)
        return {**made, **score(cell, table, places)}
    except Exception as error:
        return failed(error)


def fit_cells(cells: Sequence[Cell], places: Places) -> Iterator[tuple[Cell, Record]]:
    """Cells of one program, trained together; their tables go to the scratch folder, to be scored elsewhere."""
    from understudy.benchmark.population import fit_population
    from understudy.privacy.accounting.ledger import Guarantee

    table, began = load_spec(cells[0].table, cells[0].data), time.perf_counter()
    members = [(Guarantee(float(cell.epsilon or 0.0), cell.delta), cell.seed) for cell in cells]
    method = cells[0].method
    assert method is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnderstudyWarning)
        releases = fit_population(
            table.train, table.schema, method.expression, members, binning=_binning(cells[0].bins)
        )
    seconds_each = (time.perf_counter() - began) / len(cells)
    for cell, release in zip(cells, releases, strict=True):
        if isinstance(release, Exception):
            yield cell, failed(release)
            continue
        try:
            synthetic, made = _sample(cell, release, table, fit_seconds=seconds_each)
            pq.write_table(synthetic, places.table_file(cell), compression="zstd")
            yield cell, {**made, "accelerator": _accelerator(), "population": len(cells)}
        except Exception as error:
            yield cell, failed(error)


def score_cell(cell: Cell, places: Places) -> Record:
    """Scores of a table that `fit_cells` left in the scratch folder."""
    path = places.table_file(cell)
    try:
        return score(cell, pq.read_table(path), places)
    except Exception as error:
        return failed(error)
    finally:
        path.unlink(missing_ok=True)


def synthesize(cell: Cell, places: Places) -> Synthetic:
    """The synthetic table of a cell; for real data, the training rows."""
    table = load_spec(cell.table, cell.data)
    if cell.method is None:
        return table.train, _describe({})
    if cell.method.peer is not None:
        return _run_peer(cell, table, places)
    from understudy.api import fit
    from understudy.privacy.accounting.ledger import Guarantee

    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnderstudyWarning)
        release = fit(
            table.train,
            cell.method.expression,
            Guarantee(float(cell.epsilon or 0.0), cell.delta),
            schema=table.schema,
            binning=_binning(cell.bins),
            seed=cell.seed,
        )
    return _sample(cell, release, table, fit_seconds=time.perf_counter() - began)


def score(cell: Cell, synthetic: pa.Table, places: Places) -> Record:
    """The scores of a synthetic table, as part of a record."""
    from understudy.benchmark.scoring import score_table

    began = time.perf_counter()
    scored = score_table(
        synthetic, _reference(cell.table, cell.data, cell.scoring, places.scratch), cell.scoring.metrics
    )
    # What is the same for all records of a table, only that of the real data has.
    shared = () if cell.method is None else ("real_classifiers", "settings")
    return {
        "status": DONE,
        "failure": None,
        "metrics": scored.metrics,
        "details": {key: value for key, value in scored.details.items() if key not in shared},
        "rows": scored.rows,
        "seconds": {"score": round(time.perf_counter() - began, 3)},
    }


def failed(error: BaseException) -> Record:
    """The record of a cell that ended with this error."""
    if isinstance(error, MemoryError):
        return failure("memory", "The cell ran out of memory.")
    reason = getattr(error, "reason", "error")
    text = str(error) if isinstance(error, UnderstudyError) else f"{type(error).__name__}: {error}"
    return failure(reason if isinstance(reason, str) else "error", text)


def failure(reason: str, message: str) -> Record:
    """The record of a failed cell. `reason`: time, memory, died, error or install."""
    return {"status": FAILED, "failure": {"reason": reason, "message": " ".join(message.split())[:500]}, "metrics": {}}


def complete(record: Record, *, engine: str, peak_mb: float | None) -> Record:
    """A complete record, with the version, the machine and the date."""
    return {
        "metrics": {},
        "details": {},
        "seconds": {},
        "rows": {},
        **record,
        "peak_mb": None if peak_mb is None else round(peak_mb, 1),
        "version": __version__,
        "machine": machine(),
        "engine": engine,
        "date": datetime.date.today().isoformat(),
    }


def _accelerator() -> str | None:
    """The device that networks are trained on; None: the CPU."""
    import jax

    device = jax.devices()[0]
    return None if device.platform == "cpu" else str(device.device_kind)


@functools.cache
def machine() -> str:
    """Processor, cores and Python of this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{platform.machine()}, {cores} core{'s' * (cores != 1)}, Python {platform.python_version()}"


# --------------------------------------------------------------------------------------------------------------- parts


@functools.lru_cache(maxsize=4)
def load_spec(spec: TableSpec, checksum: str) -> BenchmarkTable:
    """A table of the catalogue, or a user's file, which must not have changed since the run began."""
    if spec.file is None:
        return load_table(spec.name)
    if file_checksum(spec) != checksum:
        raise TableError(f"The files of table {spec.name!r} have changed since this run began. Start it again.")
    return _load_file(spec)


def _load_file(spec: TableSpec) -> BenchmarkTable:
    from understudy.schema import Schema
    from understudy.tables import read_table

    assert spec.file is not None
    assert spec.schema is not None
    schema = Schema.read(spec.schema)
    table, _ = read_table(spec.file, schema=schema)
    if spec.test_file is not None:
        train, (test, _) = table, read_table(spec.test_file, schema=schema)
    else:
        train, test = split_rows(table, test_fraction=spec.test_fraction, seed=spec.split_seed)
    if spec.target is not None:
        schema = schema.with_target(spec.target)
    schema = dataclasses.replace(schema, rows=train.num_rows)
    return BenchmarkTable(spec.name, train, test, schema, schema.target)


def _binning(bins: str | None) -> "Binning | None":
    from understudy.privacy.mechanisms.discovery import Binning

    return None if bins is None else Binning(bins=bins)


def _sample(cell: Cell, release: "Release", table: BenchmarkTable, *, fit_seconds: float) -> Synthetic:
    from understudy.certificate.json import to_json

    began = time.perf_counter()
    rows = release.sample_arrow(min(cell.synthetic_rows, table.train.num_rows), seed=cell.seed)
    seconds = {"fit": fit_seconds, "sample": time.perf_counter() - began}
    return rows, _describe(seconds, certificate=to_json(release.statement))


def _run_peer(cell: Cell, table: BenchmarkTable, places: Places) -> Synthetic:
    from understudy.benchmark.peers import read_peer

    assert cell.method is not None
    assert cell.method.peer_file is not None
    found = read_peer(cell.method.peer_file).synthesize(
        cell.method.expression,
        table.train,
        table.schema,
        epsilon=float(cell.epsilon or 0.0),
        delta=float(cell.delta or 0.0),
        seed=cell.seed,
        num_rows=min(cell.synthetic_rows, table.train.num_rows),
        target=table.target,
        root=places.environments,
    )
    version = {"peer_version": found.version} if found.version else {}
    return found.table, _describe({"fit": found.seconds}) | version


def _describe(seconds: dict[str, float], certificate: dict[str, object] | None = None) -> Record:
    rounded = {name: round(value, 3) for name, value in seconds.items()}
    return {"fit_seconds": rounded, "certificate": certificate}


@functools.lru_cache(maxsize=4)
def _reference(spec: TableSpec, checksum: str, scoring: Scoring, scratch: Path) -> "Reference":
    """What the scores need from the real table alone: computed once for each table and scoring settings."""
    from understudy.benchmark.scoring import Reference

    table, settings = load_spec(spec, checksum), (scoring.classifiers, scoring.max_rows)
    reference = Reference.of(
        table.train, table.test, schema=table.schema, target=table.target, classifiers=settings[0], max_rows=settings[1]
    )
    if "sra" in scoring.metrics:  # the only metric that needs classifiers trained on real rows
        text = json.dumps([checksum, *settings, __version__])
        path = scratch / f"reference-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
        try:
            return dataclasses.replace(reference, saved=json.loads(path.read_text()))
        except FileNotFoundError:
            write_file(path, json.dumps(reference.model_scores).encode(), force=True)
    return reference
