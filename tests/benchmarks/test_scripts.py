"""Every script of `benchmarks/` says how it is used, also where there is no data."""

import doctest
import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "benchmarks").rglob("*.py")
    if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
    and path.parent.name != "adapters"  # these run in the environments of other packages
)
EXAMPLES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "benchmarks").rglob("*.py")
    if "    >>> " in path.read_text(encoding="utf-8")
)


@pytest.fixture(autouse=True)
def without_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("UNDERSTUDY_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_scripts_are_found() -> None:
    assert {"benchmarks/utility.py", "benchmarks/papers/pgb/titanic.py"} <= set(SCRIPTS)
    assert len(SCRIPTS) > 25


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_needs_no_data(script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In this process, where the libraries are imported once."""
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    monkeypatch.setattr(sys, "path", [*sys.path])  # scripts add folders to it
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    assert not ended.value.code
    assert capsys.readouterr().out.startswith("usage: ")


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_in_docstrings_are_right(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


@pytest.mark.docs
@pytest.mark.parametrize("script", SCRIPTS)
def test_help_is_shown_from_any_folder(script: str, tmp_path: Path) -> None:
    """As people call it: in a process of its own, with nothing on the path."""
    command = [sys.executable, str(ROOT / script), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.match("usage: ", done.stdout)
