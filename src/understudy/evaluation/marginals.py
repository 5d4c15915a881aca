"""How near the synthetic margins are: histograms of one, two, three or any columns, and how columns go together.

All distances are between shares of rows on one grid: equal cells over a numeric column's range, the levels of a
discrete one, a cell for nulls and one for values that are not listed. Values outside a range fall into its end cells,
except where the NIST score says otherwise.
"""

import dataclasses
import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, cast

import numpy as np
from jaxtyping import Float, Int

from understudy.errors import ConfigError
from understudy.evaluation.judged import Judged, Layout, Trait
from understudy.evaluation.scores import HIGHER, LOWER, Metric, Result, Score
from understudy.schema.values import format_list as listed

DENSE_CELLS = 1_000_000
"""Joint tables up to this size, or that of the real table, are counted densely; larger ones by sorting the rows."""
CHUNK_ROWS = 1 << 18
"""Rows counted at a time: their joint keys stay in the cache, and memory does not grow with the table."""
MOST_TRANSPORT_CELLS = 3000
MOST_CELLS = 10_000_000
DEFAULT_CELLS = 10_000
"""The most cells of the table that `cell_accuracy` picks for itself."""
MOST_REDRAWS, BOOTSTRAP_ROWS = 100, 20_000
"""Of the bootstrap: more redraws or rows would hardly change the error."""
WORST = 10
"""How many of the worst marginals the details name."""

Distance = Literal["tv", "l1", "jsd", "wasserstein"]


# ------------------------------------------------------------------------------------------------------------- counting


@dataclasses.dataclass(frozen=True)
class Grid:
    """Both tables as small integer codes, column by column."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    real: tuple[np.ndarray, ...]
    synthetic: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, real: Judged, synthetic: Judged, bins: int, names: Sequence[str] | None = None) -> "Grid":
        if bins < 1:
            raise ConfigError(f"bins must be at least 1, found {bins}.")
        names = real.layout.names if names is None else tuple(names)
        coded = [real.binned(name, bins) for name in names]
        sizes = tuple(size for _, size in coded)
        other = (synthetic.binned(name, bins)[0] for name in names)
        return cls(
            names,
            sizes,
            tuple(_narrow(codes, size) for codes, size in coded),
            tuple(_narrow(codes, size) for codes, size in zip(other, sizes, strict=True)),
        )

    def counts(self, axes: Sequence[int]) -> tuple[Int[np.ndarray, " cells"], Int[np.ndarray, " cells"]]:
        """Counts of both tables over the joint cells of some columns; of a large table only the occupied cells."""
        sizes = [self.sizes[axis] for axis in axes]
        real, synthetic = ([codes[axis] for axis in axes] for codes in (self.real, self.synthetic))
        if math.prod(sizes) <= max(DENSE_CELLS, len(real[0])):
            return dense_counts(real, sizes), dense_counts(synthetic, sizes)
        _, *both = _aligned(*joint_keys((real, synthetic), sizes))
        return both[0], both[1]

    def tv(self, axes: Sequence[int]) -> float:
        return _tv(*map(_shares, self.counts(axes)))

    def occupied(self) -> tuple[Int[np.ndarray, "cells columns"], np.ndarray, np.ndarray]:
        """The joint cells of all columns that hold any row, as codes, with the counts of both tables."""
        keys = joint_keys((self.real, self.synthetic), self.sizes)
        _, *counts = _aligned(*keys)
        _, first = np.unique(np.concatenate(keys), return_index=True)
        cells = np.stack([np.concatenate(pair)[first] for pair in zip(self.real, self.synthetic, strict=True)], axis=1)
        return cells.astype(np.int64), counts[0], counts[1]


def dense_counts(codes: Sequence[np.ndarray], sizes: Sequence[int]) -> Int[np.ndarray, " cells"]:
    """Rows in each joint cell, in C order."""
    cells = math.prod(sizes)
    counts = np.zeros(cells, dtype=np.int64)
    step = max(CHUNK_ROWS, cells)  # to add up the chunks must not cost more than to count them
    for start in range(0, len(codes[0]), step):
        part = [column[start : start + step] for column in codes]
        counts += np.bincount(_mixed_radix(part, sizes), minlength=cells)
    return counts


def joint_keys(tables: Sequence[Sequence[np.ndarray]], sizes: Sequence[int]) -> list[Int[np.ndarray, " rows"]]:
    """One number for each row of each table: equal where all of these columns are equal."""
    first, *others = zip(*tables, strict=True)
    keys, cells = [column.astype(np.int64) for column in first], sizes[0]
    for columns, size in zip(others, sizes[1:], strict=True):
        if cells * size >= 2**62:  # number the keys that occur, so that the next column fits
            found, ranks = np.unique(np.concatenate(keys), return_inverse=True)
            keys, cells = np.split(ranks, np.cumsum([len(key) for key in keys])[:-1]), len(found)
        keys = [key * size + column for key, column in zip(keys, columns, strict=True)]
        cells *= size
    return keys


def _mixed_radix(codes: Sequence[np.ndarray], sizes: Sequence[int]) -> Int[np.ndarray, " rows"]:
    """The place of each row in the joint table, in C order."""
    keys = codes[0].astype(np.int64)
    for column, size in zip(codes[1:], sizes[1:], strict=True):
        keys *= size
        keys += column
    return keys


def _aligned(*keys: np.ndarray) -> list[np.ndarray]:
    """The keys that occur anywhere, sorted, then how often each table has them."""
    counted = [np.unique(key, return_counts=True) for key in keys]
    union = np.sort(np.concatenate([found for found, _ in counted]), kind="stable")  # merges what is sorted already
    union = union[np.diff(union, prepend=union[0] - 1) > 0]
    aligned = [union]
    for found, counts in counted:
        full = np.zeros(len(union), dtype=np.int64)
        full[np.searchsorted(union, found)] = counts
        aligned.append(full)
    return aligned


def _narrow(codes: np.ndarray, size: int) -> np.ndarray:
    return codes.astype(np.min_scalar_type(size - 1))


def _shares(counts: np.ndarray) -> Float[np.ndarray, " cells"]:
    return counts / counts.sum()


def _tv(p: np.ndarray, q: np.ndarray) -> float:
    return 0.5 * float(np.abs(p - q).sum())


def _jsd(p: np.ndarray, q: np.ndarray) -> float:
    """Jensen-Shannon divergence in bits."""
    middle = (p + q) / 2
    parts = [share[share > 0] * np.log2(share[share > 0] / middle[share > 0]) for share in (p, q)]
    return max(0.0, float(sum(part.sum() for part in parts)) / 2)


def _rows(real: Judged, synthetic: Judged) -> dict[str, object]:
    return {"real_rows": real.num_rows, "synthetic_rows": synthetic.num_rows}


def _mean_and_max(values: Sequence[float], why: str) -> tuple[Score, Score]:
    if not values:
        return Score.none(why), Score.none(why)
    return Score(float(np.mean(values))), Score(float(np.max(values)))


# -------------------------------------------------------------------------------------------------- one, two and three


def one_way(real: Judged, synthetic: Judged, *, bins: int = 50, bootstrap: int = 0, seed: int = 0) -> Result:
    """Each column's histogram against its real one; numeric columns also by KS and 1-Wasserstein distance.

    With `bootstrap`, the standard error of the mean total variation from so many redraws of whole rows, at most 100,
    over at most 20,000 rows of each table ("a bag of little bootstraps", Kleiner et al., 2014). KS and Wasserstein
    leave nulls out; Wasserstein is on values scaled to [0, 1], and clipped.
    """
    grid = Grid.of(real, synthetic, bins)
    columns = {}
    for axis, trait in enumerate(real.layout.traits):
        shares = map(_shares, grid.counts([axis]))
        columns[trait.name] = _one_column(real, synthetic, trait, *shares, bins=bins)
    tv, jsd, ks, w1 = (
        [cast(float, column[key]) for column in columns.values() if column[key] is not None]
        for key in ("tv", "jsd", "ks", "w1")
    )
    mean, largest = _mean_and_max(tv, "")
    if bootstrap:
        mean = Score(mean.value, _bootstrap_error(grid, bootstrap, seed))
    no_numbers = "There is no numeric column with values in both tables."
    return Result(
        scores={
            "tv1": mean,
            "tv1_max": largest,
            "jsd1": Score(float(np.mean(jsd))),
            "ks": _mean_and_max(ks, no_numbers)[0],
            "w1": _mean_and_max(w1, no_numbers)[0],
        },
        settings={
            **_rows(real, synthetic),
            "bins": bins,
            "bootstrap": min(bootstrap, MOST_REDRAWS),
            "bootstrap_rows": [min(table.num_rows, BOOTSTRAP_ROWS) for table in (real, synthetic)],
            "seed": seed,
        },
        details={"columns": columns},
    )


def _one_column(
    real: Judged, synthetic: Judged, trait: Trait, p: np.ndarray, q: np.ndarray, *, bins: int
) -> dict[str, object]:
    """The details of one column."""
    distances: dict[str, object] = {"tv": _tv(p, q), "jsd": _jsd(p, q), "ks": None, "w1": None}
    if not trait.is_numeric:
        # The cells for nulls and for unlisted values are shown only where there are any.
        shown = (np.arange(len(p)) < len(trait.levels)) | (p > 0) | (q > 0)
        return {
            "kind": "discrete",
            "labels": [label for label, kept in zip(trait.labels, shown, strict=True) if kept],
            "real": p[shown].tolist(),
            "synthetic": q[shown].tolist(),
            **distances,
        }
    values = [np.sort(t.scaled(trait.name, clipped=False)[~np.isnan(t[trait.name])]) for t in (real, synthetic)]
    if len(values[0]) and len(values[1]):
        distances["ks"] = _kolmogorov_smirnov(*values)
        distances["w1"] = _wasserstein_1(*(np.clip(each, 0.0, 1.0) for each in values))
    edges, shares = [*np.linspace(trait.lower, trait.upper, bins + 1)], [p[:-1], q[:-1]]
    if trait.kind != "real":
        edges, shares = _whole_cells([real, synthetic], trait, bins)
    return {
        "kind": "numeric",
        "type": trait.kind,
        "edges": edges,
        "real": shares[0].tolist(),
        "synthetic": shares[1].tolist(),
        "missing": [float(p[-1]), float(q[-1])],
        **distances,
    }


def _whole_cells(tables: Sequence[Judged], trait: Trait, bins: int) -> tuple[list[float], list[np.ndarray]]:
    """A histogram to look at: cells that hold equally many whole numbers, else it would be a comb."""
    width = math.ceil((trait.upper - trait.lower + 1) / bins)
    num_cells = math.ceil((trait.upper - trait.lower + 1) / width)
    shares = []
    for table in tables:
        values = table[trait.name][~np.isnan(table[trait.name])]
        cells = np.clip((values - trait.lower) // width, 0, num_cells - 1).astype(np.int64)
        shares.append(np.bincount(cells, minlength=num_cells) / table.num_rows)
    return [trait.lower - 0.5 + width * cell for cell in range(num_cells + 1)], shares


def _kolmogorov_smirnov(x: np.ndarray, y: np.ndarray) -> float:
    """The greatest difference of two distribution functions, both samples sorted.

    F - G is greatest at a value of x, and least just before one.
    """
    steps = np.arange(len(x) + 1) / len(x)
    above = steps[1:] - np.searchsorted(y, x, side="right") / len(y)
    below = np.searchsorted(y, x, side="left") / len(y) - steps[:-1]
    return max(0.0, float(above.max()), float(below.max()))


def _wasserstein_1(x: np.ndarray, y: np.ndarray) -> float:
    """The mean distance of two sorted samples' quantiles, over the levels at which either of them steps."""
    common = math.gcd(len(x), len(y))
    x_steps, y_steps = len(x) // common, len(y) // common
    if x_steps == y_steps:
        return float(np.abs(x - y).mean())
    # Two sorted runs, which a stable sort merges. A level at which both step is there twice, once with width 0.
    ends = np.concatenate([np.arange(1, len(x) + 1) * y_steps, np.arange(1, len(y) + 1) * x_steps])
    ends.sort(kind="stable")
    gaps = np.abs(x[(ends - 1) // y_steps] - y[(ends - 1) // x_steps])
    return float(np.diff(ends, prepend=0) @ gaps) / int(ends[-1])


def _bootstrap_error(grid: Grid, draws: int, seed: int) -> float | None:
    """Of the mean total variation over columns, which go together: so whole rows are redrawn, as many as there are.

    Of a large table the redraws come from some of its rows, but are as many as all of them, so that their spread is
    that of the whole table.
    """
    if draws < 2:
        return None  # one draw has no spread
    # A stream of its own: tables are often made with the same small seed, and then follow the plain one.
    generator = np.random.default_rng([seed, 2])
    tables = [_some_codes(codes, generator) for codes in (grid.real, grid.synthetic)]
    sizes = [len(grid.real[0]), len(grid.synthetic[0])]
    means = np.zeros(min(draws, MOST_REDRAWS))
    for draw in range(len(means)):
        weights = [
            generator.multinomial(size, np.full(len(codes[0]), 1 / len(codes[0]))) / size
            for codes, size in zip(tables, sizes, strict=True)
        ]
        for axis, cells in enumerate(grid.sizes):
            p, q = (
                np.bincount(codes[axis], weight, minlength=cells) for codes, weight in zip(tables, weights, strict=True)
            )
            means[draw] += _tv(p, q) / len(grid.sizes)
    return float(np.std(means, ddof=1))


def _some_codes(codes: Sequence[np.ndarray], generator: np.random.Generator) -> list[np.ndarray]:
    """The codes of at most `BOOTSTRAP_ROWS` rows, in the type that counting takes."""
    if len(codes[0]) <= BOOTSTRAP_ROWS:
        return [column.astype(np.intp) for column in codes]
    rows = generator.choice(len(codes[0]), BOOTSTRAP_ROWS, replace=False)
    return [column[rows].astype(np.intp) for column in codes]


def two_way(real: Judged, synthetic: Judged, *, bins: int = 20, seed: int = 0) -> Result:
    """Total variation of every pair of columns. Nothing is drawn: the seed is only echoed."""
    grid = Grid.of(real, synthetic, bins)
    count = len(grid.names)
    pairs: dict[tuple[int, ...], float] = {axes: grid.tv(axes) for axes in itertools.combinations(range(count), 2)}
    matrix = np.diag([grid.tv([axis]) for axis in range(count)])
    for axes, tv in pairs.items():
        matrix[axes] = matrix[axes[::-1]] = tv
    mean, largest = _mean_and_max(list(pairs.values()), "There is one column only, so there are no pairs.")
    return Result(
        scores={"tv2": mean, "tv2_max": largest},
        settings={**_rows(real, synthetic), "bins": bins, "seed": seed},
        details={"columns": list(grid.names), "tv": _matrix(matrix), "worst": _worst(pairs, grid.names)},
    )


def three_way(real: Judged, synthetic: Judged, *, bins: int = 20, num_triples: int = 100, seed: int = 0) -> Result:
    """Mean total variation over random distinct triples of columns, or all if there are no more."""
    grid = Grid.of(real, synthetic, bins)
    triples = {axes: grid.tv(axes) for axes in _triples(grid.names, num_triples, seed)}
    return Result(
        scores={"tv3": _mean_and_max(list(triples.values()), _NO_TRIPLES)[0]},
        settings={**_rows(real, synthetic), "bins": bins, "num_triples": num_triples, "seed": seed},
        details={"triples": len(triples), "worst": _worst(triples, grid.names)},
    )


_NO_TRIPLES = "There are fewer than three columns, so there are no triples."


def _triples(names: Sequence[str], num_triples: int, seed: int) -> list[tuple[int, ...]]:
    """Distinct triples, drawn over the sorted names so that the order of columns does not matter."""
    if num_triples < 1:
        raise ConfigError(f"num_triples must be at least 1, found {num_triples}.")
    order = sorted(range(len(names)), key=lambda axis: names[axis])
    if math.comb(len(names), 3) <= num_triples:
        return list(itertools.combinations(order, 3))
    generator = np.random.default_rng(seed)
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < num_triples:
        drawn[tuple(sorted(generator.choice(len(names), 3, replace=False).tolist()))] = None
    return [tuple(order[place] for place in triple) for triple in drawn]


def _worst(distances: Mapping[tuple[int, ...], float], names: Sequence[str]) -> list[dict[str, object]]:
    first = sorted(distances, key=lambda axes: -distances[axes])[:WORST]
    return [{"columns": [names[axis] for axis in axes], "tv": round(distances[axes], 5)} for axes in first]


def _matrix(values: np.ndarray) -> list[list[float | None]]:
    """JSON-safe: five digits, None where there is no value."""
    return [[None if math.isnan(value) else round(value, 5) for value in row] for row in values.tolist()]


# ---------------------------------------------------------------------------------------------------------- any columns


def k_way(
    real: Judged, synthetic: Judged, columns: Sequence[str], *, bins: int = 20, distance: Distance = "tv"
) -> Result:
    """The joint marginal of any columns.

    "wasserstein" is the exact transport between the two joint histograms. Cells are as far apart as Euclid says, with
    numbers at the centres of cells of a range of length 1, and different levels 1 apart, as is a null from all else.
    """
    _check_columns(real.layout, columns)
    if distance not in ("tv", "l1", "jsd", "wasserstein"):
        raise ConfigError(f"distance must be tv, l1, jsd or wasserstein, found {distance!r}.")
    grid = Grid.of(real, synthetic, bins, columns)
    notes: tuple[str, ...] = ()
    if distance == "wasserstein":
        score, notes = _transport(grid, [real.layout[name].is_numeric for name in columns], bins)
    else:
        p, q = map(_shares, grid.counts(range(len(columns))))
        score = Score(_jsd(p, q) if distance == "jsd" else _tv(p, q) * (2 if distance == "l1" else 1))
    return Result(
        scores={"k_way": score},
        settings={**_rows(real, synthetic), "columns": list(columns), "bins": bins, "distance": distance},
        notes=notes,
    )


def _transport(grid: Grid, numeric: Sequence[bool], bins: int) -> tuple[Score, tuple[str, ...]]:
    """What both tables share of a cell stays where it is: with a metric for cost that loses nothing."""
    import ot

    cells, *counts = grid.occupied()
    if len(cells) > MOST_TRANSPORT_CELLS:
        why = f"{len(cells)} cells are occupied, too many for exact transport (at most {MOST_TRANSPORT_CELLS})."
        return Score.none(f"{why} Take fewer columns or bins."), ()
    excess = _shares(counts[0]) - _shares(counts[1])
    givers, takers = excess > 0, excess < 0
    if not givers.any() or not takers.any():
        return Score(0.0), ()
    squares = np.zeros((givers.sum(), takers.sum()))
    for column, is_numeric in enumerate(numeric):
        here, there = cells[givers, column, None], cells[None, takers, column]
        apart = (here != there).astype(np.float64)
        if is_numeric:
            apart = np.where((here < bins) & (there < bins), (here - there) / bins, apart)
        squares += apart**2
    given, taken = excess[givers], -excess[takers]
    total = float(given.sum())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a search cut short is told by the log
        cost, log = ot.emd2(given / total, taken / taken.sum(), np.sqrt(squares), numItermax=1_000_000, log=True)
    notes = () if log["warning"] is None else ("Transport was cut short: its cost is an upper bound.",)
    return Score(total * float(cost)), notes


def _check_columns(layout: Layout, columns: Sequence[str]) -> None:
    if not columns or len(set(columns)) < len(columns):
        raise ConfigError(f"columns must be one or more different names, found {listed(list(columns)) or 'none'}.")
    for name in columns:
        layout[name]


def nist(
    real: Judged,
    synthetic: Judged,
    *,
    bins: int = 100,
    num_triples: int = 100,
    binning: Literal["real", "public"] = "real",
    seed: int = 0,
) -> Result:
    """The three-way score of the NIST contest: mean L1 distance over random triples of columns.

    A number v has the bin floor(bins * (v - min) / (max - min)), with the real rows' own ends or ("public") those of
    the schema: so the greatest value has a bin of its own, and values outside have bins below 0 or above `bins`. A
    constant column has one bin, and nulls have their own.
    """
    if binning not in ("real", "public"):
        raise ConfigError(f"binning must be real or public, found {binning!r}.")
    if bins < 1:
        raise ConfigError(f"bins must be at least 1, found {bins}.")
    coded = [_nist_codes(real, synthetic, trait, bins, binning) for trait in real.layout.traits]
    grid = Grid(
        real.layout.names,
        tuple(size for _, _, size in coded),
        tuple(_narrow(codes, size) for codes, _, size in coded),
        tuple(_narrow(codes, size) for _, codes, size in coded),
    )
    triples = {axes: 2 * grid.tv(axes) for axes in _triples(grid.names, num_triples, seed)}
    distance = _mean_and_max(list(triples.values()), _NO_TRIPLES)[0]
    likeness = Score(1 - distance.value / 2, why=distance.why)
    return Result(
        scores={
            "nist_l1": distance,
            "nist_score": likeness,
            "nist_points": Score(1e6 * likeness.value, why=distance.why),
        },
        settings={
            **_rows(real, synthetic),
            "bins": bins,
            "num_triples": num_triples,
            "binning": binning,
            "seed": seed,
        },
        details={"triples": len(triples)},
    )


def _nist_codes(
    real: Judged, synthetic: Judged, trait: Trait, bins: int, binning: str
) -> tuple[np.ndarray, np.ndarray, int]:
    """Codes of both tables and their number: bins 0 to `bins`, then nulls, then the bins outside that occur."""
    if not trait.is_numeric:
        return real[trait.name], synthetic[trait.name], len(trait.levels) + 2
    lower, upper = trait.lower, trait.upper
    if binning == "real":
        inside = real[trait.name][np.isfinite(real[trait.name])]
        lower, upper = (inside.min(), inside.max()) if len(inside) else (0.0, 0.0)
    places = [_nist_bins(table[trait.name], float(lower), float(upper), bins) for table in (real, synthetic)]
    outside = np.unique(np.concatenate([part[(part < 0) | (part > bins)] for part in places]))
    codes = []
    for part in places:
        code = np.full(len(part), bins + 1, dtype=np.int64)
        within = (part >= 0) & (part <= bins)
        code[within] = part[within]
        beyond = (part < 0) | (part > bins)
        code[beyond] = bins + 2 + np.searchsorted(outside, part[beyond])
        codes.append(code)
    return codes[0], codes[1], bins + 2 + len(outside)


def _nist_bins(values: np.ndarray, lower: float, upper: float, bins: int) -> Float[np.ndarray, " rows"]:
    """By the formula, as whole floats: an infinity is a bin too, and NaN stays."""
    if upper <= lower:
        return np.where(np.isnan(values), np.nan, 0.0)
    with np.errstate(over="ignore"):
        return np.floor(bins * (values - lower) / (upper - lower))


# ---------------------------------------------------------------------------------------------------------------- cells


def cell_accuracy(real: Judged, synthetic: Judged, columns: Sequence[str] | None = None, *, bins: int = 20) -> Result:
    """The mean over all cells of a joint table, empty ones included, of 1 - |real share - synthetic share|.

    Cells are those that the layout allows: levels, or bins, and nulls where real rows have them. Rows elsewhere
    (unlisted values, unexpected nulls) are in no cell, but count in the total variation. Without `columns`, those of
    `default_cells` are taken.
    """
    columns = default_cells(real.layout) if columns is None else columns
    settings = {**_rows(real, synthetic), "columns": list(columns), "bins": bins}
    if not columns:
        return Result(scores=_no_cells(f"No discrete column has at most {DEFAULT_CELLS} levels."), settings=settings)
    _check_columns(real.layout, columns)
    traits = [real.layout[name] for name in columns]
    total = math.prod(_cell_sizes(traits, bins))
    details: dict[str, object] = {"columns": list(columns), "cells": total}
    if total > MOST_CELLS:
        return Result(scores=_no_cells(_too_many(total)), settings=settings, details=details)
    cells, *counts = Grid.of(real, synthetic, bins, columns).occupied()
    allowed = _allowed(cells, traits, bins)
    p, q = map(_shares, counts)
    return Result(
        scores={
            "cell_accuracy": Score(1 - float(np.abs(p - q)[allowed].sum()) / total),
            "cell_tv": Score(_tv(p, q)),
        },
        settings=settings,
        details={
            **details,
            "occupied": int(allowed.sum()),
            "outside": [float(p[~allowed].sum()), float(q[~allowed].sum())],
        },
    )


def cells_won(
    real: Judged, synthetics: Mapping[str, Judged], columns: Sequence[str] | None = None, *, bins: int = 20
) -> dict[str, object]:
    """In how many cells of a joint table each synthetic table is nearest to the real share.

    The first listed wins a tie; cells where several are nearest, such as empty ones, are also counted as ties. A table
    that is too large, or that has no columns, is refused under "why".
    """
    columns = default_cells(real.layout) if columns is None else columns
    if not columns or not synthetics:
        return {"won": {}, "ties": 0, "cells": 0, "why": "There are no columns, or no tables, to compare."}
    _check_columns(real.layout, columns)
    traits = [real.layout[name] for name in columns]
    total = math.prod(_cell_sizes(traits, bins))
    if total > MOST_CELLS:
        return {"won": {}, "ties": 0, "cells": total, "why": _too_many(total)}
    errors = np.stack([_cell_errors(real, each, traits, bins) for each in synthetics.values()])
    best = np.argmin(errors, axis=0)
    ties = (errors == errors.min(axis=0)).sum(axis=0) > 1
    won = np.bincount(best, minlength=len(synthetics)).tolist()
    return {"won": dict(zip(synthetics, won, strict=True)), "ties": int(ties.sum()), "cells": total}


def _cell_errors(real: Judged, synthetic: Judged, traits: Sequence[Trait], bins: int) -> Float[np.ndarray, " cells"]:
    """|real share - synthetic share| of every cell, times the real rows: the same float wherever it is the same."""
    cells, *counts = Grid.of(real, synthetic, bins, [trait.name for trait in traits]).occupied()
    allowed = _allowed(cells, traits, bins)
    sizes = _cell_sizes(traits, bins)
    errors = np.zeros(math.prod(sizes))
    # Whole numbers until the last division: shares of different tables would differ by rounding.
    difference = np.abs(counts[0] * synthetic.num_rows - counts[1] * real.num_rows) / synthetic.num_rows
    errors[np.ravel_multi_index(tuple(cells[allowed].T), sizes)] = difference[allowed]
    return errors


def default_cells(layout: Layout) -> list[str]:
    """At most three discrete columns whose joint table has the most cells, but no more than 10,000.

    Of equally large tables, that of the columns that come first. A function of the layout alone.
    """
    candidates, seen = [], dict[int, int]()
    for trait in layout.discrete:
        size = _cell_sizes([trait], 1)[0]
        seen[size] = seen.get(size, 0) + 1
        if seen[size] <= 3:  # later columns of the same size would only repeat these
            candidates.append((trait.name, size))
    best, best_cells = [], 0
    for number in (1, 2, 3):
        for chosen in itertools.combinations(candidates, number):
            cells = math.prod(size for _, size in chosen)
            if best_cells < cells <= DEFAULT_CELLS:
                best, best_cells = [name for name, _ in chosen], cells
    return best


def _cell_sizes(traits: Sequence[Trait], bins: int) -> tuple[int, ...]:
    return tuple((bins if trait.is_numeric else len(trait.levels)) + trait.has_nulls for trait in traits)


def _allowed(cells: np.ndarray, traits: Sequence[Trait], bins: int) -> np.ndarray:
    """Which occupied cells are cells of the layout: the codes of nulls and unlisted values come last."""
    return np.all(cells < np.array(_cell_sizes(traits, bins)), axis=1)


def _too_many(cells: int) -> str:
    return f"The columns have {cells} joint cells (at most {MOST_CELLS}). Take fewer columns or bins."


def _no_cells(why: str) -> dict[str, Score]:
    return {"cell_accuracy": Score.none(why), "cell_tv": Score.none(why)}


# --------------------------------------------------------------------------------------------------------- associations


def correlations(real: Judged, synthetic: Judged) -> Result:
    """How far the associations of all pairs of columns differ.

    Two numeric columns: Pearson's correlation, with its sign, of the rows where both have a finite value. Two discrete
    columns: Cramer's V, not corrected for bias. One of each: the correlation ratio (eta). Nulls and unlisted values are
    levels of a discrete column. A pair in which either table has a constant column is left out.
    """
    matrices = [_associations(real), _associations(synthetic)]
    upper = np.triu_indices(len(real.layout.names), 1)
    differences = np.abs(matrices[0] - matrices[1])[upper]
    defined = differences[~np.isnan(differences)]
    left_out = len(differences) - len(defined)
    mean, largest = _mean_and_max(defined.tolist(), "There is no pair of columns that vary in both tables.")
    return Result(
        scores={"corr_diff": mean, "corr_diff_max": largest},
        settings={**_rows(real, synthetic), "pairs": len(defined), "pairs_left_out": left_out},
        details={
            "columns": list(real.layout.names),
            "real": _matrix(matrices[0]),
            "synthetic": _matrix(matrices[1]),
        },
        notes=(f"{left_out} of {len(differences)} pairs were left out: a column is constant.",) if left_out else (),
    )


def _associations(table: Judged) -> Float[np.ndarray, "columns columns"]:
    """NaN where undefined; ones on the diagonal."""
    traits = table.layout.traits
    numeric = [axis for axis, trait in enumerate(traits) if trait.is_numeric]
    discrete = [axis for axis, trait in enumerate(traits) if not trait.is_numeric]
    out = np.full((len(traits), len(traits)), np.nan)
    if numeric:
        out[np.ix_(numeric, numeric)] = _pearson([table[traits[axis].name] for axis in numeric])
    codes = {axis: table[traits[axis].name] for axis in discrete}
    for a, b in itertools.combinations(discrete, 2):
        out[a, b] = out[b, a] = _cramers_v(codes[a], codes[b], len(traits[a].levels) + 2, len(traits[b].levels) + 2)
    for axis in numeric:
        values = _centred(table[traits[axis].name])
        known = ~np.isnan(values)
        rows = slice(None) if known.all() else known
        for other in discrete:
            out[axis, other] = out[other, axis] = _correlation_ratio(values[rows], codes[other][rows])
    np.fill_diagonal(out, 1.0)
    return out


def _pearson(columns: Sequence[np.ndarray]) -> Float[np.ndarray, "columns columns"]:
    """Of each pair's complete rows, from sums over chunks of rows."""
    moments = np.zeros((4, len(columns), len(columns)))
    centred = [_centred(values) for values in columns]
    for start in range(0, len(columns[0]), CHUNK_ROWS):
        x = np.stack([values[start : start + CHUNK_ROWS] for values in centred], axis=1)
        known = ~np.isnan(x)
        x, there = np.nan_to_num(x), known.astype(np.float64)
        moments += np.stack([there.T @ there, x.T @ there, (x * x).T @ there, x.T @ x])
    rows, sums, squares, products = moments
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = squares - sums**2 / rows
        spread[spread <= 1e-12 * squares] = np.nan  # constant on these rows, up to rounding
        return np.clip((products - sums * sums.T / rows) / np.sqrt(spread * spread.T), -1.0, 1.0)


def _centred(values: np.ndarray) -> Float[np.ndarray, " rows"]:
    """About the mean and over the range, so that no column's scale spoils the sums; NaN where not finite."""
    finite = np.isfinite(values)
    if not finite.any():
        return np.full(len(values), np.nan)
    known = values[finite]
    width = known.max() - known.min()
    with np.errstate(invalid="ignore"):
        scaled = (values - known.mean()) / width if width > 0 else np.zeros(len(values))
    return np.where(finite, scaled, np.nan)


def _cramers_v(a: np.ndarray, b: np.ndarray, a_size: int, b_size: int) -> float:
    a_counts, b_counts = np.bincount(a, minlength=a_size), np.bincount(b, minlength=b_size)
    least = min(np.count_nonzero(a_counts), np.count_nonzero(b_counts)) - 1
    if least < 1:
        return math.nan
    if a_size * b_size <= DENSE_CELLS:
        counts = dense_counts((a, b), (a_size, b_size))
        cells = np.flatnonzero(counts)
        counts = counts[cells]
    else:
        cells, counts = np.unique(joint_keys([(a, b)], (a_size, b_size))[0], return_counts=True)
    expected = a_counts[cells // b_size].astype(np.float64) * b_counts[cells % b_size]
    return math.sqrt(max(0.0, float((counts.astype(np.float64) ** 2 / expected).sum()) - 1) / least)


def _correlation_ratio(values: np.ndarray, codes: np.ndarray) -> float:
    """The square root of the share of the variance that lies between the levels; values are centred and known."""
    counts = np.bincount(codes)
    if np.count_nonzero(counts) < 2 or np.ptp(values) == 0:
        return math.nan
    sums = np.bincount(codes, weights=values)
    total = float(values @ values) - float(sums.sum()) ** 2 / len(values)
    between = float((sums[counts > 0] ** 2 / counts[counts > 0]).sum()) - float(sums.sum()) ** 2 / len(values)
    return math.sqrt(min(1.0, max(0.0, between / total)))


# --------------------------------------------------------------------------------------------------- every single level


def dimension_probability(real: Judged, synthetic: Judged) -> Result:
    """The share of each level of the discrete columns in both tables, as points that should lie on the diagonal.

    A column of two levels and no nulls gives one point, that of its second level; of others nulls are a level too.
    """
    points = list(_level_shares(real, synthetic))
    keys = ("dwp_rmse", "dwp_sum_squares", "dwp_mean_abs", "dwp_correlation", "dwp_zero_share")
    settings = {**_rows(real, synthetic), "points": len(points)}
    if not points:
        none = Score.none("There is no discrete column, so there are no levels to compare.")
        return Result(scores=dict.fromkeys(keys, none), settings=settings, details={"points": []})
    p, s = np.array([[point[2], point[3]] for point in points]).T
    if np.ptp(p) > 0 and np.ptp(s) > 0:
        correlation = Score(float(np.clip(np.corrcoef(p, s)[0, 1], -1.0, 1.0)))
    else:
        correlation = Score.none("All levels are equally frequent in one of the tables.")
    zero_share = Score(float((s[p > 0] == 0).mean())) if (p > 0).any() else Score.none("No level occurs in real rows.")
    squares = (p - s) ** 2
    scores = (
        Score(math.sqrt(squares.mean())),
        Score(float(squares.sum())),
        Score(float(np.abs(p - s).mean())),
        correlation,
        zero_share,
    )
    named = [dict(zip(("column", "level", "real", "synthetic"), point, strict=True)) for point in points]
    return Result(scores=dict(zip(keys, scores, strict=True)), settings=settings, details={"points": named})


def _level_shares(real: Judged, synthetic: Judged) -> Iterator[tuple[str, str, float, float]]:
    for trait in real.layout.discrete:
        units = len(trait.levels) + trait.has_nulls
        p, s = (np.bincount(table[trait.name], minlength=units) / table.num_rows for table in (real, synthetic))
        for unit in range(1 if trait.is_binary else 0, units):
            yield trait.name, trait.labels[unit], float(p[unit]), float(s[unit])


# ------------------------------------------------------------------------------------------------------------- in words


def _metric(
    key: str,
    title: str,
    high: float,
    meaning: str,
    *,
    low: float = 0.0,
    direction: str = LOWER,
    same_as: str = "",
) -> Metric:
    return Metric(key=key, title=title, direction=direction, low=low, high=high, meaning=meaning, same_as=same_as)


METRICS: tuple[Metric, ...] = (
    _metric(
        "tv1",
        "Histogram distance, one column",
        1.0,
        "The share of rows that would have to move to another cell to give a column its real histogram, on average over"
        " columns. 0: the same histograms.",
    ),
    _metric("tv1_max", "Worst histogram distance, one column", 1.0, "The same for the column that is worst."),
    _metric(
        "jsd1",
        "Jensen-Shannon divergence, one column",
        1.0,
        "How much one cell tells about whether a row is real, in bits, on average over columns. 0: nothing.",
    ),
    _metric(
        "ks",
        "Kolmogorov-Smirnov distance",
        1.0,
        "The largest gap between the real and the synthetic share of rows below any one value, on average over numeric"
        " columns.",
    ),
    _metric(
        "w1",
        "Wasserstein distance, one column",
        1.0,
        "How far values must move to match the real ones, as a share of the column's range, on average over numeric"
        " columns.",
    ),
    _metric(
        "tv2",
        "Histogram distance, two columns",
        1.0,
        "The share of rows that would have to move to give a pair of columns its real joint histogram, on average over"
        " all pairs. Fresh real rows do not reach 0 either.",
    ),
    _metric("tv2_max", "Worst histogram distance, two columns", 1.0, "The same for the pair that is worst."),
    _metric(
        "tv3",
        "Histogram distance, three columns",
        1.0,
        "The same for triples of columns, on average over random ones. Compare with fresh real rows: many cells hold"
        " few rows.",
    ),
    _metric(
        "k_way",
        "Distance of a joint marginal",
        math.inf,
        "How far the joint histogram of the chosen columns is from the real one; the settings name the distance.",
    ),
    _metric(
        "nist_l1",
        "NIST three-way distance",
        2.0,
        "The sum of all differences of a three-column histogram with 100 bins, on average over random triples. 2: no"
        " cell in common.",
    ),
    _metric(
        "nist_score",
        "NIST three-way score",
        1.0,
        "1 less half of that distance.",
        direction=HIGHER,
        same_as="nist_l1",
    ),
    _metric(
        "nist_points",
        "NIST points",
        1e6,
        "The NIST score in millionths, as in the contest.",
        direction=HIGHER,
        same_as="nist_l1",
    ),
    _metric(
        "cell_accuracy",
        "Cell accuracy",
        1.0,
        "1 less the mean difference of shares over all cells of a table of counts, empty ones included. It is close to"
        " 1 wherever there are many cells: read the next line too.",
        direction=HIGHER,
    ),
    _metric("cell_tv", "Histogram distance of those cells", 1.0, "The share of rows in the wrong cell of that table."),
    _metric(
        "corr_diff",
        "Difference of correlations",
        2.0,
        "How far the strength of association of two columns is from the real one, on average over all pairs.",
    ),
    _metric("corr_diff_max", "Worst difference of correlations", 2.0, "The same for the pair that is worst."),
    _metric(
        "dwp_rmse",
        "Level frequencies: root mean square error",
        1.0,
        "The typical difference of a level's share of rows from its real share, over all levels of discrete columns.",
    ),
    _metric(
        "dwp_sum_squares",
        "Level frequencies: sum of squares",
        math.inf,
        "The squared differences of all levels' shares, added up. Grows with the number of levels.",
        same_as="dwp_rmse",
    ),
    _metric(
        "dwp_mean_abs", "Level frequencies: mean difference", 1.0, "The mean difference of a level's share of rows."
    ),
    _metric(
        "dwp_correlation",
        "Level frequencies: correlation",
        1.0,
        "Whether levels that are frequent in real rows are frequent in synthetic rows. 1: in proportion.",
        low=-1.0,
        direction=HIGHER,
    ),
    _metric(
        "dwp_zero_share",
        "Levels lost",
        1.0,
        "The share of levels that occur in real rows and in no synthetic row.",
    ),
)
