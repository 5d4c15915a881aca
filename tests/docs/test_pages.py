"""Every command and every line of Python in README and docs/ is run; see pages.py for the rules.

Pages that take longer are marked `docs`: `make docs-test` runs all.
"""

import time
from pathlib import Path

import pytest

from tests.docs.files import write_files
from tests.docs.pages import ROOT, RUN, blocks_of, is_run, run_page

GENERATED = {ROOT / "docs" / "reference" / name for name in ("commands.md", "python.md")}
PAGES = [page for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))) if page not in GENERATED]

QUICK = {"README.md", "docs/schema.md", "docs/tables.md", "docs/privacy.md", "docs/certificate.md"}
"""Run with the default suite."""

REASONS = {
    "it installs": ("README.md", "docs/install.md"),
    "it needs a PostgreSQL server": ("docs/tables.md", "docs/howto/files.md"),
    "the program is killed from outside": ("docs/resume.md",),
}
"""Why some blocks are not run, and where that is allowed."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=[] if name_of(page) in QUICK else [pytest.mark.docs])
        for page in PAGES
        if is_run(page)
    ],
)
def test_what_a_page_shows_works(page, tmp_path, monkeypatch):
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    started = time.monotonic()
    run_page(page)
    print(f"{name_of(page)}: {time.monotonic() - started:.0f} s")


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
        "```console\n$ echo one\ntwo\n```\n": "but was",
        "```python\n>>> 1 + 1\n3\n\n```\n": "Expected",
        "<!-- file: a.txt -->\n```text\nhere\n```\n\n```sh\ntest -e b.txt\n```\n": "b.txt",
    }
    for text, message in pages.items():
        (tmp_path / "page.md").write_text(text)
        with pytest.raises(AssertionError, match=message):
            run_page(tmp_path / "page.md")
