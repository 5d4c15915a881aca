"""What a guarantee means for one unit: bounds on tests of its presence, and on posterior beliefs.

Let P be the distribution of a release made with the unit and Q that of one made without it. An accountant bounds the
whole curve delta(epsilon): P(S) <= e^epsilon Q(S) + delta(epsilon) for every set S of releases, and the same with P and
Q exchanged. `TradeOff` holds points of that curve, and every figure here follows from them.

A release inherits the curve, not the distribution of privacy losses: the curve bounds everything computed from the
noisy answers, whatever else is known about the table, whereas a loss can be exceeded more often after post-processing
than before. Host arithmetic on public numbers; no data passes through this file.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from dp_accounting import rdp
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import special

from understudy.errors import ConfigError
from understudy.privacy.accounting import accountants as accounting
from understudy.privacy.accounting.accountants import Spent
from understudy.privacy.accounting.events import ORDERS, Event
from understudy.privacy.accounting.ledger import partitions
from understudy.privacy.accounting.plan import Query
from understudy.privacy.accounting.statement import Statement

POINTS = 2000  # of the curve; with fewer, the bounds are looser but still valid
DISAGREEMENT = 0.01  # relative; more than the difference between a stated delta and that of the curve
ROUNDING = 1e-9  # relative; sums of a million floating-point numbers are more exact than this


@dataclasses.dataclass(frozen=True, eq=False)
class TradeOff:
    """Points of the curve delta(epsilon) of a run, and what they imply for one unit.

    >>> round(tradeoff(1.0, 0.0).largest_true_positive_rate(0.01), 4)
    0.0272
    >>> round(tradeoff(1.0, 0.0).largest_posterior(0.1, probability=0.01), 3)
    0.232
    """

    epsilons: np.ndarray
    """At least zero. Without points nothing is guaranteed."""
    deltas: np.ndarray

    def largest_true_positive_rate(self, false_positive_rate: float) -> float:
        """A bound on the power of any test of whether a unit is in the table, or of whether it is not.

        Formal guarantee: no test of one release that raises an alarm with at most this probability when the unit is
        absent raises one with more than the returned probability when it is present; and the same with presence and
        absence exchanged. For an alarm S and each point, P(S) <= e^epsilon Q(S) + delta, and, since the other
        direction holds for the complement of S, 1 - P(S) >= e^-epsilon (1 - delta - Q(S)). Each bound increases in
        Q(S), so the least of them at `false_positive_rate` holds for smaller rates too.
        """
        _check_probability("false_positive_rate", false_positive_rate)
        bounds = self._slopes * false_positive_rate + self._intercepts
        return _up(np.min(bounds, initial=1.0))

    def largest_loss(self, probability: float) -> float:
        """A bound on the logarithm of the factor by which a release multiplies the odds of presence, exceeded with at
        most this probability; infinite if nothing is guaranteed.

        Formal guarantee: with the unit in the table, the releases that multiply the odds of its presence by more than
        e^(returned value) have together at most this probability; without it, they have no more. The same holds for the
        odds of absence, with presence and absence exchanged. Proof: let S be the releases with P > e^t Q. Then
        Q(S) <= e^-t P(S), so each line P(S) <= slope Q(S) + intercept gives P(S) (1 - slope e^-t) <= intercept. At
        t = log(slope) - log(1 - intercept / probability), this is P(S) <= probability.
        """
        _check_probability("probability", probability)
        useful = self._intercepts < probability
        losses = np.log(self._slopes[useful]) - np.log1p(-self._intercepts[useful] / probability)
        return max(float(np.min(losses, initial=math.inf)), 0.0) * (1 + ROUNDING)

    def largest_posterior(self, prior: float, *, probability: float) -> float:
        """A bound on posterior belief after seeing the release, exceeded with at most this probability.

        Formal guarantee: someone believes with probability `prior` that a unit is in the table, and what else they
        believe about the table does not depend on it. If the unit is in the table, their belief after the release
        exceeds the returned value with at most this probability; if it is not, with no more. The same holds for the
        belief that a unit is not in the table, with presence and absence exchanged. The odds are multiplied by P / Q
        (Bayes' rule), where P and Q are averages over what else may be in the table; as each line holds for every
        such table, it holds for the averages, and `largest_loss` bounds the factor.
        """
        _check_probability("prior", prior)
        if prior in (0.0, 1.0):
            return prior
        return _up(1 / (1 + (1 - prior) / prior * math.exp(-self.largest_loss(probability))))

    @property
    def _slopes(self) -> np.ndarray:
        """Of lines that bound true-positive by false-positive rates: two for each point, one per direction."""
        return np.exp(np.concatenate([self.epsilons, -self.epsilons]))

    @property
    def _intercepts(self) -> np.ndarray:
        other_direction = np.exp(-self.epsilons) * self.deltas - np.expm1(-self.epsilons)
        return np.concatenate([self.deltas, other_direction * (1 + ROUNDING)])


def tradeoff(epsilon: float, delta: float) -> TradeOff:
    """What (epsilon, delta) alone implies; a run's whole curve, from `statement_tradeoff`, implies more.

    >>> round(tradeoff(1.0, 1e-6).largest_true_positive_rate(0.05), 4)
    0.1359
    """
    if not (epsilon >= 0 and 0 <= delta <= 1):
        raise ConfigError(f"epsilon must be at least 0 and delta from 0 to 1, found {epsilon:g} and {delta:g}.")
    known = math.isfinite(epsilon)
    return TradeOff(np.array([epsilon] * known), np.array([delta] * known, dtype=float))


@functools.lru_cache(maxsize=16)  # the three files of a certificate show the same figures
def statement_tradeoff(statement: Statement) -> TradeOff:
    """The curve of a run, by the accountant that gave the epsilon of its statement.

    Formal guarantee: at each point, delta bounds the divergence of the run in both directions, by the accountant's
    curve of all events plus the deltas of thresholded lists and of the finite range of the noise. For a run with
    partitions, it is that of the worst partition at each epsilon, since a unit is in one of them. Not covered: anyone
    who knows the seed of a seeded run. If epsilon is infinite, nothing is implied.

    Where no curve supports the stated pair, as in an altered file, only the pair itself is used: nothing here may fail,
    since a certificate is written after its run has spent its budget.

    >>> import pyarrow as pa, understudy as us
    >>> table, schema = {"a": [True, False] * 50}, {"columns": {"a": {"kind": "boolean"}}}
    >>> statement = us.fit(pa.table(table), "independent", epsilon=1, schema=schema).statement
    >>> round(statement_tradeoff(statement).largest_true_positive_rate(0.05), 2)
    0.08
    """
    if not math.isfinite(statement.epsilon):
        return tradeoff(math.inf, 1.0)
    groups = partitions(statement.queries)
    whole = Spent(statement.epsilon_pld, statement.epsilon_rdp) if len(groups) == 1 else None
    parts = [_Part.of(queries, statement, whole) for queries in groups]
    curves = [part for part in parts if part is not None]
    if len(curves) < len(parts):
        return tradeoff(statement.epsilon, statement.delta)
    reach = max(part.curve.reach(statement.delta) for part in curves)
    epsilons = np.unique([*np.linspace(0, reach, POINTS), statement.epsilon])
    deltas = np.max([part.deltas(epsilons) for part in curves], axis=0)
    at_epsilon = deltas[np.searchsorted(epsilons, statement.epsilon)]
    if at_epsilon > statement.delta * (1 + DISAGREEMENT):
        return tradeoff(statement.epsilon, statement.delta)
    return TradeOff(epsilons, np.minimum(deltas * (1 + ROUNDING), 1.0))


# ------------------------------------------------------------------------------------------------------------- curves


# Each is delta as a function of epsilon, for all events of one partition; `reach` is the largest epsilon of interest,
# where the curve is far below `delta`.


@dataclasses.dataclass(frozen=True)
class _Part:
    """A partition of a run."""

    curve: "_GaussianCurve | _LossCurve | _RenyiCurve"
    added_delta: float

    @classmethod
    def of(cls, queries: Sequence[Query], statement: Statement, spent: Spent | None) -> "_Part | None":
        """`spent`: both figures for these queries, if they are known. None: there is no curve for them."""
        events = tuple(query.event for query in queries)
        lists = sum(query.delta for query in queries)
        grid = accounting.grid_for(statement.epsilon_target)
        spent = spent or accounting.spent(events, statement.delta - lists, grid=grid)
        curve = _pld_curve(events, grid) if spent.pld <= spent.rdp else _RenyiCurve.of(events)
        if curve is None:
            return None
        added = lists + accounting.tail_delta(events)
        if isinstance(curve, _LossCurve):
            added += accounting.hidden_delta(events, statement.delta - lists)
        return cls(curve, added)

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        return self.curve.deltas(epsilons) + self.added_delta


def _pld_curve(events: tuple[Event, ...], grid: float) -> "_GaussianCurve | _LossCurve | None":
    """In closed form where all noise is Gaussian, as in `accounting.pld_epsilon`; None if it cannot hold all events."""
    mu_squared = [event.gaussian_mu_squared for event in events if event.gaussian_mu_squared is not None]
    if len(mu_squared) == len(events):
        return _GaussianCurve(math.sqrt(sum(mu_squared)))
    try:
        joint = accounting.composed_pld(events, grid)
    except MemoryError:  # in the record of a run that failed for that reason
        return None
    return None if joint is None else _LossCurve(joint)


@dataclasses.dataclass(frozen=True)
class _GaussianCurve:
    """Balle and Wang 2018, theorem 8; mu is zero for a run without queries."""

    mu: float

    def reach(self, delta: float) -> float:
        return accounting.gaussian_epsilon(1 / self.mu, 1e-6 * delta) if self.mu else 0.0

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        if not self.mu:
            return np.zeros(len(epsilons))
        first = special.log_ndtr(self.mu / 2 - epsilons / self.mu)
        second = epsilons + special.log_ndtr(-self.mu / 2 - epsilons / self.mu)
        return np.exp(first) * -np.expm1(np.minimum(second - first, 0.0))


@dataclasses.dataclass(frozen=True)
class _LossCurve:
    """Of a privacy-loss distribution, the worse direction at each epsilon."""

    joint: pld.PrivacyLossDistribution

    @property
    def _sides(self) -> list[pld_pmf.DensePLDPmf]:
        return [side.to_dense_pmf() for side in {self.joint._pmf_remove, self.joint._pmf_add}]

    def reach(self, delta: float) -> float:
        ends: list[float] = [(side._lower_loss + side.size) * side._discretization for side in self._sides]
        return max(0.0, *ends)

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        return np.max([_divergences(side, epsilons) for side in self._sides], axis=0)


def _divergences(side: pld_pmf.DensePLDPmf, epsilons: np.ndarray) -> np.ndarray:
    """The sum over all losses above epsilon of (1 - e^(epsilon - loss)) times their probability.

    The same as `get_delta_for_epsilon`, which would need a Python loop for many epsilons. Rounding errors of Fourier
    transforms may make probabilities negative; setting them to zero can only raise the result.
    """
    losses = (np.arange(side.size) + side._lower_loss) * side._discretization
    above = losses > epsilons[0]
    losses, probabilities = losses[above], np.maximum(side._probs[above], 0.0)
    upper = np.append(np.cumsum(probabilities[::-1])[::-1], 0.0)
    lower = np.append(np.cumsum((probabilities * np.exp(-losses))[::-1])[::-1], 0.0)
    first = np.searchsorted(losses, epsilons, side="right")
    return side._infinity_mass + np.maximum(upper[first] - np.exp(epsilons) * lower[first], 0.0)


@dataclasses.dataclass(frozen=True, eq=False)
class _RenyiCurve:
    """Of Renyi divergences: each order gives a bound (Canonne, Kamath and Steinke 2020, proposition 12)."""

    divergences: np.ndarray
    """At each of `ORDERS`."""

    @classmethod
    def of(cls, events: tuple[Event, ...]) -> "_RenyiCurve":
        return cls(np.sum([accounting.renyi_curve(event) for event in events], axis=0))

    def reach(self, delta: float) -> float:
        return float(rdp.compute_epsilon(ORDERS, self.divergences, 1e-6 * delta)[0])

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        known = np.isfinite(self.divergences)
        orders, divergences = np.asarray(ORDERS)[known], self.divergences[known]
        constant = (orders - 1) * (divergences + np.log1p(-1 / orders)) - np.log(orders)
        bounds = np.min(constant - np.multiply.outer(epsilons, orders - 1), axis=1)
        # At epsilon zero delta is the total variation: the inequalities of Pinsker, and of Bretagnolle and Huber.
        total_variation = min(math.sqrt(divergences.min() / 2), math.sqrt(-math.expm1(-divergences.min())))
        return np.minimum(np.exp(np.minimum(bounds, 0.0)), total_variation)


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ConfigError(f"{name} must lie between 0 and 1, found {value}.")


def _up(value: float) -> float:
    """Rounded up by more than any floating-point error."""
    return min(1.0, float(value) * (1 + ROUNDING))
