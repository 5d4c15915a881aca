"""Writes the generated parts of `docs/papers/*.md` from committed results: no experiment is run.

python benchmarks/papers/pages.py            # writes the pages
python benchmarks/papers/pages.py --check    # exits with 1 if one of them is not up to date
"""

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.papers.rows import table_of  # noqa: E402

PAGES, IMAGES = ROOT / "docs" / "papers", ROOT / "docs" / "images"
PAPERS = ("pgb", "quail", "bayesgan", "dpgan", "autogan")
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def make_pages() -> Iterator[tuple[Path, str]]:
    """Every page whose paper has a summary, with its content."""
    for name in PAPERS:
        page = PAGES / f"{name}.md"
        if page.exists() and (ROOT / "benchmarks/papers" / name / "summary.py").exists():
            yield page, fill(page.read_text(encoding="utf-8"), results_of(name))


def results_of(name: str) -> str:
    """The table of a paper, and below it verdicts and pictures that come from the same results."""
    summary = importlib.import_module(f"benchmarks.papers.{name}.summary")
    parts = [table_of(summary.rows())]
    parts += summary.tables() if hasattr(summary, "tables") else []
    verdicts = summary.verdicts() if hasattr(summary, "verdicts") else []
    if verdicts:
        parts.append("\n".join(f"- **{claim}** {verdict}" for claim, verdict in verdicts))
    shown = summary.pictures() if hasattr(summary, "pictures") else {}
    parts += [f"![{title}](../images/{name})" for name, title in shown.items() if (IMAGES / name).exists()]
    return "\n\n".join(parts)


def fill(page: str, generated: str) -> str:
    """The page with another generated part.

    >>> fill(f"above\\n{BEGIN}\\nold\\n{END}\\nbelow", "new").splitlines()[3:6:2]
    ['new', '<!-- results: end -->']
    """
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{generated}\n\n{END}{rest.split(END)[1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    old = [path for path, content in make_pages() if path.read_text(encoding="utf-8") != content]
    for path, content in [] if check else list(make_pages()):
        path.write_text(content, encoding="utf-8")
    for path in old:
        print(f"{path.relative_to(ROOT)}: {'not up to date' if check else 'written'}")
    return int(check and bool(old))


if __name__ == "__main__":
    sys.exit(main())
