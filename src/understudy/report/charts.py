"""Charts as figures of inline SVG, each with the table of its data.

A mark carries the number of its row in that table (`data-r`) and, where a row holds several methods, of its column
(`data-c`). The script shows that row as a tooltip; without the script the table is still there.
"""

import dataclasses
import datetime
import html
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from understudy.report.words import finite, listing, minus, number, percent, shortened

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, which colour-blind readers can tell apart."""
DASHES = ("", "5 2", "2 2", "7 2 2 2", "9 3", "1 3")
SHAPES = ("circle", "square", "triangle", "diamond", "wedge", "cross")
GREY, GREY_LINE, INK, RULE = "#d3d3cf", "#8b8b86", "#2a2a28", "#b9b9b4"

REAL_LINE = f'fill="none" stroke="{INK}" stroke-width="2.4" stroke-opacity="0.55"'

WIDTH = 340
"""Of every panel, in units that are pixels on a telephone; panels never grow, so that all letters have one size."""
MAX_HEAT_COLUMNS, MANY = 40, 20
"""Columns of a heat map: at most, and from which number on it gets more room."""
MAX_LEVELS = 10
MAX_TABLE_ROWS = 1_000


def esc(text: object) -> str:
    """Any text, safe inside elements and quoted attributes; control signs become spaces."""
    plain = "".join(c if c.isprintable() or c in "\u00a0\u200d\ufe0f" else " " for c in str(text))
    return html.escape(plain, quote=True)


@dataclasses.dataclass(frozen=True)
class Look:
    """How one method is drawn on the whole page."""

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
        return (
            f'<svg class="key" viewBox="0 0 30 12" aria-hidden="true"><path d="M1 6H29" {self.line}/>'
            f"{self.mark(15, 6, 4.2)}</svg>"
        )


def looks(methods: Sequence[str]) -> list[Look]:
    """Colour, dash and shape together tell about thirty methods apart; six differ in all three."""
    count = len(COLOURS)
    return [
        Look(name, COLOURS[i % count], DASHES[(i + i // count) % count], SHAPES[(i + i // count) % count])
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


def legend(methods: Sequence[Look], real: str = "bar") -> str:
    """Which colour, dash and shape is whose; real rows are a bar, a line or a dot."""
    drawn = {
        "bar": f'<rect x="1" y="2" width="28" height="8" fill="{GREY}" stroke="{GREY_LINE}"/>',
        "line": f'<path d="M1 6H29" {REAL_LINE}/>',
        "dot": f'<circle cx="15" cy="6" r="4.6" fill="{GREY}" stroke="{INK}"/>',
    }[real]
    grey = f'<svg class="key" viewBox="0 0 30 12" aria-hidden="true">{drawn}</svg>'
    words = "real rows" if real == "bar" else "trained on real rows"
    items = [f"<li>{grey}{words}</li>", *(f"<li>{look.key}{name_tag(look.name)}</li>" for look in methods)]
    return f'<ul class="legend">{"".join(items)}</ul>'


def name_tag(name: object, most: int = 28) -> str:
    """A name that may be very long, with all of it on hover."""
    short = shortened(str(name), most)
    full = f' title="{esc(name)}"' if short != str(name) else ""
    return f"<span{full}>{esc(short)}</span>"


# Figures


def figure(
    panels: Sequence[str],
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    note: str = "",
    kind: str = "",
) -> str:
    """Panels over the table of their data. `title` and `note` are HTML, the table is text."""
    caption = f"<figcaption>{title}</figcaption>" if title else ""
    words = f'<p class="note">{note}</p>' if note else ""
    return (
        f'<figure class="chart {kind}">{caption}<div class="panels">{"".join(panels)}</div>{words}'
        f"{data_table(head, rows)}</figure>"
    )


def data_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The data behind a chart, folded away."""
    cells = "".join(f"<th scope=col>{esc(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{esc(cell)}' for cell in row)}" for row in rows)
    return (
        f'<details class="data"><summary>Show data</summary><div class="scroll" tabindex="0" role="region" '
        f'aria-label="Data of the chart"><table><thead><tr>{cells}</thead><tbody>{body}</tbody></table></div></details>'
    )


def panel(body: str, label: str, *, width: float = WIDTH, height: float, heading: str = "") -> str:
    """One drawing. It takes the keyboard as a whole: arrow keys step through its marks."""
    said = f"{label} Arrow keys step through the values."
    title = f"<h4>{heading}</h4>" if heading else ""
    return (
        f'<div class="panel">{title}<svg viewBox="0 0 {width:g} {height:g}" style="max-width:{width:g}px" '
        f'role="img" aria-roledescription="chart" tabindex="0" aria-label="{esc(said)}">{body}</svg></div>'
    )


def text(
    x: float, y: float, words: str, *, anchor: str = "start", room: float = 1e9, size: float = 11.0, extra: str = ""
) -> str:
    """A label, cut to the room it has; what is cut off is told on hover."""
    plain = " ".join(words.split())
    short = _cut(plain, room / size)
    full = f"<title>{esc(plain)}</title>" if short != plain else ""
    at = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{at}{extra}>{full}{esc(short)}</text>'


def centred(x: float, y: float, words: str, *, right: float = WIDTH) -> str:
    """A label around a point, moved where it would leave the drawing or pass `right`."""
    half = breadth(words) / 2
    return text(max(min(x, right - half), half), y, words, anchor="middle")


def breadth(words: str, size: float = 11.0) -> float:
    """About how wide a text is, by the widest of the common fonts."""
    return size * sum(map(_em, words))


def _em(sign: str) -> float:
    if unicodedata.combining(sign):
        return 0.0
    if unicodedata.east_asian_width(sign) in "WF":
        return 1.3
    if sign in "fijlrtI.,:;|!'()[]- ":
        return 0.4
    return 1.0 if sign in "mwMW@%…" else 0.72 if sign.isupper() else 0.64


def _cut(words: str, ems: float) -> str:
    if sum(map(_em, words)) <= ems:
        return words
    used, kept = 1.0, ""
    for sign in words:
        used += _em(sign)
        if used > ems:
            break
        kept += sign
    return kept.rstrip() + "…"


def line(x1: float, y1: float, x2: float, y2: float, colour: str = RULE, extra: str = "") -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}" fill="none"{extra}/>'


def hit(x: float, y: float, width: float, height: float, row: int, column: int | None = None) -> str:
    """An unseen area that stands for one row of the table."""
    which = "" if column is None else f' data-c="{column}"'
    return (
        f'<rect class="m hit" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.1):.1f}" height="{height:.1f}" '
        f'data-r="{row}"{which}/>'
    )


def ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Round values within the range, about `most` of them."""
    if not high > low:
        return [low]
    raw = (high - low) / most
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(s * scale for s in (1, 2, 2.5, 5, 10) if s * scale >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_label(value: float) -> str:
    size = abs(value)
    if size >= 1e6:
        return minus(f"{value / 1e6:.4g}M")
    if size >= 1e4:
        return minus(f"{value / 1e3:.4g}k")
    return minus(f"{round(value, 10):.4g}")


def day(days: float) -> str:
    """A date from its number of days since 1970; far dates as their number."""
    try:
        return (datetime.date(1970, 1, 1) + datetime.timedelta(days=round(days))).isoformat()
    except OverflowError:
        return tick_label(days)


_DATES = {"date": day, "datetime": lambda moment: day(moment // 86_400e6)}
"""Kinds of column whose numbers are days, or microseconds, since 1970."""


def shares_of(values: Iterable[object]) -> list[float]:
    """Shares as numbers, nothing for what is null."""
    return [finite(value) or 0.0 for value in values]


# One column


def histogram(
    name: str, columns: Mapping[str, Mapping[str, Any]], methods: Sequence[Look], distances: str, note: str = ""
) -> str:
    """One column in the real table (grey) and in each synthetic one. `columns` holds the detail of each method."""
    shown = [look for look in methods if look.name in columns]
    first = columns[shown[0].name]
    heading = f'<span class="name" title="{esc(name)}">{esc(shortened(name, 60))}</span> {distances}'
    head = ["value", "real", *(look.name for look in shown)]
    if first.get("kind") == "numeric":
        series = [shares_of(first["real"]), *(shares_of(columns[look.name]["synthetic"]) for look in shown)]
        return _numeric(name, heading, head, first, series, shown, columns, note)
    # A table lists "(missing)" and "(unlisted)" only where it has any, so levels are matched by name.
    found = [_by_label(columns[look.name], "synthetic") for look in shown]
    real = {key: share for look in shown for key, share in _by_label(columns[look.name], "real").items()}
    levels = list(dict.fromkeys(key for each in (_by_label(first, "real"), *found) for key in each))
    series = [[each.get(key, 0.0) for key in levels] for each in (real, *found)]
    return _discrete(name, heading, head, [label for label, _ in levels], series, shown)


def _by_label(column: Mapping[str, Any], which: str) -> dict[tuple[str, int], float]:
    """Shares by label and, as two levels may be written alike, how often that label came before."""
    labels = [str(label) for label in column["labels"]]
    keys = [(label, labels[:i].count(label)) for i, label in enumerate(labels)]
    return dict(zip(keys, shares_of(column[which]), strict=True))


def _numeric(
    name: str,
    heading: str,
    head: list[str],
    first: Mapping[str, Any],
    series: list[list[float]],
    shown: Sequence[Look],
    columns: Mapping[str, Mapping[str, Any]],
    note: str,
) -> str:
    edges = [finite(edge) or 0.0 for edge in first["edges"]]
    written = _DATES.get(str(first.get("type")), tick_label)
    rows = [
        [f"{written(edges[i])} to {written(edges[i + 1])}", *(percent(values[i]) for values in series)]
        for i in range(len(edges) - 1)
    ]
    missing = [shares_of(first.get("missing") or (0, 0))[0]]
    missing += [shares_of(columns[look.name].get("missing") or (0, 0))[1] for look in shown]
    has_missing = any(missing)
    left, top, bottom, height = 36.0, 10.0, 150.0, 172.0
    right = WIDTH - (72.0 if has_missing else 8.0)
    peak = max([*map(max, series), *missing, 1e-9])
    root = peak > 0.5
    span = edges[-1] - edges[0] or 1.0

    def across(value: float) -> float:
        return left + (right - left) * (value - edges[0]) / span

    def down(share: float) -> float:
        part = share / (peak * 1.05)
        return bottom - (bottom - top) * (math.sqrt(part) if root else part)

    def steps(values: list[float]) -> str:
        path = f"M{left:.1f} {bottom:.1f}"
        for i, share in enumerate(values):
            path += f"V{down(share):.1f}H{across(edges[i + 1]):.1f}"
        return f"{path}V{bottom:.1f}"

    body = [_share_axis(peak, down, left, WIDTH - 8.0, root)]
    body.append(f'<path d="{steps(series[0])}" fill="{GREY}" stroke="{GREY_LINE}" stroke-width="0.8"/>')
    body += [f'<path d="{steps(values)}" {look.line}/>' for look, values in zip(shown, series[1:], strict=True)]
    body.append(line(left, bottom, right, bottom, INK))
    marks = ticks(edges[0], edges[-1]) if written is tick_label else [edges[0], (edges[0] + edges[-1]) / 2, edges[-1]]
    room = right + 8 if has_missing else WIDTH
    body += [centred(across(tick), bottom + 14, written(tick), right=room) for tick in marks]
    if has_missing:
        x = WIDTH - 38.0
        body.append(
            f'<rect x="{x}" y="{down(missing[0]):.1f}" width="24" height="{bottom - down(missing[0]):.1f}" '
            f'fill="{GREY}" stroke="{GREY_LINE}" stroke-width="0.8"/>'
        )
        body += [
            line(x, down(v), x + 24, down(v), look.colour, f' stroke-width="1.8" stroke-dasharray="{look.dash}"')
            for look, v in zip(shown, missing[1:], strict=True)
        ]
        body += [line(x, bottom, x + 24, bottom, INK), text(x + 12, bottom + 14, "missing", anchor="middle")]
        body.append(hit(x, top, 24, bottom - top, len(rows)))
        rows.append(["missing", *map(percent, missing)])
    body += [
        hit(across(edges[i]), top, across(edges[i + 1]) - across(edges[i]), bottom - top, i)
        for i in range(len(edges) - 1)
    ]
    label = f"Histogram of {name} in real and synthetic rows, {len(edges) - 1} cells."
    scale = "Square-root scale, so that small shares can be seen." if root else ""
    note = " ".join(filter(None, (scale, esc(note))))
    return figure([panel("".join(body), label, height=height)], head, rows, title=heading, note=note, kind="column")


def _share_axis(peak: float, down: Any, left: float, right: float, root: bool) -> str:
    """Horizontal rules with their shares in percent."""
    shares = [0.01, 0.1, 0.5, 1.0] if root else ticks(0, peak, 3)[1:]
    return "".join(
        line(left, down(share), right, down(share), "#e6e6e1")
        + text(left - 5, down(share) + 3.5, f"{100 * share:.3g} %", anchor="end")
        for share in shares
        if share <= peak * 1.02
    )


def _discrete(
    name: str, heading: str, head: list[str], labels: list[str], series: list[list[float]], shown: Sequence[Look]
) -> str:
    # Values that are no level of the column stand by themselves, however rare.
    odd = [i for i, words in enumerate(labels) if words in ("(missing)", "(unlisted)") and any(s[i] for s in series)]
    order = sorted(
        (i for i, words in enumerate(labels) if words not in ("(missing)", "(unlisted)")), key=lambda i: -series[0][i]
    )
    listed = order if len(order) <= MAX_LEVELS + 1 else order[:MAX_LEVELS]
    rest = order[len(listed) :]
    bars = [(labels[i], [values[i] for values in series]) for i in listed]
    if rest:
        bars.append((f"{len(rest)} other levels", [sum(values[i] for i in rest) for values in series]))
    bars += [(labels[i], [values[i] for values in series]) for i in odd]
    table = bars + [(labels[i], [values[i] for values in series]) for i in rest[:MAX_TABLE_ROWS]]
    rows = [[words, *map(percent, shares)] for words, shares in table]
    note = f"The {MAX_LEVELS} commonest of {len(order)} levels; the table has more." if rest else ""
    label = f"Shares of the levels of {name} in real and synthetic rows."
    drawing = _dots([words for words, _ in bars], [shares for _, shares in bars], shown, label, filled=True)
    return figure([drawing], head, rows, title=heading, note=note, kind="column")


def _dots(
    labels: Sequence[str], bars: Sequence[Sequence[float]], shown: Sequence[Look], label: str, *, filled: bool
) -> str:
    """A line for each label: the real share, as a bar or a dot, and a marker for each method."""
    left = min(max([breadth(words) for words in labels] + [30.0]) + 10, 140.0)
    right, top = WIDTH - 12.0, 16.0
    apart = min(6.0, 36.0 / len(shown))  # markers of several methods must not cover each other
    pitch = max(17.0, apart * (len(shown) - 1) + 10)
    peak = max([value for bar in bars for value in bar] + [1e-9])
    bottom = top + pitch * len(bars)

    def across(share: float) -> float:
        return left + (right - left) * max(share, 0.0) / (peak * 1.03)

    body = []
    for tick in ticks(0, peak, 3):
        body.append(line(across(tick), top - 2, across(tick), bottom, "#e6e6e1"))
        body.append(centred(across(tick), top - 6, f"{100 * tick:.3g} %"))
    for i, (words, bar) in enumerate(zip(labels, bars, strict=True)):
        y = top + pitch * (i + 0.5)
        body.append(text(left - 6, y + 3.5, words, anchor="end", room=left - 6))
        if filled:
            body.append(
                f'<rect x="{left:.1f}" y="{y - pitch / 2 + 2.5:.1f}" width="{across(bar[0]) - left:.1f}" '
                f'height="{pitch - 5:.1f}" fill="{GREY}" stroke="{GREY_LINE}" stroke-width="0.6"/>'
            )
        else:
            body.append(line(across(min(bar)), y, across(max(bar)), y, RULE))
            body.append(f'<circle cx="{across(bar[0]):.1f}" cy="{y:.1f}" r="4.6" fill="{GREY}" stroke="{INK}"/>')
        body += [
            look.mark(across(share), y + apart * (k - (len(shown) - 1) / 2), 3.2, ' stroke="#fff" stroke-width="0.6"')
            for k, (look, share) in enumerate(zip(shown, bar[1:], strict=True))
        ]
        body.append(hit(0, y - pitch / 2, WIDTH, pitch, i))
    body.append(line(left, top - 2, left, bottom, INK))
    return panel("".join(body), label, height=bottom + 6)


# Two columns


def heat_maps(
    names: Sequence[str],
    matrices: Mapping[str, Sequence[Sequence[object]]],
    methods: Sequence[Look],
    *,
    signed: bool,
    what: str,
    worst: int = 5,
) -> str:
    """A triangle of cells for each method on one scale, the worst pairs framed and named.

    Cells are shares; `signed` ones are associations, below zero where they were lost and above where they were gained.
    """
    shown = [look for look in methods if look.name in matrices]
    at = {look.name: matrices[look.name] for look in shown}

    def cell(method: str, i: int, j: int) -> float | None:
        return finite(at[method][i][j])

    def size(i: int, j: int) -> float:
        return max(abs(cell(look.name, i, j) or 0.0) for look in shown)

    kept = list(range(len(names)))
    if len(kept) > MAX_HEAT_COLUMNS:
        furthest = {i: max(size(max(i, j), min(i, j)) for j in range(len(names)) if j != i) for i in kept}
        kept = sorted(sorted(kept, key=lambda i: -furthest[i])[:MAX_HEAT_COLUMNS])
    pairs = [(i, j) for at_i, i in enumerate(kept) for j in kept[:at_i]]
    peak = max([size(i, j) for i, j in pairs] + [1e-9])
    head = ["column", "with", *(look.name for look in shown)]
    rows = [[names[i], names[j], *(_shown(cell(look.name, i, j), signed) for look in shown)] for i, j in pairs]
    panels = []
    for index, look in enumerate(shown):
        values = {pair: cell(look.name, *pair) for pair in pairs}
        order = sorted((p for p in pairs if values[p]), key=lambda p: -abs(values[p] or 0.0))[:worst]
        panels.append(_triangle(names, kept, values, order, peak, look, index + 2, signed=signed, what=what))
    note = _scale(peak, signed=signed, what=what)
    if len(kept) < len(names):
        note += f"<br>Of {len(names)} columns the {len(kept)} that are furthest off."
    return figure(panels, head, rows, note=note, kind="many" if len(kept) <= MANY else "many wide")


def _triangle(
    names: Sequence[str],
    kept: Sequence[int],
    values: Mapping[tuple[int, int], float | None],
    order: Sequence[tuple[int, int]],
    peak: float,
    look: Look,
    column: int,
    *,
    signed: bool,
    what: str,
) -> str:
    left, low = 92.0, 88.0
    width = WIDTH if len(kept) <= MANY else 1.6 * WIDTH
    side = min((width - left - 4) / max(len(kept) - 1, 1), 34.0)
    place = {i: k for k, i in enumerate(kept)}
    height = side * (len(kept) - 1) + low
    size = min(9.5, side * 0.95)
    small = f' style="font-size:{size:.1f}px"'
    body, frames = [], []
    for row, ((i, j), value) in enumerate(values.items()):
        x, y = left + side * place[j], side * (place[i] - 1) + 2
        colour = shade(value, peak, signed=signed)
        body.append(
            f'<rect class="m" x="{x:.1f}" y="{y:.1f}" width="{side - 0.8:.1f}" height="{side - 0.8:.1f}" '
            f'fill="{colour}" data-r="{row}" data-c="{column}"/>'
        )
        if (i, j) in order:
            frames.append(
                f'<rect class="frame" x="{x - 0.4:.1f}" y="{y - 0.4:.1f}" width="{side:.1f}" height="{side:.1f}"/>'
            )
    for k, i in enumerate(kept):
        if k:
            y = side * (k - 0.5) + 5
            body.append(text(left - 5, y, names[i], anchor="end", room=left - 6, size=size, extra=small))
        if k < len(kept) - 1:
            x, y = left + side * (k + 0.5) + 3, side * (len(kept) - 1) + 9
            turned = f'{small} transform="rotate(-60 {x:.1f} {y:.1f})"'
            body.append(text(x, y, names[i], anchor="end", room=low, size=size, extra=turned))
    items = "".join(
        f"<li>{name_tag(names[i], 24)} × {name_tag(names[j], 24)} <b>{_found(values[(i, j)], signed)}</b></li>"
        for i, j in order
    )
    label = f"Heat map for {look.name}: {what}, for {len(values)} pairs of columns."
    heading = f"{look.key}{name_tag(look.name)}"
    drawing = panel("".join([*body, *frames]), label, width=width, height=height, heading=heading)
    named = f'<ol class="worst">{items}</ol>' if items else ""
    return drawing.removesuffix("</div>") + named + "</div>"


def _shown(value: float | None, signed: bool) -> str:
    return number(value) if signed or value is None else percent(value)


def _found(value: float | None, signed: bool) -> str:
    """What happened to a pair."""
    if not signed or value is None:
        return _shown(value, signed)
    return f"{number(abs(value))} {'lost' if value < 0 else 'gained'}"


def shade(value: float | None, peak: float, *, signed: bool) -> str:
    """White for nothing, blue for the largest; below zero, orange."""
    if value is None:
        return "#ebe5d8"  # no colour of the scale
    part = min(abs(value) / peak, 1.0) ** 0.8
    full = (179, 88, 6) if signed and value < 0 else (8, 60, 122)
    red, green, blue = (round(246 + (each - 246) * part) for each in full)
    return f"#{red:02x}{green:02x}{blue:02x}"


def _scale(peak: float, *, signed: bool, what: str) -> str:
    parts = [-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1] if signed else [0, 0.25, 0.5, 0.75, 1]
    cells = "".join(f'<i style="background:{shade(p * peak, peak, signed=signed)}"></i>' for p in parts)
    low = number(-peak) if signed else "0"
    return (
        f'<span class="scale">{low} {cells} {_shown(peak, signed)}</span> {esc(what)}; framed: the pairs named below '
        "each map."
    )


# Points


@dataclasses.dataclass(frozen=True)
class Frame:
    """A square plot area with its two scales."""

    low: float
    high: float
    left: float = 48.0
    top: float = 8.0
    side: float = WIDTH - 58.0

    @property
    def bottom(self) -> float:
        return self.top + self.side

    @property
    def height(self) -> float:
        return self.bottom + 36

    def x(self, value: float) -> float:
        return self.left + self.side * (value - self.low) / (self.high - self.low)

    def y(self, value: float) -> float:
        return self.bottom - self.side * (value - self.low) / (self.high - self.low)

    def axes(self, across: str, up: str, *, diagonal: bool = True) -> str:
        parts = []
        for tick in ticks(self.low, self.high):
            parts.append(line(self.left, self.y(tick), self.left + self.side, self.y(tick), "#e6e6e1"))
            parts.append(line(self.x(tick), self.top, self.x(tick), self.bottom, "#e6e6e1"))
            parts.append(text(self.left - 5, self.y(tick) + 3.5, tick_label(tick), anchor="end"))
            parts.append(centred(self.x(tick), self.bottom + 14, tick_label(tick)))
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


def framed(values: Sequence[float], low: float | None = None, high: float | None = None) -> Frame:
    """A frame around all values, widened a little where its ends are not given."""
    bottom, top = (
        min([*values, *([low] if low is not None else [])]),
        max([*values, *([high] if high is not None else [])]),
    )
    room = 0.04 * (top - bottom) or 0.5
    return Frame(bottom if bottom == low else bottom - room, top if top == high else top + room)


def scatters(
    head: Sequence[str],
    rows: Sequence[tuple[Sequence[str], float, Mapping[str, float | None]]],
    methods: Sequence[Look],
    *,
    what: str,
    low: float | None = None,
    high: float | None = None,
    note: str = "",
) -> str:
    """A square for each method: the real value across, the synthetic one up; on the diagonal they agree.

    A row is what names the point, the real value, and that of each method.
    """
    shown = [look for look in methods if any(values.get(look.name) is not None for _, _, values in rows)]
    finite_values = [v for _, real, values in rows for v in (real, *values.values()) if v is not None]
    if not finite_values:
        return ""
    frame = framed(finite_values, low, high)
    panels = []
    for index, look in enumerate(shown):
        body = [frame.axes("real rows", "synthetic rows")]
        for row, (_, real, values) in enumerate(rows):
            value = values.get(look.name)
            if value is not None:
                which = f' class="m" fill-opacity="0.65" data-r="{row}" data-c="{len(head) + 1 + index}"'
                body.append(look.mark(frame.x(real), frame.y(value), 3.4, which))
        label = f"Scatter plot for {look.name}: {what}, {len(rows)} points, real across and synthetic up."
        heading = f"{look.key}{name_tag(look.name)}"
        panels.append(panel("".join(body), label, height=frame.height, heading=heading))
    cells = [[*names, number(real), *(number(values.get(look.name)) for look in shown)] for names, real, values in rows]
    return figure(panels, [*head, "real", *(look.name for look in shown)], cells, note=note, kind="many")


def clouds(points: Mapping[str, Mapping[str, Any]], methods: Sequence[Look]) -> str:
    """Rows on the first two principal components of the real table, real ones grey beneath each method's."""
    shown = [look for look in methods if points.get(look.name, {}).get("synthetic")]
    first = points[shown[0].name]
    clouds_of = [
        ("real", _pairs_of(first.get("real") or ())),
        *((m.name, _pairs_of(points[m.name]["synthetic"])) for m in shown),
    ]
    flat = [value for _, cloud in clouds_of for point in cloud for value in point]
    if not flat:
        return ""
    frame = framed(flat)
    explained = [finite(part) for part in first.get("explained") or ()]
    names = [
        f"component {i + 1}" + (f" ({percent(p)} of variance)" if p is not None else "")
        for i, p in enumerate([*explained, None, None][:2])
    ]
    axes = frame.axes(names[0], names[1], diagonal=False)
    under = _cloud(frame, clouds_of[0][1], GREY_LINE, 0.4)
    panels, rows = [], []
    for index, (name, cloud) in enumerate(clouds_of):
        over = _cloud(frame, cloud, shown[index - 1].colour, 0.45) if index else ""
        area = hit(frame.left, frame.top, frame.side, frame.side, index)
        heading = f"{shown[index - 1].key}{name_tag(name)} over real" if index else "real rows alone"
        label = f"Scatter plot of {len(cloud)} {name} rows on the first two principal components of the real table."
        panels.append(panel(axes + under + over + area, label, height=frame.height, heading=heading))
        rows.append([name, f"{len(cloud):,}", *_moments(cloud)])
    head = ["rows", "drawn", "mean 1", "mean 2", "std. dev. 1", "std. dev. 2"]
    heavy = [
        listing([shortened(str(part[0]), 30) for part in component[:4]])
        for component in first.get("loadings") or ()
        if component and all(component)
    ]
    note = " ".join(f"Component {i + 1} weighs most on {part}." for i, part in enumerate(heavy[:2]))
    return figure(panels, head, rows, note=esc(note), kind="many")


def _pairs_of(points: Iterable[Sequence[object]]) -> list[tuple[float, float]]:
    found = [(finite(point[0]), finite(point[1])) for point in points if len(point) > 1]
    return [(x, y) for x, y in found if x is not None and y is not None]


def _cloud(frame: Frame, points: Sequence[tuple[float, float]], colour: str, opacity: float) -> str:
    """All points as one path: a dot is a line of no length with round ends."""
    path = "".join(f"M{frame.x(x):.1f} {frame.y(y):.1f}h0" for x, y in points)
    return f'<path d="{path}" class="cloud" stroke="{colour}" stroke-opacity="{opacity}"/>'


def _moments(points: Sequence[tuple[float, float]]) -> list[str]:
    count = len(points) or 1
    means = [sum(point[k] for point in points) / count for k in (0, 1)]
    spreads = [math.sqrt(sum((point[k] - means[k]) ** 2 for point in points) / count) for k in (0, 1)]
    return [number(value) for value in (*means, *spreads)]


# Learning


def roc_curves(curves: Mapping[str, Mapping[str, Mapping[str, Sequence[object]]]], methods: Sequence[Look]) -> str:
    """A square for each model; `curves` goes from model to source ("real" or a method) to the curve."""
    frame = Frame(0.0, 1.0)
    grid = [i / 20 for i in range(21)]
    panels: list[str] = []
    rows: list[list[str]] = []
    for model, by_source in curves.items():
        body = [frame.axes("false positive rate", "true positive rate")]
        tables = {source: _interpolated(curve, grid) for source, curve in by_source.items()}
        if "real" in by_source:
            body.append(f'<path d="{_curve(frame, by_source["real"])}" {REAL_LINE}/>')
        body += [f'<path d="{_curve(frame, by_source[m.name])}" {m.line}/>' for m in methods if m.name in by_source]
        for i, rate in enumerate(grid):
            step = frame.side / 20
            body.append(hit(frame.x(rate) - step / 2, frame.top, step, frame.side, len(rows)))
            found = [tables[s][i] if s in tables else None for s in ("real", *(look.name for look in methods))]
            rows.append([model_name(model), number(rate), *map(number, found)])
        label = f"ROC curves of {model_name(model)} trained on real and on synthetic rows, tested on real rows."
        panels.append(panel("".join(body), label, height=frame.height, heading=esc(model_name(model))))
    head = ["model", "false positive rate", "real", *(look.name for look in methods)]
    return figure(panels, head, rows, kind="many")


_NAMES = {
    "adaboost": "AdaBoost", "bagging": "bagged trees", "logistic": "logistic regression", "mlp": "neural network",
    "xgboost": "XGBoost", "linear": "linear regression", "auc": "ROC AUC", "pr_auc": "precision-recall AUC", "f1": "F1",
    "r2": "R²", "rmse": "root mean squared error",
}  # fmt: skip


def model_name(key: str) -> str:
    """A model, score or group of scores in words."""
    return _NAMES.get(key, key.replace("_", " "))


def _points(curve: Mapping[str, Sequence[object]]) -> list[tuple[float, float]]:
    return _pairs_of(list(zip(curve["fpr"], curve["tpr"], strict=True)))


def _curve(frame: Frame, curve: Mapping[str, Sequence[object]]) -> str:
    return "M" + "L".join(f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in _points(curve))


def _interpolated(curve: Mapping[str, Sequence[object]], grid: Sequence[float]) -> list[float | None]:
    """The curve's height over each rate; at a step, its top."""
    points = _points(curve)
    heights: list[float | None] = []
    for rate in grid:
        before = [p for p in points if p[0] <= rate]
        after = next((p for p in points if p[0] > rate), None)
        if not before:
            heights.append(None)
        elif after is None or before[-1][0] == rate:
            heights.append(before[-1][1])
        else:
            (x0, y0), (x1, y1) = before[-1], after
            heights.append(y0 + (y1 - y0) * (rate - x0) / (x1 - x0))
    return heights


def importances(by_source: Mapping[str, Mapping[str, object]], methods: Sequence[Look], most: int = 20) -> str:
    """How much each column matters to a model trained on real rows (grey) and on synthetic ones."""
    shown = [look for look in methods if look.name in by_source]
    real = by_source["real"]
    order = sorted(real, key=lambda name: -(finite(real[name]) or 0.0))
    bars = [
        [finite(source.get(name)) or 0.0 for source in (real, *(by_source[m.name] for m in shown))] for name in order
    ]
    rows = [[name, *map(percent_or_less, bar)] for name, bar in zip(order, bars, strict=True)]
    label = "Importance of each column to models trained on real and on synthetic rows."
    drawing = _dots(order[:most], bars[:most], shown, label, filled=False)
    note = f"The {most} most important of {len(order)} columns." if len(order) > most else ""
    return figure([drawing], ["column", "real", *(m.name for m in shown)], rows[:MAX_TABLE_ROWS], note=note)


def percent_or_less(share: float) -> str:
    return percent(share) if share >= 0 else number(share)


def slopes(models: Mapping[str, Sequence[Mapping[str, Any]]], methods: Sequence[Look]) -> str:
    """A segment for each regression, from its error with real training rows to that with synthetic ones."""
    shown = [look for look in methods if models.get(look.name)]
    named = {look.name: {_regressors(m): m for m in models[look.name]} for look in shown}
    keys = list(dict.fromkeys(key for by_key in named.values() for key in by_key))
    values = [
        v
        for by in named.values()
        for m in by.values()
        for s in ("real", "synthetic")
        if (v := finite(m[s])) is not None
    ]
    if not values:
        return ""
    frame = framed(values)
    panels = []
    ends = frame.left + 40, frame.left + frame.side - 40
    for index, look in enumerate(shown):
        body = []
        for tick in ticks(frame.low, frame.high):
            body.append(line(frame.left, frame.y(tick), frame.left + frame.side, frame.y(tick), "#e6e6e1"))
            body.append(text(frame.left - 5, frame.y(tick) + 3.5, tick_label(tick), anchor="end"))
        for x, words in zip(ends, ("real", "synthetic"), strict=True):
            body.append(line(x, frame.top, x, frame.bottom, RULE))
            body.append(centred(x, frame.bottom + 16, f"trained on {words}"))
        for row, key in enumerate(keys):
            model = named[look.name].get(key, {})
            before, after = finite(model.get("real")), finite(model.get("synthetic"))
            if before is None or after is None:
                continue
            body.append(line(ends[0], frame.y(before), ends[1], frame.y(after), look.colour, ' stroke-opacity="0.8"'))
            body.append(f'<circle cx="{ends[0]}" cy="{frame.y(before):.1f}" r="3" fill="{GREY_LINE}"/>')
            which = f' class="m" data-r="{row}" data-c="{index + 2}"'
            body.append(look.mark(ends[1], frame.y(after), 3.6, which))
        label = f"Root mean squared error of {len(keys)} regressions trained on real rows and on those of {look.name}."
        heading = f"{look.key}{name_tag(look.name)}"
        panels.append(panel("".join(body), label, height=frame.height - 10, heading=heading))
    rows: list[list[str]] = []
    for key in keys:
        found = [named[look.name].get(key, {}) for look in shown]
        real = next((model["real"] for model in found if model), None)
        rows.append([key, number(real), *(number(model.get("synthetic")) for model in found)])
    return figure(panels, ["regressors", "real", *(m.name for m in shown)], rows, kind="many")


def _regressors(model: Mapping[str, Any]) -> str:
    named = model["regressors"]
    return named if isinstance(named, str) else ", ".join(map(str, named))
