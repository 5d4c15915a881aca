"""A second accountant: epsilon of a certificate from its list of queries alone, by other code than the one under test.

It imports neither dp-accounting nor the package. It works on dictionaries as they stand in certificate.json.

*Loss distributions.* The privacy loss of each event is rounded to the nearest point of a grid of step h and shifted so
that its mean stays right. The rounding errors of N independent losses are then independent, of mean zero and within a
range of h, so by Hoeffding's inequality their sum passes t = h sqrt(N log(2 / eta) / 2) with probability eta at most,
and delta(epsilon) lies between those of the rounded sum at epsilon + t and epsilon - t, give or take eta (Gopi, Lee
and Wutschitz 2021). What losses beyond the ends of the grid can do is bounded by Chernoff's inequality. So there is
a bracket for epsilon, up to the rounding of float64; and one FFT for a thousand steps.

*Renyi divergence.* The infimum over all real orders, where the first accountant has a list of them.
"""

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import optimize, special

Event = Mapping[str, Any]
"""As in certificate.json: its kind and its parameters."""

HAVE_NO_LOSSES = ("ZCDP",)
CANNOT_HAPPEN = 1e-4
"""Part of delta that the bracket may lose to improbable rounding errors and to the ends of the grid."""
FOURIER_NOISE = 1e-13
MIN_DELTA = 1e-10
"""Below it the noise of Fourier transforms is no longer small beside delta: no bracket."""


@dataclasses.dataclass(frozen=True)
class Bracket:
    """What epsilon lies between."""

    lower: float
    upper: float


# ------------------------------------------------------------------------------------------------------ certificates


@dataclasses.dataclass(frozen=True)
class Figures:
    """What a certificate claims, and of which queries."""

    queries: tuple[tuple[Event, float, str | None], ...]
    """Event, delta of its own, and partition of each."""
    delta: float
    epsilon: float
    by_losses: float
    by_renyi: float

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Figures":
        """Those of certificate.json."""
        guarantee = content["guarantee"]
        queries = tuple((query["event"], query["delta"], query["partition"]) for query in content["queries"])
        claims = (guarantee[name] for name in ("epsilon", "epsilon_pld", "epsilon_rdp"))
        return cls(queries, guarantee["delta"], *(math.inf if claim is None else claim for claim in claims))


def errors_in(figures: Figures) -> list[str]:
    """What is wrong with the figures of a certificate, a sentence each; empty: nothing."""
    queries, delta, epsilon = figures.queries, figures.delta, figures.epsilon
    by_losses, by_renyi = figures.by_losses, figures.by_renyi
    if epsilon != min(by_losses, by_renyi):
        return [f"epsilon is {epsilon}, and the smaller of both figures is {min(by_losses, by_renyi)}"]
    if epsilon == math.inf:
        return []  # no promise, so none is broken
    if not queries:
        return [] if epsilon == 0 else [f"epsilon is {epsilon}, and nothing was asked"]
    named = sorted({partition for _, _, partition in queries if partition is not None})
    partitions: list[str | None] = [*named] or [None]
    own_figures = []
    for name in partitions:
        own = [(event, taken) for event, taken, partition in queries if partition in (None, name)]
        events = [event for event, _ in own]
        left = delta - sum(taken for _, taken in own) - sum(tail_delta(event) for event in events)
        if left <= 0:
            return [f"nothing is left of delta, and epsilon is {epsilon}"]
        own_figures.append((loss_bracket(events, left), renyi_epsilon(events, left)))
    return _complaints(own_figures, epsilon, by_losses, by_renyi)


def _complaints(
    figures: Sequence[tuple[Bracket | None, float]], epsilon: float, by_losses: float, by_renyi: float
) -> list[str]:
    """The certificate shows both figures of the partition whose better one is largest."""
    wrong = []
    for bracket, renyi in figures:
        # No partition may cost more than the run: by the better of two bounds, of which a missing one is no help.
        least = min(bracket.lower, renyi) if bracket is not None else renyi if math.isinf(by_losses) else 0.0
        if epsilon < least * (1 - 1e-6) - 1e-9:
            wrong.append(f"epsilon is {epsilon:.8g}, and the second accountant finds {least:.8g} or more")
    if not any(_agrees(figure, by_losses, by_renyi) for figure in figures):
        wrong.append(f"by losses {by_losses:.8g} and by Renyi {by_renyi:.8g}; the second accountant finds {figures}")
    return wrong


def _agrees(figure: tuple[Bracket | None, float], by_losses: float, by_renyi: float) -> bool:
    """The first accountant rounds losses up to its grid, and has a list of orders: a little more is no error."""
    bracket, renyi = figure
    fits = math.isinf(by_losses) or bracket is None
    if bracket is not None and math.isfinite(by_losses):
        fits = bracket.lower * (1 - 1e-6) - 1e-9 <= by_losses <= 1.01 * bracket.upper + 0.01
    return fits and (math.isinf(by_renyi) or renyi * (1 - 1e-6) - 1e-9 <= by_renyi <= 1.1 * renyi + 0.01)


def tail_delta(event: Event) -> float:
    """What the ends of floating-point noise add to delta, as docs/privacy.md has it."""
    if event["kind"] == "Pure":
        return event["rounds"] * (1 + math.exp(min(event["epsilon"], 100))) / 2**48
    if event["kind"] == "SubsampledGaussian":
        times = event["steps"] * min(1.0, 2 * event["sampling_rate"])
    elif event["kind"] == "Gaussian" and event.get("floating", False):
        times = event["count"]
    else:
        return 0.0
    shift = 1 / event["noise_multiplier"]
    if shift >= 8:
        return 1.0
    density = math.exp(-40.5) / math.sqrt(2 * math.pi)
    alone = 0.5 * math.erfc((9 - shift) / math.sqrt(2)) - 0.5 * math.erfc(9 / math.sqrt(2))
    return times * (alone + (2**13 - 1) * density * shift)


# ------------------------------------------------------------------------------------------------- loss distributions


class _Loss(abc.ABC):
    """The loss of one event: how often it occurs, its moments, and its law on a grid."""

    @property
    def times(self) -> int:
        return 1

    @abc.abstractmethod
    def log_moment(self, power: np.ndarray) -> np.ndarray:
        """log E exp(power * loss) of one occurrence, or more."""

    @abc.abstractmethod
    def on_grid(self, step: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Points (as multiples of the step), their masses, and the mean of the loss itself."""


@dataclasses.dataclass(frozen=True)
class _Normal(_Loss):
    """Of any number of Gaussians together: normal, with a variance of twice its mean."""

    variance: float

    def log_moment(self, power: np.ndarray) -> np.ndarray:
        return power * (power + 1) * self.variance / 2

    def on_grid(self, step: float) -> tuple[np.ndarray, np.ndarray, float]:
        mean, reach = self.variance / 2, 12 * math.sqrt(self.variance)
        points = np.arange(math.floor((mean - reach) / step), math.ceil((mean + reach) / step) + 1)
        edges = ((np.append(points, points[-1] + 1) - 0.5) * step - mean) / math.sqrt(self.variance)
        return points, _between(special.ndtr, edges), mean


@dataclasses.dataclass(frozen=True)
class _DiscreteNormal(_Loss):
    """Of `count` counts with discrete Gaussian noise, each moved by one: (count + 2 * sum of noise) / (2 stddev^2)."""

    stddev: float
    count: int

    def log_moment(self, power: np.ndarray) -> np.ndarray:
        return power * (power + 1) * self.count / (2 * self.stddev**2)  # at most (Canonne, Kamath and Steinke 2020)

    def on_grid(self, step: float) -> tuple[np.ndarray, np.ndarray, float]:
        reach = math.ceil(10 * self.stddev * math.sqrt(self.count)) + 10
        noise = np.arange(-reach, reach + 1)
        single = np.exp(-(noise**2) / (2 * self.stddev**2))
        single /= single.sum()
        # The sum on a circle: its own tail beyond ten standard deviations is below 1e-21.
        spectrum = np.fft.rfft(np.fft.ifftshift(single))
        sums = np.maximum(np.fft.fftshift(np.fft.irfft(spectrum**self.count, len(noise))), 0.0)
        losses = (self.count + 2 * noise) / (2 * self.stddev**2)
        points = np.rint(losses / step).astype(np.int64)
        masses = np.bincount(points - points[0], weights=sums)
        return np.arange(points[0], points[-1] + 1), masses, self.count / (2 * self.stddev**2)


@dataclasses.dataclass(frozen=True)
class _Response(_Loss):
    """Of `rounds` randomized responses, which dominate every mechanism of this epsilon."""

    epsilon: float
    rounds: int

    def log_moment(self, power: np.ndarray) -> np.ndarray:
        high, low = self.epsilon * power, -self.epsilon * power - self.epsilon
        return self.rounds * (np.logaddexp(high, low) - math.log1p(math.exp(-self.epsilon)))

    def on_grid(self, step: float) -> tuple[np.ndarray, np.ndarray, float]:
        successes = np.arange(self.rounds + 1)
        keep = 1 / (1 + math.exp(-self.epsilon))
        log_ways = special.gammaln(self.rounds + 1) - special.gammaln(successes + 1)
        log_ways = log_ways - special.gammaln(self.rounds - successes + 1)
        # log(1 - keep) = log(keep) - epsilon
        masses = np.exp(log_ways + self.rounds * math.log(keep) - (self.rounds - successes) * self.epsilon)
        points = np.rint(self.epsilon * (2 * successes - self.rounds) / step).astype(np.int64)
        laid = np.bincount(points - points[0], weights=masses / masses.sum())
        return np.arange(points[0], points[-1] + 1), laid, self.rounds * self.epsilon * (2 * keep - 1)


@dataclasses.dataclass(frozen=True)
class _Subsampled(_Loss):
    """Of one step: log((1 - q) + q exp((2x - 1) / (2 m^2))), with the unit in the table or, negated, without it."""

    rate: float
    multiplier: float
    steps: int
    removal: bool

    @property
    def times(self) -> int:
        return self.steps

    def log_moment(self, power: np.ndarray) -> np.ndarray:
        at, masses = self._quadrature()
        return special.logsumexp(np.multiply.outer(power, self._loss(at)), b=masses, axis=1)

    def on_grid(self, step: float) -> tuple[np.ndarray, np.ndarray, float]:
        at, masses = self._quadrature()
        losses = self._loss(at)
        low, high = (math.floor(losses.min() / step) - 1, math.ceil(losses.max() / step) + 1)
        points = np.arange(low, high + 1)
        edges = (np.append(points, high + 1) - 0.5) * step
        # The loss with the unit grows with x, the negated one falls.
        inner = np.expm1(edges if self.removal else -edges) + self.rate
        with np.errstate(divide="ignore", invalid="ignore"):
            at_edge = self.multiplier**2 * np.log(inner / self.rate) + 0.5
        at_edge = np.where(inner > 0, at_edge, -np.inf)
        between = _between(self._distribution, at_edge if self.removal else at_edge[::-1])
        return points, between if self.removal else between[::-1], float(losses @ masses)

    def _loss(self, at: np.ndarray) -> np.ndarray:
        grown = np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + (2 * at - 1) / (2 * self.multiplier**2))
        return grown if self.removal else -grown

    def _distribution(self, at: np.ndarray) -> np.ndarray:
        without = special.ndtr(at / self.multiplier)
        if not self.removal:
            return without
        return (1 - self.rate) * without + self.rate * special.ndtr((at - 1) / self.multiplier)

    def _quadrature(self) -> tuple[np.ndarray, np.ndarray]:
        """Points and masses of x: sums over an even grid are exact for such integrands to the last digits."""
        at = np.linspace(-13 * self.multiplier, 13 * self.multiplier + 1, 6001)
        masses = np.exp(-((at / self.multiplier) ** 2) / 2)
        if self.removal:
            masses = (1 - self.rate) * masses + self.rate * np.exp(-(((at - 1) / self.multiplier) ** 2) / 2)
        return at, masses / masses.sum()


def _between(distribution: Callable[[np.ndarray], np.ndarray], edges: np.ndarray) -> np.ndarray:
    """Masses between ordered edges; what lies beyond them is far below any delta."""
    return np.maximum(np.diff(distribution(edges)), 0.0)


def _losses(events: Sequence[Event], removal: bool) -> list[_Loss]:
    """Losses of all events; Gaussians become one."""
    found: list[_Loss] = []
    variance = 0.0
    for event in events:
        match event["kind"]:
            case "Gaussian":
                variance += event["count"] / event["noise_multiplier"] ** 2
            case "SubsampledGaussian" if event["sampling_rate"] == 1:
                variance += event["steps"] / event["noise_multiplier"] ** 2
            case "SubsampledGaussian":
                found.append(_Subsampled(event["sampling_rate"], event["noise_multiplier"], event["steps"], removal))
            case "LaplaceCounts":
                found.append(_Response(event["epsilon"], 1))
            case "UnitHistogram" if event["stddev"] > 1e5:
                variance += 1 / event["stddev"] ** 2
            case "DiscreteGaussian" if event["stddev"] * math.sqrt(event["count"]) > 1e5:
                # Mass functions differ by a factor of 1 + k^2 / (24 stddev^2) at k standard deviations.
                variance += event["count"] / event["stddev"] ** 2
            case "DiscreteGaussian":
                found.append(_DiscreteNormal(event["stddev"], event["count"]))
            case "UnitHistogram":
                found.append(_DiscreteNormal(event["stddev"], 1))
            case "Selections" | "Pure" | "DiscreteLaplace" | "LaplaceMarginals":
                found.append(_Response(event["epsilon"], event["rounds"]))
            case unknown:
                raise ValueError(f"no loss distribution of {unknown}")
    return [*found, _Normal(variance)] if variance else found


def loss_bracket(events: Sequence[Event], delta: float) -> Bracket | None:
    """What epsilon lies between at this delta; None where an event has no loss distribution, or delta is too small."""
    if delta < MIN_DELTA:
        return None
    for event in events:
        if event["kind"] in HAVE_NO_LOSSES or (event["kind"] == "DiscreteGaussian" and event["sensitivity"] != 1):
            return None
    directions = (True, False) if any(event["kind"] == "SubsampledGaussian" for event in events) else (True,)
    found = [_bracket(_losses(events, removal), delta) for removal in directions]
    return Bracket(max(b.lower for b in found), max(b.upper for b in found))


def _bracket(losses: Sequence[_Loss], delta: float) -> Bracket:
    improbable = CANNOT_HAPPEN * delta / 3
    reach = 1.01 * _reach(losses, improbable)
    roundings = sum(loss.times for loss in losses)
    spread = math.sqrt(roundings * math.log(2 / improbable) / 2)
    # A bracket of about 0.2% of the reach, which is a few epsilon.
    size = 2 ** int(np.clip(math.ceil(math.log2(2 * spread / 5e-4)), 16, 20))
    step = 2 * reach / size
    spectrum, shift = np.ones(size // 2 + 1, dtype=complex), 0.0
    for loss in losses:
        points, masses, mean = loss.on_grid(step)
        laid = np.bincount(points % size, weights=masses, minlength=size)
        spectrum = spectrum * np.fft.rfft(laid) ** loss.times
        shift += loss.times * (mean - step * float(points @ masses))
    masses = np.maximum(np.fft.fftshift(np.fft.irfft(spectrum, size)), 0.0)
    at = step * (np.arange(size) - size // 2) + shift
    lost, off = 3 * improbable + FOURIER_NOISE, step * spread
    return Bracket(max(0.0, _epsilon_at(at, masses, delta + lost) - off), _epsilon_at(at, masses, delta - lost) + off)


def _reach(losses: Sequence[_Loss], improbable: float) -> float:
    """The sum of all losses is beyond it, on either side, with this probability at most (Chernoff)."""
    powers = np.geomspace(0.05, 2000, 60)
    up, down = (sum(loss.times * loss.log_moment(sign * powers) for loss in losses) for sign in (1, -1))
    room = math.log(2 / improbable)
    return float(max(np.nanmin((up + room) / powers), np.nanmin((down + room) / powers)))


def _epsilon_at(at: np.ndarray, masses: np.ndarray, delta: float) -> float:
    """The least epsilon with E max(0, 1 - exp(epsilon - loss)) <= delta."""
    above = np.cumsum(masses[::-1])[::-1]
    with np.errstate(over="ignore"):
        discounted = np.cumsum((masses * np.exp(-at))[::-1])[::-1]
        deltas = above - np.exp(at) * discounted  # at each point, of the points from there on
    first = int(np.argmax(deltas <= delta))  # falls with epsilon: the answer lies between this point and the last
    if not deltas[first] <= delta:
        return math.inf
    return max(0.0, math.log((above[first] - delta) / discounted[first])) if above[first] > delta else 0.0


# --------------------------------------------------------------------------------------------------- Renyi divergence


def renyi_epsilon(events: Sequence[Event], delta: float) -> float:
    """The infimum over all orders a > 1 of r(a) + log((a - 1) / a) - log(delta a) / (a - 1) (Canonne, Kamath and
    Steinke 2020, proposition 12)."""

    def figure(log_excess: float) -> float:
        order = 1 + math.exp(log_excess)
        divergence = sum(_renyi(event, order) for event in events)
        return divergence + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)

    starts = np.linspace(math.log(0.05), math.log(2e6), 60)
    figures = [figure(at) for at in starts]
    best = int(np.nanargmin(figures))
    ends = starts[max(best - 1, 0)], starts[min(best + 1, len(starts) - 1)]
    found = optimize.minimize_scalar(figure, bounds=ends, method="bounded", options={"xatol": 1e-6})
    return max(0.0, min(float(found.fun), figures[best]))


def _renyi(event: Event, order: float) -> float:
    """Divergence of this order."""
    match event["kind"]:
        case "DiscreteGaussian":
            return order * event["count"] * (event["sensitivity"] / event["stddev"]) ** 2 / 2
        case "UnitHistogram":
            return order / (2 * event["stddev"] ** 2)
        case "LaplaceCounts":
            return order * event["epsilon"] ** 2 / 2
        case "Gaussian":
            return order * event["count"] / event["noise_multiplier"] ** 2 / 2
        case "ZCDP":
            return order * event["rho"]
        case "Selections":  # bounded range (Cesar and Rogers 2021)
            return order * event["rounds"] * event["epsilon"] ** 2 / 8
        case "Pure" | "DiscreteLaplace" | "LaplaceMarginals":
            return order * event["rounds"] * event["epsilon"] ** 2 / 2
        case "SubsampledGaussian":
            return event["steps"] * _subsampled_renyi(event["sampling_rate"], event["noise_multiplier"], order)
        case _:
            return math.inf


def _subsampled_renyi(rate: float, multiplier: float, order: float) -> float:
    """log E ((1 - q) + q exp((2x - 1) / (2 m^2)))^a / (a - 1) over x without the unit, by quadrature."""
    if rate == 1:
        return order / (2 * multiplier**2)
    at = np.linspace(-13 * multiplier, 13 * multiplier + order, 4001)
    logs = -((at / multiplier) ** 2) / 2
    grown = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * at - 1) / (2 * multiplier**2))
    moment = special.logsumexp(logs + order * grown) - special.logsumexp(logs)
    return float(moment) / (order - 1)
