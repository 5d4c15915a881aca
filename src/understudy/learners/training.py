"""Training by DP-SGD: small networks that learn from clipped and noisy sums over Poisson batches alone."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from understudy.models.predictors import Layers
from understudy.privacy.clipping import Clip, RowLoss
from understudy.privacy.dpsgd import ChargedSteps, noisy_gradient, sample_batches
from understudy.privacy.sampling import Batches, num_slots
from understudy.progress import Progress

STEPS_AT_ONCE = 1 << 22
"""Slots of the batches that are sampled at once: as many steps as fit are one program."""


class Network(eqx.Module):
    """Linear layers with ReLU between them."""

    layers: list[eqx.nn.Linear]

    def __init__(self, sizes: tuple[int, ...], *, key: PRNGKeyArray):
        """He's weights, and zeros in the last layer: at first nothing is preferred."""
        keys = jax.random.split(key, len(sizes))
        layers = [eqx.nn.Linear(a, b, key=k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False)]
        for number, layer in enumerate(layers):
            reach = np.sqrt(6 / layer.weight.shape[1]) if number < len(layers) - 1 else 0.0
            weight = jax.random.uniform(keys[number], layer.weight.shape, minval=-1.0, maxval=1.0) * reach
            layers[number] = eqx.tree_at(
                lambda it: (it.weight, it.bias), layer, (weight, jnp.zeros(layer.weight.shape[0]))
            )
        self.layers = layers

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " out"]:
        for layer in self.layers[:-1]:
            inputs = jax.nn.relu(layer(inputs))
        return self.layers[-1](inputs)

    def as_arrays(self) -> Layers:
        host = jax.device_get([(layer.weight, layer.bias) for layer in self.layers])
        weights, biases = zip(*((w.astype(np.float64), b.astype(np.float64)) for w, b in host), strict=True)
        return Layers(weights, biases)


@dataclasses.dataclass(frozen=True)
class Descent:
    """How to step. All of it is public."""

    batch: int
    """The public batch size: what a sum is divided by."""
    clip: float
    learning_rate: float
    penalty: float


class Carry(NamedTuple):
    network: Any
    moments: PyTree
    average: Any


LabelLoss = Callable[[Float[Array, " out"], Float[Array, ""]], Float[Array, ""]]
"""(what the network says of a row, its label) -> the row's loss."""


def row_loss(of_label: LabelLoss) -> RowLoss:
    """The loss of one row, whose last feature is the label."""

    def of_row(network: Any, row: Array, fake: Array | None, key: PRNGKeyArray) -> Float[Array, ""]:
        return of_label(network(row[:-1]), row[-1])

    return of_row


def trained(
    network: Network,
    of_label: LabelLoss,
    charged: ChargedSteps,
    descent: Descent,
    *,
    key: PRNGKeyArray,
    progress: Progress | None = None,
) -> Network:
    """The average of the second half of the steps, covered by what was charged for them.

    Adam and averages see noisy sums only. The learning rate falls to zero along half a cosine, and a penalty of
    penalty / 2 |weights|^2 is public.
    """
    num_steps = charged.num_steps
    batch_key, step_key = jax.random.split(key)
    batch_keys, noise_keys = jax.random.split(batch_key, num_steps), jax.random.split(step_key, num_steps)
    at_once = max(1, min(num_steps, STEPS_AT_ONCE // num_slots(descent.batch)))
    advance = _advance(of_label, charged, descent)
    adam = optax.scale_by_adam()
    state = Carry(network, adam.init(eqx.filter(network, eqx.is_inexact_array)), network)
    for first in range(0, num_steps, at_once):
        here = slice(first, min(first + at_once, num_steps))
        batches = sample_batches(charged, batch_keys[here], end=here.stop, batch_size=descent.batch)
        numbers = jnp.arange(here.start, here.stop)
        state = advance(state, (batches, noise_keys[here], numbers))
        if progress is not None:
            progress(here.stop / num_steps, f"step {here.stop} of {num_steps}")
    return state.average


def _advance(of_label: LabelLoss, charged: ChargedSteps, descent: Descent) -> Callable[[Carry, tuple], Carry]:
    adam, of_row, num_steps = optax.scale_by_adam(), row_loss(of_label), charged.num_steps
    clip = Clip.flat(descent.clip if charged.is_private else np.inf)

    @eqx.filter_jit
    def advance(state: Carry, steps: tuple, charged: ChargedSteps) -> Carry:
        def step(state: Carry, given: tuple[Batches, PRNGKeyArray, Array]) -> tuple[Carry, None]:
            batch, key, number = given
            noisy = noisy_gradient(charged, of_row, state.network, clip, batch=batch, key=key).gradient
            values = eqx.filter(state.network, eqx.is_inexact_array)
            slope = jax.tree_util.tree_map(
                lambda part, value: part / descent.batch + descent.penalty * value, noisy, values
            )
            updates, moments = adam.update(slope, state.moments)
            rate = descent.learning_rate * 0.5 * (1 + jnp.cos(jnp.pi * number / num_steps))
            moved = eqx.apply_updates(state.network, jax.tree_util.tree_map(lambda part: -rate * part, updates))
            counted = jnp.maximum(number - num_steps // 2, 0)
            average = jax.tree_util.tree_map(
                lambda old, new: old + (new - old) / (counted + 1) if eqx.is_inexact_array(old) else old,
                state.average,
                moved,
            )
            return Carry(moved, moments, average), None

        return jax.lax.scan(step, state, steps)[0]

    return lambda state, steps: advance(state, steps, charged)
