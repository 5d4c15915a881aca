"""Lower bounds on the privacy cost, from the scores of an attack.

An attack gives each run a score: the higher, the more likely the canary was in the table. The scores of many runs with
and without the canary are two samples, and the guarantee limits how far apart their distributions can be. Each function
here turns two samples into a lower bound on the true cost, with a stated confidence. A bound above the claim refutes
the claim; a bound below it proves nothing, since a better attack may exist.

Clopper-Pearson bounds come from `jax_privacy.auditing` (the extra `audit`). Its
`epsilon_from_gdp` is not used: release 2.0.0 takes the absolute value of each mu on the curve, and so finds a large mu
in scores that are all noise.
"""

import math
from types import ModuleType
from typing import NamedTuple

import numpy as np
from dp_accounting import get_sigma_gaussian
from scipy import stats

from understudy._version import install_advice
from understudy.errors import ConfigError

FEWEST_SCORES = 20
"""On each side. With fewer, even a perfect attack gives an epsilon of at most about 1."""
SELECTION_FRACTION = 0.3
"""The fraction of scores for choosing the threshold; the others give the bound."""


class Bound(NamedTuple):
    """What the scores of many runs show. Each figure holds with the stated confidence by itself.

    The mechanism is (epsilon', delta)-DP for no epsilon' below `epsilon`, and mu'-GDP for no mu' below `mu`.
    """

    epsilon: float
    """At the given delta, from the errors at one threshold (Clopper-Pearson), chosen on other scores."""
    mu: float
    """Of Gaussian differential privacy, from the whole trade-off curve: its area, or its most informative threshold."""


def lower_bound(
    scores_in: np.ndarray, scores_out: np.ndarray, *, delta: float, confidence: float = 0.95, seed: int
) -> Bound:
    """Lower bounds from independent runs with the canary and without it.

    Both directions count: adding the canary to the table and removing it. The seed splits and pairs the scores.
    """
    auditing = import_auditing()
    inside, outside = check_scores(scores_in), check_scores(scores_out)
    check_level(delta, confidence)
    epsilon = auditing.CanaryScoreAuditor(inside, outside).epsilon_clopper_pearson(
        1 - confidence, delta, one_sided=False, threshold_strategy=auditing.Split(SELECTION_FRACTION, seed=seed)
    )
    return Bound(float(epsilon), _mu_of_curve(inside, outside, confidence, seed))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The mu of the Gaussian mechanism that has this epsilon at `delta`; zero at an epsilon of zero."""
    return float(1 / get_sigma_gaussian(epsilon, delta)) if epsilon > 0 else 0.0


def _mu_of_curve(inside: np.ndarray, outside: np.ndarray, confidence: float, seed: int) -> float:
    """One of two bounds, chosen on some of the scores and computed on the others.

    Pairs are better for a Gaussian curve, a threshold for curves that are steep at one end.
    """
    rng = np.random.default_rng(seed)
    chosen_in, rest_in = split_scores(inside, rng)
    chosen_out, rest_out = split_scores(outside, rng)
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
    """
    num_pairs = min(len(inside), len(outside))
    first, second = rng.permutation(inside)[:num_pairs], rng.permutation(outside)[:num_pairs]
    coins = rng.random(num_pairs) < 0.5  # a tie is decided by a coin
    num_wrong = np.sum((first < second) | ((first == second) & coins))
    wrong_rate = _largest_rate(num_wrong, num_pairs, 1 - confidence)
    return max(0.0, math.sqrt(2) * float(stats.norm.isf(wrong_rate)))


def mu_from_threshold(inside: np.ndarray, outside: np.ndarray, thresholds: np.ndarray, confidence: float) -> np.ndarray:
    """The largest mu that is refuted by both errors of each threshold: each mu holds with `confidence` by itself."""
    num_missed = np.searchsorted(np.sort(inside), thresholds, side="left")
    num_alarms = len(outside) - np.searchsorted(np.sort(outside), thresholds, side="left")
    missed = _largest_rate(num_missed, len(inside), (1 - confidence) / 2)
    alarms = _largest_rate(num_alarms, len(outside), (1 - confidence) / 2)
    return np.asarray(np.maximum(0.0, stats.norm.isf(missed) + stats.norm.isf(alarms)))


def _largest_rate(number: np.ndarray, total: int, level: float) -> np.ndarray:
    """The upper end of the one-sided Clopper-Pearson interval, which is exceeded with probability at most `level`."""
    return np.where(number < total, stats.beta.isf(level, number + 1, np.maximum(total - number, 1)), 1.0)


def split_scores(scores: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A random fraction of the scores to choose by, and the others."""
    shuffled, first = rng.permutation(scores), int(len(scores) * SELECTION_FRACTION)
    return shuffled[:first], shuffled[first:]


def import_auditing() -> ModuleType:
    """`jax_privacy.auditing`, or an error that says what to install."""
    try:
        from jax_privacy import auditing
    except ImportError as error:
        raise ConfigError(
            f"The bounds of an audit need jax-privacy, which is not installed. Run: {install_advice('audit')}."
        ) from error
    module: ModuleType = auditing
    return module


def check_scores(scores: np.ndarray) -> np.ndarray:
    """The scores of one side as floats; refuses NaN, tables and too few scores."""
    values = np.asarray(scores, dtype=float)
    if values.ndim != 1:
        raise ConfigError(
            f"Scores of an audit must be one array of numbers, found one of shape {values.shape}.", setting="scores"
        )
    if len(values) < FEWEST_SCORES:
        raise ConfigError(
            f"A bound needs at least {FEWEST_SCORES} scores with the canary and as many without it, found "
            f"{len(values)}. Make more runs.",
            setting="scores",
        )
    if np.isnan(values).any():
        raise ConfigError(
            "Scores of an audit must be numbers, found NaN. Give failed runs the lowest score.", setting="scores"
        )
    return values


def check_level(delta: float, confidence: float) -> None:
    """Refuses a delta or a confidence that no bound can have."""
    if not 0 <= delta < 1:
        raise ConfigError(f"delta must be at least 0 and below 1, found {delta}.", setting="delta")
    if not 0.5 < confidence < 1:
        raise ConfigError(f"confidence must be above 0.5 and below 1, found {confidence}.", setting="confidence")
