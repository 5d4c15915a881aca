"""The command `studio`: a local web page that leads from a file to its certificate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.options import Quiet, Source
from understudy.cli.reading import takes_reading_options
from understudy.cli.terminal import echo
from understudy.errors import ConfigError

if TYPE_CHECKING:
    from understudy.tables import ReadOptions


@takes_reading_options
def studio(
    source: Source,
    reading: "ReadOptions",
    schema: Annotated[
        Path | None, typer.Option("--schema", help="Schema file (TOML) to start from. Default: a draft of the table.")
    ] = None,
    book: Annotated[
        Path | None, typer.Option("--book", help="The budget book of the data set: every run is reserved there.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", help="With --book: a policy file (TOML) that says which runs are allowed."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Where everything is written. Default: SOURCE.studio/ beside it.")
    ] = None,
    port: Annotated[int, typer.Option("--port", help="Port on 127.0.0.1. Default: a free one.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    quiet: Quiet = False,
) -> None:
    """Serve a local web page that leads from a table to its certificate. Only this machine can open it.

    Edit the schema, plan, run and see the results. A run continues when the page or the server is closed. Needs the
    extra 'studio'.
    """
    try:
        from understudy.studio.server import listen, serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "anyio"):
            raise
        raise ConfigError("The studio needs two more packages: pip install 'understudy[studio]'.") from None
    from understudy.studio.desk import Desk

    if policy is not None and book is None:
        raise ConfigError("A policy needs a budget book. Name the book: --book.")
    opened = listen(port)
    with opened:
        desk = Desk.open(source, folder, schema=schema, book=book, policy=policy, reading=reading)
        serve(desk, opened, browser=browser, tell=lambda text: echo(text, quiet=quiet and "?token=" not in text))
