"""Privacy-loss distributions of Gaussian noise on a grid of losses, and how many points they have."""

import math

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

SLOW_POINTS = 200
"""Points that take as long as discrete noise of standard deviation 1: 24 outcomes, in a Python loop."""


def normal_losses(noise_multiplier: float, grid: float, sampling_rate: float = 1.0) -> float:
    """The number of grid points from the loss at ten standard deviations below to that at ten above."""
    end = 10 / noise_multiplier + 1 / (2 * noise_multiplier**2)
    absent = math.log1p(-sampling_rate) if sampling_rate < 1 else -math.inf
    ends = np.logaddexp(absent, math.log(sampling_rate) + np.array([-end, end]))
    return float(ends[1] - ends[0]) / grid


def composed_losses(losses: float, times: int, variance: float, grid: float) -> float:
    """The number of points of a distribution composed `times` times, to a loss of this variance: those between the
    library's Chernoff bounds for all but 1e-15 of the mass, whose orders are multiples of 1 / losses up to 20."""
    losses, spread = max(losses, 2.0), variance / grid**2 + times  # which rounding to the grid adds
    order = min(max(math.sqrt(70 / spread) * losses, 1.0), 20.0)
    return min(times * losses, spread * order / losses + 70 * losses / order)


def self_composed(one: pld.PrivacyLossDistribution, times: int) -> pld.PrivacyLossDistribution:
    """As `one.self_compose`, which takes minutes for sparse distributions: it computes `size**times` as an integer."""
    if times > 10:  # all sparse ones of two points or more become dense
        sides = (one._pmf_remove,) if one._symmetric else (one._pmf_remove, one._pmf_add)
        one = pld.PrivacyLossDistribution(*(side.to_dense_pmf() for side in sides))
    return one.self_compose(times)


def subsampled_gaussian(sampling_rate: float, noise_multiplier: float, grid: float) -> pld.PrivacyLossDistribution:
    """One step, bit for bit as `pld.from_gaussian_mechanism` has it, which inverts the loss at one point at a time."""
    sides = (AdjacencyType.REMOVE,) if sampling_rate == 1 else (AdjacencyType.REMOVE, AdjacencyType.ADD)
    return pld.PrivacyLossDistribution(
        *(_subsampled_losses(sampling_rate, noise_multiplier, side, grid) for side in sides)
    )


def _subsampled_losses(
    sampling_rate: float, noise_multiplier: float, side: AdjacencyType, grid: float
) -> pld_pmf.PLDPmf:
    """Connects the dots: the hockey-stick divergences at all points of the grid determine the distribution."""
    loss = GaussianPrivacyLoss(noise_multiplier, sampling_prob=sampling_rate, adjacency_type=side)
    bounds = loss.connect_dots_bounds()
    lowest, highest = math.floor(bounds.epsilon_lower / grid), math.ceil(bounds.epsilon_upper / grid)
    epsilons = np.arange(lowest, highest + 1) * grid
    removes = side == AdjacencyType.REMOVE
    signed = epsilons if removes else -epsilons
    least = math.log1p(-sampling_rate) if sampling_rate < 1 else -math.inf
    inside = signed > least  # below it the divergence is that of any two distributions
    deltas = -np.expm1(epsilons) if removes else np.zeros(len(epsilons))
    at = _inverse_loss(signed[inside], sampling_rate) if sampling_rate < 1 else signed
    at = -0.5 - at * noise_multiplier**2 if removes else 1.0 + (-0.5 + at * noise_multiplier**2)
    deltas[inside] = loss.mu_upper_cdf(at) - np.exp(epsilons[inside] + loss.mu_lower_log_cdf(at))
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, lowest, highest, np.clip(deltas, 0, 1))


def _inverse_loss(losses: np.ndarray, sampling_rate: float) -> np.ndarray:
    """log(1 + (exp(loss) - 1) / sampling_rate): the loss of the whole table, of that of a batch."""
    shifted, least = losses + np.log(1 / sampling_rate), math.log(1 - sampling_rate)
    with np.errstate(divide="ignore", invalid="ignore"):  # at the least loss, whose inverse is minus infinity
        inverse: np.ndarray = shifted + np.log1p(-np.exp(np.log(1 / sampling_rate - 1) - shifted))
    inverse[losses == 0] = np.log(1 / sampling_rate + (1 - 1 / sampling_rate))
    inverse[np.isclose(losses, least, rtol=1e-9, atol=0.0)] = -math.inf
    return inverse
