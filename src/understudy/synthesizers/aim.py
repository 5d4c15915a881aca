"""AIM: an adaptive and iterative mechanism (McKenna, Mullins, Sheldon and Miklau 2022)."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import PRNGKeyArray

from understudy.errors import ConfigError
from understudy.marginals import Clique, GraphicalModel, Measurement, count_cells, estimate
from understudy.privacy.accounting import ZCDP
from understudy.privacy.ledger import Budget, Ledger, Look, Plan
from understudy.privacy.mechanisms import Candidates, Filter, Rows
from understudy.schema import Domain

MEASURING_SHARE = 0.9


@dataclasses.dataclass(frozen=True, kw_only=True)
class AIM:
    """Round by round the marginal that the model gets most wrong is chosen and measured."""

    workload: tuple[Clique, ...] | None = None

    max_model_size: float = 4.0

    max_rounds: int | None = None

    target_weight: float = 2.0
    penalty: float = 1.0
    entropy: float = 0.05
    triples: bool = True
    measuring_share: float = 0.9
    iterations: int = 40
    final_iterations: int = 400
    tolerance: float = 1e-2

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One zCDP lump that fills the budget; what the rounds cost inside is decided as they go, under a filter."""
        what = f"up to {self._rounds(domain)} marginals, each chosen and measured under noise"
        return Plan((Look("rounds", what, ZCDP(budget.rho()), columns=domain.names),))

    def _rounds(self, domain: Domain) -> int:
        return self.max_rounds or 16 * len(domain.names)

    def _candidates(self, domain: Domain) -> dict[Clique, float]:
        """Marginals to choose among, with their weights."""
        names = domain.names
        workload = self.workload
        if workload is None:
            workload = tuple(itertools.combinations(names, min(2, len(names))))
            if self.triples and domain.target is not None:
                workload += tuple(c for c in itertools.combinations(names, 3) if domain.target in c)
        closure = {
            part for clique in workload for size in range(1, len(clique) + 1) for part in itertools.combinations(clique, size)
        }
        ordered = sorted(closure, key=lambda c: (len(c), [domain.index(n) for n in c]))
        return {c: self.target_weight if domain.target in c else 1.0 for c in ordered if len(c) > 1}

    def fit(
        self,
        rows: Rows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        progress: Callable[[float, str], None] | None = None,
    ) -> GraphicalModel:
        domain, tell = rows.domain, progress or (lambda share, words: None)
        purse = Filter(rows, plan["rounds"], ledger)
        rounds = self._rounds(domain)
        stddev = rows.max_rows_per_unit * math.sqrt(rounds / (2 * self.measuring_share * purse.rho))
        epsilon = math.sqrt(8 * (1 - self.measuring_share) * purse.rho / rounds)
        measured = [Measurement(c, purse.noisy_counts(c, stddev), stddev) for c in domain.singles]
        model = self._estimate(domain, measured, None, 400)
        weights = self._candidates(domain)
        self.__dict__.get("log", [])
        rnd = 0
        last = False
        while not last:
            rnd += 1
            cost = purse.price_of_counts(stddev) + purse.price_of_choice(epsilon)
            if purse.remaining < 2 * cost:
                last = True
                rho = purse.remaining * (1 - 1e-9)
                stddev = rows.max_rows_per_unit / math.sqrt(2 * self.measuring_share * rho)
                epsilon = math.sqrt(8 * (1 - self.measuring_share) * rho)
            share = (purse.used + cost) / purse.rho
            small = self._affordable(domain, weights, model, share)
            expected = model.marginals(small)
            offsets = np.array([self.penalty * math.sqrt(2 / math.pi) * stddev * domain.size(c) for c in small])
            pick = purse.noisy_choice(
                Candidates(small, expected, np.array([weights[c] for c in small]), offsets), epsilon
            )
            clique = small[pick]
            measured.append(Measurement(clique, purse.noisy_counts(clique, stddev), stddev))
            new = self._estimate(domain, measured, model, self.final_iterations if last else self.iterations)
            moved = np.abs(new.marginal(clique) - expected[pick]).sum()
            model = new
            if moved <= math.sqrt(2 / math.pi) * stddev * domain.size(clique):
                stddev, epsilon = stddev / 2, epsilon * 2
            from understudy import marginals as MM
            tell(purse.used / purse.rho, f"{rnd} {clique} sd {stddev:.1f} cand {len(small)} cells {sum(domain.size(c) for c in model.tree.cliques)} {MM.LOG[-2:]}")
        return model

    def _estimate(self, domain: Domain, measured: Sequence[Measurement], model: GraphicalModel | None, iterations: int):
        return estimate(
            domain,
            measured,
            total=domain.num_rows,
            iterations=iterations,
            entropy=self.entropy,
            tolerance=self.tolerance,
            warm_start=model,
        )

    def _affordable(self, domain: Domain, weights: dict[Clique, float], model: GraphicalModel, share: float) -> list[Clique]:
        limit = self.max_model_size * share * 2**20 / 8
        held = [set(c) for c in model.tree.cliques]
        return [
            c
            for c in weights
            if any(h.issuperset(c) for h in held) or count_cells(domain, [*model.cliques, c]) <= limit
        ]
