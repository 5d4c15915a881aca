"""Parameters of estimators: names, defaults and texts of the learner's dataclass."""

import dataclasses
import inspect
import re
from typing import Any

import pytest
from sklearn.base import ClassifierMixin

import understudy as us
from tests.learners.people import NUMBERS, SCHEMA
from understudy.learners import methods

ESTIMATORS = {getattr(us.learners, name): getattr(us.learners, name)._learner for name in us.learners.__all__}
FACTS = {"schema", "target", "bounds", "num_rows", "binning"}
SHARED = {"guarantee", "seed", "book", "policy", "checkpoint", "resume"} | FACTS
OVERRIDDEN = {(us.learners.LogisticRegression, "penalty")}
"""None there: the default depends on the method."""


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_parameters_are_the_settings_of_the_learner(estimator: Any) -> None:
    settings = {field.name: field.default for field in dataclasses.fields(ESTIMATORS[estimator])}
    parameters = inspect.signature(estimator).parameters
    own = "classes" if issubclass(estimator, ClassifierMixin) else "target_bounds"
    assert set(parameters) == {*settings, *SHARED, own}
    for name, default in settings.items():
        if (estimator, name) not in OVERRIDDEN:
            assert parameters[name].default == default
    assert estimator().get_params() == {name: parameter.default for name, parameter in parameters.items()}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_help_has_a_text_for_each_parameter(estimator: Any) -> None:
    described = dict(re.findall(r"^(\w+) : default .*\n    (\S.*)$", inspect.getdoc(estimator) or "", re.MULTILINE))
    assert set(described) == set(inspect.signature(estimator).parameters)


def test_unknown_parameters_are_refused() -> None:
    with pytest.raises(TypeError, match="steps"):
        us.learners.ClassPrior(steps=3)


def test_settings_reach_the_learner() -> None:
    network = us.learners.MLPClassifier(widths=[8, 4], columns=["age"], class_weight={"low": 2}, steps=7)
    expected = methods.Perceptron(widths=(8, 4), columns=("age",), class_weight=(1.0, 2.0, 1.0), steps=7)
    assert network._method(SCHEMA["level"]) == expected
    assert us.learners.LinearRegression(ridge=0.1)._method(NUMBERS["pay"]) == methods.Linear(ridge=0.1)
    for method in methods.METHODS:
        plain = us.learners.LogisticRegression(method=method)
        assert plain._method(SCHEMA["level"]) == methods.Logistic(method=method)
        assert plain.set_params(penalty=0.5)._method(SCHEMA["level"]) == methods.Logistic(method=method, penalty=0.5)
