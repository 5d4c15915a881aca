"""Langevin updates: gradient steps with noise, so that their iterates sample from a posterior.

SGLD of Welling and Teh (2011); with friction below one SGHMC of Chen, Fox and Guestrin (2014), in the form

    v <- (1 - friction) v + eta drift + n,   n ~ N(0, 2 friction eta temperature I),   theta <- theta + v,

which is SGLD at friction 1. A private update has in its drift the noisy sum of clipped gradients of `dpsgd.py`
(DP-SGLD, Wang, Fienberg and Smola 2015, but clipped: nothing else bounds the sensitivity). Clipping comes before
scaling, so scales do not change the cost.

The noise of the sum is also noise of the update. If it is less than the Langevin update needs, the rest is drawn with
it as one Gaussian, and all of it counts for privacy; if it is more, the temperature of the chain is higher than
requested (`Stage.effective_temperature`). Needs nothing but NumPy, JAX and Equinox.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from understudy.privacy.gradients.clipping import Clip, RowLoss
from understudy.privacy.gradients.dpsgd import ChargedSteps, noisy_gradient
from understudy.privacy.gradients.poisson import Batches
from understudy.privacy.noise.device import normals


@dataclasses.dataclass(frozen=True)
class Stage:
    """Iterations with one step size. All of it is public."""

    iterations: int
    eta: float

    def langevin_multiplier(self, drift_sensitivity: float, temperature: float) -> float:
        """The noise multiplier at which a private sum alone has the noise of SGLD: sqrt(2 eta T) / (eta sensitivity).

        The sensitivity of the drift is the clip bound times the scale that the sum is multiplied by.
        """
        return math.sqrt(2 * temperature / self.eta) / drift_sensitivity

    def effective_temperature(
        self, multiplier: float, drift_sensitivity: float, temperature: float, friction: float
    ) -> float:
        """The temperature of updates with this noise multiplier: `temperature`, or more if the noise is too large."""
        return max(temperature, self.eta * (multiplier * drift_sensitivity) ** 2 / (2 * friction))

    def extra_stddev(self, multiplier: float, drift_sensitivity: float, temperature: float, friction: float) -> float:
        """The standard deviation of the noise that the Langevin update needs beyond that of the sum."""
        wanted, given = 2 * friction * self.eta * temperature, (self.eta * multiplier * drift_sensitivity) ** 2
        # A difference of nearly equal numbers is rounding, not noise.
        return math.sqrt(wanted - given) if wanted - given > 1e-9 * wanted else 0.0


SCHEDULES = ("constant", "polynomial", "exponential")


def stages(
    iterations: int, first: float, schedule: str, *, decay: float, offset: float, max_stages: int
) -> tuple[Stage, ...]:
    """Step sizes as at most `max_stages` stages, each at its first value. A stage is one event, so there are few.

    "polynomial" is first ((offset + t) / offset)^-decay; "exponential", of the code of the Bayesian GAN, first
    exp(-3 t / iterations).
    """
    if schedule == "constant":
        return (Stage(iterations, first),)
    edges = np.unique(np.linspace(0, iterations, min(max_stages, iterations) + 1).round().astype(int))
    falls = ((offset + edges) / offset) ** -decay if schedule == "polynomial" else np.exp(-3 * edges / iterations)
    return tuple(
        Stage(int(end - begin), first * float(fall))
        for begin, end, fall in zip(edges[:-1], edges[1:], falls[:-1], strict=True)
    )


@dataclasses.dataclass(frozen=True)
class Law:
    """The posterior to sample from. All of it is public."""

    drift_sensitivity: float
    """The sensitivity of the drift to one unit: the clip bound times the scale that the sum is multiplied by."""
    temperature: float
    friction: float
    momentum: bool
    """Whether updates have momentum; then the noise beyond that of the sum is drawn separately."""

    def noise_multipliers(self, schedule: Sequence[Stage], charged: Sequence[float]) -> list[float]:
        """The noise multiplier of each stage: the charged one, or that of the Langevin update if it is larger."""
        if self.momentum:
            return list(charged)
        wanted = [stage.langevin_multiplier(self.drift_sensitivity, self.temperature) for stage in schedule]
        return [max(pair) for pair in zip(charged, wanted, strict=True)]


class StepParameters(eqx.Module):
    """The step size and the noise of one update, or of several, stacked."""

    eta: Float[Array, "*steps"]
    noise_multiplier: Float[Array, "*steps"]
    """Noise of the private sum over the clip bound; zero without privacy, or where there is no such sum."""
    extra: Float[Array, "*steps"]
    """Standard deviation of the noise beyond it."""


def step_parameters(schedule: Sequence[Stage], noise_multipliers: Sequence[float], law: Law) -> StepParameters:
    """The parameters of every iteration, stacked."""
    extras = [
        stage.extra_stddev(multiplier, law.drift_sensitivity, law.temperature, law.friction)
        for stage, multiplier in zip(schedule, noise_multipliers, strict=True)
    ]
    lengths = [stage.iterations for stage in schedule]
    columns = ([stage.eta for stage in schedule], noise_multipliers, extras)
    return StepParameters(*(jnp.asarray(np.repeat(np.asarray(column, np.float32), lengths)) for column in columns))


class ChargedUpdates(eqx.Module):
    """Langevin updates that were charged: private units, and the parameters of every iteration. An opaque pytree."""

    _steps: ChargedSteps
    """With the least noise multiplier of all stages."""
    _schedule: StepParameters

    def __repr__(self) -> str:
        return "ChargedUpdates(...)"

    @property
    def steps(self) -> ChargedSteps:
        """For sampling batches: the number of updates and the charged sampling rate."""
        return self._steps

    @property
    def num_iterations(self) -> int:
        return len(self._schedule.eta)


class Chain(NamedTuple):
    """A network that moves through its posterior."""

    network: PyTree
    momentum: PyTree


class Dynamics(NamedTuple):
    """What moves a chain beside the sum over private rows. All of it is public, or post-processing."""

    rest: PyTree
    """The part of the drift without private rows: prior and generated rows."""
    scale: Float[Array, ""] | float
    """Of the sum: one over the sampling rate makes that of a batch an unbiased estimate of that of all rows."""
    friction: float


def noisy_langevin_step(
    charged: ChargedUpdates,
    loss: RowLoss,
    chain: Chain,
    dynamics: Dynamics,
    clip: Clip,
    *,
    batch: Batches,
    iteration: Int[Array, ""],
    key: PRNGKeyArray,
) -> Chain:
    """One update of a chain with private rows: drift = -scale * noisy sum of loss gradients + rest.

    Formal guarantee: a Gaussian mechanism on a Poisson sample, for one unit added or removed, with at least the noise
    multiplier that was charged for this iteration, whatever the scale and the step size are: that of `noisy_gradient`,
    of which all else is post-processing.
    """
    gradient_key, extra_key = jax.random.split(key)
    now = jax.tree_util.tree_map(lambda column: column[iteration], charged._schedule)
    steps = dataclasses.replace(charged._steps, _noise_multiplier=now.noise_multiplier)
    noisy = noisy_gradient(steps, loss, chain.network, clip, batch=batch, key=gradient_key).gradient
    drift = jax.tree_util.tree_map(lambda private, other: other - dynamics.scale * private, noisy, dynamics.rest)
    return langevin_step(chain, drift, eta=now.eta, stddev=now.extra, friction=dynamics.friction, key=extra_key)


def langevin_step(
    chain: Chain,
    drift: PyTree,
    *,
    eta: Float[Array, ""],
    stddev: Float[Array, ""],
    friction: float,
    key: PRNGKeyArray,
) -> Chain:
    """The chain after one update. Post-processing of the drift."""
    leaves, structure = jax.tree_util.tree_flatten(drift)
    ends = np.cumsum([leaf.size for leaf in leaves])
    draws = jnp.split(normals(key, int(ends[-1])), ends[:-1])
    moved = [
        (1 - friction) * before + eta * leaf + stddev * noise.reshape(leaf.shape)
        for before, leaf, noise in zip(jax.tree_util.tree_leaves(chain.momentum), leaves, draws, strict=True)
    ]
    velocity = jax.tree_util.tree_unflatten(structure, moved)
    return Chain(eqx.apply_updates(chain.network, velocity), velocity)


def zero_momentum(network: PyTree) -> PyTree:
    """No momentum."""
    return jax.tree_util.tree_map(jnp.zeros_like, eqx.filter(network, eqx.is_inexact_array))
