"""Classifiers of one column, trained on one table and scored on another.

Train-on-synthetic, train-on-real and train-and-test-on-synthetic are the same function, `learn`. Real and synthetic
rows share the features of the layout.
"""

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import rankdata
from sklearn.base import BaseEstimator
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from understudy.errors import ConfigError, SchemaError, did_you_mean
from understudy.evaluation.parallel import run_in_threads
from understudy.evaluation.predictions import SCORES, Predictions, bootstrap_error
from understudy.evaluation.scores import Json, Result, Score, echo_settings
from understudy.evaluation.table import ColumnSpec, EncodedTable

RowLimit = int | Mapping[str, int | None] | None


def _xgboost(seed: int) -> BaseEstimator:
    from xgboost import XGBClassifier

    return XGBClassifier(max_depth=6, learning_rate=0.3, n_estimators=10, n_jobs=1, random_state=seed)


CLASSIFIERS: dict[str, Callable[[int], BaseEstimator]] = {
    "adaboost": lambda seed: AdaBoostClassifier(random_state=seed),
    "bagging": lambda seed: BaggingClassifier(random_state=seed),
    "logistic": lambda seed: LogisticRegression(),
    "mlp": lambda seed: MLPClassifier(random_state=seed),
    "random_forest": lambda seed: RandomForestClassifier(random_state=seed),
    "gradient_boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
    "logistic_unpenalised": lambda seed: LogisticRegression(C=math.inf, max_iter=1000),
    "xgboost": _xgboost,
    "score_lr": lambda seed: LogisticRegression(max_iter=1000),
    "score_rf": lambda seed: RandomForestClassifier(min_samples_leaf=5, random_state=seed),
}
"""Constructors by name, taking a seed. The first five are those of the QUAIL paper, with scikit-learn's defaults."""

QUAIL = ("adaboost", "bagging", "logistic", "mlp", "random_forest")
"""The best of these is what the QUAIL paper reports."""
OPTIONAL = "xgboost"
"""An optional dependency: reported in the details but in no mean, which would otherwise depend on the machine."""
MODELS = ("mlp", "random_forest", "gradient_boosting", "bagging", "adaboost", "logistic")
"""The default models, slowest first so that two threads finish together."""
MAX_ROWS: Mapping[str, int | None] = {name: 4_000 if name == "mlp" else 20_000 for name in CLASSIFIERS}
"""The default limits of training rows. The neural network takes by far the longest."""
KEYS = (*SCORES, "f1_best", "auc_best")


def rarer_class(real: EncodedTable, target: str) -> object:
    """The default positive class: the rarer of two in these rows, the later one in a tie; None if there are not two."""
    categories = real.layout[target].categories
    if len(categories) != 2:
        return None
    first, second = (int(np.sum(real[target] == code)) for code in (0, 1))
    return categories[0] if first < second else categories[1]


@echo_settings
def learn(
    train: EncodedTable,
    test: EncodedTable,
    *,
    target: str,
    positive: object = None,
    models: Sequence[str] = MODELS,
    max_rows: RowLimit = MAX_ROWS,
    bootstrap: int = 0,
    seed: int = 0,
) -> Result:
    """Train classifiers of `target` on one table and score them on another.

    Keys: accuracy, f1, auc and pr_auc, each the mean over the models, without XGBoost where there are others; f1_best
    and auc_best, the best of those models of the QUAIL paper that were trained. With two classes F1, AUC and PR AUC
    are those of the positive class, and no AUC is ever flipped; with more, they are one against the rest, weighted by
    the classes' frequencies in `test`. If the training table has one class only, the models predict it. Rows without a
    listed class are excluded, and counted in the notes.

    `positive` is a category; None: the rarer one in `test`. To compare tables, give `rarer_class` of the real rows.
    `max_rows` limits the training rows, of all models or by model. `bootstrap` is the number of redraws of the test
    rows for standard errors; the models are not trained again.
    """
    spec = _check_target(train, target, models)
    positive = rarer_class(test, target) if positive is None else positive
    positive_code = _code(spec, positive)
    (train, test), notes = rows_with_target(target, train=train, test=test)
    others = [name for name in train.layout.names if name != target]
    limits = {name: max_rows.get(name) if isinstance(max_rows, Mapping) else max_rows for name in models}
    settings = {
        "positive": None if positive_code is None else positive,
        "max_rows": limits,
        "train_rows": {name: min(train.num_rows, limit or train.num_rows) for name, limit in limits.items()},
        "test_rows": test.num_rows,
    }
    installed = [name for name in models if name != OPTIONAL or importlib.util.find_spec(OPTIONAL)]
    if len(installed) < len(models):
        notes.append("xgboost is not installed, so this model was skipped.")
    why = why_untrained(target, others, train=train, test=test) if installed else "None of the models is installed."
    if why:
        none = dict.fromkeys(KEYS, Score.none(why))
        details: Json = {"models": {}, "roc": {}, "importance": {}}
        return Result(scores=none, settings=settings, details=details, notes=tuple(notes))
    fits = _fit_models(train, test, target, {name: limits[name] for name in installed}, seed)
    notes += [f"{name}: {fit.note}" for name, fit in fits.items() if fit.note]
    seen = np.unique(train[target])
    if len(seen) == 1:
        notes.append(f"The training rows have only the class {spec.labels[seen[0]]!r}: every model predicts it.")
    predictions = {name: Predictions(test[target], fit.probabilities, positive_code) for name, fit in fits.items()}
    forest = next((fits[name].importances for name in ("random_forest", "score_rf") if name in fits), None)
    details = {
        "models": {name: each.scores() for name, each in predictions.items()},
        "roc": {name: each.roc() for name, each in predictions.items()} if positive_code is not None else {},
        "importance": {} if forest is None else _by_column(train, target, forest),
    }
    scores, redrawn = _summary(predictions, test.num_rows, bootstrap=bootstrap, seed=seed)
    return Result(scores=scores, settings=settings, details=details, notes=tuple(notes), redrawn=redrawn)


def class_probabilities(
    train: EncodedTable, rows: EncodedTable, *, target: str, seed: int = 0
) -> Float[np.ndarray, "rows classes"] | None:
    """The target's class probabilities for each row by logistic regression; None if `train` has one class only."""
    _check_target(train, target, ())
    train = train.take(_has_target(train, target))
    if len(train.layout.names) < 2 or len(np.unique(train[target])) < 2:
        return None
    return _fit_models(train, rows, target, {"logistic": None}, seed)["logistic"].probabilities


class _Fitted(NamedTuple):
    probabilities: Float[np.ndarray, "rows classes"]
    """Of each class for each test row."""
    importances: Float[np.ndarray, " features"] | None
    note: str


def _fit_models(
    train: EncodedTable, test: EncodedTable, target: str, limits: Mapping[str, int | None], seed: int
) -> dict[str, _Fitted]:
    others = [name for name in train.layout.names if name != target]
    test_features = test.features(others)
    num_classes = len(train.layout[target].categories)

    def fit(name: str) -> _Fitted:
        rows = train.at_most(limits[name], seed=seed)
        return _fit(CLASSIFIERS[name](seed), rows.features(others), rows[target], test_features, num_classes)

    return dict(zip(limits, run_in_threads([partial(fit, name) for name in limits]), strict=True))


def _fit(
    model: BaseEstimator, features: np.ndarray, classes: np.ndarray, test_features: np.ndarray, num_classes: int
) -> _Fitted:
    """The model's class probabilities; 0 for a class that it never saw."""
    seen, labels, counts = np.unique(classes, return_inverse=True, return_counts=True)
    probabilities = np.zeros((len(test_features), num_classes))
    note = ""
    try:
        if len(seen) > 1:
            model.fit(features, labels)
            probabilities[:, seen] = model.predict_proba(test_features)
            return _Fitted(probabilities, getattr(model, "feature_importances_", None), _convergence_note(model))
    except ValueError:  # AdaBoost refuses rows from which a stump learns nothing
        note = "it could not be trained on these rows, so it predicts the most frequent class."
    probabilities[:, seen[np.argmax(counts)]] = 1.0
    return _Fitted(probabilities, None, note)


def _convergence_note(model: BaseEstimator) -> str:
    if not hasattr(model, "solver") or np.max(model.n_iter_) < model.max_iter:
        return ""
    return f"not converged after {model.max_iter} iterations."


def _summary(
    models: Mapping[str, Predictions], num_rows: int, *, bootstrap: int, seed: int
) -> tuple[dict[str, Score], dict[str, list[float]]]:
    """Mean and best over the models, and their bootstrapped values; all models see the same redraws of the rows."""
    averaged = [name for name in models if name != OPTIONAL] or list(models)
    compared = [name for name in models if name in QUAIL]

    def over_models(weights: np.ndarray | None) -> dict[str, float]:
        by_model = {name: models[name].scores(weights) for name in dict.fromkeys([*averaged, *compared])}
        means = {key: float(np.mean([by_model[name][key] for name in averaged])) for key in SCORES}
        best = {f"{key}_best": [by_model[name][key] for name in compared] for key in ("f1", "auc")}
        return means | {key: max(values, default=math.nan) for key, values in best.items()}

    generator = np.random.default_rng(seed)
    draws = (generator.integers(num_rows, size=num_rows) for _ in range(bootstrap))
    redraws = [over_models(np.bincount(rows, minlength=num_rows)) for rows in draws]
    values = over_models(None)
    redrawn = {key: [draw[key] for draw in redraws] for key in values}
    reasons = dict.fromkeys(values, "The test rows have only one class, so there is nothing to rank.")
    if not compared:
        reasons |= dict.fromkeys(("f1_best", "auc_best"), "None of the five models of the QUAIL paper was trained.")
    scores = {
        key: Score.none(reasons[key]) if math.isnan(value) else Score(value, bootstrap_error(redrawn[key]))
        for key, value in values.items()
    }
    return scores, redrawn


def difference(synthetic: Result, real: Result, key: str) -> dict[str, float | None]:
    """Synthetic minus real, and its standard error from the redraws of the test rows that both share."""
    ours, theirs = (result.redrawn.get(key, ()) for result in (synthetic, real))
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)] if len(ours) == len(theirs) else []
    return {"value": synthetic[key] - real[key], "error": bootstrap_error(gaps)}


def _check_target(train: EncodedTable, target: str, models: Sequence[str]) -> ColumnSpec:
    spec = train.layout[target]
    if spec.is_numeric:
        raise SchemaError(
            f"The target {target!r} is numeric, expected a discrete column. Use learn_numeric.", column=target
        )
    check_models(models, CLASSIFIERS)
    return spec


def check_models(models: Sequence[str], known: Mapping[str, object]) -> None:
    for name in models:
        if name not in known:
            raise ConfigError(
                f"There is no model {name!r}.{did_you_mean(name, known)} All: {', '.join(known)}.", setting="models"
            )


def _code(spec: ColumnSpec, positive: object) -> int | None:
    """The code of the positive class; None if there are not two classes."""
    if len(spec.categories) != 2:
        return None
    if positive in spec.categories:
        return spec.categories.index(positive)
    if str(positive) in spec.labels[:2]:
        return spec.labels.index(str(positive))
    # The categories may have been read off real rows, so they are not listed.
    raise SchemaError(
        f"The positive class {positive!r} is not a category of {spec.name!r}.", column=spec.name, key="positive"
    )


def rows_with_target(target: str, **tables: EncodedTable) -> tuple[list[EncodedTable], list[str]]:
    """The rows with a finite number or a listed class as target, and notes on how many were excluded."""
    kept, notes = [], []
    for name, table in tables.items():
        has_target = _has_target(table, target)
        kept.append(table.take(has_target))
        if not has_target.all():
            count = int(np.sum(~has_target))
            notes.append(f"{count:,} {name} rows without {_value_of(table, target)} were excluded.")
    return kept, notes


def why_untrained(target: str, others: Sequence[str], **tables: EncodedTable) -> str:
    """Why no model can be trained and tested; empty if one can."""
    if not others:
        return f"There is no other column to predict {target!r} from."
    empty = next((name for name, table in tables.items() if not table.num_rows), None)
    return "" if empty is None else f"No {empty} row has {_value_of(tables[empty], target)}."


def _has_target(table: EncodedTable, target: str) -> Bool[np.ndarray, " rows"]:
    spec = table.layout[target]
    return np.isfinite(table[target]) if spec.is_numeric else table[target] < len(spec.categories)


def _value_of(table: EncodedTable, target: str) -> str:
    return f"{'a number' if table.layout[target].is_numeric else 'a listed class'} in {target!r}"


def _by_column(train: EncodedTable, target: str, importances: np.ndarray) -> dict[str, float]:
    """A forest's impurity importances, summed over each column's features; they add up to 1."""
    columns = [spec for spec in train.layout.columns if spec.name != target]
    starts = np.cumsum([0, *(spec.num_features for spec in columns[:-1])])
    sums = np.add.reduceat(importances, starts)
    return dict(zip((spec.name for spec in columns), (sums / (sums.sum() or 1.0)).tolist(), strict=True))


def sra(real_scores: Mapping[str, float | None], synthetic_scores: Mapping[str, float | None]) -> Score:
    """Synthetic ranking agreement: the fraction of pairs of models that both tables rank in the same order.

    SRA = sum over i != j of 1[(R_i - R_j)(S_i - S_j) >= 0] / (A (A - 1)); ties count as agreement. Models without a
    score on both sides are excluded.
    """
    real, synthetic = _pair_scores(real_scores, synthetic_scores)
    if len(real) < 2:
        return Score.none("Fewer than two models have a score on both sides.")
    agree = np.subtract.outer(real, real) * np.subtract.outer(synthetic, synthetic) >= 0
    return Score(float((agree.sum() - len(real)) / (len(real) * (len(real) - 1))))


def importance_agreement(
    real_importance: Mapping[str, float | None], synthetic_importance: Mapping[str, float | None]
) -> Score:
    """Spearman's correlation of the columns' importances."""
    real, synthetic = (rankdata(part) for part in _pair_scores(real_importance, synthetic_importance))
    if len(real) < 3:
        return Score.none("Fewer than three columns have an importance in a random forest on both sides.")
    if np.ptp(real) == 0 or np.ptp(synthetic) == 0:
        return Score.none("All columns have the same importance.")
    return Score(float(np.corrcoef(real, synthetic)[0, 1]))


def _pair_scores(
    first: Mapping[str, float | None], second: Mapping[str, float | None]
) -> tuple[np.ndarray, np.ndarray]:
    """The values of the names that have a number on both sides."""
    pairs = [(value, second.get(name)) for name, value in first.items()]
    kept = [(a, b) for a, b in pairs if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)]
    return np.array([a for a, _ in kept]), np.array([b for _, b in kept])
