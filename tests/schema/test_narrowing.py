"""What rules on one column leave of it."""

import math
import warnings
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.builders import raises
from understudy.encoding.fit import move_inside
from understudy.encoding.reexpression import reexpress
from understudy.errors import SchemaError, UnderstudyWarning
from understudy.rules.conditions import truth
from understudy.schema import as_schema

ZONE = timezone(timedelta(hours=2))


def modelled(column: dict[str, object], *conditions: str) -> us.Column:
    rules = [{"keep": condition} for condition in conditions]
    schema = as_schema({"columns": {"x": column}, "rules": rules})
    return reexpress(schema).modelled["x"]


@pytest.mark.parametrize(
    ("column", "conditions", "bounds"),
    [
        ({"kind": "integer", "bounds": [0, 120]}, ["x >= 18"], (18, 120)),
        ({"kind": "integer", "bounds": [0, 120]}, ["x > 17 AND x < 66"], (18, 65)),
        ({"kind": "integer", "bounds": [0, 120]}, ["x > 17", "x BETWEEN 10 AND 65"], (18, 65)),
        ({"kind": "integer", "bounds": [0, 120]}, ["x < 18 OR x > 65"], (0, 120)),
        ({"kind": "integer", "bounds": [0, 120]}, ["x = 7"], (7, 8)),
        ({"kind": "integer", "bounds": [0, 120]}, ["x = 120"], (119, 120)),
        ({"kind": "integer"}, ["x IN (3, 5, 4)"], (3, 5)),
        ({"kind": "integer"}, ["x >= 18"], None),
        ({"kind": "integer"}, ["x <> 18"], None),
        ({"kind": "real", "bounds": [0, 1]}, ["x > 0.25"], (math.nextafter(0.25, 1), 1)),
        ({"kind": "real", "bounds": [0, 1], "decimals": 2}, ["x > 0.07"], (0.08, 1)),
        ({"kind": "real", "bounds": [0, 1], "decimals": 2}, ["x >= 0.07"], (0.07, 1)),
        ({"kind": "real", "bounds": [0, 1], "decimals": 2}, ["x <= 0.075"], (0, 0.07)),
        (
            {"kind": "date"},
            ["x BETWEEN DATE '2020-01-01' AND DATE '2020-12-31'"],
            (date(2020, 1, 1), date(2020, 12, 31)),
        ),
        (
            {"kind": "datetime", "bounds": [datetime(2020, 1, 1, tzinfo=ZONE), datetime(2021, 1, 1, tzinfo=ZONE)]},
            ["x >= TIMESTAMP '2020-06-01 00:00:00'"],
            (datetime(2020, 6, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=ZONE)),
        ),
    ],
)
def test_bounds(column: dict[str, object], conditions: list[str], bounds: tuple | None) -> None:
    assert modelled(column, *conditions).bounds == bounds


@pytest.mark.parametrize(
    ("column", "conditions", "listed"),
    [
        ({}, ["x IN ('Rome', 'Paris')"], ("Rome", "Paris")),
        ({}, ["x = 'Rome'"], ("Rome",)),
        ({}, ["x IN ('Rome', 'Paris', 'Lima')", "x IN ('Paris', 'Rome')"], ("Rome", "Paris")),
        ({}, ["x IN ('Rome', 'Paris') AND x <> 'Oslo'"], ("Rome", "Paris")),
        ({"missing": ["Paris"]}, ["x IN ('Rome', 'Paris')"], ("Rome",)),
        ({}, ["x <> 'Rome'"], None),
        ({}, ["x = 'Rome' OR length(x) = 4"], None),
        ({"categories": ["Rome", "Paris", "Lima"]}, ["x IN ('Rome', 'Paris')"], ("Rome", "Paris", "Lima")),
    ],
)
def test_lists(column: dict[str, object], conditions: list[str], listed: tuple[str, ...] | None) -> None:
    found = modelled({"kind": "categorical", **column}, *conditions)
    assert found.categories == listed
    assert found.closed == (listed is not None and "categories" not in column)


numbers = st.integers(-5, 15)
atoms = st.one_of(
    st.builds("x {} {}".format, st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), numbers),
    st.builds("x BETWEEN {} AND {}".format, numbers, numbers),
    st.builds("x IN ({}, {})".format, numbers, numbers),
    st.builds("x NOT IN ({}, {})".format, numbers, numbers),
)
conditions = st.recursive(
    atoms, lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner)
)


@given(st.lists(conditions, min_size=1, max_size=2))
def test_no_value_that_keeps_the_rules_is_lost(kept: list[str]) -> None:
    """And the outermost ones are the bounds, by trying every value."""
    try:
        found = modelled({"kind": "integer", "bounds": [0, 10]}, *kept)
    except SchemaError:
        return
    values = np.arange(11)
    table = pa.table({"x": values})
    keeps = values[np.logical_and.reduce([truth(table, condition)[0] for condition in kept])]
    assert found.bounds is not None
    if keeps.min() < keeps.max():
        assert found.bounds == (keeps.min(), keeps.max())
    else:
        assert keeps.min() in found.bounds
        assert found.bounds[1] == found.bounds[0] + 1  # type: ignore[operator]  # numeric columns have bounds


@given(st.tuples(numbers, numbers), numbers, st.booleans())
def test_estimated_bounds_move_inside(ends: tuple[int, int], limit: int, is_least: bool) -> None:
    bounds = (min(ends), max(ends))
    lower, upper = move_inside(bounds, (limit, None) if is_least else (None, limit))
    assert lower <= upper
    if bounds[0] <= limit <= bounds[1] and not bounds[0] == bounds[1] == limit:
        assert (lower if is_least else upper) == limit
    assert (lower >= limit) if is_least else (upper <= limit)
    assert move_inside(bounds, (None, None)) == bounds


@pytest.mark.parametrize(
    ("column", "conditions"),
    [
        ({"kind": "integer"}, ["x > 5", "x < 6"]),
        ({"kind": "integer", "bounds": [0, 10]}, ["x > 10"]),
        ({"kind": "real"}, ["x > 0.5", "x <= 0.5"]),
        ({"kind": "datetime"}, ["x < TIMESTAMP '2020-05-01 12:00:00'", "x > '2020-05-01 12:00:00'"]),
        ({"kind": "date"}, ["x < DATE '2020-05-02' AND x > DATE '2020-05-01'"]),
    ],
)
def test_rules_that_leave_no_value_are_refused(column: dict[str, object], conditions: list[str]) -> None:
    """Whether or not bounds are declared, and before anything is estimated privately."""
    with raises(SchemaError, column="x"):
        modelled(column, *conditions)
    modelled(column, "x IS NULL")


@pytest.mark.parametrize(
    ("column", "conditions"),
    [
        ({"kind": "integer"}, ["x > 5", "x < 7"]),
        ({"kind": "real", "decimals": 2}, ["x > 5", "x < 6"]),
        ({"kind": "datetime"}, ["x > '2020-05-01'", "x < '2020-05-01 00:00:00.000002'"]),
        ({"kind": "date"}, ["x < DATE '2020-05-03'", "x > DATE '2020-05-01'"]),
    ],
)
def test_rules_that_leave_a_value_are_accepted(column: dict[str, object], conditions: list[str]) -> None:
    modelled(column, *conditions)


@pytest.mark.parametrize(
    ("column", "rule", "values"),
    [
        ({"kind": "integer"}, "x >= 18", np.arange(18, 68)),
        ({"kind": "integer"}, "x < -1000", np.arange(-1050, -1000)),
        ({"kind": "real"}, "x > 1e6", np.linspace(1.1e6, 2e6, 50)),
        ({"kind": "date"}, "x >= DATE '2150-01-01'", [date(2150, 1, 1) + timedelta(days=day) for day in range(50)]),
        ({"kind": "categorical"}, "x IN ('Rome', 'Paris')", ["Rome"] * 50),
    ],
)
def test_few_rows_give_a_release_that_can_be_sampled(column: dict[str, object], rule: str, values: list) -> None:
    """Too few to estimate bounds or a list from."""
    table = pa.table({"x": values})
    schema = {"columns": {"x": column | {"nullable": False}}, "rules": [{"keep": rule}]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnderstudyWarning)
        release = us.fit(table, "independent", epsilon=0.05, schema=schema, seed=1)
    rows = release.sample(300, seed=1)
    assert truth(rows, rule)[0].all()
