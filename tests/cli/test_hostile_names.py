"""Names and values that are markup, formulas or control characters are shown as they are, by every command."""

import html.parser
import itertools
import json
import tomllib
import zipfile
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from understudy.cli import run
from understudy.cli.app import app
from understudy.rules.values import to_toml

EVIL = "<img src=http://evil/p.png>**epsilon = 0.01**[a](http://evil)|``<b>`\x1b[2J\x9b1A"
NAMES = [f"{EVIL} a", f"={EVIL} b", f"+sum {EVIL}"]
CATEGORIES = [f"={EVIL}", f"-1+{EVIL}", "plain"]
TITLE = f"visits {EVIL}"
NODES = [f"={EVIL} {number}" for number in range(20)]

ABOUT = ["--about", "about.toml"]

COMMANDS: dict[str, list[list[str]]] = {
    "synth": [["synth", "t.csv", *["--schema", "s.toml", "--epsilon", "1", "--method", "mst", "-o", "fake.csv"]]],
    "fit": [
        ["fit", "t.csv", *["--schema", "open.toml", "--epsilon", "2", "--method", "independent", "-o", "open.release"]],
        ["fit", "edges.csv", *["--schema", "graph.toml", "--epsilon", "1", "-o", "graph.release"]],
    ],
    "sample": [
        ["sample", "open.release", "-o", "again.csv", "-n", "20"],
        ["sample", "graph.release", "-o", "fake_edges.csv"],
    ],
    "certificate": [
        ["certificate", "open.release"],
        ["certificate", "open.release", "--html", "page.html"],
        ["certificate", "graph.release", "--html", "graph.html"],
    ],
    "plan": [["plan", "s.toml", "--epsilon", "1", "--method", "mst"], ["plan", "graph.toml", "--epsilon", "1"]],
    "preview": [["preview", "t.csv", "--schema", "s.toml", "--epsilon", "1"]],
    "mock": [["mock", "s.toml", "-n", "20", "-o", "mock.csv", "--fill"]],
    "schema": [
        ["schema", "draft", "t.csv", "-o", "draft.toml"],
        ["schema", "check", "t.csv", "s.toml"],
        ["schema", "check", "t.csv", "bad.toml"],
        ["schema", "check", "edges.csv", "graph.toml"],
    ],
    "evaluate": [
        [
            *["evaluate", "t.csv", "fake.csv", "--schema", "s.toml", "--quick", "--json", "scores.json"],
            *["--report", "report.html"],
        ],
        ["evaluate", "edges.csv", "fake_edges.csv", "--schema", "graph.toml"],
    ],
    "report": [["report", "scores.json", "-o", "again.html"]],
    "split": [["split", "t.csv", "-o", "rest.csv", "--holdout", "held.csv"]],
    "disclose": [
        ["disclose", "rest.csv", "fake.csv", *["--holdout", "held.csv", "--schema", "s.toml", "--json", "risks.json"]]
    ],
    "book": [
        ["book", "create", "x.book", "--epsilon", "9", "--delta", "1e-4", "--dataset", EVIL],
        ["book", "show", "x.book"],
        ["book", "verify", "x.book"],
    ],
    "bundle": [["bundle", f"{name}.release", "-o", f"{name}.zip"] for name in ("open", "graph")],
    "verify": [["verify", "open.zip"], ["verify", "graph.zip"]],
    "metadata": [
        ["metadata", "open.release", "--format", "table-schema", "-o", "meta.json"],
        ["metadata", "open.release", "--format", "croissant", *ABOUT, "--file", "again.csv", "-o", "croissant.json"],
        ["metadata", "open.release", "--format", "dcat", *ABOUT, "-o", "dcat.json"],
        ["metadata", "open.release", "--format", "registry", *ABOUT, "-o", "registry.yaml"],
    ],
}
ELSEWHERE = {
    **dict.fromkeys(("benchmark", "audit"), "names of suites and methods, of one's own files"),
    **dict.fromkeys(("doctor", "demo", "methods", "studio"), "show no name of a table"),
}
"""Commands that are not tried here, and why."""


def test_every_command_is_tried_or_excepted() -> None:
    groups = [group.name for group in app.registered_groups]
    names = [command.name or command.callback.__name__ for command in app.registered_commands]  # type: ignore[union-attr]  # a command has a name or a function
    assert {*groups, *names} == COMMANDS.keys() | ELSEWHERE.keys()


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the commands have written, and what they have printed."""
    folder = tmp_path_factory.mktemp("hostile")
    quoted = [f'"{name}"' for name in NAMES]
    rows = [",".join(f'"{CATEGORIES[(row + at) % 3]}"' for at in range(3)) for row in range(1200)]
    (folder / "t.csv").write_text("\n".join([",".join(quoted), *rows]) + "\n")
    columns = "".join(f'[columns.{to_toml(name)}]\nkind = "categorical"\n' for name in NAMES)
    listed = columns.replace('"categorical"\n', f'"categorical"\ncategories = {to_toml(CATEGORIES)}\n')
    head = f"[table]\nrows = 1200\nname = {to_toml(TITLE)}\n"
    rule = f'[[rules]]\ncombinations = [{to_toml(NAMES[0])}]\nforbidden = [["plain"]]\n'
    (folder / "s.toml").write_text(head + listed)
    said = {
        "title": TITLE,
        "description": EVIL,
        "license": "https://x.org/l",
        "url": "https://x.org",
        "sector": "Healthcare",
        "region": EVIL,
        "intended_use": EVIL,
    }
    about = "".join(f"{key} = {to_toml(value)}\n" for key, value in said.items())
    (folder / "about.toml").write_text(f'{about}[publisher]\nname = {to_toml(EVIL)}\n[contact]\nemail = "a@x.org"\n')
    (folder / "open.toml").write_text(head + columns)
    ends = "".join(f"{end} = {to_toml(name)}\n" for end, name in zip(("source", "target"), NAMES, strict=False))
    graph = f"[graph]\nname = {to_toml(TITLE)}\n{ends}[nodes]\nlist = {to_toml(NODES)}\n"
    (folder / "graph.toml").write_text(graph)
    edges = [f'"{one}","{other}"' for one, other in itertools.combinations(NODES, 2)]
    (folder / "edges.csv").write_text("\n".join([",".join(quoted[:2]), *edges[::3]]) + "\n")
    (folder / "bad.toml").write_text(
        head + listed + rule.replace("plain", EVIL.replace("\x1b", "").replace("\x9b", ""))
    )
    return folder


def test_nothing_is_obeyed(outputs: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(outputs)
    for command in [each for group in COMMANDS.values() for each in group]:
        code = run(command)
        out, err = capfd.readouterr()
        assert code in (0, 1, 2), (command, out, err)
        assert code < 2 or "bad.toml" in command, (command, err)
        for shown in (out, err):
            odd = {each for each in shown if not each.isprintable() and each not in "\n\t\r\u00a0"}
            assert not odd, (command, odd, shown[:2000])
    for bundle in outputs.glob("*.zip"):
        with zipfile.ZipFile(bundle) as archive:
            archive.extractall(bundle.with_suffix(""))
            assert {"README.md", "sign-off.html"} <= {*archive.namelist()}
    written = [path for path in outputs.rglob("*") if path.is_file()]
    for path in written:
        if path.suffix == ".md":
            check_markdown(path.read_text())
        if path.suffix == ".html":
            check_html(path.read_text())
        if path.suffix == ".json":
            json.loads(path.read_text())
    assert {"CERTIFICATE.md", "certificate.html", "report.html", "page.html"} <= {path.name for path in written}
    drafted = tomllib.loads((outputs / "draft.toml").read_text())
    assert [*drafted["columns"]] == NAMES


def check_markdown(text: str) -> None:
    """No tag, image or link, and no strong text, in any reader of Markdown."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inside = [*tokens, *(child for token in tokens for child in token.children or ())]
    assert not {token.type for token in inside} & {"html_inline", "html_block", "image", "link_open"}
    for at, token in enumerate(inside):
        assert token.type != "strong_open" or "epsilon = 0.01" not in inside[at + 1].content


class _Tags(html.parser.HTMLParser):
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)  # names may be in titles and labels, quoted
        assert "evil" not in f"{found.get('src')} {found.get('href')}"
        assert not {name for name in found if name.startswith("on")}


def check_html(text: str) -> None:
    _Tags().feed(text)
    assert "<img src=http://evil" not in text


@pytest.mark.parametrize("command", ["synth", "sample"])
def test_formulas_are_escaped_on_request_alone(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    listed = ["=1+1", "+2", "-3", "@x", "\tb", "\rc", "plain"]
    schema = f'[table]\nrows = 70\n[columns."=a"]\nkind = "categorical"\ncategories = {to_toml(listed)}\n'
    Path("s.toml").write_text(schema)
    Path("t.csv").write_text("=a\n" + "plain\n" * 70)
    fit = [*["fit", "t.csv", "--schema", "s.toml", "--not-private", "--method", "independent", "-o", "r.release", "-q"]]
    assert run(fit) == 0
    capfd.readouterr()
    made = {
        "synth": "synth t.csv --schema s.toml --epsilon 0.1 --method independent --rows 3000",
        "sample": "sample r.release -n 3000",
    }[command].split()
    assert run([*made, "-o", "plain.csv"]) == 0
    assert "=a" in (said := capfd.readouterr().err)
    assert "--escape-formulas" in said
    assert run([*made, "-o", "safe.csv", "--escape-formulas"]) == 0
    assert "--escape-formulas" not in capfd.readouterr().err
    plain, safe = (Path(name).read_bytes().decode() for name in ("plain.csv", "safe.csv"))
    assert plain.startswith("=a\n")
    assert safe.startswith("'=a\n")
    assert not [line for line in safe.replace('"', "").split("\n") if line[:1] in "=+-@\t\r" and line]
    assert run([*made, "-o", "safe.parquet", "--escape-formulas"]) == 2


LOOKED_UP = """
[table]
rows = 70
[columns]
a = { kind = "categorical", categories = ["x", "y"] }
b = { kind = "categorical", categories = ["=1+1", "@v"] }
[[rules]]
determines = ["a"]
gives = ["b"]
table = [["x", "=1+1"], ["y", "@v"]]
"""
EDGES = '[nodes]\nlist = ["=1+1|calc", "+2", "@x", "plain"]\n'


@pytest.mark.parametrize("command", ["synth", "sample", "mock", "graph synth", "graph sample"])
def test_every_column_with_formulas_is_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A column that a rule looks up is not in the model, and the nodes of a graph are no categories."""
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(EDGES if "graph" in command else LOOKED_UP)
    nodes = "source,target\n=1+1|calc,+2\n+2,@x\n@x,plain\nplain,=1+1|calc\n"
    Path("t.csv").write_text(nodes if "graph" in command else "a,b\n" + "x,=1+1\ny,@v\n" * 35)
    if "sample" in command:
        assert run(["fit", "t.csv", "--schema", "s.toml", "--not-private", "-o", "r", "-q"]) == 0
    made = {
        "synth": "synth t.csv --schema s.toml --epsilon 9 --method independent",
        "graph synth": "synth t.csv --schema s.toml --not-private",
        "mock": "mock s.toml",
    }.get(command, "sample r")
    capfd.readouterr()
    assert run([*made.split(), "-o", "plain.csv"]) == 0
    said = capfd.readouterr().err
    named = "source, target" if "graph" in command else "b"
    assert f"names or values: {named}. To put an apostrophe before each, use --escape-formulas" in said
    assert run([*made.split(), "-o", "safe.csv", "--escape-formulas"]) == 0
    assert "--escape-formulas" not in capfd.readouterr().err
    plain, safe = (Path(name).read_text() for name in ("plain.csv", "safe.csv"))
    values = {value for line in safe.splitlines()[1:] for value in line.replace('"', "").split(",")}
    assert values & {"'=1+1", "'=1+1|calc"}
    assert not [value for value in values if value.startswith(("=", "+", "@"))]
    assert ",=1+1" in plain or "=1+1|calc" in plain
    assert run([*made.split(), "-o", "again.parquet"]) == 0
    assert "--escape-formulas" not in capfd.readouterr().err
    folders = {*Path.cwd().iterdir()}
    assert run([*made.split(), "-o", "safe.parquet", "--escape-formulas"]) == 2
    assert {*Path.cwd().iterdir()} == folders, "refused before anything is spent or written"
