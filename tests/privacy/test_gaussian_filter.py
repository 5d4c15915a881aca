"""The Gaussian filter of marginals: its cost bounds what it answers, refusals touch no row, and its noise is fine."""

import math

import numpy as np
import pytest
from scipy import stats

import understudy as us
from tests.builders import make_ledger as ledger
from tests.builders import raises
from understudy.errors import BudgetExceeded, SchemaError
from understudy.privacy.accounting.events import Gaussian
from understudy.privacy.accounting.ledger import Ledger, Query
from understudy.privacy.mechanisms.filters import MAX_NOISE, ROOM, charge_marginals
from understudy.privacy.noise.source import FINE, SeededNoise
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain


def table(num_rows: int) -> PrivateRows:
    """Three columns of independent codes."""
    sizes = (3, 4, 2)
    codes = np.random.default_rng(0).integers(0, sizes, (num_rows, 3)).astype(np.int32)
    return PrivateRows(codes, Domain(names=("a", "b", "t"), sizes=sizes, num_rows=num_rows))


def bundle(multiplier: float = 5.0) -> Query:
    return Query("marginals", "marginals", Gaussian(multiplier))


@pytest.mark.parametrize("query", [("a",), ("a", "b"), ("t", "a", "b")])
def test_a_unit_moves_a_marginal_by_its_rows(query: tuple[str, ...]) -> None:
    """Whichever rows leave, cells change by their number in all: the L2 norm is no more."""
    rows = table(50)
    for gone in ([0], [3, 17], [1, 2, 3]):
        left = PrivateRows(np.delete(rows._codes, gone, axis=0), rows.domain)
        moved = rows._exact_counts(query) - left._exact_counts(query)
        assert np.abs(moved).sum() == len(gone)
        assert np.all(moved >= 0)


@pytest.mark.parametrize("rows_per_unit", [1, 3])
def test_the_bundle_holds_no_more_than_its_cost(rows_per_unit: int) -> None:
    """sum_j (k / s_j)^2 fills 1 / multiplier^2 and not a bit more, in one call or in several."""
    rows = table(100)
    rows.max_rows_per_unit = rows_per_unit
    charged, queries = bundle(5.0), [("a",), ("b",), ("a", "b")]
    privacy_filter = charge_marginals(rows, charged, ledger(10.0, rows_per_unit=rows_per_unit))
    assert privacy_filter.precision == pytest.approx(1 / (5.0 * rows_per_unit) ** 2)
    stddevs = [(privacy_filter.precision * part) ** -0.5 for part in (0.2, 0.3, 0.5)]
    assert sum((rows_per_unit / stddev) ** 2 for stddev in stddevs) == pytest.approx(5.0**-2)
    for query, stddev in zip(queries, stddevs, strict=True):
        privacy_filter.noisy_counts([query], [stddev])
    assert privacy_filter.left == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(BudgetExceeded):
        privacy_filter.noisy_counts([("t",)], [1e3])
    again = charge_marginals(rows, charged, ledger(10.0, rows_per_unit=rows_per_unit))
    with pytest.raises(BudgetExceeded):
        again.noisy_counts(queries, [0.99 * stddev for stddev in stddevs])


class Watched(PrivateRows):
    """Rows that remember that they were looked at."""

    looked = False

    def _exact_counts(self, query: object) -> np.ndarray:
        self.looked = True
        return super()._exact_counts(query)  # type: ignore[arg-type]  # handed on


def test_refused_bundles_touch_no_row() -> None:
    """Neither a query that does not fit, nor rows of smaller units, nor noise that is none."""
    rows = table(100)
    watched = Watched(rows._codes, rows.domain)
    with pytest.raises(BudgetExceeded):
        charge_marginals(watched, bundle(0.1), ledger(1.0))
    with raises(BudgetExceeded, query="marginals", needed=None):
        charge_marginals(watched, bundle(), ledger(10.0, rows_per_unit=2))
    privacy_filter = charge_marginals(watched, bundle(), ledger(10.0))
    for stddev in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(BudgetExceeded):
            privacy_filter.noisy_counts([("a",)], [stddev])
    assert not watched.looked


def test_noise_has_the_stddev_that_is_asked_for() -> None:
    """Accept that scale and reject its neighbours; each test errs once in a thousand."""
    domain = Domain(names=("a",), sizes=(20_000,), num_rows=1)
    rows = PrivateRows(np.zeros((0, 1), dtype=np.int32), domain)
    noise = charge_marginals(rows, bundle(2.0), ledger(10.0)).noisy_counts([("a",)], [2.0])[0]
    pvalue = {scale: stats.kstest(noise, stats.norm(scale=scale).cdf).pvalue for scale in (1.9, 2.0, 2.1)}
    assert pvalue[2.0] > 1e-3
    assert max(pvalue[1.9], pvalue[2.1]) < 1e-3


def test_no_answer_is_too_noisy_to_count() -> None:
    """Beside what is used already its precision is below the last digit; it must not be free."""
    privacy_filter = charge_marginals(table(100), bundle(5.0), ledger(10.0))
    privacy_filter.noisy_counts([("a",)], [5.1])
    used = [privacy_filter._used]
    for _ in range(3):
        privacy_filter.noisy_counts([("a",)], [MAX_NOISE])
        used.append(privacy_filter._used)
    assert used == sorted(set(used))


class Heard(SeededNoise):
    """Remembers its draws, and the standard deviations they were drawn with."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.drawn: list[tuple[float, np.ndarray]] = []

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        self.drawn.append((stddev, super().discrete_gaussian(stddev, shape)))
        return self.drawn[-1][1]


@pytest.mark.parametrize("stddev", [0.3, 2.0, 1e3, 1e7])
def test_noise_is_drawn_on_fine_steps(stddev: float) -> None:
    """The cost is that of a continuous Gaussian, which discrete noise has only where steps are fine."""
    rows, noise = table(100), Heard(0)
    book = Ledger(us.Guarantee(100.0, 1e-6), noise=noise)
    (found,) = charge_marginals(rows, bundle(0.2), book).noisy_counts([("a", "b")], [stddev])
    [(drawn_with, draws)] = noise.drawn
    assert drawn_with >= FINE
    steps = drawn_with / stddev / (1 + ROOM)
    assert math.log2(steps) == pytest.approx(round(math.log2(steps)), abs=1e-12)
    assert (1 + ROOM) ** -2 * (1 + ROOM / 2) < 1  # what the sum may pass its cost by, the noise makes up for
    steps = 2.0 ** round(math.log2(steps))
    np.testing.assert_array_equal(found, rows._exact_counts(("a", "b")) + draws / steps)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int32])
def test_expected_counts_of_any_precision_move_an_error_by_one_row(kind: type) -> None:
    """In half precision a hundred rows times the steps of the noise is infinite, and an infinity has no distance."""
    domain = Domain(names=("a",), sizes=(2,), num_rows=4)
    answers = []
    for codes in ([[1], [1], [1]], [[1], [1], [1], [0]]):
        rows = PrivateRows(np.asarray(codes, dtype=np.int32), domain)
        answered = charge_marginals(rows, bundle(2.0), Ledger(us.Guarantee(10.0, 1e-6), noise=SeededNoise(0)))
        answers.append(answered.noisy_errors([("a",)], [np.asarray([100, 3], dtype=kind)], 64.0)[0])
    assert abs(answers[0] - answers[1]) == pytest.approx(1.0, abs=1e-3)  # the same noise on both


def test_precision_is_that_of_double_numbers_and_unknown_columns_cost_nothing() -> None:
    spent = []
    for kind in (np.float32, float):
        answered = charge_marginals(table(20), bundle(2.0), ledger(10.0))
        answered.noisy_counts([("a",)], [kind(12.3456)])  # type: ignore[list-item]  # NumPy's number is no `float` to mypy
        spent.append(answered.precision - answered.left)
        with raises(SchemaError, column="nobody"):
            answered.noisy_counts([("nobody",)], [10.0])
        assert answered.precision - answered.left == spent[-1]
    assert spent[0] == pytest.approx(float(np.float32(12.3456)) ** -2, rel=1e-12)
