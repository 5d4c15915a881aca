"""Estimates of a model's errors: noisy L1 distances from several rounds, pooled, and their posterior means."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import scipy.stats
from jaxtyping import Float

from understudy.models.junction import Clique, Table


@dataclasses.dataclass
class ErrorEstimates:
    """Noisy errors of a model that changes between rounds, pooled by clique.

    An earlier answer is about an earlier model, whose error differs from the current one by at most the L1 distance
    between the marginals of both models: it counts as an answer with that much more noise.
    """

    mean: float | None = None
    """The mean error of the first candidates: the prior is an exponential distribution with this mean."""
    _answers: dict[Clique, list[tuple[float, float, Table]]] = dataclasses.field(default_factory=dict)
    _known: dict[Clique, tuple[float, float]] = dataclasses.field(default_factory=dict)

    def add(
        self, cliques: Sequence[Clique], expected: Sequence[Table], noisy: Float[np.ndarray, " n"], stddev: float
    ) -> Float[np.ndarray, " n"]:
        """Adds the answers of one round and returns the posterior mean of each error."""
        pooled, deviations = np.zeros(len(cliques)), np.zeros(len(cliques))
        for i, (clique, now, answer) in enumerate(zip(cliques, expected, noisy, strict=True)):
            answers = self._answers.setdefault(clique, [])
            answers.append((float(answer), stddev, now))
            weights = np.array([1 / (s**2 + float(np.abs(now - then).sum()) ** 2) for _, s, then in answers])
            pooled[i] = np.average([value for value, _, _ in answers], weights=weights)
            deviations[i] = weights.sum() ** -0.5
        if self.mean is None:
            self.mean = max(float(pooled.mean()), stddev / math.sqrt(len(cliques)))
        posterior = posterior_mean(pooled, deviations, self.mean)
        self._known.update(
            (clique, (float(p), float(d))) for clique, p, d in zip(cliques, posterior, deviations, strict=True)
        )
        return posterior

    def likely(self, clique: Clique) -> float | None:
        """A plausibly large error: the posterior mean plus one standard deviation; None without answers."""
        known = self._known.get(clique)
        return None if known is None else sum(known)


def posterior_mean(
    noisy: Float[np.ndarray, " n"], stddev: float | Float[np.ndarray, " n"], mean: float
) -> Float[np.ndarray, " n"]:
    """The mean of an error given its noisy value, if errors are exponentially distributed with this mean.

    Of all distributions of positive numbers with a known mean, the exponential one has the largest entropy. The
    posterior is a normal distribution around noisy - stddev^2 / mean, truncated at zero.

    >>> posterior_mean(np.array([100.0, 0.0]), 1.0, 10.0).round(2).tolist()  # far above the noise, and within it
    [99.9, 0.76]
    """
    deviations = np.broadcast_to(stddev, np.shape(noisy))
    ratio = (noisy - deviations**2 / mean) / deviations
    hazard = np.exp(scipy.stats.norm.logpdf(ratio) - scipy.stats.norm.logcdf(ratio))
    return np.maximum(deviations * (ratio + hazard), 0.0)
