"""The generator stage: its loss is that of the marginals, it reproduces them, and each counts by its precision."""

import dataclasses
import itertools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from understudy.errors import Diverged
from understudy.marginals import generator as module
from understudy.marginals.estimation import Measurement, estimate
from understudy.marginals.generator import (
    GeneratorSettings,
    cut_into_tiles,
    estimate_generator,
    squared_dependence,
)
from understudy.models import Model
from understudy.models.mixture import MixtureOfProducts
from understudy.models.protocol import MODELS
from understudy.schema import Domain
from understudy.training.critics import one_hot_blocks

SIZES = (3, 11, 2, 70)
DOMAIN = Domain(names=("a", "b", "c", "d"), sizes=SIZES, num_rows=1000)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unshrunk(GeneratorSettings):
    shrinkage: ClassVar[float] = 0.0


QUICK = Unshrunk(steps=300, components=100, width=32, depth=1, latent=8, learning_rate=0.02)
KEY = jax.random.key(0)


def mixture(components: int = 7, *, seed: int = 0) -> MixtureOfProducts:
    draw = np.random.default_rng(seed)
    parts = [draw.dirichlet(np.ones(size), components) for size in SIZES]
    return MixtureOfProducts(DOMAIN.names, SIZES, np.concatenate(parts, axis=1))


def brute_force(model: MixtureOfProducts, clique: tuple[str, ...]) -> np.ndarray:
    ends = np.cumsum([0, *SIZES])
    total = np.zeros(DOMAIN.shape(clique))
    for component in model.probabilities:
        at = [DOMAIN.index(name) for name in clique]
        columns = [component[ends[i] : ends[i + 1]] for i in at]
        for cell in itertools.product(*(range(SIZES[i]) for i in at)):
            total[cell] += np.prod([column[code] for column, code in zip(columns, cell, strict=True)])
    return total / len(model.probabilities)


CLIQUES = [("a",), ("d",), ("a", "c"), ("d", "b"), ("b", "a", "c"), ("c", "d", "a", "b")]


@pytest.mark.parametrize("clique", CLIQUES)
def test_marginals_of_a_mixture(clique: tuple[str, ...]) -> None:
    (found,) = mixture().marginals([clique])
    np.testing.assert_allclose(found, brute_force(mixture(), clique), atol=1e-12)


def test_the_loss_of_tiles_is_that_of_the_marginals() -> None:
    """Columns shorter and longer than a tile, cliques of one to four, in any order; noise by table or by cell."""
    draw, model, total = np.random.default_rng(1), mixture(), 500.0
    noise: list[Any] = [3.0, draw.uniform(2, 9, 70), 5.0, 2.0, draw.uniform(2, 9, (11, 3, 2)), 4.0]
    measured = [Measurement(c, draw.uniform(0, 50, DOMAIN.shape(c)), s) for c, s in zip(CLIQUES, noise, strict=True)]
    expected = sum(
        (((total * brute_force(model, clique) - counts) / stddev) ** 2).sum() for clique, counts, stddev in measured
    ) / sum(counts.size for _, counts, _ in measured)
    found = cut_into_tiles(DOMAIN, measured, total).loss(jnp.asarray(model.probabilities), KEY)
    assert float(found) == pytest.approx(expected, rel=1e-4)


def test_a_part_of_the_tiles_estimates_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 400 draws of a quarter of the tiles, whose mean errs by about 1%; 4 standard errors."""
    draw, model = np.random.default_rng(1), jnp.asarray(mixture().probabilities)
    tiles = cut_into_tiles(DOMAIN, [Measurement(("b", "d"), draw.uniform(0, 9, (11, 70)), 3.0)] * 20, 500.0)
    whole = float(tiles.loss(model, KEY))
    count, height, width = tiles.noisy.shape
    monkeypatch.setattr(module, "NUMBERS_AT_ONCE", count // 4 * len(model) * (height + width))
    parts = np.asarray(jax.vmap(lambda key: tiles.loss(model, key))(jax.random.split(KEY, 400)))
    assert abs(parts.mean() - whole) < 4 * parts.std() / 20
    assert parts.std() > 0


def test_dependence_is_the_distance_from_independence(monkeypatch: pytest.MonkeyPatch) -> None:
    model, blocks = mixture(), one_hot_blocks(SIZES)
    one_way = {name: brute_force(model, (name,)) for name in DOMAIN.names}
    expected = sum(
        ((brute_force(model, (a, b)) - np.outer(one_way[a], one_way[b])) ** 2).sum()
        for a, b in itertools.combinations(DOMAIN.names, 2)
    )
    probabilities = jnp.asarray(model.probabilities)
    assert float(squared_dependence(probabilities, blocks, KEY)) == pytest.approx(expected, rel=1e-4)
    monkeypatch.setattr(module, "FEATURES_AT_ONCE", 60)
    some = jax.vmap(lambda key: squared_dependence(probabilities, blocks, key))(jax.random.split(KEY, 400))
    assert abs(np.mean(some) - expected) < 4 * np.std(some) / 20 + 0.02 * expected  # drawn without replacement


# ------------------------------------------------------------------------------------------------------------- the fit


SMALL = Domain(names=("x", "y", "z"), sizes=(2, 3, 2), num_rows=1000)


def small_table() -> np.ndarray:
    """The joint counts of three columns that depend on each other."""
    return np.asarray([[[200.0, 20], [30, 150], [50, 50]], [[40, 60], [100, 0], [100, 200]]])


def of_small(clique: tuple[str, ...]) -> np.ndarray:
    kept = [SMALL.index(name) for name in clique]
    return np.transpose(small_table().sum(axis=tuple(set(range(3)) - set(kept))), np.argsort(np.argsort(kept)))


def test_consistent_marginals_are_reproduced() -> None:
    """Within half a per cent of the rows, 3-way too; a graphical model of the same measurements agrees."""
    cliques = [("x",), ("y",), ("z",), ("x", "y"), ("z", "y"), ("x", "y", "z")]
    measured = [Measurement(clique, of_small(clique), 1.0) for clique in cliques]
    model = estimate_generator(SMALL, measured, total=1000, settings=QUICK, key=KEY)[-1].model
    graphical = estimate(SMALL, measured, total=1000)
    for clique, found in zip(cliques, model.marginals(cliques), strict=True):
        np.testing.assert_allclose(1000 * found, of_small(clique), atol=5)
        np.testing.assert_allclose(1000 * found, graphical.marginal(clique), atol=5)


def test_contradictory_measurements_count_by_their_precision() -> None:
    """Of 0.5 with noise 10 and 0.9 with noise 20, the mean by inverse variance is 0.58."""
    measured = [
        Measurement(("x",), np.array([500.0, 500.0]), 10.0),
        Measurement(("x",), np.array([900.0, 100.0]), 20.0),
    ]
    (found,) = estimate_generator(SMALL, measured, total=1000, settings=QUICK, key=KEY)[-1].model.marginals([("x",)])
    assert found[0] == pytest.approx(0.58, abs=0.005)


def test_columns_that_were_not_measured_together_stay_independent() -> None:
    """Two pairs, each of equal columns: without shrinkage, one component for each pair would do."""
    domain = Domain(names=tuple("abcd"), sizes=(2,) * 4, num_rows=1000)
    same = np.array([[500.0, 0], [0, 500]])
    measured = [Measurement(("a", "b"), same, 5.0), Measurement(("c", "d"), same, 5.0)]
    settings = GeneratorSettings(**vars(QUICK))
    model = estimate_generator(domain, measured, total=1000, settings=settings, key=KEY)[-1].model
    together, *apart = model.marginals([("a", "b"), ("a", "c"), ("b", "d")])
    np.testing.assert_allclose(together, same / 1000, atol=0.03)
    np.testing.assert_allclose(apart, 0.25, atol=0.03)


def test_a_warm_start_goes_on_from_the_model() -> None:
    measured = [Measurement(("x", "y"), of_small(("x", "y")), 1.0)]
    first = estimate_generator(SMALL, measured, total=1000, settings=QUICK, key=KEY)[-1]
    brief = dataclasses.replace(QUICK, steps=3, learning_rate=1e-4)

    def error(model: MixtureOfProducts) -> float:
        return float(np.abs(1000 * model.marginals([("x", "y")])[0] - of_small(("x", "y"))).max())

    warm = estimate_generator(SMALL, measured, total=1000, settings=brief, key=KEY, warm_start=first)[-1].model
    cold = estimate_generator(SMALL, measured, total=1000, settings=brief, key=KEY)[-1].model
    assert error(warm) < 5 < 50 < error(cold)


def test_it_is_saved_as_a_mixture() -> None:
    measured = [Measurement(("x",), of_small(("x",)), 1.0)]
    brief = dataclasses.replace(QUICK, steps=2)
    model: Model = estimate_generator(SMALL, measured, total=1000, settings=brief, key=KEY)[-1].model
    loaded = MODELS[model.kind].from_arrays(*model.to_arrays())
    assert type(loaded) is MixtureOfProducts
    assert loaded.sample(9, key=KEY).codes.tolist() == model.sample(9, key=KEY).codes.tolist()


def test_new_measurements_need_no_new_program() -> None:
    """285 columns: below the next power of two of tiles, arrays keep their shapes, so nothing is compiled again."""
    domain = Domain(names=tuple(f"c{i}" for i in range(285)), sizes=(2,) * 285, num_rows=1000)
    settings = GeneratorSettings(steps=2, components=8, width=4, depth=1, latent=2)
    measured = [Measurement(clique, np.array([600.0, 400.0]), 5.0) for clique in domain.one_way]
    measured += [Measurement(c, np.full((2, 2), 250.0), 5.0) for c in itertools.combinations(domain.names[:20], 2)]
    measured += [Measurement(domain.names[:3], np.full((2, 2, 2), 125.0), 5.0)]
    shapes = {
        tuple(leaf.shape for leaf in jax.tree_util.tree_leaves(cut_into_tiles(domain, measured[:count], 1000.0)))
        for count in (285, 300, 475, 476)
    }
    assert len(shapes) == 1
    model = estimate_generator(domain, measured, total=1000, settings=settings, key=KEY)[-1].model
    assert np.isfinite(model.probabilities).all()


def test_divergence_is_refused() -> None:
    measured = [Measurement(("x", "y"), of_small(("x", "y")), 1.0)]
    wild = dataclasses.replace(QUICK, learning_rate=1e38)
    with pytest.raises(Diverged):
        estimate_generator(SMALL, measured, total=1000, settings=wild, key=KEY)
