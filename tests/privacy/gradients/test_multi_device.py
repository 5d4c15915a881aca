"""Eight devices, which a CPU can act as, do what one does: the same noise once, and no unit moves a sum further."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from jaxtyping import Array

import understudy as us
from tests.privacy.gradients.test_sums import Net, loss_for, midpoint_values, whole
from understudy.models.generator import GeneratorModel
from understudy.privacy.gradients.clipping import Clip, RowLoss, clipped_sum
from understudy.privacy.gradients.dpsgd import ChargedSteps, noisy_gradient, sample_batches
from understudy.privacy.gradients.multi_device import place_units, sum_over_devices
from understudy.privacy.gradients.sums import BLOCK, grid_step, is_fixed
from understudy.privacy.rows.rows import PrivateUnits
from understudy.training.neural import Critic

NUM_DEVICES = 8
NUM_UNITS = 3001  # does not divide evenly
CLIP = 0.1


def charged_steps() -> ChargedSteps:
    rows = np.random.default_rng(0).normal(size=(NUM_UNITS, 1, 6)).astype(np.float32)
    lines = place_units(rows)
    units = PrivateUnits(lines, place_units(np.ones((NUM_UNITS, 1), bool)), len(lines) - NUM_UNITS)
    return ChargedSteps(units, jnp.asarray(1.0), 0.5, 2)


@RowLoss
def row_loss(network: Any, row: Array, fake: Array | None, key: Array) -> Array:
    return jax.nn.softplus(-network(row)) * jax.random.uniform(key)  # each slot has randomness of its own


def gradients() -> np.ndarray:
    """Noisy sums of two batches."""
    charged, critic = charged_steps(), Critic(6, (5,), key=jax.random.key(0))
    batches = sample_batches(charged, jax.random.split(jax.random.key(1), 2), end=2, batch_size=NUM_UNITS // 2)

    def one(batch: Any) -> Any:
        return noisy_gradient(charged, row_loss, critic, Clip.flat(CLIP), batch=batch, key=jax.random.key(2)).gradient

    found = eqx.filter_jit(lambda batches: jax.lax.map(one, batches))(batches)
    return np.concatenate([np.asarray(leaf).reshape(2, -1) for leaf in jax.tree_util.tree_leaves(found)], axis=1)


def moves() -> np.ndarray:
    """How far one unit moves the sum: into an empty slot, and into that of another unit, which goes to the end."""
    size = 2 * BLOCK * NUM_DEVICES
    values = midpoint_values(size, BLOCK)
    values[-1] = 5.0  # clipped to the bound
    rows = jnp.asarray(values, jnp.float32)[:, None, None]

    def part(shared: tuple[Any, Clip], units: Any, taken: Array) -> Any:
        return clipped_sum(loss_for("bias"), shared[0], units, taken, shared[1])

    @jax.jit
    def total(at: Array) -> Any:
        drawn = (rows[jnp.maximum(at, 0)], jnp.ones((size, 1), bool))
        return sum_over_devices(part, (Net(), Clip.flat(1.0)), drawn, at >= 0)[0]

    def as_vector(at: np.ndarray) -> np.ndarray:
        leaves = jax.tree_util.tree_leaves(total(jnp.asarray(at)), is_leaf=is_fixed)
        return np.concatenate([np.asarray(whole(leaf), float) for leaf in leaves]) * float(grid_step(jnp.float32(1.0)))

    found, unit = [], size - 1
    for slot in (0, size // 2 + 3, size - 2):
        others = np.append(np.arange(size - 1), -1)
        exchanged = np.append(np.where(np.arange(size - 1) == slot, unit, np.arange(size - 1)), slot)
        empty = np.insert(np.arange(size - 1), slot, -1)
        for before, after in ((others, exchanged), (empty, np.where(empty < 0, unit, empty))):
            found.append(np.linalg.norm(as_vector(after) - as_vector(before)))
    return np.asarray(found)


def trained() -> np.ndarray:
    """The arrays of a release."""
    table = pa.table({"a": np.arange(4000) % 3, "b": np.arange(4000) % 2})
    columns = tuple(us.Column(name=name, kind="integer", bounds=(0, 2), nullable=False) for name in "ab")
    method = "dpgan(steps=6, sampling_rate=0.4, latent=4, generator_widths=[8], critic_widths=[6])"
    schema = us.Schema(columns=columns, rows=4000)
    release = us.fit(table, method, us.Guarantee(1.0, 1e-6), schema=schema, seed=0)
    assert isinstance(release.model, GeneratorModel)
    leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(release.model.generator) if eqx.is_array(leaf)]
    return np.concatenate([leaf.ravel() for leaf in leaves if np.issubdtype(leaf.dtype, np.floating)])


def num_devices() -> np.ndarray:
    units = charged_steps()._units
    assert isinstance(units, PrivateUnits)
    return np.asarray(len(units._rows.sharding.device_set))


RESULTS = {"devices": num_devices, "gradients": gradients, "moves": moves, "trained": trained}


def on_eight(folder: Path, *names: str) -> dict[str, np.ndarray]:
    """These results from a process that has eight devices."""
    file = folder / "results.npz"
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={NUM_DEVICES}"
    variables = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.privacy.gradients.test_multi_device", str(file), *names]
    subprocess.run(command, check=True, env=variables, cwd=Path(__file__).parents[3])
    return dict(np.load(file))


def test_eight_devices_give_what_one_gives_and_no_unit_moves_it_further(tmp_path: Path) -> None:
    """To the rounding of block sums. A second draw of noise, or one for each device, would differ by its own size."""
    found = on_eight(tmp_path, "devices", "gradients", "moves")
    assert found["devices"] == NUM_DEVICES
    np.testing.assert_allclose(found["gradients"], gradients(), rtol=1e-6, atol=1e-5 * CLIP)
    assert found["moves"].min() > 0.97
    assert found["moves"].max() <= 1.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::understudy.errors.UnderstudyWarning")
def test_a_training_on_eight_devices_ends_where_one_does(tmp_path: Path) -> None:
    np.testing.assert_allclose(on_eight(tmp_path, "trained")["trained"], trained(), rtol=1e-3, atol=1e-4)


if __name__ == "__main__":
    np.savez(sys.argv[1], **{name: RESULTS[name]() for name in sys.argv[2:]})  # type: ignore[arg-type]  # names of arrays, none of them a parameter
