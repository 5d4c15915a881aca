"""Where randomness comes from: a 256-bit secret, drawn from the operating system unless the run is seeded.

All noise of a run is expanded from its secret, with separate bits for each draw, and turned into noise on counts and
into selections by the exact samplers in `samplers.py`. So a run is a function of the table, the settings and the
secret: repeated with the same secret it gives the same answers, and no query gets fresh noise a second time. Anyone who
has the secret can subtract the noise: it is stored nowhere but in the checkpoint of an unfinished run.

A seeded source derives its secret from the seed and marks everything it touches: anyone who knows or guesses the seed
can subtract the noise.
"""

import math
import secrets
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int64, PRNGKeyArray

from understudy.errors import ConfigError
from understudy.privacy.noise.samplers import (
    BitStream,
    discrete_gaussian,
    discrete_laplace,
    encoded,
    exponential_choice,
)

SECRET_BYTES = 32
TAG = "understudy noise 1"
"""Separates these bits from any other use of SHAKE-256; the number is the version of the samplers."""
MAX_STDDEV = 2.0**57
"""A draw passes 2^62 less than once in 10^220; beyond 2^63 the samplers would stop, and show what is added to them."""
MAX_SCALE = 2**50
"""Of the discrete Laplace: a draw passes 2^62 less than once in 10^1700."""
MAX_SUM = 2**62
"""Exact sums are clipped to it, so that with their noise they fit 64 bits."""
MIN_SCALE = 1e-290
"""The smallest scale of a selection or of Laplace noise: smaller ones cannot be represented with full precision."""
FINE = 2**20
"""Steps in a standard deviation, at least, where discrete Gaussian noise is charged as a continuous one."""
TAIL = 14  # standard deviations over which the mass function is summed: the mass beyond is below 1e-43


class NoiseSource:
    """The noise of one run, drawn through a ledger; draws are numbered from 0.

    Formal guarantee: to anyone without the secret, draws are independent and follow the distributions below exactly, up
    to the advantage of telling SHAKE-256 with a secret prefix from a random function. The bits of a draw follow from
    the secret, its number, its kind and its public parameters (no scores), so the same secret gives the same draw
    again, and a draw that differs in any of these uses independent bits.
    """

    seeded: bool

    def __init__(self, secret: bytes):
        assert len(secret) == SECRET_BYTES
        self._secret, self.num_draws = secret, 0

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        """Integers with probability proportional to exp(-x^2 / (2 stddev^2))."""
        stddev = float(stddev)
        check_stddev(stddev)
        stream = self._next("discrete_gaussian", stddev, *map(int, shape))
        return discrete_gaussian(stream, stddev, math.prod(shape)).reshape(shape)

    def discrete_laplace(self, scale: Fraction, shape: tuple[int, ...]) -> np.ndarray:
        """Integers with probability proportional to exp(-|x| / scale)."""
        if not MIN_SCALE <= scale <= MAX_SCALE:
            raise ConfigError(
                f"The scale of Laplace noise must be between {MIN_SCALE:g} and {float(MAX_SCALE):g}, found "
                f"{float(scale):g}.",
                setting="scale",
            )
        stream = self._next("discrete_laplace", scale.numerator, scale.denominator, *map(int, shape))
        return discrete_laplace(stream, scale, math.prod(shape)).reshape(shape)

    def noisy_argmax(self, scores: np.ndarray, scale: float) -> int:
        """Index of the largest score after Gumbel noise of this scale: probabilities are as exp(score / scale)."""
        scores, scale = np.asarray(scores, dtype=np.float64), float(scale)
        if not MIN_SCALE <= scale < math.inf:
            raise ConfigError(
                f"The scale of a private selection must be positive and finite, found {scale:g}.", setting="scale"
            )
        assert scores.ndim == 1
        assert np.isfinite(scores).all(), "scores are finite by construction"
        return exponential_choice(self._next("noisy_argmax", scale, len(scores)), scores, scale)

    def key(self) -> PRNGKeyArray:
        """A JAX key from as many bits as it holds; `jax.random.key(int)` would keep only 32 of them."""
        words = self._next("key").words(1).view(np.uint32)
        return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")

    def _next(self, kind: str, *parameters: int | float) -> BitStream:
        number, self.num_draws = self.num_draws, self.num_draws + 1
        return BitStream(encoded(TAG, self._secret, number, kind, *parameters))


class SecureNoise(NoiseSource):
    """Noise from a secret that nobody knows: a new one, or that of the run being resumed."""

    seeded = False

    def __init__(self, secret: bytes | None = None):
        super().__init__(secrets.token_bytes(SECRET_BYTES) if secret is None else secret)


class SeededNoise(NoiseSource):
    """Noise from a seed: reproducible by anyone, therefore not private."""

    seeded = True

    def __init__(self, seed: int):
        super().__init__(BitStream(encoded("understudy seed", int(seed))).words(SECRET_BYTES // 8).tobytes())


def noise_source(seed: int | None, secret: bytes | None = None) -> NoiseSource:
    """The noise source of a run: seeded, or from its secret, or (if both are None) from a new secret."""
    return SecureNoise(secret) if seed is None else SeededNoise(seed)


def check_stddev(stddev: float) -> None:
    """Refuses noise that does not fit in 64 bits. The decision depends on a public number, so it reveals nothing."""
    if not stddev <= MAX_STDDEV:
        raise ConfigError(
            f"The noise of this guarantee does not fit in 64-bit integers (standard deviation {stddev:.2g} steps). "
            "This query was not made. Raise epsilon or delta, or lower max_rows_per_unit.",
            setting="epsilon",
        )


def fine_steps(stddev: float) -> int:
    """How many steps to divide a count into, so that a standard deviation has `FINE` of them: a power of two."""
    return 1 << max(0, math.ceil(math.log2(FINE / stddev)))


def with_noise(exact: np.ndarray, stddev: float, source: NoiseSource) -> Int64[np.ndarray, "..."]:
    """Integers with discrete Gaussian noise, as integers: a function of exact + noise and of nothing else.

    Apart from votes, exact values get this noise only here and in `with_laplace_noise`. As floats, the two would be
    rounded separately, and the last bits of the sum could reveal which of two neighbouring tables it came from.
    """
    held = _held(exact)
    return np.asarray(held + source.discrete_gaussian(stddev, held.shape))


def with_laplace_noise(exact: np.ndarray, scale: Fraction, source: NoiseSource) -> Int64[np.ndarray, "..."]:
    """Integers with discrete Laplace noise, as `with_noise` adds it."""
    held = _held(exact)
    return np.asarray(held + source.discrete_laplace(scale, held.shape))


def _held(exact: np.ndarray) -> Int64[np.ndarray, "..."]:
    """Integers, of 64 bits or of any size, clipped to +-MAX_SUM, so that no sum with noise wraps around.

    Clipping moves no two values further apart, so it does not increase a sensitivity.
    """
    if exact.dtype != np.int64:
        whole = exact.dtype.kind in "iu" or (exact.dtype == object and all(type(each) is int for each in exact.flat))
        assert whole, "noise is added to whole numbers only"
        exact = exact.astype(object)  # integers of other types may exceed 64 bits
    return np.asarray(np.clip(exact, -MAX_SUM, MAX_SUM), dtype=np.int64)


def fresh_key() -> PRNGKeyArray:
    """A key nobody knows, for draws that are post-processing."""
    return SecureNoise().key()


def discrete_gaussian_tail(stddev: float, threshold: int) -> float:
    """P(Z >= threshold) for the discrete Gaussian, from its own mass function.

    >>> discrete_gaussian_tail(1.0, 1)  # continuous: 0.159
    0.30052...
    """
    reach = int(np.ceil(TAIL * stddev)) + 1
    support = np.arange(-reach, reach + 1)
    mass = np.exp(-((support / stddev) ** 2) / 2)
    return float(mass[support >= threshold].sum() / mass.sum())
