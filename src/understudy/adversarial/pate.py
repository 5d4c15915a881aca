"""The rule PATE: teachers on disjoint parts of the rows, a student that hears only their noisy votes.

Papernot et al., "Semi-supervised knowledge transfer for deep learning from private training data", 2017; as the critic
of a GAN, Jordon, Yoon and van der Schaar, "PATE-GAN", 2019. One iteration: every teacher takes some steps on its own
rows and on generated ones; a few generated rows are put to the vote; the student learns from the labelled rows, those
of earlier iterations too; the generator takes a step against the student.

Teachers are one population, mapped over stacked arrays: nothing is added up over teachers but in `noisy_votes`. What
learns from the votes (`asked`, `remembered`, `student_step`, the generator's step) has no argument through which a row
could come. Deviations from the paper, each free of charge: the student may hear the noisy share of votes, not only on
which side of one half it lies; a teacher may compare a row with other generated rows (`against="median"`)
where its own few rows would make it say no to all; labelled rows serve many student steps; where there is a target,
student and teachers are logistic regressions that see each feature together with the target's level.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from understudy.adversarial.critics import PENALTY, Conditions, gradient_penalty, unit_loss
from understudy.adversarial.losses import LOSSES
from understudy.adversarial.training import (
    Dials,
    Kept,
    Settings,
    State,
    begun_with,
    direction_of,
    driven,
    generated,
    generator_step,
    seen_by_critic,
    start,
    stepped,
    trained_part,
)
from understudy.errors import BudgetExceeded, ConfigError
from understudy.networks import Critic, CrossedCritic, drawn_features, num_features
from understudy.privacy.votes import LAWS, Parts, noisy_votes
from understudy.progress import Progress

if TYPE_CHECKING:
    from understudy.checkpoint import Slot

LABELS = ("share", "majority")
AGAINST = ("median", "half")
LOSSES_OF_VOTES = ("gan", "saturating_gan", "dragan")
"""Those whose scores are log-odds: a vote asks on which side of even odds a row lies."""
LEAST_POOL = 64
"""A teacher's median is taken over so many generated rows at least."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Voting:
    """What the rule adds to the settings of the loop. Compiled into the program, and public."""

    teachers: int
    asked: int
    """Rows put to the vote in an iteration: so many queries."""
    pool: int = 4
    """Of so many times as many generated rows, those are asked about of which the student is least sure."""
    teacher_widths: tuple[int, ...] = (16,)
    teacher_batch: int = 32
    """Of a teacher's own rows, and of generated ones, in each of its steps."""
    teacher_steps: int = 1
    teacher_rate: float = 5e-3
    student_batch: int = 256
    student_steps: int = 1
    memory: int = 2048
    """So many labelled rows are kept for the student, the latest ones."""
    labels: str = "share"
    """What the student hears: the noisy share of votes, or on which side of one half it lies (majority)."""
    against: str = "median"
    """What a teacher compares its score of a row with: the median of its scores of generated rows, or even odds."""
    law: str = "gaussian"
    cross: int | None = None
    """The block, if any, together with whose levels student and teachers see every feature: that of the target."""

    def __post_init__(self) -> None:
        for name, known in (("labels", LABELS), ("against", AGAINST), ("law", LAWS)):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} must be one of {', '.join(known)}, found {getattr(self, name)!r}.")
        if self.teachers < 2:
            raise ConfigError(
                f"teachers must be at least 2, found {self.teachers}: one alone would have to be as noisy as its vote. "
                "Use dpgan instead."
            )


class Teachers(eqx.Module):
    """One network for each part of the rows, stacked, and its optimiser. Private: no part of it may leave."""

    networks: Any
    moments: PyTree


class Labelled(eqx.Module):
    """Generated rows with what the votes said of them. Covered by what the votes cost."""

    rows: Float[Array, "memory features"]
    labels: Float[Array, " memory"]
    count: Int[Array, ""]
    """How many have been labelled so far."""


class Classroom(eqx.Module):
    """Everything that training changes."""

    learned: State
    """Generator and student: covered by what the votes cost."""
    labelled: Labelled
    teachers: Teachers


def begun(
    settings: Settings,
    voting: Voting,
    dials: Dials,
    *,
    key: PRNGKeyArray,
    teacher_key: PRNGKeyArray,
    conditioned: bool = False,
    marginal: Array | None = None,
    learned: State | None = None,
) -> Classroom:
    """Fresh teachers, an empty memory, and fresh networks unless there are learned ones to go on from."""
    if settings.loss not in LOSSES_OF_VOTES:
        raise ConfigError(f"loss must be one of {', '.join(LOSSES_OF_VOTES)} for votes, found {settings.loss!r}.")
    if learned is None:
        learned = fresh_learners(settings, voting, dials, key, conditioned=conditioned, marginal=marginal)
    width = num_features(settings.blocks) * (2 if conditioned else 1)
    teachers = fresh_teachers(settings, voting, width, teacher_key)
    labelled = Labelled(jnp.zeros((voting.memory, width)), jnp.zeros(voting.memory), jnp.asarray(0, jnp.int32))
    return Classroom(learned, labelled, teachers)


def fresh_learners(
    settings: Settings,
    voting: Voting,
    dials: Dials,
    key: PRNGKeyArray,
    *,
    conditioned: bool = False,
    marginal: Array | None = None,
) -> State:
    """A generator and a student, as `start` makes them; the student sees rows as its teachers do."""
    start_key, student_key = jax.random.split(key)
    state = start(settings, dials, start_key, conditioned=conditioned, marginal=marginal)
    width = num_features(settings.blocks) * (2 if conditioned else 1)
    student = _critic(settings, voting, width, settings.critic_widths, student_key)
    return begun_with(settings, dials, state.generator, student)


def _critic(settings: Settings, voting: Voting, width: int, widths: tuple[int, ...], key: PRNGKeyArray) -> Any:
    if voting.cross is None:
        return Critic(width, widths, dropout=settings.dropout, key=key)
    return CrossedCritic(width, widths, settings.blocks, voting.cross, key=key)


def fresh_teachers(settings: Settings, voting: Voting, width: int, key: PRNGKeyArray) -> Teachers:
    """Each with weights of its own."""

    def one(own_key: PRNGKeyArray) -> tuple[Any, PyTree]:
        network = _critic(settings, voting, width, voting.teacher_widths, own_key)
        return network, direction_of(settings).init(trained_part(network))

    return Teachers(*eqx.filter_vmap(one)(_own_keys(key, voting.teachers)))


def _own_keys(key: PRNGKeyArray, num_teachers: int) -> PRNGKeyArray:
    return jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(num_teachers))


# ------------------------------------------------------------------------------------------------- what sees the rows


def teacher_step(
    settings: Settings,
    voting: Voting,
    teachers: Teachers,
    parts: Parts,
    fakes: Float[Array, "batch features"],
    conditions: Conditions | None,
    *,
    key: PRNGKeyArray,
) -> Teachers:
    """Every teacher takes one step on a batch of its own rows and on the generated ones, which all of them share.

    Formal guarantee: teacher i after the step is a function of teacher i before it, of the rows of part i, of `fakes`
    and of the i-th key. No noise and no bound is needed: what a unit does to its teacher stays there.
    """
    loss = LOSSES[settings.loss]
    of_row = unit_loss(loss, settings.blocks, conditions, paired=False)

    def one(network: Any, moments: PyTree, first: Array, size: Array, own_key: PRNGKeyArray) -> tuple[Any, PyTree]:
        draw_key, row_key = jax.random.split(own_key)
        at = first + jax.random.randint(draw_key, (voting.teacher_batch,), 0, jnp.maximum(size, 1))
        # A teacher without rows would point at another's.
        rows = jnp.where(size > 0, jnp.take(parts.rows, at, axis=0, mode="clip"), 0)
        row_keys = jax.random.split(row_key, voting.teacher_batch)
        moving, rest = eqx.partition(network, eqx.is_inexact_array)

        def loss_of(inside: PyTree) -> Array:
            teacher = eqx.combine(inside, rest)
            present = jnp.ones(1, dtype=bool)
            real = jax.vmap(lambda row, k: of_row(teacher, (row[None], present, None, k)))(rows, row_keys).mean()
            return jnp.where(size > 0, real, 0.0) + loss.fake(jax.vmap(teacher)(fakes))

        return stepped(settings, network, jax.grad(loss_of)(moving), moments, jnp.float32(voting.teacher_rate))

    return Teachers(
        *eqx.filter_vmap(one)(
            teachers.networks, teachers.moments, parts.first, parts.size, _own_keys(key, len(parts.size))
        )
    )


def opinions(
    voting: Voting, teachers: Teachers, rows: Float[Array, "asked features"], others: Float[Array, "pool features"]
) -> Bool[Array, "teachers asked"]:
    """What each teacher says of each row: of its own state, of these rows and of other generated ones."""

    def one(network: Any) -> Array:
        scores = jax.vmap(network)(rows)
        if voting.against == "half":
            return scores > 0
        return scores > jnp.median(jax.vmap(network)(others))

    return eqx.filter_vmap(one)(teachers.networks)


# ---------------------------------------------------------------------------------------------- what sees votes alone


def drawn(
    settings: Settings, learned: State, num_rows: int, conditions: Conditions | None, *, key: PRNGKeyArray
) -> Float[Array, "rows features"]:
    """Generated rows as a table would hold them, with their conditions: a teacher must not learn to tell a level from
    a mixture of levels, which costs votes and says nothing of the rows."""
    row_key, head_key = jax.random.split(key)
    logits, _, condition = generated(settings, learned.generator, num_rows, row_key, conditions)
    return seen_by_critic(drawn_features(logits, settings.blocks, key=head_key), condition)


def asked(
    settings: Settings, voting: Voting, learned: State, conditions: Conditions | None, *, key: PRNGKeyArray
) -> tuple[Float[Array, "asked features"], Float[Array, "pool features"]]:
    """The rows to vote on, and all those they were chosen from: the student is least sure of them."""
    rows = drawn(settings, learned, max(LEAST_POOL, voting.pool * voting.asked), conditions, key=key)
    if voting.pool == 1:
        return rows[: voting.asked], rows
    among = rows[: voting.pool * voting.asked]
    unsure = jnp.argsort(jnp.abs(jax.vmap(learned.critic)(among)))
    return among[unsure[: voting.asked]], rows


def remembered(
    voting: Voting, labelled: Labelled, rows: Float[Array, "asked features"], noisy: Float[Array, " asked"]
) -> Labelled:
    """The memory with these rows in the places of the oldest ones."""
    share = noisy / voting.teachers
    labels = (share > 0.5).astype(jnp.float32) if voting.labels == "majority" else share
    at = (labelled.count + jnp.arange(len(rows))) % voting.memory
    return Labelled(labelled.rows.at[at].set(rows), labelled.labels.at[at].set(labels), labelled.count + len(rows))


def student_step(
    settings: Settings, voting: Voting, learned: State, labelled: Labelled, rate: Array, *, key: PRNGKeyArray
) -> State:
    """One step of cross-entropy on labelled rows. It is linear in a label, so noise on labels adds no bias."""
    draw_key, drop_key = jax.random.split(key)
    most = jnp.minimum(labelled.count, voting.memory)
    at = jax.random.randint(draw_key, (voting.student_batch,), 0, jnp.maximum(most, 1))
    rows, labels = labelled.rows[at], labelled.labels[at]
    keys = jax.random.split(drop_key, voting.student_batch)
    moving, rest = eqx.partition(learned.critic, eqx.is_inexact_array)

    def loss_of(inside: PyTree) -> Array:
        student = eqx.combine(inside, rest)
        scores = jax.vmap(lambda row, k: student(row, key=k))(rows, keys)
        value = jnp.mean(jax.nn.softplus(scores) - labels * scores)
        if kind := LOSSES[settings.loss].penalty:
            value = value + PENALTY * jnp.mean(
                jax.vmap(lambda row, k: gradient_penalty(student, row, None, kind, k))(rows, keys)
            )
        return value

    student, moments = stepped(settings, learned.critic, jax.grad(loss_of)(moving), learned.critic_moments, rate)
    return dataclasses.replace(learned, critic=student, critic_moments=moments)


# ------------------------------------------------------------------------------------------------------------ the loop


def advance(
    settings: Settings,
    voting: Voting,
    state: Classroom,
    parts: Parts,
    dials: Dials,
    scale: Float[Array, ""],
    key: PRNGKeyArray,
    count: int,
    conditions: Conditions | None = None,
    marginal: Array | None = None,
) -> Classroom:
    """So many iterations. The key belongs to the whole run: iteration t uses its t-th key, wherever a run is cut."""

    def iteration(state: Classroom, _: None) -> tuple[Classroom, None]:
        learned, labelled, teachers = state.learned, state.labelled, state.teachers
        step_key = jax.random.fold_in(key, learned.iteration)
        teach_key, ask_key, vote_key, learn_key, generator_key = jax.random.split(step_key, 5)
        for number in range(voting.teacher_steps):
            fake_key, own_key = jax.random.split(jax.random.fold_in(teach_key, number))
            fakes = drawn(settings, learned, voting.teacher_batch, conditions, key=fake_key)
            teachers = teacher_step(settings, voting, teachers, parts, fakes, conditions, key=own_key)
        rows, others = asked(settings, voting, learned, conditions, key=ask_key)
        says = opinions(voting, teachers, rows, others)
        noisy = noisy_votes(says, parts.size, scale=scale, law=voting.law, key=vote_key)
        labelled = remembered(voting, labelled, rows, noisy)
        for number in range(voting.student_steps):
            student_key = jax.random.fold_in(learn_key, number)
            learned = student_step(settings, voting, learned, labelled, dials.critic_rate, key=student_key)
        learned = generator_step(settings, learned, dials, generator_key, conditions, marginal)
        return Classroom(learned, labelled, teachers), None

    return jax.lax.scan(iteration, state, None, length=count)[0]


def train_by_votes(
    settings: Settings,
    voting: Voting,
    parts: Parts,
    dials: Dials,
    key: PRNGKeyArray,
    *,
    scale: float,
    queries: int,
    network_key: PRNGKeyArray,
    iterations: int,
    conditions: Conditions | None = None,
    marginal: Array | None = None,
    learned: State | None = None,
    keep_every: int = 0,
    keep_last: int | None = None,
    chunk: int = 50,
    progress: Progress | None = None,
    slot: "Slot | None" = None,
) -> tuple[State, list[Kept]]:
    """Runs to the last iteration, as `train` does; of the state it ends in, what the votes have paid for.

    `key` makes draws and noise, and must tell nothing of `network_key`. `queries` have been paid for, each with noise
    of this scale: a run that would ask more is refused.
    """
    if iterations * voting.asked > queries:
        raise BudgetExceeded(
            f"{iterations} iterations of {voting.asked} queries each were requested on {queries} that were charged."
        )
    run_key, teacher_key = jax.random.split(key)
    state = begun(
        settings,
        voting,
        dials,
        key=network_key,
        teacher_key=teacher_key,
        conditioned=conditions is not None,
        marginal=marginal,
        learned=learned,
    )
    run, noise = _compiled(settings, voting), jnp.asarray(scale, jnp.float32)

    def more(state: Classroom, first: int, count: int) -> Classroom:
        return run(state, parts, dials, noise, run_key, count, conditions, marginal)

    state, kept = driven(
        more,
        state,
        iterations=iterations,
        learned=lambda state: state.learned,
        keep_every=keep_every,
        keep_last=keep_last,
        chunk=chunk,
        progress=progress,
        slot=slot,
    )
    return state.learned, kept


@functools.lru_cache(maxsize=32)
def _compiled(settings: Settings, voting: Voting) -> Callable[..., Classroom]:
    @eqx.filter_jit
    def run(state, parts, dials, scale, key, count, conditions, marginal):  # type: ignore[no-untyped-def]
        return advance(settings, voting, state, parts, dials, scale, key, count, conditions, marginal)

    return run
