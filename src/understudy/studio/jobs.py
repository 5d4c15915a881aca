"""Jobs of a studio: commands of Understudy in processes of their own, one at a time, whose state is in files.

A job is a folder: job.json (the command and what it was asked for), progress.json, log.txt, and outcome.json once it
has ended. One locked file says whether a job runs, so that any server, even one that was started later, sees the same.
"""

import contextlib
import datetime
import enum
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from understudy.errors import ConfigError, UnderstudyError
from understudy.run.atomic import json_bytes, read_object, write_file

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]  # no module, so no lock

_SUPERVISE = (sys.executable, "-P", "-m", "understudy.studio.supervise")
_PREFIX = "understudy: "
"""Before the line in which a command says why it ended."""


class StudioError(UnderstudyError):
    """What the page asked for cannot be done now; the message says why, and what to do."""


class State(enum.StrEnum):
    """How far a job is."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class Jobs:
    """The jobs below one folder, of which at most one runs."""

    def __init__(self, folder: Path, source: str) -> None:
        if fcntl is None:
            raise ConfigError("The studio needs file locks of Linux or macOS. On Windows, use it inside WSL.")
        self.folder, self._source = folder, source.partition("::")[0]
        self._lock_file = folder / "run.lock"
        self._guard = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, job: Path, command: Sequence[str], facts: Mapping[str, object]) -> None:
        """Starts a command as this job, or again; refused while another one runs."""
        with self._guard, self._locked() as lock, self._locked_source() as source:
            job.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in ("outcome.json", "progress.json", "process.json", "cancelled"):
                (job / name).unlink(missing_ok=True)
            started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            write_json(job / "job.json", {"command": list(command), "started": started, **facts})
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(job.relative_to(self.folder)).encode(), 0)
            self._processes = [each for each in self._processes if each.poll() is None]
            with (job / "log.txt").open("ab") as log:
                self._processes.append(
                    subprocess.Popen(
                        [*_SUPERVISE, str(job), *map(str, (lock, *source))],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        pass_fds=(lock, *source),
                        start_new_session=True,  # Ctrl-C in the terminal of the server must not end a run
                    )
                )

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No job starts during the block; refused while one runs."""
        with self._guard, self._locked():
            yield

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The locked file, for a process that inherits the lock; refused if another one holds it."""
        handle = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            for attempt in range(5):
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if attempt == 4:
                        raise StudioError(
                            "Another run of this studio is in progress. Wait for it, or cancel it first."
                        ) from None
                    time.sleep(0.01)  # another server may just be looking whether a job runs
            yield handle
        finally:
            os.close(handle)  # the process that inherited it keeps the lock

    @contextlib.contextmanager
    def _locked_source(self) -> Iterator[tuple[int, ...]]:
        """The table itself, locked against a studio of the same table with another folder; its content is not read."""
        try:
            handle = os.open(self._source, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StudioError(f"{self._source} cannot be opened: {error.strerror}. Nothing was read.") from None
        locked: tuple[int, ...] = (handle,)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StudioError(
                    "A run on this table is in progress in a studio with another folder. Wait for it, or cancel it "
                    "there."
                ) from None
            except OSError:  # a file system without such locks
                locked = ()
            yield locked
        finally:
            os.close(handle)

    def running(self) -> Path | None:
        """The job that runs now, started by this server or any other."""
        for process in self._processes:
            process.poll()  # a process that has ended is gone only once its parent has asked
        with self._guard:
            try:
                handle = os.open(self._lock_file, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            except OSError:
                return self.folder / os.pread(handle, 4096, 0).decode()
            finally:
                os.close(handle)

    def state(self, job: Path) -> State:
        """How far this job is."""
        if self.running() == job:
            return State.RUNNING
        outcome = read_object(job / "outcome.json")
        if "code" in outcome:
            return State.FINISHED if outcome["code"] == 0 else State.FAILED
        return State.CANCELLED if (job / "cancelled").exists() else State.INTERRUPTED

    def cancel(self, job: Path) -> None:
        """Kills the processes of this job, if it runs, and waits until they are gone."""
        deadline = time.monotonic() + 10
        while self.running() == job:
            group = read_object(job / "process.json").get("group")
            if isinstance(group, int):
                (job / "cancelled").touch(mode=0o600)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise StudioError("The run could not be ended. End its processes by hand, or wait.")
            time.sleep(0.02)


def notes_of(job: Path) -> list[str]:
    """What the command of a job has said, beside why it failed."""
    return [line for line in _log_of(job) if line.strip() and not line.startswith(_PREFIX)]


def failure_of(job: Path) -> str:
    """The line in which the command of a failed job says why."""
    lines = [line for line in _log_of(job) if line.startswith(_PREFIX)]
    if not lines:
        return "The command ended without a message. log.txt in its folder may say more."
    return lines[-1].removeprefix(_PREFIX)


def _log_of(job: Path) -> list[str]:
    try:
        return (job / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def write_json(path: Path, content: object) -> None:
    """Writes an object, whole or not at all."""
    write_file(path, json_bytes(content), force=True)
