"""The first screen of the report: the verdict on each synthetic table, with small plots."""

from collections.abc import Sequence

from understudy.evaluation.scores import Json
from understudy.report import svg
from understudy.report.markup import findings
from understudy.report.summary import Pair, Summary, summarise
from understudy.report.svg import Style
from understudy.report.text import number, percent, shorten

MAX_PAIRS, MAX_RULES = 5, 5
"""How many lost dependences and rules are drawn; the sections below have all."""
KEPT_COLOUR, HALF_COLOUR, LOST_COLOUR = "#009e73", "#e69f00", "#d55e00"
"""Of Okabe and Ito's palette: close or kept, in between, far or lost."""


def summaries(card: Json, methods: Sequence[Style]) -> str:
    """The verdict on each table; empty if too little was scored."""
    found = [(style, summary) for style in methods if (summary := summarise(card, style.name)) is not None]
    return "".join(_block(style, summary, named=len(methods) > 1) for style, summary in found)


def _block(style: Style, summary: Summary, *, named: bool) -> str:
    heading = f"<h3>{style.heading(60)}</h3>" if named else ""
    plots = {"Good": _counts(summary), "Lost": _lost(summary, style), "Rules": _rules(summary, style)}
    return findings(heading, summary.sentences, plots)


def _counts(summary: Summary) -> str:
    """Two bars: how many columns and how many dependences are as in the real table."""
    parts = {"columns": summary.columns, "dependences": summary.pairs}
    shown = {name: counts for name, counts in parts.items() if sum(counts)}
    names = {"columns": ("close", "in between", "far"), "dependences": ("kept", "weakened", "lost")}
    body, rows = [], []
    for at, (name, counts) in enumerate(shown.items()):
        y, x, width = 4.0 + 26 * at, 84.0, svg.WIDTH - 88.0
        body.append(svg.text(x - 6, y + 12, name, anchor="end"))
        for state, count, colour in zip(names[name], counts, (KEPT_COLOUR, HALF_COLOUR, LOST_COLOUR), strict=True):
            part = width * count / sum(counts)
            rows.append([name, state, f"{count:,}"])
            if count:
                which = f'class="m" fill="{colour}" data-r="{len(rows) - 1}"'
                body.append(svg.rect(x, y, max(part - 1, 1), 16, which))
                if part > 8 * len(f"{count:,}") + 4:
                    body.append(svg.text(x + part / 2, y + 12, f"{count:,}", anchor="middle", extra=' class="in"'))
            x += part
    colours = "".join(
        f'<span class="scale"><i style="background:{colour}"></i> {label}</span>'
        for colour, label in ((KEPT_COLOUR, "close"), (HALF_COLOUR, "in between"), (LOST_COLOUR, "lost"))
    )
    what = "How many columns and dependences are close to those of the real table."
    drawing = svg.panel("".join(body), what, height=4.0 + 26 * len(shown))
    return svg.figure([drawing], ["what", "state", "number"], rows, note=colours)


def _lost(summary: Summary, style: Style) -> str:
    """The strongest dependences that were lost: real (grey) beside synthetic; then single values."""
    marks = [
        (" × ".join(shorten(name, 16) for name in pair.columns), abs(pair.real), _strength(pair))
        for pair in summary.lost_pairs[:MAX_PAIRS]
    ]
    rows = [
        [f"{pair.columns[0]} × {pair.columns[1]}", pair.kind, number(pair.real), number(pair.synthetic)]
        for pair in summary.lost_pairs[:MAX_PAIRS]
    ]
    if not marks:
        return ""
    note = "Strength of the association from 0 to 1, corrected for chance: real rows in grey, this table in colour."
    drawing = svg.dumbbells(marks, style, "Associations in real and in synthetic rows.")
    return svg.figure([drawing], ["columns", "measure", "real", style.name], rows, note=note)


def _strength(pair: Pair) -> float:
    """How much of the real association is there, on its scale; 0 if the sign is reversed."""
    return max(0.0, pair.fraction) * abs(pair.real)


def _rules(summary: Summary, style: Style) -> str:
    """The fraction of rows that break each rule, in real and in synthetic rows."""
    shown = [rule for rule in summary.rules_found if rule.synthetic or rule.real]
    worst = sorted(shown, key=lambda rule: rule.real - rule.synthetic)[:MAX_RULES]
    if not worst:
        return ""
    marks = [(rule.text, rule.real, rule.synthetic) for rule in worst]
    rows = [[rule.text, percent(rule.real), percent(rule.synthetic)] for rule in worst]
    high = min(1.0, 1.05 * max(max(rule.real, rule.synthetic) for rule in worst))
    drawing = svg.dumbbells(marks, style, "Fractions of rows that break each rule.", high=high, as_percent=True)
    note = "Fraction of the rows that break the rule: real rows in grey, this table in colour."
    return svg.figure([drawing], ["rule", "real", style.name], rows, note=note)
