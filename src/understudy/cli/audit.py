"""The command `understudy audit`: attack the software itself, or show its recorded audits."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.options import JsonFile, Quiet, check_json
from understudy.cli.output import write_json
from understudy.cli.terminal import show_progress
from understudy.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from understudy.audit.record import Audit


def audit(
    method: Annotated[
        str | None,
        typer.Option("--method", help="The method to attack, with small settings, or an expression, used as given."),
    ] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", help="The epsilon of the claim.")] = None,
    delta: Annotated[
        float | None,
        typer.Option("--delta", help="The delta of the claim. Default: 0.005, or 0.0001 for the canary domain."),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", help="Runs of the pipeline, half of them with the canary.")] = 500,
    threat: Annotated[
        str | None,
        typer.Option("--threat", help="white: the attack sees the release folder; black: a synthetic table."),
    ] = None,
    canary: Annotated[
        str,
        typer.Option(
            "--canary", help="How the tables differ: category, row, combination, bound, outside, unit or domain."
        ),
    ] = "combination",
    seed: Annotated[
        int | None, typer.Option("--seed", help="Makes the audit repeatable. Default: secure noise.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Processes to run at once.")] = 1,
    save: Annotated[Path | None, typer.Option("--save", help="Also write the runs to this file, for --from.")] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Use saved runs: a file, or a folder of files. Repeatable."),
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Show the recorded audits of all methods.")] = False,
    json_file: JsonFile = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")] = False,
    quiet: Quiet = False,
) -> None:
    """Attack a method of this software with and without a canary row, and bound its privacy cost from below.

    The tables are made up: an audit is about the software, not about your data. A bound above the claim refutes the
    claim; a bound below it proves nothing.
    """
    _check_one_task(method, source, table)
    check_json(json_file, force=force)
    if table:
        from understudy.audit.record import recorded_audits

        found: Sequence[Audit] = recorded_audits()
    elif source:
        from understudy.audit.audit import bound_files

        found = bound_files(source, None if threat is None else (threat,))
    else:
        from understudy.audit.audit import audit_method

        assert method is not None
        check_json(None if save is None else str(save), force=force)
        with show_progress(quiet, "auditing") as progress:
            made = audit_method(
                method,
                epsilon=epsilon,
                delta=delta,
                runs=runs,
                threat=threat or "white",
                canary=canary,
                seed=seed,
                jobs=jobs,
                save=save,
                progress=progress,
            )
        found = [made]
    if json_file is not None:
        from understudy.audit.record import audits_to_json

        write_json(audits_to_json(found), json_file, force=force)
    if json_file != "-":
        _show(found)


def _check_one_task(method: str | None, source: list[Path] | None, table: bool) -> None:
    given = [name for name, value in (("--method", method), ("--from", source), ("--table", table)) if value]
    if len(given) != 1:
        found = f"found {' and '.join(given)}" if given else "found none of them"
        raise ConfigError(
            f"Give one of --method (to attack it), --from (saved runs) and --table, {found}. For example: "
            "understudy audit --method mst --epsilon 1"
        )


def _show(audits: "Sequence[Audit]") -> None:
    """Prints the audits as a table, what they show, and what they cannot show."""
    from understudy.audit.record import LIMITS

    if not audits:
        typer.echo("No audit of this version is recorded. Make one: understudy audit --method mst --epsilon 1")
        return
    from rich.console import Console

    console = Console()
    console.print(_table(audits))
    if len(audits) == 1:
        console.print(audits[0].sentence, markup=False)
        console.print(f"Score of the attack, chosen on other runs: {audits[0].score}.", markup=False)
    for each in audits:
        if len(audits) > 1 and each.refutes_claim:
            console.print(each.sentence, markup=False)
    deltas = ", ".join(f"{delta:g}" for delta in sorted({each.claimed_delta for each in audits}))
    console.print(
        f"The claim is the largest epsilon that the runs state, at delta {deltas}. {_confidence(audits)} {LIMITS}"
    )
    console.print("mu: the same on the scale of Gaussian noise; 0 is guessing, and a larger mu is less private.")
    if any(each.seeded for each in audits):
        console.print("The noise of these runs was seeded: the same samplers, with secrets that follow from the seed.")


def _confidence(audits: "Sequence[Audit]") -> str:
    """The confidence of the bounds, each and together."""
    level, together = f"{audits[0].confidence:.0%}", audits[0].num_audits
    each = f"Each bound holds with {level} confidence by itself."
    if together == 1:
        return each
    refuted = sum(audit.refutes_claim for audit in audits)
    found = f"{refuted} claims are refuted" if refuted else "no claim is refuted"
    return f"{each} At {level} confidence for all {together} audits together, {found}."


def _table(audits: "Sequence[Audit]") -> "Table":
    from rich import box
    from rich.table import Table

    from understudy.audit.record import round_down

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("method", "canary", "threat"):
        table.add_column(name, no_wrap=True)
    for name in ("runs", "AUC", "epsilon ≥", "claim", "mu ≥"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in audits:
        figures = (round_down(each.epsilon), f"{each.claimed_epsilon:.2f}", round_down(each.mu))
        table.add_row(each.label, each.canary, each.threat, f"{each.num_runs:,}", f"{each.auc:.2f}", *figures)
    return table
