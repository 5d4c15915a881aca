"""Adversarial training: critic steps, a generator step, and the generator's running average.

`init_state` makes a state, `advance` runs it for some iterations as one compiled scan. Both are pure in their key,
their `Hyperparameters` and the rows, so `jax.vmap` trains a population: seeds, budgets, settings. The critic step hands
a loss of one row to `noisy_gradient` and gets a noisy sum back; the generator learns from the critic and from fresh
randomness, so every state is covered by what the critic steps cost.
"""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from understudy.encoding.features import num_features
from understudy.models.neural import GENERATORS, Generator, GeneratorNetwork
from understudy.privacy.gradients.clipping import MAX_CLIP, MIN_CLIP, Clip, clip_from_public, noisy_group_norms
from understudy.privacy.gradients.dpsgd import public_clipped_gradient, sample_batches
from understudy.privacy.gradients.poisson import Batches, num_slots
from understudy.privacy.rows.rows import PublicUnits
from understudy.training.calls import cached_jit, eager
from understudy.training.critics import LOSSES, Conditions, fake_row_loss, row_loss
from understudy.training.dpsgd import Steps, row_gradient
from understudy.training.generation import Context, critic_input, generate, generator_gradient, one_way
from understudy.training.loop import RunOptions, TrainingCheckpoint, run_training
from understudy.training.neural import Critic, CriticNetwork, init_at_shares, optimizer_step, trainable, update_average
from understudy.training.settings import Settings

ADVICE = "Lower critic_learning_rate or generator_learning_rate, or use fewer critic_steps."

CLIP_QUANTILE, CLIP_LEARNING_RATE = 0.5, 0.2
"""With adaptive_clip="quantile": the proportion of units whose gradient should be within the clip norm, and how fast
the norm follows the noisy counts (Andrew et al. 2021: gamma and eta)."""


class Hyperparameters(eqx.Module):
    """What may differ from member to member of a population."""

    critic_learning_rate: Float[Array, ""]
    generator_learning_rate: Float[Array, ""]
    clip_norm: Float[Array, ""]
    """The clip bound; infinite without privacy."""
    is_private: bool = eqx.field(static=True, default=True)
    """False: critic steps neither clip nor add noise. The same for the whole population, since it is compiled in."""

    @classmethod
    def of(cls, critic_learning_rate: float, generator_learning_rate: float, clip_norm: float) -> "Hyperparameters":
        critic, generator, bound = (
            jnp.asarray(value, jnp.float32) for value in (critic_learning_rate, generator_learning_rate, clip_norm)
        )
        return cls(critic, generator, bound, is_private=bool(np.isfinite(clip_norm)))


class State(eqx.Module):
    """Everything that training changes. Covered by the guarantee, all of it."""

    generator: GeneratorNetwork
    critic: CriticNetwork
    average: GeneratorNetwork
    generator_moments: optax.OptState
    critic_moments: optax.OptState
    clip: Clip
    iteration: Array


def init_state(
    settings: Settings, hyperparameters: Hyperparameters, key: PRNGKeyArray, context: Context | None = None
) -> State:
    """Fresh networks. Where there are noisy marginals, the generator begins at independent columns."""
    context = context or Context()
    features = num_features(settings.blocks)
    generator_key, critic_key = jax.random.split(key)
    condition = features if context.conditions is not None else 0
    make = GENERATORS[settings.arch]
    generator = make(settings.latent, condition, settings.generator_widths, features, key=generator_key)
    if context.marginal is not None and isinstance(generator, Generator):
        last = init_at_shares(generator.exit, settings.blocks, one_way(context.marginal))
        generator = eqx.tree_at(lambda net: net.exit, generator, last)
    critic = Critic(features + condition, settings.critic_widths, dropout=settings.critic_dropout, key=critic_key)
    return init_from_networks(settings, hyperparameters, generator, critic)


def init_from_networks(
    settings: Settings, hyperparameters: Hyperparameters, generator: GeneratorNetwork, critic: CriticNetwork
) -> State:
    """The start of a training of these networks, whatever their architecture; all else is fresh.

    Settings of widths are ignored.
    """
    optimizer = optimizer_of(settings)
    clip = init_clip(settings, critic, hyperparameters.clip_norm, is_private=hyperparameters.is_private)
    moments = optimizer.init(trainable(generator)), optimizer.init(trainable(critic))
    return State(generator, critic, generator, *moments, clip, jnp.asarray(0, jnp.int32))


def optimizer_of(settings: Settings) -> optax.GradientTransformation:
    """Without a learning rate, which is a hyperparameter."""
    known = {
        "adam": optax.scale_by_adam(*settings.betas),
        "sgd": optax.identity(),
        "rmsprop": optax.scale_by_rms(),
        "momentum": optax.trace(decay=0.9),
    }
    return known[settings.optimizer]


def advance(
    settings: Settings,
    state: State,
    steps: Steps,
    hyperparameters: Hyperparameters,
    key: PRNGKeyArray,
    batches: Batches,
    context: Context,
) -> State:
    """`critic_steps` critic steps and one generator step for each of the batches, which come from `batches_of`.

    The key belongs to the whole run. Iteration t always uses the t-th key, so a run that is cut anywhere goes on to
    the same result.
    """
    steps_key, _ = jax.random.split(key)

    def iteration(state: State, batches: Batches) -> tuple[State, None]:
        step_key = jax.random.fold_in(steps_key, state.iteration)
        keys = jax.random.split(step_key, settings.critic_steps + 1)
        networks = (state.generator, state.critic)
        clip = renew_clip(settings, state.clip, networks, state.iteration, context, keys[-1])
        state = dataclasses.replace(state, clip=clip)
        for number in range(settings.critic_steps):
            batch = batches[number]
            state = _critic_step(settings, state, steps, hyperparameters, keys[number], batch, context.conditions)
        return generator_step(settings, state, hyperparameters, keys[-1], context), None

    return jax.lax.scan(iteration, state, batches)[0]


def batches_of(settings: Settings, key: PRNGKeyArray, steps: Steps, first: int, count: int) -> Batches:
    """Which units enter iterations `first` to `first + count` of the run with this key, or of each run of many keys."""

    keys = cached_jit(_keys_of_batches, settings.critic_steps, count)(key, np.int32(first))
    end = (first + count) * settings.critic_steps
    return sample_batches(steps, keys, end=end, batch_size=settings.batch_size, chunk=settings.chunk_size)


def _keys_of_batches(critic_steps: int, count: int, key: PRNGKeyArray, first: Array) -> Key[Array, "..."]:
    def keys_of(run: PRNGKeyArray) -> Key[Array, "..."]:
        numbers = first * critic_steps + jnp.arange(count * critic_steps)
        return jax.vmap(functools.partial(jax.random.fold_in, jax.random.split(run)[1]))(numbers)

    return jax.vmap(keys_of)(key.reshape(-1)).reshape(*key.shape, count, critic_steps)


def _critic_step(
    settings: Settings,
    state: State,
    steps: Steps,
    hyperparameters: Hyperparameters,
    key: PRNGKeyArray,
    batch: Batches,
    conditions: Conditions | None,
) -> State:
    loss = LOSSES[settings.loss]
    private_key, fake_key, drop_key = jax.random.split(key, 3)

    def fakes_for(pair_key: PRNGKeyArray, num_rows: int) -> Array:
        _, features, condition = generate(settings, state.generator, num_rows, pair_key, conditions)
        return critic_input(features, condition)

    of_row = row_loss(loss, settings.blocks, conditions, paired=settings.fake_term == "paired")
    fakes_fn = fakes_for if settings.needs_fakes else None
    noisy, within = row_gradient(of_row, state.critic, steps, batch, state.clip, private_key, fakes_fn)
    direction = jax.tree_util.tree_map(lambda leaf: leaf / settings.batch_size, noisy)
    if settings.fake_term == "separate":
        fakes = fakes_for(fake_key, settings.batch_size)

        @eqx.filter_grad
        def fake_gradient(critic: CriticNetwork) -> Array:
            drops = jax.random.split(drop_key, settings.batch_size)
            return loss.fake(jax.vmap(lambda row, drop: critic(row, key=drop))(fakes, drops))

        direction = jax.tree_util.tree_map(jnp.add, direction, fake_gradient(state.critic))
    if settings.fake_term == "clipped":
        # Generated rows carry no privacy cost: clipped like real ones, as published, their sum needs no noise.
        fakes = fakes_for(fake_key, settings.batch_size)
        units = PublicUnits(fakes[:, None], jnp.ones((settings.batch_size, 1), dtype=bool))
        clipped = public_clipped_gradient(fake_row_loss(loss), state.critic, units, state.clip, key=drop_key)
        direction = jax.tree_util.tree_map(lambda part, leaf: part + leaf / settings.batch_size, direction, clipped)
    critic, moments = optimizer_step(
        optimizer_of(settings), state.critic, direction, state.critic_moments, hyperparameters.critic_learning_rate
    )
    if settings.weight_clip:
        bound = settings.weight_clip
        critic = jax.tree_util.tree_map(
            lambda leaf: jnp.clip(leaf, -bound, bound) if eqx.is_inexact_array(leaf) else leaf, critic
        )
    clip = adapt_clip(settings, state.clip, noisy, within, hyperparameters.clip_norm, steps.noise_multiplier)
    return dataclasses.replace(state, critic=critic, critic_moments=moments, clip=clip)


def generator_step(
    settings: Settings, state: State, hyperparameters: Hyperparameters, key: PRNGKeyArray, context: Context
) -> State:
    """One step of the generator against the critic. It reads no private row."""
    gradient = generator_gradient(settings, state.generator, jax.vmap(state.critic), key, context)
    optimizer, rate = optimizer_of(settings), hyperparameters.generator_learning_rate
    generator, moments = optimizer_step(optimizer, state.generator, gradient, state.generator_moments, rate)
    average = update_average(state.average, generator, state.iteration, settings.ema_decay)
    return dataclasses.replace(
        state, generator=generator, generator_moments=moments, average=average, iteration=state.iteration + 1
    )


def train(
    settings: Settings,
    steps: Steps,
    hyperparameters: Hyperparameters,
    key: PRNGKeyArray,
    *,
    network_key: PRNGKeyArray,
    context: Context | None = None,
    state: State | None = None,
    options: RunOptions | None = None,
) -> tuple[State, list[TrainingCheckpoint]]:
    """All steps that were charged: the final state and the trajectory, as `run_training` has them.

    `key` makes batches and noise; fresh networks, where no state is given, come from another one, of which `key` must
    not be a function or a part: a released generator depends on its first weights, and a guessed key could be checked
    by them.
    """
    context = context or Context()
    if state is None:
        state = eager(init_state, settings)(hyperparameters, network_key, context)
    run = cached_jit(advance, settings)

    def advance_from(state: State, first: int, count: int) -> State:
        batches = batches_of(settings, key, steps, first, count)
        return run(state, steps, hyperparameters, key, batches, context)

    iterations, each = steps.num_steps // settings.critic_steps, settings.critic_steps
    slots = each * num_slots(settings.batch_size)
    return run_training(advance_from, state, iterations, options, steps_each=each, slots_each=slots, advice=ADVICE)


# ---------------------------------------------------------------------------------------------------------- clip bounds


def init_clip(settings: Settings, critic: CriticNetwork, clip_norm: Float[Array, ""], *, is_private: bool) -> Clip:
    """All weights in the first group, with all of the clip norm. Groups are made before the first step."""
    if settings.clip_groups == 1:
        return Clip(jnp.broadcast_to(clip_norm, (1,)), None, settings.clip_allocation, is_private)
    groups = tuple(jnp.zeros(leaf.shape[0], jnp.int32) for leaf in jax.tree_util.tree_leaves(trainable(critic)))
    bounds = jnp.full(settings.clip_groups, MIN_CLIP, jnp.float32).at[0].set(clip_norm)
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
        bounds = clip.bounds * jnp.exp(-CLIP_LEARNING_RATE * (share - CLIP_QUANTILE))
    elif settings.adaptive_clip == "noisy_norm":
        norms, fractions = noisy_group_norms(noisy, clip, noise_multiplier)
        least = 0.1 * clip_norm * jnp.sqrt(fractions)
        bounds = 0.99 * clip.bounds + 0.01 * jnp.maximum(norms / settings.batch_size, least)
    else:
        return clip
    return dataclasses.replace(clip, bounds=jnp.clip(bounds, MIN_CLIP, MAX_CLIP))
