"""Runs cells on a Ray cluster: an existing one, given by its address, or one started on this machine for the run.

Cells and their results travel as JSON text; each cell takes one core and the memory that a cell may use. Its limits are
kept on its node; the driver hands out cells, and reruns those whose node was lost or whose worker died.
"""

import collections
import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from understudy._version import install_advice
from understudy.benchmark.cells import Cell
from understudy.benchmark.engines import Finished, Task
from understudy.benchmark.engines.local import Pool
from understudy.benchmark.engines.ray_cluster import Cluster, connect, last_error
from understudy.benchmark.execution import Places, complete, failure
from understudy.benchmark.suite import Limits
from understudy.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows: workers share all cores there
    fcntl = None  # type: ignore[assignment]  # no module, so no lock

POLL = 2.0
"""Seconds without a result after which it is checked whether the cluster has room for a cell."""
MAX_DEATHS = 3
"""A cell whose worker or node was lost this many times has failed."""


@dataclasses.dataclass(frozen=True)
class RayEngine:
    """Runs cells on a Ray cluster."""

    address: str | None = None
    """Of an existing cluster, such as 192.0.2.7:6379, ray://host:10001 or auto; None: one is started locally."""
    workers: int | None = None
    """Cells that run at once. None: one per core of the cluster; on this machine, no more than memory allows."""
    name: str = "ray"

    def __post_init__(self) -> None:
        if importlib.util.find_spec("ray") is None:
            raise ConfigError(f"The engine ray needs Ray. Run: {install_advice('ray')}.")

    def run(self, cells: Sequence[Cell], limits: Limits, places: Places) -> Iterator[Finished]:
        with connect(self.address, self.workers, limits) as cluster:
            run = _Run(cluster, cells, limits, places, max_running=self.workers or len(cells))
            try:
                yield from run.results()
            finally:
                run.close()


class _Run:
    """The cells of one run."""

    def __init__(
        self, cluster: Cluster, cells: Sequence[Cell], limits: Limits, places: Places, *, max_running: int
    ) -> None:
        self.cluster, self.ray, self.limits, self.max_running = cluster, cluster.ray, limits, max_running
        self.waiting, self.running = collections.deque(cells), dict[object, Cell]()
        self.deaths = collections.Counter[str]()
        self.name = f"understudy-ray-{secrets.token_hex(8)}"  # random: nobody else can have made it
        self.task = {
            "parent": cluster.folder,
            "name": self.name,
            "limits": dataclasses.asdict(limits),
            "environments": str(places.environments),
            "data": os.environ.get("UNDERSTUDY_DATA", ""),
        }
        self.memory = int(limits.memory_gb * 2**30)
        self.serve = self.ray.remote(num_cpus=1, memory=self.memory, max_retries=0)(serve_cell)
        self.had_room = time.monotonic()

    def results(self) -> Iterator[Finished]:
        yield from self._check_room()
        while self.waiting or self.running:
            while self.waiting and len(self.running) < self.max_running:
                cell = self.waiting.popleft()
                text = json.dumps({**self.task, "cell": _with_whole_paths(cell).to_json()})
                self.running[self.serve.remote(text)] = cell
            ready, _ = self.ray.wait(list(self.running), timeout=POLL, fetch_local=False)
            for reference in ready:
                yield from self._receive(reference)
            if not ready:
                yield from self._check_room()

    def close(self) -> None:
        """Ends what is still running, and removes the files of the run from the nodes."""
        with contextlib.suppress(self.ray.exceptions.RayError):
            for reference in self.running:
                self.ray.cancel(reference, force=True)
            if not self.cluster.folder:
                self.cluster.each_node(remove_folder, self.name, seconds=5.0)

    def _receive(self, reference: object) -> Iterator[Finished]:
        cell, errors = self.running.pop(reference), self.ray.exceptions
        try:
            record = json.loads(self.ray.get(reference))
        except errors.OutOfMemoryError:
            yield _failed(cell, "memory", "The node ran out of memory.")
        except errors.RayTaskError as error:
            yield _failed(cell, "error", last_error(str(error)))
        except errors.RayError as error:  # the worker or its node is gone: the cell runs again, unless it is the cause
            self.deaths[cell.key] += 1
            if self.deaths[cell.key] < MAX_DEATHS:
                self.waiting.appendleft(cell)
            else:
                yield _failed(cell, "died", f"The worker died {MAX_DEATHS} times: {' '.join(str(error).split())}")
        else:
            yield Finished(cell, record)

    def _check_room(self) -> Iterator[Finished]:
        """Fails all cells if no node has room for one, instead of waiting forever."""
        room = self.cluster.room()
        if any(cores >= 1 and memory >= self.memory for cores, memory in room):
            self.had_room = time.monotonic()
        elif time.monotonic() > self.had_room + self.cluster.patience:
            largest = max((memory for cores, memory in room if cores >= 1), default=0.0) / 2**30
            why = (
                f"No node of the Ray cluster has a core and {self.limits.memory_gb:g} GB of memory for a cell: the "
                f"largest has {largest:.1f} GB. Lower memory_gb under [limits], or add a larger node."
            )
            cells = [*self.running.values(), *self.waiting]
            self.close()
            self.running.clear()
            self.waiting.clear()
            yield from (_failed(cell, "memory", why) for cell in cells)


def _failed(cell: Cell, reason: str, message: str) -> Finished:
    return Finished(cell, complete(failure(reason, message), engine="ray", peak_mb=None))


def _with_whole_paths(cell: Cell) -> Cell:
    """With absolute paths: workers have other working folders."""

    def whole(spec: Any, *names: str) -> Any:
        paths = {name: path for name in names if (path := getattr(spec, name)) is not None}
        return dataclasses.replace(spec, **{name: str(Path(path).absolute()) for name, path in paths.items()})

    method = None if cell.method is None else whole(cell.method, "peer_file")
    return dataclasses.replace(cell, table=whole(cell.table, "file", "schema", "test_file"), method=method)


# ------------------------------------------------------------------------------------------------------------ on a node


def serve_cell(text: str) -> str:
    """Runs one cell in a process of the local engine, which enforces its limits, and returns its record as JSON."""
    task = json.loads(text)
    folder = _node_folder(task["name"], task["parent"])
    _hold_core(folder)
    if task["data"]:
        os.environ.setdefault("UNDERSTUDY_DATA", task["data"])
    shared = Path(task["environments"])
    places = Places(folder, shared if shared.is_dir() else folder / "environments")
    pool = _pool(Limits(**task["limits"]), places)
    pool.queue.append(Task("cell", (Cell.from_json(task["cell"]),)))
    (finished,) = pool.run()
    return json.dumps(finished.record)


@functools.cache
def _pool(limits: Limits, places: Places) -> Pool:
    """The pool, kept between cells so that imports and compiled programs are shared. It ends with this process."""
    return Pool(limits, places, name="ray", num_workers=1, num_trainers=0)


def _node_folder(name: str, parent: str = "") -> Path:
    """The files of one run on a node."""
    folder = Path(parent or tempfile.gettempdir()) / name
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def remove_folder(name: str) -> str:
    """Removes the files of a run from a node."""
    shutil.rmtree(_node_folder(name), ignore_errors=True)
    return name


@functools.cache
def _hold_core(folder: Path) -> int | None:
    """Pins this process to a core that no other worker of the run has, so that results are those of one core."""
    if fcntl is None or not hasattr(os, "sched_setaffinity"):
        return None
    for core in sorted(os.sched_getaffinity(0)):
        handle = os.open(folder / f"core{core}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            continue
        os.sched_setaffinity(0, {core})
        return core
    return None
