"""Sequential CART, after synthpop: a baseline that is never private.

Nowok, Raab and Dibben, "synthpop: bespoke creation of synthetic data in R", 2016. The first column is drawn with
replacement; each next one is copied from a real row that falls into the same leaf as the new row, in a tree of that
column over those before it. Donors are real values, so no noise could make a guarantee of it.
"""

import dataclasses
from typing import ClassVar

import jax
from jaxtyping import PRNGKeyArray

from understudy.donors import DonorTrees, grown
from understudy.errors import ConfigError
from understudy.notes import Note
from understudy.privacy.accounting import NonPrivate
from understudy.privacy.ledger import Budget, Ledger, Look, Plan
from understudy.privacy.mechanisms import Rows, open_rows
from understudy.progress import Progress
from understudy.schema import Domain
from understudy.settings import Count, NotNegative, check_settings
from understudy.synthesizers.protocol import Capabilities


@dataclasses.dataclass(frozen=True, kw_only=True)
class CART:
    """NEVER PRIVATE, a baseline: each column copied from real rows in the same leaf of a tree over those before it."""

    capabilities: ClassVar[Capabilities] = Capabilities()

    complexity: NotNegative = 1e-8
    """The least gain of a split, as a share of the impurity at the root."""
    min_bucket: Count = 5
    """The least number of real rows in a leaf."""

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One look, without a bound; refused wherever a guarantee is to be kept."""
        if budget.is_private:
            raise ConfigError(
                "cart is never private: its rows are put together from values of real ones, and no noise changes that. "
                "Use it with --not-private (in Python: Guarantee.not_private()), or choose another method."
            )
        note = Note("cart copies values of real rows: treat what it makes like the original table.")
        return Plan((Look("rows", "all rows as they are", NonPrivate(), columns=domain.names),), (note,))

    def fit(
        self,
        rows: Rows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        progress: Progress | None = None,
    ) -> DonorTrees:
        """Formal guarantee: none. The model holds real rows. Under any guarantee it is refused before one is read."""
        codes, places = open_rows(rows, plan["rows"], ledger)
        if not len(codes):
            raise ConfigError("cart needs at least one row to copy from, and there is none.")
        if progress is not None:
            progress(0.0, f"{len(rows.domain.names)} trees")
        numeric = [scale is not None for scale in rows.scales]
        seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
        return grown(
            rows.domain.names,
            rows.domain.sizes,
            codes,
            places,
            numeric,
            complexity=self.complexity,
            min_bucket=self.min_bucket,
            seed=seed,
        )
