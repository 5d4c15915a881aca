"""Real and synthetic rows as clouds of points: how far apart they lie, and what they look like from the best side.

Points are the features of a layout: numbers scaled to [0, 1], levels one-hot. Distances between clouds are optimal
transport, estimated as Tantipongpipat, Waites, Boob, Siva and Cummings do: between samples of 100 rows, many times.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.special import entr
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from understudy.evaluation.judged import Judged, Layout
from understudy.evaluation.scores import HIGHER, LOWER, NEAR_HALF, Metric, Result, Score
from understudy.evaluation.threads import in_threads

MAX_JENSEN_SHANNON = float(entr(0.25) + entr(0.75) - entr(0.5))
"""Between a certain coin and a fair one, in nats: 0.2158."""
FEW_ROWS = 100
"""Half of so many rows are too few to train a discriminator on."""
MANY_CODES = 255
"""The discriminator takes columns with more codes for ordered ones."""

METRICS = (
    Metric(
        key="pca_wasserstein",
        title="Transport distance of principal components",
        direction=LOWER,
        low=0.0,
        high=math.inf,
        meaning="How far points must move, in squared distance, to turn the cloud of real rows into that of synthetic "
        "rows, both seen along the main directions of the real rows.",
    ),
    Metric(
        key="pca_wasserstein_score",
        title="Transport score of principal components",
        direction=HIGHER,
        low=-math.inf,
        high=1.0,
        meaning="The same as a score: 1 if the clouds coincide. Standardised columns reach further than the normaliser "
        "expects, so it can be negative.",
        same_as="pca_wasserstein",
    ),
    Metric(
        key="wasserstein",
        title="Transport distance",
        direction=LOWER,
        low=0.0,
        high=math.inf,
        meaning="How far rows must move to turn a sample of real rows into a sample of synthetic ones. Never 0 for "
        "small samples: compare it with the distance between two samples of real rows.",
    ),
    Metric(
        key="wasserstein_score",
        title="Transport score",
        direction=HIGHER,
        low=0.0,
        high=1.0,
        meaning="1 minus the transport distance over the largest one possible: 1 if the tables coincide.",
        same_as="wasserstein",
    ),
    Metric(
        key="js_score",
        title="Jensen-Shannon score",
        direction=LOWER,
        low=0.0,
        high=MAX_JENSEN_SHANNON,
        meaning="How sure a trained discriminator is about which table a row comes from: 0 if it can only guess, 0.216 "
        "if it is always certain.",
    ),
    Metric(
        key="discriminator_auc",
        title="Discriminator AUC",
        direction=NEAR_HALF,
        low=0.0,
        high=1.0,
        meaning="How often the discriminator finds the synthetic one of a synthetic and a real row it has not seen: "
        "0.5, a coin flip, is best.",
    ),
)

Cost = Literal["squared", "euclidean"]
Points = Float[np.ndarray, "rows features"]
Encoder = Callable[[Judged], Points]
"""How rows become points: only those that are sampled ever do."""


def pca_marginal(
    real: Judged,
    synthetic: Judged,
    *,
    components: int = 2,
    num_points: int = 1000,
    basis_share: float = 1.0,
    sample: int = 100,
    repeats: int = 100,
    max_rows: int | None = 20_000,
    seed: int = 0,
) -> Result:
    """Both tables along the main directions of the real one, drawn as points and compared by transport.

    Columns are standardised by at most `max_rows` rows of the real table; the directions are eigenvectors of the second
    moments of a random `basis_share` of these. Score: 1 - W / (sqrt(v) max |x - y|^2), with v the share of variance
    explained. The details hold, as `real_baseline`, the distance between two samples of real rows: what a perfect
    synthetic table would have.
    """
    generator = np.random.default_rng(seed)
    names = real.layout.feature_names()
    some = real.at_most(max_rows, seed=seed).features()
    scaling = _scaling(some)
    basis = some if basis_share >= 1 else some[_draw(generator, len(some), max(1, round(basis_share * len(some))))]
    del some
    basis = _standardised(basis, *scaling)
    moments = basis.T @ basis / len(basis)
    values, vectors = np.linalg.eigh(moments)
    values, vectors = values[::-1][:components], vectors[:, ::-1][:, :components]
    # An eigenvector has no sign of its own: its largest loading is made positive.
    vectors = vectors * np.where(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])] < 0, -1, 1)
    settings = {
        "components": components,
        "num_points": num_points,
        "basis_share": basis_share,
        "sample": sample,
        "repeats": repeats,
        "max_rows": max_rows,
        "seed": seed,
        "basis_rows": len(basis),
        "real_rows": real.num_rows,
        "synthetic_rows": synthetic.num_rows,
    }
    if not np.trace(moments) > 0:
        why = "No column of the real table varies, so it has no main directions."
        keys = ("pca_wasserstein", "pca_wasserstein_score")
        return Result(scores=dict.fromkeys(keys, Score.none(why)), settings=settings)
    explained = np.maximum(values, 0) / np.trace(moments)
    del basis

    def projected(table: Judged) -> Points:
        return _standardised(table.features(), *scaling) @ vectors

    distances = list(
        _transports(real, synthetic, projected, cost="squared", sample=sample, repeats=repeats, generator=generator)
    )
    heaviest = np.argsort(-np.abs(vectors), axis=0, kind="stable")[:10].T
    return Result(
        scores={
            "pca_wasserstein": _mean(distances),
            "pca_wasserstein_score": _mean(
                1 - np.array(distances) / (math.sqrt(explained.sum()) * universe_diameter(real.layout))
            ),
        },
        settings=settings,
        notes=_small_notes(real.num_rows, sample),
        details={
            "explained": explained.round(3).tolist(),
            "real": projected(_some(real, num_points, generator)).round(3).tolist(),
            "synthetic": projected(_some(synthetic, num_points, generator)).round(3).tolist(),
            "real_baseline": _baseline(real, projected, cost="squared", sample=sample, repeats=repeats, seed=seed),
            "loadings": [
                [[names[feature], round(float(vectors[feature, component]), 3)] for feature in features]
                for component, features in enumerate(heaviest)
            ],
        },
    )


def wasserstein(
    real: Judged, synthetic: Judged, *, cost: Cost = "squared", sample: int = 100, repeats: int = 100, seed: int = 0
) -> Result:
    """Optimal transport between samples of both tables, and between two disjoint samples of the real one.

    Between tables of at most `sample` rows it is exact. Sampled values are biased upwards, so the second number, in the
    details as `real_baseline`, is what the first has to be held against. The published code of the authors takes plain
    distances: `cost="euclidean"`.
    """
    generator = np.random.default_rng(seed)
    diameter = universe_diameter(real.layout) if cost == "squared" else math.sqrt(universe_diameter(real.layout))
    distances = list(
        _transports(real, synthetic, Judged.features, cost=cost, sample=sample, repeats=repeats, generator=generator)
    )
    return Result(
        scores={
            "wasserstein": _mean(distances),
            "wasserstein_score": _mean(1 - np.array(distances) / diameter),
        },
        settings={
            "cost": cost,
            "sample": sample,
            "repeats": repeats,
            "seed": seed,
            "baseline_sample": min(sample, real.num_rows // 2),
            "largest_distance": diameter,
            "real_rows": real.num_rows,
            "synthetic_rows": synthetic.num_rows,
        },
        details={
            "real_baseline": _baseline(real, Judged.features, cost=cost, sample=sample, repeats=repeats, seed=seed)
        },
        notes=_small_notes(real.num_rows, sample),
    )


def jensen_shannon(real: Judged, synthetic: Judged, *, max_rows: int | None = 20_000, seed: int = 0) -> Result:
    """How sure a discriminator, trained on half of both tables, is about the rows of the other half.

    The mean of JSD(Bernoulli(D(x)), Bernoulli(1/2)), in nats. Both tables weigh the same, whatever their sizes. Boosted
    trees, stopped early on rows set aside: they see what columns do together, and where nothing tells the tables apart
    they stop at 1/2.
    """
    real, synthetic = real.at_most(max_rows, seed=seed), synthetic.at_most(max_rows, seed=seed)
    settings = {
        "max_rows": max_rows,
        "seed": seed,
        "discriminator": "histogram gradient boosting, learning rate 0.1, at most 200 trees, stopped early, classes "
        "balanced",
        "real_rows": real.num_rows,
        "synthetic_rows": synthetic.num_rows,
    }
    if min(real.num_rows, synthetic.num_rows) < FEW_ROWS:
        why = f"Each table needs {FEW_ROWS} rows for a discriminator to be trained and tested on halves of them."
        return Result(scores=dict.fromkeys(("js_score", "discriminator_auc"), Score.none(why)), settings=settings)
    # One seed for both: a row and its copy then fall into the same half.
    halves = zip(real.split(0.5, seed=seed), synthetic.split(0.5, seed=seed), strict=True)
    (train, train_labels), (test, test_labels) = (
        (np.concatenate([_codes(one) for one in pair]), np.repeat([0, 1], [one.num_rows for one in pair]))
        for pair in halves
    )
    discriminator = HistGradientBoostingClassifier(
        max_iter=200,
        early_stopping=True,
        validation_fraction=0.2,
        class_weight="balanced",
        categorical_features=[not trait.is_numeric and len(trait.labels) <= MANY_CODES for trait in real.layout.traits],
        random_state=seed,
    )
    in_threads([partial(discriminator.fit, train, train_labels)])
    belief = discriminator.predict_proba(test)[:, 1]
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


def transport(first: Points, second: Points, *, cost: Cost = "squared") -> float:
    """The least mean cost of moving all of one cloud onto the other, all points weighing the same."""
    costs = cdist(first, second, "sqeuclidean" if cost == "squared" else "euclidean")
    if len(first) == len(second):
        return float(costs[linear_sum_assignment(costs)].mean())
    import ot  # slow to import, and needed only for clouds of different sizes

    return float(ot.emd2(np.full(len(first), 1 / len(first)), np.full(len(second), 1 / len(second)), costs))


def universe_diameter(layout: Layout) -> float:
    """The largest squared distance of two rows that the layout allows: 1 for a number, an indicator of nulls or a
    column of two levels, 2 for a block of more levels."""
    return float(sum(trait.num_features if trait.is_numeric else min(2, trait.num_features) for trait in layout.traits))


def _transports(
    first: Judged,
    second: Judged,
    encode: Encoder,
    *,
    cost: Cost,
    sample: int,
    repeats: int,
    generator: np.random.Generator,
) -> Iterator[float]:
    """Distances between samples; once, where the samples are the tables."""
    once = max(first.num_rows, second.num_rows) <= sample
    for _ in range(1 if once else repeats):
        yield transport(*(encode(_some(table, sample, generator)) for table in (first, second)), cost=cost)


def _baseline(
    real: Judged, encode: Encoder, *, cost: Cost, sample: int, repeats: int, seed: int
) -> dict[str, float | None]:
    """The same between two disjoint samples of the real table. Drawn by themselves: no synthetic table moves them."""
    size = min(sample, real.num_rows // 2)
    if not size:
        return {"value": None, "error": None}
    generator = np.random.default_rng([seed, 1])
    draws = (encode(real.take(_draw(generator, real.num_rows, 2 * size))) for _ in range(repeats))
    mean = _mean([transport(rows[:size], rows[size:], cost=cost) for rows in draws])
    return {"value": mean.value, "error": mean.error}


def _small_notes(num_rows: int, sample: int) -> tuple[str, ...]:
    if num_rows >= 2 * sample:
        return ()
    return (
        f"The real table is small: its own distance was taken between samples of {num_rows // 2} rows, fewer than "
        "those of the other distance, so it is larger by chance.",
    )


def _some(table: Judged, num_rows: int, generator: np.random.Generator) -> Judged:
    """So many rows drawn without replacement; all, in their order, if there are no more."""
    return table if table.num_rows <= num_rows else table.take(_draw(generator, table.num_rows, num_rows))


def _draw(generator: np.random.Generator, num_rows: int, wanted: int) -> np.ndarray:
    return generator.choice(num_rows, wanted, replace=False)


def _mean(values: list[float] | np.ndarray) -> Score:
    """The mean over repeats and its standard error."""
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
    return Score(float(np.mean(values)), error)


def _scaling(real: Points) -> tuple[Float[np.ndarray, " features"], Float[np.ndarray, " features"]]:
    """Means of the real rows, and one over their standard deviations: 0 for what does not vary in them."""
    means, stddevs = real.mean(axis=0, dtype=np.float64), real.std(axis=0, dtype=np.float64)
    return means, np.divide(1.0, stddevs, out=np.zeros_like(stddevs), where=np.ptp(real, axis=0) > 0)


def _standardised(points: Points, means: np.ndarray, weights: np.ndarray) -> Points:
    return (points - means) * weights


def _codes(table: Judged) -> Float[np.ndarray, "rows columns"]:
    """Numbers with NaN for nulls, and codes: missing and unlisted values stay visible."""
    columns = [np.clip(table[trait.name], -1e100, 1e100) for trait in table.layout.traits]
    return np.stack(columns, axis=1).astype(np.float64)


def _entropy(chance: np.ndarray) -> np.ndarray:
    return entr(chance) + entr(1 - chance)
