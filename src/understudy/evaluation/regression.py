"""Predicting numbers, and every column in turn, from real rows and from synthetic ones.

`learn_numeric` is `learning.learn` for a numeric target; `dimension_prediction` predicts each column from the others;
`parallel_rmse` compares the errors of many small linear models.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression

from understudy.errors import ConfigError, SchemaError, did_you_mean
from understudy.evaluation.judged import Judged, Trait
from understudy.evaluation.learning import auc, f1, f1_of_classes, spread
from understudy.evaluation.scores import HIGHER, LOWER, NEAR_ONE, Metric, Result, Score
from understudy.evaluation.threads import in_threads
from understudy.schema.values import format_list as listed

REGRESSORS: dict[str, Callable[[int], Any]] = {
    "random_forest": lambda seed: RandomForestRegressor(min_samples_leaf=5, max_features=1 / 3, random_state=seed),
    "gradient_boosting": lambda seed: HistGradientBoostingRegressor(random_state=seed),
    "linear": lambda seed: LinearRegression(),
}
"""By name, a model of a number for a seed: least squares, as in the QUAIL paper, and two that find interactions."""

PROTOCOLS = ("code", "transfer")
LEAST_R2 = 0.1
"""Numeric columns that real rows predict no better than this are listed but not plotted."""
MOST_REGRESSORS, FIRST_REGRESSORS = 6, 5
"""Up to six columns give at most 20 triples; of more, the first five are taken, which give the paper's 10."""


RANK_TOLERANCE = 1e-9
"""Directions with less of the largest spread than this count as exact dependencies, such as levels that sum to 1."""
ONE_VALUE = "The target has one value in the test rows."


# A numeric target


def learn_numeric(
    train: Judged,
    test: Judged,
    *,
    target: str,
    models: Sequence[str] = tuple(REGRESSORS),
    max_rows: int | None = 20_000,
    bootstrap: int = 0,
    seed: int = 0,
) -> Result:
    """Trains models of a numeric target on one table, scores them on another.

    Keys: rmse, in the target's own unit (days for dates), and r2 = 1 - SSE/SST on `test`, which is negative for a model
    worse than the test rows' mean; each is the mean over the models. Rows whose target is missing are left out, and
    counted in the notes.

    Args:
        train: The rows to learn from.
        test: The rows to score on.
        target: The column to predict, from all others.
        models: Names in `REGRESSORS`.
        max_rows: At most so many training rows, drawn by the seed; None: all.
        bootstrap: Redraws of the test rows for standard errors; the models are not trained again.
        seed: Of the subsample, the models and the bootstrap.
    """
    _numeric(train, target)
    for name in models:
        if name not in REGRESSORS:
            raise ConfigError(
                f"There is no model {name!r}.{did_you_mean(name, REGRESSORS)} All: {', '.join(REGRESSORS)}."
            )
    (train, test), notes = _with_number(target, train=train, test=test)
    rows = train.at_most(max_rows, seed=seed)
    settings: dict[str, object] = {
        "target": target,
        "models": list(models),
        "max_rows": max_rows,
        "bootstrap": bootstrap,
        "seed": seed,
        "train_rows": rows.num_rows,
        "test_rows": test.num_rows,
    }
    others = [name for name in train.layout.names if name != target]
    why = _why_not(target, others, train, test)
    if why:
        scores = {key: Score.none(why) for key in ("rmse", "r2")}
        return Result(scores=scores, settings=settings, details={"models": {}}, notes=notes)
    features, test_features = (table.features(others).astype(np.float64) for table in (rows, test))

    def errors(name: str) -> np.ndarray:
        return REGRESSORS[name](seed).fit(features, rows[target]).predict(test_features) - test[target]

    found = dict(zip(models, in_threads([partial(errors, name) for name in models]), strict=True))

    def over_models(draw: np.ndarray | slice) -> tuple[float, float]:
        each = [(rmse(error[draw]), r2(error[draw], test[target][draw])) for error in found.values()]
        root, share = np.mean(each, axis=0)
        return float(root), float(share)

    generator = np.random.default_rng(seed)
    redrawn = [over_models(generator.integers(test.num_rows, size=test.num_rows)) for _ in range(bootstrap)]
    root, share = over_models(slice(None))
    scores = {
        "rmse": Score(root, spread([value for value, _ in redrawn])),
        "r2": Score(share, spread([value for _, value in redrawn])),
    }
    if math.isnan(share):
        scores["r2"] = Score.none(ONE_VALUE)
    each = {name: {"rmse": rmse(error), "r2": _or_none(r2(error, test[target]))} for name, error in found.items()}
    return Result(scores=scores, settings=settings, details={"models": each}, notes=notes)


def rmse(errors: Float[np.ndarray, " rows"]) -> float:
    """The root of the mean squared error."""
    return float(np.sqrt(np.mean(errors**2)))


def r2(errors: Float[np.ndarray, " rows"], truth: Float[np.ndarray, " rows"]) -> float:
    """1 - SSE/SST; NaN where the truth has one value."""
    return float(1 - np.sum(errors**2) / np.sum((truth - truth.mean()) ** 2)) if np.ptp(truth) > 0 else math.nan


def _numeric(table: Judged, target: str) -> Trait:
    trait = table.layout[target]
    if not trait.is_numeric:
        raise SchemaError(f"The target {target!r} is {trait.kind}, and a numeric column was expected.")
    return trait


def _with_number(target: str, **tables: Judged) -> tuple[list[Judged], tuple[str, ...]]:
    """The rows in which the target is a number, and in notes how many others there were."""
    kept = {name: np.isfinite(table[target]) for name, table in tables.items()}
    notes = [
        f"{int(np.sum(~rows)):,} {name} rows have no number in {target!r} and were left out."
        for name, rows in kept.items()
        if not rows.all()
    ]
    return [table.take(kept[name]) for name, table in tables.items()], tuple(notes)


def _why_not(target: str, others: Sequence[str], *tables: Judged) -> str:
    if not others:
        return f"There is no column from which {target!r} could be predicted."
    if not all(table.num_rows for table in tables):
        return f"One of the tables has no number in {target!r}."
    return ""


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


# Each column from the others


class _Encoded(NamedTuple):
    """A table with its features of all columns."""

    table: Judged
    features: Float[np.ndarray, "rows features"]


class _Task(NamedTuple):
    """One column to predict, and how that is scored."""

    trait: Trait
    kind: str
    """"auc", "f1" or "r2"."""
    positive: int | None
    """The code of the rarer of two real classes."""
    inputs: np.ndarray
    """The numbers of the other columns' features."""
    widths: np.ndarray
    """What 1 is in each of them: the range of a number, else 1."""


class _Found(NamedTuple):
    score: float
    """NaN where it is not defined."""
    converged: bool


def dimension_prediction(
    train: Judged,
    synthetic: Judged,
    test: Judged,
    *,
    protocol: str = "code",
    max_rows: int | None = 20_000,
    seed: int = 0,
) -> Result:
    """Dimension-wise prediction: each column predicted from the others, by real and by synthetic rows.

    After MedGAN and DP-auto-GAN. If all columns are binary: logistic regression (liblinear, 100 iterations), AUC; a
    column that is constant in a table is dropped and counted. Else a forest of 10 trees for a discrete column, scored
    by F1 of the rarer class if there are two and by micro-F1 if there are more, with nulls as a class; and for a
    numeric one the Lasso with penalty 1, scored by R squared. The Lasso sees numbers in their own units, as the target
    is, because that penalty would delete every input on [0, 1]. Numeric columns whose real R squared is below 0.1 are
    listed but neither plotted nor summed up.

    Keys: dwpred_sum_squares, the sum of squared differences of the two scores over the plotted columns, and
    dwpred_distance, their mean distance |a - b| / sqrt(2) from the diagonal.

    Args:
        train: The real rows to learn from.
        synthetic: The synthetic rows to learn from.
        test: The real rows to score on.
        protocol: "code": two models, both scored on `test`. "transfer", as the paper's appendix reads: one model, of
            the real rows, scored on `test` and on the synthetic rows.
        max_rows: At most so many rows of `train` and `synthetic`, drawn by the seed; None: all.
        seed: Of the subsamples and the forests.
    """
    if protocol not in PROTOCOLS:
        raise ConfigError(f"protocol must be {' or '.join(map(repr, PROTOCOLS))}, found {protocol!r}.")
    real, fake, held = (
        _Encoded(table, table.features())
        for table in (train.at_most(max_rows, seed=seed), synthetic.at_most(max_rows, seed=seed), test)
    )
    pairs = ((real, held), (fake, held)) if protocol == "code" else ((real, held), (real, fake))
    settings: dict[str, object] = {
        "protocol": protocol,
        "max_rows": max_rows,
        "seed": seed,
        "train_rows": real.table.num_rows,
        "synthetic_rows": fake.table.num_rows,
        "test_rows": test.num_rows,
    }
    tasks = _tasks(train)
    if len(tasks) < 2:
        scores = {key: Score.none("It needs two columns.") for key in ("dwpred_sum_squares", "dwpred_distance")}
        return Result(scores=scores, settings=settings, details={"points": []})
    found = in_threads([partial(_predictability, task, *pair, seed=seed) for task in tasks for pair in pairs])
    points: list[dict[str, Any]] = []
    dropped = []
    for task, ours, theirs in zip(tasks, found[::2], found[1::2], strict=True):
        if math.isnan(ours.score) or math.isnan(theirs.score):
            dropped.append(task.trait.name)
            continue
        plotted = task.kind != "r2" or ours.score >= LEAST_R2
        point = {"column": task.trait.name, "kind": task.kind, "real": ours.score, "synthetic": theirs.score}
        points.append({**point, "plotted": plotted})
    notes = []
    if dropped:
        notes.append(
            f"{len(dropped)} columns dropped, being constant or without a number in a table: {listed(dropped)}."
        )
    stopped = sum(not each.converged for each in found)
    if stopped:
        notes.append(f"{stopped} of {len(found)} models stopped before they had converged.")
    shown = [(point["real"], point["synthetic"]) for point in points if point["plotted"]]
    return Result(scores=_to_diagonal(shown), settings=settings, details={"points": points}, notes=tuple(notes))


def _to_diagonal(points: Sequence[tuple[float, float]]) -> dict[str, Score]:
    if not points:
        none = Score.none(
            "No column can be plotted: each is constant or empty, or a number that the model of this comparison, the"
            " Lasso with penalty 1, hardly predicts even from real rows."
        )
        return {"dwpred_sum_squares": none, "dwpred_distance": none}
    gaps = np.array([ours - theirs for ours, theirs in points])
    return {
        "dwpred_sum_squares": Score(float(np.sum(gaps**2))),
        "dwpred_distance": Score(float(np.mean(np.abs(gaps))) / math.sqrt(2)),
    }


def _tasks(train: Judged) -> list[_Task]:
    traits = train.layout.traits
    owner = np.repeat(np.arange(len(traits)), [trait.num_features for trait in traits])
    widths = np.concatenate(
        [np.r_[t.upper - t.lower, [1.0] * t.has_nulls] if t.is_numeric else np.ones(t.num_features) for t in traits]
    )
    all_binary = all(trait.is_binary for trait in traits)
    tasks = []
    for place, trait in enumerate(traits):
        kind = "auc" if all_binary else "r2" if trait.is_numeric else "f1"
        positive = None
        if trait.is_binary:
            positive = int(np.sum(train[trait.name] == 1) <= np.sum(train[trait.name] == 0))
        inputs = np.flatnonzero(owner != place)
        tasks.append(_Task(trait, kind, positive, inputs, widths[inputs]))
    return tasks


def _predictability(task: _Task, learner: _Encoded, judge: _Encoded, *, seed: int) -> _Found:
    """How well a model of the column in one table predicts it in another."""
    answers, truth = learner.table[task.trait.name], judge.table[task.trait.name]
    inputs, judged_inputs = learner.features[:, task.inputs], judge.features[:, task.inputs]
    if task.kind == "r2":
        known, there = np.isfinite(answers), np.isfinite(truth)
        if not known.any() or not there.any():
            return _Found(math.nan, True)
        model = Lasso(alpha=1.0, precompute=True).fit((inputs * task.widths)[known], answers[known])
        errors = model.predict((judged_inputs * task.widths)[there]) - truth[there]
        return _Found(r2(errors, truth[there]), model.n_iter_ < model.max_iter)
    if task.kind == "auc":
        ones = answers == 1
        if ones.all() or not ones.any():
            return _Found(math.nan, True)
        model = LogisticRegression(solver="liblinear", max_iter=100, random_state=seed).fit(inputs, ones)
        return _Found(auc(truth == 1, model.decision_function(judged_inputs)), model.n_iter_[0] < model.max_iter)
    forest = RandomForestClassifier(n_estimators=10, random_state=seed).fit(inputs, answers)
    predicted = forest.predict(judged_inputs)
    if task.positive is None:
        return _Found(f1_of_classes(truth, predicted, average="micro"), True)
    return _Found(f1(truth == task.positive, predicted == task.positive), True)


# Many small linear models


def parallel_rmse(
    train: Judged, synthetic: Judged, test: Judged, *, target: str, regressors: Sequence[str] | None = None
) -> Result:
    """Least squares on every triple of columns, fitted to real and to synthetic rows: the errors on real test rows.

    Discrete columns enter by a coefficient for each level, and of all best fits the one with the smallest coefficients
    is taken, the intercept left free. So a level that the fitted rows lack has coefficient 0: it is predicted as the
    mean of the levels' effects, and no level is a reference. All rows are used; those without the target are left out.

    Keys: rmse_ratio_mean and rmse_ratio_max, of the error after fitting synthetic rows over that after real ones.

    Args:
        train: The real rows to fit.
        synthetic: The synthetic rows to fit.
        test: The real rows to predict.
        target: A numeric column.
        regressors: Columns; None: all but the target if they are at most six, else the first five of the layout.
    """
    _numeric(train, target)
    others = [name for name in train.layout.names if name != target]
    if regressors is None:
        regressors = others if len(others) <= MOST_REGRESSORS else others[:FIRST_REGRESSORS]
    for name in regressors:
        if name not in others:
            raise SchemaError(f"There is no regressor {name!r} beside the target.{did_you_mean(name, others)}")
    (train, synthetic, test), notes = _with_number(target, train=train, synthetic=synthetic, test=test)
    settings: dict[str, object] = {
        "target": target,
        "regressors": list(regressors),
        "train_rows": train.num_rows,
        "synthetic_rows": synthetic.num_rows,
        "test_rows": test.num_rows,
    }
    why = _why_not(target, regressors, train, synthetic, test)
    if why:
        scores = {key: Score.none(why) for key in ("rmse_ratio_mean", "rmse_ratio_max")}
        return Result(scores=scores, settings=settings, details={"models": []}, notes=notes)
    names = np.repeat(np.array(regressors), [train.layout[name].num_features for name in regressors])
    test_features = test.features(regressors).astype(np.float64)
    ours, theirs = (_Squares.of(table, regressors, target) for table in (train, synthetic))
    models: list[dict[str, Any]] = []
    for triple in itertools.combinations(regressors, min(3, len(regressors))):
        used = np.flatnonzero(np.isin(names, triple))
        real, fake = (rmse(fit.predict(test_features, used) - test[target]) for fit in (ours, theirs))
        models.append({"regressors": list(triple), "real": real, "synthetic": fake})
    ratios = [model["synthetic"] / model["real"] for model in models if model["real"] > 0]
    if len(ratios) < len(models):
        notes += (f"{len(models) - len(ratios)} models have no error after real rows, and so no ratio.",)
    scores = {
        "rmse_ratio_mean": Score(float(np.mean(ratios))) if ratios else Score.none("Real rows leave no error."),
        "rmse_ratio_max": Score(float(np.max(ratios))) if ratios else Score.none("Real rows leave no error."),
    }
    return Result(scores=scores, settings=settings, details={"models": models}, notes=notes)


class _Squares(NamedTuple):
    """A table reduced to what least squares on any of its features needs."""

    means: Float[np.ndarray, " features"]
    mean: float
    triangle: Float[np.ndarray, "k features"]
    """R of a QR decomposition of the centred features and target: fits on its columns are fits on the rows."""
    side: Float[np.ndarray, " k"]

    @classmethod
    def of(cls, table: Judged, columns: Sequence[str], target: str) -> "_Squares":
        features = table.features(columns).astype(np.float64)
        means, mean = features.mean(axis=0), table[target].mean()
        triangle: np.ndarray = np.linalg.qr(np.c_[features - means, table[target] - mean], mode="r")  # type: ignore
        return cls(means, float(mean), triangle[:, :-1], triangle[:, -1])

    def predict(self, features: Float[np.ndarray, "rows features"], used: np.ndarray) -> Float[np.ndarray, " rows"]:
        """By the smallest best coefficients of the used features."""
        coefficients = np.linalg.lstsq(self.triangle[:, used], self.side, rcond=RANK_TOLERANCE)[0]
        return self.mean + (features[:, used] - self.means[used]) @ coefficients


METRICS = (
    Metric(
        key="tstr_rmse",
        title="Error of predicted numbers, trained on synthetic",
        direction=LOWER,
        low=0.0,
        high=math.inf,
        meaning="By how much models trained on synthetic rows typically miss the target in real test rows, in its own"
        " unit; the mean over the models.",
    ),
    Metric(
        key="tstr_r2",
        title="R squared, trained on synthetic",
        direction=HIGHER,
        low=-math.inf,
        high=1.0,
        meaning="The share of the real target's variance that models trained on synthetic rows explain; 0 is no better"
        " than always saying the mean. The mean over the models.",
    ),
    Metric(
        key="dwpred_sum_squares",
        title="Dimension-wise prediction, squared gaps",
        direction=LOWER,
        low=0.0,
        high=math.inf,
        meaning="Each column is predicted from the others, once after learning from real rows and once from synthetic"
        " ones; the squared differences of the two scores, summed over the columns. Numbers that the model used for"
        " them (Lasso with penalty 1) hardly predicts from real rows are left out.",
    ),
    Metric(
        key="dwpred_distance",
        title="Dimension-wise prediction, distance to the diagonal",
        direction=LOWER,
        low=0.0,
        high=math.inf,
        meaning="The same comparison as a mean over columns: how far the points lie from the line on which synthetic"
        " rows teach as much as real ones.",
    ),
    Metric(
        key="rmse_ratio_mean",
        title="Linear models: error ratio, mean",
        direction=NEAR_ONE,
        low=0.0,
        high=math.inf,
        meaning="Small linear models of a number: their error on real test rows after fitting synthetic rows, divided"
        " by the error after fitting real ones. The mean over all triples of columns.",
    ),
    Metric(
        key="rmse_ratio_max",
        title="Linear models: error ratio, worst",
        direction=NEAR_ONE,
        low=0.0,
        high=math.inf,
        meaning="The same ratio for the triple of columns with which synthetic rows do worst.",
    ),
)
