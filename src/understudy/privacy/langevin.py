"""Langevin updates: steps along a drift, with noise that makes their path a sample of a posterior.

SGLD of Welling and Teh (2011); with friction below one SGHMC of Chen, Fox and Guestrin (2014), in the form

    v <- (1 - friction) v + eta drift + n,   n ~ N(0, 2 friction eta temperature I),   theta <- theta + v,

which is SGLD at friction 1. A private update has in its drift the noisy sum of clipped gradients of `gradients.py`
(DP-SGLD, Wang, Fienberg and Smola 2015, but clipped: nothing else bounds what one row adds). Clipping comes before
scaling, so scales move no price.

The noise of the sum is also noise of the update. Where it is less than Langevin asks for, the rest is drawn with it, as
one Gaussian, and the whole of it counts for privacy; where it is more, the chain is hotter than was asked for, and
`Stair.heat` says how hot. Needs nothing but NumPy, JAX and Equinox.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from understudy.privacy.device_noise import normals
from understudy.privacy.gradients import Clip, Loss, noisy_direction
from understudy.privacy.sampling import Draws, Units


@dataclasses.dataclass(frozen=True)
class Stair:
    """A stretch of updates with one step size. All of it is public."""

    iterations: int
    eta: float

    def langevin_multiplier(self, reach: float, temperature: float) -> float:
        """The noise multiplier at which a private sum alone carries the noise of SGLD: sqrt(2 eta T) / (eta reach).

        `reach` is how far one unit moves the drift: the clip bound times the scale that the sum is multiplied by.
        """
        return math.sqrt(2 * temperature / self.eta) / reach

    def heat(self, multiplier: float, reach: float, temperature: float, friction: float) -> float:
        """The temperature that updates have with this multiplier; `temperature`, where its noise is not too much."""
        return max(temperature, self.eta * (multiplier * reach) ** 2 / (2 * friction))

    def extra_stddev(self, multiplier: float, reach: float, temperature: float, friction: float) -> float:
        """What Langevin asks for beyond the noise of the sum, as the standard deviation of an independent draw."""
        wanted, given = 2 * friction * self.eta * temperature, (self.eta * multiplier * reach) ** 2
        # A difference of nearly equal numbers is rounding, not noise.
        return math.sqrt(wanted - given) if wanted - given > 1e-9 * wanted else 0.0


SCHEDULES = ("constant", "polynomial", "exponential")


def stairs(
    iterations: int, first: float, schedule: str, *, decay: float, offset: float, most: int
) -> tuple[Stair, ...]:
    """Step sizes as at most so many stairs, each at its first value. A stair is one price, so there are few of them.

    "polynomial" is first ((offset + t) / offset)^-decay; "exponential", of the code of the Bayesian GAN, first
    exp(-3 t / iterations).
    """
    if schedule == "constant":
        return (Stair(iterations, first),)
    edges = np.unique(np.linspace(0, iterations, min(most, iterations) + 1).round().astype(int))
    falls = ((offset + edges) / offset) ** -decay if schedule == "polynomial" else np.exp(-3 * edges / iterations)
    return tuple(
        Stair(int(end - begin), first * float(fall))
        for begin, end, fall in zip(edges[:-1], edges[1:], falls[:-1], strict=True)
    )


class Pace(eqx.Module):
    """How one update is made."""

    eta: Float[Array, ""]
    multiplier: Float[Array, ""]
    """Noise of the private sum over the clip bound; zero without privacy, or where there is no such sum."""
    extra: Float[Array, ""]
    """Standard deviation of the noise beyond it."""


def paces(
    schedule: Sequence[Stair],
    multipliers: Sequence[float],
    *,
    reach: float,
    temperature: float,
    friction: float,
) -> Pace:
    """The pace of every iteration, stacked. Not to be called with multipliers below those that were paid."""
    extras = [
        stair.extra_stddev(multiplier, reach, temperature, friction)
        for stair, multiplier in zip(schedule, multipliers, strict=True)
    ]
    lengths = [stair.iterations for stair in schedule]
    columns = ([stair.eta for stair in schedule], multipliers, extras)
    return Pace(*(jnp.asarray(np.repeat(np.asarray(column, np.float32), lengths)) for column in columns))


def noisy_langevin_step(
    of_unit: Loss,
    network: Any,
    momentum: PyTree,
    units: Units,
    rest: PyTree,
    clip: Clip,
    *,
    draw: Draws,
    pace: Pace,
    scale: Float[Array, ""] | float,
    friction: float,
    key: PRNGKeyArray,
) -> tuple[Any, PyTree]:
    """One update of a chain that sees private rows: drift = -scale * noisy sum of loss gradients + `rest`.

    `rest` is the part of the drift without private rows: prior and generated rows. `scale` is public; 1 / rate makes a
    draw stand for all rows.

    Formal guarantee: a Gaussian mechanism of noise multiplier `pace.multiplier` on a Poisson draw, for one unit added
    or removed, whatever `scale` and the step size are: that of `noisy_direction`, of which all else is post-processing.
    """
    query_key, extra_key = jax.random.split(key)
    noisy, _ = noisy_direction(
        of_unit,
        network,
        units,
        None,
        clip,
        draw=draw,
        noise_multiplier=pace.multiplier,
        count_stddev=None,
        key=query_key,
    )
    drift = jax.tree_util.tree_map(lambda private, other: other - scale * private, noisy, rest)
    return langevin_step(network, momentum, drift, eta=pace.eta, stddev=pace.extra, friction=friction, key=extra_key)


def langevin_step(
    network: Any,
    momentum: PyTree,
    drift: PyTree,
    *,
    eta: Float[Array, ""],
    stddev: Float[Array, ""],
    friction: float,
    key: PRNGKeyArray,
) -> tuple[Any, PyTree]:
    """The network and its momentum after one update. It reads nothing private but what is in the drift already."""
    leaves, structure = jax.tree_util.tree_flatten(drift)
    ends = np.cumsum([leaf.size for leaf in leaves])
    draws = jnp.split(normals(key, int(ends[-1])), ends[:-1])
    moved = [
        (1 - friction) * before + eta * leaf + stddev * noise.reshape(leaf.shape)
        for before, leaf, noise in zip(jax.tree_util.tree_leaves(momentum), leaves, draws, strict=True)
    ]
    velocity = jax.tree_util.tree_unflatten(structure, moved)
    return eqx.apply_updates(network, velocity), velocity


def at_rest(network: Any) -> PyTree:
    """No momentum."""
    return jax.tree_util.tree_map(jnp.zeros_like, eqx.filter(network, eqx.is_inexact_array))
