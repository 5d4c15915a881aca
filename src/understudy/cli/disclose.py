"""The command `disclose`: its options, and what it prints."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from understudy.cli import evaluation as evaluating
from understudy.cli.graph import refuse_graphs
from understudy.cli.options import EVALUATED_SCHEMA, TERSE, check_outputs, named_release, with_options
from understudy.cli.output import write_json
from understudy.cli.terminal import say, show_progress
from understudy.errors import ConfigError, UnderstudyError

if TYPE_CHECKING:
    from understudy.evaluation.scorecard import Scorecard
    from understudy.tables import ReadOptions


@with_options(
    real=typer.Argument(
        help="The real rows that the synthetic table was made from. Rows that 'synth --split' held out are removed."
    ),
    synthetic=typer.Argument(help="The synthetic table, from any generator."),
    holdout="Real rows that were held out at random and not fitted, at least 200. Default: those held out by 'synth "
    "--split' (fake.holdout.csv for fake.csv).",
    quasi_identifiers="Columns that an attacker may know, separated by commas: rare combinations are counted, and "
    "secrets are guessed from them.",
    secrets=typer.Option("--target", "--secret", help="A secret column to guess. Repeatable. Default: every column."),
    min_cell="Combinations with fewer training rows than this are small cells.",
    schema=EVALUATED_SCHEMA,
    release=typer.Option(
        "--release",
        "--certificate",
        help="The release folder of the table. Its schema is used, and the attacks are compared with what its "
        "guarantee allows. Default: the folder beside the synthetic table.",
    ),
    report="Write an HTML report.",
    seed="Seed of subsamples, splits and models.",
    fail_on_finding="Exit with code 1 if there is a finding; by default the code is 0.",
    quiet=TERSE,
)
def disclose(
    real: str,
    synthetic: str,
    reading: "ReadOptions",
    holdout: str | None = None,
    quasi_identifiers: str | None = None,
    secrets: list[str] | None = None,
    min_cell: int = 5,
    schema: Path | None = None,
    release: str | None = None,
    report: Path | None = None,
    json_file: str | None = None,
    seed: int = 0,
    fail_on_finding: bool = False,
    force: bool = False,
    quiet: bool = False,
) -> None:
    """Attack a synthetic table: who was in the real one, and what can be guessed about them. NOT private.

    Needs real rows that were not fitted: what an attack achieves on those is not disclosure.
    """
    from understudy.cli.show import show_disclosure
    from understudy.disclosure.disclose import WARNING, disclose
    from understudy.evaluation.inputs import name_of
    from understudy.report import write_disclosure
    from understudy.schema import Schema

    name = name_of(synthetic, "synthetic")
    given = None if release is None else Path(named_release(release, [name])[1])
    instead = "There is no attack on graphs yet; compare them with 'understudy evaluate'."
    refuse_graphs("disclose", instead, schema, given, evaluating.folder_beside(synthetic))
    check_outputs(
        {"--report": report, "--json": None if json_file == "-" else json_file},
        [real, synthetic, holdout, schema],
        force=force,
    )
    declared = None if schema is None else Schema.read(schema)
    known = evaluating.find_release({name: synthetic}, release, None)
    held_out = known.holdout if holdout is None else holdout
    if held_out is None:
        raise ConfigError(
            "There are no held-out rows to compare with. Give --holdout FILE with real rows that were not fitted: make "
            "one with 'understudy split' or 'synth --split'."
        )
    with show_progress(quiet, "attacking") as progress:
        disclosure = disclose(
            real,
            synthetic,
            holdout=held_out,
            schema=declared or known.schema,
            quasi_identifiers=[name.strip() for name in (quasi_identifiers or "").split(",") if name.strip()],
            secrets=secrets or None,
            min_cell=min_cell,
            statement=known.statement,
            holdout_from_split=_is_from_split(holdout, known),
            reading=reading,
            seed=seed,
            progress=progress,
        )
    if json_file is not None and json_file != "-":
        disclosure.save(json_file, force=force)
    if report is not None:
        write_disclosure(report, disclosure, force=force)
    say(WARNING, err=json_file == "-")
    if json_file == "-":  # standard output is the document
        write_json(disclosure.to_json(), json_file, force=force)
    else:
        if declared is None:
            evaluating.say_sources(known, holdout)
        show_disclosure(disclosure)
        evaluating.say_written(report, json_file, quiet=quiet, page="disclosure", scores="disclosure")
    if fail_on_finding and disclosure.findings:
        raise typer.Exit(1)


def _is_from_split(holdout: str | None, known: evaluating.KnownRelease) -> bool:
    """Whether the held-out rows are those that `synth --split` wrote beside the table, named or not."""
    if known.holdout is None or holdout is None:
        return known.holdout is not None
    return os.path.realpath(holdout) == os.path.realpath(known.holdout)


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

    held_out = known.holdout if holdout is None else holdout
    if held_out is None:
        return scorecard
    for name, place in tables.items():
        try:
            with show_progress(quiet, f"attacking {name}") as progress:
                disclosure = disclose(
                    real,
                    place,
                    holdout=held_out,
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
            scorecard = dataclasses.replace(disclosure, synthetic=name).add_to(scorecard)
    return scorecard
