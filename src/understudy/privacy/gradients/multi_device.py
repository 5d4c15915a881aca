"""Units on several devices: each device clips and adds up its part of a chunk, and devices add whole numbers.

One training program serves any number of devices. Units are distributed over them in equal parts; networks are
replicated. Noise is drawn and added after the sum over devices, once. Needs nothing but NumPy, JAX and Equinox.
"""

import functools
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, PyTree, Shaped

from understudy.privacy.gradients.sums import BLOCK, add_over_axis

ALIGNED = 16
"""Each device gets a multiple of this many slots, so that it computes each of them in the same way."""
AXIS = "units"

Total = TypeVar("Total")


@functools.cache
def device_mesh() -> Mesh | None:
    """The devices of this process; None if there is only one."""
    devices = jax.local_devices()
    return None if len(devices) == 1 else Mesh(np.asarray(devices), (AXIS,))


def place_units(array: Shaped[np.ndarray, "units ..."]) -> Shaped[Array, "lines ..."]:
    """The array on the device, or in equal parts on several; lines of zeros at its end make the parts equal."""
    mesh = device_mesh()
    if mesh is None:
        return jnp.asarray(array)
    padding = [(0, -len(array) % mesh.size), *[(0, 0)] * (array.ndim - 1)]
    return jax.device_put(np.pad(array, padding), NamedSharding(mesh, PartitionSpec(AXIS)))


def sum_over_devices(
    summed: Callable[[PyTree, PyTree, Bool[Array, " units"]], Total],
    shared: PyTree,
    units: PyTree,
    taken: Bool[Array, " units"],
) -> Total:
    """`summed(shared, units, taken)`, by equal parts of the units on all devices where each gets a block of them.

    Formal guarantee: one unit moves the sum by no more than it moves `summed` (`clipping.clipped_sum`), because each
    unit is on one device, in one block, and totals of devices are added as integers. Units that fill up the last
    device's part are not taken.
    """
    mesh = device_mesh()
    if mesh is None or len(taken) < BLOCK * mesh.size:
        return summed(shared, units, taken)
    arrays, rest = eqx.partition(shared, eqx.is_array)
    padding = -len(taken) % (ALIGNED * mesh.size)

    def pad(array: Array) -> Array:
        return jnp.concatenate([array, jnp.repeat(array[:1], padding, axis=0)])

    def on_device(arrays: PyTree, units: PyTree, taken: Array) -> Total:
        return add_over_axis(summed(eqx.combine(arrays, rest), units, taken), AXIS)

    everywhere, parts = PartitionSpec(), PartitionSpec(AXIS)
    program = jax.shard_map(
        on_device, mesh=mesh, in_specs=(everywhere, parts, parts), out_specs=everywhere, check_vma=False
    )
    taken = jnp.concatenate([taken, jnp.zeros(padding, dtype=bool)])
    return program(arrays, jax.tree_util.tree_map(pad, units), taken)
