"""Whether a table has enough rows for a plan: decided by the declared or assumed number, never by the rows."""

import dataclasses
import math
from collections.abc import Sequence

from understudy.notes import Level, Note
from understudy.privacy.accounting.ledger import Plan
from understudy.privacy.accounting.marginal_noise import ExpectedNoise
from understudy.privacy.mechanisms.discovery import rows_to_be_listed

ENOUGH = 10.0
"""A table needs this many times the noise in a count, and this many times the rows that a value needs to be listed:
otherwise a group of a tenth of the rows is lost in noise, or becomes "other"."""


@dataclasses.dataclass(frozen=True)
class Requirements:
    """The noise that a plan expects, and how many rows a table needs for a useful result."""

    stddev: float | None
    """The standard deviation of the noise in a count of the least noisy marginals, in rows; None: not known."""
    listed: int | None
    """The number of rows that a value needs to be kept in an estimated list; None: all lists are declared."""

    @classmethod
    def of(cls, discovery: Plan, expected: Sequence[ExpectedNoise]) -> "Requirements":
        """From the plan of the private estimates and the noise that the method expects."""
        listed = rows_to_be_listed(discovery["categories"]) if "categories" in discovery else None
        return cls(min((each.stddev for each in expected), default=None), listed)

    @property
    def min_rows(self) -> int | None:
        """The smallest number of rows that is not mostly noise, to two digits; None: not known."""
        need = ENOUGH * max(self.stddev or 0.0, self.listed or 0)
        return round_to_two_digits(need) if need > 0 else None

    def note(self, num_rows: int | None, *, epsilon: float) -> Note | None:
        """A warning if the declared or assumed number of rows is too small; without such a number, how many rows are
        enough. None: there are enough, or nothing is known."""
        min_rows = self.min_rows
        if min_rows is None or (num_rows is not None and num_rows >= min_rows):
            return None
        facts = []
        if self.stddev is not None:
            facts.append(f"each count will be off by about ±{format_rows(self.stddev)}")
        if self.listed is not None:
            facts.append(f"values in fewer than about {self.listed:,} rows become 'other'")
        said = ", and ".join(facts)
        if num_rows is None:
            text = f"{said[:1].upper()}{said[1:]}. If your table has fewer than {min_rows:,} rows, expect mostly noise."
            return Note(text)
        few = "1 row is" if num_rows == 1 else f"{num_rows:,} rows are"
        text = (
            f"{few} too few for epsilon {epsilon:g}: {said}. Expect mostly noise. About {min_rows:,} rows would be "
            "enough; a larger epsilon, fewer columns or declared categories help too."
        )
        return Note(text, Level.WARNING)


def round_to_two_digits(number: float) -> int:
    """Rounded up, as a whole number."""
    step = int(10 ** max(math.floor(math.log10(number)) - 1, 0))
    return math.ceil(number / step) * step


def format_rows(noise: float) -> str:
    """A number of rows for people: two digits below ten, whole above."""
    text = f"{noise:,.0f}" if noise >= 10 else f"{noise:.2g}"
    return f"{text} row" if text == "1" else f"{text} rows"
