"""A run that is about to be planned, as a budget book and a second person see it."""

import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence

from understudy.errors import BookError, ConfigError, UnderstudyError
from understudy.institution.book.book import BudgetBook, protected_unit
from understudy.institution.book.entries import canonical
from understudy.institution.book.policy import Method
from understudy.privacy.accounting.ledger import Guarantee, Query
from understudy.privacy.mechanisms.discovery import Binning
from understudy.run.plan import plan_run
from understudy.schema import Schema
from understudy.synthesizers import express

MAX_PLANS = 12
"""Plans that are made to find the largest epsilon that fits."""
MIN_EPSILON = 1e-6
"""No guarantee has a smaller one."""


@dataclasses.dataclass(frozen=True)
class ProposedRun:
    """What a run would do: public facts only, and nothing that depends on the rows."""

    method: Method
    guarantee: Guarantee
    """With a delta."""
    plan: Callable[[Guarantee], Sequence[Query]]
    """Every query of the run under a guarantee."""
    declared: Mapping[str, object]
    """What the plan follows from beside method and guarantee, such as the schema, in JSON."""
    dataset: str | None = None
    """The name that the schema declares."""
    unit: str | None = None
    """The column that identifies the privacy unit; None: each row is one."""
    protect: str | None = None
    """What is protected in a graph; None: the data are a table."""

    @property
    def method_text(self) -> str:
        """The method with its settings."""
        return self.method if isinstance(self.method, str) else express(self.method)

    @functools.cached_property
    def queries(self) -> tuple[Query, ...]:
        """Every query that is planned."""
        return tuple(self.plan(self.guarantee))

    def at(self, epsilon: float) -> "ProposedRun":
        """The same run at another epsilon."""
        return dataclasses.replace(self, guarantee=dataclasses.replace(self.guarantee, epsilon=epsilon))

    def to_json(self, book: BudgetBook) -> dict[str, object]:
        """What a second person approves: data set, unit, schema, method, guarantee and every query."""
        queries = [
            {"what": query.what, "event": query.event.to_json(), "delta": query.delta, "partition": query.partition}
            for query in self.queries
        ]
        return {
            "dataset": book.dataset,
            "unit": book.unit,
            **({} if book.protect is None else {"protect": book.protect}),
            **self.declared,
            "method": self.method_text,
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
            "queries": queries,
        }

    def plan_hash(self, book: BudgetBook) -> str:
        """The SHA-256 of `to_json`."""
        return hashlib.sha256(canonical(self.to_json(book)).encode()).hexdigest()


def table_run(
    schema: Schema | None, method: Method, guarantee: Guarantee, binning: Binning, *, target: str | None = None
) -> ProposedRun:
    """The run of a method or a learner on a table."""
    if schema is None or schema.drafted:
        raise ConfigError(
            "A run with a budget book is planned before the table is opened, so it needs a declared schema. Write one "
            "with 'understudy schema draft', and name it with --schema (in Python: schema=).",
            setting="schema",
        )
    assert not isinstance(method, str)
    declared, plannable = schema if target is None else schema.with_target(target), method
    return ProposedRun(
        method,
        guarantee.with_delta_for(declared.rows),
        lambda wanted: plan_run(declared, plannable, wanted, binning).queries,
        {"schema": json.loads(json.dumps(declared.to_dict(), default=str)), "binning": repr(binning)},
        dataset=declared.name,
        unit=declared.unit,
    )


def propose_run(
    book: "BudgetBook | str | os.PathLike[str]",
    schema: Schema | None,
    method: Method,
    guarantee: Guarantee,
    binning: Binning,
) -> tuple[BudgetBook, ProposedRun]:
    """The book and the run on a table, if the book can cover such a run at all."""
    opened, run = as_book(book), table_run(schema, method, guarantee, binning)
    require_covered(opened, run)
    return opened, run


def as_book(book: "BudgetBook | str | os.PathLike[str]") -> BudgetBook:
    """A book, given as one or as its path."""
    return book if isinstance(book, BudgetBook) else BudgetBook.open(book)


def require_covered(book: BudgetBook, run: ProposedRun, *, seed: int | None = None) -> None:
    """Refuses a run without a bound on its cost, on another data set, or with another privacy unit."""
    if not run.guarantee.is_private or seed is not None:
        what = "a seeded run" if run.guarantee.is_private else "a run without a guarantee"
        raise ConfigError(
            f"A budget book cannot cover {what}, which has no bound on its cost. Leave the book out.",
            setting="seed" if run.guarantee.is_private else "guarantee",
        )
    if run.dataset is not None and run.dataset != book.dataset:
        raise BookError(
            f"{book.path} is the budget book of {book.dataset!r}, but the schema declares the data set "
            f"{run.dataset!r}. Use the book of that data set.",
            reason="other data set",
        )
    if (run.unit, run.protect) != (book.unit, book.protect):
        raise BookError(
            f"{book.path} counts the cost for {protected_unit(book.unit, book.protect)}, but this run protects "
            f"{protected_unit(run.unit, run.protect)}. Costs for different privacy units cannot be added. Use one unit "
            "for all releases of a data set.",
            reason="other unit",
        )


def largest_epsilon(book: BudgetBook, run: ProposedRun) -> float | None:
    """About the largest epsilon, below that of the run, at which the same method still fits; None: none does.

    Makes up to `MAX_PLANS` plans. The answer was planned, so it fits as long as nobody else spends.
    """
    room = book.limit - book.total
    if room.amount <= 0:  # no run costs nothing
        return None

    def needed_at(epsilon: float) -> float:
        """As a fraction of what is left; infinite where there is no plan, or too little delta for any."""
        try:
            tried = run.at(epsilon)
            cost = book.terms.cost(tried.queries, tried.guarantee)
        except UnderstudyError:
            return math.inf
        return cost.amount / room.amount if cost.delta <= room.delta else math.inf

    best, high = None, run.guarantee.epsilon
    guess, needed = high, needed_at(high)
    for _ in range(MAX_PLANS - 1):
        # Costs grow almost like the square of epsilon, so that guesses come close.
        guess = _rounded_down(guess / math.sqrt(needed) * 0.998 if 0 < needed < 1e6 else guess / 8)
        if best is not None and not best < guess < high:
            guess = _rounded_down(math.sqrt(best * high))
        if guess < MIN_EPSILON or guess == best:
            break
        before, needed = needed, needed_at(guess)
        if math.isinf(before) and math.isinf(needed):  # the delta of a query does not shrink with epsilon
            break
        best, high = (guess, high) if needed <= 1 else (best, guess)
        if best is not None and (0.96 < needed <= 1 or high / best < 1.02):
            break
    return best


def _rounded_down(epsilon: float) -> float:
    """To three significant digits."""
    if epsilon <= 0:
        return 0.0
    digits = 2 - math.floor(math.log10(epsilon))
    return math.floor(epsilon * 10**digits) / 10**digits if digits < 300 else 0.0
