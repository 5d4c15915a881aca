"""The rule PATE: teachers apart, votes that a record moves by one, learners that hear votes alone.

Each check of this file is shown to catch the faults for which it was written: nine that audits found in public
implementations of PATE-GAN are planted in copies made here, one at a time.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy import stats

import understudy as us
from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting import calibrate, pld_epsilon
from understudy.privacy.charges import charge_votes
from understudy.privacy.events import Gaussian, Pure
from understudy.privacy.ledger import Ledger, Query
from understudy.privacy.noise import SeededNoise
from understudy.privacy.pate import (
    ChargedVotes,
    Partitions,
    Teachers,
    add_vote_noise,
    assign_teachers,
    exact_opinions,
    exact_vote_counts,
    laplaces,
    noisy_votes,
    partition_by_teacher,
    vote_scale,
)
from understudy.privacy.rows import PrivateRows
from understudy.schema import Domain
from understudy.training import pate
from understudy.training.critics import Conditions, one_hot_blocks
from understudy.training.gan import Hyperparameters, generator_step, optimizer_of
from understudy.training.generation import Context
from understudy.training.loop import RunOptions
from understudy.training.optimizer import optimizer_step
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


def charged_votes(rows: np.ndarray, teacher: np.ndarray, *, scale: float = 0.0, queries: int = 10_000) -> ChargedVotes:
    return ChargedVotes(partition_by_teacher(rows, teacher, TEACHERS), jnp.float32(scale), "gaussian", queries)


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


def fixed_labels(charged: Any, teachers: Any, rows: Array, others: Array, *, against: str, key: Array) -> Array:
    """In place of `noisy_votes`: what the learners hear is the same, whatever the teachers say."""
    return TEACHERS * jax.random.uniform(key, (len(rows),))


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
        run_with_fixed_labels(more, lambda _, rows=rows: charged_votes(rows, teacher), 3)[1]  # type: ignore[misc]
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
                lambda number, kept=kept: charged_votes(codes[kept], assign(number)[kept]),  # type: ignore[misc]
            )[0]
        )
    return int(np.max(np.abs(np.asarray(votes[0]) - np.asarray(votes[1]))))


def noise_pvalue(vote: Callable[..., Array], scale: float) -> float:
    """Two-sided, by chi-square of the variance: votes of teachers who all say no are noise alone."""
    count = 20_000
    no = jnp.zeros(count, jnp.int32)
    found = np.asarray(vote(no, scale=scale, law="gaussian", key=jax.random.key(3)), dtype=np.float64)
    below = stats.chi2.cdf(np.sum(found**2) / scale**2, count)
    return 2 * min(below, 1 - below)


def charge(pay: Callable[..., ChargedVotes], queries: int = 400) -> tuple[ChargedVotes, Ledger, Query]:
    codes, _ = table()
    rows = PrivateRows(codes, Domain(names=("a", "b", "c"), sizes=(3, 4, 2), num_rows=NUM_ROWS))
    ledger = Ledger(us.Guarantee(3.0, 1e-6), noise=SeededNoise(0))
    event = Gaussian(ledger.remaining.calibrate(lambda noise: [Gaussian(noise, floating=True)]), floating=True)
    query = Query("votes", "votes", event)
    return pay(rows, query, ledger, num_teachers=TEACHERS, num_queries=queries), ledger, query


def is_charged(pay: Callable[..., ChargedVotes]) -> bool:
    """Whether the ledger holds one Gaussian query, that of the noise which votes get: s / sqrt(Q)."""
    votes, ledger, _ = charge(pay)
    return ledger.queries != () and math.isclose(
        math.sqrt(sum(1 / (2 * cast(Gaussian, query.event).rho) for query in ledger.queries)),
        float(votes.scale) / math.sqrt(votes.num_queries),
        rel_tol=1e-6,  # of float32
    )


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
    """Without noise they are the counts; with it, these and the noise of the charged scale, by the same key."""
    codes, teacher = table()
    teachers, rows = pate_state().teachers, jax.random.uniform(jax.random.key(8), (40, 9))
    key = jax.random.key(4)
    found = {
        scale: np.asarray(
            noisy_votes(charged_votes(codes, teacher, scale=scale), teachers, rows, rows, against="median", key=key)
        )
        for scale in (0.0, 3.0)
    }
    says = exact_opinions(teachers, rows, rows, against="median")
    exact = exact_vote_counts(says, charged_votes(codes, teacher)._partitions._lengths)
    np.testing.assert_array_equal(found[0.0], exact)
    np.testing.assert_array_equal(found[3.0], add_vote_noise(exact, scale=3.0, law="gaussian", key=key))
    assert np.std(found[3.0] - found[0.0]) > 1.5


def test_a_teacher_whose_scores_are_no_numbers_votes_no() -> None:
    teachers = pate_state().teachers
    broken = jax.tree_util.tree_map(lambda leaf: leaf * jnp.nan if eqx.is_inexact_array(leaf) else leaf, teachers)
    rows = jnp.ones((4, 9))
    for against in ("half", "median"):
        assert not np.asarray(exact_opinions(broken, rows, rows, against=against)).any()


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noisy_votes_are_whole(law: str) -> None:
    """Fractions would tell the count: not every number is one of these counts and a float32 draw."""
    noisy = np.asarray(add_vote_noise(jnp.full(500, 20), scale=7.3, law=law, key=jax.random.key(1)))
    assert np.array_equal(noisy, np.rint(noisy))
    assert len(np.unique(noisy)) > 20


def test_vote_noise_has_the_charged_scale() -> None:
    """False alarms: 1 in 1000 for a fresh seed. A scale 5 % off is found."""
    assert noise_pvalue(add_vote_noise, 7.0) > 1e-3
    for factor in (0.95, 1.05):

        def off(*args: Any, scale: float, factor: float = factor, **more: Any) -> Array:
            return add_vote_noise(*args, scale=factor * scale, **more)

        assert noise_pvalue(off, 7.0) < 1e-3


def test_laplace_noise_has_its_law() -> None:
    """Kolmogorov-Smirnov, two-sided, false alarms 1 in 1000 for a fresh seed; neighbouring scales are rejected."""
    found = np.asarray(laplaces(jax.random.key(0), 20_000), dtype=np.float64)
    pvalues = [stats.kstest(found, stats.laplace(scale=scale).cdf).pvalue for scale in (0.93, 1.0, 1.07)]
    assert pvalues[1] > 1e-3
    assert max(pvalues[0], pvalues[2]) < 1e-3


def test_votes_are_charged_as_one_gaussian_query() -> None:
    """s / sqrt(Q): by the accountant the same as Q queries of s, and the cost is that of the whole budget."""
    votes, ledger, query = charge(charge_votes)
    assert is_charged(charge_votes)
    assert ledger.queries == (query,)
    each = Gaussian(float(votes.scale), votes.num_queries)
    assert pld_epsilon([each], 1e-6) == pytest.approx(pld_epsilon([query.event], 1e-6), rel=1e-6)  # of float32
    assert 0.998 * 3 < ledger.spent().epsilon <= 3


@pytest.mark.parametrize(
    ("epsilon", "stddevs"), [(1, (30, 67, 211, 667)), (3, (11, 25, 79, 249)), (10, (4, 9, 28, 89))]
)
def test_budget_arithmetic(epsilon: float, stddevs: tuple[int, ...]) -> None:
    """Standard deviations in votes that 64 to 32,000 queries need at delta 1e-5: the closed form of the Gaussian."""
    multiplier = calibrate(lambda noise: [Gaussian(noise)], epsilon=epsilon, delta=1e-5)
    found = [vote_scale(multiplier, queries) for queries in (64, 320, 3200, 32_000)]
    assert found == pytest.approx(stddevs, rel=0.03, abs=0.5)


def test_laplace_votes_cost_their_epsilon_each() -> None:
    codes, _ = table()
    rows = PrivateRows(codes, Domain(names=("a", "b", "c"), sizes=(3, 4, 2), num_rows=NUM_ROWS))
    ledger = Ledger(us.Guarantee(3.0, 1e-6), noise=SeededNoise(0))
    query = Query("votes", "votes", Pure(0.25, 8))
    votes = charge_votes(rows, query, ledger, num_teachers=TEACHERS, num_queries=8)
    assert votes.law == "laplace"
    assert 4.0 <= float(votes.scale) < 4.0 * (1 + 1e-6)  # in float32, and rounded up
    with pytest.raises(BudgetExceeded, match="planned for 8 votes"):
        charge_votes(rows, query, ledger, num_teachers=TEACHERS, num_queries=9)


def test_no_more_queries_than_were_charged() -> None:
    codes, teacher = table()
    with pytest.raises(BudgetExceeded, match="9 queries were charged"):
        train_by_votes(
            SETTINGS,
            VOTING,
            charged_votes(codes, teacher, scale=1.0, queries=9),
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
    with pytest.raises(ConfigError, match=next(iter(changes))):
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

    def votes(charged: Any, teachers: Any, rows: Array, others: Array, *, against: str, key: Array) -> Array:
        exact.append(jnp.sum(exact_opinions(teachers, rows, others, against=against), axis=0))
        return fixed_labels(charged, teachers, rows, others, against=against, key=key)

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
    """Defect 9, where it is drawn and where it is set."""

    def inverted(*args: Any, scale: float, **more: Any) -> Array:
        return add_vote_noise(*args, scale=1 / scale, **more)

    assert noise_pvalue(inverted, 7.0) < 1e-3

    def upside_down(*args: Any, **more: Any) -> ChargedVotes:
        votes = charge_votes(*args, **more)
        return dataclasses.replace(votes, _scale=1 / votes.scale)

    assert not is_charged(upside_down)
