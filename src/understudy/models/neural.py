"""Generator networks, and the heads that turn their logits into features or codes: what a release needs to sample.

A network makes one row from one latent vector; map it over a batch. It ends in typed heads, one per column: near
one-hot blocks for categories, bounded numbers for the rest.
"""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from understudy.encoding.features import Blocks, num_features, starts
from understudy.errors import ConfigError
from understudy.models.zeros import Mask, Masks

SLOPE = 0.2
"""Of the leaky ReLU."""
MIN_POSSIBLE = 1e-6
"""In training an impossible code keeps this factor in its odds, so that logarithms and gradients are finite."""


def block_log_softmax(values: Float[Array, "rows features"], blocks: Blocks) -> Float[Array, "rows features"]:
    """Log-softmax within each categorical block; other features pass unchanged.

    All blocks at once, padded to the widest: a program whose size does not grow with the number of columns.
    """
    padded_at, back_at, is_one_hot = _padding(blocks)
    padded = jnp.concatenate([values, jnp.full((len(values), 1), -jnp.inf)], axis=1)[:, padded_at]
    logs = jax.nn.log_softmax(padded, axis=2)
    return jnp.where(is_one_hot, logs.reshape(len(values), -1)[:, back_at], values)


@functools.lru_cache(maxsize=64)
def _padding(blocks: Blocks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The source of each padded cell (one past the end: none), the target of each feature, and which are one-hot."""
    features, widest = num_features(blocks), max(block.size for block in blocks)
    padded_at = np.full((len(blocks), widest), features)
    back_at, is_one_hot = np.zeros(features, dtype=int), np.zeros(features, dtype=bool)
    for number, (block, start) in enumerate(zip(blocks, starts(blocks), strict=True)):
        here = np.arange(start, start + block.size)
        padded_at[number, : block.size] = here
        back_at[here] = number * widest + np.arange(block.size)
        is_one_hot[here] = block.kind == "one_hot"
    return padded_at, back_at, is_one_hot


def _kinds(blocks: Blocks) -> tuple[np.ndarray, np.ndarray]:
    kinds = np.repeat([block.kind for block in blocks], [block.size for block in blocks])
    return kinds == "tanh", kinds == "bits"


def activate(
    logits: Float[Array, "rows features"], blocks: Blocks, *, temperature: float, key: PRNGKeyArray, masks: Masks = ()
) -> Float[Array, "rows features"]:
    """The heads: Gumbel-softmax for categories, straight numbers for the rest. Differentiable, row by row.

    `masks`: blocks are drawn in order, and codes that the likeliest category of an earlier one excludes are all but
    impossible, as in `sample_codes`; the gradient passes to the earlier block as if this category were soft.
    """
    is_tanh, is_bit = _kinds(blocks)
    noisy = logits + _gumbel(key, logits.shape)
    for block, own in _by_block(masks):
        drawn = {
            given: _harden(jax.nn.softmax(noisy[:, _cut(blocks, given)] / temperature, axis=1))
            for mask in own
            for given in mask.given
        }
        noisy = noisy.at[:, _cut(blocks, block)].add(_log_possible(own, drawn))
    logs = block_log_softmax(noisy / temperature, blocks)
    if (is_number := is_tanh | is_bit).any():
        # Not used below, but an exponential that overflows would make the gradient of all of them NaN.
        logs = jnp.where(is_number, 0.0, logs)
    softened = jnp.exp(logs)
    if is_tanh.any():
        softened = jnp.where(is_tanh, jnp.tanh(logits), softened)
    return jnp.where(is_bit, jax.nn.sigmoid(logits), softened) if is_bit.any() else softened


def log_possible(
    features: Float[Array, "rows features"], blocks: Blocks, masks: Masks
) -> Float[Array, "rows features"]:
    """What masks add to the logits, given the categories of earlier blocks, which may be soft."""
    added = jnp.zeros_like(features)
    for block, own in _by_block(masks):
        drawn = {given: _harden(features[:, _cut(blocks, given)]) for mask in own for given in mask.given}
        added = added.at[:, _cut(blocks, block)].set(_log_possible(own, drawn))
    return added


def _log_possible(masks: Sequence[Mask], drawn: Mapping[int, Float[Array, "rows codes"]]) -> Array:
    """The logarithm of whether each code of one block is possible, bounded below."""
    total: Array | float = 0.0
    for mask in masks:
        joint = jnp.ones((1, 1))
        for given in mask.given:
            joint = (joint[:, :, None] * drawn[given][:, None]).reshape(len(drawn[given]), -1)
        total = total + jnp.log(jnp.maximum(joint @ mask.lines.astype(np.float32), MIN_POSSIBLE))
    return jnp.asarray(total)


def _harden(soft: Float[Array, "rows codes"]) -> Float[Array, "rows codes"]:
    """The likeliest category, one-hot, with the gradient of the soft one (straight through)."""
    hard = jax.nn.one_hot(jnp.argmax(soft, axis=1), soft.shape[1])
    return soft + jax.lax.stop_gradient(hard - soft)


def _by_block(masks: Masks) -> list[tuple[int, list[Mask]]]:
    return [(block, list(own)) for block, own in itertools.groupby(masks, key=lambda mask: mask.place)]


def _cut(blocks: Blocks, block: int) -> slice:
    """The features of one block."""
    start = starts(blocks)[block]
    return slice(start, start + blocks[block].size)


def sample_features(
    logits: Float[Array, "rows features"], blocks: Blocks, *, key: PRNGKeyArray, masks: Masks = ()
) -> Float[Array, "rows features"]:
    """Hard values for a synthetic table: a sampled category in each one-hot block, numbers and bits as they are."""
    is_tanh, _ = _kinds(blocks)
    padded_at, back_at, is_one_hot = _padding(blocks)
    best = jax.nn.one_hot(sample_codes(logits, blocks, key=key, masks=masks), padded_at.shape[1])
    levels = best.reshape(len(logits), -1)[:, back_at]
    numbers = jnp.where(is_tanh, jnp.tanh(logits), jax.nn.sigmoid(logits))
    return jnp.where(is_one_hot, levels, numbers)


def sample_codes(
    logits: Float[Array, "rows features"], blocks: Blocks, *, key: PRNGKeyArray, masks: Masks = ()
) -> Int[Array, "rows blocks"]:
    """The sampled category of each block, where all are one-hot; never one that masks exclude."""
    padded_at, _, _ = _padding(blocks)
    values = logits + _gumbel(key, logits.shape)
    for block, own in _by_block(masks):
        cut = _cut(blocks, block)
        values = values.at[:, cut].set(jnp.where(_is_possible(own, values, blocks), values[:, cut], -jnp.inf))
    noisy = jnp.concatenate([values, jnp.full((len(logits), 1), -jnp.inf)], axis=1)
    return jnp.argmax(noisy[:, padded_at], axis=2)


def _is_possible(masks: Sequence[Mask], values: Float[Array, "rows features"], blocks: Blocks) -> Array:
    """The codes of one block that are possible for the categories drawn before; all of them where none is."""
    possible = jnp.ones((len(values), masks[0].lines.shape[1]), dtype=bool)
    for mask in masks:
        line = jnp.zeros(len(values), dtype=jnp.int32)
        for given in mask.given:
            line = line * blocks[given].size + jnp.argmax(values[:, _cut(blocks, given)], axis=1).astype(jnp.int32)
        possible = possible & jnp.asarray(mask.lines)[line]
    return possible | ~possible.any(axis=1, keepdims=True)


def _gumbel(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    """The generator's latent noise. Not privacy noise."""
    return -jnp.log(-jnp.log(jax.random.uniform(key, shape, minval=1e-7, maxval=1.0 - 1e-7)))


@runtime_checkable
class GeneratorNetwork(Protocol):
    """From one row's latent numbers, and its condition if it has one, to the logits of its features."""

    def __call__(self, inputs: Float[Array, " inputs"], /) -> Float[Array, " features"]: ...


@runtime_checkable
class MakeGenerator(Protocol):
    """An architecture: a fresh network of these sizes."""

    def __call__(
        self, latent: int, condition: int, widths: Sequence[int], features: int, /, *, key: PRNGKeyArray
    ) -> GeneratorNetwork: ...


class Generator(eqx.Module):
    """Residual layers with layer normalisation, then one linear layer to the heads' logits."""

    entry: eqx.nn.Linear
    norms: list[eqx.nn.LayerNorm]
    layers: list[eqx.nn.Linear]
    exit: eqx.nn.Linear
    latent: int = eqx.field(static=True)

    def __init__(self, latent: int, condition: int, widths: Sequence[int], features: int, *, key: PRNGKeyArray):
        if len(set(widths)) != 1:
            raise ConfigError(f"The layers of a residual generator have one width, found {list(widths)}.")
        keys = jax.random.split(key, len(widths) + 2)
        self.latent = latent
        self.entry = eqx.nn.Linear(latent + condition, widths[0], key=keys[0])
        self.norms = [eqx.nn.LayerNorm(width) for width in widths]
        self.layers = [eqx.nn.Linear(width, width, key=k) for width, k in zip(widths, keys[1:], strict=False)]
        self.exit = eqx.nn.Linear(widths[-1], features, key=keys[-1])

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " features"]:
        hidden = self.entry(inputs)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            hidden = hidden + jax.nn.relu(layer(norm(hidden)))
        return self.exit(hidden)


class PlainGenerator(eqx.Module):
    """Linear layers and ReLU: the nets of the boosting paper, whose own are leaky."""

    layers: list[eqx.nn.Linear]
    latent: int = eqx.field(static=True)

    def __init__(self, latent: int, condition: int, widths: Sequence[int], features: int, *, key: PRNGKeyArray):
        self.latent = latent
        self.layers = linear_layers([latent + condition, *widths, features], key)

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " features"]:
        return apply_layers(self.layers, inputs, jax.nn.relu)


def linear_layers(sizes: Sequence[int], key: PRNGKeyArray) -> list[eqx.nn.Linear]:
    keys = jax.random.split(key, len(sizes) - 1)
    return [eqx.nn.Linear(a, b, key=k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False)]


def apply_layers(
    layers: Sequence[Callable[[Array], Array]], inputs: Array, activation: Callable[[Array], Array]
) -> Array:
    """Linear layers with this activation between them."""
    for layer in layers[:-1]:
        inputs = activation(layer(inputs))
    return layers[-1](inputs)


def leaky_relu(values: Array) -> Array:
    return jax.nn.leaky_relu(values, SLOPE)


class Decoder(eqx.Module):
    """Linear layers with leaky ReLU between them, from a code to the heads' logits."""

    layers: list[eqx.nn.Linear]

    def __init__(self, code: int, widths: Sequence[int], features: int, *, key: PRNGKeyArray):
        self.layers = linear_layers([code, *widths, features], key)

    def __call__(self, code: Float[Array, " code"]) -> Float[Array, " features"]:
        return apply_layers(self.layers, code, leaky_relu)


class Decoded(eqx.Module):
    """A generator of codes, and the decoder that its codes pass through, which does not learn."""

    codes: GeneratorNetwork
    decoder: Decoder

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " features"]:
        decoder = jax.tree_util.tree_map(jax.lax.stop_gradient, self.decoder)
        return decoder(jnp.tanh(self.codes(inputs)))


GENERATORS: dict[str, MakeGenerator] = {"residual": Generator, "plain": PlainGenerator}
"""Architectures by name. A new one is an entry here."""
