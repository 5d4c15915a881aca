"""Checkpoints of gem: covered by its own queries, and of use to boosted and selected, which charge for their own."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import raises
from tests.synthesizers.walk import DOMAIN, book, real_rows
from understudy.demo import demo_schema, demo_table
from understudy.errors import ConfigError
from understudy.models.mixture import MixtureOfProducts
from understudy.privacy.accounting.events import Selections
from understudy.privacy.accounting.ledger import Budget
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers import express, read_method
from understudy.synthesizers.boosted import Boosted
from understudy.synthesizers.boosted.method import DRS
from understudy.synthesizers.gem import GEM
from understudy.synthesizers.run import Run
from understudy.synthesizers.selected.method import Selected

TINY: dict[str, Any] = {"steps": 40, "components": 50, "width": 16, "depth": 1, "latent": 8}
ROUNDS: dict[str, Any] = {"rounds": 20, "checkpoint_every": 5, "samples_per_generator": 200}


def test_the_last_checkpoint_is_what_would_be_released() -> None:
    """With the same seed: keeping checkpoints changes neither the training nor what it costs."""
    gem, rows, books = GEM(**TINY), real_rows(k=2), [book(3.0, k=2), book(3.0, k=2)]
    plan = gem.plan(DOMAIN, books[0].remaining)
    released = gem.fit(Run(rows, plan, books[0], key=jax.random.key(0)))
    path = gem.trajectory(Run(rows, plan, books[1], key=jax.random.key(0)), checkpoints=3, every=10)
    assert books[0].queries == books[1].queries == plan.queries
    assert gem.num_checkpoints(10) == 4
    assert path.critics is None
    found = [model.probabilities for model in path.models if isinstance(model, MixtureOfProducts)]
    assert len(found) == 3
    np.testing.assert_allclose(found[-1], released.probabilities, atol=1e-5)
    assert not np.allclose(found[0], found[1], atol=1e-3)


@pytest.mark.parametrize(
    "wrapped",
    [
        Boosted(GEM(**TINY), **ROUNDS),
        Selected(GEM(**TINY), k=2, checkpoints=4, holdout_fraction=0.2),
        Selected(GEM(**TINY), task="marginals", checkpoints=4, holdout_fraction=0.0),
    ],
    ids=["boosted", "selected apart", "selected"],
)
def test_from_table_to_rows_at_the_cost_of_both(wrapped: Boosted | Selected, tmp_path: Path) -> None:
    """Charged are exactly gem's queries, planned behind the wrapper's own, and these; the plan says so beforehand."""
    table = demo_table().select(["insurance", "region"]).slice(0, 1000)
    columns = (*(demo_schema()[name] for name in table.column_names), us.Column(name="person", kind="id"))
    table = table.append_column("person", pa.array([number // 2 for number in range(1000)]))
    schema = us.Schema(columns=columns, rows=1000, target="insurance", unit="person", max_rows_per_unit=2)
    guarantee = us.Guarantee(3.0, 1e-6)
    release = us.fit(table, wrapped, guarantee, schema=schema, seed=0)
    planned = us.plan(schema, wrapped, guarantee)
    assert release.statement.queries == planned.queries
    kind = express(wrapped).partition("(")[0]
    rows_per_unit, *inner, own = planned.queries
    assert rows_per_unit.path == ("discovery",)
    assert [query.path for query in inner] == [(kind, "gem")] * 2
    assert own.path == (kind,)
    assert isinstance(own.event, Selections)
    assert 0.99 * 3 <= release.statement.epsilon <= 3
    names = [each.name for each in columns[:2]]
    sizes = tuple(len(each.categories or ()) + each.nullable for each in columns[:2])
    domain = Domain(names=tuple(names), sizes=sizes, num_rows=1000, target="insurance")
    budget = Budget(3.0, 1e-6, max_rows_per_unit=2).after([rows_per_unit])
    apart = isinstance(wrapped, Selected) and wrapped.holdout_fraction
    alone = wrapped.inner.plan(domain, budget if apart else budget.after([own]))
    assert [query.event for query in alone.queries] == [query.event for query in inner]
    release.save(tmp_path / "release")
    again = us.Release.load(tmp_path / "release")
    assert again.sample(200, seed=0).equals(release.sample(200, seed=0))
    assert set(again.sample(20, where="region = 'south'", seed=0)["region"].to_pylist()) == {"south"}


@pytest.mark.slow
def test_cells_above_the_measured_order_are_repaired() -> None:
    """Three columns, independent in pairs, one the exclusive or of the others: 2-way marginals show nothing of it."""
    draw = np.random.default_rng(0)
    bits = draw.integers(0, 2, (4000, 2))
    codes = np.concatenate([bits, bits.sum(axis=1, keepdims=True) % 2], axis=1).astype(np.int32)
    domain = Domain(names=("a", "b", "c"), sizes=(2, 2, 2), num_rows=4000)
    gem = GEM(**TINY)

    def even(method: Any) -> float:
        ledger = book(2.0)
        model = method.fit(
            Run(PrivateRows(codes, domain), method.plan(domain, ledger.remaining), ledger, key=jax.random.key(0))
        )
        return float(np.mean(model.sample(20_000, key=jax.random.key(1)).codes.sum(axis=1) % 2 == 0))

    assert even(gem) < 0.6
    boosted = Boosted(gem, distinguishers=(("a", "b", "c"),), rounds=200, checkpoint_every=5, learning_rate="sqrt")
    assert even(boosted) > 0.9


# ------------------------------------------------------------------------------------------------------------ the plans


def test_distinguishers_of_a_method_without_critics() -> None:
    """Cells alone, in the plan's words too; where there are neither, a plan is refused."""
    gem, budget = GEM(**TINY), Budget(1.0, 1e-6)
    assert (
        Boosted(gem, **ROUNDS).plan(DOMAIN, budget)["selections"].what == "20 selections among the cells of 1 marginals"
    )
    one = Domain(names=("a",), sizes=(2,), num_rows=100)
    assert "cells of 1 marginals" in Boosted(gem, **ROUNDS).plan(one, budget)["selections"].what
    with raises(ConfigError, setting="distinguishers"):
        Boosted(gem, distinguishers="two_way", **ROUNDS).plan(one, budget)
    for queries in ("none", ()):
        with raises(ConfigError, setting="distinguishers"):
            Boosted(gem, distinguishers=queries, **ROUNDS)
    with raises(ConfigError, setting="inner"):
        DRS(gem)


def test_as_many_checkpoints_as_there_are() -> None:
    """boosted(gem) works as it stands; what is asked for beyond them is refused."""
    boosted: Any = read_method("boosted(gem)")
    assert boosted._count == min(100, GEM().steps // 5)
    assert Boosted(GEM(**TINY), **ROUNDS)._count == 8
    assert express(read_method("boosted(gem)")) == "boosted(gem)"
    with raises(ConfigError, setting="checkpoints"):
        Boosted(GEM(**TINY), checkpoints=9, **ROUNDS)
    with raises(ConfigError, setting="checkpoints"):
        Boosted(GEM(**TINY), checkpoint_every=41)
