"""What `check` finds in a table."""

import math
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from understudy.schema import KINDS, Schema
from understudy.steward.check import Finding, check
from understudy.tables.cast import conform, normalize


def findings(column: str, values: pa.Array, table: str = "rows = 4") -> dict[str, Finding]:
    """What `check` says about one column `x` with these values, by topic."""
    schema = Schema.from_toml(f"[table]\n{table}\n[columns.x]\n{column}")
    return {finding.topic: finding for finding in check_as_read(schema, pa.table({"x": values}))}


def check_as_read(schema: Schema, table: pa.Table) -> list[Finding]:
    """What `check` says about a table in the types in which it is read."""
    table = normalize(table)
    return check(schema, table, conform(table, schema))


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
    assert check_as_read(schema, table) == []
    chunked = pa.concat_tables([table, table.slice(0, 0)])
    assert check_as_read(schema, chunked) == []


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ('kind = "boolean"\nformat = "no/yes"\nmissing = ["unknown"]', ["yes", "no", "unknown ", None]),
        ('kind = "categorical"\ncategories = ["a", "b"]\nmissing = ["x", 99]', ["a", "b", "x", "99"]),
        ('kind = "integer"\nbounds = [0, 5]\nmissing = [99]', [1, 2, 99, None]),
        ('kind = "real"\nbounds = [0, 5]\nmissing = [99]', [1.5, 2.0, 99.0, None]),
    ],
)
def test_values_declared_missing_are_no_findings(column, values):
    assert findings(column, pa.array(values)) == {}


def test_values_declared_missing_are_nulls():
    column = 'kind = "boolean"\nformat = "no/yes"\nmissing = ["unknown"]\nnullable = false'
    assert findings(column, pa.array(["yes", "no", "unknown", "unknown"]))["null"].count == 2


def test_values_outside_the_categories():
    found = findings(
        'kind = "categorical"\ncategories = ["a", "b", "z"]\nunknown = "b"', pa.array(["a", "c", "c", "d"])
    )
    assert set(found) == {"outside categories", "unused categories"}
    assert found["outside categories"].message == (
        '3 values are outside the declared categories (such as "c", "d") and will become "b".'
    )
    assert found["unused categories"].message == '2 declared categories do not occur (such as "b", "z").'
    encoded = pa.array(["a", "c", "c", "d"]).dictionary_encode()
    assert findings('kind = "categorical"\ncategories = ["a", "b", "z"]\nunknown = "b"', encoded) == found


@pytest.mark.parametrize(
    ("keys", "becomes"),
    [
        ("", 'the declared categories (such as "c") and will become "other".'),
        ("nullable = false", 'the declared categories (such as "c") and will become "other".'),
        ("closed = true", 'the closed list of categories (such as "c") and will become null.'),
        (
            "closed = true\nnullable = false",
            'the closed list of categories (such as "c") and will become the first category, "a".',
        ),
    ],
)
def test_what_undeclared_values_become_is_told_to_the_steward(keys, becomes):
    found = findings(f'kind = "categorical"\ncategories = ["a", "b"]\n{keys}', pa.array(["a", "c", "c", "b"]))
    assert found["outside categories"].message == f"2 values are outside {becomes}"
    assert found["outside categories"].count == 2


def test_categories_are_compared_across_types():
    assert not findings('kind = "categorical"\ncategories = [1, 2]', pa.array(["1", "2", "1", "2"]))
    assert not findings('kind = "categorical"\ncategories = ["1", "2"]', pa.array([1, 2, 1, 2]))
    assert not findings('kind = "categorical"\ncategories = [1, 2]', pa.array([1.0, 2.0, 2.0, None]))
    mixed = findings('kind = "categorical"\ncategories = [1, 2]', pa.array(["1", "2", "x", None]))
    assert mixed["kind"].count == 1
    assert "not whole" in findings('kind = "categorical"\ncategories = [1, 2]', pa.array([1.0, 1.5, 2.0, 2.0]))


def test_values_outside_the_bounds():
    found = findings('kind = "integer"\nbounds = [0, 10]', pa.array([-5, 3, 10, 11], pa.int16()))
    assert found["outside bounds"].message == (
        "2 values are outside the bounds [0, 10] (such as -5, 11) and will be clamped."
    )
    assert findings('kind = "integer"\nbounds = [-1, 300]', pa.array([0, 255, 3, 4], pa.uint8())) == {}
    assert findings(f'kind = "integer"\nbounds = [{2**62}, {2**63 - 1}]', pa.array([1, 2, 3, 4]))["outside bounds"]
    exact = findings(f'kind = "integer"\nbounds = [0, {2**53}]', pa.array([2**53, 2**53 + 1, 1, 2]))
    assert exact["outside bounds"].count == 1
    assert findings('kind = "real"\nbounds = [0, 1]', pa.array([0.0, 1.0, 1.5, None]))["outside bounds"]
    days = pa.array([date(2020, 1, 1), date(2021, 1, 1), None, None])
    assert findings('kind = "date"\nbounds = [2020-01-01, 2020-12-31]', days)["outside bounds"].count == 1
    moments = pa.array([datetime(2020, 1, 1), datetime(2021, 1, 1)] * 2, pa.timestamp("ns", tz="Europe/Paris"))
    zoned = 'kind = "datetime"\nbounds = [2019-12-31T00:00:00Z, 2020-06-01T00:00:00Z]'
    assert findings(zoned, moments)["outside bounds"].count == 2
    assert findings('kind = "datetime"\nbounds = [2019-12-31, 2020-06-01]', moments)["time zone"]


def test_dates_in_text():
    texts = pa.array(["01.02.2020", "31.12.2020", "soon", None])
    found = findings('kind = "date"\nformat = "%d.%m.%Y"\nbounds = [2020-01-01, 2020-06-30]', texts)
    assert found["kind"].message == (
        "1 of 3 values cannot be read as date with the format %d.%m.%Y. They count as nulls. Correct the schema, or the"
        " table."
    )
    assert found["outside bounds"].count == 1
    assert findings('kind = "date"\nformat = "%Y"', texts)["kind"].count == 3
    iso = pa.array(["2020-02-01", "2020-12-31", None, "2021-01-01"])
    assert findings('kind = "date"\nbounds = [2020-01-01, 2020-12-31]', iso)["outside bounds"].count == 1
    moments = pa.array(["2020-02-01 10:00:00.5", "2020-12-31T00:00", None, "never"])
    assert findings('kind = "datetime"', moments)["kind"].count == 1


def test_numbers_in_text():
    found = findings('kind = "integer"\nbounds = [0, 9]', pa.array(["1", "2", "12", "x"]))
    assert (found["kind"].count, found["outside bounds"].count) == (1, 1)
    assert findings('kind = "boolean"', pa.array(["true", "false", "true", "perhaps"]))["kind"].level == "warning"
    assert findings('kind = "real"', pa.array(["0.5", "1e3", "-2", None])) == {}


def test_booleans_in_text():
    texts = pa.array([" ja", "nein", "Ja", None])
    found = findings('kind = "boolean"\nformat = "nein/ja"', texts)
    assert found["kind"].count == 1


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
    lines += "\nbox = [0, 0, 9, 9]" if kind == "location" else ""
    for values in (some_values(arrow_type), pa.chunked_array([], arrow_type)):
        schema = Schema.from_toml(f"[table]\nrows = 2\n[columns.x]\n{lines}")
        assert all(isinstance(finding.message, str) for finding in check_as_read(schema, pa.table({"x": values})))


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
    assert set(odd) == {"infinite"}
    assert odd["infinite"].count == 1
    null = findings('kind = "integer"\nnullable = false\nbounds = [0, 9]', pa.array([1, 2, None, 3]))
    assert "1 value is null, but nullable is false: nulls become the lower bound." in null["null"].message
    broken = findings('kind = "integer"', pa.array([1.0, 2.5, 3.0, None]))
    assert broken["not whole"].message == "1 value is not whole (such as 2.5) and will be rounded."


def test_kinds_that_cannot_hold_the_values():
    for kind, values in [
        ("integer", pa.array([date(2020, 1, 1)] * 4)),
        ("datetime", pa.array([1, 2, 3, 4])),
        ("categorical", pa.array([[1]] * 4)),
    ]:
        found = findings(f'kind = "{kind}"', values)
        assert found["kind"].level == "error"
        assert f"4 of 4 values cannot be read as {kind}." in found["kind"].message


def test_many_categories_to_estimate():
    values = pa.array([f"value {i}" for i in range(1001)])
    assert findings('kind = "categorical"', values, "rows = 1001")["many categories"].count == 1001


def test_rows_and_delta():
    assert findings('kind = "integer"', pa.array([1, 2]))["rows"].level == "warning"
    assert findings('kind = "integer"', pa.array([1, 2]), "")["rows"].level == "note"
    assert findings('kind = "integer"', pa.array([], pa.int64()))["rows"].level == "warning"
    large = findings('kind = "integer"', pa.array(np.arange(1_000_001)), "")
    assert large["delta"].count == 1_000_001


def test_units_with_too_many_rows():
    schema = Schema.from_toml('table = {rows = 7, unit = "who", max_rows_per_unit = 2}\ncolumns.who.kind = "id"')
    found = {f.topic: f for f in check_as_read(schema, pa.table({"who": ["a", "a", "a", "a", "b", "b", None]}))}
    assert set(found) == {"no unit", "rows per unit"}
    assert found["rows per unit"].count == 1
    assert found["rows per unit"].message.startswith("1 unit has more than max_rows_per_unit = 2 rows; 2 rows will not")
    assert str(found["no unit"]) == "warning: Column 'who': 1 row has no unit and will not be used."


def test_units_with_several_values_where_one_is_declared():
    schema = Schema.from_toml(
        'table = {rows = 6, unit = "who", max_rows_per_unit = 2}\ncolumns.who.kind = "id"\n'
        'columns.sex = {kind = "categorical", categories = ["f", "m"], per_unit = true}'
    )
    table = pa.table({"who": ["a", "a", "b", "b", "c", None], "sex": ["f", "m", "m", None, "f", "m"]})
    found = {f.topic: f for f in check_as_read(schema, table)}
    assert (found["per_unit"].column, found["per_unit"].count, found["per_unit"].level) == ("sex", 2, "warning")
    same = table.set_column(1, "sex", [["f", "f", "m", "m", "f", "m"]])
    assert "per_unit" not in {f.topic for f in check_as_read(schema, same)}


def test_missing_columns_are_findings_not_errors():
    schema = Schema.from_toml('[table]\nrows = 1\n[columns.a]\nkind = "integer"')
    (finding,) = check_as_read(schema, pa.table({"b": [1]}))
    assert (finding.level, finding.topic, finding.column) == ("error", "columns", None)
    assert "'a' is in the schema but not in the table" in finding.message
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert [found.topic for found in check_as_read(schema, twice)] == ["columns"]


def test_text_and_ids_are_not_checked():
    schema = Schema.from_toml(
        '[table]\nrows = 2\n[columns.a]\nkind = "text"\n[columns.b]\nkind = "id"\nnullable = false'
    )
    assert check_as_read(schema, pa.table({"a": [["x"], None], "b": [None, None]})) == []


RULED = """
table.rows = 4
columns.country = {kind = "categorical", categories = ["France", "Peru"]}
columns.currency = {kind = "categorical", categories = ["EUR", "PEN"]}
columns.a = {kind = "integer", bounds = [0, 9]}
columns.b = {kind = "integer", bounds = [0, 9]}
[[rules]]
combinations = ["country", "currency"]
allowed = [["France", "EUR"], ["Peru", "PEN"]]
[[rules]]
sum = ["a", "b"]
at_most = 10
on_break = "clamp"
[[rules]]
keep = "a <= b"
on_break = "drop"
[[rules]]
when = "country = 'Peru'"
then = "a > 0"
"""
MONEY = pa.table(
    {
        "country": ["France", "Peru", "France", None],
        "currency": ["EUR", "EUR", "PEN", "PEN"],
        "a": ["1", "5", "9", "x"],  # as in a text file: x is read as null
        "b": [3, 4, 3, 9],
    }
)


def test_rows_that_break_a_rule_are_counted_for_the_steward():
    found = [finding for finding in check_as_read(Schema.from_toml(RULED), MONEY) if finding.topic == "rule"]
    assert [(finding.count, finding.level, finding.column) for finding in found] == [
        (2, "warning", None),
        (1, "warning", None),
        (2, "warning", None),
    ]
    assert [finding.message for finding in found] == [
        "2 rows break the rule 'country, currency: 2 allowed combinations' (50% of all rows) and will be moved to a"
        " row that satisfies it where the rule says how, else left out (on_break decides).",
        "1 row breaks the rule 'a + b <= 10' (25% of all rows) and will be moved to a row that satisfies it.",
        "2 rows break the rule 'a <= b' (50% of all rows) and will be left out.",
    ]


@pytest.mark.parametrize("names", [["country", "a"], ["b"], []])
def test_rules_about_columns_that_the_table_lacks_are_skipped(names):
    found = check_as_read(Schema.from_toml(RULED), MONEY.select(names))
    assert not [finding for finding in found if finding.topic == "rule" and finding.message.count("currency")]
    assert [finding.level for finding in found if finding.topic == "columns"] == ["error"]


def test_a_table_without_rows_breaks_no_rule():
    assert "rule" not in {finding.topic for finding in check_as_read(Schema.from_toml(RULED), MONEY.slice(0, 0))}
