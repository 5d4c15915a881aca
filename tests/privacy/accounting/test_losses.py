"""Privacy-loss distributions: how many points they have is known before they are computed, and limited."""

import math
import time
from collections.abc import Sequence

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import raises
from understudy.errors import ConfigError
from understudy.privacy.accounting.accountants import (
    MAX_LOSSES,
    composed_pld,
    gaussian_epsilon,
    has_losses,
    pld_epsilon,
    spent,
)
from understudy.privacy.accounting.events import (
    EVENTS,
    MAX_COUNT,
    DiscreteGaussian,
    Event,
    LaplaceMarginals,
    Pure,
    Selections,
    SubsampledGaussian,
    UnitHistogram,
    event_from_json,
)
from understudy.privacy.accounting.losses import self_composed, subsampled_gaussian

COMPUTED = [
    DiscreteGaussian(300.0, 100_000),
    DiscreteGaussian(90.0, 1_000),
    DiscreteGaussian(2.0, 7),
    SubsampledGaussian(0.001, 7.0, 1_000_000),
    SubsampledGaussian(0.01, 1.0, 1_000),
    SubsampledGaussian(0.001, 0.7, 5),
    SubsampledGaussian(0.5, 20.0, 10_000),
    SubsampledGaussian(1e-12, 20.0, 10_000),
    SubsampledGaussian(1.0, 20.0, 100),
    Selections(3e-4, 10_000),
    LaplaceMarginals(0.01, 50, 2),
]


def num_points(made: pld.PrivacyLossDistribution) -> int:
    return made._pmf_remove.size + (0 if made._symmetric else made._pmf_add.size)


@pytest.mark.parametrize("event", COMPUTED, ids=str)
def test_no_distribution_has_many_more_points_than_expected(event: Event) -> None:
    """The limits of what anyone's certificate makes a reader compute are limits of `num_losses`."""
    made = event.pld(5e-5)
    assert made is not None
    assert num_points(made) <= 1.5 * event.num_losses(5e-5)


@pytest.mark.parametrize("times", [1, 2, 11, 1000])
@pytest.mark.parametrize("rate", [0.01, 1.0])
def test_compositions_are_those_of_the_library(times: int, rate: float) -> None:
    """To the last bit: only the intermediate power of whole numbers is left out."""
    one = subsampled_gaussian(rate, 5.0, 1e-3)
    ours, theirs = self_composed(one, times), one.self_compose(times)
    for own, other in ((ours._pmf_remove, theirs._pmf_remove), (ours._pmf_add, theirs._pmf_add)):
        assert own.to_dense_pmf()._probs.tolist() == other.to_dense_pmf()._probs.tolist()


TOO_LARGE = [
    DiscreteGaussian(1e9),
    DiscreteGaussian(1e-6),
    DiscreteGaussian(0.1, MAX_COUNT),
    UnitHistogram(1e9),
    UnitHistogram(1e-6),
    SubsampledGaussian(1e-9, 1e-4, 1),
    SubsampledGaussian(0.5, 1.0, MAX_COUNT),
    Selections(1e-6, MAX_COUNT),
    LaplaceMarginals(1e6),
]


@pytest.mark.parametrize("event", TOO_LARGE, ids=str)
def test_what_would_take_long_has_the_renyi_figure_alone(event: Event) -> None:
    began = time.process_time()
    assert event.num_losses(1e-5) > MAX_LOSSES
    found = spent([event], 1e-6)
    assert found.pld == math.inf
    assert found.rdp < math.inf
    assert time.process_time() - began < 10


def test_rows_of_a_unit_and_their_noise_are_no_points() -> None:
    """No distribution is computed for them, so there is nothing to limit."""
    event = DiscreteGaussian(1e7, 10, 1000)
    assert event.num_losses(1e-5) == 0
    assert has_losses((event,) * 1000, 1e-5)


DEAREST: dict[str, Sequence[Event]] = {
    "steps": [SubsampledGaussian(0.001, 5.0, MAX_COUNT)],
    "counts": [DiscreteGaussian(20_000.0, MAX_COUNT)],
    "rounds": [Selections(1e-6, 300_000)],
    "many steps": [SubsampledGaussian(1e-4 + at * 1e-8, 200.0, MAX_COUNT) for at in range(200)],
    "many answers": [Pure(1e-5 + at * 1e-9) for at in range(1000)],
}
"""What took from 20 seconds to hours, or ended in a RecursionError, although it was within all limits."""


@pytest.mark.parametrize("case", DEAREST)
def test_the_dearest_queries_take_seconds(case: str) -> None:
    began = time.process_time()
    spent(DEAREST[case], 1e-6)
    assert time.process_time() - began < 15


def test_many_queries_are_composed() -> None:
    """More than Python recurses."""
    events = tuple(Pure(1e-5 + at * 1e-9) for at in range(1000))
    assert composed_pld(events, 1e-5) is not None
    assert pld_epsilon(events, 1e-6) < 0.1


@given(st.lists(st.sampled_from(COMPUTED), min_size=1, max_size=40), st.data())
@settings(max_examples=60, deadline=None)
def test_a_part_of_a_run_takes_no_longer_than_the_run(events: list[Event], data: st.DataObject) -> None:
    """Or a query that was planned with the figure of one accountant could be refused when it is charged."""
    part = data.draw(st.permutations(data.draw(st.lists(st.sampled_from(events), max_size=len(events), unique_by=id))))
    if has_losses(tuple(events), 1e-5):
        assert has_losses(tuple(part), 1e-5)
    assert has_losses(tuple(events), 1e-5) == has_losses(tuple(reversed(events)), 1e-5)


COUNTS = {
    "DiscreteGaussian": "count",
    "Gaussian": "count",
    "SubsampledGaussian": "steps",
    "LaplaceCounts": "sensitivity",
    **dict.fromkeys(("Selections", "Pure", "DiscreteLaplace", "LaplaceMarginals"), "rounds"),
}


@pytest.mark.parametrize("kind", COUNTS)
@pytest.mark.parametrize("value", [1e300, 2.0, True, MAX_COUNT + 1, 10**400, "1", None])
def test_counts_are_whole_numbers_up_to_a_limit(kind: str, value: object) -> None:
    usual = {"stddev": 1.0, "noise_multiplier": 1.0, "sampling_rate": 0.5, "epsilon": 1.0}
    fields = {each: usual[each] for each in usual if each in EVENTS[kind].__dataclass_fields__}
    event_from_json({"kind": kind, **fields, COUNTS[kind]: 2})
    with raises(ConfigError, setting=COUNTS[kind]) as caught:
        event_from_json({"kind": kind, **fields, COUNTS[kind]: value})
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize("delta", [1e-9, 1e-11, 1e-12])
@pytest.mark.parametrize("steps", [1_000, 100_000, 1_000_000])
def test_rounding_of_many_compositions_lowers_no_epsilon(steps: int, delta: float) -> None:
    """Full batches compose to one Gaussian query, whose epsilon has a closed form. Without what is added for rounding,
    a million steps state 6.73 instead of 6.90 at delta 1e-11."""
    event = SubsampledGaussian(1.0, math.sqrt(steps), steps)
    found = pld_epsilon([event], delta)
    assert found >= gaussian_epsilon(1.0, delta)
    assert found < gaussian_epsilon(1.0, delta) * 1.01 or delta < 100 * steps * 2.0**-52
