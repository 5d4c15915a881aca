"""Which marginals to measure next: those whose measurement lowers the expected error most."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.cluster.hierarchy import DisjointSet

from understudy.marginals.allocation import expected_error, needs
from understudy.models.graphical import GraphicalModel
from understudy.models.junction import Clique, Table, count_cells
from understudy.schema import Domain

FAR_BELOW = 4
"""If an upper bound is below the limit by this factor, the cells need no exact count."""


def resolved_cells(expected: Table, stddev: float) -> float:
    """The number of cells to which noise adds its full error; those that expect less than the noise count in part."""
    return max(1.0, float(np.minimum(1.0, expected / stddev).sum()))


def resolved_fraction(expected: Table, stddev: float, prior_variance: float) -> float:
    """The fraction of rows in cells that a measurement is informative about.

    For a count of c and noise of variance s^2, the weight of the measurement in the best estimate is c^2 v / (c^2 v +
    s^2), with the prior variance v of `shrinkage.py`.
    """
    known = expected**2 * prior_variance
    return float((expected * known / (known + stddev**2)).sum() / max(1.0, expected.sum()))


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Marginals to choose from."""

    cliques: Sequence[Clique]
    errors: Float[np.ndarray, " n"]
    """The estimated error of the model that measuring would remove."""
    weights: Float[np.ndarray, " n"]
    cells: Float[np.ndarray, " n"]

    @property
    def needs(self) -> Float[np.ndarray, " n"]:
        return needs(self.weights, self.cells)


class SizeLimit:
    """Keeps a graphical model within a number of cells."""

    def __init__(self, domain: Domain, model: GraphicalModel, limit: float) -> None:
        self._domain, self._limit = domain, limit
        self._held = [frozenset(clique) for clique in model.tree.cliques]
        self._cliques = list(model.scopes)
        self._cells = count_cells(domain, self._cliques)

    def fits(self, clique: Clique) -> bool:
        """Whether the model with this clique is within the limit."""
        if any(node.issuperset(clique) for node in self._held):
            return True
        # Adding all but its largest column to every clique of the tree gives an upper bound. If that is far below the
        # limit, no exact count is needed.
        others = self._domain.size(clique) // max(self._domain.shape(clique))
        if FAR_BELOW * self._cells * others <= self._limit:
            return True
        return count_cells(self._domain, [*self._cliques, clique]) <= self._limit

    def add(self, clique: Clique) -> None:
        self._cliques.append(clique)
        self._cells = count_cells(self._domain, self._cliques)


def choose(
    candidates: Candidates, limit: SizeLimit, *, total_need: float, precision: float, max_chosen: int, forest: bool
) -> list[int]:
    """The indices of candidates by expected gain, until no gain is positive.

    The gain of a marginal is the weighted error that it removes, minus what it adds to the noise of all measured ones,
    whose needs sum to `total_need`, if `precision` is divided again among them. Of two equal gains the one that needs
    less precision comes first. With `forest`, no chosen pair closes a cycle: what a chain of pairs implies is
    unknown before the chain is measured.
    """
    need = candidates.needs
    is_open = np.ones(len(candidates.cliques), dtype=bool)
    connected = DisjointSet({name for clique in candidates.cliques for name in clique})
    chosen: list[int] = []
    while len(chosen) < min(max_chosen, len(candidates.cliques)):
        more_noise = expected_error(total_need + need, precision) - expected_error(total_need, precision)
        gain = candidates.weights * candidates.errors - more_noise
        order = np.where(is_open & (gain > 0), gain / np.sqrt(need), -np.inf)
        best = int(order.argmax())
        if order[best] == -np.inf:
            break
        is_open[best] = False
        clique = candidates.cliques[best]
        if forest and len({connected[name] for name in clique}) < len(clique):
            continue
        if not limit.fits(clique):
            continue
        limit.add(clique)
        chosen.append(best)
        total_need += need[best]
        for name in clique[1:]:
            connected.merge(clique[0], name)
    return chosen
