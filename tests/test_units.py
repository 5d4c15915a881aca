"""Synthetic units: how many rows they own, which values these share, and that rows stay those of the model."""

import dataclasses
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import understudy as us
from tests.builders import Killed, kill_at
from tests.examples import scaled
from tests.privacy.second_accountant import Figures, errors_in
from understudy import certificate
from understudy.cli import run
from understudy.encoding import (
    CategoricalCodec,
    describe_rows_per_unit,
    describe_units,
    group_into_units,
    pool_factor,
)
from understudy.encoding.units import _choose_rows
from understudy.privacy.accounting.events import UnitHistogram
from understudy.tables import filter_where

SIZES = np.array([0.4, 0.3, 0.2, 0.1])
NUM_UNITS = 3000
SEXES, WARDS = ("f", "m"), ("a", "b", "c")


def visits(num_units: int = NUM_UNITS, *, seed: int = 0) -> pa.Table:
    """1 to 4 visits of each person, whose ward follows from sex and age; a few people have many more visits."""
    draw = np.random.default_rng(seed)
    sizes = 1 + draw.choice(4, num_units, p=SIZES)
    sizes[: num_units // 100] = 25
    who = draw.permutation(np.repeat(np.arange(num_units), sizes))
    sex, born = draw.integers(0, 2, num_units)[who], draw.integers(0, 80, num_units)[who]
    likely = np.where(sex == 0, 0, np.where(born < 30, 1, 2))
    ward = np.where(draw.random(len(who)) < 0.8, likely, draw.integers(0, 3, len(who)))
    return pa.table(
        {
            "who": [f"p{each}" for each in who],
            "sex": np.asarray(SEXES)[sex],
            "born": [date(1920 + int(each), 1 + int(each) % 12, 7) for each in born],
            "ward": np.asarray(WARDS)[ward],
            "cost": np.round(draw.gamma(2.0, 100.0, len(who)), 2),
            "visit": np.arange(len(who)),
        }
    )


def schema(**facts: object) -> us.Schema:
    columns = (
        us.Column(name="who", kind="id"),
        us.Column(name="sex", kind="categorical", categories=SEXES, nullable=False, per_unit=True, closed=True),
        us.Column(name="born", kind="date", bounds=(date(1920, 1, 1), date(1999, 12, 31)), per_unit=True),
        us.Column(name="ward", kind="categorical", categories=WARDS, nullable=False, closed=True),
        us.Column(name="cost", kind="real", bounds=(0.0, 2000.0), decimals=2, nullable=False),
        us.Column(name="visit", kind="id"),
    )
    known = {"columns": columns, "rows": 6000, "unit": "who", "max_rows_per_unit": 4}
    return us.Schema(**{**known, **facts})  # type: ignore[arg-type]  # keywords of several types


SHARED = ("sex", "born")


@pytest.fixture(scope="module")
def release() -> us.Release:
    return us.fit(visits(), "mst", us.Guarantee(2.0, 1e-6), schema=schema(), seed=0)


@pytest.fixture(scope="module")
def rows(release: us.Release) -> pd.DataFrame:
    return release.sample_arrow(30_000, seed=1).to_pandas()


def sizes_of(rows: pd.DataFrame) -> np.ndarray:
    return rows.groupby("who").size().to_numpy()


def assert_shared(rows: pd.DataFrame) -> None:
    for name in SHARED:
        assert rows.groupby("who")[name].nunique(dropna=False).max() == 1, name


# -------------------------------------------------------------------------------------------------------- rows per unit


def test_rows_per_unit_are_those_of_the_people(release: us.Release) -> None:
    """Within five standard deviations of the noise that was charged. Of people with 25 visits, 4 are used."""
    query = next(query for query in release.statement.queries if query.key == "rows_per_unit")
    assert isinstance(query.event, UnitHistogram)
    real = np.bincount(np.minimum(sizes_of(visits().to_pandas()), 4), minlength=5)[1:]
    estimated = np.asarray(release.codec.rows_per_unit) * NUM_UNITS
    assert np.abs(estimated - real).max() < 5 * query.event.stddev
    assert 5 * query.event.stddev < 0.05 * NUM_UNITS
    assert sum(release.codec.rows_per_unit) == pytest.approx(1.0)


def test_synthetic_units_follow_the_estimated_distribution(release: us.Release, rows: pd.DataFrame) -> None:
    """By a chi-square test, which rejects one that is a little different; with and without shared columns."""
    plain = dataclasses.replace(
        release,
        codec=dataclasses.replace(release.codec, schema=_without_sharing(release.schema)),
    )
    for each in (rows, plain.sample_arrow(30_000, seed=2).to_pandas()):
        counted = np.bincount(sizes_of(each), minlength=5)[1:]
        expected = np.asarray(release.codec.rows_per_unit) * counted.sum()
        assert stats.chisquare(counted, expected).pvalue > 1e-3
        shifted = expected + np.array([0.02, -0.02, 0, 0]) * counted.sum()
        assert stats.chisquare(counted, shifted).pvalue < 1e-3


def _without_sharing(declared: us.Schema) -> us.Schema:
    columns = tuple(dataclasses.replace(column, per_unit=False) for column in declared.columns)
    return dataclasses.replace(declared, columns=columns)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 1001])
def test_the_number_of_rows_is_as_asked(release: us.Release, size: int) -> None:
    for where in (None, "sex = 'f'"):
        sampled = release.sample_arrow(size, where=where, seed=size).to_pandas()
        assert len(sampled) == size
        assert sampled["visit"].tolist() == list(range(1, size + 1))
        assert sampled["who"].drop_duplicates().tolist() == list(range(1, sampled["who"].nunique() + 1))
        assert sampled["who"].is_monotonic_increasing
        assert sizes_of(sampled).max() <= 4
        assert_shared(sampled)


def test_the_default_size_is_the_declared_one(release: us.Release) -> None:
    assert release.sample_arrow(seed=0).num_rows == 6000


def test_units_of_one_row_make_no_query() -> None:
    one = us.fit(visits(), "independent", us.Guarantee(2.0, 1e-6), schema=schema(max_rows_per_unit=1), seed=0)
    assert one.codec.rows_per_unit == ()
    assert "rows_per_unit" not in {query.key for query in one.statement.queries}
    assert one.sample_arrow(50, seed=0).column("who").to_pylist() == list(range(1, 51))


# -------------------------------------------------------------------------------------------------- what rows look like


def test_shared_columns_have_one_value_per_unit(rows: pd.DataFrame) -> None:
    """After decoding too: bins of dates are wider than a day."""
    assert_shared(rows)
    assert rows["born"].nunique() > 200
    varied = rows[rows.groupby("who")["who"].transform("size") > 1].groupby("who")
    assert (varied["ward"].nunique() > 1).mean() > 0.3  # other columns are drawn row by row
    assert (varied["cost"].nunique() > 1).mean() > 0.95


def model_rows(release: us.Release, size: int, seed: int) -> pd.DataFrame:
    """Rows of the model that are not grouped."""
    plain = dataclasses.replace(release, codec=dataclasses.replace(release.codec, rows_per_unit=()))
    return plain.sample_arrow(size, seed=seed).to_pandas()


def test_other_columns_stay_as_sampled(release: us.Release) -> None:
    """Grouping moves rows, and changes nothing but shared values and ids."""
    key, _ = jax.random.split(jax.random.key(5))
    sampled = release.sampler.draw(5000, key, None).to_pandas()
    grouped = release.sample_arrow(5000, seed=5).to_pandas()
    by = ["cost", "ward"]
    pd.testing.assert_frame_equal(
        sampled[by].round(2).sort_values(by, ignore_index=True),
        grouped[by].sort_values(by, ignore_index=True).astype(sampled[by].dtypes),
    )
    changed = 0.5 * sum(
        abs(sampled.groupby("sex").size() - grouped.groupby("sex").size()),
    )
    assert changed <= 4  # only the unit across the border of the two groups


def test_marginals_and_associations_are_those_of_the_model(release: us.Release, rows: pd.DataFrame) -> None:
    """1-way of shared columns and 2-way with another column, beside the difference of two samples of the model."""
    first, second = (model_rows(release, 30_000, seed) for seed in (10, 11))
    for frame in (rows, first, second):
        frame["decade"] = pd.to_datetime(frame["born"]).dt.year // 10
    for columns in (["sex"], ["decade"], ["sex", "decade"], ["sex", "ward"], ["decade", "ward"]):
        by_chance = _distance(first, second, columns)
        assert _distance(rows, first, columns) < by_chance + 0.012, columns
    shuffled = rows.assign(ward=rows["ward"].sample(frac=1.0, random_state=0).to_numpy())
    assert _distance(shuffled, first, ["sex", "ward"]) > 0.2  # what independent copies would give


def _distance(one: pd.DataFrame, other: pd.DataFrame, columns: list[str]) -> float:
    """Total variation between marginals."""
    counts = [frame.groupby(columns).size() / len(frame) for frame in (one, other)]
    return 0.5 * float(counts[0].sub(counts[1], fill_value=0.0).abs().sum())


# -------------------------------------------------------------------------------------------------- many shared columns


def many_columns(num_columns: int, num_codes: int, num_rows: int) -> tuple[us.Codec, Callable[[int], pa.Table]]:
    """Independent shared columns, and for each another column that equals it in 8 of 10 rows; a sampler of rows."""
    names, codes = [f"{letter}{at}" for letter in "xy" for at in range(num_columns)], tuple(range(num_codes))
    columns = [
        us.Column(name=name, kind="categorical", categories=codes, nullable=False, per_unit=name[0] == "x", closed=True)
        for name in names
    ]
    declared = us.Schema(columns=(us.Column(name="who", kind="id"), *columns), unit="who", max_rows_per_unit=4)
    codec = us.Codec(
        tuple(CategoricalCodec(name, codes, False, 0) for name in names), declared, num_rows, tuple(SIZES.tolist())
    )
    generator = np.random.default_rng(0)

    def draw(size: int) -> pa.Table:
        x = generator.integers(0, num_codes, (size, num_columns))
        y = np.where(generator.random(x.shape) < 0.8, x, generator.integers(0, num_codes, x.shape))
        return pa.table(dict(zip(["who", *names], [np.arange(size), *x.T, *y.T], strict=True)))

    return codec, draw


@pytest.mark.parametrize(
    ("num_columns", "num_codes", "num_rows", "factor", "kept"),
    [
        (2, 10, 5000, 1, [0.98, 0.97]),
        (3, 10, 1000, 10, [0.95, 0.95, 0.95]),  # of 1,000 rows alone the last column would keep 0.64
        (4, 10, 10_000, 10, [0.98, 0.98, 0.98, 0.97]),
        (6, 10, 10_000, 10, [0.98, 0.98, 0.98, 0.9, 0.6, 0.5]),  # a million combinations: the last two lose half
    ],
)
def test_many_shared_columns(num_columns: int, num_codes: int, num_rows: int, factor: int, kept: list[float]) -> None:
    """Whatever the number of combinations, sizes have no bias. Associations are lost from the last column on, once
    there are more combinations than rows in the pool."""
    codec, draw = many_columns(num_columns, num_codes, num_rows)
    assert pool_factor(codec, num_rows) == factor
    grouped = group_into_units(draw(num_rows * factor), num_rows, codec, key=jax.random.key(0)).to_pandas()
    counted = np.bincount(sizes_of(grouped), minlength=5)[1:]
    assert stats.chisquare(counted, SIZES * counted.sum()).pvalue > 1e-3
    for at in range(num_columns):
        assert grouped.groupby("who")[f"x{at}"].nunique().max() == 1
        assert abs(np.bincount(grouped[f"x{at}"]) / num_rows - 1 / num_codes).max() < 5 * 2 / np.sqrt(num_rows) / 3
        agreeing = (grouped[f"x{at}"] == grouped[f"y{at}"]).mean() / (0.8 + 0.2 / num_codes)
        assert kept[at] < agreeing < 1.05, at


@settings(max_examples=scaled(100))
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=30),
    factor=st.integers(1, 4),
    runs=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_each_unit_takes_rows_of_its_own_around_its_donor(sizes: list[int], factor: int, runs: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    codes = np.sort(generator.integers(0, runs, factor * sum(sizes)))
    starts, ends = np.searchsorted(codes, codes, side="left"), np.searchsorted(codes, codes, side="right")
    chosen, donors = _choose_rows(np.array(sizes), factor, starts, ends, generator)
    assert len(set(chosen.tolist())) == len(chosen) == sum(sizes)
    begin = 0
    for unit, donor in zip(np.split(chosen, np.cumsum(sizes)[:-1]), donors, strict=True):
        stretch = range(begin, begin + factor * len(unit))
        begin = stretch.stop
        assert donor in unit
        assert set(unit.tolist()) <= set(stretch)
        alike = [at for at in stretch if codes[at] == codes[donor]]
        differing = np.count_nonzero(codes[unit] != codes[donor])
        assert differing == max(0, len(unit) - len(alike))  # as few as there can be


# ----------------------------------------------------------------------------------------------------------- conditions


@pytest.mark.parametrize(
    "where",
    [
        "sex = 'f'",
        "ward = 'a'",
        "born < DATE '1955-05-05'",
        "sex = 'f' AND ward <> 'a' OR born >= DATE '1960-06-15' AND cost < 150",
    ],
)
def test_rows_under_a_condition(release: us.Release, where: str) -> None:
    """They meet it with the values that they share, and are linked like others, up to rows at the edge of a bin."""
    sampled = release.sample_arrow(3000, where=where, seed=3)
    assert sampled.num_rows == 3000
    assert filter_where(sampled.drop_columns(["who", "visit"]), where).all()
    frame = sampled.to_pandas()
    assert_shared(frame)
    fractions = np.bincount(sizes_of(frame), minlength=5)[1:] / frame["who"].nunique()
    assert np.abs(fractions - release.codec.rows_per_unit).max() < 0.08
    free = model_rows(release, 60_000, 4)
    free = free[filter_where(pa.Table.from_pandas(free.drop(columns=["who", "visit"])), where)]
    assert _distance(frame, free, ["sex", "ward"]) < 0.04


# ------------------------------------------------------------------------------------------ plan, certificate, releases


def test_the_plan_is_what_is_charged(release: us.Release) -> None:
    """And a second accountant agrees. The histogram costs as much with 2 rows for each unit as with 4."""
    planned = us.plan(schema(), "mst", us.Guarantee(2.0, 1e-6))
    assert planned.queries == release.statement.queries
    assert errors_in(Figures.of(certificate.to_json(release.statement))) == []
    assert (
        planned["rows_per_unit"].event
        == us.plan(schema(max_rows_per_unit=2), "mst", us.Guarantee(2.0, 1e-6))["rows_per_unit"].event
    )


def test_plan_run_and_certificate_say_it(release: us.Release) -> None:
    said = (
        "At most 4 rows of each unit ('who') are used; further rows are left out. A synthetic unit has 1 to "
        "4 rows, sampled from a noisy histogram of rows per unit. One value per unit: sex, born. All other values are "
        "sampled row by row."
    )
    assert describe_units(schema()) == said
    assert said in [note.text for note in us.plan(schema(), "mst", us.Guarantee(2.0, 1e-6)).notes]
    assert said in [note.text for note in release.notes]
    estimated = f"rows per unit: {describe_rows_per_unit(release.codec.rows_per_unit)}"
    assert estimated in release.statement.facts.estimated
    assert "one value per unit: sex, born" in release.statement.facts.declared
    for words in (
        estimated,
        "At most 4 rows of each unit were used. Further rows,",
        "The number of rows of a synthetic unit is sampled from a noisy histogram of rows per unit; its rows are indep",
        "number of units with 1 to 4 rows",
    ):
        assert words in release.certificate


def test_other_schemas_say_what_holds_for_them() -> None:
    one = "Only one row of each unit ('who') is used; further rows are left out."
    assert describe_units(schema(max_rows_per_unit=1)) == f"{one} Each synthetic row is a unit of its own."
    assert "No column is declared per_unit." in describe_units(_without_sharing(schema()))
    plain = _without_sharing(schema())
    dropped = (us.Column(name="who", kind="id", drop=True), *plain.columns[1:])
    assert describe_units(dataclasses.replace(plain, columns=dropped)).endswith(
        "'who' is dropped, so synthetic rows belong to no unit."
    )
    assert describe_units(us.Schema(columns=plain.columns)) == ""
    many = describe_units(schema(max_rows_per_unit=5000))
    assert "At most 5,000 rows of each unit" in many
    assert "A synthetic unit has 1 to 1,000 rows" in many
    assert describe_rows_per_unit([1 / 12] * 12) == "6.5 on average, at most 12"


def test_a_release_keeps_it(release: us.Release, tmp_path: Path) -> None:
    release.save(tmp_path / "release")
    loaded = us.Release.load(tmp_path / "release")
    assert loaded.codec.rows_per_unit == release.codec.rows_per_unit
    for where in (None, "ward = 'b' AND born < DATE '1960-01-01'"):
        again, first = (each.sample_arrow(700, where=where, seed=9) for each in (loaded, release))
        assert again.equals(first)


@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
def test_kept_types_and_frames(library: str) -> None:
    """Ids of text stay text in Arrow, and a pandas frame comes back as one."""
    table = visits(300) if library == "pyarrow" else visits(300).to_pandas()
    guarantee = us.Guarantee(2.0, 1e-6)
    release = us.fit(table, "independent", guarantee, schema=schema(rows=600), keep_types=True, seed=0)
    kept = release.sample(100, seed=0)
    if library == "pyarrow":
        assert kept.schema.field("who").type == pa.string()
        kept = kept.to_pandas()
    assert list(kept.columns) == visits(1).column_names
    assert 25 < kept["who"].nunique() < 100
    assert_shared(kept)


def test_a_resumed_run_links_rows_alike(tmp_path: Path) -> None:
    method = "dpgan(steps=300, sampling_rate=0.3, latent=4, generator_widths=[8], critic_widths=[6])"
    facts: dict[str, Any] = {"schema": schema(rows=600), "seed": 3, "binning": us.Binning(bins="uniform", max_bins=6)}
    whole = us.fit(visits(300), method, us.Guarantee(3.0, 1e-6), **facts)
    facts["checkpoint"] = tmp_path / "checkpoint"
    with pytest.raises(Killed):
        us.fit(visits(300), method, us.Guarantee(3.0, 1e-6), **facts, progress=kill_at(0.3))
    resumed = us.fit(visits(300), method, us.Guarantee(3.0, 1e-6), **facts, resume=True)
    assert resumed.codec.rows_per_unit == whole.codec.rows_per_unit
    assert resumed.statement.queries == whole.statement.queries


def test_the_command_line_counts_rows_and_says_how_they_are_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    visits(300).to_pandas().to_csv("visits.csv", index=False)
    schema(rows=600).write("visits.toml")
    fit = ["--schema", "visits.toml", "--epsilon", "2", "--method", "independent"]
    assert run(["synth", "visits.csv", "-o", "fake.csv", *fit, "-n", "150"]) == 0
    assert run(["sample", "fake.release", "-o", "more.csv", "-n", "77", "--where", "sex = 'm'"]) == 0
    err = capsys.readouterr().err
    for name, size in (("fake.csv", 150), ("more.csv", 77)):
        rows = pd.read_csv(name)
        assert len(rows) == size
        assert_shared(rows)
        assert f"Wrote {size} synthetic rows of {rows['who'].nunique()} units to {name}" in err
    assert err.count("At most 4 rows of each unit ('who') are used; further rows are left out.") == 2


# ----------------------------------------------------------------------------------------------------------- edge cases


def test_an_empty_table_and_rows_without_units() -> None:
    """Nobody, or nobody with an id: each unit has one row or what noise makes of it, and nothing fails."""
    nameless = visits(20).set_column(0, "who", pa.nulls(len(visits(20)), pa.string()))
    for table in (visits(20).slice(0, 0), nameless):
        empty = us.fit(table, "independent", us.Guarantee(2.0, 1e-6), schema=schema(rows=50), seed=1)
        assert sum(empty.codec.rows_per_unit) == pytest.approx(1.0)
        assert empty.sample_arrow(20, seed=0).num_rows == 20
    exact = us.fit(nameless, "independent", us.Guarantee.not_private(), schema=schema(rows=50), seed=1)
    assert exact.codec.rows_per_unit == (1.0, 0.0, 0.0, 0.0)


def test_contradictory_values_stop_nothing() -> None:
    """A person with two sexes is read row by row; synthetic people have one."""
    table = visits(300)
    flipped = pa.array(np.where(np.arange(len(table)) % 2, "f", "m"))
    release = us.fit(
        table.set_column(1, "sex", flipped), "independent", us.Guarantee(2.0, 1e-6), schema=schema(rows=600), seed=1
    )
    assert_shared(release.sample_arrow(500, seed=0).to_pandas())
