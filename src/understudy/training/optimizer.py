"""What every step of a training does to a network: an optimiser step, and the running average."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

Network = TypeVar("Network", bound=PyTree)


def trainable(network: PyTree) -> PyTree:
    """The arrays of a network that gradients are taken of."""
    return eqx.filter(network, eqx.is_inexact_array)


def optimizer_step(
    optimizer: optax.GradientTransformation,
    network: Network,
    gradient: PyTree,
    moments: optax.OptState,
    learning_rate: Float[Array, ""] | float,
) -> tuple[Network, optax.OptState]:
    """The network after one step against `gradient`, and the new moments. `optimizer` has no learning rate itself."""
    updates, moments = optimizer.update(gradient, moments, trainable(network))
    return eqx.apply_updates(network, jax.tree_util.tree_map(lambda leaf: -learning_rate * leaf, updates)), moments


def update_average(average: Network, network: Network, iteration: Int[Array, ""], ema_decay: float) -> Network:
    """The exponential moving average of a network. It begins as a plain mean, so early iterates weigh less."""
    decay = jnp.minimum(ema_decay, (1.0 + iteration) / (10.0 + iteration))
    return jax.tree_util.tree_map(
        lambda old, new: decay * old + (1 - decay) * new if eqx.is_inexact_array(new) else new, average, network
    )
