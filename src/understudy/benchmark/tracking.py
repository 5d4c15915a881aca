"""Results in MLflow: an experiment for each suite, a run for each cell.

The results folder stays the source of truth: what a server did not accept can be logged from there later.
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from understudy.benchmark.results import DONE, Record, ResultStore
from understudy.benchmark.suite import Suite
from understudy.errors import ConfigError, UnderstudyWarning, did_you_mean

TRACKERS = ("mlflow",)
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


def make_tracker(name: str, store: ResultStore, suite: Suite, *, uri: str | None = None) -> "MLflowTracker":
    """A tracker by name.

    >>> from understudy.benchmark.suite import read_suite
    >>> make_tracker("mlfow", ResultStore("results"), read_suite("smoke"))
    Traceback (most recent call last):
    understudy.errors.ConfigError: There is no tracker 'mlfow'. Did you mean 'mlflow'? The only one is mlflow.
    """
    if name not in TRACKERS:
        raise ConfigError(f"There is no tracker {name!r}.{did_you_mean(name, TRACKERS)} The only one is mlflow.")
    return MLflowTracker(store, suite, uri=uri)


class MLflowTracker:
    """Logs each result of a suite as a run; a cell that has a run is not logged twice.

    Raises ConfigError if the server at `uri` does not answer. Without `uri`: a database in the results folder.
    """

    def __init__(self, store: ResultStore, suite: Suite, *, uri: str | None = None) -> None:
        self._setup(store, suite.name, uri)

    @classmethod
    def _of(cls, store: ResultStore, suite_name: str, uri: str | None) -> "MLflowTracker":
        """For results of a suite of which only the name is known."""
        tracker = cls.__new__(cls)
        tracker._setup(store, suite_name, uri)
        return tracker

    def _setup(self, store: ResultStore, suite_name: str, uri: str | None) -> None:
        self.store = store
        self._experiment = _Experiment(store, suite_name, uri)
        self._waiting: list[tuple[Record, Sequence[Path]]] = []
        self._silent_until = -math.inf
        self.logged = 0
        """Runs that were added."""

    def log(self, record: Record, artefacts: Sequence[Path]) -> None:
        """Logs a result, or keeps it for later if the server does not answer."""
        self._waiting.append((record, artefacts))
        if time.monotonic() >= self._silent_until:
            self._send()

    def close(self) -> None:
        """Tries once more to log what was not logged, and warns if that fails."""
        error = self._send()
        if error is not None:
            warnings.warn(
                f"{len(self._waiting):,} results were not logged to MLflow at {self._experiment.uri}: "
                f"{_one_line(error)} They are in {self.store.lines}; log them later with track_results.",
                UnderstudyWarning,
                stacklevel=2,
            )

    def _send(self) -> Exception | None:
        while self._waiting:
            try:
                self.logged += self._experiment.add(*self._waiting[0])
            except Exception as error:  # stores raise whatever their database or HTTP library raises
                self._silent_until = time.monotonic() + RETRY_SECONDS
                return error
            self._waiting.pop(0)
        return None


def track_results(folder: str | os.PathLike[str], uri: str | None = None) -> int:
    """Logs what is in a results folder and not yet in MLflow. Returns the number of added runs.

    >>> track_results("nowhere")
    Traceback (most recent call last):
    understudy.errors.ConfigError: nowhere has no results. Expected a folder that 'understudy benchmark run' wrote.
    """
    store = ResultStore(folder)
    records = store.read()
    if not records:
        raise ConfigError(f"{folder} has no results. Expected a folder that 'understudy benchmark run' wrote.")
    suites: dict[str, list[Record]] = {}
    for record in records.values():
        suites.setdefault(str(record.get("suite")), []).append(record)
    logged = 0
    for name, mine in suites.items():
        tracker = MLflowTracker._of(store, name, uri)
        for record in mine:
            tracker.log(record, store.artefacts(str(record["key"])))
        tracker.close()
        logged += tracker.logged
    return logged


# ---------------------------------------------------------------------------------------------------------- experiment


class _Experiment:
    """One experiment of a tracking server or of a local store."""

    def __init__(self, store: ResultStore, name: str, uri: str | None) -> None:
        mlflow = _import_mlflow(needs_database=uri is None)
        folder = store.folder.resolve()
        if uri is None:
            folder.mkdir(parents=True, exist_ok=True)
        self.uri = uri or f"sqlite:///{folder / DATABASE}"
        artefacts = None if uri else (folder / ARTEFACTS).as_uri()
        _check_server(self.uri)
        try:
            with _mlflow_settings():
                self._client = mlflow.MlflowClient(tracking_uri=self.uri)
                self._id = self._find(name, artefacts)
                self._runs = dict(self._read_runs())
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"Cannot use MLflow at {self.uri}: {_one_line(error)}") from None
        self._entities = importlib.import_module("mlflow.entities")

    def add(self, record: Record, artefacts: Sequence[Path]) -> bool:
        """Logs a record as a run, unless there is one. A run of an earlier failure, or one cut short, is replaced."""
        key = str(record["key"])
        earlier, status = self._runs.get(key, ("", ""))
        if status == "FINISHED" or (status == "FAILED" and record["status"] != DONE):
            return False
        with _mlflow_settings():
            if earlier:
                self._client.delete_run(earlier)
                del self._runs[key]
            run = self._start(record)
            self._runs[key] = (run, "RUNNING")
            self._fill(run, record)
            for path in artefacts:
                self._client.log_artifact(run, str(path))
            ended = "FINISHED" if record["status"] == DONE else "FAILED"
            self._client.set_terminated(run, status=ended)
        self._runs[key] = (run, ended)
        return True

    def _start(self, record: Record) -> str:
        tags = {name: str(record[name]) for name in TAGS if record.get(name) is not None}
        failure = record.get("failure")
        if isinstance(failure, Mapping):
            tags |= {"reason": str(failure.get("reason")), "message": str(failure.get("message"))}
        seconds = sum(_numbers(record.get("seconds")).values())
        began = int(1000 * (time.time() - seconds))  # the time that MLflow shows is that of the cell
        run = self._client.create_run(self._id, start_time=began, tags=tags, run_name=_run_name(record))
        return str(run.info.run_id)

    def _fill(self, run: str, record: Record) -> None:
        now = int(1000 * time.time())
        params = [
            self._entities.Param(shown, str(record[name]))
            for name, shown in PARAMS.items()
            if record.get(name) is not None
        ]
        metrics = [self._entities.Metric(name, value, now, 0) for name, value in run_metrics(record).items()]
        self._client.log_batch(run, metrics=metrics, params=params)

    def _find(self, name: str, artefacts: str | None) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            return str(self._client.create_experiment(name, artifact_location=artefacts))
        if found.lifecycle_stage != "active":
            raise ConfigError(
                f"The experiment {name!r} was deleted at {self.uri}. Restore it with 'mlflow experiments restore', or "
                "give the suite another name."
            )
        return str(found.experiment_id)

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
    """The metrics of a run: scores, seconds, rows and memory.

    >>> run_metrics({"metrics": {"f1": 0.5, "pmse_ratio": 2.0}, "seconds": {"fit": 3.0}, "rows": {}, "peak_mb": None})
    {'f1': 0.5, 'pmse_ratio': 2.0, 'pmse': 2.0, 'seconds_fit': 3.0}
    """
    scores = _numbers(record.get("metrics"))
    found = scores | {shown: scores[name] for name, shown in PMSE.items() if name in scores}
    for group in ("seconds", "rows"):
        found |= {f"{group}_{name}": value for name, value in _numbers(record.get(group)).items()}
    return found | _numbers({"peak_mb": record.get("peak_mb")})


def _numbers(group: object) -> dict[str, float]:
    """The finite numbers of a group of a record."""
    items = group.items() if isinstance(group, Mapping) else ()
    return {
        str(name): float(value)
        for name, value in items
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _run_name(record: Record) -> str:
    epsilon = "" if record.get("epsilon") is None else f" epsilon {record['epsilon']:g}"
    return f"{record['method']} on {record['table']}{epsilon} seed {record.get('seed')}"


# ---------------------------------------------------------------------------------------------------------- connection


def _import_mlflow(*, needs_database: bool) -> ModuleType:
    packages = ("mlflow", "sqlalchemy", "alembic") if needs_database else ("mlflow",)
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        raise ConfigError(f"Tracking needs {missing[0]}, which is missing. Run: pip install 'understudy[mlflow]'")
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
