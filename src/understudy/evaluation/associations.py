"""Associations between pairs of columns: Pearson's correlation, Cramer's V and the correlation ratio."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from understudy.evaluation import counting
from understudy.evaluation.scores import Result
from understudy.evaluation.table import EncodedTable


def correlations(real: EncodedTable, synthetic: EncodedTable) -> Result:
    """How far the associations of all pairs of columns differ.

    Two numeric columns: Pearson's correlation, with its sign, over the rows where both are finite. Two discrete
    columns: Cramer's V without bias correction. One of each: the correlation ratio (eta). Nulls and unlisted values are
    categories of a discrete column. Pairs with a column that is constant in either table are excluded.
    """
    matrices = [_associations(real), _associations(synthetic)]
    upper = np.triu_indices(len(real.layout.names), 1)
    differences = np.abs(matrices[0] - matrices[1])[upper]
    defined = differences[~np.isnan(differences)]
    excluded = len(differences) - len(defined)
    mean, largest = counting.mean_and_max(defined.tolist(), "No pair of columns varies in both tables.")
    return Result(
        scores={"corr_diff": mean, "corr_diff_max": largest},
        settings={**counting.row_counts(real, synthetic), "pairs": len(defined), "pairs_excluded": excluded},
        details={
            "columns": list(real.layout.names),
            "real": counting.round_matrix(matrices[0]),
            "synthetic": counting.round_matrix(matrices[1]),
        },
        notes=(f"{excluded} of {len(differences)} pairs were excluded: a column is constant.",) if excluded else (),
    )


def _associations(table: EncodedTable) -> Float[np.ndarray, "columns columns"]:
    """NaN where undefined; ones on the diagonal."""
    specs = table.layout.columns
    numeric = [axis for axis, spec in enumerate(specs) if spec.is_numeric]
    discrete = [axis for axis, spec in enumerate(specs) if not spec.is_numeric]
    out = np.full((len(specs), len(specs)), np.nan)
    if numeric:
        out[np.ix_(numeric, numeric)] = _pearson([table[specs[axis].name] for axis in numeric])
    codes = {axis: table[specs[axis].name] for axis in discrete}
    for a, b in itertools.combinations(discrete, 2):
        out[a, b] = out[b, a] = _cramers_v(
            codes[a], codes[b], len(specs[a].categories) + 2, len(specs[b].categories) + 2
        )
    for axis in numeric:
        values = _centre(table[specs[axis].name])
        known = ~np.isnan(values)
        rows = slice(None) if known.all() else known
        for other in discrete:
            out[axis, other] = out[other, axis] = _correlation_ratio(values[rows], codes[other][rows])
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


def _correlation_ratio(values: np.ndarray, codes: np.ndarray) -> float:
    """The square root of the fraction of the variance between categories; values are centred, without NaN."""
    counts = np.bincount(codes)
    if np.count_nonzero(counts) < 2 or np.ptp(values) == 0:
        return math.nan
    sums = np.bincount(codes, weights=values)
    total = float(values @ values) - float(sums.sum()) ** 2 / len(values)
    between = float((sums[counts > 0] ** 2 / counts[counts > 0]).sum()) - float(sums.sum()) ** 2 / len(values)
    return math.sqrt(min(1.0, max(0.0, between / total)))
