"""Poisson batches with static shapes: every unit is sampled independently, and no sampled unit is ever dropped.

Needs nothing but NumPy, JAX and Equinox.
"""

import functools
import math
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.random import fold_in
from jaxtyping import Array, Bool, Int, Key, PRNGKeyArray, PyTree, UInt32

from understudy.errors import ConfigError
from understudy.privacy.gradients import gaps
from understudy.privacy.gradients.sums import add_totals
from understudy.privacy.noise.device import word_pairs

COIN_BITS = 32
DIGITS = 12
"""A sampling rate is rounded up to this many binary digits: each costs random bits, and 1/4000 of a rate is little."""
RARE = 2.0**-8
"""At a lower sampling rate the gaps between units are drawn rather than a coin for each of them."""
LANES = 256
"""Indices are found in rows of this many words: short running sums are faster than one long one."""
ALIGNED = 16
"""Chunks are multiples of this, so that a device computes each row of a chunk in the same way, whatever its slot."""
LAST = np.uint32(0xFFFFFFFF)
UNITS_AT_ONCE = {"cpu": 1 << 13}
"""A larger batch is handled in chunks of at most this many units; elsewhere 2^15."""
WORDS_AT_ONCE = {"cpu": 1 << 23}
"""Random words in memory at once; elsewhere 2^27."""

Total = TypeVar("Total")


class Batches(eqx.Module):
    """Which units enter each step: indices in chunks, and which of them are real (the rest is padding).

    Private: sampling amplifies privacy only while it is secret who was in a batch.
    """

    _indices: Int[Array, "*steps chunks chunk"]
    _taken: Bool[Array, "*steps chunks chunk"]
    _units: PyTree | None = None
    """The units themselves, arrays of "*steps chunks chunk ...", where they are not taken from all units."""

    def __repr__(self) -> str:
        return "Batches(...)"  # shapes would reveal the number of units

    def __getitem__(self, at: int | slice) -> "Batches":
        """Of some steps along the first axis."""
        return jax.tree_util.tree_map(lambda array: array[at], self)


def round_sampling_rate(rate: float) -> float:
    """The sampling rate that is used and must be charged: rounded up to 12 binary digits.

    >>> round_sampling_rate(0.25), 0.1 <= round_sampling_rate(0.1) <= 0.1 * 1.0005
    (0.25, True)
    """
    if not 0 < rate <= 1:
        raise ConfigError(f"A sampling rate must be above 0 and at most 1, found {rate:g}.", setting="sampling_rate")
    lowest = max(math.frexp(rate)[1] - DIGITS, -COIN_BITS)
    return math.ldexp(math.ceil(math.ldexp(rate, -lowest)), lowest)


def num_slots(expected: float) -> int:
    """Enough slots for nearly every batch: five standard deviations above the expected size."""
    return math.ceil(expected + 5 * math.sqrt(expected) + 1)


def chunk_size(expected: float, max_chunk: int | None = None) -> int:
    """Units handled at once: equal parts of the slots of a batch, as multiples of ALIGNED."""
    slots = num_slots(expected)
    room = UNITS_AT_ONCE.get(jax.default_backend(), 1 << 15)
    chunks = -(-slots // min(max_chunk or room, room))
    return ALIGNED * -(-slots // (chunks * ALIGNED))


def poisson_batches(
    keys: Key[Array, "..."], num_units: int, *, sampling_rate: float, chunk: int, slots: int | None = None
) -> Batches:
    """One Poisson batch of `num_units` units for each key, in as many chunks as the largest needs.

    `keys` may have any shape.

    Formal guarantee: in each batch each unit is taken with probability `round_sampling_rate(sampling_rate)`,
    independently of all others, once; none is dropped. A batch of n units occupies max(n, slots) slots, in a uniformly
    random arrangement. So the arrangements of a batch and of the same batch with one more unit can be coupled such that
    they differ in one slot, which is empty without the unit; or, from `slots` units on, in two: the unit takes a slot,
    and the unit that had it moves to the end. `slots` (by default one chunk) must be public. Not covered: the number of
    chunks, which shows in time and memory.

    Units are taken by a coin each, or, at sampling rates below `RARE`, by the gaps between them, which have the law
    that such coins give them (`gaps.py`): then the time follows the size of a batch alone.
    """
    flat, heads = keys.reshape(-1), round(round_sampling_rate(sampling_rate) * 2**COIN_BITS)
    slots = chunk if slots is None else slots
    chunks = -(-slots // chunk)
    indices = _indices_by_coins if heads >= RARE * 2**COIN_BITS else _indices_by_gaps
    while True:
        at, taken, largest = indices(flat, num_units, heads, chunks * chunk, slots)
        if int(largest) <= chunks * chunk:
            shape = (*keys.shape, chunks, chunk)
            return Batches(at.reshape(shape), taken.reshape(shape))
        chunks = -(-int(largest) // chunk)


def sum_over_batch(
    part: Callable[[PyTree, Bool[Array, " chunk"], PRNGKeyArray], Total],
    units: PyTree | None,
    batch: Batches,
    key: PRNGKeyArray,
) -> Total:
    """Adds up `part` over the chunks of one batch: a chunk of units, which of them are taken, and a key of its own.

    The units of a batch are taken from `units`, unless it carries them.
    """

    def chunk_sum(number: int | Array, chunk: Batches) -> Total:
        if chunk._units is None:
            rows = jax.tree_util.tree_map(lambda array: take_rows(array, chunk._indices), units)
        else:
            rows = jax.tree_util.tree_map(_widen, chunk._units)
        return part(rows, chunk._taken, jax.random.fold_in(key, number))

    def more(total: Total, chunk: tuple[Array, Batches]) -> tuple[Total, None]:
        return add_totals(total, chunk_sum(*chunk)), None

    total = chunk_sum(0, batch[0])
    if len(batch._indices) == 1:
        return total
    return jax.lax.scan(more, total, (jnp.arange(1, len(batch._indices)), batch[1:]))[0]


def take_rows(rows: Array, at: Int[Array, " chunk"]) -> Array:
    """The rows at these indices. Codes, which are held in as few bytes as they need, become 32-bit integers."""
    return _widen(jnp.take(rows, at, axis=0, mode="clip"))


def _widen(rows: Array) -> Array:
    return rows.astype(jnp.int32) if jnp.issubdtype(rows.dtype, jnp.unsignedinteger) else rows


Indices = tuple[Int[Array, "draws capacity"], Bool[Array, "draws capacity"], Int[Array, ""]]
"""Of each batch's units, arranged at random, as far as they fit; which are real; and the size of the largest batch."""


def _indices_by_gaps(keys: Key[Array, " draws"], num_units: int, heads: int, capacity: int, slots: int) -> Indices:
    """By exact gaps: as many as pass the last unit, of numbers with as many words as tell their digits."""
    words, num_gaps = 1, capacity + 1
    while True:
        limits, num_blocks = gaps.thresholds(heads, words), -(-num_gaps // gaps.BLOCK)
        found, passed, is_open = _arrange_gaps(keys, np.int32(num_units), limits, num_blocks, capacity, slots)
        if bool(passed) and not bool(is_open):
            return found
        # Neither changes what was drawn so far: were a batch drawn anew because it is large, it would become too small.
        words += bool(is_open)
        num_gaps = num_gaps if passed else max(2 * num_gaps, num_slots(num_units * heads / 2**COIN_BITS))


@functools.partial(jax.jit, static_argnums=(3, 4, 5))
def _arrange_gaps(
    keys: Key[Array, " draws"],
    num_units: Int[Array, ""],
    limits: UInt32[Array, "words numbers outcomes"],
    num_blocks: int,
    capacity: int,
    slots: int,
) -> tuple[Indices, Bool[Array, ""], Bool[Array, ""]]:
    """The indices, whether the gaps pass the last unit in every batch, and whether a digit is open in any."""
    room = WORDS_AT_ONCE.get(jax.default_backend(), 1 << 27)
    at_once = max(1, min(len(keys), room // (num_blocks * gaps.BLOCK * limits[:, :, 0].size)))

    def one(key: PRNGKeyArray) -> tuple[Array, Array, Array, Array, Array]:
        gap_key, slot_key = jax.random.split(key)
        found, is_open = gaps.positions(gap_key, num_blocks, limits)
        size = (found < num_units).sum(dtype=jnp.int32)
        at = jnp.where(found < num_units, found, -1)[:capacity]
        at = _arrange(at, jnp.maximum(size, slots), slot_key)
        return jnp.maximum(at, 0), at >= 0, size, found[-1] >= num_units, is_open

    at, taken, sizes, passed, is_open = jax.lax.map(one, keys, batch_size=at_once)
    return (at, taken, sizes.max()), passed.all(), is_open.any()


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _indices_by_coins(keys: Key[Array, " draws"], num_units: int, heads: int, capacity: int, slots: int) -> Indices:
    """By a coin for each unit."""
    num_words = -(-num_units // 32)
    rows = -(-num_words // LANES)
    room = WORDS_AT_ONCE.get(jax.default_backend(), 1 << 27)
    at_once = max(1, min(len(keys), room // (num_words * _planes(heads))))

    def one(key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        coin_key, slot_key = jax.random.split(key)
        words = coins(coin_key, num_words, heads)
        words = words.at[-1].set(words[-1] & np.uint32((1 << (num_units - 32 * (num_words - 1))) - 1))
        counts = jax.lax.population_count(words).astype(jnp.int32)
        within = jnp.cumsum(jnp.pad(counts, (0, rows * LANES - num_words)).reshape(rows, LANES), axis=1)
        before = jnp.cumsum(within[:, -1]) - within[:, -1]
        ranks = (within + before[:, None]).reshape(-1)
        wanted = jnp.arange(1, capacity + 1)
        taken = wanted <= ranks[-1]
        word = jnp.minimum(jnp.searchsorted(ranks, wanted, method="scan_unrolled"), num_words - 1)
        bit = _bit_in_word(words[word], wanted - (ranks[word] - counts[word]))
        at = _arrange(jnp.where(taken, 32 * word + bit, -1), jnp.maximum(ranks[-1], slots), slot_key)
        return jnp.maximum(at, 0), at >= 0, ranks[-1]

    at, taken, sizes = jax.lax.map(one, keys, batch_size=at_once)
    return at, taken, sizes.max()


def _arrange(at: Int[Array, " capacity"], used: Int[Array, ""], key: PRNGKeyArray) -> Int[Array, " capacity"]:
    """The first `used` entries in uniformly random order, the others unmoved.

    Sorted by random 64-bit numbers, which are redrawn until no two are equal: then every order is equally likely.
    """
    slot = jnp.arange(len(at))

    def toss(attempt: Array) -> tuple[Array, Array, Array]:
        # Slots beyond those used have the largest numbers, so that they stay at the end, in order.
        numbers = (jnp.where(slot < used, word, LAST) for word in word_pairs(fold_in(key, attempt), len(at)))
        first, second, order = jax.lax.sort((*numbers, slot), num_keys=2, is_stable=True)
        twice = (first[1:] == first[:-1]) & (second[1:] == second[:-1]) & (slot[:-1] < used)
        return attempt + 1, twice.any() & (used > 0), order

    _, _, order = jax.lax.while_loop(lambda state: state[1], lambda state: toss(state[0]), toss(jnp.asarray(0)))
    return at[order]


def _bit_in_word(words: UInt32[Array, " bits"], rank: Int[Array, " bits"]) -> Int[Array, " bits"]:
    """The index in each word of its `rank`-th set bit, by bisection."""
    index = jnp.zeros_like(rank)
    for width in (16, 8, 4, 2, 1):
        below = jax.lax.population_count(words & np.uint32((1 << width) - 1)).astype(rank.dtype)
        beyond = rank > below
        rank = jnp.where(beyond, rank - below, rank)
        index = jnp.where(beyond, index + width, index)
        words = jnp.where(beyond, words >> np.uint32(width), words)
    return index


def _planes(heads: int) -> int:
    """How many random bits a coin of probability heads / 2^32 takes: those above the last digit."""
    return max(1, COIN_BITS - ((heads & -heads).bit_length() - 1))


def coins(key: PRNGKeyArray, num_words: int, heads: int) -> UInt32[Array, " words"]:
    """32 coins in each word, each of probability heads / 2^32, exactly."""
    if heads == 2**COIN_BITS:
        return jnp.full(num_words, 0xFFFFFFFF, dtype=jnp.uint32)
    planes = _planes(heads)
    first, second = word_pairs(key, num_words * -(-planes // 2))
    return coins_from(jnp.concatenate([first, second]).reshape(-1, num_words)[:planes], heads)


def coins_from(planes: UInt32[Array, "planes words"], heads: int) -> UInt32[Array, " words"]:
    """From the last digit up: a fair bit or-ed in where the digit is 1, and-ed where it is 0, halves and adds.

    After each digit the chance of a head is (digit + chance so far) / 2, so in the end it is heads / 2^32.
    """
    found = jnp.zeros(planes.shape[1], dtype=jnp.uint32)
    for number in range(planes.shape[0]):
        digit = heads >> (COIN_BITS - planes.shape[0] + number) & 1
        found = found | planes[number] if digit else found & planes[number]
    return found
