"""Settings of the papers, as methods to change with `dataclasses.replace`.

The papers' noise multipliers are no settings: noise follows from the guarantee.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2] / "src")]

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
from jaxtyping import Array, Float, PRNGKeyArray  # noqa: E402

import understudy as us  # noqa: E402
from understudy.models.networks import GENERATORS, SLOPE  # noqa: E402


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


GENERATORS["quail_dpgan"] = QuailGenerator


def quail_dpgan(num_features: int) -> us.DPGAN:
    """Networks and learning rates of the QUAIL paper's DPGAN, for rows with this many features; choose `steps` and
    `sampling_rate`."""
    return us.DPGAN(
        features="typed",
        marginals_fraction=0.0,
        marginal_weight=0.0,
        arch="quail_dpgan",
        critic_widths=(max(1, num_features * 2 // 3), max(1, num_features // 3)),
        critic_learning_rate=4e-4,
        generator_learning_rate=1e-4,
        betas=(0.9, 0.999),
        ema_decay=0.0,
    )


PGB_GAUSSIANS = us.DPGAN(
    features="typed",
    marginals_fraction=0.0,
    marginal_weight=0.0,
    arch="plain",
    loss="kl_wgan",
    latent=2,
    generator_widths=(512, 256),
    critic_widths=(128, 256),
    critic_learning_rate=2e-3,
    generator_learning_rate=5e-4,
    betas=(0.5, 0.999),
    sampling_rate=0.01,
    steps=15_000,
    ema_decay=0.998,
)
"""Networks and loss of the boosting paper's 25 Gaussians, which does not give the rest. Its ReLUs are leaky: with a
slope of 0.2 ours missed most points."""

_AUTOGAN: dict[str, Any] = {
    "marginals_fraction": 0.0,
    "marginal_weight": 0.0,
    "ema_decay": 0.0,
    "arch": "quail_dpgan",
    "loss": "wgan",
    "fake_term": "paired",
    "weight_clip": 0.01,
    "optimizer": "rmsprop",
    "critic_learning_rate": 5e-3,
    "generator_learning_rate": 5e-3,
    "clip_norm": 0.022,
    "reconstruction": "bce",
}

AUTOGAN_ADULT = us.AutoGAN(
    **_AUTOGAN,
    features="typed",
    code_size=15,
    autoencoder_widths=(60,),
    critic_widths=(70, 35),
    reduction="mean",
    autoencoder_steps=20_000,
    autoencoder_sampling_rate=64 / 32_562,
    autoencoder_clip_norm=0.012,
    steps=15_000,
    sampling_rate=128 / 32_562,
    critic_steps=15,
)
"""Networks, losses and schedules of the DP-auto-GAN paper with an encoder that is sound; its clip bounds are public
constants."""

AUTOGAN_MIMIC = us.AutoGAN(
    **_AUTOGAN,
    encoder="random",
    code_size=128,
    critic_widths=(714, 357),
    autoencoder_steps=30_000,
    autoencoder_sampling_rate=100 / 27_912,
    autoencoder_learning_rate=1e-3,
    weight_decay=1e-3,
    autoencoder_clip_norm=0.8157,
    steps=10_000,
    sampling_rate=128 / 27_912,
    critic_steps=10,
)
"""The same for MIMIC-III. The published code never trains its encoder."""
