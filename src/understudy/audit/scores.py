"""Scores of an attack: one number for each run; the higher, the more likely the canary was in the table.

A *black-box* attack sees one synthetic table. A *white-box* attack sees the release folder, and so everything that can
be computed from it. Each has several scores, some of them trained. Scores are trained, and the best is chosen, on some
of the runs; bounds are computed from the others. So the chosen score counts as fixed in advance, and a bound needs no
correction for the number of scores.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import VarianceThreshold
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from understudy.audit.audited_runs import Runs
from understudy.audit.bounds import FEWEST_SCORES
from understudy.audit.neighbours import make_neighbours
from understudy.audit.observation import Cells
from understudy.errors import ConfigError, did_you_mean

THREATS = ("white", "black")
TRAINING_FRACTION = 0.4
"""Of the runs with the canary, and of those without: the scores are trained and chosen on them."""
FEWEST_RUNS = 2 * int(np.ceil(FEWEST_SCORES / (1 - TRAINING_FRACTION))) + 2
"""The minimum for a bound: with fewer, too few are left after training."""
FOLDS = 5


@dataclasses.dataclass(frozen=True)
class Scores:
    """The scores of the runs that were not used to train or choose the attack."""

    name: str
    """Of the chosen score."""
    inside: np.ndarray
    """Of runs with the canary."""
    outside: np.ndarray
    """Of runs without it."""


@dataclasses.dataclass(frozen=True)
class Score:
    """A query that adds up some columns of a view of the runs, or an estimator to be trained on all of them."""

    name: str
    view: np.ndarray
    """A row for each run."""
    estimator: Pipeline | None = None

    def values(self, train: np.ndarray, test: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The scores of runs `test`, after training on runs `train`; both are indices."""
        if self.estimator is None:
            return np.asarray(self.view[test].sum(axis=1))
        trained = clone(self.estimator).fit(self.view[train], labels[train])
        log_odds = trained.predict_log_proba(self.view[test])
        return np.asarray(np.clip(log_odds[:, 1], -700, 0) - np.clip(log_odds[:, 0], -700, 0))


def compute_scores(runs: Runs, threat: str, *, seed: int = 0) -> Scores:
    """Trains the scores of a threat on some of the runs, chooses the best, and scores the other runs with it.

    The seed splits the runs.
    """
    check_threat(threat)
    labels = runs.has_canary
    check_num_runs(2 * int(min(labels.sum(), (~labels).sum())))
    train, test = split_runs(labels, seed)
    candidates = list_scores(runs, threat)
    best = max(candidates, key=lambda candidate: _quality(candidate, train, labels, seed))
    values = best.values(train, test, labels)
    return Scores(best.name, values[labels[test]], values[~labels[test]])


def check_threat(threat: str) -> None:
    """Refuses a threat that is neither `white` nor `black`."""
    if threat not in THREATS:
        raise ConfigError(
            f"There is no threat {threat!r}.{did_you_mean(str(threat), list(THREATS))} It is white (the attack sees "
            "the release folder) or black (it sees a synthetic table)."
        )


def check_num_runs(num_runs: int) -> None:
    """Refuses fewer runs than any bound needs."""
    if isinstance(num_runs, bool) or not isinstance(num_runs, int) or num_runs < FEWEST_RUNS:
        raise ConfigError(
            f"An audit needs at least {FEWEST_RUNS} runs, half of them with the canary, found {num_runs}. Make 500, or "
            "thousands for a tight bound.",
            setting="num_runs",
        )


def list_scores(runs: Runs, threat: str) -> list[Score]:
    """The scores of a threat."""
    cells = Cells(make_neighbours(runs.target.canary))
    sample, (num_columns, where) = runs.part("sample"), (len(make_neighbours(runs.target.canary).columns), cells.canary)
    columns = _of_counts("synthetic rows", sample, num_columns, where, np.sqrt)  # stabilises the variance
    if threat == "black":
        return columns
    density, arrays = runs.part("density"), np.hstack([runs.part("arrays"), runs.part("facts")])
    columns += _of_counts("the released model", density, num_columns, where, np.log1p)
    columns.append(Score("linear discriminant of released arrays", arrays, _DISCRIMINANT))
    return columns


def _of_counts(
    what: str, counts: np.ndarray, num_columns: int, canary: tuple[int, ...], scale: Callable[[np.ndarray], np.ndarray]
) -> list[Score]:
    """Sums over the cells that contain the canary, and estimators that see all cells."""
    cells = scale(counts)
    ones, pairs = list(canary[:num_columns]), list(canary[num_columns:])
    return [
        Score(f"the canary's values in {what}", cells[:, ones]),
        Score(f"the canary's pairs of values in {what}", cells[:, pairs]),
        Score(f"rows like the canary in {what}", cells[:, -1:]),
        Score(f"likelihood ratio of the canary's cells in {what}", cells[:, [*ones, *pairs, -1]], _LIKELIHOOD_RATIO),
        Score(f"distinguisher of marginals of {what}", cells, _DISTINGUISHER),
        Score(f"linear discriminant of marginals of {what}", cells, _DISCRIMINANT),
    ]


def _scaled(estimator: BaseEstimator) -> Pipeline:
    return make_pipeline(VarianceThreshold(1e-12), StandardScaler(), estimator)


_LIKELIHOOD_RATIO = _scaled(GaussianNB(var_smoothing=1e-3))
"""Each column normal and independent of the others."""
_DISTINGUISHER = _scaled(LogisticRegression(C=0.01, max_iter=1000))
_DISCRIMINANT = _scaled(LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"))


def _quality(score: Score, train: np.ndarray, labels: np.ndarray, seed: int) -> float:
    """The area under the ROC curve on the training runs (cross-validated)."""
    if score.estimator is not None and np.ptp(score.view[train], axis=0).max(initial=0.0) < 1e-5:
        return 0.0  # nothing varies: there is nothing to train on
    values = np.empty(len(train))
    for fitted, left_out in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(train, labels[train]):
        values[left_out] = score.values(train[fitted], train[left_out], labels)
    return float(roc_auc_score(labels[train], values))


def split_runs(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of runs to train on and of the others, at the same fraction with and without the canary."""
    generator = np.random.default_rng(seed)
    train: list[int] = []
    for label in (False, True):
        mine = generator.permutation(np.flatnonzero(labels == label))
        train += mine[: int(TRAINING_FRACTION * len(mine))].tolist()
    return np.sort(train), np.setdiff1d(np.arange(len(labels)), train)
