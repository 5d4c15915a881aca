"""The disclosure report as HTML: what the attacks found, compared with chance and with what the guarantee allows."""

from collections.abc import Mapping, Sequence

from understudy.disclosure.attacks import ATTACK_NAMES
from understudy.disclosure.sentences import percent_up
from understudy.evaluation.scores import Json
from understudy.report import svg
from understudy.report.markup import esc, finding, scroll_table, warning_list
from understudy.report.svg import Style
from understudy.report.text import count_of, minus, number, percent, shorten

LOWEST = 1e-3
"""The smallest rate that the logarithmic axes show."""
CEILING_COLOUR = "#a84a00"
MAX_COLUMNS = 20
"""Secret columns in the chart; the data below it have all."""
_TICKS = {0.001: "0.1%", 0.01: "1%", 0.1: "10%", 1.0: "100%"}
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
    drawn = {"Membership": _roc(report, style), "Attributes": _guesses(report, style)}
    cards = [
        finding("not-for" if set(_FOUND[name]) & set(report["findings"]) else "rules", name, text, drawn.get(name, ""))
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
        f'{warning_list(report["warnings"])}{lead}<div class="findings">{"".join(cards)}</div>'
        f'{_points(report)}{_cells(report)}<ul class="note">{notes}</ul>'
    )


def found_text(report: Json) -> str:
    """The number of findings and what they are about."""
    findings = report["findings"]
    return f"{count_of(len(findings), 'finding')}: {', '.join(findings)}." if findings else "No findings."


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
    why_not = report["membership"]["ceiling"].get("why_not")
    note = why_not or (
        "Allowed: the largest true-positive rate that the guarantee allows, at the upper end of the interval of the "
        "false-positive rate."
    )
    return f'{scroll_table("Membership", titles, rows, "all")}<p class="note">{esc(note)}</p>'


def _cells(report: Json) -> str:
    """Rare combinations as a table."""
    combinations = report.get("combinations")
    if combinations is None:
        return ""
    rows = [
        f"<tr><th scope=row><span>{esc(_which(cells))}</span></th><td class=n>{cells['combinations']:,}</td>"
        f"<td class=n>{cells['training_rows']:,}</td><td class=n>{cells['synthetic']['count']:,}</td>"
        f"<td class=n>{cells['expected']:,.0f}<small>{cells['expected_low']:,.0f} to {cells['expected_high']:,.0f}"
        "</small></td></tr>"
        for cells in (combinations["unique"], combinations["small"])
    ]
    columns = shorten(", ".join(combinations["columns"]), 120)
    titles = ("combinations of", "number", "training rows", "synthetic rows", "expected from held-out rows")
    return f"<h3>Rare combinations of {esc(columns)}</h3>{scroll_table('Rare combinations', titles, rows, 'all')}"


def _which(cells: Json) -> str:
    return "one training row" if cells["most_rows"] == 1 else f"fewer than {cells['most_rows'] + 1} training rows"


def _rate(rate: Json) -> str:
    low, high = (percent(rate[end]).removesuffix("%") for end in ("low", "high"))
    return minus(f"{percent(rate['value'])}<small>{low} to {high}</small>")


# --------------------------------------------------------------------------------------------------------------- charts


def _roc(report: Json, style: Style) -> str:
    """The curve of the strongest attack and all operating points, with chance and the ceiling of the guarantee."""
    frame, attack = svg.Frame(LOWEST, 1.0, is_logarithmic=True), report["membership"]
    body = [frame.axes("false positives", "true positives", marks=_TICKS)]
    ceiling = attack["ceiling"].get("curve")
    if ceiling:
        body.append(frame.path(_points_of(ceiling), f'fill="none" stroke="{CEILING_COLOUR}" stroke-width="2"'))
    body += [frame.path(_points_of(each), f'{style.line} stroke-opacity="0.6"') for each in attack["curves"].values()]
    rows = []
    for row, point in enumerate(attack["points"]):
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
        "Marks: the attacks chosen for 1% and 5% false positives and for the largest advantage, with intervals. "
        f"Curves: these attacks at all thresholds. Dashed: chance{allowed}."
    )
    drawing = svg.panel("".join(body), "True against false positives of the membership attacks.", height=frame.height)
    return svg.figure([drawing], ["chosen for", "attack", "false positives", "true positives"], rows, note=note)


def _points_of(curve: Mapping[str, Sequence[float]]) -> list[tuple[float, float]]:
    """What the axes show of a curve."""
    return [(x, y) for x, y in zip(curve["fpr"], curve["tpr"], strict=True) if x >= LOWEST and y >= LOWEST]


def _guesses(report: Json, style: Style) -> str:
    """For each secret column, how often it is guessed correctly: held-out rows in grey, training rows in colour."""
    columns = sorted(report["attributes"], key=lambda column: -column["difference"]["value"])
    if not columns:
        return ""
    marks = [
        (column["column"], column["control"]["value"], column["training"]["value"]) for column in columns[:MAX_COLUMNS]
    ]
    intervals = [(_interval(column["control"]), _interval(column["training"])) for column in columns[:MAX_COLUMNS]]
    what = "How often each column is guessed correctly."
    drawing = svg.dumbbells(marks, style, what, as_percent=True, intervals=intervals)
    rows = [
        [column["column"], percent(column["control"]["value"]), percent(column["training"]["value"])]
        + [f"{100 * column['difference'][end]:+.1f} points" for end in ("value", "low", "high")]
        for column in columns
    ]
    head = ["column", "held-out rows", "training rows", "difference", "from", "to"]
    note = "Correct guesses: held-out rows in grey, training rows in colour. Only the difference is disclosure."
    return svg.figure([drawing], head, rows, note=note)


def _interval(rate: Json) -> tuple[float, float]:
    return rate["low"], rate["high"]
