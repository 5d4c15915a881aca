"""The verdict on one synthetic graph: what is as in the real one, and what is lost, by fixed rules on its metrics."""

from understudy.graphs.metrics import BASELINE, GraphScores
from understudy.report.parts import is_close, is_far
from understudy.report.text import listing, number

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


def graph_verdict(scores: GraphScores, name: str) -> dict[str, str]:
    """The sentences about one graph by heading: what is good, what is lost, and what it is not for.

    Each figure stands beside that of the real graph, and each loss beside that of a random graph.

    >>> import pyarrow as pa
    >>> from understudy.graphs import evaluate
    >>> ring = pa.table({"source": range(9), "target": [(node + 1) % 9 for node in range(9)]})
    >>> graph_verdict(evaluate(ring, ring, {"nodes": {"count": 9}}), "synthetic")["Lost"]
    'Nothing that was measured.'
    """
    good = [subject for metric, subject in _SUBJECTS.items() if _is_good(scores, name, metric)]
    lost = {
        subject: _beside(scores, name, metric)
        for metric, subject in _SUBJECTS.items()
        if _is_lost(scores, name, metric)
    }
    each = [f"{subject} ({figures})" for subject, figures in lost.items()]
    avoid = f"Do not use it for analyses of {listing(list(lost))}." if lost else "No limits were found."
    return {
        "Good": f"As in the real graph: {listing(good)}." if good else "Nothing is close to the real graph.",
        "Lost": f"Far from the real graph: {'; '.join(each)}." if each else "Nothing that was measured.",
        "Not for": f"{avoid} Draw no conclusions about single nodes: which node has which edges is random.",
    }


def _is_good(scores: GraphScores, name: str, metric: str) -> bool:
    """Whether a metric is close to the real graph's; not if it was not computed."""
    if metric not in scores[name]:
        return False
    value, real = scores[name][metric], scores["real"][metric]
    if metric.endswith("distance"):
        return is_close(value, real)
    return abs(value - real) <= KEPT * abs(real)


def _is_lost(scores: GraphScores, name: str, metric: str) -> bool:
    """Whether a metric is far from the real graph's."""
    if metric not in scores[name]:
        return False
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
