"""Scores of benchmark cells: closed forms, agreement with `understudy.evaluate`, rows and seeds, references."""

import dataclasses
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from tests.benchmark.scored import FAST, OTHER, SCHEMA, TEST, TRAIN, score, shuffle
from tests.builders import raises
from understudy.benchmark import scoring
from understudy.benchmark.metrics import METRICS, check_metrics
from understudy.benchmark.scoring import _PARTS, Reference, score_table
from understudy.benchmark.tables import load_table, missing_source
from understudy.evaluation import geometry, learning, marginals, pmse, regression
from understudy.evaluation.parallel import limit_workers, run_in_threads
from understudy.evaluation.table import Layout

PREDICTION = ("f1", "auc", "accuracy", "pr_auc", "f1_mean", "auc_mean", "r2", "rmse", "sra")
DISTANCES = tuple(name for name in METRICS if name not in PREDICTION)


def two_columns(first: str, second: str) -> us.Schema:
    """Columns `a`, of these categories, and `b`, of the categories u and v."""
    lists = {"a": f'["{first}", "{second}"]', "b": '["u", "v"]'}
    texts = [f'[columns.{name}]\nkind = "categorical"\ncategories = {values}' for name, values in lists.items()]
    return us.Schema.from_toml("\n".join(texts))


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference.of(TRAIN, TEST, schema=SCHEMA, classifiers=FAST)


# ------------------------------------------------------------------------------------------------------- definitions


def test_every_metric_is_computed_by_one_part() -> None:
    names = [name for part in _PARTS for name in part.keys]
    assert sorted(names) == sorted(METRICS)
    assert all(metric.meaning.endswith(".") for metric in METRICS.values())


def test_unknown_metrics_and_classifiers_are_refused_with_the_nearest_name() -> None:
    with raises(us.ConfigError, setting="pmse_rate"):
        check_metrics(["f1", "pmse_rate"])
    names: tuple[Sequence[str], ...] = ([], "f1")
    for wrong in names:
        with pytest.raises(us.ConfigError) as refused:
            check_metrics(wrong)
        assert refused.value.setting == "metrics"
    with raises(us.ConfigError, setting="models"):
        Reference.of(TRAIN, TEST, schema=SCHEMA, classifiers=["logistc"])
    with pytest.raises(us.ConfigError) as refused:
        Reference.of(TRAIN, TEST, schema=SCHEMA, max_rows=0)
    assert refused.value.setting == "max_rows"


def test_distances_of_a_tiny_table_by_hand() -> None:
    """Half of the synthetic rows have the wrong value of `a`; `b` always follows `a` in real rows only."""
    schema = two_columns("x", "y")
    real = pa.table({"a": ["x", "x", "y", "y"], "b": ["u", "u", "v", "v"]})
    fake = pa.table({"a": ["x", "x", "x", "x"], "b": ["u", "v", "u", "v"]})
    found = score_table(
        fake, Reference.of(real, None, schema=schema), ["tvd1", "tvd2", "worst2", "tvd3", "invalid_cells"]
    )
    assert found.metrics == {"tvd1": 0.25, "tvd2": 0.5, "worst2": 0.5, "invalid_cells": 0.0}
    assert "fewer than three columns" in found.details["missing"]["tvd3"]  # type: ignore[index]  # JSON, typed as objects
    assert found.rows == {"train": 4, "test": 0, "synthetic": 4, "scored": 4}


def test_f1_auc_and_ranking_of_a_target_that_is_known_exactly() -> None:
    """The target equals another column, so every classifier is right; negated, every classifier is wrong."""
    draw = np.random.default_rng(0)
    schema = two_columns("u", "v")
    values = draw.choice(["u", "v"], 200, p=[0.7, 0.3])
    right = pa.table({"a": values, "b": values})
    wrong = pa.table({"a": values, "b": np.where(values == "u", "v", "u")})
    real = Reference.of(right, right, schema=schema, target="b", classifiers=FAST)
    for table, value in ((right, 1.0), (wrong, 0.0)):
        found = score_table(table, real, ["f1", "auc", "f1_mean", "accuracy", "sra"]).metrics
        assert found == {"f1": value, "auc": value, "f1_mean": value, "accuracy": value, "sra": 1.0}  # all ties


# ---------------------------------------------------------------------------- the same numbers as understudy.evaluation


def test_distances_equal_those_of_evaluate() -> None:
    keys = {
        "pmse_logistic": "pmse_logit_ratio", "js": "js_score", "tvd2": "tv2", "worst2": "tv2_max", "ks": "ks",
        "tvd3": "tv3", "nist": "nist_score", "corr_diff": "corr_diff", "dependences_kept": "dependences_kept",
        "wasserstein": "wasserstein", "invalid_cells": "invalid_cells",
    }  # fmt: skip
    theirs = us.evaluate(TRAIN, OTHER, schema=SCHEMA, holdout=TEST, metrics=list(keys.values()), effort="full")
    ours = score(OTHER, *keys).metrics
    for name, key in keys.items():
        if name != "pmse_logistic":  # evaluate adds interactions where the effort is full
            assert ours[name] == pytest.approx(theirs[key], rel=1e-5), name
    layout = Layout.of(TRAIN, SCHEMA, TEST)
    real, fake = layout.read(TRAIN, "real table"), layout.read(OTHER, "synthetic table")
    assert ours["pmse_logistic"] == pmse.pmse_logit(real, fake)["pmse_logit_ratio"]
    assert score(OTHER, "tvd1").metrics["tvd1"] == marginals.one_way(real, fake, bins=20)["tv1"]
    assert score(OTHER, "wasserstein").details["baselines"] == {
        "wasserstein": geometry.wasserstein(real, fake).details["real_baseline"]["value"]
    }


def test_pmse_ratio_equals_that_of_evaluate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "PERMUTATIONS", 50)  # as many as evaluate makes
    theirs = us.evaluate(TRAIN, OTHER, schema=SCHEMA, holdout=OTHER, metrics=["pmse_cart"], effort="full")
    found = score_table(OTHER, Reference.of(TRAIN, None, schema=SCHEMA), ["pmse_ratio", "pmse"])
    assert found.metrics["pmse_ratio"] == pytest.approx(theirs["pmse_cart_ratio"], rel=1e-5)
    assert found.metrics["pmse"] == pytest.approx(theirs["pmse_cart"], rel=1e-5)
    assert 0 < found.details["errors"]["pmse_ratio"] < 0.1  # type: ignore[index]  # JSON, typed as objects
    alone = score(OTHER, "pmse")  # without shuffled labels, which it does not need
    assert alone.metrics["pmse"] == found.metrics["pmse"]
    assert "errors" not in alone.details


def test_best_of_five_classifiers_equals_that_of_evaluate() -> None:
    train, test, other = TRAIN.slice(0, 300), TEST.slice(0, 300), OTHER.slice(0, 300)
    theirs = us.evaluate(train, other, schema=SCHEMA, holdout=test, metrics=["tstr_f1_best", "tstr_auc_best"])
    found = score_table(other, Reference.of(train, test, schema=SCHEMA), ["f1", "auc", "f1_mean", "auc_mean", "sra"])
    assert found.metrics["f1"] == pytest.approx(theirs["tstr_f1_best"], rel=1e-5)
    assert found.metrics["auc"] == pytest.approx(theirs["tstr_auc_best"], rel=1e-5)
    classifiers = found.details["classifiers"]
    assert isinstance(classifiers, dict)
    assert tuple(classifiers) == learning.QUAIL
    assert found.metrics["f1_mean"] == pytest.approx(np.mean([each["f1"] for each in classifiers.values()]))
    assert found.metrics["auc_mean"] == pytest.approx(np.mean([each["auc"] for each in classifiers.values()]))
    assert found.metrics["sra"] * 10 == pytest.approx(round(found.metrics["sra"] * 10))  # five models, ten pairs


def test_a_numeric_target_has_r2_and_no_f1() -> None:
    found = score_table(OTHER, Reference.of(TRAIN, TEST, schema=SCHEMA, target="income"), ["r2", "rmse", "f1", "sra"])
    layout = Layout.of(TRAIN, SCHEMA, TEST)
    expected = regression.learn_numeric(layout.read(OTHER, "a"), layout.read(TEST, "b"), target="income")
    assert found.metrics == {"r2": expected["r2"], "rmse": expected["rmse"]}
    assert set(found.details["missing"]) == {"f1", "sra"}  # type: ignore[call-overload]  # JSON, typed as objects
    assert set(found.details["regressors"]) == set(regression.REGRESSORS)  # type: ignore[call-overload]  # JSON, typed as objects


def test_metrics_without_a_target_or_test_rows_say_why() -> None:
    schema = dataclasses.replace(SCHEMA, target=None)
    found = score_table(OTHER, Reference.of(TRAIN, TEST, schema=schema), ["f1", "r2", "tvd1"])
    assert found.details["missing"] == dict.fromkeys(("f1", "r2"), "The table has no target.")
    assert set(found.metrics) == {"tvd1"}
    assert score(OTHER, "auc", test=None).details["missing"] == {"auc": "There are no test rows."}


# ----------------------------------------------------------------------------------------------------- rows and seeds


def test_at_most_max_rows_enter_and_a_copy_stays_a_copy() -> None:
    reference = Reference.of(TRAIN, TEST, schema=SCHEMA, classifiers=FAST, max_rows=200)
    found = score_table(TRAIN, reference, ["tvd2", "pmse", "f1"], seed=7)
    assert found.rows == {"train": 800, "test": 500, "synthetic": 800, "scored": 200}
    assert found.metrics["tvd2"] == found.metrics["pmse"] == 0.0
    assert reference.test is not None
    assert (reference.train.num_rows, reference.test.num_rows) == (200, 200)


def test_no_more_synthetic_rows_are_scored_than_training_rows() -> None:
    assert score(pa.concat_tables([OTHER, TEST]), "tvd1").rows["scored"] == 800


def test_the_multilayer_perceptron_alone_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def f1(mlp_rows: int, table: pa.Table) -> float:
        monkeypatch.setattr(scoring, "MLP_ROWS", mlp_rows)
        real = Reference.of(TRAIN, TEST, schema=SCHEMA, classifiers=["mlp"])
        return score_table(table, real, ["f1"]).metrics["f1"]

    encoded = Reference.of(TRAIN, TEST, schema=SCHEMA).read(OTHER)
    rows = np.random.default_rng(0).choice(encoded.num_rows, 100, replace=False)
    assert f1(100, OTHER) == f1(1000, OTHER.take(rows))
    unlimited = score(OTHER, "f1").metrics
    monkeypatch.setattr(scoring, "MLP_ROWS", 100)
    assert score(OTHER, "f1").metrics == unlimited


def test_the_same_seed_gives_the_same_scores_on_any_number_of_threads(reference: Reference) -> None:
    first = score(OTHER, *METRICS, reference=reference, seed=3)
    with limit_workers(2):
        second = score(OTHER, *METRICS, seed=3)
    assert first == second
    assert score(OTHER, "wasserstein", seed=4).metrics != score(OTHER, "wasserstein", seed=3).metrics


def test_limit_workers_runs_one_job_at_a_time() -> None:
    running, most = [0], [0]

    def job() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        sum(range(100_000))
        running[0] -= 1

    with limit_workers(1):
        run_in_threads([job] * 8)
    assert most == [1]


# --------------------------------------------------------------------------------------------------------- references


def test_scores_of_a_reference_survive_json(reference: Reference) -> None:
    content = json.loads(json.dumps(reference.model_scores, allow_nan=False))
    restored = dataclasses.replace(Reference.of(TRAIN, TEST, schema=SCHEMA, classifiers=FAST), saved=content)
    assert restored.model_scores == reference.model_scores
    assert score(OTHER, "sra", "f1", reference=restored) == score(OTHER, "sra", "f1")


def test_ranking_agreement_compares_with_models_of_real_rows(reference: Reference) -> None:
    """With scores of real models that rank in the opposite order, no pair agrees."""
    found = score(OTHER, "sra", reference=reference)
    assert found.details["real_classifiers"] == reference.model_scores
    classifiers = found.details["classifiers"]
    assert isinstance(classifiers, dict)
    ours = {name: each["f1"] for name, each in classifiers.items()}
    assert len(set(ours.values())) == len(FAST)
    opposite = dataclasses.replace(reference, saved={name: {"f1": -f1} for name, f1 in ours.items()})
    assert score(OTHER, "sra", reference=opposite).metrics == {"sra": 0.0}


def test_real_data_ranks_models_as_it_does_whatever_the_seed(reference: Reference) -> None:
    opposite = {name: {**each, "f1": -(each["f1"] or 0.0)} for name, each in reference.model_scores.items()}
    other = dataclasses.replace(reference, saved=opposite)
    assert score(TRAIN, "sra", reference=other, seed=5).metrics == {"sra": 1.0}
    assert score(TRAIN.slice(0), "sra", reference=other, seed=5).metrics == {"sra": 1.0}


# ------------------------------------------------------------------------------------------------- better and worse


def test_real_rows_score_better_than_shuffled_columns(reference: Reference) -> None:
    real, fake = (score(table, *METRICS, reference=reference) for table in (OTHER, shuffle(TRAIN, 5)))
    for name in ("f1", "auc", "f1_mean", "auc_mean", "pr_auc", "pmse_ratio", "js", "tvd2", "tvd3", "corr_diff"):
        better, worse = real.metrics[name], fake.metrics[name]
        assert better > worse if METRICS[name].higher_is_better else better < worse, name
    copy = score(TRAIN, *DISTANCES, reference=reference)
    for name in (*DISTANCES, "sra"):
        if name in copy.metrics and name not in ("wasserstein", "js", "dependences_kept"):  # these draw rows
            better, worse = copy.metrics[name], fake.metrics[name]
            assert better >= worse if METRICS[name].higher_is_better else better <= worse, name


# --------------------------------------------------------------------------------------------------------- public data


@pytest.mark.slow
@pytest.mark.skipif(missing_source("adult") is not None, reason="the table is not on this machine")
def test_adult_by_two_classifiers() -> None:
    table = load_table("adult")
    reference = Reference.of(
        table.train, table.test, schema=table.schema, target=table.target, classifiers=["logistic", "random_forest"]
    )
    found = score_table(table.train, reference, ["f1", "auc", "sra", "pmse_ratio", "tvd2"])
    assert found.metrics["sra"] == 1.0
    assert found.metrics["pmse_ratio"] == found.metrics["tvd2"] == 0.0
    assert found.metrics["f1"] == pytest.approx(0.65, abs=0.03)
    assert found.metrics["auc"] == pytest.approx(0.90, abs=0.02)
