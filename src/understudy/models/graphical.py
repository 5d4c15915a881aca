"""The graphical model that a set of noisy marginals determines: exact answers and rows from it.

A distribution of maximal entropy with given marginals is a product of one table per measured clique (McKenna, Sheldon
and Miklau, "Graphical-model based estimation and inference for differential privacy", 2019). Its marginals are
computed by message passing over a junction tree.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import ClassVar

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from understudy.errors import ConditionError
from understudy.models.junction import Axes, Clique, JunctionTree, MarginalQuery, Messenger, Ranking, Table
from understudy.models.protocol import Allowed, Arrays, Sample, Structure, register
from understudy.models.zeros import pack_zeros, unpack_zeros
from understudy.schema import Domain, StructuralZeros


@register
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GraphicalModel:
    """A distribution over encoded rows: a product of one exponentiated table per clique. Free to query and sample."""

    kind: ClassVar[str] = "graphical"
    domain: Domain
    total: float
    """The number of rows that `marginal` counts add up to."""
    cliques: tuple[Clique, ...]
    potentials: tuple[Table, ...]
    """The logarithm of each clique's table, with axes in the clique's order."""
    tree: JunctionTree
    zeros: tuple[StructuralZeros, ...] = ()
    """Combinations of codes of probability zero, whatever the potentials are."""

    @property
    def scopes(self) -> tuple[Clique, ...]:
        """The columns of each of its tables, those of structural zeros included."""
        return (*self.cliques, *(zeros.columns for zeros in self.zeros))

    @property
    def names(self) -> tuple[str, ...]:
        return self.domain.names

    def marginal(self, clique: Clique) -> Table:
        """Expected counts of the clique's cells, in its own order of columns."""
        return self.marginals([clique])[0]

    def marginals(self, cliques: Sequence[Clique]) -> list[Table]:
        """As `marginal`, for several cliques, which share messages along the tree."""
        query = MarginalQuery(self._messenger, self._beliefs)
        ranking = self._ranking
        return [self.total * ranking.outward(clique, query(ranking.axes(clique))) for clique in cliques]

    def sample(self, num_rows: int, *, key: PRNGKeyArray, allowed: Allowed | None = None) -> Sample:
        """New rows, sampled clique by clique down the tree, given the columns already sampled.

        Every single row follows the model exactly. The rows of one call are stratified rather than independent: among
        the rows that share a parent's cell, the uniform draws that choose the next cell are stratified in random
        order, so that counts stay within about one of their expectation. `allowed` is met by Bayes' rule.
        """
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        beliefs = self._condition(allowed) if allowed else self._beliefs
        codes = np.zeros((num_rows, len(self.domain.names)), dtype=np.int32)
        for i, (node, separator) in enumerate(zip(self._messenger.nodes, self._messenger.separators, strict=True)):
            _draw_node(codes, beliefs[i], node, separator, rng)
        return Sample(codes[:, np.argsort(self._ranking.columns)], None)

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        """The structure as JSON-safe values, and the potentials as named arrays."""
        structure: dict[str, object] = {
            "names": list(self.domain.names),
            "sizes": list(self.domain.sizes),
            "num_rows": self.domain.num_rows,
            "target": self.domain.target,
            "total": self.total,
            "cliques": [list(clique) for clique in self.cliques],
            "tree": {"cliques": [list(clique) for clique in self.tree.cliques], "parents": list(self.tree.parents)},
        }
        arrays = {f"potential_{i}": table for i, table in enumerate(self.potentials)}
        columns, possible = pack_zeros(self.zeros)
        return structure | columns, arrays | possible

    @classmethod
    def from_arrays(cls, structure: Structure, arrays: Arrays) -> "GraphicalModel":
        zeros = unpack_zeros(structure, arrays)
        domain = Domain(
            names=tuple(structure["names"]),
            sizes=tuple(structure["sizes"]),
            num_rows=structure["num_rows"],
            target=structure["target"],
            zeros=zeros,
        )
        tree = structure["tree"]
        cliques = tuple(tuple(clique) for clique in structure["cliques"])
        return cls(
            domain=domain,
            total=structure["total"],
            cliques=cliques,
            potentials=tuple(np.asarray(arrays[f"potential_{i}"], dtype=float) for i in range(len(cliques))),
            tree=JunctionTree(tuple(tuple(clique) for clique in tree["cliques"]), tuple(tree["parents"])),
            zeros=zeros,
        )

    @functools.cached_property
    def _ranking(self) -> Ranking:
        return Ranking(self.domain)

    @functools.cached_property
    def _messenger(self) -> Messenger:
        return Messenger(self._ranking, self.tree, [self._ranking.axes(scope) for scope in self.scopes])

    @functools.cached_property
    def _beliefs(self) -> list[Table]:
        return self._messenger.calibrate(self._ranked_potentials())

    def _ranked_potentials(self) -> list[Table]:
        tables = (*self.potentials, *map(log_possible, self.zeros))
        return [self._ranking.inward(scope, table) for scope, table in zip(self.scopes, tables, strict=True)]

    def _condition(self, allowed: Allowed) -> list[Table]:
        """Beliefs given that every column has one of its allowed codes."""
        evidence = []
        for name, mask in allowed.items():
            (size,) = self.domain.shape((name,))
            if mask.shape != (size,):
                raise ConditionError(
                    f"Column {name!r} has {size} codes; the condition has a mask of shape {mask.shape}.", column=name
                )
            evidence.append((self._ranking.axes((name,))[0], np.where(mask, 0.0, -np.inf)))
        return self._messenger.calibrate(self._ranked_potentials(), evidence)


def log_possible(zeros: StructuralZeros) -> Table:
    """Structural zeros as a table of log-potentials."""
    return np.where(zeros.possible, 0.0, -np.inf)


def _draw_node(codes: np.ndarray, belief: Table, node: Axes, separator: Axes, rng: np.random.Generator) -> None:
    """Fills in the node's new columns (`codes` has ranked columns), given those of its separator.

    The node's cells are laid end to end, those with equal separator codes side by side; a row's draw is uniform over
    the stretch of its separator codes. Within a stretch the rows' draws are stratified: for k rows in random order,
    the j-th draws from the j-th of k equal parts, which is uniform over the stretch for every row by itself.
    """
    new = tuple(a for a in node if a not in separator)
    if not new:
        return
    laid_out = np.transpose(belief, [node.index(a) for a in separator + new])
    fixed, free = laid_out.shape[: len(separator)], laid_out.shape[len(separator) :]
    ends = np.cumsum(laid_out)
    bounds = np.concatenate([[0.0], ends[math.prod(free) - 1 :: math.prod(free)]])
    group = np.zeros(len(codes), dtype=np.int64)
    for a, size in zip(separator, fixed, strict=True):
        group = group * size + codes[:, a]
    low, high = bounds[group], bounds[group + 1]
    point = low + _draw_stratified(group, math.prod(fixed), rng) * (high - low)
    # Rounding must not move a draw to a neighbouring cell, whose probability may be zero.
    cell = np.searchsorted(ends, np.minimum(point, np.nextafter(high, low)), side="right") - group * math.prod(free)
    codes[:, new] = np.stack(np.unravel_index(np.clip(cell, 0, math.prod(free) - 1), free), axis=1)


def _draw_stratified(group: np.ndarray, num_groups: int, rng: np.random.Generator) -> np.ndarray:
    """Stratified draws within each group; each by itself is uniform on [0, 1)."""
    shuffled = rng.permutation(len(group))
    order = shuffled[np.argsort(group[shuffled], kind="stable")]
    counts = np.bincount(group, minlength=num_groups)
    first = np.cumsum(counts) - counts
    rank = np.empty(len(group))
    rank[order] = np.arange(len(group)) - first[group[order]]
    return (rank + rng.random(len(group))) / counts[group]
