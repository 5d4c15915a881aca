"""The graphical model that a handful of noisy marginals determine, and exact answers and rows from it.

A model of maximal entropy with given marginals is a product of one table per measured clique (McKenna, Sheldon and
Miklau, "Graphical-model based estimation and inference for differential privacy", 2019). Its marginals are computed
by passing messages over a junction tree, which mbi builds. mbi passes them in compiled JAX programs, one program per
set of cliques; a method that adds a clique each round then compiles all the time. Here the same messages are plain
NumPy in double precision, so that a new structure costs nothing. Everything in this file is post-processing of noisy
counts: nothing here sees a row or spends budget.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.optimize
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from understudy.errors import ConditionError
from understudy.schema import Domain

Clique = tuple[str, ...]
Axes = tuple[int, ...]  # a clique by the ranks of its columns, ascending: see `_Ranking`
Table = Float[np.ndarray, "..."]

REFERENCE_ENTROPY = 1e-3
LOG = []

class Measurement(NamedTuple):
    """Noisy counts of one marginal, as they were bought."""

    clique: Clique
    noisy_counts: Table
    stddev: float | np.ndarray


# --- Structure: which columns meet in which clique ---


class JunctionTree(NamedTuple):
    """Cliques of columns, each after its parent; the columns a clique shares with its past, it shares with its parent."""

    cliques: tuple[Clique, ...]
    parents: tuple[int, ...]


def junction_tree(domain: Domain, cliques: Iterable[Clique]) -> JunctionTree:
    """A junction tree in which every given clique is part of some clique. Unconnected parts share no column."""
    with warnings.catch_warnings():  # mbi comments on JAX's settings, which are not used here
        warnings.simplefilter("ignore")
        import mbi.junction_tree

        graph, _ = mbi.junction_tree.make_junction_tree(mbi.Domain(domain.names, domain.sizes), list(cliques))
    found: list[Clique] = []
    parents: list[int] = []
    for start in sorted(graph.nodes, key=domain.size, reverse=True):
        if start in found:
            continue
        queue = [(start, -1 if not found else 0)]
        while queue:
            clique, parent = queue.pop()
            found.append(clique)
            parents.append(parent)
            here = len(found) - 1
            queue.extend((neighbour, here) for neighbour in sorted(graph.neighbors(clique)) if neighbour not in found)
    return JunctionTree(tuple(found), tuple(parents))


def count_cells(domain: Domain, cliques: Iterable[Clique]) -> int:
    """Cells of the junction tree over these cliques, by the greedy elimination that `junction_tree` uses.

    Fast enough to be asked for every candidate clique of every round.
    """
    sizes = domain.sizes
    neighbours = _adjacency(domain, cliques)
    eliminated: list[int] = []
    remaining = list(range(len(sizes)))
    while remaining:
        costs = [_product(sizes, neighbours[v] | 1 << v) for v in remaining]
        v = remaining.pop(costs.index(min(costs)))
        clique = neighbours[v] | 1 << v
        for u in remaining:
            if clique >> u & 1:
                neighbours[u] = (neighbours[u] | clique) & ~(1 << u) & ~(1 << v)
        if not any(clique & other == clique for other in eliminated):
            eliminated.append(clique)
    return sum(_product(sizes, clique) for clique in eliminated)


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
    result = 1
    while bits:
        low = bits & -bits
        result *= sizes[low.bit_length() - 1]
        bits ^= low
    return result


class _Ranking:
    """Columns by ascending size: tables keep their axes in this order, so that the longest axis is the contiguous one."""

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
    """How a smaller table sits in a larger one: the shape that broadcasts it, the axes that are summed away."""

    shape: tuple[int, ...]
    summed: tuple[int, ...]


def _link(small: Axes, large: Axes, sizes: Sequence[int]) -> _Link:
    return _Link(
        shape=tuple(sizes[a] if a in small else 1 for a in large),
        summed=tuple(i for i, a in enumerate(large) if a not in small),
    )


class _Calibrated(NamedTuple):
    """A tree whose neighbouring cliques agree: `beliefs[i]` is the probability table of tree clique i."""

    log_partition: float
    beliefs: list[Table]


class _Messenger:
    """Message passing for one structure: log-potentials of the factors in, probabilities of the tree's cliques out.

    One exponential per cell, none for the way back: Hugin's division of separators, on tables scaled by their maximum.
    """

    def __init__(self, ranking: _Ranking, tree: JunctionTree, factors: Sequence[Axes]) -> None:
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
        # A factor inside another is added to that one first: only the widest touch the large tables.
        self._order = sorted(range(len(self.factors)), key=lambda f: (len(self.factors[f]), f))
        self._host: list[tuple[bool, int, _Link]] = []
        for f, axes in enumerate(self.factors):
            wider = [g for g, other in enumerate(self.factors) if set(axes) < set(other)]
            if wider:
                g = min(wider, key=lambda g: math.prod(ranking.shape(self.factors[g])))
                self._host.append((False, g, _link(axes, self.factors[g], sizes)))
            else:
                homes = [i for i, node in enumerate(self.nodes) if set(axes) <= set(node)]
                i = min(homes, key=lambda i: cells[i])
                self._host.append((True, i, _link(axes, self.nodes[i], sizes)))

    def calibrate(self, potentials: Sequence[Table], evidence: Sequence[tuple[int, Table]] = ()) -> _Calibrated:
        """Two passes over the tree. `evidence`: log-weights over the states of single columns, by rank."""
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

    def _pass_messages(self, logs: list[Table]) -> _Calibrated:
        sums: list[Table] = [np.ones(())] * len(logs)
        log_partition = -math.inf
        for i in reversed(range(len(logs))):
            table, parent, into = logs[i], self.parents[i], self._into[i]
            highest = float(table.max())
            if highest == -math.inf:
                raise ConditionError("No row can meet this condition: the model gives it probability zero.")
            np.subtract(table, highest, out=table)
            np.exp(table, out=table)
            if into is None:
                total = float(table.sum())
                table /= total
                log_partition = highest + math.log(total)
            else:
                sums[i] = table.sum(axis=self._up[i].summed)
                with np.errstate(divide="ignore"):
                    logs[parent] += (np.log(sums[i]) + highest).reshape(into.shape)
        for i in range(len(logs)):
            into = self._into[i]
            if into is not None:
                target = logs[self.parents[i]].sum(axis=into.summed)
                ratio = np.divide(target, sums[i], out=np.zeros_like(target), where=sums[i] > 0)
                logs[i] *= ratio.reshape(self._up[i].shape)
        return _Calibrated(log_partition, logs)

    def factor_marginals(self, calibrated: _Calibrated) -> list[Table]:
        """The probability table of each factor."""
        marginals: list[Table] = [np.ones(())] * len(self.factors)
        for f in reversed(self._order):
            at_node, host, link = self._host[f]
            source = calibrated.beliefs[host] if at_node else marginals[host]
            marginals[f] = source.sum(axis=link.summed) if link.summed else source
        return marginals


# --- Estimation: from noisy marginals to potentials ---


def estimate(
    domain: Domain,
    measurements: Sequence[Measurement],
    *,
    total: float | None = None,
    iterations: int = 1000,
    entropy: float = 1e-3,
    tolerance: float = 1e-3,
    warm_start: GraphicalModel | None = None,
) -> GraphicalModel:
    """The distribution that explains the measurements best, and is otherwise as even as it can be.

    With m the model's marginals at the measured cliques, y the noisy counts and s their standard deviations, minimises
    ``sum(((m - y) / s) ** 2) / 2 + entropy * total * KL(model || uniform)``. The dual is smooth and convex,

        total * log Z(theta) - <y, theta> + entropy * |s theta|^2 / 2,

    its gradient costs one pass over the tree, and L-BFGS solves it in tens of passes where mirror descent on the
    marginals takes a thousand. `entropy` towards 0 gives the weighted least-squares fit of Private-PGM.

    Args:
        total: number of rows of the modelled table; absent, the measurements' own sums, weighted by inverse variance.
        iterations: most passes over the tree. Fewer are made when the marginals settle to `tolerance` deviations.
        warm_start: a model of an earlier, smaller set of measurements, to begin from.
    """
    total = max(1.0, noisy_total(measurements) if total is None else total)
    pooled = _pool(measurements)
    cliques = tuple(pooled)
    singles = [clique for clique in cliques if len(clique) == 1]
    offsets = {c: np.zeros(domain.shape(c)) for c in cliques}
    if len(singles) < len(cliques):
        # First what each column says by itself; then how the columns hang together, seen from their independence.
        offsets.update(_solve(domain, {c: pooled[c] for c in singles}, offsets, {}, total, REFERENCE_ENTROPY, 200, tolerance)[0])
    known = {} if warm_start is None else dict(zip(warm_start.cliques, warm_start.potentials, strict=True))
    start = {c: known[c] - offsets[c] for c in cliques if c in known}
    potentials, tree = _solve(domain, pooled, offsets, start, total, entropy, iterations, tolerance)
    return GraphicalModel(
        domain=domain, total=total, cliques=cliques, potentials=tuple(potentials[c] for c in cliques), tree=tree
    )


def _solve(domain, pooled, offsets, start, total, entropy, iterations, tolerance):
    ranking = _Ranking(domain)
    tree = junction_tree(domain, pooled)
    messenger = _Messenger(ranking, tree, [ranking.axes(clique) for clique in pooled])
    goal = _Goal(
        messenger,
        total,
        entropy,
        [_centred(ranking, clique, entry, total) for clique, entry in pooled.items()],
        [ranking.inward(clique, offsets[clique]) for clique in pooled],
    )
    first = [ranking.inward(c, start.get(c, np.zeros(domain.shape(c)))) for c in pooled]
    found = goal.minimise(first, iterations, tolerance)
    return {c: ranking.outward(c, t) + offsets[c] for c, t in zip(pooled, found, strict=True)}, tree


def noisy_total(measurements: Sequence[Measurement]) -> float:
    """The number of rows as the measurements' sums tell it, each weighted by its inverse variance."""
    sums = np.array([measurement.noisy_counts.sum() for measurement in measurements])
    variances = np.array([np.broadcast_to(np.square(m.stddev), m.noisy_counts.shape).sum() for m in measurements])
    return float(np.average(sums, weights=1 / variances)) if len(sums) else 1.0


class _Pooled(NamedTuple):
    counts: Table
    variance: Table


def _pool(measurements: Sequence[Measurement]) -> dict[Clique, _Pooled]:
    """One entry per set of columns: repeated measurements are averaged by inverse variance."""
    pooled: dict[Clique, _Pooled] = {}
    names = {frozenset(m.clique): m.clique for m in reversed(measurements)}
    for clique, counts, stddev in measurements:
        variance = np.broadcast_to(np.square(np.asarray(stddev, dtype=float)), counts.shape)
        first = names[frozenset(clique)]
        turn = [clique.index(name) for name in first]
        counts, variance = np.transpose(counts, turn), np.transpose(variance, turn)
        if first in pooled:
            before = pooled[first]
            weight = before.variance / (before.variance + variance)
            counts = before.counts + weight * (counts - before.counts)
            variance = before.variance * (1 - weight)
        pooled[first] = _Pooled(np.asarray(counts, dtype=float), variance)
    return pooled


def _centred(ranking: _Ranking, clique: Clique, pooled: _Pooled, total: float) -> _Pooled:
    """Counts shifted to the total: an equal number of variances in every cell moves no minimiser under a fixed total."""
    shift = (total - pooled.counts.sum()) / pooled.variance.sum()
    counts = pooled.counts + shift * pooled.variance
    return _Pooled(
        np.ascontiguousarray(ranking.inward(clique, counts)),
        np.ascontiguousarray(ranking.inward(clique, pooled.variance)),
    )


class _Goal:
    """The dual of `estimate`, in potentials scaled by the square root of their curvature."""

    def __init__(self, messenger: _Messenger, total: float, entropy: float, pooled: Sequence[_Pooled], offsets: Sequence[Table]) -> None:
        self.messenger, self.total, self.entropy = messenger, total, entropy
        self._shapes = [p.counts.shape for p in pooled]
        self.offsets = np.concatenate([t.ravel() for t in offsets])
        self._ends = np.cumsum([0] + [p.counts.size for p in pooled])
        self.counts = np.concatenate([p.counts.ravel() for p in pooled])
        self.variance = np.concatenate([p.variance.ravel() for p in pooled])
        self.scale = 1 / np.sqrt(np.maximum(self.counts, 0) + entropy * self.variance + 1)

    def _tables(self, flat: np.ndarray) -> list[Table]:
        return [
            flat[a:b].reshape(shape) for a, b, shape in zip(self._ends[:-1], self._ends[1:], self._shapes, strict=True)
        ]

    def __call__(self, scaled: np.ndarray) -> tuple[float, np.ndarray]:
        theta = scaled * self.scale
        calibrated = self.messenger.calibrate(self._tables(theta + self.offsets))
        marginals = np.concatenate([m.ravel() for m in self.messenger.factor_marginals(calibrated)])
        ridge = self.entropy * self.variance * theta
        value = self.total * calibrated.log_partition - self.counts @ theta + 0.5 * (ridge @ theta)
        return value, (self.total * marginals - self.counts + ridge) * self.scale

    def minimise(self, start: Sequence[Table], iterations: int, tolerance: float) -> list[Table]:
        first = np.concatenate([t.ravel() for t in start]) / self.scale
        found = scipy.optimize.minimize(
            self,
            first,
            jac=True,
            method="L-BFGS-B",
            options={"maxfun": iterations, "maxiter": iterations, "maxcor": 20, "ftol": 0.0, "gtol": tolerance},
        )
        LOG.append((found.nfev, found.message))
        return self._tables(found.x * self.scale)


# --- The model: answers and rows ---


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphicalModel:
    """A distribution over coded rows: a product of one exponentiated table per clique. Free to query and to sample."""

    domain: Domain

    total: float
    """The number of rows that `marginal` counts add up to."""

    cliques: tuple[Clique, ...]

    potentials: tuple[Table, ...]
    """The logarithm of each clique's table, with axes in the clique's order."""

    tree: JunctionTree

    def marginal(self, clique: Clique) -> Table:
        """Expected counts of the clique's cells, in its own order of columns."""
        return self.marginals([clique])[0]

    def marginals(self, cliques: Sequence[Clique]) -> list[Table]:
        """As `marginal`, for many cliques at once: they share the work of carrying a column along the tree."""
        query = _Query(self._messenger, self._calibrated)
        ranking = self._ranking
        return [self.total * ranking.outward(clique, query(ranking.axes(clique))) for clique in cliques]

    def sample(
        self,
        num_rows: int,
        *,
        key: PRNGKeyArray,
        allowed: Mapping[str, Bool[np.ndarray, " codes"]] | None = None,
    ) -> Int[np.ndarray, "rows columns"]:
        """Rows drawn from the model, clique by clique down the tree, given what is already drawn.

        Every single row follows the model's law exactly. The rows of one call are drawn evenly rather than
        independently: among the rows that share a parent's cell, the uniform draws that pick the next cell are
        stratified in random order, so that counts stay within about one of their expectation. `allowed` restricts
        columns to some of their codes, by Bayes' rule and not by rejection.
        """
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        calibrated = self._given(allowed) if allowed else self._calibrated
        codes = np.zeros((num_rows, len(self.domain.names)), dtype=np.int32)
        for i, (node, separator) in enumerate(zip(self._messenger.nodes, self._messenger.separators, strict=True)):
            _draw(codes, calibrated.beliefs[i], node, separator, rng)
        return codes[:, np.argsort(self._ranking.columns)]

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
        return structure, {f"potential_{i}": table for i, table in enumerate(self.potentials)}

    @classmethod
    def from_arrays(cls, structure: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> GraphicalModel:
        domain = Domain(
            names=tuple(structure["names"]),
            sizes=tuple(structure["sizes"]),
            num_rows=structure["num_rows"],
            target=structure["target"],
        )
        tree = structure["tree"]
        cliques = tuple(tuple(clique) for clique in structure["cliques"])
        return cls(
            domain=domain,
            total=structure["total"],
            cliques=cliques,
            potentials=tuple(np.asarray(arrays[f"potential_{i}"], dtype=float) for i in range(len(cliques))),
            tree=JunctionTree(tuple(tuple(clique) for clique in tree["cliques"]), tuple(tree["parents"])),
        )

    @functools.cached_property
    def _ranking(self) -> _Ranking:
        return _Ranking(self.domain)

    @functools.cached_property
    def _messenger(self) -> _Messenger:
        return _Messenger(self._ranking, self.tree, [self._ranking.axes(clique) for clique in self.cliques])

    @functools.cached_property
    def _calibrated(self) -> _Calibrated:
        return self._messenger.calibrate(self._ranked_potentials())

    def _ranked_potentials(self) -> list[Table]:
        return [self._ranking.inward(c, p) for c, p in zip(self.cliques, self.potentials, strict=True)]

    def _given(self, allowed: Mapping[str, np.ndarray]) -> _Calibrated:
        evidence = []
        for name, mask in allowed.items():
            (size,) = self.domain.shape((name,))
            if mask.shape != (size,):
                raise ConditionError(f"Column {name!r} has {size} codes; the condition speaks of {mask.shape}.")
            evidence.append((self._ranking.axes((name,))[0], np.where(mask, 0.0, -np.inf)))
        return self._messenger.calibrate(self._ranked_potentials(), evidence)


def _draw(codes: np.ndarray, belief: Table, node: Axes, separator: Axes, rng: np.random.Generator) -> None:
    """Fills in the node's new columns (`codes` has ranked columns), given those of its separator.

    The node's cells are laid end to end, those with equal separator codes side by side; a row's draw is uniform over
    the stretch of its separator codes. Within a stretch the rows' draws are stratified: for k rows in random order,
    the j-th draws from the j-th of k equal parts, which is uniform over the stretch for every row by itself.
    """
    new = tuple(a for a in node if a not in separator)
    if not new:
        return
    laid_out = np.transpose(belief, [node.index(a) for a in separator + new])
    shape = laid_out.shape[: len(separator)]
    width = math.prod(laid_out.shape[len(separator) :])
    ends = np.cumsum(laid_out.ravel())
    if separator:
        group = np.ravel_multi_index(tuple(codes[:, a] for a in separator), shape)
    else:
        group = np.zeros(len(codes), dtype=np.int64)
    starts = np.concatenate([[0.0], ends[width - 1 :: width]])
    uniform = _stratified(group, len(starts) - 1, rng)
    point = starts[group] + uniform * (starts[group + 1] - starts[group])
    cell = np.searchsorted(ends, point, side="right")
    cell = np.clip(cell, group * width, group * width + width - 1) - group * width
    codes[:, new] = np.stack(np.unravel_index(cell, laid_out.shape[len(separator) :]), axis=1)


def _stratified(group: np.ndarray, num_groups: int, rng: np.random.Generator) -> np.ndarray:
    """Uniform draws, evenly spread within each group: each is uniform on [0, 1), and independent of the group's order."""
    shuffled = rng.permutation(len(group))
    order = shuffled[np.argsort(group[shuffled], kind="stable")]
    counts = np.bincount(group, minlength=num_groups)
    first = np.cumsum(counts) - counts
    place = np.empty(len(group))
    place[order] = np.arange(len(group)) - first[group[order]]
    return (place + rng.random(len(group))) / counts[group]


class _Query:
    """Marginals of a calibrated tree over any columns, those of different cliques included.

    A column b outside the asked node is carried there along the tree as P(b | separator), step by step. What was
    carried once is kept: the pairs of one column with all others cost little more than one of them.
    """

    def __init__(self, messenger: _Messenger, calibrated: _Calibrated) -> None:
        self._nodes = messenger.nodes
        self._beliefs = calibrated.beliefs
        self._neighbours: list[list[int]] = [[] for _ in self._nodes]
        for i, p in enumerate(messenger.parents):
            if p >= 0:
                self._neighbours[i].append(p)
                self._neighbours[p].append(i)
        self._beyond: dict[tuple[int, int], frozenset[int]] = {}
        self._projected: dict[tuple[int, Axes], Table] = {}
        self._carried: dict[tuple[int, int, Axes], Table] = {}

    def __call__(self, asked: Axes) -> Table:
        at = self._nearest_node(asked)
        return self._joint(at, -1, asked)

    def _nearest_node(self, asked: Axes) -> int:
        """A node that holds as many of the asked columns as any, moved towards the others while it still does."""
        held = [len(set(asked) & set(node)) for node in self._nodes]
        best = max(held)
        if best == len(asked):
            homes = [i for i, h in enumerate(held) if h == best]
            return min(homes, key=lambda i: self._beliefs[i].size)
        at, before = held.index(best), -1
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
        """The columns found on the far side of the edge from `at` to `towards`."""
        edge = (at, towards)
        if edge not in self._beyond:
            further = [self._columns_beyond(towards, j) for j in self._neighbours[towards] if j != at]
            self._beyond[edge] = frozenset(self._nodes[towards]).union(*further)
        return self._beyond[edge]

    def _joint(self, at: int, origin: int, asked: Axes) -> Table:
        """P(asked) for columns held at this node or beyond it as seen from `origin`; axes in ranked order."""
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
            self._carried[key] = np.divide(joint, given, out=np.zeros_like(joint), where=given > 0)
        return self._carried[key]

    def _project(self, at: int, axes: Axes) -> Table:
        key = (at, axes)
        if key not in self._projected:
            summed = tuple(i for i, a in enumerate(self._nodes[at]) if a not in axes)
            self._projected[key] = self._beliefs[at].sum(axis=summed) if summed else self._beliefs[at]
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
