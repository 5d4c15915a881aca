"""scikit-learn's own checks of estimators.

The checks bring data of their own, so a test class here declares classes and bounds for them: such data are public.
"""

from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import understudy as us
from understudy.schema import Column

OPEN = us.Guarantee.not_private()
WIDE = (-20.0, 20.0)


class _DeclaredClasses:
    """Declares the classes of the labels at hand."""

    def fit(self, X: Any, y: Any = None) -> Any:
        self._labels = y
        return super().fit(X, y)  # type: ignore[misc]  # a mixin: the estimator is its neighbour

    def _target_column(self, name: str) -> Column:
        if self.classes is not None:  # type: ignore[attr-defined]  # a mixin: the estimator is its neighbour
            return super()._target_column(name)  # type: ignore[misc]  # a mixin: the estimator is its neighbour
        categories = tuple(np.unique(np.asarray(self._labels)).tolist())
        if len(categories) == 1:  # one class only in these data: declare another
            other = categories[0] + 1 if not isinstance(categories[0], str) else categories[0] + "_"
            categories = (*categories, other)
        return Column(name=name, kind="categorical", nullable=False, categories=categories, closed=True)


class Logistic(_DeclaredClasses, us.learners.LogisticRegression):
    pass


class Bayes(_DeclaredClasses, us.learners.NaiveBayes):
    pass


class Prior(_DeclaredClasses, us.learners.ClassPrior):
    pass


class Network(_DeclaredClasses, us.learners.MLPClassifier):
    pass


PUBLIC_RULE = "values follow public rules and are never refused: an error about a value would reveal it"
EXPECTED = {
    "check_classifiers_regression_target": PUBLIC_RULE,
    "check_supervised_y_no_nan": PUBLIC_RULE,
    "check_requires_y_none": "the message has other words",
    "check_dtype_object": PUBLIC_RULE,
    "check_estimators_empty_data_messages": "an empty table is fitted like any other: an error would reveal its size",
}


def expected(estimator: Any) -> dict[str, str]:
    return EXPECTED


QUICK = [
    Bayes(guarantee=OPEN, bounds=WIDE, numbers="gaussian", seed=0),
    us.learners.LinearRegression(guarantee=OPEN, bounds=WIDE, target_bounds=(-1000.0, 1000.0), seed=0),
]
SLOW = [
    Prior(guarantee=OPEN, bounds=WIDE, seed=0),
    Logistic(guarantee=OPEN, bounds=WIDE, method="objective", numbers="positions", seed=0),
    Logistic(guarantee=OPEN, bounds=WIDE, sampling_rate=1.0, steps=60, numbers="positions", seed=0, learning_rate=1.0),
    Network(
        guarantee=OPEN,
        bounds=WIDE,
        sampling_rate=1.0,
        steps=60,
        numbers="positions",
        seed=0,
        widths=(8,),
        learning_rate=0.1,
    ),
]


@parametrize_with_checks(QUICK, expected_failed_checks=expected)
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(SLOW, expected_failed_checks=expected)
def test_checks_of_scikit_learn_with_steps(estimator: Any, check: Any) -> None:
    check(estimator)
