"""Adaptive marginals: one Gaussian query, used up and never exceeded; what is measured, and what is not."""

import collections
import dataclasses
import itertools
import math

import jax
import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import make_guarantee, make_ledger, raises
from understudy.errors import BudgetExceeded, ConfigError, SchemaError
from understudy.models.graphical import GraphicalModel
from understudy.models.junction import Clique, count_cells
from understudy.privacy.accounting.events import Gaussian
from understudy.privacy.accounting.ledger import Budget, spent_by
from understudy.privacy.mechanisms.filters import MIN_ERROR_NOISE, ROOM, GaussianFilter, charge_marginals
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers.adaptive import CELLS_PER_MEGABYTE, Adaptive, Answers, _measure
from understudy.synthesizers.run import Run

FAST = Adaptive(rounds=3, iterations=30)
NUM_ROWS = 4000


def make_domain(
    sizes: tuple[int, ...], num_rows: int = NUM_ROWS, *, target: str | None = None, declared: bool = False
) -> Domain:
    names = tuple("abcdefghijklmnop"[: len(sizes)])
    return Domain(
        names=names, sizes=sizes, num_rows=num_rows, target=target, declared_rows=num_rows if declared else None
    )


def make_codes(sizes: tuple[int, ...], num_rows: int = NUM_ROWS, *, pair: bool = False) -> np.ndarray:
    """Independent columns; with `pair` the second mostly repeats the first."""
    rng = np.random.default_rng(5)
    codes = rng.integers(sizes, size=(num_rows, len(sizes)), dtype=np.int32)
    if pair:
        codes[:, 1] = np.where(rng.random(num_rows) < 0.8, codes[:, 0] % sizes[1], codes[:, 1])
    return codes


@dataclasses.dataclass
class Queries:
    """What a fit asked its filter, and what that used of the precision charged."""

    charged: float
    precision: dict[Clique, float] = dataclasses.field(default_factory=lambda: collections.defaultdict(float))
    """Of all counts of each marginal."""
    errors: list[dict[Clique, float]] = dataclasses.field(default_factory=list)
    """The noisy errors of each round."""
    of_errors: float = 0.0

    @property
    def used(self) -> float:
        return math.fsum([*self.precision.values(), self.of_errors])

    @property
    def chosen(self) -> set[Clique]:
        return {clique for clique in self.precision if len(clique) > 1}

    def record(self, patch: pytest.MonkeyPatch) -> None:
        """Adds up the answers of filters beside their own sums."""
        count, errors = GaussianFilter._count, GaussianFilter.noisy_errors

        def count_recorded(privacy_filter: GaussianFilter, clique: Clique, stddev: float) -> np.ndarray:
            self.precision[clique] += stddev**-2
            return count(privacy_filter, clique, stddev)

        def errors_recorded(
            privacy_filter: GaussianFilter, cliques: list[Clique], expected: list[np.ndarray], stddev: float
        ) -> np.ndarray:
            self.of_errors += len(cliques) * max(stddev, MIN_ERROR_NOISE) ** -2
            noisy = errors(privacy_filter, cliques, expected, stddev)
            self.errors.append(dict(zip(cliques, noisy.tolist(), strict=True)))
            return noisy

        patch.setattr(GaussianFilter, "_count", count_recorded)
        patch.setattr(GaussianFilter, "noisy_errors", errors_recorded)


def fit(
    codes: np.ndarray, domain: Domain, method: Adaptive = FAST, *, epsilon: float = 1.0, k: int = 1, seed: int = 0
) -> tuple[GraphicalModel, Queries]:
    """The model, and the queries of the fit. The ledger has the planned query and no other, and all of it is used."""
    ledger = make_ledger(epsilon, seed=seed, rows_per_unit=k)
    plan = method.plan(domain, ledger.remaining)
    event = plan["marginals"].event
    assert isinstance(event, Gaussian)
    queries = Queries(charged=1 / (event.noise_multiplier * k) ** 2)
    with pytest.MonkeyPatch.context() as patch:
        queries.record(patch)
        model = method.fit(Run(PrivateRows(codes, domain, max_rows_per_unit=k), plan, ledger, key=jax.random.key(0)))
    assert ledger.queries == plan.queries
    assert 0.999 * queries.charged <= queries.used <= queries.charged * (1 + ROOM)
    return model, queries


# --------------------------------------------------------------------------------------------------------- the budget


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_plan_is_one_gaussian_query_that_fills_the_guarantee(epsilon: float) -> None:
    guarantee, domain = make_guarantee(epsilon), make_domain((3, 4, 2), target="c")
    plan = Adaptive().plan(domain, make_ledger(epsilon).remaining)
    (query,) = plan.queries
    assert isinstance(query.event, Gaussian)
    assert query.columns == domain.names
    assert 0.995 * epsilon <= spent_by(plan, guarantee).epsilon <= epsilon


@pytest.mark.parametrize(
    ("sizes", "epsilon", "k"),
    [((3, 4, 2, 5), 1.0, 1), ((3, 4, 2, 5), 1.0, 3), ((3, 3), 1.0, 1), ((3, 4, 2), 100.0, 1), ((3, 4, 2), 0.02, 1)],
)
def test_answers_add_up_to_what_was_charged(sizes: tuple[int, ...], epsilon: float, k: int) -> None:
    """The precision of all answers, added up beside the filter: within what was charged for, and 99.9% of it.

    Also where no candidate is left before the last round, and where errors cannot have as little noise as is allotted.
    """
    _, queries = fit(make_codes(sizes, pair=True), make_domain(sizes), epsilon=epsilon, k=k)
    assert queries.precision.keys() >= {(name,) for name in "abcde"[: len(sizes)]}


def test_a_fit_charges_once_and_before_its_first_answer() -> None:
    """Where the charge does not fit, no row is counted."""
    sizes = (3, 4, 2)
    ledger, domain = make_ledger(1.0), make_domain(sizes)
    plan = FAST.plan(domain, Budget(2.0, 1e-6))
    queries = Queries(charged=0.0)
    with pytest.MonkeyPatch.context() as patch:
        queries.record(patch)
        with pytest.raises(BudgetExceeded):
            FAST.fit(Run(PrivateRows(make_codes(sizes), domain), plan, ledger, key=jax.random.key(0)))
    assert queries.used == 0
    assert ledger.queries == ()


def test_the_precision_of_a_marginal_is_that_of_its_measurements() -> None:
    """Answers are a value: a second measurement leaves those before as they were."""
    domain, ledger = make_domain((3, 4)), make_ledger(3.0)
    query = FAST.plan(domain, ledger.remaining)["marginals"]
    privacy_filter = charge_marginals(PrivateRows(make_codes((3, 4)), domain), query, ledger)
    parts = privacy_filter.precision * np.array([[0.2, 0.1, 0.0], [0.3, 0.1, 0.2]])
    once = _measure(privacy_filter, Answers(), [("a",), ("b",), ("a", "b")], parts[0])
    twice = _measure(privacy_filter, once, [("a",), ("b",), ("a", "b")], parts[1])
    assert set(once.precision) == {("a",), ("b",)}
    assert len(once.measurements) == 2
    assert len(twice.measurements) == 5
    for clique, precision in twice.precision.items():
        noise = [float(np.max(m.stddev)) for m in twice.measurements if m.clique == clique]
        assert precision == pytest.approx(sum(stddev**-2 for stddev in noise))


def test_equal_seeds_give_equal_models() -> None:
    codes, domain = make_codes((3, 4, 2, 3), pair=True), make_domain((3, 4, 2, 3), target="c")
    (structure, arrays), (again, same), (_, others) = (
        fit(codes, domain, seed=seed)[0].to_arrays() for seed in (1, 1, 2)
    )
    assert structure == again
    assert arrays.keys() == same.keys()
    assert all(np.array_equal(arrays[name], same[name]) for name in arrays)
    assert not all(np.array_equal(arrays[name], others[name]) for name in arrays.keys() & others.keys())


# ---------------------------------------------------------------------------------------------------- what is measured


def test_at_tiny_budgets_only_columns_are_measured() -> None:
    """200 rows at epsilon 0.05: the noise of errors is beyond the rows."""
    sizes = (3, 4, 2, 3)
    _, fitted = fit(make_codes(sizes, 200, pair=True), make_domain(sizes, 200), Adaptive(), epsilon=0.05)
    assert set(fitted.precision) == {(name,) for name in "abcd"}


@pytest.mark.parametrize("seed", range(3))
def test_a_strong_pair_is_measured_and_known(seed: int) -> None:
    sizes = (4, 4, 2, 3, 5)
    codes = make_codes(sizes, pair=True)
    model, fitted = fit(codes, make_domain(sizes), Adaptive(), seed=seed)
    assert ("a", "b") in fitted.precision
    assert max(fitted.errors[0], key=fitted.errors[0].__getitem__) == ("a", "b")
    exact = np.zeros((4, 4))
    np.add.at(exact, (codes[:, 0], codes[:, 1]), 1)
    assert np.abs(model.marginal(("a", "b")) - exact).sum() < 0.1 * NUM_ROWS


def test_without_noise_the_pairs_are_exact() -> None:
    sizes = (4, 4, 2)
    codes = make_codes(sizes, pair=True)
    model, _ = fit(codes, make_domain(sizes), Adaptive(), epsilon=math.inf)
    for i, j in itertools.combinations(range(3), 2):
        exact = np.zeros((sizes[i], sizes[j]))
        np.add.at(exact, (codes[:, i], codes[:, j]), 1)
        assert np.abs(model.marginal(("abc"[i], "abc"[j])) - exact).sum() < 0.01 * NUM_ROWS


@pytest.mark.parametrize("interactions", [3, 4])
def test_a_parity_of_three_columns_needs_interactions_of_four(interactions: int) -> None:
    """The target is the parity of three of eleven fair bits, so that no three columns show anything."""
    codes = make_codes((2,) * 12, 20_000)
    codes[:, 11] = codes[:, [1, 4, 7]].sum(axis=1) % 2
    domain = make_domain((2,) * 12, 20_000, target="l")
    model, fitted = fit(codes, domain, Adaptive(interactions=interactions))
    rows = model.sample(20_000, key=jax.random.key(1)).codes
    agreement = np.mean(rows[:, 11] == rows[:, [1, 4, 7]].sum(axis=1) % 2)
    if interactions == 4:
        assert ("b", "e", "h", "l") in fitted.precision
        assert agreement >= 0.9
    else:
        assert max(map(len, fitted.precision)) <= 3
        assert 0.45 < agreement < 0.55


def test_without_a_target_nothing_beyond_pairs_is_measured() -> None:
    sizes = (2, 2, 2, 2)
    codes = make_codes(sizes)
    codes[:, 3] = codes[:, 0] ^ codes[:, 1]
    _, without = fit(codes, make_domain(sizes), Adaptive(), epsilon=5.0)
    assert {len(clique) for clique in without.precision} == {1, 2}
    _, with_target = fit(codes, make_domain(sizes, target="d"), Adaptive(), epsilon=5.0)
    assert ("a", "b", "d") in with_target.precision


def test_a_workload_bounds_what_is_measured() -> None:
    sizes = (3, 3, 2, 2, 2)
    codes, domain = make_codes(sizes, pair=True), make_domain(sizes)
    codes[:, 4] = codes[:, 2] ^ codes[:, 3]
    _, fitted = fit(codes, domain, Adaptive(workload=(("b", "a"), ("e", "c", "d"))), epsilon=10.0)
    pairs = {("a", "b"), ("c", "d"), ("c", "e"), ("d", "e")}
    assert set(fitted.errors[0]) == pairs
    assert {("a", "b"), ("c", "d", "e")} <= fitted.chosen <= {*pairs, ("c", "d", "e")}


def test_a_workload_of_unknown_columns_is_refused_in_one_line() -> None:
    with raises(SchemaError, column="bb") as refused:
        Adaptive(workload=(("a", "bb"),)).plan(make_domain((2, 2)), Budget(1.0, 1e-6))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("cells", [30, 60])
def test_the_model_is_within_its_size(cells: int) -> None:
    sizes = (3, 4, 5, 3, 2)
    codes = make_codes(sizes, pair=True)
    codes[:, 3] = (codes[:, 0] + codes[:, 2]) % 3
    model, _ = fit(codes, make_domain(sizes), Adaptive(max_model_size=cells / CELLS_PER_MEGABYTE), epsilon=10.0)
    assert count_cells(model.domain, model.cliques) <= cells
    larger, _ = fit(codes, make_domain(sizes), Adaptive(), epsilon=10.0)
    assert count_cells(larger.domain, larger.cliques) > cells


# ----------------------------------------------------------------------------------------------------------- edge cases


def test_pairs_larger_than_the_model_may_be_are_not_asked_about() -> None:
    """Their expected counts alone would take gigabytes."""
    sizes = (20_000, 20_000, 2)
    _, fitted = fit(make_codes(sizes, 1000), make_domain(sizes, 1000))
    assert fitted.errors
    assert all(("a", "b") not in errors for errors in fitted.errors)


@pytest.mark.parametrize("target", [None, "a"])
def test_one_column(target: str | None) -> None:
    model, fitted = fit(make_codes((5,)), make_domain((5,), target=target), Adaptive())
    assert set(fitted.precision) == {("a",)}
    assert model.sample(20, key=jax.random.key(0)).codes.shape == (20, 1)


@pytest.mark.parametrize("target", [None, "a"])
def test_constant_columns_are_no_candidates(target: str | None) -> None:
    model, fitted = fit(np.zeros((500, 4), np.int32), make_domain((1,) * 4, 500, target=target), Adaptive())
    assert not fitted.chosen
    assert not model.sample(20, key=jax.random.key(0)).codes.any()
    sizes = (3, 3, 1)
    _, fitted = fit(make_codes(sizes, pair=True), make_domain(sizes, target=target), epsilon=10.0)
    assert fitted.chosen == {("a", "b")}


@pytest.mark.parametrize("num_rows", [0, 1, 3000])
@pytest.mark.parametrize("epsilon", [0.1, 20.0])
def test_a_single_row_is_declared(num_rows: int, epsilon: float) -> None:
    """Also where the table has more: counts that say so come after the whole budget went to the columns."""
    sizes = (3, 4, 2)
    model, fitted = fit(make_codes(sizes, num_rows), make_domain(sizes, 1, declared=True), epsilon=epsilon)
    assert not fitted.chosen
    assert model.sample(5, key=jax.random.key(0)).codes.shape == (5, 3)


def test_far_fewer_rows_than_declared() -> None:
    """Once the counts contradict the declared number, rounds end and what is left is used up."""
    sizes = (3, 4, 2)
    model, _ = fit(make_codes(sizes, 50), make_domain(sizes, 10**6, declared=True), epsilon=0.1)
    assert model.total < 10**5


@pytest.mark.parametrize("rounds", [1, 2, 9])
def test_any_number_of_rounds_uses_the_budget_up(rounds: int) -> None:
    sizes = (3, 4, 2, 3)
    _, fitted = fit(make_codes(sizes, pair=True), make_domain(sizes, target="a"), Adaptive(rounds=rounds))
    assert ("a", "b") in fitted.precision


def test_very_much_noise_fits_too() -> None:
    """A tiny epsilon for units of a hundred rows: no standard deviation passes what the filter allows."""
    sizes = (3, 4, 2)
    fit(make_codes(sizes), make_domain(sizes), epsilon=0.001, k=100)


def test_a_table_is_fitted_and_the_certificate_lists_what_was_measured() -> None:
    codes = make_codes((3, 3, 2), 600, pair=True)
    table = pa.table({name: [f"v{code}" for code in codes[:, i]] for i, name in enumerate("xyz")})
    values = tuple(f"v{code}" for code in range(3))
    schema = us.Schema(
        columns=tuple(
            us.Column(name=name, kind="categorical", categories=values[:size], nullable=False, closed=True)
            for name, size in zip("xyz", (3, 3, 2), strict=True)
        ),
        rows=600,
        target="z",
    )
    release = us.fit(table, FAST, make_guarantee(5.0), schema=schema, seed=0)
    assert 0.995 * 5 <= release.statement.epsilon <= 5
    measured = {each.columns for each in release.statement.measurements}
    assert {("x",), ("y",), ("z",), ("x", "y")} <= measured
    rows = release.sample(600, seed=1)
    assert np.mean(np.array(rows["x"]) == np.array(rows["y"])) > 0.7


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"workload": ()}, "workload"),
        ({"workload": (("a",),)}, "workload"),
        ({"workload": (("a", "a"),)}, "workload"),
        ({"interactions": 1}, "interactions"),
        ({"interactions": 9}, "interactions"),
        ({"rounds": 0}, "rounds"),
        ({"iterations": 0}, "iterations"),
        ({"target_weight": 0.5}, "target_weight"),
        ({"max_model_size": 0}, "max_model_size"),
    ],
)
def test_bad_settings_are_refused(settings: dict, setting: str) -> None:
    with raises(ConfigError, setting=setting):
        Adaptive(**settings)


def test_noise_beyond_any_table_is_refused_before_anything_is_charged() -> None:
    column = us.Column(name="a", kind="boolean", nullable=False)
    ids = us.Column(name="who", kind="id")
    schema = us.Schema(columns=(column, ids), rows=1000, unit="who", max_rows_per_unit=10**8)
    with pytest.raises(BudgetExceeded, match="Raise epsilon, or lower max_rows_per_unit"):
        us.plan(schema, "adaptive", us.Guarantee(1e-6, 1e-6))
