"""Conditional rows: exactly by the model's law, or refused quickly; and conditions that try to do more."""

import dataclasses
import time
from datetime import date, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import stats

import understudy as us
from tests.builders import raises
from understudy.cli import run
from understudy.models.graphical import GraphicalModel
from understudy.tables import filter_where

ODD = 'odd "name", a|b'


@pytest.fixture(scope="module")
def table() -> pa.Table:
    draw = np.random.default_rng(0)
    size = 3000
    degree = draw.choice(["none", "school", "college"], size, p=[0.3, 0.5, 0.2])
    age = draw.integers(18, 90, size)
    income = np.round(np.where(degree == "college", 60, 30) + draw.normal(0, 12, size).clip(-25, 25), 1)
    return pa.table(
        {
            "person": [f"p{i}" for i in range(size)],
            "degree": pa.array(degree, mask=draw.random(size) < 0.1),
            "age": pa.array(age, mask=draw.random(size) < 0.1),
            "income": income,
            "member": draw.random(size) < np.where(age > 50, 0.8, 0.2),
            "born": [date(2020 - int(a), 1, 1 + i % 28) for i, a in enumerate(age)],
            "seen": [datetime(2020, 1, 1 + i % 28, i % 24, i % 60) for i in range(size)],
            ODD: draw.choice(["x|y", "it's", "z"], size),
        }
    )


@pytest.fixture(scope="module")
def schema() -> us.Schema:
    columns = (
        us.Column(name="person", kind="id"),
        us.Column(name="degree", kind="categorical", categories=("none", "school", "college"), closed=True),
        us.Column(name="age", kind="integer", bounds=(18, 89)),
        us.Column(name="income", kind="real", bounds=(0.0, 100.0), nullable=False),
        us.Column(name="member", kind="boolean", nullable=False),
        us.Column(name="born", kind="date", bounds=(date(1930, 1, 1), date(2002, 12, 31)), nullable=False),
        us.Column(name="seen", kind="datetime", bounds=(datetime(2020, 1, 1), datetime(2020, 2, 1)), nullable=False),
        us.Column(name=ODD, kind="categorical", categories=("x|y", "it's", "z"), nullable=False, closed=True),
    )
    return us.Schema(columns=columns, rows=3000)


@pytest.fixture(scope="module")
def release(table: pa.Table, schema: us.Schema) -> us.Release:
    return us.fit(table, "mst", us.Guarantee(8.0, 1e-6), schema=schema, binning=us.Binning(max_bins=6), seed=0)


@pytest.fixture(scope="module")
def unconditional(release: us.Release) -> pa.Table:
    return release.sample(100_000, seed=1)


def test_codes_follow_the_conditional_law(release: us.Release) -> None:
    """Chi-square of what comes out against the model's own table, for a condition that codes decide."""
    where = "degree IN ('none', 'college') AND member AND age IS NOT NULL"
    names = ("degree", "age", "member", ODD)
    codec = release.codec
    assert isinstance(release.model, GraphicalModel)
    joint = release.model.marginal(names)
    keep = np.zeros(joint.shape, dtype=bool)
    keep[np.ix_([0, 2], range(joint.shape[1] - 1), [1], range(joint.shape[3]))] = True
    expected = np.where(keep, joint, 0.0)
    rows = release.sample(20_000, where=where, seed=2)
    codes = codec.encode(rows)[:, [codec.domain.index(name) for name in names]]
    observed = np.zeros(joint.shape)
    np.add.at(observed, tuple(codes.T), 1)
    assert observed[~keep].sum() == 0
    shares = expected[keep] / expected.sum() * len(rows)
    assert _pvalue(observed[keep], shares) > 1e-3
    assert _pvalue(observed[keep], np.full(keep.sum(), len(rows) / keep.sum())) < 1e-6  # the test can fail


def _pvalue(observed: np.ndarray, expected: np.ndarray) -> float:
    """Chi-square, with small cells pooled."""
    large = expected >= 5
    pool = [np.append(cells[large], cells[~large].sum()) for cells in (observed, expected)]
    if pool[1][-1] < 5:
        pool = [np.append(cells[:-2], cells[-2:].sum()) for cells in pool]
    return stats.chisquare(pool[0], pool[1] / pool[1].sum() * pool[0].sum()).pvalue


@pytest.mark.parametrize(
    "where",
    [
        "age BETWEEN 33 AND 47",
        "income < 33.33",
        "income >= 20.0 AND income <= 40.5 AND NOT member",
        "age IS NULL",
        "degree IS NULL OR age > 70",
        "age + income > 120",
        "degree = 'college' AND income < 45 OR member AND age < 30",
        "born >= DATE '1990-06-01' AND seen < TIMESTAMP '2020-01-15 12:00:00'",
        "born >= '1990-06-01'",
        "age NOT IN (20, 21, 22) AND age <> 30",
        "lower(degree) LIKE 'c%'",
        "CASE WHEN member THEN age > 60 ELSE income > 50 END",
        "\"odd \"\"name\"\", a|b\" IN ('x|y', 'it''s') AND member",
        "AGE < 40",
    ],
)
def test_rows_follow_the_conditional_law(release: us.Release, unconditional: pa.Table, where: str) -> None:
    """Conditional rows are distributed like the rows of a large free sample that meet the condition."""
    rows = release.sample(4000, where=where, seed=3)
    assert rows.num_rows == 4000
    assert filter_where(rows, where).all()
    met = unconditional.filter(pa.array(filter_where(unconditional, where)))
    both = pd.concat([_cells(one) for one in (rows, met)], axis=1).fillna(0)
    both = both[both.sum(axis=1) >= 20]
    assert stats.chi2_contingency(both.to_numpy()).pvalue > 1e-4
    for name in ("income", "age"):
        values = [one.column(name).drop_null().to_numpy() for one in (rows, met)]
        if min(map(len, values)):
            assert stats.ks_2samp(*values).pvalue > 1e-4, name


def _cells(table: pa.Table) -> pd.Series:
    """How many rows fall into each cell of categories and coarse numbers."""
    frame = table.select(["degree", "age", "income", "member", ODD]).to_pandas()
    frame["age"] = frame["age"] // 18
    frame["income"] = frame["income"] // 25
    return frame.groupby(frame.columns.to_list(), dropna=False).size()


@pytest.mark.parametrize("where", ["income = 30.5", "income IN (30.5, 31.0)", "income > 30.4 AND income < 30.6"])
def test_condition_holds_for_rows_as_they_are_written(tmp_path, table: pa.Table, schema: us.Schema, where: str) -> None:
    """A text file with one decimal: the condition is met by the rounded values, and the bounds are kept."""
    import pyarrow.csv

    pyarrow.csv.write_csv(table, tmp_path / "t.csv")
    narrow = dataclasses.replace(schema["income"], bounds=(5.55, 84.96), decimals=1)
    columns = tuple(narrow if c.name == "income" else c for c in schema)
    declared = dataclasses.replace(schema, columns=columns)
    release = us.fit(tmp_path / "t.csv", "independent", us.Guarantee(8.0, 1e-6), schema=declared, seed=0)
    rows = release.sample(100, where=where, seed=0)
    assert filter_where(rows, where).all()
    bounds = pc.min_max(release.sample(20_000, seed=0).column("income")).as_py()
    assert 5.55 <= bounds["min"] <= bounds["max"] <= 84.96


def test_ids_number_the_rows_that_are_handed_out(release: us.Release) -> None:
    rows = release.sample(50, where="member AND age > 60", seed=0)
    assert rows.column("person").to_pylist() == list(range(1, 51))


@pytest.mark.parametrize(
    ("where", "column"),
    [
        ("degree = 'doctor'", "degree"),
        ("age > 1000", "age"),
        ("income < 0", "income"),
        ("degree IS NULL AND degree = 'none'", "degree"),
    ],
)
def test_impossible_by_one_column_is_refused_at_once(release: us.Release, where: str, column: str) -> None:
    with raises(us.ConditionError, column=column):
        release.sample(10, where=where, seed=0)


@pytest.mark.parametrize(
    "where", ["age > age + 1", "false", "income > 50 AND income + 1 < 50", "age = 20 AND age = 21"]
)
def test_impossible_otherwise_is_refused_soon(release: us.Release, where: str) -> None:
    """A public bound on draws ends it, in seconds even where a hundred thousand rows were asked for."""
    began = time.monotonic()
    with pytest.raises(us.ConditionError, match=r"Only 0 of 100000 rows met the condition in [\d,]+ draws"):
        release.sample(100_000, where=where, seed=0)
    assert time.monotonic() - began < 20


def test_rare_conditions_are_met_within_the_bound(release: us.Release) -> None:
    """Half a percent of the rows: found by rejection."""
    rows = release.sample(20, where="age % 18 = 0 AND income % 5 < 0.2", seed=0)
    assert rows.num_rows == 20


@pytest.mark.parametrize(
    "where",
    [
        "age > 1; DROP TABLE t",
        "1=1) UNION SELECT 1 FROM (SELECT 1",
        "EXISTS (SELECT 1)",
        "age > (SELECT max(age) FROM t)",
        "age IN (SELECT 1)",
        "read_text('/etc/passwd') IS NOT NULL",
        "age IN (SELECT x FROM read_csv('/etc/passwd'))",
        "getenv('HOME') = 'x'",
        "current_setting('threads') = '1'",
        "random() < 0.5",
        "row_number() OVER () = 1",
        "sum(age) > 3",
        "count(*) > 1",
        "age > $1",
        "age > ?",
        "COLUMNS(*) > 3",
        "*",
        "",
        "   ",
        "age >",
        "age",
        "'text'",
        "1",
        "NULL",
        "age > 'many'",
        "-- nothing",
        "true) --",
        "pg_sleep(10) IS NULL",
        "glob('/*') IS NOT NULL",
        "write_log('x') IS NULL",
        "sniff_csv('/etc/passwd') IS NULL",
    ],
)
def test_conditions_that_do_more_are_refused(release: us.Release, where: str) -> None:
    with pytest.raises(us.ConditionError):
        release.sample(5, where=where, seed=0)


def test_unknown_column_is_named_with_those_there_are(release: us.Release) -> None:
    with raises(us.ConditionError, column="agee"):
        release.sample(5, where="agee > 5")
    with pytest.raises(us.ConditionError, match="strings are written in single quotes"):
        release.sample(5, where='degree = "college"')


@pytest.mark.parametrize("where", ["person = '5'", "person IS NOT NULL AND age > 5"])
def test_ids_are_no_part_of_a_condition(release: us.Release, where: str) -> None:
    """Fresh numbers are given to the rows that are handed out, so none could meet it."""
    with pytest.raises(us.ConditionError) as caught:
        release.sample(5, where=where)
    assert caught.value.column == "person"


def test_by_the_command_line(release: us.Release, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    release.save(tmp_path / "r")
    out = tmp_path / "fake.csv"
    arguments = ["sample", str(tmp_path / "r"), "-n", "30", "-o", str(out), "--where"]
    assert run([*arguments, "agee > 5"]) == 2
    assert run([*arguments, "degree = 'doctor'"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 2
    assert not out.exists()
    assert run([*arguments, "degree = 'college' AND age < 40", "--seed", "1"]) == 0
    rows = pd.read_csv(out)
    assert len(rows) == 30
    assert set(rows["degree"]) == {"college"}
    assert rows["age"].max() < 40
