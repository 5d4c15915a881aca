"""Reads the tables of an evaluation: the real one, its holdout and the synthetic ones, on one layout."""

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import ConfigError, SchemaError, TableError, did_you_mean
from understudy.evaluation import learning, validity
from understudy.evaluation.scorecard import REAL
from understudy.evaluation.table import REAL_TABLE, ColumnSpec, EncodedTable, Layout
from understudy.models.pool import WEIGHT_COLUMN, draw_indices
from understudy.rules.values import format_list, to_python
from understudy.schema import OTHER, Schema
from understudy.tables import Frame, ReadOptions, read_table
from understudy.tables.cast import plain_without_missing
from understudy.tables.path import table_stem

Source: TypeAlias = "Frame | str | os.PathLike[str]"

FEW_ROWS, FEW_OF_REAL = 100, 0.01
"""Synthetic tables with fewer rows, or a smaller fraction of the real rows, are warned about."""
HELD_OUT = 0.2
"""The fraction of the real rows that is held out if no holdout is given."""


@dataclasses.dataclass(frozen=True)
class RealTables:
    """The real table and its holdout, as read and encoded."""

    layout: Layout
    schema: Schema
    """How the synthetic tables are read: with the kinds of the real one, whatever their own types."""
    table: pa.Table
    test_table: pa.Table
    """The real rows and the test rows before encoding."""
    real: EncodedTable
    """All real rows that the synthesizer may have seen."""
    train: EncodedTable
    test: EncodedTable
    """Real rows to learn from, and others to score on."""
    holdout_seen: bool
    """Whether the synthesizer has seen the test rows, as far as is known."""


class SyntheticTable(NamedTuple):
    """One synthetic table: encoded, with at most as many rows as the real one, and as read."""

    encoded: EncodedTable
    table: pa.Table


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads the tables of one evaluation, and collects sentences for the reader of its scorecard."""

    reading: ReadOptions
    seed: int
    notes: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)

    def read_real(
        self, real: Source, schema: Schema | None, holdout: "Source | None", *, from_split: bool = False
    ) -> RealTables:
        """Read the real table and its holdout; without one, hold out a fifth of the real rows.

        `from_split`: the holdout was written by `synth --split`, so its style is known, and its rows were not fitted.
        """
        for source, what in ((real, REAL_TABLE), *([] if holdout is None else [(holdout, "holdout")])):
            self.warnings.extend(_warn_of_order(path_of(source), what))
        table = self._read(real, schema, REAL_TABLE)
        kinds = dataclasses.replace(Schema.draft(table.schema), drafted=False) if schema is None else schema
        test_table = None if holdout is None else self._read(holdout, kinds, "holdout", is_written=from_split)
        layout = Layout.of(table, schema, *([] if test_table is None else [test_table]))
        layout = dataclasses.replace(layout, schema=dataclasses.replace(layout.schema, drafted=False))
        self.notes.extend(layout.notes)
        whole = layout.read(table, REAL_TABLE)
        if test_table is None:
            train_rows, test_rows = _split_rows(whole.num_rows, self.seed)
            self.notes.append(
                f"No holdout was given: {len(test_rows):,} of the {whole.num_rows:,} real rows were held out for "
                "testing. The synthesizer was fitted to them, so scores on them may be too good."
            )
            test_table, train, test = table.take(test_rows), whole.take(train_rows), whole.take(test_rows)
            return RealTables(layout, kinds, table, test_table, whole, train, test, True)
        test = layout.read(test_table, "holdout")
        if (rest := validity.rows_without(table, test_table)) is not None:
            if from_split:
                self.notes.append("The held-out rows were left out of the real table.")
            else:
                self.warnings.append(
                    "The held-out rows are part of the real table and were removed from it. If the method was fitted "
                    "to them, scores on them are too optimistic."
                )
            table, whole = table.take(rest), whole.take(rest)
            return RealTables(layout, kinds, table, test_table, whole, whole, test, False)
        fraction, by_chance = validity.seen_fraction(whole, test)
        is_seen = fraction > (1 + by_chance) / 2
        if is_seen:
            self.warnings.append(
                f"{fraction:.0%} of the holdout's rows equal a row of the real table, so the holdout seems to be part "
                "of it, and scores on it are too good. Hold out rows that were not used for fitting."
            )
        return RealTables(layout, kinds, table, test_table, whole, whole, test, is_seen)

    def read_synthetic(self, synthetic: "Source | Mapping[str, Source]", real: RealTables) -> dict[str, SyntheticTable]:
        """Read the synthetic tables by name; those with more rows than the real one are subsampled to its size."""
        named = _name_tables(synthetic)
        tables = {}
        limit = real.real.num_rows
        for name, source in named.items():
            what = f"synthetic table {name!r}" if len(named) > 1 else "synthetic table"
            table = self._read(source, real.schema, what, is_written=True)
            known = (*real.layout.schema.names, *real.table.column_names)
            if WEIGHT_COLUMN in table.column_names and WEIGHT_COLUMN not in known:
                table = _sample_by_weight(table, what, self.seed)
                self.notes.append(f"The rows of the {what} were sampled by its column {WEIGHT_COLUMN}.")
            encoded = real.layout.read(table, what)
            self.warnings.extend(_warn_of_size(encoded.num_rows, limit, what))
            self.warnings.extend(_warn_of_other(table, real.layout, what))
            if extra := [column for column in table.column_names if column not in known]:
                self.notes.append(
                    f"The {what} has columns that the real one lacks; they were ignored: {format_list(extra)}."
                )
            if encoded.num_rows > limit:
                self.notes.append(
                    f"The {what} has {encoded.num_rows:,} rows; {limit:,} of them were sampled, as many as there are "
                    "real rows."
                )
            tables[name] = SyntheticTable(encoded.at_most(limit, seed=self.seed), table)
        return tables

    def _read(self, source: Source, schema: Schema | None, what: str, *, is_written: bool = False) -> pa.Table:
        """A table, with a warning of cells that cannot be read as their kind."""
        table = read_source(source, None, what, self.reading, is_written=is_written)
        if schema is None:
            return table
        nulls = _null_counts(table, schema)  # the table may have more columns, which are ignored
        table = read_source(source, schema, what, self.reading, is_written=is_written)
        if lost := dict(_lost_cells(nulls, table, schema)):
            self.warnings.append(
                f"In the {what} some cells cannot be read as the kind of their column and count as missing:"
                f" {_fractions_text(lost)}."
            )
        return table


def _sample_by_weight(table: pa.Table, what: str, seed: int) -> pa.Table:
    """As many rows, drawn by their weights: a table whose rows count equally."""
    weights = np.asarray(table.column(WEIGHT_COLUMN).to_pandas(), dtype=np.float64)
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise TableError(
            f"The column {WEIGHT_COLUMN} of the {what} must have weights of 0 or more. Correct or drop it."
        )
    chosen = draw_indices(weights, len(weights), np.random.default_rng(seed))
    return table.drop_columns([WEIGHT_COLUMN]).take(pa.array(chosen))


def find_target(layout: Layout, target: str | None) -> ColumnSpec | None:
    """The target column: the one given, else the schema's."""
    name = layout.schema.target if target is None else target
    if name is None:
        return None
    if name in layout.names:
        return layout[name]
    if name in layout.schema:
        raise SchemaError(
            f"The target {name!r} is dropped, an id, text or empty, so it cannot be predicted.", column=name
        )
    raise SchemaError(
        f"The target {name!r} is not a column of the tables.{did_you_mean(name, layout.names)}", column=name
    )


def find_positive(layout: Layout, target: ColumnSpec | None, train: EncodedTable) -> object:
    """The schema's positive class, else the rarer of two; None: the target does not have two classes."""
    if target is None or target.is_numeric:
        return None
    declared = layout.schema.positive if layout.schema.target == target.name else None
    if declared is None or len(target.categories) != 2:
        return learning.rarer_class(train, target.name)
    if str(to_python(declared)) not in target.labels[:2]:
        # The categories were read off real rows, else the schema would have been refused: they are not listed.
        raise SchemaError(
            f"The schema's positive class {to_python(declared)!r} is not a value of the target {target.name!r}. "
            "Declare the target's categories, or correct it.",
            column=target.name,
            key="positive",
        )
    return to_python(declared)


def path_of(source: object) -> Path | None:
    """The file of a path; None: a frame or a URL."""
    if not isinstance(source, str | os.PathLike) or "://" in str(source):
        return None
    whole = Path(source)
    return whole if whole.exists() else Path(str(source).partition("::")[0])


def name_of(source: Source, otherwise: str) -> str:
    """A file's name without its suffix; for frames, `otherwise`."""
    if not isinstance(source, str | os.PathLike):
        return otherwise
    stem = Path(str(source).split("::")[-1]).stem
    return otherwise if stem in ("", REAL) else stem


def _name_tables(synthetic: "Source | Mapping[str, Source]") -> dict[str, Source]:
    if not isinstance(synthetic, Mapping):
        return {name_of(synthetic, "synthetic"): synthetic}
    if not synthetic:
        raise ConfigError("There is no synthetic table to evaluate.", setting="synthetic")
    if REAL in synthetic:
        raise ConfigError(
            f"A synthetic table cannot be named {REAL!r}: that is the name of the reference.", setting="synthetic"
        )
    return dict(synthetic)


def read_source(
    source: Source, schema: Schema | None, what: str, reading: ReadOptions, *, is_written: bool = False
) -> pa.Table:
    """A table with rows, in the kinds of the schema if there is one; `what` names it in messages.

    `is_written`: by Understudy, so that the options for the real file do not apply, but for the decimal mark.
    """
    if (path := path_of(source)) is not None and not path.exists():
        raise TableError(f"The {what} cannot be read. {path} does not exist. Check the spelling and the folder.")
    try:
        reading = reading.of_synthetic(source) if is_written else reading
        table = read_table(source, schema, reading=reading if schema is None else reading.of_named(source))[0]
    except (TableError, SchemaError) as error:
        raise type(error)(f"The {what} cannot be read. {error}") from None
    if not table.num_rows:
        raise TableError(f"The {what} has no rows. Expected a table with rows: check the file.")
    return table


def _lost_cells(nulls: Mapping[str, int], table: pa.Table, schema: Schema) -> Iterator[tuple[str, float]]:
    """Columns with the fraction of cells that became null when they were read as their kind."""
    counts = _null_counts(table, schema)
    for name in (column.name for column in schema.modelled):
        if name in counts and counts[name] > nulls.get(name, counts[name]):
            yield name, (counts[name] - nulls[name]) / table.num_rows


def _null_counts(table: pa.Table, schema: Schema) -> dict[str, int]:
    """Nulls by column, values that are declared missing among them."""
    names = [column.name for column in schema.modelled if table.column_names.count(column.name) == 1]
    return {name: plain_without_missing(table.column(name), schema[name]).null_count for name in names}


def _split_rows(num_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    if num_rows < 2:
        raise TableError("The real table has only one row, so none can be held out. Use more rows, or a holdout.")
    order = np.random.default_rng(seed).permutation(num_rows)
    num_held_out = max(1, round(HELD_OUT * num_rows))
    return np.sort(order[num_held_out:]), np.sort(order[:num_held_out])


# Warnings: what would make scores misleading


def _warn_of_order(path: Path | None, what: str) -> Iterator[str]:
    """A release folder beside a file, as `synth` leaves one, may mean that the file is not the real table."""
    if path is None:
        return
    if not (release := path.with_name(f"{table_stem(path.name)}.release")).is_dir():
        return
    yield (
        f"{release.name}, which 'understudy synth' writes beside its output, is next to the {what}, {path.name}. If "
        f"{path.name} is synthetic, the order is wrong: the real table comes first."
    )


def _warn_of_size(num_rows: int, num_real: int, what: str) -> Iterator[str]:
    if num_rows < max(FEW_ROWS, FEW_OF_REAL * num_real):
        count = "1 row" if num_rows == 1 else f"{num_rows:,} rows"
        yield f"The {what} has {count}, the real one {num_real:,}: too few for a reliable evaluation."


def _warn_of_other(synthetic: pa.Table, layout: Layout, what: str) -> Iterator[str]:
    """Understudy's own name for categories that it did not keep is not an invention of the synthesizer."""
    found = {}
    for spec in layout.discrete:
        values = synthetic.column(spec.name)
        if (
            spec.is_open
            or spec.unknown is not None
            or not pa.types.is_string(getattr(values.type, "value_type", values.type))
        ):
            continue
        distinct = pc.unique(values).drop_null().to_pylist()
        named = [name for name in distinct if re.fullmatch(f"{OTHER}_*", name) and name not in spec.categories]
        if named:
            fraction = pc.mean(pc.is_in(values.cast(pa.string()), pa.array(named)).cast(pa.float64())).as_py()
            found[spec.name] = float(fraction)
    if found:
        yield (
            f"In the {what} some cells are {OTHER!r}, Understudy's name for categories that it did not keep:"
            f" {_fractions_text(found)}. They count as unlisted. Declare the categories in the schema to keep them."
        )


def _fractions_text(fractions: Mapping[str, float]) -> str:
    """Columns with a fraction of their rows, the largest first."""
    order = sorted(fractions, key=lambda name: -fractions[name])
    text = ", ".join(f"{format_list([name])} ({fractions[name]:.2%})" for name in order[:5])
    return text if len(order) <= 5 else f"{text} and {len(order) - 5} more columns"
