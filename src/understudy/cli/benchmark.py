"""The commands of `understudy benchmark`: run suites of methods on public tables, and report their results."""

import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.options import Force, JsonFile, Quiet
from understudy.cli.output import write_json
from understudy.cli.terminal import Interrupted, echo, show_progress

if TYPE_CHECKING:
    from understudy.benchmark.results import Record
    from understudy.benchmark.suite import Suite

benchmark_app = typer.Typer(
    help="Compare methods on public tables: run suites, resume them, and report the results.", no_args_is_help=True
)

SuiteArgument = Annotated[str, typer.Argument(metavar="SUITE", help="A suite file (TOML), or the name of a suite.")]
Out = Annotated[
    Path | None, typer.Option("-o", "--out", help="Folder for the results. Default: benchmark-results/SUITE.")
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", help="A profile of the suite, such as smoke or quick. Default: the whole suite."),
]
Tables = Annotated[list[str] | None, typer.Option("--table", help="Only this table. Repeatable.")]
Methods = Annotated[list[str] | None, typer.Option("--method", help="Only this method, by its label. Repeatable.")]
Epsilons = Annotated[
    list[float] | None, typer.Option("--epsilon", help="Use this epsilon instead of the suite's. Repeatable.")
]
Seeds = Annotated[int | None, typer.Option("--seeds", help="Use this number of seeds instead of the suite's.")]


@benchmark_app.command("suites")
def list_suites() -> None:
    """List the suites that come with Understudy."""
    from understudy.benchmark.suite import read_suite, suite_names

    for name in suite_names():
        suite = read_suite(name)
        cells = len(suite.tables) * (len(suite.methods) * len(suite.epsilons) * suite.seeds + suite.real_data)
        typer.echo(f"{name:14} {cells:>6,} cells  {suite.title}")


@benchmark_app.command("tables")
def list_tables() -> None:
    """List the tables that suites can name, with their licences, and whether they are available."""
    from understudy.benchmark.tables import describe_table, missing_source, table_names

    for name in table_names():
        entry = describe_table(name)
        here = "available" if missing_source(name) is None else "missing"
        typer.echo(f"{name:18} {here:9} {entry.title} ({entry.licence})")


@benchmark_app.command("fetch")
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="TABLE...", help="Tables to download.")],
    to: Annotated[
        Path | None, typer.Option("--to", help="Folder to write to. Default: UNDERSTUDY_DATA, or a cache folder.")
    ] = None,
    mirror: Annotated[str | None, typer.Option("--mirror", help="A URL or a folder with the raw files.")] = None,
    quiet: Quiet = False,
) -> None:
    """Download tables from their original sources and verify them."""
    from understudy.benchmark.downloads import fetch_table

    for name in names:
        for path in fetch_table(name, to, mirror=mirror):
            echo(f"Wrote {path}.", quiet=quiet)


@benchmark_app.command("run")
def run(
    suite: SuiteArgument,
    out: Out = None,
    profile: Profile = None,
    table: Tables = None,
    method: Methods = None,
    epsilon: Epsilons = None,
    seeds: Seeds = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            help="local: worker processes; population: cells that differ in seed and budget "
            "are trained as one program; ray: a Ray cluster.",
        ),
    ] = "local",
    workers: Annotated[
        int | None, typer.Option("--workers", help="Cells to run at once. Default: by cores and memory.")
    ] = None,
    trainers: Annotated[
        int | None, typer.Option("--trainers", help="Populations to run at once (--engine population). Default: 1.")
    ] = None,
    address: Annotated[
        str | None, typer.Option("--address", help="An existing Ray cluster. Default: start one here.")
    ] = None,
    track: Annotated[str | None, typer.Option("--track", help="Also log every cell to a tracker: mlflow.")] = None,
    track_uri: Annotated[
        str | None, typer.Option("--track-uri", help="A tracking server. Default: mlflow.db in the results folder.")
    ] = None,
    environments: Annotated[
        Path | None, typer.Option("--environments", help="Folder for peers' environments. Default: in the results.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed cells again.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait if another run is writing to the folder.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run all cells of a suite that have no result yet. It can be interrupted at any time; run it again to resume.

    Cells are seeded runs on public data: repeatable, and NOT private.
    """
    from understudy.benchmark.engines import make_engine
    from understudy.benchmark.results import ResultStore
    from understudy.benchmark.run import run_suite

    chosen, folder = _choose(suite, profile, table, method, epsilon, seeds), out or _default_folder(suite)
    runner = make_engine(engine, workers=workers, trainers=trainers, address=address)
    tracker = None
    if track is not None or track_uri is not None:
        from understudy.benchmark.tracking import make_tracker

        tracker = make_tracker(track or "mlflow", ResultStore(folder), chosen, uri=track_uri)
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
            whole=_choose(suite, profile),
        )
    for name, why in outcome.missing.items():
        echo(f"Skipped {name}: {why}", quiet=False)
    failed = f", {outcome.failed:,} failed ('understudy benchmark status' shows why; --retry runs them again)"
    echo(f"{outcome.done:,} cells have scores{failed if outcome.failed else ''}. Results: {folder}", quiet=quiet)
    if outcome.failed and not outcome.done:
        raise typer.Exit(1)
    echo(f"Next: understudy benchmark report {folder} -o report.html", quiet=quiet)


@benchmark_app.command("status")
def status(
    suite: SuiteArgument,
    out: Out = None,
    profile: Profile = None,
    table: Tables = None,
    method: Methods = None,
    epsilon: Epsilons = None,
    seeds: Seeds = None,
    json_file: JsonFile = None,
) -> None:
    """Show how many cells of a suite are done, failed or still open."""
    from understudy.benchmark.run import suite_status

    chosen, folder = _choose(suite, profile, table, method, epsilon, seeds), out or _default_folder(suite)
    found = suite_status(chosen, folder)
    if json_file is not None:
        counts = {"cells": found.total, "done": found.done, "failed": found.failed, "open": found.open}
        write_json(
            {**counts, "missing": found.missing, "failures": [_failure(each) for each in found.failures]},
            json_file,
            force=True,
        )
        return
    typer.echo(
        f"{chosen.name}: {found.total:,} cells, {found.done:,} done, {found.failed:,} failed, {found.open:,} open."
    )
    for name, why in found.missing.items():
        typer.echo(f"Missing table {name}: {why}")
    if found.other:
        typer.echo(f"{found.other:,} other results in {folder} belong to other settings or versions.")
    if not folder.exists():
        typer.echo(f"There is no folder {folder} yet.")
    for entry in map(_failure, found.failures):
        epsilon_text = "" if entry["epsilon"] is None else f", epsilon {entry['epsilon']:g}"
        cell = f"{entry['method']} on {entry['table']}{epsilon_text}, seed {entry['seed']}"
        typer.echo(f"Failed: {cell}: {entry['reason']}: {entry['message']}")


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
def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="A results folder, or a Parquet file of results.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Output file: .html, or .md with pictures beside it.")],
    title: Annotated[str | None, typer.Option("--title", help="Title of the page. Default: that of the suite.")] = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write a report on results: tables, ranks, curves, running times and failures."""
    from understudy.benchmark.pages import write_report_page

    written = write_report_page(results, out, title=title, force=force)
    pictures = f" and {len(written) - 1} pictures beside it" if len(written) > 1 else ""
    echo(f"Wrote {out}{pictures}.", quiet=quiet)


@benchmark_app.command("compare")
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="The earlier results.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="The later results of the same cells.")],
    json_file: JsonFile = None,
) -> None:
    """Compare two runs cell by cell: what got better, got worse or failed."""
    from understudy.benchmark.pages import compare_folders

    found, text = compare_folders(first, second)
    if json_file is not None:
        write_json(found, json_file, force=True)
        return
    typer.echo(text)


def _choose(
    source: str,
    profile: str | None,
    tables: list[str] | None = None,
    methods: list[str] | None = None,
    epsilons: list[float] | None = None,
    seeds: int | None = None,
) -> "Suite":
    from understudy.benchmark.suite import read_suite, select

    chosen = read_suite(source, profile=profile)
    return select(chosen, tables=tables or (), methods=methods or (), epsilons=epsilons or (), seeds=seeds)


def _default_folder(suite: str) -> Path:
    return Path("benchmark-results") / Path(suite).stem
