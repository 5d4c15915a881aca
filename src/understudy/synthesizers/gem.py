"""GEM: a generator network fitted to marginals that are selected where its error is largest.

Liu, Vietri and Wu, "Iterative methods for private synthetic data: unifying framework and new methods", 2021.
Deviations: 1-way marginals are measured first; the score of a marginal is reduced by the expected error of measuring
it; a round may select several; the generator and its loss are those of `marginals/generator.py`.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import jax

from understudy.marginals.estimation import Measurement
from understudy.marginals.expected import precision_of, spread_precision
from understudy.marginals.generator import FittedGenerator, GeneratorSettings, estimate_generator
from understudy.marginals.workload import Workload, candidate_weights, scored_by_error
from understudy.models.mixture import MixtureOfProducts
from understudy.notes import Note
from understudy.privacy.accounting.events import Gaussian, Selections
from understudy.privacy.accounting.ledger import Budget, Plan, Query
from understudy.privacy.accounting.marginal_noise import ExpectedNoise
from understudy.privacy.mechanisms.filters import GaussianFilter, charge_marginals
from understudy.privacy.mechanisms.selection import MarginalSelector, noisy_selections
from understudy.privacy.rows.rows import Clique
from understudy.schema import Domain
from understudy.synthesizers.protocol import Capabilities
from understudy.synthesizers.run import Run, target_note
from understudy.synthesizers.settings import Count, InnerFraction, TargetWeight, check_settings
from understudy.training.loop import RunOptions
from understudy.training.trajectory import Trajectory

SELECTIONS_PER_COLUMN = 2
ONE_WAY_FRACTION = 0.2
"""The fraction of the precision, the inverse variance of the noise, for 1-way marginals."""
ROUND_STEPS = 1 / 16
"""The training steps of a round, as a fraction of those of the last training."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GEM(GeneratorSettings):
    """A generator network fitted to noisy marginals, selected privately round by round where its error is largest.

    >>> import understudy as us
    >>> us.express(us.GEM(steps=200))  # as --method reads it
    'gem(steps=200)'
    """

    capabilities: ClassVar[Capabilities] = Capabilities(trajectory=True, target=True)

    workload: Workload | None = None
    """The cliques to fit. Their subsets are candidates too. None: all 2-way marginals, and with a target all 3-way
    marginals that contain it."""

    target_weight: TargetWeight = 2.0
    """The weight of marginals with the target in selections. Without a target it has no effect."""

    num_selections: Count | None = None
    """The number of marginals to select and measure. None: two for each column."""

    rounds: Count = 16
    """The number of rounds in which they are selected, in equal parts; the generator is fitted before each."""

    selection_fraction: InnerFraction = 0.1
    """The fraction of the budget for selections."""

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """All selections as one query, and one Gaussian query for all marginals. Neither cost depends on which
        marginals are selected, or on their sizes."""
        candidates = candidate_weights(domain, self.workload, self.target_weight)  # refuses unknown columns
        selections, what = self._num_selections(domain), "1-way marginals"
        queries: list[Query] = []
        notes: list[Note] = []
        if selections:
            least = budget.fraction(self.selection_fraction).calibrate(
                lambda noise: [Selections(1 / noise, selections)]
            )
            choice = f"selection of {selections} marginals, in {len(self._counts(domain))} rounds"
            queries.append(Query("rounds", choice, Selections(1 / least, selections), columns=domain.names))
            what = f"1-way marginals, and {selections} selected marginals"
            notes = [Note(f"{len(candidates)} candidate marginals."), *target_note(domain, self.target_weight)]
        noise = budget.after(queries).calibrate(lambda noise: [Gaussian(noise)])
        queries.append(Query("marginals", what, Gaussian(noise), columns=domain.names))
        return Plan(tuple(queries), tuple(notes))

    def _num_selections(self, domain: Domain) -> int:
        """By settings and the number of columns alone: sizes may be private estimates."""
        default = SELECTIONS_PER_COLUMN * len(domain.names)
        return (self.num_selections or default) if len(domain.names) > 1 else 0

    def _counts(self, domain: Domain) -> list[int]:
        """The number of selections in each round."""
        selections = self._num_selections(domain)
        rounds = min(self.rounds, selections)
        return [selections // rounds + (number < selections % rounds) for number in range(rounds)]

    def expected_noise(self, domain: Domain, plan: Plan, max_rows_per_unit: int) -> tuple[ExpectedNoise, ...]:
        """1-way marginals have their fraction of the precision, and selected ones the rest, each evenly."""
        precision, selections = precision_of(plan["marginals"].event, max_rows_per_unit), self._num_selections(domain)
        fraction = ONE_WAY_FRACTION if selections else 1.0
        most = max(map(len, candidate_weights(domain, self.workload, self.target_weight)))
        selected = spread_precision(2, selections, precision * (1 - fraction))
        return (
            *spread_precision(1, len(domain.names), precision * fraction),
            *(dataclasses.replace(each, min_order=min(2, most), max_order=most) for each in selected),
        )

    def fit(self, run: Run) -> MixtureOfProducts:
        """Formal guarantee: the cost of the plan's queries. The generator, and which marginals are measured with how
        much noise, are functions of noisy answers and public facts."""
        return self._train(run, RunOptions())[-1].model

    def num_checkpoints(self, every: int) -> int:
        """The number of checkpoints if one is kept after every `every` steps of the last training."""
        return self.steps // every

    def trajectory(self, run: Run, *, checkpoints: int, every: int) -> Trajectory:
        """The models at the last `checkpoints` checkpoints. Formal guarantee: that of `fit`."""
        *kept, _ = self._train(run, RunOptions(keep_every=every, keep_last=checkpoints))
        return Trajectory(tuple(fitted.model for fitted in kept), None)

    def _train(self, run: Run, options: RunOptions) -> list[FittedGenerator]:
        """Rounds of fit, selection and measurement, then the last fit: its checkpoints, and its result."""
        rows, domain = run.rows, run.domain
        counts = self._counts(domain)
        first_key, last_key = jax.random.split(run.key)
        select = noisy_selections(rows, run.plan["rounds"], run.ledger) if counts else None
        privacy_filter = charge_marginals(rows, run.plan["marginals"], run.ledger)
        one_way = privacy_filter.precision * (ONE_WAY_FRACTION if counts else 1.0)
        measured = _measure(privacy_filter, domain.one_way, one_way)
        brief = dataclasses.replace(self, steps=math.ceil(self.steps * ROUND_STEPS))
        fitted = None
        for number, count in enumerate(counts):
            assert select is not None
            total, key = rows.public_num_rows, jax.random.fold_in(first_key, number)
            fitted = estimate_generator(domain, measured, total=total, settings=brief, key=key, warm_start=fitted)[-1]
            precision = privacy_filter.left * count / sum(counts[number:])
            chosen = self._select(rows.measured_domain, fitted.model, select, count, math.sqrt(count / precision))
            measured += _measure(privacy_filter, chosen, precision)
            run.report((number + 1) / 2 / len(counts), f"{len(measured)} marginals measured")
        start = 0.5 if counts else 0.0
        return estimate_generator(
            domain,
            measured,
            total=rows.public_num_rows,
            settings=self,
            key=last_key,
            warm_start=fitted,
            options=dataclasses.replace(
                options,
                progress=lambda done, phase: run.report(start + (1 - start) * done, phase),
                slot=run.ledger.slot(),
            ),
        )

    def _select(
        self, domain: Domain, model: MixtureOfProducts, select: MarginalSelector, count: int, stddev: float
    ) -> list[Clique]:
        """The marginals with about the largest errors, as counted on this number of rows."""
        weights = candidate_weights(domain, self.workload, self.target_weight)
        cliques = list(weights)
        expected = [domain.num_rows * table for table in model.marginals(cliques)]
        candidates = scored_by_error(domain, cliques, expected, list(weights.values()), stddev)
        return [cliques[at] for at in select.several(candidates, min(count, len(cliques)))]


def _measure(privacy_filter: GaussianFilter, cliques: Sequence[Clique], precision: float) -> list[Measurement]:
    """These marginals, with equal noise and this precision in all."""
    stddev = math.sqrt(len(cliques) / precision)
    tables = privacy_filter.noisy_counts(cliques, [stddev] * len(cliques))
    return [Measurement(clique, table, stddev) for clique, table in zip(cliques, tables, strict=True)]
