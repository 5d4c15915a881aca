"""Classifiers trained on one table and scored on another: against scikit-learn, slow versions and hand examples."""

import importlib.util
import json
import math
import os
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import spearmanr
from sklearn import metrics as oracle
from sklearn.ensemble import RandomForestClassifier

from tests.builders import raises
from understudy.errors import ConfigError, SchemaError
from understudy.evaluation import groups, learning
from understudy.evaluation.learning import difference, learn
from understudy.evaluation.scores import Result
from understudy.evaluation.table import EncodedTable, Layout

QUICK = ("logistic", "random_forest")


def drawn(num_rows: int, seed: int, *, classes: int = 2) -> dict[str, list]:
    """Rows whose class follows x, and a little the colour; z is of no use."""
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(size=num_rows), rng.uniform(size=num_rows)
    colour = rng.integers(3, size=num_rows)
    level = np.clip((classes * (0.7 * x + 0.1 * colour + 0.3 * rng.uniform(size=num_rows) - 0.1)), 0, classes - 0.01)
    labels = np.array(["no", "yes"] if classes == 2 else [f"k{k}" for k in range(classes)])
    return {
        "x": x.tolist(),
        "colour": [("red", "green", "blue")[c] for c in colour],
        "z": z.tolist(),
        "y": labels[level.astype(int)].tolist(),
    }


def detail(result: Result, key: str) -> Any:
    return result.details[key]


def tables(real: dict[str, list], *others: dict[str, list]) -> list[EncodedTable]:
    layout = Layout.of(pa.table(real))
    return [layout.read(pa.table(each), "table") for each in (real, *others)]


@pytest.fixture(scope="module")
def pair() -> list[EncodedTable]:
    return tables(drawn(600, 0), drawn(400, 1))


# Learning


def test_scores_are_those_of_the_model_by_hand(pair: list[EncodedTable]) -> None:
    train, test = pair
    result = learn(train, test, target="y", positive="yes", models=("random_forest",), max_rows=None)
    others = ["x", "colour", "z"]
    forest = RandomForestClassifier(random_state=0).fit(train.features(others), train["y"])
    share, truth = forest.predict_proba(test.features(others))[:, 1], test["y"] == 1
    assert result["auc"] == result["auc_best"] == pytest.approx(oracle.roc_auc_score(truth, share))
    assert result["f1"] == result["f1_best"] == pytest.approx(oracle.f1_score(truth, share > 0.5))
    assert result["accuracy"] == pytest.approx(np.mean(truth == (share > 0.5)))
    importances = forest.feature_importances_
    expected = {"x": importances[0], "colour": importances[1:4].sum(), "z": importances[4]}
    assert detail(result, "importance") == pytest.approx(expected)


def test_mean_and_best_are_over_the_models(pair: list[EncodedTable]) -> None:
    result = learn(*pair, target="y", positive="yes", models=QUICK)
    for key in ("accuracy", "f1", "auc", "pr_auc"):
        values = [scores[key] for scores in detail(result, "models").values()]
        assert len(values) == 2
        assert result[key] == pytest.approx(np.mean(values))
        if key in ("f1", "auc"):
            assert result[f"{key}_best"] == max(values)


def test_every_classifier_learns_something(pair: list[EncodedTable]) -> None:
    result = learn(*pair, target="y", models=tuple(learning.CLASSIFIERS))
    missing = {"xgboost"} if importlib.util.find_spec("xgboost") is None else set()
    assert set(detail(result, "models")) == set(learning.CLASSIFIERS) - missing
    assert all(scores["auc"] > 0.85 for scores in detail(result, "models").values())
    json.dumps({"settings": result.settings, "details": result.details}, allow_nan=False)


def test_the_same_seed_gives_the_same_numbers_on_one_core(
    pair: list[EncodedTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = ("random_forest", "gradient_boosting", "mlp", "logistic")
    settings: dict[str, Any] = {"target": "y", "models": models, "max_rows": {"mlp": 100}, "bootstrap": 5, "seed": 3}
    first = learn(*pair, **settings)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert learn(*pair, **settings) == first


def test_rows_are_capped_for_each_model(pair: list[EncodedTable]) -> None:
    result = learn(*pair, target="y", models=("mlp", "logistic"), max_rows={"mlp": 50, "logistic": 200})
    assert result.settings["train_rows"] == {"mlp": 50, "logistic": 200}
    assert result.settings["test_rows"] == 400
    unbounded = learn(*pair, target="y", models=("mlp", "logistic"), max_rows=None)
    assert unbounded.settings["train_rows"] == {"mlp": 600, "logistic": 600}
    drawn_again = learn(*pair, target="y", models=("logistic",), max_rows=200, seed=1)
    assert drawn_again["auc"] != detail(result, "models")["logistic"]["auc"]


def test_bootstrap_gives_the_standard_error_of_the_test_rows(pair: list[EncodedTable]) -> None:
    result = learn(*pair, target="y", models=("logistic",), bootstrap=400)
    right = result["accuracy"]
    assert result.scores["accuracy"].error == pytest.approx(math.sqrt(right * (1 - right) / 400), rel=0.15)
    assert all(score.error is not None and score.error > 0 for score in result.scores.values())
    assert all(score.error is None for score in learn(*pair, target="y", models=("logistic",)).scores.values())


def test_the_positive_class_is_named_or_the_rarer(pair: list[EncodedTable]) -> None:
    train, test = pair
    rarer = learning.rarer_class(test, "y")
    assert np.sum(test["y"] == ["no", "yes"].index(str(rarer))) <= 200
    found = {label: learn(train, test, target="y", positive=label, models=("logistic",)) for label in ("no", "yes")}
    assert found["no"]["f1"] != found["yes"]["f1"]
    assert found["no"]["auc"] == pytest.approx(found["yes"]["auc"])
    assert learn(train, test, target="y", models=("logistic",)).settings["positive"] == rarer
    with raises(SchemaError, column="y", key="positive"):
        learn(train, test, target="y", positive="maybe", models=("logistic",))


def test_of_two_equal_classes_the_later_is_positive() -> None:
    (table,) = tables({"a": ["u", "v", "w"], "y": [False, True, None]})
    assert learning.rarer_class(table, "y") is True
    assert learning.rarer_class(table, "a") is None
    (more,) = tables({"a": ["u", "v", "w"], "y": [False, True, True]})
    assert learning.rarer_class(more, "y") is False


def test_several_classes() -> None:
    train, test = tables(drawn(600, 0, classes=3), drawn(300, 1, classes=3))
    found = learn(train, test, target="y", models=QUICK)
    assert found["auc"] > 0.85
    assert 0.5 < found["f1"] != found["accuracy"]
    assert detail(found, "roc") == {}
    assert found.settings["positive"] is None


def test_roc_curves_are_short_and_run_from_corner_to_corner(pair: list[EncodedTable]) -> None:
    result = learn(*pair, target="y", models=("logistic",))
    curve = detail(result, "roc")["logistic"]
    assert len(curve["fpr"]) == len(curve["tpr"]) <= 100
    assert (curve["fpr"][0], curve["tpr"][0], curve["fpr"][-1], curve["tpr"][-1]) == (0, 0, 1, 1)
    assert np.all(np.diff(curve["fpr"]) >= 0)
    assert np.all(np.diff(curve["tpr"]) >= 0)
    assert np.trapezoid(curve["tpr"], curve["fpr"]) == pytest.approx(result["auc"], abs=0.01)


# Hard tables


@pytest.mark.parametrize("rows", [1, 50])
def test_one_class_to_learn_from_is_predicted(rows: int) -> None:
    only = drawn(rows, 2) | {"y": ["yes"] * rows}
    _, test, train = tables(drawn(100, 0), drawn(200, 1), only)
    result = learn(train, test, target="y", positive="yes")
    share = np.mean(test["y"] == 1)
    assert result["auc"] == result["auc_best"] == 0.5
    assert result["accuracy"] == pytest.approx(share)
    assert result["f1"] == pytest.approx(2 * share / (1 + share))
    assert result["pr_auc"] == pytest.approx(share)
    assert any("only the class 'yes'" in note for note in result.notes)


def test_one_class_to_score_on_has_no_ranking() -> None:
    train, test = tables(drawn(100, 0), drawn(50, 1) | {"y": ["yes"] * 50})
    result = learn(train, test, target="y", positive="yes", models=QUICK, bootstrap=3)
    for key in ("auc", "pr_auc", "auc_best"):
        assert not result.scores[key].is_defined
        assert "one class" in result.scores[key].why
    assert result.scores["accuracy"].is_defined
    assert math.isnan(detail(result, "models")["logistic"]["auc"])
    assert detail(result, "roc")["logistic"] == {"fpr": [], "tpr": []}


def test_rows_without_a_listed_class_are_left_out_and_counted() -> None:
    real = drawn(100, 0)
    fake = drawn(90, 1)
    holes = {name: [*values, *values[:30]] for name, values in fake.items()}
    holes["y"][90:] = [None] * 10 + ["never heard of"] * 20
    _, test, clean, full = tables(real, drawn(80, 2), fake, holes)
    left = learn(full, test, target="y", models=QUICK)
    assert left.scores == learn(clean, test, target="y", models=QUICK).scores
    assert "30 train rows without a listed class in 'y' were excluded." in left.notes
    assert "30 test rows without a listed class in 'y' were excluded." in learn(test, full, target="y").notes


def test_no_row_with_a_class_gives_no_score() -> None:
    _, test, empty = tables(drawn(100, 0), drawn(80, 2), drawn(20, 1) | {"y": ["other"] * 20})
    for first, second in ((empty, test), (test, empty)):
        result = learn(first, second, target="y")
        assert not any(score.is_defined for score in result.scores.values())
        assert all("has a listed class in 'y'" in score.why for score in result.scores.values())
        assert result.details == {"models": {}, "roc": {}, "importance": {}}


def test_nothing_to_learn_from_gives_no_score() -> None:
    (table,) = tables({"y": ["a", "b", "a"]})
    assert "no other column" in learn(table, table, target="y").scores["auc"].why


def test_odd_columns_do_no_harm() -> None:
    """Constant and all-null columns, unlisted values, values out of range, nulls where the real table has none."""
    real = drawn(200, 0) | {"flat": ["same"] * 200, "n": [1.0] * 200}
    fake = drawn(200, 1) | {"flat": [None] * 200, "n": [None] * 200}
    fake["x"][:5] = [99.0, -99.0, None, 0.5, 0.5]
    fake["colour"][:3] = ["mauve", None, "red"]
    train, synthetic = tables(real, fake)
    result = learn(synthetic, train, target="y", models=(*QUICK, "adaboost", "bagging", "gradient_boosting"))
    assert result["auc"] > 0.8
    assert detail(result, "importance")["flat"] == 0


def test_a_model_that_refuses_the_rows_predicts_the_most_frequent_class() -> None:
    """AdaBoost raises where a stump is no better than chance."""
    (table,) = tables({"a": ["same"] * 8, "y": ["u", "v"] * 4})
    result = learn(table, table, target="y", models=("adaboost",))
    assert result["auc"] == result["accuracy"] == 0.5
    assert "adaboost: it could not be trained" in result.notes[0]


def test_a_model_that_is_not_installed_is_left_out(pair: list[EncodedTable], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = learn(*pair, target="y", models=("xgboost", "logistic"))
    assert list(detail(result, "models")) == ["logistic"]
    assert any("xgboost is not installed" in note for note in result.notes)
    assert "installed" in learn(*pair, target="y", models=("xgboost",)).scores["auc"].why


def test_a_fit_cut_short_is_noted(pair: list[EncodedTable], monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = learning.LogisticRegression(max_iter=1)
    monkeypatch.setitem(learning.CLASSIFIERS, "logistic", lambda seed: hasty)
    assert learn(*pair, target="y", models=("logistic",)).notes == ("logistic: not converged after 1 iterations.",)


def test_wrong_settings_are_refused(pair: list[EncodedTable]) -> None:
    with raises(ConfigError, setting="models"):
        learn(*pair, target="y", models=("logistics",))
    with raises(SchemaError, column="x"):
        learn(*pair, target="x")
    with raises(SchemaError, column="w"):
        learn(*pair, target="w")


def test_a_class_that_the_training_rows_lack_is_never_predicted() -> None:
    train, test = tables(drawn(300, 0, classes=3), drawn(300, 1, classes=3))
    lacking = learn(train.take(train["y"] < 2), test, target="y", models=QUICK)
    whole = learn(train, test, target="y", models=QUICK)
    assert lacking["accuracy"] <= np.mean(test["y"] < 2)
    assert 0.5 < lacking["auc"] < whole["auc"]


# Probabilities, rankings and importances


def test_class_probabilities_are_those_of_the_levels(pair: list[EncodedTable]) -> None:
    train, test = pair
    shares = learning.class_probabilities(train, test, target="y")
    assert shares is not None
    assert shares.shape == (400, 2)
    assert shares.sum(axis=1) == pytest.approx(np.ones(400))
    assert oracle.roc_auc_score(test["y"] == 1, shares[:, 1]) > 0.85
    assert learning.class_probabilities(train.take(train["y"] == 1), test, target="y") is None


def slow_sra(real: list[float], synthetic: list[float]) -> float:
    pairs = [(i, j) for i in range(len(real)) for j in range(len(real)) if i != j]
    agree = sum((real[i] - real[j]) * (synthetic[i] - synthetic[j]) >= 0 for i, j in pairs)
    return agree / len(pairs)


def test_ranking_agreement() -> None:
    names = "abcde"
    real = dict(zip(names, (0.9, 0.8, 0.7, 0.6, 0.5), strict=True))
    assert learning.sra(real, real).value == 1
    assert learning.sra(real, {name: -score for name, score in real.items()}).value == 0
    assert learning.sra(real, dict.fromkeys(names, 0.5)).value == 1  # ties agree
    rng = np.random.default_rng(0)
    for _ in range(5):
        other = dict(zip(names, rng.integers(4, size=5).tolist(), strict=True))
        value = learning.sra(real, other).value
        assert value == pytest.approx(slow_sra(list(real.values()), list(other.values())))
        assert value * 10 == pytest.approx(round(value * 10))


def test_ranking_agreement_of_a_scorecard_is_over_the_five_models_of_its_paper() -> None:
    """Further models are scored, and do not count: five models have ten pairs."""
    models = {name: {"auc": 0.5} for name in (*learning.QUAIL, "gradient_boosting", learning.OPTIONAL)}
    assert list(groups._aucs(Result(scores={}, settings={}, details={"models": models}))) == list(learning.QUAIL)
    assert len(learning.QUAIL) == 5


def test_ranking_agreement_needs_two_models_with_scores() -> None:
    assert not learning.sra({"a": 1.0}, {"a": 1.0}).is_defined
    assert not learning.sra({"a": 1.0, "b": None}, {"a": 1.0, "b": 0.5}).is_defined
    assert learning.sra({"a": 1.0, "b": 0.5, "c": math.nan}, {"b": 0.2, "a": 0.4, "c": 0.1}).value == 1


def test_importance_agreement_is_spearmans() -> None:
    rng = np.random.default_rng(0)
    first, second = np.round(rng.uniform(size=(2, 8)), 1)
    names = [str(k) for k in range(8)]
    shuffled = dict(sorted(zip(names, second.tolist(), strict=True), reverse=True))
    found = learning.importance_agreement(dict(zip(names, first.tolist(), strict=True)), shuffled)
    assert found.value == pytest.approx(spearmanr(first, second).statistic)


def test_importance_agreement_may_be_undefined() -> None:
    assert not learning.importance_agreement({}, {}).is_defined
    assert not learning.importance_agreement(dict.fromkeys("abc", 0.0), {"a": 1.0, "b": 2.0, "c": 3.0}).is_defined


def test_an_installed_package_changes_no_mean(pair: list[EncodedTable]) -> None:
    """XGBoost stands in the details only; the best is that of the QUAIL paper's models."""
    pytest.importorskip("xgboost")
    train, test = pair
    names = ("logistic", "gradient_boosting", "xgboost")
    with_it = learn(train, test, target="y", models=names, bootstrap=5)
    without = learn(train, test, target="y", models=names[:2], bootstrap=5)
    assert with_it.scores == without.scores
    models = with_it.details["models"]
    assert set(models) == set(names)
    assert with_it["auc"] == pytest.approx(np.mean([models[name]["auc"] for name in names[:2]]))
    assert with_it["auc_best"] == models["logistic"]["auc"]
    assert with_it["f1_best"] == models["logistic"]["f1"]
    other = learn(train, test, target="y", models=("gradient_boosting",))
    assert "QUAIL" in other.scores["auc_best"].why
    alone = learn(train, test, target="y", models=("xgboost",))
    assert alone["auc"] == models["xgboost"]["auc"]


def test_a_wrong_positive_class_lists_no_level(pair: list[EncodedTable]) -> None:
    train, test = pair
    with pytest.raises(SchemaError) as caught:
        learn(train, test, target="y", positive="SENTINEL", models=("logistic",))
    assert not any(repr(level) in str(caught.value) for level in train.layout["y"].categories)


def test_paired_differences_are_surer_than_their_parts(pair: list[EncodedTable]) -> None:
    train, test = pair
    first, second = (
        learn(train.at_most(rows, seed=0), test, target="y", models=("logistic",), bootstrap=50) for rows in (60, 300)
    )
    found = difference(first, second, "auc")
    assert found["value"] == pytest.approx(first["auc"] - second["auc"])
    gaps = np.subtract(first.redrawn["auc"], second.redrawn["auc"])
    assert found["error"] == pytest.approx(np.std(gaps, ddof=1))
    assert difference(first, learn(train, test, target="y", models=("logistic",)), "auc")["error"] is None
