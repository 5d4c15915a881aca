"""Published figures of the QUAIL paper, and how far ours are from them."""

import csv
import dataclasses
import functools
import itertools
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from understudy.benchmark.report.records import Result
from understudy.benchmark.report.statistics import Summary, group_results

Cell = tuple[str, str, float]
"""Table, method, epsilon."""


@dataclasses.dataclass(frozen=True)
class RealScore:
    """A score of the real data as the paper prints it."""

    table: str
    metric: str
    printed: float
    is_inverted: bool
    """Whether it is printed for the wrong class: the score is then one minus this value."""
    source: str

    @property
    def value(self) -> float:
        return round(1 - self.printed, 6) if self.is_inverted else self.printed


@dataclasses.dataclass(frozen=True)
class Time:
    """A training time of the paper's Table 1; None where it is illegible."""

    method: str
    classifier_fraction: float | None
    """Of epsilon, for QUAIL."""
    task: str
    epsilon: float
    seconds: float | None
    reading: str


def _rows(name: str) -> list[dict[str, str]]:
    text = (Path(__file__).parent / "figures" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@functools.cache
def read_agreements() -> Mapping[Cell, float]:
    """The SRA tables of the paper's appendix.

    >>> len(read_agreements()), read_agreements()["bank", "mwem", 0.01]
    (350, 0.4)
    """
    return {(row["table"], row["method"], float(row["epsilon"])): float(row["sra"]) for row in _rows("quail_sra.csv")}


@functools.cache
def read_real_scores() -> tuple[RealScore, ...]:
    """F1 and AUC of the real data, from titles of the paper's figures.

    >>> next(score.value for score in read_real_scores() if score.is_inverted)
    0.98
    """
    return tuple(
        RealScore(row["table"], row["metric"], float(row["printed"]), row["is_inverted"] == "yes", row["source"])
        for row in _rows("quail_real.csv")
    )


@functools.cache
def read_times() -> tuple[Time, ...]:
    """The paper's Table 1.

    >>> read_times()[0].seconds
    1130.0
    """
    return tuple(
        Time(
            row["method"],
            float(row["classifier_fraction"]) if row["classifier_fraction"] else None,
            row["task"],
            float(row["epsilon"]),
            float(row["seconds"]) if row["seconds"] else None,
            row["reading"],
        )
        for row in _rows("quail_times.csv")
    )


@functools.cache
def read_hours() -> Mapping[str, float]:
    """Hours of one run of all synthesizers, by table (section 4 of the paper).

    >>> read_hours()["car"]
    1.27
    """
    return {row["table"]: float(row["hours"]) for row in _rows("quail_hours.csv")}


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Our mean SRA beside the published one, over all cells that both have."""

    pairs: tuple[tuple[float, float], ...]
    """Published and ours."""
    seed_std: float | None
    """Mean standard deviation of our SRA over seeds."""
    seed_difference: float | None
    """Mean absolute difference between two of our own seeds of one cell: the noise of a single run."""

    @property
    def mean_difference(self) -> float | None:
        """Mean absolute difference between published and ours."""
        return statistics.fmean(abs(a - b) for a, b in self.pairs) if self.pairs else None

    @property
    def correlation(self) -> float | None:
        """Pearson's correlation of published and ours; None where one of them is constant."""
        first, second = [a for a, _ in self.pairs], [b for _, b in self.pairs]
        if len(self.pairs) < 3 or len(set(first)) < 2 or len(set(second)) < 2:
            return None
        return statistics.correlation(first, second)


def our_agreements(results: Sequence[Result]) -> dict[Cell, Summary]:
    """The summaries of our SRA, by table, method and epsilon."""
    return {
        (table, method, epsilon): summary
        for (table, epsilon), found in group_results(results, "sra").items()
        if epsilon is not None
        for method, summary in found.items()
    }


def compare_agreements(results: Sequence[Result]) -> Agreement:
    """Compare the SRA of one source, under the paper's names, with the published tables.

    >>> cell = Result(table="bank", method="mwem", epsilon=0.01, seed=0, metrics={"sra": 0.6})
    >>> round(compare_agreements([cell]).mean_difference, 3)
    0.2
    """
    published, ours = read_agreements(), our_agreements(results)
    shared = {cell: summary for cell, summary in ours.items() if cell in published and summary.mean is not None}
    stds = [summary.std for summary in shared.values() if summary.std is not None]
    gaps = [abs(a - b) for summary in shared.values() for a, b in itertools.combinations(summary.values, 2)]
    return Agreement(
        tuple((published[cell], summary.mean or 0.0) for cell, summary in shared.items()),
        statistics.fmean(stds) if stds else None,
        statistics.fmean(gaps) if gaps else None,
    )
