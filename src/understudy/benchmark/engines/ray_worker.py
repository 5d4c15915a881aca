"""What runs on the nodes of a Ray cluster: one cell at a time, within its memory limit."""

import functools
import importlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from understudy.benchmark.cells import Cell
from understudy.benchmark.engines.local import SINGLE_THREAD
from understudy.benchmark.execution import Workplace, complete, failed, failure, run_cell
from understudy.benchmark.results import Record

try:
    import fcntl
except ImportError:  # Windows: workers share all cores there
    fcntl = None  # type: ignore[assignment]

POLL = 0.2
"""Seconds between checks of the memory of a cell."""


def serve_cell(text: str) -> Iterator[str]:
    """Runs one cell on a node. Yields JSON text: where it runs, then its record.

    A worker that should not take another cell says so, and waits to be ended by the driver.
    """
    task = json.loads(text)
    folder = _node_folder(task["name"], task["parent"])
    _hold_core(folder)
    os.environ.update(SINGLE_THREAD)
    if task["data"]:
        os.environ.setdefault("UNDERSTUDY_DATA", task["data"])
    context = importlib.import_module("ray").get_runtime_context()
    yield json.dumps({"node": context.get_node_id(), "pid": os.getpid()})
    shared = Path(task["environments"])
    place = Workplace(folder, folder, shared if shared.is_dir() else folder / "environments")
    record, retire = run_within(Cell.from_json(task["cell"]), place, task["memory"])
    yield _write_answer(record, retire)
    if retire:
        time.sleep(60)
        os._exit(1)


def _write_answer(record: Record, retire: bool) -> str:
    try:
        return json.dumps({"record": record, "retire": retire}, allow_nan=False)
    except (TypeError, ValueError) as error:
        record = complete(failed(error), engine="ray", peak_mb=None)
        return json.dumps({"record": record, "retire": retire})


def run_within(cell: Cell, place: Workplace, memory: float) -> tuple[Record, bool]:
    """The record of a cell, and whether this process uses too much memory to run another one."""
    found: list[Record] = []
    thread = threading.Thread(target=lambda: found.append(run_cell(cell, place)), daemon=True)
    thread.start()
    used = peak = used_memory()
    while thread.is_alive():
        thread.join(POLL)
        used = used_memory()
        peak = max(peak, used)
        if used > memory:
            why = f"Used more than {memory / 2**30:g} GB of memory."
            return complete(failure("memory", why), engine="ray", peak_mb=peak / 1e6), True
    record = found[0] if found else failure("died", "The cell ended its thread.")
    return complete(record, engine="ray", peak_mb=peak / 1e6), used > memory / 2  # compiled programs add up


def used_memory() -> float:
    """Resident bytes of this process and its descendants; 0 if the system does not report them."""
    total, todo = 0.0, [os.getpid()]
    while todo:
        folder = Path(f"/proc/{todo.pop()}")
        try:
            total += float((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for thread in (folder / "task").iterdir():
                todo += map(int, (thread / "children").read_text().split())
        except (OSError, IndexError, ValueError):
            continue
    return total


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
