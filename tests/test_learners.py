"""Private learners: without noise they are the learners everyone knows; with it, nothing is read off the rows."""

import dataclasses
import json
import math
from typing import Any, cast

import jax
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn import linear_model, naive_bayes
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import understudy as us
from understudy.encoding import assumed_domain
from understudy.errors import BudgetExceeded, ConfigError, SchemaError
from understudy.learners import methods, shells
from understudy.learners.inputs import Inputs, bin_middles, inputs_of
from understudy.learners.models import LogitModel, NaiveBayesModel, NumberModel, model_from_arrays
from understudy.learners.training import Descent, Network, trained, unit_loss
from understudy.privacy.accounting import SubsampledGaussian
from understudy.privacy.gradients import Clip, clipped_sum, exact_gradient
from understudy.privacy.ledger import Budget, Guarantee, Ledger
from understudy.privacy.mechanisms import PaidSteps, Rows
from understudy.privacy.noise import SeededNoise
from understudy.privacy.sampling import Units
from understudy.schema import Column, Domain, Scale, Schema

JOBS = ("cook", "driver", "nurse", "teacher")
CLASSES = ("high", "low", "middle")
SCHEMA = Schema(
    columns=(
        Column(name="job", kind="categorical", nullable=False, categories=JOBS),
        Column(name="age", kind="integer", nullable=False, bounds=(18, 77)),
        Column(name="pay", kind="real", bounds=(0.0, 10.0)),
        Column(name="level", kind="categorical", nullable=False, categories=CLASSES),
    ),
    rows=600,
    target="level",
)
OPEN = Guarantee.not_private()
PRIVATE = Guarantee(0.3, 1e-6)
FEW: dict[str, Any] = {"steps": 60, "rate": 0.25}


def people(size: int = 600, seed: int = 0) -> pd.DataFrame:
    """A table in which the level follows from job, age and pay; `pay` may be missing."""
    generator = np.random.default_rng(seed)
    job = generator.integers(0, 4, size)
    age = generator.integers(18, 78, size)
    pay = np.clip(generator.normal(2 + job + age / 40, 1.0, size), 0.0, 10.0)
    score = pay + generator.normal(0, 0.7, size)
    level = np.where(score > 6.0, "high", np.where(score > 4.2, "middle", "low"))
    shown = np.where(generator.random(size) < 0.05, np.nan, pay)
    return pd.DataFrame({"job": np.asarray(JOBS)[job], "age": age, "pay": shown, "level": level})


TABLE = people()
TEST = people(seed=1)
CLASSIFIERS = [
    us.learners.LogisticRegression(schema=SCHEMA, **FEW),
    us.learners.LogisticRegression(schema=SCHEMA, method="objective", numbers="places"),
    us.learners.NaiveBayes(schema=SCHEMA),
    us.learners.NaiveBayes(schema=SCHEMA, numbers="gaussian"),
    us.learners.ClassPrior(schema=SCHEMA),
]
NUMBERS = dataclasses.replace(SCHEMA, target="pay")
QUICK = [*CLASSIFIERS, us.learners.LinearRegression(schema=NUMBERS, residual=True)]
NETWORKS = [
    us.learners.MLPClassifier(schema=SCHEMA, widths=(8,), **FEW),
    us.learners.MLPRegressor(schema=NUMBERS, widths=(8,), **FEW),
]
"""They go the same way as logistic regression by steps, and take longer."""
ALL = [*QUICK, *(pytest.param(learner, marks=pytest.mark.slow) for learner in NETWORKS)]


def named(learner: Any) -> str:
    return f"{type(learner).__name__}-{getattr(learner, 'method', getattr(learner, 'numbers', ''))}"


def with_settings(learner: Any, **settings: Any) -> Any:
    return clone(learner).set_params(**settings)


def encoded(table: pd.DataFrame = TABLE, schema: Schema = SCHEMA, **settings: Any) -> tuple[Rows, us.Codec]:
    learner = us.learners.ClassPrior(schema=schema.with_target("level"), guarantee=OPEN, **settings).fit(table)
    arrow = pa.Table.from_pandas(table)
    codec = learner.codec_
    codec = dataclasses.replace(codec, schema=schema)
    rows = Rows(codec.encode(arrow), codec.domain, places=lambda: codec.places(arrow), scales=codec.scales)
    return rows, codec


# ---------------------------------------------------------------------------------------------------- without noise


def test_minima_are_not_priced_by_bought_classes() -> None:
    """Each class costs a minimum, so a bought list of classes would move the price."""
    domain = Domain(names=("y", "x"), sizes=(3, 4), num_rows=500, target="y")
    budget = Budget(1.0, 1e-6)
    assert methods.Logistic(method="objective").plan(domain, budget).looks
    with pytest.raises(ConfigError, match="needs the classes of 'y' declared"):
        methods.Logistic(method="objective").plan(dataclasses.replace(domain, bought=("y",)), budget)
    assert "y" in assumed_domain(Schema(columns=(Column(name="y", kind="categorical"),)), us.Binning()).bought


def test_the_objective_is_that_of_scikit_learn() -> None:
    rows, _ = encoded()
    model = methods.Logistic(method="objective", penalty=1e-3).fit(
        rows, methods.Logistic(method="objective").plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key()
    )
    inputs = model.inputs.encode(rows._codes, rows._places)
    labels = rows._codes[:, 3]
    logs = []
    for code in range(3):
        other = linear_model.LogisticRegression(C=1 / (600 * 1e-3), fit_intercept=False, tol=1e-10, max_iter=10_000)
        other.fit(inputs, labels == code)
        assert model.layers.weights[0][code] == pytest.approx(other.coef_[0], abs=1e-4)
        logs.append(other.predict_proba(inputs)[:, 1])
    shares = np.stack(logs, axis=1)
    found = model.predict_proba(rows._codes, rows._places)
    assert found == pytest.approx(shares / shares.sum(axis=1, keepdims=True), abs=1e-5)


def test_steps_lead_to_the_same_classifier() -> None:
    """Every unit in every step and no noise: gradient descent on the multinomial loss."""
    learner = us.learners.LogisticRegression(
        schema=SCHEMA, guarantee=OPEN, rate=1.0, steps=400, learning_rate=0.3, penalty=1e-4, numbers="places"
    ).fit(TABLE)
    rows, _ = encoded()
    assert isinstance(learner.model_, LogitModel)
    inputs, labels = learner.model_.inputs.encode(rows._codes, rows._places), rows._codes[:, 3]
    other = linear_model.LogisticRegression(C=1 / (600 * 1e-4), tol=1e-8, max_iter=10_000).fit(inputs, labels)
    assert learner.predict_proba(TABLE) == pytest.approx(other.predict_proba(inputs), abs=0.03)
    assert np.abs(learner.predict_proba(TABLE) - other.predict_proba(inputs)).mean() < 0.005


def test_naive_bayes_is_that_of_scikit_learn() -> None:
    rows, _ = encoded()
    codes, labels = rows._codes, rows._codes[:, 3]
    by_counts = methods.NaiveBayes(smoothing=1e-9)
    model = by_counts.fit(rows, by_counts.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key())
    other = naive_bayes.CategoricalNB(alpha=1e-9, min_categories=rows.domain.sizes[:3]).fit(codes[:, :3], labels)
    assert model.predict_proba(codes) == pytest.approx(other.predict_proba(codes[:, :3]), abs=1e-6)
    normal = methods.NaiveBayes(numbers="gaussian", columns=("age",), smoothing=1e-9)
    model = normal.fit(rows, normal.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key())
    age = 2 * rows._places[:, 1:2] - 1
    gaussian = naive_bayes.GaussianNB(var_smoothing=0.0).fit(age, labels)
    assert model.predict_proba(codes, rows._places) == pytest.approx(gaussian.predict_proba(age), abs=1e-3)


def test_a_missing_number_says_nothing_in_naive_bayes() -> None:
    rows, codec = encoded()
    normal = methods.NaiveBayes(numbers="gaussian", smoothing=1e-9)
    model = normal.fit(rows, normal.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key())
    known = rows._codes[~np.isnan(rows._places[:, 2])]
    places = 2 * rows._places[~np.isnan(rows._places[:, 2])] - 1
    for code in range(3):
        assert model.means["pay"][code] == pytest.approx(places[known[:, 3] == code, 2].mean(), abs=1e-4)
    missing = np.array([[0, 3, codec.domain.sizes[2] - 1, 0]])
    without = methods.NaiveBayes(numbers="gaussian", columns=("job", "age"), smoothing=1e-9)
    narrow = without.fit(rows, without.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key())
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
    learner = us.learners.MLPClassifier(schema=SCHEMA, guarantee=OPEN, widths=(16,), rate=0.5, steps=150, seed=0)
    assert learner.fit(TABLE).score(TEST) > prior + 0.2
    regression = us.learners.MLPRegressor(schema=NUMBERS, guarantee=OPEN, widths=(16,), rate=0.5, steps=150, seed=0)
    known = TEST[TEST.pay.notna()]
    assert regression.fit(TABLE).score(known) > 0.5


def ledger(guarantee: Guarantee = OPEN, seed: int = 0) -> Ledger:
    return Ledger(guarantee, noise=SeededNoise(seed))


def key() -> Any:
    return jax.random.key(0)


# ------------------------------------------------------------------------------------------------------ what is public


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


@pytest.mark.parametrize("learner", ALL, ids=named)
def test_values_outside_are_mapped_and_never_refused(learner: Any) -> None:
    """Clamped numbers, unknown categories and labels, nulls: no error, which would be a look."""
    odd = TABLE.astype({"age": float, "job": object, "level": object})
    odd.loc[:9, "age"], odd.loc[10:19, "pay"], odd.loc[20:29, "job"] = 1e9, -math.inf, "astronaut"
    odd.loc[30:39, "level"], odd.loc[40:49, "job"] = "unheard of", None
    fitted = with_settings(learner, guarantee=OPEN, seed=0).fit(odd)
    extreme, clamped = (TEST.assign(age=age) for age in (10**9, 77))
    assert np.array_equal(fitted.predict(extreme), fitted.predict(clamped))


READINGS = {
    "floats as texts, and a text": (["0", "1"], [1.0, 0.0, 1.0], "x"),
    "floats as whole numbers, and a text": ([1, 0], [1.0, 0.0, 1.0], "x"),
    "booleans as texts, and a whole number": (["True", "False"], [True, False, True], 2),
    "booleans, and a text": ([True, False], [True, False, True], "x"),
    "great whole numbers, and a missing one": ([2**53 + 1, 2**53], [2**53 + 1, 2**53, 2**53 + 1], math.nan),
    "whole numbers, and a null": ([1, 0], [1, 0, 1], None),
    "texts, and a number": (["a", "b"], ["a", "b", "a"], 3),
    "texts, and no plain value": (["a", "b"], ["a", "b", "a"], {"a": 1}),
    "whole numbers, and one beyond all floats": ([1, 0], [1, 0, 1], 10**330),
}


@pytest.mark.parametrize("case", READINGS)
@pytest.mark.parametrize("given", ["list", "objects", "series", "beside a frame"])
def test_no_label_changes_how_another_is_read(case: str, given: str) -> None:
    """One more row, whatever is in it: the others keep their codes."""
    classes, labels, extra = cast(tuple[Any, Any, Any], READINGS[case])
    schema = None
    if given == "beside a frame":
        column = Column(name="y", kind="categorical", nullable=False, categories=tuple(classes))
        schema = Schema(columns=(Column(name="x", kind="real", bounds=(0, 1)), column), target="y", rows=9)
    learner = us.learners.ClassPrior(guarantee=OPEN, bounds=(0, 1), classes=classes, num_rows=9, schema=schema)
    read = []
    for y in (labels, [*labels, extra]):
        x: Any = pd.DataFrame({"x": np.full(len(y), 0.5)}) if schema else np.full((len(y), 1), 0.5)
        shown: Any = y
        if given == "objects":
            shown = np.empty(len(y), dtype=object)
            shown[:] = y
        elif given == "series":
            shown = pd.Series(y, dtype=object)
        _, table = learner._declared_table(x, shown)
        column_type = table.schema.field("y").type
        read.append((column_type, table.column("y").to_pylist()))
    assert read[0][0] == read[1][0]
    assert read[0][1] == read[1][1][:3]
    assert len(set(read[0][1])) == 2


def test_codes_of_labels_follow_their_own_values() -> None:
    """The whole way, through a fit: 500 times the same label, and one stray row."""
    for y in ([1.0] * 500, [1.0] * 500 + ["x"]):
        prior = us.learners.ClassPrior(guarantee=OPEN, bounds=(0, 1), classes=["0", "1"], num_rows=500)
        assert prior.fit([[0.5]] * len(y), y).predict_proba([[0.5]])[0, 1] > 0.99


@pytest.mark.parametrize(
    "stray", ["secret-name", None, 10**400, 10**330, 1j, {"a": 1}, pd.Timestamp("2020-01-01"), True]
)
@pytest.mark.parametrize("given", ["list", "objects", "frame"])
def test_no_input_is_refused_or_changes_another(stray: Any, given: str) -> None:
    cells = [[0.25, 0.5], [0.75, 0.5], [0.5, stray]]
    x: Any = cells
    if given == "objects":
        x = np.empty((3, 2), dtype=object)
        x[:] = cells
    elif given == "frame":
        x = pd.DataFrame({"a": [0.25, 0.75, 0.5], "b": pd.Series([0.5, 0.5, stray], dtype=object)})
    array = shells._as_floats(x)
    assert array.dtype == np.float64
    assert np.array_equal(array[:, 0], [0.25, 0.75, 0.5])
    assert np.array_equal(array[:2, 1], [0.5, 0.5])
    known: dict[Any, float] = {True: 1.0, 10**400: math.inf, 10**330: math.inf}
    expected = known.get(stray if isinstance(stray, int) else None, math.nan)
    assert array[2, 1] == pytest.approx(expected, nan_ok=True)
    learner = us.learners.ClassPrior(guarantee=OPEN, bounds=(0, 1), classes=[0, 1], num_rows=3)
    assert learner.fit(x, [0, 1, 1]).predict(x).shape == (3,)


@pytest.mark.parametrize("learner", [pytest.param(QUICK[0], marks=pytest.mark.slow), *QUICK[1:]], ids=named)
def test_a_run_with_nobody_in_it_is_answered(learner: Any) -> None:
    numeric = isinstance(learner, us.learners.LinearRegression)
    facts = {"target_bounds": (0, 1)} if numeric else {"classes": [0, 1]}
    settings = {"schema": None, "bounds": (0, 1), "num_rows": 50, "guarantee": PRIVATE, "seed": 0}
    fitted = with_settings(learner, **settings, **facts).fit(np.zeros((0, 2)), np.zeros(0))
    assert fitted.predict(np.zeros((3, 2))).shape == (3,)


def test_refusals_of_shapes_quote_no_value() -> None:
    learner = us.learners.ClassPrior(guarantee=OPEN, bounds=(0, 1), classes=[0, 1], num_rows=3)
    for x, y in (
        ([0.73629, 0.73629], [0, 1]),
        (np.full(2, 0.73629), [0, 1]),
        ([[0.73629], [0.73629, 0.5]], [0, 1]),
        ([[0.5], [0.5]], [[0.73629, 0.5], [0.5, 0.5]]),
        ([["0.73629"]], [0, 1]),
    ):
        with pytest.raises(ValueError, match=r"array|samples") as refusal:
            learner.fit(x, y)
        assert "73629" not in str(refusal.value)


def test_unknown_labels_become_the_declared_unknown() -> None:
    unknown = dataclasses.replace(
        SCHEMA, columns=(*SCHEMA.columns[:3], dataclasses.replace(SCHEMA["level"], unknown="middle"))
    )
    fitted = us.learners.ClassPrior(schema=unknown, guarantee=OPEN).fit(TABLE.assign(level="unheard of"))
    assert fitted.predict(TEST)[0] == "middle"


@pytest.mark.parametrize("learner", ALL, ids=named)
def test_all_rows_weigh_by_public_sizes_alone(learner: Any) -> None:
    """The plan, with its noise, is the same for another table of another size."""
    fitted = with_settings(learner, guarantee=PRIVATE, seed=0)
    looks = [fitted.fit(table).statement_.looks for table in (TABLE, TABLE.iloc[:77])]
    assert looks[0] == looks[1]


@pytest.mark.parametrize("learner", ALL, ids=named)
def test_the_budget_is_filled_and_never_passed(learner: Any) -> None:
    fitted = with_settings(learner, guarantee=PRIVATE, seed=0).fit(TABLE)
    assert 0.95 * 0.3 < fitted.spent_ <= 0.3
    assert fitted.statement_.seeded
    assert not fitted.statement_.is_private
    assert "seed" in fitted.certificate_
    assert f"epsilon = {fitted.spent_:.4g}" in fitted.certificate_ or "0.3" in fitted.certificate_


def test_what_the_schema_leaves_open_is_bought() -> None:
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
    assert [look.key for look in fitted.statement_.looks] == ["size", "categories", "bounds", "sums"]
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


# ----------------------------------------------------------------------------------------------------- class weights


def test_class_weights_are_public_or_bought() -> None:
    rare = pd.concat([TABLE[TABLE.level == "low"], TABLE[TABLE.level == "high"].iloc[:15]])
    plain = us.learners.LogisticRegression(schema=SCHEMA, guarantee=OPEN, numbers="places", rate=1.0, steps=80, seed=0)
    heavy = with_settings(plain, class_weight={"high": 30.0})
    assert heavy.fit(rare).predict_proba(rare)[:, 0].mean() > plain.fit(rare).predict_proba(rare)[:, 0].mean() + 0.02
    bought = with_settings(plain, class_weight="bought", guarantee=PRIVATE, **FEW).fit(rare)
    assert [look.key for look in bought.statement_.looks] == ["classes", "steps"]
    assert bought.spent_ <= 0.3
    with pytest.raises(ConfigError, match="read off the rows"):
        with_settings(plain, class_weight="balanced").fit(rare)
    with pytest.raises(ConfigError, match="no class"):
        with_settings(plain, class_weight={"none": 2.0}).fit(rare)
    with pytest.raises(ConfigError, match="3 classes"):
        with_settings(plain, class_weight=[1.0, 2.0]).fit(rare)


def test_bought_weights_are_one_over_noisy_shares() -> None:
    rows, _ = encoded()
    bought = methods.Logistic(class_weight="bought")
    plan = bought.plan(rows.domain, Budget(math.inf, 1e-6))
    weights = methods.class_weights("bought", rows, "level", plan, ledger())
    counts = np.bincount(rows._codes[:, 3], minlength=3)
    assert weights * counts == pytest.approx(np.full(3, (weights * counts)[0]))
    assert weights.mean() == pytest.approx(1.0)


def test_sums_of_steps_are_divided_by_the_public_batch() -> None:
    """Ridge regression in closed form: its penalty counts against the declared batch, not the rows that there are."""
    generator = np.random.default_rng(0)
    rows = np.c_[generator.uniform(-1, 1, 50), generator.uniform(-1, 1, 50)].astype(np.float32)
    units = Units(jax.numpy.asarray(rows[:, None]), jax.numpy.ones((50, 1), dtype=bool))
    found = trained(
        Network((1, 1), key=key()),
        methods._half_square,
        PaidSteps(units, 1.0, 0.0, 300),
        Descent(batch=200, clip=1.0, learning_rate=0.05, penalty=0.1),
        key=key(),
    ).as_arrays()
    inputs = np.c_[rows[:, 0], np.ones(50)].astype(float)
    exact = np.linalg.solve(inputs.T @ inputs + 200 * 0.1 * np.eye(2), inputs.T @ rows[:, 1])
    assert [found.weights[0][0, 0], found.biases[0][0]] == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize("weight", [1.0, 50.0])
def test_weights_come_before_the_clip(weight: float) -> None:
    """However heavy a class, a unit adds at most the clip: sums of one step, with noise far below."""
    of_unit = unit_loss(methods._cross_entropy(np.array([weight, 1.0])))
    network = Network((3, 2), key=key())
    row = np.array([[[0.6, 0.0, 0.8, 0.0]]], dtype=np.float32)  # three inputs, and class 0
    units = (jax.numpy.asarray(row), jax.numpy.ones((1, 1), dtype=bool), None, jax.random.split(key(), 1))
    summed, _ = clipped_sum(of_unit, network, units, jax.numpy.ones(1, dtype=bool), Clip.flat(0.5))
    norm = math.sqrt(
        sum(float((leaf**2).sum()) for leaf in jax.tree_util.tree_leaves(exact_gradient(summed, Clip.flat(0.5))))
    )
    assert norm == pytest.approx(0.5, rel=0.01)


# ----------------------------------------------------------------------------------------------------- same and stored


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
    with pytest.raises(ConfigError, match="Expected"):
        wrong.from_arrays(structure, arrays)


def test_without_a_seed_runs_differ_and_are_private() -> None:
    learner = us.learners.ClassPrior(schema=SCHEMA, guarantee=PRIVATE)
    first, second = (clone(learner).fit(TABLE) for _ in range(2))
    assert first.statement_.is_private
    assert not np.array_equal(first.predict_proba(TEST), second.predict_proba(TEST))  # alike once in 10^3 or so


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="Expected a learner"):
        model_from_arrays({"kind": "forest"}, {})


# -------------------------------------------------------------------------------------------------------- on codes


def test_models_take_codes_with_or_without_the_target() -> None:
    """What a wrapper of synthesizers needs: rows without the target, and no places, get labels."""
    rows, _ = encoded()
    for method in (methods.Logistic(**FEW), methods.NaiveBayes(numbers="gaussian"), methods.Prior()):
        model = method.fit(rows, method.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key())
        whole, without = rows._codes, rows._codes[:, :3]
        assert np.array_equal(model.predict_proba(whole), model.predict_proba(without))
        assert model.predict_proba(whole).shape == (600, 3)
        likely = model.labels(without, how="argmax", key=key())
        assert np.array_equal(likely, model.predict_proba(without).argmax(axis=1))
        drawn = model.labels(np.repeat(without[:1], 4000, axis=0), key=key())
        shares = np.bincount(drawn, minlength=3) / 4000
        # Five standard deviations of a share.
        assert shares == pytest.approx(model.predict_proba(without[:1])[0], abs=5 * 0.5 / math.sqrt(4000))
    with pytest.raises(ConfigError, match="columns"):
        methods.Logistic(**FEW).fit(
            rows, methods.Logistic(**FEW).plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key()
        ).predict(rows._codes[:, :2])


def test_numbers_get_places_codes_and_draws() -> None:
    rows, codec = encoded(schema=NUMBERS)
    method = methods.Linear(residual=True)
    model = method.fit(rows, method.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key())
    others = np.delete(rows._codes, 2, axis=1)
    found = model.predict(others)
    assert ((found >= 0) & (found <= 1)).all()
    bins = model.labels(others, how="argmax", key=key())
    edges = np.asarray(codec.scales[2].edges)  # type: ignore[union-attr]
    assert (edges[bins] <= found).all()
    assert (found <= edges[bins + 1]).all()
    drawn = model.drawn(np.repeat(others[:1], 3000, axis=0), key=key())
    assert drawn.std() == pytest.approx(model.residual_stddev, rel=0.1)
    assert drawn.mean() == pytest.approx(found[0], abs=0.02)
    plain = methods.Linear()
    bare = plain.fit(rows, plain.plan(rows.domain, Budget(math.inf, 1e-6)), ledger(), key=key())
    with pytest.raises(ConfigError, match="not bought"):
        bare.labels(others, key=key())


def test_inputs_have_norm_one_at_most() -> None:
    rows, _ = encoded()
    for numbers in ("places", "bins", "both"):
        for intercept in (False, True):
            inputs = inputs_of(rows.domain, rows.scales, "level", numbers=numbers, intercept=intercept)
            features = inputs.encode(rows._codes, rows._places)
            assert features.shape == (600, inputs.width) == (600, len(inputs.input_names))
            assert np.linalg.norm(features, axis=1).max() <= 1 + 1e-12
            assert Inputs.from_dict(json.loads(json.dumps(inputs.to_dict()))) == inputs
            exclusive = methods.exclusive(inputs)
            gram = features.T @ features
            assert (gram[exclusive] == 0).all()
            assert inputs.of_column.shape == (inputs.width,)


def test_without_places_numbers_stand_in_the_middle_of_their_bins() -> None:
    scale = Scale(run_edges=(0.0, 0.2, 0.4, 1.0), run_masses=(0.25, 0.75, 0.0), first_run=(0, 2, 3))
    assert bin_middles(scale) == pytest.approx((0.25, 0.7), abs=1e-6)
    domain = Domain(names=("x", "y"), sizes=(2, 2), num_rows=10, target="y", numbers=("x",))
    inputs = inputs_of(domain, (scale, None), "y", numbers="places")
    assert inputs.encode(np.array([[0, 1], [1, 0]]))[:, 0] == pytest.approx([-0.5, 0.4], abs=1e-6)


def test_one_ledger_holds_a_learner_and_what_comes_before() -> None:
    """Priced after other looks, a learner takes what they leave, and a ledger refuses a plan that was not."""
    rows, _ = encoded()
    book = ledger(PRIVATE)
    prior = methods.Prior()
    prior.fit(rows, prior.plan(rows.domain, book.remaining.part(0.5)), book, key=key())
    learner = methods.NaiveBayes()
    with pytest.raises(BudgetExceeded):
        learner.fit(rows, learner.plan(rows.domain, ledger(PRIVATE).remaining), book, key=key())
    assert len(book.looks) == 1
    learner.fit(rows, learner.plan(rows.domain, book.remaining), book, key=key())
    assert 0.95 * 0.3 < book.spent().epsilon <= 0.3


def test_a_step_of_a_plan_is_one_of_a_training() -> None:
    """The event that is charged holds the steps, the rate and the noise that the training uses."""
    learner = us.learners.LogisticRegression(schema=SCHEMA, guarantee=PRIVATE, seed=0, **FEW).fit(TABLE)
    (look,) = learner.statement_.looks
    assert isinstance(look.event, SubsampledGaussian)
    assert (look.event.steps, look.event.rate) == (60, 0.25)


# ------------------------------------------------------------------------------------------------- tables and arrays


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
        guarantee=OPEN, bounds=(-3, 3), classes=[0, 1], num_rows=400, rate=1.0, steps=100, learning_rate=0.3
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
    ("settings", "message"),
    [
        ({"bounds": None}, "bounds of the inputs are not declared"),
        ({"classes": None}, "classes are not declared"),
        ({"classes": [1]}, "one class only"),
        ({"bounds": (3, -3)}, "low below high"),
        ({"bounds": [(0, 1)] * 3}, "Bounds must be"),
        ({"guarantee": None}, "Say what to guarantee"),
        ({"target": "x0"}, "among the inputs"),
        ({"seed": -1}, "seed must be"),
        ({"steps": 0}, "steps must be"),
        ({"rate": 1.5}, "sampling rate"),
        ({"method": "newton"}, "method must be"),
        ({"numbers": "words"}, "numbers must be"),
        ({"clip": 0.0}, "clip must be"),
        ({"columns": ["y"]}, "among the columns"),
        ({"columns": ["z"]}, "no column"),
        ({"method": "objective", "penalty": 0.0}, "positive penalty"),
        ({"class_share": 1.0}, "class_share must be a number above 0 and below 1"),
    ],
)
def test_bad_settings_are_refused_before_any_look(settings: dict[str, Any], message: str) -> None:
    x, y = np.zeros((10, 2)), np.zeros(10, dtype=int)
    good = {"guarantee": PRIVATE, "bounds": (-1, 1), "classes": [0, 1], "num_rows": 10, "steps": 60}
    with pytest.raises((ConfigError, SchemaError), match=message):
        us.learners.LogisticRegression(**{**good, **settings}).fit(x, y)


def test_bad_tables_are_refused() -> None:
    good = us.learners.NaiveBayes(schema=SCHEMA, guarantee=OPEN)
    with pytest.raises(ConfigError, match="among the inputs, and y is given"):
        good.fit(TABLE, TABLE.level)
    with pytest.raises(SchemaError, match="not in the table"):
        good.fit(TABLE.drop(columns="job"))
    with pytest.raises(ConfigError, match="is a pandas, polars or Arrow table"):
        good.fit(TABLE.to_numpy())
    with pytest.raises(ConfigError, match="predicts categories"):
        with_settings(good, target="pay").fit(TABLE)
    with pytest.raises(ConfigError, match="predicts a number"):
        us.learners.LinearRegression(schema=SCHEMA, guarantee=OPEN).fit(TABLE)
    with pytest.raises(ConfigError, match="no target"):
        with_settings(good, schema=dataclasses.replace(SCHEMA, target=None)).fit(TABLE)
    undeclared = dataclasses.replace(SCHEMA, columns=(*SCHEMA.columns[:3], Column(name="level", kind="categorical")))
    with pytest.raises(ConfigError, match="classes of 'level' are not declared"):
        with_settings(good, schema=undeclared).fit(TABLE)
    open_pay = dataclasses.replace(
        NUMBERS, columns=(*SCHEMA.columns[:2], Column(name="pay", kind="real"), SCHEMA["level"])
    )
    with pytest.raises(ConfigError, match="bounds of 'pay' are not declared"):
        us.learners.LinearRegression(schema=open_pay, guarantee=OPEN).fit(TABLE)
    fitted = good.fit(TABLE)
    with pytest.raises(ConfigError, match="lacks columns"):
        fitted.predict(TEST[["job", "age"]])
    with pytest.raises(ConfigError, match="no labels"):
        fitted.score(TEST.drop(columns="level"))
    alone = Schema(columns=(SCHEMA["level"],), target="level", rows=600)
    with pytest.raises(ConfigError, match="no column to predict from"):
        with_settings(good, schema=alone).fit(TABLE[["level"]])


def test_gaussian_noise_needs_a_delta() -> None:
    with pytest.raises(ConfigError, match="delta"):
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


def test_a_wrong_number_of_labels_tells_no_number_of_rows() -> None:
    learner = us.learners.ClassPrior(guarantee=OPEN, bounds=(0, 1), classes=[0, 1], num_rows=9)
    with pytest.raises(ValueError, match="inconsistent numbers of samples") as caught:
        learner.fit(np.full((1237, 1), 0.5), [0] * 1236)
    assert "123" not in str(caught.value)
