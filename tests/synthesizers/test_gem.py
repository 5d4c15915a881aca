"""GEM: what it plans is what it charges and spends, it selects where its generator errs, and small tables work."""

import math
from typing import Any

import jax
import numpy as np
import pytest

from tests.builders import make_ledger as ledger
from tests.builders import raises
from understudy.errors import ConfigError, SchemaError
from understudy.models.mixture import MixtureOfProducts
from understudy.privacy.accounting.events import Gaussian, Selections
from understudy.privacy.accounting.ledger import Budget, Ledger, Plan, spent_by
from understudy.privacy.mechanisms.filters import ROOM
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers.gem import GEM
from understudy.synthesizers.run import Run

SMALL: dict[str, Any] = {"steps": 60, "components": 64, "width": 16, "depth": 1, "latent": 8, "learning_rate": 0.02}
NAMES, SIZES = ("a", "b", "t", "c"), (3, 4, 2, 5)


def table(num_rows: int = 2000, *, target: str | None = None, rows_per_unit: int = 1) -> PrivateRows:
    """Four columns, of which b is nearly a; t depends on c a little."""
    draw = np.random.default_rng(0)
    a, c = draw.integers(0, 3, num_rows), draw.integers(0, 5, num_rows)
    b = np.where(draw.random(num_rows) < 0.9, a, draw.integers(0, 4, num_rows))
    t = np.where(draw.random(num_rows) < 0.2, c > 2, draw.integers(0, 2, num_rows))
    domain = Domain(names=NAMES, sizes=SIZES, num_rows=max(1, num_rows), target=target, numeric=("c",))
    codes = np.stack([a, b, t, c], axis=1).astype(np.int32)
    return PrivateRows(codes, domain, max_rows_per_unit=rows_per_unit)


def fit(gem: GEM, rows: PrivateRows, epsilon: float = 2.0) -> tuple[MixtureOfProducts, Ledger, Plan]:
    run = ledger(epsilon, rows_per_unit=rows.max_rows_per_unit)
    plan = gem.plan(rows.domain, run.remaining)
    model = gem.fit(Run(rows, plan, run, key=jax.random.key(0)))
    assert run.queries == plan.queries
    return model, run, plan


@pytest.mark.parametrize("rows_per_unit", [1, 3])
@pytest.mark.parametrize("settings", [{}, {"num_selections": 5, "rounds": 2}, {"workload": (("a", "b"),)}])
def test_what_is_planned_is_charged_and_spent(settings: dict[str, Any], rows_per_unit: int) -> None:
    """The precision of all answers is that of the charged Gaussian query, and the plan fills the budget."""
    _, run, plan = fit(GEM(**SMALL, **settings), table(1000, target="t", rows_per_unit=rows_per_unit))
    selections, marginals = plan["rounds"].event, plan["marginals"].event
    assert isinstance(selections, Selections)
    assert isinstance(marginals, Gaussian)
    assert selections.rounds == settings.get("num_selections", 8)
    measured = [each.stddev for each in run.measurements]
    spent = math.fsum((rows_per_unit / stddev) ** 2 for stddev in measured) * marginals.noise_multiplier**2
    assert 1 - 1e-6 <= spent <= 1 + ROOM / 2
    assert len(measured) <= 4 + selections.rounds
    assert 0.99 * 2.0 <= spent_by(plan, run.guarantee).epsilon <= 2.0


def test_no_cost_depends_on_sizes() -> None:
    """Sizes may be private estimates, and workloads are named by columns."""
    gem, budget = GEM(target_weight=1.0), Budget(1.0, 1e-6)
    plans = [
        gem.plan(Domain(names=NAMES, sizes=sizes, num_rows=rows), budget)
        for sizes, rows in [(SIZES, 10), ((900, 2, 2, 800), 10**6)]
    ]
    assert plans[0].queries == plans[1].queries


def test_the_strongest_pair_is_selected_first() -> None:
    _, run, _ = fit(GEM(**SMALL), table(), epsilon=20.0)
    assert [each.columns for each in run.measurements[:4]] == [(name,) for name in NAMES]
    assert run.measurements[4].columns == ("a", "b")


def test_the_model_has_the_selected_dependence() -> None:
    """At a generous epsilon the model has what was measured, and the rest stays as it was: independent."""
    rows = table()
    model, _, _ = fit(GEM(**{**SMALL, "steps": 300}), rows, epsilon=20.0)
    for clique, tolerance in ((("a", "b"), 0.05), (("a", "c"), 0.05)):
        exact = rows._exact_counts(clique) / 2000
        assert np.abs(model.marginals([clique])[0] - exact).sum() / 2 < tolerance


def test_a_workload_bounds_what_is_measured() -> None:
    _, run, _ = fit(GEM(**SMALL, workload=(("c", "t"),)), table())
    assert {each.columns for each in run.measurements} <= {*((name,) for name in NAMES), ("t", "c")}
    with raises(SchemaError, column="nowhere"):
        GEM(workload=(("a", "nowhere"),)).plan(table(10).domain, Budget(1.0, 1e-6))


def test_marginals_with_the_target_weigh_more() -> None:
    """With a large weight all selections contain it, three columns at a time too."""
    _, run, plan = fit(GEM(**SMALL, target_weight=1e6), table(target="t"), epsilon=20.0)
    chosen = [each.columns for each in run.measurements[4:]]
    assert all("t" in clique for clique in chosen)
    assert any(len(clique) == 3 for clique in chosen)
    assert any("weight 1e+06" in note.text for note in plan.notes)


@pytest.mark.parametrize("num_rows", [0, 1])
def test_tables_without_evidence(num_rows: int) -> None:
    model, _, _ = fit(GEM(**SMALL), table(num_rows))
    assert np.isfinite(model.probabilities).all()


def test_one_column_has_nothing_to_select() -> None:
    domain = Domain(names=("a",), sizes=(3,), num_rows=500)
    rows = PrivateRows(np.repeat([0, 1], [100, 400])[:, None].astype(np.int32), domain)
    model, run, plan = fit(GEM(**{**SMALL, "steps": 200}), rows)
    assert [query.key for query in plan.queries] == ["marginals"]
    assert len(run.measurements) == 1
    np.testing.assert_allclose(model.marginals([("a",)])[0], [0.2, 0.8, 0.0], atol=0.05)


def test_without_privacy_counts_are_exact() -> None:
    model, run, _ = fit(GEM(**{**SMALL, "steps": 300}), table(), epsilon=math.inf)
    np.testing.assert_allclose(model.marginals([("a", "b")])[0], table()._exact_counts(("a", "b")) / 2000, atol=0.02)
    assert len(run.measurements) == 4 + 8


def test_progress_rises_to_one() -> None:
    told: list[float] = []
    run, gem, rows = ledger(2.0), GEM(**SMALL), table(500)
    plan = gem.plan(rows.domain, run.remaining)
    gem.fit(Run(rows, plan, run, key=jax.random.key(0), progress=lambda fraction, phase: told.append(fraction)))
    assert told == sorted(told)
    assert told[-1] == 1.0


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"rounds": 0}, "rounds"),
        ({"num_selections": 0}, "num_selections"),
        ({"selection_fraction": 0.0}, "selection_fraction"),
        ({"target_weight": 0.5}, "target_weight"),
        ({"workload": ()}, "workload"),
        ({"workload": (("a", "a"),)}, "workload"),
        ({"components": 0}, "components"),
        ({"steps": 1.5}, "steps"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], setting: str) -> None:
    with raises(ConfigError, setting=setting):
        GEM(**settings)
