"""Blocks of neighbouring noisy cells, and which of them stand out of their noise. Post-processing: no row is read."""

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

MIN_SPREAD = 0.25  # lower bound on a cell's mass relative to uniform; keeps smooth columns smooth under noise
STANDS_OUT = 3.0  # a cell above this many standard deviations keeps its own mass; the cells between are pooled
SUPPORT = 2.0
"""What the outstanding parts of a cell leave is taken for rows above this many standard deviations."""
NEAR, NEAR_CELLS, BEYOND = 1.0, 8, 3.0
"""Beyond the last certain block, blocks hold rows if their sum exceeds this many standard deviations: `NEAR` for so few
cells, which of the numbers of a tree are two doublings, and `BEYOND` for more."""
FALSE_SPIKE = 0.01
"""The chance that noise alone makes one of the parts of a cell stand out, or extends the range of a column."""
FAR_CELLS = 20
"""Powers of two without a heavy cell, a factor of a million, beyond which a block is far from the others."""
FAR_CHANCE = 1e-8
"""The chance that noise alone makes a far block count."""


class Blocks(NamedTuple):
    """Ranges of neighbouring cells, in several rows of cells."""

    row: np.ndarray
    first: np.ndarray
    length: np.ndarray
    noisy_sum: np.ndarray
    stands_out: np.ndarray


def cut_blocks(noisy: np.ndarray, stddev: float, stands_out: float = STANDS_OUT) -> Blocks:
    """Cuts each row of cells into blocks of 1, 2, 4 ... cells: the largest inside which nothing stands out.

    A block stands out if its sum is above `stands_out` standard deviations of its noise. The rest is pooled: clipping
    hundreds of empty cells at zero one by one would invent rows.
    """
    num_cells = noisy.shape[1]
    depth = (num_cells - 1).bit_length()
    sums = [np.pad(noisy, ((0, 0), (0, 2**depth - num_cells)))]
    for _ in range(depth):
        sums.append(sums[-1][:, 0::2] + sums[-1][:, 1::2])
    out = [each >= stands_out * stddev * math.sqrt(2**level) for level, each in enumerate(sums)]
    below = [np.zeros_like(out[0])]
    for level in range(depth):
        inside = out[level] | below[level]
        below.append(inside[:, 0::2] | inside[:, 1::2])
    found = []
    active = np.ones_like(out[depth])
    for level in range(depth, -1, -1):
        row, at = np.nonzero(active & ~below[level])
        first = at * 2**level
        length = np.minimum(first + 2**level, num_cells) - first
        block = Blocks(row, first, length, sums[level][row, at], out[level][row, at])
        found.append([part[length > 0] for part in block])
        active = np.repeat(active & below[level], 2, axis=1)
    return Blocks(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def block_masses(blocks: Blocks, parents: np.ndarray | None, stddev: float) -> np.ndarray:
    """Masses of blocks, from their noisy sums and, below the root, from the mass of the cell that they divide.

    Below the root, the mass of a parent that the outstanding blocks leave is spread over the others, unless it is
    within its noise: their sums are shrunk towards uniform, the more the larger their noise. Masses then add up to the
    parent's.
    """
    row, _, length, sums, stands_out = blocks
    if parents is None:
        return _root_masses(blocks, stddev)

    def total(weights: np.ndarray) -> np.ndarray:
        return np.maximum(np.bincount(row, weights=weights, minlength=len(parents)), 1e-12)[row]

    rest = np.maximum(parents[row] - total(sums * stands_out), 0.0)
    rest = np.where(rest < SUPPORT * stddev * np.sqrt(np.maximum(total(length * stands_out), 1e-12)), 0.0, rest)
    evenly = rest * length / total(length * ~stands_out)
    weight = evenly**2 / np.maximum(evenly**2 + stddev**2 * length, 1e-300)
    spread = np.maximum(weight * sums + (1 - weight) * evenly, MIN_SPREAD * evenly) * ~stands_out
    mass = np.where(stands_out, sums, spread * rest / total(spread))
    return mass * parents[row] / total(mass)


def _root_masses(blocks: Blocks, stddev: float) -> np.ndarray:
    """Masses of the blocks of one row, of whose rows nothing else is known.

    Between the first and the last block that noise alone would seldom make so large, one that does not stand out keeps
    what exceeds its noise. On both sides the blocks up to some distance are kept, if together they exceed the noise of
    their sum, and they keep that sum: rows at the ends make averages, and so would noise that is taken for rows.
    """
    order = np.argsort(blocks.first)
    _, _, length, sums, stands_out = (part[order] for part in blocks)
    spread = stddev * np.sqrt(length)
    masses = np.where(stands_out, sums, np.maximum(sums - spread, 0.0))
    threshold = max(STANDS_OUT, float(stats.norm.isf(FALSE_SPIKE / length.sum())))
    certain = np.flatnonzero(sums >= np.maximum(threshold * spread, 1e-300))
    if len(certain) > 0:
        for side in (np.arange(certain[-1] + 1, len(order)), np.arange(certain[0])[::-1]):
            masses[side] = _end_masses(sums[side], length[side], stddev)
    found = np.empty_like(masses)
    found[order] = masses
    return found


def _end_masses(sums: np.ndarray, length: np.ndarray, stddev: float) -> np.ndarray:
    """Masses of blocks beyond the last certain one, from there outwards."""
    masses = np.zeros_like(sums)
    together, cells = np.cumsum(sums), np.cumsum(length)
    excess = together - np.where(cells <= NEAR_CELLS, NEAR, BEYOND) * stddev * np.sqrt(cells)
    if len(sums) > 0 and (best := int(np.argmax(excess))) >= 0 and excess[best] > 0:
        parts = np.maximum(sums[: best + 1], 0.0)
        masses[: best + 1] = parts * together[best] / parts.sum()
    return masses


def outermost_heavy(noisy: np.ndarray, stddev: float, gap: int | None = None) -> tuple[int, int] | None:
    """The first and last cell of the blocks that stand out; a wide block may, where its single cells do not.

    A block more than `gap` cells away from the others must stand out more: noise alone would else set the bounds of one
    column in 10,000 to some 10^18, and leave one bin for all its values.
    """
    threshold = float(stats.norm.isf(1e-4 / (2 * len(noisy))))  # so that an empty column rarely has any
    blocks = cut_blocks(noisy[None, :].astype(float), stddev, threshold)
    heavy = np.flatnonzero(blocks.stands_out)
    if len(heavy) == 0:
        return None
    if gap is not None and stddev:
        deviations = blocks.noisy_sum / (stddev * np.sqrt(blocks.length))
        heavy = _without_far(heavy, blocks, deviations, gap, float(stats.norm.isf(FAR_CHANCE / (2 * len(noisy)))))
    first, last = int(blocks.first[heavy].min()), int((blocks.first + blocks.length)[heavy].max()) - 1
    # Next to a block that stands out, a lower threshold is enough: a cell can only widen the bounds.
    while first > 0 and noisy[first - 1] >= 2 * stddev:
        first -= 1
    while last + 1 < len(noisy) and noisy[last + 1] >= 2 * stddev:
        last += 1
    return first, last


def _without_far(heavy: np.ndarray, blocks: "Blocks", deviations: np.ndarray, gap: int, threshold: float) -> np.ndarray:
    """Of the heavy blocks, the strongest one, and on both sides those within `gap` cells or above the threshold."""
    heavy = heavy[np.argsort(blocks.first[heavy])]
    at = int(np.argmax(deviations[heavy]))
    kept = [heavy[at]]
    for side in (heavy[at + 1 :], heavy[:at][::-1]):
        low, high = blocks.first[heavy[at]], blocks.first[heavy[at]] + blocks.length[heavy[at]]
        for block in side:
            start, stop = blocks.first[block], blocks.first[block] + blocks.length[block]
            if max(start - high, low - stop) <= gap or deviations[block] >= threshold:
                kept.append(block)
                low, high = min(low, start), max(high, stop)
    return np.array(kept)
