"""Progress reports of long computations."""

from collections.abc import Callable

Progress = Callable[[float, str], None]
"""Called with the fraction that is done, from 0 to 1, and a text for people."""


class Compiling(str):
    """A progress text of a program that is being compiled: nothing is done yet, and the time left is unknown."""

    __slots__ = ()


class TimeLeft:
    """The time left, which goes on between two reports: it counts down, and grows again where a step takes longer.

    >>> left = TimeLeft(now=0.0)
    >>> left.report(0.5, now=10.0)
    >>> left.seconds(now=10.0), left.seconds(now=14.0), left.seconds(now=30.0)
    (10.0, 6.0, 30.0)
    """

    def __init__(self, now: float) -> None:
        self._began, self._last, self._fraction = now, now, 0.0

    def report(self, fraction: float, now: float) -> None:
        if fraction > self._fraction:
            self._fraction, self._last = fraction, now

    def seconds(self, now: float) -> float | None:
        """None: nothing is known yet."""
        if not self._fraction:
            return None
        pace = (1 - self._fraction) / self._fraction
        expected = pace * (self._last - self._began) - (now - self._last)
        return expected if expected > 0 else pace * (now - self._began)


def prefix_progress(progress: Progress, prefix: str) -> Progress:
    """The same progress with `prefix` before each text, which keeps its type."""
    return lambda done, text: progress(done, type(text)(f"{prefix}{text}"))


def stretch_progress(progress: Progress | None, first: float, last: float) -> Progress:
    """Maps the progress of one part to the range from `first` to `last` of the whole; None stays silent."""
    if progress is None:
        return lambda done, text: None
    return lambda done, text: progress(first + (last - first) * done, text)
