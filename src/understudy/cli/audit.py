"""The command `understudy audit`: attack the software itself, or show its recorded audits."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from understudy.cli.options import check_json, with_options
from understudy.cli.output import write_json
from understudy.cli.terminal import show_progress
from understudy.errors import ConfigError

if TYPE_CHECKING:
    from understudy.certificate.audit_section import Audit


@with_options(
    method="The method to attack, with small settings, or an expression, used as given.",
    epsilon="The epsilon of the claim.",
    delta="The delta of the claim. Default: 0.005, or 0.0001 for the canary domain.",
    runs="Runs of the pipeline, half of them with the canary.",
    threat="white: the attack sees the release folder; black: a synthetic table.",
    canary="How the tables differ: category, row, combination, bound, outside, unit or domain.",
    seed="Makes the audit repeatable. Default: secure noise.",
    jobs="Processes to run at once.",
    save="Also write the runs to this file, for --from.",
    source=typer.Option("--from", help="Use saved runs: a file, or a folder of files. Repeatable."),
    table="Show the recorded audits of all methods.",
)
def audit(
    method: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    runs: int = 500,
    threat: str | None = None,
    canary: str = "combination",
    seed: int | None = None,
    jobs: int = 1,
    save: Path | None = None,
    source: list[Path] | None = None,
    table: bool = False,
    json_file: str | None = None,
    force: bool = False,
    quiet: bool = False,
) -> None:
    """Attack a method of this software with and without a canary row, and bound its privacy cost from below.

    The tables are made up: an audit is about the software, not about your data. A bound above the claim refutes the
    claim; a bound below it proves nothing.
    """
    _check_one_task(method, source, table)
    check_json(json_file, force=force)
    from understudy.certificate.audit_section import audits_to_json, recorded_audits

    if table:
        audits: Sequence[Audit] = recorded_audits()
    elif source:
        from understudy.audit.audit import bound_files

        audits = bound_files(source, None if threat is None else (threat,))
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
        audits = [made]
    write_json(audits_to_json(audits), json_file, force=force)
    if json_file != "-":
        from understudy.cli.show import show_audits

        show_audits(audits)


def _check_one_task(method: str | None, source: list[Path] | None, table: bool) -> None:
    given = [name for name, value in (("--method", method), ("--from", source), ("--table", table)) if value]
    if len(given) != 1:
        options = f"found {' and '.join(given)}" if given else "found none of them"
        raise ConfigError(
            f"Give one of --method (to attack it), --from (saved runs) and --table, {options}. For example: "
            "understudy audit --method mst --epsilon 1"
        )
