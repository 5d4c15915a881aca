"""Results in MLflow: a real server on this machine, and the local store."""

import dataclasses
import importlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from understudy.benchmark import tracking
from understudy.benchmark.cells import Cell, cells_of, table_checksums
from understudy.benchmark.engines import make_engine
from understudy.benchmark.results import Record, ResultStore
from understudy.benchmark.run import keep_result, run_suite
from understudy.benchmark.suite import Suite, read_suite
from understudy.benchmark.tracking import MLflowTracker
from understudy.errors import ConfigError, UnderstudyWarning

pytestmark = [
    pytest.mark.tracking,
    # MLflow uses a way of loading that SQLAlchemy 2.1 deprecates.
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
]
for package in ("mlflow", "alembic", "flask", "flask_cors", "aiohttp"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(
            f"{package} is not installed: pip install 'understudy-dp[mlflow]' flask flask-cors aiohttp",
            allow_module_level=True,
        )

SUITE = """
epsilons = [1.0]
seeds = 1
metrics = ["f1", "tvd2"]
classifiers = ["logistic"]
max_rows = 500
synthetic_rows = 500
tables = ["breast"]

[[methods]]
method = "independent"

[[methods]]
method = "mst"

[[methods]]
method = "dpgan(steps=20)"
name = "dpgan"
wrappers = ["quail"]
"""
FAILURE: Record = {"status": "failed", "failure": {"reason": "time", "message": "Not finished within 5 minutes."}}


@dataclasses.dataclass
class Server:
    """An MLflow server process, which can be stopped and started again."""

    folder: Path
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--backend-store-uri", f"sqlite:///{self.folder}/server.db", "--workers", "1"]
        command += ["--artifacts-destination", str(self.folder / "artefacts")]
        environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (self.folder / "log.txt").open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, env=environment, start_new_session=True
            )
        end = time.monotonic() + 600
        while not self.answers():
            assert time.monotonic() < end, (self.folder / "log.txt").read_text()
            assert self.process.poll() is None, (self.folder / "log.txt").read_text()
            time.sleep(0.3)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=30) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"), free_port())
    server.start()
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may answer late; only where nobody answers, the tracker's own limits hold."""
    if "listening" not in request.fixturenames:
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "120")


@pytest.fixture
def suite(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """An experiment of its own for each test."""
    path = tmp_path_factory.mktemp("suite") / "suite.toml"
    path.write_text(SUITE)
    return dataclasses.replace(read_suite(path), name=request.node.name)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cells(suite: Suite) -> list[Cell]:
    return cells_of(suite, checksums=table_checksums(suite)[0])


def done(f1: float = 0.75) -> Record:
    return {
        "status": "done",
        "failure": None,
        "metrics": {"f1": f1, "auc": 0.8, "pmse_ratio": 3.5, "sra": 1.0, "wasserstein": 0.25},
        "details": {},
        "rows": {"train": 100, "synthetic": 50},
        "fit_seconds": {"fit": 2.0, "sample": 0.5},
        "seconds": {"score": 1.5},
        "certificate": {"epsilon": 1.0},
        "peak_mb": 512.0,
        "version": "1.0",
        "machine": "x86_64, 1 core, Python 3.11.7",
        "engine": "local",
        "date": "2026-11-17",
    }


def keep(store: ResultStore, suite: Suite, cell: Cell, found: Record) -> Record:
    with store.open():
        return keep_result(suite.name, store, cell, found)


def read_runs(uri: str, suite: Suite) -> list[Any]:
    client = importlib.import_module("mlflow").MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(suite.name)
    return sorted(client.search_runs([experiment.experiment_id]), key=lambda run: run.data.tags["key"])


def test_a_run_has_params_metrics_tags_and_artefacts(tmp_path, server, suite, capfd):
    store, cell = ResultStore(tmp_path / "results"), cells(suite)[-1]
    tracker = MLflowTracker(store, suite.name, uri=server.uri)
    tracker.log(keep(store, suite, cell, done()))
    tracker.close()
    assert capfd.readouterr() == ("", "")
    (run,) = read_runs(server.uri, suite)
    assert run.info.status == "FINISHED"
    assert run.data.params == {
        "dataset": "breast",
        "method": "quail(dpgan)",
        "expression": "quail(dpgan(steps=20))",
        "wrapper": "quail",
        "inner": "dpgan",
        "epsilon": "1.0",
        "delta": "1e-05",
        "seed": "0",
    }
    scores = {"f1": 0.75, "auc": 0.8, "pmse_ratio": 3.5, "pmse": 3.5, "sra": 1.0, "wasserstein": 0.25}
    costs = {"seconds_fit": 2.0, "seconds_sample": 0.5, "seconds_score": 1.5, "peak_mb": 512.0}
    assert run.data.metrics == {**scores, **costs, "rows_train": 100.0, "rows_synthetic": 50.0}
    tags = {name: run.data.tags[name] for name in ("key", "status", "suite", "version", "machine")}
    assert tags == {
        "key": cell.key,
        "status": "done",
        "suite": suite.name,
        "version": "1.0",
        "machine": "x86_64, 1 core, Python 3.11.7",
    }
    client = importlib.import_module("mlflow").MlflowClient(tracking_uri=server.uri)
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["certificate.json", "scorecard.json"]
    copy = client.download_artifacts(run.info.run_id, "certificate.json", str(tmp_path))
    assert Path(copy).read_bytes() == (store.folder / "artefacts" / cell.key / "certificate.json").read_bytes()


def test_failed_cells_end_as_failed_until_they_are_done(tmp_path, server, suite):
    store, cell = ResultStore(tmp_path), cells(suite)[0]
    for found, status in ((FAILURE, "FAILED"), (FAILURE, "FAILED"), (done(), "FINISHED"), (done(0.1), "FINISHED")):
        tracker = MLflowTracker(store, suite.name, uri=server.uri)
        tracker.log(keep(store, suite, cell, dict(found)))
        tracker.close()
        (run,) = read_runs(server.uri, suite)
        assert run.info.status == status
        assert run.data.tags.get("reason") == ("time" if status == "FAILED" else None)
    assert run.data.metrics["f1"] == 0.75


def test_a_suite_is_tracked_in_the_results_folder(tmp_path, suite):
    small = dataclasses.replace(suite, methods=suite.methods[:1])
    store = ResultStore(tmp_path)
    for expected in (2, 0):
        tracker = MLflowTracker(store, small.name)
        assert run_suite(small, tmp_path, make_engine("local", workers=1), tracker=tracker).run == expected
    runs = read_runs(f"sqlite:///{tmp_path}/mlflow.db", small)
    assert [run.data.tags["key"] for run in runs] == sorted(store.read())
    for run in runs:
        assert run.data.metrics["f1"] == store.read()[run.data.tags["key"]]["metrics"]["f1"]  # type: ignore[index]  # JSON, typed as objects
        assert (tmp_path / "mlflow-artefacts" / run.info.run_id / "artifacts" / "scorecard.json").is_file()


def test_results_of_a_folder_are_logged_once(tmp_path, server, suite):
    store = ResultStore(tmp_path)
    for cell in cells(suite):
        keep(store, suite, cell, done())
    for _ in range(2):
        MLflowTracker(store, suite.name, uri=server.uri).close()
        assert len(read_runs(server.uri, suite)) == len(cells(suite))


def test_a_run_that_was_cut_short_is_replaced(tmp_path, server, suite):
    store, cell = ResultStore(tmp_path), cells(suite)[0]
    keep(store, suite, cell, done())
    client = importlib.import_module("mlflow").MlflowClient(tracking_uri=server.uri)
    client.create_run(client.create_experiment(suite.name), tags={"key": cell.key})
    MLflowTracker(store, suite.name, uri=server.uri).close()
    (run,) = read_runs(server.uri, suite)
    assert run.info.status == "FINISHED"


@pytest.mark.parametrize("listening", [False, True], ids=["nobody listens", "a silent server"])
def test_a_server_that_does_not_answer_is_refused_at_once(tmp_path, suite, listening):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        if listening:
            silent.listen()
        began = time.monotonic()
        with pytest.raises(ConfigError, match=uri) as caught:
            MLflowTracker(ResultStore(tmp_path), suite.name, uri=uri)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - began < 60, "MLflow alone would try for minutes"


def test_a_server_that_goes_away_loses_nothing(tmp_path, suite):
    server = Server(tmp_path, free_port())
    store = ResultStore(tmp_path / "results")
    server.start()
    try:
        first, second, third, fourth, _ = cells(suite)
        tracker = MLflowTracker(store, suite.name, uri=server.uri)
        tracker.log(keep(store, suite, first, done()))
        server.kill()
        began = time.monotonic()
        for cell in (second, third):
            tracker.log(keep(store, suite, cell, done()))
        assert time.monotonic() - began < 60, "MLflow alone would try for minutes"
        server.start()
        tracker.close()  # it is back: everything is logged
        assert len(read_runs(server.uri, suite)) == 3
        server.kill()
        tracker.log(keep(store, suite, fourth, done()))
        with pytest.warns(UnderstudyWarning, match="1 results were not logged"):
            tracker.close()
        server.start()
        MLflowTracker(store, suite.name, uri=server.uri).close()
        assert [run.data.tags["key"] for run in read_runs(server.uri, suite)] == sorted(store.read())
    finally:
        server.kill()


def test_a_missing_package_is_one_line(tmp_path, suite, monkeypatch):
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'understudy-dp\[mlflow\]'"):
        MLflowTracker(ResultStore(tmp_path), suite.name)
