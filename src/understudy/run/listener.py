"""What a run reports to its caller, and when."""

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.errors import UnderstudyWarning
from understudy.notes import Level, Note
from understudy.progress import Progress, ShowProgress, open_progress

if TYPE_CHECKING:
    from understudy.privacy.accounting.ledger import Guarantee, PublicFacts, Statement
    from understudy.schema import Schema
    from understudy.tables import Origin

PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
SEEDED = "The noise was seeded, so this release is not private. Use a seed for tests and public data only."
DRAFTED = (
    "The schema was drafted from the table, and each row counts as one person. Write a schema if people can have "
    "several rows, or to declare ids and free text."
)


class Listener:
    """Receives the reports of a run. This one ignores them; a subclass overrides the methods that it needs."""

    progress: Progress | None = None
    """Called with the fraction that is done and a string."""

    def __init__(self, progress: Progress | None = None):
        self.progress = progress

    def note(self, note: Note) -> None:
        """A note before anything is charged; or, at the end, a warning that the budget book could not be settled."""

    def opened(self, schema: "Schema", origin: "Origin") -> None:
        """A table was opened and nothing is charged yet: an error raised here refuses the run."""

    def before_spending(self, facts: "PublicFacts", guarantee: "Guarantee") -> None:
        """The first query of a run follows: from here on, nothing refuses the run. Not called for a resumed run."""

    def finished(self, statement: "Statement", notes: Sequence[Note]) -> None:
        """The run has spent this, and its result is complete: no error loses it. `notes` are for the users of the
        result."""


class WarningListener(Listener):
    """Issues what a caller should know as Python warnings."""

    _may_raise = True
    """Whether a warning may become an error, as warning filters can request: not once the budget is spent."""

    def note(self, note: Note) -> None:
        if note.level is Level.WARNING:
            warn(note.text, may_raise=self._may_raise)

    def finished(self, statement: "Statement", notes: Sequence[Note]) -> None:
        self._may_raise = False
        if statement.seeded:
            self.note(Note(SEEDED, Level.WARNING))
        if statement.facts.drafted:
            self.note(Note(DRAFTED, Level.WARNING))
        for note in notes:
            self.note(note)


@contextlib.contextmanager
def open_listener(progress: "ShowProgress | Listener", task: str) -> Iterator[Listener]:
    """The caller's own listener, or else one that issues warnings and shows progress as the caller requested."""
    if isinstance(progress, Listener):
        yield progress
    else:
        with open_progress(progress, task) as report:
            yield WarningListener(report)


def report(call: Callable[[], None]) -> None:
    """Calls a listener at the end of a run: the budget is spent, so an error of its own must not lose the result."""
    try:
        call()
    except Exception as error:
        warn(f"The result is complete, but a report of it failed ({type(error).__name__}).", may_raise=False)


def warn(text: str, *, may_raise: bool = True) -> None:
    """Issues a warning that points at the line that called this package, however deep inside it this call is.

    Unless it `may_raise`, it is shown also where a filter turns warnings into errors.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    text = text[:1].upper() + text[1:]
    try:
        warnings.warn(text, UnderstudyWarning, stacklevel=level)
    except UnderstudyWarning:
        if may_raise:
            raise
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(text, UnderstudyWarning, stacklevel=level)
