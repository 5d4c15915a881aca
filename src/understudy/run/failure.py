"""Runs that fail after their first query: the budget is spent, nothing is released, and a record says so.

Sizes that are estimated privately cannot make a run fail: refusals that depend on sizes are decided on the largest
sizes, before the first charge. All other failures (training diverges, memory runs out, a bug) become a `SpentError`.
It carries the statement of the whole plan, whether charged yet or not. The fact that the run failed follows from noisy
answers, so their privacy cost covers it. Two exceptions are named in the certificate as not covered: memory, and an
objective perturbation whose exact minimum is not reached.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Never

from understudy import certificate
from understudy.certificate import page as certificate_page
from understudy.certificate import round_up
from understudy.certificate.agreement import UNREADABLE
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
from understudy.privacy.accounting.ledger import Ledger, Statement
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
            kept = f"The record is {min(str(self.record), os.path.relpath(self.record), key=len)}{os.sep}."
        return f"{self.failure} Nothing was released, but {figures} is spent. {kept}"

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the record, a certificate without a model, as a folder: completely or not at all."""
        with atomic_folder(folder) as inside:
            for name, data in certificate_page.to_files(self.statement).items():
                (inside / name).write_bytes(data)


class FailedRun(UnderstudyError):
    """A run that failed before its first query, because of an error in another library: nothing is spent.

    The message names only the class of that error, whose own message may quote values of the table.
    """


def raise_failure(
    error: Exception,
    ledger: Ledger,
    statement: Callable[[], Statement],
    *,
    checkpoint: Checkpoint | None = None,
    record: str | os.PathLike[str] | None = None,
) -> Never:
    """Raises the error that ends a run because of this one: after the first charge a `SpentError`; before it, the
    error itself if it is one of Understudy's, and a `FailedRun` for those of other libraries, which may quote values.

    `statement` returns the statement of the whole plan. Runs without a guarantee have no budget to spend. The record is
    written to the folder `record`, or beside a `checkpoint`. With a checkpoint, errors of files are raised unchanged:
    such a run can be resumed, like a killed one. The original error is attached only if the environment variable
    UNDERSTUDY_DEBUG is set: its message may contain private values, and a traceback prints it.
    """
    if not ledger.guarantee.is_private:
        raise error
    cause = error if os.environ.get("UNDERSTUDY_DEBUG") else None
    if not ledger.queries:
        if isinstance(error, UnderstudyError):
            raise error
        raise_alone(FailedRun(f"{_failure(error)} Nothing was charged."), cause)
    if checkpoint is not None and isinstance(error, CheckpointError | TableError):
        raise error
    raise_alone(_write_record(_failure(error), statement(), checkpoint, record), cause)


def read_record(folder: str | os.PathLike[str]) -> Statement | None:
    """The statement in the record of a failed run; None if the folder is not such a record."""
    try:
        content = json.loads((Path(folder) / "certificate.json").read_bytes())
        statement = certificate.from_json(content)
    except (OSError, *UNREADABLE):
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


def _write_record(
    failure: str, statement: Statement, checkpoint: Checkpoint | None, record: str | os.PathLike[str] | None
) -> SpentError:
    """The error, after writing its record if there is a place for it."""
    if checkpoint is not None:
        if checkpoint.spent_record is not None:  # the identical run, resumed: it spends only once
            return SpentError(failure, statement, checkpoint.spent_record)
        record = checkpoint.folder.with_name(checkpoint.folder.name.removesuffix(".checkpoint") + ENDING)
    if record is None:
        return SpentError(failure, statement)
    try:
        place = _free_folder(Path(record))
        SpentError(failure, statement).save(place)
        if checkpoint is not None:
            checkpoint.note_spent(place)
    except Exception as unwritten:  # the spending must be reported, whatever becomes of its record
        reason = unwritten if isinstance(unwritten, UnderstudyError) else f"no record: {type(unwritten).__name__}"
        return SpentError(f"{failure} ({reason})", statement)
    return SpentError(failure, statement, place)


def _free_folder(record: Path) -> Path:
    """run.spent, run-2.spent, ...: another run's record is never replaced."""
    stem, number, folder = record.name.removesuffix(ENDING), 1, record
    while folder.exists():
        number += 1
        folder = record.with_name(f"{stem}-{number}{ENDING}")
    return folder
