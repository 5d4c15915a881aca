"""Clipped sums against the obvious per-example version, their sensitivity, and the noise that goes on them."""

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, PRNGKeyArray
from scipy import stats

from tests.builders import raises
from tests.examples import scaled
from understudy.encoding.features import Block
from understudy.errors import ConfigError
from understudy.privacy.gradients.clipping import (
    PIECE,
    Clip,
    _has_rules,
    add_noise,
    check_network,
    clip_from_public,
    clipped_sum,
    group_stddevs,
    noise_multiplier_beside_counts,
    per_example_sum,
    public_norms,
    rounding_margin,
    unit_loss,
)
from understudy.privacy.gradients.ghost import CANCELLING, UnitLoss, ghost_parts, parameters_of
from understudy.privacy.gradients.sums import Fixed, block_size, grid_step, is_fixed
from understudy.privacy.noise.device import normals
from understudy.privacy.rows.rows import PublicUnits
from understudy.training.critics import LOSSES
from understudy.training.critics import row_loss as critic_loss
from understudy.training.neural import Critic

FEATURES = 6
BLOCKS = (Block("tanh", FEATURES),)
TERMS = [  # "saturating_gan" differs from "gan" for the generator alone
    (name, paired)
    for name, loss in LOSSES.items()
    for paired in (False, True)
    if name != "saturating_gan" and not (paired and loss.couples_fakes)
]
Sum = tuple[list[np.ndarray], np.ndarray]


summed, summed_slowly = eqx.filter_jit(clipped_sum), eqx.filter_jit(per_example_sum)


def noisy_sum(
    loss: Any,
    critic: Any,
    units: Any,
    taken: Any,
    clip: Clip,
    *,
    noise_multiplier: Any,
    key: Any,
    count_stddev: Any = None,
) -> Any:
    """One whole draw: its clipped sum, and the noise."""
    exact = clipped_sum(loss, critic, units, taken, clip)
    return add_noise(*exact, clip, noise_multiplier=noise_multiplier, key=key, count_stddev=count_stddev)


noisy = eqx.filter_jit(noisy_sum)


@eqx.filter_jit
def norms_of(loss: Any, critic: Any, units: Any, clip: Clip) -> Any:
    rows, present, fakes, keys = units
    return public_norms(loss, critic, PublicUnits(rows, present), clip, fakes=fakes, keys=keys)


# ---------------------------------------------------------------------------------------------------------- the oracle


def exact_gradients(loss: Callable, critic: Any, units: Any) -> list[np.ndarray]:
    """Every unit's own gradient, array by array."""
    leaves = jax.tree_util.tree_leaves(_gradients(loss, critic, units))
    return [np.asarray(leaf, np.float64) for leaf in leaves]


@eqx.filter_jit
def _gradients(loss: Callable, critic: Any, units: Any) -> Any:
    trained, rest = eqx.partition(critic, eqx.is_inexact_array)
    return jax.vmap(lambda unit: jax.grad(lambda inside: loss(eqx.combine(inside, rest), unit))(trained))(units)


def margin_of(loss: UnitLoss, critic: Any, units: Any) -> float:
    """How far below the bound a unit is clipped."""
    if not _has_rules(loss, critic):
        return rounding_margin(parameters_of(critic), PIECE)
    uses = max(part.uses for part in ghost_parts(loss, critic, units))
    return rounding_margin(parameters_of(critic), block_size(uses, CANCELLING), uses)


def oracle(loss: UnitLoss, critic: Any, units: Any, taken: np.ndarray, clip: Clip, margin: float | None = None) -> Sum:
    """Clip each unit in each group, then add: in double precision and in loops, from the words of the definition."""
    gradients = exact_gradients(loss, critic, units)
    margin = margin_of(loss, critic, units) if margin is None else margin
    bounds = np.asarray(clip.bounds, np.float64)
    groups: Any = clip.groups or [np.zeros(leaf.shape[1] if leaf.ndim > 1 else 1, int) for leaf in gradients]
    total, within = [np.zeros(leaf.shape[1:]) for leaf in gradients], np.zeros(len(bounds))
    for unit in np.flatnonzero(taken):
        mine = [leaf[unit] for leaf in gradients]
        finite = all(np.isfinite(leaf).all() for leaf in mine)
        for j, bound in enumerate(bounds):
            masks = [
                (np.asarray(group) == j).reshape(-1, *[1] * (leaf.ndim - 1)) if leaf.ndim else bool(group[0] == j)
                for leaf, group in zip(mine, groups, strict=True)
            ]
            norm = math.sqrt(
                sum(np.sum(np.where(mask, leaf, 0.0) ** 2) for mask, leaf in zip(masks, mine, strict=True))
            )
            within[j] += 0.5 if finite and norm <= bound else -0.5
            if finite:
                scale = min(1.0, bound * (1 - margin) / norm) if norm and math.isfinite(bound) else 1.0
                total = [t + np.where(m, leaf, 0.0) * scale for t, m, leaf in zip(total, masks, mine, strict=True)]
    return total, within


def as_sum(found: tuple[Any, Any], clip: Clip | None = None) -> Sum:
    """The sum in double precision, exactly, from the whole numbers that hold it."""
    leaves = jax.tree_util.tree_leaves(found[0], is_leaf=is_fixed)
    within = whole(found[1]) * 2.0**-20 if is_fixed(found[1]) else np.asarray(found[1])
    if clip is None or not clip.is_private:
        return [np.asarray(leaf, np.float64) for leaf in leaves], within
    steps = np.asarray(grid_step(clip.bounds), np.float64)
    numbers = [whole(leaf) for leaf in leaves]
    groups: Any = clip.groups or [np.zeros(leaf.shape[0] if leaf.ndim else 1, int) for leaf in numbers]
    return [
        leaf * (steps[np.asarray(group)].reshape(-1, *[1] * (leaf.ndim - 1)) if leaf.ndim else steps[int(group[0])])
        for leaf, group in zip(numbers, groups, strict=True)
    ], within


def whole(total: Fixed) -> np.ndarray:
    return np.asarray(total.high, np.float64) * 2.0**20 + np.asarray(total.low, np.float64)


def assert_same(found: Sum, expected: Sum) -> None:
    """To 1e-5 of the largest entry, or of one where all are smaller."""
    for leaf, other in zip(found[0], expected[0], strict=True):
        np.testing.assert_allclose(leaf, other, rtol=0, atol=1e-5 * max(1.0, np.abs(other).max(initial=0.0)))
    np.testing.assert_array_equal(found[1], expected[1])


def norms_by_group(leaves: list[np.ndarray], clip: Clip) -> np.ndarray:
    squares = np.zeros(len(clip.bounds))
    for number, leaf in enumerate(leaves):
        rows = (leaf**2).reshape(leaf.shape[0] if leaf.ndim else 1, -1).sum(axis=1)
        np.add.at(squares, np.zeros(len(rows), int) if clip.groups is None else np.asarray(clip.groups[number]), rows)
    return np.sqrt(squares)


def in_groups(critic: Any, bounds: list[float], allocation: str = "optimal") -> Clip:
    """Groups that cut across arrays and within them."""
    leaves = jax.tree_util.tree_leaves(eqx.filter(critic, eqx.is_inexact_array))
    groups = tuple(
        jnp.arange(number, number + (leaf.shape[0] if leaf.ndim else 1)) % len(bounds)
        for number, leaf in enumerate(leaves)
    )
    return Clip(jnp.asarray(bounds, jnp.float32), groups, allocation, all(map(math.isfinite, bounds)))


# ------------------------------------------------------------------------------------------------------------ critics


class Normed(eqx.Module):
    """Layer normalisation with scale and shift, with shift alone, and with neither."""

    layers: list[eqx.nn.Linear]
    norms: list[eqx.nn.LayerNorm]

    def __init__(self, key: PRNGKeyArray):
        keys = jax.random.split(key, 6)
        self.layers = [eqx.nn.Linear(FEATURES, 5, key=keys[0])]
        self.layers += [eqx.nn.Linear(5, 5, use_bias=False, key=keys[1]), eqx.nn.Linear(5, "scalar", key=keys[2])]
        full = eqx.nn.LayerNorm(5)
        drawn = (1 + jax.random.normal(keys[3], (5,)), jax.random.normal(keys[4], (5,)))
        full = eqx.tree_at(lambda norm: (norm.weight, norm.bias), full, drawn)
        shift = eqx.nn.LayerNorm(5, use_weight=False)
        self.norms = [full, eqx.nn.LayerNorm(5, use_weight=False, use_bias=False), shift]

    def __call__(self, row: Array, *, key: PRNGKeyArray | None = None) -> Array:
        hidden = jnp.tanh(self.norms[0](self.layers[0](row)))
        hidden = self.norms[1](hidden + self.layers[1](hidden))
        return self.layers[2](jnp.tanh(self.norms[2](hidden)))


class Twice(eqx.Module):
    """One layer used three times for one row, and one that is never used."""

    layer: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    spare: eqx.nn.Linear
    spare_norm: eqx.nn.LayerNorm

    def __init__(self, key: PRNGKeyArray):
        self.layer = eqx.nn.Linear(FEATURES, FEATURES, key=key)
        self.norm = eqx.nn.LayerNorm(FEATURES)
        self.spare = eqx.nn.Linear(3, 4, key=key)
        self.spare_norm = eqx.nn.LayerNorm(3)

    def __call__(self, row: Array, *, key: PRNGKeyArray | None = None) -> Array:
        for _ in range(3):
            row = jnp.tanh(self.norm(self.layer(row)))
        return row.sum()


class FromScalar(eqx.Module):
    into: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, key: PRNGKeyArray):
        self.into = eqx.nn.Linear("scalar", 4, key=key)
        self.out = eqx.nn.Linear(4, "scalar", key=key)

    def __call__(self, row: Array, *, key: PRNGKeyArray | None = None) -> Array:
        return self.out(jnp.tanh(self.into(row[0]))) + self.out(jnp.sin(self.into(row[1])))


class Doubled(eqx.nn.Linear):
    """A linear layer by inheritance, which computes something else."""

    def __call__(self, x: Array, *, key: PRNGKeyArray | None = None) -> Array:
        return 2.0 * jnp.tanh(super().__call__(x))


class Inherited(eqx.Module):
    first: Doubled
    last: eqx.nn.Linear

    def __init__(self, key: PRNGKeyArray):
        self.first = Doubled(FEATURES, 4, key=key)  # type: ignore[call-arg, arg-type]  # the constructor of its parent class
        self.last = eqx.nn.Linear(4, "scalar", key=key)

    def __call__(self, row: Array, *, key: PRNGKeyArray | None = None) -> Array:
        return self.last(self.first(row))


class SquareNorm(eqx.Module):
    """Layer normalisation of a square array: its axes must not be taken for rows."""

    norm: eqx.nn.LayerNorm

    def __init__(self, key: PRNGKeyArray):
        norm = eqx.nn.LayerNorm((FEATURES, FEATURES))
        self.norm = eqx.tree_at(lambda norm: norm.weight, norm, jax.random.normal(key, (FEATURES, FEATURES)))

    def __call__(self, row: Array, *, key: PRNGKeyArray | None = None) -> Array:
        return jnp.sum(jnp.tanh(self.norm(jnp.outer(row, row) + row)))


class WithConvolution(eqx.Module):
    convolution: eqx.nn.Conv1d
    last: eqx.nn.Linear

    def __init__(self, key: PRNGKeyArray):
        self.convolution = eqx.nn.Conv1d(1, 2, 3, key=key)
        self.last = eqx.nn.Linear(2 * (FEATURES - 2), "scalar", key=key)

    def __call__(self, row: Array, *, key: PRNGKeyArray | None = None) -> Array:
        return self.last(jnp.tanh(self.convolution(row[None]).reshape(-1)))


class WithSlope(eqx.Module):
    layer: eqx.nn.Linear
    slope: eqx.nn.PReLU
    last: eqx.nn.Linear

    def __init__(self, key: PRNGKeyArray):
        self.layer = eqx.nn.Linear(FEATURES, 4, key=key)
        self.slope = eqx.nn.PReLU()
        self.last = eqx.nn.Linear(4, "scalar", key=key)

    def __call__(self, row: Array, *, key: PRNGKeyArray | None = None) -> Array:
        return self.last(self.slope(self.layer(row)))


class WithEmbedding(eqx.Module):
    table: eqx.nn.Embedding
    last: eqx.nn.Linear

    def __init__(self, key: PRNGKeyArray):
        self.table = eqx.nn.Embedding(9, 4, key=key)
        self.last = eqx.nn.Linear(4, "scalar", key=key)

    def __call__(self, row: Array, *, key: PRNGKeyArray | None = None) -> Array:
        return self.last(self.table(jnp.mod(jnp.abs(10 * row[0]).astype(jnp.int32), 9)))


CRITICS: dict[str, Callable[[PRNGKeyArray], Any]] = {
    "no hidden layer": lambda key: Critic(FEATURES, (), key=key),
    "one hidden layer": lambda key: Critic(FEATURES, (1,), key=key),
    "wide": lambda key: Critic(FEATURES, (32, 7, 16), key=key),
    "dropout": lambda key: Critic(FEATURES, (16, 8), dropout=0.5, key=key),
    "no biases": lambda key: eqx.nn.MLP(FEATURES, "scalar", 8, 2, use_bias=False, use_final_bias=False, key=key),
    "layer norms": Normed,
    "one layer thrice": Twice,
    "scalars": FromScalar,
}
WITHOUT_RULES: dict[str, Callable[[PRNGKeyArray], Any]] = {
    "convolution": WithConvolution,
    "learned slope": WithSlope,
    "embedding": WithEmbedding,
    "inherited": Inherited,
    "square norm": SquareNorm,
}


def units_of(num_units: int, slots: int, *, seed: int = 0, scale: float = 1.0, gap: float | None = None) -> tuple:
    """Rows, presence, fakes and keys as the training loop hands them over. With `gap`, fakes lie that near to rows."""
    draw = np.random.default_rng(seed)
    rows = scale * draw.normal(size=(num_units, slots, FEATURES))
    fakes = draw.normal(size=rows.shape) if gap is None else rows + gap * draw.normal(size=rows.shape)
    present = draw.random((num_units, slots)) < 0.7 if slots > 1 else np.ones((num_units, slots), bool)
    keys = jax.random.split(jax.random.key(seed), num_units)
    return jnp.asarray(rows, jnp.float32), jnp.asarray(present), jnp.asarray(fakes, jnp.float32), keys


@UnitLoss
def softplus_loss(critic: Any, unit: tuple) -> Array:
    rows, present, _, key = unit
    values = [jnp.where(present[i], jax.nn.softplus(-critic(rows[i], key=key)), 0.0) for i in range(len(rows))]
    return jnp.sum(jnp.stack(values))


# ---------------------------------------------------------------------------------------------- sums are the oracle's


@pytest.mark.parametrize("name", CRITICS)
def test_sums_of_every_critic_are_those_of_per_example_gradients(name: str) -> None:
    """Units of one row, a mask; bounds that divide the units, that hold none or all of them, and infinite ones."""
    critic = CRITICS[name](jax.random.key(1))
    units, taken = units_of(FEATURES, 1), np.arange(FEATURES) != 1
    middle = float(np.median(norms_of(softplus_loss, critic, units, Clip.flat(1.0))))
    for bounds in ([middle], [middle / 9], [50.0], [math.inf], [middle / 2, middle], [math.inf] * 2):
        clip = Clip.flat(bounds[0]) if len(bounds) == 1 else in_groups(critic, bounds)
        expected = oracle(softplus_loss, critic, units, taken, clip)
        assert bounds != [middle] or abs(expected[1][0]) < taken.sum() / 2
        assert_same(as_sum(summed(softplus_loss, critic, units, jnp.asarray(taken), clip), clip), expected)
        if len(bounds) > 1:
            slow = oracle(softplus_loss, critic, units, taken, clip, rounding_margin(parameters_of(critic), FEATURES))
            assert_same(as_sum(summed_slowly(softplus_loss, critic, units, jnp.asarray(taken), clip), clip), slow)


@pytest.mark.parametrize("name", WITHOUT_RULES)
def test_layers_without_a_rule_are_summed_by_per_example_gradients(name: str) -> None:
    """More units than are held at once, so that the last piece is padded."""
    critic = WITHOUT_RULES[name](jax.random.key(1))
    units, taken = units_of(70, 1), np.arange(70) % 3 != 1
    clip = in_groups(critic, [0.2, 0.5, 3.0])
    expected = oracle(softplus_loss, critic, units, taken, clip)
    assert_same(as_sum(summed(softplus_loss, critic, units, jnp.asarray(taken), clip), clip), expected)
    # As many units as features: an axis that is mistaken for another must not go unnoticed.
    units, taken = units_of(FEATURES, 1), np.ones(FEATURES, bool)
    expected = oracle(softplus_loss, critic, units, taken, Clip.flat(0.3))
    assert_same(
        as_sum(summed(softplus_loss, critic, units, jnp.asarray(taken), Clip.flat(0.3)), Clip.flat(0.3)), expected
    )


@pytest.mark.parametrize(
    ("name", "paired", "slots"), [(*term, 2) for term in TERMS] + [("gan", True, 3), ("wgan", False, 1)]
)
def test_sums_of_every_loss_are_those_of_per_example_gradients(name: str, paired: bool, slots: int) -> None:
    """Gradient penalties too: there a layer's weight acts in the inner backward pass as well."""
    critic = Critic(FEATURES, (8, 5), key=jax.random.key(2))
    loss = unit_loss(critic_loss(LOSSES[name], BLOCKS, None, paired=paired))
    units, taken = units_of(9, slots, seed=slots), np.arange(9) != 4
    clip = in_groups(critic, [0.2, 1.0]) if slots == 2 else Clip.flat(1.0)
    expected = oracle(loss, critic, units, taken, clip)
    assert max(np.abs(leaf).max() for leaf in expected[0]) > 0.05
    assert_same(as_sum(summed(loss, critic, units, jnp.asarray(taken), clip), clip), expected)


@pytest.mark.parametrize("name", ["wgan_gp", "dragan"])
def test_norms_of_penalised_losses_are_those_of_per_example_gradients(name: str) -> None:
    critic = Critic(FEATURES, (8, 5), key=jax.random.key(2))
    loss = unit_loss(critic_loss(LOSSES[name], BLOCKS, None, paired=False))
    units, clip = units_of(9, 1), in_groups(critic, [1.0, 1.0])
    gradients = exact_gradients(loss, critic, units)
    expected = [norms_by_group([leaf[unit] for leaf in gradients], clip) for unit in range(9)]
    np.testing.assert_allclose(norms_of(loss, critic, units, clip), expected, rtol=1e-4)


@pytest.mark.parametrize("name", ["layer norms", "convolution"])
def test_rows_that_are_not_finite_add_exactly_nothing(name: str) -> None:
    """Neither to the sum, nor to any other row's share of it; a count takes them for out of bounds."""
    critic = (CRITICS | WITHOUT_RULES)[name](jax.random.key(3))
    rows, present, fakes, keys = units_of(12, 1)
    spoilt = np.asarray(rows).copy()
    bad = np.isin(np.arange(12), [1, 4, 5, 8])
    spoilt[1, 0, 2], spoilt[4, 0, 0], spoilt[5, 0], spoilt[8, 0] = math.nan, math.inf, -math.inf, math.nan
    for clip in (Clip.flat(0.3), Clip.flat(math.inf), in_groups(critic, [0.2, 0.05])):
        with_them = as_sum(
            summed(softplus_loss, critic, (jnp.asarray(spoilt), present, fakes, keys), jnp.ones(12, bool), clip), clip
        )
        without = as_sum(summed(softplus_loss, critic, (rows, present, fakes, keys), jnp.asarray(~bad), clip), clip)
        for leaf, other in zip(with_them[0], without[0], strict=True):
            np.testing.assert_array_equal(leaf, other)
        np.testing.assert_array_equal(with_them[1], without[1] - bad.sum() / 2)


def test_a_mask_leaves_out_and_absent_slots_add_nothing() -> None:
    critic = Critic(FEATURES, (8,), key=jax.random.key(0))
    rows, present, fakes, keys = units_of(10, 3)
    clip = Clip.flat(0.7)
    found = as_sum(summed(softplus_loss, critic, (rows, present, fakes, keys), jnp.zeros(10, bool), clip), clip)
    assert all((leaf == 0).all() for leaf in found[0])
    assert (found[1] == 0).all()
    elsewhere = jnp.where(present[..., None], rows, 100.0)
    one = summed(softplus_loss, critic, (rows, present, fakes, keys), jnp.ones(10, bool), clip)
    assert_same(
        as_sum(summed(softplus_loss, critic, (elsewhere, present, fakes, keys), jnp.ones(10, bool), clip), clip),
        as_sum(one, clip),
    )


@pytest.mark.parametrize("num_units", [16, 112, 624])
def test_a_gradient_is_computed_alike_in_every_slot(num_units: int) -> None:
    """Bit by bit: in batches larger than their slots, one unit more moves another one to another slot."""
    critic = Critic(FEATURES, (16, 16), key=jax.random.key(0))
    rows = jax.random.normal(jax.random.key(1), (num_units, 1, FEATURES))
    present, keys = jnp.ones((num_units, 1), bool), jax.random.split(jax.random.key(2), num_units)
    norms = np.asarray(norms_of(softplus_loss, critic, (rows, present, None, keys), Clip.flat(1.0)))
    for shift in (1, 7, num_units // 2):
        moved = norms_of(softplus_loss, critic, (jnp.roll(rows, shift, axis=0), present, None, keys), Clip.flat(1.0))
        np.testing.assert_array_equal(moved, np.roll(norms, shift, axis=0))


def test_a_population_has_the_sums_of_its_members() -> None:
    units, taken, clip = units_of(8, 2), jnp.ones(8, bool), Clip.flat(0.2)
    members = [Critic(FEATURES, (6,), key=jax.random.key(seed)) for seed in range(3)]
    stacked = jax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), *members)
    together = jax.jit(jax.vmap(lambda critic: clipped_sum(softplus_loss, critic, units, taken, clip)))(stacked)
    for number, critic in enumerate(members):
        mine = jax.tree_util.tree_map(lambda leaf, at=number: leaf[at], together)
        assert_same(as_sum(mine, clip), as_sum(summed(softplus_loss, critic, units, taken, clip), clip))


@pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated:DeprecationWarning")  # its own call
def test_sums_agree_with_jax_privacy() -> None:
    """A second opinion, where it is installed."""
    clipping = pytest.importorskip("jax_privacy.clipping")
    critic = Critic(FEATURES, (16, 8), key=jax.random.key(4))
    trained, rest = eqx.partition(critic, eqx.is_inexact_array)
    units = units_of(20, 2)
    theirs = clipping.clipped_grad(
        lambda inside, unit: softplus_loss(eqx.combine(inside, rest), unit), l2_clip_norm=0.6, keep_batch_dim=False
    )(trained, units)
    bound = 0.6 / (1 - margin_of(softplus_loss, critic, units))
    ours, _ = as_sum(summed(softplus_loss, critic, units, jnp.ones(20, bool), Clip.flat(bound)), Clip.flat(bound))
    for leaf, other in zip(ours, jax.tree_util.tree_leaves(theirs), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=0, atol=3e-5 * max(1.0, float(jnp.abs(other).max())))


# --------------------------------------------------------------------------------------------------------- sensitivity


@functools.cache
def sums_without_each(name: str, paired: bool) -> Callable:
    """Sums over all units, and over all but one, of a compiled shape."""
    loss = unit_loss(critic_loss(LOSSES[name], BLOCKS, None, paired=paired))
    masks = jnp.concatenate([jnp.ones((1, 5), bool), ~jnp.eye(5, dtype=bool)])

    @eqx.filter_jit
    def sums(critic: Any, units: tuple, bounds: Array) -> tuple[Any, Array]:
        clip = Clip(bounds, in_groups(critic, [1.0, 1.0]).groups)
        return jax.lax.map(lambda taken: clipped_sum(loss, critic, units, taken, clip), masks)

    return sums


@pytest.mark.parametrize(("name", "paired"), TERMS)
@settings(max_examples=scaled(12))
@given(
    seed=st.integers(0, 2**20),
    scale=st.sampled_from([1e-3, 1.0, 30.0, 1e3, 1e6]),
    gap=st.sampled_from([None, 0.0, 1e-3, 0.01, 0.3]),
    bound=st.sampled_from([1e-4, 0.022, 1.0, 30.0]),
)
def test_one_unit_moves_the_sum_by_at_most_the_bound(
    name: str, paired: bool, seed: int, scale: float, gap: float | None, bound: float
) -> None:
    """Huge rows, rows with a level that no other has, and fakes so near to their rows that gradients cancel.

    Differences are of whole numbers, so nothing is allowed for rounding.
    """
    critic = Critic(FEATURES, (12, 5), key=jax.random.key(seed))
    rows, present, fakes, keys = units_of(5, 2, seed=seed, scale=scale, gap=gap)
    rows = rows.at[0, :, :2].set(jnp.asarray([50.0, 0.0])).at[1, 0].set(1e6)
    bounds = jnp.asarray([bound, bound / 7], jnp.float32)
    sums, within = sums_without_each(name, paired)(critic, (rows, present, fakes, keys), bounds)
    clip = in_groups(critic, bounds.tolist())
    found = [as_sum(jax.tree_util.tree_map(lambda leaf, at=at: leaf[at], (sums, within)), clip) for at in range(6)]
    for without in found[1:]:
        moved = norms_by_group([one - other for one, other in zip(found[0][0], without[0], strict=True)], clip)
        assert (moved <= np.asarray(bounds, np.float64)).all(), moved / np.asarray(bounds)
        np.testing.assert_array_equal(np.abs(found[0][1] - without[1]), 0.5)


def test_a_tiny_gradient_times_a_huge_input_is_clipped() -> None:
    """Squared one by one, the gradient of a critic that is sure of a row vanishes, and its norm would come out as 0."""
    critic = Critic(FEATURES, (8,), key=jax.random.key(0))
    huge = eqx.tree_at(lambda net: net.layers[0].weight, critic, critic.layers[0].weight * 1e18)

    @UnitLoss
    def loss(net: Any, unit: tuple) -> Array:
        return 1e-19 * net(unit[0][0])

    units = units_of(6, 1)
    for bound in (1.0, 0.1):
        only = as_sum(summed(loss, huge, units, jnp.arange(6) == 2, Clip.flat(bound)), Clip.flat(bound))[0]
        slow = as_sum(summed_slowly(loss, huge, units, jnp.arange(6) == 2, Clip.flat(bound)), Clip.flat(bound))[0]
        assert 0 < norms_by_group(only, Clip.flat(bound))[0] <= bound
        margins = margin_of(loss, huge, units), rounding_margin(parameters_of(huge), 6)
        kept = [1 - margin if bound == 0.1 else 1.0 for margin in margins]  # the greater bound clips nothing
        norms = [norms_by_group(each, Clip.flat(bound)) / part for each, part in zip((only, slow), kept, strict=True)]
        np.testing.assert_allclose(norms[0], norms[1], rtol=1e-3)


@pytest.mark.parametrize("size", [1e-12, 1e-20, 1e-25, 1e-37])
@pytest.mark.parametrize("uses", [1, 2])
def test_a_tiny_input_times_a_huge_gradient_is_clipped(size: float, uses: int) -> None:
    """Squared, a tiny input vanishes: its norm would come out as 0, and the product pass the clip."""
    layer = eqx.nn.Linear(4, 1, use_bias=False, key=jax.random.key(0))

    @UnitLoss
    def loss(net: Any, unit: tuple) -> Array:
        total = jnp.zeros(())
        for number in range(uses):
            total = total + jnp.sum(net(unit[0][0] * (number + 1)))
        return (0.1 / size) * total

    units = (
        jnp.full((3, 1, 4), size, jnp.float32),
        jnp.ones((3, 1), bool),
        None,
        jax.random.split(jax.random.key(0), 3),
    )
    for bound in (1e-4, 0.01):
        only = as_sum(summed(loss, layer, units, jnp.arange(3) == 1, Clip.flat(bound)), Clip.flat(bound))[0]
        assert norms_by_group(only, Clip.flat(bound))[0] <= bound


@pytest.mark.parametrize("number", [2, -1])
def test_a_group_without_a_bound_is_clipped_all_the_same(number: int) -> None:
    """Its gradients would be in the norm of no group, and enter the sum as they are."""
    critic, units = Critic(FEATURES, (8,), key=jax.random.key(0)), units_of(6, 1, scale=1e4)
    groups = tuple(jnp.full(len(leaf) if leaf.ndim else 1, number) for leaf in parameters_of(critic))
    clip, held = (Clip(jnp.asarray([0.1, 0.1]), each) for each in (groups, tuple(jnp.clip(g, 0, 1) for g in groups)))
    loss = unit_loss(critic_loss(LOSSES["wgan"], BLOCKS, None, paired=False))
    for each in (summed, summed_slowly):
        only = as_sum(each(loss, critic, units, jnp.arange(6) == 2, clip), held)[0]
        assert 0 < norms_by_group(only, held).max() <= 0.1


def test_a_margin_that_leaves_nothing_is_refused() -> None:
    parameters = [jnp.zeros((256, 256))]
    with raises(ConfigError, setting="max_rows_per_unit"):
        rounding_margin(parameters, 1, uses=20_000)


@pytest.mark.parametrize("paired", [False, True])
def test_a_clipped_unit_keeps_nearly_all_of_its_bound(paired: bool) -> None:
    """The other side of the promise: what is clipped is clipped to the bound, not far below it."""
    critic = Critic(FEATURES, (12, 5), key=jax.random.key(0))
    loss, clip = unit_loss(critic_loss(LOSSES["wgan"], BLOCKS, None, paired=paired)), Clip.flat(0.022)
    for scale in (1.0, 1e6):
        units = units_of(6, 1, scale=scale)
        for unit in range(6):
            only = as_sum(summed(loss, critic, units, jnp.arange(6) == unit, clip), clip)[0]
            kept = 1 - margin_of(loss, critic, units)
            assert kept > (0.97 if paired else 0.99)
            assert 0.9999 * kept * 0.022 < norms_by_group(only, clip)[0] <= 0.022


def test_a_sum_beyond_its_bound_would_be_noticed() -> None:
    """The measure of the tests above, on a sum that is not clipped: it must exceed what they accept."""
    critic = Critic(FEATURES, (12, 5), key=jax.random.key(0))
    loss = unit_loss(critic_loss(LOSSES["gan"], BLOCKS, None, paired=False))
    only = as_sum(summed(loss, critic, units_of(6, 1), jnp.arange(6) == 0, Clip.flat(math.inf)))[0]
    assert norms_by_group(only, Clip.flat(0.1))[0] > 0.1 * 1.5


# --------------------------------------------------------------------------------------------------------------- noise


@pytest.mark.parametrize("kind", ["flat", "uniform", "optimal"])
def test_the_variance_of_repeated_sums_is_the_charged_one(kind: str) -> None:
    """Within 2% in each group: over 200,000 draws that is 6 standard errors, so one false alarm in 10^8 seeds."""
    critic = Critic(FEATURES, (16, 8), key=jax.random.key(5))
    clip = {"flat": Clip.flat(0.5), "uniform": in_groups(critic, [0.5, 2.0], "uniform")}.get(
        kind, in_groups(critic, [0.5, 2.0])
    )
    units, taken = units_of(10, 1), jnp.ones(10, bool)
    leaves, exact_within = as_sum(summed(softplus_loss, critic, units, taken, clip), clip)
    draw = jax.jit(
        jax.vmap(
            lambda key: noisy_sum(
                softplus_loss, critic, units, taken, clip, noise_multiplier=1.7, key=key, count_stddev=3.0
            )
        )
    )
    drawn = draw(jax.random.split(jax.random.key(6), 5000))
    noise = [
        (np.asarray(many) - one).reshape(5000, one.shape[0], -1)
        for many, one in zip(jax.tree_util.tree_leaves(drawn.gradient), leaves, strict=True)
    ]
    groups: Any = clip.groups or [np.zeros(leaf.shape[0], int) for leaf in leaves]
    # From the words of the definition, not from the code that is under test.
    bounds = np.asarray(clip.bounds, np.float64)
    dims = np.asarray(
        [
            sum((np.asarray(g) == j).sum() * n.shape[2] for n, g in zip(noise, groups, strict=True))
            for j in range(len(bounds))
        ]
    )
    squares = {
        "flat": 1.7**2 * bounds**2,
        "uniform": 1.7**2 * bounds**2 * 2,
        "optimal": 1.7**2 * bounds / np.sqrt(dims) * np.sum(bounds * np.sqrt(dims)),
    }[kind]
    for j, stddev in enumerate(np.sqrt(squares)):
        values = np.concatenate([n[:, np.asarray(g) == j].ravel() for n, g in zip(noise, groups, strict=True)])
        assert len(values) >= 200_000
        assert abs(values.var() / stddev**2 - 1) < 0.02
        assert abs(values.mean()) < 5 * stddev / math.sqrt(len(values))
    counts = np.asarray(drawn.within) - exact_within
    assert abs(counts.var() / 9 - 1) < 6 * math.sqrt(2 / counts.size)
    assert abs(counts.mean()) < 5 * 3 / math.sqrt(counts.size)
    # No two coordinates, the counts among them, share any of their noise.
    flat = np.concatenate([*(n.reshape(5000, -1) for n in noise), counts], axis=1)
    correlations = np.corrcoef(flat, rowvar=False) - np.eye(flat.shape[1])
    assert np.abs(correlations).max() < 6.5 / math.sqrt(5000)


@pytest.mark.parametrize(("num_groups", "spread"), [(5, 1e-6), (40, 1e-2)])
def test_what_a_unit_moves_in_all_groups_is_within_the_charge(num_groups: int, spread: float) -> None:
    """In standard deviations of the noise of each group, rounding included: the sum of squares over all groups is at
    most one over the squared noise multiplier. Groups are those of rows, by the size of their gradients."""
    critic = Critic(FEATURES, (24, 17), key=jax.random.key(num_groups))
    rows, present, fakes, keys = units_of(64, 1, scale=50.0)
    row_loss = critic_loss(LOSSES["wgan"], BLOCKS, None, paired=False)
    start = Clip(jnp.ones(num_groups), tuple(jnp.zeros(len(leaf), jnp.int32) for leaf in parameters_of(critic)))
    public = PublicUnits(rows, present)
    groups = clip_from_public(row_loss, critic, public, None, start, regroup=True, key=jax.random.key(0)).groups
    clip = Clip(jnp.asarray(np.geomspace(spread, 1.0, num_groups), jnp.float32), groups)
    loss, units, bounds = unit_loss(row_loss), (rows, present, fakes, keys), np.asarray(clip.bounds, np.float64)
    everyone = as_sum(summed(loss, critic, units, jnp.ones(64, bool), clip), clip)[0]
    moved = []
    for unit in range(0, 64, 9):
        others = as_sum(summed(loss, critic, units, jnp.arange(64) != unit, clip), clip)[0]
        moved.append(norms_by_group([one - other for one, other in zip(everyone, others, strict=True)], clip))
        assert (moved[-1] <= bounds).all()
    for allocation in ("uniform", "optimal", "equal"):
        grouped = Clip(clip.bounds, groups, allocation)
        stddevs = np.asarray(group_stddevs(parameters_of(critic), grouped, jnp.float32(1.3)), np.float64)
        cost = [np.sum((norms / stddevs) ** 2) * float(np.float32(1.3)) ** 2 for norms in moved]
        assert 0.8 < max(cost) <= 1.0


@functools.cache
def allocated(allocation: str) -> tuple[Callable, np.ndarray]:
    """Noise of four groups as a function of bounds and multiplier, and the groups' sizes."""
    leaves = [jnp.zeros((30, 3)), jnp.zeros(4), jnp.zeros(())]
    groups = (jnp.asarray([0] * 20 + [1] * 9 + [3]), jnp.arange(4), jnp.zeros(1, int))
    stddevs = jax.jit(lambda bounds, multiplier: group_stddevs(leaves, Clip(bounds, groups, allocation), multiplier))
    return stddevs, np.asarray([60 + 1 + 1, 27 + 1, 1, 3 + 1.0])


@given(st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=4), st.floats(0.2, 50))
def test_groups_together_cost_one_multiplier_and_optimal_noise_is_least(bounds: list[float], multiplier: float) -> None:
    energy = {}
    for allocation in ("uniform", "equal", "optimal"):
        noise_of, dims = allocated(allocation)
        stddevs = np.asarray(noise_of(np.asarray(bounds, np.float32), np.float32(multiplier)), np.float64)
        assert np.sum((np.asarray(bounds) / stddevs) ** 2) == pytest.approx(1 / multiplier**2, rel=1e-5)
        energy[allocation] = np.sum(dims * stddevs**2)
    least = multiplier**2 * np.sum(np.asarray(bounds) * np.sqrt(dims)) ** 2
    assert energy["optimal"] == pytest.approx(least, rel=1e-5)
    assert energy["optimal"] <= min(energy["uniform"], energy["equal"]) * (1 + 1e-5)
    # What one clip norm for all weights would have, were it as large as the bounds allow a unit to be.
    assert energy["equal"] == pytest.approx(multiplier**2 * np.sum(dims) * np.sum(np.square(bounds)), rel=1e-5)


def test_optimal_noise_is_less_where_groups_differ() -> None:
    leaves = [jnp.zeros((100, 50)), jnp.zeros(10)]
    groups, bounds = (jnp.zeros(100, int), jnp.ones(10, int)), jnp.asarray([0.1, 5.0])
    dims = np.asarray([5000.0, 10.0])
    energy = [
        float(np.sum(dims * np.asarray(group_stddevs(leaves, Clip(bounds, groups, kind), 1.0)) ** 2))
        for kind in ("optimal", "uniform")
    ]
    assert energy[0] < 0.9 * energy[1]


@functools.cache
def million() -> np.ndarray:
    return np.asarray(jax.jit(normals, static_argnums=1)(jax.random.key(7), 1_000_000), np.float64)


def test_normals_are_normal() -> None:
    """Kolmogorov-Smirnov at 1e-3, four moments at 4.5 standard errors, and the far tail by its exact law."""
    values, count = million(), 1_000_000
    assert stats.kstest(values, "norm").pvalue > 1e-3
    assert stats.kstest(values, stats.norm(scale=1.01).cdf).pvalue < 1e-3
    assert abs(values.mean()) < 4.5 / math.sqrt(count)
    assert abs(values.var() - 1) < 4.5 * math.sqrt(2 / count)
    assert abs(stats.skew(values)) < 4.5 * math.sqrt(6 / count)
    assert abs(stats.kurtosis(values)) < 4.5 * math.sqrt(24 / count)
    beyond = int((np.abs(values) > 4).sum())
    assert stats.binomtest(beyond, count, 2 * stats.norm.sf(4)).pvalue > 1e-3


def test_normals_are_symmetric() -> None:
    values = million()
    assert stats.ks_2samp(values, -values).pvalue > 1e-3
    assert stats.binomtest(int((values > 0).sum()), int((values != 0).sum())).pvalue > 1e-3


def test_normals_repeat_no_more_than_float32_must() -> None:
    """Within 1.5 times the equal pairs of rounded double-precision normals; 24 random bits would give 4.4 times."""

    def equal_pairs(values: np.ndarray) -> int:
        repeats = np.unique(values, return_counts=True)[1].astype(np.int64)
        return int((repeats * (repeats - 1) // 2).sum())

    rounded = np.random.default_rng(0).normal(size=1_000_000).astype(np.float32)
    assert equal_pairs(million()) < 1.5 * equal_pairs(rounded)


def test_normals_are_independent_over_keys_and_places() -> None:
    """Correlations of values and of squares, at 4.5 standard errors."""
    draw = jax.jit(jax.vmap(lambda key: normals(key, 100_001)))
    first, second, third = np.asarray(draw(jax.random.split(jax.random.key(0), 3)), np.float64)
    halves = first[:50_000], first[50_001:]
    pairs = [(first, second), (second, third), (first[1:], first[:-1]), (first[256:], first[:-256]), halves]
    for one, other in pairs:
        for power in (1, 2):
            assert abs(np.corrcoef(one**power, other**power)[0, 1]) < 4.5 / math.sqrt(len(one))
    assert (np.asarray(normals(jax.random.key(3), 5)) == np.asarray(normals(jax.random.key(3), 5))).all()


@given(st.floats(0.3, 20), st.integers(1, 8), st.floats(1, 1000))
def test_counts_are_charged_from_the_same_total(total: float, num_groups: int, stddev: float) -> None:
    if 1 / total**2 <= num_groups / (2 * stddev) ** 2:
        with raises(ConfigError, setting="counts"):
            noise_multiplier_beside_counts(total, num_groups, stddev)
    else:
        left = noise_multiplier_beside_counts(total, num_groups, stddev)
        assert left > total * (1 - 1e-12)
        assert 1 / left**2 + num_groups * (0.5 / stddev) ** 2 == pytest.approx(1 / total**2, rel=1e-9)


def test_counts_that_cost_everything_are_refused() -> None:
    with raises(ConfigError, setting="counts"):
        noise_multiplier_beside_counts(2.0, 4, 2.0)
    assert noise_multiplier_beside_counts(2.0, 4, 1e9) == pytest.approx(2.0)


# ------------------------------------------------------------------------------------------------------------- the look


@pytest.mark.parametrize("grouped", [False, True])
def test_without_noise_and_bound_the_query_is_the_plain_gradient(grouped: bool) -> None:
    critic = Critic(FEATURES, (8, 5), key=jax.random.key(0))
    units, taken = units_of(30, 1), jnp.ones(30, bool)
    clip = in_groups(critic, [math.inf, math.inf]) if grouped else Clip.flat(math.inf)
    plain = [leaf.sum(axis=0) for leaf in exact_gradients(softplus_loss, critic, units)]
    found = noisy(softplus_loss, critic, units, taken, clip, noise_multiplier=0.0, key=jax.random.key(1))
    assert_same(as_sum((found.gradient, jnp.zeros(1))), (plain, np.zeros(1)))


def test_nothing_taken_still_gives_noise() -> None:
    critic = Critic(FEATURES, (8,), key=jax.random.key(0))
    found = noisy(
        softplus_loss,
        critic,
        units_of(4, 1),
        jnp.zeros(4, bool),
        Clip.flat(1.0),
        noise_multiplier=1.0,
        key=jax.random.key(0),
    )
    assert found.within is None
    assert all(bool((leaf != 0).all()) for leaf in jax.tree_util.tree_leaves(found.gradient))


def test_noise_of_different_keys_differs() -> None:
    zero, clip = Fixed(jnp.zeros((4, 3), int), jnp.zeros((4, 3), int)), Clip.flat(1.0)
    draws = [
        add_noise(
            {"a": zero},
            Fixed(jnp.zeros(1, int), jnp.zeros(1, int)),
            clip,
            noise_multiplier=1.0,
            key=jax.random.key(seed),
        ).gradient["a"]
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.isclose(draws[0], draws[2]).any()


# ------------------------------------------------------------------------------------------------------------- refusals


class Holding(eqx.Module):
    """A critic with some layer deep inside."""

    inner: list[Any]

    def __call__(self, row: Array, *, key: PRNGKeyArray | None = None) -> Array:
        return row.sum()


def test_a_critic_that_mixes_rows_is_refused() -> None:
    mixing = eqx.nn.BatchNorm(FEATURES, axis_name="rows", mode="batch")
    with pytest.raises(ConfigError, match=r"BatchNorm.*mixes rows"):
        check_network(Holding([{"deep": eqx.nn.Sequential([mixing])}]))


def test_a_critic_with_hidden_state_is_refused() -> None:
    linear = eqx.nn.Linear(FEATURES, 3, key=jax.random.key(0))
    normed = eqx.nn.SpectralNorm(linear, weight_name="weight", key=jax.random.key(1))
    with pytest.raises(ConfigError, match=r"SpectralNorm.*state"):
        check_network(Holding([linear, normed]))


@pytest.mark.parametrize("name", CRITICS | WITHOUT_RULES)
def test_critics_of_single_rows_are_accepted(name: str) -> None:
    check_network((CRITICS | WITHOUT_RULES)[name](jax.random.key(0)))
