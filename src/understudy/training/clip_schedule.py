"""Clip bounds of the critic over a training: where they begin, and where they follow from public or noisy values."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from understudy.models.networks import GeneratorNetwork
from understudy.privacy.clipping import LEAST_CLIP, MOST_CLIP, Clip, clip_from_public, noisy_group_norms
from understudy.privacy.rows import PublicUnits
from understudy.training.critics import row_loss
from understudy.training.generation import Context, critic_input, generate
from understudy.training.losses import LOSSES
from understudy.training.networks import CriticNetwork
from understudy.training.optimizer import trainable
from understudy.training.settings import Settings


def init_clip(settings: Settings, critic: CriticNetwork, clip_norm: Float[Array, ""], *, is_private: bool) -> Clip:
    """All weights in the first group, with all of the clip norm. Groups are made before the first step."""
    if settings.clip_groups == 1:
        return Clip(jnp.broadcast_to(clip_norm, (1,)), None, settings.clip_allocation, is_private)
    groups = tuple(jnp.zeros(leaf.shape[0], jnp.int32) for leaf in jax.tree_util.tree_leaves(trainable(critic)))
    bounds = jnp.full(settings.clip_groups, LEAST_CLIP, jnp.float32).at[0].set(clip_norm)
    return Clip(bounds, groups, settings.clip_allocation, is_private)


def renew_clip(
    settings: Settings,
    clip: Clip,
    networks: tuple[GeneratorNetwork, CriticNetwork],
    iteration: Int[Array, ""],
    context: Context,
    key: PRNGKeyArray,
) -> Clip:
    """Groups, and with adaptive_clip="public" bounds, from public or generated rows, on a public schedule.

    `networks` are generator and critic. Bounds that are fixed, or follow noisy values, pass to the new groups.
    """
    regroup, rebound = settings.clip_groups > 1, settings.adaptive_clip == "public"
    if not clip.is_private or not (regroup or rebound):
        return clip
    num_rows = settings.clip_rows
    generator, critic = networks
    conditions, public = context.conditions, context.public

    def renew(clip: Clip) -> Clip:
        row_key, fake_key, clip_key = jax.random.split(jax.random.fold_in(key, 7), 3)
        if public is not None:
            at = jax.random.randint(row_key, (num_rows,), 0, len(public.rows))
            rows = public.rows[at, 0]
        else:
            rows = generate(settings, generator, num_rows, row_key, conditions)[1]
        units = PublicUnits(rows[:, None], jnp.ones((num_rows, 1), dtype=bool))
        fakes = None
        if settings.needs_fakes:
            _, features, condition = generate(settings, generator, num_rows, fake_key, conditions)
            fakes = critic_input(features, condition)
        of_row = row_loss(LOSSES[settings.loss], settings.blocks, conditions, paired=settings.fake_term == "paired")
        return clip_from_public(of_row, critic, units, fakes, clip, regroup=regroup, rebound=rebound, key=clip_key)

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
    if not clip.is_private:
        return clip
    if settings.adaptive_clip == "quantile":
        assert within is not None
        share = jnp.clip(within / settings.batch_size + 0.5, 0.0, 1.0)
        bounds = clip.bounds * jnp.exp(-settings.clip_learning_rate * (share - settings.clip_quantile))
    elif settings.adaptive_clip == "noisy_norm":
        norms, fractions = noisy_group_norms(noisy, clip, noise_multiplier)
        least = 0.1 * clip_norm * jnp.sqrt(fractions)
        bounds = 0.99 * clip.bounds + 0.01 * jnp.maximum(norms / settings.batch_size, least)
    else:
        return clip
    return dataclasses.replace(clip, bounds=jnp.clip(bounds, LEAST_CLIP, MOST_CLIP))
