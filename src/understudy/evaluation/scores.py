"""What metrics return (scores with a status, settings, details), and the catalogue that describes every metric."""

import dataclasses
import enum
import importlib.resources
import math
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Json: TypeAlias = Mapping[str, Any]
"""A JSON object: a scorecard, or a part of one."""


class Direction(enum.StrEnum):
    """Which values of a metric are better."""

    LOWER = "lower"
    HIGHER = "higher"
    NEAR_REAL = "near_real"
    NEAR_ZERO = "near_zero"
    NEAR_HALF = "near_half"
    NEAR_ONE = "near_one"

    @property
    def goal(self) -> float | None:
        """The best value, where it is a fixed number."""
        return {Direction.NEAR_ZERO: 0.0, Direction.NEAR_HALF: 0.5, Direction.NEAR_ONE: 1.0}.get(self)

    @property
    def text(self) -> str:
        if self.goal is not None:
            return f"{self.goal:g} is best"
        return "closer to real is better" if self is Direction.NEAR_REAL else f"{self.value} is better"

    @property
    def arrow(self) -> str:
        if self.goal is not None:
            return f"→ {self.goal:g}"
        return {Direction.LOWER: "↓", Direction.HIGHER: "↑"}.get(self, "→ real")


class Status(enum.StrEnum):
    """Whether a score has a value, and if not, the kind of reason."""

    COMPUTED = "computed"
    SKIPPED = "skipped"
    """The effort does not include the metric."""
    MISSING_INPUT = "missing_input"
    """The metric needs a target or a rule, and none was given."""
    NOT_APPLICABLE = "not_applicable"
    """The metric is for another kind of target or table."""
    UNDEFINED = "undefined"
    """The metric has no value for these rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One entry of `catalogue.toml`, which explains the fields."""

    key: str
    group: str
    title: str
    direction: Direction
    low: float = 0.0
    high: float = 1.0
    meaning: str
    same_as: str = ""
    fraction: bool = False
    key_score: bool = False
    private: bool = True


def _read_catalogue() -> dict[str, Metric]:
    text = importlib.resources.files("understudy.evaluation").joinpath("catalogue.toml").read_text(encoding="utf-8")
    return {
        key: Metric(**{"key": key, **entry, "direction": Direction(entry["direction"])})
        for key, entry in tomllib.loads(text).items()
    }


CATALOGUE: Mapping[str, Metric] = _read_catalogue()
"""Every metric by its key, in the order of a scorecard."""


def metrics_of(group: str) -> tuple[Metric, ...]:
    """The metrics of one group, in the order of the catalogue."""
    return tuple(metric for metric in CATALOGUE.values() if metric.group == group)


@dataclasses.dataclass(frozen=True)
class Score:
    """One number with its standard error, where one was estimated; or a status and the reason why there is none."""

    value: float
    error: float | None = None
    status: Status = Status.COMPUTED
    why: str = ""

    @classmethod
    def none(cls, why: str, status: Status = Status.UNDEFINED) -> "Score":
        """No number. `why` is a sentence for the reader."""
        return cls(math.nan, None, status, why)

    @property
    def is_defined(self) -> bool:
        return self.status is Status.COMPUTED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What one metric function returns."""

    scores: Mapping[str, Score]
    """By key of the catalogue."""
    settings: Json
    """JSON-safe: every parameter, defaults included, and the numbers of rows used."""
    details: Json = dataclasses.field(default_factory=dict)
    """Curves, histograms and matrices, for a report; JSON once NaN is replaced by null."""
    notes: tuple[str, ...] = ()
    redrawn: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    """Bootstrapped scores, to be paired with those of another table; not part of a scorecard."""

    def __getitem__(self, key: str) -> float:
        return self.scores[key].value


def no_scores(group: str, why: str, status: Status = Status.UNDEFINED, settings: Json | None = None) -> Result:
    """A result of a group of the catalogue without numbers, all for one reason."""
    scores = {metric.key: Score.none(why, status) for metric in metrics_of(group)}
    return Result(scores=scores, settings=settings or {})
