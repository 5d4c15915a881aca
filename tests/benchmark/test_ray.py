"""The Ray engine on real clusters: results, lost workers and nodes, limits, and what is refused."""

import contextlib
import importlib.util
import json
import os
import platform
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from understudy._version import __version__
from understudy.benchmark.cells import Cell, cells_of, table_checksums
from understudy.benchmark.engines import Finished, make_engine
from understudy.benchmark.engines.ray import MAX_DEATHS
from understudy.benchmark.engines.ray_cluster import check_versions
from understudy.benchmark.execution import Places
from understudy.benchmark.suite import Limits, read_suite
from understudy.errors import ConfigError

pytestmark = [
    pytest.mark.cluster,
    # Ray leaves pipes and log files to the garbage collector when a cluster is shut down.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
if importlib.util.find_spec("ray") is None:  # not imported here: the engine sets what Ray reads when it is imported
    pytest.skip("Ray is not installed: pip install 'understudy-dp[ray]'", allow_module_level=True)

SUITE = """
epsilons = [1.0]
seeds = {seeds}
metrics = ["f1", "tvd2"]
classifiers = ["logistic"]
max_rows = 500
synthetic_rows = 500
tables = ["breast"]
real_data = {real_data}
methods = [{methods}]
"""
ENDLESS = '"dpgan(steps=1000000)"'
ROOM = Limits(minutes=30, memory_gb=2)


def make_cells(folder: Path, methods: str, *, seeds: int = 1, real_data: bool = False) -> list[Cell]:
    path = folder / "suite.toml"
    path.write_text(SUITE.format(methods=methods, seeds=seeds, real_data=str(real_data).lower()))
    suite = read_suite(path)
    return cells_of(suite, checksums=table_checksums(suite)[0])


def places(folder: Path) -> Places:
    (folder / "scratch").mkdir(exist_ok=True)
    return Places(folder, folder / "environments")


def children(pid: int) -> list[int]:
    """A process and all that it started."""
    found, todo = [], [pid]
    while todo:
        found.append(now := todo.pop())
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{now}/task").iterdir():
                todo += map(int, (thread / "children").read_text().split())
    return found


def workers() -> list[int]:
    """The processes below this one that run a cell."""
    found = []
    for pid in children(os.getpid()):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::serve_cell"):
                found.append(pid)
    return found


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)


@contextlib.contextmanager
def kill_workers(times: int) -> Iterator[list[int]]:
    """Kills the first workers that run a cell, as soon as each does."""
    killed: list[int] = []

    def work() -> None:
        while len(killed) < times and not done.wait(0.05):
            for pid in [pid for pid in workers() if pid not in killed][: times - len(killed)]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    done, thread = threading.Event(), threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        done.set()
        thread.join()


def by_key(results: Iterator[Finished]) -> dict[str, dict[str, object]]:
    return {each.cell.key: each.record for each in results}


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files, where nothing may be left. Its path is short, since Ray has sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="t"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


def test_results_are_those_of_the_local_engine_also_after_a_worker_was_killed(tmp_path, temporary, capfd):
    cells = make_cells(tmp_path, '"independent", "mst"', seeds=2, real_data=True)
    with kill_workers(1) as killed:
        found = by_key(make_engine("ray", workers=2).run(cells, ROOM, places(tmp_path)))
    assert len(killed) == 1
    expected = by_key(make_engine("local", workers=1).run(cells, ROOM, places(tmp_path)))
    assert found.keys() == expected.keys() == {cell.key for cell in cells}
    for key, record in found.items():
        assert record["status"] == "done"
        assert record["engine"] == "ray"
        assert record["metrics"] == expected[key]["metrics"]
    assert not sys.modules["ray"].is_initialized()
    assert not list(temporary.glob("us-ray-*"))
    assert capfd.readouterr() == ("", "")


def test_cells_that_take_too_long_fail_and_make_room_for_the_next(tmp_path):
    """Both are endless: a limit that ends them soon would be too short for others on a busy machine."""
    cells = make_cells(tmp_path, ENDLESS, seeds=2)
    limits = Limits(minutes=0.1, memory_gb=4)
    found = by_key(make_engine("ray", workers=1).run(cells, limits, places(tmp_path)))
    assert found.keys() == {cell.key for cell in cells}
    assert [record["failure"]["reason"] for record in found.values()] == ["time", "time"]  # type: ignore[index]  # JSON, typed as objects


def test_a_cell_whose_worker_dies_again_and_again_has_failed(tmp_path):
    with kill_workers(MAX_DEATHS) as killed:
        (found,) = make_engine("ray", workers=1).run(make_cells(tmp_path, ENDLESS), ROOM, places(tmp_path))
    assert len(killed) == MAX_DEATHS
    assert found.record["failure"]["reason"] == "died"  # type: ignore[index]  # JSON, typed as objects


def test_limits_of_memory(tmp_path):
    cells = make_cells(tmp_path, '"independent"')
    (found,) = make_engine("ray", workers=1).run(cells, Limits(minutes=30, memory_gb=0.25), places(tmp_path))
    assert found.record["failure"] == {"reason": "memory", "message": "Used more than 0.25 GB of memory."}
    (found,) = make_engine("ray", workers=1).run(cells, Limits(minutes=30, memory_gb=1e6), places(tmp_path))
    failure = found.record["failure"]
    assert isinstance(failure, dict)
    assert failure["reason"] == "memory"
    assert failure["message"].startswith("No node of the Ray cluster has a core and 1e+06 GB of memory")


def test_closing_the_iterator_ends_the_cluster(tmp_path, temporary):
    results = make_engine("ray", workers=2).run(
        make_cells(tmp_path, f'"independent", {ENDLESS}'), ROOM, places(tmp_path)
    )
    assert next(results).record["status"] == "done"
    running = workers()
    assert running
    handler = signal.getsignal(signal.SIGTERM)
    results.close()  # type: ignore[attr-defined]  # a generator
    assert not sys.modules["ray"].is_initialized()
    wait_for(lambda: not workers())
    assert not list(temporary.glob("us-ray-*"))
    assert signal.getsignal(signal.SIGTERM) == handler == signal.SIG_DFL


def test_cells_of_a_lost_node_run_elsewhere(tmp_path):
    cluster = importlib.import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    address = f"127.0.0.1:{cluster.address.rpartition(':')[2]}"
    try:
        nodes = [cluster.add_node(num_cpus=1, memory=3 * 2**30) for _ in range(2)]
        cells = make_cells(tmp_path, '"independent", "mst"', seeds=2)
        results = make_engine("ray", address=address).run(cells, ROOM, places(tmp_path))
        found = [next(results)]
        cluster.remove_node(nodes[0], allow_graceful=False)
        found += results
        assert sorted(each.cell.key for each in found) == sorted(cell.key for cell in cells)
        assert {each.record["status"] for each in found} == {"done"}
        assert not sys.modules["ray"].is_initialized()
    finally:
        cluster.shutdown()


@pytest.mark.parametrize("listening", [False, True], ids=["nobody listens", "something else listens"])
def test_a_cluster_that_does_not_answer_is_one_line_soon(tmp_path, listening):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{server.getsockname()[1]}"
        if listening:
            server.listen()
        began = time.monotonic()
        results = make_engine("ray", address=address).run(make_cells(tmp_path, '"mst"'), ROOM, places(tmp_path))
        with pytest.raises(ConfigError, match=address) as caught:
            next(results)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - began < 60, "two timeouts of less than 20 s together; Ray alone would take minutes"


@pytest.mark.parametrize(
    ("python", "version", "expected"),
    [("3.9.1", __version__, "has Python 3.9, but"), (platform.python_version(), "0.0.1", "has Understudy 0.0.1, but")],
)
def test_nodes_with_other_versions_are_refused(python, version, expected):
    check_versions([json.dumps({"host": "n1", "python": platform.python_version(), "understudy": __version__})])
    with pytest.raises(ConfigError, match=f"Node n1 of the Ray cluster {expected}"):
        check_versions([json.dumps({"host": "n1", "python": python, "understudy": version})])


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'understudy-dp\[ray\]'"):
        make_engine("ray")
