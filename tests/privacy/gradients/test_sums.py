"""Sums on a grid: exact, without order, and moved by one unit by no more than its bound, however large the batch."""

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array
from scipy import stats

from tests.examples import scaled
from understudy.privacy.gradients.clipping import Clip, clipped_sum
from understudy.privacy.gradients.ghost import CANCELLING, UnitLoss
from understudy.privacy.gradients.poisson import (
    ALIGNED,
    Batches,
    chunk_size,
    num_slots,
    poisson_batches,
    sum_over_batch,
)
from understudy.privacy.gradients.sums import (
    BLOCK,
    BLOCK_ERROR,
    FILL,
    FILLED_BITS,
    FINENESS,
    MAX_NOISE,
    WORD,
    Fixed,
    add_totals,
    block_error,
    block_size,
    grid_error,
    grid_step,
    noise_on_grid,
    num_blocks,
    to_float,
    to_grid,
    total_of_blocks,
)
from understudy.privacy.noise.device import normals_and_words
from understudy.privacy.rows.rows import PrivateUnits

FLOATS = st.floats(-256.0, 256.0, width=32, allow_subnormal=False)


def whole(total: Fixed) -> list[int]:
    """Each total as one whole number."""
    pairs = zip(np.asarray(total.high).ravel().tolist(), np.asarray(total.low).ravel().tolist(), strict=True)
    return [high * 2**WORD + low for high, low in pairs]


# ------------------------------------------------------------------------------------------------------ whole numbers


@given(bound=st.floats(2.0**-26, 2.0**26, width=32))
def test_the_grid_is_a_power_of_two_just_below_its_part_of_the_bound(bound: float) -> None:
    step = float(grid_step(jnp.float32(bound)))
    assert math.frexp(step)[0] == 0.5
    assert bound * 2.0 ** -(FINENESS + 1) < step <= bound * 2.0**-FINENESS


@pytest.mark.parametrize("bound", [0.0, -1.0, 1e-40, 1e-9, 1e9, math.inf, math.nan])
def test_a_bound_without_a_grid_gives_no_number(bound: float) -> None:
    """A sum on a wrong grid would go unnoticed; one that is no number ends the training."""
    assert math.isnan(float(grid_step(jnp.float32(bound))))


@given(values=st.lists(FLOATS, min_size=8, max_size=8), bound=st.sampled_from([1e-4, 0.3, 1.0, 77.0]))
def test_values_go_to_the_nearest_point_of_the_grid(values: list[float], bound: float) -> None:
    step = grid_step(jnp.float32(bound))
    scaled = jnp.asarray(values, jnp.float32) * np.float32(bound)
    for value, number in zip(np.asarray(scaled).tolist(), whole(to_grid(scaled, step)), strict=True):
        exact = Fraction(value) / Fraction(float(step))
        assert abs(exact - number) <= Fraction(1, 2)


@settings(max_examples=scaled(15))
@given(blocks=st.sampled_from([1, 7, 40]), seed=st.integers(0, 2**20))
def test_totals_are_exact_and_have_no_order(blocks: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    sums = jnp.asarray(draw.normal(size=(blocks, 5)) * BLOCK, jnp.float32)
    step = grid_step(jnp.float32(1.0))
    expected = np.asarray([whole(to_grid(block, step)) for block in sums], dtype=object).sum(axis=0)
    assert whole(total_of_blocks(sums, step)) == expected.tolist()  # type: ignore[arg-type]  # takes NumPy and JAX
    one_by_one = functools.reduce(add_totals, [to_grid(block, step) for block in sums[::-1]])
    assert whole(one_by_one) == expected.tolist()


def test_many_blocks_are_added_with_a_carry_in_between() -> None:
    """Lower words of 2^19 steps each: 5,000 of them do not fit 32 bits at once."""
    step = grid_step(jnp.float32(1.0))
    sums = jnp.full((5000, 2), (2**19 - 1) * step)
    assert whole(total_of_blocks(sums, step)) == [5000 * (2**19 - 1)] * 2  # type: ignore[arg-type]  # takes NumPy and JAX


def test_totals_wrap_around_as_one_number() -> None:
    """Beyond the upper word a total is exact modulo 2^52 steps, so what overflows shows no more than the total."""
    step = jnp.float32(1.0)
    large = to_grid(jnp.asarray([2.0**50, -(2.0**50), 2.0**50 - 2.0**30]), step)
    total, expected = large, np.asarray(whole(large), dtype=object)
    for _ in range(9):
        total, expected = add_totals(total, large), expected + np.asarray(whole(large), dtype=object)
    modulus = 2 ** (32 + WORD)
    assert [number % modulus for number in whole(total)] == [number % modulus for number in expected.tolist()]


@given(noise=FLOATS, first=FLOATS, second=FLOATS)
def test_rounding_noise_commutes_with_adding_a_total(noise: float, first: float, second: float) -> None:
    """So (total + rounded noise) is a function of (total + noise): the difference of two totals goes through it."""
    step = grid_step(jnp.float32(1.0))
    totals = [to_grid(jnp.asarray([value], jnp.float32), step) for value in (first, second)]
    rounded = to_grid(jnp.asarray([noise], jnp.float32), step)
    noisy = [whole(add_totals(total, rounded))[0] for total in totals]
    exact = Fraction(float(np.float32(noise))) / Fraction(float(step))
    assert noisy[0] - noisy[1] == whole(totals[0])[0] - whole(totals[1])[0]
    assert abs(noisy[0] - whole(totals[0])[0] - exact) <= Fraction(1, 2)


@given(values=st.lists(FLOATS, min_size=8, max_size=8))
def test_a_total_comes_back_as_the_nearest_floats(values: list[float]) -> None:
    step = grid_step(jnp.float32(1.0))
    array = jnp.asarray(values, jnp.float32)
    np.testing.assert_allclose(to_float(to_grid(array, step), step), array, rtol=2e-7, atol=float(step))


# -------------------------------------------------------------------------------------------------- errors of a block


@pytest.mark.parametrize("order", ["forward", "backward", "pairwise", "product"])
def test_a_block_is_off_by_less_than_its_error(order: str) -> None:
    """Values that all round the same way, added one by one or as the device likes: near the bound, never beyond it."""
    worst = 0.0
    for seed in range(200):
        draw = np.random.default_rng(seed)
        values = draw.uniform(0.5, 1.0, BLOCK).astype(np.float32)
        if seed % 2:  # each addition rounds up by nearly half a unit in the last place
            total = np.float32(values[0])
            for at in range(1, BLOCK):
                place = np.spacing(total + np.float32(0.75))
                values[at] = (
                    np.float32(0.75) - np.float32((total + np.float64(0.75)) % place) + place * np.float32(0.51)
                )
                total = np.float32(total + values[at])
        found = _added(values, order)
        exact = float(sum(Fraction(float(value)) for value in values))
        worst = max(worst, abs(found - exact))
    assert worst <= block_error(BLOCK, 1, CANCELLING)
    assert order != "forward" or worst > block_error(BLOCK, 1, CANCELLING) / 50  # the attack bites


def _added(values: np.ndarray, order: str) -> float:
    if order == "product":
        return float(jnp.matmul(jnp.asarray(values)[None], jnp.ones((len(values), 1), jnp.float32))[0, 0])
    if order == "pairwise":
        while len(values) > 1:
            values = values[::2] + values[1::2]
        return float(values[0])
    total = np.float32(0)
    for value in values if order == "forward" else values[::-1]:
        total = np.float32(total + value)
    return float(total)


def test_blocks_shrink_where_terms_cancel() -> None:
    sizes = [block_size(uses, CANCELLING) for uses in (1, 2, 4, 8, 64)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == BLOCK
    assert all(
        block_error(size, uses, CANCELLING) <= BLOCK_ERROR for size, uses in zip(sizes, (1, 2, 4, 8, 64), strict=True)
    )
    assert grid_error(10**6) < 2e-4


# ------------------------------------------------------------------------------------------------ sensitivity at scale


class Net(eqx.Module):
    """One layer of each kind that has a rule, on one number."""

    layer: eqx.nn.Linear
    norm: eqx.nn.LayerNorm

    def __init__(self) -> None:
        self.layer = eqx.nn.Linear(1, 1, key=jax.random.key(0))
        self.norm = eqx.nn.LayerNorm(2)


def loss_for(parameter: str) -> UnitLoss:
    """The gradient of this parameter is the unit's value; that of every other one is zero."""

    @UnitLoss
    def of_unit(net: Net, unit: tuple) -> Array:
        value = unit[0][0][0]
        if parameter == "bias":
            return value * jnp.sum(net.layer(jnp.zeros(1)))
        if parameter == "weight":
            return jnp.sum(net.layer(unit[0][0])) - jnp.sum(jax.lax.stop_gradient(net.layer(unit[0][0])))
        return value * jnp.sum(net.norm(jnp.asarray([-1.0, 1.0]))) / math.sqrt(8)

    return of_unit


@functools.cache
def _compiled(parameter: str) -> Callable[[PrivateUnits, Batches], Any]:
    @eqx.filter_jit
    def total(units: PrivateUnits, draw: Batches) -> Any:
        def part(drawn: PrivateUnits, taken: Array, key: Array) -> Any:
            return clipped_sum(loss_for(parameter), Net(), (drawn._rows, drawn._present), taken, Clip.flat(1.0))

        return sum_over_batch(part, units, draw, jax.random.key(0))[0]

    return total


def exact_total(values: np.ndarray, slots: np.ndarray, chunk: int, parameter: str) -> np.ndarray:
    """The computed sum, all parameters as one vector; a slot of -1 is empty."""
    at = np.pad(slots, (0, -len(slots) % chunk), constant_values=-1).reshape(-1, chunk)
    draw = Batches(jnp.asarray(np.maximum(at, 0)), jnp.asarray(at >= 0))
    units = PrivateUnits(jnp.asarray(values, jnp.float32)[:, None, None], jnp.ones((len(values), 1), bool))
    leaves = jax.tree_util.tree_leaves(_compiled(parameter)(units, draw), is_leaf=lambda x: isinstance(x, Fixed))
    step = float(grid_step(jnp.float32(1.0)))
    return np.concatenate([np.asarray(whole(leaf), np.float64) for leaf in leaves]) * step


def random_values(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 0.998, size)


def midpoint_values(size: int, block: int) -> np.ndarray:
    """Rows for which a running float32 sum of block sums is just above the middle of two floats with the first unit
    of the block, and just below it with another one that is a little smaller: each block adds to what one unit moves.
    """
    values, total, gap = np.full(size, 0.75), 0.0, 2.0**-10
    base = 0.75 * (block - 2)
    for first in range(0, size - block + 1, block):
        place = 2.0 ** (math.floor(math.log2(total + base + 1)) - 23)
        values[first] = mine = 0.99609375 - (first // block % 480) * gap
        if place > 2 * gap:
            rest = 0.75 + (place / 2 + gap / 2 - (base + mine + 0.75)) % place
            while rest > 0.99:
                rest -= place
            if rest > 0.05:
                values[first + 1] = rest
        total += values[first : first + block].sum()
    return values


def largest_move(values: np.ndarray, chunk: int, parameter: str, *, seed: int = 0) -> float:
    """How far the unit of the last value moves the sum: into an empty slot, and into the slot of another unit, which
    goes to the end; in table order, where later units do not move, and in random order.
    """
    others, unit, draw = len(values) - 1, len(values) - 1, np.random.default_rng(seed)
    moves = []
    for order in (np.arange(others), draw.permutation(others)):
        for slot in (0, others // 2, others - 1):
            with_gap = np.insert(order, slot, -1)
            filled = np.where(with_gap < 0, unit, with_gap)
            exchanged = np.append(np.where(np.arange(others) == slot, unit, order), order[slot])
            closed = np.append(order, -1)
            for before, after in ((with_gap, filled), (closed, exchanged)):
                both = [exact_total(values, slots, chunk, parameter) for slots in (before, after)]
                moves.append(float(np.linalg.norm(both[1] - both[0])))
    return max(moves)


SIZES = [
    pytest.param(2**power, marks=[] if power <= 13 else pytest.mark.slow) for power in (12, 13, 15, 16, 18, 20, 21)
]


@pytest.mark.parametrize("parameter", ["bias", "weight", "norm"])
@pytest.mark.parametrize("chunk", [None, 256, 4096])
@pytest.mark.parametrize("size", SIZES)
def test_one_unit_moves_the_computed_sum_by_at_most_the_bound(size: int, chunk: int | None, parameter: str) -> None:
    """Random rows, and rows made to break float32 sums; nothing is allowed for rounding."""
    room = chunk_size(size, chunk)
    for values in (random_values(size, seed=size), midpoint_values(size, BLOCK), midpoint_values(size, 8192)):
        values[-1] = 5.0  # clipped to the bound
        moved = largest_move(values, room, parameter)
        assert 0.97 < moved <= 1.0, moved


@settings(max_examples=scaled(20))
@given(data=st.data(), seed=st.integers(0, 2**20))
def test_neighbours_of_any_shape_move_by_at_most_the_bound(data: st.DataObject, seed: int) -> None:
    size = data.draw(st.sampled_from([2, 129, 400]))  # each size is compiled
    values = np.random.default_rng(seed).choice([1e-6, 0.3, 0.9, 1.0, 3.0, 1e8, -0.7], size=size)
    assert largest_move(values, 256, "bias", seed=seed) <= 1.0


def test_the_attack_breaks_a_plain_float32_sum() -> None:
    """The same rows, block by block into one float32 total: without the first unit it moves by twice its bound."""

    def total(values: np.ndarray) -> float:
        found = np.float32(0)
        for first in range(0, len(values), 8192):
            found += np.float32(values[first : first + 8192].sum())
        return float(found)

    values = midpoint_values(2**19, 8192)
    assert total(values) - total(values[1:]) > 1.9


# ------------------------------------------------------------------------------------------------- random arrangements


def test_a_batch_lies_in_random_slots() -> None:
    """Every order of three units in four slots is as likely: chi-square over 24 arrangements, 1 false alarm in 10^6."""
    keys = jax.random.split(jax.random.key(0), 24_000)
    draws = poisson_batches(keys, 3, sampling_rate=1.0, chunk=4)
    slots = np.where(np.asarray(draws._taken), np.asarray(draws._indices), 3)[:, 0]
    _, counts = np.unique(slots @ np.asarray([64, 16, 4, 1]), return_counts=True)
    assert len(counts) == 24
    statistic = float((((counts - 1000) ** 2) / 1000).sum())
    assert 3.6 < statistic < 69.3  # chi-square with 23 degrees of freedom, 1e-6 on either side


def test_batches_above_their_slots_are_in_random_order_without_gaps() -> None:
    draws = poisson_batches(jax.random.split(jax.random.key(1), 6000), 3, sampling_rate=1.0, chunk=2, slots=2)
    taken, at = (np.asarray(array).reshape(6000, 4) for array in (draws._taken, draws._indices))
    np.testing.assert_array_equal(taken, np.broadcast_to([True, True, True, False], (6000, 4)))
    _, counts = np.unique(at[:, :3] @ np.asarray([9, 3, 1]), return_counts=True)
    assert len(counts) == 6
    assert 0.03 < float((((counts - 1000) ** 2) / 1000).sum()) < 35.9  # 5 degrees of freedom, 1e-6 on either side


def test_one_unit_more_fills_an_empty_slot_and_moves_no_other() -> None:
    """The coupling of the proof: the same key, the unit at the table's end, more slots than units."""
    for seed in range(20):
        key = jax.random.key(seed)
        before, after = (poisson_batches(key, n, sampling_rate=1.0, chunk=64, slots=60) for n in (50, 51))
        changed = np.flatnonzero(
            np.where(before._taken, before._indices, -1) != np.where(after._taken, after._indices, -1)
        )
        assert len(changed) == 1
        assert not np.asarray(before._taken).ravel()[changed[0]]
        assert np.asarray(after._indices).ravel()[changed[0]] == 50


def test_batches_above_their_slots_are_coupled_so_that_one_more_unit_changes_two_slots() -> None:
    """The proof's coupling, by all cases: each order of four units, and each slot that a fifth one may take, the unit
    there moving to the end. That gives every order of five units once, so both laws are the uniform ones; and the sum
    moves by at most the bound, although the fifth unit starts a chunk of its own."""
    values = np.asarray([1.0, -0.7, 1e8, 0.3, 5.0])
    found: list[tuple[int, ...]] = []
    for order in itertools.permutations(range(4)):
        before = exact_total(values, np.asarray(order), 2, "bias")
        for slot in range(5):
            after = [*order, 4]
            after[slot], after[4] = after[4], after[slot]
            found.append(tuple(after))
            assert np.linalg.norm(exact_total(values, np.asarray(after), 2, "bias") - before) <= 1.0
    assert sorted(found) == sorted(itertools.permutations(range(5)))


@pytest.mark.parametrize("declared", [4, 40])
def test_a_batch_of_more_units_than_were_declared_drops_none(declared: int) -> None:
    """150 units enter where slots for `declared` were public: more chunks, as many units, and no slot twice."""
    chunk, slots = chunk_size(declared, 16), num_slots(declared)
    for seed, num_units in enumerate((149, 150)):
        draw = poisson_batches(jax.random.key(seed), num_units, sampling_rate=1.0, chunk=chunk, slots=slots)
        at, taken = (np.asarray(array).ravel() for array in (draw._indices, draw._taken))
        assert len(draw._indices) == -(-num_units // chunk) > -(-slots // chunk)
        assert taken[:num_units].all()
        assert not taken[num_units:].any()
        np.testing.assert_array_equal(np.sort(at[taken]), np.arange(num_units))


@pytest.mark.parametrize("parameter", ["bias", "weight", "norm"])
def test_the_number_of_chunks_and_of_units_does_not_change_how_a_unit_is_computed(parameter: str) -> None:
    """Bit for bit: first chunk or a later one, alone or with empty ones, in a table of more units. Else each unit of a
    large batch would be rounded anew when one more makes another chunk necessary."""
    values = np.random.default_rng(1).normal(0, 2, 64)
    order = np.arange(48)
    whole_batch = exact_total(values, order, 16, parameter)
    for other in (np.r_[order, -np.ones(16, int)], np.r_[order[16:], order[:16]], np.r_[-np.ones(32, int), order]):
        np.testing.assert_array_equal(exact_total(values, other.astype(int), 16, parameter), whole_batch)
    np.testing.assert_array_equal(exact_total(np.r_[values, 5.0], order, 16, parameter), whole_batch)
    alone = [exact_total(values, order[first : first + 16], 16, parameter) for first in range(0, 48, 16)]
    np.testing.assert_array_equal(np.sum(alone, axis=0), whole_batch)


@given(expected=st.floats(1, 1e7), most=st.sampled_from([None, 1, 100, 256, 5000, 10**6]))
def test_chunks_have_room_for_the_slots(expected: float, most: int | None) -> None:
    chunk, slots = chunk_size(expected, most), num_slots(expected)
    chunks = -(-slots // chunk)
    assert chunk % ALIGNED == 0
    assert chunk <= min(most or 2**15, 2**15) + ALIGNED
    assert slots <= chunks * chunk < slots + chunk
    blocks = num_blocks(chunk, BLOCK)
    assert blocks * BLOCK >= chunk
    assert blocks <= 3 * -(-chunk // BLOCK) / 2


# ----------------------------------------------------------------------------------------------- low bits of the noise

DRAWN = 100_000
PARITIES = [
    (1.0, 2.0),
    (4.0, 4.0),
    (4.0, 8.0),
    (8.0, 1.0),
    (8.0, 8.0),
    (20.0, 20.0),
    (2.0**10, 2.0**9),
    (MAX_NOISE, 1.0),
]
ALARM = 1e-7
"""Of each statistic below; seeds are fixed, so this is how rarely another choice of seeds would fail."""


def noise_of(multiplier: float, seed: int, bound: float = 1.0) -> Fixed:
    stddev = jnp.float32(multiplier) * jnp.float32(bound)
    return noise_on_grid(*normals_and_words(jax.random.key(seed), DRAWN), stddev, grid_step(jnp.float32(bound)))


@pytest.mark.parametrize(("multiplier", "clip_bounds"), PARITIES)
def test_what_is_seen_is_independent_of_the_parity_of_the_exact_sum(multiplier: float, clip_bounds: float) -> None:
    """Floats of normals alone are even where they are large: where the sum is small again, its parity would be shown,
    always rightly, in up to a quarter of all draws."""
    step = grid_step(jnp.float32(1.0))
    noise = noise_of(multiplier, seed=round(multiplier))
    for odd in (0, 1):
        exact = round(clip_bounds / float(step)) + odd
        held = Fixed(jnp.full(DRAWN, exact >> WORD, jnp.int32), jnp.full(DRAWN, exact % 2**WORD, jnp.int32))
        seen = np.asarray(to_float(add_totals(held, noise), step)).astype(np.float64) / float(step)
        small = np.abs(seen) < 2**24  # there a float shows every bit of the sum
        far = np.abs(np.asarray(whole(noise), dtype=np.float64)) >= 2**24
        for shown in (small, small & far):
            right = int(np.count_nonzero(np.rint(seen[shown]).astype(np.int64) % 2 == exact % 2))
            if shown.any():
                assert stats.binomtest(right, int(shown.sum())).pvalue > ALARM


@pytest.mark.parametrize("multiplier", [2.0**-12, 0.01, 0.7, 1.0, 6.5, 300.0, 2.0**16, MAX_NOISE])
def test_low_bits_of_the_noise_are_uniform(multiplier: float) -> None:
    """Each value of the lowest bits, as many as are filled or three of them, is as frequent as any other."""
    bound = 0.83
    steps = multiplier * bound / float(grid_step(jnp.float32(bound)))
    filled = min(FILLED_BITS, max(0, math.floor(math.log2(steps)) - FILL))
    assert (filled > 0) == (steps >= 2 ** (FILL + 1))
    # The spacing of the largest float, at 9.1 standard deviations, is filled many times over.
    assert filled == 0 or 2.0**filled >= 2**7 * 2.0 ** (math.floor(math.log2(9.1 * steps)) - 23)
    numbers = np.asarray(whole(noise_of(multiplier, 3, bound)))
    for start in {0, max(0, filled - 3)}:
        values = (numbers >> start) % 8
        if filled >= 3:
            assert stats.chisquare(np.bincount(values, minlength=8)).pvalue > ALARM


@pytest.mark.parametrize("multiplier", [0.0, 1e-6, 2.0**-14, 1.0, 1000.0, MAX_NOISE])
@pytest.mark.parametrize("bound", [1e-4, 1.0, 1.9999, 1e4])
def test_noise_on_the_grid_is_the_normal_and_uniform_noise_of_its_width(multiplier: float, bound: float) -> None:
    """By whole numbers of any size: nothing overflows, up to the farthest normal and both ends of the words."""
    step, stddev = grid_step(jnp.float32(bound)), jnp.float32(multiplier) * jnp.float32(bound)
    normal = jnp.asarray([-9.1, -1.0, 0.0, 1e-3, 1.0, 9.1] * 4, jnp.float32)
    word = jnp.repeat(jnp.asarray([0, 2**31 - 1, 2**31, 2**32 - 1], jnp.uint32), 6)
    filled = 0
    if multiplier:
        filled = min(FILLED_BITS, max(0, math.floor(math.log2(float(stddev) / float(step))) - FILL))
    found = whole(add_totals(noise_on_grid(normal, word, stddev, step), Fixed(jnp.int32(0), jnp.int32(0))))
    rounded = whole(to_grid(normal * stddev, step))
    signed = np.asarray(word).astype(np.int32).tolist()
    uniform = [number >> (FILLED_BITS - filled) if filled else 0 for number in signed]
    assert found == [one + other for one, other in zip(rounded, uniform, strict=True)]
    assert max(map(abs, found)) < 2**49
