"""Rows of the tables on `docs/papers/`: one for every table and figure of a paper, from committed results."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parents[1] / "results"
NOT_RUN = "not run"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """What a paper printed, and what was found here. Empty texts: not run."""

    id: str
    """Of the experiment, such as P1."""
    what: str
    """The table or figure of the paper, the metric, and which figures follow, in their order."""
    published: str = ""
    """Empty: only in a picture."""
    as_published: str = ""
    """With networks, schedule and accounting of the paper."""
    sound: str = ""
    """Under a guarantee that holds."""
    seeds: str = ""
    command: str = ""
    """The script and its options, without `--profile paper --write`; several with `; ` between them."""

    @property
    def cells(self) -> tuple[str, ...]:
        command = ", ".join(f"`{each}`" for each in self.command.split("; ")) if self.command else ""
        found = self.as_published or "–", self.sound or ("–" if self.as_published else NOT_RUN)
        return self.id, self.what, self.published or "plot only", *found, self.seeds or "–", command or "–"


HEADER = ("id", "what", "published", "as published", "sound", "seeds", "command")


def table_of(rows: Sequence[Row]) -> str:
    lines = [HEADER, ("---",) * len(HEADER), *(row.cells for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def read(name: str) -> list[dict[str, Any]]:
    """The lines of a result file; none where it is not there."""
    file = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def read_tables(name: str) -> list[list[str]]:
    """The rows of all tables of a result page, in their order; none where it is not there."""
    file = RESULTS / f"{name}.md"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def mean(values: Sequence[float], digits: int = 3, scale: float = 1.0) -> str:
    """The mean of all values that are there, or nothing.

    >>> mean([0.5, 0.25], 2)
    '0.38'
    """
    return f"{scale * float(np.mean(values)):.{digits}f}" if len(values) else ""


def median(values: Sequence[float], digits: int = 3) -> str:
    return f"{float(np.median(values)):.{digits}f}" if len(values) else ""


def joined(values: Sequence[str]) -> str:
    """Figures in the order of `what`; empty where none of them is there.

    >>> joined(["0.1", ""]), joined(["", ""])
    ('0.1 / –', '')
    """
    return " / ".join(value or "–" for value in values) if any(values) else ""
