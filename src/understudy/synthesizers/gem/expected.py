"""The noise that a plan of GEM expects in its marginals: as `measurements.py` divides the precision."""

import math
from typing import TYPE_CHECKING

from understudy.marginals.expected import spread_precision
from understudy.privacy.marginal_noise import ExpectedNoise
from understudy.schema import Domain
from understudy.synthesizers.gem.allocation import fraction_for_one_way, precision_for_target

if TYPE_CHECKING:
    from understudy.synthesizers.gem.method import GEM


def expected_marginals(
    settings: "GEM", domain: Domain, precision: float, *, num_pairs: int, three_way_fraction: float
) -> tuple[ExpectedNoise, ...]:
    """Of 1-way marginals, 2-way marginals with the target, pairs of columns, and 3-way marginals.

    With a target, pairs are counted within its classes: they are 3-way marginals with it.
    """
    columns = len(domain.names)
    one_way = precision * fraction_for_one_way(domain, precision, settings.one_way_fraction)
    left = precision - one_way
    with_target = 0.0
    if domain.target is not None and columns > 1:
        with_target = precision_for_target(domain, precision, settings.target_fraction, left=left)
        left -= with_target
    cliques = left * len(settings.cliques) / max(1, len(settings.cliques) + num_pairs)
    num_three_way = math.comb(columns, 3)
    three_way = (left - cliques) * three_way_fraction if num_three_way else 0.0
    pairs = left - cliques - three_way
    if not num_pairs:  # 1-way marginals and those with the target are measured again
        again = pairs * (0.5 if with_target else 1.0)
        one_way, with_target = one_way + again, with_target + pairs - again
    return (
        *spread_precision(1, columns, one_way),
        *spread_precision(2, columns - 1, with_target),
        *spread_precision(3 if domain.target is not None else 2, num_pairs, pairs),
        *spread_precision(3, num_three_way, three_way),
    )
