"""The options of every command that reads a table."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated

import typer

_OPTIONS: dict[str, tuple[object, object]] = {
    "header": (
        Annotated[
            bool | None,
            typer.Option(
                "--header/--no-header",
                help="Whether the first line holds column names. Default: with a schema it must hold the declared "
                "names; without one it is refused if it looks like values.",
                show_default=False,
            ),
        ],
        None,
    ),
    "encoding": (
        Annotated[str, typer.Option("--encoding", help="Encoding of a text file, such as cp1252, latin-1 or utf-16.")],
        "utf-8",
    ),
    "separator": (
        Annotated[
            str | None,
            typer.Option("--separator", help="Separator of a text file: ',', ';', '|' or 'tab'. Default: detected."),
        ],
        None,
    ),
    "decimal": (
        Annotated[
            str | None,
            typer.Option(
                "--decimal", help="Decimal sign of a text file, '.' or ','. Thousands separators are then read too."
            ),
        ],
        None,
    ),
    "sheet": (
        Annotated[str | None, typer.Option("--sheet", help="Sheet of an Excel workbook. Default: its only one.")],
        None,
    ),
}
"""The annotation and the default of each field of `ReadOptions`, which is imported only when it is needed."""


def takes_reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """For a command with a parameter `reading`: typer sees the fields of `ReadOptions` as options in its place."""
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name != "reading":
            parameters.append(parameter)
            continue
        parameters += [
            inspect.Parameter(name, parameter.kind, default=default, annotation=annotation)
            for name, (annotation, default) in _OPTIONS.items()
        ]

    @functools.wraps(command)
    def run(**options: object) -> None:
        from understudy.tables import ReadOptions

        given = {name: options.pop(name) for name in _OPTIONS}
        command(reading=ReadOptions(**given), **options)  # type: ignore[arg-type]

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
