"""A noise multiplier as a setting: the number of steps follows from the budget, in the plan, and is what is charged."""

import re
from typing import Any

import jax
import numpy as np
import pytest

import understudy as us
from tests.builders import raises
from understudy.certificate import to_markdown
from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting import accountants as accounting
from understudy.privacy.accounting.events import SubsampledGaussian
from understudy.privacy.accounting.ledger import Budget, Ledger, PublicFacts
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers import read_method
from understudy.synthesizers.run import Run

DOMAIN = Domain(names=("a", "b", "c"), sizes=(3, 4, 2), num_rows=200)
SMALL = "latent=4, generator_widths=[8, 8], critic_widths=[8]"
TINY_AUTOENCODER = "autoencoder_steps=5"


@pytest.fixture(autouse=True)
def _noise_of_the_autoencoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(us.AutoGAN, "autoencoder_noise_multiplier", 60.0)


def private_rows() -> PrivateRows:
    codes = np.random.default_rng(0).integers(0, DOMAIN.sizes, size=(200, 3), dtype=np.int32)
    return PrivateRows(codes, DOMAIN)


def training_events(plan: us.Plan) -> list[SubsampledGaussian]:
    return [query.event for query in plan if isinstance(query.event, SubsampledGaussian)]


@pytest.mark.parametrize(
    ("expression", "multiple"),
    [
        ("dpgan(noise_multiplier=20.0, marginals_fraction=0.0)", 1),
        ("dpgan(noise_multiplier=20.0, critic_steps=5)", 5),
        ("dpctgan(noise_multiplier=20.0)", 1),
        (f"autogan(noise_multiplier=20.0, {TINY_AUTOENCODER})", 1),
        ("bayesgan(noise_multiplier=20.0, discriminator_chains=2, updates=2)", 4),
        ("bayesgan(noise_multiplier=20.0, schedule=exponential, step_size=1e-4, posterior_temperature=1.0)", 1),
    ],
)
def test_the_plan_has_the_most_steps_that_fit(expression: str, multiple: int) -> None:
    """They fit with all that the plan has before, and the next number of steps does not."""
    budget = Budget(0.3, 1e-6)
    plan = read_method(expression).plan(DOMAIN, budget)
    *before, last = plan.events
    assert isinstance(last, SubsampledGaussian)
    assert last.steps % multiple == 0
    assert last.noise_multiplier >= 20.0
    assert accounting.fits([*before, last], 0.3, 1e-6)
    longer = SubsampledGaussian(last.sampling_rate, last.noise_multiplier, last.steps + multiple)
    assert not accounting.fits([*before, longer], 0.3, 1e-6)


@pytest.mark.parametrize(
    "expression",
    [
        f"dpgan({SMALL}, noise_multiplier=70.0, critic_steps=2)",
        f"autogan({SMALL}, noise_multiplier=70.0, {TINY_AUTOENCODER})",
        f"bayesgan({SMALL}, noise_multiplier=70.0, clip_norm=0.01, generator_chains=2, discriminator_chains=2)",
    ],
)
def test_what_is_planned_is_charged_and_trained(expression: str) -> None:
    method: Any = read_method(expression)
    ledger = Ledger(us.Guarantee(0.05, 1e-6), noise=SeededNoise(0))
    plan = method.plan(DOMAIN, ledger.remaining)
    method.fit(Run(private_rows(), plan, ledger, key=jax.random.key(0)))
    assert ledger.queries == plan.queries
    assert ledger.spent().epsilon <= 0.05
    assert training_events(plan)[-1].steps > 1


def test_the_number_of_steps_does_not_depend_on_sizes_or_rows() -> None:
    method, budget = read_method("dpgan(noise_multiplier=20.0)"), Budget(0.3, 1e-6)
    plans = [
        method.plan(Domain(names=("a", "b"), sizes=sizes, num_rows=rows), budget)
        for sizes, rows in (((2, 3), 100), ((9, 9), 10**6))
    ]
    assert plans[0] == plans[1]


def test_plan_and_certificate_show_noise_steps_and_the_weaker_bound() -> None:
    """The moments accountant's figure stands beside ours, larger, and says that it is for comparison only."""
    columns = {name: {"kind": "boolean"} for name in ("a", "b")}
    schema = {"table": {"rows": 500}, "columns": columns}
    plan = us.plan(schema, "dpgan(noise_multiplier=4.0, sampling_rate=0.01, marginals_fraction=0.0)", epsilon=0.5)
    [query] = plan.queries
    event = query.event
    assert isinstance(event, SubsampledGaussian)
    assert f"{event.steps} critic steps" in query.what
    assert "noise multiplier 4" in query.what
    assert "for comparison only" in query.what
    stated = float(re.findall(r"states epsilon ([0-9.]+)", query.what)[0])
    assert stated == pytest.approx(accounting.moments_epsilon([event], 1e-5), abs=1e-4)
    assert stated > 0.5
    assert f"states epsilon {stated:.4f}" in str(plan)
    ledger = Ledger(us.Guarantee(0.5, 1e-5), noise=SeededNoise(0))
    ledger.charge(query)
    shown = to_markdown(ledger.statement(PublicFacts()))
    assert query.what in shown
    assert "DP-SGD: 3,086 steps" in shown
    assert ledger.spent().epsilon <= 0.5  # what is charged is ours


@pytest.mark.parametrize(
    "expression",
    [
        "dpgan(steps=100, noise_multiplier=1.0)",
        "dpgan(steps=1000, noise_multiplier=1.0)",
        "dpctgan(steps=100, noise_multiplier=1.0)",
        "autogan(steps=100, noise_multiplier=1.0)",
        "bayesgan(steps=100, noise_multiplier=1.0)",
        "dpgan(noise_multiplier=0.0)",
        "boosted(dpgan(noise_multiplier=1.0))",
        "selected(bayesgan(noise_multiplier=1.0))",
    ],
)
def test_contradictions_are_refused_before_anything_is_read(expression: str) -> None:
    with raises(ConfigError, setting="noise_multiplier"):
        read_method(expression)


@pytest.mark.parametrize(
    ("expression", "budget", "error", "fields"),
    [
        (
            "dpgan(noise_multiplier=3.0, sampling_rate=0.5)",
            Budget(0.01, 1e-6),
            BudgetExceeded,
            {"needed": None, "left": None},
        ),
        ("dpgan(noise_multiplier=1e5)", Budget(1.0, 1e-6), ConfigError, {"setting": "noise_multiplier"}),
        (
            "dpgan(noise_multiplier=5.0)",
            us.Guarantee.not_private().budget(),
            ConfigError,
            {"setting": "noise_multiplier"},
        ),
        (f"autogan({TINY_AUTOENCODER})", Budget(1e-4, 1e-6), BudgetExceeded, {"left": 0.0}),
    ],
)
def test_a_noise_that_does_not_go_with_the_budget_is_refused_in_the_plan(
    expression: str, budget: Budget, error: type[Exception], fields: dict
) -> None:
    with raises(error, **fields):
        read_method(expression).plan(DOMAIN, budget)


def test_without_a_noise_multiplier_nothing_changes() -> None:
    """A number of steps that is left out is 1000, with the noise of that number."""
    default, explicit = (read_method(text).plan(DOMAIN, Budget(1.0, 1e-6)) for text in ("dpgan", "dpgan(steps=1000)"))
    assert default == explicit
    assert training_events(default)[0].steps == 1000
