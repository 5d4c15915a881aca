"""What metrics return (scores with a status, settings, details), and the catalogue that describes every metric."""

import dataclasses
import enum
import functools
import importlib.resources
import inspect
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeAlias

import numpy as np

Json: TypeAlias = Mapping[str, Any]
"""A JSON object: a scorecard, or a part of one."""


P = ParamSpec("P")


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
    settings: Json = dataclasses.field(default_factory=dict)
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


def echo_settings(metric: Callable[P, Result]) -> Callable[P, Result]:
    """The metric; its results list every parameter, defaults included, and the rows of each table.

    What the metric lists itself comes first: rows that it left out are not counted.
    """
    signature = inspect.signature(metric)

    @functools.wraps(metric)
    def compute(*args: P.args, **kwargs: P.kwargs) -> Result:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        settings: dict[str, object] = {}
        for name, value in bound.arguments.items():
            if hasattr(value, "num_rows"):
                settings[f"{name}_rows"] = value.num_rows
            else:
                settings[name] = list(value) if isinstance(value, tuple) else value
        result = metric(*args, **kwargs)
        return dataclasses.replace(result, settings={**settings, **result.settings})

    return compute


def plain(value: object) -> Any:
    """JSON without NaN or infinities, floats to six digits."""
    if hasattr(value, "to_json"):
        return plain(value.to_json())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):  # a named tuple
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
