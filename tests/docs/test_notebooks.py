"""The notebooks are stored without outputs. `make docs` and `make notebooks` run them."""

import json

import pytest

from tests.docs.pages import ROOT

NOTEBOOKS = sorted(ROOT.glob("docs/notebooks/*.ipynb"))


def test_six_notebooks_are_listed():
    listed = (ROOT / "docs" / "notebooks" / "index.md").read_text().split()
    assert len(NOTEBOOKS) == 6
    assert all(notebook.stem in listed for notebook in NOTEBOOKS)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_no_outputs_are_stored(notebook):
    """Outputs could hold rows, and differ from run to run."""
    for cell in json.loads(notebook.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
