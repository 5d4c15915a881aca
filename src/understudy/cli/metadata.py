"""The command `metadata`: describe a release in the formats of catalogues and registries."""

from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.options import Force, Quiet
from understudy.cli.terminal import echo
from understudy.errors import ConfigError


def metadata(
    folder: Annotated[Path, typer.Argument(help="A release folder.")],
    form: Annotated[str, typer.Option("--format", help="croissant, dcat, healthdcat, table-schema or registry.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The file to write.")],
    about: Annotated[
        Path | None,
        typer.Option(
            "--about", help="TOML file with what the schema does not say: title, licence, publisher and so on."
        ),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("--file", help="A synthetic table of this release: its name and checksum are stated. Repeatable."),
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Describe a release for a data catalogue or the registry of deployments of differential privacy.

    The description is made from the schema and the certificate. No row is read.
    """
    from understudy.graphs.release import is_graph_release
    from understudy.metadata.describe import describe_release
    from understudy.run.atomic import atomic_write

    if is_graph_release(folder):
        raise ConfigError(f"{folder} is the release of a graph. These formats describe tables.")
    content = describe_release(folder, form, about=about, files=files or ())
    with atomic_write(out, force=force) as file:
        file.write(content)
    echo(f"Wrote {out}. Review it before you publish it.", quiet=quiet)
