"""Autoencoders: codes that are of one row each."""

import jax
import numpy as np

from understudy.encoding.features import Layout, OneHot
from understudy.training import autoencoder
from understudy.training.autoencoder import Coded, random_encoder


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
