"""Metrics of graphs against NetworkX, and against closed forms."""

import networkx as nx
import numpy as np
import pytest
from scipy import stats

import understudy as us
from tests.builders import raises
from understudy.graphs import evaluate
from understudy.graphs.metrics import random_edges


@pytest.mark.parametrize(
    "graph",
    [nx.les_miserables_graph(), nx.davis_southern_women_graph(), nx.gnp_random_graph(60, 0.02, seed=0)],
    ids=len,
)
def test_figures_are_those_of_networkx(graph: nx.Graph) -> None:
    schema = us.GraphSchema.of_networkx(graph)
    real = evaluate(graph, graph, schema)["real"]
    assert real["edges"] == graph.number_of_edges()
    assert real["triangles"] == sum(nx.triangles(graph).values()) // 3
    assert real["clustering"] == pytest.approx(nx.average_clustering(graph))
    assert real["transitivity"] == pytest.approx(nx.transitivity(graph))
    assert real["components"] == nx.number_connected_components(graph)
    assert real["largest component"] == len(max(nx.connected_components(graph), key=len)) / len(graph)


def test_the_real_graph_has_no_distance_and_a_random_one_has() -> None:
    graph = nx.karate_club_graph()
    schema = us.GraphSchema.of_networkx(graph, block="club")
    scores = evaluate(graph, {"same": graph, "empty": nx.empty_graph(34)}, schema)
    assert list(scores.values) == ["real", "same", "empty", "random"]
    for name in ("degree distance", "component distance", "community distance"):
        assert scores["real"][name] == scores["same"][name] == 0
        assert 0 < scores["empty"][name] <= 1
    assert scores["random"]["degree distance"] > 0.1
    assert scores["random"]["edges"] == 78
    assert scores["real"]["edges within blocks"] > 0.8 > scores["random"]["edges within blocks"]
    assert "do not publish" in repr(scores)
    assert scores.to_json()["warning"]
    with raises(us.ConfigError, setting="synthetic"):
        evaluate(graph, {"real": graph}, schema)


def test_random_edges_are_simple_and_uniform() -> None:
    rng = np.random.default_rng(0)
    counts = np.zeros((6, 6), dtype=int)
    for _ in range(600):
        edges = random_edges(6, 5, rng)
        assert len(np.unique(edges, axis=0)) == 5
        counts[edges[:, 0], edges[:, 1]] += 1
    found = counts[np.triu_indices(6, 1)]
    assert counts.sum() == found.sum() == 3000
    assert stats.chisquare(found).pvalue > 1e-3
    assert len(random_edges(4, 99, rng)) == 6
