"""Progress reports of long computations."""

from collections.abc import Callable

Progress = Callable[[float, str], None]
"""Called with the fraction that is done, from 0 to 1, and a text for people."""


class Compiling(str):
    """A progress text of a program that is being compiled: nothing is done yet, and the time left is unknown."""

    __slots__ = ()


def prefix_progress(progress: Progress, prefix: str) -> Progress:
    """The same progress with `prefix` before each text, which keeps its type."""
    return lambda done, text: progress(done, type(text)(f"{prefix}{text}"))


def stretch_progress(progress: Progress | None, first: float, last: float) -> Progress:
    """Maps the progress of one part to the range from `first` to `last` of the whole; None stays silent."""
    if progress is None:
        return lambda done, text: None
    return lambda done, text: progress(first + (last - first) * done, text)
