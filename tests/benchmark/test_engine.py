"""The local engine: real worker processes, limits, deaths, interrupts and resumed runs."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.benchmark.suites import write_suite
from understudy.benchmark.engines import make_engine
from understudy.benchmark.results import ResultStore
from understudy.benchmark.run import run_suite, suite_status
from understudy.benchmark.suite import read_suite
from understudy.errors import ConfigError

FAST = 'methods = ["independent"]'
LONG = '[[methods]]\nmethod = "dpgan(steps=200000)"\nname = "long"\n[[methods]]\nmethod = "independent"'

REFUSED = "quail(mst, target=nothing)"
"""Reads as a method, and refuses the table of these tests."""


def run(path: Path, **options):
    return run_suite(read_suite(path), path.parent / "out", make_engine("local", workers=1), **options)


def records(path: Path) -> list[dict]:
    return list(ResultStore(path.parent / "out").read().values())


def workers_of(pid: int) -> list[int]:
    """The processes that this one started, by the kernel's own list."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in threads for child in file.read_text().split()]


def test_a_suite_runs_and_a_second_run_has_nothing_to_do(tmp_path):
    path = write_suite(tmp_path, methods=FAST)
    outcome = run(path)
    assert (outcome.done, outcome.failed, outcome.run) == (3, 0, 3)
    found = records(path)
    assert {record["method"] for record in found} == {"real data", "independent"}
    for record in found:
        assert set(record["metrics"]) == {"f1", "tvd2"}
        assert record["seconds"]["score"] > 0
        assert record["rows"]["train"] == 240
        if record["method"] == "independent":
            artefacts = {
                file.name: json.loads(file.read_text())
                for file in ResultStore(tmp_path / "out").artefacts(record["key"])
            }
            assert set(artefacts) == {"certificate.json", "scorecard.json"}
            assert artefacts["certificate.json"]["seeded"] is True
    assert not (tmp_path / "out" / "scratch").exists()
    assert run(path).run == 0
    status = suite_status(read_suite(path), tmp_path / "out")
    assert (status.total, status.done, status.open, status.other) == (3, 3, 0, 0)


def test_failures_of_every_kind_are_records_and_harm_no_other_cell(tmp_path):
    """A method that raises, one that takes too long, and the others finish."""
    sections = f'{LONG}\n[[methods]]\nmethod = "{REFUSED}"\nname = "refused"'
    path = write_suite(tmp_path, methods=sections, more="limits = { minutes = 0.25 }", seeds=1)
    outcome = run(path)
    assert (outcome.done, outcome.failed) == (2, 2)
    reasons = {record["method"]: record["failure"]["reason"] for record in records(path) if record["failure"]}
    assert reasons == {"long": "time", "refused": "error"}
    messages = [record["failure"]["message"] for record in records(path) if record["method"] == "refused"]
    assert all(message and "\n" not in message for message in messages)
    assert run(path).run == 0, "failed cells stay failed"


def test_a_cell_that_needs_too_much_memory_is_stopped(tmp_path):
    path = write_suite(tmp_path, methods=FAST, more="limits = { memory_gb = 0.05 }\nreal_data = false")
    run(path)
    assert {record["failure"]["reason"] for record in records(path)} == {"memory"}


def test_a_worker_that_is_killed_costs_its_cell_alone_and_a_retry_runs_it(tmp_path):
    path = write_suite(tmp_path, methods=LONG, more="real_data = false", seeds=1)
    before = set(workers_of(os.getpid()))

    def kill_first_worker() -> None:
        while not (found := set(workers_of(os.getpid())) - before):
            time.sleep(0.1)
        time.sleep(2)
        os.kill(found.pop(), signal.SIGKILL)

    threading.Thread(target=kill_first_worker, daemon=True).start()
    outcome = run(path)
    assert (outcome.done, outcome.failed) == (1, 1)
    (died,) = (record["failure"] for record in records(path) if record["failure"])
    assert died["reason"] == "died"
    assert "SIGKILL" in died["message"]
    shorter = write_suite(tmp_path, methods=LONG, more="real_data = false\nlimits = { minutes = 0.05 }", seeds=1)
    assert run(shorter).run == 0
    assert run(shorter, retry=True).run == 1, "a retry runs what failed, and nothing else"
    assert {record["failure"]["reason"] for record in records(path) if record["failure"]} == {"time"}


SCRIPT = """
import sys
from understudy.benchmark.engines import make_engine
from understudy.benchmark.run import run_suite
from understudy.benchmark.suite import read_suite
run_suite(read_suite(sys.argv[1]), sys.argv[2], make_engine("local", workers=1))
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_killed_keeps_what_was_finished_and_resumes(tmp_path, ending):
    path = write_suite(tmp_path, methods='methods = ["independent", "dpgan(steps=200000)"]')
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path), str(tmp_path / "out")])
    store, deadline = ResultStore(tmp_path / "out"), time.monotonic() + 120
    while len(store.read()) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    (worker,) = workers_of(process.pid)
    process.send_signal(ending)
    process.wait(timeout=30)
    kept = len(store.read())
    assert kept >= 2
    deadline = time.monotonic() + 10
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{worker}").exists(), "the worker ends with its parent"
    outcome = run(write_suite(tmp_path, methods=FAST))
    assert (outcome.done, outcome.run) == (3, 3 - kept), "only what was not finished runs again"


def test_results_do_not_depend_on_which_worker_ran_what(tmp_path):
    path = write_suite(tmp_path, methods='methods = ["independent", "mst"]')
    run(path)
    suite = read_suite(path)
    run_suite(suite, tmp_path / "two", make_engine("local", workers=2))
    other = ResultStore(tmp_path / "two").read()
    for record in records(path):
        assert other[record["key"]]["metrics"] == record["metrics"]


def test_unknown_engines_and_impossible_numbers_are_refused():
    with pytest.raises(ConfigError, match="Did you mean 'local'"):
        make_engine("locla")
    with pytest.raises(ConfigError, match="at least 1"):
        make_engine("local", workers=0)
    with pytest.raises(ConfigError, match="--engine ray"):
        make_engine("local", address="auto")
