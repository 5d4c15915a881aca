"""What is expected of a model's errors: against numerical integration and simulated errors."""

import numpy as np
import pytest
from scipy import integrate, stats

from understudy.marginals.errors import ErrorEstimates, posterior_mean

AB = ("a", "b")


@pytest.mark.parametrize("stddev", [0.3, 1.0, 8.0])
@pytest.mark.parametrize("mean", [0.5, 3.0, 40.0])
@pytest.mark.parametrize("noisy", [-6.0, -0.4, 0.0, 2.0, 90.0])
def test_the_posterior_mean_is_that_of_numerical_integration(noisy: float, mean: float, stddev: float) -> None:
    """The mean of an exponential variable, given what a normal one around it came out as."""
    peak = max(0.0, noisy - stddev**2 / mean)
    reach = peak + 40 * stddev

    def weight(error: float) -> float:  # scaled to one at the peak
        shift = stats.norm.logpdf(noisy, [error, peak], stddev) - np.array([error, peak]) / mean
        return float(np.exp(shift[0] - shift[1]))

    points = [peak, peak + stddev / 4, peak + 4 * stddev]
    total, _ = integrate.quad(weight, 0, reach, points=points, limit=400)
    first, _ = integrate.quad(lambda error: error * weight(error), 0, reach, points=points, limit=400)
    assert posterior_mean(np.array([noisy]), stddev, mean)[0] == pytest.approx(first / total, rel=1e-5)


def test_the_posterior_mean_is_never_negative_and_rises_with_the_answer() -> None:
    noisy = np.linspace(-1e7, 1e7, 2001)
    found = posterior_mean(noisy, 1.0, 1e-3)
    assert np.isfinite(found).all()
    assert found.min() >= 0
    assert (np.diff(posterior_mean(np.linspace(-20, 20, 401), 1.0, 5.0)) > 0).all()


def test_the_posterior_mean_is_nearer_than_the_noisy_answers() -> None:
    """On 4000 exponential errors, with one deviation for all and with one for each; the prior mean is estimated."""
    rng = np.random.default_rng(0)
    errors = rng.exponential(50, 4000)
    for stddev in (np.full(4000, 60.0), rng.uniform(5, 120, 4000)):
        noisy = errors + rng.normal(0, stddev)
        found = posterior_mean(noisy, stddev, float(noisy.mean()))
        assert ((found - errors) ** 2).mean() < 0.6 * ((noisy - errors) ** 2).mean()
        assert ((found - errors) ** 2).mean() < ((np.maximum(noisy, 0) - errors) ** 2).mean()
        assert abs((found - errors).mean()) < 5 * (found - errors).std() / 4000**0.5  # a false alarm in two million


def test_answers_of_one_round_are_those_of_the_posterior() -> None:
    rng = np.random.default_rng(1)
    cliques = [("a", "b"), ("a", "c"), ("b", "c")]
    estimates, noisy = ErrorEstimates(), np.array([30.0, 4.0, -2.0])
    estimates = estimates.add(cliques, [rng.random((2, 2)) for _ in cliques], noisy, 3.0)
    found = estimates.means(cliques)
    assert estimates.first == dict(zip(cliques, found, strict=True))
    assert estimates.prior_mean == pytest.approx(noisy.mean())
    np.testing.assert_allclose(found, posterior_mean(noisy, 3.0, noisy.mean()))
    assert estimates.likely(("a", "b")) == pytest.approx(found[0] + 3.0)
    assert estimates.likely(("b", "d")) is None


def test_the_prior_mean_is_positive_whatever_the_noise() -> None:
    estimates = ErrorEstimates().add([AB], [np.ones((2, 2))], np.array([-50.0]), 2.0)
    assert estimates.prior_mean == 2.0
    assert 0 < estimates.means([AB])[0] < 1


def test_estimates_are_values() -> None:
    """Adding answers leaves the estimates before as they were, and the first posterior means stay the first."""
    nothing = ErrorEstimates()
    once = nothing.add([AB], [np.ones((2, 2))], np.array([8.0]), 2.0)
    twice = once.add([AB], [np.ones((2, 2))], np.array([90.0]), 2.0)
    assert nothing == ErrorEstimates()
    assert once.add([], [], np.zeros(0), 2.0) == once
    assert len(once.answers[AB]) == 1
    assert len(twice.answers[AB]) == 2
    assert once.first == twice.first == {AB: once.means([AB])[0]}
    assert twice.means([AB])[0] > once.means([AB])[0]


def test_answers_about_the_same_model_pool_like_inverse_variances() -> None:
    """Two answers count as one of their weighted mean; a third is pooled with both."""
    table, estimates = np.full((2, 3), 7.0), ErrorEstimates(prior_mean=20.0)
    estimates = estimates.add([AB], [table], np.array([40.0]), 6.0)
    estimates = estimates.add([AB], [table.copy()], np.array([10.0]), 3.0)
    found = estimates.means([AB])
    precision = 1 / 36 + 1 / 9
    together = (40 / 36 + 10 / 9) / precision
    np.testing.assert_allclose(found, posterior_mean(np.array([together]), precision**-0.5, 20.0))
    again = estimates.add([AB], [table], np.array([25.0]), 4.0).means([AB])
    third = precision + 1 / 16
    np.testing.assert_allclose(
        again, posterior_mean(np.array([(together * precision + 25 / 16) / third]), third**-0.5, 20.0)
    )
    assert estimates.prior_mean == 20.0


def test_an_old_answer_about_a_very_different_model_hardly_counts() -> None:
    old, now, estimates = np.array([[5000.0, 0.0]]), np.array([[0.0, 5000.0]]), ErrorEstimates(prior_mean=20.0)
    estimates = estimates.add([AB], [old], np.array([4000.0]), 5.0)
    found = estimates.add([AB], [now], np.array([12.0]), 5.0).means([AB])
    np.testing.assert_allclose(found, posterior_mean(np.array([12.0]), 5.0, 20.0), rtol=1e-3)


def test_an_old_answer_counts_with_the_distance_as_more_noise() -> None:
    old, now, estimates = np.array([[10.0, 10.0]]), np.array([[14.0, 10.0]]), ErrorEstimates(prior_mean=20.0)
    estimates = estimates.add([AB], [old], np.array([30.0]), 3.0)
    found = estimates.add([AB], [now], np.array([20.0]), 5.0).means([AB])
    weights = np.array([1 / (3.0**2 + 4.0**2), 1 / 5.0**2])  # both have a variance of 25
    pooled, deviation = np.average([30.0, 20.0], weights=weights), weights.sum() ** -0.5
    assert (pooled, deviation) == pytest.approx((25.0, 12.5**0.5))
    np.testing.assert_allclose(found, posterior_mean(np.array([pooled]), deviation, 20.0))
