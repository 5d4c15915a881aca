"""What a release would keep of a table, before anything is spent: for the steward only.

This reads the rows, so none of it is private, and choices that a person makes from it are outside every guarantee. It
draws no noise: what is expected follows from the plans of a run (`api.plan`) and from exact counts. Nothing here enters
a schema, a plan or a release.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import stats

from understudy.api import make_plan
from understudy.encoding.arrow import as_numbers, bound_numbers, comparable
from understudy.errors import BudgetExceeded
from understudy.notes import Note
from understudy.planning.requirements import Requirements
from understudy.privacy.accounting.events import DiscreteGaussian
from understudy.privacy.accounting.ledger import Guarantee, Plan
from understudy.privacy.mechanisms.discovery import Binning, rows_to_be_listed
from understudy.privacy.rows.units import rows_within_units
from understudy.rules.comparison import plain_array
from understudy.run.plan import read_guarantee
from understudy.run.sources import PrivateSource
from understudy.schema import BOUNDED, Column, Schema, SchemaSource, as_schema, match_columns
from understudy.synthesizers import AUTO, Synthesizer
from understudy.tables import ReadOptions, conform, read_table
from understudy.tables.cast import plain_without_missing

WARNING = (
    "NOT PRIVATE: this preview is computed from the real rows, for the steward only. Do not share it. It spends and "
    "writes nothing, but choices made from it are not covered by the guarantee of a release."
)
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)


@dataclasses.dataclass(frozen=True)
class ColumnPreview:
    """What is expected of one column. NOT private."""

    name: str
    kind: str
    num_values: int | None
    """The number of distinct values, of a categorical column."""
    values_kept: float | None
    """How many of them are expected to be kept."""
    unchanged: float | None
    """The expected fraction of rows that keep their value; the others become "other", a null or a bound. None: bounds
    are estimated privately."""
    other: float
    """The expected fraction of rows that become "other"."""


@dataclasses.dataclass(frozen=True)
class Outlook:
    """What is expected at one epsilon. NOT private, except for the noise."""

    epsilon: float
    stddev: float | None
    """The standard deviation of the noise in a count, in rows; None: the method does not know it in advance."""
    rows_to_be_listed: int | None
    """How many rows a value needs to be kept in an estimated list; None: all lists are declared."""
    columns: tuple[ColumnPreview, ...] | None
    """None: the method cannot run with so small an epsilon."""

    @property
    def other(self) -> float | None:
        """The expected fraction of "other" among all values of categorical columns."""
        listed = [column.other for column in self.columns or () if column.num_values is not None]
        return float(np.mean(listed)) if listed else None

    def note(self, num_rows: int) -> Note | None:
        """A warning if the table has too few rows for this epsilon."""
        return Requirements(self.stddev, self.rows_to_be_listed).note(num_rows, epsilon=self.epsilon)


@dataclasses.dataclass(frozen=True)
class Preview:
    """What a release would keep of a table. NOT private: for the steward only.

    >>> table = pa.table({"town": ["north"] * 900 + ["south"] * 100})
    >>> preview(table, "independent", epsilon=1).num_rows
    1000
    """

    num_rows: int
    """All rows of the table."""
    used_rows: int
    """Rows without a unit, and those above `max_rows_per_unit`, are not used."""
    chosen: Outlook
    """At the epsilon that was asked for."""
    outlooks: tuple[Outlook, ...]
    """At each of `EPSILONS`."""


def preview(
    table: PrivateSource,
    method: Synthesizer | str = AUTO,
    guarantee: Guarantee | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    schema: SchemaSource | None = None,
    target: str | None = None,
    binning: Binning | None = None,
    reading: ReadOptions | None = None,
) -> Preview:
    """Show what a release of this table would keep, at this guarantee and others. For the steward only.

    *Not covered*: everything. It reads the rows and spends nothing; do not share it, and do not base on it what a
    release declares public.

    Args:
        table: The private rows: a frame or the path of a file.
        method: A synthesizer, or its expression.
        guarantee: The guarantee. Give either this, or `epsilon` and, if you want, `delta`. Default: epsilon 1.
        epsilon: The epsilon of the guarantee.
        delta: Its delta. Default: derived from the declared number of rows, else 1e-6.
        schema: A `Schema`, a dict of its sections, or the path of its file. Default: drafted from the table's types.
        target: The column that matters most. Default: that of the schema.
        binning: How numbers are divided into bins.
        reading: How to read text files and workbooks.

    Returns:
        The preview, with an outlook at this epsilon and at others.

    Raises:
        SchemaError: The schema is malformed, or does not match the columns of the table.
        TableError: The table cannot be read.
        ConfigError: The guarantee, the method or one of its settings cannot be honoured.

    >>> table = pa.table({"town": ["north"] * 900 + ["south"] * 95 + ["east"] * 5})
    >>> found = preview(table, "independent", epsilon=1)
    >>> round(found.chosen.columns[0].values_kept), round(found.chosen.columns[0].other, 3)
    (2, 0.007)
    """
    guarantee, binning = read_guarantee(guarantee, epsilon, delta, default=Guarantee(1.0)), binning or Binning()
    declared = None if schema is None else as_schema(schema)
    arrow, _ = read_table(table, declared, reading=reading)
    given = arrow
    if declared is None:
        declared = Schema.draft(arrow.schema)
        arrow = conform(arrow, declared)
    else:
        given, _ = read_table(table, reading=reading)
        if reading is not None and reading.header is False:
            given = given.rename_columns(arrow.column_names)
    schema = declared if target is None else declared.with_target(target)
    match_columns(schema, arrow.column_names)
    used = arrow
    if schema.unit is not None:
        names = [column.name for column in schema.modelled]
        within = pa.array(rows_within_units([arrow], schema.unit, names, schema.max_rows_per_unit)[0])
        used, given = arrow.filter(within), given.filter(within)
    counts = {column.name: _count_values(column, used, given) for column in schema.modelled}
    outlooks = {
        epsilon: _outlook(schema, method, dataclasses.replace(guarantee, epsilon=epsilon), binning, counts)
        for epsilon in sorted({*EPSILONS, guarantee.epsilon})
    }
    listed = tuple(outlooks[epsilon] for epsilon in EPSILONS)
    return Preview(arrow.num_rows, used.num_rows, outlooks[guarantee.epsilon], listed)


@dataclasses.dataclass(frozen=True)
class _Counts:
    """Exact counts of one column: of each listed or occurring value, and of rows that a public rule changes."""

    of_values: np.ndarray
    num_values: int
    """Distinct values, listed or not."""
    replaced: int
    num_rows: int
    becomes_other: bool = False
    """Whether the replaced values become "other", rather than a null, another category or a bound."""


def _count_values(column: Column, table: pa.Table, given: pa.Table) -> _Counts:
    """`given` is the table as it is without a schema: what the declared kind cannot read is null in `table` only."""
    values, num_rows = table.column(column.name), table.num_rows
    if column.kind == "categorical":
        listed, values = comparable(column.categories or (), values)
        counted = pc.value_counts(plain_array(values).drop_null())
        of_values = counted.field("counts").to_numpy(zero_copy_only=False)
        if column.categories is None:
            return _Counts(of_values, len(of_values), 0, num_rows)
        inside = pc.is_in(counted.field("values"), listed).to_numpy(zero_copy_only=False)
        is_other = column.replacement is not None and column.replacement not in column.categories
        return _Counts(of_values[inside], len(of_values), int(of_values[~inside].sum()), num_rows, is_other)
    outside = values.null_count - plain_without_missing(given.column(column.name), column).null_count
    if column.kind in BOUNDED and column.bounds is not None:
        numbers, known = as_numbers(values, column.kind)
        lower, upper = bound_numbers(column)
        outside += int(np.sum(known & ((numbers < lower) | (numbers > upper))))
    return _Counts(np.zeros(0, dtype=np.int64), 0, max(outside, 0), num_rows)


def _outlook(
    schema: Schema, method: Synthesizer | str, guarantee: Guarantee, binning: Binning, counts: Mapping[str, _Counts]
) -> Outlook:
    try:
        made = make_plan(schema, method, guarantee, binning=binning)
    except BudgetExceeded:
        return Outlook(guarantee.epsilon, None, None, None)
    needs = Requirements.of(made, made.expected)
    columns = tuple(_column_preview(column, counts[column.name], made, binning) for column in schema.modelled)
    return Outlook(guarantee.epsilon, needs.stddev, needs.listed, columns)


def _column_preview(column: Column, counts: _Counts, made: Plan, binning: Binning) -> ColumnPreview:
    rows = max(counts.num_rows, 1)
    if column.estimated == "categories" and "categories" in made and column.name in made["categories"].columns:
        kept = _chances_of_being_listed(counts.of_values, made, binning)
        lost = float((counts.of_values * (1 - kept)).sum()) / rows
        return ColumnPreview(column.name, column.kind, len(kept), float(kept.sum()), 1 - lost, lost)
    changed = counts.replaced / rows
    other = changed if counts.becomes_other else 0.0
    num_values = None if column.kind != "categorical" else counts.num_values
    unchanged = None if column.estimated == "bounds" and not counts.replaced else 1 - changed
    return ColumnPreview(
        column.name,
        column.kind,
        num_values,
        None if num_values is None else float(len(counts.of_values)),
        unchanged,
        other,
    )


def _chances_of_being_listed(counts: Sequence[int] | np.ndarray, made: Plan, binning: Binning) -> np.ndarray:
    """The probability of each value that its count with noise passes the threshold, by a normal approximation."""
    query = made["categories"]
    assert isinstance(query.event, DiscreteGaussian)
    counts = np.asarray(counts, dtype=float)
    chances: np.ndarray = stats.norm.sf((rows_to_be_listed(query) - 0.5 - counts) / query.event.stddev)
    rarest = np.argsort(-counts, kind="stable")[binning.max_categories :]
    chances[rarest] = 0.0  # only the most frequent are kept
    return chances
