"""Empirical-Bayes shrinkage of noisy counts towards independence."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from understudy.synthesizers.gem.groups import Groups

PRIOR_CELLS = 16
"""The weight, in cells, of the pooled signal variance against that of a table itself."""
MIXTURE_SIZE = 12
"""The number of positive signal variances in the mixture prior, each a third of the one before."""


@dataclasses.dataclass(frozen=True)
class Shrunk:
    """Noisy counts shrunk towards expected ones, and the posterior of their signal variance."""

    tables: list[np.ndarray]
    prior_ratio: float
    """The prior mean of the signal variance, relative to the expected count."""
    posterior: Float[np.ndarray, "tables ratios"]
    """The posterior probability of each signal variance."""
    signal: Float[np.ndarray, "tables ratios"]
    """The signal variance of a count of mean size."""


NO_TABLES = Shrunk([], 0.0, np.ones((0, 1)), np.ones((0, 1)))


def shrink_by_mixture(
    noisy: Sequence[np.ndarray], independent: Sequence[np.ndarray], variances: Sequence[float]
) -> Shrunk:
    """Posterior means of the interactions of tables whose margins are known, under a mixture prior of signal variances.

    For tables too small to estimate a signal variance of their own. The mixture weights are fitted to all tables
    together (after Stephens, "False discovery rates: a new deal", 2017): most pairs of a wide table are nearly
    independent, and a few are not.

    >>> even = np.full((1, 2, 2), 50.0)
    >>> strong, weak = np.array([[[90.0, 10], [10, 90]]]), np.array([[[51.0, 49], [49, 51]]])
    >>> shrunk = shrink_by_mixture([strong, *[weak] * 50], [even] * 51, [100.0] * 51)
    >>> [table.round().tolist() for table in shrunk.tables[:2]]
    [[[[89.0, 11.0], [11.0, 89.0]]], [[[50.0, 50.0], [50.0, 50.0]]]]
    """
    if not noisy:
        return NO_TABLES
    away = [_interaction(counts - expected) for counts, expected in zip(noisy, independent, strict=True)]
    free = np.asarray([math.prod(size - 1 for size in table.shape[1:]) for table in away])
    squares = np.asarray([float((distance**2).sum()) for distance in away])
    rows = np.asarray([float(expected.mean()) for expected in independent])
    most = float((squares / free / rows).max())
    ratios = np.concatenate([[0.0], most * 3.0 ** -np.arange(MIXTURE_SIZE)])
    signals = rows[:, None] * ratios
    spread = np.asarray(variances)[:, None] + signals + 1e-12  # without noise, no division by zero
    logs = -free[:, None] / 2 * np.log(spread) - squares[:, None] / 2 / spread
    likely = np.exp(logs - logs.max(axis=1, keepdims=True))
    parts = np.full(len(ratios), 1 / len(ratios))
    for _ in range(200):  # EM
        posterior = likely * parts
        posterior /= posterior.sum(axis=1, keepdims=True)
        parts = posterior.mean(axis=0)
    shrunk = []
    for distance, expected, variance, own in zip(away, independent, variances, posterior, strict=True):
        signal = ratios * expected[..., None]
        shrunk.append(expected + distance * ((signal / (signal + variance + 1e-12)) @ own))
    return Shrunk(shrunk, float(parts @ ratios), posterior, signals)


def _interaction(distance: Float[np.ndarray, "classes a b"]) -> Float[np.ndarray, "classes a b"]:
    """The interaction term of a table: what is left without its margins."""
    distance = distance - distance.mean(axis=1, keepdims=True)
    return distance - distance.mean(axis=2, keepdims=True)


def shrink_towards(
    noisy: Sequence[np.ndarray], independent: Sequence[np.ndarray], variances: Sequence[float]
) -> Shrunk:
    """Noisy counts shrunk towards those of independent columns (empirical Bayes, after James and Stein).

    The signal variance of a cell is proportional to its expected count. The factor is estimated from the noisy counts
    of a table and, the smaller the table the more, from those of all tables.

    >>> even = np.full((2, 2), 50.0)
    >>> shrink_towards([np.array([[90.0, 10], [10, 90]])], [even], [1.0]).tables[0].round(1).tolist()
    [[90.0, 10.0], [10.0, 90.0]]
    >>> shrink_towards([np.array([[51.0, 49], [49, 51]])], [even], [100.0]).tables[0].tolist()
    [[50.0, 50.0], [50.0, 50.0]]
    """
    if not noisy:
        return NO_TABLES
    away = [counts - expected for counts, expected in zip(noisy, independent, strict=True)]
    own = [
        (float((distance**2).sum()) - variance * distance.size) / float(expected.sum())
        for distance, expected, variance in zip(away, independent, variances, strict=True)
    ]
    prior_ratio = max(0.0, float(np.mean(own)))
    shrunk, signals = [], []
    for distance, expected, variance, alone in zip(away, independent, variances, own, strict=True):
        ratio = max(0.0, (distance.size * alone + PRIOR_CELLS * prior_ratio) / (distance.size + PRIOR_CELLS))
        signal = ratio * expected
        shrunk.append(expected + distance * signal / (signal + variance + 1e-12))  # without noise, no division by zero
        signals.append([float(signal.mean())])
    return Shrunk(shrunk, prior_ratio, np.ones((len(shrunk), 1)), np.asarray(signals))


def code_probabilities(shares: Float[np.ndarray, " codes"], groups: Groups) -> Float[np.ndarray, "codes groups"]:
    """The conditional probability of each code within its group."""
    within = np.bincount(groups, weights=shares)
    return np.eye(len(within))[list(groups)] * (shares / within[list(groups)])[:, None]


def combine(
    first: Sequence[np.ndarray], noise: Sequence[float], second: Sequence[np.ndarray], more: Sequence[float]
) -> tuple[list[np.ndarray], list[float]]:
    """Two measurements of the same counts, averaged by precision."""
    joint = [(a**-2 + b**-2) ** -0.5 for a, b in zip(noise, more, strict=True)]
    counts = [
        (x / a**2 + y / b**2) * both**2 for x, a, y, b, both in zip(first, noise, second, more, joint, strict=True)
    ]
    return counts, joint
