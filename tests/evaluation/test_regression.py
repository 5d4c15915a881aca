"""Predicted numbers, each column from the others, and small linear models: against scikit-learn and least squares."""

import itertools
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn import metrics as oracle
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Lasso, LogisticRegression

from tests.builders import raises
from understudy.errors import ConfigError, SchemaError
from understudy.evaluation import regression
from understudy.evaluation.regression import dimension_prediction, learn_numeric, parallel_rmse
from understudy.evaluation.scores import Result, metrics_of
from understudy.evaluation.table import EncodedTable, Layout


def drawn(num_rows: int, seed: int) -> dict[str, list]:
    """Pay follows age and job; two classes and one number that follow from nothing."""
    rng = np.random.default_rng(seed)
    age, job = rng.uniform(20, 60, size=num_rows), rng.integers(3, size=num_rows)
    return {
        "age": age.tolist(),
        "job": [("cook", "clerk", "nurse")[j] for j in job],
        "pay": (10 * age + 100 * job + 100 * rng.uniform(size=num_rows)).tolist(),
        "luck": rng.uniform(0, 30, size=num_rows).tolist(),
        "rich": ["yes" if a + 10 * j > 55 else "no" for a, j in zip(age, job, strict=True)],
    }


def binary(num_rows: int, seed: int) -> dict[str, list]:
    rng = np.random.default_rng(seed)
    first = rng.uniform(size=(num_rows, 1)) < 0.4
    rest = first ^ (rng.uniform(size=(num_rows, 3)) < (0.1, 0.3, 0.5))
    return {f"b{k}": column.tolist() for k, column in enumerate(np.c_[first, rest].T)}


def detail(result: Result, key: str) -> Any:
    return result.details[key]


def tables(real: dict[str, list], *others: dict[str, list]) -> list[EncodedTable]:
    layout = Layout.of(pa.table(real))
    return [layout.read(pa.table(each), "table") for each in (real, *others)]


@pytest.fixture(scope="module")
def three() -> list[EncodedTable]:
    return tables(drawn(400, 0), drawn(350, 1), drawn(300, 2))


def without(names: tuple[str, ...], name: str) -> list[str]:
    return [each for each in names if each != name]


# A numeric target


def test_errors_agree_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.uniform(size=(2, 50))
    assert regression.rmse(predicted - truth) == pytest.approx(math.sqrt(oracle.mean_squared_error(truth, predicted)))
    assert regression.r2(predicted - truth, truth) == pytest.approx(oracle.r2_score(truth, predicted))
    assert math.isnan(regression.r2(predicted, np.ones(50)))


def test_linear_model_is_least_squares(three: list[EncodedTable]) -> None:
    train, _, test = three
    found = learn_numeric(train, test, target="pay", models=("linear",), max_rows=None)
    columns = without(train.layout.names, "pay")
    design, test_design = (np.c_[np.ones(t.num_rows), t.features(columns)] for t in (train, test))
    errors = test_design @ np.linalg.lstsq(design, train["pay"], rcond=1e-6)[0] - test["pay"]
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-5)
    assert found["r2"] == pytest.approx(1 - np.mean(errors**2) / np.var(test["pay"]), rel=1e-5)


def test_every_regressor_learns_and_the_scores_are_their_means(three: list[EncodedTable]) -> None:
    train, _, test = three
    found = learn_numeric(train, test, target="pay", bootstrap=50, max_rows=300)
    each = detail(found, "models")
    assert set(each) == set(regression.REGRESSORS)
    assert all(scores["r2"] > 0.9 for scores in each.values())
    for key in ("rmse", "r2"):
        assert found[key] == pytest.approx(np.mean([scores[key] for scores in each.values()]))
        error = found.scores[key].error
        assert error is not None
        assert 0 < error < 0.2 * abs(found[key])
    assert (found.settings["train_rows"], found.settings["test_rows"]) == (300, 300)
    assert learn_numeric(train, test, target="pay", bootstrap=50, max_rows=300) == found
    json.dumps({"settings": found.settings, "details": found.details}, allow_nan=False)


def test_rows_without_the_number_are_left_out_and_counted(three: list[EncodedTable]) -> None:
    holes = drawn(400, 0)
    holes["pay"][:7] = [None] * 6 + [math.inf]
    _, train, test = tables(drawn(400, 0), holes, drawn(300, 2))
    found = learn_numeric(train, test, target="pay", models=("linear",))
    rest = learn_numeric(train.take(np.arange(400) >= 7), test, target="pay", models=("linear",))
    assert found.scores == rest.scores
    assert found.notes == ("7 train rows without a number in 'pay' were excluded.",)


def test_numeric_scores_may_be_undefined() -> None:
    train, flat, empty, one = tables(
        drawn(50, 0), drawn(20, 1) | {"pay": [5.0] * 20}, drawn(20, 1) | {"pay": [None] * 20}, drawn(1, 3)
    )
    found = learn_numeric(train, flat, target="pay", models=("linear",), bootstrap=2)
    assert found.scores["rmse"].is_defined
    assert "constant" in found.scores["r2"].why
    assert math.isnan(detail(found, "models")["linear"]["r2"])
    for first, second in ((empty, train), (train, empty)):
        assert "has a number in 'pay'" in learn_numeric(first, second, target="pay").scores["rmse"].why
    assert learn_numeric(one, train, target="pay").scores["rmse"].is_defined
    (alone,) = tables({"pay": [1.0, 2.0]})
    assert "no other column" in learn_numeric(alone, alone, target="pay").scores["r2"].why


def test_wrong_settings_are_refused(three: list[EncodedTable]) -> None:
    train, fake, test = three
    with raises(SchemaError, column="job"):
        learn_numeric(train, test, target="job")
    with raises(ConfigError, setting="models"):
        learn_numeric(train, test, target="pay", models=("linaer",))
    with raises(SchemaError, column="Age"):
        parallel_rmse(train, fake, test, target="pay", regressors=["Age"])
    with raises(SchemaError, column="pay"):
        parallel_rmse(train, fake, test, target="pay", regressors=["pay"])
    with raises(SchemaError, column="job"):
        parallel_rmse(train, fake, test, target="job")


# Each column from the others


def by_hand(train: EncodedTable, tester: EncodedTable, name: str, positive: int | None) -> float:
    columns = without(train.layout.names, name)
    spec = train.layout[name]
    inputs, tested = train.features(columns).astype(float), tester.features(columns).astype(float)
    if spec.is_numeric:
        units = [train.layout[c].upper - train.layout[c].lower if train.layout[c].is_numeric else 1 for c in columns]
        sizes = [train.layout[c].num_features for c in columns]
        inputs, tested = inputs * np.repeat(units, sizes), tested * np.repeat(units, sizes)
        return oracle.r2_score(tester[name], Lasso(alpha=1.0).fit(inputs, train[name]).predict(tested))
    forest = RandomForestClassifier(n_estimators=10, random_state=0).fit(inputs, train[name])
    if positive is None:
        return oracle.f1_score(tester[name], forest.predict(tested), average="micro")
    return oracle.f1_score(tester[name], forest.predict(tested), pos_label=positive)


def test_mixed_columns_by_hand(three: list[EncodedTable]) -> None:
    train, fake, test = three
    found = dimension_prediction(train, fake, test, max_rows=None)
    points = {point["column"]: point for point in detail(found, "points")}
    assert list(points) == list(train.layout.names)
    assert {name: point["kind"] for name, point in points.items()} == {
        "age": "r2",
        "job": "f1",
        "pay": "r2",
        "luck": "r2",
        "rich": "f1",
    }
    rarer = int(np.mean(train["rich"]) <= 0.5)
    for name, point in points.items():
        positive = rarer if name == "rich" else None
        assert point["real"] == pytest.approx(by_hand(train, test, name, positive), rel=1e-3, abs=1e-3)
        assert point["synthetic"] == pytest.approx(by_hand(fake, test, name, positive), rel=1e-3, abs=1e-3)


def test_hardly_predicted_numbers_are_listed_but_not_summed_up(three: list[EncodedTable]) -> None:
    found = dimension_prediction(*three)
    plotted = [point for point in detail(found, "points") if point["plotted"]]
    assert {point["column"] for point in detail(found, "points")} - {p["column"] for p in plotted} == {"luck"}
    gaps = [point["real"] - point["synthetic"] for point in plotted]
    assert found["dwpred_sum_squares"] == pytest.approx(sum(gap**2 for gap in gaps))
    assert found["dwpred_distance"] == pytest.approx(sum(abs(gap) for gap in gaps) / len(gaps) / math.sqrt(2))
    json.dumps({"settings": found.settings, "details": found.details}, allow_nan=False)


def test_binary_tables_are_scored_by_area() -> None:
    train, fake, test = tables(binary(300, 0), binary(200, 1), binary(250, 2))
    found = dimension_prediction(train, fake, test)
    for point in detail(found, "points"):
        columns = without(train.layout.names, point["column"])
        for key, table in (("real", train), ("synthetic", fake)):
            model = LogisticRegression(solver="liblinear", random_state=0)
            model.fit(table.features(columns), table[point["column"]])
            share = model.predict_proba(test.features(columns))[:, 1]
            assert point[key] == pytest.approx(oracle.roc_auc_score(test[point["column"]], share))
            assert point["kind"] == "auc"
    assert found.notes == ()


@pytest.mark.parametrize("which", [1, 2])
def test_a_constant_binary_column_is_dropped_and_counted(which: int) -> None:
    three_tables = [binary(100, seed) for seed in range(3)]
    three_tables[which]["b1"] = [True] * 100
    found = dimension_prediction(*tables(*three_tables))
    assert [point["column"] for point in detail(found, "points")] == ["b0", "b2", "b3"]
    assert "were dropped" in found.notes[0]
    assert found.scores["dwpred_distance"].is_defined


def test_equal_tables_lie_on_the_diagonal(three: list[EncodedTable]) -> None:
    train, _, test = three
    found = dimension_prediction(train, train, test, max_rows=200)
    assert found["dwpred_sum_squares"] == found["dwpred_distance"] == 0
    assert (found.settings["train_rows"], found.settings["synthetic_rows"]) == (200, 200)


def test_shuffled_columns_lie_below_the_diagonal(three: list[EncodedTable]) -> None:
    train, _, test = three
    rng = np.random.default_rng(0)
    shuffled = EncodedTable(train.layout, {name: rng.permutation(values) for name, values in train.columns.items()})
    points = detail(dimension_prediction(train, shuffled, test), "points")
    assert all(point["synthetic"] < point["real"] - 0.1 for point in points if point["plotted"])


def test_odd_columns_do_no_harm() -> None:
    """All null or constant numbers are dropped; unlisted classes and nulls where the real table has none count."""
    real = drawn(100, 0) | {"n": [1.0] * 100}
    fake = drawn(90, 1) | {"n": [None] * 90, "luck": [None] * 90}
    fake["job"][:40] = ["pilot"] * 20 + [None] * 20
    fake["age"][:2] = [900.0, -900.0]
    train, synthetic, one = tables(real, fake, drawn(1, 2) | {"n": [1.0]})
    found = dimension_prediction(train, synthetic, train)
    assert [point["column"] for point in detail(found, "points")] == ["age", "job", "pay", "rich"]
    assert "were dropped" in found.notes[0]
    assert dimension_prediction(train, one, train).scores["dwpred_distance"].is_defined
    assert dimension_prediction(one, train, one).scores["dwpred_distance"].is_defined


def test_one_column_cannot_be_predicted() -> None:
    (table,) = tables({"a": ["u", "v", "u"]})
    assert "only one column" in dimension_prediction(table, table, table).scores["dwpred_distance"].why


def test_nothing_to_plot_gives_no_score() -> None:
    rng = np.random.default_rng(0)
    (table,) = tables({name: rng.uniform(size=50).tolist() for name in "abc"})
    found = dimension_prediction(table, table, table)
    assert len(detail(found, "points")) == 3
    assert not any(score.is_defined for score in found.scores.values())


# Many small linear models


def reference_coded(table: EncodedTable, columns: tuple[str, ...]) -> np.ndarray:
    """An intercept, numbers as they are, and dummies of all levels but the first."""
    parts = [np.ones((table.num_rows, 1))]
    for name in columns:
        spec = table.layout[name]
        if spec.is_numeric:
            parts.append(table[name][:, None])
        else:
            parts.append(np.eye(len(spec.categories))[table[name]][:, 1:])
    return np.hstack(parts)


def test_triples_are_least_squares_by_hand(three: list[EncodedTable]) -> None:
    train, fake, test = three
    within = [t.take((t["age"] > 21) & (t["age"] < 59) & (t["luck"] > 1) & (t["luck"] < 29)) for t in three]
    found = parallel_rmse(*within, target="pay")
    train, fake, test = within
    expected = []
    for triple in itertools.combinations(("age", "job", "luck", "rich"), 3):
        errors = []
        for table in (train, fake):
            weights = np.linalg.lstsq(reference_coded(table, triple), table["pay"], rcond=None)[0]
            errors.append(np.sqrt(np.mean((reference_coded(test, triple) @ weights - test["pay"]) ** 2)))
        expected.append((list(triple), *errors))
    models = [(model["regressors"], model["real"], model["synthetic"]) for model in detail(found, "models")]
    assert [names for names, *_ in models] == [names for names, *_ in expected]
    for (_, *ours), (_, *theirs) in zip(models, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)
    ratios = [fake_error / real_error for _, real_error, fake_error in expected]
    assert found["rmse_ratio_mean"] == pytest.approx(np.mean(ratios), rel=1e-5)
    assert found["rmse_ratio_max"] == pytest.approx(max(ratios), rel=1e-5)


def test_a_level_that_the_rows_lack_has_coefficient_zero() -> None:
    """It is then predicted as the mean of the levels' effects: here of 0 and 100."""
    real: dict[str, list] = {"job": ["cook", "clerk", "nurse"] * 2, "pay": [0.0, 100.0, 90.0] * 2}
    fake: dict[str, list] = {"job": ["cook", "clerk"] * 3, "pay": [0.0, 100.0] * 3}
    only: dict[str, list] = {"job": ["nurse"], "pay": [90.0]}
    train, synthetic, test = tables(real, fake, only)
    (model,) = detail(parallel_rmse(train, synthetic, test, target="pay"), "models")
    assert model["real"] == pytest.approx(0, abs=1e-9)
    assert model["synthetic"] == pytest.approx(40)


def test_order_and_copies_of_rows_change_nothing(three: list[EncodedTable]) -> None:
    train, fake, test = three
    order = np.random.default_rng(0).permutation(350)
    whole = detail(parallel_rmse(train, fake, test, target="pay"), "models")
    for other in (fake.take(order), fake.take(np.repeat(order, 2))):
        again = detail(parallel_rmse(train, other, test, target="pay"), "models")
        assert [m["synthetic"] for m in again] == pytest.approx([m["synthetic"] for m in whole])


def test_equal_tables_have_ratio_one(three: list[EncodedTable]) -> None:
    train, _, test = three
    found = parallel_rmse(train, train, test, target="pay")
    assert found["rmse_ratio_mean"] == found["rmse_ratio_max"] == 1


def test_regressors_follow_a_fixed_rule() -> None:
    rng = np.random.default_rng(0)
    wide = {name: rng.uniform(size=30).tolist() for name in "abcdefgh"}
    (table,) = tables(wide)
    found = parallel_rmse(table, table, table, target="c")
    assert found.settings["regressors"] == list("abdef")
    assert len(detail(found, "models")) == 10
    (narrow,) = tables({name: wide[name] for name in "abcdefg"})
    assert len(detail(parallel_rmse(narrow, narrow, narrow, target="c"), "models")) == 20
    (model,) = detail(parallel_rmse(table, table, table, target="c", regressors=["h", "a"]), "models")
    assert model["regressors"] == ["h", "a"]


def test_linear_models_may_have_no_ratio() -> None:
    train, empty, one = tables(drawn(50, 0), drawn(20, 1) | {"pay": [None] * 20}, drawn(1, 2))
    assert "has a number in 'pay'" in parallel_rmse(train, empty, train, target="pay").scores["rmse_ratio_max"].why
    assert parallel_rmse(train, one, train, target="pay").scores["rmse_ratio_max"].is_defined
    (exact,) = tables({"a": [0.0, 0.0, 0.0], "b": [1.0, 2.0, 3.0], "pay": [4.0, 4.0, 4.0]})
    found = parallel_rmse(exact, exact, exact, target="pay")
    assert "no error" in found.scores["rmse_ratio_mean"].why
    assert found.notes
    (alone,) = tables({"pay": [1.0, 2.0]})
    assert not parallel_rmse(alone, alone, alone, target="pay").scores["rmse_ratio_mean"].is_defined


def test_metrics_are_described() -> None:
    keys = {metric.key for group in ("dimension_prediction", "parallel_rmse") for metric in metrics_of(group)}
    (table,) = tables(drawn(30, 0))
    returned = {f"tstr_{key}" for key in learn_numeric(table, table, target="pay", models=("linear",)).scores}
    returned |= set(dimension_prediction(table, table, table).scores)
    returned |= set(parallel_rmse(table, table, table, target="pay").scores)
    assert returned == {*keys, "tstr_rmse", "tstr_r2"}
