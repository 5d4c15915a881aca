"""What `evaluate` and `disclose` take from the release beside a synthetic table, and how graphs are evaluated."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.cli.graph import is_graph_schema, read_graph_schema
from understudy.cli.holdout import holdout_file
from understudy.cli.options import named_release, release_folder
from understudy.cli.output import write_json
from understudy.cli.terminal import echo, say
from understudy.errors import ConfigError, ReleaseError, TableError

if TYPE_CHECKING:
    from understudy.evaluation.scorecard import Scorecard
    from understudy.graphs import GraphSchema
    from understudy.privacy.accounting.ledger import Statement
    from understudy.schema import Schema
    from understudy.tables import ReadOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnownRelease:
    """What is known about synthetic tables, or about synthetic graphs, before any row is read."""

    schema: "Schema | None" = None
    graph: "GraphSchema | None" = None
    """The schema of graphs; None: these are tables."""
    schema_from: str = ""
    """The release folder whose schema is used; empty: none."""
    statement: "Statement | None" = None
    of: str | None = None
    """The table whose certificate the report shows."""
    holdout: str | None = None
    """The rows that `synth --split` has held out, beside its table."""


def find_release(tables: Mapping[str, str], given: str | None, schema: Path | None) -> KnownRelease:
    """The schema of a release, and the statement for a report.

    The release is the one in --release, else the folder that `synth` leaves beside a synthetic table. A schema file
    takes precedence over all of them. The held-out rows are those beside the only synthetic table, in each case.
    """
    from understudy.graphs import GraphRelease, GraphSchema
    from understudy.release import Release
    from understudy.schema import Schema

    beside = {name: folder for name, place in tables.items() if (folder := folder_beside(place)) is not None}
    are_graphs = _are_graphs(beside, given, schema)
    what, load = ("graphs", GraphRelease.load) if are_graphs else ("tables", Release.load)
    declared: Schema | GraphSchema | None = None
    if schema is not None:
        declared = read_graph_schema(schema) if are_graphs else Schema.read(schema)
    statement, of, schema_from = None, None, ""
    if given is not None:
        of, named = named_release(given, list(tables), what)
        release = load(named)
        statement = release.statement
        if declared is None:
            declared, schema_from = release.schema, named
    elif declared is None and beside:
        try:
            releases = [load(folder) for folder in beside.values()]
        except ReleaseError as error:
            raise ReleaseError(f"{error} To evaluate without it, give --schema.") from None
        if any(release.schema != releases[0].schema for release in releases):
            raise ConfigError(
                f"The releases beside the synthetic {what} ({', '.join(map(str, beside.values()))}) have different "
                "schemas. Say which one to use: --schema FILE, or --release NAME=FOLDER."
            )
        declared, schema_from = releases[0].schema, str(next(iter(beside.values())))
        if len(tables) == 1:
            statement, of = releases[0].statement, next(iter(beside))
    holdouts = [path for path in map(holdout_file, beside.values()) if len(tables) == 1 and path.is_file()]
    return KnownRelease(
        schema=declared if isinstance(declared, Schema) else None,
        graph=declared if isinstance(declared, GraphSchema) else None,
        schema_from=schema_from,
        statement=statement,
        of=of,
        holdout=str(holdouts[0]) if holdouts else None,
    )


def _are_graphs(beside: Mapping[str, Path], given: str | None, schema: Path | None) -> bool:
    """Whether graphs are evaluated: by the schema file, else by the release."""
    from understudy.release import is_graph_release

    if schema is not None:
        return is_graph_schema(schema)
    if given is not None:
        return is_graph_release(given if os.path.isdir(given) else given.partition("=")[2])
    kinds = {is_graph_release(folder) for folder in beside.values()}
    if len(kinds) > 1:
        listed = ", ".join(map(str, beside.values()))
        raise ConfigError(f"Of the releases {listed}, some are of graphs and some of tables. Evaluate them separately.")
    return True in kinds


def folder_beside(place: str) -> Path | None:
    """The release folder that `synth` would leave beside this table, if it is there."""
    try:
        folder = release_folder(place)
    except TableError:  # a URL
        return None
    return folder if (folder / "release.json").is_file() else None


def note_schema(scorecard: "Scorecard", known: KnownRelease) -> "Scorecard":
    """The scorecard with a note on where its schema is from."""
    from understudy.evaluation.scorecard import Scorecard

    if not known.schema_from:
        return scorecard
    content = scorecard.to_json()
    text = f"Schema{' and target' if content['target'] else ''} taken from the release {known.schema_from}."
    note: dict[str, object] = {"group": None, "tables": [], "text": text}
    return Scorecard({**content, "schema": f"of the release {known.schema_from}", "notes": [note, *content["notes"]]})


def say_sources(known: KnownRelease, holdout: str | None) -> None:
    """Says what was found beside the synthetic table."""
    if known.schema_from:
        say(f"Schema: that of the release {known.schema_from}.")
    if known.holdout is not None and holdout is None:
        say(f"Held-out rows: {known.holdout}.")


def evaluate_graph(
    real: str,
    tables: Mapping[str, str],
    known: KnownRelease,
    reading: "ReadOptions",
    report: Path | None,
    json_file: str | None,
    *,
    force: bool,
    quiet: bool,
) -> None:
    """Prints the metrics of synthetic graphs beside those of the real one and of a random one."""
    from understudy.cli.show import show_graph_scores
    from understudy.evaluation.scorecard import WARNING
    from understudy.graphs import evaluate
    from understudy.report.graph_page import write_graph_report

    assert known.graph is not None
    scores = evaluate(real, tables, known.graph, reading=reading)
    write_json(scores.to_json(), json_file, force=force)
    if report is not None:
        write_graph_report(report, scores, known.statement, of=known.of, force=force)
    if json_file == "-":  # standard output is the document
        say(WARNING, err=True)
        return
    say(WARNING)
    say_sources(known, None)
    show_graph_scores(scores, list(tables))
    say_written(report, json_file, quiet=quiet)


def say_written(
    report: Path | None, json_file: str | None, *, quiet: bool, page: str = "report", scores: str = "scores"
) -> None:
    """Names the files that were written, or those that could be."""
    written = [str(path) for path in (report, json_file) if path is not None]
    more = f"More: --report {page}.html, --json {scores}.json"
    echo(f"Wrote {' and '.join(written)}" if written else more, quiet=quiet)
