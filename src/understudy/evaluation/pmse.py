"""How well a classifier tells synthetic rows from real ones: the propensity score mean squared error (pMSE).

Stack the tables, fit the share of synthetic rows given the values, and average its squared distance from the overall
share c = n2 / N: 0 where nothing tells the tables apart, c (1 - c) where everything does. Snoke, Raab, Nowok, Dibben
and Slavkovic, "General and specific utility measures for synthetic data" (2018).
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import linalg, sparse
from scipy.special import expit
from sklearn.tree import DecisionTreeClassifier

from understudy.errors import ConfigError
from understudy.evaluation.judged import Judged, Layout
from understudy.evaluation.scores import LOWER, NEAR_ONE, NEAR_ZERO, Metric, Result, Score
from understudy.evaluation.threads import in_threads

RIDGE = 1e-6
"""Keeps the coefficients finite where the tables are perfectly separated; on columns of unit variance."""
MAX_ITERATIONS = 200
ALIASED = 1e-9
"""A column is a combination of others when they leave less than this share of its variance."""
MAX_COLUMNS = 10_000
"""Beyond this the matrix of second derivatives would take gigabytes."""
ROWS_PER_COLUMN = 10
"""With fewer rows for each coefficient the fit follows chance, and its expectation under the right model is off."""
FAR = 1e6
"""Scaled numbers beyond this many ranges are held here, so that their squares stay finite."""

METRICS = (
    Metric(
        key="pmse_logit",
        title="pMSE, logistic regression",
        direction=LOWER,
        low=0.0,
        high=0.25,
        meaning="How well a logistic regression tells synthetic rows from real ones: 0 if it cannot, 0.25 if it always "
        "can (with tables of equal size).",
    ),
    Metric(
        key="pmse_logit_ratio",
        title="pMSE ratio, logistic regression",
        direction=NEAR_ONE,
        low=0.0,
        high=math.inf,
        meaning="The pMSE, divided by what chance alone would give if the synthetic rows came from the right model, "
        "fitted to the real ones. Values near 1 are best; values well below 1 suggest that real rows were copied. "
        "Fresh real rows score about 1 / (1 - c), with c their share of all rows: 2 if both tables are equally large.",
    ),
    Metric(
        key="pmse_logit_standardised",
        title="pMSE standardised, logistic regression",
        direction=NEAR_ZERO,
        low=-math.inf,
        high=math.inf,
        meaning="By how many standard deviations the pMSE exceeds what chance alone would give under the right model.",
    ),
    Metric(
        key="pmse_cart",
        title="pMSE, classification tree",
        direction=LOWER,
        low=0.0,
        high=0.25,
        meaning="How well a classification tree, which sees how columns act together, tells synthetic rows from real "
        "ones: 0 if it cannot, 0.25 if it always can (with tables of equal size).",
    ),
    Metric(
        key="pmse_cart_ratio",
        title="pMSE ratio, classification tree",
        direction=NEAR_ONE,
        low=0.0,
        high=math.inf,
        meaning="The pMSE of the tree, divided by its mean when the labels are shuffled. Values near 1 mean that the "
        "tables look like two samples of one population; values well below 1 suggest that real rows were copied.",
    ),
    Metric(
        key="pmse_cart_standardised",
        title="pMSE standardised, classification tree",
        direction=NEAR_ZERO,
        low=-math.inf,
        high=math.inf,
        meaning="By how many standard deviations the pMSE of the tree exceeds its mean when the labels are shuffled.",
    ),
)

Null = Literal["permutation", "permutation_scaled", "pairs"]


def pmse_logit(
    real: Judged, synthetic: Judged, *, maxorder: int = 0, max_rows: int | None = None, seed: int = 0
) -> Result:
    """The pMSE of a logistic regression on all columns, `maxorder=1`: and on all products of pairs of variables.

    With k coefficients, intercept included, and rows drawn from the right model fitted to the real ones the expectation
    is (k - 1)(1 - c)^2 c / N, the standard deviation sqrt(2 (k - 1)) (1 - c)^2 c / N: N^4 pMSE / (n1^2 n2) is
    chi-square with k - 1 degrees of freedom.
    """
    if maxorder not in (0, 1):
        raise ConfigError(f"maxorder must be 0 (main effects) or 1 (and pairs), found {maxorder}.")
    # One seed for both: a copy of the real table then stays a copy.
    real, synthetic = real.at_most(max_rows, seed=seed), synthetic.at_most(max_rows, seed=seed)
    labels = _labels(real, synthetic)
    settings = {
        "maxorder": maxorder,
        "max_rows": max_rows,
        "seed": seed,
        "ridge": RIDGE,
        "max_iterations": MAX_ITERATIONS,
        "real_rows": real.num_rows,
        "synthetic_rows": synthetic.num_rows,
    }
    blocks = [block[:, 1:] if reference else block for block, reference in _blocks([real, synthetic])]
    design = _standardised(_with_products(blocks) if maxorder else sparse.hstack(blocks, format="csr"))
    if design.shape[1] > MAX_COLUMNS:
        why = f"The regression would have {design.shape[1]} columns, more than {MAX_COLUMNS}."
        keys = ("pmse_logit", "pmse_logit_ratio", "pmse_logit_standardised")
        return Result(scores=dict.fromkeys(keys, Score.none(why)), settings=settings)
    design = design[:, _independent(design)]
    fit = _fit_logit(design, labels)
    share, num_rows, num_slopes = float(labels.mean()), len(labels), design.shape[1]
    unit = (1 - share) ** 2 * share / num_rows
    pmse = float(np.mean((fit.fitted - share) ** 2))
    expected, spread = num_slopes * unit, math.sqrt(2 * num_slopes) * unit
    why = ""
    if not num_slopes:
        why = "No column varies, so there is nothing that could tell the tables apart."
    elif num_slopes > num_rows / ROWS_PER_COLUMN:
        why = (
            f"{num_slopes:,} coefficients for {num_rows:,} rows are more than one for {ROWS_PER_COLUMN}: what the right"
            " model would score is not known then."
        )
    elif fit.separates:
        why = "The tables are told apart perfectly, so the pMSE is at its end and no ratio means anything."
    return Result(
        scores={
            "pmse_logit": Score(pmse),
            "pmse_logit_ratio": Score.none(why) if why else Score(pmse / expected),
            "pmse_logit_standardised": Score.none(why) if why else Score((pmse - expected) / spread),
        },
        settings=settings,
        details={
            "num_coefficients": num_slopes + 1,
            "expected": expected,
            "sd": spread,
            "iterations": fit.iterations,
        },
        notes=(*_balance_notes(share), *fit.notes),
    )


def allowed_order(layout: Layout, maxorder: int, num_rows: int) -> int:
    """The order of interactions for which so many rows are enough: `maxorder`, or 0.

    By the layout alone, so that it is the same for every table that is compared.
    """
    widths = np.array([1 if t.is_numeric else len(t.levels) - 1 for t in layout.traits]) + [
        int(t.has_nulls) for t in layout.traits
    ]
    columns = int(widths.sum() + (widths.sum() ** 2 - (widths**2).sum()) // 2)
    return maxorder if columns <= min(MAX_COLUMNS, num_rows / ROWS_PER_COLUMN) else 0


def pmse_cart(
    real: Judged,
    synthetic: Judged,
    *,
    cp: float = 1e-4,
    min_bucket: int = 5,
    min_split: int = 15,
    num_permutations: int = 50,
    null: Null = "permutation",
    copies: Sequence[Judged] = (),
    max_rows: int | None = 3000,
    seed: int = 0,
) -> Result:
    """The pMSE of a classification tree, by default over its mean under shuffled labels, as published.

    rpart's complexity `cp` is relative to the root, so it becomes `ccp_alpha = cp * impurity(root)`. Shuffling compares
    two independent samples; "permutation_scaled" multiplies by 1 - c, as for synthetic rows drawn from a model that was
    fitted to the real ones. "pairs" compares `synthetic` and its `copies`, further samples of the same model, with each
    other.
    """
    if null == "pairs" and not copies:
        raise ConfigError('null="pairs" compares synthetic tables with each other: give at least one more as `copies`.')
    real, synthetic, *others = (table.at_most(max_rows, seed=seed) for table in (real, synthetic, *copies))
    tables = [real, synthetic, *others]
    stacked = sparse.hstack([block for block, _ in _blocks(tables)], format="csr", dtype=np.float32).toarray()
    features = np.split(stacked, np.cumsum([table.num_rows for table in tables])[:-1])

    def grow(rows: np.ndarray, labels: Bool[np.ndarray, " rows"]) -> tuple[float, int]:
        return _tree_pmse(rows, labels, cp=cp, min_bucket=min_bucket, min_split=min_split, seed=seed)

    labels, rows = _labels(real, synthetic), np.concatenate(features[:2])
    pmse, num_leaves = grow(rows, labels)
    if null == "pairs":
        pairs = itertools.combinations(features[1:], 2)
        trees = [partial(grow, np.concatenate(pair), np.repeat([False, True], [*map(len, pair)])) for pair in pairs]
    else:
        generator = np.random.default_rng(seed)
        trees = [partial(grow, rows, generator.permutation(labels)) for _ in range(num_permutations)]
    nulls = [null_pmse for null_pmse, _ in in_threads(trees)]
    factor = 1 - labels.mean() if null == "permutation_scaled" else 1.0
    expected = float(np.mean(nulls) * factor) if nulls else 0.0
    spread = float(np.std(nulls, ddof=1) * factor) if len(nulls) > 1 else 0.0
    return Result(
        scores={"pmse_cart": Score(pmse), **_against_null(pmse, expected, spread, len(nulls))},
        settings={
            "cp": cp,
            "min_bucket": min_bucket,
            "min_split": min_split,
            "num_permutations": num_permutations,
            "null": null,
            "num_copies": len(copies),
            "max_rows": max_rows,
            "seed": seed,
            "features": "scaled numbers, indicators of nulls, one column for each level",
            "real_rows": real.num_rows,
            "synthetic_rows": synthetic.num_rows,
        },
        details={"expected": expected, "sd": spread, "num_leaves": num_leaves},
        notes=_balance_notes(labels.mean()),
    )


def _labels(real: Judged, synthetic: Judged) -> Bool[np.ndarray, " rows"]:
    """True for synthetic rows, which come second."""
    return np.repeat([False, True], [real.num_rows, synthetic.num_rows])


def _balance_notes(share: float) -> tuple[str, ...]:
    if abs(share - 0.5) <= 0.1:
        return ()
    return (f"Synthetic rows are {share:.0%} of all: pMSE is comparable only between tables of equal size.",)


def _blocks(tables: Sequence[Judged]) -> list[tuple[sparse.csr_array, bool]]:
    """For each variable its columns over all tables, and whether the first is a reference level that the others imply.

    Every code that occurs has a column, missing and unlisted ones too. The most frequent level comes first: left out as
    the reference, it takes most of the ones with it.
    """
    blocks = []
    for trait in tables[0].layout.traits:
        values = np.concatenate([table[trait.name] for table in tables])
        if trait.is_numeric:
            scaled = np.concatenate([table.scaled(trait.name, clipped=False) for table in tables])
            columns = np.stack([np.clip(scaled, -FAR, FAR), np.isnan(values)], axis=1)
            blocks.append((sparse.csr_array(columns[:, : 1 + np.isnan(values).any()]), False))
        else:
            _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
            places = np.argsort(np.argsort(-counts, kind="stable"))[places]
            cells = (np.arange(len(values)), places)
            blocks.append((sparse.csr_array((np.ones(len(values)), cells), (len(values), len(counts))), True))
    return blocks


def _with_products(blocks: Sequence[sparse.csr_array]) -> sparse.csr_array:
    """All columns, and all products of two from different variables. Sparse, as most products of levels are zero."""
    out = list(blocks)
    for at, block in enumerate(blocks[:-1]):
        later = sparse.hstack(blocks[at + 1 :], format="csr")
        columns = block.tocsc()
        for start, end in itertools.pairwise(columns.indptr):
            rows = columns.indices[start:end]
            scale = sparse.csr_array((columns.data[start:end], (rows, rows)), (block.shape[0],) * 2)
            product = (scale @ later).tocsc()
            out.append(product[:, np.diff(product.indptr) > 0].tocsr())
    return sparse.hstack(out, format="csr")


def _standardised(design: sparse.csr_array) -> sparse.csr_array:
    """Columns of unit variance, not centred, so still sparse; those that do not vary are dropped."""
    means, squares = design.mean(axis=0), (design * design).mean(axis=0)
    varies = squares - means**2 > 1e-12 * squares
    stddevs = np.sqrt((squares - means**2)[varies])
    return (design[:, np.flatnonzero(varies)] @ sparse.diags_array(1 / stddevs)).tocsr()


def _independent(design: sparse.csr_array) -> Int[np.ndarray, " kept"]:
    """Columns that span all others and the intercept: pivoted Cholesky of their correlations, which shows the rank."""
    if not design.shape[1]:
        return np.zeros(0, np.int64)
    means = design.mean(axis=0)
    correlations = _gram(design.T.tocsr(), design, np.full(design.shape[0], 1 / design.shape[0]))
    correlations -= np.outer(means, means)
    _, pivots, rank, _ = linalg.lapack.dpstrf(correlations, tol=ALIASED, overwrite_a=True)
    return np.sort(pivots[:rank] - 1)


def _gram(
    transposed: sparse.csr_array, design: sparse.csr_array, weights: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, "columns columns"]:
    """The weighted sum of outer products of the rows, a slice at a time to bound the memory."""
    weighted = transposed.copy()
    weighted.data *= weights[weighted.indices]
    out = np.empty((design.shape[1],) * 2)
    for at in range(0, len(out), 512):
        out[at : at + 512] = (weighted[at : at + 512] @ design).toarray()
    return out


@dataclasses.dataclass(frozen=True)
class _Fit:
    fitted: Float[np.ndarray, " rows"]
    iterations: int
    separates: bool
    """Whether every synthetic row has a larger fitted share than every real one."""
    notes: tuple[str, ...]


def _fit_logit(slopes: sparse.csr_array, labels: Bool[np.ndarray, " rows"]) -> _Fit:
    """Newton's method (IRLS) from the intercept alone; steps are halved until the penalised likelihood grows.

    Convergence is asked before the first step, so that tables with equal column sums have fitted shares of exactly c.
    """
    num_rows, num_slopes = slopes.shape
    share = labels.mean()
    design = sparse.hstack([sparse.csr_array(np.ones((num_rows, 1))), slopes], format="csr")
    transposed = design.T.tocsr()
    penalty = np.r_[0.0, np.full(num_slopes, RIDGE)]
    weights = np.zeros(num_slopes + 1)
    start = math.log(share / (1 - share))

    def loss(weights: np.ndarray, logits: np.ndarray) -> float:
        return float(np.logaddexp(0, logits).sum() - logits[labels].sum() + penalty @ weights**2 / 2)

    logits, iterations, converged = np.full(num_rows, start), 0, False
    fitted = np.full(num_rows, share)
    while not converged and iterations < MAX_ITERATIONS:
        gradient = transposed @ (labels - fitted) - penalty * weights
        curvature = _gram(transposed, design, fitted * (1 - fitted))
        # The jitter guards the factorisation; it changes the way to the optimum, not the optimum.
        np.fill_diagonal(curvature, curvature.diagonal() * (1 + 1e-12) + penalty)
        step = linalg.solve(curvature, gradient, assume_a="pos", overwrite_a=True)
        converged = gradient @ step < 1e-8  # on the scale of chi-square; one more step squares the distance
        if gradient @ step < 1e-18:  # rounding
            break
        iterations += 1
        before = loss(weights, logits)
        for _ in range(30):
            moved = start + design @ (weights + step)
            if loss(weights + step, moved) <= before:
                break
            step /= 2
        weights, logits = weights + step, moved
        fitted = expit(logits)
    notes = []
    if not converged:
        notes.append(f"The logistic regression did not converge in {MAX_ITERATIONS} iterations.")
    separates = bool(logits[labels].min() > logits[~labels].max())
    if separates:
        notes.append("The logistic regression separates synthetic from real rows perfectly.")
    elif (certain := np.mean(np.minimum(fitted, 1 - fitted) < 1e-5)) > 0:
        notes.append(f"The logistic regression is certain about {certain:.2%} of the rows: values of one table only.")
    return _Fit(fitted, iterations, separates, tuple(notes))


def _tree_pmse(
    rows: np.ndarray, labels: Bool[np.ndarray, " rows"], *, cp: float, min_bucket: int, min_split: int, seed: int
) -> tuple[float, int]:
    """The pMSE of one tree, from the counts in its leaves so that equal shares give exactly 0; and the leaves."""
    share = labels.mean()
    tree = DecisionTreeClassifier(
        ccp_alpha=cp * 2 * share * (1 - share),
        min_samples_leaf=min_bucket,
        min_samples_split=min_split,
        random_state=seed,
    ).fit(rows, labels)
    leaves = tree.apply(rows)
    sizes, hits = np.bincount(leaves), np.bincount(leaves, labels)
    found = hits[leaves] / sizes[leaves]
    return float(np.mean((found - share) ** 2)), int(tree.get_n_leaves())


def _against_null(pmse: float, expected: float, spread: float, num_nulls: int) -> dict[str, Score]:
    if expected == 0:
        ratio = Score.none("The trees of the null comparison never split, so there is no expected value to divide by.")
    else:
        ratio = Score(pmse / expected, pmse / expected**2 * spread / math.sqrt(num_nulls) if num_nulls > 1 else None)
    if spread <= 1e-9 * expected:  # equal values have a spread of rounding
        standardised = Score.none("The values of the null comparison do not vary.")
    else:
        standardised = Score((pmse - expected) / spread)
    return {"pmse_cart_ratio": ratio, "pmse_cart_standardised": standardised}
