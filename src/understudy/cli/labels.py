"""Options about the labels of synthetic tables, and the note on a source that has one."""

from typing import Annotated

import typer

from understudy.cli.terminal import echo

IdPrefix = Annotated[
    str | None,
    typer.Option("--id-prefix", help="Write ids as text with this prefix, such as SYN-, so that none looks real."),
]
NoSidecar = Annotated[
    bool,
    typer.Option(
        "--no-sidecar", help="Do not write OUT.datapackage.json, which describes the table and says it is synthetic."
    ),
]


def note_if_synthetic(source: str, *, quiet: bool) -> None:
    """Says so if the table to fit has the label of a synthetic one: often it was named by mistake."""
    from understudy.tables import says_synthetic

    if says_synthetic(source):
        echo(f"Note: {source} says that it is synthetic. It is treated like real data.", quiet=quiet)
