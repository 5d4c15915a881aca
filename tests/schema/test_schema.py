"""The schema of a table: its keys, what they refuse, and which tables match."""

import dataclasses
from datetime import UTC, date, datetime

import pytest

from tests.builders import raises
from tests.schema.schema_examples import PEOPLE
from understudy.errors import SchemaError
from understudy.schema import KINDS, Column, Schema, match_columns


def test_reads_every_key():
    schema = Schema.from_toml(PEOPLE)
    assert schema.names == ("person_id", "age", "workclass", "income", "seen", "born", "weight", "notes")
    assert (schema.rows, schema.unit, schema.max_rows_per_unit) == (32561, "person_id", 3)
    assert (schema.target, schema.positive, schema.drafted) == ("income", ">50K", False)
    declared = ("Census 1994", "Jane Doe, Census Bureau", "census@example.org")
    assert (schema.name, schema.responsible, schema.contact) == declared
    assert schema["age"] == Column(name="age", kind="integer", bounds=(17, 90))
    assert schema["workclass"].unknown == "Other"
    assert schema["income"].closed
    assert not schema["workclass"].nullable
    assert schema["born"].bounds == (date(1900, 1, 1), date(2020, 12, 31))
    assert schema["born"].format == "%d.%m.%Y"
    assert schema["seen"].bounds == (datetime(2019, 12, 31, 22, tzinfo=UTC), datetime(2020, 12, 31, 22, tzinfo=UTC))
    assert [column.name for column in schema] == list(schema.names)
    assert "age" in schema
    assert "wage" not in schema


def test_says_what_is_not_declared_and_what_is_modelled():
    schema = Schema.from_toml(PEOPLE)
    assert {column.name: column.estimated for column in schema if column.estimated} == {"weight": "bounds"}
    assert [column.name for column in schema.modelled] == ["age", "workclass", "income", "seen", "born", "weight"]
    assert Column(name="x", kind="categorical").estimated == "categories"
    assert Column(name="x", kind="categorical", drop=True).estimated is None
    assert Column(name="x", kind="boolean").estimated is None
    assert all(Column(name="x", kind=kind).modelled == (kind not in ("text", "id")) for kind in KINDS)


def test_the_unit_becomes_an_identifier_whatever_was_declared():
    """A unit with an innocent kind must not be modelled by mistake."""
    schema = Schema.from_toml('[table]\nunit = "who"\n[columns.who]\nkind = "integer"\nbounds = [1, 9]')
    assert schema["who"] == Column(name="who", kind="id")
    assert schema.modelled == ()


@pytest.mark.parametrize(
    ("key", "table"),
    [
        ("rows", "rows = 0"),
        ("rows", "rows = 1.5"),
        ("rows", "rows = true"),
        ("name", "name = 3"),
        ("name", 'name = " "'),
        ("responsible", 'responsible = "Jane\\nDoe"'),
        ("contact", 'contact = ["a@b"]'),
        ("unit", 'unit = "persn"'),
        ("unit", "unit = 3"),
        ("max_rows_per_unit", "max_rows_per_unit = 1"),
        ("max_rows_per_unit", 'unit = "person"\nmax_rows_per_unit = 0'),
        ("target", 'target = "sexx"'),
        ("target", 'target = "note"'),
        ("target", 'target = "gone"'),
        ("target", 'unit = "person"\ntarget = "person"'),
        ("positive", 'positive = "F"'),
        ("positive", 'target = "sex"\npositive = "f"'),
        ("positive", 'target = "flag"\npositive = 1'),
        ("positive", 'target = "age"\npositive = [1]'),
        ("row", "row = 3"),
        ("drafted", "drafted = 1"),
    ],
)
def test_a_bad_key_of_the_table_is_named(key, table):
    columns = """
    columns.person.kind = "categorical"
    columns.age.kind = "integer"
    columns.flag.kind = "boolean"
    columns.sex = { kind = "categorical", categories = ["F", "M"] }
    columns.note.kind = "text"
    columns.gone = { kind = "integer", drop = true }
    [table]
    """
    with pytest.raises(SchemaError) as caught:
        Schema.from_toml(columns + table)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("table", "columns", "words"),
    [
        ("", "columns.sex.per_unit = true", "needs [table] unit, the column that identifies the unit. Add unit, or"),
        ('unit = "who"', "columns.who.per_unit = true", "this is the unit column itself, which has one value per unit"),
        ('unit = "who"', "columns.note.per_unit = true", "the column has kind 'text' and so is not modelled. Remove"),
        ('unit = "who"', "columns.card.per_unit = true", "the column has kind 'id' and so is not modelled. Remove"),
        (
            'unit = "who"',
            "columns.sex = { per_unit = true, drop = true }",
            "the column is dropped and so is not modelled",
        ),
        (
            'unit = "who"',
            "columns.who.drop = true\ncolumns.sex.per_unit = true",
            "the unit column 'who' is dropped, so",
        ),
        ('unit = "who"', "columns.sex.per_unit = 1", "expected true or false, found 1."),
    ],
)
def test_per_unit_where_it_cannot_be(table, columns, words):
    kinds = {"who": "integer", "sex": "boolean", "note": "text", "card": "id"}
    lines = [f'columns.{name}.kind = "{kind}"' for name, kind in kinds.items() if f"{name} = {{" not in columns]
    with pytest.raises(SchemaError) as caught:
        Schema.from_toml("\n".join([*lines, columns, "[table]", table]))
    assert caught.value.key == "per_unit"
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rows_are_linked_where_units_own_several_and_have_ids():
    columns = (Column(name="who", kind="id"), Column(name="sex", kind="boolean", per_unit=True))
    assert Schema(columns=columns, unit="who", max_rows_per_unit=2).links_rows
    assert not Schema(columns=columns, unit="who").links_rows
    without_ids = (Column(name="who", kind="id", drop=True), Column(name="sex", kind="boolean"))
    assert not Schema(columns=without_ids, unit="who", max_rows_per_unit=2).links_rows
    assert not Schema(columns=without_ids).links_rows


def test_messages_of_the_table():
    def message(table: str) -> str:
        with pytest.raises(SchemaError) as caught:
            Schema.from_toml(f'columns.sex = {{ kind = "categorical", categories = ["F", "M"] }}\n[table]\n{table}')
        return str(caught.value)

    assert message("rows = 0") == "The schema: [table] rows must be an integer from 1 to 8,589,934,592, found 0."
    assert message('target = "sexx"') == (
        "The schema: [table] target is \"sexx\", but there is no such column. Did you mean 'sex'?"
        " Name a column of the table, or remove target."
    )
    assert message('target = "sex"\npositive = "f"') == (
        'The schema: [table] positive is "f", which is not one of the categories of the target \'sex\': "F", "M".'
        " Did you mean 'F'?"
    )
    assert "[table] has the unknown key 'row'. Did you mean 'rows'?" in message("row = 3")


def test_names_that_are_refused_in_python():
    twice = (Column(name="a", kind="id"), Column(name="a", kind="real"))
    with raises(SchemaError, column="a"):
        Schema(columns=twice)
    with raises(SchemaError, key="max_rows_per_unit"):
        Schema(columns=twice[:1], max_rows_per_unit=2)
    with raises(SchemaError, column="agee"):
        Schema.from_toml(PEOPLE)["agee"]


def test_a_changed_copy_is_checked_again():
    schema = Schema.from_toml(PEOPLE)
    assert schema.with_target("income").positive == ">50K"
    assert schema.with_target("age").positive is None
    assert schema.with_target("workclass", "Private").positive == "Private"
    assert schema.with_target(None).target is None
    with raises(SchemaError, column="incom", key="target"):
        schema.with_target("incom")
    with pytest.raises(SchemaError) as caught:
        dataclasses.replace(schema, rows=0)
    assert caught.value.key == "rows"


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
        ' Add a [columns."home town"] section with a kind, or with drop = true to leave it out.'
    )
    assert "'sex' is in the schema but not in the table. Did you mean 'Sex'?" in message(["age", "Sex"])
    assert "'Sex' is in the table but not in the schema. Did you mean 'sex'?" in message(["age", "Sex"])
    assert "Columns 'age', 'sex' are in the schema" in message(["other"])
    assert 'Duplicate column names in the table: "age"' in message(["age", "age", "sex"])


def test_a_dropped_unit_must_be_there():
    schema = Schema.from_toml('table.unit = "who"\ncolumns.who = {drop = true}\ncolumns.a.kind = "boolean"')
    with pytest.raises(SchemaError) as caught:
        match_columns(schema, ["a"])
    assert caught.value.column == "who"
