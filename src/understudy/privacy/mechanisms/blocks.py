"""Blocks of neighbouring noisy cells, and which of them stand out of their noise. Post-processing: no row is read."""

import math
from typing import NamedTuple

import numpy as np
from scipy import special, stats

MIN_SPREAD = 0.25  # lower bound on a cell's mass relative to uniform; keeps smooth columns smooth under noise
STANDS_OUT = 3.0  # a cell above this many standard deviations keeps its own mass; the cells between are pooled
SUPPORT = 2.0
"""What the outstanding parts of a cell leave is taken for rows above this many standard deviations."""
NEAR, NEAR_CELLS, BEYOND = 1.0, 8, 3.0
"""Blocks beside the certain ones are taken to hold rows if their sum exceeds this many standard deviations of its
noise: `NEAR` for up to `NEAR_CELLS` cells, `BEYOND` for more."""
FALSE_SPIKE = 0.01
"""The probability that noise alone makes any cell of a column stand out, or one far from its rows count as certain."""
UNLOCATED = 0.2
"""If more than this fraction of the rows, and more than noise explains, is outside the certain range, rows may be
anywhere."""
EMPTY = 0.05
"""The prior probability that a given half of a range holds all of its rows."""
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


def block_masses(blocks: Blocks, parents: np.ndarray, stddev: float) -> np.ndarray:
    """Masses of blocks, from their noisy sums and from the mass of the cell that they divide.

    The mass of a parent that the outstanding blocks leave is spread over the others, unless it is within its noise:
    their sums are shrunk towards uniform, the more the larger their noise. Masses then add up to the parent's.
    """
    row, _, length, sums, stands_out = blocks

    def total(weights: np.ndarray) -> np.ndarray:
        return np.maximum(np.bincount(row, weights=weights, minlength=len(parents)), 1e-12)[row]

    rest = np.maximum(parents[row] - total(sums * stands_out), 0.0)
    rest = np.where(rest < SUPPORT * stddev * np.sqrt(np.maximum(total(length * stands_out), 1e-12)), 0.0, rest)
    evenly = rest * length / total(length * ~stands_out)
    weight = evenly**2 / np.maximum(evenly**2 + stddev**2 * length, 1e-300)
    spread = np.maximum(weight * sums + (1 - weight) * evenly, MIN_SPREAD * evenly) * ~stands_out
    mass = np.where(stands_out, sums, spread * rest / total(spread))
    return mass * parents[row] / total(mass)


def root_masses(noisy: np.ndarray, edges: np.ndarray, stddev: float, num_rows: int, complete: bool) -> np.ndarray:
    """Expected masses of the root cells of a tree.

    `complete`: the column has no nulls, so that all `num_rows` rows are in the cells. Cells outside the certain range
    get no mass, unless too many rows would then be unaccounted for.
    """
    if not stddev:
        return np.maximum(noisy, 0).astype(float)
    total = float(noisy.sum())
    if complete and abs(total - num_rows) <= 4 * stddev * math.sqrt(len(noisy)):
        total = float(num_rows)  # a declared number that is further away is wrong
    else:
        complete, total = False, min(max(total, 0.0), float(num_rows)) or 1.0
    low, high = certain_range(noisy, stddev)
    located = float(noisy[low:high].sum())
    unsure = stddev * math.sqrt(high - low) if complete else 2 * stddev * math.sqrt(len(noisy) - (high - low))
    if total - located > max(UNLOCATED * total, unsure):
        low, high = 0, len(noisy)
    masses = np.zeros(len(noisy))
    rows = total if complete or high - low == len(noisy) else max(located, 1.0)
    masses[low:high] = expected_masses(noisy[low:high], np.diff(edges[low : high + 1]), stddev, rows)
    return masses


def extended(masses: np.ndarray, edges: np.ndarray, noisy: np.ndarray, stddev: float) -> np.ndarray:
    """Adds mass to the doubling beyond the outermost one, on each side on which the mass decreases away from zero.

    The last ratio between doublings is continued once, as far as the noisy counts there leave it open. Rows too few to
    stand out can dominate an average; later measurements show how many there are.
    """
    masses = _extended_up(masses, edges, noisy, stddev)
    return np.asarray(_extended_up(masses[::-1], -edges[::-1], noisy[::-1], stddev)[::-1])


def _extended_up(masses: np.ndarray, edges: np.ndarray, noisy: np.ndarray, stddev: float) -> np.ndarray:
    end = np.flatnonzero(masses)[-1] + 1 if masses.any() else 0
    before, last, after = (int(np.searchsorted(edges, factor * edges[end])) for factor in (0.25, 0.5, 2.0))
    after = min(after, len(masses))
    previous, outer = masses[before:last].sum(), masses[last:end].sum()
    lengths = np.diff(edges[end : after + 1])
    if not (edges[end] > 0 and before > 0 and last < end and outer < previous and lengths.sum() > 0):
        return masses
    continued, noise = outer**2 / previous * lengths.sum() / edges[end], stddev**2 * (after - end)
    expected = (continued * noise + float(noisy[end:after].sum()) * continued**2) / max(noise + continued**2, 1e-300)
    masses = masses.copy()
    masses[end:after] = max(expected, 0.0) * lengths / lengths.sum()
    return masses


def certain_range(noisy: np.ndarray, stddev: float) -> tuple[int, int]:
    """The first cell of the range that is taken to hold rows, and the cell after its last; all cells if none does.

    It reaches from the first to the last block whose sum noise alone would rarely reach, plus the neighbouring blocks
    whose sum exceeds its noise. A few rows at the ends can dominate an average, and so could noise mistaken for rows.
    """
    blocks = cut_blocks(noisy[None], stddev)
    order = np.argsort(blocks.first)
    _, first, length, sums, _ = (part[order] for part in blocks)
    threshold = max(STANDS_OUT, float(stats.norm.isf(FALSE_SPIKE / len(noisy))))
    certain = np.flatnonzero(sums >= np.maximum(threshold * stddev * np.sqrt(length), 1e-300))
    if len(certain) == 0:
        return 0, len(noisy)
    above, below = np.arange(certain[-1] + 1, len(order)), np.arange(certain[0])[::-1]
    last = certain[-1] + _num_near(sums[above], length[above], stddev)
    return int(first[certain[0] - _num_near(sums[below], length[below], stddev)]), int(first[last] + length[last])


def _num_near(sums: np.ndarray, length: np.ndarray, stddev: float) -> int:
    """How many blocks beside the certain ones are taken to hold rows, counted outwards."""
    cells = np.cumsum(length)
    excess = np.cumsum(sums) - np.where(cells <= NEAR_CELLS, NEAR, BEYOND) * stddev * np.sqrt(cells)
    return int(np.argmax(excess)) + 1 if len(sums) > 0 and excess.max() > 0 else 0


def expected_masses(noisy: np.ndarray, lengths: np.ndarray, stddev: float, num_rows: float) -> np.ndarray:
    """The posterior means of the numbers of rows in cells, given their noisy counts and the number of rows in all.

    Cells that stand out keep their counts, rescaled if nothing else is left. The other rows are divided between halves,
    quarters and so on of the range. The prior of each division is a mixture: one half is empty, both are equally dense,
    or the fraction is uniform on [0, 1].
    """
    stands_out = max(STANDS_OUT, float(stats.norm.isf(FALSE_SPIKE / len(noisy)))) * stddev
    peaks = np.where(noisy >= stands_out, noisy, 0.0)
    is_peak = peaks > 0
    num_peaks, num_others = int(is_peak.sum()), int((~is_peak).sum())
    # What the peaks leave, and what was counted elsewhere: both are the rest with noise, and are averaged by precision.
    weight = num_peaks / len(noisy)
    rest = (1 - weight) * (num_rows - peaks.sum()) + weight * noisy[~is_peak].sum()
    if (num_peaks and rest < SUPPORT * stddev * math.sqrt(num_peaks * num_others / len(noisy))) or not num_others:
        return np.asarray(peaks * num_rows / peaks.sum())
    depth = (len(noisy) - 1).bit_length()
    levels = [
        [np.pad(np.where(is_peak, 0.0, part), (0, 2**depth - len(noisy))) for part in (noisy, lengths, noisy == noisy)]
    ]
    in_peaks = [np.pad(peaks, (0, 2**depth - len(noisy)))]
    for _ in range(depth):
        levels.append([part[0::2] + part[1::2] for part in levels[-1]])
        in_peaks.append(in_peaks[-1][0::2] + in_peaks[-1][1::2])
    masses = np.array([rest])
    for level in range(depth - 1, -1, -1):
        sums, long, cells = (part.reshape(-1, 2) for part in levels[level])
        # Where few rows remain besides the cells that stand out, the prior favours all of them in one half.
        prior = masses / np.maximum(masses + in_peaks[level + 1], 1e-9)
        first = _first_fractions(sums, long, stddev**2 * cells, masses, prior)
        masses = np.stack([masses * first, masses * (1 - first)], axis=1).ravel()
    return np.asarray(masses[: len(noisy)] + peaks)


def _first_fractions(
    sums: np.ndarray, lengths: np.ndarray, variances: np.ndarray, masses: np.ndarray, prior: np.ndarray
) -> np.ndarray:
    """The posterior mean of the fraction of each mass in the first half; 0 or 1 if that has a probability of 1/2."""
    divided = (variances > 0).all(axis=1) & (masses > 1e-9)
    (first, second), (noise_first, noise_second) = sums[divided].T, variances[divided].T
    mass, precision = masses[divided], 1 / noise_first + 1 / noise_second
    estimate = (first / noise_first + (mass - second) / noise_second) / (mass * precision)
    stddev = 1 / (mass * np.sqrt(precision))
    total = lengths[divided].sum(axis=1)
    evenly = np.where(total > 0, lengths[divided, 0] / np.where(total > 0, total, 1.0), 0.5)
    low, high = -estimate / stddev, (1 - estimate) / stddev
    inside = np.maximum(special.ndtr(high) - special.ndtr(low), 1e-300)
    anywhere = np.clip(estimate + stddev * (stats.norm.pdf(low) - stats.norm.pdf(high)) / inside, 0.0, 1.0)
    densities = (stats.norm.logpdf(estimate, at, stddev) for at in (np.zeros_like(mass), np.ones_like(mass), evenly))
    logs = np.stack([*densities, np.log(inside)])
    logs[:2] += math.log(EMPTY)
    logs[2:] += math.log((1 - 2 * EMPTY) / 2) + np.log(np.maximum(prior[divided], 1e-12))
    none, all_, even, any_ = special.softmax(logs, axis=0)
    found = np.asarray(variances[:, 0] > 0, dtype=float)  # where one half has no cells
    found[divided] = np.where(none >= 0.5, 0.0, np.where(all_ >= 0.5, 1.0, all_ + even * evenly + any_ * anywhere))
    return found


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
