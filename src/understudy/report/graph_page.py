"""Metrics of graphs as a page, one HTML file that opens offline, with a verdict by fixed rules. Not private."""

import itertools
import math
import os
from collections.abc import Mapping, Sequence

import numpy as np

from understudy.evaluation.scorecard import write_confidential
from understudy.graphs.metrics import BASELINE, METRICS, GraphScores
from understudy.privacy.accounting.ledger import Statement
from understudy.report import svg
from understudy.report.markup import esc, findings, name_tag, scroll_table
from understudy.report.page import certificate_section, document
from understudy.report.parts import is_close, is_far
from understudy.report.svg import Style, styles
from understudy.report.text import count_of, listing, number, percent, shorten, tick_label

MAX_POINTS = 60
"""Degrees of the chart: the most."""
KEPT, LOST = 0.1, 0.3
"""Figures are close to the real one up to this fraction of it, and far from it above that one."""
SPLIT_OFF = 0.05
"""The number of components is far from the real one if it differs by more than this fraction of the nodes."""
_SUBJECTS = {
    "degree distance": "degrees",
    "community distance": "sizes of communities",
    "edges": "number of edges",
    "largest degree": "largest degree",
    "triangles": "number of triangles",
    "clustering": "mean clustering",
    "transitivity": "transitivity",
    "components": "number of components",
    "largest component": "largest component",
    "communities": "number of communities",
    "edges within blocks": "fraction of edges within blocks",
}
"""What each metric is about. The mean degree repeats the number of edges; a distance of sizes of components is large
where one node has left the largest one, so their number counts instead."""
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
    write_confidential(path, render_graph_report(scores, statement, of=of).encode(), force=force)


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
    return findings(heading, graph_verdict(scores, style.name), {})


def _metric_table(scores: GraphScores, methods: Sequence[Style]) -> str:
    columns = {**{style.name: style.heading(20) for style in methods}, "real": "real", BASELINE: BASELINE}
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
        "scores.</p>" + scroll_table("Metrics", ["metric", *columns.values()], rows, "all", num_numeric=len(columns))
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
    frame = svg.Frame(1.0, max(largest, 2), (min(lowest, 0.5), 1.0), is_logarithmic=True)
    marks = {degree: tick_label(degree) for degree in _round_steps(frame.high)}
    up_marks = {1 / parts: f"{100 / parts:.3g}%" for parts in _round_steps(1 / lowest)}
    across, up = "degree", "nodes with at least this degree"
    body = [frame.axes(across, up, diagonal=False, marks=marks, up_marks=up_marks)]
    for name in ("real", BASELINE, *(style.name for style in methods)):
        points = [point for point in zip(shown, at_least[name], strict=True) if point[1]]
        body.append(frame.path(points, f'{lines[name]} stroke-linejoin="round"'))
    edges = [frame.x(math.sqrt(one * other)) for one, other in itertools.pairwise(shown)]
    right = frame.left + frame.side
    for row, (start, end) in enumerate(zip([frame.left, *edges], [*edges, right], strict=True)):
        body.append(svg.hit(start, frame.top, end - start, frame.side, row))
    rows = [[f"{degree:,}", *(percent(at_least[name][row]) for name in order)] for row, degree in enumerate(shown)]
    keys = [svg.key(f'<path d="M1 6H29" {lines[name]}/>') + name_tag(name) for name in order]
    label = f"Fraction of nodes with at least a given degree, from 1 to {largest:,}, for {len(order)} graphs."
    drawing = svg.panel("".join(body), label, height=frame.height)
    return (
        "<p>How many nodes have at least a given number of edges. Both axes are logarithmic.</p>"
        f"{svg.list_keys(keys)}{svg.figure([drawing], ['degree at least', *order], rows)}"
    )


def _fraction_from(counts: Mapping[int, int], degree: int) -> float:
    """The fraction of nodes with this degree or a larger one."""
    return sum(count for known, count in counts.items() if known >= degree) / sum(counts.values())


def _round_steps(max_degree: float) -> list[float]:
    """1, 2, 5, 10, 20 ... up to this number; only powers of ten where there are many."""
    digits = (1, 2, 5) if max_degree <= 300 else (1,)
    steps = [float(digit * 10**power) for power in range(math.floor(math.log10(max_degree)) + 1) for digit in digits]
    return [step for step in steps if step <= max_degree * (1 + 1e-9)]


# The verdict


def graph_verdict(scores: GraphScores, name: str) -> dict[str, str]:
    """The sentences about one graph by heading: what is good, what is lost, and what it is not for.

    Each figure stands beside that of the real graph, and each loss beside that of a random graph.
    """
    computed = {metric: subject for metric, subject in _SUBJECTS.items() if metric in scores[name]}
    good = [subject for metric, subject in computed.items() if _is_good(scores, name, metric)]
    lost = {
        subject: _beside(scores, name, metric) for metric, subject in computed.items() if _is_lost(scores, name, metric)
    }
    each = [f"{subject} ({figures})" for subject, figures in lost.items()]
    avoid = f"Do not use it for analyses of {listing(list(lost))}." if lost else "No limits were found."
    return {
        "Good": f"As in the real graph: {listing(good)}." if good else "Nothing is close to the real graph.",
        "Lost": f"Far from the real graph: {'; '.join(each)}." if each else "Nothing that was measured.",
        "Not for": f"{avoid} Draw no conclusions about single nodes: which node has which edges is random.",
    }


def _is_good(scores: GraphScores, name: str, metric: str) -> bool:
    """Whether a metric is close to the real graph's."""
    value, real = scores[name][metric], scores["real"][metric]
    if metric.endswith("distance"):
        return is_close(value, real)
    return abs(value - real) <= KEPT * abs(real)


def _is_lost(scores: GraphScores, name: str, metric: str) -> bool:
    """Whether a metric is far from the real graph's."""
    value, real = scores[name][metric], scores["real"][metric]
    if metric.endswith("distance"):
        return is_far(value, real)
    if metric == "components":
        return abs(value - real) > SPLIT_OFF * sum(scores.degrees["real"].values())
    return abs(value - real) > LOST * abs(real)


def _beside(scores: GraphScores, name: str, metric: str) -> str:
    value, real, random = (format_figure(scores[graph][metric]) for graph in (name, "real", BASELINE))
    if metric.endswith("distance"):
        again = f"; real graph, searched again: {real}" if scores["real"][metric] else ""
        return f"distance {value}{again}; random graph: {random}"
    return f"real {real}, here {value}; random graph: {random}"


def format_figure(value: float) -> str:
    """Counts as they are, everything else to three digits."""
    return f"{value:,.0f}" if value.is_integer() else number(value)
