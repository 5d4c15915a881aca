"""Distances between the 1-, 2- and 3-way marginals of two tables."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np
from jaxtyping import Float
from scipy import stats

from understudy.errors import ConfigError
from understudy.evaluation import counting
from understudy.evaluation.counting import Grid
from understudy.evaluation.scores import Result, Score, echo_settings, no_scores
from understudy.evaluation.table import ColumnSpec, EncodedTable

MAX_REDRAWS, BOOTSTRAP_ROWS = 100, 20_000
"""Limits of the bootstrap: more redraws or rows would hardly change the error."""
WORST = 10
"""How many of the worst marginals the details name."""


@echo_settings
def one_way(
    real: EncodedTable, synthetic: EncodedTable, *, bins: int = 50, bootstrap: int = 0, seed: int = 0
) -> Result:
    """Each column's histogram against the real one; numeric and ordinal columns also by KS and 1-Wasserstein distance.

    `bootstrap`: the number of redraws of whole rows (at most 100, over at most 20,000 rows of each table) that estimate
    the standard error of the mean total variation ("a bag of little bootstraps", Kleiner et al., 2014). KS and
    Wasserstein exclude nulls; Wasserstein is on values scaled to [0, 1] and clipped, or on ranks scaled to [0, 1].
    """
    grid = Grid.of(real, synthetic, bins)
    columns = {
        spec.name: _one_column(real, synthetic, spec, *map(counting.frequencies, grid.counts([axis])), bins=bins)
        for axis, spec in enumerate(real.layout.columns)
    }
    tv, jsd, ks, w1 = (
        [cast(float, column[key]) for column in columns.values() if column[key] is not None]
        for key in ("tv", "jsd", "ks", "w1")
    )
    mean, largest = counting.mean_and_max(tv, "")
    if bootstrap:
        mean = Score(mean.value, _bootstrap_error(grid, bootstrap, seed))
    no_numbers = "There is no numeric column with values in both tables."
    return Result(
        scores={
            "tv1": mean,
            "tv1_max": largest,
            "jsd1": Score(float(np.mean(jsd))),
            "ks": counting.mean_and_max(ks, no_numbers)[0],
            "w1": counting.mean_and_max(w1, no_numbers)[0],
        },
        settings={
            "bootstrap": min(bootstrap, MAX_REDRAWS),
            "bootstrap_rows": [min(table.num_rows, BOOTSTRAP_ROWS) for table in (real, synthetic)],
        },
        details={"columns": columns},
    )


def _one_column(
    real: EncodedTable, synthetic: EncodedTable, spec: ColumnSpec, p: np.ndarray, q: np.ndarray, *, bins: int
) -> dict[str, object]:
    """The details of one column."""
    distances: dict[str, object] = {
        "tv": counting.total_variation(p, q),
        "jsd": counting.jensen_shannon(p, q),
        "ks": None,
        "w1": None,
    }
    if not spec.is_numeric:
        count = len(spec.categories)
        if spec.is_ordinal and min(p[:count].sum(), q[:count].sum()) > 0:
            gaps = np.abs(np.cumsum(p[:count] / p[:count].sum()) - np.cumsum(q[:count] / q[:count].sum()))[:-1]
            distances |= {"ks": float(gaps.max()), "w1": float(gaps.mean())}
        return {
            "kind": "discrete",
            "labels": list(spec.labels[:count]),
            "real": p[:count].tolist(),
            "synthetic": q[:count].tolist(),
            "missing": [float(p[count]), float(q[count])],
            "unlisted": [float(p[count + 1]), float(q[count + 1])],
            **distances,
        }
    values = [table.scale(spec.name)[~np.isnan(table[spec.name])] for table in (real, synthetic)]
    if len(values[0]) and len(values[1]):
        with np.errstate(divide="ignore", invalid="ignore"):  # in the p-value of very few rows, which is not used
            distances["ks"] = float(stats.ks_2samp(*values, method="asymp").statistic)
        distances["w1"] = float(stats.wasserstein_distance(*(np.clip(each, 0.0, 1.0) for each in values)))
    edges, shown = [*np.linspace(spec.lower, spec.upper, bins + 1)], [p[:-1], q[:-1]]
    if spec.kind != "real":
        edges, shown = _integer_histogram([real, synthetic], spec, bins)
    return {
        "kind": "numeric",
        "type": spec.kind,
        "edges": edges,
        "real": shown[0].tolist(),
        "synthetic": shown[1].tolist(),
        "missing": [float(p[-1]), float(q[-1])],
        **distances,
    }


def _integer_histogram(
    tables: Sequence[EncodedTable], spec: ColumnSpec, bins: int
) -> tuple[list[float], list[np.ndarray]]:
    """A histogram for plots: every bin holds the same number of integers, otherwise it would look like a comb."""
    width = math.ceil((spec.upper - spec.lower + 1) / bins)
    num_bins = math.ceil((spec.upper - spec.lower + 1) / width)
    counts = []
    for table in tables:
        values = table[spec.name][~np.isnan(table[spec.name])]
        codes = np.clip((values - spec.lower) // width, 0, num_bins - 1).astype(np.int64)
        counts.append(np.bincount(codes, minlength=num_bins) / table.num_rows)
    return [spec.lower - 0.5 + width * code for code in range(num_bins + 1)], counts


def _bootstrap_error(grid: Grid, draws: int, seed: int) -> float | None:
    """The standard error of the mean total variation over columns.

    Columns are dependent, so whole rows are redrawn. Redraws of a large table come from a subsample of its rows, but
    number as many as all rows, so that their spread is that of the whole table.
    """
    if draws < 2:
        return None  # a single draw has no spread
    # A stream of its own: tables are often generated with the same small seed, and would follow the plain stream.
    generator = np.random.default_rng([seed, 2])
    tables = [_some_codes(codes, generator) for codes in (grid.real, grid.synthetic)]
    sizes = [len(grid.real[0]), len(grid.synthetic[0])]
    means = np.zeros(min(draws, MAX_REDRAWS))
    for draw in range(len(means)):
        weights = [
            generator.multinomial(size, np.full(len(codes[0]), 1 / len(codes[0]))) / size
            for codes, size in zip(tables, sizes, strict=True)
        ]
        for axis, cells in enumerate(grid.sizes):
            p, q = (
                np.bincount(codes[axis], weight, minlength=cells) for codes, weight in zip(tables, weights, strict=True)
            )
            means[draw] += counting.total_variation(p, q) / len(grid.sizes)
    return float(np.std(means, ddof=1))


def _some_codes(codes: Sequence[np.ndarray], generator: np.random.Generator) -> list[np.ndarray]:
    """The codes of at most `BOOTSTRAP_ROWS` rows, in the type that counting takes."""
    count = len(codes[0])
    rows = slice(None) if count <= BOOTSTRAP_ROWS else generator.choice(count, BOOTSTRAP_ROWS, replace=False)
    return [column[rows].astype(np.intp) for column in codes]


@echo_settings
def two_way(real: EncodedTable, synthetic: EncodedTable, *, bins: int = 20) -> Result:
    """Total variation of every pair of columns."""
    grid = Grid.of(real, synthetic, bins)
    count = len(grid.names)
    pairs: dict[tuple[int, ...], float] = {axes: grid.tv(axes) for axes in itertools.combinations(range(count), 2)}
    matrix = np.diag([grid.tv([axis]) for axis in range(count)])
    for axes, tv in pairs.items():
        matrix[axes] = matrix[axes[::-1]] = tv
    mean, largest = counting.mean_and_max(list(pairs.values()), "The table has only one column, so there are no pairs.")
    return Result(
        scores={"tv2": mean, "tv2_max": largest},
        details={"columns": list(grid.names), "tv": counting.round_matrix(matrix), "worst": _worst(pairs, grid.names)},
    )


@echo_settings
def three_way(
    real: EncodedTable, synthetic: EncodedTable, *, bins: int = 20, num_triples: int = 100, seed: int = 0
) -> Result:
    """Mean total variation over distinct random triples of columns, or over all if there are no more."""
    grid = Grid.of(real, synthetic, bins)
    triples = {axes: grid.tv(axes) for axes in _triples(grid.names, num_triples, seed)}
    return Result(
        scores={"tv3": counting.mean_and_max(list(triples.values()), _NO_TRIPLES)[0]},
        details={"triples": len(triples), "worst": _worst(triples, grid.names)},
    )


_NO_TRIPLES = "The table has fewer than three columns, so there are no 3-way marginals."


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
    return [tuple(order[index] for index in triple) for triple in drawn]


def _worst(distances: Mapping[tuple[int, ...], float], names: Sequence[str]) -> list[dict[str, object]]:
    first = sorted(distances, key=lambda axes: -distances[axes])[:WORST]
    return [{"columns": [names[axis] for axis in axes], "tv": round(distances[axes], 5)} for axes in first]


@echo_settings
def nist(
    real: EncodedTable, synthetic: EncodedTable, *, bins: int = 100, num_triples: int = 100, seed: int = 0
) -> Result:
    """The 3-way score of the NIST challenge: mean L1 distance over random triples of columns.

    A number v has the bin floor(bins * (v - min) / (max - min)), where min and max are those of the real rows: so the
    largest value has a bin of its own, and values outside have bins below 0 or above `bins`. A constant column has one
    bin, and nulls have their own.
    """
    if bins < 1:
        raise ConfigError(f"bins must be at least 1, found {bins}.")
    grid = Grid.from_codes(real.layout.names, [_nist_codes(real, synthetic, t, bins) for t in real.layout.columns])
    triples = {axes: 2 * grid.tv(axes) for axes in _triples(grid.names, num_triples, seed)}
    if not triples:
        return no_scores("nist", _NO_TRIPLES)
    distance = float(np.mean(list(triples.values())))
    score = 1 - distance / 2
    return Result(
        scores={"nist_l1": Score(distance), "nist_score": Score(score), "nist_points": Score(1e6 * score)},
        details={"triples": len(triples)},
    )


def _nist_codes(
    real: EncodedTable, synthetic: EncodedTable, spec: ColumnSpec, bins: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Codes of both tables and their number: bins 0 to `bins`, then nulls, then the outside bins that occur."""
    if not spec.is_numeric:
        return real[spec.name], synthetic[spec.name], len(spec.categories) + 2
    inside = real[spec.name][np.isfinite(real[spec.name])]
    lower, upper = (inside.min(), inside.max()) if len(inside) else (0.0, 0.0)
    codes = [_nist_bins(table[spec.name], float(lower), float(upper), bins) for table in (real, synthetic)]
    outside = np.unique(np.concatenate([part[(part < 0) | (part > bins)] for part in codes]))
    known = np.concatenate([np.arange(bins + 1.0), [np.nan], outside])
    order = np.argsort(known)  # NaN comes last
    ours, theirs = (order[np.searchsorted(known, part, sorter=order)] for part in codes)
    return ours, theirs, len(known)


def _nist_bins(values: np.ndarray, lower: float, upper: float, bins: int) -> Float[np.ndarray, " rows"]:
    """By the formula, as integral floats: an infinity is a bin too, and NaN stays."""
    if upper <= lower:
        return np.where(np.isnan(values), np.nan, 0.0)
    with np.errstate(over="ignore"):
        return np.floor(bins * (values - lower) / (upper - lower))


@echo_settings
def dimension_probability(real: EncodedTable, synthetic: EncodedTable) -> Result:
    """Dimension-wise probability: each category's frequency in both tables, as points that should be on the diagonal.

    A column of two categories and no nulls gives one point, that of its second category; in others nulls are a category
    too.
    """
    points = list(_category_frequencies(real, synthetic))
    settings = {"points": len(points)}
    if not points:
        why = "There is no discrete column, so there are no categories to compare."
        return no_scores("dimension_probability", why, settings=settings)
    p, s = np.array([[point[2], point[3]] for point in points]).T
    if np.ptp(p) > 0 and np.ptp(s) > 0:
        correlation = Score(float(np.clip(np.corrcoef(p, s)[0, 1], -1.0, 1.0)))
    else:
        correlation = Score.none("All categories are equally frequent in one of the tables.")
    lost = Score(float((s[p > 0] == 0).mean())) if (p > 0).any() else Score.none("No category occurs in real rows.")
    squares = (p - s) ** 2
    scores = {
        "dwp_rmse": Score(math.sqrt(squares.mean())),
        "dwp_sum_squares": Score(float(squares.sum())),
        "dwp_mean_abs": Score(float(np.abs(p - s).mean())),
        "dwp_correlation": correlation,
        "dwp_zero_share": lost,
    }
    named = [dict(zip(("column", "category", "real", "synthetic"), point, strict=True)) for point in points]
    return Result(scores=scores, settings=settings, details={"points": named})


def _category_frequencies(real: EncodedTable, synthetic: EncodedTable) -> Iterator[tuple[str, str, float, float]]:
    for spec in real.layout.discrete:
        count = len(spec.categories) + spec.has_nulls
        p, s = (np.bincount(table[spec.name], minlength=count) / table.num_rows for table in (real, synthetic))
        for code in range(1 if spec.is_binary else 0, count):
            yield spec.name, spec.labels[code], float(p[code]), float(s[code])
