"""The heavy computations of a fit, and the one place where other code may compute them.

`cached_jit` and `eager` bind a function's settings. Usually its calls are computed at once. In a thread of `intercept`
they are handed over instead, as a `Call`: this is how a benchmark computes equal calls of many fits as
one program (`benchmark/population.py`). Training code knows nothing of it.
"""

import dataclasses
import functools
import threading
from collections.abc import Callable, Hashable, Sequence

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

_here = threading.local()


@functools.lru_cache(maxsize=128)
def cached_jit(function: Callable[..., PyTree], *settings: Hashable) -> Callable[..., PyTree]:
    """`function` with its first arguments compiled in: one program for each choice of settings.

    >>> double = cached_jit(lambda factor, value: factor * value, 2)
    >>> double(jax.numpy.asarray(3)).item()
    6
    """
    return _computed(function, settings, eqx.filter_jit(functools.partial(function, *settings)))


def eager(function: Callable[..., PyTree], *settings: Hashable) -> Callable[..., PyTree]:
    """The same without compiling: for what runs once.

    >>> eager(lambda factor, value: factor * value, 2)(3)
    6
    """
    return _computed(function, settings, functools.partial(function, *settings))


def intercept(compute: "Callable[[Call], PyTree]") -> None:
    """From now on, `compute` computes all calls of this thread."""
    _here.compute = compute


def _computed(
    function: Callable[..., PyTree], settings: tuple[Hashable, ...], alone: Callable[..., PyTree]
) -> Callable[..., PyTree]:
    def run(*args: PyTree) -> PyTree:
        compute = getattr(_here, "compute", None)
        if compute is None:
            return alone(*args)
        call = Call(function, settings, alone, args)
        traced = any(isinstance(array, jax.core.Tracer) for array in call.arrays)
        return alone(*args) if traced else compute(call)

    return run


@dataclasses.dataclass(frozen=True)
class Call:
    """A computation of a fit that is still to be done."""

    function: Callable[..., PyTree]
    settings: tuple[Hashable, ...]
    alone: Callable[..., PyTree]
    args: tuple[PyTree, ...]

    @functools.cached_property
    def arrays(self) -> tuple[Array | np.ndarray | np.generic, ...]:
        return tuple(leaf for leaf in jax.tree_util.tree_leaves(self.args) if _is_array(leaf))

    @functools.cached_property
    def structure(self) -> "Structure":
        leaves, tree = jax.tree_util.tree_flatten(self.args)
        return Structure(tree, tuple(None if _is_array(leaf) else (leaf, type(leaf)) for leaf in leaves))

    @property
    def group(self) -> Hashable:
        """Calls of equal groups can be computed together."""
        shapes = tuple((array.shape, str(array.dtype), getattr(array, "weak_type", False)) for array in self.arrays)
        try:
            hash(self.structure)
        except TypeError:
            return id(self)
        return self.function, self.settings, self.structure, shapes


@dataclasses.dataclass(frozen=True)
class Structure:
    """Arguments without their arrays."""

    tree: jax.tree_util.PyTreeDef
    statics: tuple[tuple[Hashable, type] | None, ...]
    """Each leaf with its type, since 1, 1.0 and True are different. None: an array."""

    def fill(self, arrays: Sequence[Array | np.ndarray | np.generic]) -> tuple[PyTree, ...]:
        """The arguments with these arrays."""
        left = iter(arrays)
        leaves = [next(left) if static is None else static[0] for static in self.statics]
        return jax.tree_util.tree_unflatten(self.tree, leaves)


def _is_array(leaf: object) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)
