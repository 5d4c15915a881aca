"""AIM: one zCDP budget, spent in full and never exceeded; caps on size and rounds; small tables."""

import jax
import numpy as np
import pytest

from tests.builders import raises
from understudy.errors import ConfigError, SchemaError
from understudy.models.graphical import GraphicalModel
from understudy.privacy.accounting.events import ZCDP
from understudy.privacy.accounting.ledger import Budget, Guarantee, Ledger, spent_by
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers.aim import AIM
from understudy.synthesizers.mst import MST
from understudy.synthesizers.run import Run

DOMAIN = Domain(names=("a", "b", "c", "d", "e"), sizes=(3, 4, 5, 3, 2), num_rows=4000)


def _codes() -> np.ndarray:
    """A loop of dependencies, which no tree can hold, and a column that is the parity of two others."""
    rng = np.random.default_rng(0)
    a, d = rng.integers(3, size=4000), rng.integers(3, size=4000)
    b = np.where(rng.random(4000) < 0.6, a, d)
    c = np.where(rng.random(4000) < 0.5, np.where(rng.random(4000) < 0.5, a, d), rng.integers(5, size=4000))
    return np.stack([a, b, c, d, (a + d) % 2], axis=1).astype(np.int32)


def _exact(clique: tuple[str, ...]) -> np.ndarray:
    table = np.zeros(DOMAIN.shape(clique))
    np.add.at(table, tuple(_codes()[:, DOMAIN.index(name)] for name in clique), 1)
    return table


def _fit(
    method: AIM | MST, epsilon: float, domain: Domain = DOMAIN, codes: np.ndarray | None = None
) -> tuple[GraphicalModel, list[float]]:
    ledger = Ledger(Guarantee(epsilon, 1e-6), noise=SeededNoise(0))
    plan = method.plan(domain, ledger.remaining)
    told: list[float] = []
    rows = PrivateRows(_codes() if codes is None else codes, domain)
    model = method.fit(Run(rows, plan, ledger, key=jax.random.key(0), progress=lambda share, words: told.append(share)))
    assert ledger.queries == plan.queries
    return model, told


def test_plan_is_one_zcdp_budget_that_fills_the_guarantee() -> None:
    guarantee = Guarantee(1.0, 1e-6)
    plan = AIM().plan(DOMAIN, Ledger(guarantee, noise=SeededNoise(0)).remaining)
    assert isinstance(plan["rounds"].event, ZCDP)
    assert len(plan.queries) == 1
    assert 0.995 <= spent_by(plan, guarantee).epsilon <= 1


def test_the_whole_zcdp_budget_is_spent_round_by_round() -> None:
    """The filter refuses what would exceed the zCDP budget, so reaching its end is spending it exactly."""
    _, told = _fit(AIM(), 1.0)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("max_rounds", [6, 10, 40])
def test_rounds_are_capped(max_rounds: int) -> None:
    _, told = _fit(AIM(max_rounds=max_rounds), 1.0)
    assert len(told) + len(DOMAIN.names) <= max_rounds
    assert told[-1] == pytest.approx(1, abs=1e-6)


def test_rounds_are_capped_in_wide_tables() -> None:
    """Columns come first, and what they cost must leave no room for more rounds than allowed."""
    domain = Domain(names=tuple(f"c{i}" for i in range(40)), sizes=(2,) * 40, num_rows=300)
    codes = np.random.default_rng(0).integers(2, size=(300, 40)).astype(np.int32)
    _, told = _fit(AIM(max_rounds=43, iterations=5), 1.0, domain, codes)
    assert len(told) <= 3


def test_model_size_is_capped() -> None:
    cells = 60
    model, _ = _fit(AIM(max_model_size=cells * 8 / 2**20), 10.0)
    assert sum(DOMAIN.size(clique) for clique in model.tree.cliques) <= cells
    larger, _ = _fit(AIM(), 10.0)
    assert sum(DOMAIN.size(clique) for clique in larger.tree.cliques) > cells


def test_loops_are_learnt_where_a_tree_cannot() -> None:
    pairs = [(a, b) for i, a in enumerate(DOMAIN.names) for b in DOMAIN.names[i + 1 :]]

    def error(model: GraphicalModel) -> float:
        found = model.marginals(pairs)
        return sum(float(np.abs(table - _exact(pair)).sum()) for table, pair in zip(found, pairs, strict=True))

    assert error(_fit(AIM(), 5.0)[0]) < 0.8 * error(_fit(MST(), 5.0)[0])


def test_target_brings_triples() -> None:
    """The parity of two columns is in no pair; with it as target, the triple is found."""
    domain = Domain(names=DOMAIN.names, sizes=DOMAIN.sizes, num_rows=4000, target="e")
    model, _ = _fit(AIM(), 5.0, domain)
    np.testing.assert_allclose(model.marginal(("a", "d", "e")), _exact(("a", "d", "e")), atol=60)


def test_workload_bounds_what_is_measured() -> None:
    model, _ = _fit(AIM(workload=(("b", "a"), ("c", "d", "e"))), 2.0)
    assert all(set(c) <= {"a", "b"} or set(c) <= {"c", "d", "e"} for c in model.cliques)
    with raises(SchemaError, column="nope"):
        AIM(workload=(("a", "nope"),)).plan(DOMAIN, Budget(1.0, 1e-6))


def test_choices_avoid_marginals_larger_than_the_table() -> None:
    domain = Domain(names=("x", "y"), sizes=(100, 100), num_rows=500)
    codes = np.random.default_rng(0).integers(100, size=(500, 2)).astype(np.int32)
    model, _ = _fit(AIM(), 1.0, domain, codes)
    assert ("x", "y") not in model.cliques


@pytest.mark.parametrize("columns", [1, 2])
def test_small_tables(columns: int) -> None:
    domain = Domain(names=DOMAIN.names[:columns], sizes=DOMAIN.sizes[:columns], num_rows=4000)
    model, told = _fit(AIM(), 1.0, domain, _codes()[:, :columns])
    assert model.sample(50, key=jax.random.key(0)).codes.shape == (50, columns)
    assert told[-1] == pytest.approx(1, abs=1e-6)


def test_units_with_several_rows_get_more_noise() -> None:
    """The zCDP budget stays the same; the noise grows with the rows a unit may have."""
    ledger = Ledger(Guarantee(1.0, 1e-6), noise=SeededNoise(0), max_rows_per_unit=4)
    method = AIM(max_rounds=12)
    rows = PrivateRows(_codes(), DOMAIN, max_rows_per_unit=4)
    model = method.fit(Run(rows, method.plan(DOMAIN, ledger.remaining), ledger, key=jax.random.key(0)))
    assert model.total == 4000


def test_without_noise_the_pairs_are_exact() -> None:
    ledger = Ledger(Guarantee.not_private(), noise=SeededNoise(0))
    method = AIM(max_rounds=20)
    model = method.fit(
        Run(PrivateRows(_codes(), DOMAIN), method.plan(DOMAIN, ledger.remaining), ledger, key=jax.random.key(0))
    )
    assert np.abs(model.marginal(("a", "b")) - _exact(("a", "b"))).sum() < 40


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"workload": ()}, "workload"),
        ({"workload": ((),)}, "workload"),
        ({"target_weight": 0.0}, "target_weight"),
        ({"max_model_size": 0}, "max_model_size"),
        ({"max_rounds": 0}, "max_rounds"),
        ({"iterations": 0}, "iterations"),
    ],
)
def test_bad_settings_are_refused(settings: dict, setting: str) -> None:
    with raises(ConfigError, setting=setting):
        AIM(**settings)
