"""Independent columns: noisy 1-way marginals, sampled column by column. The baseline to beat."""

import dataclasses
from typing import ClassVar

import numpy as np
from jaxtyping import PRNGKeyArray

from understudy.marginals.estimation import estimate, measure
from understudy.models.graphical import GraphicalModel
from understudy.privacy.events import DiscreteGaussian
from understudy.privacy.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.rows import PrivateRows
from understudy.progress import Progress
from understudy.schema import Domain
from understudy.settings import Positive, check_settings
from understudy.synthesizers.protocol import Capabilities


@dataclasses.dataclass(frozen=True, kw_only=True)
class Independent:
    """One noisy histogram for each column. All dependence between columns is lost. The baseline to beat."""

    capabilities: ClassVar[Capabilities] = Capabilities()

    smoothing: Positive = 0.5
    """Added to the estimated count of every code, so that no declared code has probability zero."""

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One query for all 1-way marginals, with the whole budget."""

        def counts(noise: float) -> DiscreteGaussian:
            return DiscreteGaussian(noise, len(domain.names), budget.max_rows_per_unit)

        stddev = budget.calibrate(lambda noise: [counts(noise)])
        what = f"1-way marginals of {len(domain.names)} columns"
        return Plan((Query("one_way", what, counts(stddev), columns=domain.names),))

    def fit(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        progress: Progress | None = None,
    ) -> GraphicalModel:
        """Formal guarantee: the cost of the plan's one query; all else is post-processing."""
        domain = rows.domain
        measured = measure(rows, domain.one_way, plan["one_way"], ledger)
        model = estimate(domain, measured, total=rows.public_num_rows)
        if progress is not None:
            progress(1.0, f"{len(domain.names)} columns measured")
        smoothed = tuple(np.log(table + self.smoothing) for table in model.marginals(model.cliques))
        return dataclasses.replace(model, potentials=smoothed)
