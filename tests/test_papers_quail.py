"""The QUAIL paper's experiments, in small: each runs, and says what it claims to say."""

import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.papers.quail import core, regression, splits, tables, views
from understudy.benchmark.simulators import made_classes, made_regression

needs_tables = pytest.mark.skipif(not os.environ.get("UNDERSTUDY_DATA"), reason="no folder of public tables")


def test_f1_is_of_the_rarer_class_or_the_mean_of_all() -> None:
    wanted, guesses = np.array(["a", "a", "a", "b"]), np.array(["a", "a", "b", "b"])
    assert core.f1_of(wanted, guesses, ["a", "b"]) == pytest.approx(2 / 3)
    assert core.f1_of(wanted, guesses, ["a", "b", "c"]) == pytest.approx((0.8 + 2 / 3 + 0) / 3)


def test_real_rows_score_well_and_shuffled_labels_do_not() -> None:
    train, test, schema = made_classes(1000, test_rows=500)
    assert test is not None
    assert schema.rows == train.num_rows == 1000
    real = core.tstr_f1(train, test, train, "label", models=("lr",))
    labels = np.random.default_rng(0).permutation(train.column("label").to_pylist())
    shuffled = train.set_column(7, "label", [labels.tolist()])
    assert real > 0.5 > 0.3 > core.tstr_f1(train, test, shuffled, "label", models=("lr",))


@pytest.mark.slow
def test_shares_of_the_budget_in_small() -> None:
    profile = splits.PROFILES["smoke"]
    results = [splits.cell(profile["rows"], "independent", 3.0, profile["shares"], 0)]
    assert 0 < results[0]["0.5"] <= 1
    page = splits.page(results, profile["shares"])
    assert f"{results[0]['alone'] - results[0]['0.5']:+.3f}" in page
    assert "fraction 0.5" in core.heat_svg(splits.grids(results, profile["shares"]), ["3"], ["fraction 0.5"], "title")


def test_a_number_in_small() -> None:
    result = regression.cell(1500, 4, 10.0, 0)
    assert result["real rows"] < result["quail(independent)"] < result["mean"] * 1.2
    assert "RMSE" in regression.page([result])
    assert made_regression(50).train.num_columns == 8 + 40 + 1


@pytest.mark.slow
def test_views_in_small() -> None:
    drawn = views.panels(500, 40, "independent")
    assert [points.shape for points, _ in drawn] == [(40, 2)] * 3
    picture = core.scatter_png(drawn, side=50)
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", picture[16:24]) == (150, 50)


@needs_tables
@pytest.mark.slow
def test_public_tables_in_small() -> None:
    result = tables.cell("car", "mwem", 1.0, 0)
    assert {"plain", "quail", "learner"} <= set(result)
    assert "1 of 1" in tables.page([result]) or "0 of 1" in tables.page([result])
