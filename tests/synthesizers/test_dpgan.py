"""DPGAN and DP-CTGAN, small but whole: what they query, what they learn, what they refuse."""

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import raises
from understudy.demo import demo_schema, demo_table
from understudy.encoding import assumed_domain, fit_codec
from understudy.errors import ConfigError, UnderstudyError
from understudy.privacy.accounting.events import DiscreteGaussian, SubsampledGaussian
from understudy.privacy.accounting.ledger import Budget
from understudy.privacy.gradients.poisson import round_sampling_rate
from understudy.privacy.mechanisms.discovery import Binning, plan_discovery
from understudy.privacy.rows.table import PrivateTable
from understudy.schema import Domain
from understudy.synthesizers import read_method
from understudy.training.prepare import MAX_LEVELS, plan_marginals, shrink_pair

QUICK = us.Guarantee(0.3, 1e-6)  # much noise: the accountant is quick
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


def test_costs_do_not_depend_on_the_rows() -> None:
    """The rate charged is the rate drawn, and a plan for other sizes is the same plan."""
    method = read_method("dpgan(sampling_rate=0.03, steps=50)")
    budget = us.Ledger(QUICK, noise=_seeded()).remaining
    plans = [
        method.plan(Domain(names=("a", "b"), sizes=sizes, num_rows=rows), budget)
        for sizes, rows in (((2, 3), 100), ((9, 9), 10**6))
    ]
    assert plans[0] == plans[1]
    singles, critic = plans[0]["one_way"].event, plans[0]["critic"].event
    assert isinstance(singles, DiscreteGaussian)
    assert isinstance(critic, SubsampledGaussian)
    assert critic.sampling_rate == round_sampling_rate(0.03)
    assert critic.steps == 50


@pytest.mark.parametrize("method", ["dpgan(steps=50, target_fraction=0.1)", "pategan"])
def test_bins_of_a_target_that_is_a_number_move_no_cost(method: str) -> None:
    """They follow from measured histograms, so a query that depended on how many there are would depend on the rows."""
    plans = [
        read_method(method).plan(
            Domain(names=("a", "b"), sizes=(size, 3), num_rows=1000, target="a", numeric=("a",)), Budget(0.3, 1e-6)
        )
        for size in (2, 9, 33)
    ]
    assert plans[0].queries == plans[1].queries == plans[2].queries


def test_few_values_of_a_number_are_charged_as_planned() -> None:
    """The plan knows 32 bins at most; the run finds a few, and measures the same histograms."""
    table = pa.table({"a": [0, 1] * 500, "b": ["x", "x", "y", "y"] * 250})
    listed = us.Column(name="b", kind="categorical", categories=("x", "y"), nullable=False, closed=True)
    number = us.Column(name="a", kind="integer", bounds=(0, 50), nullable=False)
    schema, binning = us.Schema(columns=(number, listed), rows=1000, target="a"), Binning()
    ledger = us.Ledger(us.Guarantee(1.0, 1e-6), noise=_seeded())
    discovery = plan_discovery(schema, ledger.remaining, binning)
    planned = plan_marginals(assumed_domain(schema, binning), ledger.remaining.after(discovery.queries), 0.1, 0.1)
    codec, _ = fit_codec(PrivateTable(table), schema, discovery, ledger, binning)
    assert codec.domain.sizes[0] <= MAX_LEVELS
    assert plan_marginals(codec.domain, ledger.remaining, 0.1, 0.1) == planned


def _seeded():
    from understudy.privacy.noise.source import SeededNoise

    return SeededNoise(0)


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ("steps=0", "steps"),
        ("sampling_rate=0.0", "sampling_rate"),
        ("sampling_rate=1.5", "sampling_rate"),
        ("clip_norm=0.0", "clip_norm"),
        ("clip_norm=1e39", "clip_norm"),
        ("clip_norm=1e-30", "clip_norm"),
        ("loss=wgna", "loss"),
        ("arch=mlp", "arch"),
        ("adaptive_clip=private", "adaptive_clip"),
        ("marginals_fraction=1.0", "marginals_fraction"),
        ("steps=100, critic_steps=3", "critic_steps"),
        ("loss=kl_wgan, fake_term=paired", "fake_term"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_read(settings: str, setting: str) -> None:
    with raises(ConfigError, setting=setting):
        read_method(f"dpgan({settings})")


def test_pairs_are_kept_where_they_exceed_the_noise() -> None:
    """Exact counts are kept, noise alone is taken for independence, and both columns keep their shares."""
    table = np.array([[0.4, 0.1, 0.1], [0.05, 0.05, 0.3]])
    first, second = table.sum(axis=1), table.sum(axis=0)
    np.testing.assert_allclose(shrink_pair(table, first, second, noise=1e-6), table, rtol=1e-3)
    shaken = np.outer(first, second) + np.random.default_rng(0).normal(0, 0.01, table.shape)
    np.testing.assert_allclose(shrink_pair(shaken, first, second, noise=0.02), np.outer(first, second), atol=1e-6)
    kept = shrink_pair(table + 0.03, first, second, noise=0.05)
    np.testing.assert_allclose(kept.sum(axis=0), second, atol=1e-3)
    np.testing.assert_allclose(kept.sum(axis=1), first, atol=1e-3)


def test_a_conditional_generator_needs_marginals() -> None:
    with raises(ConfigError, setting="marginals_fraction"):
        read_method("dpctgan(marginals_fraction=0.0)")


# ---------------------------------------------------------------------------------------------------------- public rows


def survey() -> tuple[us.Schema, pa.Table]:
    table = demo_table().select(["insurance", "region", "age"]).slice(0, 2000)
    return us.Schema(columns=tuple(demo_schema()[name] for name in table.column_names), rows=2000), table


@pytest.mark.slow
def test_a_run_can_start_from_a_public_table_and_says_so() -> None:
    """Without noise and with a single tiny private step, the networks are those of the public rows."""
    schema, table = survey()
    public = pa.table({"insurance": ["no"] * 300, "region": ["west"] * 300, "age": [30] * 300})
    small = SMALL.replace("steps=60", "steps=1")
    method = f"dpgan({small}, warm_steps=300, marginals_fraction=0.0, critic_learning_rate=1e-2)"
    release = us.fit(table, method, us.Guarantee.not_private(), schema=schema, public=lambda: public)
    fake = release.sample(500, seed=0)
    assert np.mean(np.asarray(fake["region"].to_pylist()) == "west") > 0.6
    assert release.statement.facts.public_table == 300
    cold = us.fit(table, method, us.Guarantee.not_private(), schema=schema)
    assert cold.statement.queries == release.statement.queries  # public rows cost nothing, and save nothing


@pytest.mark.parametrize(
    ("public", "error", "fields"),
    [
        (pa.table({"insurance": ["no"], "age": [30]}), us.SchemaError, {"column": "region"}),
        (
            pa.table(
                {
                    "insurance": pa.array([], pa.string()),
                    "region": pa.array([], pa.string()),
                    "age": pa.array([], pa.int64()),
                }
            ),
            ConfigError,
            {"setting": "public"},
        ),
        ("nowhere.parquet", us.TableError, {}),
    ],
)
def test_a_public_table_of_another_schema_is_refused_before_any_query(
    public: object, error: type[UnderstudyError], fields: dict
) -> None:
    schema, table = survey()
    with raises(error, **fields):
        us.fit(table, f"dpgan({SMALL})", QUICK, schema=schema, public=public)


def test_the_private_table_is_no_public_one() -> None:
    schema, table = survey()
    with raises(ConfigError, setting="public"):
        us.fit(table, f"dpgan({SMALL})", QUICK, schema=schema, public=table)


def test_a_method_that_cannot_use_public_rows_says_so() -> None:
    schema, table = survey()
    with raises(ConfigError, setting="public"):
        us.fit(table, "mst", QUICK, schema=schema, public=table)


# ------------------------------------------------------------------------------------------------------ unlikely tables


@pytest.mark.parametrize("method", ["dpgan", pytest.param("dpctgan", marks=pytest.mark.slow)])
def test_constant_columns_and_three_rows_are_no_trouble(method: str) -> None:
    table = pa.table({"a": ["x"] * 3, "b": [1.5] * 3})
    columns = (
        us.Column(name="a", kind="categorical", categories=("x",), closed=True),
        us.Column(name="b", kind="real", bounds=(1.0, 2.0)),
    )
    release = us.fit(table, f"{method}({SMALL}, sampling_rate=1.0)", QUICK, schema=us.Schema(columns=columns, rows=3))
    fake = release.sample(5, seed=0)
    assert {value for value in fake["a"].to_pylist() if value is not None} <= {"x"}


@pytest.mark.parametrize("method", ["dpgan", pytest.param("dpctgan", marks=pytest.mark.slow)])
def test_a_table_without_a_single_protected_unit_is_no_trouble(method: str) -> None:
    """Rows without an owner are left out; whether one remains must not show in whether the run succeeds."""
    columns = (
        us.Column(name="who", kind="id"),
        us.Column(name="a", kind="categorical", categories=("x", "y"), closed=True),
    )
    schema = us.Schema(columns=columns, rows=3, unit="who", max_rows_per_unit=2)
    table = pa.table({"who": pa.array([None] * 3, pa.string()), "a": ["x"] * 3})
    settings = SMALL
    release = us.fit(table, f"{method}({settings}, adaptive_clip=quantile)", QUICK, schema=schema)
    assert release.sample(5, seed=0).num_rows == 5


def test_a_target_that_is_absent_is_refused() -> None:
    schema, table = survey()
    with raises(us.SchemaError, column="income"):
        us.fit(table, f"dpgan({SMALL})", QUICK, schema=schema, target="income")


def test_groups_beside_generated_rows_that_are_not_clipped_are_warned_of() -> None:
    schema, _ = survey()
    for settings, warned in (
        ("clip_groups=4", True),
        ("clip_groups=4, fake_term=clipped", False),
        ("clip_groups=4, fake_term=paired", False),
        ("adaptive_clip=quantile", False),
    ):
        notes = us.plan(schema, f"dpgan({settings})", epsilon=1.0, delta=1e-6).notes
        assert any("Set fake_term=clipped" in note.text for note in notes) is warned


def test_equal_noise_for_groups_that_may_be_too_different_is_warned_of() -> None:
    schema, _ = survey()
    for settings, warned in (
        ("clip_groups=4, clip_allocation=equal, adaptive_clip=public", True),
        ("clip_groups=4, clip_allocation=equal, clip_norm=1000", True),
        ("clip_groups=4, clip_allocation=equal, clip_norm=1", False),
        ("clip_groups=4, adaptive_clip=public", False),
        ("clip_allocation=equal, adaptive_clip=public", False),
    ):
        notes = us.plan(schema, f"dpgan({settings}, steps=20, sampling_rate=0.9)", epsilon=1.0, delta=1e-6).notes
        assert any("Set clip_allocation=optimal" in note.text for note in notes) is warned, settings


@pytest.mark.slow
@pytest.mark.parametrize("adaptive", ["public", "quantile", "noisy_norm"])
def test_clip_bounds_may_follow_what_is_not_private(adaptive: str) -> None:
    """Each way runs and is charged as the fixed bound is."""
    schema, table = survey()
    settings = SMALL
    queries = [
        us.fit(table, f"dpgan({settings}{extra})", QUICK, schema=schema).statement.queries
        for extra in ("", f", adaptive_clip={adaptive}, clip_groups=2")
    ]
    assert queries[0] == queries[1]
