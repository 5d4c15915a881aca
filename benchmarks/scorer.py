"""Scores of a synthetic table against the real rows that it was made from.

    python benchmarks/scorer.py REAL SYNTHETIC                                 # CSV or Parquet files; prints JSON
    python benchmarks/scorer.py REAL SYNTHETIC --test TEST --target COLUMN

Uses only pandas, NumPy and scikit-learn, and knows nothing about the methods. It reads the real rows, so its figures
are not private.

- `tvd1`, `tvd2`, `tvd3`: mean total variation distance between real and synthetic marginals over all columns, over all
  pairs of columns (500 fixed random ones if there are more than 10,000) and, for tables without a target, over 500
  fixed random sets of three columns. Numeric columns are cut into 20 bins of equal width over the real range; other
  columns are compared value by value. A missing value is a value of its own.
- `worst2`: the largest distance of a pair. `v_loss`, `v_worst`: the mean and the largest loss of Cramer's V over the
  pairs, where a larger V in the synthetic rows counts as no loss.
- `auc`, `f1`: classifiers (logistic regression, gradient boosting, random forest) trained on the synthetic rows and
  tested on real rows that no method saw; the mean of the three. AUC: of the rarer of two classes, or the mean of each
  class against the rest. F1: of the rarer of two classes, or the mean over classes.
- `r2`: the same for a numeric target with ridge regression, gradient boosting and a random forest, with each R2 set to
  at least -1.
"""

import argparse
import itertools
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import f1_score, r2_score, roc_auc_score
from threadpoolctl import threadpool_limits

BINS = 20
SAMPLED_CLIQUES = 500
MAX_PAIRS = 10_000
FOREST = {"n_estimators": 100, "min_samples_leaf": 5, "random_state": 0, "n_jobs": 1}
MISSING = "<missing>"


def score(
    train: pd.DataFrame, test: pd.DataFrame | None, synthetic: pd.DataFrame, target: str | None
) -> dict[str, float]:
    """All scores that apply; `test` and `target` are None for a table with nothing to predict.

    >>> table = pd.DataFrame({"a": ["x", "y"], "b": [1, 2]})
    >>> score(table, None, table, None)["tvd2"]
    0.0
    """
    _check(train, test, synthetic, target)
    real, fake, sizes = _codes(train, synthetic)
    scores = _marginal_scores(real, fake, sizes, with_triples=target is None)
    if target is None or test is None:
        return scores
    with threadpool_limits(1):  # on a busy machine, threads of boosting spend minutes waiting for each other
        if _is_numeric(train[target]):
            return {**scores, "r2": _regression(train, test, synthetic, target)}
        return {**scores, **_classification(train, test, synthetic, target)}


def _check(train: pd.DataFrame, test: pd.DataFrame | None, synthetic: pd.DataFrame, target: str | None) -> None:
    if (test is None) != (target is None):
        raise ValueError("Expected both a target and test rows, or neither of them; found only one. Give both.")
    if target is not None and (target not in train.columns or len(train.columns) < 2):
        raise ValueError(f"Expected the target {target!r} and another column, found {', '.join(train.columns)}.")
    for name, table in {"real": train, "synthetic": synthetic, "test": test}.items():
        if table is None:
            continue
        if not len(table):
            raise ValueError(f"Expected rows in the {name} table, found none.")
        if absent := [column for column in train.columns if column not in table.columns]:
            raise ValueError(f"Expected the columns of the real table, but these are not in the {name} one: {absent}.")


def _is_numeric(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _numbers(column: pd.Series) -> np.ndarray:
    """Numbers, with NaN for whatever is missing or not finite."""
    values = pd.to_numeric(column, errors="coerce").astype("Float64").to_numpy(dtype=float, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def _texts(column: pd.Series) -> np.ndarray:
    return column.astype(object).where(column.notna(), MISSING).astype(str).to_numpy(dtype=str)


def _codes(train: pd.DataFrame, synthetic: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Both tables as codes of one common encoding, and the number of codes of each column."""
    real, fake, sizes = [], [], []
    for name in train.columns:
        if _is_numeric(train[name]):
            first, second = _bins(_numbers(train[name]), _numbers(synthetic[name]))
            size = BINS + 1
        else:
            both, values = pd.factorize(np.concatenate([_texts(train[name]), _texts(synthetic[name])]))
            first, second, size = both[: len(train)], both[len(train) :], len(values)
        real.append(first)
        fake.append(second)
        sizes.append(size)
    return np.stack(real, 1), np.stack(fake, 1), sizes


def _bins(real: np.ndarray, fake: np.ndarray) -> list[np.ndarray]:
    """Bins of equal width over the real range; values beyond it go to the outermost ones, missing ones to another."""
    known = real[~np.isnan(real)]
    edges = np.linspace(known.min(), known.max(), BINS + 1)[1:-1] if len(known) else np.zeros(0)
    return [np.where(np.isnan(values), BINS, np.digitize(values, edges)) for values in (real, fake)]


def _marginal_scores(real: np.ndarray, fake: np.ndarray, sizes: list[int], *, with_triples: bool) -> dict[str, float]:
    draw, width = np.random.default_rng(0), len(sizes)
    scores = {"tvd1": float(np.mean([_distance(*_marginals(real, fake, sizes, (at,))) for at in range(width)]))}
    pairs = list(itertools.combinations(range(width), 2))
    if not pairs:
        return scores
    if len(pairs) > MAX_PAIRS:
        pairs = [pairs[at] for at in draw.choice(len(pairs), SAMPLED_CLIQUES, replace=False)]
    distances, losses = [], []
    for pair in pairs:
        ours, theirs = _marginals(real, fake, sizes, pair)
        distances.append(_distance(ours, theirs))
        losses.append(max(0.0, _cramers_v(ours) - _cramers_v(theirs)))
    scores["tvd2"], scores["worst2"] = float(np.mean(distances)), float(np.max(distances))
    scores["v_loss"], scores["v_worst"] = float(np.mean(losses)), float(np.max(losses))
    if with_triples and width >= 3:
        triples = [tuple(draw.choice(width, 3, replace=False)) for _ in range(SAMPLED_CLIQUES)]
        scores["tvd3"] = float(np.mean([_distance(*_marginals(real, fake, sizes, each)) for each in triples]))
    return scores


def _marginals(
    real: np.ndarray, fake: np.ndarray, sizes: list[int], clique: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """The marginal of both tables over these columns, as fractions of their rows."""
    shape = tuple(sizes[at] for at in clique)
    tables = []
    for codes in (real, fake):
        flat = np.ravel_multi_index(tuple(codes[:, at] for at in clique), shape)
        tables.append(np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape) / len(codes))
    return tables[0], tables[1]


def _distance(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(first - second).sum() / 2)


def _cramers_v(table: np.ndarray) -> float:
    """Without empty rows and columns; 0 if only one row or column is left."""
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    if min(table.shape) < 2:
        return 0.0
    independent = np.outer(table.sum(1), table.sum(0))
    return float(np.sqrt(((table - independent) ** 2 / independent).sum() / (min(table.shape) - 1)))


def _features(train: pd.DataFrame, table: pd.DataFrame, target: str) -> np.ndarray:
    """Numbers standardised, with the median for missing ones, and the rest one-hot, as in the real training rows."""
    blocks = []
    for name in train.columns.drop(target):
        if not _is_numeric(train[name]):
            blocks.append(_texts(table[name])[:, None] == np.unique(_texts(train[name]))[None])
            continue
        known, values = _numbers(train[name]), _numbers(table[name])
        if (known := known[~np.isnan(known)]).size:
            values = np.where(np.isnan(values), np.median(known), values)
            blocks.append(((values - known.mean()) / (known.std() or 1.0))[:, None])
    return np.concatenate(blocks or [np.zeros((len(table), 1))], axis=1).astype(np.float32)


def _classification(train: pd.DataFrame, test: pd.DataFrame, synthetic: pd.DataFrame, target: str) -> dict[str, float]:
    classes, truth, labels = np.unique(_texts(train[target])), _texts(test[target]), _texts(synthetic[target])
    positives = [value for value in classes if 0 < (truth == value).sum() < len(truth)]
    if not positives:
        raise ValueError(f"Expected test rows of at least two classes of {target!r}, found one. Give other test rows.")
    if len(classes) == 2:
        positives = [min(classes, key=lambda value: (truth == value).sum())]
    # Boosting splits off rows for early stopping, which is impossible for a class of one row.
    known = np.isin(labels, [value for value in classes if (labels == value).sum() > 1])
    x, y, ahead = _features(train, synthetic, target)[known], labels[known], _features(train, test, target)
    aucs, f1s = [], []
    for model in (
        LogisticRegression(max_iter=1000),
        HistGradientBoostingClassifier(random_state=0),
        RandomForestClassifier(**FOREST),
    ):
        chances, guess = _predictions(model, x, y, ahead, classes)
        columns = [int(np.searchsorted(classes, value)) for value in positives]
        aucs.append(np.mean([roc_auc_score(truth == classes[at], chances[:, at]) for at in columns]))
        counted = positives if len(classes) == 2 else classes
        f1s.append(f1_score(truth, guess, labels=counted, average="macro", zero_division=0))
    return {"auc": float(np.mean(aucs)), "f1": float(np.mean(f1s))}


def _predictions(model, x: np.ndarray, y: np.ndarray, ahead: np.ndarray, classes: np.ndarray) -> tuple:
    """The probability of each class, 0 for those that the synthetic rows lack, and the class predicted."""
    chances = np.zeros((len(ahead), len(classes)))
    if len(np.unique(y)) < 2:  # nothing to learn: a constant
        return chances, np.full(len(ahead), y[0] if len(y) else classes[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a logistic regression that has not converged is scored as it is
        model.fit(x, y)
    chances[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(ahead)
    return chances, model.predict(ahead)


def _regression(train: pd.DataFrame, test: pd.DataFrame, synthetic: pd.DataFrame, target: str) -> float:
    labels, truth = _numbers(synthetic[target]), _numbers(test[target])
    known, asked = ~np.isnan(labels), ~np.isnan(truth)
    if known.sum() < 2 or asked.sum() < 2:
        return -1.0
    x, ahead = _features(train, synthetic, target)[known], _features(train, test, target)[asked]
    models = (Ridge(), HistGradientBoostingRegressor(random_state=0), RandomForestRegressor(**FOREST))
    guesses = [model.fit(x, labels[known]).predict(ahead) for model in models]
    return float(np.mean([max(-1.0, r2_score(truth[asked], guess)) for guess in guesses]))


def _read(path: Path) -> pd.DataFrame:
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("real", type=Path)
    parser.add_argument("synthetic", type=Path)
    parser.add_argument("--test", type=Path, help="real rows that no method saw")
    parser.add_argument("--target", help="the column to predict")
    given = parser.parse_args()
    try:
        test = None if given.test is None else _read(given.test)
        print(json.dumps(score(_read(given.real), test, _read(given.synthetic), given.target), indent=2))
    except (ValueError, OSError) as problem:
        print(f"benchmarks/scorer.py: {problem}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
