"""Scores of synthetic rows alone: the benchmark of 25 Gaussians, and the inception score.

The 25 Gaussians are public, so unlike all other scores those of a synthetic table may be published with the release;
the inception score may not, because its classifier was trained on real rows.
"""

import math

import numpy as np
from jaxtyping import Float
from scipy.special import xlogy
from scipy.stats import chi2

from understudy.evaluation.scores import Result, Score, no_scores

CENTRES = np.stack(np.meshgrid(*[np.arange(-4.0, 5.0, 2.0)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
"""The centres of the 25 Gaussians."""
VARIANCE = 0.0025
"""The variance of each Gaussian in each coordinate."""
FRACTION = 0.99
"""A point lies at a Gaussian if it is within the radius of this fraction of its mass; the published code uses 90%."""


def gaussian_quality(points: Float[np.ndarray, "rows 2"]) -> Result:
    """How many points lie at the 25 Gaussians: Q = sum_i min(N / 25, N_i) / N."""
    radius = math.sqrt(VARIANCE * chi2.ppf(FRACTION, 2))
    nearest = np.clip(np.round(points / 2) * 2, -4, 4)
    inside = np.sum((points - nearest) ** 2, axis=1) <= radius**2  # False for NaN
    centres = ((nearest[inside] + 4) / 2).astype(np.int64)
    counts = np.bincount(centres @ [5, 1], minlength=25)
    num_rows, num_inside = len(points), int(counts.sum())
    settings = {"fraction": FRACTION, "radius": radius, "synthetic_rows": num_rows}
    if not num_rows:
        return no_scores("gaussians", "There are no rows.", settings=settings)
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
    )


def inception_score(probabilities: Float[np.ndarray, "rows classes"]) -> Result:
    """exp(mean_x KL(p(y|x) || p(y))), where p(y) is the mean over the same rows: one split."""
    probabilities = probabilities / probabilities.sum(axis=1, keepdims=True)
    overall = probabilities.mean(axis=0)
    divergences = xlogy(probabilities, probabilities) - xlogy(probabilities, np.where(overall > 0, overall, 1))
    return Result(
        scores={"inception_score": Score(float(np.exp(divergences.sum(axis=1).mean())))},
        settings={"num_rows": len(probabilities), "num_classes": probabilities.shape[1], "public_classifier": False},
    )
