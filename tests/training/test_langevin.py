"""Chains of discriminators: each update has rows, noise and a now of its own."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from understudy.privacy.gradients.clipping import Clip
from understudy.privacy.gradients.dpsgd import ChargedSteps
from understudy.privacy.gradients.langevin import ChargedUpdates, StepParameters
from understudy.privacy.gradients.poisson import Batches
from understudy.privacy.rows.rows import PrivateUnits
from understudy.training import gan as training
from understudy.training import langevin as chains_file
from understudy.training.critics import one_hot_blocks
from understudy.training.generation import Context
from understudy.training.langevin import Chains, ChainState, advance, init_state, train_chains
from understudy.training.loop import RunOptions

DISCRIMINATORS = UPDATES = ITERATIONS = 2
RATE = 0.5
EACH = DISCRIMINATORS * UPDATES
"""Private updates of an iteration."""
CHAINS = Chains(
    training.Settings(
        blocks=one_hot_blocks((3, 4)),
        batch_size=4,
        latent=2,
        arch="plain",
        generator_widths=(4,),
        critic_widths=(16,),
        critic_steps=EACH,
        generator_batch=4,
    ),
    generators=2,
    discriminators=DISCRIMINATORS,
    updates=UPDATES,
    num_rows=8,
    power=1.0,
    prior="unit",
    prior_stddev=1.0,
    friction=1.0,
)


@functools.cache
def _begin() -> ChainState:
    return jax.jit(lambda key: init_state(CHAINS, key, Context()))(jax.random.key(1))


@functools.cache
def _run() -> Any:
    return jax.jit(functools.partial(advance, CHAINS))


def critics_after(taken: np.ndarray, now: tuple[float, float, float]) -> np.ndarray:
    """A line for each discriminator after two iterations, in which so many units enter each update's sum."""
    units = PrivateUnits(jnp.ones((2, 1, 2), jnp.int32), jnp.ones((2, 1), dtype=bool))
    batches = Batches(
        jnp.tile(jnp.arange(2), (ITERATIONS, EACH, 1, 1)), jnp.asarray(taken)[..., None, None] & np.ones(2, bool)
    )
    of_critics = StepParameters(*(jnp.full(ITERATIONS, value, jnp.float32) for value in now))
    of_generators = StepParameters(*(jnp.full(ITERATIONS, value, jnp.float32) for value in (1e-6, 0.0, 0.0)))
    charged = ChargedUpdates(ChargedSteps(units, jnp.zeros(()), RATE, ITERATIONS * EACH), of_critics)
    after = _run()(_begin(), charged, Clip.flat(1.0), jax.random.key(2), batches, of_generators, Context())
    return _lines(after)


def _lines(state: ChainState) -> np.ndarray:
    leaves = jax.tree_util.tree_leaves(state.critic)
    return np.concatenate([np.asarray(leaf).reshape(DISCRIMINATORS, -1) for leaf in leaves], axis=1)


def test_a_draw_enters_one_update_of_one_chain() -> None:
    """Rows that enter draw k of the last iteration alone move chain k mod 2, and no other: no draw is used twice."""
    nobody = np.zeros((ITERATIONS, EACH), dtype=bool)
    now = (1e-2, 0.0, 0.0)  # without noise
    before = critics_after(nobody, now)
    for number in range(EACH):
        taken = nobody.copy()
        taken[-1, number] = True
        moved = np.any(critics_after(taken, now) != before, axis=1)
        assert np.flatnonzero(moved).tolist() == [number % DISCRIMINATORS]


def test_every_update_of_every_chain_has_noise_of_its_own() -> None:
    """With empty batches four updates move each chain by four independent draws. Their variance is within 4
    standard errors (290 numbers) of that, below that of draws used twice; and the two chains are not alike."""
    multiplier, wanted = 1e4, 1e-3
    eta = wanted / (multiplier / RATE)  # steps so small that prior and generated rows hardly count
    moved = critics_after(np.zeros((ITERATIONS, EACH), dtype=bool), (eta, multiplier, 0.0)) - _lines(_begin())
    updates = ITERATIONS * UPDATES
    assert moved.var() / (updates * wanted**2) == pytest.approx(1.0, abs=4 * np.sqrt(2 / moved.size))
    assert abs(np.corrcoef(moved)[0, 1]) < 4 / np.sqrt(moved.shape[1])


def test_an_update_has_the_noise_of_its_iteration() -> None:
    """Noise in the second iteration alone moves chains as far as its own two updates would."""
    units = PrivateUnits(jnp.ones((2, 1, 2), jnp.int32), jnp.ones((2, 1), dtype=bool))
    nobody = Batches(jnp.zeros((ITERATIONS, EACH, 1, 2), jnp.int32), jnp.zeros((ITERATIONS, EACH, 1, 2), bool))
    wanted, still = 1e-3, jnp.full(ITERATIONS, 1e-6)
    multipliers = jnp.asarray([1.0, 1e4])
    of_critics = StepParameters(jnp.full(ITERATIONS, wanted / (1e4 / RATE)), multipliers, jnp.zeros(ITERATIONS))
    charged = ChargedUpdates(ChargedSteps(units, jnp.ones(()), RATE, ITERATIONS * EACH), of_critics)
    generators = StepParameters(still, jnp.zeros(ITERATIONS), jnp.zeros(ITERATIONS))
    after = _run()(_begin(), charged, Clip.flat(1.0), jax.random.key(2), nobody, generators, Context())
    moved = _lines(after) - _lines(_begin())
    assert moved.var() / (UPDATES * wanted**2) == pytest.approx(1.0, abs=4 * np.sqrt(2 / moved.size))


def test_training_goes_through_batches_and_schedule_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In order and from where it is, whatever the length of its parts: noise of a later stage is that of the stage."""
    drawn_for, schedules = [], []

    def batches_of(settings: Any, key: Any, steps: Any, first: int, count: int) -> tuple[int, int]:
        drawn_for.append((first, count))
        return first, count

    def run(
        state: Any, charged: Any, clip: Any, key: Any, batches: tuple[int, int], schedule: Any, context: Any
    ) -> Any:
        schedules.append(schedule)
        assert int(state.iteration) == batches[0]  # by which an update finds its noise
        return dataclasses.replace(state, iteration=state.iteration + batches[1])

    monkeypatch.setattr(chains_file, "batches_of", batches_of)
    programs = {chains_file.advance: run, chains_file.init_state: lambda *_: _begin()}
    monkeypatch.setattr(chains_file, "cached_jit", lambda function, _: programs[function])
    number = jnp.arange(6.0)
    units = PrivateUnits(jnp.zeros((1, 1, 2), jnp.int32), jnp.zeros((1, 1), dtype=bool))
    steps = ChargedSteps(units, jnp.zeros(()), RATE, 6 * EACH)
    charged, own = (
        ChargedUpdates(steps, StepParameters(number, number + 20, number)),
        StepParameters(number, number + 10, number),
    )
    key, options = jax.random.key(0), RunOptions(keep_every=2, keep_last=2)
    kept = train_chains(CHAINS, charged, Clip.flat(1.0), own, key, network_key=key, context=Context(), options=options)
    assert drawn_for == [(0, 2), (2, 2), (4, 2)]
    seen = np.concatenate([np.asarray(part.noise_multiplier) for part in schedules])
    np.testing.assert_array_equal(seen, own.noise_multiplier)
    assert [int(state.iteration) for state in kept] == [4, 6]
