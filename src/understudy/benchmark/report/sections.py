"""The sections of a benchmark report, from results to text, tables and drawings."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from understudy.benchmark.report import tables
from understudy.benchmark.report.axes import MethodStyle, assign_styles
from understudy.benchmark.report.diagrams import Pairs, draw_changes, draw_ranks, largest_change
from understudy.benchmark.report.document import Bullets, Drawing, Drawings, Heading, Part, Section, Text
from understudy.benchmark.report.figures import Curves, curve_values, draw_curves, draw_front, draw_times
from understudy.benchmark.report.ranks import rank_methods
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
    Summary,
    count_seeds,
    count_wins,
    group_results,
    private_blocks,
)
from understudy.benchmark.report.summary import summarise_suite
from understudy.report.text import listing

AGREEMENT = "sra"
"""The metric with a section of its own: rankings of models, not utility of rows."""
MOST_CURVES = 4
"""The most metrics that are drawn over epsilon; the tables show all."""
BARS = "Error bars are two standard errors; a line breaks where all cells of an epsilon failed."


def build_sections(results: Sequence[Result], info: ReportInfo, metrics: Metrics) -> list[Section]:
    """Every section that these results can fill.

    >>> cell = Result(table="car", method="mst", epsilon=1.0, seed=0, metrics={"f1": 0.5})
    >>> [section.key for section in build_sections([cell], ReportInfo(suite="s", title="T"), {"f1": ("F1", True)})]
    ['summary', 'curves', 'scores', 'failures', 'notes']
    """
    styles = assign_styles(results)
    makers: list[tuple[str, str, Callable[[], tuple[Part, ...]]]] = [
        ("summary", "Summary", lambda: summarise_suite(results, info, metrics)),
        ("ranks", "Ranks", lambda: _ranks(results, metrics, styles)),
        ("curves", "Scores over epsilon", lambda: _curves(results, metrics, styles)),
        *(
            (f"wrapper-{wrapper}", f"What {wrapper_title(wrapper)} changes", _bind_wrapper(results, metrics, wrapper))
            for wrapper in dict.fromkeys(result.wrapper for result in results if result.wrapper)
        ),
        ("scores", "Scores", lambda: _scores(results, metrics)),
        ("agreement", "Ranking agreement", lambda: _agreement(results, metrics)),
        ("times", "Running times", lambda: _times(results, styles)),
        ("front", "Utility against time", lambda: _fronts(results, info, metrics, styles)),
        ("failures", "Failures", lambda: _failures(results)),
        ("notes", "Notes", lambda: _notes(results, info, metrics)),
    ]
    made = [Section(key, title, make()) for key, title, make in makers]
    return [section for section in made if section.parts]


def wrapper_title(wrapper: str) -> str:
    """A wrapper as the literature writes it.

    >>> wrapper_title("quail")
    'QUAIL'
    """
    return {"quail": "QUAIL", "drs": "DRS"}.get(wrapper, wrapper)


def _bind_wrapper(results: Sequence[Result], metrics: Metrics, wrapper: str) -> Callable[[], tuple[Part, ...]]:
    return lambda: wrapper_changes(results, metrics, wrapper)


def _utilities(results: Sequence[Result], metrics: Metrics) -> list[str]:
    return [name for name in metric_order(results, metrics) if name != AGREEMENT]


def _ranks(results: Sequence[Result], metrics: Metrics, styles: Mapping[str, MethodStyle]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for metric in metric_order(results, metrics):
        title, higher = metrics[metric]
        grid = group_results(results, metric)
        ranking = rank_methods(grid, higher_is_better=higher)
        if ranking is None or ranking.num_blocks < 2:
            continue
        parts.append(Heading(title))
        parts.append(Drawings((draw_ranks(ranking, styles, metric=title),), columns=1))
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
            "with a failed cell ranks last there; ties share the mean of their ranks. A bar joins methods whose mean "
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
    found = {result.method: result for result in results}
    for method in method_order(results):
        if method in (REAL, BASELINE):
            continue
        result = found[method]
        kind = "other packages" if result.peer else f"with {wrapper_title(result.wrapper)}" if result.wrapper else ""
        kinds.setdefault(kind, []).append(method)
    if len(kinds) > 1 and "" in kinds:
        kinds = {kind or "plain": methods for kind, methods in kinds.items()}
    return kinds or {"": []}


def _curves(results: Sequence[Result], metrics: Metrics, styles: Mapping[str, MethodStyle]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for metric in _utilities(results, metrics)[:MOST_CURVES]:
        grid, title = group_results(results, metric), metrics[metric][0]
        rows: list[Part] = []
        for table in table_order(results):
            drawings = _table_curves(results, grid, table, title, styles)
            rows += [Drawings(drawings)] if drawings else []
        if rows:
            better = "Higher" if metrics[metric][1] else "Lower"
            note = f"{better} is better. {BARS} Means over {count_seeds(private_blocks(grid))}."
            parts += [Heading(title), Text(note, "note"), *rows]
    return tuple(parts)


def _table_curves(
    results: Sequence[Result], grid: Grid, table: str, title: str, styles: Mapping[str, MethodStyle]
) -> tuple[Drawing, ...]:
    """One drawing per kind of method, all with the vertical scale of the table."""
    curves, real = _curves_of(grid, table), grid.get((table, None), {}).get(REAL)
    limits, drawings = curve_values(curves), []
    for kind, methods in _kinds(results).items():
        shown = {name: curves[name] for name in (BASELINE, *methods) if name in curves}
        if any(name != BASELINE for name in shown) and curve_values(shown):
            drawings.append(draw_curves(shown, styles, table=table, metric=title, kind=kind, real=real, limits=limits))
    return tuple(drawings)


def _curves_of(grid: Grid, table: str) -> Curves:
    curves: dict[str, dict[float, Summary]] = {}
    for (name, epsilon), found in grid.items():
        if name == table and epsilon is not None:
            for method, summary in found.items():
                curves.setdefault(method, {})[epsilon] = summary
    return curves


def wrapper_changes(results: Sequence[Result], metrics: Metrics, wrapper: str) -> tuple[Part, ...]:
    """Heat maps of wrapped minus plain, for each metric and table."""
    parts: list[Part] = []
    name = wrapper_title(wrapper)
    for metric in _utilities(results, metrics)[:MOST_CURVES]:
        title, higher = metrics[metric]
        grid = group_results(results, metric)
        by_table = {table: wrapper_pairs(results, grid, table, wrapper) for table in table_order(results)}
        panels = {table: pairs for table, pairs in by_table.items() if pairs}
        if panels:
            peak = largest_change(list(panels.values()))
            drawings = tuple(
                draw_changes(pairs, table=table, metric=title, wrapper=name, higher_is_better=higher, peak=peak)
                for table, pairs in panels.items()
            )
            note = (
                f"{name} minus the plain method, {count_seeds(private_blocks(grid))} each: blue where {name} is "
                "better, orange where it is worse; bold beyond two standard errors; × where all cells of one of "
                "the two failed."
            )
            parts += [Heading(title), Text(note, "note"), Drawings(drawings)]
    return tuple(parts)


def wrapper_pairs(results: Sequence[Result], grid: Grid, table: str, wrapper: str) -> Pairs:
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
    for index, metric in enumerate(_utilities(results, metrics)):
        title, higher = metrics[metric]
        grid = group_results(results, metric)
        here = [table for table in table_order(results) if any(block[0] == table for block in grid)]
        made = [
            tables.make_score_table(results, grid, table, title, higher_is_better=higher, is_folded=index > 0)
            for table in here
        ]
        parts += [Heading(title), *made]
    if parts:
        intro = "Mean ± standard deviation over seeds. The best mean for each epsilon is in bold."
        parts.insert(0, Text(intro))
    return tuple(parts)


def _agreement(results: Sequence[Result], metrics: Metrics) -> tuple[Part, ...]:
    if AGREEMENT not in metric_order(results, metrics):
        return ()
    title, higher = metrics[AGREEMENT]
    grid = group_results(results, AGREEMENT)
    spreads = [s.std for found in grid.values() for s in found.values() if s.std is not None]
    noise = f" Its standard deviation over seeds is {statistics.fmean(spreads):.2f} on average." if spreads else ""
    intro = (
        f"{title}: the fraction of pairs of models that rank the same after training on synthetic and on real rows. "
        f"With five models it changes in steps of 0.1.{noise}"
    )
    here = [table for table in table_order(results) if any(block[0] == table for block in grid)]
    made = [tables.make_score_table(results, grid, table, title, higher_is_better=higher) for table in here]
    return (Text(intro), *made)


def _times(results: Sequence[Result], styles: Mapping[str, MethodStyle]) -> tuple[Part, ...]:
    seconds = tables.seconds_of(results)
    if not seconds:
        return ()
    drawings = tuple(draw_times(found, styles, table=table) for table, found in seconds.items())
    note = "Bars are medians over all epsilons and seeds; thin lines run from the fastest to the slowest cell."
    return (Drawings(drawings, note=note), tables.make_time_table(results))


def reference_epsilon(results: Sequence[Result]) -> float | None:
    """The epsilon nearest to 1, on a logarithmic scale."""
    found = epsilon_order(results)
    return min(found, key=lambda epsilon: abs(math.log(epsilon))) if found else None


def _fronts(
    results: Sequence[Result], info: ReportInfo, metrics: Metrics, styles: Mapping[str, MethodStyle]
) -> tuple[Part, ...]:
    names, epsilon = _utilities(results, metrics), reference_epsilon(results)
    if not names or epsilon is None:
        return ()
    metric = info.headline if info.headline in names else names[0]
    title, higher = metrics[metric]
    grid, here = group_results(results, metric), [result for result in results if result.epsilon == epsilon]
    seconds, drawings = tables.seconds_of(here), []
    for table, by_method in seconds.items():
        found = grid.get((table, epsilon), {})
        points = {
            method: (statistics.fmean(spent), mean)
            for method, spent in by_method.items()
            if method in found and (mean := found[method].mean) is not None
        }
        if len(points) > 1:
            drawn = draw_front(points, styles, table=table, metric=title, epsilon=epsilon, higher_is_better=higher)
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
