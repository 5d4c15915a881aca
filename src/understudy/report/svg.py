"""SVG primitives: styles of methods, figures with the table of their data, labels, axes.

A mark carries the index of its row in that table (`data-r`) and, where a row holds several methods, of its column
(`data-c`). The script shows that row as a tooltip; without the script the table is still there.
"""

import dataclasses
import datetime
import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

from understudy.evaluation.plot import COLOURS
from understudy.report.markup import esc, name_tag, scroll_table
from understudy.report.text import tick_label

DASHES = ("", "5 2", "2 2", "7 2 2 2", "9 3", "1 3")
SHAPES = ("circle", "square", "triangle", "diamond", "wedge", "cross")
GREY, GREY_LINE, INK, RULE = "#d3d3cf", "#8b8b86", "#2a2a28", "#b9b9b4"

REAL_BAR, REAL_DOT = f'fill="{GREY}" stroke="{GREY_LINE}"', f'fill="{GREY}" stroke="{INK}"'
REAL_LINE = f'fill="none" stroke="{INK}" stroke-width="2.4" stroke-opacity="0.55"'

WIDTH = 340
"""Of every panel, in CSS pixels of a phone; panels never grow, so that all labels have the same size."""


FONT = 11.0
"""The size of labels, in CSS pixels."""


@dataclasses.dataclass(frozen=True)
class Style:
    """Colour, dash and marker of one method on the whole page."""

    name: str
    colour: str
    dash: str
    shape: str

    @property
    def line(self) -> str:
        """Attributes of its lines."""
        dash = f' stroke-dasharray="{self.dash}"' if self.dash else ""
        return f'fill="none" stroke="{self.colour}" stroke-width="1.6"{dash}'

    def mark(self, x: float, y: float, size: float = 4.0, extra: str = "") -> str:
        """Its marker around a point."""
        return f'<path d="{outline(self.shape, x, y, size)}" fill="{self.colour}"{extra}/>'

    @property
    def key(self) -> str:
        """Its line and marker, for legends and headings."""
        return key(f'<path d="M1 6H29" {self.line}/>{self.mark(15, 6, 4.2)}')

    def heading(self, max_length: int = 28) -> str:
        """Its key and its name."""
        return f"{self.key}{name_tag(self.name, max_length)}"


def styles(methods: Sequence[str]) -> list[Style]:
    """A style for each method: about thirty are distinct, and the first six differ in colour, dash and shape."""
    count = len(COLOURS)
    return [
        Style(name, COLOURS[i % count], DASHES[(i + i // count) % count], SHAPES[(i + i // count) % count])
        for i, name in enumerate(methods)
    ]


def outline(shape: str, x: float, y: float, size: float) -> str:
    s, h = round(size, 1), round(size * 0.9, 1)
    match shape:
        case "square":
            return f"M{x - h:.1f} {y - h:.1f}h{2 * h}v{2 * h}h{-2 * h}z"
        case "triangle":
            return f"M{x:.1f} {y - s:.1f}l{s} {1.8 * s:.1f}h{-2 * s}z"
        case "wedge":
            return f"M{x:.1f} {y + s:.1f}l{s} {-1.8 * s:.1f}h{-2 * s}z"
        case "diamond":
            return f"M{x:.1f} {y - 1.2 * s:.1f}l{s} {1.2 * s:.1f}l{-s} {1.2 * s:.1f}l{-s} {-1.2 * s:.1f}z"
        case "cross":
            t = round(size / 3, 1)
            a = round(size - t, 1)
            return f"M{x - t:.1f} {y - s:.1f}h{2 * t}v{a}h{a}v{2 * t}h{-a}v{a}h{-2 * t}v{-a}h{-a}v{-2 * t}h{a}z"
    return f"M{x - s:.1f} {y:.1f}a{s} {s} 0 1 0 {2 * s} 0a{s} {s} 0 1 0 {-2 * s} 0z"


def legend(methods: Sequence[Style], real: str = "bar") -> str:
    """The styles of all methods; real rows are a bar, a line or a dot."""
    drawn = {
        "bar": f'<rect x="1" y="2" width="28" height="8" {REAL_BAR}/>',
        "line": f'<path d="M1 6H29" {REAL_LINE}/>',
        "dot": f'<circle cx="15" cy="6" r="4.6" {REAL_DOT}/>',
    }[real]
    label = "real rows" if real == "bar" else "trained on real rows"
    return list_keys([f"{key(drawn)}{label}", *(style.heading() for style in methods)])


def key(drawn: str) -> str:
    """A small drawing beside a name."""
    return f'<svg class="key" viewBox="0 0 30 12" aria-hidden="true">{drawn}</svg>'


def list_keys(items: Iterable[str]) -> str:
    """Keys with their names, as HTML."""
    return f'<ul class="legend">{"".join(f"<li>{item}</li>" for item in items)}</ul>'


def figure(
    panels: Sequence[str],
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    note: str = "",
    kind: str = "",
) -> str:
    """Panels over the table of their data, which is folded away. `title` and `note` are HTML, the table is text."""
    body = [f"<tr>{''.join(f'<td>{esc(cell)}' for cell in row)}" for row in rows]
    data = scroll_table("Data of the chart", list(map(esc, head)), body, "")
    caption = f"<figcaption>{title}</figcaption>" if title else ""
    remark = f'<p class="note">{note}</p>' if note else ""
    return (
        f'<figure class="chart {kind}">{caption}<div class="panels">{"".join(panels)}</div>{remark}'
        f'<details class="data"><summary>Show data</summary>{data}</details></figure>'
    )


def panel(body: str, label: str, *, width: float = WIDTH, height: float, heading: str = "") -> str:
    """One drawing. It takes the keyboard focus as a whole: arrow keys step through its marks."""
    label = f"{label} Arrow keys step through the values."
    title = f"<h4>{heading}</h4>" if heading else ""
    return (
        f'<div class="panel">{title}<svg viewBox="0 0 {width:g} {height:g}" style="max-width:{width:g}px" '
        f'role="img" aria-roledescription="chart" tabindex="0" aria-label="{esc(label)}">{body}</svg></div>'
    )


def text(
    x: float, y: float, label: str, *, anchor: str = "start", room: float = 1e9, size: float = FONT, extra: str = ""
) -> str:
    """A label, cut to the room it has; the whole of it is shown on hover."""
    plain = " ".join(label.split())
    short = _cut(plain, room / size)
    full = f"<title>{esc(plain)}</title>" if short != plain else ""
    at = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{at}{extra}>{full}{esc(short)}</text>'


def centre_text(x: float, y: float, label: str, *, right: float = WIDTH) -> str:
    """A label around a point, moved where it would leave the drawing or pass `right`."""
    half = breadth(label) / 2
    return text(max(min(x, right - half), half), y, label, anchor="middle")


def breadth(label: str) -> float:
    """The approximate width of a label, in the widest of the common fonts."""
    return FONT * sum(map(_em, label))


def _em(sign: str) -> float:
    if unicodedata.combining(sign):
        return 0.0
    if unicodedata.east_asian_width(sign) in "WF":
        return 1.3
    if sign in "fijlrtI.,:;|!'()[]- ":
        return 0.4
    return 1.0 if sign in "mwMW@%…" else 0.72 if sign.isupper() else 0.64


def _cut(label: str, ems: float) -> str:
    if sum(map(_em, label)) <= ems:
        return label
    used, kept = 1.0, ""
    for sign in label:
        used += _em(sign)
        if used > ems:
            break
        kept += sign
    return kept.rstrip() + "…"


def line(x1: float, y1: float, x2: float, y2: float, colour: str = RULE, extra: str = "") -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}" fill="none"{extra}/>'


def rect(x: float, y: float, width: float, height: float, attributes: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {attributes}/>'


def hit(x: float, y: float, width: float, height: float, row: int) -> str:
    """An invisible area that stands for one row of the table."""
    return rect(x, y, max(width, 0.1), height, f'class="m hit" data-r="{row}"')


def ticks(low: float, high: float, num_ticks: int = 4) -> list[float]:
    """Round values within the range, about `num_ticks` of them."""
    if not high > low:
        return [low]
    raw = (high - low) / num_ticks
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(s * scale for s in (1, 2, 2.5, 5, 10) if s * scale >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def day(days: float) -> str:
    """A date from its number of days since 1970; the number itself if it is out of range."""
    try:
        return (datetime.date(1970, 1, 1) + datetime.timedelta(days=round(days))).isoformat()
    except OverflowError:
        return tick_label(days)


DATES: dict[str, Callable[[float], str]] = {"date": day, "datetime": lambda moment: day(moment // 86_400e6)}
"""Labels of columns whose numbers are days, or microseconds, since 1970."""


@dataclasses.dataclass(frozen=True)
class Frame:
    """A square plot area with its two scales, which have one range unless another one is given for values upwards."""

    low: float
    high: float
    up: tuple[float, float] | None = None
    is_logarithmic: bool = False
    """Both scales; values below the range are at the edge."""
    left: float = 52.0
    top: float = 8.0
    side: float = WIDTH - 66.0

    @property
    def bottom(self) -> float:
        return self.top + self.side

    @property
    def height(self) -> float:
        return self.bottom + 36

    def x(self, value: float) -> float:
        return self.left + self.side * self._part(value, self.low, self.high)

    def y(self, value: float) -> float:
        return self.bottom - self.side * self._part(value, *(self.up or (self.low, self.high)))

    def _part(self, value: float, low: float, high: float) -> float:
        if self.is_logarithmic:
            value, low, high = (math.log10(max(each, low)) for each in (value, low, high))
        return (value - low) / (high - low)

    def path(self, points: Iterable[tuple[float, float]], attributes: str) -> str:
        """A line through points; nothing if there are none."""
        steps = "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)
        return f'<path d="M{steps}" {attributes}/>' if steps else ""

    def axes(
        self,
        across: str,
        up: str,
        *,
        diagonal: bool = True,
        marks: Mapping[float, str] | None = None,
        up_marks: Mapping[float, str] | None = None,
    ) -> str:
        """Rules with labels, by default at round values, and what the scales show."""
        marks = {tick: tick_label(tick) for tick in ticks(self.low, self.high)} if marks is None else marks
        parts = []
        for tick, label in (marks if up_marks is None else up_marks).items():
            parts.append(line(self.left, self.y(tick), self.left + self.side, self.y(tick), "#e6e6e1"))
            parts.append(text(self.left - 5, self.y(tick) + 3.5, label, anchor="end"))
        for tick, label in marks.items():
            parts.append(line(self.x(tick), self.top, self.x(tick), self.bottom, "#e6e6e1"))
            parts.append(centre_text(self.x(tick), self.bottom + 14, label))
        if diagonal:
            ends = self.x(self.low), self.y(self.low), self.x(self.high), self.y(self.high)
            parts.append(line(*ends, GREY_LINE, ' stroke-dasharray="3 3"'))
        parts.append(line(self.left, self.bottom, self.left + self.side, self.bottom, INK))
        parts.append(line(self.left, self.top, self.left, self.bottom, INK))
        middle = self.left + self.side / 2
        parts.append(text(middle, self.bottom + 30, across, anchor="middle", extra=' class="axis"'))
        y = self.top + self.side / 2
        parts.append(text(12, y, up, anchor="middle", extra=f' class="axis" transform="rotate(-90 12 {y:.0f})"'))
        return "".join(parts)


def frame_around(values: Sequence[float], low: float | None = None, high: float | None = None) -> Frame:
    """A frame around all values, widened a little where its ends are not given."""
    bottom = min(values) if low is None else min(low, *values)
    top = max(values) if high is None else max(high, *values)
    room = 0.04 * (top - bottom) or 0.5
    return Frame(bottom if bottom == low else bottom - room, top if top == high else top + room)


Interval = tuple[float, float]


def dumbbells(
    marks: Sequence[tuple[str, float, float]],
    style: Style,
    what: str,
    *,
    high: float = 1.0,
    as_percent: bool = False,
    intervals: Sequence[tuple[Interval, Interval]] = (),
) -> str:
    """A line for each label from the real value (grey) to the synthetic one, or their intervals; labels stand above."""
    pitch, left, right, top = 30.0, 8.0, WIDTH - 12.0, 14.0
    bottom = top + pitch * len(marks)

    def across(value: float) -> float:
        return left + (right - left) * min(value, high) / high

    body = []
    for tick in ticks(0, high, 4):
        body.append(line(across(tick), top, across(tick), bottom, "#e6e6e1"))
        label = f"{100 * tick:.3g}%" if as_percent else f"{tick:.3g}"
        body.append(centre_text(across(tick), top - 4, label))
    for row, (label, real, synthetic) in enumerate(marks):
        y = top + pitch * (row + 0.75)
        body.append(text(left, y - 9, label, room=right - left, extra=' class="axis"'))
        if intervals:
            ours, theirs = intervals[row]
            body.append(line(across(ours[0]), y + 2, across(ours[1]), y + 2, GREY_LINE))
            body.append(line(across(theirs[0]), y - 2, across(theirs[1]), y - 2, style.colour))
        else:
            body.append(line(across(real), y, across(synthetic), y, GREY_LINE, ' stroke-width="1.5"'))
        body.append(f'<circle cx="{across(real):.1f}" cy="{y:.1f}" r="4.8" {REAL_DOT}/>')
        body.append(style.mark(across(synthetic), y, 4.2))
        body.append(hit(0, y - 0.75 * pitch, WIDTH, pitch, row))
    return panel("".join(body), what, height=bottom + 4)
