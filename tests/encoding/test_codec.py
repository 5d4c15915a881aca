"""The codec: nothing is lost but what bins round, no value can make it fail, and rows are coded one by one."""

import decimal
import json
import math
from datetime import date, datetime, timedelta

import jax
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from tests.builders import encode
from tests.examples import scaled
from understudy.encoding import (
    CategoricalCodec,
    Codec,
    NumericCodec,
    as_numbers,
    assumed_domain,
)
from understudy.encoding.fit import cut_bins
from understudy.privacy.accounting.ledger import Guarantee, Ledger
from understudy.privacy.mechanisms.discovery import Binning, plan_discovery
from understudy.privacy.noise.source import NoiseSource, SeededNoise
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import BOUNDED, Column, Schema
from understudy.schema.grid import Grid, Histogram

INT64 = (-(2**63), 2**63 - 1)
FLOAT_MAX = np.finfo(float).max

COLUMNS = {
    "text": Column(name="text", kind="categorical", categories=("a", "", " a", "é\n", "null", "🦉", "1")),
    "number": Column(name="number", kind="categorical", categories=(3, -1, 2**60), nullable=False),
    "price": Column(name="price", kind="categorical", categories=(0.5, 2.0), unknown=2.0),
    "sex": Column(name="sex", kind="categorical", categories=("f", "m"), nullable=False),
    "region": Column(name="region", kind="categorical", categories=("n", "s"), closed=True),
    "ward": Column(name="ward", kind="categorical", categories=("n", "s"), closed=True, nullable=False),
    "truth": Column(name="truth", kind="categorical", categories=(True, False)),
    "flag": Column(name="flag", kind="boolean"),
    "age": Column(name="age", kind="integer", bounds=(-5, 20)),
    "big": Column(name="big", kind="integer", bounds=(2**53 + 1, 2**62)),
    "any": Column(name="any", kind="integer", bounds=INT64),
    "weight": Column(name="weight", kind="real", bounds=(-1.5, 2.5), nullable=False),
    "float": Column(name="float", kind="real", bounds=(-FLOAT_MAX, FLOAT_MAX)),
    "born": Column(name="born", kind="date", bounds=(date(1900, 1, 1), date(2020, 12, 31))),
    "seen": Column(name="seen", kind="datetime", bounds=(datetime(1999, 1, 1), datetime(2030, 1, 1, 12, 30))),
}
TYPES = {
    "text": pa.string(),
    "number": pa.int64(),
    "price": pa.float64(),
    "sex": pa.string(),
    "region": pa.string(),
    "ward": pa.string(),
    "truth": pa.bool_(),
    "flag": pa.bool_(),
    "age": pa.int32(),
    "big": pa.int64(),
    "any": pa.int64(),
    "weight": pa.float64(),
    "float": pa.float64(),
    "born": pa.date32(),
    "seen": pa.timestamp("us"),
}
SCHEMA = Schema(columns=tuple(COLUMNS.values()), rows=50)


def value_of(column: Column) -> st.SearchStrategy:
    """Values of the declared domain, and nulls."""
    if column.kind == "boolean":
        inside: st.SearchStrategy = st.booleans()
    elif column.categories is not None:
        inside = st.sampled_from(column.categories)
    else:
        lower, upper = column.bounds  # type: ignore[misc]
        by_kind = {"integer": st.integers, "real": st.floats, "date": st.dates, "datetime": st.datetimes}
        inside = by_kind[column.kind](lower, upper)  # type: ignore[operator]
    return st.one_of(st.none(), inside) if column.nullable else inside


rows_of_values = st.lists(st.tuples(*(value_of(column) for column in SCHEMA.columns)), min_size=1, max_size=15)


def as_table(rows: list[tuple]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    return pa.table({name: pa.array(list(column), TYPES[name]) for name, column in zip(COLUMNS, columns, strict=True)})


def fitted(
    table: pa.Table,
    schema: Schema = SCHEMA,
    binning: Binning | None = None,
    *,
    guarantee: Guarantee | None = None,
    noise: NoiseSource | None = None,
) -> tuple[Codec, PrivateRows, Ledger]:
    return encode(table, schema, binning, guarantee=guarantee, noise=noise)


def decoded(codec: Codec, codes: np.ndarray, seed: int = 0) -> pa.Table:
    return codec.decode(codes, key=jax.random.key(seed))


def check_round_trip(codec: Codec, table: pa.Table) -> None:
    """The same nulls and categories, and numbers in the same bin and inside their bounds."""
    codes = codec.encode(table)
    assert codes.dtype == np.int32
    assert np.all(codes >= 0)
    assert np.all(codes < np.array(codec.domain.sizes))
    again = decoded(codec, codes)
    assert again.column_names == list(codec.schema.names)
    assert np.array_equal(codec.encode(again), codes)
    for column in codec.schema.columns:
        before, after = table.column(column.name).to_pylist(), again.column(column.name).to_pylist()
        assert [value is None for value in before] == [value is None for value in after]
        if column.kind not in BOUNDED:
            assert before == after
            continue
        lower, upper = column.bounds  # type: ignore[misc]
        assert all(lower <= value <= upper for value in after if value is not None)
        assert {type(value) for value in after} <= {type(None), type(lower)}


@settings(max_examples=scaled(25))
@given(rows=rows_of_values, bins=st.sampled_from(["tree", "equal", "uniform"]), max_bins=st.integers(2, 40))
def test_decoding_undoes_encoding_up_to_bins(rows: list[tuple], bins: str, max_bins: int) -> None:
    table = as_table(rows)
    codec, _, _ = fitted(table, binning=Binning(bins=bins, max_bins=max_bins))
    check_round_trip(codec, table)
    for column in codec.columns:
        if isinstance(column, NumericCodec):
            assert column.num_bins <= max_bins


@settings(max_examples=scaled(15))
@given(rows=rows_of_values)
def test_codes_are_kept_where_every_value_has_a_bin(rows: list[tuple]) -> None:
    """Whole numbers from a short range come back as they were."""
    table = as_table(rows)
    codec, _, _ = fitted(table, binning=Binning(bins="uniform", max_bins=26))
    again = decoded(codec, codec.encode(table))
    assert again.column("age").to_pylist() == table.column("age").to_pylist()


@settings(max_examples=scaled(15))
@given(rows=rows_of_values, max_bins=st.integers(2, 40))
def test_codecs_survive_json(rows: list[tuple], max_bins: int) -> None:
    """Codes are the same by the copy, and so are the decoded values."""
    table = as_table(rows)
    codec, _, _ = fitted(table, binning=Binning(max_bins=max_bins))
    text = json.dumps(codec.to_dict(), allow_nan=False)
    copy = Codec.from_dict(json.loads(text))
    assert json.dumps(copy.to_dict()) == text
    assert copy.domain == codec.domain
    assert copy.schema == codec.schema
    codes = codec.encode(table)
    assert np.array_equal(copy.encode(table), codes)
    assert decoded(copy, codes) == decoded(Codec.from_dict(json.loads(text)), codes)
    check_round_trip(copy, table)


# ------------------------------------------------------------------------------------------- whatever a column may hold


ODD = {
    "numbers as text": pa.array(
        ["1", "0.5", "-7", " 5 ", "1e400", "nan", "inf", "99999999999999999999", "0x10", "", None]
    ),
    "dates as text": pa.array(["2001-02-03", "2001-02-03 04:05:06", "31.12.1999", "infinity", "epoch", "290000-01-01"]),
    "floats": pa.array([0.5, math.inf, -math.inf, math.nan, None, 1e308, -0.0, 2.0**63, 5e-324]),
    "floats of 32 bits": pa.array([0.5, math.inf, math.nan], pa.float32()),
    "floats of 16 bits": pa.array(np.array([0.5, math.inf, math.nan], np.float16)),
    "integers": pa.array([*INT64, 0, 3, None]),
    "unsigned": pa.array([2**64 - 1, 0, None], pa.uint64()),
    "bytes": pa.array([b"a", b"\xff\xfe", b"1", b"true", None]),
    "large text": pa.array(["a", "1", None], pa.large_string()),
    "views of text": pa.array(["a", "1", None], pa.string_view()),
    "dictionary": pa.array(["a", "1", None]).dictionary_encode(),
    "dictionary with a null": pa.DictionaryArray.from_arrays([0, 1, 0], pa.array(["a", None])),
    "booleans": pa.array([True, False, None]),
    "dates": pa.array([2**31 - 1, -(2**31), 0, None], pa.int32()).cast(pa.date32()),
    "milliseconds of dates": pa.array([2**62, -(2**62), 0]).view(pa.date64()),
    **{
        f"timestamps in {unit}": pa.array([*INT64, 0, None], pa.int64()).view(pa.timestamp(unit, zone))
        for unit, zone in (("s", None), ("ms", "UTC"), ("us", None), ("ns", "Europe/Paris"))
    },
    "decimals": pa.array([decimal.Decimal("1.5"), decimal.Decimal("99999999999999999999999999.5"), None]),
    "wide decimals": pa.array([decimal.Decimal("1e60"), None], pa.decimal256(76)),
    "times": pa.array([1, 2], pa.time32("s")),
    "durations": pa.array([1, -(2**63)], pa.duration("s")),
    "lists": pa.array([[1], [2, 3], None]),
    "structs": pa.array([{"a": 1}, None]),
    "nulls": pa.nulls(3),
    "nothing": pa.array([], pa.string()),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("odd", ODD)
def test_no_value_makes_encoding_fail_or_couples_rows(odd: str) -> None:
    """Every column codec takes every type, stays in its domain, and codes each row as if it were alone."""
    codec, _, _ = fitted(as_table([]), binning=Binning(bins="uniform"))
    values = ODD[odd]
    for column in codec.columns:
        codes = column.encode(pa.chunked_array([values]))
        assert len(codes) == len(values)
        assert np.all((codes >= 0) & (codes < column.size))
        alone = [column.encode(pa.chunked_array([values[i : i + 1]]))[0] for i in range(len(values))]
        assert codes.tolist() == alone, column.name
        assert len(column.encode(pa.chunked_array([], values.type))) == 0


@settings(max_examples=scaled(60))
@given(
    values=st.lists(
        st.one_of(st.none(), st.text(max_size=12), st.integers().map(str), st.floats().map(str)), max_size=8
    )
)
def test_no_text_makes_encoding_fail_or_couples_rows(values: list[str | None]) -> None:
    codec, _, _ = fitted(as_table([]), binning=Binning(bins="uniform"))
    for column in codec.columns:
        codes = column.encode(pa.chunked_array([pa.array(values, pa.string())]))
        assert np.all((codes >= 0) & (codes < column.size))
        if values:
            first = column.encode(pa.chunked_array([pa.array(values[:1], pa.string())]))
            assert first[0] == codes[0]


def test_public_rules_for_what_is_outside() -> None:
    """Clamped, "unknown", "other" or by a closed list; nulls apart or as undeclared: whatever the other rows hold."""
    codec, _, _ = fitted(as_table([]), binning=Binning(bins="uniform"))
    column = {each.name: each for each in codec.columns}

    def code(name: str, *values: object) -> list[int]:
        return column[name].encode(pa.chunked_array([pa.array(list(values))])).tolist()

    assert code("text", "a", "unheard of", "other", None) == [0, 7, 7, 8]
    assert code("number", 2**60, 77, None) == [2, 3, 3]  # "other" of a list of numbers: a null
    assert code("price", 0.5, 0.75, math.nan) == [0, 1, 2]
    assert code("truth", "true", "false", "perhaps") == [0, 1, 2]
    assert code("sex", "m", "x", None) == [1, 2, 2]
    assert code("region", "s", "x", None) == [1, 2, 2]
    assert code("ward", "s", "x", None) == [1, 0, 0]
    assert decoded(codec, np.array([[column["sex"].size - 1 if name == "sex" else 0 for name in column]]))[
        "sex"
    ].to_pylist() == ["other"]
    assert column["number"].decode(np.array([3]), generator=np.random.default_rng(0)).to_pylist() == [None]
    assert assumed_domain(SCHEMA, Binning()).sizes == tuple(
        each.size if isinstance(each, CategoricalCodec) else 32 + each.nullable for each in codec.columns
    )
    assert code("flag", False, True, None) == [0, 1, 2]
    last = column["age"].size - 2
    assert code("age", -(2**63), -6, 21, 2**63 - 1, None) == [0, 0, last, last, last + 1]
    assert code("age", -math.inf, 1e300, math.nan) == [0, last, last + 1]
    assert code("weight", -math.inf, math.inf, math.nan, None) == [0, column["weight"].size - 1, 0, 0]
    assert code("born", date(1, 1, 1), date(9999, 1, 1)) == [0, column["born"].size - 2]


def test_ticks_of_every_kind() -> None:
    numbers, known = as_numbers(pa.chunked_array([pa.array([2**53 + 1, None])]), "integer")
    assert (numbers[0], known.tolist()) == (2**53 + 1, [True, False])
    assert as_numbers(pa.chunked_array([pa.array([2.5, -2.5, 3.49])]), "integer")[0].tolist() == [2, -2, 3]
    day = timedelta(days=1)
    days = as_numbers(pa.chunked_array([pa.array([date(1970, 1, 1) + 400 * day])]), "date")[0]
    assert days.tolist() == [400]
    moment = pa.array([datetime(1970, 1, 1) + 2 * day], pa.timestamp("s"))
    assert as_numbers(pa.chunked_array([moment]), "datetime")[0].tolist() == [2 * 86_400_000_000]


# ----------------------------------------------------------------------------------------------------------------- bins


@settings(max_examples=scaled(60))
@given(
    masses=st.lists(st.floats(0, 1), min_size=1, max_size=60),
    widths=st.lists(st.integers(1, 500), min_size=60, max_size=60),
    max_bins=st.integers(2, 20),
)
def test_bins_are_few_and_cover_all_runs(masses: list[float], widths: list[int], max_bins: int) -> None:
    stops = np.cumsum(widths[: len(masses)])
    total = sum(masses) or 1.0
    grid = Grid(0, int(stops[-1]) - 1)
    histogram = Histogram(grid, np.r_[0, stops[:-1]], np.array(masses) / total)
    edges = cut_bins(histogram, max_bins)
    assert (edges[0], edges[-1]) == (0, len(masses))
    assert np.all(np.diff(edges) > 0)
    assert len(edges) - 1 <= max_bins


def test_spikes_keep_a_bin_of_their_own() -> None:
    values = np.r_[np.repeat([7, 40], 2000), np.random.default_rng(0).integers(0, 100, 6000)]
    schema = Schema(columns=(Column(name="x", kind="integer", bounds=(0, 99), nullable=False),), rows=10_000)
    codec, rows, _ = fitted(pa.table({"x": values}), schema, Binning(max_bins=12))
    (column,) = codec.columns
    assert isinstance(column, NumericCodec)
    lower, upper = column.bin_edges()
    for spike in (7, 40):
        at = column.encode(pa.chunked_array([[spike]]))[0]
        assert (lower[at], upper[at]) == (spike, spike)
    shares = np.bincount(rows._codes[:, 0]) / len(values)
    alone = lower == upper
    assert shares[~alone].max() < 2.2 * (1 - shares[alone].sum()) / np.count_nonzero(~alone)
    assert np.array_equal(lower[1:], upper[:-1] + 1)
    assert (lower[0], upper[-1]) == (0, 99)


def test_decoding_stays_within_its_bin() -> None:
    """The last bin is the upper bound alone."""
    histogram = Histogram(Grid(0, 2**20 + 4), np.array([0, 2**20 + 4]), np.array([0.5, 0.5]))
    column = NumericCodec("x", "integer", histogram, np.array([0, 1, 2]), nullable=False)
    drawn = column.decode(np.repeat([0, 1], 100), generator=np.random.default_rng(0)).to_pylist()
    assert max(drawn[:100]) < 2**20 + 4
    assert set(drawn[100:]) == {2**20 + 4}


@pytest.mark.parametrize("nullable", [False, True])
def test_numbers_have_the_bin_that_holds_them(nullable: bool) -> None:
    grid = Grid(0, 9)
    histogram = Histogram(grid, np.array([0, 2, 3, 7]), np.full(4, 0.25))
    column = NumericCodec("x", "integer", histogram, np.array([0, 1, 3, 4]), nullable=nullable)
    codes = column.encode(pa.chunked_array([[-5, *range(10), 99, None]]))
    assert codes.tolist() == [0, 0, 0, *[1] * 5, *[2] * 3, 2, 3 if nullable else 0]


def test_decoding_follows_the_fine_histogram_inside_a_bin() -> None:
    """Two values share a bin nine to one: so do the decoded rows (five standard errors; the key is fixed)."""
    histogram = Histogram(Grid(0, 1), np.array([0, 1]), np.array([0.9, 0.1]))
    column = NumericCodec("x", "integer", histogram, np.array([0, 2]), nullable=False)
    drawn = column.decode(np.zeros(20_000, dtype=np.int32), generator=np.random.default_rng(0)).to_numpy()
    assert drawn.mean() == pytest.approx(0.1, abs=5 * math.sqrt(0.09 / 20_000))


# -------------------------------------------------------------------------------------------------- estimates and units


def test_estimates_are_charged_by_the_plan_and_nothing_else() -> None:
    generator = np.random.default_rng(0)
    table = pa.table(
        {
            "town": generator.choice(["north", "south", "east"], 4000),
            "code": pa.array(generator.choice([10, 20], 4000)),
            "age": generator.integers(18, 90, 4000),
            "height": generator.normal(1.7, 0.1, 4000),
        }
    )
    columns = (
        Column(name="town", kind="categorical"),
        Column(name="code", kind="categorical"),
        Column(name="age", kind="integer"),
        Column(name="height", kind="real"),
    )
    schema = Schema(columns=columns)
    codec, rows, book = fitted(table, schema, Binning(bins="equal"), guarantee=Guarantee(3.0, 1e-6))
    plan = plan_discovery(schema, Ledger(Guarantee(3.0, 1e-6), noise=SeededNoise(1)).remaining, Binning(bins="equal"))
    assert book.queries == plan.queries
    assert abs(codec.num_rows - 4000) < 500
    assert rows.domain.num_rows == codec.num_rows
    town, code, age, height = codec.columns
    assert isinstance(town, CategoricalCodec)
    assert isinstance(code, CategoricalCodec)
    assert town.categories == ("east", "north", "south", "other")
    assert code.categories == (10, 20, None)  # the "other" of numbers decodes to a null
    assert isinstance(age, NumericCodec)
    assert (age.histogram.grid.lower, age.histogram.grid.upper) == (16, 127)
    assert isinstance(height, NumericCodec)
    assert height.histogram.grid.lower == 1.0
    assert height.histogram.grid.upper in (2.0, 4.0)  # a handful of rows lie above 2
    unheard = pa.chunked_array([["west", None]])
    assert town.encode(unheard).tolist() == [3, 4]
    assert json.loads(json.dumps(codec.to_dict(), allow_nan=False))["num_rows"] == codec.num_rows


def test_a_value_called_other_keeps_its_name() -> None:
    table = pa.table({"x": ["other"] * 300 + ["other_"] * 300})
    codec, _, _ = fitted(table, Schema(columns=(Column(name="x", kind="categorical"),), rows=600))
    assert codec.columns[0].categories == ("other", "other_", "other__")  # type: ignore[union-attr]


def test_only_some_rows_of_each_unit_are_used() -> None:
    """Counts of the encoded rows move by at most the declared rows a unit when a whole unit goes."""
    ids = np.repeat(np.arange(30), 5)
    values = np.random.default_rng(0).integers(0, 4, 150)
    columns = (Column(name="id", kind="id"), Column(name="x", kind="integer", bounds=(0, 3)))
    schema = Schema(columns=columns, unit="id", max_rows_per_unit=2, rows=60)
    table = pa.table({"id": ids, "x": values})
    _, rows, book = fitted(table, schema, Binning(bins="uniform"), guarantee=Guarantee(1.0, 1e-6))
    assert rows.max_rows_per_unit == book.max_rows_per_unit == 2
    assert len(rows._codes) == 60
    for unit in (0, 17, 29):
        _, without, _ = fitted(table.filter(pa.array(ids != unit)), schema, Binning(bins="uniform"))
        assert np.abs(rows._exact_counts(("x",)) - without._exact_counts(("x",))).sum() == 2
    nameless = table.set_column(0, "id", pa.nulls(150, pa.int64()))
    assert len(fitted(nameless, schema, Binning(bins="uniform"))[1]._codes) == 0


def test_ids_are_fresh_and_text_is_left_out() -> None:
    columns = (
        Column(name="id", kind="id"),
        Column(name="note", kind="text"),
        Column(name="x", kind="boolean"),
        Column(name="gone", kind="id", drop=True),
    )
    table = pa.table({"id": [90, 91], "note": ["secret", "s"], "x": [True, False], "gone": [1, 2]})
    codec, rows, _ = fitted(table, Schema(columns=columns, rows=2))
    again = decoded(codec, rows._codes.astype(np.int32))
    assert again.column_names == ["id", "x"]
    assert again.column("id").to_pylist() == [1, 2]


def test_the_assumed_domain_reads_no_data() -> None:
    domain = assumed_domain(SCHEMA, Binning(max_bins=20))
    assert domain.names == SCHEMA.names
    assert domain.num_rows == 50
    assert domain.size(("text",)) == 9
    assert domain.size(("number",)) == 4
    assert domain.size(("weight",)) == 20
    assert domain.size(("born",)) == 21
    assert assumed_domain(Schema(columns=(Column(name="x", kind="real"),)), Binning(), num_rows=7).num_rows == 7


# ------------------------------------------------------------------------------------------------------- two integers


def test_two_declared_integers_need_no_histogram() -> None:
    """500 columns of 0 and 1 are two categories each: nothing about them is estimated, and nothing is charged."""
    flags = tuple(Column(name=f"c{i}", kind="integer", bounds=(0, 1)) for i in range(500))
    schema = Schema(columns=flags, rows=100)
    for bins in ("tree", "equal", "uniform"):
        binning = Binning(bins=bins)
        assert not plan_discovery(schema, Guarantee(1.0, 1e-6).budget(1), binning).queries
        assert set(assumed_domain(schema, binning).sizes) == {3}
    mixed = Schema(columns=(*flags, Column(name="age", kind="integer", bounds=(0, 90))), rows=100)
    (query,) = plan_discovery(mixed, Guarantee(1.0, 1e-6).budget(1), Binning()).queries
    assert (query.columns, query.what) == (("age",), "fine histograms of 1 column")
    alone = plan_discovery(Schema(columns=mixed.columns[-1:], rows=100), Guarantee(1.0, 1e-6).budget(1), Binning())
    assert query.event == alone["histograms"].event


@pytest.mark.parametrize("declared", [True, False])
def test_two_integers_are_two_bins(declared: bool) -> None:
    """Also if the bounds are estimated: then the worst case is charged, as planned, and no histogram is drawn."""
    table = pa.table({"x": [0] * 300 + [1] * 20 + [None] * 5})
    bounds = (0, 1) if declared else None
    schema = Schema(columns=(Column(name="x", kind="integer", bounds=bounds),), rows=325)
    guarantee = Guarantee(10.0, 1e-6)
    release = us.fit(table, "independent", guarantee, schema=schema, seed=1)
    (column,) = release.codec.columns
    assert isinstance(column, NumericCodec)
    assert (column.extent, column.num_bins) == ("0 to 1", 2)
    assert column.histogram.masses.tolist() == [0.5, 0.5]
    codes = release.codec.encode(pa.table({"x": [-5, 0, 1, 7, None]}))[:, 0]
    assert codes.tolist() == [0, 0, 1, 1, 2]
    charged = [(query.what, query.event) for query in release.statement.queries]
    planned = [(query.what, query.event) for query in us.plan(schema, "independent", guarantee).queries]
    assert charged == planned
    assert ("fine histograms of 1 column" in dict(charged)) == (not declared)
    shares = np.mean([value == 1 for value in release.sample_arrow(20_000, seed=0).column("x").to_pylist()])
    assert shares == pytest.approx(20 / 325, abs=0.02)
