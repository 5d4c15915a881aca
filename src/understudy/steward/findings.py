"""What a comparison of a table with its schema finds, for the data steward only."""

import dataclasses
from typing import Literal

Level = Literal["error", "warning", "note"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One result of `check`. NOT private: it may contain counts and values of the table."""

    level: Level
    """error: `fit` will refuse the table; warning: `fit` will change or lose something; note: worth knowing."""

    topic: str
    """A fixed key for programs, such as "outside bounds"."""

    column: str | None
    """None: the finding is about the whole table."""

    message: str

    count: int | None = None
    """The number of values, rows, units or categories concerned."""

    def __str__(self) -> str:
        where = "The table" if self.column is None else f"Column {self.column!r}"
        return f"{self.level}: {where}: {self.message}"
