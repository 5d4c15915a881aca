"""Files at the top of the repository: the citation, the recipe of the image, and what may get into it; and the name."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from distribution import coverage_table, dependency_tables, matrix
from tests.conftest import ROOT
from understudy import __version__
from understudy._version import DISTRIBUTION

DOCKERFILE = (ROOT / "Dockerfile").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PYTEST = PYPROJECT["tool"]["pytest"]["ini_options"]


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


def test_continuous_integration_runs_all_but_the_slow_tests() -> None:
    """Every marker names the target that runs its tests."""
    targets = dict(re.findall(r"^(\w+): .* run with make ([\w-]+)$", "\n".join(PYTEST["markers"]), flags=re.MULTILINE))
    left_out = set(re.findall(r"not (\w+)", PYTEST["addopts"]))
    assert set(targets) == left_out
    ran = re.findall(r"^make (.*)$", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE)
    made = {word for line in ran for word in line.split()}
    assert {marker for marker, target in targets.items() if target not in made} == {"slow"}
    assert {"check", "test", "docs", "papers"} <= made


def test_a_target_looks_where_the_tests_of_its_marker_are() -> None:
    """A target that names files or folders runs every file of tests with its marker."""
    commands = dict(
        re.findall(r"^([\w-]+): [^\n]*\n\t(\S+ -m pytest [^\n]*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )
    targets = dict(re.findall(r"^(\w+): .* run with make ([\w-]+)$", "\n".join(PYTEST["markers"]), flags=re.MULTILINE))
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    for marker, target in targets.items():
        places = [ROOT / word for word in commands.get(target, "").split() if word.startswith("tests/")]
        marked = [path for path, source in sources.items() if re.search(rf"\bpytest\.mark\.{marker}\b", source)]
        assert not places or marked
        assert not [path for path in marked if places and not {path, *path.parents} & {*places}], target


def test_continuous_integration_installs_what_tests_skip_without() -> None:
    """A browser, Java for Spark, and the programs of PostgreSQL, each looked for first."""
    script = (ROOT / ".ci" / "run").read_text()
    for program, package in {"chromium": "chromium", "java": "default-jre-headless", "initdb": "postgresql"}.items():
        assert f"command -v {program} " in script
        assert f"--no-install-recommends {package} " in script


def test_the_tables_of_dependencies_are_those_of_the_project_file() -> None:
    tables = dependency_tables.make_tables((ROOT / "pyproject.toml").read_text())
    page = dependency_tables.PAGE.read_text()
    assert dependency_tables.replace_tables(page, tables) == page, "Run: python distribution/dependency_tables.py"
    extras, groups = PYPROJECT["project"]["optional-dependencies"], PYPROJECT["dependency-groups"].values()
    listed = [*PYPROJECT["project"]["dependencies"], *extras, *(line for group in groups for line in group)]
    assert len(re.findall(r"^\| (?!.*job \|)[\w(]", tables, flags=re.MULTILINE)) == len(listed)
    with pytest.raises(ValueError, match="a comment that says its job"):
        dependency_tables.make_tables('dependencies = [  # core\n  "numpy>=2.0",\n]\n[project.scripts]\n')


def test_the_matrix_pins_every_lower_bound_and_its_tests_exist() -> None:
    pins = dict(line.split("==") for line in matrix.lower_bounds())
    assert {f"{name}>={version}" for name, version in pins.items()} >= set(PYPROJECT["project"]["dependencies"])
    assert set(matrix.EXTRAS) <= set(PYPROJECT["project"]["optional-dependencies"])
    assert all((ROOT / name).exists() for name in matrix.TESTS)


@pytest.mark.parametrize(("lines_run", "problems"), [(9800, 0), (9799, 1), (0, 1)])
def test_a_folder_below_its_minimum_is_named(lines_run: int, problems: int) -> None:
    def file(lines: int) -> dict:
        figures = {"covered_lines": lines, "num_statements": 10_000, "covered_branches": 1, "num_branches": 3}
        return {"summary": figures}

    files = {"src/understudy/privacy/noise/source.py": file(lines_run), "src/understudy/run/run.py": file(10_000)}
    folders = coverage_table.count_by_folder(files | {"src/understudy/api.py": file(0)})
    found = coverage_table.shortfalls(folders)
    assert [line.partition(":")[0] for line in found] == ["privacy/"] * problems
    assert coverage_table.make_table(folders).splitlines()[-1].startswith("| all | 30000 |")
    del files["src/understudy/run/run.py"]
    assert any(line.startswith("run/") for line in coverage_table.shortfalls(coverage_table.count_by_folder(files)))


def test_hooks_download_nothing() -> None:
    """They run what `make setup` installs."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [(each["repo"], hook["language"]) for each in hooks for hook in each["hooks"]] == [("local", "system")] * 2
    checks = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert checks is not None
    assert "ruff format" in checks[1]
    assert "ruff check" in checks[1]


ANOTHER_PROJECT = re.compile(r"understudy\\?\[\w|pip3? install(\s+-\S+)*\s+['\"]?understudy(?![\w-])")
"""The plain name where pip would take it for a distribution: that of other software."""


def test_what_pip_is_told_to_install_is_ours() -> None:
    assert PYPROJECT["project"]["name"] == DISTRIBUTION
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and (ROOT / name).suffix not in (".png", ".gz", ".zip"):
            text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
            assert (wrong := ANOTHER_PROJECT.search(text)) is None, f"{name}: {wrong}"


@pytest.mark.parametrize(
    "text", ["pip install {}", "pip install -U '{}==0.1'", "'{}[geo]'", 'pip install "{}[all]"', r"'{}\[geo\]'"]
)
def test_the_other_spelling_is_found(text: str) -> None:
    assert ANOTHER_PROJECT.search(text.format("understudy"))
    assert not ANOTHER_PROJECT.search(text.format(DISTRIBUTION))
    assert not ANOTHER_PROJECT.search(text.format("understudy_dp-0.1.0-py3-none-any.whl"))


IGNORED = re.compile(r"# type: ignore(\[[\w, -]+\])?(  # \S.*)?$")


UNEXPLAINED = ROOT / "tests" / "encoding"
"""The one folder of tests that has not given its reasons yet."""


def test_a_type_that_is_not_checked_has_its_code_and_a_reason() -> None:
    """The reason is a comment beside it, or in the line above."""
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    for path in sorted(each for each in files if UNEXPLAINED not in each.parents and each != Path(__file__)):
        lines = ["", *path.read_text(encoding="utf-8").splitlines()]
        for number, line in enumerate(lines):
            if "type: ignore" in line:
                found = IGNORED.search(line)
                said = found is not None and found[1] and (found[2] or "# " in lines[number - 1])
                assert said, f"{path.relative_to(ROOT)}, line {number}: {line.strip()}"
