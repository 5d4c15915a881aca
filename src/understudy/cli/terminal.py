"""Progress, interrupts and plain lines on the terminal."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import typer

from understudy.errors import UnderstudyError
from understudy.progress import Progress, open_progress

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


class Interrupted(UnderstudyError):
    """Ctrl-C in a run that can be resumed."""


def echo(message: str, *, quiet: bool) -> None:
    """Prints a line on standard error, unless quiet."""
    if not quiet:
        typer.echo(message, err=True)


@contextlib.contextmanager
def show_progress(quiet: bool, task: str) -> Iterator[Progress]:
    """Gives a function that reports progress; it also ends the work if Ctrl-C was pressed."""
    with _catch_interrupts() as check, open_progress(not quiet, task) as show:

        def report(fraction: float, now: str) -> None:
            check()
            if show is not None:
                show(fraction, now)

        yield report


@contextlib.contextmanager
def _catch_interrupts() -> Iterator[Callable[[], None]]:
    """Gives a function that raises an interrupt again if it arrived in a callback of the garbage collector.

    JAX has such a callback, and exceptions raised there are printed and lost.
    """
    received: list[int] = []

    def note(number: int, frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    def check() -> None:
        if received:
            raise KeyboardInterrupt

    print_others, usual = sys.unraisablehook, signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        yield check  # the caller ignores or handles interrupts itself
        return
    signal.signal(signal.SIGINT, note)
    sys.unraisablehook = lambda lost: None if lost.exc_type is KeyboardInterrupt else print_others(lost)
    try:
        yield check
        check()
    finally:
        signal.signal(signal.SIGINT, usual)
        sys.unraisablehook = print_others
