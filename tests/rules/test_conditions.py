"""SQL conditions, which can do nothing but read columns."""

import datetime as dt
import math
import subprocess
import sys

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import scaled
from understudy.errors import ConditionError
from understudy.rules.conditions import (
    Assignment,
    Order,
    check_condition,
    compute,
    condition_columns,
    filter_where,
    parts,
    truth,
    where_columns,
)
from understudy.rules.sql import compute_sql, sandbox

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


# -------------------------------------------------------------------------------------------------- conditions of rules


def three_valued(table: pa.Table, expression: str) -> list[bool | None]:
    is_true, is_false = truth(table, expression)
    assert not (is_true & is_false).any()
    return [True if yes else False if no else None for yes, no in zip(is_true, is_false, strict=True)]


EARLIEST = -(2**63)
"""In microseconds, a moment whose conversion to text ends DuckDB's engine: no later query of it has an answer."""
FAILING = [
    "CAST(note AS INTEGER) > 3",
    "CAST(note AS INTEGER) IN (7, 8, 9, 10, 11, 12, 13)",  # the optimizer makes a join of long lists
    "note IN ('7', number)",
    "nullif(CAST(note AS INTEGER), 7) IS NULL",
    "CASE WHEN note <> 'x' THEN CAST(note AS INTEGER) = 7 ELSE true END",
    "note <> 'x' AND CAST(note AS INTEGER) = 7",
    "note = 'x' OR CAST(note AS INTEGER) = 7",
    "number + number > 0",
    "number * number >= 0",
    "7 % number = 1",
    "number << 60 > 0",
    "strptime(note, '%Y') > TIMESTAMP '2000-01-01'",
    "note::DATE > DATE '2000-01-01'",
    "DATE '2000-01-01' + CAST(number AS INTEGER) > DATE '2010-01-01'",
    "regexp_matches('x', note)",
    "chr(CAST(number AS INTEGER)) = 'x'",
    "sqrt(number) > 2 AND ln(number) > 1",
    "CAST(real AS TINYINT) = 3",
    "real > 0.5 AND note <> 'x'",
    "moment > TIMESTAMP '2000-01-01'",
    "moment + INTERVAL 1 YEAR > TIMESTAMP '2000-01-01'",
    "CAST(instant AS VARCHAR) > '2'",  # ends DuckDB's engine
]


def odd_rows() -> pa.Table:
    """Values on which something fails."""
    return pa.table(
        {
            "note": ["7", "x", None, "", "(", "2020-01-01", "1e400", "7", "\x00", "[1"],
            "number": pa.array([1, 2**62, -(2**63), 0, None, 7, 2**31, -1, 2**63 - 1, 3], pa.int64()),
            "real": [1.5, math.nan, math.inf, -math.inf, None, 300.0, -0.0, 1e308, 5e-324, 3.0],
            "moment": pa.array([0, 2**62, -(2**63) + 1, None, 1, 2, 3, 10**18, -1, 9], pa.timestamp("s", "UTC")),
            "instant": pa.array([0, 1, None, EARLIEST, 2**60, 5, EARLIEST, 9, 9, 10**15], pa.timestamp("us")),
        }
    )


@pytest.mark.parametrize("expression", FAILING)
def test_the_truth_of_a_row_is_its_own(expression: str) -> None:
    """Rows one by one are the oracle, for 5,000 rows among which those that fail are few."""
    odd, rng = odd_rows(), np.random.default_rng(0)
    alone = [three_valued(odd.slice(i, 1), expression)[0] for i in range(odd.num_rows)]
    assert three_valued(odd, expression) == alone
    index = np.where(rng.random(5000) < 0.002, rng.integers(0, odd.num_rows, 5000), 0)
    assert three_valued(odd.take(pa.array(index)), expression) == [alone[i] for i in index]


@pytest.mark.parametrize("num_rows", [1, 2, 30])
def test_a_value_that_ends_the_engine_is_null_and_nothing_else_is(num_rows: int) -> None:
    """Also for whatever uses DuckDB next."""
    instants = np.full(num_rows, 10**15)
    instants[num_rows // 2] = EARLIEST
    table = pa.table({"instant": pa.array(instants, pa.timestamp("us")), "x": np.arange(num_rows)})
    expected: list[bool | None] = [True] * num_rows
    expected[num_rows // 2] = None
    assert three_valued(table, "CAST(instant AS VARCHAR) > '2'") == expected
    assert three_valued(table, "x < 3") == [x < 3 for x in range(num_rows)]
    assert compute(table, "length(CAST(instant AS VARCHAR))").to_pylist() == [19 if yes else None for yes in expected]
    assert compute(table, "x + 1").to_pylist() == list(range(1, num_rows + 1))
    for _ in range(2):
        with pytest.raises(ConditionError, match="fails on a value of the table"):
            filter_where(table, "CAST(instant AS VARCHAR) > '2'")
        assert filter_where(table, "x < 3").tolist() == [x < 3 for x in range(num_rows)]
    with pytest.raises(duckdb.FatalException):
        compute_sql("CAST(v AS VARCHAR)", table.column("instant").combine_chunks())
    assert compute_sql("v + 1", pa.array([1, 2])).to_pylist() == [2, 3]


def test_an_engine_that_ended_is_not_used_again() -> None:
    rows = pa.table({"v": pa.array([EARLIEST], pa.timestamp("us"))})
    for optimized in (False, True):
        with pytest.raises(duckdb.FatalException), sandbox(optimized=optimized) as connection:
            connection.from_arrow(rows).project("CAST(v AS VARCHAR)").fetchall()
        with sandbox(optimized=optimized) as connection:
            assert connection.sql("SELECT 1").fetchall() == [(1,)]


def test_an_ordinary_error_keeps_the_engine() -> None:
    with sandbox() as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS x")
    with pytest.raises(duckdb.ConversionException), sandbox() as connection:
        connection.execute("SELECT CAST('x' AS INTEGER)")
    with sandbox() as connection:
        assert connection.execute("FROM kept").fetchall() == [(1,)]
        connection.execute("DROP TABLE kept")


def test_a_comparison_that_fails_does_not_hide_one_that_is_false() -> None:
    table = pa.table({"note": ["x", "x", "7"], "age": [1, 9, 9]})
    assert three_valued(table, "CAST(note AS INTEGER) = 7 AND age > 5") == [False, None, True]
    assert three_valued(table, "NOT (CAST(note AS INTEGER) = 7 AND age > 5)") == [True, None, False]


def test_nan_is_null_and_nulls_are_neither() -> None:
    assert three_valued(pa.table({"x": [1.0, math.nan, None, 0.0]}), "x > 0.5") == [True, None, None, False]


def test_conditions_without_columns_hold_for_all_rows() -> None:
    assert three_valued(pa.table({"x": [1, 2]}), "1 = 1") == [True, True]
    assert three_valued(pa.table({"x": pa.array([], pa.int64())}), "x > 1 OR 1 = 1") == []


@given(st.lists(st.tuples(st.none() | st.text(max_size=4), st.none() | st.integers(-(2**63), 2**63 - 1)), max_size=8))
@settings(max_examples=scaled(50))
def test_no_value_raises_an_error(rows: list[tuple[str | None, int | None]]) -> None:
    table = pa.table(
        {"note": pa.array([row[0] for row in rows], pa.string()), "n": pa.array([row[1] for row in rows], pa.int64())}
    )
    for expression in ("CAST(note AS INTEGER) > n * 2", "note::DATE > DATE '2000-01-01' OR n - 1 < 0"):
        assert three_valued(table, expression) == [
            three_valued(table.slice(i, 1), expression)[0] for i in range(len(rows))
        ]
    assert len(compute(table, "CAST(note AS INTEGER) + n", pa.int16())) == len(rows)


def test_computed_values_are_cast_or_null() -> None:
    table = pa.table({"note": ["1", "x", "300", None], "b": [1, 2, 3, 4]})
    assert compute(table, "CAST(note AS INTEGER) + b").to_pylist() == [2, None, 303, None]
    assert compute(table, "CAST(note AS INTEGER) + b", pa.int8()).to_pylist() == [2, None, None, None]
    assert compute(table, "note", pa.date32()).to_pylist() == [None] * 4
    dictionary = pa.dictionary(pa.int32(), pa.string())
    assert compute(table, "note", dictionary).type == dictionary
    assert compute(table, "DATE '2020-01-31' + INTERVAL 1 MONTH", pa.date32()).to_pylist() == [dt.date(2020, 2, 29)] * 4


TYPES = pa.schema({"age": pa.int64(), "note": pa.string(), "born": pa.date32()})


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("age", "has type int64"),
        ("age + 1", "has type int64"),
        ("age > 'many'", "many"),
        ("note::DATE > 'soon'", "soon"),
        ("regexp_matches(note, '(')", "missing"),
        ("age + note > 3", "No function|Could not|Binder"),
        ("height > 3", "no column 'height'"),
        ("now() > born", "changes with time"),
        ("today() > born", "changes with time"),
        ("current_date > born", "changes with time"),
        ("CURRENT_TIMESTAMP > born", "changes with time"),
        ("age(born) > INTERVAL 18 YEAR", "changes with time"),
        ("repeat(note, age) = 'x'", "repeat is not allowed in a rule. Known functions are abs, .* yearweek. Write"),
        ("random() > 0.5", "not allowed in a rule"),
        ("make_timestamp(age) > born", "not allowed in a rule"),
        ("lowr(note) = 'x'", "lowr is not allowed in a rule. Did you mean 'lower'[?] Write"),
        ("note::JSON IS NOT NULL", "the type JSON is not allowed in a rule"),
        ("CAST(note AS INTEGER[]) IS NOT NULL", "the type list is not allowed in a rule"),
    ],
)
def test_conditions_that_no_rule_may_have(expression: str, words: str) -> None:
    with pytest.raises(ConditionError, match=words) as caught:
        check_condition(expression, TYPES)
    assert "\n" not in str(caught.value)


def test_conditions_that_a_rule_may_have() -> None:
    for expression in (
        "age > 18",
        "born < DATE '2000-01-01' AND note LIKE 'a%'",
        "age(DATE '2020-01-01', born) > INTERVAL 1 DAY",
        "note NOT LIKE 'a%' ESCAPE '!' AND note[1] <> 'b' AND note SIMILAR TO 'c+' AND note IN ['d', 'e']",
        "EXTRACT(year FROM born) % 4 = 0 OR born + INTERVAL 3 MONTH > TIMESTAMP '2000-01-01 10:00:00'",
        "coalesce(CAST(note AS int4), ifnull(age, 2), nullif(age, 3)) // 2 = 1 AND trim(note) || 'x' <> ''",
    ):
        check_condition(expression, TYPES)


DEEP = {
    "NOT": lambda n: "NOT (" * n + "age = 1" + ")" * n,
    "functions": lambda n: "lower(" * n + "note" + ")" * n + " = 'x'",
    "sums": lambda n: " + ".join(["age"] * n) + " > 1",
    "CASE": lambda n: "CASE WHEN age = 1 THEN 1 ELSE " * n + "2" + " END" * n + " = 1",
    "AND in NOT": lambda n: "NOT (age = 1 AND " * n + "age = 2" + ")" * n,
    "parentheses": lambda n: "(" * n + "age = 1" + ")" * n,
}


@pytest.mark.parametrize("shape", DEEP)
def test_conditions_that_are_nested_too_deeply_are_refused(shape: str) -> None:
    refused = []
    for depth in (100, 150, 200, 300, 450, 900, 3000):
        expression, message = DEEP[shape](depth), ""
        try:
            check_condition(expression, TYPES)
            parts(expression, TYPES)
        except ConditionError as error:
            message = str(error)
        refused.append(message != "")
        assert "\n" not in message
    assert refused == sorted(refused)
    assert refused[-1]


@pytest.mark.parametrize("shape", DEEP)
def test_conditions_that_are_nested_as_deeply_as_people_write_them(shape: str) -> None:
    expression = DEEP[shape](70)
    check_condition(expression, TYPES)
    parts(expression, TYPES)
    table = pa.table({"age": [1, 2, None], "note": ["x", "y", None], "born": pa.nulls(3, pa.date32())})
    assert three_valued(table, expression)[0] is not None


def test_a_column_may_be_called_like_a_function_of_time() -> None:
    check_condition("current_date > 3", pa.schema({"current_date": pa.int64()}))


def test_the_columns_of_a_condition_are_as_written() -> None:
    assert condition_columns('Age > 3 AND "born on" IS NULL AND age < 9') == ("Age", "born on", "age")


def test_the_schema_package_does_not_load_duckdb() -> None:
    code = "import sys, understudy.schema; sys.exit('duckdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------------------------------------------------------- parts


ORDERS = [
    ("a >= b", Order("a", "b")),
    ("b < a", Order("a", "b", True)),
    ("NOT (a < b)", Order("a", "b")),
    ("a - b >= 7", Order("a", "b", False, 7)),
    ("3 < a - b", Order("a", "b", True, 3)),
    ("a >= b + 7", Order("a", "b", False, 7)),
    ("a >= 7 + b - 2", Order("a", "b", False, 5)),
    ("a - 7 > b", Order("a", "b", True, 7)),
    ("-b >= 3 - a", Order("a", "b", False, 3)),
    ("a - b <= 7", Order("b", "a", False, -7)),
    ("a > b + 0.5", Order("a", "b", True, 0.5)),
]
NO_ORDERS = ["a <> b", "a >= 2 * b", "a + b >= 3", "a >= a + 1", "a >= 5", "a >= b OR a < 3", "abs(a) >= b", "a = b"]


@pytest.mark.parametrize(("expression", "order"), ORDERS)
def test_orders_of_two_columns(expression: str, order: Order) -> None:
    """The order has the truth of the condition, for all pairs of small numbers."""
    (part,) = parts(expression, ["a", "b"])
    assert part.order == order
    assert part.assignment is None
    a, b = (each.ravel() for each in np.meshgrid(np.arange(-12, 13), np.arange(-12, 13)))
    rows = {"a": a, "b": b}
    assert not isinstance(order.offset, dt.timedelta)
    greater, least = rows[order.greater], rows[order.lesser] + order.offset
    expected = greater > least if order.strict else greater >= least
    assert np.array_equal(truth(pa.table(rows), expression)[0], expected)


@pytest.mark.parametrize("expression", NO_ORDERS)
def test_other_conditions_are_no_order(expression: str) -> None:
    assert [part.order for part in parts(expression, ["a", "b"])] == [None]


@pytest.mark.parametrize(
    ("expression", "order"),
    [
        ("a >= b + INTERVAL 7 DAY", Order("a", "b", False, dt.timedelta(days=7))),
        ("a > b - INTERVAL '36 hours'", Order("a", "b", True, dt.timedelta(hours=-36))),
        ("a >= b + INTERVAL 1 MONTH", None),
        ("date_diff('day', b, a) >= 7", Order("a", "b", False, 7)),
        ("date_diff('month', b, a) >= 7", None),
        ("a - b > 7", Order("a", "b", True, 7)),
    ],
)
def test_orders_of_dates(expression: str, order: Order | None) -> None:
    schema = pa.schema({"a": pa.date32(), "b": pa.date32()})
    (part,) = parts(expression, schema)
    assert part.order == order
    if order is None:
        return
    days = [dt.date(2020, 2, 20) + dt.timedelta(days=each) for each in range(25)]
    table = pa.table({"a": [x for x in days for _ in days], "b": days * len(days)}, schema=schema)
    offset = order.offset if isinstance(order.offset, dt.timedelta) else dt.timedelta(days=order.offset)
    times = {name: np.array(table.column(name).to_pylist(), "datetime64[us]") for name in ("a", "b")}
    least = times[order.lesser] + np.timedelta64(offset)
    expected = times[order.greater] > least if order.strict else times[order.greater] >= least
    assert np.array_equal(truth(table, expression)[0], expected)


def test_days_between_times_are_no_order() -> None:
    expression = "date_diff('day', b, a) >= 1"
    assert parts(expression, pa.schema({"a": pa.timestamp("us"), "b": pa.timestamp("us")}))[0].order is None
    assert parts(expression, ["a", "b"])[0].order is None


@pytest.mark.parametrize(
    ("expression", "assignment"),
    [
        ("a = b", Assignment("a", "b", ("b",))),
        ("a = b + c", Assignment("a", "(b + c)", ("b", "c"))),
        ("b + c = a", Assignment("a", "(b + c)", ("b", "c"))),
        ("a = a + b", None),
        ("a = 5", None),
        ("a + 1 = b + 1", None),
        ("a <> b", None),
        ("NOT (a <> b)", Assignment("a", "b", ("b",))),
    ],
)
def test_assignments(expression: str, assignment: Assignment | None) -> None:
    (part,) = parts(expression, ["a", "b", "c"])
    assert part.assignment == assignment


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        ("a >= b AND (b >= c AND c > 0)", 3),
        ("a BETWEEN b AND c", 2),
        ("a BETWEEN 1 AND 3", 1),
        ("NOT (a < b OR c = 1)", 2),
        ("NOT (a < b AND c = 1)", 1),
        ("NOT (NOT (a < b AND c = 1))", 2),
        ("NOT (a BETWEEN b AND c)", 1),
        ("NOT (a IS NULL)", 1),
    ],
)
def test_a_condition_is_false_where_a_part_is(expression: str, count: int) -> None:
    values = [None, 0, 1, 2, 3]
    grid = np.array([each.ravel() for each in np.indices((5, 5, 5))])
    table = pa.table({name: pa.array([values[i] for i in row]) for name, row in zip("abc", grid, strict=True)})
    found = parts(expression, ["a", "b", "c"])
    assert len(found) == count
    truths = [truth(table, part.sql) for part in found]
    is_true, is_false = truth(table, expression)
    assert np.array_equal(is_true, np.logical_and.reduce([each[0] for each in truths]))
    assert np.array_equal(is_false, np.logical_or.reduce([each[1] for each in truths]))
    for part in found:
        assert truth(table.select(part.columns), part.sql)[0].shape == (125,)
