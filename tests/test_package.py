"""The package as a whole: its public names, its version, and how light its front door is."""

import ast
import importlib
import importlib.metadata
import inspect
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import understudy
import understudy as us
from understudy._version import DISTRIBUTION
from understudy.cli import run
from understudy.synthesizers import SYNTHESIZERS, describe_methods, synthesizer_class

HEAVY = (
    "jax",
    "numpy",
    "scipy",
    "pandas",
    "polars",
    "pyarrow",
    "duckdb",
    "opendp",
    "dp_accounting",
    "mbi",
    "equinox",
    "rich",
)

PROBE = """
import json, sys
import typer
from understudy.cli import run
from understudy.cli.app import app

def paths(command, path=()):
    yield path
    for name, each in getattr(command, "commands", {{}}).items():
        yield from paths(each, (*path, name))

commands = list(paths(typer.main.get_command(app)))
runs = [[*path, "--help"] for path in commands] + [["methods"], ["--version"]]
codes = [run(list(arguments)) for arguments in runs]
heavy = [name for name in {heavy!r} if name in sys.modules]
print(json.dumps([commands, codes, heavy]), file=sys.stderr)
"""


def test_public_names_load() -> None:
    assert not [name for name in understudy.__all__ if getattr(understudy, name) is None]
    assert set(understudy.__all__) <= set(dir(understudy))


def test_public_names_have_help_with_an_example() -> None:
    """The examples run with the doctests of `src`."""
    texts = {name: inspect.getdoc(getattr(understudy, name)) or "" for name in understudy.__all__[1:]}
    firsts = {name: text.partition("\n")[0] for name, text in texts.items()}
    assert not {name: first for name, first in firsts.items() if not first.endswith((".", ":")) or len(first) <= 20}
    assert not [name for name, text in texts.items() if "\n>>> " not in text]


def test_every_method_is_a_public_name() -> None:
    for place in SYNTHESIZERS.values():
        module, _, name = place.partition(":")
        assert getattr(understudy, name).__module__ == module
        assert name in understudy.__all__


def _imported_names(nodes: Sequence[ast.stmt]) -> dict[str, tuple[str, str]]:
    """Each with the module and the name behind it."""
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: (str(node.module), alias.name) for node in imports for alias in node.names}


def test_type_checkers_see_the_names_that_load() -> None:
    names = _imported_names(ast.parse(Path(f"{understudy.__file__}i").read_text()).body)
    del names["__version__"]
    assert sorted(names) == understudy.__all__[1:] == sorted(understudy.__all__[1:])
    for public, (module, name) in names.items():
        assert getattr(importlib.import_module(module), name) is getattr(understudy, public)


@pytest.fixture
def survey(tmp_path: Path) -> tuple[pd.DataFrame, Path]:
    """A small table of people, and its schema as a file."""
    table = pd.DataFrame({"income": ["low", "high"] * 100, "age": [20, 40, 60, 80] * 50})
    path = tmp_path / "people.toml"
    path.write_text(
        '[table]\nrows = 200\n[columns.income]\nkind = "categorical"\ncategories = ["low", "high"]\n'
        '[columns.age]\nkind = "integer"\nbounds = [0, 100]\n'
    )
    return table, path


def test_the_front_door(survey: tuple[pd.DataFrame, Path], tmp_path: Path) -> None:
    """Table, method, guarantee and schema in; a release, synthetic rows, a statement and scores out."""
    table, path = survey
    method = us.DPCTGAN(steps=2, generator_widths=(8, 8), critic_widths=(8,), latent=4)
    guarantee = us.Guarantee(epsilon=1.0, delta=1e-6)
    release = us.fit(table, method, guarantee, schema=us.Schema.read(path))
    fake = release.sample(100)
    assert isinstance(fake, pd.DataFrame)
    assert list(fake) == list(table)
    assert len(fake) == 100
    assert release.statement.is_private
    assert 0.9 < release.statement.epsilon <= 1.0
    assert release.statement.method == "dpctgan(steps=2, critic_widths=[8], latent=4, generator_widths=[8, 8])"
    release.save(tmp_path / "release")
    again = us.Release.load(tmp_path / "release")
    assert again.statement == release.statement
    pd.testing.assert_frame_equal(again.sample(20, seed=1), release.sample(20, seed=1))
    scores = us.evaluate(table, fake, schema=us.Schema.read(path), target="income", holdout=table[:50], effort="quick")
    assert scores.to_json()["format"]


@pytest.mark.parametrize("kind", [pl.from_pandas, lambda table: pa.Table.from_pandas(table, preserve_index=False)])
def test_the_kind_of_frame_that_goes_in_comes_out(survey: tuple[pd.DataFrame, Path], kind: Any) -> None:
    table, path = survey
    given = kind(table)
    release = us.fit(given, us.Independent(), us.Guarantee(epsilon=1.0), schema=us.Schema.read(path))
    assert type(release.sample(10)) is type(given)


def test_wrappers_nest_as_they_are_written(survey: tuple[pd.DataFrame, Path]) -> None:
    """`--method "quail(aim, target=income)"` and `us.Quail(us.AIM(), target="income")` are one method, as is any other
    expression; `--set` applies to the outermost."""
    from understudy.synthesizers import express, read_method

    boosted = us.Boosted(us.DPGAN(steps=2000), rounds=400)
    assert read_method("boosted(dpgan(steps=2000), rounds=400)") == boosted
    assert express(boosted) == "boosted(dpgan(steps=2000))"  # 400 rounds are the default
    assert read_method("boosted(dpgan)", {"rounds": 20}) == us.Boosted(us.DPGAN(), rounds=20)
    quail = us.Quail(us.AIM(), target="income")
    assert read_method("quail(aim, target=income)") == quail
    schema = us.Schema.read(survey[1])
    around = us.Quail(us.MST(), target="income")
    assert us.plan(schema, around, us.Guarantee(1.0)) == us.plan(schema, express(around), us.Guarantee(1.0))


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        understudy.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_version_is_that_of_the_distribution() -> None:
    assert understudy.__version__ == importlib.metadata.version(DISTRIBUTION)


def test_help_and_methods_load_nothing_heavy() -> None:
    """A fresh interpreter that shows every help page and the methods has loaded no array, table
    or privacy library, which would take seconds."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(heavy=HEAVY)], capture_output=True, text=True, timeout=60, check=True
    )
    commands, codes, heavy = json.loads(done.stderr)
    assert {("synth",), ("evaluate",), ("schema", "draft")} <= set(map(tuple, commands))
    assert codes == [0] * len(codes)
    assert heavy == []
    assert "synth" in done.stdout
    assert "boosted " in done.stdout


def test_a_process_ends_in_silence() -> None:
    """JAX keeps functions until the end; if these name DuckDB's types, DuckDB prints pages about them."""
    program = "import understudy as us, understudy.api; us.GEM()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(("words", "expected"), [("eval", "evaluate"), ("fit --method aut", "auto")])
def test_the_shell_completes_commands_and_methods(
    words: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the shell's script asks for, as typer reads it from the environment."""
    asked = {"COMP_WORDS": f"understudy {words}", "COMP_CWORD": str(len(words.split()))}
    for name, value in {"_UNDERSTUDY_COMPLETE": "complete_bash", **asked}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        run([])
    assert expected in capsys.readouterr().out.split()


def test_the_first_lines_of_methods_are_those_of_their_classes() -> None:
    """`understudy methods` reads them from the source, without importing it."""
    for name, line in describe_methods():
        assert line == (inspect.getdoc(synthesizer_class(name)) or "").splitlines()[0]
