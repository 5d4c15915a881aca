"""Pools of weighted rows, and models in equal parts."""

import jax
import numpy as np
import pytest
from scipy import stats

from understudy.encoding.features import Block, Layout, Modes, OneHot, num_features
from understudy.errors import ConditionError
from understudy.models.generator import GeneratorModel
from understudy.models.neural import Generator
from understudy.models.pool import Mixture, Pool, draw_indices

LAYOUT = Layout((OneHot(3), Modes((0.0, 0.25, 1.0), None, True, (), (0.3, 0.5), (0.15, 0.2), (0.5, 0.5))))


def test_draws_follow_the_weights() -> None:
    weights = np.asarray([0.5, 0.0, 0.2, 0.3])
    counts = np.bincount(draw_indices(weights, 100_000, np.random.default_rng(0)), minlength=4)
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]], 100_000 * weights[[0, 2, 3]]).pvalue > 1e-4
    assert stats.chisquare(counts[[0, 2, 3]], 100_000 * np.asarray([0.48, 0.2, 0.32])).pvalue < 1e-4


def test_a_pool_draws_by_weight_and_condition() -> None:
    pool = Pool(("a", "b"), np.asarray([[0, 0], [1, 1], [1, 2]]), np.asarray([0.5, 0.4, 0.1]))
    found = pool.sample(20_000, key=jax.random.key(0)).codes
    assert abs(np.mean(found[:, 0] == 0) - 0.5) < 5 * 0.0036
    given_one = pool.sample(20_000, key=jax.random.key(0), allowed={"a": np.asarray([False, True])}).codes
    assert set(given_one[:, 0]) == {1}
    assert abs(np.mean(given_one[:, 1] == 1) - 0.8) < 5 * 0.0029
    with pytest.raises(ConditionError):
        pool.sample(1, key=jax.random.key(0), allowed={"b": np.asarray([False] * 3)})
    structure, arrays = pool.to_arrays()
    again = Pool.from_arrays(structure, arrays)
    np.testing.assert_array_equal(
        again.sample(50, key=jax.random.key(1)).codes, pool.sample(50, key=jax.random.key(1)).codes
    )
    with pytest.raises(ValueError, match="weights for 2 columns"):
        Pool.from_arrays(structure, {**arrays, "weights": arrays["weights"][:2]})


def small_generator(seed: int) -> GeneratorModel:
    blocks = (Block("one_hot", 2), Block("one_hot", 3))
    net = Generator(4, 0, (8,), num_features(blocks), key=jax.random.key(seed))
    return GeneratorModel(net, "residual", ("a", "b"), blocks, 4, (8,))


def test_a_mixture_takes_equal_parts_and_comes_back_from_arrays() -> None:
    model = Mixture((small_generator(0), small_generator(1), small_generator(2)))
    assert model.sample(100, key=jax.random.key(0)).codes.shape == (100, 2)
    again = Mixture.from_arrays(*model.to_arrays())
    np.testing.assert_array_equal(
        again.sample(100, key=jax.random.key(3)).codes, model.sample(100, key=jax.random.key(3)).codes
    )
    only = model.sample(100, key=jax.random.key(0), allowed={"b": np.asarray([True, False, False])}).codes
    assert set(only[:, 1]) == {0}


def test_a_pool_keeps_the_positions_of_its_rows() -> None:
    generator = np.random.default_rng(3)
    codes = generator.integers(3, size=(30, 2)).astype(np.int32)
    along = np.where(codes[:, 1] == 2, np.nan, generator.random(30))
    positions = np.stack([np.full(30, np.nan), along], axis=1)
    pool = Pool(("city", "income"), codes, np.linspace(1, 2, 30), positions)
    again = Pool.from_arrays(*pool.to_arrays())
    assert again.to_arrays()[1]["positions"].shape == (30, 1)  # of the numbers alone
    for one, two in zip(pool.sample(200, key=jax.random.key(0)), again.sample(200, key=jax.random.key(0)), strict=True):
        np.testing.assert_array_equal(one, two)
    both = {(code, at) for (_, code), (_, at) in zip(codes, positions, strict=True) if at == at}
    found = again.sample(200, key=jax.random.key(0))
    assert found.positions is not None
    pairs = zip(found.codes[:, 1], found.positions[:, 1], strict=True)
    assert {(code, at) for code, at in pairs if at == at} <= both
    assert np.array_equal(np.isnan(found.positions[:, 1]), found.codes[:, 1] == 2)
    few = pool.only(np.asarray([3, 4]))
    np.testing.assert_array_equal(few.weights, [0.5, 0.5])
    structure, arrays = pool.to_arrays()
    with pytest.raises(ValueError, match="positions of shape"):
        Pool.from_arrays(structure, {**arrays, "positions": arrays["positions"][:7]})


def test_a_mixture_keeps_codes_and_positions_together() -> None:
    parts = tuple(
        GeneratorModel(
            Generator(4, 0, (8,), num_features(LAYOUT.blocks), key=jax.random.key(seed)),
            "residual",
            ("city", "income"),
            LAYOUT.blocks,
            4,
            (8,),
            layout=LAYOUT,
        )
        for seed in range(2)
    )
    again = Mixture.from_arrays(*Mixture(parts).to_arrays())
    for allowed in (None, {"city": np.asarray([True, False, True])}):
        codes, positions = again.sample(101, key=jax.random.key(3), allowed=allowed)
        assert positions is not None
        assert codes.shape == positions.shape == (101, 2)
        present = codes[:, 1] < 2
        np.testing.assert_array_equal(np.searchsorted([0.25], positions[present, 1], side="right"), codes[present, 1])
        assert np.isnan(positions[~present, 1]).all()
        np.testing.assert_array_equal(codes, again.sample(101, key=jax.random.key(3), allowed=allowed).codes)
