"""Results in MLflow: an experiment for each suite, a run for each cell.

The results folder stays the source of truth: what a server did not accept is logged by the next run of the suite.
"""

import contextlib
import importlib
import importlib.util
import logging
import math
import os
import socket
import time
import urllib.parse
import warnings
from collections.abc import Iterator, Mapping
from types import ModuleType

from understudy._version import install_advice
from understudy.benchmark.report.records import finite_numbers
from understudy.benchmark.results import DONE, Record, ResultStore
from understudy.errors import ConfigError, UnderstudyWarning

ARTEFACTS = "mlflow-artefacts"
DATABASE = "mlflow.db"
"""The local store, in the results folder."""
PARAMS = {"table": "dataset"} | {
    name: name for name in ("method", "expression", "peer", "wrapper", "inner", "epsilon", "delta", "seed")
}
TAGS = ("key", "status", "suite", "version", "machine", "engine", "peer_version", "data", "code", "date")
PMSE = {"pmse_ratio": "pmse"}
"""Metrics that are logged under a second name as well."""
RETRY_SECONDS = 60.0
"""Seconds until a server that did not answer is tried again."""
CONNECT_SECONDS = 5.0
SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "6",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""By default, MLflow retries a silent server for minutes and prints two lines per run. The user's own settings win."""


class MLflowTracker:
    """Logs each result of a suite as a run of its experiment; a cell that has a run is not logged twice.

    Raises ConfigError if the server at `uri` does not answer. Without `uri`: a database in the results folder.
    """

    def __init__(self, store: ResultStore, suite_name: str, *, uri: str | None = None) -> None:
        mlflow = _import_mlflow(needs_database=uri is None)
        folder = store.folder.resolve()
        if uri is None:
            folder.mkdir(parents=True, exist_ok=True)
        self.store, self.suite_name = store, suite_name
        self.uri = uri or f"sqlite:///{folder / DATABASE}"
        self._silent_until = -math.inf
        _check_server(self.uri)
        try:
            with _mlflow_settings():
                self._client = mlflow.MlflowClient(tracking_uri=self.uri)
                self._id = self._find(suite_name, None if uri else (folder / ARTEFACTS).as_uri())
                self._runs = dict(self._read_runs())
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"Cannot use MLflow at {self.uri}: {_one_line(error)}") from None
        self._entities = importlib.import_module("mlflow.entities")

    def log(self, record: Record) -> None:
        """Logs a result. One that the server does not accept is left to `close`."""
        if time.monotonic() >= self._silent_until:
            try:
                self._add(record)
            except Exception:  # stores raise whatever their database or HTTP library raises
                self._silent_until = time.monotonic() + RETRY_SECONDS

    def close(self) -> None:
        """Logs every result of the suite that is in the folder and not in MLflow, and warns if that fails."""
        records = [record for record in self.store.read().values() if record.get("suite") == self.suite_name]
        todo = [record for record in records if not self._is_logged(record)]
        try:
            while todo:
                self._add(todo[0])
                todo.pop(0)
        except Exception as error:
            warnings.warn(
                f"{len(todo):,} results were not logged to MLflow at {self.uri}: {_one_line(error)} They are in "
                f"{self.store.lines}; run the suite again to log them.",
                UnderstudyWarning,
                stacklevel=2,
            )

    def _is_logged(self, record: Record) -> bool:
        """A run of an earlier failure, or one that was cut short, does not count."""
        _, status = self._runs.get(str(record["key"]), ("", ""))
        return status == "FINISHED" or (status == "FAILED" and record["status"] != DONE)

    def _add(self, record: Record) -> None:
        if self._is_logged(record):
            return
        key, now = str(record["key"]), int(1000 * time.time())
        tags = {name: str(record[name]) for name in TAGS if record.get(name) is not None}
        failure = record.get("failure")
        if isinstance(failure, Mapping):
            tags |= {"reason": str(failure.get("reason")), "message": str(failure.get("message"))}
        known = {shown: str(record[name]) for name, shown in PARAMS.items() if record.get(name) is not None}
        seconds = sum(finite_numbers(record.get("seconds")).values())
        began = now - int(1000 * seconds)  # the time that MLflow shows is that of the cell
        epsilon = "" if record.get("epsilon") is None else f" epsilon {record['epsilon']:g}"
        name = f"{record['method']} on {record['table']}{epsilon} seed {record.get('seed')}"
        with _mlflow_settings():
            if key in self._runs:
                self._client.delete_run(self._runs.pop(key)[0])
            run = self._client.create_run(self._id, start_time=began, tags=tags, run_name=name).info.run_id
            self._runs[key] = (run, "RUNNING")
            metrics = [self._entities.Metric(name, value, now, 0) for name, value in run_metrics(record).items()]
            params = [self._entities.Param(name, value) for name, value in known.items()]
            self._client.log_batch(run, metrics=metrics, params=params)
            for path in self.store.artefacts(key):
                self._client.log_artifact(run, str(path))
            ended = "FINISHED" if record["status"] == DONE else "FAILED"
            self._client.set_terminated(run, status=ended)
        self._runs[key] = (run, ended)

    def _find(self, name: str, artefacts: str | None) -> str:
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            return str(self._client.create_experiment(name, artifact_location=artefacts))
        if experiment.lifecycle_stage != "active":
            raise ConfigError(
                f"The experiment {name!r} was deleted at {self.uri}. Restore it with 'mlflow experiments restore', or "
                "give the suite another name."
            )
        return str(experiment.experiment_id)

    def _read_runs(self) -> Iterator[tuple[str, tuple[str, str]]]:
        token = None
        while True:
            page = self._client.search_runs([self._id], max_results=1000, page_token=token)
            for run in page:
                if "key" in run.data.tags:
                    yield run.data.tags["key"], (run.info.run_id, run.info.status)
            token = page.token
            if not token:
                return


def run_metrics(record: Mapping[str, object]) -> dict[str, float]:
    """The metrics of a run: scores, seconds, rows and memory."""
    scores = finite_numbers(record.get("metrics"))
    metrics = scores | {shown: scores[name] for name, shown in PMSE.items() if name in scores}
    for group in ("seconds", "rows"):
        metrics |= {f"{group}_{name}": value for name, value in finite_numbers(record.get(group)).items()}
    return metrics | finite_numbers({"peak_mb": record.get("peak_mb")})


# ---------------------------------------------------------------------------------------------------------- connection


def _import_mlflow(*, needs_database: bool) -> ModuleType:
    packages = ("mlflow", "sqlalchemy", "alembic") if needs_database else ("mlflow",)
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        raise ConfigError(f"Tracking needs {missing[0]}, which is missing. Run: {install_advice('mlflow')}.")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    mlflow = importlib.import_module("mlflow")
    logging.getLogger("mlflow").setLevel(logging.WARNING)  # the import sets it to INFO
    return mlflow


def _check_server(uri: str) -> None:
    """Raises if no server listens at a web address."""
    parts = urllib.parse.urlsplit(uri)
    if parts.scheme not in ("http", "https"):
        return
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname or "", port), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError):
        raise ConfigError(
            f"No MLflow server answers at {uri}. Start it with 'mlflow server', check the address, or leave it out to "
            "log to a database in the results folder."
        ) from None


@contextlib.contextmanager
def _mlflow_settings() -> Iterator[None]:
    mine = {name: value for name, value in SETTINGS.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())[:300].rstrip(".")
    return f"{text or type(error).__name__}."
