"""Adaptive marginals: one Gaussian query, used up and never exceeded; what is measured, and what is not."""

import itertools
import math

import jax
import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import make_guarantee, make_ledger
from understudy.errors import BudgetExceeded, ConfigError, SchemaError
from understudy.models.graphical import GraphicalModel
from understudy.models.junction import Clique, count_cells
from understudy.privacy.events import Gaussian
from understudy.privacy.filters import LEAST_ERROR_NOISE, ROOM, GaussianFilter
from understudy.privacy.ledger import Budget, spent_by
from understudy.privacy.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers.adaptive import CELLS_PER_MEGABYTE, Adaptive, _Fit
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


def fit(
    codes: np.ndarray, domain: Domain, method: Adaptive = FAST, *, epsilon: float = 1.0, k: int = 1, seed: int = 0
) -> tuple[GraphicalModel, _Fit]:
    """The model, and the fit with what it measured. The ledger has the planned queries and no other."""
    ledger = make_ledger(epsilon, seed=seed, rows_per_unit=k)
    plan = method.plan(domain, ledger.remaining)
    fitted = _Fit(method, Run(PrivateRows(codes, domain, max_rows_per_unit=k), plan, ledger, key=jax.random.key(0)))
    model = fitted.run()
    assert ledger.queries == plan.queries
    assert fitted.filter.left <= 1e-3 * fitted.filter.precision  # used up, however the run went
    return model, fitted


def chosen(fitted: _Fit) -> set[Clique]:
    return {clique for clique in fitted.precision if len(clique) > 1}


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
def test_answers_add_up_to_what_was_charged(
    sizes: tuple[int, ...], epsilon: float, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The precision of all answers, added up beside the filter: within what was charged for, and 99.9 % of it.

    Also where no candidate is left before the last round, and where errors cannot have as little noise as is allotted.
    """
    heard: list[float] = []
    count, errors = GaussianFilter._count, GaussianFilter.noisy_errors

    def count_heard(privacy_filter: GaussianFilter, query: Clique, stddev: float) -> np.ndarray:
        heard.append(stddev**-2)
        return count(privacy_filter, query, stddev)

    def errors_heard(
        privacy_filter: GaussianFilter, cliques: list[Clique], expected: list[np.ndarray], stddev: float
    ) -> np.ndarray:
        heard.append(len(cliques) * max(stddev, LEAST_ERROR_NOISE) ** -2)
        return errors(privacy_filter, cliques, expected, stddev)

    monkeypatch.setattr(GaussianFilter, "_count", count_heard)
    monkeypatch.setattr(GaussianFilter, "noisy_errors", errors_heard)
    _, fitted = fit(make_codes(sizes, pair=True), make_domain(sizes), epsilon=epsilon, k=k)
    event = fitted._run.plan["marginals"].event
    assert isinstance(event, Gaussian)
    charged = 1 / (event.noise_multiplier * k) ** 2
    assert 0.999 * charged <= math.fsum(heard) <= charged * (1 + ROOM)


def test_the_precision_of_a_marginal_is_that_of_its_measurements() -> None:
    _, fitted = fit(make_codes((3, 4, 2), pair=True), make_domain((3, 4, 2)), epsilon=3.0)
    for clique, precision in fitted.precision.items():
        noise = [float(np.max(m.stddev)) for m in fitted.measurements if m.clique == clique]
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
    assert list(fitted.first_errors)[int(np.argmax(list(fitted.first_errors.values())))] == ("a", "b")
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
    assert {("a", "b"), ("c", "d", "e")} <= chosen(fitted) <= {*fitted.pairs, ("c", "d", "e")}
    assert set(fitted.pairs) == {("a", "b"), ("c", "d"), ("c", "e"), ("d", "e")}


def test_a_workload_of_unknown_columns_is_refused_in_one_line() -> None:
    with pytest.raises(SchemaError, match=r"no column 'bb'.*Did you mean 'b'") as refused:
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
    assert ("a", "b") not in fitted.first_errors


@pytest.mark.parametrize("target", [None, "a"])
def test_one_column(target: str | None) -> None:
    model, fitted = fit(make_codes((5,)), make_domain((5,), target=target), Adaptive())
    assert set(fitted.precision) == {("a",)}
    assert model.sample(20, key=jax.random.key(0)).codes.shape == (20, 1)


@pytest.mark.parametrize("target", [None, "a"])
def test_constant_columns_are_no_candidates(target: str | None) -> None:
    model, fitted = fit(np.zeros((500, 4), np.int32), make_domain((1,) * 4, 500, target=target), Adaptive())
    assert not chosen(fitted)
    assert not model.sample(20, key=jax.random.key(0)).codes.any()
    sizes = (3, 3, 1)
    _, fitted = fit(make_codes(sizes, pair=True), make_domain(sizes, target=target), epsilon=10.0)
    assert chosen(fitted) == {("a", "b")}


@pytest.mark.parametrize("num_rows", [0, 1, 3000])
@pytest.mark.parametrize("epsilon", [0.1, 20.0])
def test_a_single_row_is_declared(num_rows: int, epsilon: float) -> None:
    """Also where the table has more: counts that say so come after the whole budget went to the columns."""
    sizes = (3, 4, 2)
    model, fitted = fit(make_codes(sizes, num_rows), make_domain(sizes, 1, declared=True), epsilon=epsilon)
    assert not chosen(fitted)
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
    ("setting", "words"),
    [
        ({"workload": ()}, "workload must be a list .* with at least 1 entry"),
        ({"workload": (("a",),)}, "each with at least 2 entries"),
        ({"workload": (("a", "a"),)}, "none twice"),
        ({"interactions": 1}, "interactions must be"),
        ({"interactions": 9}, "interactions must be"),
        ({"rounds": 0}, "rounds must be a whole number of at least 1"),
        ({"selection_fraction": 1.0}, "selection_fraction must be"),
        ({"prior_variance": 0.0}, "prior_variance must be a positive number"),
        ({"target_weight": 0.5}, "at least 1"),
        ({"max_model_size": 0}, "max_model_size must be a positive number"),
    ],
)
def test_bad_settings_are_refused(setting: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Adaptive(**setting)


def test_noise_beyond_any_table_is_refused_before_anything_is_charged() -> None:
    column = us.Column(name="a", kind="boolean", nullable=False)
    ids = us.Column(name="who", kind="id")
    schema = us.Schema(columns=(column, ids), rows=1000, unit="who", max_rows_per_unit=10**8)
    with pytest.raises(BudgetExceeded, match="Raise epsilon, or lower max_rows_per_unit"):
        us.plan(schema, "adaptive", us.Guarantee(1e-6, 1e-6))
