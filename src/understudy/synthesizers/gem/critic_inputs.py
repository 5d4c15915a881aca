"""What the critic of a GEM generator sees of a row."""

from collections.abc import Sequence

import numpy as np
import scipy.linalg

from understudy.schema import Domain, NumericDomain

MIN_STDDEV = 0.1
"""A lower bound on the standard deviation that critic inputs are divided by."""


def critic_inputs(
    domain: Domain, scales: Sequence[NumericDomain | None], shares: Sequence[np.ndarray]
) -> tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]:
    """The inputs of a critic, by estimated 1-way marginals: means of the features, and linear maps of centred features.

    A number is the index of its bin, and whether it is missing; a column of two codes is one indicator; both are
    divided by their standard deviation. With an input for each bin, noise would hide interactions of three columns.
    """
    parts = []
    for name, scale, share in zip(domain.names, scales, shares, strict=True):
        size, missing = len(share), scale is not None and scale.nullable
        inputs = np.eye(size)
        if name in domain.numeric and size > 2 + missing:
            bins = np.arange(size - missing) - np.average(np.arange(size - missing), weights=share[: size - missing])
            inputs = np.concatenate([np.append(bins, 0.0)[None, :size], inputs[size - missing :]])
        elif size == 2:
            inputs = inputs[1:]
        if len(inputs) <= 2:
            spread = np.sqrt(inputs**2 @ share - (inputs @ share) ** 2)
            inputs = inputs / np.maximum(spread, MIN_STDDEV)[:, None]
        parts.append(inputs.T)
    sums = scipy.linalg.block_diag(*parts)
    return tuple(np.concatenate(shares).tolist()), tuple(map(tuple, sums.tolist()))
