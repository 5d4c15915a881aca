"""QUAIL: labels by a private learner, the other columns by any method, and one ledger for both."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import jax
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import understudy as us
from tests.builders import encode, over_budget, raises
from understudy.learners.methods import Learner, Linear, Logistic, NaiveBayes, Prior
from understudy.models import MODELS
from understudy.models.graphical import GraphicalModel
from understudy.models.quail import QuailModel
from understudy.privacy.accounting.ledger import Budget, spent_by
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import PrivateRows, arrange_units, partition_rows
from understudy.synthesizers import LEARNERS, express, learner_class, name_of, quail, read_method
from understudy.synthesizers.dpgan import DPGAN
from understudy.synthesizers.independent import Independent
from understudy.synthesizers.mst import MST
from understudy.synthesizers.quail import IMITATE, LEARN, Quail
from understudy.synthesizers.run import Run
from understudy.tables import conform

GUARANTEE = us.Guarantee(1.0, 1e-6)
OPEN = us.Guarantee.not_private()
BINNING = us.Binning(bins="uniform")
ROWS = 600
TINY = DPGAN(steps=16, latent=4, generator_widths=(16, 16), critic_widths=(8,))


def people(num_rows: int = ROWS, seed: int = 0) -> pa.Table:
    """The class follows the colour, mostly, and the number is linear in age and colour."""
    draw = np.random.default_rng(seed)
    colour, age = draw.integers(0, 3, num_rows), draw.integers(0, 100, num_rows)
    label = np.where(draw.random(num_rows) < 0.8, colour, draw.integers(0, 3, num_rows))
    score = np.clip(0.5 * age + 10 * colour + draw.normal(0, 5, num_rows), 0, 100)
    return pa.table(
        {
            "label": np.array(["x", "y", "z"])[label],
            "colour": np.array(["red", "green", "blue"])[colour],
            "score": score,
            "age": age,
        }
    )


def schema(**facts: Any) -> us.Schema:
    columns = (
        us.Column(name="label", kind="categorical", categories=("x", "y", "z", "never"), nullable=False, closed=True),
        us.Column(name="colour", kind="categorical", categories=("red", "green", "blue"), nullable=False, closed=True),
        us.Column(name="score", kind="real", bounds=(0.0, 100.0), nullable=False),
        us.Column(name="age", kind="integer", bounds=(0, 99), nullable=False),
    )
    return dataclasses.replace(us.Schema(columns=columns, rows=ROWS, target="label"), **facts)


def fitted(method: Quail, guarantee: us.Guarantee = GUARANTEE, *, seed: int = 0, **facts: Any) -> us.Release:
    return us.fit(people(), method, guarantee, schema=schema(**facts), seed=seed, binning=BINNING)


def encoded(table: pa.Table | None = None, *, max_rows_per_unit: int = 1) -> tuple[PrivateRows, us.Codec]:
    conformed = conform(people() if table is None else table, schema())
    codec, rows, _ = encode(conformed, schema(), BINNING, guarantee=GUARANTEE)
    return rows, codec


# --------------------------------------------------------------------------------------------------------------- output


@pytest.mark.parametrize("label", ["argmax", "sample"])
def test_columns_and_their_order_are_those_of_the_schema(label: str) -> None:
    """Whatever the target: first, in the middle, last, or several."""
    for target in ("label", "score", "age", ("score", "age")):
        learner = "naive_bayes" if target == "label" else "auto"
        fake = fitted(Quail(Independent(), target=target, learner=learner, label=label)).sample_arrow(200, seed=0)
        assert fake.column_names == people(1).column_names
        assert set(fake.column("label").to_pylist()) <= {"x", "y", "z", "never"}
        assert set(fake.column("colour").to_pylist()) <= {"red", "green", "blue"}
        assert 0 <= pc.min(fake.column("score")).as_py() <= pc.max(fake.column("score")).as_py() <= 100
        assert 0 <= pc.min(fake.column("age")).as_py() <= pc.max(fake.column("age")).as_py() <= 99


def test_labels_are_what_the_learner_says_of_the_row() -> None:
    """argmax without noise: each row has the label that its learner predicts from the row's other columns."""
    release = fitted(Quail(MST(), learner="naive_bayes"), OPEN)
    model: Any = release.model
    codes = model.sample(2000, key=jax.random.key(1)).codes
    np.testing.assert_array_equal(codes[:, 0], model.learners[0].predict(codes[:, 1:]))
    assert np.mean(codes[:, 0] == codes[:, 1]) > 0.95  # the colour decides, mostly


def test_classes_come_from_the_schema() -> None:
    """A class that no row has is one of the learner's, and can come up; the cost does not change with the rows."""
    with_all = fitted(Quail(Independent(), learner="prior", label="sample"), us.Guarantee(0.02, 1e-6))
    model: Any = with_all.model
    assert model.learners[0].log_prior.shape == (4,)
    assert "never" in with_all.sample_arrow(20_000, seed=0).column("label").to_pylist()
    one_class = pa.table({**{name: people().column(name) for name in people().column_names}, "label": ["x"] * ROWS})
    other = us.fit(
        one_class,
        Quail(Independent(), learner="prior", label="sample"),
        us.Guarantee(0.02, 1e-6),
        schema=schema(),
        seed=0,
        binning=BINNING,
    )
    assert other.statement.queries == with_all.statement.queries


# ----------------------------------------------------------------------------------------------------------------- cost


EVERY = [
    Quail(MST(), learner="naive_bayes", learner_fraction=0.5),
    Quail(Independent(), target=("age", "score"), learner_fraction=0.8),
    Quail(MST(), learner="naive_bayes", disjoint=True, learner_fraction=0.5),
]


NESTED = Quail(Quail(Independent(), target="score"), target="label", learner="prior")
BY_STEPS = Quail(Independent(), learner=Logistic(steps=20, class_weight="private"))


@pytest.mark.parametrize(
    "method", [*EVERY, *(pytest.param(dear, marks=pytest.mark.slow) for dear in (NESTED, BY_STEPS))], ids=express
)
def test_the_ledger_holds_the_plan_and_the_target(method: Quail) -> None:
    """Every query of the plan is charged, in its order, once; together they fill the guarantee and no more."""
    planned = us.plan(schema(), method, GUARANTEE, binning=BINNING)
    statement = fitted(method).statement
    assert statement.queries == planned.queries
    assert 0.995 <= statement.epsilon <= 1.0
    assert statement.method == express(method)
    assert {query.path[0] for query in planned} == {"quail"}


def test_the_parts_are_accounted_together() -> None:
    """The learner costs its share by itself, and the inner method gets more than the rest of it would be alone."""
    domain = encoded()[0].domain
    budget = Budget(1.0, 1e-6)
    plan = Quail(Independent(), learner="naive_bayes", learner_fraction=0.6).plan(domain, budget)
    learner, inner = plan.queries
    assert spent_by([learner], GUARANTEE).epsilon == pytest.approx(0.6, rel=2e-3)
    alone = spent_by([inner], GUARANTEE).epsilon
    assert 0.4 < alone < 0.95
    assert 0.995 <= spent_by(plan, GUARANTEE).epsilon <= 1.0
    assert inner.columns == ("colour", "score", "age")
    assert "label" not in inner.columns
    assert set(learner.columns) == {"label", "colour", "score", "age"}


def test_shares_of_several_targets_are_even() -> None:
    domain = encoded()[0].domain
    plan = Quail(Independent(), target=("label", "colour"), learner="prior", learner_fraction=0.5).plan(
        domain, Budget(1.0, 1e-6)
    )
    first, second, rest = plan.queries
    assert first.event == second.event
    assert spent_by([first], GUARANTEE).epsilon == pytest.approx(0.25, rel=2e-3)
    assert rest.columns == ("score", "age")
    # A learner sees none of the other targets: rows of the inner method have no such column.
    assert [set(query.columns) for query in plan.queries[:2]] == [{"label"}, {"colour"}]
    both = Quail(Independent(), target=("label", "colour"), learner="naive_bayes").plan(domain, Budget(1.0, 1e-6))
    assert [set(query.columns) for query in both.queries[:2]] == [{"label", "score", "age"}, {"colour", "score", "age"}]


def test_estimates_before_it_leave_something_for_both() -> None:
    """The share is of what is left: where bins are estimated, the inner method still has its part."""
    plan = us.plan(schema(), Quail(Independent(), learner="naive_bayes"), GUARANTEE)
    bought = [query for query in plan if query.path[0] == "discovery"]
    learner, inner = plan.queries[len(bought) :]
    before = spent_by(bought, GUARANTEE).epsilon
    with_learner = spent_by([*bought, learner], GUARANTEE).epsilon
    assert with_learner == pytest.approx(before + 0.9 * (1 - before), rel=3e-3)
    assert spent_by([inner], GUARANTEE).epsilon > 0.1 * (1 - before)


def test_the_learner_cannot_spend_what_is_reserved() -> None:
    """A learner that charges more than its queries is refused though the ledger as a whole still has money."""
    rows, _ = encoded()
    method = Quail(Independent(), learner="naive_bayes", learner_fraction=0.5)
    plan = method.plan(rows.domain, Budget(1.0, 1e-6))
    greedy = method.plan(rows.domain, Budget(1.8, 1e-6)).queries[0]
    assert spent_by([greedy], GUARANTEE).epsilon < 1.0
    ledger = us.Ledger(GUARANTEE, noise=SeededNoise(0))
    parts = (us.Plan((greedy,)), *plan.parts[1:])
    dear = dataclasses.replace(plan, queries=(greedy, *plan.queries[1:]), parts=parts)
    with over_budget(greedy.what):
        method.fit(Run(rows, dear, ledger, key=jax.random.key(0)))
    assert ledger.queries == ()


class Watched(Independent):
    """A method that notes which rows it is given."""

    def fit(self, run: Run) -> GraphicalModel:
        SEEN.append(run.rows)
        return super().fit(run)


SEEN: list[PrivateRows] = []


def test_the_inner_method_never_gets_the_target() -> None:
    """Neither codes nor places of it, and its model does not change with the labels."""
    SEEN.clear()
    rows, _ = encoded()
    shuffled = people().set_column(0, "label", pa.array(np.roll(people().column("label").to_pylist(), 7)))
    models = []
    for each in (rows, encoded(shuffled)[0]):
        method = Quail(Watched(), learner="prior")
        ledger = us.Ledger(GUARANTEE, noise=SeededNoise(0))
        models.append(method.fit(Run(each, method.plan(each.domain, ledger.remaining), ledger, key=jax.random.key(0))))
    for given in SEEN:
        assert given.domain.names == ("colour", "score", "age")
        assert given.domain.target is None
        assert given._codes.shape == given._positions.shape == (ROWS, 3)
        np.testing.assert_array_equal(given._codes, rows._codes[:, 1:])
        np.testing.assert_array_equal(given._positions, rows._positions[:, 1:])
    first, second = (model.inner.to_arrays()[1] for model in models)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_restricted_rows_keep_units_scales_and_bounds() -> None:
    whole, codec = encoded()
    rows = PrivateRows(
        whole._codes,
        whole.domain,
        max_rows_per_unit=2,
        units=np.arange(ROWS) // 2,
        positions=lambda: whole._positions,
        scales=codec.scales,
    )
    part = rows.only(("age", "label"))
    assert part.domain == us.Domain(
        names=("label", "age"),
        sizes=(rows.domain.sizes[0], rows.domain.sizes[3]),
        num_rows=ROWS,
        target="label",
    )
    assert part.domain.numeric == ("age",)
    assert part.scales == (codec.scales[0], codec.scales[3])
    assert part.max_rows_per_unit == 2
    units = arrange_units(part, part._codes)
    arranged, present = np.asarray(units._rows), np.asarray(units._present)
    assert arranged.shape == (ROWS // 2, 2, 2)
    assert present.all()
    np.testing.assert_array_equal(part._exact_counts(("age", "label")), rows._exact_counts(("age", "label")))
    with raises(us.SchemaError, column="agee"):
        rows.only(("agee",))


# ------------------------------------------------------------------------------------------------------------- disjoint


def test_disjoint_parts_cost_the_larger_one() -> None:
    """Each part fills the guarantee by itself; no row is in both, and rows of a unit stay together."""
    SEEN.clear()
    method = Quail(Watched(), learner="prior", disjoint=True, learner_fraction=0.3)
    rows, _ = encoded()
    ledger = us.Ledger(GUARANTEE, noise=SeededNoise(0))
    plan = method.plan(rows.domain, ledger.remaining)
    assert [query.partition for query in plan] == [LEARN, IMITATE]
    for query in plan:
        assert spent_by([query], GUARANTEE).epsilon == pytest.approx(1.0, rel=2e-3)
    model = method.fit(Run(rows, plan, ledger, key=jax.random.key(0)))
    assert ledger.queries == plan.queries
    assert ledger.spent().epsilon <= 1.0
    assert isinstance(model, QuailModel)
    # 600 coins of 0.7: within 5 standard deviations but once in a million.
    assert abs(len(SEEN[0]._codes) - 420) < 5 * math.sqrt(600 * 0.7 * 0.3)
    assert SEEN[0].domain.num_rows == 420


@pytest.mark.parametrize("given", ["all to learn", "all to imitate", "swapped"])
def test_disjoint_parts_read_no_rows_but_their_own(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    """Were the learners or the inner method to read others, their first query would be refused."""

    def wrong(rows: PrivateRows, *others: Any) -> tuple[PrivateRows, PrivateRows]:
        first, second = partition_rows(rows, *others)
        return {"all to learn": (first, rows), "all to imitate": (rows, second), "swapped": (second, first)}[given]

    monkeypatch.setattr(quail, "partition_rows", wrong)
    method, (rows, _) = Quail(Independent(), learner="prior", disjoint=True), encoded()
    ledger = us.Ledger(GUARANTEE, noise=SeededNoise(0))
    plan = method.plan(rows.domain, ledger.remaining)
    with raises(us.BudgetExceeded, needed=None):
        method.fit(Run(rows, plan, ledger, key=jax.random.key(0)))
    assert len(ledger.queries) == (1 if given == "all to imitate" else 0)


class HoldsOut(Independent):
    """A method that reads a part of the units by itself."""

    def plan(self, domain: us.Domain, budget: Budget) -> us.Plan:
        plan = super().plan(domain, budget)
        return dataclasses.replace(
            plan, queries=tuple(dataclasses.replace(query, partition="a part") for query in plan)
        )


def test_disjoint_around_rows_that_are_held_out_is_refused() -> None:
    inner = HoldsOut()
    domain = encoded()[0].domain
    with raises(us.ConfigError, setting="disjoint"):
        Quail(inner, learner="prior", disjoint=True).plan(domain, Budget(1.0, 1e-6))
    assert Quail(inner, learner="prior").plan(domain, Budget(1.0, 1e-6))  # its parts are accounted for as ever


# --------------------------------------------------------------------------------------------------------------- labels


def test_drawn_labels_follow_the_predicted_probabilities() -> None:
    """Counts of labels against the learner's probabilities, summed over the rows, each class within 4.5 standard
    deviations: false alarms below 3e-5 for four classes. The likeliest labels, by contrast, miss by far."""
    model: Any = fitted(Quail(MST(), learner="naive_bayes", label="sample"), OPEN).model
    codes = model.sample(20_000, key=jax.random.key(5)).codes
    odds = model.learners[0].predict_proba(codes[:, 1:])
    found = np.bincount(codes[:, 0], minlength=4)
    spread = np.sqrt((odds * (1 - odds)).sum(axis=0))
    assert np.all(np.abs(found - odds.sum(axis=0)) < 4.5 * spread + 1)
    firm: Any = dataclasses.replace(model, label="argmax")
    likeliest = firm.sample(20_000, key=jax.random.key(5)).codes
    np.testing.assert_array_equal(likeliest[:, 1:], codes[:, 1:])
    # Given a colour the drawn label varies as it did among the rows (0.8 + 0.2 / 3), and the likeliest one never.
    agree = np.mean(codes[:, 0] == codes[:, 1])
    assert abs(agree - (0.8 + 0.2 / 3)) < 0.05
    assert np.mean(likeliest[:, 0] == likeliest[:, 1]) > 0.95


def test_numbers_are_predictions_or_spread_around_them() -> None:
    """Without noise: argmax is a function of the row, and sample adds a residual of the standard deviation that the
    rows have around their regression (5; within 15%, where 20,000 draws have 0.5%)."""
    firm = fitted(Quail(MST(), target="score"), OPEN, target="score")
    loose = fitted(Quail(MST(), target="score", label="sample"), OPEN, target="score")
    model: Any = loose.model
    assert isinstance(model.learners[0].residual_stddev, float)
    codes, positions = model.sample(20_000, key=jax.random.key(0))
    predicted = model.learners[0].predict(np.delete(codes, 2, axis=1))
    inside = (predicted > 0.15) & (predicted < 0.85)  # away from the bounds, where draws are held
    spread = 100 * float(np.std(positions[inside, 2] - predicted[inside]))
    assert 0.85 * 5 < spread < 1.15 * 5
    other: Any = firm.model
    codes, positions = other.sample(5000, key=jax.random.key(0))
    np.testing.assert_array_equal(positions[:, 2], other.learners[0].predict(np.delete(codes, 2, axis=1)))
    for release in (firm, loose):
        fake = release.sample_arrow(5000, seed=0)
        slope, _ = np.polyfit(fake.column("age").to_numpy(), fake.column("score").to_numpy(), 1)
        assert slope == pytest.approx(0.5, abs=0.05)


def test_the_learner_follows_from_the_kind_of_target() -> None:
    domain = encoded()[0].domain
    kinds = {target: name_of(Quail(MST())._learner(domain, target)) for target in domain.names}
    assert kinds == {"label": "logistic", "colour": "logistic", "score": "linear", "age": "linear"}


def test_learners_see_the_columns_that_are_named() -> None:
    release = fitted(Quail(MST(), learner="naive_bayes", columns=("age",)), OPEN)
    model: Any = release.model
    assert [column.name for column in model.learners[0].inputs.columns] == ["age"]
    assert {name for query in release.statement.queries[:1] for name in query.columns} == {"label", "age"}


def test_numbers_without_places_stand_in_their_bins() -> None:
    """A learner around another labelled model: places are known for one column only, and the others are not missing."""
    inner = Quail(Independent(), target="age")
    gaussian = NaiveBayes(numbers="gaussian")
    nested = Quail(inner, target="colour", columns=("score", "age"), learner=gaussian)
    model: Any = fitted(nested, OPEN).model
    codes, positions = model.sample(500, key=jax.random.key(0))
    assert np.isnan(positions[:, 2]).all()  # scores are bins
    others, shown = np.delete(codes, 1, axis=1), np.delete(positions, 1, axis=1)
    missing = model.learners[0].predict(others, shown)
    shown[:, 1] = model.learners[0].inputs.columns[0].positions_of(codes[:, 2])
    np.testing.assert_array_equal(codes[:, 1], model.learners[0].predict(others, shown))
    assert np.any(missing != codes[:, 1])


# ----------------------------------------------------------------------------------------------------------- conditions


def law(model: QuailModel, allowed: Mapping[str, np.ndarray]) -> np.ndarray:
    """Exact joint law of label and colour, given the condition, by going through all cells of the inner model."""
    inner: Any = model.inner
    table = inner.marginal(("colour", "score", "age"))
    cells = np.indices(table.shape).reshape(3, -1).T.astype(np.int32)
    learner: Any = model.learners[0]
    joint = (table.reshape(-1) / table.sum())[:, None] * learner.predict_proba(cells)
    for at, name in enumerate(("colour", "score", "age")):
        if name in allowed:
            joint = joint * allowed[name][cells[:, at]][:, None]
    joint = joint * allowed.get("label", np.ones(4, bool))
    found = np.zeros((3, 4))
    np.add.at(found, cells[:, 0], joint)
    return found / found.sum()


def test_conditions_on_labels_and_columns_are_exact() -> None:
    """Shares of (colour, label) given a condition on both, against the exact law: no cell further than 4.5 standard
    deviations (false alarms below 1e-4 for twelve cells); the law without the condition is rejected."""
    model: Any = fitted(Quail(Independent(), learner="naive_bayes", label="sample"), us.Guarantee(3.0, 1e-6)).model
    sizes = dict(zip(model.names, (4, 3, model.inner.domain.sizes[1], model.inner.domain.sizes[2]), strict=True))
    old = np.arange(sizes["age"]) >= sizes["age"] // 2
    allowed = {"label": np.array([False, True, True, False]), "age": old}
    count = 20_000
    codes = model.sample(count, key=jax.random.key(2), allowed=allowed).codes
    assert len(codes) == count
    assert set(codes[:, 0]) <= {1, 2}
    assert old[codes[:, 3]].all()
    found = np.zeros((3, 4))
    np.add.at(found, (codes[:, 1], codes[:, 0]), 1 / count)

    def far(expected: np.ndarray) -> bool:
        spread = np.sqrt(np.maximum(expected * (1 - expected), 1e-9) / count)
        return bool(np.any(np.abs(found - expected) > 4.5 * spread + 1e-6))

    assert not far(law(model, allowed))
    assert far(law(model, {}))


def test_conditions_that_nothing_meets_are_refused() -> None:
    release = fitted(Quail(Independent(), learner="naive_bayes"), OPEN)
    with pytest.raises(us.ConditionError, match="Only 0 of 5 rows met"):
        release.sample_arrow(5, where="label = 'never'", seed=0)
    with pytest.raises(us.ConditionError):
        release.sample_arrow(5, where="label = 'x' AND label = 'y'", seed=0)
    model: Any = release.model
    with pytest.raises(us.ConditionError, match="excludes every value"):
        model.sample(5, key=jax.random.key(0), allowed={"label": np.zeros(4, dtype=bool)})
    with pytest.raises(us.ConditionError, match="Only 0 of 1000000"):  # soon, not after two thousand million draws
        model.sample(10**6, key=jax.random.key(0), allowed={"label": np.arange(4) == 3})
    fake = release.sample_arrow(300, where="label = 'y' AND age > 50", seed=0)
    assert set(fake.column("label").to_pylist()) == {"y"}
    assert pc.min(fake.column("age")).as_py() > 50


# -------------------------------------------------------------------------------------------------------------- on disk


@pytest.mark.parametrize(
    "method",
    [
        Quail(MST(), learner="naive_bayes", label="sample"),
        Quail(Independent(), target=("age", "score"), label="sample", learner="auto"),
        Quail(Quail(Independent(), target="score"), target="label", learner="prior", label="sample"),
    ],
    ids=express,
)
def test_saved_and_loaded_make_the_same_rows(method: Quail, tmp_path: Path) -> None:
    release = fitted(method)
    release.save(tmp_path / "release")
    loaded = us.Release.load(tmp_path / "release")
    assert isinstance(loaded.model, QuailModel)
    assert loaded.sample_arrow(300, seed=1).equals(release.sample_arrow(300, seed=1))
    where = "age > 40 AND label <> 'x'"
    assert loaded.sample_arrow(50, where=where, seed=1).equals(release.sample_arrow(50, where=where, seed=1))


def test_altered_structures_are_refused() -> None:
    structure, arrays = fitted(Quail(Independent(), learner="prior")).model.to_arrays()
    changed: list[dict[str, Any]] = [
        {"label": "best"},
        {"targets": ["else"]},
        {"parts": {**structure["parts"], "inner": {"kind": "none"}}},  # type: ignore[dict-item]  # JSON, typed as objects
        {"parts": {**structure["parts"], "learner_0": {"kind": "none"}}},  # type: ignore[dict-item]  # JSON, typed as objects
    ]
    for change in changed:
        with pytest.raises((ValueError, LookupError)):
            QuailModel.from_arrays({**structure, **change}, arrays)
    assert QuailModel.from_arrays(structure, arrays).names == ("label", "colour", "score", "age")
    assert MODELS["quail"] is QuailModel


def test_a_killed_run_goes_on_to_the_same_release(tmp_path: Path) -> None:
    """Wherever it is killed: while learning, or while the inner method is at work."""
    method = Quail(MST(), learner="naive_bayes")
    whole = us.fit(people(), method, GUARANTEE, schema=schema(), seed=4, binning=BINNING)
    for number, share in enumerate((0.1, 0.5)):
        folder = tmp_path / str(number)

        def stop(done: float, words: str, share: float = share) -> None:
            if done >= share:
                raise KeyboardInterrupt

        settings: dict[str, Any] = {"schema": schema(), "seed": 4, "binning": BINNING, "checkpoint": folder}
        with pytest.raises(KeyboardInterrupt):
            us.fit(people(), method, GUARANTEE, progress=stop, **settings)
        again = us.fit(people(), method, GUARANTEE, resume=True, **settings)
        assert again.statement == whole.statement
        assert again.sample_arrow(100, seed=0).equals(whole.sample_arrow(100, seed=0))


# ------------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, math.nan, True])
def test_a_share_outside_is_refused(share: float) -> None:
    with raises(us.ConfigError, setting="learner_fraction"):
        Quail(Independent(), learner_fraction=share)


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"label": "best"}, "label"),
        ({"learner": "forest"}, "learner"),
        ({"target": ()}, "target"),
        ({"target": ("a", "a")}, "target"),
        ({"learner": Prior(target="label")}, "learner"),
    ],
)
def test_settings_are_refused_at_once(settings: dict[str, Any], setting: str) -> None:
    with raises(us.ConfigError, setting=setting):
        Quail(Independent(), **settings)


def test_a_learner_is_no_inner_method() -> None:
    with raises(us.ConfigError, setting="inner"):
        Quail(Prior())  # type: ignore[arg-type]  # a wrong type
    with raises(us.ConfigError, setting="inner"):
        read_method("quail")


@pytest.mark.parametrize(
    ("settings", "facts", "error", "fields"),
    [
        ({}, {"target": None}, us.ConfigError, {"setting": "target"}),
        ({"target": "labell"}, {}, us.SchemaError, {"column": "labell"}),
        ({"target": "score", "learner": "logistic"}, {}, us.ConfigError, {"setting": "target"}),
        ({"target": "score", "learner": "naive_bayes"}, {}, us.ConfigError, {"setting": "target"}),
        ({"learner": "linear"}, {}, us.ConfigError, {"setting": "target"}),
        ({"target": ("label", "colour", "score", "age")}, {}, us.ConfigError, {"setting": "target"}),
        ({"columns": ("label", "age")}, {}, us.ConfigError, {"setting": "columns"}),
        ({"columns": ("nothing",)}, {}, us.SchemaError, {"column": "nothing"}),
        ({"columns": ("age",), "learner": "prior"}, {}, us.ConfigError, {"setting": "columns"}),
        ({"target": "score", "learner": "mlp_regression", "label": "sample"}, {}, us.ConfigError, {"setting": "label"}),
    ],
)
def test_what_cannot_be_learned_is_refused_before_any_query(
    settings: dict[str, Any], facts: dict[str, Any], error: type[us.UnderstudyError], fields: dict[str, Any]
) -> None:
    method, declared = Quail(Independent(), **settings), schema(**facts)
    with raises(error, **fields):
        us.plan(declared, method, GUARANTEE, binning=BINNING)
    with raises(error, **fields):
        us.fit(people(), method, GUARANTEE, schema=declared, seed=0, binning=BINNING)


def test_one_class_only_is_refused() -> None:
    columns = (
        us.Column(name="label", kind="categorical", categories=("x",), nullable=False, closed=True),
        *schema().columns[1:],
    )
    with raises(us.ConfigError, setting="target"):
        us.plan(us.Schema(columns=columns, rows=ROWS, target="label"), Quail(Independent()), GUARANTEE)


def test_a_public_table_goes_to_a_method_that_takes_one() -> None:
    method = Quail(Independent(), learner="prior")
    with raises(us.ConfigError, setting="public"):
        us.fit(people(), method, GUARANTEE, schema=schema(), public=people(50, seed=1), seed=0)


# ---------------------------------------------------------------------------------------------------------- expressions


def test_learners_of_expressions_are_those_that_there_are() -> None:
    assert {learner_class(name) for name in LEARNERS} == set(get_args(Learner))
    assert all(name_of(learner_class(name)()) == name for name in LEARNERS)
    with raises(us.ConfigError, setting="learner"):
        learner_class("forest")


@pytest.mark.parametrize(
    ("expression", "method"),
    [
        ("quail(mst)", Quail(MST())),
        ("quail(mst, learner_fraction=0.8)", Quail(MST(), learner_fraction=0.8)),
        ("quail(mst, target=[a, b], label=sample)", Quail(MST(), target=("a", "b"), label="sample")),
        ("quail(mst, target=a, learner=prior)", Quail(MST(), target="a", learner=Prior())),
        (
            "quail(independent, learner=naive_bayes(numbers=gaussian), columns=[c])",
            Quail(Independent(), learner=NaiveBayes(numbers="gaussian"), columns=("c",)),
        ),
        (
            "quail(quail(mst, target=a, learner=linear), target=b)",
            Quail(Quail(MST(), target="a", learner=Linear()), target="b"),
        ),
        (
            "quail(mst, learner=logistic(steps=50), disjoint=true)",
            Quail(MST(), learner=Logistic(steps=50), disjoint=True),
        ),
    ],
)
def test_expressions(expression: str, method: Quail) -> None:
    assert read_method(expression) == method
    assert read_method(express(method)) == method


# ----------------------------------------------------------------------------------------------------------------- GANs


@pytest.mark.slow
@pytest.mark.parametrize("features", ["binned", "typed"])
def test_around_a_gan_with_public_rows(features: str, tmp_path: Path) -> None:
    method = Quail(dataclasses.replace(TINY, features=features), learner="naive_bayes", label="sample")
    release = us.fit(people(), method, GUARANTEE, schema=schema(), seed=0, binning=BINNING, public=people(100, seed=1))
    release.save(tmp_path / "release")
    fake = us.Release.load(tmp_path / "release").sample_arrow(200, seed=0, where="label <> 'x'")
    assert fake.column_names == people(1).column_names
    assert release.statement.facts.public_table == 100


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize(
    "inner",
    [
        "aim",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("independent", "mst", "privbayes", "mwem", "gem")),
    ],
)
@pytest.mark.parametrize("learner", [*LEARNERS])
def test_every_learner_leaves_room_for_every_marginal_method(learner: str, inner: str, epsilon: float) -> None:
    """Also by the Renyi accountant, where it alone can hold the inner method's budget. The whole epsilon is used."""
    target = "score" if learner in ("linear", "mlp_regression") else "label"
    plan = us.plan(schema(target=target), f"quail({inner}, learner={learner})", us.Guarantee(epsilon, 1e-6))
    assert 0.98 * epsilon < spent_by(plan, us.Guarantee(epsilon, 1e-6)).epsilon <= epsilon
