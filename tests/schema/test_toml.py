"""Schema files: what is read, what is refused, and that writing loses nothing."""

import dataclasses
import json
import os
import stat
import string
import tomllib
from datetime import timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import raises
from tests.examples import scaled
from tests.schema.schema_examples import PEOPLE
from understudy.errors import SchemaError, TableError
from understudy.schema import KINDS, Column, Schema
from understudy.schema.toml import read_rules


def test_a_dropped_column_needs_no_kind():
    assert Schema.from_toml("[columns.x]\ndrop = true")["x"] == Column(name="x", kind="text", drop=True)


def refuse(text: str) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        Schema.from_toml(text)
    return caught.value


def test_refused_files():
    assert "declares no column" in str(refuse(""))
    assert refuse('[column.age]\nkind = "integer"').key == "column"
    assert "must be sections" in str(refuse("table = 3"))
    assert refuse('[columns]\nage = "integer"').column == "age"
    error = refuse('[columns.x]\nkind = "integer"\nzzz = 1')
    assert (error.column, error.key) == ("x", "zzz")
    assert (
        "The keys are kind, nullable, categories, unknown, closed, ordinal, bounds, special, cyclic, parts, "
        "resolution, missing, drop, per_unit, format, decimals." in str(error)
    )
    assert "unknown key 'bound'. Did you mean 'bounds'?" in str(refuse('[columns.x]\nkind = "integer"\nbound = [1, 2]'))
    assert "has no kind. Add kind = one of categorical" in str(refuse("[columns.x]\nnullable = true"))


def test_a_syntax_error_names_file_and_line(tmp_path):
    path = tmp_path / "people.toml"
    path.write_text("[columns.age]\nkind = integer\n")
    with pytest.raises(SchemaError, match=r"people\.toml is not valid TOML: .*line 2"):
        Schema.read(path)
    path.write_text('[columns.age]\nkind = "integer"\n[columns.age]\nkind = "real"\n')
    with pytest.raises(SchemaError, match=r"people\.toml is not valid TOML: .*line 3"):
        Schema.read(path)


def test_refused_paths(tmp_path):
    with pytest.raises(SchemaError):
        Schema.read(tmp_path / "absent.toml")
    with pytest.raises(SchemaError):
        Schema.read(tmp_path)
    text = '[columns."é"]\nkind = "id"'
    Schema.from_toml(text)
    (tmp_path / "latin.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(SchemaError):
        Schema.read(tmp_path / "latin.toml")


def test_the_file_shows_what_is_declared_and_what_is_estimated():
    text = Schema.from_toml(PEOPLE).to_toml()
    assert "bounds = [17, 90]                       # declared public" in text
    assert "# bounds = [lower, upper]               # absent: estimated privately with part of the budget" in text
    assert "rows = 32561                            # declared public" in text
    drafted = Schema.draft(pa.schema([("a", pa.string())])).to_toml()
    assert "drafted = true                          # kinds were drafted from the file: confirm them" in drafted
    assert "# rows = 10000                          # absent: a noisy count is used" in drafted
    assert '# categories = ["...", "..."]           # absent: estimated privately with part of the budget' in drafted
    assert '# unit = "..."                          # absent: each row is a privacy unit' in drafted
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
    with pytest.raises(TableError):
        schema.write(path)
    smaller = Schema.from_toml('[columns.a]\nkind = "id"')
    smaller.write(path, force=True)
    assert Schema.read(path) == smaller
    assert os.listdir(tmp_path) == ["people.toml"]
    with pytest.raises(TableError):
        schema.write(tmp_path / "absent" / "people.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(TableError):
        schema.write(tmp_path / "folder.toml", force=True)
    assert sorted(os.listdir(tmp_path)) == ["folder.toml", "people.toml"]


def test_reads_a_file_with_byte_order_mark_and_windows_lines(tmp_path):
    path = tmp_path / "people.toml"
    path.write_bytes(b"\xef\xbb\xbf" + PEOPLE.replace("\n", "\r\n").encode())
    assert Schema.read(path) == Schema.from_toml(PEOPLE)


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
    "integer": pairs(st.integers(-(2**63), 2**63 - 1)),
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
    kind = draw(
        st.sampled_from([kind for kind in KINDS if kind != "location"])
    )  # which is no column: test_locations.py
    facts: dict = {"name": name, "kind": kind, "nullable": draw(st.booleans()), "drop": draw(st.booleans())}
    if kind in BOUNDS:
        facts["bounds"] = draw(st.none() | BOUNDS[kind])
    if kind == "categorical":
        facts["categories"] = draw(st.none() | category_lists)
        if facts["categories"] is not None:
            facts["unknown"] = draw(st.none() | st.sampled_from(facts["categories"]))
            facts["closed"] = facts["unknown"] is None and draw(st.booleans())
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
    facts: dict = {"rows": draw(st.none() | st.integers(1, 2**33)), "drafted": draw(st.booleans())}
    for title in ("name", "responsible", "contact"):
        facts[title] = draw(st.none() | odd_text.filter(lambda text: text.strip() and len(text.splitlines()) == 1))
    unit = draw(st.none() | st.sampled_from(names))
    if unit is not None:
        facts |= {"unit": unit, "max_rows_per_unit": draw(st.integers(1, 50))}
        if not made[names.index(unit)].drop:
            may_share = [column.modelled and column.name != unit for column in made]
            made = [
                dataclasses.replace(column, per_unit=may and draw(st.booleans()))
                for column, may in zip(made, may_share, strict=True)
            ]
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


@settings(max_examples=scaled(150))
@given(schemas())
def test_what_is_written_is_read(schema):
    text = schema.to_toml()
    again = Schema.from_toml(text)
    assert again == schema
    assert deep_types(again.to_dict()) == deep_types(schema.to_dict())
    assert again.to_toml() == text
    assert Schema.from_toml(text.encode().decode()) == schema


@settings(max_examples=scaled(100))
@given(schemas())
def test_json_keeps_everything(schema):
    content = schema.to_dict()
    again = Schema.from_dict(json.loads(json.dumps(content, sort_keys=True)))
    assert again == schema
    assert again.to_dict() == content
    assert again.to_toml() == schema.to_toml()


def test_from_dict_refuses_what_it_does_not_know():
    content = Schema.from_toml(PEOPLE).to_dict()
    with raises(SchemaError, key="rowz"):
        Schema.from_dict({**content, "rowz": 3})
    with raises(SchemaError, column="a", key="kindd"):
        Schema.from_dict({"columns": [{"name": "a", "kindd": "id"}]})
    with raises(SchemaError, key="columns"):
        Schema.from_dict({"columns": {"a": {"kind": "id"}}})


def test_the_example_of_the_page_is_valid():
    page = (Path(__file__).parents[2] / "docs" / "schema.md").read_text()
    examples = [block.split("```")[0] for block in page.split("```toml\n")[1:]]
    assert examples
    for example in examples:
        content = tomllib.loads(example)
        assert Schema.from_toml(example) if "columns" in content else read_rules(content["rules"])
