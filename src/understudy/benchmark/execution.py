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

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from understudy._version import __version__
from understudy.benchmark.cells import Cell, file_checksum
from understudy.benchmark.results import DONE, FAILED, Failure, Record
from understudy.benchmark.suite import TableSpec
from understudy.benchmark.tables import BenchmarkTable, load_table
from understudy.errors import ConfigError, TableError, UnderstudyError, UnderstudyWarning

if TYPE_CHECKING:
    from understudy.benchmark.scoring import Reference
    from understudy.privacy.discovery import Binning
    from understudy.release import Release


@dataclasses.dataclass(frozen=True)
class Workplace:
    """Where a worker reads and writes files."""

    scratch: Path
    """For synthetic tables between fit and score."""
    references: Path
    """What scores need from the real tables alone, shared between processes."""
    environments: Path
    """The environments of peers."""

    def table_file(self, cell: Cell) -> Path:
        return self.scratch / f"{cell.key}.parquet"


@dataclasses.dataclass(frozen=True)
class Synthetic:
    """A synthetic table and how it was made."""

    table: pa.Table
    seconds: dict[str, float]
    certificate: dict[str, object] | None = None
    peer_version: str | None = None


def run_cell(cell: Cell, place: Workplace) -> Record:
    """One cell from table to scores. Every error becomes a record with its reason."""
    try:
        synthetic = synthesize(cell, place)
        return {**_fitted(synthetic), **score(cell, synthetic.table, place)}
    except Exception as error:
        return failed(error)


def fit_cells(cells: Sequence[Cell], place: Workplace) -> Iterator[tuple[Cell, Record]]:
    """Cells of one program, trained together; their tables go to the scratch folder, to be scored elsewhere."""
    from understudy.benchmark.population import fit_population
    from understudy.privacy.ledger import Guarantee

    table, began = load_spec(cells[0].table, cells[0].data), time.perf_counter()
    members = [(Guarantee(float(cell.epsilon or 0.0), cell.delta), cell.seed) for cell in cells]
    method = cells[0].method
    assert method is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnderstudyWarning)
        releases = fit_population(
            table.train, table.schema, method.expression, members, binning=_binning(cells[0].bins)
        )
    each = (time.perf_counter() - began) / len(cells)
    for cell, release in zip(cells, releases, strict=True):
        if isinstance(release, Exception):
            yield cell, failed(release)
            continue
        try:
            synthetic = _sample(cell, release, table, seconds={"fit": each})
            pq.write_table(synthetic.table, place.table_file(cell), compression="zstd")
            yield cell, {**_fitted(synthetic), "accelerator": _accelerator(), "population": len(cells)}
        except Exception as error:
            yield cell, failed(error)


def score_cell(cell: Cell, place: Workplace) -> Record:
    """Scores of a table that `fit_cells` left in the scratch folder."""
    path = place.table_file(cell)
    try:
        return score(cell, pq.read_table(path), place)
    except Exception as error:
        return failed(error)
    finally:
        path.unlink(missing_ok=True)


def synthesize(cell: Cell, place: Workplace) -> Synthetic:
    """The synthetic table of a cell; for real data, the training rows."""
    table = load_spec(cell.table, cell.data)
    if cell.method is None:
        return Synthetic(table.train, {})
    if cell.method.peer is not None:
        return _run_peer(cell, table, place)
    from understudy.api import fit
    from understudy.privacy.ledger import Guarantee

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
    return _sample(cell, release, table, seconds={"fit": time.perf_counter() - began})


def score(cell: Cell, synthetic: pa.Table, place: Workplace) -> Record:
    """The scores of a synthetic table, as part of a record."""
    from understudy.benchmark.scoring import score_table

    table, began = load_spec(cell.table, cell.data), time.perf_counter()
    found = score_table(
        table.train,
        table.test,
        synthetic,
        schema=table.schema,
        target=table.target,
        metrics=cell.scoring.metrics,
        max_rows=cell.scoring.max_rows,
        classifiers=cell.scoring.classifiers,
        reference=_reference(cell, place),
    )
    return {
        "status": DONE,
        "failure": None,
        "metrics": found.metrics,
        "details": found.details if cell.method is None else _own_details(found.details),
        "rows": found.rows,
        "seconds": {"score": round(time.perf_counter() - began, 3)},
    }


def _own_details(details: dict[str, object]) -> dict[str, object]:
    """Without what is the same for all records of a table: only the record of the real data keeps that."""
    return {key: value for key, value in details.items() if key not in ("real_classifiers", "settings")}


def failed(error: BaseException) -> Record:
    """The record of a cell that ended with this error."""
    if isinstance(error, MemoryError):
        return failure("memory", "The cell ran out of memory.")
    reason = getattr(error, "reason", "error")
    text = str(error) if isinstance(error, UnderstudyError) else f"{type(error).__name__}: {error}"
    return failure(reason if isinstance(reason, str) else "error", text)


def failure(reason: str, message: str) -> Record:
    return {"status": FAILED, "failure": Failure(reason, message).to_json(), "metrics": {}}


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
        order = np.random.default_rng(spec.split_seed).permutation(table.num_rows)
        cut = round((1 - spec.test_fraction) * table.num_rows)
        train, test = table.take(order[:cut]), table.take(order[cut:])
    if spec.target is not None:
        schema = schema.with_target(spec.target)
    schema = dataclasses.replace(schema, rows=train.num_rows)
    return BenchmarkTable(spec.name, train, test, schema, schema.target, checksum="")


def _binning(bins: str | None) -> "Binning | None":
    from understudy.privacy.discovery import Binning

    return None if bins is None else Binning(bins=bins)


def _sample(cell: Cell, release: "Release", table: BenchmarkTable, *, seconds: dict[str, float]) -> Synthetic:
    from understudy.certificate_json import to_json

    began = time.perf_counter()
    rows = release.sample_arrow(min(cell.synthetic_rows, table.train.num_rows), seed=cell.seed)
    seconds = {**seconds, "sample": time.perf_counter() - began}
    return Synthetic(rows, seconds, to_json(release.statement))


def _run_peer(cell: Cell, table: BenchmarkTable, place: Workplace) -> Synthetic:
    from understudy.benchmark.peer import read_peer, run_peer

    assert cell.method is not None
    assert cell.method.peer is not None
    peer = read_peer(cell.method.peer)
    found = run_peer(
        peer,
        cell.method.expression,
        table.train,
        table.schema,
        epsilon=float(cell.epsilon or 0.0),
        delta=float(cell.delta or 0.0),
        seed=cell.seed,
        num_rows=min(cell.synthetic_rows, table.train.num_rows),
        target=table.target,
        root=place.environments,
    )
    return Synthetic(found.table, {"fit": found.seconds}, peer_version=found.version)


def _fitted(synthetic: Synthetic) -> Record:
    seconds = {name: round(value, 3) for name, value in synthetic.seconds.items()}
    part: Record = {"fit_seconds": seconds, "certificate": synthetic.certificate}
    return {**part, "peer_version": synthetic.peer_version} if synthetic.peer_version else part


_REFERENCES: "dict[str, Reference]" = {}


def _reference(cell: Cell, place: Workplace) -> "Reference":
    """What the scores need from the real table alone: computed once for each table and scoring settings."""
    from understudy.benchmark.scoring import Reference

    name = f"reference-{_reference_key(cell)}.json"
    if name in _REFERENCES:
        return _REFERENCES[name]
    table, path = load_spec(cell.table, cell.data), place.references / name
    real = (table.train, table.test)
    settings = {"classifiers": cell.scoring.classifiers, "max_rows": cell.scoring.max_rows}
    try:
        found = Reference.from_json(
            json.loads(path.read_text()),
            *real,
            schema=table.schema,
            target=table.target,
            **settings,  # type: ignore[arg-type]
        )
    except (OSError, ValueError, ConfigError):
        found = Reference.of(*real, schema=table.schema, target=table.target, **settings)  # type: ignore[arg-type]
        if "sra" in cell.scoring.metrics:  # the only metric that needs classifiers trained on real rows
            part = path.with_suffix(f".{os.getpid()}.part")
            part.write_text(json.dumps(found.to_json()))
            os.replace(part, path)
    _REFERENCES[name] = found
    return found


def _reference_key(cell: Cell) -> str:
    text = json.dumps([cell.data, cell.scoring.classifiers, cell.scoring.max_rows, __version__])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
