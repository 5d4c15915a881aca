"""What a sequence of looks costs: events to epsilon, by privacy-loss distribution and by Renyi divergence.

Everything here is host arithmetic on public numbers; no data passes through this file. Both accountants bound the same
run under add-or-remove of one protected unit, so the smaller figure holds. An accountant that cannot hold one of the
run's events has no figure for that run.
"""

import contextlib
import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Iterator, Sequence

import dp_accounting
import numpy as np
from dp_accounting import rdp
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import special, stats

from understudy.errors import BudgetExceeded, ConfigError

# The default orders leave wide gaps above 64 and end at 1024; a run with a small rho has its best order there, or
# beyond (it grows like 1 / sqrt(rho)).
# The library's series for subsampled Gaussians does not converge there: those events are infinite at such orders.
SUBSAMPLED_ORDERS = tuple(rdp.RdpAccountant()._orders)
ORDERS = SUBSAMPLED_ORDERS + tuple(np.geomspace(65, 1e6, 300))
LEAST_NOISE = 1e-6  # where a search stops that meets no resistance: the events cost nothing
NO_NOISE = 1e-3
"""Standard deviation of runs that are not private: the discrete Gaussian of this scale is zero."""

LEAST_FLOATING_DELTA = 1e-12
"""A smaller delta is refused where noise is floating-point. What the finite range of the noise adds to delta is
subtracted in any case, but below this figure that bound, not the privacy of the run, would determine the noise."""
NORMAL_END = 9.0  # standard deviations that every sampler of normals reaches (64 bits: 9.08)
MOST_COORDINATES = 2**26
"""The most coordinates of one noise vector, as in `device_noise`, which refuses more."""


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _check_event(event: object, sound: bool) -> None:
    """An event with a negative price would lower the sum of all others."""
    if not sound:
        raise ConfigError(f"{event} has no price: expected positive noise and at least one repetition.")


def normal_escape(shift: float, *, end: float = NORMAL_END, coordinates: int = MOST_COORDINATES) -> float:
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


@dataclasses.dataclass(frozen=True)
class DiscreteGaussian:
    """`count` vectors of integers, each cell with discrete Gaussian noise; a unit moves each vector by `sensitivity`.

    A unit with several rows may spread them over cells in many ways, and no single pair of distributions is known to
    dominate them all, so `sensitivity` above one is left to the Renyi side, where the L2 norm is all that counts.
    """

    stddev: float
    count: int = 1
    sensitivity: int = 1

    def __post_init__(self) -> None:
        _check_event(self, self.stddev > 0 and self.count >= 1 and self.sensitivity >= 1)

    def pld(self, grid: float) -> pld.PrivacyLossDistribution | None:
        if self.sensitivity != 1:
            return None
        one = pld.from_discrete_gaussian_mechanism(self.stddev, value_discretization_interval=grid)
        return one.self_compose(self.count) if self.count > 1 else one

    @property
    def rho(self) -> float:
        # The discrete Gaussian satisfies the Renyi curve of the continuous one (Canonne, Kamath and Steinke 2020).
        return self.count * self.sensitivity**2 / (2 * self.stddev**2)


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """`count` looks of L2 sensitivity one with continuous Gaussian noise of this standard deviation."""

    noise_multiplier: float
    count: int = 1
    floating: bool = False
    """True: the noise is a vector of floating-point normals; else integers on a fine grid, from an exact sampler."""

    def __post_init__(self) -> None:
        _check_event(self, self.noise_multiplier > 0 and self.count >= 1)

    def pld(self, grid: float) -> pld.PrivacyLossDistribution:
        return pld.from_gaussian_mechanism(
            self.noise_multiplier / math.sqrt(self.count), value_discretization_interval=grid
        )

    @property
    def rho(self) -> float:
        return self.count / (2 * self.noise_multiplier**2)

    @property
    def tail_delta(self) -> float:
        return self.count * normal_escape(1 / self.noise_multiplier) if self.floating else 0.0


@dataclasses.dataclass(frozen=True)
class SubsampledGaussian:
    """`steps` Gaussian sums over Poisson draws in which each unit enters with probability `rate`."""

    rate: float
    noise_multiplier: float
    steps: int

    def __post_init__(self) -> None:
        _check_event(self, 0 < self.rate <= 1 and self.noise_multiplier > 0 and self.steps >= 1)

    def pld(self, grid: float) -> pld.PrivacyLossDistribution:
        one = pld.from_gaussian_mechanism(
            self.noise_multiplier, sampling_prob=self.rate, value_discretization_interval=grid
        )
        return one.self_compose(self.steps)

    floating = True

    @property
    def tail_delta(self) -> float:
        """What the finite range of the noise adds to delta: a bound on what the divergence of each step grows by.

        The divergence is the hockey-stick one, at any epsilon. P is the distribution of a step with the unit, Q without
        it, q the sampling rate. From P to Q: with probability q the unit is in the batch, and then P leaves the range
        of Q with the probability of `normal_escape`. From Q to P: outside the range of a batch with the unit, P is
        still (1 - q) Q, so nothing is added at epsilon above -log(1 - q), and below it at most e^epsilon q times the
        mass that such a batch would have had there: q / (1 - q) times an escape, or for q near one the escape of Q.
        """
        return self.steps * min(1.0, 2 * self.rate) * normal_escape(1 / self.noise_multiplier)

    def renyi_curve(self) -> np.ndarray:
        accountant = rdp.RdpAccountant(SUBSAMPLED_ORDERS)
        step = dp_accounting.PoissonSampledDpEvent(self.rate, dp_accounting.GaussianDpEvent(self.noise_multiplier))
        with _without_warnings():  # orders whose series does not converge are infinite: said for each, harmless
            accountant.compose(step, self.steps)
        return np.concatenate([accountant._rdp, np.full(len(ORDERS) - len(SUBSAMPLED_ORDERS), np.inf)])


@dataclasses.dataclass(frozen=True)
class Choices:
    """`rounds` picks by the exponential mechanism, each `epsilon`-DP and of bounded range `epsilon`."""

    epsilon: float
    rounds: int = 1

    def __post_init__(self) -> None:
        _check_event(self, self.epsilon > 0 and self.rounds >= 1)

    def pld(self, grid: float) -> pld.PrivacyLossDistribution:
        # Any pure mechanism is dominated by randomized response; the losses of all rounds are one binomial, which
        # avoids rounding each round up to the grid (with 400 rounds of 2.25e-4 that alone would double the cost).
        successes = np.arange(self.rounds + 1)
        keep = 1 / (1 + math.exp(-self.epsilon))
        high = stats.binom.logpmf(successes, self.rounds, keep)
        low = stats.binom.logpmf(successes, self.rounds, 1 - keep)
        return pld.from_two_probability_mass_functions(
            dict(enumerate(low)), dict(enumerate(high)), value_discretization_interval=grid
        )

    @property
    def rho(self) -> float:
        # Bounded range gives zCDP of epsilon^2 / 8 (Cesar and Rogers 2021), a quarter of the pure bound.
        return self.rounds * self.epsilon**2 / 8


@dataclasses.dataclass(frozen=True)
class Pure:
    """`rounds` answers of any kind, each `epsilon`-DP; nothing else is known of their losses."""

    epsilon: float
    rounds: int = 1

    def __post_init__(self) -> None:
        _check_event(self, self.epsilon > 0 and self.rounds >= 1)

    def pld(self, grid: float) -> pld.PrivacyLossDistribution:
        return Choices(self.epsilon, self.rounds).pld(grid)  # randomized response dominates both

    floating = True

    @property
    def tail_delta(self) -> float:
        """What the finite range of the noise adds to delta: its numbers are logarithms of uniforms of at least 63 bits.

        There are up to 2^15 numbers, each of which meets its end with probability 2^-63, so the noise is within 2^-48
        in total variation of noise of infinite range. A round is then (epsilon, (1 + e^epsilon) 2^-48)-DP.
        """
        return min(1.0, self.rounds * (1 + math.exp(min(self.epsilon, 100.0))) * 2.0**-48)

    @property
    def rho(self) -> float:
        # Bun and Steinke 2016, proposition 1.4. A quarter of it, as for choices, needs a bounded range.
        return self.rounds * self.epsilon**2 / 2


@dataclasses.dataclass(frozen=True)
class ZCDP:
    """A lump of zero-concentrated DP, spent inside under a filter. Renyi side only."""

    rho: float

    def __post_init__(self) -> None:
        _check_event(self, self.rho > 0)

    def pld(self, grid: float) -> None:
        return None


@dataclasses.dataclass(frozen=True)
class NonPrivate:
    """Rows as they are, or anything else without a bound: its price is infinite, whatever stands beside it."""

    def pld(self, grid: float) -> None:
        return None

    @property
    def rho(self) -> float:
        return math.inf


Event = DiscreteGaussian | Gaussian | SubsampledGaussian | Choices | Pure | ZCDP | NonPrivate


def is_floating(event: Event) -> bool:
    """Whether its noise is floating-point, and so has a finite range."""
    return getattr(event, "floating", False)


def tail_delta(events: Sequence[Event]) -> float:
    """What the finite range of floating-point noise adds to the delta of a run: one term for each event.

    If the hockey-stick divergence of one part of a composition grows by eta at every epsilon, that of the whole grows
    by at most eta, so the terms add up.

    >>> f"{tail_delta([SubsampledGaussian(1 / 32, 1.0, 1000)]):.0e}"
    '6e-13'
    """
    return sum(event.tail_delta for event in events if isinstance(event, Gaussian | SubsampledGaussian | Pure))


def check_tails(events: Sequence[Event], delta: float) -> None:
    """Refuses a delta that floating-point noise cannot honour."""
    if delta < LEAST_FLOATING_DELTA and any(is_floating(event) for event in events):
        raise ConfigError(
            f"delta {delta:g} is below {LEAST_FLOATING_DELTA:g}, the smallest that the floating-point noise of "
            f"training steps and votes can honour. Use {LEAST_FLOATING_DELTA:g} or more, or a method that only counts, "
            "such as mst."
        )


@dataclasses.dataclass(frozen=True)
class Spent:
    """Epsilon of a run at one delta, by both accountants; infinite where one has no figure."""

    pld: float
    rdp: float

    @property
    def epsilon(self) -> float:
        return min(self.pld, self.rdp)

    @property
    def accountant(self) -> str:
        return "privacy-loss distribution" if self.pld <= self.rdp else "Renyi (zCDP)"


@functools.lru_cache(maxsize=256)
def _pld(event: Event, grid: float) -> pld.PrivacyLossDistribution | None:
    return event.pld(grid)


@functools.lru_cache(maxsize=64)
def _composed_pld(events: tuple[Event, ...], grid: float) -> pld.PrivacyLossDistribution | None:
    """The joint privacy-loss distribution, or None when one of the events has none."""
    for event in events:
        # Events without a figure are found before the dear compositions are made.
        if isinstance(event, ZCDP | NonPrivate) or (isinstance(event, DiscreteGaussian) and event.sensitivity != 1):
            return None
    last = _pld(events[-1], grid)
    if len(events) == 1:
        return last
    before = _composed_pld(events[:-1], grid)  # kept: a search for noise composes the same queries before it each time
    return None if before is None or last is None else before.compose(last)


@functools.lru_cache(maxsize=4096)
def _renyi_curve(event: Event) -> np.ndarray:
    return event.renyi_curve() if isinstance(event, SubsampledGaussian) else event.rho * np.asarray(ORDERS)


def grid_for(epsilon: float) -> float:
    """Step of the loss grid: 1e-5 keeps the rounding of a hundred compositions below 0.001; from epsilon 1 to 10 it
    grows in proportion, so that the rounding stays below 0.1 % and a plan takes seconds."""
    return 1e-5 * min(max(epsilon, 1.0), 10.0)


def pld_epsilon(events: Sequence[Event], delta: float, grid: float = 1e-5) -> float:
    """Epsilon of the composition at delta, by privacy-loss distribution.

    >>> round(pld_epsilon([SubsampledGaussian(0.01, 4.0, 10_000)], 1e-5), 3)
    0.947
    """
    return _pld_epsilon(tuple(events), delta, grid) if events else 0.0


@functools.lru_cache(maxsize=1024)
def _pld_epsilon(events: tuple[Event, ...], delta: float, grid: float) -> float:
    gaussian = [event for event in events if isinstance(event, Gaussian)]
    if len(gaussian) == len(events):
        return gaussian_epsilon(1 / math.sqrt(sum(2 * event.rho for event in gaussian)), delta)
    joint = _composed_pld(events, grid)
    return math.inf if joint is None else float(joint.get_epsilon_for_delta(delta))


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Epsilon of one Gaussian query at delta, exactly (Balle and Wang 2018, theorem 8): Gaussians compose to one.

    >>> round(gaussian_epsilon(3.73, 1e-5), 4)
    1.0002
    """

    def excess(epsilon: float) -> float:
        middle, reach = 1 / (2 * noise_multiplier), epsilon * noise_multiplier
        first, second = special.log_ndtr(middle - reach), epsilon + special.log_ndtr(-middle - reach)
        return first + math.log(-math.expm1(second - first)) - math.log(delta) if second < first else -math.inf

    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, 1.0
    while excess(high) > 0:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def rdp_epsilon(events: Sequence[Event], delta: float) -> float:
    """Epsilon of the composition at delta, by Renyi divergence.

    >>> round(rdp_epsilon([ZCDP(0.5)], 1e-6), 2)
    5.22
    """
    if not events:
        return 0.0
    total = np.sum([_renyi_curve(event) for event in events], axis=0)
    return float(rdp.compute_epsilon(ORDERS, total, delta)[0])


def spent(events: Sequence[Event], delta: float, *, grid: float = 1e-5) -> Spent:
    """Both figures for one run, after subtracting from delta what the finite range of its noise adds."""
    delta -= tail_delta(events)
    if delta <= 0 and events:
        return Spent(math.inf, math.inf)
    return Spent(pld_epsilon(events, delta, grid), rdp_epsilon(events, delta))


def fits(events: Sequence[Event], epsilon: float, delta: float, *, slack: float = 0.0) -> bool:
    """Whether either accountant keeps the run within (epsilon, delta); the cheaper one is asked first.

    `slack` is a relative excess to overlook; it leaves the grid as it is, so that the answer is that of `calibrate`.
    """
    if not events:
        return True
    delta -= tail_delta(events)
    if delta <= 0:
        return False
    most = epsilon * (1 + slack)
    return rdp_epsilon(events, delta) <= most or pld_epsilon(events, delta, grid_for(epsilon)) <= most


def calibrate(
    events_of_noise: Callable[[float], Sequence[Event]],
    *,
    epsilon: float,
    delta: float,
    already: Sequence[Event] = (),
    tolerance: float = 1e-3,
) -> float:
    """The least noise for which `already` plus the new events still fit (epsilon, delta), to `tolerance` of epsilon.

    `events_of_noise` must cost less as its argument grows. The answer always fits: the search keeps the passing end.
    """

    def passes_either(noise: float) -> bool:
        return fits([*already, *events_of_noise(noise)], epsilon, delta)

    def by_renyi(noise: float) -> float:
        run = [*already, *events_of_noise(noise)]
        left = delta - tail_delta(run)
        return rdp_epsilon(run, left) if left > 0 else math.inf

    def by_losses(noise: float) -> float:
        run = [*already, *events_of_noise(noise)]
        left = delta - tail_delta(run)
        return pld_epsilon(run, left, grid_for(epsilon)) if left > 0 else math.inf

    if not fits(already, epsilon, delta):
        raise BudgetExceeded("The budget is already spent. Raise epsilon, or leave more of it to this part.")
    # The Renyi figure is cheap and finds the neighbourhood; the dear one then only searches below it.
    high = _least_passing(lambda noise: by_renyi(noise) <= epsilon, 1.0, tolerance=0.02)
    if high is None:
        high = _least_passing(passes_either, 1.0, tolerance=0.02)
    if high is None:
        raise BudgetExceeded(
            f"No amount of noise fits this part into epsilon {epsilon:g} at delta {delta:g}. Raise epsilon or delta."
        )
    # Where the privacy-loss distribution is the looser one there is no need to ask it again.
    renyi_alone = by_losses(high) > epsilon

    def price(noise: float) -> float:
        return by_renyi(noise) if renyi_alone else min(by_renyi(noise), by_losses(noise))

    return _fill(price, high, epsilon, tolerance=tolerance)


def _fill(price: Callable[[float], float], high: float, epsilon: float, *, tolerance: float) -> float:
    """From a noise that fits down to one whose price is within `tolerance` below epsilon.

    Prices fall almost like a power of the noise, so a secant in logarithms needs a few steps only.
    """
    low, at_high, slope = 0.0, price(high), 1.0
    for _ in range(60):
        if at_high >= (1 - tolerance) * epsilon or high < LEAST_NOISE:
            break
        if high < (1 + tolerance / 100) * low:
            break  # the finite range of the noise, not epsilon, ends the search: below, it uses up all of delta
        goal = (1 - tolerance / 2) * epsilon
        noise = high * (max(at_high, epsilon / 100) / goal) ** (1 / slope)
        noise = noise if noise > low else math.sqrt(low * high)
        at_noise = price(noise)
        if 0 < at_high < at_noise < math.inf:
            slope = min(max(math.log(at_noise / at_high) / math.log(high / noise), 0.02), 4.0)
        if at_noise <= epsilon:
            high, at_high = noise, at_noise
        else:
            low = noise
    return high


def _least_passing(passes: Callable[[float], bool], start: float, *, tolerance: float) -> float | None:
    """Bisection in the logarithm between the first failing and the first passing power of two."""
    high = start
    while not passes(high):
        high *= 2
        if high > 1e9:
            return None
    low = high / 2
    while passes(low):
        high, low = low, low / 2
        if low < LEAST_NOISE:
            return high
    while high / low > 1 + tolerance:
        middle = math.sqrt(high * low)
        high, low = (middle, low) if passes(middle) else (high, middle)
    return high


def largest_rho(*, epsilon: float, delta: float, already: Sequence[Event] = (), tolerance: float = 1e-4) -> float:
    """The largest zCDP lump that still fits beside `already`, by the Renyi accountant (the only one that holds it)."""
    delta -= tail_delta(already)
    before = rdp_epsilon(already, delta) if delta > 0 else math.inf
    if before >= epsilon:
        raise BudgetExceeded(
            f"By the Renyi accountant, the only one that holds a zCDP lump, the queries before it cost epsilon "
            f"{before:.4g} of {epsilon:g}. Declare more in the schema, or use a method with fixed prices, such as mst."
        )

    def passes(noise: float) -> bool:
        return rdp_epsilon([*already, ZCDP(1 / noise)], delta) <= epsilon

    noise = _least_passing(passes, 1.0, tolerance=tolerance)
    if noise is None:
        raise BudgetExceeded(f"No zCDP lump fits into epsilon {epsilon:g} at delta {delta:g}. Raise epsilon or delta.")
    return 1 / noise


def check_delta(delta: float) -> None:
    """A delta outside (0, 1) is no guarantee; below 1e-30 the tails of the noise are not computed."""
    if not (isinstance(delta, int | float) and 0 < delta < 1):
        raise ConfigError(f"delta must lie strictly between 0 and 1, found {delta}. 1e-6 is a common choice.")
    if delta < 1e-30:
        raise ConfigError(f"delta must be at least 1e-30, found {delta:g}. 1e-6 is a common choice.")
