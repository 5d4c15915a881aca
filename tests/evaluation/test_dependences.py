"""Dependences that are kept or lost, rare ones too, against tables whose dependence is known."""

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tests.evaluation.encoded import encode
from understudy.evaluation.associations import FEWEST_ROWS, dependences
from understudy.evaluation.evaluate import evaluate


def hospital(num_rows: int, seed: int, *, linked: bool) -> dict[str, np.ndarray]:
    """One stay in 50 is in obstetrics; nine in ten of these patients are pregnant, and nobody else is."""
    draw = np.random.default_rng(seed)
    ward = draw.choice(["surgery", "medicine", "obstetrics"], num_rows, p=[0.5, 0.48, 0.02])
    pregnant = np.where((ward == "obstetrics") & (draw.random(num_rows) < 0.9), "yes", "no")
    age = np.where(ward == "surgery", 60.0, 40.0) + draw.normal(0, 5, num_rows)
    if not linked:
        pregnant = draw.permutation(pregnant)
    return {"ward": ward, "pregnant": pregnant, "age": age, "free": draw.random(num_rows)}


def test_a_lost_dependence_of_rare_values_is_named_with_its_fractions() -> None:
    result = dependences(*encode(hospital(5000, 0, linked=True), hospital(5000, 1, linked=False)))
    (pair,) = result.details["values"]
    real = hospital(5000, 0, linked=True)
    assert pair["columns"] == ["pregnant", "ward"]  # the rarer value first
    assert pair["values"] == ["yes", "obstetrics"]
    assert pair["real_rows"] == np.sum(real["pregnant"] == "yes")
    assert pair["real_fraction"] == 1.0
    assert pair["synthetic_fraction"] == pytest.approx(0.02, abs=0.04)
    indicators = [real["pregnant"] == "yes", real["ward"] == "obstetrics"]
    assert pair["real"] == pytest.approx(stats.pearsonr(*indicators).statistic)
    assert result["dependences_kept"] == pytest.approx(1 / 3)  # ward with age; not ward or age with pregnant


def test_what_is_kept_counts_as_kept_and_names_no_value() -> None:
    result = dependences(*encode(hospital(5000, 0, linked=True), hospital(5000, 1, linked=True)))
    assert result["dependences_kept"] == 1.0
    assert result.details["values"] == []
    assert result.settings["dependences"] == 3


def test_chance_alone_is_no_dependence() -> None:
    """Two independent columns of 60 categories have a large Cramer's V in few rows: the correction removes it."""
    draw = np.random.default_rng(0)
    tables = [{name: draw.integers(0, 60, 600).astype(str) for name in "ab"} for _ in range(2)]
    result = dependences(*encode(*tables))
    assert abs(result.details["real"][0][1]) < 0.1
    assert not result.scores["dependences_kept"].is_defined


def test_a_reversed_correlation_is_lost() -> None:
    draw = np.random.default_rng(0)
    x = draw.random(500)
    result = dependences(*encode({"x": x, "y": x}, {"x": x, "y": -x}))
    assert result["dependences_kept"] == 0.0


def test_a_constant_synthetic_column_has_lost_its_dependence() -> None:
    real = hospital(2000, 0, linked=True)
    result = dependences(*encode(real, {**real, "pregnant": np.full(2000, "no")}))
    assert result["dependences_kept"] == pytest.approx(1 / 3)
    assert result.details["values"][0]["synthetic_fraction"] is None  # nobody is pregnant


def test_pairs_of_fewer_real_rows_than_the_limit_are_not_named() -> None:
    few = FEWEST_ROWS - 1
    rows = np.arange(2000) < few
    real = {"a": np.where(rows, "x", "y"), "b": np.where(rows, "u", "v")}
    fake = {"a": real["a"], "b": np.roll(real["b"], 500)}
    assert dependences(*encode(real, fake)).details["values"] == []
    rows = np.arange(2000) < few + 1
    real = {"a": np.where(rows, "x", "y"), "b": np.where(rows, "u", "v")}
    fake = {"a": real["a"], "b": np.roll(real["b"], 500)}
    assert len(dependences(*encode(real, fake)).details["values"]) == 1


def test_a_scorecard_has_the_dependences_of_more_rows_than_it_compares() -> None:
    real, fake = (pa.table(hospital(3000, seed, linked=linked)) for seed, linked in ((0, True), (1, False)))
    content = evaluate(real, fake, metrics=["correlations"]).to_json()
    settings = content["settings"]["correlations"]
    assert (settings["synthetic_rows"], settings["dependence_synthetic_rows"]) == (600, 3000)
    assert content["details"]["correlations"]["synthetic"]["values"][0]["values"] == ["yes", "obstetrics"]
