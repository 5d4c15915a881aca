"""What `auto` chooses, and why: a method by public facts alone, the same for every table with these facts.

The choice is made before anything is bought, so it knows what the schema declares and what the guarantee says, and
nothing else. Rules are tried from top to bottom; the first that holds decides. They follow the table of measurements
in `benchmarks/results/utility_gem.md`, and `docs/methods/auto.md` says how.
"""

import dataclasses
import math
from collections.abc import Callable

from understudy.notes import Note
from understudy.privacy.ledger import Budget
from understudy.schema import Domain

FEW = 100
"""Rows times epsilon below which even single columns are mostly noise."""
FEW_CELLS = 10_000
"""Cells of all columns together up to which a graphical model holds their joint law nearly whole."""
MOST_COLUMNS = 700
"""Columns whose pairs can be compared at once: with more, gem would hold little but single columns."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known of a run before any purchase."""

    sizes: tuple[int | None, ...]
    """Codes of each modelled column, a level for nulls included; None where they are bought. Of numbers the most."""
    rows: int | None
    """The declared number of rows; None: it is bought."""
    target: str | None
    epsilon: float
    delta: float
    rows_per_unit: int = 1

    @classmethod
    def of(cls, domain: Domain, budget: Budget) -> "Facts":
        """The public part of a domain: stand-ins for what is bought are left out."""
        sizes = tuple(
            None if name in domain.bought else size for name, size in zip(domain.names, domain.sizes, strict=True)
        )
        return cls(sizes, domain.declared_rows, domain.target, budget.epsilon, budget.delta, budget.max_rows_per_unit)

    @property
    def columns(self) -> int:
        return len(self.sizes)

    @property
    def cells(self) -> float:
        """Of all columns together; infinite where some are bought."""
        return math.prod(math.inf if size is None else size for size in self.sizes)

    @property
    def evidence(self) -> float:
        """Declared rows times epsilon, a unit's rows as one; infinite where the number of rows is bought."""
        return math.inf if self.rows is None else self.rows * self.epsilon / self.rows_per_unit


@dataclasses.dataclass(frozen=True)
class Rule:
    """A method, when it is chosen, and why in words, in which the facts stand in braces."""

    method: str
    holds: Callable[[Facts], bool]
    because: str


RULES = (
    Rule("independent", lambda facts: facts.columns == 1, "there is one column, and nothing for it to depend on"),
    Rule(
        "independent",
        lambda facts: facts.evidence < FEW,
        f"{{rows:,}} declared rows at this epsilon are too few for more (rows times epsilon below {FEW:,})",
    ),
    Rule(
        "independent",
        lambda facts: facts.columns > MOST_COLUMNS,
        f"{{columns:,}} columns have too many pairs to count (more than {MOST_COLUMNS:,} columns)",
    ),
    Rule(
        "aim",
        lambda facts: facts.cells <= FEW_CELLS,
        f"all columns together have {{cells:,}} cells, few enough (up to {FEW_CELLS:,}) to hold their joint law",
    ),
    Rule(
        "gem",
        lambda facts: True,
        "it counts pairs of {columns} columns{within}, the best or nearly so on most tables that were measured",
    ),
)


def choose(facts: Facts) -> tuple[str, tuple[Note, ...]]:
    """The method for these facts, and a sentence that says why. A pure function: no table, nothing bought.

    >>> choose(Facts((3, 9), rows=None, target=None, epsilon=1.0, delta=1e-6))[0]
    'aim'
    """
    rule = next(rule for rule in RULES if rule.holds(facts))
    within = "" if facts.target is None else f", within classes of {facts.target!r}"
    reason = rule.because.format(rows=facts.rows, cells=facts.cells, columns=facts.columns, within=within)
    return rule.method, (Note(f"auto: {rule.method}, because {reason}."),)
