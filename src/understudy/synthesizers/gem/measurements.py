"""The noisy marginals that a generator is fitted to."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Float

from understudy.encoding.features import starts
from understudy.privacy.filters import GaussianFilter
from understudy.privacy.rows import Clique, Grouped
from understudy.privacy.selection import Candidates, MarginalSelector
from understudy.schema import Domain
from understudy.synthesizers.gem.allocation import (
    LEAST_FRACTION,
    allocate_extra_precision,
    allocate_noise,
    fraction_for_one_way,
    precision_for_target,
)
from understudy.synthesizers.gem.groups import (
    Groups,
    TargetMarginals,
    ThreeWayMarginals,
    group_slices,
    merge_rare_codes,
)
from understudy.synthesizers.gem.shrinkage import Shrunk, code_probabilities, combine, shrink_by_mixture, shrink_towards
from understudy.training.critics import one_hot_blocks
from understudy.training.marginal_matching import (
    Cells,
    Cross,
    Pairs,
    Terms,
)

if TYPE_CHECKING:
    from understudy.synthesizers.gem.method import GEM

MAX_GROUPS = 1500
"""The largest number of groups of all columns together: its square is the size of the matrices to compare."""
MAX_THREE_WAY_GROUPS = 256
"""The same for 3-way marginals: the size is its third power."""
CELLS_AT_ONCE = 2**18
"""The number of cells to compare in one step; if there are more, a random part of them."""
NOISE_LEVEL = 2.0
"""1-way counts below this many standard deviations of their noise are replaced by a common value."""
PAIRS_NOISE = 0.0015
"""The noise of 2-way counts over the number of rows below which training takes more steps."""
MIN_ONE_WAY_GAIN, MAX_ONE_WAY = 0.02, 0.9
"""1-way marginals are measured again if their best fraction of the precision exceeds the present one by the first
number; it is at most the second."""


class MarginalMeasurements:
    """The noisy marginals so far: 1-way, 2-way with the target, other 2-way, and 3-way."""

    def __init__(
        self,
        settings: "GEM",
        domain: Domain,
        privacy_filter: GaussianFilter,
        *,
        max_pairs: int | None,
        three_way_fraction: float = 0.0,
    ):
        """Measures 1-way marginals, those with the target and given cliques, and groups codes for the other pairs."""
        self._settings, self._domain = settings, domain
        self._starts = starts(one_hot_blocks(domain.sizes))
        self._classes: Groups | None = None
        self._target: TargetMarginals | None = None
        self.measured: set[tuple[str, str]] = set()
        fraction = fraction_for_one_way(domain, privacy_filter.precision, settings.one_way_fraction)
        self._one_way_noise = allocate_noise(privacy_filter.precision * fraction, domain.sizes)
        self._one_way = privacy_filter.noisy_counts(domain.one_way, self._one_way_noise)
        self._domain = domain = dataclasses.replace(domain, num_rows=privacy_filter.public_num_rows)
        self._clean_one_way()
        if domain.target is not None and len(domain.names) > 1:
            self._measure_target(privacy_filter, domain.target)
        self._cliques = self._measure_cliques(privacy_filter, max_pairs)
        self._three_way = self._group_three_way(privacy_filter.left * three_way_fraction)
        self._group_codes(self.left_for_pairs(privacy_filter), max_pairs)
        both = self.left_for_pairs(privacy_filter) + self._one_way_precision
        more = self._best_one_way_fraction(max_pairs) * both - self._one_way_precision
        if self.pairs and more > MIN_ONE_WAY_GAIN * privacy_filter.precision:
            self._remeasure_one_way(privacy_filter, more)
            self._group_codes(self.left_for_pairs(privacy_filter), max_pairs)
        if not self.pairs:
            self._remeasure(privacy_filter)

    def _clean_one_way(self) -> None:
        """Computes 1-way probabilities. Codes below the noise get the mean count of all such codes."""
        hidden = [
            counts < NOISE_LEVEL * stddev for counts, stddev in zip(self._one_way, self._one_way_noise, strict=True)
        ]
        rare = np.concatenate([counts[mask] for counts, mask in zip(self._one_way, hidden, strict=True)])
        common = max(0.5, float(rare.mean())) if len(rare) else 0.5
        cleaned = [np.where(mask, common, counts) for counts, mask in zip(self._one_way, hidden, strict=True)]
        self.shares = [counts / counts.sum() for counts in cleaned]

    @property
    def step_factor(self) -> float:
        """The factor of the number of training steps: larger with less noise."""
        measured = self._weights[self._weights > 0]
        noise = float(np.median(measured)) ** -0.5 / self._domain.num_rows if len(measured) else math.inf
        return min(max(1.0 if self._target is not None else 2.0, PAIRS_NOISE / noise), 2.0)

    def _merge(self, name: str, floor: float) -> Groups:
        return merge_rare_codes(self._one_way[self._domain.index(name)], floor, ordered=name in self._domain.numeric)

    def _measure_target(self, privacy_filter: GaussianFilter, target: str) -> None:
        """2-way marginals with the target, whose codes are merged only if there are many."""
        domain, settings = self._domain, self._settings
        few = domain.shape((target,))[0] <= 2 * settings.max_classes
        levels = tuple(range(domain.shape((target,))[0])) if few else self._merge(target, domain.num_rows / 40)
        classes = self._merge(target, domain.num_rows / (settings.max_classes + 0.5)) if not few else levels
        while max(classes) >= settings.max_classes:
            classes = self._merge_rarest_classes(target, classes)
        self._classes = classes if max(classes) else None
        others = [name for name in domain.names if name != target]
        precision = precision_for_target(
            domain, privacy_filter.precision, settings.target_fraction, left=privacy_filter.left
        )
        stddev = math.sqrt(len(others) / precision)
        groups = {name: self._merge(name, settings.min_signal * stddev * (max(levels) + 1)) for name in others}
        self._target = TargetMarginals(levels, groups, [], [])
        queries = self._target.queries(domain)
        noise = allocate_noise(precision, [math.prod(query.shape) for query in queries])
        self._target = TargetMarginals(levels, groups, privacy_filter.noisy_counts(queries, noise), noise)

    def _merge_rarest_classes(self, target: str, classes: Groups) -> Groups:
        """The classes with the two rarest merged."""
        counts = np.bincount(classes, weights=self._one_way[self._domain.index(target)])
        first, second = sorted(np.argsort(counts, kind="stable")[:2].tolist())
        joined = [first if group == second else group for group in classes]
        return tuple(group - (group > second) for group in joined)

    def _measure_cliques(
        self, privacy_filter: GaussianFilter, max_pairs: int | None
    ) -> list[tuple[Clique, np.ndarray, float]]:
        """Given cliques divide the remaining precision equally with the pairs."""
        cliques = self._settings.cliques
        if not cliques:
            return []
        columns = len(self._domain.names)
        pairs = max_pairs or columns * (columns - 1) // 2
        noise = allocate_noise(
            privacy_filter.left * len(cliques) / (len(cliques) + pairs), [self._domain.size(c) for c in cliques]
        )
        return list(zip(cliques, privacy_filter.noisy_counts(cliques, noise), noise, strict=True))

    @property
    def _one_way_precision(self) -> float:
        return math.fsum(noise**-2 for noise in self._one_way_noise)

    def _best_one_way_fraction(self, max_pairs: int | None) -> float:
        """The best fraction for 1-way marginals of the precision that they and the pairs have together.

        Pairs that are not measured are estimated from them. It minimises the sum of errors, as `allocate_noise` does.
        """
        domain, pairs = self._domain, self.pairs
        counted = min(len(pairs), max_pairs or len(pairs))
        others = len(domain.names) - 1 - (self._classes is not None)
        per_column = counted / len(pairs) * (len(self._groups) - 1) if pairs else 0.0
        alone = [
            size * (others - per_column * (name in self._groups))
            for name, size in zip(domain.names, domain.sizes, strict=True)
            if self._classes is None or name != domain.target
        ]
        for_one_way = sum(cells ** (2 / 3) for cells in alone)
        cells = [self._num_classes * self._widths[a] * self._widths[b] for a, b in pairs]
        left_for_pairs = counted * float(np.mean(np.asarray(cells) ** (2 / 3))) if pairs else 0.0
        return min(MAX_ONE_WAY, for_one_way / max(for_one_way + left_for_pairs, 1e-12))

    def _remeasure_one_way(self, privacy_filter: GaussianFilter, precision: float) -> None:
        noise = allocate_noise(precision, self._domain.sizes)
        again = privacy_filter.noisy_counts(self._domain.one_way, noise)
        self._one_way, self._one_way_noise = combine(self._one_way, self._one_way_noise, again, noise)
        self._clean_one_way()

    def _remeasure(self, privacy_filter: GaussianFilter) -> None:
        """Without pairs to measure, 1-way marginals and those with the target are measured again."""
        target = self._target
        left = self.left_for_pairs(privacy_filter)
        self._remeasure_one_way(privacy_filter, left * (1.0 if target is None else 0.5))
        if target is not None:
            queries = target.queries(self._domain)
            more = allocate_noise(self.left_for_pairs(privacy_filter), [math.prod(query.shape) for query in queries])
            noisy, noise = combine(target.noisy, target.stddevs, privacy_filter.noisy_counts(queries, more), more)
            self._target = dataclasses.replace(target, noisy=noisy, stddevs=noise)

    def _group_codes(self, precision: float, max_pairs: int | None) -> None:
        """Groups codes for pairs of columns: as finely as the noise and memory allow.

        Columns with only one group are left out; the fewer columns, the less noise.
        """
        target = self._domain.target if self._classes is not None else None
        names = [name for name in self._domain.names if name != target]
        self._num_classes = 1 if self._classes is None else max(self._classes) + 1
        self._groups = self._group(names, precision, 2, classes=self._num_classes, most=max_pairs, width=MAX_GROUPS)
        self._widths = {name: max(each) + 1 for name, each in self._groups.items()}
        self._slices = group_slices(self._groups)
        width = sum(self._widths.values())
        self._noisy = np.zeros((self._num_classes, width, width), np.float32)
        self._weights = np.zeros((width, width), np.float32)

    def _group(
        self, names: Sequence[str], precision: float, order: int, *, classes: int, most: int | None, width: int
    ) -> dict[str, Groups]:
        """Groups of codes for marginals of this order, at most `most` of them: the expected count of a cell of uniform
        rows is at least `min_signal` times the noise, and there are at most `width` groups."""
        rows = self._domain.num_rows

        def floor_of(marginals: int) -> float:
            stddev = math.sqrt(marginals / precision) if precision else math.inf
            return (self._settings.min_signal * classes * stddev * rows ** (order - 1)) ** (1 / order)

        floor = floor_of(1)
        while True:
            groups = {name: self._merge(name, floor) for name in names}
            groups = {name: each for name, each in groups.items() if max(each)}
            marginals = max(1, math.comb(len(groups), order))
            fits = sum(max(each) + 1 for each in groups.values()) <= width
            if not groups or (floor >= floor_of(min(marginals, most or marginals)) and fits):
                return groups
            floor *= 1.1

    def _group_three_way(self, precision: float) -> "ThreeWayMarginals | None":
        if not precision:
            return None
        groups = self._group(self._domain.names, precision, 3, classes=1, most=None, width=MAX_THREE_WAY_GROUPS)
        return ThreeWayMarginals(groups, precision) if len(groups) >= 3 else None

    @property
    def has_three_way(self) -> bool:
        return self._three_way is not None

    def left_for_pairs(self, privacy_filter: GaussianFilter) -> float:
        """The remaining precision without that reserved for 3-way marginals."""
        return max(0.0, privacy_filter.left - (self._three_way.precision if self._three_way is not None else 0.0))

    def measure_three_way(self, privacy_filter: GaussianFilter, heads: Float[jax.Array, "rows features"]) -> None:
        """Measures all 3-way marginals, and shrinks them towards those of a generator fitted to the rest."""
        three_way = self._three_way
        assert three_way is not None
        noise = allocate_noise(privacy_filter.left, [math.prod(query.shape) for query in three_way.queries])
        noisy = privacy_filter.noisy_counts(three_way.queries, noise)
        shares = np.asarray(self._compare_three_way(three_way, 1.0).shares(heads), dtype=np.float64)
        expected = [shares[at] * self._domain.num_rows for at in three_way.slices]
        shrunk = shrink_towards(noisy, expected, [stddev**2 for stddev in noise]).tables
        for at, table, stddev in zip(three_way.slices, shrunk, noise, strict=True):
            three_way.noisy[at] = table
            three_way.weights[at] = stddev**-2

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs of columns that can be measured."""
        return list(itertools.combinations(self._groups, 2))

    def query(self, pair: tuple[str, str]) -> Grouped:
        groups = tuple(self._groups[name] for name in pair)
        if self._classes is None or self._domain.target is None:
            return Grouped(pair, groups)
        return Grouped((self._domain.target, *pair), (self._classes, *groups))

    def measure(self, privacy_filter: GaussianFilter, pairs: Sequence[tuple[str, str]], precision: float) -> None:
        """Measures the 2-way marginals of these pairs with this precision in all."""
        if not pairs:
            return
        queries = [self.query(pair) for pair in pairs]
        noise = allocate_noise(precision, [math.prod(query.shape) for query in queries])
        for pair, counts, stddev in zip(pairs, privacy_filter.noisy_counts(queries, noise), noise, strict=True):
            a, b = (self._slices[name] for name in pair)
            self._noisy[:, a, b] = counts.reshape(self._num_classes, a.stop - a.start, b.stop - b.start)
            self._weights[a, b] = stddev**-2
        self.measured.update(pairs)

    def remeasure(self, privacy_filter: GaussianFilter, precision: float) -> None:
        """Measures pairs again, with this precision in all, allocated by their posteriors."""
        measured = [pair for pair in self.pairs if pair in self.measured]
        if not measured or precision <= LEAST_FRACTION**2 * privacy_filter.precision:  # only rounding errors are left
            return
        slices = [(self._slices[a], self._slices[b]) for a, b in measured]
        known = np.asarray([float(self._weights[a.start, b.start]) for a, b in slices])
        queries = [self.query(pair) for pair in measured]
        cells = np.asarray([math.prod(query.shape) for query in queries], dtype=float)
        _, shrunk, _ = self._shrink_pairs()
        more = allocate_extra_precision(precision, cells, known, shrunk.posterior, shrunk.signal)
        chosen = np.flatnonzero(more)
        found = privacy_filter.noisy_counts([queries[at] for at in chosen], (more[chosen] ** -0.5).tolist())
        for at, counts in zip(chosen, found, strict=True):
            a, b = slices[at]
            second = counts.reshape(self._num_classes, a.stop - a.start, b.stop - b.start)
            self._noisy[:, a, b] = (self._noisy[:, a, b] * known[at] + second * more[at]) / (known[at] + more[at])
            self._weights[a, b] = known[at] + more[at]

    def select_worst(
        self, expected: dict[tuple[str, str], np.ndarray], select: MarginalSelector, count: int, precision: float
    ) -> list[tuple[str, str]]:
        """Selects unmeasured pairs by the error of the generator, minus the expected error of measuring them."""
        left = [pair for pair in self.pairs if pair not in self.measured]
        queries = [self.query(pair) for pair in left]
        cells = np.asarray([math.prod(query.shape) for query in queries], dtype=float)
        offsets = math.sqrt(2 / math.pi * count / precision) * cells
        tables = [expected[pair] for pair in left]
        return [left[at] for at in select.several(Candidates(queries, tables, np.ones(len(left)), offsets), count)]

    def expected(self, heads: Float[jax.Array, "rows features"]) -> dict[tuple[str, str], np.ndarray]:
        """The 2-way marginals of the generator, as counts."""
        shares = np.asarray(self._compare(1.0).shares(heads), dtype=np.float64) * self._domain.num_rows
        found = {}
        for pair in self.pairs:
            a, b = (self._slices[name] for name in pair)
            found[pair] = shares[:, a, b].reshape(self.query(pair).shape)
        return found

    def terms(self) -> Terms:
        """The terms of the generator's loss, on probabilities. The weight of a cell is the inverse variance of its
        noise over the number of cells: errors as large as the noise give a loss of one."""
        rows, domain = self._domain.num_rows, self._domain
        one_way = np.concatenate(self.shares)[None] * rows
        parts: list[tuple[np.ndarray | None, np.ndarray | None, np.ndarray, np.ndarray]] = [
            (None, None, one_way, np.repeat(np.asarray(self._one_way_noise) ** -2.0, domain.sizes)[None])
        ]
        if self._target is not None:
            noisy = np.concatenate(self._target_counts(), axis=1)
            weights = [
                np.full(table.shape, noise**-2)
                for table, noise in zip(self._target.noisy, self._target.stddevs, strict=True)
            ]
            parts.append(
                (
                    self._matrix(self._target.groups),
                    self._gates(self._target.levels),
                    noisy,
                    np.concatenate(weights, axis=1),
                )
            )
        cells = sum(weights.size for *_, weights in parts) + int((self._weights > 0).sum()) * self._num_classes
        cells += 0 if self._three_way is None else int((self._three_way.weights > 0).sum())
        scale = rows**2 / (cells + sum(counts.size for _, counts, _ in self._cliques))
        made: list[Cross | Pairs | Cells] = [
            Cross.of(groups, gates, noisy / rows, weights * scale) for groups, gates, noisy, weights in parts
        ]
        made += [self._compare(scale)] if self._weights.any() else []
        if self._three_way is not None and self._three_way.weights.any():
            made.append(self._compare_three_way(self._three_way, scale))
        made += [self._cells(scale)] if self._cliques else []
        return tuple(made)

    def _compare(self, scale: float) -> Pairs:
        estimated, weights = self._estimate_pairs()
        gates = None if self._classes is None else self._gates(self._classes)
        return self._in_parts(self._matrix(self._groups), gates, estimated, weights[None] * scale)

    def _compare_three_way(self, three_way: "ThreeWayMarginals", scale: float) -> Pairs:
        """2-way marginals within each group of a third column."""
        groups = self._matrix(three_way.groups)
        return self._in_parts(groups, groups, three_way.noisy, three_way.weights * scale)

    def _in_parts(self, groups: np.ndarray, gates: np.ndarray | None, counts: np.ndarray, weights: np.ndarray) -> Pairs:
        width = groups.shape[1]
        stretch = max(1, min(width, CELLS_AT_ONCE // max(1, width)))
        at_once = max(1, CELLS_AT_ONCE // max(1, stretch * width))
        return Pairs.of(groups, gates, counts / self._domain.num_rows, weights, rows=stretch, at_once=at_once)

    def _estimate_pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """The estimated 2-way counts, and their weights.

        Noisy counts are shrunk towards independence within a class; unmeasured pairs are taken as independent, with
        less weight. Otherwise the generator would overfit the noise and invent dependencies.
        """
        estimated, weights = self._noisy.copy(), self._weights.copy()
        independent, shrunk, variances = self._shrink_pairs()
        tables, most = iter(shrunk.tables), max(variances, default=0.0)
        for pair, expected in independent.items():
            a, b = (self._slices[name] for name in pair)
            if pair in self.measured:
                estimated[:, a, b] = next(tables)
            elif self.measured:
                estimated[:, a, b] = expected
                weights[a, b] = 1 / (most + shrunk.prior_ratio * float(expected.mean()))
        return estimated, weights

    def _shrink_pairs(self) -> tuple[dict[tuple[str, str], np.ndarray], "Shrunk", list[float]]:
        """All pairs under independence, the measured ones shrunk towards that, and their noise variances."""
        alone = self._counts_by_class()
        sizes = alone[:, : self._domain.sizes[0]].sum(axis=1)
        grouped = alone @ self._matrix(self._groups)
        if self._classes is None:
            grouped = self._pooled(grouped)
        slices = {pair: (self._slices[pair[0]], self._slices[pair[1]]) for pair in self.pairs}
        independent = {
            pair: grouped[:, a, None] * grouped[:, None, b] / sizes[:, None, None] for pair, (a, b) in slices.items()
        }
        measured = [slices[pair] for pair in slices if pair in self.measured]
        variances = [1 / float(self._weights[a.start, b.start]) for a, b in measured]
        noisy = [self._noisy[:, a, b] for a, b in measured]
        expected = [table for pair, table in independent.items() if pair in self.measured]
        draw = shrink_by_mixture if self._classes is None else shrink_towards
        return independent, draw(noisy, expected, variances), variances

    def _pooled(self, grouped: Float[np.ndarray, "1 groups"]) -> Float[np.ndarray, "1 groups"]:
        """The estimated count of each group, by 1-way marginals and the margins of all measured pairs."""
        sums, precision = np.zeros(grouped.shape[1]), np.zeros(grouped.shape[1])
        for name, at in self._slices.items():
            noise = self._one_way_noise[self._domain.index(name)]
            precision[at] = 1 / (noise**2 * np.bincount(self._groups[name]))
            sums[at] = grouped[0, at] * precision[at]
        for pair in (
            pair for pair in self.pairs if pair in self.measured
        ):  # in a fixed order, so that sums are reproducible
            slices = [self._slices[name] for name in pair]
            table = self._noisy[0, slices[0], slices[1]]
            for axis, at in enumerate(slices):
                own = self._weights[slices[0].start, slices[1].start] / table.shape[1 - axis]
                sums[at] += table.sum(axis=1 - axis) * own
                precision[at] += own
        pooled = np.maximum(sums / precision, 0.5)
        for at in self._slices.values():
            pooled[at] *= grouped[0, at].sum() / pooled[at].sum()
        return pooled[None]

    def _target_counts(self) -> list[np.ndarray]:
        """The 2-way counts with the target, shrunk towards independence."""
        domain, target = self._domain, self._target
        assert target is not None
        assert domain.target is not None
        levels = np.bincount(target.levels, weights=self.shares[domain.index(domain.target)])
        independent = [
            np.outer(levels, np.bincount(groups, weights=self.shares[domain.index(name)])) * domain.num_rows
            for name, groups in target.groups.items()
        ]
        return shrink_towards(target.noisy, independent, [stddev**2 for stddev in target.stddevs]).tables

    def _counts_by_class(self) -> Float[np.ndarray, "classes features"]:
        """The estimated count of each code within each class, from 1-way marginals and those with the target."""
        domain = self._domain
        one_way = np.concatenate(self.shares)[None]
        if self._classes is None or self._target is None or domain.target is None:
            return one_way * domain.num_rows
        own = self.shares[domain.index(domain.target)]
        within = code_probabilities(own, self._target.levels).T @ np.eye(max(self._classes) + 1)[list(self._classes)]
        total = np.bincount(self._classes, weights=own)[:, None]
        blocks = []
        for name, shares in zip(domain.names, self.shares, strict=True):
            if name == domain.target:
                blocks.append(np.eye(len(total))[list(self._classes)].T * own)
                continue
            at = list(self._target.groups).index(name)
            counts = np.maximum(self._target_counts()[at], self._target.stddevs[at] / 10)
            block = within.T @ counts @ code_probabilities(shares, self._target.groups[name]).T
            blocks.append(block / block.sum(axis=1, keepdims=True) * total)
        return np.concatenate(blocks, axis=1) * domain.num_rows

    def _cells(self, scale: float) -> Cells:
        order = max(len(clique) for clique, _, _ in self._cliques)
        features = sum(self._domain.sizes)
        codes = []
        for clique, counts, _ in self._cliques:
            at = np.indices(counts.shape).reshape(len(clique), -1).T
            at = at + np.asarray([self._starts[self._domain.index(name)] for name in clique])
            codes.append(np.pad(at, ((0, 0), (0, order - len(clique))), constant_values=features))
        noisy = np.concatenate([counts.reshape(-1) for _, counts, _ in self._cliques]) / self._domain.num_rows
        weights = np.concatenate([np.full(counts.size, noise**-2) for _, counts, noise in self._cliques]) * scale
        return Cells.of(np.concatenate(codes), noisy, weights, features=features, rows=CELLS_AT_ONCE // 2**8)

    def _gates(self, levels: Groups) -> np.ndarray:
        assert self._domain.target is not None
        return self._matrix({self._domain.target: levels})

    def _matrix(self, groups: dict[str, Groups]) -> Float[np.ndarray, "features groups"]:
        """Indicators of the features in each group, columns side by side."""
        matrix, end = np.zeros((sum(self._domain.sizes), sum(max(each) + 1 for each in groups.values()))), 0
        for name, each in groups.items():
            matrix[self._starts[self._domain.index(name)] + np.arange(len(each)), end + np.asarray(each)] = 1.0
            end += max(each) + 1
        return matrix
