"""Scores of class probabilities, against scikit-learn and slow versions."""

import itertools
import math

import numpy as np
import pytest
from sklearn import metrics as oracle

from understudy.evaluation.predictions import Predictions


def scores(truth: np.ndarray, score: np.ndarray) -> dict[str, float]:
    """Of one class against the rest; `score` is its probability."""
    return Predictions(truth.astype(int), np.stack([1 - score, score], axis=1), 1).scores()


@pytest.mark.parametrize("seed", range(5))
def test_scores_agree_with_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth, probabilities = rng.integers(3, size=200), np.round(rng.dirichlet(np.ones(4), size=200), 1)  # many ties
    weights, predicted = rng.integers(1, 4, size=200), probabilities.argmax(axis=1)  # class 3 is never true
    found = Predictions(truth, probabilities, None).scores(weights)
    assert found["accuracy"] == pytest.approx(oracle.accuracy_score(truth, predicted, sample_weight=weights))
    f1 = oracle.f1_score(truth, predicted, average="weighted", sample_weight=weights, zero_division=0)
    assert found["f1"] == pytest.approx(f1)
    areas = [oracle.roc_auc_score(truth == k, probabilities[:, k], sample_weight=weights) for k in range(3)]
    support = [weights[truth == k].sum() for k in range(3)]
    assert found["auc"] == pytest.approx(np.average(areas, weights=support))
    positive = Predictions(truth, probabilities, 2).scores(weights)
    assert positive["auc"] == pytest.approx(areas[2])
    assert positive["f1"] == pytest.approx(oracle.f1_score(truth == 2, predicted == 2, sample_weight=weights))


def slow_pr_auc(truth: np.ndarray, score: np.ndarray, steps: int = 4000) -> float:
    """Precision on a fine grid of true positives; false ones are interpolated linearly between thresholds."""
    points = [(0.0, 0.0)]
    for threshold in sorted(set(score), reverse=True):
        points.append((float(np.sum(truth[score >= threshold])), float(np.sum(~truth[score >= threshold]))))
    area = 0.0
    for (hits, alarms), (more_hits, more_alarms) in itertools.pairwise(points):
        share = (np.arange(steps) + 0.5) / steps
        t = hits + share * (more_hits - hits)
        area += (more_hits - hits) * float(np.mean(t / (t + alarms + share * (more_alarms - alarms))))
    return area / truth.sum()


@pytest.mark.parametrize("seed", range(4))
def test_area_under_precision_and_recall_agrees_with_a_fine_grid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.uniform(size=60) < 0.3
    score = np.round(0.5 * truth * 0.3 + 0.5 * rng.uniform(size=60), 1)
    assert scores(truth, score)["pr_auc"] == pytest.approx(slow_pr_auc(truth, score), abs=1e-4)


def test_constant_scores_are_worth_nothing() -> None:
    found = scores(np.arange(10) < 3, np.full(10, 0.7))
    assert found["auc"] == 0.5
    assert found["pr_auc"] == pytest.approx(0.3)


def test_a_perfect_score_has_area_one_and_a_reversed_one_is_not_flipped() -> None:
    truth, score = np.arange(10) < 3, 1 - np.arange(10.0) / 10
    assert scores(truth, score)["auc"] == 1 == pytest.approx(scores(truth, score)["pr_auc"])
    assert scores(truth, 1 - score)["auc"] == 0
    assert scores(truth, 1 - score)["pr_auc"] < 0.3


def test_f1_without_predicted_positives_is_zero() -> None:
    assert scores(np.array([True, False]), np.zeros(2))["f1"] == 0
    assert scores(np.array([False, False]), np.zeros(2))["f1"] == 0


@pytest.mark.parametrize("value", [True, False])
def test_areas_need_two_classes(value: bool) -> None:
    found = scores(np.full(5, value), np.arange(5.0) / 5)
    assert math.isnan(found["auc"])
    assert math.isnan(found["pr_auc"])


@pytest.mark.parametrize("positive", [None, 1])
def test_a_weight_is_a_number_of_copies(positive: int | None) -> None:
    """What the bootstrap rests on; also, twice all rows change nothing."""
    rng = np.random.default_rng(0)
    classes = 2 if positive else 3
    truth, probabilities = rng.integers(classes, size=80), np.round(rng.dirichlet(np.ones(classes), size=80), 2)
    times = rng.integers(4, size=80) * (truth != 2)  # of three classes, one is not drawn
    weighted = Predictions(truth, probabilities, positive).scores(times)
    copies = np.repeat(np.arange(80), times)
    assert weighted == pytest.approx(Predictions(truth[copies], probabilities[copies], positive).scores())
    plain = Predictions(truth, probabilities, positive).scores()
    assert Predictions(truth, probabilities, positive).scores(np.full(80, 2)) == pytest.approx(plain)


def test_several_classes_are_ranked_one_against_the_rest() -> None:
    rng = np.random.default_rng(1)
    truth, probabilities = rng.integers(3, size=150), np.round(rng.dirichlet(np.ones(3), size=150), 2)
    found = Predictions(truth, probabilities, None).scores()
    each = [(np.mean(truth == k), truth == k, probabilities[:, k]) for k in range(3)]
    expected = sum(share * oracle.roc_auc_score(ones, score) for share, ones, score in each)
    assert found["auc"] == pytest.approx(expected)
    assert found["pr_auc"] == pytest.approx(sum(share * slow_pr_auc(ones, s) for share, ones, s in each), abs=1e-3)


def test_a_class_that_the_test_rows_lack_is_no_part_of_the_ranking() -> None:
    rng = np.random.default_rng(2)
    truth, probabilities = rng.integers(2, size=100), rng.dirichlet(np.ones(3), size=100)
    expected = sum(np.mean(truth == k) * oracle.roc_auc_score(truth == k, probabilities[:, k]) for k in (0, 1))
    assert Predictions(truth, probabilities, None).scores()["auc"] == pytest.approx(expected)
