"""Independent columns: noisy one-way marginals, sampled column by column. The baseline to beat."""

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
    """Every column as its own noisy histogram: right about each column, blind to what connects them."""

    capabilities: ClassVar[Capabilities] = Capabilities()

    smoothing: Positive = 0.5
    """PrivateRows added to every code after the noise was cleaned, so that no declared code becomes impossible."""

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One bundle of histograms that fills the budget."""

        def singles(noise: float) -> DiscreteGaussian:
            return DiscreteGaussian(noise, len(domain.names), budget.max_rows_per_unit)

        stddev = budget.calibrate(lambda noise: [singles(noise)])
        what = f"one histogram for each of {len(domain.names)} columns"
        return Plan((Query("singles", what, singles(stddev), columns=domain.names),))

    def fit(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        progress: Progress | None = None,
    ) -> GraphicalModel:
        """Formal guarantee: the price of the plan's one query; all else is post-processing."""
        domain = rows.domain
        measured = measure(rows, domain.singles, plan["singles"], ledger)
        model = estimate(domain, measured, total=rows.public_num_rows)
        if progress is not None:
            progress(1.0, f"{len(domain.names)} columns measured")
        smoothed = tuple(np.log(table + self.smoothing) for table in model.marginals(model.cliques))
        return dataclasses.replace(model, potentials=smoothed)
