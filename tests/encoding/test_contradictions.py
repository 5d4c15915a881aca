"""Rules that contradict each other: what is refused is so by brute force, and a warning names the fewest rules."""

import itertools
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import understudy as us
from tests.examples import scaled
from understudy.encoding import rule_warnings
from understudy.encoding.contradictions import ROWS as NUM_ROWS
from understudy.errors import SchemaError, UnderstudyWarning
from understudy.rules.conditions import truth
from understudy.rules.rules import Combinations, Determines, Keep, Rule, Sum, WhenThen, rule_from_dict
from understudy.schema import Column, Schema, as_schema

COLUMNS: dict[str, dict[str, object]] = {
    "a": {"kind": "integer", "bounds": [0, 10]},
    "b": {"kind": "integer", "bounds": [20, 30]},
    "c": {"kind": "integer", "bounds": [-100, 100]},
    "d": {"kind": "real", "bounds": [0, 1]},
    "e": {"kind": "real", "bounds": [0, 1]},
    "open": {"kind": "integer"},
    "sex": {"kind": "categorical", "categories": ["male", "female"], "closed": True},
    "pregnant": {"kind": "categorical", "categories": ["yes", "no"]},
    "flag": {"kind": "boolean", "nullable": False},
    "discharged": {"kind": "date", "bounds": ["2020-01-01", "2020-12-31"]},
    "moment": {"kind": "datetime", "bounds": ["2020-01-01", "2021-01-01"]},
}
TWO: dict[str, object] = {"kind": "categorical", "categories": ["x", "y"], "closed": True, "nullable": False}
THIRTY: dict[str, object] = {"kind": "integer", "bounds": [0, 30], "nullable": False}
SEX_GIVES = {"determines": ["sex"], "gives": ["pregnant"], "table": [["male", "no"], ["female", "no"]]}
RATES = {"determines": ["sex"], "gives": ["d"], "table": [["male", 0.5], ["female", 1]]}


def keep(condition: str) -> dict[str, object]:
    return {"keep": condition}


def verdict(columns: dict[str, dict[str, object]], rules: list[dict[str, object]]) -> tuple[str, str]:
    """What is said about the rules: refused as impossible, random rows without a hit, only with nulls, or nothing."""
    try:
        notes = rule_warnings(as_schema({"columns": columns, "rules": rules}))
    except SchemaError as error:
        said, kind = str(error), "refused"
        assert "no row satisfies" in said
    else:
        said = " ".join(map(str, notes))
        kind = "random" if f"none of {NUM_ROWS:,} random rows satisfies" in said else "nulls" if said else "accepted"
    assert "\n" not in said
    return kind, ", ".join(re.findall(r"[Rr]ule (\d) \(", said))


@pytest.mark.parametrize(
    ("rules", "kind"),
    [
        ([keep("a >= b")], "nulls"),
        ([keep("c >= a")], "accepted"),
        ([keep("a - b >= -9")], "nulls"),
        ([keep("a - b >= -10")], "accepted"),
        ([keep("discharged >= moment + INTERVAL 366 DAY")], "random"),
        ([keep("a > c AND c > a")], "nulls"),
        ([keep("c > a"), keep("a > c")], "nulls"),
        ([keep("d > e"), keep("e > d")], "random"),
        ([keep("d = e * 2")], "accepted"),
        ([keep("c = a + 1"), {"sum": ["a", "c"], "equals": "b"}], "accepted"),
        ([keep("a > 10 OR d < 0")], "random"),
        ([{"when": "flag OR NOT flag", "then": "a > 10"}], "nulls"),
        ([SEX_GIVES, keep("pregnant = 'yes'")], "nulls"),
        ([keep("a > 3"), {"when": "a > 2", "then": "a < 3"}], "nulls"),
        ([keep("sex = 'male'"), {"when": "sex = 'male'", "then": "pregnant = 'no'"}], "accepted"),
        ([{"skip": "a", "when": "flag OR NOT flag"}, keep("a IS NOT NULL")], "refused"),
        ([{"skip": "a", "when": "flag"}, keep("a IS NOT NULL")], "accepted"),
        ([{"skip": "c", "when": "a > 3"}, keep("a IS NULL")], "accepted"),
        (
            [
                {"combinations": ["sex", "flag"], "allowed": [["male", True]]},
                {"combinations": ["flag", "sex"], "allowed": [[False, "male"], [True, "female"]]},
            ],
            "nulls",
        ),
        ([{"sum": ["a", "d"], "at_most": "c"}, keep("c < 0")], "random"),
        ([{"sum": ["a", "d"], "at_most": "c"}, keep("c < 3")], "accepted"),
        ([{"sum": ["a", "b"], "equals": 19}], "nulls"),
        ([{"sum": ["a", "b"], "at_most": 19}], "nulls"),
        ([{"sum": ["a", "b"], "equals": 41}], "nulls"),
        ([{"sum": ["b", "d"], "equals": "a"}], "random"),
        ([keep("sex = 'male' AND sex = 'female'")], "nulls"),
        ([keep("sex = 'male'"), keep("sex <> 'male'")], "nulls"),
        ([keep("d >= 0.5"), keep("d <= 0.5")], "random"),  # a real is never exactly one value
        ([keep("e = 0 OR e = 1")], "random"),
        ([keep("d <= 0.5"), RATES], "accepted"),
        ([keep("open > a"), keep("a > open")], "accepted"),  # without bounds there is nothing to draw from
    ],
)
def test_contradictions_of_one_or_two_rules(rules: list[dict[str, object]], kind: str) -> None:
    found, named = verdict(COLUMNS, rules)
    assert found == kind
    if kind != "accepted":
        assert named == ", ".join(str(number) for number in range(1, len(rules) + 1))


def test_long_chains_and_formulas_are_not_called_contradictory() -> None:
    """Ten dates in order: random dates are so once in 3,628,800 rows, but the order is satisfied by construction."""
    names = "abcdefghij"
    dates: dict[str, dict[str, object]] = {
        name: {"kind": "date", "bounds": ["2020-01-01", "2022-01-01"]} for name in names
    }
    assert verdict(dates, [keep(f"{low} < {high}") for low, high in itertools.pairwise(names)])[0] == "accepted"
    numbers: dict[str, dict[str, object]] = {name: {"kind": "integer", "bounds": [0, 10**9]} for name in "abc"}
    assert verdict(numbers, [{"sum": ["a", "b"], "equals": "c"}, keep("a > b")])[0] == "accepted"
    keys = [[number, number] for number in range(1000)]
    lookup = {"determines": ["a"], "gives": ["b"], "table": keys}
    thousand: dict[str, dict[str, object]] = {name: {"kind": "integer", "bounds": [0, 999]} for name in "ab"}
    assert verdict(thousand, [lookup, keep("a <> 7")])[0] == "accepted"


def test_many_rules_that_share_no_column_are_tried_apart() -> None:
    """Each holds in one row of a hundred: together they would hold in none of the random rows."""
    columns: dict[str, dict[str, object]] = {f"x{at}": {"kind": "real", "bounds": [0, 1]} for at in range(12)}
    rules = [keep(f"x{at} + x{at + 1} < 0.15") for at in range(0, 12, 2)]
    assert verdict(columns, rules)[0] == "accepted"


@pytest.mark.parametrize(
    ("columns", "rules", "kind", "named"),
    [
        (dict.fromkeys("abc", TWO), [keep("a <> b"), keep("b <> c"), keep("c <> a")], "refused", "1, 2, 3"),
        (
            {name: TWO | {"nullable": True} for name in "abc"},
            [keep("a <> b"), keep("b <> c"), keep("c <> a")],
            "nulls",
            "1, 2, 3",
        ),
        (dict.fromkeys("abc", TWO), [keep("a <> b"), keep("b <> c"), keep("c = a")], "accepted", ""),
        (
            dict.fromkeys("abcd", TWO),
            [keep("a <> b"), keep("d = 'x'"), keep("b <> c"), keep("c <> d OR c <> a"), keep("c <> a")],
            "refused",
            "1, 3, 5",
        ),
        (
            dict.fromkeys("abc", THIRTY),
            [keep("abs(a - b) >= 20"), keep("abs(b - c) >= 20"), keep("abs(c - a) >= 20")],
            "random",
            "1, 2, 3",
        ),
        (
            dict.fromkeys("abc", THIRTY),
            [keep("abs(a - b) >= 15"), keep("abs(b - c) >= 15"), keep("abs(c - a) >= 15")],
            "accepted",
            "",
        ),
        (
            dict.fromkeys("abcd", THIRTY),
            [
                {"when": "a >= 10", "then": "b >= 10"},
                keep("a >= 10 OR b >= 10 OR c > 100 - d"),
                keep("c + d < 50"),
                {"when": "b >= 10", "then": "c >= 25"},
                {"when": "c >= 25", "then": "d >= 25"},
            ],
            "random",
            "1, 2, 3, 4, 5",
        ),
        (
            {"a": TWO, **{name: THIRTY | {"nullable": True} for name in "ef"}},
            [
                {"skip": "e", "when": "a = 'x'"},
                {"skip": "f", "when": "a = 'y'"},
                keep("e > 0"),
                keep("f > 0"),
            ],
            "accepted",
            "",
        ),
    ],
    ids=["triangle", "nulls", "path", "smallest set", "numbers", "numbers that fit", "chain", "skipped in turn"],
)
def test_rules_that_only_together_contradict_each_other(
    columns: dict[str, dict[str, object]], rules: list[dict[str, object]], kind: str, named: str
) -> None:
    assert verdict(columns, rules) == (kind, named)


def test_a_contradiction_is_refused_before_a_run_and_a_warning_raised_by_plan_and_fit() -> None:
    triangle = [keep("a <> b"), keep("b <> c"), keep("c <> a")]
    impossible = as_schema({"columns": dict.fromkeys("abc", TWO), "rules": triangle})
    rows = pa.table({name: ["x", "y"] * 10 for name in "abc"})
    with pytest.raises(SchemaError):
        us.plan(impossible, epsilon=1)
    with pytest.raises(SchemaError):
        us.fit(rows, "independent", epsilon=1, schema=impossible, seed=0)
    possible = as_schema({"columns": {name: TWO | {"nullable": True} for name in "abc"}, "rules": triangle})
    with pytest.warns(UnderstudyWarning, match="Only rows with a null"):
        us.plan(possible, epsilon=1)


# ----------------------------------------------------------------------------------------------------------------- fuzz

SMALL: dict[str, Column] = {
    "x": Column(name="x", kind="categorical", categories=("p", "q", "r"), closed=True),
    "y": Column(name="y", kind="categorical", categories=("p", "q"), nullable=False),
    "f": Column(name="f", kind="boolean"),
    "m": Column(name="m", kind="integer", bounds=(0, 3)),
    "n": Column(name="n", kind="integer", bounds=(1, 4), nullable=False),
}
VALUES: dict[str, list] = {
    "x": ["p", "q", "r", None],
    "y": ["p", "q", "other"],
    "f": [False, True, None],
    "m": [0, 1, 2, 3, None],
    "n": [1, 2, 3, 4],
}
ROWS = pa.table(dict(zip(VALUES, map(list, zip(*itertools.product(*VALUES.values()), strict=True)), strict=True)))


def holds(rule: Rule) -> np.ndarray:
    """Which of all rows make a rule true: those that do not break it, unless a null leaves it unknown."""
    rows = ROWS.to_pylist()
    kept = ~rule.broken(ROWS)
    match rule:
        case Keep():
            known = truth(ROWS, rule.keep)[0]
        case WhenThen():
            known = ~truth(ROWS, rule.when)[0] | truth(ROWS, rule.then)[0]
        case Combinations() | Sum():
            known = np.array([all(row[name] is not None for name in rule.columns) for row in rows])
        case Determines():
            known = np.array([row[rule.determines[0]] is not None for row in rows])
        case _:
            known = np.ones(len(rows), dtype=bool)
    return kept & known


small_atoms = st.one_of(
    st.builds("x {} '{}'".format, st.sampled_from(["=", "<>"]), st.sampled_from("pqr")),
    st.builds("y {} '{}'".format, st.sampled_from(["=", "<>"]), st.sampled_from("pq")),
    st.builds("{} {} {}".format, st.sampled_from("mn"), st.sampled_from(["=", ">", "<=", "<>"]), st.integers(-1, 5)),
    st.builds(
        "{} {} {}".format, st.just("m"), st.sampled_from([">", "<=", ">=", "="]), st.sampled_from(["n", "n + 1"])
    ),
    st.sampled_from(["f", "NOT f", "x IS NULL", "m IS NOT NULL", "m + n = 4", "m * 2 > n"]),
)
small_conditions = st.recursive(
    small_atoms,
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner),
    max_leaves=3,
)


def listed(*names: str) -> st.SearchStrategy[list[list]]:
    values = [st.sampled_from([value for value in VALUES[name] if value is not None]) for name in names]
    return st.lists(st.tuples(*values).map(list), min_size=1, max_size=6)


small_rules = st.one_of(
    small_conditions.map(lambda text: {"keep": text}),
    st.builds(lambda when, then: {"when": when, "then": then}, small_conditions, small_conditions),
    st.builds(lambda skip, when: {"skip": skip, "when": when}, st.sampled_from("xfm"), small_conditions),
    st.builds(lambda rows: {"combinations": ["x", "y"], "allowed": rows}, listed("x", "y")),
    st.builds(lambda rows: {"combinations": ["y", "f", "m"], "forbidden": rows}, listed("y", "f", "m")),
    st.builds(
        lambda a, b: {"determines": ["f"], "gives": ["x"], "table": [[False, a], [True, b]]},
        *[st.sampled_from([*"pqr", ""])] * 2,
    ),
    st.builds(
        lambda key, total: {"sum": ["m", "n"], key: total},
        st.sampled_from(["equals", "at_most"]),
        st.integers(-1, 9),
    ),
)


@given(st.lists(small_rules, min_size=1, max_size=6))
@settings(max_examples=scaled(200))
def test_rules_are_refused_exactly_if_every_row_breaks_one(entries: list[dict[str, object]]) -> None:
    """Here all rows are tried. None of the named rules can be left out, and a warning is true as well."""
    try:
        rules = [rule_from_dict(entry) for entry in entries]
        schema = Schema(columns=tuple(SMALL.values()), rules=tuple(rules))
    except SchemaError:
        assume(False)
    broken = np.array([rule.broken(ROWS) for rule in rules])
    try:
        notes = rule_warnings(schema)
    except SchemaError as error:
        named = [int(number) - 1 for number in re.findall(r"[Rr]ule (\d) \(", str(error))]
        if not named:  # conditions on one column alone, which leave it no value, are named by themselves
            named = [at for at, rule in enumerate(rules) if error.column in rule.columns]
            has_value = ROWS.column(str(error.column)).is_valid().to_numpy()
            assert np.logical_or.reduce(broken[named])[has_value].all()
            return
        assert broken[named].any(axis=0).all()
        for at in range(len(named) if len(named) > 1 else 0):
            assert not broken[named[:at] + named[at + 1 :]].any(axis=0).all()
    else:
        assert not broken.any(axis=0).all()
        for note in notes:
            named = [int(number) - 1 for number in re.findall(r"[Rr]ule (\d) \(", str(note))]
            used = {name for at in named for name in rules[at].columns}
            has_null = np.logical_or.reduce([ROWS.column(name).is_null().to_numpy() for name in used])
            assert (broken[named].any(axis=0) | has_null).all()
