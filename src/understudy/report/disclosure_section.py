"""The disclosure report as HTML: what the attacks found, compared with chance and with what the guarantee allows."""

import math
from collections.abc import Mapping, Sequence

from understudy.disclosure.sentences import ATTACK_NAMES, percent, percent_up
from understudy.evaluation.scores import Json
from understudy.report import svg
from understudy.report.markup import esc, scroll_table
from understudy.report.svg import Style
from understudy.report.text import count_of, minus, number, shorten

LOWEST = 1e-3
"""The smallest rate that the logarithmic axes show."""
CEILING_COLOUR = "#a84a00"
MOST_COLUMNS = 20
"""Secret columns in the chart; the data below it have all."""
_TICKS = {0.001: "0.1 %", 0.01: "1 %", 0.1: "10 %", 1.0: "100 %"}
_FOUND = {
    "Membership": ("membership", "ceiling"),
    "Copies": ("copies",),
    "Attributes": ("attributes",),
    "Combinations": ("combinations",),
}
"""Which findings are about which sentence."""


def section(card: Json, methods: Sequence[Style]) -> str:
    """The disclosure reports in a scorecard, one for each table that has one; empty if there is none."""
    by_name = {report["synthetic"]: report for report in card.get("disclosure") or ()}
    parts = []
    for style in methods:
        if style.name in by_name:
            heading = f"<h3>{style.heading(60)}</h3>" if len(methods) > 1 else ""
            parts.append(heading + render_report(by_name[style.name], style))
    return "".join(parts)


def render_report(report: Json, style: Style) -> str:
    """One report as HTML."""
    warnings = "".join(f"<li><strong>Warning.</strong> {esc(text)}</li>" for text in report["warnings"])
    listed = f'<ul class="warnings">{warnings}</ul>' if warnings else ""
    drawn = {"Membership": _roc(report, style), "Attributes": _guesses(report, style)}
    cards = [
        f'<div class="finding {"not-for" if set(_FOUND[name]) & set(report["findings"]) else "rules"}">'
        f"<h4>{name}</h4><p>{_keep_units(esc(text))}</p>{drawn.get(name, '')}</div>"
        for name, text in report["sentences"].items()
    ]
    rows = report["rows"]
    rate = percent(report["false_alarm_rate"])
    lead = (
        f"<p>Attacks on {count_of(rows['synthetic'], 'synthetic row')}, scored on "
        f"{count_of(rows['real'], 'training row')} and {count_of(rows['holdout'], 'held-out row')}. For a table that "
        f"does not depend on which rows were held out, the probability of any finding is at most {rate}. Intervals "
        f"have {percent(report['confidence'])} confidence.</p>"
    )
    notes = "".join(f"<li>{esc(note)}</li>" for note in report["notes"])
    return (
        f'{listed}{lead}<div class="findings">{"".join(cards)}</div>{_points(report)}{_cells(report)}'
        f'<ul class="note">{notes}</ul>'
    )


def found_text(report: Json) -> str:
    """The number of findings and what they are about."""
    found = report["findings"]
    return f"{count_of(len(found), 'finding')}: {', '.join(found)}." if found else "No findings."


def _keep_units(text: str) -> str:
    """A percent sign stays with its number."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def _points(report: Json) -> str:
    """The operating points as a table."""
    rows = []
    for point in report["membership"]["points"]:
        aim = "largest advantage" if point["aim"] == "advantage" else f"{point['aim']} false positives"
        ceiling = "–" if point["ceiling"] is None else percent_up(point["ceiling"])
        gain = point["advantage"]
        rows.append(
            f"<tr><th scope=row><span>{esc(aim)}</span><small>{esc(ATTACK_NAMES[point['attack']])}</small></th>"
            f"<td class=n>{_rate(point['true_positives'])}</td><td class=n>{_rate(point['false_positives'])}</td>"
            f"<td class=n>{ceiling}</td><td class=n>{_rate(gain)}</td></tr>"
        )
    auc = report["membership"]["auc"]
    rows.append(
        f"<tr><th scope=row><span>AUC</span><small>{esc(ATTACK_NAMES[report['membership']['auc_attack']])}; 0.5 is "
        f"chance</small></th><td class=n colspan=4>{number(auc['value'])}<small>{number(auc['low'])} to "
        f"{number(auc['high'])}</small></td></tr>"
    )
    titles = ("attack chosen for", "true positives", "false positives", "allowed", "advantage")
    head = "".join(f"<th scope=col>{title}</th>" for title in titles)
    why_not = report["membership"]["ceiling"].get("why_not")
    note = why_not or (
        "Allowed: the largest true-positive rate that the guarantee allows, at the upper end of the interval of the "
        "false-positive rate."
    )
    return f'{scroll_table("Membership", head, "".join(rows), "all")}<p class="note">{esc(note)}</p>'


def _cells(report: Json) -> str:
    """Rare combinations as a table."""
    found = report.get("combinations")
    if found is None:
        return ""
    rows = "".join(
        f"<tr><th scope=row><span>{esc(_which(cells))}</span></th><td class=n>{cells['combinations']:,}</td>"
        f"<td class=n>{cells['training_rows']:,}</td><td class=n>{cells['synthetic']['count']:,}</td>"
        f"<td class=n>{cells['expected']:,.0f}<small>{cells['expected_low']:,.0f} to {cells['expected_high']:,.0f}"
        "</small></td></tr>"
        for cells in (found["unique"], found["small"])
    )
    columns = shorten(", ".join(found["columns"]), 120)
    titles = ("combinations of", "number", "training rows", "synthetic rows", "expected from held-out rows")
    head = "".join(f"<th scope=col>{title}</th>" for title in titles)
    return f"<h3>Rare combinations of {esc(columns)}</h3>{scroll_table('Rare combinations', head, rows, 'all')}"


def _which(cells: Json) -> str:
    return "one training row" if cells["most_rows"] == 1 else f"fewer than {cells['most_rows'] + 1} training rows"


def _rate(rate: Json) -> str:
    low, high = (percent(rate[end]).removesuffix(" %") for end in ("low", "high"))
    return minus(f"{percent(rate['value'])}<small>{low} to {high}</small>")


# --------------------------------------------------------------------------------------------------------------- charts


class _LogFrame(svg.Frame):
    """A square plot area with rates from `LOWEST` to 1 on logarithmic scales; smaller ones are at its edge."""

    def x(self, value: float) -> float:
        return super().x(math.log10(max(value, LOWEST)))

    def y(self, value: float) -> float:
        return super().y(math.log10(max(value, LOWEST)))

    def draw_axes(self) -> str:
        parts = []
        for tick, label in _TICKS.items():
            parts.append(svg.line(self.left, self.y(tick), self.left + self.side, self.y(tick), "#e6e6e1"))
            parts.append(svg.line(self.x(tick), self.top, self.x(tick), self.bottom, "#e6e6e1"))
            parts.append(svg.text(self.left - 5, self.y(tick) + 3.5, label, anchor="end"))
            parts.append(svg.centre_text(self.x(tick), self.bottom + 14, label))
        ends = self.x(LOWEST), self.y(LOWEST), self.x(1), self.y(1)
        parts.append(svg.line(*ends, svg.GREY_LINE, ' stroke-dasharray="3 3"'))
        across, y = self.left + self.side / 2, self.top + self.side / 2
        parts.append(svg.text(across, self.bottom + 30, "false positives", anchor="middle", extra=' class="axis"'))
        turned = f' class="axis" transform="rotate(-90 10 {y:.0f})"'
        parts.append(svg.text(10, y, "true positives", anchor="middle", extra=turned))
        return "".join(parts)


def _roc(report: Json, style: Style) -> str:
    """The curve of the strongest attack and all operating points, with chance and the ceiling of the guarantee."""
    frame, found = _LogFrame(math.log10(LOWEST), 0.0, left=52.0, side=svg.WIDTH - 66.0), report["membership"]
    body = [frame.draw_axes()]
    ceiling = found["ceiling"].get("curve")
    if ceiling:
        body.append(f'<path d="{_path(frame, ceiling)}" fill="none" stroke="{CEILING_COLOUR}" stroke-width="2"/>')
    body += [
        f'<path d="{_path(frame, curve)}" {style.line} stroke-opacity="0.6"/>' for curve in found["curves"].values()
    ]
    rows = []
    for row, point in enumerate(found["points"]):
        true, false = point["true_positives"], point["false_positives"]
        x, y = frame.x(false["value"]), frame.y(true["value"])
        body.append(svg.line(x, frame.y(true["low"]), x, frame.y(true["high"]), svg.INK))
        body.append(svg.line(frame.x(false["low"]), y, frame.x(false["high"]), y, svg.INK))
        body.append(style.mark(x, y, 4.2))
        body.append(svg.hit(x - 9, y - 9, 18, 18, row))
        rates = [f"{percent(r['value'])} ({percent(r['low'])} to {percent(r['high'])})" for r in (false, true)]
        rows.append([point["aim"], ATTACK_NAMES[point["attack"]], *rates])
    allowed = (
        "; brown: the most that the guarantee allows, compared with the intervals of the marks, not with the curves"
        if ceiling
        else ""
    )
    note = (
        "Marks: the attacks chosen for 1 % and 5 % false positives and for the largest advantage, with intervals. "
        f"Curves: these attacks at all thresholds. Dashed: chance{allowed}."
    )
    drawing = svg.panel("".join(body), "True against false positives of the membership attacks.", height=frame.height)
    return svg.figure([drawing], ["chosen for", "attack", "false positives", "true positives"], rows, note=note)


def _path(frame: svg.Frame, curve: Mapping[str, Sequence[float]]) -> str:
    points = [(x, y) for x, y in zip(curve["fpr"], curve["tpr"], strict=True) if x >= LOWEST and y >= LOWEST]
    return "M" + "L".join(f"{frame.x(fpr):.1f} {frame.y(tpr):.1f}" for fpr, tpr in points)


def _guesses(report: Json, style: Style) -> str:
    """For each secret column, how often it is guessed correctly: held-out rows in grey, training rows in colour."""
    columns = sorted(report["attributes"], key=lambda each: -each["difference"]["value"])
    if not columns:
        return ""
    pitch, left, right, top = 22.0, 96.0, svg.WIDTH - 18.0, 16.0
    shown = columns[:MOST_COLUMNS]
    bottom = top + pitch * len(shown)

    def across(value: float) -> float:
        return left + (right - left) * value

    body = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        body.append(svg.line(across(tick), top, across(tick), bottom, "#e6e6e1"))
        body.append(svg.centre_text(across(tick), top - 4, f"{100 * tick:.0f} %"))
    for row, each in enumerate(shown):
        y, training, control = top + pitch * (row + 0.5), each["training"], each["control"]
        body.append(svg.text(left - 8, y + 4, each["column"], anchor="end", room=left - 10, extra=' class="axis"'))
        body.append(svg.line(across(control["low"]), y + 2, across(control["high"]), y + 2, svg.GREY_LINE))
        body.append(svg.line(across(training["low"]), y - 2, across(training["high"]), y - 2, style.colour))
        body.append(f'<circle cx="{across(control["value"]):.1f}" cy="{y + 2:.1f}" r="4.2" {svg.REAL_DOT}/>')
        body.append(style.mark(across(training["value"]), y - 2, 3.6))
        body.append(svg.hit(0, y - 0.5 * pitch, svg.WIDTH, pitch, row))
    drawing = svg.panel("".join(body), "How often each column is guessed correctly.", height=bottom + 8)
    rows = [
        [each["column"], percent(each["control"]["value"]), percent(each["training"]["value"])]
        + [f"{100 * each['difference'][end]:+.1f} points" for end in ("value", "low", "high")]
        for each in columns
    ]
    head = ["column", "held-out rows", "training rows", "difference", "from", "to"]
    note = "Correct guesses: held-out rows in grey, training rows in colour. Only the difference is disclosure."
    return svg.figure([drawing], head, rows, note=note)
