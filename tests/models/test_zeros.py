"""Masks of columns that are drawn in order, against the table of all possible rows."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import scaled
from tests.joint_tables import count_impossible, fit_pvalue, is_possible, make_domain
from understudy.encoding.features import Block
from understudy.models import zeros as zeros_module
from understudy.models.neural import activate, block_log_softmax, log_possible, sample_codes, sample_features
from understudy.models.zeros import block_masks, masks_in_order, pack_zeros, possible_codes, unpack_zeros
from understudy.schema import Domain, StructuralZeros

SIZES = {"a": 3, "b": 2, "c": 4, "d": 3}
ORDER = {name: place for place, name in enumerate(SIZES)}
BLOCKS = tuple(Block("one_hot", size) for size in SIZES.values())


def random_domain(seed: int, scopes: list[tuple[str, ...]], share: float) -> Domain:
    """Random zeros that leave one row possible at least."""
    rng = np.random.default_rng(seed)
    row = {name: int(rng.integers(size)) for name, size in SIZES.items()}
    found = []
    for scope in scopes:
        possible = rng.random([SIZES[name] for name in scope]) > share
        possible[tuple(row[name] for name in scope)] = True
        found.append(StructuralZeros(scope, possible))
    return Domain(names=tuple(SIZES), sizes=tuple(SIZES.values()), num_rows=100, zeros=tuple(found))


scopes = st.lists(st.permutations(list(SIZES)).flatmap(lambda names: st.integers(1, 3).map(lambda n: tuple(names[:n]))))


@given(scopes.filter(len), st.integers(0, 10**6), st.sampled_from([0.2, 0.5, 0.8]))
@settings(max_examples=scaled(60))
def test_draws_have_no_dead_end_and_reach_every_possible_row(
    scopes: list[tuple[str, ...]], seed: int, share: float
) -> None:
    """All rows that the masks let through, one column after another, are those that the zeros leave possible."""
    domain = random_domain(seed, scopes, share)
    masks = masks_in_order(domain.zeros, ORDER)
    rows: list[tuple[int, ...]] = [()]
    for place, size in enumerate(domain.sizes):
        own, longer = [mask for mask in masks if mask.place == place], []
        for row in rows:
            codes = [
                code for code in range(size) if all(m.zeros.possible[(*(row[g] for g in m.given), code)] for m in own)
            ]
            assert codes, "a dead end"
            longer += [(*row, code) for code in codes]
            if own:
                np.testing.assert_array_equal(
                    np.flatnonzero(possible_codes(own, np.array([[*row, 0, 0, 0, 0]]))[0]), codes
                )
        rows = longer
    every = itertools.product(*map(range, domain.sizes))
    assert set(rows) == {row for row in every if is_possible(domain.zeros, dict(zip(SIZES, row, strict=True)))}


def test_large_tables_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = random_domain(0, [("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c")], 0.3)
    monkeypatch.setattr(zeros_module, "MAX_CELLS", 12)
    masks = masks_in_order(domain.zeros, ORDER)
    assert all(mask.zeros.possible.size <= 12 for mask in masks)
    assert {(*mask.given, mask.place) for mask in masks} >= {(0, 1), (0, 2), (1, 2)}


def test_zeros_of_other_columns_and_contradictions_mask_nothing() -> None:
    domain = random_domain(0, [("a", "b")], 0.5)
    assert masks_in_order(domain.zeros, {"a": 0, "c": 1}) == ()
    assert block_masks(domain.zeros, domain.names, [0, None, None, 1]) != ()
    assert block_masks(domain.zeros, domain.names, [0, None, None, 2]) == ()
    both = [
        StructuralZeros(("a", "b"), np.array([[False, True]])),
        StructuralZeros(("b", "a"), np.array([[True], [False]])),
    ]
    assert masks_in_order(both, {"a": 0, "b": 1}) == ()


# --- Heads of generators ---

PAIRS = make_domain(
    SIZES, 100, {("c", "a"): [(0, 0), (1, 0), (3, 2)], ("b", "d", "c"): [(0, 0, 2), (1, 2, 3), (1, 1, 1)]}
)
MASKS = block_masks(PAIRS.zeros, PAIRS.names, range(4))


def product_in_order(logits: np.ndarray) -> np.ndarray:
    """Column after column, each proportional to its own probabilities where it is possible."""
    joint, cut = np.zeros(PAIRS.sizes), np.split(np.exp(logits), np.cumsum(PAIRS.sizes)[:-1])
    for row in itertools.product(*map(range, PAIRS.sizes)):
        value = 1.0
        for place, code in enumerate(row):
            own = [mask for mask in MASKS if mask.place == place]
            line = np.ones(PAIRS.sizes[place], dtype=bool)
            for mask in own:
                line &= mask.zeros.possible[tuple(row[g] for g in mask.given)]
            weights = np.where(line, cut[place], 0.0)
            value *= weights[code] / max(weights.sum(), 1e-300)
        joint[row] = value
    return joint


def test_sampled_codes_follow_the_masked_logits_in_order() -> None:
    logits = np.random.default_rng(0).normal(0, 1, sum(PAIRS.sizes))
    codes = sample_codes(jnp.tile(logits, (50_000, 1)), BLOCKS, key=jax.random.key(0), masks=MASKS)
    assert fit_pvalue(np.asarray(codes), product_in_order(logits)) > 1e-3
    assert count_impossible(PAIRS, np.asarray(codes)) == 0
    unmasked = sample_codes(jnp.tile(logits, (1000, 1)), BLOCKS, key=jax.random.key(0))
    assert count_impossible(PAIRS, np.asarray(unmasked)) > 100


def test_features_are_those_of_the_sampled_codes() -> None:
    blocks, masks = (Block("tanh", 1), *BLOCKS[:3]), block_masks(PAIRS.zeros, PAIRS.names, [None, 0, 1, 2])
    logits = jnp.asarray(np.random.default_rng(0).normal(0, 2, (2000, 10)))
    features = np.asarray(sample_features(logits, blocks, key=jax.random.key(1), masks=masks))
    a, c = features[:, 1:4].argmax(axis=1), features[:, 6:].argmax(axis=1)
    assert PAIRS.zeros[0].possible[c, a].all()


@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_a_generator_is_trained_as_it_samples(temperature: float) -> None:
    """Soft features lean to the codes that would be sampled; gradients are finite, those of earlier blocks included."""
    logits = jnp.asarray(np.random.default_rng(0).normal(0, 1, (4000, sum(PAIRS.sizes))))

    def features(values: jax.Array) -> jax.Array:
        return activate(values, BLOCKS, temperature=temperature, key=jax.random.key(0), masks=MASKS)

    made = np.asarray(features(logits))
    codes = np.stack([part.argmax(axis=1) for part in np.split(made, np.cumsum(PAIRS.sizes)[:-1], axis=1)], axis=1)
    hard = np.asarray(sample_codes(logits, BLOCKS, key=jax.random.key(0), masks=MASKS))
    np.testing.assert_array_equal(codes, hard)
    assert count_impossible(PAIRS, codes) == 0
    start = sum(PAIRS.sizes[:2])
    gradient = jax.grad(lambda values: jnp.sum(features(values)[:, start] ** 2))(logits)
    assert jnp.isfinite(gradient).all()
    assert jnp.abs(gradient[:, :3]).max() > 0  # the first column decides what the third one may be


def test_masked_probabilities_hold_given_the_drawn_codes() -> None:
    logits = jnp.asarray(np.random.default_rng(0).normal(0, 1, (500, sum(PAIRS.sizes))))
    features = sample_features(logits, BLOCKS, key=jax.random.key(0), masks=MASKS)
    probabilities = jnp.exp(block_log_softmax(logits + log_possible(features, BLOCKS, MASKS), BLOCKS))
    assert float(jnp.min(jnp.where(features > 0, probabilities, 1.0))) > 1e-4
    third = np.asarray(probabilities[:, 5:9])
    first = np.asarray(features[:, :3]).argmax(axis=1)
    assert third[first == 0][:, :2].max() < 1e-3
    np.testing.assert_allclose(third.sum(axis=1), 1, rtol=1e-5)


def test_zeros_are_packed_with_their_columns() -> None:
    structure, arrays = pack_zeros(PAIRS.zeros)
    assert unpack_zeros(structure, arrays) == PAIRS.zeros
    assert pack_zeros(()) == ({}, {})
    assert unpack_zeros({}, {}) == ()
