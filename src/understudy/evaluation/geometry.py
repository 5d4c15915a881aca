"""Distances between real and synthetic rows as point clouds: optimal transport, principal components, a discriminator.

Points are the features of a layout: numbers scaled to [0, 1], categories one-hot. Transport distances are estimated as
by Tantipongpipat, Waites, Boob, Siva and Cummings: between samples of 100 rows, repeatedly.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.special import entr
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from understudy.evaluation.counting import row_counts
from understudy.evaluation.parallel import run_in_threads
from understudy.evaluation.scores import Result, Score, echo_settings, no_scores
from understudy.evaluation.table import EncodedTable, Layout

FEW_ROWS = 100
"""The discriminator needs this many rows of each table."""
MANY_CODES = 255
"""The discriminator treats columns with more codes as ordered."""

Cost = Literal["squared", "euclidean"]
Points = Float[np.ndarray, "rows features"]


@echo_settings
def pca_marginal(
    real: EncodedTable,
    synthetic: EncodedTable,
    *,
    cost: Cost = "squared",
    num_points: int = 1000,
    basis_fraction: float = 1.0,
    sample: int = 100,
    repeats: int = 100,
    max_rows: int | None = 20_000,
    seed: int = 0,
) -> Result:
    """Both tables projected on the first two principal components of the real one, for a plot and by transport.

    Columns are standardised by at most `max_rows` rows of the real table; the components are eigenvectors of the second
    moments of a random `basis_fraction` of these. Score: 1 - W / (sqrt(v) max |x - y|^2), where v is the fraction of
    variance explained; with `cost="euclidean"`, as in the authors' published code, both W and the maximum are of plain
    distances. Scores of the two costs are not comparable. The details hold, as `real_baseline`, the distance between
    two samples of real rows, what a perfect synthetic table would have, and its score.
    """
    generator = np.random.default_rng(seed)
    some = real.at_most(max_rows, seed=seed).features()
    scaling = _scaling(some)
    if basis_fraction < 1:
        some = some[generator.choice(len(some), max(1, round(basis_fraction * len(some))), replace=False)]
    vectors, explained = _principal_components(_standardise(some, *scaling))
    settings = {"basis_rows": len(some)}
    if explained is None:
        why = "No column of the real table varies, so it has no principal components."
        return no_scores("pca", why, settings=settings)

    def project(table: EncodedTable) -> Points:
        return _standardise(table.features(), *scaling) @ vectors

    transports = _Transports(project, cost, sample, repeats)
    distances = transports.between(real, synthetic, generator)
    diameter = math.sqrt(explained.sum()) * _largest_cost(real.layout, cost)
    return Result(
        scores={"pca_wasserstein": _mean(distances), "pca_wasserstein_score": _mean(1 - distances / diameter)},
        settings=settings,
        notes=_small_notes(real.num_rows, sample),
        details={
            "explained": explained.round(3).tolist(),
            "real": project(real.at_most(num_points, seed=generator)).round(3).tolist(),
            "synthetic": project(synthetic.at_most(num_points, seed=generator)).round(3).tolist(),
            "real_baseline": transports.baseline(real, seed, diameter),
            "loadings": _loadings(vectors, real.layout.feature_names()),
        },
    )


def _principal_components(rows: Points) -> tuple[Float[np.ndarray, "features k"], Float[np.ndarray, " k"] | None]:
    """The first two components and the fractions of variance they explain; None: there is no variance."""
    moments = rows.T @ rows / len(rows)
    values, vectors = np.linalg.eigh(moments)
    values, vectors = values[::-1][:2], vectors[:, ::-1][:, :2]
    # The sign of an eigenvector is arbitrary: its largest loading is made positive.
    vectors = vectors * np.where(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])] < 0, -1, 1)
    total = np.trace(moments)
    return vectors, np.maximum(values, 0) / total if total > 0 else None


def _loadings(vectors: Float[np.ndarray, "features k"], names: list[str]) -> list[list[list[object]]]:
    """The ten largest loadings of each component, with their features."""
    largest = np.argsort(-np.abs(vectors), axis=0, kind="stable")[:10].T
    return [
        [[names[feature], round(float(vectors[feature, component]), 3)] for feature in features]
        for component, features in enumerate(largest)
    ]


@echo_settings
def wasserstein(
    real: EncodedTable,
    synthetic: EncodedTable,
    *,
    cost: Cost = "squared",
    sample: int = 100,
    repeats: int = 100,
    seed: int = 0,
) -> Result:
    """Optimal transport between samples of both tables, and between two disjoint samples of the real one.

    Between tables of at most `sample` rows it is exact. Sampled distances are biased upwards, so compare the first
    number with the second, `real_baseline` in the details. The authors' published code uses plain distances:
    `cost="euclidean"`. Scores of the two costs are not comparable.
    """
    generator = np.random.default_rng(seed)
    diameter = _largest_cost(real.layout, cost)
    transports = _Transports(EncodedTable.features, cost, sample, repeats)
    distances = transports.between(real, synthetic, generator)
    return Result(
        scores={"wasserstein": _mean(distances), "wasserstein_score": _mean(1 - distances / diameter)},
        settings={"baseline_sample": min(sample, real.num_rows // 2), "largest_distance": diameter},
        details={"real_baseline": transports.baseline(real, seed, diameter)},
        notes=_small_notes(real.num_rows, sample),
    )


@echo_settings
def jensen_shannon(
    real: EncodedTable, synthetic: EncodedTable, *, max_rows: int | None = 20_000, seed: int = 0
) -> Result:
    """How certain a discriminator, trained on half of both tables, is about the rows of the other half.

    The mean of JSD(Bernoulli(D(x)), Bernoulli(1/2)), in nats, at most 0.2158. Both tables have the same weight,
    whatever their sizes. Boosted trees with early stopping: they see interactions, and if nothing separates the tables
    they stop at 1/2.
    """
    real, synthetic = real.at_most(max_rows, seed=seed), synthetic.at_most(max_rows, seed=seed)
    settings = {
        "discriminator": "histogram gradient boosting, learning rate 0.1, at most 200 trees, stopped early, classes "
        "balanced",
        **row_counts(real, synthetic),
    }
    if min(real.num_rows, synthetic.num_rows) < FEW_ROWS:
        why = f"The discriminator needs {FEW_ROWS} rows of each table."
        return no_scores("jensen_shannon", why, settings=settings)
    # One seed for both: a row and its copy fall into the same half.
    halves = zip(real.split(0.5, seed=seed), synthetic.split(0.5, seed=seed), strict=True)
    train, test = halves
    discriminator = train_discriminator(*train, seed=seed, max_iter=200, early_stopping=True, validation_fraction=0.2)
    test_labels = np.repeat([0, 1], [part.num_rows for part in test])
    belief = discriminator.predict_proba(np.concatenate([codes_of(part) for part in test]))[:, 1]
    divergence = _entropy((belief + 0.5) / 2) - (_entropy(belief) + _entropy(np.array(0.5))) / 2
    divergence = np.maximum(divergence, 0.0)  # rounding can leave -1e-17
    parts = [divergence[test_labels == label] for label in (0, 1)]
    error = math.sqrt(sum(part.var(ddof=1) / len(part) for part in parts)) / 2
    return Result(
        scores={
            "js_score": Score(float(np.mean([part.mean() for part in parts])), error),
            "discriminator_auc": Score(float(roc_auc_score(test_labels, belief))),
        },
        settings=settings,
        details={"num_trees": int(discriminator.n_iter_)},
    )


def train_discriminator(
    zeros: EncodedTable, ones: EncodedTable, *, seed: int, **options: Any
) -> HistGradientBoostingClassifier:
    """Boosted trees that distinguish the rows of two tables by `codes_of` them; both tables have the same weight."""
    rows = np.concatenate([codes_of(zeros), codes_of(ones)])
    rows[:, np.isnan(rows).all(axis=0)] = 0.0  # no tree can be grown on a column without values
    model = HistGradientBoostingClassifier(
        class_weight="balanced",
        categorical_features=[not spec.is_numeric and len(spec.labels) <= MANY_CODES for spec in zeros.layout.columns],
        random_state=seed,
        **options,
    )
    run_in_threads([partial(model.fit, rows, np.repeat([0, 1], [zeros.num_rows, ones.num_rows]))])
    return model


def transport(first: Points, second: Points, *, cost: Cost = "squared") -> float:
    """The least mean cost of moving all of one cloud onto the other, all points weighing the same."""
    costs = cdist(first, second, "sqeuclidean" if cost == "squared" else "euclidean")
    if len(first) == len(second):
        return float(costs[linear_sum_assignment(costs)].mean())
    import ot  # slow to import, and needed only for clouds of different sizes

    return float(ot.emd2(np.full(len(first), 1 / len(first)), np.full(len(second), 1 / len(second)), costs))


def universe_diameter(layout: Layout) -> float:
    """The largest squared distance of two rows that the layout allows.

    1 for a number, a null indicator or a column of two categories, 2 for a block of more categories.
    """
    return float(sum(spec.num_features if spec.is_numeric else min(2, spec.num_features) for spec in layout.columns))


def _largest_cost(layout: Layout, cost: Cost) -> float:
    """The largest cost of moving one row onto another."""
    return universe_diameter(layout) if cost == "squared" else math.sqrt(universe_diameter(layout))


class _Transports(NamedTuple):
    """Repeated transports between samples of rows."""

    encode: Callable[[EncodedTable], Points]
    """Turns rows into points; only sampled rows are encoded."""
    cost: Cost
    sample: int
    repeats: int

    def between(
        self, first: EncodedTable, second: EncodedTable, generator: np.random.Generator
    ) -> Float[np.ndarray, " repeats"]:
        """Distances between samples of two tables; one, where the samples are the tables."""
        repeats = 1 if max(first.num_rows, second.num_rows) <= self.sample else self.repeats
        samples = ([table.at_most(self.sample, seed=generator) for table in (first, second)] for _ in range(repeats))
        return np.array([transport(*map(self.encode, pair), cost=self.cost) for pair in samples])

    def baseline(self, real: EncodedTable, seed: int, diameter: float) -> dict[str, float | None]:
        """The same between two disjoint samples of the real table, with a generator that no synthetic one advances."""
        size = min(self.sample, real.num_rows // 2)
        if not size:
            return {"value": None, "error": None, "score": None}
        generator = np.random.default_rng([seed, 1])
        drawn = (generator.choice(real.num_rows, 2 * size, replace=False) for _ in range(self.repeats))
        draws = (self.encode(real.take(rows)) for rows in drawn)
        mean = _mean(np.array([transport(rows[:size], rows[size:], cost=self.cost) for rows in draws]))
        return {"value": mean.value, "error": mean.error, "score": 1 - mean.value / diameter}


def _small_notes(num_rows: int, sample: int) -> tuple[str, ...]:
    if num_rows >= 2 * sample:
        return ()
    return (
        f"The real table is small: the baseline is the distance between samples of {num_rows // 2} rows, fewer than the"
        f" {sample} of the other distances, so it is larger by chance.",
    )


def _mean(values: Float[np.ndarray, " repeats"]) -> Score:
    """The mean over repeats and its standard error."""
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
    return Score(float(np.mean(values)), error)


def _scaling(real: Points) -> tuple[Float[np.ndarray, " features"], Float[np.ndarray, " features"]]:
    """Means of the real rows, and the inverse of their standard deviations: 0 for constant features."""
    means, stddevs = real.mean(axis=0, dtype=np.float64), real.std(axis=0, dtype=np.float64)
    return means, np.divide(1.0, stddevs, out=np.zeros_like(stddevs), where=np.ptp(real, axis=0) > 0)


def _standardise(points: Points, means: np.ndarray, weights: np.ndarray) -> Points:
    return (points - means) * weights


def codes_of(table: EncodedTable) -> Float[np.ndarray, "rows columns"]:
    """Numbers with NaN for nulls, and codes: missing and unlisted values stay visible."""
    columns = [np.clip(table[spec.name], -1e100, 1e100) for spec in table.layout.columns]
    return np.stack(columns, axis=1).astype(np.float64)


def _entropy(chance: np.ndarray) -> np.ndarray:
    return entr(chance) + entr(1 - chance)
