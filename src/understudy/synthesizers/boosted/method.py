"""Private post-GAN boosting and its plain baseline, DRS: wrappers around a method whose training can be followed.

Neunhoeffer, Wu and Dwork, "Private Post-GAN Boosting", 2021; rejection sampling after Azadi et al. as in its authors'
code. Deviations: means are over all rows and divided by the public number of rows (the published census runs use 2,000
rows and account for them as all); the exponent is that of one-sided sums, twice the paper's at the same privacy cost;
selections are accounted for by their bounded range instead of basic composition (1940 census: 0.014, not 0.2); cells
of marginals can join the critics as distinguishers.
"""

import dataclasses
import itertools
import math
from typing import Annotated

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from understudy.errors import ConfigError
from understudy.models.pool import WEIGHT_COLUMN, Pool
from understudy.models.protocol import Sample, concatenate
from understudy.notes import Level, Note
from understudy.privacy.accounting.events import Selections
from understudy.privacy.accounting.ledger import Budget, Plan, Query
from understudy.privacy.accounting.statement import round_up
from understudy.privacy.gradients.charges import event_of
from understudy.privacy.mechanisms.selection import RowFunctions, noisy_function_selections
from understudy.privacy.rows.rows import Clique
from understudy.progress import stretch_progress
from understudy.schema import Domain
from understudy.synthesizers.boosted.game import (
    AVERAGES,
    FAILURE,
    REJECTIONS,
    Cells,
    Constant,
    Distinguishers,
    LearningRate,
    Outcome,
    Together,
    draw_accepted,
    draw_distinct,
    evaluate_critics,
    expected_miss,
    play,
    promised_gap,
    reject_exactly,
    rejection_sample,
)
from understudy.synthesizers.protocol import Capabilities, HasTrajectory, check_trajectory
from understudy.synthesizers.registry import name_of
from understudy.synthesizers.run import Run, calibrate_query
from understudy.synthesizers.settings import Advice, Count, InnerFraction, Listed, OneOf, check_settings
from understudy.training.trajectory import Trajectory

OUTPUTS = ("iid", "distinct", "weighted")
DISTINGUISHERS = ("auto", "none", "one_way", "target", "two_way")
MANY = 100
"""The default number of checkpoints, if there are that many."""
FEW_PAIRS = 150
"""The largest number of 2-way marginals with `auto` (17 columns have 136): each costs time."""
LARGE_MISS = 0.2
"""A mean gap to the best distinguisher, of gains from 0 to 1, at which a selection is hardly better than chance."""


@dataclasses.dataclass(frozen=True)
class Boosted:
    """Rows of many checkpoints of a GAN, reweighted until no distinguisher separates them from real rows.

    >>> import understudy as us
    >>> us.express(us.Boosted(us.DPGAN(steps=2000), rounds=100))  # as --method reads it
    'boosted(dpgan(steps=2000), rounds=100)'
    """

    inner: HasTrajectory
    """The method to train: a GAN, or gem. If it has no critics, all distinguishers are cells of marginals."""
    _: dataclasses.KW_ONLY
    rounds: Count = 400
    """Rounds of the game. Each is one private selection of a distinguisher, and costs budget."""
    checkpoints: Count | None = None
    """The number of last checkpoints to use, each with its generator and its critic. None: 100, or all if there are
    fewer."""
    checkpoint_every: Count = 5
    """Generator steps from one checkpoint to the next."""
    samples_per_generator: Count = 1000
    """The number of rows that each checkpoint generates."""
    selection_fraction: Annotated[InnerFraction, Advice("The rest trains the inner method; 0.1 is usual.")] = 0.1
    """The fraction of the budget for the selections."""
    distinguishers: Annotated[str, OneOf(*DISTINGUISHERS)] | tuple[Annotated[Clique, Listed(1, distinct=True)], ...] = (
        "auto"
    )
    """Marginals whose cells are distinguishers beside the critics: none, one_way, target (2-way with the target),
    two_way, or a list of lists of columns. They add no privacy cost, but a selection among more is less accurate. auto:
    two_way if there are few columns, else target, or one_way without a target. Critics alone improve the joint
    distribution at the expense of marginals."""
    constant: bool = True
    """Whether the constant 1/2 is among the distinguishers: with it the value of the game is at least 1."""
    learning_rate: LearningRate = "paper"
    """paper, sqrt as in its authors' code, or a number: how much one selection changes the log weight of a row."""
    averaging: Annotated[str, OneOf(*AVERAGES)] = "all"
    """The rounds to average over: all, last_window, or sqrt_weighted."""
    window: Count = 150
    """The number of rounds of last_window."""
    after_update: bool = False
    """Whether to average each round's weights after their update, as the authors' code does."""
    output: Annotated[str, OneOf(*OUTPUTS)] = "iid"
    """iid: rows are sampled by their weights. distinct: the distinct rows of one such sample, with equal weights.
    weighted: rows are sampled with equal probability, and a column `sample_weight` has the weight of each."""
    drs: bool = False
    """Discriminator rejection sampling of boosted rows, by the mixture of selected distinguishers."""
    rejection: Annotated[str, OneOf(*REJECTIONS)] = "distinct"
    """What drs rejects. distinct: the distinct rows of one sample, as in the authors' code. draws: independent samples
    by weight, as in the paper's text. exact: nothing is sampled; weights are multiplied by the odds of the mixture."""

    def __post_init__(self) -> None:
        check_trajectory("boosted", self.inner)
        check_settings(self)
        if not self.inner.capabilities.critics and self.distinguishers in ("none", ()):
            raise ConfigError(
                f"{name_of(self.inner)} has no critics, so distinguishers cannot be none. Set them, as in "
                "distinguishers=two_way.",
                setting="distinguishers",
            )
        kept = self.inner.num_checkpoints(self.checkpoint_every)
        if not 0 < self._count <= kept:
            raise ConfigError(
                f"checkpoints is {max(1, self._count)}, but {name_of(self.inner)} has only {kept} with one every "
                f"{self.checkpoint_every} generator steps. Lower checkpoints or checkpoint_every, or train longer.",
                setting="checkpoints",
            )
        if self._count * self.samples_per_generator < 2:
            raise ConfigError(
                "A pool of one row cannot be reweighted. Raise samples_per_generator.", setting="samples_per_generator"
            )
        if self.rejection != "distinct" and (not self.drs or self.output == "distinct"):
            raise ConfigError(
                f"rejection={self.rejection} needs drs=true and output iid or weighted. Set both, or leave it out.",
                setting="rejection",
            )

    @property
    def capabilities(self) -> Capabilities:
        """Those of the inner method, without checkpoints of its training."""
        inner = self.inner.capabilities
        uses_target = self.distinguishers in ("auto", "target")
        return Capabilities(public=inner.public, target=inner.target or uses_target, inner=self.inner)

    @property
    def _count(self) -> int:
        """The number of checkpoints."""
        return self.checkpoints or min(MANY, self.inner.num_checkpoints(self.checkpoint_every))

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """The selections with their fraction, reserved before the inner method is planned with the rest."""
        count = self._functions(domain).size(domain)
        self._check_weights(domain, budget)
        # The text depends on the settings alone: sizes of columns may be private estimates.
        among = [f"{self._count} critics"] if self.inner.capabilities.critics else []
        among += [f"the cells of {len(cliques)} marginals"] if (cliques := self._cliques(domain)) else []
        if not among:
            raise ConfigError(
                "There is no such marginal. Use other distinguishers, such as one_way.", setting="distinguishers"
            )
        what = f"{self.rounds} selections among {' and '.join(among)}"
        part = budget.fraction(self.selection_fraction)
        query = calibrate_query("selections", what, lambda noise: Selections(1 / noise, self.rounds), domain, part)
        inner = self.inner.plan(domain, budget.after([query])).under(name_of(self.inner))
        return Plan((*inner.queries, query), (*inner.notes, *self._notes(domain, budget, query, count)))

    def _check_weights(self, domain: Domain, budget: Budget) -> None:
        if self.output != "weighted":
            return
        if WEIGHT_COLUMN in domain.names:
            raise ConfigError(
                f"output=weighted adds a column {WEIGHT_COLUMN!r}, which the table has already. Rename that column, or "
                "use output=iid."
            )
        if budget.max_rows_per_unit > 1:
            raise ConfigError(
                "output=weighted gives each row a weight of its own, but units may have several rows. Use output=iid."
            )

    def _gap(self, domain: Domain, query: Query, max_rows_per_unit: int) -> float:
        """The bound on the duality gap, from public facts; infinite where none is known for the settings.

        It is about the averaged weights, so it does not hold for rows that are sampled or rejected once more.
        """
        if self.averaging != "all" or self.after_update or self.drs or self.output == "distinct":
            return math.inf
        samples, count = self._count * self.samples_per_generator, self._functions(domain).size(domain)
        exponent = event_of(query, Selections).epsilon * domain.num_rows / max_rows_per_unit
        return promised_gap(samples, count, self.rounds, exponent, self.learning_rate)

    def _notes(self, domain: Domain, budget: Budget, query: Query, count: int) -> tuple[Note, ...]:
        if not budget.is_private:
            return ()
        gap = self._gap(domain, query, budget.max_rows_per_unit)
        return (*self._selection_notes(domain, budget, query, count), *map(Note, gap_sentences(gap, domain.num_rows)))

    def _selection_notes(self, domain: Domain, budget: Budget, query: Query, count: int) -> tuple[Note, ...]:
        miss = expected_miss(count, event_of(query, Selections).epsilon * domain.num_rows / budget.max_rows_per_unit)
        if miss < LARGE_MISS:
            gains = (
                f"On average, the selected distinguisher is within {miss:.2g} of the best one (a perfect "
                "distinguisher scores 1)."
            )
            return (Note(gains),)
        text = (
            f"With {domain.num_rows:,} rows the selected distinguisher may be {min(miss, 1.0):.2g} worse than the "
            "best one on average (a perfect distinguisher scores 1), so boosting will hardly be better than chance. "
            "Raise epsilon or selection_fraction, or use fewer rounds."
        )
        return (Note(text, Level.WARNING),)

    def fit(self, run: Run) -> Pool:
        """Formal guarantee: the joint cost of the plan's queries: those of the inner method, and the selections.
        Generated rows, their scores by critics, weights and rejection are post-processing."""
        domain, query = run.domain, run.plan["selections"]
        inner_key, pool_key, shown_key, output_key = jax.random.split(run.key, 4)
        inner = dataclasses.replace(
            run,
            plan=Plan(tuple(each for each in run.plan if each.key != "selections")),
            ledger=run.ledger.view(run.ledger.remaining.after([query])),
            key=inner_key,
            progress=stretch_progress(run.progress, 0.0, 0.8),
        )
        trajectory = self.inner.trajectory(inner, checkpoints=self._count, every=self.checkpoint_every)
        codes, positions = self._pool(trajectory, pool_key)
        critics = None
        if trajectory.critics is not None:
            critics = evaluate_critics(
                trajectory.fast_critics or trajectory.critics,
                self._count,
                codes,
                shown=trajectory.shown(codes, positions, shown_key),
                progress=lambda fraction: run.report(0.8 + 0.1 * fraction, "scoring"),
            )
        distinguishers = self._distinguishers(domain, critics, codes)
        select = noisy_function_selections(run.rows, self._functions(domain, trajectory), query, run.ledger)
        if run.ledger.guarantee.is_private:
            gap = self._gap(domain, query, run.ledger.max_rows_per_unit)
            run.ledger.state_accuracy(*gap_sentences(gap, domain.num_rows))
        outcome = play(
            distinguishers,
            select,
            rounds=self.rounds,
            learning_rate=self.learning_rate,
            average=self.averaging,
            window=self.window,
            after_update=self.after_update,
            progress=lambda fraction: run.report(
                0.9 + 0.1 * fraction, f"round {round(fraction * self.rounds)} of {self.rounds}"
            ),
        )
        return self._model(Pool(domain.names, codes, outcome.weights, positions), outcome, output_key)

    def _pool(self, trajectory: Trajectory, key: PRNGKeyArray) -> Sample:
        keys = jax.random.split(key, len(trajectory.models))
        size = self.samples_per_generator
        samples = [model.sample(size, key=one) for model, one in zip(trajectory.models, keys, strict=True)]
        return concatenate(samples, size * len(samples))

    def _cliques(self, domain: Domain) -> tuple[Clique, ...]:
        if not isinstance(self.distinguishers, str):
            for clique in self.distinguishers:
                domain.shape(clique)  # refuses unknown columns
            return self.distinguishers
        if self.distinguishers == "target" and domain.target is None:
            raise ConfigError(
                "distinguishers=target needs a target: declare one in the schema, or use two_way.", setting="target"
            )
        pairs, name = tuple(itertools.combinations(domain.names, 2)), self.distinguishers
        if name == "auto":
            few = "two_way" if pairs else "one_way"
            name = few if len(pairs) <= FEW_PAIRS else "one_way" if domain.target is None else "target"
        by_name = {"none": (), "one_way": domain.one_way, "two_way": pairs}
        return by_name.get(name, tuple(pair for pair in pairs if domain.target in pair))

    def _functions(self, domain: Domain, trajectory: Trajectory | None = None) -> RowFunctions:
        critics, layout = (None, None) if trajectory is None else (trajectory.critics, trajectory.layout)
        count = self._count if self.inner.capabilities.critics else 0
        return RowFunctions(critics, count, self._cliques(domain), self.constant, layout)

    def _distinguishers(self, domain: Domain, critics: Distinguishers | None, codes: np.ndarray) -> Distinguishers:
        """The same functions in the same order, on the pool."""
        parts = [] if critics is None else [critics]
        for clique in self._cliques(domain):
            columns = [codes[:, domain.index(name)] for name in clique]
            parts.append(Cells(np.ravel_multi_index(columns, domain.shape(clique)), domain.size(clique)))
        parts += [Constant(len(codes))] if self.constant else []
        return Together(parts)

    def _model(self, pool: Pool, outcome: Outcome, key: PRNGKeyArray) -> Pool:
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        if self.drs and self.rejection == "exact":
            pool = dataclasses.replace(pool, weights=reject_exactly(outcome.weights, outcome.mixture))
        elif self.drs and self.rejection == "draws":
            pool = pool.only(draw_accepted(outcome.weights, outcome.mixture, generator))
        elif self.drs or self.output == "distinct":
            kept = draw_distinct(outcome.weights, generator)
            pool = pool.only(kept[rejection_sample(outcome.mixture[kept], generator)] if self.drs else kept)
        return dataclasses.replace(pool, is_weighted=True) if self.output == "weighted" else pool


@dataclasses.dataclass(frozen=True)
class DRS:
    """Rejection sampling of a GAN's rows by its last critic, as in drs(dpgan). No privacy cost of its own.

    Azadi et al., "Discriminator rejection sampling", 2019, normalised as in the code of Neunhoeffer, Wu and Dwork:
    proposals of the last generator are accepted with odds that follow the last critic. Both are covered by the privacy
    cost of the training, and no row is read again. Unlike in that code, the first proposal is not dropped.

    >>> import understudy as us
    >>> us.express(us.DRS(us.DPGAN()))  # as --method reads it
    'drs(dpgan)'
    """

    inner: HasTrajectory
    """The method to train: dpgan or dpctgan."""
    _: dataclasses.KW_ONLY
    proposals: Count = 50_000
    """The number of rows to generate once; the accepted ones are the release."""

    def __post_init__(self) -> None:
        check_trajectory("drs", self.inner, critics=True)
        check_settings(self)
        self.inner.num_checkpoints(1)  # refuses a method whose critics do not score single rows

    @property
    def capabilities(self) -> Capabilities:
        """Those of the inner method, without checkpoints of its training."""
        inner = self.inner.capabilities
        return Capabilities(public=inner.public, target=inner.target, inner=self.inner)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """The plan of the inner method."""
        return self.inner.plan(domain, budget).under(name_of(self.inner))

    def fit(self, run: Run) -> Pool:
        """Formal guarantee: that of the inner method. Proposals, scores and rejection are post-processing."""
        inner_key, proposal_key, shown_key, output_key = jax.random.split(run.key, 4)
        inner = dataclasses.replace(run, key=inner_key, progress=stretch_progress(run.progress, 0.0, 0.9))
        trajectory = self.inner.trajectory(inner, checkpoints=1, every=self.inner.num_checkpoints(1))
        codes, positions = trajectory.models[-1].sample(self.proposals, key=proposal_key)
        assert trajectory.critics is not None
        values = evaluate_critics(
            trajectory.critics,
            1,
            codes,
            shown=trajectory.shown(codes, positions, shown_key),
            progress=lambda fraction: run.report(0.9 + 0.1 * fraction, "scoring"),
        )
        generator = np.random.default_rng(np.asarray(jax.random.key_data(output_key)))
        proposed = Pool(run.domain.names, codes, np.ones(len(codes)), positions)
        return proposed.only(rejection_sample(values.mixture(np.ones(1)), generator))


def gap_sentences(gap: float, num_rows: int) -> tuple[str, ...]:
    """The bound on the duality gap for people; none where it says nothing: gains are from 0 to 2."""
    if gap >= 2:
        return ()
    bound = (
        f"With probability {1 - FAILURE:g} the weights are within {round_up(gap, 2)} of an equilibrium (the duality "
        f"gap; a perfect distinguisher gains 1), with {num_rows:,} as the number of rows."
    )
    return (bound,)
