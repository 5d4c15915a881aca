"""Which marginals are worth measuring, and how methods that select them under noise compare them."""

import itertools
import math
from collections.abc import Sequence
from typing import Annotated, TypeAlias

import numpy as np

from understudy.privacy.rows import Clique
from understudy.privacy.selection import Candidates
from understudy.schema import Domain
from understudy.settings import Listed

Workload: TypeAlias = Annotated[tuple[Annotated[Clique, Listed(distinct=True)], ...], Listed()]
"""A setting: the cliques to fit."""
MEAN_NOISE = math.sqrt(2 / math.pi)
"""The mean of |noise|, for a standard deviation of one."""


def default_workload(domain: Domain) -> list[Clique]:
    """All 2-way marginals, and all 3-way marginals with the target.

    >>> default_workload(Domain(names=("a", "b", "c"), sizes=(2, 2, 2), num_rows=9, target="c"))
    [('a', 'b'), ('a', 'c'), ('b', 'c'), ('a', 'b', 'c')]
    """
    names = domain.names
    three_way = [clique for clique in itertools.combinations(names, 3) if domain.target in clique]
    return [*itertools.combinations(names, min(2, len(names))), *three_way]


def candidate_weights(domain: Domain, workload: Sequence[Clique] | None, target_weight: float) -> dict[Clique, float]:
    """The marginals to select from and their weights: all subsets of the workload's cliques, smallest first.

    Those with more cells than the public number of rows are left out: their counts would be mostly noise.

    >>> domain = Domain(names=("a", "b", "c"), sizes=(2, 2, 9), num_rows=9, target="b")
    >>> candidate_weights(domain, [("b", "a"), ("b", "c")], 2.0)
    {('a',): 1.0, ('b',): 2.0, ('c',): 1.0, ('a', 'b'): 2.0}
    """
    subsets = {
        tuple(sorted(subset, key=domain.index))
        for clique in (default_workload(domain) if workload is None else workload)
        for size in range(1, len(clique) + 1)
        for subset in itertools.combinations(clique, size)
    }
    usable = [clique for clique in subsets if len(clique) == 1 or domain.size(clique) <= domain.num_rows]
    usable.sort(key=lambda clique: (len(clique), [domain.index(name) for name in clique]))
    return {clique: target_weight if domain.target in clique else 1.0 for clique in usable}


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
