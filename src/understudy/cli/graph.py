"""Commands on graphs: what `synth`, `fit`, `sample`, `plan`, `evaluate` and `schema` do with an edge list."""

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.cli.fit import Fit, FitCommand, RunPrinter, TableFit
from understudy.cli.options import read_guarantee
from understudy.cli.output import (
    SampleOptions,
    note_if_synthetic,
    note_on_formulas,
    require_hash,
    say_findings,
    show_plan,
    warn_if_not_private,
    write_rows,
)
from understudy.cli.terminal import echo
from understudy.errors import ConfigError

if TYPE_CHECKING:
    from understudy.graphs import GraphRelease, GraphSchema
    from understudy.progress import Progress
    from understudy.tables import ReadOptions

NOT_FOR_GRAPHS = (
    *("method", "settings", "target", "split", "holdout", "rows", "where", "id_prefix", "bins"),
    *("max_bins", "max_categories", "public", "keep_types", "engine", "scratch"),
)
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


def fit_of(options: FitCommand, folder: Path, out: str | None = None) -> "TableFit | GraphFit":
    """The fit of a table or, by --kind or else by the schema, of an edge list."""
    if options.kind not in (None, "table", "graph"):
        raise ConfigError(f"--kind must be table or graph, found {options.kind!r}.")
    is_graph = options.kind == "graph" or (options.kind is None and is_graph_schema(options.schema))
    if options.protect is not None and not is_graph:
        raise ConfigError("--protect is for graphs. Add --kind graph, or remove it.")
    return GraphFit(options, folder, out) if is_graph else TableFit(options, folder, out)


class GraphFit(Fit["GraphRelease"]):
    """The fit of a graph."""

    example = "fake_edges.csv"

    def check(self) -> None:
        for field in dataclasses.fields(FitCommand):
            if field.name in NOT_FOR_GRAPHS and getattr(self.options, field.name) not in (field.default, None):
                option = "set" if field.name == "settings" else field.name.replace("_", "-")
                refuse_table_options({f"--{option}": True})

    def fit(self, checkpoint: Path, progress: "Progress") -> "GraphRelease":
        from understudy.graphs import fit_graph

        options = self.options
        schema = read_graph_schema(options.schema)
        note_if_synthetic(options.source, quiet=options.quiet)
        return fit_graph(
            options.source,
            schema,
            read_guarantee(options.epsilon, options.delta, options.not_private),
            protect=options.protect or "edge",
            seed=options.seed,
            reading=options.reading,
            book=options.book,
            policy=options.policy,
            progress=RunPrinter(options, self.folder, progress),
            checkpoint=checkpoint,
            resume=options.resume,
        )

    def write(self, release: "GraphRelease", out: str) -> str:
        return f"{write_edges(release, out, self.options)} between {release.schema.num_nodes:,} nodes"

    def note(self, release: "GraphRelease") -> None:
        echo("The nodes and their attributes are public; the certificate states this first.", quiet=self.options.quiet)


def write_edges(release: "GraphRelease", out: str, options: FitCommand | SampleOptions) -> str:
    """Samples and writes an edge list. Returns its number of edges as text."""
    edges = release.sample(seed=options.seed)
    note_on_formulas(write_rows([edges], out, options, title=release.statement.facts.name), out, options)
    return f"{len(edges):,} synthetic edges"


def read_graph_schema(path: Path | None) -> "GraphSchema":
    """The schema of a graph; refuses that of a table."""
    from understudy.graphs.schema import as_graph_schema

    if path is not None and not is_graph_schema(path) and path.suffix.lower() == ".toml" and path.exists():
        raise ConfigError(f"{path} describes a table, not a graph: it has no [nodes] section. Declare the nodes.")
    return as_graph_schema(path)


def sample_graph(folder: Path, out: str, options: SampleOptions) -> None:
    """Samples a synthetic graph from its release."""
    from understudy.graphs import GraphRelease
    from understudy.tables import check_writable

    refuse_table_options({"--id-prefix": options.id_prefix})
    for option, value in {"--rows": options.rows, "--where": options.where}.items():
        if value is not None:
            raise ConfigError(f"{option} does not apply to a graph: a sample is a whole graph. Remove it.")
    check_writable(out, force=options.force, table=True, sidecar=not options.no_sidecar)
    release = GraphRelease.load(folder)
    written = write_edges(release, out, options)
    warn_if_not_private(release)
    echo(f"Wrote {written} to {out}", quiet=options.quiet)


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
    from understudy.graphs import plan_graph
    from understudy.graphs.fit import propose_graph, read_unit
    from understudy.graphs.release import graph_facts

    declared = read_graph_schema(schema)
    guarantee = read_guarantee(epsilon, delta, False).with_delta_for(None)
    plan = plan_graph(declared, guarantee, protect=protect or "edge")
    unit, proposed = read_unit(protect or "edge", declared), None
    if book is not None:
        from understudy.institution.book.proposal import as_book, require_covered

        proposed = as_book(book), propose_graph(declared, unit, guarantee)
        require_covered(*proposed)
        require_hash(*proposed, plan_hash)
    show_plan(plan, guarantee, graph_facts(declared, unit), None, json_file, force=force, proposed=proposed)


def refuse_table_options(options: Mapping[str, object]) -> None:
    """Refuses what applies to tables only, rather than ignoring it."""
    for option, value in options.items():
        if value not in (None, False):
            raise ConfigError(f"{option} does not apply to a graph. Remove it.")


def refuse_graphs(command: str, instead: str, schema: Path | None, *folders: Path | None) -> None:
    """Refuses a command that is for tables, if its schema or one of its release folders is that of a graph."""
    from understudy.release import is_graph_release

    graph = schema if is_graph_schema(schema) else next(filter(is_graph_release, filter(None, folders)), None)
    if graph is not None:
        raise ConfigError(f"{command!r} is for tables, and {graph} is of a graph. {instead}")


def draft_graph(names: Sequence[str], out: Path, *, force: bool, quiet: bool) -> None:
    """Writes what is public about a graph, for a person to complete, from the names of the columns alone."""
    from understudy.graphs.schema import draft_schema
    from understudy.tables import write_file

    text = draft_schema(names)
    write_file(out, text.encode(), force=force)
    echo(f"Wrote {out}. Review it, and declare the nodes: the list must not be read from the edges.", quiet=quiet)


def check_graph(source: str, schema: Path, reading: "ReadOptions") -> None:
    """Says what fit would leave out of an edge list."""
    from understudy.graphs.check import check_edges

    say_findings(check_edges(source, read_graph_schema(schema), reading=reading), "The edge list fits its schema.")
