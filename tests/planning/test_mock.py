"""Mock tables: they fit their schema, are uniform where it says nothing, and nothing but the schema goes into them."""

import ast
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import scipy.stats
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import understudy as us
from tests.examples import scaled
from tests.ruled import RULES
from tests.test_architecture import SOURCE, imported_modules, raw_reads
from understudy.cli.main import run
from understudy.planning.mock import NULL_FRACTION, PLACEHOLDER_TEXT, STATEMENT, MockMaker
from understudy.steward.check import check
from understudy.tables import read_table
from understudy.tables.cast import conform, normalize

KINDS = """
[table]
name = "All *kinds*"
[columns.patient]
kind = "id"
[columns.sex]
kind = "categorical"
categories = ["female", "male"]
[columns.grade]
kind = "categorical"
categories = [1, 2, 3]
nullable = false
[columns.level]
kind = "categorical"
categories = ["low", "mid", "high"]
ordinal = true
[columns.ward]
kind = "categorical"
categories = ["A", "B", "none"]
unknown = "none"
[columns.age]
kind = "integer"
bounds = [17, 90]
[columns.hour]
kind = "integer"
bounds = [0, 23]
cyclic = true
nullable = false
[columns.weight]
kind = "real"
bounds = [0.5, 200]
decimals = 1
[columns.member]
kind = "boolean"
format = "no/yes"
[columns.born]
kind = "date"
bounds = [1930-01-01, 2005-12-31]
format = "%d.%m.%Y"
[columns.seen]
kind = "datetime"
bounds = [2020-01-01T00:00:00, 2024-12-31T00:00:00]
resolution = "minute"
parts = ["weekday"]
[columns.home]
kind = "location"
latitude = "lat"
longitude = "lon"
box = [52.3, 13.0, 52.7, 13.8]
nullable = false
[columns.site]
kind = "location"
box = [52.3, 13.0, 52.7, 13.8]
[columns.notes]
kind = "text"
[columns.secret]
kind = "real"
drop = true
"""
ROWS = 400


def findings(schema: us.Schema, path: Path) -> list[str]:
    """What `understudy schema check` says about a file, notes aside."""
    return misfits(schema, read_table(path, schema=schema)[0])


def misfits(schema: us.Schema, rows: pa.Table) -> list[str]:
    rows = normalize(rows)
    return [str(found) for found in check(schema, rows, conform(rows, schema)) if found.level != "note"]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return us.mock(us.Schema.from_toml(KINDS), 20_000, seed=1)


@pytest.mark.parametrize("text", [KINDS, RULES], ids=["kinds", "rules"])
def test_a_mock_fits_its_schema_and_can_be_fitted(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.toml").write_text(text)
    schema = us.Schema.read("people.toml")
    rows = schema.rows or ROWS
    assert run(["mock", "people.toml", "-n", str(rows), "-o", "mock.csv", "-q"]) == 0
    assert not findings(schema, Path("mock.csv"))
    release = us.fit("mock.csv", "independent", epsilon=1, schema=schema)
    assert release.sample(5).num_rows == 5
    header = Path("mock.csv").read_text().partition("\n")[0].split(",")
    assert header == [column.name for column in schema.columns if not column.drop]


def test_rules_and_units_are_kept() -> None:
    schema = us.Schema.from_toml(RULES)
    rows = us.mock(schema, 300, seed=0)
    typed = rows.select([name for name in rows.column_names if name != "person"])
    assert not any(rule.broken(typed).any() for rule in schema.rules)
    sizes = np.unique(rows.column("person").to_numpy(), return_counts=True)[1]
    assert set(sizes) == {1, 2}
    frame = rows.to_pandas()
    assert (frame.groupby("person")["country"].nunique(dropna=False) == 1).all()


def test_values_are_uniform_with_a_fixed_fraction_of_nulls(rows: pa.Table) -> None:
    """Against closed forms: chi-square over categories and integers, Kolmogorov-Smirnov over numbers and dates."""
    schema = us.Schema.from_toml(KINDS)
    for name, size in {"sex": 2, "grade": 3, "level": 3, "ward": 3, "age": 74, "hour": 24, "member": 2}.items():
        known = rows.column(name).drop_null()
        counts = np.asarray([entry["counts"] for entry in pc.value_counts(known).to_pylist()])
        assert len(counts) == size
        assert scipy.stats.chisquare(counts).pvalue > 1e-4, name
    for name, low, high in (("weight", 0.5, 200.0), ("lat", 52.3, 52.7), ("lon", 13.0, 13.8)):
        positions = (rows.column(name).drop_null().to_numpy() - low) / (high - low)
        assert scipy.stats.kstest(positions, "uniform").statistic < 0.015, name
    for column in schema.modelled:
        expected = NULL_FRACTION if column.nullable else 0
        assert abs(rows.column(column.name).null_count / rows.num_rows - expected) < 0.01, column.name
    assert rows.column("patient").to_pylist() == list(range(1, 20_001))
    assert pc.unique(rows.column("notes")).to_pylist() == [PLACEHOLDER_TEXT]


def test_columns_are_independent(rows: pa.Table) -> None:
    table = rows.select(["sex", "grade"]).to_pandas().groupby(["sex", "grade"]).size().unstack()
    assert scipy.stats.chi2_contingency(table).pvalue > 1e-4


def test_a_seed_repeats_a_mock_and_none_does_not() -> None:
    schema = {"columns": {"age": {"kind": "integer", "bounds": [0, 10**6]}}}
    assert us.mock(schema, 50, seed=3).equals(us.mock(schema, 50, seed=3))
    assert not us.mock(schema, 50).equals(us.mock(schema, 50))


# --- What is not declared ---

OPEN = """
[columns.town]
kind = "categorical"
[columns.income]
kind = "real"
[columns.when]
kind = "date"
[columns.member]
kind = "boolean"
"""


def test_what_is_not_declared_is_refused_or_filled() -> None:
    schema = us.Schema.from_toml(OPEN)
    with pytest.raises(us.SchemaError, match="no bounds or categories of 'town', 'income', 'when'") as caught:
        us.mock(schema, 5)
    assert caught.value.column == "town"
    rows = us.mock(schema, 200, seed=0, fill=True)
    assert set(rows.column("town").drop_null().to_pylist()) == {"category_1", "category_2", "category_3"}
    maker = MockMaker.of(schema, fill=True)
    assert maker.filled == ("town", "income", "when")
    assert maker.num_rows == 1000
    assert MockMaker.of(us.Schema.from_toml(RULES)).num_rows == 326


@pytest.mark.parametrize("arguments", [["people.csv"], ["open.toml"], ["people.toml", "-n", "0"], ["no.toml"]])
def test_bad_input_is_refused_in_one_line_and_leaves_nothing(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("age\n1\n")
    Path("open.toml").write_text(OPEN)
    Path("people.toml").write_text(KINDS)
    assert run(["mock", *arguments, "-o", "mock.csv"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"people.csv", "open.toml", "people.toml"}


def test_a_table_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[Path] = []

    def read(path: Path) -> bytes:
        opened.append(path)
        return b"age\n41\n"

    monkeypatch.setattr(Path, "read_bytes", read)
    assert run(["mock", str(tmp_path / "people.csv"), "-o", str(tmp_path / "mock.csv")]) == 2
    assert "does not exist" in capsys.readouterr().err
    (tmp_path / "people.csv").touch()
    assert run(["mock", str(tmp_path / "people.csv"), "-o", str(tmp_path / "mock.csv")]) == 2
    assert "A mock is never made from a table" in capsys.readouterr().err
    assert not opened


def test_no_file_is_replaced_without_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.toml").write_text(KINDS)
    command = ["mock", "people.toml", "-n", "5", "-q", "-o", "mock.csv"]
    for name in ("mock.csv", "mock.csv.certificate.json", "mock.csv.certificate.md", "mock.csv.datapackage.json"):
        Path(name).write_text("mine")
        assert run(command) == 2
        assert Path(name).read_text() == "mine"
        Path(name).unlink()
        assert {path.name for path in tmp_path.iterdir()} == {"people.toml"}


# --- The certificate and the label ---


def test_the_certificate_says_that_no_row_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.toml").write_text(KINDS)
    assert run(["mock", "people.toml", "-n", "7", "-o", "mock.parquet", "-q", "--id-prefix", "SYN-"]) == 0
    content = json.loads(Path("mock.parquet.certificate.json").read_bytes())
    assert content["statement"] == STATEMENT
    assert content["rows_read"] == content["guarantee"]["epsilon"] == content["guarantee"]["delta"] == 0
    assert content["table"]["rows"] == 7
    page = Path("mock.parquet.certificate.md").read_text()
    assert STATEMENT in page
    assert content["table"]["sha256"] in page
    assert r"All \*kinds\*" in page
    assert "category lists: sex (2 and other)" in page
    metadata = pq.read_schema("mock.parquet").metadata
    assert metadata[b"understudy.schema"].decode() == content["schema"]["sha256"]
    assert b"understudy.release" not in metadata
    described = json.loads(Path("mock.parquet.datapackage.json").read_bytes())
    assert described["synthetic"] is True
    assert described["schema"]["sha256"] == content["schema"]["sha256"]
    assert "from a schema alone" in described["description"]
    assert pq.read_table("mock.parquet").column("patient").to_pylist()[:2] == ["SYN-1", "SYN-2"]


def test_a_mock_in_a_database_has_a_certificate_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.toml").write_text('[columns.member]\nkind = "boolean"\n')
    assert run(["mock", "people.toml", "-n", "7", "-o", "base.sqlite::people", "-q"]) == 0
    content = json.loads(Path("base.sqlite-people.certificate.json").read_bytes())
    assert content["table"] == {"file": "base.sqlite::people", "rows": 7}
    assert STATEMENT in Path("base.sqlite-people.certificate.md").read_text()
    assert Path("base.sqlite-people.datapackage.json").exists()


def test_the_digest_is_that_of_the_schema() -> None:
    schema = us.Schema.from_toml(KINDS)
    other = us.Schema.from_toml(KINDS.replace("90", "91"))
    assert MockMaker.of(schema, 5).digest == MockMaker.of(us.Schema.from_toml(KINDS), 6).digest
    assert MockMaker.of(schema, 5).digest != MockMaker.of(other, 5).digest


def test_a_drafted_schema_is_marked(tmp_path: Path) -> None:
    drafted = us.Schema.draft(pa.schema([("age", pa.int64()), ("sex", pa.string())]))
    maker = MockMaker.of(drafted, 5, fill=True)
    (tmp_path / "mock.csv").write_text("")
    assert "unreviewed draft" in maker.to_markdown(tmp_path / "mock.csv")
    assert maker.to_json(tmp_path / "mock.csv")["schema"]["drafted"] is True  # type: ignore[index]  # JSON, typed as objects
    assert "unreviewed draft" not in MockMaker.of(us.Schema.from_toml(KINDS), 5).to_markdown(tmp_path / "mock.csv")


# --- Nothing but the schema goes in ---


@pytest.mark.parametrize("file", ["planning/mock.py", "cli/mock.py"])
def test_nothing_that_could_hold_or_read_rows_is_imported(file: str) -> None:
    source = (SOURCE / file).read_text()
    modules = set(imported_modules(ast.parse(source), file.removesuffix(".py").replace("/", ".")))
    assert not [name for name in modules if name.startswith(("privacy", "run.sources", "run.run", "run.plan", "api"))]
    assert not raw_reads(source)


COLUMNS = st.one_of(
    st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1).map(str.strip), unique=True)
    .map(lambda words: [word for word in words if word])
    .filter(bool)
    .map(lambda words: {"kind": "categorical", "categories": words}),
    st.tuples(st.integers(-(2**40), 2**40), st.integers(1, 2**40)).map(
        lambda ends: {"kind": "integer", "bounds": [ends[0], sum(ends)]}
    ),
    st.tuples(st.floats(-1e9, 1e9), st.floats(1, 1e9)).map(
        lambda ends: {"kind": "real", "bounds": [ends[0], sum(ends)]}
    ),
    st.sampled_from([{"kind": "boolean"}, {"kind": "id"}, {"kind": "date", "bounds": ["1900-01-01", "2100-01-01"]}]),
)


@settings(max_examples=scaled(10), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(COLUMNS, st.booleans()), min_size=1, max_size=4), st.integers(1, 30))
def test_any_declared_schema_gives_rows_that_fit(columns: list[tuple[dict, bool]], num_rows: int) -> None:
    named = {f"c{number}": {**column, "nullable": nullable} for number, (column, nullable) in enumerate(columns)}
    schema = us.Schema.from_dict({"columns": [{"name": name, **column} for name, column in named.items()]})
    if not schema.modelled:
        return
    rows = us.mock(schema, num_rows, seed=0)
    assert rows.num_rows == num_rows
    assert not misfits(schema, rows)
