"""The graphical model that a handful of noisy marginals determine, and exact answers and rows from it.

A model of maximal entropy with given marginals is a product of one table per measured clique (McKenna, Sheldon and
Miklau, "Graphical-model based estimation and inference for differential privacy", 2019). Its marginals are computed
by passing messages over a junction tree (`junction.py`). Everything in this file is post-processing of noisy counts;
the only function that reaches for the rows is `measure`, through the mechanisms of `privacy/`.
"""

import dataclasses
import functools
import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int, PRNGKeyArray

from understudy.errors import ConditionError, ConfigError
from understudy.junction import Axes, Clique, JunctionTree, MarginalQuery, Messenger, Ranking, Table, junction_tree
from understudy.privacy.counts import noisy_counts
from understudy.privacy.events import DiscreteGaussian
from understudy.privacy.ledger import Ledger, Query
from understudy.privacy.rows import PrivateRows
from understudy.schema import Domain

LEAST_VARIANCE = 1.0
"""Counts are not believed to less than one row: without this, runs without noise would have no finite weights."""
REFERENCE_ENTROPY = 1e-3
CURVATURES_KEPT = 20
PROXIMAL_ENTROPY, PROXIMAL_STEPS = 0.1, 100


class Measurement(NamedTuple):
    """Noisy counts of one marginal, as they were bought."""

    clique: Clique
    noisy_counts: Table
    stddev: float | np.ndarray


def measure(rows: PrivateRows, cliques: Sequence[Clique], query: Query, ledger: Ledger) -> list[Measurement]:
    """Buys the marginals of one bundle. The guarantee is that of `noisy_counts`."""
    event = query.event
    assert isinstance(event, DiscreteGaussian)
    tables = noisy_counts(rows, cliques, query, ledger)
    return [Measurement(clique, table, event.stddev) for clique, table in zip(cliques, tables, strict=True)]


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
        self._ranking = Ranking(domain)
        self._messenger = Messenger(self._ranking, self.tree, [self._ranking.axes(c) for c in self.cliques])
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
        query = MarginalQuery(self._messenger, self._beliefs)
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

    def draw(
        self,
        num_rows: int,
        *,
        key: PRNGKeyArray,
        allowed: Mapping[str, Bool[np.ndarray, " codes"]] | None = None,
    ) -> tuple[Int[np.ndarray, "rows columns"], None]:
        """Codes as `sample` has them; numbers have bins here and no places."""
        return self.sample(num_rows, key=key, allowed=allowed), None

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
    def _ranking(self) -> Ranking:
        return Ranking(self.domain)

    @functools.cached_property
    def _messenger(self) -> Messenger:
        return Messenger(self._ranking, self.tree, [self._ranking.axes(clique) for clique in self.cliques])

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
