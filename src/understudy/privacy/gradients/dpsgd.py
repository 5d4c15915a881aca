"""DP-SGD: noisy sums of clipped gradients over Poisson batches.

`ChargedSteps` ties the private units to the sampling rate, the noise multiplier and the number of steps that were
charged for them (`charges.charge_dpsgd`). Training code hands in a pure loss of one row and gets noisy sums back.
`PublicSteps` is its counterpart for rows that anyone may see: the same sums, exact and free.

Needs nothing but NumPy, JAX and Equinox.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree

from understudy.errors import BudgetExceeded
from understudy.privacy.gradients.clipping import (
    Clip,
    NoisySum,
    RowLoss,
    add_noise,
    check_network,
    clipped_sum,
    unit_loss,
)
from understudy.privacy.gradients.multi_device import sum_over_devices
from understudy.privacy.gradients.poisson import Batches, chunk_size, num_slots, poisson_batches, sum_over_batch
from understudy.privacy.gradients.sums import Fixed
from understudy.privacy.rows.rows import PrivateUnits, PublicUnits
from understudy.privacy.rows.stored import StoredUnits

FakesFn = Callable[[PRNGKeyArray, int], Float[Array, "rows features"]]
"""(key, number of rows) -> generated rows to pair with real ones. Generators are row-wise: a pair touches one row."""


class ChargedSteps(eqx.Module):
    """Gradient steps that were charged: private units, and how they must be queried. Opaque, and a pytree."""

    _units: PrivateUnits | StoredUnits
    _noise_multiplier: Float[Array, ""]
    sampling_rate: float = eqx.field(static=True)
    num_steps: int = eqx.field(static=True)
    _count_stddev: float | None = eqx.field(static=True, default=None)
    """Noise of the counts of units within each clip bound; None: none were charged."""

    def __repr__(self) -> str:
        return "ChargedSteps(...)"  # shapes would reveal the number of units

    @property
    def noise_multiplier(self) -> Float[Array, ""]:
        """Of the gradients of a step; zero in a run that is not private."""
        return self._noise_multiplier

    @property
    def is_private(self) -> bool:
        """Whether there is noise at all. On the host, before anything is compiled."""
        return bool(self._noise_multiplier > 0)


class PublicSteps(eqx.Module):
    """Gradient steps on public rows: without clipping, noise or cost."""

    units: PublicUnits
    sampling_rate: float = eqx.field(static=True)
    num_steps: int = eqx.field(static=True)

    @property
    def noise_multiplier(self) -> Float[Array, ""]:
        return jnp.zeros(())


def sample_batches(
    steps: ChargedSteps | PublicSteps,
    keys: Key[Array, "*steps"],
    *,
    end: int,
    batch_size: int,
    chunk: int | None = None,
) -> Batches:
    """One Poisson batch for each key; `end` is the number of steps made when these are done. `batch_size` is public.

    Formal guarantee: each unit enters each batch by a coin of its own, with the charged sampling rate. Steps beyond
    those charged are refused.
    """
    if end > steps.num_steps:
        raise BudgetExceeded(
            f"{end} steps were requested, but only {steps.num_steps} were charged. This query was not made."
        )
    batches = poisson_batches(
        keys,
        _num_units(steps),
        sampling_rate=steps.sampling_rate,
        chunk=chunk_size(batch_size, chunk),
        slots=num_slots(batch_size),
    )
    if isinstance(steps, ChargedSteps) and isinstance(steps._units, StoredUnits):
        return Batches(batches._indices, batches._taken, steps._units._take(batches._indices, keys))
    return batches


def _num_units(steps: ChargedSteps | PublicSteps) -> int:
    if isinstance(steps, PublicSteps):
        return len(steps.units.present)
    return steps._units._num_units


def noisy_gradient(
    charged: ChargedSteps,
    loss: RowLoss,
    network: PyTree,
    clip: Clip,
    *,
    batch: Batches,
    fakes_fn: FakesFn | None = None,
    key: PRNGKeyArray,
) -> NoisySum:
    """The noisy sum of clipped gradients over one Poisson batch, and noisy counts if they were charged.

    Divide by a public constant, never by the size of the batch.

    Formal guarantee: a Gaussian mechanism of the charged noise multiplier on a Poisson sample, for one unit added or
    removed, whatever the batch holds; an empty one is noise alone. All rows of a unit enter together and their summed
    gradient is clipped. Provided that `batch` comes from `sample_batches` and `key` serves nothing else, and that no
    more than the charged steps are made.
    """
    sum_key, noise_key = jax.random.split(key)
    held = charged._units
    units = None if isinstance(held, StoredUnits) else (held._rows, held._present)
    exact_sum, exact_within = _exact_sum(loss, network, units, clip, batch, fakes_fn, sum_key)
    return add_noise(
        exact_sum,
        exact_within,
        clip,
        noise_multiplier=charged._noise_multiplier,
        key=noise_key,
        count_stddev=charged._count_stddev,
    )


def public_gradient(
    steps: PublicSteps,
    loss: RowLoss,
    network: PyTree,
    *,
    batch: Batches,
    fakes_fn: FakesFn | None = None,
    key: PRNGKeyArray,
) -> PyTree:
    """The exact sum of gradients over one batch of public rows: not clipped, and of floats."""
    sum_key, _ = jax.random.split(key)
    units = (steps.units.rows, steps.units.present)
    return _exact_sum(loss, network, units, Clip.flat(math.inf), batch, fakes_fn, sum_key)[0]


def public_clipped_gradient(
    loss: RowLoss, network: PyTree, units: PublicUnits, clip: Clip, *, key: PRNGKeyArray
) -> PyTree:
    """The sum of the gradients of public or generated rows, each clipped as private ones are, without noise or cost."""
    keys = jax.random.split(key, len(units.rows))
    taken = jnp.ones(len(units.rows), dtype=bool)
    exact_sum, within = clipped_sum(unit_loss(loss), network, (units.rows, units.present, None, keys), taken, clip)
    return add_noise(exact_sum, within, clip, noise_multiplier=0.0, key=key).gradient


def _exact_sum(
    loss: RowLoss,
    network: PyTree,
    units: tuple[Array, Array] | None,
    clip: Clip,
    batch: Batches,
    fakes_fn: FakesFn | None,
    key: PRNGKeyArray,
) -> tuple[PyTree, Fixed]:
    """`clipped_sum` over the chunks of one batch, with generated rows beside the real ones if losses pair them."""
    check_network(network)
    of_unit, chunk = unit_loss(loss), batch._indices.shape[-1]

    def clipped(shared: tuple[PyTree, Clip], units: PyTree, taken: Array) -> tuple[PyTree, Fixed]:
        network, clip = shared
        return clipped_sum(of_unit, network, units, taken, clip)

    def sum_chunk(units: tuple[Array, Array], taken: Array, chunk_key: PRNGKeyArray) -> tuple[PyTree, Fixed]:
        rows, present = units
        keys_key, fake_key = jax.random.split(chunk_key)
        keys = jax.random.split(keys_key, chunk)
        fakes = None
        if fakes_fn is not None:
            slots = rows.shape[1]
            fakes = fakes_fn(fake_key, chunk * slots).reshape(chunk, slots, -1)
        taken = taken & present.any(axis=1)  # a line without rows is an absent unit
        return sum_over_devices(clipped, (network, clip), (rows, present, fakes, keys), taken)

    return sum_over_batch(sum_chunk, units, batch, key)
