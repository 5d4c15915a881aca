"""Lower bounds on the privacy cost, from the scores of an attack.

An attack gives each run a score: the higher, the more likely the canary was in the table. The scores of many runs with
and without the canary are two samples, and the guarantee limits how far apart their distributions can be. Each function
here turns two samples into a lower bound on the true cost, with a stated confidence. A bound above the claim refutes
the claim; a bound below it proves nothing, since a better attack may exist.

Clopper-Pearson bounds and the test for a single run come from `jax_privacy.auditing` (the extra `audit`). Its
`epsilon_from_gdp` is not used: release 2.0.0 takes the absolute value of each mu on the curve, and so finds a large mu
in scores that are all noise.
"""

import dataclasses
import math
from types import ModuleType

import numpy as np
from dp_accounting import get_epsilon_gaussian, get_sigma_gaussian
from scipy import stats

from understudy.errors import ConfigError

FEWEST_SCORES = 20
"""On each side. With fewer, even a perfect attack gives an epsilon of at most about 1."""
SELECTION_FRACTION = 0.3
"""The fraction of scores for choosing the threshold; the others give the bound."""
GUESSED_FRACTIONS, SELECTION_LEVEL = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4), 0.05
"""Fractions of the canaries of one run that are guessed to be in the table, and the level at which one of these is
chosen. It does not depend on the confidence: a strict level could refute nothing with these few canaries."""


@dataclasses.dataclass(frozen=True)
class Bound:
    """What the scores of many runs show. Each figure holds with the stated confidence by itself.

    The mechanism is (epsilon', delta)-DP for no epsilon' below `epsilon`, and mu'-GDP for no mu' below `mu`.
    """

    epsilon: float
    """At `delta`, from the errors at one threshold (Clopper-Pearson), chosen on other scores."""
    mu: float
    """Of Gaussian differential privacy, from the whole trade-off curve: its area, or its most informative threshold."""
    epsilon_gdp: float | None
    """At `delta`, of the Gaussian curve of `mu`. Compare it only with claims about a Gaussian curve: other mechanisms
    can have this mu and a smaller epsilon. None at a delta of zero."""
    delta: float
    confidence: float
    num_in: int
    num_out: int


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


def lower_bound(
    scores_in: np.ndarray, scores_out: np.ndarray, *, delta: float, confidence: float = 0.95, seed: int
) -> Bound:
    """Lower bounds from independent runs with the canary and without it.

    Both directions count: adding the canary to the table and removing it. The seed splits and pairs the scores.

    >>> found = lower_bound(np.arange(200.0) + 150, np.arange(200.0), delta=1e-5, seed=0)
    >>> found.epsilon > 1, found.mu > 1
    (True, True)
    """
    auditing = _import_auditing()
    inside, outside = _check_scores(scores_in), _check_scores(scores_out)
    _check_level(delta, confidence)
    epsilon = auditing.CanaryScoreAuditor(inside, outside).epsilon_clopper_pearson(
        1 - confidence,
        delta,
        one_sided=False,
        threshold_strategy=auditing.Split(SELECTION_FRACTION, seed=seed),
    )
    mu = _mu_of_curve(inside, outside, confidence, seed)
    return Bound(
        epsilon=float(epsilon),
        mu=mu,
        epsilon_gdp=gaussian_epsilon(mu, delta) if delta > 0 else None,
        delta=delta,
        confidence=confidence,
        num_in=len(inside),
        num_out=len(outside),
    )


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
    auditing = _import_auditing()
    inside, outside = _check_scores(scores_in), _check_scores(scores_out)
    _check_level(delta, confidence)
    if delta == 0:
        raise ConfigError("delta must be above 0 for a bound from one run, found 0. Use the delta of the claim.")
    # The split does not depend on the coins, so the coins of the canaries that give the bound are still independent.
    rng = np.random.default_rng(seed)
    chosen, rest = _split(np.arange(len(inside) + len(outside)), rng)
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


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon at `delta` of a Gaussian mechanism whose sensitivity is `mu` standard deviations.

    >>> round(gaussian_epsilon(1.0, 1e-5), 2)
    4.38
    """
    return float(get_epsilon_gaussian(1 / mu, delta)) if mu > 0 else 0.0


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The mu of the Gaussian mechanism that has this epsilon at `delta`; zero at an epsilon of zero.

    >>> round(gaussian_mu(4.38, 1e-5), 2)
    1.0
    """
    return float(1 / get_sigma_gaussian(epsilon, delta)) if epsilon > 0 else 0.0


def _mu_of_curve(inside: np.ndarray, outside: np.ndarray, confidence: float, seed: int) -> float:
    """One of two bounds, chosen on some of the scores and computed on the others.

    Pairs are better for a Gaussian curve, a threshold for curves that are steep at one end.
    """
    rng = np.random.default_rng(seed)
    chosen_in, rest_in = _split(inside, rng)
    chosen_out, rest_out = _split(outside, rng)
    thresholds = np.unique(np.concatenate([chosen_in, chosen_out]))
    by_threshold = mu_from_threshold(chosen_in, chosen_out, thresholds, confidence)
    best = np.argmax(by_threshold)
    if by_threshold[best] > mu_from_pairs(chosen_in, chosen_out, confidence, rng):
        return float(mu_from_threshold(rest_in, rest_out, thresholds[[best]], confidence)[0])
    return mu_from_pairs(rest_in, rest_out, confidence, rng)


def mu_from_pairs(inside: np.ndarray, outside: np.ndarray, confidence: float, rng: np.random.Generator) -> float:
    """The largest mu that is refuted by how often a run with the canary scores above one without it.

    Telling which run of a pair had the canary is telling (with, without) from (without, with): two mechanisms, so the
    pair is sqrt(2) mu-GDP. Both errors of this guess are the same by symmetry, hence at least Phi(-mu / sqrt(2)). The
    probability of a right guess is the area under the ROC curve. Pairs are disjoint, so the number of right guesses is
    binomial and its bound exact.

    >>> round(mu_from_pairs(np.ones(1000), np.zeros(1000), 0.95, np.random.default_rng(0)), 2)
    3.89
    """
    num_pairs = min(len(inside), len(outside))
    first, second = rng.permutation(inside)[:num_pairs], rng.permutation(outside)[:num_pairs]
    coins = rng.random(num_pairs) < 0.5  # a tie is decided by a coin
    num_wrong = np.sum((first < second) | ((first == second) & coins))
    wrong_rate = _largest_rate(num_wrong, num_pairs, 1 - confidence)
    return max(0.0, math.sqrt(2) * float(stats.norm.isf(wrong_rate)))


def mu_from_threshold(inside: np.ndarray, outside: np.ndarray, thresholds: np.ndarray, confidence: float) -> np.ndarray:
    """The largest mu that is refuted by both errors of each threshold: each mu holds with `confidence` by itself.

    >>> mu_from_threshold(np.ones(1000), np.zeros(1000), np.array([0.5]), 0.95).round(2)
    array([5.36])
    """
    num_missed = np.searchsorted(np.sort(inside), thresholds, side="left")
    num_alarms = len(outside) - np.searchsorted(np.sort(outside), thresholds, side="left")
    missed = _largest_rate(num_missed, len(inside), (1 - confidence) / 2)
    alarms = _largest_rate(num_alarms, len(outside), (1 - confidence) / 2)
    return np.maximum(0.0, stats.norm.isf(missed) + stats.norm.isf(alarms))


def _largest_rate(number: np.ndarray, total: int, level: float) -> np.ndarray:
    """The upper end of the one-sided Clopper-Pearson interval, which is exceeded with probability at most `level`."""
    return np.where(number < total, stats.beta.isf(level, number + 1, np.maximum(total - number, 1)), 1.0)


def _split(scores: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A random fraction of the scores to choose by, and the others."""
    shuffled, first = rng.permutation(scores), int(len(scores) * SELECTION_FRACTION)
    return shuffled[:first], shuffled[first:]


def _import_auditing() -> ModuleType:
    try:
        from jax_privacy import auditing
    except ImportError as error:
        raise ConfigError(
            "The bounds of an audit need jax-privacy, which is not installed. Run: pip install 'understudy[audit]'"
        ) from error
    return auditing


def check_number(number: int) -> None:
    """Refuses too few scores on one side, before the runs are made.

    >>> check_number(20)
    """
    if number < FEWEST_SCORES:
        raise ConfigError(
            f"A bound needs at least {FEWEST_SCORES} scores with the canary and as many without it, found {number}. "
            "Make more runs."
        )


def _check_scores(scores: np.ndarray) -> np.ndarray:
    values = np.asarray(scores, dtype=float)
    if values.ndim != 1:
        raise ConfigError(f"Scores of an audit must be one array of numbers, found one of shape {values.shape}.")
    check_number(len(values))
    if np.isnan(values).any():
        raise ConfigError("Scores of an audit must be numbers, found NaN. Give failed runs the lowest score.")
    return values


def _check_level(delta: float, confidence: float) -> None:
    if not 0 <= delta < 1:
        raise ConfigError(f"delta must be at least 0 and below 1, found {delta}.")
    if not 0.5 < confidence < 1:
        raise ConfigError(f"confidence must be above 0.5 and below 1, found {confidence}.")
