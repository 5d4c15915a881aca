"""What a run costs beside the other releases of the same data, in whole numbers that add up exactly.

A data set has one limit for all its releases, and plans are chosen after earlier releases were seen. Only composition
that stays valid then is used, a privacy filter: the cost of every release is bounded in advance, and the sum of the
bounds never passes the limit. A joint privacy-loss distribution is not such a filter, and is not used.

`renyi` adds up Renyi divergences at one order, fixed in advance (Feldman and Zrnic 2021, "Individual privacy accounting
via a Renyi filter", theorem 4.3; Lecuyer 2021, "Practical privacy filters and odometers with Renyi DP"). `zcdp` adds up
rho (Whitehouse, Ramdas, Rogers and Wu 2023, "Fully-adaptive composition in differential privacy", theorem 1). `basic`
adds up epsilons and deltas (Rogers, Roth, Ullman and Vadhan 2016, "Privacy odometers and filters", theorem 3.1).

Half of delta converts the divergence to epsilon. The other half is for what adds to delta directly: thresholded lists,
and the finite range of floating-point noise. Each of these raises the hockey-stick divergence of one query by its delta
at most, at every epsilon. Replacing the queries one by one raises that of all releases by the expected sum of these
deltas, and the filter bounds the sum of every possible run.

Runs may overlap in time. The bounds hold for every query given all answers before it, whichever run they belong to.
"""

import dataclasses
import decimal
import fractions
import functools
import math
from collections.abc import Sequence
from typing import Literal, get_args

from understudy.errors import ConfigError, did_you_mean
from understudy.privacy.accounting.accountants import renyi_curve
from understudy.privacy.accounting.events import ORDERS, SUBSAMPLED_ORDERS, ZCDP, Concentrated, Event
from understudy.privacy.accounting.ledger import Guarantee, partitions
from understudy.privacy.accounting.plan import Query

Composition = Literal["renyi", "zcdp", "basic"]

AMOUNT_DIGITS = 12
"""Divergences, rhos and epsilons are counted in units of 10^-12."""
DELTA_DIGITS = 30
"""Deltas are counted in units of 10^-30."""
MIN_DELTA = 1e-20
"""A limit with a smaller delta is refused: too few units of delta would be left to add up."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """A privacy cost in whole units: of divergence, rho or epsilon, and of delta.

    >>> Cost(2, 5) + Cost(1, 0), Cost(2, 5).fits(Cost(2, 4))
    (Cost(amount=3, delta=5), False)
    """

    amount: int = 0
    delta: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.amount + other.amount, self.delta + other.delta)

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(self.amount - other.amount, self.delta - other.delta)

    def fits(self, limit: "Cost") -> bool:
        """Whether neither part passes the limit."""
        return self.amount <= limit.amount and self.delta <= limit.delta

    def fraction_of(self, limit: "Cost") -> float:
        """The larger of the two fractions of the limit."""
        return max(self.amount / limit.amount, self.delta / limit.delta)

    def maximum(self, other: "Cost") -> "Cost":
        """The larger of each part."""
        return Cost(max(self.amount, other.amount), max(self.delta, other.delta))


@dataclasses.dataclass(frozen=True)
class ReleaseFilter:
    """A limit of (epsilon, delta) for all releases of one data set, and how their costs add up.

    >>> terms = ReleaseFilter.create(3.0, 1e-5)
    >>> terms.composition, terms.order
    ('renyi', 7.9)
    """

    epsilon: float
    delta: float
    composition: Composition = "renyi"
    order: float | None = None
    """The order of the Renyi divergence; None unless the composition is `renyi`."""

    @classmethod
    def create(
        cls, epsilon: float, delta: float, composition: str = "renyi", order: float | None = None
    ) -> "ReleaseFilter":
        """Checks the figures. The default order is that at which Gaussian noise gets most out of the limit."""
        for name, value, example in (("epsilon", epsilon, "3"), ("delta", delta, "1e-5")):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ConfigError(
                    f"The limit of {name} must be a positive number, such as {example}; found {value!r}. It holds for "
                    "all releases of the data set together.",
                    setting=name,
                )
        Guarantee(epsilon, delta)
        if delta < MIN_DELTA:
            raise ConfigError(
                f"delta of a budget book must be at least {MIN_DELTA:g}, found {delta:g}.", setting="delta"
            )
        known = get_args(Composition)
        if composition not in known:
            hint = did_you_mean(composition, known)
            raise ConfigError(
                f"composition must be one of {', '.join(known)}, found {composition!r}.{hint}", setting="composition"
            )
        if order is not None and composition != "renyi":
            raise ConfigError(
                f"order is for the composition renyi, found {composition}. Leave the order out.", setting="order"
            )
        if composition == "renyi":
            order = _default_order(epsilon, delta) if order is None else _known_order(order)
        made = cls(float(epsilon), float(delta), composition, order)  # type: ignore[arg-type]  # one of `known`
        if made.limit.amount <= 0:
            at = "" if order is None else f" at the order {order:g}"
            raise ConfigError(
                f"Nothing fits into epsilon {epsilon:g} at delta {delta:g}{at}. Raise either.", setting="epsilon"
            )
        return made

    @functools.cached_property
    def limit(self) -> Cost:
        """The largest sum of costs that keeps (epsilon, delta), rounded down.

        Formal guarantee: releases whose plans were chosen after seeing the earlier ones, with costs by `cost` whose sum
        is at most this in both parts whatever was seen, are together (epsilon, delta)-differentially private.
        """
        if self.composition == "basic":
            down = decimal.ROUND_FLOOR
            return Cost(_decimal(self.epsilon, AMOUNT_DIGITS, down), _decimal(self.delta, DELTA_DIGITS, down))
        half = self.delta / 2
        if self.composition == "renyi":
            assert self.order is not None
            amount = divergence_limit(self.epsilon, half, self.order)
        else:
            amount = max(divergence_limit(self.epsilon, half, order) / order for order in ORDERS)
        # One unit less: the logarithms are correct to about 1e-15, far below a unit.
        return Cost(_floor(amount, AMOUNT_DIGITS) - 1, _floor(half, DELTA_DIGITS))

    def cost(self, queries: Sequence[Query], guarantee: Guarantee) -> Cost:
        """The cost of a run with these queries under this guarantee, rounded up. No run costs nothing.

        Queries on different partitions of the units compose in parallel: the most expensive partition counts. With
        basic composition a run costs its whole guarantee, whatever it charged: what it charged depends on its answers.
        """
        assert guarantee.is_private
        if self.composition == "basic":
            return Cost(_decimal(guarantee.epsilon, AMOUNT_DIGITS), _decimal(guarantee.fixed_delta, DELTA_DIGITS))
        total = Cost(1, 0)
        for part in partitions(queries):
            total = total.maximum(sum((self._cost_of(query) for query in part), Cost()))
        return total

    def spent_epsilon(self, total: Cost) -> float:
        """The epsilon of a filter with this sum as its limit, at the same delta: for people.

        It is no guarantee at a moment that was chosen after seeing releases, which would take a privacy odometer. Only
        the limit of the filter is one.
        """
        if total.amount == 0:
            return 0.0
        amount: float = total.amount / 10**AMOUNT_DIGITS
        if self.composition == "basic":
            return amount
        orders = ORDERS if self.order is None else (self.order,)
        by_rho = self.composition == "zcdp"
        return min(
            max(
                0.0,
                amount * (order if by_rho else 1)
                + self.epsilon
                - divergence_limit(self.epsilon, self.delta / 2, order),
            )
            for order in orders
        )

    def _cost_of(self, query: Query) -> Cost:
        amount = self._amount_of(query.event)
        if not math.isfinite(amount):
            raise ConfigError(
                f"'{query.what}' has no Renyi divergence at the order {self.order:g} of this budget book, so its cost "
                "cannot be counted. Use another method, or a book with a smaller --order.",
                setting="order",
            )
        return Cost(max(1, _ceil(amount, AMOUNT_DIGITS)), _ceil(query.delta + query.event.tail_delta, DELTA_DIGITS))

    def _amount_of(self, event: Event) -> float:
        if self.composition == "renyi":
            assert self.order is not None
            return float(renyi_curve(event)[ORDERS.index(self.order)])
        if not isinstance(event, Concentrated | ZCDP):
            raise ConfigError(
                f"This budget book adds up zCDP, which {type(event).__name__} does not have. Use a method that "
                "measures counts, such as mst, or a book with --composition renyi.",
                setting="composition",
            )
        return event.rho


def divergence_limit(epsilon: float, delta: float, order: float) -> float:
    """The largest Renyi divergence of this order that implies (epsilon, delta)-differential privacy.

    Canonne, Kamath and Steinke 2020, "The discrete Gaussian for differential privacy", proposition 12: a divergence r
    of order a gives epsilon = r + log(1 - 1/a) - (log(delta) + log(a)) / (a - 1).

    >>> round(divergence_limit(3.0, 5e-6, 7.9), 4)
    1.6659
    """
    return epsilon - math.log1p(-1 / order) + (math.log(delta) + math.log(order)) / (order - 1)


def _default_order(epsilon: float, delta: float) -> float:
    """Among the orders at which every mechanism has a divergence."""
    return max(map(float, SUBSAMPLED_ORDERS), key=lambda order: divergence_limit(epsilon, delta / 2, order) / order)


def _known_order(order: float) -> float:
    if isinstance(order, bool) or not isinstance(order, int | float) or not math.isfinite(order):
        raise ConfigError(f"order must be a number above 1, found {order!r}.", setting="order")
    nearest = min(map(float, SUBSAMPLED_ORDERS), key=lambda known: abs(known - order))
    if not math.isclose(nearest, order, rel_tol=1e-9):
        raise ConfigError(
            f"order must be one that the accountant computes, found {order:g}. The nearest is {nearest:g}; leave it "
            "out for the one that suits Gaussian noise best.",
            setting="order",
        )
    return nearest


def _decimal(value: float, digits: int, rounding: str = decimal.ROUND_CEILING) -> int:
    """Whole units of a figure that a person wrote: ten times 0.1 is 1, though not in floating point."""
    return int(decimal.Decimal(repr(float(value))).scaleb(digits).to_integral_value(rounding))


def _ceil(value: float, digits: int) -> int:
    return math.ceil(fractions.Fraction(value) * int(10**digits))


def _floor(value: float, digits: int) -> int:
    return math.floor(fractions.Fraction(value) * int(10**digits))
