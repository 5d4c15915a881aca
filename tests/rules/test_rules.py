"""Rules of single rows: which rows break each kind, against a row-by-row oracle, and how files write them."""

import dataclasses
import json
import math
import operator
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import scaled
from understudy.errors import SchemaError
from understudy.rules.comparison import as_strings, as_text
from understudy.rules.keys import read_lookup
from understudy.rules.rules import Combinations, Determines, Keep, Rule, Skip, Sum, WhenThen, rule_from_dict
from understudy.schema import Schema

Row = dict[str, object]

# -------------------------------------------------------------------------------------------------------------- oracles


def is_absent(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def same(a: object, b: object) -> bool:
    """Equality of a listed value and one of a table: 1, 1.0 and "1" are equal, as are true and "true"."""

    def text(value: object) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)

    return text(a) == text(b)


def breaks_combinations(rule: Combinations, row: Row) -> bool:
    values = [row[name] for name in rule.combinations]
    if any(map(is_absent, values)):
        return False
    listed = any(all(map(same, entry, values)) for entry in rule.listed)
    return not listed if rule.allowed is not None else listed


def breaks_determines(rule: Determines, row: Row) -> bool:
    key = [row[name] for name in rule.determines]
    if any(map(is_absent, key)):
        return False
    entry = next((entry for entry in rule.table if all(map(same, entry[: len(key)], key))), None)
    if entry is None:
        return True
    given_values = zip(entry[len(key) :], (row[name] for name in rule.gives), strict=True)
    return any(a is not None and not is_absent(b) and not same(a, b) for a, b in given_values)


def breaks_sum(rule: Sum, row: Row) -> bool:
    values = [row[name] for name in rule.columns]
    if any(map(is_absent, values)):
        return False
    parts = [float(row[name]) for name in rule.sum]  # type: ignore[arg-type]  # cells of these columns are numbers
    total = float(row[rule.total] if isinstance(rule.total, str) else rule.total)  # type: ignore[arg-type]  # cells of these columns are numbers
    slack = 1e-6 * max(1.0, abs(total), *map(abs, parts)) if rule.decimals is None else 0.5 / 10**rule.decimals
    excess = math.fsum(parts) - total
    return excess > slack if rule.equals is None else abs(excess) > slack


ORACLES: dict[type[Rule], Callable[..., bool]] = {
    Combinations: breaks_combinations,
    Determines: breaks_determines,
    Sum: breaks_sum,
}


def rows_of(table: pa.Table) -> list[Row]:
    return table.to_pylist()


def assert_oracle(rule: Rule, table: pa.Table) -> None:
    found = rule.broken(table)
    assert found.dtype == bool
    assert found.shape == (table.num_rows,)
    assert found.tolist() == [ORACLES[type(rule)](rule, row) for row in rows_of(table)]


# --------------------------------------------------------------------------------------------------------------- tables

LISTED = [0, 1, 2, 1.0, 1.5, "1", "a", "b", True, False, "true"]
VALUES: dict[str, tuple[pa.DataType, list]] = {
    "text": (pa.string(), ["a", "b", "1", "true", "c", None]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "1", None]),
    "integer": (pa.int64(), [0, 1, 2, 3, None]),
    "small": (pa.uint8(), [0, 1, 2, None]),
    "real": (pa.float64(), [0.0, -0.0, 1.0, 1.5, 2.0, math.nan, None]),
    "boolean": (pa.bool_(), [True, False, None]),
}


@st.composite
def tables(draw: st.DrawFn, types: Sequence[str] = tuple(VALUES), columns: Sequence[str] = ("a", "b", "c")) -> pa.Table:
    """Tables of one to several chunks, with any of the types in each column."""
    num_rows = draw(st.integers(0, 12))
    cut = draw(st.integers(0, num_rows))
    arrays = {}
    for name in columns:
        arrow_type, values = VALUES[draw(st.sampled_from(types))]
        cells = draw(st.lists(st.sampled_from(values), min_size=num_rows, max_size=num_rows))
        whole = pa.array(cells, arrow_type)
        parts = [whole.slice(0, cut), whole.slice(cut)] if draw(st.booleans()) else [whole]
        arrays[name] = pa.chunked_array(parts, type=arrow_type)
    return pa.table(arrays)


listed_rows = st.lists(st.lists(st.sampled_from(LISTED), min_size=3, max_size=3), min_size=1, max_size=8)


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(1e-4)
@example(9_999_999_999.5)
@example(10_000_000_000.5)
@example(1e15)
@example(2.0**53)
def test_a_listed_real_has_the_text_of_the_column(value: float) -> None:
    assert as_text(value) == as_strings(pa.array([value]))[0].as_py()
    if abs(value) < 2**53:
        assert as_text(round(value)) == as_text(float(round(value)))


@given(tables(), listed_rows, st.sampled_from(["allowed", "forbidden"]))
def test_combinations_are_matched_row_by_row(table: pa.Table, listed: list[list], kind: str) -> None:
    assert_oracle(rule_from_dict({"combinations": ["a", "b", "c"], kind: listed}), table)


@given(tables(), listed_rows, st.integers(1, 2), st.data())
def test_dependencies_are_matched_row_by_row(table: pa.Table, listed: list[list], num_keys: int, data) -> None:
    keys: list[list] = []
    for row in listed:  # a key that equals an earlier one is left out: 1, 1.0 and "1" are one key
        if not any(all(map(same, row[:num_keys], key[:num_keys])) for key in keys):
            keys.append([*row[:num_keys], *(data.draw(st.sampled_from([*LISTED, None, ""])) for _ in row[num_keys:])])
    names = ["a", "b", "c"]
    entry = {"determines": names[:num_keys], "gives": names[num_keys:], "table": keys}
    assert_oracle(rule_from_dict(entry), table)


@given(
    tables(types=("integer", "small", "real")),
    st.sampled_from(["equals", "at_most"]),
    st.sampled_from(["c", 2, 1.5, 0]),
    st.sampled_from([None, 0, 2]),
)
def test_sums_are_checked_row_by_row(table: pa.Table, key: str, total: object, decimals: int | None) -> None:
    rule = rule_from_dict({"sum": ["a", "b"], key: total})
    assert_oracle(dataclasses.replace(rule, decimals=decimals), table)  # type: ignore[call-arg]  # a rule on sums


def test_long_tables() -> None:
    """More rows than one vector of DuckDB, in several chunks."""
    rng = np.random.default_rng(0)
    chunks = [pa.record_batch({name: rng.integers(0, 4, n) for name in "abc"}) for n in (3000, 1, 2500)]
    table = pa.Table.from_batches(chunks)
    assert_oracle(Combinations(combinations=("a", "b"), allowed=((0, 1), (2, 3), (3, 3))), table)
    assert_oracle(Determines(determines=("a", "b"), gives=("c",), table=((0, 1, 2), (1, 1, 3), (3, 0, 0))), table)
    assert_oracle(Sum(sum=("a", "b"), equals="c"), table)


def test_long_lists() -> None:
    """Many keys of several columns, so that the product of the sizes would not fit an integer."""
    names = tuple("abcdefgh")
    rng = np.random.default_rng(0)
    listed = rng.integers(0, 2**40, (2000, len(names)))
    rows = np.concatenate([listed[:500], rng.integers(0, 2**40, (500, len(names)))])
    table = pa.table(dict(zip(names, rows.T, strict=True)))
    broken = rule_from_dict({"combinations": names, "allowed": listed.tolist()}).broken(table)
    assert broken.tolist() == [False] * 500 + [True] * 500


@pytest.mark.parametrize(
    "values",
    [
        pa.array([2**63], pa.uint64()),
        pa.array([b"\xff"]),
        pa.array([[1, 2]]),
        pa.array([{"x": 1}]),
        pa.array([None], pa.null()),
        pa.array([np.datetime64("2000-01-01T00:00:00", "ns")]),
        pa.array([-(2**62)], pa.timestamp("s")),
        pa.array([1], pa.timestamp("us", "Europe/Berlin")),
        pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
        pa.array([3], pa.duration("s")),
        pa.array(["1e999"]),
        pa.array([1.0], pa.float16()),
        pa.array([math.inf]),
        pa.array(["a"], pa.large_string()),
        pa.array(["a"], pa.string_view()),
    ],
    ids=lambda values: str(values.type),
)
def test_no_value_makes_a_rule_fail(values: pa.Array) -> None:
    table = pa.table({"a": values, "b": values, "c": [1]})
    for rule in [
        Combinations(combinations=("a", "b"), allowed=(("x", "y"),)),
        Combinations(combinations=("a", "b"), forbidden=(("x", 10**30),)),
        Determines(determines=("a",), gives=("b",), table=(("x", 1.5),)),
        Determines(determines=("c",), gives=("b",), table=((1, "x"),)),
        Sum(sum=("a", "b"), equals="c"),
        Sum(sum=("a", "b"), at_most=3),
    ]:
        assert rule.broken(table).shape == (1,)
        assert rule.broken(table.slice(0, 0)).shape == (0,)


def test_a_nan_is_a_null() -> None:
    table = pa.table({"a": [math.nan, 1.0], "b": ["x", "y"], "c": [1.0, math.nan]})
    assert not Combinations(combinations=("a", "b"), allowed=((5, "z"),)).broken(table)[0]
    assert not Determines(determines=("b",), gives=("c",), table=(("x", 1), ("y", 1))).broken(table).any()
    assert not Skip(skip="a", when="b = 'x'").broken(table).any()
    assert Skip(skip="c", when="b = 'x'").broken(table).all()


# ------------------------------------------------------------------------------------------------- rules of conditions


Truth = bool | None
Condition = tuple[str, Callable[[Row], Truth]]
"""A condition in SQL, and what it is of one row."""

OPERATORS: dict[str, Callable] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    ">=": operator.ge,
}
SQL_TABLE = {"x": "integer", "y": "real", "s": "text", "d": "dictionary", "f": "boolean"}


def compare(sign: str, left: Callable[[Row], object], right: Callable[[Row], object]) -> Callable[[Row], Truth]:
    def truth(row: Row) -> Truth:
        values = left(row), right(row)
        return None if any(map(is_absent, values)) else OPERATORS[sign](*values)

    return truth


def negate(truth: Truth) -> Truth:
    return None if truth is None else not truth


def all_of(truths: Sequence[Truth]) -> Truth:
    return False if False in truths else None if None in truths else True


@st.composite
def atoms(draw: st.DrawFn) -> Condition:
    sign = draw(st.sampled_from(sorted(OPERATORS)))
    match draw(st.integers(0, 4)):
        case 0:
            name, value = draw(st.sampled_from("xy")), draw(st.integers(0, 3))
            return f"{name} {sign} {value}", compare(sign, lambda row: row[name], lambda row: value)
        case 1:
            return f"x {sign} y", compare(sign, lambda row: row["x"], lambda row: row["y"])
        case 2:
            name, word = draw(st.sampled_from("sd")), draw(st.sampled_from(["a", "b", "zz"]))
            return f"{name} {sign} '{word}'", compare(sign, lambda row: row[name], lambda row: word)
        case 3:
            name = draw(st.sampled_from(sorted(SQL_TABLE)))
            return f"{name} IS NULL", lambda row: is_absent(row[name])
    return "f", lambda row: row["f"]


def join(children: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    def conjunction(pair: tuple[Condition, Condition]) -> Condition:
        (one, left), (two, right) = pair
        return f"({one}) AND ({two})", lambda row: all_of([left(row), right(row)])

    def negation(child: Condition) -> Condition:
        return f"NOT ({child[0]})", lambda row: negate(child[1](row))

    return st.one_of(st.tuples(children, children).map(conjunction), children.map(negation))


conditions = st.recursive(atoms(), join, max_leaves=4)


@st.composite
def sql_tables(draw: st.DrawFn) -> pa.Table:
    columns = [draw(tables(types=(kind,), columns=(name,))).column(0) for name, kind in SQL_TABLE.items()]
    num_rows = min(map(len, columns))
    return pa.table({name: column.slice(0, num_rows) for name, column in zip(SQL_TABLE, columns, strict=True)})


@given(sql_tables(), conditions, conditions, st.sampled_from(sorted(SQL_TABLE)))
@settings(max_examples=scaled(60))
def test_conditions_are_false_row_by_row(table: pa.Table, one: Condition, two: Condition, skip: str) -> None:
    (when, is_when), (then, is_then) = one, two
    rows = rows_of(table)
    assert Keep(keep=when).broken(table).tolist() == [is_when(row) is False for row in rows]
    implied = [is_when(row) is True and is_then(row) is False for row in rows]
    assert WhenThen(when=when, then=then).broken(table).tolist() == implied
    skipped = [is_when(row) is not None and is_when(row) != is_absent(row[skip]) for row in rows]
    assert Skip(skip=skip, when=when).broken(table).tolist() == skipped


def test_long_tables_of_conditions() -> None:
    x = np.arange(5000) % 7
    table = pa.table({"x": pa.chunked_array([x[:3000], x[3000:]]), "s": pa.array(np.where(x > 3, "a", "b"))})
    assert np.array_equal(Keep(keep="x < 4").broken(table), x >= 4)
    assert not WhenThen(when="x > 3", then="s = 'a'").broken(table).any()
    assert Skip(skip="s", when="x > 3").broken(table).tolist() == (x > 3).tolist()


# ----------------------------------------------------------------------------------------------------- reading, writing

RULES = [
    Keep(keep="a >= b\n  AND c <> 'it''s \"x\"'"),
    Keep(keep="a >= b", on_break="drop"),
    WhenThen(when="c = 'x'", then="a = 1", on_break="clamp"),
    Combinations(combinations=("c", "d"), allowed=(("x", "u"), ("y", "v"))),
    Combinations(combinations=("c", "d", "flag"), forbidden=(("x", "u", True),), on_break="drop"),
    Determines(determines=("c",), gives=("d", "e"), table=(("x", "u", 1.5), ("y", "v", None))),
    Sum(sum=("a", "b"), equals="e"),
    Sum(sum=("a", "b"), at_most=24),
    Sum(sum=("a", "e"), equals=2.5),
    Skip(skip="e", when="c = 'x'"),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.text)
def test_keys_are_read_as_they_are_written(rule: Rule) -> None:
    entry = rule.to_dict()
    assert rule_from_dict(entry) == rule
    assert rule_from_dict(json.loads(json.dumps(entry))) == rule
    assert set(entry) <= {field.name for field in dataclasses.fields(rule)} - {"source", "decimals"}
    assert "\n" not in rule.text


COLUMNS = """
[columns.a]
kind = "integer"
[columns.b]
kind = "integer"
[columns.c]
kind = "categorical"
[columns.d]
kind = "categorical"
[columns.e]
kind = "real"
[columns.flag]
kind = "boolean"
"""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.text)
def test_schemas_keep_rules(rule: Rule) -> None:
    schema = dataclasses.replace(Schema.from_toml(COLUMNS), rules=(rule,))
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_lookup_files_stay_files(tmp_path: Path) -> None:
    """A file is found beside the schema, named again in TOML, and inline in a dict."""
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "pairs.csv").write_text("d,note,c\nu,ignored,x\n w ,,y\nu,again,x\n\n", encoding="utf-8-sig")
    (tmp_path / "table.csv").write_text('c,e,d\nx,1.50,"u,v"\ny,,w\n')
    path = tmp_path / "schema.toml"
    path.write_text(
        COLUMNS
        + '[[rules]]\ncombinations = ["c", "d"]\nallowed = "lists/pairs.csv"\n'
        + '[[rules]]\ndetermines = ["c"]\ngives = ["d", "e"]\ntable = "table.csv"\n'
    )
    schema = Schema.read(path)
    combinations, determines = schema.rules
    assert combinations.to_dict()["allowed"] == [["x", "u"], ["y", "w"]]
    assert determines.to_dict()["table"] == [["x", "u,v", 1.5], ["y", "w", None]]
    assert 'allowed = "lists/pairs.csv"' in schema.to_toml()
    assert Schema.from_toml(schema.to_toml(), folder=tmp_path) == schema
    assert Schema.from_dict(schema.to_dict()) == schema
    assert "csv" not in json.dumps(schema.to_dict())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "has no rows. It needs a header with zip, city"),
        (b"zip,city\n", "has no rows"),
        (b"\n\n  \n", "has no rows"),
        (b"10115,Berlin\n20095,Hamburg\n", 'needs one column \'zip\'; its header has "10115", "Berlin"'),
        (b"zip,City\n1,2\n", "needs one column 'city'.*Did you mean 'City'"),
        (b"zip,zip,city\n1,2,3\n", "needs one column 'zip'"),
        (b"zip,city\n\n1,2\n3\n", "Line 4 .* has 1 values, expected 2"),
        (b"zip,city\n1,2,3\n", "Line 2 .* has 3 values, expected 2"),
        (b"zip,city\n1,\xff\n", "is not UTF-8 text. Save"),
        (b'zip,city\n1,"2\n', "Cannot read the lookup table"),
    ],
)
def test_refused_lookup_files(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "zips.csv").write_bytes(content)
    entry = {"determines": ["zip"], "gives": ["city"], "table": "zips.csv"}
    with pytest.raises(SchemaError, match=words) as caught:
        rule_from_dict(entry, number=3, folder=tmp_path)
    assert str(caught.value).startswith("Rule 3: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["absent.csv", ".", "a\0b", "x" * 5000, "\ud800.csv"])
def test_refused_paths_of_lookup_files(tmp_path: Path, path: str) -> None:
    with pytest.raises(SchemaError) as caught:
        read_lookup(path, ["zip"], folder=tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (7, r"must be a section, \[\[rules\]\]"),
        ({}, "has nothing; expected one of the keys keep"),
        ({"kep": "a > b"}, "Did you mean 'keep'"),
        ({"when": "a = 1"}, "expected one of the keys"),
        ({"keep": "a > b", "sum": ["a", "b"]}, "unknown key 'sum'"),
        ({"keep": ""}, "keep must be an SQL condition"),
        ({"keep": 3}, "keep must be an SQL condition"),
        ({"keep": "a > b", "on_break": "dropp"}, "Did you mean 'drop'"),
        ({"keep": "a > b", "on_break": []}, "on_break must be"),
        ({"then": "a = 1"}, "lacks the key 'when'"),
        ({"skip": "a"}, "lacks the key 'when'"),
        ({"skip": ["a"], "when": "b = 1"}, "skip must be a column"),
        ({"combinations": ["a"], "allowed": [[1]]}, "at least 2 columns"),
        ({"combinations": ["a", "a"], "allowed": [[1, 1]]}, "names column 'a' twice"),
        ({"combinations": ["a", "b"]}, "either allowed or forbidden"),
        ({"combinations": ["a", "b"], "allowed": [[1, 2]], "forbidden": [[2, 1]]}, "either allowed or forbidden"),
        ({"combinations": ["a", "b"], "allowed": []}, "found an empty list"),
        ({"combinations": ["a", "b"], "allowed": [[1]]}, "each row must have 2 values"),
        ({"combinations": ["a", "b"], "allowed": [[1, None]]}, "expected strings, numbers or booleans"),
        ({"combinations": ["a", "b"], "allowed": [[1, math.nan]]}, "expected strings, numbers or booleans"),
        ({"combinations": ["a", "b"], "allowed": [[1, "\ud800"]]}, "not valid Unicode"),
        ({"determines": ["a"], "gives": ["a"], "table": [[1, 2]]}, "both in determines and in gives"),
        ({"determines": ["a"], "gives": ["b"], "table": [[1, 2], [1, 3]]}, "different values for the key 1 of a"),
        ({"determines": ["a"], "gives": ["b"]}, "lacks the key 'table'"),
        ({"sum": ["a"], "equals": 1}, "at least 2 columns"),
        ({"sum": ["a", "b"]}, "either equals or at_most"),
        ({"sum": ["a", "b"], "equals": 1, "at_most": 1}, "either equals or at_most"),
        ({"sum": ["a", "b"], "equals": True}, "a column or a number"),
        ({"sum": ["a", "b"], "equals": math.inf}, "a column or a number"),
        ({"sum": ["a", "b"], "equals": 10**400}, "a column or a number"),
        ({"sum": ["a", "b"], "equals": "b"}, "part of its own sum"),
    ],
)
def test_refused_keys(entry: object, words: str) -> None:
    with pytest.raises(SchemaError, match=words) as caught:
        rule_from_dict(entry, number=2)
    assert "Rule 2" in str(caught.value)
    assert "\n" not in str(caught.value)
