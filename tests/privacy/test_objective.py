"""Objective perturbation: the density of the answer, the law of the random term, and the exact minimum."""

import math

import jax
import numpy as np
import pytest
from scipy import special, stats
from sklearn.linear_model import LogisticRegression

from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy import objective
from understudy.privacy.accounting import Choices, Pure, pld_epsilon, rdp_epsilon, spent
from understudy.privacy.ledger import Guarantee, Ledger, Look
from understudy.privacy.mechanisms import Rows
from understudy.privacy.noise import SeededNoise
from understudy.privacy.objective import least_penalty, minimiser, noisy_minimisers, random_term, rate_of_term
from understudy.schema import Domain

DOMAIN = Domain(names=("y", "x"), sizes=(2, 5), num_rows=200, target="y")


class Line:
    """Two inputs of norm one at most, and the class."""

    def encode(self, codes: np.ndarray, places: np.ndarray, key: object) -> np.ndarray:
        inputs = np.c_[(codes[:, 1] - 2) / 4, np.full(len(codes), 0.8)]
        return np.c_[inputs, codes[:, 0]].astype(float)


def log_density(
    at: np.ndarray,
    inputs: np.ndarray,
    signs: np.ndarray,
    weights: np.ndarray,
    *,
    size: int,
    penalty: float,
    beta: float,
) -> float:
    """Of the minimiser: that of the one random term that leads to it, times the change of volume. Up to a constant."""
    margins = signs * (inputs @ at)
    term = -(size * penalty * at - inputs.T @ (weights * signs * special.expit(-margins)))
    curve = weights * special.expit(margins) * special.expit(-margins)
    volume = size * penalty * np.eye(len(at)) + (inputs.T * curve) @ inputs
    return -beta * float(np.linalg.norm(term)) + float(np.linalg.slogdet(volume)[1])


@pytest.mark.parametrize(("epsilon", "k", "most"), [(0.3, 1, 1.0), (2.0, 1, 1.0), (1.0, 3, 1.0), (1.0, 1, 4.0)])
def test_the_odds_of_every_answer_change_within_the_price(epsilon: float, k: int, most: float) -> None:
    """The whole density, with and without a unit of k rows, at points all over; small tables, where one row is much."""
    generator = np.random.default_rng(0)
    worst = 0.0
    size = 3
    for penalty in (least_penalty(epsilon, size, k, most), 1.0):
        beta = rate_of_term(epsilon, penalty, size, k, most)
        assert beta > 0
        for _ in range(300):
            rows = generator.integers(0, 4)
            inputs = generator.uniform(-1, 1, size=(rows + k, 2))
            inputs[rows:] = inputs[rows]  # the worst unit says the same thing k times
            inputs /= np.maximum(np.linalg.norm(inputs, axis=1, keepdims=True), generator.choice([1e-9, 1.0]))
            signs = generator.choice([-1.0, 1.0], size=rows + k)
            weights = np.full(rows + k, most)
            at = generator.standard_normal(2) * 10 ** generator.uniform(-2, 2)
            with_unit, without = (
                log_density(at, inputs[:count], signs[:count], weights[:count], size=size, penalty=penalty, beta=beta)
                for count in (rows + k, rows)
            )
            worst = max(worst, abs(with_unit - without))
    assert worst <= epsilon + 1e-9
    assert worst > 0.35 * epsilon  # the test can see a price that is too low


def test_the_determinant_takes_half_of_the_price_at_most() -> None:
    for epsilon in (0.1, 1.0, 5.0):
        beta = rate_of_term(epsilon, least_penalty(epsilon, 100), 100)
        assert beta == pytest.approx(epsilon / 2)
        assert rate_of_term(epsilon, 10 * least_penalty(epsilon, 100), 100) > beta


def test_the_random_term_has_its_law() -> None:
    """Lengths are gamma of shape d, directions even. Two-sided at 1e-3, fixed seed."""
    beta, size = 0.7, 4
    terms = np.stack([random_term(size, beta, key) for key in jax.random.split(jax.random.key(0), 200)])
    lengths = np.linalg.norm(terms, axis=1)
    assert stats.kstest(lengths, stats.gamma(size, scale=1 / beta).cdf).pvalue > 1e-3
    assert stats.kstest(lengths, stats.gamma(size, scale=1.4 / beta).cdf).pvalue < 1e-3
    shares = (terms / lengths[:, None])[:, 0] ** 2  # of an even direction: beta(1/2, (d - 1)/2)
    assert stats.kstest(shares, stats.beta(0.5, (size - 1) / 2).cdf).pvalue > 1e-3


def test_the_minimum_is_exact_and_that_of_another_solver() -> None:
    generator = np.random.default_rng(1)
    inputs = generator.uniform(-1, 1, size=(300, 5)) / math.sqrt(5)
    labels = generator.random(300) < special.expit(inputs @ np.array([4.0, -3.0, 0.0, 2.0, 1.0]))
    signs, penalty = np.where(labels, 1.0, -1.0), 1e-3
    found = minimiser(inputs, signs, np.ones(300), np.zeros(5), size=300, penalty=penalty)
    other = LogisticRegression(C=1 / (300 * penalty), fit_intercept=False, tol=1e-10, max_iter=10_000)
    assert found == pytest.approx(other.fit(inputs, labels).coef_[0], abs=1e-5)
    term = generator.standard_normal(5) * 30
    tilted = minimiser(inputs, signs, np.ones(300), term, size=300, penalty=penalty)
    slope = (term - (inputs * signs[:, None]).T @ special.expit(-signs * (inputs @ tilted))) / 300 + penalty * tilted
    assert np.linalg.norm(slope) <= 1e-9


def test_an_inexact_minimum_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of Newton's is not enough, and then there must be no answer."""
    monkeypatch.setattr(objective, "ITERATIONS", 1)
    inputs = np.random.default_rng(2).uniform(-1, 1, size=(50, 3)) / 2
    with pytest.raises(ConfigError, match="nothing is released"):
        minimiser(inputs, np.ones(50), np.ones(50), np.full(3, 5.0), size=50, penalty=1e-4)


def test_the_noise_drawn_is_the_noise_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    """beta, as it is drawn, follows from the look, the unit and the greatest class weight."""
    drawn: list[float] = []

    def kept(size: int, beta: float, key: object) -> np.ndarray:
        drawn.append(beta)
        return np.zeros(size)

    monkeypatch.setattr(objective, "random_term", kept)
    codes = np.random.default_rng(3).integers((2, 5), size=(60, 2), dtype=np.int32)
    for k, weights in ((1, (1.0, 1.0)), (2, (1.0, 3.0))):
        rows = Rows(codes, DOMAIN, max_rows_per_unit=k, units=np.arange(60) // k)
        ledger = Ledger(Guarantee(1.0, 1e-6), noise=SeededNoise(0), max_rows_per_unit=k)
        found = noisy_minimisers(
            rows,
            Line(),
            [1],
            Look("m", "m", Pure(0.8)),
            ledger,
            penalty=0.05,
            class_weights=np.asarray(weights),
        )
        assert found.penalty == pytest.approx(0.05)
        assert drawn[-1] == pytest.approx(rate_of_term(0.8, 0.05, 200, k, max(weights)))
        assert k * (drawn[-1] * max(weights) + math.log1p(max(weights) / (4 * 200 * 0.05))) == pytest.approx(0.8)


def test_looks_are_charged_first() -> None:
    rows = Rows(np.zeros((5, 2), dtype=np.int32), DOMAIN)
    ledger = Ledger(Guarantee(1.0, 1e-6), noise=SeededNoise(0))
    arguments = {"penalty": 0.01, "class_weights": np.ones(2)}
    with pytest.raises(BudgetExceeded):
        noisy_minimisers(rows, Line(), [1], Look("m", "m", Pure(1.5)), ledger, **arguments)  # type: ignore[arg-type]
    with pytest.raises(BudgetExceeded, match="problems"):
        noisy_minimisers(rows, Line(), [0, 1], Look("m", "m", Pure(0.1)), ledger, **arguments)  # type: ignore[arg-type]
    strict = Ledger(Guarantee(1.0, 1e-6), noise=SeededNoise(0), max_rows_per_unit=2)
    with pytest.raises(BudgetExceeded, match="a unit"):
        noisy_minimisers(rows, Line(), [1], Look("m", "m", Pure(0.1)), strict, **arguments)  # type: ignore[arg-type]
    assert not ledger.looks
    assert not strict.looks


def test_pure_events_cost_their_epsilon_and_no_bounded_range() -> None:
    assert spent([Pure(0.5)], 1e-9).epsilon == pytest.approx(0.5, abs=1e-3)
    assert pld_epsilon([Pure(0.1, 50)], 1e-6, 1e-3) == pytest.approx(pld_epsilon([Choices(0.1, 50)], 1e-6, 1e-3))
    assert rdp_epsilon([Pure(0.1, 50)], 1e-6) > 1.5 * rdp_epsilon([Choices(0.1, 50)], 1e-6)
    assert pld_epsilon([Pure(0.5, 3)], 1e-12, 1e-3) == pytest.approx(1.5, abs=5e-3)
