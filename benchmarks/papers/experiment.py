"""Experiments of the papers as cells: each is one release of a public table, scored, and one line of a result file.

Cells of one group differ in seed and budget, or in what no network depends on, and are trained as one population. With
`--trainers` and `--workers`, populations run in processes that share the accelerator, and scores in processes of one
core each. A line is appended as soon as its cell is scored, and a cell with a line is not run again, so a run that is
cut short loses little. Seeded runs on public data: repeatable, and not private.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import math
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import understudy as us
from benchmarks.papers.command import run_script
from benchmarks.papers.workers import Failure, Workers, use_one_core
from understudy.evaluation.table import Layout

ROOT = Path(__file__).parents[2]
RESULTS, IMAGES = ROOT / "benchmarks/results", ROOT / "docs/images"
DELTA = 1e-5
PATIENCE = 600.0
"""Seconds that a population waits for a member: one that plans for long must not train by itself."""
MAX_MEMBERS = 160
"""Cells that are trained as one program; larger groups are split."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One release to make and to score."""

    table: str
    method: str
    """Its name on the page."""
    expression: str
    epsilon: float
    """Infinite: not private."""
    seed: int
    group: str = ""
    """Cells of one table with the same group are trained together; empty: those of the same expression."""

    @property
    def key(self) -> str:
        return json.dumps([self.table, self.method, self.expression, self.epsilon, self.seed])

    @property
    def guarantee(self) -> us.Guarantee:
        return us.Guarantee(self.epsilon, DELTA) if math.isfinite(self.epsilon) else us.Guarantee.not_private()


@dataclasses.dataclass(frozen=True)
class Public:
    """A public table, divided in two, and what is declared about it."""

    train: pa.Table
    test: pa.Table
    schema: us.Schema

    @property
    def layout(self) -> Layout:
        return Layout.of(self.train, self.schema, self.test)


Line = Mapping[str, Any]
"""One line of a result file."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What a script runs. Its functions belong to modules, so that processes can find them."""

    name: str
    """Of the result file and the page."""
    load: Callable[[str, int], Public]
    """A table by its name, and the seed of the cell."""
    score: Callable[[Cell, Public, pa.Table], dict[str, Any]]
    """`scores`, and possibly `details`, of a synthetic table."""
    baselines: Mapping[str, Callable[[Public, int], pa.Table]] = dataclasses.field(default_factory=dict)
    """Tables that need no fit, such as the real rows, by the expression that stands for them; of a table and a seed."""
    inspect: Callable[[Cell, Public, us.Release], dict[str, float]] | None = None
    """Scores that need the model itself."""
    public: Callable[[Cell, Public], pa.Table | None] | None = None
    """The public table that a cell is given."""
    amend: Callable[[Cell, us.Release], us.Release] | None = None
    """A release with a statement that says what was done, where its own does not."""
    binning: us.Binning = dataclasses.field(default_factory=us.Binning)
    synthetic_rows: int | None = None
    """None: as many as there are training rows."""


# ------------------------------------------------------------------------------------------------------------ one group


def fit_group(experiment: Experiment, cells: Sequence[Cell], folder: Path) -> list[dict[str, Any]]:
    """Fits cells as one population and writes their synthetic tables; an error becomes the line of its cell."""
    from understudy.benchmark.population import Population
    from understudy.errors import UnderstudyWarning

    began, tables, fits = time.monotonic(), _tables(experiment, cells), []
    if make := experiment.baselines.get(cells[0].expression):
        for cell in cells:
            pq.write_table(make(tables[cell.seed], cell.seed), _file(folder, cell))
        return _write_facts(folder, cells, [{"inspected": {}, "seconds": 0.0, "population": 1} for _ in cells])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnderstudyWarning)
        for cell in cells:
            table = tables[cell.seed]
            public = None if experiment.public is None else experiment.public(cell, table)
            fits.append(partial(_fit, experiment, cell, table, public))
        releases = Population[us.Release](patience=PATIENCE).run(fits)
        seconds = time.monotonic() - began
        made = [
            _sampled(experiment, cell, tables[cell.seed], release, folder)
            | {"seconds": round(seconds / len(cells), 3), "population": len(cells)}
            for cell, release in zip(cells, releases, strict=True)
        ]
    return _write_facts(folder, cells, made)


def _fit(experiment: Experiment, cell: Cell, table: Public, public: pa.Table | None) -> us.Release:
    """One member of the population. An expression that cannot be read is an error of its cell alone."""
    from benchmarks.papers.methods import read

    return us.fit(
        table.train,
        read(cell.expression),
        cell.guarantee,
        schema=table.schema,
        binning=experiment.binning,
        seed=cell.seed,
        public=public,
    )


def _tables(experiment: Experiment, cells: Sequence[Cell]) -> dict[int, Public]:
    return {seed: experiment.load(cells[0].table, seed) for seed in sorted({cell.seed for cell in cells})}


def _sampled(
    experiment: Experiment, cell: Cell, table: Public, release: us.Release | Exception, folder: Path
) -> dict[str, Any]:
    if isinstance(release, Exception):
        return {"error": f"{type(release).__name__}: {release}"}
    assert release.statement.epsilon <= cell.epsilon
    rows = release.sample_arrow(experiment.synthetic_rows or table.train.num_rows, seed=cell.seed)
    pq.write_table(rows, _file(folder, cell))
    stated = release if experiment.amend is None else experiment.amend(cell, release)
    found = {} if experiment.inspect is None else experiment.inspect(cell, table, release)
    return {"inspected": found, "stated_epsilon": stated.statement.epsilon}


def _file(folder: Path, cell: Cell) -> Path:
    import hashlib

    return folder / f"{hashlib.sha256(cell.key.encode()).hexdigest()[:20]}.parquet"


def _write_facts(folder: Path, cells: Sequence[Cell], made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a run that is cut before the scores leaves beside a table; written after it, so that both are whole."""
    for cell, facts in zip(cells, made, strict=True):
        if "error" not in facts:
            part = _file(folder, cell).with_suffix(".part")
            part.write_text(json.dumps(facts))
            os.replace(part, part.with_suffix(".json"))
    return made


def _read_facts(folder: Path, cell: Cell) -> dict[str, Any] | None:
    file = _file(folder, cell).with_suffix(".json")
    return json.loads(file.read_text()) if file.exists() else None


def score_cell(experiment: Experiment, cell: Cell, fitted: Line, folder: Path) -> dict[str, Any]:
    """The line of a cell."""
    facts = {key: fitted[key] for key in ("seconds", "population")}
    line = {"key": cell.key, **{f.name: getattr(cell, f.name) for f in dataclasses.fields(Cell) if f.name != "group"}}
    line |= facts | {"stated_epsilon": fitted.get("stated_epsilon", math.inf)}
    line |= {"machine": machine(), "day": str(datetime.date.today())}
    if "error" in fitted:
        return line | {"scores": {}, "error": fitted["error"]}
    path = _file(folder, cell)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = experiment.score(cell, experiment.load(cell.table, cell.seed), pq.read_table(path))
    path.with_suffix(".json").unlink(missing_ok=True)
    path.unlink()
    return line | found | {"scores": found["scores"] | fitted["inspected"]}


def machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    device = os.environ.get("UNDERSTUDY_DEVICE")
    return (
        f"{platform.machine()}, {cores} CPU cores{f', {device}' if device else ''}, Python {platform.python_version()}"
    )


# ---------------------------------------------------------------------------------------------------------------- a run


def run_cells(
    experiment: Experiment,
    cells: Sequence[Cell],
    *,
    trainers: int = 0,
    workers: int = 0,
    limit_seconds: float = math.inf,
    block: int | None = None,
    tables: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """The lines of these cells, in the order in which they are finished; after the limit no more of them begin.

    Synthetic tables wait in the folder `tables` for their scores; those that a run has left there are not made again.
    """
    end = time.monotonic() + limit_seconds
    with contextlib.ExitStack() as stack:
        folder = tables or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        waiting = {cell: facts for cell in cells if (facts := _read_facts(folder, cell)) is not None}
        groups = group_cells([cell for cell in cells if cell not in waiting], block)
        if trainers:
            yield from _run_in_processes(experiment, groups, waiting, folder, trainers, workers or 1, end)
            return
        for cell, facts in waiting.items():
            if time.monotonic() >= end:
                return
            yield score_cell(experiment, cell, facts, folder)
        for group in groups:
            if time.monotonic() >= end:
                return
            for cell, fitted in zip(group, fit_group(experiment, group, folder), strict=True):
                yield score_cell(experiment, cell, fitted, folder)


def group_cells(cells: Sequence[Cell], block: int | None = None) -> list[list[Cell]]:
    """Cells that are trained together, in the order of their first ones; with a block of seeds, the first seeds of
    all, then the next ones, so that a run that is cut short has some of each."""
    groups: dict[tuple[int, str, str, bool], list[Cell]] = {}
    for cell in cells:
        part = cell.seed // block if block else 0
        key = (part, cell.table, cell.group or cell.expression, math.isfinite(cell.epsilon))
        groups.setdefault(key, []).append(cell)
    parts = []
    for _, group in sorted(groups.items(), key=lambda item: item[0][0]):
        number = -(-len(group) // MAX_MEMBERS)
        size = -(-len(group) // number)
        parts += [group[start : start + size] for start in range(0, len(group), size)]
    return parts


def _failed(cell: Cell, failure: Failure) -> dict[str, Any]:
    """The line of a cell whose process did not finish it."""
    return {"key": cell.key, **vars(cell), "scores": {}, "error": failure.reason}


def _run_in_processes(
    experiment: Experiment,
    groups: Sequence[Sequence[Cell]],
    waiting: Mapping[Cell, Line],
    folder: Path,
    trainers: int,
    workers: int,
    end: float,
) -> Iterator[dict[str, Any]]:
    """Scores of the first seeds come first: what a run that is cut short has is a table of fewer seeds."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # trainers share one accelerator
    with Workers[Sequence[Cell]](trainers) as fitting, Workers[Cell](workers, use_one_core) as scoring:

        def score_later(cell: Cell, facts: Line) -> None:
            scoring.submit(cell, score_cell, experiment, cell, facts, folder, urgency=cell.seed)

        for cell, facts in waiting.items():
            score_later(cell, facts)
        for group in groups:
            fitting.submit(group, fit_group, experiment, group, folder)
        while fitting or scoring:
            left = end - time.monotonic()
            if left <= 0:
                print(f"Time is up: {len(fitting)} groups, {len(scoring)} scores are left out.", file=sys.stderr)
                return
            trained = set(fitting.pipes())
            for pipe in connection.wait([*trained, *scoring.pipes()], None if left == math.inf else left):
                if pipe not in trained:
                    for cell, line in scoring.receive(pipe):
                        yield _failed(cell, line) if isinstance(line, Failure) else line
                    continue
                for group, fitted in fitting.receive(pipe):
                    what = f"{len(group)} x {group[0].method} on {group[0].table}"
                    if isinstance(fitted, Failure):
                        yield from (_failed(cell, fitted) for cell in group)
                        continue
                    print(f"{what}: fitted", file=sys.stderr, flush=True)
                    for cell, facts in zip(group, fitted, strict=True):
                        score_later(cell, facts)


# --------------------------------------------------------------------------------------------------------- command line


def main(
    experiment: Experiment,
    about: str,
    cells: Mapping[str, Sequence[Cell]],
    page: Callable[[Sequence[Line]], str],
    pictures: Callable[[Sequence[Line]], None] | None = None,
) -> None:
    """Runs the cells of a profile that have no line yet, and with --write makes the page."""
    run_script(lambda: _run(experiment, about, cells, page, pictures))


def _run(
    experiment: Experiment,
    about: str,
    cells: Mapping[str, Sequence[Cell]],
    page: Callable[[Sequence[Line]], str],
    pictures: Callable[[Sequence[Line]], None] | None,
) -> None:
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--profile", choices=list(cells), default="smoke")
    for name, kind in (("methods", str), ("tables", str), ("epsilons", float), ("seeds", int)):
        parser.add_argument(f"--{name}", nargs="+", type=kind, help=f"these {name} alone")
    parser.add_argument("--write", action="store_true", help="keep results in benchmarks/results, and write the page")
    parser.add_argument("--folder", type=Path, help="keep results in this folder instead, and write no page")
    parser.add_argument("--gather", type=Path, nargs="+", help="with --write: take over the results of such folders")
    parser.add_argument("--page", action="store_true", help="run nothing: the page of what is there")
    parser.add_argument("--trainers", type=int, default=0, help="populations at once; 0: one by one, in this process")
    parser.add_argument("--workers", type=int, default=0, help="scores at once, with --trainers")
    parser.add_argument("--limit-seconds", type=float, default=math.inf)
    parser.add_argument("--block", type=int, help="seeds that are trained as one program; left out: all of them")
    parser.add_argument("--unscored", type=Path, help="keep tables that have no scores yet in this folder")
    found = parser.parse_args()
    folder = found.folder or (RESULTS if found.write else None)
    file = None if folder is None else folder / f"{experiment.name}.jsonl"
    lines = _gather(file, [part / f"{experiment.name}.jsonl" for part in found.gather or ()])
    done = {line["key"] for line in lines}
    wanted = [] if found.page else [cell for cell in cells[found.profile] if _is_wanted(cell, found, done)]
    for name, seed in {cell.table: cell.seed for cell in wanted}.items():
        experiment.load(name, seed)  # a missing table ends the run here, not in every process
    options = {name: getattr(found, name) for name in ("trainers", "workers", "limit_seconds", "block")}
    for line in run_cells(experiment, wanted, **options, tables=found.unscored):
        result = line.get("error") or line["scores"]
        print(line["method"], line["table"], line["epsilon"], line["seed"], result, flush=True)
        lines.append(line)
        if file is not None and "error" not in line:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a") as out:
                out.write(json.dumps(line) + "\n")
    good = [line for line in lines if "error" not in line]
    if good and not found.folder:
        text = page(good)
        if found.write:
            (RESULTS / f"{experiment.name}.md").write_text(text)
            if pictures is not None:
                IMAGES.mkdir(parents=True, exist_ok=True)
                pictures(good)
        print(text)
    if len(good) < len(lines):
        print(f"{len(lines) - len(good)} of {len(lines)} cells failed; see their lines above.", file=sys.stderr)
        sys.exit(1)


def _is_wanted(cell: Cell, found: argparse.Namespace, done: set[str]) -> bool:
    chosen = {"methods": cell.method, "tables": cell.table, "epsilons": cell.epsilon, "seeds": cell.seed}
    return cell.key not in done and all(
        not getattr(found, name) or value in getattr(found, name) for name, value in chosen.items()
    )


def _gather(file: Path | None, parts: Sequence[Path]) -> list[dict[str, Any]]:
    """The lines of a file, after those of others that it lacks were added to it, and a cut one was removed."""
    if file is None:
        return []
    lines = read_lines(file)
    known = {line["key"] for line in lines}
    lines += [line for part in parts for line in read_lines(part) if line["key"] not in known]
    if lines:
        whole = file.with_suffix(".part")
        whole.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.replace(whole, file)
    return lines


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Complete lines only: the last one of a run that was killed may be cut."""
    if not file.exists():
        return []
    found = []
    for text in file.read_text().splitlines():
        try:
            found.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return found


# ---------------------------------------------------------------------------------------------------------------- pages


def provenance(script: str, lines: Sequence[Line]) -> str:
    """The command, the days, the machines and the seeds."""
    days, machines = (sorted({str(line[what]) for line in lines}) for what in ("day", "machine"))
    seeds = sorted({line["seed"] for line in lines})
    return (
        f"`python benchmarks/papers/{script} --profile paper --write`, {' and '.join(days)}, {' and '.join(machines)}; "
        f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}. Seeded runs on public data; settings were chosen "
        f"on public tables, these included. Delta {DELTA:g}, add or remove one row."
    )


def table_of(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; numbers to the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(map(_shown, row)) + " |" for row in [header, rule, *rows])


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
