"""Charts of several columns or models: heat maps, scatter plots, point clouds, ROC curves, slopes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from understudy.evaluation.scores import Json
from understudy.report import svg
from understudy.report.markup import esc, name_tag
from understudy.report.svg import Frame, Style
from understudy.report.text import finite, format_fraction, listing, model_name, number, percent, shorten, tick_label

MAX_HEAT_COLUMNS, MANY = 40, 20
"""Columns of a heat map: the most, and the number above which it gets more room."""


# Two columns


def heat_maps(
    names: Sequence[str],
    matrices: Mapping[str, Sequence[Sequence[object]]],
    methods: Sequence[Style],
    *,
    signed: bool,
    what: str,
    worst: int = 5,
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
        order = sorted((p for p in pairs if values[p]), key=lambda p: -abs(values[p] or 0.0))[:worst]
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
        body.append(
            f'<rect class="m" x="{x:.1f}" y="{y:.1f}" width="{side - 0.8:.1f}" height="{side - 0.8:.1f}" '
            f'fill="{colour}" data-r="{row}" data-c="{column}"/>'
        )
        if (i, j) in worst:
            frames.append(
                f'<rect class="frame" x="{x - 0.4:.1f}" y="{y - 0.4:.1f}" width="{side:.1f}" height="{side:.1f}"/>'
            )
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
    found = [(finite(point[0]), finite(point[1])) for point in points if len(point) > 1]
    return [(x, y) for x, y in found if x is not None and y is not None]


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
            body.append(f'<path d="{_curve(frame, by_source["real"])}" {svg.REAL_LINE}/>')
        body += [f'<path d="{_curve(frame, by_source[m.name])}" {m.line}/>' for m in methods if m.name in by_source]
        for i, rate in enumerate(grid):
            step = frame.side / 20
            body.append(svg.hit(frame.x(rate) - step / 2, frame.top, step, frame.side, len(rows)))
            found = [tables[s][i] if s in tables else None for s in ("real", *(style.name for style in methods))]
            rows.append([model_name(model), number(rate), *map(number, found)])
        label = f"ROC curves of {model_name(model)} trained on real and on synthetic rows, tested on real rows."
        panels.append(svg.panel("".join(body), label, height=frame.height, heading=esc(model_name(model))))
    head = ["model", "false positive rate", "real", *(style.name for style in methods)]
    return svg.figure(panels, head, rows, kind="many")


def _points(curve: Mapping[str, Sequence[object]]) -> list[tuple[float, float]]:
    return _pairs_of(list(zip(curve["fpr"], curve["tpr"], strict=True)))


def _curve(frame: Frame, curve: Mapping[str, Sequence[object]]) -> str:
    return "M" + "L".join(f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in _points(curve))


def _interpolate(curve: Mapping[str, Sequence[object]], grid: Sequence[float]) -> list[float | None]:
    """The curve's true positive rate at each false positive rate; at a step, its top."""
    points = _points(curve)
    if not points:
        return [None] * len(grid)
    rates, heights = zip(*points, strict=True)
    return np.interp(grid, rates, heights, left=math.nan).tolist()


_SOURCES = ("real", "synthetic")


def slopes(models: Mapping[str, Sequence[Json]], methods: Sequence[Style]) -> str:
    """A segment for each regression, from its error after training on real rows to that after synthetic ones."""
    shown = [style for style in methods if models.get(style.name)]
    named = {style.name: {", ".join(m["regressors"]): m for m in models[style.name]} for style in shown}
    keys = list(dict.fromkeys(key for by_key in named.values() for key in by_key))
    errors = [finite(model[source]) for style in shown for model in models[style.name] for source in _SOURCES]
    values = [error for error in errors if error is not None]
    if not values:
        return ""
    frame = svg.frame_around(values)
    panels = []
    ends = frame.left + 40, frame.left + frame.side - 40
    for index, style in enumerate(shown):
        body = []
        for tick in svg.ticks(frame.low, frame.high):
            body.append(svg.line(frame.left, frame.y(tick), frame.left + frame.side, frame.y(tick), "#e6e6e1"))
            body.append(svg.text(frame.left - 5, frame.y(tick) + 3.5, tick_label(tick), anchor="end"))
        for x, source in zip(ends, _SOURCES, strict=True):
            body.append(svg.line(x, frame.top, x, frame.bottom, svg.RULE))
            body.append(svg.centre_text(x, frame.bottom + 16, f"trained on {source}"))
        for row, key in enumerate(keys):
            model = named[style.name].get(key, {})
            before, after = finite(model.get("real")), finite(model.get("synthetic"))
            if before is None or after is None:
                continue
            body.append(
                svg.line(ends[0], frame.y(before), ends[1], frame.y(after), style.colour, ' stroke-opacity="0.8"')
            )
            body.append(f'<circle cx="{ends[0]}" cy="{frame.y(before):.1f}" r="3" fill="{svg.GREY_LINE}"/>')
            which = f' class="m" data-r="{row}" data-c="{index + 2}"'
            body.append(style.mark(ends[1], frame.y(after), 3.6, which))
        label = f"Root mean squared error of {len(keys)} regressions trained on real rows and on those of {style.name}."
        panels.append(svg.panel("".join(body), label, height=frame.height - 10, heading=style.heading()))
    rows: list[list[str]] = []
    for key in keys:
        found = [named[style.name].get(key, {}) for style in shown]
        real = next((model["real"] for model in found if model), None)
        rows.append([key, number(real), *(number(model.get("synthetic")) for model in found)])
    return svg.figure(panels, ["regressors", "real", *(m.name for m in shown)], rows, kind="many")
