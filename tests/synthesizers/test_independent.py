"""Independent columns: the budget is filled, each column is right, nothing connects them."""

import jax
import numpy as np

from tests.builders import raises
from understudy.errors import ConfigError
from understudy.privacy.accounting.ledger import Guarantee, Ledger, spent_by
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers.independent import Independent
from understudy.synthesizers.run import Run

DOMAIN = Domain(names=("a", "b"), sizes=(4, 3), num_rows=5000, target="b")


def _rows() -> np.ndarray:
    a = np.random.default_rng(0).choice(4, 5000, p=[0.5, 0.3, 0.2, 0.0])
    return np.stack([a, np.minimum(a, 2)], axis=1).astype(np.int32)


def test_plan_fills_the_budget_and_fit_charges_it() -> None:
    guarantee = Guarantee(1.0, 1e-6)
    ledger = Ledger(guarantee, noise=SeededNoise(0))
    plan = Independent().plan(DOMAIN, ledger.remaining)
    assert 0.995 <= spent_by(plan, guarantee).epsilon <= 1
    Independent().fit(Run(PrivateRows(_rows(), DOMAIN), plan, ledger, key=jax.random.key(0)))
    assert ledger.queries == plan.queries


def test_columns_are_right_and_unconnected() -> None:
    ledger = Ledger(Guarantee(3.0, 1e-6), noise=SeededNoise(0))
    method = Independent(smoothing=0.5)
    model = method.fit(
        Run(PrivateRows(_rows(), DOMAIN), method.plan(DOMAIN, ledger.remaining), ledger, key=jax.random.key(0))
    )
    rows = model.sample(20_000, key=jax.random.key(1)).codes
    shares = np.bincount(rows[:, 0], minlength=4) / 20_000
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2, 0.0], atol=0.02)
    assert model.marginal(("a",))[3] > 0  # never impossible
    pair = model.marginal(("a", "b"))
    np.testing.assert_allclose(pair, np.outer(pair.sum(1), pair.sum(0)) / pair.sum())


def test_bad_smoothing_is_refused() -> None:
    with raises(ConfigError, setting="smoothing"):
        Independent(smoothing=0)
