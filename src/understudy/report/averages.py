"""What a scorecard says about the averages of numeric columns, and about values that many rows share."""

import dataclasses
from collections.abc import Collection, Mapping

from understudy.evaluation.scores import Json
from understudy.report.parts import detail, is_close, is_far
from understudy.report.svg import DATES
from understudy.report.text import finite, minus, number, percent, quote

MEAN_CLOSE, MEAN_FAR = 0.05, 0.1
"""The error of a mean, in units of the real values' middle 90%: close up to the first, off above the other."""
RATIO_CLOSE, RATIO_FAR = (0.9, 1.1), (0.8, 1.25)
"""The ratio to a real mean that is far from zero: close within the first range, off outside the other."""
CHANCE_CLOSE, CHANCE_FAR = 2.0, 3.0
"""The number of standard errors within which a mean is close anyway, and beyond which it may be off."""


@dataclasses.dataclass(frozen=True)
class SharedValue:
    """A value that many real rows share, and the fractions of rows that have it."""

    value: str
    real: float
    synthetic: float


@dataclasses.dataclass(frozen=True)
class Average:
    """The mean of one numeric column and its shared values, in real and in synthetic rows."""

    name: str
    kind: str
    real: float | None
    synthetic: float | None
    """The means; None: no row has a value."""
    error: float | None
    """In fractions of the range of the middle 90% of the real values; None: a table has no value."""
    chance: float
    """The standard error of the difference, as such a fraction."""
    ratio: float | None
    """The synthetic mean over the real one; None: the real one is close to zero, or zero is arbitrary."""
    shared_error: float = 0.0
    real_shared_error: float = 0.0
    """The largest difference between the fractions of rows that share a value; that of held-out real rows."""
    worst: SharedValue | None = None
    """The value with the largest difference."""

    @property
    def is_close(self) -> bool:
        """Whether the mean and the fractions of shared values are close to the real ones."""
        if self.error is None:
            return self.real is None
        near = self.error <= MEAN_CLOSE and (self.ratio is None or RATIO_CLOSE[0] <= self.ratio <= RATIO_CLOSE[1])
        near = near or self.error <= CHANCE_CLOSE * self.chance
        return near and is_close(self.shared_error, self.real_shared_error)

    @property
    def is_off(self) -> bool:
        """Whether the mean is far from the real one, beyond chance."""
        if self.error is None:
            return self.real is not None
        return (self.error > MEAN_FAR or self._is_multiple) and self.error > CHANCE_FAR * self.chance

    @property
    def loses_shared(self) -> bool:
        """Whether the fraction of rows that share some value is far from the real one."""
        return is_far(self.shared_error, self.real_shared_error)

    @property
    def severity(self) -> float:
        """How far the mean is from the real one, from 0 to 1: by its error or by its ratio, whichever is larger."""
        if self.error is None:
            return 1.0
        ratio = 1.0 if self.ratio is None else max(self.ratio, 0.0)
        return max(self.error, 1 - min(ratio, 1 / ratio) if ratio > 0 else 1.0)

    @property
    def _is_multiple(self) -> bool:
        return self.ratio is not None and not RATIO_FAR[0] <= self.ratio <= RATIO_FAR[1]

    @property
    def lost(self) -> str:
        """How the mean is off, as part of a sentence about averages."""
        if self.error is None:
            return f"{quote(self.name)} (no row has a value)"
        if self.ratio is not None and self.ratio > 0 and self._is_multiple:
            return f"{quote(self.name)} ({_times(self.ratio)} the real one)"
        real, here = (show_value(mean, self.kind) for mean in (self.real, self.synthetic))
        return f"{quote(self.name)} (real {real}, here {here})"

    @property
    def lost_value(self) -> str:
        """How a shared value is off, as part of a sentence about such values; empty: there is none."""
        if self.worst is None:
            return ""
        fractions = f"real {percent(self.worst.real)}, here {percent(self.worst.synthetic)}"
        return f"{quote(self.name)} = {self.worst.value} ({fractions})"


@dataclasses.dataclass(frozen=True)
class Averages:
    """All numeric columns that were compared."""

    columns: Mapping[str, Average]

    def are_close(self, name: str) -> bool:
        """Whether a column's mean and shared values are close, as far as it has any."""
        return name not in self.columns or self.columns[name].is_close

    @property
    def off(self) -> list[Average]:
        """The worst first."""
        return sorted((each for each in self.columns.values() if each.is_off), key=lambda each: -each.severity)

    def without_shared(self, known: Collection[str]) -> list[Average]:
        """The columns that lose a shared value, but for these, whose loss is known; the worst first."""
        lost = [each for name, each in self.columns.items() if each.loses_shared and name not in known]
        return sorted(lost, key=lambda each: -each.shared_error)


def averages(scores: Json, method: str) -> Averages:
    """Those of one synthetic table; empty if none was compared."""
    columns = detail(scores, "numbers", method).get("columns") or {}
    real = detail(scores, "numbers", "real").get("columns") or {}
    return Averages({name: _average(name, column, real.get(name) or {}) for name, column in columns.items()})


def _average(name: str, column: Json, held: Json) -> Average:
    kind = str(column.get("type"))
    values = [
        SharedValue(
            show_shared(each.get("value"), kind), finite(each.get("real")) or 0.0, finite(each.get("synthetic")) or 0.0
        )
        for each in column.get("values") or ()
    ]
    return Average(
        name=name,
        kind=kind,
        real=finite((column.get("real") or {}).get("mean")),
        synthetic=finite((column.get("synthetic") or {}).get("mean")),
        error=finite(column.get("mean_error")),
        chance=finite(column.get("mean_standard_error")) or 0.0,
        ratio=finite(column.get("mean_ratio")),
        shared_error=finite(column.get("shared_values_error")) or 0.0,
        real_shared_error=finite(held.get("shared_values_error")) or 0.0,
        worst=max(values, key=lambda each: abs(each.real - each.synthetic), default=None),
    )


def _times(ratio: float) -> str:
    if ratio < 0.01:
        return "less than 0.01 times"
    return f"{ratio:.2f} times" if ratio < 1 else f"{ratio:,.1f} times" if ratio < 1e6 else "more than a million times"


def show_value(value: object, kind: object) -> str:
    """A statistic of a column of this kind, to three digits; dates as dates."""
    known, label = finite(value), DATES.get(str(kind))
    return number(known) if known is None or label is None else label(known)


def show_shared(value: object, kind: object) -> str:
    """A value that rows of a column of this kind have, to six digits; dates as dates."""
    known = finite(value)
    return show_value(known, kind) if known is None or str(kind) in DATES else minus(f"{known:.6g}")
