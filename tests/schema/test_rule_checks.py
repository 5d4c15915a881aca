"""Rules that cannot be satisfied: each is refused in one line, and what is called impossible is so by brute force."""

import dataclasses
import functools
import json
import re
import string
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import scaled
from understudy.errors import SchemaError
from understudy.schema import Schema, as_schema

COLUMNS: dict[str, dict[str, object]] = {
    "a": {"kind": "integer", "bounds": [0, 10]},
    "b": {"kind": "integer", "bounds": [20, 30]},
    "c": {"kind": "integer"},
    "d": {"kind": "real", "bounds": [0, 1]},
    "e": {"kind": "real", "decimals": 2},
    "sex": {"kind": "categorical", "categories": ["male", "female"], "closed": True},
    "pregnant": {"kind": "categorical", "categories": ["yes", "no"]},
    "size": {"kind": "categorical", "categories": [1, 2, 3]},
    "city": {"kind": "categorical"},
    "flag": {"kind": "boolean", "nullable": False},
    "admitted": {"kind": "date"},
    "discharged": {"kind": "date", "bounds": ["2020-01-01", "2020-12-31"]},
    "moment": {"kind": "datetime", "bounds": ["2020-01-01", "2021-01-01"]},
    "notes": {"kind": "text"},
    "left": {"kind": "integer", "drop": True},
}


def schema_of(*rules: dict[str, object]) -> Schema:
    return as_schema({"columns": COLUMNS, "rules": list(rules)})


def refuse(*rules: dict[str, object]) -> str:
    with pytest.raises(SchemaError) as caught:
        schema_of(*rules)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("Rule ")
    return str(caught.value)


def refusal(make: Callable[[], Schema]) -> str | None:
    try:
        make()
    except SchemaError as error:
        return str(error)
    return None


def keep(condition: str, **more: object) -> dict[str, object]:
    return {"keep": condition, **more}


# ------------------------------------------------------------------------------------------------------------- one rule


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("a >=", "syntax error"),
        ("a >= 1; b", "Cannot use"),
        ("citty = 'x'", "no column 'citty' in the schema. Did you mean 'city'"),
        ("A >= 1", "no column 'A' in the schema. Did you mean 'a'"),
        ('sex = "male"', "Strings are written in single quotes"),
        ("notes = 'x'", "column 'notes' has kind 'text' and so is not modelled"),
        ('"left" > 1', "column 'left' is dropped and so is not modelled"),
        ("a + 1", "expected a condition that is true or false"),
        ("a > 'x'", "Could not convert"),
        ("a + city > 3", "Cannot use"),
        ("discharged <= today()", "changes with time"),
        ("discharged <= current_date", "changes with time"),
        ("random() > a", "random is not allowed"),
        ("sex = 'mael'", "column 'sex' is never \"mael\": its categories are .* Did you mean 'male'"),
        ("sex = 'other'", "column 'sex' is never \"other\""),
        ("a > 3 OR NOT (pregnant IN ('yes', 'nno'))", "never \"nno\".*Did you mean 'no'"),
        ("'ys' = pregnant", 'never "ys"'),
        ("size = 4", "column 'size' is never 4: its categories are 1, 2, 3"),
    ],
)
def test_refused_conditions(condition: str, words: str) -> None:
    rules: list[dict[str, object]] = [
        keep(condition),
        {"when": condition, "then": "b = 20"},
        {"skip": "b", "when": condition},
    ]
    for rule in rules:
        message = refuse(keep("a < 5"), rule)
        assert message.startswith("Rule 2 (")
        assert re.search(words, message), message


@pytest.mark.parametrize(
    "condition",
    [
        "pregnant = 'other'",
        "pregnant <> ''",
        "city = 'anything'",
        "size = 2.0",
        "size IN (1, 3)",
        "a BETWEEN 3 AND 4",
        "lower(sex) = 'male'",
        "discharged >= DATE '2020-06-01'",
        "admitted <= discharged AND discharged <= moment",
        "flag",
        "a IS NULL",
        "d > 0.5 AND e < 3 AND c % 2 = 0",
    ],
)
def test_accepted_conditions(condition: str) -> None:
    assert schema_of(keep(condition)).rules[0].conditions == (condition,)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"combinations": ["sex", "nothing"], "allowed": [["male", 1]]}, "no column 'nothing'"),
        ({"combinations": ["sex", "d"], "allowed": [["male", 1]]}, "kind 'real' cannot be listed"),
        ({"combinations": ["sex", "moment"], "allowed": [["male", "2020-01-01"]]}, "kind 'datetime' cannot be listed"),
        ({"combinations": ["sex", "pregnant"], "allowed": [["male", "noo"]]}, "\"noo\" for column 'pregnant'.*'no'"),
        ({"combinations": ["sex", "pregnant"], "forbidden": [["mael", "no"]]}, "Did you mean 'male'"),
        ({"combinations": ["sex", "a"], "allowed": [["male", 11]]}, "within its bounds, 0 to 10"),
        ({"combinations": ["sex", "a"], "allowed": [["male", 1.5]]}, "expected a value of kind integer, such as 12"),
        ({"combinations": ["sex", "flag"], "allowed": [["male", "maybe"]]}, "expected a value of kind boolean"),
        ({"combinations": ["sex", "admitted"], "allowed": [["male", "1.1.2020"]]}, "expected a value of kind date"),
        ({"determines": ["d"], "gives": ["a"], "table": [[0.5, 1]]}, "kind 'real' cannot determine others"),
        ({"determines": ["admitted"], "gives": ["a"], "table": [["2020-01-01", 1]]}, "'date' cannot determine others"),
        ({"determines": ["sex"], "gives": ["a"], "table": [["male", 1]]}, "has no row for \"female\" of 'sex'"),
        ({"determines": ["flag"], "gives": ["a"], "table": [["yes", 1]]}, "has no row for false of 'flag'"),
        ({"determines": ["sex"], "gives": ["a"], "table": [["m", 1]]}, "no key of the table is a value of sex"),
        (
            {"determines": ["sex"], "gives": ["pregnant"], "table": [["male", "no"], ["female", "maybe"]]},
            "table has \"maybe\" for column 'pregnant': expected one of its categories",
        ),
        ({"determines": ["sex"], "gives": ["a"], "table": [["male", 1], ["female", 99]]}, "within its bounds, 0 to 10"),
        ({"determines": ["sex"], "gives": ["a"], "table": [["male", 1], ["female", "x"]]}, "of kind integer"),
        ({"determines": ["sex"], "gives": ["e"], "table": [["male", 1], ["female", 1.234]]}, "kind real"),
        (
            {"determines": ["sex"], "gives": ["flag"], "table": [["male", ""], ["female", True]]},
            "an empty value.*nullable",
        ),
        ({"sum": ["a", "sex"], "at_most": 3}, "'categorical' cannot be added up; expected integer or real"),
        ({"sum": ["a", "b"], "equals": "flag"}, "'boolean' cannot be added up"),
        ({"sum": ["a", "b"], "at_most": 30.5}, r"30.5 has more decimals than the columns \(0\)"),
        ({"skip": "flag", "when": "sex = 'male'"}, "makes column 'flag' null, which has nullable = false"),
        ({"skip": "a", "when": "a > 3"}, "when must not use 'a' itself"),
        (keep("1 = 1"), "expected a condition over columns, but it uses none"),
    ],
)
def test_refused_rules(rule: dict[str, object], words: str) -> None:
    message = refuse(rule)
    assert re.search(words, message), message


@pytest.mark.parametrize(
    "rule",
    [
        {"sum": ["a", "b"], "equals": 20},
        {"sum": ["a", "b"], "equals": 40},
        {"sum": ["a", "b"], "at_most": 20},
        {"sum": ["a", "e"], "equals": 2.5},
        {"sum": ["b", "d"], "at_most": "c"},
        keep("a - b >= -10"),
        keep("b > a + 29"),
        keep("a >= 10"),
        keep("discharged >= moment + INTERVAL 365 DAY"),
        keep("discharged - admitted >= 3"),
        {"determines": ["sex"], "gives": ["a"], "table": [["male", 1], ["female", 2], ["divers", 99]]},
        {"determines": ["size"], "gives": ["city"], "table": [[1, "x"], [2, "y"], [3, ""]]},
        {"combinations": ["sex", "pregnant"], "allowed": [["female", "other"]]},
    ],
)
def test_accepted_rules(rule: dict[str, object]) -> None:
    assert schema_of(rule, rule).rules[0].to_dict() == rule | (
        {"table": [[1, "x"], [2, "y"], [3, None]]} if rule.get("determines") == ["size"] else {}
    )


def test_listed_values_get_the_type_of_their_column() -> None:
    """So that a text file can list numbers, booleans and dates."""
    entry = {
        "combinations": ["a", "size", "flag", "admitted"],
        "allowed": [["1", "2", "yes", "2020-01-31"], [2.0, 3, False, "2020-02-01"]],
    }
    (rule,) = schema_of(entry).rules
    assert rule.to_dict()["allowed"] == [[1, 2, True, "2020-01-31"], [2, 3, False, "2020-02-01"]]
    table = {"determines": ["flag"], "gives": ["e", "moment"], "table": [["f", "1.50", "2020-01-01"], [1, 2, ""]]}
    (rule,) = schema_of(table).rules
    assert rule.to_dict()["table"] == [[False, 1.5, "2020-01-01T00:00:00.000000"], [True, 2.0, None]]


@pytest.mark.parametrize(
    ("rule", "possible"),
    [
        (keep("c >= a"), True),
        (keep("c >= a + 3 AND d = e * 2"), True),
        (keep("c >= a AND d > 0.5"), False),
        (keep("sex = 'male'"), False),
        ({"when": "sex = 'male'", "then": "pregnant = 'no'"}, True),
        ({"when": "sex = 'male'", "then": "pregnant <> 'no'"}, False),
        ({"when": "sex = 'male'", "then": "pregnant = 'no' AND flag"}, False),
        ({"when": "a > 3", "then": "a = 3"}, False),
        ({"sum": ["a", "b"], "equals": "c"}, True),
        ({"skip": "a", "when": "flag"}, True),
        ({"combinations": ["sex", "pregnant"], "forbidden": [["male", "yes"]]}, True),
    ],
)
def test_clamping_needs_a_nearest_row(rule: dict[str, object], possible: bool) -> None:
    schema_of(rule | {"on_break": "drop"})
    if possible:
        assert schema_of(rule | {"on_break": "clamp"}).rules[0].on_break == "clamp"
    else:
        assert 'Write on_break = "drop".' in refuse(rule | {"on_break": "clamp"})


# ---------------------------------------------------------------------------------------------------------------- pairs

SEX_GIVES = {"determines": ["sex"], "gives": ["pregnant"], "table": [["male", "no"], ["female", "no"]]}


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([SEX_GIVES, SEX_GIVES], None),
        ([SEX_GIVES, SEX_GIVES | {"table": [["male", "no"], ["female", "yes"]]}], "both give column 'pregnant'"),
        (
            [SEX_GIVES, {"determines": ["pregnant"], "gives": ["sex"], "table": [["yes", "male"], ["no", "male"]]}],
            "circ",
        ),
        ([keep("c = a + 1"), keep("c = b + 1")], "both give column 'c'"),
        ([keep("c = a + 1"), keep("a = c - 1")], "are circular"),
        ([keep("c = a + 1"), {"sum": ["c", "e"], "equals": "a"}], "are circular"),
        ([keep("c = a + 1 AND a = c - 1")], "is circular"),
        ([{"sum": ["a", "b"], "equals": "c"}, {"sum": ["d", "e"], "equals": "c"}], None),
        ([{"sum": ["a", "b"], "equals": "c"}, {"sum": ["c", "e"], "equals": "a"}], "are circular"),
        (
            [
                {"determines": ["size"], "gives": ["a"], "table": [[1, 1], [2, 2], [3, 3]]},
                keep("c = a + 1"),
                {"determines": ["c"], "gives": ["size"], "table": [[1, 1]]},
            ],
            "are circular",
        ),
        ([{"skip": "a", "when": "flag"}, {"skip": "a", "when": "sex = 'male'"}], "both say when 'a' is null"),
    ],
)
def test_pairs(rules: list[dict[str, object]], words: str | None) -> None:
    if words is None:
        assert len(schema_of(*rules).rules) == len(rules)
    else:
        message = refuse(*rules)
        assert re.search(words, message), message
        if len(rules) > 1:
            assert len(re.findall(r"[Rr]ule \d \(", message)) >= 2


def test_twenty_rules_of_every_kind_are_accepted_together() -> None:
    """None contradicts another, and copies of the schema keep them."""
    rules: list[dict[str, object]] = [
        *(keep(f"a + {i} >= 0") for i in range(5)),
        *(dict[str, object](when=f"a > {i} AND flag", then=f"b < {25 + i} OR sex = 'male'") for i in range(10)),
        keep("discharged >= admitted"),
        {"skip": "c", "when": "flag"},
        {"combinations": ["sex", "pregnant"], "forbidden": [["male", "yes"]]},
        {"sum": ["a", "b"], "at_most": "c"},
        keep("d <> 0.3"),
    ]
    schema = schema_of(*rules)
    assert len(schema.rules) == 20
    assert dataclasses.replace(schema, rows=10).rules == schema.rules


# ----------------------------------------------------------------------------------------------------------------- fuzz

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(string.printable, max_size=8), st.just("a >= b")
)
nested = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=2)),
)
KEYS = ["keep", "when", "then", "combinations", "allowed", "forbidden", "determines", "gives", "table", "sum", "equals"]
entries_of_keys = st.dictionaries(
    st.sampled_from([*KEYS, "at_most", "skip", "on_break", "zzz"]),
    st.one_of(
        nested,
        st.lists(st.sampled_from(["a", "b", "sex", "flag", "zz"]), max_size=3),
        st.sampled_from(["a", "a > 1", "sex = 'male'", "drop", "clamp"]),
        st.lists(st.lists(scalars, max_size=3), max_size=3),
    ),
    max_size=5,
)


@given(st.one_of(nested, st.lists(st.one_of(entries_of_keys, nested), max_size=3)))
@settings(max_examples=scaled(300))
def test_wrong_rules_raise_nothing_but_schema_errors(rules: object) -> None:
    columns = [{"name": name, **entry} for name, entry in COLUMNS.items()]
    for content in ({"columns": COLUMNS, "rules": rules}, {"columns": columns, "rules": rules}):
        message = refusal(functools.partial(as_schema, content))
        if message is None:
            schema = as_schema(content)
            assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
            assert Schema.from_toml(schema.to_toml()) == schema
        else:
            assert "\n" not in message
