"""Estimates of a model's errors: noisy L1 distances from several rounds, pooled, and their posterior means."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float

from understudy.models.junction import Clique, Table


class Answer(NamedTuple):
    """One noisy L1 distance between a marginal of the rows and that of a model."""

    noisy: float
    stddev: float
    expected: Table
    """The marginal of the model at the time."""


@dataclasses.dataclass(frozen=True)
class ErrorEstimates:
    """Noisy errors of a model that changes between rounds, pooled by clique. A value: `add` returns a new one.

    An earlier answer is about an earlier model, whose error differs from the current one by at most the L1 distance
    between the marginals of both models: it counts as an answer with that much more noise.
    """

    prior_mean: float | None = None
    """The mean error of the first candidates: the prior is an exponential distribution with this mean."""
    first: Mapping[Clique, float] = dataclasses.field(default_factory=dict)
    """The posterior means after the first answers."""
    posterior: Mapping[Clique, tuple[float, float]] = dataclasses.field(default_factory=dict)
    """The latest posterior mean of each error, and the standard deviation of its pooled answers."""
    answers: Mapping[Clique, tuple[Answer, ...]] = dataclasses.field(default_factory=dict)

    def add(
        self, cliques: Sequence[Clique], expected: Sequence[Table], noisy: Float[np.ndarray, " n"], stddev: float
    ) -> "ErrorEstimates":
        """The estimates with the answers of one more round, about a model with these marginals."""
        if not cliques:
            return self
        new = {
            clique: (*self.answers.get(clique, ()), Answer(float(answer), stddev, now))
            for clique, now, answer in zip(cliques, expected, noisy, strict=True)
        }
        pooled, deviations = map(np.array, zip(*map(_pool, new.values()), strict=True))
        prior_mean = self.prior_mean
        if prior_mean is None:
            prior_mean = max(float(pooled.mean()), stddev / math.sqrt(len(cliques)))
        means = dict(zip(cliques, posterior_mean(pooled, deviations, prior_mean).tolist(), strict=True))
        posterior = zip(cliques, zip(means.values(), deviations.tolist(), strict=True), strict=True)
        return ErrorEstimates(
            prior_mean, self.first or means, {**self.posterior, **dict(posterior)}, {**self.answers, **new}
        )

    def means(self, cliques: Sequence[Clique]) -> Float[np.ndarray, " n"]:
        """The posterior means of the errors of these cliques, which have answers."""
        return np.array([self.posterior[clique][0] for clique in cliques])

    def likely(self, clique: Clique) -> float | None:
        """A plausibly large error: the posterior mean plus one standard deviation; None without answers."""
        return sum(self.posterior[clique]) if clique in self.posterior else None


def _pool(answers: Sequence[Answer]) -> tuple[float, float]:
    """The mean of answers about the model of the last one, and its standard deviation."""
    now = answers[-1].expected
    weights = np.array([1 / (s**2 + float(np.abs(now - then).sum()) ** 2) for _, s, then in answers])
    return np.average([answer.noisy for answer in answers], weights=weights), weights.sum() ** -0.5


def posterior_mean(
    noisy: Float[np.ndarray, " n"], stddev: float | Float[np.ndarray, " n"], mean: float
) -> Float[np.ndarray, " n"]:
    """The mean of an error given its noisy value, if errors are exponentially distributed with this mean.

    Of all distributions of positive numbers with a known mean, the exponential one has the largest entropy. The
    posterior is a normal distribution around noisy - stddev^2 / mean, truncated at zero.
    """
    deviations = np.broadcast_to(stddev, np.shape(noisy))
    ratio = (noisy - deviations**2 / mean) / deviations
    hazard = np.exp(scipy.stats.norm.logpdf(ratio) - scipy.stats.norm.logcdf(ratio))
    return np.maximum(deviations * (ratio + hazard), 0.0)
