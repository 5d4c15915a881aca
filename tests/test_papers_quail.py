"""The QUAIL paper's experiments, in small: each runs, and says what it claims to say."""

import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from understudy.synthesizers import express

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.papers import experiment, methods, rows
from benchmarks.papers.quail import as_published, core, grid, regression, scales, splits, summary, tables, views
from benchmarks.simulated import made_classes, made_regression

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


def test_f1_and_auc_of_perfect_and_of_constant_predictions() -> None:
    wanted = np.array(["a", "b", "c", "a"])
    perfect = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=float)
    assert core.auc_of(wanted, perfect, ["a", "b", "c"]) == 1
    assert core.auc_of(wanted, np.ones((4, 3)), ["a", "b", "c"]) == 0.5
    assert core.auc_of(wanted, perfect, ["a", "b", "c", "d"][:3]) == 1


@pytest.mark.slow
def test_fractions_of_the_budget_in_small() -> None:
    lines = list(experiment.run_cells(splits.EXPERIMENT, splits.CELLS["smoke"]))
    alone, quail = (line["scores"]["f1"] for line in lines)
    assert 0 < quail <= 1
    page = splits.page(lines)
    assert f"{alone - quail:+.3f}" in page
    panels = {"independent": splits.differences(lines, "classes_1500", "independent")}
    down, across = ["1", "3", "10"], [f"{fraction:g}" for fraction in splits.FRACTIONS]
    assert f"{alone - quail:+.3f}" in core.heat_svg(panels, down, across, "title")


@pytest.mark.slow
def test_the_learner_inside_is_scored_as_alone() -> None:
    lines = list(experiment.run_cells(scales.EXPERIMENT, scales.CELLS["smoke"]))
    scores = {line["method"]: line["scores"] for line in lines}
    assert scores["quail(independent)"]["inside"] == pytest.approx(scores[core.ALONE]["f1"], abs=0.25)
    assert {"f1", "auc", "inside"} == set(scores["quail(independent)"])


def test_a_number_in_small() -> None:
    lines = list(experiment.run_cells(regression.EXPERIMENT, regression.CELLS["smoke"]))
    scores = {line["method"]: line["scores"] for line in lines}
    assert scores["real rows"]["rmse"] < scores["quail(independent)"]["rmse"] < scores["real rows"]["mean"] * 1.2
    assert "RMSE" in regression.page(lines)
    assert made_regression(50).train.num_columns == 8 + 40 + 1


def test_variation_between_learners_and_between_synthesizers() -> None:
    """A grid of sums of two effects: each explains its part, and together all."""
    learners, inner = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 0.1, 0.2, 0.3, 0.4])
    first, second = grid.explained(learners[:, None] + inner[None, :])
    assert first + second == pytest.approx(1)
    assert first / second == pytest.approx(learners.var() / inner.var())
    assert grid.explained(inner[None, :] + np.zeros((4, 1)))[0] == pytest.approx(0)


def test_the_paper_repeats_ten_times_with_its_five_synthesizers() -> None:
    cells = splits.CELLS["paper"]
    for inner in ("patectgan", "mwem", "dpctgan", "dpgan", "pategan"):
        for size in (10_000, 50_000):
            at = (f"classes_{size}", splits.label(inner, 0.9), 3.0)
            assert sum((cell.table, cell.method, cell.epsilon) == at for cell in cells) == 10
    assert sum(cell.method == "quail(patectgan)" for cell in scales.CELLS["paper"]) == 3 * 10


def test_the_ten_methods_as_published_have_the_noise_of_the_paper() -> None:
    """By themselves and inside QUAIL, as expressions that give the same methods again."""
    for known in as_published.METHODS.values():
        assert list(known) == list(summary.TEN)
        for name, method in known.items():
            assert methods.read(express(method)) == method
            inner: Any = method.inner if isinstance(method, us.Quail) else method
            noise = {"dpgan": 3.5, "dpctgan": 5.0}.get(name.removeprefix("quail(").removesuffix(")"))
            assert getattr(inner, "noise_multiplier", None) == noise
            assert getattr(inner, "vote_noise", getattr(inner, "noise", "laplace")) == "laplace"


@needs_tables
def test_sizes_of_the_methods_as_published_are_those_of_the_tables() -> None:
    for name, (num_rows, num_features) in as_published.SIZES.items():
        schema = as_published.load(name, 0).schema
        assert (schema.rows, sum(len(column.categories or ()) for column in schema.columns)) == (num_rows, num_features)


def test_a_size_without_results_of_quail_has_no_row_and_no_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner alone is run first, so a run that was cut short may have nothing else of a size."""
    method = splits.label("mwem", 0.5)
    lines = [
        {"table": f"classes_{size}", "method": name, "epsilon": 3.0, "seed": 0, "scores": {"f1": f1, "auc": 0.5}}
        for size, name, f1 in ((10_000, core.ALONE, 0.75), (10_000, method, 0.5), (40_000, core.ALONE, 0.75))
    ]
    (tmp_path / "quail_splits.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(rows, "RESULTS", tmp_path)
    assert splits.tables_of(lines) == ["classes_10000"]
    assert list(summary.pictures()) == ["quail_splits_10k.svg"]
    row = next(row for row in summary._split_rows() if "mwem inside" in row.what)
    assert (row.sound, row.seeds) == ("10,000 rows – / +0.250 / –", "1")


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
