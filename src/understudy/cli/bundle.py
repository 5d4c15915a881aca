"""The commands on evidence bundles: `bundle` and `verify`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.options import Force, JsonFile, Quiet, check_json
from understudy.cli.output import write_json
from understudy.cli.terminal import echo

if TYPE_CHECKING:
    from understudy.bundle import Verification

Tables = list[Path] | None
FAILED = 1
"""Exit code of `verify` for a bundle that fails."""


def bundle(
    folder: Annotated[Path, typer.Argument(help="A release folder.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The zip file to write.")],
    tables: Annotated[
        Tables, typer.Option("--table", help="Add a synthetic table that was sampled from this release. Repeatable.")
    ] = None,
    hash_only: Annotated[
        bool, typer.Option("--hash-only", help="Add only the checksums of the tables, and not their rows.")
    ] = False,
    in_house: Annotated[
        bool, typer.Option("--in-house", help="Also add figures computed from real rows. Never publish such a bundle.")
    ] = False,
    disclosure: Annotated[
        Path | None, typer.Option("--disclosure", help="With --in-house: a file written by 'disclose --json'.")
    ] = None,
    scores: Annotated[
        Path | None, typer.Option("--scores", help="With --in-house: a file written by 'evaluate --json'.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="With --in-house: a page written by 'evaluate --report'.")
    ] = None,
    sign: Annotated[
        Path | None, typer.Option("--sign", help="Sign the bundle with this SSH key. Needs ssh-keygen.")
    ] = None,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Also print the pages as PDF. Needs an installed Chromium or Chrome.")
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write all that a data access committee needs about a release as one zip file.

    It contains the certificate, the schema, the charged plan, versions, recorded audits of the method, a page to sign,
    and the checksum of every file. Nothing in it is computed from real rows outside the guarantee, unless --in-house
    is given. The same release and the same software give the same bytes.
    """
    from understudy.bundle import write_bundle

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
        pdf=pdf,
        force=force,
    )
    for note in written.notes:
        echo(f"Note: {note}", quiet=quiet)
    for mark in written.marks:
        typer.echo(f"{mark[:1].upper()}{mark[1:]}.", err=True)
    echo(f"Wrote {out}. Check it with: understudy verify {out}", quiet=quiet)


def verify(
    path: Annotated[Path, typer.Argument(help="An evidence bundle.")],
    signers: Annotated[
        Path | None,
        typer.Option("--signers", help="Who may have signed it: a list of allowed signers, as in 'man ssh-keygen'."),
    ] = None,
    identity: Annotated[
        str | None, typer.Option("--identity", help="Which of the signers must have signed it. Default: any of them.")
    ] = None,
    tables: Annotated[
        Tables, typer.Option("--table", help="Also check that this file is a table of the bundle. Repeatable.")
    ] = None,
    json_file: JsonFile = None,
    force: Force = False,
) -> None:
    """Check that an evidence bundle is intact and agrees with itself, and who signed it.

    Computes every checksum and the total privacy cost again. Exit code 1 means that the bundle fails.
    """
    from understudy.bundle import verify_bundle

    check_json(json_file, force)
    found = verify_bundle(path, signers=signers, identity=identity, tables=tables or ())
    if json_file is not None:
        write_json(found.to_json(), json_file, force=force)
    if json_file != "-":
        _show(found)
    if not found.is_intact:
        more = f" (and {len(found.faults) - 1} more)" if len(found.faults) > 1 else ""
        typer.echo(f"understudy: {path} fails verification: {found.faults[0]}{more} Do not rely on it.", err=True)
        raise typer.Exit(FAILED)


def _show(found: "Verification") -> None:
    """Prints what was found, the worst first."""
    lines = [f"{mark[:1].upper()}{mark[1:]}." for mark in found.marks]
    lines += [f"{name}: {value}" for name, value in found.facts.items()]
    for title, texts in {"Wrong": found.faults, "Checked": found.checked, "Not checked": found.not_checked}.items():
        lines += ["", f"{title}:", *(f"- {text}" for text in texts)] if texts else []
    typer.echo("\n".join(lines).lstrip())
    if found.is_intact:
        typer.echo(f"\n{found.path} is intact, as far as was checked.")
