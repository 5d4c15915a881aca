"""Tables of a report: means with their spread, winners, ranks, running times, failures."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from understudy.benchmark.report.document import TextTable
from understudy.benchmark.report.figures import format_seconds
from understudy.benchmark.report.records import BASELINE, REAL, Result, epsilon_order, method_order, table_order
from understudy.benchmark.report.statistics import (
    Grid,
    Ranking,
    Summary,
    Tally,
    count_seeds,
    find_winners,
    private_blocks,
)
from understudy.report.text import count_of, minus, shorten

NONE = "–"


def format_mean(summary: Summary) -> str:
    """Mean ± standard deviation, and how many cells failed or lack the metric."""
    if summary.mean is None:
        return f"{summary.num_failed} failed" if summary.num_failed else "undefined"
    text = _digits(summary.mean, summary.mean)
    if summary.std is not None:
        text += f" ± {_digits(summary.std, summary.mean)}"
    lost = [
        f"{count} {what}"
        for count, what in ((summary.num_failed, "failed"), (summary.num_undefined, "undefined"))
        if count
    ]
    return f"{text}\n({', '.join(lost)})" if lost else text


def _digits(value: float, size: float) -> str:
    """As many decimals as the mean needs."""
    return minus(f"{value:.3f}" if abs(size) < 10 else f"{value:.1f}" if abs(size) < 1000 else f"{value:,.0f}")


def make_winner_table(grid: Grid, title: str, *, higher_is_better: bool) -> TextTable:
    """The best method for each table and epsilon; muted where another method is within two standard errors."""
    blocks = private_blocks(grid)
    tables = list(dict.fromkeys(table for table, _ in blocks))
    epsilons = sorted({epsilon for _, epsilon in blocks if epsilon is not None})
    winners = find_winners(grid, higher_is_better=higher_is_better)
    rows, soft = [], set()
    for line, table in enumerate(tables):
        cells = [table]
        for column, epsilon in enumerate(epsilons, start=1):
            winner = winners.get((table, epsilon))
            cells.append(f"{winner.method}\n{_digits(*[winner.summary.mean or 0.0] * 2)}" if winner else NONE)
            if winner is not None and not winner.is_clear:
                soft.add((line, column))
        rows.append(tuple(cells))
    return TextTable(
        f"Best mean {title} for each table and epsilon, {count_seeds(blocks)}",
        ("table", *(f"ε = {epsilon:g}" for epsilon in epsilons)),
        tuple(rows),
        soft=frozenset(soft),
        note="In grey: at least one other method is within two standard errors. Methods with a failed cell cannot win.",
        is_wordy=True,
    )


def make_score_table(
    results: Sequence[Result], grid: Grid, table: str, title: str, *, higher_is_better: bool, is_folded: bool = False
) -> TextTable:
    """Mean ± standard deviation of one metric on one table: a row per method, a column per epsilon."""
    here = [result for result in results if result.table == table]
    epsilons, methods = epsilon_order(here), [method for method in method_order(here) if method != REAL]
    blocks = {epsilon: grid.get((table, epsilon), {}) for epsilon in epsilons}
    winners = find_winners({(table, e): block for e, block in blocks.items()}, higher_is_better=higher_is_better)
    rows, strong = [], set()
    for line, method in enumerate(methods):
        summaries = [blocks[epsilon].get(method) for epsilon in epsilons]
        rows.append((method, *(NONE if summary is None else format_mean(summary) for summary in summaries)))
        for column, epsilon in enumerate(epsilons, start=1):
            winner = winners.get((table, epsilon))
            if winner is not None and winner.method == method:
                strong.add((line, column))
    real = grid.get((table, None), {}).get(REAL)
    ceiling = f"; real data {format_mean(real)}" if real is not None and real.mean is not None else ""
    seeds = count_seeds(
        {block: summaries for block, summaries in grid.items() if block[0] == table and block[1] is not None}
    )
    return TextTable(
        f"{title} on {table}, {seeds}{ceiling}",
        ("method", *(f"ε = {epsilon:g}" for epsilon in epsilons)),
        tuple(rows),
        strong=frozenset(strong),
        is_folded=is_folded,
    )


def make_rank_table(
    ranking: Ranking, wins: Mapping[tuple[str, str], Tally], seeds: str, title: str, *, is_folded: bool = False
) -> TextTable:
    """Mean ranks, and blocks won, tied and lost against all other methods and against the baseline."""
    names = list(ranking.mean_ranks)
    rows = []
    for method in names:
        tallies = [wins[method, other] for other in names if (method, other) in wins]
        counts = [sum(getattr(tally, key) for tally in tallies) for key in ("wins", "ties", "losses")]
        own = wins.get((method, BASELINE))
        rows.append(
            (
                method,
                f"{ranking.mean_ranks[method]:.2f}",
                *(f"{count:,}" for count in counts),
                f"{own.wins} / {own.ties} / {own.losses}" if own else NONE,
            )
        )
    head = ("method", "mean rank", "wins", "ties", "losses", f"against {BASELINE}")
    return TextTable(
        f"Ranks by {title}, {seeds}",
        head,
        tuple(rows),
        note="Wins and losses count pairs of table and epsilon, against each other method, with a difference of more "
        f"than two standard errors. The last column: wins / ties / losses against {BASELINE} alone.",
        is_folded=is_folded,
    )


def seconds_of(results: Iterable[Result]) -> dict[str, dict[str, list[float]]]:
    """Seconds of all cells that are done, by table and method."""
    seconds: dict[str, dict[str, list[float]]] = {}
    for result in results:
        if result.seconds is not None and not result.is_failed and result.method != REAL:
            seconds.setdefault(result.table, {}).setdefault(result.method, []).append(result.seconds)
    return seconds


def make_time_table(results: Sequence[Result]) -> TextTable:
    """Median seconds of the cells that are done: a row per method, a column per table."""
    seconds, tables = seconds_of(results), table_order(results)
    seeds = len({result.seed for result in results if result.method != REAL})
    methods = [method for method in method_order(results) if method != REAL]
    rows = []
    for method in methods:
        values = [seconds.get(table, {}).get(method) for table in tables]
        failed = sum(result.is_failed for result in results if result.method == method)
        rows.append((method, *(format_seconds(statistics.median(v)) if v else NONE for v in values), str(failed)))
    caption = f"Median time to fit and sample, over all epsilons and {count_of(seeds, 'seed')}"
    return TextTable(caption, ("method", *tables, "failed cells"), tuple(rows))


def make_failure_table(results: Iterable[Result]) -> TextTable | None:
    """Failed cells by method, table and reason; None if there are none."""
    groups: dict[tuple[str, str, str, str], list[Result]] = {}
    for result in results:
        if result.failure is not None:
            groups.setdefault((result.method, result.table, *result.failure), []).append(result)
    if not groups:
        return None
    rows = []
    for (method, table, reason, message), failures in groups.items():
        epsilons = ", ".join(f"{epsilon:g}" for epsilon in epsilon_order(failures)) or NONE
        seeds = ", ".join(str(seed) for seed in sorted({result.seed for result in failures}))
        rows.append((method, table, epsilons, seeds, str(len(failures)), reason, shorten(message, 160)))
    head = ("method", "table", "epsilon", "seeds", "cells", "reason", "message")
    total = sum(len(failures) for failures in groups.values())
    return TextTable(f"{count_of(total, 'failed cell')}", head, tuple(rows), num_labels=2, is_wordy=True)


def make_data_table(results: Sequence[Result]) -> TextTable:
    """The tables of the suite with the number of their training rows and of their cells."""
    rows = []
    for table in table_order(results):
        here = [result for result in results if result.table == table]
        sizes = sorted({result.num_train for result in here if result.num_train is not None})
        seeds = len({result.seed for result in here if result.method != REAL})
        methods = len({result.method for result in here})
        failed = sum(result.is_failed for result in here)
        train = " to ".join(f"{size:,}" for size in sizes[:: max(len(sizes) - 1, 1)]) or NONE
        rows.append((table, train, str(methods), str(seeds), f"{len(here):,}", str(failed)))
    head = ("table", "training rows", "methods", "seeds", "cells", "failed")
    return TextTable("Tables", head, tuple(rows), note="")
