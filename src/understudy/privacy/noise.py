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

if TYPE_CHECKING:
    from jaxtyping import PRNGKeyArray

WIDE = 1e4  # above it a table would be long, and a rounded normal is within 1e-9 of the discrete law
TAIL = 14  # standard deviations kept by the seeded sampler's table: the mass beyond is below 1e-43


class SecureNoise:
    """Exact samplers on the operating system's entropy."""

    seeded = False

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        """Integers with probability proportional to exp(-x^2 / (2 stddev^2))."""
        draw = _opendp_gaussian(stddev)
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
        if stddev > WIDE:
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
