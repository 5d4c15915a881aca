"""The privacy budget of one run: guarantee, plan, ledger, statement.

A `Plan` lists every query on the private rows before any is made. The `Ledger` is the one object here that changes:
each query is charged on it first, in the function that draws the noise or makes the object that will, and a charge that
does not fit is refused before the rows are read. A `Statement` says what ran.
"""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from understudy.errors import BudgetExceeded
from understudy.privacy.accounting import accountants as accounting
from understudy.privacy.accounting.accountants import Spent
from understudy.privacy.accounting.budget import MAX_EPSILON as MAX_EPSILON
from understudy.privacy.accounting.budget import Budget as Budget
from understudy.privacy.accounting.budget import Guarantee as Guarantee
from understudy.privacy.accounting.budget import partitions as partitions
from understudy.privacy.accounting.budget import renyi_epsilon, spent_of
from understudy.privacy.accounting.budget import spent_by as spent_by
from understudy.privacy.accounting.marginal_noise import MarginalRecorder, MeasuredMarginal
from understudy.privacy.accounting.plan import Plan as Plan
from understudy.privacy.accounting.plan import Query as Query
from understudy.privacy.accounting.statement import PublicFacts as PublicFacts
from understudy.privacy.accounting.statement import Statement as Statement
from understudy.privacy.accounting.statement import Strength as Strength
from understudy.privacy.noise.source import NoiseSource
from understudy.run.checkpoint import Slot


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """A partition of the units of a run. Rows carry it; it is equal to no other, whatever their names."""

    name: str
    """As queries give it (`Query.partition`)."""


@runtime_checkable
class StateStore(Protocol):
    """Where a resumable run keeps its state."""

    is_charged: bool
    """Whether a query was charged: from then on the secret of the noise must not be discarded."""

    def slot(self) -> Slot:
        """Storage for the state of one training; a run takes its slots in the order in which trainings start."""


@runtime_checkable
class Book(Protocol):
    """A limit for all releases of a data set, of which a run has reserved its cost."""

    is_charged: bool
    """Whether a query was charged: from then on the reserved cost must not be given back."""

    def cover(self, queries: Sequence[Query], guarantee: Guarantee) -> None:
        """Reserves what these queries of one run cost, unless that is reserved already; refuses what does not fit."""


@dataclasses.dataclass(frozen=True)
class _Record:
    """What the ledger of a run and all its views share. The lists grow."""

    guarantee: Guarantee
    noise: NoiseSource
    max_rows_per_unit: int
    store: StateStore | None
    book: Book | None
    queries: list[Query] = dataclasses.field(default_factory=list)
    partitions: list[Partition] = dataclasses.field(default_factory=list)
    """The partitions of the one split of the units."""
    measured: list[MeasuredMarginal] = dataclasses.field(default_factory=list)
    accuracy: list[str] = dataclasses.field(default_factory=list)


class Ledger:
    """Append-only record of what one run has spent. Owns the source of noise.

    `fit` opens one for each run; a method charges every query on it before the query is made.

    Args:
        guarantee: What may be spent. Without a delta it has 1e-6.
        noise: The source of all noise of the run.
        max_rows_per_unit: The number of rows of a unit that the guarantee protects together.
        store: Where a run that can be resumed keeps its state.
        book: The limit for all releases of the data set, of which the run has reserved its cost.

    >>> from understudy.privacy.noise.source import noise_source
    >>> ledger = Ledger(Guarantee(1.0, 1e-6), noise=noise_source(seed=0))
    >>> ledger.remaining.epsilon, ledger.queries
    (1.0, ())
    """

    def __init__(
        self,
        guarantee: Guarantee,
        *,
        noise: NoiseSource,
        max_rows_per_unit: int = 1,
        store: StateStore | None = None,
        book: Book | None = None,
    ):
        if guarantee.delta is None:
            guarantee = guarantee.with_delta_for(None)
        self._record = _Record(guarantee, noise, max_rows_per_unit, store, book)
        self._own = self._record.queries  # those made through this view; for the ledger itself, all
        self._cap: Budget | None = None
        self._outer: Ledger | None = None

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the run, with its delta."""
        return self._record.guarantee

    @property
    def noise(self) -> NoiseSource:
        """Where all noise of the run is drawn."""
        return self._record.noise

    @property
    def max_rows_per_unit(self) -> int:
        """The number of rows of a unit that the guarantee protects together."""
        return self._record.max_rows_per_unit

    @property
    def queries(self) -> tuple[Query, ...]:
        """All that were charged, in order."""
        return tuple(self._record.queries)

    @property
    def measurements(self) -> tuple[MeasuredMarginal, ...]:
        """Every marginal that was measured, in order; one that was measured again is listed again."""
        return tuple(self._record.measured)

    @property
    def remaining(self) -> Budget:
        """What is left, for the next plan."""
        if self._cap is not None:
            return self._cap.after(self._own)
        return self.guarantee.budget(self.max_rows_per_unit).after(self.queries)

    def charge(self, query: Query) -> None:
        """Record a query before it is made, or refuse it.

        Formal guarantee: after any number of accepted charges, one of the two accountants holds the composition of all
        of them within the guarantee's epsilon at its delta (less the deltas of thresholded lists, and what the finite
        range of floating-point noise adds). Queries on different partitions compose in parallel: all partitions are of
        the one split of the run (`_partition_units`), so a unit is in one of them at most. A refused charge raises
        before its caller has read a row.
        """
        if query.partition not in (None, *(partition.name for partition in self._record.partitions)):
            raise BudgetExceeded(
                f"'{query.what}' is planned for the partition '{query.partition}', but this run has none of that name. "
                "This query was not made.",
                query=query.what,
            )
        covered = query.event.covered_rows
        if covered is not None and covered < self.max_rows_per_unit:
            raise BudgetExceeded(
                f"The cost of '{query.what}' covers {covered} row(s) per unit, but units may have "
                f"{self.max_rows_per_unit}. This query was not made. Plan it with the budget's max_rows_per_unit.",
                query=query.what,
            )
        if self.guarantee.is_private:
            accounting.check_tails([query.event], self.guarantee.fixed_delta)
        views = [self]
        while (outer := views[-1]._outer) is not None:
            views.append(outer)
        for view in views:
            _check_fits(view.remaining, query)
        self.reserve([query])
        if self._record.book is not None:
            self._record.book.is_charged = True
        if self._record.store is not None and self.guarantee.is_private:
            self._record.store.is_charged = True
        for view in views:
            view._own.append(query)

    def reserve(self, queries: Sequence[Query]) -> None:
        """Makes the budget book of the run, if it has one, cover these queries beside those charged, or refuses them.

        Formal guarantee: no query is charged that the book does not cover, since `charge` reserves each one first.
        """
        if self._record.book is not None:
            self._record.book.cover((*self._record.queries, *queries), self.guarantee)

    def view(self, cap: Budget) -> "Ledger":
        """The same ledger for a method inside a method: its charges must fit `cap` as well as all that surrounds it."""
        inner = copy.copy(self)  # with the same record
        inner._own, inner._cap, inner._outer = [], cap, self
        return inner

    def state_accuracy(self, *sentences: str) -> None:
        """For the certificate: how accurate the answers are. From public facts and answers alone."""
        self._record.accuracy.extend(sentences)

    def _recorder(self, query: Query) -> MarginalRecorder:
        """For a mechanism that has charged `query`: records the marginals that it then measures."""
        assert query in self._record.queries, "a query is charged first"
        return MarginalRecorder(self._record.measured, query.key, query.partition, self.guarantee.is_private)

    def _partition_units(self, *names: str) -> tuple[Partition, ...]:
        """The partitions of the one split of this run. A second one is refused: its partitions would share units with
        those of the first, and queries on them would not compose in parallel."""
        assert len(set(names)) == len(names)
        if self._record.partitions:
            raise BudgetExceeded("The units of this run are partitioned already, and can be only once.")
        self._record.partitions.extend(map(Partition, names))
        return tuple(self._record.partitions)

    def slot(self) -> Slot | None:
        """Where the training that begins now may keep its state; None in a run that cannot be resumed."""
        return None if self._record.store is None else self._record.store.slot()

    def spent(self) -> Spent:
        """Both figures for everything that has been charged so far."""
        return spent_by(self.queries, self.guarantee)

    def statement(
        self,
        facts: PublicFacts | None = None,
        *,
        method: str = "",
        planned: Sequence[Query] | None = None,
        warnings: tuple[str, ...] = (),
    ) -> Statement:
        """What was charged, for the certificate.

        With `planned`: the statement of a run that failed. Nothing was released, and every planned query counts.
        """
        queries = self.queries if planned is None else tuple(planned)
        try:
            spent = spent_by(queries, self.guarantee)
        except MemoryError:
            if planned is None:
                raise
            # A plan fits its guarantee, so this much is spent at most. The other accountant needs little memory.
            spent = Spent(self.guarantee.epsilon, renyi_epsilon(self.guarantee.budget().after(queries)))
        return Statement(
            epsilon_target=self.guarantee.epsilon,
            delta=self.guarantee.fixed_delta,
            epsilon=spent.epsilon,
            epsilon_pld=spent.pld,
            epsilon_rdp=spent.rdp,
            accountant=spent.accountant,
            seeded=self.noise.seeded,
            max_rows_per_unit=self.max_rows_per_unit,
            queries=queries,
            measurements=self.measurements if planned is None else (),
            accuracy=tuple(self._record.accuracy) if planned is None else (),
            released=planned is None,
            warnings=(*self.guarantee.warnings, *warnings),
            method=method,
            facts=facts or PublicFacts(),
        )


def _check_fits(budget: Budget, query: Query) -> None:
    """Refuses a query with which the run would no longer fit."""
    if not budget.is_private:
        return
    after, slack = budget.after([query]), 1e-9  # calibrated noise meets the target up to the last bits of a float
    for queries in partitions(after.already):
        open_delta = budget.delta - sum(each.delta for each in queries)
        events = [each.event for each in queries]
        if open_delta <= 0 or not accounting.fits(events, budget.epsilon, open_delta, slack=slack):
            spent = spent_of(budget).epsilon
            raise BudgetExceeded(
                f"'{query.what}' would exceed the budget of epsilon {budget.epsilon:g} at delta {budget.delta:g}. "
                "This query was not made. Raise epsilon, or plan fewer queries.",
                query=query.what,
                needed=spent_of(after).epsilon - spent,
                left=budget.epsilon - spent,
            )
