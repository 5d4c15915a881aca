"""Poisson draws: every unit by its own coin, once, and none dropped. Seeds are fixed, so no verdict is a lottery."""

import functools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Bool, Int, PRNGKeyArray
from scipy import stats

from understudy.errors import ConfigError
from understudy.privacy.sampling import chunk_size, drawn_rate, sum_over_draw

WORDS = 2**32


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def times_drawn(key: PRNGKeyArray, num_units: int, rate: float, chunk: int) -> Int[Array, " units"]:
    """How often each unit enters one draw."""

    def part(units: Int[Array, " chunk"], taken: Bool[Array, " chunk"], _: PRNGKeyArray) -> Array:
        return jnp.zeros(num_units, dtype=jnp.int32).at[units].add(taken.astype(jnp.int32))

    return sum_over_draw(part, jnp.arange(num_units), rate=rate, chunk=chunk, key=key)


@functools.cache
def many_draws(num_units: int, rate: float, chunk: int, num_draws: int = 10_000) -> np.ndarray:
    keys = jax.random.split(jax.random.key(20_260_101), num_draws)
    draw = jax.jit(lambda keys: jax.lax.map(lambda key: times_drawn(key, num_units, rate, chunk), keys, batch_size=500))
    return np.asarray(draw(keys)).astype(np.int64)


# ------------------------------------------------------------------------------------------------------------ the coins


@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_every_row_is_drawn_at_the_rate(rate: float) -> None:
    """One binomial test for each row, Bonferroni: false alarm 1e-3 for each rate."""
    counts = many_draws(300, rate, 24)
    seen, expected = counts.sum(axis=0), drawn_rate(rate)
    tails = 2 * np.minimum(
        stats.binom.cdf(seen, len(counts), expected), stats.binom.sf(seen - 1, len(counts), expected)
    )
    assert tails.min() > 1e-3 / 300
    # ... and the rows together, which notices a common bias that is too small for any one of them.
    assert stats.binomtest(int(seen.sum()), counts.size, expected).pvalue > 1e-3


@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_rows_are_drawn_independently(rate: float) -> None:
    """Every pair of rows: the exact tail of the most unlikely (Bonferroni), and the chi-squares of all together."""
    counts = many_draws(300, rate, 24)
    (num_draws, num_units), seen = counts.shape, counts.sum(axis=0)
    first, second = np.triu_indices(num_units, 1)
    both = np.rint(counts.T.astype(float) @ counts.astype(float)).astype(int)[first, second]
    law = stats.hypergeom(num_draws, seen[first], seen[second])
    assert np.minimum(law.cdf(both), law.sf(both - 1)).min() > 1e-3 / len(both)
    squares = (both - law.mean()) ** 2 / law.var()
    assert abs(squares.mean() - 1) < 4 * squares.std() / math.sqrt(len(both))


@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_the_size_of_a_draw_is_binomial(rate: float) -> None:
    sizes = many_draws(300, rate, 24).sum(axis=1)
    edges = np.unique(stats.binom.ppf(np.linspace(0, 1, 12)[1:-1], 300, rate))
    observed = np.bincount(np.searchsorted(edges, sizes), minlength=len(edges) + 1)
    expected = np.diff([0.0, *stats.binom.cdf(edges, 300, rate), 1.0]) * len(sizes)
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def test_draws_of_different_keys_are_independent() -> None:
    """A row's coin in one draw says nothing about its coin, or its neighbour's, in the next."""
    counts = many_draws(300, 0.3, 24).astype(float) - 0.3
    for shift in (0, 1):
        products = counts[:-1, : 300 - shift] * counts[1:, shift:]
        deviation = products.sum() / (0.3 * 0.7 * math.sqrt(products.size))
        assert abs(deviation) < 4


@given(st.floats(min_value=1e-12, max_value=1.0))
def test_the_charged_rate_is_a_whole_number_of_words_and_never_below(rate: float) -> None:
    exact = Fraction(drawn_rate(rate))
    assert (exact * WORDS).denominator == 1
    assert Fraction(rate) <= exact < Fraction(rate) + Fraction(1, WORDS)
    assert exact <= 1


@pytest.mark.parametrize("rate", [1e-12, 0.001, 0.1, 1 / 3, 0.5, 0.999, 1 - 2**-33, 1.0])
def test_a_coin_is_a_word_below_the_charged_rate(rate: float) -> None:
    """In whole numbers: of the 2^32 equally likely words, exactly drawn_rate * 2^32 are heads."""
    num_units, key = 2000, jax.random.key(3)
    coin_key, _ = jax.random.split(key)
    padded = -(-num_units // 256) * 256
    words = np.asarray(threefry_2x32(jax.random.key_data(coin_key), jnp.arange(padded, dtype=jnp.uint32)))
    heads = Fraction(drawn_rate(rate)) * WORDS
    expected = [int(word) < heads for word in words[:num_units]]
    np.testing.assert_array_equal(times_drawn(key, num_units, rate, 256), expected)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.0000001, math.nan, math.inf])
def test_a_rate_that_is_no_probability_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="sampling rate"):
        drawn_rate(rate)


# ------------------------------------------------------------------------------------- nothing twice, nothing lost


def test_no_row_is_drawn_twice() -> None:
    assert set(np.unique(many_draws(300, 0.3, 24))) == {0, 1}


@pytest.mark.parametrize("num_units", [1, 2, 255, 256, 257, 600])
@pytest.mark.parametrize("chunk", [8, 1024])
def test_rate_one_takes_every_row_once(num_units: int, chunk: int) -> None:
    np.testing.assert_array_equal(times_drawn(jax.random.key(0), num_units, 1.0, chunk), np.ones(num_units))


@pytest.mark.parametrize("num_units", [1, 100, 256, 1001])
def test_a_draw_beyond_one_chunk_keeps_every_row(num_units: int) -> None:
    """The same coins, whatever the chunk: many small ones give the rows that one large one gives."""
    for seed in range(5):
        one = times_drawn(jax.random.key(seed), num_units, 0.7, 1024)
        np.testing.assert_array_equal(times_drawn(jax.random.key(seed), num_units, 0.7, 8), one)
    assert num_units == 1 or 0.5 < one.mean() < 0.9


def test_one_row_is_drawn_at_the_rate() -> None:
    counts = many_draws(1, 0.25, 8, 4000)
    assert stats.binomtest(int(counts.sum()), len(counts), 0.25).pvalue > 1e-3


def test_the_sum_over_chunks_is_the_sum_in_one_chunk() -> None:
    values = jax.random.normal(jax.random.key(1), (1000, 3))

    def total(chunk: int) -> Array:
        def part(rows: Array, taken: Array, _: PRNGKeyArray) -> Array:
            return jnp.where(taken[:, None], rows, 0.0).sum(axis=0)

        return jax.jit(lambda: sum_over_draw(part, values, rate=0.6, chunk=chunk, key=jax.random.key(2)))()

    once = total(1024)
    for chunk in (8, 600):
        np.testing.assert_allclose(total(chunk), once, rtol=1e-4, atol=1e-4)


def test_a_tiny_rate_draws_nothing_yet_still_asks_for_its_part() -> None:
    """An empty draw is one chunk of padding: the caller's noise must come all the same."""

    def part(rows: Array, taken: Array, _: PRNGKeyArray) -> tuple[Array, Array, Array]:
        return jnp.asarray(1), taken.sum(), jnp.isfinite(rows).all()

    chunks, drawn, finite = sum_over_draw(part, jnp.ones((500, 2)), rate=1e-12, chunk=16, key=jax.random.key(0))
    assert (int(chunks), int(drawn), bool(finite)) == (1, 0, True)


@pytest.mark.parametrize("num_units", [1, 8, 9, 16, 100])
def test_as_many_chunks_as_the_draw_needs_each_with_its_own_key(num_units: int) -> None:
    def part(rows: Array, taken: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        return jnp.asarray(1), jax.random.uniform(key)

    chunks, sum_of_uniforms = sum_over_draw(part, jnp.ones(num_units), rate=1.0, chunk=8, key=jax.random.key(5))
    assert int(chunks) == math.ceil(num_units / 8)
    first = sum_over_draw(part, jnp.ones(1), rate=1.0, chunk=8, key=jax.random.key(5))[1]
    assert (int(chunks) == 1) == np.isclose(sum_of_uniforms / chunks, first)


def test_all_arrays_of_a_unit_travel_together() -> None:
    units = {"id": jnp.arange(700), "twice": 2 * jnp.arange(700)}

    def part(rows: dict[str, Array], taken: Array, _: PRNGKeyArray) -> tuple[Array, Array]:
        return jnp.where(taken, rows["twice"] - 2 * rows["id"], 0).sum(), jnp.where(taken, rows["id"], 0).sum()

    unlike, total = sum_over_draw(part, units, rate=0.5, chunk=32, key=jax.random.key(0))
    assert int(unlike) == 0
    assert int(total) == int((times_drawn(jax.random.key(0), 700, 0.5, 32) * np.arange(700)).sum())


def test_a_population_draws_as_its_members_do() -> None:
    """Members need different numbers of chunks; the batched loop must neither cut nor repeat any."""
    keys = jax.random.split(jax.random.key(9), 6)
    together = jax.vmap(lambda key: times_drawn(key, 90, 0.2, 8))(keys)
    sizes = np.asarray(together).sum(axis=1)
    assert len(set(np.ceil(sizes / 8))) > 1
    for member, key in zip(together, keys, strict=True):
        np.testing.assert_array_equal(member, times_drawn(key, 90, 0.2, 8))


@given(st.floats(min_value=1e-3, max_value=1e5))
def test_a_chunk_holds_nearly_every_draw(expected: float) -> None:
    size = chunk_size(expected)
    assert size % 8 == 0
    assert expected + 4 * math.sqrt(expected) < size < expected + 4 * math.sqrt(expected) + 10
