"""DP-SGD of one network: what its steps sample, clip, add and divide by."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from understudy.errors import Diverged
from understudy.models.neural import Decoder
from understudy.privacy.gradients.clipping import RowLoss
from understudy.privacy.gradients.dpsgd import ChargedSteps
from understudy.privacy.rows.rows import PrivateUnits
from understudy.progress import Progress
from understudy.run.checkpoint import Slot
from understudy.training import dpsgd
from understudy.training.autoencoder import ReconstructionLoss
from understudy.training.critics import one_hot_blocks
from understudy.training.dpsgd import Descent, train_network
from understudy.training.loop import RunOptions
from understudy.training.neural import Autoencoder, Encoder

BLOCKS = one_hot_blocks((2, 3, 4))
UNITS, RATE, BATCH, STEPS = 400, 0.25, 8, 3
# Plain steps of length one and no average: what is learned is minus the noisy sums over the public batch.
DESCENT = Descent(batch_size=BATCH, optimizer="sgd", ema_decay=0.0, learning_rate=1.0, clip_norm=1.0)


def network() -> Autoencoder:
    encoder_key, decoder_key = jax.random.split(jax.random.key(1))
    return Autoencoder(Encoder(np.full(9, 0.3), (8,), 3, key=encoder_key), Decoder(3, (8,), 9, key=decoder_key))


def trained(
    *, present: bool, clip: float, noise: float, descent: Descent = DESCENT, options: RunOptions | None = None
) -> Any:
    alike = PrivateUnits(jnp.ones((UNITS, 1, 3), jnp.int32), jnp.full((UNITS, 1), present))
    charged = ChargedSteps(alike, jnp.float32(noise), RATE, STEPS)
    batch_key, noise_key = jax.random.split(jax.random.key(2))
    return train_network(
        network(),
        RowLoss(ReconstructionLoss(None, BLOCKS)),
        charged,
        dataclasses.replace(descent, clip_norm=clip),
        batch_key=batch_key,
        noise_key=noise_key,
        options=options or RunOptions(chunk=1),  # every step by itself
        advice="Lower learning_rate.",
    )


def learned(monkeypatch: pytest.MonkeyPatch, *, present: bool, clip: float, noise: float) -> tuple[np.ndarray, list]:
    """The sum over three steps of what they learned, times the batch, and the steps that batches were sampled for."""
    sampled_for, sample = [], dpsgd.sample_step_batches

    def watched(descent: Any, key: Any, steps: Any, first: int, count: int) -> Any:
        sampled_for.append((first, count))
        return sample(descent, key, steps, first, count)

    monkeypatch.setattr(dpsgd, "sample_step_batches", watched)
    after = trained(present=present, clip=clip, noise=noise)
    pairs = zip(*(jax.tree_util.tree_leaves(eqx.filter(it, eqx.is_array)) for it in (network(), after)), strict=True)
    return BATCH * np.concatenate([np.ravel(a - b) for a, b in pairs]), sampled_for


def test_every_step_adds_noise_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an empty table three steps move all arrays by three independent draws: a variance of 3 (2 * 5)^2 is
    accepted, half and twice that, and that of one draw used thrice, are not (fixed key)."""
    moved, drawn_for = learned(monkeypatch, present=False, clip=5.0, noise=2.0)
    assert drawn_for == [(0, 1), (1, 1), (2, 1)]  # never the draw of another step
    pvalues = {n: stats.chi2.sf((moved**2).sum() / (n * 100), moved.size) for n in (1.5, 3, 6, 9)}
    assert 1e-3 < pvalues[3] < 1 - 1e-3
    assert pvalues[1.5] < 1e-3
    assert min(pvalues[6], pvalues[9]) > 1 - 1e-3


def test_a_step_is_a_clipped_sum_over_a_poisson_draw_and_a_public_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    """400 units alike, each clipped: the length of the sum is their number, binomial of rate 1/4 three times, times the
    bound, and it is divided by the batch whatever was drawn. Missed by chance less than once in 100,000 (fixed key)."""
    clip = 1e-3  # networks hardly move, so three sums have one direction
    moved, _ = learned(monkeypatch, present=True, clip=clip, noise=1e-3)
    number = np.linalg.norm(moved) / clip
    assert abs(number - STEPS * RATE * UNITS) < 4.5 * np.sqrt(STEPS * UNITS * RATE * (1 - RATE))


def test_what_diverges_is_stopped_with_advice() -> None:
    wild = Descent(batch_size=BATCH, optimizer="sgd", ema_decay=0.0, learning_rate=1e38, clip_norm=1e4)
    with pytest.raises(Diverged):
        trained(present=True, clip=1e4, noise=1.0, descent=wild)


@pytest.mark.parametrize("ema_decay", [0.9, None])
def test_a_training_that_is_resumed_ends_in_the_same_network(tmp_path: Path, ema_decay: float | None) -> None:
    """After a kill between two steps; `ema_decay=None` is the average of learners."""
    descent = Descent(batch_size=BATCH, learning_rate=0.1, clip_norm=1.0, cosine=True, ema_decay=ema_decay)

    class Killed(BaseException):
        pass

    def kill(done: float, text: str) -> None:
        if done > 0.5:
            raise Killed

    def run(slot: Slot | None, progress: Progress | None = None) -> list[np.ndarray]:
        options = RunOptions(chunk=1, slot=slot, progress=progress)
        after = trained(present=True, clip=1.0, noise=1.0, descent=descent, options=options)
        return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(eqx.filter(after, eqx.is_array))]

    tmp_path.chmod(0o700)
    with pytest.raises(Killed):
        run(Slot(tmp_path, 1, 0.0), kill)
    begun_at: list[float] = []
    resumed = run(Slot(tmp_path, 1, 0.0), lambda done, text: begun_at.append(done))
    assert begun_at[0] == pytest.approx(1 / STEPS)
    for whole, part in zip(run(None), resumed, strict=True):
        np.testing.assert_array_equal(whole, part)
