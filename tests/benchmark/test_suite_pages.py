"""The pages of the suites show the committed results."""

import importlib.metadata
from pathlib import Path

import pytest

from benchmarks.suite_pages import RESULTS, SUITES, make_pages

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"


def test_generated_pages_are_up_to_date():
    """After a change of results or reports: python benchmarks/suite_pages.py.

    Other versions of matplotlib draw the same pictures with other bytes.
    """
    pinned = f"matplotlib=={importlib.metadata.version('matplotlib')}" in CONSTRAINTS.read_text().splitlines()
    made = dict(make_pages())
    for path, content in made.items():
        if path.suffix == ".svg" and not pinned:
            continue
        assert path.read_text() == content, f"{path.name} is not up to date: run benchmarks/suite_pages.py"
    pictures = {path for name in SUITES for path in (RESULTS / "images" / name).glob("*")}
    assert pictures == {path for path in made if path.suffix == ".svg"}


@pytest.mark.parametrize("name", SUITES)
def test_results_of_every_suite_are_there_and_small(name):
    path = RESULTS / "suites" / f"{name}.parquet"
    assert path.exists()
    assert path.stat().st_size < 1_000_000
