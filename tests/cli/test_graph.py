"""Commands on graphs: from an edge list to a synthetic one, and one clear line for what cannot be done."""

import json
import re
from pathlib import Path

import networkx as nx
import pytest

from understudy.cli import run
from understudy.evaluation.scorecard import WARNING
from understudy.report.text import percent

SCHEMA = '[graph]\nname = "karate"\ndrop = ["weight"]\n[nodes]\nfile = "nodes.csv"\nblock = "club"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    graph = nx.karate_club_graph()
    rows = "".join(f"{one},{other},1\n" for one, other in graph.edges)
    Path("edges.csv").write_text(f"source,target,weight\n{rows}0,0,1\n1,0,1\n")
    Path("nodes.csv").write_text("node,club\n" + "".join(f"{node},{graph.nodes[node]['club']}\n" for node in graph))
    Path("graph.toml").write_text(SCHEMA)
    Path("capped.toml").write_text('[graph]\ndrop = ["weight"]\nmax_degree = 9\n[nodes]\ncount = 34\n')
    return tmp_path


def test_from_edges_to_a_certificate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = ["--kind", "graph", "--protect", "edge", "--schema", "graph.toml"]
    assert run(["synth", "edges.csv", *graph, "--epsilon", "1", "-o", "fake.csv", "--json", "fake.json"]) == 0
    said = capsys.readouterr().err
    assert "synthetic edges between 34 nodes to fake.csv" in said
    assert "The nodes and their attributes are public" in said
    assert Path("fake.csv").read_text().startswith("source,target\n")
    assert json.loads(Path("fake.json").read_text())["checksums"].keys() == {"model.safetensors", "fake.csv"}

    assert run(["certificate", "fake.release"]) == 0
    assert "Nodes are public." in capsys.readouterr().out.split("\n\n")[1]
    assert run(["sample", "fake.release", "-o", "more.csv", "--seed", "1"]) == 0
    assert run(["sample", "fake.release", "-o", "same.csv", "--seed", "1"]) == 0
    assert Path("more.csv").read_bytes() == Path("same.csv").read_bytes()
    capsys.readouterr()

    assert run(["evaluate", "edges.csv", "fake.csv", "--schema", "graph.toml", "--json", "scores.json"]) == 0
    shown = capsys.readouterr().out
    assert "do not publish" in shown
    assert "degree distance" in shown
    assert "Good" in shown
    assert "Not for" in shown
    assert json.loads(Path("scores.json").read_text())["graphs"]["real"]["edges"] == 78


def test_plan_reads_no_edge_and_check_is_for_the_steward(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("edges.csv").rename("moved.csv")
    assert run(["plan", "graph.toml", "--epsilon", "1", "--json", "-"]) == 0
    queries = json.loads(capsys.readouterr().out)["queries"]
    assert [query["key"] for query in queries] == ["degrees", "degree_tails", "block_counts"]
    assert run(["plan", "capped.toml", "--epsilon", "1", "--protect", "node"]) == 0
    assert "L1" in capsys.readouterr().out
    assert run(["schema", "check", "moved.csv", "graph.toml"]) == 0
    said = capsys.readouterr().out
    assert "For the steward only" in said
    assert "1 row is a loop" in said
    assert "1 row repeats an edge in the opposite direction" in said


def test_a_node_is_protected_under_a_cap(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["fit", "edges.csv", "--kind", "graph", "--schema", "capped.toml", "--epsilon", "1"]
    assert run([*given, "--protect", "node", "-o", "node.release"]) == 0
    assert run(["certificate", "node.release"]) == 0
    assert "The privacy unit is all edges of one node" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--protect", "node", "--schema", "graph.toml"], "needs a declared degree cap"),
        (["--kind", "graph"], "A graph needs a schema. Declare the nodes"),
        (["--kind", "graf"], "--kind must be table or graph"),
        (["--protect", "edge"], "--protect is for graphs"),
        (["--schema", "graph.toml", "--method", "mst"], "--method does not apply to a graph"),
        (["--schema", "graph.toml", "-n", "5"], "--rows does not apply to a graph"),
        (["--schema", "graph.toml", "--engine", "spark"], "--engine does not apply to a graph"),
        (["--schema", "graph.toml", "--scratch", "."], "--scratch does not apply to a graph"),
        (["--schema", "table.toml", "--kind", "graph"], "describes a table, not a graph"),
        (["--schema", "other.toml"], "field 3 is none of them"),
        (["--schema", "directed.toml"], "directed graphs are not supported"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("table.toml").write_text('[columns.source]\nkind = "integer"\n')
    Path("other.toml").write_text("[nodes]\ncount = 34\n")
    Path("directed.toml").write_text("[graph]\ndirected = true\n[nodes]\ncount = 34\n")
    assert run(["synth", "edges.csv", *arguments, "--epsilon", "1", "-o", "fake.csv"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not Path("fake.csv").exists()
    assert not Path("fake.release").exists()


def test_a_second_release_says_what_both_cost(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["fit", "edges.csv", "--schema", "capped.toml", "--epsilon", "1"]
    assert run([*given, "-o", "a.release"]) == 0
    assert "already holds" not in capsys.readouterr().err
    assert run([*given, "-o", "b.release"]) == 0
    assert "Together with this run they guarantee epsilon 2 at delta 2e-06" in capsys.readouterr().err
    assert run([*given, "--protect", "node", "-o", "c.release"]) == 0
    assert (
        "(each edge of the graph and each node of the graph), so the costs cannot be added" in capsys.readouterr().err
    )


def test_a_refused_run_says_nothing_about_the_total(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["fit", "edges.csv", "--schema", "capped.toml", "--epsilon", "1"]
    assert run([*given, "-o", "a.release"]) == 0
    capsys.readouterr()
    Path("edges.csv").write_text("from,to\n1,2\n")
    assert run([*given, "-o", "b.release"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_sample_of_a_graph_is_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "edges.csv", "--schema", "graph.toml", "--epsilon", "1", "-q", "-o", "a.release"]) == 0
    assert run(["sample", "a.release", "-n", "5", "-o", "b.csv"]) == 2
    assert "a sample is a whole graph" in capsys.readouterr().err
    assert (
        run(["synth", "edges.csv", "--schema", "graph.toml", "--epsilon", "1", "--seed", "3", "-q", "-o", "c.csv"]) == 0
    )
    assert "NOT PRIVATE: its noise was seeded" in capsys.readouterr().err


def test_evaluate_takes_the_schema_from_the_release(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("fake", "again"):
        given = ["--schema", "graph.toml", "--epsilon", "1", "-q", "-o", f"{name}.csv"]
        assert run(["synth", "edges.csv", "--kind", "graph", *given]) == 0
    capsys.readouterr()
    assert run(["evaluate", "edges.csv", "fake.csv", "--schema", "graph.toml", "--json", "declared.json"]) == 0
    assert "Wrote declared.json" in capsys.readouterr().err
    Path("graph.toml").unlink()
    assert run(["evaluate", "edges.csv", "fake.csv", "--json", "beside.json"]) == 0
    assert "Schema: that of the release fake.release." in capsys.readouterr().out
    assert run(["evaluate", "edges.csv", "again.csv", "fake.csv", "-q"]) == 0
    assert "Schema: that of the release again.release." in capsys.readouterr().out
    Path("fake.release").rename("moved.release")
    assert run(["evaluate", "edges.csv", "fake.csv", "--release", "moved.release", "--json", "named.json"]) == 0
    assert Path("declared.json").read_bytes() == Path("beside.json").read_bytes() == Path("named.json").read_bytes()

    Path("semi.csv").write_text(Path("edges.csv").read_text().replace(",", ";"))  # options are for the real edge list
    assert run(["evaluate", "semi.csv", "again.csv", "--separator", ";", "--encoding", "latin-1", "-q"]) == 0


@pytest.mark.parametrize(
    "option", ["--target=club", "--holdout=edges.csv", "--quick", "--metric=tv1", "--constraint=1"]
)
def test_evaluate_refuses_what_is_for_tables(option: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", "edges.csv", "edges.csv", "--schema", "graph.toml", option, "--json", "scores.json"]) == 2
    assert capsys.readouterr().err.endswith(f"{option.partition('=')[0]} does not apply to a graph. Remove it.\n")
    assert not Path("scores.json").exists()


def test_evaluate_writes_a_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--schema", "graph.toml", "--epsilon", "1", "-q", "-o", "fake.csv"]
    assert run(["synth", "edges.csv", *given]) == 0
    hostile = '<script>alert("1")</script>'
    named = ["evaluate", "edges.csv", "fake.csv", f"{hostile}=edges.csv", "--report", "g.html", "--json", "g.json"]
    assert run(named) == 0
    assert "Wrote g.html and g.json" in capsys.readouterr().err
    page, scores = Path("g.html").read_text(), json.loads(Path("g.json").read_text())
    assert WARNING in page
    assert hostile not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    rows = re.findall(r"<tr><th scope=row><span>(.*?)</span>.*?</th>(.*?)</tr>", page)
    assert [metric for metric, _ in rows] == list(scores["graphs"]["real"])
    for metric, cells in rows:
        shown = re.findall(r"<td class=n [^>]*>(.*?)</td>", cells)
        for cell, name in zip(shown, ("fake", hostile, "real", "random"), strict=True):
            assert float(cell.replace(",", "")) == pytest.approx(scores["graphs"][name][metric], rel=0.01)

    degrees = [degree for _, degree in nx.karate_club_graph().degree]
    assert sum(nodes for _, nodes in scores["degrees"]["real"]) == 34
    chart = page.partition('id="degrees"')[2]
    for at_least, real, *_ in [re.findall(r"<td>([^<]*)", row) for row in chart.split("<tr>")[2:]]:
        assert real == percent(sum(degree >= int(at_least) for degree in degrees) / 34)
    assert 'id="certificate"' not in page  # of two graphs, it is not known whose it is
    assert run([*named[:3], "--report", "one.html", "-q"]) == 0
    assert 'id="certificate"' in Path("one.html").read_text()
    assert run([*named[:3], "--report", "fake.release/g.html"]) == 2
    assert "is inside the release" in capsys.readouterr().err


def test_a_draft_names_columns_and_leaves_the_nodes_to_a_person(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the names alone: other edges give the same draft."""
    assert run(["schema", "draft", "edges.csv", "--kind", "graph", "-o", "draft.toml"]) == 0
    draft = Path("draft.toml").read_text()
    assert 'source = "source"\ntarget = "target"\n' in draft
    assert 'drop = ["weight"]' in draft
    Path("other.csv").write_text("source,target,weight\n7,9,2.5\n")
    assert run(["schema", "draft", "other.csv", "--kind", "graph", "-o", "other.toml"]) == 0
    assert Path("other.toml").read_text() == draft
    capsys.readouterr()
    assert run(["plan", "draft.toml", "--epsilon", "1"]) == 2
    assert "Declare the nodes of the graph" in capsys.readouterr().err
    Path("draft.toml").write_text(draft.replace("# count = 4000", "count = 34"))
    assert run(["synth", "edges.csv", "--schema", "draft.toml", "--epsilon", "1", "-q", "-o", "fake.csv"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["preview", "edges.csv", "--schema", "graph.toml", "--epsilon", "1"],
            "'preview' is for tables, and graph.toml",
        ),
        (["disclose", "edges.csv", "fake.csv", "--holdout", "edges.csv"], "'disclose' is for tables, and fake.release"),
        (["disclose", "edges.csv", "other.csv", "--release", "fake.release"], "and fake.release is of a graph"),
        (["disclose", "edges.csv", "other.csv", "--schema", "graph.toml"], "and graph.toml is of a graph"),
        (["schema", "draft", "edges.csv", "--kind", "tree", "-o", "a.toml"], "--kind must be table or graph"),
        (["schema", "draft", "edges.csv", "--kind", "graph", "--trust-labels", "-o", "a.toml"], "does not apply"),
    ],
)
def test_commands_for_tables_say_so(
    arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("fake.release").mkdir()  # no more is read of it
    Path("fake.release/release.json").write_text('{"format": "understudy-graph-release"}')
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_graph_without_a_guarantee_is_said_to_be_the_real_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fit", "edges.csv", "--schema", "graph.toml", "--not-private", "-q", "-o", "a.release"]) == 0
    capsys.readouterr()
    assert run(["certificate", "a.release"]) == 0
    said = capsys.readouterr().out
    assert "Real edges were used without noise" in said
    assert "Treat this release like the real graph." in said
    assert "What is protected is" not in said
