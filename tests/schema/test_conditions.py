"""SQL conditions, which can do nothing but read columns."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from understudy.errors import ConditionError
from understudy.schema.conditions import filter_where, where_columns

PEOPLE = pa.table(
    {
        "age": [10, 20, None, 70],
        "sex": pa.array(["F", "M", "F", None]).dictionary_encode(),
        "income": [1.5, 2.5, 3.5, 4.5],
        "Born On": [dt.date(2000, 1, 1), dt.date(1990, 1, 1), None, dt.date(1950, 6, 1)],
        "ok": [True, False, None, True],
    }
)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("age > 15", [False, True, False, True]),
        ("AGE > 15", [False, True, False, True]),
        ("sex = 'F' AND income < 3", [True, False, False, False]),
        ("age IS NULL OR sex IS NULL", [False, False, True, True]),
        ("\"Born On\" < DATE '1980-01-01'", [False, False, False, True]),
        ("ok", [True, False, False, True]),
        ("NOT ok", [False, True, False, False]),
        ("lower(sex) LIKE 'f%'", [True, False, True, False]),
        ("income * 2 BETWEEN 4 AND 8", [False, True, True, False]),
        ("CASE WHEN age < 18 THEN true ELSE false END", [True, False, False, False]),
        ("1 = 1 -- always", [True, True, True, True]),
        ('year("Born On") IN (2000, 1950)', [True, False, False, True]),
    ],
)
def test_conditions_are_sql(expression: str, expected: list[bool]) -> None:
    assert filter_where(PEOPLE, expression).tolist() == expected


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("foo = 1", "no column 'foo'"),
        ('sex = "F"', "single quotes"),
        ("age", "expected a condition"),
        ("", "expected a condition|syntax error"),
        ("age =", "syntax error"),
        ("age = 'x'", "Could not convert"),
        ("age IN (SELECT 1)", "subquery is not allowed"),
        ("EXISTS (SELECT * FROM read_csv('/etc/passwd'))", "subquery is not allowed"),
        ("read_text('/etc/passwd') = ''", "read_text is not allowed"),
        ("random() < 0.5", "random is not allowed"),
        ("current_setting('threads') = '1'", "current_setting is not allowed"),
        ("count(*) > 1", "not allowed"),
        ("sum(age) OVER () > 1", "window is not allowed"),
        ("COLUMNS(*) = 1", "star is not allowed"),
        ("age = 1; DROP TABLE t", "syntax error|more than one"),
        ("age = 1); DROP TABLE t; SELECT (1", "Only SELECT"),
        ("age = 1); SELECT (1", "more than one"),
        ("age = 1) GROUP BY (age", "parentheses do not match"),
        ("age = 1) ORDER BY (age", "parentheses do not match"),
        ("age = 1) UNION SELECT (1", "more than one|Cannot use"),
        ("age = $1", "more than one|not allowed"),
    ],
)
def test_conditions_can_do_nothing_else(expression: str, reason: str) -> None:
    with pytest.raises(ConditionError, match=reason) as caught:
        filter_where(PEOPLE, expression)
    assert "\n" not in str(caught.value)


def test_a_bad_condition_names_the_columns() -> None:
    with pytest.raises(ConditionError, match="over the columns age, sex, income, Born On, ok"):
        where_columns("foo = 1", PEOPLE.column_names)


@pytest.mark.parametrize(
    ("expression", "operator", "constants"),
    [
        ("age = 5", "=", (5,)),
        ("5 < age", ">", (5,)),
        ("age <> -5", "<>", (-5,)),
        ("NOT age >= 5", "<", (5,)),
        ("age BETWEEN 1 AND 2", "between", (1, 2)),
        ("age NOT BETWEEN 1 AND 2", "not between", (1, 2)),
        ("sex IN ('F', 'M')", "in", ("F", "M")),
        ("sex NOT IN ('F')", "not in", ("F",)),
        ("sex IS NULL", "is null", ()),
        ("sex IS NOT NULL", "is not null", ()),
        ("income <= 1.5", "<=", (1.5,)),
        ("\"Born On\" >= DATE '2020-01-01'", ">=", (dt.date(2020, 1, 1),)),
        ("\"Born On\" < TIMESTAMP '2020-01-01 10:00:00'", "<", (dt.datetime(2020, 1, 1, 10),)),
        ("ok = true", "=", (True,)),
        ("age = NULL", None, ()),
        ("lower(sex) = 'f'", None, ()),
        ("ok", None, ()),
        ("age = 1 OR age = 2", None, ()),
    ],
)
def test_simple_parts_are_taken_apart(expression: str, operator: str | None, constants: tuple) -> None:
    (part,) = where_columns(expression, PEOPLE.column_names)
    assert (part.operator, part.constants) == (operator, constants)
    assert len(part.columns) == 1


def test_parts_together_are_the_condition() -> None:
    expression = "(age > 5 AND sex = 'F') AND income < age AND (ok OR ok IS NULL)"
    parts = where_columns(expression, PEOPLE.column_names)
    assert [part.columns for part in parts] == [("age",), ("sex",), ("income", "age"), ("ok",)]
    together = np.logical_and.reduce([filter_where(PEOPLE, part.sql) for part in parts])
    assert np.array_equal(together, filter_where(PEOPLE, expression))


def test_conditions_tell_columns_apart_that_differ_by_case() -> None:
    table = pa.table({"A": [1, 2], "a": [2, 1], "x.y": [3, 4]})
    assert filter_where(table, 'A = 1 AND a = 2 AND "x.y" = 3').tolist() == [True, False]


@pytest.mark.parametrize(
    "where",
    [
        "CAST(note AS INTEGER) > 3",
        "strptime(note, '%Y-%m-%d') IS NOT NULL",
        "note::DATE > DATE '2000-01-01'",
        "lower(note)::INTEGER = 3",
    ],
)
def test_a_value_on_which_a_condition_fails_is_not_quoted(where: str) -> None:
    table = pa.table({"note": ["3", "SENTINEL-7261", "4"]})
    with pytest.raises(ConditionError, match="fails on a value of the table") as caught:
        filter_where(table, where)
    assert "7261" not in str(caught.value)


def test_what_is_wrong_with_the_condition_itself_is_said() -> None:
    table = pa.table({"age": [1, 2], "note": ["SENTINEL-7261", "x"]})
    for where, words in [("age > 'many'", "many"), ("age + note > 3", "Binder|No function|Could not")]:
        with pytest.raises(ConditionError, match=words) as caught:
            filter_where(table, where)
        assert "7261" not in str(caught.value)


@pytest.mark.parametrize("where", ["age > 5) OR (age < 3", "true) OR (false", "age > 5))", "((age > 5)"])
def test_parentheses_must_match(where: str) -> None:
    with pytest.raises(ConditionError):
        filter_where(pa.table({"age": [1, 9]}), where)
    with pytest.raises(ConditionError):
        where_columns(where, ["age"])
