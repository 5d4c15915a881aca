"""Where randomness comes from: the operating system for real runs, a seed for tests and public data.

Counts get exact discrete Gaussian noise and choices exact Gumbel-max, both from OpenDP's proven samplers, whose bits
come from the operating system. A seeded source draws from the same laws and marks everything it touches: whoever knows
the seed can subtract the noise.
"""

import functools
import os
from typing import TYPE_CHECKING, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from understudy.errors import ConfigError

if TYPE_CHECKING:
    from jaxtyping import PRNGKeyArray

WIDE = 1e4  # above it a table would be long, and a rounded normal is within 1e-9 of the discrete law
MOST_STDDEV = 2.0**57
"""A draw passes 2^62 less than once in 10^220; beyond 2^63 the samplers would stop, and show what is added to them."""
MOST_SUM = 2**62
"""Exact sums are held within it, so that with their noise they fit 64 bits."""
TAIL = 14  # standard deviations kept by the seeded sampler's table: the mass beyond is below 1e-43


class SecureNoise:
    """Exact samplers on the operating system's entropy."""

    seeded = False

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        """Integers with probability proportional to exp(-x^2 / (2 stddev^2))."""
        draw = _opendp_gaussian(checked_stddev(stddev))
        zeros = [0] * int(np.prod(shape))
        return np.asarray(draw(zeros) if zeros else [], dtype=np.int64).reshape(shape)

    def noisy_argmax(self, scores: np.ndarray, scale: float) -> int:
        """Index of the largest score after Gumbel noise of this scale."""
        return int(_opendp_argmax(scale)(np.asarray(scores, dtype=float).tolist()))

    def key(self) -> "PRNGKeyArray":
        """A JAX key from as many bits as it holds; `jax.random.key(int)` would keep only 32 of them."""
        words = np.frombuffer(os.urandom(8), dtype=np.uint32)
        return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")


class SeededNoise:
    """The same laws from a seed: repeatable, therefore not private."""

    seeded = True

    def __init__(self, seed: int):
        self._generator = np.random.default_rng(seed)

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        if checked_stddev(stddev) > WIDE:
            return np.rint(stddev * self._generator.standard_normal(shape)).astype(np.int64)
        support, cumulative = _discrete_gaussian_table(stddev)
        return support[np.searchsorted(cumulative, self._generator.random(shape), side="right")]

    def noisy_argmax(self, scores: np.ndarray, scale: float) -> int:
        return int(np.argmax(np.asarray(scores, dtype=float) + self._generator.gumbel(scale=scale, size=len(scores))))

    def key(self) -> "PRNGKeyArray":
        words = self._generator.integers(2**32, size=2, dtype=np.uint32)
        return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")


class NoiseSource(Protocol):
    """What a ledger draws from."""

    @property
    def seeded(self) -> bool: ...

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray: ...

    def noisy_argmax(self, scores: np.ndarray, scale: float) -> int: ...

    def key(self) -> "PRNGKeyArray": ...


def checked_stddev(stddev: float) -> float:
    """Refuses noise that 64 bits cannot hold: by a public number, so nothing is shown by it.

    >>> checked_stddev(3.0)
    3.0
    """
    if not stddev <= MOST_STDDEV:
        raise ConfigError(
            f"The noise of this guarantee is too great for whole numbers of 64 bits (standard deviation {stddev:.2g} "
            "steps). This query was not made. Raise epsilon or delta, or lower max_rows_per_unit."
        )
    return stddev


def with_noise(exact: np.ndarray, stddev: float, source: NoiseSource) -> np.ndarray:
    """Whole numbers, of 64 bits or of any size, with discrete Gaussian noise; the sum never wraps around.

    Clamping to +-MOST_SUM moves no two values further apart, so a sensitivity stays what it was.
    """
    held = np.clip(exact, -MOST_SUM, MOST_SUM).astype(np.int64)
    return held + source.discrete_gaussian(stddev, held.shape)


def fresh_key() -> "PRNGKeyArray":
    """A key nobody knows, for draws that are post-processing."""
    return SecureNoise().key()


def discrete_gaussian_tail(stddev: float, threshold: int) -> float:
    """P(Z >= threshold) for the discrete Gaussian, from its own mass function.

    >>> discrete_gaussian_tail(1.0, 1)  # continuous: 0.159
    0.30052...
    """
    support, mass = _discrete_gaussian_mass(stddev)
    return float(mass[support >= threshold].sum())


def _discrete_gaussian_mass(stddev: float) -> tuple[np.ndarray, np.ndarray]:
    reach = int(np.ceil(TAIL * stddev)) + 1
    support = np.arange(-reach, reach + 1)
    mass = np.exp(-((support / stddev) ** 2) / 2)
    return support, mass / mass.sum()


@functools.lru_cache(maxsize=32)
def _discrete_gaussian_table(stddev: float) -> tuple[np.ndarray, np.ndarray]:
    support, mass = _discrete_gaussian_mass(stddev)
    cumulative = np.cumsum(mass)
    cumulative[-1] = 1.0
    return support, cumulative


@functools.lru_cache(maxsize=32)
def _opendp_gaussian(stddev: float):
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    return dp.m.make_gaussian(*space, scale=stddev)


@functools.lru_cache(maxsize=32)
def _opendp_argmax(scale: float):
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
    return dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=scale)


def _opendp():
    import opendp.prelude as dp  # seconds to import, and only real runs need it

    dp.enable_features("contrib")
    return dp
