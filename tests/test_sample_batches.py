"""Synthetic rows batch by batch: the rows of `sample_arrow`, numbered through, of one type, by the rules."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from tests.builders import raises
from tests.examples import scaled
from tests.ruled import ruled_schema, ruled_table, violations
from tests.test_units import schema as visit_schema
from tests.test_units import visits
from understudy.cli import run
from understudy.errors import ConditionError, ConfigError
from understudy.release import BATCH_ROWS
from understudy.tables import filter_where

GUARANTEE = us.Guarantee(5.0, 1e-6)


@pytest.fixture(scope="module")
def coin() -> us.Release:
    """A model of one column, which samples millions of rows in seconds."""
    schema = {"columns": {"member": {"kind": "boolean", "nullable": False}}}
    return us.fit(pa.table({"member": [True, True, False] * 500}), "independent", GUARANTEE, schema=schema, seed=0)


@pytest.fixture(scope="module")
def of_units() -> us.Release:
    return us.fit(visits(), "mst", GUARANTEE, schema=visit_schema(), seed=0)


@pytest.fixture(scope="module")
def ruled() -> us.Release:
    return us.fit(ruled_table(), "mst", GUARANTEE, schema=ruled_schema(), seed=0)


def whole(batches: list[pa.Table]) -> pa.Table:
    assert all(batch.schema.equals(batches[0].schema, check_metadata=True) for batch in batches)
    return pa.concat_tables(batches)


# --- The same rows ---


@settings(max_examples=scaled(20))
@given(num_rows=st.integers(1, 50), batch_rows=st.integers(1, 60), seed=st.integers(0, 2**32 - 1))
def test_batches_have_all_rows_and_no_more_than_fit(
    coin: us.Release, num_rows: int, batch_rows: int, seed: int
) -> None:
    sizes = [b.num_rows for b in coin.sample_batches(num_rows, seed=seed, batch_rows=batch_rows)]
    assert sum(sizes) == num_rows
    assert all(size == batch_rows for size in sizes[:-1])
    assert 0 < sizes[-1] <= batch_rows


def test_one_batch_is_the_sample_itself(ruled: us.Release, of_units: us.Release) -> None:
    for release, where in ((ruled, None), (ruled, "start > 2"), (of_units, None), (of_units, "ward = 'b'")):
        (batch,) = release.sample_batches(300, where=where, seed=4)
        assert batch.equals(release.sample_arrow(300, where=where, seed=4), check_metadata=True)
        (batch,) = release.sample_batches(300, where=where, seed=4, batch_rows=300)
        assert batch.equals(release.sample_arrow(300, where=where, seed=4), check_metadata=True)


def test_a_longer_sample_is_its_batches(coin: us.Release) -> None:
    num_rows = BATCH_ROWS + 5
    batches = list(coin.sample_batches(num_rows, seed=1))
    assert [batch.num_rows for batch in batches] == [BATCH_ROWS, 5]
    assert coin.sample_arrow(num_rows, seed=1).equals(whole(batches))


def test_a_seed_fixes_all_batches_and_each_has_a_key_of_its_own(ruled: us.Release) -> None:
    first, again, other = (list(ruled.sample_batches(200, seed=seed, batch_rows=50)) for seed in (1, 1, 2))
    assert whole(first).equals(whole(again))
    assert not whole(first).equals(whole(other))
    modelled = [batch.select([c.name for c in ruled.schema.modelled]) for batch in first]
    assert not any(modelled[0].equals(each) for each in modelled[1:])
    fresh = [whole(list(ruled.sample_batches(200, batch_rows=50))) for _ in range(2)]
    assert not fresh[0].equals(fresh[1])


def test_many_small_batches_have_the_distribution_of_the_model(of_units: us.Release) -> None:
    """Rows of a graphical model are stratified within a call; over many calls, counts have a binomial error."""
    num_rows = 8000
    batches = whole(list(of_units.sample_batches(num_rows, seed=2, batch_rows=40))).to_pandas()
    model = of_units.sample_arrow(100_000, seed=3).to_pandas()
    for name in ("sex", "ward"):
        expected = model[name].value_counts(normalize=True)
        found = batches[name].value_counts(normalize=True).reindex(expected.index, fill_value=0.0)
        error = 5 * np.sqrt(expected * (1 - expected) / num_rows) + 5 * np.sqrt(expected / 100_000)
        assert (abs(found - expected) <= error).all(), name


# --- Ids, units, rules, conditions ---


def test_ids_and_units_are_numbered_through(of_units: us.Release) -> None:
    for where in (None, "ward <> 'a'"):
        batches = list(of_units.sample_batches(1000, where=where, seed=5, batch_rows=150))
        rows = whole(batches)
        assert rows.column("visit").to_pylist() == list(range(1, 1001))
        units = [set(batch.column("who").to_pylist()) for batch in batches]
        assert sum(map(len, units)) == len(set.union(*units)), "a unit is in two batches"
        assert {int(unit) for unit in set.union(*units)} == set(range(1, len(set.union(*units)) + 1))
        assert rows.to_pandas().groupby("who")[["sex", "born"]].nunique(dropna=False).max().max() == 1
        assert rows.to_pandas().groupby("who").size().max() <= 4
        if where is not None:
            assert filter_where(rows, where).all()


def test_rows_that_are_units_of_their_own_are_numbered_through() -> None:
    release = us.fit(visits(300), "independent", GUARANTEE, schema=visit_schema(max_rows_per_unit=1, rows=300), seed=0)
    rows = whole(list(release.sample_batches(100, seed=0, batch_rows=30)))
    assert [int(unit) for unit in rows.column("who").to_pylist()] == list(range(1, 101))


def test_every_batch_keeps_rules_and_condition(ruled: us.Release) -> None:
    for where in (None, "hours < 12 AND start >= 1"):
        for batch in ruled.sample_batches(500, where=where, seed=6, batch_rows=90):
            assert not violations(ruled.codec.reexpression.read(batch), ruled.schema)
            assert where is None or filter_where(batch, where).all()


def test_arguments_are_checked_before_the_first_batch(coin: us.Release) -> None:
    for wrong in ({"num_rows": 0}, {"seed": -1}, {"batch_rows": 0}, {"batch_rows": 1.5}, {"num_rows": True}):
        (setting,) = wrong
        with raises(ConfigError, setting=setting):
            coin.sample_batches(**{"num_rows": 10, **wrong})  # type: ignore[arg-type]  # keywords of several types


# --- Types ---


@pytest.mark.parametrize("library", ["pyarrow", "pandas", "polars"])
def test_types_do_not_depend_on_what_a_batch_holds(library: str) -> None:
    """Ids outgrow the type of the original's; a rare category is in few batches."""
    table = pa.table(
        {
            "key": pa.array(np.arange(100), pa.int8()),
            "x": pa.array(np.arange(100) % 50, pa.int16()),
            "kind": pa.array(["common"] * 97 + ["rare"] * 3).dictionary_encode(),
            "price": pa.array([f"{n % 10}.50" for n in range(100)]).cast(pa.decimal128(5, 2)),
        }
    )
    columns = {
        "key": {"kind": "id"},
        "x": {"kind": "integer", "bounds": [0, 100_000]},
        "kind": {"kind": "categorical", "categories": ["common", "rare"], "closed": True},
        "price": {"kind": "real", "bounds": [0.0, 9.5]},
    }
    frame = {"pyarrow": lambda: table, "pandas": table.to_pandas, "polars": lambda: pl.from_arrow(table)}[library]()
    release = us.fit(frame, "independent", GUARANTEE, schema={"columns": columns}, keep_types=True, seed=0)
    batches = list(release.sample_batches(400, seed=0, batch_rows=10))
    rows = whole(batches)
    assert pa.types.is_int64(rows.schema.field("key").type)  # 400 is too large for 8 bits
    assert pa.types.is_int64(rows.schema.field("x").type)  # as are values up to 100,000 for 16
    assert rows.column("key").to_pylist() == list(range(1, 401))
    if library != "pandas":  # which keeps categories as text in Arrow
        dictionaries = [chunk.dictionary.to_pylist() for chunk in rows.column("kind").chunks]
        assert all(each == ["common", "rare"] for each in dictionaries)
    assert set(rows.column("kind").drop_null().to_pylist()) == {"common", "rare"}
    frame = release.sample(10, seed=0)
    assert isinstance(frame, {"pyarrow": pa.Table, "pandas": pd.DataFrame, "polars": pl.DataFrame}[library])


def test_arrow_files_of_many_batches_can_be_read_by_polars(tmp_path: Path) -> None:
    from understudy.tables import write_batches

    table = pa.table({"kind": pa.array(["common"] * 97 + ["rare"] * 3).dictionary_encode()})
    schema = {"columns": {"kind": {"kind": "categorical", "categories": ["common", "rare"]}}}
    release = us.fit(table, "independent", GUARANTEE, schema=schema, keep_types=True, seed=0)
    write_batches(release.sample_batches(500, seed=0, batch_rows=2), tmp_path / "x.arrow")
    assert len(pl.read_ipc(tmp_path / "x.arrow")) == 500


@settings(max_examples=scaled(5))
@given(seed=st.integers(0, 1000))
def test_values_lie_between_the_extremes(ruled: us.Release, of_units: us.Release, seed: int) -> None:
    for release in (ruled, of_units):
        extremes = release.codec.extremes(200)
        rows = whole(list(release.sample_batches(200, seed=seed, batch_rows=70)))
        for name in rows.column_names:
            values = rows.column(name).drop_null().to_pylist()
            known = [value for value in extremes[name].to_pylist() if value is not None] if name in extremes else None
            if known is None or not values:
                continue
            if isinstance(known[0], str | bool):
                assert set(values) <= set(known), name
            elif release.schema[name].kind != "id":
                assert min(known) <= min(values) <= max(values) <= max(known), name


# --- On the command line ---


def test_a_sample_of_several_batches(
    coin: us.Release, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    coin.save("coin.release")
    num_rows = BATCH_ROWS + 7
    assert run(["sample", "coin.release", "-n", str(num_rows), "--seed", "1", "-o", "fake.parquet"]) == 0
    said = capsys.readouterr().err
    assert f"sampling: {BATCH_ROWS:,} of {num_rows:,} rows" in said
    assert f"Wrote {num_rows:,} synthetic rows to fake.parquet" in said
    assert pa.parquet.read_table("fake.parquet").equals(coin.sample_arrow(num_rows, seed=1))
    record = json.loads(Path("fake.parquet.certificate.json").read_text())
    assert record["table"]["rows"] == num_rows
    assert run(["sample", "coin.release", "-n", "5", "-o", "few.csv"]) == 0
    assert "sampling" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["fake.csv", "fake.parquet"])
@pytest.mark.usefixtures("can_interrupt")
def test_an_interrupted_sample_leaves_nothing(coin: us.Release, tmp_path: Path, name: str) -> None:
    coin.save(tmp_path / "coin.release")
    command = [sys.executable, "-m", "understudy", "sample", "coin.release", "-n", "2000000000", "-o", name]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(600):
            if any(path.name.startswith(".fake") for path in tmp_path.iterdir()):
                break
            time.sleep(0.1)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert os.listdir(tmp_path) == ["coin.release"]


def test_a_condition_that_no_batch_meets_leaves_nothing(
    of_units: us.Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    of_units.save("visits.release")
    with pytest.raises(ConditionError):
        next(of_units.sample_batches(10, where="cost > 5000"))
    assert run(["sample", "visits.release", "-n", "10", "--where", "cost > 5000", "-o", "fake.csv"]) == 2
    assert os.listdir(tmp_path) == ["visits.release"]
