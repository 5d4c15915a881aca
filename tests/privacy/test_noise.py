"""The noise that is drawn is the noise that is charged: both sources, tested from both sides."""

import math
from collections.abc import Callable

import jax
import numpy as np
import pytest
from scipy import stats

from understudy.privacy import noise
from understudy.privacy.noise import NoiseSource, SecureNoise, SeededNoise, discrete_gaussian_tail, fresh_key

SOURCES: dict[str, Callable[[], NoiseSource]] = {"seeded": lambda: SeededNoise(2024), "secure": SecureNoise}

# Draws of the secure source differ in every run. A chi-square test at this level, with at least 50 expected draws in
# each of its bins, raises a false alarm once in ten million runs; the sample sizes below make a miss rarer still.
LEVEL = 1e-7


def pvalue(draws: np.ndarray, stddev: float) -> float:
    """Chi-square test of integers against the discrete Gaussian mass function; sparse tails are pooled."""
    reach = math.ceil(15 * stddev) + 2
    support = np.arange(-reach, reach + 1)
    mass = np.exp(-(support**2) / (2 * stddev**2))
    mass /= mass.sum()
    wide = np.flatnonzero(mass * len(draws) >= 50)
    low, high = support[wide[0]], support[wide[-1]]
    clipped = np.clip(draws, low, high)
    observed = np.bincount(clipped - low, minlength=high - low + 1)
    expected = mass[wide] * len(draws)
    expected[0] += mass[: wide[0]].sum() * len(draws)
    expected[-1] += mass[wide[-1] + 1 :].sum() * len(draws)
    return float(stats.chisquare(observed, expected).pvalue)


@pytest.mark.parametrize("stddev", [0.6, 2.0, 9.3])
@pytest.mark.parametrize("source", SOURCES)
def test_discrete_gaussian_follows_its_law(source: str, stddev: float) -> None:
    """Accepts the scale that is charged and rejects a tenth less or more."""
    draws = SOURCES[source]().discrete_gaussian(stddev, (40_000,))
    assert draws.dtype == np.int64
    assert pvalue(draws, stddev) > LEVEL
    assert max(pvalue(draws, 0.9 * stddev), pvalue(draws, 1.1 * stddev)) < LEVEL


@pytest.mark.parametrize("source", SOURCES)
def test_draws_are_independent_of_one_another(source: str) -> None:
    """Neighbouring draws are uncorrelated (six standard errors: a false alarm in 5e8 runs), and calls differ."""
    origin = SOURCES[source]()
    draws = origin.discrete_gaussian(3.0, (200, 200))
    assert draws.shape == (200, 200)
    flat = draws.ravel() / 3.0
    assert abs((flat[1:] * flat[:-1]).mean()) < 6 / math.sqrt(flat.size)
    assert not np.array_equal(draws, origin.discrete_gaussian(3.0, (200, 200)))


@pytest.mark.parametrize("source", SOURCES)
def test_shapes_without_cells_and_scales_without_noise(source: str) -> None:
    origin = SOURCES[source]()
    assert origin.discrete_gaussian(1.0, (0,)).shape == (0,)
    assert origin.discrete_gaussian(1.0, (3, 0)).shape == (3, 0)
    assert origin.discrete_gaussian(1.0, ()).shape == ()
    assert not origin.discrete_gaussian(1e-3, (1000,)).any()


@pytest.mark.parametrize(("source", "scale"), [("seeded", 0.5), ("seeded", 40.0), ("secure", 7.0)])
def test_noisy_argmax_is_the_exponential_mechanism(source: str, scale: float) -> None:
    """Picks follow softmax(scores / scale); a scale a tenth smaller or larger is rejected.

    One score leads eleven equal ones so far that it wins half of the picks: there the law shows its scale best.
    """
    origin, scores = SOURCES[source](), np.r_[np.zeros(5), math.log(11), np.zeros(6)] * scale
    picks = np.bincount([origin.noisy_argmax(scores, scale) for _ in range(16_000)], minlength=12)

    def law(assumed: float) -> np.ndarray:
        weights = np.exp(scores / assumed)
        return weights / weights.sum()

    def by(assumed: float) -> float:
        return float(stats.binomtest(int(picks[5]), int(picks.sum()), law(assumed)[5]).pvalue)

    assert stats.chisquare(picks, picks.sum() * law(scale)).pvalue > LEVEL
    assert by(scale) > LEVEL
    assert max(by(0.9 * scale), by(1.1 * scale)) < LEVEL


@pytest.mark.parametrize("source", SOURCES)
def test_noisy_argmax_takes_any_finite_scores(source: str) -> None:
    origin = SOURCES[source]()
    assert origin.noisy_argmax(np.array([5.0]), 1.0) == 0
    assert origin.noisy_argmax(np.array([-1e12, 1e12, -1e12]), 1.0) == 1
    assert {origin.noisy_argmax(np.array([-7, -7]), 1.0) for _ in range(200)} == {0, 1}


@pytest.mark.parametrize(
    ("stddev", "threshold"), [(1.0, 1), (1.0, 5), (0.3, 1), (0.05, 1), (5.0, 24), (5.0, -3), (300.0, 1500)]
)
def test_the_tail_against_brute_force(stddev: float, threshold: int) -> None:
    """Term by term, from far beyond where terms matter."""
    far = math.ceil(45 * stddev) + 3
    terms = {x: math.exp(-((x / stddev) ** 2) / 2) for x in range(-far, far + 1)}
    tail = math.fsum(mass for x, mass in terms.items() if x >= threshold) / math.fsum(terms.values())
    assert discrete_gaussian_tail(stddev, threshold) == pytest.approx(tail, rel=1e-9)


def test_the_seeded_sampler_cuts_nothing_that_matters() -> None:
    """Its table reaches 14 standard deviations: what it leaves out is below 1e-40."""
    for stddev in (0.1, 1.0, 50.0):
        support, cumulative = noise._discrete_gaussian_table(stddev)
        assert support[-1] >= 14 * stddev
        assert cumulative[-1] == 1.0
        assert np.all(np.diff(cumulative) >= 0)


def test_seeds_repeat_and_are_marked() -> None:
    first, again, other = SeededNoise(7), SeededNoise(7), SeededNoise(8)
    draws = [each.discrete_gaussian(5.0, (50,)) for each in (first, again, other)]
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])
    assert SeededNoise.seeded
    assert not SecureNoise.seeded
    keys = [np.asarray(jax.random.key_data(each.key())) for each in (first, again, other)]
    assert np.array_equal(keys[0], keys[1])
    assert not np.array_equal(keys[0], keys[2])


def test_fresh_keys_carry_64_bits() -> None:
    """Every one of the 64 bits is sometimes set (all but once in 1e16 runs), and no two of 64 keys agree."""
    keys = [np.asarray(jax.random.key_data(fresh_key())) for _ in range(64)]
    assert all(key.shape == (2,) and key.dtype == np.uint32 for key in keys)
    assert len({key.tobytes() for key in keys}) == 64
    ever = np.bitwise_or.reduce(keys)
    never = np.bitwise_and.reduce(keys)
    assert np.array_equal(ever, np.full(2, 2**32 - 1, dtype=np.uint32))
    assert not never.any()
