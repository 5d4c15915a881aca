"""Utility for learning: classifiers trained on synthetic rows, scored on real rows they never saw.

`learn` trains on one table and scores on another, so that train-on-synthetic, train-on-real and
train-and-test-on-synthetic are the same function. Real and synthetic rows share the features of the layout.
"""

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import rankdata
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from understudy.errors import ConfigError, SchemaError, did_you_mean
from understudy.evaluation.judged import Judged, Trait
from understudy.evaluation.scores import HIGHER, NEAR_REAL, Metric, Result, Score
from understudy.evaluation.threads import in_threads


def _xgboost(seed: int) -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(max_depth=6, learning_rate=0.3, n_estimators=10, n_jobs=1, random_state=seed)


CLASSIFIERS: dict[str, Callable[[int], Any]] = {
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
"""By name, a classifier for a seed. The first five are those of the QUAIL paper, with scikit-learn's defaults."""

QUAIL = ("adaboost", "bagging", "logistic", "mlp", "random_forest")
"""The best of these is what the QUAIL paper reports."""
OPTIONAL = "xgboost"
"""Not everybody has it: it stands in the details but counts in no mean, which then would depend on the machine."""
MODELS = ("mlp", "random_forest", "gradient_boosting", "bagging", "adaboost", "logistic")
"""What is trained unless told otherwise: the slowest first, so that two threads end together."""

AVERAGES = ("weighted", "macro", "micro")
CURVE_POINTS = 100
SCORES = ("accuracy", "f1", "auc", "pr_auc")


# What is counted. Each function takes a weight for each row: in a bootstrap, how often the row was drawn.


def accuracy(
    truth: Int[np.ndarray, " n"], predicted: Int[np.ndarray, " n"], weights: np.ndarray | None = None
) -> float:
    """The share of rows whose class is right."""
    return float(np.average(truth == predicted, weights=weights))


def f1(truth: Bool[np.ndarray, " n"], predicted: Bool[np.ndarray, " n"], weights: np.ndarray | None = None) -> float:
    """2PR/(P+R) of the positive class; 0 where precision and recall are both 0."""
    hits, claimed, there = (_total(rows, weights) for rows in (truth & predicted, predicted, truth))
    return 2 * hits / (claimed + there) if claimed + there else 0.0


def f1_of_classes(
    truth: Int[np.ndarray, " n"],
    predicted: Int[np.ndarray, " n"],
    *,
    average: str = "weighted",
    weights: np.ndarray | None = None,
) -> float:
    """F1 over several classes: the mean by support ("weighted"), the plain mean, or of all decisions ("micro").

    The plain mean is over the classes that occur or are predicted. Where a row has one class, micro-F1 is accuracy.
    """
    if average == "micro":
        return accuracy(truth, predicted, weights)
    classes = np.union1d(truth, predicted)
    each = [f1(truth == k, predicted == k, weights) for k in classes]
    support = [_total(truth == k, weights) for k in classes]
    return float(np.average(each, weights=support if average == "weighted" else None))


def auc(truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"], weights: np.ndarray | None = None) -> float:
    """The chance that a positive row scores above a negative one, ties counting half; NaN with one class only."""
    return _auc(*_counts(truth, _ranks(score), weights))


def pr_auc(truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"], weights: np.ndarray | None = None) -> float:
    """The area under the precision-recall curve, interpolated as by Davis and Goadrich (2006).

    Between two thresholds the false positives grow linearly with the true ones, t, so that precision is
    t / (t + FP(t)); its integral over recall is taken in closed form. A constant score has the prevalence; NaN
    with one class only.
    """
    return _pr_auc(*_counts(truth, _ranks(score), weights))


def _total(rows: np.ndarray, weights: np.ndarray | None) -> float:
    return float(rows.sum() if weights is None else weights[rows].sum())


def _ranks(score: np.ndarray) -> np.ndarray:
    """Thresholds by number, the highest score first; equal scores share one."""
    return np.unique(-score, return_inverse=True)[1]


def _counts(truth: np.ndarray, ranks: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """True and false positives at each threshold, from none to all."""
    of_positives, of_negatives = (
        np.bincount(ranks, part if weights is None else weights * part, minlength=ranks.max() + 1)
        for part in (truth, ~truth)
    )
    return np.cumsum(np.r_[0.0, of_positives]), np.cumsum(np.r_[0.0, of_negatives])


def _auc(hits: np.ndarray, alarms: np.ndarray) -> float:
    area = np.sum(np.diff(hits) * (alarms[-1] - (alarms[1:] + alarms[:-1]) / 2))
    return float(area / (hits[-1] * alarms[-1])) if hits[-1] and alarms[-1] else math.nan


def _pr_auc(hits: np.ndarray, alarms: np.ndarray) -> float:
    if not hits[-1] or not alarms[-1]:
        return math.nan
    rises = np.diff(hits) > 0  # recall stands still elsewhere
    start, end, before, after = hits[:-1][rises], hits[1:][rises], alarms[:-1][rises], alarms[1:][rises]
    slope = (after - before) / (end - start)
    offset = before - slope * start
    first = start + before == 0  # a line through the origin: precision is constant
    growth = np.log((end + after) / np.where(first, 1.0, start + before))
    bent = np.where(first, 0.0, offset / (1 + slope) * growth)
    return float(np.sum((end - start - bent) / (1 + slope)) / hits[-1])


# Training


def rarer_class(real: Judged, target: str) -> object:
    """The positive class where none is named: the rarer of two in these rows, the later one if equal; else None."""
    levels = real.layout[target].levels
    if len(levels) != 2:
        return None
    first, second = (int(np.sum(real[target] == code)) for code in (0, 1))
    return levels[0] if first < second else levels[1]


def learn(
    train: Judged,
    test: Judged,
    *,
    target: str,
    positive: object = None,
    models: Sequence[str] = MODELS,
    max_rows: int | None = 20_000,
    mlp_rows: int | None = 4_000,
    average: str = "weighted",
    bootstrap: int = 0,
    seed: int = 0,
) -> Result:
    """Trains classifiers of `target` on one table, scores them on another.

    Keys: accuracy, f1, auc and pr_auc, each the mean over the models, XGBoost left out where there are others; f1_best
    and auc_best, the largest of those of the QUAIL paper's five that were trained. With two classes F1, AUC and PR AUC
    are those of the positive class, and no AUC is ever flipped; with more, AUC and PR AUC are one class against the
    rest, weighted by the classes' shares of `test`. A training table with one class gives models that predict it. Rows
    without a listed class are left out, and counted in the notes.

    Args:
        train: The rows to learn from.
        test: The rows to score on.
        target: The column to predict, from all others.
        positive: A level; None: the rarer one in `test`. To compare tables, give `rarer_class` of the real rows.
        models: Names in `CLASSIFIERS`.
        max_rows: At most so many training rows, drawn by the seed; None: all.
        mlp_rows: The same for the neural network, which takes by far the longest (its 200 passes over 20,000 rows of
            Adult: 17 s); None: as the others.
        average: Of F1 over more than two classes: "weighted", "macro" or "micro".
        bootstrap: Redraws of the test rows for standard errors; the models are not trained again.
        seed: Of the subsample, the models and the bootstrap.
    """
    trait = _checked(train, target, models, average)
    if positive is None:
        positive = rarer_class(test, target)
    positive_code = _code(trait, positive)
    known = {"train": train[target] < len(trait.levels), "test": test[target] < len(trait.levels)}
    notes = [
        f"{int(np.sum(~rows)):,} {name} rows have no listed class in {target!r} and were left out."
        for name, rows in known.items()
        if not rows.all()
    ]
    train, test = train.take(known["train"]), test.take(known["test"])
    caps = {name: _least(max_rows, mlp_rows if name == "mlp" else None) for name in models}
    settings: dict[str, object] = {
        "target": target,
        "positive": None if positive_code is None else positive,
        "models": list(models),
        "max_rows": max_rows,
        "mlp_rows": mlp_rows,
        "average": average,
        "bootstrap": bootstrap,
        "seed": seed,
        "train_rows": {name: _least(cap, train.num_rows) for name, cap in caps.items()},
        "test_rows": test.num_rows,
    }
    installed = [name for name in models if name != OPTIONAL or importlib.util.find_spec(OPTIONAL)]
    if len(installed) < len(models):
        notes.append("xgboost is not installed, so that model was left out.")
    why = _why_not(train, test, target, installed)
    if why:
        scores = {key: Score.none(why) for key in (*SCORES, "f1_best", "auc_best")}
        return Result(scores=scores, settings=settings, details=_no_details(), notes=tuple(notes))

    others = [name for name in train.layout.names if name != target]
    test_features = test.features(others)

    def fitted(name: str) -> _Fitted:
        rows = train.at_most(caps[name], seed=seed)
        return _fit(CLASSIFIERS[name](seed), rows.features(others), rows[target], test_features, len(trait.levels))

    fits = dict(zip(installed, in_threads([partial(fitted, name) for name in installed]), strict=True))
    notes += [f"{name}: {fit.note}" for name, fit in fits.items() if fit.note]
    seen = np.unique(train[target])
    if len(seen) == 1:
        notes.append(f"The training rows have one class only, {trait.labels[seen[0]]!r}: every model predicts it.")
    predictions = {name: Predictions(test[target], fit.shares, positive_code, average) for name, fit in fits.items()}
    forests = [fits[name].importances for name in ("random_forest", "score_rf") if name in fits]
    details = {
        "models": {name: _without_nan(each.scores()) for name, each in predictions.items()},
        "roc": {name: each.roc() for name, each in predictions.items()} if positive_code is not None else {},
        "importance": _by_column(train, others, forests[0]) if forests and forests[0] is not None else {},
    }
    scores, redrawn = _summary(predictions, test.num_rows, bootstrap=bootstrap, seed=seed)
    return Result(scores=scores, settings=settings, details=details, notes=tuple(notes), redrawn=redrawn)


def class_probabilities(train: Judged, rows: Judged, *, target: str, seed: int = 0) -> np.ndarray | None:
    """For each row the probabilities of the target's levels by logistic regression; None if `train` has one class."""
    trait = _checked(train, target, (), AVERAGES[0])
    train = train.take(train[target] < len(trait.levels))
    others = [name for name in train.layout.names if name != target]
    if not others or len(np.unique(train[target])) < 2:
        return None
    model = CLASSIFIERS["logistic"](seed)
    features = train.features(others), train[target], rows.features(others)
    return in_threads([partial(_fit, model, *features, len(trait.levels))])[0].shares


class _Fitted(NamedTuple):
    shares: Float[np.ndarray, "rows classes"]
    """The probability of each class for each test row."""
    importances: Float[np.ndarray, " features"] | None
    note: str


def _fit(model: Any, features: np.ndarray, classes: np.ndarray, test_features: np.ndarray, num_classes: int) -> _Fitted:
    """The model's class probabilities; those of a class that it never saw are 0."""
    seen, labels, counts = np.unique(classes, return_inverse=True, return_counts=True)
    shares = np.zeros((len(test_features), num_classes))
    try:
        if len(seen) > 1:
            model.fit(features, labels)
            shares[:, seen] = model.predict_proba(test_features)
            return _Fitted(shares, getattr(model, "feature_importances_", None), _unconverged(model))
        note = ""
    except ValueError:  # AdaBoost refuses rows from which a stump learns nothing
        note = "it could not be trained on these rows, so it predicts the most frequent class."
    shares[:, seen[np.argmax(counts)]] = 1.0
    return _Fitted(shares, None, note)


def _unconverged(model: Any) -> str:
    if not hasattr(model, "solver") or np.max(model.n_iter_) < model.max_iter:
        return ""
    return f"not converged after {model.max_iter} iterations."


class Predictions:
    """One model's class probabilities for the test rows, and how good they are."""

    def __init__(self, truth: np.ndarray, shares: np.ndarray, positive: int | None, average: str) -> None:
        self.truth, self.positive, self.average = truth, positive, average
        self.predicted = shares.argmax(axis=1)
        classes = np.unique(truth) if positive is None else [positive]
        self.against_rest = [(truth == k, _ranks(shares[:, k])) for k in classes]

    def scores(self, weights: np.ndarray | None = None) -> dict[str, float]:
        """By the names in `SCORES`; NaN with one class in the test rows."""
        if self.positive is None:
            found = f1_of_classes(self.truth, self.predicted, average=self.average, weights=weights)
        else:
            found = f1(self.truth == self.positive, self.predicted == self.positive, weights)
        counts = [_counts(truth, ranks, weights) for truth, ranks in self.against_rest]
        areas = [(_auc(*each), _pr_auc(*each), each[0][-1]) for each in counts if each[0][-1]]
        roc_area, pr_area = (math.nan, math.nan)
        if areas:
            *columns, support = np.array(areas).T
            roc_area, pr_area = (float(np.average(column, weights=support)) for column in columns)
        right = accuracy(self.truth, self.predicted, weights)
        return dict(zip(SCORES, (right, found, roc_area, pr_area), strict=True))

    def roc(self) -> dict[str, list[float]]:
        """The curve of the positive class, by at most `CURVE_POINTS` of its thresholds; empty with one class."""
        ((truth, ranks),) = self.against_rest
        hits, alarms = _counts(truth, ranks, None)
        if not hits[-1] or not alarms[-1]:
            return {"fpr": [], "tpr": []}
        at = np.unique(np.linspace(0, len(hits) - 1, CURVE_POINTS).round().astype(int))
        return {"fpr": (alarms[at] / alarms[-1]).tolist(), "tpr": (hits[at] / hits[-1]).tolist()}


def _summary(
    models: Mapping[str, Predictions], num_rows: int, *, bootstrap: int, seed: int
) -> tuple[dict[str, Score], dict[str, list[float]]]:
    """Mean and best over the models, and each of them draw by draw; all are scored on the same redraws of the rows."""
    averaged = [name for name in models if name != OPTIONAL] or list(models)
    compared = [name for name in models if name in QUAIL]

    def over_models(weights: np.ndarray | None) -> dict[str, float]:
        each = {name: models[name].scores(weights) for name in dict.fromkeys([*averaged, *compared])}
        found = {key: float(np.mean([each[name][key] for name in averaged])) for key in SCORES}
        best = {f"{key}_best": [each[name][key] for name in compared] for key in ("f1", "auc")}
        return found | {key: max(values, default=math.nan) for key, values in best.items()}

    generator = np.random.default_rng(seed)
    draws = (generator.integers(num_rows, size=num_rows) for _ in range(bootstrap))
    redraws = [over_models(np.bincount(rows, minlength=num_rows)) for rows in draws]
    values = over_models(None)
    redrawn = {key: [draw[key] for draw in redraws] for key in values}
    one_class = "The test rows have one class only, so nothing can be ranked."
    reasons = dict.fromkeys(values, one_class)
    if not compared:
        reasons |= dict.fromkeys(("f1_best", "auc_best"), "None of the five models of the QUAIL paper was trained.")
    scores = {
        key: Score.none(reasons[key]) if math.isnan(value) else Score(value, spread(redrawn[key]))
        for key, value in values.items()
    }
    return scores, redrawn


def difference(synthetic: Result, real: Result, key: str) -> dict[str, float | None]:
    """Synthetic less real, and the error of that: both were scored on the same redraws of the same test rows."""
    ours, theirs = (result.redrawn.get(key, ()) for result in (synthetic, real))
    value = synthetic[key] - real[key]
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)] if len(ours) == len(theirs) else []
    return {"value": None if math.isnan(value) else value, "error": spread(gaps)}


def spread(redrawn: Sequence[float]) -> float | None:
    """The standard error by bootstrap; None without at least two redraws that have a value."""
    values = np.array([value for value in redrawn if math.isfinite(value)])
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _checked(train: Judged, target: str, models: Sequence[str], average: str) -> Trait:
    trait = train.layout[target]
    if trait.is_numeric:
        raise SchemaError(f"The target {target!r} is numeric, and a class was expected. Use learn_numeric.")
    for name in models:
        if name not in CLASSIFIERS:
            raise ConfigError(
                f"There is no model {name!r}.{did_you_mean(name, CLASSIFIERS)} All: {', '.join(CLASSIFIERS)}."
            )
    if average not in AVERAGES:
        raise ConfigError(f"average must be {', '.join(map(repr, AVERAGES))}, found {average!r}.")
    return trait


def _code(trait: Trait, positive: object) -> int | None:
    """The positive class of two; None where there are not two."""
    if len(trait.levels) != 2:
        return None
    if positive in trait.levels:
        return trait.levels.index(positive)  # type: ignore[arg-type]
    if str(positive) in trait.labels[:2]:
        return trait.labels.index(str(positive))
    # The levels may have been read off private rows, so they are not listed.
    raise SchemaError(f"The positive class {positive!r} is no level of {trait.name!r}.")


def _why_not(train: Judged, test: Judged, target: str, models: Sequence[str]) -> str:
    if not models:
        return "None of the models is installed."
    if len(train.layout.names) < 2:
        return f"There is no column from which {target!r} could be predicted."
    for name, table in (("training", train), ("test", test)):
        if not table.num_rows:
            return f"No {name} row has a listed class in {target!r}."
    return ""


def _least(*numbers: int | None) -> int | None:
    return min((number for number in numbers if number is not None), default=None)


def _no_details() -> dict[str, object]:
    return {"models": {}, "roc": {}, "importance": {}}


def _without_nan(scores: Mapping[str, float]) -> dict[str, float | None]:
    return {key: None if math.isnan(value) else value for key, value in scores.items()}


def _by_column(train: Judged, columns: Sequence[str], importances: np.ndarray) -> dict[str, float]:
    """A forest's impurity importances, summed over each column's features; they add up to 1."""
    sizes = [train.layout[name].num_features for name in columns]
    sums = np.add.reduceat(importances, np.r_[0, np.cumsum(sizes)[:-1]])
    return dict(zip(columns, (sums / (sums.sum() or 1.0)).tolist(), strict=True))


# Agreement of what was learned


def sra(real_scores: Mapping[str, float | None], synthetic_scores: Mapping[str, float | None]) -> Score:
    """Synthetic ranking agreement: the share of pairs of models that both tables put in the same order.

    SRA = sum over i != j of 1[(R_i - R_j)(S_i - S_j) >= 0] / (A (A - 1)); ties count as agreement. Models without a
    score on both sides are left out.
    """
    real, synthetic = _paired(real_scores, synthetic_scores)
    if len(real) < 2:
        return Score.none("Fewer than two models have a score on both sides.")
    agree = np.subtract.outer(real, real) * np.subtract.outer(synthetic, synthetic) >= 0
    return Score(float((agree.sum() - len(real)) / (len(real) * (len(real) - 1))))


def importance_agreement(
    real_importance: Mapping[str, float | None], synthetic_importance: Mapping[str, float | None]
) -> Score:
    """Spearman's correlation of the columns' importances."""
    real, synthetic = (rankdata(part) for part in _paired(real_importance, synthetic_importance))
    if len(real) < 3:
        return Score.none("Fewer than three columns have an importance, which a random forest gives, on both sides.")
    if np.ptp(real) == 0 or np.ptp(synthetic) == 0:
        return Score.none("All columns have the same importance.")
    return Score(float(np.corrcoef(real, synthetic)[0, 1]))


def _paired(first: Mapping[str, float | None], second: Mapping[str, float | None]) -> tuple[np.ndarray, np.ndarray]:
    """The values of what has a number on both sides."""
    pairs = [(value, second.get(name)) for name, value in first.items()]
    kept = [(a, b) for a, b in pairs if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)]
    return np.array([a for a, _ in kept]), np.array([b for _, b in kept])


def _metric(key: str, title: str, meaning: str, *, direction: str = HIGHER, low: float = 0.0) -> Metric:
    return Metric(key=key, title=title, direction=direction, low=low, high=1.0, meaning=meaning)


METRICS = (
    _metric(
        "tstr_accuracy",
        "Accuracy, trained on synthetic",
        "The share of real test rows whose class is predicted rightly by models that were trained on synthetic rows;"
        " the mean over the models (XGBoost left out).",
    ),
    _metric(
        "tstr_f1",
        "F1, trained on synthetic",
        "How well models trained on synthetic rows find the real rows of the positive class without false alarms; over"
        " all classes where there are more than two. The mean over the models (XGBoost left out).",
    ),
    _metric(
        "tstr_auc",
        "ROC AUC, trained on synthetic",
        "The chance that a model trained on synthetic rows ranks a real positive row above a real negative one; 0.5 is"
        " guessing. The mean over the models (XGBoost left out).",
    ),
    _metric(
        "tstr_pr_auc",
        "Precision-recall AUC, trained on synthetic",
        "The precision of models trained on synthetic rows, averaged over all shares of positive rows found; guessing"
        " reaches the positive class's own share. The mean over the models (XGBoost left out).",
    ),
    _metric(
        "tstr_f1_best",
        "Best F1, trained on synthetic",
        "The F1 of the best of the QUAIL paper's five models that were trained on synthetic rows, as that paper reports"
        " it. All five by default; with --quick the random forest alone.",
    ),
    _metric(
        "tstr_auc_best",
        "Best ROC AUC, trained on synthetic",
        "The ROC AUC of the best of the QUAIL paper's five models that were trained on synthetic rows, as that paper"
        " reports it. All five by default; with --quick the random forest alone.",
    ),
    _metric(
        "tsts_accuracy",
        "Accuracy within the synthetic table",
        "Models trained on one half of the synthetic rows, tested on the other half. Far above real data, the synthetic"
        " table is simpler than the real one; far below, noisier.",
        direction=NEAR_REAL,
    ),
    _metric(
        "tsts_f1",
        "F1 within the synthetic table",
        "F1 of models trained on one half of the synthetic rows and tested on the other half.",
        direction=NEAR_REAL,
    ),
    _metric(
        "tsts_auc",
        "ROC AUC within the synthetic table",
        "ROC AUC of models trained on one half of the synthetic rows and tested on the other half.",
        direction=NEAR_REAL,
    ),
    _metric(
        "sra",
        "Synthetic ranking agreement",
        "How often two models come in the same order whether trained on synthetic or on real rows: can the best model"
        " be chosen with the synthetic table? A random order gives about 0.5.",
    ),
    _metric(
        "importance_agreement",
        "Agreement on what matters",
        "Rank correlation of how much each column matters to a forest trained on synthetic rows and to one trained on"
        " real rows; 0 is chance.",
        low=-1.0,
    ),
)
