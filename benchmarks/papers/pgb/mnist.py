"""MNIST: inception scores of a boosted DCGAN. Experiments P3 (not private) and P4 (epsilon 10) of the boosting paper.

    python benchmarks/papers/pgb/mnist.py --profile paper --calibrate
    python benchmarks/papers/pgb/mnist.py --profile paper --tune 9 --seeds 0 1 2 --out benchmarks/results

A DCGAN (KL-WGAN loss) without batch normalisation, which no private critic may have: the generator has layer
normalisation, the critic none. Images go to the package's training loop as arrays; batches, clipped gradients, noise,
selections and game are those of every table. With privacy there is one training of 30 epochs. GAN and DRS take its
last state; PGB takes checkpoints of the first 25, and the selections cost what the last five would have: each output
has epsilon 10 by itself. All critics are evaluated on one real image at a time: the value of an image is then a
function of that image on every device, and the ledger charges the selections. All seeds of a kind train as one
program. With `--tune SEED`, learning rates are chosen on that seed by the score of the last generator. Scores are
those of a classifier that is trained here. The noise of a profile is what `--calibrate` prints for it; a ledger
refuses less, but where there is no accountant (dp-accounting) there is none. Seeded, on public images.
"""

import argparse
import ast
import dataclasses
import datetime
import functools
import importlib.util
import json
import math
import os
import platform
import shlex
import struct
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jaxtyping import Array, Float, PRNGKeyArray, UInt8  # noqa: E402

from understudy.benchmark.tables import load_mnist, missing_source  # noqa: E402
from understudy.encoding.features import Block  # noqa: E402
from understudy.errors import ConfigError  # noqa: E402
from understudy.models.networks import SLOPE  # noqa: E402
from understudy.models.pool import draw_indices  # noqa: E402
from understudy.privacy.dpsgd import ChargedSteps  # noqa: E402
from understudy.privacy.noise import SeededNoise  # noqa: E402
from understudy.privacy.rows import PrivateUnits  # noqa: E402
from understudy.privacy.sampling import round_sampling_rate  # noqa: E402
from understudy.synthesizers.boosted.game import (  # noqa: E402
    Constant,
    Outcome,
    Select,
    Together,
    Values,
    best_response,
    draw_distinct,
    evaluate_critics,
    play,
    reject_exactly,
    rejection_sample,
)
from understudy.training.gan import Hyperparameters, init_from_networks, train  # noqa: E402
from understudy.training.generation import generate  # noqa: E402
from understudy.training.loop import RunOptions, TrainingCheckpoint  # noqa: E402
from understudy.training.population import Population  # noqa: E402
from understudy.training.settings import Settings  # noqa: E402

OUTPUTS = ("GAN", "DRS", "PGB", "PGB+DRS")
PUBLISHED = {
    "not private": {"GAN": 8.41, "DRS": 8.21, "PGB": 8.76, "PGB+DRS": 8.77},
    "epsilon 10": {"GAN": 8.07, "DRS": 8.18, "PGB": 8.58, "PGB+DRS": 8.66},
}
REAL, ACCURACY = 9.93, 0.9965
"""Published, of the test images and of the classifier."""
LEAST_ACCURACY = 0.995
KINDS = {"not_private": "not private", "private": "epsilon 10"}
EPSILON = 10.0
SIDE = 28
PIXELS = SIDE * SIDE
NAME = "pgb_mnist"

Codes = UInt8[np.ndarray, "images pixels"]
"""Images as they are stored and scored: a byte for each pixel."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """How large a run is, and the settings of its training."""

    noise: float = 0.559419
    """The noise multiplier of a private critic step."""
    picks: float = 0.024624
    """Epsilon of one pick."""
    tried: tuple[tuple[float, float], ...] = ((2e-4, 2e-4), (5e-4, 2e-4), (2e-4, 5e-4), (5e-4, 5e-4))
    """Learning rates of critic and generator among which `--tune` chooses."""
    images: int | None = None
    """Real images that are used; None: all 60,000."""
    batch: int = 256
    epochs: float = 30
    boosted_epochs: float = 25
    """Of a private run: how many of the epochs PGB pays for, and takes checkpoints of."""
    every: int = 47
    """Steps from one checkpoint to the next: a fifth of an epoch."""
    checkpoints: int = 100
    samples_per_generator: int = 1000
    rounds: int = 1000
    proposals: int = 50_000
    """Images of the last generator among which DRS chooses."""
    scored: int = 5000
    latent: int = 100
    channels: tuple[int, int] = (64, 128)
    """Of the critic's two layers; of the generator's in reverse."""
    critic_learning_rate: float = 2e-4
    generator_learning_rate: float = 2e-4
    private_critic_rate: float = 2e-4
    betas: tuple[float, float] = (0.5, 0.999)
    clip: float = 1.0
    adaptive: str = "public"
    """Of a private run: the clip bound follows the norms of generated images, which costs nothing; "none": it stays."""
    average: float = 0.0
    """Weights are not averaged, so that checkpoints differ."""
    classifier_channels: tuple[int, int] = (32, 64)
    classifier_epochs: int = 20

    def steps(self, images: int, epochs: float) -> int:
        """Whole stretches between checkpoints, so that all are one compiled program."""
        return self.every * math.ceil(epochs * images / self.batch / self.every)

    def settings(self, images: int, *, private: bool) -> Settings:
        return Settings(
            blocks=(Block("tanh", PIXELS),),
            batch_size=self.batch,
            loss="kl_wgan",
            latent=self.latent,
            generator_batch=self.batch,
            ema_decay=self.average,
            betas=self.betas,
            adaptive_clip=self.adaptive if private else "none",
        )


PROFILES = {
    "smoke": Profile(
        noise=0.390940,
        picks=0.278596,
        images=600,
        batch=32,
        epochs=0.6,
        boosted_epochs=0.3,
        every=4,
        checkpoints=2,
        samples_per_generator=50,
        rounds=20,
        proposals=200,
        scored=100,
        latent=8,
        channels=(4, 8),
        adaptive="none",
        classifier_channels=(4, 8),
        classifier_epochs=10,
    ),
    "paper": Profile(),
}


def sampling_rate(profile: Profile, images: int) -> float:
    return round_sampling_rate(profile.batch / images)


def has_images() -> bool:
    return missing_source("mnist") is None


def real_images(limit: int | None) -> tuple[Codes, np.ndarray, Codes, np.ndarray]:
    """Training images and their digits, test images and theirs; the first `limit` of each."""
    found = load_mnist()
    return (
        found.train[:limit].reshape(-1, PIXELS),
        found.train_digits[:limit].astype(np.int32),
        found.test[:limit].reshape(-1, PIXELS),
        found.test_digits[:limit].astype(np.int32),
    )


def features_of(codes: Array | np.ndarray) -> Float[Array, "*images pixels"]:
    """Bytes as numbers from -1 to 1, and back."""
    return jnp.asarray(codes).astype(jnp.float32) / 127.5 - 1


def codes_of(features: Float[Array, "*images pixels"]) -> Array:
    return jnp.rint((features + 1) * 127.5).clip(0, 255).astype(jnp.uint8)


def units_of(codes: Codes) -> PrivateUnits:
    """Every image is a unit of one row."""
    return PrivateUnits(features_of(codes)[:, None], jnp.ones((len(codes), 1), dtype=bool))


# ------------------------------------------------------------------------------------------------------------- networks


class Down(eqx.Module):
    """A convolution with kernel 4, stride 2 and padding 1: half the side.

    As patches and one matrix product: gradients of every image are then a batch of matrix products, where those of a
    built-in convolution are one small convolution for each image.
    """

    weight: Float[Array, "outputs patch"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, *, key: PRNGKeyArray):
        self.weight = math.sqrt(2 / (16 * inputs)) * jax.random.normal(key, (outputs, 16 * inputs))
        self.bias = jnp.zeros(outputs)

    def __call__(self, image: Float[Array, "side side inputs"]) -> Float[Array, "half half outputs"]:
        side, _, inputs = image.shape
        half = side // 2 + 1
        squares = jnp.pad(image, ((1, 1), (1, 1), (0, 0))).reshape(half, 2, half, 2, inputs)
        squares = squares.transpose(0, 2, 1, 3, 4).reshape(half, half, 4 * inputs)
        corners = [squares[:-1, :-1], squares[:-1, 1:], squares[1:, :-1], squares[1:, 1:]]
        return jnp.concatenate(corners, axis=2) @ self.weight.T + self.bias


class Up(eqx.Module):
    """The transpose of such a convolution: twice the side."""

    weight: Float[Array, "patch inputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, *, key: PRNGKeyArray):
        # Every pixel of the result is a sum over four places.
        self.weight = math.sqrt(2 / (4 * inputs)) * jax.random.normal(key, (16 * outputs, inputs))
        self.bias = jnp.zeros(outputs)

    def __call__(self, image: Float[Array, "side side inputs"]) -> Float[Array, "double double outputs"]:
        side, outputs = image.shape[0], len(self.bias)
        corners = (image @ self.weight.T).reshape(side, side, 2, 2, 4 * outputs)
        places = ((0, 0), (0, 1), (1, 0), (1, 1))
        squares = sum(jnp.pad(corners[:, :, a, b], ((a, 1 - a), (b, 1 - b), (0, 0))) for a, b in places)
        canvas = squares.reshape(side + 1, side + 1, 2, 2, outputs).transpose(0, 2, 1, 3, 4)  # type: ignore[union-attr]
        return canvas.reshape(2 * side + 2, 2 * side + 2, outputs)[1:-1, 1:-1] + self.bias


class Generator(eqx.Module):
    """From latent numbers to the logits of an image: 7, 14, 28 pixels a side."""

    entry: eqx.nn.Linear
    middle: Up
    exit: Up
    norms: list[eqx.nn.LayerNorm]
    channels: tuple[int, int] = eqx.field(static=True)

    def __init__(self, latent: int, channels: tuple[int, int], *, key: PRNGKeyArray):
        keys = jax.random.split(key, 3)
        self.channels = channels
        self.entry = eqx.nn.Linear(latent, 49 * channels[0], key=keys[0])
        self.middle = Up(channels[0], channels[1], key=keys[1])
        self.exit = Up(channels[1], 1, key=keys[2])
        self.norms = [eqx.nn.LayerNorm(49 * channels[0]), eqx.nn.LayerNorm((14, 14, channels[1]))]

    def __call__(self, inputs: Float[Array, " latent"]) -> Float[Array, " pixels"]:
        hidden = jax.nn.relu(self.norms[0](self.entry(inputs))).reshape(7, 7, self.channels[0])
        hidden = jax.nn.relu(self.norms[1](self.middle(hidden)))
        return self.exit(hidden).reshape(PIXELS)


class Critic(eqx.Module):
    """From one image to a score: 28, 14, 7 pixels a side. Nothing in it mixes images."""

    layers: list[Down]
    exit: eqx.nn.Linear

    def __init__(self, channels: tuple[int, int], *, key: PRNGKeyArray):
        keys = jax.random.split(key, 3)
        self.layers = [Down(1, channels[0], key=keys[0]), Down(channels[0], channels[1], key=keys[1])]
        self.exit = eqx.nn.Linear(49 * channels[1], "scalar", key=keys[2])

    def __call__(self, row: Float[Array, " pixels"], *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        hidden = row.reshape(SIDE, SIDE, 1)
        for layer in self.layers:
            hidden = jax.nn.leaky_relu(layer(hidden), SLOPE)
        return self.exit(hidden.reshape(-1))


# ------------------------------------------------------------------------------------------------------ inception score


class Classifier(eqx.Module):
    """Four convolutions and two dense layers, with dropout before each of the latter."""

    convolutions: list[eqx.nn.Conv2d]
    dense: eqx.nn.Linear
    exit: eqx.nn.Linear

    def __init__(self, channels: tuple[int, int], *, key: PRNGKeyArray):
        keys, (a, b) = jax.random.split(key, 6), channels
        sizes = [(1, a), (a, a), (a, b), (b, b)]
        self.convolutions = [
            eqx.nn.Conv2d(i, o, 3, padding=1, key=one) for (i, o), one in zip(sizes, keys, strict=False)
        ]
        self.dense = eqx.nn.Linear(49 * b, 4 * b, key=keys[4])
        self.exit = eqx.nn.Linear(4 * b, 10, key=keys[5])

    def __call__(self, image: Float[Array, " pixels"], key: PRNGKeyArray | None = None) -> Float[Array, " digits"]:
        hidden, keys = image.reshape(1, SIDE, SIDE), (None, None) if key is None else jax.random.split(key)
        for number, layer in enumerate(self.convolutions):
            hidden = jax.nn.relu(layer(hidden))
            if number % 2:
                hidden = hidden.reshape(len(hidden), hidden.shape[1] // 2, 2, -1, 2).max(axis=(2, 4))
        hidden = jax.nn.relu(self.dense(_dropped(hidden.reshape(-1), 0.25, keys[0])))
        return self.exit(_dropped(hidden, 0.5, keys[1]))


def _dropped(values: Array, share: float, key: PRNGKeyArray | None) -> Array:
    if key is None:
        return values
    return jnp.where(jax.random.bernoulli(key, 1 - share, values.shape), values / (1 - share), 0.0)


def _shifted(image: Float[Array, " pixels"], key: PRNGKeyArray) -> Float[Array, " pixels"]:
    """By up to two pixels each way; background comes in."""
    wider = jnp.pad(image.reshape(SIDE, SIDE), 2, constant_values=-1.0)
    return jax.lax.dynamic_slice(wider, jax.random.randint(key, (2,), 0, 5), (SIDE, SIDE)).reshape(-1)


def trained_classifier(
    codes: Codes, digits: np.ndarray, channels: tuple[int, int], epochs: int, *, seed: int, batch: int = 200
) -> Classifier:
    """Cross-entropy with shifts and dropout; Adam, whose rate falls to nothing."""
    classifier = Classifier(channels, key=jax.random.key(seed))
    batch = min(batch, len(codes) // 10)
    rounds = len(codes) // batch
    adam = optax.adam(optax.cosine_decay_schedule(2e-3, epochs * rounds))
    trained, rest = eqx.partition(classifier, eqx.is_inexact_array)
    images, labels = jnp.asarray(codes), jnp.asarray(digits)

    def step(state: tuple[Any, Any], given: tuple[Array, PRNGKeyArray]) -> tuple[tuple[Any, Any], None]:
        (trained, moments), (at, key) = state, given
        shift_keys, drop_keys = jax.random.split(key, (2, batch))
        shown = jax.vmap(_shifted)(features_of(images[at]), shift_keys)

        def loss(trained: Any) -> Array:
            logits = jax.vmap(eqx.combine(trained, rest))(shown, drop_keys)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels[at]).mean()

        updates, moments = adam.update(jax.grad(loss)(trained), moments)
        return (optax.apply_updates(trained, updates), moments), None

    @jax.jit
    def epoch(state: tuple[Any, Any], key: PRNGKeyArray) -> tuple[Any, Any]:
        order_key, step_key = jax.random.split(key)
        order = jax.random.permutation(order_key, len(codes))[: rounds * batch].reshape(rounds, batch)
        return jax.lax.scan(step, state, (order, jax.random.split(step_key, rounds)))[0]

    state = (trained, adam.init(trained))
    for number in range(epochs):
        state = epoch(state, jax.random.fold_in(jax.random.key(seed + 1), number))
    return eqx.combine(state[0], rest)


def predictions(classifier: Classifier, at_once: int = 1000) -> Callable[[Codes], np.ndarray]:
    """From images to the probability of each digit."""
    shown = jax.jit(lambda codes: jax.nn.softmax(jax.vmap(classifier)(features_of(codes))))

    def of(codes: Codes) -> np.ndarray:
        filled = np.concatenate([codes, np.repeat(codes[:1], -len(codes) % at_once, axis=0)])
        parts = [np.asarray(shown(filled[start : start + at_once])) for start in range(0, len(filled), at_once)]
        return np.concatenate(parts)[: len(codes)]

    return of


def inception_score(probabilities: Float[np.ndarray, "images digits"]) -> float:
    """exp of the mean divergence of p(digit | image) from p(digit): 1 to 10."""
    each = np.maximum(np.asarray(probabilities, dtype=np.float64), 1e-16)
    return float(np.exp(np.mean(np.sum(each * (np.log(each) - np.log(each.mean(axis=0))), axis=1))))


# -------------------------------------------------------------------------------------------------- privacy cost


def has_accountant() -> bool:
    return importlib.util.find_spec("dp_accounting") is not None


def delta(images: int) -> float:
    return 1 / (2 * images)


def _steps(profile: Profile, images: int, epochs: float, noise: float | None = None) -> Any:
    from understudy.privacy.events import SubsampledGaussian
    from understudy.privacy.ledger import Query

    steps, rate = profile.steps(images, epochs), round_sampling_rate(profile.batch / images)
    return Query("critic", f"{steps} critic steps", SubsampledGaussian(rate, noise or profile.noise, steps))


def _picks(profile: Profile, epsilon: float | None = None) -> Any:
    from understudy.privacy.events import Selections
    from understudy.privacy.ledger import Query

    return Query(
        "selections", f"{profile.rounds} selections among critics", Selections(epsilon or profile.picks, profile.rounds)
    )


def calibrated(profile: Profile, images: int) -> tuple[float, float]:
    """The least noise of the whole training, and the best picks beside its first part, both within epsilon 10."""
    from understudy.privacy.ledger import Budget

    budget = Budget(EPSILON, delta(images))
    noise = budget.calibrate(lambda s: [_steps(profile, images, profile.epochs, s).event])
    part = _steps(profile, images, profile.boosted_epochs, noise)
    picks = 1 / budget.after([part]).calibrate(lambda s: [_picks(profile, 1 / s).event])
    return math.ceil(noise * 1e6) / 1e6, math.floor(picks * 1e6) / 1e6


def calibration(profile: Profile, images: int) -> str:
    """What `--calibrate` prints: the costs of the profile, and of 25 epochs alone."""
    from understudy.privacy.events import SubsampledGaussian
    from understudy.privacy.ledger import Budget

    rate, steps = round_sampling_rate(profile.batch / images), math.ceil(25 * images / profile.batch)
    alone = Budget(EPSILON, delta(images)).calibrate(lambda s: [SubsampledGaussian(rate, s, steps)])
    noise, picks = calibrated(profile, images)
    whole, part = (profile.steps(images, epochs) for epochs in (profile.epochs, profile.boosted_epochs))
    return (
        f"{steps:,} steps at {profile.batch}/{images:,}, epsilon {EPSILON:g}, delta {delta(images):.3g}: {alone:.4f}\n"
        f"{whole:,} steps: {noise}; after {part:,} of them {profile.rounds:,} picks of {picks} each\n"
        f"--noise {noise} --picks {picks}"
    )


def paid_for_training(profile: Profile, images: int) -> float:
    """Charges the whole training, on a ledger of its own: what GAN and DRS are made of."""
    from understudy.privacy.ledger import Guarantee, Ledger

    ledger = Ledger(Guarantee(EPSILON, delta(images)), noise=SeededNoise(0))
    ledger.charge(_steps(profile, images, profile.epochs))
    return ledger.spent().epsilon


def picks_of(
    profile: Profile, judge: Callable[[np.ndarray], np.ndarray], count: int, codes: Codes, seed: int
) -> tuple[Select, dict[str, Any]]:
    """Paid ones, or the same without a ledger; and what they cost, or why nothing was charged."""
    why = "there was no accountant here"
    if has_accountant():
        try:
            return private_pick(profile, judge, count, codes, seed)
        except ConfigError as error:  # a device that rounds a row by its place: a long training is not thrown away
            why = f"the ledger's check refused: {error}"
    return unpriced_pick(profile, evaluate_critics(judge, count, codes), seed), {"not charged": why}


def private_pick(
    profile: Profile, judge: Callable[[np.ndarray], np.ndarray], count: int, codes: Codes, seed: int
) -> tuple[Select, dict[str, float]]:
    """Selections of a ledger that was charged for the first part of the training, and what both cost."""
    from understudy.privacy.ledger import Guarantee, Ledger
    from understudy.privacy.rows import PrivateRows
    from understudy.privacy.selection import RowFunctions, noisy_function_selections
    from understudy.schema import Domain

    images = len(codes)
    domain = Domain(names=tuple(map(str, range(PIXELS))), sizes=(256,) * PIXELS, num_rows=images)
    ledger = Ledger(Guarantee(EPSILON, delta(images)), noise=SeededNoise(seed))
    ledger.charge(_steps(profile, images, profile.boosted_epochs))
    trained = ledger.spent().epsilon
    pick = noisy_function_selections(
        PrivateRows(codes, domain), RowFunctions(judge, count, constant=True), _picks(profile), ledger
    )
    return pick, {"epsilon, training": trained, "epsilon, with picks": ledger.spent().epsilon}


def unpriced_pick(profile: Profile, real: Values, seed: int) -> Select:
    """The same law where there is no accountant, so no ledger: odds exp(epsilon * sum), for public images alone."""
    noise, means = SeededNoise(seed), means_of(real)
    return lambda public: noise.noisy_argmax(real.num_samples * (means - public), 1 / profile.picks)


def means_of(real: Values) -> Float[np.ndarray, " critics"]:
    """Of each critic over public images, and of the constant one."""
    return np.append(real.means(np.full(real.num_samples, 1 / real.num_samples)), 0.5)


# ------------------------------------------------------------------------------------------------------------------ run


def trained(
    profile: Profile, codes: Codes, *, private: bool, seed: int, progress: Callable[[float, str], None]
) -> tuple[TrainingCheckpoint, list[TrainingCheckpoint]]:
    """The last state, and the checkpoints that PGB may use."""
    settings = profile.settings(len(codes), private=private)
    noise, clip, critic_learning_rate = 0.0, math.inf, profile.critic_learning_rate
    if private:
        noise, clip, critic_learning_rate = profile.noise, profile.clip, profile.private_critic_rate
    hyperparameters = Hyperparameters.of(critic_learning_rate, profile.generator_learning_rate, clip)
    steps = profile.steps(len(codes), profile.epochs)
    key, network_key = jax.random.split(jax.random.key(seed))
    generator_key, critic_key = jax.random.split(network_key)
    generator = Generator(profile.latent, profile.channels[::-1], key=generator_key)
    state, kept = train(
        settings,
        ChargedSteps(units_of(codes), jnp.float32(noise), sampling_rate(profile, len(codes)), steps),
        hyperparameters,
        key,
        network_key=network_key,
        state=init_from_networks(settings, hyperparameters, generator, Critic(profile.channels, key=critic_key)),
        options=RunOptions(keep_every=profile.every, progress=progress),
    )
    last = profile.steps(len(codes), profile.boosted_epochs) if private else math.inf
    return jax.device_get(TrainingCheckpoint.of(state)), [one for one in kept if one.iteration <= last][
        -profile.checkpoints :
    ]


@eqx.filter_jit
def _made(settings: Settings, generator: Any, count: int, key: PRNGKeyArray) -> Array:
    return codes_of(generate(settings, generator, count, key)[1])


def sampler(profile: Profile, images: int) -> Callable[[Any, int, PRNGKeyArray], Codes]:
    """From a generator to new images, in one compiled shape."""
    settings, size = profile.settings(images, private=False), profile.samples_per_generator

    def made(generator: Any, count: int, key: PRNGKeyArray) -> Codes:
        keys = (jax.random.fold_in(key, number) for number in range(-(-count // size)))
        return np.concatenate([np.asarray(_made(settings, generator, size, one)) for one in keys])[:count]

    return made


@eqx.filter_jit
def _probabilities(critics: Critic, codes: Array) -> Float[Array, "images critics"]:
    leaves, rest = eqx.partition(critics, eqx.is_array)
    shown = features_of(codes)
    return jax.lax.map(lambda one: jax.nn.sigmoid(jax.vmap(eqx.combine(one, rest))(shown)), leaves).T


@eqx.filter_jit
def _probabilities_one_by_one(critics: Critic, codes: Array) -> Float[Array, "images critics"]:
    leaves, rest = eqx.partition(critics, eqx.is_array)

    def of_image(image: Array) -> Float[Array, " critics"]:
        return jax.nn.sigmoid(jax.vmap(lambda one: eqx.combine(one, rest)(image))(leaves))

    return jax.lax.map(of_image, features_of(codes))


def judge_of(
    critics: Sequence[Critic], *, one_by_one: bool = False
) -> Callable[[np.ndarray], Float[np.ndarray, "images critics"]]:
    """The sigmoid of every critic's score. `one_by_one`: no digit of an image's value depends on other images."""
    stacked = jax.tree_util.tree_map(lambda *each: jnp.stack(each) if eqx.is_array(each[0]) else each[0], *critics)
    function = _probabilities_one_by_one if one_by_one else _probabilities
    return lambda codes: np.asarray(function(stacked, jnp.asarray(codes, dtype=jnp.uint8)))


Training = tuple[TrainingCheckpoint, list[TrainingCheckpoint]]


def trainings(profiles: Sequence[tuple[Profile, int]], codes: Codes, *, private: bool) -> list[Training]:
    """A training for each profile and seed, all as one program: they differ in learning rates and seeds."""
    fits = [
        functools.partial(trained, profile, codes, private=private, seed=seed, progress=lambda share, words: None)
        for profile, seed in profiles
    ]
    found = Population[Training]().run(fits)
    for result in found:
        if isinstance(result, Exception):
            raise result
    return [result for result in found if not isinstance(result, Exception)]


def tune(
    profile: Profile, kind: str, codes: Codes, predict: Callable[[Codes], np.ndarray], seed: int
) -> tuple[Profile, dict[str, float]]:
    """The profile with the learning rates whose last generator scores best on this seed, and all scores."""
    tried = [dataclasses.replace(profile, **_rates(kind, *rates)) for rates in profile.tried]
    several = trainings([(each, seed) for each in tried], codes, private=kind != "not private")
    made, scores = sampler(profile, len(codes)), {}
    for rates, (last, _) in zip(profile.tried, several, strict=True):
        images = made(last.average, profile.scored, jax.random.key(1000 + seed))
        scores[f"{rates[0]:g}, {rates[1]:g}"] = inception_score(predict(images))
    print(f"{kind}, seed {seed}: {scores}", flush=True)
    return tried[int(np.argmax(list(scores.values())))], scores


def _rates(kind: str, critic: float, generator: float) -> dict[str, Any]:
    name = "critic_learning_rate" if kind == "not private" else "private_critic_rate"
    return {name: critic, "generator_learning_rate": generator}


def one(
    profile: Profile,
    kind: str,
    codes: Codes,
    predict: Callable[[Codes], np.ndarray],
    seed: int,
    training: Training | None = None,
) -> tuple[dict[str, Any], dict[str, Codes]]:
    """One training and what becomes of it: figures and images."""
    began, private = time.monotonic(), kind != "not private"
    result: dict[str, Any] = {"kind": kind, "seed": seed}
    seconds: dict[str, int] = {}

    def timed(name: str) -> None:
        seconds[name] = round(time.monotonic() - began)
        print(f"{kind}, seed {seed}: {name} after {seconds[name]} s", flush=True)

    if private:
        result |= {"noise": profile.noise, "epsilon of a pick": profile.picks}
        if has_accountant():
            result["epsilon, GAN"] = paid_for_training(profile, len(codes))
            timed("paid")
    last, kept = training or trained(profile, codes, private=private, seed=seed, progress=_told(kind))
    timed("trained")
    pool_key, proposal_key = jax.random.split(jax.random.key(1000 + seed))
    made, each = sampler(profile, len(codes)), profile.samples_per_generator
    pool = np.concatenate([made(k.average, each, jax.random.fold_in(pool_key, n)) for n, k in enumerate(kept)])
    proposals = made(last.average, profile.proposals, proposal_key)
    timed("drawn")

    judge = judge_of([one.critic for one in kept])
    critics = evaluate_critics(judge, len(kept), pool)
    of_last = evaluate_critics(judge_of([last.critic]), 1, proposals).mixture(np.ones(1))
    timed("judged")
    judge_real = judge_of([one.critic for one in kept], one_by_one=True)
    if private:
        pick, spent = picks_of(profile, judge_real, len(kept), codes, seed)
        result |= spent
    else:
        pick = best_response(means_of(evaluate_critics(judge, len(kept), codes)))
    outcome = play(Together([critics, Constant(len(pool))]), pick, rounds=profile.rounds)
    timed("boosted")

    found = chosen(profile, pool, proposals, of_last, outcome, np.random.default_rng(seed))
    result |= {name: figures(predict(images), kept) for name, (images, kept) in found.items()}
    result["rates"] = [profile.private_critic_rate if private else profile.critic_learning_rate]
    result["rates"] += [profile.generator_learning_rate]
    by_generator = predict(pool).reshape(len(kept), each, 10)
    result["checkpoints"] = [
        [int(one.iteration), inception_score(p), float(w)]
        for one, p, w in zip(kept, by_generator, outcome.weights.reshape(len(kept), each).sum(axis=1), strict=True)
    ]
    result["critics picked"] = int((outcome.shares > 0).sum())
    timed("scored")
    best = np.argsort(-outcome.weights, kind="stable")[:100]
    panels = {name: images[:100] for name, (images, _) in found.items() if name in OUTPUTS}
    return result | {"seconds": seconds}, panels | {"largest weights": pool[best]}


def chosen(
    profile: Profile,
    pool: Codes,
    proposals: Codes,
    of_last: np.ndarray,
    outcome: Outcome,
    generator: np.random.Generator,
) -> dict[str, tuple[Codes, int]]:
    """At most `scored` images of each output, and among how many they were chosen."""

    def some(images: Codes, kept: np.ndarray) -> tuple[Codes, int]:
        return images[generator.permutation(kept)[: profile.scored]], len(kept)

    rejected = rejection_sample(of_last, generator)
    boosted = draw_distinct(outcome.weights, generator)
    flat = np.full(len(pool), 1 / len(pool))
    exact = {
        "pool": flat,
        "pool x odds": reject_exactly(flat, outcome.mixture),
        "PGB x odds": reject_exactly(outcome.weights, outcome.mixture),
    }
    variants = {
        name: (pool[draw_indices(weights, profile.scored, generator)], len(pool)) for name, weights in exact.items()
    }
    variants["distinct"] = some(pool, boosted)
    return variants | {
        "GAN": (proposals[: profile.scored], len(proposals)),
        "DRS": some(proposals, rejected),
        "PGB": (pool[draw_indices(outcome.weights, profile.scored, generator)], len(pool)),
        "PGB+DRS": some(pool, boosted[rejection_sample(outcome.mixture[boosted], generator)]),
    }


def figures(probabilities: np.ndarray, kept: int) -> dict[str, Any]:
    digits = np.bincount(probabilities.argmax(axis=1), minlength=10)
    return {
        "score": inception_score(probabilities),
        "images": len(probabilities),
        "of": kept,
        "sureness": float(probabilities.max(axis=1).mean()),
        "digits": digits.tolist(),
    }


def _told(kind: str) -> Callable[[float, str], None]:
    shown = [-1]

    def tell(share: float, words: str) -> None:
        if int(10 * share) > shown[0]:
            shown[0] = int(10 * share)
            print(f"{kind}: {words}", flush=True)

    return tell


# ---------------------------------------------------------------------------------------------------------------- pages


def page(profile: Profile, results: Sequence[Mapping[str, Any]], classifier: Mapping[str, float]) -> str:
    command = shlex.join(["python", "benchmarks/papers/pgb/mnist.py", *sys.argv[1:]])
    device = jax.devices()[0]
    machine = f"{platform.machine()}, {os.cpu_count()} CPU cores" if device.platform == "cpu" else device.device_kind
    parts = [
        f"""# Private post-GAN boosting: MNIST (P3, P4)

`{command}`, {datetime.date.today()}, {machine}, Python {platform.python_version()}, JAX {jax.__version__}.
Seeded runs on public data. Inception scores of at most {profile.scored:,} images each, by a classifier that gets
{100 * classifier["accuracy"]:.2f}% of the test images right (published: {100 * ACCURACY:.2f}%); real test images have
{classifier["real"]:.2f} (published: {REAL}). {profile.epochs:g} epochs in Poisson draws of {profile.batch}, channels
{profile.channels[0]} and {profile.channels[1]}; the last {profile.checkpoints} checkpoints (every {profile.every}
steps), {profile.samples_per_generator:,} images of each, {profile.rounds:,} rounds; DRS chooses among
{profile.proposals:,}.
"""
    ]
    for kind in (kind for kind in PUBLISHED if any(result["kind"] == kind for result in results)):
        here = [result for result in results if result["kind"] == kind]
        lines = [f"| {'output':<18} | score | images, of | sureness |", "|---|---:|---:|---:|"]
        for name in OUTPUTS:
            scores = [result[name]["score"] for result in here]
            of = f"{here[0][name]['images']:,}, {here[0][name]['of']:,}"
            sureness = np.median([result[name]["sureness"] for result in here])
            lines.append(f"| {name}, published | {PUBLISHED[kind][name]:.2f} | | |")
            lines.append(f"| {name}, here | {np.median(scores):.2f} | {of} | {sureness:.3f} |")
        parts.append(f"## {kind[0].upper()}{kind[1:]}\n\n" + "\n".join(lines) + "\n\n" + _facts(profile, here))
        file = f"{NAME}_{kind.replace(' ', '_')}.png"
        parts.append(f"![{', '.join(OUTPUTS)}, and the 100 images with the largest weights]({file})\n")
    return "\n".join(parts)


def _facts(profile: Profile, here: Sequence[Mapping[str, Any]]) -> str:
    last = here[-1]
    seeds = ", ".join(str(result["seed"]) for result in here)
    told = f"Seeds {seeds}; {last['seconds']['scored']} seconds for the last of them. "
    if "noise" in last:
        told += (
            f"Noise multiplier {last['noise']:.4f}, {profile.rounds:,} selections of epsilon "
            f"{last['epsilon of a pick']:.4g}"
        )
        if "epsilon, with picks" in last:
            told += (
                f". Epsilon of GAN and DRS {last['epsilon, GAN']:.3f}; of PGB and PGB+DRS "
                f"{last['epsilon, with picks']:.3f}, of which {last['epsilon, training']:.3f} are for its"
                f" {profile.boosted_epochs:g} epochs"
            )
        else:
            told += f", not charged: {last['not charged']}"
        told += ". "
    scores = [score for _, score, _ in last["checkpoints"]]
    told += (
        f"Checkpoints by themselves have {min(scores):.2f} to {max(scores):.2f}, the last of them {scores[-1]:.2f} "
        f"({profile.samples_per_generator:,} images each); {last['critics picked']} critics were selected.\n"
    )
    return told


def grid(images: Codes) -> np.ndarray:
    """A hundred images as ten lines of ten, with a rim."""
    squares = np.zeros((100, SIDE, SIDE), dtype=np.uint8)
    squares[: len(images)] = images[:100].reshape(-1, SIDE, SIDE)
    lines = squares.reshape(10, 10, SIDE, SIDE).transpose(0, 2, 1, 3).reshape(10 * SIDE, 10 * SIDE)
    return np.pad(lines, 4, constant_values=128)


def png(grey: np.ndarray) -> bytes:
    """Bytes as a grey picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + line.tobytes() for line in grey)
    header = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def picture(panels: Mapping[str, Codes]) -> bytes:
    """The grids side by side, in few shades: a small file."""
    return png(np.concatenate([grid(images) for images in panels.values()], axis=1) // 16 * 17)


def write(
    folder: Path,
    profile: Profile,
    results: Sequence[Mapping[str, Any]],
    classifier: Mapping[str, float],
    panels: Mapping[str, Mapping[str, Codes]],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"classifier": dict(classifier), **result}) + "\n" for result in results]
    part = folder / f"{NAME}.part"
    part.write_text("".join(lines))
    os.replace(part, folder / f"{NAME}.jsonl")
    (folder / f"{NAME}.md").write_text(page(profile, results, classifier))
    for kind, grids in panels.items():
        (folder / f"{NAME}_{kind.replace(' ', '_')}.png").write_bytes(picture(grids))


def finished(folder: Path | None, terms: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Results of a run on the same terms that was cut short."""
    file = None if folder is None else folder / f"{NAME}.jsonl"
    if file is None or not file.exists():
        return []
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [line for line in lines if all(line.get(name, ...) == value for name, value in terms.items())]


def arguments() -> tuple[argparse.Namespace, Profile]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=list(PROFILES), default="smoke")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no training after this many minutes")
    parser.add_argument("--noise", type=float, help="noise multiplier of a private run, instead of the profile's")
    parser.add_argument("--picks", type=float, help="epsilon of a pick, instead of the profile's")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the profile")
    parser.add_argument("--out", type=Path, help="folder for results; left out: none are written")
    parser.add_argument("--tune", type=int, metavar="SEED", help="choose learning rates on this seed first")
    parser.add_argument("--calibrate", action="store_true", help="print what noise the profile needs, and stop")
    found = parser.parse_args()
    changes = {name: _value(text) for name, text in (pair.split("=", 1) for pair in found.set)}
    changes |= {name: value for name in ("noise", "picks") if (value := getattr(found, name)) is not None}
    return found, dataclasses.replace(PROFILES[found.profile], **changes)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def main() -> None:
    began = time.monotonic()
    found, profile = arguments()
    if found.calibrate:
        print(calibration(profile, profile.images or 60_000))
        return
    if not has_images():
        print(f"Skipped. {missing_source('mnist')}")
        return
    codes, digits, test_codes, test_digits = real_images(profile.images)
    size = profile.classifier_channels, profile.classifier_epochs
    predict = predictions(trained_classifier(codes, digits, *size, seed=0))
    of_test = predict(test_codes)
    accuracy = float((of_test.argmax(axis=1) == test_digits).mean())
    classifier = {"accuracy": accuracy, "real": inception_score(of_test[: profile.scored])}
    print(
        f"classifier: {accuracy:.4f} right, real {classifier['real']:.3f}, {time.monotonic() - began:.0f} s", flush=True
    )
    if profile == PROFILES["paper"] and accuracy < LEAST_ACCURACY:
        print(f"Scores of a classifier below {LEAST_ACCURACY} are not comparable.")
    terms = {"profile": found.profile, "changed": sorted(found.set), "tuned on": found.tune}
    results = finished(found.out, terms)
    panels: dict[str, dict[str, Codes]] = {}
    for kind in (KINDS[name] for name in found.kinds):
        known = {result["seed"]: result for result in results if result["kind"] == kind}
        seeds = [seed for seed in found.seeds if seed not in known]
        if not seeds:
            continue
        if results and time.monotonic() - began > 60 * found.minutes:
            print(f"Left out for time: {kind}.")
            continue
        chosen, tried = profile, dict[str, float]()
        if known:
            first = next(iter(known.values()))
            chosen, tried = dataclasses.replace(profile, **_rates(kind, *first["rates"])), first["tried"]
        elif found.tune is not None:
            chosen, tried = tune(profile, kind, codes, predict, found.tune)
        several = trainings([(chosen, seed) for seed in seeds], codes, private=kind != "not private")
        print(f"{kind}: {len(several)} trainings after {time.monotonic() - began:.0f} s", flush=True)
        for seed, training in zip(seeds, several, strict=True):
            result, grids = one(chosen, kind, codes, predict, seed, training)
            results.append(result | terms | {"tried": tried})
            if not known:
                panels.setdefault(kind, grids)
            if found.out is not None:
                write(found.out, profile, results, classifier, panels)
    print(page(profile, results, classifier))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
