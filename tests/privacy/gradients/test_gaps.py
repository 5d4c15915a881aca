"""Gaps between sampled units: geometric without error, whatever number of words decides their digits."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.examples import scaled
from understudy.privacy.gradients import gaps
from understudy.privacy.gradients import poisson as sampling
from understudy.privacy.gradients.poisson import poisson_batches, round_sampling_rate

RATES = [2.0**-32, 1e-7, 1e-5, 1e-3, round_sampling_rate(0.0038)]


def heads_of(rate: float) -> int:
    return round(round_sampling_rate(rate) * 2**32)


def whole(limits: np.ndarray) -> np.ndarray:
    """Thresholds as whole numbers: all words of each together."""
    return sum(limits[word].astype(object) << 32 * (len(limits) - 1 - word) for word in range(len(limits)))


def taken_by(batches: sampling.Batches) -> list[np.ndarray]:
    """The units of each batch, in order."""
    at, taken = (np.asarray(array).reshape(len(batches._indices), -1) for array in (batches._indices, batches._taken))
    return [np.sort(indices[real]) for indices, real in zip(at, taken, strict=True)]


# ------------------------------------------------------------------------------------------------------------ exactness


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("words", [1, 2, 5])
def test_thresholds_are_those_of_an_independent_computation(rate: float, words: int) -> None:
    """Decimal arithmetic with 200 digits gives the same bits, all of them."""
    heads, found = heads_of(rate), whole(gaps.thresholds(heads_of(rate), words))
    with localcontext() as context:
        context.prec = 200
        x = Decimal(2**32 - heads) / 2**32
        for digit in range(gaps.NUM_DIGITS):
            y = x ** (16**digit)
            wanted = [int((y**d - y**16) / (1 - y**16) * 2 ** (32 * words)) for d in range(1, 16)]
            assert list(found[digit]) == wanted
        above = x ** (2**32)
        assert list(found[gaps.NUM_DIGITS]) == [int(above**d * 2 ** (32 * words)) for d in range(1, 16)]


@given(st.sampled_from(RATES), st.integers(min_value=0, max_value=2**32 - 1))
def test_the_digits_of_thresholds_multiply_to_the_geometric_law(rate: float, gap: int) -> None:
    """Of a gap below 2^32: the product of its digits' probabilities is q (1 - q)^gap, up to the bits compared."""
    heads = heads_of(rate)
    at_least = [[2**320, *map(int, row), 0] for row in whole(gaps.thresholds(heads, 10))]
    product = Fraction(2**320 - at_least[-1][1], 2**320)  # nothing above the digits
    for digit in range(gaps.NUM_DIGITS):
        value = gap >> 4 * digit & 15
        product *= Fraction(at_least[digit][value] - at_least[digit][value + 1], 2**320)
    with localcontext() as context:
        context.prec = 120
        wanted = Decimal(heads) / 2**32 * (1 - Decimal(heads) / 2**32) ** gap
        found = Decimal(product.numerator) / Decimal(product.denominator)
        assert abs(found - wanted) < Decimal(2) ** -300


@given(st.data())
@settings(max_examples=scaled(50))
def test_a_comparison_is_open_until_the_words_differ(data: st.DataObject) -> None:
    """Words equal to a threshold's first ones decide nothing; the next word does, as exact numbers have it."""
    limits = gaps.thresholds(heads_of(1e-3), 3)
    number, outcome = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 14))
    last = data.draw(st.integers(0, 2**32 - 1).filter(lambda word: word != limits[2, number, outcome]))
    words = np.full((3, 1, gaps.NUM_DIGITS + 1), 12345, dtype=np.uint32)
    words[:2, 0, number], words[2, 0, number] = limits[:2, number, outcome], last
    assert bool(gaps.compare(list(jnp.asarray(words[:1])), jnp.asarray(limits[:1]))[1])
    assert bool(gaps.compare(list(jnp.asarray(words[:2])), jnp.asarray(limits[:2]))[1])
    found, is_open = gaps.compare(list(jnp.asarray(words)), jnp.asarray(limits))
    assert not bool(is_open)
    drawn = whole(words[:, 0, :])
    np.testing.assert_array_equal(found[0], (drawn[:, None] < whole(limits)).sum(axis=1))


def test_open_comparisons_are_decided_by_more_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds that equal what is drawn: one more word is asked for, and the batches are those of more words."""
    keys, heads = jax.random.split(jax.random.key(3), 4), heads_of(1e-3)
    exact, asked = gaps.thresholds, []

    def rigged(heads: int, words: int) -> np.ndarray:
        asked.append(words)
        limits = exact(heads, words).copy()
        if words == 1:
            limits[0, 0, 7] = drawn  # as if the first gap's first word were that of the eighth threshold
        return limits

    own = jax.random.fold_in(jax.random.fold_in(jax.random.split(keys[2])[0], 0), 0)
    drawn = np.asarray(gaps.word_pairs(own, gaps.BLOCK * 9 // 2)[0])[0]
    plain = taken_by(poisson_batches(keys, 5000, sampling_rate=1e-3, chunk=16))
    assert exact(heads, 1).shape == (1, 9, 15)
    monkeypatch.setattr(gaps, "thresholds", rigged)
    decided = taken_by(poisson_batches(keys, 5000, sampling_rate=1e-3, chunk=16))
    assert asked == [1, 2]
    for one, other in zip(plain, decided, strict=True):
        np.testing.assert_array_equal(one, other)


# ------------------------------------------------------------------------------------------------------------- the law


@pytest.mark.parametrize("rate", [1e-5, 0.003])
def test_gaps_are_geometric(rate: float) -> None:
    """Chi-square of 20,000 gaps and more over 40 classes of equal expectation; false alarm 1e-3 for each rate."""
    heads = heads_of(rate)
    at, is_open = gaps.positions(jax.random.key(5), 320, jnp.asarray(gaps.thresholds(heads, 2)))
    assert not bool(is_open)
    found = np.diff(np.asarray(at)[np.asarray(at) < gaps.END - 1]) - 1
    law = stats.geom(heads / 2**32, loc=-1)
    edges = np.unique(law.ppf(np.linspace(0, 1, 41)[1:-1]))
    observed = np.bincount(np.searchsorted(edges, found), minlength=len(edges) + 1)
    expected = np.diff([0.0, *law.cdf(edges), 1.0]) * len(found)
    assert len(found) > 13_000
    assert stats.chisquare(observed, expected).pvalue > 1e-3
    # ... and rejected for a rate that is one part in ten off.
    wrong = np.diff([0.0, *stats.geom(heads / 2**32 * 1.1, loc=-1).cdf(edges), 1.0]) * len(found)
    assert stats.chisquare(observed, wrong).pvalue < 1e-3


def test_gaps_next_to_each_other_are_independent() -> None:
    at, _ = gaps.positions(jax.random.key(6), 320, jnp.asarray(gaps.thresholds(heads_of(0.003), 1)))
    uniform = stats.geom(0.003).cdf(np.diff(np.asarray(at)))
    assert abs(np.corrcoef(uniform[:-1], uniform[1:])[0, 1]) < 4 / math.sqrt(len(uniform))
    assert abs(np.corrcoef(uniform[: -gaps.BLOCK], uniform[gaps.BLOCK :])[0, 1]) < 4 / math.sqrt(len(uniform))


def test_first_and_last_units_are_taken_as_often_as_any() -> None:
    """Of 400 units in 10,000 batches: the ends by binomial tests, all others together; false alarm 1e-3 each."""
    keys, rate = jax.random.split(jax.random.key(7), 10_000), round_sampling_rate(0.003)
    batches = poisson_batches(keys, 400, sampling_rate=rate, chunk=16)
    seen = np.bincount(np.concatenate(taken_by(batches)), minlength=400)
    assert len(seen) == 400
    for count in (seen[0], seen[1], seen[-2], seen[-1]):
        assert stats.binomtest(int(count), len(keys), rate).pvalue > 1e-3
    assert stats.binomtest(int(seen.sum()), 400 * len(keys), rate).pvalue > 1e-3


def test_a_rate_of_one_in_four_billion_is_drawn_as_it_is() -> None:
    """At the smallest rate, a third of all first gaps is beyond 2^32: of 200,000 gaps, those within 2^30 and above."""
    numbers, _ = gaps.compare(
        [jax.random.bits(jax.random.key(8), (200_000, 9), dtype=jnp.uint32)], jnp.asarray(gaps.thresholds(1, 1))
    )
    found = np.asarray(gaps.gaps_of(numbers))
    x = 1 - 2.0**-32
    for least in (2**28, 2**30, gaps.END - 1):
        assert stats.binomtest(int((found >= least).sum()), len(found), math.exp(least * math.log(x))).pvalue > 1e-3
    above = int((np.asarray(numbers)[:, -1] > 0).sum())
    assert stats.binomtest(above, len(found), math.exp(2**32 * math.log(x))).pvalue > 1e-3


# ------------------------------------------------------------------------------------------------ nothing twice or lost


def test_a_table_of_a_hundred_million_units_costs_what_its_batches_do() -> None:
    """The same gaps give the batches of every table, each as far as it reaches: none is dropped, none comes twice."""
    keys = jax.random.split(jax.random.key(9), 5)
    tables = {size: taken_by(poisson_batches(keys, size, sampling_rate=1e-5, chunk=1504)) for size in (10**8, 10**6, 1)}
    for number in range(5):
        large = tables[10**8][number]
        assert len(np.unique(large)) == len(large) > 700
        for size, batches in tables.items():
            np.testing.assert_array_equal(batches[number], large[large < size])


def test_more_units_than_gaps_were_drawn_for_are_all_taken() -> None:
    """Batches of about 300 where one chunk of 16 was expected: they are those of large chunks."""
    keys = jax.random.split(jax.random.key(10), 3)
    small, large = (taken_by(poisson_batches(keys, 10**5, sampling_rate=0.003, chunk=chunk)) for chunk in (16, 512))
    for one, other in zip(small, large, strict=True):
        assert len(one) > 200
        np.testing.assert_array_equal(one, other)


def test_slots_of_a_rare_batch_are_equally_likely() -> None:
    """Which of 16 slots the first unit that is taken has: chi-square over 5,000 batches; false alarm 1e-3."""
    keys = jax.random.split(jax.random.key(11), 5_000)
    batches = poisson_batches(keys, 500, sampling_rate=0.0038, chunk=16)
    at = np.where(np.asarray(batches._taken), np.asarray(batches._indices), 500).reshape(-1, 16)
    first = at.argmin(axis=1)[at.min(axis=1) < 500]
    assert len(first) > 4_000
    assert stats.chisquare(np.bincount(first, minlength=16)).pvalue > 1e-3
