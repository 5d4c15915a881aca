"""Two sets of results side by side: differences of matched cells, new failures, cells of one set only."""

import dataclasses
from collections.abc import Iterable, Sequence

from understudy.benchmark.report.document import TextTable, markdown_table
from understudy.benchmark.report.records import Metrics, Record, Result, read_records
from understudy.benchmark.report.statistics import Summary, is_separated
from understudy.report.text import count_of, number


@dataclasses.dataclass(frozen=True)
class Difference:
    """A metric of one method on one table at one epsilon: second minus first, over matched seeds."""

    table: str
    method: str
    epsilon: float | None
    metric: str
    first: float
    """Mean of the first set over the matched seeds."""
    second: float
    paired: Summary
    """The differences of the seeds."""
    higher_is_better: bool

    @property
    def mean(self) -> float:
        return self.second - self.first

    @property
    def is_clear(self) -> bool:
        """Whether the mean difference exceeds two standard errors."""
        return is_separated(self.mean, self.paired.stderr)

    @property
    def is_better(self) -> bool:
        return self.mean > 0 if self.higher_is_better else self.mean < 0


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What changed from the first set of results to the second."""

    matched: int
    """Cells that are done in both."""
    differences: tuple[Difference, ...]
    new_failures: tuple[Result, ...]
    """Done in the first set, failed in the second."""
    recoveries: tuple[Result, ...]
    """Failed in the first set, done in the second."""
    both_failed: int
    only_first: tuple[Result, ...]
    only_second: tuple[Result, ...]

    def clear(self, *, better: bool) -> list[Difference]:
        """Differences of more than two standard errors, for the better or the worse."""
        return [found for found in self.differences if found.is_clear and found.is_better == better]


def compare_results(first: Iterable[Record], second: Iterable[Record], metrics: Metrics) -> Comparison:
    """Match the cells of two sets by table, method, epsilon and seed."""
    before, after = (
        {(result.table, result.method, result.epsilon, result.seed): result for result in read_records(records)}
        for records in (first, second)
    )
    pairs = [(old, after[cell]) for cell, old in before.items() if cell in after]
    matched = [(old, new) for old, new in pairs if not old.is_failed and not new.is_failed]
    return Comparison(
        len(matched),
        tuple(_differences(matched, metrics)),
        tuple(new for old, new in pairs if new.is_failed and not old.is_failed),
        tuple(new for old, new in pairs if old.is_failed and not new.is_failed),
        sum(old.is_failed and new.is_failed for old, new in pairs),
        tuple(result for cell, result in before.items() if cell not in after),
        tuple(result for cell, result in after.items() if cell not in before),
    )


def _differences(matched: Sequence[tuple[Result, Result]], metrics: Metrics) -> list[Difference]:
    groups: dict[tuple[str, str, float | None], list[tuple[Result, Result]]] = {}
    for old, new in matched:
        groups.setdefault((old.table, old.method, old.epsilon), []).append((old, new))
    differences = []
    for (table, method, epsilon), pairs in groups.items():
        for metric, (_, higher) in metrics.items():
            values = [
                (a.metrics[metric], b.metrics[metric]) for a, b in pairs if metric in a.metrics and metric in b.metrics
            ]
            if values:
                first, second = (sum(side) / len(values) for side in zip(*values, strict=True))
                paired = Summary(tuple(b - a for a, b in values))
                differences.append(Difference(table, method, epsilon, metric, first, second, paired, higher))
    return differences


def render_comparison(comparison: Comparison, metrics: Metrics) -> str:
    """The comparison as Markdown, which also reads well on a terminal."""
    parts = [_headline(comparison)]
    for title, better in (("Better", True), ("Worse", False)):
        if found := comparison.clear(better=better):
            parts.append(markdown_table(_difference_table(f"{title} by more than two standard errors", found, metrics)))
    for title, results in (("New failures", comparison.new_failures), ("Recoveries", comparison.recoveries)):
        if results:
            parts.append(markdown_table(_cell_table(title, results)))
    for which, results in (("first", comparison.only_first), ("second", comparison.only_second)):
        if results:
            methods = ", ".join(dict.fromkeys(result.method for result in results))
            parts.append(f"Only in the {which} set: {count_of(len(results), 'cell')} of {methods}.")
    return "\n\n".join(parts)


def _headline(comparison: Comparison) -> str:
    if not comparison.matched:
        return "No cell is done in both sets."
    single = sum(found.paired.stderr is None for found in comparison.differences)
    doubt = f" {count_of(single, 'difference')} with a single seed cannot be separated from noise." if single else ""
    return (
        f"{count_of(comparison.matched, 'cell')} done in both sets, "
        f"{count_of(len(comparison.differences), 'mean')} compared: {len(comparison.clear(better=True))} better and "
        f"{len(comparison.clear(better=False))} worse by more than two standard errors. "
        f"{count_of(len(comparison.new_failures), 'new failure')}, {len(comparison.recoveries)} recovered, "
        f"{comparison.both_failed} failed in both.{doubt}"
    )


def _difference_table(title: str, differences: Sequence[Difference], metrics: Metrics) -> TextTable:
    rows = [
        (
            gap.table,
            gap.method,
            number(gap.epsilon),
            metrics[gap.metric][0],
            number(gap.first),
            number(gap.second),
            f"{'+' if gap.mean > 0 else ''}{number(gap.mean)} ± {number(gap.paired.stderr)}",
            str(gap.paired.num_seeds),
        )
        for gap in sorted(differences, key=lambda gap: -abs(gap.mean) / (gap.paired.stderr or 1.0))
    ]
    head = ("table", "method", "epsilon", "metric", "first", "second", "difference ± standard error", "seeds")
    return TextTable(title, head, tuple(rows), num_labels=2)


def _cell_table(title: str, results: Sequence[Result]) -> TextTable:
    rows: list[tuple[str, ...]] = []
    for result in results:
        reason, message = result.failure or ("", "")
        rows.append((result.table, result.method, number(result.epsilon), str(result.seed), reason, message))
    return TextTable(title, ("table", "method", "epsilon", "seed", "reason", "message"), tuple(rows), num_labels=2)
