"""Steps: whatever a model draws for the modelled columns, the rebuilt ones satisfy the rule; examples of each step."""

import dataclasses
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.encoding.ruled_tables import FAMILIES, broken_rules, schemas, tidy_tables
from tests.examples import scaled
from understudy.encoding.reexpression import reexpress
from understudy.encoding.reexpression.lookups import Formula, Joint, Lookup
from understudy.encoding.reexpression.steps import Difference, Shares, Step, Total
from understudy.rules.rules import Rule, Sum, rule_from_dict
from understudy.schema import Column, Schema


def _unbounded(schema: Schema) -> Schema:
    """Without bounds, which cut what a step rebuilds; only parts of a number need theirs."""
    parts = {
        name for rule in schema.rules if isinstance(rule, Sum) and not isinstance(rule.total, str) for name in rule.sum
    }
    columns = [c if c.name in parts else dataclasses.replace(c, bounds=None) for c in schema.columns]
    return dataclasses.replace(schema, columns=tuple(columns))


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=scaled(12))
@given(data=st.data())
def test_rebuilt_rows_keep_the_rules_of_their_steps(family: str, data: st.DataObject) -> None:
    """By construction: no row needs to be drawn again."""
    schema = _unbounded(data.draw(schemas(family, most=2)))
    known = reexpress(schema)
    assume(known.constructed)
    rows = known.restore(data.draw(tidy_tables(known.modelled, rows=12)))
    assert broken_rules(rows, known.constructed) == {}


def _known(entry: dict, **columns: dict) -> tuple[Schema, Step, Rule]:
    rule = rule_from_dict(entry)
    schema = Schema(columns=tuple(Column(name=name, **facts) for name, facts in columns.items()), rules=(rule,))
    (step,) = reexpress(schema).steps
    return schema, step, rule


WHOLE = {"kind": "integer", "bounds": (0, 10)}
WORD = {"kind": "categorical"}
EXAMPLES: list[tuple[type, dict, dict[str, dict], dict[str, list], dict[str, list]]] = [
    (
        Difference,
        {"keep": "b > a + 1"},
        {"a": {**WHOLE, "nullable": False}, "b": WHOLE},
        {"a": [1, 5, 3], "b": [4, 2, None]},
        {"a": [1, 5, 3], "b": [4, 7, None]},
    ),
    (
        Total,
        {"sum": ["a", "b"], "equals": "c"},
        {"a": WHOLE, "b": WHOLE, "c": WHOLE},
        {"a": [1, 2, None], "b": [3, 4, 5], "c": [4, 9, 9]},
        {"a": [1, 2, None], "b": [3, 4, 5], "c": [4, 6, None]},
    ),
    (
        Shares,
        {"sum": ["a", "b"], "at_most": 10},
        {"a": WHOLE, "b": WHOLE},
        {"a": [3, 8, None], "b": [7, 5, 9]},
        {"a": [3, 8, None], "b": [7, 2, 9]},
    ),
    (
        Formula,
        {"keep": "b = a * 2"},
        {"a": WHOLE, "b": WHOLE},
        {"a": [1, 2, None], "b": [2, 9, 9]},
        {"a": [1, 2, None], "b": [2, 4, None]},
    ),
    (
        Lookup,
        {"determines": ["k"], "gives": ["l"], "table": [["x", "X"], ["y", "Y"]]},
        {"k": WORD, "l": WORD},
        {"k": ["x", "y", "?", None], "l": ["X", "X", "X", "X"]},
        {"k": ["x", "y", None, None], "l": ["X", "Y", None, None]},
    ),
    (
        Joint,
        {"combinations": ["k", "l"], "allowed": [["x", "X"], ["y", "Y"]]},
        {"k": WORD, "l": WORD},
        {"k": ["x", "y", "?", None], "l": ["X", "X", "Y", "X"]},
        {"k": ["x", "x", "y", None], "l": ["X", "X", "Y", "X"]},
    ),
]


@pytest.mark.parametrize(
    ("kind", "entry", "columns", "rows", "expected"), EXAMPLES, ids=[each[0].__name__ for each in EXAMPLES]
)
def test_examples(kind: type, entry: dict, columns: dict, rows: dict, expected: dict) -> None:
    schema, step, rule = _known(entry, **columns)
    assert isinstance(step, kind)
    types = pa.schema([(c.name, pa.int64() if c.kind == "integer" else pa.string()) for c in schema.columns])
    known = reexpress(schema)
    cleaned = known.clean(pa.table(rows, schema=types))
    assert cleaned.to_pydict() == expected
    assert not rule.broken(cleaned).any()
    assert known.restore(known.express(cleaned)).to_pydict() == expected


def test_bounds_of_a_difference_follow_from_declared_ones() -> None:
    """Otherwise they are estimated, and charged."""
    days = {"kind": "date", "bounds": (date(2020, 1, 1), date(2020, 1, 31)), "nullable": False}
    _, step, _ = _known({"keep": "b >= a + INTERVAL 3 DAY"}, a=days, b=days)
    assert [column.bounds for column in step.modelled] == [(0, 27)]
    _, step, _ = _known({"keep": "b >= a"}, a=days, b={**days, "bounds": None})
    assert [column.estimated for column in step.modelled] == ["bounds"]


def test_times_with_a_zone_are_ordered() -> None:
    """As they are read: in UTC."""
    ends = (datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 2, tzinfo=UTC))
    schema, _, rule = _known(
        {"keep": "v > u"}, u={"kind": "datetime", "bounds": ends}, v={"kind": "datetime", "bounds": ends}
    )
    type_ = pa.timestamp("us", "UTC")
    table = pa.table({name: pa.array([ends[0], ends[0].replace(hour=at)], type_) for name, at in (("u", 5), ("v", 3))})
    known = reexpress(schema)
    cleaned = known.clean(table)
    assert not rule.broken(known.read(cleaned)).any()
    back = known.restore(known.express(table))
    assert known.read(back).to_pydict() == known.read(cleaned).to_pydict()
