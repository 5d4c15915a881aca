"""How an object shows itself: a few lines of text in a console, the same as a small table in a notebook."""

import abc
import dataclasses
from collections.abc import Sequence
from html import escape

MAX_ROWS = 12
"""Rows of a table that are shown; the rest is counted."""
MAX_LETTERS = 60
"""Of one value: names and methods can be very long."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """A title, facts about the whole, and a table of its parts. As text and as HTML.

    >>> print(Summary("Schema of 2 columns", {"rows": "100"}, ("column", "kind"), [("age", "integer")]).to_text())
    Schema of 2 columns
    rows: 100
    <BLANKLINE>
    column  kind
    age     integer
    """

    title: str
    facts: dict[str, str] = dataclasses.field(default_factory=dict)
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    """Sentences below the table."""

    def to_text(self) -> str:
        lines = [_short(self.title, 100), *(f"{name}: {_short(value)}" for name, value in self.facts.items())]
        if self.rows:
            table = [tuple(self.head), *(tuple(map(_short, row)) for row in self.rows[:MAX_ROWS])]
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            lines += ["", *("  ".join(map(str.ljust, row, widths)).rstrip() for row in table)]
        return "\n".join([*lines, *self._more, *self.notes])

    def to_html(self) -> str:
        """A fragment without scripts, classes or colours of its own, so that it fits light and dark notebooks."""
        facts = " &nbsp; ".join(
            f"{escape(name)}:&nbsp;<b>{escape(_short(text))}</b>" for name, text in self.facts.items()
        )
        parts = [f"<strong>{escape(_short(self.title, 100))}</strong>"]
        parts += [f'<div style="opacity:.85">{facts}</div>'] if facts else []
        if self.rows:
            head = "".join(f'<th style="text-align:left">{escape(each)}</th>' for each in self.head)
            body = "".join(
                f"<tr>{''.join(f'<td {_LEFT}>{escape(_short(cell, 120))}</td>' for cell in row)}</tr>"
                for row in self.rows[:MAX_ROWS]
            )
            parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        parts += [f'<div style="opacity:.85">{escape(note)}</div>' for note in (*self._more, *self.notes)]
        return f'<div style="max-width:60em">{"".join(parts)}</div>'

    @property
    def _more(self) -> list[str]:
        left = len(self.rows) - MAX_ROWS
        return [f"... and {left:,} more"] if left > 0 else []


class Summarized(abc.ABC):
    """An object whose `repr`, and display in a notebook, is its summary."""

    @abc.abstractmethod
    def summary(self) -> Summary:
        """What its `repr` shows."""
        ...

    def __repr__(self) -> str:
        return self.summary().to_text()

    def _repr_html_(self) -> str:
        return self.summary().to_html()


_LEFT = 'style="text-align:left"'


def _short(text: str, max_length: int = MAX_LETTERS) -> str:
    plain = "".join(each if each.isprintable() else " " for each in " ".join(text.split()))
    return plain if len(plain) <= max_length else plain[: max_length - 3].rstrip() + "..."
