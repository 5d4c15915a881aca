"""The sections of a benchmark report, from results to text, tables and drawings."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from understudy.benchmark.report import figures, tables
from understudy.benchmark.report.document import (
    Bullets,
    Drawing,
    Drawings,
    Facts,
    Heading,
    Part,
    Section,
    Text,
    TextTable,
)
from understudy.benchmark.report.figures import Curves, Pairs, Style, assign_styles
from understudy.benchmark.report.records import (
    BASELINE,
    REAL,
    Metrics,
    ReportInfo,
    Result,
    epsilon_order,
    method_order,
    metric_order,
    table_order,
)
from understudy.benchmark.report.statistics import (
    Grid,
    Ranking,
    Summary,
    count_seeds,
    count_wins,
    find_winners,
    group_results,
    private_blocks,
    rank_methods,
)
from understudy.report.text import count_of, listing

Build = Callable[[Sequence[Result], ReportInfo, Metrics], list[Section]]
"""Makes the sections of a page from results; `metrics` has the title and direction of each."""

AGREEMENT = "sra"
"""The metric with a section of its own: rankings of models, not utility of rows."""
MAX_CURVES = 4
"""The most metrics that are drawn over epsilon; the tables show all."""
BARS = "Error bars are two standard errors; a line breaks where all cells of an epsilon failed."


def build_sections(results: Sequence[Result], info: ReportInfo, metrics: Metrics) -> list[Section]:
    """Every section that these results can fill."""
    styles = assign_styles(results)
    wrappers = dict.fromkeys(result.wrapper for result in results if result.wrapper)
    sections = [
        Section("summary", "Summary", _summarise(results, info, metrics)),
        Section("ranks", "Ranks", _ranks(results, metrics, styles)),
        Section("curves", "Scores over epsilon", _curves(results, metrics, styles)),
        *(
            Section(f"wrapper-{name}", f"What {wrapper_title(name)} changes", _wrapper_changes(results, metrics, name))
            for name in wrappers
        ),
        Section("scores", "Scores", _scores(results, metrics)),
        Section("agreement", "Ranking agreement", _agreement(results, metrics)),
        Section("times", "Running times", _times(results, styles)),
        Section("front", "Utility against time", _fronts(results, metrics, styles)),
        Section("failures", "Failures", _failures(results)),
        Section("notes", "Notes", _notes(results, info, metrics)),
    ]
    return [section for section in sections if section.parts]


def wrapper_title(wrapper: str) -> str:
    """A wrapper as the literature writes it."""
    return {"quail": "QUAIL", "drs": "DRS"}.get(wrapper, wrapper)


def _utilities(results: Sequence[Result], metrics: Metrics) -> list[str]:
    return [name for name in metric_order(results, metrics) if name != AGREEMENT]


def _ranks(results: Sequence[Result], metrics: Metrics, styles: Mapping[str, Style]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for metric in metric_order(results, metrics):
        title, higher = metrics[metric]
        grid = group_results(results, metric)
        ranking = rank_methods(grid, higher_is_better=higher)
        if ranking is None or ranking.num_blocks < 2:
            continue
        parts.append(Heading(title))
        parts.append(Drawings((figures.draw_ranks(ranking, styles, metric=title),), columns=1))
        missing = f" Left out, since not run in all of these: {listing(ranking.left_out)}." if ranking.left_out else ""
        if ranking.p_value is not None:
            test = f"χ² = {ranking.statistic:.1f}, p {_probability(ranking.p_value)}"
            parts.append(Text(f"Friedman's test of whether all methods are alike: {test}.{missing}", "note"))
        elif missing:
            parts.append(Text(missing.strip(), "note"))
        wins = count_wins(grid, higher_is_better=higher)
        seeds, is_folded = count_seeds(private_blocks(grid)), len(parts) > 3
        parts.append(tables.make_rank_table(ranking, wins, seeds, title, is_folded=is_folded))
    if parts:
        intro = (
            "Methods are ranked within each pair of table and epsilon by their mean over seeds; 1 is best. A method "
            "with a failed cell ranks last there; ties share the mean of their ranks. Where two bars overlap, the mean "
            "ranks differ by less than Nemenyi's critical difference at level 0.05. Epsilons of one table are not "
            "independent, so the test is somewhat too confident."
        )
        parts.insert(0, Text(intro))
    return tuple(parts)


def _probability(p_value: float) -> str:
    return "< 0.001" if p_value < 0.001 else f"= {p_value:.3f}"


def _kinds(results: Sequence[Result]) -> dict[str, list[str]]:
    """Methods by the drawing they are in: plain ones, those of each wrapper, those of other packages."""
    kinds: dict[str, list[str]] = {}
    by_method = {result.method: result for result in results}
    for method in method_order(results):
        if method in (REAL, BASELINE):
            continue
        result = by_method[method]
        kind = "other packages" if result.peer else f"with {wrapper_title(result.wrapper)}" if result.wrapper else ""
        kinds.setdefault(kind, []).append(method)
    if len(kinds) > 1 and "" in kinds:
        kinds = {kind or "plain": methods for kind, methods in kinds.items()}
    return kinds or {"": []}


def _curves(results: Sequence[Result], metrics: Metrics, styles: Mapping[str, Style]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for metric in _utilities(results, metrics)[:MAX_CURVES]:
        grid, title = group_results(results, metric), metrics[metric][0]
        rows: list[Part] = []
        for table in table_order(results):
            drawings = _table_curves(results, grid, table, metrics[metric], styles)
            rows += [Drawings(drawings)] if drawings else []
        if rows:
            better = "Higher" if metrics[metric][1] else "Lower"
            note = f"{better} is better. {BARS} Means over {count_seeds(private_blocks(grid))}."
            parts += [Heading(title), Text(note, "note"), *rows]
    return tuple(parts)


def _table_curves(
    results: Sequence[Result], grid: Grid, table: str, metric: tuple[str, bool], styles: Mapping[str, Style]
) -> tuple[Drawing, ...]:
    """One drawing per kind of method, all with the vertical scale of the table."""
    curves, real = _curves_of(grid, table), grid.get((table, None), {}).get(REAL)
    limits, drawings = figures.curve_values(curves), []
    title, higher = metric
    for kind, methods in _kinds(results).items():
        shown = {name: curves[name] for name in (BASELINE, *methods) if name in curves}
        if any(name != BASELINE for name in shown) and figures.curve_values(shown):
            drawn = figures.draw_curves(
                shown, styles, table=table, metric=title, higher_is_better=higher, kind=kind, real=real, limits=limits
            )
            drawings.append(drawn)
    return tuple(drawings)


def _curves_of(grid: Grid, table: str) -> Curves:
    curves: dict[str, dict[float, Summary]] = {}
    for (name, epsilon), summaries in grid.items():
        if name == table and epsilon is not None:
            for method, summary in summaries.items():
                curves.setdefault(method, {})[epsilon] = summary
    return curves


def _wrapper_changes(results: Sequence[Result], metrics: Metrics, wrapper: str) -> tuple[Part, ...]:
    """Heat maps of wrapped minus plain, for each metric and table."""
    parts: list[Part] = []
    name = wrapper_title(wrapper)
    for metric in _utilities(results, metrics)[:MAX_CURVES]:
        title, higher = metrics[metric]
        grid = group_results(results, metric)
        by_table = {table: _wrapper_pairs(results, grid, table, wrapper) for table in table_order(results)}
        panels = {table: pairs for table, pairs in by_table.items() if pairs}
        if panels:
            peak = figures.largest_change(list(panels.values()))
            drawings = tuple(
                figures.draw_changes(pairs, table=table, metric=title, wrapper=name, higher_is_better=higher, peak=peak)
                for table, pairs in panels.items()
            )
            note = (
                f"{name} minus the plain method, {count_seeds(private_blocks(grid))} each: blue where {name} is "
                "better, orange where it is worse; bold beyond two standard errors; × where all cells of one of "
                "the two failed."
            )
            parts += [Heading(title), Text(note, "note"), Drawings(drawings)]
    return tuple(parts)


def _wrapper_pairs(results: Sequence[Result], grid: Grid, table: str, wrapper: str) -> Pairs:
    """Summaries of wrapped and plain, by inner method and epsilon, where both were run."""
    inner = {r.method: r.inner for r in results if r.wrapper == wrapper and r.inner is not None and r.peer is None}
    pairs: dict[str, dict[float, tuple[Summary, Summary]]] = {}
    for method, core in inner.items():
        for epsilon in epsilon_order(results):
            block = grid.get((table, epsilon), {})
            if method in block and core in block and core is not None:
                pairs.setdefault(core, {})[epsilon] = (block[method], block[core])
    return pairs


def _scores(results: Sequence[Result], metrics: Metrics) -> tuple[Part, ...]:
    parts: list[Part] = []
    for metric in _utilities(results, metrics):
        parts += [Heading(metrics[metric][0]), *_score_tables(results, metric, metrics, is_folded=bool(parts))]
    intro = Text("Mean ± standard deviation over seeds. The best mean for each epsilon is in bold.")
    return (intro, *parts) if parts else ()


def _score_tables(
    results: Sequence[Result], metric: str, metrics: Metrics, *, is_folded: bool = False
) -> list[TextTable]:
    (title, higher), grid = metrics[metric], group_results(results, metric)
    return [
        tables.make_score_table(results, grid, table, title, higher_is_better=higher, is_folded=is_folded)
        for table in table_order(results)
        if any(block[0] == table for block in grid)
    ]


def _agreement(results: Sequence[Result], metrics: Metrics) -> tuple[Part, ...]:
    if AGREEMENT not in metric_order(results, metrics):
        return ()
    grid = group_results(results, AGREEMENT)
    spreads = [summary.std for block in grid.values() for summary in block.values() if summary.std is not None]
    noise = f" Its standard deviation over seeds is {statistics.fmean(spreads):.2f} on average." if spreads else ""
    intro = (
        f"{metrics[AGREEMENT][0]}: the fraction of pairs of models that rank the same after training on synthetic and "
        f"on real rows. With five models it changes in steps of 0.1.{noise}"
    )
    return (Text(intro), *_score_tables(results, AGREEMENT, metrics))


def _times(results: Sequence[Result], styles: Mapping[str, Style]) -> tuple[Part, ...]:
    seconds = tables.seconds_of(results)
    if not seconds:
        return ()
    drawings = tuple(figures.draw_times(found, styles, table=table) for table, found in seconds.items())
    note = "Bars are medians over all epsilons and seeds; thin lines run from the fastest to the slowest cell."
    return (Drawings(drawings, note=note), tables.make_time_table(results))


def _fronts(results: Sequence[Result], metrics: Metrics, styles: Mapping[str, Style]) -> tuple[Part, ...]:
    """At the epsilon nearest to 1, on a logarithmic scale."""
    names, epsilons = _utilities(results, metrics), epsilon_order(results)
    if not names or not epsilons:
        return ()
    metric, epsilon = names[0], min(epsilons, key=lambda epsilon: abs(math.log(epsilon)))
    title, higher = metrics[metric]
    grid, here = group_results(results, metric), [result for result in results if result.epsilon == epsilon]
    seconds, drawings = tables.seconds_of(here), []
    for table, by_method in seconds.items():
        summaries = grid.get((table, epsilon), {})
        points = {
            method: (statistics.fmean(spent), mean)
            for method, spent in by_method.items()
            if method in summaries and (mean := summaries[method].mean) is not None
        }
        if len(points) > 1:
            drawn = figures.draw_front(
                points, styles, table=table, metric=title, epsilon=epsilon, higher_is_better=higher
            )
            drawings.append(drawn)
    note = f"The line joins the methods that no other beats on both. Means over {count_seeds(private_blocks(grid))}."
    return (Drawings(tuple(drawings), note=note),) if drawings else ()


def _failures(results: Sequence[Result]) -> tuple[Part, ...]:
    made = tables.make_failure_table(results)
    return (Text("No cell failed."),) if made is None else (made,)


def _notes(results: Sequence[Result], info: ReportInfo, metrics: Metrics) -> tuple[Part, ...]:
    deltas = sorted({result.delta for result in results if result.delta is not None})
    versions = sorted({result.version for result in results if result.version})
    names = metric_order(results, metrics)
    directions = [f"{metrics[name][0]} ({'higher' if metrics[name][1] else 'lower'} is better)" for name in names]
    items = [
        "Runs are seeded and on public data, so nothing here is private: a seed lets anyone subtract the noise. A "
        "private release is never seeded.",
        "Several runs on one table compose: the epsilon of a cell is that of one run alone.",
        f"Metrics: {listing(directions)}.",
        f"“{REAL}” scores the training rows as if they were synthetic: the ceiling. “{BASELINE}” models "
        "each column on its own: the baseline.",
    ]
    if deltas:
        items.append(f"Delta: {listing([f'{delta:g}' for delta in deltas])}.")
    if versions:
        items.append(f"Understudy {listing(versions)}.")
    parts: list[Part] = [Bullets(tuple(items)), tables.make_data_table(results)]
    if info.footnotes:
        parts += [Heading("Footnotes"), Bullets(info.footnotes)]
    return tuple(parts)


# -------------------------------------------------------------------------------------------------------------- summary


def _summarise(results: Sequence[Result], info: ReportInfo, metrics: Metrics) -> tuple[Part, ...]:
    """The best methods by the first metric, the winners of each table and epsilon, and the size of the suite."""
    if not results:
        return (Text("There are no results yet.", "lead"),)
    if not (names := metric_order(results, metrics)):
        return (Text("No cell has a score.", "lead"), _facts(results, info))
    title, higher = metrics[names[0]]
    grid = group_results(results, names[0])
    ranking = rank_methods(grid, higher_is_better=higher)
    sentences = [
        *(_best_ranks(ranking, title) if ranking else ()),
        *_most_wins(grid, higher),
        *_below_baseline(grid, higher),
        *_name_failures(results),
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
    counts = Counter(winner.method for winner in winners.values())
    clear = sum(winner.is_clear for winner in winners.values())
    named = listing([f"{method} ({count})" for method, count in counts.most_common(3)])
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


def _name_failures(results: Sequence[Result]) -> list[str]:
    reasons = Counter(result.failure[0] for result in results if result.failure)
    if not reasons:
        return ["No cell failed."]
    named = listing([f"{count} ({reason})" for reason, count in reasons.most_common()])
    return [f"{count_of(reasons.total(), 'cell')} failed: {named}."]


def _facts(results: Sequence[Result], info: ReportInfo) -> Facts:
    failed = sum(result.is_failed for result in results)
    private = [result for result in results if result.method != REAL]
    seeds = Counter((result.table, result.method, result.epsilon) for result in private)
    low, high = min(seeds.values(), default=0), max(seeds.values(), default=0)
    machines = tuple(dict.fromkeys(result.machine for result in results if result.machine))
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
