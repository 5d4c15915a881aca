"""One private graph from its edge list to a release: plan, charges, rules, certificate, save and load."""

import dataclasses
import json
import math
import shutil
import warnings
from pathlib import Path
from typing import Any

import jsonschema
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import Killed, raises
from tests.certificate.json_schema import json_schema
from understudy import certificate
from understudy.graphs import fit as fitting
from understudy.graphs.check import check_edges

KARATE = nx.karate_club_graph()
SCHEMA = us.GraphSchema.of_networkx(KARATE, name="karate")
BLOCKS = us.GraphSchema.of_networkx(KARATE, block="club", max_degree=20)
CAPPED = dataclasses.replace(SCHEMA, max_degree=10)
CASES = {"one block": (SCHEMA, "edge"), "blocks": (BLOCKS, "edge"), "nodes": (CAPPED, "node")}


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1, 3])
@pytest.mark.parametrize(("schema", "protect"), CASES.values(), ids=CASES)
def test_what_is_planned_is_charged(schema: us.GraphSchema, protect: str, epsilon: float) -> None:
    plan = us.plan_graph(schema, epsilon=epsilon, protect=protect)
    statement = us.fit_graph(KARATE, schema, epsilon=epsilon, protect=protect).statement
    assert statement.queries == plan.queries
    assert 0.99 * epsilon < statement.epsilon <= epsilon
    assert statement.is_private
    assert statement.facts.graph_unit == protect


@pytest.mark.parametrize(("schema", "protect"), CASES.values(), ids=CASES)
def test_a_sample_is_a_simple_graph_on_the_declared_nodes(schema: us.GraphSchema, protect: str) -> None:
    release = us.fit_graph(KARATE, schema, epsilon=1, protect=protect)
    for seed in range(3):
        edges = release.sample_edges(seed=seed)
        assert (edges[:, 0] < edges[:, 1]).all()
        assert len(np.unique(edges, axis=0)) == len(edges)
        if schema.max_degree is not None:
            assert np.bincount(edges.ravel()).max(initial=0) <= schema.max_degree
    assert set(release.sample(seed=0).column("source").to_pylist()) <= set(schema.nodes)
    graph = release.sample_networkx(seed=0)
    assert list(graph) == list(schema.nodes)
    assert {tuple(edge) for edge in graph.edges} == {tuple(row.values()) for row in release.sample(seed=0).to_pylist()}
    assert (graph.nodes["0"].get("block") == "Mr. Hi") == (schema.blocks is not None)


def test_without_a_guarantee_the_degrees_are_exact() -> None:
    release = us.fit_graph(KARATE, SCHEMA, us.Guarantee.not_private())
    assert sorted(release.degrees) == sorted(degree for _, degree in KARATE.degree)
    assert release.num_edges == 78
    assert not release.statement.is_private
    assert "NOT PRIVATE" in release.certificate


def test_every_source_of_the_same_edges_gives_the_same_release(tmp_path: Path) -> None:
    """Numbers or texts, frames or files; the order of rows, directions, repetitions and loops do not matter."""
    rows = pd.DataFrame(KARATE.edges, columns=["source", "target"])
    turned = rows.rename(columns={"source": "target", "target": "source"})
    noisy_rows = pd.concat([rows, turned, rows.head(9), pd.DataFrame({"source": [3, 99, None], "target": [3, 1, 1]})])
    rows.to_csv(tmp_path / "edges.csv", index=False)
    noisy_rows.astype("Int64").astype("string").to_parquet(tmp_path / "edges.parquet")
    sources: list[Any] = [
        KARATE,
        rows,
        rows.astype(str),
        pl.from_pandas(rows),
        pa.Table.from_pandas(noisy_rows.sample(frac=1, random_state=0)),
        tmp_path / "edges.csv",
        str(tmp_path / "edges.parquet"),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", us.UnderstudyWarning)
        released = [us.fit_graph(source, SCHEMA, epsilon=1, seed=0) for source in sources]
    for each in released[1:]:
        np.testing.assert_array_equal(each.degrees, released[0].degrees)
        assert each.num_edges == released[0].num_edges


def test_one_more_edge_changes_neither_plan_nor_public_facts() -> None:
    fewer = KARATE.copy()
    fewer.remove_edge(0, 1)
    released = [us.fit_graph(graph, SCHEMA, epsilon=1) for graph in (KARATE, fewer, nx.empty_graph(34))]
    facts = [dataclasses.replace(each.statement.facts, estimated=()) for each in released]
    assert facts[0] == facts[1] == facts[2]
    assert released[0].statement.queries == released[1].statement.queries == released[2].statement.queries


def test_a_seed_marks_the_release() -> None:
    with pytest.warns(us.UnderstudyWarning, match="not private"):
        release = us.fit_graph(KARATE, SCHEMA, epsilon=1, seed=0)
    assert not release.statement.is_private
    assert "SEEDED: NOT PRIVATE" in release.certificate


@pytest.mark.parametrize(
    ("given", "error", "fields"),
    [
        ({}, us.ConfigError, {"setting": "epsilon"}),
        ({"epsilon": 1, "protect": "nodes"}, us.ConfigError, {"setting": "protect"}),
        ({"epsilon": 1, "protect": "node"}, us.ConfigError, {"setting": "max_degree"}),
        ({"epsilon": 1, "protect": "node", "schema": BLOCKS}, us.ConfigError, {"setting": "block"}),
        ({"epsilon": 1, "schema": None}, us.SchemaError, {"column": None, "key": None}),
        ({"epsilon": 1, "edges": pa.table({"from": [1], "target": [2]})}, us.SchemaError, {"column": "source"}),
        ({"epsilon": 1, "edges": "absent.csv"}, us.TableError, {"column": None, "line": None}),
        ({"epsilon": 1, "seed": -1}, us.ConfigError, {"setting": "seed"}),
    ],
)
def test_what_cannot_be_done_is_one_line(given: dict[str, Any], error: type[Exception], fields: dict[str, Any]) -> None:
    arguments = {"edges": KARATE, "schema": SCHEMA, **given}
    with raises(error, **fields) as raised:
        us.fit_graph(arguments.pop("edges"), arguments.pop("schema"), **arguments)
    assert "\n" not in str(raised.value)


def test_a_run_that_fails_after_its_first_query_has_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("a private value")

    monkeypatch.setattr(fitting, "restore_degrees", fail)
    with pytest.raises(us.SpentError) as raised:
        us.fit_graph(KARATE, SCHEMA, epsilon=1)
    assert raised.value.statement.queries == us.plan_graph(SCHEMA, epsilon=1).queries
    assert "private value" not in str(raised.value)


# --- The certificate, and the folder ---


@pytest.mark.parametrize(("schema", "protect"), CASES.values(), ids=CASES)
def test_the_certificate_says_first_that_nodes_are_public(schema: us.GraphSchema, protect: str) -> None:
    release = us.fit_graph(KARATE, schema, epsilon=1, protect=protect)
    _, first, *rest = release.certificate.split("\n\n")
    unit = "one edge" if protect == "edge" else "all edges of one node"
    assert first.startswith("> **Nodes are public.**")
    assert first.endswith(f"What is protected is {unit}.")
    text = "\n\n".join(rest)
    assert f"The privacy unit is {unit}" in text
    for wrong in ("The privacy unit is one row", "olumn names", "household", "person's row", "eighbouring tables"):
        assert wrong not in text
    content = json.loads(json.dumps(certificate.to_json(release.statement, release.checksums), allow_nan=False))
    jsonschema.Draft202012Validator(json_schema()).validate(content)
    assert content["guarantee"]["unit"]["graph"] == protect
    assert content["guarantee"]["adjacency"].startswith("add or remove" if protect == "edge" else "zero-out")
    assert certificate.from_json(content) == release.statement


def test_a_release_comes_back_from_its_folder(tmp_path: Path) -> None:
    release = us.fit_graph(KARATE, BLOCKS, epsilon=1)
    release.save(tmp_path / "a.release")
    loaded = us.GraphRelease.load(tmp_path / "a.release")
    assert loaded.certificate == release.certificate
    assert loaded.sample(seed=3).equals(release.sample(seed=3))
    assert loaded.schema == release.schema
    assert "edges: about" in repr(loaded)
    (tmp_path / "a.release" / "certificate.json").write_text("{}")
    with raises(us.ReleaseError, reason="edited"):
        us.GraphRelease.load(tmp_path / "a.release")
    with raises(us.ReleaseError, reason="missing"):
        us.GraphRelease.load(tmp_path)
    with raises(us.ReleaseError, reason="unknown kind"):
        us.Release.load(tmp_path / "a.release")


def test_a_killed_run_goes_on_to_one_release_and_no_other_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before its last draw: two copies resume to the same bytes; other edges, nodes or units are refused."""
    folder, copied = tmp_path / "run", tmp_path / "copied"
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "noisy_block_counts", _kill)
        with pytest.raises(Killed):
            us.fit_graph(KARATE, SCHEMA, epsilon=1, checkpoint=folder)
    other = KARATE.copy()
    other.remove_edge(0, 1)
    capped = dataclasses.replace(SCHEMA, max_degree=20)
    for edges, schema, protect in ((other, SCHEMA, "edge"), (KARATE, capped, "edge"), (KARATE, capped, "node")):
        with pytest.raises(us.CheckpointError):
            us.fit_graph(edges, schema, epsilon=1, protect=protect, checkpoint=folder, resume=True)
    with pytest.raises(us.CheckpointError):
        us.fit_graph(KARATE, SCHEMA, epsilon=1, checkpoint=folder)
    shutil.copytree(folder, copied)
    first, second = (us.fit_graph(KARATE, SCHEMA, epsilon=1, checkpoint=at, resume=True) for at in (folder, copied))
    assert first.to_files() == second.to_files()
    again = us.fit_graph(KARATE, SCHEMA, epsilon=1, checkpoint=folder, resume=True)  # its result is kept
    assert again.to_files() == first.to_files()
    again.save(tmp_path / "a.release")
    assert not folder.exists()
    assert us.GraphRelease.load(tmp_path / "a.release").digest == first.digest


def _kill(*given: object) -> None:
    raise Killed


def test_the_steward_sees_what_is_left_out() -> None:
    rows = pa.table({"source": ["0", "0", "1", "2", "9", None, "0"], "target": ["1", "1", "0", "2", "1", "1", "2"]})
    schema = us.GraphSchema.of_count(3, max_degree=1)
    findings = check_edges(rows, schema)
    assert "1 node has more edges than max_degree, 1: its degree is lowered." in str(findings[-1])
    assert {finding.topic: finding.count for finding in findings} == {
        "unknown node": 2,
        "loop": 1,
        "repeated edge": 1,
        "both directions": 1,
        "above max_degree": 1,
    }
    assert check_edges(KARATE, SCHEMA) == ()


# --- Figures ---


def test_degrees_of_a_large_graph_are_accurate() -> None:
    """4,000 nodes and 88,000 edges at epsilon 1: a Kolmogorov-Smirnov distance of at most 0.05."""
    graph = nx.powerlaw_cluster_graph(4000, 22, 0.3, seed=0)
    exact = np.array([degree for _, degree in graph.degree])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", us.UnderstudyWarning)
        release = us.fit_graph(graph, us.GraphSchema.of_count(4000), epsilon=1, seed=0)
    edges = release.sample_edges(seed=0)
    found = np.bincount(edges.ravel(), minlength=4000)
    below = [np.bincount(degrees, minlength=4000).cumsum() / 4000 for degrees in (exact, found)]
    assert np.abs(below[0] - below[1]).max() < 0.02
    assert abs(len(edges) - graph.number_of_edges()) < 100
    assert math.isfinite(release.statement.epsilon)
