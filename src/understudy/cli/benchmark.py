"""The commands of `understudy benchmark`: run suites of methods on public tables, and report their results."""

import contextlib
import dataclasses
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from understudy.cli.options import Declared, with_options
from understudy.cli.output import write_json
from understudy.cli.terminal import Interrupted, echo, say, show_progress
from understudy.errors import ConfigError

if TYPE_CHECKING:
    from understudy.benchmark.results import Record
    from understudy.benchmark.suite import Suite

benchmark_app = typer.Typer(
    help="Compare methods on public tables: run suites, resume them, and report the results.", no_args_is_help=True
)

PART: dict[str, Declared] = {
    "suite": typer.Argument(metavar="SUITE", help="A suite file (TOML), or the name of a suite."),
    "out": "Folder for the results. Default: benchmark-results/SUITE.",
    "profile": "A profile of the suite, such as smoke or quick. Default: the whole suite.",
    "table": "Only this table. Repeatable.",
    "method": typer.Option("--method", help="Only this method, by its label. Repeatable."),
    "epsilon": "Use this epsilon instead of the suite's. Repeatable.",
    "seeds": "Use this number of seeds instead of the suite's.",
}
"""The options of `Part`."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A suite, or a part of one, and the folder of its results."""

    suite: str
    out: Path | None = None
    profile: str | None = None
    table: list[str] | None = None
    method: list[str] | None = None
    epsilon: list[float] | None = None
    seeds: int | None = None

    @property
    def folder(self) -> Path:
        return self.out or Path("benchmark-results") / Path(self.suite).stem

    def read_whole(self) -> "Suite":
        """The suite with all of its tables, methods, budgets and seeds."""
        from understudy.benchmark.suite import read_suite

        return read_suite(self.suite, profile=self.profile)

    def read(self) -> "Suite":
        from understudy.benchmark.suite import select

        return select(
            self.read_whole(),
            tables=self.table or (),
            methods=self.method or (),
            epsilons=self.epsilon or (),
            seeds=self.seeds,
        )


@benchmark_app.command("suites")
def list_suites() -> None:
    """List the suites that come with Understudy."""
    from understudy.benchmark.suite import read_suite, suite_names

    for name in suite_names():
        suite = read_suite(name)
        cells = len(suite.tables) * (len(suite.methods) * len(suite.epsilons) * suite.seeds + suite.real_data)
        say(f"{name:14} {cells:>6,} cells  {suite.title}")


@benchmark_app.command("tables")
def list_tables() -> None:
    """List the tables that suites can name, with their licences, and whether they are available."""
    from understudy.benchmark.tables import describe_table, missing_source, table_names

    for name in table_names():
        entry = describe_table(name)
        here = "available" if missing_source(name) is None else "missing"
        say(f"{name:18} {here:9} {entry.title} ({entry.licence})")


@benchmark_app.command("fetch")
@with_options(
    names=typer.Argument(metavar="TABLE...", help="Tables to download."),
    to="Folder to write to. Default: UNDERSTUDY_DATA, or a cache folder.",
    mirror="A URL or a folder with the raw files.",
)
def fetch(names: list[str], to: Path | None = None, mirror: str | None = None, quiet: bool = False) -> None:
    """Download tables from their original sources and verify them."""
    from understudy.benchmark.downloads import fetch_table

    for name in names:
        for path in fetch_table(name, to, mirror=mirror):
            echo(f"Wrote {path}.", quiet=quiet)


@benchmark_app.command("run")
@with_options(
    without=(),
    **PART,
    engine="local: worker processes; population: cells that differ in seed and budget are trained as one program; "
    "ray: a Ray cluster.",
    workers="Cells to run at once. Default: by cores and memory.",
    trainers="Populations to run at once (--engine population). Default: 1.",
    address="An existing Ray cluster. Default: start one here.",
    track="Also log every cell to a tracker: mlflow.",
    track_uri="A tracking server. Default: mlflow.db in the results folder.",
    environments="Folder for peers' environments. Default: in the results.",
    retry="Run failed cells again.",
    wait="Wait if another run is writing to the folder.",
)
def run(
    part: Part,
    engine: str = "local",
    workers: int | None = None,
    trainers: int | None = None,
    address: str | None = None,
    track: str | None = None,
    track_uri: str | None = None,
    environments: Path | None = None,
    retry: bool = False,
    wait: bool = False,
    quiet: bool = False,
) -> None:
    """Run all cells of a suite that have no result yet. It can be interrupted at any time; run it again to resume.

    Cells are seeded runs on public data: repeatable, and NOT private.
    """
    from understudy.benchmark.engines import make_engine
    from understudy.benchmark.results import ResultStore
    from understudy.benchmark.run import run_suite

    chosen, folder = part.read(), part.folder
    runner = make_engine(engine, workers=workers, trainers=trainers, address=address)
    tracker = None
    if track is not None or track_uri is not None:
        from understudy.benchmark.tracking import MLflowTracker

        if track not in (None, "mlflow"):
            raise ConfigError(f"There is no tracker {track!r}. The only one is mlflow.", setting="track")
        tracker = MLflowTracker(ResultStore(folder), chosen.name, uri=track_uri)
    with _keep_results(), show_progress(quiet, "benchmark") as progress:
        outcome = run_suite(
            chosen,
            folder,
            runner,
            retry=retry,
            wait=wait,
            tracker=tracker,
            progress=progress,
            environments=None if environments is None else environments.resolve(),
            note=lambda text: echo(text, quiet=quiet),
            command=f"understudy {shlex.join(sys.argv[1:])}",
            whole=part.read_whole(),
        )
    for name, why in outcome.missing.items():
        echo(f"Skipped {name}: {why}", quiet=False)
    failed = f", {outcome.failed:,} failed ('understudy benchmark status' shows why; --retry runs them again)"
    echo(f"{outcome.done:,} cells have scores{failed if outcome.failed else ''}. Results: {folder}", quiet=quiet)
    if outcome.failed and not outcome.done:
        raise typer.Exit(1)
    echo(f"Next: understudy benchmark report {folder} -o report.html", quiet=quiet)


@benchmark_app.command("status")
@with_options(without=(), **PART)
def status(part: Part, json_file: str | None = None) -> None:
    """Show how many cells of a suite are done, failed or still open."""
    from understudy.benchmark.run import suite_status

    chosen, folder = part.read(), part.folder
    state = suite_status(chosen, folder)
    if json_file is not None:
        counts = {"cells": state.total, "done": state.done, "failed": state.failed, "open": state.open}
        write_json(
            {**counts, "missing": state.missing, "failures": [_failure(each) for each in state.failures]},
            json_file,
            force=True,
        )
        return
    say(f"{chosen.name}: {state.total:,} cells, {state.done:,} done, {state.failed:,} failed, {state.open:,} open.")
    for name, why in state.missing.items():
        say(f"Missing table {name}: {why}")
    if state.other:
        say(f"{state.other:,} other results in {folder} belong to other settings or versions.")
    if not folder.exists():
        say(f"There is no folder {folder} yet.")
    for entry in map(_failure, state.failures):
        epsilon_text = "" if entry["epsilon"] is None else f", epsilon {entry['epsilon']:g}"
        cell = f"{entry['method']} on {entry['table']}{epsilon_text}, seed {entry['seed']}"
        say(f"Failed: {cell}: {entry['reason']}: {entry['message']}")


@contextlib.contextmanager
def _keep_results() -> Iterator[None]:
    """An interrupted run says so. SIGTERM, which schedulers send, is an interrupt too: the workers must end.

    An interrupt that arrives in a callback of the garbage collector is lost, and JAX has such callbacks: so it is sent
    again until the run has ended.
    """
    again: list[threading.Timer] = []

    def interrupt(number: int, frame: object) -> None:
        again.append(threading.Timer(1.0, os.kill, (os.getpid(), number)))
        again[-1].daemon = True
        again[-1].start()
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM) if is_main}
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("interrupted; finished cells are kept. The same command runs the others.") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if again else handler)
        for timer in again:
            timer.cancel()


def _failure(record: "Record") -> dict[str, object]:
    failure = record.get("failure") or {}
    assert isinstance(failure, dict)
    return {key: record[key] for key in ("table", "method", "epsilon", "seed")} | failure


@benchmark_app.command("report")
@with_options(
    results=typer.Argument(metavar="RESULTS", help="A results folder, or a Parquet file of results."),
    out="Output file: .html, or .md with pictures beside it.",
    title="Title of the page. Default: that of the suite.",
)
def report(results: Path, out: Path, title: str | None = None, force: bool = False, quiet: bool = False) -> None:
    """Write a report on results: tables, ranks, curves, running times and failures."""
    from understudy.benchmark.pages import write_report_page

    written = write_report_page(results, out, title=title, force=force)
    pictures = f" and {len(written) - 1} pictures beside it" if len(written) > 1 else ""
    echo(f"Wrote {out}{pictures}.", quiet=quiet)


@benchmark_app.command("compare")
@with_options(
    first=typer.Argument(metavar="A", help="The earlier results."),
    second=typer.Argument(metavar="B", help="The later results of the same cells."),
)
def compare(first: Path, second: Path, json_file: str | None = None) -> None:
    """Compare two runs cell by cell: what got better, got worse or failed."""
    from understudy.benchmark.pages import compare_folders

    comparison, text = compare_folders(first, second)
    if json_file is not None:
        write_json(comparison, json_file, force=True)
        return
    say(text)
