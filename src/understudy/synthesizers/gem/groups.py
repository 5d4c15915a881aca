"""Groups of codes that are counted together, and marginals over groups."""

import dataclasses
import itertools

import numpy as np
from jaxtyping import Float

from understudy.privacy.rows import Grouped
from understudy.schema import Domain

Groups = tuple[int, ...]
"""For each code of a column the group that it is counted in."""


@dataclasses.dataclass(frozen=True)
class TargetMarginals:
    """Noisy 2-way marginals of the target with every other column, and their noise."""

    levels: Groups
    groups: dict[str, Groups]
    noisy: list[np.ndarray]
    stddevs: list[float]

    def queries(self, domain: Domain) -> list[Grouped]:
        assert domain.target is not None
        return [Grouped((domain.target, name), (self.levels, groups)) for name, groups in self.groups.items()]


class ThreeWayMarginals:
    """Noisy 3-way marginals over groups of codes, each in the slices of its three columns in a cube."""

    def __init__(self, groups: dict[str, Groups], precision: float):
        self.groups, self.precision = groups, precision
        names = list(itertools.combinations(groups, 3))
        self.queries = [Grouped(three, tuple(groups[name] for name in three)) for three in names]
        slices = group_slices(groups)
        self.slices = [tuple(slices[name] for name in three) for three in names]
        width = sum(max(each) + 1 for each in groups.values())
        self.noisy, self.weights = np.zeros((2, width, width, width), np.float32)


def group_slices(groups: dict[str, Groups]) -> dict[str, slice]:
    """The slice of each column's groups, side by side."""
    ends = np.cumsum([0, *(max(each) + 1 for each in groups.values())]).tolist()
    return {name: slice(a, b) for name, (a, b) in zip(groups, itertools.pairwise(ends), strict=True)}


def merge_rare_codes(counts: Float[np.ndarray, " codes"], floor: float, *, ordered: bool) -> Groups:
    """Groups of codes with noisy counts of at least `floor` each, where possible.

    Neighbours are merged if codes are ordered; else all rare codes are merged into one group.

    >>> merge_rare_codes(np.array([5.0, 2, 2, 9]), 4, ordered=False)
    (0, 2, 2, 1)
    >>> merge_rare_codes(np.array([3.0, 3, 1, 9]), 4, ordered=True)
    (0, 0, 1, 1)
    """
    if ordered:
        groups, held, group = [], 0.0, 0
        for code, count in enumerate(counts):
            if held >= floor and counts[code:].sum() >= floor:
                held, group = 0.0, group + 1
            groups.append(group)
            held += max(0.0, float(count))
        return tuple(groups)
    kept = np.flatnonzero(counts >= floor).tolist()
    rest = np.flatnonzero(counts < floor).tolist()
    if rest and kept and sum(counts[code] for code in rest) < floor:
        rest.append(kept.pop(int(np.argmin([counts[code] for code in kept]))))
    at = {code: group for group, code in enumerate(kept)} | dict.fromkeys(rest, len(kept))
    return tuple(at[code] for code in range(len(counts)))
