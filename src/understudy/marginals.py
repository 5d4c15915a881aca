"""The graphical model that a handful of noisy marginals determine, and exact answers and rows from it.

A model of maximal entropy with given marginals is a product of one table per measured clique (McKenna, Sheldon and
Miklau, "Graphical-model based estimation and inference for differential privacy", 2019). Its marginals are computed
by passing messages over a junction tree, which mbi builds. mbi passes them in compiled JAX programs, one program per
set of cliques; a method that adds a clique each round then compiles all the time. Here the same messages are plain
NumPy in double precision, so that a new structure costs nothing. Everything else in this file is post-processing of
noisy counts; the only function that reaches for the rows is `measure`, through the mechanisms of `privacy/`.
"""

import dataclasses
import functools
import itertools
import math
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from understudy.errors import ConditionError, ConfigError
from understudy.privacy.accounting import DiscreteGaussian
from understudy.privacy.ledger import Ledger, Look
from understudy.privacy.mechanisms import Rows, noisy_counts
from understudy.schema import Domain

Clique = tuple[str, ...]
Axes = tuple[int, ...]  # a clique by the ranks of its columns, ascending: see `_Ranking`
Table = Float[np.ndarray, "..."]

LEAST_VARIANCE = 1.0
"""Counts are not believed to less than one row: without this, runs without noise would have no finite weights."""
REFERENCE_ENTROPY = 1e-3
MOST_KEPT_CELLS = 2**22
CURVATURES_KEPT = 20
LEAST_SUM = 1e-280  # below, a quotient could overflow; the cells are impossible for every purpose
PROXIMAL_ENTROPY, PROXIMAL_STEPS = 0.1, 100


class Measurement(NamedTuple):
    """Noisy counts of one marginal, as they were bought."""

    clique: Clique
    noisy_counts: Table
    stddev: float | np.ndarray


def measure(rows: Rows, cliques: Sequence[Clique], look: Look, ledger: Ledger) -> list[Measurement]:
    """Buys the marginals of one bundle. The guarantee is that of `noisy_counts`."""
    event = look.event
    assert isinstance(event, DiscreteGaussian)
    tables = noisy_counts(rows, cliques, look, ledger)
    return [Measurement(clique, table, event.stddev) for clique, table in zip(cliques, tables, strict=True)]


# --- Structure: which columns meet in which clique ---


class JunctionTree(NamedTuple):
    """Cliques of columns, each after its parent: what a clique shares with earlier ones, it shares with its parent."""

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
    """Cells of the marginal over the columns whose bits are set."""
    result = 1
    while bits:
        low = bits & -bits
        result *= sizes[low.bit_length() - 1]
        bits ^= low
    return result


class _Ranking:
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
    """How a smaller table sits in a larger one: the shape that broadcasts it, the axes that are summed away."""

    shape: tuple[int, ...]
    summed: tuple[int, ...]


def _link(small: Axes, large: Axes, sizes: Sequence[int]) -> _Link:
    return _Link(
        shape=tuple(sizes[a] if a in small else 1 for a in large),
        summed=tuple(i for i, a in enumerate(large) if a not in small),
    )


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
            highest = float(table.max())
            if highest == -math.inf:
                raise ConditionError("No row can meet this condition: the model gives it probability zero.")
            np.subtract(table, highest, out=table)
            np.exp(table, out=table)
            if into is None:
                table /= table.sum()
            else:
                total = table.sum(axis=self._up[i].summed)
                sums[i] = np.where(total > LEAST_SUM, total, 0.0)
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


# --- Estimation: from noisy marginals to potentials ---


def estimate(
    domain: Domain,
    measurements: Sequence[Measurement],
    *,
    total: float | None = None,
    iterations: int = 1000,
    entropy: float = 0.01,
    tolerance: float = 1e-2,
    warm_start: "GraphicalModel | None" = None,
) -> "GraphicalModel":
    """The distribution that explains the measurements best, and else strays least from independent columns.

    With m the model's marginals at the measured cliques, y the noisy counts and s their standard deviations, minimises
    ``sum(((m - y) / s) ** 2) / 2 + entropy * total * KL(model || reference)``, where the reference holds the columns
    as measured one by one, independent of each other (a column never measured by itself: all codes alike). This is
    the objective of Private-PGM, which `entropy` 0 gives back, plus a pull towards independence that keeps
    noise in large marginals from looking like structure. The dual is smooth and convex,

        total * log Z(reference + theta) - <y, theta> + entropy * |s theta|^2 / 2,

    its gradient costs one pass over the tree, and L-BFGS solves it in tens of passes where mirror descent on the
    marginals takes a thousand. Without any pull (`entropy` 0) the same is done in many proximal steps, each pulled
    towards the one before.

    Args:
        total: number of rows of the modelled table; absent, the measurements' own sums, weighted by inverse variance.
        iterations: most passes over the tree.
        tolerance: ends sooner when no cell is further from its balance than this times the root of its curvature,
            which is about its count plus ``entropy * s ** 2``.
        warm_start: a model of an earlier, smaller set of measurements, to begin from.
    """
    if not domain.names:
        raise ConfigError("There is no column to model. Declare at least one that is neither text, id nor dropped.")
    total = max(1.0, noisy_total(measurements) if total is None else float(total))
    pooled = _pool(measurements)
    singles: dict[Clique, _Pooled] = {clique: entry for clique, entry in pooled.items() if len(clique) == 1}
    apart = _Goal(domain, singles, {}, total, REFERENCE_ENTROPY)
    reference = apart.minimise({}, iterations, tolerance)
    known = {} if warm_start is None else dict(zip(warm_start.cliques, warm_start.potentials, strict=True))
    potentials = {**reference, **known}
    for _ in range(1 if entropy else PROXIMAL_STEPS):
        joint = _Goal(domain, pooled, reference, total, entropy or PROXIMAL_ENTROPY)
        reference = potentials = joint.minimise(potentials, iterations, tolerance)
    return GraphicalModel(
        domain=domain,
        total=total,
        cliques=tuple(potentials),
        potentials=tuple(potentials.values()),
        tree=joint.tree,
    )


def noisy_total(measurements: Sequence[Measurement]) -> float:
    """The number of rows as the measurements' sums tell it, each weighted by its inverse variance."""
    if not measurements:
        return 1.0
    sums = [measurement.noisy_counts.sum() for measurement in measurements]
    variances = [np.broadcast_to(np.square(m.stddev), m.noisy_counts.shape).sum() for m in measurements]
    return float(np.average(sums, weights=1 / np.maximum(variances, LEAST_VARIANCE)))


class _Pooled(NamedTuple):
    """What is known of one marginal: counts, and the variance of their noise."""

    counts: Table
    variance: Table


def _pool(measurements: Sequence[Measurement]) -> dict[Clique, _Pooled]:
    """One entry for each set of columns: repeated measurements are averaged by inverse variance."""
    pooled: dict[Clique, _Pooled] = {}
    names = {frozenset(m.clique): m.clique for m in reversed(measurements)}
    for clique, noisy, stddev in measurements:
        first = names[frozenset(clique)]
        turn = [clique.index(name) for name in first]
        counts = np.transpose(np.asarray(noisy, dtype=float), turn)
        variance = np.broadcast_to(np.maximum(np.square(stddev), LEAST_VARIANCE), noisy.shape).transpose(turn)
        if first in pooled:
            before = pooled[first]
            weight = before.variance / (before.variance + variance)
            counts = before.counts + weight * (counts - before.counts)
            variance = before.variance * (1 - weight)
        pooled[first] = _Pooled(counts, variance)
    return pooled


class _Goal:
    """The dual of `estimate` for one structure. It moves potentials scaled by the root of their curvature."""

    def __init__(
        self,
        domain: Domain,
        pooled: Mapping[Clique, _Pooled],
        reference: Mapping[Clique, Table],
        total: float,
        entropy: float,
    ) -> None:
        self.domain, self.cliques, self.total, self.entropy = domain, tuple(pooled), total, entropy
        self.tree = junction_tree(domain, self.cliques)
        self._ranking = _Ranking(domain)
        self._messenger = _Messenger(self._ranking, self.tree, [self._ranking.axes(c) for c in self.cliques])
        self._shapes = [self._ranking.shape(axes) for axes in self._messenger.factors]
        ends = [0, *itertools.accumulate(math.prod(shape) for shape in self._shapes)]
        self._cuts = [slice(a, b) for a, b in itertools.pairwise(ends)]
        self._reference = self._flat(reference)
        self._variance = self._flat({clique: entry.variance for clique, entry in pooled.items()})
        self._counts = self._flat({clique: _centred(entry, total) for clique, entry in pooled.items()})
        self._scale = 1 / np.sqrt(np.maximum(self._counts, 0) + entropy * self._variance + 1)

    def minimise(self, start: Mapping[Clique, Table], iterations: int, tolerance: float) -> dict[Clique, Table]:
        """Potentials of all cliques, begun from those of `start`."""
        if not self.cliques:
            return {}
        scaled = (self._flat(start) - self._reference) / self._scale
        scaled = _minimise_convex(self._gradient, scaled, iterations, tolerance)
        tables = self._tables(self._reference + self._scale * scaled)
        return {c: self._ranking.outward(c, t).copy() for c, t in zip(self.cliques, tables, strict=True)}

    def _gradient(self, scaled: np.ndarray) -> np.ndarray:
        theta = scaled * self._scale
        beliefs = self._messenger.calibrate(self._tables(self._reference + theta))
        marginals = np.concatenate([m.ravel() for m in self._messenger.factor_marginals(beliefs)])
        return (self.total * marginals - self._counts + self.entropy * self._variance * theta) * self._scale

    def _flat(self, tables: Mapping[Clique, Table]) -> np.ndarray:
        """One vector of all cliques' tables, zero where there is none."""
        absent = [np.zeros(shape) for shape in self._shapes]
        parts = [
            self._ranking.inward(c, tables[c]) if c in tables else zero
            for c, zero in zip(self.cliques, absent, strict=True)
        ]
        return np.concatenate([np.ravel(part) for part in parts] or [np.zeros(0)])

    def _tables(self, flat: np.ndarray) -> list[Table]:
        return [flat[cut].reshape(shape) for cut, shape in zip(self._cuts, self._shapes, strict=True)]


def _centred(entry: _Pooled, total: float) -> Table:
    """Counts shifted to the total: equal multiples of the variances move no minimiser while the total is fixed."""
    return entry.counts + entry.variance * ((total - entry.counts.sum()) / entry.variance.sum())


def _minimise_convex(
    gradient_fn: Callable[[np.ndarray], np.ndarray], start: np.ndarray, evaluations: int, tolerance: float
) -> np.ndarray:
    """L-BFGS for a smooth convex function, until no entry of the gradient exceeds `tolerance`.

    Along a line the slope of a convex function only rises, so steps are judged by slopes alone, which stay exact long
    after differences of values would have drowned in rounding. (SciPy's code also waits for threads most of the time.)
    """
    point, gradient = start, gradient_fn(start)
    memory: deque[tuple[np.ndarray, np.ndarray, float]] = deque(maxlen=CURVATURES_KEPT)
    evaluations -= 1
    while evaluations > 0 and np.abs(gradient).max() > tolerance:
        direction = -_times_inverse_curvature(gradient, memory)
        slope, step, accepted = _dot(direction, gradient), 1.0, False
        while evaluations > 0 and not accepted:
            evaluations -= 1
            ahead = point + step * direction
            new_gradient = gradient_fn(ahead)
            new_slope = _dot(direction, new_gradient)
            accepted = new_slope <= -slope / 2
            step *= slope / (slope - new_slope)  # where a straight line through both slopes crosses zero
        if not accepted:
            break
        moved, change = ahead - point, new_gradient - gradient
        if (bend := _dot(moved, change)) > 0:
            memory.append((moved, change, bend))
        point, gradient = ahead, new_gradient
    return point


def _times_inverse_curvature(vector: np.ndarray, memory: Sequence[tuple[np.ndarray, np.ndarray, float]]) -> np.ndarray:
    """The two-loop recursion (Nocedal 1980)."""
    result, factors = vector.copy(), []
    for moved, change, bend in reversed(memory):
        factors.append(_dot(moved, result) / bend)
        result -= factors[-1] * change
    if memory:
        _, change, bend = memory[-1]
        result *= bend / _dot(change, change)
    for (moved, change, bend), factor in zip(memory, reversed(factors), strict=True):
        result += (factor - _dot(change, result) / bend) * moved
    return result


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.einsum("i,i->", a, b))  # not BLAS: its threads cost more than they bring at this size


# --- The model: answers and rows ---


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
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
        query = _Query(self._messenger, self._beliefs)
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
        beliefs = self._given(allowed) if allowed else self._beliefs
        codes = np.zeros((num_rows, len(self.domain.names)), dtype=np.int32)
        for i, (node, separator) in enumerate(zip(self._messenger.nodes, self._messenger.separators, strict=True)):
            _draw(codes, beliefs[i], node, separator, rng)
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
    def from_arrays(cls, structure: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "GraphicalModel":
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
    def _beliefs(self) -> list[Table]:
        return self._messenger.calibrate(self._ranked_potentials())

    def _ranked_potentials(self) -> list[Table]:
        return [self._ranking.inward(c, p) for c, p in zip(self.cliques, self.potentials, strict=True)]

    def _given(self, allowed: Mapping[str, np.ndarray]) -> list[Table]:
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
    fixed, free = laid_out.shape[: len(separator)], laid_out.shape[len(separator) :]
    ends = np.cumsum(laid_out)
    bounds = np.concatenate([[0.0], ends[math.prod(free) - 1 :: math.prod(free)]])
    group = np.zeros(len(codes), dtype=np.int64)
    for a, size in zip(separator, fixed, strict=True):
        group = group * size + codes[:, a]
    low, high = bounds[group], bounds[group + 1]
    point = low + _stratified(group, math.prod(fixed), rng) * (high - low)
    # Rounding must not push a draw past its stretch, onto a cell of probability zero.
    cell = np.searchsorted(ends, np.minimum(point, np.nextafter(high, low)), side="right") - group * math.prod(free)
    codes[:, new] = np.stack(np.unravel_index(np.clip(cell, 0, math.prod(free) - 1), free), axis=1)


def _stratified(group: np.ndarray, num_groups: int, rng: np.random.Generator) -> np.ndarray:
    """Draws that are evenly spread within each group; each by itself is uniform on [0, 1), whatever its place."""
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

    def __init__(self, messenger: _Messenger, beliefs: Sequence[Table]) -> None:
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
            self._kept += joint.size
            if self._kept > MOST_KEPT_CELLS:
                self._carried.clear()
                self._kept = joint.size
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
