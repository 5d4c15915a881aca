"""Sentences for the reader of a plan or of a run, with how much they matter."""

import dataclasses
import enum


class Level(enum.Enum):
    """How much a note matters."""

    INFO = "info"
    WARNING = "warning"


@dataclasses.dataclass(frozen=True)
class Note:
    """One sentence or a few, from public facts and noisy answers.

    >>> print(Note("few rows.", Level.WARNING))
    Warning: few rows.
    """

    text: str
    level: Level = Level.INFO

    def __str__(self) -> str:
        return f"Warning: {self.text}" if self.level is Level.WARNING else self.text

    def to_json(self) -> dict[str, str]:
        return {"level": self.level.value, "text": self.text}


def warnings_of(messages: tuple[str, ...]) -> tuple[Note, ...]:
    """Each text as a warning."""
    return tuple(Note(text, Level.WARNING) for text in messages)


def percent(fraction: float) -> str:
    """A fraction in percent, with three digits; only 0 reads as 0% and only 1 as 100%.

    >>> percent(0.5), percent(0.08441), percent(1e-6), percent(0.99999), percent(-0.004)
    ('50%', '8.44%', '<0.01%', '>99.9%', '-0.4%')
    """
    if 0 < fraction < 1e-4:
        return "<0.01%"
    if 0.9995 <= fraction < 1:
        return ">99.9%"
    return f"{100 * fraction:,.0f}%" if abs(fraction) >= 9.995 else f"{100 * fraction:.3g}%"


def count_of(count: int, one: str, many: str | None = None) -> str:
    """A number and its noun.

    >>> count_of(1, "row"), count_of(1200, "row"), count_of(2, "category", "categories")
    ('1 row', '1,200 rows', '2 categories')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def shorten(text: str, max_length: int) -> str:
    """At most this many letters, on one line.

    >>> shorten("Total  variation, 1-way marginals", 16)
    'Total variation…'
    """
    plain = " ".join(text.split())
    return plain if len(plain) <= max_length else plain[: max_length - 1].rstrip() + "…"
