"""Membership attacks on a synthetic table. Each gives every row a score: the higher, the more it looks like a member.

An attack sees the rows to score, the synthetic rows, and reference rows: real rows that were not fitted and are not
scored. No attack knows which rows are members, and none needs the generator.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from sklearn.random_projection import GaussianRandomProjection

from understudy.evaluation.counting import joint_keys
from understudy.evaluation.geometry import codes_of, train_discriminator
from understudy.evaluation.table import EncodedTable
from understudy.evaluation.validity import fingerprints, nearest_rows

NEIGHBOURS, DENSITY_NEIGHBOURS = 20, 5
"""Number of nearest rows searched, and which of them gives the distance that estimates a density."""
MAX_FEATURES = 256
"""Rows with more features are projected at random onto this many, which nearly preserves distances."""
BINS = 16
"""Of a numeric column, each with about the same number of rows, for counts."""
MAX_PAIRS, NUM_QUERIES = 300, 100
"""2-way marginals that are compared, and counting queries over three to five columns."""
NO_DISTANCE = 1e-6
"""Smaller distances count as this one, which keeps ratios of distances finite."""

Scores = Float[np.ndarray, " rows"]
Distances = Float[np.ndarray, "rows k"]
"""Distances to the nearest rows of one table, the nearest first."""


@dataclasses.dataclass(frozen=True, eq=False)
class Attacked:
    """What an attack sees, and what several attacks compute from it once."""

    rows: EncodedTable
    synthetic: EncodedTable
    reference: EncodedTable
    copies: Int[np.ndarray, " rows"]
    """How many rows of the whole synthetic table equal each row."""
    seed: int

    @cached_property
    def near_synthetic(self) -> Distances:
        return self._near(self.synthetic)

    @cached_property
    def near_reference(self) -> Distances:
        return self._near(self.reference)

    @cached_property
    def codes(self) -> tuple[list[list[np.ndarray]], list[int]]:
        """Binned codes of the rows, the synthetic and the reference rows by column, and the number of codes."""
        names = self.rows.layout.names
        columns = [bin_column(name, (self.rows, self.synthetic, self.reference)) for name in names]
        return [list(table) for table in zip(*(codes for codes, _ in columns), strict=True)], [n for _, n in columns]

    def _near(self, searched: EncodedTable) -> Distances:
        asked, known = project((self.rows, searched), self.seed)
        return nearest_distances(known, asked, NEIGHBOURS)


def count_copies(rows: EncodedTable, synthetic: EncodedTable) -> Int[np.ndarray, " rows"]:
    """How many synthetic rows equal each row in all evaluated columns."""
    distinct, counts = np.unique(fingerprints(synthetic), return_counts=True)
    asked = fingerprints(rows)
    at = np.minimum(np.searchsorted(distinct, asked), len(distinct) - 1)
    return np.where(distinct[at] == asked, counts[at], 0)


def project(tables: Sequence[EncodedTable], seed: int, columns: Sequence[str] | None = None) -> list[np.ndarray]:
    """Features of several tables in one space of at most `MAX_FEATURES` dimensions."""
    features = [table.features(columns) for table in tables]
    if features[0].shape[1] <= MAX_FEATURES:
        return features
    projection = GaussianRandomProjection(MAX_FEATURES, random_state=seed).fit(features[0])
    # In double precision: how products of single precision are rounded depends on the number of rows, so copies differ.
    return [projection.transform(part.astype(np.float64)).astype(np.float32) for part in features]


def nearest_distances(
    known: Float[np.ndarray, "known f"], asked: Float[np.ndarray, "asked f"], count: int
) -> Float[np.ndarray, "asked k"]:
    """Distances to the nearest known rows, in order."""
    near = nearest_rows(known, asked, count)
    # Computed again: the search subtracts large squares, and gives copies a small positive distance.
    return np.stack([np.linalg.norm(asked - known[index], axis=1) for index in near.T], axis=1)


def bin_column(name: str, tables: Sequence[EncodedTable]) -> tuple[list[np.ndarray], int]:
    """The column of each table as small codes on common bins, and the number of codes; nulls have one of their own."""
    spec = tables[0].layout[name]
    if not spec.is_numeric:
        return [table[name] for table in tables], len(spec.categories) + 2
    known = np.concatenate([table[name][~np.isnan(table[name])] for table in tables])
    edges = np.unique(np.quantile(known, np.linspace(0, 1, BINS + 1)[1:-1])) if len(known) else np.array([])
    codes = [np.where(np.isnan(table[name]), len(edges) + 1, np.digitize(table[name], edges)) for table in tables]
    return codes, len(edges) + 2


# ------------------------------------------------------------------------------------------------------------- attacks


def exact_copies(seen: Attacked) -> Scores:
    """How often the row occurs in the synthetic table."""
    return seen.copies.astype(np.float64)


def nearest_distance(seen: Attacked) -> Scores:
    """Negative distance to the closest synthetic row (Chen, Yu, Zhang and Fritz 2020, without calibration)."""
    return -seen.near_synthetic[:, 0]


def calibrated_distance(seen: Attacked) -> Scores:
    """The same, relative to the closest reference row (Chen, Yu, Zhang and Fritz 2020)."""
    return _log_distance(seen.near_reference[:, 0]) - _log_distance(seen.near_synthetic[:, 0])


def neighbourhood_count(seen: Attacked) -> Scores:
    """Number of synthetic rows within the median distance to the closest one (Hilprecht, Härterich and Bernau 2019)."""
    radius = np.median(seen.near_synthetic[:, 0])
    return (seen.near_synthetic <= radius).sum(axis=1).astype(np.float64)


def density_ratio(seen: Attacked) -> Scores:
    """Density of the synthetic rows over that of the reference rows, by nearest neighbours (DOMIAS: van Breugel, Sun,
    Qian and van der Schaar 2023)."""
    return _density_distance(seen.near_reference) - _density_distance(seen.near_synthetic)


def discriminator(seen: Attacked) -> Scores:
    """A classifier trained to distinguish synthetic from reference rows (after LOGAN: Hayes, Melis, Danezis and De
    Cristofaro 2019)."""
    return classify(seen.reference, seen.synthetic, [seen.rows], seed=seen.seed)[0]


def marginal_ratio(seen: Attacked) -> Scores:
    """The likelihood ratio of 2-way marginals of the synthetic and the reference rows (after Homer et al. 2008)."""
    pairs = list(itertools.combinations(range(len(seen.rows.layout.names)), 2))
    if len(pairs) > MAX_PAIRS:
        chosen = np.random.default_rng([seen.seed, 1]).choice(len(pairs), MAX_PAIRS, replace=False)
        pairs = [pairs[at] for at in chosen]
    return _count_ratio(seen, pairs or [(0,)])


def query_counts(seen: Attacked) -> Scores:
    """Counts of rows that agree with the row in random sets of columns, in the synthetic and in the reference rows
    (after Houssiau et al. 2022)."""
    generator, columns = np.random.default_rng([seen.seed, 2]), len(seen.rows.layout.names)
    sizes = generator.integers(min(3, columns), min(5, columns) + 1, NUM_QUERIES)
    return _count_ratio(seen, [tuple(generator.choice(columns, size, replace=False)) for size in sizes])


_NAMES: Mapping[Callable[[Attacked], Scores], str] = {
    exact_copies: "exact copies",
    nearest_distance: "nearest synthetic row",
    calibrated_distance: "nearest row, calibrated",
    neighbourhood_count: "neighbourhood count",
    density_ratio: "density ratio",
    discriminator: "discriminator",
    marginal_ratio: "ratio of 2-way marginals",
    query_counts: "counting queries",
}
ATTACKS = {attack.__name__: attack for attack in _NAMES}
ATTACK_NAMES = {attack.__name__: name for attack, name in _NAMES.items()}
"""Names shown to readers."""


def classify(
    zeros: EncodedTable, ones: EncodedTable, asked: Sequence[EncodedTable], *, seed: int
) -> list[Float[np.ndarray, " rows"]]:
    """Train boosted trees to distinguish two tables; the log-odds that each queried row is from the second."""
    model = train_discriminator(zeros, ones, seed=seed, max_iter=60, max_leaf_nodes=15, early_stopping=False)
    return [model.decision_function(codes_of(table)) for table in asked]


def _density_distance(distances: Distances) -> Scores:
    return _log_distance(distances[:, min(DENSITY_NEIGHBOURS, distances.shape[1]) - 1])


def _log_distance(distances: Scores) -> Scores:
    return np.log(np.maximum(distances, NO_DISTANCE))


def _count_ratio(seen: Attacked, cliques: Sequence[tuple[int, ...]]) -> Scores:
    """The mean over cliques of the log ratio of the two tables' frequencies in the row's cell."""
    codes, sizes = seen.codes
    total = np.zeros(seen.rows.num_rows)
    for clique in cliques:
        parts = [[columns[at] for at in clique] for columns in codes]
        keys = joint_keys(parts, [sizes[at] for at in clique])
        cells = np.unique(np.concatenate(keys), return_inverse=True)[1]
        asked, synthetic, reference = np.split(cells, np.cumsum([len(key) for key in keys])[:-1])
        counts = [np.bincount(part, minlength=cells.max() + 1) + 0.5 for part in (synthetic, reference)]
        total += np.log(counts[0][asked] / len(synthetic)) - np.log(counts[1][asked] / len(reference))
    return total / len(cliques)
