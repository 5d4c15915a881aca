"""Commands on graphs: what `synth`, `fit`, `sample`, `plan`, `evaluate` and `schema` do with an edge list."""

import dataclasses
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from understudy.cli.evaluation import folder_beside
from understudy.cli.labels import note_if_synthetic
from understudy.cli.options import (
    FitCommand,
    check_json,
    check_outputs,
    read_guarantee,
    refuse_book,
    refuse_own_input,
    release_folder,
    sidecar_of,
)
from understudy.cli.output import show_book, show_spent, warn_if_not_private, write_certificate_json, write_json
from understudy.cli.terminal import echo
from understudy.errors import ConfigError, ReleaseError

if TYPE_CHECKING:
    from understudy.graphs import GraphRelease, GraphSchema
    from understudy.privacy.ledger import Guarantee, Statement
    from understudy.tables import ReadOptions

NOT_FOR_GRAPHS = {
    "method": "--method",
    "settings": "--set",
    "target": "--target",
    "split": "--split",
    "holdout": "--holdout",
    "rows": "--rows",
    "where": "--where",
    "id_prefix": "--id-prefix",
    "bins": "--bins",
    "max_bins": "--max-bins",
    "max_categories": "--max-categories",
    "public": "--public",
    "keep_types": "--keep-types",
    "resume": "--resume",
    "engine": "--engine",
    "scratch": "--scratch",
}
"""Options of `synth` and `fit` that apply to tables only."""


def is_graph_schema(path: str | Path | None) -> bool:
    """Whether a schema file describes a graph: it has a [graph] or a [nodes] section."""
    if path is None:
        return False
    try:
        content = tomllib.loads(Path(path).read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return False  # the reader of schemas says what is wrong
    return "graph" in content or "nodes" in content


def is_graph_run(options: FitCommand) -> bool:
    """Whether the source is an edge list, by --kind or else by the schema."""
    if options.kind not in (None, "table", "graph"):
        raise ConfigError(f"--kind must be table or graph, found {options.kind!r}.")
    is_graph = options.kind == "graph" or (options.kind is None and is_graph_schema(options.schema))
    if options.protect is not None and not is_graph:
        raise ConfigError("--protect is for graphs. Add --kind graph, or remove it.")
    return is_graph


def synth_graph(options: FitCommand, out: str) -> None:
    """Fits, samples and certifies a graph."""
    from understudy.metadata.table_schema import describe_synthetic
    from understudy.tables import check_writable, write_table

    folder = release_folder(out)
    refuse_own_input(options.source, out)
    check_writable(out, force=options.force, table=True, sidecar=not options.no_sidecar)
    release = _fit_into(options, folder, out)
    edges = release.sample(seed=options.seed)
    describe = None if options.no_sidecar else describe_synthetic(title=release.statement.facts.name)
    write_table(edges, out, force=options.force, describe=describe)
    if sidecar_of(out) is not None:
        release = release.with_table(out)
        release.save(folder, force=True)
    size = f"{len(edges):,} synthetic edges between {release.schema.num_nodes:,} nodes"
    echo(f"Wrote {size} to {out}; certificate: {folder / 'certificate.html'}", quiet=options.quiet)
    write_certificate_json(release.statement, release.checksums, options.json_file, options.force)


def fit_graph_into(options: FitCommand, out: Path) -> None:
    """Fits a graph and writes its release folder."""
    release = _fit_into(options, out)
    echo(f"Wrote {out}. Next: understudy sample {out} -o fake_edges.csv", quiet=options.quiet)
    write_certificate_json(release.statement, release.checksums, options.json_file, options.force)


def _fit_into(options: FitCommand, folder: Path, out: str | None = None) -> "GraphRelease":
    """Fits a graph and saves the release. What can be refused is refused before anything is read."""
    from understudy.failed_run import SpentError
    from understudy.graphs import fit_graph
    from understudy.release import RELEASE_FILES
    from understudy.run.atomic import require_free_folder

    defaults = {field.name: field.default for field in dataclasses.fields(FitCommand)}
    for name, option in NOT_FOR_GRAPHS.items():
        if getattr(options, name) not in (defaults[name], None):
            raise ConfigError(f"{option} does not apply to a graph. Remove it.")
    require_free_folder(folder, force=options.force, contents=RELEASE_FILES)
    refuse_book(options.book, options.json_file, out)
    check_json(options.json_file, options.force)
    guarantee = read_guarantee(options.epsilon, options.delta, options.not_private)
    schema = _read_schema(options.schema)
    note_if_synthetic(options.source, quiet=options.quiet)
    try:
        release = fit_graph(
            options.source,
            schema,
            guarantee,
            protect=options.protect or "edge",
            seed=options.seed,
            reading=options.reading,
            book=options.book,
            policy=options.policy,
        )
    except SpentError as error:
        if options.book is None:
            _say_total(folder, options, schema, guarantee)
        record = Path(f"{folder}.spent")
        error.save(record)
        raise SpentError(error.failure, error.statement, record) from None
    if options.book is None:  # a budget book knows the total better
        _say_total(folder, options, schema, guarantee)  # not before: a refused run spends nothing
    release.save(folder, force=options.force)
    show_spent(release, options.quiet)
    if options.book is not None:
        show_book(options.book, release, options.quiet)
    echo("The nodes and their attributes are public; the certificate states this first.", quiet=options.quiet)
    return release


def _say_total(folder: Path, options: FitCommand, schema: "GraphSchema", guarantee: "Guarantee") -> None:
    """Says what earlier releases of this graph in the same place and this run have spent together."""
    from understudy.composition import NextRelease, describe_total, earlier_releases
    from understudy.tables import source_id

    if options.seed is not None or not guarantee.is_private:
        return
    guarantee = guarantee.with_delta_for(None)
    source = source_id(options.source)
    name = schema.name or (None if isinstance(source, int) else source.name)
    assert guarantee.delta is not None
    now = NextRelease(name, None, guarantee.epsilon, guarantee.delta, options.protect or "edge")
    if (total := describe_total(earlier_releases(folder, name), now)) is not None:
        typer.echo(total, err=True)


def _read_schema(path: Path | None) -> "GraphSchema":
    from understudy.graphs.schema import as_graph_schema

    if path is not None and not is_graph_schema(path) and path.suffix.lower() == ".toml" and path.exists():
        raise ConfigError(f"{path} describes a table, not a graph: it has no [nodes] section. Declare the nodes.")
    return as_graph_schema(path)


def sample_graph(
    folder: Path,
    out: str,
    rows: int | None,
    where: str | None,
    *,
    seed: int | None,
    sidecar: bool,
    force: bool,
    quiet: bool,
) -> None:
    """Samples a synthetic graph from its release."""
    from understudy.graphs import GraphRelease
    from understudy.metadata.table_schema import describe_synthetic
    from understudy.tables import check_writable, write_table

    for option, value in {"--rows": rows, "--where": where}.items():
        if value is not None:
            raise ConfigError(f"{option} does not apply to a graph: a sample is a whole graph. Remove it.")
    check_writable(out, force=force, table=True, sidecar=sidecar)
    release = GraphRelease.load(folder)
    edges = release.sample(seed=seed)
    describe = describe_synthetic(title=release.statement.facts.name) if sidecar else None
    write_table(edges, out, force=force, describe=describe)
    warn_if_not_private(release)
    echo(f"Wrote {len(edges):,} synthetic edges to {out}", quiet=quiet)


def show_graph_plan(
    schema: Path,
    epsilon: float | None,
    delta: float | None,
    protect: str | None,
    json_file: str | None,
    *,
    force: bool,
    book: Path | None = None,
    plan_hash: str | None = None,
) -> None:
    """Lists every private query on a graph."""
    from understudy.cli.output import require_hash, show_plan
    from understudy.graphs import plan_graph
    from understudy.graphs.fit import graph_facts, propose_graph, read_unit

    declared = _read_schema(schema)
    guarantee = read_guarantee(epsilon, delta, False).with_delta_for(None)
    plan = plan_graph(declared, guarantee, protect=protect or "edge")
    unit, proposed = read_unit(protect or "edge", declared), None
    if book is not None:
        from understudy.book.proposal import as_book, require_covered

        proposed = as_book(book), propose_graph(declared, unit, guarantee)
        require_covered(*proposed)
        require_hash(*proposed, plan_hash)
    show_plan(plan, guarantee, graph_facts(declared, unit), None, json_file, force=force, proposed=proposed)


@dataclasses.dataclass(frozen=True)
class KnownGraph:
    """What is known about graphs to evaluate before their edges are read."""

    schema: "GraphSchema"
    schema_from: str = ""
    """The release folder whose schema is used; empty: a schema file."""
    statement: "Statement | None" = None
    of: str | None = None
    """The graph whose certificate the report shows."""


def find_graph_release(tables: Mapping[str, str], given: str | None, schema: Path | None) -> KnownGraph | None:
    """The schema of the graphs to evaluate, and the statement for a report. None: these are tables.

    As for tables, a schema file takes precedence over --release, and that over the releases beside synthetic graphs.
    """
    from understudy.graphs import GraphRelease

    if schema is not None and not is_graph_schema(schema):
        return None
    if given is not None:
        of, folder = named_release(given)
        if schema is None and not is_graph_folder(folder):
            return None
        if of is None and len(tables) > 1:
            raise ConfigError(
                f"There are {len(tables)} synthetic graphs. Say which one the release belongs to: "
                "--release NAME=FOLDER."
            )
        if of is not None and of not in tables:
            raise ConfigError(f"--release names {of!r}, but the synthetic graphs are {', '.join(tables)}.")
        release = GraphRelease.load(folder)
        declared = release.schema if schema is None else _read_schema(schema)
        return KnownGraph(declared, "" if schema else str(folder), release.statement, of or next(iter(tables)))
    if schema is not None:
        return KnownGraph(_read_schema(schema))
    found = {name: beside for name, place in tables.items() if (beside := folder_beside(place)) is not None}
    kinds = {is_graph_folder(folder) for folder in found.values()}
    if True not in kinds:
        return None
    listed = ", ".join(map(str, found.values()))
    if False in kinds:
        raise ConfigError(f"Of the releases {listed}, some are of graphs and some of tables. Evaluate them separately.")
    try:
        releases = {name: GraphRelease.load(folder) for name, folder in found.items()}
    except ReleaseError as error:
        raise ReleaseError(f"{error} To evaluate without it, give --schema.") from None
    first, release = next(iter(releases.items()))
    if any(other.schema != release.schema for other in releases.values()):
        raise ConfigError(
            f"The releases beside the synthetic graphs ({listed}) have different schemas. Say which one to use: "
            "--schema FILE, or --release NAME=FOLDER."
        )
    known = KnownGraph(release.schema, str(found[first]))
    return known if len(tables) > 1 else dataclasses.replace(known, statement=release.statement, of=first)


def named_release(given: str) -> tuple[str | None, Path]:
    """The name and the folder in --release, given as FOLDER or NAME=FOLDER."""
    name, equals, folder = given.partition("=")
    return (None, Path(given)) if not equals or os.path.isdir(given) else (name, Path(folder))


def evaluate_graph(
    real: str,
    tables: Mapping[str, str],
    known: KnownGraph,
    outputs: "Mapping[str, Path | str | None]",
    reading: "ReadOptions",
    *,
    schema: Path | None,
    force: bool,
    quiet: bool,
) -> None:
    """Prints the metrics of synthetic graphs beside those of the real one and of a random one.

    `outputs` are the files to write, by option: --report and --json, which may be "-".
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from understudy.evaluation.scorecard import WARNING
    from understudy.graphs import evaluate
    from understudy.graphs.metrics import METRICS
    from understudy.report.graph_page import write_graph_report
    from understudy.report.graph_verdict import graph_verdict

    report, json_file = outputs["--report"], outputs["--json"]
    files = {option: path for option, path in outputs.items() if path not in (None, "-")}
    check_outputs(files, [real, *tables.values(), schema], force=force)
    scores = evaluate(real, tables, known.schema, reading=reading)
    if json_file is not None:
        write_json(scores.to_json(), str(json_file), force=force)
    if report is not None:
        write_graph_report(report, scores, known.statement, of=known.of, force=force)
    if json_file == "-":  # standard output is the document
        typer.echo(WARNING, err=True)
        return
    typer.echo(WARNING)
    if known.schema_from:
        typer.echo(f"Schema: that of the release {known.schema_from}.")
    console = Console()
    for name in tables:
        grid = Table.grid(padding=(0, 2))
        for heading, sentence in graph_verdict(scores, name).items():
            grid.add_row(Text(heading, style="bold"), Text(sentence))
        if len(tables) > 1:
            console.print(Text(name, style="bold"))
        console.print(grid)
    shown = Table("", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in scores.values:
        shown.add_column(Text(name), justify="right")
    for metric in METRICS:
        if metric in scores["real"]:
            shown.add_row(metric, *(f"{values[metric]:.4g}" for values in scores.values.values()))
    console.print(shown)
    written = [str(path) for path in files.values()]
    echo(f"Wrote {' and '.join(written)}" if written else "More: --report report.html, --json scores.json", quiet=quiet)


def refuse_table_options(options: Mapping[str, object]) -> None:
    """Refuses what applies to tables only, rather than ignore it."""
    for option, value in options.items():
        if value not in (None, False):
            raise ConfigError(f"{option} does not apply to a graph. Remove it.")


def refuse_graphs(command: str, instead: str, schema: Path | None, *folders: Path | None) -> None:
    """Refuses a command that is for tables, if its schema or one of its release folders is that of a graph."""
    graph = (
        schema if is_graph_schema(schema) else next((each for each in folders if each and is_graph_folder(each)), None)
    )
    if graph is not None:
        raise ConfigError(f"{command!r} is for tables, and {graph} is of a graph. {instead}")


def draft_graph(names: Sequence[str], out: Path, *, force: bool, quiet: bool) -> None:
    """Writes what is public about a graph, for a person to complete, from the names of the columns alone."""
    from understudy.graphs.schema import draft_schema
    from understudy.tables import atomic_write

    text = draft_schema(names)
    with atomic_write(out, force=force) as file:
        file.write(text.encode())
    echo(f"Wrote {out}. Review it, and declare the nodes: the list must not be read from the edges.", quiet=quiet)


def check_graph(source: str, schema: Path, reading: "ReadOptions") -> None:
    """Says what fit would leave out of an edge list."""
    from understudy.graphs.check import check_edges

    findings = check_edges(source, _read_schema(schema), reading=reading)
    typer.echo("For the steward only: these findings are computed from the rows and are not private.")
    for finding in findings:
        typer.echo(str(finding))
    counted = "1 finding." if len(findings) == 1 else f"{len(findings)} findings."
    typer.echo(counted if findings else "The edge list fits its schema.")


def is_graph_folder(folder: Path) -> bool:
    """Whether a release folder is that of a graph. Reads a few bytes."""
    try:
        with open(os.path.join(folder, "release.json"), "rb") as file:
            return b'"understudy-graph-release"' in file.read(200)
    except OSError:
        return False
