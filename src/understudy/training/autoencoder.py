"""Autoencoders: the loss of a row, and where encoders come from.

The DP-auto-GAN paper trains the encoder without noise, on the ground that only the decoder is released. That is not
private: the hidden encoder steers every later gradient of the decoder (`docs/autogan_counterexample.md`). Here all
that learns from rows is clipped and noised: encoder and decoder as one vector, or the decoder alone behind an encoder
that is public, random, or itself a noisy answer.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from understudy.encoding.features import Blocks, is_one_hot
from understudy.models.networks import Decoded, block_log_softmax
from understudy.privacy.rows import RowEncoder
from understudy.training.critics import encoder as features_from
from understudy.training.networks import Encoder

RECONSTRUCTIONS = ("typed", "bce")
REDUCTIONS = ("sum", "mean")
LEAST_REACH = 1e-3  # keeps codes finite where rows hardly vary
AT_ONCE = 4096
"""Rows that are encoded at once."""


class ReconstructionLoss(eqx.Module):
    """The loss of one row, of an `Autoencoder`, or of a `Decoder` behind a fixed encoder, which has no gradient."""

    fixed: Encoder | None
    blocks: Blocks = eqx.field(static=True)
    reconstruction: str = eqx.field(static=True, default="typed")
    reduction: str = eqx.field(static=True, default="sum")

    def __call__(
        self, network: Callable[[Array], Array], row: Array, fake: Array | None, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        features = features_from(self.blocks)(row)
        return self.of_logits(network(features if self.fixed is None else self.fixed(features)), features)

    def of_logits(self, logits: Float[Array, " features"], features: Float[Array, " features"]) -> Float[Array, ""]:
        """How badly a row comes back.

        `typed`: cross-entropy of each categorical block, the mean cross-entropy of a block's bits, squared error of a
        number. `bce`: binary cross-entropy of every feature between 0 and 1, as published; numbers stand between 0 and
        1 too, and the levels of a block share a softmax where the paper gives each a sigmoid.
        """
        level, is_typed = is_one_hot(self.blocks), self.reconstruction == "typed"
        sizes = np.repeat([block.size for block in self.blocks], [block.size for block in self.blocks])
        kinds = np.repeat([block.kind for block in self.blocks], [block.size for block in self.blocks])
        logs = block_log_softmax(logits[None], self.blocks)[0]
        if is_typed:
            terms = jnp.where(level, -features * logs, 0.0)
            if (kinds == "bits").any():
                terms = jnp.where(kinds == "bits", _bce(logits, features) / sizes, terms)
            if (kinds == "tanh").any():
                terms = jnp.where(kinds == "tanh", (jnp.tanh(logits) - features) ** 2, terms)
        else:
            logs = jnp.minimum(jnp.where(level, logs, -1.0), -1e-6)
            terms = jnp.where(level, -features * logs - (1 - features) * jnp.log(-jnp.expm1(logs)), 0.0)
            # The head of a number is tanh(logit), which as a share of its line is the sigmoid of twice the logit.
            numbers = jnp.where(kinds == "tanh", (features + 1) / 2, features)
            terms = jnp.where(level, terms, _bce(jnp.where(kinds == "tanh", 2 * logits, logits), numbers))
        count = 1 if self.reduction == "sum" else len(self.blocks if is_typed else level)
        return 1 / count * terms.sum()


def _bce(logits: Array, share: Array) -> Array:
    return jax.nn.softplus(logits) - share * logits


# ------------------------------------------------------------------------------------------------------------ encoders


def random_encoder(
    centre: Sequence[float] | np.ndarray, widths: Sequence[int], code: int, *, key: PRNGKeyArray
) -> Encoder:
    """Orthogonal weights that no row has touched: with the rows' spread, codes fill their interval."""
    empty = Encoder(centre, widths, code, key=key)
    keys = jax.random.split(jax.random.fold_in(key, 1), len(empty.layers))
    draw = jax.nn.initializers.orthogonal()
    return _with_weights(empty, [draw(k, layer.weight.shape) for k, layer in zip(keys, empty.layers, strict=True)])


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
    return _with_weights(Encoder(centre, (), code, key=jax.random.key(0)), [weight])


def _with_weights(encoder: Encoder, weights: Sequence[Array]) -> Encoder:
    """The same encoder with these weights, and biases of zero."""
    values = [*weights, *(jnp.zeros(len(weight)) for weight in weights)]
    return eqx.tree_at(
        lambda it: [*(layer.weight for layer in it.layers), *(layer.bias for layer in it.layers)], encoder, values
    )


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
