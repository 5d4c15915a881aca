"""Privacy costs: against published figures, and against exact computations that share no code with the accountants."""

import math
from collections.abc import Callable, Sequence

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from dp_accounting.pld import pld_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.builders import raises
from tests.examples import scaled
from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting.accountants import (
    NO_NOISE,
    Spent,
    calibrate,
    check_delta,
    fits,
    grid_for,
    largest_rho,
    moments_epsilon,
    most_steps,
    pld_epsilon,
    rdp_epsilon,
    spent,
)
from understudy.privacy.accounting.events import ZCDP, DiscreteGaussian, Event, Gaussian, Selections, SubsampledGaussian
from understudy.privacy.accounting.ledger import Budget


def steps(rate: float, noise_multiplier: float, count: int) -> SubsampledGaussian:
    return SubsampledGaussian(rate, noise_multiplier, count)


# Published settings of private GANs: events, delta, "classic" RDP conversion, improved RDP conversion, PLD.
REFERENCE = {
    "50/25000 for 10000": ([steps(50 / 25000, 1.5, 10000)], 2e-5, 0.7308, 0.5640, 0.5095),
    "50/25000 for 12250": ([steps(50 / 25000, 1.5, 12250)], 2e-5, 0.8003, 0.6288, 0.5687),
    "50/25000 for 19000": ([steps(50 / 25000, 1.5, 19000)], 2e-5, 0.9951, 0.7963, 0.7221),
    "100/39660 for 7945": ([steps(100 / 39660, 1.55, 7945)], 1.261e-5, 0.7998, 0.6331, 0.5745),
    "100/39660 for 12655": ([steps(100 / 39660, 1.55, 12655)], 1.261e-5, 1.0062, 0.8120, 0.7388),
    "500/3723669 for 7445": ([steps(500 / 3723669, 1.1, 7445)], 1.343e-7, 0.7862, 0.5924, 0.0554),
    "500/3723669 for 22335": ([steps(500 / 3723669, 1.1, 22335)], 1.343e-7, 0.7954, 0.5969, 0.0975),
    "64/891 for 2960": ([steps(64 / 891, 10, 2960)], 5.61e-4, 1.5976, 1.2366, 1.0869),
    "64/891 for 4535": ([steps(64 / 891, 10, 4535)], 5.61e-4, 1.9988, 1.5822, 1.3964),
    "0.01 for 10000": ([steps(0.01, 4, 10000)], 1e-5, 1.2584, 1.0355, 0.9470),
    "autoencoder and GAN": (
        [steps(64 / 32562, 2.5, 20000), steps(128 / 32562, 7.5, 15000)],
        1e-5,
        0.6481,
        0.5111,
        0.4657,
    ),
}


def classic_epsilon(events: Sequence[SubsampledGaussian], delta: float) -> float:
    """The conversion of the papers: least rdp(a) + log(1/delta) / (a - 1)."""
    orders = np.r_[np.arange(1.01, 64, 0.25), np.arange(64, 512)]
    total = np.zeros(len(orders))
    for event in events:
        accountant = rdp.RdpAccountant(orders)
        step = dp_accounting.PoissonSampledDpEvent(
            event.sampling_rate, dp_accounting.GaussianDpEvent(event.noise_multiplier)
        )
        total += accountant.compose(step, event.steps)._rdp
    return float(np.min(total + math.log(1 / delta) / (orders - 1)))


@pytest.mark.parametrize("case", REFERENCE)
def test_reference_table(case: str) -> None:
    """Both accountants reproduce the reference figures of private training to 0.001."""
    events, delta, classic, by_rdp, by_pld = REFERENCE[case]
    assert rdp_epsilon(events, delta) == pytest.approx(by_rdp, abs=1e-3)
    assert pld_epsilon(events, delta, grid=1e-4) == pytest.approx(by_pld, abs=1e-3)
    assert spent(events, delta, grid=1e-4).epsilon == pytest.approx(min(by_rdp, by_pld), abs=1e-3)
    if case in ("64/891 for 2960", "500/3723669 for 7445", "0.01 for 10000"):  # the oracle is slow; three will do
        assert classic_epsilon(events, delta) == pytest.approx(classic, abs=0.01)


def test_zero_out_costs_what_add_or_remove_costs() -> None:
    """The two relations that a certificate may name have one cost; replacing a record has another."""
    event = steps(0.01, 2.0, 1000)
    ours = pld_epsilon([event], 1e-5, grid=1e-4)
    figures = {}
    for relation in ("ADD_OR_REMOVE_ONE", "REPLACE_SPECIAL", "REPLACE_ONE"):
        accountant = pld_privacy_accountant.PLDAccountant(dp_accounting.NeighboringRelation[relation])
        step = dp_accounting.PoissonSampledDpEvent(
            event.sampling_rate, dp_accounting.GaussianDpEvent(event.noise_multiplier)
        )
        figures[relation] = accountant.compose(step, event.steps).get_epsilon(1e-5)
    assert ours == pytest.approx(0.622, abs=1e-3)
    assert figures["ADD_OR_REMOVE_ONE"] == pytest.approx(ours, abs=1e-3)
    assert figures["REPLACE_SPECIAL"] == pytest.approx(ours, abs=1e-3)
    assert figures["REPLACE_ONE"] == pytest.approx(1.205, abs=1e-3)


def epsilon_where(delta_of: Callable[[float], float], delta: float) -> float:
    """Solves delta_of(epsilon) = delta for a decreasing curve."""
    low, high = 0.0, 1.0
    while delta_of(high) > delta:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(middle) <= delta else (middle, high)
    return high


def exact_epsilon_of_choices(epsilon: float, rounds: int, delta: float) -> float:
    """Hockey-stick divergence of `rounds` randomized responses, which dominate any pure mechanism."""
    k = np.arange(rounds + 1)
    likely, unlikely = (
        stats.binom.pmf(k, rounds, p) for p in (1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon)))
    )
    return epsilon_where(lambda e: float(np.maximum(likely - math.exp(e) * unlikely, 0).sum()), delta)


@pytest.mark.parametrize(
    ("rounds", "epsilon", "delta", "published", "bounded_range"),
    [
        (400, 5e-4, 1.261e-5, 0.0265, 0.0140),  # Private PGB, 1940 census
        (400, 1e-3, 5.61e-4, 0.0305, 0.0160),  # Titanic
        (400, 2.25e-4, 1.343e-7, 0.0165, 0.0086),  # 2010 census; orders up to 1024 would say 0.0103
        (14, 0.2, 1e-6, None, None),
        (1, 1.0, 1e-6, None, None),
        (50, 1.5, 1e-9, None, None),
    ],
)
def test_choices_against_the_exact_divergence(
    rounds: int, epsilon: float, delta: float, published: float | None, bounded_range: float | None
) -> None:
    """One binomial distribution for all rounds: above the exact figure by less than one step of the grid."""
    event = Selections(epsilon, rounds)
    exact = exact_epsilon_of_choices(epsilon, rounds, delta)
    figure = pld_epsilon([event], delta, grid=1e-5)
    assert exact - 1e-9 <= figure <= exact + 1.01e-5
    if published is not None:
        assert figure == pytest.approx(published, abs=1e-4)
        assert rdp_epsilon([event], delta) == pytest.approx(bounded_range, abs=1e-4)
        orders = np.asarray(rdp.RdpAccountant()._orders)  # those of the library: too few here
        assert rdp.compute_epsilon(orders, event.rho * orders, delta)[0] > 1.005 * rdp_epsilon([event], delta)
        per_round = Selections(epsilon, 1).pld(1e-4).self_compose(rounds).get_epsilon_for_delta(delta)
        assert per_round > 1.05 * figure  # what rounding each round up to a coarse grid would cost


def discrete_gaussian_mass(stddev: float, support: np.ndarray) -> np.ndarray:
    mass = np.exp(-(support.astype(float) ** 2) / (2 * stddev**2))
    return mass / mass.sum()


def exact_epsilon_of_discrete_gaussian(stddev: float, count: int, delta: float) -> float:
    """From the mass function alone: the loss of `count` cells moved by one depends on the sum of their noises."""
    reach = math.ceil(20 * stddev)
    one = discrete_gaussian_mass(stddev, np.arange(-reach, reach + 1))
    joint = one
    for _ in range(count - 1):
        joint = np.convolve(joint, one)
    total = np.arange(-count * reach, count * reach + 1)
    loss = (count - 2 * total) / (2 * stddev**2)  # log p(x) / p(x - 1), summed
    return epsilon_where(lambda e: float((joint * np.maximum(-np.expm1(np.minimum(e - loss, 0)), 0)).sum()), delta)


@pytest.mark.parametrize(
    ("stddev", "count", "delta"), [(1.0, 1, 1e-3), (1.0, 1, 1e-6), (0.7, 2, 1e-5), (3.0, 5, 1e-6), (20.0, 10, 1e-6)]
)
def test_discrete_gaussian_is_charged_as_what_it_is(stddev: float, count: int, delta: float) -> None:
    """The figure bounds the exact one from above, and exceeds it by rounding alone."""
    exact = exact_epsilon_of_discrete_gaussian(stddev, count, delta)
    figure = pld_epsilon([DiscreteGaussian(stddev, count)], delta, grid=1e-5)
    assert exact - 1e-7 <= figure <= exact + count * 1.1e-5
    assert rdp_epsilon([DiscreteGaussian(stddev, count)], delta) >= exact


def test_the_continuous_curve_is_no_bound_for_discrete_noise() -> None:
    discrete = pld_epsilon([DiscreteGaussian(1.0)], 1e-3, grid=1e-4)
    continuous = pld_epsilon([Gaussian(1.0)], 1e-3, grid=1e-4)
    assert discrete == pytest.approx(3.27, abs=0.005)
    assert continuous == pytest.approx(3.14, abs=0.005)


@pytest.mark.parametrize(("noise_multiplier", "count", "delta"), [(1.0, 1, 1e-3), (5.0, 1, 1e-6), (8.0, 9, 1e-5)])
def test_gaussian_against_its_closed_form(noise_multiplier: float, count: int, delta: float) -> None:
    """Balle and Wang 2018, theorem 8."""
    mu = math.sqrt(count) / noise_multiplier

    def delta_of(e: float) -> float:
        return stats.norm.cdf(mu / 2 - e / mu) - math.exp(e) * stats.norm.cdf(-mu / 2 - e / mu)

    exact = epsilon_where(delta_of, delta)
    assert exact - 1e-7 <= pld_epsilon([Gaussian(noise_multiplier, count)], delta, grid=1e-4) <= exact + 2e-4
    assert rdp_epsilon([Gaussian(noise_multiplier, count)], delta) >= exact


def test_each_accountant_holds_every_event_or_none() -> None:
    """A zCDP budget, or rows beyond one a unit, leave the Renyi side alone; its figure then counts all events."""
    counts = DiscreteGaussian(10.0, 3)
    for outside in (ZCDP(0.01), DiscreteGaussian(10.0, 1, sensitivity=2)):
        figures = spent([counts, outside], 1e-6)
        assert figures.pld == math.inf
        assert figures.epsilon == figures.rdp == rdp_epsilon([counts, outside], 1e-6)
        assert figures.rdp > rdp_epsilon([counts], 1e-6)
        assert figures.accountant == "Renyi (zCDP)"


@pytest.mark.parametrize("k", [2, 3, 10])
def test_rows_per_unit_enter_squared(k: int) -> None:
    """All k rows in one cell move it by k: the same cost as k-fold smaller noise."""
    assert DiscreteGaussian(5.0 * k, 4, k).rho == pytest.approx(DiscreteGaussian(5.0, 4).rho)
    assert DiscreteGaussian(5.0 * k, 4, k).pld(1e-4) is None
    assert pld_epsilon([DiscreteGaussian(5.0 * k, 4, k)], 1e-6) == math.inf
    alone = spent([DiscreteGaussian(5.0, 4, k)], 1e-6)
    assert alone.epsilon == rdp_epsilon([ZCDP(4 * k**2 / (2 * 5.0**2))], 1e-6)


def mst_like(noise: float, columns: int = 11) -> list[Event]:
    return [
        DiscreteGaussian(noise * math.sqrt(columns), columns),
        Selections(1 / (noise * math.sqrt(columns)), columns - 1),
        DiscreteGaussian(noise * math.sqrt(columns), columns - 1),
    ]


MIXES: dict[str, tuple[Callable[[float], list[Event]], tuple[Event, ...]]] = {
    "bundle": (lambda noise: [DiscreteGaussian(noise, 4)], ()),
    "tree": (mst_like, ()),
    "tree after discovery": (mst_like, (DiscreteGaussian(400.0), DiscreteGaussian(300.0, 5))),
    "selections": (lambda noise: [Selections(1 / noise, 10)], ()),
    "units of three rows": (lambda noise: [DiscreteGaussian(noise, 8, 3)], (DiscreteGaussian(900.0, 1, 3),)),
    "zCDP budget": (lambda noise: [ZCDP(1 / noise**2)], (DiscreteGaussian(300.0, 5),)),
    "training": (lambda noise: [SubsampledGaussian(0.01, noise, 500)], (Gaussian(200.0),)),
}


@pytest.mark.parametrize(
    ("mix", "epsilon"),
    [(mix, epsilon) for mix in MIXES for epsilon in (0.1, 1.0, 5.0) if mix != "training" or epsilon == 0.1],
)
def test_calibration_fills_the_budget(mix: str, epsilon: float) -> None:
    """Spent within 0.5% below the target and never above it, for the whole run."""
    events_of_noise, already = MIXES[mix]
    noise = calibrate(events_of_noise, epsilon=epsilon, delta=1e-6, already=already)
    run = [*already, *events_of_noise(noise)]
    assert 0.995 * epsilon <= spent(run, 1e-6, grid=grid_for(epsilon)).epsilon <= epsilon
    assert fits(run, epsilon, 1e-6)
    assert not fits([*already, *events_of_noise(noise / 1.005)], epsilon, 1e-6)


@pytest.mark.parametrize("already", [(), (DiscreteGaussian(100.0, 3),), (ZCDP(1e-4),)])
def test_largest_rho_fills_the_budget(already: tuple[Event, ...]) -> None:
    rho = largest_rho(epsilon=1.0, delta=1e-6, already=already)
    assert 0.999 <= rdp_epsilon([*already, ZCDP(rho)], 1e-6) <= 1.0


def test_what_cannot_fit_is_refused() -> None:
    """Each way in which no noise helps: fixed costs, a spent budget, a spent delta."""
    with raises(BudgetExceeded, left=None):
        calibrate(lambda noise: [ZCDP(1.0)], epsilon=1.0, delta=1e-6)
    with raises(BudgetExceeded, left=0.0):
        calibrate(mst_like, epsilon=1.0, delta=1e-6, already=[ZCDP(1.0)])
    with raises(BudgetExceeded, left=0.0):
        calibrate(mst_like, epsilon=1.0, delta=0.0, already=[ZCDP(1e-6)])
    with pytest.raises(BudgetExceeded, match=r"earlier queries already cost epsilon 7\.766 of 1"):
        largest_rho(epsilon=1.0, delta=1e-6, already=[ZCDP(1.0)])
    assert not fits([ZCDP(1e-9)], 1.0, 0.0)
    assert spent([ZCDP(1e-9)], 0.0) == Spent(math.inf, math.inf)


def test_events_that_cost_nothing_end_the_search() -> None:
    assert calibrate(lambda noise: [], epsilon=1.0, delta=1e-6) < 1e-3
    assert spent([], 1e-6) == Spent(0.0, 0.0)


def test_not_private_budgets_ask_for_no_noise() -> None:
    budget = Budget(math.inf, 1e-6)
    assert budget.calibrate(mst_like) == NO_NOISE
    assert budget.rho() == 1 / NO_NOISE**2


events = st.one_of(
    st.builds(DiscreteGaussian, st.floats(2.0, 50.0), st.integers(1, 6)),
    st.builds(Selections, st.floats(0.01, 0.5), st.integers(1, 20)),
    st.builds(Gaussian, st.floats(2.0, 50.0), st.integers(1, 6)),
)


@settings(max_examples=scaled(12))
@given(run=st.lists(events, min_size=1, max_size=3), more=events, delta=st.sampled_from([1e-4, 1e-6, 1e-9]))
def test_more_queries_cost_more_and_larger_deltas_less(run: list[Event], more: Event, delta: float) -> None:
    for cost in (rdp_epsilon, lambda queries, d: pld_epsilon(queries, d, grid=1e-3)):
        assert cost([*run, more], delta) >= cost(run, delta) - 1e-9
        assert cost(run, delta / 10) >= cost(run, delta) - 1e-9


@settings(max_examples=scaled(12))
@given(
    noise=st.floats(0.5, 100.0),
    factor=st.floats(1.01, 3.0),
    event=st.sampled_from([lambda n: DiscreteGaussian(n, 3), lambda n: Selections(1 / n, 5), Gaussian]),
)
def test_more_noise_costs_less(noise: float, factor: float, event: Callable[[float], Event]) -> None:
    assert rdp_epsilon([event(noise * factor)], 1e-6) <= rdp_epsilon([event(noise)], 1e-6)
    quiet, loud = (pld_epsilon([event(n)], 1e-6, grid=1e-3) for n in (noise, noise * factor))
    assert loud <= quiet + 1e-3


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 10.0, 30.0])
def test_the_grid_does_not_jump_at_a_target(epsilon: float) -> None:
    """What calibration found to fit must still fit when the ledger asks with its tiny slack."""
    assert grid_for(epsilon * (1 + 1e-9)) == pytest.approx(grid_for(epsilon), rel=1e-6)
    assert 1e-5 <= grid_for(epsilon) <= 1e-4


@pytest.mark.parametrize("delta", [0, 1, -1e-6, 2.0, math.nan, math.inf, True, "1e-6"])
def test_a_delta_outside_its_range_is_refused(delta: object) -> None:
    with raises(ConfigError, setting="delta"):
        check_delta(delta)  # type: ignore[arg-type]  # a wrong type


@pytest.mark.parametrize(
    "event",
    [
        lambda: DiscreteGaussian(1.0, -3),
        lambda: DiscreteGaussian(0.0),
        lambda: DiscreteGaussian(math.nan),
        lambda: Gaussian(-1.0),
        lambda: SubsampledGaussian(0.0, 1.0, 10),
        lambda: SubsampledGaussian(0.1, 1.0, 0),
        lambda: Selections(-0.1),
        lambda: ZCDP(-1.0),
    ],
)
def test_an_event_without_a_cost_is_refused(event: Callable[[], object]) -> None:
    """A negative cost would lower the sum of all others."""
    with pytest.raises(ConfigError):
        event()


# --- A number of steps, and the moments accountant ---


@pytest.mark.parametrize("case", REFERENCE)
def test_the_moments_accountant_states_what_the_papers_state(case: str) -> None:
    """Whole orders alone, so up to 0.01 more than with those between; never less than the ledger's own figures."""
    events, delta, classic, improved, pld = REFERENCE[case]
    found = moments_epsilon(events, delta)
    assert classic - 1e-4 <= found <= classic + 0.01
    assert found > max(improved, pld)


def test_log_moments_are_renyi_divergences_of_whole_orders() -> None:
    """An implementation of others, which shares no code with ours, order by order."""
    for rate, noise, count in ((0.01, 1.0, 100), (0.3, 4.0, 7), (1.0, 5.0, 3)):
        orders = np.arange(2, 258)
        accountant = rdp.RdpAccountant(orders)
        step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
        accountant.compose(step, count)
        wanted = np.min(accountant._rdp + np.log(1e5) / (orders - 1))
        assert moments_epsilon([steps(rate, noise, count)], 1e-5) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("multiple", [1, 7])
@pytest.mark.parametrize(
    ("rate", "noise", "epsilon", "already"),
    [(0.01, 4.0, 0.3, ()), (1 / 32, 12.0, 0.5, (Gaussian(20.0),)), (1.0, 300.0, 0.5, ()), (0.3, 2.5, 1.0, ())],
)
def test_as_many_steps_as_fit_and_not_one_more(
    rate: float, noise: float, epsilon: float, already: tuple[Event, ...], multiple: int
) -> None:
    found = most_steps(
        lambda count: [steps(rate, noise, count)], epsilon=epsilon, delta=1e-6, already=already, multiple=multiple
    )
    assert found % multiple == 0
    assert not found or fits([*already, steps(rate, noise, found)], epsilon, 1e-6)
    assert not fits([*already, steps(rate, noise, found + multiple)], epsilon, 1e-6)


def test_published_lengths_are_found_again() -> None:
    """The moments accountant's epsilon of a published training of 7,945 steps: our own bound covers more of them."""
    rate, noise, delta = 100 / 39660, 1.55, 1.261e-5
    assert most_steps(lambda count: [steps(rate, noise, count)], epsilon=0.5745, delta=delta) == pytest.approx(
        7945, rel=0.01
    )
