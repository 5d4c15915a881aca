"""Bounds on tests and beliefs: never below what an optimal attacker reaches, and above it by a stated slack at most.

The oracles are the closed forms of the Gaussian mechanism, and optimal tests of small mechanisms whose two
distributions are written out. They share no code with the bounds.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy import stats

import understudy as us
from understudy.errors import ConfigError
from understudy.privacy.accounting.events import (
    ORDERS,
    ZCDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    Pure,
    Selections,
    SubsampledGaussian,
)
from understudy.privacy.accounting.ledger import Ledger, Query, Statement
from understudy.privacy.accounting.tradeoff import TradeOff, statement_tradeoff, tradeoff
from understudy.privacy.noise.source import SeededNoise

RATES = (0.001, 0.01, 0.05, 0.2, 0.5, 0.9)
DELTA = 1e-6
SLACK = 1e-3
"""Relative: how far bounds by losses, and by the Gaussian curve, exceed what an optimal test reaches."""

Pair = tuple[np.ndarray, np.ndarray]
"""Probabilities of the outcomes of a mechanism, with the unit and without it."""


def statement_of(*events: Event, delta: float = DELTA, list_delta: float = 0.0) -> Statement:
    """Of a run of these events; `list_delta` is that of a thresholded list, the first query."""
    ledger = Ledger(us.Guarantee(50.0, delta), noise=SeededNoise(0))
    for number, event in enumerate(events):
        ledger.charge(Query(str(number), "query", event, delta=list_delta if number == 0 else 0.0))
    return dataclasses.replace(ledger.statement(), epsilon_target=1.0)  # the grid of a run that was planned


def bounds_of(*events: Event, delta: float = DELTA) -> TradeOff:
    return statement_tradeoff(statement_of(*events, delta=delta))


# --- Oracles: mechanisms whose two distributions are written out ---


def most_powerful(pair: Pair, false_positive_rate: float) -> float:
    """The lemma of Neyman and Pearson: outcomes by falling likelihood ratio, the last one at random."""
    present, absent = pair
    order = np.argsort(-np.divide(present, absent, out=np.full(len(present), np.inf), where=absent > 0))
    rates = np.concatenate([[0.0], np.cumsum(absent[order])])
    powers = np.concatenate([[0.0], np.cumsum(present[order])])
    return float(np.interp(false_positive_rate, rates, powers))


def swap(pair: Pair) -> Pair:
    return pair[1], pair[0]


def together(*pairs: Pair) -> Pair:
    """Of independent mechanisms."""
    return tuple(np.prod(np.array(list(itertools.product(*side))), axis=1) for side in zip(*pairs, strict=True))


def discrete_gaussian(stddev: float) -> Pair:
    values = np.arange(-40, 42)
    masses = [np.exp(-((values - middle) ** 2) / (2 * stddev**2)) for middle in (1, 0)]
    return masses[0] / masses[0].sum(), masses[1] / masses[1].sum()


def randomized_response(epsilon: float) -> Pair:
    right = 1 / (1 + math.exp(-epsilon))
    return np.array([right, 1 - right]), np.array([1 - right, right])


def subsampled(rate: float, stddev: float) -> Pair:
    """One step, in narrow cells."""
    edges = np.concatenate([[-math.inf], np.linspace(-6 * stddev, 1 + 6 * stddev, 4000), [math.inf]])
    absent = np.diff(stats.norm.cdf(edges, scale=stddev))
    return (1 - rate) * absent + rate * np.diff(stats.norm.cdf(edges, loc=1, scale=stddev)), absent


SMALL: dict[str, tuple[tuple[Event, ...], Pair]] = {
    "discrete Gaussian": ((DiscreteGaussian(1.5),), discrete_gaussian(1.5)),
    "two histograms": ((DiscreteGaussian(3.0, 2),), together(*[discrete_gaussian(3.0)] * 2)),
    "one answer": ((DiscreteLaplace(1.0),), randomized_response(1.0)),
    "four answers": ((DiscreteLaplace(0.5, 4),), together(*[randomized_response(0.5)] * 4)),
    "counts and answers": (
        (DiscreteGaussian(2.0), DiscreteLaplace(0.4, 2)),
        together(discrete_gaussian(2.0), *[randomized_response(0.4)] * 2),
    ),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("rate", RATES)
def test_an_optimal_test_reaches_the_bound_and_does_not_pass_it(name: str, rate: float) -> None:
    events, pair = SMALL[name]
    assert statement_of(*events).accountant == "privacy-loss distribution"
    found = bounds_of(*events).largest_true_positive_rate(rate)
    power = max(most_powerful(pair, rate), most_powerful(swap(pair), rate))
    assert power <= found <= power * (1 + SLACK) + 1e-9


@pytest.mark.parametrize("rate", RATES)
def test_both_directions_count(rate: float) -> None:
    """Of a batch the two directions differ: presence is easier to detect than absence at some rates, harder at others.
    The bound is for the worse direction at each epsilon, so it may be above both."""
    pair = subsampled(0.2, 1.0)
    found = bounds_of(SubsampledGaussian(0.2, 1.0, 1)).largest_true_positive_rate(rate)
    presence, absence = most_powerful(pair, rate), most_powerful(swap(pair), rate)
    assert max(presence, absence) <= found <= 1.05 * max(presence, absence)


@dataclasses.dataclass(frozen=True)
class Known(Event):
    """A mechanism that is known by its two distributions, with the unit and without it."""

    present: tuple[float, ...]
    absent: tuple[float, ...]

    @property
    def has_pld(self) -> bool:
        return True

    def pld(self, grid: float) -> privacy_loss_distribution.PrivacyLossDistribution:
        logs = [{i: math.log(each) for i, each in enumerate(side) if each} for side in (self.absent, self.present)]
        return privacy_loss_distribution.from_two_probability_mass_functions(
            *logs, value_discretization_interval=grid, symmetric=False
        )

    def rdp(self) -> np.ndarray:
        return np.full(len(ORDERS), np.inf)

    def describe(self) -> str:
        return "a table of probabilities"


LOPSIDED: dict[str, Pair] = {
    "presence shows": (np.array([0.1, 0.45, 0.45]), np.array([0.02, 0.49, 0.49])),
    "presence is certain at times": (np.array([1e-7, 0.5, 0.5 - 1e-7]), np.array([0.0, 0.45, 0.55])),
}


@pytest.mark.made_up_figures("no certificate has such an event")
@pytest.mark.parametrize("name", LOPSIDED)
@pytest.mark.parametrize("swapped", [False, True])
def test_the_worse_direction_counts_whichever_it_is(name: str, swapped: bool) -> None:
    pair = swap(LOPSIDED[name]) if swapped else LOPSIDED[name]
    found = bounds_of(Known(tuple(pair[0]), tuple(pair[1])))
    for rate in (0.0, *RATES):
        power = max(most_powerful(pair, rate), most_powerful(swap(pair), rate))
        assert power <= found.largest_true_positive_rate(rate)
    if 0.0 in (*pair[0], *pair[1]):
        assert found.largest_loss(0.9e-7) == math.inf


# --- Closed forms: the Gaussian mechanism ---


def gaussian_power(mu: float, rate: float) -> float:
    return float(stats.norm.cdf(stats.norm.ppf(rate) + mu))


def gaussian_loss(mu: float, probability: float) -> float:
    """What an alarm that is raised with this probability multiplies the odds by."""
    return math.log(probability) - float(stats.norm.logcdf(stats.norm.ppf(probability) - mu))


GAUSSIANS: dict[str, tuple[tuple[Event, ...], float]] = {
    "weak": ((Gaussian(20.0),), 1 / 20),
    "composed": ((Gaussian(5.0, 3), Gaussian(4.0)), math.sqrt(3 / 25 + 1 / 16)),
    "strong": ((Gaussian(0.5),), 2.0),
    "by losses": ((SubsampledGaussian(1.0, 5.0, 4),), 0.4),
}


@pytest.mark.parametrize("name", GAUSSIANS)
def test_gaussian_bounds_are_the_closed_forms(name: str) -> None:
    events, mu = GAUSSIANS[name]
    found = bounds_of(*events)
    for rate in RATES:
        power = gaussian_power(mu, rate)
        assert power <= found.largest_true_positive_rate(rate) <= power * (1 + SLACK)
    for probability in (0.5, 0.01, 1e-4, DELTA):
        loss = gaussian_loss(mu, probability)
        assert loss <= found.largest_loss(probability) <= loss * (1 + SLACK) + 1e-5
        for prior in (0.5, 0.1, 0.01):
            odds = prior / (1 - prior) * math.exp(loss)
            posterior = odds / (1 + odds)
            assert posterior <= found.largest_posterior(prior, probability=probability) <= posterior * (1 + SLACK)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_one_answer_of_pure_epsilon_multiplies_the_odds_by_its_exponential(epsilon: float) -> None:
    """Whatever the probability: the loss is never larger."""
    for probability in (0.01, 1e-4, DELTA):
        assert epsilon <= bounds_of(Pure(epsilon)).largest_loss(probability) <= epsilon + 1e-3


def test_a_loss_is_exceeded_more_often_after_post_processing() -> None:
    """So the quantile of the losses is no bound on beliefs: one who sees only whether a Gaussian answer is in its upper
    hundredth has odds multiplied by more, with the same probability. The bound holds for them."""
    mu, probability = 1.0, 0.01
    quantile = mu**2 / 2 + mu * stats.norm.isf(probability)
    threshold = mu + stats.norm.isf(probability)
    factor = stats.norm.sf(threshold - mu) / stats.norm.sf(threshold)
    assert math.exp(quantile) < 0.75 * factor
    found = bounds_of(Gaussian(1 / mu)).largest_loss(probability)
    assert math.log(factor) <= found <= math.log(factor) + 1e-3


# --- Beliefs, by Bayes' rule ---


def exceeding(pair: Pair, prior: float, most: float) -> float:
    """The probability that the belief in the first of two distributions exceeds `most`, whichever of them is true."""
    first, second = pair
    joint = prior * first + (1 - prior) * second
    posterior = np.divide(prior * first, joint, out=np.zeros(len(joint)), where=joint > 0)
    return float(max(first[posterior > most].sum(), second[posterior > most].sum()))


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("prior", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("probability", [0.2, 0.01, 1e-4])
def test_beliefs_pass_the_bound_with_the_stated_probability_at_most(
    name: str, prior: float, probability: float
) -> None:
    """In presence and in absence; of those who see all, and of those who see which of some random sets it is in."""
    events, pair = SMALL[name]
    most = bounds_of(*events).largest_posterior(prior, probability=probability)
    assert most >= prior
    rng = np.random.default_rng(0)
    for sets in (len(pair[0]), *rng.integers(2, 30, size=20)):
        cells = np.arange(sets) if sets == len(pair[0]) else rng.integers(sets, size=len(pair[0]))
        seen = (np.bincount(cells, weights=pair[0]), np.bincount(cells, weights=pair[1]))
        for side in (seen, swap(seen)):
            assert exceeding(side, prior, most) <= probability


def test_people_who_come_together_exceed_the_bound_of_one() -> None:
    """The condition of a bound on beliefs is needed: five people of a household are all in the table or all absent."""
    stddev, prior, probability = 3.0, 0.1, 0.01
    bound = bounds_of(DiscreteGaussian(stddev)).largest_posterior(prior, probability=probability)
    values = np.arange(-60, 66)
    masses = [np.exp(-((values - size) ** 2) / (2 * stddev**2)) for size in (5, 0)]
    household = masses[0] / masses[0].sum(), masses[1] / masses[1].sum()
    assert exceeding(discrete_gaussian(stddev), prior, bound) <= probability
    assert exceeding(household, prior, bound) > 0.5


def test_beliefs_of_someone_who_does_not_know_the_other_rows() -> None:
    """A count with noise, of an unknown number of other rows."""
    rng = np.random.default_rng(1)
    most = bounds_of(DiscreteGaussian(1.5)).largest_posterior(0.1, probability=0.01)
    for _ in range(20):
        others = rng.dirichlet(np.full(6, 0.5))
        values = np.arange(-30, 40)
        noise = np.array([np.exp(-((values - count) ** 2) / (2 * 1.5**2)) for count in range(7)])
        noise /= noise.sum(axis=1, keepdims=True)
        pair = others @ noise[1:], others @ noise[:-1]
        assert exceeding(pair, 0.1, most) <= 0.01
        assert exceeding(swap(pair), 0.1, most) <= 0.01


# --- Renyi divergences ---


@pytest.mark.parametrize("rho", [0.0005, 0.01, 0.5, 5.0])
def test_bounds_by_renyi_divergence(rho: float) -> None:
    """Not below the Gaussian mechanism of the same rho, and for beliefs the bound of Chernoff: rho + 2 sqrt(rho log(1 /
    probability)), the least of rho a + log(1 / probability) / (a - 1) over all orders a."""
    statement = statement_of(ZCDP(rho))
    assert statement.accountant == "Renyi (zCDP)"
    found, mu = statement_tradeoff(statement), math.sqrt(2 * rho)
    for rate in RATES:
        assert gaussian_power(mu, rate) <= found.largest_true_positive_rate(rate)
    for probability in (0.01, 1e-4, DELTA):
        chernoff = rho + 2 * math.sqrt(rho * math.log(1 / probability))
        assert gaussian_loss(mu, probability) <= chernoff <= found.largest_loss(probability) <= chernoff * 1.002


@pytest.mark.parametrize(("rho", "slack"), [(0.01, 0.06), (0.05, 0.13), (0.5, 0.4), (1.0, 0.6), (2.0, 0.6), (5.0, 0.6)])
@pytest.mark.parametrize("rate", [0.01, 0.05])
def test_renyi_bounds_on_tests_have_a_stated_slack(rho: float, slack: float, rate: float) -> None:
    power = gaussian_power(math.sqrt(2 * rho), rate)
    assert bounds_of(ZCDP(rho)).largest_true_positive_rate(rate) <= power * (1 + slack)


# --- What is added: lists, the range of noise, partitions ---


@pytest.mark.parametrize("rate", RATES)
def test_the_delta_of_a_list_counts(rate: float) -> None:
    """A list that names a value of one unit with this probability gives the unit away, whatever the noise hides."""
    given_away, delta = 0.004, 0.01
    found = statement_tradeoff(statement_of(Gaussian(5.0), delta=delta, list_delta=given_away))
    power = given_away + (1 - given_away) * gaussian_power(0.2, rate)
    assert power <= found.largest_true_positive_rate(rate) <= power + given_away
    assert found.largest_loss(given_away) == math.inf
    assert found.largest_loss(2 * given_away) < math.inf


def test_the_finite_range_of_noise_counts() -> None:
    event = SubsampledGaussian(1 / 32, 1.0, 1000)
    found = bounds_of(event)
    assert found.largest_loss(0.99 * event.tail_delta) == math.inf
    assert found.largest_loss(10 * event.tail_delta) < math.inf


def partitioned(*events: Event) -> Statement:
    ledger = Ledger(us.Guarantee(50.0, DELTA), noise=SeededNoise(0))
    ledger._partition_units("a", "b")
    for name, event in zip("ab", events, strict=True):
        ledger.charge(Query(name, "query", event, partition=name))
    return ledger.statement()


@pytest.mark.parametrize(
    "events", [(Gaussian(5.0), Gaussian(8.0)), (Pure(0.5), Gaussian(3.0)), (Pure(0.5), ZCDP(0.02))]
)
def test_of_partitions_the_worst_at_each_epsilon_counts(events: tuple[Event, Event]) -> None:
    """A unit is in either, so no figure is below that of one of them; and composing both would cost more."""
    found = statement_tradeoff(partitioned(*events))
    composed = bounds_of(*events)
    for rate in RATES:
        alone = [bounds_of(event).largest_true_positive_rate(rate) for event in events]
        assert max(alone) * (1 - SLACK) <= found.largest_true_positive_rate(rate)
        assert found.largest_true_positive_rate(rate) <= composed.largest_true_positive_rate(rate) * (1 + SLACK)
    for probability in (0.01, 1e-4):
        alone = [bounds_of(event).largest_loss(probability) for event in events]
        assert max(alone) * (1 - SLACK) <= found.largest_loss(probability)


# --- From epsilon and delta alone ---


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 0.0), (1.0, 0.01), (5.0, 1e-3), (0.0, 0.1)])
@pytest.mark.parametrize("rate", [0.0, *RATES, 1.0])
def test_the_worst_mechanism_of_epsilon_and_delta_reaches_the_bound(epsilon: float, delta: float, rate: float) -> None:
    """It gives the unit away with probability delta, and else answers by randomized response."""
    right = (1 - delta) / (1 + math.exp(-epsilon))
    pair = np.array([delta, right, 1 - delta - right, 0.0]), np.array([0.0, 1 - delta - right, right, delta])
    found = tradeoff(epsilon, delta)
    assert most_powerful(pair, rate) <= found.largest_true_positive_rate(rate) <= most_powerful(pair, rate) + 1e-8
    if delta:
        assert found.largest_loss(delta) == math.inf
        assert found.largest_posterior(0.01, probability=delta) == 1.0


@pytest.mark.parametrize("events", [*(events for events, _ in (*SMALL.values(), *GAUSSIANS.values())), (ZCDP(0.1),)])
def test_the_whole_curve_implies_no_less_than_epsilon_and_delta(events: Sequence[Event]) -> None:
    statement = statement_of(*events)
    whole, point = statement_tradeoff(statement), tradeoff(statement.epsilon, statement.delta)
    for rate in RATES:
        assert whole.largest_true_positive_rate(rate) <= point.largest_true_positive_rate(rate) * (1 + 1e-8)
        assert whole.largest_loss(rate) <= point.largest_loss(rate) * (1 + 1e-6) + 1e-8


# --- Ends ---


def test_without_a_guarantee_nothing_is_implied() -> None:
    none = Ledger(us.Guarantee.not_private(), noise=SeededNoise(0)).statement()
    for found in (statement_tradeoff(none), tradeoff(math.inf, 1e-6)):
        assert found.largest_true_positive_rate(0.01) == 1.0
        assert found.largest_posterior(0.01, probability=0.5) == 1.0


def test_without_a_query_nothing_can_be_learned() -> None:
    found = statement_tradeoff(statement_of())
    assert found.largest_true_positive_rate(0.01) == pytest.approx(0.01, rel=1e-8)
    assert found.largest_posterior(0.1, probability=DELTA) == pytest.approx(0.1, rel=1e-8)


def test_more_false_alarms_and_rarer_exceptions_raise_the_bounds() -> None:
    found = bounds_of(DiscreteGaussian(2.0), Selections(0.3))
    powers = [found.largest_true_positive_rate(rate) for rate in RATES]
    losses = [found.largest_loss(rate) for rate in RATES]
    assert powers == sorted(powers)
    assert losses == sorted(losses, reverse=True)
    assert found.largest_posterior(0.0, probability=0.01) == 0.0
    assert found.largest_posterior(1.0, probability=0.01) == 1.0


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_what_is_no_probability_is_refused(bad: float) -> None:
    for call in (
        lambda: tradeoff(1.0, 0.0).largest_true_positive_rate(bad),
        lambda: tradeoff(1.0, 0.0).largest_loss(bad),
        lambda: tradeoff(1.0, 0.0).largest_posterior(bad, probability=0.1),
        lambda: tradeoff(1.0, bad),
        lambda: tradeoff(-1.0, 0.0),
    ):
        with pytest.raises(ConfigError):
            call()
