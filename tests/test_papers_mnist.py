"""The boosting paper's MNIST experiments, in small: what images go through is what rows of a table go through."""

import dataclasses
import gzip
import hashlib
import json
import math
import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from understudy.errors import BudgetExceeded, TableError
from understudy.privacy.gradients.clipping import Clip, add_noise, clipped_sum, unit_loss
from understudy.privacy.gradients.dpsgd import ChargedSteps, noisy_gradient
from understudy.privacy.gradients.ghost import has_rules
from understudy.privacy.gradients.poisson import Batches
from understudy.synthesizers.boosted.game import evaluate_critics
from understudy.training.critics import LOSSES, row_loss
from understudy.training.gan import batches_of
from understudy.training.generation import generate

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.papers.pgb import mnist, mnist_budget, mnist_images, mnist_networks, mnist_page

SMOKE = mnist_budget.PROFILES["smoke"]
SETTINGS = SMOKE.settings(600, private=True)
needs_images = pytest.mark.skipif(not mnist_networks.has_images(), reason="no folder with mnist.npz")


def images(count: int, seed: int = 0) -> np.ndarray:
    """Bright strokes on black, as bytes."""
    draw = np.random.default_rng(seed)
    shown = draw.integers(0, 256, (count, mnist_networks.PIXELS)) * (draw.random((count, mnist_networks.PIXELS)) < 0.2)
    return shown.astype(np.uint8)


# ------------------------------------------------------------------------------------------------------- images, layers


def test_bytes_survive() -> None:
    codes = np.arange(256, dtype=np.uint8)
    features = mnist_networks.features_of(codes)
    assert (float(features.min()), float(features.max())) == (-1.0, 1.0)
    np.testing.assert_array_equal(mnist_networks.codes_of(features), codes)
    units = mnist_budget.units_of(images(5))
    assert units._rows.shape == (5, 1, mnist_networks.PIXELS)
    assert units._rows.dtype == jnp.float32
    assert bool(units._present.all())
    np.testing.assert_array_equal(mnist_networks.codes_of(units._rows[:, 0]), images(5))


def test_the_layer_is_a_convolution() -> None:
    layer = mnist_networks.Down(3, 5, key=jax.random.key(0))
    image = jax.random.normal(jax.random.key(1), (14, 14, 3))
    # Patches come as (row of squares, column of squares, row in a square, column in it, channel).
    kernel = layer.weight.reshape(5, 2, 2, 2, 2, 3).transpose(1, 3, 2, 4, 5, 0).reshape(4, 4, 3, 5)
    expected = jax.lax.conv_general_dilated(
        image[None], kernel, (2, 2), ((1, 1), (1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC"), precision="highest"
    )[0]
    np.testing.assert_allclose(layer(image), expected, atol=1e-5)


def test_the_other_layer_is_its_transpose() -> None:
    down, up = mnist_networks.Down(3, 5, key=jax.random.key(0)), mnist_networks.Up(5, 3, key=jax.random.key(1))
    up = eqx.tree_at(lambda layer: layer.weight, up, down.weight.T)
    x, y = (jax.random.normal(jax.random.key(n), shape) for n, shape in ((2, (14, 14, 3)), (3, (7, 7, 5))))
    np.testing.assert_allclose(jnp.vdot(down(x), y), jnp.vdot(x, up(y)), rtol=1e-4)


@pytest.mark.slow
def test_generated_images_are_images() -> None:
    generator = mnist_networks.Generator(SMOKE.latent, (8, 4), key=jax.random.key(0))
    features = generate(SETTINGS, generator, 7, jax.random.key(1))[1]
    assert features.shape == (7, mnist_networks.PIXELS)
    assert float(jnp.abs(features).max()) <= 1
    made = mnist.sampler(SMOKE, 600)(generator, 120, jax.random.key(1))
    assert made.shape == (120, mnist_networks.PIXELS)
    assert made.dtype == np.uint8
    assert made.std() > 1


# -------------------------------------------------------------------------------------------------------------- privacy


def _vector(tree: Any) -> np.ndarray:
    leaves = jax.tree_util.tree_leaves(eqx.filter(tree, eqx.is_array))
    return np.concatenate([np.asarray(leaf, dtype=np.float64).ravel() for leaf in leaves])


@pytest.fixture(scope="module")
def critic() -> mnist_networks.Critic:
    return mnist_networks.Critic((4, 8), key=jax.random.key(5))


def _clipped(
    critic: mnist_networks.Critic, codes: np.ndarray, clip: float, taken: Sequence[bool] | None = None
) -> np.ndarray:
    units, loss = mnist_budget.units_of(codes), row_loss(LOSSES["kl_wgan"], SETTINGS.blocks, None, paired=False)
    given = (units._rows, units._present, None, jax.random.split(jax.random.key(0), len(codes)))
    mask = jnp.ones(len(codes), bool) if taken is None else jnp.asarray(taken)
    summed = clipped_sum(unit_loss(loss), critic, given, mask, Clip.flat(clip))
    return _vector(add_noise(*summed, Clip.flat(clip), noise_multiplier=0.0, key=jax.random.key(0)).gradient)


@pytest.mark.slow
def test_every_image_is_clipped(critic: mnist_networks.Critic) -> None:
    """Each image's part is its own gradient, shortened to the bound where it is longer."""
    codes, clip = images(6), 0.5

    def loss(network: mnist_networks.Critic, row: jax.Array) -> jax.Array:
        return jax.nn.relu(1 - network(row))

    assert not has_rules(critic)
    expected = []
    for row in mnist_networks.features_of(codes):
        gradient = _vector(eqx.filter_grad(loss)(critic, row))
        expected.append(gradient * min(1.0, clip / float(np.linalg.norm(gradient))))
    assert max(float(np.linalg.norm(each)) for each in expected) > 0.999 * clip
    np.testing.assert_allclose(_clipped(critic, codes, clip), sum(expected), rtol=0.01, atol=1e-3 * clip)
    for number in range(len(codes)):
        alone = _clipped(critic, codes, clip, [at == number for at in range(len(codes))])
        without = _clipped(critic, codes, clip, [at != number for at in range(len(codes))])
        assert np.linalg.norm(alone) <= clip
        assert np.linalg.norm(_clipped(critic, codes, clip) - without) <= clip


@pytest.mark.slow
def test_noise_is_that_of_the_bound() -> None:
    """An empty draw gives noise alone: its mean square is within 5 standard deviations (false alarms: 6e-7)."""
    critic = mnist_networks.Critic((16, 32), key=jax.random.key(5))
    loss = row_loss(LOSSES["kl_wgan"], SETTINGS.blocks, None, paired=False)
    charged = ChargedSteps(mnist_budget.units_of(images(10)), jnp.float32(0.6), 1.0, 1)
    nobody = Batches(jnp.zeros((1, 8), jnp.int32), jnp.zeros((1, 8), bool))
    noisy, _ = noisy_gradient(charged, loss, critic, Clip.flat(0.5), batch=nobody, key=jax.random.key(3))
    scaled = _vector(noisy) / 0.3
    assert abs(np.mean(scaled**2) - 1) < 5 * math.sqrt(2 / len(scaled))


def test_draws_are_poisson() -> None:
    """Sizes of 4,000 draws have the binomial's mean and variance, within 5 standard deviations (false alarms: 1e-6)."""
    steps, rate = 4000, mnist_budget.sampling_rate(SMOKE, 600)
    charged = ChargedSteps(mnist_budget.units_of(images(600)), jnp.ones(()), rate, steps)
    batches = batches_of(SETTINGS, jax.random.key(0), charged, 0, steps)
    sizes = np.asarray(batches._taken).reshape(steps, -1).sum(axis=1)
    expected = 600 * rate
    spread = expected * (1 - rate)
    assert abs(sizes.mean() - expected) < 5 * math.sqrt(spread / steps)
    assert abs(sizes.var() / spread - 1) < 5 * math.sqrt(2 / steps)
    assert expected == pytest.approx(SMOKE.batch, rel=1e-3)


@pytest.mark.slow
def test_both_releases_cost_ten() -> None:
    assert 9.9 < mnist_budget.paid_for_training(SMOKE, 600) <= 10
    with pytest.raises(BudgetExceeded):
        mnist_budget.paid_for_training(dataclasses.replace(SMOKE, noise=0.98 * SMOKE.noise), 600)
    _, spent = mnist_budget.private_pick(SMOKE, _by_brightness, 2, images(600), 0)
    assert spent["epsilon, training"] < spent["epsilon, with picks"] <= 10


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [("smoke", 600), ("paper", 60_000)])
def test_profiles_are_calibrated(name: str, size: int) -> None:
    """The accountant's search ends within a hair of the noise that is written down."""
    profile = mnist_budget.PROFILES[name]
    np.testing.assert_allclose(mnist_budget.calibrated(profile, size), (profile.noise, profile.picks), rtol=1e-3)


def _by_brightness(codes: np.ndarray) -> np.ndarray:
    share = np.asarray(codes, dtype=np.float64).mean(axis=1) / 255
    return np.stack([share, 1 - share], axis=1)


def test_selections_without_an_accountant_follow_the_same_law() -> None:
    """Counts of 40 seeds, by chi-square: one false alarm in 10^4."""
    codes, public, found = images(600), np.asarray([0.1, 0.9, 0.5]), np.zeros((2, 3), int)
    real = evaluate_critics(_by_brightness, 2, codes)
    for seed in range(40):
        both = (
            mnist_budget.private_pick(SMOKE, _by_brightness, 2, codes, seed)[0],
            mnist_budget.unpriced_pick(SMOKE, real, seed),
        )
        for number, pick in enumerate(both):
            for _ in range(SMOKE.rounds):
                found[number, pick(public)] += 1
    met = found[:, found.sum(axis=0) > 0]
    assert met.shape[1] > 1
    assert stats.chi2_contingency(met).pvalue > 1e-4


# ------------------------------------------------------------------------------------------------------------ the whole


def test_inception_score() -> None:
    assert mnist_networks.inception_score(np.eye(10).repeat(3, axis=0)) == pytest.approx(10)
    assert mnist_networks.inception_score(np.full((5, 10), 0.1)) == pytest.approx(1)
    assert mnist_networks.inception_score(np.eye(10)[[0, 0, 1, 1]]) == pytest.approx(2)


@pytest.mark.slow
def test_a_private_run(tmp_path: Path) -> None:
    """All but the classifier, on made-up images; only PGB keeps to the first part of the training."""

    def predict(codes: np.ndarray) -> np.ndarray:
        return np.random.default_rng(0).dirichlet(np.ones(10), len(codes))

    profile = dataclasses.replace(SMOKE, adaptive="public")
    result, grids = mnist.one(profile, "epsilon 10", images(600), predict, 0)
    assert [at for at, _, _ in result["checkpoints"]] == [4, 8]
    assert sum(weight for _, _, weight in result["checkpoints"]) == pytest.approx(1)
    assert max(result["epsilon, GAN"], result["epsilon, with picks"]) <= 10
    mnist_page.write(tmp_path, SMOKE, [result], {"accuracy": 0.5, "real": 9.0}, {"epsilon 10": grids})
    text = (tmp_path / "pgb_mnist.md").read_text()
    assert "| PGB+DRS, published | 8.66 |" in text
    assert text.count(", here |") == 4
    assert (tmp_path / "pgb_mnist_epsilon_10.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "pgb_mnist.jsonl").read_text())["GAN"]["images"] == SMOKE.scored


@needs_images
@pytest.mark.slow
def test_the_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["mnist.py", "--out", str(tmp_path)])
    mnist.main()
    lines = [json.loads(line) for line in (tmp_path / "pgb_mnist.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == list(mnist_page.PUBLISHED)
    assert lines[0]["classifier"]["accuracy"] > 0.3
    assert len(os.listdir(tmp_path)) == 4
    assert "## Not private" in capsys.readouterr().out


# --------------------------------------------------------------------------------------------------------------- images


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@needs_images
@pytest.mark.slow
def test_images_are_made_from_the_published_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = mnist_images.load_images()
    assert [array.shape for array in arrays.values()] == [(60_000, 28, 28), (60_000,), (10_000, 28, 28), (10_000,)]
    assert arrays["y_train"][:5].tolist() == [5, 0, 4, 1, 9]
    raw = idx_bytes(arrays["x_train"])
    assert hashlib.md5(raw).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"  # of the file as it is known
    for name, file in mnist_images.FILES.items():
        (tmp_path / file).write_bytes(gzip.compress(idx_bytes(arrays[name]), 1))
    monkeypatch.setenv("UNDERSTUDY_DATA", str(tmp_path))
    assert mnist_images.fetch_images(tmp_path.as_uri()) == tmp_path / "mnist.npz"
    fetched = mnist_images.load_images()
    assert all(np.array_equal(fetched[name], arrays[name]) for name in arrays)


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(b"\0\0\x08\x01\0\0\0\5abc", mtime=0)])
def test_files_that_are_not_images_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setenv("UNDERSTUDY_DATA", str(tmp_path))
    with pytest.raises(TableError, match=r"mnist_images\.py"):
        mnist_images.load_images()
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(content)
    with pytest.raises(TableError, match=r"train-images-idx3-ubyte\.gz (cannot be fetched|is not an IDX file)"):
        mnist_images.fetch_images(tmp_path.as_uri())
    assert not (tmp_path / "mnist.npz").exists()
