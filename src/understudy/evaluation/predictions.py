"""Scores of predicted class probabilities: accuracy, F1, ROC AUC and precision-recall AUC, for any weights of the rows.

Counted here and not by scikit-learn because a bootstrap scores every model a thousand times: with ranks and predicted
classes computed once, a redraw takes a twentieth of the time. The tests hold the results against scikit-learn.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

SCORES = ("accuracy", "f1", "auc", "pr_auc")
CURVE_POINTS = 100


class Predictions:
    """One model's class probabilities for the test rows.

    With a positive class, F1 and both AUCs are those of this class. Otherwise they are means over the classes of the
    test rows, each against the rest, weighted by frequency.
    """

    def __init__(
        self, truth: Int[np.ndarray, " rows"], probabilities: Float[np.ndarray, "rows classes"], positive: int | None
    ) -> None:
        self.truth, self.positive = truth, positive
        self.num_classes = probabilities.shape[1]
        self.cells = truth * self.num_classes + probabilities.argmax(axis=1)
        classes = np.unique(truth) if positive is None else [positive]
        self.against_rest = [(truth == k, _ranks(probabilities[:, k])) for k in classes]

    def scores(self, weights: np.ndarray | None = None) -> dict[str, float]:
        """By the names in `SCORES`; AUCs are NaN if the test rows have one class only.

        A weight is how often a row counts: in a bootstrap, how often it was drawn.
        """
        confusion = np.bincount(self.cells, weights, self.num_classes**2).reshape(self.num_classes, self.num_classes)
        hits, claimed, support = np.diag(confusion), confusion.sum(axis=0), confusion.sum(axis=1)
        f1 = 2 * hits / np.maximum(claimed + support, 1e-300)  # 0 for a class that is neither there nor predicted
        f1_score = float(np.average(f1, weights=support)) if self.positive is None else float(f1[self.positive])
        curves = [_cumulative(ones, ranks, weights) for ones, ranks in self.against_rest]
        areas = [(_roc_area(*curve), _pr_area(*curve), curve[0][-1]) for curve in curves if curve[0][-1]]
        roc, pr = math.nan, math.nan
        if areas:
            *columns, positives = np.array(areas).T
            roc, pr = (float(np.average(column, weights=positives)) for column in columns)
        return dict(zip(SCORES, (float(hits.sum() / confusion.sum()), f1_score, roc, pr), strict=True))

    def roc(self) -> dict[str, list[float]]:
        """The ROC curve of the positive class, at no more than `CURVE_POINTS` thresholds; empty with one class."""
        ((ones, ranks),) = self.against_rest
        hits, alarms = _cumulative(ones, ranks, None)
        if not hits[-1] or not alarms[-1]:
            return {"fpr": [], "tpr": []}
        at = np.unique(np.linspace(0, len(hits) - 1, CURVE_POINTS).round().astype(int))
        return {"fpr": (alarms[at] / alarms[-1]).tolist(), "tpr": (hits[at] / hits[-1]).tolist()}


def bootstrap_error(redrawn: Sequence[float]) -> float | None:
    """The standard deviation of bootstrapped scores; None without at least two finite values."""
    values = np.array([value for value in redrawn if math.isfinite(value)])
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _ranks(score: np.ndarray) -> np.ndarray:
    """The index of each row's threshold, the highest score first; equal scores share one."""
    return np.unique(-score, return_inverse=True)[1]


def _cumulative(
    truth: Bool[np.ndarray, " rows"], ranks: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """True and false positives at each threshold, from none to all."""
    positives, negatives = (
        np.bincount(ranks, part if weights is None else weights * part, minlength=ranks.max() + 1)
        for part in (truth, ~truth)
    )
    return np.cumsum(np.r_[0.0, positives]), np.cumsum(np.r_[0.0, negatives])


def _roc_area(hits: np.ndarray, alarms: np.ndarray) -> float:
    return float(np.trapezoid(hits, alarms) / (hits[-1] * alarms[-1])) if hits[-1] and alarms[-1] else math.nan


def _pr_area(hits: np.ndarray, alarms: np.ndarray) -> float:
    """The area under the precision-recall curve, interpolated as by Davis and Goadrich (2006).

    Between two thresholds the false positives grow linearly with the true ones, t, so precision is t / (t + FP(t)); its
    integral over recall has a closed form. A constant score has the prevalence. scikit-learn's average precision does
    not interpolate, and differs.
    """
    if not hits[-1] or not alarms[-1]:
        return math.nan
    rises = np.diff(hits) > 0  # elsewhere recall is constant
    start, end, before, after = hits[:-1][rises], hits[1:][rises], alarms[:-1][rises], alarms[1:][rises]
    slope = (after - before) / (end - start)
    offset = before - slope * start
    first = start + before == 0  # a line through the origin: precision is constant
    growth = np.log((end + after) / np.where(first, 1.0, start + before))
    bent = np.where(first, 0.0, offset / (1 + slope) * growth)
    return float(np.sum((end - start - bent) / (1 + slope)) / hits[-1])
