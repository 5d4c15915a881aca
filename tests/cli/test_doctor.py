"""`understudy doctor`: what it finds, its exit code, and that its output can be published."""

import getpass
import importlib.metadata
import json
import platform
import re
import secrets
import tempfile
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT
from understudy._version import DISTRIBUTION
from understudy.benchmark.catalogue import describe_table, table_names
from understudy.cli import run
from understudy.cli.doctor import EXTRAS, Status, requirements, run_checks, usable_cores, usable_memory

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_output_names_no_place_and_no_person(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text and the JSON are for bug reports: every folder that is looked at has a name to search for."""
    for variable in ("HOME", "TMPDIR", "UNDERSTUDY_DATA", "XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR"):
        (tmp_path / f"Zx81{variable}").mkdir()
        monkeypatch.setenv(variable, str(tmp_path / f"Zx81{variable}"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(tmp_path / "Zx81HOME")
    assert run(["doctor"]) == 0
    assert run(["doctor", "--json", "doctor.json"]) == 0
    shown, written = capsys.readouterr().out, Path("doctor.json").read_text()
    for text in (shown, written):
        assert "Zx81" not in text
        assert not re.search(rf"\b({re.escape(getpass.getuser())}|{re.escape(platform.node())})\b", text)
        assert not re.search(r"(^|[\s\"'(])(/|~|[A-Z]:\\)\w", text)
    assert shown.endswith("Private runs are possible.\n")
    content = json.loads(written)
    assert content["usable"] is True
    found = {check["name"]: check for check in content["checks"]}
    assert {*requirements(), *EXTRAS, "device", "memory", "cores", "trial run", "public tables"} <= set(found)
    assert found["jax"]["found"] == importlib.metadata.version("jax")
    assert found["trial run"]["status"] == "ok"


def test_no_secure_randomness_means_no_private_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(size: int | None = None) -> bytes:
        raise OSError("/home/somebody")

    monkeypatch.setattr(secrets, "token_bytes", refuse)
    assert run(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "problem  secure randomness  not available." in shown
    assert re.search(r"problem +trial run +failed \(OSError\)\. Run ", shown)
    assert "No private run is possible: see secure randomness, trial run.\n" in shown
    assert "somebody" not in shown


def test_missing_and_old_libraries_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = ["absent-library>=1", "numpy>=999.1", "scipy>=1", 'absent-too>=1; extra == "yaml"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: needs)
    checks = {check.name: check for check in run_checks()}
    assert (checks["absent-library"].status, checks["absent-library"].found) == (Status.PROBLEM, "not installed")
    assert checks["numpy"].status is Status.PROBLEM
    assert checks["numpy"].advice == "Upgrade it: pip install 'numpy>=999.1'."
    assert checks["scipy"].status is Status.OK
    assert (checks["yaml"].status, "pip install 'understudy-dp[yaml]'" in checks["yaml"].found) == (
        Status.MISSING,
        True,
    )
    assert all(check.advice for check in checks.values() if check.status in (Status.PROBLEM, Status.WARNING))


def test_another_project_of_the_plain_name_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its modules and its command lie where ours do."""
    (tmp_path / "understudy-1.2.dist-info").mkdir()
    (tmp_path / "understudy-1.2.dist-info" / "METADATA").write_text("Name: understudy\nVersion: 1.2\n")
    monkeypatch.syspath_prepend(tmp_path)
    check = next(iter(run_checks()))
    assert (check.name, check.status) == (DISTRIBUTION, Status.WARNING)
    assert "another project's" in check.found
    assert f"pip install {DISTRIBUTION}" in check.advice


def test_public_tables_are_found_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERSTUDY_DATA", str(tmp_path / "absent"))
    assert run(["doctor"]) == 0
    assert "warning  public tables" in (shown := capsys.readouterr().out)
    assert "UNDERSTUDY_DATA names no folder. Create the folder" in shown
    entry, *others = (entry for entry in map(describe_table, table_names()) if entry.files)
    total = 1 + len(others)
    for file in entry.files:
        (tmp_path / file.name).write_bytes(b"not the table")
    monkeypatch.setenv("UNDERSTUDY_DATA", str(tmp_path))
    assert run(["doctor"]) == 0
    assert f"1 of {total} in the folder of UNDERSTUDY_DATA: {entry.name}\n" in capsys.readouterr().out
    assert run(["doctor", "--checksums"]) == 0
    assert f"0 of {total} in the folder of UNDERSTUDY_DATA; not as published: {entry.name}. " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        (
            "0::/job/step\n",
            {"job/memory.max": "1073741824\n", "job/step/memory.max": "max\n", "job/cpu.max": "50000 1"},
        ),
        ("4:memory:/job\n1:cpu:/job\n", {"memory/job/memory.limit_in_bytes": "1073741824\n"}),
    ],
)
def test_limits_of_a_container_count(groups: str, files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        (tmp_path / "sys/fs/cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/fs/cgroup" / name).write_text(text)
    assert usable_memory(tmp_path) == 2**30


def test_a_quota_is_a_number_of_cores(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("50000 100000\n")
    assert usable_cores(tmp_path) == 0.5


def test_every_extra_has_a_purpose_and_is_documented() -> None:
    extras = set(PROJECT["optional-dependencies"]) - {"all"}
    assert set(EXTRAS) == extras
    table = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/install.md").read_text(), flags=re.MULTILINE)
    assert {name for cell in table for name in re.findall(r"`(\w+)`", cell)} == extras | {"all"}


def test_all_is_every_extra_but_those_of_clusters() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    names = everything.removeprefix("understudy-dp[").removesuffix("]").split(",")
    assert sorted(names) == sorted(set(extras) - {"all", "ray", "spark"})
