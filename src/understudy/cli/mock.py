"""The command `mock`: rows from a schema alone."""

from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.graph import refuse_graphs
from understudy.cli.labels import IdPrefix, NoSidecar
from understudy.cli.options import Force, Quiet
from understudy.cli.output import write_json
from understudy.cli.terminal import echo
from understudy.errors import ConfigError


def mock(
    schema: Annotated[Path, typer.Argument(help="Schema file (TOML). No table is read.")],
    out: Annotated[str, typer.Option("-o", "--out", help="The mock table. Its extension sets the format.")],
    rows: Annotated[
        int | None, typer.Option("-n", "--rows", help="Number of rows. Default: the declared number, else 1000.")
    ] = None,
    fill: Annotated[
        bool, typer.Option("--fill", help="Use placeholders where the schema declares no categories or bounds.")
    ] = False,
    id_prefix: IdPrefix = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Makes the mock reproducible.")] = None,
    no_sidecar: NoSidecar = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Make rows from a schema alone: no row is read, so epsilon is 0.

    The rows have the declared categories, bounds and rules, and reveal nothing else about the real table. The
    certificate is written beside the table, as OUT.certificate.json and OUT.certificate.md.
    """
    if not schema.exists():
        raise ConfigError(f"{schema} does not exist. Name a schema file (.toml).")
    if schema.suffix.lower() != ".toml":  # a table is not even opened
        raise ConfigError(f"{schema}: expected a schema file (.toml). A mock is never made from a table.")
    refuse_graphs("mock", "Sample from its release instead.", schema)
    from understudy.metadata.table_schema import describe_synthetic
    from understudy.mock_table import STATEMENT, MockMaker
    from understudy.schema import Schema
    from understudy.tables import atomic_write, check_writable, write_batches
    from understudy.tables.labels import SIDECAR, sidecar_path
    from understudy.tables.location import TableLocation

    check_writable(out, force=force, table=True, sidecar=not no_sidecar)
    name = str(sidecar_path(TableLocation.parse(out))).removesuffix(SIDECAR)
    record, page = f"{name}.certificate.json", f"{name}.certificate.md"
    for beside in (record, page):
        check_writable(beside, force=force)
    maker = MockMaker.of(Schema.read(schema), rows, fill=fill)
    describe = None if no_sidecar else describe_synthetic(maker.complete)
    write_batches(maker.batches(seed=seed, id_prefix=id_prefix), out, force=force, describe=describe)
    write_json(maker.to_json(out), record, force=force)
    with atomic_write(page, force=force) as file:
        file.write(maker.to_markdown(out).encode())
    if maker.filled:
        echo(f"Placeholders: {', '.join(maker.filled)}.", quiet=quiet)
    echo(f"Wrote {maker.num_rows:,} mock row{'s' * (maker.num_rows != 1)} to {out}. {STATEMENT}", quiet=quiet)
