"""The rule PATE: teachers on disjoint parts of the rows, a student that hears only their noisy votes.

Papernot et al., "Semi-supervised knowledge transfer for deep learning from private training data", 2017; as the critic
of a GAN, Jordon, Yoon and van der Schaar, "PATE-GAN", 2019. One iteration: every teacher takes some steps on its own
rows and on generated ones; a few generated rows are put to the vote; the student learns from the labelled rows, those
of earlier iterations too; the generator takes a step against the student.

Teachers, their rows and their votes are in `privacy/pate.py`. What learns from the noisy votes (`asked`, `remembered`,
`student_step`, the generator's step) has no argument through which a row could come. Deviations from the paper, none of
which costs anything: the student may learn from the noisy fraction of votes, not only from the majority; a teacher may
compare a row with other generated rows (`against="median"`) where its own few rows would make it say no to all;
labelled rows serve many student steps; where there is a target, student and teachers are logistic regressions that see
each feature together with the target's level.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from understudy.encoding.features import num_features
from understudy.errors import ConfigError
from understudy.models.networks import sample_features
from understudy.privacy.pate import AGAINST, ChargedVotes, Teachers, Teaching, init_teachers, noisy_votes, teacher_step
from understudy.progress import Progress
from understudy.training.critics import PENALTY, Conditions, gradient_penalty, row_loss
from understudy.training.gan import (
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
from understudy.training.losses import LOSSES
from understudy.training.networks import Critic, CrossedCritic

if TYPE_CHECKING:
    from understudy.run.checkpoint import Slot

LABELS = ("share", "majority")
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
    teacher_learning_rate: float = 5e-3
    student_batch: int = 256
    student_steps: int = 1
    memory: int = 2048
    """So many labelled rows are kept for the student, the latest ones."""
    labels: str = "share"
    """What the student hears: the noisy share of votes, or on which side of one half it lies (majority)."""
    against: str = "median"
    """What a teacher compares its score of a row with: the median of its scores of generated rows, or even odds."""
    cross: int | None = None
    """The block, if any, together with whose levels student and teachers see every feature: that of the target."""

    def __post_init__(self) -> None:
        for name, known in (("labels", LABELS), ("against", AGAINST)):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} must be one of {', '.join(known)}, found {getattr(self, name)!r}.")
        if self.teachers < 2:
            raise ConfigError(
                f"teachers must be at least 2, found {self.teachers}: one alone would have to be as noisy as its vote. "
                "Use dpgan instead."
            )


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

    return init_teachers(one, voting.teachers, key=key)


def teaching_of(settings: Settings, voting: Voting, conditions: Conditions | None) -> Teaching:
    """How every teacher learns from its own rows and from generated ones."""
    loss, rate = LOSSES[settings.loss], jnp.float32(voting.teacher_learning_rate)
    return Teaching(
        row_loss(loss, settings.blocks, conditions, paired=False),
        lambda teacher, fakes: loss.fake(jax.vmap(teacher)(fakes)),
        lambda network, gradient, moments: stepped(settings, network, gradient, moments, rate),
        voting.teacher_batch,
    )


# ---------------------------------------------------------------------------------------------- what sees votes alone


def drawn(
    settings: Settings, learned: State, num_rows: int, conditions: Conditions | None, *, key: PRNGKeyArray
) -> Float[Array, "rows features"]:
    """Generated rows as a table would hold them, with their conditions: a teacher must not learn to tell a level from
    a mixture of levels, which costs votes and says nothing of the rows."""
    row_key, head_key = jax.random.split(key)
    logits, _, condition = generated(settings, learned.generator, num_rows, row_key, conditions)
    return seen_by_critic(sample_features(logits, settings.blocks, key=head_key), condition)


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
    charged: ChargedVotes,
    dials: Dials,
    key: PRNGKeyArray,
    count: int,
    conditions: Conditions | None = None,
    marginal: Array | None = None,
) -> Classroom:
    """So many iterations. The key belongs to the whole run: iteration t uses its t-th key, wherever a run is cut."""

    teaching = teaching_of(settings, voting, conditions)

    def iteration(state: Classroom, _: None) -> tuple[Classroom, None]:
        learned, labelled, teachers = state.learned, state.labelled, state.teachers
        step_key = jax.random.fold_in(key, learned.iteration)
        teach_key, ask_key, vote_key, learn_key, generator_key = jax.random.split(step_key, 5)
        for number in range(voting.teacher_steps):
            fake_key, own_key = jax.random.split(jax.random.fold_in(teach_key, number))
            fakes = drawn(settings, learned, voting.teacher_batch, conditions, key=fake_key)
            teachers = teacher_step(charged, teachers, teaching, fakes, key=own_key)
        rows, others = asked(settings, voting, learned, conditions, key=ask_key)
        noisy = noisy_votes(charged, teachers, rows, others, against=voting.against, key=vote_key)
        labelled = remembered(voting, labelled, rows, noisy)
        for number in range(voting.student_steps):
            student_key = jax.random.fold_in(learn_key, number)
            learned = student_step(settings, voting, learned, labelled, dials.critic_learning_rate, key=student_key)
        learned = generator_step(settings, learned, dials, generator_key, conditions, marginal)
        return Classroom(learned, labelled, teachers), None

    return jax.lax.scan(iteration, state, None, length=count)[0]


def train_by_votes(
    settings: Settings,
    voting: Voting,
    charged: ChargedVotes,
    dials: Dials,
    key: PRNGKeyArray,
    *,
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
    """Runs to the last iteration, as `train` does; of the state it ends in, what the charged votes cover.

    `key` makes batches and noise, and must tell nothing of `network_key`. A run that would ask more queries than were
    charged is refused.
    """
    charged.check_queries(iterations, voting.asked)
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
    run = _compiled(settings, voting)

    def more(state: Classroom, first: int, count: int) -> Classroom:
        return run(state, charged, dials, run_key, count, conditions, marginal)

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
    def run(state, charged, dials, key, count, conditions, marginal):  # type: ignore[no-untyped-def]
        return advance(settings, voting, state, charged, dials, key, count, conditions, marginal)

    return run
