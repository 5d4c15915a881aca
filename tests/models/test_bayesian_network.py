"""Bayesian networks: rows follow the conditionals, and damaged ones are refused."""

import jax
import numpy as np
import pytest
from scipy import stats

from understudy.models.bayesian_network import BayesianNetwork

GIVEN = np.asarray([[[0.1, 0.9], [0.5, 0.5]], [[0.0, 1.0], [0.7, 0.3]], [[1.0, 0.0], [0.25, 0.75]]])
"""Probabilities of column b, of two codes, given c (three codes) and a (two codes)."""
NETWORK = BayesianNetwork(
    ("a", "b", "c"),
    (2, 2, 3),
    (2, 0, 1),
    ((2,), (2, 0), ()),
    (np.asarray([[0.3, 0.7], [0.6, 0.4], [0.5, 0.5]]), GIVEN, np.asarray([0.2, 0.3, 0.5])),
)


def joint() -> np.ndarray:
    """P(a, b, c) by the definition."""
    return np.einsum("ca,cab,c->abc", NETWORK.conditionals[0], GIVEN, NETWORK.conditionals[2])


def test_rows_follow_the_product_of_conditionals() -> None:
    codes = NETWORK.sample(60_000, key=jax.random.key(0)).codes
    found = np.histogramdd(codes, bins=[np.arange(size + 1) for size in NETWORK.sizes])[0]
    expected = 60_000 * joint()
    assert found[expected == 0].sum() == 0
    assert stats.chisquare(found[expected > 0], expected[expected > 0]).pvalue > 1e-4


def test_conditions_are_met_in_the_conditional_distribution() -> None:
    allowed = {"b": np.asarray([False, True])}
    codes = NETWORK.sample(30_000, key=jax.random.key(1), allowed=allowed).codes
    law = joint()[:, 1].sum(axis=0)
    found = np.bincount(codes[:, 2], minlength=3)
    assert set(codes[:, 1]) == {1}
    assert stats.chisquare(found, 30_000 * law / law.sum()).pvalue > 1e-4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"order": [0, 1, 2]}, "comes after it"),
        ({"order": [0, 0, 2]}, "order"),
        ({"sizes": [2, 2, 4]}, "shape"),
        ({"parents": [[2], [2, 0]]}, "lists of parents"),
    ],
)
def test_damaged_networks_are_refused(change: dict[str, object], words: str) -> None:
    structure, arrays = NETWORK.to_arrays()
    with pytest.raises((ValueError, LookupError), match=words):
        BayesianNetwork.from_arrays({**structure, **change}, arrays)


def test_probabilities_must_be_probabilities() -> None:
    structure, arrays = NETWORK.to_arrays()
    for bad in (np.full(3, np.nan), np.asarray([-1.0, 1.0, 1.0]), np.zeros(3)):
        with pytest.raises(ValueError, match="probabilities"):
            BayesianNetwork.from_arrays(structure, {**arrays, "conditional_2": bad})
