"""Noisy counts and noisy choices: the queries that marginal methods make at the rows.

Every exact statistic of encoded private rows is computed here, from `Rows`, and leaves this file only with noise. To
review what a marginal method can learn, read this file.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence, Sized
from typing import Protocol

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from understudy.errors import BudgetExceeded
from understudy.privacy.events import ZCDP, DiscreteGaussian, Gaussian, NonPrivate, Pure, Selections, SubsampledGaussian
from understudy.privacy.ledger import Ledger, Query
from understudy.privacy.sampling import Units
from understudy.privacy.totals import Totals
from understudy.privacy.votes import Parts, parted, scale_of
from understudy.schema import Domain, Scale

Clique = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Box:
    """One count: of the rows whose codes lie within a range in each of these columns."""

    clique: Clique
    ranges: tuple[tuple[int, int], ...]
    """First code and the one after the last, for each column."""

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(slice(first, end) for first, end in self.ranges)


@dataclasses.dataclass(frozen=True)
class Grouped:
    """A marginal whose cells are groups of codes: by public facts or bought ones, never by the rows themselves."""

    clique: Clique
    groups: tuple[tuple[int, ...], ...]
    """For each column the group of each of its codes, counted from 0."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(max(groups) + 1 for groups in self.groups)


ROUNDING = 1 + 1e-9  # scores are sums of floats: for up to a million rows this covers their rounding
OFFSET_ROUNDING = 2.0**-50  # offsets may be far greater: differences are rounded by this share of them at most


class Rows:
    """The encoded private rows. What they hold is reached through the mechanisms of this file alone."""

    def __init__(
        self,
        codes: np.ndarray,
        domain: Domain,
        *,
        max_rows_per_unit: int = 1,
        units: np.ndarray | None = None,
        places: Callable[[], np.ndarray] | None = None,
        scales: Sequence[Scale | None] | None = None,
        totals: Totals | None = None,
        fraction: float = 1.0,
    ):
        self._codes = codes
        self._units = units
        self._make_places = places  # called when a method wants numbers rather than bins
        self.domain = domain
        self.scales: tuple[Scale | None, ...] = tuple(scales or (None,) * len(domain.names))
        """What is public about each numeric column."""
        self.max_rows_per_unit = max_rows_per_unit
        self.totals = totals or Totals(domain.declared_rows)
        """The number of rows as estimated by the noisy answers about these rows and all their partitions."""
        self._fraction = fraction  # of the table's units, each kept independently at random
        self._cache: dict[Clique | Box | Grouped, np.ndarray] = {}

    @functools.cached_property
    def _places(self) -> np.ndarray:
        """Where numbers lie between their bounds, from 0 to 1; NaN for nulls and for what is no number."""
        return np.full(self._codes.shape, np.nan) if self._make_places is None else self._make_places()

    def only(self, columns: Sequence[str]) -> "Rows":
        """The same rows without their other columns. Reads nothing: prices and bounds for a unit stay what they are."""
        domain = self.domain.only(columns)
        at = [self.domain.index(name) for name in domain.names]
        return Rows(
            self._codes[:, at],
            domain,
            max_rows_per_unit=self.max_rows_per_unit,
            units=self._units,
            places=lambda: self._places[:, at],
            scales=[self.scales[index] for index in at],
            totals=self.totals,
            fraction=self._fraction,
        )

    @property
    def public_num_rows(self) -> int:
        """The public number of rows; if the noisy totals contradict the declared number, their estimate."""
        if not self.totals.contradicted:
            return self.domain.num_rows
        return max(1, round(self._fraction * self.totals.measured))

    @property
    def measured_domain(self) -> Domain:
        """The domain with that number of rows: for post-processing answers, never for plans."""
        return dataclasses.replace(self.domain, num_rows=self.public_num_rows)

    def _note_total(self, noisy_counts: np.ndarray, stddev: float) -> None:
        """Called for every answered marginal: its cells count each row once."""
        whole = (self.domain.declared_rows or self.domain.num_rows) * self.max_rows_per_unit
        spread = whole * self._fraction * (1 - self._fraction)
        variance = stddev**2 * noisy_counts.size
        self.totals.note(float(noisy_counts.sum()), variance, fraction=self._fraction, spread=spread)

    def _exact_counts(self, clique: Clique) -> np.ndarray:
        """Cells of one marginal, in the clique's own order of columns."""
        if clique not in self._cache:
            shape = self.domain.shape(clique)
            flat = np.zeros(len(self._codes), dtype=np.int64)
            for name, size in zip(clique, shape, strict=True):
                flat = flat * size + self._codes[:, self.domain.index(name)]
            self._cache[clique] = np.bincount(flat, minlength=math.prod(shape)).reshape(shape)
        return self._cache[clique]

    def _exact_grouped(self, query: Grouped) -> np.ndarray:
        """Cells of a marginal of groups: every row is in exactly one."""
        if query not in self._cache:
            flat = np.zeros(len(self._codes), dtype=np.int64)
            for name, groups, size in zip(query.clique, query.groups, query.shape, strict=True):
                flat = flat * size + np.asarray(groups, dtype=np.int64)[self._codes[:, self.domain.index(name)]]
            self._cache[query] = np.bincount(flat, minlength=math.prod(query.shape)).reshape(query.shape)
        return self._cache[query]

    def _exact_answer(self, query: Clique | Box | Grouped) -> np.ndarray:
        """Cells of a marginal, or the one count of a box as an array of one."""
        if isinstance(query, Grouped):
            return self._exact_grouped(query)
        if not isinstance(query, Box):
            return self._exact_counts(query)
        if query not in self._cache:
            self._cache[query] = self._exact_counts(query.clique)[query.slices].sum().reshape(1)
        return self._cache[query]

    def _in_units(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Codes or features with one line for each unit and a slot for each of its rows, and which slots are filled.

        Where there is no unit there is one line, empty: a run with nobody in it must look like any other.
        """
        if not len(rows):
            return np.zeros((1, self.max_rows_per_unit, rows.shape[1]), rows.dtype), np.zeros(
                (1, self.max_rows_per_unit), dtype=bool
            )
        if self.max_rows_per_unit == 1:
            return rows[:, None], np.ones((len(rows), 1), dtype=bool)
        assert self._units is not None, "units with several rows must be known to be drawn together"
        order = np.argsort(self._units, kind="stable")
        _, first, line = np.unique(self._units[order], return_index=True, return_inverse=True)
        slot = np.arange(len(order)) - first[line]
        arranged = np.zeros((len(first), self.max_rows_per_unit, rows.shape[1]), dtype=rows.dtype)
        present = np.zeros((len(first), self.max_rows_per_unit), dtype=bool)
        arranged[line, slot], present[line, slot] = rows[order], True
        return arranged, present


def check_units(rows: Rows, ledger: Ledger) -> None:
    """Refuses rows whose noise would be for fewer rows a unit than the ledger protects."""
    if rows.max_rows_per_unit < ledger.max_rows_per_unit:
        raise BudgetExceeded(
            f"These rows are bounded to {rows.max_rows_per_unit} a unit, and a unit may own "
            f"{ledger.max_rows_per_unit}. This query was not made."
        )


class RowEncoder(Protocol):
    """From codes and places of rows to features, each row by itself."""

    def encode(self, codes: np.ndarray, places: np.ndarray, key: PRNGKeyArray) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True)
class PaidSteps:
    """What a training loop gets for its money: the rows, and how it must look at them."""

    units: Units
    rate: float
    noise_multiplier: float
    """Zero in a run that is not private."""
    steps: int


def pay_for_steps(rows: Rows, query: Query, ledger: Ledger, layout: RowEncoder | None = None) -> PaidSteps:
    """Pays for all of a training's steps at once, and hands out the rows for `noisy_direction`, as codes or features.

    Formal guarantee: the price of `query`, a `SubsampledGaussian`, provided that the rows are looked at by
    `noisy_direction` alone, at most `steps` times, with this rate and noise multiplier, and that a `layout` makes each
    row's features of that row, public facts and independent randomness. All rows of a unit enter a step together, and
    their summed gradient is clipped.
    """
    event = query.event
    assert isinstance(event, SubsampledGaussian)
    check_units(rows, ledger)
    ledger.charge(query)
    encoded = rows._codes if layout is None else layout.encode(rows._codes, rows._places, ledger.noise.key())
    arranged, present = rows._in_units(encoded)
    multiplier = event.noise_multiplier if ledger.guarantee.is_private else 0.0
    return PaidSteps(Units(jnp.asarray(arranged), jnp.asarray(present)), event.sampling_rate, multiplier, event.steps)


def pay_for_stretches(
    rows: Rows, queries: Sequence[Query], ledger: Ledger, layout: RowEncoder | None = None
) -> tuple[PaidSteps, ...]:
    """Pays for stretches of one training that differ in their noise, all of them before the first step.

    Formal guarantee: the cost of all `queries`, as `pay_for_steps` has it for one; each stretch may look at the rows as
    often as its own steps say, with its own noise multiplier or a greater one.
    """
    assert all(isinstance(query.event, SubsampledGaussian) for query in queries)
    check_units(rows, ledger)
    for query in queries[:-1]:
        ledger.charge(query)
    last = pay_for_steps(rows, queries[-1], ledger, layout)
    events = [query.event for query in queries if isinstance(query.event, SubsampledGaussian)]
    is_private = ledger.guarantee.is_private
    return tuple(
        PaidSteps(last.units, event.sampling_rate, event.noise_multiplier if is_private else 0.0, event.steps)
        for event in events
    )


def open_rows(rows: Rows, query: Query, ledger: Ledger) -> tuple[np.ndarray, np.ndarray]:
    """The rows themselves, codes and places, for a baseline that is never private.

    Formal guarantee: none, and none can be stated: under any guarantee this refuses before a row is read, and the event
    that is charged has no finite price.
    """
    assert isinstance(query.event, NonPrivate)
    if ledger.guarantee.is_private:
        raise BudgetExceeded(
            f"'{query.what}' has no bound, so no budget covers it. This query was not made. Use --not-private (in "
            "Python: Guarantee.not_private()), or another method."
        )
    ledger.charge(query)
    return rows._codes, rows._places


@dataclasses.dataclass(frozen=True)
class PaidVotes:
    """What the training of teachers gets for its money: their parts, and the noise of each vote."""

    parts: Parts
    law: str
    scale: float
    """Zero in a run that is not private."""
    queries: int


def pay_for_votes(
    rows: Rows, query: Query, ledger: Ledger, *, teachers: int, queries: int, layout: RowEncoder | None = None
) -> PaidVotes:
    """Pays for all votes of a training at once, and hands out the parts of its teachers, as codes or features.

    Formal guarantee: the price of `query`, a `Gaussian` or a `Pure` of so many rounds, under add/remove of one unit,
    provided that parts are looked at by their own teachers alone, and teachers through `noisy_votes` alone, for at most
    `queries` rows, with this law and scale; and that a `layout` makes each row's features of that row, public facts
    and independent randomness. `queries` Gaussian votes of standard deviation multiplier * sqrt(queries) compose to one
    look of that multiplier, so neither `teachers` nor `queries` moves the price. A unit has one teacher, with all its
    rows: however many these are, it moves each count by one at most.
    """
    event = query.event
    assert isinstance(event, Gaussian | Pure)
    assert event.is_floating, "the finite range of floating-point votes must be charged"
    if isinstance(event, Pure) and queries > event.rounds:
        raise BudgetExceeded(
            f"'{query.what}' is priced for {event.rounds} votes, not for {queries}. This query was not made."
        )
    check_units(rows, ledger)
    ledger.charge(query)
    encoded = rows._codes if layout is None else layout.encode(rows._codes, rows._places, ledger.noise.key())
    unit_of_row = None if rows.max_rows_per_unit == 1 else rows._units
    assert rows.max_rows_per_unit == 1 or unit_of_row is not None, "units with several rows must be known"
    parts, _ = parted(encoded, unit_of_row, teachers, key=ledger.noise.key())
    scale = scale_of(event.noise_multiplier, queries) if isinstance(event, Gaussian) else 1 / event.epsilon
    law = "gaussian" if isinstance(event, Gaussian) else "laplace"
    return PaidVotes(parts, law, scale if ledger.guarantee.is_private else 0.0, queries)


def noisy_counts(rows: Rows, cliques: Sequence[Clique], query: Query, ledger: Ledger) -> list[np.ndarray]:
    """Marginals of these cliques, each cell with discrete Gaussian noise: one bundle, charged once.

    Formal guarantee: the price of `query`, a `DiscreteGaussian` with one vector for each clique, under add/remove of
    one unit: its rows move each marginal by at most `max_rows_per_unit` in L2 norm. Not covered: timing, memory.
    """
    event = query.event
    assert isinstance(event, DiscreteGaussian)
    if len(cliques) > event.count or rows.max_rows_per_unit > event.sensitivity:
        raise BudgetExceeded(
            f"'{query.what}' is priced for {event.count} marginals and {event.sensitivity} rows a unit, "
            f"not for {len(cliques)} and {rows.max_rows_per_unit}. This query was not made."
        )
    ledger.charge(query)  # before the draw: a refused release must not exist
    return [_with_noise(rows, clique, event.stddev, ledger) for clique in cliques]


def _with_noise(rows: Rows, query: Clique | Box, stddev: float, ledger: Ledger) -> np.ndarray:
    shape = (1,) if isinstance(query, Box) else rows.domain.shape(query)
    noise = ledger.noise.discrete_gaussian(stddev, shape)
    noisy = (rows._exact_answer(query) + noise).astype(float)
    if not isinstance(query, Box):
        rows._note_total(noisy, stddev)
    return noisy


def noisy_answers(rows: Rows, query: Query, ledger: Ledger) -> "Counter":
    """Pays for all marginals or boxes of `query` at once, and returns the function that counts them one by one.

    Formal guarantee: the price of `query`, a `DiscreteGaussian`, under add/remove of one unit: at most its `count`
    answers, each of which a unit moves by at most `max_rows_per_unit` in L2 norm. What is asked may depend on earlier
    answers; the price does not.
    """
    event = query.event
    assert isinstance(event, DiscreteGaussian)
    if rows.max_rows_per_unit > event.sensitivity:
        raise BudgetExceeded(
            f"'{query.what}' is priced for {event.sensitivity} rows a unit, not for {rows.max_rows_per_unit}. This "
            "query was not made."
        )
    check_units(rows, ledger)
    ledger.charge(query)
    return Counter(rows, event.stddev, event.count, ledger)


class Counter:
    """A counter of paid answers."""

    def __init__(self, rows: Rows, stddev: float, count: int, ledger: Ledger):
        self._rows, self._ledger = rows, ledger
        self.stddev, self.left = stddev, count

    def __call__(self, query: Clique | Box) -> np.ndarray:
        if self.left == 0:
            raise BudgetExceeded("All charged answers have been given. This query was not made.")
        self.left -= 1
        return _with_noise(self._rows, query, self.stddev, self._ledger)


def noisy_size(table: Sized, query: Query, ledger: Ledger) -> int:
    """The number of rows of a private table with discrete Gaussian noise, at least one.

    Formal guarantee: the price of `query` under add/remove of one unit, which moves the count by at most the event's
    sensitivity.
    """
    event = query.event
    assert isinstance(event, DiscreteGaussian)
    ledger.charge(query)
    return max(1, len(table) + int(ledger.noise.discrete_gaussian(event.stddev, (1,))[0]))


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Marginals or boxes to choose among, with what a model expects of each: score = weight * (L1 error - offset)."""

    cliques: Sequence[Clique | Box | Grouped]
    expected: Sequence[np.ndarray]
    weights: np.ndarray
    offsets: np.ndarray

    def __post_init__(self):
        assert len(self.cliques) == len(self.expected) == len(self.weights) == len(self.offsets) > 0


def noisy_choices(rows: Rows, query: Query, ledger: Ledger) -> "Chooser":
    """Pays for all rounds of `query` at once, and returns the function that makes them one by one.

    Formal guarantee: the cost of `query`, a `Selections`: at most its `rounds` picks, each by the exponential mechanism
    of its `epsilon`. The scores of one pick move by at most max(weights) * max_rows_per_unit when a unit comes or goes,
    since an L1 norm moves by no more than its argument.
    """
    event = query.event
    assert isinstance(event, Selections)
    check_units(rows, ledger)
    ledger.charge(query)
    return Chooser(rows, event.epsilon, event.rounds, ledger)


class Chooser:
    """A counter of paid picks."""

    def __init__(self, rows: Rows, epsilon: float, rounds: int, ledger: Ledger):
        self._rows, self._epsilon, self._left, self._ledger = rows, epsilon, rounds, ledger

    def __call__(self, candidates: Candidates) -> int:
        return self.several(candidates, 1)[0]

    def several(self, candidates: Candidates, count: int) -> list[int]:
        """So many different ones, each a pick of its own among those that the picks before it left."""
        if count > min(self._left, len(candidates.cliques)):
            raise BudgetExceeded("All charged selections have been made. This query was not made.")
        self._left -= count
        return _choose(self._rows, candidates, self._epsilon, self._ledger, count)


def _choose(rows: Rows, candidates: Candidates, epsilon: float, ledger: Ledger, count: int = 1) -> list[int]:
    """Exponential mechanism by Gumbel-max: fresh noise of scale 2 * sensitivity / epsilon on each score for each pick.

    The exact scores are computed once and never shown; a pick leaves the choice of those after it.
    """
    for clique, expected in zip(candidates.cliques, candidates.expected, strict=True):
        # Another shape would be broadcast, and a row would count several times.
        assert np.shape(expected) == _shape_of(rows, clique), "expected counts have another shape than their query"
    moved = rows.max_rows_per_unit * ROUNDING + OFFSET_ROUNDING * float(np.max(np.abs(candidates.offsets)))
    sensitivity = float(np.max(np.abs(candidates.weights))) * moved
    exact_scores = [
        weight * (np.abs(rows._exact_answer(clique) - expected).sum() - offset)
        for clique, expected, weight, offset in zip(
            candidates.cliques, candidates.expected, candidates.weights, candidates.offsets, strict=True
        )
    ]
    left, chosen = list(range(len(exact_scores))), []
    for _ in range(count):
        scores = np.asarray([exact_scores[at] for at in left])
        chosen.append(left.pop(ledger.noise.noisy_argmax(scores, 2 * sensitivity / epsilon)))
    return chosen


def _shape_of(rows: Rows, query: Clique | Box | Grouped) -> tuple[int, ...]:
    if isinstance(query, Box):
        return (1,)
    return query.shape if isinstance(query, Grouped) else rows.domain.shape(query)


class Filter:
    """A zCDP lump, bought at once and spent inside by a method that sets its prices as it goes.

    Formal guarantee: the lump's rho in all, whatever the method does with it: each query first adds its own rho to a
    running sum, and is refused if the sum would pass the lump (a privacy filter; valid for fully adaptive zCDP).
    """

    def __init__(self, rows: Rows, query: Query, ledger: Ledger):
        assert isinstance(query.event, ZCDP)
        ledger.charge(query)
        self._rows, self._ledger, self.rho, self.used = rows, ledger, query.event.rho, 0.0

    @property
    def remaining(self) -> float:
        return max(0.0, self.rho - self.used)

    def price_of_counts(self, stddev: float) -> float:
        return self._rows.max_rows_per_unit**2 / (2 * stddev**2)

    def price_of_choice(self, epsilon: float) -> float:
        return epsilon**2 / 8

    def noisy_counts(self, clique: Clique, stddev: float) -> np.ndarray:
        """One marginal with discrete Gaussian noise, at rho = rows per unit^2 / (2 stddev^2)."""
        self._spend(self.price_of_counts(stddev))
        return _with_noise(self._rows, clique, stddev, self._ledger)

    def noisy_choice(self, candidates: Candidates, epsilon: float) -> int:
        """One pick by the exponential mechanism, at rho = epsilon^2 / 8 (bounded range)."""
        self._spend(self.price_of_choice(epsilon))
        return _choose(self._rows, candidates, epsilon, self._ledger)[0]

    def _spend(self, rho: float) -> None:
        if not rho > 0 or self.used + rho > self.rho:
            raise BudgetExceeded(
                f"A query at rho {rho:g} exceeds the {self.remaining:g} left of the budget. This query was not made."
            )
        self.used = math.nextafter(self.used + rho, math.inf)  # rounded up: no spend is too small to count
