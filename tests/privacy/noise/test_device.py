"""Words against JAX's own generator, normals against the quantiles that they should be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from scipy.special import erfcinv

from understudy.privacy.noise.device import normals_of, word_pairs


@pytest.mark.parametrize("count", [1, 2, 1001])
def test_words_are_those_of_threefry(count: int) -> None:
    key = jax.random.key(5)
    whole = np.asarray(threefry_2x32(jax.random.key_data(key), jnp.arange(2 * count, dtype=jnp.uint32)))
    np.testing.assert_array_equal(np.concatenate(word_pairs(key, count)), whole)


def numbers() -> tuple[np.ndarray, np.ndarray]:
    """Random 64-bit numbers, and those nearest to the middle and to both ends."""
    draw = np.random.default_rng(0)
    near_end = np.array([2**31 - 1 - 2**bit for bit in range(31)], dtype=np.uint32)
    first = np.concatenate([draw.integers(2**32, size=100_000, dtype=np.uint32), near_end, np.arange(40)])
    first = np.concatenate([first, np.full(66, 2**31 - 1)]).astype(np.uint32)
    second = draw.integers(2**32, size=len(first), dtype=np.uint32)
    second[-66:] = [*(2**32 - 2**bit for bit in range(1, 33)), *(2**bit - 1 for bit in range(33)), 0]
    return first, second


def test_normals_are_the_quantiles_of_their_words() -> None:
    """In double precision, from the 63 bits that are used: relative error below 1e-5, to 9 standard deviations."""
    first, second = numbers()
    found = np.asarray(normals_of(jnp.asarray(first), jnp.asarray(second)), dtype=float)
    below = first >= 2**31
    half = np.where(below, 2**32 - 1 - first.astype(np.int64), first.astype(np.int64))
    rest = np.where(below, 2**32 - 1 - second.astype(np.int64), second.astype(np.int64)) >> 1
    from_end = ((2**31 - 1 - half) + ((2**31 - 1 - rest) + 0.5) / 2**31) / 2**31
    expected = np.where(below, -1, 1) * np.sqrt(2) * erfcinv(from_end)
    # Near the middle 1 - from_end holds nothing in double precision; there the normal is the distance times a constant.
    middle = half < 2**20
    distance = (half + (rest + 0.5) / 2**31) / 2**31
    expected = np.where(middle, np.where(below, -1, 1) * np.sqrt(np.pi / 2) * distance, expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert 9.0 < found.max() < 9.2


def test_flipped_bits_flip_the_sign_alone() -> None:
    first, second = map(jnp.asarray, numbers())
    np.testing.assert_array_equal(normals_of(~first, ~second), -normals_of(first, second))
