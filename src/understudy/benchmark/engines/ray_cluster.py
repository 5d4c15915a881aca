"""Connections to Ray: an existing cluster, checked before it is used, or one that is started on this machine."""

import contextlib
import dataclasses
import importlib
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from understudy._version import __version__
from understudy.benchmark.engines.local import default_workers
from understudy.benchmark.suite import Limits
from understudy.errors import ConfigError

NODE_PATIENCE = 30.0
"""Seconds to wait for a node with room for a cell: the cluster may grow."""
CONNECT_SECONDS, ANSWER_SECONDS = 4.0, 15.0
"""How long a cluster may take to accept a connection, and then to answer."""
OBJECT_STORE = 100 * 2**20
"""Bytes that a cluster started here reserves for objects: records are small."""
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": ".*"}
"""No usage reports, and no long messages on standard output when a worker dies: its record says so."""
PROBE = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR'); ray.shutdown()"
"""The program that another process runs to test an address."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A connected cluster."""

    ray: ModuleType
    patience: float
    """Seconds to wait for a node with room for a cell."""
    folder: str = ""
    """The files of a cluster started here; removed with it."""

    def nodes(self) -> list[dict[str, object]]:
        return [node for node in self.ray.nodes() if node["Alive"]]

    def room(self) -> list[tuple[float, float]]:
        """The cores and the bytes of memory of each node."""
        resources = [node["Resources"] for node in self.nodes()]
        return [(each.get("CPU", 0.0), each.get("memory", 0.0)) for each in resources if isinstance(each, dict)]

    def each_node(self, work: Callable[..., str], *arguments: str, seconds: float) -> list[str]:
        """The answers of the nodes to a small task, from those that answer in time."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        remote = self.ray.remote(num_cpus=0, max_retries=0)(work)
        tasks = [
            remote.options(
                scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
            ).remote(*arguments)
            for node in self.nodes()
        ]
        if not tasks:
            return []
        ready, _ = self.ray.wait(tasks, num_returns=len(tasks), timeout=seconds)
        answers = []
        for task in ready:
            with contextlib.suppress(self.ray.exceptions.RayError):
                answers.append(self.ray.get(task))
        return answers


@contextlib.contextmanager
def connect(address: str | None, workers: int | None, limits: Limits) -> Iterator[Cluster]:
    """A cluster for one run: the one at the address, the one this process already uses, or a new one here."""
    for name, value in QUIET.items():  # Ray reads them when it is imported
        os.environ.setdefault(name, value)
    ray = importlib.import_module("ray")
    if ray.is_initialized():
        if address is not None:
            raise ConfigError(
                "This process is already connected to a Ray cluster. Leave the address out to use that one, or "
                "call ray.shutdown() first."
            )
        yield Cluster(ray, NODE_PATIENCE)
    elif address is not None:
        check_address(address)
        with _connection(ray, address=address):
            cluster = Cluster(ray, NODE_PATIENCE)
            check_versions(cluster.each_node(_version_probe(), seconds=ANSWER_SECONDS))
            yield cluster
    else:
        started: dict[str, Any] = {
            "address": "local",
            "num_cpus": workers or default_workers(limits),
            "num_gpus": 0,
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE,
        }
        with (
            tempfile.TemporaryDirectory(prefix="us-ray-", ignore_cleanup_errors=True) as folder,
            _connection(ray, **started, _temp_dir=folder),
        ):
            yield Cluster(ray, 0.0, folder)


@contextlib.contextmanager
def _connection(ray: ModuleType, **options: Any) -> Iterator[None]:
    """A quiet connection. Restores the handler of SIGTERM and the level of the logger, which Ray replaces."""
    logger = logging.getLogger("ray")
    level, handler = logger.level, signal.getsignal(signal.SIGTERM)
    logger.setLevel(logging.ERROR)
    try:
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
        finally:
            if threading.current_thread() is threading.main_thread() and handler is not None:
                signal.signal(signal.SIGTERM, handler)
        yield
    finally:
        ray.shutdown()
        logger.setLevel(level)


def check_address(address: str) -> None:
    """Raises unless a cluster with matching versions answers there within 20 seconds.

    Another process tries first, because Ray ends a process that fails to connect.
    """
    silent = f"No Ray cluster answers at {address}. Start one with 'ray start --head', or leave the address out."
    if address != "auto":
        match = re.fullmatch(r"(?:ray://)?(.+):(\d{1,5})", address)
        if match is None:
            raise ConfigError(f"The address of a Ray cluster is HOST:PORT, found {address!r}.")
        try:
            host = match[1].strip("[]")
            socket.create_connection((host, int(match[2])), timeout=CONNECT_SECONDS).close()
        except (OSError, OverflowError):
            raise ConfigError(silent) from None
    try:
        probe = subprocess.run(
            [sys.executable, "-c", PROBE, address], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(silent) from None
    if probe.returncode:
        raise ConfigError(f"Cannot connect to the Ray cluster at {address}: {last_error(probe.stderr)}")


def last_error(text: str) -> str:
    """The message of the last exception in the output of a process, as one line."""
    lines = [line for line in text.splitlines() if line.strip()]
    starts = [at for at, line in enumerate(lines) if re.match(r"[\w.]*(Error|Exception|Exit)\b", line)]
    message = " ".join(" ".join(lines[starts[-1] :] if starts else lines[-1:]).split())
    return re.sub(r"^[\w.]+: ", "", message)[:400] or "no message."


def _version_probe() -> Callable[[], str]:
    """Sent as code, since it must run where Understudy is not installed."""

    def find_versions() -> str:
        import contextlib
        import json
        import platform

        version: str | None = None
        with contextlib.suppress(ImportError):
            from understudy._version import __version__ as version
        return json.dumps({"host": platform.node(), "python": platform.python_version(), "understudy": version})

    return find_versions


def check_versions(answers: Sequence[str]) -> None:
    """Raises if a node has another version of Understudy or of Python; results would not be comparable."""
    here = {"understudy": __version__, "python": ".".join(map(str, sys.version_info[:2]))}
    for answer in map(json.loads, answers):
        node = f"Node {answer['host']} of the Ray cluster has"
        if answer["understudy"] is None:
            raise ConfigError(f"{node} no Understudy. Install it on every node.")
        versions = {"understudy": answer["understudy"], "python": ".".join(answer["python"].split(".")[:2])}
        for name, title in (("understudy", "Understudy"), ("python", "Python")):
            if versions[name] != here[name]:
                raise ConfigError(
                    f"{node} {title} {versions[name]}, but this machine has {here[name]}. Install the same version."
                )
