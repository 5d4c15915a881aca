"""Objective perturbation: the density of the answer, the law of the random term, and the exact minimum."""

import math

import jax
import numpy as np
import pytest
from scipy import special, stats
from sklearn.linear_model import LogisticRegression

from tests.builders import RowsRead, raises
from understudy.errors import BudgetExceeded, TrainingError
from understudy.privacy.accounting.accountants import pld_epsilon, rdp_epsilon, spent
from understudy.privacy.accounting.events import Pure, Selections
from understudy.privacy.accounting.ledger import Guarantee, Ledger, Query
from understudy.privacy.mechanisms import objective
from understudy.privacy.mechanisms.objective import (
    EXACT,
    FINEST,
    least_penalty,
    minimiser,
    noisy_minimisers,
    public_grid,
    random_term,
    rate_of_term,
)
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain

DOMAIN = Domain(names=("y", "x"), sizes=(2, 5), num_rows=200, target="y")


class Line:
    """Two inputs of norm one at most, and the class."""

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: object) -> np.ndarray:
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
def test_the_odds_of_every_answer_change_within_the_cost(epsilon: float, k: int, most: float) -> None:
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
    assert worst > 0.35 * epsilon  # the test can see a cost that is too low


def test_the_determinant_takes_half_of_the_cost_at_most() -> None:
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
    found = minimiser(inputs, signs, np.ones(300), np.zeros(5), size=300, penalty=penalty, grid=FINEST)
    other = LogisticRegression(C=1 / (300 * penalty), fit_intercept=False, tol=1e-10, max_iter=10_000)
    assert found == pytest.approx(other.fit(inputs, labels).coef_[0], abs=1e-5)
    term = generator.standard_normal(5) * 30
    tilted = minimiser(inputs, signs, np.ones(300), term, size=300, penalty=penalty, grid=FINEST)
    slope = (term - (inputs * signs[:, None]).T @ special.expit(-signs * (inputs @ tilted))) / 300 + penalty * tilted
    assert np.linalg.norm(slope) <= EXACT * FINEST * penalty


def test_one_more_step_follows_when_the_minimum_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rough idea of near, the last step must still square the error. Gradients in extended precision."""
    monkeypatch.setattr(objective, "EXACT", 2.0**10)
    generator = np.random.default_rng(5)
    penalty = 1e-3
    for _ in range(20):
        inputs = generator.uniform(-1, 1, size=(200, 4)) / 2
        signs, term = generator.choice([-1.0, 1.0], 200), generator.standard_normal(4) * 20
        found = minimiser(inputs, signs, np.ones(200), term, size=200, penalty=penalty, grid=FINEST)
        signed, at = (inputs * signs[:, None]).astype(np.longdouble), found.astype(np.longdouble)
        slope = (term - signed.T @ (1 / (1 + np.exp(signed @ at)))) / 200 + penalty * at
        assert float(np.sqrt(np.sum(slope**2))) < 0.05 * FINEST * penalty


# ------------------------------------------------------------------------------------------------------ low-order bits


class Four:
    """Four inputs, spread, and the class."""

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: object) -> np.ndarray:
        inputs = np.c_[np.sin(3.0 * codes[:, 1:] + [[1.0]]), np.cos(codes[:, 1:]), np.sin(codes[:, 1:] ** 2)]
        return np.c_[inputs / 2, np.full(len(codes), 0.5), codes[:, 0]].astype(float)


def from_single_precision(vector: np.ndarray) -> float:
    """How far the vector is from a multiple of one in float32: the least over all mantissas of its first number of the
    greatest distance of another number's mantissa from a whole one; 0.001 stands for more. Chance gives 0.0025 for four
    numbers."""
    mantissas = np.arange(2**23, 2**24, dtype=np.float64)
    furthest = np.zeros(len(mantissas))
    for number in vector[1:]:
        ratio = abs(float(number / vector[0]))
        other = mantissas * (ratio * 2.0 ** -math.floor(math.log2(ratio)))
        other[other >= 2**24] /= 2
        furthest = np.maximum(furthest, np.abs(other - np.rint(other)))
        mantissas, furthest = mantissas[furthest < 1e-3], furthest[furthest < 1e-3]
    return float(furthest.min(initial=1e-3))


def test_the_random_term_is_no_multiple_of_single_precision() -> None:
    """A false alarm once in 10^4: 2^23 mantissas, each near three whole numbers with probability (2e-4)^3."""
    term = random_term(4, 0.05, jax.random.key(7))
    single = np.asarray(term, np.float32).astype(np.float64) * 1.2345  # the attack sees what it is for
    assert from_single_precision(single) < 1e-6
    assert from_single_precision(term) > 1e-4


def test_an_answer_does_not_tell_its_table_by_low_bits() -> None:
    """Membership by the lattice of the random term: from an answer and the table that it came from, the term can be
    found; it must not show that it is one. A false alarm once in 10^4."""
    codes = np.random.default_rng(3).integers((2, 5), size=(60, 2), dtype=np.int32)
    ledger = Ledger(Guarantee(0.11, 1e-6), noise=SeededNoise(4))
    found = noisy_minimisers(
        PrivateRows(codes, DOMAIN),
        Four(),
        [1],
        Query("m", "m", Pure(0.1)),
        ledger,
        penalty=3e-4,
        class_weights=np.ones(2),
    )
    answer = found.coefficients[0]
    encoded = Four().encode(codes, codes, None)
    inputs, signs = encoded[:, :-1], np.where(encoded[:, -1] == 1, 1.0, -1.0)
    inputs = inputs / np.maximum(np.linalg.norm(inputs, axis=1, keepdims=True) * (1 + 1e-12), 1.0)
    signed = (inputs * signs[:, None]).astype(np.longdouble)
    term = signed.T @ (1 / (1 + np.exp(signed @ answer))) - np.longdouble(200 * found.penalty) * answer
    assert from_single_precision(term) > 1e-4
    grid = public_grid(4, rate_of_term(0.1, found.penalty, 200), found.penalty, 200)
    assert grid == FINEST
    assert np.array_equal(answer / grid, np.rint(answer / grid))


@pytest.mark.parametrize("penalty", [1.0, 3e-4, 1e-7])
@pytest.mark.parametrize("weight", [1.0, 1e4])
@pytest.mark.parametrize("beta", [1e-6, 1.0, math.inf])
def test_the_grid_is_coarse_beside_what_floats_round_off(penalty: float, weight: float, beta: float) -> None:
    grid = public_grid(30, beta, penalty, 1000, weight)
    greatest = (1000 * weight + 30 / beta) / (1000 * penalty)
    assert grid >= FINEST
    assert grid >= 2**18 * np.spacing(greatest) / 2
    assert math.log2(grid).is_integer()


def test_every_problem_has_a_random_term_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one for all, differences of the answers would have no noise."""
    drawn: list[np.ndarray] = []

    def kept(size: int, beta: float, key: object) -> np.ndarray:
        drawn.append(random_term(size, beta, key))  # type: ignore[arg-type]  # handed on
        return drawn[-1]

    monkeypatch.setattr(objective, "random_term", kept)
    domain = Domain(names=("y", "x"), sizes=(3, 5), num_rows=200, target="y")
    codes = np.random.default_rng(3).integers((3, 5), size=(60, 2), dtype=np.int32)
    ledger = Ledger(Guarantee(3.0, 1e-6), noise=SeededNoise(0))
    query = Query("m", "m", Pure(0.8, 3))
    found = noisy_minimisers(
        PrivateRows(codes, domain), Line(), [0, 1, 2], query, ledger, penalty=0.05, class_weights=np.ones(3)
    )
    assert len(drawn) == 3
    assert len({term.tobytes() for term in drawn}) == 3
    encoded = Line().encode(codes, codes, None)
    for positive, (term, answer) in enumerate(zip(drawn, found.coefficients, strict=True)):
        signs = np.where(encoded[:, -1] == positive, 1.0, -1.0)
        own = minimiser(encoded[:, :-1], signs, np.ones(60), term, size=200, penalty=0.05, grid=FINEST)
        assert answer == pytest.approx(own, abs=FINEST)


def test_an_inexact_minimum_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of Newton's is not enough, and then there must be no answer."""
    monkeypatch.setattr(objective, "ITERATIONS", 1)
    inputs = np.random.default_rng(2).uniform(-1, 1, size=(50, 3)) / 2
    with pytest.raises(TrainingError):
        minimiser(inputs, np.ones(50), np.ones(50), np.full(3, 5.0), size=50, penalty=1e-4, grid=FINEST)


def test_the_noise_drawn_is_the_noise_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """beta, as it is drawn, follows from the query, the unit and the greatest class weight."""
    drawn: list[float] = []

    def kept(size: int, beta: float, key: object) -> np.ndarray:
        drawn.append(beta)
        return np.zeros(size)

    monkeypatch.setattr(objective, "random_term", kept)
    codes = np.random.default_rng(3).integers((2, 5), size=(60, 2), dtype=np.int32)
    for k, weights in ((1, (1.0, 1.0)), (2, (1.0, 3.0))):
        rows = PrivateRows(codes, DOMAIN, max_rows_per_unit=k, units=np.arange(60) // k)
        ledger = Ledger(Guarantee(1.0, 1e-6), noise=SeededNoise(0), max_rows_per_unit=k)
        found = noisy_minimisers(
            rows,
            Line(),
            [1],
            Query("m", "m", Pure(0.8)),
            ledger,
            penalty=0.05,
            class_weights=np.asarray(weights),
        )
        assert found.penalty == pytest.approx(0.05)
        assert drawn[-1] == pytest.approx(rate_of_term(0.8, 0.05, 200, k, max(weights)))
        assert k * (drawn[-1] * max(weights) + math.log1p(max(weights) / (4 * 200 * 0.05))) == pytest.approx(0.8)


def test_queries_are_charged_first() -> None:
    rows = PrivateRows(np.zeros((5, 2), dtype=np.int32), DOMAIN)
    ledger = Ledger(Guarantee(1.0, 1e-6), noise=SeededNoise(0))
    arguments = {"penalty": 0.01, "class_weights": np.ones(2)}
    with pytest.raises(BudgetExceeded):
        noisy_minimisers(rows, Line(), [1], Query("m", "m", Pure(1.5)), ledger, **arguments)  # type: ignore[arg-type]  # keywords of several types
    with raises(BudgetExceeded, query="m", needed=None):
        noisy_minimisers(rows, Line(), [0, 1], Query("m", "m", Pure(0.1)), ledger, **arguments)  # type: ignore[arg-type]  # keywords of several types
    strict = Ledger(Guarantee(1.0, 1e-6), noise=SeededNoise(0), max_rows_per_unit=2)
    with raises(BudgetExceeded, query="m", needed=None):
        noisy_minimisers(rows, Line(), [1], Query("m", "m", Pure(0.1)), strict, **arguments)  # type: ignore[arg-type]  # keywords of several types
    assert not ledger.queries
    assert not strict.queries


class Untouchable:
    """A layout that must not be asked."""

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: object) -> np.ndarray:
        raise RowsRead


def test_a_refused_query_reads_no_row() -> None:
    rows = PrivateRows(np.zeros((5, 2), dtype=np.int32), DOMAIN)
    ledger = Ledger(Guarantee(1.0, 1e-6), noise=SeededNoise(0))
    query = Query("m", "m", Pure(1.5))
    with pytest.raises(BudgetExceeded):
        noisy_minimisers(rows, Untouchable(), [1], query, ledger, penalty=0.01, class_weights=np.ones(2))


def test_pure_events_cost_their_epsilon_and_no_bounded_range() -> None:
    assert spent([Pure(0.5)], 1e-9).epsilon == pytest.approx(0.5, abs=1e-3)
    assert pld_epsilon([Pure(0.1, 50)], 1e-6, 1e-3) == pytest.approx(pld_epsilon([Selections(0.1, 50)], 1e-6, 1e-3))
    assert rdp_epsilon([Pure(0.1, 50)], 1e-6) > 1.5 * rdp_epsilon([Selections(0.1, 50)], 1e-6)
    assert pld_epsilon([Pure(0.5, 3)], 1e-12, 1e-3) == pytest.approx(1.5, abs=5e-3)
