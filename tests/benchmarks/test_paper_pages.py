"""Pages of the papers show the committed results, one row for each table and figure."""

import re

import pytest

from benchmarks.papers import pages
from benchmarks.papers.rows import HEADER, Row, joined, mean, table_of

IDS = {
    "pgb": ("P1", "P1b", "P2", "P3", "P4", "P5", "P5a", "P5b", "P6", "P6a", "P6b", "P7", "P8", "P9"),
    "quail": tuple(f"Q{number}" for number in range(1, 15)),
    "bayesgan": ("B1", "B2"),
    "autogan": tuple(f"A{number}" for number in range(1, 8)),
}
"""Of all tables and figures of a paper."""


def test_generated_parts_are_up_to_date() -> None:
    """After a change of results: python benchmarks/papers/pages.py."""
    made = dict(pages.make_pages())
    assert {path.stem for path in made} >= set(IDS)
    for path, content in made.items():
        assert path.read_text() == content, f"{path.name} is not up to date: run benchmarks/papers/pages.py"


@pytest.mark.parametrize("name", IDS)
def test_every_table_and_figure_has_a_row(name: str) -> None:
    page = (pages.PAGES / f"{name}.md").read_text()
    generated = page.split(pages.BEGIN)[1].split(pages.END)[0]
    assert "| " + " | ".join(HEADER) + " |" in generated
    shown = {part for line in generated.splitlines() if line.startswith("| ") for part in line.split("|")[1].split(",")}
    assert {each.strip() for each in shown} >= set(IDS[name])


@pytest.mark.parametrize("name", IDS)
def test_pages_have_the_same_form(name: str) -> None:
    headings = re.findall(r"^## (.+)$", (pages.PAGES / f"{name}.md").read_text(), re.MULTILINE)
    assert {"Results", "Deviations"} <= set(headings)


def test_what_was_not_run_says_so() -> None:
    assert Row(id="A1", what="a figure").cells == ("A1", "a figure", "plot only", "–", "not run", "–", "–")
    row = Row(id="A2", what="another", published="0.5", sound=joined([mean([0.5, 0.6]), ""]), seeds="2", command="x.py")
    assert table_of([row]).splitlines()[2] == "| A2 | another | 0.5 | – | 0.550 / – | 2 | `x.py` |"
