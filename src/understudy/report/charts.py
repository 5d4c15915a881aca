"""Charts: histograms and dot plots, heat maps, scatter plots, point clouds, ROC curves."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from understudy.evaluation.scores import Json
from understudy.report import svg
from understudy.report.markup import esc, name_tag
from understudy.report.svg import Frame, Style
from understudy.report.text import finite, format_fraction, listing, model_name, number, percent, shorten, tick_label

MAX_CATEGORIES = 10
MAX_TABLE_ROWS = 1_000
LEFT, TOP, BOTTOM, HEIGHT = 36.0, 10.0, 150.0, 172.0
"""The plot area of a numeric histogram."""
MAX_HEAT_COLUMNS, MANY = 40, 20
"""Columns of a heat map: the most, and the number above which it gets more room."""
WORST = 5
"""How many pairs of a heat map are framed and named."""


# Single columns


def histogram(name: str, columns: Mapping[str, Json], methods: Sequence[Style], distances: str, note: str = "") -> str:
    """One column in the real table (grey) and in each synthetic one. `columns` holds the details of each method."""
    shown = [style for style in methods if style.name in columns]
    drawn = [columns[style.name] for style in shown]
    series = [_numbers(drawn[0]["real"]), *(_numbers(column["synthetic"]) for column in drawn)]
    draw = _numeric if drawn[0].get("kind") == "numeric" else _discrete
    drawing, rows, remark = draw(name, drawn, series, shown)
    heading = f'<span class="name" title="{esc(name)}">{esc(shorten(name, 60))}</span> {distances}'
    head = ["value", "real", *(style.name for style in shown)]
    note = " ".join(filter(None, (remark, esc(note))))
    return svg.figure([drawing], head, rows, title=heading, note=note, kind="column")


def _numbers(values: Iterable[object]) -> list[float]:
    """Frequencies as numbers, 0 for null."""
    return [finite(value) or 0.0 for value in values]


def _extra(columns: Sequence[Json], key: str) -> list[float]:
    """The frequency of missing or unlisted values: real, then each method."""
    pairs = [_numbers(column.get(key) or (0, 0)) for column in columns]
    return [pairs[0][0], *(pair[1] for pair in pairs)]


def _numeric(
    name: str, columns: Sequence[Json], series: list[list[float]], shown: Sequence[Style]
) -> tuple[str, list[list[str]], str]:
    edges = [finite(edge) or 0.0 for edge in columns[0]["edges"]]
    label = svg.DATES.get(str(columns[0].get("type")), tick_label)
    bins = [f"{label(low)} to {label(high)}" for low, high in itertools.pairwise(edges)]
    rows = [[bin_, *(percent(values[i]) for values in series)] for i, bin_ in enumerate(bins)]
    missing = _extra(columns, "missing")
    right = svg.WIDTH - (72.0 if any(missing) else 8.0)
    peak = max([*map(max, series), *missing, 1e-9])
    root = peak > 0.5

    def across(value: float) -> float:
        return LEFT + (right - LEFT) * (value - edges[0]) / (edges[-1] - edges[0] or 1.0)

    def down(fraction: float) -> float:
        part = fraction / (peak * 1.05)
        return BOTTOM - (BOTTOM - TOP) * (math.sqrt(part) if root else part)

    def steps(values: list[float]) -> str:
        path = "".join(f"V{down(v):.1f}H{across(edge):.1f}" for v, edge in zip(values, edges[1:], strict=True))
        return f"M{LEFT:.1f} {BOTTOM:.1f}{path}V{BOTTOM:.1f}"

    body = [_frequency_axis(peak, down, root)]
    body.append(f'<path d="{steps(series[0])}" {svg.REAL_BAR} stroke-width="0.8"/>')
    body += [f'<path d="{steps(values)}" {style.line}/>' for style, values in zip(shown, series[1:], strict=True)]
    body.append(svg.line(LEFT, BOTTOM, right, BOTTOM, svg.INK))
    marks = svg.ticks(edges[0], edges[-1]) if label is tick_label else [edges[0], (edges[0] + edges[-1]) / 2, edges[-1]]
    room = right + 8 if any(missing) else svg.WIDTH
    body += [svg.centre_text(across(tick), BOTTOM + 14, label(tick), right=room) for tick in marks]
    if any(missing):
        body.append(_missing_bar(missing, shown, down, len(rows)))
        rows.append(["missing", *map(percent, missing)])
    body += [
        svg.hit(across(edges[i]), TOP, across(edges[i + 1]) - across(edges[i]), BOTTOM - TOP, i)
        for i in range(len(bins))
    ]
    what = f"Histogram of {name} in real and synthetic rows, {len(bins)} bins."
    remark = "Square-root scale, so that small frequencies are visible." if root else ""
    return svg.panel("".join(body), what, height=HEIGHT), rows, remark


def _missing_bar(missing: list[float], shown: Sequence[Style], down: Callable[[float], float], row: int) -> str:
    """The bar of missing values, right of a histogram."""
    x, top = svg.WIDTH - 38.0, down(missing[0])
    body = [svg.rect(x, top, 24, BOTTOM - top, f'{svg.REAL_BAR} stroke-width="0.8"')]
    body += [
        svg.line(x, down(v), x + 24, down(v), style.colour, f' stroke-width="1.8" stroke-dasharray="{style.dash}"')
        for style, v in zip(shown, missing[1:], strict=True)
    ]
    body += [svg.line(x, BOTTOM, x + 24, BOTTOM, svg.INK), svg.text(x + 12, BOTTOM + 14, "missing", anchor="middle")]
    return "".join([*body, svg.hit(x, TOP, 24, BOTTOM - TOP, row)])


def _frequency_axis(peak: float, down: Callable[[float], float], root: bool) -> str:
    """Horizontal rules with their frequencies in percent."""
    marks = [0.01, 0.1, 0.5, 1.0] if root else svg.ticks(0, peak, 3)[1:]
    return "".join(
        svg.line(LEFT, down(mark), svg.WIDTH - 8.0, down(mark), "#e6e6e1")
        + svg.text(LEFT - 5, down(mark) + 3.5, f"{100 * mark:.3g}%", anchor="end")
        for mark in marks
        if mark <= peak * 1.02
    )


def _discrete(
    name: str, columns: Sequence[Json], series: list[list[float]], shown: Sequence[Style]
) -> tuple[str, list[list[str]], str]:
    every = list(zip(map(str, columns[0]["labels"]), map(list, zip(*series, strict=True)), strict=True))
    every.sort(key=lambda bar: -bar[1][0])
    listed = every if len(every) <= MAX_CATEGORIES + 1 else every[:MAX_CATEGORIES]
    rest = every[len(listed) :]
    bars = list(listed)
    if rest:
        bars.append((f"{len(rest)} other categories", [sum(part) for part in zip(*(b for _, b in rest), strict=True)]))
    # Values that are not categories get bars of their own, however rare.
    extras = [(f"({key})", _extra(columns, key)) for key in ("missing", "unlisted")]
    bars += [(label, bar) for label, bar in extras if any(bar)]
    rows = [[label, *map(percent, bar)] for label, bar in [*bars, *rest[:MAX_TABLE_ROWS]]]
    remark = f"The {MAX_CATEGORIES} most frequent of {len(every):,} categories; the table has more." if rest else ""
    what = f"Frequencies of the categories of {name} in real and synthetic rows."
    drawing = _dots([label for label, _ in bars], [bar for _, bar in bars], shown, what, filled=True)
    return drawing, rows, remark


def _dots(
    labels: Sequence[str], bars: Sequence[Sequence[float]], shown: Sequence[Style], what: str, *, filled: bool
) -> str:
    """A line for each label: the real value, as a bar or a dot, and a marker for each method."""
    left = min(max([svg.breadth(label) for label in labels] + [30.0]) + 10, 140.0)
    right, top = svg.WIDTH - 12.0, 16.0
    apart = min(6.0, 36.0 / len(shown))  # so that markers of several methods do not cover each other
    pitch = max(17.0, apart * (len(shown) - 1) + 10)
    peak = max([value for bar in bars for value in bar] + [1e-9])
    bottom = top + pitch * len(bars)

    def across(value: float) -> float:
        return left + (right - left) * max(value, 0.0) / (peak * 1.03)

    body = []
    for tick in svg.ticks(0, peak, 3):
        body.append(svg.line(across(tick), top - 2, across(tick), bottom, "#e6e6e1"))
        body.append(svg.centre_text(across(tick), top - 6, f"{100 * tick:.3g}%"))
    for i, (label, bar) in enumerate(zip(labels, bars, strict=True)):
        y = top + pitch * (i + 0.5)
        body.append(svg.text(left - 6, y + 3.5, label, anchor="end", room=left - 6))
        if filled:
            attributes = f'{svg.REAL_BAR} stroke-width="0.6"'
            body.append(svg.rect(left, y - pitch / 2 + 2.5, across(bar[0]) - left, pitch - 5, attributes))
        else:
            body.append(svg.line(across(min(bar)), y, across(max(bar)), y, svg.RULE))
            body.append(f'<circle cx="{across(bar[0]):.1f}" cy="{y:.1f}" r="4.6" {svg.REAL_DOT}/>')
        body += [
            style.mark(across(v), y + apart * (k - (len(shown) - 1) / 2), 3.2, ' stroke="#fff" stroke-width="0.6"')
            for k, (style, v) in enumerate(zip(shown, bar[1:], strict=True))
        ]
        body.append(svg.hit(0, y - pitch / 2, svg.WIDTH, pitch, i))
    body.append(svg.line(left, top - 2, left, bottom, svg.INK))
    return svg.panel("".join(body), what, height=bottom + 6)


def importances(by_source: Mapping[str, Mapping[str, object]], methods: Sequence[Style], max_columns: int = 20) -> str:
    """The importance of each column to a model trained on real rows (grey) and on synthetic ones."""
    shown = [style for style in methods if style.name in by_source]
    real = by_source["real"]
    order = sorted(real, key=lambda name: -(finite(real[name]) or 0.0))
    sources = (real, *(by_source[style.name] for style in shown))
    bars = [[finite(source.get(name)) or 0.0 for source in sources] for name in order]
    rows = [[name, *map(format_fraction, bar)] for name, bar in zip(order, bars, strict=True)]
    what = "Importance of each column to models trained on real and on synthetic rows."
    drawing = _dots(order[:max_columns], bars[:max_columns], shown, what, filled=False)
    note = f"The {max_columns} most important of {len(order)} columns." if len(order) > max_columns else ""
    return svg.figure([drawing], ["column", "real", *(style.name for style in shown)], rows[:MAX_TABLE_ROWS], note=note)


# Two columns


def heat_maps(
    names: Sequence[str],
    matrices: Mapping[str, Sequence[Sequence[object]]],
    methods: Sequence[Style],
    *,
    signed: bool,
    what: str,
) -> str:
    """A triangle of cells for each method on one scale, the worst pairs framed and named.

    Cells are fractions; `signed` ones are differences of associations, negative where the synthetic one is weaker.
    """
    shown = [style for style in methods if style.name in matrices]
    at = {style.name: matrices[style.name] for style in shown}

    def cell(method: str, i: int, j: int) -> float | None:
        return finite(at[method][i][j])

    def size(i: int, j: int) -> float:
        return max(abs(cell(style.name, i, j) or 0.0) for style in shown)

    kept = list(range(len(names)))
    if len(kept) > MAX_HEAT_COLUMNS:
        furthest = {i: max(size(max(i, j), min(i, j)) for j in range(len(names)) if j != i) for i in kept}
        kept = sorted(sorted(kept, key=lambda i: -furthest[i])[:MAX_HEAT_COLUMNS])
    pairs = [(i, j) for at_i, i in enumerate(kept) for j in kept[:at_i]]
    peak = max([size(i, j) for i, j in pairs] + [1e-9])
    head = ["column", "with", *(style.name for style in shown)]
    rows = [[names[i], names[j], *(_format_value(cell(style.name, i, j), signed) for style in shown)] for i, j in pairs]
    scale = _HeatScale(names, kept, peak, signed, what)
    panels = []
    for index, style in enumerate(shown):
        values = {pair: cell(style.name, *pair) for pair in pairs}
        order = sorted((p for p in pairs if values[p]), key=lambda p: -abs(values[p] or 0.0))[:WORST]
        panels.append(_triangle(scale, values, order, style, index + 2))
    note = _scale(peak, signed=signed, what=what)
    if len(kept) < len(names):
        note += f"<br>The {len(kept)} of {len(names)} columns with the largest errors."
    return svg.figure(panels, head, rows, note=note, kind="many" if len(kept) <= MANY else "many wide")


class _HeatScale(NamedTuple):
    """What the heat maps of all methods share."""

    names: Sequence[str]
    kept: Sequence[int]
    """The columns that are drawn."""
    peak: float
    signed: bool
    what: str


def _triangle(
    scale: _HeatScale,
    values: Mapping[tuple[int, int], float | None],
    worst: Sequence[tuple[int, int]],
    style: Style,
    column: int,
) -> str:
    names, kept, peak, signed, what = scale
    left, low = 92.0, 88.0
    width = svg.WIDTH if len(kept) <= MANY else 1.6 * svg.WIDTH
    side = min((width - left - 4) / max(len(kept) - 1, 1), 34.0)
    position = {i: k for k, i in enumerate(kept)}
    height = side * (len(kept) - 1) + low
    size = min(9.5, side * 0.95)
    small = f' style="font-size:{size:.1f}px"'
    body, frames = [], []
    for row, ((i, j), value) in enumerate(values.items()):
        x, y = left + side * position[j], side * (position[i] - 1) + 2
        colour = shade(value, peak, signed=signed)
        which = f'class="m" fill="{colour}" data-r="{row}" data-c="{column}"'
        body.append(svg.rect(x, y, side - 0.8, side - 0.8, which))
        if (i, j) in worst:
            frames.append(svg.rect(x - 0.4, y - 0.4, side, side, 'class="frame"'))
    for k, i in enumerate(kept):
        if k:
            y = side * (k - 0.5) + 5
            body.append(svg.text(left - 5, y, names[i], anchor="end", room=left - 6, size=size, extra=small))
        if k < len(kept) - 1:
            x, y = left + side * (k + 0.5) + 3, side * (len(kept) - 1) + 9
            turned = f'{small} transform="rotate(-60 {x:.1f} {y:.1f})"'
            body.append(svg.text(x, y, names[i], anchor="end", room=low, size=size, extra=turned))
    items = "".join(
        f"<li>{name_tag(names[i], 24)} × {name_tag(names[j], 24)} <b>{_worst_value(values[(i, j)], signed)}</b></li>"
        for i, j in worst
    )
    label = f"Heat map for {style.name}: {what}, for {len(values)} pairs of columns."
    drawing = svg.panel("".join([*body, *frames]), label, width=width, height=height, heading=style.heading())
    named = f'<ol class="worst">{items}</ol>' if items else ""
    return drawing.removesuffix("</div>") + named + "</div>"


def _format_value(value: float | None, signed: bool) -> str:
    return number(value) if signed else format_fraction(value)


def _worst_value(value: float | None, signed: bool) -> str:
    """The value of a pair in the list of the worst."""
    if not signed or value is None:
        return _format_value(value, signed)
    return f"{number(abs(value))} {'weaker' if value < 0 else 'stronger'}"


def shade(value: float | None, peak: float, *, signed: bool) -> str:
    """White for 0, blue for the largest; orange below zero."""
    if value is None:
        return "#ebe5d8"  # not a colour of the scale
    part = min(abs(value) / peak, 1.0) ** 0.8
    full = (179, 88, 6) if signed and value < 0 else (8, 60, 122)
    red, green, blue = (round(246 + (each - 246) * part) for each in full)
    return f"#{red:02x}{green:02x}{blue:02x}"


def _scale(peak: float, *, signed: bool, what: str) -> str:
    parts = [-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1] if signed else [0, 0.25, 0.5, 0.75, 1]
    cells = "".join(f'<i style="background:{shade(p * peak, peak, signed=signed)}"></i>' for p in parts)
    low = number(-peak) if signed else "0"
    return (
        f'<span class="scale">{low} {cells} {_format_value(peak, signed)}</span> {esc(what)}. The framed pairs are '
        "listed below each map."
    )


# Points


def scatters(
    head: Sequence[str],
    rows: Sequence[tuple[Sequence[str], float, Mapping[str, float | None]]],
    methods: Sequence[Style],
    *,
    what: str,
    low: float | None = None,
    high: float | None = None,
    note: str = "",
) -> str:
    """A square for each method: real values across, synthetic ones up.

    A row is the names of the point, its real value, and that of each method.
    """
    shown = [style for style in methods if any(values.get(style.name) is not None for _, _, values in rows)]
    finite_values = [v for _, real, values in rows for v in (real, *values.values()) if v is not None]
    if not finite_values:
        return ""
    frame = svg.frame_around(finite_values, low, high)
    panels = []
    for index, style in enumerate(shown):
        body = [frame.axes("real rows", "synthetic rows")]
        for row, (_, real, values) in enumerate(rows):
            value = values.get(style.name)
            if value is not None:
                which = f' class="m" fill-opacity="0.65" data-r="{row}" data-c="{len(head) + 1 + index}"'
                body.append(style.mark(frame.x(real), frame.y(value), 3.4, which))
        label = f"Scatter plot for {style.name}: {what}, {len(rows)} points, real across and synthetic up."
        panels.append(svg.panel("".join(body), label, height=frame.height, heading=style.heading()))
    cells = [
        [*names, number(real), *(number(values.get(style.name)) for style in shown)] for names, real, values in rows
    ]
    return svg.figure(panels, [*head, "real", *(style.name for style in shown)], cells, note=note, kind="many")


def clouds(points: Mapping[str, Json], methods: Sequence[Style]) -> str:
    """Rows on the first two principal components of the real table, real ones in grey below each method's."""
    shown = [style for style in methods if points.get(style.name, {}).get("synthetic")]
    first = points[shown[0].name]
    clouds_of = [
        ("real", _pairs_of(first.get("real") or ())),
        *((m.name, _pairs_of(points[m.name]["synthetic"])) for m in shown),
    ]
    flat = [value for _, cloud in clouds_of for point in cloud for value in point]
    if not flat:
        return ""
    frame = svg.frame_around(flat)
    explained = [finite(part) for part in first.get("explained") or ()]
    names = [
        f"component {i + 1}" + (f" ({percent(p)} of variance)" if p is not None else "")
        for i, p in enumerate([*explained, None, None][:2])
    ]
    axes = frame.axes(names[0], names[1], diagonal=False)
    under = _cloud(frame, clouds_of[0][1], svg.GREY_LINE, 0.4)
    panels, rows = [], []
    for index, (name, cloud) in enumerate(clouds_of):
        over = _cloud(frame, cloud, shown[index - 1].colour, 0.45) if index else ""
        area = svg.hit(frame.left, frame.top, frame.side, frame.side, index)
        heading = f"{shown[index - 1].key}{name_tag(name)} over real" if index else "real rows alone"
        label = f"Scatter plot of {len(cloud)} {name} rows on the first two principal components of the real table."
        panels.append(svg.panel(axes + under + over + area, label, height=frame.height, heading=heading))
        rows.append([name, f"{len(cloud):,}", *_moments(cloud)])
    head = ["rows", "drawn", "mean 1", "mean 2", "std. dev. 1", "std. dev. 2"]
    heavy = [
        listing([shorten(str(part[0]), 30) for part in component[:4]])
        for component in first.get("loadings") or ()
        if component and all(component)
    ]
    note = " ".join(f"Largest loadings of component {i + 1}: {part}." for i, part in enumerate(heavy[:2]))
    return svg.figure(panels, head, rows, note=esc(note), kind="many")


def _pairs_of(points: Iterable[Sequence[object]]) -> list[tuple[float, float]]:
    pairs = [(finite(point[0]), finite(point[1])) for point in points if len(point) > 1]
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def _cloud(frame: Frame, points: Sequence[tuple[float, float]], colour: str, opacity: float) -> str:
    """All points as one path: a dot is a line of length 0 with round ends."""
    path = "".join(f"M{frame.x(x):.1f} {frame.y(y):.1f}h0" for x, y in points)
    return f'<path d="{path}" class="cloud" stroke="{colour}" stroke-opacity="{opacity}"/>'


def _moments(points: Sequence[tuple[float, float]]) -> list[str]:
    rows = np.array(points or [(0.0, 0.0)])
    return [number(value) for value in (*rows.mean(axis=0).tolist(), *rows.std(axis=0).tolist())]


# Learning


def roc_curves(curves: Mapping[str, Mapping[str, Mapping[str, Sequence[object]]]], methods: Sequence[Style]) -> str:
    """A square for each model; `curves` goes from model to source ("real" or a method) to the curve."""
    frame = Frame(0.0, 1.0)
    grid = [i / 20 for i in range(21)]
    panels: list[str] = []
    rows: list[list[str]] = []
    for model, by_source in curves.items():
        body = [frame.axes("false positive rate", "true positive rate")]
        tables = {source: _interpolate(curve, grid) for source, curve in by_source.items()}
        if "real" in by_source:
            body.append(frame.path(_points(by_source["real"]), svg.REAL_LINE))
        body += [frame.path(_points(by_source[m.name]), m.line) for m in methods if m.name in by_source]
        for i, rate in enumerate(grid):
            step = frame.side / 20
            body.append(svg.hit(frame.x(rate) - step / 2, frame.top, step, frame.side, len(rows)))
            row = [tables[s][i] if s in tables else None for s in ("real", *(style.name for style in methods))]
            rows.append([model_name(model), number(rate), *map(number, row)])
        label = f"ROC curves of {model_name(model)} trained on real and on synthetic rows, tested on real rows."
        panels.append(svg.panel("".join(body), label, height=frame.height, heading=esc(model_name(model))))
    head = ["model", "false positive rate", "real", *(style.name for style in methods)]
    return svg.figure(panels, head, rows, kind="many")


def _points(curve: Mapping[str, Sequence[object]]) -> list[tuple[float, float]]:
    return _pairs_of(list(zip(curve["fpr"], curve["tpr"], strict=True)))


def _interpolate(curve: Mapping[str, Sequence[object]], grid: Sequence[float]) -> list[float | None]:
    """The curve's true positive rate at each false positive rate; at a step, its top."""
    points = _points(curve)
    if not points:
        return [None] * len(grid)
    rates, heights = zip(*points, strict=True)
    return list(map(float, np.interp(grid, rates, heights, left=math.nan)))
