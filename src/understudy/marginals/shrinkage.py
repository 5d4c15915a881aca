"""Shrinkage of noisy marginals towards independent columns. The *pull* on a cell says how strong it is.

Suppose that the logarithm of a cell's count over its count c under independence has mean 0 and variance v. Near
independence a logarithm of t changes the count by c t, so the best linear estimate from a noisy count y of variance
s^2 is

    t = c v / (c^2 v + s^2) * (y - c),

which is about c v / s^2 * (y - c) if the noise is larger than the count. The estimator's optimum has the form
pull * s^2 * t = y - c, so the matching pull is 1 / (c v). In a large cell this is negligible, and the constant pull of
the estimator applies; a cell with an expected count of one and noise of a hundred keeps its expected count.

A cell whose noisy count is far above its noise is not small, whatever independence implies: its count is then taken to
be at least the noisy count minus two standard deviations.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from understudy.models.junction import Clique, Table
from understudy.schema import Domain

CLEAR = 2.0
"""How many standard deviations below its noisy count a true count is still expected."""
MIN_COUNT = 1e-3


class Pooled(NamedTuple):
    """The measurements of one marginal, combined: counts, and the variance of their noise."""

    counts: Table
    variance: Table


def cell_pulls(
    pooled: Mapping[Clique, Pooled], expected: Mapping[Clique, Table], *, min_pull: float, prior_variance: float
) -> dict[Clique, Table]:
    """The pull on each cell of every marginal of two columns or more; `expected`: their counts under independence."""
    pulls = {}
    for clique, under_independence in expected.items():
        counts, variance = pooled[clique]
        count = np.maximum(np.maximum(under_independence, counts - CLEAR * np.sqrt(variance)), MIN_COUNT)
        pulls[clique] = np.maximum(min_pull, 1 / (prior_variance * count))
    return pulls


def independent_counts(
    domain: Domain, cliques: Sequence[Clique], one_way: Mapping[Clique, Table], total: float
) -> list[Table]:
    """The marginals of independent columns; `one_way`: distributions, not normalised (absent: uniform)."""
    columns = {
        name: _distribution(one_way.get((name,)), size) for name, size in zip(domain.names, domain.sizes, strict=True)
    }
    return [total * independent_joint([columns[name] for name in clique]) for clique in cliques]


def independent_joint(columns: list[Table]) -> Table:
    """The joint distribution of independent columns."""
    joint = columns[0]
    for column in columns[1:]:
        joint = joint[..., None] * column
    return joint


def _distribution(table: Table | None, size: int) -> Table:
    return np.full(size, 1 / size) if table is None else table / table.sum()
