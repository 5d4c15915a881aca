"""The list of measured marginals in a certificate: as JSON, and as a table in which re-measurements are combined."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from understudy.privacy.marginal_noise import MeasuredMarginal

MOST_LINES = 40
"""The largest number of marginals in the table; certificate.json lists all."""
EXPLANATION = (
    "Every marginal that was counted with noise, and the standard deviation of the noise in each of its cells. For a "
    "marginal that was measured several times, it is that of the weighted average. Noisy errors and selections, by "
    "which a method chooses what to measure, are part of its queries and are not listed."
)


@dataclasses.dataclass(frozen=True)
class CombinedMarginal:
    """All measurements of one marginal, combined."""

    columns: tuple[str, ...]
    cells: int
    partition: str | None
    times: int
    stddev: float
    """Of the average of the measurements, weighted by inverse variance."""


def combine_measurements(measurements: Sequence[MeasuredMarginal]) -> list[CombinedMarginal]:
    """One entry for each marginal, in the order of their first measurement. Precisions (1 / variance) add up.

    >>> twice = [MeasuredMarginal("m", ("a", "b"), 6, 3.0), MeasuredMarginal("m", ("b", "a"), 6, 4.0)]
    >>> combine_measurements(twice)
    [CombinedMarginal(columns=('a', 'b'), cells=6, partition=None, times=2, stddev=2.4)]
    """
    found: dict[tuple, list[MeasuredMarginal]] = {}
    for each in measurements:
        found.setdefault((frozenset(each.columns), each.cells, each.partition), []).append(each)
    return [
        CombinedMarginal(same[0].columns, same[0].cells, same[0].partition, len(same), _combined_stddev(same))
        for same in found.values()
    ]


def _combined_stddev(same: Sequence[MeasuredMarginal]) -> float:
    if any(each.stddev == 0 for each in same):
        return 0.0
    return 1 / math.sqrt(math.fsum(each.stddev**-2 for each in same))


def measured_section(
    measurements: Sequence[MeasuredMarginal], num_rows: int | None, code: Callable[[str], str]
) -> list[str]:
    """The section of a certificate, in Markdown: a table, cut if it is long. Empty if no marginal was measured.

    The table has percentages if the number of rows is public. `code` quotes the name of a column.
    """
    if not measurements:
        return []
    marginals = combine_measurements(measurements)
    head = ["columns", "cells", "times", "noise (rows)", *(["% of all rows"] if num_rows else [])]
    rows = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for each in marginals[:MOST_LINES]:
        names = ", ".join(map(code, each.columns)).replace("|", "\\|") or "number of rows"
        part = "" if each.partition is None else f" ({each.partition} only)"
        noise = [f"{each.stddev:.3g}", *([f"{100 * each.stddev / num_rows:.2g}"] if num_rows else [])]
        rows.append(f"| {names}{part} | {each.cells:,} | {each.times} | {' | '.join(noise)} |")
    rest = len(marginals) - MOST_LINES
    more = [f"And {rest:,} more in certificate.json."] if rest > 0 else []
    return ["## Which marginals were measured", EXPLANATION, "\n".join(rows), *more]


def measured_to_json(measurement: MeasuredMarginal) -> dict[str, object]:
    """The fields by name, with the columns as a list."""
    return {**dataclasses.asdict(measurement), "columns": list(measurement.columns)}


def measured_from_json(content: Mapping) -> MeasuredMarginal:
    """The reverse of `measured_to_json`."""
    return MeasuredMarginal(**{**content, "columns": tuple(content["columns"])})
