"""Small networks of learners, and their training by DP-SGD."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from understudy.models.predictors import Layers
from understudy.privacy.dpsgd import ChargedSteps
from understudy.privacy.sampling import num_slots
from understudy.training.dpsgd import Descent, train_network
from understudy.training.loop import RunOptions

STEPS_AT_ONCE = 1 << 22
"""Slots of the batches that are sampled at once, at most: they bound the steps of one call of the program."""


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


LabelLoss = Callable[[Float[Array, " out"], Float[Array, ""]], Float[Array, ""]]
"""(the output of the network for a row, its label) -> the row's loss."""


class ExampleLoss(eqx.Module):
    """The loss of one row, whose last feature is the label."""

    of_label: LabelLoss

    def __call__(self, network: Network, row: Array, fake: Array | None, key: PRNGKeyArray) -> Float[Array, ""]:
        return self.of_label(network(row[:-1]), row[-1])


def train_learner(
    network: Network,
    of_label: LabelLoss,
    charged: ChargedSteps,
    descent: Descent,
    *,
    key: PRNGKeyArray,
    options: RunOptions | None = None,
) -> Network:
    """The average of the network over the steps, covered by what was charged for them."""
    batch_key, noise_key = jax.random.split(key)
    options = options or RunOptions()
    chunk = max(1, min(options.chunk, STEPS_AT_ONCE // num_slots(descent.batch_size)))
    return train_network(
        network,
        ExampleLoss(of_label),
        charged,
        descent,
        batch_key=batch_key,
        noise_key=noise_key,
        options=dataclasses.replace(options, chunk=chunk),
        advice="Lower learning_rate.",
    )
