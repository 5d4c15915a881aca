"""The method that `auto` uses, and why: by public facts alone, so the same for every table with these facts.

The choice is made before any query, from the schema and the guarantee. The first rule that holds decides. The rules
follow the measurements in `benchmarks/results/utility_gem.md`, as `docs/methods/auto.md` explains.
"""

import dataclasses
import math
from collections.abc import Callable

from understudy.notes import Note
from understudy.privacy.ledger import Budget
from understudy.schema import Domain

FEW = 100
"""Rows times epsilon below which even 1-way marginals are mostly noise."""
FEW_CELLS = 10_000
"""The number of cells of all columns together up to which a graphical model can hold nearly the joint distribution."""
MOST_COLUMNS = 700
"""The number of columns whose pairs gem can fit at once: with more, it would fit little but 1-way marginals."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """The public facts about a run before any query."""

    sizes: tuple[int | None, ...]
    """The number of codes of each modelled column, including the one for nulls (for numeric columns the largest
    possible); None: the categories are estimated privately."""
    rows: int | None
    """The declared number of rows; None: it is estimated privately."""
    target: str | None
    epsilon: float
    delta: float
    rows_per_unit: int = 1

    @classmethod
    def of(cls, domain: Domain, budget: Budget) -> "Facts":
        """The public part of a domain, without placeholders for private estimates."""
        sizes = tuple(
            None if name in domain.estimated else size for name, size in zip(domain.names, domain.sizes, strict=True)
        )
        return cls(sizes, domain.declared_rows, domain.target, budget.epsilon, budget.delta, budget.max_rows_per_unit)

    @property
    def columns(self) -> int:
        return len(self.sizes)

    @property
    def cells(self) -> float:
        """The number of cells of all columns together; infinite if some categories are estimated."""
        return math.prod(math.inf if size is None else size for size in self.sizes)

    @property
    def evidence(self) -> float:
        """Declared rows times epsilon, over the rows per unit; infinite if the number of rows is estimated."""
        return math.inf if self.rows is None else self.rows * self.epsilon / self.rows_per_unit


@dataclasses.dataclass(frozen=True)
class Rule:
    """A method, its condition, and its reason, a format string over the facts."""

    method: str
    holds: Callable[[Facts], bool]
    because: str


RULES = (
    Rule("independent", lambda facts: facts.columns == 1, "there is only one column"),
    Rule(
        "independent",
        lambda facts: facts.evidence < FEW,
        f"{{rows:,}} declared rows are too few for other methods at this epsilon (rows times epsilon below {FEW:,})",
    ),
    Rule(
        "independent",
        lambda facts: facts.columns > MOST_COLUMNS,
        f"{{columns:,}} columns have too many 2-way marginals (more than {MOST_COLUMNS:,} columns)",
    ),
    Rule(
        "aim",
        lambda facts: facts.cells <= FEW_CELLS,
        f"all columns together have {{cells:,}} cells, few enough (up to {FEW_CELLS:,}) for their joint distribution",
    ),
    Rule(
        "gem",
        lambda facts: True,
        "it fits 2-way marginals of {columns} columns{within}, and is the best or close to it on most benchmark tables",
    ),
)


def choose(facts: Facts) -> tuple[str, tuple[Note, ...]]:
    """The method for these facts, and a note with the reason. Reads no data.

    >>> choose(Facts((3, 9), rows=None, target=None, epsilon=1.0, delta=1e-6))[0]
    'aim'
    """
    rule = next(rule for rule in RULES if rule.holds(facts))
    within = "" if facts.target is None else f", within classes of {facts.target!r}"
    reason = rule.because.format(rows=facts.rows, cells=facts.cells, columns=facts.columns, within=within)
    return rule.method, (Note(f"auto: {rule.method}, because {reason}."),)
