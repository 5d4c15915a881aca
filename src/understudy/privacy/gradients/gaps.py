"""Gaps between the units of a Poisson batch, exactly geometric: the work follows the batch, not the table.

With x = 1 - sampling rate, the number of units between two that are taken is g with probability (1 - x) x^g. Write g in
base 16, g = d_0 + 16 d_1 + 16^2 d_2 + ...: then x^g is the product of x^(d_j 16^j), so the digits are independent, and
with y = x^(16^j) digit j is at least d with probability (y^d - y^16) / (1 - y^16). A digit is drawn by comparing a
uniform number with these 15 thresholds. All of it is in whole numbers:

- A threshold is known to as many bits as are compared, exactly: `thresholds` encloses it between fractions.
- The uniform number is drawn to as many bits. Where these differ from those of the threshold, more bits could not
  change the comparison. Where they agree, it is open; then all comparisons are made again, with more bits after the
  same first ones.

So every gap has the geometric law with no error, given random words that are uniform. What lies above the eighth digit
is one more number, with probability y^d for d or more; a gap of 2^31 or more is cut off there, beyond every table.

Needs nothing but NumPy and JAX.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray, UInt32

from understudy.privacy.noise.device import word_pairs

BASE = 16
NUM_DIGITS = 8
"""Of a gap of 32 bits."""
END = 2**31 - 1
"""Positions from here on are beyond every table, and are not distinguished: sums of two fit into 32 bits."""
BLOCK = 64
"""Gaps with a key of their own, so that drawing more of them does not change the first."""
_WORD = 32
_NUMBERS = NUM_DIGITS + 1

Bounds = tuple[int, int]
"""A real number lies between these, over a power of two."""


# ----------------------------------------------------------------------------------------------------------- thresholds


@functools.cache
def thresholds(heads: int, words: int) -> UInt32[np.ndarray, "words numbers outcomes"]:
    """The first words of the probability that each number of a gap is at least 1, ..., 15: rounded down, exactly.

    `heads` is the sampling rate times 2^32. The last number is what lies above the digits. No probability is a multiple
    of a power of two that could be met here, so precision is doubled until both bounds agree.
    """
    precision = 2 * _WORD * (words + 3)
    while True:
        unknown = precision - words * _WORD
        low, high = (
            [bound >> unknown for bound in side] for side in zip(*_probabilities(heads, precision), strict=True)
        )
        if low == high:
            split = [[value >> _WORD * word & (2**_WORD - 1) for value in low] for word in reversed(range(words))]
            return np.asarray(split, dtype=np.uint32).reshape(words, _NUMBERS, BASE - 1)
        precision *= 2


def _probabilities(heads: int, precision: int) -> list[Bounds]:
    """Bounds of all thresholds, times 2^precision."""
    one, found = 1 << precision, list[Bounds]()
    exact = (2**_WORD - heads) << (precision - _WORD)
    power = (exact, exact)
    for _ in range(NUM_DIGITS):
        powers = _powers(power, BASE, precision)
        last_low, last_high = powers[-1]
        for low, high in powers[:-1]:
            least = (max(0, low - last_high) << precision) // (one - last_low)
            found.append((least, -((last_low - high) << precision) // (one - last_high) + 1))
        power = powers[-1]
    return found + _powers(power, BASE - 1, precision)


def _powers(base: Bounds, count: int, precision: int) -> list[Bounds]:
    """Bounds of the first powers."""
    found = [base]
    for _ in range(count - 1):
        low, high = found[-1]
        found.append((low * base[0] >> precision, (high * base[1] >> precision) + 1))
    return found


# ----------------------------------------------------------------------------------------------------------------- gaps


def positions(
    key: PRNGKeyArray, num_blocks: int, limits: UInt32[Array, "words numbers outcomes"]
) -> tuple[Int[Array, " gaps"], Bool[Array, ""]]:
    """Where units are taken, in order, as far as `BLOCK * num_blocks` gaps reach; and whether a comparison is open.

    More blocks, or more words, of the same key go on where fewer end.
    """

    def words_of(number: int) -> Array:
        own = jax.random.fold_in(key, number)
        draw: Callable[[Array], tuple[Array, Array]] = jax.vmap(
            lambda block: word_pairs(jax.random.fold_in(own, block), BLOCK * _NUMBERS // 2)
        )
        return jnp.stack(draw(jnp.arange(num_blocks)), axis=1).reshape(-1, _NUMBERS)

    numbers, is_open = compare([words_of(number) for number in range(len(limits))], limits)
    steps = gaps_of(numbers) + 1
    # Not a plain sum, which would not fit into 32 bits.
    ends = jax.lax.associative_scan(lambda one, other: jnp.minimum(one + other, np.uint32(END)), steps)
    return ends.astype(jnp.int32) - 1, is_open


def compare(
    words: Sequence[UInt32[Array, "gaps numbers"]], limits: UInt32[Array, "words numbers outcomes"]
) -> tuple[UInt32[Array, "gaps numbers"], Bool[Array, ""]]:
    """The numbers of each gap: how many thresholds its words are below; and whether one of them equals its words."""
    below, equal = jnp.asarray(False), jnp.asarray(True)
    for word, limit in zip(words, limits, strict=True):
        below = below | (equal & (word[:, :, None] < limit))
        equal = equal & (word[:, :, None] == limit)
    return below.sum(axis=-1, dtype=jnp.uint32), equal.any()


def gaps_of(numbers: UInt32[Array, "gaps numbers"]) -> UInt32[Array, " gaps"]:
    """Gaps of these digits; those beyond every table become END - 1."""
    powers = np.asarray([BASE**digit for digit in range(NUM_DIGITS)], dtype=np.uint32)
    whole = (numbers[:, :NUM_DIGITS] * powers).sum(axis=1, dtype=jnp.uint32)
    return jnp.where(numbers[:, NUM_DIGITS] > 0, np.uint32(END - 1), jnp.minimum(whole, np.uint32(END - 1)))
