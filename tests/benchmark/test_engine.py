"""The local engine: real worker processes, limits, deaths, interrupts and resumed runs."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.benchmark.suites import write_suite, write_table
from tests.builders import raises
from understudy.benchmark.cells import cells_of, table_checksums
from understudy.benchmark.engines import make_engine
from understudy.benchmark.execution import load_spec
from understudy.benchmark.results import ResultStore, read_records
from understudy.benchmark.run import run_suite, suite_status
from understudy.benchmark.suite import Limits, read_suite, select
from understudy.errors import ConfigError, TableError

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


def computes(pid: int) -> bool:
    """Whether a worker has begun a cell: it loads JAX then, not before."""
    return "/jaxlib/" in Path(f"/proc/{pid}/maps").read_text()


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
    """A method that raises, two cells that take too long one after the other, and then the others finish.

    Only endless cells run within the short limit: on a busy machine it would be too short for any other.
    """
    sections = f'{LONG}\n[[methods]]\nmethod = "{REFUSED}"\nname = "refused"'
    path = write_suite(tmp_path, methods=sections, seeds=1)
    endless = select(read_suite(path), methods=["long"], epsilons=[1.0, 2.0])
    hasty = dataclasses.replace(endless, limits=Limits(minutes=0.05), real_data=False)
    hurried = run_suite(hasty, tmp_path / "out", make_engine("local", workers=1))
    assert (hurried.done, hurried.failed) == (0, 2)
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


def test_a_cell_whose_worker_is_killed_runs_again(tmp_path):
    path = write_suite(tmp_path, methods=FAST, more="real_data = false", seeds=3)
    killed: list[int] = []
    before = set(workers_of(os.getpid()))

    def kill_first_worker() -> None:
        while not (found := set(workers_of(os.getpid())) - before) or not records(path):
            time.sleep(0.02)
        killed.append(found.pop())
        os.kill(killed[0], signal.SIGKILL)

    threading.Thread(target=kill_first_worker, daemon=True).start()
    outcome = run(path)
    assert (outcome.done, outcome.failed) == (3, 0)
    assert killed


def test_a_cell_that_kills_its_workers_is_a_record_and_a_retry_runs_it(tmp_path):
    path = write_suite(tmp_path, methods=LONG, more="real_data = false", seeds=1)
    killed: set[int] = set()
    before = set(workers_of(os.getpid()))

    def kill_two_workers() -> None:
        while len(killed) < 2:
            for worker in set(workers_of(os.getpid())) - before - killed:
                is_second = bool(killed)
                while is_second and not records(path):  # the other cell is done, so this one is at the first again
                    time.sleep(0.05)
                while not computes(worker):
                    time.sleep(0.05)
                time.sleep(1)
                os.kill(worker, signal.SIGKILL)
                killed.add(worker)
            time.sleep(0.05)

    threading.Thread(target=kill_two_workers, daemon=True).start()
    outcome = run(path)
    assert (outcome.done, outcome.failed) == (1, 1)
    (died,) = (record for record in records(path) if record["failure"])
    assert died["failure"]["reason"] == "died"
    assert "SIGKILL" in died["failure"]["message"]
    assert died["version"]
    assert died["engine"] == "local"
    shorter = write_suite(tmp_path, methods=LONG, more="real_data = false\nlimits = { minutes = 0.05 }", seeds=1)
    assert run(shorter).run == 0
    assert run(shorter, retry=True).run == 1, "a retry runs what failed, and nothing else"
    assert {record["failure"]["reason"] for record in records(path) if record["failure"]} == {"time"}


def test_workers_that_cannot_start_end_the_run_and_fail_no_cell(tmp_path, monkeypatch):
    path = write_suite(tmp_path, methods=FAST)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "sitecustomize.py").write_text("import os\nos._exit(3)\n")
    with pytest.raises(ConfigError, match="do not start"):
        run(path)
    assert records(path) == []


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("can_interrupt")
def test_a_run_that_is_killed_keeps_what_was_finished_and_resumes(tmp_path, ending):
    path = write_suite(tmp_path, methods='methods = ["independent", "dpgan(steps=200000)"]')
    command = [sys.executable, "-m", "understudy", "benchmark", "run", str(path), "-o", str(tmp_path / "out")]
    process = subprocess.Popen([*command, "--workers", "1", "--quiet"])
    store, deadline = ResultStore(tmp_path / "out"), time.monotonic() + 600
    while len(store.read()) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    (worker,) = workers_of(process.pid)
    process.send_signal(ending)
    process.wait(timeout=120)
    kept = len(store.read())
    assert kept >= 2
    deadline = time.monotonic() + 60
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


def test_reports_show_the_suite_as_it_was_last_run_under_its_labels(tmp_path):
    """Results of other settings stay in the folder, but are not mixed in."""
    run(write_suite(tmp_path, methods='[[methods]]\nmethod = "independent"\nname = "first"'))
    changed = write_suite(tmp_path, methods='[[methods]]\nmethod = "independent"\nname = "second"', seeds=1)
    assert run(changed).run == 0, "a label does not change the result"
    assert {record["method"] for record in read_records(tmp_path / "out")} == {"real data", "second"}
    assert len(read_records(tmp_path / "out")) == 2, "the second seed is no longer in the suite"
    assert len(records(changed)) == 3


def test_reports_show_all_of_a_suite_of_which_a_part_was_run_last(tmp_path):
    path = write_suite(tmp_path, methods='methods = ["independent", "mst"]', seeds=1)
    path.write_text(f'{path.read_text()}\n[[tables]]\nname = "again"\nfile = "people.csv"\nschema = "people.toml"\n')
    whole = read_suite(path)
    for table in ("people", "again"):
        part = select(whole, tables=[table], methods=["independent"])
        run_suite(part, tmp_path / "out", make_engine("local", workers=1), whole=whole)
    assert {record["table"] for record in read_records(tmp_path / "out")} == {"people", "again"}


def test_a_table_that_changes_during_a_run_is_refused(tmp_path):
    path = write_suite(tmp_path, methods=FAST)
    suite = read_suite(path)
    cell = cells_of(suite, checksums=table_checksums(suite)[0])[1]
    write_table(tmp_path, rows=310)
    with pytest.raises(TableError, match="changed since"):
        load_spec(cell.table, cell.data)


def test_unknown_engines_and_impossible_numbers_are_refused():
    with raises(ConfigError, setting="engine"):
        make_engine("locla")
    with raises(ConfigError, setting="workers"):
        make_engine("local", workers=0)
    with raises(ConfigError, setting="address"):
        make_engine("local", address="auto")
