"""The 25 Gaussians and the inception score against perfect samplers, slow versions and closed forms."""

import json
import math

import numpy as np
import pytest

from understudy.evaluation.sample_quality import CENTRES, gaussian_quality, inception_score
from understudy.evaluation.scores import CATALOGUE, metrics_of


def perfect(num_rows: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return CENTRES[generator.integers(25, size=num_rows)] + generator.normal(0, 0.05, (num_rows, 2))


def test_a_perfect_sampler() -> None:
    """0.98 to 0.99 with the cap, 0.99 without."""
    result = gaussian_quality(perfect(100_000))
    assert 0.98 < result["quality"] < 0.99
    assert result["quality_uncapped"] == pytest.approx(0.99, abs=0.002)
    assert result["modes"] == 25
    assert result["mode_tv"] < 0.02


def test_all_mass_in_one_mode() -> None:
    result = gaussian_quality(np.tile([[-4.0, 2.0]], (1000, 1)))
    assert result["quality"] == pytest.approx(0.04)
    assert result["quality_uncapped"] == 1
    assert result["modes"] == 1
    assert result["mode_tv"] == pytest.approx(0.96)


def test_counts_agree_with_a_loop_over_centres() -> None:
    points = np.random.default_rng(0).uniform(-6, 6, (5000, 2))
    radius = 0.15174
    result = gaussian_quality(points)
    assert result.settings["radius"] == pytest.approx(radius, abs=5e-6)
    counts = [sum(math.dist(point, centre) <= radius for point in points) for centre in CENTRES]
    assert result.details["counts"] == counts
    assert result["quality_uncapped"] == pytest.approx(sum(counts) / 5000)
    assert result["quality"] == pytest.approx(sum(min(200, count) for count in counts) / 5000)
    assert result["mode_tv"] == pytest.approx(sum(abs(count / sum(counts) - 0.04) for count in counts) / 2)


def test_points_nowhere() -> None:
    result = gaussian_quality(np.array([[1.0, 1.0], [np.nan, 0.0], [np.inf, 0.0], [1e30, -1e30]]))
    assert result["quality"] == result["quality_uncapped"] == result["modes"] == 0
    assert "No row" in result.scores["mode_tv"].why
    assert not any(score.is_defined for score in gaussian_quality(np.zeros((0, 2))).scores.values())


def test_a_null_lies_nowhere() -> None:
    points = CENTRES.copy()
    points[0, 1] = np.nan
    assert gaussian_quality(points)["quality_uncapped"] == 24 / 25


def test_inception_score_between_one_and_the_number_of_classes() -> None:
    assert inception_score(np.eye(10)[np.arange(5000) % 10])["inception_score"] == pytest.approx(10)
    assert inception_score(np.full((50, 10), 0.1))["inception_score"] == pytest.approx(1)
    assert inception_score(np.eye(10)[np.zeros(50, int)])["inception_score"] == pytest.approx(1)


def test_inception_score_agrees_with_a_loop() -> None:
    chances = np.random.default_rng(0).dirichlet(np.ones(4), 60)
    overall = chances.mean(axis=0)
    divergence = sum(p * math.log(p / q) for row in chances for p, q in zip(row, overall, strict=True)) / 60
    assert inception_score(chances)["inception_score"] == pytest.approx(math.exp(divergence))
    assert inception_score(chances[::-1])["inception_score"] == pytest.approx(math.exp(divergence))


def test_only_the_gaussians_are_public() -> None:
    assert not CATALOGUE["quality"].private
    assert CATALOGUE["inception_score"].private


def test_every_key_is_described_and_all_is_json() -> None:
    results = [gaussian_quality(perfect(100)), inception_score(np.eye(2))]
    assert [key for result in results for key in result.scores] == [
        metric.key for group in ("gaussians", "inception") for metric in metrics_of(group)
    ]
    for result in results:
        assert json.loads(json.dumps([result.settings, result.details])) == [result.settings, result.details]
