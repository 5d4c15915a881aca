"""Lower bounds on mechanisms whose trade-off curve is known: below the truth as often as stated, and not far below.

Each test of coverage counts, over repetitions with fixed seeds, how often a bound exceeds the truth, and fails on a
correct bound with probability 1e-4 at most.
"""

import builtins
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from scipy import stats

from benchmarks.stage_audits.one_run import one_run_bound
from tests.builders import raises
from understudy.audit.bounds import (
    FEWEST_SCORES,
    Bound,
    gaussian_mu,
    lower_bound,
    mu_from_pairs,
    mu_from_threshold,
)
from understudy.errors import ConfigError
from understudy.privacy.accounting.accountants import gaussian_epsilon

FALSE_ALARM = 1e-4
CONFIDENCE = 0.95
REPETITIONS = 300
NUM_SCORES = 200

Draw = Callable[[np.random.Generator, int], np.ndarray]


class Mechanism(NamedTuple):
    """What an attack on a known mechanism sees with the canary and without it, and the true cost."""

    draw_in: Draw
    draw_out: Draw
    delta: float
    epsilon: float
    """At `delta`, the larger of both directions."""
    mu: float
    """The least for which the mechanism is mu-GDP."""


def least_mu(errors: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], thresholds: np.ndarray) -> float:
    """The largest distance of a curve from no privacy loss at all, over the errors at these thresholds."""
    false_alarm, miss = errors(thresholds)
    return float(np.max(stats.norm.isf(false_alarm) - stats.norm.ppf(miss)))


def gaussian(mu: float, delta: float) -> Mechanism:
    return Mechanism(
        lambda rng, n: rng.normal(mu, 1, n),
        lambda rng, n: rng.normal(0, 1, n),
        delta,
        gaussian_epsilon(1 / mu, delta),
        mu,
    )


def randomised_response(epsilon: float) -> Mechanism:
    keep = 1 / (1 + math.exp(-epsilon))
    return Mechanism(
        lambda rng, n: (rng.random(n) < keep).astype(float),
        lambda rng, n: (rng.random(n) >= keep).astype(float),
        0.0,
        epsilon,
        2 * float(stats.norm.ppf(keep)),
    )


def laplace(epsilon: float) -> Mechanism:
    def errors(thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shape = stats.laplace(scale=1 / epsilon)
        return shape.sf(thresholds), shape.cdf(thresholds - 1)

    return Mechanism(
        lambda rng, n: 1 + rng.laplace(0, 1 / epsilon, n),
        lambda rng, n: rng.laplace(0, 1 / epsilon, n),
        0.0,
        epsilon,
        least_mu(errors, np.linspace(-3, 4, 7001)),
    )


def sampled_gaussian(rate: float, stddev: float, delta: float) -> Mechanism:
    """One step of DP-SGD: the unit takes part with probability `rate`."""

    def errors(thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        apart, here = stats.norm.cdf(thresholds / stddev), stats.norm.cdf((thresholds - 1) / stddev)
        return 1 - apart, (1 - rate) * apart + rate * here

    accountant = PLDAccountant().compose(PoissonSampledDpEvent(rate, GaussianDpEvent(stddev)))
    return Mechanism(
        lambda rng, n: (rng.random(n) < rate) + rng.normal(0, stddev, n),
        lambda rng, n: rng.normal(0, stddev, n),
        delta,
        accountant.get_epsilon(delta),
        least_mu(errors, np.linspace(-3, 4, 7001) * stddev),
    )


MECHANISMS = {
    "Gaussian": gaussian(1.0, 1e-3),
    "randomised response": randomised_response(math.log(3)),
    "Laplace": laplace(1.0),
    "Poisson-sampled Gaussian": sampled_gaussian(0.5, 0.5, 1e-2),
}


def bound_of(mechanism: Mechanism, seed: int, num_scores: int = NUM_SCORES) -> Bound:
    rng = np.random.default_rng([17, seed])
    scores_in, scores_out = mechanism.draw_in(rng, num_scores), mechanism.draw_out(rng, num_scores)
    return lower_bound(scores_in, scores_out, delta=mechanism.delta, confidence=CONFIDENCE, seed=seed)


def assert_rarely_above(num_above: int, repetitions: int) -> None:
    assert num_above <= stats.binom.isf(FALSE_ALARM, repetitions, 1 - CONFIDENCE)


# ------------------------------------------------------------------------------------------------------------- coverage


@pytest.mark.parametrize("name", MECHANISMS)
def test_bounds_exceed_the_truth_no_more_often_than_stated(name: str) -> None:
    mechanism = MECHANISMS[name]
    found = [bound_of(mechanism, seed) for seed in range(REPETITIONS)]
    assert_rarely_above(sum(each.epsilon > mechanism.epsilon for each in found), REPETITIONS)
    assert_rarely_above(sum(each.mu > mechanism.mu for each in found), REPETITIONS)


def test_the_confidence_of_pairs_is_exact_for_a_gaussian() -> None:
    """Two-sided: neither more nor fewer bounds exceed the truth than the binomial says."""
    mechanism, repetitions = gaussian(1.0, 1e-3), 2000
    right_rate = stats.norm.cdf(mechanism.mu / math.sqrt(2))
    limits = stats.beta.ppf(1 - CONFIDENCE, np.arange(1, NUM_SCORES + 1), NUM_SCORES - np.arange(NUM_SCORES))
    expected = stats.binom.sf(np.argmax(limits > right_rate), NUM_SCORES, right_rate)
    assert 0.03 < expected <= 1 - CONFIDENCE
    num_above = sum(
        mu_from_pairs(mechanism.draw_in(rng, NUM_SCORES), mechanism.draw_out(rng, NUM_SCORES), CONFIDENCE, rng)
        > mechanism.mu
        for rng in map(np.random.default_rng, range(repetitions))
    )
    assert stats.binomtest(num_above, repetitions, expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize("name", MECHANISMS)
def test_no_fixed_threshold_exceeds_the_truth_more_often_than_stated(name: str) -> None:
    mechanism, above = MECHANISMS[name], np.zeros(5)
    for seed in range(REPETITIONS):
        rng = np.random.default_rng([19, seed])
        scores = mechanism.draw_in(rng, NUM_SCORES), mechanism.draw_out(rng, NUM_SCORES)
        above += mu_from_threshold(*scores, np.linspace(-0.5, 1.5, 5), CONFIDENCE) > mechanism.mu
    assert_rarely_above(int(above.max()), REPETITIONS)


def test_scores_of_pure_noise_refute_nothing() -> None:
    nothing = gaussian(1e-9, 1e-3)
    found = [bound_of(nothing, seed) for seed in range(REPETITIONS)]
    assert_rarely_above(sum(each.epsilon > 0 for each in found), REPETITIONS)
    assert_rarely_above(sum(each.mu > 1e-9 for each in found), REPETITIONS)


def test_what_is_chosen_and_what_is_computed_are_different_scores() -> None:
    """A threshold that was chosen on the scores it is computed on would be above zero in two of three repetitions."""
    allowed, num_above = 0.4, 0
    for seed in range(REPETITIONS):
        rng = np.random.default_rng([20, seed])
        scores = rng.normal(0, 1, (2, NUM_SCORES))
        num_above += lower_bound(*scores, delta=1e-3, confidence=1 - allowed, seed=seed).mu > 0
    assert num_above <= stats.binom.isf(FALSE_ALARM, REPETITIONS, allowed)


def test_bounds_from_one_run_exceed_the_truth_no_more_often_than_stated() -> None:
    """Scores of canaries in one run share noise here: the test allows any dependence of the scores on each other."""
    repetitions, mu, delta, num_above = 50, 1.0, 1e-3, 0
    for seed in range(repetitions):
        rng = np.random.default_rng([18, seed])
        inside = rng.random(200) < 0.5
        scores = mu * inside + rng.normal(0, 1, 200) + rng.normal(0, 3)
        found = one_run_bound(scores[inside], scores[~inside], delta=delta, confidence=CONFIDENCE, seed=seed)
        num_above += found.mu > mu
    assert_rarely_above(num_above, repetitions)


def test_the_rule_on_coverage_can_fail() -> None:
    """Bounds at a claim that is too small are seen to exceed it."""
    found = [bound_of(MECHANISMS["Gaussian"], seed) for seed in range(REPETITIONS)]
    with pytest.raises(AssertionError):
        assert_rarely_above(sum(each.mu > 0.8 for each in found), REPETITIONS)
    with pytest.raises(AssertionError):
        assert_rarely_above(sum(each.epsilon > 0.5 for each in found), REPETITIONS)


# ---------------------------------------------------------------------------------------------------------------- power


@pytest.mark.parametrize(
    ("name", "epsilon_fraction", "mu_fraction"),
    [
        ("Gaussian", 0.6, 0.95),
        ("randomised response", 0.9, 0.95),
        ("Laplace", 0.75, 0.9),
        ("Poisson-sampled Gaussian", 0.65, 0.75),  # its curve is steep where few runs are
    ],
)
def test_with_many_scores_bounds_come_near_the_truth(name: str, epsilon_fraction: float, mu_fraction: float) -> None:
    mechanism = MECHANISMS[name]
    found = [bound_of(mechanism, seed, num_scores=20_000) for seed in range(3)]
    assert np.median([each.epsilon for each in found]) > epsilon_fraction * mechanism.epsilon
    assert np.median([each.mu for each in found]) > mu_fraction * mechanism.mu


def test_an_attack_that_never_errs_shows_what_its_number_of_runs_can() -> None:
    """The oracle: no errors among n runs leave a rate of 1 - (level / 2)^(1/n) possible on each side."""
    found = lower_bound(np.ones(1000), np.zeros(1000), delta=0.0, seed=0)
    left = 1 - (0.05 / 2) ** (1 / 700)
    assert found.epsilon == pytest.approx(math.log((1 - left) / left))
    assert found.mu == pytest.approx(2 * stats.norm.isf(left))


def test_both_directions_of_neighbours_count() -> None:
    """A score that only ever rises without the canary is as telling as one that only rises with it."""
    rng = np.random.default_rng(3)
    rare = (rng.random(2000) < 0.2).astype(float)
    added = lower_bound(rare, np.zeros(2000), delta=0.0, seed=1)
    removed = lower_bound(np.zeros(2000), -rare, delta=0.0, seed=1)
    assert added.epsilon > 3
    assert removed.epsilon == pytest.approx(added.epsilon, abs=0.5)


def test_one_run_shows_more_with_a_stronger_attack() -> None:
    rng = np.random.default_rng(4)
    inside = rng.random(1000) < 0.5
    noise = rng.normal(0, 1, 1000)
    found = [
        one_run_bound((noise + mu * inside)[inside], noise[~inside], delta=1e-5, seed=0).mu for mu in (0.0, 1.0, 3.0)
    ]
    assert found[0] < 0.2
    assert 0.2 < found[1] < 1.0
    assert 1.0 < found[2] < 3.0


# ----------------------------------------------------------------------------------------------------- words and limits


def test_mu_and_epsilon_are_each_others_inverse() -> None:
    for mu in (0.1, 0.45, 1.0, 4.0):
        assert gaussian_mu(gaussian_epsilon(1 / mu, 1e-3), 1e-3) == pytest.approx(mu, rel=1e-3)
    assert gaussian_mu(0.0, 1e-3) == 0


def test_the_seed_alone_decides_the_split() -> None:
    assert bound_of(MECHANISMS["Laplace"], seed=5) == bound_of(MECHANISMS["Laplace"], seed=5)


ENOUGH = np.arange(FEWEST_SCORES, dtype=float)


@pytest.mark.parametrize(
    ("scores_in", "scores_out", "delta", "confidence", "setting"),
    [
        (ENOUGH[1:], ENOUGH, 1e-5, 0.95, "scores"),
        (ENOUGH, ENOUGH.reshape(4, -1), 1e-5, 0.95, "scores"),
        (ENOUGH, ENOUGH * math.nan, 1e-5, 0.95, "scores"),
        (ENOUGH, ENOUGH, 1.0, 0.95, "delta"),
        (ENOUGH, ENOUGH, -1e-5, 0.95, "delta"),
        (ENOUGH, ENOUGH, 1e-5, 1.0, "confidence"),
        (ENOUGH, ENOUGH, 1e-5, 0.5, "confidence"),
    ],
)
def test_bad_input_is_refused(
    scores_in: np.ndarray, scores_out: np.ndarray, delta: float, confidence: float, setting: str
) -> None:
    for bound in (lower_bound, one_run_bound):
        with raises(ConfigError, setting=setting):
            bound(scores_in, scores_out, delta=delta, confidence=confidence, seed=0)


def test_one_run_needs_a_delta() -> None:
    with raises(ConfigError, setting="delta"):
        one_run_bound(ENOUGH, ENOUGH, delta=0.0, seed=0)


def test_without_the_extra_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def refuse(name: str, *args: object, **kwargs: object) -> object:
        if name.startswith("jax_privacy"):
            raise ImportError(name)
        return real_import(name, *args, **kwargs)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"pip install 'understudy-dp\[audit\]'"):
        lower_bound(ENOUGH, ENOUGH, delta=1e-5, seed=0)
