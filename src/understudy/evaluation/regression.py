"""Models of numeric columns, and of every column in turn, trained on real and on synthetic rows.

`learn_numeric` is `learning.learn` for a numeric target; `dimension_prediction` predicts each column from the others;
`parallel_rmse` compares the errors of many small linear models.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

from understudy.errors import SchemaError, did_you_mean
from understudy.evaluation.counting import mean_and_max
from understudy.evaluation.learning import check_models, rows_with_target, why_untrained
from understudy.evaluation.parallel import run_in_threads
from understudy.evaluation.predictions import bootstrap_error
from understudy.evaluation.scores import Json, Result, Score, echo_settings, no_scores
from understudy.evaluation.table import ColumnSpec, EncodedTable
from understudy.rules.values import format_list

REGRESSORS: dict[str, Callable[[int], BaseEstimator]] = {
    "random_forest": lambda seed: RandomForestRegressor(min_samples_leaf=5, max_features=1 / 3, random_state=seed),
    "gradient_boosting": lambda seed: HistGradientBoostingRegressor(random_state=seed),
    "linear": lambda seed: LinearRegression(),
}
"""Constructors by name, taking a seed: least squares, as in the QUAIL paper, and two that find interactions."""

MIN_R2 = 0.1
"""Numeric columns that real rows predict worse than this are listed but not plotted."""
MAX_REGRESSORS, FIRST_REGRESSORS = 6, 5
"""Up to six columns give at most 20 triples; of more, the first five are used, which give the paper's 10."""
RANK_TOLERANCE = 1e-9
"""Singular values below this fraction of the largest count as exact dependencies, such as indicators that sum to 1."""


# A numeric target


@echo_settings
def learn_numeric(
    train: EncodedTable,
    test: EncodedTable,
    *,
    target: str,
    models: Sequence[str] = tuple(REGRESSORS),
    max_rows: int | None = 20_000,
    bootstrap: int = 0,
    seed: int = 0,
) -> Result:
    """Train models of a numeric target on one table and score them on another.

    Keys: rmse, in the target's own unit (days for dates), and r2 = 1 - SSE/SST on `test`, which is negative for a model
    worse than the test rows' mean; each is the mean over the models. Rows whose target is missing are excluded, and
    counted in the notes. `max_rows` and `bootstrap` are as in `learning.learn`.
    """
    _check_numeric(train, target)
    check_models(models, REGRESSORS)
    (train, test), notes = rows_with_target(target, train=train, test=test)
    rows = train.at_most(max_rows, seed=seed)
    settings = {"train_rows": rows.num_rows, "test_rows": test.num_rows}
    others = [name for name in train.layout.names if name != target]
    if why := why_untrained(target, others, train=train, test=test):
        scores = dict.fromkeys(("rmse", "r2"), Score.none(why))
        return Result(scores=scores, settings=settings, details={"models": {}}, notes=tuple(notes))
    features, test_features = (table.features(others).astype(np.float64) for table in (rows, test))

    def errors(name: str) -> np.ndarray:
        return REGRESSORS[name](seed).fit(features, rows[target]).predict(test_features) - test[target]

    by_model = dict(zip(models, run_in_threads([partial(errors, name) for name in models]), strict=True))

    def over_models(draw: np.ndarray | slice) -> tuple[float, float]:
        each = [(rmse(error[draw]), r2(error[draw], test[target][draw])) for error in by_model.values()]
        mean_rmse, mean_r2 = np.mean(each, axis=0)
        return float(mean_rmse), float(mean_r2)

    generator = np.random.default_rng(seed)
    redrawn = [over_models(generator.integers(test.num_rows, size=test.num_rows)) for _ in range(bootstrap)]
    mean_rmse, mean_r2 = over_models(slice(None))
    scores = {
        "rmse": Score(mean_rmse, bootstrap_error([value for value, _ in redrawn])),
        "r2": Score(mean_r2, bootstrap_error([value for _, value in redrawn])),
    }
    if math.isnan(mean_r2):
        scores["r2"] = Score.none("The target is constant in the test rows.")
    each = {name: {"rmse": rmse(error), "r2": r2(error, test[target])} for name, error in by_model.items()}
    return Result(scores=scores, settings=settings, details={"models": each}, notes=tuple(notes))


def rmse(errors: Float[np.ndarray, " rows"]) -> float:
    """The root of the mean squared error."""
    return float(np.sqrt(np.mean(errors**2)))


def r2(errors: Float[np.ndarray, " rows"], truth: Float[np.ndarray, " rows"]) -> float:
    """1 - SSE/SST; NaN where the truth is constant."""
    return float(1 - np.sum(errors**2) / np.sum((truth - truth.mean()) ** 2)) if np.ptp(truth) > 0 else math.nan


def _check_numeric(table: EncodedTable, target: str) -> None:
    spec = table.layout[target]
    if not spec.is_numeric:
        raise SchemaError(f"The target {target!r} is {spec.kind}, expected a numeric column.", column=target)


# Each column from the others


class _Task(NamedTuple):
    """One column to predict, and how the prediction is scored."""

    spec: ColumnSpec
    kind: str
    """"auc", "f1" or "r2"."""
    positive: int | None
    """The code of the rarer of two real classes."""


class _Found(NamedTuple):
    score: float
    """NaN where it is not defined."""
    converged: bool


@echo_settings
def dimension_prediction(
    train: EncodedTable, synthetic: EncodedTable, test: EncodedTable, *, max_rows: int | None = 20_000, seed: int = 0
) -> Result:
    """Dimension-wise prediction: each column predicted from the others, after training on real and on synthetic rows.

    After MedGAN and DP-auto-GAN (as in the published code: two models, both scored on `test`). If all columns are
    binary: logistic regression (liblinear, 100 iterations), scored by AUC; a column that is constant in a table is
    dropped and counted. Otherwise a forest of 10 trees for a discrete column, scored by F1 of the rarer class if there
    are two and by micro-F1, which is accuracy, if there are more, with nulls as a class; and for a numeric one the
    Lasso with penalty 1, scored by R squared. The Lasso sees numbers in their own units, as the target is, because that
    penalty would delete every input on [0, 1]. Numeric columns whose real R squared is below 0.1 are listed but neither
    plotted nor summed up.

    Keys: dwpred_sum_squares, the sum of squared differences of the two scores over the plotted columns, and
    dwpred_distance, their mean distance |a - b| / sqrt(2) from the diagonal. `max_rows` limits the rows of `train` and
    of `synthetic`.
    """
    real, fake = (table.at_most(max_rows, seed=seed) for table in (train, synthetic))
    settings = {"train_rows": real.num_rows, "synthetic_rows": fake.num_rows}
    tasks = _tasks(train)
    if len(tasks) < 2:
        return no_scores("dimension_prediction", "There is only one column.", settings=settings)
    jobs = [partial(_predictability, task, learner, test, seed=seed) for task in tasks for learner in (real, fake)]
    predictions = run_in_threads(jobs)
    points: list[Json] = []
    dropped = []
    for task, ours, theirs in zip(tasks, predictions[::2], predictions[1::2], strict=True):
        if math.isnan(ours.score + theirs.score):
            dropped.append(task.spec.name)
            continue
        plotted = task.kind != "r2" or ours.score >= MIN_R2
        point = {"column": task.spec.name, "kind": task.kind, "real": ours.score, "synthetic": theirs.score}
        points.append({**point, "plotted": plotted})
    notes = []
    if dropped:
        notes.append(f"Columns that are constant or have no number in a table were dropped: {format_list(dropped)}.")
    stopped = sum(not each.converged for each in predictions)
    if stopped:
        notes.append(f"{stopped} of {len(predictions)} models did not converge.")
    scores = _distances([point["real"] - point["synthetic"] for point in points if point["plotted"]])
    return Result(scores=scores, settings=settings, details={"points": points}, notes=tuple(notes))


def _distances(gaps: Sequence[float]) -> Mapping[str, Score]:
    if not gaps:
        why = "No column can be plotted: each is constant, empty, or numeric and hardly predicted by the Lasso with"
        return no_scores("dimension_prediction", f"{why} penalty 1 even from real rows.").scores
    distance = float(np.mean(np.abs(gaps))) / math.sqrt(2)
    return {"dwpred_sum_squares": Score(float(np.sum(np.square(gaps)))), "dwpred_distance": Score(distance)}


def _tasks(train: EncodedTable) -> list[_Task]:
    specs = train.layout.columns
    all_binary = all(spec.is_binary for spec in specs)
    tasks = []
    for spec in specs:
        kind = "auc" if all_binary else "r2" if spec.is_numeric else "f1"
        positive = None
        if spec.is_binary:
            positive = int(np.sum(train[spec.name] == 1) <= np.sum(train[spec.name] == 0))
        tasks.append(_Task(spec, kind, positive))
    return tasks


def _widths(spec: ColumnSpec) -> Float[np.ndarray, " features"]:
    """What 1 means in each feature of a column: the range of a numeric column, else 1."""
    return np.r_[spec.upper - spec.lower if spec.is_numeric else 1.0, np.ones(spec.num_features - 1)]


def _predictability(task: _Task, learner: EncodedTable, tester: EncodedTable, *, seed: int) -> _Found:
    """How well a model of the column trained on one table predicts it in another."""
    answers, truth = learner[task.spec.name], tester[task.spec.name]
    others = [spec for spec in learner.layout.columns if spec != task.spec]
    inputs, test_inputs = (table.features([spec.name for spec in others]) for table in (learner, tester))
    if task.kind == "r2":
        known, present = np.isfinite(answers), np.isfinite(truth)
        if not known.any() or not present.any():
            return _Found(math.nan, True)
        widths = np.concatenate([_widths(spec) for spec in others])
        model = Lasso(alpha=1.0, precompute=True).fit((inputs * widths)[known], answers[known])
        errors = model.predict((test_inputs * widths)[present]) - truth[present]
        return _Found(r2(errors, truth[present]), model.n_iter_ < model.max_iter)
    if task.kind == "auc":
        ones = answers == 1
        if ones.all() or not ones.any() or len(np.unique(truth == 1)) < 2:
            return _Found(math.nan, True)
        model = LogisticRegression(solver="liblinear", max_iter=100, random_state=seed).fit(inputs, ones)
        area = roc_auc_score(truth == 1, model.decision_function(test_inputs))
        return _Found(float(area), model.n_iter_[0] < model.max_iter)
    forest = RandomForestClassifier(n_estimators=10, random_state=seed).fit(inputs, answers)
    predicted = forest.predict(test_inputs)
    if task.positive is None:
        return _Found(float(accuracy_score(truth, predicted)), True)
    return _Found(float(f1_score(truth == task.positive, predicted == task.positive, zero_division=0.0)), True)


# Many small linear models


@echo_settings
def parallel_rmse(
    train: EncodedTable,
    synthetic: EncodedTable,
    test: EncodedTable,
    *,
    target: str,
    regressors: Sequence[str] | None = None,
) -> Result:
    """Least squares on every triple of columns, fitted to real and to synthetic rows: their errors on real test rows.

    Discrete columns have a coefficient for each category, and the minimum-norm solution is taken, with a free
    intercept. So a category that the fitted rows lack has coefficient 0: it is predicted as the mean of the effects,
    and no category is a reference. All rows are used but those without the target.

    Keys: rmse_ratio_mean and rmse_ratio_max, the error after fitting synthetic rows over that after fitting real rows.
    `regressors` are columns; None: all but the target if there are at most six, else the first five of the layout.
    """
    _check_numeric(train, target)
    others = [name for name in train.layout.names if name != target]
    if regressors is None:
        regressors = others if len(others) <= MAX_REGRESSORS else others[:FIRST_REGRESSORS]
    for name in regressors:
        if name not in others:
            raise SchemaError(
                f"There is no regressor {name!r} beside the target.{did_you_mean(name, others)}", column=name
            )
    (train, synthetic, test), notes = rows_with_target(target, train=train, synthetic=synthetic, test=test)
    settings = {
        "regressors": list(regressors),
        "train_rows": train.num_rows,
        "synthetic_rows": synthetic.num_rows,
        "test_rows": test.num_rows,
    }
    if why := why_untrained(target, regressors, train=train, synthetic=synthetic, test=test):
        scores = dict.fromkeys(("rmse_ratio_mean", "rmse_ratio_max"), Score.none(why))
        return Result(scores=scores, settings=settings, details={"models": []}, notes=tuple(notes))
    names = np.repeat(np.array(regressors), [train.layout[name].num_features for name in regressors])
    test_features = test.features(regressors).astype(np.float64)
    ours, theirs = (_Squares.of(table, regressors, target) for table in (train, synthetic))
    models, ratios = [], list[float]()
    for triple in itertools.combinations(regressors, min(3, len(regressors))):
        used = np.flatnonzero(np.isin(names, triple))
        real, fake = (rmse(fit.predict(test_features, used) - test[target]) for fit in (ours, theirs))
        models.append({"regressors": list(triple), "real": real, "synthetic": fake})
        ratios += [fake / real] if real > 0 else []
    if len(ratios) < len(models):
        notes.append(f"{len(models) - len(ratios)} models fit the real rows without error, so they have no ratio.")
    mean, largest = mean_and_max(ratios, "Models fitted to real rows have no error.")
    scores = {"rmse_ratio_mean": mean, "rmse_ratio_max": largest}
    return Result(scores=scores, settings=settings, details={"models": models}, notes=tuple(notes))


class _Squares(NamedTuple):
    """The sufficient statistics of a table for least squares on any of its features."""

    means: Float[np.ndarray, " features"]
    mean: float
    triangle: Float[np.ndarray, "k features"]
    """R of a QR decomposition of the centred features and target: fits on its columns are fits on the rows."""
    side: Float[np.ndarray, " k"]

    @classmethod
    def of(cls, table: EncodedTable, columns: Sequence[str], target: str) -> "_Squares":
        features = table.features(columns).astype(np.float64)
        means, mean = features.mean(axis=0), table[target].mean()
        centred = np.c_[features - means, table[target] - mean]
        triangle: np.ndarray = np.linalg.qr(centred, mode="r")  # type: ignore[assignment]  # R alone, not a pair
        return cls(means, float(mean), triangle[:, :-1], triangle[:, -1])

    def predict(self, features: Float[np.ndarray, "rows features"], used: np.ndarray) -> Float[np.ndarray, " rows"]:
        """By the minimum-norm least-squares coefficients of the used features."""
        coefficients = np.linalg.lstsq(self.triangle[:, used], self.side, rcond=RANK_TOLERANCE)[0]
        return self.mean + (features[:, used] - self.means[used]) @ coefficients
