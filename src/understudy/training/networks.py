"""Networks of a training that no release holds: critics and encoders.

A critic sees one row; nothing in it mixes rows, or it could not be trained privately.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import ArrayLike

from understudy.encoding.features import Blocks, is_one_hot, num_features, starts
from understudy.models.networks import SLOPE, Decoder, linear_layers


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
            row = jax.nn.leaky_relu(layer(row), SLOPE)
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
        hidden = features - self.centre.values
        for layer in self.layers[:-1]:
            hidden = jax.nn.leaky_relu(layer(hidden), SLOPE)
        return jnp.tanh(self.layers[-1](hidden))


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
        self,
        inputs: int,
        widths: Sequence[int],
        blocks: Blocks,
        block: int,
        *,
        dropout: float = 0.0,
        key: PRNGKeyArray,
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


def spectral_scaled(critic: CriticNetwork) -> CriticNetwork:
    """Every weight matrix divided by its largest singular value where that exceeds one. Post-processing."""

    def scaled(leaf: Array) -> Array:
        if leaf.ndim != 2:
            return leaf
        right = jnp.ones(leaf.shape[1]) / math.sqrt(leaf.shape[1])
        for _ in range(5):
            left = leaf @ right
            left = left / jnp.maximum(jnp.linalg.norm(left), 1e-12)
            right = leaf.T @ left
            right = right / jnp.maximum(jnp.linalg.norm(right), 1e-12)
        return leaf / jnp.maximum(1.0, jnp.linalg.norm(leaf @ right))

    return jax.tree_util.tree_map(lambda leaf: scaled(leaf) if eqx.is_inexact_array(leaf) else leaf, critic)
