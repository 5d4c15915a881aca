"""The commands. Each reads its arguments, calls one public function, and writes."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy._version import __version__
from understudy.cli import evaluation as evaluating
from understudy.cli.audit import audit
from understudy.cli.benchmark import benchmark_app
from understudy.cli.book import book_app
from understudy.cli.bundle import bundle, verify
from understudy.cli.disclose import add_disclosure, disclose
from understudy.cli.doctor import doctor
from understudy.cli.graph import (
    evaluate_graph,
    find_graph_release,
    fit_graph_into,
    is_graph_folder,
    is_graph_run,
    is_graph_schema,
    refuse_graphs,
    refuse_table_options,
    sample_graph,
    show_graph_plan,
    synth_graph,
)
from understudy.cli.labels import IdPrefix, NoSidecar
from understudy.cli.metadata import metadata
from understudy.cli.mock import mock
from understudy.cli.options import (
    Accuracy,
    Bins,
    CertificateOf,
    Delta,
    Epsilon,
    FitCommand,
    Force,
    JsonFile,
    MaxBins,
    MaxCategories,
    Method,
    NumRows,
    Protect,
    Quiet,
    ReleaseOf,
    SchemaFile,
    Settings,
    Source,
    Target,
    Terse,
    Where,
    check_ending,
    check_json,
    check_outputs,
    named_tables,
    read_binning,
    read_certified,
    read_guarantee,
    read_statement,
    read_synthesizer,
    refuse_own_input,
    release_folder,
    sidecar_of,
    takes_fit_options,
)
from understudy.cli.output import (
    note_on_draft,
    note_on_units,
    require_hash,
    show_comparison,
    show_markdown,
    show_plan,
    show_scores,
    show_spent,
    warn_if_not_private,
    write_certificate_json,
    write_json,
    write_synthetic,
)
from understudy.cli.preview import show_preview
from understudy.cli.reading import takes_reading_options
from understudy.cli.schema import schema_app
from understudy.cli.split import split
from understudy.cli.studio import studio
from understudy.cli.terminal import echo, show_progress
from understudy.errors import ConditionError, ConfigError

if TYPE_CHECKING:
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
        typer.echo(f"understudy {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Output folder.")] = Path("understudy-demo"),
    epsilon: Epsilon = 1.0,
    method: Method = "auto",
    force: Annotated[bool, typer.Option("--force/--no-force", help="Replace the folder if it exists.")] = True,
    quiet: Quiet = False,
) -> None:
    """Make a synthetic survey from the embedded one: table, release, certificate and report."""
    from understudy.api import fit
    from understudy.demo import demo_schema, demo_table
    from understudy.evaluation.evaluate import evaluate
    from understudy.metadata.table_schema import describe_synthetic
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
    guarantee = read_guarantee(epsilon, None, False)
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
        show_spent(release, quiet)
    echo(f"Wrote synthetic.csv, synthetic.release{os.sep} and report.html to {out}{os.sep},", quiet=quiet)
    echo("and the survey itself with its schema, to try other commands: survey.csv, schema.toml.", quiet=quiet)
    echo("report.html contains statistics of the real rows. Do not share it when you use your own data.", quiet=quiet)
    echo(f"Next: understudy sample {out / 'synthetic.release'} -n 1000 -o more.csv", quiet=quiet)


@app.command()
@takes_reading_options
@takes_fit_options()
def synth(
    options: FitCommand,
    out: Annotated[str, typer.Option("-o", "--out", help="The synthetic table. Its extension sets the format.")],
) -> None:
    """Fit, sample and certify in one step. The release folder is kept beside the table, as OUT.release/.

    During the run, OUT.release.checkpoint/ holds what --resume needs. It is private: never share it. A run that fails
    after its first query has spent its budget, and OUT.release.spent/ records that.
    """
    if is_graph_run(options):
        return synth_graph(options, out)
    from understudy.release import check_size
    from understudy.tables import check_writable

    folder = release_folder(out)
    refuse_own_input(options.source, out)
    check_writable(out, force=options.force, table=True, sidecar=not options.no_sidecar)
    if options.rows is not None:
        check_size(options.rows, "The number of synthetic rows")
    release = options.fit_into(folder, out)
    try:
        size = write_synthetic(
            release,
            out,
            options.rows,
            where=options.where,
            seed=options.seed,
            id_prefix=options.id_prefix,
            sidecar=not options.no_sidecar,
            force=options.force,
            quiet=options.quiet,
        )
    except ConditionError as error:
        raise ConditionError(
            f"{error} The budget is spent and the release is kept. Sample from it at no cost with 'understudy sample "
            f"{folder}'{' and another --where' if options.where else ''}.",
            column=error.column,
        ) from None
    if sidecar_of(out) is not None:  # a file of its own, and not a table of a database that others may change
        release = release.with_table(out)
        release.save(folder, force=True)
    note_on_draft(release, options.quiet, given=options.schema is not None)
    echo(f"Wrote {size} to {out}; certificate: {folder / 'certificate.html'}", quiet=options.quiet)
    write_certificate_json(release.statement, release.checksums, options.json_file, options.force)


@app.command()
@takes_reading_options
@takes_fit_options(without=("rows", "where", "id_prefix", "no_sidecar"))
def fit(
    options: FitCommand, out: Annotated[Path, typer.Option("-o", "--out", help="The release folder to write.")]
) -> None:
    """Fit a method and write a release folder: a model to sample from, and its certificate.

    During the run, OUT.checkpoint/ holds what --resume needs. It is private: never share it. A run that fails after its
    first query has spent its budget, and OUT.spent/ records that.
    """
    if is_graph_run(options):
        return fit_graph_into(options, out)
    release = options.fit_into(out)
    note_on_draft(release, options.quiet, given=options.schema is not None)
    echo(f"Wrote {out}. Next: understudy sample {out} -o fake.csv", quiet=options.quiet)
    write_certificate_json(release.statement, release.checksums, options.json_file, options.force)


app.command()(mock)
app.command()(split)


@app.command()
def sample(
    folder: Annotated[Path, typer.Argument(help="A release folder.")],
    out: Annotated[str, typer.Option("-o", "--out", help="The synthetic table. Its extension sets the format.")],
    rows: NumRows = None,
    where: Where = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Makes this sample reproducible. Does not affect the guarantee.")
    ] = None,
    id_prefix: IdPrefix = None,
    no_sidecar: NoSidecar = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Sample rows from a release, as often as you like: sampling has no privacy cost.

    OUT.certificate.json, written beside the table, has its checksum, that of the release, and the guarantee.
    """
    if is_graph_folder(folder):
        refuse_table_options({"--id-prefix": id_prefix})
        return sample_graph(folder, out, rows, where, seed=seed, sidecar=not no_sidecar, force=force, quiet=quiet)
    from understudy.release import Release, sample_record
    from understudy.tables import check_writable

    check_writable(out, force=force, table=True, sidecar=not no_sidecar)
    record = sidecar_of(out)
    if record is not None:
        check_writable(record, force=force)
    release = Release.load(folder)
    num_rows = release.codec.num_rows if rows is None else rows
    size = write_synthetic(
        release,
        out,
        num_rows,
        where=where,
        seed=seed,
        id_prefix=id_prefix,
        sidecar=not no_sidecar,
        force=force,
        quiet=quiet,
    )
    if record is not None:
        write_json(sample_record(release, folder, out, num_rows, where), record, force=force)
    warn_if_not_private(release)
    note_on_units(release, quiet)
    echo(f"Wrote {size} to {out}", quiet=quiet)


@app.command()
def certificate(
    folder: Annotated[Path, typer.Argument(help="A release folder, or the record of a failed run (OUT.spent/).")],
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write a page to publish or print: one HTML file.")
    ] = None,
    json_file: JsonFile = None,
    force: Force = False,
) -> None:
    """Show the guarantee of a release, or what a failed run has spent, as text, HTML or JSON."""
    from understudy.certificate import to_markdown
    from understudy.certificate_page import write_page
    from understudy.tables import check_writable

    check_json(json_file, force)
    if html is not None:
        check_ending("--html", html, (".html", ".htm"))
        check_writable(html, force=force)
    statement, checksums = read_certified(folder)
    if json_file != "-":
        show_markdown(to_markdown(statement, checksums))
    if html is not None:
        write_page(html, statement, checksums, force=force)
    write_certificate_json(statement, checksums, json_file, force)


app.command()(bundle)
app.command()(verify)
app.command()(metadata)


@app.command()
@takes_reading_options
def evaluate(
    real: Annotated[str, typer.Argument(help="The real table.")],
    synthetic: Annotated[list[str], typer.Argument(help="Synthetic tables, each a file or NAME=FILE.")],
    reading: "ReadOptions",
    schema: evaluating.EvaluationSchema = None,
    target: evaluating.EvaluationTarget = None,
    holdout: evaluating.RealHoldout = None,
    quick: evaluating.QuickEffort = False,
    full: evaluating.FullEffort = False,
    metrics: Annotated[
        list[str] | None, typer.Option("--metric", help="Only this metric or group. Repeatable.")
    ] = None,
    constraints: Annotated[
        list[str] | None, typer.Option("--constraint", help="An SQL condition that every row should meet. Repeatable.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write an HTML report.")] = None,
    release: ReleaseOf = None,
    json_file: JsonFile = None,
    force: Force = False,
    quiet: Terse = False,
) -> None:
    """Compare synthetic tables with the real one. Reads real rows: the output is NOT private."""
    from understudy.evaluation.evaluate import evaluate
    from understudy.evaluation.scorecard import WARNING
    from understudy.report import write_report

    if quick and full:
        raise ConfigError("--quick and --full cannot be combined. Give one of them, or neither.")
    tables = named_tables(synthetic)
    if (graph := find_graph_release(tables, release, schema)) is not None:
        for_tables = {"--target": target, "--holdout": holdout, "--quick": quick, "--full": full}
        refuse_table_options({**for_tables, "--metric": metrics, "--constraint": constraints})
        outputs = {"--report": report, "--json": json_file}
        return evaluate_graph(real, tables, graph, outputs, reading, schema=schema, force=force, quiet=quiet)
    check_outputs(
        {"--report": report, "--json": None if json_file == "-" else json_file},
        [real, *tables.values(), holdout, schema],
        force=force,
    )
    known = evaluating.find_release(tables, release, schema)
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
    if json_file is not None:
        write_json(scorecard.to_json(), json_file, force=force)
    if report is not None:
        write_report(report, scorecard, known.statement, of=known.of, force=force)
    warnings = [f"Warning: {sentence}" for sentence in scorecard.to_json()["warnings"]]
    if json_file == "-":  # standard output is the document, which holds all of this too
        typer.echo("\n".join([WARNING, *warnings]), err=True)
        return
    typer.echo(WARNING)
    evaluating.say_sources(known, holdout)
    evaluating.show_verdict(scorecard)
    show_scores(scorecard, all_of_them=metrics is not None)
    for warning in warnings:
        typer.echo(warning)
    written = [str(path) for path in (report, json_file) if path is not None]
    echo(f"Wrote {' and '.join(written)}" if written else "More: --report report.html, --json scores.json", quiet=quiet)


app.command()(disclose)
app.command()(audit)
app.command()(studio)


@app.command()
def report(
    scores: Annotated[Path, typer.Argument(help="A scorecard written by 'evaluate --json'.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The HTML page.")],
    release: CertificateOf = None,
    force: Force = False,
    quiet: Terse = False,
) -> None:
    """Write the HTML report of a scorecard again, without the data. NOT private."""
    from understudy.evaluation.scorecard import WARNING, Scorecard
    from understudy.report import write_report

    check_outputs({"--out": out}, [scores], force=force)
    scorecard = Scorecard.load(scores)
    statement, of = read_statement(release, scorecard.methods)
    try:
        write_report(out, scorecard, statement, of=of, force=force)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{scores} is damaged or was edited: it cannot be drawn. Write it again with 'understudy evaluate --json'."
        ) from error
    typer.echo(WARNING)
    echo(f"Wrote {out}", quiet=quiet)


@app.command()
def plan(
    schema: Annotated[Path, typer.Argument(help="Schema file (TOML).")],
    epsilon: Epsilon = None,
    accuracy: Accuracy = None,
    delta: Delta = None,
    method: Method = "auto",
    settings: Settings = None,
    target: Target = None,
    rows: Annotated[int | None, typer.Option("--rows", help="Assumed number of rows; replaces a declared one.")] = None,
    bins: Bins = "tree",
    max_bins: MaxBins = 32,
    max_categories: MaxCategories = 1000,
    protect: Protect = None,
    book: Annotated[
        Path | None, typer.Option("--book", help="Also show what the run would use of this budget book.")
    ] = None,
    plan_hash: Annotated[
        str | None, typer.Option("--hash", help="With --book: refuse to show any plan but the one with this hash.")
    ] = None,
    json_file: JsonFile = None,
    force: Force = False,
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
    from understudy.book.reservation import propose_run
    from understudy.certificate import public_facts
    from understudy.schema import Schema

    if epsilon is not None and accuracy is not None:
        raise ConfigError("--epsilon and --accuracy cannot be combined. Remove one of them.")
    if epsilon is None and accuracy is None:
        raise ConfigError(
            "Set the privacy budget: --epsilon 1 (smaller is more private), or the accuracy that it must allow: "
            '--accuracy "2-way 1%".'
        )
    guarantee = read_guarantee(epsilon, delta, False) if accuracy is None else None
    declared = Schema.read(schema)
    declared = declared if target is None else declared.with_target(target)
    synthesizer, binning = read_synthesizer(method, settings), read_binning(bins, max_bins, max_categories)
    if guarantee is None:
        from understudy.accuracy import guarantee_for

        assert accuracy is not None
        guarantee = guarantee_for(declared, accuracy, synthesizer, delta=delta, rows=rows, binning=binning)
    made = make_plan(declared, synthesizer, guarantee, rows=rows, binning=binning)
    assumed = assume_rows(declared, rows)
    facts, proposed = public_facts(assumed), None
    if book is not None:
        if rows not in (None, declared.rows):
            raise ConfigError("A run with a budget book uses the declared number of rows. Remove --rows.")
        proposed = propose_run(book, declared, synthesizer, guarantee, binning)
        require_hash(*proposed, plan_hash)
    guarantee = guarantee.with_delta_for(assumed.rows)
    show_plan(made, guarantee, facts, rows or declared.rows, json_file, force=force, proposed=proposed)


@app.command()
@takes_reading_options
def preview(
    source: Source,
    reading: "ReadOptions",
    epsilon: Epsilon = None,
    delta: Delta = None,
    schema: SchemaFile = None,
    method: Method = "auto",
    settings: Settings = None,
    target: Target = None,
    bins: Bins = "tree",
    max_bins: MaxBins = 32,
    max_categories: MaxCategories = 1000,
) -> None:
    """Show what a release would keep of a table, before anything is spent. Reads real rows: the output is NOT private.

    Prints what is expected to be kept of each column, the fraction of "other", and the noise in a count, also for
    epsilon 0.1 to 10. Writes nothing. Choices made from it are not covered by the guarantee.
    """
    instead = "For a graph, 'understudy plan' lists every query, and 'understudy schema check' what would be left out."
    refuse_graphs("preview", instead, schema, Path(source))
    from understudy.schema import Schema
    from understudy.table_preview import preview as make_preview

    guarantee = read_guarantee(epsilon, delta, False)
    declared = None if schema is None else Schema.read(schema)
    synthesizer, binning = read_synthesizer(method, settings), read_binning(bins, max_bins, max_categories)
    show_preview(
        make_preview(source, synthesizer, guarantee, schema=declared, target=target, binning=binning, reading=reading)
    )


@app.command()
def methods(json_file: JsonFile = None, force: Force = False) -> None:
    """List the methods, one line each."""
    from understudy.synthesizers import describe_methods

    described = describe_methods()
    if json_file is not None:
        write_json(dict(described), json_file, force=force)
        if json_file == "-":
            return
    width = max(len(name) for name, _ in described)
    typer.echo(f"{'auto':<{width}}  Another name for the default, adaptive.")
    for name, line in described:
        typer.echo(f"{name:<{width}}  {line}")


app.command()(doctor)
