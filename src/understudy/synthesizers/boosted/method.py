"""Boosted: private post-GAN boosting, a wrapper around a method whose training can be followed.

Neunhoeffer, Wu and Dwork, "Private Post-GAN Boosting", 2021; rejection sampling after Azadi et al. as in its authors'
code. Deviations, each for soundness or use: means are over all rows and divided by the public number of rows (the
published census runs take 2,000 rows and price them as all), the exponent is that of one-sided sums, twice the paper's
at the same price, and picks are priced by their bounded range instead of basic composition (1940 census: 0.014, not
0.2). Cells of marginals can join the critics as distinguishers.
"""

import dataclasses
import itertools
from typing import Annotated

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from understudy.errors import ConfigError
from understudy.models.pool import Pool
from understudy.models.protocol import Sample, concatenate
from understudy.notes import Level, Note
from understudy.privacy.events import Selections
from understudy.privacy.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.rows import Clique, PrivateRows, PublicRows
from understudy.privacy.selection import RowFunctions, noisy_function_selections
from understudy.progress import Progress, stretch_progress
from understudy.schema import Domain
from understudy.settings import Advice, Count, InnerFraction, Listed, OneOf, Positive, check_settings
from understudy.synthesizers.boosted.game import (
    AVERAGES,
    LEARNING_RATES,
    Cells,
    Constant,
    Distinguishers,
    Outcome,
    Together,
    draw_distinct,
    evaluate_critics,
    expected_miss,
    play,
    rejection_sample,
)
from understudy.synthesizers.protocol import Capabilities, HasTrajectory, check_trajectory
from understudy.synthesizers.registry import name_of
from understudy.training.trajectory import Trajectory

OUTPUTS = ("iid", "distinct")
QUERIES = ("auto", "none", "singles", "target", "pairs")
MANY = 100
"""Checkpoints that take part unless settings say otherwise, or there are fewer."""
FEW_PAIRS = 150
"""With `auto`, so many marginals of two columns judge at most: those of 17 columns are 136. Each more costs time."""
FAR = 0.2
"""A pick that misses the best distinguisher by this much (of a gain between 0 and 1) is hardly better than chance."""


@dataclasses.dataclass(frozen=True)
class Boosted:
    """Around a GAN, as boosted(dpgan): rows of many checkpoints, weighted until no critic tells them from real ones."""

    inner: HasTrajectory
    """The method that is trained: a GAN, or gem. Where it has no critics, cells of marginals judge alone."""
    _: dataclasses.KW_ONLY
    rounds: Count = 400
    """Rounds of the game; each is one noisy pick of a critic, and costs budget."""
    checkpoints: Count | None = None
    """So many of the last checkpoints take part, each with its generator and its critic. Left out: 100, or as many as
    there are."""
    checkpoint_every: Count = 5
    """Generator steps from one checkpoint to the next."""
    samples_per_generator: Count = 1000
    selection_fraction: Annotated[InnerFraction, Advice("The rest trains the inner method; 0.1 is usual.")] = 0.1
    """The part of the budget for the picks."""
    distinguishers: Annotated[str, OneOf(*QUERIES)] | tuple[Annotated[Clique, Listed(1, distinct=True)], ...] = "auto"
    """Cells of marginals that judge beside the critics: none, singles, target (pairs with it), pairs, or a list of
    lists of columns. They cost nothing more, but a pick among more is less exact. auto: pairs where columns are few,
    else those with the target, or without one singles. Critics alone repair a joint law at the cost of marginals."""
    constant: bool = True
    """Whether a judge that cannot tell takes part: with it the game has value 1 or above."""
    learning_rate: Annotated[str, OneOf(*LEARNING_RATES)] | Positive = "paper"
    """paper, sqrt as in its authors' code, or a number: how much one pick moves the logarithm of a row's weight."""
    averaging: Annotated[str, OneOf(*AVERAGES)] = "all"
    """Which rounds count in the result: all, last_window, or sqrt_weighted."""
    window: Count = 150
    after_update: bool = False
    """Whether the average takes each round's weights after their update, as the authors' code does."""
    output: Annotated[str, OneOf(*OUTPUTS)] = "iid"
    """iid: rows are drawn by their weights. distinct: those that come up in one draw of the whole pool, evenly."""
    drs: bool = False
    """Discriminator rejection sampling of the distinct rows, by the mixture of picked critics."""

    def __post_init__(self) -> None:
        check_trajectory("boosted", self.inner)
        check_settings(self)
        if not self.inner.capabilities.critics and self.distinguishers in ("none", ()):
            raise ConfigError(
                f"{name_of(self.inner)} has no critics, and queries asks for no cells: nothing would judge. Set "
                "queries, as in queries=pairs."
            )
        kept = self.inner.num_checkpoints(self.checkpoint_every)
        if not 0 < self._count <= kept:
            raise ConfigError(
                f"checkpoints asks for the last {max(1, self._count)}, but {name_of(self.inner)} keeps {kept} when one "
                f"is kept every {self.checkpoint_every} generator steps. Lower one of them, or train longer."
            )
        if self._count * self.samples_per_generator < 2:
            raise ConfigError("A pool of one row leaves nothing to weigh. Raise samples_per_generator.")

    @property
    def capabilities(self) -> Capabilities:
        inner = self.inner.capabilities
        is_judged = self.distinguishers in ("auto", "target")
        return Capabilities(public=inner.public, target=inner.target or is_judged, inner=self.inner)

    @property
    def _count(self) -> int:
        """Checkpoints that take part."""
        return (
            min(MANY, self.inner.num_checkpoints(self.checkpoint_every))
            if self.checkpoints is None
            else self.checkpoints
        )

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """The picks at their share, reserved before the inner method is planned on what is left."""
        noise = budget.fraction(self.selection_fraction).calibrate(lambda noise: [Selections(1 / noise, self.rounds)])
        count = self._functions(domain).size(domain)
        # In words that follow from the settings alone: sizes of columns may be bought.
        judges = [f"{self._count} critics"] if self.inner.capabilities.critics else []
        judges += [f"the cells of {len(cliques)} marginals"] if (cliques := self._cliques(domain)) else []
        if not judges:
            raise ConfigError("No column is left whose cells could judge: use other queries, as in queries=singles.")
        what = f"{self.rounds} picks among {' and '.join(judges)}"
        picks = Query("picks", what, Selections(1 / noise, self.rounds), columns=domain.names)
        inner = self.inner.plan(domain, budget.after([picks])).under(name_of(self.inner))
        return Plan((*inner.queries, picks), (*inner.notes, *self._notes(domain, budget, picks, count)))

    def _notes(self, domain: Domain, budget: Budget, picks: Query, count: int) -> tuple[Note, ...]:
        assert isinstance(picks.event, Selections)
        if not budget.is_private:
            return ()
        miss = expected_miss(count, picks.event.epsilon * domain.num_rows / budget.max_rows_per_unit)
        if miss < FAR:
            gains = f"A pick gains within {miss:.2g} of the best one on average, where telling all apart would gain 1."
            return (Note(gains),)
        text = (
            f"With {domain.num_rows:,} rows a pick may miss the best one by {min(miss, 1.0):.2g} on average, "
            "where telling all apart would gain 1, so boosting will hardly differ from chance. Raise epsilon or share, "
            "or use fewer rounds."
        )
        return (Note(text, Level.WARNING),)

    def fit(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        public: PublicRows | None = None,
        progress: Progress | None = None,
    ) -> Pool:
        """Formal guarantee: the joint price of the plan's queries: those of the inner method, and the picks. Generated
        rows, what critics say of them, weights and rejection are post-processing."""
        domain, tell = rows.domain, progress or (lambda share, words: None)
        inner_key, pool_key, shown_key, output_key = jax.random.split(key, 4)
        trajectory = self.inner.trajectory(
            rows,
            Plan(tuple(query for query in plan if query.key != "picks")),
            ledger.view(ledger.remaining.after([plan["picks"]])),
            key=inner_key,
            checkpoints=self._count,
            every=self.checkpoint_every,
            progress=stretch_progress(progress, 0.0, 0.8),
            **({} if public is None else {"public": public}),
        )
        codes, places = self._pool(trajectory, pool_key)
        critics = None
        if trajectory.critics is not None:
            critics = evaluate_critics(
                trajectory.critics,
                self._count,
                codes,
                shown=trajectory.shown(codes, places, shown_key),
                progress=lambda share: tell(0.8 + 0.1 * share, "judging"),
            )
        distinguishers = self._distinguishers(domain, critics, codes)
        pick = noisy_function_selections(rows, self._functions(domain, trajectory), plan["picks"], ledger)
        outcome = play(
            distinguishers,
            pick,
            rounds=self.rounds,
            learning_rate=self.learning_rate,
            average=self.averaging,
            window=self.window,
            after_update=self.after_update,
            progress=lambda share: tell(0.9 + 0.1 * share, f"round {round(share * self.rounds)} of {self.rounds}"),
        )
        return self._model(Pool(domain.names, codes, outcome.weights, places), outcome, output_key)

    def _pool(self, trajectory: Trajectory, key: PRNGKeyArray) -> Sample:
        keys = jax.random.split(key, len(trajectory.models))
        size = self.samples_per_generator
        samples = [model.sample(size, key=one) for model, one in zip(trajectory.models, keys, strict=True)]
        return concatenate(samples, size * len(samples))

    def _cliques(self, domain: Domain) -> tuple[Clique, ...]:
        if not isinstance(self.distinguishers, str):
            for clique in self.distinguishers:
                domain.shape(clique)  # names the columns that are not there
            return self.distinguishers
        if self.distinguishers == "target" and domain.target is None:
            raise ConfigError("queries=target needs a target: declare one in the schema, or use pairs.")
        pairs, queries = tuple(itertools.combinations(domain.names, 2)), self.distinguishers
        if queries == "auto":
            few = "pairs" if pairs else "singles"
            queries = few if len(pairs) <= FEW_PAIRS else "singles" if domain.target is None else "target"
        found = {"none": (), "singles": domain.singles, "pairs": pairs}
        return found.get(queries, tuple(pair for pair in pairs if domain.target in pair))

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
        if self.output == "iid" and not self.drs:
            return pool
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        kept = draw_distinct(outcome.weights, generator)
        if self.drs:
            kept = kept[rejection_sample(outcome.mixed[kept], generator)]
        return pool.only(kept)
