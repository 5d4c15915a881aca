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


def printable(text: str) -> str:
    """Text with its control characters escaped: names of columns and files may contain some that a terminal acts on."""
    return "".join(
        each if each.isprintable() or each in "\n\t\u00a0\u200d\ufe0f" else repr(each)[1:-1] for each in text
    )


def say(message: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints text, on standard error if `err`."""
    typer.echo(printable(str(message)), err=err, nl=nl)


def echo(message: str, *, quiet: bool) -> None:
    """Prints a line on standard error, unless quiet."""
    if not quiet:
        say(message, err=True)


@contextlib.contextmanager
def show_progress(quiet: bool, task: str) -> Iterator[Progress]:
    """Gives a function that reports progress; it also ends the work if Ctrl-C was pressed."""
    with catch_interrupts() as check, open_progress(not quiet, task) as show:

        def report(fraction: float, now: str) -> None:
            check()
            if show is not None:
                show(fraction, now)

        check()
        try:
            yield report
        except Exception:
            check()  # a library may turn an interrupt into an error of its own
            raise
        check()


class _Interrupts:
    """A handler of Ctrl-C that remembers it.

    An exception raised in a callback of the garbage collector (JAX installs one) or of an import is printed and lost.
    """

    def __init__(self) -> None:
        self._received = False

    def __call__(self, number: int, frame: object) -> None:
        self._received = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raises a lost interrupt again."""
        if self._received:
            raise KeyboardInterrupt


@contextlib.contextmanager
def catch_interrupts() -> Iterator[Callable[[], None]]:
    """Yields a function that raises an interrupt again if one arrived and was lost, here or in an outer block."""
    handler, usual = signal.getsignal(signal.SIGINT), signal.default_int_handler
    if isinstance(handler, _Interrupts):
        yield handler.check
        return
    interrupts = _Interrupts()
    if threading.current_thread() is not threading.main_thread() or handler is not usual:
        yield interrupts.check  # the caller ignores or handles interrupts itself
        return
    print_others = sys.unraisablehook
    signal.signal(signal.SIGINT, interrupts)
    sys.unraisablehook = lambda lost: None if lost.exc_type is KeyboardInterrupt else print_others(lost)
    try:
        yield interrupts.check
    finally:
        signal.signal(signal.SIGINT, usual)
        sys.unraisablehook = print_others
