"""Peers: their files, their environments, and runs of a made-up peer that installs nothing."""

import ast
import dataclasses
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.peers.description import Peer, read_peer
from benchmarks.peers.environment import STAMP, build_environment, find_interpreter, peer_version
from benchmarks.peers.run import public_codec, run_peer
from tests.builders import raises
from understudy.benchmark.peers import PeerError, PeerResult
from understudy.benchmark.suite import read_suite
from understudy.errors import ConfigError, TableError
from understudy.schema import Schema

PEERS = Path(__file__).parents[2] / "benchmarks" / "peers"
NAMES = sorted(path.stem for path in PEERS.glob("*.toml"))

DESCRIPTION = """
title = "Made-up peer"
packages = []
python = ">=3.11"
homepage = "https://example.org"
licence = "MIT"

[methods.uniform]
title = "Uniform"
arguments = { shift = 0 }

[methods.other]
title = "Other"

[[defects]]
methods = ["other"]
text = "It does not do anything."
source = "this file"
"""

UNIFORM = """
import csv, json, random, sys

task = json.load(open(sys.argv[1]))
random.seed(task["seed"])
rows = list(csv.reader(open(task["codes"])))
assert rows[0] == list(task["sizes"]) and len(rows) == 5
with open(task["output"], "w") as file:
    writer = csv.writer(file)
    writer.writerow(task["sizes"])
    for _ in range(task["num_rows"]):
        writer.writerow([random.randrange(size) + task["arguments"]["shift"] for size in task["sizes"].values()])
"""

SCHEMA = Schema.from_toml(
    """
[table]
target = "member"

[columns.age]
kind = "integer"
bounds = [0, 99]
nullable = false

[columns.city]
kind = "categorical"
categories = ["Bern", "Oslo", "Rome"]
closed = true

[columns.member]
kind = "boolean"
nullable = false
"""
)

TABLE = pa.table({"age": [7, 30, 55, 99], "city": ["Rome", None, "Bern", "Oslo"], "member": [True, False, True, True]})

MakePeer = Callable[[str], Peer]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environments, built once for this file."""
    return tmp_path_factory.mktemp("environments")


@pytest.fixture
def make_peer(tmp_path: Path) -> MakePeer:
    """A peer named made whose adapter is the given program."""

    def make(adapter: str) -> Peer:
        (tmp_path / "adapters").mkdir()
        (tmp_path / "made.toml").write_text(DESCRIPTION)
        (tmp_path / "adapters" / "made.py").write_text(adapter)
        return read_peer(tmp_path / "made.toml")

    return make


def run(peer: Peer, root: Path, method: str = "uniform", timeout: float | None = 600.0) -> PeerResult:
    return run_peer(
        peer,
        method,
        TABLE,
        SCHEMA,
        epsilon=1.0,
        delta=1e-5,
        seed=3,
        num_rows=200,
        target="member",
        root=root,
        timeout=timeout,
    )


def failure(peer: Peer, root: Path, timeout: float | None = 600.0) -> PeerError:
    with pytest.raises(PeerError) as caught:
        run(peer, root, timeout=timeout)
    assert "\n" not in str(caught.value)
    return caught.value


# ------------------------------------------------------------------------------------------- peers of the repository


@pytest.mark.parametrize("name", NAMES)
def test_a_description_is_complete(name: str) -> None:
    peer = read_peer(PEERS / f"{name}.toml")
    assert peer.title
    assert peer.homepage.startswith("https://")
    assert peer.distribution is not None
    packages = (*peer.packages, *peer.without_dependencies)
    assert any(package.startswith(peer.distribution) for package in packages)
    for package in packages:  # names and versions, no address
        assert re.fullmatch(r"[A-Za-z0-9_.-]+(\[[a-z,]+\])?((==|>=|<=|<|>)[0-9.]+,?)+", package), package
    for defect in peer.defects:
        assert defect.source
        assert defect.text.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_is_small_and_stands_alone(name: str) -> None:
    source = read_peer(PEERS / f"{name}.toml").adapter.read_text()
    tree = ast.parse(source)
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [module for module in modules if module.startswith("understudy")]
    assert len([line for line in source.splitlines() if line.strip()]) <= 50


@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_passes_what_the_file_names(name: str) -> None:
    """Which method runs, and with which arguments, is the task's affair."""
    peer = read_peer(PEERS / f"{name}.toml")
    source = peer.adapter.read_text()
    assert re.search(r"task\[.method.\]", source) or len(peer.methods) == 1
    assert 'task["arguments"]' in source


def test_the_command_reads_the_suite_with_nothing_on_the_path(tmp_path: Path) -> None:
    suite = PEERS.parent / "suites" / "peers.toml"
    command = [sys.executable, "-m", "understudy", "benchmark", "status", str(suite), "--profile", "quick"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("peers: ")
    methods = [method for method in read_suite(suite).methods if method.peer]
    assert {method.peer for method in methods} == set(NAMES)
    assert methods[0].label == "mbi mst"


def test_a_suite_with_a_method_that_a_peer_does_not_have_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "suite.toml"
    entry = f'{{ peer = "{PEERS}/mbi.toml", method = "mts" }}'
    path.write_text(f'tables = ["car"]\nmethods = [{entry}]\nepsilons = [1.0]\nmetrics = ["f1"]\n')
    with raises(ConfigError, setting="mts"):
        read_suite(path)


def test_an_unknown_peer_is_refused_with_the_nearest() -> None:
    with raises(ConfigError, setting=str(PEERS / "smartnoize.toml")):
        read_peer(PEERS / "smartnoize.toml")


@pytest.mark.parametrize(
    ("expression", "setting"),
    [
        ("mts", "mts"),
        ("aim(degre=3)", "degre"),
        ("mst(rounds=3)", "rounds"),
        ("aim(3)", "expression"),
        ("aim(degree=[1])", "expression"),
        ("aim(", "expression"),
    ],
)
def test_an_unknown_method_or_argument_is_refused(expression: str, setting: str) -> None:
    with raises(ConfigError, setting=setting):
        read_peer(PEERS / "smartnoise.toml").require(expression)


def test_footnotes_are_those_of_the_method() -> None:
    peer = read_peer(PEERS / "smartnoise.toml")
    (defect,) = (defect for defect in peer.defects if "one network" in defect.text)
    assert "patectgan" in defect.methods
    assert "mst" not in defect.methods


# -------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("old", "new", "setting"),
    [
        ('licence = "MIT"', 'license = "MIT"', "license"),
        ('licence = "MIT"', "", "licence"),
        ("title = ", "titel = ", "titel"),
        ('methods = ["other"]', 'methods = ["otter"]', "otter"),
        ('">=3.11"', '"three"', "python"),
        ('licence = "MIT"', "licence = MIT", None),
    ],
)
def test_a_wrong_file_is_refused(make_peer: MakePeer, tmp_path: Path, old: str, new: str, setting: str | None) -> None:
    make_peer(UNIFORM)
    (tmp_path / "made.toml").write_text(DESCRIPTION.replace(old, new))
    with raises(ConfigError, setting=setting):
        read_peer(tmp_path / "made.toml")


def test_a_file_without_adapter_is_refused(make_peer: MakePeer, tmp_path: Path) -> None:
    make_peer(UNIFORM).adapter.unlink()
    with raises(ConfigError, setting="adapter"):
        read_peer(tmp_path / "made.toml")


def test_the_digest_follows_arguments_and_adapter(make_peer: MakePeer) -> None:
    peer = make_peer(UNIFORM)
    before = peer.digest
    assert dataclasses.replace(peer, notes=("Slow.",)).digest == before
    assert dataclasses.replace(peer, packages=("numpy==2.0",)).digest != before
    peer.adapter.write_text(UNIFORM + "\n")
    assert peer.digest != before


# --------------------------------------------------------------------------------------------------------- environments


def test_an_environment_is_built_once(make_peer: MakePeer, root: Path) -> None:
    peer = make_peer(UNIFORM)
    folder = build_environment(peer, root)
    built = (folder / STAMP).stat().st_mtime_ns
    assert build_environment(peer, root) == folder
    assert (folder / STAMP).stat().st_mtime_ns == built
    assert peer_version(peer, folder) is None


def test_a_relative_folder_of_environments_will_do(
    make_peer: MakePeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(make_peer(UNIFORM), Path("environments")).table.num_rows == 200


def test_an_incomplete_environment_is_built_again(make_peer: MakePeer, tmp_path: Path) -> None:
    peer = make_peer(UNIFORM)
    folder = build_environment(peer, tmp_path / "root")
    (folder / STAMP).unlink()
    (folder / "rest").touch()
    assert build_environment(peer, tmp_path / "root") == folder
    assert (folder / STAMP).exists()
    assert not (folder / "rest").exists()


def test_a_failed_build_leaves_nothing(make_peer: MakePeer, tmp_path: Path) -> None:
    peer = dataclasses.replace(make_peer(UNIFORM), packages=(str(tmp_path / "absent.whl"),))
    with pytest.raises(PeerError, match=r"Made-up peer cannot be installed: .*absent\.whl") as caught:
        build_environment(peer, tmp_path / "root")
    assert caught.value.reason == "install"
    assert "\n" not in str(caught.value)
    assert not [path for path in (tmp_path / "root").iterdir() if path.is_dir()]


def test_a_missing_python_makes_a_peer_unavailable(make_peer: MakePeer, tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"no Python <3\.0"):
        build_environment(dataclasses.replace(make_peer(UNIFORM), python="<3.0"), tmp_path / "root")
    assert find_interpreter(">=3.11")


# ----------------------------------------------------------------------------------------------------------------- runs


def test_rows_come_back_in_the_schema(make_peer: MakePeer, root: Path) -> None:
    peer = make_peer(UNIFORM)
    found = run(peer, root)
    assert found.version is None
    assert 0 < found.seconds < 60
    assert found.table.column_names == TABLE.column_names
    assert found.table.num_rows == 200
    values = {name: set(found.table.column(name).to_pylist()) for name in found.table.column_names}
    assert values["city"] == {"Bern", "Oslo", "Rome", None}
    assert values["member"] == {True, False}
    assert values["age"] <= set(range(100))
    assert len(values["age"]) > 32  # drawn within bins
    assert run(peer, root).table.equals(found.table)


@pytest.mark.parametrize(
    ("adapter", "reason", "message"),
    [
        ("raise ValueError('no such luck')", "error", "Uniform of Made-up peer failed: ValueError: no such luck"),
        ("raise ValueError('outer(\\n inner reason\\n)')", "error", "failed: inner reason"),
        ("raise MemoryError", "memory", "MemoryError"),
        ("import os; os.kill(os.getpid(), 9)", "died", "SIGKILL"),
        ("raise SystemExit(3)", "error", "no reason"),
        ("pass", "error", "wrote no rows"),
        ("open('synthetic.csv', 'w').write('nonsense')", "error", "all 3 columns"),
        ("open('synthetic.csv', 'wb').write(bytes(range(256)))", "error", "all 3 columns"),
        ("open('synthetic.csv', 'w').write('c0,c1,c2\\n0,0,0\\n')", "error", "wrote 1 rows, expected 200"),
        ("open('synthetic.csv', 'w').write('c0,c1,c2\\n' + 200 * '0,0,0.5\\n')", "error", "not whole numbers"),
        ("open('synthetic.csv', 'w').write('c0,c1,c2\\n' + 200 * '0,0,\\n')", "error", "not whole numbers"),
        ("open('synthetic.csv', 'w').write('c0,c1,c2\\n' + 200 * '0,4,0\\n')", "error", "outside the domain"),
        ("open('synthetic.csv', 'w').write('c0,c1,c2\\n' + 200 * '-1,0,0\\n')", "error", "outside the domain"),
    ],
)
def test_a_failure_has_a_reason(make_peer: MakePeer, root: Path, adapter: str, reason: str, message: str) -> None:
    error = failure(make_peer(adapter), root)
    assert error.reason == reason
    assert message in str(error)


def test_a_peer_that_hangs_is_stopped(make_peer: MakePeer, root: Path) -> None:
    peer, began = make_peer("import time; time.sleep(3600)"), time.monotonic()
    build_environment(peer, root)
    assert failure(peer, root, timeout=0.5).reason == "time"
    assert time.monotonic() - began < 600


def test_scratch_is_removed(make_peer: MakePeer, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    peer = make_peer(UNIFORM)
    run(peer, root)
    peer.adapter.write_text("raise ValueError")
    failure(peer, root)
    assert not list(scratch.iterdir())


def test_arguments_reach_the_adapter(make_peer: MakePeer, root: Path) -> None:
    peer = make_peer(UNIFORM)
    with pytest.raises(PeerError, match="outside the domain"):
        run(peer, root, method="uniform(shift=1000)")
    with raises(ConfigError, setting="uniforms"):
        run(peer, root, method="uniforms")


def test_the_environment_is_the_peers_own(
    make_peer: MakePeer, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of this process's packages can be imported there."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "hidden.py").touch()
    for module in ("numpy", "understudy", "hidden"):
        peer_source = f"import {module}"
        (tmp_path / "adapters").mkdir(exist_ok=True)
        (tmp_path / "adapters" / "made.py").write_text(peer_source)
        (tmp_path / "made.toml").write_text(DESCRIPTION)
        assert f"No module named '{module}'" in str(failure(read_peer(tmp_path / "made.toml"), root))


# --------------------------------------------------------------------------------------------------------------- domain


def test_the_domain_depends_on_no_value() -> None:
    other = pa.table({"age": [50, 50, 50, 50], "city": ["Bern"] * 4, "member": [True] * 4})
    ours, theirs = public_codec(TABLE, SCHEMA), public_codec(other, SCHEMA)
    assert ours.domain == theirs.domain
    assert ours.domain.sizes == (32, 4, 2)
    assert ours.to_dict() == theirs.to_dict()


def test_bins_have_equal_widths() -> None:
    codes = public_codec(TABLE, SCHEMA, max_bins=10).encode(pa.table({**_columns(), "age": list(range(100))}))
    counts = [int((codes[:, 0] == code).sum()) for code in range(10)]
    assert counts == [10] * 10


def _columns() -> dict[str, list[object]]:
    return {"city": ["Bern"] * 100, "member": [True] * 100}


def test_an_undeclared_domain_is_refused() -> None:
    schema = Schema.from_toml('[columns.age]\nkind = "integer"\n[columns.city]\nkind = "categorical"')
    with pytest.raises(ConfigError, match="bounds or categories of: age, city"):
        public_codec(TABLE, schema)


def test_a_missing_column_is_refused() -> None:
    with raises(TableError, column="city"):
        public_codec(TABLE.drop_columns(["city"]), SCHEMA)


def test_a_wrong_target_is_refused(make_peer: MakePeer, root: Path) -> None:
    with raises(ConfigError, setting="target"):
        run_peer(
            make_peer(UNIFORM), "uniform", TABLE, SCHEMA,
            epsilon=1.0, delta=1e-5, seed=0, num_rows=5, target="membr", root=root,
        )  # fmt: skip
