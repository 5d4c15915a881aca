"""Discrete Laplace noise has the law that is charged, exactly: pure epsilon for counts that a unit moves by one.

Draws come from fixed secrets, so a test gives the same verdict in every run; levels say how often another secret would
raise a false alarm.
"""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.builders import raises
from understudy.errors import ConfigError
from understudy.privacy.noise import samplers
from understudy.privacy.noise.samplers import BitStream, exp_bounds
from understudy.privacy.noise.source import MAX_SCALE, MIN_SCALE, SecureNoise, SeededNoise

LEVEL = 1e-7
"""Of a chi-square test with at least 50 expected draws in each bin: a false alarm for one secret in ten million."""

SCALES = [
    Fraction(1, 1000),
    Fraction(2, 5),
    Fraction(1),
    Fraction(7, 2),
    1 / Fraction(1 / 5070),
    Fraction(10**9),
    2**50,
]


def pvalue(draws: np.ndarray, scale: float) -> float:
    """Chi-square test against the closed form P(x) = tanh(1 / (2 scale)) exp(-|x| / scale); sparse tails are pooled."""
    reach = math.ceil(40 * scale) + 2
    support = np.arange(-reach, reach + 1)
    mass = math.tanh(0.5 / scale) * np.exp(-np.abs(support) / scale)
    wide = np.flatnonzero(mass * len(draws) >= 50)
    low, high = support[wide[0]], support[wide[-1]]
    observed = np.bincount(np.clip(draws, low, high) - low, minlength=high - low + 1)
    expected = mass[wide] * len(draws)
    expected[0] += mass[: wide[0]].sum() * len(draws)
    expected[-1] += mass[wide[-1] + 1 :].sum() * len(draws)
    expected *= len(draws) / expected.sum()
    return float(stats.chisquare(observed, expected).pvalue)


@pytest.mark.parametrize("scale", [Fraction(2, 5), Fraction(1), Fraction(7, 3), Fraction(9), Fraction(1291, 20)])
def test_draws_follow_the_closed_form(scale: Fraction) -> None:
    """Accepts the scale that is charged and rejects a tenth less or more."""
    draws = SecureNoise(bytes(range(32))).discrete_laplace(scale, (200_000,))
    assert draws.dtype == np.int64
    assert pvalue(draws, float(scale)) > LEVEL
    assert max(pvalue(draws, 0.9 * scale), pvalue(draws, 1.1 * scale)) < LEVEL


@pytest.mark.parametrize("scale", [5070.3, 1e6, 2.0**50])
def test_wide_noise_is_a_laplace_on_the_integers(scale: float) -> None:
    """Beyond 5000 the two laws differ by less than the test can see. Last digits are uniform."""
    draws = SecureNoise(b"w" * 32).discrete_laplace(Fraction(scale), (200_000,))
    assert stats.kstest((draws + 0.5) / scale, "laplace").pvalue > LEVEL
    assert max(stats.kstest(draws / scale, "laplace", args=(0, other)).pvalue for other in (0.9, 1.1)) < LEVEL
    assert stats.chisquare(np.bincount(draws % 10)).pvalue > LEVEL


@pytest.mark.parametrize("scale", SCALES, ids=float)
def test_the_odds_of_neighbours_are_the_charged_ones_exactly(scale: Fraction) -> None:
    """In fractions, with no tolerance: log P(y) - log P(y + 1) = 1 / scale, within a layer and from one to the next.

    A candidate y = u + t v has log odds -v, and is accepted with -a; both signs alike, and zero with one sign only.
    """
    law = samplers._LaplaceLaw(Fraction(scale))
    ends = [0, 1, law.width - 2, law.width - 1]
    sizes = sorted({u + law.width * v for u in ends for v in (0, 1, 2, 17, 100) if 0 <= u < law.width})
    for y in itertools.chain(sizes, (size + 1 for size in sizes)):
        layer, after = y // law.width, (y + 1) // law.width
        assert law.exponent(y, layer) >= 0  # a probability
        odds = (-layer - law.exponent(y, layer)) - (-after - law.exponent(y + 1, after))
        assert odds == 1 / Fraction(scale)
    words = [np.asarray([[sign], [2**63], [0]], dtype=np.uint64) for sign in (0, 1)]
    accepted = [bool(law.candidates(word)[1][0]) for word in words]
    assert accepted == [True, False]


@pytest.mark.parametrize("scale", SCALES, ids=float)
def test_draws_are_the_same_with_every_decision_in_high_precision(
    scale: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arrays decide as exact arithmetic does, for every candidate of every draw."""
    quick = SeededNoise(3).discrete_laplace(Fraction(scale), (1500,))
    monkeypatch.setattr(samplers, "EXACTLY", True)
    assert np.array_equal(quick, SeededNoise(3).discrete_laplace(Fraction(scale), (1500,)))


@pytest.mark.parametrize("scale", SCALES, ids=float)
def test_the_error_of_an_acceptance_probability_is_within_its_bound(scale: Fraction) -> None:
    """Against 40 digits, over all layers: within half of the margin, so what is called certain is."""
    law, draw = samplers._LaplaceLaw(Fraction(scale)), np.random.default_rng(1)
    layer = draw.integers(0, 45, 2000).astype(np.uint64)
    size = draw.integers(0, law.width, 2000, dtype=np.uint64) + np.uint64(law.width) * layer
    chance, doubt = law.acceptance(size, layer)
    assert np.isfinite(doubt).all()
    for y, v, float_chance, margin in zip(size.tolist(), layer.tolist(), chance.tolist(), doubt.tolist(), strict=True):
        low, high = (float(2**64 * bound - Fraction(float_chance)) for bound in exp_bounds(law.exponent(y, v), 128))
        assert max(abs(low), abs(high)) <= margin / 2


def test_scales_without_noise_and_scales_out_of_range() -> None:
    source = SeededNoise(0)
    assert source.discrete_laplace(Fraction(3), (3, 0)).shape == (3, 0)
    assert source.discrete_laplace(Fraction(3), ()).shape == ()
    for tiny in (Fraction(1, 1000), Fraction(MIN_SCALE)):
        assert not source.discrete_laplace(tiny, (1000,)).any()
    for bad in (Fraction(0), Fraction(-1), Fraction(MIN_SCALE) / 2, Fraction(MAX_SCALE) + 1):
        with raises(ConfigError, setting="scale"):
            source.discrete_laplace(bad, (1,))


def test_every_draw_has_bits_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another secret, number, kind, scale or shape: other bits."""
    read: list[bytes] = []
    words = BitStream.words

    def recorded(self: BitStream, count: int, *label: int) -> Any:
        found = words(self, count, *label)
        read.append(found[:2].tobytes())
        return found

    monkeypatch.setattr(BitStream, "words", recorded)

    def bits(secret: bytes, number: int, kind: str, width: Any, *shape: int) -> bytes:
        source = SecureNoise(secret)
        source.num_draws = number
        read.clear()
        getattr(source, kind)(width, shape)
        return read[0]

    one = (b"a" * 32, 0, "discrete_laplace", Fraction(5), 12)
    others: list[tuple[Any, ...]] = [
        (b"b" * 32, *one[1:]),
        (one[0], 1, *one[2:]),
        (*one[:2], "discrete_gaussian", 5.0, 12),
        (*one[:3], Fraction(5, 2), 12),
        (*one[:4], 13),
        (*one[:4], 3, 4),
    ]
    assert bits(*one) == bits(*one)
    assert len({bits(*each) for each in (one, *others)}) == 1 + len(others)


def test_neighbouring_draws_are_independent() -> None:
    """Six standard errors: a false alarm in 5e8 secrets."""
    draws = SeededNoise(1).discrete_laplace(Fraction(9), (2 * samplers.CHUNK,)) / (9 * math.sqrt(2))
    assert abs((draws[1:] * draws[:-1]).mean()) < 6 / math.sqrt(draws.size)
    halves = draws.reshape(2, -1)
    assert abs((halves[0] * halves[1]).mean()) < 6 / math.sqrt(samplers.CHUNK)
