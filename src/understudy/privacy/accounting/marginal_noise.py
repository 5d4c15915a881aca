"""The noise of marginals: of those that a run measured, and of those that a plan expects to measure.

Public numbers only. Which marginals a run measures, and with how much noise, follows from its plan, public facts and
noisy answers, so the list is post-processing. It contains no counts and no drawn noise.
"""

import dataclasses
import math
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class MeasuredMarginal:
    """One measurement of a marginal: its columns, the number of its cells, and the noise in each.

    >>> MeasuredMarginal("two_way", ("age", "sex"), 20, 12.5).stddev
    12.5
    """

    query: str
    """The key of its query."""
    columns: tuple[str, ...]
    cells: int
    """Codes that a method merged count as one, so there may be fewer cells than combinations of codes."""
    stddev: float
    """The standard deviation of the noise in each cell, in rows; 0 in a run without a guarantee."""
    partition: str | None = None
    """The partition of the units that was counted; None: all units."""


@dataclasses.dataclass(frozen=True)
class MarginalRecorder:
    """Records the marginals that a charged query measures; made by the ledger (`Ledger._recorder`)."""

    measured: list[MeasuredMarginal]
    """The measurements of the whole run."""
    query: str
    partition: str | None
    is_private: bool

    def __call__(self, columns: Sequence[str], cells: int, stddev: float) -> None:
        noise = stddev if self.is_private else 0.0
        self.measured.append(MeasuredMarginal(self.query, tuple(columns), cells, noise, self.partition))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExpectedNoise:
    """The noise that a plan expects in the cells of the marginals to be measured.

    >>> pairs = ExpectedNoise(min_order=2, max_order=2, marginals=10, stddev=20.0, exact=True)
    >>> pairs.affordable(10.0)
    2
    """

    min_order: int
    """The smallest number of columns of these marginals."""
    max_order: int
    """The largest number of columns of these marginals."""
    marginals: int
    """The number that is measured; an upper limit unless `exact`."""
    stddev: float
    """The standard deviation of the noise in a typical cell, in rows: that of all cells or, if they differ, that at the
    mean precision (1 / variance) of the marginals."""
    exact: bool
    """Whether all of these marginals have this noise. False: the run sets number and noise as it goes."""

    def affordable(self, stddev: float) -> int:
        """How many marginals the same budget would measure with this noise instead."""
        return math.floor(self.marginals * (stddev / self.stddev) ** 2 * (1 + 1e-9))
