"""Clip bounds over a training: each group keeps and adapts its own, and what is fixed stays fixed."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from understudy.privacy.gradients.clipping import MIN_CLIP, Clip, public_norms, unit_loss
from understudy.privacy.gradients.dpsgd import ChargedSteps
from understudy.privacy.rows.rows import PrivateUnits, PublicUnits
from understudy.training import gan
from understudy.training.critics import LOSSES, one_hot_blocks, row_loss
from understudy.training.gan import Hyperparameters, State, adapt_clip, init_clip, init_state, renew_clip, train
from understudy.training.generation import Context, generate
from understudy.training.neural import Critic, trainable
from understudy.training.settings import Settings

BLOCKS = one_hot_blocks((3, 4, 2))
FEATURES = 9
GROUPED = Settings(
    blocks=BLOCKS,
    batch_size=50,
    latent=4,
    generator_widths=(8, 8),
    critic_widths=(8, 6),
    generator_batch=16,
    clip_groups=3,
    regroup_every=7,
)
STILL = Hyperparameters.of(1e-9, 1e-9, 0.8)
"""Networks hardly move, so norms of gradients stay what they are."""


def units_of(num_rows: int = 400) -> PublicUnits:
    draw = np.random.default_rng(0)
    codes = np.stack([draw.integers(0, block.size, num_rows) for block in BLOCKS], axis=1)
    return PublicUnits(jnp.asarray(codes[:, None], jnp.int32), jnp.ones((num_rows, 1), dtype=bool))


def trained(settings: Settings, steps: int, *, noise: float = 1e-3, count_stddev: float | None = None) -> State:
    units = units_of()
    charged = ChargedSteps(
        PrivateUnits(units.rows, units.present), jnp.asarray(noise, jnp.float32), 0.125, steps, count_stddev
    )
    return train(settings, charged, STILL, jax.random.key(1), network_key=jax.random.key(2))[0]


def renewed(settings: Settings, clip: Clip, seed: int, *, at: int = 0) -> Clip:
    state = init_state(settings, STILL, jax.random.key(seed))
    networks = (state.generator, state.critic)
    return renew_clip(settings, clip, networks, jnp.asarray(at, jnp.int32), Context(), jax.random.key(seed))


def norms_in_groups(state: State) -> np.ndarray:
    """The norms of all rows in each group, by the critic at the end."""
    units, loss = units_of(), unit_loss(row_loss(LOSSES["gan"], BLOCKS, None, paired=False))
    keys = jax.random.split(jax.random.key(0), len(units.rows))
    return np.asarray(public_norms(loss, state.critic, units, state.clip, fakes=None, keys=keys))


def total(clip: Clip) -> float:
    return float(np.sqrt(np.sum(np.asarray(clip.bounds, np.float64) ** 2)))


def new_clip(settings: Settings = GROUPED) -> Clip:
    critic = Critic(FEATURES, settings.critic_widths, key=jax.random.key(0))
    return init_clip(settings, critic, STILL.clip_norm, is_private=True)


# --------------------------------------------------------------------------------------------------------------- fixed


def test_fixed_groups_divide_one_clip_norm_however_often_they_are_made() -> None:
    """The sum of squared bounds is the squared clip norm, as for one group, and bounds differ as gradients do."""
    clip = new_clip()
    for seed in range(5):
        clip = renewed(GROUPED, clip, seed)
        assert total(clip) == pytest.approx(0.8, rel=1e-5)
        assert len({int(each) for group in clip.groups or () for each in group}) == 3
        assert np.max(clip.bounds) > 2 * np.min(clip.bounds)


def test_groups_that_stay_keep_their_bounds() -> None:
    once = renewed(GROUPED, new_clip(), 3)
    adapted = dataclasses.replace(once, bounds=once.bounds * jnp.asarray([0.1, 1.0, 5.0]))
    again = renewed(GROUPED, adapted, 3)
    for one, other in zip(once.groups or (), again.groups or (), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(again.bounds, adapted.bounds, rtol=1e-5)


def test_bounds_pass_to_new_groups_with_their_weights() -> None:
    """Written anew: a weight's part of its group's squared bound is its part of the group's mean squared gradient."""
    settings = dataclasses.replace(GROUPED, clip_rows=32)
    once = renewed(settings, new_clip(settings), 3)
    adapted = dataclasses.replace(once, bounds=jnp.asarray([0.3, 0.01, 2.0]))
    again = renewed(settings, adapted, 4)
    was, will = (np.concatenate([np.asarray(group) for group in clip.groups or ()]) for clip in (adapted, again))
    assert (was != will).any()
    # Every group by itself: its weights' squares, from norms in groups of one entry each.
    state = init_state(settings, STILL, jax.random.key(4))
    leaves = jax.tree_util.tree_leaves(trainable(state.critic))
    ends = np.cumsum([len(leaf) for leaf in leaves])
    entries = tuple(jnp.arange(end - len(leaf), end) for leaf, end in zip(leaves, ends, strict=True))
    alone = Clip(jnp.ones(ends[-1]), entries)
    row_key, _, clip_key = jax.random.split(jax.random.fold_in(jax.random.key(4), 7), 3)
    rows = generate(settings, state.generator, 32, row_key)[1]
    loss = unit_loss(row_loss(LOSSES["gan"], BLOCKS, None, paired=False))
    units = PublicUnits(rows[:, None], jnp.ones((32, 1), dtype=bool))
    norms = public_norms(loss, state.critic, units, alone, fakes=None, keys=jax.random.split(clip_key, 32))
    squares = np.mean(np.asarray(norms, np.float64) ** 2, axis=0)
    parts = np.asarray(adapted.bounds)[was] ** 2 * squares / np.bincount(was, squares)[was]
    np.testing.assert_allclose(again.bounds, np.sqrt(np.bincount(will, parts, 3)), rtol=1e-4)


def test_groups_are_made_again_on_the_public_schedule_alone() -> None:
    once = renewed(GROUPED, new_clip(), 3)
    for at, changes in ((1, False), (6, False), (7, True), (14, True)):
        again = renewed(GROUPED, once, 4, at=at)
        same = all(bool((a == b).all()) for a, b in zip(once.groups or (), again.groups or (), strict=True))
        assert same is not changes


def test_all_groups_begin_as_one() -> None:
    clip = new_clip()
    np.testing.assert_allclose(clip.bounds, [0.8, MIN_CLIP, MIN_CLIP])
    assert all(bool((group == 0).all()) for group in clip.groups or ())


# ------------------------------------------------------------------------------------------------------------ adaptive


def test_counts_lead_each_bound_to_the_quantile_of_its_own_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """From exact counts of norms that differ from group to group."""
    norms = np.random.default_rng(0).lognormal([0.0, -3.0, 1.0], 0.5, (2000, 3))
    for quantile in (0.3, 0.8):
        settings = dataclasses.replace(GROUPED, adaptive_clip="quantile", batch_size=2000)
        monkeypatch.setattr(gan, "CLIP_QUANTILE", quantile)
        clip = new_clip(settings)
        for _ in range(300):
            within = jnp.asarray((norms <= np.asarray(clip.bounds)).sum(axis=0) - 1000.0, jnp.float32)
            clip = adapt_clip(settings, clip, None, within, STILL.clip_norm, jnp.float32(1.0))
        np.testing.assert_allclose(clip.bounds, np.quantile(norms, quantile, axis=0), rtol=0.05)


def test_bounds_that_follow_counts_outlast_new_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole training with several regroupings. Few different rows have few different norms: the bound of a group is
    between two quantiles of them."""
    settings = dataclasses.replace(GROUPED, adaptive_clip="quantile", regroup_every=40)
    monkeypatch.setattr(gan, "CLIP_QUANTILE", 0.7)
    state = trained(settings, 160, count_stddev=1.0)
    low, high = np.quantile(norms_in_groups(state), [0.55, 0.85], axis=0)
    bounds = np.asarray(state.clip.bounds)
    assert ((bounds > 0.9 * low) & (bounds < 1.1 * high)).all(), (low, bounds, high)


@pytest.mark.parametrize("groups", [1, 3])
def test_noisy_sums_lead_each_bound_to_the_norm_of_its_own_group(groups: int) -> None:
    """Of a known sum plus noise of known size, whose expected square is subtracted; bounds move a hundredth a step."""
    settings = dataclasses.replace(GROUPED, adaptive_clip="noisy_norm", clip_groups=groups)
    clip = dataclasses.replace(renewed(settings, new_clip(settings), 3), allocation="equal")
    critic = Critic(FEATURES, settings.critic_widths, key=jax.random.key(0))
    leaves, structure = jax.tree_util.tree_flatten(trainable(critic))
    numbers = (
        [np.zeros(len(leaf), int) for leaf in leaves] if groups == 1 else [np.asarray(g) for g in clip.groups or ()]
    )
    stddev = 2.0 * float(np.sqrt(np.sum(np.asarray(clip.bounds) ** 2)))
    wanted = np.asarray([30.0, 5.0, 80.0])[:groups] * settings.batch_size * stddev / 10
    each = zip(numbers, leaves, strict=True)
    sizes = np.sum([np.bincount(n, np.full(len(n), leaf.size / len(n)), groups) for n, leaf in each], axis=0)
    draw = np.random.default_rng(0)
    means = []
    for _ in range(20):
        noisy = [
            jnp.asarray(
                (wanted / np.sqrt(sizes))[n].reshape(-1, *[1] * (leaf.ndim - 1))
                + stddev * draw.normal(size=leaf.shape),
                jnp.float32,
            )
            for n, leaf in zip(numbers, leaves, strict=True)
        ]
        tree = jax.tree_util.tree_unflatten(structure, noisy)
        after = adapt_clip(settings, clip, tree, None, jnp.float32(1e-3), jnp.float32(2.0))
        means.append((np.asarray(after.bounds) - 0.99 * np.asarray(clip.bounds)) / 0.01 * settings.batch_size)
    np.testing.assert_allclose(np.mean(means, axis=0), wanted, rtol=0.02)


def test_noise_alone_leads_to_a_tenth_of_the_clip_norm() -> None:
    """Divided among groups by their weights, so that all bounds together are that tenth."""
    settings = dataclasses.replace(GROUPED, adaptive_clip="noisy_norm")
    clip = renewed(settings, new_clip(settings), 3)
    critic = Critic(FEATURES, settings.critic_widths, key=jax.random.key(0))
    nothing: Any = jax.tree_util.tree_map(jnp.zeros_like, trainable(critic))
    after = adapt_clip(settings, clip, nothing, None, STILL.clip_norm, jnp.float32(1.0))
    towards = (np.asarray(after.bounds, np.float64) - 0.99 * np.asarray(clip.bounds, np.float64)) / 0.01
    assert np.sqrt(np.sum(towards**2)) == pytest.approx(0.08, rel=1e-3)


@pytest.mark.parametrize("adaptive", ["none", "public", "quantile", "noisy_norm"])
def test_without_privacy_bounds_are_left_alone(adaptive: str) -> None:
    settings = dataclasses.replace(GROUPED, adaptive_clip=adaptive)
    clip = dataclasses.replace(new_clip(settings), bounds=jnp.full(3, jnp.inf), is_private=False)
    assert renewed(settings, clip, 0) is clip
    assert adapt_clip(settings, clip, None, None, jnp.float32(jnp.inf), jnp.float32(0.0)) is clip
