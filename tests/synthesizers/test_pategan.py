"""PATE-GAN and PATE-CTGAN, small but whole: what they query, what they say beforehand, what they refuse."""

import dataclasses
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import raises
from understudy.cli import run
from understudy.demo import demo_schema, demo_table
from understudy.errors import ConfigError
from understudy.models.generator import GeneratorModel
from understudy.notes import Level
from understudy.privacy.accounting.events import DiscreteGaussian, DiscreteLaplace, Gaussian
from understudy.privacy.accounting.ledger import Budget
from understudy.privacy.noise.source import SeededNoise
from understudy.schema import Domain
from understudy.synthesizers import read_method
from understudy.synthesizers.pategan import PATEGAN

QUICK = us.Guarantee(0.3, 1e-6)  # much noise: the accountant is quick
SMALL = "iterations=20, latent=4, generator_widths=[16, 16], teachers=8, teacher_batch=4, student_batch=16, memory=64"
DOMAIN = Domain(names=("a", "b"), sizes=(2, 3), num_rows=10_000)


def survey() -> tuple[us.Schema, pa.Table]:
    table = demo_table().select(["insurance", "region", "age"]).slice(0, 2000)
    columns = tuple(demo_schema()[name] for name in table.column_names)
    return us.Schema(columns=columns, rows=2000, target="insurance"), table


@pytest.mark.parametrize("method", ["pategan", "patectgan"])
def test_a_small_run_from_table_to_rows(method: str) -> None:
    schema, table = survey()
    release = us.fit(table, f"{method}({SMALL})", us.Guarantee(3.0, 1e-6), schema=schema)
    assert 0.995 * 3 <= release.statement.epsilon <= 3
    assert [type(query.event) for query in release.statement.queries[-3:]] == [
        DiscreteGaussian,
        DiscreteGaussian,
        Gaussian,
    ]
    fake = release.sample(2000, seed=0)
    shares = [np.mean(np.asarray(t["insurance"].to_pylist()) == "yes") for t in (table, fake)]
    assert abs(shares[0] - shares[1]) < 0.1  # held in place by the noisy histograms
    south = release.sample(100, where="region = 'south'", seed=0)
    assert set(south["region"].to_pylist()) == {"south"}


@pytest.mark.slow
def test_votes_teach_what_goes_together() -> None:
    """Without noise: two columns that are one. Independent columns would agree in half of the rows."""
    draw = np.random.default_rng(0)
    bits = draw.integers(0, 2, 600)
    names = np.asarray(["x", "y"])
    table = pa.table({"a": names[bits], "b": names[bits]})
    columns = tuple(
        us.Column(name=n, kind="categorical", categories=("x", "y"), nullable=False, closed=True) for n in "ab"
    )
    schema = us.Schema(columns=columns, rows=600, target="b")
    method = (
        "pategan(iterations=150, latent=4, generator_widths=[16, 16], teachers=20, teacher_batch=8, "
        "teacher_learning_rate=0.05, "
        "student_batch=64, critic_learning_rate=0.02, memory=512, queries=2400)"
    )
    release = us.fit(table, method, us.Guarantee.not_private(), schema=schema, seed=0)
    fake = release.sample(1000, seed=0)
    assert np.mean(np.asarray(fake["a"].to_pylist()) == np.asarray(fake["b"].to_pylist())) > 0.8


@pytest.mark.slow
def test_pairs_with_the_target_are_measured_and_constrain_the_generator() -> None:
    """Where two teachers drown in noise, the generator still knows what goes with the target."""
    draw = np.random.default_rng(0)
    bits = draw.integers(0, 2, 2000)
    names = np.asarray(["x", "y"])
    table = pa.table({"a": names[bits ^ (draw.random(2000) < 0.1)], "b": names[bits]})
    columns = tuple(
        us.Column(name=n, kind="categorical", categories=("x", "y"), nullable=False, closed=True) for n in "ab"
    )
    schema = us.Schema(columns=columns, rows=2000, target="b")
    small = "teachers=2, iterations=200, latent=4, generator_widths=[16, 16]"
    release = us.fit(table, f"pategan({small}, target_fraction=0.2)", us.Guarantee(0.5, 1e-6), schema=schema, seed=0)
    assert [query.key for query in release.statement.queries] == ["one_way", "two_way", "votes"]
    fake = release.sample(2000, seed=0)
    agree = np.mean(np.asarray(fake["a"].to_pylist()) == np.asarray(fake["b"].to_pylist()))
    assert abs(agree - 0.9) < 0.05  # 0.79 without pairs


@pytest.mark.parametrize("method", ["pategan(features=typed)", "pategan(marginals_fraction=0)", "pategan"])
def test_pairs_are_measured_only_where_they_can_constrain_the_generator(method: str) -> None:
    target = "a" if method != "pategan" else None
    plan = read_method(method).plan(dataclasses.replace(DOMAIN, target=target), Budget(0.3, 1e-6))
    assert "two_way" not in plan


def test_estimated_categories_of_the_target_change_no_cost() -> None:
    """However many are found: a charge that depended on their number would show it."""
    budget, plans = Budget(0.3, 1e-6), []
    for size in (2, 3, 30):
        domain = Domain(names=("a", "b"), sizes=(size, 3), num_rows=10_000, target="a", estimated=("a",))
        plans.append([(query.key, query.event) for query in read_method("pategan").plan(domain, budget)])
    assert plans[0] == plans[1] == plans[2]
    assert plans[0][1][0] == "two_way"


# ------------------------------------------------------------------------------------------------------------- planning


def _plan(method: str, num_rows: int, epsilon: float = 3.0):
    domain = Domain(names=("a", "b"), sizes=(2, 3), num_rows=num_rows)
    return read_method(method).plan(domain, Budget(epsilon, 1e-6))


def test_costs_do_not_depend_on_rows_teachers_or_queries() -> None:
    """The looks are the same to the letter; the notes tell the difference."""
    plans = [
        _plan("pategan", 1000),
        _plan("pategan", 10**6),
        _plan("pategan(teachers=50, queries=3000)", 1000),
    ]
    assert plans[0].queries == plans[1].queries == plans[2].queries
    assert len({plan.notes for plan in plans}) == 3


def test_a_estimated_number_of_rows_refuses_nothing() -> None:
    """A refusal would show it: only a declared one may be named."""
    method, event = cast(PATEGAN, read_method("pategan(teachers=1500)")), Gaussian(1.7)
    unknown = Domain(names=("a",), sizes=(2,), num_rows=1000)
    assert method.chosen(unknown, event)[0] == 1500
    with raises(ConfigError, setting="teachers"):
        method.chosen(dataclasses.replace(unknown, declared_rows=1000), event)


def test_more_rows_mean_more_teachers_and_more_queries() -> None:
    method, event = cast(PATEGAN, read_method("pategan")), Gaussian(1.7)
    choices = [method.chosen(Domain(names=("a",), sizes=(2,), num_rows=n), event) for n in (3, 1000, 30_000, 10**6)]
    assert choices == sorted(choices)
    assert choices[0] == (2, 300)
    assert all(queries % 300 == 0 for _, queries in choices)


def test_the_plan_tells_the_noise_of_a_vote() -> None:
    """2s / k for s = multiplier * sqrt(queries); label accuracy by the normal law at three quarters of the votes."""
    plan = _plan("pategan(teachers=100, queries=300)", 10_000)
    stddev = plan["votes"].event.noise_multiplier * np.sqrt(300)
    assert "100 teachers of about 100 rows each vote on 300 generated rows, 1 in each of 300" in plan.notes[0].text
    assert (
        f"standard deviation {stddev:.1f} votes, {2 * stddev / 100:.2f} of the full margin of 50" in plan.notes[1].text
    )
    draws = np.random.default_rng(0).normal(scale=stddev, size=200_000)
    assert f"right with probability {np.mean(75 + draws > 50):.2f}"[:-1] in plan.notes[1].text


@pytest.mark.parametrize(
    ("method", "num_rows", "warned"),
    [
        ("pategan(teachers=33, queries=3000)", 33_000, True),
        ("pategan(teachers=33, queries=300)", 1000, True),
        ("pategan(teachers=1000, queries=3000)", 33_000, False),
        ("pategan", 236_000, False),
        ("patectgan", 30, True),
    ],
)
def test_a_plan_that_cannot_work_says_so(method: str, num_rows: int, warned: bool) -> None:
    """Above half of the margin; with what would help."""
    warnings = [note for note in _plan(method, num_rows).notes if note.level is Level.WARNING]
    assert bool(warnings) == warned
    if warned:
        assert all(words in warnings[0].text for words in ("more rows", "fewer", "another method"))


def test_teachers_with_next_to_no_rows_are_warned_of() -> None:
    """Many teachers outvote the noise, and have nothing to say."""
    assert any("each teacher has fewer than 8" in note.text for note in _plan("pategan(teachers=500)", 2000).notes)
    assert not any("each teacher has fewer than 8" in note.text for note in _plan("pategan(teachers=250)", 2000).notes)


def test_the_command_line_shows_it(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    schema, _ = survey()
    schema.write(tmp_path / "s.toml")
    assert run(["plan", str(tmp_path / "s.toml"), "--epsilon", "1", "--method", "pategan(teachers=10)"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "of the full margin of 5" in said
    assert "Warning: The noise is" in said


def test_laplace_votes_are_charged_one_by_one() -> None:
    plan = _plan("pategan(vote_noise=laplace, iterations=10, queries=20)", 10_000)
    event = plan["votes"].event
    assert isinstance(event, DiscreteLaplace)
    assert event.rounds == 20
    assert f"scale {1 / event.epsilon:.1f} votes" in plan.notes[1].text


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ("teachers=1", "teachers"),
        ("teachers=0", "teachers"),
        ("iterations=0", "iterations"),
        ("queries=301", "queries"),
        ("vote_noise=laplace", "queries"),
        ("vote_noise=uniform", "vote_noise"),
        ("labels=logits", "labels"),
        ("against=mean", "against"),
        ("loss=wgan", "loss"),
        ("arch=mlp", "arch"),
        ("teacher_learning_rate=0.0", "teacher_learning_rate"),
        ("marginals_fraction=1.0", "marginals_fraction"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_read(settings: str, setting: str) -> None:
    with raises(ConfigError, setting=setting):
        read_method(f"pategan({settings})")


def test_more_teachers_than_rows_are_refused_before_anything_is_read() -> None:
    schema, table = survey()
    with raises(ConfigError, setting="teachers"):
        us.fit(table, "pategan(teachers=2001)", QUICK, schema=schema)


def test_conditions_need_a_discrete_column() -> None:
    """Typed, a table of numbers has none, by public facts; of modes one number is shown bin by bin."""
    columns = (us.Column(name="x", kind="real", bounds=(0.0, 1.0)), us.Column(name="y", kind="real", bounds=(0.0, 1.0)))
    table = pa.table({"x": np.linspace(0, 1, 50), "y": np.linspace(1, 0, 50)})
    schema = us.Schema(columns=columns, rows=50)
    with raises(ConfigError, setting="features"):
        us.fit(table, f"patectgan({SMALL}, features=typed)", QUICK, schema=schema)
    release = us.fit(table, f"patectgan({SMALL}, features=modes)", QUICK, schema=schema, seed=1)
    assert isinstance(release.model, GeneratorModel)
    assert release.model.layout is not None
    assert [column.kind for column in release.model.layout.columns] == ["one_hot", "modes"]
    assert release.sample(20, seed=0).num_rows == 20
    assert us.plan(schema, f"patectgan({SMALL})", QUICK).queries


def test_a_conditional_generator_needs_marginals() -> None:
    with raises(ConfigError, setting="marginals_fraction"):
        read_method("patectgan(marginals_fraction=0.0)")


# ------------------------------------------------------------------------------------------------------ unlikely tables


@pytest.mark.slow
def test_three_rows_and_a_constant_column_are_no_trouble() -> None:
    table = pa.table({"a": ["x"] * 3, "b": [1.5] * 3})
    columns = (
        us.Column(name="a", kind="categorical", categories=("x",), closed=True),
        us.Column(name="b", kind="real", bounds=(1.0, 2.0)),
    )
    method = f"pategan({SMALL.replace('teachers=8', 'teachers=3')})"
    release = us.fit(table, method, QUICK, schema=us.Schema(columns=columns, rows=3))
    assert release.sample(5, seed=0).num_rows == 5


@pytest.mark.slow
def test_a_table_without_a_single_protected_unit_is_no_trouble() -> None:
    """Rows without an owner are left out; whether one remains must not show in whether the run succeeds."""
    columns = (
        us.Column(name="who", kind="id"),
        us.Column(name="a", kind="categorical", categories=("x", "y"), closed=True),
    )
    schema = us.Schema(columns=columns, rows=10, unit="who", max_rows_per_unit=2)
    table = pa.table({"who": pa.array([None] * 3, pa.string()), "a": ["x"] * 3})
    release = us.fit(table, f"pategan({SMALL})", QUICK, schema=schema)
    assert release.sample(5, seed=0).num_rows == 5


# --------------------------------------------------------------------------------------------------- with other methods


@pytest.mark.slow
@pytest.mark.parametrize("features", ["typed", "modes"])
def test_other_features(features: str) -> None:
    schema, table = survey()
    for method in ("pategan", "patectgan"):
        release = us.fit(table, f"{method}({SMALL}, features={features})", QUICK, schema=schema)
        assert release.sample(50, seed=0).num_rows == 50


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrapper",
    [
        "boosted({}, rounds=20, checkpoints=4, checkpoint_every=4, samples_per_generator=500, distinguishers=one_way)",
        "drs({}, proposals=4000)",
        "selected({}, task=marginals, checkpoints=4, holdout_fraction=0)",
    ],
)
@pytest.mark.parametrize("method", ["pategan", "patectgan"])
def test_its_training_can_be_followed(wrapper: str, method: str) -> None:
    """Students are covered by the votes, so that what judges by critics works here too."""
    schema, table = survey()
    release = us.fit(table, wrapper.format(f"{method}({SMALL})"), us.Guarantee(3.0, 1e-6), schema=schema)
    assert 0.995 * 3 <= release.statement.epsilon <= 3
    assert release.sample(50, seed=0).num_rows == 50


@pytest.mark.slow
def test_a_run_can_start_from_a_public_table_and_says_so() -> None:
    """Without noise and with a single private iteration, the networks are those of the public rows."""
    schema, table = survey()
    public = pa.table({"insurance": ["no"] * 300, "region": ["west"] * 300, "age": [30] * 300})
    settings = SMALL.replace("iterations=20", "iterations=1")
    method = f"pategan({settings}, marginals_fraction=0.0, critic_learning_rate=1e-2)"
    release = us.fit(table, method, us.Guarantee.not_private(), schema=schema, public=lambda: public)
    fake = release.sample(500, seed=0)
    assert np.mean(np.asarray(fake["region"].to_pylist()) == "west") > 0.6
    assert release.statement.facts.public_table == 300


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_release(tmp_path) -> None:
    """Seeded; teachers, memory and learners come back from the checkpoint."""
    schema, table = survey()
    method = f"pategan({SMALL.replace('iterations=20', 'iterations=120')})"
    whole = us.fit(table, method, QUICK, schema=schema, seed=5)

    def stop(share: float, words: str) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        us.fit(table, method, QUICK, schema=schema, seed=5, checkpoint=tmp_path / "c", progress=stop)
    again = us.fit(table, method, QUICK, schema=schema, seed=5, checkpoint=tmp_path / "c", resume=True)
    left, right = (release.model.to_arrays()[1] for release in (whole, again))
    assert all(np.array_equal(left[name], right[name]) for name in left)


def test_unit_rows_stay_with_one_teacher_whatever_the_seed() -> None:
    """By the parts that are handed out: a person's two rows carry the same mark, and no two parts share a mark."""
    from understudy.privacy.accounting.ledger import Ledger, Query
    from understudy.privacy.gradients.charges import charge_votes
    from understudy.privacy.rows.rows import PrivateRows

    marks = np.repeat(np.arange(40), 2)
    rows = PrivateRows(
        marks[:, None].astype(np.int32),
        Domain(names=("mark",), sizes=(40,), num_rows=80),
        max_rows_per_unit=2,
        units=marks,
    )
    for seed in range(3):
        ledger = Ledger(us.Guarantee(1.0, 1e-6), noise=SeededNoise(seed), max_rows_per_unit=2)
        query = Query("votes", "votes", Gaussian(10.0))
        charged = charge_votes(rows, query, ledger, num_teachers=7, num_queries=5)
        partitions = charged._partitions
        ends = np.cumsum(np.asarray(partitions._lengths))
        seen = [set(part.tolist()) for part in np.split(np.asarray(partitions._rows)[:, 0], ends[:-1])]
        assert sum(map(len, seen)) == 40
        assert charged.num_queries == 5
    larger = Ledger(us.Guarantee(1.0, 1e-6), noise=SeededNoise(0), max_rows_per_unit=3)
    with raises(us.BudgetExceeded, query=query.what, needed=None):
        charge_votes(rows, query, larger, num_teachers=7, num_queries=5)
