"""The graphical model against brute force over the whole joint table, and against mbi."""

import itertools
import json
import math
import warnings

import jax
import numpy as np
import pytest
from scipy import stats

from understudy.errors import ConditionError, ConfigError
from understudy.junction import Clique, count_cells, junction_tree
from understudy.marginals import GraphicalModel, Measurement, estimate, noisy_total
from understudy.schema import Domain

with warnings.catch_warnings():  # mbi comments on JAX's settings when it is loaded
    warnings.simplefilter("ignore")
    import mbi
    import mbi.estimation
    import mbi.junction_tree

LOOPY = (("a", "b"), ("c", "b"), ("c", "d", "a"), ("e",), ("d", "f"))
SIZES = {"a": 2, "b": 3, "c": 4, "d": 2, "e": 3, "f": 5}


def _domain(sizes: dict[str, int], num_rows: int = 1000) -> Domain:
    return Domain(names=tuple(sizes), sizes=tuple(sizes.values()), num_rows=num_rows)


def _model(domain: Domain, cliques: tuple[Clique, ...], seed: int, spread: float = 1.5) -> GraphicalModel:
    rng = np.random.default_rng(seed)
    return GraphicalModel(
        domain=domain,
        total=7.0,
        cliques=cliques,
        potentials=tuple(rng.normal(0, spread, domain.shape(clique)) for clique in cliques),
        tree=junction_tree(domain, cliques),
    )


def _joint(model: GraphicalModel) -> np.ndarray:
    """The whole table of probabilities, cell by cell: slow and obvious."""
    names = model.domain.names
    logs = np.zeros(model.domain.sizes)
    for cell in itertools.product(*map(range, model.domain.sizes)):
        code = dict(zip(names, cell, strict=True))
        for clique, table in zip(model.cliques, model.potentials, strict=True):
            logs[cell] += table[tuple(code[name] for name in clique)]
    joint = np.exp(logs)
    return joint / joint.sum()


def _sum_to(joint: np.ndarray, domain: Domain, clique: Clique) -> np.ndarray:
    return np.einsum(joint, list(range(joint.ndim)), [domain.index(name) for name in clique])


def _fit_pvalue(rows: np.ndarray, joint: np.ndarray) -> float:
    """Chi-square of rows against the joint law; cells too rare for it are pooled."""
    seen = np.bincount(np.ravel_multi_index(tuple(rows.T), joint.shape), minlength=joint.size)
    hoped = joint.ravel() * len(rows)
    assert seen[hoped == 0].sum() == 0
    rare = hoped < 5
    seen = np.append(seen[~rare], seen[rare].sum())
    hoped = np.append(hoped[~rare], hoped[rare].sum())
    keep = hoped > 0
    return float(stats.chisquare(seen[keep], hoped[keep]).pvalue)


# --- Structure ---


@pytest.mark.parametrize("seed", range(20))
def test_tree_holds_every_clique_and_keeps_columns_connected(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = "abcdefgh"[: rng.integers(1, 9)]
    domain = _domain({name: int(rng.integers(1, 6)) for name in names})
    cliques = [tuple(rng.permutation(list(names))[: rng.integers(1, 4)].tolist()) for _ in range(rng.integers(0, 9))]
    tree = junction_tree(domain, cliques)
    assert all(any(set(clique) <= set(node) for node in tree.cliques) for clique in cliques)
    assert set().union(*tree.cliques) == set(names)
    assert tree.parents[0] == -1
    for i, parent in enumerate(tree.parents[1:], start=1):
        assert 0 <= parent < i
        past = set().union(*tree.cliques[:i])
        assert past & set(tree.cliques[i]) <= set(tree.cliques[parent])


@pytest.mark.parametrize("seed", range(20))
def test_counted_cells_are_those_of_the_tree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = "abcdefghij"
    domain = _domain({name: int(rng.integers(2, 9)) for name in names})
    cliques = [tuple(rng.permutation(list(names))[: rng.integers(1, 4)].tolist()) for _ in range(rng.integers(1, 14))]
    size = mbi.junction_tree.hypothetical_model_size(mbi.Domain(domain.names, domain.sizes), cliques)
    assert count_cells(domain, cliques) == round(size * 2**20 / 8)


# --- Marginals ---


@pytest.mark.parametrize("seed", range(8))
def test_marginals_equal_those_of_the_whole_table(seed: int) -> None:
    """All cliques up to three columns in any order, those across the tree included."""
    model = _model(_domain(SIZES), LOOPY, seed)
    joint = _joint(model)
    asked = [clique for size in (1, 2, 3) for clique in itertools.permutations(SIZES, size)]
    for clique, found in zip(asked, model.marginals(asked), strict=True):
        np.testing.assert_allclose(found, 7 * _sum_to(joint, model.domain, clique), atol=1e-12)
    np.testing.assert_allclose(model.marginal(tuple("fedcba")), 7 * np.transpose(joint), atol=1e-12)


@pytest.mark.parametrize("cliques", [(), (("a",),), (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f"))])
def test_marginals_of_sparse_structures(cliques: tuple[Clique, ...]) -> None:
    model = _model(_domain(SIZES), cliques, 0)
    joint = _joint(model)
    for clique in itertools.combinations(SIZES, 2):
        np.testing.assert_allclose(model.marginal(clique), 7 * _sum_to(joint, model.domain, clique), atol=1e-12)


def test_marginals_survive_extreme_potentials() -> None:
    model = _model(_domain(SIZES), LOOPY, 0, spread=200)
    for clique in itertools.combinations(SIZES, 2):
        table = model.marginal(clique)
        assert np.all(table >= 0)
        assert table.sum() == pytest.approx(7)


# --- Estimation ---


def _measurements(domain: Domain, cliques: tuple[Clique, ...], stddev: float, seed: int) -> list[Measurement]:
    """Noisy counts of a model far from empty cells, so that no constraint of sign is active."""
    model = _model(domain, LOOPY, 1, spread=0.4)
    joint = _joint(model) * domain.num_rows
    rng = np.random.default_rng(seed)
    return [Measurement(c, _sum_to(joint, domain, c) + rng.normal(0, stddev, domain.shape(c)), stddev) for c in cliques]


@pytest.mark.slow
def test_estimate_equals_that_of_mbi() -> None:
    """Without a pull to independence: the least-squares fit, as mbi's mirror descent finds it."""
    domain = _domain(SIZES, num_rows=10_000)
    cliques: tuple[Clique, ...] = (("a", "b"), ("c", "b"), ("c", "a"), ("a",), ("d", "b"))
    noisy = _measurements(domain, cliques, 8, seed=2)
    measured = [m._replace(stddev=m.stddev * (1 + 0.5 * (i % 3))) for i, m in enumerate(noisy)]
    with jax.enable_x64(True):
        mbi_domain = mbi.Domain(domain.names, domain.sizes)
        linear = [mbi.LinearMeasurement(m.noisy_counts.ravel(), m.clique, float(m.stddev)) for m in measured]
        oracle = mbi.estimation.MirrorDescent().estimate(mbi_domain, linear, known_total=1e4, iters=1000)
        answers = {c: np.asarray(oracle.project(c).datavector(flatten=False)) for c in cliques}
    model = estimate(domain, measured, total=1e4, entropy=0, tolerance=1e-8)
    for clique in cliques:
        np.testing.assert_allclose(model.marginal(clique) / 1e4, answers[clique] / 1e4, atol=1e-6)


@pytest.mark.parametrize("entropy", [0.01, 0.3])
def test_estimate_is_optimal(entropy: float) -> None:
    """First-order optimality of the stated objective over all distributions on the whole table."""
    domain = _domain({"a": 2, "b": 3, "c": 4}, num_rows=500)
    rng = np.random.default_rng(0)
    cliques: list[Clique] = [("a",), ("b",), ("c",), ("c", "a"), ("b", "c")]
    measured = [
        Measurement(c, rng.normal(500 / domain.size(c), 60, domain.shape(c)), rng.uniform(5, 40, domain.shape(c)))
        for c in cliques
    ]
    joint = _joint(estimate(domain, measured, total=500, entropy=entropy, tolerance=1e-9, iterations=5000))
    even_pull = estimate(domain, measured[:3], total=500, entropy=1e9, tolerance=1e-9, iterations=5000)
    reference = _joint(even_pull)  # an endless pull leaves the columns by themselves
    slope = 500 * entropy * np.log(joint / reference)
    for clique, counts, stddev in measured:
        residual = (500 * _sum_to(joint, domain, clique) - counts) / np.square(stddev)
        axes = [domain.index(name) for name in clique]
        turned = np.transpose(residual, np.argsort(axes))
        slope = slope + 500 * turned.reshape([s if i in axes else 1 for i, s in enumerate(domain.sizes)])
    # At the minimum over the simplex every cell with mass has the same slope.
    likely = joint > 1e-6
    assert np.ptp(slope[likely]) < 0.02 * entropy * 500


def test_pull_towards_independence_keeps_the_columns() -> None:
    """A pair of pure noise is seen through; the columns stay as measured."""
    domain = _domain({"a": 10, "b": 12}, num_rows=1000)
    rng = np.random.default_rng(0)
    a, b = rng.dirichlet(np.ones(10)), rng.dirichlet(np.ones(12))
    measured = [
        Measurement(("a",), 1000 * a + rng.normal(0, 2, 10), 2.0),
        Measurement(("b",), 1000 * b + rng.normal(0, 2, 12), 2.0),
        Measurement(("a", "b"), 1000 * np.outer(a, b) + rng.normal(0, 30, (10, 12)), 30.0),
    ]
    errors = [
        np.abs(
            estimate(domain, measured, total=1000, entropy=entropy).marginal(("a", "b")) - 1000 * np.outer(a, b)
        ).sum()
        for entropy in (1e-4, 0.03)
    ]
    assert errors[1] < 0.8 * errors[0]
    columns = estimate(domain, measured, total=1000, entropy=0.03).marginal(("a",))
    assert np.abs(columns - 1000 * a).sum() < 40


def test_repeated_measurements_count_as_their_weighted_mean() -> None:
    domain = _domain(SIZES)
    first, second = _measurements(domain, (("c", "b"),), 4, 0)[0], _measurements(domain, (("c", "b"),), 8, 1)[0]
    turned = Measurement(("b", "c"), second.noisy_counts.T, second.stddev)
    mean = (first.noisy_counts / 16 + second.noisy_counts / 64) / (1 / 16 + 1 / 64)
    together = Measurement(("c", "b"), mean, math.sqrt(1 / (1 / 16 + 1 / 64)))
    found = estimate(domain, [first, turned], total=1000, tolerance=1e-8)
    np.testing.assert_allclose(
        found.marginal(("b", "c")),
        estimate(domain, [together], total=1000, tolerance=1e-8).marginal(("b", "c")),
        atol=1e-5,
    )


def test_total_is_weighted_by_inverse_variance() -> None:
    measured = [Measurement(("a",), np.array([90.0, 20.0]), 1.0), Measurement(("b",), np.array([100.0, 20.0]), 3.0)]
    expected = (110 / 2 + 120 / 18) / (1 / 2 + 1 / 18)
    assert noisy_total(measured) == pytest.approx(expected)
    domain = _domain({"a": 2, "b": 2})
    assert estimate(domain, measured).total == pytest.approx(expected)
    assert estimate(domain, measured).marginal(("a",)).sum() == pytest.approx(expected)


def test_noise_may_differ_from_cell_to_cell() -> None:
    """A cell that is known well stays, and the others make up for the total."""
    domain = _domain({"a": 3}, num_rows=100)
    measured = [Measurement(("a",), np.array([50.0, 40.0, 40.0]), np.array([1.0, 20.0, 20.0]))]
    found = estimate(domain, measured, total=100, tolerance=1e-8).marginal(("a",))
    assert found[0] == pytest.approx(50, abs=0.2)
    assert found[1] == pytest.approx(25, abs=0.2)


def test_warm_start_ends_where_a_cold_one_does() -> None:
    domain = _domain(SIZES)
    measured = _measurements(domain, (*LOOPY, ("a", "e")), 5, 0)
    before = estimate(domain, measured[:-2], total=1000)
    warm = estimate(domain, measured, total=1000, warm_start=before, tolerance=1e-7)
    cold = estimate(domain, measured, total=1000, tolerance=1e-7)
    for clique in LOOPY:
        np.testing.assert_allclose(warm.marginal(clique), cold.marginal(clique), atol=1e-4)


def test_nothing_measured_is_uniform() -> None:
    model = estimate(_domain({"a": 2, "b": 5}), [], total=10)
    np.testing.assert_allclose(model.marginal(("a", "b")), np.ones((2, 5)))


def test_no_column_is_refused() -> None:
    with pytest.raises(ConfigError, match="no column"):
        estimate(Domain(names=(), sizes=(), num_rows=5), [])


# --- Rows ---


@pytest.mark.parametrize("cliques", [LOOPY, (("a", "b"),), ()])
def test_rows_follow_the_joint_law(cliques: tuple[Clique, ...]) -> None:
    model = _model(_domain(SIZES), cliques, 3, spread=0.8)
    rows = model.sample(200_000, key=jax.random.key(0))
    assert rows.dtype == np.int32
    assert _fit_pvalue(rows, _joint(model)) > 1e-3
    wrong = _joint(_model(_domain(SIZES), cliques or (("a",),), 4, spread=0.2))
    assert _fit_pvalue(rows, wrong) < 1e-6


def test_each_row_alone_follows_the_law() -> None:
    """Evenly spread draws must not bias a single row: the first of three rows, over many small tables."""
    model = _model(_domain({"a": 2, "b": 3, "c": 2}), (("a", "b"), ("b", "c")), 0, spread=1.0)
    firsts = np.stack([model.sample(3, key=key)[0] for key in jax.random.split(jax.random.key(0), 1500)])
    assert _fit_pvalue(firsts, _joint(model)) > 1e-3


def test_independent_columns_stay_independent() -> None:
    """Rounding counts column by column and laying them side by side in order would pair them up."""
    model = _model(_domain({"a": 4, "b": 4, "c": 5}), (("a",), ("b",), ("c",)), 0)
    rows = model.sample(20_000, key=jax.random.key(1))
    for i, j in itertools.combinations(range(3), 2):
        table = np.zeros((5, 5))
        np.add.at(table, (rows[:, i], rows[:, j]), 1)
        table = table[table.sum(1) > 0][:, table.sum(0) > 0]
        assert stats.chi2_contingency(table).pvalue > 1e-3
    # nor do neighbouring rows resemble each other
    assert abs(np.corrcoef(rows[:-1, 0], rows[1:, 0])[0, 1]) < 0.03


def test_siblings_are_independent_given_their_parent() -> None:
    model = _model(_domain({"p": 3, "a": 4, "b": 4}), (("p", "a"), ("p", "b")), 5, spread=1.0)
    assert _fit_pvalue(model.sample(100_000, key=jax.random.key(2)), _joint(model)) > 1e-3


def test_counts_are_nearer_their_expectation_than_by_chance() -> None:
    model = _model(_domain({"a": 6}), (("a",),), 0)
    counts = np.bincount(model.sample(1000, key=jax.random.key(0))[:, 0], minlength=6)
    assert np.abs(counts - 1000 * _joint(model)).max() < 2


def test_conditions_follow_bayes_rule() -> None:
    model = _model(_domain(SIZES), LOOPY, 3, spread=0.8)
    allowed = {"c": np.array([True, False, True, False]), "f": np.array([False, True, True, True, False])}
    joint = _joint(model) * allowed["c"][:, None, None, None] * allowed["f"]
    rows = model.sample(100_000, key=jax.random.key(0), allowed=allowed)
    assert set(rows[:, 2]) == {0, 2}
    assert set(rows[:, 5]) == {1, 2, 3}
    assert _fit_pvalue(rows, joint / joint.sum()) > 1e-3


def test_rare_conditions_are_met_without_rejection() -> None:
    domain = _domain({"a": 2, "b": 3})
    model = GraphicalModel(
        domain=domain,
        total=1.0,
        cliques=(("a",), ("a", "b")),
        potentials=(np.array([0.0, -60.0]), np.log([[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]])),
        tree=junction_tree(domain, [("a", "b")]),
    )
    rows = model.sample(10_000, key=jax.random.key(0), allowed={"a": np.array([False, True])})
    assert np.all(rows[:, 0] == 1)
    np.testing.assert_allclose(np.bincount(rows[:, 1]) / 10_000, [0.7, 0.2, 0.1], atol=0.001)


def test_impossible_conditions_are_refused() -> None:
    model = _model(_domain({"a": 2, "b": 3}), (("a", "b"),), 0)
    with pytest.raises(ConditionError, match="probability zero"):
        model.sample(5, key=jax.random.key(0), allowed={"a": np.zeros(2, dtype=bool)})
    with pytest.raises(ConditionError, match="2 codes"):
        model.sample(5, key=jax.random.key(0), allowed={"a": np.ones(3, dtype=bool)})


def test_no_rows_and_one_code() -> None:
    model = _model(_domain({"a": 1, "b": 3}), (("a", "b"),), 0)
    assert model.sample(0, key=jax.random.key(0)).shape == (0, 2)
    assert set(model.sample(50, key=jax.random.key(0))[:, 0]) == {0}


def test_saved_model_draws_the_same_rows() -> None:
    model = _model(_domain(SIZES), LOOPY, 0)
    structure, arrays = model.to_arrays()
    again = GraphicalModel.from_arrays(json.loads(json.dumps(structure)), arrays)
    key = jax.random.key(5)
    np.testing.assert_array_equal(model.sample(500, key=key), again.sample(500, key=key))
    assert not np.array_equal(model.sample(500, key=key), model.sample(500, key=jax.random.key(6)))
