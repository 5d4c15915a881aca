"""Private graphs: one edge, or one node with all its edges, moves every statistic by at most what is charged."""

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tests.builders import raises
from understudy.errors import BudgetExceeded
from understudy.privacy.accounting.events import DiscreteGaussian, Event, Gaussian, LaplaceCounts
from understudy.privacy.accounting.ledger import Guarantee, Ledger, Query
from understudy.privacy.mechanisms.graph import (
    COUNTS_SENSITIVITY,
    DEGREES_SENSITIVITY,
    TAILS_SENSITIVITY,
    GraphUnit,
    PrivateGraph,
    _shuffled,
    _with_gaussian_noise,
    block_counts,
    block_pairs,
    degree_tails,
    noisy_block_counts,
    noisy_degree_tails,
    noisy_degrees,
    noisy_tail_counts,
    project_degrees,
    read_graph,
    sorted_degrees,
    tail_counts,
)
from understudy.privacy.noise.source import fine_steps, noise_source
from understudy.privacy.rows.table import PrivateTable


def random_graph(rng: np.random.Generator, num_nodes: int, density: float) -> np.ndarray:
    pairs = np.stack(np.triu_indices(num_nodes, 1), axis=1)
    return _shuffled(pairs[rng.random(len(pairs)) < density])


def graphs(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random edges on few nodes, with random blocks: sparse, dense and complete."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        num_nodes = int(rng.integers(2, 9))
        blocks = rng.integers(0, rng.integers(1, 4), num_nodes)
        blocks[0] = blocks.max()
        found.append((random_graph(rng, num_nodes, rng.choice([0.2, 0.5, 1.0])), blocks))
    return found


def test_one_edge_moves_every_statistic_by_at_most_what_is_charged() -> None:
    """By brute force over all edges of many graphs; and each bound is attained."""
    largest = np.zeros(3)
    for edges, blocks in graphs(150):
        for at in range(len(edges)):
            without = np.delete(edges, at, axis=0)
            moved = (
                sorted_degrees(edges, blocks) - sorted_degrees(without, blocks),
                degree_tails(edges, blocks, 4) - degree_tails(without, blocks, 4),
                block_counts(edges, blocks) - block_counts(without, blocks),
            )
            assert sorted(moved[0][moved[0] != 0]) == [1, 1]
            assert moved[2][moved[2] != 0].tolist() == [1]
            largest = np.maximum(largest, [np.linalg.norm(each) for each in moved])
    np.testing.assert_allclose(largest, [DEGREES_SENSITIVITY, TAILS_SENSITIVITY, COUNTS_SENSITIVITY])


def test_a_histogram_of_degrees_would_move_further() -> None:
    """Why degrees are sorted: in a histogram two nodes that leave one bin for another move it by 2 sqrt(2)."""
    edges = np.array([[0, 1]])
    histograms = [np.bincount(sorted_degrees(each, np.zeros(2, dtype=int)), minlength=3) for each in (edges, edges[:0])]
    assert np.linalg.norm(histograms[0] - histograms[1]) == pytest.approx(np.sqrt(8))


def test_one_node_moves_the_tail_counts_by_at_most_twice_the_cap() -> None:
    """By brute force over nodes, graphs and caps; and the bound is attained."""
    largest = 0.0
    for edges, blocks in graphs(150):
        num_nodes = len(blocks)
        for cap in (1, 2, 3):
            whole = project_degrees(edges, num_nodes, cap)
            assert whole.max(initial=0) <= cap
            for node in range(num_nodes):
                kept = edges[(edges != node).all(axis=1)]
                moved = tail_counts(whole, cap) - tail_counts(project_degrees(kept, num_nodes, cap), cap)
                assert np.abs(moved).sum() <= 2 * cap
                largest = max(largest, float(np.abs(moved).sum() / (2 * cap)))
    assert largest == 1.0


def test_without_an_order_of_its_own_the_projection_would_move_further() -> None:
    """The bound needs an order that other edges do not change: the test above can fail."""
    largest = 0.0
    rng = np.random.default_rng(1)
    for edges, blocks in graphs(150):
        whole = project_degrees(rng.permutation(edges), len(blocks), 1)
        kept = rng.permutation(edges[(edges != 0).all(axis=1)])
        largest = max(
            largest, float(np.abs(tail_counts(whole, 1) - tail_counts(project_degrees(kept, len(blocks), 1), 1)).sum())
        )
    assert largest > 2


def test_the_order_of_two_edges_is_the_same_in_every_graph() -> None:
    rng = np.random.default_rng(2)
    edges = random_graph(rng, 40, 0.3)
    kept = edges[rng.random(len(edges)) < 0.5]
    np.testing.assert_array_equal(_shuffled(rng.permutation(kept)), kept)
    assert not (np.diff(edges[:, 0]) >= 0).all(), "it favours no node"


def test_a_graph_is_read_by_public_rules() -> None:
    """Loops and unknown nodes are left out; repetitions and directions are one edge; batches do not matter."""
    rows = np.array([[0, 1], [1, 0], [2, 2], [-1, 2], [0, 1], [2, 1], [1, -1]])
    table = pa.table({"a": rows[:, 0], "b": rows[:, 1]})

    def ends(batch: pa.Table) -> np.ndarray:
        return np.stack([batch.column(name).to_numpy() for name in "ab"], axis=1)

    blocks = np.zeros(3, dtype=np.int64)
    read = [
        read_graph(PrivateTable(batches), ends, blocks, GraphUnit.EDGE)
        for batches in (table, [table.slice(0, 3), table.slice(3)], [])
    ]
    assert sorted(map(tuple, read[0]._edges)) == [(0, 1), (1, 2)]
    np.testing.assert_array_equal(read[0]._edges, read[1]._edges)
    assert read[2]._edges.shape == (0, 2)
    assert repr(read[0]) == "PrivateGraph(...)"


# --- Charge, then noise ---

GRAPH = PrivateGraph(_shuffled(np.array([[0, 1], [0, 2], [1, 3]])), np.array([0, 0, 1, 1]), GraphUnit.EDGE)
NODE_GRAPH = PrivateGraph(GRAPH._edges, GRAPH.block_of_node, GraphUnit.NODE)


def ledger(epsilon: float = 5.0) -> Ledger:
    return Ledger(Guarantee(epsilon, 1e-6), noise=noise_source(seed=0))


def query(event: Event) -> Query:
    return Query("q", "the query", event)


def test_each_query_is_charged_as_planned() -> None:
    spending = ledger()
    asked = tuple(query(Gaussian(multiplier)) for multiplier in (5.0, 6.0, 7.0))
    noisy_degrees(GRAPH, asked[0], spending)
    noisy_degree_tails(GRAPH, 3, asked[1], spending)
    noisy_block_counts(GRAPH, asked[2], spending)
    assert spending.queries == asked
    node = query(LaplaceCounts(1.0, 4))
    spending = ledger()
    noisy_tail_counts(NODE_GRAPH, 2, node, spending)
    assert spending.queries == (node,)


def test_what_does_not_fit_is_refused_before_the_noise() -> None:
    fits, does_not = query(Gaussian(5.0)), query(Gaussian(0.5))
    for spending, ask in [
        (ledger(0.1), lambda each: noisy_degrees(GRAPH, does_not, each)),
        (ledger(0.1), lambda each: noisy_degree_tails(GRAPH, 3, does_not, each)),
        (ledger(0.1), lambda each: noisy_block_counts(GRAPH, does_not, each)),
        (ledger(0.1), lambda each: noisy_tail_counts(NODE_GRAPH, 2, query(LaplaceCounts(1.0, 4)), each)),
        (ledger(), lambda each: noisy_tail_counts(NODE_GRAPH, 2, query(LaplaceCounts(1.0, 3)), each)),
        (ledger(), lambda each: noisy_degrees(GRAPH, query(DiscreteGaussian(5.0)), each)),
        (ledger(), lambda each: noisy_degrees(NODE_GRAPH, fits, each)),
        (ledger(), lambda each: noisy_degree_tails(NODE_GRAPH, 3, fits, each)),
        (ledger(), lambda each: noisy_block_counts(NODE_GRAPH, fits, each)),
        (ledger(), lambda each: noisy_tail_counts(GRAPH, 2, query(LaplaceCounts(1.0, 4)), each)),
    ]:
        with raises(BudgetExceeded, query="the query"):
            ask(spending)
        assert spending.queries == ()
        assert spending.noise.num_draws == 0


def test_the_noise_has_the_charged_scale() -> None:
    """On a graph without edges the answers are the noise: accept that scale and reject its neighbours."""
    no_edges, blocks = np.zeros((0, 2), dtype=np.int64), np.zeros(2500, dtype=np.int64)
    empty = PrivateGraph(no_edges, blocks, GraphUnit.EDGE)
    many = PrivateGraph(no_edges, np.arange(70, dtype=np.int64), GraphUnit.EDGE)
    asked = query(Gaussian(5.0))
    assert len(block_pairs(70)) == 70 * 71 // 2
    for noise, stddev in [
        (noisy_degrees(empty, asked, ledger()), 5 * math.sqrt(2)),
        (noisy_degree_tails(empty, 2500, asked, ledger())[0], 10.0),
        (noisy_block_counts(many, asked, ledger()), 5.0),
    ]:
        pvalues = [stats.kstest(noise, stats.norm(scale=stddev * wrong).cdf).pvalue for wrong in (0.8, 1.0, 1.25)]
        assert pvalues[1] > 1e-3
        assert max(pvalues[0], pvalues[2]) < 1e-3
    nodes = PrivateGraph(no_edges, blocks, GraphUnit.NODE)
    noise = noisy_tail_counts(nodes, 2000, query(LaplaceCounts(4.0, 4000)), ledger())
    assert np.abs(noise).mean() == pytest.approx(1000, rel=0.1)


def test_with_little_noise_large_counts_do_not_wrap_around() -> None:
    """The steps of the noise are then so fine that a product with them takes more than 64 bits."""
    ledger = Ledger(Guarantee(100.0, 1e-6), noise=noise_source(0))
    exact, little = np.array([0, 7, 2**28]), Gaussian(2.0**-15)
    assert 2**28 * fine_steps(2.0**-15) > 2**62
    noisy = _with_gaussian_noise(exact, little, 1.0, ledger)
    assert noisy[:2] == pytest.approx(exact[:2], abs=0.01)
    assert 0 < noisy[2] <= exact[2] + 1


def test_without_a_guarantee_there_is_no_noise() -> None:
    spending, asked = Ledger(Guarantee.not_private(), noise=noise_source(seed=0)), query(Gaussian(1e-3))
    assert noisy_degrees(GRAPH, asked, spending).tolist() == [2, 2, 1, 1]
    assert noisy_degree_tails(GRAPH, 2, asked, spending).tolist() == [[2, 2], [2, 0]]
    assert noisy_block_counts(GRAPH, asked, spending).tolist() == [1, 2, 0]
    assert noisy_tail_counts(NODE_GRAPH, 2, query(LaplaceCounts(1.0, 4)), spending).tolist() == [4, 2]
