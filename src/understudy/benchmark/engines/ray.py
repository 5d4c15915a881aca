"""Runs cells on a Ray cluster: an existing one, given by its address, or one started on this machine for the run.

Cells and their results travel as JSON text; each cell takes one core and the memory that a cell may use. The driver
hands out cells, enforces their time limits, and reruns those whose node was lost or whose worker died.
"""

import collections
import contextlib
import dataclasses
import importlib.util
import json
import math
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from understudy.benchmark.cells import Cell
from understudy.benchmark.engines.protocol import Finished, Places
from understudy.benchmark.engines.ray_cluster import Cluster, connect, last_error
from understudy.benchmark.engines.ray_worker import remove_folder, serve_cell
from understudy.benchmark.execution import complete, failure
from understudy.benchmark.results import Record
from understudy.benchmark.suite import Limits
from understudy.errors import ConfigError

POLL = 0.2
"""Seconds between checks of the time that cells take."""
MOST_DEATHS = 2
"""A cell whose worker has died this many times has failed."""
MOST_MOVES = 5
"""How many times a cell is rerun because its node was lost."""
NODE_CHECK = 5.0
"""Seconds between checks of the nodes of a cluster."""


@dataclasses.dataclass(frozen=True)
class RayEngine:
    """Runs cells on a Ray cluster.

    >>> RayEngine.name
    'ray'
    """

    address: str | None = None
    """Of an existing cluster, such as 192.0.2.7:6379, ray://host:10001 or auto; None: one is started locally."""
    workers: int | None = None
    """Cells that run at once. None: one per core of the cluster; on this machine, no more than memory allows."""
    name: str = "ray"

    def __post_init__(self) -> None:
        if importlib.util.find_spec("ray") is None:
            raise ConfigError("The engine ray needs Ray. Install it with: pip install 'understudy[ray]'")

    def run(self, cells: Sequence[Cell], limits: Limits, places: Places) -> Iterator[Finished]:
        with connect(self.address, self.workers, limits) as cluster:
            run = _Run(cluster, cells, limits, places)
            try:
                yield from run.results()
            finally:
                run.close()


@dataclasses.dataclass
class _Attempt:
    """A cell, how often its worker died or its node was lost, and where it runs."""

    cell: Cell
    deaths: int = 0
    moves: int = 0
    node: str = ""
    """Where it runs; empty: it waits for a core."""
    deadline: float = math.inf


class _Run:
    """The cells of one run."""

    def __init__(self, cluster: Cluster, cells: Sequence[Cell], limits: Limits, places: Places) -> None:
        self.cluster, self.ray, self.limits = cluster, cluster.ray, limits
        self.waiting = collections.deque(_Attempt(cell) for cell in cells)
        self.running: dict[object, _Attempt] = {}
        self.name = f"understudy-ray-{secrets.token_hex(8)}"  # random: nobody else can have made it
        self.memory = int(limits.memory_gb * 2**30)
        self.task = {
            "parent": cluster.folder,
            "name": self.name,
            "memory": self.memory,
            "environments": str(places.environments),
        }
        self.task["data"] = os.environ.get("UNDERSTUDY_DATA", "")
        self.serve = self.ray.remote(num_cpus=1, memory=self.memory, max_retries=0, num_returns="streaming")(serve_cell)
        self.next_check, self.without_room = 0.0, math.inf

    def results(self) -> Iterator[Finished]:
        while self.waiting or self.running:
            yield from self._check_room()
            while self.waiting and len(self.running) < self.cluster.most:
                self._hand_out(self.waiting.popleft())
            if self.running:
                ready, _ = self.ray.wait(list(self.running), timeout=POLL, fetch_local=False)
                for stream in ready:
                    yield from self._receive(stream)
            yield from self._watch()

    def close(self) -> None:
        """Ends what is still running, and removes the files of the run from the nodes."""
        for stream in self.running:
            self._kill(stream)
        if not self.cluster.folder:
            with contextlib.suppress(self.ray.exceptions.RayError):
                self.cluster.each_node(remove_folder, self.name, seconds=5.0)

    def _hand_out(self, attempt: _Attempt) -> None:
        text = json.dumps({**self.task, "cell": _with_whole_paths(attempt.cell).to_json()})
        attempt.node, attempt.deadline = "", math.inf
        self.running[self.serve.remote(text)] = attempt

    def _receive(self, stream: object) -> Iterator[Finished]:
        attempt, errors = self.running[stream], self.ray.exceptions
        try:
            message = json.loads(self.ray.get(next(stream)))  # type: ignore[call-overload]
        except StopIteration:
            yield from self._lose(stream, "The worker ended without a result.")
        except errors.OutOfMemoryError:
            yield self._fail(stream, "memory", "The node ran out of memory.")
        except errors.RayTaskError as error:
            yield self._fail(stream, "error", last_error(str(error)))
        except errors.RayError as error:
            yield from self._lose(stream, str(error))
        else:
            if "record" in message:
                del self.running[stream]
                if message["retire"]:
                    self._kill(stream)
                yield Finished(attempt.cell, message["record"])
            else:
                attempt.node, attempt.deadline = message["node"], time.monotonic() + 60 * self.limits.minutes

    def _watch(self) -> Iterator[Finished]:
        now = time.monotonic()
        for stream in [stream for stream, attempt in self.running.items() if now > attempt.deadline]:
            self._kill(stream)
            yield self._fail(stream, "time", f"Not finished within {self.limits.minutes:g} minutes.")

    def _lose(self, stream: object, why: str) -> Iterator[Finished]:
        """A worker or its node is gone: the cell runs again, unless it seems to be the cause."""
        attempt = self.running[stream]
        if attempt.node and attempt.node not in {node["NodeID"] for node in self.cluster.nodes()}:
            attempt.moves += 1
        else:
            attempt.deaths += 1
        if attempt.deaths >= MOST_DEATHS or attempt.moves > MOST_MOVES:
            times = attempt.deaths + attempt.moves
            yield self._fail(stream, "died", f"The worker died {times} times: {' '.join(why.split())}")
        else:
            del self.running[stream]
            self.waiting.appendleft(attempt)

    def _check_room(self) -> Iterator[Finished]:
        """Fails all cells if no node has room for one, instead of waiting forever."""
        now = time.monotonic()
        if now < self.next_check or any(attempt.node for attempt in self.running.values()):
            return
        self.next_check, room = now + NODE_CHECK, self.cluster.room()
        if any(cores >= 1 and memory >= self.memory for cores, memory in room):
            self.without_room = math.inf
            return
        self.without_room = min(self.without_room, now)
        if now < self.without_room + self.cluster.patience:
            time.sleep(POLL)
            return
        largest = max((memory for cores, memory in room if cores >= 1), default=0.0) / 2**30
        why = (
            f"No node of the Ray cluster has a core and {self.limits.memory_gb:g} GB of memory for a cell: the largest "
            f"has {largest:.1f} GB. Lower memory_gb under [limits], or add a larger node."
        )
        for stream in list(self.running):
            self._kill(stream)
            yield self._fail(stream, "memory", why)
        while self.waiting:
            yield Finished(self.waiting.popleft().cell, _failure("memory", why))

    def _fail(self, stream: object, reason: str, message: str) -> Finished:
        return Finished(self.running.pop(stream).cell, _failure(reason, message))

    def _kill(self, stream: object) -> None:
        with contextlib.suppress(self.ray.exceptions.RayError):
            self.ray.cancel(stream, force=True)


def _failure(reason: str, message: str) -> Record:
    return complete(failure(reason, message), engine="ray", peak_mb=None)


def _with_whole_paths(cell: Cell) -> Cell:
    """With absolute paths: workers have other working folders."""
    spec = cell.table
    return dataclasses.replace(
        cell,
        table=dataclasses.replace(
            spec, file=_whole(spec.file), schema=_whole(spec.schema), test_file=_whole(spec.test_file)
        ),
    )


def _whole(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())
