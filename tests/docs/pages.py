"""A page of the documentation as a test: its blocks are run in order, in a folder of their own.

| block | what happens |
|---|---|
| `sh` | every command is run and must succeed |
| `console` | every line after `$ ` is run; the lines below it, if any, are its output, `...` standing for anything |
| `python` | run in this process, all blocks of a page in one namespace; with `>>>` as a doctest |
| any, after `<!-- file: NAME -->` | written to that file |
| any, after `<!-- not run: REASON -->` | left out; the reasons are listed in test_pages.py |
| `text` and every other language | shown, not run |
"""

import dataclasses
import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN = ("sh", "console", "python")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

_BLOCK = re.compile(
    r"(?:^<!-- (?P<kind>file|not run): (?P<note>.*?) -->\n)?"
    r"^```(?P<language>\{[a-z-]+\}|[a-z]*)[^\n`]*\n(?P<text>.*?)^```$",
    flags=re.MULTILINE | re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block, the line it begins in, and what the comment above it says."""

    language: str
    text: str
    line: int
    file: str | None = None
    not_run: str | None = None


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(
            language=found["language"],
            text=found["text"],
            line=text.count("\n", 0, found.start()) + 1,
            file=found["note"] if found["kind"] == "file" else None,
            not_run=found["note"] if found["kind"] == "not run" else None,
        )
        for found in _BLOCK.finditer(text)
    ]


def is_run(page: Path) -> bool:
    """Whether a page has anything to run."""
    return any(block.language in RUN and block.not_run is None for block in blocks_of(page))


def commands_of(page: Path) -> list[str]:
    """The commands of all `sh` blocks."""
    return [command for block in blocks_of(page) if block.language == "sh" for command in _commands(block.text)]


def run_page(page: Path) -> None:
    """Runs the blocks of a page in the current folder; an AssertionError names the line that failed."""
    names: dict[str, object] = {}
    for block in blocks_of(page):
        place = f"{page.name}:{block.line}"
        if block.not_run is not None:
            continue
        if block.file is not None:
            Path(block.file).write_text(block.text)
        elif block.language == "sh":
            for command in _commands(block.text):
                _run(command, place)
        elif block.language == "console":
            for command, shown in _session(block.text):
                _compare(_run(command, place), shown, f"{place}: {command}")
        elif block.language == "python":
            _run_python(block.text, names, place)


def _commands(text: str) -> list[str]:
    """The lines of a block, those that end in a backslash joined with the next."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _session(text: str) -> list[tuple[str, str]]:
    """Commands of a session, each with the output shown below it."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    joined = [part.replace("\\\n", " ") for part in parts]
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in joined]


def _run(command: str, place: str) -> str:
    """The output of a command and its messages, as a terminal shows them."""
    tools = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([tools, os.environ.get("PATH", "")]),
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": "100",
    }
    ran = subprocess.run(
        ["bash", "-c", command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert ran.returncode == 0, f"{place}: {command}\nexit code {ran.returncode}\n{ran.stdout}"
    return ran.stdout


def _compare(got: str, shown: str, place: str) -> None:
    """Spaces of every kind count as one: doctest itself does not know those that do not break."""
    if shown.strip():
        want, have = (" ".join(text.split()) for text in (shown, got))
        assert doctest.OutputChecker().check_output(want, have, FLAGS), f"{place}\nshown:\n{shown}\nbut was:\n{got}"


def _run_python(text: str, names: dict[str, object], place: str) -> None:
    if ">>> " not in text:
        exec(compile(text, place, "exec"), names)
        return
    example = doctest.DocTestParser().get_doctest(text, {}, place, place, 0)
    example.globs = names  # shared with the other blocks of the page
    lines: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(example, out=lines.append, clear_globs=False)
    assert not runner.failures, "".join(lines)
