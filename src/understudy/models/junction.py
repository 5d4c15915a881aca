"""Junction trees: which columns share a clique, and messages that turn tables into marginals.

Messages are plain NumPy in double precision: a compiled program for each set of cliques would be compiled anew whenever
a method adds one.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.cluster.hierarchy import DisjointSet

from understudy.errors import ConditionError
from understudy.schema import Domain, StructuralZeros

Clique = tuple[str, ...]
Axes = tuple[int, ...]  # a clique by the ranks of its columns, ascending: see `Ranking`
Table = Float[np.ndarray, "..."]

MAX_KEPT_CELLS = 2**22
ZEROS_FRACTION = 1 / 16  # of a model's cells that structural zeros may take by themselves: the rest is for measurements
LARGEST_RANGE = 600.0  # of logarithms that one exponential holds: exp(-600) is far above the smallest float
MIN_SUM = 1e-280  # below, a quotient could overflow; the cells are impossible for every purpose


# --- Structure: which columns share a clique ---


class JunctionTree(NamedTuple):
    """Cliques of columns, each after its parent: what a clique shares with earlier ones, it shares with its parent."""

    cliques: tuple[Clique, ...]
    parents: tuple[int, ...]


def junction_tree(domain: Domain, cliques: Iterable[Clique]) -> JunctionTree:
    """A junction tree in which every given clique is part of some clique. Unconnected parts share no column.

    Columns are eliminated greedily, the one whose clique has the fewest cells first. Where columns and pairs form a
    tree, its edges are the cliques. The tree joins the cliques by a spanning tree of the largest separators.
    """
    neighbours = _adjacency(domain, cliques)
    edges = [(u, v) for v, bits in enumerate(neighbours) for u in range(v) if bits >> u & 1]
    if _is_tree(len(neighbours), edges):
        edge_masks = [1 << v | 1 << u for u, v in edges]
    else:
        edge_masks = _eliminate(domain.sizes, neighbours)
    names = sorted(tuple(name for i, name in enumerate(domain.names) if bits >> i & 1) for bits in edge_masks)
    return _orient(domain, names, _spanning_tree(names))


def _spanning_tree(cliques: Sequence[Clique]) -> list[set[int]]:
    """Each clique's neighbours in a spanning tree of the largest overlaps (Kruskal); ties in the order of cliques."""
    overlaps = {
        (i, j): len(set(cliques[i]) & set(cliques[j])) for i, j in itertools.combinations(range(len(cliques)), 2)
    }
    connected, neighbours = DisjointSet(range(len(cliques))), [set[int]() for _ in cliques]
    for i, j in sorted((pair for pair in overlaps if overlaps[pair]), key=lambda pair: -overlaps[pair]):
        if connected.merge(i, j):
            neighbours[i].add(j)
            neighbours[j].add(i)
    return neighbours


def _orient(domain: Domain, cliques: Sequence[Clique], neighbours: Sequence[set[int]]) -> JunctionTree:
    """Every clique after its parent, from the largest of each connected part downwards."""
    order: list[int] = []
    parents: list[int] = []
    for root in sorted(range(len(cliques)), key=lambda i: domain.size(cliques[i]), reverse=True):
        if root in order:
            continue
        stack = [(root, 0 if order else -1)]
        while stack:
            clique, parent = stack.pop()
            order.append(clique)
            parents.append(parent)
            here = len(order) - 1
            stack.extend((other, here) for other in sorted(neighbours[clique]) if other not in order)
    return JunctionTree(tuple(cliques[i] for i in order), tuple(parents))


def count_cells(domain: Domain, cliques: Iterable[Clique]) -> int:
    """Cells of the junction tree over these cliques by greedy elimination.

    Fast enough to be asked for every candidate clique of every round.
    """
    return sum(_product(domain.sizes, clique) for clique in _eliminate(domain.sizes, _adjacency(domain, cliques)))


def zeros_within(domain: Domain, cliques: Sequence[Clique], max_cells: float) -> tuple[StructuralZeros, ...]:
    """The structural zeros of the domain that fit a model of these cliques: those of the fewest cells first.

    The rest is left out, so that rules never make a model too large: rows that break them are rejected later. Zeros
    alone take at most a fraction of the model, so that they do not keep a method from adding cliques.
    """
    kept: list[StructuralZeros] = []
    for zeros in sorted(domain.zeros, key=lambda zeros: zeros.possible.size):
        scopes = [*(each.columns for each in kept), zeros.columns]
        if (
            count_cells(domain, scopes) <= ZEROS_FRACTION * max_cells
            and count_cells(domain, [*cliques, *scopes]) <= max_cells
        ):
            kept.append(zeros)
    return tuple(kept)


def _eliminate(sizes: Sequence[int], neighbours: list[int]) -> list[int]:
    """The maximal cliques of greedy elimination, as bits: the fewest cells first. Overwrites `neighbours`."""
    costs: list[float] = [_product(sizes, bits | 1 << v) for v, bits in enumerate(neighbours)]
    eliminated: list[int] = []
    for _ in sizes:
        v = costs.index(min(costs))
        costs[v] = math.inf
        clique, rest = neighbours[v] | 1 << v, neighbours[v]
        while rest:
            u = (rest & -rest).bit_length() - 1
            rest &= rest - 1
            neighbours[u] = (neighbours[u] | clique) & ~(1 << u | 1 << v)
            costs[u] = _product(sizes, neighbours[u] | 1 << u)
        if not any(clique & other == clique for other in eliminated):
            eliminated.append(clique)
    return eliminated


def _is_tree(size: int, edges: Sequence[tuple[int, int]]) -> bool:
    """Whether the graph has an edge, is connected, and has no cycle."""
    connected = DisjointSet(range(size))
    return len(edges) == size - 1 > 0 and all(connected.merge(u, v) for u, v in edges)


def _adjacency(domain: Domain, cliques: Iterable[Clique]) -> list[int]:
    """For each column the columns it shares a clique with, as bits."""
    neighbours = [0] * len(domain.names)
    for clique in cliques:
        indices = [domain.index(name) for name in clique]
        bits = sum(1 << i for i in indices)
        for i in indices:
            neighbours[i] |= bits & ~(1 << i)
    return neighbours


def _product(sizes: Sequence[int], bits: int) -> int:
    """Cells of the marginal over the columns whose bits are set."""
    result = 1
    while bits:
        low = bits & -bits
        result *= sizes[low.bit_length() - 1]
        bits ^= low
    return result


class Ranking:
    """Columns by ascending size: tables keep their axes in this order, so that the contiguous axis is the longest."""

    def __init__(self, domain: Domain) -> None:
        order = sorted(range(len(domain.sizes)), key=lambda i: (domain.sizes[i], i))
        self.columns = tuple(order)
        self.sizes = tuple(domain.sizes[i] for i in order)
        self._rank = {domain.names[i]: rank for rank, i in enumerate(order)}

    def axes(self, clique: Clique) -> Axes:
        return tuple(sorted(self._rank[name] for name in clique))

    def shape(self, axes: Axes) -> tuple[int, ...]:
        return tuple(self.sizes[a] for a in axes)

    def inward(self, clique: Clique, table: np.ndarray) -> np.ndarray:
        """A table with the clique's own order of axes, turned to ranked order."""
        ranks = [self._rank[name] for name in clique]
        return np.transpose(table, np.argsort(ranks))

    def outward(self, clique: Clique, table: np.ndarray) -> np.ndarray:
        ranks = [self._rank[name] for name in clique]
        return np.transpose(table, np.argsort(np.argsort(ranks)))


# --- Messages: from potentials to marginals ---


class _Link(NamedTuple):
    """How a smaller table embeds in a larger one: the shape that broadcasts it, and the axes to sum over."""

    shape: tuple[int, ...]
    summed: tuple[int, ...]


def _link(small: Axes, large: Axes, sizes: Sequence[int]) -> _Link:
    return _Link(
        shape=tuple(sizes[a] if a in small else 1 for a in large),
        summed=tuple(i for i, a in enumerate(large) if a not in small),
    )


class Messenger:
    """Message passing for one structure: log-potentials of the factors in, probabilities of the tree's cliques out.

    One exponential per cell, none for the way back: Hugin's division of separators, on tables scaled by their maximum.
    """

    def __init__(self, ranking: Ranking, tree: JunctionTree, factors: Sequence[Axes]) -> None:
        self.nodes = [ranking.axes(clique) for clique in tree.cliques]
        self.parents = tree.parents
        self.factors = list(factors)
        sizes = ranking.sizes
        self._shapes = [ranking.shape(node) for node in self.nodes]
        cells = [math.prod(shape) for shape in self._shapes]
        self.separators = [
            tuple(a for a in node if p >= 0 and a in self.nodes[p])
            for node, p in zip(self.nodes, tree.parents, strict=True)
        ]
        self._up = [_link(sep, node, sizes) for sep, node in zip(self.separators, self.nodes, strict=True)]
        self._into = [
            _link(sep, self.nodes[p], sizes) if p >= 0 else None
            for sep, p in zip(self.separators, self.parents, strict=True)
        ]
        # A factor contained in another is added to it first: only the largest are added to the tables of the tree.
        self._order = sorted(range(len(self.factors)), key=lambda f: (len(self.factors[f]), f))
        self._host: list[tuple[bool, int, _Link]] = []
        for axes in self.factors:
            wider = [g for g, other in enumerate(self.factors) if set(axes) < set(other)]
            if wider:
                g = min(wider, key=lambda g: math.prod(ranking.shape(self.factors[g])))
                self._host.append((False, g, _link(axes, self.factors[g], sizes)))
            else:
                homes = [i for i, node in enumerate(self.nodes) if set(axes) <= set(node)]
                i = min(homes, key=lambda i: cells[i])
                self._host.append((True, i, _link(axes, self.nodes[i], sizes)))

    def calibrate(self, potentials: Sequence[Table], evidence: Sequence[tuple[int, Table]] = ()) -> list[Table]:
        """The probability table of each tree clique, by one pass up and one down.

        `evidence`: log-weights over the codes of single columns, by rank.
        """
        logs = [np.zeros(shape) for shape in self._shapes]
        gathered = list(potentials)
        for f in self._order:
            at_node, host, link = self._host[f]
            if at_node:
                logs[host] += gathered[f].reshape(link.shape)
            else:
                gathered[host] = gathered[host] + gathered[f].reshape(link.shape)
        for rank, log_weights in evidence:
            i = next(i for i, node in enumerate(self.nodes) if rank in node)
            logs[i] += log_weights.reshape([-1 if a == rank else 1 for a in self.nodes[i]])
        return self._pass_messages(logs)

    def _pass_messages(self, logs: list[Table]) -> list[Table]:
        """Turns log-tables into probabilities, in place."""
        sums: list[Table] = [np.ones(())] * len(logs)
        for i in reversed(range(len(logs))):
            table, parent, into = logs[i], self.parents[i], self._into[i]
            peaks = np.asarray(table.max(axis=self._up[i].summed))
            highest: Table = peaks.max()
            if highest == -math.inf:
                raise ConditionError("No row can meet this condition: the model gives it probability zero.")
            if peaks.min() < highest - LARGEST_RANGE:  # scaled by one maximum, whole separator cells would underflow
                highest = np.where(peaks == -math.inf, highest, peaks)
            np.subtract(table, highest.reshape(self._up[i].shape) if highest.ndim else highest, out=table)
            np.exp(table, out=table)
            if into is None:
                table /= table.sum()
            else:
                total = table.sum(axis=self._up[i].summed)
                sums[i] = np.where(total > MIN_SUM, total, 0.0)
                with np.errstate(divide="ignore"):
                    logs[parent] += (np.log(sums[i]) + highest).reshape(into.shape)
        for i in range(len(logs)):
            into = self._into[i]
            if into is not None:
                target = logs[self.parents[i]].sum(axis=into.summed)
                ratio = np.divide(target, sums[i], out=np.zeros_like(target), where=sums[i] > 0)
                logs[i] *= ratio.reshape(self._up[i].shape)
        return logs

    def factor_marginals(self, beliefs: Sequence[Table]) -> list[Table]:
        """The probability table of each factor."""
        marginals: list[Table] = [np.ones(())] * len(self.factors)
        for f in reversed(self._order):
            at_node, host, link = self._host[f]
            source = beliefs[host] if at_node else marginals[host]
            marginals[f] = source.sum(axis=link.summed) if link.summed else source
        return marginals


class MarginalQuery:
    """Marginals of a calibrated tree over any columns, those of different cliques included.

    A column b outside the asked node is carried there along the tree as P(b | separator), step by step. What was
    carried once is kept: the pairs of one column with all others cost little more than one of them.
    """

    def __init__(self, messenger: Messenger, beliefs: Sequence[Table]) -> None:
        self._nodes = messenger.nodes
        self._beliefs = beliefs
        self._neighbours: list[list[int]] = [[] for _ in self._nodes]
        for i, p in enumerate(messenger.parents):
            if p >= 0:
                self._neighbours[i].append(p)
                self._neighbours[p].append(i)
        self._beyond: dict[tuple[int, int], frozenset[int]] = {}
        self._projected: dict[tuple[int, Axes], Table] = {}
        self._carried: dict[tuple[int, int, Axes], Table] = {}
        self._kept = 0

    def __call__(self, asked: Axes) -> Table:
        at = self._nearest_node(asked)
        return self._joint(at, -1, asked)

    def _nearest_node(self, asked: Axes) -> int:
        """A node with the largest number of the queried columns, as close to the others as possible."""
        num_shared = [len(set(asked) & set(node)) for node in self._nodes]
        best = max(num_shared)
        if best == len(asked):
            homes = [i for i, h in enumerate(num_shared) if h == best]
            return min(homes, key=lambda i: self._beliefs[i].size)
        at, before = num_shared.index(best), -1
        while True:
            missing = set(asked) - set(self._nodes[at])
            here = set(asked) & set(self._nodes[at])
            onward = [
                j
                for j in self._neighbours[at]
                if j != before and here <= set(self._nodes[j]) and missing <= self._columns_beyond(at, j)
            ]
            if not onward:
                return at
            before, at = at, onward[0]

    def _columns_beyond(self, at: int, towards: int) -> frozenset[int]:
        """The columns beyond the edge from `at` to `towards`."""
        edge = (at, towards)
        if edge not in self._beyond:
            further = [self._columns_beyond(towards, j) for j in self._neighbours[towards] if j != at]
            self._beyond[edge] = frozenset(self._nodes[towards]).union(*further)
        return self._beyond[edge]

    def _joint(self, at: int, origin: int, asked: Axes) -> Table:
        """P(columns) for columns at this node or beyond it as seen from `origin`; axes in ranked order."""
        node = set(self._nodes[at])
        errands: list[tuple[int, Axes]] = []
        missing = set(asked) - node
        for j in self._neighbours[at]:
            fetched = tuple(sorted(missing & self._columns_beyond(at, j))) if j != origin else ()
            if fetched:
                errands.append((j, fetched))
                missing -= set(fetched)
        separators = [tuple(sorted(node & set(self._nodes[j]))) for j, _ in errands]
        axes = tuple(sorted((set(asked) & node).union(*separators)))
        table = self._project(at, axes)
        for k, (j, fetched) in enumerate(errands):
            needed = set(asked).union(*separators[k + 1 :])
            carried_axes = tuple(sorted(set(fetched) | set(separators[k])))
            out = tuple(sorted((set(axes) | set(carried_axes)) & needed))
            table = _contract(table, axes, self._carry(j, at, fetched), carried_axes, out)
            axes = out
        return table

    def _carry(self, at: int, to: int, columns: Axes) -> Table:
        """P(columns | separator) as a table over both, for columns beyond the separator of `at` and `to`."""
        key = (at, to, columns)
        if key not in self._carried:
            separator = tuple(sorted(set(self._nodes[at]) & set(self._nodes[to])))
            axes = tuple(sorted(set(columns) | set(separator)))
            joint = self._joint(at, to, axes)
            given = joint.sum(axis=tuple(i for i, a in enumerate(axes) if a in columns), keepdims=True)
            self._kept += joint.size
            if self._kept > MAX_KEPT_CELLS:
                self._carried.clear()
                self._kept = joint.size
            self._carried[key] = np.divide(joint, given, out=np.zeros_like(joint), where=given > 0)
        return self._carried[key]

    def _project(self, at: int, axes: Axes) -> Table:
        key = (at, axes)
        if key not in self._projected:
            summed = tuple(i for i, a in enumerate(self._nodes[at]) if a not in axes)
            self._projected[key] = np.asarray(self._beliefs[at].sum(axis=summed)) if summed else self._beliefs[at]
        return self._projected[key]


def _contract(a: Table, a_axes: Axes, b: Table, b_axes: Axes, out: Axes) -> Table:
    """``sum(a * b)`` over the axes that are in both and not in `out`, as one batched matrix product."""
    shared = [x for x in a_axes if x in b_axes]
    batch, inner = [x for x in shared if x in out], [x for x in shared if x not in out]
    left, right = [x for x in a_axes if x not in b_axes], [x for x in b_axes if x not in a_axes]
    sizes = dict(zip(a_axes, a.shape, strict=True)) | dict(zip(b_axes, b.shape, strict=True))

    def blocks(table: Table, axes: Axes, *groups: list[int]) -> Table:
        turned = np.transpose(table, [axes.index(x) for group in groups for x in group])
        return turned.reshape([math.prod(sizes[x] for x in group) for group in groups])

    product = np.matmul(blocks(a, a_axes, batch, left, inner), blocks(b, b_axes, batch, inner, right))
    axes = batch + left + right
    return np.transpose(product.reshape([sizes[x] for x in axes]), np.argsort(axes))
