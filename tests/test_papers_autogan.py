"""The DP-auto-GAN paper's experiments, in small: a cell runs on a made table, and pages are made of what is kept."""

import math
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.papers.autogan import adult, binary, core
from benchmarks.papers.published import AUTOGAN_ADULT, AUTOGAN_MIMIC, quail_dpgan


@pytest.mark.slow
def test_a_cell_of_a_binary_table_runs_and_fills_its_page() -> None:
    draw = np.random.default_rng(0)
    ill = draw.random(400) < 0.4
    rows = pa.table({f"c{n}": (draw.random(400) < 0.1 + 0.05 * n) | (ill & (n % 2 == 0)) for n in range(6)})
    cell = core.Cell("made", "autogan", binary.SMALL, math.inf, 0)
    found = binary.judged(cell, binary.declared(rows.slice(0, 300), rows.slice(300)), predict=False)
    assert found["scores"]["dwp_correlation"] > 0.9  # held by exact histograms here
    line = {**vars(cell), **found, "machine": "here", "day": "today"}
    page = binary.page([line])
    assert "made, epsilon inf, autogan" in page
    assert core.scatter({"a": {"": found["details"]["shares"]}}, "shares", diagonal=True).endswith("</svg>\n")


def test_every_epsilon_of_the_paper_is_a_cell() -> None:
    cells = {(cell.method, cell.epsilon) for cell in adult.CELLS["paper"]}
    assert {("autogan", epsilon) for epsilon in (1.5, 1.0, 0.8)} <= cells
    assert {("dpgan", epsilon) for epsilon in (1.5, 1.0, 0.8)} <= cells
    assert len({cell.key for cell in adult.CELLS["paper"]}) == len(adult.CELLS["paper"])


def test_published_settings() -> None:
    assert quail_dpgan(21).critic_widths == (14, 7)
    assert (AUTOGAN_ADULT.autoencoder_widths, AUTOGAN_ADULT.code_size) == ((60,), 15)
    assert (AUTOGAN_ADULT.loss, AUTOGAN_ADULT.fake_term, AUTOGAN_ADULT.weight_clip) == ("wgan", "paired", 0.01)
    assert AUTOGAN_MIMIC.encoder == "random"
