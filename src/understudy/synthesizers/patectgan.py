"""PATE-CTGAN: a conditional generator, taught by the noisy votes of teachers that see the condition too.

After Rosenblatt et al., "Differentially private synthetic data: applied evaluations and enhancements", 2020, whose
published code trains teachers and student as one network on private rows, and lets every teacher see frequencies of
all. Here conditions, their law and the components of numbers come from bought one-way counts; a teacher takes the
condition of a real row from that row; the condition of a generated row is part of the question.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from jaxtyping import Array

from understudy.encoding.features import Blocks, Layout, OneHot
from understudy.errors import ConfigError
from understudy.privacy.ledger import Budget, Plan
from understudy.privacy.rows import PrivateRows
from understudy.schema import Domain
from understudy.settings import Between, NotNegative
from understudy.synthesizers.pategan import PATEGAN
from understudy.training.critics import Conditions
from understudy.training.gan import Settings

NO_CONDITION = (
    "patectgan needs a discrete column to condition on, and none of this table's is one with features={!r}. Use "
    "features=binned, which makes all of them discrete, or pategan."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PATECTGAN(PATEGAN):
    """A generator that can be asked for a level of a column, taught by noisy votes of teachers that see it too."""

    max_weight: Annotated[float, Between(1, math.inf)] = 10.0
    """A teacher weighs its rows for the rarity of their conditions, at most by this."""
    condition_weight: NotNegative = 1.0
    """How strongly the generator is told to meet its condition."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.marginals_fraction:
            raise ConfigError("marginals_fraction must be positive: conditions are drawn from bought marginals.")

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """As that of pategan; a table of numbers alone is refused where they are not discrete."""
        if self.features == "typed" and set(domain.names) <= set(domain.numeric):
            raise ConfigError(NO_CONDITION.format(self.features))
        return super().plan(domain, budget)

    def _layout(self, rows: PrivateRows, marginals: Sequence[np.ndarray] | None) -> Layout:
        """The layout of pategan; if no column is discrete, the numeric column with the fewest bins is shown bin by bin.

        Which numeric columns are discrete may depend on estimated bounds, so this causes no refusal.
        """
        layout = super()._layout(rows, marginals)
        if any(column is not None for column in layout.discrete):
            return layout
        at = int(np.argmin(rows.domain.sizes))
        return Layout((*layout.columns[:at], OneHot(rows.domain.sizes[at]), *layout.columns[at + 1 :]))

    def _settings(self, blocks: Blocks, cross: int | None) -> Settings:
        return dataclasses.replace(super()._settings(blocks, cross), condition_weight=self.condition_weight)

    def _conditions(self, layout: Layout, marginal: Array | None, num_rows: int) -> Conditions | None:
        """On the columns whose levels stand in the row one by one."""
        assert marginal is not None
        wanted = [column is not None for column in layout.discrete]
        return Conditions.from_marginal(layout.blocks, np.asarray(marginal), num_rows, self.max_weight, wanted)
