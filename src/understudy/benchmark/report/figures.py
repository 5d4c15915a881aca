"""Drawings of results: curves over epsilon, running times, utility against time."""

import re
import statistics
from collections.abc import Mapping, Sequence

from understudy.benchmark.report.axes import (
    MethodStyle,
    Scale,
    scale_around,
    spread_labels,
    wants_log,
    x_axis,
    y_axis,
)
from understudy.benchmark.report.document import Drawing
from understudy.benchmark.report.records import REAL
from understudy.benchmark.report.statistics import SEPARATION, Summary, pareto_front
from understudy.report import svg
from understudy.report.text import count_of, listing, number

WIDTH, LEFT, LABELS = 480.0, 48.0, 150.0
"""Of a drawing; of its vertical axis; of the direct labels on its right."""

Curves = Mapping[str, Mapping[float, Summary]]
"""The summaries of each method by epsilon."""


def file_name(*parts: str) -> str:
    """A file name in lower case from the words of a title.

    >>> file_name("Curves", "F1 (best)", "adult")
    'curves-f1-best-adult'
    """
    return "-".join(re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts if part)


# Curves over epsilon


def draw_curves(
    curves: Curves,
    styles: Mapping[str, MethodStyle],
    *,
    table: str,
    metric: str,
    kind: str = "",
    real: Summary | None = None,
    limits: Sequence[float] = (),
) -> Drawing:
    """A metric against epsilon on one table: a line per method, bars of two standard errors, real data as a level.

    `limits` are values that the vertical scale must reach, so that several drawings share it.

    >>> from understudy.benchmark.report.records import Result
    >>> from understudy.benchmark.report.axes import assign_styles
    >>> from understudy.benchmark.report.statistics import summarise
    >>> styles = assign_styles([Result(table="car", method="mst", epsilon=1.0, seed=0)])
    >>> draw_curves({"mst": {1.0: summarise([0.5])}}, styles, table="car", metric="F1").rows
    (('mst', '1', '0.500', '–', '1', '0'),)
    """
    epsilons = sorted({epsilon for curve in curves.values() for epsilon in curve})
    right, top, height = WIDTH - LABELS, 8.0, max(236.0, 13.5 * (len(curves) + 1))
    values, ceiling = [*curve_values(curves), *limits], None if real is None else real.mean
    is_log = wants_log(values)
    drawn = ceiling if ceiling is not None and (ceiling > 0 or not is_log) else None  # no place for 0 on a log scale
    up = scale_around(values if drawn is None else [*values, drawn], top + height, top, is_log=is_log)
    across = Scale(epsilons[0] / 1.25, epsilons[-1] * 1.25, LEFT, right, is_log=True)
    body = [x_axis(across, epsilons, top, top + height, "epsilon (log scale)"), y_axis(up, LEFT, right, metric)]
    ends: dict[str, tuple[float, float]] = {}
    rows: list[tuple[str, ...]] = []
    if drawn is not None:
        body.append(svg.line(LEFT, up.at(drawn), right, up.at(drawn), svg.INK, ' stroke-width="2.2"'))
        ends[REAL] = (right, up.at(drawn))
    for method, curve in curves.items():
        body += _curve(method, curve, styles[method], across, up, rows)
        known = [(epsilon, summary.mean) for epsilon, summary in sorted(curve.items()) if summary.mean is not None]
        if known:
            ends[method] = (across.at(known[-1][0]), up.at(known[-1][1]))
    body.append(_end_labels(ends, styles, right, top, top + height))
    shown = listing(list(curves))
    level = f" Real data scores {number(ceiling)}." if ceiling is not None else ""
    return Drawing(
        name=file_name("curves", metric, table, kind),
        title=f"{metric} on {table}" + (f": {kind}" if kind else "") + ("" if drawn == ceiling else "; real data 0"),
        label=f"{metric} on {table} against epsilon from {epsilons[0]:g} to {epsilons[-1]:g} for {shown}.{level}",
        body="".join(body),
        width=WIDTH,
        height=top + height + 36,
        head=("method", "epsilon", "mean", "standard error", "seeds", "failed"),
        rows=tuple(rows),
    )


def curve_values(curves: Curves) -> list[float]:
    """Every mean of the curves; error bars are cut where they leave the scale."""
    return [found.mean for curve in curves.values() for found in curve.values() if found.mean is not None]


def _curve(
    method: str,
    curve: Mapping[float, Summary],
    style: MethodStyle,
    across: Scale,
    up: Scale,
    rows: list[tuple[str, ...]],
) -> list[str]:
    """Line, error bars and markers of one method; the line breaks where an epsilon has no value."""
    path, marks, bars, pen = "", [], [], "M"
    for epsilon, summary in sorted(curve.items()):
        if summary.mean is not None:
            x, y = across.at(epsilon), up.at(summary.mean)
            path, pen = f"{path}{pen}{x:.1f} {y:.1f}", "L"
            bars.append(_error_bar(x, summary, up, style.style.colour))
            marks.append(style.mark(x, y, 3.6, f' class="m" data-r="{len(rows)}"'))
        else:
            pen = "M"
        counts = str(summary.num_seeds), str(summary.num_failed)
        rows.append((method, f"{epsilon:g}", number(summary.mean), number(summary.stderr), *counts))
    return [f'<path d="{path}" {style.line}/>' if path else "", *bars, *marks]


def _error_bar(x: float, summary: Summary, up: Scale, colour: str) -> str:
    """Two standard errors around the mean, cut at the ends of the scale."""
    if not summary.stderr or summary.mean is None:
        return ""
    low, high = (min(max(summary.mean + sign * SEPARATION * summary.stderr, up.low), up.high) for sign in (-1, 1))
    return svg.line(x, up.at(low), x, up.at(high), colour, ' stroke-width="1.2" stroke-opacity="0.7"')


def _end_labels(
    ends: Mapping[str, tuple[float, float]], styles: Mapping[str, MethodStyle], right: float, top: float, bottom: float
) -> str:
    """Names beside the last points of their lines, joined to them by thin lines where they had to move."""
    heights = spread_labels({method: y for method, (_, y) in ends.items()}, top + 4, bottom + 8)
    parts = []
    for method, y in heights.items():
        x, at = ends[method]
        parts.append(svg.line(x + 5, at, right + 14, y, svg.RULE, ' stroke-width="0.8"'))
        if method == REAL:
            parts.append(svg.line(right + 14, y, right + 24, y, svg.INK, ' stroke-width="2.2"'))
        else:
            parts.append(styles[method].mark(right + 19, y, 3.4))
        parts.append(svg.text(right + 28, y + 3.8, method, room=LABELS - 18, extra=' class="axis"'))
    return "".join(parts)


# Running times


def draw_times(seconds: Mapping[str, Sequence[float]], styles: Mapping[str, MethodStyle], *, table: str) -> Drawing:
    """The median seconds of each method on one table as bars on a logarithmic axis, with the range of all cells.

    >>> from understudy.benchmark.report.records import Result
    >>> from understudy.benchmark.report.axes import assign_styles
    >>> styles = assign_styles([Result(table="car", method="mst", epsilon=1.0, seed=0)])
    >>> draw_times({"mst": [2.0, 4.0, 3.0]}, styles, table="car").rows
    (('mst', '3.0', '2.0', '4.0', '3'),)
    """
    order = sorted(seconds, key=lambda method: statistics.median(seconds[method]))
    floor = {method: [max(value, 1e-3) for value in seconds[method]] for method in order}
    every = [value for values in floor.values() for value in values]
    left, top, pitch, right = 148.0, 6.0, 19.0, WIDTH - 62.0
    bottom = top + pitch * len(order)
    first, last = min(every), max(every)
    across = Scale(first / 1.6, max(last * 1.3, first * 4), left, right, is_log=True)
    body = [x_axis(across, across.ticks(), top, bottom, "seconds to fit and sample (log scale)")]
    rows = []
    for index, method in enumerate(order):
        y, values = top + pitch * (index + 0.5), floor[method]
        middle, low, high = statistics.median(values), min(values), max(values)
        body.append(svg.text(left - 6, y + 3.8, method, anchor="end", room=left - 8, extra=' class="axis"'))
        body.append(
            f'<rect class="m" x="{left:.1f}" y="{y - 5:.1f}" height="10" '
            f'width="{max(across.at(middle) - left, 1):.1f}" '
            f'fill="{styles[method].style.colour}" fill-opacity="{0.45 if styles[method].is_hollow else 0.85}" '
            f'data-r="{index}"/>'
        )
        body.append(svg.line(across.at(low), y, across.at(high), y, svg.INK, ' stroke-width="1.2"'))
        body.append(svg.text(across.at(high) + 5, y + 3.8, format_seconds(middle)))
        rows.append((method, *(f"{value:,.1f}" for value in (middle, low, high)), str(len(values))))
    slowest = f"{order[-1]} takes {format_seconds(statistics.median(floor[order[-1]]))}"
    return Drawing(
        name=file_name("times", table),
        title=f"Running time on {table}",
        label=f"Median seconds of {count_of(len(order), 'method')} on {table}: {order[0]} is the fastest, {slowest}.",
        body="".join(body),
        width=WIDTH,
        height=bottom + 36,
        head=("method", "median", "minimum", "maximum", "cells"),
        rows=tuple(rows),
    )


def format_seconds(seconds: float) -> str:
    """Seconds, minutes or hours.

    >>> format_seconds(0.34), format_seconds(95), format_seconds(7200)
    ('0.34 s', '1.6 min', '2 h')
    """
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"


# Utility against time


def draw_front(
    points: Mapping[str, tuple[float, float]],
    styles: Mapping[str, MethodStyle],
    *,
    table: str,
    metric: str,
    epsilon: float,
    higher_is_better: bool,
) -> Drawing:
    """A metric against seconds at one epsilon; a line joins the methods that no other method beats on both.

    >>> from understudy.benchmark.report.records import Result
    >>> from understudy.benchmark.report.axes import assign_styles
    >>> styles = assign_styles([Result(table="car", method="mst", epsilon=1.0, seed=0)])
    >>> draw_front({"mst": (2.0, 0.5)}, styles, table="car", metric="F1", epsilon=1, higher_is_better=True).rows
    (('mst', '2.0', '0.500', 'yes'),)
    """
    front = pareto_front(points, higher_is_better=higher_is_better)
    right, top, height = WIDTH - 20.0, 8.0, 236.0
    seconds, values = [max(s, 1e-3) for s, _ in points.values()], [value for _, value in points.values()]
    spread = max(seconds) / min(seconds)
    across = Scale(
        min(seconds) / max(1.3, spread**0.08), max(seconds) * max(1.6, spread**0.2), LEFT, right, is_log=True
    )
    up = scale_around(values, top + height, top, is_log=wants_log(values))
    at = {method: (across.at(max(s, 1e-3)), up.at(value)) for method, (s, value) in points.items()}
    name = "seconds to fit and sample (log scale)"
    body = [x_axis(across, across.ticks(), top, top + height, name), y_axis(up, LEFT, right, metric)]
    steps = "".join(f"{'M' if not i else 'L'}{at[m][0]:.1f} {at[m][1]:.1f}" for i, m in enumerate(front))
    body.append(f'<path d="{steps}" fill="none" stroke="{svg.INK}" stroke-width="1.4" stroke-opacity="0.6"/>')
    body.append(_point_labels(at, front, (LEFT, right, top, top + height)))
    rows = []
    for index, (method, (x, y)) in enumerate(at.items()):
        body.append(styles[method].mark(x, y, 4.4, f' class="m" data-r="{index}"'))
        found = points[method]
        rows.append((method, f"{found[0]:,.1f}", number(found[1]), "yes" if method in front else "no"))
    return Drawing(
        name=file_name("time", metric, table),
        title=f"{metric} against time on {table}, epsilon {epsilon:g}",
        label=f"{metric} against seconds on {table} at epsilon {epsilon:g}. On the front: {listing(front)}.",
        body="".join(body),
        width=WIDTH,
        height=top + height + 36,
        head=("method", "seconds", metric, "on the front"),
        rows=tuple(rows),
    )


Box = tuple[float, float, float, float]
"""Left, right, top, bottom."""


def _point_labels(at: Mapping[str, tuple[float, float]], front: Sequence[str], area: Box) -> str:
    """Names beside their points, each where it covers no marker and no other name; those on the front are dark."""
    taken: list[Box] = [(x - 5, x + 5, y - 5, y + 5) for x, y in at.values()]
    parts = []
    for method in [*front, *(name for name in at if name not in front)]:
        x, y = at[method]
        wide = svg.breadth(method)
        lefts = (x + 8, x - 8 - wide, x - wide / 2)
        beside, around = [(lefts[0], y + 4), (lefts[1], y + 4)], [(lefts[2], y - 9), (lefts[2], y + 17)]
        places = around + beside if method in front else beside + around  # the line of the front runs beside its points
        places += [(left, y + down) for down in (-8, 16, -20, 28) for left in lefts[:2]]
        boxes = [(left, left + wide, base - 9, base + 2) for left, base in places]
        free = [
            i for i, box in enumerate(boxes) if _fits(box, area) and not any(_overlap(box, other) for other in taken)
        ]
        left, base = places[free[0] if free else 0]
        taken.append(boxes[free[0] if free else 0])
        parts.append(svg.text(left, base, method, extra=' class="axis"' if method in front else ""))
    return "".join(parts)


def _fits(box: Box, area: Box) -> bool:
    return area[0] <= box[0] and box[1] <= area[1] + 20 and area[2] - 4 <= box[2] and box[3] <= area[3]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]
