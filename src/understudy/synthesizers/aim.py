"""AIM: choose the marginal that the model gets most wrong, measure it, and so on until the budget is spent.

McKenna, Mullins, Sheldon and Miklau, "AIM: an adaptive and iterative mechanism for differentially private synthetic
data", 2022. Deviations: a marginal's weight is 1, or `target_weight` when it holds the target, instead of its overlap
with the workload; the columns are bought at a whole round's price each, since there is nothing to choose; marginals
with more cells than the public number of rows are no candidates.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import PRNGKeyArray

from understudy.marginals.estimation import Measurement, estimate
from understudy.models.graphical import GraphicalModel
from understudy.models.junction import Clique, count_cells
from understudy.notes import Note
from understudy.privacy.events import ZCDP
from understudy.privacy.filters import ZCDPFilter
from understudy.privacy.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.rows import PrivateRows
from understudy.privacy.selection import Candidates
from understudy.progress import Progress
from understudy.schema import Domain
from understudy.settings import AtLeast, Count, Listed, Positive, check_settings
from understudy.synthesizers.protocol import Capabilities

ROUNDS_PER_COLUMN = 16
MEASURING_FRACTION = 0.9  # of a round's price; the rest pays for the choice
CELLS_PER_MEGABYTE = 2**20 / 8
FAR_BELOW = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class AIM:
    """Round by round the marginal that the model gets most wrong, chosen and measured under noise."""

    capabilities: ClassVar[Capabilities] = Capabilities(target=True)

    workload: Annotated[tuple[Annotated[Clique, Listed()], ...], Listed()] | None = None
    """The marginals that matter, each a tuple of columns. Their parts may be measured too. Left out: all pairs, and
    with a target all triples that contain it."""

    target_weight: Annotated[float, AtLeast(1)] = 2.0
    """How many times a marginal with the target counts in the choices. Without a target it does nothing."""

    max_model_size: Positive = 4.0
    """Megabytes of the finished model's tables. A round may use the part of it that the budget spent so far is of the
    whole, so that early choices do not fill it. More allows richer models, and takes time in proportion."""

    max_rounds: Count | None = None
    """Most marginals to measure: the budget is first cut for so many, and then into larger pieces as measuring stops
    to help. Left out: 16 for each column."""

    entropy: Positive = 0.01
    """How strongly the model is pulled towards independent columns, against what noise makes look like structure."""

    iterations: Count = 60
    """Most passes of each round's estimation over the tree; the last round's may take ten times as many."""

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One zCDP lump that fills the budget; its rounds are priced as they go, under a filter."""
        what = f"up to {self._most_rounds(domain)} marginals, each chosen and measured under noise"
        query = Query("rounds", what, ZCDP(budget.rho()), columns=domain.names)
        weights = self._weights(domain)
        notes = [Note(f"{len(weights)} marginals to choose among; the model holds at most {self.max_model_size:g} MB.")]
        if domain.target is not None:
            notes.append(Note(f"Marginals with {domain.target!r} count {self.target_weight:g} times in the choices."))
        return Plan((query,), tuple(notes))

    def _most_rounds(self, domain: Domain) -> int:
        """Room for every column by itself, and at least one choice."""
        rounds = self.max_rounds or ROUNDS_PER_COLUMN * len(domain.names)
        return max(rounds, len(domain.names) + 1)

    def _weights(self, domain: Domain) -> dict[Clique, float]:
        """The marginals to choose among, with their weights: all parts of the workload, smallest first.

        Those with more cells than the public number of rows are left out: noise would drown them.
        """
        workload = self.workload if self.workload is not None else _default_workload(domain)
        parts = {
            tuple(sorted(part, key=domain.index))
            for clique in workload
            for size in range(1, len(clique) + 1)
            for part in itertools.combinations(clique, size)
        }
        usable = [part for part in parts if len(part) == 1 or domain.size(part) <= domain.num_rows]
        usable.sort(key=lambda part: (len(part), [domain.index(name) for name in part]))
        return {part: self.target_weight if domain.target in part else 1.0 for part in usable}

    def fit(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        progress: Progress | None = None,
    ) -> GraphicalModel:
        """Algorithm 4 of the paper, with the columns measured first.

        Formal guarantee: the price of the plan's one lump. Every query passes the filter, which adds up the exact
        zCDP price of each; the model, the annealing and the limits are functions of noisy answers and public facts.
        """
        domain = rows.domain
        purse = ZCDPFilter(rows, plan["rounds"], ledger)
        price = purse.rho / self._most_rounds(domain)
        alone = rows.max_rows_per_unit / math.sqrt(2 * price)  # nothing to choose: the whole price buys counts
        measured = [Measurement(single, purse.noisy_counts(single, alone), alone) for single in domain.singles]
        weights = self._weights(rows.measured_domain)
        stddev, epsilon = _settings(price, rows.max_rows_per_unit)
        model = self._estimate(rows, measured, None, 10 * self.iterations)
        last = False
        while not last:
            if last := purse.remaining < 2 * price:
                price = purse.remaining
                stddev, epsilon = _settings(price, rows.max_rows_per_unit)
            cliques = self._affordable(domain, weights, model, (purse.used + price) / purse.rho)
            expected = model.marginals(cliques)
            # What measuring would add to the error: the mean of |noise| over the cells.
            offsets = [math.sqrt(2 / math.pi) * stddev * domain.size(clique) for clique in cliques]
            scores = Candidates(cliques, expected, np.array([weights[c] for c in cliques]), np.array(offsets))
            chosen = purse.noisy_selection(scores, epsilon)
            clique = cliques[chosen]
            measured.append(Measurement(clique, purse.noisy_counts(clique, stddev), stddev))
            model = self._estimate(rows, measured, model, self.iterations * (10 if last else 1))
            if np.abs(model.marginal(clique) - expected[chosen]).sum() <= offsets[chosen]:
                price *= 4  # noise hid what there was to learn: halve it
                stddev, epsilon = _settings(price, rows.max_rows_per_unit)
            if progress is not None:
                progress(min(1.0, purse.used / purse.rho), f"{len(measured)} marginals measured")
        return model

    def _affordable(
        self, domain: Domain, weights: dict[Clique, float], model: GraphicalModel, share: float
    ) -> list[Clique]:
        """Marginals with which the model stays within this share of its size; those it already holds are free."""
        limit = self.max_model_size * share * CELLS_PER_MEGABYTE
        held = [set(clique) for clique in model.tree.cliques]
        cells = count_cells(domain, model.cliques)

        def fits(clique: Clique) -> bool:
            if any(node.issuperset(clique) for node in held):
                return True
            # All but its largest column put into every clique of the tree would hold it: far below the limit, no
            # exact count is needed.
            others = domain.size(clique) // max(domain.shape(clique))
            return FAR_BELOW * cells * others <= limit or count_cells(domain, [*model.cliques, clique]) <= limit

        return [clique for clique in weights if fits(clique)]

    def _estimate(
        self, rows: PrivateRows, measured: Sequence[Measurement], model: GraphicalModel | None, iterations: int
    ) -> GraphicalModel:
        return estimate(
            rows.domain,
            measured,
            total=rows.public_num_rows,
            iterations=iterations,
            entropy=self.entropy,
            warm_start=model,
        )


def _settings(price: float, max_rows_per_unit: int) -> tuple[float, float]:
    """Standard deviation of the counts and epsilon of the choice that together cost `price` in zCDP."""
    price *= 1 - 1e-9  # sums of rounded prices must not pass the lump
    stddev = max_rows_per_unit / math.sqrt(2 * MEASURING_FRACTION * price)
    return stddev, math.sqrt(8 * (1 - MEASURING_FRACTION) * price)


def _default_workload(domain: Domain) -> list[Clique]:
    """All pairs, and all triples with the target."""
    names = domain.names
    triples = [clique for clique in itertools.combinations(names, 3) if domain.target in clique]
    return [*itertools.combinations(names, min(2, len(names))), *triples]
