"""Structural zeros of random codecs and rules, against all values that the codes can stand for."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.encoding.ruled_tables import WORDS
from tests.examples import scaled
from understudy.encoding.columns import CategoricalCodec, ColumnCodec, NumericCodec
from understudy.encoding.reexpression import reexpress
from understudy.encoding.reexpression.zeros import MAX_CELLS, structural_zeros
from understudy.rules.rules import Rule, rule_from_dict
from understudy.schema import Column, Schema
from understudy.schema.grid import FLAT, Grid, Histogram

RULES: list[dict] = [
    {"keep": "a + b <= 6"},
    {"keep": "a <> b AND k <> l"},
    {"keep": "a * 2 = b OR k = 'x'"},
    {"keep": "a BETWEEN 1 AND 5 OR a IS NULL"},
    {"keep": "NOT (a > 3 AND k = 'y')"},
    {"keep": "k IS NOT NULL OR l IS NOT NULL"},
    {"when": "k = 'x'", "then": "l = 'y'"},
    {"when": "a > 3", "then": "b <= 3"},
    {"when": "a IS NULL", "then": "k = 'x'"},
    {"when": "f", "then": "a < 2"},
    {"skip": "l", "when": "k = 'x'"},
    {"skip": "a", "when": "b > 4 OR f"},
    {"combinations": ["k", "l"], "forbidden": [["x", "y"], ["z", "z"]]},
    {"combinations": ["k", "l", "f"], "forbidden": [["x", "y", True], ["z", "z", False]]},
]


@st.composite
def ruled_schemas(draw: st.DrawFn) -> Schema:
    found = [rule_from_dict(entry) for entry in draw(st.lists(st.sampled_from(RULES), min_size=1, max_size=2))]
    skipped = {rule.skip for rule in found if hasattr(rule, "skip")}

    def nullable(name: str) -> bool:
        return name in skipped or draw(st.booleans())

    columns = (
        *(Column(name=n, kind="integer", bounds=(0, 7), nullable=nullable(n)) for n in "ab"),
        *(Column(name=n, kind="categorical", categories=WORDS, closed=True, nullable=nullable(n)) for n in "kl"),
        Column(name="f", kind="boolean", nullable=nullable("f")),
    )
    return Schema(columns=columns, rules=tuple(found), rows=50)


def values_of_codes(column: ColumnCodec) -> list[list]:
    """All values that each code can stand for."""
    if isinstance(column, CategoricalCodec):
        values = [[value] for value in column.categories]
    else:
        lower, upper = column.bin_edges()
        values = [list(range(int(low), int(high) + 1)) for low, high in zip(lower, upper, strict=True)]
    return [*values, [None]] if column.nullable else values


def brute_force(rule: Rule, columns: dict[str, ColumnCodec], names: tuple[str, ...]) -> np.ndarray:
    """For each combination of codes, whether some row with these codes satisfies the rule."""
    used = tuple(dict.fromkeys((*names, *rule.columns)))
    codes = [values_of_codes(columns[name]) for name in used]
    cells = list(itertools.product(*(range(len(each)) for each in codes)))
    rows = [
        (cell, row) for cell in cells for row in itertools.product(*(codes[at][code] for at, code in enumerate(cell)))
    ]
    table = pa.table(
        {name: pa.array([row[at] for _, row in rows], TYPES.field(name).type) for at, name in enumerate(used)}
    )
    possible = np.zeros([len(each) for each in codes], dtype=bool)
    for (cell, _), broken in zip(rows, rule.broken(table), strict=True):
        possible[cell] |= not broken
    return np.asarray(possible.any(axis=tuple(range(len(names), len(used)))))


def codecs(schema: Schema, edges: list[int]) -> tuple[ColumnCodec, ...]:
    """Integers in bins that begin at 0 and at these numbers; other codes are one value each."""
    found: list[ColumnCodec] = []
    for column in schema.columns:
        if column.kind == "integer":
            histogram = Histogram.flat(Grid(0, 7, finest=FLAT), num_bins=8)
            starts = np.asarray([0, *edges, 8])
            found.append(NumericCodec(column.name, "integer", histogram, starts, column.nullable))
        else:
            values = (False, True) if column.kind == "boolean" else WORDS
            found.append(CategoricalCodec(column.name, values, column.nullable, 0))
    return tuple(found)


EVERY_VALUE = [1, 2, 3, 4, 5, 6, 7]
TYPES = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("k", pa.string()), ("l", pa.string()), ("f", pa.bool_())])


@settings(max_examples=scaled(60))
@given(schema=ruled_schemas(), edges=st.sets(st.integers(1, 7)).map(sorted))
def test_a_zero_is_no_combination_that_a_row_can_have(schema: Schema, edges: list[int]) -> None:
    """Whatever the bins. For each rule by itself, since rules are satisfied together by satisfying each."""
    columns = codecs(schema, edges)
    for rule in schema.rules:
        alone = Schema(columns=schema.columns, rules=(rule,), rows=50)
        for zeros in structural_zeros(reexpress(alone), columns):
            possible = brute_force(rule, {column.name: column for column in columns}, zeros.columns)
            assert not (possible & ~zeros.possible).any(), rule.text


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("entry", RULES, ids=str)
def test_all_impossible_combinations_are_found(entry: dict, nullable: bool) -> None:
    """Where every code is one value."""
    rule = rule_from_dict(entry)
    kinds = {"integer": {"bounds": (0, 7)}, "categorical": {"categories": WORDS, "closed": True}, "boolean": {}}
    named = {"a": "integer", "b": "integer", "k": "categorical", "l": "categorical", "f": "boolean"}
    schema = Schema(
        columns=tuple(
            Column(name=name, kind=kind, nullable=nullable or name == entry.get("skip"), **kinds[kind])  # type: ignore[arg-type]
            for name, kind in named.items()
        ),
        rules=(rule,),
    )
    assert rule in reexpress(schema).remaining
    columns = codecs(schema, EVERY_VALUE)
    by_name = {column.name: column for column in columns}
    together = np.ones([by_name[name].size for name in rule.columns], dtype=bool)
    for zeros in structural_zeros(reexpress(schema), columns):
        order = np.argsort([rule.columns.index(name) for name in zeros.columns])
        shape = [by_name[name].size if name in zeros.columns else 1 for name in rule.columns]
        together &= zeros.possible.transpose(order).reshape(shape)
    np.testing.assert_array_equal(together, brute_force(rule, by_name, rule.columns))


def test_a_rule_over_too_many_cells_is_left_to_rejection() -> None:
    names = "abcdefg"
    columns = tuple(Column(name=name, kind="integer", bounds=(0, 7)) for name in names)
    wide = Schema(columns=columns, rules=(rule_from_dict({"keep": f"{' + '.join(names)} <> 7"}),), rows=50)
    columns_of_codes = codecs(wide, EVERY_VALUE)
    assert np.prod([column.size for column in columns_of_codes]) > MAX_CELLS
    assert structural_zeros(reexpress(wide), columns_of_codes) == ()
