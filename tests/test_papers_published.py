"""The papers' networks and settings: sizes, what they cost, and that no private row meets the statistics of a batch."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import understudy as us
from benchmarks.papers import published
from benchmarks.papers.networks import NORM_EPSILON, CTGANGenerator, DropoutGenerator, dropout_latent, standardize
from understudy.benchmark.population import fit_population
from understudy.benchmark.tables import declared_schema
from understudy.encoding import assumed_domain
from understudy.encoding.features import layout_of, num_features
from understudy.privacy.accounting.events import SubsampledGaussian
from understudy.privacy.accounting.ledger import Budget
from understudy.privacy.gradients.dpsgd import ChargedSteps
from understudy.privacy.rows.rows import PrivateUnits
from understudy.schema import Domain, NumericDomain, Schema
from understudy.training.critics import one_hot_blocks
from understudy.training.gan import Hyperparameters, advance, batches_of, init_state
from understudy.training.generation import Context
from understudy.training.settings import Settings

# ------------------------------------------------------------------------------------------------------------- networks


def test_a_batch_is_standardized_and_a_row_alone_is_left() -> None:
    values = jax.random.normal(jax.random.key(0), (50, 3)) * 4 + 7
    found = np.asarray(jax.vmap(standardize)(values))
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(found.var(axis=0), values.var(axis=0) / (values.var(axis=0) + NORM_EPSILON), rtol=1e-4)
    np.testing.assert_array_equal(standardize(values[0]), values[0])
    constant = jax.vmap(lambda _: standardize(values[0]))(jnp.arange(4))
    np.testing.assert_array_equal(constant[2], values[0])


def test_members_of_a_population_have_batches_of_their_own() -> None:
    """An outer map, over members or chains, leaves the statistics of each as they are; so does a gradient."""
    make = lambda key: CTGANGenerator(4, 0, (6, 6), 5, key=key)  # noqa: E731
    keys = jax.random.split(jax.random.key(1), 3)
    nets, inputs = eqx.filter_vmap(make)(keys), jax.random.normal(jax.random.key(2), (3, 20, 4))

    @eqx.filter_grad
    def slope(net: Any, rows: Any) -> Any:
        return jnp.sum(jnp.sin(jax.vmap(net)(rows)))

    together = eqx.filter_jit(eqx.filter_vmap(slope))(nets, inputs)
    for number in range(3):
        alone = eqx.filter_jit(slope)(make(keys[number]), inputs[number])
        for one, other in zip(*map(jax.tree_util.tree_leaves, (together, alone)), strict=True):
            np.testing.assert_allclose(one[number], other, atol=1e-4)


def test_dropout_keeps_half_by_coins_of_the_row() -> None:
    """The same row twice is the same; the mean over coins is that of the network without dropout, if it is linear."""
    widths = (400,)
    latent = dropout_latent(3, widths)
    net = DropoutGenerator(latent, 2, widths, 1, key=jax.random.key(0))
    row = jax.random.normal(jax.random.key(1), (latent + 2,))
    np.testing.assert_array_equal(net(row), net(row))
    ones = eqx.tree_at(
        lambda it: (it.layers[0].weight, it.layers[0].bias, it.layers[1].weight, it.layers[1].bias),
        net,
        (jnp.zeros((400, 5)), jnp.ones(400), jnp.full((1, 400), 1 / 400), jnp.zeros(1)),
    )
    kept = float(np.mean(np.asarray(row[3:403]) > 0))
    assert float(ones(row)[0]) == pytest.approx(2 * kept, abs=1e-5)
    assert net(row.at[403:].add(1.0))[0] != net(row)[0]  # the condition is seen


@pytest.mark.parametrize("fake_term", ["separate", "paired", "clipped"])
def test_batch_statistics_see_no_private_row(fake_term: str) -> None:
    """With generated batches that are normalised, one unit more still moves a critic's step by the clip norm at most:
    generated rows are as many as there are slots, whatever units fill them."""
    settings = Settings(
        blocks=one_hot_blocks((3, 2)),
        batch_size=4,
        arch="ctgan",
        latent=4,
        generator_widths=(6,),
        critic_widths=(5,),
        critic_dropout=0.5,
        generator_batch=8,
        optimizer="sgd",
        loss="wgan",
        fake_term=fake_term,
    )
    one = Hyperparameters.of(1.0, 1e-3, 0.1)
    codes = jnp.asarray([[0, 1], [1, 0], [2, 1], [2, 0]], jnp.int32)[:, None]
    state, key = init_state(settings, one, jax.random.key(0)), jax.random.key(1)
    after = []
    for count in (4, 3):
        present = (jnp.arange(4) < count)[:, None]
        steps = ChargedSteps(PrivateUnits(codes, present), jnp.float32(0.0), 1.0, 1)
        batches = batches_of(settings, key, steps, 0, 1)
        after.append(eqx.filter_jit(advance)(settings, state, steps, one, key, batches, Context()))
    arrays = [jax.tree_util.tree_leaves(eqx.filter(each.critic, eqx.is_inexact_array)) for each in after]
    moved = np.sqrt(sum(float(jnp.sum((a - b) ** 2)) for a, b in zip(*arrays, strict=True))) * settings.batch_size
    assert 1e-3 < moved <= 0.1


# ------------------------------------------------------------------------------------------------------------- settings


def inputs_of(method: Any, schema: Schema) -> int:
    """The number of features of a row, by public facts alone."""
    domain = assumed_domain(schema, us.Binning())
    scales = []
    for column in schema.columns:
        scale = None
        if column.name in domain.numeric:
            whole = None if column.kind != "integer" else int(column.bounds[1]) - int(column.bounds[0]) + 1  # type: ignore[index,arg-type]  # integer columns have bounds
            bins: dict[str, Any] = {"fine_edges": (0.0, 1.0), "fine_masses": (1.0,), "first_fine_bin": (0, 1)}
            scale = NumericDomain(**bins, whole=whole, nullable=column.nullable)
        scales.append(scale)
    return num_features(layout_of(method.features, domain, scales, None, binary=method.binary).blocks)


def adult() -> Schema:
    """The paper's 13 columns, education-num as categories."""
    declared, listed = declared_schema("adult"), tuple(map(str, range(1, 17)))
    number = us.Column(name="education-num", kind="categorical", categories=listed, nullable=False, closed=True)
    columns = [number if c.name == "education-num" else c for c in declared.columns]
    kept = tuple(c for c in columns if c.name not in ("fnlwgt", "education"))
    return dataclasses.replace(declared, columns=kept)


def test_adult_has_the_papers_106_inputs() -> None:
    assert inputs_of(published.AUTOGAN_ADULT, adult()) == 106
    assert inputs_of(dataclasses.replace(published.AUTOGAN_ADULT, binary="one_hot"), adult()) == 108


def test_a_teacher_for_every_thousand_declared_rows() -> None:
    assert published.quail_pategan(30, 32_561).teachers == 32
    assert published.quail_patectgan(32_561).teachers == 33
    assert published.teachers_of(500) == 2


@pytest.mark.parametrize(
    ("method", "epsilon", "delta", "steps", "stated"),
    [
        (published.PGB_GAUSSIANS_PRIVATE, 0.5687, 2e-5, 12_250, 0.80),
        (published.PGB_CENSUS1940, 0.5745, 1.261e-5, 7945, 0.80),
        (published.PGB_TITANIC, 1.0869, 5.61e-4, 2960, 1.60),
        (published.SMART_CLIPPING, 0.947, 1e-5, 10_000, 1.26),
    ],
    ids=["gaussians", "census1940", "titanic", "smart clipping"],
)
def test_budgets_of_the_papers_give_the_papers_lengths(
    method: us.DPGAN, epsilon: float, delta: float, steps: int, stated: float
) -> None:
    """Our epsilon of a published schedule gives its number of steps back, and beside it the paper's epsilon."""
    plan = method.plan(Domain(names=("a", "b"), sizes=(2, 3), num_rows=891), Budget(epsilon, delta))
    event = plan["critic"].event
    assert isinstance(event, SubsampledGaussian)
    assert event.steps == pytest.approx(steps, rel=0.01)
    shown = float(plan["critic"].what.split("states epsilon ")[1].split()[0])
    assert shown == pytest.approx(stated, abs=0.015)


TINY: dict[str, Any] = {"generator_widths": (8, 8), "critic_widths": (8,)}
EACH: dict[str, tuple[Any, dict[str, Any]]] = {
    "dpgan": (published.quail_dpgan_published(6, 300), {"noise_multiplier": 60.0, "sampling_rate": 0.2}),
    "dpctgan": (published.quail_dpctgan(300), {**TINY, "latent": 4, "noise_multiplier": 60.0, "sampling_rate": 0.2}),
    "pategan": (published.quail_pategan(6, 3000, 2), {}),
    "patectgan": (
        published.quail_patectgan(3000, 2),
        {**TINY, "latent": 4, "teacher_widths": (8,), "teacher_batch": 8, "student_batch": 8, "queries": 8},
    ),
    "mwem": (published.quail_mwem(rounds=3), {}),
    "smart": (published.SMART_CLIPPING, {**TINY, "latent": 4, "noise_multiplier": 60.0, "sampling_rate": 0.2}),
    "census": (
        published.PGB_CENSUS1940,
        {**TINY, "latent": 20, "noise_multiplier": 60.0, "sampling_rate": 0.2},
    ),
    "bayesgan": (
        published.BAYESGAN,
        {"generator_widths": (8,), "critic_widths": (8,), "latent": 4, "steps": 6, "samples_per_chain": 1},
    ),
    "autogan": (
        published.autogan_adult_published(60.0, 60.0),
        {
            "autoencoder_widths": (6,),
            "code_size": 3,
            "critic_widths": (6,),
            "critic_steps": 2,
            "autoencoder_steps": 4,
            "sampling_rate": 0.2,
            "autoencoder_sampling_rate": 0.2,
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(EACH))
def test_every_preset_fits_alone_and_in_a_population(name: str) -> None:
    """In small: the same networks, fewer and narrower layers; two seeds as one population give what each gives."""
    method, changes = EACH[name]
    small = dataclasses.replace(method, **changes)
    draw = np.random.default_rng(0)
    table = pa.table(
        {
            "sex": draw.choice(["f", "m"], 300),
            "city": draw.choice(["ham", "ulm", "bonn"], 300),
            "age": draw.integers(18, 90, 300),
        }
    )
    schema = {
        "table": {"rows": 300},
        "columns": {
            "sex": {"kind": "categorical", "categories": ["f", "m"], "nullable": False, "closed": True},
            "city": {"kind": "categorical", "categories": ["ham", "ulm", "bonn"], "nullable": False, "closed": True},
            "age": {"kind": "integer", "bounds": [18, 89], "nullable": False},
        },
    }
    binning, guarantee = us.Binning(bins="uniform", max_bins=4), us.Guarantee(0.2, 1e-5)
    alone = us.fit(table, small, guarantee, schema=schema, seed=0, binning=binning)
    members = fit_population(table, schema, small, [(guarantee, 0), (guarantee, 1)], binning=binning)
    for member in members:
        assert not isinstance(member, Exception), member
        assert member.statement.epsilon <= 0.2
        assert member.sample_arrow(20, seed=0).num_rows == 20
    assert isinstance(members[0], us.Release)
    assert members[0].statement.queries == alone.statement.queries
