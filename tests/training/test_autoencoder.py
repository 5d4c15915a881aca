"""The training of an autoencoder: what its steps draw, clip, add and divide by, and codes that are of one row each."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from understudy.encoding.features import Layout, OneHot
from understudy.models.networks import Decoder
from understudy.privacy.dpsgd import ChargedSteps
from understudy.privacy.rows import PrivateUnits
from understudy.training import autoencoder
from understudy.training import gan as training
from understudy.training.autoencoder import Coded, Recipe, random_encoder, train_autoencoder
from understudy.training.critics import one_hot_blocks
from understudy.training.networks import Autoencoder, Encoder

BLOCKS = one_hot_blocks((2, 3, 4))
UNITS, RATE, BATCH, STEPS = 400, 0.25, 8, 3
RECIPE = Recipe(
    # Plain steps of length one and no average: what is learned is minus the noisy sums over the public batch.
    engine=training.Settings(blocks=BLOCKS, batch=BATCH, optimiser="sgd", average=0.0),
    learning_rate=1.0,
)


def learned(monkeypatch: pytest.MonkeyPatch, *, present: bool, clip: float, noise: float) -> tuple[np.ndarray, list]:
    """The sum over three steps of what they learned, times the batch, and the iterations that rows were drawn for."""
    encoder_key, decoder_key = jax.random.split(jax.random.key(1))
    network = Autoencoder(Encoder(np.full(9, 0.3), (8,), 3, key=encoder_key), Decoder(3, (8,), 9, key=decoder_key))
    alike = PrivateUnits(jnp.ones((UNITS, 1, 3), jnp.int32), jnp.full((UNITS, 1), present))
    charged = ChargedSteps(alike, jnp.float32(noise), RATE, STEPS)
    drawn_for = []

    def watched(settings: Any, key: Any, steps: Any, first: int, count: int) -> Any:
        drawn_for.append((first, count))
        return training.batches_of(settings, key, steps, first, count)

    monkeypatch.setattr(autoencoder, "batches_of", watched)
    monkeypatch.setattr(autoencoder, "driven", functools.partial(training.driven, chunk=1))  # every step by itself
    after = train_autoencoder(RECIPE, network, charged, clip=clip, key=jax.random.key(2))
    pairs = zip(*(jax.tree_util.tree_leaves(eqx.filter(it, eqx.is_array)) for it in (network, after)), strict=True)
    return BATCH * np.concatenate([np.ravel(a - b) for a, b in pairs]), drawn_for


def test_every_step_adds_noise_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nobody in the table three steps move all arrays by three independent draws: a variance of 3 (2 * 5)^2 is
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


def test_the_code_of_a_row_does_not_depend_on_others() -> None:
    """To the last digit: whoever stands before it, and in whatever company it is encoded."""
    sizes, num_rows = (100, 200, 30), autoencoder.AT_ONCE + 1
    draw = np.random.default_rng(0)
    codes = np.stack([draw.integers(0, size, num_rows) for size in sizes], axis=1).astype(np.int32)
    positions = np.full(codes.shape, np.nan)
    encoder = random_encoder(np.full(sum(sizes), 0.1), (), 5, key=jax.random.key(0))
    shown = Coded(Layout(tuple(map(OneHot, sizes))), encoder)
    whole = shown.encode(codes, positions, jax.random.key(1))
    np.testing.assert_array_equal(whole[1:], shown.encode(codes[1:], positions[1:], jax.random.key(1)))
    np.testing.assert_array_equal(whole[-3:], shown.encode(codes[-3:], positions[-3:], jax.random.key(1)))
    assert shown.encode(codes[:0], positions[:0], jax.random.key(1)).shape == (0, 5)
