"""What a metric gives back: numbers, what they mean, and the settings they were computed with."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

LOWER, HIGHER, NEAR_ONE, NEAR_REAL = "lower is better", "higher is better", "1 is best", "nearer to real is better"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One number of a scorecard, in words."""

    key: str
    """As in the scorecard's JSON, such as "tstr_auc"."""
    title: str
    direction: str
    """LOWER, HIGHER, NEAR_ONE or NEAR_REAL."""
    low: float
    high: float
    """The range; infinite where there is no end."""
    meaning: str
    """One or two sentences for somebody who is no statistician."""


@dataclasses.dataclass(frozen=True)
class Score:
    """One number, with its standard error where one was estimated; or why there is none."""

    value: float
    error: float | None = None
    why: str = ""

    @classmethod
    def none(cls, why: str) -> "Score":
        """No number, and the reason in a sentence."""
        return cls(math.nan, None, why)

    @property
    def is_defined(self) -> bool:
        return not math.isnan(self.value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What one metric function found: its scores by `Metric.key`, and all that is needed to repeat it."""

    scores: Mapping[str, Score]
    settings: Mapping[str, object]
    """JSON-safe: every parameter, also the defaults, and the numbers of rows used."""
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """JSON-safe: curves, histograms and matrices, for a report."""
    notes: tuple[str, ...] = ()
    private: bool = True
    """Whether real rows were read: such numbers are outside every guarantee."""

    def __getitem__(self, key: str) -> float:
        return self.scores[key].value
