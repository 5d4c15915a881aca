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


def warnings_of(texts: tuple[str, ...]) -> tuple[Note, ...]:
    """Each text as a warning."""
    return tuple(Note(text, Level.WARNING) for text in texts)
