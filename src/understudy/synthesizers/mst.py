"""MST: noisy columns, then a noisily chosen tree of pairs.

McKenna, Miklau and Sheldon, "Winning the NIST contest: a scalable and general approach to differentially private
synthetic data", 2021. Deviations: all prices are fixed in advance and calibrated jointly; a pair's score is reduced by
the noise that measuring it brings; pairs with the target may count more; categories are not merged.
"""

import dataclasses
import itertools
import math
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import PRNGKeyArray

from understudy.marginals.estimation import Measurement, estimate, measure
from understudy.models.graphical import GraphicalModel
from understudy.models.junction import Clique
from understudy.notes import Note
from understudy.privacy.events import DiscreteGaussian, Event, Selections
from understudy.privacy.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.rows import PrivateRows
from understudy.privacy.selection import Candidates, MarginalSelector, noisy_selections
from understudy.progress import Progress
from understudy.schema import Domain
from understudy.settings import AtLeast, Count, Positive, check_settings
from understudy.synthesizers.protocol import Capabilities


@dataclasses.dataclass(frozen=True, kw_only=True)
class MST:
    """A tree of pairs over all columns: the strongest dependencies, chosen and measured under noise."""

    capabilities: ClassVar[Capabilities] = Capabilities(target=True)

    fractions: tuple[Positive, Positive, Positive] = (1 / 3, 1 / 3, 1 / 3)
    """How the budget is split, in zero-concentrated terms: columns, choice of the tree, pairs of the tree."""

    target_weight: Annotated[float, AtLeast(1)] = 2.0
    """How many times a pair with the target counts in the choice of the tree. Without a target it does nothing."""

    entropy: Positive = 0.01
    """How strongly the model is pulled towards independent columns, against what noise makes look like structure."""

    iterations: Count = 1000
    """Most passes of an estimation over the tree. Post-processing: costs time, not budget."""

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """Three looks in the ratio of `shares`, their common noise calibrated so that together they fill the budget."""
        noise = budget.calibrate(lambda noise: list(self._events(domain, budget, noise).values()))
        count = len(domain.names)
        words = {
            "singles": f"one histogram for each of {count} columns",
            "tree": f"choice of {count - 1} pairs that form a tree",
            "pairs": f"counts of the {count - 1} chosen pairs",
        }
        events = self._events(domain, budget, noise)
        queries = tuple(Query(key, words[key], event, columns=domain.names) for key, event in events.items())
        return Plan(queries, self._notes(domain))

    def _events(self, domain: Domain, budget: Budget, noise: float) -> dict[str, Event]:
        """The three queries at zero-concentrated prices shares / noise^2."""
        columns, edges, sensitivity = len(domain.names), len(domain.names) - 1, budget.max_rows_per_unit
        rho = [share / sum(self.fractions) / noise**2 for share in self.fractions]
        if not edges:
            return {
                "singles": DiscreteGaussian(sensitivity * math.sqrt(columns / (2 * sum(rho))), columns, sensitivity)
            }
        return {
            "singles": DiscreteGaussian(sensitivity * math.sqrt(columns / (2 * rho[0])), columns, sensitivity),
            "tree": Selections(math.sqrt(8 * rho[1] / edges), edges),
            "pairs": DiscreteGaussian(sensitivity * math.sqrt(edges / (2 * rho[2])), edges, sensitivity),
        }

    def _notes(self, domain: Domain) -> tuple[Note, ...]:
        if domain.target is None:
            return ()
        counts = f"count {self.target_weight:g} times in the choice of the tree."
        return (Note(f"Pairs with the target {domain.target!r} {counts}"),)

    def fit(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        progress: Progress | None = None,
    ) -> GraphicalModel:
        """Formal guarantee: the joint price of the plan's queries; estimation and sampling are post-processing."""
        domain, tell = rows.domain, progress or (lambda share, words: None)
        singles = measure(rows, domain.singles, plan["singles"], ledger)
        draft = self._estimate(rows, singles)
        tell(0.3, "columns measured")
        if "tree" not in plan:
            return draft
        tree = self._choose_tree(domain, draft, noisy_selections(rows, plan["tree"], ledger), plan["pairs"])
        tell(0.6, "tree chosen")
        pairs = measure(rows, tree, plan["pairs"], ledger)
        model = self._estimate(rows, singles + pairs)
        tell(1.0, "model estimated")
        return model

    def _estimate(self, rows: PrivateRows, measurements: list[Measurement]) -> GraphicalModel:
        return estimate(
            rows.domain, measurements, total=rows.public_num_rows, iterations=self.iterations, entropy=self.entropy
        )

    def _choose_tree(
        self, domain: Domain, draft: GraphicalModel, choose: MarginalSelector, pairs_query: Query
    ) -> list[Clique]:
        """Kruskal's algorithm with noisy choices: each round adds a pair that joins two parts.

        A pair's score is how wrong independence is about it, less the error that noise would bring: the mean of |noise|
        over its cells. The paper has no such term and prefers pairs of many cells, whose counts then drown.
        """
        assert isinstance(pairs_query.event, DiscreteGaussian)
        stddev = pairs_query.event.stddev
        pairs = list(itertools.combinations(domain.names, 2))
        expected = dict(zip(pairs, draft.marginals(pairs), strict=True))
        part = {name: name for name in domain.names}
        tree: list[Clique] = []
        while len(tree) < len(domain.names) - 1:
            open_pairs = [(a, b) for a, b in pairs if part[a] != part[b]]
            weights = [self.target_weight if domain.target in pair else 1.0 for pair in open_pairs]
            offsets = [math.sqrt(2 / math.pi) * stddev * domain.size(pair) for pair in open_pairs]
            candidates = Candidates(
                open_pairs, [expected[pair] for pair in open_pairs], np.asarray(weights), np.asarray(offsets)
            )
            a, b = open_pairs[choose(candidates)]
            tree.append((a, b))
            merged = part[b]
            part = {name: part[a] if group == merged else group for name, group in part.items()}
        return tree
