"""Noisy marginals, and the graphical model that fits them best.

McKenna, Sheldon and Miklau, "Graphical-model based estimation and inference for differential privacy", 2019. `measure`
queries the rows, through `privacy/`; all else is post-processing of noisy counts.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from understudy.errors import ConfigError
from understudy.marginals.shrinkage import Pooled, cell_pulls, independent_counts
from understudy.models.graphical import GraphicalModel, log_possible
from understudy.models.junction import Clique, Messenger, Ranking, Table, junction_tree, zeros_within
from understudy.privacy.accounting.events import DiscreteGaussian
from understudy.privacy.accounting.ledger import Ledger, Query
from understudy.privacy.mechanisms.counts import noisy_counts
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain, StructuralZeros

MIN_VARIANCE = 1.0
"""The smallest variance assumed for a count: in runs without noise, weights would be infinite."""
REFERENCE_ENTROPY = 1e-3
MAX_CELLS = 2**20
"""Structural zeros that would make a larger model are left out, unless a method sets its own limit."""
CURVATURES_KEPT = 20
PROXIMAL_ENTROPY, PROXIMAL_STEPS = 0.1, 100


class Fitting(NamedTuple):
    """How a model is fitted to measurements. Post-processing: costs time, not budget."""

    iterations: int = 1000
    """The largest number of passes over the tree."""
    tolerance: float = 1e-2
    """Ends sooner when no cell is further from its balance than this times the root of its curvature, which is about
    its count plus ``entropy * stddev ** 2``."""
    entropy: float = 0.01
    """The weight of the pull towards independent columns."""
    prior_variance: float | None = None
    """The variance of the logarithm of a cell's count over its count if columns were independent: increases the pull on
    cells too small for their noise (`shrinkage.py`). None: the same pull on all cells."""
    max_cells: float = MAX_CELLS
    """The size of the model beyond which structural zeros are left out of it."""


class Measurement(NamedTuple):
    """Noisy counts of one marginal."""

    clique: Clique
    noisy_counts: Table
    stddev: float | np.ndarray


def measure(rows: PrivateRows, cliques: Sequence[Clique], query: Query, ledger: Ledger) -> list[Measurement]:
    """Noisy counts of several marginals in one query. The guarantee is that of `noisy_counts`."""
    event = query.event
    assert isinstance(event, DiscreteGaussian)
    tables = noisy_counts(rows, cliques, query, ledger)
    return [Measurement(clique, table, event.stddev) for clique, table in zip(cliques, tables, strict=True)]


def estimate(
    domain: Domain,
    measurements: Sequence[Measurement],
    fitting: Fitting = Fitting(),  # noqa: B008 - immutable
    *,
    total: float,
    warm_start: GraphicalModel | None = None,
) -> GraphicalModel:
    """The distribution that fits the measurements best, and otherwise is closest to independent columns.

    With m the model's marginals at the measured cliques, y the noisy counts and s their standard deviations, minimises
    ``sum(((m - y) / s) ** 2) / 2 + entropy * total * KL(model || reference)``, where the reference holds the columns
    as measured one by one, independent of each other (a column never measured by itself: all codes alike). This is
    the objective of Private-PGM, which `entropy` 0 gives back, plus a pull towards independence that keeps
    noise in large marginals from looking like structure. The dual is smooth and convex,

        total * log Z(reference + theta) - <y, theta> + entropy * |s theta|^2 / 2,

    its gradient costs one pass over the tree, and L-BFGS solves it in tens of passes where mirror descent on the
    marginals takes a thousand. Without any pull (`entropy` 0) the same is done in many proximal steps, each pulled
    towards the one before.

    The domain's structural zeros hold in the reference and in the model, whose marginals are zero there: what was
    counted in an impossible cell is noise, its residual is constant, and it is ignored.

    Args:
        total: number of rows of the modelled table.
        warm_start: a model of an earlier, smaller set of measurements, to begin from.
    """
    if not domain.names:
        raise ConfigError("There is no column to model. Declare at least one that is neither text, id nor dropped.")
    total = max(1.0, float(total))
    pooled = _pool(measurements)
    one_way: dict[Clique, Pooled] = {clique: entry for clique, entry in pooled.items() if len(clique) == 1}
    zeros = zeros_within(domain, tuple(pooled), fitting.max_cells)
    apart = _Goal(domain, one_way, {}, total, REFERENCE_ENTROPY, zeros=zeros)
    reference = apart.minimise({}, fitting.iterations, fitting.tolerance)
    earlier = {} if warm_start is None else dict(zip(warm_start.cliques, warm_start.potentials, strict=True))
    potentials = {**reference, **earlier}
    pulls: dict[Clique, Table] = {}
    if fitting.prior_variance is not None:
        larger = [clique for clique in pooled if len(clique) > 1]
        if zeros:
            expected = apart.model(reference).marginals(larger)
        else:
            one_way_counts = {c: np.exp(t - t.max()) for c, t in reference.items()}
            expected = independent_counts(domain, larger, one_way_counts, total)
        by_clique = dict(zip(larger, expected, strict=True))
        pulls = cell_pulls(pooled, by_clique, min_pull=fitting.entropy, prior_variance=fitting.prior_variance)
    for _ in range(1 if fitting.entropy else PROXIMAL_STEPS):
        joint = _Goal(domain, pooled, reference, total, fitting.entropy or PROXIMAL_ENTROPY, pulls, zeros)
        reference = potentials = joint.minimise(potentials, fitting.iterations, fitting.tolerance)
    return joint.model(potentials)


def _pool(measurements: Sequence[Measurement]) -> dict[Clique, Pooled]:
    """One entry for each set of columns: repeated measurements are averaged by inverse variance."""
    pooled: dict[Clique, Pooled] = {}
    names = {frozenset(m.clique): m.clique for m in reversed(measurements)}
    for clique, noisy, stddev in measurements:
        first = names[frozenset(clique)]
        turn = [clique.index(name) for name in first]
        counts = np.transpose(np.asarray(noisy, dtype=float), turn)
        variance = np.broadcast_to(np.maximum(np.square(stddev), MIN_VARIANCE), noisy.shape).transpose(turn)
        if first in pooled:
            before = pooled[first]
            weight = before.variance / (before.variance + variance)
            counts = before.counts + weight * (counts - before.counts)
            variance = before.variance * (1 - weight)
        pooled[first] = Pooled(counts, variance)
    return pooled


class _Goal:
    """The dual of `estimate` for one structure, in potentials scaled by the root of their curvature."""

    def __init__(
        self,
        domain: Domain,
        pooled: Mapping[Clique, Pooled],
        reference: Mapping[Clique, Table],
        total: float,
        entropy: float,
        pulls: Mapping[Clique, Table] | None = None,
        zeros: Sequence[StructuralZeros] = (),
    ) -> None:
        self.domain, self.cliques, self.total = domain, tuple(pooled), total
        self.zeros = tuple(zeros)
        scopes = [*self.cliques, *(each.columns for each in zeros)]
        self.tree = junction_tree(domain, scopes)
        self._ranking = Ranking(domain)
        self._messenger = Messenger(self._ranking, self.tree, [self._ranking.axes(scope) for scope in scopes])
        self._shapes = [self._ranking.shape(self._ranking.axes(clique)) for clique in self.cliques]
        self._log_possible = [self._ranking.inward(each.columns, log_possible(each)) for each in zeros]
        ends = [0, *itertools.accumulate(math.prod(shape) for shape in self._shapes)]
        self._cuts = [slice(a, b) for a, b in itertools.pairwise(ends)]
        self._reference = self._flat(reference)
        self._variance = self._flat({clique: entry.variance for clique, entry in pooled.items()})
        self._is_possible = self._support()
        possible = dict(zip(self.cliques, self._outward(self._is_possible), strict=True))
        self._counts = self._flat({c: _centre(entry, possible[c], total) for c, entry in pooled.items()})
        held = {clique: np.full(entry.counts.shape, entropy) for clique, entry in pooled.items()} | dict(pulls or {})
        self._pull = self._flat(held) * self._variance
        self._scale = 1 / np.sqrt(np.maximum(self._counts, 0) + self._pull + 1)

    def minimise(self, start: Mapping[Clique, Table], iterations: int, tolerance: float) -> dict[Clique, Table]:
        """The potentials of all cliques, initialised from those of `start`."""
        if not self.cliques:
            return {}
        scaled = np.where(self._is_possible, (self._flat(start) - self._reference) / self._scale, 0.0)
        scaled = self._nearer_start(scaled, [clique not in start for clique in self.cliques])
        scaled = _minimise_convex(self._gradient, scaled, iterations, tolerance)
        tables = self._outward(self._reference + self._scale * scaled)
        return {clique: table.copy() for clique, table in zip(self.cliques, tables, strict=True)}

    def _nearer_start(self, scaled: np.ndarray, is_new: Sequence[bool]) -> np.ndarray:
        """The start, or one where each new clique has the potentials that fit its own counts, if that is nearer.

        With many rows, potentials of the solution are large, and a start at zero is too far away for `iterations`.
        The potentials of a tree of cliques fit them all; where cliques overlap otherwise, they may overshoot.
        """
        if not any(is_new):
            return scaled
        new = np.repeat(is_new, [cut.stop - cut.start for cut in self._cuts]) & self._is_possible
        expected = self.total * self._marginals(self._reference + scaled * self._scale)
        held = self._pull + 1
        ratio = (np.maximum(self._counts, 0) + held) / (expected + held)
        fitted = np.where(new, scaled + np.log(ratio) / self._scale, scaled)
        return min(scaled, fitted, key=lambda point: float(np.linalg.norm(self._gradient(point))))

    def model(self, potentials: Mapping[Clique, Table]) -> GraphicalModel:
        """The distribution with these potentials."""
        return GraphicalModel(
            domain=self.domain,
            total=self.total,
            cliques=self.cliques,
            potentials=tuple(potentials[clique] for clique in self.cliques),
            tree=self.tree,
            zeros=self.zeros,
        )

    def _gradient(self, scaled: np.ndarray) -> np.ndarray:
        theta = scaled * self._scale
        return (self.total * self._marginals(self._reference + theta) - self._counts + self._pull * theta) * self._scale

    def _marginals(self, potentials: np.ndarray) -> np.ndarray:
        beliefs = self._messenger.calibrate([*self._tables(potentials), *self._log_possible])
        marginals = self._messenger.factor_marginals(beliefs)[: len(self.cliques)]
        return np.concatenate([table.ravel() for table in marginals])

    def _support(self) -> np.ndarray:
        """Which cells of the cliques the zeros leave possible, all of them together."""
        if not self.zeros or not self.cliques:
            return np.ones(sum(map(math.prod, self._shapes)), dtype=bool)
        return self._marginals(np.zeros(sum(map(math.prod, self._shapes)))) > 0

    def _flat(self, tables: Mapping[Clique, Table]) -> np.ndarray:
        """One vector of all cliques' tables, zero where there is none."""
        absent = [np.zeros(shape) for shape in self._shapes]
        parts = [
            self._ranking.inward(c, tables[c]) if c in tables else zero
            for c, zero in zip(self.cliques, absent, strict=True)
        ]
        return np.concatenate([np.ravel(part) for part in parts] or [np.zeros(0)])

    def _tables(self, flat: np.ndarray) -> list[np.ndarray]:
        return [flat[cut].reshape(shape) for cut, shape in zip(self._cuts, self._shapes, strict=True)]

    def _outward(self, flat: np.ndarray) -> list[np.ndarray]:
        """The tables of a vector, with the axes of each in the clique's own order."""
        return [self._ranking.outward(c, t) for c, t in zip(self.cliques, self._tables(flat), strict=True)]


def _centre(entry: Pooled, possible: np.ndarray, total: float) -> Table:
    """Counts of possible cells, shifted to the total in proportion to their variances: the same minimiser."""
    counts, variance = np.where(possible, entry.counts, 0.0), np.where(possible, entry.variance, 0.0)
    return counts + variance * ((total - counts.sum()) / variance.sum())


def _minimise_convex(
    gradient_fn: Callable[[np.ndarray], np.ndarray], start: np.ndarray, evaluations: int, tolerance: float
) -> np.ndarray:
    """L-BFGS for a smooth convex function, until no entry of the gradient exceeds `tolerance`.

    Along a line the slope of a convex function only rises, so steps are accepted by slopes alone, which stay exact long
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
    return float(np.einsum("i,i->", a, b))  # not BLAS: at this size its threads cost more than they save
