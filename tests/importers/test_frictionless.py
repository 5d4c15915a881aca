"""Table Schemas and Data Packages: every type and constraint, resources, contradictions, and damaged files."""

import copy
import json
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import raises
from tests.examples import scaled
from tests.schema.importing import import_or_complain, import_text
from understudy.errors import SchemaError
from understudy.schema import Column

FIELDS: list[dict] = [
    {"name": "id", "type": "integer"},
    {"name": "age", "type": "integer", "constraints": {"required": True, "minimum": 0, "maximum": 120}},
    {"name": "sex", "type": "string", "constraints": {"enum": ["f", "m"]}},
    {"name": "cost", "type": "number", "constraints": {"minimum": "0", "exclusiveMaximum": 1000}},
    {"name": "seen", "type": "date", "format": "%d.%m.%Y", "constraints": {"minimum": "01.01.2020"}},
    {"name": "month", "type": "yearmonth", "constraints": {"minimum": "2020-01", "maximum": "2024-12"}},
    {"name": "left", "type": "datetime", "format": "default"},
    {"name": "year", "type": "year", "constraints": {"minimum": 1900, "maximum": 2030}},
    {"name": "paid", "type": "boolean", "trueValues": ["Y"], "falseValues": ["N"]},
    {
        "name": "grade",
        "type": "integer",
        "categories": [{"value": 1, "label": "low"}, {"value": 2, "label": "high"}],
        "categoriesOrdered": True,
        "missingValues": ["-9", ""],
    },
    {"name": "town"},
    {"name": "mail", "type": "string", "format": "email"},
    {"name": "key", "type": "string", "format": "uuid"},
    {"name": "lag", "type": "duration"},
    {"name": "what", "type": "any", "constraints": {"enum": [3, 4], "unique": True}},
    {"name": "word", "type": "string", "constraints": {"pattern": "a+", "required": False}},
]
SCHEMA: dict = {"fields": FIELDS, "missingValues": ["", "NA"], "primaryKey": "id", "foreignKeys": [{"fields": "town"}]}
PACKAGE: dict = {
    "profile": "data-package",
    "resources": [
        {"name": "stays", "path": "stays.csv", "schema": SCHEMA, "bytes": 271828, "hash": "sha256:271828"},
        {"name": "wards", "path": "wards.csv", "schema": {"fields": [{"name": "code", "type": "string"}]}},
    ],
}


def test_every_type_and_constraint():
    found = import_text(json.dumps(SCHEMA))
    codes: dict = {"kind": "categorical", "closed": True}
    na: dict = {"missing": ("NA",)}
    assert found.schema.columns == (
        Column(name="id", kind="id", **na),
        Column(name="age", kind="integer", nullable=False, bounds=(0, 120), **na),
        Column(name="sex", categories=("f", "m"), **codes, **na),
        Column(name="cost", kind="real", bounds=(0, 1000), **na),
        Column(name="seen", kind="date", format="%d.%m.%Y", **na),
        Column(name="month", kind="date", format="%Y-%m", bounds=(date(2020, 1, 1), date(2024, 12, 1)), **na),
        Column(name="left", kind="datetime", **na),
        Column(name="year", kind="integer", bounds=(1900, 2030), **na),
        Column(name="paid", kind="boolean", format="N/Y", **na),
        Column(name="grade", categories=(1, 2), ordinal=True, missing=("-9",), **codes),
        Column(name="town", kind="categorical", **na),
        Column(name="mail", kind="text"),
        Column(name="key", kind="id", **na),
        Column(name="lag", kind="text"),
        Column(name="what", categories=(3, 4), **codes),
        Column(name="word", kind="categorical", **na),
    )
    assert [rule.text for rule in found.schema.rules] == ["cost < 1000.0", "seen >= DATE '2020-01-01'"]
    assert found.comments == {"grade": "1 = low, 2 = high"}
    assert found.schema.drafted  # for the column of type any
    written = found.to_toml()
    for line in ("foreignKeys (town)", 'unique of column "what"', 'pattern of column "word"', 'values of column "lag"'):
        assert f"# - {line}" in written or f"# - the {line}" in written


def test_one_of_several_resources():
    found = import_text(json.dumps(PACKAGE), table="stays")
    assert found == import_text(json.dumps(SCHEMA))
    assert "271828" not in found.to_toml()
    with pytest.raises(SchemaError, match=r"describes 2 tables \(stays, wards\).*--table NAME"):
        import_text(json.dumps(PACKAGE))
    resource = PACKAGE["resources"][1]
    assert import_text(json.dumps(resource)).schema.names == ("code",)
    elsewhere = {"resources": [{"name": "a", "schema": "a.json"}]}
    with pytest.raises(SchemaError, match=r'in another file, "a.json"'):
        import_text(json.dumps(elsewhere))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"type": "integer", "constraints": {"minimum": 9, "maximum": 1}}, 'limit 9 (minimum of column "a") is above'),
        ({"type": "integer", "constraints": {"enum": [1, 5], "maximum": 3}}, "the category 5 is outside the limits"),
        ({"constraints": {"enum": ["x", "x"]}}, "the code 'x' is listed more than once"),
        ({"constraints": {"enum": []}}, "must have at least one value"),
        ({"type": "intger"}, "has the type \"intger\", which is unknown. Did you mean 'integer'?"),
        ({"type": 3}, "has the type 3, which is unknown"),
        ({"missingValues": "NA"}, "missingValues must be a list"),
        ({"name": ""}, "A field has no name"),
    ],
)
def test_contradictions_and_unknown_types(field, message):
    with pytest.raises(SchemaError) as error:
        import_text(json.dumps({"fields": [{"name": "a"} | field]}), "frictionless")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_two_fields_of_the_same_name():
    with raises(SchemaError, column="a"):
        import_text(json.dumps({"fields": [{"name": "a"}, {"name": "a"}]}))


WITHOUT_RULES: dict = SCHEMA | {"fields": [field for field in FIELDS if field["name"] not in ("cost", "seen")]}
"""Rules start a database engine, and damage is quicker without it."""

JUNK = st.sampled_from([None, True, -1, 0, 2.5, 1e999, "", "x", "%", [], [1, "a"], {}, {"value": None}, "9" * 400])


@settings(max_examples=scaled(100))
@given(
    st.integers(0, len(FIELDS) - 3),
    st.sampled_from(["name", "type", "format", "constraints", "categories"]),
    JUNK,
    st.data(),
)
def test_a_damaged_schema_is_a_schema_or_refused(at, key, value, data):
    damaged = copy.deepcopy(WITHOUT_RULES)
    field = damaged["fields"][at]
    constraints = field.get("constraints", {})
    if key == "constraints" and data.draw(st.booleans()):
        inner = data.draw(st.sampled_from(["minimum", "maximum", "enum", "required", *constraints]))
        field["constraints"] = constraints | {inner: value}
    else:
        field[key] = value
    import_or_complain(json.dumps(damaged), "frictionless")
