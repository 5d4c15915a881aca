"""Synthetic graphs beside real ones: a large simulated graph, one with blocks, and graphs that ship with NetworkX.

    python benchmarks/graphs.py

Writes results/graphs.md, and the degree distributions of the large graph as docs/images/graph_degrees.svg. The graphs
are public, and each figure is the mean over five runs with noise from the operating system.
"""

import argparse
import datetime
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))

import understudy as us
from understudy.graphs import evaluate
from understudy.graphs.metrics import random_edges, simple_edges

HERE = Path(__file__).parent
RUNS = 5
SHOWN = (
    *("degree distance", "edges", "largest degree", "triangles", "clustering", "components"),
    *("largest component", "communities", "community distance", "edges within blocks"),
)
INK, GRID = "#333", "#ddd"
COLOURS = {"real": "#1b1b1b", "synthetic": "#0f7cb8", "random": "#c2570c"}


class Task(NamedTuple):
    """A graph, what is public about it, and the settings of the run."""

    title: str
    graph: nx.Graph
    schema: us.GraphSchema
    epsilon: float = 1.0
    protect: str = "edge"


def tasks() -> list[Task]:
    """The large graphs come first: the first one is drawn."""
    large = nx.powerlaw_cluster_graph(4000, 22, 0.3, seed=0)
    blocks = with_blocks(20, 100)
    karate, novel = nx.karate_club_graph(), nx.les_miserables_graph()
    return [
        Task("Power law with clusters (Holme and Kim)", large, us.GraphSchema.of_count(4000)),
        Task("The same, a node protected", large, us.GraphSchema.of_count(4000, max_degree=400), protect="node"),
        Task("Twenty declared blocks", blocks, us.GraphSchema.of_networkx(blocks, block="block")),
        Task("The same, blocks not declared", blocks, us.GraphSchema.of_networkx(blocks)),
        Task("Les Miserables", novel, us.GraphSchema.of_networkx(novel)),
        Task("Les Miserables", novel, us.GraphSchema.of_networkx(novel), epsilon=5.0),
        Task("Karate club, clubs declared", karate, us.GraphSchema.of_networkx(karate, block="club")),
        Task("Karate club, clubs declared", karate, us.GraphSchema.of_networkx(karate, block="club"), epsilon=5.0),
    ]


def with_blocks(num_blocks: int, size: int) -> nx.Graph:
    """A planted partition, in which one node in ten has many more edges within its block."""
    graph = nx.planted_partition_graph(num_blocks, size, 0.12, 0.003, seed=0)
    rng = np.random.default_rng(0)
    for node in graph:
        graph.nodes[node]["block"] = f"b{graph.nodes[node]['block']:02}"
    for node in range(0, len(graph), 10):
        first = node - node % size
        graph.add_edges_from((node, int(other)) for other in rng.integers(first, first + size, 40) if other != node)
    return graph


def run(task: Task) -> tuple[dict[str, Mapping[str, float]], float, np.ndarray]:
    """Mean scores of the real, the synthetic and the random graph, the seconds of fit and sample, and one sample."""
    scores, seconds = [], []
    for at in range(RUNS):
        started = time.monotonic()
        release = us.fit_graph(task.graph, task.schema, epsilon=task.epsilon, protect=task.protect)
        sampled = release.sample()
        seconds.append(time.monotonic() - started)
        scores.append(evaluate(task.graph, sampled, task.schema, seed=at))
        print(f"{task.title}, epsilon {task.epsilon:g}: run {at + 1}, {seconds[-1]:.1f} s", file=sys.stderr)
    means = {
        name: {metric: float(np.mean([each[name][metric] for each in scores])) for metric in scores[0][name]}
        for name in scores[0].values
    }
    return means, max(seconds), simple_edges(sampled, task.schema)


def write_page(found: list[tuple[Task, dict[str, Mapping[str, float]], float]]) -> str:
    lines = [
        "# Graphs",
        f"`python benchmarks/graphs.py`, {datetime.date.today():%Y-%m-%d}, understudy {us.__version__}, "
        f"{platform.machine()}, two shared cores. Means of {RUNS} runs. `random` is a graph with as many edges as the "
        "synthetic one, placed at random. Delta is 1e-6. Distances are Kolmogorov-Smirnov distances to the real graph. "
        "Seconds are those of the slowest fit and sample together.",
        "![How many nodes have at least a given degree, in the real, a synthetic and a random graph]"
        "(../../docs/images/graph_degrees.svg)",
    ]
    for task, means, seconds in found:
        size = f"{task.schema.num_nodes:,} nodes, {len(task.graph.edges):,} edges"
        protected = "one edge" if task.protect == "edge" else f"one node, max_degree {task.schema.max_degree}"
        lines.append(f"## {task.title}, epsilon {task.epsilon:g}")
        lines.append(f"{size}; protected: {protected}; {seconds:.1f} s.")
        rows = ["| | real | synthetic | random |", "|---|---:|---:|---:|"]
        for metric in SHOWN:
            if metric in means["real"]:
                cells = (f"{means[name][metric]:,.4g}" for name in ("real", "synthetic", "random"))
                rows.append(f"| {metric} | {' | '.join(cells)} |")
        lines.append("\n".join(rows))
    return "\n\n".join(lines) + "\n"


def draw_degrees(graphs: Mapping[str, np.ndarray], num_nodes: int) -> str:
    """How many nodes have at least each degree, on logarithmic axes."""
    left, top, width, height = 70, 60, 560, 300
    degrees = {name: np.bincount(edges.ravel(), minlength=num_nodes) for name, edges in graphs.items()}
    most = max(int(each.max()) for each in degrees.values())
    low, high = np.log10(10), np.log10(most * 1.1)

    def place(degree: float, count: float) -> tuple[float, float]:
        x = left + width * (np.log10(degree) - low) / (high - low)
        return x, top + height * (1 - np.log10(count) / np.log10(num_nodes * 1.2))

    parts = []
    for tick in (10, 20, 50, 100, 200, 500, 1000):
        if tick <= most:
            x, _ = place(tick, 1)
            parts.append(f'<path d="M{x:.1f} {top}V{top + height}" stroke="{GRID}"/>')
            parts.append(f'<text x="{x:.1f}" y="{top + height + 18}" text-anchor="middle" fill="{INK}">{tick}</text>')
    for tick in (1, 10, 100, 1000):
        _, y = place(10, tick)
        parts.append(f'<path d="M{left} {y:.1f}H{left + width}" stroke="{GRID}"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{INK}">{tick:,}</text>')
    for at, (name, each) in enumerate(degrees.items()):
        levels = np.arange(10, int(each.max()) + 1)
        counts = (each[None, :] >= levels[:, None]).sum(axis=1)
        points = " ".join(
            "{:.1f},{:.1f}".format(*place(degree, count)) for degree, count in zip(levels, counts, strict=True)
        )
        dash = ' stroke-dasharray="6 4"' if name == "synthetic" else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"{dash}/>')
        x = left + 130 * at
        parts.append(f'<path d="M{x} 42h26" stroke="{COLOURS[name]}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{x + 32}" y="46" fill="{INK}">{name}</text>')
    axis = f'<text x="{left + width / 2}" y="{top + height + 40}" text-anchor="middle" fill="{INK}">degree</text>'
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 410" width="660" font-size="13" '
        'font-family="system-ui, sans-serif"><rect width="660" height="410" fill="#fff"/>'
        f'<text x="{left}" y="24" font-size="15" font-weight="600" fill="{INK}">Number of nodes with at least this '
        f"degree: {num_nodes:,} nodes, epsilon 1</text>{''.join(parts)}{axis}</svg>\n"
    )


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    found = []
    for number, task in enumerate(tasks()):
        means, seconds, sampled = run(task)
        found.append((task, means, seconds))
        if number == 0:
            real = simple_edges(task.graph, task.schema)
            random = random_edges(task.schema.num_nodes, len(sampled), np.random.default_rng(0))
            drawn = {"real": real, "synthetic": sampled, "random": random}
            (HERE.parent / "docs" / "images" / "graph_degrees.svg").write_text(
                draw_degrees(drawn, task.schema.num_nodes)
            )
            degrees = [np.bincount(each.ravel(), minlength=4000) + 0.0 for each in (real, sampled)]
            print(f"degree distance of the drawn graph: {stats.ks_2samp(*degrees).statistic:.4f}", file=sys.stderr)
    (HERE / "results" / "graphs.md").write_text(write_page(found))


if __name__ == "__main__":
    main()
