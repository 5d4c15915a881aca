"""The graphical model's marginals and rows against its whole table of probabilities."""

import itertools
import json

import jax
import numpy as np
import pytest
from scipy import stats

from tests.builders import raises
from tests.joint_tables import (
    LOOPY,
    SIZES,
    count_impossible,
    fit_pvalue,
    make_domain,
    random_model,
    sum_to,
    whole_table,
)
from understudy.errors import ConditionError
from understudy.models.graphical import GraphicalModel
from understudy.models.junction import Clique, junction_tree

# --- Marginals ---


@pytest.mark.parametrize("seed", range(8))
def test_marginals_equal_those_of_the_whole_table(seed: int) -> None:
    """All cliques up to three columns in any order, those across the tree included."""
    model = random_model(make_domain(SIZES), LOOPY, seed)
    joint = whole_table(model)
    asked = [clique for size in (1, 2, 3) for clique in itertools.permutations(SIZES, size)]
    for clique, found in zip(asked, model.marginals(asked), strict=True):
        np.testing.assert_allclose(found, 7 * sum_to(joint, model.domain, clique), atol=1e-12)
    np.testing.assert_allclose(model.marginal(tuple("fedcba")), 7 * np.transpose(joint), atol=1e-12)


@pytest.mark.parametrize("cliques", [(), (("a",),), (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f"))])
def test_marginals_of_sparse_structures(cliques: tuple[Clique, ...]) -> None:
    model = random_model(make_domain(SIZES), cliques, 0)
    joint = whole_table(model)
    for clique in itertools.combinations(SIZES, 2):
        np.testing.assert_allclose(model.marginal(clique), 7 * sum_to(joint, model.domain, clique), atol=1e-12)


@pytest.mark.parametrize("spread", [200, 2_000, 20_000])
@pytest.mark.parametrize("seed", range(6))
def test_marginals_survive_extreme_potentials(seed: int, spread: float) -> None:
    """Whole cells of a separator are further below the largest one than a float can hold; a step of the estimation may
    go as far. Their messages must still be right: the child of a cell that is likely elsewhere may be among them."""
    model = random_model(make_domain(SIZES), LOOPY, seed, spread=spread)
    joint = whole_table(model)
    for clique in itertools.combinations(SIZES, 2):
        np.testing.assert_allclose(model.marginal(clique), 7 * sum_to(joint, model.domain, clique), atol=1e-9)


# --- Rows ---


@pytest.mark.parametrize("cliques", [LOOPY, (("a", "b"),), ()])
def test_rows_follow_the_joint_law(cliques: tuple[Clique, ...]) -> None:
    model = random_model(make_domain(SIZES), cliques, 3, spread=0.8)
    rows = model.sample(200_000, key=jax.random.key(0)).codes
    assert rows.dtype == np.int32
    assert fit_pvalue(rows, whole_table(model)) > 1e-3
    wrong = whole_table(random_model(make_domain(SIZES), cliques or (("a",),), 4, spread=0.2))
    assert fit_pvalue(rows, wrong) < 1e-6


def test_each_row_alone_follows_the_law() -> None:
    """Evenly spread draws must not bias a single row: the first of three rows, over many small tables."""
    model = random_model(make_domain({"a": 2, "b": 3, "c": 2}), (("a", "b"), ("b", "c")), 0, spread=1.0)
    firsts = np.stack([model.sample(3, key=key).codes[0] for key in jax.random.split(jax.random.key(0), 1500)])
    assert fit_pvalue(firsts, whole_table(model)) > 1e-3


def test_independent_columns_stay_independent() -> None:
    """Rounding counts column by column and laying them side by side in order would pair them up."""
    model = random_model(make_domain({"a": 4, "b": 4, "c": 5}), (("a",), ("b",), ("c",)), 0)
    rows = model.sample(20_000, key=jax.random.key(1)).codes
    for i, j in itertools.combinations(range(3), 2):
        table = np.zeros((5, 5))
        np.add.at(table, (rows[:, i], rows[:, j]), 1)
        table = table[table.sum(1) > 0][:, table.sum(0) > 0]
        assert stats.chi2_contingency(table).pvalue > 1e-3
    # nor do neighbouring rows resemble each other
    assert abs(np.corrcoef(rows[:-1, 0], rows[1:, 0])[0, 1]) < 0.03


def test_siblings_are_independent_given_their_parent() -> None:
    model = random_model(make_domain({"p": 3, "a": 4, "b": 4}), (("p", "a"), ("p", "b")), 5, spread=1.0)
    assert fit_pvalue(model.sample(100_000, key=jax.random.key(2)).codes, whole_table(model)) > 1e-3


def test_counts_are_nearer_their_expectation_than_by_chance() -> None:
    model = random_model(make_domain({"a": 6}), (("a",),), 0)
    counts = np.bincount(model.sample(1000, key=jax.random.key(0)).codes[:, 0], minlength=6)
    assert np.abs(counts - 1000 * whole_table(model)).max() < 2


def test_conditions_follow_bayes_rule() -> None:
    model = random_model(make_domain(SIZES), LOOPY, 3, spread=0.8)
    allowed = {"c": np.array([True, False, True, False]), "f": np.array([False, True, True, True, False])}
    joint = whole_table(model) * allowed["c"][:, None, None, None] * allowed["f"]
    rows = model.sample(100_000, key=jax.random.key(0), allowed=allowed).codes
    assert set(rows[:, 2]) == {0, 2}
    assert set(rows[:, 5]) == {1, 2, 3}
    assert fit_pvalue(rows, joint / joint.sum()) > 1e-3


def test_rare_conditions_are_met_without_rejection() -> None:
    domain = make_domain({"a": 2, "b": 3})
    model = GraphicalModel(
        domain=domain,
        total=1.0,
        cliques=(("a",), ("a", "b")),
        potentials=(np.array([0.0, -60.0]), np.log([[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]])),
        tree=junction_tree(domain, [("a", "b")]),
    )
    rows = model.sample(10_000, key=jax.random.key(0), allowed={"a": np.array([False, True])}).codes
    assert np.all(rows[:, 0] == 1)
    np.testing.assert_allclose(np.bincount(rows[:, 1]) / 10_000, [0.7, 0.2, 0.1], atol=0.001)


def test_impossible_conditions_are_refused() -> None:
    model = random_model(make_domain({"a": 2, "b": 3}), (("a", "b"),), 0)
    with raises(ConditionError, column=None):
        model.sample(5, key=jax.random.key(0), allowed={"a": np.zeros(2, dtype=bool)})
    with raises(ConditionError, column="a"):
        model.sample(5, key=jax.random.key(0), allowed={"a": np.ones(3, dtype=bool)})


def test_no_rows_and_one_code() -> None:
    model = random_model(make_domain({"a": 1, "b": 3}), (("a", "b"),), 0)
    assert model.sample(0, key=jax.random.key(0)).codes.shape == (0, 2)
    assert set(model.sample(50, key=jax.random.key(0)).codes[:, 0]) == {0}


def test_saved_model_draws_the_same_rows() -> None:
    model = random_model(make_domain(SIZES), LOOPY, 0)
    structure, arrays = model.to_arrays()
    again = GraphicalModel.from_arrays(json.loads(json.dumps(structure)), arrays)
    key = jax.random.key(5)
    np.testing.assert_array_equal(model.sample(500, key=key).codes, again.sample(500, key=key).codes)
    assert not np.array_equal(model.sample(500, key=key).codes, model.sample(500, key=jax.random.key(6)).codes)


# --- Structural zeros ---

IMPOSSIBLE: dict[Clique, list[tuple[int, ...]]] = {
    ("b", "a"): [(0, 0), (0, 1), (2, 1)],  # no row has the first code of b
    ("c", "f"): [(c, f) for c in range(4) for f in range(5) if f > c],
    ("d", "e", "f"): [(1, 1, 0), (0, 2, 2)],
    ("e",): [(0,)],
}


@pytest.mark.parametrize("cliques", [LOOPY, (("a", "b"),), ()])
@pytest.mark.parametrize("seed", range(3))
def test_with_zeros_the_model_is_the_product_given_the_possible_cells(cliques: tuple[Clique, ...], seed: int) -> None:
    """Marginals, rows, and rows that meet a condition, against the whole table."""
    model = random_model(make_domain(SIZES, impossible=IMPOSSIBLE), cliques, seed, spread=0.8)
    joint = whole_table(model)
    for clique in itertools.chain(itertools.combinations(SIZES, 2), itertools.permutations("bcf")):
        np.testing.assert_allclose(model.marginal(clique), 7 * sum_to(joint, model.domain, clique), atol=1e-12)
    rows = model.sample(100_000, key=jax.random.key(seed)).codes
    assert fit_pvalue(rows, joint) > 1e-3  # also that no impossible cell has a row
    allowed = {"c": np.array([True, False, True, False])}
    given = np.where(allowed["c"][None, None, :, None, None, None], joint, 0.0)
    rows = model.sample(100_000, key=jax.random.key(seed), allowed=allowed).codes
    assert fit_pvalue(rows, given / given.sum()) > 1e-3


def test_zeros_survive_the_release() -> None:
    model = random_model(make_domain(SIZES, impossible=IMPOSSIBLE), LOOPY, 0)
    structure, arrays = model.to_arrays()
    back = GraphicalModel.from_arrays(json.loads(json.dumps(structure)), arrays)
    assert back.zeros == back.domain.zeros == model.zeros
    rows = [each.sample(1000, key=jax.random.key(1)).codes for each in (model, back)]
    np.testing.assert_array_equal(rows[0], rows[1])
    assert count_impossible(model.domain, rows[0]) == 0
    assert "zeros" not in random_model(make_domain(SIZES), LOOPY, 0).to_arrays()[0]


def test_a_condition_that_zeros_rule_out_is_refused() -> None:
    model = random_model(make_domain(SIZES, impossible=IMPOSSIBLE), LOOPY, 0)
    with pytest.raises(ConditionError):
        model.sample(10, key=jax.random.key(0), allowed={"b": np.array([True, False, False])})
