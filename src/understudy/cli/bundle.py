"""The commands on evidence bundles: `bundle` and `verify`."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from understudy.cli.options import check_json, with_options
from understudy.cli.output import write_json
from understudy.cli.terminal import echo, say

if TYPE_CHECKING:
    from understudy.institution.bundle import Verification

Tables = list[Path] | None
FAILED = 1
"""Exit code of `verify` for a bundle that fails."""


@with_options(
    out="The zip file to write.",
    tables=typer.Option("--table", help="Add a synthetic table that was sampled from this release. Repeatable."),
    hash_only="Add only the checksums of the tables, and not their rows.",
    in_house="Also add figures computed from real rows. Never publish such a bundle.",
    disclosure="With --in-house: a file written by 'disclose --json'.",
    scores="With --in-house: a file written by 'evaluate --json'.",
    report="With --in-house: a page written by 'evaluate --report'.",
    sign="Sign the bundle with this SSH key. Needs ssh-keygen.",
)
def bundle(
    folder: Path,
    out: Path,
    tables: Tables = None,
    hash_only: bool = False,
    in_house: bool = False,
    disclosure: Path | None = None,
    scores: Path | None = None,
    report: Path | None = None,
    sign: Path | None = None,
    force: bool = False,
    quiet: bool = False,
) -> None:
    """Write everything a data access committee needs about a release to one zip file.

    It contains the certificate, the schema, the charged plan, versions, recorded audits of the method, a page to sign,
    and the checksum of every file. Nothing in it is computed from real rows outside the guarantee, unless --in-house
    is given. The same release and the same software give the same bytes.
    """
    from understudy.institution.bundle import write_bundle

    written = write_bundle(
        folder,
        out,
        tables=tables or (),
        hash_only=hash_only,
        in_house=in_house,
        disclosure=disclosure,
        scores=scores,
        report=report,
        sign=sign,
        force=force,
    )
    for note in written.notes:
        echo(f"Note: {note}", quiet=quiet)
    for mark in written.marks:
        say(f"{mark[:1].upper()}{mark[1:]}.", err=True)
    echo(f"Wrote {out}. Check it with: understudy verify {out}", quiet=quiet)


@with_options(
    path=typer.Argument(help="An evidence bundle."),
    signers="Who may have signed it: a list of allowed signers, as in 'man ssh-keygen'.",
    identity="Which of the signers must have signed it. Default: any of them.",
    tables=typer.Option("--table", help="Also check that this file is a table of the bundle. Repeatable."),
)
def verify(
    path: Path,
    signers: Path | None = None,
    identity: str | None = None,
    tables: Tables = None,
    json_file: str | None = None,
    force: bool = False,
) -> None:
    """Check that an evidence bundle is intact and consistent, and who signed it.

    Recomputes every checksum and the total privacy cost. Exit code 1 means that the bundle fails.
    """
    from understudy.institution.bundle import verify_bundle

    check_json(json_file, force)
    verification = verify_bundle(path, signers=signers, identity=identity, tables=tables or ())
    write_json(verification.to_json(), json_file, force=force)
    if json_file != "-":
        _show(verification)
    if not verification.is_intact:
        more = f" (and {len(verification.faults) - 1} more)" if len(verification.faults) > 1 else ""
        say(f"understudy: {path} fails verification: {verification.faults[0]}{more} Do not rely on it.", err=True)
        raise typer.Exit(FAILED)


def _show(verification: "Verification") -> None:
    """Prints what was found, the worst first."""
    lines = [f"{mark[:1].upper()}{mark[1:]}." for mark in verification.marks]
    lines += [f"{name}: {value}" for name, value in verification.facts.items()]
    parts = {"Wrong": verification.faults, "Checked": verification.checked, "Not checked": verification.not_checked}
    for title, findings in parts.items():
        lines += ["", f"{title}:", *(f"- {text}" for text in findings)] if findings else []
    say("\n".join(lines).lstrip())
    if verification.is_intact:
        say(f"\n{verification.path} is intact, as far as was checked.")
