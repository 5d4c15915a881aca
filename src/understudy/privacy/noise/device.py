"""Random words and normals on the device, as one fused program: no step waits for its noise.

Both are functions of a key and an index, so any part of them can be recomputed. Needs nothing but NumPy and JAX.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, UInt32

from understudy.errors import ConfigError

MAX_COORDINATES = 2**26
"""The most coordinates of one vector: up to here the accountant bounds what the finite range adds to delta."""

PIECE = {"cpu": 1 << 14}
"""Normals made at once; elsewhere all of them."""
LANES = 1024
"""Words are made in multiples of this many, so that they divide evenly among threads and vector registers."""

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))

# erf_inv(x) = x p(w) with w = -log(1 - x^2): Chebyshev fits, p in (w - 2.5) up to w = 5 (relative error 1.6e-7), and in
# (sqrt(w) - _TAIL_AT) up to 45.5 (6e-6), beyond the smallest tail that 64 bits can name. In pairs, lowest power last.
_POLYNOMIALS = np.array(
    [
        (2.3285844e-08, 9.59019e-06),
        (3.4252486e-07, -2.962032e-05),
        (-3.463356e-06, -1.8637647e-05),
        (-4.3836317e-06, 6.6709516e-05),
        (2.1834692e-04, 1.955743e-04),
        (-1.2537487e-03, -5.901821e-04),
        (-4.1773897e-03, 3.148079e-04),
        (2.4664076e-01, 1.0102849),
        (1.5014094, 4.3353796),
    ],
    dtype=np.float32,
)
_TAIL_AT = np.float32(4.4907184)


def word_pairs(key: PRNGKeyArray, count: int) -> tuple[UInt32[Array, " count"], UInt32[Array, " count"]]:
    """Two independent words for each index: Threefry-2x32 with 20 rounds, the generator behind JAX's own keys.

    Written out, because JAX runs its rounds as a loop over memory on a CPU and throws away every second word.
    """
    # A CPU's compiler uses vector instructions only in loops of an even length, and is eight times slower elsewhere.
    first, second = jax.lax.optimization_barrier(
        _words(key, jnp.arange(_padded(count, LANES), dtype=jnp.uint32), count)
    )
    return first[:count], second[:count]


def normals(key: PRNGKeyArray, count: int) -> Float[Array, " count"]:
    """Standard normals from 64 bits each, by inversion.

    A float32 normal from one word lies on a coarse grid that ends at 5.4 standard deviations, and with many parameters
    and steps its ends would be met. Here the first word is read twice, as a distance from the middle and as a distance
    from the end, both with the full precision of a float, and the second word goes on where the first one ends: the
    smallest tail is 2^-64, at 9.1 standard deviations. What this finite range adds to delta is charged for vectors of
    up to `MAX_COORDINATES`; longer ones are refused.
    """
    return _in_pieces(lambda index: normals_of(*_words(key, index, count)), count)


def normals_and_words(key: PRNGKeyArray, count: int) -> tuple[Float[Array, " count"], UInt32[Array, " count"]]:
    """`normals`, and for each a random word that is independent of all of them."""
    normal_key, word_key = jax.random.split(key)

    def made(index: UInt32[Array, " some"]) -> tuple[Array, Array]:
        return normals_of(*_words(normal_key, index, count)), _words(word_key, index, count)[0]

    return _in_pieces(made, count)


def _in_pieces(make: Callable[[UInt32[Array, " some"]], PyTree], count: int) -> PyTree:
    """The results of `make` for every index below `count`, computed in pieces."""
    if count > MAX_COORDINATES:
        raise ConfigError(
            f"A noise vector may have at most {MAX_COORDINATES:,} coordinates, found {count:,}. Use smaller networks."
        )
    padded = _padded(count, LANES)
    piece = min(PIECE.get(jax.default_backend(), padded), padded)
    within = jnp.arange(piece, dtype=jnp.uint32)
    # What a loop makes is stored. Without one, a CPU would compute it again at each place where the noise is used.
    starts = jnp.arange(0, _padded(count, piece), piece, dtype=jnp.uint32)
    made = jax.lax.map(lambda start: make(start + within), starts)
    return jax.tree_util.tree_map(lambda each: each.reshape(-1)[:count], made)


def _padded(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _words(
    key: PRNGKeyArray, index: UInt32[Array, " some"], count: int
) -> tuple[UInt32[Array, " some"], UInt32[Array, " some"]]:
    """The two words of each index below `count`; what stands beyond belongs to nothing and must be cut off."""
    words = jax.random.key_data(key)
    keys = (words[0], words[1], words[0] ^ words[1] ^ np.uint32(0x1BD11BDA))
    first, second = index + keys[0], index + np.uint32(count) + keys[1]
    for number in range(5):
        for turn in _ROTATIONS[number % 2]:
            first = first + second
            second = first ^ ((second << np.uint32(turn)) | (second >> np.uint32(32 - turn)))
        first = first + keys[(number + 1) % 3]
        second = second + keys[(number + 2) % 3] + np.uint32(number + 1)
    return first, second


def normals_of(first: UInt32[Array, " count"], second: UInt32[Array, " count"]) -> Float[Array, " count"]:
    """The normal of each 64-bit number (first, second). Flipping all its bits changes the sign alone."""
    signed = jax.lax.bitcast_convert_type(first, jnp.int32)
    below = signed < 0
    half = jnp.where(below, ~signed, signed)  # 31 bits: the whole part of the distance from the middle
    rest = (jnp.where(below, ~second, second) >> 1).astype(jnp.int32)  # 31 bits: its fraction
    # The fraction lies between two multiples of 2^-31, so neither distance is ever nothing.
    unit, most = np.float32(2**-31), np.int32(2**31 - 1)
    from_middle = (half.astype(jnp.float32) + (rest.astype(jnp.float32) + np.float32(0.5)) * unit) * unit
    from_end = ((most - half).astype(jnp.float32) + ((most - rest).astype(jnp.float32) + np.float32(0.5)) * unit) * unit
    depth = -jnp.log(from_end * (2 - from_end))
    central = depth < 5
    at = jnp.where(central, depth - np.float32(2.5), jnp.sqrt(depth) - _TAIL_AT)
    ratio = jnp.where(central, _POLYNOMIALS[0, 0], _POLYNOMIALS[0, 1])
    for centre, tail in _POLYNOMIALS[1:]:
        ratio = ratio * at + jnp.where(central, centre, tail)
    size = np.float32(np.sqrt(2)) * ratio * from_middle
    return jnp.where(below, -size, size)
