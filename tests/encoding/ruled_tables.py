"""Random schemas with rules of every kind, and random rows of them: tidy ones, and ones that no tool should produce."""

import dataclasses
import math
from collections.abc import Sequence
from datetime import date, datetime, timedelta

import pyarrow as pa
from hypothesis import strategies as st

import understudy as us
from understudy.encoding.reexpression import reexpress
from understudy.encoding.reexpression.lookups import Formula, Joint, Lookup
from understudy.encoding.reexpression.steps import Shares, Total
from understudy.rules.rules import Rule, rule_from_dict
from understudy.schema import BOUNDED, Column, Schema
from understudy.tables.cast import declared_type

KINDS = {
    **dict.fromkeys(("a", "b", "c", "d"), "integer"),
    **dict.fromkeys(("r", "s", "w"), "real"),
    **dict.fromkeys(("p", "q", "t"), "date"),
    **dict.fromkeys(("u", "v"), "datetime"),
    **dict.fromkeys(("k", "l", "m", "n"), "categorical"),
    "f": "boolean",
}
WORDS = ("x", "y", "z")
DAY, MOMENT = date(2020, 1, 1), datetime(2020, 1, 1)

_ORDERS = (
    "b >= a",
    "b > a",
    "a <= b + 2",
    "b > a + 1",
    "b - a >= 2",
    "a <= b AND b <= c AND c < d",  # a chain
    "b >= a AND c > a AND d >= b",  # a tree
    "d >= a AND d >= b + 1 AND d > c",  # several limits of one column
    "a <= c AND b < c",
    "s >= r",
    "s > r",
    "s >= r + 0.5 AND w > s",
    "q >= p",
    "q > p AND t >= q",
    "q >= p + INTERVAL 3 DAY",
    "date_diff('day', p, q) >= 2",
    "v > u",
    "v >= u + INTERVAL 2 HOUR",
)
_ASSIGNMENTS = (
    "c = a + b",
    "a * 2 = b",
    "w = r / 4",
    "d = date_diff('year', p, q)",
    "t = p + 7",
    "m = CASE WHEN a > 1 THEN 'x' ELSE 'y' END",
    "f = (a > b)",
)
_OTHERS = (
    "a + b <> 3",
    "k <> l",
    "a % 2 = 0 OR f",
    "(a < 2) = f",
    "a IS NOT NULL OR r IS NOT NULL",
    "r BETWEEN s AND w",
)
_WHEN_THEN = (
    {"when": "k = 'x'", "then": "l = 'y'"},
    {"when": "f", "then": "a = 1"},
    {"when": "a > 2", "then": "b <= 2"},
    {"when": "k = 'x' AND a > 1", "then": "p = DATE '2020-01-02'"},
    {"when": "r > 1", "then": "k IN ('x', 'y')"},
)
_SKIPS = (
    {"skip": "k", "when": "f"},
    {"skip": "a", "when": "k = 'x'"},
    {"skip": "r", "when": "a > 2 OR l = 'y'"},
    {"skip": "p", "when": "q > DATE '2020-01-02'"},
)
_SUMS = (
    {"sum": ["a", "b"], "equals": "c"},
    {"sum": ["r", "s"], "equals": "w"},
    {"sum": ["a", "r"], "equals": "w"},
    {"sum": ["a", "b", "c"], "equals": 5},
    {"sum": ["r", "s", "w"], "equals": 5.0},
    {"sum": ["a", "b"], "at_most": "d"},
    {"sum": ["a", "b", "c"], "at_most": 6},
    {"sum": ["r", "s"], "at_most": 4.5},
    {"sum": ["r", "s"], "at_most": "w"},
)


def _combinations() -> st.SearchStrategy[dict]:
    """Lists over words, integers and truths, allowed or forbidden."""
    values = {"k": st.sampled_from(WORDS), "l": st.sampled_from(WORDS), "a": st.integers(0, 3), "f": st.booleans()}

    def listed(names: tuple[str, ...]) -> st.SearchStrategy[dict]:
        rows = st.lists(st.tuples(*(values[name] for name in names)), min_size=1, max_size=5, unique=True)
        key = st.sampled_from(["allowed", "forbidden"])
        return st.builds(lambda key, rows: {"combinations": list(names), key: [list(row) for row in rows]}, key, rows)

    return st.sampled_from([("k", "l"), ("k", "a"), ("l", "f"), ("k", "l", "f")]).flatmap(listed)


_LOOKUPS = (
    {"determines": ["k"], "gives": ["l", "a"], "table": [["x", "y", 1], ["y", "y", 2], ["z", "x", 0]]},
    {"determines": ["k"], "gives": ["p"], "table": [["x", "2020-01-02"], ["y", "2020-01-04"]]},
    {"determines": ["a"], "gives": ["l"], "table": [[0, "x"], [1, "y"], [2, ""]]},
    {"determines": ["f"], "gives": ["m"], "table": [[True, "x"], [False, "y"]]},
    {"determines": ["k", "l"], "gives": ["m"], "table": [["x", "x", "y"], ["x", "y", "z"], ["y", "x", "x"]]},
    {"determines": ["k", "a"], "gives": ["r", "m"], "table": [["x", 1, 0.5, "x"], ["y", 1, 2.0, "y"]]},
)


FAMILIES: dict[str, st.SearchStrategy[dict]] = {
    **{
        name: st.sampled_from(texts).map(lambda text: {"keep": text})
        for name, texts in (("order", _ORDERS), ("assignment", _ASSIGNMENTS), ("keep", _OTHERS))
    },
    **{
        name: st.sampled_from(entries)
        for name, entries in (("when", _WHEN_THEN), ("skip", _SKIPS), ("sum", _SUMS), ("determines", _LOOKUPS))
    },
    "combinations": _combinations(),
}


def rules(family: str | None = None) -> st.SearchStrategy[dict]:
    """The keys of one rule, of one family or of any."""
    kind = st.one_of(*FAMILIES.values()) if family is None else FAMILIES[family]
    on_break = st.sampled_from([{}, {}, {"on_break": "clamp"}, {"on_break": "drop"}])
    return st.builds(lambda rule, choice: {**rule, **choice}, kind, on_break)


def _column(name: str, *, bounded: bool) -> st.SearchStrategy[Column]:
    """With nulls or without; with bounds or, unless they are needed, without."""
    kind, facts = KINDS[name], {"nullable": st.booleans()}
    bounds: dict[str, Sequence[object]] = {
        "integer": [(0, 4), (-1, 6), None],
        "real": [(0.0, 4.0), (-1.0, 6.5), None],
        "date": [(DAY, DAY + timedelta(4)), (DAY - timedelta(1), DAY + timedelta(9)), None],
        "datetime": [(MOMENT, MOMENT + timedelta(hours=5)), None],
    }
    if kind in bounds:
        facts["bounds"] = st.sampled_from(bounds[kind][: -1 if bounded else None])
    if kind == "real":
        facts["decimals"] = st.sampled_from([None, 0, 1])
    if kind == "categorical":
        listed = [{}, {"categories": WORDS}, {"categories": WORDS, "closed": True}]
        return st.builds(
            lambda facts, nullable: Column(name=name, kind=kind, nullable=nullable, **facts),
            st.sampled_from(listed),
            st.booleans(),
        )
    return st.builds(Column, name=st.just(name), kind=st.just(kind), **facts)


def _total(entry: dict) -> object:
    return entry.get("equals", entry.get("at_most"))


@st.composite
def schemas(draw: st.DrawFn, family: str, *, most: int = 3) -> Schema:
    """A rule of this family and fewer than `most` others, their columns, and a column that none is about."""
    entries = [draw(rules(family)), *draw(st.lists(rules(), max_size=most - 1))]
    found = [rule_from_dict(entry) for entry in entries]
    used = {name for rule in found for name in rule.columns} | {"n"}
    skipped = {entry["skip"] for entry in entries if "skip" in entry}
    shared = {name for entry in entries if not isinstance(_total(entry), str) for name in entry.get("sum", ())}
    columns = [draw(_column(name, bounded=name in shared)) for name in KINDS if name in used]
    columns = [dataclasses.replace(c, nullable=c.nullable or c.name in skipped) for c in columns]
    try:
        return Schema(columns=tuple(columns), rules=tuple(found), rows=50)
    except us.SchemaError:  # rules that contradict each other: refused, and so nothing to satisfy
        return Schema(columns=tuple(columns), rows=50)


def _tidy(column: Column) -> st.SearchStrategy:
    """Values of the declared domain, few of them, so that many rows satisfy a rule."""
    inside: st.SearchStrategy
    if column.kind == "boolean":
        inside = st.booleans()
    elif column.kind == "categorical":
        inside = st.sampled_from(column.categories or WORDS)
    elif column.kind == "integer":
        inside = st.integers(0, 4)
    elif column.kind == "real":
        inside = st.integers(0, 4).map(float)
    elif column.kind == "date":
        inside = st.integers(0, 4).map(lambda days: DAY + timedelta(days))
    else:
        inside = st.integers(0, 5).map(lambda hours: MOMENT + timedelta(hours=hours))
    return st.none() | inside if column.nullable else inside


_DIRT: dict[str, st.SearchStrategy] = {
    "integer": st.integers(-(2**63), 2**63 - 1),
    "real": st.floats(),
    "date": st.dates(),
    "datetime": st.datetimes(),
    "categorical": st.text(max_size=2) | st.just("other"),
    "boolean": st.booleans(),
}
_TEXTS = st.sampled_from(["", "x", "3", "-7", "2.5", "1e400", "nan", "inf", "2020-01-03", "0400-02-30", "true", "\x00"])
_FLOATS = st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -0.0, 2.5, 2.0**63]) | st.floats(0, 5)


@st.composite
def _dirty(draw: st.DrawFn, column: Column, size: int) -> pa.Array:
    """A column in the type of its kind or another one, with nulls and extreme values."""

    def values(own: st.SearchStrategy) -> list:
        return draw(st.lists(st.none() | own, min_size=size, max_size=size))

    held = draw(st.sampled_from(["kind", "kind", "kind", "text", "float", "dictionary"]))
    if held == "text":
        return pa.array(values(_TEXTS), pa.string())
    if held == "dictionary":
        return pa.array(values(_TEXTS), pa.string()).dictionary_encode()
    if held == "float":
        return pa.array(values(_FLOATS), pa.float64())
    return pa.array(values(_tidy(column) | _DIRT[column.kind]), declared_type(column))


@st.composite
def dirty_tables(draw: st.DrawFn, schema: Schema, *, rows: int = 6) -> pa.Table:
    size = draw(st.integers(1, rows))
    return pa.table({column.name: draw(_dirty(column, size)) for column in schema.columns})


@st.composite
def tidy_tables(draw: st.DrawFn, schema: Schema, *, rows: int = 30) -> pa.Table:
    """Values of the declared domain in the types of their kinds."""
    row = st.tuples(*(_tidy(column) for column in schema.columns))
    found = draw(st.lists(row, min_size=1, max_size=rows))
    types = pa.schema([(column.name, declared_type(column)) for column in schema.columns])
    return pa.table([list(values) for values in zip(*found, strict=True)], schema=types)


def determined(schema: Schema) -> set[str]:
    """The columns of each step that fills in what a rule determines: a null among them need not stay one.

    Also those of a list of combinations that declares the values of a column without other declared ones.
    """
    found: set[str] = set()
    for step in reexpress(schema).steps:
        if isinstance(step, Formula | Lookup | Total) or (isinstance(step, Shares) and step.exact):
            found |= {*step.outputs, *step.inputs}
        if isinstance(step, Joint) and any(c.bounds is None and c.listed is None for c in step.columns):
            found |= set(step.outputs)
    return found


def broken_rules(table: pa.Table, rules: Sequence[Rule]) -> dict[str, int]:
    """How many rows break each rule, of those that some row breaks."""
    counts = {rule.text: int(rule.broken(table).sum()) for rule in rules}
    return {text: count for text, count in counts.items() if count}


def is_inexact(column: Column) -> bool:
    """Whether sums of its values are rounded."""
    return column.kind in BOUNDED and column.kind == "real" and column.decimals is None
