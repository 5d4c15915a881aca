"""AIM: select the marginal with the largest error of the model, measure it, and repeat until the budget is spent.

McKenna, Mullins, Sheldon and Miklau, "AIM: an adaptive and iterative mechanism for differentially private synthetic
data", 2022. Deviations: a marginal's weight is 1, or `target_weight` when it holds the target, instead of its overlap
with the workload; 1-way marginals are measured first, each at the cost of a whole round, since nothing is selected;
marginals with more cells than the public number of rows are not candidates.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from understudy.marginals.choice import SizeLimit
from understudy.marginals.estimation import Fitting, Measurement, estimate
from understudy.marginals.expected import precision_of
from understudy.marginals.workload import Workload, candidate_weights, scored_by_error
from understudy.models.graphical import GraphicalModel
from understudy.models.junction import Clique
from understudy.notes import Note
from understudy.privacy.accounting.events import ZCDP
from understudy.privacy.accounting.ledger import Budget, Plan, Query
from understudy.privacy.accounting.marginal_noise import ExpectedNoise
from understudy.privacy.mechanisms.filters import charge_zcdp
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers.protocol import Capabilities
from understudy.synthesizers.run import Run, target_note
from understudy.synthesizers.settings import Count, Positive, TargetWeight, check_settings

ROUNDS_PER_COLUMN = 16
MEASURING_FRACTION = 0.9  # of a round's cost; the rest is for its selection
CELLS_PER_MEGABYTE = 2**20 / 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class AIM:
    """A graphical model of marginals, selected privately round by round where the model's error is largest.

    >>> import understudy as us
    >>> us.express(us.AIM(max_rounds=50))  # as --method reads it
    'aim(max_rounds=50)'
    """

    capabilities: ClassVar[Capabilities] = Capabilities(target=True, zcdp=True)

    workload: Workload | None = None
    """The cliques to fit. Their subsets are candidates too. None: all 2-way marginals, and with a target all 3-way
    marginals that contain it."""

    target_weight: TargetWeight = 2.0
    """The weight of marginals with the target in selections. Without a target it has no effect."""

    max_model_size: Positive = 4.0
    """The size of the finished model's tables in megabytes. In each round the limit is the fraction of it that
    corresponds to the budget spent so far. Larger models are richer, and take proportionally more time."""

    max_rounds: Count | None = None
    """The largest number of marginals to measure. The budget is divided evenly at first; rounds get more of it once
    measuring no longer improves the model. None: 16 for each column."""

    iterations: Count = 60
    """The largest number of iterations of each round's estimation; ten times as many in the last round."""

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One zCDP budget, which its rounds spend adaptively under a privacy filter."""
        what = f"up to {self._max_rounds(domain)} marginals, each selected and measured under noise"
        query = Query("rounds", what, ZCDP(budget.rho()), columns=domain.names)
        weights = candidate_weights(domain, self.workload, self.target_weight)
        note = Note(f"{len(weights)} candidate marginals; the model has at most {self.max_model_size:g} MB.")
        return Plan((query,), (note, *target_note(domain, self.target_weight)))

    def expected_noise(self, domain: Domain, plan: Plan, max_rows_per_unit: int) -> tuple[ExpectedNoise, ...]:
        """1-way marginals take a round each. Selected ones have at most the noise of the first rounds; there are fewer
        if later rounds get more of the budget."""
        rounds, columns = self._max_rounds(domain), len(domain.names)
        precision = precision_of(plan["rounds"].event, max_rows_per_unit) / rounds
        first = ExpectedNoise(min_order=1, max_order=1, marginals=columns, stddev=precision**-0.5, exact=True)
        most = max(map(len, candidate_weights(domain, self.workload, self.target_weight)))
        if most == 1:
            return (first,)
        stddev = (MEASURING_FRACTION * precision) ** -0.5
        return first, ExpectedNoise(min_order=2, max_order=most, marginals=rounds - columns, stddev=stddev, exact=False)

    def _max_rounds(self, domain: Domain) -> int:
        """Enough for all 1-way marginals and at least one selection."""
        rounds = self.max_rounds or ROUNDS_PER_COLUMN * len(domain.names)
        return max(rounds, len(domain.names) + 1)

    def fit(self, run: Run) -> GraphicalModel:
        """Algorithm 4 of the paper, with 1-way marginals measured first.

        Formal guarantee: the cost of the plan's zCDP budget. Every query passes the filter, which adds up the exact
        zCDP cost of each; the model, the annealing and the limits are functions of noisy answers and public facts.
        """
        rows, domain = run.rows, run.domain
        privacy_filter = charge_zcdp(rows, run.plan["rounds"], run.ledger)
        cost = privacy_filter.rho / self._max_rounds(domain)
        first = rows.max_rows_per_unit / math.sqrt(2 * cost)  # without a selection, the whole cost is for counts
        measured = [Measurement(clique, privacy_filter.noisy_counts(clique, first), first) for clique in domain.one_way]
        weights = candidate_weights(rows.measured_domain, self.workload, self.target_weight)
        stddev, epsilon = _divide(cost, rows.max_rows_per_unit)
        model = self._estimate(rows, measured, None, 10 * self.iterations)
        last = False
        while not last:
            if last := privacy_filter.remaining < 2 * cost:
                cost = privacy_filter.remaining
                stddev, epsilon = _divide(cost, rows.max_rows_per_unit)
            cliques = self._candidates(domain, weights, model, (privacy_filter.used + cost) / privacy_filter.rho)
            expected = model.marginals(cliques)
            candidates = scored_by_error(domain, cliques, expected, [weights[c] for c in cliques], stddev)
            chosen = privacy_filter.noisy_selection(candidates, epsilon)
            clique = cliques[chosen]
            measured.append(Measurement(clique, privacy_filter.noisy_counts(clique, stddev), stddev))
            model = self._estimate(rows, measured, model, self.iterations * (10 if last else 1))
            if np.abs(model.marginal(clique) - expected[chosen]).sum() <= candidates.offsets[chosen]:
                cost *= 4  # the change was within the noise: halve its standard deviation
                stddev, epsilon = _divide(cost, rows.max_rows_per_unit)
            run.report(min(1.0, privacy_filter.used / privacy_filter.rho), f"{len(measured)} marginals measured")
        return model

    def _candidates(
        self, domain: Domain, weights: dict[Clique, float], model: GraphicalModel, fraction: float
    ) -> list[Clique]:
        """Marginals that keep the model within this fraction of its size limit, or that it already holds."""
        limit = SizeLimit(domain, model, self.max_model_size * fraction * CELLS_PER_MEGABYTE)
        return [clique for clique in weights if limit.fits(clique)]

    def _estimate(
        self, rows: PrivateRows, measured: Sequence[Measurement], model: GraphicalModel | None, iterations: int
    ) -> GraphicalModel:
        return estimate(
            rows.domain,
            measured,
            Fitting(iterations=iterations, max_cells=self.max_model_size * CELLS_PER_MEGABYTE),
            total=rows.public_num_rows,
            warm_start=model,
        )


def _divide(cost: float, max_rows_per_unit: int) -> tuple[float, float]:
    """The standard deviation of counts and the epsilon of a selection that together cost `cost` in zCDP."""
    cost *= 1 - 1e-9  # sums of rounded costs must not exceed the budget
    stddev = max_rows_per_unit / math.sqrt(2 * MEASURING_FRACTION * cost)
    return stddev, math.sqrt(8 * (1 - MEASURING_FRACTION) * cost)
