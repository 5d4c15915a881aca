"""Private estimation of what the schema leaves open: size, categories, bounds, and fine histograms of numeric columns.

At most four queries, each planned before any value is read and each over all the columns that need it:

- *size*: the number of rows, as a noisy count;
- *categories*: the values whose noisy count passes a threshold that a value of one unit alone passes with probability
  at most delta_c (Korolova et al. 2009, with the tail of the discrete Gaussian that is actually drawn);
- *bounds*: noisy counts over a public grid (powers of two, or years), of which the outermost heavy cells are kept;
- *histograms*: for each numeric column, unless its bounds span two integers, noisy counts over a tree of cells; only
  heavy cells are split further (the idea of PrivTree, Zhang et al. 2016, but with a fixed number of levels and discrete
  Gaussian noise, so that it composes with everything else). A value that many rows share gets a cell of its own.

Each *Formal guarantee* below is for columns of a table from `limit_units`: a unit has at most `sensitivity` rows in it.
"""

import bisect
import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import stats

from understudy.errors import BudgetExceeded, ConfigError
from understudy.notes import Note
from understudy.privacy.accounting.events import DiscreteGaussian
from understudy.privacy.accounting.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.gradients.charges import check_table_query, event_of
from understudy.privacy.mechanisms.blocks import (
    FALSE_SPIKE,
    FAR_CELLS,
    STANDS_OUT,
    block_masses,
    cut_blocks,
    extended,
    outermost_heavy,
    root_masses,
)
from understudy.privacy.noise.source import discrete_gaussian_tail, with_noise
from understudy.privacy.rows.batches import add_each
from understudy.privacy.rows.kernel import portions
from understudy.privacy.rows.table import PrivateColumns
from understudy.schema import BOUNDED, Category, Column, Schema
from understudy.schema.grid import INNERMOST, Grid, Histogram

BINNINGS = ("tree", "equal", "uniform")
LEVELS = 3  # of the tree, for columns with more cells than the grid module's FLAT
PASS_CELLS = 2**24  # the most finest cells that one pass over the rows counts: their counts take 128 MB
SPLIT_AT = 4.0  # a cell is split if its noisy count exceeds this many standard deviations
WIDE = 1e4  # from this standard deviation on, the mass function of discrete noise is too long to be summed
DELTA_FRACTION = 0.1  # of the guarantee's delta, for thresholded category lists
BUDGET_FRACTIONS = {"size": 0.05, "categories": 0.3, "bounds": 0.2, "histograms": 0.25}
MAX_CATEGORIES = 1000
"""A 2-way marginal of two such columns has a million cells, which every method here can still hold. At epsilon 1 a
category needs about 200 rows to be kept, so a table of fewer than 200,000 rows never reaches this limit."""
CATEGORY_LIMIT = 100_000
YEARS = (1800, 2200)
PER_DAY = {"date": 1, "datetime": 86_400_000_000}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Binning:
    """How columns are encoded in a small number of codes.

    Give it to `fit` or `plan` as `binning`.

    >>> Binning(bins="equal", max_bins=16)
    Binning(bins='equal', max_bins=16, max_categories=1000)
    """

    bins: str = "tree"
    """`tree` and `equal` estimate a fine histogram and cut it into near-equal masses; `uniform` makes no query."""

    max_bins: int = 32
    """The largest number of codes of a numeric column, besides the one for nulls."""

    max_categories: int = MAX_CATEGORIES
    """The most categories kept for a column whose categories are estimated privately: those with the largest noisy
    counts. The rest become "other"."""

    def __post_init__(self) -> None:
        if self.bins not in BINNINGS:
            raise ConfigError(f"bins must be one of {', '.join(BINNINGS)}, found {self.bins!r}.", setting="bins")
        if not isinstance(self.max_bins, int) or not 2 <= self.max_bins <= 1000:
            raise ConfigError(
                f"max_bins must be a whole number from 2 to 1000, found {self.max_bins!r}.", setting="max_bins"
            )
        most = self.max_categories
        if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= CATEGORY_LIMIT:
            raise ConfigError(
                f"max_categories must be a whole number from 1 to {CATEGORY_LIMIT:,}, found {most!r}.",
                setting="max_categories",
            )


def plan_discovery(schema: Schema, budget: Budget, binning: Binning) -> Plan:
    """The queries that this schema leaves to make, each calibrated alone to its fraction of the budget."""
    sensitivity = budget.max_rows_per_unit
    queries: list[Query] = []

    def add(key: str, what: str, columns: Sequence[Column], vectors: int, delta: float = 0.0) -> None:
        if vectors == 0:
            return
        own = dataclasses.replace(budget.fraction(BUDGET_FRACTIONS[key]), delta=budget.delta - delta)
        stddev = own.calibrate(lambda noise: [DiscreteGaussian(noise, vectors, sensitivity)])
        event = DiscreteGaussian(stddev, vectors, sensitivity)
        queries.append(Query(key, what, event, tuple(c.name for c in columns), delta, ("discovery",)))

    if schema.rows is None:
        add("size", "number of rows", [], 1)
    listed = [column for column in schema.modelled if column.estimated == "categories"]
    add("categories", f"categories of {_columns(listed)}", listed, len(listed), DELTA_FRACTION * budget.delta)
    bounded = [column for column in schema.modelled if column.estimated == "bounds"]
    add("bounds", f"bounds of {_columns(bounded)}", bounded, len(bounded))
    if binning.bins != "uniform":
        numeric = [c for c in schema.modelled if c.kind in BOUNDED and charged_levels(c, binning)]
        vectors = sum(charged_levels(column, binning) for column in numeric)
        add("histograms", f"fine histograms of {_columns(numeric)}", numeric, vectors)
    plan = Plan(tuple(queries))
    if "categories" not in plan:
        return plan
    enough = rows_to_be_listed(plan["categories"])
    note = Note(
        f"Categories of {_columns(listed)} are estimated privately: a value in fewer than about {enough:,} rows "
        f"becomes 'other', and at most {binning.max_categories:,} values of a column are kept. Categories declared in "
        "the schema have no privacy cost."
    )
    return dataclasses.replace(plan, notes=(note,))


def rows_to_be_listed(query: Query) -> int:
    """The number of rows that a value needs to be listed, apart from the noise of its count."""
    event = _event_for(query, 0)
    return category_threshold(event, query.delta / event.count)


def _columns(columns: Sequence[Column]) -> str:
    return "1 column" if len(columns) == 1 else f"{len(columns)} columns"


def charged_levels(column: Column, binning: Binning) -> int:
    """The levels of the tree that are charged: by the declared bounds, or the worst case if they are estimated.

    None for two integers: each is a bin of its own, whatever its count.
    """
    if column.is_two_integers:
        return 0
    if binning.bins == "equal":
        return 1
    if column.bounds is not None and column.kind == "integer":
        lower, upper = column.bounds
        # Bounds of an integer column are integers.
        return Grid(lower, upper).levels(most=LEVELS)[0]  # type: ignore[arg-type]
    return LEVELS


def _event_for(query: Query, vectors: int) -> DiscreteGaussian:
    """The event of a query, if it covers this many vectors of counts."""
    event = event_of(query, DiscreteGaussian)
    if vectors > event.count:
        raise BudgetExceeded(
            f"'{query.what}' does not cover {vectors} vectors of counts. This query was not made.", query=query.what
        )
    return event


class _Counting(NamedTuple):
    """What a charged query counts in a pass over the rows."""

    columns: PrivateColumns[Any]
    count_fn: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    add_fn: Callable[[Sequence[tuple[Any, ...]]], tuple[Any, ...]]


Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
InPass: TypeAlias = Generator[_Counting, Any, Answer]
"""A query that was started by `in_one_pass`: charges, then asks for a pass, then adds noise to what it counted."""


def in_one_pass(queries: Sequence[InPass[Any] | None]) -> list[Any]:
    """The answers to queries on columns of one table, all of which are charged before the one pass that counts for all;
    for None, None.

    Formal guarantee: that of each query by itself. Noise is drawn query by query, in this order.
    """
    started = [query for query in queries if query is not None]
    countings = [next(query) for query in started]  # charges
    if len(countings) > 1 and not countings[0].columns._whole.is_remote:
        assert all(counting.columns._whole is countings[0].columns._whole for counting in countings)
        exact = countings[0].columns._whole.fold(
            lambda batch: tuple(counting.count_fn(batch) for counting in countings),
            lambda parts: tuple(c.add_fn(own) for c, own in zip(countings, zip(*parts, strict=True), strict=True)),
        )
    else:  # a cluster sends back the parts of one query at a time
        exact = tuple(c.columns._batches.fold(c.count_fn, c.add_fn) for c in countings)
    answers = {id(query): _answer(query, counts) for query, counts in zip(started, exact, strict=True)}
    return [answers.get(id(query)) for query in queries]


def _answer(query: InPass[Answer], exact: tuple[Any, ...]) -> Answer:
    """The noisy answer that a query computes from its exact counts."""
    try:
        query.send(exact)
    except StopIteration as end:
        return end.value
    raise AssertionError("a query asks for one pass")


class _Discovery(Generic[Arguments, Answer]):
    """A query that is called for its answer, or started for a pass that it shares."""

    def __init__(self, start: Callable[Arguments, InPass[Answer]]):
        self.start = start
        functools.update_wrapper(self, start)

    def __call__(self, *args: Arguments.args, **options: Arguments.kwargs) -> Answer:
        (answer,) = in_one_pass([self.start(*args, **options)])
        return answer


@_Discovery
def discover_categories(
    columns: PrivateColumns[pa.Array], query: Query, ledger: Ledger, *, most: int = MAX_CATEGORIES
) -> InPass[dict[str, dict[Category, int]]]:
    """For each column the values that pass the threshold with their noisy counts, sorted by value; the rest become
    "other". If more than `most` pass, those with the largest noisy counts; of equal counts, the values that sort first.

    Formal guarantee: the cost of `query`. A value that only one unit has passes with probability delta_c at most, which
    `query.delta` adds once for each column; every other value's count gets discrete Gaussian noise. Only values that
    occur get noise, and the list is sorted by value, so neither order nor absence reveals more. Keeping the largest
    is post-processing of the noisy counts above the threshold. Not covered: timing.
    """
    event = _event_for(query, len(columns._names))
    check_table_query(query)
    ledger.charge(query)
    threshold = rows_to_be_listed(query)
    kept = {}
    counted = yield _Counting(columns, functools.partial(_count_values, names=columns._names), _add_value_counts)
    for name, table in zip(columns._names, counted, strict=True):
        if columns._batches.is_remote:
            # A cluster returns parts in any order. Resumed on another one, a run must not draw the noise of a value
            # for another value: that would be a second answer for one charge.
            table = table.sort_by("value")
        values, exact = (table.column(at).combine_chunks() for at in ("value", "count"))
        exact = exact.to_numpy(zero_copy_only=False)
        noisy = with_noise(exact, event.stddev, ledger.noise)
        passes = noisy >= threshold
        listed = values.filter(pa.array(passes)).to_pylist()
        kept[name] = largest_counts(dict(zip(listed, noisy[passes].tolist(), strict=True)), most)
    return kept


def _count_values(batch: Mapping[str, pa.Array], names: Sequence[str]) -> tuple[pa.Table, ...]:
    """The values of each column, in the order in which they first occur, and their exact counts."""
    counted = (pc.value_counts(_plain(batch[name].drop_null())) for name in names)
    return tuple(pa.table({"value": each.field("values"), "count": each.field("counts")}) for each in counted)


def _add_value_counts(parts: Sequence[tuple[pa.Table, ...]]) -> tuple[pa.Table, ...]:
    """Counts of the same values added up; values stay in the order in which they first occur."""
    return tuple(
        pa.concat_tables(own)
        .group_by("value", use_threads=False)
        .aggregate([("count", "sum")])
        .rename_columns(["value", "count"])
        for own in zip(*parts, strict=True)
    )


def largest_counts(noisy_counts: Mapping[Category, int], most: int) -> dict[Category, int]:
    """At most `most` values, those with the largest noisy counts (of equal counts, the first), sorted by value.

    >>> largest_counts({"c": 7, "a": 5, "b": 7, "d": 5}, 3)
    {'a': 5, 'b': 7, 'c': 7}
    """
    ordered = sorted(noisy_counts)
    kept = sorted(ordered, key=lambda value: -noisy_counts[value])[:most]  # sorting is stable
    return {value: noisy_counts[value] for value in sorted(kept)}


def _plain(column: pa.Array) -> pa.Array:
    """The values without NaN and infinities, and with one zero, so that they can be sorted."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.add(column.filter(pc.is_finite(column)), pa.scalar(0.0, column.type))


@functools.lru_cache(maxsize=64)
def category_threshold(event: DiscreteGaussian, delta: float) -> int:
    """The smallest t with P(k + Z >= t) <= delta / k, for k rows of a unit and the discrete noise Z that is drawn.

    For wide noise not quite the smallest: P(Z >= t) is at most the normal tail beyond t - 1, since the mass function
    decreases and its normalising constant is at least stddev (2 pi)^(1/2).
    """
    k = event.sensitivity
    if event.stddev > WIDE:
        return k + 2 + math.ceil(event.stddev * float(stats.norm.isf(delta / k)))
    noise = range(2 + int(40 * event.stddev))
    return k + bisect.bisect_left(
        noise, True, key=lambda reach: discrete_gaussian_tail(event.stddev, reach) <= delta / k
    )


@_Discovery
def discover_bounds(
    columns: PrivateColumns[np.ndarray], kinds: Mapping[str, str], query: Query, ledger: Ledger
) -> InPass[dict[str, tuple[int | float, int | float]]]:
    """For each column the outer edges of the outermost heavy cells of a public grid.

    Formal guarantee: the cost of `query`: one noisy histogram per column over cells that are fixed in advance.
    """
    event = _event_for(query, len(columns._names))
    check_table_query(query)
    ledger.charge(query)
    found = {}
    edges_of = {name: _public_edges(kinds[name]) for name in columns._names}
    counts = yield _Counting(columns, functools.partial(_count_between, edges_of=edges_of), add_each)
    for (name, edges), exact in zip(edges_of.items(), counts, strict=True):
        noisy = with_noise(exact, event.stddev, ledger.noise)
        gap = None if kinds[name] in PER_DAY else FAR_CELLS
        first, last = outermost_heavy(noisy, event.stddev, gap) or _fallback_cells(kinds[name], edges)
        upper = edges[last + 1]
        found[name] = (edges[first].item(), upper.item() if kinds[name] == "real" else upper.item() - 1)
    return found


def _count_between(batch: Mapping[str, np.ndarray], edges_of: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """How many values lie between the edges of each column; those outside count in the first or last cell."""
    counts = []
    for name, edges in edges_of.items():
        cells = np.clip(np.searchsorted(edges, batch[name], side="right") - 1, 0, len(edges) - 2)
        counts.append(np.bincount(cells, minlength=len(edges) - 1))
    return tuple(counts)


def _public_edges(kind: str) -> np.ndarray:
    """Edges of the public cells [edge_i, edge_i+1): powers of two of both signs, or years."""
    if kind in ("date", "datetime"):
        years = np.arange(f"{YEARS[0]}", f"{YEARS[1] + 1}", dtype="datetime64[Y]").astype("datetime64[D]")
        return years.astype(np.int64) * PER_DAY[kind]
    if kind == "integer":
        powers = [2**exponent for exponent in range(63)]
        return np.asarray([-power + 1 for power in reversed(powers)] + powers, dtype=np.int64)
    magnitudes = INNERMOST * 2.0 ** np.arange(81)
    return np.concatenate([-magnitudes[::-1], magnitudes])


def _fallback_cells(kind: str, edges: np.ndarray) -> tuple[int, int]:
    """If nothing stands out of the noise: the 20th and 21st century for dates, else the cell that holds zero."""
    if kind in PER_DAY:
        return 1900 - YEARS[0], 2099 - YEARS[0]
    cell = int(np.searchsorted(edges, 0, side="right")) - 1
    return cell, cell


def discover_histograms(
    columns: PrivateColumns[np.ndarray],
    grids: Mapping[str, Grid],
    levels: Mapping[str, int],
    query: Query,
    ledger: Ledger,
    *,
    num_rows: int,
    complete: Collection[str] = (),
) -> dict[str, Histogram]:
    """For each numeric column a tree of noisy counts, as ranges of cells with masses; `complete`: the names
    of columns without nulls.

    Formal guarantee: the cost of `query`, with `levels` vectors for a column: on each level one unit's rows fall into
    cells of one histogram, so they change it by at most the event's sensitivity; which cells are split depends on
    noisy counts alone, and a level that splits nothing is charged too.
    """
    event = _event_for(query, sum(levels.values()))
    check_table_query(query)
    ledger.charge(query)
    found = {}
    for names in portions(columns._names, lambda name: grids[name].num_cells, PASS_CELLS):
        count = functools.partial(_count_cells, grids={name: grids[name] for name in names})
        for name, exact in zip(names, columns.only(names)._batches.fold(count, add_each), strict=True):
            tree = functools.partial(_noisy_tree, num_rows=num_rows, complete=name in complete)
            found[name] = tree(exact, grids[name], levels[name], event.stddev, ledger)
    return found


def _count_cells(batch: Mapping[str, np.ndarray], grids: Mapping[str, Grid]) -> tuple[np.ndarray, ...]:
    """How many values lie in each of the finest cells of each column."""
    return tuple(np.bincount(grid.cells(batch[name]), minlength=grid.num_cells) for name, grid in grids.items())


def _noisy_tree(
    exact_cells: np.ndarray,
    grid: Grid,
    charged: int,
    stddev: float,
    ledger: Ledger,
    *,
    num_rows: int,
    complete: bool,
) -> Histogram:
    """Splits heavy cells level by level, by their noisy counts; then spreads each cell's mass over its parts."""
    levels, branching = grid.levels(most=charged)
    repeats = charged // levels  # levels that are charged but not needed repeat the counts, which are averaged
    scale = stddev / math.sqrt(repeats)
    parents, masses, heavy = np.zeros(1, dtype=np.int64), np.zeros(1), 0.0
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for level in range(1, levels + 1):
        width = branching ** (levels - level)
        children = parents[:, None] * branching + np.arange(branching)
        exact = _counts_of(exact_cells, width, children.ravel()).reshape(children.shape)
        noisy = _averaged_counts(exact, repeats, stddev, ledger)
        noisy[children * width >= grid.num_cells] = 0.0  # beyond the upper bound
        if level == 1:  # a declared size far above the true one must not hide heavy cells
            most = max(0.0, float(noisy.sum())) + 4 * scale * math.sqrt(noisy.size)
            heavy = max(SPLIT_AT * stddev, min(num_rows, most) / 1000)
            starts = np.arange(0, grid.num_cells, width)
            noisy = noisy[0, : len(starts)]
            edges = grid.edges_of(starts)
            mass = root_masses(noisy, edges, scale, num_rows, complete)
            if stddev and not grid.has_equal_parts:
                mass = extended(mass, edges, noisy, scale)
            split = (noisy >= heavy) & (level < levels)
        else:
            stands_out = max(STANDS_OUT, float(stats.norm.isf(FALSE_SPIKE / branching)))
            blocks = cut_blocks(noisy, scale, stands_out)
            mass = block_masses(blocks, masses, scale)
            starts = children[blocks.row, blocks.first] * width
            split = (blocks.length == 1) & (blocks.noisy_sum >= heavy) & (level < levels)
        found.append((starts[~split], mass[~split]))
        if not split.any():
            break
        order = np.argsort(starts[split])
        parents, masses = starts[split][order] // width, mass[split][order]
    starts, mass = (np.concatenate(part) for part in zip(*found, strict=True))
    kept = np.argsort(starts)[: np.count_nonzero(starts < grid.num_cells)]
    starts, mass = starts[kept], mass[kept]
    joined = np.r_[True, (mass[1:] > 0) | (mass[:-1] > 0)]  # neighbours without a mass are one range
    starts, mass = starts[joined], mass[joined]
    shares = mass / mass.sum() if mass.sum() > 0 else np.diff(np.r_[starts, grid.num_cells]) / grid.num_cells
    return Histogram(grid, grid.firsts[starts], rounded(shares))


def rounded(values: np.ndarray) -> np.ndarray:
    """Rounds to six significant figures, as estimated masses and everything computed from them are released.

    >>> rounded(np.array([1 / 3, 2e-8 / 3])).tolist()
    [0.333333, 6.66667e-09]
    """
    return np.asarray([float(f"{value:.6g}") for value in values])


def _averaged_counts(exact: np.ndarray, repeats: int, stddev: float, ledger: Ledger) -> np.ndarray:
    """The mean of several noisy counts of each cell.

    A function of an integer, repeats * exact + noise: below 2^53 it is exact as a float, and the division rounds once.
    """
    noisy = with_noise(np.broadcast_to(exact, (repeats, *exact.shape)), stddev, ledger.noise)
    return noisy.sum(axis=0) / repeats


def _counts_of(exact_cells: np.ndarray, width: int, wanted: np.ndarray) -> np.ndarray:
    """The number of rows in each of the wanted cells, which are `width` finest cells wide."""
    ends = np.concatenate([[0], np.cumsum(exact_cells)])
    first, last = (np.minimum(cell * width, len(exact_cells)) for cell in (wanted, wanted + 1))
    return ends[last] - ends[first]
