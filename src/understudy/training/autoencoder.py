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
from understudy.models.neural import Decoded, block_log_softmax
from understudy.privacy.rows.rows import RowEncoder
from understudy.training.critics import encoder as features_from
from understudy.training.neural import Encoder

MIN_REACH = 1e-3  # keeps codes finite where rows hardly vary
AT_ONCE = 4096
"""Rows that are encoded at once."""


class ReconstructionLoss(eqx.Module):
    """The loss of one row, of an `Autoencoder`, or of a `Decoder` behind a fixed encoder, which has no gradient."""

    fixed: Encoder | None
    blocks: Blocks = eqx.field(static=True)

    def __call__(
        self, network: Callable[[Array], Array], row: Array, fake: Array | None, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        features = features_from(self.blocks)(row)
        return self.of_logits(network(features if self.fixed is None else self.fixed(features)), features)

    def of_logits(self, logits: Float[Array, " features"], features: Float[Array, " features"]) -> Float[Array, ""]:
        """Cross-entropy of each category, the mean cross-entropy of a block's bits, squared error of a number."""
        sizes = np.repeat([block.size for block in self.blocks], [block.size for block in self.blocks])
        kinds = np.repeat([block.kind for block in self.blocks], [block.size for block in self.blocks])
        logs = block_log_softmax(logits[None], self.blocks)[0]
        terms = jnp.where(is_one_hot(self.blocks), -features * logs, 0.0)
        if (kinds == "bits").any():
            terms = jnp.where(kinds == "bits", binary_cross_entropy(logits, features) / sizes, terms)
        if (kinds == "tanh").any():
            terms = jnp.where(kinds == "tanh", (jnp.tanh(logits) - features) ** 2, terms)
        return terms.sum()


def binary_cross_entropy(logits: Array, share: Array) -> Array:
    """The cross-entropy of each feature by itself."""
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
    every column has a single value, there is no spread to scale by, and `MIN_REACH` is used.
    """
    values, vectors = np.linalg.eigh((noisy_gram + noisy_gram.T) / 2)
    leading = np.argsort(values)[::-1][:code]
    spread = max(reach, MIN_REACH) * np.sqrt(np.maximum(values[leading], num_rows * 1e-3) / num_rows)
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
        means = jnp.mean(jnp.exp(jnp.where(level, block_log_softmax(logits + shift, blocks), 0.0)), axis=0)
        step = jnp.log(jnp.where(level, marginal, 1.0)) - jnp.log(jnp.where(level, jnp.maximum(means, 1e-9), 1.0))
        return shift + step, None

    shift, _ = jax.lax.scan(moved, jnp.zeros(len(level)), None, length=20)
    bias = generator.decoder.layers[-1].bias
    assert bias is not None
    return eqx.tree_at(lambda it: it.decoder.layers[-1].bias, generator, bias + shift)
