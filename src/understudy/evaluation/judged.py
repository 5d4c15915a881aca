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

from understudy.encoding import CategoricalCodec, as_ticks, bound_ticks
from understudy.errors import SchemaError, TableError, did_you_mean
from understudy.schema import BOUNDED, Category, Column, Schema
from understudy.schema.values import format_list as listed
from understudy.tables import conform

MANY_LEVELS = 50
"""A text column with more levels than this, half of its values distinct, is taken for names or notes."""
MOST_FEATURES = 1000
"""A discrete column has at most so many one-hot features, those of its most frequent real levels."""
LARGE = 1e100
"""Columns with larger numbers are divided by a power of two, so that squares and sums stay finite."""
FARTHEST = 1e150
"""Finite numbers beyond this are held here: no range of a layout reaches so far."""


REAL_TABLE = "real table"


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
    unknown: Category | None = None
    """The level that unlisted values become, where the schema names one."""
    frequent: tuple[int, ...] = ()
    """The codes that have features, in order; empty: all of them."""
    unit: float = 1.0
    """By what the numbers are divided, range and values alike; above 1 only for numbers beyond `LARGE`."""

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
        return 1 if self.is_binary else (len(self.frequent) or len(self.levels)) + self.has_nulls

    @property
    def unlisted(self) -> int:
        """The code of values that are not listed: that of `unknown`, else one past that of nulls."""
        return len(self.levels) + 1 if self.unknown is None else self.levels.index(self.unknown)

    @property
    def feature_codes(self) -> np.ndarray:
        """The codes that have a one-hot feature each, in order."""
        codes = np.array(self.frequent or range(len(self.levels)), dtype=np.int64)
        return np.append(codes, len(self.levels)) if self.has_nulls else codes


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
        given = schema is not None
        if schema is None:
            schema = Schema.draft(real.schema)
            notes.append("No schema was given: kinds, categories and ranges were read off the real table.")
        tables = [_columns_of(real, schema, REAL_TABLE)]
        tables += [_columns_of(table, schema, "holdout") for table in others]
        traits, left_out, read_off = [], [], []
        for column in schema.modelled:
            values = [table.column(column.name) for table in tables]
            trait = _trait(column, values)
            if trait is None:
                left_out.append(column.name)
                continue
            if column.bought is not None and given:
                read_off.append(column.name)
            traits.append(trait)
        outside = [name for name in real.column_names if name not in schema]
        if outside:
            notes.append(f"The real table has columns that the schema does not name; not judged: {listed(outside)}.")
        unmodelled = [column.name for column in schema if not column.modelled]
        if unmodelled:
            notes.append(f"Not judged, being dropped, an id or text: {listed(unmodelled)}.")
        if left_out:
            notes.append(f"Not judged, being texts of which most are distinct, or empty: {listed(left_out)}.")
        if read_off:
            why = "The schema is a draft" if schema.drafted else "Not declared in the schema"
            notes.append(f"{why}, so categories and ranges were read off the real table: {listed(read_off)}.")
        if wide := [trait.name for trait in traits if trait.frequent]:
            notes.append(
                f"Where rows become features, only the {MOST_FEATURES:,} most frequent real levels have one, the others"
                f" count as unlisted: {listed(wide)}."
            )
        if huge := [trait.name for trait in traits if trait.unit > 1]:
            notes.append(f"Divided by a power of two, as their numbers are beyond {LARGE:g}: {listed(huge)}.")
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
                names += [f"{trait.name}={trait.labels[code]}" for code in trait.feature_codes]
        return names


@dataclasses.dataclass(frozen=True, eq=False)
class Judged:
    """One table on a layout.

    A numeric column is float64 with NaN for nulls; values outside the range stay as they are. A discrete column is
    codes: its levels in order, then one for nulls, then one for values that are not listed; where the schema names an
    `unknown` level, that is their code instead.
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
        with np.errstate(over="ignore"):  # a value far outside a narrow range
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
                places = np.full(len(trait.levels) + 2, -1)
                places[trait.feature_codes] = np.arange(trait.num_features)
                here = places[values]
                out[rows[here >= 0], at + here[here >= 0]] = 1.0
            at += trait.num_features
        return out


def _columns_of(table: pa.Table, schema: Schema, what: str) -> pa.Table:
    """The judged columns, read as their declared kinds. Other columns are ignored."""
    wanted = [column.name for column in schema.modelled]
    absent = [name for name in wanted if name not in table.column_names]
    if absent and what == REAL_TABLE:
        raise SchemaError(
            f"The schema names columns that the real table lacks: {listed(absent)}."
            f"{did_you_mean(absent[0], table.column_names)} Mend the schema, or give the table that it describes."
        )
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
        largest = max(abs(float(lower)), abs(float(upper)))
        unit = 1.0 if largest <= LARGE else 2.0 ** math.ceil(math.log2(largest / LARGE))
        return Trait(
            column.name,
            column.kind,
            lower=float(lower) / unit,
            upper=float(upper) / unit,
            has_nulls=has_nulls,
            unit=unit,
        )
    if column.kind == "boolean":
        return Trait(column.name, column.kind, (False, True), has_nulls=has_nulls)
    if column.categories is not None:
        declared = Trait(
            column.name, column.kind, tuple(column.categories), has_nulls=has_nulls, unknown=column.unknown
        )
        return _with_frequent(declared, values[0])
    distinct = pc.unique(values[0]).drop_null()
    if not len(distinct) or (len(distinct) > MANY_LEVELS and 2 * len(distinct) > len(values[0])):
        return None
    levels = sorted(distinct.to_pylist(), key=lambda level: (str(type(level)), level))
    return _with_frequent(Trait(column.name, column.kind, tuple(levels), has_nulls=has_nulls), values[0])


def _with_frequent(trait: Trait, values: pa.ChunkedArray) -> Trait:
    """With the codes of the most frequent real levels, where not all of them can have a feature."""
    if len(trait.levels) <= MOST_FEATURES:
        return trait
    counts = np.bincount(_values(values, trait), minlength=len(trait.levels))[: len(trait.levels)]
    most = np.sort(np.argsort(-counts, kind="stable")[:MOST_FEATURES])
    return dataclasses.replace(trait, frequent=tuple(most.tolist()))


def _values(values: pa.ChunkedArray, trait: Trait) -> np.ndarray:
    if trait.is_numeric:
        ticks, known = as_ticks(values, trait.kind)
        numbers = ticks.astype(np.float64) / trait.unit
        # Infinities stay; what else lies beyond all ranges does so here too.
        numbers = np.where(np.isfinite(numbers), np.clip(numbers, -FARTHEST, FARTHEST), numbers)
        return np.where(known, numbers, np.nan)
    codec = CategoricalCodec(trait.name, trait.levels, nullable=True, default=trait.unlisted)
    return codec.encode(values)
