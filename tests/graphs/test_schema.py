"""What is public about a graph: read, checked, written; bad input is one clear line."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import raises
from understudy.graphs.schema import as_graph_schema


def test_a_schema_file_names_nodes_blocks_and_columns(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("person,office\n007,Rome\n7,Oslo\nann,Rome\n")
    path = tmp_path / "graph.toml"
    path.write_text(
        '[graph]\nname = "mail"\nsource = "from"\ntarget = "to"\ndirected = false\ndrop = ["when"]\nmax_degree = 2\n'
        '[nodes]\nfile = "nodes.csv"\nid = "person"\nblock = "office"\n'
    )
    schema = us.GraphSchema.read(path)
    assert schema.nodes == ("007", "7", "ann")
    assert schema.block_names == ("Oslo", "Rome")
    assert schema.block_of_node.tolist() == [1, 0, 1]
    assert (schema.source, schema.target, schema.max_degree, schema.name) == ("from", "to", 2, "mail")
    assert us.GraphSchema.from_dict(schema.to_dict()) == schema
    assert as_graph_schema(path) == as_graph_schema(str(path)) == as_graph_schema(schema) == schema


def test_ends_are_numbered_row_by_row() -> None:
    """As texts: 007 is not 7. A value that names no node is -1, whatever stands in the other rows."""
    schema = us.GraphSchema(nodes=("007", "7", "ann"))
    rows = pa.table({"source": ["007", "7", None, "eve"], "target": ["7", "ann", "ann", "7"]})
    np.testing.assert_array_equal(schema.number_ends(rows), [[0, 1], [1, 2], [-1, 2], [-1, 1]])
    for at in range(4):
        np.testing.assert_array_equal(schema.number_ends(rows.slice(at, 1))[0], schema.number_ends(rows)[at])
    assert schema.name_ends(np.array([[0, 2]])).to_pylist() == [{"source": "007", "target": "ann"}]


def test_nodes_of_a_networkx_graph() -> None:
    schema = us.GraphSchema.of_networkx(nx.karate_club_graph(), block="club")
    assert schema.num_nodes == 34
    assert schema.block_names == ("Mr. Hi", "Officer")
    with raises(us.SchemaError, key="block"):
        us.GraphSchema.of_networkx(nx.karate_club_graph(), block="dojo")


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ({}, "nodes"),
        ({"nodes": {"count": 0}}, "count"),
        ({"nodes": {"count": 3, "list": ["a"]}}, "nodes"),
        ({"nodes": {"list": ["a", "a"]}}, "nodes"),
        ({"nodes": {"list": "abc"}}, "list"),
        ({"nodes": {"list": ["a", "b"], "block": ["x"]}}, "block"),
        ({"nodes": {"list": ["a"], "first": 1}}, "first"),
        ({"nodes": {"count": 3}, "graph": {"directed": True}}, "directed"),
        ({"nodes": {"count": 3}, "graph": {"source": "to", "target": "to"}}, "target"),
        ({"nodes": {"count": 3}, "graph": {"source": 3}}, "source"),
        ({"nodes": {"count": 3}, "graph": {"max_degree": 3}}, "max_degree"),
        ({"nodes": {"count": 3}, "graph": {"sorce": "a"}}, "sorce"),
        ({"nodes": {"file": "absent.csv"}}, "file"),
        (3, None),
    ],
)
def test_what_is_no_schema_is_one_line(content: Any, key: str | None) -> None:
    with raises(us.SchemaError, key=key) as raised:
        as_graph_schema(content)
    assert "\n" not in str(raised.value)


def test_no_schema_is_refused_with_how_to_make_one() -> None:
    with pytest.raises(us.SchemaError, match="A graph needs a schema"):
        as_graph_schema(None)


@pytest.mark.parametrize(
    ("nodes", "key"),
    [
        ("person,office\nann,Rome\n", "id"),
        ("node,ofice\nann,Rome\n", "block"),
        ("node,office\nann,\n", "block"),
    ],
)
def test_a_bad_node_file_is_one_line(nodes: str, key: str, tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "graph.toml").write_text('[nodes]\nfile = "nodes.csv"\nblock = "office"\n')
    with raises(us.SchemaError, key=key) as raised:
        us.GraphSchema.read(tmp_path / "graph.toml")
    assert "\n" not in str(raised.value)


def test_other_columns_of_a_node_file_are_not_used(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("name,node,office\nAnn,007,Rome\nEve,7,Oslo\n")
    schema = us.GraphSchema.from_dict({"nodes": {"file": "nodes.csv", "block": "office"}}, folder=tmp_path)
    assert (schema.nodes, schema.blocks) == (("007", "7"), ("Rome", "Oslo"))
