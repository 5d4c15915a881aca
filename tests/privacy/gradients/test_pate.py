"""The rule PATE: teachers apart, votes that a record moves by one, learners that hear votes alone.

Each check of this file is shown to catch the faults for which it was written: nine that audits found in public
implementations of PATE-GAN are planted in copies made here, one at a time.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy import stats

import understudy as us
from tests.builders import raises
from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting.accountants import calibrate, pld_epsilon
from understudy.privacy.accounting.events import DiscreteLaplace, Gaussian
from understudy.privacy.accounting.ledger import Ledger, Query
from understudy.privacy.gradients.charges import charge_votes
from understudy.privacy.gradients.pate import (
    MIN_STDDEV,
    ChargedVotes,
    Partitions,
    Teachers,
    add_vote_noise,
    assign_teachers,
    exact_opinions,
    exact_vote_counts,
    noisy_votes,
    partition_by_teacher,
    vote_stddev,
)
from understudy.privacy.noise.source import FINE, SeededNoise, fine_steps
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain
from understudy.training import pate
from understudy.training.critics import Conditions, one_hot_blocks
from understudy.training.gan import Hyperparameters, generator_step, optimizer_of
from understudy.training.generation import Context
from understudy.training.loop import RunOptions
from understudy.training.neural import optimizer_step
from understudy.training.pate import PateState, Voting, init_learners, init_state, train_by_votes
from understudy.training.settings import Settings

BLOCKS = one_hot_blocks((3, 4, 2))
SETTINGS = Settings(
    blocks=BLOCKS, batch_size=8, latent=4, generator_widths=(8, 8), critic_widths=(8,), generator_batch=16
)
TEACHERS, NUM_ROWS = 6, 90
VOTING = Voting(
    teachers=TEACHERS,
    queries=5,
    pool=2,
    teacher_widths=(4,),
    teacher_batch=8,
    student_batch=16,
    memory=40,
)
HYPERPARAMETERS = Hyperparameters.of(5e-3, 4e-3, np.inf)
EMPTY, TOUCHED = 4, 2
"""The teacher without rows, and the one whose rows are changed."""


def table() -> tuple[np.ndarray, np.ndarray]:
    """Codes, and each row's teacher; one teacher has no row."""
    draw = np.random.default_rng(0)
    codes = np.stack([draw.integers(0, block.size, NUM_ROWS) for block in BLOCKS], axis=1).astype(np.int32)
    return codes, draw.choice([t for t in range(TEACHERS) if t != EMPTY], NUM_ROWS)


def charged_votes(rows: np.ndarray, teacher: np.ndarray, *, noise: Any = None, steps: int = 1) -> ChargedVotes:
    noise = np.zeros(10_000) if noise is None else np.asarray(noise)
    return ChargedVotes(partition_by_teacher(rows, teacher, TEACHERS), jnp.asarray(noise, jnp.int32), steps)


def changed(codes: np.ndarray, teacher: np.ndarray) -> np.ndarray:
    """Every row of one teacher is another one."""
    other = codes.copy()
    other[teacher == TOUCHED] = (other[teacher == TOUCHED] + 1) % [block.size for block in BLOCKS]
    return other


def pate_state(conditions: Conditions | None = None, voting: Voting = VOTING) -> PateState:
    keys = jax.random.split(jax.random.key(1))
    context = Context(conditions)
    learned = init_learners(SETTINGS, voting, HYPERPARAMETERS, keys[0], context)
    return init_state(SETTINGS, voting, learned, context, teacher_key=keys[1])


def arrays(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(eqx.filter(tree, eqx.is_array))]


def differing(one: Teachers, other: Teachers) -> set[int]:
    """Teachers of whom a single bit differs."""
    found = set()
    for left, right in zip(arrays(one), arrays(other), strict=True):
        if left.ndim and len(left) == TEACHERS:
            found |= {t for t in range(TEACHERS) if left[t].tobytes() != right[t].tobytes()}
    return found


# -------------------------------------------------------------------------------------------------------------- checks


def touched_by_steps(parts: list[ChargedVotes], conditions: Conditions | None = None, steps: int = 2) -> set[int]:
    """Teachers that differ after the same steps on one set of partitions and on another."""

    @eqx.filter_jit
    def walked(part: ChargedVotes) -> Teachers:
        teachers = pate_state(conditions).teachers
        width = teachers._networks.layers[0].weight.shape[2]
        teaching = pate.teaching_of(SETTINGS, VOTING, conditions)
        for number in range(steps):
            fakes = jax.random.uniform(jax.random.key(number), (VOTING.teacher_batch, width))
            key = jax.random.key(50 + number)
            teachers = pate.teacher_step(part, teachers, teaching, fakes, key=key)
        return teachers

    return differing(*(walked(part) for part in parts))


def fixed_labels(charged: Any, teachers: Any, rows: Array, others: Array, *, against: str, first: Array) -> Array:
    """In place of `noisy_votes`: what the learners hear is the same, whatever the teachers say."""
    return TEACHERS * jax.random.uniform(jax.random.fold_in(jax.random.key(2), first), (len(rows),))


def compiled(queries: int = 1) -> Callable[[PateState, ChargedVotes], tuple[PateState, Array]]:
    """One iteration, and what each teacher then says of `count` fresh generated rows."""

    @eqx.filter_jit
    def more(state: PateState, charged: ChargedVotes) -> tuple[PateState, Array]:
        state = pate.advance(SETTINGS, VOTING, state, charged, HYPERPARAMETERS, jax.random.key(5), 1, Context())
        key = jax.random.fold_in(jax.random.key(6), state.learned.iteration)
        rows = pate.generate(SETTINGS, state.learned.generator, queries, key)[1]
        return state, exact_opinions(state.teachers, rows, rows, against=VOTING.against)

    return more


def run_with_fixed_labels(
    more: Callable[[PateState, ChargedVotes], tuple[PateState, Array]],
    parts_at: Callable[[int], ChargedVotes],
    iterations: int = 6,
) -> tuple[list[np.ndarray], PateState]:
    """A whole run: exact votes after each iteration, and the state it ends in."""
    state, votes = pate_state(), []
    for number in range(iterations):
        parts = parts_at(number)
        state, says = more(state, parts)
        votes.append(np.asarray(exact_vote_counts(says, parts._partitions._lengths)))
    return votes, state


def learners_differ(monkeypatch: pytest.MonkeyPatch, votes: Callable[..., Array] = fixed_labels) -> bool:
    """Whether generator, student or labels know more of the rows than the votes said: these are the same here."""
    monkeypatch.setattr(pate, "noisy_votes", votes)
    codes, teacher = table()
    more = compiled()
    both = [
        run_with_fixed_labels(more, lambda _, rows=rows: charged_votes(rows, teacher), 3)[1]  # type: ignore[misc]  # a default binds the rows of this round
        for rows in (codes, (codes + 1) % [block.size for block in BLOCKS])
    ]
    assert differing(both[0].teachers, both[1].teachers)  # the rows do matter to those who may see them
    left, right = ((state.learned, state.labelled) for state in both)
    return any(a.tobytes() != b.tobytes() for a, b in zip(arrays(left), arrays(right), strict=True))


def most_moved(monkeypatch: pytest.MonkeyPatch, assign: Callable[[int], np.ndarray], queries: int = 50) -> int:
    """How far one record moves a vote at most, through whole runs with the same labels; `assign` is each iteration's
    teacher of every row."""
    monkeypatch.setattr(pate, "noisy_votes", fixed_labels)
    codes, _ = table()
    gone = int(np.flatnonzero(assign(0) == TOUCHED)[3])
    more, votes = compiled(queries), []
    for kept in (np.arange(NUM_ROWS), np.delete(np.arange(NUM_ROWS), gone)):
        votes.append(
            run_with_fixed_labels(
                more,
                lambda number, kept=kept: charged_votes(codes[kept], assign(number)[kept]),  # type: ignore[misc]  # a default binds the rows of this round
            )[0]
        )
    return int(np.max(np.abs(np.asarray(votes[0]) - np.asarray(votes[1]))))


def noise_pvalue(pay: Callable[..., ChargedVotes], *, seed: int = 0) -> float:
    """Two-sided, by chi-square of the variance: votes of teachers who all say no are noise alone.

    Against the standard deviation that was charged: s = sqrt(Q / (2 rho)), with the rho that the ledger holds.
    """
    count = 20_000
    votes, ledger, _ = charge(pay, count, seed=seed)
    rho = sum(cast(Gaussian, query.event).rho for query in ledger.queries)
    found = np.asarray(add_vote_noise(votes, jnp.zeros(count, jnp.int32), 0), dtype=np.float64)
    # Without a charge the noise would have to be infinite.
    below = stats.chi2.cdf(np.sum(found**2) * 2 * rho / count, count)
    return 2 * min(below, 1 - below)


def noise_times(factor: float) -> Callable[..., ChargedVotes]:
    """A charge whose noise is too large by this factor."""

    def pay(*args: Any, **more: Any) -> ChargedVotes:
        votes = charge_votes(*args, **more)
        return dataclasses.replace(votes, _noise=jnp.rint(votes._noise * factor).astype(jnp.int32))

    return pay


def charge(
    pay: Callable[..., ChargedVotes], queries: int = 400, *, seed: int = 0
) -> tuple[ChargedVotes, Ledger, Query]:
    rows = private_rows()
    ledger = Ledger(us.Guarantee(3.0, 1e-6), noise=SeededNoise(seed))
    query = Query("votes", "votes", Gaussian(ledger.remaining.calibrate(lambda noise: [Gaussian(noise)])))
    return pay(rows, query, ledger, num_teachers=TEACHERS, num_queries=queries), ledger, query


def is_charged(pay: Callable[..., ChargedVotes]) -> bool:
    """Whether the ledger holds a query of the noise that votes get; false alarms: 1 in 1000 for a fresh seed."""
    return noise_pvalue(pay) > 1e-3


# ----------------------------------------------------------------------------------------------- what the rule promises


def test_teachers_do_not_depend_on_each_others_rows() -> None:
    """To the bit, with conditions and without; the one whose rows changed does change."""
    codes, teacher = table()
    marginal = np.full(9, 1 / 3)
    for conditions in (None, Conditions.from_marginal(BLOCKS, marginal, NUM_ROWS, 10.0)):
        parts = [charged_votes(rows, teacher) for rows in (codes, changed(codes, teacher))]
        assert touched_by_steps(parts, conditions) == {TOUCHED}


def test_one_record_moves_a_vote_by_one_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 queries over a whole run with the same labels; and it does move some of them."""
    _, teacher = table()
    assert most_moved(monkeypatch, lambda _: teacher, queries=1700) == 1


def test_student_and_generator_see_votes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same labels and quite other rows, generator, student and memory are the same to the bit."""
    assert not learners_differ(monkeypatch)


def test_what_learns_from_votes_has_no_argument_for_rows() -> None:
    for function in (pate.query_batch, pate.append_labels, pate.student_step, generator_step):
        for name, parameter in inspect.signature(function).parameters.items():
            assert name not in ("charged", "partitions", "units", "teachers"), function
            assert parameter.annotation not in (ChargedVotes, Partitions, Teachers, PateState), function


def test_a_teacher_without_rows_votes_no() -> None:
    says, lengths = jnp.ones((3, 4), dtype=bool), jnp.asarray([2, 0, 1])
    assert exact_vote_counts(says, lengths).tolist() == [2] * 4


def test_noisy_votes_are_the_counts_of_opinions_and_the_charged_noise() -> None:
    """To the last step, from any number of a query on; the float is the nearest to a function of their sum."""
    codes, teacher = table()
    teachers, rows = pate_state().teachers, jax.random.uniform(jax.random.key(8), (40, 9))
    says = exact_opinions(teachers, rows, rows, against="median")
    exact = np.asarray(exact_vote_counts(says, charged_votes(codes, teacher)._partitions._lengths), dtype=np.int64)
    noise = SeededNoise(0).discrete_gaussian(3.0 * 2**20, (100,))
    assert len(np.unique(exact)) > 2
    for steps in (1, 2**20):
        charged = charged_votes(codes, teacher, noise=noise, steps=steps)
        for first in (0, 17, 60):
            found = noisy_votes(charged, teachers, rows, rows, against="median", first=first)
            expected = (exact * steps + noise[first : first + 40]).astype(np.float32) / np.float32(steps)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("first", [-3, 61, 99, 100, 2**31 - 20])
def test_a_query_that_was_not_charged_has_no_answer(first: int) -> None:
    """An index beyond either end must not use the noise of another query again, whatever a slice does there."""
    noise = np.arange(100)
    charged = charged_votes(*table(), noise=noise)
    found = np.asarray(jax.jit(add_vote_noise)(charged, jnp.zeros(40, jnp.int32), jnp.int32(first)))
    at = first + np.arange(40)
    inside = (at >= 0) & (at < 100)
    assert np.isnan(found[~inside]).all()
    np.testing.assert_array_equal(found[inside], noise[at[inside]])


def test_no_noise_is_used_twice_in_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every query of a training, cut in chunks or not, has a number of its own, and its label the noise of it."""
    asked: list[int] = []
    sound = pate.noisy_votes

    def votes(charged: Any, teachers: Any, rows: Array, others: Array, *, against: str, first: Array) -> Array:
        jax.debug.callback(lambda first: asked.extend(int(first) + number for number in range(len(rows))), first)
        return sound(charged, teachers, rows, others, against=against, first=first)

    monkeypatch.setattr(pate, "noisy_votes", votes)
    noise = 1000 * np.arange(30)  # exact counts are at most 6, so a label shows which noise it has
    charged, state = charged_votes(*table(), noise=noise), pate_state()
    for count in (1, 2, 3):
        state = eqx.filter_jit(pate.advance)(
            SETTINGS, VOTING, state, charged, HYPERPARAMETERS, jax.random.key(5), count, Context()
        )
    jax.effects_barrier()
    assert sorted(asked) == list(range(30))
    labels = np.rint(np.asarray(state.labelled.labels[:30]) * TEACHERS).astype(int)
    np.testing.assert_array_equal(labels // 1000, np.arange(30))


def test_a_teacher_whose_scores_are_no_numbers_votes_no() -> None:
    teachers = pate_state().teachers
    broken = jax.tree_util.tree_map(lambda leaf: leaf * jnp.nan if eqx.is_inexact_array(leaf) else leaf, teachers)
    rows = jnp.ones((4, 9))
    for against in ("half", "median"):
        assert not np.asarray(exact_opinions(broken, rows, rows, against=against)).any()


class Recorded(SeededNoise):
    """Remembers what was asked of it."""

    def __init__(self) -> None:
        super().__init__(0)
        self.asked: list[tuple[object, ...]] = []

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        self.asked.append(("gaussian", stddev, shape, noise := super().discrete_gaussian(stddev, shape)))
        return noise

    def discrete_laplace(self, scale: Fraction, shape: tuple[int, ...]) -> np.ndarray:
        self.asked.append(("laplace", scale, shape, noise := super().discrete_laplace(scale, shape)))
        return noise


def private_rows() -> PrivateRows:
    return PrivateRows(table()[0], Domain(names=("a", "b", "c"), sizes=(3, 4, 2), num_rows=NUM_ROWS))


@pytest.mark.parametrize(
    ("event", "queries"),
    [(Gaussian(40.0), 19_200), (Gaussian(2.0), 7), (DiscreteLaplace(1 / 5070, 19_200), 19_200)],
    ids=str,
)
def test_vote_noise_is_that_of_the_exact_samplers(event: Gaussian | DiscreteLaplace, queries: int) -> None:
    """Every vote gets one integer of one draw, made when it is charged, and nothing else is added to the count.

    Scales of thousands of votes are among them: there a lattice of float32 would cost many times what is charged.
    """
    source = Recorded()
    ledger = Ledger(us.Guarantee(100.0, 1e-6), noise=source)
    votes = charge_votes(
        private_rows(), Query("votes", "votes", event), ledger, num_teachers=TEACHERS, num_queries=queries
    )
    [(law, width, shape, drawn)] = source.asked
    steps = votes._steps
    assert shape == (queries,)
    assert steps.bit_count() == 1
    if isinstance(event, Gaussian):
        assert law == "gaussian"
        assert cast(float, width) >= FINE
        assert cast(float, width) / steps == pytest.approx(event.noise_multiplier * math.sqrt(queries), rel=1e-12)
        # Exactly: the squares of the charged multiplier are not rounded to less noise.
        assert Fraction(cast(float, width)) ** 2 >= queries * (Fraction(event.noise_multiplier) * steps) ** 2
    else:
        assert (law, steps) == ("laplace", 1)
        assert 1 / cast(Fraction, width) == Fraction(event.epsilon)
    exact = np.arange(queries) % (TEACHERS + 1)
    found = np.asarray(add_vote_noise(votes, jnp.asarray(exact, jnp.int32), 0))
    np.testing.assert_array_equal(found, (exact * steps + cast(np.ndarray, drawn)).astype(np.float32) / steps)


@pytest.mark.parametrize("teachers", [2, 6, 2000, 10**6])
@pytest.mark.parametrize("multiplier", [1e-9, 1e-3, 0.1, 7.0, 1e6])
def test_votes_fit_32_bits(multiplier: float, teachers: int) -> None:
    """A count and 14 standard deviations, with which noise is never less than was charged."""
    for queries in (1, 300, 19_200):
        stddev = vote_stddev(multiplier, num_queries=queries, num_teachers=teachers)
        assert stddev >= max(multiplier * math.sqrt(queries), MIN_STDDEV * teachers)
        assert (teachers + 14 * stddev) * fine_steps(stddev) < 2**31


def test_votes_that_pass_32_bits_are_a_function_of_the_sum() -> None:
    """Noise and sums wrap around alike: votes whose sums agree modulo 2^32 agree."""
    sums = [
        np.asarray(add_vote_noise(charged_votes(*table(), noise=[noise]), jnp.asarray([count], jnp.int32), 0))
        for count, noise in ((3, 2**31 - 1), (2, -(2**31)), (1, -(2**31) + 1))
    ]
    assert sums[0] == sums[1] == sums[2] == np.float32(-(2**31) + 2)


def test_without_privacy_votes_are_the_counts() -> None:
    ledger = Ledger(us.Guarantee.not_private(), noise=SeededNoise(0))
    query = Query("votes", "votes", Gaussian(1e-9))
    votes = charge_votes(private_rows(), query, ledger, num_teachers=TEACHERS, num_queries=9)
    assert add_vote_noise(votes, jnp.arange(9, dtype=jnp.int32), 0).tolist() == list(range(9))


def test_vote_noise_has_the_charged_scale() -> None:
    """False alarms: 1 in 1000 for a fresh seed. A scale 5% off is found."""
    assert noise_pvalue(charge_votes) > 1e-3
    for factor in (0.95, 1.05):
        assert noise_pvalue(noise_times(factor)) < 1e-3


def test_noise_on_the_device_is_not_used_for_votes() -> None:
    """Votes have no key: there is no randomness beside the noise that was charged."""
    for function in (noisy_votes, add_vote_noise, exact_opinions, exact_vote_counts):
        assert "key" not in inspect.signature(function).parameters


def test_votes_are_charged_as_one_gaussian_query() -> None:
    """s / sqrt(Q): by the accountant the same as Q queries of s, and the cost is that of the whole budget."""
    votes, ledger, query = charge(charge_votes)
    assert is_charged(charge_votes)
    assert ledger.queries == (query,)
    multiplier = cast(Gaussian, query.event).noise_multiplier
    stddev = vote_stddev(multiplier, num_queries=votes.num_queries, num_teachers=TEACHERS)
    each = Gaussian(stddev, votes.num_queries)
    assert pld_epsilon([each], 1e-6) == pytest.approx(pld_epsilon([query.event], 1e-6), rel=1e-9)
    assert 0.998 * 3 < ledger.spent().epsilon <= 3


@pytest.mark.parametrize(
    ("epsilon", "stddevs"), [(1, (30, 67, 211, 667)), (3, (11, 25, 79, 249)), (10, (4, 9, 28, 89))]
)
def test_budget_arithmetic(epsilon: float, stddevs: tuple[int, ...]) -> None:
    """Standard deviations in votes that 64 to 32,000 queries need at delta 1e-5: the closed form of the Gaussian."""
    multiplier = calibrate(lambda noise: [Gaussian(noise)], epsilon=epsilon, delta=1e-5)
    found = [vote_stddev(multiplier, num_queries=each, num_teachers=100) for each in (64, 320, 3200, 32_000)]
    assert found == pytest.approx(stddevs, rel=0.03, abs=0.5)


def test_laplace_votes_cost_their_epsilon_each() -> None:
    rows = private_rows()
    ledger = Ledger(us.Guarantee(3.0, 1e-6), noise=SeededNoise(0))
    query = Query("votes", "votes", DiscreteLaplace(0.25, 8))
    assert charge_votes(rows, query, ledger, num_teachers=TEACHERS, num_queries=8).num_queries == 8
    assert ledger.spent().epsilon == pytest.approx(2.0, abs=1e-3)
    with raises(BudgetExceeded, query="votes", needed=None):
        charge_votes(rows, query, ledger, num_teachers=TEACHERS, num_queries=9)


def test_no_more_queries_than_were_charged() -> None:
    codes, teacher = table()
    with pytest.raises(BudgetExceeded):
        train_by_votes(
            SETTINGS,
            VOTING,
            charged_votes(codes, teacher, noise=np.zeros(9)),
            HYPERPARAMETERS,
            jax.random.key(0),
            learned=pate_state().learned,
            options=RunOptions(iterations=2),
        )


# ---------------------------------------------------------------------------------------------------------------- parts


def test_each_unit_is_assigned_to_one_teacher_independently() -> None:
    """All rows of a unit lie together; teachers are drawn evenly (chi-square, false alarms 1 in 1000 for a fresh
    key)."""
    draw = np.random.default_rng(1)
    unit_of_row = draw.integers(0, 4000, 6000)
    codes = draw.integers(0, 3, (6000, 2)).astype(np.int32)
    teacher = assign_teachers(unit_of_row, 8, key=jax.random.key(0))
    parts = partition_by_teacher(codes, teacher, 8)
    lots: dict[int, int] = {}
    for unit, lot in zip(unit_of_row, teacher, strict=True):
        assert lots.setdefault(unit, lot) == lot
    assert stats.chisquare(np.bincount(list(lots.values()), minlength=8)).pvalue > 1e-3
    assert np.array_equal(np.asarray(parts._lengths), np.bincount(teacher, minlength=8))
    for number in range(8):
        first, size = int(parts._offsets[number]), int(parts._lengths[number])
        assert np.array_equal(np.asarray(parts._rows)[first : first + size], codes[teacher == number])


def test_a_teacher_draws_from_all_of_its_rows_and_from_no_other() -> None:
    """By a network that remembers which rows it saw: its first weights are moved by the features of those alone."""
    codes, teacher = table()
    codes[:, 0] = np.where(teacher == TOUCHED, 0, 1)  # level 0 of the first column marks one teacher's rows
    charged, teaching = charged_votes(codes, teacher), pate.teaching_of(SETTINGS, VOTING, None)
    state = pate_state().teachers
    fakes = jnp.zeros((VOTING.teacher_batch, 9)).at[:, 2].set(1.0)
    step = eqx.filter_jit(pate.teacher_step)
    after = step(charged, state, teaching, fakes, key=jax.random.key(0))
    moved = np.abs(np.asarray(after._networks.layers[0].weight - state._networks.layers[0].weight)).sum(axis=1)
    for number in range(TEACHERS):
        marked = number == TOUCHED
        assert (moved[number, 0] > 0) == marked
        assert (moved[number, 1] > 0) == (not marked and number != EMPTY)


def test_parts_of_other_lengths_need_no_new_program() -> None:
    codes, teacher = table()
    traced = []

    @jax.jit
    def step(charged: ChargedVotes) -> Array:
        traced.append(1)
        fakes, teaching = jnp.zeros((VOTING.teacher_batch, 9)), pate.teaching_of(SETTINGS, VOTING, None)
        state = pate.teacher_step(charged, pate_state().teachers, teaching, fakes, key=jax.random.key(0))
        return state._networks.layers[0].weight

    for shift in range(3):
        step(charged_votes(codes, np.where(teacher > shift, teacher, 5)))
    assert len(traced) == 1


@pytest.mark.parametrize("changes", [{"teachers": 1}, {"labels": "raw"}, {"against": "mean"}])
def test_bad_settings_are_refused(changes: dict[str, Any]) -> None:
    with raises(ConfigError, setting=next(iter(changes))):
        Voting(**{"teachers": 4, "queries": 1, **changes})


# ------------------------------------------------------------------------------------------------------- nine defects


def _averaged_step(*args: Any, **more: Any) -> Teachers:
    """A shared teacher object: all of them end with one network."""
    teachers = SOUND_STEP(*args, **more)
    return jax.tree_util.tree_map(
        lambda leaf: jnp.broadcast_to(leaf.mean(axis=0), leaf.shape) if eqx.is_inexact_array(leaf) else leaf, teachers
    )


def _first_part_for_all(charged: ChargedVotes, *args: Any, **more: Any) -> Teachers:
    """One partition's records fed to every teacher (an index bug)."""
    parts = charged._partitions
    same = jnp.full(TEACHERS, parts._offsets[TOUCHED]), jnp.full(TEACHERS, parts._lengths[TOUCHED])
    return SOUND_STEP(dataclasses.replace(charged, _partitions=Partitions(parts._rows, *same)), *args, **more)


def _shared_statistics(charged: ChargedVotes, *args: Any, **more: Any) -> Teachers:
    """Refitting with statistics of all rows: a frequency table that every teacher sees."""
    parts = charged._partitions
    features = jax.nn.one_hot(parts._rows[:, 0], 3)
    common = features.mean(axis=0)
    rows = jnp.concatenate([features - common, jnp.zeros((len(features), 6))], axis=1)
    changed = Partitions(rows, parts._offsets, parts._lengths)
    return SOUND_STEP(dataclasses.replace(charged, _partitions=changed), *args, **more)


SOUND_STEP = pate.teacher_step


@pytest.mark.parametrize("planted", [_averaged_step, _first_part_for_all, _shared_statistics])
def test_teachers_that_share_are_caught(planted: Callable[..., Teachers], monkeypatch: pytest.MonkeyPatch) -> None:
    """Defects 1 to 3: shared teacher object, first part fed to all, refitting with shared statistics."""
    codes, teacher = table()
    monkeypatch.setattr(pate, "teacher_step", planted)
    parts = [charged_votes(rows, teacher) for rows in (codes, changed(codes, teacher))]
    assert touched_by_steps(parts, steps=1) != {TOUCHED}


def test_bounds_from_data_are_caught() -> None:
    """Defect 4: numbers scaled by the extremes of the table. One teacher's outlier then moves the rows of all."""
    codes, teacher = table()

    def scaled(numbers: np.ndarray) -> np.ndarray:
        low, high = numbers.min(axis=0), numbers.max(axis=0)
        return np.concatenate([(numbers - low) / (high - low), np.zeros((len(numbers), 6))], axis=1, dtype=np.float32)

    outlier = codes.copy()
    outlier[np.flatnonzero(teacher == TOUCHED)[0]] = 40
    parts = [charged_votes(scaled(rows), teacher) for rows in (codes, outlier)]
    assert touched_by_steps(parts, steps=1) != {TOUCHED}


def test_repartitioning_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect 5: a record that visits several teachers is remembered by all of them."""
    _, teacher = table()
    assert most_moved(monkeypatch, lambda number: (teacher + number) % TEACHERS, queries=1700) > 1


def test_a_student_on_real_rows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect 6: each iteration the student also takes a step towards real rows."""
    sound = pate.advance

    def advance(settings: Any, voting: Any, state: PateState, charged: ChargedVotes, *args: Any) -> PateState:
        state = sound(settings, voting, state, charged, *args)
        rows = charged._partitions._rows
        features = jnp.concatenate([jax.nn.one_hot(rows[:, j], b.size) for j, b in enumerate(BLOCKS)], axis=1)
        moving, rest = eqx.partition(state.learned.critic, eqx.is_inexact_array)
        gradient = jax.grad(lambda w: jax.nn.softplus(-jax.vmap(eqx.combine(w, rest))(features)).mean())(moving)
        student = optimizer_step(
            optimizer_of(SETTINGS), state.learned.critic, gradient, state.learned.critic_moments, jnp.float32(1e-3)
        )[0]
        return eqx.tree_at(lambda s: s.learned.critic, state, student)

    monkeypatch.setattr(pate, "advance", advance)
    assert learners_differ(monkeypatch)


def test_uncharged_confident_batches_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect 7: labels are kept where the exact votes are confident, which is not charged."""
    exact: list[Array] = []
    sound = pate.append_labels

    def votes(charged: Any, teachers: Any, rows: Array, others: Array, *, against: str, first: Array) -> Array:
        exact.append(jnp.sum(exact_opinions(teachers, rows, others, against=against), axis=0))
        return fixed_labels(charged, teachers, rows, others, against=against, first=first)

    def append_labels(voting: Voting, labelled: Any, rows: Array, noisy: Array) -> Any:
        confident = jnp.abs(exact.pop() - TEACHERS / 2) > 1
        return sound(voting, labelled, rows, jnp.where(confident, noisy, TEACHERS / 2))

    monkeypatch.setattr(pate, "append_labels", append_labels)
    assert learners_differ(monkeypatch, votes)


def test_a_missing_charge_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect 8."""

    def unpaid(rows: PrivateRows, query: Query, ledger: Ledger, **more: Any) -> ChargedVotes:
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "charge", lambda self, query: None)
            return charge_votes(rows, query, ledger, **more)

    assert not is_charged(unpaid)


def test_an_inverted_scale_is_caught() -> None:
    """Defect 9: noise of 1 / scale."""
    _, _, query = charge(charge_votes)
    stddev = vote_stddev(cast(Gaussian, query.event).noise_multiplier, num_queries=20_000, num_teachers=TEACHERS)
    assert not is_charged(noise_times(1 / stddev**2))
