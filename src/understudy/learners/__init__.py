"""Private supervised learners, with the interface of scikit-learn and, inside, that of a synthesizer.

Names load on first use: a synthesizer needs the methods (`understudy.learners.methods`) alone.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from understudy.learners.estimators import ClassPrior as ClassPrior
    from understudy.learners.estimators import LinearRegression as LinearRegression
    from understudy.learners.estimators import LogisticRegression as LogisticRegression
    from understudy.learners.estimators import MLPClassifier as MLPClassifier
    from understudy.learners.estimators import MLPRegressor as MLPRegressor
    from understudy.learners.estimators import NaiveBayes as NaiveBayes

_ESTIMATORS = (
    "ClassPrior",
    "LinearRegression",
    "LogisticRegression",
    "MLPClassifier",
    "MLPRegressor",
    "NaiveBayes",
)

__all__ = [*_ESTIMATORS]


def __getattr__(name: str) -> object:
    if name not in _ESTIMATORS:
        raise AttributeError(f"module 'understudy.learners' has no attribute {name!r}")
    value = getattr(importlib.import_module("understudy.learners.estimators"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
