"""Mixtures of products: rows have the model's law, with a condition and without."""

import math

import jax
import numpy as np
import pytest
from scipy import stats

from understudy.errors import ConditionError
from understudy.models.mixture import MixtureOfProducts
from understudy.models.pool import Mixture, Pool, mix

NAMES, SIZES = ("a", "b", "t", "c"), (3, 4, 2, 5)


def heads(num_components: int, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return np.concatenate([draw.dirichlet(np.ones(size), num_components) for size in SIZES], axis=1).astype(np.float32)


def test_every_row_has_the_law_of_the_model() -> None:
    """Also the first of a sample, which is drawn evenly: over 3,000 keys, within 4.5 standard errors (one run in
    150,000 would not be)."""
    model = MixtureOfProducts(("a",), (3,), np.asarray([[0.2, 0.3, 0.5]]))
    first = np.asarray([model.sample(7, key=jax.random.key(at)).codes[0, 0] for at in range(3000)])
    for level, share in enumerate((0.2, 0.3, 0.5)):
        assert abs(np.mean(first == level) - share) < 4.5 * math.sqrt(share * (1 - share) / 3000)


@pytest.mark.parametrize("components", [1, 40, 4000])
def test_even_draws_keep_columns_independent_within_components(components: int) -> None:
    """Shares are met nearly to the row, and pairs are left to chance: a correlation of 4,000 rows stays within 4.5
    standard errors (one run in 150,000 would not), with few rows in a component as with many."""
    draw = np.random.default_rng(0)
    ones = np.full((components, 3), 0.3) if components < 4000 else np.clip(draw.normal(0.3, 0.001, (4000, 3)), 0, 1)
    model = MixtureOfProducts(("a", "b", "c"), (2, 2, 2), np.stack([1 - ones, ones], axis=2).reshape(components, 6))
    codes = model.sample(4000, key=jax.random.key(0)).codes
    assert (
        np.abs(codes.sum(axis=0) - 4000 * ones.mean(axis=0)).max() < 12
    )  # independent draws: 29 is one standard error
    correlations = np.corrcoef(codes.T)[np.triu_indices(3, 1)]
    assert np.abs(correlations).max() < 4.5 / math.sqrt(4000)


def test_conditions_are_met_exactly() -> None:
    """Rows that meet a condition have the law of all rows, given it; chi-square tests err once in a thousand."""
    model = MixtureOfProducts(NAMES, SIZES, heads(20))
    allowed = {"a": np.asarray([True, False, True]), "c": np.asarray([False, True, True, False, False])}
    codes = model.sample(20_000, key=jax.random.key(0), allowed=allowed).codes
    assert all(mask[codes[:, NAMES.index(name)]].all() for name, mask in allowed.items())
    columns = dict(zip(NAMES, np.split(model.probabilities.astype(float), np.cumsum(SIZES)[:-1], axis=1), strict=True))
    joint = np.einsum("ri,rj->ij", columns["b"], columns["t"] * 0 + columns["t"])
    kept = columns["a"][:, [0, 2]].sum(1) * columns["c"][:, [1, 2]].sum(1)
    joint = np.einsum("r,ri,rj->ij", kept, columns["b"], columns["t"])
    found = np.bincount(codes[:, 1] * 2 + codes[:, 2], minlength=8)
    assert stats.chisquare(found, 20_000 * joint.reshape(-1) / joint.sum()).pvalue > 1e-3
    with pytest.raises(ConditionError):
        model.sample(1, key=jax.random.key(0), allowed={"a": np.zeros(3, dtype=bool)})


def test_models_are_saved_and_refused() -> None:
    model = MixtureOfProducts(NAMES, SIZES, heads(20))
    structure, arrays = model.to_arrays()
    again = MixtureOfProducts.from_arrays(structure, arrays)
    assert np.array_equal(again.sample(50, key=jax.random.key(3)).codes, model.sample(50, key=jax.random.key(3)).codes)
    for broken in (arrays["probabilities"][:, 1:], np.full((2, 14), np.nan), np.full((2, 14), -1.0), np.zeros((0, 14))):
        with pytest.raises(ValueError, match="probabilities"):
            MixtureOfProducts.from_arrays(structure, {"probabilities": broken})


def test_products_in_equal_parts_are_products() -> None:
    """Half of the rows from each of two laws; one is left as it is, and other models make a mixture."""
    laws = [
        MixtureOfProducts(("a", "b"), (2, 2), np.tile(np.asarray(row, np.float32), (3, 1)))
        for row in ([1, 0, 0, 1], [0, 1, 0, 1])
    ]
    both = mix(laws)
    assert isinstance(both, MixtureOfProducts)
    assert np.bincount(both.sample(600, key=jax.random.key(0)).codes[:, 0]).tolist() == [300, 300]
    assert mix(laws[:1]) is laws[0]
    assert isinstance(mix([*laws, Pool(("a", "b"), np.zeros((1, 2), np.int32), np.ones(1))]), Mixture)
