"""What a command does once: it renders and writes a release, with the checksum of the table in it."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

import understudy as us
from tests.builders import Killed
from understudy.certificate import page as certificate_page
from understudy.cli import run
from understudy.errors import TableError
from understudy.graphs import GraphRelease
from understudy.graphs.release import load_release
from understudy.release import AnyRelease
from understudy.run.checkpoint import Checkpoint

PEOPLE = pa.table({"member": ["yes", "no"] * 20})
EDGES = pa.table({"source": range(20), "target": [(node + 1) % 20 for node in range(20)]})


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a certificate was rendered, and a release written."""
    counted: Counter[str] = Counter()

    def count(owner: object, name: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def counting(*given: Any, **more: Any) -> Any:
            counted[name] += 1
            return function(*given, **more)

        monkeypatch.setattr(owner, name, counting)

    count(certificate_page, "to_html")
    count(certificate_page, "to_markdown")
    count(AnyRelease, "save")
    return counted


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pyarrow.csv.write_csv(PEOPLE, "people.csv")
    pyarrow.csv.write_csv(EDGES, "edges.csv")
    Path("graph.toml").write_text("[nodes]\ncount = 20\n")
    return tmp_path


TABLE, GRAPH = ["people.csv", "--method", "independent"], ["edges.csv", "--schema", "graph.toml"]
BOTH = pytest.mark.parametrize("source", [TABLE, GRAPH], ids=["table", "graph"])


@BOTH
def test_a_release_is_rendered_and_written_once(place: Path, calls: Counter[str], source: list[str]) -> None:
    assert run(["synth", *source, "--epsilon", "1", "-o", "fake.csv"]) == 0
    assert calls == {"to_html": 1, "to_markdown": 1, "save": 1}
    certified = json.loads(Path("fake.release/certificate.json").read_text())
    assert certified["checksums"]["fake.csv"] == hashlib.sha256(Path("fake.csv").read_bytes()).hexdigest()
    assert not Path("fake.release.checkpoint").exists()


def test_a_release_is_kept_whatever_becomes_of_its_table(place: Path, calls: Counter[str]) -> None:
    assert run(["synth", "people.csv", "--epsilon", "1", "-o", "fake.csv", "--where", "member = 'perhaps'"]) == 2
    assert calls["save"] == 1
    assert us.Release.load("fake.release").tables == ()
    assert not Path("fake.csv").exists()
    assert not Path("fake.release.checkpoint").exists()


@BOTH
@pytest.mark.parametrize(("owner", "name"), [(us.Release, "sample_batches"), (GraphRelease, "sample")])
def test_a_release_is_kept_whatever_fails_after_it(
    place: Path, calls: Counter[str], monkeypatch: pytest.MonkeyPatch, source: list[str], owner: type, name: str
) -> None:
    monkeypatch.setattr(owner, name, _fail)
    fails = (owner is GraphRelease) == (source is GRAPH)
    assert run(["synth", *source, "--epsilon", "1", "-o", "fake.csv"]) == (2 if fails else 0)
    assert calls["save"] == 1
    release = load_release("fake.release")
    assert [name for name, _ in release.tables] == ([] if fails else ["fake.csv"])
    assert not Path("fake.release.checkpoint").exists()


def _fail(*given: object, **more: object) -> None:
    raise TableError("The disk is full.")


def _kill(*given: object, **more: object) -> None:
    raise Killed


@BOTH
@pytest.mark.parametrize(("owner", "act"), [(AnyRelease, "save"), (Checkpoint, "delete")])
def test_a_run_killed_between_two_acts_has_one_result(
    place: Path, monkeypatch: pytest.MonkeyPatch, source: list[str], owner: type, act: str
) -> None:
    """After the fit and before the release is saved; and after that, before its checkpoint is deleted."""
    command = ["fit", *source, "--epsilon", "1", "-o", "fake.release"]
    with monkeypatch.context() as patch:
        patch.setattr(owner, act, _kill)
        with pytest.raises(Killed):
            run(command)
    kept = Path("fake.release.checkpoint/model.safetensors").read_bytes()
    assert Path("fake.release").exists() == (act == "delete")
    assert run(command) == 2, "an unfinished run is not replaced"
    assert run([*command, "--resume"]) == 0
    assert Path("fake.release/model.safetensors").read_bytes() == kept
    assert load_release("fake.release").statement.is_private
    assert not Path("fake.release.checkpoint").exists()
