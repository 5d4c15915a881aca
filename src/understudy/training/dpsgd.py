"""DP-SGD training of one network on the loss of a row: autoencoders and learners.

A step divides the noisy sum of clipped gradients by the public batch size, adds the gradient of the penalty and hands
it to the optimiser. The network, its moments and its average see noisy sums alone, so every state is covered by what
the steps cost.
"""

import dataclasses
import math
from typing import Generic

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from understudy.privacy.gradients.clipping import Clip, RowLoss
from understudy.privacy.gradients.dpsgd import (
    ChargedSteps,
    FakesFn,
    PublicSteps,
    noisy_gradient,
    public_gradient,
    sample_batches,
)
from understudy.privacy.gradients.poisson import Batches, num_slots
from understudy.training.calls import cached_jit
from understudy.training.loop import RunOptions, run_training
from understudy.training.neural import Network, optimizer_step, trainable, update_average

Steps = ChargedSteps | PublicSteps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Descent:
    """How to step. Compiled into the program, and public."""

    batch_size: int
    """The public batch size: what a sum is divided by."""
    learning_rate: float
    clip_norm: float
    """How much one unit may add to a step; steps that are not private are not clipped."""
    cosine: bool = False
    """Whether the learning rate falls to zero along half a cosine."""
    penalty: float = 0.0
    """Times half the squared weights, added to the mean loss."""
    ema_decay: float | None = None
    """Of the running average; None: the mean of the second half of the steps."""
    optimizer: str = "adam"
    """adam or sgd."""


class DescentState(eqx.Module, Generic[Network]):
    """Everything that training changes."""

    network: Network
    moments: optax.OptState
    average: Network
    iteration: Int[Array, ""]
    critic: None = None


def train_network(
    network: Network,
    loss: RowLoss,
    steps: Steps,
    descent: Descent,
    *,
    batch_key: PRNGKeyArray,
    noise_key: PRNGKeyArray,
    options: RunOptions | None = None,
    advice: str,
) -> Network:
    """The average of the network over all steps, covered by what was charged for them.

    Step t uses the t-th key of each of the two keys, from which nothing else may follow. Arrays of `loss`, where it is
    a module, are arguments of the program.
    """
    run = cached_jit(advance, descent)
    is_private = isinstance(steps, ChargedSteps) and steps.is_private
    clip = Clip.flat(descent.clip_norm if is_private else math.inf)

    def advance_from(state: DescentState[Network], first: int, count: int) -> DescentState[Network]:
        batches = sample_step_batches(descent, batch_key, steps, first, count)
        return run(state, loss, steps, clip, noise_key, batches)

    moments = _optimizer(descent).init(trainable(network))
    start = DescentState(network, moments, network, jnp.asarray(0, jnp.int32))
    slots = num_slots(descent.batch_size)
    return run_training(advance_from, start, steps.num_steps, options, slots_each=slots, advice=advice)[0].average


def sample_step_batches(descent: Descent, key: PRNGKeyArray, steps: Steps, first: int, count: int) -> Batches:
    """The Poisson batches of steps `first` to `first + count`."""
    keys = cached_jit(_keys_of_steps, count)(key, np.int32(first))
    return sample_batches(steps, keys, end=first + count, batch_size=descent.batch_size)


def _keys_of_steps(count: int, key: PRNGKeyArray, first: Array) -> Key[Array, "..."]:
    return jax.vmap(lambda number: jax.random.fold_in(key, number))(first + jnp.arange(count))


def advance(
    descent: Descent,
    state: DescentState[Network],
    loss: RowLoss,
    steps: Steps,
    clip: Clip,
    key: PRNGKeyArray,
    batches: Batches,
) -> DescentState[Network]:
    """One step for each of the batches."""

    def step(state: DescentState[Network], batch: Batches) -> tuple[DescentState[Network], None]:
        number = state.iteration
        gradient, _ = row_gradient(loss, state.network, steps, batch, clip, jax.random.fold_in(key, number))
        slope = jax.tree_util.tree_map(
            lambda part, value: part / descent.batch_size + descent.penalty * value, gradient, trainable(state.network)
        )
        rate = jnp.asarray(descent.learning_rate, jnp.float32)
        if descent.cosine:
            rate = descent.learning_rate * 0.5 * (1 + jnp.cos(jnp.pi * number / steps.num_steps))
        network, moments = optimizer_step(_optimizer(descent), state.network, slope, state.moments, rate)
        return DescentState(network, moments, _average(descent, steps.num_steps, state, network), number + 1), None

    return jax.lax.scan(step, state, batches)[0]


def row_gradient(
    loss: RowLoss,
    network: PyTree,
    steps: Steps,
    batch: Batches,
    clip: Clip,
    key: PRNGKeyArray,
    fakes_fn: FakesFn | None = None,
) -> tuple[PyTree, Float[Array, " groups"] | None]:
    """The noisy sum of clipped gradients over one batch, and noisy counts if charged; the exact sum for public rows.

    Formal guarantee: that of `noisy_gradient`. All trainable arrays of the network are one vector, clipped as `clip`
    says: as a whole, or by groups.
    """
    if isinstance(steps, ChargedSteps):
        return noisy_gradient(steps, loss, network, clip, batch=batch, fakes_fn=fakes_fn, key=key)
    return public_gradient(steps, loss, network, batch=batch, fakes_fn=fakes_fn, key=key), None


def _average(descent: Descent, num_steps: int, state: DescentState[Network], network: Network) -> Network:
    if descent.ema_decay is not None:
        return update_average(state.average, network, state.iteration, descent.ema_decay)
    counted: Float[Array, ""] = jnp.maximum(state.iteration - num_steps // 2, 0)
    return jax.tree_util.tree_map(
        lambda old, new: old + (new - old) / (counted + 1) if eqx.is_inexact_array(old) else old, state.average, network
    )


def _optimizer(descent: Descent) -> optax.GradientTransformation:
    return optax.scale_by_adam() if descent.optimizer == "adam" else optax.identity()
