"""Adaptive marginals: select, measure and estimate in rounds, every decision by expected error. The default method.

One Gaussian budget pays for everything, as precision: the sum of 1 / stddev^2 over all answers. 1-way marginals come
first. Each round then asks for the model's errors under noise, chooses marginals whose measurement lowers the expected
error of the workload, divides the round's precision among these and all that were measured before, and estimates the
graphical model again. Where noise would drown every dependence, nothing is chosen, and all precision goes to the 1-way
marginals.

The parts come from the literature: rounds of selection by error from MWEM (Hardt, Ligett and McSherry 2012) and AIM
(McKenna et al. 2022), whose trade of error against noise this extends to all marginals at once; estimation from
Private-PGM (McKenna, Sheldon and Miklau 2019). What differs: errors are published under Gaussian noise instead of used
by the exponential mechanism, so that answers of several rounds add up and the decision not to measure is an expected
value; precision follows needs (`marginals/allocation.py`); cells too small for their noise stay as the columns by
themselves imply (`marginals/shrinkage.py`).
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np

from understudy.marginals.allocation import MEAN_NOISE, add_precision, needs
from understudy.marginals.choice import Candidates, SizeLimit, choose, resolved_cells, resolved_fraction
from understudy.marginals.errors import ErrorEstimates
from understudy.marginals.estimation import Measurement, estimate
from understudy.models.graphical import GraphicalModel
from understudy.models.junction import Clique
from understudy.notes import Note
from understudy.privacy.events import Gaussian
from understudy.privacy.filters import GaussianFilter, charge_marginals
from understudy.privacy.ledger import Budget, Plan
from understudy.schema import Domain
from understudy.settings import AtLeast, Between, Count, InnerFraction, Listed, Positive, check_settings
from understudy.synthesizers.protocol import Capabilities
from understudy.synthesizers.run import Run, calibrate_query

FIRST_SCORES = 0.5
"""The part of the selection budget for the first round, in which all pairs compete."""
ONE_WAY_SHARE = 0.25
"""The part of a pair's error that is put down to the noise of each of its columns, as long as it is not measured."""
CELLS_PER_MEGABYTE = 2**20 / 8
LAST_ITERATIONS = 10
"""The factor of the number of iterations in the last estimation."""
MOST_CANDIDATES = 20_000
"""Larger interactions than three columns are candidates if there are not more of them than this."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adaptive:
    """The default: marginals chosen round by round by the error that measuring them is expected to remove."""

    capabilities: ClassVar[Capabilities] = Capabilities(target=True)

    workload: Annotated[tuple[Annotated[Clique, Listed(2, distinct=True)], ...], Listed()] | None = None
    """The marginals that matter, each a list of columns. None: all pairs of columns, and with a target the marginals of
    it and others, up to `interactions` columns."""

    interactions: Annotated[int, Between(2, 8)] = 3
    """The largest number of columns of a marginal with the target. A dependence that shows only in four columns
    together, such as a parity of three and the target, needs 4."""

    target_weight: Annotated[float, AtLeast(1)] = 2.0
    """The weight of marginals with the target. Without a target it has no effect."""

    rounds: Count = 10
    """The number of rounds after the 1-way marginals."""

    selection_fraction: InnerFraction = 0.1
    """The fraction of the precision for the model's errors, half of it in the first round."""

    candidates_per_column: Positive = 6.0
    """The number of candidates in later rounds, for each column: the most promising ones."""

    prior_variance: Positive = 2.0
    """The variance of log-ratios between counts and what independent columns imply: the smaller, the more strongly
    small cells are pulled towards independence."""

    entropy: Positive = 0.01
    """The weight of the entropy term, which pulls all cells towards independence."""

    max_model_size: Positive = 8.0
    """The size of the finished model's tables in megabytes; the limit rises evenly from round to round."""

    iterations: Count = 150
    """The largest number of iterations of each round's estimation; ten times as many in the last round."""

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One Gaussian query, spent as precision. Its cost does not depend on what is measured."""
        for clique in self.workload or ():
            domain.shape(clique)  # refuses unknown columns
        what = f"1-way marginals, and others chosen in {self.rounds} rounds by their expected error"
        query = calibrate_query("marginals", what, Gaussian, domain, budget)
        notes = [Note(f"The model has at most {self.max_model_size:g} MB.")]
        if domain.target is not None:
            notes.append(
                Note(
                    f"Marginals with the target {domain.target!r} have weight {self.target_weight:g}, and up to "
                    f"{self.interactions} columns."
                )
            )
        return Plan((query,), tuple(notes))

    def fit(self, run: Run) -> GraphicalModel:
        """Formal guarantee: the cost of the plan's Gaussian query.

        Every answer passes its filter, which adds up the exact precision of each; candidates, choices, noise and the
        model are functions of noisy answers and public facts.
        """
        return _Fit(self, run).run()


class _Fit:
    """One fit: what was measured, with how much precision, and the model of it."""

    def __init__(self, settings: Adaptive, run: Run) -> None:
        self.settings, self._run = settings, run
        self.domain = run.rows.domain
        self.filter: GaussianFilter = charge_marginals(run.rows, run.plan["marginals"], run.ledger)
        self.measurements: list[Measurement] = []
        self.precision: dict[Clique, float] = {}
        self.errors = ErrorEstimates()
        self.pairs = [clique for clique in self._workload() if len(clique) == 2]
        self.larger = [clique for clique in self._workload() if len(clique) > 2]

    def run(self) -> GraphicalModel:
        """All rounds; the last one spends what is left."""
        self._measure_one_way()
        model = self._estimate(None)
        rounds = self.settings.rounds
        for number in range(rounds):
            is_last = number == rounds - 1 or not self._can_select()
            model = self._round(model, number, is_last=is_last)
            self._run.report((number + 1) / rounds, f"{len(self.precision)} marginals measured")
            if is_last:
                break
        return model
