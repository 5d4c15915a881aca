"""Every command and every line of Python in README and docs/ is run; see pages.py for the rules.

A few pages are run with the default suite, most with `make docs-test` (marked `docs`), those that train networks for
minutes with `make slow`; `make docs-test` checks that the commands of these can be planned.
"""

import itertools
import shlex
import time
from pathlib import Path

import pytest

from tests.docs.files import write_files
from tests.docs.pages import ROOT, RUN, blocks_of, commands_of, is_run, run_page
from understudy.cli import run

GENERATED = {ROOT / "docs" / "reference" / name for name in ("commands.md", "python.md")}
PAGES = [page for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))) if page not in GENERATED]

QUICK = {"docs/schema.md", "docs/howto/schema.md", "docs/certificate.md"}
"""Run with the default suite."""

NETWORKS = "autogan bayesgan boosted dpctgan dpgan drs gem pategan quail selected"
TRAINED = {f"docs/methods/{name}.md" for name in NETWORKS.split()}
"""Run with the slow tests."""

REASONS = {
    "it installs": ("README.md", "docs/install.md", "docs/howto/closed_environments.md"),
    "it needs a PostgreSQL server": ("docs/tables.md", "docs/howto/files.md"),
    "the program is killed from outside": ("docs/resume.md",),
    "it downloads": ("docs/howto/benchmark.md",),
    "it needs Spark": ("docs/howto/spark.md",),
    "it serves until it is stopped": ("docs/howto/studio.md",),
}
"""Why some blocks are not run, and where that is allowed."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def marks_of(page: Path) -> list[pytest.MarkDecorator]:
    if name_of(page) in TRAINED:
        return [pytest.mark.slow]
    return [] if name_of(page) in QUICK else [pytest.mark.docs]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=name_of(page), marks=marks_of(page)) for page in PAGES if is_run(page)],
)
def test_what_a_page_shows_works(page, tmp_path, monkeypatch):
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    started = time.monotonic()
    run_page(page)
    print(f"{name_of(page)}: {time.monotonic() - started:.0f} s")


@pytest.mark.docs
@pytest.mark.parametrize("page", sorted(TRAINED))
def test_what_takes_minutes_can_be_planned(page, tmp_path, monkeypatch):
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    for words in map(shlex.split, commands_of(ROOT / page)):
        given = dict(itertools.pairwise(words))
        schema = given["plan"] if words[1] == "plan" else given["--schema"]
        options = [
            word for name in ("--epsilon", "--method", "--target") if name in given for word in (name, given[name])
        ]
        assert run(["plan", schema, *options]) == 0


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_say_what_they_are(page):
    """A command in a block without a language would be shown untested."""
    for block in blocks_of(page):
        assert block.language, f"{name_of(page)}:{block.line} has no language: sh, console, python, toml, json or text"
        if block.not_run is not None:
            assert name_of(page) in REASONS.get(block.not_run, ()), f"{name_of(page)}:{block.line}: {block.not_run}"
        if block.language not in RUN and block.file is None:
            assert "understudy " not in _first_words(block.text), f"{name_of(page)}:{block.line} shows a command"


def _first_words(text: str) -> str:
    return "\n".join(line.lstrip("$ ")[:11] for line in text.splitlines())


def test_a_wrong_command_or_output_is_found(tmp_path, monkeypatch):
    """The check itself: each of these pages must fail."""
    monkeypatch.chdir(tmp_path)
    pages = {
        "```sh\nfalse\n```\n": "exit code 1",
        "```console\n$ printf '5\\u00a0%% of 9\\n'\n5 % of 9\n$ false\n```\n": "exit code 1",  # only the last one fails
        "```console\n$ echo one\ntwo\n```\n": "but was",
        "```python\n>>> 1 + 1\n3\n\n```\n": "Expected",
        "<!-- file: a.txt -->\n```text\nhere\n```\n\n```sh\ntest -e b.txt\n```\n": "b.txt",
    }
    for text, message in pages.items():
        (tmp_path / "page.md").write_text(text)
        with pytest.raises(AssertionError, match=message):
            run_page(tmp_path / "page.md")
