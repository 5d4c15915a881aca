"""Adversarial training: critic steps, a generator step, and the generator's running average.

`init_state` makes a state, `advance` runs it for some iterations as one compiled scan. Both are pure in their key,
their `Hyperparameters` and the rows, so `jax.vmap` trains a population: seeds, budgets, settings. The critic step hands
a loss of one row to `noisy_gradient` and gets a noisy sum back; the generator learns from the critic and from fresh
randomness, so every state is covered by what the critic steps cost.
"""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from understudy.encoding.features import is_one_hot, num_features
from understudy.models.networks import GENERATORS, Generator
from understudy.privacy.clipping import Clip
from understudy.privacy.dpsgd import ChargedSteps, PublicSteps, noisy_gradient, public_gradient, sample_batches
from understudy.privacy.sampling import Batches
from understudy.training.clip_schedule import adapt_clip, init_clip, renew_clip
from understudy.training.critics import Conditions, row_loss
from understudy.training.generation import Context, critic_input, generate, generator_gradient, one_way
from understudy.training.loop import RunOptions, TrainingCheckpoint, cached_jit, run_training
from understudy.training.losses import LOSSES
from understudy.training.networks import Critic, spectral_scaled
from understudy.training.optimizer import optimizer_step, trainable, update_average
from understudy.training.settings import Settings

ADVICE = "Lower critic_learning_rate or generator_learning_rate, or use fewer critic_steps."


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

    generator: Any
    critic: Any
    average: Any
    generator_moments: PyTree
    critic_moments: PyTree
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
        level = is_one_hot(settings.blocks)  # of other features the marginals say nothing
        assert generator.exit.bias is not None
        bias = jnp.where(level, jnp.log(jnp.where(level, one_way(context.marginal), 1.0)), generator.exit.bias)
        weight = generator.exit.weight * jnp.where(level, 0.1, 1.0)[:, None]
        generator = eqx.tree_at(lambda net: (net.exit.bias, net.exit.weight), generator, (bias, weight))
    critic = Critic(features + condition, settings.critic_widths, dropout=settings.dropout, key=critic_key)
    return init_from_networks(settings, hyperparameters, generator, critic)


def init_from_networks(settings: Settings, hyperparameters: Hyperparameters, generator: Any, critic: Any) -> State:
    """The start of a training of these networks, whatever their architecture; all else is fresh.

    The generator takes one row's latent numbers (and condition) to its logits; the critic takes one row's features, and
    `key=` for dropout, to a score. Settings of widths are ignored.
    """
    optimizer = optimizer_of(settings)
    clip = init_clip(settings, critic, hyperparameters.clip_norm, is_private=hyperparameters.is_private)
    moments = optimizer.init(trainable(generator)), optimizer.init(trainable(critic))
    return State(generator, critic, generator, *moments, clip, jnp.asarray(0, jnp.int32))


def restart_from(settings: Settings, hyperparameters: Hyperparameters, state: State) -> State:
    """The networks of a training on public rows as the start of one on private rows."""
    return init_from_networks(settings, hyperparameters, state.average, state.critic)


def optimizer_of(settings: Settings) -> optax.GradientTransformation:
    """Without a learning rate, which is a hyperparameter."""
    known = {"sgd": optax.identity, "rmsprop": optax.scale_by_rms, "momentum": lambda: optax.trace(decay=0.9)}
    if settings.optimizer == "adam":
        return optax.scale_by_adam(b1=settings.betas[0], b2=settings.betas[1])
    return known[settings.optimizer]()


def advance(
    settings: Settings,
    state: State,
    steps: ChargedSteps | PublicSteps,
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
            state = _critic_step(
                settings, state, steps, hyperparameters, keys[number], batches[number], context.conditions
            )
        return generator_step(settings, state, hyperparameters, keys[-1], context), None

    return jax.lax.scan(iteration, state, batches)[0]


def batches_of(
    settings: Settings, key: PRNGKeyArray, steps: ChargedSteps | PublicSteps, first: int, count: int
) -> Batches:
    """Which units enter iterations `first` to `first + count` of the run with this key, or of each run of many keys."""

    def keys_of(run: PRNGKeyArray) -> PRNGKeyArray:
        numbers = first * settings.critic_steps + jnp.arange(count * settings.critic_steps)
        return jax.vmap(functools.partial(jax.random.fold_in, jax.random.split(run)[1]))(numbers)

    keys = jax.vmap(keys_of)(key.reshape(-1)).reshape(*key.shape, count, settings.critic_steps)
    end = (first + count) * settings.critic_steps
    return sample_batches(steps, keys, end=end, batch_size=settings.batch_size, chunk=settings.chunk_size)


def _critic_step(
    settings: Settings,
    state: State,
    steps: ChargedSteps | PublicSteps,
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
    fakes_fn, within = fakes_for if settings.needs_fakes else None, None
    if isinstance(steps, ChargedSteps):
        noisy, within = noisy_gradient(
            steps, of_row, state.critic, state.clip, batch=batch, fakes_fn=fakes_fn, key=private_key
        )
    else:
        noisy = public_gradient(steps, of_row, state.critic, batch=batch, fakes_fn=fakes_fn, key=private_key)
    direction = jax.tree_util.tree_map(lambda leaf: leaf / settings.batch_size, noisy)
    if settings.fake_term == "separate":
        fakes = fakes_for(fake_key, settings.batch_size)
        trained, rest = eqx.partition(state.critic, eqx.is_inexact_array)

        def fake_loss(inside: PyTree) -> Array:
            critic, drops = eqx.combine(inside, rest), jax.random.split(drop_key, settings.batch_size)
            return loss.fake(jax.vmap(lambda row, drop: critic(row, key=drop))(fakes, drops))

        direction = jax.tree_util.tree_map(jnp.add, direction, jax.grad(fake_loss)(trained))
    critic, moments = optimizer_step(
        optimizer_of(settings), state.critic, direction, state.critic_moments, hyperparameters.critic_learning_rate
    )
    if settings.weight_clip:
        bound = settings.weight_clip
        critic = jax.tree_util.tree_map(
            lambda leaf: jnp.clip(leaf, -bound, bound) if eqx.is_inexact_array(leaf) else leaf, critic
        )
    critic = spectral_scaled(critic) if settings.spectral else critic
    clip = adapt_clip(settings, state.clip, noisy, within, hyperparameters.clip_norm, steps.noise_multiplier)
    return dataclasses.replace(state, critic=critic, critic_moments=moments, clip=clip)


def generator_step(
    settings: Settings,
    state: State,
    hyperparameters: Hyperparameters,
    key: PRNGKeyArray,
    context: Context,
) -> State:
    """One step of the generator against the critic. It reads no private row."""

    def scores_of(rows: Array) -> Array:
        return jax.vmap(state.critic)(rows)

    gradient = generator_gradient(settings, state.generator, scores_of, key, context)
    generator, moments = optimizer_step(
        optimizer_of(settings),
        state.generator,
        gradient,
        state.generator_moments,
        hyperparameters.generator_learning_rate,
    )
    average = update_average(state.average, generator, state.iteration, settings.ema_decay)
    return dataclasses.replace(
        state, generator=generator, generator_moments=moments, average=average, iteration=state.iteration + 1
    )


def train(
    settings: Settings,
    steps: ChargedSteps | PublicSteps,
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
        state = init_state(settings, hyperparameters, network_key, context)
    run = cached_jit(advance, settings)

    def advance_from(state: State, first: int, count: int) -> State:
        batches = batches_of(settings, key, steps, first, count)
        return run(state, steps, hyperparameters, key, batches, context)

    iterations, each = steps.num_steps // settings.critic_steps, settings.critic_steps
    return run_training(advance_from, state, iterations, options, steps_each=each, advice=ADVICE)
