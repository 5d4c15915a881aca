"""Shrinkage towards independence: on tables drawn from the stated prior, and where it must not act."""

import itertools
import math

import numpy as np
import pytest

from tests.joint_tables import make_domain, sum_to
from understudy.marginals.estimation import Fitting, Measurement, estimate
from understudy.marginals.shrinkage import MIN_COUNT, Pooled, cell_pulls, independent_counts, independent_joint
from understudy.models.junction import Clique
from understudy.schema import Domain

AB = ("a", "b")


def drawn_table(rng: np.random.Generator, sizes: tuple[int, int], variance: float, total: float) -> np.ndarray:
    """Log-normal ratios of this variance around independent columns."""
    a, b = (rng.dirichlet(np.full(size, 10.0)) for size in sizes)
    counts = np.outer(a, b) * np.exp(rng.normal(0, math.sqrt(variance), sizes))
    return total * counts / counts.sum()


def measurements(rng: np.random.Generator, table: np.ndarray, stddev: float) -> list[Measurement]:
    columns = [(("a",), table.sum(axis=1)), (("b",), table.sum(axis=0))]
    return [
        *(Measurement(clique, counts + rng.normal(0, 3.0, counts.shape), 3.0) for clique, counts in columns),
        Measurement(AB, table + rng.normal(0, stddev, table.shape), stddev),
    ]


def mean_errors(sizes: tuple[int, int], total: int, stddev: float, variance: float) -> tuple[float, float]:
    """The mean L1 error of the estimate with the prior and without it, of eight tables."""
    rng, domain = np.random.default_rng(0), make_domain(dict(zip(AB, sizes, strict=True)), total)
    errors = np.zeros(2)
    for _ in range(8):
        table = drawn_table(rng, sizes, variance, total)
        measured = measurements(rng, table, stddev)
        for at, prior in enumerate((variance, None)):
            model = estimate(domain, measured, Fitting(prior_variance=prior, tolerance=1e-3), total=total)
            errors[at] += float(np.abs(model.marginal(AB) - table).sum()) / 8
    return float(errors[0]), float(errors[1])


@pytest.mark.parametrize(("variance", "most"), [(0.1, 0.8), (0.5, 0.95), (2.0, 0.99)])
@pytest.mark.parametrize("stddev", [60.0, 150.0])
def test_at_high_noise_the_prior_lowers_the_error(stddev: float, variance: float, most: float) -> None:
    """Cells expect 28 rows each. A wide prior leaves less to gain."""
    with_prior, without = mean_errors((12, 15), 5000, stddev, variance)
    assert with_prior < most * without


@pytest.mark.parametrize("variance", [0.1, 0.5, 1.0])
def test_at_low_noise_the_prior_changes_nothing(variance: float) -> None:
    """Cells expect 2000 rows each, and are known up to two."""
    with_prior, without = mean_errors((5, 6), 60_000, 2.0, variance)
    assert with_prior == pytest.approx(without, rel=0.01)


def consistent(domain: Domain, joint: np.ndarray) -> list[Measurement]:
    cliques: list[Clique] = [
        c for size in (1, 2) for c in itertools.combinations(domain.names, size) if c != ("a", "d")
    ]
    return [Measurement(clique, sum_to(joint, domain, clique), 1e-3) for clique in cliques]


@pytest.mark.parametrize("prior_variance", [0.1, 2.0])
def test_noise_free_marginals_are_reproduced(prior_variance: float) -> None:
    domain = make_domain({"a": 3, "b": 4, "c": 2, "d": 3}, 20_000)
    joint = 20_000 * np.random.default_rng(0).dirichlet(np.ones(72)).reshape(domain.sizes)
    measured = consistent(domain, joint)
    model = estimate(
        domain, measured, Fitting(prior_variance=prior_variance, tolerance=1e-5, iterations=5000), total=20_000
    )
    for clique, counts, _ in measured:
        assert np.abs(model.marginal(clique) - counts).sum() < 1e-3 * 20_000


def test_a_clear_dependence_in_small_cells_stays() -> None:
    """Rows of rare codes that always occur together: independence expects less than one, and there are 300."""
    domain = make_domain({"a": 10, "b": 10}, 20_000)
    rng = np.random.default_rng(0)
    table = np.outer(np.r_[2000, np.full(9, 2000)], np.full(10, 0.1)) * (19_700 / 20_000)
    table[9], table[:, 9] = 0.0, 0.0
    table *= 19_700 / table.sum()
    table[9, 9] = 300.0
    assert table.sum(axis=1)[9] * table.sum(axis=0)[9] / 20_000 < 5
    measured = measurements(rng, table, 20.0)
    with_prior, without = (
        estimate(domain, measured, Fitting(prior_variance=prior, tolerance=1e-4), total=20_000).marginal(AB)[9, 9]
        for prior in (2.0, None)
    )
    assert with_prior == pytest.approx(300.0, abs=45)
    assert with_prior == pytest.approx(without, abs=15)


def test_the_pull_is_one_over_prior_variance_and_count() -> None:
    """By the formula, cell by cell; 1-way marginals have none, and columns never measured are even."""
    domain = make_domain({"a": 2, "b": 3}, 100)
    pooled = {
        ("b", "a"): Pooled(np.array([[0.0, 80.0], [5.0, -3.0], [0.0, 0.0]]), np.full((3, 2), 16.0)),
        ("a",): Pooled(np.array([10.0, 90.0]), np.full(2, 16.0)),
    }
    shares = {"a": np.array([0.1, 0.9]), "b": np.full(3, 1 / 3)}

    def pulls_given(a: np.ndarray) -> dict[Clique, np.ndarray]:
        (expected,) = independent_counts(domain, [("b", "a")], {("a",): a}, 100)
        return cell_pulls(pooled, {("b", "a"): expected}, min_pull=0.02, prior_variance=0.5)

    pulls = pulls_given(np.array([1.0, 9.0]))
    assert set(pulls) == {("b", "a")}
    for b, a in itertools.product(range(3), range(2)):
        count = max(100 * shares["a"][a] * shares["b"][b], pooled["b", "a"].counts[b, a] - 2 * 4.0)
        assert pulls["b", "a"][b, a] == pytest.approx(max(0.02, 1 / (0.5 * count)))
    empty = pulls_given(np.array([0.0, 1.0]))
    assert empty["b", "a"][0, 0] == pytest.approx(1 / (0.5 * MIN_COUNT))


def test_for_great_noise_the_estimate_is_the_best_linear_one() -> None:
    """One cell of a table near independence moves by c^2 v / (c^2 v + s^2) of what its noisy count differs by."""
    domain, prior, stddev = make_domain({"a": 20, "b": 20}, 40_000), 0.3, 400.0
    columns = [Measurement((name,), np.full(20, 2000.0), 0.1) for name in "ab"]
    counts = np.full((20, 20), 100.0)
    counts[3, 4] += 200.0
    model = estimate(
        domain, [*columns, Measurement(AB, counts, stddev)], Fitting(prior_variance=prior, tolerance=1e-8), total=40_000
    )
    moved = model.marginal(AB)[3, 4] - 100
    best = 100**2 * prior / (100**2 * prior + stddev**2) * 200
    # The columns are known, so a twentieth of the move is taken back in each of them.
    assert moved == pytest.approx(best * 0.95**2, rel=0.1)


def test_shares_of_independent_columns_multiply() -> None:
    parts = [np.array([0.25, 0.75]), np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.4])]
    np.testing.assert_allclose(independent_joint(parts), np.einsum("i,j,k->ijk", *parts))
