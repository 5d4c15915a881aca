"""Which marginals are worth measuring, and how methods that select them under noise compare them."""

import itertools
from collections.abc import Sequence
from typing import Annotated, TypeAlias

import numpy as np

from understudy.marginals.allocation import MEAN_NOISE
from understudy.privacy.mechanisms.selection import Candidates
from understudy.privacy.rows.rows import Clique
from understudy.schema import Domain
from understudy.synthesizers.settings import Listed

Workload: TypeAlias = Annotated[tuple[Annotated[Clique, Listed(distinct=True)], ...], Listed()]
"""A setting: the cliques to fit."""


def default_workload(domain: Domain) -> list[Clique]:
    """All 2-way marginals, and all 3-way marginals with the target."""
    names = domain.names
    three_way = [clique for clique in itertools.combinations(names, 3) if domain.target in clique]
    return [*itertools.combinations(names, min(2, len(names))), *three_way]


def candidate_weights(domain: Domain, workload: Sequence[Clique] | None, target_weight: float) -> dict[Clique, float]:
    """The marginals to select from and their weights: all subsets of the workload's cliques, smallest first.

    Those with more cells than the public number of rows are left out: their counts would be mostly noise.
    """
    subsets = list_subsets(domain, default_workload(domain) if workload is None else workload)
    usable = [clique for clique in subsets if len(clique) == 1 or domain.size(clique) <= domain.num_rows]
    return {clique: target_weight if domain.target in clique else 1.0 for clique in usable}


def list_subsets(domain: Domain, cliques: Sequence[Clique], min_size: int = 1) -> list[Clique]:
    """Every subset of the cliques with at least this many columns once: the smallest first, in the domain's order."""
    subsets = {
        tuple(sorted(subset, key=domain.index))
        for clique in cliques
        for size in range(min_size, len(clique) + 1)
        for subset in itertools.combinations(clique, size)
    }
    return sorted(subsets, key=lambda clique: (len(clique), [domain.index(name) for name in clique]))


def scored_by_error(
    domain: Domain, cliques: Sequence[Clique], expected: Sequence[np.ndarray], weights: Sequence[float], stddev: float
) -> Candidates:
    """Candidates with the score weight * (L1 error of the model - expected error of measuring).

    The latter is the mean of |noise| of this standard deviation, summed over the cells that rules leave possible.
    """
    if domain.zeros:  # what is impossible has an expected count of exactly zero, and its noise is ignored
        cells = [int(np.count_nonzero(table)) for table in expected]
    else:
        cells = [domain.size(clique) for clique in cliques]
    offsets = [MEAN_NOISE * stddev * each for each in cells]
    return Candidates(cliques, expected, np.asarray(weights), np.asarray(offsets))
