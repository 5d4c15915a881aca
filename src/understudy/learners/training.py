"""Small networks of learners, and the losses they are trained on."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from understudy.models.predictors import Layers


class Network(eqx.Module):
    """Linear layers with ReLU between them."""

    layers: list[eqx.nn.Linear]

    def __init__(self, sizes: tuple[int, ...], *, key: PRNGKeyArray):
        """He's weights, and zeros in the last layer: at first nothing is preferred."""
        keys = jax.random.split(key, len(sizes))
        self.layers = []
        for inputs, outputs, own_key in zip(sizes, sizes[1:], keys, strict=False):
            reach = np.sqrt(6 / inputs) if len(self.layers) < len(sizes) - 2 else 0.0
            weight = jax.random.uniform(own_key, (outputs, inputs), minval=-1.0, maxval=1.0) * reach
            layer = eqx.nn.Linear(inputs, outputs, key=own_key)
            self.layers.append(eqx.tree_at(lambda it: (it.weight, it.bias), layer, (weight, jnp.zeros(outputs))))

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " out"]:
        for layer in self.layers[:-1]:
            inputs = jax.nn.relu(layer(inputs))
        return self.layers[-1](inputs)

    def as_arrays(self) -> Layers:
        host = jax.device_get([(layer.weight, layer.bias) for layer in self.layers])
        weights, biases = zip(*((w.astype(np.float64), b.astype(np.float64)) for w, b in host), strict=True)
        return Layers(weights, biases)


class CrossEntropy(eqx.Module):
    """The loss of one row, whose last feature is its class, each class with its weight."""

    weights: Float[Array, " classes"]

    def __call__(self, network: Network, row: Array, fake: Array | None, key: PRNGKeyArray) -> Float[Array, ""]:
        code = row[-1].astype(jnp.int32)
        # Weighted before the clip: a heavy class has larger gradients, and no larger bound.
        return self.weights[code] * optax.losses.softmax_cross_entropy_with_integer_labels(network(row[:-1]), code)


def half_square(network: Network, row: Array, fake: Array | None, key: PRNGKeyArray) -> Float[Array, ""]:
    """The loss of one row, whose last feature is the number to predict. A row without a label has no part."""
    output, label = network(row[:-1])[0], row[-1]
    known = ~jnp.isnan(label)
    return jnp.where(known, 0.5 * (output - jnp.where(known, label, 0.0)) ** 2, 0.0)
