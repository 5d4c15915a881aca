"""Progress of long computations: what they report, and how a terminal, a notebook or a log shows it."""

import contextlib
import functools
import html
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from understudy.errors import ConfigError

Progress = Callable[[float, str], None]
"""Called with the fraction that is done, from 0 to 1, and a string for people."""

ShowProgress: TypeAlias = Progress | bool | None
"""What callers give: a function of their own, True for a bar, or False or None for silence."""


PROGRESS_FILE = "UNDERSTUDY_PROGRESS"
"""The environment variable that names a file for the progress of this process, which another process shows."""


class Compiling(str):
    """The progress of a program that is being compiled: nothing is done yet, and the time left is unknown."""

    __slots__ = ()


def prefix_progress(progress: Progress, prefix: str) -> Progress:
    """The same progress with `prefix` before each string, which keeps its type."""
    return lambda done, text: progress(done, type(text)(f"{prefix}{text}"))


def stretch_progress(progress: Progress | None, first: float, last: float) -> Progress:
    """Maps the progress of one part to the range from `first` to `last` of the whole; None stays silent."""
    if progress is None:
        return lambda done, text: None
    return lambda done, text: progress(first + (last - first) * done, text)


@contextlib.contextmanager
def open_progress(progress: ShowProgress, task: str) -> Iterator[Progress | None]:
    """The function to report to: the caller's own, that of a display which lasts as long as the block, or None."""
    if progress is True:
        with display_progress(task) as report:
            yield report
    elif progress is None or progress is False:
        yield None
    elif callable(progress):
        yield progress
    else:
        raise ConfigError(
            f"progress must be True, False or a function of a fraction and a string, found {type(progress).__name__}.",
            setting="progress",
        )


@contextlib.contextmanager
def display_progress(task: str) -> Iterator[Progress]:
    """A bar with the time left on a terminal, a bar below the cell in a notebook, and plain lines elsewhere; or a file,
    if the environment names one."""
    if file := os.environ.get(PROGRESS_FILE):
        yield _limit_rate(functools.partial(_write_progress, Path(file)), 0.2)
    elif _in_notebook():
        with _notebook_bar(task) as report:
            yield report
    elif sys.stderr.isatty():
        with _terminal_bar(task) as report:
            yield report
    else:
        yield _Lines().report


@contextlib.contextmanager
def _terminal_bar(task: str) -> Iterator[Progress]:
    from rich import progress as bars
    from rich.console import Console

    columns = [
        bars.TextColumn("{task.description}", markup=False),  # table names must not be read as markup
        bars.BarColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        bars.TextColumn("left"),
    ]
    # Some steps take minutes: the time left is estimated from all reports, not from those of the last half minute.
    with bars.Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=math.inf) as bar:
        number = bar.add_task(task, total=1.0)

        def report(fraction: float, now: str) -> None:
            bar.update(number, completed=fraction, description=now)

        yield report


def _in_notebook() -> bool:
    """Whether a notebook runs this code. It has loaded IPython then, and its shell has a kernel."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


@contextlib.contextmanager
def _notebook_bar(task: str) -> Iterator[Progress]:
    """A bar in plain HTML, which needs no widgets; it is cleared at the end."""
    from IPython.display import HTML, display

    handle = display(HTML(_bar_html(0.0, task, 0.0)), display_id=True)
    began = time.monotonic()

    def report(fraction: float, now: str) -> None:
        handle.update(HTML(_bar_html(fraction, now, time.monotonic() - began)))

    try:
        yield _limit_rate(report, 0.1)  # a notebook draws every update
    finally:
        handle.update(HTML(""))


def _bar_html(fraction: float, now: str, seconds: float) -> str:
    return (
        f'<progress value="{fraction:.3f}" max="1" style="vertical-align:middle"></progress> '
        f"{fraction:.0%} {html.escape(now)} ({seconds:.0f} s)"
    )


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


def _limit_rate(progress: Progress, seconds: float) -> Progress:
    """Reports no more often than this, except when all is done."""
    last = -math.inf

    def report(fraction: float, now: str) -> None:
        nonlocal last
        at = time.monotonic()
        if at - last >= seconds or fraction >= 1:
            last = at
            progress(fraction, now)

    return report


def _write_progress(path: Path, fraction: float, now: str) -> None:
    """Replaces a small JSON file; whoever reads it sees it whole."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(json.dumps({"fraction": fraction, "text": str(now)}), encoding="utf-8")
        os.replace(part, path)
    except OSError:  # a display that is gone must not end the run, whose budget may be spent
        part.unlink(missing_ok=True)
