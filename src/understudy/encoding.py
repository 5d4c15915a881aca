"""The codec: a table to integer codes and back, both directions side by side, column by column.

Everything a codec knows is public: declared in the schema, or bought with noise. Encoding follows fixed public rules,
so no value can make it fail: numbers are clamped to their bounds, unknown categories become the declared `unknown` (or
"other", or the first), nulls take a level of their own or, where the schema excludes them, the column's default.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime

import jax
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from understudy.errors import BudgetExceeded
from understudy.privacy.counts import noisy_size
from understudy.privacy.discovery import (
    FINEST,
    FLAT,
    Binning,
    Grid,
    Histogram,
    charged_levels,
    discover_bounds,
    discover_categories,
    discover_histograms,
    largest_counts,
)
from understudy.privacy.ledger import Ledger, Plan
from understudy.privacy.rows import PrivateRows
from understudy.privacy.units import rows_within_units, unit_numbers
from understudy.schema import BOUNDED, Bound, Category, Column, Domain, Scale, Schema
from understudy.tables.casting import as_text, in_declared_type
from understudy.tables.engine import computed

OTHER = "other"
DEFAULT_SIZE = 1000  # assumed by a plan when the number of rows is neither declared nor given
STAND_IN = 10  # assumed number of codes, in plans that people read, of a column whose categories are estimated
MERGED_PART = 0.05  # fraction of the longest list that is merged per step: long lists need few steps


@dataclasses.dataclass(frozen=True)
class CategoricalCodec:
    """Codes 0 .. len(categories) - 1 in the listed order, then one for nulls if the column is nullable."""

    name: str
    categories: tuple[Category | None, ...]
    """None among them: the "other" of a bought list whose values are not text; it decodes to a null."""
    nullable: bool
    default: int
    """The code of values that are not listed."""

    @property
    def size(self) -> int:
        return len(self.categories) + self.nullable

    @property
    def extent(self) -> str:
        """In words: how many values a bought list has."""
        return f"{len(self.categories) - 1} and other"

    def encode(self, values: pa.ChunkedArray) -> Int[np.ndarray, " rows"]:
        listed, column = _comparable(self.categories, values)
        codes = pc.index_in(column, value_set=listed).combine_chunks().fill_null(self.default)
        codes = np.array(codes.to_numpy(zero_copy_only=False), dtype=np.int32)
        missing = pc.is_null(column, nan_is_null=True).combine_chunks().to_numpy(zero_copy_only=False)
        codes[missing] = len(self.categories) if self.nullable else self.default
        return codes

    def decode(self, codes: Int[np.ndarray, " rows"], *, generator: np.random.Generator) -> pa.Array:
        levels = pa.array([*self.categories, None] if self.nullable else list(self.categories))
        return levels.take(pa.array(codes))

    def to_dict(self) -> dict[str, object]:
        return {
            "type": "categorical",
            "name": self.name,
            "categories": list(self.categories),
            "nullable": self.nullable,
            "default": self.default,
        }

    @classmethod
    def from_dict(cls, content: Mapping) -> "CategoricalCodec":
        return cls(content["name"], tuple(content["categories"]), content["nullable"], content["default"])


@dataclasses.dataclass(frozen=True)
class NumericCodec:
    """Codes are bins: consecutive runs of a fine histogram; one more code for nulls if the column is nullable.

    Inside a bin, decoding follows the noisy fine histogram: a run by its mass, then evenly within the run.
    """

    name: str
    kind: str
    histogram: Histogram
    first_run: np.ndarray
    """For each bin the first of its runs, and at the end the number of runs."""
    nullable: bool

    @property
    def num_bins(self) -> int:
        return len(self.first_run) - 1

    @property
    def size(self) -> int:
        return self.num_bins + self.nullable

    @property
    def extent(self) -> str:
        """In words: from where to where."""
        ends = np.asarray([self.histogram.grid.lower, self.histogram.grid.upper])
        lower, upper = _from_ticks(ends, np.zeros(2, dtype=bool), self.kind).to_pylist()
        return f"{lower} to {upper}"

    def encode(self, values: pa.ChunkedArray) -> Int[np.ndarray, " rows"]:
        ticks, known = as_ticks(values, self.kind)
        cells = self.histogram.grid.cells(ticks)
        runs = np.searchsorted(self.histogram.starts, cells, side="right") - 1
        bins = np.searchsorted(self.first_run, np.maximum(runs, 0), side="right") - 1
        return np.where(known, bins, self.num_bins if self.nullable else 0).astype(np.int32)

    def places(self, values: pa.ChunkedArray) -> Float[np.ndarray, " rows"]:
        """Where each value lies between the bounds, from 0 to 1; NaN for nulls, the lower bound where none may be."""
        ticks, known = as_ticks(values, self.kind)
        places = _places_of(self.histogram.grid, np.where(known, ticks, self.histogram.grid.lower))
        return np.where(known, places, np.nan) if self.nullable else places

    @property
    def scale(self) -> Scale:
        """What is public about the places."""
        grid, histogram = self.histogram.grid, self.histogram
        cell = grid.width / _num_values(grid) if grid.integral else 1 / grid.num_cells
        edges = np.minimum(np.r_[histogram.starts, histogram.stops[-1]] * cell, 1.0)
        edges[0], edges[-1] = 0.0, 1.0
        return Scale(
            run_edges=tuple(edges.tolist()),
            run_masses=tuple(histogram.masses.tolist()),
            first_run=tuple(self.first_run.tolist()),
            whole=_num_values(grid) if grid.integral else None,
            nullable=self.nullable,
        )

    def decode(
        self,
        codes: Int[np.ndarray, " rows"],
        *,
        generator: np.random.Generator,
        places: Float[np.ndarray, " rows"] | None = None,
    ) -> pa.Array:
        """Values: at their places where these are known, else drawn inside their bins."""
        null = codes >= self.num_bins
        if places is not None and not np.isnan(places[~null]).any():
            return _from_ticks(_ticks_at(self.histogram.grid, np.where(null, 0.0, places)), null, self.kind)
        bins = np.where(null, 0, codes)
        # A little mass for every cell, so that a bin whose runs are all empty still decodes evenly.
        masses = self.histogram.masses + 1e-9 * (self.histogram.stops - self.histogram.starts)
        cumulative = np.r_[0.0, np.cumsum(masses)]
        low, high = cumulative[self.first_run[bins]], cumulative[self.first_run[bins + 1]]
        runs = np.searchsorted(cumulative, low + generator.random(len(codes)) * (high - low), side="right") - 1
        runs = np.clip(runs, self.first_run[bins], self.first_run[bins + 1] - 1)
        ticks = _ticks_within(
            self.histogram.grid, self.histogram.starts[runs], self.histogram.stops[runs], generator=generator
        )
        return _from_ticks(ticks, null, self.kind)

    def bin_edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Least and greatest tick of each bin."""
        grid, starts = self.histogram.grid, self.histogram.starts
        stops = np.r_[starts[self.first_run[1:-1]], self.histogram.stops[-1]]
        lower = [grid.lower + int(start) * grid.width for start in starts[self.first_run[:-1]]]
        upper = [grid.lower + int(stop) * grid.width - (1 if grid.integral else 0) for stop in stops]
        upper = [min(value, grid.upper) for value in upper]
        kind = np.int64 if grid.integral else np.float64
        return np.asarray(lower, dtype=kind), np.asarray(upper, dtype=kind)

    def bins_that_can(self, operator: str | None, constants: Sequence[object]) -> Bool[np.ndarray, " size"] | None:
        """Which codes hold a value that meets `column operator constants`; None where that cannot be told.

        A bin is ruled out only if none of its values can meet the comparison, and nulls only if they cannot.
        """
        if operator in ("is null", "is not null"):
            codes = np.arange(self.size)
            return (codes >= self.num_bins) if operator == "is null" else (codes < self.num_bins)
        ticks = [_comparable_tick(constant, self.kind) for constant in constants]
        if not ticks or any(tick is None for tick in ticks):
            return None
        lower, upper = self.bin_edges()
        meets = {
            "<": lambda: lower < ticks[0],
            "<=": lambda: lower <= ticks[0],
            ">": lambda: upper > ticks[0],
            ">=": lambda: upper >= ticks[0],
            "=": lambda: (lower <= ticks[0]) & (ticks[0] <= upper),
            "in": lambda: np.any([(lower <= tick) & (tick <= upper) for tick in ticks], axis=0),
            "between": lambda: (upper >= ticks[0]) & (lower <= ticks[-1]),
        }.get(operator or "")
        return None if meets is None else np.r_[meets(), np.zeros(int(self.nullable), dtype=bool)]

    def to_dict(self) -> dict[str, object]:
        grid = self.histogram.grid
        return {
            "type": "numeric",
            "name": self.name,
            "kind": self.kind,
            "lower": grid.lower,
            "upper": grid.upper,
            "num_cells": grid.num_cells,
            "width": grid.width,
            "starts": self.histogram.starts.tolist(),
            "stops": self.histogram.stops.tolist(),
            "masses": [float(f"{mass:.6g}") for mass in self.histogram.masses],
            "first_run": self.first_run.tolist(),
            "nullable": self.nullable,
        }

    @classmethod
    def from_dict(cls, content: Mapping) -> "NumericCodec":
        integral = content["kind"] != "real"
        grid = Grid(content["lower"], content["upper"], integral, content["num_cells"], content["width"])
        runs = [np.asarray(content[key], dtype=np.int64) for key in ("starts", "stops")]
        histogram = Histogram(grid, runs[0], runs[1], np.asarray(content["masses"], dtype=float))
        first_run = np.asarray(content["first_run"], dtype=np.int64)
        return cls(content["name"], content["kind"], histogram, first_run, content["nullable"])


ColumnCodec = CategoricalCodec | NumericCodec


@dataclasses.dataclass(frozen=True)
class Codec:
    """All modelled columns of a schema, in its order."""

    columns: tuple[ColumnCodec, ...]
    schema: Schema
    num_rows: int
    """The public number of rows: declared, or bought."""

    @property
    def domain(self) -> Domain:
        return Domain(
            names=tuple(column.name for column in self.columns),
            sizes=tuple(column.size for column in self.columns),
            num_rows=self.num_rows,
            target=self.schema.target,
            numbers=tuple(column.name for column in self.columns if isinstance(column, NumericCodec)),
            declared_rows=self.schema.rows,
            bought=_bought_sizes(self.schema),
        )

    def encode(self, table: pa.Table) -> Int[np.ndarray, "rows columns"]:
        """Codes of each row, by the public rules at the head of this file."""
        codes = np.empty((table.num_rows, len(self.columns)), dtype=np.int32)
        for index, column in enumerate(self.columns):
            codes[:, index] = column.encode(table.column(column.name))
        return codes

    def places(self, table: pa.Table) -> Float[np.ndarray, "rows columns"]:
        """Where the numbers of each row lie between their bounds, from 0 to 1; NaN for nulls and other columns."""
        places = np.full((table.num_rows, len(self.columns)), np.nan)
        for index, column in enumerate(self.columns):
            if isinstance(column, NumericCodec):
                places[:, index] = column.places(table.column(column.name))
        return places

    @property
    def scales(self) -> tuple[Scale | None, ...]:
        return tuple(column.scale if isinstance(column, NumericCodec) else None for column in self.columns)

    def decode(
        self,
        codes: Int[np.ndarray, "rows columns"],
        places: Float[np.ndarray, "rows columns"] | None = None,
        *,
        key: PRNGKeyArray,
    ) -> pa.Table:
        """A table of the schema's columns: numbers at their places or drawn inside bins, fresh ids, no text."""
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        arrays = {}
        for index, column in enumerate(self.columns):
            if places is None or isinstance(column, CategoricalCodec):
                arrays[column.name] = column.decode(codes[:, index], generator=generator)
            else:
                arrays[column.name] = column.decode(codes[:, index], generator=generator, places=places[:, index])
        for declared in self.schema.columns:
            if declared.kind == "id" and not declared.drop:
                arrays[declared.name] = pa.array(np.arange(1, len(codes) + 1))
        return pa.table({name: arrays[name] for name in self.schema.names if name in arrays})

    def one_hot(self, codes: Int[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows features"]:
        """One 0/1 feature for each code of each column."""
        sizes = self.domain.sizes
        features = np.zeros((len(codes), sum(sizes)), dtype=np.float32)
        offsets = np.r_[0, np.cumsum(sizes)[:-1]]
        np.put_along_axis(features, codes + offsets, 1.0, axis=1)
        return features

    def from_one_hot(self, features: Float[np.ndarray, "rows features"]) -> Int[np.ndarray, "rows columns"]:
        """The largest feature of each column's block."""
        blocks = np.split(features, np.cumsum(self.domain.sizes)[:-1], axis=1)
        return np.stack([block.argmax(axis=1) for block in blocks], axis=1).astype(np.int32)

    def scaled(self, codes: Int[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows columns"]:
        """Each column's code as a number in [-1, 1]: the middle of its share of the interval."""
        sizes = np.asarray(self.domain.sizes)
        return ((2 * codes + 1) / sizes - 1).astype(np.float32)

    def from_scaled(self, features: Float[np.ndarray, "rows columns"]) -> Int[np.ndarray, "rows columns"]:
        """The code whose share of [-1, 1] holds the number."""
        sizes = np.asarray(self.domain.sizes)
        return np.clip(np.floor((features + 1) / 2 * sizes), 0, sizes - 1).astype(np.int32)

    def to_dict(self) -> dict[str, object]:
        columns = [column.to_dict() for column in self.columns]
        return {"columns": columns, "schema": self.schema.to_dict(), "num_rows": self.num_rows}

    @classmethod
    def from_dict(cls, content: Mapping) -> "Codec":
        types: dict[str, type[ColumnCodec]] = {"categorical": CategoricalCodec, "numeric": NumericCodec}
        columns = tuple(types[column["type"]].from_dict(column) for column in content["columns"])
        return cls(columns, Schema.from_dict(content["schema"]), content["num_rows"])


def assumed_domain(schema: Schema, binning: Binning, *, num_rows: int | None = None) -> Domain:
    """The domain as far as it is public before any purchase: for plans, which read no data.

    Sizes that will be estimated privately are placeholders, for plans that people read. No privacy cost depends on
    them, and no refusal does: refusals are decided by the domain's `largest` sizes.
    """
    most_sizes = _most_sizes(schema, binning)
    sizes = [
        min(size, STAND_IN) if column.bought == "categories" else size
        for column, size in zip(schema.modelled, most_sizes, strict=True)
    ]
    rows = schema.rows or num_rows or DEFAULT_SIZE
    names = tuple(column.name for column in schema.modelled)
    numbers = tuple(column.name for column in schema.modelled if column.kind in BOUNDED)
    return Domain(
        names=names,
        sizes=tuple(sizes),
        num_rows=rows,
        target=schema.target,
        numbers=numbers,
        declared_rows=schema.rows,
        bought=_bought_sizes(schema),
        most_sizes=most_sizes,
    )


def _most_sizes(schema: Schema, binning: Binning) -> tuple[int, ...]:
    """The largest number of codes that each modelled column can have, whatever is estimated."""
    sizes = []
    for column in schema.modelled:
        if column.kind == "boolean":
            size = 2
        elif column.kind == "categorical":
            size = binning.max_categories + 1 if column.categories is None else len(column.categories)  # with "other"
        else:
            size = binning.max_bins
        sizes.append(size + column.nullable)
    return tuple(sizes)


def _bought_sizes(schema: Schema) -> tuple[str, ...]:
    """Columns whose categories are bought."""
    return tuple(column.name for column in schema.modelled if column.bought == "categories")


TooLarge = Callable[[Domain], tuple[str, ...]]
"""The columns of a domain that together have too many codes for a method; empty: the method can hold them all."""


def fit_codec(
    table: pa.Table, schema: Schema, plan: Plan, ledger: Ledger, binning: Binning, too_large: TooLarge | None = None
) -> tuple[Codec, PrivateRows]:
    """Buys what the schema leaves open, then encodes the rows that may be used.

    Where estimated lists are `too_large` for a method, their rarest categories become "other" too.

    Formal guarantee: the privacy cost of `plan`. Encoding itself works row by row by public rules and releases nothing;
    merging depends only on noisy counts and public limits.
    """
    if ledger.max_rows_per_unit < schema.max_rows_per_unit:
        raise BudgetExceeded("The ledger is set up for fewer rows per unit than the schema allows.")
    units = None
    if schema.unit is not None:
        kept = rows_within_units(table.column(schema.unit), schema.max_rows_per_unit)
        table = table.filter(pa.array(kept))
        units = unit_numbers(table.column(schema.unit))
    num_rows = noisy_size(table, plan["size"], ledger) if schema.rows is None else schema.rows
    categories = _bought_categories(table, schema, plan, ledger, binning)
    histograms = _histograms(table, schema, plan, ledger, binning, num_rows=num_rows)

    def codec_of(categories: Mapping[str, Collection[Category]]) -> Codec:
        columns = tuple(_column_codec(column, categories, histograms, binning) for column in schema.modelled)
        return Codec(columns, schema, num_rows)

    if too_large is not None:
        categories = merge_rarest(codec_of(categories).domain, categories, too_large)
    codec = codec_of(categories)
    rows = PrivateRows(
        codec.encode(table),
        dataclasses.replace(codec.domain, most_sizes=_most_sizes(schema, binning)),
        max_rows_per_unit=schema.max_rows_per_unit,
        units=units,
        positions=lambda: codec.places(table),
        scales=codec.scales,
    )
    return codec, rows


def merge_rarest(
    domain: Domain, noisy_counts: Mapping[str, dict[Category, int]], too_large: TooLarge
) -> dict[str, dict[Category, int]]:
    """Merges as few estimated categories into "other" as a method needs to hold the lists.

    In each step the longest list among the columns that are too large loses its rarest categories; one always stays.
    Post-processing of noisy counts.
    """
    kept = dict(noisy_counts)
    while longest := max(
        (n for n in too_large(domain) if len(kept.get(n, ())) > 1), key=lambda n: len(kept[n]), default=""
    ):
        fewer = min(len(kept[longest]) - 1, math.floor((1 - MERGED_PART) * len(kept[longest])))
        gone, kept[longest] = len(kept[longest]) - fewer, largest_counts(kept[longest], fewer)
        sizes = [size - gone * (name == longest) for name, size in zip(domain.names, domain.sizes, strict=True)]
        domain = dataclasses.replace(domain, sizes=tuple(sizes))
    return kept


def _bought_categories(
    table: pa.Table, schema: Schema, plan: Plan, ledger: Ledger, binning: Binning
) -> dict[str, dict[Category, int]]:
    if "categories" not in plan:
        return {}
    values = {name: _decoded(table.column(name)) for name in plan["categories"].columns}
    return discover_categories(values, plan["categories"], ledger, most=binning.max_categories)


def _histograms(
    table: pa.Table, schema: Schema, plan: Plan, ledger: Ledger, binning: Binning, *, num_rows: int
) -> dict[str, Histogram]:
    numeric = [column for column in schema.modelled if column.kind in BOUNDED]
    exact_values = {}
    for column in numeric:
        ticks, known = as_ticks(table.column(column.name), column.kind)
        exact_values[column.name] = ticks[known]
    bounds = {column.name: bound_ticks(column) for column in numeric if column.bounds is not None}
    if "bounds" in plan:
        bought = plan["bounds"].columns
        kinds = {column.name: column.kind for column in numeric}
        values = {name: exact_values[name] for name in bought}
        bounds |= discover_bounds(values, kinds, plan["bounds"], ledger)
    finest = FLAT if binning.bins == "equal" else FINEST
    grids = {
        column.name: Grid.over(
            *bounds[column.name], integral=column.kind != "real", finest=finest, decimals=column.decimals
        )
        for column in numeric
    }
    if "histograms" not in plan:
        return {name: Histogram.flat(grid, num_cells=binning.max_bins) for name, grid in grids.items()}
    levels = {column.name: charged_levels(column, binning) for column in numeric}
    return discover_histograms(exact_values, grids, levels, plan["histograms"], ledger, num_rows=num_rows)


def _column_codec(
    column: Column,
    categories: Mapping[str, Collection[Category]],
    histograms: Mapping[str, Histogram],
    binning: Binning,
) -> ColumnCodec:
    if column.kind in BOUNDED:
        histogram = histograms[column.name]
        return NumericCodec(
            column.name, column.kind, histogram, near_equal_masses(histogram, binning.max_bins), column.nullable
        )
    if column.kind == "boolean":
        return CategoricalCodec(column.name, (False, True), column.nullable, 0)
    if column.categories is not None:
        default = 0 if column.unknown is None else column.categories.index(column.unknown)
        return CategoricalCodec(column.name, column.categories, column.nullable, default)
    found = list(categories[column.name])
    listed = (*found, _name_of_other(found))
    return CategoricalCodec(column.name, listed, column.nullable, len(found))


def _name_of_other(found: Sequence[Category]) -> Category | None:
    """ "other", or with as many underscores as it takes; a null where the list is not text."""
    if found and not isinstance(found[0], str):
        return None
    name = OTHER
    while name in found:
        name += "_"
    return name


def near_equal_masses(histogram: Histogram, max_bins: int) -> Int[np.ndarray, " edges"]:
    """Groups neighbouring runs into at most `max_bins` bins of near-equal mass; spikes keep a bin of their own.

    Returns the first run of each bin, and the number of runs at the end. Post-processing of noisy masses.
    """
    masses = histogram.masses
    density = masses / (histogram.stops - histogram.starts)
    beside = np.maximum(np.r_[0.0, density[:-1]], np.r_[density[1:], 0.0])
    target = 1 / max_bins
    while True:
        alone = (masses >= target) | ((masses >= target / 2) & (density > 5 * beside))
        edges = _greedy_edges(masses, alone, target)
        if len(edges) - 1 <= max_bins:
            return np.asarray(edges, dtype=np.int64)
        target *= 1.05


def _greedy_edges(masses: np.ndarray, alone: np.ndarray, target: float) -> list[int]:
    edges, filled = [0], 0.0
    for run, (mass, single) in enumerate(zip(masses, alone, strict=True)):
        if run > edges[-1] and (single or filled + mass / 2 >= target):
            edges.append(run)
            filled = 0.0
        filled = math.inf if single else filled + mass
    edges.append(len(masses))
    return edges


def as_ticks(values: pa.ChunkedArray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of a bounded column: floats for reals, else whole numbers (days, microseconds); and which are known.

    Infinities stay, to be clamped; what is no number is unknown. Whole numbers are rounded, never refused.
    """
    column = _numeric_arrow(_decoded(values), kind)
    known = pc.is_valid(column).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column.type):
        numbers = np.array(column.fill_null(0.0).to_numpy(zero_copy_only=False), dtype=np.float64)
        known = known & ~np.isnan(numbers)
        numbers[~known] = 0.0
        if kind == "real":
            return numbers, known
        # 2^63 itself is not an int64; the nearest float below it is.
        limited = np.clip(np.nan_to_num(np.rint(numbers), nan=0.0), -(2.0**63), np.nextafter(2.0**63, 0))
        return limited.astype(np.int64), known
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    if kind == "real":
        return numbers.astype(np.float64), known
    if numbers.dtype == np.uint64:
        numbers = np.minimum(numbers, np.uint64(2**63 - 1))
    return numbers.astype(np.int64), known


def _numeric_arrow(column: pa.Array, kind: str) -> pa.Array:
    """The column as Arrow integers or floats; nulls where it cannot be read as its declared kind."""
    kind_type = {
        "date": pa.date32(),
        "datetime": pa.timestamp("us", tz=getattr(column.type, "tz", None)),
    }.get(kind)
    if kind_type is not None:
        if not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
            column = _read_text(column, kind_type)
        else:
            column = column.cast(kind_type, safe=False)
        return column.cast(pa.int32()).cast(pa.int64()) if kind == "date" else column.cast(pa.int64())
    if pa.types.is_boolean(column.type):
        return column.cast(pa.int8())
    if pa.types.is_integer(column.type) or (pa.types.is_floating(column.type) and column.type != pa.float16()):
        return column.cast(pa.float64()) if pa.types.is_floating(column.type) else column
    if pa.types.is_decimal(column.type) or column.type == pa.float16():
        return column.cast(pa.float64(), safe=False)
    return _read_text(column, pa.float64() if kind == "real" else pa.int64())


def _read_text(column: pa.Array, kind_type: pa.DataType) -> pa.Array:
    """Text read as numbers or dates; what cannot be read becomes a null, so that no value raises."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return pa.nulls(len(column), kind_type)
    names = {pa.float64(): "DOUBLE", pa.int64(): "BIGINT", pa.date32(): "DATE"}
    return computed(f"TRY_CAST(v AS {names.get(kind_type, 'TIMESTAMP')})", column).cast(kind_type)


def _ticks_within(grid: Grid, starts: np.ndarray, stops: np.ndarray, *, generator: np.random.Generator) -> np.ndarray:
    """One tick drawn evenly from each run of cells."""
    if not grid.integral:
        place = starts + generator.random(len(starts)) * (stops - starts)
        if math.isfinite(grid.upper - grid.lower):
            return np.clip(grid.lower + place * grid.width, grid.lower, grid.upper)
        return np.clip((grid.lower / grid.width + place) * grid.width, grid.lower, grid.upper)
    # Ticks may lie anywhere in 64 bits, so offsets from the lower bound are unsigned.
    width = np.uint64(grid.width)
    span = np.uint64(int(grid.upper) - int(grid.lower))
    first = starts.astype(np.uint64) * width
    last = np.minimum(stops.astype(np.uint64) * width - np.uint64(1), span)
    offset = generator.integers(first, last, endpoint=True, dtype=np.uint64)
    return (np.asarray(grid.lower, dtype=np.int64).view(np.uint64) + offset).view(np.int64)


def _num_values(grid: Grid) -> int:
    """How many whole numbers lie between the bounds."""
    return int(grid.upper) - int(grid.lower) + 1


def _places_of(grid: Grid, ticks: np.ndarray) -> Float[np.ndarray, " rows"]:
    """From 0 to 1, clamped; whole numbers stand in the middle of their shares."""
    if grid.integral:
        clamped = np.clip(ticks, np.int64(grid.lower), np.int64(grid.upper))
        # Unsigned, as in `Grid.cells`: the difference may pass 2^63.
        offset = clamped.astype(np.int64).view(np.uint64) - np.asarray(grid.lower, dtype=np.int64).view(np.uint64)
        return (offset.astype(np.float64) + 0.5) / _num_values(grid)
    half_length = grid.upper / 2 - grid.lower / 2  # halved first: the difference may overflow
    along = np.clip(ticks, grid.lower, grid.upper) / 2 - grid.lower / 2
    return along / half_length if half_length else np.zeros(len(ticks))


def _ticks_at(grid: Grid, places: Float[np.ndarray, " rows"]) -> np.ndarray:
    """The reverse of `_places_of`."""
    if grid.integral:
        along = np.clip(places, 0.0, 1.0 - 2.0**-53) * float(_num_values(grid))
        offset = np.minimum(np.floor(along).astype(np.uint64), np.uint64(_num_values(grid) - 1))
        return (np.asarray(grid.lower, dtype=np.int64).view(np.uint64) + offset).view(np.int64)
    return np.clip(grid.lower * (1 - places) + grid.upper * places, grid.lower, grid.upper)


def _from_ticks(ticks: np.ndarray, null: np.ndarray, kind: str) -> pa.Array:
    if kind == "date":
        return pa.array(ticks.astype(np.int32), mask=null).cast(pa.date32())
    array = pa.array(ticks, mask=null)
    return array.cast(pa.timestamp("us")) if kind == "datetime" else array


def bound_ticks(column: Column) -> tuple[int | float, int | float]:
    assert column.bounds is not None
    lower, upper = (_tick(bound) for bound in column.bounds)
    return lower, upper


def _tick(bound: Bound) -> int | float:
    if isinstance(bound, datetime):
        return pa.scalar(bound).cast(pa.timestamp("us", tz="UTC" if bound.tzinfo else None)).cast(pa.int64()).as_py()
    if isinstance(bound, date):
        return (bound - date(1970, 1, 1)).days
    return bound


def _comparable_tick(constant: object, kind: str) -> int | float | None:
    """A constant of a condition on the scale of the column's ticks, if it is of the column's kind."""
    number = isinstance(constant, int | float) and not isinstance(constant, bool)
    if kind in ("integer", "real"):
        return constant if number else None  # type: ignore[return-value]
    if kind == "date" and isinstance(constant, date) and not isinstance(constant, datetime):
        return _tick(constant)
    return _tick(constant) if kind == "datetime" and isinstance(constant, datetime) and not constant.tzinfo else None


def _decoded(values: pa.ChunkedArray) -> pa.Array:
    """One plain array: chunks joined, dictionaries resolved."""
    column = values.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # an empty chunked array stays one
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    plain = {pa.string_view(): pa.string(), pa.float16(): pa.float32()}.get(column.type)  # few kernels know these two
    return column if plain is None else column.cast(plain)


def _comparable(categories: Sequence[Category | None], values: pa.ChunkedArray) -> tuple[pa.Array, pa.ChunkedArray]:
    """The listed categories and the column in one Arrow type, which follows from both types and from no value of a row.

    Numbers are compared as numbers of the column's type where that holds the list, booleans as booleans, and all else
    as texts, in which 1, 1.0 and "1" are the same.
    """
    column = _decoded(values)
    listed = pa.array(list(categories))
    held = column.type
    if pa.types.is_boolean(listed.type) and not pa.types.is_boolean(held):
        truth = Column(name="", kind="boolean")
        return listed, in_declared_type(pa.chunked_array([column]), truth)
    if pa.types.is_floating(held) and (pa.types.is_floating(listed.type) or pa.types.is_integer(listed.type)):
        return listed.cast(held, safe=False), pa.chunked_array([column])
    if pa.types.is_integer(held) and pa.types.is_integer(listed.type):
        with contextlib.suppress(pa.ArrowInvalid):
            return listed.cast(held), pa.chunked_array([column])
    if held != listed.type or not (pa.types.is_string(held) or pa.types.is_boolean(held)):
        listed, column = _as_text(listed), _as_text(column)
    return listed, pa.chunked_array([column])


def _as_text(column: pa.Array) -> pa.Array:
    """Each value as text by itself; nulls for types that have no text, whatever the values."""
    try:
        return as_text(pa.chunked_array([column])).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.nulls(len(column), pa.string())
