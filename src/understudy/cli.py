"""The command line. A command reads its arguments, calls one public function, and writes.

Heavy imports stand inside the commands, so that `understudy --help` is instant.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy._version import __version__
from understudy.errors import CheckpointError, ConditionError, ConfigError, TableError, UnderstudyError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table

    from understudy.evaluation.scorecard import Scorecard
    from understudy.privacy.discovery import Binning
    from understudy.privacy.ledger import Guarantee, Plan, Statement
    from understudy.release import Release

app = typer.Typer(
    name="understudy",
    help="A synthetic stand-in for a table about people, with a differential-privacy guarantee that is true.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
schema_app = typer.Typer(help="Write, check and import schemas: what is public about a table.", no_args_is_help=True)
app.add_typer(schema_app, name="schema")

INTERRUPTED = 130

Source = Annotated[str, typer.Argument(help="CSV, TSV, Parquet, Arrow or JSON lines file, or DATABASE::TABLE.")]
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", help="Schema file (TOML). Absent: drafted, the rest bought.")
]
Epsilon = Annotated[
    float | None, typer.Option("--epsilon", help="Privacy budget: smaller is more private; 1 is common.")
]
Delta = Annotated[float | None, typer.Option("--delta", help="Default: from the declared number of rows, else 1e-6.")]
NotPrivate = Annotated[bool, typer.Option("--not-private", help="In place of --epsilon: a baseline without noise.")]
Method = Annotated[str, typer.Option("--method", help="A name or expression; see 'understudy methods'.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="A setting of the method, name=value. Repeatable.")]
Target = Annotated[str | None, typer.Option("--target", help="The column that matters most.")]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        help="For tests and public data: makes noise and samples reproducible, and marks all output 'not private'.",
    ),
]
Public = Annotated[
    str | None,
    typer.Option(
        "--public",
        help="A public table with the same columns to start from; it is not protected. Must not be SOURCE itself.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with a run that was killed: the same command, to the same result.")
]
KeepTypes = Annotated[
    bool,
    typer.Option(
        "--keep-types",
        help="Give columns the storage types of SOURCE instead of those of their declared kinds. The types are then "
        "taken as public, and the certificate says so.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing unless something is wrong.")]
Terse = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no hints.")]
JsonFile = Annotated[
    str | None, typer.Option("--json", help="Also write it as JSON to this file; '-': standard output.")
]
CertificateOf = Annotated[
    str | None,
    typer.Option(
        "--release",
        help="A release folder, whose certificate stands at the page's end; of several tables, NAME=FOLDER.",
    ),
]
Bins = Annotated[str, typer.Option("--bins", help="How numbers become bins: tree, equal or uniform.")]
MaxBins = Annotated[int, typer.Option("--max-bins", help="At most so many bins for a numeric column.")]
MaxCategories = Annotated[
    int,
    typer.Option(
        "--max-categories", help="The most categories kept for a column whose categories are estimated privately."
    ),
]
NumRows = Annotated[
    int | None, typer.Option("-n", "--rows", help="Number of synthetic rows. Default: the public size.")
]
Where = Annotated[str | None, typer.Option("--where", help="Only rows that meet this SQL condition.")]


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        typer.echo(f"understudy {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for what the demo makes.")] = Path("understudy-demo"),
    epsilon: Epsilon = 1.0,
    method: Method = "auto",
    force: Annotated[bool, typer.Option("--force/--no-force", help="Replace the folder if it exists.")] = True,
    quiet: Quiet = False,
) -> None:
    """Make a synthetic survey from the embedded one: table, release, certificate and report."""
    from understudy.demo import demo_schema, demo_table
    from understudy.evaluation.evaluate import evaluate
    from understudy.files import require_free_folder
    from understudy.release import fit
    from understudy.report import write_report
    from understudy.tables import atomic_folder, write_table

    require_free_folder(out, force=force, marker="schema.toml")
    guarantee = _guarantee(epsilon, None, False)
    schema, table = demo_schema(), demo_table()
    say = _sayer(quiet)
    say(f"The embedded survey: {table.num_rows:,} Americans on health and insurance (MEPS 1996; public).")
    with _progress(quiet, "fitting") as progress:
        release = fit(table, method, guarantee, schema=schema, progress=progress)
    fake = release.sample_arrow()
    with _progress(quiet, "evaluating") as progress:
        scores = evaluate(table, {"synthetic": fake}, schema=schema, effort="quick", progress=progress)
    with atomic_folder(out, force=force, marker="schema.toml") as inside:
        write_table(fake, inside / "synthetic.csv", origin=release.origin)
        release.save(inside / "synthetic.release")
        schema.write(inside / "schema.toml")
        write_report(inside / "report.html", scores, release.statement)
    if not quiet:
        _show_comparison(table, fake)
        _show_spent(release, quiet)
    say(
        f"Look into {out}{os.sep}: synthetic.csv, synthetic.release{os.sep}CERTIFICATE.md, and report.html in a browser"
    )
    say("The report compares with the real rows: of your own data, keep it inside the house.")
    say(f"Next: understudy sample {out / 'synthetic.release'} -n 1000 -o more.csv")


@app.command()
def synth(
    source: Source,
    out: Annotated[str, typer.Option("-o", "--out", help="The synthetic table; its ending tells the format.")],
    epsilon: Epsilon = None,
    delta: Delta = None,
    not_private: NotPrivate = False,
    schema: SchemaFile = None,
    method: Method = "auto",
    settings: Settings = None,
    target: Target = None,
    rows: NumRows = None,
    where: Where = None,
    bins: Bins = "tree",
    max_bins: MaxBins = 32,
    max_categories: MaxCategories = 1000,
    seed: Seed = None,
    public: Public = None,
    keep_types: KeepTypes = False,
    resume: Resume = False,
    force: Force = False,
    quiet: Quiet = False,
    json_file: JsonFile = None,
) -> None:
    """Fit, sample and certify in one go. The release folder stays beside the table, as OUT.release/.

    While it runs, OUT.release.checkpoint/ beside it holds what --resume needs: private, never to be shared. A run that
    fails after its first query has spent its budget, and OUT.release.spent/ records that.
    """
    from understudy.files import require_free_folder
    from understudy.release import check_size, saved_by
    from understudy.tables import check_writable, write_table

    guarantee = _guarantee(epsilon, delta, not_private)
    folder = _release_folder(out)
    _refuse_own_input(source, out)
    check_writable(out, force=force, table=True)
    checkpoint = _checkpoint(folder, resume)
    finished = resume and saved_by(checkpoint, folder)  # killed between its last two acts
    require_free_folder(folder, force=force or finished, marker="release.json")
    _check_json(json_file, force)
    if rows is not None:
        check_size(rows, "The number of synthetic rows")
    if where is not None:
        _check_where(where, source, schema)
    binning = _binning(bins, max_bins, max_categories)
    release = _fit(
        source,
        schema,
        guarantee,
        method,
        settings,
        target,
        binning,
        seed,
        quiet,
        public=public,
        keep_types=keep_types,
        checkpoint=checkpoint,
        resume=resume,
    )
    release.save(folder, force=force or finished)
    _show_spent(release, quiet)
    try:
        fake = release.sample_arrow(rows, where=where, seed=seed)
    except ConditionError as error:
        raise ConditionError(
            f"{error} The budget is spent and the release is kept: draw from it at no cost with 'understudy sample "
            f"{folder}', and another --where."
        ) from None
    write_table(fake, out, origin=release.origin, force=force)
    say = _sayer(quiet)
    _note_on_draft(release, quiet, given=schema is not None)
    say(f"Wrote {fake.num_rows:,} synthetic rows to {out}; certificate: {folder / 'CERTIFICATE.md'}")
    _write_certificate_json(release.statement, json_file, force)


@app.command()
def fit(
    source: Source,
    out: Annotated[Path, typer.Option("-o", "--out", help="The release folder to write.")],
    epsilon: Epsilon = None,
    delta: Delta = None,
    not_private: NotPrivate = False,
    schema: SchemaFile = None,
    method: Method = "auto",
    settings: Settings = None,
    target: Target = None,
    bins: Bins = "tree",
    max_bins: MaxBins = 32,
    max_categories: MaxCategories = 1000,
    seed: Seed = None,
    public: Public = None,
    keep_types: KeepTypes = False,
    resume: Resume = False,
    force: Force = False,
    quiet: Quiet = False,
    json_file: JsonFile = None,
) -> None:
    """Fit a method and write a release folder: a model to sample from, and its certificate.

    While it runs, OUT.checkpoint/ beside it holds what --resume needs: private, never to be shared. A run that fails
    after its first query has spent its budget, and OUT.spent/ records that.
    """
    from understudy.files import require_free_folder
    from understudy.release import saved_by

    guarantee = _guarantee(epsilon, delta, not_private)
    checkpoint = _checkpoint(out, resume)
    finished = resume and saved_by(checkpoint, out)  # killed between its last two acts
    require_free_folder(out, force=force or finished, marker="release.json")
    _check_json(json_file, force)
    binning = _binning(bins, max_bins, max_categories)
    release = _fit(
        source,
        schema,
        guarantee,
        method,
        settings,
        target,
        binning,
        seed,
        quiet,
        public=public,
        keep_types=keep_types,
        checkpoint=checkpoint,
        resume=resume,
    )
    release.save(out, force=force or finished)
    _show_spent(release, quiet)
    _note_on_draft(release, quiet, given=schema is not None)
    _sayer(quiet)(f"Wrote {out}. Next: understudy sample {out} -o fake.csv")
    _write_certificate_json(release.statement, json_file, force)


@app.command()
def sample(
    folder: Annotated[Path, typer.Argument(help="A release folder.")],
    out: Annotated[str, typer.Option("-o", "--out", help="The synthetic table; its ending tells the format.")],
    rows: NumRows = None,
    where: Where = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Fixes this draw. Takes nothing from the guarantee.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Draw rows from a release. Costs no budget, as often as wanted."""
    from understudy.release import Release
    from understudy.tables import check_writable, write_table

    check_writable(out, force=force, table=True)
    release = Release.load(folder)
    fake = release.sample_arrow(rows, where=where, seed=seed)
    write_table(fake, out, origin=release.origin, force=force)
    _warn_if_not_private(release)
    _sayer(quiet)(f"Wrote {fake.num_rows:,} synthetic rows to {out}")


@app.command()
def certificate(
    folder: Annotated[Path, typer.Argument(help="A release folder, or the record of a failed run.")],
    json_file: JsonFile = None,
    force: Force = False,
) -> None:
    """Show the guarantee of a release, or what a failed run has spent, as text or JSON."""
    from understudy.certificate import to_markdown
    from understudy.release import Release
    from understudy.spent import read_record

    statement = read_record(folder) or Release.load(folder).statement
    if json_file != "-":
        _show_markdown(to_markdown(statement))
    _write_certificate_json(statement, json_file, force)


@app.command()
def evaluate(
    real: Annotated[str, typer.Argument(help="The real table.")],
    synthetic: Annotated[list[str], typer.Argument(help="Synthetic tables, each a file or NAME=FILE.")],
    schema: Annotated[
        Path | None, typer.Option("--schema", help="Schema file (TOML). Absent: read off the real table.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="The column that classifiers predict.")] = None,
    holdout: Annotated[
        str | None, typer.Option("--holdout", help="Real rows that were not synthesized. Absent: a fifth of REAL.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Marginals, one classifier, logistic pMSE.")] = False,
    full: Annotated[bool, typer.Option("--full", help="All rows, interactions, many bootstraps. Slow.")] = False,
    metrics: Annotated[
        list[str] | None, typer.Option("--metric", help="Only this metric or group. Repeatable.")
    ] = None,
    constraints: Annotated[
        list[str] | None, typer.Option("--constraint", help="A condition (SQL) that rows should meet. Repeatable.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write an HTML page.")] = None,
    release: CertificateOf = None,
    json_file: JsonFile = None,
    force: Force = False,
    quiet: Terse = False,
) -> None:
    """Evaluate synthetic tables against the real one. Reads real rows: what it writes is NOT private."""
    from understudy.evaluation.evaluate import evaluate
    from understudy.evaluation.scorecard import WARNING
    from understudy.report import write_report
    from understudy.schema import Schema

    if quick and full:
        raise ConfigError("--quick and --full exclude each other. Give one, or none.")
    if release is not None and report is None:
        raise ConfigError("--release puts a certificate into the page: give --report too.")
    tables = _named_tables(synthetic)
    _check_judgement(
        {"--report": report, "--json": None if json_file == "-" else json_file},
        [real, *tables.values(), holdout, schema],
        force=force,
    )
    statement, of = _statement(release, list(tables))
    with _progress(quiet, "evaluating") as progress:
        scorecard = evaluate(
            real,
            tables,
            schema=None if schema is None else Schema.read(schema),
            target=target,
            holdout=holdout,
            metrics=metrics,
            effort="quick" if quick else "full" if full else "default",
            constraints=constraints or (),
            progress=progress,
        )
    if json_file is not None:
        _write_json(scorecard.to_json(), json_file, force=force)
    if report is not None:
        write_report(report, scorecard, statement, of=of, force=force)
    warnings = [f"Warning: {sentence}" for sentence in scorecard.to_json()["warnings"]]
    if json_file == "-":  # standard output is the document, which holds all of this too
        typer.echo("\n".join([WARNING, *warnings]), err=True)
        return
    typer.echo(WARNING)
    _show_scores(scorecard, all_of_them=metrics is not None)
    for warning in warnings:
        typer.echo(warning)
    say = _sayer(quiet)
    written = [str(path) for path in (report, json_file) if path is not None]
    say(f"Wrote {' and '.join(written)}" if written else "More: --report report.html, --json scores.json")


@app.command()
def report(
    scores: Annotated[Path, typer.Argument(help="A scorecard, as 'evaluate --json' writes.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The HTML page.")],
    release: CertificateOf = None,
    force: Force = False,
    quiet: Terse = False,
) -> None:
    """Draw the page of a scorecard again, without the data. NOT private."""
    from understudy.evaluation.scorecard import WARNING, Scorecard
    from understudy.report import write_report

    _check_judgement({"--out": out}, [scores], force=force)
    scorecard = Scorecard.load(scores)
    statement, of = _statement(release, scorecard.methods)
    write_report(out, scorecard, statement, of=of, force=force)
    typer.echo(WARNING)
    _sayer(quiet)(f"Wrote {out}")


@app.command()
def plan(
    schema: Annotated[Path, typer.Argument(help="Schema file (TOML).")],
    epsilon: Epsilon = None,
    delta: Delta = None,
    method: Method = "auto",
    settings: Settings = None,
    target: Target = None,
    rows: Annotated[int | None, typer.Option("--rows", help="Assumed number of rows, for the notes.")] = None,
    bins: Bins = "tree",
    max_bins: MaxBins = 32,
    max_categories: MaxCategories = 1000,
    json_file: JsonFile = None,
    force: Force = False,
) -> None:
    """Price every look that a run would make. Reads no data."""
    from understudy.release import plan as make_plan
    from understudy.schema import Schema

    guarantee = _guarantee(epsilon, delta, False)
    declared = Schema.read(schema)
    declared = declared if target is None else declared.with_target(target)
    synthesizer = _method(method, settings)
    made = make_plan(declared, synthesizer, guarantee, rows=rows, binning=_binning(bins, max_bins, max_categories))
    _show_plan(made, guarantee.with_delta_for(declared.rows), json_file, force)


@app.command()
def methods(json_file: JsonFile = None, force: Force = False) -> None:
    """List the methods, with one line each."""
    from understudy.synthesizers import describe_methods

    described = describe_methods()
    if json_file is not None:
        _write_json(dict(described), json_file, force=force)
        if json_file == "-":
            return
    width = max(len(name) for name, _ in described)
    typer.echo(f"{'auto':<{width}}  chooses one of these from public facts (the default)")
    for name, line in described:
        typer.echo(f"{name:<{width}}  {line}")


@schema_app.command("draft")
def schema_draft(
    source: Source,
    out: Annotated[Path, typer.Option("-o", "--out", help="The schema file to write.")],
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write names and kinds of a table's columns, for a person to complete. No value goes into the file."""
    from understudy.schema import Schema
    from understudy.tables import read_table

    table, _ = read_table(source)
    Schema.draft(table.schema).write(out, force=force)
    _sayer(quiet)(f"Wrote {out}. Read it, declare what is public, and delete the line 'drafted = true'.")


@schema_app.command("check")
def schema_check(source: Source, schema: Annotated[Path, typer.Argument(help="Schema file (TOML).")]) -> None:
    """Compare a table with its schema, for the steward's eyes only: this reads values and is not private."""
    from understudy.schema import Schema
    from understudy.schema_check import check
    from understudy.tables import read_table

    declared = Schema.read(schema)
    table, _ = read_table(source)
    findings = check(declared, table, read_table(source, schema=declared)[0])
    typer.echo("For the steward only: what follows was read off the rows and is not private.")
    for finding in findings:
        typer.echo(str(finding))
    counted = "1 finding." if len(findings) == 1 else f"{len(findings)} findings."
    typer.echo(counted if findings else "The table fits its schema.")
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


@schema_app.command("import")
def schema_import(
    source: Annotated[Path, typer.Argument(help="SDV metadata, SmartNoise, dpsynth or mbi file.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The schema file to write.")],
    form: Annotated[
        str | None, typer.Option("--format", help="sdv, smartnoise, dpsynth or mbi. Default: by content.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Turn another tool's description of a table into a schema file."""
    from understudy.schema_formats import import_schema

    import_schema(source, form).write(out, force=force)
    _sayer(quiet)(f"Wrote {out}. Read it: what it declares counts as public.")


def _guarantee(epsilon: float | None, delta: float | None, not_private: bool) -> "Guarantee":
    from understudy.privacy.ledger import Guarantee

    if not_private:
        if epsilon is not None:
            raise ConfigError("--epsilon and --not-private exclude each other. Leave one of them out.")
        if delta is not None:
            raise ConfigError("--delta means nothing with --not-private. Leave one of them out.")
        return Guarantee.not_private()
    if epsilon is None:
        raise ConfigError("Say how private: --epsilon 1 (smaller is more private), or --not-private for a baseline.")
    return Guarantee(epsilon, delta)


def _binning(bins: str, max_bins: int, max_categories: int) -> "Binning":
    from understudy.privacy.discovery import Binning

    return Binning(bins=bins, max_bins=max_bins, max_categories=max_categories)


def _method(expression: str, settings: list[str] | None) -> Any:
    """The synthesizer that is meant; `auto` stays a word until the public facts are known."""
    from understudy.synthesizers import AUTO, read_method, read_setting

    if expression == AUTO:
        if settings:
            raise ConfigError("--set speaks to a named method: add --method, such as --method mst.")
        return AUTO
    return read_method(expression, dict(read_setting(setting) for setting in settings or []))


def _fit(
    source: str,
    schema_file: Path | None,
    guarantee: "Guarantee",
    method: str,
    settings: list[str] | None,
    target: str | None,
    binning: "Binning",
    seed: int | None,
    quiet: bool,
    *,
    public: str | None,
    keep_types: bool,
    checkpoint: Path,
    resume: bool,
) -> "Release":
    from understudy.checkpoint import is_unfinished
    from understudy.release import fit as make_release
    from understudy.schema import Schema

    schema: Schema | None = None if schema_file is None else Schema.read(schema_file)
    synthesizer = _method(method, settings)
    try:
        with _progress(quiet, "fitting") as progress:
            return make_release(
                source,
                synthesizer,
                guarantee,
                schema=schema,
                target=target,
                binning=binning,
                seed=seed,
                public=public,
                keep_types=keep_types,
                progress=progress,
                checkpoint=checkpoint,
                resume=resume,
            )
    except KeyboardInterrupt:
        if not is_unfinished(checkpoint):
            raise
        raise Interrupted(
            f"interrupted; nothing was released. The same command with --resume goes on from {checkpoint}{os.sep} "
            "(private: never share it)."
        ) from None


def _checkpoint(out: Path, resume: bool) -> Path:
    """Where a run keeps what --resume needs; what stands in its way is said before anything is read."""
    from understudy.checkpoint import is_unfinished, require_place

    place = Path(f"{out}.checkpoint")
    if resume and not is_unfinished(place) and (out / "release.json").exists():
        raise CheckpointError(f"{out} is whole, and no unfinished run lies beside it: nothing is left to resume.")
    require_place(place, resume=resume)
    return place


def _refuse_own_input(source: str, out: str) -> None:
    """Not even --force may replace the table that is being read."""
    read, written = (Path(os.path.realpath(place.partition("::")[0])) for place in (source, out))
    if read == written and source.partition("::")[2] == out.partition("::")[2]:
        raise TableError(f"{out} is the table being read. Choose another name for the synthetic one.")


def _release_folder(out: str) -> Path:
    """fake.csv -> fake.release, fake_0.5.csv.gz -> fake_0.5.release, and so for DATABASE::TABLE."""
    from understudy.tables.places import TABLE_ENDINGS

    path, _, table = out.partition("::")
    if "://" in path:
        raise TableError("The synthetic table goes to a file. Name one, such as fake.parquet.")
    place = Path(path)
    if not place.name:
        raise TableError(f"Name the synthetic table to write, such as fake.csv; found {out!r}.")
    stem = place.name
    while Path(stem).suffix.lower() in TABLE_ENDINGS:
        stem = Path(stem).stem
    return place.with_name(f"{stem}-{table}.release" if table else f"{stem}.release")


@contextlib.contextmanager
def _progress(quiet: bool, words: str) -> Iterator[Callable[[float, str], None]]:
    """What tells of progress, and ends the work where Ctrl-C was pressed."""
    with _no_interrupt_lost() as check, _shown(quiet, words) as show:

        def tell(share: float, now: str) -> None:
            check()
            show(share, now)

        yield tell


@contextlib.contextmanager
def _no_interrupt_lost() -> Iterator[Callable[[], None]]:
    """Raises again, when asked and at the end, an interrupt that came in a callback of the garbage collector, where JAX
    has one: what is raised there is printed and forgotten."""
    pressed: list[int] = []

    def note(number: int, frame: object) -> None:
        pressed.append(number)
        raise KeyboardInterrupt

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    print_others, usual = sys.unraisablehook, signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        yield check  # whoever ignores or handles interrupts goes on doing so
        return
    signal.signal(signal.SIGINT, note)
    sys.unraisablehook = lambda lost: None if lost.exc_type is KeyboardInterrupt else print_others(lost)
    try:
        yield check
        check()
    finally:
        signal.signal(signal.SIGINT, usual)
        sys.unraisablehook = print_others


@contextlib.contextmanager
def _shown(quiet: bool, words: str) -> Iterator[Callable[[float, str], None]]:
    """A bar with the time left on a terminal, plain lines elsewhere, nothing when quiet."""
    if quiet:
        yield lambda share, now: None
        return
    if not sys.stderr.isatty():
        began, last = time.monotonic(), [-1.0]
        first: list[tuple[float, float]] = []  # share and time at the first sign of progress: after compiling

        def line(share: float, now: str) -> None:
            compiles = now.endswith("compiling") and not first
            if share >= last[0] + 0.1 or share >= 1.0 > last[0] or compiles:
                last[0], at = share, time.monotonic()
                left = ""
                if first and first[0][0] < share < 1:
                    left = f", {(1 - share) * (at - first[0][1]) / (share - first[0][0]):.0f} s left"
                elif share > 0 and not first:
                    first.append((share, at))
                print(f"{share:4.0%}  {now}  ({at - began:.0f} s{left})", file=sys.stderr)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = [
        TextColumn("{task.description}", markup=False),  # names of tables are no markup
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(words, total=1.0)
        yield lambda share, now: bar.update(task, completed=share, description=now)


def _sayer(quiet: bool) -> Callable[[str], None]:
    return (lambda words: None) if quiet else (lambda words: typer.echo(words, err=True))


def _warn_if_not_private(release: "Release") -> None:
    if not release.statement.is_private:
        reason = "its noise was seeded" if release.statement.seeded else "it was made without noise"
        typer.echo(f"NOT PRIVATE: {reason}. Do not share this release as private.", err=True)


def _show_spent(release: "Release", quiet: bool) -> None:
    """What it cost; that a release is not private is said even when quiet."""
    from understudy.certificate import rounded_up

    statement = release.statement
    _warn_if_not_private(release)
    for note in () if quiet else release.notes:
        typer.echo(note[:1].upper() + note[1:], err=True)
    if statement.public_table is not None and not quiet:
        rows = f"{statement.public_table:,} row{'s' if statement.public_table > 1 else ''}"
        typer.echo(f"Began on a public table of {rows}, on your word: nobody in it is protected.", err=True)
    if statement.epsilon != float("inf") and not quiet:
        typer.echo(
            f"Spent epsilon {rounded_up(statement.epsilon, 4)} of {statement.epsilon_target:g} at delta "
            f"{rounded_up(statement.delta, 2)}, "
            f"method {statement.method}.",
            err=True,
        )


def _note_on_draft(release: "Release", quiet: bool, *, given: bool) -> None:
    """What a run without a schema, or with an unchecked one, took for granted."""
    if not release.schema.drafted:
        return
    if given:
        _sayer(quiet)(
            "The schema is a draft that nobody has checked (drafted = true), so the certificate carries a condition. "
            "Check it, then delete that line."
        )
        return
    texts = [column.name for column in release.schema.modelled if column.kind == "categorical"]
    listed = f"; text columns count as categories ({', '.join(texts)})" if texts else ""
    _sayer(quiet)(
        f"No schema: each row counts as one person{listed}. Mark ids, notes and units with 'understudy schema draft'."
    )


def _show_plan(made: "Plan", guarantee: "Guarantee", json_file: str | None, force: bool) -> None:
    from understudy import certificate as words
    from understudy.privacy.ledger import spent_by

    spent = spent_by(made, guarantee)
    statement = words.planned(made, guarantee, spent)
    if json_file is not None:
        _write_json(words.plan_to_json(made, statement), json_file, force=force)
        if json_file == "-":
            return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title_justify="left",
        title=f"Plan: epsilon {spent.epsilon:.4g} of {guarantee.epsilon:g} at delta {guarantee.delta:.2g}",
    )
    table.add_column("look")
    table.add_column("how")
    table.add_column("epsilon alone", justify="right")
    table.add_column("added delta", justify="right")
    for look in made:
        price = f"{words.price_alone(look, statement):.3g}"
        table.add_row(
            Text(look.label), words.mechanism_in_words(look.event), price, f"{look.delta:.2g}" if look.delta else ""
        )
    console = Console()
    console.print(table)
    for note in made.notes:
        console.print(f"- {note}", markup=False)
    console.print("Nothing was read but the schema. Prices do not simply add up; together they cost the figure above.")


def _show_markdown(text: str) -> None:
    """Rendered on a terminal; as it is in a pipe."""
    if not sys.stdout.isatty():
        typer.echo(text, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def _show_comparison(real: "pa.Table", fake: "pa.Table") -> None:
    """The demo's data is public, so its real and synthetic shares may stand side by side."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from understudy.demo import compared_shares

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("percent of the people who are")
    table.add_column("real", justify="right")
    table.add_column("synthetic", justify="right")
    for question, real_share, fake_share in compared_shares(real, fake):
        table.add_row(question, f"{100 * real_share:.1f}", f"{100 * fake_share:.1f}")
    Console(stderr=True).print(table)


def _statement(release: str | None, names: Sequence[str]) -> "tuple[Statement | None, str | None]":
    """The statement of a FOLDER, or of NAME=FOLDER, and whose it is: of several tables, that must be said."""
    from understudy.columns import did_you_mean
    from understudy.release import Release

    if release is None:
        return None, None
    name, equals, folder = release.partition("=")
    if not equals or os.path.isdir(release):
        if len(names) > 1:
            raise ConfigError(
                f"There are {len(names)} synthetic tables: say to which of them the release belongs, --release"
                " NAME=FOLDER."
            )
        return Release.load(Path(release)).statement, names[0]
    if name not in names:
        raise ConfigError(
            f"--release is for {name!r}, and the synthetic tables are called {', '.join(names)}."
            f"{did_you_mean(name, names)}"
        )
    return Release.load(Path(folder)).statement, name


def _check_judgement(
    outputs: Mapping[str, Path | str | None], inputs: Sequence[Path | str | None], *, force: bool
) -> None:
    """Before the long work: what is to be written is told by its ending, destroys nothing and is in no release."""
    from understudy.evaluation.scorecard import refuse_release
    from understudy.tables import check_writable

    endings = {"--json": (".json",)}
    taken = {os.path.realpath(str(place).partition("::")[0]): "is read" for place in inputs if place is not None}
    for option, out in outputs.items():
        if out is None:
            continue
        ends = endings.get(option, (".html", ".htm"))
        if Path(out).suffix.lower() not in ends:
            raise ConfigError(f"{option} {out}: expected a name that ends in {' or '.join(ends)}.")
        refuse_release(out)
        place = os.path.realpath(out)
        if place in taken:
            raise ConfigError(f"{option} {out}: that file {taken[place]} too. Choose another name.")
        taken[place] = "is to be written"
        check_writable(out, force=force)


def _named_tables(sources: list[str]) -> dict[str, str]:
    """NAME=FILE, or the file's name without its ending."""
    from understudy.evaluation.inputs import name_of

    tables: dict[str, str] = {}
    for source in sources:
        name, equals, path = source.partition("=")
        if not equals or os.path.exists(source):
            name, path = name_of(source, "synthetic"), source
        if name in tables:
            raise ConfigError(f"Two synthetic tables are called {name!r}. Name them: NAME=FILE.")
        tables[name] = path
    return tables


def _show_scores(scorecard: "Scorecard", *, all_of_them: bool) -> None:
    """Scores beside those of real rows, which get a column of their own where they are too few to compare with.

    By default the key scores of the catalogue; of absent ones, those for another kind of target are not mentioned.
    """
    from rich.console import Console
    from rich.text import Text

    from understudy.evaluation.scores import Status

    entries = [entry for entry in scorecard.to_json()["metrics"] if all_of_them or entry["key_score"]]
    absent: dict[str, list[str]] = {}
    shown = []
    for entry in entries:
        if entry["reference"] or any(score["value"] is not None for score in entry["values"].values()):
            shown.append(entry)
            continue
        score = next(iter(entry["values"].values()))
        if all_of_them or score["status"] != Status.NOT_APPLICABLE:
            absent.setdefault(score["why"], []).append(entry["title"])
    console = Console()
    console.print(_score_table(scorecard.methods, shown))
    for why, titles in absent.items():
        console.print(Text(f"Not computed: {', '.join(titles)}. {why}"))


def _score_table(methods: Sequence[str], entries: Sequence[Mapping[str, Any]]) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from understudy.evaluation.scores import Direction

    comparable = {bool(entry["reference"]["comparable"]) for entry in entries if entry["reference"]}
    references = [known for known in (True, False) if known in comparable]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in (*methods, *("real" if known else "real, fewer rows" for known in references)):
        table.add_column(Text(name), justify="right")
    for entry in entries:
        reference = entry["reference"]
        real = [
            "-" if reference is None else _cell(reference["value"]) if reference["comparable"] == known else ""
            for known in references
        ]
        cells = [_cell(entry["values"][name]["value"]) for name in methods]
        table.add_row(Text(f"{entry['title']} {Direction(entry['direction']).arrow}"), *cells, *real)
    return table


def _cell(value: float | None) -> str:
    """A number to three digits; "-" for none."""
    return "-" if value is None else f"{value:.3g}"


def _write_certificate_json(statement: "Statement", json_file: str | None, force: bool) -> None:
    from understudy.certificate import to_json

    if json_file is not None:
        _write_json(to_json(statement), json_file, force=force)


def _check_json(json_file: str | None, force: bool) -> None:
    """Before any budget is spent."""
    from understudy.tables import check_writable

    if json_file not in (None, "-"):
        check_writable(json_file, force=force)


def _check_where(where: str, source: str, schema: Path | None) -> None:
    """Before any budget is spent: can this condition be read?"""
    from understudy.schema import Schema
    from understudy.tables import as_arrow, where_columns

    if schema is None:
        names = as_arrow(source, None)[0].column_names
    else:
        names = [column.name for column in Schema.read(schema).modelled]
    where_columns(where, names)


def _write_json(content: object, json_file: str, *, force: bool) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    if json_file == "-":
        typer.echo(text, nl=False)
        return
    from understudy.tables import atomic_write

    with atomic_write(json_file, force=force) as file:
        file.write(text.encode())


class Interrupted(UnderstudyError):
    """Ctrl-C in a run that can go on."""


def run(arguments: list[str] | None = None) -> int:
    """The whole command line; returns the exit code."""
    try:
        result = app(args=arguments, prog_name="understudy", standalone_mode=False)
        if result == INTERRUPTED:  # how the argument parser reports Ctrl-C
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except Interrupted as error:
        return _refuse(str(error), INTERRUPTED)
    except UnderstudyError as error:
        if os.environ.get("UNDERSTUDY_DEBUG") and isinstance(error.__cause__, Exception):
            raise
        return _refuse(" ".join(str(error).split()))
    except KeyboardInterrupt:
        return _refuse("interrupted; nothing was written.", INTERRUPTED)
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help
            print(error.format_message(), file=sys.stderr)  # type: ignore[attr-defined]
            return 2
        if hasattr(error, "format_message"):  # what the argument parser raises
            said = " ".join(error.format_message().split()).rstrip(".")
            command = getattr(getattr(error, "ctx", None), "command_path", "understudy")
            return _refuse(f"{said}. Try '{command} --help'.")
        if type(error).__name__ == "Abort":
            return _refuse("interrupted; nothing was written.", INTERRUPTED)
        if os.environ.get("UNDERSTUDY_DEBUG"):
            raise
        # The text of an unforeseen error may quote a value of the table: only its kind is shown.
        return _refuse(
            f"an error inside Understudy ({type(error).__name__}). Nothing private is shown here; to see all of it, "
            "set UNDERSTUDY_DEBUG=1. Please report it.",
            1,
        )


def _refuse(words: str, code: int = 2) -> int:
    print(f"understudy: {words}", file=sys.stderr)
    return code


def main() -> None:
    """Entry point of the `understudy` command."""
    code = run()
    sys.stdout.flush()
    sys.stderr.flush()
    # Without Python's teardown, in which DuckDB prints pages about objects that an error still holds.
    os._exit(code)
