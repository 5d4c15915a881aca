"""Compares synthetic graphs with the real one: degrees, clustering, triangles, components, communities. Not private."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from jaxtyping import Float64, Int64
from scipy import sparse, stats
from scipy.sparse import csgraph

from understudy.errors import ConfigError
from understudy.evaluation.scorecard import WARNING
from understudy.graphs.fit import EdgeSource, edge_table
from understudy.graphs.release import import_networkx
from understudy.graphs.schema import GraphSchema, GraphSchemaSource, as_graph_schema
from understudy.summary import Summarized, Summary
from understudy.tables import ReadOptions

BASELINE = "random"
"""A graph with as many edges as the first synthetic one, placed at random: what a graph without structure scores."""
METRICS = {
    "degree distance": "largest difference between the distributions of degrees (Kolmogorov-Smirnov), 0 to 1",
    "component distance": "the same for the sizes of the components that nodes are in",
    "community distance": "the same for the sizes of the communities that nodes are in (Louvain)",
    "edges": "number of edges",
    "mean degree": "",
    "largest degree": "",
    "triangles": "number of triangles",
    "clustering": "mean local clustering coefficient",
    "transitivity": "three times the triangles over the pairs of edges that share a node",
    "components": "number of components, single nodes among them",
    "largest component": "the fraction of nodes in it",
    "communities": "number of communities (Louvain)",
    "edges within blocks": "the fraction of edges between nodes of the same declared block",
}
"""What is computed for every graph, in order. Distances are to the real graph, so the real one has 0; but its
communities are searched a second time, and their distance shows how far two searches in one graph are apart."""


Sizes: TypeAlias = Mapping[str, Float64[np.ndarray, " nodes"]]


@dataclasses.dataclass(frozen=True, repr=False)
class GraphScores(Summarized):
    """Metrics of the real graph, of the synthetic ones, and of a random one with as many edges. Not private."""

    values: Mapping[str, Mapping[str, float]]
    """By graph, then by metric: `real`, the synthetic ones by name, and `random`."""
    degrees: Mapping[str, Mapping[int, int]]
    """For each graph, how many nodes have each degree, in ascending order of degrees."""

    def __getitem__(self, graph: str) -> Mapping[str, float]:
        return self.values[graph]

    def summary(self) -> Summary:
        """What its `repr` shows."""
        names = list(self.values)
        metrics = [metric for metric in METRICS if metric in self.values["real"]]
        rows = [(metric, *(f"{self.values[name][metric]:.4g}" for name in names)) for metric in metrics]
        further = ("  ".join(row) for row in rows[12:])  # as notes: a summary shows twelve
        return Summary("Scores of graphs", {}, ("metric", *names), rows[:12], (*further, WARNING))

    def to_json(self) -> dict[str, object]:
        return {
            "format": "understudy-graph-scores",
            "warning": WARNING,
            "metrics": METRICS,
            "graphs": {name: dict(scores) for name, scores in self.values.items()},
            "degrees": {name: [list(pair) for pair in counts.items()] for name, counts in self.degrees.items()},
        }


def evaluate(
    real: EdgeSource,
    synthetic: "EdgeSource | Mapping[str, EdgeSource]",
    schema: GraphSchemaSource,
    *,
    seed: int = 0,
    reading: ReadOptions | None = None,
) -> GraphScores:
    """Compares synthetic graphs with the real one, beside a random graph with as many edges.

    Reads real edges: the scores are NOT private. `seed` is for the random graph and the search for communities.

    >>> import pyarrow as pa
    >>> ring = pa.table({"source": range(9), "target": [(node + 1) % 9 for node in range(9)]})
    >>> scores = evaluate(ring, ring, {"nodes": {"count": 9}})
    >>> scores["synthetic"]["degree distance"], scores["real"]["triangles"], scores["real"]["components"]
    (0.0, 0.0, 1.0)
    """
    declared = as_graph_schema(schema)
    named = dict(synthetic) if isinstance(synthetic, Mapping) else {"synthetic": synthetic}
    if not named or {"real", BASELINE} & set(named):
        raise ConfigError(f"Name at least one synthetic graph, and none 'real' or '{BASELINE}'.", setting="synthetic")
    graphs = {"real": simple_edges(real, declared, reading)}
    for name, edges in named.items():
        written = None if reading is None else reading.of_synthetic(edges)  # `reading` is how the real file is written
        graphs[name] = simple_edges(edges, declared, written)
    first = len(graphs[next(iter(named))])
    graphs[BASELINE] = random_edges(declared.num_nodes, first, np.random.default_rng(seed))
    described = {name: _describe(edges, declared, seed) for name, edges in graphs.items()}
    real_sizes, _ = described["real"]
    values = {
        name: {**{f"{what} distance": _distance(real_sizes[what], each) for what, each in sizes.items()}, **figures}
        for name, (sizes, figures) in described.items()
    }
    again = _community_sizes(graphs["real"], declared.num_nodes, seed + 1)
    values["real"]["community distance"] = _distance(real_sizes["community"], again)
    return GraphScores(
        values, {name: Counter(sorted(sizes["degree"].astype(int).tolist())) for name, (sizes, _) in described.items()}
    )


def simple_edges(
    edges: EdgeSource, schema: GraphSchema, reading: ReadOptions | None = None
) -> Int64[np.ndarray, "edges 2"]:
    """The edges as `fit_graph` would use them: between declared nodes, without loops and repetitions. Exact."""
    ends = schema.number_ends(edge_table(edges, schema, reading))
    ends = np.sort(ends[(ends >= 0).all(axis=1) & (ends[:, 0] != ends[:, 1])], axis=1)
    return np.unique(ends, axis=0)


def random_edges(num_nodes: int, num_edges: int, generator: np.random.Generator) -> Int64[np.ndarray, "edges 2"]:
    """As many edges between random pairs of nodes (Erdos and Renyi), none twice."""
    codes = np.zeros(0, dtype=np.int64)
    while len(codes) < min(num_edges, num_nodes * (num_nodes - 1) // 2):
        ends = np.sort(generator.integers(num_nodes, size=(num_edges + 10, 2)), axis=1)
        new = ends[ends[:, 0] < ends[:, 1]] @ np.array([num_nodes, 1])
        codes = np.unique(np.concatenate([codes, new]))
    codes = generator.permutation(codes)[:num_edges]
    return np.stack([codes // num_nodes, codes % num_nodes], axis=1)


def _distance(one: Float64[np.ndarray, " a"], other: Float64[np.ndarray, " b"]) -> float:
    return float(stats.ks_2samp(one, other, method="asymp").statistic)


def _describe(edges: Int64[np.ndarray, "edges 2"], schema: GraphSchema, seed: int) -> tuple[Sizes, dict[str, float]]:
    """For each node its degree, and the sizes of its component and its community; and the figures of the graph."""
    num_nodes = schema.num_nodes
    ones = np.ones(2 * len(edges), dtype=np.int64)
    ends = np.concatenate([edges, edges[:, ::-1]])
    matrix = sparse.csr_array((ones, (ends[:, 0], ends[:, 1])), shape=(num_nodes, num_nodes))
    degrees = np.bincount(edges.ravel(), minlength=num_nodes)
    corners = np.asarray((matrix @ matrix * matrix).sum(axis=1)) // 2  # triangles that each node is a corner of
    wedges = degrees * (degrees - 1) // 2
    num_components, component = csgraph.connected_components(matrix, directed=False)
    component_sizes = np.bincount(component)
    community_sizes = _community_sizes(edges, num_nodes, seed)
    figures = {
        "edges": len(edges),
        "mean degree": degrees.mean(),
        "largest degree": degrees.max(initial=0),
        "triangles": corners.sum() // 3,
        "clustering": np.divide(corners, wedges, out=np.zeros(num_nodes), where=wedges > 0).mean(),
        "transitivity": corners.sum() / max(wedges.sum(), 1),
        "components": num_components,
        "largest component": component_sizes.max(initial=0) / num_nodes,
        "communities": (1 / community_sizes).sum().round(),  # the nodes of each community add up to one
    }
    if schema.blocks is not None:
        blocks = schema.block_of_node[edges]
        figures["edges within blocks"] = (blocks[:, 0] == blocks[:, 1]).mean() if len(edges) else 0.0
    sizes = {
        "degree": degrees.astype(float),
        "component": component_sizes[component].astype(float),
        "community": community_sizes,
    }
    return sizes, {name: float(value) for name, value in figures.items()}


def _community_sizes(edges: Int64[np.ndarray, "edges 2"], num_nodes: int, seed: int) -> Float64[np.ndarray, " nodes"]:
    """The size of each node's community, by Louvain's method."""
    networkx = import_networkx()
    graph = networkx.Graph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from(edges.tolist())
    sizes = np.zeros(num_nodes)
    for nodes in networkx.community.louvain_communities(graph, seed=seed):
        sizes[list(nodes)] = len(nodes)
    return sizes
