"""The propensity score mean squared error (pMSE): how well a classifier separates synthetic from real rows.

Stack the tables, fit the probability that a row is synthetic given its values, and average its squared distance from
the overall fraction c = n2 / N: 0 if the tables cannot be separated, c (1 - c) if they can be separated perfectly.
Snoke, Raab, Nowok, Dibben and Slavkovic, "General and specific utility measures for synthetic data" (2018).
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import linalg, optimize, sparse
from scipy.special import expit
from sklearn.tree import DecisionTreeClassifier

from understudy.errors import ConfigError
from understudy.evaluation.counting import row_counts
from understudy.evaluation.parallel import run_in_threads
from understudy.evaluation.scores import Result, Score, echo_settings, no_scores
from understudy.evaluation.table import EncodedTable, Layout

RIDGE = 1e-6
"""L2 penalty on columns of variance 1; keeps the coefficients finite where the tables are perfectly separated."""
MAX_ITERATIONS, GRADIENT = 1000, 1e-6
"""The logistic regression stops after these iterations, or where no derivative, in whitened coordinates, is larger."""
ALIASED = 1e-9
"""A column is aliased when the others leave less than this fraction of its variance unexplained."""
MAX_COLUMNS = 10_000
"""Beyond this the Hessian would take gigabytes."""
ROWS_PER_COLUMN = 10
"""With fewer rows per coefficient the fit follows chance, and the expectation under a correct model does not hold."""
MIN_BUCKET, MIN_SPLIT = 5, 15
"""The fewest rows in a leaf of a tree, and in a node that is split."""
FAR = 1e6
"""Scaled numbers are clipped to this many ranges, so that their squares stay finite."""


@echo_settings
def pmse_logit(
    real: EncodedTable, synthetic: EncodedTable, *, maxorder: int = 0, max_rows: int | None = None, seed: int = 0
) -> Result:
    """The pMSE of a logistic regression on all columns and, with `maxorder=1`, all products of two variables.

    With k coefficients, intercept included, and rows sampled from a correct model fitted to the real ones, the
    expectation is (k - 1)(1 - c)^2 c / N and the standard deviation sqrt(2 (k - 1)) (1 - c)^2 c / N: N^4 pMSE /
    (n1^2 n2) is chi-square with k - 1 degrees of freedom.
    """
    if maxorder not in (0, 1):
        raise ConfigError(f"maxorder must be 0 (main effects) or 1 (and pairs), found {maxorder}.", setting="maxorder")
    # One seed for both: a copy of the real table then stays a copy.
    real, synthetic = real.at_most(max_rows, seed=seed), synthetic.at_most(max_rows, seed=seed)
    labels = _labels(real, synthetic)
    settings = {"ridge": RIDGE, "max_iterations": MAX_ITERATIONS, **row_counts(real, synthetic)}
    blocks = [block[:, 1:] if reference else block for block, reference in _blocks([real, synthetic])]
    design = _standardise(_with_products(blocks) if maxorder else sparse.hstack(blocks, format="csr"))
    if design.shape[1] > MAX_COLUMNS:
        why = f"The regression would have {design.shape[1]:,} columns, more than {MAX_COLUMNS:,}."
        return no_scores("pmse_logit", why, settings=settings)
    gram = _gram(design)
    kept = _independent_columns(design, gram)
    design = design[:, kept]
    fit = _fit_logit(design, labels, gram[np.ix_(kept, kept)])
    fraction, num_rows, num_slopes = float(labels.mean()), len(labels), design.shape[1]
    per_slope = (1 - fraction) ** 2 * fraction / num_rows
    pmse = float(np.mean((fit.fitted - fraction) ** 2))
    expected, spread = num_slopes * per_slope, math.sqrt(2 * num_slopes) * per_slope
    why = ""
    if not num_slopes:
        why = "No column varies, so nothing can separate the tables."
    elif num_slopes > num_rows / ROWS_PER_COLUMN:
        why = (
            f"{num_rows:,} rows are fewer than {ROWS_PER_COLUMN} for each of the {num_slopes:,} coefficients, so the"
            " expectation under a correct model is not known."
        )
    elif fit.separates:
        why = "The tables can be separated perfectly, so the pMSE is at its maximum and the ratio has no meaning."
    return Result(
        scores={
            "pmse_logit": Score(pmse),
            "pmse_logit_ratio": Score.none(why) if why else Score(pmse / expected),
            "pmse_logit_standardised": Score.none(why) if why else Score((pmse - expected) / spread),
        },
        settings=settings,
        details={"num_coefficients": num_slopes + 1, "expected": expected, "sd": spread, "iterations": fit.iterations},
        notes=(*_balance_notes(fraction), *fit.notes),
    )


def allowed_order(layout: Layout, maxorder: int, num_rows: int) -> int:
    """The order of interactions for which this many rows suffice: `maxorder` or 0.

    Depends on the layout alone, so it is the same for all tables of an evaluation.
    """
    widths = np.array([(1 if t.is_numeric else len(t.categories) - 1) + t.has_nulls for t in layout.columns])
    columns = int(widths.sum() + (widths.sum() ** 2 - (widths**2).sum()) // 2)
    return maxorder if columns <= min(MAX_COLUMNS, num_rows / ROWS_PER_COLUMN) else 0


@echo_settings
def pmse_cart(
    real: EncodedTable,
    synthetic: EncodedTable,
    *,
    cp: float = 1e-4,
    num_permutations: int = 50,
    max_rows: int | None = 3000,
    seed: int = 0,
) -> Result:
    """The pMSE of a classification tree, and over its mean under shuffled labels, as published.

    rpart's complexity `cp` is relative to the root, so it becomes `ccp_alpha = cp * impurity(root)`. Shuffling compares
    two independent samples.
    """
    real, synthetic = (table.at_most(max_rows, seed=seed) for table in (real, synthetic))
    blocks = [block for block, _ in _blocks([real, synthetic])]
    rows = sparse.hstack(blocks, format="csr", dtype=np.float32).toarray()
    labels = _labels(real, synthetic)

    def grow(labels: Bool[np.ndarray, " rows"]) -> tuple[float, int]:
        return _tree_pmse(rows, labels, cp, seed)

    pmse, num_leaves = grow(labels)
    generator = np.random.default_rng(seed)
    trees = [partial(grow, generator.permutation(labels)) for _ in range(num_permutations)]
    nulls = [null_pmse for null_pmse, _ in run_in_threads(trees)]
    expected = float(np.mean(nulls)) if nulls else 0.0
    spread = float(np.std(nulls, ddof=1)) if len(nulls) > 1 else 0.0
    return Result(
        scores={"pmse_cart": Score(pmse), **_against_null(pmse, expected, spread, len(nulls))},
        settings={
            "min_bucket": MIN_BUCKET,
            "min_split": MIN_SPLIT,
            "features": "scaled numbers, null indicators, one column per category",
            **row_counts(real, synthetic),
        },
        details={"expected": expected, "sd": spread, "num_leaves": num_leaves},
        notes=_balance_notes(labels.mean()),
    )


def _labels(real: EncodedTable, synthetic: EncodedTable) -> Bool[np.ndarray, " rows"]:
    """True for synthetic rows, which come second."""
    return np.repeat([False, True], [real.num_rows, synthetic.num_rows])


def _balance_notes(fraction: float) -> tuple[str, ...]:
    if abs(fraction - 0.5) <= 0.1:
        return ()
    return (f"Synthetic rows are {fraction:.0%} of all rows: pMSE is only comparable between tables of equal size.",)


def _blocks(tables: Sequence[EncodedTable]) -> list[tuple[sparse.csr_array, bool]]:
    """For each variable its columns over all tables, and whether the first is a reference category implied by the rest.

    Every code that occurs has a column, nulls and unlisted values too. The most frequent category comes first: dropping
    it as the reference removes most of the ones.
    """
    blocks = []
    for spec in tables[0].layout.columns:
        values = np.concatenate([table[spec.name] for table in tables])
        if spec.is_numeric:
            scaled = np.concatenate([table.scale(spec.name) for table in tables])
            columns = np.stack([np.clip(scaled, -FAR, FAR), np.isnan(values)], axis=1)
            blocks.append((sparse.csr_array(columns[:, : 1 + np.isnan(values).any()]), False))
        else:
            _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
            codes = np.argsort(np.argsort(-counts, kind="stable"))[codes]
            cells = (np.arange(len(values)), codes)
            blocks.append((sparse.csr_array((np.ones(len(values)), cells), (len(values), len(counts))), True))
    return blocks


def _with_products(blocks: Sequence[sparse.csr_array]) -> sparse.csr_array:
    """All columns, and all products of two from different variables. Sparse: most products of indicators are zero."""
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


def _standardise(design: sparse.csr_array) -> sparse.csr_array:
    """Columns of variance 1, not centred, so still sparse; constant ones are dropped."""
    means, squares = design.mean(axis=0), (design * design).mean(axis=0)
    varies = squares - means**2 > 1e-12 * squares
    stddevs = np.sqrt((squares - means**2)[varies])
    return (design[:, np.flatnonzero(varies)] @ sparse.diags_array(1 / stddevs)).tocsr()


def _independent_columns(
    design: sparse.csr_array, gram: Float[np.ndarray, "columns columns"]
) -> Int[np.ndarray, " kept"]:
    """Columns that span all others and the intercept, by pivoted Cholesky of the correlations."""
    if not design.shape[1]:
        return np.zeros(0, np.int64)
    means = design.mean(axis=0)
    correlations = gram / design.shape[0] - np.outer(means, means)
    _, pivots, rank, _ = linalg.lapack.dpstrf(correlations, tol=ALIASED, overwrite_a=True)
    return np.sort(pivots[:rank] - 1)


def _gram(design: sparse.csr_array) -> Float[np.ndarray, "columns columns"]:
    """The sum of outer products of the rows, a slice at a time to bound the memory."""
    transposed = design.T.tocsr()
    out = np.empty((design.shape[1],) * 2)
    for at in range(0, len(out), 512):
        out[at : at + 512] = (transposed[at : at + 512] @ design).toarray()
    return out


@dataclasses.dataclass(frozen=True)
class _Fit:
    fitted: Float[np.ndarray, " rows"]
    iterations: int
    separates: bool
    """Whether every synthetic row has a larger fitted probability than every real one."""
    notes: tuple[str, ...]


def _fit_logit(
    slopes: sparse.csr_array, labels: Bool[np.ndarray, " rows"], gram: Float[np.ndarray, "slopes slopes"]
) -> _Fit:
    """L-BFGS from the intercept alone, in coordinates in which the curvature there is the identity.

    scikit-learn's "newton-cholesky" reaches the same probabilities, but sums outer products anew in each iteration:
    with 30,000 rows and 2,600 columns it takes 50 times as long.
    """
    num_rows, num_slopes = slopes.shape
    fraction = labels.mean()
    start = math.log(fraction / (1 - fraction))
    design = sparse.hstack([sparse.csr_array(np.ones((num_rows, 1))), slopes], format="csr")
    transposed = design.T.tocsr()
    penalty = np.r_[0.0, np.full(num_slopes, RIDGE)]
    sums = np.r_[float(num_rows), slopes.sum(axis=0)]
    curvature = fraction * (1 - fraction) * np.block([[sums[:1, None], sums[None, 1:]], [sums[1:, None], gram]])
    # The jitter guards the factorisation; it changes the path to the optimum, not the optimum.
    np.fill_diagonal(curvature, curvature.diagonal() * (1 + 1e-12) + penalty)
    factor = linalg.cholesky(curvature, overwrite_a=True, check_finite=False)
    to_weights = partial(linalg.solve_triangular, factor, check_finite=False)

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        """The penalised negative log-likelihood and its gradient."""
        weights = to_weights(point)
        logits = start + design @ weights
        value = np.logaddexp(0, logits).sum() - logits[labels].sum() + penalty @ weights**2 / 2
        gradient = transposed @ (expit(logits) - labels) + penalty * weights
        return float(value), to_weights(gradient, trans="T")

    options = {"maxiter": MAX_ITERATIONS, "maxfun": 2 * MAX_ITERATIONS, "gtol": GRADIENT, "ftol": 0.0}
    optimum = optimize.minimize(loss, np.zeros(num_slopes + 1), jac=True, method="L-BFGS-B", options=options)
    logits = start + design @ to_weights(optimum.x)
    # Tables with equal column sums stop before the first step, and their probabilities are exactly c.
    fitted = expit(logits) if optimum.nit else np.full(num_rows, fraction)
    notes = []
    separates = bool(logits[labels].min() > logits[~labels].max())
    if optimum.status == 1 and not separates:  # 2: rounding hides any further step
        notes.append(f"The logistic regression did not converge in {MAX_ITERATIONS} iterations.")
    if separates:
        notes.append("The logistic regression separates synthetic and real rows perfectly.")
    elif (certain := np.mean(np.minimum(fitted, 1 - fitted) < 1e-5)) > 0:
        notes.append(
            f"The logistic regression is certain about {certain:.2%} of the rows: one table lacks their values."
        )
    return _Fit(fitted, int(optimum.nit), separates, tuple(notes))


def _tree_pmse(rows: np.ndarray, labels: Bool[np.ndarray, " rows"], cp: float, seed: int) -> tuple[float, int]:
    """The pMSE of one tree, from the counts in its leaves so that equal fractions give exactly 0; and its leaves."""
    fraction = labels.mean()
    alpha = cp * 2 * fraction * (1 - fraction)
    limits = {"min_samples_leaf": MIN_BUCKET, "min_samples_split": MIN_SPLIT}
    tree = DecisionTreeClassifier(ccp_alpha=alpha, random_state=seed, **limits).fit(rows, labels)
    leaves = tree.apply(rows)
    sizes, hits = np.bincount(leaves), np.bincount(leaves, labels)
    propensities = hits[leaves] / sizes[leaves]
    return float(np.mean((propensities - fraction) ** 2)), int(tree.get_n_leaves())


def _against_null(pmse: float, expected: float, spread: float, num_nulls: int) -> dict[str, Score]:
    if expected == 0:
        ratio = Score.none("The trees under shuffled labels never split, so their mean pMSE is 0.")
    else:
        ratio = Score(pmse / expected, pmse / expected**2 * spread / math.sqrt(num_nulls) if num_nulls > 1 else None)
    if spread <= 1e-9 * expected:  # equal values have a spread of rounding
        standardised = Score.none("The pMSE under shuffled labels does not vary.")
    else:
        standardised = Score((pmse - expected) / spread)
    return {"pmse_cart_ratio": ratio, "pmse_cart_standardised": standardised}
