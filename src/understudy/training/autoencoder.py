"""Autoencoders: the loss of a row, and where encoders come from.

The DP-auto-GAN paper trains the encoder without noise, on the ground that only the decoder is released. That is not
private: the hidden encoder steers every later gradient of the decoder (`docs/autogan_counterexample.md`). Here all
that learns from rows is clipped and noised: encoder and decoder as one vector, or the decoder alone behind an encoder
that is public, random, or itself a noisy answer.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from understudy.encoding.features import Blocks, is_one_hot, num_features
from understudy.models.networks import Decoded, Decoder, block_log_softmax
from understudy.privacy.rows import RowEncoder
from understudy.training.critics import encoder as features_from
from understudy.training.networks import Encoder

RECONSTRUCTIONS = ("typed", "bce")
REDUCTIONS = ("sum", "mean")
LEAST_REACH = 1e-3  # keeps codes finite where rows hardly vary
AT_ONCE = 4096
"""Rows that are encoded at once."""

Reconstruction = Callable[[Float[Array, " features"], Float[Array, " features"]], Float[Array, ""]]
"""(the decoder's logits, a row's features) -> how badly the row comes back."""


class ReconstructionLoss(eqx.Module):
    """The loss of one row, of an `Autoencoder`, or of a `Decoder` behind a fixed encoder, which has no gradient."""

    fixed: Encoder | None
    blocks: Blocks = eqx.field(static=True)
    reconstruction: str = eqx.field(static=True, default="typed")
    reduction: str = eqx.field(static=True, default="sum")

    def __call__(self, network: Any, row: Array, fake: Array | None, key: PRNGKeyArray) -> Float[Array, ""]:
        features = features_from(self.blocks)(row)
        logits = network(features if self.fixed is None else self.fixed(features))
        return reconstruction_of(self.blocks, self.reconstruction, self.reduction)(logits, features)


def reconstruction_of(blocks: Blocks, reconstruction: str, reduction: str) -> Reconstruction:
    """The loss of one row, given the logits of its features.

    `typed`: cross-entropy of each categorical block, the mean cross-entropy of a block's bits, squared error of a
    number. `bce`: binary cross-entropy of every feature between 0 and 1, as published; numbers stand between 0 and 1
    too, and the levels of a block share a softmax where the paper gives each a sigmoid.
    """
    level = is_one_hot(blocks)
    kinds = np.repeat([block.kind for block in blocks], [block.size for block in blocks])
    sizes = np.repeat([block.size for block in blocks], [block.size for block in blocks])
    scale = 1.0 if reduction == "sum" else 1 / (len(blocks) if reconstruction == "typed" else num_features(blocks))

    def typed(logits: Array, features: Array) -> Array:
        logs = block_log_softmax(logits[None], blocks)[0]
        terms = jnp.where(level, -features * logs, 0.0)
        if (kinds == "bits").any():
            terms = jnp.where(kinds == "bits", _bce(logits, features) / sizes, terms)
        if (kinds == "tanh").any():
            terms = jnp.where(kinds == "tanh", (jnp.tanh(logits) - features) ** 2, terms)
        return scale * terms.sum()

    def bce(logits: Array, features: Array) -> Array:
        logs = jnp.minimum(jnp.where(level, block_log_softmax(logits[None], blocks)[0], -1.0), -1e-6)
        terms = jnp.where(level, -features * logs - (1 - features) * jnp.log(-jnp.expm1(logs)), 0.0)
        # The head of a number is tanh(logit), which as a share of its line is the sigmoid of twice the logit.
        numbers = jnp.where(kinds == "tanh", (features + 1) / 2, features)
        terms = jnp.where(level, terms, _bce(jnp.where(kinds == "tanh", 2 * logits, logits), numbers))
        return scale * terms.sum()

    return typed if reconstruction == "typed" else bce


def _bce(logits: Array, share: Array) -> Array:
    return jax.nn.softplus(logits) - share * logits


# ------------------------------------------------------------------------------------------------------------ encoders


def random_encoder(
    centre: Sequence[float] | np.ndarray, widths: Sequence[int], code: int, *, key: PRNGKeyArray
) -> Encoder:
    """Orthogonal weights that no row has touched: with the rows' spread, codes fill their interval."""
    empty = Encoder(centre, widths, code, key=key)
    keys = jax.random.split(jax.random.fold_in(key, 1), len(empty.layers))
    layers = []
    for layer, own_key in zip(empty.layers, keys, strict=True):
        weight = jax.nn.initializers.orthogonal()(own_key, layer.weight.shape)
        layer = eqx.tree_at(lambda it: (it.weight, it.bias), layer, (weight, jnp.zeros(layer.weight.shape[0])))
        layers.append(layer)
    return eqx.tree_at(lambda it: it.layers, empty, layers)


def principal_encoder(
    noisy_gram: Float[np.ndarray, "features features"],
    num_rows: int,
    reach: float,
    centre: Sequence[float] | np.ndarray,
    code: int,
) -> Encoder:
    """The leading eigenvectors of a noisy second-moment matrix as one linear layer. Post-processing.

    Rows had norm one at most in it, and have about `reach` as they are: codes are scaled to a spread of about one. If
    every column has a single value, there is no spread to scale by, and `LEAST_REACH` is used.
    """
    values, vectors = np.linalg.eigh((noisy_gram + noisy_gram.T) / 2)
    leading = np.argsort(values)[::-1][:code]
    spread = max(reach, LEAST_REACH) * np.sqrt(np.maximum(values[leading], num_rows * 1e-3) / num_rows)
    weight = jnp.asarray((vectors[:, leading] / spread).T, dtype=jnp.float32)
    empty = Encoder(centre, (), code, key=jax.random.key(0))
    layer = eqx.tree_at(lambda it: (it.weight, it.bias), empty.layers[0], (weight, jnp.zeros(code)))
    return eqx.tree_at(lambda it: it.layers[0], empty, layer)


@dataclasses.dataclass(frozen=True)
class Shifted:
    """A layout whose features are taken less their centre: rows as a second-moment matrix sees them."""

    layout: RowEncoder
    centre: np.ndarray

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: PRNGKeyArray) -> np.ndarray:
        return np.asarray(self.layout.encode(codes, positions, key) - self.centre)


@dataclasses.dataclass(frozen=True)
class Coded:
    """A layout that shows the codes of rows, by an encoder that is public, or released by the steps that trained it.

    Computed on the CPU and for equally many rows at a time, the last of them filled up: so the last digits of a row
    depend neither on its place nor on how many there are.
    """

    layout: RowEncoder
    encoder: Encoder

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: PRNGKeyArray) -> np.ndarray:
        cpu = jax.devices("cpu")[0]
        coded = jax.jit(jax.vmap(jax.device_put(self.encoder, cpu)))
        size = self.encoder.layers[-1].weight.shape[0]
        parts = [np.zeros((0, size), np.float32)]
        for start in range(0, len(codes), AT_ONCE):
            at = slice(start, start + AT_ONCE)
            features = self.layout.encode(codes[at], positions[at], jax.random.fold_in(key, start))
            filled = np.zeros((AT_ONCE, features.shape[1]), np.float32)
            filled[: len(features)] = features
            parts.append(np.asarray(coded(jax.device_put(filled, cpu)))[: len(features)])
        return np.concatenate(parts)


def init_at_shares(decoder: Decoder, blocks: Blocks, marginal: Float[np.ndarray, " features"]) -> Decoder:
    """A decoder that begins at independent columns of these noisy shares."""
    level, last = is_one_hot(blocks), decoder.layers[-1]
    assert last.bias is not None
    bias = jnp.where(level, jnp.log(jnp.where(level, marginal, 1.0)), last.bias)
    weight = last.weight * jnp.where(level, 0.1, 1.0)[:, None]
    return eqx.tree_at(lambda it: (it.layers[-1].bias, it.layers[-1].weight), decoder, (bias, weight))


@functools.partial(jax.jit, static_argnums=(1, 2))
def match_shares(
    generator: Decoded, blocks: Blocks, latent: int, marginal: Float[Array, " features"], *, key: PRNGKeyArray
) -> Decoded:
    """The same generator with the decoder's last bias moved until its levels have these noisy shares.

    Post-processing. Given a code, every level keeps its odds against the others up to a factor that all codes share.
    """
    level = is_one_hot(blocks)
    logits = jax.vmap(generator)(jax.random.normal(key, (AT_ONCE, latent)))

    def moved(shift: Array, _: None) -> tuple[Array, None]:
        found = jnp.mean(jnp.exp(jnp.where(level, block_log_softmax(logits + shift, blocks), 0.0)), axis=0)
        step = jnp.log(jnp.where(level, marginal, 1.0)) - jnp.log(jnp.where(level, jnp.maximum(found, 1e-9), 1.0))
        return shift + step, None

    shift, _ = jax.lax.scan(moved, jnp.zeros(len(level)), None, length=20)
    bias = generator.decoder.layers[-1].bias
    assert bias is not None
    return eqx.tree_at(lambda it: it.decoder.layers[-1].bias, generator, bias + shift)
