"""Generators of the papers that the package does not have, by their names in `arch=`.

A generator makes one row from its own latent numbers, and a batch is a map over rows. What the papers add is written in
these terms: dropout takes its coins from further latent numbers, and batch normalisation is a rule for the map. No
generator sees a private row: its inputs are fresh normals and conditions drawn from noisy marginals. So the statistics
of a batch of generated rows are free, and a critic, which does see private rows, must not have any.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2] / "src")]

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.custom_batching import custom_vmap  # noqa: E402
from jaxtyping import Array, Float, PRNGKeyArray  # noqa: E402

from understudy.models.neural import GENERATORS, SLOPE, linear_layers  # noqa: E402

PGB_SLOPE = 0.01
"""Of the boosting paper's leaky ReLUs, whose slope it does not give. Critics have a slope of 0.2."""
NORM_EPSILON = 1e-5


class QuailGenerator(eqx.Module):
    """The generator of the QUAIL paper's DPGAN: two residual blocks of 64, a normalised leaky output."""

    layers: list[eqx.nn.Linear]
    norms: list[eqx.nn.LayerNorm]
    exit: eqx.nn.Linear
    exit_norm: eqx.nn.LayerNorm
    latent: int = eqx.field(static=True)

    def __init__(self, latent: int, condition: int, widths: Sequence[int], features: int, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 3)
        size = latent + condition
        self.latent = latent
        self.layers = [eqx.nn.Linear(size, size, use_bias=False, key=k) for k in keys[:2]]
        self.norms = [eqx.nn.LayerNorm(size) for _ in keys[:2]]
        self.exit = eqx.nn.Linear(size, features, key=keys[2])
        self.exit_norm = eqx.nn.LayerNorm(features)

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " features"]:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            inputs = inputs + jax.nn.leaky_relu(norm(layer(inputs)), SLOPE)
        return jax.nn.leaky_relu(self.exit_norm(self.exit(inputs)), SLOPE)


class LeakyGenerator(eqx.Module):
    """Linear layers and leaky ReLU: the boosting paper's generators."""

    layers: list[eqx.nn.Linear]
    latent: int = eqx.field(static=True)

    def __init__(self, latent: int, condition: int, widths: Sequence[int], features: int, *, key: PRNGKeyArray):
        self.latent = latent
        self.layers = linear_layers([latent + condition, *widths, features], key)

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " features"]:
        for layer in self.layers[:-1]:
            inputs = jax.nn.leaky_relu(layer(inputs), PGB_SLOPE)
        return self.layers[-1](inputs)


class DropoutGenerator(eqx.Module):
    """The same with dropout of one half, in training and in sampling, as in the authors' code.

    Every hidden value is kept if a latent number of its own is positive, so `latent` counts these too:
    `dropout_latent(128, (256, 128))` is a latent vector of 128 and 384 coins.
    """

    layers: list[eqx.nn.Linear]
    latent: int = eqx.field(static=True)

    def __init__(self, latent: int, condition: int, widths: Sequence[int], features: int, *, key: PRNGKeyArray):
        self.latent = latent
        self.layers = linear_layers([latent - sum(widths) + condition, *widths, features], key)

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " features"]:
        widths = [layer.weight.shape[0] for layer in self.layers[:-1]]
        own = self.latent - sum(widths)
        hidden = jnp.concatenate([inputs[:own], inputs[self.latent :]])
        for width, layer in zip(widths, self.layers, strict=False):
            kept = inputs[own : own + width] > 0
            hidden = jnp.where(kept, 2 * jax.nn.leaky_relu(layer(hidden), PGB_SLOPE), 0.0)
            own += width
        return self.layers[-1](hidden)


def dropout_latent(latent: int, widths: Sequence[int]) -> int:
    """The setting `latent` of a generator with dropout whose latent vector has this size."""
    return latent + sum(widths)


@custom_vmap
def standardize(values: Float[Array, " width"]) -> Float[Array, " width"]:
    """Mean zero and variance one over the rows of a batch; a single row is left as it is."""
    return values


@standardize.def_vmap
def _over_rows(axis_size: int, in_batched: Any, values: Float[Array, "rows width"]) -> tuple[Array, bool]:
    if not in_batched[0]:
        return values, False
    spread = jnp.sqrt(values.var(axis=0) + NORM_EPSILON)
    return (values - values.mean(axis=0)) / spread, True


class CTGANGenerator(eqx.Module):
    """CTGAN's generator: every layer is normalised over the batch and stands beside its own inputs.

    Generated rows of a batch depend on each other, which is allowed for fakes that are not paired with private rows. In
    sampling the statistics are those of a batch of the sample; the published code keeps running ones.
    """

    layers: list[eqx.nn.Linear]
    scales: list[Float[Array, " width"]]
    shifts: list[Float[Array, " width"]]
    exit: eqx.nn.Linear
    latent: int = eqx.field(static=True)

    def __init__(self, latent: int, condition: int, widths: Sequence[int], features: int, *, key: PRNGKeyArray):
        self.latent = latent
        keys, size = jax.random.split(key, len(widths) + 1), latent + condition
        self.layers, self.scales, self.shifts = [], [], []
        for width, own in zip(widths, keys, strict=False):
            self.layers.append(eqx.nn.Linear(size, width, key=own))
            self.scales.append(jnp.ones(width))
            self.shifts.append(jnp.zeros(width))
            size += width
        self.exit = eqx.nn.Linear(size, features, key=keys[-1])

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " features"]:
        for layer, scale, shift in zip(self.layers, self.scales, self.shifts, strict=True):
            inputs = jnp.concatenate([jax.nn.relu(standardize(layer(inputs)) * scale + shift), inputs])
        return self.exit(inputs)


GENERATORS["quail_dpgan"] = QuailGenerator
GENERATORS["leaky"] = LeakyGenerator
GENERATORS["leaky_dropout"] = DropoutGenerator
GENERATORS["ctgan"] = CTGANGenerator
