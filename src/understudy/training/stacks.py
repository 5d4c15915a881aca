"""Arrays of the members of a population as stacks, and back."""

import hashlib
import weakref
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree


class Row(NamedTuple):
    """Where an array comes from."""

    stack: Array
    number: int


class Stacks:
    """Arrays of members as stacks, and back. A stack whose rows come back in the same order is reused."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        """By the identity of an array, as long as it lives."""
        self._digests: dict[int, bytes] = {}
        """By the same identity."""

    def rows(self, stacked: PyTree, count: int) -> list[PyTree]:
        """The results of the first `count` members."""
        arrays, rest = eqx.partition(stacked, eqx.is_array)
        stacks, tree = jax.tree_util.tree_flatten(arrays)
        results = []
        for number in range(count):
            row = _row(stacks, number)
            for array, stack in zip(row, stacks, strict=True):
                self._rows[id(array)] = Row(stack, number)
                weakref.finalize(array, self._rows.pop, id(array), None).atexit = False
            results.append(eqx.combine(jax.tree_util.tree_unflatten(tree, row), rest))
        return results

    def stack(self, arrays: Sequence[Array | np.ndarray], size: int) -> Array:
        """Stacked along a new axis of `size`; the last array is repeated."""
        known = [self._rows.get(id(array)) for array in arrays]
        whole = None if known[0] is None else known[0].stack
        in_order = all(row is not None and row.stack is whole and row.number == at for at, row in enumerate(known))
        if whole is not None and len(whole) == size and in_order:
            return whole
        return _stack(*arrays, *[arrays[-1]] * (size - len(arrays)))

    def is_shared(self, arrays: Sequence[Array | np.ndarray]) -> bool:
        """Whether all members have the same array, or equal ones. Rows of a stack count as different."""
        if all(array is arrays[0] for array in arrays):
            return True
        if any(id(array) in self._rows for array in arrays):
            return False
        first = self._digest(arrays[0])
        return all(self._digest(array) == first for array in arrays[1:])

    def _digest(self, array: Array | np.ndarray) -> bytes:
        if (known := self._digests.get(id(array))) is not None:
            return known
        is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        found = hashlib.blake2b(np.asarray(jax.random.key_data(array) if is_key else array).tobytes()).digest()
        if isinstance(array, jax.Array):  # NumPy arrays may change
            self._digests[id(array)] = found
            weakref.finalize(array, self._digests.pop, id(array), None).atexit = False
        return found


@jax.jit
def _row(stacks: list[Array], number: int) -> list[Array]:
    return [jax.lax.dynamic_index_in_dim(stack, number, keepdims=False) for stack in stacks]


@jax.jit
def _stack(*arrays: Array) -> Array:
    return jnp.stack(arrays)
