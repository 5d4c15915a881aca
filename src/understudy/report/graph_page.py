"""Metrics of graphs as a page: one HTML file that opens offline. Not private."""

import itertools
import math
import os
from collections.abc import Mapping, Sequence

import numpy as np

from understudy.evaluation.scorecard import refuse_release
from understudy.graphs.metrics import BASELINE, METRICS, GraphScores
from understudy.privacy.ledger import Statement
from understudy.report import svg
from understudy.report.graph_verdict import format_figure, graph_verdict
from understudy.report.markup import esc, name_tag, scroll_table
from understudy.report.page import certificate_section, document
from understudy.report.svg import Style, styles
from understudy.report.text import count_of, listing, percent, shorten, tick_label
from understudy.run.atomic import atomic_write

MAX_POINTS = 60
"""Degrees of the chart: the most."""
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 560.0, 340.0, 58.0, 8.0, 300.0
_RIGHT = _WIDTH - 14
_BASELINE_LINE = f'fill="none" stroke="{svg.GREY_LINE}" stroke-width="1.4" stroke-dasharray="2 3"'


def write_graph_report(
    path: str | os.PathLike[str],
    scores: GraphScores,
    statement: Statement | None = None,
    *,
    of: str | None = None,
    force: bool = False,
) -> None:
    """Write the metrics and the degree distributions as one HTML file. Not private: they are those of the real graph.

    With the statement of the release of the graph named `of`, its certificate is added at the end of the page.
    """
    refuse_release(path)
    page = render_graph_report(scores, statement, of=of)
    with atomic_write(path, force=force) as file:
        file.write(page.encode())


def render_graph_report(scores: GraphScores, statement: Statement | None = None, *, of: str | None = None) -> str:
    """The page as HTML."""
    methods = styles([name for name in scores.values if name not in ("real", BASELINE)])
    what = "One synthetic graph" if len(methods) == 1 else "Synthetic graphs"
    num_nodes = sum(scores.degrees["real"].values())
    graphs = ", ".join(f"{style.heading()} ({_edges(scores, style.name)})" for style in methods)
    head = (
        f'<header><h1>{what} compared with the real one</h1><p class="tables">{graphs}; '
        f"real ({_edges(scores, 'real')}); {count_of(num_nodes, 'node')} each</p></header>"
    )
    sections = [
        ("verdict", "Verdict", "".join(_verdict(scores, style, named=len(methods) > 1) for style in methods)),
        ("metrics", "Metrics", _metric_table(scores, methods)),
        ("degrees", "Degrees", _degree_chart(scores.degrees, methods)),
    ]
    title = f"Report on {listing([shorten(style.name, 40) for style in methods])}"
    return document(title, head, sections, certificate_section(statement, methods, of))


def _edges(scores: GraphScores, name: str) -> str:
    return count_of(round(scores[name]["edges"]), "edge")


def _verdict(scores: GraphScores, style: Style, *, named: bool) -> str:
    heading = f"<h3>{style.heading(60)}</h3>" if named else ""
    cards = [
        f'<div class="finding {what.lower().replace(" ", "-")}"><h4>{what}</h4><p>{esc(sentence)}</p></div>'
        for what, sentence in graph_verdict(scores, style.name).items()
    ]
    return f'<div class="summary">{heading}<div class="findings">{"".join(cards)}</div></div>'


def _metric_table(scores: GraphScores, methods: Sequence[Style]) -> str:
    columns = {
        **{style.name: style.heading(20) for style in methods},
        "real": "real",
        BASELINE: BASELINE,
    }
    head = "<th scope=col>metric</th>" + "".join(f"<th scope=col class=n>{label}</th>" for label in columns.values())
    rows = []
    for metric, meaning in METRICS.items():
        if metric not in scores["real"]:
            continue
        small = f"<small>{esc(meaning)}</small>" if meaning else ""
        cells = "".join(
            f'<td class=n data-name="{esc(shorten(name, 40))}">{format_figure(scores[name][metric])}</td>'
            for name in columns
        )
        rows.append(f"<tr><th scope=row><span>{esc(metric)}</span>{small}</th>{cells}</tr>")
    return (
        "<p>A good synthetic graph has small distances and otherwise the figures of the real graph. The random graph "
        f"has as many edges as {name_tag(methods[0].name)}, placed at random: what a graph without structure "
        "scores.</p>" + scroll_table("Metrics", head, "".join(rows), "all")
    )


def _degree_chart(degrees: Mapping[str, Mapping[int, int]], methods: Sequence[Style]) -> str:
    """The fraction of nodes with at least each degree, on logarithmic axes."""
    lines = {"real": svg.REAL_LINE, BASELINE: _BASELINE_LINE, **{style.name: style.line for style in methods}}
    order = ["real", *(style.name for style in methods), BASELINE]
    largest = max(max(counts, default=0) for counts in degrees.values())
    if largest == 0:
        return '<p class="absent">No graph has an edge, so there is nothing to draw.</p>'
    shown = np.unique(np.round(np.geomspace(1, largest, MAX_POINTS)).astype(int)).tolist()
    at_least = {name: [_fraction_from(degrees[name], degree) for degree in shown] for name in order}
    lowest = min(fraction for fractions in at_least.values() for fraction in fractions if fraction)
    axes = _LogAxes(largest, lowest)
    body = [axes.draw()]
    for name in ("real", BASELINE, *(style.name for style in methods)):
        points = [
            f"{axes.x(degree):.1f} {axes.y(fraction):.1f}"
            for degree, fraction in zip(shown, at_least[name], strict=True)
            if fraction
        ]
        body.append(f'<path d="M{"L".join(points)}" {lines[name]} stroke-linejoin="round"/>' if points else "")
    edges = [axes.x(math.sqrt(one * other)) for one, other in itertools.pairwise(shown)]
    for row, (left, right) in enumerate(zip([_LEFT, *edges], [*edges, _RIGHT], strict=True)):
        body.append(svg.hit(left, _TOP, right - left, _BOTTOM - _TOP, row))
    rows = [[f"{degree:,}", *(percent(at_least[name][row]) for name in order)] for row, degree in enumerate(shown)]
    keys = {name: f'<svg class="key" viewBox="0 0 30 12" aria-hidden="true"><path d="M1 6H29" {line}/></svg>'
            for name, line in lines.items()}  # fmt: skip
    legend = "".join(f"<li>{keys[name]}{name_tag(name)}</li>" for name in order)
    label = f"Fraction of nodes with at least a given degree, from 1 to {largest:,}, for {len(order)} graphs."
    drawing = svg.panel("".join(body), label, width=_WIDTH, height=_HEIGHT)
    return (
        "<p>How many nodes have at least a given number of edges. Both axes are logarithmic.</p>"
        f'<ul class="legend">{legend}</ul>{svg.figure([drawing], ["degree at least", *order], rows)}'
    )


def _fraction_from(counts: Mapping[int, int], degree: int) -> float:
    """The fraction of nodes with this degree or a larger one."""
    return sum(count for known, count in counts.items() if known >= degree) / sum(counts.values())


class _LogAxes:
    """Degrees from 1 across and fractions up to 1 upwards, both logarithmic."""

    def __init__(self, largest: float, lowest: float) -> None:
        self.across = math.log10(max(largest, 2))
        self.up = -math.log10(min(lowest, 0.5))

    def x(self, degree: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * math.log10(degree) / self.across

    def y(self, fraction: float) -> float:
        return _TOP - (_BOTTOM - _TOP) * math.log10(fraction) / self.up

    def draw(self) -> str:
        parts = []
        for degree in _round_steps(self.across):
            parts.append(svg.line(self.x(degree), _TOP, self.x(degree), _BOTTOM, "#e6e6e1"))
            parts.append(svg.centre_text(self.x(degree), _BOTTOM + 14, tick_label(degree), right=_WIDTH))
        for parts_of_all in _round_steps(self.up):
            parts.append(svg.line(_LEFT, self.y(1 / parts_of_all), _RIGHT, self.y(1 / parts_of_all), "#e6e6e1"))
            label = f"{100 / parts_of_all:.3g}\N{NO-BREAK SPACE}%"
            parts.append(svg.text(_LEFT - 5, self.y(1 / parts_of_all) + 3.5, label, anchor="end"))
        parts.append(svg.line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, svg.INK))
        parts.append(svg.line(_LEFT, _TOP, _LEFT, _BOTTOM, svg.INK))
        middle = (_TOP + _BOTTOM) / 2
        turned = f' class="axis" transform="rotate(-90 12 {middle:.0f})"'
        parts.append(svg.text((_LEFT + _RIGHT) / 2, _BOTTOM + 32, "degree", anchor="middle", extra=' class="axis"'))
        parts.append(svg.text(12, middle, "nodes with at least this degree", anchor="middle", extra=turned))
        return "".join(parts)


def _round_steps(decades: float) -> list[float]:
    """1, 2, 5, 10, 20 ... up to this power of ten; only whole powers where there are many."""
    digits = (1, 2, 5) if decades <= 2.5 else (1,)
    steps = [float(digit * 10**power) for power in range(math.floor(decades) + 1) for digit in digits]
    return [step for step in steps if math.log10(step) <= decades + 1e-9]
