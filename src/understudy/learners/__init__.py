"""Private supervised learners: on encoded rows (`methods`), and as scikit-learn estimators (`sklearn`).

Estimators load on first use, because a synthesizer needs `methods` alone.

>>> import numpy as np, understudy as us
>>> model = us.learners.NaiveBayes(guarantee=us.Guarantee(epsilon=1.0), bounds=(0.0, 1.0), classes=[0, 1])
>>> rows, labels = np.tile([[0.1], [0.9]], (200, 1)), np.tile([0, 1], 200)
>>> model.fit(rows, labels).predict(rows[:2]).shape
(2,)
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from understudy.learners.sklearn import ClassPrior as ClassPrior
    from understudy.learners.sklearn import LinearRegression as LinearRegression
    from understudy.learners.sklearn import LogisticRegression as LogisticRegression
    from understudy.learners.sklearn import MLPClassifier as MLPClassifier
    from understudy.learners.sklearn import MLPRegressor as MLPRegressor
    from understudy.learners.sklearn import NaiveBayes as NaiveBayes

__all__ = ["ClassPrior", "LinearRegression", "LogisticRegression", "MLPClassifier", "MLPRegressor", "NaiveBayes"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'understudy.learners' has no attribute {name!r}")
    value = getattr(importlib.import_module("understudy.learners.sklearn"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
