"""Estimators: classes and bounds are public, the budget is kept, and frames, arrays and seeds behave."""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import understudy as us
from tests.builders import raises
from tests.learners.people import (
    ALL,
    CLASSES,
    CLASSIFIERS,
    FEW,
    NUMBERS,
    OPEN,
    PRIVATE,
    QUICK,
    SCHEMA,
    TABLE,
    TEST,
    named,
    with_settings,
)
from understudy.errors import ConfigError, SchemaError
from understudy.models.predictors import NaiveBayesModel
from understudy.privacy.accounting.events import SubsampledGaussian
from understudy.privacy.accounting.ledger import Guarantee
from understudy.schema import Column, Schema


@pytest.mark.parametrize("learner", CLASSIFIERS, ids=named)
def test_classes_come_from_the_schema(learner: Any) -> None:
    """A class that no row has is a class like any other, with a probability; so is one that all rows have."""
    rare = dataclasses.replace(
        SCHEMA,
        columns=(*SCHEMA.columns[:3], dataclasses.replace(SCHEMA["level"], categories=(*CLASSES, "none", "absent"))),
    )
    fitted = with_settings(learner, schema=rare, guarantee=OPEN, seed=0).fit(TABLE)
    assert fitted.classes_.tolist() == ["absent", "high", "low", "middle", "none"]
    shares = fitted.predict_proba(TEST)
    assert shares.shape == (600, 5)
    assert shares.sum(axis=1) == pytest.approx(1.0)
    assert (shares > 0).all()
    alike = with_settings(learner, guarantee=OPEN, seed=0).fit(TABLE.assign(level="low"))
    assert alike.classes_.tolist() == list(CLASSES)
    assert set(alike.predict(TEST)) == {"low"}


@pytest.mark.parametrize("learner", CLASSIFIERS, ids=named)
def test_undeclared_labels_of_an_open_list_are_not_a_class(learner: Any) -> None:
    """They have a code of their own, so that no declared class learns them."""
    opened = dataclasses.replace(
        SCHEMA, columns=(*SCHEMA.columns[:3], dataclasses.replace(SCHEMA["level"], closed=False))
    )
    odd = TABLE.astype({"level": object})
    odd.loc[:99, "level"] = "unheard of"
    weights = {"class_weight": dict.fromkeys(CLASSES, 1.0)} if "class_weight" in learner.get_params() else {}
    fitted = with_settings(learner, schema=opened, guarantee=OPEN, seed=0, **weights).fit(odd)
    assert fitted.classes_.tolist() == sorted(CLASSES)
    assert fitted.predict_proba(TEST).sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize("learner", ALL, ids=named)
def test_values_outside_are_mapped_and_never_refused(learner: Any) -> None:
    """Clamped numbers, unknown categories and labels, nulls: no error, which would be a query."""
    odd = TABLE.astype({"age": float, "job": object, "level": object})
    odd.loc[:9, "age"], odd.loc[10:19, "pay"], odd.loc[20:29, "job"] = 1e9, -math.inf, "astronaut"
    odd.loc[30:39, "level"], odd.loc[40:49, "job"] = "unheard of", None
    fitted = with_settings(learner, guarantee=OPEN, seed=0).fit(odd)
    extreme, clamped = (TEST.assign(age=age) for age in (10**9, 77))
    assert np.array_equal(fitted.predict(extreme), fitted.predict(clamped))


@pytest.mark.parametrize("learner", [pytest.param(QUICK[0], marks=pytest.mark.slow), *QUICK[1:]], ids=named)
def test_an_empty_table_is_fitted_like_any_other(learner: Any) -> None:
    numeric = isinstance(learner, us.learners.LinearRegression)
    facts = {"target_bounds": (0, 1)} if numeric else {"classes": [0, 1]}
    settings = {"schema": None, "bounds": (0, 1), "num_rows": 50, "guarantee": PRIVATE, "seed": 0}
    fitted = with_settings(learner, **settings, **facts).fit(np.zeros((0, 2)), np.zeros(0))
    assert fitted.predict(np.zeros((3, 2))).shape == (3,)


def test_unknown_labels_become_the_declared_unknown() -> None:
    unknown = dataclasses.replace(
        SCHEMA, columns=(*SCHEMA.columns[:3], dataclasses.replace(SCHEMA["level"], unknown="middle", closed=False))
    )
    fitted = us.learners.ClassPrior(schema=unknown, guarantee=OPEN).fit(TABLE.assign(level="unheard of"))
    assert fitted.predict(TEST)[0] == "middle"


@pytest.mark.parametrize("learner", ALL, ids=named)
def test_all_rows_weigh_by_public_sizes_alone(learner: Any) -> None:
    """The plan, with its noise, is the same for another table of another size."""
    fitted = with_settings(learner, guarantee=PRIVATE, seed=0)
    queries = [fitted.fit(table).statement_.queries for table in (TABLE, TABLE.iloc[:77])]
    assert queries[0] == queries[1]


@pytest.mark.parametrize("learner", ALL, ids=named)
def test_the_budget_is_filled_and_never_passed(learner: Any) -> None:
    fitted = with_settings(learner, guarantee=PRIVATE, seed=0).fit(TABLE)
    assert 0.95 * 0.3 < fitted.spent_ <= 0.3
    assert fitted.statement_.seeded
    assert not fitted.statement_.is_private
    assert "seed" in fitted.certificate_
    assert f"epsilon = {fitted.spent_:.4g}" in fitted.certificate_ or "0.3" in fitted.certificate_


def test_what_the_schema_leaves_open_is_estimated_privately() -> None:
    """The number of rows, categories and bounds of inputs, on the same ledger."""
    bare = Schema(
        columns=(
            Column(name="job", kind="categorical"),
            Column(name="age", kind="integer"),
            Column(name="pay", kind="real", bounds=(0.0, 10.0)),
            SCHEMA["level"],
        ),
        target="level",
    )
    fitted = us.learners.NaiveBayes(schema=bare, guarantee=Guarantee(0.9, 1e-6), seed=0).fit(TABLE)
    assert [query.key for query in fitted.statement_.queries] == ["size", "categories", "bounds", "sums"]
    assert fitted.spent_ <= 0.9
    assert fitted.score(TEST) > 0.5


def test_units_scale_the_noise() -> None:
    """Two rows a person: the same multiplier hides twice as much, and steps draw both rows together."""
    owned = dataclasses.replace(
        SCHEMA, columns=(*SCHEMA.columns, Column(name="who", kind="id")), unit="who", max_rows_per_unit=2
    )
    table = TABLE.assign(who=np.arange(600) // 3)
    for learner in CLASSIFIERS[:3]:
        fitted = with_settings(learner, schema=owned, guarantee=PRIVATE, seed=0).fit(table)
        assert fitted.statement_.max_rows_per_unit == 2
        assert fitted.spent_ <= 0.3
        assert fitted.predict(TEST).shape == (600,)


def test_class_weights_are_public_or_private() -> None:
    rare = pd.concat([TABLE[TABLE.level == "low"], TABLE[TABLE.level == "high"].iloc[:15]])
    plain = us.learners.LogisticRegression(
        schema=SCHEMA, guarantee=OPEN, numbers="positions", sampling_rate=1.0, steps=80, seed=0
    )
    heavy = with_settings(plain, class_weight={"high": 30.0})
    assert heavy.fit(rare).predict_proba(rare)[:, 0].mean() > plain.fit(rare).predict_proba(rare)[:, 0].mean() + 0.02
    bought = with_settings(plain, class_weight="private", guarantee=PRIVATE, **FEW).fit(rare)
    assert [query.key for query in bought.statement_.queries] == ["classes", "steps"]
    assert bought.spent_ <= 0.3
    with raises(ConfigError, setting="class_weight"):
        with_settings(plain, class_weight="balanced").fit(rare)
    with raises(ConfigError, setting="class_weight"):
        with_settings(plain, class_weight={"none": 2.0}).fit(rare)
    with raises(ConfigError, setting="class_weight"):
        with_settings(plain, class_weight=[1.0, 2.0]).fit(rare)


@pytest.mark.parametrize("learner", ALL, ids=named)
def test_a_seed_repeats_and_arrays_hold_all(learner: Any) -> None:
    private = with_settings(learner, guarantee=PRIVATE, seed=5)
    first, again, other = private.fit(TABLE), clone(private).fit(TABLE), with_settings(private, seed=6).fit(TABLE)
    predict = "predict_proba" if hasattr(first, "predict_proba") else "predict"
    shown = [getattr(fitted, predict)(TEST) for fitted in (first, again, other)]
    assert np.array_equal(shown[0], shown[1])
    assert not np.array_equal(shown[0], shown[2])
    structure, arrays = first.to_arrays()
    kept = type(learner).from_arrays(json.loads(json.dumps(structure)), {k: np.array(v) for k, v in arrays.items()})
    assert np.array_equal(getattr(kept, predict)(TEST), shown[0])
    assert kept.statement_ == first.statement_
    assert "seed" not in structure
    wrong = us.learners.ClassPrior if not isinstance(learner, us.learners.ClassPrior) else us.learners.NaiveBayes
    with raises(ConfigError, setting="learner"):
        wrong.from_arrays(structure, arrays)


def test_without_a_seed_runs_differ_and_are_private() -> None:
    learner = us.learners.ClassPrior(schema=SCHEMA, guarantee=PRIVATE)
    first, second = (clone(learner).fit(TABLE) for _ in range(2))
    assert first.statement_.is_private
    assert not np.array_equal(first.predict_proba(TEST), second.predict_proba(TEST))  # alike once in 10^3 or so


def test_a_step_of_a_plan_is_one_of_a_training() -> None:
    """The event that is charged holds the steps, the rate and the noise that the training uses."""
    learner = us.learners.LogisticRegression(schema=SCHEMA, guarantee=PRIVATE, seed=0, **FEW).fit(TABLE)
    (query,) = learner.statement_.queries
    assert isinstance(query.event, SubsampledGaussian)
    assert (query.event.steps, query.event.sampling_rate) == (60, 0.25)


@pytest.mark.parametrize("make", [lambda t: t, pl.from_pandas, pa.Table.from_pandas], ids=["pandas", "polars", "arrow"])
def test_every_frame_will_do(make: Any) -> None:
    whole, test = make(TABLE), make(TEST)
    learner = us.learners.NaiveBayes(schema=SCHEMA, guarantee=OPEN).fit(whole)
    reference = us.learners.NaiveBayes(schema=SCHEMA, guarantee=OPEN).fit(TABLE)
    assert np.array_equal(learner.predict_proba(test), reference.predict_proba(TEST))
    assert learner.score(test) == reference.score(TEST) == reference.score(TEST.drop(columns="level"), TEST.level)
    apart = us.learners.NaiveBayes(schema=SCHEMA, guarantee=OPEN).fit(make(TABLE.drop(columns="level")), TABLE.level)
    assert np.array_equal(apart.predict(test), reference.predict(TEST))


def test_arrays_with_declared_bounds() -> None:
    generator = np.random.default_rng(0)
    x = generator.uniform(-3, 3, size=(400, 2))
    y = (x[:, 0] + 0.3 * generator.standard_normal(400) > 0).astype(int)
    learner = us.learners.LogisticRegression(
        guarantee=OPEN, bounds=(-3, 3), classes=[0, 1], num_rows=400, sampling_rate=1.0, steps=100, learning_rate=0.3
    )
    assert learner.fit(x, y).score(x, y) > 0.9
    assert np.array_equal(learner.classes_, [0, 1])
    assert learner.n_features_in_ == 2
    assert (
        cross_val_score(us.learners.NaiveBayes(guarantee=OPEN, bounds=(-3, 3), classes=[0, 1]), x, y, cv=3).min() > 0.8
    )
    line = us.learners.LinearRegression(
        guarantee=OPEN, bounds=[(-3, 3), (-3, 3)], target_bounds=(-10, 10), num_rows=400
    )
    assert line.fit(x, 2 * x[:, 0] - x[:, 1] + 1).predict([[1.0, 1.0]]) == pytest.approx([2.0], abs=0.01)


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"classes": None}, "classes"),
        ({"classes": [1]}, "classes"),
        ({"bounds": (3, -3)}, "bounds"),
        ({"bounds": [(0, 1)] * 3}, "bounds"),
        ({"guarantee": None}, "guarantee"),
        ({"target": "x0"}, "target"),
        ({"seed": -1}, "seed"),
        ({"steps": 0}, "steps"),
        ({"sampling_rate": 1.5}, "sampling_rate"),
        ({"method": "newton"}, "method"),
        ({"numbers": "words"}, "numbers"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"columns": ["y"]}, "columns"),
        ({"method": "objective", "penalty": 0.0}, "penalty"),
        ({"class_fraction": 1.0}, "class_fraction"),
    ],
)
def test_bad_settings_are_refused_before_any_query(settings: dict[str, Any], setting: str) -> None:
    x, y = np.zeros((10, 2)), np.zeros(10, dtype=int)
    good = {"guarantee": PRIVATE, "bounds": (-1, 1), "classes": [0, 1], "num_rows": 10, "steps": 60}
    with raises(ConfigError, setting=setting):
        us.learners.LogisticRegression(**{**good, **settings}).fit(x, y)
    with raises(SchemaError, column="z"):
        us.learners.LogisticRegression(**good, columns=["z"]).fit(x, y)
    with pytest.raises(ConfigError, match="bounds of the inputs are not declared"):
        us.learners.LogisticRegression(**{**good, "bounds": None}).fit(x, y)


def test_bad_tables_are_refused() -> None:
    good = us.learners.NaiveBayes(schema=SCHEMA, guarantee=OPEN)
    with raises(ConfigError, setting="y"):
        good.fit(TABLE, TABLE.level)
    with raises(SchemaError, column="job"):
        good.fit(TABLE.drop(columns="job"))
    with raises(ConfigError, setting="X"):
        good.fit(TABLE.to_numpy())
    with raises(ConfigError, setting="target"):
        with_settings(good, target="pay").fit(TABLE)
    with raises(ConfigError, setting="target"):
        us.learners.LinearRegression(schema=SCHEMA, guarantee=OPEN).fit(TABLE)
    with raises(ConfigError, setting="target"):
        with_settings(good, schema=dataclasses.replace(SCHEMA, target=None)).fit(TABLE)
    undeclared = dataclasses.replace(SCHEMA, columns=(*SCHEMA.columns[:3], Column(name="level", kind="categorical")))
    with raises(ConfigError, setting="classes"):
        with_settings(good, schema=undeclared).fit(TABLE)
    open_pay = dataclasses.replace(
        NUMBERS, columns=(*SCHEMA.columns[:2], Column(name="pay", kind="real"), SCHEMA["level"])
    )
    with raises(ConfigError, setting="target_bounds"):
        us.learners.LinearRegression(schema=open_pay, guarantee=OPEN).fit(TABLE)
    fitted = good.fit(TABLE)
    with raises(ConfigError, setting="X"):
        fitted.predict(TEST[["job", "age"]])
    with raises(ConfigError, setting="y"):
        fitted.score(TEST.drop(columns="level"))
    alone = Schema(columns=(SCHEMA["level"],), target="level", rows=600)
    with raises(ConfigError, setting="columns"):
        with_settings(good, schema=alone).fit(TABLE[["level"]])


def test_gaussian_noise_needs_a_delta() -> None:
    with raises(ConfigError, setting="delta"):
        Guarantee(1.0, 0.0)


def test_a_nullable_target_has_a_code_for_nulls_and_no_class() -> None:
    nullable = dataclasses.replace(
        SCHEMA, columns=(*SCHEMA.columns[:3], dataclasses.replace(SCHEMA["level"], nullable=True))
    )
    table = TABLE.copy()
    table.loc[:99, "level"] = None
    fitted = us.learners.NaiveBayes(schema=nullable, guarantee=OPEN).fit(table)
    assert fitted.classes_.tolist() == list(CLASSES)
    assert fitted.predict_proba(TEST).sum(axis=1) == pytest.approx(1.0)
    codes = fitted.codec_.encode(pa.Table.from_pandas(TEST))
    assert isinstance(fitted.model_, NaiveBayesModel)
    assert fitted.model_.predict_proba(codes).shape == (600, 4)


def test_the_module_loads_late() -> None:
    assert "learners" in dir(us)
    assert "LogisticRegression" in dir(us.learners)
    with pytest.raises(AttributeError):
        us.learners.Forest  # noqa: B018
