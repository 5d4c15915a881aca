"""The DP-auto-GAN paper's experiments, in small: a cell runs on a made table, and pages are made of what is kept."""

import math
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import understudy as us
from benchmarks.papers.autogan import adult, binary, core
from benchmarks.papers.published import AUTOGAN_ADULT, AUTOGAN_MIMIC, quail_dpgan


@pytest.mark.slow
def test_a_cell_of_a_binary_table_runs_and_fills_its_page() -> None:
    draw = np.random.default_rng(0)
    ill = draw.random(400) < 0.4
    rows = pa.table({f"c{n}": (draw.random(400) < 0.1 + 0.05 * n) | (ill & (n % 2 == 0)) for n in range(6)})
    public = binary.declared(rows.slice(0, 300), rows.slice(300))
    cell = core.Cell("made", "autogan", binary.SMALL, math.inf, 0)
    release = us.fit(public.train, cell.expression, cell.guarantee, schema=public.schema, seed=0)
    found = binary.score(cell, public, release.sample_arrow(seed=0))
    assert found["scores"]["dwp_correlation"] > 0.9  # held by exact histograms here
    line = {**vars(cell), **found, "machine": "here", "day": "today"}
    page = binary.page([line])
    assert "made, not private, autogan" in page
    points = found["details"]["proportions"]
    assert core.scatter({"a": {"": points}}, "proportions", diagonal=True).endswith("</svg>\n")


def test_every_epsilon_of_the_paper_is_a_cell_of_five_seeds() -> None:
    cells = adult.CELLS["paper"]
    for method in ("autogan", "published", "unsound", "dpgan"):
        for epsilon in (1.5, 1.0, 0.8):
            assert sum(cell.method == method and cell.epsilon == epsilon for cell in cells) == 5
    assert {cell.method for cell in cells} >= set(core.BASELINES)
    assert {cell.epsilon for cell in binary.CELLS["paper"]} >= {3.11865, 1.27655, 0.94145}
    for each in (adult, binary):
        assert len({cell.key for cell in each.CELLS["paper"]}) == len(each.CELLS["paper"])


def test_certificates_of_the_published_encoder_state_no_epsilon() -> None:
    schema = us.Schema(columns=(us.Column(name="a", kind="boolean", nullable=False),), rows=100)
    release = us.fit(pa.table({"a": [True, False] * 50}), "independent", us.Guarantee(1.0, 1e-5), schema=schema, seed=0)
    for method, epsilon in (("published", release.statement.epsilon), ("unsound", math.inf)):
        cell = core.Cell("adult", method, adult.METHODS[method], 1.0, 0)
        stated = adult.amend(cell, release)
        assert stated.statement.epsilon == epsilon <= adult.stated_epsilon(vars(cell))
        assert ("epsilon is infinite, and there is no guarantee" in stated.certificate) == (method == "unsound")


def test_r_squared_below_zero_counts_as_zero() -> None:
    points = [["age", "r2", 0.3, -20.0], ["sex", "f1", 0.7, 0.5]]
    assert core.floored_distance(points) == core.floored_distance([["age", "r2", 0.3, 0.0], points[1]])
    assert core.floored_distance(points) == pytest.approx((0.3 + 0.2) / 2 / math.sqrt(2))


def test_shuffled_columns_keep_their_values_and_lose_their_dependence() -> None:
    numbers = np.arange(500)
    public = binary.declared(
        pa.table({"a": numbers % 2 == 0, "b": numbers % 2 == 0}), pa.table({"a": [True], "b": [True]})
    )
    shuffled = core.independent_columns(public, 0)
    both = [np.asarray(shuffled.column(name).to_pylist(), dtype=float) for name in ("a", "b")]
    assert [each.mean() for each in both] == [0.5, 0.5]
    assert abs(np.corrcoef(both[0], both[1])[0, 1]) < 0.2


def test_published_settings() -> None:
    assert quail_dpgan(21).critic_widths == (14, 7)
    assert (AUTOGAN_ADULT.autoencoder_widths, AUTOGAN_ADULT.code_size) == ((60,), 15)
    assert (AUTOGAN_ADULT.loss, AUTOGAN_ADULT.fake_term, AUTOGAN_ADULT.weight_clip) == ("wgan", "paired", 0.01)
    assert AUTOGAN_MIMIC.encoder == "random"
