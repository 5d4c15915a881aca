"""Poisson draws: every unit by its own coin, once, and none dropped. Seeds are fixed, so no verdict is a lottery."""

import functools
import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Array, Bool, Int, PRNGKeyArray
from scipy import stats

from tests.builders import raises
from understudy.errors import ConfigError
from understudy.privacy.gradients.poisson import (
    Batches,
    chunk_size,
    coins_from,
    num_slots,
    poisson_batches,
    round_sampling_rate,
    sum_over_batch,
)

WORDS = 2**32


def total_of(part: Any, units: Any, *, rate: float, chunk: int, key: PRNGKeyArray) -> Any:
    draw_key, part_key = jax.random.split(key)
    draw = poisson_batches(draw_key, len(jax.tree_util.tree_leaves(units)[0]), sampling_rate=rate, chunk=chunk)
    return jax.jit(lambda draw: sum_over_batch(part, units, draw, part_key))(draw)


@functools.partial(jax.jit, static_argnums=1)
def times_in(draw: Batches, num_units: int) -> Int[Array, " units"]:
    """How often each unit enters one draw."""

    def part(units: Int[Array, " chunk"], taken: Bool[Array, " chunk"], _: PRNGKeyArray) -> Array:
        return jnp.zeros(num_units, dtype=jnp.int32).at[units].add(taken.astype(jnp.int32))

    return sum_over_batch(part, jnp.arange(num_units), draw, jax.random.key(0))


def times_drawn(key: PRNGKeyArray, num_units: int, rate: float, chunk: int) -> Int[Array, " units"]:
    return times_in(poisson_batches(key, num_units, sampling_rate=rate, chunk=chunk), num_units)


@functools.cache
def many_draws(num_units: int, rate: float, chunk: int, num_draws: int = 10_000) -> np.ndarray:
    keys = jax.random.split(jax.random.key(20_260_101), num_draws)
    draws = poisson_batches(keys, num_units, sampling_rate=rate, chunk=chunk)
    counted = jax.jit(lambda draws: jax.lax.map(lambda draw: times_in(draw, num_units), draws, batch_size=500))
    return np.asarray(counted(draws)).astype(np.int64)


# ------------------------------------------------------------------------------------------------------------ the coins


@pytest.mark.parametrize("rate", [0.003, 0.02, 0.3])
def test_every_row_is_drawn_at_the_rate(rate: float) -> None:
    """One binomial test for each row, Bonferroni: false alarm 1e-3 for each rate."""
    counts = many_draws(300, rate, 24)
    seen, expected = counts.sum(axis=0), round_sampling_rate(rate)
    tails = 2 * np.minimum(
        stats.binom.cdf(seen, len(counts), expected), stats.binom.sf(seen - 1, len(counts), expected)
    )
    assert tails.min() > 1e-3 / 300
    # ... and the rows together, which notices a common bias that is too small for any one of them.
    assert stats.binomtest(int(seen.sum()), counts.size, expected).pvalue > 1e-3


@pytest.mark.parametrize("rate", [0.003, 0.02, 0.3])
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


@pytest.mark.parametrize("rate", [0.003, 0.02, 0.3])
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
    exact = Fraction(round_sampling_rate(rate))
    assert (exact * WORDS).denominator == 1
    assert Fraction(rate) <= exact < Fraction(rate) * (1 + Fraction(1, 2**11)) + Fraction(1, WORDS)
    assert exact <= 1
    assert Fraction(round_sampling_rate(float(exact))) == exact  # what was charged once is charged again


@pytest.mark.parametrize("digits", [1, 2, 5, 10])
def test_a_coin_has_the_charged_rate_exactly(digits: int) -> None:
    """All 2^digits ways the fair bits can fall, one in each lane: exactly `heads` of them are heads."""
    ways = np.arange(2**digits)
    planes = np.stack([(ways >> digit & 1).astype(np.uint32) for digit in range(digits)])
    for numerator in sorted({1, 3 % 2**digits, 2**digits - 1, *range(1, 2**digits, 97)}):
        found = np.asarray(coins_from(jnp.asarray(planes), numerator << (32 - digits)))
        assert found.sum() == numerator


@pytest.mark.parametrize("rate", [0.001, pytest.param(0.1, marks=pytest.mark.slow), 1 / 3, 0.5, 0.999])
def test_the_coins_of_all_places_in_a_word_have_the_charged_rate(rate: float) -> None:
    """32 places, each by a binomial test over 62,500 words; false alarm 1e-3 in all."""
    words = 62_500
    seen = np.asarray(times_drawn(jax.random.key(3), 32 * words, rate, chunk_size(32 * words * rate)))
    of_place = seen.reshape(words, 32).sum(axis=0)
    expected = round_sampling_rate(rate)
    tails = 2 * np.minimum(stats.binom.cdf(of_place, words, expected), stats.binom.sf(of_place - 1, words, expected))
    assert tails.min() > 1e-3 / 32


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.0000001, math.nan, math.inf])
def test_a_rate_that_is_no_probability_is_refused(rate: float) -> None:
    with raises(ConfigError, setting="sampling_rate"):
        round_sampling_rate(rate)


# ------------------------------------------------------------------------------------- nothing twice, nothing lost


def test_no_row_is_drawn_twice() -> None:
    assert set(np.unique(many_draws(300, 0.3, 24))) == {0, 1}


@pytest.mark.parametrize(
    "num_units", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(255, marks=pytest.mark.slow), 256, 257, 600]
)
@pytest.mark.parametrize("chunk", [8, 1024])
def test_rate_one_takes_every_row_once(num_units: int, chunk: int) -> None:
    np.testing.assert_array_equal(times_drawn(jax.random.key(0), num_units, 1.0, chunk), np.ones(num_units))


@pytest.mark.parametrize("num_units", [1, 100, 256, 1001])
def test_a_draw_beyond_one_chunk_keeps_every_row(num_units: int) -> None:
    """The same coins, whatever the chunk: many small ones give the rows that one large one gives."""
    keys = jax.random.split(jax.random.key(0), 5)
    one, many = (
        jax.vmap(lambda batch: times_in(batch, num_units))(
            poisson_batches(keys, num_units, sampling_rate=0.7, chunk=chunk)
        )
        for chunk in (1024, 8)
    )
    np.testing.assert_array_equal(many, one)
    assert num_units == 1 or 0.5 < one.mean() < 0.9


def test_one_row_is_drawn_at_the_rate() -> None:
    counts = many_draws(1, 0.25, 8, 4000)
    assert stats.binomtest(int(counts.sum()), len(counts), 0.25).pvalue > 1e-3


def test_the_sum_over_chunks_is_the_sum_in_one_chunk() -> None:
    values = jax.random.normal(jax.random.key(1), (1000, 3))

    def total(chunk: int) -> Array:
        def part(rows: Array, taken: Array, _: PRNGKeyArray) -> Array:
            return jnp.where(taken[:, None], rows, 0.0).sum(axis=0)

        return total_of(part, values, rate=0.6, chunk=chunk, key=jax.random.key(2))

    once = total(1024)
    for chunk in (8, 600):
        np.testing.assert_allclose(total(chunk), once, rtol=1e-4, atol=1e-4)


def test_a_tiny_rate_draws_nothing_yet_still_asks_for_its_part() -> None:
    """An empty draw is one chunk of padding: the caller's noise must come all the same."""

    def part(rows: Array, taken: Array, _: PRNGKeyArray) -> tuple[Array, Array, Array]:
        return jnp.asarray(1), taken.sum(), jnp.isfinite(rows).all()

    chunks, drawn, finite = total_of(part, jnp.ones((500, 2)), rate=1e-12, chunk=16, key=jax.random.key(0))
    assert (int(chunks), int(drawn), bool(finite)) == (1, 0, True)


@pytest.mark.parametrize("num_units", [1, 8, 9, 16, 100])
def test_as_many_chunks_as_the_draw_needs_each_with_its_own_key(num_units: int) -> None:
    def part(rows: Array, taken: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        return jnp.asarray(1), jax.random.uniform(key)

    chunks, sum_of_uniforms = total_of(part, jnp.ones(num_units), rate=1.0, chunk=8, key=jax.random.key(5))
    assert int(chunks) == math.ceil(num_units / 8)
    first = total_of(part, jnp.ones(1), rate=1.0, chunk=8, key=jax.random.key(5))[1]
    assert (int(chunks) == 1) == np.isclose(sum_of_uniforms / chunks, first)


def test_all_arrays_of_a_unit_travel_together() -> None:
    units = {"id": jnp.arange(700), "twice": 2 * jnp.arange(700)}

    def part(rows: dict[str, Array], taken: Array, _: PRNGKeyArray) -> tuple[Array, Array]:
        return jnp.where(taken, rows["twice"] - 2 * rows["id"], 0).sum(), jnp.where(taken, rows["id"], 0).sum()

    unlike, total = total_of(part, units, rate=0.5, chunk=32, key=jax.random.key(0))
    assert int(unlike) == 0
    assert int(total) == int((times_drawn(jax.random.split(jax.random.key(0))[0], 700, 0.5, 32) * np.arange(700)).sum())


@pytest.mark.slow
def test_a_population_draws_as_its_members_do() -> None:
    """Members need different numbers of chunks: all get as many as the largest needs, and none loses a row."""
    keys = jax.random.split(jax.random.key(9), (2, 3))
    draws = poisson_batches(keys, 90, sampling_rate=0.2, chunk=8)
    alone = [[np.asarray(times_drawn(key, 90, 0.2, 8)) for key in row] for row in keys]
    assert len({math.ceil(member.sum() / 8) for row in alone for member in row}) > 1
    together = jax.vmap(jax.vmap(lambda draw: times_in(draw, 90)))(draws)
    np.testing.assert_array_equal(together, alone)


@given(st.floats(min_value=1e-3, max_value=1e5))
def test_slots_hold_nearly_every_batch(expected: float) -> None:
    slots = num_slots(expected)
    assert expected + 5 * math.sqrt(expected) < slots < expected + 5 * math.sqrt(expected) + 3
