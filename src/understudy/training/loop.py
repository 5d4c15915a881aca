"""The host's side of every training: chunks of iterations, progress, divergence, checkpoints and Ctrl-C.

A training is a state and a function that runs it some iterations on, as one compiled program. What the state holds in
`average`, `critic` and `iteration` is covered by what was charged, so looking at it between chunks costs nothing.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from understudy.errors import Diverged, TrainingError
from understudy.progress import Compiling, Progress
from understudy.training.calls import cached_jit
from understudy.training.neural import trainable

if TYPE_CHECKING:
    from understudy.run.checkpoint import Slot  # reads tables; training alone must not need to


OUT_OF_MEMORY = (
    "The training does not fit in memory. Set a smaller sampling_rate (fewer units in a batch), which also changes the "
    "plan, or smaller networks."
)

SLOTS_AT_ONCE = 1 << 22
"""Slots of the batches that are sampled for one call of the program, at most: large batches bound its iterations."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How the host runs a training."""

    iterations: int | None = None
    """Fewer iterations than were charged; None: all of them."""
    keep_every: int = 0
    """Iterations between two checkpoints of the trajectory; 0: none are kept."""
    keep_last: int | None = None
    """The number of checkpoints to keep, the last ones; None: all."""
    chunk: int = 100
    """Iterations in one call of the compiled program, at most."""
    progress: Progress | None = None
    slot: "Slot | None" = None
    """Where the state is saved, and found again by a run that is resumed."""


@runtime_checkable
class TrainingState(Protocol):
    """What the host reads of a state."""

    @property
    def average(self) -> PyTree:
        """What a release is made of."""

    @property
    def critic(self) -> PyTree:
        """None: the training has no critic."""

    @property
    def iteration(self) -> Array: ...


State = TypeVar("State", bound=TrainingState)


class TrainingCheckpoint(eqx.Module):
    """One point of a trajectory: enough to make a release of and to evaluate, not enough to continue from."""

    average: PyTree
    critic: PyTree
    iteration: Array

    @classmethod
    def of(cls, state: TrainingState) -> "TrainingCheckpoint":
        return cls(state.average, state.critic, state.iteration)


def is_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether all trainable numbers are."""
    leaves = jax.tree_util.tree_leaves(trainable(tree))
    return jnp.all(jnp.asarray([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


def run_training(
    advance: Callable[[State, int, int], State],
    state: State,
    iterations: int,
    options: RunOptions | None = None,
    *,
    steps_each: int = 1,
    slots_each: int = 1,
    advice: str,
) -> tuple[State, list[TrainingCheckpoint]]:
    """Run to the last iteration; the final state and the trajectory. `advance(state, first, count)` runs
    `count` iterations.

    `slots_each` is the number of slots of the batches of an iteration. With `options.slot` the training
    continues from what was saved there, to the same result. It stops with `Diverged` and this advice when a network is
    no longer finite.
    """
    options = options or RunOptions()
    iterations = iterations if options.iterations is None else options.iterations
    # Arrays from a file have strong types. Fresh ones get them too, or one program would be compiled twice.
    state = jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf, leaf.dtype) if eqx.is_array(leaf) else leaf, state)
    trajectory: list[TrainingCheckpoint] = []
    slot, progress, keep_every = options.slot, options.progress, options.keep_every
    if slot is not None and (saved := slot.load(state, TrainingCheckpoint.of(state))) is not None:
        state, trajectory = saved
    done = int(state.iteration)
    clock = _Clock(iterations * steps_each, done * steps_each)
    if progress is not None:
        progress(done / iterations, Compiling(f"{clock.describe(done * steps_each)}, compiling"))
    first_kept = 0 if options.keep_last is None or not keep_every else iterations // keep_every - options.keep_last
    most = max(1, min(options.chunk, SLOTS_AT_ONCE // slots_each))
    while done < iterations:
        length = min(most, iterations - done)
        if keep_every:  # up to the next checkpoint, and no further
            length = min(length, keep_every - done % keep_every)
        try:
            after = advance(state, done, length)
            goes_on = bool(cached_jit(is_finite)(after.average))
        except KeyboardInterrupt:
            if slot is not None:
                slot.offer(state, trajectory, now=True)
            raise
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise TrainingError(OUT_OF_MEMORY) from None
        state = after
        done += length
        if not goes_on:
            raise Diverged(
                f"Training diverged before step {done * steps_each}: a network is no longer finite. {advice}"
            )
        if keep_every and done % keep_every == 0 and done // keep_every > first_kept:
            trajectory.append(jax.device_get(TrainingCheckpoint.of(state)))
        if progress is not None:
            progress(done / iterations, clock.describe(done * steps_each))
        if slot is not None:
            slot.offer(state, trajectory)
    if slot is not None:  # what follows must find this very training, however quick it was
        slot.offer(state, trajectory, now=True)
    return state, trajectory


class _Clock:
    """Steps and steps per second, for people. The time to the first step is mostly compilation and does not count."""

    def __init__(self, steps: int, done: int):
        self._steps, self._began = steps, done
        self._first: tuple[int, float] | None = None

    def describe(self, done: int) -> str:
        now, rate = time.monotonic(), ""
        if self._first is not None and now > self._first[1]:
            rate = f", {(done - self._first[0]) / (now - self._first[1]):.3g} a second"
        elif done > self._began:
            self._first = (done, now)
        return f"step {done:,} of {self._steps:,}{rate}"
