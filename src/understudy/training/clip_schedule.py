"""Clip bounds of the critic over a training: where they begin, and where they follow from public or noisy values."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from understudy.models.networks import GeneratorNetwork
from understudy.privacy.clipping import LEAST_CLIP, MOST_CLIP, Clip, clip_from_public
from understudy.privacy.rows import PublicUnits
from understudy.training.critics import row_loss
from understudy.training.generation import Context, critic_input, generate
from understudy.training.losses import LOSSES
from understudy.training.networks import CriticNetwork
from understudy.training.optimizer import trainable
from understudy.training.settings import Settings

NUM_ROWS = 256
"""Public or generated rows that bounds are taken from."""


def init_clip(settings: Settings, critic: CriticNetwork, clip_norm: Float[Array, ""], *, is_private: bool) -> Clip:
    """One bound for all groups. The groups are arrays of the critic in turn, until they are first renewed."""
    leaves = jax.tree_util.tree_leaves(trainable(critic))
    groups = None
    if settings.clip_groups > 1:
        groups = tuple(jnp.full(leaf.shape[0], number % settings.clip_groups) for number, leaf in enumerate(leaves))
    bounds = jnp.broadcast_to(clip_norm, (settings.clip_groups,))
    return Clip(bounds, groups, settings.clip_allocation, is_private)


def renew_clip(
    settings: Settings,
    clip: Clip,
    networks: tuple[GeneratorNetwork, CriticNetwork],
    iteration: Int[Array, ""],
    context: Context,
    key: PRNGKeyArray,
) -> Clip:
    """Bounds and groups from public or generated rows, on a public schedule; `networks` are generator and critic."""
    if settings.adaptive_clip != "public" and settings.clip_groups == 1:
        return clip
    generator, critic = networks
    conditions, public = context.conditions, context.public

    def renew(clip: Clip) -> Clip:
        row_key, fake_key, clip_key = jax.random.split(jax.random.fold_in(key, 7), 3)
        if public is not None:
            at = jax.random.randint(row_key, (NUM_ROWS,), 0, len(public.rows))
            rows = public.rows[at, 0]
        else:
            rows = generate(settings, generator, NUM_ROWS, row_key, conditions)[1]
        units = PublicUnits(rows[:, None], jnp.ones((NUM_ROWS, 1), dtype=bool))
        fakes = None
        if settings.needs_fakes:
            _, features, condition = generate(settings, generator, NUM_ROWS, fake_key, conditions)
            fakes = critic_input(features, condition)
        of_row = row_loss(LOSSES[settings.loss], settings.blocks, conditions, paired=settings.fake_term == "paired")
        regroup = settings.clip_groups > 1
        return clip_from_public(of_row, critic, units, fakes, clip, regroup=regroup, key=clip_key)

    is_due = iteration % max(1, settings.regroup_every // settings.critic_steps) == 0
    return jax.lax.cond(is_due, renew, lambda clip: clip, clip)


def adapt_clip(
    settings: Settings,
    clip: Clip,
    noisy: PyTree,
    within: Array | None,
    clip_norm: Float[Array, ""],
    noise_multiplier: Float[Array, ""],
) -> Clip:
    """Bounds from values that are already noisy. Post-processing: the noise multiplier, and so the cost, stays."""
    if settings.adaptive_clip == "quantile":
        assert within is not None
        share = within / settings.batch_size + 0.5
        bounds = clip.bounds * jnp.exp(-settings.quantile_rate * (jnp.clip(share, 0.0, 1.0) - settings.quantile))
    elif settings.adaptive_clip == "noisy_norm" and settings.clip_groups == 1:
        leaves = jax.tree_util.tree_leaves(noisy)
        squared = sum(jnp.sum(leaf**2) for leaf in leaves)
        expected = sum(leaf.size for leaf in leaves) * (noise_multiplier * clip.bounds[0]) ** 2
        norm = jnp.sqrt(jnp.maximum(squared - expected, 0.0)) / settings.batch_size
        bounds = 0.99 * clip.bounds + 0.01 * jnp.maximum(norm, 0.1 * clip_norm)
    else:
        return clip
    return dataclasses.replace(clip, bounds=jnp.clip(bounds, LEAST_CLIP, MOST_CLIP))
