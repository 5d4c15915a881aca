"""PATE-GAN: a generator trained against a student that sees noisy votes of teachers on disjoint partitions.

Jordon, Yoon and van der Schaar, "PATE-GAN: generating synthetic data with differential privacy guarantees", 2019.
Public implementations were audited and found not to be private: teachers share rows or weights, students see real
rows, costs follow from the votes. Here units are partitioned once, at random, teachers are independent
members of one population, what learns from votes has no way to a row, and the number of queries and the cost are fixed
in advance. Noise is on the one count of yes votes, Gaussian by default. Columns are binned, one-hot and regularised
towards noisy marginals as in `dpgan`, by default also towards those of each column with the target.
"""

import dataclasses
import math
from typing import Annotated

import jax
import numpy as np

from understudy.encoding.features import Blocks, Layout, OneHot
from understudy.errors import ConfigError
from understudy.models.zeros import Masks
from understudy.notes import Level, Note
from understudy.privacy.accounting.events import DiscreteLaplace, Gaussian
from understudy.privacy.accounting.ledger import Budget, Plan, Query
from understudy.privacy.gradients.charges import charge_votes, event_of
from understudy.privacy.gradients.pate import vote_stddev
from understudy.schema import Domain
from understudy.synthesizers.neural import ConditionalMethod, TargetMethod, Trained
from understudy.synthesizers.protocol import Capabilities, PublicUse
from understudy.synthesizers.run import Run
from understudy.synthesizers.settings import Advice, Count, Fraction, OneOf, Positive, Range, Widths
from understudy.training.calls import eager
from understudy.training.critics import one_hot_blocks
from understudy.training.gan import Hyperparameters
from understudy.training.generation import Context
from understudy.training.loop import RunOptions
from understudy.training.pate import (
    LOSSES_OF_VOTES,
    THRESHOLD_FRACTION,
    Voting,
    VotingSettings,
    init_learners,
    train_by_votes,
)
from understudy.training.prepare import MAX_LEVELS, Prepared, plan_marginals, prepare, target_block, warm_start
from understudy.training.settings import (
    AveragingSettings,
    FeatureSettings,
    GeneratorSettings,
    LearningSettings,
    MarginalSettings,
    Settings,
    TargetSettings,
)

ROWS_EACH = 32
"""Rows of a teacher, if nothing is said: more teachers outvote more noise, and their weak opinions add up."""
MIN_EACH = 8
"""With fewer rows for a teacher than this, a plan warns."""
MAX_TEACHERS = 2000
"""If nothing is said: teachers cost time."""
MARGIN = 0.5
"""Noise in units of the full margin, k / 2 votes, above which a plan warns ..."""
AIM = 0.25
"""... and the value that the number of queries is chosen for, if it is left out."""
MAX_QUERIES = 64
WARM_STEPS = 500
"""With a public table: steps of generator and student on its rows before the first vote."""
AGREE = 0.75
"""The fraction of teachers that the plan assumes to agree when it states how often a label is right."""

NO_CONDITION = (
    "patectgan needs a discrete column to condition on, and with features={!r} this table has none. Use "
    "features=binned, which makes all of them discrete, or pategan."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VoteGAN(
    VotingSettings,
    FeatureSettings,
    GeneratorSettings,
    AveragingSettings,
    LearningSettings,
    MarginalSettings,
    TargetSettings,
    TargetMethod,
):
    """What pategan and patectgan share: all but their conditions."""

    teachers: Annotated[int, Range(2), Advice("Instead of a single teacher use dpgan.")] | None = None
    """Partitions of the rows, each with a teacher. Left out: one for every 32 of the public number of rows, at most
    2000."""
    queries: Count | None = None
    """Generated rows put to the vote in the whole run. More of them mean more noise on each, at the same cost. Left
    out: as many as keep the noise at a quarter of the margin, from one to 64 in each iteration."""
    iterations: Count = 300
    """Generator steps. The number of queries is a multiple of it."""
    vote_noise: Annotated[str, OneOf("gaussian", "laplace")] = "gaussian"
    """gaussian, or laplace, which needs a number of queries and costs more for many."""
    cross: bool = True
    """Whether student and teachers see each column also together with the target, where there is one."""
    loss: Annotated[str, OneOf(*LOSSES_OF_VOTES)] = "gan"
    """gan, saturating_gan or dragan."""
    critic_widths: Widths | None = None
    """Of the student. Left out: no hidden layer where rows are crossed with the target, else one of 32: its labels are
    noisy."""
    critic_learning_rate: Positive = 1e-2
    """Of the student."""
    target_fraction: Fraction = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.queries is not None and self.queries % self.iterations:
            raise ConfigError(
                f"queries must be a multiple of iterations ({self.iterations}), found {self.queries}: every iteration "
                "votes on the same number of rows.",
                setting="queries",
            )
        if self.vote_noise == "laplace" and self.queries is None:
            raise ConfigError(
                "vote_noise=laplace needs a number of queries, because its privacy cost grows with it. Set queries.",
                setting="queries",
            )
        if self.vote_noise == "laplace" and self.threshold is not None:
            raise ConfigError(
                "A threshold is tested under Gaussian noise, and cannot be combined with vote_noise=laplace. Leave one "
                "of them out.",
                setting="threshold",
            )
        # Unknown words are refused before anything is spent.
        self._settings(one_hot_blocks((2, 2)), None, None)
        Voting.of(self, teachers=2 if self.teachers is None else self.teachers, queries=1, cross=None)

    @property
    def capabilities(self) -> Capabilities:
        """A target matters if the columns are crossed with it, or labelled rows hold it."""
        target = self.cross or self._holds_target
        return Capabilities(trajectory=True, critics=True, public=PublicUse.ACCEPTED, target=target, rows=True)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """Bundles of histograms, then all votes, which fill what is left. No cost depends on the rows.

        Nor on the number of teachers or Gaussian queries: these set how informative the same budget is.
        """
        self.check_features(domain)
        target_fraction = self.target_fraction if self._holds_target else 0.0
        planned = plan_marginals(domain, budget, self.marginals_fraction, target_fraction)
        left = budget.after(planned)
        event: Gaussian | DiscreteLaplace
        if self.threshold is not None:
            event, test = self._confident(left.calibrate(self._confident))
            what = "noisy tests whether enough teachers agree, on all rows that are put to the vote"
            planned.append(Query("tests", what, test, columns=domain.names))
        elif self.vote_noise == "gaussian":
            event = Gaussian(left.calibrate(lambda noise: [Gaussian(noise)]))
        else:
            rounds = self.queries or 1
            event = DiscreteLaplace(1 / left.calibrate(lambda noise: [DiscreteLaplace(1 / noise, rounds)]), rounds)
        teachers, queries = self.chosen(domain, event)
        planned.append(Query("votes", "noisy votes of all teachers on generated rows", event, columns=domain.names))
        scale = _scale(event, teachers, queries) if budget.is_private else 0.0
        notes = self._notes(domain, teachers, queries, scale)
        if self.threshold is not None:
            deviation = _scale(test, teachers, queries) if budget.is_private else 0.0
            text = (
                f"A row is labelled if at least {self.threshold:.0%} of the teachers agree on it, by a test with noise "
                f"of standard deviation {deviation:,.1f} votes. All {queries:,} tests and votes are charged, whether "
                "rows are labelled or not."
            )
            notes = (*notes, Note(text))
        return Plan(tuple(planned), notes)

    def _confident(self, noise: float) -> tuple[Gaussian, Gaussian]:
        """The events of all votes and of all tests, which together cost one query of this noise multiplier."""
        fraction = THRESHOLD_FRACTION
        return Gaussian(noise / math.sqrt(1 - fraction)), Gaussian(noise / math.sqrt(fraction))

    def chosen(self, domain: Domain, event: Gaussian | DiscreteLaplace) -> tuple[int, int]:
        """Teachers and queries, as set, or else by the public number of rows and the noise that the budget leaves.

        Only a declared number is refused: a refusal by an estimated one would reveal it without a certificate.
        """
        num_rows = domain.num_rows
        teachers = min(max(2, num_rows // ROWS_EACH), MAX_TEACHERS) if self.teachers is None else self.teachers
        if domain.declared_rows is not None and teachers > max(2, domain.declared_rows):
            raise ConfigError(
                f"{teachers} teachers need at least {teachers} rows, but {domain.declared_rows} are declared. Set "
                "fewer teachers, or use another method, such as mst.",
                setting="teachers",
            )
        if self.queries is not None or isinstance(event, DiscreteLaplace):
            return teachers, self.queries or 1
        enough = (AIM * teachers / 2 / event.noise_multiplier) ** 2
        return teachers, self.iterations * min(max(1, math.floor(enough / self.iterations)), MAX_QUERIES)

    def _notes(self, domain: Domain, teachers: int, queries: int, scale: float) -> tuple[Note, ...]:
        """What can be known of the votes before any is cast."""
        margin = 2 * scale / teachers
        # Both laws by their own tails: how often the noise does not turn the majority.
        reach = (AGREE - 0.5) * teachers / scale if scale else math.inf
        laplace = 1 - math.exp(-reach) / 2
        right = 0.5 * (1 + math.erf(reach / math.sqrt(2))) if self.vote_noise == "gaussian" else laplace
        spread = "standard deviation" if self.vote_noise == "gaussian" else "scale"
        sentences = [
            f"{teachers:,} teachers of about {domain.num_rows / teachers:,.0f} rows each vote on {queries:,} generated "
            f"rows, {queries // self.iterations} in each of {self.iterations} iterations.",
            f"Noise of a vote: {spread} {scale:,.1f} votes, {margin:.2f} of the full margin of {teachers / 2:,g}. If "
            f"three teachers in four agree on a row, its noisy majority is right with probability {right:.2f}.",
        ]
        notes = list(map(Note, sentences))
        if margin > MARGIN * 1.001:
            fewer = max(1, math.floor(queries * (MARGIN / margin) ** 2 / self.iterations)) * self.iterations
            help_ = [f"more rows (about {domain.num_rows * margin / MARGIN:,.0f} with as many for each teacher)"]
            help_ += [f"fewer queries (queries={fewer})"] if fewer < queries else ["fewer iterations"]
            text = (
                f"The noise is {margin:.2f} of the full margin, above {MARGIN:g}: most of the votes will be lost in "
                f"noise. What would help: {', '.join(help_)}, a larger epsilon, or another method, such as mst or aim."
            )
            notes.append(Note(text, Level.WARNING))
        notes.append(Note("On the benchmark tables gem and aim are more accurate at the same privacy cost."))
        if domain.num_rows < MIN_EACH * teachers:
            text = (
                f"With {domain.num_rows:,} rows each teacher has fewer than {MIN_EACH}: teachers will learn almost "
                "nothing, regardless of the noise on their votes. Set fewer teachers, or use another method."
            )
            notes.append(Note(text, Level.WARNING))
        if domain.target is not None:
            has_pairs = self.target_fraction and self.features == "binned" and target_block(domain) is not None
            done = ["student and teachers see every column together with it"] if self._crosses(domain) else []
            done += ["noisy 2-way marginals with it constrain the generator"] if has_pairs else []
            used = " and ".join(done) or "treated like any other column"
            notes.append(Note(f"The target, {domain.target!r}: {used}."))
        return tuple(notes)

    def _crosses(self, domain: Domain) -> bool:
        """Whether there is a target of few levels, which is shown level by level."""
        if not self.cross or domain.target is None or domain.shape((domain.target,))[0] > MAX_LEVELS:
            return False
        return self.features == "binned" or domain.target not in domain.numeric

    def num_checkpoints(self, every: int) -> int:
        """The number of checkpoints if one is kept every `every` generator steps."""
        return self.iterations // every

    def _train(self, run: Run, options: RunOptions) -> Trained:
        """Teachers never leave the training: student, generator and averages are post-processing of noisy votes."""
        rows, ledger, domain, query = run.rows, run.ledger, run.domain, run.plan["votes"]
        teachers, queries = self.chosen(domain, event_of(query, Gaussian, DiscreteLaplace))
        prepared = self._prepare(run)
        charged = charge_votes(
            rows,
            query,
            ledger,
            num_teachers=teachers,
            num_queries=queries,
            layout=prepared.encoder,
            tests=None if self.threshold is None else run.plan["tests"],
            threshold=self.threshold or 1.0,
        )
        cross = None
        if self._crosses(domain):
            assert domain.target is not None
            cross = prepared.layout.discrete.index(domain.index(domain.target))
        settings = self._settings(prepared.layout.blocks, cross, prepared.target_block, prepared.masks)
        voting = Voting.of(self, teachers=teachers, queries=queries // self.iterations, cross=cross)
        hyperparameters = Hyperparameters.of(self.critic_learning_rate, self.generator_learning_rate, math.inf)
        context = Context(self._conditions(prepared, rows.public_num_rows), prepared.marginal)
        network_key, feature_key, warm_key = jax.random.split(run.key, 3)
        learned = eager(init_learners, settings, voting)(hyperparameters, network_key, context)
        if run.public is not None:
            units = run.public.arrange(prepared.encoder, key=feature_key)
            steps, tell = WARM_STEPS, run.progress
            learned = warm_start(
                settings, units, hyperparameters, warm_key, learned, context, iterations=steps, progress=tell
            )
        trained = train_by_votes(
            settings,
            voting,
            charged,
            hyperparameters,
            ledger.noise.key(),
            learned=learned,
            context=context,
            options=dataclasses.replace(options, chunk=50, slot=ledger.slot()),
        )
        names, conditions = domain.names, context.conditions
        return Trained(*trained, lambda generator: prepared.model(self, names, generator, conditions))

    def _prepare(self, run: Run) -> Prepared:
        return prepare(self, run.rows, run.plan, run.ledger)

    def _settings(self, blocks: Blocks, cross: int | None, block: int | None, masks: Masks = ()) -> Settings:
        return Settings.of(
            self,
            blocks=blocks,
            batch_size=self.teacher_batch,
            critic_widths=(32,) * (cross is None) if self.critic_widths is None else self.critic_widths,
            marginal_weight=self.marginal_weight if self.marginals_fraction else 0.0,
            target_block=block,
            masks=masks,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PATEGAN(VoteGAN):
    """A GAN whose student critic sees only noisy votes of teachers, each trained on its own partition of the units.

    >>> import understudy as us
    >>> us.express(us.PATEGAN(teachers=100))  # as --method reads it
    'pategan(teachers=100)'
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class PATECTGAN(ConditionalMethod, VoteGAN):
    """PATE-GAN with a generator conditioned on a category of one column.

    After Rosenblatt et al., "Differentially private synthetic data: applied evaluations and enhancements", 2020, whose
    published code trains teachers and student as one network on private rows, and lets every teacher see frequencies of
    all. Here conditions, their law and the components of numbers come from noisy one-way marginals; a teacher takes the
    condition of a real row from that row; the condition of a generated row is part of the question.

    >>> import understudy as us
    >>> us.express(us.PATECTGAN(teachers=100))  # as --method reads it
    'patectgan(teachers=100)'
    """

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """As that of pategan; a table of numbers alone is refused where they are not discrete."""
        if self.features == "typed" and set(domain.names) <= set(domain.numeric):
            raise ConfigError(NO_CONDITION.format(self.features), setting="features")
        return super().plan(domain, budget)

    def _prepare(self, run: Run) -> Prepared:
        return prepare(self, run.rows, run.plan, run.ledger, layout_fn=lambda layout: with_discrete(layout, run.domain))


def with_discrete(layout: Layout, domain: Domain) -> Layout:
    """The layout; if no column in it is discrete, with the numeric column of the fewest bins shown bin by bin.

    Which numeric columns are discrete may depend on estimated bounds, so this causes no refusal.
    """
    if any(column is not None for column in layout.discrete):
        return layout
    at = int(np.argmin(domain.sizes))
    return Layout((*layout.columns[:at], OneHot(domain.sizes[at]), *layout.columns[at + 1 :]))


def _scale(event: Gaussian | DiscreteLaplace, teachers: int, queries: int) -> float:
    if isinstance(event, DiscreteLaplace):
        return 1 / event.epsilon
    return vote_stddev(event.noise_multiplier, num_queries=queries, num_teachers=teachers)
