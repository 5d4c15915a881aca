"""The noise that is drawn is the noise that is charged: both sources, tested from both sides.

Draws come from fixed secrets, so a test gives the same verdict in every run; levels say how often another secret would
raise a false alarm.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

from tests.builders import raises
from understudy.errors import ConfigError
from understudy.privacy.noise import samplers
from understudy.privacy.noise.samplers import BitStream, Uniform, encoded, exp_bounds, weight_bounds
from understudy.privacy.noise.source import (
    MAX_STDDEV,
    NoiseSource,
    SecureNoise,
    SeededNoise,
    discrete_gaussian_tail,
    fresh_key,
    noise_source,
)

SOURCES: dict[str, Callable[[], NoiseSource]] = {
    "seeded": lambda: SeededNoise(2024),
    "secure": lambda: SecureNoise(bytes(range(32))),
}

# A chi-square test at this level, with at least 50 expected draws in each of its bins, raises a false alarm for one
# secret in ten million; the sample sizes below make a miss rarer still.
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


@pytest.mark.parametrize("stddev", [0.3, 0.6, 1.0, 2.0, 9.3, 64.0])
@pytest.mark.parametrize("source", SOURCES)
def test_discrete_gaussian_follows_its_law(source: str, stddev: float) -> None:
    """Accepts the scale that is charged and rejects a tenth less or more."""
    draws = SOURCES[source]().discrete_gaussian(stddev, (200_000,))
    assert draws.dtype == np.int64
    assert pvalue(draws, stddev) > LEVEL
    assert max(pvalue(draws, 0.9 * stddev), pvalue(draws, 1.1 * stddev)) < LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("stddev", [0.45, 0.999, 1.0, 1.001, 1.999, 3.0, 3.3, 15.999, 16.0, 17.1, 200.5])
def test_discrete_gaussian_follows_its_law_closely(stddev: float) -> None:
    """Ten million draws reject a scale that is half a percent off."""
    draws = SecureNoise(b"s" * 32).discrete_gaussian(stddev, (10_000_000,))
    assert pvalue(draws, stddev) > LEVEL
    assert max(pvalue(draws, 0.995 * stddev), pvalue(draws, 1.005 * stddev)) < LEVEL


@pytest.mark.parametrize("stddev", [1e4, 1e6, 1234567.8, 1e12, MAX_STDDEV])
def test_wide_noise_is_a_normal_on_the_integers(stddev: float) -> None:
    """Beyond 1e4 the two laws differ by less than the test can see. Last digits are uniform."""
    draws = SecureNoise(b"w" * 32).discrete_gaussian(stddev, (200_000,))
    assert stats.kstest((draws + 0.5) / stddev, "norm").pvalue > LEVEL
    assert max(stats.kstest(draws / stddev, stats.norm(0, other).cdf).pvalue for other in (0.9, 1.1)) < LEVEL
    assert stats.chisquare(np.bincount(draws % 10)).pvalue > LEVEL
    assert np.abs(draws).max() < 8 * stddev


@pytest.fixture(scope="module")
def opendp() -> Any:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    return dp


@pytest.mark.parametrize("stddev", [0.6, 3.7, 1e6])
def test_discrete_gaussian_against_opendp(opendp: Any, stddev: float) -> None:
    """Two samples of one law: the same cells for small noise, the same distribution function for wide noise.

    OpenDP draws from the operating system, so this is no fixed sample: a false alarm in ten million runs.
    """
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T=float)
    theirs = np.asarray(opendp.m.make_gaussian(*space, scale=stddev)([0] * 20_000))
    ours = SecureNoise(b"o" * 32).discrete_gaussian(stddev, (200_000,))
    if stddev > 100:
        assert stats.ks_2samp(theirs, ours).pvalue > LEVEL
        return
    reach = int(2 * stddev)
    counts = [np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1) for draws in (theirs, ours)]
    assert stats.chi2_contingency(counts).pvalue > LEVEL


@pytest.mark.parametrize("source", SOURCES)
def test_draws_are_independent_of_one_another(source: str) -> None:
    """Neighbouring draws are uncorrelated (six standard errors: a false alarm in 5e8 secrets), and calls differ."""
    origin = SOURCES[source]()
    draws = origin.discrete_gaussian(3.0, (200, 200))
    assert draws.shape == (200, 200)
    flat = draws.ravel() / 3.0
    assert abs((flat[1:] * flat[:-1]).mean()) < 6 / math.sqrt(flat.size)
    again = origin.discrete_gaussian(3.0, (200, 200)).ravel() / 3.0
    assert abs((flat * again).mean()) < 6 / math.sqrt(flat.size)


def test_chunks_of_cells_are_independent() -> None:
    draws = SeededNoise(1).discrete_gaussian(3.0, (2 * samplers.CHUNK,)).reshape(2, -1) / 3.0
    assert abs((draws[0] * draws[1]).mean()) < 6 / math.sqrt(samplers.CHUNK)


@pytest.mark.parametrize("source", SOURCES)
def test_shapes_without_cells_and_scales_without_noise(source: str) -> None:
    origin = SOURCES[source]()
    assert origin.discrete_gaussian(1.0, (0,)).shape == (0,)
    assert origin.discrete_gaussian(1.0, (3, 0)).shape == (3, 0)
    assert origin.discrete_gaussian(1.0, ()).shape == ()
    for tiny in (1e-3, 1e-200, 5e-324):
        assert not origin.discrete_gaussian(tiny, (1000,)).any()
    with raises(ConfigError, setting="epsilon"):
        origin.discrete_gaussian(math.nextafter(MAX_STDDEV, math.inf), (1,))
    with raises(ConfigError, setting="scale"):
        origin.noisy_argmax(np.zeros(2), 0.0)


# --------------------------------------------------------------------------------------------------- exactness


@pytest.mark.parametrize("stddev", [1e-3, 0.37, 1.0, 2.5, 1e3 + 1 / 3, 1e9, 1e17 / 3, MAX_STDDEV])
def test_counts_are_the_same_with_every_decision_in_high_precision(
    stddev: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arrays decide as exact arithmetic does, for every candidate of every cell."""
    quick = SeededNoise(3).discrete_gaussian(stddev, (1500,))
    monkeypatch.setattr(samplers, "EXACTLY", True)
    assert np.array_equal(quick, SeededNoise(3).discrete_gaussian(stddev, (1500,)))


def test_choices_are_the_same_with_every_decision_in_high_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(0).normal(size=50) * 30

    def picks() -> list[int]:
        origin = SeededNoise(5)
        return [origin.noisy_argmax(scores, scale) for scale in (0.1, 1.0, 7.3, 1e6) for _ in range(100)]

    quick = picks()
    assert len(set(quick)) > 30
    monkeypatch.setattr(samplers, "EXACTLY", True)
    assert picks() == quick


@pytest.mark.parametrize("stddev", [1e-3, 0.37, 1.0, 2.5, 1e3 + 1 / 3, 1e9, 1e17 / 3, MAX_STDDEV])
def test_the_error_of_an_acceptance_probability_is_within_its_bound(stddev: float) -> None:
    """Against 40 digits, over all layers: within half of the margin, so what is called certain is."""
    law, draw = samplers._GaussianLaw(stddev), np.random.default_rng(1)
    layer = draw.integers(0, 45, 2000).astype(np.uint64)
    size = draw.integers(0, law.width, 2000, dtype=np.uint64) + np.uint64(law.width) * layer
    chance, doubt = law.acceptance(size, layer)
    assert np.isfinite(doubt).all()
    for y, v, float_chance, margin in zip(size.tolist(), layer.tolist(), chance.tolist(), doubt.tolist(), strict=True):
        exponent = Fraction(y) ** 2 / (2 * Fraction(stddev) ** 2) - v + Fraction(stddev) ** 2 / (2 * law.width**2)
        assert exponent >= 0
        low, high = (float(2**64 * bound - Fraction(float_chance)) for bound in exp_bounds(exponent, 128))
        assert max(abs(low), abs(high)) <= margin / 2


@pytest.mark.parametrize("stddev", [0.5, 1.0, 6.5, 1e9, MAX_STDDEV])
def test_remainders_are_uniform(stddev: float) -> None:
    """Of all 63-bit words as many whole turns of the layer's width as fit, and no part of a turn."""
    law = samplers._GaussianLaw(stddev)
    assert law._fit % law.width == 0
    assert 2**63 - law.width < law._fit <= 2**63
    # The words at the end of the kept ones, and the first one beyond: 2 w is the word w with a plus sign.
    words = np.asarray([[2 * (law._fit - 1), min(2 * law._fit, 2**64 - 2)], [2**63, 2**63], [1, 1]], dtype=np.uint64)
    values, accepted, doubtful = law.candidates(words)
    assert values[0] == law.width - 1
    assert not (accepted | doubtful)[1] or law._fit == 2**63


@pytest.mark.parametrize("stddev", [0.4, 1.0, 2.6])
def test_candidates_and_acceptances_make_the_law(stddev: float) -> None:
    """P(candidate) P(accept) is the mass function, up to one factor: the proof's equation, in numbers."""
    width = samplers._GaussianLaw(stddev).width
    mass = {}
    for u in range(width):
        for v in range(12):
            y = u + width * v
            accept = math.exp(-(y**2 / (2 * stddev**2) - v + stddev**2 / (2 * width**2)))
            assert accept <= 1
            mass[y] = math.exp(-v) * accept
    for y, found in mass.items():
        assert found / mass[0] == pytest.approx(math.exp(-(y**2) / (2 * stddev**2)), rel=1e-9)


def test_integer_weights_enclose_the_exact_ones() -> None:
    """A weight that were too small would cap a candidate's probability; one far too large would waste attempts."""
    draw = np.random.default_rng(2)
    for scale in (1e-290, 1e-3, 1.0, 3e7, 1e306):
        scores = draw.normal(size=200) * 20 * scale
        k = 62 - len(scores).bit_length()
        low, high = weight_bounds(scores, scale, k)
        top = Fraction(float(scores.max()))
        for score, below, above in zip(scores.tolist(), low.tolist(), high.tolist(), strict=True):
            bounds = exp_bounds((top - Fraction(score)) / Fraction(scale), 128)
            assert below <= bounds[0] * 2**k
            assert bounds[1] * 2**k <= above
            assert above - below <= 2 + below / 2**42


@pytest.mark.parametrize("x", [0, Fraction(1, 10**9), Fraction(1, 3), 1, 7, 44, Fraction(12345, 17)])
@pytest.mark.parametrize("num_bits", [64, 128, 640])
def test_bounds_of_the_exponential(x: int | Fraction, num_bits: int) -> None:
    """Around a Taylor sum in exact fractions, and narrower than the bits that they are compared with."""
    low, high = exp_bounds(Fraction(x), num_bits)
    if x > num_bits:
        assert (low, high) == (0, Fraction(1, 2**num_bits))
        return
    assert low < high <= low + Fraction(1, 2 ** (num_bits + 10))
    term, total = Fraction(1), Fraction(1)
    for n in range(1, 600):
        term *= -Fraction(x) / n
        total += term
    assert low < total < high


def test_a_comparison_reads_on_until_it_is_certain() -> None:
    """Numbers that agree with 1/e in their first 64, 128 and 192 bits, and then fall to either side."""
    bits = int(exp_bounds(Fraction(1), 640)[0] * 2**320)
    words = [(bits >> (320 - 64 * (n + 1))) % 2**64 for n in range(5)]
    for agree in (1, 2, 3):
        for step, below in ((-1, True), (1, False)):
            read: list[int] = []

            def more(number: int, agree: int = agree, step: int = step, read: list[int] = read) -> int:
                read.append(number)
                return words[number] + step * (number == agree)

            assert Uniform(words[0], more).is_below_exp(Fraction(1)) is below
            assert read == list(range(1, agree + 1))


def test_doubtful_words_take_the_exact_path() -> None:
    """A word that lies on the edge of a layer, or at an acceptance probability, is not decided by its 64 bits."""
    law = samplers._GaussianLaw(5.0)
    edge, zero = samplers._layer_edges(), np.uint64(0)
    for word, doubt in ((edge[-1], True), (edge[-1] + np.uint64(1), False), (zero, True)):
        words = np.asarray([[2], [word], [zero]], dtype=np.uint64)
        assert law.candidates(words)[2].tolist() == [doubt]
    chance = law.acceptance(np.asarray([1], dtype=np.uint64), np.asarray([0], dtype=np.uint64))[0]
    for away, doubt in ((0, True), (2**30, False)):
        words = np.asarray([[2], [2**63], [int(chance[0]) - away]], dtype=np.uint64)
        assert law.candidates(words)[2].tolist() == [doubt]
    # A negative zero in doubt may yet be a number of the next layer: U lies on either side of 1/e.
    words = np.asarray([[1], [edge[-1]], [zero]], dtype=np.uint64)
    assert law.candidates(words)[2].all()
    for fill, found in ((0, -law.width), (2**64 - 1, None)):
        assert law.exact_candidate([1, int(edge[-1]), 0], lambda which, number, fill=fill: fill) == found  # type: ignore[misc]  # a default binds the number of this round


# --------------------------------------------------------------------------------------------------- choices


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


def test_noisy_argmax_against_opendp(opendp: Any) -> None:
    """The odds of `make_noisy_max`: two samples, a false alarm in ten million runs."""
    scores, scale = np.linspace(-3.0, 3.0, 9), 2.5
    space = opendp.vector_domain(opendp.atom_domain(T=float, nan=False)), opendp.linf_distance(T=float)
    theirs = opendp.m.make_noisy_max(*space, opendp.zero_concentrated_divergence(), scale=scale)
    origin = SecureNoise(b"a" * 32)
    counts = [
        np.bincount([theirs(scores.tolist()) for _ in range(10_000)], minlength=9),
        np.bincount([origin.noisy_argmax(scores, scale) for _ in range(40_000)], minlength=9),
    ]
    assert stats.chi2_contingency(counts).pvalue > LEVEL


@pytest.mark.parametrize("source", SOURCES)
def test_noisy_argmax_takes_any_finite_scores(source: str) -> None:
    origin = SOURCES[source]()
    assert origin.noisy_argmax(np.array([5.0]), 1.0) == 0
    assert origin.noisy_argmax(np.array([-1e12, 1e12, -1e12]), 1.0) == 1
    assert origin.noisy_argmax(np.array([-1.7e308, 1.7e308]), 1e-200) == 1
    assert {origin.noisy_argmax(np.array([-7, -7]), 1.0) for _ in range(200)} == {0, 1}
    assert {origin.noisy_argmax(np.array([-1.7e308, 1.7e308]), 1.7e308) for _ in range(200)} == {0, 1}


@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_noisy_argmax_among_equals_is_uniform(count: int) -> None:
    """Words beyond a whole multiple of the total weight would favour the first candidates by some percent."""
    origin = SeededNoise(13)
    picks = np.bincount([origin.noisy_argmax(np.ones(count), 0.1) for _ in range(20_000)], minlength=count)
    assert stats.chisquare(picks).pvalue > LEVEL


def test_noisy_argmax_among_many() -> None:
    """A hundred thousand candidates: ranks of picks among equal scores are uniform, and a leader has its odds."""
    origin, scores = SeededNoise(11), np.zeros(100_000)
    picks = [origin.noisy_argmax(scores, 3.0) for _ in range(500)]
    assert stats.kstest(np.asarray(picks) / 1e5, "uniform").pvalue > LEVEL
    scores[777] = 3.0 * math.log(99_999)
    leads = sum(origin.noisy_argmax(scores, 3.0) == 777 for _ in range(500))
    assert stats.binomtest(leads, 500, 0.5).pvalue > LEVEL


# --------------------------------------------------------------------------------------------------- streams


def test_every_draw_has_bits_of_its_own() -> None:
    """Another secret, number, kind or parameter: other bits. The same: the same."""

    def draw(secret: bytes, number: int, act: Callable[[NoiseSource], object]) -> bytes:
        origin = SecureNoise(secret)
        for _ in range(number):
            origin.key()
        return np.asarray(act(origin)).tobytes()

    def gaussian(stddev: float, *shape: int) -> Callable[[NoiseSource], object]:
        return lambda origin: origin.discrete_gaussian(stddev, shape).ravel()[:12]

    def bits(act: Callable[[NoiseSource], object]) -> Callable[[NoiseSource], object]:
        """The words behind a draw: what is read from the stream first."""

        def read(origin: NoiseSource) -> object:
            read: list[np.ndarray] = []
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(BitStream, "words", _recorded(read))
                act(origin)
            return read[0][:2]

        return read

    one, two = bytes(32), bytes(31) + b"\1"
    acts = [
        gaussian(1e9, 12),
        gaussian(1e9 + 1, 12),
        gaussian(1e9, 13),
        gaussian(1e9, 3, 4),
        gaussian(1e9, 4, 3),
        lambda origin: origin.noisy_argmax(np.zeros(8), 1.0),
        lambda origin: origin.noisy_argmax(np.zeros(8), 2.0),
        lambda origin: origin.noisy_argmax(np.zeros(9), 1.0),
    ]
    places = [(secret, number) for secret in (one, two) for number in (0, 1, 10)]
    found = {draw(*place, bits(act)) for place in places for act in acts}
    assert len(found) == len(places) * len(acts)
    for place in places:
        for act in acts:
            assert draw(*place, act) == draw(*place, act)
    # Scores are private: the bits of a choice do not follow from them.
    others = [bits(lambda origin: origin.noisy_argmax(np.arange(8.0), 1.0)), bits(acts[5])]
    assert draw(one, 0, others[0]) == draw(one, 0, others[1])


def _recorded(read: list[np.ndarray]) -> Callable[..., np.ndarray]:
    words = BitStream.words

    def recording(self: BitStream, count: int, *label: int) -> np.ndarray:
        read.append(words(self, count, *label))
        return read[-1]

    return recording


def test_no_two_parts_of_a_stream_share_an_input() -> None:
    """Encodings parse back, whatever the contents: lengths and types stand before them."""
    parts: list[tuple[Any, ...]] = [
        (), (0,), (0, 0), (1,), (11,), (1, 1), (1.0,), ("1",), (b"1",), ("", "1"), ("1", ""), (b"\0" * 9,), (-1,)
    ]  # fmt: skip
    inputs = [encoded(*first) + encoded(*second) for first in parts for second in parts]
    assert len(set(inputs)) == len(parts) ** 2
    stream = BitStream(b"seed")
    labels = [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0, 1, 1), (0, 0, 0, 1, 2), (0, 0, 0, 2, 1)]
    words = {label: stream.words(4, *label) for label in labels}
    assert len({each.tobytes() for each in words.values()}) == len(labels)
    for label in labels:  # lazily: a longer read goes on where a shorter one ended
        assert np.array_equal(stream.words(9, *label)[:4], words[label])
        assert stream.word(*label) == int(words[label][0])


def test_words_are_uniform() -> None:
    words = BitStream(b"seed").words(200_000, 0)
    assert stats.chisquare(np.bincount(words.view(np.uint8), minlength=256)).pvalue > LEVEL
    assert stats.kstest(words * 2.0**-64, "uniform").pvalue > LEVEL


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
    assert noise_source(7).seeded
    assert not noise_source(None).seeded


def test_secrets_of_256_bits_are_the_operating_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source asks for its own 32 bytes, and nothing else enters its draws."""
    asked: list[int] = []

    def token_bytes(size: int) -> bytes:
        asked.append(size)
        return bytes([len(asked)]) * size

    with monkeypatch.context() as patch:
        patch.setattr("secrets.token_bytes", token_bytes)
        drawn = [SecureNoise().discrete_gaussian(1e6, (9,)) for _ in range(2)]
    assert asked == [32, 32]
    for number, draws in enumerate(drawn, start=1):
        assert np.array_equal(draws, SecureNoise(bytes([number]) * 32).discrete_gaussian(1e6, (9,)))


def test_fresh_keys_carry_64_bits() -> None:
    """Every one of the 64 bits is sometimes set (all but once in 1e16 runs), and no two of 64 keys agree."""
    keys = [np.asarray(jax.random.key_data(fresh_key())) for _ in range(64)]
    assert all(key.shape == (2,) and key.dtype == np.uint32 for key in keys)
    assert len({key.tobytes() for key in keys}) == 64
    ever = np.bitwise_or.reduce(keys)
    never = np.bitwise_and.reduce(keys)
    assert np.array_equal(ever, np.full(2, 2**32 - 1, dtype=np.uint32))
    assert not never.any()


@pytest.mark.parametrize(
    ("stddev", "threshold"), [(1.0, 1), (1.0, 5), (0.3, 1), (0.05, 1), (5.0, 24), (5.0, -3), (300.0, 1500)]
)
def test_the_tail_against_brute_force(stddev: float, threshold: int) -> None:
    """Term by term, from far beyond where terms matter."""
    far = math.ceil(45 * stddev) + 3
    terms = {x: math.exp(-((x / stddev) ** 2) / 2) for x in range(-far, far + 1)}
    tail = math.fsum(mass for x, mass in terms.items() if x >= threshold) / math.fsum(terms.values())
    assert discrete_gaussian_tail(stddev, threshold) == pytest.approx(tail, rel=1e-9)
