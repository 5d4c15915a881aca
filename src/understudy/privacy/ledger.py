"""The privacy budget of one run: guarantee, plan, ledger, statement.

A `Plan` lists every query on the private rows before any is made. The `Ledger` is the one object here that changes:
each query is charged on it first, in the function that draws the noise or makes the object that will, and a charge that
does not fit is refused before the rows are read. A `Statement` says what ran.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy import accounting
from understudy.privacy.accounting import NO_NOISE, Spent
from understudy.privacy.events import Event, SubsampledGaussian
from understudy.privacy.marginal_noise import MarginalRecorder, MeasuredMarginal
from understudy.privacy.noise import NoiseSource
from understudy.privacy.plan import Plan as Plan
from understudy.privacy.plan import Query as Query
from understudy.privacy.statement import PublicFacts as PublicFacts
from understudy.privacy.statement import Statement as Statement
from understudy.privacy.statement import Strength as Strength
from understudy.privacy.statement import strength as strength
from understudy.run.checkpoint import Slot

DEFAULT_DELTA = 1e-6
LEAST_DEFAULT_DELTA = 1e-11
MOST_DELTA = 0.01
LARGE_DELTA = 1e-4
"""A larger delta needs a declared number of rows to compare with, and causes a warning in the certificate."""
MOST_EPSILON = 100.0
"""A larger epsilon is refused: it protects nobody."""


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy under add-or-remove of one privacy unit.

    >>> Guarantee(epsilon=1.0, delta=1e-6)
    Guarantee(epsilon=1.0, delta=1e-06)
    """

    epsilon: float
    """The presence of one unit changes the probability of any outcome by at most a factor of e^epsilon ..."""

    delta: float | None = None
    """... plus delta. Default: derived from the declared number of rows, else 1e-6."""

    def __post_init__(self):
        _check_epsilon(self.epsilon)
        if self.delta is not None:
            accounting.check_delta(self.delta)

    @classmethod
    def not_private(cls) -> "Guarantee":
        """No guarantee: a baseline without noise, whose certificate says that epsilon is infinite."""
        guarantee = object.__new__(cls)
        object.__setattr__(guarantee, "epsilon", math.inf)
        object.__setattr__(guarantee, "delta", DEFAULT_DELTA)
        return guarantee

    @property
    def is_private(self) -> bool:
        return math.isfinite(self.epsilon)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What readers of a plan, a run and its certificate should know, one sentence each."""
        if not self.is_private:
            return ()
        found = []
        if strength(self.epsilon) is Strength.WEAK:
            found.append(
                f"This is a weak guarantee. Epsilon {self.epsilon:g} permits the presence of one unit to change the "
                f"probability of an outcome by a factor of {_factor(self.epsilon)}. Usual values are 10 or less."
            )
        if self.delta is not None and self.delta > LARGE_DELTA:
            found.append(
                f"delta {self.delta:g} is large: it permits the guarantee to fail for a unit, and its rows to be "
                f"published, with about this probability. Usual values are {LARGE_DELTA:g} or less."
            )
        return tuple(found)

    def with_delta_for(self, declared_rows: int | None) -> "Guarantee":
        """The same guarantee with a delta: as given, else from the declared number of rows, never from the rows."""
        if not self.is_private:
            return self
        if self.delta is None:
            return dataclasses.replace(self, delta=default_delta(declared_rows))
        if self.delta > MOST_DELTA:
            raise ConfigError(
                f"delta {self.delta:g} is too large: delta bounds the probability that the guarantee of epsilon fails. "
                f"Use at most {MOST_DELTA:g}; 1e-6 is a common choice."
            )
        if declared_rows is None and self.delta > LARGE_DELTA:
            raise ConfigError(
                f"delta {self.delta:g} is larger than {LARGE_DELTA:g}, and the schema declares no number of rows: with "
                f"{math.ceil(1 / self.delta):,} rows or more, such a delta permits publishing a whole row. Use "
                f"{DEFAULT_DELTA:g}, or declare the number of rows in the schema."
            )
        if declared_rows is not None and self.delta > 1 / declared_rows:
            raise ConfigError(
                f"delta {self.delta:g} is larger than 1/{declared_rows}, one over the declared number of rows: it "
                f"permits publishing a whole row. Use {default_delta(declared_rows):g} or less, or leave delta out."
            )
        return self

    def budget(self, max_rows_per_unit: int = 1) -> "Budget":
        """All that a run under this guarantee may spend."""
        delta = DEFAULT_DELTA if self.delta is None else self.delta
        return Budget(self.epsilon, delta, max_rows_per_unit=max_rows_per_unit)


def default_delta(declared_rows: int | None) -> float:
    """n^(-3/2) rounded down to two digits, at most 1e-5 and at least 1e-11; 1e-6 when no size is declared.

    Below the floor, which begins at 22 million rows, what floating-point noise adds to delta would determine the noise
    of training (`accounting.LEAST_FLOATING_DELTA`). It ends at ten thousand million rows: delta is never more than
    1 / (10 n), so that the expected number of units for which the guarantee fails is at most a tenth.

    >>> default_delta(8802), default_delta(130_000_000), default_delta(None)
    (1.2e-06, 1e-11, 1e-06)
    """
    if declared_rows is None:
        return DEFAULT_DELTA
    # A float cannot hold "just below one" in two digits, so a size of one takes the cap like every small size.
    exact = min(1e-5, max(declared_rows**-1.5, min(LEAST_DEFAULT_DELTA, 0.1 / declared_rows)))
    digits = 10.0 ** (math.floor(math.log10(exact)) - 1)
    return float(f"{math.floor(exact / digits + 1e-9) * digits:.1e}")


def _factor(epsilon: float) -> str:
    """e^epsilon for people, rounded up: 12 -> "170,000", 50 -> "10^22".

    >>> _factor(12), _factor(50)
    ('170,000', '10^22')
    """
    factor = math.exp(epsilon)
    if factor >= 1e9:
        return f"10^{math.ceil(math.log10(factor))}"
    digits = 10 ** (math.floor(math.log10(factor)) - 1)
    return f"{math.ceil(factor / digits) * digits:,}"


def _check_epsilon(epsilon: float) -> None:
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or math.isnan(epsilon):
        found = f"the text {epsilon!r}. Write it without quotes" if isinstance(epsilon, str) else repr(epsilon)
        raise ConfigError(f"epsilon must be a number, found {found}. 1 is a common choice.")
    hint = "For a baseline without privacy use fit or synth with --not-private (in Python: Guarantee.not_private())."
    if math.isinf(epsilon) and epsilon > 0:
        raise ConfigError(f"epsilon must be finite, found infinity. {hint}")
    if epsilon <= 0:
        raise ConfigError(
            f"epsilon must be a positive number, found {epsilon:g}. Smaller is more private; 1 is a common choice. "
            + hint
        )
    if epsilon > MOST_EPSILON:
        raise ConfigError(
            f"epsilon {epsilon:g} is too large to give meaningful protection. Use at most {MOST_EPSILON:g}; 1 is a "
            f"common choice. {hint}"
        )
    if epsilon < 1e-6:
        raise ConfigError(f"epsilon {epsilon:g} is too small: noise would swamp every answer. Use at least 1e-6.")


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """A partition of the units of a run. Rows carry it; it is equal to no other, whatever their names."""

    name: str
    """As queries give it (`Query.partition`)."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """What a plan may still spend: a target, and the queries that count against it."""

    epsilon: float
    delta: float
    already: tuple[Query, ...] = ()
    max_rows_per_unit: int = 1
    """How far one unit moves a count: the sensitivity that every cost must cover."""

    @property
    def is_private(self) -> bool:
        return math.isfinite(self.epsilon)

    @property
    def _open_delta(self) -> float:
        return self.delta - sum(query.delta for query in self.already)

    @property
    def _events(self) -> tuple[Event, ...]:
        return tuple(query.event for query in self.already)

    def calibrate(self, events_of_noise: Callable[[float], Sequence[Event]]) -> float:
        """The least noise for which everything before and these events together still meet the target."""
        if not self.is_private:
            return NO_NOISE
        accounting.check_tails((*self._events, *events_of_noise(1.0)), self.delta)
        return accounting.calibrate(events_of_noise, epsilon=self.epsilon, delta=self._open_delta, already=self._events)

    def most_steps(self, events_of_steps: Callable[[int], Sequence[Event]], multiple: int = 1) -> int:
        """The largest number of steps, a multiple of `multiple`, whose exact cost still fits; refused if none does."""
        if not self.is_private:
            raise ConfigError(
                "noise_multiplier determines the number of steps by the budget, and a run that is not private has "
                "none. Set steps instead."
            )
        accounting.check_tails((*self._events, *events_of_steps(multiple)), self.delta)
        found = accounting.most_steps(
            events_of_steps, epsilon=self.epsilon, delta=self._open_delta, already=self._events, multiple=multiple
        )
        if not found:
            raise BudgetExceeded(
                f"With this noise_multiplier not even {multiple} step{'s fit' if multiple > 1 else ' fits'} into "
                f"epsilon {self.epsilon:g} at delta {self.delta:g}. Raise noise_multiplier or epsilon, or lower "
                "sampling_rate."
            )
        return found

    def moments_epsilon(self, events: Sequence[SubsampledGaussian]) -> float:
        """What the moments accountant states for these steps and those planned before, at the whole delta.

        For comparison with papers: a weaker bound, by which nothing is charged.
        """
        steps = [event for event in (*self._events, *events) if isinstance(event, SubsampledGaussian)]
        return accounting.moments_epsilon(steps, self.delta)

    def rho(self) -> float:
        """The largest zCDP budget that still fits."""
        if not self.is_private:
            return 1 / NO_NOISE**2
        return accounting.largest_rho(epsilon=self.epsilon, delta=self._open_delta, already=self._events)

    def fraction(self, fraction: float) -> "Budget":
        """A budget of its own, calibrated alone, with this fraction of the epsilon that is left.

        >>> Budget(1.0, 1e-6).fraction(0.25).epsilon
        0.25
        """
        return dataclasses.replace(self, epsilon=fraction * max(self.epsilon - self._spent(), 0.0), already=())

    def fraction_of_rest(self, fraction: float) -> "Budget":
        """Room for the queries already made and for this fraction of the epsilon that they leave.

        >>> Budget(1.0, 1e-6).fraction_of_rest(0.5).epsilon
        0.5
        """
        before = self._spent()
        if not self.is_private or before >= self.epsilon:
            return self  # nothing to divide; where nothing is left, calibration refuses
        return dataclasses.replace(self, epsilon=before + fraction * (self.epsilon - before))

    def simple_rest(self) -> float:
        """What is left of epsilon by simple composition: at delta 0, if all queries before have such a cost.

        >>> Budget(1.0, 1e-6).simple_rest()
        1.0
        """
        pure = [event.pure_epsilon for event in self._events]
        before = sum(each for each in pure if each is not None) if None not in pure else self._spent()
        if before >= self.epsilon:
            raise BudgetExceeded(
                "By simple composition, earlier queries have used the whole budget. Raise epsilon, or declare more in "
                "the schema.",
                left=0.0,
            )
        return self.epsilon - before

    def _spent(self) -> float:
        return _spent(self).epsilon if self.already and self.is_private else 0.0

    def after(self, queries: Sequence[Query]) -> "Budget":
        """What is left once these queries have been made, or reserved."""
        return dataclasses.replace(self, already=(*self.already, *queries))


class StateStore(Protocol):
    """Where a resumable run keeps its state."""

    is_charged: bool
    """Whether a query was charged: from then on the secret of the noise must not be discarded."""

    def slot(self) -> Slot:
        """Storage for the state of one training; a run takes its slots in the order in which trainings start."""


class Book(Protocol):
    """A limit for all releases of a data set, of which a run has reserved its cost."""

    is_charged: bool
    """Whether a query was charged: from then on the reserved cost must not be given back."""

    def cover(self, queries: Sequence[Query], guarantee: Guarantee) -> None:
        """Reserves what these queries of one run cost, unless that is reserved already; refuses what does not fit."""


class Ledger:
    """Append-only record of what one run has spent. Owns the source of noise.

    `fit` opens one for each run; a method charges every query on it before the query is made.

    >>> from understudy.privacy.noise import noise_source
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
        self.guarantee = guarantee
        self.noise = noise
        self.max_rows_per_unit = max_rows_per_unit
        self._store = store
        self._book = book
        self._queries: list[Query] = []
        self._own = self._queries  # those made through this view; for the ledger itself, all
        self._cap: Budget | None = None
        self._outer: Ledger | None = None
        self._split: list[Partition] = []  # the partitions of the units; those of the run in every view
        self._measured: list[MeasuredMarginal] = []  # one list for the whole run, shared by all views
        self._accuracy: list[str] = []  # likewise

    @property
    def queries(self) -> tuple[Query, ...]:
        return tuple(self._queries)

    @property
    def measurements(self) -> tuple[MeasuredMarginal, ...]:
        """Every marginal that was measured, in order; one that was measured again is listed again."""
        return tuple(self._measured)

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
        if query.partition not in (None, *(partition.name for partition in self._split)):
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
            assert self.guarantee.delta is not None
            accounting.check_tails([query.event], self.guarantee.delta)
        views = [self]
        while (outer := views[-1]._outer) is not None:
            views.append(outer)
        for view in views:
            _check_fits(view.remaining, query)
        self.reserve([query])
        if self._book is not None:
            self._book.is_charged = True
        if self._store is not None and self.guarantee.is_private:
            self._store.is_charged = True
        for view in views:
            view._own.append(query)

    def reserve(self, queries: Sequence[Query]) -> None:
        """Makes the budget book of the run, if it has one, cover these queries beside those charged, or refuses them.

        Formal guarantee: no query is charged that the book does not cover, since `charge` reserves each one first.
        """
        if self._book is not None:
            self._book.cover((*self._queries, *queries), self.guarantee)

    def view(self, cap: Budget) -> "Ledger":
        """The same ledger for a method inside a method: its charges must fit `cap` as well as all that surrounds it."""
        inner = Ledger(
            self.guarantee,
            noise=self.noise,
            max_rows_per_unit=self.max_rows_per_unit,
            store=self._store,
            book=self._book,
        )
        inner._queries, inner._cap, inner._outer = self._queries, cap, self
        inner._own, inner._split, inner._measured = [], self._split, self._measured
        inner._accuracy = self._accuracy
        return inner

    def state_accuracy(self, *sentences: str) -> None:
        """For the certificate: how accurate the answers are. From public facts and answers alone."""
        self._accuracy.extend(sentences)

    def _recorder(self, query: Query) -> MarginalRecorder:
        """For a mechanism that has charged `query`: records the marginals that it then measures."""
        assert query in self._queries, "a query is charged first"
        return MarginalRecorder(self._measured, query.key, query.partition, self.guarantee.is_private)

    def _partition_units(self, *names: str) -> tuple[Partition, ...]:
        """The partitions of the one split of this run. A second one is refused: its partitions would share units with
        those of the first, and queries on them would not compose in parallel."""
        assert len(set(names)) == len(names)
        if self._split:
            raise BudgetExceeded("The units of this run are partitioned already, and can be only once.")
        self._split.extend(map(Partition, names))
        return tuple(self._split)

    def slot(self) -> Slot | None:
        """Where the training that begins now may keep its state; None in a run that cannot be resumed."""
        return None if self._store is None else self._store.slot()

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
        assert self.guarantee.delta is not None
        queries = self.queries if planned is None else tuple(planned)
        try:
            spent = spent_by(queries, self.guarantee)
        except MemoryError:
            if planned is None:
                raise
            # A plan fits its guarantee, so this much is spent at most; there is no memory for a better figure.
            spent = Spent(self.guarantee.epsilon, self.guarantee.epsilon)
        return Statement(
            epsilon_target=self.guarantee.epsilon,
            delta=self.guarantee.delta,
            epsilon=spent.epsilon,
            epsilon_pld=spent.pld,
            epsilon_rdp=spent.rdp,
            accountant=spent.accountant,
            seeded=self.noise.seeded,
            max_rows_per_unit=self.max_rows_per_unit,
            queries=queries,
            measurements=self.measurements if planned is None else (),
            accuracy=tuple(self._accuracy) if planned is None else (),
            released=planned is None,
            warnings=(*self.guarantee.warnings, *warnings),
            method=method,
            facts=facts or PublicFacts(),
        )


def partitions(queries: Sequence[Query]) -> list[list[Query]]:
    """One list for each partition of the units: its own queries, and those on all units."""
    names: list[str | None] = [*sorted({query.partition for query in queries if query.partition is not None})] or [None]
    return [[query for query in queries if query.partition in (None, name)] for name in names]


def _check_fits(budget: Budget, query: Query) -> None:
    """Refuses a query with which the run would no longer fit."""
    if not budget.is_private:
        return
    after, slack = budget.after([query]), 1e-9  # calibrated noise meets the target up to the last bits of a float
    for queries in partitions(after.already):
        open_delta = budget.delta - sum(each.delta for each in queries)
        events = [each.event for each in queries]
        if open_delta <= 0 or not accounting.fits(events, budget.epsilon, open_delta, slack=slack):
            spent = _spent(budget).epsilon
            raise BudgetExceeded(
                f"'{query.what}' would exceed the budget of epsilon {budget.epsilon:g} at delta {budget.delta:g}. "
                "This query was not made. Raise epsilon, or plan fewer queries.",
                query=query.what,
                needed=_spent(after).epsilon - spent,
                left=budget.epsilon - spent,
            )


def _spent(budget: Budget) -> Spent:
    figures = []
    for queries in partitions(budget.already):
        open_delta = budget.delta - sum(each.delta for each in queries)
        events = [each.event for each in queries]
        figures.append(accounting.spent(events, open_delta, grid=accounting.grid_for(budget.epsilon)))
    return max(figures, key=lambda figure: figure.epsilon)  # the most expensive partition


def spent_by(plan: Plan | Sequence[Query], guarantee: Guarantee) -> Spent:
    """What a plan would cost if all of its queries were made."""
    if not guarantee.is_private:
        return Spent(math.inf, math.inf)
    return _spent(guarantee.budget().after(tuple(plan)))
