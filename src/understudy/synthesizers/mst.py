"""MST: 1-way marginals, then a privately selected tree of 2-way marginals.

McKenna, Miklau and Sheldon, "Winning the NIST contest: a scalable and general approach to differentially private
synthetic data", 2021. Deviations: all privacy costs are fixed in advance and calibrated jointly; the score of a pair is
reduced by the expected error of measuring it; pairs with the target may have a larger weight; categories are not
merged.
"""

import dataclasses
import itertools
import math
from typing import ClassVar

from scipy.cluster.hierarchy import DisjointSet

from understudy.marginals.estimation import Fitting, Measurement, estimate, measure
from understudy.marginals.expected import expected_of_counts
from understudy.marginals.workload import scored_by_error
from understudy.models.graphical import GraphicalModel
from understudy.models.junction import Clique
from understudy.privacy.accounting.events import DiscreteGaussian, Event, Selections
from understudy.privacy.accounting.ledger import Budget, Plan, Query
from understudy.privacy.accounting.marginal_noise import ExpectedNoise
from understudy.privacy.mechanisms.selection import MarginalSelector, noisy_selections
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers.protocol import Capabilities
from understudy.synthesizers.run import Run, target_note
from understudy.synthesizers.settings import Count, Positive, TargetWeight, check_settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class MST:
    """A tree of 2-way marginals over all columns: the strongest dependencies, selected and measured privately.

    >>> import understudy as us
    >>> us.express(us.MST(iterations=500))  # as --method reads it
    'mst(iterations=500)'
    """

    capabilities: ClassVar[Capabilities] = Capabilities(target=True)

    fractions: tuple[Positive, Positive, Positive] = (1 / 3, 1 / 3, 1 / 3)
    """The fractions of the zCDP budget for 1-way marginals, the selection of the tree, and its 2-way marginals."""

    target_weight: TargetWeight = 2.0
    """The weight of pairs with the target in the selection of the tree. Without a target it has no effect."""

    iterations: Count = 1000
    """The largest number of iterations of an estimation. Post-processing: costs time, not budget."""

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """Three queries in the ratio of `fractions`, calibrated so that together they use the whole budget."""
        noise = budget.calibrate(lambda noise: list(self._events(domain, budget, noise).values()))
        count = len(domain.names)
        what = {
            "one_way": f"1-way marginals of {count} columns",
            "tree": f"selection of {count - 1} pairs of columns that form a tree",
            "two_way": f"2-way marginals of the {count - 1} selected pairs",
        }
        events = self._events(domain, budget, noise)
        queries = tuple(Query(key, what[key], event, columns=domain.names) for key, event in events.items())
        return Plan(queries, target_note(domain, self.target_weight, "Pairs", "the selection of the tree"))

    def _events(self, domain: Domain, budget: Budget, noise: float) -> dict[str, Event]:
        """The three queries at zCDP costs of fractions / noise^2."""
        columns, edges, sensitivity = len(domain.names), len(domain.names) - 1, budget.max_rows_per_unit
        rho = [fraction / sum(self.fractions) / noise**2 for fraction in self.fractions]
        if not edges:
            return {
                "one_way": DiscreteGaussian(sensitivity * math.sqrt(columns / (2 * sum(rho))), columns, sensitivity)
            }
        return {
            "one_way": DiscreteGaussian(sensitivity * math.sqrt(columns / (2 * rho[0])), columns, sensitivity),
            "tree": Selections(math.sqrt(8 * rho[1] / edges), edges),
            "two_way": DiscreteGaussian(sensitivity * math.sqrt(edges / (2 * rho[2])), edges, sensitivity),
        }

    def expected_noise(self, domain: Domain, plan: Plan, max_rows_per_unit: int) -> tuple[ExpectedNoise, ...]:
        """The noise of both bundles of counts."""
        return tuple(
            expected_of_counts(plan[key].event, order, order)
            for order, key in enumerate(("one_way", "two_way"), start=1)
            if key in plan
        )

    def fit(self, run: Run) -> GraphicalModel:
        """Formal guarantee: the joint cost of the plan's queries; estimation and sampling are post-processing."""
        rows, plan, ledger = run.rows, run.plan, run.ledger
        one_way = measure(rows, run.domain.one_way, plan["one_way"], ledger)
        draft = self._estimate(rows, one_way)
        run.report(0.3, "1-way marginals measured")
        if "tree" not in plan:
            return draft
        tree = self._select_tree(run.domain, draft, noisy_selections(rows, plan["tree"], ledger), plan["two_way"])
        run.report(0.6, "tree selected")
        two_way = measure(rows, tree, plan["two_way"], ledger)
        model = self._estimate(rows, one_way + two_way)
        run.report(1.0, "model estimated")
        return model

    def _estimate(self, rows: PrivateRows, measurements: list[Measurement]) -> GraphicalModel:
        return estimate(rows.domain, measurements, Fitting(iterations=self.iterations), total=rows.public_num_rows)

    def _select_tree(
        self, domain: Domain, draft: GraphicalModel, select: MarginalSelector, measurement: Query
    ) -> list[Clique]:
        """Kruskal's algorithm with private selections: each round adds a pair that joins two components.

        The score of a pair is its L1 distance from independence, minus the expected error of measuring it: the mean of
        |noise|, summed over its cells. The paper has no such term and prefers pairs of many cells, whose counts are
        then mostly noise.
        """
        assert isinstance(measurement.event, DiscreteGaussian)
        stddev = measurement.event.stddev
        pairs = list(itertools.combinations(domain.names, 2))
        expected = dict(zip(pairs, draft.marginals(pairs), strict=True))
        connected = DisjointSet(domain.names)
        tree: list[Clique] = []
        while len(tree) < len(domain.names) - 1:
            open_pairs = [(a, b) for a, b in pairs if not connected.connected(a, b)]
            weights = [self.target_weight if domain.target in pair else 1.0 for pair in open_pairs]
            tables = [expected[pair] for pair in open_pairs]
            a, b = open_pairs[select(scored_by_error(domain, open_pairs, tables, weights, stddev))]
            tree.append((a, b))
            connected.merge(a, b)
        return tree
