"""DPGAN and DP-CTGAN, small but whole: what they buy, what they learn, what they refuse."""

import numpy as np
import pytest

import understudy as us
from understudy.demo import demo_schema, demo_table
from understudy.errors import ConfigError
from understudy.privacy.accounting import DiscreteGaussian, SubsampledGaussian
from understudy.privacy.sampling import drawn_rate
from understudy.schema import Domain
from understudy.synthesizers import read_method

SMALL = "steps=60, latent=8, generator_widths=[32, 32], critic_widths=[16]"


@pytest.mark.parametrize("method", ["dpgan", "dpctgan"])
def test_a_small_run_from_table_to_rows(method: str) -> None:
    table = demo_table().select(["insurance", "region", "age"]).slice(0, 3000)
    columns = tuple(demo_schema()[name] for name in table.column_names)
    schema = us.Schema(columns=columns, rows=3000, target="insurance")
    release = us.fit(table, f"{method}({SMALL})", us.Guarantee(3.0, 1e-6), schema=schema)
    assert 0.995 * 3 <= release.statement.epsilon <= 3
    fake = release.sample(2000, seed=0)
    shares = [np.mean(np.asarray(t["insurance"].to_pylist()) == "yes") for t in (table, fake)]
    assert abs(shares[0] - shares[1]) < 0.1  # held in place by the noisy histograms
    south = release.sample(300, where="region = 'south'", seed=0)
    assert set(south["region"].to_pylist()) == {"south"}


def test_prices_do_not_depend_on_the_rows() -> None:
    """The rate charged is the rate drawn, and a plan for other sizes is the same plan."""
    method = read_method("dpgan(rate=0.03, steps=50)")
    budget = us.Ledger(us.Guarantee(1.0, 1e-6), noise=_seeded()).remaining
    plans = [
        method.plan(Domain(names=("a", "b"), sizes=sizes, num_rows=rows), budget)
        for sizes, rows in (((2, 3), 100), ((9, 9), 10**6))
    ]
    assert plans[0] == plans[1]
    singles, critic = plans[0]["singles"].event, plans[0]["critic"].event
    assert isinstance(singles, DiscreteGaussian)
    assert isinstance(critic, SubsampledGaussian)
    assert critic.rate == drawn_rate(0.03)
    assert critic.steps == 50


def _seeded():  # type: ignore[no-untyped-def]
    from understudy.privacy.noise import SeededNoise

    return SeededNoise(0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("steps=0", "steps must be a whole number"),
        ("rate=0.0", "sampling rate"),
        ("rate=1.5", "sampling rate"),
        ("clip=0.0", "clip must be a positive"),
        ("loss=wgna", "loss must be one of"),
        ("arch=mlp", "arch must be one of"),
        ("adaptive=private", "adaptive must be one of"),
        ("marginals_share=1.0", "marginals_share"),
        ("steps=100, critic_steps=3", "multiple of critic_steps"),
        ("loss=kl_wgan, fake_term=paired", "does not go with kl_wgan"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_read(settings: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_method(f"dpgan({settings})")


def test_a_conditional_generator_needs_marginals() -> None:
    with pytest.raises(ConfigError, match="marginals_share must be positive"):
        read_method("dpctgan(marginals_share=0.0)")
