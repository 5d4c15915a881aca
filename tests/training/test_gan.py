"""The loop: what one step computes; members of a population are runs of their own; cuts change nothing."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array

import understudy as us
from tests.builders import raises
from understudy.errors import BudgetExceeded, ConfigError, Diverged
from understudy.privacy.gradients.dpsgd import ChargedSteps, PublicSteps
from understudy.privacy.rows.rows import PrivateUnits, PublicUnits
from understudy.training.critics import LOSSES, one_hot_blocks
from understudy.training.gan import Hyperparameters, State, advance, batches_of, init_from_networks, init_state, train
from understudy.training.generation import Context, generate
from understudy.training.loop import RunOptions, TrainingCheckpoint
from understudy.training.settings import Settings

BLOCKS = one_hot_blocks((3, 4, 2))
SMALL = Settings(
    blocks=BLOCKS, batch_size=25, latent=4, generator_widths=(8, 8), critic_widths=(8,), generator_batch=16
)
NETWORKS = jax.random.key(99)
FREE = Hyperparameters.of(5e-3, 4e-3, np.inf)
NOISY = Hyperparameters.of(5e-3, 4e-3, 1.0)
RATE, STEPS = 0.125, 20


def table(num_rows: int = 200, *, noise: Any = 1.5) -> ChargedSteps:
    draw = np.random.default_rng(0)
    codes = np.stack([draw.integers(0, block.size, num_rows) for block in BLOCKS], axis=1)
    units = PrivateUnits(jnp.asarray(codes[:, None], jnp.int32), jnp.ones((num_rows, 1), dtype=bool))
    return ChargedSteps(units, jnp.asarray(noise, jnp.float32), RATE, STEPS)


def public_table(num_rows: int) -> PublicSteps:
    units = table(num_rows)._units
    assert isinstance(units, PrivateUnits)
    return PublicSteps(PublicUnits(units._rows, units._present), RATE, STEPS)


def arrays_of(state: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(eqx.filter(state, eqx.is_inexact_array))]


def assert_close(one: Any, other: Any, tolerance: float) -> None:
    for left, right in zip(arrays_of(one), arrays_of(other), strict=True):
        np.testing.assert_allclose(left, right, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("kind", ["private", "public"])
def test_without_noise_and_bound_a_critic_step_is_the_plain_one(kind: str) -> None:
    """Against a step written anew: the sum over the drawn rows over the public batch, the fakes' mean, Adam."""
    key = jax.random.key(1)
    steps: ChargedSteps | PublicSteps = table(noise=0.0) if kind == "private" else public_table(200)
    state = init_state(SMALL, FREE, jax.random.key(0))
    batches = batches_of(SMALL, key, steps, 0, 1)
    found = advance(SMALL, state, steps, FREE, key, batches, Context())

    steps_key, _ = jax.random.split(key)
    critic_key, _ = jax.random.split(jax.random.fold_in(steps_key, 0))
    _, fake_key, _ = jax.random.split(critic_key, 3)
    fakes = generate(SMALL, state.generator, SMALL.batch_size, fake_key)[1]
    at = np.asarray(batches._indices)[np.asarray(batches._taken)]
    assert 5 < len(at) < 60
    units = table()._units
    assert isinstance(units, PrivateUnits)
    codes = np.asarray(units._rows)[at, 0]
    real = jnp.asarray(np.concatenate([np.eye(b.size)[codes[:, j]] for j, b in enumerate(BLOCKS)], axis=1), jnp.float32)
    trained, rest = eqx.partition(state.critic, eqx.is_inexact_array)

    def loss(inside: Any) -> Array:
        critic = eqx.combine(inside, rest)
        on_real = jnp.sum(jax.vmap(lambda row: LOSSES["gan"].real(critic(row)))(real)) / SMALL.batch_size
        return on_real + LOSSES["gan"].fake(jax.vmap(critic)(fakes))

    adam = optax.adam(5e-3, b1=0.5, b2=0.9)
    updates, _ = adam.update(jax.grad(loss)(trained), adam.init(trained))
    assert_close(found.critic, eqx.apply_updates(state.critic, updates), 1e-6)


@pytest.mark.slow
def test_a_member_of_a_population_is_the_same_run_alone() -> None:
    """Seeds, noise, rates and clips differ; 20 steps; to 1e-4."""
    members, noise = 3, jnp.asarray([0.5, 1.0, 2.0])
    keys = jax.random.split(jax.random.key(7), (members, 2))
    hyperparameters = Hyperparameters(jnp.asarray([5e-3, 2e-3, 5e-3]), jnp.full(3, 4e-3), jnp.asarray([1.0, 0.5, 2.0]))
    batches = batches_of(SMALL, keys[:, 1], table(), 0, 20)

    def member(pair: Array, one: Hyperparameters, multiplier: Array, batches: Any) -> State:
        return advance(
            SMALL, init_state(SMALL, one, pair[0]), table(noise=multiplier), one, pair[1], batches, Context()
        )

    together = jax.jit(jax.vmap(member))(keys, hyperparameters, noise, batches)
    alone = jax.jit(member)
    for number in range(members):
        one = jax.tree_util.tree_map(lambda leaf, number=number: leaf[number], hyperparameters)
        state = alone(keys[number], one, noise[number], batches_of(SMALL, keys[number, 1], table(), 0, 20))
        part = jax.tree_util.tree_map(
            lambda leaf, number=number: leaf[number] if eqx.is_array(leaf) else leaf, together
        )
        assert_close(part, state, 1e-4)


def test_a_run_cut_into_pieces_is_the_same_run() -> None:
    units, key = table(), jax.random.key(3)
    whole, _ = train(SMALL, units, NOISY, key, network_key=NETWORKS, options=RunOptions(iterations=12, chunk=12))
    pieces, kept = train(
        SMALL, units, NOISY, key, network_key=NETWORKS, options=RunOptions(iterations=12, chunk=5, keep_every=4)
    )
    assert_close(whole, pieces, 1e-5)
    assert [int(state.iteration) for state in kept] == [4, 8, 12]
    assert_close(kept[-1], TrainingCheckpoint.of(whole), 1e-5)
    shorter, _ = train(SMALL, units, NOISY, key, network_key=NETWORKS, options=RunOptions(iterations=8, chunk=4))
    assert_close(kept[1], TrainingCheckpoint.of(shorter), 1e-5)
    _, last = train(
        SMALL,
        units,
        NOISY,
        key,
        network_key=NETWORKS,
        options=RunOptions(iterations=12, chunk=5, keep_every=4, keep_last=2),
    )
    assert [int(state.iteration) for state in last] == [8, 12]
    assert_close(last[0], kept[1], 1e-5)


def test_what_is_kept_is_small() -> None:
    """The averaged generator and the critic: no moments, and no second generator."""
    state, (kept,) = train(
        SMALL, table(), NOISY, jax.random.key(3), network_key=NETWORKS, options=RunOptions(iterations=2, keep_every=2)
    )
    both = sum(leaf.size for leaf in arrays_of((state.average, state.critic)))
    leaves = [leaf for leaf in jax.tree_util.tree_leaves(kept) if eqx.is_array_like(leaf)]
    assert sum(np.size(leaf) for leaf in leaves) == both + 1  # and the number of the iteration
    assert not any(isinstance(leaf, jax.Array) for leaf in leaves)  # off the device


def test_fresh_networks_do_not_follow_from_the_key_of_the_noise() -> None:
    """Else a guess of that key could be checked by the first weights, which a released generator remembers."""
    first, _ = train(SMALL, table(), NOISY, jax.random.key(3), network_key=NETWORKS, options=RunOptions(iterations=0))
    other, _ = train(SMALL, table(), NOISY, jax.random.key(4), network_key=NETWORKS, options=RunOptions(iterations=0))
    assert_close(first, other, 0)
    assert_close(first, init_state(SMALL, NOISY, NETWORKS), 0)


def test_rows_handled_in_small_chunks_give_the_same_run() -> None:
    units, key = table(), jax.random.key(3)
    whole, _ = train(SMALL, units, NOISY, key, network_key=NETWORKS, options=RunOptions(iterations=4))
    chunked, _ = train(
        dataclasses.replace(SMALL, chunk_size=8),
        units,
        NOISY,
        key,
        network_key=NETWORKS,
        options=RunOptions(iterations=4),
    )
    assert_close(whole, chunked, 1e-5)


@pytest.mark.slow
def test_critic_weights_stay_within_their_bounds() -> None:
    units, key = table(), jax.random.key(3)
    clipped, _ = train(
        dataclasses.replace(SMALL, weight_clip=0.01, loss="wgan"),
        units,
        NOISY,
        key,
        network_key=NETWORKS,
        options=RunOptions(iterations=5),
    )
    assert max(np.abs(leaf).max() for leaf in arrays_of(clipped.critic)) <= np.float32(0.01)


def test_no_more_steps_than_were_charged() -> None:
    """Refused before a batch is sampled."""
    with pytest.raises(BudgetExceeded):
        train(
            SMALL, table(), NOISY, jax.random.key(3), network_key=NETWORKS, options=RunOptions(iterations=21, chunk=21)
        )


def test_what_diverges_is_stopped_in_words() -> None:
    wild = Hyperparameters.of(1e30, 1e30, 1.0)
    with pytest.raises(Diverged):
        train(
            dataclasses.replace(SMALL, loss="wgan"),
            table(noise=1.0),
            wild,
            jax.random.key(0),
            network_key=NETWORKS,
            options=RunOptions(iterations=20),
        )


@pytest.mark.slow
def test_networks_are_taken_from_public_rows_and_nothing_else() -> None:
    warm, _ = train(
        SMALL, public_table(50), FREE, jax.random.key(0), network_key=NETWORKS, options=RunOptions(iterations=6)
    )
    state = init_from_networks(SMALL, NOISY, warm.average, warm.critic)
    assert_close(state.generator, warm.average, 0)
    assert_close(state.critic, warm.critic, 0)
    assert int(state.iteration) == 0
    assert all(np.all(leaf == 0) for leaf in arrays_of((state.critic_moments, state.generator_moments)))
    assert float(state.clip.bounds[0]) == 1.0


@pytest.mark.parametrize("method", ["dpgan", "dpctgan", "pategan", "patectgan", "autogan", "bayesgan"])
def test_numbers_of_too_many_declared_rows_are_refused_before_any_charge(method: str) -> None:
    """At plan time, by the declared size alone; codes of as many rows are not refused."""
    columns = {name: {"kind": "integer", "bounds": [0, 9]} for name in "abcdefghij"}
    columns["a"] = {"kind": "boolean"}
    schema = {"table": {"rows": 130_000_000}, "columns": columns}
    with raises(ConfigError, setting="features"):
        us.plan(schema, f"{method}(features=typed)", epsilon=1.0, delta=1e-9)
    assert us.plan(schema, f"{method}(features=binned)", epsilon=1.0, delta=1e-9)


# ---------------------------------------------------------------------------------------------- generated rows, clipped


def one_step(settings: Settings, steps: ChargedSteps | PublicSteps, hyperparameters: Hyperparameters) -> Any:
    """The change of the critic in its first step by plain gradient descent of rate one."""
    plain = dataclasses.replace(settings, optimizer="sgd")
    one = dataclasses.replace(hyperparameters, critic_learning_rate=jnp.float32(1.0))
    state, key = init_state(plain, one, jax.random.key(0)), jax.random.key(1)
    batches = batches_of(plain, key, steps, 0, 1)
    after = eqx.filter_jit(advance)(plain, state, steps, one, key, batches, Context())
    return jax.tree_util.tree_map(
        lambda new, old: old - new, *(eqx.filter(each.critic, eqx.is_inexact_array) for each in (after, state))
    )


def few_rows(count: int) -> ChargedSteps:
    """Two units in every batch, of which so many are there."""
    units = PrivateUnits(jnp.asarray([[[0, 1, 1]], [[2, 3, 0]]], jnp.int32), (jnp.arange(2) < count)[:, None])
    return ChargedSteps(units, jnp.float32(0.0), 1.0, STEPS)


def test_without_a_bound_clipped_fakes_are_the_separate_ones() -> None:
    for steps in (table(noise=0.0), public_table(200)):
        one, other = (
            one_step(dataclasses.replace(SMALL, fake_term=term), steps, FREE) for term in ("clipped", "separate")
        )
        assert_close(one, other, 1e-6)


def test_clipped_fakes_are_clipped_one_by_one() -> None:
    """Against gradients written anew, with a bound that cuts all of them; the margin of rounding is below 6e-3."""
    bound = 0.05
    tight = Hyperparameters.of(5e-3, 4e-3, bound)
    found = one_step(dataclasses.replace(SMALL, fake_term="clipped"), few_rows(0), tight)
    state = init_state(dataclasses.replace(SMALL, optimizer="sgd"), tight, jax.random.key(0))
    critic_key, _ = jax.random.split(jax.random.fold_in(jax.random.split(jax.random.key(1))[0], 0))
    _, fake_key, _ = jax.random.split(critic_key, 3)
    fakes = generate(SMALL, state.generator, SMALL.batch_size, fake_key)[1]
    trained, rest = eqx.partition(state.critic, eqx.is_inexact_array)

    def clipped(row: Array) -> Any:
        gradient = jax.grad(lambda inside: LOSSES["gan"].fake(eqx.combine(inside, rest)(row)[None]))(trained)
        norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree_util.tree_leaves(gradient)))
        assert_cut.append(norm)
        return jax.tree_util.tree_map(lambda leaf: leaf * jnp.minimum(1.0, bound / norm), gradient)

    assert_cut: list[Any] = []
    each = [clipped(row) for row in fakes]
    assert min(map(float, assert_cut)) > bound
    mean = jax.tree_util.tree_map(lambda *leaves: sum(leaves) / SMALL.batch_size, *each)
    for left, right in zip(arrays_of(found), arrays_of(mean), strict=True):
        np.testing.assert_allclose(left, right, rtol=6e-3, atol=1e-6)


def test_clipped_fakes_leave_the_sensitivity_of_a_step_as_it_is() -> None:
    """One unit more, with the same keys, moves the sum by the clip norm at most, and does move it."""
    settings = dataclasses.replace(SMALL, fake_term="clipped", batch_size=1)
    moved = [one_step(settings, few_rows(count), NOISY) for count in (2, 1)]
    difference = np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(*map(arrays_of, moved), strict=True)))
    assert 0.1 < difference <= 1.0


def test_losses_that_couple_fakes_cannot_be_clipped_row_by_row() -> None:
    with raises(ConfigError, setting="fake_term"):
        dataclasses.replace(SMALL, fake_term="clipped", loss="kl_wgan")
