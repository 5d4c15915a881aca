"""Parts of a scorecard, as the sections of a report read them."""

from understudy.evaluation.scores import Json
from understudy.report.text import finite

CLOSE, FAR = 0.05, 0.1
"""The total variation up to which a histogram is close to the real one, and above which it is far from it."""
CLOSE_TIMES, FAR_TIMES = 1.5, 2.0
"""The same as multiples of the total variation of held-out real rows, where this is larger."""


def real_value(metric: Json | None) -> float | None:
    """The score of real rows."""
    return finite(((metric or {}).get("reference") or {}).get("value"))


def method_value(metric: Json | None, method: str) -> float | None:
    return None if metric is None else finite(metric["values"][method]["value"])


def find(scores: Json, key: str) -> Json | None:
    """The entry of one metric."""
    return next((metric for metric in scores["metrics"] if metric["key"] == key), None)


def detail(scores: Json, group: str, method: str) -> Json:
    """The details of a group for one table; empty if there are none."""
    return ((scores.get("details") or {}).get(group) or {}).get(method) or {}


def is_close(distance: float, real: float) -> bool:
    """Whether a total variation is small, by itself or beside that of held-out real rows."""
    return distance <= max(CLOSE, CLOSE_TIMES * real)


def is_far(distance: float, real: float) -> bool:
    """Whether a total variation is large, by itself and beside that of held-out real rows."""
    return distance > max(FAR, FAR_TIMES * real)
