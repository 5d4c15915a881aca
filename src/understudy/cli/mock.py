"""The command `mock`: rows from a schema alone."""

from pathlib import Path

import typer

from understudy.cli.graph import refuse_graphs
from understudy.cli.options import with_options
from understudy.cli.output import SampleOptions, note_on_formulas, write_json, write_rows
from understudy.cli.terminal import echo
from understudy.errors import ConfigError


@with_options(
    schema=typer.Argument(help="Schema file (TOML). No table is read."),
    out="The mock table. Its extension sets the format.",
    rows="Number of rows. Default: the declared number, else 1000.",
    fill="Use placeholders where the schema declares no categories or bounds.",
    seed="Makes the mock reproducible.",
    without=("where",),
)
def mock(schema: Path, out: str, options: SampleOptions, fill: bool = False) -> None:
    """Make rows from a schema alone: no row is read, so epsilon is 0.

    The rows have the declared categories, bounds and rules, and reveal nothing else about the real table. The
    certificate is written beside the table, as OUT.certificate.json and OUT.certificate.md.
    """
    if not schema.exists():
        raise ConfigError(f"{schema} does not exist. Name a schema file (.toml).")
    if schema.suffix.lower() != ".toml":  # a table is not even opened
        raise ConfigError(f"{schema}: expected a schema file (.toml). A mock is never made from a table.")
    refuse_graphs("mock", "Sample from its release instead.", schema)
    from understudy.planning.mock import STATEMENT, MockMaker
    from understudy.schema import Schema
    from understudy.tables import check_writable, write_file
    from understudy.tables.labels import SIDECAR, sidecar_path
    from understudy.tables.path import TablePath

    check_writable(out, force=options.force, table=True, sidecar=not options.no_sidecar)
    name = str(sidecar_path(TablePath.parse(out))).removesuffix(SIDECAR)
    record, page = f"{name}.certificate.json", f"{name}.certificate.md"
    for beside in (record, page):
        check_writable(beside, force=options.force)
    maker = MockMaker.of(Schema.read(schema), options.rows, fill=fill)
    batches = maker.batches(seed=options.seed, id_prefix=options.id_prefix)
    note_on_formulas(write_rows(batches, out, options, schema=maker.complete, title=maker.complete.name), out, options)
    write_json(maker.to_json(out), record, force=options.force)
    write_file(page, maker.to_markdown(out).encode(), force=options.force)
    if maker.filled:
        echo(f"Placeholders: {', '.join(maker.filled)}.", quiet=options.quiet)
    plural = "s" * (maker.num_rows != 1)
    echo(f"Wrote {maker.num_rows:,} mock row{plural} to {out}. {STATEMENT}", quiet=options.quiet)
