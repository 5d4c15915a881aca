"""Settings of the papers, as methods to change with `dataclasses.replace`.

With `noise_multiplier` a training goes on until the budget is used, as in the papers: the plan says how many steps that
is, and what the moments accountant of the papers would state. `dataclasses.replace(method, noise_multiplier=None,
steps=...)` has the same networks with the least noise for a number of steps. Where a paper leaves a number open, a
comment says so. What is not as published, everywhere: gradients are clipped row by row, batches are Poisson samples,
bounds and categories come from a schema, and latent vectors are normal.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "src")]

import understudy as us  # noqa: E402
from benchmarks.papers import methods  # noqa: E402
from benchmarks.papers.networks import QuailGenerator as QuailGenerator  # noqa: E402
from benchmarks.papers.networks import dropout_latent  # noqa: E402
from understudy.synthesizers.bayesgan import BayesGAN  # noqa: E402

NO_MARGINALS: dict[str, Any] = {"marginals_fraction": 0.0, "marginal_weight": 0.0, "ema_decay": 0.0}
"""No paper measures histograms for its generator, or averages it."""
TEACHER_ROWS = 1000
"""Declared rows of a teacher, in the QUAIL paper."""


# ---------------------------------------------------------------------------------------------------------------- QUAIL


def quail_critic(num_features: int) -> tuple[int, int]:
    """Hidden layers of the QUAIL paper's critics, students and teachers, for rows with this many features."""
    return max(1, num_features * 2 // 3), max(1, num_features // 3)


def quail_dpgan(num_features: int) -> us.DPGAN:
    """Networks and learning rates of the QUAIL paper's DPGAN, for rows with this many features; choose `steps` and
    `sampling_rate`."""
    return methods.DPGAN(
        **NO_MARGINALS,
        features="typed",
        arch="quail_dpgan",
        critic_widths=quail_critic(num_features),
        critic_learning_rate=4e-4,
        generator_learning_rate=1e-4,
        betas=(0.9, 0.999),
    )


def quail_dpgan_published(num_features: int, num_rows: int) -> us.DPGAN:
    """The same with the paper's noise: batches of 64, noise multiplier 3.5, until the budget is used.

    The text has a Wasserstein loss, the code binary cross-entropy, which is taken. The optimiser of the code clips the
    gradients of generated rows too.
    """
    return dataclasses.replace(
        quail_dpgan(num_features),
        fake_term="clipped",
        noise_multiplier=3.5,
        clip_norm=1.0,
        sampling_rate=min(1.0, 64 / num_rows),
    )


_CTGAN: dict[str, Any] = {
    "features": "modes",
    "arch": "ctgan",
    "latent": 128,
    "generator_widths": (256, 256),
    "critic_widths": (256, 256),
    "critic_dropout": 0.5,
    "gumbel_temperature": 0.2,
    "critic_learning_rate": 2e-4,
    "generator_learning_rate": 2e-4,
    "betas": (0.5, 0.9),
    "marginals_fraction": 0.1,  # conditions and components come from noisy histograms: the published ones are exact
    "target_fraction": 0.0,
    "marginal_weight": 0.0,
    "ema_decay": 0.0,
}
"""CTGAN's networks. Its weight decay of 1e-6 is left out, and the critic drops nothing while the generator learns."""


def quail_dpctgan(num_rows: int) -> us.DPCTGAN:
    """The QUAIL paper's DP-CTGAN: batches of 500, noise multiplier 5, until the budget is used.

    The loss is Wasserstein's without a penalty (the library's default is cross-entropy), and the generator does not
    learn to meet its condition, as published.
    """
    return methods.DPCTGAN(
        **_CTGAN,
        num_modes=10,
        loss="wgan",
        condition_weight=0.0,
        noise_multiplier=5.0,
        clip_norm=1.0,
        sampling_rate=min(1.0, 500 / num_rows),
    )


def teachers_of(num_rows: int) -> int:
    """One for every 1000 declared rows, two at least."""
    return max(2, num_rows // TEACHER_ROWS)


def quail_pategan(num_features: int, num_rows: int, iterations: int = 32) -> us.PATEGAN:
    """The QUAIL paper's PATE-GAN: Laplace votes on 5 batches of 64 rows in each iteration, learning rate 1e-4.

    The published noise has scale 1000 at any epsilon, and iterations end with the budget: by the paper's accounting 32
    of them at epsilon 1. Here the number is a setting, and noise is the least that fits it. A student step takes 64 of
    the 320 rows labelled last; in the code each batch is used once.
    """
    return methods.PATEGAN(
        **NO_MARGINALS,
        target_fraction=0.0,
        features="typed",
        cross=False,
        arch="quail_dpgan",
        teachers=teachers_of(num_rows),
        iterations=iterations,
        queries=iterations * 5 * 64,
        vote_noise="laplace",
        labels="majority",
        against="half",
        pool=1,
        critic_widths=quail_critic(num_features),
        teacher_widths=quail_critic(num_features),
        teacher_batch=64,
        teacher_steps=5,
        student_batch=64,
        student_steps=5,
        memory=5 * 64,
        critic_learning_rate=1e-4,
        teacher_learning_rate=1e-4,
        generator_learning_rate=1e-4,
        betas=(0.9, 0.999),
    )


def quail_patectgan(num_rows: int, iterations: int = 32) -> us.PATECTGAN:
    """The QUAIL paper's PATE-CTGAN: CTGAN's networks, 5 batches of 500 votes in each iteration, cross-entropy.

    In the published code teachers and student are one network that is trained on private rows; here they are apart.
    The number of iterations is not given.
    """
    return methods.PATECTGAN(
        **_CTGAN,
        cross=False,
        teachers=teachers_of(num_rows) + 1,
        iterations=iterations,
        queries=iterations * 5 * 500,
        vote_noise="laplace",
        labels="majority",
        against="half",
        pool=1,
        teacher_widths=(256, 256),
        teacher_batch=500,
        teacher_steps=5,
        student_batch=500,
        student_steps=5,
        memory=5 * 500,
        teacher_learning_rate=2e-4,
    )


def quail_mwem(rounds: int = 40, split_factor: int | None = None) -> us.MWEM:
    """The QUAIL library's MWEM: half of a pure epsilon for selections, Laplace noise, 20 passes, the last histogram."""
    return us.MWEM(
        noise="laplace",
        columns_first=False,
        rounds=rounds,
        split_factor=split_factor,
        selection_fraction=0.5,
        score="mean",
        target_weight=1.0,
    )


# ------------------------------------------------------------------------------------------------------- smart clipping

SMART_CLIPPING = methods.DPGAN(
    **NO_MARGINALS,
    features="typed",
    loss="saturating_gan",
    optimizer="sgd",
    clip_groups=4,
    clip_allocation="uniform",
    adaptive_clip="public",
    noise_multiplier=4.0,
    sampling_rate=0.01,
)
"""The extended abstract on smart clipping: its minimax loss, groups and bounds that follow public rows, and the noise
and batches of its example (epsilon 1.26 after 10,000 steps at delta 1e-5). Networks, learning rates, the number of
groups and of inner steps are not given: the package's own are taken, and 4 groups."""


# ------------------------------------------------------------------------------------------------------------- boosting

PGB_GAUSSIANS = methods.DPGAN(
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

_PGB: dict[str, Any] = {
    **NO_MARGINALS,
    "features": "typed",
    "fake_term": "clipped",
    "betas": (0.9, 0.999),
    "generator_learning_rate": 1e-3,
}
"""Of the authors' code, whose loss is binary cross-entropy. Betas are not given: those of Adam."""

PGB_GAUSSIANS_PRIVATE = methods.DPGAN(
    **_PGB,
    arch="leaky_dropout",
    latent=dropout_latent(32, (128, 128, 128)),
    generator_widths=(128, 128, 128),
    critic_widths=(128, 128, 128),
    critic_learning_rate=0.01,
    clip_norm=1.0,
    noise_multiplier=1.5,
    sampling_rate=50 / 25_000,
)
"""The private 25 Gaussians of the authors' code: 12,250 steps before boosting, 19,000 without it."""

_WIDTHS = (256, 128, 128)

PGB_CENSUS1940 = methods.DPGAN(
    **_PGB,
    binary="bit",
    arch="leaky_dropout",
    latent=dropout_latent(128, (256, 128)),
    generator_widths=(256, 128),
    critic_widths=(256, 128),
    gumbel_temperature=1e-5,
    critic_learning_rate=0.01,
    clip_norm=1.0,
    noise_multiplier=1.55,
    sampling_rate=100 / 39_660,
)
"""The 1940 census of California, 87 inputs: 7,945 steps before boosting, 12,655 without it."""

PGB_CENSUS2010 = methods.DPGAN(
    **_PGB,
    binary="bit",
    arch="leaky_dropout",
    latent=dropout_latent(512, _WIDTHS),
    generator_widths=_WIDTHS,
    critic_widths=_WIDTHS,
    gumbel_temperature=1e-5,
    critic_learning_rate=0.01,
    clip_norm=2.0,
    noise_multiplier=1.1,
    sampling_rate=500 / 3_723_669,
)
"""The 2010 census of California, 303 inputs. The script clips pairs of rows, so that its true noise multiplier is 0.55;
here rows are clipped one by one. Dropout of the generator is not given for this table."""

PGB_TITANIC = methods.DPGAN(
    **_PGB,
    arch="leaky_dropout",
    latent=dropout_latent(64, _WIDTHS),
    generator_widths=_WIDTHS,
    critic_widths=_WIDTHS,
    gumbel_temperature=1e-5,
    critic_learning_rate=0.009,
    clip_norm=0.01,
    noise_multiplier=10.0,
    sampling_rate=64 / 891,
)
"""Titanic, 27 inputs: 2,960 steps before boosting, 4,535 without it. Without privacy the critic's learning rate is
0.001."""


# ------------------------------------------------------------------------------------------------------------- BayesGAN

BAYESGAN = BayesGAN(
    features="typed",
    marginals_fraction=0.0,
    marginal_weight=0.0,
    arch="plain",
    latent=100,
    generator_widths=(1000,),
    critic_widths=(1000,),
    prior="unit",
    prior_stddev=1.0,
    posterior_temperature=1.0,
    generator_chains=10,
    discriminator_chains=1,
    updates=1,
    sampling_rate=64 / 500,
    generator_batch=64,
    schedule="exponential",
)
"""The DP-BayesGAN paper's networks, 100-1000-41 and 41-1000-1, and its unit prior. It gives no numbers of chains and
updates, batches, step sizes, epsilon or delta: 10 generators, 1 discriminator and batches of 64 are those of Saatchi
and Wilson's code. The ReLUs of the discriminator are leaky here, with a slope of 0.2."""


# ---------------------------------------------------------------------------------------------------------- DP-auto-GAN

_AUTOGAN: dict[str, Any] = {
    **NO_MARGINALS,
    "features": "typed",
    "binary": "bit",
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
"""The generator of the paper has batch normalisation, that of its code layer normalisation: fakes that are paired with
private rows need the latter."""

AUTOGAN_ADULT = methods.AutoGAN(
    **_AUTOGAN,
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
constants. 106 inputs with the paper's 13 columns, education-num as categories and two categories as one bit."""

AUTOGAN_MIMIC = methods.AutoGAN(
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
"""The same for MIMIC-III, 1071 inputs. The published code never trains its encoder."""


def autogan_adult_published(autoencoder: float, critic: float) -> us.AutoGAN:
    """Adult with these noise multipliers of the two phases: the critic's steps go on until the budget is used."""
    return dataclasses.replace(
        AUTOGAN_ADULT, steps=None, noise_multiplier=critic, autoencoder_noise_multiplier=autoencoder
    )


AUTOGAN_NOISE = {0.36: (5.0, 8.0), 0.51: (2.5, 7.5), 1.01: (1.5, 3.5)}
"""Noise multipliers of autoencoder and critic of the models stored with the Adult code, by the epsilon that it names.
Which of the paper's figures they belong to is not said."""
