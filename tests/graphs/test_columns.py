"""Tables of small graphs: texts to columns and back, row by row; every decoded graph is valid."""

import itertools
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import raises
from understudy.graphs import from_columns, graph_columns, to_columns
from understudy.graphs.columns import SmallGraph, _adjacency, _motifs, read_graph_text, write_graph_text
from understudy.graphs.degrees import is_graphical


def text_of(graph: nx.Graph) -> str:
    return write_graph_text(SmallGraph(len(graph), frozenset((min(e), max(e)) for e in graph.edges)))


def random_texts(num_rows: int, most: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most + 1, num_rows)
    return [text_of(nx.gnp_random_graph(int(size), 0.4, seed=int(at))) for at, size in enumerate(sizes)]


def test_texts_are_read_by_fixed_rules() -> None:
    assert read_graph_text("", 5) == SmallGraph(0, frozenset())
    assert read_graph_text("3", 5) == SmallGraph(4, frozenset())
    assert read_graph_text("1-0;0-1; 2 - 0 ;4-4;0-5;-1;a-b;1-2-3;¹-0", 5) == SmallGraph(5, frozenset({(0, 1), (0, 2)}))
    for text in random_texts(50, 12, 0):
        assert write_graph_text(read_graph_text(text, 12)) == text


def test_adjacency_comes_back_exactly() -> None:
    texts: list[str | None] = [*random_texts(200, 12, 0), None, ""]
    table = pa.table({"a": range(202), "bonds": texts, "b": range(202)})
    encoded = to_columns(table, "bonds", 12)
    assert encoded.num_columns == 2 + 1 + 66
    assert set(graph_columns("bonds", 12)) == set(encoded.column_names) - {"a", "b"}
    decoded = from_columns(encoded, "bonds", 12)
    assert decoded.column("bonds").to_pylist() == texts
    assert decoded.column("a").equals(table.column("a"))


def test_rows_do_not_depend_on_each_other() -> None:
    table = pa.table({"bonds": [*random_texts(20, 20, 1), None, "x"]})
    for most, relabel in [(12, False), (12, True), (20, False)]:
        whole = to_columns(table, "bonds", most, relabel=relabel)
        for at in range(22):
            assert to_columns(table.slice(at, 1), "bonds", most, relabel=relabel).equals(whole.slice(at, 1))


def test_degrees_and_motif_counts_are_those_of_the_graph() -> None:
    for text in random_texts(30, 20, 2):
        graph = nx.Graph()
        read = read_graph_text(text, 20)
        graph.add_nodes_from(range(read.num_nodes))
        graph.add_edges_from(read.edges)
        row = to_columns(pa.table({"g": [text]}), "g", 20).to_pylist()[0]
        assert row["g_nodes"] == len(graph)
        assert row["g_triangles"] == sum(nx.triangles(graph).values()) // 3
        assert row["g_squares"] == sum(1 for cycle in nx.simple_cycles(graph, length_bound=4) if len(cycle) == 4)
        degrees = [row[f"g_degree_{rank}"] for rank in range(1, 21)]
        assert degrees == sorted((d for _, d in graph.degree), reverse=True) + [0] * (20 - len(graph))


def test_degrees_come_back_and_motifs_come_nearer() -> None:
    texts = random_texts(40, 25, 3)
    encoded = to_columns(pa.table({"g": texts}), "g", 25)
    decoded = from_columns(encoded, "g", 25, seed=0)
    again = to_columns(decoded, "g", 25)
    degree_columns = [name for name in encoded.column_names if "degree" in name or "nodes" in name]
    assert again.select(degree_columns).equals(encoded.select(degree_columns))
    assert decoded.equals(from_columns(encoded, "g", 25, seed=0))
    wrong = [np.array(each["g_triangles"].to_pylist()) for each in (encoded, again)]
    without = encoded.set_column(1, "g_triangles", pa.array([0] * 40))
    zero = np.array(to_columns(from_columns(without, "g", 25, seed=0), "g", 25)["g_triangles"].to_pylist())
    assert np.abs(wrong[0] - wrong[1]).sum() < np.abs(wrong[0] - zero).sum()


def test_any_values_are_decoded_to_valid_graphs() -> None:
    """What a method samples need not belong to a graph."""
    rng = np.random.default_rng(0)
    for most in (4, 12, 20):
        declared = graph_columns("g", most)
        values: dict[str, list[Any]] = {
            name: [None if rng.random() < 0.05 else float(rng.integers(-3, 2 * most)) for _ in range(30)]
            if entry["kind"] == "integer"
            else rng.integers(0, 2, 30).astype(bool).tolist()
            for name, entry in declared.items()
        }
        for text in from_columns(pa.table(values), "g", most)["g"].to_pylist():
            if text is None:
                continue
            graph = read_graph_text(text, most)
            assert write_graph_text(graph) == text
            assert graph.num_nodes <= most
            degrees = _adjacency(graph).sum(axis=1)
            assert is_graphical(degrees)


def test_relabelling_makes_equal_graphs_equal() -> None:
    """All numberings of a star are one row; without it they are many."""
    star = nx.star_graph(3)
    texts = [text_of(nx.relabel_nodes(star, dict(enumerate(p)))) for p in itertools.permutations(range(4))]
    table = pa.table({"g": texts})
    assert len(set(map(str, to_columns(table, "g", 4, relabel=True).to_pylist()))) == 1
    assert len(set(map(str, to_columns(table, "g", 4).to_pylist()))) == 4


def test_motifs_of_known_graphs() -> None:
    for graph, found in [(nx.complete_graph(4), (4, 3)), (nx.cycle_graph(4), (0, 1)), (nx.petersen_graph(), (0, 0))]:
        small = SmallGraph(len(graph), frozenset((min(e), max(e)) for e in graph.edges))
        assert _motifs(_adjacency(small)) == found


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_the_kind_of_frame_is_kept(kind: Any) -> None:
    table = kind({"g": ["0-1", "1-2"], "age": [1, 2]})
    encoded = to_columns(table, "g", 3)
    assert type(encoded) is type(table)
    assert type(from_columns(encoded, "g", 3)) is type(table)


@pytest.mark.parametrize(
    ("call", "error", "fields"),
    [
        (lambda: graph_columns("g", 51), us.ConfigError, {"setting": "max_nodes"}),
        (lambda: to_columns(pa.table({"h": ["0-1"]}), "g", 3), us.TableError, {"column": "g"}),
        (lambda: to_columns(pa.table({"g": [1]}), "g", 3), us.TableError, {"column": "g"}),
        (lambda: to_columns("edges.csv", "g", 3), us.TableError, {"column": None}),
        (lambda: to_columns(pa.table({"g": ["0-1"], "g_nodes": [1]}), "g", 3), us.TableError, {"column": "g_nodes"}),
        (lambda: from_columns(pa.table({"g_nodes": [1]}), "g", 3), us.TableError, {"column": "g_0_1"}),
    ],
)
def test_what_cannot_be_done_is_one_line(call: Any, error: type[Exception], fields: dict[str, Any]) -> None:
    with raises(error, **fields) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_small_graphs_go_through_a_method() -> None:
    """Paths and triangles, which go with a label: the synthetic table has the same shares, and only valid graphs."""
    rng = np.random.default_rng(0)
    is_ring = rng.random(3000) < 0.3
    table = pa.table({"ring": is_ring, "bonds": np.where(is_ring, "0-1;0-2;1-2", "0-1;1-2").tolist()})
    schema = {"columns": {"ring": {"kind": "boolean", "nullable": False}, **graph_columns("bonds", 3)}}
    release = us.fit(to_columns(table, "bonds", 3), "mst", epsilon=2, schema=schema)
    fake = from_columns(release.sample(3000), "bonds", 3).to_pylist()
    right = [row["bonds"] == ("0-1;0-2;1-2" if row["ring"] else "0-1;1-2") for row in fake]
    assert np.mean(right) > 0.9
    assert np.mean([row["ring"] for row in fake]) == pytest.approx(0.3, abs=0.05)
