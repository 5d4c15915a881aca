"""Accounting events: what one query costs for either accountant, its JSON, and its description in a certificate.

An event is a frozen dataclass of public numbers; no data passes through this file. A new kind of event is a subclass of
`Event` listed in `EVENTS`: accountants, ledger, certificate and its JSON schema know nothing of the single kinds.
"""

import abc
import contextlib
import dataclasses
import functools
import logging
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, get_type_hints

import dp_accounting
import numpy as np
from dp_accounting import rdp
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import special, stats

from understudy.errors import ConfigError
from understudy.privacy.accounting.losses import (
    SLOW_POINTS,
    composed_losses,
    normal_losses,
    self_composed,
    subsampled_gaussian,
)

# The default orders leave wide gaps above 64 and end at 1024; a run with a small rho has its best order there, or
# beyond (it grows like 1 / sqrt(rho)).
# The library's series for subsampled Gaussians does not converge there: those events are infinite at such orders.
SUBSAMPLED_ORDERS = tuple(rdp.RdpAccountant()._orders)
ORDERS = SUBSAMPLED_ORDERS + tuple(np.geomspace(65, 1e6, 300)) + tuple(np.geomspace(1.2e6, 1e9, 40))

NORMAL_END = 9.0  # standard deviations that every sampler of normals reaches (64 bits: 9.08)
MAX_COORDINATES = 2**26
"""The most coordinates of one noise vector, as in `noise.device`, which refuses more."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The values that a parameter may have: one rule for the check of an event and for the JSON schema."""

    lowest: float
    highest: float
    whole: bool = False

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return self.lowest <= value <= self.highest


MAX_COUNT = 10_000_000
"""The most steps, rounds, answers or rows per unit of a query."""
Positive = Annotated[float, Range(1e-30, 1e30)]  # whose squares and reciprocals are neither zero nor infinite
Probability = Annotated[float, Range(1e-12, 1)]  # one row of a million million
Count = Annotated[int, Range(1, MAX_COUNT, whole=True)]


@dataclasses.dataclass(frozen=True)
class Event(abc.ABC):
    """The privacy cost of one query under add-or-remove of one unit."""

    def __post_init__(self) -> None:
        # A negative cost would lower the sum of all others.
        for name, allowed in _ranges(type(self)).items():
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{type(self).__name__} has no privacy cost: {name} must be a {'whole ' * allowed.whole}number "
                    f"from {allowed.lowest:,} to {allowed.highest:,}.",
                    setting=name,
                )

    @abc.abstractmethod
    def rdp(self) -> np.ndarray:
        """Renyi divergence at each of `ORDERS`."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Mechanism and amount of noise, for a certificate."""

    @property
    def has_pld(self) -> bool:
        """Whether the privacy-loss accountant can hold the event."""
        return True

    @abc.abstractmethod
    def pld(self, grid: float) -> pld.PrivacyLossDistribution | None:
        """The privacy-loss distribution, rounded up to a grid of this step; None unless `has_pld`."""

    def num_losses(self, grid: float) -> float:
        """About how many points its privacy-loss distribution is computed at, compositions with itself included, which
        is the time and memory that it takes. Points that take longer count as several."""
        return 0.0

    @property
    def num_composed(self) -> int:
        """How many equal distributions its privacy-loss distribution is composed of by Fourier transforms."""
        return 1

    @property
    def loss_variance(self) -> float:
        """A rough bound on the variance of the privacy loss: how wide compositions become."""
        return 0.0

    @property
    def pure_epsilon(self) -> float | None:
        """Epsilon at delta 0, by simple composition of its rounds; None: there is none."""
        return None

    @property
    def gaussian_mu_squared(self) -> float | None:
        """mu^2 of an event that is exactly mu-Gaussian DP: the squares add up, and epsilon has a closed form."""
        return None

    @property
    def tail_delta(self) -> float:
        """What the finite range of floating-point noise adds to delta; zero where noise is exact, and only there."""
        return 0.0

    @property
    def covered_rows(self) -> int | None:
        """Rows of one unit that the cost covers; None where the noise is already scaled to the unit."""
        return None

    def to_json(self) -> dict[str, object]:
        return {"kind": type(self).__name__, **dataclasses.asdict(self)}


@functools.cache
def _ranges(cls: type[Event]) -> dict[str, Range]:
    hints = get_type_hints(cls, include_extras=True)
    marks = {field.name: getattr(hints[field.name], "__metadata__", ()) for field in dataclasses.fields(cls)}
    return {name: mark for name, (mark, *_) in ((name, found) for name, found in marks.items() if found)}


class Concentrated(Event):
    """An event that is `rho`-zCDP: its Renyi divergence is at most linear in the order."""

    @property
    @abc.abstractmethod
    def rho(self) -> float: ...

    def rdp(self) -> np.ndarray:
        return self.rho * np.asarray(ORDERS)

    @property
    def loss_variance(self) -> float:
        return 2 * self.rho


@dataclasses.dataclass(frozen=True)
class DiscreteGaussian(Concentrated):
    """`count` vectors of counts, each cell with discrete Gaussian noise of standard deviation `stddev`. One unit moves
    each vector by at most `sensitivity` in L2 norm."""

    stddev: Positive
    count: Count = 1
    sensitivity: Count = 1

    @property
    def has_pld(self) -> bool:
        # A unit with several rows may spread them over cells in many ways, and no single pair of distributions is known
        # to dominate them all; on the Renyi side the L2 norm is all that counts.
        return self.sensitivity == 1

    @property
    def num_composed(self) -> int:
        return self.count

    def pld(self, grid: float) -> pld.PrivacyLossDistribution | None:
        if not self.has_pld:
            return None
        one = pld.from_discrete_gaussian_mechanism(self.stddev, value_discretization_interval=grid)
        return self_composed(one, self.count) if self.count > 1 else one

    def num_losses(self, grid: float) -> float:
        if not self.has_pld:
            return 0.0
        one = normal_losses(self.stddev, grid)
        return one + composed_losses(one, self.count, self.loss_variance, grid) + SLOW_POINTS * self.stddev

    @property
    def rho(self) -> float:
        # The discrete Gaussian satisfies the Renyi curve of the continuous one (Canonne, Kamath and Steinke 2020).
        return self.count * self.sensitivity**2 / (2 * self.stddev**2)

    @property
    def covered_rows(self) -> int:
        return self.sensitivity

    def describe(self) -> str:
        histograms = "" if self.count == 1 else f" of {self.count} histograms"
        rows = "" if self.sensitivity == 1 else f", scaled to {self.sensitivity} rows per unit"
        return f"discrete Gaussian noise, standard deviation {self.stddev:.4g} on every count{histograms}{rows}"


@dataclasses.dataclass(frozen=True)
class UnitHistogram(Concentrated):
    """One histogram of the units, each of which is in at most one bin, with discrete Gaussian noise of standard
    deviation `stddev` on every count. One unit moves it by at most one, whatever the number of its rows."""

    stddev: Positive

    def pld(self, grid: float) -> pld.PrivacyLossDistribution:
        return pld.from_discrete_gaussian_mechanism(self.stddev, value_discretization_interval=grid)

    def num_losses(self, grid: float) -> float:
        return normal_losses(self.stddev, grid) + SLOW_POINTS * self.stddev

    @property
    def rho(self) -> float:
        return 1 / (2 * self.stddev**2)  # as for `DiscreteGaussian`

    def describe(self) -> str:
        return f"discrete Gaussian noise, standard deviation {self.stddev:.4g} on every count of units"


@dataclasses.dataclass(frozen=True)
class Gaussian(Concentrated):
    """`count` sums with Gaussian noise, whose standard deviation is `noise_multiplier` times the L2 sensitivity.
    `floating`: whether the noise is a vector of floating-point normals, or else integers on a fine grid."""

    noise_multiplier: Positive
    count: Count = 1
    floating: bool = False

    def pld(self, grid: float) -> pld.PrivacyLossDistribution:
        return subsampled_gaussian(1.0, self.noise_multiplier / math.sqrt(self.count), grid)

    def num_losses(self, grid: float) -> float:
        return normal_losses(self.noise_multiplier / math.sqrt(self.count), grid)

    @property
    def gaussian_mu_squared(self) -> float:
        return 2 * self.rho

    @property
    def rho(self) -> float:
        return self.count / (2 * self.noise_multiplier**2)

    @property
    def tail_delta(self) -> float:
        return self.count * normal_escape(1 / self.noise_multiplier) if self.floating else 0.0

    def describe(self) -> str:
        return (
            f"Gaussian noise, noise multiplier {self.noise_multiplier:.4g}{f', {self.count} times' * (self.count > 1)}"
        )


@dataclasses.dataclass(frozen=True)
class SubsampledGaussian(Event):
    """`steps` sums over Poisson batches, in which each unit is with probability `sampling_rate`, with Gaussian noise of
    `noise_multiplier` times the L2 sensitivity: the steps of DP-SGD."""

    sampling_rate: Probability
    noise_multiplier: Positive
    steps: Count

    @property
    def num_composed(self) -> int:
        return self.steps

    def pld(self, grid: float) -> pld.PrivacyLossDistribution:
        return self_composed(subsampled_gaussian(self.sampling_rate, self.noise_multiplier, grid), self.steps)

    def num_losses(self, grid: float) -> float:
        one = normal_losses(self.noise_multiplier, grid, self.sampling_rate)
        return 2 * (one + composed_losses(one, self.steps, self.loss_variance, grid))  # the two sides differ

    @property
    def loss_variance(self) -> float:
        mu = 1 / self.noise_multiplier
        of_batch = mu + mu**2 / 2  # a rough bound on the standard deviation, whatever the sampling rate
        return self.steps * min(of_batch, self.sampling_rate * math.sqrt(math.expm1(min(mu**2, 700.0)))) ** 2

    @property
    def tail_delta(self) -> float:
        """What the finite range of the noise adds to delta: a bound on what the divergence of each step grows by.

        The divergence is the hockey-stick one, at any epsilon. P is the distribution of a step with the unit, Q without
        it, q the sampling rate. From P to Q: with probability q the unit is in the batch, and then P leaves the range
        of Q with the probability of `normal_escape`. From Q to P: outside the range of a batch with the unit, P is
        still (1 - q) Q, so nothing is added at epsilon above -log(1 - q), and below it at most e^epsilon q times the
        mass that such a batch would have had there: q / (1 - q) times an escape, or for q near one the escape of Q.
        """
        return self.steps * min(1.0, 2 * self.sampling_rate) * normal_escape(1 / self.noise_multiplier)

    def rdp(self) -> np.ndarray:
        return self.steps * _step_rdp(self.sampling_rate, self.noise_multiplier)

    def describe(self) -> str:
        return (
            f"DP-SGD: {self.steps:,} steps, sampling rate {self.sampling_rate:.4g}, noise multiplier "
            f"{self.noise_multiplier:.4g}"
        )


@dataclasses.dataclass(frozen=True)
class Rounds(Concentrated):
    """`rounds` answers, each `epsilon`-DP: randomized response dominates them, whatever else is known."""

    epsilon: Positive
    rounds: Count = 1

    @property
    def rho(self) -> float:
        return self.rounds * self.epsilon**2 / 2  # Bun and Steinke 2016, proposition 1.4: for any pure epsilon

    @property
    def pure_epsilon(self) -> float | None:
        return None if self.tail_delta else self.rounds * self.epsilon

    def num_losses(self, grid: float) -> float:
        return 20 * self.rounds + 2 * self.rounds * self.epsilon / grid

    @property
    def loss_variance(self) -> float:
        return self.rounds * self.epsilon**2

    def pld(self, grid: float) -> pld.PrivacyLossDistribution:
        """The losses of all rounds are one binomial, which avoids rounding each round up to the grid (with 400 rounds
        of 2.25e-4 that alone would double the cost)."""
        successes = np.arange(self.rounds + 1)
        keep = 1 / (1 + math.exp(-self.epsilon))
        high, low = (stats.binom.logpmf(successes, self.rounds, chance) for chance in (keep, 1 - keep))
        return pld.from_two_probability_mass_functions(
            dict(enumerate(low)), dict(enumerate(high)), value_discretization_interval=grid
        )


@dataclasses.dataclass(frozen=True)
class Selections(Rounds):
    """`rounds` selections by the exponential mechanism, each `epsilon`-DP and of bounded range `epsilon`."""

    @property
    def rho(self) -> float:
        # Bounded range gives zCDP of epsilon^2 / 8 (Cesar and Rogers 2021), a quarter of the bound for other rounds.
        return self.rounds * self.epsilon**2 / 8

    def describe(self) -> str:
        times = "1 selection" if self.rounds == 1 else f"{self.rounds} selections"
        return f"{times} by the exponential mechanism, epsilon {self.epsilon:.4g} each"


@dataclasses.dataclass(frozen=True)
class Pure(Rounds):
    """`rounds` answers of any other kind, each `epsilon`-DP; nothing else is known of their losses. Their noise is
    floating-point."""

    @property
    def tail_delta(self) -> float:
        """What the finite range of the noise adds to delta: its numbers are logarithms of uniforms of at least 63 bits.

        There are up to 2^15 numbers, each of which meets its end with probability 2^-63, so the noise is within 2^-48
        in total variation of noise of infinite range. A round is then (epsilon, (1 + e^epsilon) 2^-48)-DP.
        """
        return min(1.0, self.rounds * (1 + math.exp(min(self.epsilon, 100.0))) * 2.0**-48)

    def describe(self) -> str:
        times = "1 answer" if self.rounds == 1 else f"{self.rounds} answers"
        return f"{times}, pure epsilon {self.epsilon:.4g} each"


@dataclasses.dataclass(frozen=True)
class DiscreteLaplace(Rounds):
    """`rounds` counts, each with discrete Laplace noise of scale 1 / `epsilon`. One unit moves each count by at most
    one, so that each is `epsilon`-DP."""

    def describe(self) -> str:
        counts = "one count" if self.rounds == 1 else f"each of {self.rounds:,} counts"
        return f"discrete Laplace noise, scale {1 / self.epsilon:.4g} on {counts}"


@dataclasses.dataclass(frozen=True)
class LaplaceCounts(Concentrated):
    """A vector of counts, each with discrete Laplace noise of scale `sensitivity` / `epsilon`. One unit moves the
    vector by at most `sensitivity` in L1 norm, so that it is `epsilon`-DP."""

    epsilon: Positive
    sensitivity: Count = 1

    def pld(self, grid: float) -> pld.PrivacyLossDistribution:
        return Pure(self.epsilon).pld(grid)

    def num_losses(self, grid: float) -> float:
        return Pure(self.epsilon).num_losses(grid)

    @property
    def rho(self) -> float:
        return self.epsilon**2 / 2  # as for any pure epsilon

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    @property
    def covered_rows(self) -> int:
        return self.sensitivity  # a row moves one count by one

    def describe(self) -> str:
        return f"discrete Laplace noise, scale {self.sensitivity / self.epsilon:.4g} on every count"


@dataclasses.dataclass(frozen=True)
class LaplaceMarginals(Rounds):
    """`rounds` vectors of counts, each cell with discrete Laplace noise of scale `sensitivity` / `epsilon`. One unit
    moves each vector by at most `sensitivity` in L1 norm, so that each is `epsilon`-DP."""

    sensitivity: Count = 1

    @property
    def covered_rows(self) -> int:
        return self.sensitivity

    @property
    def stddev(self) -> float:
        """The standard deviation of the noise of a count."""
        rate = self.epsilon / self.sensitivity
        return math.sqrt(2 * math.exp(-rate)) / -math.expm1(-rate)

    def describe(self) -> str:
        vectors = "" if self.rounds == 1 else f" of {self.rounds:,} marginals"
        return f"discrete Laplace noise, scale {self.sensitivity / self.epsilon:.4g} on every count{vectors}"


@dataclasses.dataclass(frozen=True)
class ZCDP(Event):
    """A zero-concentrated DP budget of `rho`, spent adaptively under a privacy filter."""

    rho: Positive

    @property
    def has_pld(self) -> bool:
        return False

    def pld(self, grid: float) -> None:
        return None

    def rdp(self) -> np.ndarray:
        return self.rho * np.asarray(ORDERS)

    def describe(self) -> str:
        return f"zCDP budget of rho {self.rho:.4g}, spent adaptively under a privacy filter"


EVENTS: dict[str, type[Event]] = {
    cls.__name__: cls
    for cls in (
        *(DiscreteGaussian, UnitHistogram, Gaussian, SubsampledGaussian),
        *(Selections, Pure, DiscreteLaplace, LaplaceCounts, LaplaceMarginals, ZCDP),
    )
}


def event_from_json(content: Mapping[str, Any]) -> Event:
    """The reverse of `Event.to_json`."""
    arguments = dict(content)
    return EVENTS[arguments.pop("kind")](**arguments)


def normal_escape(shift: float, *, end: float = NORMAL_END, coordinates: int = MAX_COORDINATES) -> float:
    """A bound on the probability that a vector of normals, truncated at `end` and moved by `shift`, leaves its range.

    Both in standard deviations; the shift is an L2 norm. Coordinate i, moved by v_i, leaves with probability g(|v_i|),
    where g(v) = Q(end - v) - Q(end) with the normal tail Q. Let h(v) = g(v) - density(end) v. Its third derivative is
    nonnegative up to end - 1, so h(v) / v^2 increases there, and the h(v_i) sum to at most h(shift), the case of a
    single coordinate. The |v_i| sum to at most shift * sqrt(coordinates).
    """
    if shift >= end - 1:
        return 1.0
    density = math.exp(-(end**2) / 2) / math.sqrt(2 * math.pi)
    one = float(special.ndtr(shift - end) - special.ndtr(-end)) - density * shift
    return min(1.0, one + density * shift * math.sqrt(coordinates))


@functools.lru_cache(maxsize=256)
def _step_rdp(sampling_rate: float, noise_multiplier: float) -> np.ndarray:
    """Renyi divergences of one step: a search for a number of steps needs them once."""
    accountant = rdp.RdpAccountant(SUBSAMPLED_ORDERS)
    sums = dp_accounting.GaussianDpEvent(noise_multiplier)
    with _without_warnings():  # orders whose series does not converge are infinite: a harmless warning for each
        accountant.compose(dp_accounting.PoissonSampledDpEvent(sampling_rate, sums))
    return np.concatenate([accountant._rdp, np.full(len(ORDERS) - len(SUBSAMPLED_ORDERS), np.inf)])


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
