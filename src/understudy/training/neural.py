"""Networks of a training that no release holds, critics and encoders, and what every step does to a network.

A critic sees one row; nothing in it mixes rows, or it could not be trained privately.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree
from numpy.typing import ArrayLike

from understudy.encoding.features import Blocks, is_one_hot, num_features, starts
from understudy.models.neural import Decoder, apply_layers, leaky_relu, linear_layers


@runtime_checkable
class CriticNetwork(Protocol):
    """From one row's features, and its condition if it has one, to a score; the key is for dropout."""

    def __call__(self, row: Float[Array, " inputs"], /, *, key: PRNGKeyArray | None = None) -> Float[Array, ""]: ...


class Critic(eqx.Module):
    """Linear layers with leaky ReLU, one score at the end; dropout with a mask of each row's own if asked for."""

    layers: list[eqx.nn.Linear]
    dropout: float = eqx.field(static=True)

    def __init__(self, features: int, widths: Sequence[int], *, dropout: float = 0.0, key: PRNGKeyArray):
        keys = jax.random.split(key, len(widths) + 1)
        sizes: list[int] = [features, *widths]
        self.dropout = dropout
        self.layers = [eqx.nn.Linear(a, b, key=k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False)]
        self.layers.append(eqx.nn.Linear(sizes[-1], "scalar", key=keys[-1]))

    def __call__(self, row: Float[Array, " features"], *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        for number, layer in enumerate(self.layers[:-1]):
            row = leaky_relu(layer(row))
            if self.dropout and key is not None:
                kept = jax.random.bernoulli(jax.random.fold_in(key, number), 1 - self.dropout, row.shape)
                row = jnp.where(kept, row / (1 - self.dropout), 0.0)
        return self.layers[-1](row)


class CriticMixture(eqx.Module):
    """Several critics of one shape, stacked, as one: its score is the logarithm of the odds of their mean probability.

    For a single critic that is its own score.
    """

    critics: CriticNetwork

    def __call__(self, row: Float[Array, " inputs"], *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        scores = eqx.filter_vmap(lambda critic: critic(row))(self.critics)
        return jax.nn.logsumexp(jax.nn.log_sigmoid(scores)) - jax.nn.logsumexp(jax.nn.log_sigmoid(-scores))


class Constant(eqx.Module):
    """Numbers that training leaves alone. They are arguments of a compiled program, so other values need no other one.

    Kept as integers of the same bits, since every array of floats in a network is trained, clipped and given noise.
    """

    bits: Int[Array, "..."]

    def __init__(self, values: ArrayLike):
        self.bits = jnp.asarray(np.asarray(values, dtype=np.float32).view(np.int32))

    @property
    def values(self) -> Float[Array, "..."]:
        return jax.lax.bitcast_convert_type(self.bits, jnp.float32)


class Encoder(eqx.Module):
    """Linear layers with leaky ReLU between them, from one row's features to a code between -1 and 1."""

    layers: list[eqx.nn.Linear]
    centre: Constant
    """Public or noisy: subtracted from the features first. What all rows share would fill every clipped gradient."""

    def __init__(self, centre: Sequence[float] | np.ndarray, widths: Sequence[int], code: int, *, key: PRNGKeyArray):
        self.centre = Constant(centre)
        self.layers = linear_layers([len(centre), *widths, code], key)

    def __call__(self, features: Float[Array, " features"]) -> Float[Array, " code"]:
        return jnp.tanh(apply_layers(self.layers, features - self.centre.values, leaky_relu))


class Autoencoder(eqx.Module):
    """Both in one: all arrays of the two are one vector to whoever clips its gradient."""

    encoder: Encoder
    decoder: Decoder

    def __call__(self, features: Float[Array, " features"]) -> Float[Array, " features"]:
        return self.decoder(self.encoder(features))


class Centred(eqx.Module):
    """A critic that sees features less their public or noisy means."""

    critic: Critic
    centre: Constant

    def __call__(self, row: Float[Array, " features"], *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        return self.critic(row - self.centre.values, key=key)


class CrossedCritic(eqx.Module):
    """A critic that sees each feature also together with each level of one block, the target's.

    Without hidden layers it is a logistic regression of what goes with which level of the target: few numbers to learn,
    for learners of few rows or of noisy labels.
    """

    critic: Critic
    begin: int = eqx.field(static=True)
    size: int = eqx.field(static=True)
    features: int = eqx.field(static=True)
    """Of a row; what comes after them, a condition, is passed on as it is."""

    def __init__(
        self, inputs: int, widths: Sequence[int], blocks: Blocks, block: int, *, dropout: float = 0.0, key: PRNGKeyArray
    ):
        self.begin, self.size, self.features = starts(blocks)[block], blocks[block].size, num_features(blocks)
        self.critic = Critic(inputs + self.size * self.features, widths, dropout=dropout, key=key)

    def __call__(self, row: Float[Array, " inputs"], *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        levels = row[self.begin : self.begin + self.size]
        crossed = (levels[:, None] * row[None, : self.features]).reshape(-1)
        return self.critic(jnp.concatenate([row, crossed]), key=key)


def init_at_shares(layer: eqx.nn.Linear, blocks: Blocks, shares: Float[Array, " features"]) -> eqx.nn.Linear:
    """The last layer of a generator or decoder that begins at independent columns of these noisy shares."""
    level = is_one_hot(blocks)  # of other features the shares say nothing
    assert layer.bias is not None
    bias = jnp.where(level, jnp.log(jnp.where(level, shares, 1.0)), layer.bias)
    weight = layer.weight * jnp.where(level, 0.1, 1.0)[:, None]
    return eqx.tree_at(lambda it: (it.bias, it.weight), layer, (bias, weight))


# --------------------------------------------------------------------------------------------------------------- steps

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
