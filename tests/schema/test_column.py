"""One column: what its keys accept and refuse."""

import json
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from understudy.errors import SchemaError
from understudy.schema import Bound, Column, Schema


def bounds_of(column: Column) -> tuple[Bound, Bound]:
    assert column.bounds is not None
    return column.bounds


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
    numpy_bounds = bounds_of(Column(name="x", kind="integer", bounds=(np.int64(1), np.int64(2))))  # type: ignore[arg-type]  # not an `int` to mypy
    assert [type(bound) for bound in numpy_bounds] == [int, int]


@pytest.mark.parametrize("categories", [["a", "b"], [1, 2], [0.5, 1.0], [True, False]])
def test_categories_of_each_type(categories):
    column = Column(name="x", kind="categorical", categories=categories)
    assert column.categories == tuple(categories)
    again = Schema.from_toml(Schema(columns=(column,)).to_toml())["x"]
    assert [type(value) for value in again.categories or ()] == [type(value) for value in categories]


def test_zones_become_offsets_that_toml_can_write():
    zone = ZoneInfo("Europe/Amsterdam")
    bounds = (datetime(1900, 1, 1, tzinfo=zone), datetime(2020, 7, 1, 12, 30, 0, 5, tzinfo=zone))
    schema = Schema(columns=(Column(name="t", kind="datetime", bounds=bounds),))
    assert schema["t"].bounds == bounds
    assert Schema.from_toml(schema.to_toml()) == schema
    upper = bounds_of(schema["t"])[1]
    assert isinstance(upper, datetime)
    assert upper.utcoffset() == timedelta(hours=2)


def refuse(lines: str) -> SchemaError:
    """The error for a column `x` with these lines."""
    with pytest.raises(SchemaError) as caught:
        Schema.from_toml(f"[columns.x]\n{lines}")
    assert caught.value.column == "x"
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        ("kind", 'kind = "categorial"'),
        ("kind", 'kind = "zzz"'),
        ("kind", "kind = 3"),
        ("kind", "nullable = true"),
        ("bound", 'kind = "integer"\nbound = [1, 2]'),
        ("bounds", 'kind = "integer"\nbounds = [9, 1]'),
        ("bounds", 'kind = "integer"\nbounds = [1, 1]'),
        ("bounds", 'kind = "real"\nbounds = [nan, 1.0]'),
        ("bounds", 'kind = "real"\nbounds = [0.0, inf]'),
        ("bounds", 'kind = "real"\nbounds = [true, 2.0]'),
        ("bounds", 'kind = "integer"\nbounds = [0.5, 2]'),
        ("bounds", 'kind = "integer"\nbounds = [-inf, 2]'),
        ("bounds", 'kind = "integer"\nbounds = [1]'),
        ("bounds", 'kind = "integer"\nbounds = 3'),
        ("bounds", 'kind = "date"\nbounds = [1, 2]'),
        ("bounds", 'kind = "date"\nbounds = [2020-01-01T00:00:00, 2021-01-01]'),
        ("bounds", 'kind = "date"\nbounds = ["soon", "later"]'),
        ("bounds", 'kind = "datetime"\nbounds = [1, 2]'),
        ("bounds", 'kind = "datetime"\nbounds = [2020-01-01T00:00:00Z, 2021-01-01T00:00:00]'),
        ("bounds", 'kind = "categorical"\nbounds = [1, 2]'),
        ("bounds", 'kind = "boolean"\nbounds = [0, 1]'),
        ("categories", 'kind = "categorical"\ncategories = []'),
        ("categories", 'kind = "categorical"\ncategories = ["a", "b", "a"]'),
        ("categories", 'kind = "categorical"\ncategories = [0.0, -0.0]'),
        ("categories", 'kind = "categorical"\ncategories = ["a", 1]'),
        ("categories", 'kind = "categorical"\ncategories = [1, 2.5]'),
        ("categories", 'kind = "categorical"\ncategories = [true, 1]'),
        ("categories", 'kind = "categorical"\ncategories = [nan]'),
        ("categories", 'kind = "categorical"\ncategories = [["a"]]'),
        ("categories", 'kind = "categorical"\ncategories = "a"'),
        ("categories", 'kind = "categorical"\ncategories = {a = 1}'),
        ("categories", 'kind = "boolean"\ncategories = [true]'),
        ("categories", 'kind = "integer"\ncategories = [1]'),
        ("unknown", 'kind = "categorical"\ncategories = ["Other"]\nunknown = "other"'),
        ("unknown", 'kind = "categorical"\ncategories = [1]\nunknown = true'),
        ("closed", 'kind = "categorical"\ncategories = ["a"]\nclosed = 1'),
        ("closed", 'kind = "categorical"\nclosed = true'),
        ("closed", 'kind = "integer"\nclosed = true'),
        ("closed", 'kind = "categorical"\ncategories = ["a"]\nunknown = "a"\nclosed = true'),
        ("unknown", 'kind = "categorical"\nunknown = "a"'),
        ("nullable", 'kind = "integer"\nnullable = 1'),
        ("drop", 'kind = "integer"\ndrop = "yes"'),
        ("format", 'kind = "date"\nformat = 3'),
        ("format", 'kind = "date"\nformat = ""'),
        ("format", 'kind = "date"\nformat = "dd.mm.yyyy"'),
        ("format", 'kind = "integer"\nformat = "%d"'),
        ("format", 'kind = "boolean"\nformat = "yes"'),
        ("format", 'kind = "boolean"\nformat = "n/n"'),
        ("format", 'kind = "boolean"\nformat = "no/ yes"'),
        ("format", 'kind = "boolean"\nformat = "/yes"'),
        ("format", 'kind = "boolean"\nformat = "a/b/c"'),
        ("format", 'kind = "boolean"\nformat = ""'),
        ("decimals", 'kind = "integer"\ndecimals = 2'),
        ("decimals", 'kind = "real"\ndecimals = -1'),
        ("decimals", 'kind = "real"\ndecimals = 16'),
        ("decimals", 'kind = "real"\ndecimals = true'),
        ("decimals", 'kind = "real"\ndecimals = 2.0'),
    ],
)
def test_a_bad_key_is_named(key, lines):
    assert refuse(lines).key == key


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            'kind = "zzz"',
            "kind: expected one of categorical, integer, real, boolean, datetime, date, location, text, id; found"
            " 'zzz'.",
        ),
        ('kind = "integer"\nbounds = 3', "bounds: expected a list [lower, upper], found 3."),
        (
            'kind = "integer"\nbounds = [9, 1]',
            "bounds: the lower bound must be less than the upper bound, found [9, 1]. Swap them.",
        ),
        (
            'kind = "boolean"\nbounds = [0, 1]',
            "bounds: only for kind integer or real or datetime or date, found kind 'boolean'. Remove bounds, or change"
            " the kind.",
        ),
        ('kind = "categorical"\ncategories = ["a", "b", "a"]', 'categories: "a" listed more than once. Keep one.'),
        (
            'kind = "categorical"\ncategories = ["a", 1]',
            "categories: expected all strings, all integers, all floats or all booleans; found int and str. Write them"
            " all in one type.",
        ),
        (
            'kind = "date"\nformat = "dd.mm.yyyy"',
            'format: expected a strptime format such as "%d.%m.%Y", found "dd.mm.yyyy".',
        ),
    ],
)
def test_messages(lines, message):
    assert str(refuse(lines)) == f"The schema: Column 'x', {message}"


@pytest.mark.parametrize(
    ("kind", "meant"), [("categorial", "categorical"), ("float", "real"), ("string", "categorical"), ("int", "integer")]
)
def test_kinds_of_other_tools_are_recognised(kind, meant):
    assert str(refuse(f'kind = "{kind}"')).endswith(f" Did you mean {meant!r}?")


def test_hints_at_the_nearest_category():
    error = refuse('kind = "categorical"\ncategories = ["Other"]\nunknown = "other"')
    assert "found \"other\". Did you mean 'Other'?" in str(error)


def test_odd_names_in_python():
    Column(name="3", kind="id")
    with pytest.raises(SchemaError):
        Column(name=3, kind="id")  # type: ignore[arg-type]  # a wrong type
    with pytest.raises(SchemaError):
        Column(name="\ud800", kind="id")


def test_undeclared_values_have_a_category_of_their_own_unless_the_list_is_closed():
    def column(*categories, **keys):
        made = Column(name="x", kind="categorical", categories=categories, **keys)
        return made.listed, made.replacement

    assert column("a", "b") == (("a", "b", "other"), "other")
    assert column("a", "b", nullable=False) == (("a", "b", "other"), "other")
    assert column("a", "b", unknown="b") == (("a", "b"), "b")
    assert column("a", "b", closed=True) == (("a", "b"), None)
    assert column("a", "b", closed=True, nullable=False) == (("a", "b"), "a")
    # A declared category of that name takes the role.
    assert column("other", "a") == (("other", "a"), "other")
    assert column("a", "Other") == (("a", "Other"), "Other")
    assert column("Other", "other", "a") == (("Other", "other", "a"), "other")
    # "other" cannot be a number or a boolean: it is a null.
    assert column(1, 2) == ((1, 2), None)
    assert column(1, 2, nullable=False) == ((1, 2, None), None)
    assert column(True, False, nullable=False) == ((True, False, None), None)
    assert column(1, 2, nullable=False, closed=True) == ((1, 2), 1)
    assert Column(name="x", kind="categorical").listed is None
