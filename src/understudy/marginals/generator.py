"""A generator network that fits noisy marginals: the estimator for tables too wide for a graphical model.

The network takes a fixed set of latent vectors to probabilities of every code of every column: a mixture of products,
whose marginals are sums of products of its columns. Each step compares them with the noisy ones, in units of their
noise, and follows the gradient. No row is seen here: all of it is post-processing of noisy counts.

After Liu, Vietri and Wu, "Iterative methods for private synthetic data: unifying framework and new methods", 2021.
Deviations: squared errors in units of the noise instead of absolute ones, of all measured marginals in each step, and
latent vectors that stay: with fresh ones in each step their sampling error hides the rest.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from understudy.encoding.features import Blocks, num_features
from understudy.marginals.estimation import MIN_VARIANCE, Measurement
from understudy.models.mixture import MixtureOfProducts
from understudy.models.neural import Generator, block_log_softmax
from understudy.schema import Domain
from understudy.synthesizers.settings import Count, Fraction, Positive
from understudy.training.calls import cached_jit
from understudy.training.critics import one_hot_blocks
from understudy.training.loop import RunOptions, run_training
from understudy.training.neural import optimizer_step, trainable, update_average

BETAS = (0.9, 0.99)
MIN_RATE = 0.02
"""The last learning rate, as a fraction of the first."""
SPREAD = 0.1
"""The scale of the last layer's initial weights: small, so that training starts near independent columns."""
MAX_TILE = (8, 64)
"""Marginals are cut into tiles of at most this shape: all have one shape, so any set of them is one program."""
FEWEST_TILES = 64
"""The number of tiles is padded to a power of two, from this on, so that programs are rarely compiled anew."""
STEPS_AT_ONCE = 25
"""The number of steps in one call of the program: few, so that short trainings use the same one."""
FEATURES_AT_ONCE = 512
"""The number of features whose dependence one step takes into account; if there are more, a random part of them."""
NUMBERS_AT_ONCE = 2**25
"""The size of the arrays that one step compares; if there are more tiles, a random part of them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratorSettings:
    """The network and its training. Post-processing: none of this costs budget."""

    steps: Count = 400
    """Training steps."""
    learning_rate: Positive = 4e-3
    """The learning rate at the start; it falls like a cosine."""
    components: Count = 1000
    """The number of components of the mixture, each a product distribution over the columns, with a latent vector."""
    width: Count = 256
    """The width of the hidden layers of the generator."""
    depth: Count = 2
    """Width and number of the network's hidden layers."""
    latent: Count = 64
    """The size of a latent vector."""
    shrinkage: ClassVar[float] = 0.01
    """The weight of an error from independence in every 2-way marginal, relative to that from a measured marginal of
    mean precision. Without it the network invents dependence between columns that were not measured together."""
    ema_decay: Fraction = 0.98
    """The decay of the exponential moving average of the network's weights, which the model is made of."""


class FittedGenerator(NamedTuple):
    """A model, and the network that it was made with, from which training can go on."""

    model: MixtureOfProducts
    network: Generator
    latents: Float[Array, "components latent"]


def estimate_generator(
    domain: Domain,
    measurements: Sequence[Measurement],
    *,
    total: float,
    settings: GeneratorSettings,
    key: PRNGKeyArray,
    warm_start: FittedGenerator | None = None,
    options: RunOptions | None = None,
) -> list[FittedGenerator]:
    """The mixture of products that fits the measurements, each weighted by the inverse variance of its noise.

    With m the model's marginals, y the noisy counts and s their standard deviations, minimises sum(((m - y) / s)^2).
    Repeated measurements add their errors, which is the same as to average them by inverse variance first.

    Args:
        total: number of rows of the modelled table.
        key: of the latent vectors and initial weights.
        warm_start: the result for earlier measurements, to begin from; else training begins near independent columns.

    Returns:
        The models at the checkpoints that the options ask for, and the final one.
    """
    measurements = [*measurements, *_zeros_as_measurements(domain, measurements)]
    fit = _Fit(one_hot_blocks(domain.sizes), settings.shrinkage, settings.ema_decay)
    state = _init_state(domain, measurements, settings, key) if warm_start is None else _State.of(warm_start)
    tiles = cut_into_tiles(domain, measurements, total)
    rates = _falling(settings.learning_rate, settings.steps)
    run = cached_jit(_advance, fit)

    def advance(state: "_State", first: int, count: int) -> "_State":
        return run(state, tiles, key, jnp.asarray(rates[first : first + count], jnp.float32))

    options = dataclasses.replace(options or RunOptions(), chunk=STEPS_AT_ONCE)
    state, kept = run_training(advance, state, settings.steps, options, advice="Lower learning_rate.")

    def fitted(network: Generator) -> FittedGenerator:
        probabilities = np.asarray(_probabilities(fit, network, state.latents))
        return FittedGenerator(MixtureOfProducts(domain.names, domain.sizes, probabilities), network, state.latents)

    return [fitted(network) for network in (*(each.average for each in kept), state.average)]


def _zeros_as_measurements(domain: Domain, measurements: Sequence[Measurement]) -> list[Measurement]:
    """Counts of zero in impossible cells, as precise as the best measurement: a pull towards zero, not exact zeros."""
    if not domain.zeros:
        return []
    stddev = min((float(np.min(each.stddev)) for each in measurements), default=1.0)
    return [
        Measurement(each.columns, np.zeros(each.possible.shape), np.where(each.possible, np.inf, stddev))
        for each in domain.zeros
    ]


# --------------------------------------------------------------------------------------------------------------- tiles


class Tiles(eqx.Module):
    """Parts of noisy marginals, all of one shape: some codes of one column by some of another, within given codes of
    all further columns. The feature after the last is one for every component; those after it pad."""

    down: Int[Array, " tiles"]
    across: Int[Array, " tiles"]
    """The first feature of either side."""
    within: Int[Array, "tiles further"]
    noisy: Float[Array, "tiles height width"]
    """As probabilities."""
    weights: Float[Array, "tiles height width"]
    """Zero where there is no cell. Errors as large as the noise give a loss of one."""

    @property
    def mean_weight(self) -> Float[Array, ""]:
        """Of all cells."""
        return jnp.sum(self.weights) / jnp.maximum(1, jnp.sum(self.weights > 0))

    def loss(self, probabilities: Float[Array, "components features"], key: PRNGKeyArray) -> Float[Array, ""]:
        """The weighted squared error, or an estimate of it from a random part of the tiles."""
        count, height, width = self.noisy.shape
        components = len(probabilities)
        padding = [jnp.ones((1, components)), jnp.zeros((max(height, width), components))]
        features = jnp.concatenate([probabilities.T, *padding])

        def add(total: Array, tile: Tiles) -> tuple[Array, None]:
            down = jax.lax.dynamic_slice_in_dim(features, tile.down, height)
            across = jax.lax.dynamic_slice_in_dim(features, tile.across, width)
            model = (down * jnp.prod(features[tile.within], axis=0)) @ across.T / components
            return total + jnp.sum(tile.weights * (model - tile.noisy) ** 2), None

        tiles, at_once = self, max(1, NUMBERS_AT_ONCE // (components * (height + width)))
        if at_once < count:
            chosen = jax.random.choice(key, count, (at_once,), replace=False)
            tiles = jax.tree_util.tree_map(lambda leaf: leaf[chosen], self)
        # One after the other: as one product of batches it takes twice as long.
        return jax.lax.scan(add, jnp.zeros(()), tiles)[0] * max(1.0, count / at_once)


class _Tile(NamedTuple):
    down: int
    across: int
    within: tuple[int, ...]
    noisy: np.ndarray
    weights: np.ndarray


def cut_into_tiles(domain: Domain, measurements: Sequence[Measurement], total: float) -> Tiles:
    """The measurements as tiles of one shape; padded with tiles of weight zero."""
    height, width = (min(most, max(domain.sizes)) for most in MAX_TILE)
    cells = sum(measurement.noisy_counts.size for measurement in measurements)
    further = max([1, *(len(measurement.clique) - 2 for measurement in measurements)])
    tiles = [tile for each in measurements for tile in _cut(domain, each, (height, width), further)]
    padding = 2 ** math.ceil(math.log2(max(FEWEST_TILES, len(tiles)))) - len(tiles)
    empty = _Tile(0, 0, (0,) * further, np.zeros((height, width)), np.zeros((height, width)))
    down, across, within, noisy, weights = zip(*tiles, *[empty] * padding, strict=True)
    return Tiles(
        down=jnp.asarray(down, jnp.int32),
        across=jnp.asarray(across, jnp.int32),
        within=jnp.asarray(within, jnp.int32),
        noisy=jnp.asarray(np.stack(noisy) / total, jnp.float32),
        weights=jnp.asarray(np.stack(weights) * total**2 / cells, jnp.float32),
    )


def _cut(domain: Domain, measurement: Measurement, shape: tuple[int, int], further: int) -> Iterator[_Tile]:
    """The tiles of one marginal: its largest column across, the next one down, and any others given."""
    clique, counts, stddev = measurement
    precision = 1 / np.maximum(np.broadcast_to(np.square(stddev), np.shape(counts)), MIN_VARIANCE)
    order = sorted(range(len(clique)), key=lambda at: domain.shape((clique[at],)))
    ends = np.cumsum([0, *domain.sizes]).tolist()
    starts = [ends[domain.index(clique[at])] for at in order]
    tables = [np.transpose(table, order) for table in (counts, precision)]
    if len(clique) == 1:
        starts, tables = [ends[-1], *starts], [table[None] for table in tables]
    height, width = shape
    *outer, tall, wide = tables[0].shape
    for code in itertools.product(*map(range, outer)):
        within = [start + at for start, at in zip(starts, code, strict=False)]
        within += [ends[-1]] * (further - len(within))
        for top, left in itertools.product(range(0, tall, height), range(0, wide, width)):
            noisy, weights = (_pad(table[code][top : top + height, left : left + width], shape) for table in tables)
            yield _Tile(starts[-2] + top, starts[-1] + left, tuple(within), noisy, weights)


def _pad(table: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return np.pad(table, [(0, size - own) for size, own in zip(shape, table.shape, strict=True)])


# ------------------------------------------------------------------------------------------------------------ training


class _Fit(NamedTuple):
    """What is compiled into the program. All of it is public."""

    blocks: Blocks
    shrinkage: float
    ema_decay: float


class _State(eqx.Module):
    """Everything that training changes, and the latent vectors, which stay."""

    latents: Float[Array, "components latent"]
    generator: Generator
    average: Generator
    moments: optax.OptState
    iteration: Array
    critic: None = None

    @classmethod
    def of(cls, start: FittedGenerator) -> "_State":
        moments = _adam().init(trainable(start.network))
        return cls(start.latents, start.network, start.network, moments, jnp.asarray(0, jnp.int32))


def _init_state(
    domain: Domain, measurements: Sequence[Measurement], settings: GeneratorSettings, key: PRNGKeyArray
) -> _State:
    """A fresh network, near independent columns with the measured 1-way marginals."""
    latent_key, network_key = jax.random.split(key)
    blocks = one_hot_blocks(domain.sizes)
    widths = (settings.width,) * settings.depth
    network = Generator(settings.latent, 0, widths, num_features(blocks), key=network_key)
    bias = np.concatenate([_log_probabilities(name, domain, measurements) for name in domain.names])
    network = eqx.tree_at(
        lambda net: (net.exit.bias, net.exit.weight),
        network,
        (jnp.asarray(bias, jnp.float32), SPREAD * network.exit.weight),
    )
    latents = jax.random.normal(latent_key, (settings.components, settings.latent))
    moments = _adam().init(trainable(network))
    return _State(latents, network, network, moments, jnp.asarray(0, jnp.int32))


def _log_probabilities(name: str, domain: Domain, measurements: Sequence[Measurement]) -> np.ndarray:
    """By the measurements of this column alone; counts below their noise are raised to it."""
    measured = [(each.noisy_counts, np.square(each.stddev)) for each in measurements if each.clique == (name,)]
    if not measured:
        return np.zeros(domain.shape((name,)))
    precision = sum(1 / np.maximum(variance, MIN_VARIANCE) for _, variance in measured)
    counts = sum(counts / np.maximum(variance, MIN_VARIANCE) for counts, variance in measured) / precision
    counts = np.maximum(counts, 0.5 * precision**-0.5)
    return np.log(counts / counts.sum())


def _probabilities(
    fit: _Fit, network: Generator, latents: Float[Array, "components latent"]
) -> Float[Array, "components features"]:
    return jnp.exp(block_log_softmax(jax.vmap(network)(latents), fit.blocks))


def squared_dependence(
    probabilities: Float[Array, "components features"], blocks: Blocks, key: PRNGKeyArray
) -> Float[Array, ""]:
    """The squared distance of all 2-way marginals from independence, summed; an estimate if there are many features."""
    column = jnp.asarray(np.repeat(np.arange(len(blocks)), [block.size for block in blocks]))
    features, at_once = len(column), min(len(column), FEATURES_AT_ONCE)
    centred = probabilities - probabilities.mean(axis=0)
    chosen = jnp.arange(features)
    if at_once < features:
        chosen = jax.random.choice(key, features, (at_once,), replace=False)
    column, centred = column[chosen], centred[:, chosen]
    covariance = centred.T @ centred / len(centred)
    is_pair = column[:, None] < column[None, :]
    return jnp.sum(jnp.where(is_pair, covariance, 0.0) ** 2) * (features / at_once) ** 2


def _advance(fit: _Fit, state: _State, tiles: Tiles, key: PRNGKeyArray, rates: Float[Array, " steps"]) -> _State:
    """One step for each of the learning rates."""

    def step(state: _State, rate: Array) -> tuple[_State, None]:
        step_key = jax.random.fold_in(key, state.iteration)

        @eqx.filter_grad
        def gradient(network: Generator) -> Array:
            probabilities = _probabilities(fit, network, state.latents)
            dependence = squared_dependence(probabilities, fit.blocks, step_key)
            return tiles.loss(probabilities, step_key) + fit.shrinkage * tiles.mean_weight * dependence

        network, moments = optimizer_step(_adam(), state.generator, gradient(state.generator), state.moments, rate)
        average = update_average(state.average, network, state.iteration, fit.ema_decay)
        return _State(state.latents, network, average, moments, state.iteration + 1), None

    return jax.lax.scan(step, state, rates)[0]


def _adam() -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam(b1=BETAS[0], b2=BETAS[1]))


def _falling(rate: float, steps: int) -> Float[np.ndarray, " steps"]:
    """A learning rate that falls like a cosine."""
    return rate * (MIN_RATE + (1 - MIN_RATE) * 0.5 * (1 + np.cos(np.pi * np.arange(steps) / steps)))
