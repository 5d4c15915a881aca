"""PATE-CTGAN: a conditional generator, taught by the noisy votes of teachers that see the condition too.

After Rosenblatt et al., "Differentially private synthetic data: applied evaluations and enhancements", 2020, whose
published code trains teachers and student as one network on private rows, and lets every teacher see frequencies of
all. Here conditions, their law and the components of numbers come from noisy one-way marginals; a teacher takes the
condition of a real row from that row; the condition of a generated row is part of the question.
"""

import dataclasses

import numpy as np

from understudy.encoding.features import Layout, OneHot
from understudy.errors import ConfigError
from understudy.privacy.ledger import Budget, Plan
from understudy.schema import Domain
from understudy.synthesizers.neural import ConditionalMethod
from understudy.synthesizers.pategan import VoteGAN
from understudy.synthesizers.run import Run
from understudy.training.prepare import Prepared, prepare

NO_CONDITION = (
    "patectgan needs a discrete column to condition on, and with features={!r} this table has none. Use "
    "features=binned, which makes all of them discrete, or pategan."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PATECTGAN(ConditionalMethod, VoteGAN):
    """PATE-GAN with a generator conditioned on a category of one column.

    >>> import understudy as us
    >>> from understudy.synthesizers import express
    >>> express(us.PATECTGAN(warm_steps=100))  # as --method reads it
    'patectgan(warm_steps=100)'
    """

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """As that of pategan; a table of numbers alone is refused where they are not discrete."""
        if self.features == "typed" and set(domain.names) <= set(domain.numeric):
            raise ConfigError(NO_CONDITION.format(self.features))
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
