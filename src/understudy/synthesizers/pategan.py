"""PATE-GAN: a generator taught by a student that hears noisy votes of teachers on disjoint parts of the rows.

Jordon, Yoon and van der Schaar, "PATE-GAN: generating synthetic data with differential privacy guarantees", 2019.
Public implementations were audited and found not to be private: teachers share rows or weights, students see real
rows, costs follow from the votes. Here parts are drawn once by each unit's own coin, teachers are independent members
of one population, what learns from votes has no way to a row, and the number of queries and the price are fixed in
advance. Noise is on the one count of yes votes, Gaussian by default. Columns are binned, one-hot and held to bought
counts as in `dpgan`, by default also to those of each column with the target.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Annotated

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from understudy.encoding.features import FEATURES, MODES, Blocks, Layout, layout_of
from understudy.errors import ConfigError
from understudy.models.generator import GeneratorModel
from understudy.models.networks import GENERATORS
from understudy.notes import Level, Note
from understudy.privacy.charges import charge_votes, event_of
from understudy.privacy.events import Gaussian, Pure
from understudy.privacy.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.pate import LAWS, vote_scale
from understudy.privacy.rows import PrivateRows, PublicRows
from understudy.progress import Progress
from understudy.schema import Domain
from understudy.settings import Advice, AtLeast, Count, Fraction, NotNegative, OneOf, Positive, Widths, check_settings
from understudy.synthesizers.dpgan import (
    MOST_LEVELS,
    anchors,
    bought_shares,
    check_shares,
    histograms,
    ledger_key,
    target_block,
    trajectory_of,
    warmed_up,
)
from understudy.synthesizers.protocol import Capabilities, PublicUse
from understudy.training.critics import Conditions, one_hot_blocks
from understudy.training.gan import Dials, Kept, Settings, State
from understudy.training.pate import LOSSES_OF_VOTES, Voting, fresh_learners, train_by_votes
from understudy.training.trajectory import Trajectory

ROWS_EACH = 32
"""Rows of a teacher, if nothing is said: more teachers outvote more noise, and their weak opinions add up."""
LEAST_EACH = 8
"""With fewer rows for a teacher than this, a plan warns."""
MOST_TEACHERS = 2000
"""If nothing is said: teachers cost time."""
MARGIN = 0.5
"""Noise in units of the full margin, k / 2 votes, above which a plan warns ..."""
AIM = 0.25
"""... and at which it is held by the number of queries, if nothing is said."""
MOST_ASKED = 64
AGREE = 0.75
"""The share of teachers that are assumed to be of one mind where the plan says how often a label is right."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PATEGAN:
    """A generator taught by a student that hears only the noisy votes of teachers, each with rows of its own."""

    teachers: Annotated[int, AtLeast(2), Advice("Instead of a single teacher use dpgan.")] | None = None
    """Parts of the rows, each with a teacher. Left out: one for every 32 of the public number of rows, at most 2000."""
    queries: Count | None = None
    """Generated rows put to the vote in the whole run. More of them mean more noise on each, at the same price. Left
    out: as many as keep the noise at a quarter of the margin, from one to 64 in each iteration."""
    iterations: Count = 300
    """Generator steps. A multiple of them are queries."""
    noise: Annotated[str, OneOf(*LAWS)] = "gaussian"
    """gaussian, or laplace, which needs a number of queries and costs more for many."""
    labels: Annotated[str, OneOf("share", "majority")] = "share"
    """What the student hears: the noisy share of votes, or the side of one half on which it lies (majority)."""
    against: Annotated[str, OneOf("median", "half")] = "median"
    """What a teacher compares a row with: its median of generated rows, or even odds (half), as published."""
    pool: Count = 4
    """PrivateRows are asked about of which the student is least sure, among so many times as many; 1: any."""
    cross: bool = True
    """Whether student and teachers see each column also together with the target, where there is one."""
    teacher_widths: Widths | None = None
    """Left out: no hidden layer where rows are crossed with the target, else one of 8."""
    teacher_batch: Count = 16
    """A teacher's own rows, and generated ones, in each of its steps."""
    teacher_steps: Count = 1
    """Steps of each teacher in an iteration; they cost time, and no budget."""
    teacher_learning_rate: Positive = 2e-2
    student_batch: Count = 256
    student_steps: Count = 4
    """Steps of the student in an iteration, on labelled rows of this and earlier ones."""
    memory: Count = 8192
    """Labelled rows that are kept for the student."""
    loss: Annotated[str, OneOf(*LOSSES_OF_VOTES)] = "gan"
    """gan, saturating_gan or dragan."""
    arch: Annotated[str, OneOf(*GENERATORS)] = "residual"
    """residual, plain or quail_dpgan."""
    features: Annotated[str, OneOf(*FEATURES)] = "binned"
    """What the networks see of a number: binned (a level for each bin), typed (a bounded number, or bits) or modes."""
    modes: Annotated[str, OneOf(*MODES)] = "private"
    """Of features="modes": components fitted to bought histograms, or a public_grid of them."""
    num_modes: Count = 10
    latent: Count = 64
    generator_widths: Widths = (256, 256)
    critic_widths: Widths | None = None
    """Of the student. Left out: no hidden layer where rows are crossed with the target, else one of 32: its labels are
    noisy."""
    critic_learning_rate: Positive = 1e-2
    """Of the student."""
    generator_learning_rate: Positive = 4e-3
    marginals_fraction: Fraction = 0.1
    """The part of the budget for noisy one-way counts."""
    target_fraction: Fraction = 0.1
    """The part of the budget for noisy counts of each column with the target, where features are binned and the target
    is no number and has no more than 8 declared levels."""
    marginal_weight: NotNegative = 30.0
    """How strongly the generator is held to them."""
    gumbel_temperature: Positive = 0.5
    ema_decay: Fraction = 0.99
    """Decay of the generator's running average, which is what is released."""
    betas: tuple[Fraction, Fraction] = (0.5, 0.9)
    """Of Adam."""
    warm_steps: Count = 500
    """With a public table: steps of generator and student on its rows before the first vote."""

    def __post_init__(self) -> None:
        check_settings(self)
        check_shares(self.marginals_fraction, self.target_fraction)
        if self.queries is not None and self.queries % self.iterations:
            raise ConfigError(
                f"queries must be a multiple of iterations ({self.iterations}), found {self.queries}: each iteration "
                "puts the same number of rows to the vote."
            )
        if self.noise == "laplace" and self.queries is None:
            raise ConfigError("law 'laplace' needs a number of queries: its price grows with it. Set queries.")
        # Unknown words are refused before anything is spent.
        self._settings(one_hot_blocks((2, 2)), None)
        self._voting(2 if self.teachers is None else self.teachers, 1, None)

    @property
    def capabilities(self) -> Capabilities:
        is_held = self.marginals_fraction > 0 and self.target_fraction > 0 and self.features == "binned"
        return Capabilities(trajectory=True, critics=True, public=PublicUse.ACCEPTED, target=self.cross or is_held)

    # ------------------------------------------------------------------------------------------------------- planning

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """Bundles of histograms, then all votes, which fill what is left. No price depends on the rows.

        Nor on the number of teachers or Gaussian queries: these set how much the same money tells.
        """
        target_fraction = self.target_fraction * (self.features == "binned")
        planned = histograms(domain, budget, self.marginals_fraction, target_fraction)
        left = budget.after(planned)
        event: Gaussian | Pure
        if self.noise == "gaussian":
            event = Gaussian(left.calibrate(lambda noise: [Gaussian(noise, floating=True)]), floating=True)
        else:
            rounds = self.queries or 1
            event = Pure(1 / left.calibrate(lambda noise: [Pure(1 / noise, rounds)]), rounds)
        teachers, queries = self.chosen(domain, event)
        planned.append(Query("votes", "noisy votes of all teachers on generated rows", event, columns=domain.names))
        scale = _scale(event, queries) if budget.is_private else 0.0
        return Plan(tuple(planned), self._notes(domain, teachers, queries, scale))

    def chosen(self, domain: Domain, event: Gaussian | Pure) -> tuple[int, int]:
        """Teachers and queries, as set, or else by the public number of rows and the noise that the budget leaves.

        Refused is only what is declared: a refusal by a bought number of rows would show it without a certificate.
        """
        num_rows = domain.num_rows
        teachers = min(max(2, num_rows // ROWS_EACH), MOST_TEACHERS) if self.teachers is None else self.teachers
        if domain.declared_rows is not None and teachers > max(2, domain.declared_rows):
            raise ConfigError(
                f"{teachers} teachers need as many rows at least, and {domain.declared_rows} are declared. Set fewer "
                "teachers, or use another method, such as mst."
            )
        if self.queries is not None or isinstance(event, Pure):
            return teachers, self.queries or 1
        enough = (AIM * teachers / 2 / event.noise_multiplier) ** 2
        return teachers, self.iterations * min(max(1, math.floor(enough / self.iterations)), MOST_ASKED)

    def _notes(self, domain: Domain, teachers: int, queries: int, scale: float) -> tuple[Note, ...]:
        """What can be known of the votes before any is cast."""
        margin = 2 * scale / teachers
        # Both laws by their own tails: how often the noise does not turn the majority.
        reach = (AGREE - 0.5) * teachers / scale if scale else math.inf
        laplace = 1 - math.exp(-reach) / 2
        right = 0.5 * (1 + math.erf(reach / math.sqrt(2))) if self.noise == "gaussian" else laplace
        spread = "standard deviation" if self.noise == "gaussian" else "scale"
        texts = [
            f"{teachers:,} teachers of about {domain.num_rows / teachers:,.0f} rows each vote on {queries:,} generated "
            f"rows, {queries // self.iterations} in each of {self.iterations} iterations.",
            f"Noise of a vote: {spread} {scale:,.1f} votes, {margin:.2f} of the full margin of {teachers / 2:,g}. If "
            f"three teachers in four are of one mind about a row, its noisy majority is right with probability "
            f"{right:.2f}.",
        ]
        notes = [Note(text) for text in texts]
        if margin > MARGIN * 1.001:
            fewer = max(1, math.floor(queries * (MARGIN / margin) ** 2 / self.iterations)) * self.iterations
            help_ = [f"more rows (about {domain.num_rows * margin / MARGIN:,.0f} with as many for each teacher)"]
            help_ += [f"fewer queries (queries={fewer})"] if fewer < queries else ["fewer iterations"]
            notes.append(
                Note(
                    f"The noise is {margin:.2f} of the full margin, above {MARGIN:g}: most of what the teachers "
                    f"say will be lost. What would help: {', '.join(help_)}, a larger epsilon, or another method: mst, "
                    "aim or dpgan learn more from so few rows.",
                    Level.WARNING,
                )
            )
        notes.append(Note("On the tables measured so far gem, aim and dpgan learn more, or as much, at this price."))
        if domain.num_rows < LEAST_EACH * teachers:
            notes.append(
                Note(
                    f"Fewer than {LEAST_EACH} rows for each teacher, if there are {domain.num_rows:,} rows: they "
                    "will know next to nothing, however little noise their votes have. Set fewer teachers, or use "
                    "another method.",
                    Level.WARNING,
                )
            )
        if domain.target is not None:
            has_pairs = self.target_fraction and self.features == "binned" and target_block(domain) is not None
            done = ["student and teachers see every column together with it"] if self._crosses(domain) else []
            done += ["the generator is held to noisy counts of every column with it"] if has_pairs else []
            used = " and ".join(done) or "a column like any other here"
            notes.append(Note(f"The target, {domain.target!r}: {used}."))
        return tuple(notes)

    def _crosses(self, domain: Domain) -> bool:
        """Whether there is a target of few levels, which is shown level by level."""
        if not self.cross or domain.target is None or domain.shape((domain.target,))[0] > MOST_LEVELS:
            return False
        return self.features == "binned" or domain.target not in domain.numeric

    # -------------------------------------------------------------------------------------------------------- fitting

    def fit(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        public: PublicRows | None = None,
        progress: Progress | None = None,
    ) -> GeneratorModel:
        """Formal guarantee: the price of the plan's queries; student, generator and averages are post-processing.

        Teachers never leave the training. Rows of a `public` table warm student and generator up. They are not
        protected.
        """
        state, _, model_of = self._trained(rows, plan, ledger, progress, key=key, public=public)
        return model_of(state)

    def num_checkpoints(self, every: int) -> int:
        """How many checkpoints there are if one is kept every so many generator steps."""
        return self.iterations // every

    def trajectory(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        checkpoints: int,
        every: int,
        public: PublicRows | None = None,
        progress: Progress | None = None,
    ) -> Trajectory:
        """Generators, averaged, and students of the last `checkpoints` states. Formal guarantee: that of `fit`."""
        _, kept, model_of = self._trained(
            rows, plan, ledger, progress, key=key, public=public, keep_every=every, keep_last=checkpoints
        )
        return trajectory_of(kept, model_of)

    def _trained(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        progress: Progress | None,
        *,
        key: PRNGKeyArray,
        public: PublicRows | None = None,
        keep_every: int = 0,
        keep_last: int | None = None,
    ) -> tuple[State, list[Kept], Callable[[State | Kept], GeneratorModel]]:
        """The last state, those kept on the way, and what makes a model of one."""
        domain, query = rows.domain, plan["votes"]
        teachers, queries = self.chosen(domain, event_of(query, Gaussian, Pure))
        marginals, crossed = bought_shares(rows, plan, ledger)
        layout = self._layout(rows, marginals)
        marginal, held = anchors(layout, marginals, crossed)
        shown = None if self.features == "binned" else layout
        charged = charge_votes(rows, query, ledger, num_teachers=teachers, num_queries=queries, layout=shown)
        cross = None
        if self._crosses(domain):
            assert domain.target is not None
            cross = layout.discrete.index(domain.index(domain.target))
        settings, voting = (
            self._settings(layout.blocks, cross),
            self._voting(teachers, queries // self.iterations, cross),
        )
        settings = dataclasses.replace(settings, held_with=target_block(domain) if crossed is not None else None)
        dials = Dials.of(self.critic_learning_rate, self.generator_learning_rate, math.inf)
        conditions = self._conditions(layout, marginal, rows.public_num_rows)
        network_key, feature_key, warm_key = jax.random.split(key, 3)
        warm = None
        if public is not None:
            warm = warmed_up(
                settings,
                public.arrange(shown, key=feature_key),
                dials,
                warm_key,
                fresh_learners(settings, voting, dials, network_key, conditioned=conditions is not None, marginal=held),
                iterations=self.warm_steps,
                conditions=conditions,
                marginal=held,
                progress=progress,
            )
        state, kept = train_by_votes(
            settings,
            voting,
            charged,
            dials,
            ledger_key(ledger),
            network_key=network_key,
            iterations=self.iterations,
            conditions=conditions,
            marginal=held,
            learned=warm,
            keep_every=keep_every,
            keep_last=keep_last,
            progress=progress,
            slot=ledger.slot(),
        )

        def model_of(state: State | Kept) -> GeneratorModel:
            return GeneratorModel(
                jax.device_get(state.average),
                self.arch,
                domain.names,
                settings.blocks,
                self.latent,
                self.generator_widths,
                None if conditions is None else np.asarray(conditions.marginal),
                shown,
            )

        return state, kept, model_of

    def _layout(self, rows: PrivateRows, marginals: Sequence[np.ndarray] | None) -> Layout:
        return layout_of(self.features, rows.domain, rows.scales, marginals, modes=self.modes, num_modes=self.num_modes)

    def _conditions(self, layout: Layout, marginal: Array | None, num_rows: int) -> Conditions | None:
        """None: this generator takes no condition."""
        return None

    def _voting(self, teachers: int, asked: int, cross: int | None) -> Voting:
        widths = self.teacher_widths
        return Voting(
            teachers=teachers,
            asked=asked,
            pool=self.pool,
            teacher_widths=(8,) * (cross is None) if widths is None else widths,
            teacher_batch=self.teacher_batch,
            teacher_steps=self.teacher_steps,
            teacher_learning_rate=self.teacher_learning_rate,
            student_batch=self.student_batch,
            student_steps=self.student_steps,
            memory=max(self.memory, asked),
            labels=self.labels,
            against=self.against,
            cross=cross,
        )

    def _settings(self, blocks: Blocks, cross: int | None) -> Settings:
        widths = self.critic_widths
        return Settings(
            blocks=blocks,
            batch=self.teacher_batch,
            loss=self.loss,
            latent=self.latent,
            generator=self.arch,
            generator_widths=self.generator_widths,
            critic_widths=(32,) * (cross is None) if widths is None else widths,
            temperature=self.gumbel_temperature,
            average=self.ema_decay,
            betas=self.betas,
            anchor=self.marginal_weight if self.marginals_fraction else 0.0,
        )


def _scale(event: Gaussian | Pure, queries: int) -> float:
    return vote_scale(event.noise_multiplier, queries) if isinstance(event, Gaussian) else 1 / event.epsilon
