"""PrivBayes: a Bayesian network whose structure is selected and whose conditionals are measured under noise.

Zhang, Cormode, Procopiuc, Srivastava and Xiao, "PrivBayes: private data release via Bayesian networks", ACM TODS 2017.
Differences, and why:

- The paper's sensitivities assume that one row is replaced and that the number of rows is public. Here a unit is added
  or removed and the number may be private: the R score is scaled to counts, with the bound proven in
  `privacy/mechanisms/dependence.py`.
- Marginals have discrete Gaussian instead of Laplace noise, and all queries are composed jointly.
- Every column's marginal with its parents is measured; the paper derives those of the first few from a later one.
- Columns are binned before the method starts, so parents are not generalised along taxonomies.
"""

import dataclasses
import itertools
import math
from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from understudy.marginals.expected import expected_of_counts
from understudy.models.bayesian_network import BayesianNetwork
from understudy.notes import Note
from understudy.privacy.accounting.events import DiscreteGaussian, Selections
from understudy.privacy.accounting.ledger import Budget, Plan
from understudy.privacy.accounting.marginal_noise import ExpectedNoise
from understudy.privacy.gradients.charges import event_of
from understudy.privacy.mechanisms.counts import noisy_counts
from understudy.privacy.mechanisms.dependence import Dependence, DependenceSelector, noisy_dependence_selections
from understudy.privacy.mechanisms.rows_per_unit import to_probabilities
from understudy.privacy.rows.rows import Clique
from understudy.schema import Domain
from understudy.synthesizers.protocol import Capabilities
from understudy.synthesizers.run import Run, calibrate_query
from understudy.synthesizers.settings import Count, InnerFraction, check_settings

THETA = 4.0
"""The least average count of a marginal's cells, in standard deviations of their noise: the paper's theta, its
usefulness."""
MAX_CANDIDATES = 2000
"""The most candidates of one selection: if there are more, about this many are drawn at random."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivBayes:
    """A Bayesian network: parents selected by dependence, conditionals from noisy marginals.

    >>> PrivBayes(max_parents=2).max_parents
    2
    """

    capabilities: ClassVar[Capabilities] = Capabilities()

    selection_fraction: InnerFraction = 0.3
    """Fraction of the budget for the structure; the paper's beta."""

    max_parents: Count = 3
    """Most parents of a column."""

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One selection for each column after the first, then one bundle of marginals that fills the budget."""
        count, queries = len(domain.names), []

        def network(noise: float) -> Selections:
            return Selections(1 / noise, count - 1)

        def bundle(stddev: float) -> DiscreteGaussian:
            return DiscreteGaussian(stddev, count, budget.max_rows_per_unit)

        if count > 1:
            what, part = (
                f"parents of {count - 1} columns, selected by dependence",
                budget.fraction_of_rest(self.selection_fraction),
            )
            queries.append(calibrate_query("network", what, network, domain, part))
        what = f"a marginal of each of {count} columns with its parents"
        queries.append(calibrate_query("marginals", what, bundle, domain, budget.after(queries)))
        cells = self._max_cells(domain, event_of(queries[-1], DiscreteGaussian).stddev)
        return Plan(tuple(queries), (Note(f"A column and its parents have at most {cells:,} cells together."),))

    def expected_noise(self, domain: Domain, plan: Plan, max_rows_per_unit: int) -> tuple[ExpectedNoise, ...]:
        """Marginals of the first column and of each other column with its parents, all with the same noise."""
        most = min(1 + self.max_parents, len(domain.names))
        return (expected_of_counts(plan["marginals"].event, 1, most),)

    def fit(self, run: Run) -> BayesianNetwork:
        """Formal guarantee: the joint cost of the plan's queries. The order of the candidates, the conditionals and all
        sampling are post-processing."""
        rows, plan, ledger, domain = run.rows, run.plan, run.ledger, run.domain
        stddev = event_of(plan["marginals"], DiscreteGaussian).stddev
        select = noisy_dependence_selections(rows, plan["network"], ledger) if "network" in plan else None
        network = self._select_network(domain, select, self._max_cells(domain, stddev), run.key)
        run.report(0.6, "network selected")
        cliques = [(*parents, child) for child, parents in network.items()]
        noisy = noisy_counts(rows, cliques, plan["marginals"], ledger)
        run.report(1.0, "marginals measured")
        conditionals = dict(zip(network, map(_conditional, noisy), strict=True))
        return BayesianNetwork(
            domain.names,
            domain.sizes,
            tuple(domain.index(name) for name in network),
            tuple(tuple(domain.index(parent) for parent in network[name]) for name in domain.names),
            tuple(conditionals[name] for name in domain.names),
            domain.zeros,
        )

    def _max_cells(self, domain: Domain, stddev: float) -> int:
        """The most cells of a useful marginal: an average count is then `THETA` standard deviations or more."""
        return max(1, math.floor(domain.num_rows / (THETA * stddev)))

    def _select_network(
        self, domain: Domain, select: DependenceSelector | None, max_cells: int, key: PRNGKeyArray
    ) -> dict[str, Clique]:
        """The parents of each column, in an order in which parents come first. The first column is drawn at random."""
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        network: dict[str, Clique] = {domain.names[int(generator.integers(len(domain.names)))]: ()}
        while select is not None and len(network) < len(domain.names):
            candidates = self._candidates(domain, tuple(network), max_cells, generator)
            chosen = candidates[select(candidates)]
            network[chosen.child] = chosen.parents
        return network

    def _candidates(
        self, domain: Domain, placed: Clique, max_cells: int, generator: np.random.Generator
    ) -> list[Dependence]:
        """Every column not yet placed with each of its maximal useful parent sets, or a random subset of these.

        Follows from public sizes and public randomness alone. Where there are too many, they are never listed: of wide
        tables there are billions.
        """
        children = [name for name in domain.names if name not in placed]
        limits = [max_cells // domain.size((child,)) for child in children]
        if len(children) * math.comb(len(placed), min(self.max_parents, len(placed))) > MAX_CANDIDATES:
            chosen = generator.integers(len(children), size=MAX_CANDIDATES)
            candidates = {
                Dependence(children[at], _random_maximal_set(domain, placed, limits[at], self.max_parents, generator))
                for at in chosen
            }
            return sorted(candidates, key=lambda candidate: (candidate.child, candidate.parents))
        return [
            Dependence(child, parents)
            for child, limit in zip(children, limits, strict=True)
            for parents in _maximal_sets(domain, placed, limit, self.max_parents)
        ]


def _maximal_sets(domain: Domain, columns: Clique, max_cells: int, max_size: int) -> list[Clique]:
    """Subsets of the columns with at most `max_cells` cells and `max_size` columns to which none can be added.

    >>> _maximal_sets(Domain(names=("a", "b", "c"), sizes=(2, 3, 5), num_rows=1), ("a", "b", "c"), 10, 3)
    [('a', 'b'), ('a', 'c')]
    """
    fitting = [
        subset
        for size in range(min(max_size, len(columns)) + 1)
        for subset in itertools.combinations(columns, size)
        if domain.size(subset) <= max(1, max_cells)
    ]
    smallest = {name: domain.size((name,)) for name in columns}
    return [
        subset
        for subset in fitting
        if len(subset) == max_size
        or all(name in subset or domain.size(subset) * smallest[name] > max(1, max_cells) for name in columns)
    ]


def _random_maximal_set(
    domain: Domain, columns: Clique, max_cells: int, max_size: int, generator: np.random.Generator
) -> Clique:
    """One of the sets of `_maximal_sets`: columns in random order, each added if it still fits."""
    added: Clique = ()
    for at in generator.permutation(len(columns)):
        if len(added) < max_size and domain.size((*added, columns[at])) <= max(1, max_cells):
            added = (*added, columns[at])
    return tuple(name for name in columns if name in added)


def _conditional(noisy: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Probabilities of the last axis given the others, from noisy counts; without counts, those over all contexts.

    Setting negative counts to zero adds rows where there are none, and in a wide bin of a tail a few rows make most of
    an average. So the counts of each code are scaled to its total over all contexts, in which noise cancels.
    """
    counts = np.maximum(noisy, 0.0)
    contexts = tuple(range(noisy.ndim - 1))
    of_code, clipped = noisy.sum(axis=contexts), counts.sum(axis=contexts)
    if of_code.sum() > 0:
        fractions = to_probabilities(np.rint(of_code).astype(np.int64))
        counts = counts * np.where(clipped > 0, fractions * of_code.sum() / np.where(clipped > 0, clipped, 1.0), 0.0)
    overall = counts.sum(axis=contexts)
    overall = overall / overall.sum() if overall.sum() > 0 else np.full(len(overall), 1 / len(overall))
    totals = counts.sum(axis=-1, keepdims=True)
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1.0), overall)
