"""Tables as the metrics read them: real and synthetic rows encoded on one layout.

Categories and ranges come from the schema; what it leaves open is read off the real table (evaluation is outside the
guarantee, and the scorecard says what was read). No synthetic table can change the layout.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float, Int

from understudy.encoding import CategoricalCodec, as_numbers, bound_numbers
from understudy.errors import SchemaError, TableError, did_you_mean
from understudy.rules.values import format_list
from understudy.schema import BOUNDED, Category, Column, Schema
from understudy.schema.locations import wrap_longitudes
from understudy.tables import conform

MANY_CATEGORIES = 50
"""A text column with more distinct values than this, and more than half of them distinct, is taken for free text."""
MAX_FEATURES = 1000
"""The most one-hot features of a discrete column; they go to the most frequent real categories."""
LARGE = 1e100
"""Columns with larger numbers are divided by a power of two, so that squares and sums stay finite."""
FARTHEST = 1e150
"""Finite numbers beyond this are clipped to it: no range of a layout reaches so far."""

REAL_TABLE = "real table"


@dataclasses.dataclass(frozen=True)
class ColumnSpec:
    """One column of a layout: its categories or its range."""

    name: str
    kind: str
    categories: tuple[Category, ...] = ()
    """Of a discrete column."""
    lower: float = math.nan
    upper: float = math.nan
    """Of a numeric column; dates are days, datetimes microseconds."""
    has_nulls: bool = False
    """Whether the real tables have nulls here."""
    unknown: Category | None = None
    """The category that unlisted values become, where the schema names one."""
    is_open: bool = False
    """Whether the declared list is open: unlisted values are then "other", in a list of numbers a null."""
    frequent: tuple[int, ...] = ()
    """The codes that have features, in order; empty: all of them."""
    scale: float = 1.0
    """The divisor of range and values; above 1 only for numbers beyond `LARGE`."""
    is_ordinal: bool = False
    """Whether the categories are in their order: distances then count ranks."""

    @property
    def is_numeric(self) -> bool:
        return self.kind in BOUNDED

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories as text, then the labels of nulls and of unlisted values."""
        return (*(str(category) for category in self.categories), "(missing)", "(unlisted)")

    @property
    def is_binary(self) -> bool:
        """Two categories and no nulls: one feature that is 0 or 1."""
        return len(self.categories) == 2 and not self.has_nulls

    @property
    def num_features(self) -> int:
        if self.is_numeric or self.is_ordinal:
            return 1 + self.has_nulls
        return 1 if self.is_binary else (len(self.frequent) or len(self.categories)) + self.has_nulls

    @property
    def unlisted(self) -> int:
        """The code of unlisted values: that of `unknown`, that of nulls for an open list that is not text, else one
        past the code of nulls."""
        if self.unknown is not None:
            return self.categories.index(self.unknown)
        return len(self.categories) + (not self.is_open or isinstance(self.categories[0], str))

    @property
    def feature_codes(self) -> np.ndarray:
        """The codes that have a one-hot feature each, in order."""
        codes = np.array(self.frequent or range(len(self.categories)), dtype=np.int64)
        return np.append(codes, len(self.categories)) if self.has_nulls else codes


@dataclasses.dataclass(frozen=True)
class Layout:
    """The columns, categories and ranges on which all tables of one evaluation are read."""

    columns: tuple[ColumnSpec, ...]
    schema: Schema
    notes: tuple[str, ...] = ()
    """What was read off the real table, or excluded, as sentences."""

    @classmethod
    def of(cls, real: pa.Table, schema: Schema | None = None, *others: pa.Table) -> "Layout":
        """From the schema; what it leaves open, from the real tables (`others`: a holdout)."""
        given = schema is not None
        schema = Schema.draft(real.schema) if schema is None else schema
        tables = [_select_columns(real, schema, REAL_TABLE)]
        tables += [_select_columns(table, schema, "holdout") for table in others]
        specs = {c.name: _column_spec(c, [t.column(c.name) for t in tables]) for c in schema.modelled}
        columns = tuple(spec for spec in specs.values() if spec is not None)
        if not columns:
            raise TableError(
                "There is no column to evaluate: all are ids, free text or empty. Declare their kinds in a schema."
            )
        excluded = [name for name, spec in specs.items() if spec is None]
        return cls(columns, schema, tuple(_layout_notes(real, schema, columns, excluded, given=given)))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.columns)

    @property
    def numeric(self) -> tuple[ColumnSpec, ...]:
        return tuple(spec for spec in self.columns if spec.is_numeric)

    @property
    def discrete(self) -> tuple[ColumnSpec, ...]:
        return tuple(spec for spec in self.columns if not spec.is_numeric)

    def __getitem__(self, name: str) -> ColumnSpec:
        for spec in self.columns:
            if spec.name == name:
                return spec
        raise SchemaError(f"There is no evaluated column {name!r}.{did_you_mean(name, self.names)}", column=name)

    def read(self, table: pa.Table, what: str) -> "EncodedTable":
        """Encode a table; `what` names it in messages."""
        table = _select_columns(table, self.schema, what)
        columns = {spec.name: _encode(table.column(spec.name), spec) for spec in self.columns}
        # A real table may go on beyond 180 where a synthetic one has negative longitudes.
        longitudes = {each.longitude for each in self.schema.locations}
        wrapped = {name: wrap_longitudes(values) for name, values in columns.items() if name in longitudes}
        return EncodedTable(self, columns | wrapped)

    def feature_names(self) -> list[str]:
        """One name for each column of `EncodedTable.features`."""
        names = []
        for spec in self.columns:
            if spec.is_numeric or spec.is_ordinal:
                names += [spec.name, f"{spec.name} is missing"][: spec.num_features]
            elif spec.is_binary:
                names.append(f"{spec.name}={spec.labels[1]}")
            else:
                names += [f"{spec.name}={spec.labels[code]}" for code in spec.feature_codes]
        return names


def _layout_notes(
    real: pa.Table, schema: Schema, columns: Sequence[ColumnSpec], excluded: Sequence[str], *, given: bool
) -> Iterator[str]:
    if not given:
        yield "No schema was given: kinds, categories and ranges were inferred from the real table."
    if outside := [name for name in real.column_names if name not in schema]:
        yield f"Columns of the real table that the schema does not name were not evaluated: {format_list(outside)}."
    if unmodelled := [column.name for column in schema if not column.modelled]:
        yield f"Dropped columns, ids and text were not evaluated: {format_list(unmodelled)}."
    if excluded:
        yield f"Empty columns, and columns of mostly distinct text, were not evaluated: {format_list(list(excluded))}."
    if given and (read_off := [spec.name for spec in columns if schema[spec.name].estimated is not None]):
        why = "The schema is a draft" if schema.drafted else "The schema does not declare them"
        yield f"{why}, so categories and ranges were inferred from the real table: {format_list(read_off)}."
    if wide := [spec.name for spec in columns if spec.frequent]:
        yield (
            f"Only the {MAX_FEATURES:,} most frequent real categories have a feature, the others count as unlisted:"
            f" {format_list(wide)}."
        )
    if huge := [spec.name for spec in columns if spec.scale > 1]:
        yield f"Numbers beyond {LARGE:g} were divided by a power of two: {format_list(huge)}."


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedTable:
    """One table on a layout.

    A numeric column is float64 with NaN for nulls; values outside the range are kept. A discrete column is codes: its
    categories in order, then one for nulls, then one for unlisted values; where the schema names an `unknown` category,
    unlisted values have its code instead.
    """

    layout: Layout
    columns: Mapping[str, np.ndarray]

    @cached_property
    def num_rows(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def take(self, rows: np.ndarray) -> "EncodedTable":
        """Some rows, by index or by mask."""
        return EncodedTable(self.layout, {name: values[rows] for name, values in self.columns.items()})

    def at_most(self, num_rows: int | None, *, seed: int | np.random.Generator) -> "EncodedTable":
        """At most `num_rows` rows, drawn without replacement; all, in their order, if there are no more, or if None."""
        if num_rows is None or self.num_rows <= num_rows:
            return self
        return self.take(np.random.default_rng(seed).choice(self.num_rows, num_rows, replace=False))

    def split(self, fraction: float, *, seed: int) -> tuple["EncodedTable", "EncodedTable"]:
        """Two disjoint random parts; the first holds this fraction of the rows."""
        order = np.random.default_rng(seed).permutation(self.num_rows)
        cut = round(fraction * self.num_rows)
        return self.take(np.sort(order[:cut])), self.take(np.sort(order[cut:]))

    def bin_codes(self, name: str, bins: int) -> tuple[Int[np.ndarray, " rows"], int]:
        """Small integer codes and their number: equal-width bins over the range, or the categories.

        Values outside the range fall into the first or last bin; nulls have a code of their own.
        """
        spec, values = self.layout[name], self.columns[name]
        if not spec.is_numeric:
            return values, len(spec.categories) + 2
        inner = np.linspace(spec.lower, spec.upper, bins + 1)[1:-1]
        codes = np.digitize(values, inner).astype(np.int32)
        codes[np.isnan(values)] = bins
        return codes, bins + 1

    def scale(self, name: str) -> Float[np.ndarray, " rows"]:
        """A numeric column with its range mapped to [0, 1]; nulls are 0, as is a constant column."""
        spec = self.layout[name]
        width = spec.upper - spec.lower
        with np.errstate(over="ignore"):  # a value far outside a narrow range
            return np.nan_to_num((self.columns[name] - spec.lower) / (width if width > 0 else 1.0))

    def features(self, columns: Sequence[str] | None = None) -> Float[np.ndarray, "rows f"]:
        """Numbers in [0, 1] and a null indicator; discrete columns one-hot, or one 0/1 column for two categories.

        An ordinal column is a number too: its rank.

        Unlisted values are zeros. The features depend on the layout alone, so they are the same for all tables.
        """
        specs = [self.layout[name] for name in (self.layout.names if columns is None else columns)]
        out = np.zeros((self.num_rows, sum(spec.num_features for spec in specs)), dtype=np.float32)
        at = 0
        rows = np.arange(self.num_rows)
        for spec in specs:
            values = self.columns[spec.name]
            if spec.is_numeric:
                out[:, at] = np.clip(self.scale(spec.name), 0.0, 1.0)
                if spec.has_nulls:
                    out[:, at + 1] = np.isnan(values)
            elif spec.is_ordinal:
                count = len(spec.categories)
                out[:, at] = np.where(values < count, values, 0) / (count - 1)
                if spec.has_nulls:
                    out[:, at + 1] = values == count
            elif spec.is_binary:
                out[:, at] = values == 1
            else:
                feature_of_code = np.full(len(spec.categories) + 2, -1)
                feature_of_code[spec.feature_codes] = np.arange(spec.num_features)
                feature = feature_of_code[values]
                out[rows[feature >= 0], at + feature[feature >= 0]] = 1.0
            at += spec.num_features
        return out


def _select_columns(table: pa.Table, schema: Schema, what: str) -> pa.Table:
    """The evaluated columns, read as their declared kinds. Other columns are ignored."""
    wanted = [column.name for column in schema.modelled]
    advice = "It must have the columns of the real table."
    if what == REAL_TABLE:
        advice = "Correct the schema, which names them, or use the table that it describes."
    require_columns(table, wanted, what, advice)
    return conform(table.select(wanted), schema)


def require_columns(table: pa.Table, names: Sequence[str], what: str, advice: str) -> None:
    """Refuse a table that lacks one of these columns; `advice` ends the message."""
    if absent := [name for name in names if name not in table.column_names]:
        raise SchemaError(
            f"The {what} lacks {'the column' if len(absent) == 1 else 'the columns'} {format_list(absent)}."
            f"{did_you_mean(absent[0], table.column_names)} {advice}",
            column=absent[0],
        )


def _column_spec(column: Column, values: list[pa.ChunkedArray]) -> ColumnSpec | None:
    """None: a column that cannot be evaluated."""
    has_nulls = any(pc.any(pc.is_null(part, nan_is_null=True)).as_py() for part in values)
    if column.kind in BOUNDED:
        return _numeric_spec(column, values[0], has_nulls)
    if column.kind == "boolean":
        return ColumnSpec(column.name, column.kind, (False, True), has_nulls=has_nulls)
    if column.categories is not None:
        categories = tuple(column.categories)
    else:
        distinct = pc.unique(values[0]).drop_null()
        if not len(distinct) or (len(distinct) > MANY_CATEGORIES and 2 * len(distinct) > len(values[0])):
            return None
        categories = tuple(sorted(distinct.to_pylist(), key=lambda category: (str(type(category)), category)))
    is_ordinal = column.ordinal and len(categories) > 2
    spec = ColumnSpec(column.name, column.kind, categories, has_nulls=has_nulls, is_ordinal=is_ordinal)
    if column.categories is not None and not column.closed:
        is_open = column.replacement not in categories
        spec = dataclasses.replace(spec, unknown=None if is_open else column.replacement, is_open=is_open)
    if spec.unlisted == len(categories):  # what is not listed counts as null
        has_nulls = has_nulls or any((_encode(part, spec) == len(categories)).any() for part in values)
        spec = dataclasses.replace(spec, has_nulls=has_nulls)
    return _with_frequent(spec, values[0])


def _numeric_spec(column: Column, values: pa.ChunkedArray, has_nulls: bool) -> ColumnSpec | None:
    if column.bounds is not None:
        lower, upper = bound_numbers(column)
    else:
        numbers, known = as_numbers(values, column.kind)
        inside = numbers[known & np.isfinite(numbers)]
        if not len(inside):
            return None
        lower, upper = inside.min(), inside.max()
    largest = max(abs(float(lower)), abs(float(upper)))
    scale = 1.0 if largest <= LARGE else 2.0 ** math.ceil(math.log2(largest / LARGE))
    lower, upper = float(lower) / scale, float(upper) / scale
    return ColumnSpec(column.name, column.kind, lower=lower, upper=upper, has_nulls=has_nulls, scale=scale)


def _with_frequent(spec: ColumnSpec, values: pa.ChunkedArray) -> ColumnSpec:
    """With the codes of the most frequent real categories, where not all of them can have a feature."""
    if len(spec.categories) <= MAX_FEATURES or spec.is_ordinal:
        return spec
    counts = np.bincount(_encode(values, spec), minlength=len(spec.categories))[: len(spec.categories)]
    most = np.sort(np.argsort(-counts, kind="stable")[:MAX_FEATURES])
    return dataclasses.replace(spec, frequent=tuple(most.tolist()))


def _encode(values: pa.ChunkedArray, spec: ColumnSpec) -> np.ndarray:
    if spec.is_numeric:
        numbers, known = as_numbers(values, spec.kind)
        numbers = numbers.astype(np.float64) / spec.scale
        # Infinities are kept; finite numbers beyond all ranges stay beyond them.
        numbers = np.where(np.isfinite(numbers), np.clip(numbers, -FARTHEST, FARTHEST), numbers)
        return np.where(known, numbers, np.nan)
    codec = CategoricalCodec(spec.name, spec.categories, nullable=True, default=spec.unlisted)
    return codec.encode(values)
