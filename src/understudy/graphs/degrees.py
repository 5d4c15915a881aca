"""Degree sequences: from noisy answers to whole degrees, and the test of whether a graph has them. Post-processing."""

import math

import numpy as np
from jaxtyping import Float, Int64
from scipy import optimize


def restore_degrees(
    noisy_degrees: Float[np.ndarray, " nodes"],
    noisy_tails: Float[np.ndarray, " degrees"],
    *,
    tails_stddev: float,
    total: int,
    max_degree: int,
) -> Int64[np.ndarray, " nodes"]:
    """Ascending whole degrees, with sum `total` and none above `max_degree`, from two noisy descriptions of them.

    Sorted degrees and counts of degrees of at least 1, 2, ... both get the nearest monotone sequence (isotonic
    regression, as in Hay et al. 2009). The first are accurate where few nodes share a degree, the second where many do,
    so the largest degrees come from the first and the others from the second: from the rank on that is twice the
    `tails_stddev`, the standard deviation of these counts.
    """
    descending = optimize.isotonic_regression(noisy_degrees).x[::-1]
    num_nodes = len(descending)
    by_tails = _degrees_of_rank(_monotone_tails(noisy_tails, num_nodes), num_nodes)
    few = min(max(_num_spread_out(descending), math.ceil(2 * tails_stddev), 1), num_nodes)
    spliced = np.concatenate([descending[:few], np.minimum(by_tails[few:], descending[few - 1])])
    ascending = optimize.isotonic_regression(spliced[::-1].astype(float)).x
    return round_to_total(fit_total(ascending, total, max_degree), min(total, max_degree * len(ascending)))


def _monotone_tails(noisy: Float[np.ndarray, " degrees"], num_nodes: int) -> Float[np.ndarray, " degrees"]:
    return np.clip(optimize.isotonic_regression(noisy, increasing=False).x, 0, num_nodes)


def _degrees_of_rank(tails: Float[np.ndarray, " degrees"], num_nodes: int) -> Int64[np.ndarray, " nodes"]:
    """The largest degree, the second largest, ...: how many of the descending counts are at least 1, 2, ..."""
    return np.searchsorted(-np.rint(tails), -np.arange(1, num_nodes + 1), side="right").astype(np.int64)


def _num_spread_out(descending: Float[np.ndarray, " nodes"]) -> int:
    """How many of the largest degrees are so far apart that no more than one node has each: from rank r to 2 r, the
    degrees fall by r or more."""
    ranks = np.arange(1, len(descending) // 2 + 1)
    apart = ranks[descending[ranks - 1] - descending[2 * ranks - 1] >= ranks]
    return int(apart[-1]) if len(apart) else 0


def fit_total(values: Float[np.ndarray, " nodes"], total: float, max_value: float) -> Float[np.ndarray, " nodes"]:
    """The nearest values within 0 to `max_value` that have this sum (or, if none has, the nearest sum): all are shifted
    by one number, then clipped."""
    if not len(values):
        return values
    low, high = -float(values.max()), max_value - float(values.min())
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(values + middle, 0, max_value).sum() < total else (low, middle)
    return np.clip(values + high, 0, max_value)


def round_to_total(values: Float[np.ndarray, " nodes"], total: int) -> Int64[np.ndarray, " nodes"]:
    """Whole numbers next to ascending values, with this sum: the rounded cumulative sums differ by them. Ascending."""
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    sums = np.cumsum(values)
    sums = np.floor(sums * (total / sums[-1]) + 0.5) if sums[-1] > 0 else sums
    return np.sort(np.diff(sums, prepend=0.0).astype(np.int64))


def degrees_of_tails(noisy: Int64[np.ndarray, " degrees"], num_nodes: int) -> Int64[np.ndarray, " nodes"]:
    """Ascending degrees of `num_nodes` nodes from noisy counts of degrees of at least 1, 2, ...: their sum is even."""
    degrees = _degrees_of_rank(_monotone_tails(noisy.astype(float), num_nodes), num_nodes)
    if degrees.sum() % 2:  # an odd sum belongs to no graph
        degrees[np.flatnonzero(degrees)[-1]] -= 1
    return degrees[::-1]


def is_graphical(degrees: Int64[np.ndarray, " nodes"]) -> bool:
    """Whether some graph without loops and repeated edges has these degrees (Erdos and Gallai 1960)."""
    ordered = np.sort(degrees)[::-1]
    num_nodes = len(ordered)
    if num_nodes == 0:
        return True
    if ordered[-1] < 0 or ordered[0] >= num_nodes or ordered.sum() % 2:
        return False
    ranks = np.arange(1, num_nodes + 1)
    # The sum over i > k of min(d_i, k), for each k, in linear memory: degrees of at least k count k, the others as are.
    large = np.maximum(np.searchsorted(-ordered, -ranks, side="right"), ranks)
    below = np.concatenate([np.cumsum(ordered[::-1])[::-1], [0]])
    capped = (large - ranks) * ranks + below[large]
    return bool((np.cumsum(ordered) <= ranks * (ranks - 1) + capped).all())


def make_graphical(degrees: Int64[np.ndarray, " nodes"]) -> Int64[np.ndarray, " nodes"]:
    """The degrees, lowered where no graph has them: the largest first, one at a time. Entries stay where they are."""
    degrees = np.clip(degrees, 0, max(len(degrees) - 1, 0)).astype(np.int64)
    while not is_graphical(degrees):
        degrees[np.argmax(degrees)] -= 1
    return degrees


def havel_hakimi(degrees: Int64[np.ndarray, " nodes"]) -> Int64[np.ndarray, "edges 2"]:
    """A graph with these degrees, which some graph must have: each node in turn is joined to those with the largest
    degrees left (Havel 1955, Hakimi 1962).
    """
    assert is_graphical(degrees)
    left, edges = degrees.copy(), []
    while left.any():
        node = int(np.argmax(left))
        size, left[node] = int(left[node]), -1  # not its own neighbour
        others = np.argsort(left, kind="stable")[::-1][:size]
        left[node] = 0
        left[others] -= 1
        edges += [(node, int(other)) for other in others]
    return np.asarray(edges, dtype=np.int64).reshape(-1, 2)
