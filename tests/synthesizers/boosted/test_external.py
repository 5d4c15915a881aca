"""Selections by the exponential mechanism against the law and the cost that they claim."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.builders import RowsRead, loose_guarantee, over_budget
from tests.examples import scaled
from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting.accountants import calibrate, pld_epsilon, rdp_epsilon
from understudy.privacy.accounting.events import Selections, SubsampledGaussian
from understudy.privacy.accounting.ledger import Guarantee, Ledger, Query
from understudy.privacy.mechanisms.selection import (
    CHUNK,
    FunctionSelector,
    RowFunctions,
    noisy_closest,
    noisy_function_selections,
)
from understudy.privacy.noise.source import NoiseSource, SecureNoise, SeededNoise
from understudy.privacy.rows.rows import Clique, PrivateRows, Totals, partition_rows
from understudy.schema import Domain

LEVEL = 1e-7  # false alarms of the chi-square tests, where draws differ from run to run
DOMAIN = Domain(names=("a", "b"), sizes=(3, 4), num_rows=50)

codes = st.tuples(*(st.integers(0, size - 1) for size in DOMAIN.sizes))


# ----------------------------------------------------------------------------------------------------------------- cost


PUBLISHED = {  # rounds, epsilon of a round, delta; basic, Theorem 2, exact, bounded range
    "toy, paper": (1000, 1.0e-4, 2e-5, 0.1, 0.0147, 0.0067, 0.0035),
    "toy, code": (400, 4.99e-4, 2e-5, 0.1997, 0.0465, 0.0250, 0.0132),
    "1940": (400, 5e-4, 1.261e-5, 0.2, 0.0476, 0.0265, 0.0140),
    "Titanic": (400, 1e-3, 5.61e-4, 0.4, 0.0778, 0.0305, 0.0160),
    "2010": (400, 2.25e-4, 1.343e-7, 0.09, 0.0253, 0.0165, 0.0086),
}


@pytest.mark.parametrize("run", PUBLISHED)
def test_costs_of_published_settings(run: str) -> None:
    rounds, epsilon, delta, basic, theorem, exact, bounded = PUBLISHED[run]
    assert rounds * epsilon == pytest.approx(basic, abs=1e-3)
    of_theorem = math.sqrt(2 * math.log(1 / delta) * rounds) * epsilon + rounds * epsilon * math.expm1(epsilon)
    assert of_theorem == pytest.approx(theorem, abs=1e-3)
    assert pld_epsilon([Selections(epsilon, rounds)], delta) == pytest.approx(exact, abs=1e-4)
    assert rdp_epsilon([Selections(epsilon, rounds)], delta) == pytest.approx(bounded, abs=1e-4)


@pytest.mark.parametrize(
    ("rounds", "epsilon", "delta", "allowed"),
    [(400, 0.2, 1.261e-5, 0.00567), (400, 0.4, 5.61e-4, 0.0147), (1000, 0.1, 2e-5, 0.00196)],
)
def test_selections_within_a_budget(rounds: int, epsilon: float, delta: float, allowed: float) -> None:
    noise = calibrate(lambda noise: [Selections(1 / noise, rounds)], epsilon=epsilon, delta=delta)
    assert 1 / noise == pytest.approx(allowed, rel=5e-3)


def test_beside_training_the_selections_cost_almost_nothing() -> None:
    """1940 census: 0.5745 for the training alone, 0.5757 with the published selections."""
    training = SubsampledGaussian(100 / 39660, 1.55, 7945)
    assert pld_epsilon([training], 1.261e-5, 1e-4) == pytest.approx(0.5745, abs=2e-4)
    assert pld_epsilon([training, Selections(5e-4, 400)], 1.261e-5, 1e-4) == pytest.approx(0.5757, abs=2e-4)


# ---------------------------------------------------------------------------------------------------------------- picks


class ExactLaw(SeededNoise):
    """Keeps the law of each selection: the log-probabilities of softmax(scores / scale)."""

    def noisy_argmax(self, scores: np.ndarray, scale: float) -> int:
        logits = np.asarray(scores) / scale
        self.log_law = logits - np.logaddexp.reduce(logits)
        return super().noisy_argmax(scores, scale)


def book(noise: NoiseSource | None = None, *, epsilon: float = 900.0, k: int = 1) -> Ledger:
    return Ledger(loose_guarantee(epsilon), noise=noise or SeededNoise(0), max_rows_per_unit=k)


def table(rows: Sequence[tuple[int, ...]], k: int = 1, domain: Domain = DOMAIN) -> PrivateRows:
    cells = np.array(rows, dtype=np.int32).reshape(-1, len(domain.names))
    return PrivateRows(cells, domain, max_rows_per_unit=k, units=np.arange(len(cells)) // k)


WORTH = np.random.default_rng(5).random((3, 4, 6))
WORTH[0, 0, 0], WORTH[1, 1, 1] = 0.0, 1.0
FUNCTIONS = RowFunctions(lambda rows: WORTH[rows[:, 0], rows[:, 1]], 6, (("b",), ("a", "b")), constant=True)


def naive_sums(rows: Sequence[tuple[int, ...]]) -> np.ndarray:
    total = np.zeros(6 + 8 + 24)
    for a, b in rows:
        in_b, in_both = np.eye(4)[b], np.eye(12)[4 * a + b]
        total += np.concatenate([WORTH[a, b], in_b, 1 - in_b, in_both, 1 - in_both])
    return np.append(total, 0.5 * DOMAIN.num_rows)


def law_of_pick(rows: Sequence[tuple[int, ...]], public: np.ndarray, epsilon: float, k: int) -> np.ndarray:
    noise = ExactLaw(0)
    noisy_function_selections(table(rows, k), FUNCTIONS, Query("p", "p", Selections(epsilon)), book(noise, k=k))(public)
    return noise.log_law


@settings(max_examples=scaled(40))
@given(
    rows=st.lists(codes, max_size=10),
    unit=st.lists(codes, min_size=1, max_size=3),
    epsilon=st.sampled_from([0.001, 0.3, 4.0]),
)
def test_a_unit_moves_the_log_odds_within_a_range_of_epsilon(
    rows: list[tuple[int, ...]], unit: list[tuple[int, ...]], epsilon: float
) -> None:
    """Bounded range: the largest change of a log-probability less the smallest is epsilon at most."""
    public = np.random.default_rng(len(rows)).random(len(naive_sums(rows)))
    without, with_unit = (law_of_pick(each, public, epsilon, len(unit)) for each in (rows, rows + unit))
    change = with_unit - without
    assert change.max() - change.min() <= epsilon * (1 + 1e-9) + 1e-9
    exact = epsilon / len(unit) * (naive_sums(rows) - DOMAIN.num_rows * public)
    np.testing.assert_allclose(without, exact - np.logaddexp.reduce(exact), atol=1e-4)


def test_the_range_of_epsilon_is_reached() -> None:
    """A function that is one for the row beside one that is zero: a smaller claim would be false."""
    public = np.zeros(len(naive_sums([])))
    for k in (1, 3):
        change = law_of_pick([(0, 0)] * k, public, 0.3, k) - law_of_pick([], public, 0.3, k)
        assert change.max() - change.min() == pytest.approx(0.3, rel=1e-6)


@pytest.mark.parametrize(("noise", "draws"), [(SeededNoise(0), 100_000), (SecureNoise(), 4_000)])
def test_selections_follow_the_exponential_law(noise: NoiseSource, draws: int) -> None:
    """softmax(epsilon n u) is accepted; half that exponent, as in the paper, and twice that are rejected."""
    rows = [(0, 1)] * 20 + [(1, 2)] * 15 + [(2, 3)] * 10
    functions = RowFunctions(FUNCTIONS.values, 6, constant=True)
    public, epsilon = np.linspace(0.4, 0.5, 7), 0.1
    query = Query("p", "p", Selections(epsilon, draws))
    # No budget allows this many selections: the law is asked of the picker itself.
    paid = noisy_function_selections(table(rows), functions, Query("p", "p", Selections(epsilon)), book(noise))
    picker = FunctionSelector(paid._exact_sums, query.event, table(rows), book(noise))  # type: ignore[arg-type]  # an event of selections
    found = np.bincount([picker(public) for _ in range(draws)], minlength=7)
    gains = np.append(naive_sums(rows)[:6] / 50, 0.5) + 1 - public

    def pvalue(exponent: float) -> float:
        odds = np.exp(exponent * (gains - gains.max()))
        return float(stats.chisquare(found, draws * odds / odds.sum()).pvalue)

    assert pvalue(epsilon * DOMAIN.num_rows) > LEVEL
    assert max(pvalue(epsilon * DOMAIN.num_rows / 2), pvalue(2 * epsilon * DOMAIN.num_rows)) < LEVEL


def test_several_selections_at_once_are_the_top_of_one_noisy_list() -> None:
    """Pairs in order, over 30,000 runs, against the largest two of one vector of scores plus Gumbel noise."""
    rows, epsilon, runs = [(0, 1)] * 20 + [(1, 2)] * 15, 0.2, 30_000
    functions = RowFunctions(lambda chunk: WORTH[chunk[:, 0], chunk[:, 1]][:, 2:5], 3)
    exact = naive_sums(rows)[2:5]
    paid = noisy_function_selections(table(rows), functions, Query("p", "p", Selections(epsilon, 2)), book())
    picker = FunctionSelector(paid._exact_sums, Selections(epsilon, 2 * runs), table(rows), book())
    pairs = list(itertools.permutations(range(3), 2))
    found = np.zeros(6)
    for _ in range(runs):
        found[pairs.index(tuple(picker.top(2)))] += 1  # type: ignore[arg-type]  # two indices
    odds = np.exp(epsilon * (exact - exact.max()))
    law = [odds[a] / odds.sum() * odds[b] / (odds.sum() - odds[a]) for a, b in pairs]
    assert stats.chisquare(found, runs * np.asarray(law)).pvalue > LEVEL
    noisy = epsilon * exact + np.random.default_rng(1).gumbel(size=(runs, 3))
    best = np.argsort(-noisy, axis=1)[:, :2]
    one_shot = [np.sum(np.all(best == pair, axis=1)) for pair in pairs]
    assert stats.chi2_contingency([found, one_shot]).pvalue > LEVEL


def test_sums_are_over_every_row_in_every_chunk() -> None:
    """More rows than a chunk, and not a multiple: the padding adds nothing, the order changes nothing."""
    generator = np.random.default_rng(0)
    rows = [tuple(row) for row in generator.integers((3, 4), size=(CHUNK + 77, 2))]
    sums = [
        noisy_function_selections(table(each), FUNCTIONS, Query("p", "p", Selections(1.0)), book())._exact_sums
        for each in (rows, rows[::-1])
    ]
    np.testing.assert_array_equal(sums[0], sums[1])
    np.testing.assert_allclose(sums[0] / 2**20, naive_sums(rows), atol=1e-6 * len(rows))


def test_values_outside_the_unit_interval_are_held_inside() -> None:
    wild = RowFunctions(lambda rows: np.tile([np.nan, 7.0, -3.0, np.inf], (len(rows), 1)), 4)
    picker = noisy_function_selections(table([(0, 0)] * 10), wild, Query("p", "p", Selections(1.0)), book())
    np.testing.assert_array_equal(picker._exact_sums / 2**20, [5, 10, 0, 10])


def test_without_privacy_the_best_is_selected() -> None:
    ledger = Ledger(Guarantee.not_private(), noise=SeededNoise(0))
    functions = RowFunctions(lambda rows: np.tile([0.2, 0.9, 0.9], (len(rows), 1)), 3)
    picker = noisy_function_selections(table([(0, 0)] * 10), functions, Query("p", "p", Selections(1e-6, 5)), ledger)
    assert [picker(np.zeros(3)) for _ in range(3)] == [1, 1, 1]  # the first one on ties
    assert picker.top(2) == [1, 2]


class Untouchable(PrivateRows):
    """Rows that tell when they are looked at."""

    def __init__(self) -> None:
        self.domain, self.max_rows_per_unit, self._partition = DOMAIN, 1, None
        self.totals = Totals(DOMAIN.num_rows)  # of noisy answers: not the rows

    def __getattr__(self, name: str) -> object:
        raise RowsRead(name)


def test_selections_are_charged_before_the_rows_are_touched() -> None:
    dear = Query("p", "p", Selections(1.0, 50))
    with over_budget("p"):
        noisy_function_selections(Untouchable(), FUNCTIONS, dear, book(epsilon=0.1))
    with over_budget("p"):
        noisy_closest(Untouchable(), [("a",)], [[np.ones(3) / 3]], dear, book(epsilon=0.1))


def test_no_more_selections_than_were_charged() -> None:
    picker = noisy_function_selections(table([(0, 0)]), FUNCTIONS, Query("p", "p", Selections(1.0, 2)), book())
    public = np.zeros(len(naive_sums([])))
    picker(public)
    picker(public)
    with pytest.raises(BudgetExceeded):
        picker(public)


@pytest.mark.parametrize(
    "mixing",
    [
        lambda rows: WORTH[rows[:, 0], rows[:, 1]] * 0.9 + 0.1 * WORTH[rows[:, 0], rows[:, 1]].mean(axis=0),
        lambda rows: WORTH[rows[:, 0], rows[:, 1]] * np.linspace(0.9, 1.0, len(rows))[:, None],
        lambda rows: WORTH[np.roll(rows[:, 0], 1), rows[:, 1]],
    ],
    ids=["batch statistics", "place", "neighbour"],
)
def test_functions_that_mix_rows_are_refused(mixing) -> None:
    rows = Untouchable()
    with pytest.raises(ConfigError, match="mix rows"):
        noisy_function_selections(rows, RowFunctions(mixing, 6), Query("p", "p", Selections(1.0)), book())


def test_functions_of_another_number_are_refused() -> None:
    with pytest.raises(ConfigError, match="must give 5 values"):
        noisy_function_selections(
            Untouchable(), RowFunctions(FUNCTIONS.values, 5), Query("p", "p", Selections(1.0)), book()
        )


@settings(max_examples=scaled(25))
@given(rows=st.lists(codes, max_size=10), unit=st.lists(codes, min_size=1, max_size=3))
def test_distances_of_marginals_move_within_the_range(rows: list[tuple[int, ...]], unit: list[tuple[int, ...]]) -> None:
    cliques: list[Clique] = [("a",), ("a", "b")]
    generator = np.random.default_rng(len(rows))
    tables = [
        [generator.dirichlet(np.ones(DOMAIN.size(c))).reshape(DOMAIN.shape(c)) for c in cliques] for _ in range(4)
    ]
    laws = []
    for each in (rows, rows + unit):
        noise = ExactLaw(0)
        noisy_closest(
            table(each, len(unit)), cliques, tables, Query("p", "p", Selections(0.7)), book(noise, k=len(unit))
        )
        laws.append(noise.log_law)
    change = laws[1] - laws[0]
    assert change.max() - change.min() <= 0.7


# ------------------------------------------------------------------------------------------------------------- holdouts


def test_draws_hold_out_whole_units() -> None:
    """Each unit by its own coin: 4,000 of 20,000 units expected, standard deviation 57, five of them allowed."""
    cells = np.zeros((60_000, 2), dtype=np.int32)
    units = np.repeat(np.arange(20_000), 3)[np.random.default_rng(0).permutation(60_000)]
    rows = PrivateRows(cells, DOMAIN, max_rows_per_unit=3, units=units)
    training, held = partition_rows(rows, 0.2, book(k=3), ("training", "held"))
    assert training._units is not None
    assert held._units is not None
    assert not set(training._units) & set(held._units)
    assert len(training._units) + len(held._units) == 60_000
    assert abs(len(set(held._units)) - 4000) < 5 * 57
    assert (training.domain.num_rows, held.domain.num_rows) == (40, 10)  # of 50 that are public
    assert held.max_rows_per_unit == 3


def test_draws_are_independent_of_each_other() -> None:
    """Neighbours: 19,999 pairs, half alike for fair coins; within five standard deviations of 71."""
    rows = PrivateRows(np.arange(40_000).reshape(-1, 2).astype(np.int32), DOMAIN)
    _, held = partition_rows(rows, 0.5, book(), ("training", "held"))
    heads = np.isin(np.arange(20_000), held._codes[:, 0] // 2)
    assert abs(np.sum(heads[1:] == heads[:-1]) - 10_000) < 5 * 71
    again = partition_rows(rows, 0.5, book(SeededNoise(1)), ("training", "held"))[1]
    assert not np.array_equal(held._codes, again._codes)


def test_an_empty_table_can_be_split() -> None:
    training, held = partition_rows(table([]), 0.3, book(), ("training", "held"))
    assert len(training._codes) == len(held._codes) == 0
