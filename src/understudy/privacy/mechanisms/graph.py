"""Noisy statistics of one private graph: degrees, edge counts of public blocks, and degree counts of a projection.

Nodes and their blocks are public. What is private are the edges: one of them (the unit is an edge), or all edges of a
node at once (the unit is a node). Edges are undirected, without loops, and each pair of nodes counts once, however many
rows name it. So an edge, as a unit, is all rows that name the same two nodes.
"""

import dataclasses
import enum
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pyarrow as pa
from jaxtyping import Float64, Int64

from understudy.errors import BudgetExceeded
from understudy.privacy.accounting.events import Gaussian, LaplaceCounts
from understudy.privacy.accounting.ledger import Ledger, Query
from understudy.privacy.gradients.charges import check_table_query, event_of
from understudy.privacy.noise.source import fine_steps, with_laplace_noise, with_noise
from understudy.privacy.rows.table import PrivateTable


class GraphUnit(enum.Enum):
    """What the guarantee of a graph protects."""

    EDGE = "edge"
    """One edge. Neighbouring graphs have the same nodes, and one of them has one edge more."""
    NODE = "node"
    """All edges of one node. Neighbouring graphs have the same nodes; in one of them, one node has no edges."""


@dataclasses.dataclass(frozen=True, repr=False)
class PrivateGraph:
    """A private graph on public nodes. Opaque, like `PrivateRows`."""

    _edges: Int64[np.ndarray, "edges 2"]
    """Pairs of nodes, the smaller number first, each pair once and in the order of `_shuffled`."""
    block_of_node: Int64[np.ndarray, " nodes"]
    """The number of each node's block, from 0 on. Public."""
    unit: GraphUnit

    def __repr__(self) -> str:
        return "PrivateGraph(...)"

    @property
    def num_nodes(self) -> int:
        return len(self.block_of_node)

    @property
    def num_blocks(self) -> int:
        return int(self.block_of_node.max(initial=0)) + 1


def read_graph(
    table: PrivateTable,
    ends: Callable[[pa.Table], Int64[np.ndarray, "rows 2"]],
    block_of_node: Int64[np.ndarray, " nodes"],
    unit: GraphUnit,
) -> PrivateGraph:
    """The graph whose edges are the rows of a table. `ends` numbers the nodes of each row by public rules; -1: no node.

    Formal guarantee: loops and rows with an end that is no node are left out, row by row, and the two directions of an
    edge and its repetitions are one edge. So removing the rows of one pair of nodes removes this edge or none, and
    moves no other.
    """
    rows = np.concatenate([np.zeros((0, 2), dtype=np.int64), *(ends(batch) for batch in table._batches)])
    rows = np.sort(rows[(rows >= 0).all(axis=1) & (rows[:, 0] != rows[:, 1])], axis=1)
    return PrivateGraph(_shuffled(np.unique(rows, axis=0)), block_of_node, unit)


def _shuffled(edges: Int64[np.ndarray, "edges 2"]) -> Int64[np.ndarray, "edges 2"]:
    """The edges in a fixed order of all pairs of nodes, which favours no node: by a hash of the pair.

    Which of two edges comes first follows from these two alone, so it is the same in every graph that has both.
    """
    hashed = edges[:, 0].astype(np.uint64) * np.uint64(2**32) + edges[:, 1].astype(np.uint64)
    for shift, factor in (
        (30, 0xBF58476D1CE4E5B9),
        (27, 0x94D049BB133111EB),
    ):  # the finalizer of splitmix64: one to one
        hashed = (hashed ^ (hashed >> np.uint64(shift))) * np.uint64(factor)
    return edges[np.argsort(hashed ^ (hashed >> np.uint64(31)), kind="stable")]


# ------------------------------------------------------------------------------------------------- the unit is an edge

DEGREES_SENSITIVITY = math.sqrt(2)
"""L2 sensitivity of `noisy_degrees`."""
TAILS_SENSITIVITY = 2.0
"""L2 sensitivity of `noisy_degree_tails`."""
COUNTS_SENSITIVITY = 1.0
"""L2 sensitivity of `noisy_block_counts`."""


def noisy_degrees(graph: PrivateGraph, query: Query, ledger: Ledger) -> Float64[np.ndarray, " nodes"]:
    """The degrees of all nodes, block after block and ascending within each block, with Gaussian noise.

    Formal guarantee: the cost of `query`, a `Gaussian`, under add/remove of one edge, which moves two entries by one
    each: the L2 sensitivity is sqrt(2). Proof: an edge raises the degrees of two nodes by one. Sorting keeps the order
    of vectors, so no sorted entry falls, and the sum of all entries grows by 2. Sorting moves no two vectors further
    apart in L2 norm (the rearrangement inequality), and the norm before sorting is sqrt(2). Whole numbers that are not
    negative, with sum 2 and sum of squares at most 2, are two ones. The same holds for sorting within each block (Hay,
    Li, Miklau and Jensen 2009 have it for one block, in L1 norm). Not covered: timing, memory.
    """
    event = event_of(query, Gaussian)
    _check(graph, GraphUnit.EDGE, query)
    ledger.charge(query)  # before the draw: a refused release must not exist
    exact = sorted_degrees(graph._edges, graph.block_of_node)
    return _with_gaussian_noise(exact, event, DEGREES_SENSITIVITY, ledger)


def noisy_degree_tails(
    graph: PrivateGraph, num_tails: int, query: Query, ledger: Ledger
) -> Float64[np.ndarray, "blocks degrees"]:
    """How many nodes of each block have degree 1 or more, 2 or more, ... `num_tails` or more, with Gaussian noise.

    Formal guarantee: the cost of `query`, a `Gaussian`, under add/remove of one edge: the L2 sensitivity is 2. Proof: a
    node whose degree grows from d to d + 1 raises entry d + 1 of its block by one and no other. Two nodes do, so two
    entries move by one, or one entry by two. Not covered: timing, memory.
    """
    event = event_of(query, Gaussian)
    _check(graph, GraphUnit.EDGE, query)
    ledger.charge(query)
    exact = degree_tails(graph._edges, graph.block_of_node, num_tails)
    return _with_gaussian_noise(exact, event, TAILS_SENSITIVITY, ledger)


def noisy_block_counts(graph: PrivateGraph, query: Query, ledger: Ledger) -> Float64[np.ndarray, " pairs"]:
    """The number of edges between each pair of blocks (`block_pairs`), with Gaussian noise.

    Formal guarantee: the cost of `query`, a `Gaussian`, under add/remove of one edge, which is counted in one entry
    and moves it by one: the L2 sensitivity is 1. Not covered: timing, memory.
    """
    event = event_of(query, Gaussian)
    _check(graph, GraphUnit.EDGE, query)
    ledger.charge(query)
    exact = block_counts(graph._edges, graph.block_of_node)
    return _with_gaussian_noise(exact, event, COUNTS_SENSITIVITY, ledger)


def _with_gaussian_noise(
    exact: Int64[np.ndarray, "..."], event: Gaussian, sensitivity: float, ledger: Ledger
) -> Float64[np.ndarray, "..."]:
    """Adds what was charged: discrete noise on steps so fine that the curve of the continuous Gaussian accounts for it
    (`filters.py` has the argument)."""
    assert not event.floating
    assert event.count == 1
    if not ledger.guarantee.is_private:
        return exact.astype(float)
    stddev = event.noise_multiplier * sensitivity * (1 + 1e-9)  # never less than charged, whatever floats round
    steps = fine_steps(stddev)
    # With little noise the steps are so fine that 64 bits may not hold the product: whole numbers of any size do.
    return with_noise(exact.astype(object) * steps, stddev * steps, ledger.noise) / steps


def sorted_degrees(
    edges: Int64[np.ndarray, "edges 2"], block_of_node: Int64[np.ndarray, " nodes"]
) -> Int64[np.ndarray, " nodes"]:
    """The exact degrees, block after block and ascending within each block.

    >>> sorted_degrees(np.array([[0, 1], [1, 2]]), np.array([0, 0, 1])).tolist()
    [1, 2, 1]
    """
    degrees = np.bincount(edges.ravel(), minlength=len(block_of_node))
    return degrees[np.lexsort((degrees, block_of_node))]


def degree_tails(
    edges: Int64[np.ndarray, "edges 2"], block_of_node: Int64[np.ndarray, " nodes"], num_tails: int
) -> Int64[np.ndarray, "blocks degrees"]:
    """How many nodes of each block have at least each degree, exactly.

    >>> degree_tails(np.array([[0, 1], [1, 2]]), np.array([0, 0, 1]), 2).tolist()
    [[2, 1], [1, 0]]
    """
    degrees = np.bincount(edges.ravel(), minlength=len(block_of_node))
    num_blocks = int(block_of_node.max(initial=0)) + 1
    return np.stack([tail_counts(degrees[block_of_node == block], num_tails) for block in range(num_blocks)])


def block_counts(
    edges: Int64[np.ndarray, "edges 2"], block_of_node: Int64[np.ndarray, " nodes"]
) -> Int64[np.ndarray, " pairs"]:
    """The exact number of edges between each pair of blocks, in the order of `block_pairs`.

    >>> block_counts(np.array([[0, 1], [1, 2]]), np.array([0, 0, 1])).tolist()
    [1, 1, 0]
    """
    num_blocks = int(block_of_node.max(initial=0)) + 1
    low, high = np.sort(block_of_node[edges], axis=1).T
    square = np.bincount(low * num_blocks + high, minlength=num_blocks**2).reshape(num_blocks, num_blocks)
    return square[np.triu_indices(num_blocks)]


def block_pairs(num_blocks: int) -> Int64[np.ndarray, "pairs 2"]:
    """All pairs of blocks, a block with itself among them: the entries of `noisy_block_counts`.

    >>> block_pairs(2).tolist()
    [[0, 0], [0, 1], [1, 1]]
    """
    return np.stack(np.triu_indices(num_blocks), axis=1)


# -------------------------------------------------------------------------------------------------- the unit is a node


def noisy_tail_counts(
    graph: PrivateGraph, max_degree: int, query: Query, ledger: Ledger
) -> Int64[np.ndarray, " degrees"]:
    """How many nodes have degree 1 or more, 2 or more, ... `max_degree`, after the projection `project_degrees`.

    Formal guarantee: the cost of `query`, a `LaplaceCounts` of sensitivity 2 * `max_degree` or more, under removal of
    all edges of one node: a pure epsilon. A node whose degree changes by k moves k entries by one each, so the L1
    norm of the change is at most the sum of all changes of degrees, which `project_degrees` bounds. Not covered:
    timing, memory.
    """
    event = event_of(query, LaplaceCounts)
    _check(graph, GraphUnit.NODE, query)
    if event.sensitivity < 2 * max_degree:
        raise BudgetExceeded(
            f"'{query.what}' is planned for a sensitivity of {event.sensitivity}, but a node can move these counts by "
            f"{2 * max_degree}. This query was not made.",
            query=query.what,
        )
    ledger.charge(query)
    degrees = project_degrees(graph._edges, graph.num_nodes, max_degree)
    exact = tail_counts(degrees, max_degree)
    if not ledger.guarantee.is_private:
        return exact
    scale = event.sensitivity / Fraction(event.epsilon)
    return with_laplace_noise(exact, scale, ledger.noise)


def tail_counts(degrees: Int64[np.ndarray, " nodes"], max_degree: int) -> Int64[np.ndarray, " degrees"]:
    """How many of these degrees are at least 1, 2, ... `max_degree`.

    >>> tail_counts(np.array([0, 1, 3]), 3).tolist()
    [2, 1, 1]
    """
    return np.bincount(np.minimum(degrees, max_degree), minlength=max_degree + 1)[::-1].cumsum()[::-1][1:]


def project_degrees(
    edges: Int64[np.ndarray, "edges 2"], num_nodes: int, max_degree: int
) -> Int64[np.ndarray, " nodes"]:
    """The degrees after adding the edges in their order, each only if both ends still have fewer than `max_degree`.

    This is the projection by edge addition of Day, Li and Lyu (2016, algorithm 1), for a fixed node set.

    Formal guarantee: provided that the order of two edges follows from these two alone, removing all edges of one node
    v changes the degrees by at most 2 * `max_degree` in L1 norm. Proof: let d be the degrees without these edges and e
    those with them, and add the edges of both graphs side by side. By induction, D, the sum of |d_u - e_u| over all
    u but v, is at most e_v. An edge of v raises e_v, and D by at most one. Another edge that both graphs add, or
    neither, leaves D. If one graph alone adds (u, w), then in the other graph one of the two nodes, say u, has
    reached `max_degree` and in this one it has not, so adding the edge brings d_u and e_u closer by one, and moves d_w
    and e_w apart by at most one: D does not grow. Finally e_v <= `max_degree` and d_v = 0.
    """
    degrees = [0] * num_nodes
    for one, other in edges.tolist():
        if degrees[one] < max_degree and degrees[other] < max_degree:
            degrees[one] += 1
            degrees[other] += 1
    return np.asarray(degrees, dtype=np.int64)


def _check(graph: PrivateGraph, unit: GraphUnit, query: Query) -> None:
    """Refuses a query whose noise is for another unit."""
    check_table_query(query)
    if graph.unit is not unit:
        raise BudgetExceeded(
            f"'{query.what}' protects one {unit.value}, but this run protects one {graph.unit.value}. This query was "
            "not made.",
            query=query.what,
        )
