"""Synthetic units: how many rows they own, which values these share, and that rows stay those of the model."""

import dataclasses
from datetime import date
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats

import understudy as us
from tests.privacy.second_accountant import Figures, errors_in
from understudy import certificate
from understudy.cli import run
from understudy.encoding import describe_rows_per_unit, describe_units
from understudy.privacy.events import UnitHistogram
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
        us.Column(name="sex", kind="categorical", categories=SEXES, nullable=False, per_unit=True),
        us.Column(name="born", kind="date", bounds=(date(1920, 1, 1), date(1999, 12, 31)), per_unit=True),
        us.Column(name="ward", kind="categorical", categories=WARDS, nullable=False),
        us.Column(name="cost", kind="real", bounds=(0.0, 2000.0), decimals=2, nullable=False),
        us.Column(name="visit", kind="id"),
    )
    known = {"columns": columns, "rows": 6000, "unit": "who", "max_rows_per_unit": 4}
    return us.Schema(**{**known, **facts})  # type: ignore[arg-type]


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


# ------------------------------------------------------------------------------------------------------- rows per unit


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
    sampled = release._draw(5000, key, None).to_pandas()
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
