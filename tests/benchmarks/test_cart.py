"""The CART baseline: values are copied from real rows of the right leaf."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sklearn.tree import DecisionTreeRegressor

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.baselines.cart import fit_cart
from understudy.demo import demo_table


def mean_age(table: pa.Table, insurance: str) -> float:
    return pc.mean(table.filter(pc.equal(table["insurance"], insurance))["age"]).as_py()


def test_rows_look_like_the_table() -> None:
    """Shares within 4.5 standard errors, a dependence, and values of real rows alone."""
    table = demo_table().select(["insurance", "region", "age"]).slice(0, 1500)
    model = fit_cart(table)
    fake = model.sample(20_000, seed=0)
    for value in ("yes", "no"):
        shares = [np.mean(np.asarray(t["insurance"].to_pylist()) == value) for t in (table, fake)]
        assert abs(shares[0] - shares[1]) < 4.5 * 0.5 / np.sqrt(20_000)
    insured = [mean_age(t, "yes") - mean_age(t, "no") for t in (table, fake)]
    assert insured[1] == pytest.approx(insured[0], abs=2.0)
    assert set(fake["age"].to_pylist()) <= set(table["age"].to_pylist())
    assert fake.schema.types == table.schema.types
    assert model.sample(50, seed=1).equals(fit_cart(table).sample(50, seed=1))
    assert not model.sample(50, seed=1).equals(model.sample(50, seed=2))


def test_leaves_are_those_of_the_tree() -> None:
    """Against scikit-learn: at least `min_bucket` donors in each leaf, and new values from within."""
    draw = np.random.default_rng(0)
    first = draw.random(400)
    second = np.where(first > 0.5, 0.8, 0.2) + 0.1 * draw.random(400)
    model = fit_cart(pa.table({"a": first, "b": second}), min_bucket=5)
    scaled = (second - second.min()) / np.ptp(second)
    tree = DecisionTreeRegressor(
        min_samples_leaf=5, min_samples_split=15, ccp_alpha=1e-8 * np.var(scaled), random_state=0
    ).fit(model.features[0], scaled)
    leaf = tree.apply(model.features[0])
    donors, start = model.leaves[1].donors, model.leaves[1].start
    for node in np.unique(leaf):
        assert set(donors[start[node] : start[node + 1]]) == set(np.flatnonzero(leaf == node))
        assert start[node + 1] - start[node] >= 5
    fake = model.sample(2000, seed=0)
    assert np.all((fake["a"].to_numpy() > 0.5) == (fake["b"].to_numpy() > 0.5))


def test_nulls_and_constant_columns_are_no_trouble() -> None:
    table = pa.table({"a": ["x"] * 40, "b": [None, 1.5] * 20, "c": ["u", None] * 20, "d": pa.nulls(40, pa.int64())})
    fake = fit_cart(table).sample(400, seed=0)
    assert fake["a"].to_pylist() == ["x"] * 400
    assert set(zip(fake["b"].to_pylist(), fake["c"].to_pylist(), strict=True)) == {(None, "u"), (1.5, None)}
    assert fake["d"].null_count == 400


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        fit_cart(pa.table({"a": pa.array([], pa.bool_())}))
