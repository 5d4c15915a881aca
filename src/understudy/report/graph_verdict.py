"""The verdict on one synthetic graph: what is as in the real one, and what is lost, by fixed rules on its metrics."""

from understudy.graphs.metrics import BASELINE, GraphScores
from understudy.report.text import listing, number

CLOSE, FAR = 0.05, 0.1
"""The distance up to which a distribution is close to the real one, and above which it is far from it."""
KEPT, LOST = 0.1, 0.3
"""The same for figures, as a fraction of the real one."""
_SUBJECTS = {
    "degree distance": "degrees",
    "component distance": "sizes of components",
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
"""What each metric is about; the mean degree repeats the number of edges."""


def graph_verdict(scores: GraphScores, name: str) -> dict[str, str]:
    """The sentences about one graph by heading: what is good, what is lost, and what it is not for.

    Each figure stands beside that of the real graph, and each loss beside that of a random graph.

    >>> import pyarrow as pa
    >>> from understudy.graphs import evaluate
    >>> ring = pa.table({"source": range(9), "target": [(node + 1) % 9 for node in range(9)]})
    >>> graph_verdict(evaluate(ring, ring, {"nodes": {"count": 9}}), "synthetic")["Lost"]
    'Nothing that was measured.'
    """
    good = [subject for metric, subject in _SUBJECTS.items() if _is(scores, name, metric, CLOSE, KEPT)]
    lost = {
        subject: _beside(scores, name, metric)
        for metric, subject in _SUBJECTS.items()
        if metric in scores[name] and not _is(scores, name, metric, FAR, LOST)
    }
    each = [f"{subject} ({figures})" for subject, figures in lost.items()]
    avoid = f"Do not use it for analyses of {listing(list(lost))}." if lost else "No limits were found."
    return {
        "Good": f"As in the real graph: {listing(good)}." if good else "Nothing is close to the real graph.",
        "Lost": f"Far from the real graph: {'; '.join(each)}." if each else "Nothing that was measured.",
        "Not for": f"{avoid} Draw no conclusions about single nodes: which node has which edges is random.",
    }


def _is(scores: GraphScores, name: str, metric: str, distance: float, fraction: float) -> bool:
    """Whether a metric is this close to the real graph's: a distance, or a figure relative to the real one."""
    if metric not in scores[name]:
        return False
    value, real = scores[name][metric], scores["real"][metric]
    if metric.endswith("distance"):
        return value <= distance
    return abs(value - real) <= fraction * abs(real)


def _beside(scores: GraphScores, name: str, metric: str) -> str:
    value, real, random = (format_figure(scores[graph][metric]) for graph in (name, "real", BASELINE))
    if metric.endswith("distance"):
        return f"distance {value}; random graph: {random}"
    return f"real {real}, here {value}; random graph: {random}"


def format_figure(value: float) -> str:
    """Counts as they are, everything else to three digits."""
    return f"{value:,.0f}" if value.is_integer() else number(value)
