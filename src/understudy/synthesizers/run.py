"""What methods plan and fit with: a query that fills a budget, and the run that makes the planned queries."""

import dataclasses
from collections.abc import Callable

from jaxtyping import PRNGKeyArray

from understudy.privacy.events import Event
from understudy.privacy.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.rows import PrivateRows, PublicRows
from understudy.progress import Progress
from understudy.schema import Domain


def calibrate_query(
    key: str,
    what: str,
    event_of: Callable[[float], Event],
    domain: Domain,
    budget: Budget,
    partition: str | None = None,
) -> Query:
    """One query on all columns, with the least noise that fits the budget."""
    noise = budget.calibrate(lambda noise: [event_of(noise)])
    return Query(key, what, event_of(noise), columns=domain.names, partition=partition)


@dataclasses.dataclass(frozen=True)
class Run:
    """One fit: the private rows, the plan of all queries on them, and the ledger that charges each."""

    rows: PrivateRows
    plan: Plan
    ledger: Ledger
    _: dataclasses.KW_ONLY
    key: PRNGKeyArray
    public: PublicRows | None = None
    """Rows of a public table, which are not protected, for a method that starts from them."""
    progress: Progress | None = None

    @property
    def domain(self) -> Domain:
        return self.rows.domain

    def report(self, fraction: float, phase: str) -> None:
        """Report progress, if anyone asked for it."""
        if self.progress is not None:
            self.progress(fraction, phase)
