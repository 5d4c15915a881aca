"""Styles of methods, scales and label placement: what the figures of a benchmark share."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from understudy.benchmark.report.records import BASELINE, REAL, Result, method_order
from understudy.report import svg
from understudy.report.svg import Style
from understudy.report.text import tick_label

GRID = "#e6e6e1"
LABEL_PITCH = 13.0
"""Distance between direct labels, in pixels."""


@dataclasses.dataclass(frozen=True)
class MethodStyle:
    """How one method is drawn in every figure: wrapped methods are hollow and share the colour of the inner one."""

    style: Style
    is_hollow: bool = False

    @property
    def line(self) -> str:
        return self.style.line

    def mark(self, x: float, y: float, size: float = 4.0, extra: str = "") -> str:
        if not self.is_hollow:
            return self.style.mark(x, y, size, extra)
        path = svg.outline(self.style.shape, x, y, size)
        kind = extra.replace(' class="', ' class="hollow ') if "class=" in extra else f' class="hollow"{extra}'
        return f'<path d="{path}" stroke="{self.style.colour}" stroke-width="1.6"{kind}/>'


def assign_styles(results: Iterable[Result]) -> dict[str, MethodStyle]:
    """A style for each method of the records.

    >>> cells = [Result(table="car", method="mst", epsilon=1.0, seed=0)]
    >>> assign_styles(cells)["mst"].is_hollow
    False
    """
    found = list(results)
    inner = {result.method: result.inner for result in found if result.wrapper}
    special = {
        REAL: Style(REAL, svg.INK, "", "square"),
        BASELINE: Style(BASELINE, svg.GREY_LINE, "2 3", "circle"),
    }
    plain = [method for method in method_order(found) if method not in special and method not in inner]
    named = {**special, **{style.name: style for style in svg.styles(plain)}}
    rest = [method for method in inner if inner[method] not in named]
    named |= {style.name: style for style in svg.styles([*plain, *rest])[len(plain) :]}
    styles = {method: MethodStyle(style) for method, style in named.items()}
    for method, core in inner.items():
        base = named[core] if core in named and core is not None else named[method]
        styles[method] = MethodStyle(dataclasses.replace(base, name=method, dash="5 3"), is_hollow=True)
    return styles


@dataclasses.dataclass(frozen=True)
class Scale:
    """Values to pixels, linear or logarithmic.

    >>> Scale(0.01, 100.0, 0.0, 80.0, is_log=True).at(1.0)
    40.0
    """

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        low, high, value = (math.log10(v) for v in (self.low, self.high, value)) if self.is_log else (
            self.low, self.high, value,
        )  # fmt: skip
        return self.start + (self.end - self.start) * (value - low) / (high - low)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values within the scale; on a logarithmic one powers of ten, with others between if few."""
        if not self.is_log:
            return svg.ticks(self.low, self.high, most)
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for digits in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
            found = [
                d * 10.0**p for p in powers for d in digits if self.low * 0.999 <= d * 10.0**p <= self.high * 1.001
            ]
            if len(found) >= 3:
                return found if len(found) <= most + 2 else found[:: math.ceil(len(found) / most)]
        return svg.ticks(self.low, self.high, most)


def scale_around(
    values: Sequence[float], start: float, end: float, *, is_log: bool = False, is_bounded: bool = True
) -> Scale:
    """A scale a little wider than the values. The scale of bounded values in [0, 1] stays there.

    >>> scale_around([0.2, 1.0], 0.0, 100.0).high
    1.0
    """
    low, high = min(values), max(values)
    if is_log:
        room = max((high / low) ** 0.06, 1.15)
        return Scale(low / room, high * room, start, end, is_log=True)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
    within = is_bounded and low >= 0 and high <= 1
    bottom, top = (max(low - room, 0.0), min(high + room, 1.0)) if within else (low - room, high + room)
    return Scale(bottom if top > bottom else bottom - 0.5, top, start, end)


def wants_log(values: Sequence[float]) -> bool:
    """Whether values are positive and span more than a factor of twenty.

    >>> wants_log([1.0, 30.0]), wants_log([0.0, 30.0])
    (True, False)
    """
    return bool(values) and min(values) > 0 and max(values) / min(values) > 20


def spread_labels(
    heights: Mapping[str, float], low: float, high: float, pitch: float = LABEL_PITCH
) -> dict[str, float]:
    """Move labels apart until they do not overlap, in the order of their heights and within the limits.

    >>> spread_labels({"a": 50.0, "b": 51.0}, 0.0, 100.0, pitch=10.0)
    {'a': 45.5, 'b': 55.5}
    """
    groups: list[tuple[list[str], float]] = []
    for name in sorted(heights, key=lambda name: heights[name]):
        names, centre = [name], heights[name]
        while groups and groups[-1][1] + pitch * (len(groups[-1][0]) + len(names)) / 2 > centre + 1e-9:
            other, middle = groups.pop()
            centre = (middle * len(other) + centre * len(names)) / (len(other) + len(names))
            names = other + names
        half = pitch * (len(names) - 1) / 2
        groups.append((names, min(max(centre, low + half), max(high - half, low + half))))
    return {
        name: centre + pitch * (index - (len(names) - 1) / 2)
        for names, centre in groups
        for index, name in enumerate(names)
    }


def x_axis(scale: Scale, ticks: Sequence[float], top: float, bottom: float, title: str) -> str:
    """Ticks and grid lines across, with the axis name below."""
    parts = [svg.line(scale.at(tick), top, scale.at(tick), bottom, GRID) for tick in ticks]
    parts += [svg.text(scale.at(tick), bottom + 14, tick_label(tick), anchor="middle") for tick in ticks]
    parts.append(svg.line(scale.start, bottom, scale.end, bottom, svg.INK))
    middle = (scale.start + scale.end) / 2
    parts.append(svg.text(middle, bottom + 30, title, anchor="middle", extra=' class="axis"'))
    return "".join(parts)


def y_axis(scale: Scale, left: float, right: float, title: str) -> str:
    """Ticks and grid lines up, with the axis name turned beside them."""
    parts = [svg.line(left, scale.at(tick), right, scale.at(tick), GRID) for tick in scale.ticks()]
    parts += [svg.text(left - 5, scale.at(tick) + 3.5, tick_label(tick), anchor="end") for tick in scale.ticks()]
    parts.append(svg.line(left, min(scale.start, scale.end), left, max(scale.start, scale.end), svg.INK))
    middle = (scale.start + scale.end) / 2
    turned = f' class="axis" transform="rotate(-90 12 {middle:.0f})"'
    parts.append(svg.text(12, middle, title, anchor="middle", room=abs(scale.end - scale.start), extra=turned))
    return "".join(parts)
