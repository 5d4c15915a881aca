"""Runs that fail after their first query: the budget is spent, nothing is released, and a record says so.

Sizes that are estimated privately cannot make a run fail: refusals that depend on sizes are decided on the largest
sizes, before the first charge. All other failures (training diverges, memory runs out, a bug) become a `SpentError`.
It carries the statement of the whole plan, whether charged yet or not. The fact that the run failed follows from noisy
answers, so their privacy cost covers it. Two exceptions are named in the certificate as not covered: memory, and an
objective perturbation whose exact minimum is not reached.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from understudy import certificate, certificate_page
from understudy.certificate import round_up
from understudy.errors import (
    BookError,
    BookExceeded,
    CheckpointError,
    ClusterError,
    TableError,
    TrainingError,
    UnderstudyError,
    raise_alone,
)
from understudy.privacy.ledger import Ledger, Statement
from understudy.run.atomic import atomic_folder
from understudy.run.checkpoint import Checkpoint

ENDING = ".spent"
"""Suffix of a record's folder, which lies beside the checkpoint of the run."""


class SpentError(UnderstudyError):
    """A run that failed after its first query: its planned privacy cost is spent, and nothing was released.

    `statement` has the cost, `save` writes the record, and `failure` says what happened.

    >>> import pyarrow as pa, understudy as us
    >>> schema = {"columns": {"member": {"kind": "boolean"}}}
    >>> statement = us.fit(pa.table({"member": [True]}), "independent", epsilon=1, schema=schema).statement
    >>> str(SpentError("Training diverged.", statement))[:40]
    'Training diverged. Nothing was released,'
    """

    def __init__(self, failure: str, statement: Statement, record: Path | None = None):
        super().__init__(failure, statement, record)  # all arguments, so that the error can be copied and pickled
        self.failure, self.statement, self.record = failure, statement, record

    def __str__(self) -> str:
        figures = f"epsilon {round_up(self.statement.epsilon, 4)} at delta {round_up(self.statement.delta, 2)}"
        kept = "To record this, call error.save(folder)."
        if self.record is not None:
            kept = f"The record is {_shortest(self.record)}{os.sep}."
        return f"{self.failure} Nothing was released, but {figures} is spent. {kept}"

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the record, a certificate without a model, as a folder: completely or not at all."""
        with atomic_folder(folder) as inside:
            for name, data in certificate_page.to_files(self.statement).items():
                (inside / name).write_bytes(data)


class FailedRun(UnderstudyError):
    """A run that failed before its first query, by an error of another library: nothing is spent.

    Its text names the class of that error alone, whose own text may quote values of the table.
    """


@contextlib.contextmanager
def record_failure(
    ledger: Ledger, statement: Callable[[], Statement], checkpoint: Checkpoint | None = None
) -> Iterator[None]:
    """Turns any error after the first charge into a `SpentError`; earlier errors of Understudy pass unchanged, and
    those of other libraries, which may quote values, become a `FailedRun`.

    `statement` returns the statement of the whole plan. Runs without a guarantee have no budget to spend. With a
    `checkpoint` the record is written beside it, and file errors pass: such a run can be resumed, like a killed one.
    The original error is attached only if the environment variable UNDERSTUDY_DEBUG is set: its message may contain
    private values, and a traceback prints it.
    """
    try:
        yield
    except Exception as error:
        if not ledger.guarantee.is_private:
            raise
        cause = error if os.environ.get("UNDERSTUDY_DEBUG") else None
        if not ledger.queries:
            if isinstance(error, UnderstudyError):
                raise
            raise_alone(FailedRun(f"{_failure(error)} Nothing was charged."), cause)
        if checkpoint is not None and isinstance(error, CheckpointError | TableError):
            raise
        spent = _write_record(_failure(error), statement(), checkpoint)
        raise_alone(spent, cause)


def read_record(folder: str | os.PathLike[str]) -> Statement | None:
    """The statement in the record of a failed run; None if the folder is not such a record."""
    try:
        content = json.loads((Path(folder) / "certificate.json").read_bytes())
        statement = certificate.from_json(content)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return None if statement.released else statement


def _failure(error: Exception) -> str:
    """What failed, without any size, count or value: messages of other libraries may quote one."""
    if isinstance(error, TrainingError | ClusterError | BookError | BookExceeded):
        return str(error)
    if isinstance(error, TableError):  # it was read once before the first charge
        return "The table could not be read again: it changed, or its source is gone. Run again on an unchanging copy."
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return "The run does not fit in memory. Lower max_categories or max_bins, or use another method."
    return f"The run failed with an internal error of Understudy ({type(error).__name__}). Please report it."


def _write_record(failure: str, statement: Statement, checkpoint: Checkpoint | None) -> SpentError:
    """The error, after writing its record if there is a checkpoint to put it beside."""
    if checkpoint is None:
        return SpentError(failure, statement)
    if checkpoint.spent_record is not None:  # the identical run, resumed: it spends only once
        return SpentError(failure, statement, checkpoint.spent_record)
    record = _free_folder(checkpoint.folder)
    try:
        SpentError(failure, statement).save(record)
        checkpoint.note_spent(record)
    except UnderstudyError as unwritten:
        return SpentError(f"{failure} ({unwritten})", statement)
    return SpentError(failure, statement, record)


def _free_folder(checkpoint: Path) -> Path:
    """run.checkpoint -> run.spent, run-2.spent, ...: another run's record is never replaced."""
    stem, number = checkpoint.name.removesuffix(".checkpoint"), 1
    while (folder := checkpoint.with_name(f"{stem}{f'-{number}' * (number > 1)}{ENDING}")).exists():
        number += 1
    return folder


def _shortest(path: Path) -> str:
    return min(str(path), os.path.relpath(path), key=len)
