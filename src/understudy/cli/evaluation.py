"""What `evaluate` takes from a release beside the synthetic table, and what it prints: verdict, rules, scores."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.holdout import holdout_file
from understudy.cli.options import read_statement, release_folder
from understudy.errors import ConfigError, ReleaseError, TableError

if TYPE_CHECKING:
    from rich.table import Table

    from understudy.evaluation.scorecard import Scorecard
    from understudy.privacy.ledger import Statement
    from understudy.report.summary import CheckedRule
    from understudy.schema import Schema


EvaluationSchema = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        help="Schema file (TOML). Default: that of the release beside the synthetic table (fake.release for fake.csv), "
        "else inferred from the real table.",
    ),
]
EvaluationTarget = Annotated[str | None, typer.Option("--target", help="The column to predict. Default: the schema's.")]
RealHoldout = Annotated[
    str | None,
    typer.Option(
        "--holdout",
        help="Real rows that were not fitted. Default: those held out by 'synth --split' (fake.holdout.csv for "
        "fake.csv), else a fifth of REAL.",
    ),
]
QuickEffort = Annotated[
    bool, typer.Option("--quick", help="Fast: marginals, dependences, one classifier, on at most 10,000 rows.")
]
FullEffort = Annotated[
    bool, typer.Option("--full", help="Slow: all rows, pairwise interactions, 1,000 bootstrap samples.")
]


@dataclasses.dataclass(frozen=True)
class KnownRelease:
    """What is known from releases about synthetic tables."""

    schema: "Schema | None" = None
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
    from understudy.release import Release
    from understudy.schema import Schema

    declared = None if schema is None else Schema.read(schema)
    statement, of = read_statement(given, list(tables))
    found = {name: folder for name, place in tables.items() if (folder := folder_beside(place)) is not None}
    holdout = _holdout_beside(found) if len(tables) == 1 else None
    if given is not None:
        named = given if os.path.isdir(given) else given.partition("=")[2]
        return KnownRelease(declared or Release.load(named).schema, "" if declared else named, statement, of, holdout)
    if declared is not None:
        return KnownRelease(declared, holdout=holdout)
    try:
        releases = {name: Release.load(folder) for name, folder in found.items()}
    except ReleaseError as error:
        raise ReleaseError(f"{error} To evaluate without it, give --schema.") from None
    if not releases:
        return KnownRelease()
    first = next(iter(found))
    if any(release.schema != releases[first].schema for release in releases.values()):
        raise ConfigError(
            f"The releases beside the synthetic tables ({', '.join(map(str, found.values()))}) have different schemas. "
            "Say which one to use: --schema FILE, or --release NAME=FOLDER."
        )
    if len(tables) > 1:
        return KnownRelease(releases[first].schema, str(found[first]))
    return KnownRelease(releases[first].schema, str(found[first]), releases[first].statement, first, holdout)


def _holdout_beside(folders: Mapping[str, Path]) -> str | None:
    """The rows that `synth --split` has held out of the first of these releases, if they are there."""
    held = next((path for folder in folders.values() if (path := holdout_file(folder)).is_file()), None)
    return None if held is None else str(held)


def folder_beside(place: str) -> Path | None:
    """The release folder that `synth` would leave beside this table, if it is there."""
    try:
        folder = release_folder(place)
    except TableError:  # a URL
        return None
    return folder if (folder / "release.json").is_file() else None


def show_verdict(scorecard: "Scorecard") -> None:
    """Prints the four sentences about each table, if enough was scored, and every rule that was checked."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from understudy.report.summary import checked_rules, summarise

    console, card = Console(), scorecard.to_json()
    for name in scorecard.methods:
        summary = summarise(card, name)
        if summary is None:
            continue
        grid = Table.grid(padding=(0, 2))
        for heading, sentence in summary.sentences.items():
            grid.add_row(Text(heading, style="bold"), Text(sentence))
        if len(scorecard.methods) > 1:
            console.print(Text(name, style="bold"))
        console.print(grid)
    rules = {name: checked_rules(card, name) for name in scorecard.methods}
    if any(rules.values()):
        console.print(_rule_table(rules))


def _rule_table(rules: "Mapping[str, Sequence[CheckedRule]]") -> "Table":
    """The rows of each table that break each rule: their number and fraction."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from understudy.report.text import broken_rows

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("rows that break the rule")
    for name in (*rules, "real"):
        table.add_column(Text(name), justify="right")
    for each in zip(*rules.values(), strict=True):
        text, first = Text(each[0].text), each[0]
        for why in dict.fromkeys(rule.why for rule in each if rule.why):
            text.append(f"\nnot checked: {why}", style="dim")
        cells = ["-" if rule.why else broken_rows(rule.synthetic_broken, rule.synthetic) for rule in each]
        table.add_row(text, *cells, "-" if first.why else broken_rows(first.real_broken, first.real))
    return table


def note_schema(scorecard: "Scorecard", known: KnownRelease) -> "Scorecard":
    """The scorecard with a word on where its schema is from."""
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
        typer.echo(f"Schema: that of the release {known.schema_from}.")
    if known.holdout is not None and holdout is None:
        typer.echo(f"Held-out rows: {known.holdout}.")
