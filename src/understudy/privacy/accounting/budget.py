"""What may be spent: the guarantee of a run, and the budgets that are parts of it."""

import dataclasses
import math
from collections.abc import Callable, Sequence

from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting import accountants as accounting
from understudy.privacy.accounting.accountants import NO_NOISE, Spent
from understudy.privacy.accounting.events import Event, SubsampledGaussian
from understudy.privacy.accounting.plan import Plan, Query
from understudy.privacy.accounting.statement import Strength, strength

DEFAULT_DELTA = 1e-6
MIN_DEFAULT_DELTA = 1e-11
MAX_DELTA = 0.01
LARGE_DELTA = 1e-4
"""A larger delta needs a declared number of rows to compare with, and causes a warning in the certificate."""
MAX_EPSILON = 100.0
"""A larger epsilon is refused: it gives no meaningful protection."""


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

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)
        if self.delta is not None:
            accounting.check_delta(self.delta)

    @classmethod
    def not_private(cls) -> "Guarantee":
        """No guarantee: a baseline without noise, whose certificate says that epsilon is infinite."""
        guarantee = cls(MAX_EPSILON, DEFAULT_DELTA)
        object.__setattr__(guarantee, "epsilon", math.inf)  # after the check, which no argument may switch off
        return guarantee

    @property
    def is_private(self) -> bool:
        """Whether it is a guarantee at all: False for `not_private`."""
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
        if self.delta > MAX_DELTA:
            raise ConfigError(
                f"delta {self.delta:g} is too large: delta bounds the probability that the guarantee of epsilon fails. "
                f"Use at most {MAX_DELTA:g}; 1e-6 is a common choice.",
                setting="delta",
            )
        if declared_rows is None and self.delta > LARGE_DELTA:
            raise ConfigError(
                f"delta {self.delta:g} is larger than {LARGE_DELTA:g}, and the schema declares no number of rows: with "
                f"{math.ceil(1 / self.delta):,} rows or more, such a delta permits publishing a whole row. Use "
                f"{DEFAULT_DELTA:g}, or declare the number of rows in the schema.",
                setting="delta",
            )
        if declared_rows is not None and self.delta > 1 / declared_rows:
            raise ConfigError(
                f"delta {self.delta:g} is larger than 1/{declared_rows}, one over the declared number of rows: it "
                f"permits publishing a whole row. Use {default_delta(declared_rows):g} or less, or leave delta out.",
                setting="delta",
            )
        return self

    @property
    def fixed_delta(self) -> float:
        """The delta of a guarantee for which it is fixed; `with_delta_for` does that before a run is planned."""
        assert self.delta is not None
        return self.delta

    def budget(self, max_rows_per_unit: int = 1) -> "Budget":
        """All that a run under this guarantee may spend."""
        delta = DEFAULT_DELTA if self.delta is None else self.delta
        return Budget(self.epsilon, delta, max_rows_per_unit=max_rows_per_unit)


def default_delta(declared_rows: int | None) -> float:
    """n^(-3/2) rounded down to two digits, at most 1e-5 and at least 1e-11; 1e-6 when no size is declared.

    Below the floor, which begins at 22 million rows, what floating-point noise adds to delta would determine the noise
    of training (`accounting.MIN_FLOATING_DELTA`). It ends at ten thousand million rows: delta is never more than
    1 / (10 n), so that the expected number of units for which the guarantee fails is at most a tenth.

    >>> default_delta(8802), default_delta(130_000_000), default_delta(None)
    (1.2e-06, 1e-11, 1e-06)
    """
    if declared_rows is None:
        return DEFAULT_DELTA
    # A float cannot hold "just below one" in two digits, so a size of one takes the cap like every small size.
    exact = min(1e-5, max(declared_rows**-1.5, min(MIN_DEFAULT_DELTA, 0.1 / declared_rows)))
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
        raise ConfigError(f"epsilon must be a number, found {found}. 1 is a common choice.", setting="epsilon")
    hint = "For a baseline without privacy use fit or synth with --not-private (in Python: Guarantee.not_private())."
    if math.isinf(epsilon) and epsilon > 0:
        raise ConfigError(f"epsilon must be finite, found infinity. {hint}", setting="epsilon")
    if epsilon <= 0:
        raise ConfigError(
            f"epsilon must be a positive number, found {epsilon:g}. Smaller is more private; 1 is a common choice. "
            + hint,
            setting="epsilon",
        )
    if epsilon > MAX_EPSILON:
        raise ConfigError(
            f"epsilon {epsilon:g} is too large to give meaningful protection. Use at most {MAX_EPSILON:g}; 1 is a "
            f"common choice. {hint}",
            setting="epsilon",
        )
    if epsilon < 1e-6:
        raise ConfigError(
            f"epsilon {epsilon:g} is too small: noise would swamp every answer. Use at least 1e-6.", setting="epsilon"
        )


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
                "none. Set steps instead.",
                setting="noise_multiplier",
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
        return spent_of(self).epsilon if self.already and self.is_private else 0.0

    def after(self, queries: Sequence[Query]) -> "Budget":
        """What is left once these queries have been made, or reserved."""
        return dataclasses.replace(self, already=(*self.already, *queries))


def partitions(queries: Sequence[Query]) -> list[list[Query]]:
    """One list for each partition of the units: its own queries, and those on all units."""
    names: list[str | None] = [*sorted({query.partition for query in queries if query.partition is not None})] or [None]
    return [[query for query in queries if query.partition in (None, name)] for name in names]


def spent_of(budget: Budget) -> Spent:
    figures = []
    for queries in partitions(budget.already):
        open_delta = budget.delta - sum(each.delta for each in queries)
        events = [each.event for each in queries]
        figures.append(accounting.spent(events, open_delta, grid=accounting.grid_for(budget.epsilon)))
    return max(figures, key=lambda figure: figure.epsilon)  # the most expensive partition


def renyi_epsilon(budget: Budget) -> float:
    """Epsilon by the Renyi accountant alone, for the partition with the largest privacy cost."""
    figures = []
    for queries in partitions(budget.already):
        events = [query.event for query in queries]
        left = budget.delta - sum(query.delta for query in queries) - accounting.tail_delta(events)
        figures.append(accounting.rdp_epsilon(events, left) if left > 0 or not events else math.inf)
    return max(figures)


def spent_by(plan: Plan | Sequence[Query], guarantee: Guarantee) -> Spent:
    """What a plan would cost if all of its queries were made."""
    if not guarantee.is_private:
        return Spent(math.inf, math.inf)
    return spent_of(guarantee.budget().after(tuple(plan)))
