"""Sums over units whose computed value one unit moves by a bounded amount, rounding included.

A float sum is rounded after every addition, so in a long one an additional unit changes how all others are rounded, and
the computed sum moves further than the unit itself (Casacuberta et al. 2022). Here a sum is taken in three steps:

1. Units are added in blocks of at most `BLOCK`, in float32, in any order. The error of a block's sum is at most
   `block_error` times the sum of the norms in it, whatever the device does (fused or split products, atomic additions).
2. Each block's sum is rounded to a public grid and from there on held as an integer, in two 32-bit words. Integers are
   added without error and in any order.
3. Noise is rounded to the same grid, which commutes with adding integers, and added as an integer. So the result is a
   function of (exact sum on the grid + noise): what is done with it, and how it overflows, reveals no more. A large
   float is a multiple of a power of two, so the low bits of the noisy sum would be those of the exact sum: a separate
   uniform noise fills them (`noise_on_grid`).

Adding or removing a unit therefore moves the sum before noise by its own clipped gradient, plus the errors of the
blocks whose members change: one block, or two in a batch larger than its public number of slots
(`poisson.poisson_batches`).
This module needs only NumPy, JAX and Equinox.
"""

import functools
import math
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, UInt32

BLOCK = 128
"""The most units whose float32 sum is taken at once."""
BLOCK_ERROR = 2.0**-7.75
"""How far a block's sum may be off, in clip bounds. Blocks are smaller where the terms of one unit may cancel."""
SUMS_THAT_CHANGE = 4
"""Block sums that change when a unit is added or removed: at most two blocks, each counted before and after."""
FINENESS = 22
"""The grid step is 2^-23 to 2^-22 of the clip bound: with a million parameters, rounding adds 0.05% to the margin."""
WORD = 20
"""The lower word holds this many bits. Sums wrap around, harmlessly, only above 2^28 aligned units in a batch."""
MAX_NOISE = 2.0**22
"""Noise above this many clip bounds would not fit into the words."""
FILL = 7
"""Uniform noise is as wide as 2^-7 to 2^-8 of a standard deviation: it adds less than 2^-17 to the variance."""
FILLED_BITS = 32
"""The most low bits that are filled. Floats of up to 9.1 standard deviations, or 2^49 steps, are multiples of 2^25."""
UNIT_ROUNDOFF = 2.0**-24

Total = TypeVar("Total")


class Fixed(eqx.Module):
    """Integers high * 2^20 + low, counting steps of a public grid."""

    high: Int[Array, "..."]
    low: Int[Array, "..."]


def grid_step(bound: Float[Array, "..."]) -> Float[Array, "..."]:
    """The public grid for sums of vectors of norm at most `bound`: a power of two, so that dividing by it is exact."""
    bits = jax.lax.bitcast_convert_type(bound.astype(jnp.float32), jnp.uint32)
    power = jax.lax.bitcast_convert_type(bits & np.uint32(0x7F800000), jnp.float32)
    usable = (bound > 1e-8) & (bound < 1e8)  # elsewhere squares of float32 may vanish: NaN rather than a wrong number
    return jnp.where(usable, power, jnp.nan) * np.float32(2.0**-FINENESS)


def to_grid(values: Float[Array, "..."], step: Float[Array, "..."]) -> Fixed:
    """The nearest points of the grid. Exact apart from that rounding, for values below 2^50 steps."""
    steps = values * _inverse(step)
    high = jnp.rint(steps * np.float32(2.0**-WORD))
    low = jnp.rint(steps - high * np.float32(2.0**WORD))
    return Fixed(high.astype(jnp.int32), low.astype(jnp.int32))


def noise_on_grid(
    normal: Float[Array, "..."], words: UInt32[Array, "..."], stddev: Float[Array, "..."], step: Float[Array, "..."]
) -> Fixed:
    """Normals times `stddev` on the grid, and uniform noise from the words: integers of n bits, around zero.

    2^n steps are a fraction of the standard deviation, and many times the spacing of the largest float. So the lowest n
    bits of a sum with this noise are uniform, and independent of the exact sum and of the normals; and the law of a sum
    moves by at most d / 2^n in total variation when the exact sum moves by d steps, whatever the spacing of floats is.
    Independent of all data, it takes nothing from what the normals guarantee. A standard deviation of zero adds none.
    """
    power = jax.lax.bitcast_convert_type((stddev * _inverse(step)).astype(jnp.float32), jnp.int32) >> 23
    bits = jnp.clip(power - 127 - FILL, 0, FILLED_BITS)
    signed = jax.lax.bitcast_convert_type(words, jnp.int32)
    uniform = jnp.where(bits > 0, signed >> jnp.minimum(FILLED_BITS - bits, 31), 0)
    rounded = to_grid(normal * stddev, step)
    return Fixed(rounded.high + (uniform >> WORD), rounded.low + (uniform & (2**WORD - 1)))


def is_fixed(node: object) -> bool:
    return isinstance(node, Fixed)


def add_totals(first: Total, second: Total) -> Total:
    """The sum of two trees of totals. Carrying keeps low words below 2^20, so only high words can wrap around."""

    def add(one: PyTree, other: PyTree) -> PyTree:
        return _carry(jax.tree_util.tree_map(jnp.add, one, other)) if is_fixed(one) else one + other

    return jax.tree_util.tree_map(add, first, second, is_leaf=is_fixed)


def add_over_axis(total: Total, axis: str) -> Total:
    """The sum of the totals of all devices along this axis of theirs. Lower words of up to 2^11 devices fit."""

    def add(one: PyTree) -> PyTree:
        summed = jax.lax.psum(one, axis)
        return _carry(summed) if is_fixed(one) else summed

    return jax.tree_util.tree_map(add, total, is_leaf=is_fixed)


def total_of_blocks(sums: Float[Array, "blocks ..."], step: Float[Array, "..."] | None) -> Fixed | Float[Array, "..."]:
    """Block sums on the grid, added up. Without a grid, for runs without privacy, as floats."""
    if step is None:
        return sums.sum(axis=0)
    room = 2 ** (31 - WORD)  # this many lower words fit into 32 bits: more are added in groups, with a carry in between
    totals = [to_grid(sums[first : first + room], step) for first in range(0, len(sums), room)]
    return functools.reduce(add_totals, [_carry(Fixed(t.high.sum(axis=0), t.low.sum(axis=0))) for t in totals])


def to_float(total: Fixed, step: Float[Array, "..."] | None) -> Float[Array, "..."]:
    """A total rounded to float32: only for one that carries noise, or in tests."""
    assert step is not None
    high = total.high.astype(jnp.float32) * np.float32(2.0**WORD)
    return (high + total.low.astype(jnp.float32)) * step


def block_size(uses: int, cancelling: float) -> int:
    """Units in a block: the largest power of two up to BLOCK whose error is below BLOCK_ERROR."""
    return next(b for b in (BLOCK >> k for k in range(12)) if b <= 1 or block_error(b, uses, cancelling) <= BLOCK_ERROR)


def num_blocks(num_units: int, block: int) -> int:
    """How many equal blocks of at most `block` units: if possible without padding, else as few as there can be."""
    fewest = -(-num_units // block)
    even = (blocks for blocks in range(fewest, fewest * 3 // 2 + 1) if num_units % blocks == 0)
    return next(even, fewest)


def block_error(block: int, uses: int, cancelling: float) -> float:
    """Error of a block's sum, relative to the largest clipped norm in it.

    Each entry is a sum of block * uses products in some order: it is off by at most gamma(block * uses + 1) times the
    sum of their absolute values (Higham 2002, section 3.1), whose norm is at most `block` times the norm of a unit, or
    of the terms of a unit, which are at most 1 / cancelling times as long as their sum.
    """
    terms = block if uses <= 1 else block / cancelling
    return gamma(block * max(uses, 1) + 1) * terms


def gamma(roundings: int) -> float:
    """A bound on the relative error of this many float32 operations in a row."""
    return roundings * UNIT_ROUNDOFF / (1 - roundings * UNIT_ROUNDOFF)


def grid_error(num_parameters: int) -> float:
    """A bound on the norm of the rounding error of the grid, relative to the clip bound: half a step in each entry."""
    return math.sqrt(num_parameters) * 2.0 ** -(FINENESS + 1)


def _inverse(step: Float[Array, "..."]) -> Float[Array, "..."]:
    """One over a power of two, exactly: a device may divide with an error in the last digit."""
    bits = jax.lax.bitcast_convert_type(jnp.asarray(step, jnp.float32), jnp.uint32)
    power = jax.lax.bitcast_convert_type(np.uint32(254 << 23) - bits, jnp.float32)
    return jnp.where(jnp.isnan(step), jnp.nan, power)


def _carry(total: Fixed) -> Fixed:
    carried = total.low >> WORD
    return Fixed(total.high + carried, total.low - (carried << WORD))
