"""The options of every command that reads a table."""

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.terminal import echo

if TYPE_CHECKING:
    import pyarrow as pa

    from understudy.schema import Schema
    from understudy.tables import ReadOptions

_OPTIONS: dict[str, tuple[object, object]] = {
    "header": (
        Annotated[
            bool | None,
            typer.Option(
                "--header/--no-header",
                help="Whether the first line holds column names. Default: with a schema it must hold the declared "
                "names; without one, a first line that looks like values is refused.",
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
                "--decimal", help="Decimal mark of a text file, '.' or ','. Thousands separators are then read too."
            ),
        ],
        None,
    ),
    "sheet": (
        Annotated[str | None, typer.Option("--sheet", help="Sheet of an Excel workbook. Default: the only one.")],
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


def hint_at_decimals(table: "pa.Table", reading: "ReadOptions") -> None:
    """Says which columns look like numbers with decimal commas. Reads values: for the steward only."""
    from understudy.tables.infer import with_decimal_commas

    names = with_decimal_commas(table) if reading.decimal is None else []
    if names:
        columns = "Column" if len(names) == 1 else "Columns"
        listed = f"{', '.join(map(repr, names[:5]))}{' and others' * (len(names) > 5)}"
        typer.echo(
            f"{columns} {listed}: the values look like numbers with decimal commas. Give --decimal ','.", err=True
        )


def note_on_decimals(delimiter: str, schema: "Schema | None", decimal: str | None, *, quiet: bool) -> None:
    """Files with semicolons often have decimal commas, which are nulls without --decimal. Reads no value."""
    has_reals = schema is None or any(column.kind == "real" for column in schema.modelled)
    if delimiter == ";" and decimal is None and has_reals:
        echo("Numbers are read with decimal points. If this file has decimal commas, give --decimal ','.", quiet=quiet)
