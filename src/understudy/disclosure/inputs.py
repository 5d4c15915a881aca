"""Reads the three tables of a disclosure report with one layout, and refuses those that would mislead."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import binom

from understudy.disclosure.attributes import has_values
from understudy.disclosure.rates import Rate, excess_p_value
from understudy.errors import ConfigError, TableError, did_you_mean
from understudy.evaluation.inputs import Source, read_source
from understudy.evaluation.table import ColumnSpec, EncodedTable, Layout, require_columns
from understudy.evaluation.validity import fingerprints, unmatched_rows
from understudy.notes import count_of
from understudy.rules.values import format_list
from understudy.schema import Schema
from understudy.tables import ReadOptions

MIN_ROWS = 200
"""Of the training and of the held-out rows: false-positive rates are measured on a quarter of the latter, 50 rows."""
MIN_SYNTHETIC = 100
OVERLAP_ALARM = 1e-6
"""The probability that rows held out at random are refused as overlapping."""
SHARED_ALARM = 1e-3
"""The probability of a warning that rows are in both tables, if they were held out at random."""
ALL_THREE = "All three tables must have the columns of the schema, or of the real table if there is none."
SIMILAR = 0.7
"""How similar a column must be to be suggested; all columns are listed anyway."""


@dataclasses.dataclass(frozen=True)
class DisclosureTables:
    """Training, held-out and synthetic rows with one layout, and one row per privacy unit if units are declared."""

    real: EncodedTable
    holdout: EncodedTable
    synthetic: EncodedTable
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def layout(self) -> Layout:
        return self.real.layout


def read_tables(
    real: Source,
    synthetic: Source,
    holdout: Source,
    *,
    schema: Schema | None,
    from_split: bool,
    reading: ReadOptions,
    seed: int,
) -> DisclosureTables:
    """Read and check all three tables.

    `from_split`: the holdout was written by `synth --split`, so its rows are removed from the real table if it
    still has them. Categories and ranges that the schema does not declare are taken from the training and the held-out
    rows together: taken from one of them, they would distinguish the two.
    """
    table = read_source(real, schema, "real table", reading)
    kinds = dataclasses.replace(Schema.draft(table.schema) if schema is None else schema, drafted=False)
    held_out = read_source(holdout, kinds, "holdout", reading, is_written=from_split)
    fake = read_source(synthetic, kinds, "synthetic table", reading, is_written=True)
    names = [column.name for column in kinds.modelled]
    for part, what in ((table, "real table"), (held_out, "holdout"), (fake, "synthetic table")):
        require_columns(part, names, what, ALL_THREE)
    both = pa.concat_tables([table.select(names), held_out.select(names)], promote_options="permissive")
    layout = Layout.of(both, dataclasses.replace(kinds, drafted=schema is None or schema.drafted))
    layout, warnings = _leave_out_unreadable(dataclasses.replace(layout, schema=kinds), fake)
    notes = list(layout.notes)
    encoded, test = layout.read(table, "real table"), layout.read(held_out, "holdout")
    if kinds.unit is not None:  # without units, rows of one person would look independent
        for part, what in ((table, "real table"), (held_out, "holdout")):
            require_columns(part, [kinds.unit], what, ALL_THREE)
        num_rows = table.num_rows + held_out.num_rows
        (table, encoded), (held_out, test) = (
            _rows_with_unit(*part, kinds.unit) for part in ((table, encoded), (held_out, test))
        )
        if table.num_rows + held_out.num_rows < num_rows:
            notes.append(f"Rows without a value of {kinds.unit!r} were left out: they are not fitted.")
    if from_split and (rest := _rows_not_split_off(table, held_out, encoded, test, kinds.unit)) is not None:
        table, encoded = table.take(rest), encoded.take(rest)
        notes.append("The held-out rows were left out of the real table.")
    if kinds.unit is not None:
        encoded, test = _one_row_per_unit(table, held_out, encoded, test, kinds.unit, seed)
        notes.append(f"One row of each value of {kinds.unit!r} was drawn, since rows of one unit are not independent.")
    _check_sizes(encoded, test, fake)
    _refuse_overlap(encoded, test, seed)
    warnings += warn_of_shared_rows(encoded, test)
    return DisclosureTables(encoded, test, layout.read(fake, "synthetic table"), tuple(notes), tuple(warnings))


def find_columns(layout: Layout, names: Sequence[str], what: str) -> tuple[str, ...]:
    """The evaluated columns of these names, each once."""
    if isinstance(names, str):
        raise ConfigError(f"{what} must be a list of columns, not a string.")
    for name in names:
        if name not in layout.names:
            known = " It is dropped, an id, free text, empty or unreadable." if name in layout.schema else ""
            hint = did_you_mean(name, layout.names, cutoff=SIMILAR)
            raise ConfigError(
                f"{what}: {name!r} is not an evaluated column.{known}{hint} "
                f"Expected some of {format_list(list(layout.names))}."
            )
    return tuple(dict.fromkeys(names))


def _leave_out_unreadable(layout: Layout, synthetic: pa.Table) -> tuple[Layout, list[str]]:
    """The layout without columns that have no readable synthetic value, and a warning for each of them.

    With such a column no synthetic row would equal a real one, and copies would not be found.
    """
    table = layout.read(synthetic, "synthetic table")
    unreadable = [spec for spec in layout.columns if not _is_readable(table, spec)]
    if len(unreadable) == len(layout.columns):
        raise TableError(
            "No column of the synthetic table has a value that can be read. Check its file and the schema."
        )
    warnings = [f"{spec.name}: no synthetic value is {_expected(spec)}; not compared." for spec in unreadable]
    kept = tuple(spec for spec in layout.columns if spec not in unreadable)
    return dataclasses.replace(layout, columns=kept), warnings


def _expected(spec: ColumnSpec) -> str:
    if not spec.is_numeric:
        return "one of the categories"
    return "a date" if spec.kind.startswith("date") else "a number"


def _is_readable(table: EncodedTable, spec: ColumnSpec) -> bool:
    values = table[spec.name]
    readable = has_values(table, spec.name) if spec.is_numeric else values < len(spec.categories)
    return bool(readable.any())


def _check_sizes(real: EncodedTable, holdout: EncodedTable, synthetic: pa.Table) -> None:
    if holdout.num_rows < MIN_ROWS:
        raise TableError(
            f"The holdout has {count_of(holdout.num_rows, 'row')} to attack; at least {MIN_ROWS} are needed, because "
            "false positives are counted on a quarter of them. Hold out more rows, such as a fifth."
        )
    if real.num_rows < MIN_ROWS:
        raise TableError(
            f"The real table has {count_of(real.num_rows, 'training row')} to attack; at least {MIN_ROWS} are needed, "
            "because true positives are counted on half of them. Use a larger table, or hold out fewer rows."
        )
    if synthetic.num_rows < MIN_SYNTHETIC:
        raise TableError(
            f"The synthetic table has {count_of(synthetic.num_rows, 'row')}; at least {MIN_SYNTHETIC} are needed for "
            "attacks that estimate densities. Sample more rows."
        )


def _refuse_overlap(real: EncodedTable, holdout: EncodedTable, seed: int) -> None:
    """Refuse a holdout with more rows in the real table than common rows explain.

    As many real rows as are held out, but at most half, are set aside. If the holdout was held out at random, both
    equal a row of the rest equally often, and Fisher's test refuses it with probability at most `OVERLAP_ALARM`.
    """
    fraction = min(0.5, holdout.num_rows / real.num_rows)
    aside, rest = (fingerprints(part) for part in real.split(fraction, seed=seed))
    held_out = fingerprints(holdout)
    rates = [Rate.of(int(np.isin(keys, rest).sum()), len(keys)) for keys in (held_out, aside)]
    if excess_p_value(*rates) < OVERLAP_ALARM:
        equal = np.isin(held_out, fingerprints(real)).mean()
        raise TableError(
            f"The holdout overlaps the real table: {equal:.0%} of its rows equal a training row, where about "
            f"{rates[1].value:.0%} would be expected of common rows. If they were taken from this table, give the "
            "table without them, which was fitted. Otherwise hold out rows that are not fitted: 'understudy split', or "
            "--split of 'synth'."
        )


def warn_of_shared_rows(real: EncodedTable, holdout: EncodedTable) -> list[str]:
    """A warning if a random split does not explain the rows that both tables have and no other real row equals.

    If a row occurs exactly twice among all real rows, a random split of n + m rows puts one of the two on each side
    with probability 2nm / ((n + m)(n + m - 1)).
    """
    ours, theirs = fingerprints(real), fingerprints(holdout)
    distinct, counts = np.unique(np.concatenate([ours, theirs]), return_counts=True)
    twice = distinct[counts == 2]
    in_ours, in_theirs = np.isin(twice, ours), np.isin(twice, theirs)
    shared, total = int((in_ours & in_theirs).sum()), len(ours) + len(theirs)
    chance = 2 * len(ours) * len(theirs) / (total * (total - 1))
    if binom.sf(shared - 1, len(twice), chance) > SHARED_ALARM:
        return []
    expected = int((in_ours & ~in_theirs).sum()) * 2 * len(theirs) / (len(ours) - 1)
    return [
        f"{count_of(shared, 'held-out row')} {'equals' if shared == 1 else 'equal'} one training row and no other "
        f"real row; duplicates among the training rows suggest about {expected:,.0f} by chance. Held-out "
        "rows that were fitted hide disclosure: leave them out of the holdout."
    ]


def _rows_with_unit(table: pa.Table, encoded: EncodedTable, unit: str) -> tuple[pa.Table, EncodedTable]:
    """The rows that have a unit. `fit` uses no other, so no other is a training row, though a split may hold it out."""
    known = np.flatnonzero(table.column(unit).cast(pa.string()).is_valid().to_numpy())
    return table.take(known), encoded.take(known)


def _rows_not_split_off(
    table: pa.Table, held_out: pa.Table, real: EncodedTable, holdout: EncodedTable, unit: str | None
) -> np.ndarray | None:
    """The real rows without those that a split held out: whole units where there are units; None: nothing is left out.

    Rows of two units may be equal in all evaluated columns, so units are recognised by their ids.
    """
    if unit is None:
        return unmatched_rows(fingerprints(real), fingerprints(holdout))
    ids = [part.column(unit).cast(pa.string()).combine_chunks() for part in (table, held_out)]
    kept = np.flatnonzero(~pc.is_in(ids[0], value_set=ids[1]).to_numpy(zero_copy_only=False))
    return kept if len(kept) < table.num_rows else None


def _one_row_per_unit(
    table: pa.Table, held_out: pa.Table, real: EncodedTable, holdout: EncodedTable, unit: str, seed: int
) -> tuple[EncodedTable, EncodedTable]:
    """One row of each unit, drawn at random. Units that are in both tables are refused."""
    ids = pa.chunked_array([part for each in (table, held_out) for part in each.column(unit).cast(pa.string()).chunks])
    codes = ids.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    ours, theirs = np.split(codes, [table.num_rows])
    if shared := int(np.isin(np.unique(theirs), ours).sum()):
        raise TableError(
            f"The holdout overlaps the real table: both have {count_of(shared, 'value')} of the unit {unit!r}. Hold "
            "out whole units: 'understudy split', or --split of 'synth'.",
            column=unit,
        )
    generator = np.random.default_rng([seed, 4])
    drawn = []
    for keys in (ours, theirs):
        order = generator.permutation(len(keys))
        drawn.append(np.sort(order[np.unique(keys[order], return_index=True)[1]]))
    return real.take(drawn[0]), holdout.take(drawn[1])
