"""Lines and branches that the tests run, by folder, from the report of `coverage json`. `make coverage` runs it.

    python distribution/coverage_table.py build/coverage/coverage.json

The exit code is 1 if a folder that a guarantee rests on is below its minimum.
"""

import collections
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MINIMUM = {"privacy": 98.0, "run": 98.0}
"""Percent of the lines of these folders."""
FIGURES = ("covered_lines", "num_statements", "covered_branches", "num_branches")


def count_by_folder(files: Mapping[str, Any]) -> dict[str, collections.Counter[str]]:
    """The figures of every folder of the package, of the files beside them ("."), and of all.

    >>> summary = {"covered_lines": 3, "num_statements": 4, "covered_branches": 1, "num_branches": 2}
    >>> counts = count_by_folder({"src/understudy/privacy/accounting/ledger.py": {"summary": summary}})
    >>> counts["privacy"]["num_statements"]
    4
    """
    folders: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for name, content in files.items():
        inside = Path(name).parts[Path(name).parts.index("understudy") + 1 :]
        for folder in (inside[0] if len(inside) > 1 else ".", "all"):
            folders[folder].update({figure: content["summary"].get(figure, 0) for figure in FIGURES})
    return dict(folders)


def percent(part: int, whole: int) -> float:
    """Rounded down, so that 97.96 is not 98.

    >>> percent(9796, 10000), percent(0, 0)
    (97.9, 100.0)
    """
    return 1000 * part // whole / 10 if whole else 100.0


def make_table(folders: Mapping[str, collections.Counter[str]]) -> str:
    """A Markdown table, the least covered folder first and the total last."""
    lines = ["| folder | lines | lines run | branches | branches run |", "|---|---:|---:|---:|---:|"]
    shares = {name: percent(figures["covered_lines"], figures["num_statements"]) for name, figures in folders.items()}
    for name in sorted(folders, key=lambda name: (name == "all", shares[name], name)):
        figures = folders[name]
        branches = f"{figures['num_branches']} | {percent(figures['covered_branches'], figures['num_branches']):.1f}%"
        lines.append(f"| {name} | {figures['num_statements']} | {shares[name]:.1f}% | {branches} |")
    return "\n".join(lines)


def shortfalls(folders: Mapping[str, collections.Counter[str]]) -> list[str]:
    """One line for each folder below its minimum, or without any file."""
    empty: collections.Counter[str] = collections.Counter()
    found = []
    for name, least in MINIMUM.items():
        figures = folders.get(name, empty)
        share = percent(figures["covered_lines"], figures["num_statements"]) if figures["num_statements"] else 0.0
        if share < least:
            found.append(f"{name}/: {share:.1f}% of the lines were run, expected at least {least:.0f}%. Add tests.")
    return found


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folders = count_by_folder(json.loads(Path(sys.argv[1]).read_text())["files"])
    print(make_table(folders))
    if problems := shortfalls(folders):
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
