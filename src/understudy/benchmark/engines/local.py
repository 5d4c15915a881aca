"""Worker processes on this machine: one core each for cells, and trainers for populations.

The parent only hands out tasks and watches time and memory. A worker that takes too long, uses too much memory
or dies is replaced, and its cell is recorded as failed; other cells are not affected.
"""

import collections
import contextlib
import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from understudy.benchmark.cells import Cell
from understudy.benchmark.engines import Finished, Task
from understudy.benchmark.execution import Places, complete, failure
from understudy.benchmark.results import FAILED, Record
from understudy.benchmark.suite import Limits
from understudy.errors import ConfigError

POLL = 0.2
"""Seconds between checks of time and memory."""
MAX_DEATHS = 1
"""A cell whose worker died is run again this often: something else may have killed the worker."""
FAILED_STARTS = 3
"""After this many workers in a row that ended before they were ready, the run ends."""
MAX_MEMBERS = 96
"""The most cells that are trained as one program; larger groups are split."""
SINGLE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
"""A worker has one core: threads of libraries would compete for it."""
PROGRAMS = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # several trainers share one accelerator
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1",
}
"""Compiled programs are cached beside the results, so that each is compiled once, not once per worker."""


@dataclasses.dataclass(frozen=True)
class LocalEngine:
    """Runs cells in processes on this machine. `trainers` is 0 if every cell is fitted by itself."""

    name: str = "local"
    workers: int | None = None
    trainers: int = 0

    def run(self, cells: Sequence[Cell], limits: Limits, places: Places) -> Iterator[Finished]:
        together, alone = group_programs(cells) if self.trainers else ([], list(cells))
        pool = Pool(
            limits,
            places,
            name=self.name,
            num_workers=self.workers or default_workers(limits, self.trainers),
            num_trainers=min(self.trainers, len(together)),
        )
        pool.queue.extend(Task("cell", (cell,)) for cell in alone)
        pool.fits.extend(Task("fit", tuple(group)) for group in together)
        try:
            yield from pool.run()
        finally:
            pool.close()


def default_workers(limits: Limits, trainers: int = 0) -> int:
    """One per core, or fewer if memory does not suffice for the limit of a cell."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    room = available_memory()
    fitting = cores if room is None else int(room // (limits.memory_gb * 2**30))
    return max(1, min(cores - trainers, fitting))


def available_memory() -> float | None:
    """Bytes that new processes can use; None if the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    amounts = dict(line.split(":", 1) for line in lines)
    return 1024.0 * int(amounts["MemAvailable"].split()[0]) if "MemAvailable" in amounts else None


def group_programs(cells: Sequence[Cell]) -> tuple[list[list[Cell]], list[Cell]]:
    """Cells that can be trained together, largest groups first, and the others."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    alone: list[Cell] = []
    for cell in cells:
        if cell.method is not None and cell.method.peer is None and trains_networks(cell.method.expression):
            groups.setdefault(cell.program, []).append(cell)
        else:
            alone.append(cell)
    chunks = [
        group[first : first + MAX_MEMBERS] for group in groups.values() for first in range(0, len(group), MAX_MEMBERS)
    ]
    return sorted((chunk for chunk in chunks if len(chunk) > 1), key=len, reverse=True), [
        *alone,
        *(cell for chunk in chunks if len(chunk) == 1 for cell in chunk),
    ]


def trains_networks(expression: str) -> bool:
    """Whether a method, or the one that it wraps, trains networks: only these benefit from a population."""
    from understudy.synthesizers import read_method
    from understudy.synthesizers.protocol import Synthesizer

    method: Synthesizer | None = read_method(expression)
    while method is not None:
        if method.capabilities.trajectory:
            return True
        method = method.capabilities.inner
    return False


class Pool:
    """The processes of one run and the tasks waiting for them."""

    def __init__(self, limits: Limits, places: Places, *, name: str, num_workers: int, num_trainers: int) -> None:
        self.limits, self.places, self.name = limits, places, name
        self.queue: collections.deque[Task] = collections.deque()
        self.fits: collections.deque[Task] = collections.deque()
        self.wanted = {False: num_workers, True: num_trainers}
        self.processes: list[_Process] = []
        self.failed_starts = 0
        self.selector = selectors.DefaultSelector()

    def run(self) -> Iterator[Finished]:
        while self.queue or self.fits or any(process.task for process in self.processes):
            self._hand_out()
            for ready, _ in self.selector.select(timeout=POLL):
                yield from self._receive(ready.data)
            yield from self._watch()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        self.processes.clear()
        self.selector.close()

    def _hand_out(self) -> None:
        for is_trainer, queue in ((True, self.fits), (False, self.queue)):
            mine = [process for process in self.processes if process.is_trainer == is_trainer]
            free = [process for process in mine if process.task is None]
            for _ in range(min(self.wanted[is_trainer] - len(mine), len(queue) - len(free))):
                self._start(is_trainer)
            for process in free:
                if queue and process.is_ready:  # one that still starts reads nothing, and its pipe would fill up
                    process.give(queue.popleft(), self.name, self.limits)

    def _start(self, is_trainer: bool) -> None:
        used = {process.number for process in self.processes if process.is_trainer == is_trainer}
        number = next(number for number in range(len(used) + 1) if number not in used)
        process = _Process(number, is_trainer, self.places)
        self.processes.append(process)
        self.selector.register(process.output, selectors.EVENT_READ, process)

    def _receive(self, process: "_Process") -> Iterator[Finished]:
        messages = process.read()
        if messages is None:
            yield from self._lose(process, "died", process.last_words())
            return
        for message in messages:
            if "ready" in message:
                process.is_ready, self.failed_starts = True, 0
            elif "key" in message:
                part = message["part"]
                assert isinstance(part, dict)
                yield from self._take(process, str(message["key"]), part)
            elif "end" in message:
                process.task = None
                if process.memory() > self.limits.memory_gb * 2**29:  # compiled programs add up
                    self._remove(process)

    def _take(self, process: "_Process", key: str, part: Record) -> Iterator[Finished]:
        task = process.task
        assert task is not None
        cell = process.waiting.pop(key, None)
        if cell is None:
            return
        if task.stage == "fit" and part.get("status") != FAILED:
            self.queue.appendleft(Task("score", (cell,), earlier=part))
        elif task.stage == "fit":
            yield Finished(cell, complete(part, engine=self.name, peak_mb=process.peak / 1e6))
        else:
            yield Finished(cell, {**task.earlier, **part, "peak_mb": round(process.peak / 1e6, 1)})

    def _watch(self) -> Iterator[Finished]:
        now = time.monotonic()
        for process in [process for process in self.processes if process.task is not None]:
            process.peak = max(process.peak, used := process.memory())
            if now > process.deadline:
                yield from self._lose(process, "time", f"Not finished within {self.limits.minutes:g} minutes.")
            elif used > self.limits.memory_gb * 2**30 and not process.is_trainer:
                yield from self._lose(process, "memory", f"Used more than {self.limits.memory_gb:g} GB of memory.")

    def _lose(self, process: "_Process", reason: str, message: str) -> Iterator[Finished]:
        """Ends a process. Its cell has failed; cells that were trained together are retried one by one."""
        task, waiting = process.task, list(process.waiting.values())
        self._remove(process)
        if not process.is_ready:
            self.failed_starts += 1
            if self.failed_starts >= FAILED_STARTS:
                raise ConfigError(f"Worker processes do not start. {message}")
        if task is None:
            return
        if task.stage == "fit":
            self.queue.extend(Task("cell", (cell,)) for cell in waiting)
            return
        if reason == "died" and task.deaths < MAX_DEATHS:
            self.queue.append(dataclasses.replace(task, deaths=task.deaths + 1))
            return
        for cell in waiting:
            record = complete(failure(reason, message), engine=self.name, peak_mb=process.peak / 1e6)
            yield Finished(cell, {**task.earlier, **record})

    def _remove(self, process: "_Process") -> None:
        self.selector.unregister(process.output)
        self.processes.remove(process)
        process.kill()


class _Process:
    """A worker process and its current task."""

    def __init__(self, number: int, is_trainer: bool, places: Places) -> None:
        self.number, self.is_trainer = number, is_trainer
        self.task: Task | None = None
        self.waiting: dict[str, Cell] = {}
        self.deadline, self.peak, self._rest = 0.0, 0.0, b""
        self.is_ready = False
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by kill
        command = [sys.executable, "-m", "understudy.benchmark.worker", "--folder", str(places.folder)]
        command += ["--environments", str(places.environments)]
        environment = {**PROGRAMS, "JAX_COMPILATION_CACHE_DIR": str(places.folder / "programs"), **os.environ}
        if not is_trainer:
            cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
            command += ["--cores", str(cores[number % len(cores)])]
            environment |= SINGLE_THREAD
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            start_new_session=True,  # a process group of its own: killed as a whole, and Ctrl-C does not reach it
        )
        assert self._popen.stdout is not None
        self.output = self._popen.stdout
        os.set_blocking(self.output.fileno(), False)

    def give(self, task: Task, engine: str, limits: Limits) -> None:
        self.task, self.waiting = task, {cell.key: cell for cell in task.cells}
        self.peak = 0.0
        # A population takes longer than one of its members, but far less than all of them in turn.
        self.deadline = time.monotonic() + 60 * limits.minutes * max(1.0, len(task.cells) / 4)
        content = {"stage": task.stage, "cells": [cell.to_json() for cell in task.cells], "engine": engine}
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write((json.dumps(content) + "\n").encode())
            self._popen.stdin.flush()
        except OSError:
            pass  # the process has died: `last_words` will say why

    def read(self) -> list[dict[str, object]] | None:
        """Complete messages that have arrived; None: the process has ended."""
        try:
            content = os.read(self.output.fileno(), 1 << 20)
        except BlockingIOError:
            return []
        if not content:
            return None
        *lines, self._rest = (self._rest + content).split(b"\n")
        try:
            return [json.loads(line) for line in lines if line.strip()]
        except ValueError:  # what is not a message was written by something that broke the worker
            return None

    def memory(self) -> float:
        return resident_bytes(self._popen.pid)

    def last_words(self) -> str:
        """The last line that the process wrote to its log, or the signal that ended it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout=1)
        code = self._popen.poll()
        if code is None:
            return "The worker wrote something that is not a message."
        self._log.seek(0)
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        if code < 0:
            return f"The worker was killed by {signal.Signals(-code).name}."
        return f"The worker ended with exit code {code}: {lines[-1].strip() if lines else 'no message'}"

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        for stream in (self._popen.stdin, self.output, self._log):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]  # they are pipes


def resident_bytes(pid: int) -> float:
    """The resident memory of a process and all its descendants; 0 if the system does not report it."""
    total, todo = 0.0, [pid]
    while todo:
        folder = Path(f"/proc/{todo.pop()}")
        with contextlib.suppress(OSError, IndexError, ValueError):
            total += float((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for children in (folder / "task").glob("*/children"):  # any thread may have started one
                with contextlib.suppress(OSError):
                    todo += map(int, children.read_text().split())
    return total
