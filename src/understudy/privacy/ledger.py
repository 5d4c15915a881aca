"""The budget of one run: what was promised, what is planned, what was spent.

A `Plan` lists every look at the private rows before any happens. The `Ledger` is the one object here that changes: each
look is charged on it first, in the same function that draws the noise, and a charge that does not fit is refused before
the rows are touched. A `Statement` says what ran.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

from understudy.checkpoint import Checkpoint, Slot
from understudy.errors import BudgetExceeded, ConfigError
from understudy.notes import Note
from understudy.privacy import accounting
from understudy.privacy.accounting import NO_NOISE, DiscreteGaussian, Event, Spent
from understudy.privacy.noise import NoiseSource

DEFAULT_DELTA = 1e-6
MOST_DELTA = 0.01
LARGE_DELTA = 1e-4
"""A larger delta needs declared rows, which show what it means, and causes a warning in the certificate."""


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """The promise: (epsilon, delta)-differential privacy under add-or-remove of one protected unit.

    >>> Guarantee(epsilon=1.0, delta=1e-6)
    Guarantee(epsilon=1.0, delta=1e-06)
    """

    epsilon: float
    """How much one person's presence may change the odds of any outcome: at most a factor e^epsilon ..."""

    delta: float | None = None
    """... except with about this probability. Left out: from the declared number of rows, else 1e-6."""

    def __post_init__(self):
        _check_epsilon(self.epsilon)
        if self.delta is not None:
            accounting.check_delta(self.delta)

    @classmethod
    def not_private(cls) -> "Guarantee":
        """No guarantee at all: a baseline without noise, whose certificate says that epsilon is infinite."""
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
        if not self.is_private or self.delta is None or self.delta <= LARGE_DELTA:
            return ()
        return (
            f"delta {self.delta:g} is large: with up to about this probability the guarantee fails for a unit, and its "
            f"rows may be published. Usual values are {LARGE_DELTA:g} or less.",
        )

    def with_delta_for(self, declared_rows: int | None) -> "Guarantee":
        """The same guarantee with its delta settled: as given, else from the declared size, never from the rows."""
        if not self.is_private:
            return self
        if self.delta is None:
            return dataclasses.replace(self, delta=default_delta(declared_rows))
        if self.delta > MOST_DELTA:
            raise ConfigError(
                f"delta {self.delta:g} is no promise: it is the chance that the guarantee fails. Use {MOST_DELTA:g} or "
                "less; 1e-6 is a common choice."
            )
        if declared_rows is None and self.delta > LARGE_DELTA:
            raise ConfigError(
                f"delta {self.delta:g} is larger than {LARGE_DELTA:g}, and the schema declares no number of rows: with "
                f"{math.ceil(1 / self.delta):,} rows or more, it would allow publishing a whole row. Use "
                f"{DEFAULT_DELTA:g}, or declare rows in the schema."
            )
        if declared_rows is not None and self.delta > 1 / declared_rows:
            raise ConfigError(
                f"delta {self.delta:g} is larger than 1/{declared_rows}, one over the declared rows: it would "
                f"allow publishing a whole row. Use {default_delta(declared_rows):g} or less, or leave delta out."
            )
        return self


def default_delta(declared_rows: int | None) -> float:
    """n^(-3/2) rounded down to two digits, at most 1e-5; 1e-6 when no size is declared.

    >>> default_delta(8802), default_delta(None)
    (1.2e-06, 1e-06)
    """
    if declared_rows is None:
        return DEFAULT_DELTA
    # A float cannot hold "just below one" in two digits, so a size of one takes the cap like every small size.
    exact = min(1e-5, declared_rows**-1.5)
    digits = 10.0 ** (math.floor(math.log10(exact)) - 1)
    return float(f"{math.floor(exact / digits + 1e-9) * digits:.1e}")


def _check_epsilon(epsilon: float) -> None:
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or math.isnan(epsilon):
        raise ConfigError(f"epsilon must be a positive number, found {epsilon}. 1 is a common choice.")
    if math.isinf(epsilon) and epsilon > 0:
        raise ConfigError(
            "epsilon must be finite, found infinity. For a baseline without privacy use --not-private "
            "(in Python: Guarantee.not_private())."
        )
    if epsilon <= 0:
        raise ConfigError(
            f"epsilon must be a positive number, found {epsilon:g}. Smaller is more private; 1 is a common choice. "
            "For a baseline without privacy use --not-private (in Python: Guarantee.not_private())."
        )
    if epsilon > 1000:
        raise ConfigError(
            f"epsilon {epsilon:g} promises nothing. Use 100 or less, or say so openly with --not-private (in Python: "
            "Guarantee.not_private())."
        )
    if epsilon < 1e-6:
        raise ConfigError(f"epsilon {epsilon:g} is too small for any useful answer. Use at least 1e-6.")


@dataclasses.dataclass(frozen=True)
class Look:
    """One planned purchase from the private rows: what for, and the event that prices it."""

    key: str
    """Its name in the plan."""
    what: str
    """What is looked at, in words."""
    event: Event
    columns: tuple[str, ...] = ()
    delta: float = 0.0
    """Added to the run's delta: the chance that a thresholded list shows a value only one unit has."""
    path: tuple[str, ...] = ()
    """The methods that make the look, outermost first."""
    branch: str | None = None
    """Part of the units that it reads, when parts are disjoint; None reads everyone."""
    kind: str = dataclasses.field(default="", compare=False)
    """What a method with several ways to answer decides by; its own business, and in no certificate."""

    @property
    def label(self) -> str:
        return f"{' > '.join(self.path)}: {self.what}" if self.path else self.what


@dataclasses.dataclass(frozen=True)
class Plan:
    """Every look that a method will make, with its price: a pure function of public facts."""

    looks: tuple[Look, ...] = ()
    notes: tuple[Note, ...] = ()
    """For the reader of the plan: what was chosen, and why."""
    parts: tuple["Plan", ...] = ()
    """Of a wrapper: the plans of the methods that it hands them to. Their looks are among `looks`."""

    def __getitem__(self, key: str) -> Look:
        return next(look for look in self.looks if look.key == key)

    def __contains__(self, key: object) -> bool:
        return any(look.key == key for look in self.looks)

    def __iter__(self) -> Iterator[Look]:
        return iter(self.looks)

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(look.event for look in self.looks)

    def under(self, name: str) -> "Plan":
        """The same plan as part of method `name`."""
        return self.each(lambda look: dataclasses.replace(look, path=(name, *look.path)))

    def each(self, change: Callable[[Look], Look]) -> "Plan":
        """The same plan with each look changed, in its parts too."""
        parts = tuple(part.each(change) for part in self.parts)
        return dataclasses.replace(self, looks=tuple(map(change, self.looks)), parts=parts)


@dataclasses.dataclass(frozen=True)
class Budget:
    """What a plan may still spend: a target, and the looks that stand before it."""

    epsilon: float
    delta: float
    already: tuple[Look, ...] = ()
    max_rows_per_unit: int = 1
    """How far one unit moves a count: the sensitivity that every price must cover."""

    @property
    def is_private(self) -> bool:
        return math.isfinite(self.epsilon)

    @property
    def _open_delta(self) -> float:
        return self.delta - sum(look.delta for look in self.already)

    @property
    def _events(self) -> tuple[Event, ...]:
        return tuple(look.event for look in self.already)

    def calibrate(self, events_of_noise: Callable[[float], Sequence[Event]]) -> float:
        """The least noise for which everything before and these events together still meet the target."""
        if not self.is_private:
            return NO_NOISE
        accounting.check_tails((*self._events, *events_of_noise(1.0)), self.delta)
        return accounting.calibrate(events_of_noise, epsilon=self.epsilon, delta=self._open_delta, already=self._events)

    def rho(self) -> float:
        """The largest zCDP lump that still fits."""
        if not self.is_private:
            return 1 / NO_NOISE**2
        return accounting.largest_rho(epsilon=self.epsilon, delta=self._open_delta, already=self._events)

    def part(self, share: float) -> "Budget":
        """A part calibrated alone, to (share * epsilon, delta)."""
        return dataclasses.replace(self, epsilon=share * self.epsilon, already=())

    def part_of_rest(self, share: float) -> "Budget":
        """A part behind the looks that stand before it: with it, they cost what they cost and this share of the rest.

        >>> Budget(1.0, 1e-6).part_of_rest(0.5).epsilon
        0.5
        """
        before = _spent(self).epsilon if self.already and self.is_private else 0.0
        if not self.is_private or before >= self.epsilon:
            return self  # nothing to share; where nothing is left, calibration refuses
        return dataclasses.replace(self, epsilon=before + share * (self.epsilon - before))

    def after(self, looks: Sequence[Look]) -> "Budget":
        """What is left once these looks have been made, or reserved."""
        return dataclasses.replace(self, already=(*self.already, *looks))


class Ledger:
    """Append-only record of what one run has spent. Owns the source of noise."""

    def __init__(
        self,
        guarantee: Guarantee,
        *,
        noise: NoiseSource,
        max_rows_per_unit: int = 1,
        checkpoint: Checkpoint | None = None,
    ):
        if guarantee.delta is None:
            guarantee = guarantee.with_delta_for(None)
        self.guarantee = guarantee
        self.noise = noise
        self.max_rows_per_unit = max_rows_per_unit
        self._checkpoint = checkpoint
        self._looks: list[Look] = []
        self._own = self._looks  # those made through this view; for the ledger itself, all
        self._cap: Budget | None = None
        self._outer: Ledger | None = None

    @property
    def looks(self) -> tuple[Look, ...]:
        return tuple(self._looks)

    @property
    def remaining(self) -> Budget:
        """What is left, for the next plan."""
        if self._cap is not None:
            return self._cap.after(self._own)
        assert self.guarantee.delta is not None
        return Budget(self.guarantee.epsilon, self.guarantee.delta, self.looks, self.max_rows_per_unit)

    def charge(self, look: Look) -> None:
        """Enter a look before it happens, or refuse it.

        Formal guarantee: after any number of accepted charges, one of the two accountants holds the composition of all
        of them within the guarantee's epsilon at its delta (less the deltas of thresholded lists, and what the finite
        range of floating-point noise adds). A refused charge raises before its caller has read a row.
        """
        if isinstance(look.event, DiscreteGaussian) and look.event.sensitivity < self.max_rows_per_unit:
            raise BudgetExceeded(
                f"'{look.what}' is priced for {look.event.sensitivity} rows a unit, and a unit may own "
                f"{self.max_rows_per_unit}. This query was not made. Plan it with the budget's max_rows_per_unit."
            )
        if self.guarantee.is_private:
            assert self.guarantee.delta is not None
            accounting.check_tails([look.event], self.guarantee.delta)
        views = list(self._views())
        for view in views:
            _check_fits(view.remaining.after([look]), look)
        if self._checkpoint is not None and self.guarantee.is_private:
            self._checkpoint.is_charged = True  # from here on the secret must not be discarded
        for view in views:
            view._own.append(look)

    def view(self, cap: Budget) -> "Ledger":
        """The same ledger for a method inside a method: its charges must fit `cap` as well as all that surrounds it."""
        inner = Ledger(
            self.guarantee,
            noise=self.noise,
            max_rows_per_unit=self.max_rows_per_unit,
            checkpoint=self._checkpoint,
        )
        inner._looks, inner._cap, inner._outer = self._looks, cap, self
        inner._own = []
        return inner

    def slot(self) -> Slot | None:
        """Where the training that begins now may keep its state; None in a run without a checkpoint."""
        return None if self._checkpoint is None else self._checkpoint.slot()

    def _views(self) -> "Iterator[Ledger]":
        yield self
        if self._outer is not None:
            yield from self._outer._views()

    def spent(self) -> Spent:
        """Both figures for everything that has been charged so far."""
        return spent_by(self.looks, self.guarantee)

    def statement(
        self,
        planned: Sequence[Look] | None = None,
        *,
        warnings: tuple[str, ...] = (),
        **facts: "str | int | bool | tuple[str, ...] | None",
    ) -> "Statement":
        """What was charged, for the certificate; `facts` are the public facts of `Statement`.

        With `planned`: the statement of a run that failed. Nothing was released, and every planned query counts.
        """
        assert self.guarantee.delta is not None
        looks = self.looks if planned is None else tuple(planned)
        try:
            spent = spent_by(looks, self.guarantee)
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
            looks=looks,
            released=planned is None,
            warnings=(*self.guarantee.warnings, *warnings),
            **facts,  # type: ignore[arg-type]
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statement:
    """What a run spent, on what, under which promise. Built from what ran, never from what was asked for."""

    epsilon_target: float
    delta: float
    epsilon: float
    epsilon_pld: float
    epsilon_rdp: float
    accountant: str
    seeded: bool
    max_rows_per_unit: int
    looks: tuple[Look, ...]
    unit: str | None = None
    """The column that names the protected unit; None: every row is one."""
    rows_declared: int | None = None
    public_table: int | None = None
    """Rows of the table, public on somebody's word, where training began; None: there was none."""
    drafted: bool = False
    """Kinds were read off the table rather than declared by a person."""
    types_kept: bool = False
    """Synthetic columns have the storage types of the source, which were taken as public."""
    declared: tuple[str, ...] = ()
    """Sentences: what the schema declares to be public."""
    bought: tuple[str, ...] = ()
    """Sentences: what the schema left open."""
    warnings: tuple[str, ...] = ()
    """Sentences: what a reader should know about this run, from public facts and noisy answers."""
    method: str = ""
    released: bool = True
    """False: the run failed after its first query. The statement has its planned cost, and nothing was released."""

    @property
    def is_private(self) -> bool:
        """Whether the guarantee holds: finite epsilon, and noise that nobody can repeat."""
        return math.isfinite(self.epsilon) and not self.seeded

    @property
    def replace_one(self) -> tuple[float, float]:
        """The same guarantee for replacing one unit by another: a removal followed by an addition."""
        if not math.isfinite(self.epsilon):
            return math.inf, 1.0
        return 2 * self.epsilon, min(1.0, (1 + math.exp(self.epsilon)) * self.delta)


def _branches(looks: Sequence[Look]) -> list[list[Look]]:
    """One list for each disjoint part of the units: its own looks, and all that read everyone."""
    names: list[str | None] = [*sorted({look.branch for look in looks if look.branch is not None})] or [None]
    return [[look for look in looks if look.branch in (None, name)] for name in names]


def _check_fits(budget: Budget, look: Look) -> None:
    """Refuses a look with which the run would no longer fit."""
    if not budget.is_private:
        return
    slack = 1e-9  # the calibrated noise meets the target to the last bit of a float, not beyond
    for looks in _branches(budget.already):
        open_delta = budget.delta - sum(each.delta for each in looks)
        events = [each.event for each in looks]
        if open_delta <= 0 or not accounting.fits(events, budget.epsilon, open_delta, slack=slack):
            raise BudgetExceeded(
                f"'{look.what}' would exceed the budget of epsilon {budget.epsilon:g} at delta {budget.delta:g}. "
                "This query was not made. Raise epsilon, or plan fewer queries."
            )


def _spent(budget: Budget) -> Spent:
    figures = []
    for looks in _branches(budget.already):
        open_delta = budget.delta - sum(each.delta for each in looks)
        events = [each.event for each in looks]
        figures.append(accounting.spent(events, open_delta, grid=accounting.grid_for(budget.epsilon)))
    return max(figures, key=lambda figure: figure.epsilon)  # the dearest part, by the better of its two figures


def spent_by(plan: Plan | Sequence[Look], guarantee: Guarantee) -> Spent:
    """What a plan would cost if all of its looks were made."""
    if not guarantee.is_private:
        return Spent(math.inf, math.inf)
    delta = guarantee.delta if guarantee.delta is not None else DEFAULT_DELTA
    return _spent(Budget(guarantee.epsilon, delta, tuple(plan)))
