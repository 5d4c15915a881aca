"""Fits a codec: estimates privately what the schema leaves open, then encodes the rows that may be used."""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from understudy.encoding.arrow import as_numbers, bound_numbers, special_numbers
from understudy.encoding.codec import Codec, estimated_columns
from understudy.encoding.columns import CategoricalCodec, ColumnCodec, NumericCodec
from understudy.encoding.reexpression import Limits, reexpress
from understudy.errors import BudgetExceeded
from understudy.privacy.accounting.events import DiscreteGaussian
from understudy.privacy.accounting.ledger import Ledger, Plan
from understudy.privacy.gradients.charges import event_of
from understudy.privacy.mechanisms.counts import noisy_size
from understudy.privacy.mechanisms.discovery import (
    SPLIT_AT,
    Binning,
    charged_levels,
    discover_bounds,
    discover_categories,
    discover_histograms,
    in_one_pass,
    largest_counts,
    rounded,
)
from understudy.privacy.mechanisms.rows_per_unit import noisy_rows_per_unit, num_bins, to_probabilities
from understudy.privacy.rows.rows import PrivateRows
from understudy.privacy.rows.table import (
    PrivateTable,
    convert_columns,
    convert_rows,
    encode_rows,
    keep_rows,
    limit_units,
    reserve_scratch,
)
from understudy.rules.comparison import plain_array
from understudy.schema import BOUNDED, OTHER, Category, Column, Domain, Schema
from understudy.schema.grid import FINEST, FLAT, Grid, Histogram

DEFAULT_SIZE = 1000  # assumed by a plan when the number of rows is neither declared nor given
STAND_IN = 10  # assumed number of codes, in plans that people read, of a column whose categories are estimated
MAP_CELLS = 2**15  # the finest cells of a location: fewer than of a number, since its levels serve two dimensions
MERGED_PART = 0.05  # fraction of the longest list that is merged per step: long lists need few steps


def assumed_domain(schema: Schema, binning: Binning, *, num_rows: int | None = None) -> Domain:
    """The domain as far as it is public before any query: for plans, which read no data.

    Sizes that will be estimated privately are placeholders, for plans that people read. No privacy cost depends on
    them, and no refusal does: refusals are decided by the domain's `largest` sizes.
    """
    schema = reexpress(schema).modelled
    max_sizes = _max_sizes(schema, binning)
    sizes = [
        min(size, STAND_IN) if column.estimated == "categories" else size
        for column, size in zip(schema.modelled, max_sizes, strict=True)
    ]
    rows = schema.rows or num_rows or DEFAULT_SIZE
    names = tuple(column.name for column in schema.modelled)
    numbers = tuple(column.name for column in schema.modelled if column.kind in BOUNDED)
    return Domain(
        names=names,
        sizes=tuple(sizes),
        num_rows=rows,
        target=schema.target,
        numeric=numbers,
        declared_rows=schema.rows,
        estimated=estimated_columns(schema),
        max_sizes=max_sizes,
    )


def _max_sizes(schema: Schema, binning: Binning) -> tuple[int, ...]:
    """The largest number of codes that each modelled column can have, whatever is estimated."""
    sizes = []
    for column in schema.modelled:
        if column.kind == "boolean":
            size = 2
        elif column.kind == "categorical":
            size = binning.max_categories + 1 if column.listed is None else len(column.listed)  # with "other"
        else:
            size = 2 if column.is_two_integers else binning.max_bins + 2 * len(column.special or ())
        sizes.append(size + column.nullable)
    return tuple(sizes)


TooLarge = Callable[[Domain], tuple[str, ...]]
"""The columns of a domain that together have too many codes for a method; empty: the method can hold them all."""


def fit_codec(
    table: PrivateTable, schema: Schema, plan: Plan, ledger: Ledger, binning: Binning, too_large: TooLarge | None = None
) -> tuple[Codec, PrivateRows]:
    """Estimates privately what the schema leaves open, then encodes the rows that may be used.

    Where estimated lists are `too_large` for a method, their rarest categories become "other" too.

    Formal guarantee: the privacy cost of `plan`. Encoding itself works row by row by public rules and releases nothing;
    merging depends only on noisy counts and public limits. Rows that break a rule of the schema are moved or left out
    by public rules, each row by itself, so a unit has no more rows than before.
    """
    if ledger.max_rows_per_unit < schema.max_rows_per_unit:
        raise BudgetExceeded("The ledger is set up for fewer rows per unit than the schema allows.")
    reexpression = reexpress(schema)
    limits = reexpression.limits
    reserve_scratch(table, _max_sizes(reexpression.modelled, binning))
    if schema.rules:
        table = keep_rows(table, reexpression.kept_rows)
    names = [column.name for column in schema.modelled]
    table = limit_units(table, schema.unit, names, schema.max_rows_per_unit)
    modelled = reexpression.modelled
    if not reexpression.is_identity:
        table = convert_rows(table, reexpression.express)
    num_rows = noisy_size(table, plan["size"], ledger) if schema.rows is None else schema.rows
    numeric = [column for column in modelled.modelled if column.kind in BOUNDED]
    categories, bounds = _estimate_domains(table, numeric, plan, ledger, binning)
    bounds = {name: move_inside(ends, limits.get(name, (None, None))) for name, ends in bounds.items()}
    bounds |= {column.name: bound_numbers(column) for column in numeric if column.bounds is not None}
    bounds = {
        column.name: (min(*bounds[column.name], *special), max(*bounds[column.name], *special))
        for column in numeric
        for special in [special_numbers(column)]
    }
    histograms = _histograms(
        table, numeric, bounds, plan, ledger, binning, num_rows=num_rows, curves=reexpression.curves
    )
    rows_per_unit: tuple[float, ...] = ()
    if "rows_per_unit" in plan:
        noisy_sizes = noisy_rows_per_unit(table, num_bins(schema), plan["rows_per_unit"], ledger)
        rows_per_unit = tuple(to_probabilities(noisy_sizes).tolist())

    def codec_of(categories: Mapping[str, Collection[Category]]) -> Codec:
        columns = tuple(_column_codec(column, categories, histograms, binning) for column in modelled.modelled)
        return Codec(columns, schema, num_rows, rows_per_unit)

    if too_large is not None:
        domain = dataclasses.replace(codec_of(categories).domain, zeros=())  # which belong to the final codes
        categories = merge_rarest(domain, categories, too_large)
    listed = {name: sum(counts.values()) for name, counts in categories.items()}
    unlisted = tuple(name for name, noisy in listed.items() if noisy < num_rows / 2)
    codec = dataclasses.replace(codec_of(categories), unlisted=unlisted)
    rows = encode_rows(
        table,
        codec.encode_modelled,
        codec.positions_modelled,
        dataclasses.replace(codec.domain, max_sizes=_max_sizes(modelled, binning)),
        max_rows_per_unit=schema.max_rows_per_unit,
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


def _estimate_domains(
    table: PrivateTable, numeric: Sequence[Column], plan: Plan, ledger: Ledger, binning: Binning
) -> tuple[dict[str, dict[Category, int]], dict[str, tuple[int | float, int | float]]]:
    """The categories and bounds that the schema leaves open, in one pass over the rows."""
    kinds = {column.name: column.kind for column in numeric}
    listed, bounded = (plan[key].columns if key in plan else () for key in ("categories", "bounds"))
    functions = dict.fromkeys(listed, plain_array) | _numbers_of([c for c in numeric if c.name in bounded])
    columns = convert_columns(table, functions)
    queries = (
        discover_categories.start(columns.only(listed), plan["categories"], ledger, most=binning.max_categories)
        if listed
        else None,
        discover_bounds.start(columns.only(bounded), kinds, plan["bounds"], ledger) if bounded else None,
    )
    categories, bounds = in_one_pass(queries)
    return categories or {}, bounds or {}


def _numbers_of(numeric: Sequence[Column]) -> dict[str, Callable[[pa.ChunkedArray], Any]]:
    return {column.name: functools.partial(_known_numbers, kind=column.kind) for column in numeric}


def _histograms(
    table: PrivateTable,
    numeric: Sequence[Column],
    bounds: Mapping[str, tuple[int | float, int | float]],
    plan: Plan,
    ledger: Ledger,
    binning: Binning,
    *,
    num_rows: int,
    curves: Collection[str] = (),
) -> dict[str, Histogram]:
    grids = _grids(numeric, bounds, binning, curves)
    if "histograms" not in plan:
        return {name: Histogram.flat(grid, num_bins=binning.max_bins) for name, grid in grids.items()}
    # Estimated bounds may turn out to span two integers: what was charged for them is then not queried.
    two = {name: Histogram.flat(grid, num_bins=2) for name, grid in grids.items() if grid.is_two_integers}
    levels = {column.name: charged_levels(column, binning) for column in numeric if column.name not in two}
    queried = convert_columns(table, _numbers_of([column for column in numeric if column.name in levels]))
    complete = [column.name for column in numeric if not column.nullable]
    found = discover_histograms(
        queried, grids, levels, plan["histograms"], ledger, num_rows=num_rows, complete=complete
    )
    least = SPLIT_AT * event_of(plan["histograms"], DiscreteGaussian).stddev / num_rows
    return two | {name: divide_coarse(each, binning.max_bins, least) for name, each in found.items()}


def divide_coarse(histogram: Histogram, max_bins: int, least: float) -> Histogram:
    """Cuts wide ranges into parts with at least this mass and at most that of a bin: methods may then measure them.

    Where the tree could tell no more, since a part may hold too few rows to stand out, a marginal often can.
    Post-processing of noisy masses.
    """
    if histogram.grid.equal:
        return histogram
    parts = np.where(histogram.is_single, 1, np.floor(histogram.masses / max(least, 1 / (2 * max_bins) / 8)))
    divided = histogram.divided(np.clip(parts, 1, max_bins).astype(np.int64))
    return dataclasses.replace(divided, masses=rounded(divided.masses))


def _grids(
    numeric: Sequence[Column],
    bounds: Mapping[str, tuple[int | float, int | float]],
    binning: Binning,
    curves: Collection[str],
) -> dict[str, Grid]:
    finest = FLAT if binning.bins == "equal" else FINEST
    grids = {}
    for column in numeric:
        is_curve = column.name in curves
        parts = min(finest, MAP_CELLS) if is_curve else finest
        equal = is_curve or binning.bins == "equal"
        grids[column.name] = Grid(*bounds[column.name], column.kind, column.decimals, parts, equal)
    return grids


def declared_codec(schema: Schema, num_rows: int, rows_per_unit: tuple[float, ...] = ()) -> Codec:
    """The codec of a schema that declares all categories and bounds. It reads no table; numbers have equal bins."""
    reexpression, binning = reexpress(schema), Binning()
    modelled = reexpression.modelled.modelled
    numeric = [column for column in modelled if column.kind in BOUNDED]
    bounds = {column.name: bound_numbers(column) for column in numeric}
    histograms = {
        name: Histogram.flat(grid, num_bins=binning.max_bins)
        for name, grid in _grids(numeric, bounds, binning, reexpression.curves).items()
    }
    columns = tuple(_column_codec(column, {}, histograms, binning) for column in modelled)
    return Codec(columns, schema, num_rows, rows_per_unit)


def move_inside(bounds: tuple[int | float, int | float], limits: Limits) -> tuple[int | float, int | float]:
    """Estimated bounds inside what rules leave: cut off, or moved there if nothing of them would remain."""
    (lower, upper), (least, greatest) = bounds, limits
    width = max(upper - lower, 1)
    if least is not None:
        lower, upper = max(lower, least), upper if upper > least else least + width
    if greatest is not None:
        lower, upper = lower if lower < greatest else greatest - width, min(upper, greatest)
    fits = isinstance(lower, float) or (lower >= -(2**63) and upper < 2**63)
    return (lower, upper) if lower < upper and fits else bounds


def _known_numbers(values: pa.ChunkedArray, *, kind: str) -> np.ndarray:
    numbers, known = as_numbers(values, kind)
    return np.asarray(numbers[known])


def _column_codec(
    column: Column,
    categories: Mapping[str, Collection[Category]],
    histograms: Mapping[str, Histogram],
    binning: Binning,
) -> ColumnCodec:
    if column.kind in BOUNDED:
        special = special_numbers(column)
        histogram = histograms[column.name].separated(special)
        histogram = dataclasses.replace(histogram, masses=rounded(histogram.masses))
        bins = cut_bins(histogram, binning.max_bins, special)
        return NumericCodec(column.name, column.kind, histogram, bins, column.nullable)
    if column.kind == "boolean":
        return CategoricalCodec(column.name, (False, True), column.nullable, 0)
    if column.listed is not None:
        value = column.replacement
        # A null that is not listed has the code after the list.
        default = len(column.listed) if value is None and column.nullable else column.listed.index(value)
        return CategoricalCodec(column.name, column.listed, column.nullable, default)
    found = list(categories[column.name])
    listed = (*found, _name_of_other(found))
    return CategoricalCodec(column.name, listed, column.nullable, len(found))


def _name_of_other(found: Sequence[Category]) -> Category | None:
    """ "other", with underscores appended until it is not in the list; a null if the list is not text."""
    if found and not isinstance(found[0], str):
        return None
    name = OTHER
    while name in found:
        name += "_"
    return name


def cut_bins(histogram: Histogram, max_bins: int, special: Collection[int | float] = ()) -> Int[np.ndarray, " edges"]:
    """Groups neighbouring ranges into at most `max_bins` bins of near-equal weight, and two more for a special value.

    The weight of a range is halfway between its fraction of the rows and of the total, so that the few rows that make
    an average have bins too. Values that many rows share keep a bin of their own, and so does zero. Ranges without a
    mass join their neighbours: nothing is drawn from them. Returns the first range of each bin, and the number of
    ranges at the end. Post-processing of noisy masses.
    """
    masses, grid = histogram.masses, histogram.grid
    weights = masses
    if grid.kind in ("integer", "real") and not grid.equal:
        ends = np.abs(histogram.firsts.astype(float)) / 2 + np.abs(histogram.lasts.astype(float)) / 2
        totals = masses * (ends / max(float(ends.max()), 1e-300))
        weights = (masses + totals / max(float(totals.sum()), 1e-300) * masses.sum()) / 2
    is_zero = histogram.is_single & (histogram.firsts == 0) & (weights is not masses)
    is_special = histogram.is_single & np.isin(histogram.firsts, list(special))
    most, target = max_bins + 2 * np.count_nonzero(is_special), 1 / max_bins
    while True:
        alone = (masses >= target) | ((masses >= target / 2) & histogram.is_spike) | is_special
        alone |= is_zero & (masses >= target / 8)
        edges = _greedy_edges(weights, alone, target)
        kept = np.add.reduceat(masses + is_special, edges[:-1]) > 0
        kept[1:] |= is_special[np.asarray(edges[1:-1], dtype=int) - 1]  # nothing joins a special value
        filled = np.asarray(edges[:-1], dtype=np.int64)[kept]
        if not is_special[filled[:1]].any():
            filled = filled[1:]  # the first one reaches to the lower bound
        cut = np.unique([0, *filled, len(masses)]).astype(np.int64)
        if len(cut) - 1 <= most:
            return cut
        target *= 1.05


def _greedy_edges(weights: np.ndarray, alone: np.ndarray, target: float) -> list[int]:
    edges, filled = [0], 0.0
    for index, (weight, is_alone) in enumerate(zip(weights, alone, strict=True)):
        if index > edges[-1] and (is_alone or filled + weight / 2 >= target):
            edges.append(index)
            filled = 0.0
        filled = math.inf if is_alone else filled + weight
    edges.append(len(weights))
    return edges
