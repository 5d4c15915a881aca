"""Rules of the schema, from the table to synthetic rows: satisfied by every row at no cost, or refused in one line."""

import dataclasses
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats

import understudy as us
from tests.builders import encode
from tests.contract.test_contract import EXPRESSIONS, binning_of
from tests.ruled import ruled_schema, ruled_table, violations
from understudy.cli import run
from understudy.errors import ConditionError
from understudy.notes import Level
from understudy.rules.rules import Keep
from understudy.synthesizers import SYNTHESIZERS
from understudy.tables import ReadOptions, conform, read_table

GUARANTEE = us.Guarantee(3.0, 1e-6)

# ------------------------------------------------------------------------------------------------ one unit more or less


@pytest.mark.parametrize("max_rows_per_unit", [1, 3])
def test_sensitivity_one_unit_changes_its_own_codes_alone(max_rows_per_unit: int) -> None:
    """Whatever its rows are: unchanged, moved or left out. The codes of all others stay, the unit has no more rows."""
    schema = ruled_schema(max_rows_per_unit=max_rows_per_unit)
    table = ruled_table(60)
    codes = _codes(table, schema)
    num_rows = []
    shuffled = ruled_table(200, seed=1, broken=1.0)
    for start in range(20):
        own = shuffled.slice(start * 7, start % 6 + 1)
        own = own.set_column(0, "person", pa.array(["new"] * own.num_rows))
        more = _codes(pa.concat_tables([table, own]), schema)
        np.testing.assert_array_equal(more[: len(codes)], codes)
        num_rows.append(len(more) - len(codes))
        np.testing.assert_array_equal(_codes(pa.concat_tables([own, table]), schema)[num_rows[-1] :], codes)
    assert max(num_rows) == max_rows_per_unit
    assert 0 in num_rows  # all of its rows break a rule whose rows are dropped


def _codes(table: pa.Table, schema: us.Schema) -> np.ndarray:
    _, rows, ledger = encode(conform(table, schema), schema, us.Binning(bins="uniform", max_bins=8))
    assert ledger.queries == ()
    return rows._codes


# ------------------------------------------------------------------------------------------------------ plan and charge


def _open(schema: us.Schema) -> us.Schema:
    """The same without declared bounds, categories and size; bounds that a rule needs are left."""
    needed = {"hours", "rest"}
    columns = tuple(
        c if c.name in needed else dataclasses.replace(c, bounds=None, categories=None, closed=False)
        for c in schema.columns
    )
    return dataclasses.replace(schema, columns=columns, rows=None)


@pytest.mark.parametrize("method", ["independent", "mst", "privbayes", "mwem"])
def test_charges_are_those_of_the_plan_with_open_bounds(method: str) -> None:
    """Bounds of a difference are estimated where those of its columns are; the plan knows it before any row is read."""
    schema = _open(ruled_schema())
    planned = us.plan(schema, method, GUARANTEE)
    release = us.fit(ruled_table(), method, GUARANTEE, schema=schema, seed=1)
    assert release.statement.queries == planned.queries
    assert {"stop", "start"} <= {name for query in planned for name in getattr(query, "columns", ())}
    assert violations(release.sample(2000, seed=0), schema) == {}


@pytest.mark.parametrize("at", [1, 3, 6])
def test_rules_that_need_no_other_columns_are_free(at: int) -> None:
    """When-then, forbidden combinations and skips: the same queries as without any rule, to the last digit."""
    schema = _open(ruled_schema())
    one, none = (dataclasses.replace(schema, rules=rules) for rules in ((schema.rules[at],), ()))
    for method in ("independent", "mst", "aim"):
        assert us.plan(one, method, GUARANTEE).queries == us.plan(none, method, GUARANTEE).queries


# --------------------------------------------------------------------------------------------------------- every sample

NUM_SAMPLED = 20_000


@pytest.mark.parametrize("method", ["independent", "mst"])
@pytest.mark.parametrize("at", range(7))
def test_each_rule_is_kept_by_itself(at: int, method: str) -> None:
    """By methods that know nothing of the relation, from a table of which every other value is shuffled."""
    schema = ruled_schema()
    schema = dataclasses.replace(schema, rules=(schema.rules[at],))
    table = ruled_table(broken=0.5)
    assert schema.rules[0].text in violations(table, schema)
    release = us.fit(table, method, GUARANTEE, schema=schema, seed=1)
    assert violations(release.sample(NUM_SAMPLED, seed=0), schema) == {}
    some = release.sample(500, seed=0, where="start > 3 AND grade < 3")
    assert (some.num_rows, violations(some, schema)) == (500, {})


def test_a_network_keeps_all_rules() -> None:
    method = EXPRESSIONS["dpgan"]
    release = us.fit(ruled_table(), method, GUARANTEE, schema=ruled_schema(), seed=1, binning=binning_of(method))
    assert violations(release.sample(NUM_SAMPLED, seed=0), ruled_schema()) == {}


@pytest.mark.slow
@pytest.mark.parametrize("method", SYNTHESIZERS)
def test_a_million_rows(method: str) -> None:
    schema = ruled_schema(unit=None, max_rows_per_unit=1, columns=_of_no_unit())
    release = us.fit(
        ruled_table(), EXPRESSIONS[method], GUARANTEE, schema=schema, seed=1, binning=binning_of(EXPRESSIONS[method])
    )
    rows = release.sample(10**6, seed=0)
    assert (rows.num_rows, violations(rows, schema)) == (10**6, {})


def _of_no_unit() -> tuple[us.Column, ...]:
    return tuple(dataclasses.replace(column, per_unit=False) for column in ruled_schema().columns)


# ------------------------------------------------------------------------------------------------- as they are written

STAYS = """
[columns.born]
kind = "date"
bounds = [1930-01-01, 2020-12-31]
format = "%d.%m.%Y"
[columns.seen]
kind = "datetime"
bounds = [2020-01-01T00:00:00, 2021-01-01T00:00:00]
[columns.gone]
kind = "datetime"
[columns.net]
kind = "real"
bounds = [0.0, 100.0]
decimals = 1
[columns.tax]
kind = "real"
bounds = [0.0, 20.0]
decimals = 1
[columns.gross]
kind = "real"
bounds = [0.0, 120.0]
decimals = 1
[columns.paid]
kind = "real"
bounds = [0.0, 120.0]
[[rules]]
keep = "gone > seen + INTERVAL 1 HOUR"
[[rules]]
keep = "date_diff('day', born, CAST(seen AS DATE)) >= 1"
[[rules]]
sum = ["net", "tax"]
equals = "gross"
[[rules]]
keep = "paid <= gross AND paid > tax"
"""


def stays(num_rows: int = 400) -> pa.Table:
    draw = np.random.default_rng(0)
    seen = [datetime(2020, 1, 2) + timedelta(minutes=int(m)) for m in draw.integers(0, 360 * 1440, num_rows)]
    net, tax = np.round(draw.gamma(3, 8, num_rows).clip(1, 100), 1), np.round(draw.uniform(0, 20, num_rows), 1)
    return pa.table(
        {
            "born": [date(1930, 1, 1) + timedelta(int(days)) for days in draw.integers(0, 85 * 365, num_rows)],
            "seen": seen,
            "gone": [moment + timedelta(minutes=61 + 7 * i) for i, moment in enumerate(seen)],
            "net": net,
            "tax": tax,
            "gross": np.round(net + tax, 1),
            "paid": tax + (net * draw.uniform(0.01, 1, num_rows)),
        }
    )


def _as_decimals(table: pa.Table) -> pa.Table:
    for at, name in enumerate(table.column_names):
        if name in ("net", "tax", "gross"):
            values = [Decimal(f"{value:.1f}") for value in table.column(name).to_pylist()]
            table = table.set_column(at, name, pa.array(values, pa.decimal128(9, 1)))
    return table


def _as_narrow(table: pa.Table) -> pa.Table:
    types = {pa.float64(): pa.float32(), pa.timestamp("us"): pa.timestamp("s")}
    fields = [field.with_type(types.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields), safe=False)


FRAMES = {
    "arrow": lambda table: table,
    "decimals": _as_decimals,
    "float32 and seconds": _as_narrow,
    "pandas": lambda table: table.to_pandas(),
    "pandas, narrow": lambda table: _as_narrow(table).to_pandas(),
    "polars": lambda table: pl.from_arrow(_as_narrow(table)),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_rows_keep_the_rules_in_the_types_of_the_table(kind: str) -> None:
    """The types are kept, so values are rounded after they were drawn: rules hold for what is returned."""
    schema = us.Schema.from_toml(STAYS)
    release = us.fit(FRAMES[kind](stays()), "independent", GUARANTEE, schema=schema, seed=1, keep_types=True)
    for where in (None, "paid > 20 AND seen >= '2020-03-01'"):
        fake = release.sample(5000, where=where, seed=0)
        rows = pa.Table.from_pandas(fake) if isinstance(fake, pd.DataFrame) else fake
        rows = rows.to_arrow() if isinstance(rows, pl.DataFrame) else rows
        assert rows.num_rows == 5000
        assert violations(conform(rows, schema), schema) == {}


def test_files_keep_the_rules_in_their_own_formats(tmp_path: Path) -> None:
    """Days as 31.12.2020 and a decimal comma, by the command line, read back as anyone would read them."""
    frame = stays().to_pandas()
    frame["born"] = [day.strftime("%d.%m.%Y") for day in frame["born"]]
    frame.to_csv(tmp_path / "t.csv", sep=";", decimal=",", index=False)
    (tmp_path / "s.toml").write_text(STAYS)
    common = ["--schema", str(tmp_path / "s.toml"), "--decimal", ",", "--method", "independent", "--epsilon", "3"]
    assert run(["fit", str(tmp_path / "t.csv"), "-o", str(tmp_path / "r"), "--seed", "1", "--quiet", *common]) == 0
    out = tmp_path / "fake.csv"
    assert run(["sample", str(tmp_path / "r"), "-o", str(out), "-n", "5000", "--seed", "0", "--quiet"]) == 0
    schema = us.Schema.from_toml(STAYS)
    text = out.read_text().splitlines()
    decimal = "," if ";" in text[0] else "."
    rows, _ = read_table(out, schema=schema, reading=ReadOptions(decimal=decimal))
    assert rows.num_rows == 5000
    assert violations(rows, schema) == {}


# ---------------------------------------------------------------------------------------------------------- rejection


def test_rejection_keeps_the_conditional_distribution() -> None:
    """Two independent numbers in two bins each, and a rule that no bin decides: the pairs that satisfy it have the odds
    of their bins, which are those of the real rows that satisfy it."""
    numbers = np.arange(8)
    pairs = np.array([(a, b) for a in numbers for b in numbers])
    table = pa.table({"a": np.repeat(pairs[:, 0], 50), "b": np.repeat(pairs[:, 1], 50)})
    columns = tuple(us.Column(name=name, kind="integer", bounds=(0, 7), nullable=False) for name in "ab")
    schema = us.Schema(columns=columns, rows=len(table), rules=(Keep(keep="a * b % 3 <> 1"),))
    release = us.fit(
        table,
        "independent",
        us.Guarantee.not_private(),
        schema=schema,
        seed=0,
        binning=us.Binning(bins="uniform", max_bins=2),
    )
    assert (release.codec.domain.sizes, release.codec.domain.zeros) == ((2, 2), ())
    keeps = np.array([a * b % 3 != 1 for a, b in pairs])
    assert 0.6 < release.acceptance() < 0.9
    rows = release.sample(NUM_SAMPLED, seed=0)
    counts = np.zeros((8, 8))
    np.add.at(counts, (rows.column("a").to_numpy(), rows.column("b").to_numpy()), 1)
    assert counts.ravel()[~keeps].sum() == 0
    upper = [np.mean(pairs[keeps, at] > 3) for at in (0, 1)]
    odds = np.prod([np.where(pairs[keeps, at] > 3, upper[at], 1 - upper[at]) for at in (0, 1)], axis=0)
    expected = odds / odds.sum() * NUM_SAMPLED
    assert stats.chisquare(counts.ravel()[keeps], expected).pvalue > 1e-3
    assert stats.chisquare(counts.ravel()[keeps]).pvalue < 1e-6  # the test can fail


RARE = """
[columns.x]
kind = "real"
bounds = [0.0, 1.0]
nullable = false
[columns.k]
kind = "categorical"
categories = ["a", "b"]
closed = true
nullable = false
[[rules]]
"""


def test_a_rule_that_rows_hardly_ever_keep_ends_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the rule; the command line ends with code 2 and leaves no table."""
    schema = us.Schema.from_toml(RARE + 'keep = "x * 1000000000 % 1000000000 < 1 OR x < 0"')
    release = us.fit(pa.table({"x": [0.0, 0.5], "k": ["a", "b"]}), "independent", GUARANTEE, schema=schema, seed=0)
    assert any(note.level is Level.WARNING and "0.0% of the model's rows" in note.text for note in release.notes)
    with pytest.raises(ConditionError, match="x \\* 1000000000") as error:
        release.sample(100, seed=0)
    assert "\n" not in str(error.value)
    release.save(tmp_path / "r")
    assert run(["sample", str(tmp_path / "r"), "-n", "100", "-o", str(tmp_path / "fake.csv"), "--quiet"]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "NOT PRIVATE" not in line]
    assert len(lines) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["r"]


def test_repair_rescues_a_rule_that_says_how() -> None:
    """No row of the model has the very number that the rule asks for: rows are moved, as real ones are."""
    schema = us.Schema.from_toml(RARE + "when = \"k IN ('a', 'b')\"\nthen = \"x = 0.123456\"")
    release = us.fit(pa.table({"x": [0.0, 0.5], "k": ["a", "b"]}), "independent", GUARANTEE, schema=schema, seed=0)
    assert release.acceptance() == 0.0
    rows = release.sample(1000, seed=0)
    assert set(rows.column("x").to_pylist()) == {0.123456}
    assert set(rows.column("k").to_pylist()) == {"a", "b"}
