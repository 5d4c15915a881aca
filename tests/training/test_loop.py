"""The host's side of a training: how many iterations one call of the program makes."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import pytest
from jaxtyping import Array

from understudy.training.loop import SLOTS_AT_ONCE, RunOptions, run_training


class Counter(eqx.Module):
    average: Array
    iteration: Array
    critic: None = None


@pytest.mark.parametrize(
    ("slots", "wanted"), [(1, [5, 2]), (SLOTS_AT_ONCE // 3, [3, 3, 1]), (SLOTS_AT_ONCE * 2, [1] * 7)]
)
def test_large_batches_bound_the_iterations_of_a_call(slots: int, wanted: list[int]) -> None:
    """So that the batches of a call fit in memory, whatever the options say."""
    made: list[int] = []

    def advance(state: Counter, first: int, count: int) -> Counter:
        assert first == sum(made)
        made.append(count)
        return dataclasses.replace(state, iteration=state.iteration + count)

    start = Counter(jnp.zeros(1), jnp.asarray(0, jnp.int32))
    last, _ = run_training(advance, start, 7, RunOptions(chunk=5), slots_each=slots, advice="")
    assert made == wanted
    assert int(last.iteration) == 7
