"""Schemas of other tools: each format on a small literal example, and what is refused."""

import json
import sys
from datetime import datetime

import pytest

from understudy.errors import SchemaError
from understudy.importers.importers import FORMATS, import_schema
from understudy.schema import Column, Schema

SDV_COLUMNS = {
    "guest_email": {"sdtype": "email", "pii": True},
    "booking": {"sdtype": "id", "regex_format": "[0-9]{6}"},
    "has_rewards": {"sdtype": "boolean"},
    "room_type": {"sdtype": "categorical"},
    "nights": {"sdtype": "numerical", "computer_representation": "Int64"},
    "rate": {"sdtype": "numerical", "computer_representation": "Float"},
    "tip": {"sdtype": "numerical"},
    "checkin": {"sdtype": "datetime", "datetime_format": "%d %b %Y"},
    "seen": {"sdtype": "datetime", "datetime_format": "%Y-%m-%d %H:%M"},
    "changed": {"sdtype": "datetime"},
    "secret": {"sdtype": "unknown"},
}

SMARTNOISE = """
"":
  PUMS:
    people:
      max_ids: 3
      rows: 1000
      row_privacy: false
      sample_max_ids: true
      age:
        type: int
        lower: 0
        upper: 100
        nullable: false
      sex:
        type: string
        cardinality: 2
      income:
        type: float
        lower: 0
        missing_value: 0
      married: {type: boolean}
      seen: {type: datetime, lower: 2020-01-01, upper: 2021-01-01}
      mystery: {type: unknown}
      pid:
        type: int
        private_id: true
"""

DPSYNTH = """
age:
  clip_to_range: true
  dtype: int
  max_value: 50.0
  min_value: 10.0
weight:
  clip_to_range: false
  min_value: 0
  max_value: 250.5
gender:
  out_of_domain_index: 1
  possible_values:
  - M
  - F
code:
  type: CategoricalAttribute
  possible_values: [3, 1, 2]
flag:
  possible_values: [true, false]
maybe:
  possible_values: [null, a, b]
city:
  type: OpenSetCategoricalAttribute
  default_value: <OOD>
town: {}
notes:
  max_tokens: 256
"""


@pytest.fixture
def imported(tmp_path):
    def read(content, format=None, name="schema.any"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return import_schema(path, format).schema

    return read


@pytest.fixture
def refuse(imported):
    def error(content, format=None, name="schema.any"):
        with pytest.raises(SchemaError) as caught:
            imported(content, format, name)
        return caught.value

    return error


@pytest.fixture
def refusal(refuse):
    return lambda *arguments, **named: str(refuse(*arguments, **named))


# SDV


def test_sdv_single_table(imported):
    content = {"METADATA_SPEC_VERSION": "SINGLE_TABLE_V1", "primary_key": "guest_email", "columns": SDV_COLUMNS}
    schema = imported(content)
    assert {column.name: column.kind for column in schema} == {
        "guest_email": "id",
        "booking": "id",
        "has_rewards": "boolean",
        "room_type": "categorical",
        "nights": "integer",
        "rate": "real",
        "tip": "real",
        "checkin": "date",
        "seen": "datetime",
        "changed": "datetime",
        "secret": "text",
    }
    assert schema["checkin"].format == "%d %b %Y"
    assert schema["changed"].format is None
    assert schema["rate"].estimated == "bounds"
    assert schema["room_type"].estimated == "categories"


def test_sdv_tables(imported, refusal):
    tables: dict = {"guests": {"primary_key": ["booking", "nights"], "columns": SDV_COLUMNS}}
    content = {"METADATA_SPEC_VERSION": "V1", "tables": tables, "relationships": []}
    schema = imported(content)
    assert schema["nights"].kind == "id"
    assert schema["guest_email"].kind == "text"
    tables["hotels"] = {"columns": {"city": {"sdtype": "categorical"}}}
    assert "read as sdv: It describes 2 tables (guests, hotels), and a schema describes one" in refusal(content)


# SmartNoise


def test_smartnoise(imported):
    schema = imported(SMARTNOISE, name="people.yaml")
    assert (schema.rows, schema.unit, schema.max_rows_per_unit) == (1000, "pid", 3)
    assert schema.columns == (
        Column(name="age", kind="integer", nullable=False, bounds=(0, 100)),
        Column(name="sex", kind="categorical"),
        Column(name="income", kind="real"),
        Column(name="married", kind="boolean"),
        Column(name="seen", kind="datetime", bounds=(datetime(2020, 1, 1), datetime(2021, 1, 1))),
        Column(name="mystery", kind="text"),
        Column(name="pid", kind="id"),
    )


def test_smartnoise_row_privacy_has_no_unit(imported):
    schema = imported(SMARTNOISE.replace("row_privacy: false", "row_privacy: true"))
    assert (schema.unit, schema.max_rows_per_unit) == (None, 1)
    assert schema["pid"].kind == "id"


def test_smartnoise_refusals(refuse, refusal):
    other = "    visits:\n      day: {type: datetime}\n"
    assert "It describes 2 tables (PUMS.people, PUMS.visits), and a schema describes one" in refusal(SMARTNOISE + other)
    assert "2 columns with private_id" in refusal(SMARTNOISE.replace("type: string", "private_id: true"))
    error = refuse(SMARTNOISE.replace("lower: 0", "lower: 300", 1))
    assert (error.column, error.key) == ("age", "bounds")


# dpsynth


MAYBE = Column(name="maybe", kind="categorical", categories=("a", "b"), closed=True)
"""Null is listed first, so undeclared values become null."""


def test_dpsynth(imported):
    schema = imported(DPSYNTH)
    assert schema.columns == (
        Column(name="age", kind="integer", nullable=False, bounds=(10, 50)),
        Column(name="weight", kind="real", bounds=(0.0, 250.5)),
        Column(name="gender", kind="categorical", nullable=False, categories=("M", "F"), unknown="F"),
        Column(name="code", kind="categorical", nullable=False, categories=(3, 1, 2), unknown=3),
        Column(name="flag", kind="boolean", nullable=False),
        MAYBE,
        Column(name="city", kind="categorical"),
        Column(name="town", kind="categorical"),
        Column(name="notes", kind="text"),
    )


def test_dpsynth_json_and_its_section(imported):
    attributes = {"age": {"type": "NumericalAttribute", "min_value": 0, "max_value": 9, "dtype": "int"}}
    plain = imported(attributes)
    assert plain.columns == (Column(name="age", kind="integer", nullable=False, bounds=(0, 9)),)
    assert imported({"attributes": attributes, "constraints": []}) == plain
    assert imported('{"age": {"min_value": 0, "max_value": Infinity}}')["age"].estimated == "bounds"


def test_dpsynth_refusals(refuse):
    assert refuse(DPSYNTH.replace("index: 1", "index: 7")).key == "out_of_domain_index"
    assert refuse(DPSYNTH.replace("[3, 1, 2]", "[3, x]")).key == "categories"
    assert refuse({"a": {"possible_values": 3}}).key == "possible_values"
    assert refuse({"a": {"possible_values": []}}).key == "categories"


# mbi


def test_mbi(imported, refuse):
    schema = imported({"age": 85, "sex": 2})
    codes = tuple(range(85))
    assert schema["age"] == Column(name="age", kind="categorical", nullable=False, categories=codes, closed=True)
    assert schema["sex"].categories == (0, 1)
    assert imported({"attributes": ["age", "sex"], "shape": [85, 2]}) == schema
    assert refuse({"age": 85, "sex": 0}).column is None
    assert refuse({"age": 85, "sex": 0}, "mbi").column == "sex"


# Detecting


@pytest.mark.parametrize("content", ['{"a": "b"}', "{}", "a: b", "a:\n  b: c", '{"a": true}', '{"tables": {}}'])
def test_unknown_formats_name_the_known_ones(content, refusal):
    message = refusal(content)
    assert "schema.any is not in a known schema format" in message
    assert all(f"{name} ({each.title})" in message for name, each in FORMATS.items())


@pytest.mark.parametrize("content", ["[1, 2]", "3", "just words", ""])
def test_files_that_describe_nothing(content, refusal):
    assert "schema.any does not describe columns" in refusal(content)


def test_a_named_format_is_used(imported, refusal):
    assert imported({"columns": {"a": {"sdtype": "id"}}}, "sdv")["a"].kind == "id"
    assert "There is no schema format 'sdvv'. Did you mean 'sdv'?" in refusal("{}", "sdvv")
    assert "read as sdv: The schema declares no column" in refusal({"age": 85}, "sdv")
    assert "read as smartnoise: It describes 0 tables" in refusal({"age": 85}, "smartnoise")


def test_files_that_cannot_be_parsed(imported, refusal, tmp_path):
    assert "is not valid JSON: Expecting" in refusal('{"a": \n oops}', name="a.json")
    assert "a.yaml is neither JSON nor valid YAML: " in refusal("a: 1\nb: ]\n", name="a.yaml")
    assert "(at line 2). Correct that line." in refusal("a: 1\nb: ]\n")
    assert "needs no import" in refusal('[columns.a]\nkind = "id"', name="a.toml")
    with pytest.raises(SchemaError):
        import_schema(tmp_path / "absent.json")


def test_aliases_that_expand_endlessly_are_refused(refusal):
    pytest.importorskip("yaml")
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]" for at in range(1, 9)]
    for text in ("\n".join([*lines, "age: {type: *a8}", ""]), "age: &age {type: [*age]}\n"):
        assert "aliases that expand to too many values" in refusal(text, name="a.yaml")


def test_yaml_is_an_extra(monkeypatch, imported, refusal):
    monkeypatch.setitem(sys.modules, "yaml", None)  # as if it were not installed
    assert "pip install 'understudy-dp[yaml]'" in refusal(SMARTNOISE)
    assert imported({"age": 85})["age"].kind == "categorical"


def test_what_is_imported_can_be_written(imported):
    for content in (SMARTNOISE, DPSYNTH, {"columns": SDV_COLUMNS}, {"age": 85}):
        schema = imported(content)
        assert Schema.from_toml(schema.to_toml()) == schema


def test_yaml_dates_bound_dates(imported):
    schema = imported("t:\n  d: {type: datetime, lower: 2020-01-01 10:00:00, upper: 2020-01-02}")
    assert schema["d"].bounds == (datetime(2020, 1, 1, 10), datetime(2020, 1, 2))


def test_a_format_of_other_content_is_refused(tmp_path):
    path = tmp_path / "stays.sql"
    path.write_text("CREATE TABLE stays (age INT)")
    import_schema(path, "sql")
    with pytest.raises(SchemaError):
        import_schema(path, "sdv")
