"""Statistics of numeric columns, real beside synthetic: means, totals, quantiles, shared values and means by group.

A histogram hides them: most rows may share one value of a bin, and a few large values may make up most of a total.
"""

import dataclasses
import math
from typing import cast

import numpy as np
from jaxtyping import Float, Int

from understudy.evaluation import counting
from understudy.evaluation.scores import Result, Score, Status, echo_settings, no_scores
from understudy.evaluation.table import ColumnSpec, EncodedTable

QUANTILES = (0.05, 0.5, 0.95, 0.99)
SHARED, MAX_SHARED = 0.01, 10
"""A value is shared if at least this fraction of the real rows has it; how many of a column are compared."""
MAX_GROUPS = 20
"""How many of the target's categories, the most frequent in real rows, have a mean of their own."""
FAR_FROM_ZERO = 0.5
"""A mean of at least this fraction of the mean absolute value is far enough from zero to be a divisor."""


@dataclasses.dataclass(frozen=True)
class _Numbers:
    """The finite values of one column of one table."""

    values: Float[np.ndarray, " known"]
    """In ascending order."""
    num_rows: int
    """Of the table, nulls included."""
    mean: float
    stddev: float
    quantiles: Float[np.ndarray, " quantiles"]

    @classmethod
    def of(cls, table: EncodedTable, name: str) -> "_Numbers":
        values = np.sort(table[name][np.isfinite(table[name])])
        if not len(values):
            return cls(values, table.num_rows, math.nan, math.nan, np.full(len(QUANTILES), math.nan))
        middle = values[len(values) // 2]  # subtracted first, so that equal values have exactly their value as mean
        with np.errstate(over="ignore", invalid="ignore"):
            rest = values - middle
            mean, stddev = float(middle + rest.mean()), float(rest.std())
        return cls(values, table.num_rows, mean, stddev, np.quantile(values, QUANTILES))

    @property
    def width(self) -> float:
        """The range of the middle 90% of the values; where these are all equal, of all values."""
        low, high = np.quantile(self.values, (0.05, 0.95))
        return float(high - low) if high > low else float(self.values[-1] - self.values[0])

    def fractions(self, values: np.ndarray) -> Float[np.ndarray, " values"]:
        """The fraction of the rows with each of these values."""
        left, right = (np.searchsorted(self.values, values, side) for side in ("left", "right"))
        return (right - left) / max(self.num_rows, 1)

    def details(self, spec: ColumnSpec, num_rows: int) -> dict[str, object]:
        """In the column's own unit; the total is scaled to this number of rows, and dates have none."""
        known = len(self.values) / max(self.num_rows, 1)
        return {
            "mean": self.mean * spec.scale,
            "total": self.mean * spec.scale * known * num_rows if spec.kind in ("integer", "real") else None,
            "stddev": self.stddev * spec.scale,
            "quantiles": {f"{q:.0%}": float(x) * spec.scale for q, x in zip(QUANTILES, self.quantiles, strict=True)},
        }


@dataclasses.dataclass(frozen=True)
class _Groups:
    """The most frequent categories of the target, and their codes in both tables."""

    codes: tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]
    size: int
    shown: Int[np.ndarray, " groups"]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, real: EncodedTable, synthetic: EncodedTable, target: str) -> "_Groups":
        spec = real.layout[target]
        counts = np.bincount(real[target], minlength=len(spec.categories))[: len(spec.categories)]
        shown = np.argsort(-counts, kind="stable")[:MAX_GROUPS]
        shown = shown[counts[shown] > 0]
        labels = tuple(spec.labels[code] for code in shown)
        return cls((real[target], synthetic[target]), len(spec.categories) + 2, shown, labels)

    def means(self, table: int, values: np.ndarray, origin: float) -> tuple[np.ndarray, np.ndarray]:
        """The mean of each group above the origin, and its number of finite values; table 0 is the real one."""
        known = np.isfinite(values)
        codes = self.codes[table][known]
        counts = np.bincount(codes, minlength=self.size)[self.shown]
        sums = np.bincount(codes, values[known] - origin, minlength=self.size)[self.shown]
        return np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0), counts


@echo_settings
def numbers(real: EncodedTable, synthetic: EncodedTable, *, target: str | None = None) -> Result:
    """Means, quantiles, fractions of shared values and means by category of the target, for every numeric column.

    Differences of means and quantiles are divided by the range of the middle 90% of the real values, which large values
    do not stretch; where these are all equal, by the whole real range. They count at most 1, and 1 if all real values
    are equal and the synthetic ones differ. Nulls and infinities are excluded, but count as rows in the fraction of
    rows that share a value. Means by group are weighted by the group's number of real values; groups without synthetic
    values are excluded.

    `target`: a discrete column; None: there are no groups.
    """
    if not real.layout.numeric:
        return no_scores("numbers", "There is no numeric column.", Status.NOT_APPLICABLE)
    groups = None if target is None else _Groups.of(real, synthetic, target)
    columns = {spec.name: _one_column(real, synthetic, spec, groups) for spec in real.layout.numeric}
    absent = "There is no numeric column with values in both tables."
    why = {
        "mean_error": absent,
        "quantile_error": absent,
        "shared_values_error": f"No numeric column has a value that {SHARED:.0%} of the real rows share.",
        "group_mean_error": absent,
    }
    scores = {
        key: counting.mean_and_max([cast(float, x[key]) for x in columns.values() if x[key] is not None], reason)[0]
        for key, reason in why.items()
    }
    if groups is None:
        scores["group_mean_error"] = Score.none("No target column was given.", Status.MISSING_INPUT)
    return Result(scores=scores, settings={"quantiles": list(QUANTILES)}, details={"columns": columns})


def _one_column(
    real: EncodedTable, synthetic: EncodedTable, spec: ColumnSpec, groups: _Groups | None
) -> dict[str, object]:
    """The details of one column; an error is None where a table has no value, or nothing is shared or grouped."""
    ours, theirs = _Numbers.of(real, spec.name), _Numbers.of(synthetic, spec.name)
    column: dict[str, object] = {
        "type": spec.kind,
        "real": ours.details(spec, ours.num_rows),
        "synthetic": theirs.details(spec, ours.num_rows),
        **dict.fromkeys(("mean_error", "mean_ratio", "mean_standard_error", "quantile_error", "group_mean_error")),
        **_shared_values(ours, theirs, spec),
        "groups": [],
    }
    if not len(ours.values) or not len(theirs.values):
        return column
    width = ours.width
    column["mean_error"] = _scaled(abs(theirs.mean - ours.mean), width)
    column["mean_ratio"] = _ratio(ours, theirs, spec)
    chance = ours.stddev * math.sqrt(1 / len(ours.values) + 1 / len(theirs.values))
    column["mean_standard_error"] = _scaled(chance, width)
    column["quantile_error"] = float(
        np.mean([_scaled(each, width) for each in np.abs(theirs.quantiles - ours.quantiles)])
    )
    if groups is not None:
        column |= _group_means(real[spec.name], synthetic[spec.name], ours, groups, spec)
    return column


def _scaled(difference: float, width: float) -> float:
    """At most 1; where the real values are all equal, 1 for any difference."""
    if difference >= width:
        return float(difference > 0)
    return float(difference / width)


def _ratio(ours: _Numbers, theirs: _Numbers, spec: ColumnSpec) -> float | None:
    """The synthetic mean over the real one; None: the real one is close to zero, or zero is arbitrary."""
    with np.errstate(over="ignore"):
        typical = float(np.abs(ours.values).mean())
    if spec.kind not in ("integer", "real") or ours.mean == 0 or abs(ours.mean) < FAR_FROM_ZERO * typical:
        return None
    return theirs.mean / ours.mean


def _shared_values(ours: _Numbers, theirs: _Numbers, spec: ColumnSpec) -> dict[str, object]:
    """The values that many real rows share, the most frequent first, and the largest difference of their fractions."""
    fewest = max(2, math.ceil(SHARED * ours.num_rows - 1e-9))
    candidates = np.unique(ours.values[::fewest])  # as many equal values in a row include one of these
    fractions = ours.fractions(candidates)
    is_shared = np.rint(fractions * ours.num_rows) >= fewest
    candidates, fractions = candidates[is_shared], fractions[is_shared]
    order = np.argsort(-fractions, kind="stable")[:MAX_SHARED]
    values, here = candidates[order], fractions[order]
    there = theirs.fractions(values)
    return {
        "shared_values_error": float(np.abs(here - there).max()) if len(values) else None,
        "values": [
            {"value": (float(value) + 0.0) * spec.scale, "real": float(p), "synthetic": float(q)}
            for value, p, q in zip(values, here, there, strict=True)
        ],
    }


def _group_means(
    real: np.ndarray, synthetic: np.ndarray, ours: _Numbers, groups: _Groups, spec: ColumnSpec
) -> dict[str, object]:
    """The mean of each group in both tables; NaN where it has no value."""
    origin, width = ours.mean, ours.width
    (here, weights), (there, others) = (groups.means(at, each, origin) for at, each in enumerate((real, synthetic)))
    both = (weights > 0) & (others > 0)
    errors = [_scaled(each, width) for each in np.abs(there - here)[both]]
    rows = zip(groups.labels, here, there, strict=True)
    return {
        "group_mean_error": float(np.average(errors, weights=weights[both])) if errors else None,
        "groups": [
            {"group": label, "real": (origin + p) * spec.scale, "synthetic": (origin + q) * spec.scale}
            for label, p, q in rows
        ],
    }
