"""What a metric gives back, and what a scorecard must have: numbers, what they mean, and how they were computed."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from understudy.errors import ConfigError

FORMAT = "understudy-scorecard"
VERSION = 1
EXPECTED = "Expected JSON as 'understudy evaluate --json' writes."

LOWER, HIGHER, NEAR_REAL = "lower is better", "higher is better", "nearer to real is better"
NEAR_ONE, NEAR_ZERO, NEAR_HALF = "1 is best", "0 is best", "0.5 is best"
DIRECTIONS = (LOWER, HIGHER, NEAR_REAL, NEAR_ONE, NEAR_ZERO, NEAR_HALF)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One number of a scorecard, in words."""

    key: str
    """As in the scorecard's JSON, such as "tstr_auc"."""
    title: str
    direction: str
    """One of `DIRECTIONS`."""
    low: float
    high: float
    """The range; infinite where there is no end."""
    meaning: str
    """One or two sentences for somebody who is no statistician."""
    same_as: str = ""
    """The key of a metric that this one repeats on another scale: the two must not count twice."""
    private: bool = True
    """Whether it reads real rows; False: of a synthetic table it may be published."""


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
    redrawn: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    """Bootstrapped scores, draw by draw, to be paired with those of another table; no part of a scorecard."""

    def __getitem__(self, key: str) -> float:
        return self.scores[key].value


_PARTS = {"real": Mapping, "holdout": Mapping, "synthetic": Sequence, "metrics": Sequence, "details": Mapping}


def checked(content: object) -> dict[str, Any]:
    """The document, if it is a scorecard that this version can read."""
    if not isinstance(content, Mapping) or content.get("format") != FORMAT:
        raise ConfigError(f"This is not a scorecard. {EXPECTED}")
    if content.get("version") != VERSION:
        raise ConfigError(
            f"This scorecard has version {repr(content.get('version'))[:20]}, and this Understudy "
            f"reads version {VERSION}. Evaluate again, or use the Understudy that wrote it."
        )
    wrong = next((key for key, kind in _PARTS.items() if not isinstance(content.get(key), kind)), None)
    if wrong is None and not content["synthetic"]:
        wrong = "synthetic"
    if wrong is not None:
        raise ConfigError(f"This scorecard is damaged: {wrong!r} is missing or malformed. Evaluate again.")
    try:
        names = [table["name"] for table in content["synthetic"]]
        absent = next(
            ((metric["key"], name) for metric in content["metrics"] for name in names if name not in metric["values"]),
            None,
        )
    except (TypeError, LookupError):
        raise ConfigError("This scorecard is damaged: a table or metric is malformed. Evaluate again.") from None
    if absent is not None:
        raise ConfigError(f"This scorecard is damaged: {absent[0]!r} has no value for {absent[1]!r}.")
    return dict(content)
