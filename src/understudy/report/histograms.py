"""Single columns: histograms of numbers, dot plots of categories and of importances."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from understudy.evaluation.scores import Json
from understudy.report import svg
from understudy.report.markup import esc
from understudy.report.svg import Style
from understudy.report.text import finite, format_fraction, percent, shorten, tick_label

MAX_CATEGORIES = 10
MAX_TABLE_ROWS = 1_000
LEFT, TOP, BOTTOM, HEIGHT = 36.0, 10.0, 150.0, 172.0
"""The plot area of a numeric histogram."""


def histogram(name: str, columns: Mapping[str, Json], methods: Sequence[Style], distances: str, note: str = "") -> str:
    """One column in the real table (grey) and in each synthetic one. `columns` holds the details of each method."""
    shown = [style for style in methods if style.name in columns]
    each = [columns[style.name] for style in shown]
    series = [_numbers(each[0]["real"]), *(_numbers(column["synthetic"]) for column in each)]
    draw = _numeric if each[0].get("kind") == "numeric" else _discrete
    drawing, rows, remark = draw(name, each, series, shown)
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
    body = [f'<rect x="{x}" y="{top:.1f}" width="24" height="{BOTTOM - top:.1f}" {svg.REAL_BAR} stroke-width="0.8"/>']
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
        + svg.text(LEFT - 5, down(mark) + 3.5, f"{100 * mark:.3g} %", anchor="end")
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
        body.append(svg.centre_text(across(tick), top - 6, f"{100 * tick:.3g} %"))
    for i, (label, bar) in enumerate(zip(labels, bars, strict=True)):
        y = top + pitch * (i + 0.5)
        body.append(svg.text(left - 6, y + 3.5, label, anchor="end", room=left - 6))
        if filled:
            body.append(
                f'<rect x="{left:.1f}" y="{y - pitch / 2 + 2.5:.1f}" width="{across(bar[0]) - left:.1f}" '
                f'height="{pitch - 5:.1f}" {svg.REAL_BAR} stroke-width="0.6"/>'
            )
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


def importances(by_source: Mapping[str, Mapping[str, object]], methods: Sequence[Style], most: int = 20) -> str:
    """The importance of each column to a model trained on real rows (grey) and on synthetic ones."""
    shown = [style for style in methods if style.name in by_source]
    real = by_source["real"]
    order = sorted(real, key=lambda name: -(finite(real[name]) or 0.0))
    sources = (real, *(by_source[style.name] for style in shown))
    bars = [[finite(source.get(name)) or 0.0 for source in sources] for name in order]
    rows = [[name, *map(format_fraction, bar)] for name, bar in zip(order, bars, strict=True)]
    what = "Importance of each column to models trained on real and on synthetic rows."
    drawing = _dots(order[:most], bars[:most], shown, what, filled=False)
    note = f"The {most} most important of {len(order)} columns." if len(order) > most else ""
    return svg.figure([drawing], ["column", "real", *(style.name for style in shown)], rows[:MAX_TABLE_ROWS], note=note)
