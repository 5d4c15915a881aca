"""The first screen of a report: what won where, how much was run, what failed."""

from collections.abc import Sequence

from understudy.benchmark.report import tables
from understudy.benchmark.report.document import Facts, Part, Text
from understudy.benchmark.report.ranks import Ranking, rank_methods
from understudy.benchmark.report.records import (
    BASELINE,
    REAL,
    Metrics,
    ReportInfo,
    Result,
    epsilon_order,
    metric_order,
    table_order,
)
from understudy.benchmark.report.statistics import (
    Grid,
    count_wins,
    find_winners,
    group_results,
    headline_metric,
)
from understudy.report.text import count_of, listing


def summarise_suite(results: Sequence[Result], info: ReportInfo, metrics: Metrics) -> tuple[Part, ...]:
    """Sentences on the best methods, the winners of each table and epsilon, and the size of the suite.

    >>> parts = summarise_suite([], ReportInfo(suite="smoke", title="Smoke"), {})
    >>> parts[0].text
    'There are no results yet.'
    """
    metric = headline_metric(metric_order(results, metrics), metrics, info.headline)
    if not results:
        return (Text("There are no results yet.", "lead"),)
    if metric is None:
        return (Text("No cell has a score.", "lead"), _facts(results, info))
    title, higher = metrics[metric]
    grid = group_results(results, metric)
    ranking = rank_methods(grid, higher_is_better=higher)
    sentences = [
        *(_best_ranks(ranking, title) if ranking else ()),
        *_most_wins(grid, higher),
        *_below_baseline(grid, higher),
        *_failures(results),
    ]
    won = tables.make_winner_table(grid, title, higher_is_better=higher)
    return (Text(" ".join(sentences), "lead"), _facts(results, info), *((won,) if won.rows else ()))


def _best_ranks(ranking: Ranking, title: str) -> list[str]:
    names = list(ranking.mean_ranks)
    first = (
        f"By {title}, **{names[0]}** has the best mean rank: {ranking.mean_ranks[names[0]]:.2f} among "
        f"{count_of(len(names), 'method')} over {count_of(ranking.num_blocks, 'pair')} of table and epsilon."
    )
    spread = ranking.critical_difference
    if spread is None:
        return [first]
    near = [name for name in names[1:] if ranking.mean_ranks[name] - ranking.mean_ranks[names[0]] < spread]
    if not near:
        return [first, "Its lead exceeds the critical difference."]
    some = (
        listing(near) if len(near) <= 4 else f"{listing(near[:3])} and {len(near) - 3} others".replace(" and ", ", ", 1)
    )
    return [first, f"Nemenyi's test does not separate it from {some}."]


def _most_wins(grid: Grid, higher: bool) -> list[str]:
    winners = find_winners(grid, higher_is_better=higher)
    if len(winners) < 2:
        return []
    counts: dict[str, int] = {}
    for winner in winners.values():
        counts[winner.method] = counts.get(winner.method, 0) + 1
    order = sorted(counts, key=lambda method: -counts[method])[:3]
    clear = sum(winner.is_clear for winner in winners.values())
    named = listing([f"{method} ({counts[method]})" for method in order])
    return [
        f"Most often best among {count_of(len(winners), 'pair')}: {named}. In {clear} of them the best method leads "
        "every other one by more than two standard errors."
    ]


def _below_baseline(grid: Grid, higher: bool) -> list[str]:
    """Methods that lose to the baseline at least as often as they win."""
    wins = count_wins(grid, higher_is_better=higher)
    against = {one: tally for (one, other), tally in wins.items() if other == BASELINE}
    weak = [method for method, tally in against.items() if tally.wins <= tally.losses]
    if not against:
        return []
    if not weak:
        return [f"Every method beats {BASELINE} more often than it loses to it."]
    if not any(tally.wins for tally in against.values()):
        return [f"No method beats {BASELINE} by more than two standard errors; with a single seed none can."]
    verb, lose = ("does", "it loses") if len(weak) == 1 else ("do", "they lose")
    return [f"{listing(weak)} {verb} not beat {BASELINE} more often than {lose} to it."]


def _failures(results: Sequence[Result]) -> list[str]:
    failed = [result for result in results if result.is_failed]
    if not failed:
        return ["No cell failed."]
    reasons: dict[str, int] = {}
    for result in failed:
        reason = result.failure[0] if result.failure else "error"
        reasons[reason] = reasons.get(reason, 0) + 1
    named = listing([f"{count} ({reason})" for reason, count in sorted(reasons.items(), key=lambda pair: -pair[1])])
    return [f"{count_of(len(failed), 'cell')} failed: {named}."]


def _facts(results: Sequence[Result], info: ReportInfo) -> Facts:
    failed = sum(result.is_failed for result in results)
    private = [result for result in results if result.method != REAL]
    seeds = {(r.table, r.method, r.epsilon): 0 for r in private}
    for result in private:
        seeds[result.table, result.method, result.epsilon] += 1
    low, high = min(seeds.values(), default=0), max(seeds.values(), default=0)
    machines = info.machines or tuple(dict.fromkeys(result.machine for result in results if result.machine))
    epsilons = [f"{epsilon:g}" for epsilon in epsilon_order(results)]
    items = [
        ("cells", f"{len(results):,}"),
        ("failed", f"{failed:,}"),
        ("tables", str(len(table_order(results)))),
        ("methods", str(len({result.method for result in private}))),
        ("seeds", str(high) if low == high else f"{low} to {high}"),
        ("epsilons", ", ".join(epsilons) if len(epsilons) <= 8 else f"{epsilons[0]} to {epsilons[-1]}"),
        ("date", info.date),
        ("machine", "; ".join(machines)),
    ]
    return Facts(tuple((name, value) for name, value in items if value))
