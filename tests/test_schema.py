"""The schema file: what it accepts, what it refuses and in which words, and that writing loses nothing."""

import dataclasses
import json
import math
import os
import stat
import string
import tomllib
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.errors import SchemaError, TableError
from understudy.schema import KINDS, Bound, Column, Domain, Schema, match_columns
from understudy.schema_check import Finding, check

PEOPLE = """
[table]
rows = 32561
unit = "person_id"
max_rows_per_unit = 3
target = "income"
positive = ">50K"

[columns.person_id]
kind = "id"

[columns.age]
kind = "integer"
bounds = [17, 90]

[columns.workclass]
kind = "categorical"
nullable = false
unknown = "Other"
categories = ["Private", "State-gov", "Other"]

[columns.income]
kind = "categorical"
categories = ["<=50K", ">50K"]

[columns.seen]
kind = "datetime"
bounds = [2020-01-01T00:00:00+02:00, 2021-01-01T00:00:00+02:00]

[columns.born]
kind = "date"
format = "%d.%m.%Y"
bounds = [1900-01-01, 2020-12-31]

[columns.weight]
kind = "real"

[columns.notes]
kind = "text"
drop = true
"""


def refusal(text: str) -> str:
    """The message with which a schema is refused."""
    with pytest.raises(SchemaError) as caught:
        Schema.from_toml(text)
    return str(caught.value)


def bounds_of(column: Column) -> tuple[Bound, Bound]:
    assert column.bounds is not None
    return column.bounds


def column_refusal(lines: str) -> str:
    return refusal(f"[columns.x]\n{lines}")


# Reading


def test_reads_every_key():
    schema = Schema.from_toml(PEOPLE)
    assert schema.names == ("person_id", "age", "workclass", "income", "seen", "born", "weight", "notes")
    assert (schema.rows, schema.unit, schema.max_rows_per_unit) == (32561, "person_id", 3)
    assert (schema.target, schema.positive, schema.drafted) == ("income", ">50K", False)
    assert schema["age"] == Column(name="age", kind="integer", bounds=(17, 90))
    assert schema["workclass"].unknown == "Other"
    assert not schema["workclass"].nullable
    assert schema["born"].bounds == (date(1900, 1, 1), date(2020, 12, 31))
    assert schema["born"].format == "%d.%m.%Y"
    assert bounds_of(schema["seen"])[0] == datetime(2019, 12, 31, 22, tzinfo=UTC)
    assert [column.name for column in schema] == list(schema.names)
    assert "age" in schema
    assert "wage" not in schema


def test_says_what_is_bought_and_what_is_modelled():
    schema = Schema.from_toml(PEOPLE)
    assert {column.name: column.bought for column in schema if column.bought} == {"weight": "bounds"}
    assert [column.name for column in schema.modelled] == ["age", "workclass", "income", "seen", "born", "weight"]
    assert Column(name="x", kind="categorical").bought == "categories"
    assert Column(name="x", kind="categorical", drop=True).bought is None
    assert Column(name="x", kind="boolean").bought is None
    assert all(Column(name="x", kind=kind).modelled == (kind not in ("text", "id")) for kind in KINDS)


def test_the_unit_becomes_an_identifier_whatever_was_declared():
    """A unit with an innocent kind must not be modelled by mistake."""
    schema = Schema.from_toml('[table]\nunit = "who"\n[columns.who]\nkind = "integer"\nbounds = [1, 9]')
    assert schema["who"] == Column(name="who", kind="id")
    assert schema.modelled == ()


def test_integer_bounds_beyond_doubles_stay_exact():
    schema = Schema.from_toml(f'[columns.x]\nkind = "integer"\nbounds = [{2**53 + 1}, {2**63 - 1}]')
    assert schema["x"].bounds == (2**53 + 1, 2**63 - 1)
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_bounds_take_the_type_of_their_kind():
    assert Column(name="x", kind="integer", bounds=(0.0, 5.0)).bounds == (0, 5)
    assert [type(bound) for bound in bounds_of(Column(name="x", kind="real", bounds=(0, 5)))] == [float, float]
    assert Column(name="x", kind="datetime", bounds=(date(2020, 1, 1), date(2021, 1, 1))).bounds == (
        datetime(2020, 1, 1),
        datetime(2021, 1, 1),
    )
    numpy_bounds = bounds_of(Column(name="x", kind="integer", bounds=(np.int64(1), np.int64(2))))  # type: ignore[arg-type]
    assert [type(bound) for bound in numpy_bounds] == [int, int]


@pytest.mark.parametrize("categories", [["a", "b"], [1, 2], [0.5, 1.0], [True, False]])
def test_categories_of_each_type(categories):
    column = Column(name="x", kind="categorical", categories=categories)
    assert column.categories == tuple(categories)
    again = Schema.from_toml(Schema(columns=(column,)).to_toml())["x"]
    assert [type(value) for value in again.categories or ()] == [type(value) for value in categories]


def test_a_dropped_column_needs_no_kind():
    assert Schema.from_toml("[columns.x]\ndrop = true")["x"] == Column(name="x", kind="text", drop=True)


# Refusing


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('kind = "categorial"', "Did you mean 'categorical'?"),
        ('kind = "float"', "Did you mean 'real'?"),
        ('kind = "string"', "Did you mean 'categorical'?"),
        ('kind = "int"', "Did you mean 'integer'?"),
        ('kind = "zzz"', "one of categorical, integer, real, boolean, datetime, date, text, id; found 'zzz'."),
        ("kind = 3", "found 3"),
        ("nullable = true", "has no kind. Add kind = one of categorical"),
        ('kind = "integer"\nbound = [1, 2]', "unknown key 'bound'. Did you mean 'bounds'?"),
        (
            'kind = "integer"\nzzz = 1',
            "The keys are kind, nullable, categories, unknown, bounds, drop, format, decimals.",
        ),
        ('kind = "integer"\nbounds = [9, 1]', "below the upper one, found [9, 1]. Swap them."),
        ('kind = "integer"\nbounds = [1, 1]', "below the upper one, found [1, 1]. Widen them"),
        ('kind = "real"\nbounds = [nan, 1.0]', "must be finite numbers, found nan"),
        ('kind = "real"\nbounds = [0.0, inf]', "must be finite numbers, found inf"),
        ('kind = "real"\nbounds = [true, 2.0]', "must be finite numbers, found true"),
        ('kind = "integer"\nbounds = [0.5, 2]', "must be whole numbers, found 0.5"),
        ('kind = "integer"\nbounds = [-inf, 2]', "must be whole numbers, found -inf"),
        ('kind = "integer"\nbounds = [1]', "must be a list [least, greatest], found [1]"),
        ('kind = "integer"\nbounds = 3', "must be a list [least, greatest], found 3"),
        ('kind = "date"\nbounds = [1, 2]', "must be dates such as 2024-01-31, found 1"),
        ('kind = "date"\nbounds = [2020-01-01T00:00:00, 2021-01-01]', "must be dates such as 2024-01-31"),
        ('kind = "date"\nbounds = ["soon", "later"]', 'must be dates such as 2024-01-31, found "soon"'),
        ('kind = "datetime"\nbounds = [1, 2]', "must be times such as 2024-01-31T12:00:00"),
        (
            'kind = "datetime"\nbounds = [2020-01-01T00:00:00Z, 2021-01-01T00:00:00]',
            "one bound has a time zone and the other has none",
        ),
        (
            'kind = "categorical"\nbounds = [1, 2]',
            "bounds are for kinds integer, real, datetime, date, and this one is",
        ),
        ('kind = "boolean"\nbounds = [0, 1]', "bounds are for kinds"),
        ('kind = "categorical"\ncategories = []', "categories is an empty list. Name at least one"),
        ('kind = "categorical"\ncategories = ["a", "b", "a"]', 'categories names "a" more than once'),
        ('kind = "categorical"\ncategories = [0.0, -0.0]', "more than once"),
        ('kind = "categorical"\ncategories = ["a", 1]', "found int and str"),
        ('kind = "categorical"\ncategories = [1, 2.5]', "found float and int"),
        ('kind = "categorical"\ncategories = [true, 1]', "found bool and int"),
        ('kind = "categorical"\ncategories = [nan]', "nan cannot be a category"),
        (
            'kind = "categorical"\ncategories = [["a"]]',
            "must all be texts, all integers, all floats or all booleans; found list",
        ),
        ('kind = "categorical"\ncategories = "a"', 'categories must be a list, found "a"'),
        ('kind = "categorical"\ncategories = {a = 1}', "categories must be a list"),
        ('kind = "boolean"\ncategories = [true]', "A boolean column has true and false by itself"),
        ('kind = "integer"\ncategories = [1]', 'categories are for kind "categorical"'),
        ('kind = "categorical"\ncategories = ["Other"]\nunknown = "other"', "Did you mean 'Other'?"),
        ('kind = "categorical"\ncategories = [1]\nunknown = true', "unknown is true, which is not among"),
        ('kind = "categorical"\nunknown = "a"', "unknown needs declared categories"),
        ('kind = "integer"\nnullable = 1', "nullable must be true or false, found 1"),
        ('kind = "integer"\ndrop = "yes"', 'drop must be true or false, found "yes"'),
        ('kind = "date"\nformat = 3', "format must be a text"),
        ('kind = "date"\nformat = ""', "format must be a text"),
        ('kind = "date"\nformat = "dd.mm.yyyy"', "must be written with the signs of strptime"),
        ('kind = "integer"\nformat = "%d"', "format is for kinds datetime, date and boolean, and this one is"),
        ('kind = "boolean"\nformat = "yes"', 'the words for false and true, as in "no/yes", found "yes"'),
        ('kind = "boolean"\nformat = "n/n"', "the words for false and true"),
        ('kind = "boolean"\nformat = "no/ yes"', "the words for false and true"),
        ('kind = "boolean"\nformat = "/yes"', "the words for false and true"),
        ('kind = "boolean"\nformat = "a/b/c"', "the words for false and true"),
        ('kind = "boolean"\nformat = ""', 'format must be a text such as "no/yes", found ""'),
        ('kind = "integer"\ndecimals = 2', 'decimals is for kind real, and this one is "integer"'),
        ('kind = "real"\ndecimals = -1', "decimals must be a whole number from 0 to 15, found -1"),
        ('kind = "real"\ndecimals = 16', "decimals must be a whole number from 0 to 15, found 16"),
        ('kind = "real"\ndecimals = true', "decimals must be a whole number from 0 to 15, found true"),
        ('kind = "real"\ndecimals = 2.0', "decimals must be a whole number from 0 to 15, found 2.0"),
    ],
)
def test_refused_columns(lines, message):
    found = column_refusal(lines)
    assert message in found
    assert found.startswith("The schema: ")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("rows = 0", "rows must be a whole number of at least 1, found 0"),
        ("rows = 1.5", "rows must be a whole number of at least 1, found 1.5"),
        ("rows = true", "found true"),
        ('unit = "persn"', "unit is \"persn\", and there is no such column. Did you mean 'person'?"),
        ("unit = 3", "unit is 3, and there is no such column"),
        ("max_rows_per_unit = 1", "max_rows_per_unit needs unit"),
        ('unit = "person"\nmax_rows_per_unit = 0', "max_rows_per_unit must be a whole number of at least 1, found 0"),
        ('target = "sexx"', "target is \"sexx\", and there is no such column. Did you mean 'sex'?"),
        ('target = "note"', "target is column 'note', which has kind 'text' and so is never modelled"),
        ('target = "gone"', "target is column 'gone', which is dropped"),
        ('unit = "person"\ntarget = "person"', "which has kind 'id' and so is never modelled"),
        ('positive = "F"', "positive needs target"),
        ('target = "sex"\npositive = "f"', "positive is \"f\", which is not among the categories of the target 'sex'"),
        ('target = "flag"\npositive = 1', "positive is 1, which is not among the categories"),
        ('target = "age"\npositive = [1]', "positive must be one value of the target"),
        ("row = 3", "[table] has the unknown key 'row'. Did you mean 'rows'?"),
        ("drafted = 1", "drafted must be true or false"),
    ],
)
def test_refused_tables(table, message):
    columns = """
    columns.person.kind = "categorical"
    columns.age.kind = "integer"
    columns.flag.kind = "boolean"
    columns.sex = { kind = "categorical", categories = ["F", "M"] }
    columns.note.kind = "text"
    columns.gone = { kind = "integer", drop = true }
    [table]
    """
    assert message in refusal(columns + table)


def test_refused_files():
    assert "declares no column" in refusal("")
    assert "unknown key 'column'. Did you mean 'columns'?" in refusal('[column.age]\nkind = "integer"')
    assert "must be sections" in refusal("table = 3")
    assert "Column 'age' must be a section" in refusal('[columns]\nage = "integer"')


def test_a_syntax_error_names_file_and_line(tmp_path):
    path = tmp_path / "people.toml"
    path.write_text("[columns.age]\nkind = integer\n")
    with pytest.raises(SchemaError, match=r"people\.toml is not valid TOML: .*line 2"):
        Schema.read(path)
    path.write_text('[columns.age]\nkind = "integer"\n[columns.age]\nkind = "real"\n')
    with pytest.raises(SchemaError, match=r"people\.toml is not valid TOML: .*line 3"):
        Schema.read(path)


def test_refused_paths(tmp_path):
    with pytest.raises(SchemaError, match="There is no file"):
        Schema.read(tmp_path / "absent.toml")
    with pytest.raises(SchemaError, match="Cannot read"):
        Schema.read(tmp_path)
    (tmp_path / "latin.toml").write_bytes('[columns."é"]\nkind = "id"'.encode("latin-1"))
    with pytest.raises(SchemaError, match="not UTF-8 text"):
        Schema.read(tmp_path / "latin.toml")


def test_duplicate_and_odd_names_in_python():
    twice = (Column(name="a", kind="id"), Column(name="a", kind="real"))
    with pytest.raises(SchemaError, match='Duplicate column names: "a"'):
        Schema(columns=twice)
    with pytest.raises(SchemaError, match="must be a text, found 3"):
        Column(name=3, kind="id")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="not valid Unicode"):
        Column(name="\ud800", kind="id")
    with pytest.raises(SchemaError, match="max_rows_per_unit needs unit"):
        Schema(columns=twice[:1], max_rows_per_unit=2)
    with pytest.raises(SchemaError, match=r"no column 'agee'\. Did you mean 'age'\?"):
        Schema.from_toml(PEOPLE)["agee"]


# Writing


def test_the_file_shows_what_is_declared_and_what_is_bought():
    text = Schema.from_toml(PEOPLE).to_toml()
    assert "bounds = [17, 90]                       # declared public" in text
    assert "# bounds = [least, greatest]            # absent: bought from the data with part of the budget" in text
    assert "rows = 32561                            # declared public" in text
    drafted = Schema.draft(pa.schema([("a", pa.string())])).to_toml()
    assert "drafted = true                          # kinds were drafted from the file: confirm them" in drafted
    assert "# rows = 10000                          # absent: a noisy count is bought" in drafted
    assert '# categories = ["...", "..."]           # absent: bought from the data with part of the budget' in drafted
    assert '# unit = "..."                          # absent: each row is a protected unit' in drafted
    assert max(map(len, text.splitlines())) <= 120


def test_long_lists_are_broken_into_lines():
    categories = tuple(f"category number {i}" for i in range(100))
    schema = Schema(columns=(Column(name="x", kind="categorical", categories=categories),))
    assert max(map(len, schema.to_toml().splitlines())) <= 120
    assert Schema.from_toml(schema.to_toml()) == schema


def test_write_is_whole_and_careful(tmp_path):
    schema, path = Schema.from_toml(PEOPLE), tmp_path / "people.toml"
    schema.write(path)
    assert Schema.read(path) == schema
    assert stat.S_IMODE(path.stat().st_mode) & stat.S_IRUSR
    with pytest.raises(TableError, match=r"people\.toml exists"):
        schema.write(path)
    smaller = Schema.from_toml('[columns.a]\nkind = "id"')
    smaller.write(path, force=True)
    assert Schema.read(path) == smaller
    assert os.listdir(tmp_path) == ["people.toml"]
    with pytest.raises(TableError, match="does not exist"):
        schema.write(tmp_path / "absent" / "people.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(TableError, match="is a folder"):
        schema.write(tmp_path / "folder.toml", force=True)
    assert sorted(os.listdir(tmp_path)) == ["folder.toml", "people.toml"]


def test_reads_a_file_with_byte_order_mark_and_windows_lines(tmp_path):
    path = tmp_path / "people.toml"
    path.write_bytes(b"\xef\xbb\xbf" + PEOPLE.replace("\n", "\r\n").encode())
    assert Schema.read(path) == Schema.from_toml(PEOPLE)


def test_zones_become_offsets_that_toml_can_write():
    zone = ZoneInfo("Europe/Amsterdam")
    bounds = (datetime(1900, 1, 1, tzinfo=zone), datetime(2020, 7, 1, 12, 30, 0, 5, tzinfo=zone))
    schema = Schema(columns=(Column(name="t", kind="datetime", bounds=bounds),))
    assert schema["t"].bounds == bounds
    assert Schema.from_toml(schema.to_toml()) == schema
    upper = bounds_of(schema["t"])[1]
    assert isinstance(upper, datetime)
    assert upper.utcoffset() == timedelta(hours=2)


odd_text = st.one_of(st.text(max_size=8), st.text(alphabet=string.printable + "\x00\x7f\x85\u2028'\"\\é", max_size=8))
aware = st.builds(
    lambda moment, minutes: moment.replace(tzinfo=timezone(timedelta(minutes=minutes))),
    st.datetimes(),
    st.integers(-23 * 60, 23 * 60),
)


def pairs(values):
    """Two different values, the lesser first."""
    return st.lists(values, min_size=2, max_size=2, unique=True).map(sorted).map(tuple)


BOUNDS = {
    "integer": pairs(st.integers(-(2**70), 2**70)),
    "real": pairs(st.floats(allow_nan=False, allow_infinity=False)),
    "datetime": st.one_of(pairs(st.datetimes()), pairs(aware)),
    "date": pairs(st.dates()),
}
category_lists = st.one_of(
    st.lists(odd_text, min_size=1, max_size=30, unique=True),
    st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=5, unique=True),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5, unique=True),
    st.just([True, False]),
)


@st.composite
def columns(draw, name):
    kind = draw(st.sampled_from(KINDS))
    facts: dict = {"name": name, "kind": kind, "nullable": draw(st.booleans()), "drop": draw(st.booleans())}
    if kind in BOUNDS:
        facts["bounds"] = draw(st.none() | BOUNDS[kind])
    if kind == "categorical":
        facts["categories"] = draw(st.none() | category_lists)
        if facts["categories"] is not None:
            facts["unknown"] = draw(st.none() | st.sampled_from(facts["categories"]))
    if kind in ("date", "datetime"):
        facts["format"] = draw(st.none() | st.text(max_size=8).map("%Y{}".format))
    if kind == "boolean":
        facts["format"] = draw(st.none() | st.sampled_from(["no/yes", "0/1", "falsch/wahr", '"/\\']))
    if kind == "real":
        facts["decimals"] = draw(st.none() | st.integers(0, 15))
    return Column(**facts)


@st.composite
def schemas(draw):
    names = draw(st.lists(odd_text, min_size=1, max_size=5, unique=True))
    made = [draw(columns(name)) for name in names]
    facts: dict = {"rows": draw(st.none() | st.integers(1, 2**60)), "drafted": draw(st.booleans())}
    unit = draw(st.none() | st.sampled_from(names))
    if unit is not None:
        facts |= {"unit": unit, "max_rows_per_unit": draw(st.integers(1, 50))}
    targets = [column for column in made if column.modelled and column.name != unit]
    if targets:
        target = draw(st.none() | st.sampled_from(targets))
        if target is not None:
            facts["target"] = target.name
            if target.categories is not None:
                facts["positive"] = draw(st.none() | st.sampled_from(target.categories))
    return Schema(columns=tuple(made), **facts)


def deep_types(value):
    """The same structure with types in place of values, since Python holds True == 1 == 1.0."""
    if isinstance(value, dict):
        return {key: deep_types(inner) for key, inner in value.items()}
    return [deep_types(inner) for inner in value] if isinstance(value, list) else type(value)


@settings(max_examples=150, deadline=None)
@given(schemas())
def test_what_is_written_is_read(schema):
    text = schema.to_toml()
    again = Schema.from_toml(text)
    assert again == schema
    assert deep_types(again.to_dict()) == deep_types(schema.to_dict())
    assert again.to_toml() == text
    assert Schema.from_toml(text.encode().decode()) == schema


@settings(max_examples=100, deadline=None)
@given(schemas())
def test_json_keeps_everything(schema):
    content = schema.to_dict()
    again = Schema.from_dict(json.loads(json.dumps(content, sort_keys=True)))
    assert again == schema
    assert again.to_dict() == content
    assert again.to_toml() == schema.to_toml()


def test_from_dict_refuses_what_it_does_not_know():
    content = Schema.from_toml(PEOPLE).to_dict()
    with pytest.raises(SchemaError, match=r"unknown key 'rowz'\. Did you mean 'rows'"):
        Schema.from_dict({**content, "rowz": 3})
    with pytest.raises(SchemaError, match="unknown key 'kindd'"):
        Schema.from_dict({"columns": [{"name": "a", "kindd": "id"}]})
    with pytest.raises(SchemaError, match="must be a list of objects"):
        Schema.from_dict({"columns": {"a": {"kind": "id"}}})


def test_a_changed_copy_is_checked_again():
    schema = Schema.from_toml(PEOPLE)
    assert schema.with_target("income").positive == ">50K"
    assert schema.with_target("age").positive is None
    assert schema.with_target("workclass", "Private").positive == "Private"
    assert schema.with_target(None).target is None
    with pytest.raises(SchemaError, match="Did you mean 'income'"):
        schema.with_target("incom")
    with pytest.raises(SchemaError, match="at least 1"):
        dataclasses.replace(schema, rows=0)


# Drafting


def test_kinds_follow_arrow_types():
    arrow = pa.schema(
        [
            ("i8", pa.int8()),
            ("u64", pa.uint64()),
            ("f", pa.float32()),
            ("half", pa.float16()),
            ("dec", pa.decimal128(10, 2)),
            ("b", pa.bool_()),
            ("ts", pa.timestamp("ns", tz="Europe/Paris")),
            ("d32", pa.date32()),
            ("d64", pa.date64()),
            ("s", pa.string()),
            ("ls", pa.large_string()),
            ("sv", pa.string_view()),
            ("dict", pa.dictionary(pa.int8(), pa.string())),
            ("ree", pa.run_end_encoded(pa.int32(), pa.int64())),
            ("list", pa.list_(pa.int8())),
            ("struct", pa.struct([("a", pa.int8())])),
            ("bin", pa.binary()),
            ("time", pa.time64("us")),
            ("dur", pa.duration("s")),
            ("nul", pa.null()),
            ("uuid", pa.uuid()),
        ]
    )
    schema = Schema.draft(arrow)
    kinds = {column.name: column.kind for column in schema if not column.drop}
    assert kinds == {
        "i8": "integer",
        "u64": "integer",
        "f": "real",
        "half": "real",
        "dec": "real",
        "b": "boolean",
        "ts": "datetime",
        "d32": "date",
        "d64": "date",
        "s": "categorical",
        "ls": "categorical",
        "sv": "categorical",
        "dict": "categorical",
        "ree": "integer",
    }
    dropped = [column for column in schema if column.drop]
    assert [column.name for column in dropped] == ["list", "struct", "bin", "time", "dur", "nul", "uuid"]
    assert {column.kind for column in dropped} == {"text"}
    assert schema.drafted
    assert schema.rows is None


def test_field_metadata_is_honoured():
    date_field = pa.field("d", pa.date32(), metadata={b"kind": b"date", b"format": b"%d.%m.%Y"})
    zip_field = pa.field("zip", pa.int64(), metadata={b"kind": b"categorical", b"format": b"%d"})
    real_field = pa.field("r", pa.float64(), metadata={b"decimals": b"2", b"padded": b"true"})
    bool_field = pa.field("b", pa.bool_(), metadata={b"format": b"No/Yes"})
    schema = Schema.draft(pa.schema([date_field, zip_field, real_field, bool_field]))
    assert schema["r"] == Column(name="r", kind="real", decimals=2)
    assert schema["b"] == Column(name="b", kind="boolean", format="No/Yes")
    assert "decimals = 2                            # digits after the point in text files" in schema.to_toml()
    assert 'format = "No/Yes"                       # how text files write false and true' in schema.to_toml()
    assert schema["d"] == Column(name="d", kind="date", format="%d.%m.%Y")
    assert schema["zip"].kind == "categorical"
    with pytest.raises(SchemaError, match="Did you mean 'date'"):
        Schema.draft(pa.schema([pa.field("d", pa.date32(), metadata={b"kind": b"dat"})]))


def test_a_draft_is_the_same_for_every_table_of_the_same_shape():
    """No value, distinct count or number of rows may reach the file."""
    rich = pa.table({"a": pa.array(["canary", "other"]).dictionary_encode(), "n": [17, 4242]})
    poor = rich.slice(0, 0)
    assert Schema.draft(rich.schema).to_toml() == Schema.draft(poor.schema).to_toml()
    assert "canary" not in Schema.draft(rich.schema).to_toml()


def test_a_draft_refuses_duplicate_names():
    with pytest.raises(SchemaError, match="Duplicate column names"):
        Schema.draft(pa.schema([("a", pa.int8()), ("a", pa.int8())]))


# Matching


def test_matching_columns_pass():
    schema = Schema.from_toml(PEOPLE)
    match_columns(schema, schema.names)
    match_columns(schema, schema.names[::-1])
    match_columns(schema, [name for name in schema.names if name != "notes"])  # dropped anyway


def test_columns_that_do_not_match():
    schema = Schema.from_toml('[columns.age]\nkind = "integer"\n[columns.sex]\nkind = "boolean"')

    def message(names):
        with pytest.raises(SchemaError) as caught:
            match_columns(schema, names)
        return str(caught.value)

    assert message(["age"]) == (
        "Column 'sex' is in the schema but not in the table. Remove it from the schema, or check the spelling."
    )
    assert message(["age", "sex", "home town"]) == (
        "Column 'home town' is in the table but not in the schema."
        ' Add a [columns."home town"] section with a kind, or one with drop = true to leave it out.'
    )
    assert "'sex' is in the schema but not in the table. Did you mean 'Sex'?" in message(["age", "Sex"])
    assert "'Sex' is in the table but not in the schema. Did you mean 'sex'?" in message(["age", "Sex"])
    assert "Columns 'age', 'sex' are in the schema" in message(["other"])
    assert 'Duplicate column names in the table: "age"' in message(["age", "age", "sex"])


def test_a_dropped_unit_must_be_there():
    schema = Schema.from_toml('table.unit = "who"\ncolumns.who = {drop = true}\ncolumns.a.kind = "boolean"')
    with pytest.raises(SchemaError, match="'who' is in the schema but not in the table"):
        match_columns(schema, ["a"])


# Domain


def test_domain_shapes():
    domain = Domain(names=("a", "b", "c"), sizes=(2, 3, 2**40), num_rows=10, target="b")
    assert domain.shape(("c", "a")) == (2**40, 2)
    assert domain.size(("c", "c")) == 2**80
    assert domain.size(()) == 1
    assert domain.index("c") == 2
    assert domain.singles == (("a",), ("b",), ("c",))
    assert dataclasses.replace(domain, num_rows=5).index("b") == 1
    with pytest.raises(SchemaError, match="no column 'd'"):
        domain.index("d")


@pytest.mark.parametrize(
    "facts",
    [
        {"names": ("a", "b"), "sizes": (2,), "num_rows": 1},
        {"names": ("a", "a"), "sizes": (2, 2), "num_rows": 1},
        {"names": ("a",), "sizes": (0,), "num_rows": 1},
        {"names": ("a",), "sizes": (2,), "num_rows": 0},
        {"names": ("a",), "sizes": (2,), "num_rows": 1, "target": "b"},
    ],
)
def test_refused_domains(facts):
    with pytest.raises(SchemaError):
        Domain(**facts)


# Checking


def findings(column: str, values: pa.Array, table: str = "rows = 4") -> dict[str, Finding]:
    """What `check` says about one column `x` with these values, by topic."""
    schema = Schema.from_toml(f"[table]\n{table}\n[columns.x]\n{column}")
    return {finding.topic: finding for finding in check(schema, pa.table({"x": values}))}


def test_a_table_that_fits_has_no_findings():
    table = pa.table({"a": [1, 2, None], "b": ["x", "y", "x"], "c": [True, False, None], "d": [0.5, 1.5, None]})
    schema = Schema.from_toml(
        """
        table.rows = 3
        columns.a = {kind = "integer", bounds = [0, 5]}
        columns.b = {kind = "categorical", categories = ["x", "y"], nullable = false}
        columns.c = {kind = "boolean"}
        columns.d = {kind = "real", bounds = [0, 2]}
        """
    )
    assert check(schema, table) == []
    chunked = pa.concat_tables([table, table.slice(0, 0)])
    assert check(schema, chunked) == []


def test_values_outside_the_categories():
    found = findings(
        'kind = "categorical"\ncategories = ["a", "b", "z"]\nunknown = "b"', pa.array(["a", "c", "c", "d"])
    )
    assert set(found) == {"outside categories", "unused categories"}
    assert found["outside categories"].message == (
        '3 values are outside the declared categories (such as "c", "d"). They become "b".'
    )
    assert found["unused categories"].message == '2 declared categories do not occur (such as "b", "z").'
    encoded = pa.array(["a", "c", "c", "d"]).dictionary_encode()
    assert findings('kind = "categorical"\ncategories = ["a", "b", "z"]\nunknown = "b"', encoded) == found


def test_categories_are_compared_across_types():
    assert not findings('kind = "categorical"\ncategories = [1, 2]', pa.array(["1", "2", "1", "2"]))
    assert not findings('kind = "categorical"\ncategories = ["1", "2"]', pa.array([1, 2, 1, 2]))
    assert not findings('kind = "categorical"\ncategories = [1, 2]', pa.array([1.0, 2.0, 2.0, None]))
    mixed = findings('kind = "categorical"\ncategories = [1, 2]', pa.array(["1", "2", "x", None]))
    assert '(such as "x")' in mixed["outside categories"].message
    assert "outside categories" in findings('kind = "categorical"\ncategories = [1, 2]', pa.array([1.0, 1.5, 2.0, 2.0]))


def test_values_outside_the_bounds():
    found = findings('kind = "integer"\nbounds = [0, 10]', pa.array([-5, 3, 10, 11], pa.int16()))
    assert found["outside bounds"].message == (
        "2 values are outside the bounds [0, 10] (such as -5, 11). They are clamped."
    )
    assert findings('kind = "integer"\nbounds = [-1, 300]', pa.array([0, 255, 3, 4], pa.uint8())) == {}
    assert findings(f'kind = "integer"\nbounds = [{2**70}, {2**71}]', pa.array([1, 2, 3, 4]))["outside bounds"]
    exact = findings(f'kind = "integer"\nbounds = [0, {2**53}]', pa.array([2**53, 2**53 + 1, 1, 2]))
    assert exact["outside bounds"].message.startswith("1 values")
    assert findings('kind = "real"\nbounds = [0, 1]', pa.array([0.0, 1.0, 1.5, None]))["outside bounds"]
    days = pa.array([date(2020, 1, 1), date(2021, 1, 1), None, None])
    assert findings('kind = "date"\nbounds = [2020-01-01, 2020-12-31]', days)["outside bounds"].message.startswith("1 ")
    moments = pa.array([datetime(2020, 1, 1), datetime(2021, 1, 1)] * 2, pa.timestamp("ns", tz="Europe/Paris"))
    zoned = 'kind = "datetime"\nbounds = [2019-12-31T00:00:00Z, 2020-06-01T00:00:00Z]'
    assert findings(zoned, moments)["outside bounds"].message.startswith("2 ")
    assert findings('kind = "datetime"\nbounds = [2019-12-31, 2020-06-01]', moments)["time zone"]


def test_dates_in_text():
    texts = pa.array(["01.02.2020", "31.12.2020", "soon", None])
    found = findings('kind = "date"\nformat = "%d.%m.%Y"\nbounds = [2020-01-01, 2020-06-30]', texts)
    assert found["kind"].message == "1 values cannot be read as date. They count as nulls."
    assert found["outside bounds"].message.startswith("1 values")
    assert findings('kind = "date"\nformat = "%Y%!"', texts)["kind"].level == "error"
    iso = pa.array(["2020-02-01", "2020-12-31", None, "2021-01-01"])
    assert findings('kind = "date"\nbounds = [2020-01-01, 2020-12-31]', iso)["outside bounds"].message.startswith("1 ")
    moments = pa.array(["2020-02-01 10:00:00.5", "2020-12-31T00:00", None, "never"])
    assert findings('kind = "datetime"', moments)["kind"].message.startswith("1 values cannot be read as datetime")


def test_numbers_in_text():
    found = findings('kind = "integer"\nbounds = [0, 9]', pa.array(["1", "2", "12", "x"]))
    assert found["kind"].message == "1 values cannot be read as integer. They count as nulls."
    assert found["outside bounds"].message.startswith("1 values")
    assert findings('kind = "boolean"', pa.array(["true", "false", "true", "perhaps"]))["kind"].level == "warning"
    assert findings('kind = "real"', pa.array(["0.5", "1e3", "-2", None])) == {}


def test_booleans_in_text():
    texts = pa.array([" ja", "nein", "Ja", None])
    found = findings('kind = "boolean"\nformat = "nein/ja"', texts)
    assert found["kind"].message == "1 values cannot be read as boolean. They count as nulls."


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("text", "id")])
@pytest.mark.parametrize(
    "arrow_type",
    [
        *(pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.decimal128(9, 2)),
        *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.null(), pa.list_(pa.int8())),
        *(pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns", tz="UTC"), pa.time32("s"), pa.duration("ms")),
        *(pa.dictionary(pa.int8(), pa.large_string()), pa.run_end_encoded(pa.int32(), pa.int64()), pa.uuid()),
    ],
    ids=str,
)
def test_check_takes_any_column(kind, arrow_type):
    """Whatever the table holds, the steward gets an answer and no traceback."""
    bounds = {"integer": "[0, 9]", "real": "[0, 9]", "date": "[2020-01-01, 2021-01-01]"}
    lines = f'kind = "{kind}"' + (f"\nbounds = {bounds[kind]}" if kind in bounds else "")
    for values in (some_values(arrow_type), pa.chunked_array([], arrow_type)):
        schema = Schema.from_toml(f"[table]\nrows = 2\n[columns.x]\n{lines}")
        assert all(isinstance(finding.message, str) for finding in check(schema, pa.table({"x": values})))


def some_values(arrow_type: pa.DataType) -> pa.ChunkedArray:
    """Two different values of the type, and a null, in two chunks."""
    if pa.types.is_run_end_encoded(arrow_type):
        chunk = pc.run_end_encode(pa.array([1, 20, None]))
    elif isinstance(arrow_type, pa.BaseExtensionType):
        chunk = pa.array([b"0" * 16, b"1" * 16, None], arrow_type)
    elif pa.types.is_nested(arrow_type):
        chunk = pa.array([[1], [2], None], arrow_type)
    elif pa.types.is_dictionary(arrow_type):
        chunk = pa.array(["1", "20", None]).cast(arrow_type)
    else:
        whole = pa.array([0, 86_400_000, None] if arrow_type == pa.date64() else [1, 20, None])
        if pa.types.is_temporal(arrow_type) and arrow_type.bit_width == 32:
            whole = whole.cast(pa.int32())
        through = pa.string() if pa.types.is_binary(arrow_type) or pa.types.is_decimal(arrow_type) else whole.type
        null = pa.types.is_null(arrow_type)
        chunk = pa.nulls(3) if null else whole.cast(through).cast(arrow_type, safe=False)
    return pa.chunked_array([chunk, chunk.slice(0, 1)])


def test_nulls_constants_and_odd_numbers():
    assert findings('kind = "real"', pa.array([None] * 4, pa.float64()))["all null"]
    assert findings('kind = "real"', pa.array([None] * 4, pa.null()))["all null"]
    assert findings('kind = "real"', pa.array([math.nan] * 4))["all null"]
    assert findings('kind = "integer"', pa.array([7, 7, None, 7]))["constant"]
    odd = findings('kind = "real"\nbounds = [0, 9]', pa.array([math.nan, math.inf, 1.0, 2.0]))
    assert set(odd) == {"not a number", "infinite"}
    assert "1 values are NaN" in odd["not a number"].message
    assert "1 values are infinite" in odd["infinite"].message
    null = findings('kind = "integer"\nnullable = false\nbounds = [0, 9]', pa.array([1, 2, None, 3]))
    assert "1 values are null, and nullable is false: they become the lower bound." in null["null"].message
    broken = findings('kind = "integer"', pa.array([1.0, 2.5, 3.0, None]))
    assert broken["not whole"].message == "1 values are not whole (such as 2.5). They are rounded."


def test_kinds_that_cannot_hold_the_values():
    for kind, values in [
        ("integer", pa.array([date(2020, 1, 1)] * 4)),
        ("boolean", pa.array([b"1"] * 4)),
        ("datetime", pa.array([1, 2, 3, 4])),
        ("categorical", pa.array([[1]] * 4)),
    ]:
        found = findings(f'kind = "{kind}"', values)
        assert found["kind"].level == "error"
        assert f"It is declared {kind}, and the table holds {values.type}." in found["kind"].message


def test_many_categories_to_buy():
    values = pa.array([f"value {i}" for i in range(1001)])
    assert "1001 distinct values" in findings('kind = "categorical"', values, "rows = 1001")["many categories"].message


def test_rows_and_delta():
    assert findings('kind = "integer"', pa.array([1, 2]))["rows"].level == "warning"
    assert findings('kind = "integer"', pa.array([1, 2]), "")["rows"].level == "note"
    assert findings('kind = "integer"', pa.array([], pa.int64()))["rows"].level == "warning"
    large = findings('kind = "integer"', pa.array(np.arange(1_000_001)), "")
    assert "--delta" in large["delta"].message


def test_units_with_too_many_rows():
    schema = Schema.from_toml('table = {rows = 7, unit = "who", max_rows_per_unit = 2}\ncolumns.who.kind = "id"')
    found = {f.topic: f for f in check(schema, pa.table({"who": ["a", "a", "a", "a", "b", "b", None]}))}
    assert set(found) == {"no unit", "rows per unit"}
    assert found["no unit"].message == "1 rows have no unit. They are left out."
    assert found["rows per unit"].message.startswith(
        "1 units have more than max_rows_per_unit = 2 rows; 2 rows will not"
    )
    assert str(found["no unit"]) == "warning: Column 'who': 1 rows have no unit. They are left out."


def test_missing_columns_are_findings_not_errors():
    schema = Schema.from_toml('[table]\nrows = 1\n[columns.a]\nkind = "integer"')
    (finding,) = check(schema, pa.table({"b": [1]}))
    assert (finding.level, finding.topic, finding.column) == ("error", "columns", None)
    assert "'a' is in the schema but not in the table" in finding.message
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert [found.topic for found in check(schema, twice)] == ["columns"]


def test_text_and_ids_are_not_looked_at():
    schema = Schema.from_toml(
        '[table]\nrows = 2\n[columns.a]\nkind = "text"\n[columns.b]\nkind = "id"\nnullable = false'
    )
    assert check(schema, pa.table({"a": [["x"], None], "b": [None, None]})) == []


# Documentation


def test_the_example_of_the_page_is_valid():
    page = (Path(__file__).parent.parent / "docs" / "schema.md").read_text()
    examples = [block.split("```")[0] for block in page.split("```toml\n")[1:]]
    assert examples
    for example in examples:
        assert Schema.from_toml(example)
        assert tomllib.loads(example)
