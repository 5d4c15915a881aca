"""The metrics of a benchmark: their names, titles and directions. How they are computed is in `scoring`.

Kept apart from `scoring` because a suite checks its metrics before anything slow is imported.
"""

import dataclasses
import importlib.resources
import tomllib
from collections.abc import Sequence

from understudy.errors import ConfigError, did_you_mean


@dataclasses.dataclass(frozen=True)
class BenchmarkMetric:
    """One figure of a benchmark."""

    title: str
    meaning: str
    """One or two sentences for readers of a report."""
    higher_is_better: bool


METRICS = {
    name: BenchmarkMetric(**content)
    for name, content in tomllib.loads(
        importlib.resources.files("understudy.benchmark").joinpath("metrics.toml").read_text(encoding="utf-8")
    ).items()
}
"""Every metric by name, in the order of a report."""


def check_metrics(names: Sequence[str]) -> None:
    """Refuse an empty list and unknown names.

    >>> check_metrics(["f1", "tvd2"])
    >>> try:
    ...     check_metrics(["tdv2"])
    ... except ConfigError as error:
    ...     print(str(error)[:46])
    There is no metric 'tdv2'. Did you mean 'tvd2'
    """
    if isinstance(names, str):
        raise ConfigError(
            f"metrics must be a list of names, found the string {names!r}. Write it as a list.", setting="metrics"
        )
    if not names:
        raise ConfigError("metrics is empty, expected at least one name. Add one.", setting="metrics")
    for name in names:
        if name not in METRICS:
            raise ConfigError(
                f"There is no metric {name!r}.{did_you_mean(name, METRICS)} The metrics are: {', '.join(METRICS)}.",
                setting=name,
            )
