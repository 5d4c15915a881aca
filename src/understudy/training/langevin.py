"""Bayesian adversarial training: chains of generators and of discriminators, each a sample of a posterior.

Saatchi and Wilson, "Bayesian GAN", 2017. With n real and n generated rows, in the words of the engine's losses,

    log p(generator | discriminators)   = -n mean_rows,k loss.generator + log prior,
    log p(discriminator | rows, generators) = -sum_rows loss.real - n mean_rows,j loss.fake + log prior,

each generator against all discriminators k, each discriminator against rows of all generators j. Discriminator chains
see private rows, each by batches of its own, through `noisy_langevin_step`; a real row's term stands in a step once,
however many generators there are. All of a state is covered by what those steps cost.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from understudy.models.neural import GeneratorNetwork
from understudy.privacy.gradients.clipping import Clip
from understudy.privacy.gradients.langevin import (
    Chain,
    ChargedUpdates,
    Dynamics,
    StepParameters,
    langevin_step,
    noisy_langevin_step,
    zero_momentum,
)
from understudy.privacy.gradients.poisson import Batches, num_slots
from understudy.training import gan
from understudy.training.calls import cached_jit
from understudy.training.critics import LOSSES, row_loss
from understudy.training.gan import Hyperparameters, batches_of
from understudy.training.generation import Context, generate, generator_gradient
from understudy.training.loop import RunOptions, TrainingCheckpoint, run_training
from understudy.training.neural import CriticNetwork
from understudy.training.settings import Settings

PRIORS = ("scaled", "unit")


@dataclasses.dataclass(frozen=True)
class Chains:
    """What is compiled into the program. All of it is public."""

    engine: Settings
    """Of one generator and one discriminator; its critic_steps are all private updates of an iteration."""
    generators: int
    discriminators: int
    updates: int
    """Of every chain, in an iteration."""
    num_rows: int
    power: float
    """The likelihood is taken to this power: 1, or the number of pairs where all are summed."""
    prior: str
    prior_stddev: float
    friction: float


class ChainState(eqx.Module):
    """Everything that training changes, a line for each chain."""

    average: GeneratorNetwork
    """The generators, under the name that `run_training` reads."""
    critic: CriticNetwork
    """The discriminators."""
    generator_momenta: PyTree
    critic_momenta: PyTree
    iteration: Array


def init_state(chains: Chains, key: PRNGKeyArray, context: Context) -> ChainState:
    """Networks of their own for every chain."""
    generator_key, critic_key = jax.random.split(key)
    unused = Hyperparameters.of(1.0, 1.0, 1.0)
    keys = jax.random.split(generator_key, chains.generators), jax.random.split(critic_key, chains.discriminators)
    generators = jax.vmap(lambda own: gan.init_state(chains.engine, unused, own, context).generator)(keys[0])
    critics = jax.vmap(lambda own: gan.init_state(chains.engine, unused, own).critic)(keys[1])
    return ChainState(generators, critics, zero_momentum(generators), zero_momentum(critics), jnp.asarray(0, jnp.int32))


def log_prior_gradient(chains: Chains, network: PyTree) -> PyTree:
    """Of independent normals around zero: one variance for all ("unit"), or by the inputs of a layer ("scaled")."""

    def of(leaf: Array) -> Array:
        inputs = leaf.shape[1] if leaf.ndim == 2 and chains.prior == "scaled" else 1
        return -leaf * inputs / chains.prior_stddev**2

    return jax.tree_util.tree_map(of, eqx.filter(network, eqx.is_inexact_array))


def _posterior(chains: Chains, network: PyTree, gradient: PyTree) -> PyTree:
    """The drift by the mean of a loss over generated rows, which stand for as many rows as the table has."""
    scale = chains.num_rows * chains.power
    return jax.tree_util.tree_map(
        lambda prior, part: prior - scale * part, log_prior_gradient(chains, network), gradient
    )


def generator_updates(
    chains: Chains, state: ChainState, now: StepParameters, key: PRNGKeyArray, context: Context
) -> ChainState:
    """One update of every generator chain. It reads no private row."""

    def scores_of(rows: Array) -> Array:
        return jax.vmap(lambda critic: jax.vmap(critic)(rows))(state.critic).reshape(-1)

    def one(generator: GeneratorNetwork, momentum: PyTree, own: PRNGKeyArray) -> Chain:
        row_key, noise_key = jax.random.split(own)
        gradient = generator_gradient(chains.engine, generator, scores_of, row_key, context)
        drift = _posterior(chains, generator, gradient)
        chain = Chain(generator, momentum)
        return langevin_step(chain, drift, eta=now.eta, stddev=now.extra, friction=chains.friction, key=noise_key)

    keys = jax.random.split(key, chains.generators)
    generators, momenta = jax.vmap(one)(state.average, state.generator_momenta, keys)
    return dataclasses.replace(state, average=generators, generator_momenta=momenta)


def critic_updates(
    chains: Chains, state: ChainState, charged: ChargedUpdates, clip: Clip, key: PRNGKeyArray, batches: Batches
) -> ChainState:
    """One update of every discriminator chain, each with its own batch of the private rows."""
    engine, loss = chains.engine, LOSSES[chains.engine.loss]
    each = -(-engine.batch_size // chains.generators)

    def one(critic: CriticNetwork, momentum: PyTree, own: PRNGKeyArray, batch: Batches) -> Chain:
        private_key, fake_key = jax.random.split(own)
        keys = jax.random.split(fake_key, chains.generators)
        fakes = jax.vmap(lambda generator, k: generate(engine, generator, each, k)[1])(state.average, keys)
        fakes = fakes.reshape(-1, fakes.shape[-1])
        gradient = eqx.filter_grad(lambda critic: loss.fake(jax.vmap(critic)(fakes)))(critic)
        scale = chains.power / charged.steps.sampling_rate
        return noisy_langevin_step(
            charged,
            row_loss(loss, engine.blocks, None, paired=False),
            Chain(critic, momentum),
            Dynamics(_posterior(chains, critic, gradient), scale, chains.friction),
            clip,
            batch=batch,
            iteration=state.iteration,
            key=private_key,
        )

    keys = jax.random.split(key, chains.discriminators)
    critics, momenta = jax.vmap(one)(state.critic, state.critic_momenta, keys, batches)
    return dataclasses.replace(state, critic=critics, critic_momenta=momenta)


def advance(
    chains: Chains,
    state: ChainState,
    charged: ChargedUpdates,
    clip: Clip,
    key: PRNGKeyArray,
    batches: Batches,
    schedule: StepParameters,
    context: Context,
) -> ChainState:
    """An iteration for each of the batches, which come from `batches_of`; `schedule` are those of the generators."""
    steps_key, _ = jax.random.split(key)

    def iteration(state: ChainState, inputs: tuple[Batches, StepParameters]) -> tuple[ChainState, None]:
        batches, now = inputs
        keys = jax.random.split(jax.random.fold_in(steps_key, state.iteration), 2 * chains.updates)
        for number in range(chains.updates):
            state = generator_updates(chains, state, now, keys[number], context)
        for number in range(chains.updates):
            here = slice(number * chains.discriminators, (number + 1) * chains.discriminators)
            state = critic_updates(chains, state, charged, clip, keys[chains.updates + number], batches[here])
        return dataclasses.replace(state, iteration=state.iteration + 1), None

    return jax.lax.scan(iteration, state, (batches, schedule))[0]


def train_chains(
    chains: Chains,
    charged: ChargedUpdates,
    clip: Clip,
    schedule: StepParameters,
    key: PRNGKeyArray,
    *,
    network_key: PRNGKeyArray,
    context: Context,
    options: RunOptions,
) -> list[TrainingCheckpoint]:
    """The trajectory of all charged updates: `key` makes batches and noise, networks come from another one."""
    run = cached_jit(advance, chains)

    def advance_from(state: ChainState, first: int, count: int) -> ChainState:
        batches = batches_of(chains.engine, key, charged.steps, first, count)
        now = jax.tree_util.tree_map(lambda column: column[first : first + count], schedule)
        return run(state, charged, clip, key, batches, now, context)

    _, trajectory = run_training(
        advance_from,
        cached_jit(init_state, chains)(network_key, context),
        charged.num_iterations,
        options,
        steps_each=chains.engine.critic_steps,
        slots_each=chains.engine.critic_steps * num_slots(chains.engine.batch_size),
        advice="Lower step_size.",
    )
    return trajectory
