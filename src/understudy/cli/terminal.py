"""Progress, interrupts and plain lines on the terminal."""

import contextlib
import datetime
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import typer

from understudy.errors import UnderstudyError
from understudy.progress import Compiling, Progress, TimeLeft

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
    with _catch_interrupts() as check, _progress_display(quiet, task) as show:

        def report(fraction: float, now: str) -> None:
            check()
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


@contextlib.contextmanager
def _progress_display(quiet: bool, task: str) -> Iterator[Progress]:
    """A bar with the time left on a terminal, plain lines elsewhere, nothing when quiet."""
    if quiet:
        yield lambda fraction, now: None
    elif sys.stderr.isatty():
        with _bar(task) as report:
            yield report
    else:
        yield _Lines().report


@contextlib.contextmanager
def _bar(task: str) -> Iterator[Progress]:
    from rich import progress as bars
    from rich.console import Console
    from rich.text import Text

    left = TimeLeft(time.monotonic())

    class Left(bars.ProgressColumn):
        def render(self, task: bars.Task) -> Text:
            seconds = left.seconds(time.monotonic())
            return Text("" if seconds is None else f"about {datetime.timedelta(seconds=round(seconds))} left")

    columns = [
        bars.TextColumn("{task.description}", markup=False),  # table names must not be read as markup
        bars.BarColumn(),
        bars.TimeElapsedColumn(),
        Left(),
    ]
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        number = bar.add_task(task, total=1.0)

        def report(fraction: float, now: str) -> None:
            left.report(fraction, time.monotonic())
            bar.update(number, completed=fraction, description=now)

        yield report


class _Lines:
    """A line for every tenth of the work, with the time left once the program has compiled."""

    def __init__(self) -> None:
        self._began, self._last = time.monotonic(), -1.0
        self._first: tuple[float, float] | None = None
        """Fraction and time of the first report after compilation, from which the rate is estimated."""

    def report(self, fraction: float, now: str) -> None:
        compiles = isinstance(now, Compiling) and self._first is None
        if not (fraction >= self._last + 0.1 or fraction >= 1.0 > self._last or compiles):
            return
        self._last, at = fraction, time.monotonic()
        left = ""
        if self._first is not None and self._first[0] < fraction < 1:
            left = f", {(1 - fraction) * (at - self._first[1]) / (fraction - self._first[0]):.0f} s left"
        elif fraction > 0 and self._first is None:
            self._first = (fraction, at)
        print(f"{fraction:4.0%}  {now}  ({at - self._began:.0f} s{left})", file=sys.stderr)
