"""How strongly each cell of a noisy marginal is pulled towards what the columns by themselves imply.

Suppose that the logarithm of a cell's count over its count under independence has mean 0 and variance v. Near
independence a change of it by t changes a count of c by c t, so from a noisy count y of variance s^2 the best linear
estimate is

    t = c v / (c^2 v + s^2) * (y - c),

which for noise beyond the count itself is c v / s^2 * (y - c). The estimator's optimum has the form
pull * s^2 * t = y - c: the pull that agrees is 1 / (c v). Where a cell is large this is next to nothing, and the
constant pull of the estimator holds; where a count of one meets noise of a hundred, the cell stays as it is expected.

A cell whose noisy count is far above its noise is not small, whatever independence implies: its count is then taken to
be at least the noisy one less two standard deviations.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from understudy.models.junction import Clique, Table
from understudy.schema import Domain

CLEAR = 2.0
"""Standard deviations below a noisy count that a true count is still expected at."""
LEAST_COUNT = 1e-3


class Pooled(NamedTuple):
    """The measurements of one marginal combined: counts, and the variance of their noise."""

    counts: Table
    variance: Table


def cell_pulls(
    domain: Domain,
    pooled: Mapping[Clique, Pooled],
    one_way: Mapping[Clique, Table],
    *,
    total: float,
    least: float,
    prior_variance: float,
) -> dict[Clique, Table]:
    """The pull on each cell of every marginal of two columns or more; `one_way`: their distributions, unscaled."""
    shares = {name: _share(one_way.get((name,)), size) for name, size in zip(domain.names, domain.sizes, strict=True)}
    pulls = {}
    for clique, (counts, variance) in pooled.items():
        if len(clique) > 1:
            expected = total * independent_shares([shares[name] for name in clique])
            count = np.maximum(np.maximum(expected, counts - CLEAR * np.sqrt(variance)), LEAST_COUNT)
            pulls[clique] = np.maximum(least, 1 / (prior_variance * count))
    return pulls


def independent_shares(shares: list[Table]) -> Table:
    """The joint distribution of independent columns."""
    joint = shares[0]
    for share in shares[1:]:
        joint = joint[..., None] * share
    return joint


def _share(table: Table | None, size: int) -> Table:
    return np.full(size, 1 / size) if table is None else table / table.sum()
