"""Measures of the papers' own tasks, on made rows alone: the grid of 25 Gaussians, and scores by a classifier.

The grid is public, so unlike all other measures its scores of a synthetic table may be published beside the release;
those by a classifier only if no real row trained it.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.special import xlogy
from scipy.stats import chi2

from understudy.errors import ConfigError
from understudy.evaluation.judged import Judged
from understudy.evaluation.scores import HIGHER, LOWER, NEAR_REAL, Metric, Result, Score

CENTRES = np.stack(np.meshgrid(*[np.arange(-4.0, 5.0, 2.0)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
"""The grid of the 25 Gaussians, on the original scale."""
VARIANCE = 0.0025
"""Of each Gaussian, in either direction."""

METRICS = (
    Metric(
        key="quality",
        title="High-quality samples",
        direction=HIGHER,
        low=0.0,
        high=1.0,
        meaning="The share of rows that lie at one of the 25 Gaussians, counting at most a 25th of all rows for each: "
        "about 0.98 for a perfect sampler, 0.04 for one that knows a single Gaussian.",
        private=False,
    ),
    Metric(
        key="quality_uncapped",
        title="High-quality samples, uncapped",
        direction=HIGHER,
        low=0.0,
        high=1.0,
        meaning="The share of rows that lie at one of the 25 Gaussians, whichever it is: 0.99 for a perfect sampler.",
        private=False,
    ),
    Metric(
        key="modes",
        title="Gaussians found",
        direction=HIGHER,
        low=0.0,
        high=25.0,
        meaning="How many of the 25 Gaussians have a row.",
        private=False,
    ),
    Metric(
        key="mode_tv",
        title="Imbalance of the Gaussians",
        direction=LOWER,
        low=0.0,
        high=0.96,
        meaning="How unevenly the rows that lie at a Gaussian are spread over the 25: 0 if evenly.",
        private=False,
    ),
    Metric(
        key="inception_score",
        title="Inception score",
        direction=NEAR_REAL,
        low=1.0,
        high=math.inf,
        meaning="High if a classifier is sure about each row and finds all classes equally often: between 1 and the "
        "number of classes. Real rows do not reach the top either, so compare with theirs.",
    ),
)


def gaussian_quality(points: Float[np.ndarray, "rows 2"], *, share: float = 0.99) -> Result:
    """How many points lie at the 25 Gaussians, within the radius that holds this share of a Gaussian.

    Q = sum_i min(N / 25, N_i) / N. The published code draws the radius of 90% (`share=0.9`) as a polygon.
    """
    if not 0 < share < 1:
        raise ConfigError(f"share must lie between 0 and 1, found {share}.")
    radius = math.sqrt(VARIANCE * chi2.ppf(share, 2))
    if radius >= 1:
        raise ConfigError(f"With share={share} the Gaussians overlap: choose one below {chi2.cdf(1 / VARIANCE, 2)}.")
    nearest = np.clip(np.round(points / 2) * 2, -4, 4)
    inside = np.sum((points - nearest) ** 2, axis=1) <= radius**2  # False for NaN
    places = ((nearest[inside] + 4) / 2).astype(np.int64)
    counts = np.bincount(places @ [5, 1], minlength=25)
    num_rows, num_inside = len(points), int(counts.sum())
    settings = {"share": share, "radius": radius, "synthetic_rows": num_rows}
    if not num_rows:
        keys = ("quality", "quality_uncapped", "modes", "mode_tv")
        return Result(scores=dict.fromkeys(keys, Score.none("There are no rows.")), settings=settings, private=False)
    imbalance = Score.none("No row lies at a Gaussian.")
    if num_inside:
        imbalance = Score(float(np.abs(counts / num_inside - 1 / 25).sum() / 2))
    return Result(
        scores={
            "quality": Score(float(np.minimum(counts, num_rows / 25).sum() / num_rows)),
            "quality_uncapped": Score(num_inside / num_rows),
            "modes": Score(float(np.count_nonzero(counts))),
            "mode_tv": imbalance,
        },
        settings=settings,
        details={"centres": CENTRES.tolist(), "counts": counts.tolist()},
        private=False,
    )


def gaussian_quality_of(table: Judged, x: str, y: str, *, share: float = 0.99, is_real: bool = False) -> Result:
    """The same for two numeric columns of a table; that of real rows is private."""
    for name in (x, y):
        if not table.layout[name].is_numeric:
            raise ConfigError(f"The 25 Gaussians need two numeric columns, but {name!r} is discrete.")
    found = gaussian_quality(np.stack([table[x], table[y]], axis=1), share=share)
    return dataclasses.replace(found, private=is_real)


def inception_score(
    rows_or_probabilities: np.ndarray,
    classifier: Callable[[np.ndarray], np.ndarray] | None = None,
    *,
    public_classifier: bool = False,
) -> Result:
    """exp(mean_x KL(p(y|x) || p(y))), where p(y) is the mean over the same rows: one split.

    Without a classifier the rows are class probabilities. `public_classifier`: no private row trained it; else the
    score is private like all others.
    """
    chances = np.asarray(rows_or_probabilities if classifier is None else classifier(rows_or_probabilities), np.float64)
    score = Score.none("Class probabilities must be rows that are not negative and sum to 1.")
    valid = chances.ndim == 2 and chances.size > 0 and bool((chances >= 0).all())
    if valid and np.allclose(chances.sum(axis=1), 1, atol=1e-4):
        chances = chances / chances.sum(axis=1, keepdims=True)
        overall = chances.mean(axis=0)
        divergences = (xlogy(chances, chances) - xlogy(chances, np.where(overall > 0, overall, 1))).sum(axis=1)
        score = Score(float(np.exp(divergences.mean())))
    return Result(
        scores={"inception_score": score},
        settings={
            "num_rows": len(chances),
            "num_classes": chances.shape[1] if chances.ndim == 2 else 0,
            "public_classifier": public_classifier,
        },
        private=not public_classifier,
    )
