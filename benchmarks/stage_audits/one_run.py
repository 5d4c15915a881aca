"""A lower bound on the privacy cost from one run with many canaries.

The test is that of `jax_privacy.auditing` (the extra `audit`).
"""

import dataclasses

import numpy as np

from understudy.audit.bounds import check_level, check_scores, gaussian_mu, import_auditing, split_scores
from understudy.errors import ConfigError

GUESSED_FRACTIONS, SELECTION_LEVEL = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4), 0.05
"""Fractions of the canaries of one run that are guessed to be in the table, and the level at which one of these is
chosen. It does not depend on the confidence: a strict level could refute nothing with these few canaries."""


@dataclasses.dataclass(frozen=True)
class OneRunBound:
    """What one run with many canaries shows about its cost for each of them alone.

    With the stated confidence, no mechanism whose curve lies above the Gaussian curve of `mu` would let this many
    canaries be guessed. `epsilon` is that of this curve at `delta`.
    """

    epsilon: float
    mu: float
    delta: float
    confidence: float
    num_canaries: int


def one_run_bound(
    scores_in: np.ndarray, scores_out: np.ndarray, *, delta: float, confidence: float = 0.95, seed: int
) -> OneRunBound:
    """A lower bound from one run with many canaries, each a privacy unit that was in the table by its own fair coin.

    The claim under test is the guarantee for one unit: the other canaries are rows like any others, so their number
    does not matter. Scores may depend on each other. The test is that for f-DP in one run (Mahloujifar et al. 2024).

    >>> rng = np.random.default_rng(0)
    >>> one_run_bound(rng.normal(4, 1, 200), rng.normal(0, 1, 200), delta=1e-5, seed=0).mu > 1
    True
    """
    auditing = import_auditing()
    inside, outside = check_scores(scores_in), check_scores(scores_out)
    check_level(delta, confidence)
    if delta == 0:
        raise ConfigError(
            "delta must be above 0 for a bound from one run, found 0. Use the delta of the claim.", setting="delta"
        )
    # The split does not depend on the coins, so the coins of the canaries that give the bound are still independent.
    rng = np.random.default_rng(seed)
    chosen, rest = split_scores(np.arange(len(inside) + len(outside)), rng)
    scores, is_in = np.concatenate([inside, outside]), np.arange(len(inside) + len(outside)) < len(inside)

    def epsilon_at(threshold: float, of: np.ndarray, level: float) -> float:
        auditor = auditing.CanaryScoreAuditor(scores[of][is_in[of]], scores[of][~is_in[of]])
        return float(auditor.epsilon_one_run_fdp(level, delta, threshold_strategy=auditing.Explicit(threshold)))

    thresholds = np.quantile(scores[chosen], 1 - np.array(GUESSED_FRACTIONS))
    found = [epsilon_at(threshold, chosen, SELECTION_LEVEL) for threshold in thresholds]
    epsilon = epsilon_at(thresholds[int(np.argmax(found))], rest, 1 - confidence)
    return OneRunBound(
        epsilon=epsilon,
        mu=gaussian_mu(epsilon, delta),
        delta=delta,
        confidence=confidence,
        num_canaries=len(inside) + len(outside),
    )
