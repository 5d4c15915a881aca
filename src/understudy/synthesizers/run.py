"""What methods plan and fit with: a query that fills a budget, and the run that makes the planned queries."""

import dataclasses
from collections.abc import Callable, Sequence

from jaxtyping import PRNGKeyArray

from understudy.notes import Note
from understudy.privacy.accounting.events import Event, SubsampledGaussian
from understudy.privacy.accounting.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.rows.rows import PrivateRows, PublicRows
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


def describe_chosen_steps(budget: Budget, events: Sequence[SubsampledGaussian]) -> str:
    """What a query says of a number of steps that follows from the budget, for the plan and the certificate."""
    noise = f"noise multiplier {events[0].noise_multiplier:g}"
    return f", as many as the budget covers with {noise} ({_moments(budget, events)})"


def moments_note(budget: Budget, events: Sequence[SubsampledGaussian]) -> Note:
    """What the accountant of the papers states for these steps, for the reader of a plan."""
    return Note(f"Of the training steps, {_moments(budget, events)}.")


def _moments(budget: Budget, events: Sequence[SubsampledGaussian]) -> str:
    figure = budget.moments_epsilon(events)
    return (
        "for comparison only: the moments accountant, a weaker bound by which nothing is charged, states epsilon "
        f"{figure:.4f} at delta {budget.delta:g}"
    )


def target_note(domain: Domain, weight: float, what: str = "Marginals", where: str = "selections") -> tuple[Note, ...]:
    """What a plan says of the weight of a target, if there is one."""
    if domain.target is None:
        return ()
    return (Note(f"{what} with the target {domain.target!r} have weight {weight:g} in {where}."),)


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
