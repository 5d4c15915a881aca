"""Tables as the metrics see them: real and synthetic rows on one scale that no synthetic table can move.

Categories and ranges come from the schema; what it leaves open is read off the real table (judging stands outside the
guarantee, and the scorecard says what was read). Nothing here changes with the synthetic rows.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float, Int

from understudy.columns import Category, Column, did_you_mean, listed
from understudy.encoding import CategoricalCodec, as_ticks, bound_ticks
from understudy.errors import SchemaError, TableError
from understudy.schema import BOUNDED, Schema
from understudy.tables import conform

MANY_LEVELS = 50
"""A text column with more levels than this, half of its values distinct, is taken for names or notes."""


@dataclasses.dataclass(frozen=True)
class Trait:
    """One judged column: its levels, or its range."""

    name: str
    kind: str
    levels: tuple[Category, ...] = ()
    """Of a discrete column."""
    lower: float = math.nan
    upper: float = math.nan
    """Of a numeric column; dates count as days, moments as microseconds."""
    has_nulls: bool = False
    """Whether the real tables hold any null here."""

    @property
    def is_numeric(self) -> bool:
        return self.kind in BOUNDED

    @property
    def labels(self) -> tuple[str, ...]:
        """The levels as text, then what nulls and unlisted values are called."""
        return (*(str(level) for level in self.levels), "(missing)", "(unlisted)")

    @property
    def is_binary(self) -> bool:
        """Two levels and never null: one feature that is 0 or 1."""
        return len(self.levels) == 2 and not self.has_nulls

    @property
    def num_features(self) -> int:
        if self.is_numeric:
            return 1 + self.has_nulls
        return 1 if self.is_binary else len(self.levels) + self.has_nulls


@dataclasses.dataclass(frozen=True)
class Layout:
    """The scale on which all tables of one comparison are read."""

    traits: tuple[Trait, ...]
    schema: Schema
    notes: tuple[str, ...] = ()
    """What was read off the real table, or left out, in sentences."""

    @classmethod
    def of(cls, real: pa.Table, schema: Schema | None = None, *others: pa.Table) -> "Layout":
        """From the schema; what that leaves open, from the real tables (`others`: a holdout)."""
        notes = []
        if schema is None:
            schema = Schema.draft(real.schema)
            notes.append("No schema was given: kinds, categories and ranges were read off the real table.")
        tables = [_columns_of(table, schema, "real table") for table in (real, *others)]
        traits, left_out, read_off = [], [], []
        for column in schema.modelled:
            values = [table.column(column.name) for table in tables]
            trait = _trait(column, values)
            if trait is None:
                left_out.append(column.name)
                continue
            if column.bought is not None and not schema.drafted:
                read_off.append(column.name)
            traits.append(trait)
        unmodelled = [column.name for column in schema if not column.modelled]
        if unmodelled:
            notes.append(f"Not judged, being dropped, an id or text: {listed(unmodelled)}.")
        if left_out:
            notes.append(f"Not judged, being texts of which most are distinct, or empty: {listed(left_out)}.")
        if read_off:
            notes.append(f"Not declared in the schema, so read off the real table: {listed(read_off)}.")
        if not traits:
            raise TableError("There is no column to judge: all are ids, texts or empty. Declare kinds in a schema.")
        return cls(tuple(traits), schema, tuple(notes))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(trait.name for trait in self.traits)

    @property
    def numeric(self) -> tuple[Trait, ...]:
        return tuple(trait for trait in self.traits if trait.is_numeric)

    @property
    def discrete(self) -> tuple[Trait, ...]:
        return tuple(trait for trait in self.traits if not trait.is_numeric)

    def __getitem__(self, name: str) -> Trait:
        for trait in self.traits:
            if trait.name == name:
                return trait
        raise SchemaError(f"There is no judged column {name!r}.{did_you_mean(name, self.names)}")

    def read(self, table: pa.Table, what: str) -> "Judged":
        """A table on this scale; `what` names it in messages."""
        if not table.num_rows:
            raise TableError(f"The {what} has no rows, so there is nothing to judge.")
        table = _columns_of(table, self.schema, what)
        return Judged(self, {trait.name: _values(table.column(trait.name), trait) for trait in self.traits})

    def feature_names(self, columns: Sequence[str] | None = None) -> list[str]:
        """One name for each column of `Judged.features`."""
        names = []
        for trait in map(self.__getitem__, self.names if columns is None else columns):
            if trait.is_numeric:
                names += [trait.name, f"{trait.name} is missing"][: trait.num_features]
            elif trait.is_binary:
                names.append(f"{trait.name}={trait.labels[1]}")
            else:
                names += [f"{trait.name}={label}" for label in trait.labels[: trait.num_features]]
        return names


@dataclasses.dataclass(frozen=True, eq=False)
class Judged:
    """One table on a layout.

    A numeric column is float64 with NaN for nulls; values outside the range stay as they are. A discrete column is
    codes: its levels in order, then one for nulls, then one for values that are not listed.
    """

    layout: Layout
    columns: Mapping[str, np.ndarray]

    @cached_property
    def num_rows(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def take(self, rows: np.ndarray) -> "Judged":
        """Some rows, by number or by mask."""
        return Judged(self.layout, {name: values[rows] for name, values in self.columns.items()})

    def at_most(self, num_rows: int | None, *, seed: int) -> "Judged":
        """At most so many rows, drawn without replacement by a fixed seed; None: all of them."""
        if num_rows is None or self.num_rows <= num_rows:
            return self
        return self.take(np.random.default_rng(seed).choice(self.num_rows, num_rows, replace=False))

    def split(self, share: float, *, seed: int) -> tuple["Judged", "Judged"]:
        """Two disjoint parts by a fixed seed; the first holds this share of the rows."""
        order = np.random.default_rng(seed).permutation(self.num_rows)
        cut = round(share * self.num_rows)
        return self.take(np.sort(order[:cut])), self.take(np.sort(order[cut:]))

    def binned(self, name: str, bins: int) -> tuple[Int[np.ndarray, " rows"], int]:
        """Small integer codes and their number: equal-width cells over the range, or the levels.

        Values outside the range fall into the end cells; nulls have a code of their own.
        """
        trait, values = self.layout[name], self.columns[name]
        if not trait.is_numeric:
            return values, len(trait.levels) + 2
        inner = np.linspace(trait.lower, trait.upper, bins + 1)[1:-1]
        cells = np.digitize(values, inner).astype(np.int32)
        cells[np.isnan(values)] = bins
        return cells, bins + 1

    def scaled(self, name: str, *, clipped: bool = True) -> Float[np.ndarray, " rows"]:
        """A numeric column with its range mapped to [0, 1]; nulls are 0, as is a column of one value."""
        trait = self.layout[name]
        width = trait.upper - trait.lower
        part = np.nan_to_num((self.columns[name] - trait.lower) / (width if width > 0 else 1.0))
        return np.clip(part, 0.0, 1.0) if clipped else part

    def features(self, columns: Sequence[str] | None = None, *, clipped: bool = True) -> Float[np.ndarray, "rows f"]:
        """Numbers in [0, 1] and an indicator of nulls; discrete columns one-hot, or one 0/1 column for two levels.

        Unlisted values are zeros. The columns follow from the layout alone, so real and synthetic features agree.
        """
        names = self.layout.names if columns is None else columns
        traits = [self.layout[name] for name in names]
        out = np.zeros((self.num_rows, sum(trait.num_features for trait in traits)), dtype=np.float32)
        at = 0
        rows = np.arange(self.num_rows)
        for trait in traits:
            values = self.columns[trait.name]
            if trait.is_numeric:
                out[:, at] = self.scaled(trait.name, clipped=clipped)
                if trait.has_nulls:
                    out[:, at + 1] = np.isnan(values)
            elif trait.is_binary:
                out[:, at] = values == 1
            else:
                listed_here = values < trait.num_features
                out[rows[listed_here], at + values[listed_here]] = 1.0
            at += trait.num_features
        return out


def _columns_of(table: pa.Table, schema: Schema, what: str) -> pa.Table:
    """The judged columns, read as their declared kinds. Other columns are ignored."""
    wanted = [column.name for column in schema.modelled]
    absent = [name for name in wanted if name not in table.column_names]
    if absent:
        raise SchemaError(
            f"The {what} lacks {'the column' if len(absent) == 1 else 'the columns'} {listed(absent)}."
            f"{did_you_mean(absent[0], table.column_names)} It must have the columns of the real table."
        )
    return conform(table.select(wanted), schema)


def _trait(column: Column, values: list[pa.ChunkedArray]) -> Trait | None:
    """None: a column that cannot be judged."""
    has_nulls = any(pc.any(pc.is_null(part, nan_is_null=True)).as_py() for part in values)
    if column.kind in BOUNDED:
        if column.bounds is not None:
            lower, upper = bound_ticks(column)
        else:
            ticks, known = as_ticks(values[0], column.kind)
            inside = ticks[known & np.isfinite(ticks)]
            if not len(inside):
                return None
            lower, upper = inside.min(), inside.max()
        return Trait(column.name, column.kind, lower=float(lower), upper=float(upper), has_nulls=has_nulls)
    if column.kind == "boolean":
        return Trait(column.name, column.kind, (False, True), has_nulls=has_nulls)
    if column.categories is not None:
        return Trait(column.name, column.kind, tuple(column.categories), has_nulls=has_nulls)
    distinct = pc.unique(values[0]).drop_null()
    if not len(distinct) or (len(distinct) > MANY_LEVELS and 2 * len(distinct) > len(values[0])):
        return None
    levels = sorted(distinct.to_pylist(), key=lambda level: (str(type(level)), level))
    return Trait(column.name, column.kind, tuple(levels), has_nulls=has_nulls)


def _values(values: pa.ChunkedArray, trait: Trait) -> np.ndarray:
    if trait.is_numeric:
        ticks, known = as_ticks(values, trait.kind)
        return np.where(known, ticks.astype(np.float64), np.nan)
    # The code of unlisted values is one past that of nulls, which is one past the levels.
    codec = CategoricalCodec(trait.name, trait.levels, nullable=True, default=len(trait.levels) + 1)
    return codec.encode(values)
