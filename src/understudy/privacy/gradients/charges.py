"""Charges for training, and what every mechanism checks before it charges.

Each `charge_*` function charges first, then reads the rows, and returns an opaque object that holds them together with
the noise, the sampling rate and the number of steps or votes that were charged. No other way leads from `PrivateRows`
to a training.
"""

import dataclasses
import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol, TypeVar, overload, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int64

from understudy.errors import BudgetExceeded
from understudy.privacy.accounting.events import DiscreteLaplace, Gaussian, SubsampledGaussian
from understudy.privacy.accounting.ledger import Ledger, Partition, Query
from understudy.privacy.gradients.clipping import noise_multiplier_beside_counts
from understudy.privacy.gradients.dpsgd import ChargedSteps
from understudy.privacy.gradients.langevin import ChargedUpdates, Law, Stage, step_parameters
from understudy.privacy.gradients.pate import (
    ChargedVotes,
    ThresholdTests,
    assign_teachers,
    partition_by_teacher,
    vote_stddev,
)
from understudy.privacy.gradients.poisson import round_sampling_rate
from understudy.privacy.noise.source import fine_steps
from understudy.privacy.rows.rows import PrivateRows, RowEncoder
from understudy.privacy.rows.stored import train_units

E = TypeVar("E")
F = TypeVar("F")


@overload
def event_of(query: Query, kind: type[E], /) -> E: ...
@overload
def event_of(query: Query, kind: type[E], other: type[F], /) -> E | F: ...
def event_of(query: Query, /, *kinds: type) -> object:
    """The event of a query, which must be of one of these kinds: the noise of a mechanism follows from it."""
    if not isinstance(query.event, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise BudgetExceeded(
            f"'{query.what}' is planned as {type(query.event).__name__}, but this mechanism is charged as {wanted}. "
            "This query was not made.",
            query=query.what,
        )
    return query.event


@runtime_checkable
class UnitRows(Protocol):
    """Rows that belong to units, all of them or one partition."""

    _partition: Partition | None

    @property
    def public_num_rows(self) -> int: ...

    @property
    def max_rows_per_unit(self) -> int: ...


def check_query(rows: UnitRows, query: Query, ledger: Ledger) -> None:
    """What every mechanism on rows calls before it charges: refuses a query that is not planned for these rows.

    Formal guarantee: a query that passes reads units of the partition that it names, in the one split of the ledger;
    one that names none reads rows that were never partitioned. And its noise is for no fewer rows of a unit than the
    ledger protects.
    """
    partition = rows._partition
    if partition is not None and partition not in ledger._record.partitions:
        raise BudgetExceeded(
            f"'{query.what}' would read a partition of the units of another run. This query was not made.",
            query=query.what,
        )
    _check_partition(query, None if partition is None else partition.name)
    if rows.max_rows_per_unit < ledger.max_rows_per_unit:
        raise BudgetExceeded(
            f"These rows are limited to {rows.max_rows_per_unit} per unit, but the ledger allows "
            f"{ledger.max_rows_per_unit}. This query was not made.",
            query=query.what,
        )


def check_table_query(query: Query) -> None:
    """The same for mechanisms on a table before its rows are encoded, which has all units."""
    _check_partition(query, None)


def _check_partition(query: Query, read: str | None) -> None:
    if query.partition != read:
        planned, found = ("all units" if name is None else f"partition '{name}'" for name in (query.partition, read))
        raise BudgetExceeded(
            f"'{query.what}' is planned for {planned}, but would read {found}. This query was not made.",
            query=query.what,
        )


def _event_of_steps(query: Query) -> SubsampledGaussian:
    """The event of gradient steps, whose sampling rate must be one that the coins of a batch have exactly."""
    event = event_of(query, SubsampledGaussian)
    if round_sampling_rate(event.sampling_rate) != event.sampling_rate:
        raise BudgetExceeded(
            f"'{query.what}' is planned for a sampling rate {event.sampling_rate:g} that is not one of "
            "round_sampling_rate: batches would be larger than charged. This query was not made.",
            query=query.what,
        )
    return event


@dataclasses.dataclass(frozen=True)
class UnitCounts:
    """In every step noisy counts of the units within each of `num_groups` clip bounds, with this noise."""

    num_groups: int
    stddev: float


def charge_dpsgd(
    rows: PrivateRows,
    query: Query,
    ledger: Ledger,
    layout: RowEncoder | None = None,
    *,
    counts: UnitCounts | None = None,
) -> ChargedSteps:
    """Charges for all steps of a training at once; `counts` are taken from the same cost.

    Formal guarantee: the cost of `query`, a `SubsampledGaussian`, for at most its `steps` calls of `noisy_gradient` on
    batches of `sample_batches`: both take sampling rate and noise from what is returned. Provided that a `layout` makes
    each row's features of that row, public facts and independent randomness. Where there are `counts`, gradients get as
    much more noise as these cost (`noise_multiplier_beside_counts`).
    """
    event = _event_of_steps(query)
    noise_multiplier = event.noise_multiplier if ledger.guarantee.is_private else 0.0
    if counts is not None and noise_multiplier:
        noise_multiplier = noise_multiplier_beside_counts(noise_multiplier, counts.num_groups, counts.stddev)
    check_query(rows, query, ledger)
    ledger.charge(query)
    units = train_units(rows, layout, ledger)
    count_stddev = None if counts is None else counts.stddev
    return ChargedSteps(
        units, jnp.asarray(noise_multiplier, jnp.float32), event.sampling_rate, event.steps, count_stddev
    )


def charge_langevin(
    rows: PrivateRows,
    queries: Sequence[Query],
    ledger: Ledger,
    layout: RowEncoder | None = None,
    *,
    schedule: Sequence[Stage],
    law: Law,
    updates_each: int,
) -> ChargedUpdates:
    """Charges for all updates of a training whose noise differs from stage to stage, before the first of them.

    Formal guarantee: the cost of all `queries`, each a `SubsampledGaussian`, in the order of the updates: every
    iteration makes `updates_each` of them with the noise multiplier that was charged for it or a greater one. As
    `charge_dpsgd` has it for one query.
    """
    events = [_event_of_steps(query) for query in queries]
    wanted = [stage.iterations * updates_each for stage in schedule]
    if sum(event.steps for event in events) != sum(wanted) or len({event.sampling_rate for event in events}) != 1:
        raise BudgetExceeded("These updates differ from those in the plan. This query was not made.")
    for query in queries:
        check_query(rows, query, ledger)
    for query in queries:
        ledger.charge(query)
    units = train_units(rows, layout, ledger)
    least, multipliers = 0.0, [0.0] * len(schedule)
    if ledger.guarantee.is_private:
        of_updates = np.repeat([event.noise_multiplier for event in events], [event.steps for event in events])
        stages = np.split(of_updates, np.cumsum(wanted)[:-1])
        least, multipliers = float(of_updates.min()), law.noise_multipliers(schedule, [float(s.max()) for s in stages])
    else:
        law = dataclasses.replace(law, drift_sensitivity=0.0)
    steps = ChargedSteps(units, jnp.asarray(least, jnp.float32), events[0].sampling_rate, sum(wanted))
    return ChargedUpdates(steps, step_parameters(schedule, multipliers, law))


def charge_votes(
    rows: PrivateRows,
    query: Query,
    ledger: Ledger,
    *,
    num_teachers: int,
    num_queries: int,
    layout: RowEncoder | None = None,
    tests: Query | None = None,
    threshold: float = 1.0,
) -> ChargedVotes:
    """Charges for all votes of a training at once, draws their noise, and assigns the units to teachers.

    With `tests`, a row is answered only if its majority passes `threshold`, a fraction of the teachers, under noise of
    its own (confident GNMax, Papernot et al. 2018).

    Formal guarantee: the cost of `query`, a `Gaussian` or a `DiscreteLaplace` with a round for each vote, under
    add/remove of one unit, for at most `num_queries` rows that `noisy_votes` is asked about, each under a number of its
    own: the noise of all of them is drawn here, exactly, and kept in what is returned. Provided that a `layout` makes
    each row's features of that row, public facts and independent randomness. Q Gaussian votes of standard deviation
    multiplier * sqrt(Q) compose to one query of that multiplier, so neither number changes the cost. Their noise is
    discrete, on steps so fine that the curve of the continuous Gaussian accounts for it (`filters.py` has the
    argument). A unit has one teacher, with all its rows: however many these are, it moves each count by one at most.
    The cost of `tests`, another `Gaussian`, covers a test of every one of these rows, answered or not: which are
    answered follows from noisy tests alone.
    """
    event = event_of(query, Gaussian, DiscreteLaplace)
    test_event = None if tests is None else event_of(tests, Gaussian)
    assert event.tail_delta == 0, "the noise of votes is exact"
    assert test_event is None or test_event.tail_delta == 0, "the noise of tests is exact"
    if isinstance(event, DiscreteLaplace) and num_queries > event.rounds:
        raise BudgetExceeded(
            f"'{query.what}' is planned for {event.rounds} votes, not for {num_queries}. This query was not made.",
            query=query.what,
        )
    queries = (query,) if tests is None else (tests, query)
    for query in queries:
        check_query(rows, query, ledger)
    for query in queries:
        ledger.charge(query)
    encoded = rows._encoded(layout, ledger)
    teacher_of_row = assign_teachers(rows._unit_of_row(), num_teachers, key=ledger.noise.key())
    partitions = partition_by_teacher(encoded, teacher_of_row, num_teachers)
    draw = functools.partial(_vote_noise, ledger, num_queries=num_queries, num_teachers=num_teachers)
    noise, steps = draw(event)
    held = None
    if test_event is not None:
        test_noise, test_steps = draw(test_event)
        held = ThresholdTests(jnp.asarray(test_noise.astype(np.int32)), test_steps, threshold * num_teachers)
    return ChargedVotes(partitions, jnp.asarray(noise.astype(np.int32)), steps, held)


def _vote_noise(
    ledger: Ledger, event: Gaussian | DiscreteLaplace, *, num_queries: int, num_teachers: int
) -> tuple[Int64[np.ndarray, " queries"], int]:
    """The noise of each vote or test in steps, and how many steps a vote has."""
    source = ledger.noise
    if not ledger.guarantee.is_private:
        return np.zeros(num_queries, dtype=np.int64), 1
    if isinstance(event, DiscreteLaplace):
        return source.discrete_laplace(1 / Fraction(event.epsilon), (num_queries,)), 1
    stddev = vote_stddev(event.noise_multiplier, num_queries=num_queries, num_teachers=num_teachers)
    steps = fine_steps(stddev)
    return source.discrete_gaussian(stddev * steps, (num_queries,)), steps
