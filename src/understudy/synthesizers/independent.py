"""Independent columns: noisy one-way marginals, sampled column by column. The baseline to beat."""

import dataclasses
from collections.abc import Callable

from jaxtyping import PRNGKeyArray

from understudy.errors import ConfigError
from understudy.marginals import GraphicalModel, Measurement, estimate
from understudy.privacy.accounting import DiscreteGaussian
from understudy.privacy.ledger import Budget, Ledger, Look, Plan
from understudy.privacy.mechanisms import Rows, noisy_counts
from understudy.schema import Domain


@dataclasses.dataclass(frozen=True, kw_only=True)
class Independent:
    """Every column as its own noisy histogram: right about each column, blind to what connects them."""

    iterations: int = 500
    """Most passes of the estimation over the columns. Post-processing: costs time, not budget."""

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ConfigError(f"iterations must be at least 1, found {self.iterations}.")

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One bundle of histograms that fills the budget."""

        def singles(noise: float) -> DiscreteGaussian:
            return DiscreteGaussian(noise, len(domain.names), budget.max_rows_per_unit)

        stddev = budget.calibrate(lambda noise: [singles(noise)])
        what = f"one histogram for each of {len(domain.names)} columns"
        notes = ("The target is a column like any other: nothing is spent on it.",) if domain.target else ()
        return Plan((Look("singles", what, singles(stddev), columns=domain.names),), notes)

    def fit(
        self,
        rows: Rows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        progress: Callable[[float, str], None] | None = None,
    ) -> GraphicalModel:
        """Formal guarantee: the price of the plan's one look; all else is post-processing."""
        domain, look = rows.domain, plan["singles"]
        counts = noisy_counts(rows, domain.singles, look, ledger)
        measured = [Measurement(c, table, look.event.stddev) for c, table in zip(domain.singles, counts, strict=True)]
        model = estimate(domain, measured, total=domain.num_rows, iterations=self.iterations)
        if progress is not None:
            progress(1.0, "columns measured")
        return model
