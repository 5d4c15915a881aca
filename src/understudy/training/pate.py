"""PATE: teachers on disjoint partitions of the units, and a student that sees only their noisy votes.

Papernot et al., "Semi-supervised knowledge transfer for deep learning from private training data", 2017; as the critic
of a GAN, Jordon, Yoon and van der Schaar, "PATE-GAN", 2019. One iteration: every teacher takes some steps on its own
rows and on generated ones; a few generated rows are put to the vote; the student learns from the labelled rows, those
of earlier iterations too; the generator takes a step against the student.

Teachers, their rows and their votes are in `privacy/gradients/pate.py`. What learns from the noisy votes
(`query_batch`, `append_labels`, `student_step`, the generator's step) has no argument through which a row could come.
Deviations from the paper, none of which costs anything: the student may learn from the noisy fraction of votes, not
only from the majority; a teacher may compare a row with other generated rows (`against="median"`) where its own few
rows would make it reject all; labelled rows serve many student steps; where there is a target, student and teachers are
logistic regressions that see each feature together with the target's category.
"""

import dataclasses
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from understudy.encoding.features import num_features
from understudy.models.neural import GeneratorNetwork, sample_features
from understudy.privacy.gradients.pate import (
    AGAINST,
    ChargedVotes,
    Teachers,
    Teaching,
    init_teachers,
    noisy_votes,
    teacher_step,
)
from understudy.synthesizers.settings import Count, OneOf, Positive, Range, Widths, check_settings
from understudy.training import gan
from understudy.training.calls import cached_jit, eager
from understudy.training.critics import LOSSES, PENALTY, Conditions, gradient_penalty, row_loss
from understudy.training.gan import Hyperparameters, State, generator_step, init_from_networks, optimizer_of
from understudy.training.generation import Context, critic_input, generate
from understudy.training.loop import RunOptions, TrainingCheckpoint, run_training
from understudy.training.neural import Critic, CriticNetwork, CrossedCritic, optimizer_step, trainable
from understudy.training.settings import Settings

LOSSES_OF_VOTES = ("gan", "saturating_gan", "dragan")
"""Those whose scores are log-odds: a vote asks on which side of even odds a row lies."""
THRESHOLD_FRACTION = 0.1
"""With a threshold: the fraction of the zCDP budget of the votes for its tests."""
MIN_POOL = 64
"""The least number of generated rows that a teacher's median is taken over."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VotingSettings:
    """Teachers, their votes and the student."""

    labels: Annotated[str, OneOf("share", "majority")] = "share"
    """What the student learns from: the noisy share of votes, or the side of one half on which it lies (majority)."""
    against: Annotated[str, OneOf(*AGAINST)] = "median"
    """What a teacher compares its score of a row with: its median score of generated rows, or even odds (half), as
    published."""
    threshold: Annotated[float, Range(0.5, 1, open_low=True)] | None = None
    """Confident votes: the fraction of teachers that must agree on a row, by a noisy test, for the student to learn
    from it. Every test is charged, whether its row is labelled or not. None: every row is labelled."""
    teacher_widths: Widths | None = None
    """Left out: no hidden layer where rows are crossed with the target, else one of 8."""
    teacher_batch: Count = 16
    """A teacher's own rows, and generated ones, in each of its steps."""
    teacher_learning_rate: Positive = 2e-2
    """The learning rate of each teacher."""
    student_batch: Count = 256
    """The number of labelled rows in a step of the student."""
    memory: Count = 8192
    """The number of labelled rows that are kept for the student, the latest ones."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Voting(VotingSettings):
    """What the rule adds to `Settings`. Compiled into the program, and public."""

    teachers: Annotated[int, Range(2)]
    queries: int
    """Rows put to the vote in an iteration."""
    cross: int | None = None
    """The block, if any, with whose categories student and teachers see every feature crossed: that of the target."""
    pool: Count = 4
    """The rows put to the vote are those of which the student is least sure, among this many times as many; 1: any."""
    teacher_steps: Count = 1
    """Steps of each teacher in an iteration; they cost time, and no budget."""
    student_steps: Count = 4
    """Steps of the student in an iteration, on labelled rows of this and earlier ones."""

    @classmethod
    def of(cls, method: VotingSettings, *, teachers: int, queries: int, cross: int | None) -> "Voting":
        """The settings of a method, with widths and a memory that fit these votes. What it has no setting for is
        constant."""
        names = {field.name for field in dataclasses.fields(cls)} - {"teachers", "queries", "cross"}
        settings = {name: getattr(method, name) for name in names if hasattr(method, name)}
        if method.teacher_widths is None:
            settings["teacher_widths"] = (8,) * (cross is None)
        settings["memory"] = max(method.memory, queries)
        return cls(**settings, teachers=teachers, queries=queries, cross=cross)

    def __post_init__(self) -> None:
        check_settings(self)


class LabelledRows(eqx.Module):
    """Generated rows with what the votes said of them. Covered by what the votes cost."""

    rows: Float[Array, "memory features"]
    labels: Float[Array, " memory"]
    count: Int[Array, ""]
    """How many have been labelled so far."""


class PateState(eqx.Module):
    """Everything that training changes."""

    learned: State
    """Generator and student: covered by what the votes cost."""
    labelled: LabelledRows
    teachers: Teachers

    @property
    def average(self) -> GeneratorNetwork:
        return self.learned.average

    @property
    def critic(self) -> CriticNetwork:
        return self.learned.critic

    @property
    def iteration(self) -> Array:
        return self.learned.iteration


def init_state(
    settings: Settings, voting: Voting, learned: State, context: Context, *, teacher_key: PRNGKeyArray
) -> PateState:
    """Fresh teachers and an empty memory beside these learners."""
    labelled, teachers = eager(_init_teachers, settings, voting)(context, teacher_key)
    return PateState(learned, labelled, teachers)


def _init_teachers(
    settings: Settings, voting: Voting, context: Context, key: PRNGKeyArray
) -> tuple[LabelledRows, Teachers]:
    width = _input_width(settings, context)

    def teacher(own_key: PRNGKeyArray) -> tuple[CriticNetwork, PyTree]:
        network = _critic(settings, voting, width, voting.teacher_widths or (), own_key)
        return network, optimizer_of(settings).init(trainable(network))

    labelled = LabelledRows(jnp.zeros((voting.memory, width)), jnp.zeros(voting.memory), jnp.asarray(0, jnp.int32))
    return labelled, init_teachers(teacher, voting.teachers, key=key)


def init_learners(
    settings: Settings, voting: Voting, hyperparameters: Hyperparameters, key: PRNGKeyArray, context: Context
) -> State:
    """A generator and a student, as `gan.init_state` makes them; the student sees rows as its teachers do."""
    start_key, student_key = jax.random.split(key)
    state = gan.init_state(settings, hyperparameters, start_key, context)
    student = _critic(settings, voting, _input_width(settings, context), settings.critic_widths, student_key)
    return init_from_networks(settings, hyperparameters, state.generator, student)


def _input_width(settings: Settings, context: Context) -> int:
    return num_features(settings.blocks) * (1 if context.conditions is None else 2)


def _critic(
    settings: Settings, voting: Voting, width: int, widths: tuple[int, ...], key: PRNGKeyArray
) -> CriticNetwork:
    if voting.cross is None:
        return Critic(width, widths, dropout=settings.critic_dropout, key=key)
    return CrossedCritic(width, widths, settings.blocks, voting.cross, dropout=settings.critic_dropout, key=key)


def teaching_of(settings: Settings, voting: Voting, conditions: Conditions | None) -> Teaching:
    """How every teacher learns from its own rows and from generated ones."""
    loss, rate = LOSSES[settings.loss], jnp.float32(voting.teacher_learning_rate)
    return Teaching(
        row_loss(loss, settings.blocks, conditions, paired=False),
        lambda teacher, fakes: loss.fake(jax.vmap(teacher)(fakes)),
        lambda network, gradient, moments: optimizer_step(optimizer_of(settings), network, gradient, moments, rate),
        voting.teacher_batch,
    )


# ---------------------------------------------------------------------------------------------- what sees votes alone


def sample_rows(
    settings: Settings, learned: State, num_rows: int, conditions: Conditions | None, *, key: PRNGKeyArray
) -> Float[Array, "rows features"]:
    """Generated rows as a table would hold them, with their conditions: a teacher must not learn to tell a level from
    a mixture of levels, which costs votes and says nothing of the rows."""
    row_key, head_key = jax.random.split(key)
    logits, _, condition = generate(settings, learned.generator, num_rows, row_key, conditions)
    return critic_input(sample_features(logits, settings.blocks, key=head_key, masks=settings.masks), condition)


def query_batch(
    settings: Settings, voting: Voting, learned: State, conditions: Conditions | None, *, key: PRNGKeyArray
) -> tuple[Float[Array, "queries features"], Float[Array, "pool features"]]:
    """The rows to vote on, and all those they were chosen from: the student is least sure of them."""
    rows = sample_rows(settings, learned, max(MIN_POOL, voting.pool * voting.queries), conditions, key=key)
    if voting.pool == 1:
        return rows[: voting.queries], rows
    among = rows[: voting.pool * voting.queries]
    unsure = jnp.argsort(jnp.abs(jax.vmap(learned.critic)(among)))
    return among[unsure[: voting.queries]], rows


def append_labels(
    voting: Voting, labelled: LabelledRows, rows: Float[Array, "queries features"], noisy: Float[Array, " queries"]
) -> LabelledRows:
    """The memory with these rows in the places of the oldest ones; a row without an answer is left out."""
    share = noisy / voting.teachers
    labels = (share > 0.5).astype(jnp.float32) if voting.labels == "majority" else share
    if voting.threshold is not None:
        answered = ~jnp.isnan(noisy)
        at = (labelled.count + jnp.cumsum(answered) - 1) % voting.memory
        at = jnp.where(answered, at, voting.memory)  # beyond the end, where nothing is written
        kept = labelled.rows.at[at].set(rows, mode="drop"), labelled.labels.at[at].set(labels, mode="drop")
        return LabelledRows(*kept, labelled.count + answered.sum(dtype=jnp.int32))
    at = (labelled.count + jnp.arange(len(rows))) % voting.memory
    return LabelledRows(labelled.rows.at[at].set(rows), labelled.labels.at[at].set(labels), labelled.count + len(rows))


def student_step(
    settings: Settings, voting: Voting, learned: State, labelled: LabelledRows, rate: Array, *, key: PRNGKeyArray
) -> State:
    """One step of cross-entropy on labelled rows. It is linear in a label, so noise on labels adds no bias."""
    draw_key, drop_key = jax.random.split(key)
    most = jnp.minimum(labelled.count, voting.memory)
    at = jax.random.randint(draw_key, (voting.student_batch,), 0, jnp.maximum(most, 1))
    rows, labels = labelled.rows[at], labelled.labels[at]
    keys = jax.random.split(drop_key, voting.student_batch)

    @eqx.filter_grad
    def gradient(student: CriticNetwork) -> Array:
        scores = jax.vmap(lambda row, k: student(row, key=k))(rows, keys)
        value = jnp.mean(jax.nn.softplus(scores) - labels * scores)
        if kind := LOSSES[settings.loss].penalty:
            value = value + PENALTY * jnp.mean(
                jax.vmap(lambda row, k: gradient_penalty(student, row, None, kind, k))(rows, keys)
            )
        return value

    direction, optimizer = gradient(learned.critic), optimizer_of(settings)
    student, moments = optimizer_step(optimizer, learned.critic, direction, learned.critic_moments, rate)
    after = dataclasses.replace(learned, critic=student, critic_moments=moments)
    if voting.threshold is None:
        return after
    # Where no row has been labelled yet there is nothing to learn from.
    return jax.tree_util.tree_map(
        lambda new, old: jnp.where(labelled.count > 0, new, old) if eqx.is_array(new) else new, after, learned
    )


# ------------------------------------------------------------------------------------------------------------ the loop


def advance(
    settings: Settings,
    voting: Voting,
    state: PateState,
    charged: ChargedVotes,
    hyperparameters: Hyperparameters,
    key: PRNGKeyArray,
    count: int,
    context: Context,
) -> PateState:
    """`count` iterations. The key belongs to the whole run: iteration t uses its t-th key, wherever a run is cut."""
    conditions = context.conditions
    teaching = teaching_of(settings, voting, conditions)

    def iteration(state: PateState, _: None) -> tuple[PateState, None]:
        learned, labelled, teachers = state.learned, state.labelled, state.teachers
        step_key = jax.random.fold_in(key, learned.iteration)
        teach_key, ask_key, learn_key, generator_key = jax.random.split(step_key, 4)
        for number in range(voting.teacher_steps):
            fake_key, own_key = jax.random.split(jax.random.fold_in(teach_key, number))
            fakes = sample_rows(settings, learned, voting.teacher_batch, conditions, key=fake_key)
            teachers = teacher_step(charged, teachers, teaching, fakes, key=own_key)
        rows, others = query_batch(settings, voting, learned, conditions, key=ask_key)
        asked = learned.iteration * voting.queries  # rows put to the vote so far, labelled or not
        noisy = noisy_votes(charged, teachers, rows, others, against=voting.against, first=asked)
        labelled = append_labels(voting, labelled, rows, noisy)
        for number in range(voting.student_steps):
            student_key = jax.random.fold_in(learn_key, number)
            learned = student_step(
                settings, voting, learned, labelled, hyperparameters.critic_learning_rate, key=student_key
            )
        learned = generator_step(settings, learned, hyperparameters, generator_key, context)
        return PateState(learned, labelled, teachers), None

    return jax.lax.scan(iteration, state, None, length=count)[0]


def train_by_votes(
    settings: Settings,
    voting: Voting,
    charged: ChargedVotes,
    hyperparameters: Hyperparameters,
    key: PRNGKeyArray,
    *,
    learned: State,
    context: Context | None = None,
    options: RunOptions | None = None,
) -> tuple[State, list[TrainingCheckpoint]]:
    """All iterations, from these learners; of the final state, what the charged votes cover, and the trajectory.

    `key` makes batches and generated rows, and must tell nothing of the key that made the learners. A run that would
    make more queries than were charged is refused.
    """
    context, options = context or Context(), options or RunOptions()
    charged_iterations = charged.num_queries // voting.queries
    iterations = charged_iterations if options.iterations is None else options.iterations
    charged.check_queries(iterations, voting.queries)
    run_key, teacher_key = jax.random.split(key)
    run = cached_jit(advance, settings, voting)

    def advance_from(state: PateState, first: int, count: int) -> PateState:
        return run(state, charged, hyperparameters, run_key, count, context)

    state, trajectory = run_training(
        advance_from,
        init_state(settings, voting, learned, context, teacher_key=teacher_key),
        iterations,
        options,
        advice=gan.ADVICE,
    )
    return state.learned, trajectory
