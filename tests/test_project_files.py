"""Files at the top of the repository: the citation, the recipe of the image, and what may get into it."""

import re

import yaml

from tests.conftest import ROOT
from understudy import __version__

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def _instructions(text: str) -> list[tuple[str, str]]:
    """Instructions of a Dockerfile with their arguments, continued lines joined."""
    joined = re.sub(r"\\\n", " ", text)
    lines = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip() and not line.startswith("#")]
    return [(line[0], line[1]) for line in lines]


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == __version__
    assert citation["license"] == "MIT"
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_the_image_is_built_without_a_network_and_runs_without_rights() -> None:
    instructions = _instructions(DOCKERFILE)
    stages = [arguments for name, arguments in instructions if name == "FROM"]
    assert len(stages) == 2
    assert all(re.match(r"python:\$\{PYTHON\}-slim-\w+", stage) for stage in stages)
    runs = " ".join(arguments for name, arguments in instructions if name == "RUN")
    assert "--no-index" in runs
    assert "--require-hashes" in runs
    assert not re.search(r"https?:|apt-get|curl|wget", runs)
    last = dict(instructions[[name for name, _ in instructions].index("FROM", 3) :])
    assert last["USER"] not in ("root", "0")
    assert last["VOLUME"] == last["WORKDIR"] == "/data"
    assert last["ENTRYPOINT"] == '["understudy"]'


def test_the_image_gets_nothing_but_the_wheelhouse() -> None:
    """A private table in the folder of a clone must not be sent to the program that builds images."""
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules == ["*", "!wheelhouse"]


def test_the_image_has_the_python_of_the_tested_versions() -> None:
    """A wheelhouse of the development environment fits the image by default."""
    (default,) = (arguments for name, arguments in _instructions(DOCKERFILE) if name == "ARG")
    assert re.fullmatch(r"PYTHON=3\.\d+", default)
    assert f">={default.removeprefix('PYTHON=')}" in (ROOT / "pyproject.toml").read_text()
