"""Training by DP-SGD: small networks that see the rows through clipped and noisy sums over Poisson draws alone."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from understudy.learners.models import Layers
from understudy.privacy.gradients import Clip, noisy_direction
from understudy.privacy.mechanisms import PaidSteps
from understudy.privacy.sampling import Draws, chunk_size, num_slots, poisson_draws
from understudy.progress import Progress

STEPS_AT_ONCE = 1 << 22
"""Places that are drawn at once: as many steps as fit are one program."""


class Network(eqx.Module):
    """Linear layers with ReLU between them."""

    layers: list[eqx.nn.Linear]

    def __init__(self, sizes: tuple[int, ...], *, key: PRNGKeyArray):
        """He's weights, and zeros in the last layer: at first nothing is preferred."""
        keys = jax.random.split(key, len(sizes))
        layers = [eqx.nn.Linear(a, b, key=k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False)]
        for number, layer in enumerate(layers):
            reach = np.sqrt(6 / layer.weight.shape[1]) if number < len(layers) - 1 else 0.0
            weight = jax.random.uniform(keys[number], layer.weight.shape, minval=-1.0, maxval=1.0) * reach
            layers[number] = eqx.tree_at(
                lambda it: (it.weight, it.bias), layer, (weight, jnp.zeros(layer.weight.shape[0]))
            )
        self.layers = layers

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " out"]:
        for layer in self.layers[:-1]:
            inputs = jax.nn.relu(layer(inputs))
        return self.layers[-1](inputs)

    def as_arrays(self) -> Layers:
        host = jax.device_get([(layer.weight, layer.bias) for layer in self.layers])
        weights, biases = zip(*((w.astype(np.float64), b.astype(np.float64)) for w, b in host), strict=True)
        return Layers(weights, biases)


@dataclasses.dataclass(frozen=True)
class Descent:
    """How to step. All of it is public."""

    batch: int
    """The public size of a draw: what a sum is divided by."""
    clip: float
    learning_rate: float
    penalty: float


class Carry(NamedTuple):
    network: Any
    moments: PyTree
    average: Any


RowLoss = Callable[[Float[Array, " out"], Float[Array, ""]], Float[Array, ""]]
"""(what the network says of a row, its label) -> the row's loss."""


def unit_loss(of_row: RowLoss) -> Callable[[Any, tuple], Float[Array, ""]]:
    """The loss of one unit: the sum over its rows, whose last feature is the label."""

    def of_unit(network: Any, unit: tuple) -> Float[Array, ""]:
        rows, present, _, _ = unit
        total = jnp.zeros(())
        for slot in range(rows.shape[0]):
            total = total + jnp.where(present[slot], of_row(network(rows[slot, :-1]), rows[slot, -1]), 0.0)
        return total

    return of_unit


def trained(
    network: Network,
    of_row: RowLoss,
    paid: PaidSteps,
    descent: Descent,
    *,
    key: PRNGKeyArray,
    progress: Progress | None = None,
) -> Network:
    """The average of the second half of the steps. Covered by what was paid for them: Adam and averages see noise only.

    The learning rate falls to zero along half a cosine, and a penalty of penalty / 2 |weights|^2 is public.
    """
    draw_key, step_key = jax.random.split(key)
    draw_keys, noise_keys = jax.random.split(draw_key, paid.steps), jax.random.split(step_key, paid.steps)
    chunk, slots = chunk_size(descent.batch), num_slots(descent.batch)
    at_once = max(1, min(paid.steps, STEPS_AT_ONCE // slots))
    advance = _advance(of_row, paid, descent)
    adam = optax.scale_by_adam()
    state = Carry(network, adam.init(eqx.filter(network, eqx.is_inexact_array)), network)
    for first in range(0, paid.steps, at_once):
        here = slice(first, min(first + at_once, paid.steps))
        draws = poisson_draws(draw_keys[here], paid.units, rate=paid.rate, chunk=chunk, slots=slots)
        numbers = jnp.arange(here.start, here.stop)
        state = advance(state, (draws, noise_keys[here], numbers))
        if progress is not None:
            progress(here.stop / paid.steps, f"step {here.stop} of {paid.steps}")
    return state.average


def _advance(of_row: RowLoss, paid: PaidSteps, descent: Descent) -> Callable[[Carry, tuple], Carry]:
    adam, of_unit = optax.scale_by_adam(), unit_loss(of_row)
    clip = Clip.flat(descent.clip if paid.noise_multiplier else np.inf)
    multiplier = jnp.asarray(paid.noise_multiplier, jnp.float32)

    @eqx.filter_jit
    def advance(state: Carry, steps: tuple, units: Any) -> Carry:
        def step(state: Carry, given: tuple[Draws, PRNGKeyArray, Array]) -> tuple[Carry, None]:
            draw, key, number = given
            noisy, _ = noisy_direction(
                of_unit,
                state.network,
                units,
                None,
                clip,
                draw=draw,
                noise_multiplier=multiplier,
                count_stddev=None,
                key=key,
            )
            values = eqx.filter(state.network, eqx.is_inexact_array)
            slope = jax.tree_util.tree_map(
                lambda part, value: part / descent.batch + descent.penalty * value, noisy, values
            )
            updates, moments = adam.update(slope, state.moments)
            rate = descent.learning_rate * 0.5 * (1 + jnp.cos(jnp.pi * number / paid.steps))
            moved = eqx.apply_updates(state.network, jax.tree_util.tree_map(lambda part: -rate * part, updates))
            counted = jnp.maximum(number - paid.steps // 2, 0)
            average = jax.tree_util.tree_map(
                lambda old, new: old + (new - old) / (counted + 1) if eqx.is_inexact_array(old) else old,
                state.average,
                moved,
            )
            return Carry(moved, moments, average), None

        return jax.lax.scan(step, state, steps)[0]

    return lambda state, steps: advance(state, steps, paid.units)
