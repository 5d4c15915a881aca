"""Synthetic units: which synthetic rows belong together, and the values that they share. Post-processing."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int, PRNGKeyArray

from understudy.encoding.codec import Codec
from understudy.encoding.columns import ColumnCodec, NumericCodec
from understudy.errors import ConfigError
from understudy.notes import Note
from understudy.privacy.mechanisms.rows_per_unit import num_bins
from understudy.schema import Schema
from understudy.tables import ColumnOrigin, Origin

ROWS_PER_GROUP = 10
"""The number of rows that a pool should have for each combination of shared codes."""
MAX_POOLED = 100_000
"""The largest pool, unless more rows are wanted."""
MAX_OF_A_PREFIX = 40
"""The most characters that may stand before an id."""
MAX_LISTED = 10
"""The most numbers of rows whose percentages are listed."""


def pool_factor(codec: Codec, num_rows: int) -> int:
    """How many times more rows to sample than are wanted, so that rows which agree in the shared columns are found."""
    shared = shared_columns(codec)
    if not (shared and codec.rows_per_unit):
        return 1
    combinations = math.prod(column.size for column in shared)
    return max(1, min(-(-ROWS_PER_GROUP * combinations // num_rows), MAX_POOLED // num_rows))


def group_into_units(
    pool: pa.Table,
    num_rows: int,
    codec: Codec,
    *,
    key: PRNGKeyArray,
    is_valid: Callable[[pa.Table], Bool[np.ndarray, " rows"]] | None = None,
) -> pa.Table:
    """`num_rows` rows of the pool as units of 1, 2, ... rows, with new ids. A unit's rows stand together.

    The sizes of units are drawn by `codec.rows_per_unit`, independently of all values; the last one drawn may be cut.
    Without shared (`per_unit`) columns, each unit takes the next rows. Otherwise the pool, whose size is a multiple of
    `num_rows`, is sorted by the codes of the shared columns, and each unit has a stretch of it in proportion to its
    size. A row of the stretch, chosen at random, is its donor, and the unit takes rows beside the donor, with equal
    codes if there are enough. All of them get the donor's values in the shared columns; other columns stay as sampled.
    So shared columns keep the distribution of the pool, and other columns keep theirs given the shared codes, except
    in rows whose codes differ from the donor's.

    A row that is not valid with the donor's values (by `is_valid`: the rules of the schema and the condition of the
    sample) keeps its own, as a unit of one row.
    """
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    shared = [column.name for column in codec.schema.columns if column.per_unit]
    sizes = _draw_sizes(codec.rows_per_unit, num_rows, generator)
    units = np.repeat(np.arange(len(sizes)), sizes)
    if not shared:
        return number_ids(pool, codec.schema, units)
    order, run_starts, run_ends = _sort_rows(codec.reexpression.express(pool), shared_columns(codec), generator)
    chosen, at_donors = _choose_rows(sizes, pool.num_rows // num_rows, run_starts, run_ends, generator)
    members, donors = order[chosen], order[at_donors][units]
    if is_valid is not None:
        alone = ~is_valid(_share(pool, shared, members, donors, codec))
        donors = np.where(alone, members, donors)
        units = np.where(alone, units[-1] + np.cumsum(alone), units)  # every other unit still has its donor
    units = generator.permutation(units.max() + 1)[units]  # the order of units must not follow their values
    together = np.argsort(units, kind="stable")
    rows = _share(pool, shared, members[together], donors[together], codec)
    return number_ids(rows, codec.schema, units[together])


def shared_columns(codec: Codec) -> tuple[ColumnCodec, ...]:
    """The modelled `per_unit` columns in the order by which rows are sorted: categorical before numeric, few codes
    before many.

    The last ones are those in which neighbouring rows differ most often, and numeric ones then by neighbouring bins.
    """
    shared = [column for column in codec.columns if codec.reexpression.modelled[column.name].per_unit]
    return tuple(sorted(shared, key=lambda column: (isinstance(column, NumericCodec), column.size)))


Indices: TypeAlias = Int[np.ndarray, " _"]


def _sort_rows(
    rows: pa.Table, shared: Sequence[ColumnCodec], generator: np.random.Generator
) -> tuple[Indices, Indices, Indices]:
    """Indices of the rows, those with equal codes in random order; and for each place where its run of equal codes
    starts and ends."""
    codes = [column.encode(rows.column(column.name)) for column in reversed(shared)]
    order = np.lexsort((generator.random(rows.num_rows), *codes))
    is_first = np.zeros(rows.num_rows, dtype=bool)
    is_first[:1] = True
    for each in codes:
        is_first[1:] |= each[order[1:]] != each[order[:-1]]
    starts = np.flatnonzero(is_first)
    run = np.cumsum(is_first) - 1
    return order, starts[run], np.r_[starts[1:], rows.num_rows][run]


def _choose_rows(
    sizes: Indices, factor: int, run_starts: Indices, run_ends: Indices, generator: np.random.Generator
) -> tuple[Indices, Indices]:
    """Places in the sorted pool: the rows of all units, unit by unit, and the donor of each."""
    stretch_starts = factor * (np.cumsum(sizes) - sizes)
    donors = stretch_starts + generator.integers(factor * sizes)
    starts = donors - generator.integers(sizes)  # the donor may be any row of its unit
    starts = np.minimum(np.maximum(starts, run_starts[donors]), run_ends[donors] - sizes)
    first, last = np.maximum(stretch_starts, donors - sizes + 1), stretch_starts + (factor - 1) * sizes
    starts = np.clip(starts, first, np.minimum(last, donors))
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.repeat(starts, sizes) + within, donors


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


def _share(rows: pa.Table, shared: Sequence[str], order: np.ndarray, donors: np.ndarray, codec: Codec) -> pa.Table:
    """The rows in this order, with the shared columns of other rows, the donors.

    Columns that follow from shared ones by a rule, such as an age from a date of birth, are computed again.
    """
    grouped = _with_columns(rows.take(order), rows, shared, donors)
    if not codec.schema.rules:
        return grouped
    return _with_columns(codec.reexpression.clean(grouped), rows, shared, donors)


def _with_columns(grouped: pa.Table, rows: pa.Table, shared: Sequence[str], donors: np.ndarray) -> pa.Table:
    for name in shared:
        at = grouped.column_names.index(name)
        grouped = grouped.set_column(at, grouped.field(at), rows.column(name).take(donors))
    return grouped


def number_ids(rows: pa.Table, schema: Schema, units: Int[np.ndarray, " rows"]) -> pa.Table:
    """New ids from 1 on: in the unit column for the unit of each row, in other id columns for each row."""
    for at, name in enumerate(rows.column_names):
        if name in schema and schema[name].kind == "id":
            ids = units + 1 if name == schema.unit else np.arange(1, rows.num_rows + 1)
            rows = rows.set_column(at, rows.field(at), pa.array(ids))
    return rows


def continue_ids(rows: pa.Table, codec: Codec, rows_before: int, units_before: int) -> tuple[pa.Table, int]:
    """The rows with ids that continue those of earlier batches, and the number of units so far."""
    schema, units = codec.schema, units_before
    for at, name in enumerate(rows.column_names):
        if name in schema and schema[name].kind == "id":
            is_unit = name == schema.unit and bool(codec.rows_per_unit)
            ids = pc.add(rows.column(name), units_before if is_unit else rows_before)
            units = pc.max(ids).as_py() if is_unit else units
            rows = rows.set_column(at, rows.field(at), ids)
    return rows, units


def check_id_prefix(prefix: str | None, schema: Schema, origin: Origin, *, types_kept: bool) -> None:
    """Refuses a prefix that no id of the synthetic table can have. Follows from the schema and the kept types."""
    if prefix is None:
        return
    if not isinstance(prefix, str) or not prefix.isprintable() or not prefix.strip() or len(prefix) > MAX_OF_A_PREFIX:
        raise ConfigError(
            f"The prefix of ids must be 1 to {MAX_OF_A_PREFIX} printable characters, such as SYN-; found {prefix!r}."
        )
    ids = _id_columns(schema)
    if not ids:
        raise ConfigError(
            'There is no id in the synthetic table to give a prefix. Leave it out, or declare a column of kind "id".'
        )
    for name in ids if types_kept else ():
        if name in origin.columns and origin.columns[name].arrow.startswith(("int", "uint")):
            raise ConfigError(
                f"The ids of {name!r} are integers, whose type is kept, so they cannot have the prefix {prefix!r}. "
                "Leave the prefix out, or do not keep the types.",
            )


def prefix_ids(rows: pa.Table, schema: Schema, prefix: str | None) -> pa.Table:
    """The rows with ids as text that starts with the prefix: 7 becomes SYN-7. Without a prefix, unchanged."""
    for name in _id_columns(schema) if prefix else ():
        ids = pc.binary_join_element_wise(pa.scalar(prefix), rows.column(name).cast(pa.string()), "")
        at = rows.column_names.index(name)
        rows = rows.set_column(at, rows.field(at).with_type(pa.string()), ids)
    return rows


def with_text_ids(origin: Origin, schema: Schema) -> Origin:
    """The origin of rows whose ids have a prefix."""
    ids = {name: ColumnOrigin(arrow="string") for name in _id_columns(schema)}
    return dataclasses.replace(origin, columns={**origin.columns, **ids})


def _id_columns(schema: Schema) -> list[str]:
    return [column.name for column in schema.columns if column.kind == "id" and not column.drop]


# ----------------------------------------------------------------------------------------------------------- for people


def describe_units(schema: Schema) -> str:
    """Which rows of a unit are used, and what synthetic units are, in a few sentences; empty without a unit."""
    if schema.unit is None:
        return ""
    max_rows, unit = schema.max_rows_per_unit, schema.unit
    used = "Only one row" if max_rows == 1 else f"At most {max_rows:,} rows"
    used += f" of each unit ({unit!r}) {'is' if max_rows == 1 else 'are'} used; further rows are left out."
    if schema[unit].drop:
        return f"{used} {unit!r} is dropped, so synthetic rows belong to no unit."
    if max_rows == 1:
        return f"{used} Each synthetic row is a unit of its own."
    names = [column.name for column in schema.columns if column.per_unit]
    shared = f"One value per unit: {', '.join(names)}." if names else "No column is declared per_unit."
    return (
        f"{used} A synthetic unit has 1 to {num_bins(schema):,} rows, sampled from a noisy histogram of rows per unit. "
        f"{shared} All other values are sampled row by row."
    )


def unit_notes(schema: Schema) -> tuple[Note, ...]:
    """The same as a note of a plan or run; none without a unit."""
    return () if schema.unit is None else (Note(describe_units(schema)),)


def describe_rows_per_unit(probabilities: Sequence[float]) -> str:
    """The distribution for people: percentages, or for a long list the mean."""
    if len(probabilities) <= MAX_LISTED:
        return ", ".join(f"{size} ({probability:.0%})" for size, probability in enumerate(probabilities, start=1))
    mean = sum(size * probability for size, probability in enumerate(probabilities, start=1))
    return f"{mean:.1f} on average, at most {len(probabilities):,}"
