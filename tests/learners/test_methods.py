"""Learners on encoded rows: without noise they are the learners of scikit-learn."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from sklearn import linear_model, naive_bayes

import understudy as us
from tests.builders import raises
from tests.learners.people import (
    NUMBERS,
    OPEN,
    PRIVATE,
    SCHEMA,
    TABLE,
    TEST,
    encoded,
    key,
    ledger,
)
from understudy.encoding import assumed_domain
from understudy.errors import BudgetExceeded, ConfigError
from understudy.learners import methods
from understudy.models.predictors import LogitModel, NumberModel
from understudy.privacy.accounting.ledger import Budget
from understudy.schema import Column, Domain, Schema
from understudy.synthesizers.run import Run


def test_the_cost_of_minima_never_depends_on_private_classes() -> None:
    """Each class costs a minimum, so an estimated list of classes would change the cost."""
    domain = Domain(names=("y", "x"), sizes=(3, 4), num_rows=500, target="y")
    budget = Budget(1.0, 1e-6)
    assert methods.Logistic(method="objective").plan(domain, budget).queries
    with raises(ConfigError, setting="method"):
        methods.Logistic(method="objective").plan(dataclasses.replace(domain, estimated=("y",)), budget)
    assert "y" in assumed_domain(Schema(columns=(Column(name="y", kind="categorical"),)), us.Binning()).estimated


def test_the_objective_is_that_of_scikit_learn() -> None:
    rows, _ = encoded()
    plan = methods.Logistic(method="objective").plan(rows.domain, Budget(math.inf, 1e-6))
    model = methods.Logistic(method="objective", penalty=1e-3).fit(Run(rows, plan, ledger(), key=key()))
    inputs = model.inputs.encode(rows._codes, rows._positions)
    labels = rows._codes[:, 3]
    logs = []
    for code in range(3):
        other = linear_model.LogisticRegression(C=1 / (600 * 1e-3), fit_intercept=False, tol=1e-10, max_iter=10_000)
        other.fit(inputs, labels == code)
        assert model.layers.weights[0][code] == pytest.approx(other.coef_[0], abs=1e-4)
        logs.append(other.predict_proba(inputs)[:, 1])
    shares = np.stack(logs, axis=1)
    found = model.predict_proba(rows._codes, rows._positions)
    assert found == pytest.approx(shares / shares.sum(axis=1, keepdims=True), abs=1e-5)


def test_steps_lead_to_the_same_classifier() -> None:
    """Every unit in every step and no noise: gradient descent on the multinomial loss."""
    learner = us.learners.LogisticRegression(
        schema=SCHEMA,
        guarantee=OPEN,
        sampling_rate=1.0,
        steps=400,
        learning_rate=0.3,
        penalty=1e-4,
        numbers="positions",
    ).fit(TABLE)
    rows, _ = encoded()
    assert isinstance(learner.model_, LogitModel)
    inputs, labels = learner.model_.inputs.encode(rows._codes, rows._positions), rows._codes[:, 3]
    other = linear_model.LogisticRegression(C=1 / (600 * 1e-4), tol=1e-8, max_iter=10_000).fit(inputs, labels)
    assert learner.predict_proba(TABLE) == pytest.approx(other.predict_proba(inputs), abs=0.03)
    assert np.abs(learner.predict_proba(TABLE) - other.predict_proba(inputs)).mean() < 0.005


def test_naive_bayes_is_that_of_scikit_learn() -> None:
    rows, _ = encoded()
    codes, labels = rows._codes, rows._codes[:, 3]
    by_counts = methods.NaiveBayes(smoothing=1e-9)
    model = by_counts.fit(Run(rows, by_counts.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key()))
    other = naive_bayes.CategoricalNB(alpha=1e-9, min_categories=rows.domain.sizes[:3]).fit(codes[:, :3], labels)
    assert model.predict_proba(codes) == pytest.approx(other.predict_proba(codes[:, :3]), abs=1e-6)
    normal = methods.NaiveBayes(numbers="gaussian", columns=("age",), smoothing=1e-9)
    model = normal.fit(Run(rows, normal.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key()))
    age = 2 * rows._positions[:, 1:2] - 1
    gaussian = naive_bayes.GaussianNB(var_smoothing=0.0).fit(age, labels)
    assert model.predict_proba(codes, rows._positions) == pytest.approx(gaussian.predict_proba(age), abs=1e-3)


def test_a_missing_number_says_nothing_in_naive_bayes() -> None:
    rows, codec = encoded()
    normal = methods.NaiveBayes(numbers="gaussian", smoothing=1e-9)
    model = normal.fit(Run(rows, normal.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key()))
    known = rows._codes[~np.isnan(rows._positions[:, 2])]
    positions = 2 * rows._positions[~np.isnan(rows._positions[:, 2])] - 1
    for code in range(3):
        assert model.means["pay"][code] == pytest.approx(positions[known[:, 3] == code, 2].mean(), abs=1e-4)
    missing = np.array([[0, 3, codec.domain.sizes[2] - 1, 0]])
    without = methods.NaiveBayes(numbers="gaussian", columns=("job", "age"), smoothing=1e-9)
    narrow = without.fit(Run(rows, without.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key()))
    assert model.predict_proba(missing) == pytest.approx(narrow.predict_proba(missing), abs=1e-12)


def test_linear_regression_is_that_of_scikit_learn() -> None:
    learner = us.learners.LinearRegression(schema=NUMBERS, guarantee=OPEN, residual=True).fit(TABLE)
    known = TABLE[TABLE.pay.notna()]
    frame = pd.get_dummies(known[["job", "age", "level"]], columns=["job", "level"]).astype(float)
    other = linear_model.LinearRegression().fit(frame, known.pay)
    assert learner.predict(known) == pytest.approx(other.predict(frame), abs=0.01)
    spread = float(np.sqrt(np.mean((known.pay - other.predict(frame)) ** 2)))
    share = math.sqrt(len(known) / 600)  # the mean is over the public number of rows
    assert isinstance(learner.model_, NumberModel)
    assert learner.model_.residual_stddev is not None
    assert learner.model_.residual_stddev * 10 == pytest.approx(spread * share, rel=0.01)
    assert learner.score(known) == pytest.approx(other.score(frame, known.pay), abs=1e-3)


def test_the_prior_is_the_shares() -> None:
    learner = us.learners.ClassPrior(schema=SCHEMA, guarantee=OPEN, smoothing=1e-9).fit(TABLE)
    shares = TABLE.level.value_counts(normalize=True).sort_index()
    assert learner.predict_proba(TEST)[0] == pytest.approx(shares.to_numpy(), abs=1e-6)


@pytest.mark.slow
def test_networks_learn() -> None:
    """Well above the prior, without noise and with a little."""
    prior = us.learners.ClassPrior(schema=SCHEMA, guarantee=OPEN).fit(TABLE).score(TEST)
    learner = us.learners.MLPClassifier(
        schema=SCHEMA, guarantee=OPEN, widths=(16,), sampling_rate=0.5, steps=150, seed=0
    )
    assert learner.fit(TABLE).score(TEST) > prior + 0.2
    regression = us.learners.MLPRegressor(
        schema=NUMBERS, guarantee=OPEN, widths=(16,), sampling_rate=0.5, steps=150, seed=0
    )
    known = TEST[TEST.pay.notna()]
    assert regression.fit(TABLE).score(known) > 0.5


def test_private_weights_are_the_inverse_of_noisy_counts() -> None:
    rows, _ = encoded()
    bought = methods.Logistic(class_weight="private")
    plan = bought.plan(rows.domain, Budget(math.inf, 1e-6))
    weights = methods.class_weights("private", Run(rows, plan, ledger(), key=key()), "level")
    counts = np.bincount(rows._codes[:, 3], minlength=3)
    assert weights * counts == pytest.approx(np.full(3, (weights * counts)[0]))
    assert weights.mean() == pytest.approx(1.0)


def test_one_ledger_holds_a_learner_and_what_comes_before() -> None:
    """Planned after other queries, a learner takes what they leave, and a ledger refuses a plan that was not."""
    rows, _ = encoded()
    book = ledger(PRIVATE)
    prior = methods.Prior()
    prior.fit(Run(rows, prior.plan(rows.domain, book.remaining.fraction(0.5)), book, key=key()))
    learner = methods.NaiveBayes()
    with pytest.raises(BudgetExceeded):
        learner.fit(Run(rows, learner.plan(rows.domain, ledger(PRIVATE).remaining), book, key=key()))
    assert len(book.queries) == 1
    learner.fit(Run(rows, learner.plan(rows.domain, book.remaining), book, key=key()))
    assert 0.95 * 0.3 < book.spent().epsilon <= 0.3
