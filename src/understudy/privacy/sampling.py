"""Poisson draws with static shapes: every unit enters a step by its own coin, and no drawn unit is ever dropped.

Needs nothing but NumPy, JAX and Equinox.
"""

import math
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from understudy.errors import ConfigError

COINS = 2.0**32
LANES = 256
"""Positions are found in rows of so many coins: short running sums are fast where one long one is not."""

Total = TypeVar("Total")


class Units(eqx.Module):
    """Rows as training takes them: so many slots for each protected unit. Only `noisy_direction` may look into it."""

    rows: Float[Array, "units slots features"] | Int[Array, "units slots columns"]
    """Features, or the codes of one-hot blocks."""
    present: Bool[Array, "units slots"]


def drawn_rate(rate: float) -> float:
    """The rate that is really drawn, and must be charged: the next multiple of 2^-32 from above.

    >>> drawn_rate(0.25), drawn_rate(0.1) >= 0.1
    (0.25, True)
    """
    if not 0 < rate <= 1:
        raise ConfigError(f"A sampling rate lies above 0 and at most at 1, found {rate:g}.")
    return math.ceil(rate * COINS) / COINS


def chunk_size(expected: float) -> int:
    """Room for nearly every draw at once: four standard deviations above what is expected, a multiple of 8."""
    return 8 * math.ceil((expected + 4 * math.sqrt(expected) + 1) / 8)


def sum_over_draw(
    part: Callable[[PyTree, Bool[Array, " chunk"], PRNGKeyArray], Total],
    units: PyTree,
    *,
    rate: float,
    chunk: int,
    key: PRNGKeyArray,
) -> Total:
    """Adds up `part` over the units of one Poisson draw, in as many chunks as the draw needs.

    `part` gets a chunk of units, which of them are drawn (the rest is padding), and a key. An empty draw is one chunk
    of padding.

    Formal guarantee: each unit is taken with probability `drawn_rate(rate)`, independently of all others, once.
    """
    coin_key, part_key = jax.random.split(key)
    ranks = _ranks(coin_key, jax.tree_util.tree_leaves(units)[0].shape[0], drawn_rate(rate))
    drawn = ranks[-1]

    def chunk_sum(number: Int[Array, ""]) -> Total:
        wanted = number * chunk + jnp.arange(1, chunk + 1)
        taken = wanted <= drawn
        at = jnp.searchsorted(ranks, jnp.where(taken, wanted, 1))
        rows = jax.tree_util.tree_map(lambda array: jnp.take(array, at, axis=0, mode="clip"), units)
        return part(rows, taken, jax.random.fold_in(part_key, number))

    def more(state: tuple[Int[Array, ""], Total]) -> tuple[Int[Array, ""], Total]:
        number, total = state
        return number + 1, jax.tree_util.tree_map(jnp.add, total, chunk_sum(number))

    first = (jnp.asarray(1, dtype=jnp.int32), chunk_sum(jnp.asarray(0, dtype=jnp.int32)))
    return jax.lax.while_loop(lambda state: state[0] * chunk < drawn, more, first)[1]


def _ranks(key: PRNGKeyArray, num_units: int, rate: float) -> Int[Array, " padded"]:
    """For each unit how many up to it were drawn. A coin is a 32-bit word below rate * 2^32."""
    rows = max(1, -(-num_units // LANES))
    words = threefry_2x32(jax.random.key_data(key), jnp.arange(rows * LANES, dtype=jnp.uint32))
    heads = words < np.uint32(round(rate * COINS)) if rate < 1 else jnp.ones(rows * LANES, dtype=bool)
    heads = (heads & (jnp.arange(rows * LANES) < num_units)).reshape(rows, LANES).astype(jnp.int32)
    within = jnp.cumsum(heads, axis=1)
    before = jnp.cumsum(within[:, -1]) - within[:, -1]
    return (within + before[:, None]).reshape(-1)
