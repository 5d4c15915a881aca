"""Independent columns: noisy 1-way marginals, sampled column by column. The baseline to beat."""

import dataclasses
from typing import ClassVar

import numpy as np

from understudy.marginals.estimation import Measurement, estimate, measure
from understudy.marginals.expected import expected_of_counts
from understudy.models.graphical import GraphicalModel
from understudy.privacy.accounting.events import DiscreteGaussian
from understudy.privacy.accounting.ledger import Budget, Plan
from understudy.privacy.accounting.marginal_noise import ExpectedNoise
from understudy.schema import Domain
from understudy.synthesizers.protocol import Capabilities
from understudy.synthesizers.run import Run, calibrate_query
from understudy.synthesizers.settings import Positive, check_settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Independent:
    """One noisy histogram for each column. All dependence between columns is lost. The baseline to beat.

    >>> import understudy as us
    >>> us.express(us.Independent(smoothing=0.1))  # as --method reads it
    'independent(smoothing=0.1)'
    """

    capabilities: ClassVar[Capabilities] = Capabilities()

    smoothing: Positive = 0.5
    """Added to the estimated count of every code, so that no declared code has probability zero."""

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One query for all 1-way marginals, with the whole budget."""
        count = len(domain.names)

        def counts(noise: float) -> DiscreteGaussian:
            return DiscreteGaussian(noise, count, budget.max_rows_per_unit)

        return Plan((calibrate_query("one_way", f"1-way marginals of {count} columns", counts, domain, budget),))

    def expected_noise(self, domain: Domain, plan: Plan, max_rows_per_unit: int) -> tuple[ExpectedNoise, ...]:
        """The noise of the one query."""
        return (expected_of_counts(plan["one_way"].event, 1, 1),)

    def fit(self, run: Run) -> GraphicalModel:
        """Formal guarantee: the cost of the plan's one query; all else is post-processing."""
        measured = measure(run.rows, run.domain.one_way, run.plan["one_way"], run.ledger)
        model = estimate(run.domain, measured, total=run.rows.public_num_rows)
        run.report(1.0, f"{len(run.domain.names)} columns measured")
        smoothed = [table + self.smoothing for table in model.marginals(model.cliques)]
        if model.zeros:  # columns are independent given the zeros, so their tables are not their marginals
            wanted = [model.total * table / table.sum() for table in smoothed]
            exact = [Measurement(clique, table, 0.0) for clique, table in zip(model.cliques, wanted, strict=True)]
            return estimate(run.domain, exact, total=model.total)
        return dataclasses.replace(model, potentials=tuple(map(np.log, smoothed)))
