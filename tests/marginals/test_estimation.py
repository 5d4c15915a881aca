"""Estimation of a graphical model against closed forms and the conditions of optimality."""

import math

import numpy as np
import pytest
from scipy import optimize

from tests.joint_tables import LOOPY, SIZES, make_domain, random_model, sum_to, whole_table
from understudy.errors import ConfigError
from understudy.marginals.estimation import Fitting, Measurement, estimate
from understudy.models.junction import Clique
from understudy.schema import Domain


def _measurements(domain: Domain, cliques: tuple[Clique, ...], stddev: float, seed: int) -> list[Measurement]:
    """Noisy counts of a model far from empty cells, so that no constraint of sign is active."""
    model = random_model(domain, LOOPY, 1, spread=0.4)
    joint = whole_table(model) * domain.num_rows
    rng = np.random.default_rng(seed)
    return [Measurement(c, sum_to(joint, domain, c) + rng.normal(0, stddev, domain.shape(c)), stddev) for c in cliques]


def test_without_entropy_the_estimate_is_the_least_squares_fit() -> None:
    """Against non-negative least squares over the cells of the whole table, with the total as a row of great weight."""
    domain = make_domain({"a": 2, "b": 3, "c": 4, "d": 2}, num_rows=10_000)
    cliques: tuple[Clique, ...] = (("a", "b"), ("c", "b"), ("c", "a"), ("a",), ("d", "b"))
    joint = whole_table(random_model(domain, (("a", "b"), ("b", "c"), ("c", "d")), 1, spread=0.4))
    rng = np.random.default_rng(2)
    noise = [8 * (1 + 0.5 * (i % 3)) for i in range(len(cliques))]
    measured = [
        Measurement(c, 1e4 * sum_to(joint, domain, c) + rng.normal(0, 8, domain.shape(c)), stddev)
        for c, stddev in zip(cliques, noise, strict=True)
    ]
    cells = np.eye(joint.size).reshape(joint.size, *joint.shape)
    sums = {c: np.stack([sum_to(cell, domain, c).ravel() for cell in cells], axis=1) for c in cliques}
    left = np.concatenate([*(sums[m.clique] / m.stddev for m in measured), np.full((1, joint.size), 1e4)])
    right = np.concatenate([*(m.noisy_counts.ravel() / m.stddev for m in measured), [1e8]])
    best, _ = optimize.nnls(left, right)
    model = estimate(domain, measured, Fitting(entropy=0, tolerance=1e-8), total=1e4)
    for clique in cliques:
        expected = (sums[clique] @ best).reshape(domain.shape(clique))
        np.testing.assert_allclose(model.marginal(clique) / 1e4, expected / 1e4, atol=1e-6)


@pytest.mark.parametrize("entropy", [0.01, 0.3])
def test_estimate_is_optimal(entropy: float) -> None:
    """First-order optimality of the stated objective over all distributions on the whole table."""
    domain = make_domain({"a": 2, "b": 3, "c": 4}, num_rows=500)
    rng = np.random.default_rng(0)
    cliques: list[Clique] = [("a",), ("b",), ("c",), ("c", "a"), ("b", "c")]
    measured = [
        Measurement(c, rng.normal(500 / domain.size(c), 60, domain.shape(c)), rng.uniform(5, 40, domain.shape(c)))
        for c in cliques
    ]
    joint = whole_table(
        estimate(domain, measured, Fitting(entropy=entropy, tolerance=1e-9, iterations=5000), total=500)
    )
    even_pull = estimate(domain, measured[:3], Fitting(entropy=1e9, tolerance=1e-9, iterations=5000), total=500)
    reference = whole_table(even_pull)  # an endless pull leaves the columns by themselves
    slope = 500 * entropy * np.log(joint / reference)
    for clique, counts, stddev in measured:
        residual = (500 * sum_to(joint, domain, clique) - counts) / np.square(stddev)
        axes = [domain.index(name) for name in clique]
        turned = np.transpose(residual, np.argsort(axes))
        slope = slope + 500 * turned.reshape([s if i in axes else 1 for i, s in enumerate(domain.sizes)])
    # At the minimum over the simplex every cell with mass has the same slope.
    likely = joint > 1e-6
    assert np.ptp(slope[likely]) < 0.02 * entropy * 500


def test_pull_towards_independence_keeps_the_columns() -> None:
    """A pair of pure noise is seen through; the columns stay as measured."""
    domain = make_domain({"a": 10, "b": 12}, num_rows=1000)
    rng = np.random.default_rng(0)
    a, b = rng.dirichlet(np.ones(10)), rng.dirichlet(np.ones(12))
    measured = [
        Measurement(("a",), 1000 * a + rng.normal(0, 2, 10), 2.0),
        Measurement(("b",), 1000 * b + rng.normal(0, 2, 12), 2.0),
        Measurement(("a", "b"), 1000 * np.outer(a, b) + rng.normal(0, 30, (10, 12)), 30.0),
    ]
    errors = [
        np.abs(
            estimate(domain, measured, Fitting(entropy=entropy), total=1000).marginal(("a", "b"))
            - 1000 * np.outer(a, b)
        ).sum()
        for entropy in (1e-4, 0.03)
    ]
    assert errors[1] < 0.8 * errors[0]
    columns = estimate(domain, measured, Fitting(entropy=0.03), total=1000).marginal(("a",))
    assert np.abs(columns - 1000 * a).sum() < 40


def test_repeated_measurements_count_as_their_weighted_mean() -> None:
    domain = make_domain(SIZES)
    first, second = _measurements(domain, (("c", "b"),), 4, 0)[0], _measurements(domain, (("c", "b"),), 8, 1)[0]
    turned = Measurement(("b", "c"), second.noisy_counts.T, second.stddev)
    mean = (first.noisy_counts / 16 + second.noisy_counts / 64) / (1 / 16 + 1 / 64)
    together = Measurement(("c", "b"), mean, math.sqrt(1 / (1 / 16 + 1 / 64)))
    found = estimate(domain, [first, turned], Fitting(tolerance=1e-8), total=1000)
    np.testing.assert_allclose(
        found.marginal(("b", "c")),
        estimate(domain, [together], Fitting(tolerance=1e-8), total=1000).marginal(("b", "c")),
        atol=1e-5,
    )


def test_noise_may_differ_from_cell_to_cell() -> None:
    """A cell that is known well stays, and the others make up for the total."""
    domain = make_domain({"a": 3}, num_rows=100)
    measured = [Measurement(("a",), np.array([50.0, 40.0, 40.0]), np.array([1.0, 20.0, 20.0]))]
    found = estimate(domain, measured, Fitting(tolerance=1e-8), total=100).marginal(("a",))
    assert found[0] == pytest.approx(50, abs=0.2)
    assert found[1] == pytest.approx(25, abs=0.2)


def test_warm_start_ends_where_a_cold_one_does() -> None:
    domain = make_domain(SIZES)
    measured = _measurements(domain, (*LOOPY, ("a", "e")), 5, 0)
    before = estimate(domain, measured[:-2], total=1000)
    warm = estimate(domain, measured, Fitting(tolerance=1e-7), total=1000, warm_start=before)
    cold = estimate(domain, measured, Fitting(tolerance=1e-7), total=1000)
    for clique in LOOPY:
        np.testing.assert_allclose(warm.marginal(clique), cold.marginal(clique), atol=1e-4)


def test_many_rows_are_fitted_within_few_iterations() -> None:
    """A tree of skewed pairs, some cells almost empty, almost without noise: the model has the measured counts."""
    domain = make_domain({"a": 4, "b": 30, "c": 40, "d": 3}, num_rows=10**8)
    rng = np.random.default_rng(0)
    conditional = {pair: rng.dirichlet(np.full(domain.shape(pair)[1], 0.1), domain.shape(pair)[0]) for pair in _CHAIN}
    joint = rng.dirichlet(np.full(4, 0.5))
    for pair in _CHAIN:
        joint = joint[..., None] * conditional[pair]
    exact = {c: 1e8 * sum_to(joint, domain, c) for c in (("a",), ("b",), ("c",), ("d",), *_CHAIN)}
    measured = [Measurement(c, np.rint(counts + rng.normal(0, 3, counts.shape)), 3.0) for c, counts in exact.items()]
    model = estimate(domain, measured, Fitting(iterations=60), total=1e8)
    for clique, counts in exact.items():
        assert np.abs(model.marginal(clique) - counts).sum() / 2e8 < 1e-4


_CHAIN: tuple[Clique, ...] = (("a", "b"), ("b", "c"), ("c", "d"))


def test_nothing_measured_is_uniform() -> None:
    model = estimate(make_domain({"a": 2, "b": 5}), [], total=10)
    np.testing.assert_allclose(model.marginal(("a", "b")), np.ones((2, 5)))


def test_no_column_is_refused() -> None:
    with pytest.raises(ConfigError):
        estimate(Domain(names=(), sizes=(), num_rows=5), [], total=5)


# --- Structural zeros ---

ZEROS: dict[Clique, list[tuple[int, ...]]] = {
    ("a", "b"): [(0, 0), (1, 2)],
    ("c", "b"): [(0, 0), (3, 1), (2, 1), (0, 2)],
}


def _zeros_measured(domain: Domain, seed: int = 0) -> list[Measurement]:
    """All marginals but the 3-way one, far from any table: what is impossible was counted as well."""
    rng = np.random.default_rng(seed)
    cliques: list[Clique] = [("a",), ("b",), ("c",), ("c", "a"), ("b", "c")]
    return [
        Measurement(c, rng.normal(500 / domain.size(c), 60, domain.shape(c)), rng.uniform(5, 40, domain.shape(c)))
        for c in cliques
    ]


@pytest.mark.parametrize("entropy", [0.01, 0.3])
def test_with_zeros_the_estimate_is_optimal_among_possible_tables(entropy: float) -> None:
    """First-order optimality of the objective over all distributions on the possible cells."""
    domain = make_domain({"a": 2, "b": 3, "c": 4}, 500, ZEROS)
    measured = _zeros_measured(domain)
    joint = whole_table(
        estimate(domain, measured, Fitting(entropy=entropy, tolerance=1e-9, iterations=5000), total=500)
    )
    reference = whole_table(
        estimate(domain, measured[:3], Fitting(entropy=1e9, tolerance=1e-9, iterations=5000), total=500)
    )
    possible = reference > 0
    np.testing.assert_array_equal(joint > 0, possible)
    assert 0 < possible.sum() < possible.size - 8  # six pairs of codes, each with every code of a third column
    slope = np.where(
        possible, 500 * entropy * np.log(np.where(possible, joint, 1) / np.where(possible, reference, 1)), 0
    )
    for clique, counts, stddev in measured:
        residual = (500 * sum_to(joint, domain, clique) - counts) / np.square(stddev)
        axes = [domain.index(name) for name in clique]
        turned = np.transpose(residual, np.argsort(axes))
        slope = slope + 500 * turned.reshape([s if i in axes else 1 for i, s in enumerate(domain.sizes)])
    assert np.ptp(slope[joint > 1e-6]) < 0.02 * entropy * 500


def test_the_reference_is_the_independent_table_given_the_zeros() -> None:
    """Iterative proportional fitting from the possible cells has the measured columns and the fewest assumptions."""
    domain = make_domain({"a": 2, "b": 3, "c": 4}, 1000, ZEROS)
    truth = whole_table(random_model(domain, (("a",), ("b",), ("c",)), 5, spread=0.5))
    measured = [Measurement(c, 1000 * sum_to(truth, domain, c), 0.1) for c in domain.one_way]
    found = whole_table(estimate(domain, measured, Fitting(tolerance=1e-8), total=1000))
    fitted = (truth > 0) / np.count_nonzero(truth)
    for _ in range(1000):
        for axis, name in enumerate(domain.names):
            ratio = sum_to(truth, domain, (name,)) / sum_to(fitted, domain, (name,))
            fitted = fitted * ratio.reshape([-1 if at == axis else 1 for at in range(3)])
    np.testing.assert_allclose(found, fitted, atol=2e-4)


def test_counts_in_impossible_cells_are_ignored() -> None:
    domain = make_domain({"a": 2, "b": 3, "c": 4}, 500, ZEROS)
    measured = _zeros_measured(domain)
    clique, counts, stddev = measured[-1]
    (impossible,) = (~zeros.possible.T for zeros in domain.zeros if set(zeros.columns) == set(clique))
    other = [*measured[:-1], Measurement(clique, np.where(impossible, 1e4, counts), stddev)]
    found = [estimate(domain, each, Fitting(prior_variance=1.0), total=500) for each in (measured, other)]
    np.testing.assert_array_equal(found[0].marginal(clique), found[1].marginal(clique))
    assert (found[0].marginal(clique)[impossible] == 0).all()


def test_zeros_improve_a_noisy_estimate() -> None:
    """Half of the cells are impossible, and the pair is measured through great noise."""
    impossible: list[tuple[int, ...]] = [(a, b) for a in range(8) for b in range(8) if (a + b) % 2]
    domain = make_domain({"a": 8, "b": 8}, 2000, {("a", "b"): impossible})
    truth = 2000 * whole_table(random_model(domain, (("a", "b"),), 0, spread=0.7))
    rng, errors = np.random.default_rng(0), np.zeros(2)
    for _ in range(5):
        measured = [
            Measurement(c, sum_to(truth, domain, c) + rng.normal(0, 20, domain.shape(c)), 20.0)
            for c in (("a",), ("b",), ("a", "b"))
        ]
        for at, own in enumerate((domain, make_domain({"a": 8, "b": 8}, 2000))):
            errors[at] += np.abs(estimate(own, measured, total=2000).marginal(("a", "b")) - truth).sum()
    assert errors[0] < 0.75 * errors[1]


def test_a_warm_start_with_zeros_ends_where_a_cold_one_does() -> None:
    domain = make_domain({"a": 2, "b": 3, "c": 4}, 500, ZEROS)
    measured = _zeros_measured(domain)
    before = estimate(domain, measured[:-1], total=500)
    warm = estimate(domain, measured, Fitting(tolerance=1e-8, iterations=5000), total=500, warm_start=before)
    cold = estimate(domain, measured, Fitting(tolerance=1e-8, iterations=5000), total=500)
    np.testing.assert_allclose(whole_table(warm), whole_table(cold), atol=1e-6)


def test_zeros_beyond_the_size_limit_are_left_out() -> None:
    domain = make_domain({"a": 2, "b": 3, "c": 4}, 500, ZEROS)
    measured = _zeros_measured(domain)
    limited = estimate(domain, measured[:3], Fitting(max_cells=16 * 6 + 8), total=500)  # room for six cells of zeros
    assert [zeros.columns for zeros in limited.zeros] == []  # with the third column alone there are ten
    limited = estimate(domain, measured[:3], Fitting(max_cells=16 * 12), total=500)
    assert [zeros.columns for zeros in limited.zeros] == [("a", "b")]
    assert len(estimate(domain, measured[:3], total=500).zeros) == 2


def test_of_contradictory_zeros_the_first_hold() -> None:
    both: dict[Clique, list[tuple[int, ...]]] = {("a", "b"): [(0, 0), (1, 1)], ("b", "a"): [(1, 0), (0, 1)]}
    domain = make_domain({"a": 2, "b": 2, "c": 2}, 10, both)
    model = estimate(domain, [Measurement(("c",), np.ones(2), 1.0)], total=2)
    np.testing.assert_allclose(model.marginal(("a", "b")), [[0, 1], [1, 0]])
