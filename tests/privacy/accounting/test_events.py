"""Events: each is checked, written as JSON, described and accounted for by what its class says, and nothing else."""

import dataclasses
import json
import math
import re

import jsonschema
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from tests.builders import raises
from tests.certificate.json_schema import event_schema, json_schema
from understudy import certificate
from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting import accountants as accounting
from understudy.privacy.accounting import events
from understudy.privacy.accounting.events import (
    ZCDP,
    Count,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    LaplaceCounts,
    LaplaceMarginals,
    Positive,
    Pure,
    Selections,
    SubsampledGaussian,
    UnitHistogram,
    event_from_json,
)
from understudy.privacy.accounting.ledger import Guarantee, Ledger, Query
from understudy.privacy.noise.source import SecureNoise

ALL = (
    DiscreteGaussian(12.5, 3, 2),
    DiscreteGaussian(12.5, 3),
    UnitHistogram(12.5),
    Gaussian(20.0, 4, floating=True),
    SubsampledGaussian(0.5, 20.0, 2),
    Selections(0.1, 5),
    Pure(0.1, 2),
    DiscreteLaplace(0.1, 2),
    LaplaceCounts(0.1, 60),
    LaplaceMarginals(0.1, 5, 2),
    ZCDP(0.02),
)


def test_every_kind_is_tested_here() -> None:
    assert {type(event).__name__ for event in ALL} == set(events.EVENTS)


@pytest.mark.parametrize("event", ALL, ids=str)
def test_json_is_valid_and_comes_back(event: Event) -> None:
    content = json.loads(json.dumps(event.to_json(), allow_nan=False))
    assert event_from_json(content) == event
    validator = jsonschema.Draft202012Validator(event_schema(type(event)))
    validator.validate(content)
    for name in content:
        with pytest.raises(jsonschema.ValidationError):
            validator.validate({key: value for key, value in content.items() if key != name})
        with pytest.raises(jsonschema.ValidationError):
            validator.validate({**content, name: -1})


@pytest.mark.parametrize("event", ALL, ids=str)
def test_every_parameter_is_checked_and_described(event: Event) -> None:
    described = re.findall(r"`(\w+)`", str(event_schema(type(event))["description"]))
    for field in dataclasses.fields(event):
        assert field.name in described
        if field.type is not bool:
            for wrong in (0, -1, math.nan):
                with raises(ConfigError, setting=field.name):
                    dataclasses.replace(event, **{field.name: wrong})
    with raises(ConfigError, setting="sampling_rate"):
        SubsampledGaussian(1.01, 1.0, 1)


@pytest.mark.parametrize("event", ALL, ids=str)
def test_an_accountant_has_a_figure_or_says_that_it_has_none(event: Event) -> None:
    assert (event.pld(1e-3) is not None) == event.has_pld
    assert len(event.rdp()) == len(events.ORDERS)
    assert event.has_pld == math.isfinite(accounting.pld_epsilon([event], 1e-6, 1e-3))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            DiscreteGaussian(2.5, 3, 2),
            "discrete Gaussian noise, standard deviation 2.5 on every count of 3 histograms, scaled to 2 rows per unit",
        ),
        (DiscreteGaussian(3.0), "discrete Gaussian noise, standard deviation 3 on every count"),
        (UnitHistogram(3.0), "discrete Gaussian noise, standard deviation 3 on every count of units"),
        (LaplaceCounts(0.5, 20), "discrete Laplace noise, scale 40 on every count"),
        (LaplaceMarginals(0.5, 3, 2), "discrete Laplace noise, scale 4 on every count of 3 marginals"),
        (Gaussian(2.0), "Gaussian noise, noise multiplier 2"),
        (SubsampledGaussian(0.5, 2.0, 3000), "DP-SGD: 3,000 steps, sampling rate 0.5, noise multiplier 2"),
        (Selections(0.1), "1 selection by the exponential mechanism, epsilon 0.1 each"),
        (Pure(0.1, 2), "2 answers, pure epsilon 0.1 each"),
        (DiscreteLaplace(0.1), "discrete Laplace noise, scale 10 on one count"),
        (DiscreteLaplace(1e-3, 1200), "discrete Laplace noise, scale 1000 on each of 1,200 counts"),
        (ZCDP(0.5), "zCDP budget of rho 0.5, spent adaptively under a privacy filter"),
    ],
    ids=str,
)
def test_descriptions(event: Event, words: str) -> None:
    assert event.describe() == words


def test_laplace_counts_cover_units_of_as_many_rows_as_their_sensitivity() -> None:
    ledger = Ledger(Guarantee(5.0, 1e-6), noise=SecureNoise(), max_rows_per_unit=3)
    ledger.charge(Query("c", "counts", LaplaceCounts(0.5, 3)))
    with raises(BudgetExceeded, query="counts", needed=None):
        ledger.charge(Query("c", "counts", LaplaceCounts(0.5, 2)))


def test_a_histogram_of_units_costs_as_one_of_rows_with_one_row_per_unit() -> None:
    """And covers units of any number of rows."""
    units, rows = UnitHistogram(7.0), DiscreteGaussian(7.0)
    np.testing.assert_array_equal(units.rdp(), rows.rdp())
    assert accounting.pld_epsilon([units], 1e-6, 1e-4) == accounting.pld_epsilon([rows], 1e-6, 1e-4)
    ledger = Ledger(Guarantee(5.0, 1e-6), noise=SecureNoise(), max_rows_per_unit=9)
    ledger.charge(Query("u", "units", units))
    with raises(BudgetExceeded, query="rows", needed=None):
        ledger.charge(Query("r", "rows", rows))


def test_laplace_counts_cost_their_epsilon_whatever_moves() -> None:
    assert accounting.pld_epsilon([LaplaceCounts(0.5, 20)], 1e-9, 1e-4) == pytest.approx(0.5, abs=1e-3)
    np.testing.assert_array_equal(LaplaceCounts(0.5, 20).rdp(), Pure(0.5).rdp())


def test_laplace_marginals_cost_what_as_many_counts_cost_and_say_their_noise() -> None:
    marginals, counts = LaplaceMarginals(0.3, 4, 2), DiscreteLaplace(0.3, 4)
    np.testing.assert_array_equal(marginals.rdp(), counts.rdp())
    assert accounting.pld_epsilon([marginals], 1e-9, 1e-4) == accounting.pld_epsilon([counts], 1e-9, 1e-4)
    values = np.arange(-400, 401)
    masses = np.exp(-np.abs(values) * 0.3 / 2)
    assert marginals.stddev == pytest.approx(np.sqrt((masses * values**2).sum() / masses.sum()))
    assert LaplaceMarginals(1e-15, 1, 1000).stddev == pytest.approx(math.sqrt(2) * 1e18)  # where 1 - exp(-x) is 0


def test_what_costs_at_delta_0() -> None:
    """Rounds add up; noise of finite range, and Gaussian noise, have no cost there."""
    found = {type(event).__name__: event.pure_epsilon for event in ALL if event.pure_epsilon is not None}
    wanted = {"Selections": 0.5, "DiscreteLaplace": 0.2, "LaplaceCounts": 0.1, "LaplaceMarginals": 0.5}
    assert found == pytest.approx(wanted)


# --- A new kind of event: its class, a line in EVENTS, and a test such as this one ---


@dataclasses.dataclass(frozen=True)
class Laplace(Event):
    """`count` sums of L1 sensitivity one with Laplace noise of this `scale`."""

    scale: Positive
    count: Count = 1

    @property
    def has_pld(self) -> bool:
        return True

    def pld(self, grid: float) -> pld.PrivacyLossDistribution:
        return pld.from_laplace_mechanism(self.scale, value_discretization_interval=grid).self_compose(self.count)

    def rdp(self) -> np.ndarray:
        return self.count / (2 * self.scale**2) * np.asarray(events.ORDERS)

    def describe(self) -> str:
        return f"Laplace noise of scale {self.scale:.4g}, {self.count} times"


@pytest.mark.made_up_figures  # the second accountant does not know this kind
def test_a_new_kind_needs_nothing_outside_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrated, charged, refused, stated and read back, and valid by the derived schema."""
    monkeypatch.setitem(events.EVENTS, "Laplace", Laplace)
    ledger = Ledger(Guarantee(1.0, 1e-6), noise=SecureNoise())
    scale = ledger.remaining.calibrate(lambda noise: [Laplace(noise, 3)])
    query = Query("sums", "three sums", Laplace(scale, 3), ("a",), path=("m",))
    ledger.charge(query)
    with pytest.raises(BudgetExceeded):
        ledger.charge(query)
    statement = ledger.statement(method="m")
    assert 0.995 <= statement.epsilon <= 1.0
    content = json.loads(json.dumps(certificate.to_json(statement), allow_nan=False))
    assert content["queries"][0]["event"] == {"kind": "Laplace", "scale": scale, "count": 3}
    assert certificate.from_json(content) == statement
    jsonschema.Draft202012Validator(json_schema()).validate(content)
    assert query.event.describe() in certificate.to_markdown(statement)
    with raises(ConfigError, setting="scale"):
        Laplace(0.0)


@pytest.mark.parametrize(
    ("sampling_rate", "noise_multiplier", "grid"),
    [
        (1 / 32, 0.7, 1e-4),
        (1 / 4, 3.2, 1e-5),
        (1 / 2, 2.0, 3e-5),
        (0.99, 1.0, 1e-4),
        (0.01, 0.4, 1e-4),
        (0.003, 12.0, 1e-5),
        (-math.expm1(-2e-3), 1.3, 1e-4),  # the least loss is a point of the grid
        (1.0, 4.0, 1e-4),
        (1.0, 0.3, 1e-5),
    ],
)
def test_subsampled_losses_are_those_of_the_library(sampling_rate: float, noise_multiplier: float, grid: float) -> None:
    """To the last bit, of each point of both distributions."""
    ours = SubsampledGaussian(sampling_rate, noise_multiplier, 1).pld(grid)
    theirs = pld.from_gaussian_mechanism(
        noise_multiplier, sampling_prob=sampling_rate, value_discretization_interval=grid
    ).self_compose(1)
    for own, other in ((ours._pmf_remove, theirs._pmf_remove), (ours._pmf_add, theirs._pmf_add)):
        own, other = own.to_dense_pmf(), other.to_dense_pmf()
        assert (own._lower_loss, own._infinity_mass) == (other._lower_loss, other._infinity_mass)
        np.testing.assert_array_equal(own._probs, other._probs)
