"""The commands. Each reads its arguments, calls one public function, and writes."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy._version import __version__
from understudy.cli import evaluation as evaluating
from understudy.cli import options as option
from understudy.cli import output
from understudy.cli.audit import audit
from understudy.cli.benchmark import benchmark_app
from understudy.cli.book import book_app
from understudy.cli.bundle import bundle, verify
from understudy.cli.disclose import add_disclosure, disclose
from understudy.cli.doctor import doctor
from understudy.cli.fit import FitCommand
from understudy.cli.graph import (
    fit_of,
    is_graph_schema,
    refuse_graphs,
    refuse_table_options,
    sample_graph,
    show_graph_plan,
)
from understudy.cli.mock import mock
from understudy.cli.options import with_options
from understudy.cli.schema import schema_app
from understudy.cli.split import split
from understudy.cli.studio import studio
from understudy.cli.terminal import echo, say, show_progress
from understudy.errors import ConfigError

if TYPE_CHECKING:
    from understudy.privacy.mechanisms.discovery import Binning
    from understudy.tables import ReadOptions

app = typer.Typer(
    name="understudy",
    help="Generate synthetic tables with a differential-privacy guarantee.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(schema_app, name="schema")
app.add_typer(book_app, name="book")
app.add_typer(benchmark_app, name="benchmark")


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        say(f"understudy {__version__}")
        raise typer.Exit


@app.command()
@with_options(out="Output folder.", force=typer.Option("--force/--no-force", help="Replace the folder if it exists."))
def demo(
    out: Path = Path("understudy-demo"),
    epsilon: float | None = 1.0,
    method: str = "auto",
    force: bool = True,
    quiet: bool = False,
) -> None:
    """Make a synthetic survey from the embedded one: table, release, certificate and report."""
    from understudy.api import fit
    from understudy.cli.show import show_comparison
    from understudy.demo import demo_schema, demo_table
    from understudy.evaluation.evaluate import evaluate
    from understudy.institution.metadata.table_schema import describe_synthetic
    from understudy.report import write_report
    from understudy.run.atomic import require_free_folder
    from understudy.tables import atomic_folder, write_table

    contents = (
        "synthetic.release",
        "synthetic.csv",
        "synthetic.csv.datapackage.json",
        "survey.csv",
        "schema.toml",
        "report.html",
    )
    require_free_folder(out, force=force, contents=contents)
    guarantee = option.read_guarantee(epsilon, None, False)
    schema, table = demo_schema(), demo_table()
    echo(f"The embedded survey: {table.num_rows:,} Americans on health and insurance (MEPS 1996; public).", quiet=quiet)
    with show_progress(quiet, "fitting") as progress:
        release = fit(table, method, guarantee, schema=schema, progress=progress)
    fake = release.sample_arrow()
    with show_progress(quiet, "evaluating") as progress:
        scores = evaluate(table, {"synthetic": fake}, schema=schema, effort="quick", progress=progress)
    with atomic_folder(out, force=force, contents=contents) as inside:
        write_table(table, inside / "survey.csv", origin=release.origin)
        described = describe_synthetic(schema, title=release.statement.facts.name)
        write_table(fake, inside / "synthetic.csv", origin=release.origin, describe=described)
        release.save(inside / "synthetic.release")
        schema.write(inside / "schema.toml")
        write_report(inside / "report.html", scores, release.statement)
    if not quiet:
        show_comparison(table, fake)
        output.show_spent(release, quiet)
    echo(f"Wrote synthetic.csv, synthetic.release{os.sep} and report.html to {out}{os.sep},", quiet=quiet)
    echo("and the survey itself with its schema, to try other commands: survey.csv, schema.toml.", quiet=quiet)
    echo("report.html contains statistics of the real rows. Do not share it when you use your own data.", quiet=quiet)
    echo(f"Next: understudy sample {out / 'synthetic.release'} -n 1000 -o more.csv", quiet=quiet)


@app.command()
@with_options(out="The synthetic table. Its extension sets the format.")
def synth(options: FitCommand, out: str) -> None:
    """Fit, sample and certify in one step. The release folder is kept beside the table, as OUT.release/.

    During the run, OUT.release.checkpoint/ holds what --resume needs. It is private: never share it. A run that fails
    after its first query has spent its budget, and OUT.release.spent/ records that.
    """
    fitting = fit_of(options, option.release_folder(out), out)
    release = fitting.run()
    echo(f"Wrote {fitting.size} to {out}; certificate: {fitting.folder / 'certificate.html'}", quiet=options.quiet)
    output.write_certificate_json(release.statement, release.checksums, options.json_file, options.force)


@app.command()
@with_options(
    without=("rows", "where", "id_prefix", "escape_formulas", "no_sidecar"), out="The release folder to write."
)
def fit(options: FitCommand, out: Path) -> None:
    """Fit a method and write a release folder: a model to sample from, and its certificate.

    During the run, OUT.checkpoint/ holds what --resume needs. It is private: never share it. A run that fails after its
    first query has spent its budget, and OUT.spent/ records that.
    """
    fitting = fit_of(options, out)
    release = fitting.run()
    echo(f"Wrote {out}. Next: understudy sample {out} -o {fitting.example}", quiet=options.quiet)
    output.write_certificate_json(release.statement, release.checksums, options.json_file, options.force)


app.command()(mock)
app.command()(split)


@app.command()
@with_options(
    out="The synthetic table. Its extension sets the format.",
    seed="Makes this sample reproducible. Does not affect the guarantee.",
)
def sample(folder: Path, out: str, options: output.SampleOptions) -> None:
    """Sample rows from a release, as often as you like: sampling has no privacy cost.

    OUT.certificate.json, written beside the table, has its checksum, that of the release, and the guarantee.
    """
    from understudy.release import Release, is_graph_release, sample_record
    from understudy.tables import check_writable

    if is_graph_release(folder):
        return sample_graph(folder, out, options)
    check_writable(out, force=options.force, table=True, sidecar=not options.no_sidecar)
    record = option.sidecar_of(out)
    if record is not None:
        check_writable(record, force=options.force)
    release = Release.load(folder)
    size = output.write_synthetic(release, out, options)
    if record is not None:
        num_rows = release.codec.num_rows if options.rows is None else options.rows
        output.write_json(sample_record(release, folder, out, num_rows, options.where), record, force=options.force)
    output.warn_if_not_private(release)
    output.note_on_units(release, options.quiet)
    echo(f"Wrote {size} to {out}", quiet=options.quiet)


@app.command()
@with_options(
    folder=typer.Argument(help="A release folder, or the record of a failed run (OUT.spent/)."),
    html="Also write a page to publish or print: one HTML file.",
)
def certificate(folder: Path, html: Path | None = None, json_file: str | None = None, force: bool = False) -> None:
    """Show the guarantee of a release, or what a failed run has spent, as text, HTML or JSON."""
    from understudy.certificate import to_markdown
    from understudy.certificate.page import write_page
    from understudy.cli.show import show_markdown
    from understudy.tables import check_writable

    option.check_json(json_file, force)
    if html is not None:
        option.check_ending("--html", html, (".html", ".htm"))
        check_writable(html, force=force)
    statement, checksums = option.read_certified(folder)
    if json_file != "-":
        show_markdown(to_markdown(statement, checksums))
    if html is not None:
        write_page(html, statement, checksums, force=force)
    output.write_certificate_json(statement, checksums, json_file, force)


app.command()(bundle)
app.command()(verify)


@app.command()
@with_options(
    form=typer.Option("--format", help="croissant, dcat, healthdcat, table-schema or registry."),
    out="The file to write.",
    about="TOML file with what the schema does not say: title, licence, publisher and so on.",
    files=typer.Option(
        "--file", help="A synthetic table of this release: its name and checksum are stated. Repeatable."
    ),
)
def metadata(
    folder: Path,
    form: str,
    out: Path,
    about: Path | None = None,
    files: list[Path] | None = None,
    force: bool = False,
    quiet: bool = False,
) -> None:
    """Describe a release for a data catalogue or the registry of deployments of differential privacy.

    The description is made from the schema and the certificate. No row is read.
    """
    from understudy.institution.metadata.describe import describe_release
    from understudy.release import is_graph_release
    from understudy.run.atomic import write_file

    if is_graph_release(folder):
        raise ConfigError(f"{folder} is the release of a graph. These formats describe tables.")
    content = describe_release(folder, form, about=about, files=files or ())
    write_file(out, content, force=force)
    echo(f"Wrote {out}. Review it before you publish it.", quiet=quiet)


@app.command()
@with_options(
    real=typer.Argument(help="The real table."),
    synthetic=typer.Argument(help="Synthetic tables, each a file or NAME=FILE."),
    schema=option.EVALUATED_SCHEMA,
    target="The column to predict. Default: the schema's.",
    holdout="Real rows that were not fitted. Default: those held out by 'synth --split' (fake.holdout.csv for "
    "fake.csv), else a fifth of REAL.",
    quick="Fast: marginals, dependences, one classifier, on at most 10,000 rows.",
    full="Slow: all rows, pairwise interactions, 1,000 bootstrap samples.",
    metrics="Only this metric or group. Repeatable.",
    constraints="An SQL condition that every row should meet. Repeatable.",
    report="Write an HTML report.",
    release="A release folder: its schema is used, and the report shows its certificate. With several tables, "
    "NAME=FOLDER. Default: the folder beside the synthetic table.",
    quiet=option.TERSE,
)
def evaluate(
    real: str,
    synthetic: list[str],
    reading: "ReadOptions",
    schema: Path | None = None,
    target: str | None = None,
    holdout: str | None = None,
    quick: bool = False,
    full: bool = False,
    metrics: list[str] | None = None,
    constraints: list[str] | None = None,
    report: Path | None = None,
    release: str | None = None,
    json_file: str | None = None,
    force: bool = False,
    quiet: bool = False,
) -> None:
    """Compare synthetic tables with the real one. Reads real rows: the output is NOT private."""
    from understudy.cli.show import show_scorecard
    from understudy.evaluation.evaluate import evaluate
    from understudy.evaluation.scorecard import WARNING
    from understudy.report import write_report

    if quick and full:
        raise ConfigError("--quick and --full cannot be combined. Give one of them, or neither.")
    tables = option.named_tables(synthetic)
    option.check_outputs(
        {"--report": report, "--json": None if json_file == "-" else json_file},
        [real, *tables.values(), holdout, schema],
        force=force,
    )
    known = evaluating.find_release(tables, release, schema)
    if known.graph is not None:
        for_tables = {"--target": target, "--holdout": holdout, "--quick": quick, "--full": full}
        refuse_table_options({**for_tables, "--metric": metrics, "--constraint": constraints})
        return evaluating.evaluate_graph(real, tables, known, reading, report, json_file, force=force, quiet=quiet)
    with show_progress(quiet, "evaluating") as progress:
        scorecard = evaluate(
            real,
            tables,
            schema=known.schema,
            target=target,
            holdout=known.holdout if holdout is None else holdout,
            holdout_from_split=holdout is None and known.holdout is not None,
            metrics=metrics,
            effort="quick" if quick else "full" if full else "default",
            constraints=constraints or (),
            reading=reading,
            progress=progress,
        )
    scorecard = evaluating.note_schema(scorecard, known)
    if not quick and metrics is None and (report or json_file):
        scorecard = add_disclosure(scorecard, real, tables, holdout, known, reading, quiet=quiet)
    output.write_json(scorecard.to_json(), json_file, force=force)
    if report is not None:
        write_report(report, scorecard, known.statement, of=known.of, force=force)
    warnings = [f"Warning: {sentence}" for sentence in scorecard.to_json()["warnings"]]
    if json_file == "-":  # standard output is the document, which holds all of this too
        say("\n".join([WARNING, *warnings]), err=True)
        return
    say(WARNING)
    evaluating.say_sources(known, holdout)
    show_scorecard(scorecard, all_scores=metrics is not None)
    for warning in warnings:
        say(warning)
    evaluating.say_written(report, json_file, quiet=quiet)


app.command()(disclose)
app.command()(audit)
app.command()(studio)


@app.command()
@with_options(
    scores=typer.Argument(help="A scorecard written by 'evaluate --json'."),
    out="The HTML page.",
    release="A release folder whose certificate is added to the report; with several tables, NAME=FOLDER.",
    quiet=option.TERSE,
)
def report(scores: Path, out: Path, release: str | None = None, force: bool = False, quiet: bool = False) -> None:
    """Write the HTML report of a scorecard again, without the data. NOT private."""
    from understudy.evaluation.scorecard import WARNING, Scorecard, write_confidential
    from understudy.report import render

    option.check_outputs({"--out": out}, [scores], force=force)
    scorecard = Scorecard.load(scores)
    try:
        page = render(scorecard)  # the only reader of all its parts
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{scores} is damaged or was edited. Write it again with 'understudy evaluate --json'."
        ) from error
    statement, of = option.read_statement(release, scorecard.methods)
    if statement is not None:
        page = render(scorecard, statement, of=of)
    write_confidential(out, page.encode(), force=force)
    say(WARNING)
    echo(f"Wrote {out}", quiet=quiet)


@app.command()
@with_options(
    schema=typer.Argument(help="Schema file (TOML)."),
    rows=typer.Option("--rows", help="Assumed number of rows; replaces a declared one."),
    book="Also show what the run would use of this budget book.",
    plan_hash=typer.Option("--hash", help="With --book: refuse to show any plan but the one with this hash."),
)
def plan(
    schema: Path,
    epsilon: float | None = None,
    accuracy: str | None = None,
    delta: float | None = None,
    method: str = "auto",
    settings: list[str] | None = None,
    target: str | None = None,
    rows: int | None = None,
    *,
    binning: "Binning",
    protect: str | None = None,
    book: Path | None = None,
    plan_hash: str | None = None,
    json_file: str | None = None,
    force: bool = False,
) -> None:
    """List every private query of a run and its privacy cost. Reads no data.

    Also shows the expected noise of the marginals, for methods whose noise is known in advance. With --book, it also
    prints the hash by which a second person approves the plan.
    """
    if plan_hash is not None and book is None:
        raise ConfigError("--hash needs a budget book. Name the book: --book.")
    if is_graph_schema(schema):
        return show_graph_plan(schema, epsilon, delta, protect, json_file, force=force, book=book, plan_hash=plan_hash)
    if protect is not None:
        raise ConfigError("--protect is for graphs. Remove it, or name the schema of a graph.")
    from understudy.api import assume_rows, make_plan
    from understudy.certificate import public_facts
    from understudy.institution.book.reservation import propose_run
    from understudy.schema import Schema

    if epsilon is not None and accuracy is not None:
        raise ConfigError("--epsilon and --accuracy cannot be combined. Remove one of them.")
    if epsilon is None and accuracy is None:
        raise ConfigError(
            "Set the privacy budget: --epsilon 1 (smaller is more private), or the accuracy that it must allow: "
            '--accuracy "2-way 1%".'
        )
    guarantee = option.read_guarantee(epsilon, delta, False) if accuracy is None else None
    declared = Schema.read(schema)
    declared = declared if target is None else declared.with_target(target)
    synthesizer = option.read_synthesizer(method, settings)
    if guarantee is None:
        from understudy.planning.accuracy import guarantee_for

        assert accuracy is not None
        guarantee = guarantee_for(declared, accuracy, synthesizer, delta=delta, rows=rows, binning=binning)
    made = make_plan(declared, synthesizer, guarantee, rows=rows, binning=binning)
    assumed = assume_rows(declared, rows)
    facts, proposed = public_facts(assumed), None
    if book is not None:
        if rows not in (None, declared.rows):
            raise ConfigError("A run with a budget book uses the declared number of rows. Remove --rows.")
        proposed = propose_run(book, declared, synthesizer, guarantee, binning)
        output.require_hash(*proposed, plan_hash)
    guarantee = guarantee.with_delta_for(assumed.rows)
    output.show_plan(made, guarantee, facts, rows or declared.rows, json_file, force=force, proposed=proposed)


@app.command()
@with_options()
def preview(
    source: str,
    reading: "ReadOptions",
    epsilon: float | None = None,
    delta: float | None = None,
    schema: Path | None = None,
    method: str = "auto",
    settings: list[str] | None = None,
    target: str | None = None,
    *,
    binning: "Binning",
) -> None:
    """Show what a release would keep of a table, before anything is spent. Reads real rows: the output is NOT private.

    Prints what is expected to be kept of each column, the fraction of "other", and the noise in a count, also for
    epsilon 0.1 to 10. Writes nothing. Choices made from it are not covered by the guarantee.
    """
    instead = "For a graph, 'understudy plan' lists every query, and 'understudy schema check' what would be left out."
    refuse_graphs("preview", instead, schema, Path(source))
    from understudy.cli.show import show_preview
    from understudy.schema import Schema
    from understudy.steward.preview import preview as make_preview

    guarantee = option.read_guarantee(epsilon, delta, False)
    declared = None if schema is None else Schema.read(schema)
    synthesizer = option.read_synthesizer(method, settings)
    show_preview(
        make_preview(source, synthesizer, guarantee, schema=declared, target=target, binning=binning, reading=reading)
    )


@app.command()
@with_options()
def methods(json_file: str | None = None, force: bool = False) -> None:
    """List the methods, one line each."""
    from understudy.synthesizers import describe_methods

    described = describe_methods()
    output.write_json(dict(described), json_file, force=force)
    if json_file == "-":
        return
    width = max(len(name) for name, _ in described)
    say(f"{'auto':<{width}}  Another name for the default, adaptive.")
    for name, line in described:
        say(f"{name:<{width}}  {line}")


app.command()(doctor)
