"""The noise that a plan expects in the marginals to be measured.

Computed from public facts alone, before any data is read. Methods that know their noise implement `ExpectsNoise`
(`synthesizers/protocol.py`) with the functions here.
"""

import math

from understudy.privacy.accounting.events import ZCDP, DiscreteGaussian, Event, Gaussian, LaplaceMarginals
from understudy.privacy.accounting.marginal_noise import ExpectedNoise
from understudy.schema import Domain


def expected_of_counts(event: Event, min_order: int, max_order: int, *, marginals: int | None = None) -> ExpectedNoise:
    """For a query whose counts all have the same noise. `marginals` is their number, by default that of the event."""
    assert isinstance(event, DiscreteGaussian | LaplaceMarginals)
    planned = event.count if isinstance(event, DiscreteGaussian) else event.rounds
    count = planned if marginals is None else marginals
    return ExpectedNoise(min_order=min_order, max_order=max_order, marginals=count, stddev=event.stddev, exact=True)


def precision_of(event: Event, max_rows_per_unit: int = 1) -> float:
    """The precision of a query: marginals with standard deviations s_j fit if the sum of 1 / s_j^2 is at most this."""
    assert isinstance(event, Gaussian | ZCDP | DiscreteGaussian)
    return 2 * event.rho / max_rows_per_unit**2  # noise multiplier m: rho = 1 / (2 m^2), precision 1 / m^2


def expected_of_precision(
    domain: Domain, precision: float, one_way_fraction: float, num_pairs: int
) -> tuple[ExpectedNoise, ...]:
    """For a precision of which 1-way marginals get a fraction and 2-way marginals the rest, each divided evenly.

    If it is divided unevenly, this is the noise at the mean precision.
    """
    one_way = spread_precision(1, len(domain.names), precision * (one_way_fraction if num_pairs else 1.0))
    return (*one_way, *spread_precision(2, num_pairs, precision * (1 - one_way_fraction)))


def spread_precision(order: int, marginals: int, precision: float) -> tuple[ExpectedNoise, ...]:
    """For this many marginals with this total precision; empty if there are none."""
    if not marginals or precision <= 0:
        return ()
    stddev = math.sqrt(marginals / precision)
    return (ExpectedNoise(min_order=order, max_order=order, marginals=marginals, stddev=stddev, exact=False),)
