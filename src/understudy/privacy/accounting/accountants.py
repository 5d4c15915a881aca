"""Compose events to epsilon, by privacy-loss distribution and by Renyi divergence, and calibrate noise.

Everything here is host arithmetic on public numbers; no data passes through this file. Both accountants bound the same
run under add-or-remove of one protected unit, so the smaller figure holds. An accountant that cannot hold one of the
run's events has no figure for that run.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from dp_accounting import rdp
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import special

from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting.events import ORDERS, ZCDP, Event, SubsampledGaussian

MIN_NOISE = 1e-6  # where a search stops that meets no resistance: the events cost nothing
NO_NOISE = 1e-3
"""Standard deviation of runs that are not private: the discrete Gaussian of this scale is zero."""

MAX_STEPS = 1_000_000
"""A search for a number of steps that a budget covers ends here: such a training would take days."""
MAX_MOMENT = 256
"""The largest order of the moments accountant."""

MAX_LOSSES = 30_000_000
"""The most points of one privacy-loss distribution: seconds, and 2 GB of memory. A run that would need more, such as
one with noise so large that the grid of losses is too coarse for it, gets only the Renyi figure."""
MAX_ALL_LOSSES = 100_000_000
"""The most points of all distributions of a run, and of their compositions: less than a minute."""

MIN_FLOATING_DELTA = 1e-12
"""A smaller delta is refused where noise is floating-point. What the finite range of the noise adds to delta is
subtracted in any case, but below this figure that bound, not the privacy of the run, would determine the noise."""


def tail_delta(events: Sequence[Event]) -> float:
    """What the finite range of floating-point noise adds to the delta of a run: one term for each event.

    If the hockey-stick divergence of one part of a composition grows by eta at every epsilon, that of the whole grows
    by at most eta, so the terms add up.

    >>> from understudy.privacy.accounting.events import SubsampledGaussian
    >>> f"{tail_delta([SubsampledGaussian(1 / 32, 1.0, 1000)]):.0e}"
    '6e-13'
    """
    return sum(event.tail_delta for event in events)


def check_tails(events: Sequence[Event], delta: float) -> None:
    """Refuses a delta that floating-point noise cannot honour."""
    if delta < MIN_FLOATING_DELTA and tail_delta(events) > 0:
        raise ConfigError(
            f"delta {delta:g} is below {MIN_FLOATING_DELTA:g}, the smallest that floating-point noise (of training "
            f"steps and objective perturbation) supports. Use {MIN_FLOATING_DELTA:g} or more, or a method that "
            "measures counts only, such as mst.",
            setting="delta",
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


@functools.lru_cache(maxsize=256)
def has_losses(events: tuple[Event, ...], grid: float) -> bool:
    """Whether the privacy-loss distributions of these events, one by one and composed, are small enough to compute.

    Whoever recomputes a certificate gets the same answer. If it is true of a run, it is true of any part of it.
    """
    sizes = {event: event.num_losses(grid) for event in events}
    largest = max(sizes.values(), default=0.0)
    joint = 17 * math.sqrt(math.fsum(event.loss_variance for event in events)) / grid + largest / 8
    total = math.fsum(sizes.values()) + (len(events) - 1) * joint
    return max(largest, joint if len(events) > 1 else 0.0) <= MAX_LOSSES and total <= MAX_ALL_LOSSES


def composed_pld(events: tuple[Event, ...], grid: float) -> pld.PrivacyLossDistribution | None:
    """The joint privacy-loss distribution, or None when one of the events has none, or it would take too long."""
    if not all(event.has_pld for event in events) or not has_losses(events, grid):
        return None  # before the slow compositions are made
    joint = None
    for end in range(1, len(events) + 1):  # from the first: no deep recursion
        joint = _composed(events[:end], grid)
    return joint


@functools.lru_cache(maxsize=64)
def _composed(events: tuple[Event, ...], grid: float) -> pld.PrivacyLossDistribution:
    """Cached: a search for the noise of the last query composes the same queries before it each time."""
    last = _pld(events[-1], grid)
    assert last is not None
    return last if len(events) == 1 else _composed(events[:-1], grid).compose(last)


@functools.lru_cache(maxsize=4096)
def renyi_curve(event: Event) -> np.ndarray:
    return event.rdp()


def grid_for(epsilon: float) -> float:
    """Step of the loss grid: 1e-5 keeps the rounding of a hundred compositions below 0.001; from epsilon 1 to 10 it
    grows in proportion, so that the rounding stays below 0.1% and a plan takes seconds."""
    return 1e-5 * min(max(epsilon, 1.0), 10.0)


def pld_epsilon(events: Sequence[Event], delta: float, grid: float = 1e-5) -> float:
    """Epsilon of the composition at delta, by privacy-loss distribution.

    >>> from understudy.privacy.accounting.events import SubsampledGaussian
    >>> round(pld_epsilon([SubsampledGaussian(0.01, 4.0, 10_000)], 1e-5), 3)
    0.947
    """
    return _pld_epsilon(tuple(events), delta, grid) if events else 0.0


@functools.lru_cache(maxsize=1024)
def _pld_epsilon(events: tuple[Event, ...], delta: float, grid: float) -> float:
    mu_squared = [event.gaussian_mu_squared for event in events if event.gaussian_mu_squared is not None]
    if len(mu_squared) == len(events):
        return gaussian_epsilon(1 / math.sqrt(sum(mu_squared)), delta)
    joint = composed_pld(events, grid)
    delta -= hidden_delta(events, delta)
    return math.inf if joint is None or delta <= 0 else float(joint.get_epsilon_for_delta(delta))


def hidden_delta(events: Sequence[Event], delta: float) -> float:
    """How much of a delta the rounding of composed privacy-loss distributions may hide; zero below a millionth of it,
    which is far less than what rounding losses up to the grid adds.

    The library composes by Fourier transforms, and each composition moves a delta by up to about 2^-53, either way
    (0.55 times that against closed forms). Here it is twice that.
    """
    hidden = 2.0**-52 * (sum(event.num_composed for event in events) + len(events))
    return hidden if hidden > 1e-6 * delta else 0.0


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Epsilon of one Gaussian query at delta, exactly (Balle and Wang 2018, theorem 8): Gaussians compose to one.

    Bisection, which ends above the root: `dp_accounting.get_epsilon_gaussian` may end below it.

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
    return _rdp_epsilon(tuple(events), delta) if events else 0.0


@functools.lru_cache(maxsize=4096)
def _rdp_epsilon(events: tuple[Event, ...], delta: float) -> float:
    total = np.sum([renyi_curve(event) for event in events], axis=0)
    return float(rdp.compute_epsilon(ORDERS, total, delta)[0])


def spent(events: Sequence[Event], delta: float, *, grid: float = 1e-5) -> Spent:
    """Both figures for one run, after subtracting from delta what the finite range of its noise adds."""
    delta -= tail_delta(events)
    if delta <= 0 and events:
        return Spent(math.inf, math.inf)
    return Spent(pld_epsilon(events, delta, grid), rdp_epsilon(events, delta))


def fits(events: Sequence[Event], epsilon: float, delta: float, *, slack: float = 0.0) -> bool:
    """Whether either accountant keeps the run within (epsilon, delta); the faster one is tried first.

    `slack` is a relative excess to ignore; it leaves the grid as it is, so that the answer is that of `calibrate`.
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

    def figure(noise: float, accountant: Callable[[Sequence[Event], float], float]) -> float:
        run = [*already, *events_of_noise(noise)]
        left = delta - tail_delta(run)
        return accountant(run, left) if left > 0 else math.inf

    by_renyi = functools.partial(figure, accountant=rdp_epsilon)
    by_losses = functools.partial(figure, accountant=functools.partial(pld_epsilon, grid=grid_for(epsilon)))

    _check_already(already, epsilon, delta)
    # The Renyi figure is fast and finds the neighbourhood; the slow one then only searches below it.
    high = _least_passing(lambda noise: by_renyi(noise) <= epsilon, 1.0, tolerance=0.02)
    if high is None:
        high = _least_passing(passes_either, 1.0, tolerance=0.02)
    if high is None:
        raise BudgetExceeded(
            f"No amount of noise fits these queries into epsilon {epsilon:g} at delta {delta:g}. Raise either."
        )
    # Where the privacy-loss distribution is the looser one there is no need to ask it again.
    renyi_alone = by_losses(high) > epsilon

    def cost(noise: float) -> float:
        return by_renyi(noise) if renyi_alone else min(by_renyi(noise), by_losses(noise))

    return _fill(cost, high, epsilon, tolerance=tolerance)


def _fill(cost: Callable[[float], float], high: float, epsilon: float, *, tolerance: float) -> float:
    """From a noise that fits down to one whose cost is within `tolerance` below epsilon.

    The cost falls almost like a power of the noise, so a secant in logarithms needs a few steps only. The search keeps
    the end that fits; a root finder such as Brent's method may return the other one.
    """
    low, at_high, slope = 0.0, cost(high), 1.0
    for _ in range(60):
        if at_high >= (1 - tolerance) * epsilon or high < MIN_NOISE:
            break
        if high < (1 + tolerance / 100) * low:
            break  # the finite range of the noise, not epsilon, ends the search: below, it uses up all of delta
        goal = (1 - tolerance / 2) * epsilon
        noise = high * (max(at_high, epsilon / 100) / goal) ** (1 / slope)
        noise = noise if noise > low else math.sqrt(low * high)
        at_noise = cost(noise)
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
        if low < MIN_NOISE:
            return high
    while high / low > 1 + tolerance:
        middle = math.sqrt(high * low)
        high, low = (middle, low) if passes(middle) else (high, middle)
    return high


def largest_rho(*, epsilon: float, delta: float, already: Sequence[Event] = (), tolerance: float = 1e-4) -> float:
    """The largest zCDP budget that fits beside `already`, by the Renyi accountant (the only one that can hold it)."""
    delta -= tail_delta(already)
    before = rdp_epsilon(already, delta) if delta > 0 else math.inf
    if before >= epsilon:
        raise BudgetExceeded(
            "By the Renyi accountant, the only one that supports a zCDP budget, earlier queries already cost epsilon "
            f"{before:.4g} of {epsilon:g}. Declare more in the schema, or use a method that does not spend "
            "adaptively, such as mst.",
            left=0.0,
        )

    def passes(noise: float) -> bool:
        return rdp_epsilon([*already, ZCDP(1 / noise)], delta) <= epsilon

    noise = _least_passing(passes, 1.0, tolerance=tolerance)
    if noise is None:
        raise BudgetExceeded(
            f"No zCDP budget fits into epsilon {epsilon:g} at delta {delta:g}. Raise epsilon or delta."
        )
    return 1 / noise


def most_steps(
    events_of_steps: Callable[[int], Sequence[Event]],
    *,
    epsilon: float,
    delta: float,
    already: Sequence[Event] = (),
    multiple: int = 1,
) -> int:
    """The largest number of steps, a multiple of `multiple`, that fits (epsilon, delta) beside `already`; 0: none does.

    `events_of_steps` must cost more as its argument grows. The answer always fits, and the next multiple does not.
    """

    def cost(count: int) -> float:
        """The smaller figure of the two accountants, or a rough one where it is below the target in any case."""
        run = [*already, *events_of_steps(count * multiple)]
        left = delta - tail_delta(run)
        if left <= 0:
            return math.inf
        by_renyi = rdp_epsilon(run, left)
        return by_renyi if by_renyi <= epsilon else min(by_renyi, pld_epsilon(run, left, grid_for(epsilon)))

    _check_already(already, epsilon, delta)
    low, high, at_low = 0, 1, 0.0
    while (at_high := cost(high)) <= epsilon:
        low, high, at_low = high, 2 * high, at_high
        if low * multiple > MAX_STEPS:
            raise ConfigError(
                f"This noise multiplier would cover more than {MAX_STEPS:,} steps within epsilon {epsilon:g}. Lower "
                "it, or raise the sampling rate.",
                setting="noise_multiplier",
            )
    for attempt in itertools.count():
        if high - low <= 1:
            return low * multiple
        middle = (low + high) // 2
        # The cost grows almost like a power of the number of steps. A line in logarithms finds the neighbourhood;
        # halves in between bound the number of attempts.
        if attempt % 3 and 0 < at_low < at_high < math.inf:
            slope = math.log(at_high / at_low) / math.log(high / low)
            middle = math.floor(low * (epsilon / at_low) ** (1 / slope))
        middle = min(max(middle, low + 1), high - 1)
        if (at_middle := cost(middle)) <= epsilon:
            low, at_low = middle, at_middle
        else:
            high, at_high = middle, at_middle
    raise AssertionError("unreachable")


def moments_epsilon(events: Sequence[SubsampledGaussian], delta: float) -> float:
    """Epsilon of gradient steps by the moments accountant, as papers state it: a weaker bound than the ledger's.

    Abadi et al., "Deep learning with differential privacy", 2016, theorem 2: (sum of log moments + log(1/delta)) /
    order, at the best whole order. For comparison with published figures alone: nothing is charged by it.

    >>> round(moments_epsilon([SubsampledGaussian(0.01, 4.0, 10_000)], 1e-5), 2)
    1.26
    """
    figures = []
    for order in range(1, MAX_MOMENT + 1):
        moment = sum(event.steps * _log_moment(event.sampling_rate, event.noise_multiplier, order) for event in events)
        figures.append((moment - math.log(delta)) / order)
    return min(figures)


@functools.lru_cache(maxsize=16 * MAX_MOMENT)
def _log_moment(sampling_rate: float, noise_multiplier: float, order: int) -> float:
    """The logarithm of E[(p / q)^(order + 1)] under q: q a normal, p its mixture with a normal that is moved by one."""
    alpha = order + 1
    k = np.arange(alpha + 1)
    binomial = special.gammaln(alpha + 1) - special.gammaln(k + 1) - special.gammaln(alpha - k + 1)
    taken = special.xlogy(k, sampling_rate) + special.xlog1py(alpha - k, -sampling_rate)
    return float(special.logsumexp(binomial + taken + k * (k - 1) / (2 * noise_multiplier**2)))


def _check_already(already: Sequence[Event], epsilon: float, delta: float) -> None:
    if not fits(already, epsilon, delta):
        raise BudgetExceeded(
            "Earlier queries have used the whole budget. Raise epsilon, or leave a larger fraction for these queries.",
            left=0.0,
        )


def check_delta(delta: float) -> None:
    """A delta outside (0, 1) is no guarantee; below 1e-30 the tails of the noise are not computed."""
    if not (isinstance(delta, int | float) and 0 < delta < 1):
        raise ConfigError(
            f"delta must lie strictly between 0 and 1, found {delta}. 1e-6 is a common choice.", setting="delta"
        )
    if delta < 1e-30:
        raise ConfigError(f"delta must be at least 1e-30, found {delta:g}. 1e-6 is a common choice.", setting="delta")
