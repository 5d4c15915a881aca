"""DRS: discriminator rejection sampling, the plain baseline of post-GAN boosting.

Azadi et al., "Discriminator rejection sampling", 2019, normalised as in the code of Neunhoeffer, Wu and Dwork:
proposals of the last generator are accepted with odds that follow the last critic. Both are covered by the privacy cost
of the training, and no row is read again. Unlike in that code, the first proposal is not dropped.
"""

import dataclasses

import jax
import numpy as np

from understudy.models.pool import Pool
from understudy.privacy.ledger import Budget, Plan
from understudy.progress import stretch_progress
from understudy.schema import Domain
from understudy.settings import Count, check_settings
from understudy.synthesizers.boosted.game import evaluate_critics, rejection_sample
from understudy.synthesizers.protocol import Capabilities, HasTrajectory, check_trajectory
from understudy.synthesizers.registry import name_of
from understudy.synthesizers.run import Run


@dataclasses.dataclass(frozen=True)
class DRS:
    """Rejection sampling of a GAN's rows by its last critic, as in drs(dpgan). No privacy cost of its own.

    >>> import understudy as us
    >>> from understudy.synthesizers import express
    >>> express(us.DRS(us.DPGAN()))  # as --method reads it
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
