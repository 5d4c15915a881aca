"""Synthetic units: which synthetic rows belong together, and the values that they share. Post-processing."""

from collections.abc import Callable, Sequence

import jax
import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Int, PRNGKeyArray

from understudy.encoding.codec import Codec
from understudy.encoding.columns import ColumnCodec, NumericCodec
from understudy.notes import Note
from understudy.schema import Schema

MOST_LISTED = 10
"""The most numbers of rows whose percentages are listed."""


def group_into_units(
    rows: pa.Table,
    codec: Codec,
    *,
    key: PRNGKeyArray,
    is_valid: Callable[[pa.Table], Bool[np.ndarray, " rows"]] | None = None,
) -> pa.Table:
    """The same number of rows as units of 1, 2, ... rows, with new ids. A unit's rows stand together.

    The sizes of units are drawn by `codec.rows_per_unit`, independently of all values; the last one drawn may be cut.
    Rows are sorted by their codes in the `per_unit` columns, and each unit takes the next ones. Only where a unit
    crosses the border of two groups do its rows differ in these columns: all of them then get the values of one of its
    rows, chosen at random, so that every row's values are expected to be used once. Other columns stay as sampled.

    A row that is not valid with these values (by `is_valid`, the condition of the sample) keeps its own, as a unit of one
    row.
    """
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    shared = shared_columns(codec)
    sizes = _draw_sizes(codec.rows_per_unit, rows.num_rows, generator)
    units = np.repeat(np.arange(len(sizes)), sizes)
    if not shared:
        return _number_ids(rows, codec.schema, units)
    order = _sort_rows(rows, shared, generator)
    donors = order[np.cumsum(sizes) - sizes + generator.integers(sizes)][units]
    if is_valid is not None:
        alone = ~is_valid(_share(rows, shared, order, donors))
        donors = np.where(alone, order, donors)
        units = np.where(alone, units[-1] + np.cumsum(alone), units)  # every other unit still has its donor
    units = generator.permutation(units.max() + 1)[units]  # the order of units must not follow their values
    together = np.argsort(units, kind="stable")
    return _number_ids(_share(rows, shared, order[together], donors[together]), codec.schema, units[together])


def shared_columns(codec: Codec) -> tuple[ColumnCodec, ...]:
    """The `per_unit` columns in the order by which rows are sorted: categorical before numeric, few codes before many.

    The last ones are those in which the rows of a unit differ most often, and then by neighbouring bins.
    """
    shared = [column for column in codec.columns if codec.schema[column.name].per_unit]
    return tuple(sorted(shared, key=lambda column: (isinstance(column, NumericCodec), column.size)))


def _sort_rows(
    rows: pa.Table, shared: Sequence[ColumnCodec], generator: np.random.Generator
) -> Int[np.ndarray, " rows"]:
    """Indices of the rows, those with equal codes in random order."""
    codes = [column.encode(rows.column(column.name)) for column in reversed(shared)]
    return np.lexsort((generator.random(rows.num_rows), *codes))


def _draw_sizes(
    probabilities: Sequence[float], num_rows: int, generator: np.random.Generator
) -> Int[np.ndarray, " units"]:
    """Sizes of units that add up to `num_rows`; the last one may be cut."""
    weights = np.asarray(probabilities)
    sizes = 1 + generator.choice(len(weights), size=num_rows, p=weights / weights.sum())
    ends = np.cumsum(sizes)
    last = int(np.searchsorted(ends, num_rows))
    sizes[last] -= ends[last] - num_rows
    return sizes[: last + 1]


def _share(rows: pa.Table, shared: Sequence[ColumnCodec], order: np.ndarray, donors: np.ndarray) -> pa.Table:
    """The rows in this order, with the shared columns of other rows, the donors."""
    grouped = rows.take(order)
    for column in shared:
        at = grouped.column_names.index(column.name)
        grouped = grouped.set_column(at, grouped.field(at), rows.column(column.name).take(donors))
    return grouped


def _number_ids(rows: pa.Table, schema: Schema, units: Int[np.ndarray, " rows"]) -> pa.Table:
    """The ids of units, and the other id columns numbered row by row."""
    for at, name in enumerate(rows.column_names):
        if schema[name].kind == "id":
            ids = units + 1 if name == schema.unit else np.arange(1, rows.num_rows + 1)
            rows = rows.set_column(at, rows.field(at), pa.array(ids))
    return rows


# ------------------------------------------------------------------------------------------------------------ for people


def describe_units(schema: Schema) -> str:
    """Which rows of a unit are used, and what synthetic units are, in a few sentences; empty without a unit."""
    if schema.unit is None:
        return ""
    most, unit = schema.max_rows_per_unit, schema.unit
    used = "Only the first row" if most == 1 else f"At most the first {most:,} rows"
    used += f" of each unit ({unit!r}) {'is' if most == 1 else 'are'} used; further rows are left out."
    if schema[unit].drop:
        return f"{used} {unit!r} is dropped, so synthetic rows belong to no unit."
    if most == 1:
        return f"{used} Each synthetic row is a unit of its own."
    names = [column.name for column in schema.columns if column.per_unit]
    shared = f"One value per unit: {', '.join(names)}." if names else "No column is declared per_unit."
    return (
        f"{used} A synthetic unit has 1 to {most:,} rows, drawn from a noisy histogram of rows per unit. {shared} All "
        "other values are drawn row by row."
    )


def unit_notes(schema: Schema) -> tuple[Note, ...]:
    """The same as a note of a plan or run; none without a unit."""
    return () if schema.unit is None else (Note(describe_units(schema)),)


def describe_rows_per_unit(probabilities: Sequence[float]) -> str:
    """The distribution for people: percentages, or for a long list the mean.

    >>> describe_rows_per_unit((0.5, 0.3, 0.2))
    '1 (50%), 2 (30%), 3 (20%)'
    """
    if len(probabilities) <= MOST_LISTED:
        return ", ".join(f"{size} ({probability:.0%})" for size, probability in enumerate(probabilities, start=1))
    mean = sum(size * probability for size, probability in enumerate(probabilities, start=1))
    return f"{mean:.1f} on average, at most {len(probabilities):,}"
