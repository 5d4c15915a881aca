"""Drawings of results by matplotlib: curves over epsilon, running times, utility against time, mean ranks, changes by
a wrapper."""

import io
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from understudy._version import install_advice
from understudy.benchmark.report.document import Drawing
from understudy.benchmark.report.records import BASELINE, REAL, Result, method_order
from understudy.benchmark.report.statistics import SEPARATION, Ranking, Summary, difference, is_separated, pareto_front
from understudy.errors import ConfigError
from understudy.evaluation.plot import COLOURS, INK
from understudy.report.markup import esc
from understudy.report.text import count_of, listing, minus, number, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS, LINES = ("o", "s", "^", "D", "v", "P"), ("-", "--", "-.", ":")
GREY, PAPER = "#8b8b86", "#ffffff"
WORSE, BETTER = "#f1a340", "#6aa5dc"
WIDTH, HEIGHT, PIXELS = 540.0, 320.0, 100
"""The size of a drawing in pixels, and the number of pixels per inch."""
NAME_LENGTH = 30
"""The longest name of a method in a drawing; the table of its data has the whole name."""
LOG_SPAN = 20.0
"""The ratio of largest to smallest beyond which a scale is logarithmic."""
SHORTEST = 1e-3
"""The fewest seconds that a logarithmic axis shows."""
SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "understudy",  # else ids are random
    "svg.fonttype": "none",  # text stays text
    "font.size": 8.0,
    "figure.titlesize": 9.0,
    "figure.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e1",
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
}

Style = Mapping[str, Any]
"""How lines and markers of a method are drawn: arguments of matplotlib."""
Curves = Mapping[str, Mapping[float, Summary]]
"""The summaries of each method by epsilon."""


def assign_styles(results: Iterable[Result]) -> dict[str, Style]:
    """A style for each method of the records: wrapped methods are hollow and share the colour of the inner one."""
    cells = list(results)
    inner = {result.method: result.inner for result in cells if result.wrapper and result.inner}
    styles: dict[str, Style] = {
        REAL: {"color": INK, "marker": "s"},
        BASELINE: {"color": GREY, "marker": "o", "linestyle": ":"},
    }
    plain = dict.fromkeys(inner.get(method, method) for method in method_order(cells))
    for turn, method in enumerate(method for method in plain if method not in styles):
        again = turn // len(COLOURS)
        styles[method] = {
            "color": COLOURS[turn % len(COLOURS)],
            "marker": MARKERS[(turn + again) % len(MARKERS)],
            "linestyle": LINES[again % len(LINES)],
        }
    hollow = {"linestyle": "--", "markerfacecolor": PAPER}
    return styles | {method: {**styles[core], **hollow} for method, core in inner.items()}


@contextmanager
def canvas(width: float, height: float, title: str, columns: int = 1, rows: int = 1) -> Iterator[tuple["Figure", Any]]:
    """A figure of this size in pixels, and its axes, one or an array. Draw and save it inside the block."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            f"The drawings of a report need matplotlib. Install it with: {install_advice('bench')}"
        ) from None
    settings: dict[Any, Any] = {**matplotlib.rcParamsDefault, **SETTINGS}
    with matplotlib.rc_context(rc=settings):
        figure = Figure(figsize=(width / PIXELS, height / PIXELS), dpi=PIXELS, layout="constrained")
        axes = figure.subplots(rows, columns)
        figure.suptitle(title, x=0.01, ha="left")
        yield figure, axes


def save(
    figure: "Figure", name: str, label: str, *, head: tuple[str, ...] = (), rows: Sequence[tuple[str, ...]] = ()
) -> Drawing:
    """The figure as SVG, the same bytes for the same figure, with `label` for screen readers."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    _, _, picture = written.getvalue().partition("<svg ")
    picture = re.sub(r' id="[A-Za-z0-9.]+_[0-9]+"', "", picture)  # two drawings of a page must not share ids
    return Drawing(name, label, f'<svg role="img" aria-label="{esc(label)}" {picture}', head, tuple(rows))


def file_name(*parts: str) -> str:
    """A file name in lower case from the words of a title."""
    return "-".join(re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts if part)


def wants_log(values: Sequence[float]) -> bool:
    """Whether values are positive and span more than a factor of twenty."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > LOG_SPAN


def _short(names: Iterable[str]) -> list[str]:
    return [shorten(name, NAME_LENGTH) for name in names]


def _height(num_lines: int) -> float:
    """The height of a drawing with a legend of this many lines."""
    return max(HEIGHT, 50 + 16 * num_lines)


# --------------------------------------------------------------------------------------------------------------- scores


def draw_curves(
    curves: Curves,
    styles: Mapping[str, Style],
    *,
    table: str,
    metric: str,
    higher_is_better: bool = True,
    kind: str = "",
    real: Summary | None = None,
    limits: Sequence[float] = (),
) -> Drawing:
    """A metric against epsilon on one table: a line per method, bars of two standard errors, real data as a level.

    `limits` are values that the vertical scale must reach, so that several drawings share it. Errors that span orders
    of magnitude are on a logarithmic scale.
    """
    epsilons = sorted({epsilon for curve in curves.values() for epsilon in curve})
    values, ceiling = [*curve_values(curves), *limits], None if real is None else real.mean
    is_log = wants_log(values) and not higher_is_better
    drawn = ceiling if ceiling is not None and (ceiling > 0 or not is_log) else None  # no place for 0 on a log scale
    title = f"{metric} on {table}" + (f": {kind}" if kind else "") + ("" if drawn == ceiling else "; real data 0")
    with canvas(WIDTH, _height(len(curves) + 1), title) as (figure, axes):
        axes.set(xscale="log", yscale="log" if is_log else "linear", xlabel="epsilon (log scale)", ylabel=metric)
        reached = values if drawn is None else [*values, drawn]
        axes.update_datalim([(epsilon, value) for epsilon in epsilons for value in reached])
        axes.autoscale_view()
        axes.autoscale(enable=False)  # error bars may leave the scale
        axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        axes.xaxis.minorticks_off()
        if drawn is not None:
            axes.axhline(drawn, color=INK, linewidth=1.8, label=REAL)
        for method in sorted(curves, key=lambda method: _last_mean(curves[method]), reverse=True):
            points = sorted(curves[method].items())
            means = [math.nan if point.mean is None else point.mean for _, point in points]
            errors = [SEPARATION * (point.stderr or 0.0) for _, point in points]
            label = shorten(method, NAME_LENGTH)
            axes.errorbar([at for at, _ in points], means, errors, label=label, elinewidth=0.9, **styles[method])
        figure.legend(loc="outside right center")
        level = f" Real data scores {number(ceiling)}." if ceiling is not None else ""
        span = f"from {epsilons[0]:g} to {epsilons[-1]:g} for {listing(list(curves))}"
        return save(
            figure,
            file_name("curves", metric, table, kind),
            f"{metric} on {table} against epsilon {span}.{level}",
            head=("method", "epsilon", "mean", "standard error", "seeds", "failed"),
            rows=[
                (
                    method,
                    f"{epsilon:g}",
                    number(point.mean),
                    number(point.stderr),
                    str(point.num_seeds),
                    str(point.num_failed),
                )
                for method, curve in curves.items()
                for epsilon, point in sorted(curve.items())
            ],
        )


def curve_values(curves: Curves) -> list[float]:
    """Every mean of the curves."""
    return [point.mean for curve in curves.values() for point in curve.values() if point.mean is not None]


def _last_mean(curve: Mapping[float, Summary]) -> float:
    """The mean at the largest epsilon that has one."""
    means = [point.mean for _, point in sorted(curve.items()) if point.mean is not None]
    return means[-1] if means else -math.inf


def draw_ranks(ranking: Ranking, styles: Mapping[str, Style], *, metric: str) -> Drawing:
    """Mean ranks, the best on top; where two bars overlap, Nemenyi's test cannot separate the methods."""
    names, ranks, spread = list(ranking.mean_ranks), list(ranking.mean_ranks.values()), ranking.critical_difference
    title = f"Mean ranks by {metric}, over {ranking.num_blocks} pairs of table and epsilon"
    with canvas(WIDTH + 60, 80 + 17 * len(names), title) as (figure, axes):
        lines = range(len(names))
        if spread is not None:
            axes.errorbar(ranks, lines, xerr=spread / 2, fmt="none", ecolor=GREY, elinewidth=3.5, alpha=0.55)
        for line, (name, rank) in enumerate(ranking.mean_ranks.items()):
            axes.plot([rank], [line], **{**styles[name], "linestyle": "none"})
        shown = zip(_short(names), ranks, strict=True)
        axes.set_yticks(lines, [f"{name}  {rank:.2f}" for name, rank in shown])
        axes.set_ylim(len(names) - 0.4, -0.6)
        critical = "" if spread is None else f"; each bar is as long as the critical difference, {spread:.2f}"
        axes.set_xlabel(f"mean rank, 1 is best{critical}")
        best = listing([f"{name} {rank:.2f}" for name, rank in list(ranking.mean_ranks.items())[:3]])
        noted = "" if spread is None else f" The critical difference is {spread:.2f}."
        return save(
            figure,
            file_name("ranks", metric),
            f"Mean ranks of {len(names)} methods by {metric}, the best first: {best}.{noted}",
            head=("method", "mean rank"),
            rows=[(name, f"{rank:.2f}") for name, rank in ranking.mean_ranks.items()],
        )


# ----------------------------------------------------------------------------------------------------------------- time


def draw_times(seconds: Mapping[str, Sequence[float]], styles: Mapping[str, Style], *, table: str) -> Drawing:
    """The median seconds of each method on one table as bars on a logarithmic axis, with the range of all cells."""
    order = sorted(seconds, key=lambda method: statistics.median(seconds[method]))
    shown = [[max(value, SHORTEST) for value in seconds[method]] for method in order]
    low, middle, high = (np.array([summary(values) for values in shown]) for summary in (min, statistics.median, max))
    with canvas(WIDTH, 70 + 20 * len(order), f"Running time on {table}") as (figure, axes):
        colours = [styles[method]["color"] for method in order]
        hollow = ["markerfacecolor" in styles[method] for method in order]
        bars = axes.barh(
            range(len(order)),
            middle,
            xerr=(middle - low, high - middle),
            height=0.6,
            color=["none" if empty else colour for colour, empty in zip(colours, hollow, strict=True)],
            edgecolor=colours,
            hatch=["////" if empty else "" for empty in hollow],
        )
        axes.bar_label(bars, [format_seconds(value) for value in middle], padding=4, fontsize=7)
        axes.set(xscale="log", xlim=(low.min() / 1.6, high.max() * 2.5), xlabel="seconds to fit and sample (log scale)")
        axes.set_yticks(range(len(order)), _short(order))
        axes.grid(axis="y", visible=False)
        axes.invert_yaxis()
        slowest = f"{order[-1]} takes {format_seconds(middle[-1])}"
        return save(
            figure,
            file_name("times", table),
            f"Median seconds of {count_of(len(order), 'method')} on {table}: {order[0]} is the fastest, {slowest}.",
            head=("method", "median", "minimum", "maximum", "cells"),
            rows=[
                (name, *(f"{value:,.1f}" for value in figures), str(len(seconds[name])))
                for name, *figures in zip(order, middle, low, high, strict=True)
            ],
        )


def format_seconds(seconds: float) -> str:
    """Seconds, minutes or hours."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"


def draw_front(
    points: Mapping[str, tuple[float, float]],
    styles: Mapping[str, Style],
    *,
    table: str,
    metric: str,
    epsilon: float,
    higher_is_better: bool,
) -> Drawing:
    """A metric against seconds at one epsilon; a line joins the methods that no other method beats on both."""
    front = pareto_front(points, higher_is_better=higher_is_better)
    places = {method: (max(seconds, SHORTEST), value) for method, (seconds, value) in points.items()}
    is_log = wants_log([value for _, value in points.values()]) and not higher_is_better
    title = f"{metric} against time on {table}, epsilon {epsilon:g}"
    with canvas(WIDTH, _height(len(points)), title) as (figure, axes):
        axes.set(xscale="log", yscale="log" if is_log else "linear")
        axes.set(xlabel="seconds to fit and sample (log scale)", ylabel=metric)
        axes.plot(*zip(*(places[name] for name in front), strict=True), color=INK, linewidth=1.1, alpha=0.6)
        for method in sorted(places, key=lambda method: places[method][1], reverse=True):
            label, style = shorten(method, NAME_LENGTH), {**styles[method], "linestyle": "none", "markersize": 6}
            axes.plot(*places[method], label=label, **style)
        figure.legend(loc="outside right center")
        return save(
            figure,
            file_name("time", metric, table),
            f"{metric} against seconds on {table} at epsilon {epsilon:g}. On the front: {listing(front)}.",
            head=("method", "seconds", metric, "on the front"),
            rows=[
                (name, f"{spent:,.1f}", number(value), "yes" if name in front else "no")
                for name, (spent, value) in points.items()
            ],
        )


# ------------------------------------------------------------------------------------------------------------- wrappers

Pairs = Mapping[str, Mapping[float, tuple[Summary, Summary]]]
"""By inner method and epsilon: the summaries of the wrapped and of the plain method."""


def largest_change(panels: Sequence[Pairs]) -> float:
    """The end of the scale of all panels: their largest difference, and at least a tenth of their largest mean."""
    pairs = [pair for panel in panels for by_epsilon in panel.values() for pair in by_epsilon.values()]
    gaps = [abs(gap[0]) for pair in pairs if (gap := difference(*pair)) is not None]
    means = [abs(summary.mean) for pair in pairs for summary in pair if summary.mean is not None]
    return max([*gaps, 0.1 * max(means, default=0.0), 1e-9])  # so that noise alone is never in full colour


def draw_changes(
    pairs: Pairs, *, table: str, metric: str, wrapper: str, higher_is_better: bool, peak: float
) -> Drawing:
    """Wrapped minus plain, one row per inner method, one column per epsilon: blue is better, orange worse.

    Differences of more than two standard errors are bold; a cross marks cells where one of the two failed.
    """
    epsilons = sorted({epsilon for by_epsilon in pairs.values() for epsilon in by_epsilon})
    gains = np.full((len(pairs), len(epsilons)), math.nan)
    rows: list[tuple[str, ...]] = []
    width, title = max(300, 110 + 58 * len(epsilons)), f"{metric} on {table}: {wrapper} minus plain"
    with canvas(width, 76 + 24 * len(pairs), title) as (figure, axes):
        from matplotlib.colors import LinearSegmentedColormap

        for line, (inner, by_epsilon) in enumerate(pairs.items()):
            for column, epsilon in enumerate(epsilons):
                if epsilon in by_epsilon:
                    text, gap, kind = _change(*by_epsilon[epsilon])
                    gains[line, column] = (gap if higher_is_better else -gap) / peak
                    weight = "bold" if kind == "separated" else "normal"
                    axes.text(column + 0.5, line + 0.5, text, ha="center", va="center", fontweight=weight)
                    rows.append((inner, f"{epsilon:g}", text, kind))
        colours = LinearSegmentedColormap.from_list("gain", [WORSE, PAPER, BETTER])
        axes.pcolormesh(gains, cmap=colours, vmin=-1, vmax=1, edgecolors="#e6e6e1", linewidth=0.5)
        axes.set_xticks(np.arange(len(epsilons)) + 0.5, [f"{epsilon:g}" for epsilon in epsilons])
        axes.set_yticks(np.arange(len(pairs)) + 0.5, _short(pairs))
        axes.invert_yaxis()
        axes.set_xlabel("epsilon")
        better = sum(row[2].startswith("+") == higher_is_better for row in rows if row[2][0] in "+\N{MINUS SIGN}")
        return save(
            figure,
            file_name(wrapper, metric, table),
            f"{metric} on {table}, {wrapper} minus plain: better in {better} of {len(rows)} pairs.",
            head=("inner method", "epsilon", "difference", "noise"),
            rows=rows,
        )


def _change(wrapped: Summary, plain: Summary) -> tuple[str, float, str]:
    """The text of a difference, its value (0 if one of the two failed) and whether it stands out from the noise."""
    gap = difference(wrapped, plain)
    if gap is None:
        return "×", 0.0, "failed"
    mean, stderr = gap
    if stderr is None:
        return format_change(mean), mean, "single seed"
    return format_change(mean), mean, "separated" if is_separated(mean, stderr) else "within two standard errors"


def format_change(gap: float) -> str:
    """A difference with its sign and two or three digits."""
    digits = f"{gap:+.2f}" if abs(gap) < 9.995 else f"{gap:+,.0f}"
    return minus(digits.replace("+0.00", "0.00").replace("-0.00", "0.00"))
