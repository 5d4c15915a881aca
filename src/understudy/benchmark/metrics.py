"""The metrics of a benchmark: their names, titles and directions. How they are computed is in `scoring`.

Kept apart from `scoring` because a suite checks its metrics before anything slow is imported.
"""

import dataclasses
from collections.abc import Sequence

from understudy.errors import ConfigError, did_you_mean


@dataclasses.dataclass(frozen=True)
class BenchmarkMetric:
    """One figure of a benchmark.

    >>> METRICS["f1"].higher_is_better
    True
    """

    name: str
    title: str
    meaning: str
    """One or two sentences for readers of a report."""
    higher_is_better: bool
    needs_target: bool
    group: str
    """The heading under which reports show it: prediction, propensity, marginals, distance or validity."""


def _prediction(name: str, title: str, meaning: str, *, higher_is_better: bool = True) -> BenchmarkMetric:
    return BenchmarkMetric(name, title, meaning, higher_is_better, True, "prediction")


def _distance(name: str, title: str, meaning: str, *, group: str, higher_is_better: bool = False) -> BenchmarkMetric:
    return BenchmarkMetric(name, title, meaning, higher_is_better, False, group)


_TRAINED = "Classifiers of the target are trained on synthetic rows and tested on real rows that no method saw"
_FEWER = "The multilayer perceptron is trained on at most mlp_rows rows (2,500 by default), on the real side too."

METRICS: dict[str, BenchmarkMetric] = {
    metric.name: metric
    for metric in (
        _prediction(
            "f1",
            "F1, best classifier",
            f"{_TRAINED}: the best F1, of the positive class or as a mean weighted by class frequency. {_FEWER}",
        ),
        _prediction("auc", "AUC, best classifier", f"{_TRAINED}: the best area under the ROC curve. {_FEWER}"),
        _prediction("accuracy", "Accuracy, best classifier", f"{_TRAINED}: the best accuracy. {_FEWER}"),
        _prediction(
            "pr_auc", "PR AUC, best classifier", f"{_TRAINED}: the best area under the precision-recall curve."
        ),
        _prediction("f1_mean", "F1, mean of classifiers", f"{_TRAINED}: the mean F1. {_FEWER}"),
        _prediction("auc_mean", "AUC, mean of classifiers", f"{_TRAINED}: the mean area under the ROC curve. {_FEWER}"),
        _prediction(
            "r2",
            "R2, mean of regressors",
            "Random forest, gradient boosting and linear regression of a numeric target, trained on synthetic rows and "
            "tested on real rows that no method saw: the mean R2. Negative: worse than predicting the mean.",
        ),
        _prediction(
            "rmse",
            "RMSE, mean of regressors",
            "The root mean squared error of the same regressors, in the unit of the target.",
            higher_is_better=False,
        ),
        _prediction(
            "sra",
            "Synthetic ranking agreement",
            "The fraction of pairs of classifiers whose F1 scores rank them in the same order after training on "
            "synthetic and on real rows; ties agree. A random order scores about 0.5, the training rows 1 by "
            f"definition. {_FEWER}",
        ),
        _distance(
            "pmse_ratio",
            "pMSE ratio, classification tree",
            "How well a classification tree separates synthetic from real rows, relative to shuffled labels. "
            "About 1: like another sample from the population. A copy of the training rows scores 0. At most 3,000 "
            "rows of each table.",
            group="propensity",
        ),
        _distance(
            "pmse",
            "pMSE, classification tree",
            "The mean squared distance of the tree's predicted probabilities from the fraction of synthetic rows: from "
            "0, no separation, to 0.25, perfect separation.",
            group="propensity",
        ),
        _distance(
            "pmse_logistic",
            "pMSE ratio, logistic regression",
            "The pMSE of a logistic regression with main effects, over its expectation for rows of a correct model. A "
            "correct model scores about 1, a copy of the training rows 0.",
            group="propensity",
        ),
        _distance(
            "js",
            "Jensen-Shannon score",
            "How certain gradient boosting is about which table a held-out row comes from: 0 if it can only guess, "
            "0.216 if it is always certain.",
            group="propensity",
        ),
        _distance(
            "tvd1",
            "Total variation, 1-way marginals",
            "Total variation distance between real and synthetic histograms, averaged over columns. Numeric columns "
            "have 20 equal bins over the declared range.",
            group="marginals",
        ),
        _distance(
            "tvd2",
            "Total variation, 2-way marginals",
            "The same for pairs of columns, averaged over all pairs.",
            group="marginals",
        ),
        _distance(
            "tvd3",
            "Total variation, 3-way marginals",
            "The same for triples of columns, averaged over all triples, or 500 fixed random ones if there are more.",
            group="marginals",
        ),
        _distance(
            "worst2",
            "Worst total variation, 2-way marginals",
            "The total variation distance of the pair of columns where it is largest.",
            group="marginals",
        ),
        _distance(
            "ks",
            "Kolmogorov-Smirnov distance",
            "The largest gap between real and synthetic cumulative distributions, averaged over numeric columns.",
            group="marginals",
        ),
        _distance(
            "nist",
            "NIST 3-way score",
            "1 minus half the L1 distance of 3-way marginals, with 100 bins over the real range of numeric columns, "
            "averaged over 100 fixed random triples of columns.",
            group="marginals",
            higher_is_better=True,
        ),
        _distance(
            "corr_diff",
            "Difference of correlations",
            "How far the association of two columns is from the real one, averaged over all pairs.",
            group="marginals",
        ),
        _distance(
            "dependences_kept",
            "Dependences kept",
            "The fraction of dependent pairs of real columns that are about as dependent in the synthetic table.",
            group="marginals",
            higher_is_better=True,
        ),
        _distance(
            "wasserstein",
            "Wasserstein distance",
            "The mean squared distance by which 100 real rows must move to become 100 synthetic ones, averaged over "
            "100 draws. Two draws of real rows are not at distance 0 either: compare it with that of the real data.",
            group="distance",
        ),
        _distance(
            "invalid_cells",
            "Invalid cells",
            "The fraction of cells that are out of range, not a listed category, or missing where no real value is.",
            group="validity",
        ),
    )
}
"""Every metric by name, in the order of a report."""


def metric_names() -> tuple[str, ...]:
    """The names of all metrics, in the order of a report.

    >>> metric_names()[:2]
    ('f1', 'auc')
    """
    return tuple(METRICS)


def check_metrics(names: Sequence[str]) -> None:
    """Refuse an empty list and unknown names.

    >>> check_metrics(["f1", "tvd2"])
    >>> try:
    ...     check_metrics(["tdv2"])
    ... except ConfigError as error:
    ...     print(str(error)[:46])
    There is no metric 'tdv2'. Did you mean 'tvd2'
    """
    if isinstance(names, str):
        raise ConfigError(f"metrics must be a list of names, found the text {names!r}. Write it as a list.")
    if not names:
        raise ConfigError("metrics is empty, expected at least one name. Add one.")
    for name in names:
        if name not in METRICS:
            raise ConfigError(
                f"There is no metric {name!r}.{did_you_mean(name, METRICS)} The metrics are: {', '.join(METRICS)}."
            )
