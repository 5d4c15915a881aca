"""Networks of the MNIST experiments, and the classifier behind their inception scores.

Images are bytes where they are stored and scored, and numbers from -1 to 1 in networks.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jaxtyping import Array, Float, PRNGKeyArray, UInt8  # noqa: E402

from benchmarks.papers.pgb.mnist_images import images_file, load_images  # noqa: E402
from understudy.models.neural import SLOPE  # noqa: E402

SIDE = 28
PIXELS = SIDE * SIDE
Codes = UInt8[np.ndarray, "images pixels"]
"""Images as they are stored and scored: a byte for each pixel."""


def has_images() -> bool:
    return images_file().is_file()


def real_images(limit: int | None) -> tuple[Codes, np.ndarray, Codes, np.ndarray]:
    """Training images and their digits, test images and theirs; the first `limit` of each."""
    train, train_digits, test, test_digits = (array[:limit] for array in load_images().values())
    return (
        train.reshape(-1, PIXELS),
        train_digits.astype(np.int32),
        test.reshape(-1, PIXELS),
        test_digits.astype(np.int32),
    )


def features_of(codes: Array | np.ndarray) -> Float[Array, "*images pixels"]:
    """Bytes as numbers from -1 to 1, and back."""
    return jnp.asarray(codes).astype(jnp.float32) / 127.5 - 1


def codes_of(features: Float[Array, "*images pixels"]) -> Array:
    return jnp.rint((features + 1) * 127.5).clip(0, 255).astype(jnp.uint8)


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
