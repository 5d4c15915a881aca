"""The histogram of rows per unit: what one unit can move, its noise, its charge, and what is made of it."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

import understudy as us
from tests.builders import RowsRead, over_budget, raises
from tests.examples import scaled
from tests.privacy.small_tables import chi_square, ledger
from understudy.errors import BudgetExceeded
from understudy.privacy.accounting.accountants import spent
from understudy.privacy.accounting.events import DiscreteGaussian, Gaussian, UnitHistogram
from understudy.privacy.accounting.ledger import Budget, Query
from understudy.privacy.mechanisms.rows_per_unit import (
    BUDGET_FRACTION,
    MAX_BINS,
    noisy_rows_per_unit,
    num_bins,
    plan_rows_per_unit,
    to_probabilities,
)
from understudy.privacy.noise.source import NoiseSource, SecureNoise, SeededNoise
from understudy.privacy.rows.table import PrivateTable, limit_units


class NoNoise(SeededNoise):
    """The answer as it is before noise."""

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        return np.zeros(shape, dtype=np.int64)


def used_rows(ids: list, k: int) -> PrivateTable:
    return limit_units(PrivateTable(pa.table({"who": pa.array(ids, pa.string())})), "who", [], k)


def exact(ids: list, k: int, bins: int | None = None) -> np.ndarray:
    query = Query("q", "q", UnitHistogram(5.0))
    return noisy_rows_per_unit(used_rows(ids, k), bins or k, query, ledger(noise=NoNoise(0), k=k))


def test_units_are_counted_by_the_rows_that_are_used() -> None:
    """Rows beyond the limit count as the last that is used; rows without a unit, and units without rows, in no bin."""
    assert exact(["a", "b", "a", "c", "a", "a", "b", None, None], 3).tolist() == [1, 1, 1]
    assert exact(["a", "b", "a", "c", "a", "a", "b", None, None], 5).tolist() == [1, 1, 0, 1, 0]
    assert exact([None, None], 2).tolist() == [0, 0]
    assert exact([], 4).tolist() == [0, 0, 0, 0]
    assert exact(["a"] * 5 + ["b"], 6, bins=3).tolist() == [1, 0, 1]  # the last bin takes all that have more


@settings(max_examples=scaled(200))
@given(
    ids=st.lists(st.sampled_from(["a", "b", "c", "d", None]), max_size=40),
    k=st.integers(2, 6),
    bins=st.integers(1, 6),
    gone=st.sampled_from(["a", "b", "c", "d"]),
)
def test_a_unit_moves_one_bin_by_one(ids: list, k: int, bins: int, gone: str) -> None:
    """Whatever the number of its rows, and wherever they stand: L1 sensitivity 1."""
    without = [each for each in ids if each != gone]
    moved = exact(ids, k, bins) - exact(without, k, bins)
    assert moved.min(initial=0) >= 0
    assert np.abs(moved).sum() == (gone in ids)


@pytest.mark.parametrize("noise", [SeededNoise(1), SecureNoise()])
def test_noise_has_the_charged_scale(noise: NoiseSource) -> None:
    """The cost is that of stddev 3: accept that scale and reject a tenth less or more."""
    table, query = used_rows(["a"] * 4 + ["b"] * 2, 9), Query("q", "q", UnitHistogram(3.0))
    book = us.Ledger(us.Guarantee.not_private(), noise=noise, max_rows_per_unit=9)
    draws = np.concatenate([noisy_rows_per_unit(table, 9, query, book) for _ in range(2000)])
    draws = draws - np.tile([0, 1, 0, 1, 0, 0, 0, 0, 0], 2000)
    assert chi_square(draws, 3.0) > 1e-7
    assert max(chi_square(draws, 2.7), chi_square(draws, 3.3)) < 1e-7


def test_the_charge_comes_first() -> None:
    class Untouchable(PrivateTable):
        def __getattribute__(self, name: str) -> object:
            if name.startswith("_unit"):
                raise RowsRead
            return super().__getattribute__(name)

    book, table = ledger(1.0, k=4), Untouchable(pa.table({"x": [1]}))
    with over_budget("q"):
        noisy_rows_per_unit(table, 4, Query("q", "q", UnitHistogram(0.5)), book)
    for event in (DiscreteGaussian(50.0, 1, 4), Gaussian(50.0)):
        with raises(BudgetExceeded, query="q", needed=None):
            noisy_rows_per_unit(table, 4, Query("q", "q", event), book)
    assert not book.queries
    query = Query("q", "q", UnitHistogram(50.0))
    with pytest.raises(RowsRead):
        noisy_rows_per_unit(table, 4, query, book)
    assert book.queries == (query,)


# ------------------------------------------------------------------------------------------------------------- the plan


def schema(k: int, **facts: object) -> us.Schema:
    columns = (us.Column(name="who", kind="id"), us.Column(name="x", kind="boolean", nullable=False))
    known = {"columns": columns, "rows": 500, "unit": "who", "max_rows_per_unit": k}
    return us.Schema(**{**known, **facts})  # type: ignore[arg-type]  # keywords of several types


def test_the_query_costs_little() -> None:
    """A tenth of epsilon alone, whatever the number of rows of a unit; the noise of the rest grows by less than 1%."""
    budget = Budget(1.0, 1e-6, max_rows_per_unit=20)
    (query,) = plan_rows_per_unit(schema(20), budget)
    assert isinstance(query.event, UnitHistogram)
    assert (query.key, query.columns, query.path) == ("rows_per_unit", ("who",), ("discovery",))
    alone = spent([query.event], 1e-6, grid=1e-5).epsilon
    assert 0.98 * BUDGET_FRACTION <= alone <= BUDGET_FRACTION
    assert query.event.rho < 0.02 * budget.rho()
    dropped = (us.Column(name="who", kind="id", drop=True), us.Column(name="x", kind="boolean", nullable=False))
    stddevs = []
    for each in (schema(20), schema(20, columns=dropped)):
        event = us.plan(each, "independent", us.Guarantee(1.0, 1e-6)).queries[-1].event
        assert isinstance(event, DiscreteGaussian)
        stddevs.append(event.stddev)
    assert 1 < stddevs[0] / stddevs[1] < 1.01
    assert plan_rows_per_unit(schema(2), budget)[0].event == query.event


def test_no_query_where_rows_are_not_linked() -> None:
    budget = Budget(1.0, 1e-6)
    dropped = (us.Column(name="who", kind="id", drop=True), us.Column(name="x", kind="boolean"))
    for each in (schema(1), schema(1, unit=None), schema(4, columns=dropped)):
        assert num_bins(each) == 1
        assert plan_rows_per_unit(each, budget) == ()
        assert "rows_per_unit" not in us.plan(each, "independent", us.Guarantee(1.0, 1e-6))
    assert num_bins(schema(10**9)) == MAX_BINS


def test_a_learner_does_not_make_the_query() -> None:
    """It makes no rows."""
    table = pa.table({"who": np.arange(300) // 3, "x": np.arange(300) % 2 == 0})
    learner = us.learners.ClassPrior(guarantee=us.Guarantee(3.0, 1e-6), schema=schema(3, target="x"), seed=0)
    assert [query.key for query in learner.fit(table).statement_.queries] == ["classes"]


# ------------------------------------------------------------------------------------------------------ post-processing


@settings(max_examples=scaled(60))
@given(st.lists(st.integers(-40, 200), min_size=1, max_size=6))
def test_probabilities_are_the_nearest(noisy: list[int]) -> None:
    """Beside a general solver of the same least-squares problem."""
    counts = np.array(noisy)
    found = to_probabilities(counts)
    assert found.shape == counts.shape
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1.0)
    total = counts.sum()
    if total <= 0:
        assert found.tolist() == [1.0] + [0.0] * (len(noisy) - 1)
        return
    solved = optimize.minimize(
        lambda p: np.sum((p - counts / total) ** 2),
        np.full(len(noisy), 1 / len(noisy)),
        bounds=[(0, None)] * len(noisy),
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    assert np.sum((found - counts / total) ** 2) <= solved.fun + 1e-6


def test_noise_in_empty_bins_adds_no_units() -> None:
    """Of 1,000 units with one row each, few get more, where clipping alone would give many."""
    noise = np.random.default_rng(0)
    counts = np.array([np.r_[1000, np.zeros(29)] + noise.normal(0, 30, 30).round() for _ in range(300)], dtype=int)
    projected = np.mean([to_probabilities(each)[0] for each in counts])
    clipped = np.mean(np.maximum(counts, 0)[:, 0] / np.maximum(counts, 0).sum(axis=1))
    assert projected > 0.9
    assert clipped < 0.8
