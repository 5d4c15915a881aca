"""Populations: fits of one table that differ in budget and seed, trained as one program.

Every member is an ordinary fit in a thread of its own, and one thread runs at a time. Instead of
computing on the device, a fit hands over the call (`training.calls.intercept`)
and waits for its result. When no member can continue, calls with the same function, settings, static values and array
shapes form a group. Its arrays are stacked, except those that are equal for all members, and it runs as one `vmap` of
the function.

A population changes what is computed at the same time, not what is computed: charges, noise, batches and keys are those
of each member. It is for benchmarks on public tables, which are seeded and so repeatable and not private: arrays of
different members are compared with each other, and how long a member takes depends on the others.
"""

import collections
import functools
import hashlib
import queue
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jaxtyping import Array, PyTree

from understudy.api import fit
from understudy.privacy.accounting.ledger import Guarantee
from understudy.privacy.mechanisms.discovery import Binning
from understudy.release import Release
from understudy.run.listener import Listener
from understudy.schema import SchemaSource, as_schema
from understudy.synthesizers import Synthesizer
from understudy.training.calls import Call, Structure, intercept

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds that the others wait for a member that is computing, or waiting for something else."""


def fit_population(
    table: pa.Table,
    schema: SchemaSource,
    method: Synthesizer | str,
    members: Sequence[tuple[Guarantee, int]],
    *,
    target: str | None = None,
    binning: Binning | None = None,
    population: "Population[Release] | None" = None,
) -> list[Release | Exception]:
    """One release, or the error of its fit, for each guarantee and seed: what `fit` gives with the same arguments.

    Members train together if their columns have the same number of bins. By default bins are estimated privately, so
    they differ between budgets and seeds; `binning=Binning(bins="uniform")` takes them from declared bounds.
    """
    shared: dict[str, Any] = {"schema": as_schema(schema), "target": target, "binning": binning, "progress": Listener()}
    fits = [functools.partial(fit, table, method, guarantee, seed=seed, **shared) for guarantee, seed in members]
    return (population or Population[Release]()).run(fits)


# ------------------------------------------------------------------------------------------------------------- members


class _Member(Generic[T]):
    """One fit and its thread. It posts itself when it waits for a call, and when it ends."""

    def __init__(self, number: int, fit: Callable[[], T], posts: "queue.SimpleQueue[_Member[T]]"):
        self.number = number
        self.call: Call | None = None
        self.result: T | BaseException | None = None
        self.is_done = False
        self._fit, self._posts = fit, posts
        self._answer: PyTree | BaseException = None
        self._resume = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def go_on(self, answer: "PyTree | BaseException | None" = None) -> None:
        """Start the thread, or hand it the answer that it waits for; an exception is raised there."""
        self.call, self._answer = None, answer
        if self._thread is not None:
            self._resume.release()
            return
        self._thread = threading.Thread(target=self._run, name=f"member {self.number}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads
            self.result, self.is_done = error, True
            self._posts.put(self)

    def wait_for(self, call: Call) -> PyTree:
        self.call = call
        self._posts.put(self)
        self._resume.acquire()
        answer, self._answer = self._answer, None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def is_running(self) -> bool:
        """Whether its thread has started and not ended."""
        return self._thread is not None and not self.is_done

    def _run(self) -> None:
        intercept(self.wait_for)
        try:
            self.result = self._fit()
        except BaseException as error:
            self.result = error
        finally:
            self.is_done = True
            self._posts.put(self)


# ---------------------------------------------------------------------------------------------------------- population


class Population(Generic[T]):
    """Runs fits side by side, and their equal computations as one."""

    def __init__(self, *, patience: float = PATIENCE):
        self.groups: collections.Counter[tuple[str, int]] = collections.Counter()
        """How often each function was computed for how many members at once."""
        self._patience = patience
        self._posts: queue.SimpleQueue[_Member[T]] = queue.SimpleQueue()
        self._stacks = Stacks()
        self._sizes: dict[Hashable, set[int]] = collections.defaultdict(set)
        self._max_calls: dict[Hashable, int] = {}
        """The largest groups that fit in memory, where larger ones did not."""

    def run(self, fits: Sequence[Callable[[], T]]) -> list[T | Exception]:
        """What every fit returns or raises, in order. KeyboardInterrupt, or another non-`Exception`, ends all."""
        members = [_Member(number, fit, self._posts) for number, fit in enumerate(fits)]
        try:
            self._run(members)
        except BaseException:
            self._stop(members)
            raise
        return [member.result for member in members]  # type: ignore[misc]  # every member has ended

    def _run(self, members: Sequence[_Member[T]]) -> None:
        ready: dict[_Member[T], PyTree] = dict.fromkeys(members)
        waiting: list[_Member[T]] = []
        live = len(members)
        while live:
            for member, answer in ready.items():
                member.go_on(answer)
                for posted in self._posts_until(member):
                    waiting += [] if posted.is_done else [posted]
                    live -= posted.is_done
            ready = self._answers(sorted(waiting, key=lambda call: call.number))
            waiting = []
            if not ready and live:  # the others are busy: wait for the first to post
                posted = self._take(None)
                waiting += [] if posted.is_done else [posted]
                live -= posted.is_done

    def _posts_until(self, member: _Member[T]) -> Iterator[_Member[T]]:
        """Members that post until this one does or patience runs out, so that no member can hold up the others."""
        end = time.monotonic() + self._patience
        while True:
            try:
                posted = self._take(max(0.0, end - time.monotonic()))
            except queue.Empty:
                return
            yield posted
            if posted is member:
                return

    def _take(self, seconds: float | None) -> _Member[T]:
        posted = self._posts.get(timeout=seconds)
        if posted.is_done and isinstance(posted.result, BaseException) and not isinstance(posted.result, Exception):
            raise posted.result
        return posted

    def _stop(self, members: Sequence[_Member[T]]) -> None:
        """End all threads: members that wait, now or later, are interrupted."""
        end = time.monotonic() + self._patience
        live = {member for member in members if member.is_running}
        waiting = {member for member in live if member.call is not None}
        while live and time.monotonic() < end:
            for member in waiting:
                member.go_on(KeyboardInterrupt())
            waiting = set()
            try:
                posted = self._posts.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return
            live -= {posted} if posted.is_done else set()
            waiting |= {posted} if not posted.is_done and posted.call is not None else set()

    # ------------------------------------------------------------------------------------------------------- groups

    def _answers(self, waiting: Sequence[_Member[T]]) -> dict[_Member[T], PyTree]:
        """The results of all calls that members wait for."""
        groups: dict[Hashable, list[_Member[T]]] = {}
        for member in waiting:
            assert member.call is not None
            groups.setdefault(member.call.group, []).append(member)
        answers: dict[_Member[T], PyTree] = {}
        for key, group in groups.items():
            calls = [member.call for member in group if member.call is not None]
            answers |= zip(group, self._compute(key, calls), strict=True)
        return {member: answers[member] for member in waiting}

    def _compute(self, key: Hashable, calls: Sequence[Call]) -> list[PyTree]:
        """One result, or exception, for each call of a group."""
        max_calls = self._max_calls.get(key, len(calls))
        if len(calls) > max_calls:
            half = -(-len(calls) // 2)
            return self._compute(key, calls[:half]) + self._compute(key, calls[half:])
        if len(calls) == 1:
            return [self._compute_alone(calls[0])]
        try:
            results = self._compute_together(key, calls)
        except Exception as error:
            if not _is_out_of_memory(error):  # an error must reach only the member that caused it
                return [self._compute_alone(call) for call in calls]
            self._max_calls[key] = len(calls) // 2
            return self._compute(key, calls)
        self.groups[_name(calls[0]), len(calls)] += 1
        return results

    def _compute_alone(self, call: Call) -> PyTree:
        self.groups[_name(call), 1] += 1
        try:
            return call.alone(*call.args)
        except Exception as error:
            return error

    def _compute_together(self, key: Hashable, calls: Sequence[Call]) -> list[PyTree]:
        first = calls[0]
        # A program is compiled for a fixed number of members: smaller groups are padded rather than compiled again.
        count = len(calls)
        size = min((known for known in self._sizes[key] if count <= known <= 2 * count), default=count)
        axes, inputs = [], []
        for arrays in zip(*(call.arrays for call in calls), strict=True):
            single = self._stacks.is_shared(arrays)
            axes.append(None if single else 0)
            inputs.append(arrays[0] if single else self._stacks.stack(arrays, size))
        if not any(axis == 0 for axis in axes):
            return [self._compute_alone(first)] * count
        program = _vmapped(first.function, first.settings, first.structure, tuple(axes))
        # An error must be known before results are handed out.
        stacked = jax.block_until_ready(program(inputs))
        self._sizes[key].add(size)
        return self._stacks.rows(stacked, count)


def _name(call: Call) -> str:
    """The function with the last part of its module's name: gan.advance."""
    return f"{call.function.__module__.rpartition('.')[2]}.{call.function.__qualname__}"


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or (
        isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
    )


@functools.lru_cache(maxsize=128)
def _vmapped(
    function: Callable[..., PyTree], settings: tuple[Hashable, ...], structure: Structure, axes: tuple[int | None, ...]
) -> Callable[[list[Array | np.ndarray]], PyTree]:
    """The function of one member as a program for a group, from its arrays, stacked where the axis is 0."""

    def one(arrays: list[Array]) -> PyTree:
        return function(*settings, *structure.fill(arrays))

    return eqx.filter_jit(eqx.filter_vmap(one, in_axes=(list(axes),)))


# --------------------------------------------------------------------------------------------------------------- stacks


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
        return jnp.asarray(_stack(*arrays, *[arrays[-1]] * (size - len(arrays))))

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
        digest = hashlib.blake2b(np.asarray(jax.random.key_data(array) if is_key else array).tobytes()).digest()
        if isinstance(array, jax.Array):  # NumPy arrays may change
            self._digests[id(array)] = digest
            weakref.finalize(array, self._digests.pop, id(array), None).atexit = False
        return digest


@jax.jit
def _row(stacks: list[Array], number: int) -> list[Array]:
    return [jax.lax.dynamic_index_in_dim(stack, number, keepdims=False) for stack in stacks]


@jax.jit
def _stack(*arrays: Array) -> Array:
    return jnp.stack(arrays)
