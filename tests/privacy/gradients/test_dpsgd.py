"""A step of DP-SGD: the noisy sum over one Poisson batch, and what is refused."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray

from tests.builders import raises
from tests.privacy.gradients.test_clipping import FEATURES, as_sum, assert_same, oracle, softplus_loss, units_of
from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.gradients.clipping import Clip, RowLoss
from understudy.privacy.gradients.dpsgd import (
    ChargedSteps,
    PublicSteps,
    noisy_gradient,
    public_gradient,
    sample_batches,
)
from understudy.privacy.gradients.poisson import Batches, poisson_batches
from understudy.privacy.rows.rows import PrivateUnits, PublicUnits
from understudy.training.neural import Critic


@RowLoss
def of_row(critic: Any, row: Array, fake: Array | None, key: PRNGKeyArray) -> Array:
    """As `softplus_loss`, which sums it over a unit."""
    return jax.nn.softplus(-critic(row, key=key))


def critic() -> Critic:
    return Critic(FEATURES, (8, 5), key=jax.random.key(0))


def charged(units: PrivateUnits, multiplier: Any, *, rate: float = 1.0, steps: int = 1) -> ChargedSteps:
    return ChargedSteps(units, jnp.asarray(multiplier, jnp.float32), rate, steps, 2.0)


def query(units: PrivateUnits, rate: float, multiplier: float, key: PRNGKeyArray) -> Any:
    batch = poisson_batches(jax.random.fold_in(key, 1), len(units._rows), sampling_rate=rate, chunk=16)
    return query_batch(units, batch, multiplier, key)


@jax.jit
def query_batch(units: PrivateUnits, batch: Batches, multiplier: float, key: PRNGKeyArray) -> Any:
    return noisy_gradient(charged(units, multiplier), of_row, critic(), Clip.flat(0.5), batch=batch, key=key)


def test_the_gradient_of_all_rows_is_their_clipped_sum() -> None:
    """Sampling rate 1, no noise, in five chunks."""
    rows, present, fakes, keys = units_of(70, 2)
    found, _ = query(PrivateUnits(rows, present), 1.0, 0.0, jax.random.key(3))
    expected = oracle(softplus_loss, critic(), (rows, present, fakes, keys), np.ones(70, bool), Clip.flat(0.5))
    assert_same(as_sum((found, jnp.zeros(1))), (expected[0], np.zeros(1)))


def test_an_empty_batch_is_noise_alone_of_the_same_scale() -> None:
    """And the noise of a key does not depend on the batch: the difference of two answers is the exact sum."""
    rows, present, fakes, keys = units_of(40, 1)
    units = PrivateUnits(rows, present)
    empty_batch = poisson_batches(jax.random.key(1), 40, sampling_rate=1e-12, chunk=16)
    draw = jax.jit(jax.vmap(lambda key: query_batch(units, empty_batch, 2.0, key)))
    gradient, within = draw(jax.random.split(jax.random.key(4), 400))
    values = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree_util.tree_leaves(gradient)])
    assert abs(values.var() - 1) < 5 * math.sqrt(2 / len(values))
    assert abs(np.asarray(within).var() / 4 - 1) < 5 * math.sqrt(2 / within.size)
    expected = oracle(softplus_loss, critic(), (rows, present, fakes, keys), np.ones(40, bool), Clip.flat(0.5))
    full, full_within = query(units, 1.0, 2.0, jax.random.key(5))
    empty, empty_within = query(units, 1e-12, 2.0, jax.random.key(5))
    difference = jax.tree_util.tree_map(jnp.subtract, full, empty)
    for leaf, other in zip(jax.tree_util.tree_leaves(difference), expected[0], strict=True):
        np.testing.assert_allclose(leaf, other, rtol=0, atol=2e-5)
    np.testing.assert_allclose(full_within - empty_within, expected[1], atol=1e-5)


def test_the_gradient_of_public_rows_is_the_plain_sum() -> None:
    rows, present, fakes, keys = units_of(40, 1)
    steps = PublicSteps(PublicUnits(rows, present), 1.0, 1)
    batch = sample_batches(steps, jax.random.key(1), end=1, batch_size=40)
    found = jax.jit(lambda: public_gradient(steps, of_row, critic(), batch=batch, key=jax.random.key(2)))()
    free = Clip.flat(math.inf)
    expected = oracle(softplus_loss, critic(), (rows, present, fakes, keys), np.ones(40, bool), free)
    assert_same(as_sum((found, jnp.zeros(1))), (expected[0], np.zeros(1)))


def test_an_unbounded_sum_with_charged_noise_is_no_number() -> None:
    """No noise covers gradients that are not clipped: training code cannot ask for them."""
    rows, present, _, _ = units_of(8, 1)
    batch = Batches(jnp.arange(8)[None], jnp.ones((1, 8), dtype=bool))
    steps = charged(PrivateUnits(rows, present), 1.0)
    found = noisy_gradient(steps, of_row, critic(), Clip.flat(math.inf), batch=batch, key=jax.random.key(0))
    assert all(bool(jnp.isnan(leaf).all()) for leaf in jax.tree_util.tree_leaves(found))


def test_batches_are_sampled_at_the_charged_rate_and_no_more_than_charged() -> None:
    """Sizes of 2,000 batches of 300 units, within 5 standard errors of the binomial's mean (false alarms: 1e-6)."""
    rows, present, _, _ = units_of(300, 1)
    steps, keys = charged(PrivateUnits(rows, present), 1.0, rate=0.25, steps=2000), jax.random.key(0)
    batches = sample_batches(steps, jax.random.split(keys, 2000), end=2000, batch_size=75)
    sizes = np.asarray(batches._taken).reshape(2000, -1).sum(axis=1)
    assert abs(sizes.mean() - 75) < 5 * math.sqrt(300 * 0.25 * 0.75 / 2000)
    with pytest.raises(BudgetExceeded):
        sample_batches(steps, jax.random.split(keys, 1), end=2001, batch_size=75)


def test_a_network_that_mixes_rows_is_refused() -> None:
    class Mixing(eqx.Module):
        norm: eqx.nn.BatchNorm
        layer: eqx.nn.Linear

    mixing = Mixing(eqx.nn.BatchNorm(3, "rows", mode="batch"), eqx.nn.Linear(3, "scalar", key=jax.random.key(0)))
    steps = charged(PrivateUnits(jnp.zeros((4, 1, 3)), jnp.ones((4, 1), dtype=bool)), 1.0, rate=0.5)
    batch = sample_batches(steps, jax.random.key(1), end=1, batch_size=2)
    with raises(ConfigError, setting=None):
        noisy_gradient(
            steps, RowLoss(lambda *_: jnp.zeros(())), mixing, Clip.flat(1.0), batch=batch, key=jax.random.key(0)
        )
