"""PrivBayes: cost fixed in advance, parents of useful size, the chain is found, conditionals from noisy counts."""

import itertools

import jax
import numpy as np
import pytest

from understudy.errors import ConfigError
from understudy.models.bayesian_network import BayesianNetwork
from understudy.privacy.accounting.ledger import Budget, Guarantee, Ledger, spent_by
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers import privbayes
from understudy.synthesizers.privbayes import PrivBayes, _conditional, _maximal_sets, _random_maximal_set
from understudy.synthesizers.run import Run

CHAIN = Domain(names=("a", "b", "c", "d"), sizes=(3, 4, 5, 3), num_rows=4000)


def chain_rows(num_rows: int = 4000) -> np.ndarray:
    """Each column copies its left neighbour, up to its own size, and is random in one row of five."""
    rng = np.random.default_rng(0)
    columns = [rng.integers(CHAIN.sizes[0], size=num_rows)]
    for size in CHAIN.sizes[1:]:
        is_random = rng.random(num_rows) < 0.2
        columns.append(np.where(is_random, rng.integers(size, size=num_rows), columns[-1] % size))
    return np.stack(columns, axis=1).astype(np.int32)


def fit(method: PrivBayes, epsilon: float, codes: np.ndarray, seed: int = 0, k: int = 1) -> BayesianNetwork:
    ledger = Ledger(Guarantee(epsilon, 1e-6), noise=SeededNoise(seed), max_rows_per_unit=k)
    plan = method.plan(CHAIN, ledger.remaining)
    rows = PrivateRows(codes, CHAIN, max_rows_per_unit=k, units=np.arange(len(codes)) // k)
    model = method.fit(Run(rows, plan, ledger, key=jax.random.key(seed)))
    assert ledger.queries == plan.queries
    return model


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_the_plan_fills_the_budget(epsilon: float) -> None:
    guarantee = Guarantee(epsilon, 1e-6)
    plan = PrivBayes().plan(CHAIN, guarantee.budget(1))
    assert [query.key for query in plan] == ["network", "marginals"]
    assert 0.995 * epsilon <= spent_by(plan, guarantee).epsilon <= epsilon
    assert 0.99 * 0.3 * epsilon <= spent_by([plan["network"]], guarantee).epsilon <= 0.3 * epsilon


def test_costs_depend_on_no_size() -> None:
    other = Domain(names=CHAIN.names, sizes=(9, 2, 30, 7), num_rows=70)
    budget = Budget(1.0, 1e-6)
    assert PrivBayes().plan(CHAIN, budget).events == PrivBayes().plan(other, budget).events


def test_one_column_needs_no_network() -> None:
    domain = Domain(names=("a",), sizes=(3,), num_rows=100)
    ledger = Ledger(Guarantee(1.0, 1e-6), noise=SeededNoise(0))
    method = PrivBayes()
    plan = method.plan(domain, ledger.remaining)
    model = method.fit(Run(PrivateRows(np.zeros((100, 1), np.int32), domain), plan, ledger, key=jax.random.key(0)))
    assert [query.key for query in plan] == ["marginals"]
    assert model.sample(50, key=jax.random.key(1)).codes.shape == (50, 1)


def test_neighbours_in_the_chain_become_parents() -> None:
    model = fit(PrivBayes(max_parents=1), 5.0, chain_rows())
    edges = {frozenset((child, *parents)) for child, parents in enumerate(model.parents) if parents}
    assert edges == {frozenset((at, at + 1)) for at in range(3)}


@pytest.mark.parametrize("k", [1, 2])
def test_synthetic_pairs_are_those_of_the_rows(k: int) -> None:
    codes = chain_rows()
    found = fit(PrivBayes(), 10.0, codes, k=k).sample(4000, key=jax.random.key(3)).codes
    for one, two in itertools.combinations(range(4), 2):
        tables = [np.histogram2d(each[:, one], each[:, two], bins=(range(7), range(7)))[0] for each in (codes, found)]
        assert 0.5 * np.abs(tables[0] - tables[1]).sum() / 4000 < 0.06


@pytest.mark.parametrize("epsilon", [0.05, 1.0])
def test_marginals_stay_useful(epsilon: float) -> None:
    method = PrivBayes()
    model = fit(method, epsilon, chain_rows())
    stddev = method.plan(CHAIN, Budget(epsilon, 1e-6))["marginals"].event.stddev  # type: ignore[attr-defined]  # an event of this kind has it
    for child, parents in enumerate(model.parents):
        if parents:
            cells = CHAIN.sizes[child] * np.prod([CHAIN.sizes[parent] for parent in parents])
            assert cells <= CHAIN.num_rows / (4 * stddev)


def test_parent_sets_are_maximal() -> None:
    """Against a search of all subsets."""
    for limit, most in itertools.product((1, 3, 12, 20, 60, 200), (1, 2, 3)):
        fitting = [
            set(subset)
            for size in range(most + 1)
            for subset in itertools.combinations(CHAIN.names, size)
            if CHAIN.size(subset) <= limit
        ]
        maximal = {frozenset(one) for one in fitting if not any(one < other for other in fitting)}
        assert {frozenset(each) for each in _maximal_sets(CHAIN, CHAIN.names, limit, most)} == maximal


def test_many_candidates_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privbayes, "MAX_CANDIDATES", 1)
    model = fit(PrivBayes(), 5.0, chain_rows())
    assert sorted(model.order) == [0, 1, 2, 3]


def test_random_parent_sets_are_the_maximal_ones() -> None:
    generator = np.random.default_rng(0)
    for limit, most in itertools.product((1, 12, 20, 60), (1, 2, 3)):
        found = {_random_maximal_set(CHAIN, CHAIN.names, limit, most, generator) for _ in range(200)}
        assert found == set(_maximal_sets(CHAIN, CHAIN.names, limit, most))


def test_candidates_of_a_wide_table_are_never_listed() -> None:
    """Of 400 columns there are more than 10^9 of them."""
    names = tuple(f"c{number}" for number in range(400))
    domain = Domain(names=names, sizes=(2,) * 400, num_rows=10**6)
    found = PrivBayes()._candidates(domain, names[:200], 10**4, np.random.default_rng(0))
    assert 1000 < len(set(found)) == len(found) <= 2000
    assert all(len(each.parents) == 3 and set(each.parents) <= set(names[:200]) for each in found)
    assert not {each.child for each in found} & set(names[:200])


def test_conditionals_of_contexts_without_counts_are_the_overall_ones() -> None:
    noisy = np.asarray([[6.0, 2.0], [-3.0, -1.0], [1.0, -5.0]])
    np.testing.assert_allclose(_conditional(noisy), [[0.75, 0.25], [7 / 9, 2 / 9], [1.0, 0.0]])
    np.testing.assert_allclose(_conditional(np.full((2, 4), -1.0)), np.full((2, 4), 0.25))


def test_noise_in_many_contexts_adds_no_rows_to_a_code_that_nobody_has() -> None:
    """Of 100 contexts, half of the noisy counts of an empty code are above zero; together they are about zero."""
    noisy = np.c_[np.full((100, 2), 500), np.zeros((100, 1), dtype=int)]
    noisy = noisy + np.rint(np.random.default_rng(0).normal(0, 20, (100, 3))).astype(int)
    assert np.maximum(noisy, 0)[:, 2].sum() > 600
    assert _conditional(noisy.astype(float))[:, 2].mean() < 3e-3


@pytest.mark.parametrize("setting", ["selection_fraction", "max_parents"])
def test_bad_settings_are_refused(setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PrivBayes(**{setting: 0})
    assert caught.value.setting == setting
