"""The command `split`: rows to fit and rows to hold out, in two files."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.cli.holdout import write_private
from understudy.cli.options import with_options
from understudy.cli.terminal import echo
from understudy.errors import ConfigError

if TYPE_CHECKING:
    from understudy.schema import Schema
    from understudy.tables import ReadOptions


@with_options(
    out="The table to fit. Its extension sets the format.",
    holdout="The rows to hold out, for 'evaluate --holdout'.",
    test="The probability that a unit is held out.",
    unit="The column that identifies the privacy unit. Rows of one unit stay together.",
    schema="Schema file (TOML): declares the unit, and how columns are read.",
)
def split(
    source: str,
    out: str,
    holdout: str,
    reading: "ReadOptions",
    test: float = 0.2,
    unit: str | None = None,
    schema: Path | None = None,
    force: bool = False,
    quiet: bool = False,
) -> None:
    """Split a table at random into rows to fit and rows to hold out, by privacy unit. Both files are private."""
    from understudy.steward.split import check_fraction, expected_rows, split_arrow
    from understudy.tables import check_writable, read_table

    check_fraction(test, "--test")
    places = [os.path.realpath(place) for place in (source, out, holdout)]
    if len(set(places)) < len(places):
        raise ConfigError("SOURCE, --out and --holdout must be three different files.")
    for place in (out, holdout):
        check_writable(place, force=force, table=True)
    unit, declared = _read_unit(unit, schema)
    table, origin = read_table(source, schema=declared, reading=reading)
    train, held_out = split_arrow(table, test, unit)
    for part, place in ((train, out), (held_out, holdout)):
        write_private(part, place, origin=origin, schema=declared, force=force)
    whose = f"rows of the same {unit!r} stay together" if unit else "each row counts as one person (otherwise: --unit)"
    echo(f"Wrote {out} and {holdout}; {whose}. Both hold real rows: never share them.", quiet=quiet)
    if declared is not None and declared.rows is not None:
        about = expected_rows(declared.rows, test)
        echo(f"The schema declares {declared.rows:,} rows; about {about:,} of them are in {out}. "
             f"Declare that number before you fit {out}.", quiet=quiet)  # fmt: skip
    if reading.encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
        echo("Both files are in UTF-8: read them without --encoding.", quiet=quiet)
    needed = {"schema": schema, "decimal": reading.decimal}  # to read the file as this command did
    options = "".join(f" --{name} {value}" for name, value in needed.items() if value is not None)
    echo(f"Next: understudy synth {out}{options} --epsilon 1 -o fake.csv", quiet=quiet)


def _read_unit(unit: str | None, path: Path | None) -> "tuple[str | None, Schema | None]":
    """The unit column of --unit or of a schema, and the schema."""
    from understudy.schema import Schema

    declared = None if path is None else Schema.read(path)
    if declared is not None and unit is not None and declared.unit != unit:
        raise ConfigError(f"--unit is {unit!r}, but the schema names {declared.unit!r}. Remove one of them.")
    return (unit, None) if declared is None else (declared.unit, declared)
