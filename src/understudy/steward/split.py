"""Splits a real table at random into rows to fit and rows to test on, by privacy unit. For the steward only."""

import dataclasses
import os
import secrets

import numpy as np
import pyarrow as pa

from understudy.errors import ConfigError, SchemaError, did_you_mean
from understudy.privacy.rows.table import hold_out, split_units
from understudy.run.sources import PrivateSource, TableToFit
from understudy.schema import Schema, SchemaSource, as_schema
from understudy.tables import Frame, Origin, read_table, to_frame


def check_fraction(fraction: float, what: str) -> None:
    """Refuses a fraction that would leave one part empty."""
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction < 1:
        raise ConfigError(f"{what} must be a fraction between 0 and 1, such as 0.2; found {fraction}.")


def split(
    table: PrivateSource, test: float = 0.2, *, unit: str | None = None, schema: SchemaSource | None = None
) -> "tuple[Frame, Frame]":
    """Split a table at random into rows to fit and rows to hold out for `evaluate`. Both are private.

    Args:
        table: A frame, or the path of a file, which with a schema is read as `fit` reads it.
        test: The probability with which each privacy unit is held out, with all of its rows.
        unit: The column that identifies the privacy unit. Default: that of the schema; without one each row is a unit.
        schema: A `Schema`, a dict of its sections, or the path of its file.

    Returns:
        The rows to fit and the rows held out, in the kind of frame that was given.

    Raises:
        ConfigError: `test` is not between 0 and 1.
        SchemaError: The table has no column `unit`.
        TableError: The table cannot be read.

    >>> import pandas as pd
    >>> train, held = split(pd.DataFrame({"person": [1, 1, 2, 3], "x": [5, 6, 7, 8]}), 0.5, unit="person")
    >>> set(train["person"]) & set(held["person"])
    set()
    """
    schema = None if schema is None else as_schema(schema)
    is_file = isinstance(table, str | os.PathLike)  # without a schema its types are inferred from the values
    arrow, origin = read_table(table, schema if is_file else None)
    train, held_out = split_arrow(arrow, test, unit or (None if schema is None else schema.unit))
    origin = with_real_ids(origin, arrow, schema)
    return to_frame(train, origin), to_frame(held_out, origin)


def with_real_ids(origin: Origin, table: pa.Table, schema: Schema | None) -> Origin:
    """The origin for real rows: ids are written as they were read, and may be words; synthetic ids are integers."""
    columns = () if schema is None else schema.columns
    ids = {column.name for column in columns if column.kind == "id"} & origin.columns.keys()
    kept = {name: dataclasses.replace(origin.columns[name], arrow=str(table.field(name).type)) for name in ids}
    return dataclasses.replace(origin, columns={**origin.columns, **kept})


def split_arrow(table: pa.Table, test: float, unit: str | None) -> tuple[pa.Table, pa.Table]:
    """The rows to fit and the rows to hold out."""
    check_fraction(test, "test")
    if unit is not None and unit not in table.column_names:
        raise SchemaError(f"The table has no column {unit!r}.{did_you_mean(unit, table.column_names)}", column=unit)
    return split_units(table, unit, test, np.random.default_rng(secrets.randbits(128)))


def split_private(data: TableToFit, fraction: float, secret: int) -> tuple[TableToFit, pa.Table]:
    """A table to fit without the units that are held out, and the rows of these, in the columns of the schema.

    A declared number of rows becomes the expected number of the rest: a public number, computed from public ones. How
    many rows are really left is private, and no query relies on it.
    """
    check_fraction(fraction, "--split")
    rest, held = hold_out(data.table, data.schema.unit, fraction, np.random.default_rng(secret))
    schema = data.schema
    if schema.rows is not None:
        schema = dataclasses.replace(schema, rows=expected_rows(schema.rows, fraction))
    return dataclasses.replace(data, table=rest, schema=schema, held_out=fraction), held


def expected_rows(rows: int, fraction: float) -> int:
    """How many of the declared rows are expected not to be held out."""
    return max(1, round(rows * (1 - fraction)))
