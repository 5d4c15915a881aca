"""Random graphs with given degrees and given numbers of edges between blocks: a degree-corrected block model."""

import numpy as np
from jaxtyping import Bool, Int64

from understudy.graphs.degrees import havel_hakimi, make_graphical
from understudy.privacy.mechanisms.graph import block_pairs

ROUNDS = 300
"""Rounds of repair without progress. Most graphs need few; degrees that no graph has are never met in full."""
MAX_SWAPPED = 20_000
"""Edges of graphs that are made by exchanging ends one after the other, where repair fails."""


def sample_edges(
    degrees: Int64[np.ndarray, " nodes"],
    block_of_node: Int64[np.ndarray, " nodes"],
    block_counts: Int64[np.ndarray, " pairs"],
    generator: np.random.Generator,
) -> Int64[np.ndarray, "edges 2"]:
    """A random graph without loops and repeated edges, with these degrees and these numbers of edges between blocks.

    `degrees` are listed block after block; within a block they are given to its nodes at random. Each node gets as many
    half-edges as its degree, half-edges are assigned to pairs of blocks at random, and matched at random within each
    pair. Edges that are loops or repetitions exchange ends with other edges of the same pair of blocks, which keeps
    degrees and block counts. What cannot be repaired is left out (in a small graph with one block, nothing is). With
    one block this is the configuration model, with several the degree-corrected block model with fixed degrees (Karrer
    and Newman 2011; Peixoto 2012).
    """
    num_blocks = int(block_of_node.max(initial=0)) + 1
    halves = _assign_halves(degrees, block_of_node, block_counts, num_blocks, generator)
    ends, pair_of_edge = [], []
    for number, (one, other) in enumerate(block_pairs(num_blocks).tolist()):
        left, right = halves[one, other], halves[other, one]
        if one == other:
            left, right = left[: len(left) // 2], left[len(left) // 2 :]
        size = min(len(left), len(right))
        ends.append(np.stack([left[:size], right[:size]], axis=1))
        pair_of_edge.append(np.full(size, number))
    edges = np.concatenate(ends)
    repaired = _repair(
        edges, np.concatenate(pair_of_edge), np.equal(*block_pairs(num_blocks).T), len(block_of_node), generator
    )
    if num_blocks == 1 and len(repaired) < len(edges) <= MAX_SWAPPED:  # hardly any graph has these degrees
        placed = generator.permutation(make_graphical(degrees))
        repaired = shuffle_edges(havel_hakimi(placed), len(degrees), generator)
    return np.sort(repaired, axis=1)


def shuffle_edges(
    edges: Int64[np.ndarray, "edges 2"], num_nodes: int, generator: np.random.Generator
) -> Int64[np.ndarray, "edges 2"]:
    """A random graph with the degrees of this one: pairs of edges exchange ends, where that makes no loop and no
    repetition, ten times as often as there are edges."""
    ends = [tuple(edge) for edge in edges.tolist()]
    present = {frozenset(edge) for edge in ends}
    for one, other in generator.integers(len(ends), size=(10 * len(ends), 2)).tolist() if ends else []:
        (a, b), (c, d) = ends[one], ends[other]
        new = frozenset((a, d)), frozenset((c, b))
        if len({a, b, c, d}) < 4 or new[0] in present or new[1] in present:
            continue
        present -= {frozenset(ends[one]), frozenset(ends[other])}
        present |= set(new)
        ends[one], ends[other] = (a, d), (b, c)  # the second one turned, so that all matchings can be reached
    return np.asarray(ends, dtype=np.int64).reshape(-1, 2)


def _assign_halves(
    degrees: Int64[np.ndarray, " nodes"],
    block_of_node: Int64[np.ndarray, " nodes"],
    block_counts: Int64[np.ndarray, " pairs"],
    num_blocks: int,
    generator: np.random.Generator,
) -> dict[tuple[int, int], Int64[np.ndarray, " halves"]]:
    """The nodes of the half-edges that lead from each block to each block, in random order."""
    counts = np.zeros((num_blocks, num_blocks), dtype=np.int64)
    counts[np.triu_indices(num_blocks)] = block_counts
    wanted = counts + counts.T  # a block with itself: both ends of an edge
    halves: dict[tuple[int, int], np.ndarray] = {}
    first = 0
    for block in range(num_blocks):
        nodes = generator.permutation(np.flatnonzero(block_of_node == block))
        own = np.repeat(nodes, degrees[first : first + len(nodes)])
        first += len(nodes)
        parts = np.split(generator.permutation(own), np.cumsum(wanted[block])[:-1])
        halves |= {(block, other): part[: wanted[block, other]] for other, part in enumerate(parts)}
    return halves


def _repair(
    edges: Int64[np.ndarray, "edges 2"],
    pair_of_edge: Int64[np.ndarray, " edges"],
    is_within: Bool[np.ndarray, " pairs"],
    num_nodes: int,
    generator: np.random.Generator,
) -> Int64[np.ndarray, "edges 2"]:
    """Exchanges ends until no edge is a loop or a repetition, then leaves out those that still are.

    `is_within` marks the pairs of a block with itself, whose edges may be turned around.
    """
    bad, failed = _is_bad(edges, num_nodes), 0
    while bad.any() and failed < ROUNDS:
        # With some others at random, their ends go around within each pair of blocks: many first, few in a tight graph.
        chosen = np.flatnonzero(bad)
        size = 2 * len(chosen) + 10 if failed < ROUNDS // 30 else int(generator.integers(1, 4))
        chosen = generator.choice(chosen, min(len(chosen), size), replace=False)
        chosen = np.union1d(chosen, generator.choice(len(edges), min(len(edges), size), replace=False))
        by_pair = chosen[np.lexsort((generator.random(len(chosen)), pair_of_edge[chosen]))]
        shuffled = chosen[np.lexsort((generator.random(len(chosen)), pair_of_edge[chosen]))]
        tried = edges.copy()
        tried[by_pair, 1] = edges[shuffled, 1]
        turned = generator.random(len(chosen)) < is_within[pair_of_edge[chosen]] / 2  # either end may be exchanged
        tried[chosen[turned]] = tried[chosen[turned]][:, ::-1]
        still = _is_bad(tried, num_nodes)
        failed = 0 if still.sum() < bad.sum() else failed + 1
        if still.sum() <= bad.sum():
            edges, bad = tried, still
    return edges[~bad]


def _is_bad(edges: Int64[np.ndarray, "edges 2"], num_nodes: int) -> Bool[np.ndarray, " edges"]:
    """Loops, and all but the first of equal edges."""
    low, high = edges.min(axis=1, initial=num_nodes), edges.max(axis=1, initial=0)
    bad = np.ones(len(edges), dtype=bool)
    bad[np.unique(low * num_nodes + high, return_index=True)[1]] = False
    return bad | (low == high)
