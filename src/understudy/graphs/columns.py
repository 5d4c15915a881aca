"""Tables in which each row holds a small graph: the graph as columns that every method can synthesise, and back.

A graph is written as text: "0-1;1-2;4" has the edges 0-1 and 1-2 and the node 4 without an edge. Nodes are numbered
from 0 on, and node 3 is there too, because a higher number is named. Both directions work row by row, by public rules,
so the guarantee of `fit` for one row, or for all rows of a unit, covers the graphs as well.
"""

import itertools
import math
from typing import NamedTuple, TypeVar

import jax
import narwhals as nw
import numpy as np
import pyarrow as pa
from jaxtyping import Int64

from understudy.errors import ConfigError, TableError, did_you_mean
from understudy.graphs.degrees import havel_hakimi, make_graphical
from understudy.privacy.noise.source import fresh_key
from understudy.release import check_seed

MAX_ADJACENCY = 12
"""Up to this number of nodes, each possible edge is a column; above, degrees and motif counts are."""
MAX_NODES = 50
NUM_SWAPS = 100
"""Exchanges of ends that are tried for each graph, to meet its motif counts."""

AnyFrame = TypeVar("AnyFrame")
Edges = frozenset[tuple[int, int]]


class SmallGraph(NamedTuple):
    """Nodes 0 to `num_nodes` - 1, and edges with the smaller number first."""

    num_nodes: int
    edges: Edges


def graph_columns(column: str, max_nodes: int) -> dict[str, dict[str, object]]:
    """What to declare about the columns of `to_columns`: entries of the `columns` section of a schema."""
    declared: dict[str, dict[str, object]] = {
        f"{column}_nodes": {"kind": "integer", "bounds": [0, _check_size(max_nodes)]}
    }
    if max_nodes <= MAX_ADJACENCY:
        return declared | {
            f"{column}_{one}_{other}": {"kind": "boolean", "nullable": False} for one, other in _pairs(max_nodes)
        }
    motifs = {"triangles": math.comb(max_nodes, 3), "squares": 3 * math.comb(max_nodes, 4)}
    degrees = {f"degree_{rank}": max_nodes - 1 for rank in range(1, max_nodes + 1)}
    return declared | {
        f"{column}_{name}": {"kind": "integer", "bounds": [0, most], "nullable": False}
        for name, most in (motifs | degrees).items()
    }


def to_columns(table: AnyFrame, column: str, max_nodes: int, *, relabel: bool = False) -> AnyFrame:
    """The table with the graphs in `column` replaced by the columns of `graph_columns`. Row by row, by public rules.

    Parts of a string that cannot be read, or that name a node of number `max_nodes` or more, are left out, as are
    loops; repeated edges count once. A null stays null. Up to 12 nodes there is a column for each possible edge: with
    `relabel`, nodes are first numbered by descending degree, for graphs whose node numbers carry no meaning. Up to 50
    nodes, the columns are the degrees, descending, and the numbers of triangles and squares; node numbers are lost.
    """
    declared = graph_columns(column, max_nodes)
    arrow, strings = _take_column(table, column)
    graphs = [None if text is None else read_graph_text(text, max_nodes) for text in strings]
    if relabel:
        graphs = [None if graph is None else _relabel(graph) for graph in graphs]
    values = [_encode(graph, max_nodes) for graph in graphs]
    columns = list(zip(*values, strict=True)) or [()] * len(declared)
    kinds = {"boolean": pa.bool_(), "integer": pa.int64()}
    for (name, entry), column_values in zip(declared.items(), columns, strict=True):
        if name in arrow.column_names:
            raise TableError(f"The table already has a column {name!r}. Rename it first.", column=name)
        arrow = arrow.append_column(name, pa.array(column_values, kinds[str(entry["kind"])]))
    return _as_given(arrow.drop_columns([column]), table)


def from_columns(table: AnyFrame, column: str, max_nodes: int, *, seed: int | None = None) -> AnyFrame:
    """The reverse of `to_columns`: the columns of `graph_columns` replaced by strings that describe valid graphs.

    From degrees, a random graph is made that has them; degrees that no graph has are lowered first. Pairs of edges then
    exchange ends where that brings the numbers of triangles and squares nearer. Post-processing: free. A `seed` makes
    that reproducible.
    """
    check_seed(seed)
    key = fresh_key() if seed is None else jax.random.key(seed)
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    names = list(graph_columns(column, max_nodes))
    arrow = _arrow_of(table)
    for name in names:
        if name not in arrow.column_names:
            raise TableError(
                f"The table has no column {name!r}, one of the columns of graphs in {column!r} with up to {max_nodes} "
                "nodes. Give the table that was sampled, and the max_nodes of to_columns.",
                column=name,
            )
    rows = zip(*(arrow.column(name).to_pylist() for name in names), strict=True)
    decoded = (_decode(row, max_nodes, generator) for row in rows)
    strings = [None if graph is None else write_graph_text(graph) for graph in decoded]
    first = arrow.column_names.index(names[0])
    kept = arrow.drop_columns(names)
    return _as_given(kept.add_column(min(first, kept.num_columns), column, pa.array(strings, pa.string())), table)


# ---------------------------------------------------------------------------------------------------------------- text


def read_graph_text(text: str, max_nodes: int) -> SmallGraph:
    """The graph that a string describes; what cannot be read is left out."""
    nodes: set[int] = set()
    edges: set[tuple[int, int]] = set()
    for part in text.split(";"):
        ends = [end.strip() for end in part.split("-")]
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() and len(end) <= 9 for end in ends):
            continue
        numbers = sorted(map(int, ends))
        if numbers[-1] < max_nodes:
            nodes.update(numbers)
            if numbers[0] < numbers[-1]:
                edges.add((numbers[0], numbers[-1]))
    return SmallGraph(max(nodes, default=-1) + 1, frozenset(edges))


def write_graph_text(graph: SmallGraph) -> str:
    """The reverse: edges in order, then the last node if it has no edge."""
    parts = [f"{one}-{other}" for one, other in sorted(graph.edges)]
    last = max(itertools.chain.from_iterable(graph.edges), default=-1)
    return ";".join([*parts, *([str(graph.num_nodes - 1)] if graph.num_nodes - 1 > last else [])])


def _relabel(graph: SmallGraph) -> SmallGraph:
    """The same graph with nodes numbered by descending degree, then by the degrees of their neighbours."""
    matrix = _adjacency(graph)
    degrees = matrix.sum(axis=1)
    around = [sorted(degrees[row > 0].tolist(), reverse=True) for row in matrix]
    order = sorted(range(graph.num_nodes), key=lambda node: (degrees[node], around[node], -node), reverse=True)
    new = {node: number for number, node in enumerate(order)}
    renamed = ((new[one], new[other]) for one, other in graph.edges)
    return SmallGraph(graph.num_nodes, frozenset((min(pair), max(pair)) for pair in renamed))


# ------------------------------------------------------------------------------------------------------------- columns


def _pairs(max_nodes: int) -> list[tuple[int, int]]:
    return list(itertools.combinations(range(max_nodes), 2))


def _encode(graph: SmallGraph | None, max_nodes: int) -> tuple[int | bool | None, ...]:
    """The values of one row, in the order of `graph_columns`."""
    num_nodes, edges = (None, frozenset()) if graph is None else graph
    if max_nodes <= MAX_ADJACENCY:
        return (num_nodes, *(pair in edges for pair in _pairs(max_nodes)))
    matrix = _adjacency(SmallGraph(num_nodes or 0, edges))
    degrees = sorted(matrix.sum(axis=1).tolist(), reverse=True)
    return (num_nodes, *_motifs(matrix), *degrees, *[0] * (max_nodes - len(degrees)))


def _decode(row: tuple[object, ...], max_nodes: int, generator: np.random.Generator) -> SmallGraph | None:
    """A valid graph of one row: whole numbers within bounds, no edge of an absent node, degrees that a graph has."""
    if row[0] is None or row[0] != row[0]:
        return None
    # A row holds numbers, truth values and nulls.
    numbers = [0.0 if value is None or value != value else float(value) for value in row]  # type: ignore[arg-type]
    num_nodes = int(min(max(round(numbers[0]), 0), max_nodes))
    if max_nodes <= MAX_ADJACENCY:
        pairs = zip(_pairs(max_nodes), numbers[1:], strict=True)
        return SmallGraph(num_nodes, frozenset(pair for pair, bit in pairs if bit >= 0.5 and pair[1] < num_nodes))
    degrees = np.rint(sorted(numbers[3:], reverse=True)[:num_nodes]).astype(np.int64)
    edges = havel_hakimi(make_graphical(degrees))
    return _meet_motifs(num_nodes, edges, (numbers[1], numbers[2]), generator)


def _adjacency(graph: SmallGraph) -> Int64[np.ndarray, "nodes nodes"]:
    matrix = np.zeros((graph.num_nodes, graph.num_nodes), dtype=np.int64)
    for one, other in graph.edges:
        matrix[one, other] = matrix[other, one] = 1
    return matrix


def _motifs(matrix: Int64[np.ndarray, "nodes nodes"]) -> tuple[int, int]:
    """How many triangles and how many squares (cycles of four nodes) there are."""
    common = matrix @ matrix  # the neighbours that two nodes share; each square has two diagonals
    diagonals = np.triu(common * (common - 1) // 2, 1).sum() // 2
    return int((common * matrix).sum()) // 6, int(diagonals)


def _meet_motifs(
    num_nodes: int, edges: np.ndarray, wanted: tuple[float, float], generator: np.random.Generator
) -> SmallGraph:
    """A graph with the degrees of these edges, whose motif counts are nearer to those wanted."""

    def distance(graph: SmallGraph) -> float:
        motifs = _motifs(_adjacency(graph))
        return sum(abs(found - goal) / max(goal, 1.0) for found, goal in zip(motifs, wanted, strict=True))

    graph = SmallGraph(num_nodes, frozenset((min(pair), max(pair)) for pair in edges.tolist()))
    best = distance(graph)
    for _ in range(NUM_SWAPS if len(edges) > 1 else 0):
        if best == 0:
            break
        ordered = sorted(graph.edges)
        (a, b), (c, d) = (ordered[at] for at in generator.choice(len(ordered), size=2, replace=False))
        c, d = (d, c) if generator.random() < 0.5 else (c, d)
        new = {(min(a, d), max(a, d)), (min(c, b), max(c, b))}
        if len({a, b, c, d}) < 4 or new & graph.edges:
            continue
        tried = SmallGraph(num_nodes, graph.edges - {(a, b), (min(c, d), max(c, d))} | new)
        if (now := distance(tried)) <= best:
            graph, best = tried, now
    return graph


# -------------------------------------------------------------------------------------------------------------- frames


def _check_size(max_nodes: int) -> int:
    if isinstance(max_nodes, bool) or not isinstance(max_nodes, int) or not 1 <= max_nodes <= MAX_NODES:
        raise ConfigError(
            f"max_nodes must be a whole number from 1 to {MAX_NODES}, found {max_nodes!r}. For one larger graph, use "
            "us.fit_graph.",
            setting="max_nodes",
        )
    return max_nodes


def _arrow_of(table: object) -> pa.Table:
    """The frame as it is: types that were inferred from values would depend on other rows."""
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        raise TableError(
            f"Expected a pandas, polars or Arrow table, found {type(table).__name__}. Read the file first."
        )
    return frame.to_arrow()


def _take_column(table: object, column: str) -> tuple[pa.Table, list[str | None]]:
    arrow = _arrow_of(table)
    if column not in arrow.column_names:
        raise TableError(
            f"The table has no column {column!r}.{did_you_mean(column, arrow.column_names)}", column=column
        )
    values = arrow.column(column)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_null(values.type):
        values = values.cast(pa.string())
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        raise TableError(
            f"Column {column!r} must hold strings such as '0-1;1-2', found the type {values.type}. Read it as text.",
            column=column,
        )
    return arrow, values.to_pylist()


def _as_given(arrow: pa.Table, given: AnyFrame) -> AnyFrame:
    """In the kind of frame that was given."""
    frame = nw.from_native(given, eager_only=True)  # type: ignore[call-overload]  # it was read as a frame before
    return nw.from_arrow(arrow, backend=frame.implementation).to_native()
