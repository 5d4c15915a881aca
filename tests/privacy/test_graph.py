"""Private graphs: one edge, or one node with all its edges, moves every statistic by at most what is charged."""

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from understudy.errors import BudgetExceeded
from understudy.privacy.events import DegreeSequence, DiscreteGaussian, Event, LaplaceCounts
from understudy.privacy.graph import (
    GraphUnit,
    PrivateGraph,
    _shuffled,
    block_counts,
    block_pairs,
    noisy_block_counts,
    noisy_degrees,
    noisy_tail_counts,
    project_degrees,
    read_graph,
    sorted_degrees,
    tail_counts,
)
from understudy.privacy.ledger import Guarantee, Ledger, Query
from understudy.privacy.noise import noise_source
from understudy.privacy.table import PrivateTable


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


def test_one_edge_moves_two_sorted_degrees_and_one_block_count_by_one() -> None:
    for edges, blocks in graphs(150):
        for at in range(len(edges)):
            without = np.delete(edges, at, axis=0)
            moved = sorted_degrees(edges, blocks) - sorted_degrees(without, blocks)
            assert sorted(moved[moved != 0]) == [1, 1]
            moved = block_counts(edges, blocks) - block_counts(without, blocks)
            assert moved[moved != 0].tolist() == [1]


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
    asked = [query(DegreeSequence(5.0)), query(DiscreteGaussian(5.0))]
    noisy_degrees(GRAPH, asked[0], spending)
    noisy_block_counts(GRAPH, asked[1], spending)
    assert spending.queries == tuple(asked)
    node = query(LaplaceCounts(1.0, 4))
    spending = ledger()
    noisy_tail_counts(NODE_GRAPH, 2, node, spending)
    assert spending.queries == (node,)


def test_what_does_not_fit_is_refused_before_the_noise() -> None:
    for spending, ask in [
        (ledger(0.1), lambda each: noisy_degrees(GRAPH, query(DegreeSequence(0.5)), each)),
        (ledger(0.1), lambda each: noisy_block_counts(GRAPH, query(DiscreteGaussian(0.5)), each)),
        (ledger(0.1), lambda each: noisy_tail_counts(NODE_GRAPH, 2, query(LaplaceCounts(1.0, 4)), each)),
        (ledger(), lambda each: noisy_tail_counts(NODE_GRAPH, 2, query(LaplaceCounts(1.0, 3)), each)),
        (ledger(), lambda each: noisy_degrees(GRAPH, query(DiscreteGaussian(5.0)), each)),
        (ledger(), lambda each: noisy_degrees(NODE_GRAPH, query(DegreeSequence(5.0)), each)),
        (ledger(), lambda each: noisy_block_counts(NODE_GRAPH, query(DiscreteGaussian(5.0)), each)),
        (ledger(), lambda each: noisy_tail_counts(GRAPH, 2, query(LaplaceCounts(1.0, 4)), each)),
    ]:
        with pytest.raises(BudgetExceeded, match="This query was not made"):
            ask(spending)
        assert spending.queries == ()
        assert spending.noise.num_draws == 0


def test_the_noise_has_the_charged_scale() -> None:
    """On a graph without edges the answers are the noise: accept that scale and reject its neighbours."""
    blocks = np.zeros(4000, dtype=np.int64)
    empty = PrivateGraph(np.zeros((0, 2), dtype=np.int64), blocks, GraphUnit.EDGE)
    noise = noisy_degrees(empty, query(DegreeSequence(8.0)), ledger())
    spread = noise + np.random.default_rng(3).uniform(-0.5, 0.5, len(noise))  # steps of one are too coarse for the test
    pvalues = {scale: stats.kstest(spread, stats.norm(scale=scale).cdf).pvalue for scale in (7.0, 8.0, 9.2)}
    assert pvalues[8.0] > 1e-3
    assert max(pvalues[7.0], pvalues[9.2]) < 1e-3
    many = PrivateGraph(empty._edges, np.arange(80, dtype=np.int64), GraphUnit.EDGE)
    noise = noisy_block_counts(many, query(DiscreteGaussian(8.0)), ledger())
    assert len(noise) == len(block_pairs(80)) == 80 * 81 // 2
    assert noise.std() == pytest.approx(8.0, rel=0.05)
    nodes = PrivateGraph(empty._edges, blocks, GraphUnit.NODE)
    noise = noisy_tail_counts(nodes, 2000, query(LaplaceCounts(4.0, 4000)), ledger())
    assert np.abs(noise).mean() == pytest.approx(1000, rel=0.1)


def test_without_a_guarantee_there_is_no_noise() -> None:
    open_ledger = Ledger(Guarantee.not_private(), noise=noise_source(seed=0))
    assert noisy_degrees(GRAPH, query(DegreeSequence(1e-3)), open_ledger).tolist() == [2, 2, 1, 1]
    assert noisy_block_counts(GRAPH, query(DiscreteGaussian(1e-3)), open_ledger).tolist() == [1, 2, 0]
    assert noisy_tail_counts(NODE_GRAPH, 2, query(LaplaceCounts(1.0, 4)), open_ledger).tolist() == [4, 2]
