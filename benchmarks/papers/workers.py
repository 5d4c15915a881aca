"""Jobs in processes of their own: one that dies takes no other job with it, and none outlives the run.

`concurrent.futures` breaks a whole pool with one process, and its threads still write to pipes that are closed when
processes are ended early ("Bad file descriptor"). Here every process has a pipe of its own and there are no threads.
"""

import contextlib
import dataclasses
import heapq
import itertools
import signal
from collections.abc import Callable, Iterator
from multiprocessing import connection, get_context, resource_tracker
from typing import Any, Generic, TypeVar

Tag = TypeVar("Tag")
TRIES = 2
"""Of a job whose process died."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """A job that raised an error, or whose process died each time."""

    reason: str


@dataclasses.dataclass(order=True)
class _Job(Generic[Tag]):
    order: tuple[int, int]
    """The more urgent first; among equals, the first that was submitted."""
    tag: Tag = dataclasses.field(compare=False)
    task: tuple[Callable[..., Any], tuple[Any, ...]] = dataclasses.field(compare=False)
    tries: int = dataclasses.field(default=0, compare=False)


class Workers(Generic[Tag]):
    """A number of processes that are started when there is work, and ended with the block.

    >>> with Workers[str](2) as workers:
    ...     workers.submit("a", pow, 2, 5)
    ...     list(workers.finished())
    [('a', 32)]
    """

    def __init__(self, number: int, prepare: Callable[[], None] | None = None):
        self._number, self._prepare = number, prepare
        self._context = get_context("spawn")
        self._waiting: list[_Job[Tag]] = []
        self._processes: dict[connection.Connection, Any] = {}
        self._busy: dict[connection.Connection, _Job[Tag]] = {}
        self._count = itertools.count()

    def __enter__(self) -> "Workers[Tag]":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
        for pipe, process in self._processes.items():
            process.join()
            pipe.close()
        self._processes, self._busy, self._waiting = {}, {}, []

    def __len__(self) -> int:
        """Jobs that are waiting or running."""
        return len(self._waiting) + len(self._busy)

    def submit(self, tag: Tag, function: Callable[..., Any], *args: Any, urgency: int = 0) -> None:
        """Jobs with a smaller number for `urgency` are run first."""
        heapq.heappush(self._waiting, _Job((urgency, next(self._count)), tag, (function, args)))

    def finished(self) -> Iterator[tuple[Tag, Any]]:
        """Tags with their results or failures, until there is no job left."""
        while self:
            for pipe in connection.wait(self.pipes()):
                yield from self.receive(pipe)

    def pipes(self) -> list[connection.Connection]:
        """Of jobs that are running: one that can be read from has a result, or its process is dead."""
        self._start_waiting()
        return list(self._busy)

    def receive(self, pipe: Any) -> Iterator[tuple[Tag, Any]]:
        """The result of this pipe, unless its job is tried again."""
        job = self._busy.pop(pipe)
        try:
            result = pipe.recv()
        except (EOFError, OSError):
            process = self._processes.pop(pipe)
            process.join()
            pipe.close()
            job.tries += 1
            if job.tries < TRIES:
                heapq.heappush(self._waiting, job)
            else:
                yield job.tag, Failure(f"its process ended with exit code {process.exitcode}, {TRIES} times")
            return
        yield job.tag, result

    def _start_waiting(self) -> None:
        while self._waiting and len(self._busy) < self._number:
            idle = next((pipe for pipe in self._processes if pipe not in self._busy), None)
            pipe = idle or self._start_process()
            job = heapq.heappop(self._waiting)
            self._busy[pipe] = job
            with contextlib.suppress(OSError):  # a process that has died since: `receive` finds out
                pipe.send(job.task)

    def _start_process(self) -> connection.Connection:
        here, there = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(there, self._prepare), daemon=True)
        resource_tracker.ensure_running()  # it would unblock the signal
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # for the process: Ctrl-C ends the run
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        there.close()
        self._processes[here] = process
        return here


def _serve(pipe: Any, prepare: Callable[[], None] | None) -> None:
    """Runs jobs until the other end is closed."""
    if prepare is not None:
        prepare()
    with contextlib.suppress(EOFError, OSError):
        while True:
            function, args = pipe.recv()
            try:
                result = function(*args)
            except Exception as error:
                result = Failure(f"{type(error).__name__}: {error}")
            pipe.send(result)


def use_one_core() -> None:
    """A worker that scores does so on one core: threads of libraries would compete, and it needs no accelerator."""
    import jax
    import threadpoolctl

    jax.config.update("jax_platforms", "cpu")
    threadpoolctl.threadpool_limits(1)
