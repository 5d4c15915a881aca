"""Associations between pairs of columns: Pearson's correlation, Cramer's V and the correlation ratio."""

import itertools
import math
import weakref
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from understudy.evaluation import counting
from understudy.evaluation.scores import Result, Score, echo_settings
from understudy.evaluation.table import ColumnSpec, EncodedTable

NOTICEABLE = 0.1
"""The weakest association, corrected for chance, that counts as a dependence."""
KEPT, LOST = 0.8, 0.5
"""The fraction of an association that a table must have to have kept it, and below which it has lost it."""
NOTICEABLE_VALUES, FEWEST_ROWS, WORST = 0.2, 10, 10
"""Of single categories: the weakest correlation, the fewest real rows with and without each, and how many are named."""


@echo_settings
def correlations(real: EncodedTable, synthetic: EncodedTable) -> Result:
    """How far the associations of all pairs of columns differ.

    Two numeric columns: Pearson's correlation, with its sign, over the rows where both are finite. Two discrete
    columns: Cramer's V without bias correction. One of each: the correlation ratio (eta). Nulls and unlisted values are
    categories of a discrete column. Pairs with a column that is constant in either table are excluded.
    """
    matrices = [_associations(real), _associations(synthetic)]
    differences = np.abs(matrices[0] - matrices[1])[np.triu_indices(len(real.layout.names), 1)]
    defined = differences[~np.isnan(differences)]
    excluded = len(differences) - len(defined)
    mean, largest = counting.mean_and_max(defined.tolist(), "No pair of columns varies in both tables.")
    return Result(
        scores={"corr_diff": mean, "corr_diff_max": largest},
        settings={"pairs": len(defined), "pairs_excluded": excluded},
        details={
            "columns": list(real.layout.names),
            "real": counting.round_matrix(matrices[0]),
            "synthetic": counting.round_matrix(matrices[1]),
        },
        notes=(f"{excluded} of {len(differences)} pairs were excluded: a column is constant.",) if excluded else (),
    )


def dependences(real: EncodedTable, synthetic: EncodedTable) -> Result:
    """Which dependences between two columns the synthetic table has kept.

    A pair depends if its association in the real table, corrected for chance, is at least `NOTICEABLE`. It is kept if
    the synthetic association is at least `KEPT` of that, with the same sign. Chance: independent columns have a
    squared association of `_chance` on average, which is subtracted from both. Pairs with a column that is constant in
    the synthetic table only have lost all association.

    The details hold the matrices, corrected, and the pairs of single categories whose dependence was lost.
    """
    specs = real.layout.columns
    ours, theirs = (_corrected(_associations(table), table) for table in (real, synthetic))
    theirs = np.where(np.isnan(theirs) & ~np.isnan(ours), 0.0, theirs)
    upper = np.triu_indices(len(specs), 1)
    depends = np.abs(ours[upper]) >= NOTICEABLE  # NaN: False
    fractions = theirs[upper][depends] / ours[upper][depends]
    why = f"No two columns of the real table have an association of at least {NOTICEABLE:g}."
    return Result(
        scores={"dependences_kept": Score(float(np.mean(fractions >= KEPT))) if depends.any() else Score.none(why)},
        settings={
            "dependence_real_rows": real.num_rows,
            "dependence_synthetic_rows": synthetic.num_rows,
            "noticeable": NOTICEABLE,
            "kept": KEPT,
            "lost": LOST,
            "dependences": int(depends.sum()),
        },
        details={
            "columns": list(real.layout.names),
            "kinds": ["numeric" if spec.is_numeric else "discrete" for spec in specs],
            "real": counting.round_matrix(ours),
            "synthetic": counting.round_matrix(theirs),
            "values": _lost_values(real, synthetic),
        },
    )


def _corrected(associations: np.ndarray, table: EncodedTable) -> Float[np.ndarray, "columns columns"]:
    """Associations less what chance alone gives: the square of that of independent columns is subtracted."""
    chances = _chances(table)
    return np.copysign(np.sqrt(np.maximum(associations**2 - chances, 0.0)), associations)


def _chances(table: EncodedTable) -> Float[np.ndarray, "columns columns"]:
    """The expected square of the association of each pair if its columns were independent.

    With r and c occupied categories chi-square has the mean (r - 1)(c - 1), and V^2 is chi-square / (n min(r - 1,
    c - 1)); eta^2 has the mean (r - 1) / n, and the square of Pearson's correlation 1 / n. A numeric column counts as
    one of two categories.
    """
    sizes = [
        1 if spec.is_numeric else max(1, int(np.count_nonzero(np.bincount(table[spec.name]))) - 1)
        for spec in table.layout.columns
    ]
    return np.maximum.outer(sizes, sizes) / table.num_rows


def _lost_values(real: EncodedTable, synthetic: EncodedTable) -> list[dict[str, object]]:
    """The pairs of single categories whose dependence was lost most, one for each pair of columns.

    By the correlation of "a has this category" with "b has that category", which does not shrink if both are rare.
    """
    found = []
    for a, b in itertools.combinations(real.layout.discrete, 2):
        sizes = len(a.categories) + 2, len(b.categories) + 2
        if math.prod(sizes) > counting.DENSE_CELLS:
            continue
        counts = [
            counting.dense_counts((table[a.name], table[b.name]), sizes).reshape(sizes) for table in (real, synthetic)
        ]
        ours, theirs = map(_indicator_correlations, counts)
        margins = counts[0].sum(axis=1, keepdims=True), counts[0].sum(axis=0, keepdims=True)
        enough = [np.minimum(margin, real.num_rows - margin) >= FEWEST_ROWS for margin in margins]
        lost = np.where((ours >= NOTICEABLE_VALUES) & enough[0] & enough[1], ours - theirs, 0.0)
        # Of two values and their opposites, which correlate as much, the rarer ones are named.
        cell = np.unravel_index(np.argmax(lost * (1 - 1e-6 * counts[0] / real.num_rows)), sizes)
        if lost[cell] > 0 and theirs[cell] < LOST * ours[cell]:
            found.append((float(lost[cell]), _value_pair(a, b, cell, counts, (ours[cell], theirs[cell]))))
    found.sort(key=lambda pair: -pair[0])
    return [pair for _, pair in found[:WORST]]


def _indicator_correlations(counts: Int[np.ndarray, "a b"]) -> Float[np.ndarray, "a b"]:
    """Pearson's correlation of each category of a with each of b, as indicators; 0 where one does not vary."""
    p = counts / counts.sum()
    rows, columns = p.sum(axis=1, keepdims=True), p.sum(axis=0, keepdims=True)
    spread = np.sqrt(rows * (1 - rows) * columns * (1 - columns))
    return np.divide(p - rows * columns, spread, out=np.zeros_like(p), where=spread > 0)


def _value_pair(
    a: ColumnSpec, b: ColumnSpec, cell: tuple[np.intp, ...], counts: Sequence[np.ndarray], found: tuple[float, float]
) -> dict[str, object]:
    """Two categories, and how many rows with the rarer one have the other, in both tables."""
    sums = [counts[0].sum(axis=1)[cell[0]], counts[0].sum(axis=0)[cell[1]]]
    given = int(np.argmin(sums))  # the rarer one
    totals = [each.sum(axis=1 - given)[cell[given]] for each in counts]
    fractions = [float(each[cell] / total) if total else None for each, total in zip(counts, totals, strict=True)]
    names, values = (a.name, b.name), (a.labels[cell[0]], b.labels[cell[1]])
    return {
        "columns": [names[given], names[1 - given]],
        "values": [values[given], values[1 - given]],
        "real": found[0],
        "synthetic": found[1],
        "real_fraction": fractions[0],
        "synthetic_fraction": fractions[1],
        "real_rows": int(totals[0]),
    }


_known: "weakref.WeakKeyDictionary[EncodedTable, np.ndarray]" = weakref.WeakKeyDictionary()
"""The associations of tables that are still in use: those of the real one are needed for every synthetic one."""


def _associations(table: EncodedTable) -> Float[np.ndarray, "columns columns"]:
    """NaN where undefined; ones on the diagonal."""
    if table not in _known:
        _known[table] = _compute_associations(table)
    return _known[table]


def _compute_associations(table: EncodedTable) -> Float[np.ndarray, "columns columns"]:
    specs = table.layout.columns
    numeric = [axis for axis, spec in enumerate(specs) if spec.is_numeric]
    discrete = [axis for axis, spec in enumerate(specs) if not spec.is_numeric]
    out = np.full((len(specs), len(specs)), np.nan)
    values = [table[specs[axis].name] for axis in numeric]
    if numeric:
        out[np.ix_(numeric, numeric)] = _pearson(values)
    codes = {axis: table[specs[axis].name] for axis in discrete}
    for a, b in itertools.combinations(discrete, 2):
        out[a, b] = out[b, a] = _cramers_v(
            codes[a], codes[b], len(specs[a].categories) + 2, len(specs[b].categories) + 2
        )
    if numeric and discrete:
        centred = np.stack([_centre(each) for each in values], axis=1)
        known = ~np.isnan(centred)
        centred, known = np.nan_to_num(centred), known.astype(np.float64)
        for axis in discrete:
            out[axis, numeric] = out[numeric, axis] = _correlation_ratios(centred, known, codes[axis])
    np.fill_diagonal(out, 1.0)
    return out


def _pearson(columns: Sequence[np.ndarray]) -> Float[np.ndarray, "columns columns"]:
    """Over each pair's complete rows, from sums over chunks of rows."""
    moments = np.zeros((4, len(columns), len(columns)))
    centred = [_centre(values) for values in columns]
    for start in range(0, len(columns[0]), counting.CHUNK_ROWS):
        x = np.stack([values[start : start + counting.CHUNK_ROWS] for values in centred], axis=1)
        known = ~np.isnan(x)
        x, present = np.nan_to_num(x), known.astype(np.float64)
        moments += np.stack([present.T @ present, x.T @ present, (x * x).T @ present, x.T @ x])
    rows, sums, squares, products = moments
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = squares - sums**2 / rows
        spread[spread <= 1e-12 * squares] = np.nan  # constant on these rows, up to rounding
        return np.clip((products - sums * sums.T / rows) / np.sqrt(spread * spread.T), -1.0, 1.0)


def _centre(values: np.ndarray) -> Float[np.ndarray, " rows"]:
    """Centred at the mean and divided by the range, so that sums keep their precision; NaN where not finite."""
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
    if a_size * b_size <= counting.DENSE_CELLS:
        counts = counting.dense_counts((a, b), (a_size, b_size))
        cells = np.flatnonzero(counts)
        counts = counts[cells]
    else:
        cells, counts = np.unique(counting.joint_keys([(a, b)], (a_size, b_size))[0], return_counts=True)
    expected = a_counts[cells // b_size].astype(np.float64) * b_counts[cells % b_size]
    return math.sqrt(max(0.0, float((counts.astype(np.float64) ** 2 / expected).sum()) - 1) / least)


def _correlation_ratios(
    values: Float[np.ndarray, "rows numbers"], known: Float[np.ndarray, "rows numbers"], codes: np.ndarray
) -> Float[np.ndarray, " numbers"]:
    """For each numeric column the square root of the fraction of its variance between categories.

    The values are centred, and 0 where they are not known. NaN: the known rows have one value or one category.
    """
    rows = sparse.csr_array((np.ones(len(codes)), codes, np.arange(len(codes) + 1)), (len(codes), codes.max() + 1))
    counts, sums = rows.T @ known, rows.T @ values
    squares, means = (values * values).sum(axis=0), sums.sum(axis=0) ** 2 / np.maximum(counts.sum(axis=0), 1.0)
    total = squares - means
    between = np.divide(sums**2, counts, out=np.zeros_like(sums), where=counts > 0).sum(axis=0) - means
    defined = ((counts > 0).sum(axis=0) > 1) & (total > 1e-12 * squares)
    ratios = np.divide(between, total, out=np.full(len(total), np.nan), where=defined)
    return np.sqrt(np.clip(ratios, 0.0, 1.0))
