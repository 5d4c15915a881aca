"""The command `disclose`: its options, and what it prints."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli import evaluation as evaluating
from understudy.cli.graph import named_release, refuse_graphs
from understudy.cli.options import Force, JsonFile, Terse, check_outputs
from understudy.cli.output import write_json
from understudy.cli.reading import takes_reading_options
from understudy.cli.terminal import echo, show_progress
from understudy.errors import ConfigError, UnderstudyError

if TYPE_CHECKING:
    from understudy.disclosure.disclose import Disclosure
    from understudy.evaluation.scorecard import Scorecard
    from understudy.tables import ReadOptions

Holdout = Annotated[
    str | None,
    typer.Option(
        "--holdout",
        help="Real rows that were held out at random and not fitted, at least 200. Default: those held out by 'synth "
        "--split' (fake.holdout.csv for fake.csv).",
    ),
]
QuasiIdentifiers = Annotated[
    str | None,
    typer.Option(
        "--quasi-identifiers",
        help="Columns that an attacker may know, separated by commas: rare combinations are counted, and secrets are "
        "guessed from them.",
    ),
]
Secrets = Annotated[
    list[str] | None,
    typer.Option("--target", "--secret", help="A secret column to guess. Repeatable. Default: every column."),
]
Release = Annotated[
    str | None,
    typer.Option(
        "--release",
        "--certificate",
        help="The release folder of the table. Its schema is used, and the attacks are compared with what its "
        "guarantee allows. Default: the folder beside the synthetic table.",
    ),
]


@takes_reading_options
def disclose(
    real: Annotated[
        str,
        typer.Argument(
            help="The real rows that the synthetic table was made from. Rows that 'synth --split' held out are removed."
        ),
    ],
    synthetic: Annotated[str, typer.Argument(help="The synthetic table, from any generator.")],
    reading: "ReadOptions",
    holdout: Holdout = None,
    quasi_identifiers: QuasiIdentifiers = None,
    secrets: Secrets = None,
    min_cell: Annotated[
        int, typer.Option("--min-cell", help="Combinations that fewer training rows have are small cells.")
    ] = 5,
    schema: evaluating.EvaluationSchema = None,
    release: Release = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write an HTML report.")] = None,
    json_file: JsonFile = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of subsamples, splits and models.")] = 0,
    fail_on_finding: Annotated[
        bool,
        typer.Option("--fail-on-finding", help="Exit with code 1 if there is a finding; by default the code is 0."),
    ] = False,
    force: Force = False,
    quiet: Terse = False,
) -> None:
    """Attack a synthetic table: who was in the real one, and what can be guessed about them. NOT private.

    Needs real rows that were not fitted: what an attack achieves on those is not disclosure.
    """
    from understudy.disclosure.disclose import WARNING, disclose
    from understudy.evaluation.inputs import name_of
    from understudy.report import write_disclosure
    from understudy.schema import Schema

    given = None if release is None else named_release(release)[1]
    instead = "There is no attack on graphs yet; compare them with 'understudy evaluate'."
    refuse_graphs("disclose", instead, schema, given, evaluating.folder_beside(synthetic))
    check_outputs(
        {"--report": report, "--json": None if json_file == "-" else json_file},
        [real, synthetic, holdout, schema],
        force=force,
    )
    declared = None if schema is None else Schema.read(schema)
    known = evaluating.find_release({name_of(synthetic, "synthetic"): synthetic}, release, None)
    held = known.holdout if holdout is None else holdout
    if held is None:
        raise ConfigError(
            "There are no held-out rows to compare with. Give --holdout FILE with real rows that were not fitted: make "
            "one with 'understudy split' or 'synth --split'."
        )
    with show_progress(quiet, "attacking") as progress:
        found = disclose(
            real,
            synthetic,
            holdout=held,
            schema=declared or known.schema,
            quasi_identifiers=_names(quasi_identifiers),
            secrets=secrets or None,
            min_cell=min_cell,
            statement=known.statement,
            holdout_from_split=_is_from_split(holdout, known),
            reading=reading,
            seed=seed,
            progress=progress,
        )
    if json_file is not None and json_file != "-":
        found.save(json_file, force=force)
    if report is not None:
        write_disclosure(report, found, force=force)
    typer.echo(WARNING, err=json_file == "-")
    if json_file == "-":  # standard output is the document
        write_json(found.to_json(), json_file, force=force)
    else:
        if declared is None:
            evaluating.say_sources(known, holdout)
        show_disclosure(found)
        written = [str(path) for path in (report, json_file) if path is not None]
        echo(
            f"Wrote {' and '.join(written)}" if written else "More: --report disclosure.html, --json disclosure.json",
            quiet=quiet,
        )
    if fail_on_finding and found.findings:
        raise typer.Exit(1)


def _is_from_split(holdout: str | None, known: evaluating.KnownRelease) -> bool:
    """Whether the held-out rows are those that `synth --split` wrote beside the table, named or not."""
    if known.holdout is None or holdout is None:
        return known.holdout is not None
    return os.path.realpath(holdout) == os.path.realpath(known.holdout)


def _names(given: str | None) -> tuple[str, ...]:
    return () if given is None else tuple(name.strip() for name in given.split(",") if name.strip())


def show_disclosure(found: "Disclosure") -> None:
    """Prints the sentences and the operating points of the attacks."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from understudy.disclosure.sentences import ATTACK_NAMES, percent_up, percents

    has_ceiling = found.membership.ceiling.statement is not None
    console, grid = Console(), Table.grid(padding=(0, 2))
    for warning in found.warnings:
        console.print(Text(f"Warning: {warning}"))
    for note in found.notes:
        console.print(Text(f"Note: {note}"))
    for heading, sentence in found.sentences.items():
        grid.add_row(Text(heading, style="bold"), Text(sentence))
    console.print(grid)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("chosen for", "attack"):
        table.add_column(title)
    for title in ("true positives", "false positives", *["allowed"] * has_ceiling):
        table.add_column(title, justify="right")
    for point in found.membership.points:
        allowed = [] if point.ceiling is None else [percent_up(point.ceiling)]
        rates = [rate.replace(" (", "\n(") for rate in percents(point)]  # an interval is not broken at its end
        table.add_row(point.aim, ATTACK_NAMES[point.attack], *rates, *allowed)
    console.print(table)


def add_disclosure(
    scorecard: "Scorecard",
    real: str,
    tables: dict[str, str],
    holdout: str | None,
    known: evaluating.KnownRelease,
    reading: "ReadOptions",
    *,
    quiet: bool,
) -> "Scorecard":
    """The scorecard with a disclosure report on each table; unchanged if no rows were held out.

    A table that cannot be attacked, such as a small one, gets a note on the scorecard instead of a report.
    """
    import dataclasses

    from understudy.disclosure.disclose import disclose
    from understudy.evaluation.scorecard import Scorecard

    held = known.holdout if holdout is None else holdout
    if held is None:
        return scorecard
    for name, place in tables.items():
        try:
            with show_progress(quiet, f"attacking {name}") as progress:
                found = disclose(
                    real,
                    place,
                    holdout=held,
                    schema=known.schema,
                    statement=known.statement if known.of == name else None,
                    holdout_from_split=_is_from_split(holdout, known),
                    reading=reading,
                    progress=progress,
                )
        except UnderstudyError as error:
            content = scorecard.to_json()
            note = {"group": "disclosure", "tables": [name], "text": f"No disclosure report. {error}"}
            scorecard = Scorecard({**content, "notes": [*content["notes"], note]})
        else:
            scorecard = dataclasses.replace(found, synthetic=name).add_to(scorecard)
    return scorecard
