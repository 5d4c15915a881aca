"""The commands on schemas: `schema draft`, `schema check` and `schema import`."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from understudy.cli.graph import check_graph, draft_graph, is_graph_schema
from understudy.cli.options import with_options
from understudy.cli.output import hint_at_decimals, say_findings
from understudy.cli.terminal import echo
from understudy.errors import ConfigError

if TYPE_CHECKING:
    from understudy.tables import ReadOptions

schema_app = typer.Typer(help="Write, check and import schemas: what is public about a table.", no_args_is_help=True)


@schema_app.command("draft")
@with_options(
    out="The schema file to write.",
    trust_labels="Declare the value labels of a Stata or SPSS file as categories. Only for labels from a code book: "
    "some tools write only those that occur in the data.",
    kind="table, or graph: the rows of SOURCE are the edges of one graph.",
)
def schema_draft(
    source: str,
    out: Path,
    reading: "ReadOptions",
    trust_labels: bool = False,
    kind: str = "table",
    force: bool = False,
    quiet: bool = False,
) -> None:
    """Write the names and kinds of a table's columns, for a person to complete. No values are written.

    Comments in the file list the value labels of a Stata or SPSS file, and columns that look like coordinates by name.
    """
    if kind not in ("table", "graph"):
        raise ConfigError(f"--kind must be table or graph, found {kind!r}.")
    from understudy.schema import Schema
    from understudy.schema.draft import describe_labels, describe_names
    from understudy.steward.identifiers import find_identifiers
    from understudy.tables import draft_table

    if kind == "graph" and trust_labels:
        raise ConfigError("--trust-labels does not apply to a graph. Remove it.")
    types, first, is_whole = draft_table(source, reading=reading)
    if kind == "graph":
        return draft_graph(types.names, out, force=force, quiet=quiet)
    descriptions = describe_names(types.names) | describe_labels(types, trusted=trust_labels)
    draft = Schema.draft(types, trust_labels=trust_labels)
    draft.write(out, force=force, found=descriptions)
    hint_at_decimals(first, reading)
    echo(f"Wrote {out}. Review it, declare what is public, and delete the line 'drafted = true'.", quiet=quiet)
    hints = list(find_identifiers(draft, first))
    if hints:
        rows = "the rows" if is_whole else "the first rows"
        echo(f"For the steward only: these hints were computed from {rows} and are not in the file.", quiet=quiet)
    for hint in hints:
        echo(str(hint), quiet=quiet)


@schema_app.command("check")
@with_options(schema=typer.Argument(help="Schema file (TOML)."))
def schema_check(source: str, schema: Path, reading: "ReadOptions") -> None:
    """Compare a table with its schema. Reads real rows: the findings are NOT private, and for the steward only."""
    if is_graph_schema(schema):
        return check_graph(source, schema, reading)
    from understudy.encoding import on_break
    from understudy.schema import Schema
    from understudy.steward.check import check
    from understudy.tables import read_table

    declared = Schema.read(schema)
    table, _ = read_table(source, reading=reading)
    as_fitted, _ = read_table(source, schema=declared, reading=reading.of_named(source))
    if reading.header is False:  # both are matched with the schema in order
        table = table.rename_columns(as_fitted.column_names)
    findings = check(declared, table, as_fitted, functools.partial(on_break, schema=declared))
    hint_at_decimals(table, reading)
    say_findings(findings, "The table fits its schema.")
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


@schema_app.command("import")
@with_options(
    source=typer.Argument(
        help="A Frictionless Table Schema or Data Package, a REDCap data dictionary, a DDI-Codebook, SQL with CREATE "
        "TABLE, SDV metadata or constraints, a MOSTLY AI generator, or a SmartNoise, dpsynth or mbi file."
    ),
    out="The schema file to write.",
    form=typer.Option(
        "--format",
        help="frictionless, redcap, ddi, sql, sdv, mostly, smartnoise, dpsynth or mbi. Default: detected from the "
        "content.",
    ),
    schema="A schema to which the rules of the file are added. Default: a new schema.",
    lookup="NAME=FILE.csv, the rows of a table that a foreign key refers to, if public. Repeatable.",
    table=typer.Option("--table", "--resource", help="Which table to import, if the file describes several."),
    trust_ranges="Declare ranges and lists of values that a tool may have found in the data. Only if they are public.",
)
def schema_import(
    source: Path,
    out: Path,
    form: str | None = None,
    schema: Path | None = None,
    lookup: list[str] | None = None,
    table: str | None = None,
    trust_ranges: bool = False,
    force: bool = False,
    quiet: bool = False,
) -> None:
    """Convert a code book, or another tool's description of a table, to a schema file.

    What could not be carried over is printed, and listed in comments at the end of the file. Ranges and lists of values
    that a tool may have found in the data are left out, so that they are estimated privately.
    """
    from understudy.importers.importers import import_schema

    lookups = dict(_name_and_file(given) for given in lookup or [])
    imported = import_schema(source, form, schema=schema, lookups=lookups, table=table, trust_ranges=trust_ranges)
    imported.write(out, force=force)
    for line in imported.left_out:
        echo(f"Not carried over: {line}", quiet=quiet)
    echo(f"Wrote {out}. Review it: everything it declares is treated as public.", quiet=quiet)


def _name_and_file(given: str) -> tuple[str, str]:
    name, equals, file = given.partition("=")
    if not name or not equals or not file:
        raise ConfigError(f"--lookup expects NAME=FILE.csv, found {given!r}.")
    return name, file
