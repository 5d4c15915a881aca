"""DP-SGD of learners: what a step divides by, and what is clipped."""

import math

import jax
import numpy as np
import pytest

from tests.learners.people import key
from understudy.learners.methods import CrossEntropy, Network, half_square
from understudy.privacy.gradients.clipping import Clip, RowLoss, add_noise, clipped_sum, unit_loss
from understudy.privacy.gradients.dpsgd import ChargedSteps
from understudy.privacy.rows.rows import PrivateUnits
from understudy.training.dpsgd import Descent, train_network


def test_sums_of_steps_are_divided_by_the_public_batch() -> None:
    """Ridge regression in closed form: its penalty counts against the declared batch, not the rows that there are."""
    generator = np.random.default_rng(0)
    rows = np.c_[generator.uniform(-1, 1, 50), generator.uniform(-1, 1, 50)].astype(np.float32)
    units = PrivateUnits(jax.numpy.asarray(rows[:, None]), jax.numpy.ones((50, 1), dtype=bool))
    batch_key, noise_key = jax.random.split(key())
    found = train_network(
        Network((1, 1), key=key()),
        RowLoss(half_square),
        ChargedSteps(units, jax.numpy.zeros(()), 1.0, 300),
        Descent(batch_size=200, learning_rate=0.05, clip_norm=1.0, cosine=True, penalty=0.1),
        batch_key=batch_key,
        noise_key=noise_key,
        advice="Lower learning_rate.",
    ).as_arrays()
    inputs = np.c_[rows[:, 0], np.ones(50)].astype(float)
    exact = np.linalg.solve(inputs.T @ inputs + 200 * 0.1 * np.eye(2), inputs.T @ rows[:, 1])
    assert [found.weights[0][0, 0], found.biases[0][0]] == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize("weight", [1.0, 50.0])
def test_weights_come_before_the_clip(weight: float) -> None:
    """However heavy a class, a unit adds at most the clip: sums of one step, with noise far below."""
    of_unit = unit_loss(RowLoss(CrossEntropy(jax.numpy.asarray([weight, 1.0]))))
    network = Network((3, 2), key=key())
    row = np.array([[[0.6, 0.0, 0.8, 0.0]]], dtype=np.float32)  # three inputs, and class 0
    units = (jax.numpy.asarray(row), jax.numpy.ones((1, 1), dtype=bool), None, jax.random.split(key(), 1))
    clip = Clip.flat(0.5)
    summed = clipped_sum(of_unit, network, units, jax.numpy.ones(1, dtype=bool), clip)
    exact = add_noise(*summed, clip, noise_multiplier=0.0, key=key()).gradient
    norm = math.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree_util.tree_leaves(exact)))
    assert norm == pytest.approx(0.5, rel=0.01)
