"""The command `studio`: a local web page that leads from a file to its certificate."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from understudy._version import install_advice
from understudy.cli.options import with_options
from understudy.cli.terminal import echo
from understudy.errors import ConfigError

if TYPE_CHECKING:
    from understudy.tables import ReadOptions


@with_options(
    schema="Schema file (TOML) to start from. Default: a draft of the table.",
    book="The budget book of the data set: every run is reserved there.",
    folder="Where everything is written. Default: SOURCE.studio/ beside it.",
    port=typer.Option("--port", help="Port on 127.0.0.1. Default: a free one.", min=0, max=65535),
    browser=typer.Option("--browser/--no-browser", help="Open the page in a browser."),
)
def studio(
    source: str,
    reading: "ReadOptions",
    schema: Path | None = None,
    book: Path | None = None,
    policy: Path | None = None,
    folder: Path | None = None,
    port: int = 0,
    browser: bool = True,
    quiet: bool = False,
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
        raise ConfigError(f"The studio needs two more packages: {install_advice('studio')}.") from None
    from understudy.studio.desk import Desk

    if policy is not None and book is None:
        raise ConfigError("A policy needs a budget book. Name the book: --book.")
    opened = listen(port)
    with opened:
        desk = Desk.open(source, folder, schema=schema, book=book, policy=policy, reading=reading)
        serve(desk, opened, browser=browser, tell=lambda text: echo(text, quiet=quiet and "?token=" not in text))
