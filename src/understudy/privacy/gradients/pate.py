"""PATE: teachers on disjoint partitions of the units, and their noisy votes.

Papernot et al., "Semi-supervised knowledge transfer for deep learning from private training data", 2017. A unit's rows
are all in one partition, assigned once by a coin of the unit's own, so adding or removing a unit changes one teacher,
whatever that teacher does with its rows, and moves a vote count by one at most. Teachers are functions of raw rows
without noise: private state, opaque like the rows. They are one population, mapped over stacked arrays, and nothing is
added up over teachers but in `noisy_votes`: what leaves are noisy vote counts, and all after them is post-processing.

Needs nothing but NumPy, JAX and Equinox. The charge is made by `charges.charge_votes`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32, Integer, Key, PRNGKeyArray, PyTree

from understudy.errors import BudgetExceeded
from understudy.privacy.gradients.clipping import RowLoss, unit_loss
from understudy.privacy.gradients.poisson import take_rows
from understudy.privacy.rows.rows import number_units

AGAINST = ("median", "half")
MIN_STDDEV = 1e-3
"""The least standard deviation of Gaussian votes, for each teacher. Below it, fine steps of a count need more than 32
bits; votes then get more noise than was charged."""

# ---------------------------------------------------------------------------------------------------------- partitions


class Partitions(eqx.Module):
    """Rows in the order of their teachers, each with any number of them: shapes follow from totals alone. Opaque."""

    _rows: Float[Array, "rows features"] | Integer[Array, "rows columns"]
    """Features, or the codes of one-hot blocks."""
    _offsets: Int[Array, " teachers"]
    """Where each teacher's rows begin."""
    _lengths: Int[Array, " teachers"]
    """How many they are; a teacher may have none."""

    def __repr__(self) -> str:
        return "Partitions(...)"  # shapes would reveal the number of units


def assign_teachers(unit_of_row: np.ndarray, num_teachers: int, *, key: PRNGKeyArray) -> Int[np.ndarray, " rows"]:
    """Each row's teacher. A unit draws its teacher evenly.

    Formal guarantee: each unit's teacher is a draw of its own, independent of all rows and of all other units, and all
    of its rows go there: when a unit is added or removed, the partitions of all other teachers have the same law as
    before. (With one key they differ, for coins go by position; no guarantee is about one key.)
    """
    num_units, index = number_units(unit_of_row)
    teacher_of_unit = np.asarray(jax.random.randint(key, (max(1, num_units),), 0, num_teachers))
    return teacher_of_unit[index]


def partition_by_teacher(rows: np.ndarray, teacher_of_row: Int[np.ndarray, " rows"], num_teachers: int) -> Partitions:
    """Rows in the order of their teachers, and of their own within each."""
    lengths = np.bincount(teacher_of_row, minlength=num_teachers)
    offsets = np.cumsum(lengths) - lengths
    # Of a narrow type, which is sorted in one pass.
    ordered = rows[np.argsort(teacher_of_row.astype(np.min_scalar_type(num_teachers)), kind="stable")]
    if not len(rows):  # an empty table is padded, so that array shapes do not reveal it
        ordered = np.zeros((1, rows.shape[1]), dtype=rows.dtype)
    return Partitions(jnp.asarray(ordered), jnp.asarray(offsets, jnp.int32), jnp.asarray(lengths, jnp.int32))


class ThresholdTests(eqx.Module):
    """Tests that were charged, one for each vote: whether enough teachers agree. Opaque, and a pytree."""

    _noise: Int32[Array, " queries"]
    """Of each test, in steps."""
    _steps: int = eqx.field(static=True)
    votes: float = eqx.field(static=True)
    """How many teachers must agree. Public."""

    def __repr__(self) -> str:
        return "ThresholdTests(...)"


class ChargedVotes(eqx.Module):
    """Votes that were charged: the partitions of their teachers, and the noise of each vote. Opaque, and a pytree."""

    _partitions: Partitions
    _noise: Int32[Array, " queries"]
    """The noise of each vote, in steps; zeros in a run that is not private. Whoever saw it could subtract it."""
    _steps: int = eqx.field(static=True)
    """Steps per vote, a power of two."""
    _tests: ThresholdTests | None = None
    """None: every row that was put to the vote gets its answer."""

    def __repr__(self) -> str:
        return "ChargedVotes(...)"

    @property
    def num_queries(self) -> int:
        return len(self._noise)

    @property
    def num_teachers(self) -> int:
        return len(self._partitions._lengths)

    def check_queries(self, iterations: int, each: int) -> None:
        """Refuses a run that would put more rows to the vote than were charged."""
        if iterations * each > self.num_queries:
            raise BudgetExceeded(
                f"{iterations} iterations of {each} queries each were requested, but {self.num_queries} queries were "
                "charged."
            )


def vote_stddev(noise_multiplier: float, *, num_queries: int, num_teachers: int) -> float:
    """Standard deviation of each of `num_queries` Gaussian votes that together cost one query of this multiplier.

    It is rounded up, and at least `MIN_STDDEV` for each teacher.
    """
    return max(noise_multiplier * math.sqrt(num_queries) * (1 + 2.0**-50), MIN_STDDEV * num_teachers)


# ------------------------------------------------------------------------------------------------------------ teachers


class Teachers(eqx.Module):
    """One network for each partition, stacked, and its optimiser's state. Private: opaque."""

    _networks: PyTree
    _optimizer_states: PyTree


@dataclasses.dataclass(frozen=True)
class Teaching:
    """How teachers learn: pure functions and public numbers."""

    row_loss: RowLoss
    """Of one of the teacher's own rows."""
    fakes_loss: Callable[[PyTree, Float[Array, "batch features"]], Float[Array, ""]]
    """(network, generated rows) -> loss."""
    update_fn: Callable[[PyTree, PyTree, PyTree], tuple[PyTree, PyTree]]
    """(network, gradient, optimiser's state) -> the network and the state after one step."""
    batch_size: int
    """Of a teacher's own rows in a step."""


def init_teachers(
    make_fn: Callable[[PRNGKeyArray], tuple[PyTree, PyTree]], num_teachers: int, *, key: PRNGKeyArray
) -> Teachers:
    """Each with weights of its own: `make_fn` gives a network and the optimiser's state for it."""
    return Teachers(*eqx.filter_vmap(make_fn)(_own_keys(key, num_teachers)))


def _own_keys(key: PRNGKeyArray, num_teachers: int) -> Key[Array, " teachers"]:
    return jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(num_teachers))


def teacher_step(
    charged: ChargedVotes,
    teachers: Teachers,
    teaching: Teaching,
    fakes: Float[Array, "batch features"],
    *,
    key: PRNGKeyArray,
) -> Teachers:
    """Every teacher takes one step on a batch of its own rows and on the generated ones, which all of them share.

    Formal guarantee: teacher i after the step is a function of teacher i before it, of the rows of partition i, of
    `fakes` and of the i-th key. No noise and no bound is needed: what a unit does to its teacher stays there.
    """
    of_unit, partitions, size = unit_loss(teaching.row_loss), charged._partitions, teaching.batch_size

    def one(
        network: PyTree, state: PyTree, offset: Array, length: Array, own_key: PRNGKeyArray
    ) -> tuple[PyTree, PyTree]:
        batch_key, row_key = jax.random.split(own_key)
        at = offset + jax.random.randint(batch_key, (size,), 0, jnp.maximum(length, 1))
        # A teacher without rows would point at another's.
        rows = jnp.where(length > 0, take_rows(partitions._rows, at), 0)
        row_keys = jax.random.split(row_key, size)
        moving, rest = eqx.partition(network, eqx.is_inexact_array)

        def loss(inside: PyTree) -> Array:
            teacher, present = eqx.combine(inside, rest), jnp.ones(1, dtype=bool)
            real = jax.vmap(lambda row, k: of_unit(teacher, (row[None], present, None, k)))(rows, row_keys).mean()
            return jnp.where(length > 0, real, 0.0) + teaching.fakes_loss(teacher, fakes)

        return teaching.update_fn(network, jax.grad(loss)(moving), state)

    before, keys = (teachers._networks, teachers._optimizer_states), _own_keys(key, charged.num_teachers)
    return Teachers(*eqx.filter_vmap(one)(*before, partitions._offsets, partitions._lengths, keys))


# --------------------------------------------------------------------------------------------------------------- votes


def noisy_votes(
    charged: ChargedVotes,
    teachers: Teachers,
    rows: Float[Array, "queries features"],
    others: Float[Array, "pool features"],
    *,
    against: str,
    first: Int[Array, ""] | int,
) -> Float[Array, " queries"]:
    """How many teachers call each generated row real, with the charged noise of the queries from number `first` on.

    A teacher compares its score of a row with even odds ("half"), or with the median of its scores of `others`. Where
    threshold tests were charged, a row whose noisy majority is below the threshold has NaN for an answer.

    Formal guarantee: for each query the mechanisms that were charged (`charges.charge_votes`), each of sensitivity one,
    provided that `rows` and `others` depend on private rows through earlier noisy votes alone, and that no number of a
    query is used twice: an opinion is a function of the teacher's own partition, of these rows and of randomness that
    no other partition has touched. A teacher without rows votes no, so it is as if it were not there.
    """
    opinions = exact_opinions(teachers, rows, others, against=against)
    exact_votes = exact_vote_counts(opinions, charged._partitions._lengths)
    noisy = add_vote_noise(charged, exact_votes, first)
    return noisy if charged._tests is None else jnp.where(passes_test(charged, exact_votes, first), noisy, jnp.nan)


def exact_opinions(
    teachers: Teachers, rows: Float[Array, "queries features"], others: Float[Array, "pool features"], *, against: str
) -> Bool[Array, "teachers queries"]:
    """The vote of each teacher on each row: a function of its state, these rows and other generated ones. Exact."""

    def one(network: PyTree) -> Array:
        scores = jax.vmap(network)(rows)
        if against == "half":
            return scores > 0
        return scores > jnp.median(jax.vmap(network)(others))

    return eqx.filter_vmap(one)(teachers._networks)


def exact_vote_counts(
    votes: Bool[Array, "teachers queries"], lengths: Int[Array, " teachers"]
) -> Int[Array, " queries"]:
    """The number of teachers with rows that vote yes on each query. Exact."""
    return jnp.sum(votes & (lengths > 0)[:, None], axis=0)


def add_vote_noise(
    charged: ChargedVotes, exact_votes: Int32[Array, " queries"], first: Int[Array, ""] | int
) -> Float[Array, " queries"]:
    """Counts with the noise of the queries from number `first` on; NaN for a query that was not charged.

    What is returned is a function of whole numbers, count * steps + noise. Should one pass 32 bits, it wraps around,
    which is a function of it as well.
    """
    noisy, was_charged = _with_noise(exact_votes, charged._noise, charged._steps, first)
    return jnp.where(was_charged, noisy.astype(jnp.float32) / charged._steps, jnp.nan)


def passes_test(
    charged: ChargedVotes, exact_votes: Int32[Array, " queries"], first: Int[Array, ""] | int
) -> Bool[Array, " queries"]:
    """Whether enough teachers agree on each row, yes or no, by the charged noise of its test; False if not charged.

    Teachers without rows vote no like any other, so the majority max(n, teachers - n) moves by one at most.
    """
    tests = charged._tests
    assert tests is not None
    exact_majority = jnp.maximum(exact_votes, charged.num_teachers - exact_votes)
    noisy, was_charged = _with_noise(exact_majority, tests._noise, tests._steps, first)
    return was_charged & (noisy >= math.ceil(tests.votes * tests._steps))


def _with_noise(
    exact: Int32[Array, " queries"], noise: Int32[Array, " all"], steps: int, first: Int[Array, ""] | int
) -> tuple[Int32[Array, " queries"], Bool[Array, " queries"]]:
    """Counts in steps, with the noise of the numbers from `first` on, and which of these were charged."""
    at = first + jnp.arange(len(exact))
    was_charged = (at >= 0) & (at < len(noise))  # a clipped index would use the noise of another query again
    return exact * steps + jnp.take(noise, at, mode="clip"), was_charged
