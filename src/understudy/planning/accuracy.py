"""From an accuracy to a guarantee: the smallest epsilon at which a plan expects at most a given noise.

A search over plans, which depend on public facts alone: no data is read.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Sequence

from understudy.api import make_plan
from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting.ledger import MAX_EPSILON, Guarantee
from understudy.privacy.accounting.marginal_noise import ExpectedNoise
from understudy.privacy.mechanisms.discovery import Binning
from understudy.schema import SchemaSource, as_schema
from understudy.synthesizers import AUTO, SYNTHESIZERS, Synthesizer, name_of, read_method, synthesizer_class
from understudy.synthesizers.protocol import ExpectsNoise

MIN_EPSILON = 1e-3
"""The search runs from this epsilon to the largest that a guarantee may have."""
MAX_SECANTS = 8
"""After this many guesses the search bisects its interval instead."""


def guarantee_for(
    schema: SchemaSource,
    accuracy: str,
    method: Synthesizer | str = AUTO,
    *,
    delta: float | None = None,
    rows: int | None = None,
    binning: Binning | None = None,
) -> Guarantee:
    """Find the guarantee with the smallest epsilon at which a plan expects at most this noise. Reads no data.

    Epsilon has three digits, is between 0.001 and 100, and the next smaller one is not enough. (A method that changes
    its plan with epsilon can reach the same accuracy at a much smaller epsilon too.)

    Args:
        schema: A `Schema`, a dict of its sections, or the path of its file.
        accuracy: An order of marginals and the standard deviation of the noise in a typical count, in percent of the
            declared or assumed number of rows or in rows: "2-way 1%", "1-way 0.5%", "1-way 20 rows".
        method: A synthesizer, or its expression, that knows its noise in advance.
        delta: The delta of the guarantee. Default: derived from the declared number of rows, else 1e-6.
        rows: An assumed number of rows.
        binning: How numbers are divided into bins.

    Returns:
        The guarantee.

    Raises:
        ConfigError: The accuracy cannot be read or reached, or the method does not know its noise in advance.
        SchemaError: The schema is malformed.

    >>> schema = {"table": {"rows": 1000}, "columns": {"member": {"kind": "boolean"}}}
    >>> guarantee_for(schema, "1-way 1%", "independent")
    Guarantee(epsilon=0.341, delta=None)
    """
    wanted = Accuracy.parse(accuracy)
    declared = as_schema(schema)
    limit = wanted.in_rows(rows or declared.rows)
    synthesizer = read_method(method) if isinstance(method, str) else method
    if not isinstance(synthesizer, ExpectsNoise):
        able = [name for name in SYNTHESIZERS if issubclass(synthesizer_class(name), ExpectsNoise)]
        raise ConfigError(
            f"{name_of(synthesizer)} does not know the noise of marginals in advance, so it cannot plan for an "
            f"accuracy. Give epsilon, or use one of: {', '.join([AUTO, *able])}.",
            setting="method",
        )

    def noise(epsilon: float) -> float:
        try:
            made = make_plan(declared, synthesizer, Guarantee(epsilon, delta), rows=rows, binning=binning)
        except BudgetExceeded:  # too small an epsilon for any noise
            return math.inf
        return wanted.stddev_in(made.expected)

    epsilon, reached = _smallest_epsilon(noise, limit)
    if reached <= limit:
        return Guarantee(epsilon, delta)
    called = method if isinstance(method, str) else name_of(method)
    if math.isinf(reached):
        raise ConfigError(
            f"{called} measures no {wanted.order}-way marginals of this schema. Use another order or method.",
            setting="accuracy",
        )
    figure = f"{reached:.3g} rows" if not wanted.percent else f"{reached / limit * wanted.limit:.3g}%"
    raise ConfigError(
        f'{called} does not reach "{wanted}" at any epsilon up to {MAX_EPSILON:g}: at epsilon {epsilon:g} it expects '
        f'"{wanted.order}-way {figure}". Ask for less accuracy, or drop columns.'
    )


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """An upper limit on the standard deviation of the noise in a typical cell of marginals of this order."""

    order: int
    limit: float
    percent: bool
    """Whether the limit is in percent of the declared number of rows, rather than in rows."""

    @classmethod
    def parse(cls, text: str) -> "Accuracy":
        """From "2-way 1%" or "1-way 20 rows"."""
        match = re.fullmatch(r"\s*([1-9])-way\s+(\d+\.?\d*|\.\d+)\s*(%|rows?)\s*", text)
        if match is None or float(match[2]) <= 0:
            raise ConfigError(
                f'accuracy must be an order and a noise, such as "2-way 1%" or "1-way 20 rows"; found {text!r}.',
                setting="accuracy",
            )
        return cls(int(match[1]), float(match[2]), match[3] == "%")

    def __str__(self) -> str:
        return f"{self.order}-way {self.limit:g}{'%' if self.percent else ' rows'}"

    def in_rows(self, num_rows: int | None) -> float:
        """The limit in rows, of a declared or assumed number of rows."""
        if not self.percent:
            return self.limit
        if num_rows is None:
            raise ConfigError(
                f'accuracy "{self}" is in percent of the rows, but the schema declares no number of rows. Declare it, '
                f'or give the noise in rows: "{self.order}-way 20 rows".'
            )
        return self.limit / 100 * num_rows

    def stddev_in(self, expected: Sequence[ExpectedNoise]) -> float:
        """The noise in a typical cell of this order; infinite if no marginal of this order is measured."""
        of_order = (each.stddev for each in expected if each.min_order <= self.order <= each.max_order)
        return next(of_order, math.inf)


def _smallest_epsilon(noise: Callable[[float], float], limit: float) -> tuple[float, float]:
    """The smallest epsilon of three digits with at most this noise, else the largest epsilon; and the noise there.

    Noise is nearly a power of epsilon, so a line through two points on logarithmic scales gives a good guess.
    """
    low, high = _index(MIN_EPSILON) - 1, _index(MAX_EPSILON) + 1
    at, tried = _index(1.0), dict[int, float]()
    while high - low > 1 and at not in tried:
        tried[at] = noise(_epsilon(at))
        low, high = (low, at) if tried[at] <= limit else (at, high)
        guess = _guess(tried, limit) if len(tried) <= MAX_SECANTS else None
        at = min(max((low + high) // 2 if guess is None else guess, low + 1), high - 1)
    best = min(high, _index(MAX_EPSILON))
    return _epsilon(best), tried[best]


def _guess(tried: dict[int, float], limit: float) -> int | None:
    """The index at which the noise would be at the limit, from the two points nearest to it."""
    points = sorted(
        (abs(math.log(noise / limit)), math.log(_epsilon(index)), math.log(noise / limit))
        for index, noise in tried.items()
        if math.isfinite(noise)
    )
    if not points:  # no epsilon may be enough: try the largest
        return _index(MAX_EPSILON)
    (_, x, y), *others = points
    slope = (others[0][2] - y) / (others[0][1] - x) if others else -1.0
    if not -4 <= slope <= -0.25:  # the plan is of another kind at one of the points
        return None
    return _index(math.exp(min(max(x - y / slope, math.log(MIN_EPSILON)), math.log(MAX_EPSILON))))


def _index(epsilon: float) -> int:
    """The index, among numbers of three digits, of the smallest that is at least epsilon; that of 1 is 0."""
    exponent = math.floor(math.log10(epsilon) + 1e-12)
    return 900 * exponent + math.ceil(epsilon / 10.0 ** (exponent - 2) - 1e-6) - 100


def _epsilon(index: int) -> float:
    exponent, digits = divmod(index, 900)
    return float(f"{100 + digits}e{exponent - 2}")
