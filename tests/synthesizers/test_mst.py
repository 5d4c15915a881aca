"""MST: costs known in advance, the tree of strongest pairs, and small tables."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.builders import raises
from understudy.errors import ConfigError
from understudy.models.graphical import GraphicalModel
from understudy.privacy.accounting.ledger import Budget, Guarantee, Ledger, spent_by
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers.mst import MST
from understudy.synthesizers.run import Run

CHAIN = Domain(names=("a", "b", "c", "d"), sizes=(3, 4, 5, 3), num_rows=4000)


def _chain_rows(domain: Domain = CHAIN) -> np.ndarray:
    """Each column copies its left neighbour, up to its own size, and now and then forgets it."""
    rng = np.random.default_rng(0)
    columns = [rng.integers(domain.sizes[0], size=4000)]
    for size in domain.sizes[1:]:
        forgotten = rng.random(4000) < 0.2
        columns.append(np.where(forgotten, rng.integers(size, size=4000), columns[-1] % size))
    return np.stack(columns, axis=1).astype(np.int32)


def _fit(domain: Domain, codes: np.ndarray, epsilon: float, method: MST, seed: int = 0) -> GraphicalModel:
    ledger = Ledger(Guarantee(epsilon, 1e-6), noise=SeededNoise(seed))
    plan = method.plan(domain, ledger.remaining)
    model = method.fit(Run(PrivateRows(codes, domain), plan, ledger, key=jax.random.key(seed)))
    assert ledger.queries == plan.queries
    return model


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_plan_fills_the_budget(epsilon: float) -> None:
    guarantee = Guarantee(epsilon, 1e-6)
    plan = MST().plan(CHAIN, Ledger(guarantee, noise=SeededNoise(0)).remaining)
    assert [query.key for query in plan] == ["one_way", "tree", "two_way"]
    assert 0.995 * epsilon <= spent_by(plan, guarantee).epsilon <= epsilon


def test_shares_are_shares_of_zcdp() -> None:
    plan = MST(fractions=(1, 2, 5)).plan(CHAIN, Budget(1.0, 1e-6))
    prices = np.array([event.rho for event in plan.events])  # type: ignore[attr-defined]  # an event of this kind has it
    np.testing.assert_allclose(prices / prices.sum(), [1 / 8, 2 / 8, 5 / 8])


def test_several_rows_a_unit_cost_as_much_more_noise() -> None:
    one, three = (MST().plan(CHAIN, Budget(1.0, 1e-6, max_rows_per_unit=k))["two_way"].event for k in (1, 3))
    assert three.sensitivity == 3  # type: ignore[attr-defined]  # an event of this kind has it
    assert three.stddev > 2.9 * one.stddev  # type: ignore[attr-defined]  # an event of this kind has it


def test_tree_is_the_chain() -> None:
    model = _fit(CHAIN, _chain_rows(), 5.0, MST())
    pairs = {clique for clique in model.cliques if len(clique) == 2}
    assert pairs == {("a", "b"), ("b", "c"), ("c", "d")}
    exact = np.zeros((3, 4))
    np.add.at(exact, tuple(_chain_rows()[:, :2].T), 1)
    assert np.abs(model.marginal(("a", "b")) - exact).sum() < 200


def test_target_weight_draws_edges_to_the_target() -> None:
    """Where all pairs are alike, those with the target win."""
    domain = dataclasses.replace(CHAIN, names=("a", "b", "c", "t"), sizes=(3, 3, 3, 3), target="t")
    column = np.random.default_rng(1).integers(3, size=4000)
    codes = np.repeat(column[:, None], 4, axis=1).astype(np.int32)
    star = {("a", "t"), ("b", "t"), ("c", "t")}
    model = _fit(domain, codes, 5.0, MST(target_weight=3))
    assert {clique for clique in model.cliques if len(clique) == 2} == star
    assert "have weight 3" in MST(target_weight=3).plan(domain, Budget(1.0, 1e-6)).notes[0].text


@pytest.mark.parametrize("columns", [1, 2])
def test_small_tables(columns: int) -> None:
    domain = Domain(names=CHAIN.names[:columns], sizes=CHAIN.sizes[:columns], num_rows=4000)
    codes = _chain_rows()[:, :columns]
    model = _fit(domain, codes, 1.0, MST())
    assert model.sample(100, key=jax.random.key(0)).codes.shape == (100, columns)
    guarantee = Guarantee(1.0, 1e-6)
    plan = MST().plan(domain, Ledger(guarantee, noise=SeededNoise(0)).remaining)
    assert 0.995 <= spent_by(plan, guarantee).epsilon <= 1


def test_without_noise_the_chain_is_learnt_exactly() -> None:
    guarantee = Guarantee.not_private()
    ledger = Ledger(guarantee, noise=SeededNoise(0))
    rows, method = PrivateRows(_chain_rows(), CHAIN), MST()
    model = method.fit(Run(rows, method.plan(CHAIN, ledger.remaining), ledger, key=jax.random.key(0)))
    exact = np.zeros((4, 5))
    np.add.at(exact, tuple(_chain_rows()[:, 1:3].T), 1)
    assert np.abs(model.marginal(("b", "c")) - exact).sum() < 8


def test_same_seed_same_model() -> None:
    one, two = (_fit(CHAIN, _chain_rows(), 1.0, MST(), seed=3) for _ in range(2))
    assert one.cliques == two.cliques
    for first, second in zip(one.potentials, two.potentials, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"fractions": (1, 1)}, "fractions"),
        ({"fractions": (1, 0, 1)}, "fractions"),
        ({"target_weight": 0.5}, "target_weight"),
        ({"iterations": 0}, "iterations"),
    ],
)
def test_bad_settings_are_refused(settings: dict, setting: str) -> None:
    with raises(ConfigError, setting=setting):
        MST(**settings)
