"""The boosting game against naive versions of itself."""

import math

import numpy as np
import pytest

from benchmarks.papers.pgb.core import best_response
from understudy.synthesizers.boosted.game import (
    AVERAGES,
    FAILURE,
    LEARNING_RATES,
    Cells,
    Constant,
    Distinguishers,
    Outcome,
    Together,
    Values,
    acceptance,
    draw_accepted,
    draw_distinct,
    evaluate_critics,
    learning_rates,
    play,
    promised_gap,
    reject_exactly,
    rejection_sample,
)

# ------------------------------------------------------------------------------------------------------------- the game


def naive_game(
    values: np.ndarray, real: np.ndarray, rounds: int, rate: str, average: str, window: int, after: bool
) -> tuple[np.ndarray, list[int]]:
    """Direct weights, one list entry for each round: the algorithm box, line by line."""
    num_samples = values.shape[1]
    weights, plays, picks = np.ones(num_samples), [np.full(num_samples, 1 / num_samples)], []
    for t in range(1, rounds + 1):
        gains = [real[j] + 1 - values[j] @ plays[-1] for j in range(len(values))]
        picks.append(gains.index(max(gains)))
        eta = 0.5 * math.sqrt(math.log(num_samples) / rounds) if rate == "paper" else 1 / math.sqrt(t)
        weights = weights * np.exp(eta * values[picks[-1]])
        plays.append(weights / weights.sum())
    taken = plays[1:] if after else plays[:-1]
    counts = {
        "all": [1.0] * rounds,
        "last_window": [float(t > rounds - window) for t in range(1, rounds + 1)],
        "sqrt_weighted": [math.sqrt(t) for t in range(1, rounds + 1)],
    }[average]
    return np.average(taken, axis=0, weights=counts), picks


def duality_gap(outcome: Outcome, distinguishers: Distinguishers, real_means: np.ndarray) -> float:
    """max_D U(phi, D) - min_x U(x, mixture): how far from equilibrium, for rows that are public."""
    best = np.max(real_means + 1.0 - distinguishers.means(outcome.weights.astype(distinguishers.dtype)))
    return float(best - (real_means @ outcome.shares + 1.0 - outcome.mixture.max()))


def gap_bound(outcome: Outcome, num_distinguishers: int, exponent: float) -> float:
    """The bound of `promised_gap` with the regret of this game."""
    return outcome.regret + math.log(num_distinguishers * len(outcome.selections) / FAILURE) / exponent


def random_game(seed: int, num_critics: int = 6, num_samples: int = 40) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.random((num_critics, num_samples)), generator.random(num_critics)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("rate", LEARNING_RATES)
def test_log_space_is_the_naive_game(rate: str, average: str, after: bool) -> None:
    for seed in range(3):
        values, real = random_game(seed)
        arguments = {"rounds": 30, "average": average, "window": 7}
        outcome = play(Values(values), best_response(real), learning_rate=rate, after_update=after, **arguments)  # type: ignore[arg-type]  # keywords of several types
        weights, picks = naive_game(values, real, 30, rate, average, 7, after)
        assert outcome.selections.tolist() == picks
        np.testing.assert_allclose(outcome.weights, weights, rtol=1e-10)
        np.testing.assert_allclose(outcome.shares, np.bincount(picks, minlength=6) / 30)
        np.testing.assert_allclose(outcome.mixture, outcome.shares @ values)


def test_two_rounds_by_hand() -> None:
    """Two critics, two rows: gains (1.3, 0.8), then (1.2269, 0.8731); eta = 0.5 sqrt(log 2 / 2) = 0.29435."""
    outcome = play(Values(np.eye(2)), best_response(np.asarray([0.8, 0.3])), rounds=2)
    assert outcome.selections.tolist() == [0, 0]
    np.testing.assert_allclose(outcome.weights, [0.536531, 0.463469], atol=1e-6)
    assert outcome.regret == pytest.approx(1 - (0.5 + 0.573061) / 2, abs=1e-6)


def test_ties_go_to_the_first() -> None:
    assert best_response(np.asarray([0.5, 0.5, 0.4]))(np.asarray([0.2, 0.2, 0.1])) == 0


def test_weights_that_overflow_directly_are_fine_in_logs() -> None:
    """The second row's weight grows to exp(2 sqrt(20,000)) = 1e122: no float32 holds that."""
    values = np.asarray([[0.0, 1.0]], dtype=np.float32)
    outcome = play(Values(values), lambda means: 0, rounds=20_000, learning_rate="sqrt", average="last_window")
    np.testing.assert_allclose(outcome.weights, [0.0, 1.0], atol=1e-12)
    assert np.isfinite(outcome.regret)


@pytest.mark.parametrize("seed", range(5))
def test_the_gap_is_within_what_the_theorem_promises(seed: int) -> None:
    values, real = random_game(seed, 20, 200)
    rounds = 300
    distinguishers = Together([Values(values), Constant(200)])
    real = np.append(real, 0.5)
    outcome = play(distinguishers, best_response(real), rounds=rounds)
    gap = duality_gap(outcome, distinguishers, real)
    mixture = np.vstack([values, np.full(200, 0.5)])
    by_hand = max(real + 1 - mixture @ outcome.weights) - min(real @ outcome.shares + 1 - outcome.shares @ mixture)
    assert gap == pytest.approx(by_hand, abs=1e-6)
    rate = learning_rates("paper", rounds, 200)[0]
    assert 0 <= gap <= 4 * rate + math.log(200) / (rate * rounds)  # Theorem 3
    assert gap <= outcome.regret + 1e-6  # without noise the gap is the data player's regret at most


def test_a_number_is_a_rate_of_all_rounds() -> None:
    np.testing.assert_array_equal(learning_rates(0.2, 3, 50), [0.2, 0.2, 0.2])


def test_the_gap_of_private_selections_is_within_the_free_bound() -> None:
    """The bound fails with probability 0.05 at most: in 100 games more than 16 failures have a chance below 1e-5."""
    generator, failures, exponent = np.random.default_rng(0), 0, 30.0
    for seed in range(100):
        values, real = random_game(seed, 10, 50)

        def pick(means: np.ndarray, real: np.ndarray = real) -> int:
            return int(np.argmax(exponent * (real - means) + generator.gumbel(size=len(real))))

        outcome = play(Values(values), pick, rounds=100)
        failures += duality_gap(outcome, Values(values), real) > gap_bound(outcome, 10, exponent)
    assert failures <= 16


@pytest.mark.parametrize("rate", ["paper", 0.05, 1.0])
def test_no_game_has_a_larger_regret_than_was_promised(rate: str | float) -> None:
    """The public bound without its part for selections, against an adversary that sees the weights."""
    generator = np.random.default_rng(3)
    for _ in range(20):
        samples, rounds = int(generator.integers(2, 40)), int(generator.integers(1, 200))
        values = generator.integers(0, 2, size=(6, samples)).astype(float)
        spiteful = play(Values(values), lambda means: int(np.argmin(means)), rounds=rounds, learning_rate=rate)
        assert spiteful.regret <= promised_gap(samples, 6, rounds, math.inf, rate) + 1e-9
    assert promised_gap(10, 5, 20, 1.0, "sqrt") == math.inf


def test_the_promised_gap_is_that_of_the_run_or_larger() -> None:
    values = np.random.default_rng(4).random((5, 30))
    outcome = play(Values(values), best_response(values.mean(axis=1)), rounds=50)
    assert gap_bound(outcome, 5, 300.0) <= promised_gap(30, 5, 50, 300.0)


def test_cells_and_constants_are_lines_of_ones_and_zeros() -> None:
    values, real = random_game(3)
    cells = np.random.default_rng(1).integers(5, size=40)
    inside = (cells == np.arange(5)[:, None]).astype(float)
    dense = np.vstack([values, inside, 1 - inside, np.full(40, 0.5)])
    real = np.concatenate([real, np.random.default_rng(2).random(11)])
    lines = play(Values(dense), best_response(real), rounds=60, learning_rate="sqrt")
    short = Together([Values(values), Cells(cells, 5), Constant(40)])
    assert len(short) == len(dense)
    outcome = play(short, best_response(real), rounds=60, learning_rate="sqrt")
    assert set(lines.selections) & set(range(6, 16))  # cells do play
    np.testing.assert_array_equal(outcome.selections, lines.selections)
    np.testing.assert_allclose(outcome.weights, lines.weights, rtol=1e-9)
    np.testing.assert_allclose(outcome.mixture, lines.mixture)


@pytest.mark.parametrize("in_memory", [10**9, 0])
def test_storage_as_size_demands(in_memory: int) -> None:
    table = np.random.default_rng(0).random((300, 7))
    table[0, 0], table[1, 1], table[2, 2] = np.nan, 3.0, -1.0
    sample = np.arange(300)[:, None]
    values = evaluate_critics(lambda part: table[part[:, 0]], 7, sample, in_memory=in_memory)
    assert isinstance(values._matrix, np.memmap) == (not in_memory)
    clean = np.clip(np.nan_to_num(table, nan=0.5), 0, 1).T
    phi = np.full(300, 1 / 300, dtype=np.float32)
    tolerance = 1e-6
    np.testing.assert_allclose(values.means(phi), clean @ phi, atol=tolerance)
    np.testing.assert_allclose(values.mixture(np.eye(7)[3]), clean[3], atol=tolerance)
    log_weights = np.zeros(300)
    values.add(log_weights, 6, 0.5)
    np.testing.assert_allclose(log_weights, 0.5 * clean[6], atol=tolerance)


# -------------------------------------------------------------------------------------------------------------- outputs


def test_distinct_rows_are_those_that_came_up() -> None:
    """Near uniform weights leave 1 - 1/e of the pool, 3,161 of 5,000 with standard deviation 22: five of them."""
    kept = draw_distinct(np.full(5000, 1 / 5000), np.random.default_rng(0))
    assert len(np.unique(kept)) == len(kept)
    assert abs(len(kept) - 5000 * (1 - 1 / math.e)) < 110
    assert draw_distinct(np.asarray([0.0, 1.0]), np.random.default_rng(0)).tolist() == [1]


def test_exact_rejection_is_what_many_draws_have() -> None:
    """Accepted with probability proportional to the odds: the frequencies of a million draws."""
    weights, scores = np.asarray([0.5, 0.3, 0.2, 0.0]), np.asarray([0.2, 0.5, 0.9, 0.9])
    generator = np.random.default_rng(0)
    draws = generator.choice(4, size=1_000_000, p=weights)
    odds = scores / (1 - scores)
    kept = draws[generator.random(len(draws)) < (odds / odds.max())[draws]]
    exact = reject_exactly(weights, scores)
    np.testing.assert_allclose(exact, np.bincount(kept, minlength=4) / len(kept), atol=5e-3)
    assert exact[3] == 0


def test_draws_are_accepted_with_their_multiplicity() -> None:
    """A row of half the weight is among the accepted ones as often as its share times its acceptance says."""
    weights = np.r_[0.5, np.full(9999, 0.5 / 9999)]
    kept = draw_accepted(weights, np.full(10_000, 0.7), np.random.default_rng(0))
    assert abs((kept == 0).mean() - 0.5) < 0.03
    assert abs(len(kept) / 10_000 - 0.5) < 0.03  # a constant critic keeps half


def test_rejection_is_normalised_as_published() -> None:
    judgements = np.random.default_rng(0).random(20_000)
    accepted = acceptance(judgements)
    order = np.argsort(judgements)
    assert np.all(np.diff(accepted[order]) >= 0)  # monotone in the judgement
    assert np.mean(accepted > 0.5) == pytest.approx(0.05, abs=0.001)
    odds = [math.log(d / (1 - d)) for d in judgements]
    most = max(odds)
    score = [(o - most) - math.log(1 - math.exp(o - most - 1e-6)) for o in odds]
    by_hand = 1 / (1 + np.exp(np.percentile(score, 95) - np.asarray(score)))
    np.testing.assert_allclose(accepted, by_hand, rtol=1e-6)


@pytest.mark.parametrize("constant", [0.0, 0.5, 1.0])
def test_a_constant_critic_keeps_half(constant: float) -> None:
    np.testing.assert_allclose(acceptance(np.full(10, constant)), 0.5)
    kept = rejection_sample(np.full(10_000, constant), np.random.default_rng(0))
    assert abs(len(kept) - 5000) < 5 * 50


def test_when_nothing_is_accepted_the_best_row_stands_in() -> None:
    class Never:
        def random(self, size: int) -> np.ndarray:
            return np.ones(size)

    with pytest.warns(UserWarning, match="accepted no row"):
        assert rejection_sample(np.asarray([0.1, 0.9, 0.3]), Never()).tolist() == [1]  # type: ignore[arg-type]  # a stand-in that never accepts
