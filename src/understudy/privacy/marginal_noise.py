"""The noise of marginals: of those that a run measured, and of those that a plan expects to measure.

Public numbers only. Which marginals a run measures, and with how much noise, follows from its plan, public facts and
noisy answers, so a list of them is post-processing. No count and no draw of noise is among them.
"""

import dataclasses
import math
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class MeasuredMarginal:
    """One measurement of a marginal: its columns, the number of its cells, and the noise of each.

    >>> MeasuredMarginal("two_way", ("age", "sex"), 20, 12.5).stddev
    12.5
    """

    query: str
    """The key of the query that it belongs to."""
    columns: tuple[str, ...]
    cells: int
    """Codes that a method merged count as one, so there may be fewer cells than combinations of codes."""
    stddev: float
    """The standard deviation of the noise of a cell, in rows; 0 in a run without a guarantee."""
    partition: str | None = None
    """The partition of the units that was counted; None: all units."""


@dataclasses.dataclass(frozen=True)
class MarginalRecorder:
    """Lists what one charged query measures; made by the ledger (`Ledger._recorder`)."""

    measured: list[MeasuredMarginal]
    """Those of the whole run."""
    query: str
    partition: str | None
    is_private: bool

    def __call__(self, columns: Sequence[str], cells: int, stddev: float) -> None:
        noise = stddev if self.is_private else 0.0
        self.measured.append(MeasuredMarginal(self.query, tuple(columns), cells, noise, self.partition))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExpectedNoise:
    """The noise that a plan expects in a cell of the marginals that it measures.

    >>> pairs = ExpectedNoise(min_order=2, max_order=2, marginals=10, stddev=20.0, exact=True)
    >>> pairs.affordable(10.0)
    2
    """

    min_order: int
    max_order: int
    """The numbers of columns that these marginals have."""
    marginals: int
    """How many are measured; the most that are, unless `exact`."""
    stddev: float
    """The standard deviation of the noise of a typical cell, in rows: the one of all cells, or else the one at the mean
    precision (1 / variance) of the marginals."""
    exact: bool
    """Whether every one of these marginals has this noise. False: a run sets number and noise as it goes."""

    def affordable(self, stddev: float) -> int:
        """How many marginals the same budget would measure with this noise instead."""
        return math.floor(self.marginals * (stddev / self.stddev) ** 2 * (1 + 1e-9))
