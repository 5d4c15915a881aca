"""What a run spent: its statement, the public facts it rests on, and how strong its guarantee is."""

import dataclasses
import decimal
import enum
import math
from typing import Literal

from understudy.privacy.accounting.marginal_noise import MeasuredMarginal
from understudy.privacy.accounting.plan import Query
from understudy.summary import Summarized, Summary


class Strength(enum.Enum):
    """How strong a guarantee is, by its epsilon alone."""

    STRONG = "strong"
    MODERATE = "moderate"
    LIMITED = "limited"
    WEAK = "weak"


def strength(epsilon: float) -> Strength:
    """Up to 1 strong, up to 3 moderate, up to 10 limited, above weak.

    >>> strength(1.0).value, strength(20.0).value
    ('strong', 'weak')
    """
    limits = {Strength.STRONG: 1.0, Strength.MODERATE: 3.0, Strength.LIMITED: 10.0}
    return next((word for word, most in limits.items() if epsilon <= most), Strength.WEAK)


KeptIn = Literal["memory", "scratch", "spark"]
"""Where the codes of the private rows are during a run."""


@dataclasses.dataclass(frozen=True)
class BookEntry:
    """Where the budget book of a data set has reserved the cost of a run."""

    dataset: str
    """The name of the data set that the book declares."""
    number: int
    """The entry with the reservation."""
    digest: str
    """The hash of that entry, which depends on all entries before it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """What a run took as public, and what it estimated privately where the schema left a fact open."""

    unit: str | None = None
    """The column that identifies the privacy unit; None: every row is one."""
    graph_unit: Literal["edge", "node"] | None = None
    """What is protected in a graph: one edge, or all edges of one node; None: the data are a table."""
    rows_declared: int | None = None
    public_table: int | None = None
    """Rows of the table, declared public, that training started from; None: there was none."""
    drafted: bool = False
    """Kinds were inferred from the table rather than declared by a person."""
    types_kept: bool = False
    """Synthetic columns have the storage types of the source, which were taken as public."""
    selections_only: bool = False
    """Generators and discriminators were trained elsewhere: the run selected among them, and accounts for nothing
    else."""
    kept_in: KeptIn = "memory"
    """Where the codes of the private rows were kept during the run: in memory, in a scratch folder, or by Spark."""
    declared: tuple[str, ...] = ()
    """Sentences: what the schema declares to be public."""
    estimated: tuple[str, ...] = ()
    """Sentences: what the schema left open, and the noisy answers."""
    name: str | None = None
    """The data set: its declared name, else that of its file; None: a frame without a declared name."""
    responsible: str | None = None
    """Who is responsible for the release, as declared."""
    contact: str | None = None
    """Whom to ask about it, as declared."""
    date: str | None = None
    """The day of the run, as in 2026-03-31."""
    book: BookEntry | None = None
    """The entry of the data set's budget book; None: the run used none."""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Statement(Summarized):
    """What a run spent, on what, under which guarantee. Made from what ran, never from what was requested.

    `release.statement` is one; `understudy.certificate` writes it for people and for machines.

    >>> import understudy as us
    >>> table, schema = {"a": [True, False] * 50}, {"columns": {"a": {"kind": "boolean"}}}
    >>> import pyarrow as pa
    >>> statement = us.fit(pa.table(table), "independent", epsilon=1, schema=schema).statement
    >>> statement.is_private, 0.9 < statement.epsilon <= 1.0, statement.delta
    (True, True, 1e-06)
    """

    epsilon_target: float
    """The epsilon of the guarantee; infinite without one."""
    delta: float
    """The delta of the guarantee."""
    epsilon: float
    """What was spent at that delta: the smaller of the next two."""
    epsilon_pld: float
    """Epsilon by the accountant of privacy-loss distributions."""
    epsilon_rdp: float
    """Epsilon by the Renyi accountant."""
    accountant: str
    """The accountant that `epsilon` comes from."""
    seeded: bool
    """Whether the noise came from a seed: then nothing is private."""
    max_rows_per_unit: int
    """The number of rows of a unit that the guarantee protects together."""
    queries: tuple[Query, ...]
    """All that were charged, in order."""
    measurements: tuple[MeasuredMarginal, ...] = ()
    """All marginals that were measured, with their noise."""
    facts: PublicFacts = PublicFacts()
    """What the run took as public."""
    warnings: tuple[str, ...] = ()
    """Sentences: what a reader should know about this run, from public facts and noisy answers."""
    accuracy: tuple[str, ...] = ()
    """Sentences: how accurate answers are, where a method can say so from public facts and noisy answers."""
    method: str = ""
    """Its expression."""
    released: bool = True
    """False: the run failed after its first query. The statement has its planned cost, and nothing was released."""

    @property
    def is_private(self) -> bool:
        """Whether the guarantee holds: finite epsilon, and noise that cannot be reproduced."""
        return math.isfinite(self.epsilon) and not self.seeded

    @property
    def replace_one(self) -> tuple[float, float]:
        """The same guarantee for replacing one unit by another: a removal followed by an addition."""
        if not math.isfinite(self.epsilon):
            return math.inf, 1.0
        return 2 * self.epsilon, min(1.0, (1 + math.exp(self.epsilon)) * self.delta)

    @property
    def pure_epsilon(self) -> float | None:
        """Epsilon at delta 0, by simple composition, if every query has one; that of the most expensive partition."""
        if not math.isfinite(self.epsilon):  # without noise, whatever its events say
            return None
        own: dict[str | None, float] = {None: 0.0}
        for query in self.queries:
            cost = query.event.pure_epsilon
            if cost is None or query.delta:
                return None
            own[query.partition] = own.get(query.partition, 0.0) + cost
        shared = own.pop(None)
        return shared + max(own.values(), default=0.0) if self.queries else None

    @property
    def strength(self) -> Strength | None:
        """How strong the guarantee is, by epsilon alone; None where nothing is guaranteed."""
        return strength(self.epsilon) if self.is_private else None

    @property
    def headline(self) -> str:
        """The guarantee in one line, for the label of a table."""
        if not self.is_private:
            return f"{self.method}: {self._why_not_private}"
        facts = self.facts
        only = "of the selections alone: " if facts.selections_only else ""
        is_conditional = facts.drafted or facts.types_kept or facts.public_table is not None
        return (
            f"{self.method}: {only}epsilon {round_up(self.epsilon, 4)}, delta {round_up(self.delta, 2)}, "
            f"privacy unit: {self._protected}{', under a condition: see the certificate' * is_conditional}"
        )

    @property
    def _why_not_private(self) -> str:
        return "NOT PRIVATE: " + ("its noise was seeded" if self.seeded else "made without noise")

    @property
    def _protected(self) -> str:
        unit = "one row" if self.facts.unit is None else f"all rows with the same {self.facts.unit}"
        return {None: unit, "edge": "one edge", "node": "all edges of one node"}[self.facts.graph_unit]

    def summary(self) -> Summary:
        """What its `repr` shows."""
        facts = {"epsilon": f"{round_up(self.epsilon, 4)} of {self.epsilon_target:g}", "delta": round_up(self.delta, 2)}
        title = self._why_not_private if self.strength is None else f"{self.strength.value.capitalize()} guarantee"
        facts |= {"privacy unit": self._protected, "method": self.method}
        rows = [(query.label, query.event.describe()) for query in self.queries]
        return Summary(title, facts, ("query", "mechanism"), rows, self.warnings)


def round_up(value: float, digits: int) -> str:
    """The figure with this many significant digits, rounded up: a guarantee must not be rounded down."""
    if value <= 0 or not math.isfinite(value):
        return f"{value:g}"
    exact = decimal.Decimal(value)
    step = decimal.Decimal(1).scaleb(exact.adjusted() - digits + 1)
    up = exact.quantize(step, rounding=decimal.ROUND_CEILING)
    # 1.2e-06 as a float is a hair above its decimal digits: what was meant by them counts as itself.
    near = decimal.Decimal(f"{value:.{digits - 1}e}")
    return f"{float(near if abs(near - exact) <= exact * decimal.Decimal('1e-12') else up):.{digits}g}"
