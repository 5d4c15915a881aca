"""Degrees from noisy answers, and random graphs that have them."""

import itertools

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from understudy.graphs.degrees import (
    degrees_of_tails,
    fit_total,
    havel_hakimi,
    is_graphical,
    make_graphical,
    restore_degrees,
)
from understudy.graphs.random_graphs import sample_edges, shuffle_edges
from understudy.privacy.mechanisms.graph import block_counts, sorted_degrees, tail_counts


def is_simple(edges: np.ndarray) -> bool:
    return bool((edges[:, 0] < edges[:, 1]).all()) and len(np.unique(edges, axis=0)) == len(edges)


def test_graphical_sequences_are_those_that_networkx_knows() -> None:
    for listed in itertools.product(range(-1, 6), repeat=5):
        assert is_graphical(np.array(listed)) == nx.is_graphical(listed)
    rng = np.random.default_rng(0)
    for _ in range(30):  # more than 1,000 nodes: the sums are computed otherwise
        degrees = np.minimum(rng.zipf(1.4, 1200), 1199)
        assert is_graphical(degrees) == nx.is_graphical(degrees.tolist())


def test_degrees_are_lowered_until_a_graph_has_them() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        degrees = rng.integers(-2, 12, rng.integers(1, 10))
        found = make_graphical(degrees)
        assert (found <= np.maximum(degrees, 0)).all()
        edges = havel_hakimi(found)
        np.testing.assert_array_equal(np.bincount(edges.ravel(), minlength=len(found)), found)
        assert is_simple(np.sort(edges, axis=1))
        if is_graphical(degrees):
            np.testing.assert_array_equal(found, degrees)


def test_a_sum_within_bounds_is_met_by_the_nearest_values() -> None:
    """Against a general solver of the same projection."""
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(0)
    for _ in range(5):
        values = rng.normal(3, 3, 6)
        found = fit_total(values, 14, 5)
        solved = optimize.minimize(
            lambda x, values=values: ((x - values) ** 2).sum(),
            np.full(6, 14 / 6),
            bounds=[(0, 5)] * 6,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 14},
        )
        np.testing.assert_allclose(found, solved.x, atol=1e-2)


@pytest.mark.parametrize("graph", [nx.barabasi_albert_graph(400, 3, seed=0), nx.karate_club_graph()], ids=len)
def test_without_noise_the_degrees_come_back(graph: nx.Graph) -> None:
    edges, num_nodes = np.array(graph.edges), len(graph)
    blocks = np.zeros(num_nodes, dtype=np.int64)
    exact = sorted_degrees(edges, blocks)
    for few in (0.0, 5.0, 1e9):  # wherever the two descriptions meet
        found = restore_degrees(
            exact.astype(float),
            tail_counts(exact, num_nodes - 1).astype(float),
            tails_stddev=few,
            total=int(exact.sum()),
            max_degree=num_nodes - 1,
        )
        np.testing.assert_array_equal(found, exact)
    np.testing.assert_array_equal(degrees_of_tails(tail_counts(exact, num_nodes - 1), num_nodes), exact)


def test_two_descriptions_are_better_than_either() -> None:
    """Sorted degrees alone blur what many nodes share; counts alone lose the largest degrees."""
    graph = nx.powerlaw_cluster_graph(2000, 20, 0.3, seed=0)
    exact = sorted_degrees(np.array(graph.edges), np.zeros(2000, dtype=np.int64))
    rng = np.random.default_rng(0)
    noisy, tails = exact + rng.normal(0, 9, 2000), tail_counts(exact, 1000) + rng.normal(0, 12, 1000)
    total = int(exact.sum())
    both, first = (
        restore_degrees(noisy, tails, tails_stddev=stddev, total=total, max_degree=1999) for stddev in (12.0, 1e9)
    )
    assert stats.ks_2samp(both, exact).statistic < 0.02 < stats.ks_2samp(first, exact).statistic
    assert abs(both.max() - exact.max()) < 30


def test_a_sample_has_the_degrees_and_block_counts() -> None:
    rng = np.random.default_rng(0)
    blocks = np.repeat([0, 1, 2], [150, 100, 50])
    pairs = np.stack(np.triu_indices(300, 1), axis=1)
    edges = pairs[rng.random(len(pairs)) < np.where(blocks[pairs[:, 0]] == blocks[pairs[:, 1]], 0.15, 0.02)]
    degrees, counts = sorted_degrees(edges, blocks), block_counts(edges, blocks)
    found = sample_edges(degrees, blocks, counts, np.random.default_rng(1))
    assert is_simple(found)
    np.testing.assert_array_equal(sorted_degrees(found, blocks), degrees)
    np.testing.assert_array_equal(block_counts(found, blocks), counts)
    other = sample_edges(degrees, blocks, counts, np.random.default_rng(2))
    assert len(np.intersect1d(found @ [300, 1], other @ [300, 1])) < len(found) / 2


@pytest.mark.parametrize("degrees", [[0, 0, 0], [1, 1, 2], [3, 3, 3, 3], [1, 1, 1, 1, 1, 5], [0], [4, 4, 4, 4, 4]])
def test_tight_degrees_are_met(degrees: list[int]) -> None:
    """Stars and complete graphs: hardly any graph, or one alone, has these degrees."""
    found = sample_edges(
        np.array(degrees),
        np.zeros(len(degrees), dtype=np.int64),
        np.array([sum(degrees) // 2]),
        np.random.default_rng(0),
    )
    assert is_simple(found)
    assert sorted(np.bincount(found.ravel(), minlength=len(degrees))) == sorted(degrees)


def test_inconsistent_answers_make_a_graph_all_the_same() -> None:
    blocks = np.array([0, 0, 1, 1, 2])
    found = sample_edges(np.array([0, 3, 1, 1, 0]), blocks, np.array([9, 0, 2, 1, 0, 5]), np.random.default_rng(0))
    assert is_simple(found)


def test_shuffling_keeps_degrees_and_reaches_every_graph() -> None:
    """Three graphs have two edges on four nodes that share none: each is about as likely."""
    rng = np.random.default_rng(0)
    edges = np.array([[0, 1], [2, 3]])
    found = [tuple(map(tuple, sorted(np.sort(shuffle_edges(edges, 4, rng), axis=1).tolist()))) for _ in range(300)]
    assert len(set(found)) == 3
    assert min(map(found.count, set(found))) > 50
