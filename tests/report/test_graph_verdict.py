"""The verdict on a graph, by fixed rules on its metrics."""

import pytest

from understudy.graphs.metrics import GraphScores
from understudy.report.graph_page import graph_verdict, render_graph_report


def scores_of(**synthetic: float) -> GraphScores:
    real = {"degree distance": 0.0, "edges": 100.0, "triangles": 50.0, "clustering": 0.2}
    random = {"degree distance": 0.4, "edges": 100.0, "triangles": 3.0, "clustering": 0.01}
    values = {"real": real, "synthetic": {**real, **{key.replace("_", " "): v for key, v in synthetic.items()}}}
    return GraphScores({**values, "random": random}, {name: {2: 100} for name in ("real", "synthetic", "random")})


def test_a_copy_loses_nothing() -> None:
    found = graph_verdict(scores_of(), "synthetic")
    assert found["Good"] == "As in the real graph: degrees, number of edges, number of triangles and mean clustering."
    assert found["Lost"] == "Nothing that was measured."
    assert found["Not for"].startswith("No limits were found.")


@pytest.mark.parametrize(
    ("metric", "value", "is_good", "is_lost"),
    [
        ("degree_distance", 0.05, True, False),
        ("degree_distance", 0.08, False, False),
        ("degree_distance", 0.11, False, True),
        ("triangles", 55.0, True, False),
        ("triangles", 40.0, False, False),
        ("triangles", 34.0, False, True),
        ("triangles", 66.0, False, True),
    ],
)
def test_what_is_good_or_lost(metric: str, value: float, is_good: bool, is_lost: bool) -> None:
    found = graph_verdict(scores_of(**{metric: value}), "synthetic")
    subject = {"degree_distance": "degrees", "triangles": "number of triangles"}[metric]
    assert (subject in found["Good"]) == is_good
    assert (subject in found["Lost"]) == (subject in found["Not for"]) == is_lost


def test_losses_stand_beside_the_real_and_a_random_graph() -> None:
    scores = scores_of(triangles=10.0, degree_distance=0.3)
    found = graph_verdict(scores, "synthetic")
    assert found["Lost"] == (
        "Far from the real graph: degrees (distance 0.300; random graph: 0.400); number of triangles (real 50, here "
        "10; random graph: 3)."
    )
    page = render_graph_report(scores)
    assert all(sentence in page for sentence in found.values())
    assert page.index("Verdict") < page.index("Metrics")


def test_communities_are_compared_with_a_second_search_and_components_with_the_nodes() -> None:
    """A search differs from the next one; a single node that has left the giant component is no loss."""
    scores = scores_of(community_distance=0.15, components=3.0)
    for name, distance in (("real", 0.12), ("random", 0.5)):
        scores.values[name].update({"community distance": distance, "components": 1.0})  # type: ignore[attr-defined]  # a plain dict here
    assert "communities" in graph_verdict(scores, "synthetic")["Good"]
    assert "components" not in graph_verdict(scores, "synthetic")["Lost"]
    scores.values["synthetic"].update({"community distance": 0.3, "components": 7.0})  # type: ignore[attr-defined]  # a plain dict here
    lost = graph_verdict(scores, "synthetic")["Lost"]
    assert "sizes of communities (distance 0.300; real graph, searched again: 0.120; random graph: 0.500)" in lost
    assert "number of components (real 1, here 7; random graph: 1)" in lost
