"""Sequential CART: never private, whatever one does, and otherwise a method like any other."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sklearn.tree import DecisionTreeRegressor

import understudy as us
from understudy.cli import run
from understudy.demo import demo_schema, demo_table
from understudy.donors import grown
from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting import Gaussian, NonPrivate, fits, spent
from understudy.privacy.charges import open_rows
from understudy.privacy.ledger import Budget, Look, Plan
from understudy.privacy.noise import SeededNoise
from understudy.privacy.rows import PrivateRows
from understudy.schema import Domain
from understudy.synthesizers import read_method

NOT_PRIVATE = us.Guarantee.not_private()
DOMAIN = Domain(names=("a", "b"), sizes=(2, 3), num_rows=30)


@pytest.fixture(scope="module")
def survey() -> tuple[us.Schema, pa.Table]:
    table = demo_table().select(["insurance", "region", "age"]).slice(0, 1500)
    return us.Schema(columns=tuple(demo_schema()[name] for name in table.column_names), rows=1500), table


@pytest.fixture(scope="module")
def release(survey: tuple[us.Schema, pa.Table]) -> us.Release:
    return us.fit(survey[1], "cart", NOT_PRIVATE, schema=survey[0], seed=0)


# ------------------------------------------------------------------------------------------------------- never private


class Untouchable(PrivateRows):
    """Rows that must not be read."""

    def __init__(self) -> None:
        super().__init__(np.zeros((30, 2), dtype=np.int32), DOMAIN)

    def __getattribute__(self, name: str) -> object:
        assert name not in ("_codes", "_positions"), "a row was read"
        return super().__getattribute__(name)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1000.0])
def test_no_guarantee_is_ever_given(epsilon: float, survey: tuple[us.Schema, pa.Table]) -> None:
    """Not by `fit`, nor by `plan`, nor with a plan made for another budget, nor by the look itself."""
    guarantee = us.Guarantee(epsilon, 1e-6)
    for call in (
        lambda: us.fit(survey[1], "cart", guarantee, schema=survey[0]),
        lambda: us.plan(survey[0], "cart", guarantee),
    ):
        with pytest.raises(ConfigError, match="cart is never private"):
            call()
    ledger, rows = us.Ledger(guarantee, noise=SeededNoise(0)), Untouchable()
    stolen = read_method("cart").plan(DOMAIN, us.Ledger(NOT_PRIVATE, noise=SeededNoise(0)).remaining)
    with pytest.raises(BudgetExceeded, match=r"no budget covers it\. This query was not made"):
        read_method("cart").fit(rows, stolen, ledger, key=jax.random.key(0))
    with pytest.raises(BudgetExceeded, match="This query was not made"):
        ledger.charge(stolen["rows"])
    assert ledger.looks == ()


def test_no_wrapper_makes_it_private(survey: tuple[us.Schema, pa.Table]) -> None:
    with pytest.raises(ConfigError, match="cart is never private"):
        us.fit(survey[1], "quail(cart)", us.Guarantee(1.0, 1e-6), schema=survey[0], target="insurance")
    for around in ("boosted(cart)", "selected(cart)", "drs(cart)"):
        with pytest.raises(ConfigError, match="cart has none"):
            read_method(around)


def test_the_event_has_no_finite_price() -> None:
    """Alone, and beside whatever else: a statement with it in can show no finite epsilon."""
    assert spent([NonPrivate()], 1e-2).epsilon == math.inf
    assert not fits([NonPrivate()], 1000.0, 1e-2)
    cheap, ledger = Look("rows", "", Gaussian(1e9)), us.Ledger(NOT_PRIVATE, noise=SeededNoise(0))
    with pytest.raises(BudgetExceeded, match="charged as NonPrivate"):  # another event cannot stand for it
        open_rows(Untouchable(), cheap, ledger)


def _schema() -> us.Schema:
    return us.Schema(columns=(us.Column(name="a", kind="boolean"),), rows=30)


def test_its_certificate_says_infinite_everywhere(release: us.Release, tmp_path: Path) -> None:
    release.save(tmp_path / "r")
    statement = release.statement
    assert statement.epsilon == math.inf
    assert not statement.is_private
    content = json.loads((tmp_path / "r/certificate.json").read_text())
    assert content["private"] is False
    assert content["guarantee"]["epsilon"] is None
    assert {one["epsilon_alone"] for one in content["purchases"]} == {None}
    assert content["purchases"][-1]["event"] == {"type": "NonPrivate"}
    assert json.loads((tmp_path / "r/release.json").read_text())["private"] is False
    words = (tmp_path / "r/CERTIFICATE.md").read_text()
    assert "**NOT PRIVATE.**" in words
    assert "epsilon is infinite" in words
    assert "epsilon =" not in words


def test_an_altered_statement_is_caught(release: us.Release, tmp_path: Path) -> None:
    """A finite figure written into the certificate is not read back."""
    release.save(tmp_path / "r")
    file = tmp_path / "r/certificate.json"
    content = json.loads(file.read_text())
    content["guarantee"]["epsilon"] = 1.0
    file.write_text(json.dumps(content))
    with pytest.raises(us.ReleaseError, match="altered"):
        us.Release.load(tmp_path / "r")


def test_the_command_line_refuses_an_epsilon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "t.csv"
    source.write_text("a,b\n1,x\n2,y\n")
    assert run(["fit", str(source), "-o", str(tmp_path / "r"), "--epsilon", "5", "--method", "cart"]) == 2
    assert "cart is never private" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [source]


# ---------------------------------------------------------------------------------------------------------- as a method


def test_rows_look_like_the_table(release: us.Release, survey: tuple[us.Schema, pa.Table]) -> None:
    """Shares, a dependence, conditions; values are those of real rows. Windows of 4.5 standard errors."""
    _, table = survey
    fake = release.sample_arrow(20_000, seed=0)
    for value in ("yes", "no"):
        shares = [np.mean(np.asarray(t["insurance"].to_pylist()) == value) for t in (table, fake)]
        assert abs(shares[0] - shares[1]) < 4.5 * 0.5 / math.sqrt(20_000)
    insured = [_mean_age(t, "yes") - _mean_age(t, "no") for t in (table, fake)]
    assert insured[1] == pytest.approx(insured[0], abs=2.0)
    assert set(fake["age"].to_pylist()) <= set(table["age"].to_pylist())
    south = release.sample_arrow(50, where="region = 'south'", seed=0)
    assert set(south["region"].to_pylist()) == {"south"}


def _mean_age(table: pa.Table, insurance: str) -> float:
    return pc.mean(table.filter(pc.equal(table["insurance"], insurance))["age"]).as_py()


def test_saved_and_loaded_sample_alike(release: us.Release, tmp_path: Path) -> None:
    release.save(tmp_path / "r")
    loaded = us.Release.load(tmp_path / "r")
    assert loaded.sample_arrow(200, seed=3).equals(release.sample_arrow(200, seed=3))
    assert loaded.statement == release.statement


def test_seeds_fix_fits_and_draws(survey: tuple[us.Schema, pa.Table], release: us.Release) -> None:
    again = us.fit(survey[1], "cart", NOT_PRIVATE, schema=survey[0], seed=0)
    assert again.sample_arrow(100, seed=1).equals(release.sample_arrow(100, seed=1))
    assert not release.sample_arrow(100, seed=2).equals(release.sample_arrow(100, seed=1))


def test_leaves_are_those_of_the_tree() -> None:
    """Against scikit-learn: the same leaves, at least `min_bucket` donors in each, and draws from within."""
    draw = np.random.default_rng(0)
    places = draw.random((400, 2))
    places[:, 1] = np.where(places[:, 0] > 0.5, 0.8, 0.2) + 0.1 * draw.random(400)
    codes = (places * 10).astype(np.int32)
    model = grown(("a", "b"), (10, 10), codes, places, (True, True), complexity=1e-8, min_bucket=5, seed=0)
    features = places[:, :1].astype(np.float32)
    alpha = 1e-8 * np.var(places[:, 1])
    tree = DecisionTreeRegressor(min_samples_leaf=5, min_samples_split=15, ccp_alpha=alpha, random_state=0)
    fresh = draw.random((300, 1)).astype(np.float32)
    np.testing.assert_array_equal(model.trees[1].leaves(fresh), tree.fit(features, places[:, 1]).apply(fresh))
    sizes = np.diff(model.trees[1].start)
    assert sizes[sizes > 0].min() >= 5
    assert sizes.sum() == 400
    new = model.draw(2000, key=jax.random.key(0))[1]
    assert np.all((new[:, 0] > 0.5) == (new[:, 1] > 0.5))


def test_nulls_and_constant_columns_are_no_trouble() -> None:
    columns = (
        us.Column(name="a", kind="categorical", categories=("x",)),
        us.Column(name="b", kind="real", bounds=(1.0, 2.0)),
        us.Column(name="c", kind="categorical", categories=("u", "v", "w")),
    )
    table = pa.table({"a": ["x"] * 40, "b": [None, 1.5] * 20, "c": ["u", "v"] * 20})
    fake = us.fit(table, "cart", NOT_PRIVATE, schema=us.Schema(columns=columns, rows=40), seed=0).sample_arrow(
        400, seed=0
    )
    assert fake["a"].to_pylist() == ["x"] * 400
    pairs = set(zip(fake["b"].to_pylist(), fake["c"].to_pylist(), strict=True))
    assert {(value is None, level) for value, level in pairs} == {(True, "u"), (False, "v")}


def test_units_are_limited_to_their_rows() -> None:
    """A person with a thousand rows lends two of them."""
    columns = (us.Column(name="who", kind="id"), us.Column(name="a", kind="categorical", categories=("x", "y")))
    schema = us.Schema(columns=columns, rows=30, unit="who", max_rows_per_unit=2)
    table = pa.table({"who": ["p"] * 1000 + [f"q{i}" for i in range(20)], "a": ["x"] * 1000 + ["y"] * 20})
    model: Any = us.fit(table, "cart", NOT_PRIVATE, schema=schema, seed=0).model
    assert len(model.codes) == 22


def test_a_table_without_rows_is_refused() -> None:
    table = pa.table({"a": pa.array([], pa.bool_())})
    with pytest.raises(us.UnderstudyError):
        us.fit(table, "cart", NOT_PRIVATE, schema=_schema())


@pytest.mark.parametrize(("settings", "words"), [("min_bucket=0", "min_bucket"), ("complexity=-1.0", "complexity")])
def test_bad_settings_are_refused(settings: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_method(f"cart({settings})")


def test_the_plan_warns_and_takes_a_target() -> None:
    budget = us.Ledger(NOT_PRIVATE, noise=SeededNoise(0)).remaining
    plan = read_method("cart").plan(dataclasses.replace(DOMAIN, target="a"), budget)
    assert isinstance(plan, Plan)
    assert isinstance(budget, Budget)
    assert "like the original table" in plan.notes[0]
    assert "target" in plan.notes[1]
