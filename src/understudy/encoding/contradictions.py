"""Finds rules that no row of the declared domain satisfies, by trying all rows if they are few, and else random ones.

Trying all rows is a proof. Trying random ones is not: rows that satisfy the rules may be rare.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date

import jax
import numpy as np
import pyarrow as pa
from jaxtyping import Bool

from understudy.encoding.arrow import bound_numbers, from_numbers
from understudy.encoding.fit import declared_codec
from understudy.encoding.reexpression import reexpress
from understudy.errors import SchemaError
from understudy.notes import Note, warnings_of
from understudy.rules.rules import Combinations, Determines, Rule, Skip, rule_title
from understudy.rules.satisfiability import connected
from understudy.schema import Category, Column, Schema
from understudy.schema.rule_checks import join_titles

ROWS = 20_000
"""The number of random rows, and the largest domain of which all rows are tried."""
NULL_FRACTION = 0.25
"""The fraction of nulls in random rows, in the columns in which a rule may require a null."""


def rule_warnings(schema: Schema) -> tuple[Note, ...]:
    """Warnings about rules that none of many random rows satisfies. Raises SchemaError if no row does.

    From the schema alone. Only rules about columns with declared categories or bounds are tried.
    """
    # Not in a cache that compares schemas: 1 equals True in Python, so different schemas may compare equal.
    known: tuple[Note, ...] | None = vars(schema).get("_rule_warnings")
    if known is None:
        known = vars(schema)["_rule_warnings"] = warnings_of(tuple(_warnings(schema)))
    return known


def _warnings(schema: Schema) -> Iterator[str]:
    located = {column.name for location in schema.locations for column in location.columns}
    columns = {
        column.name: dataclasses.replace(column, per_unit=False)
        for column in schema.modelled
        if column.estimated is None and column.name not in located
    }
    numbered = [(rule_title(rule, number), rule) for number, rule in enumerate(schema.rules, start=1)]
    tried = [(title, rule) for title, rule in numbered if set(rule.columns) <= columns.keys()]
    for group in connected([rule.columns for _, rule in tried]):
        rules = dict(tried[at] for at in group)
        used = {name for rule in rules.values() for name in rule.columns}
        yield from _try_rules(rules, [columns[name] for name in columns if name in used])


def _try_rules(rules: Mapping[str, Rule], columns: Sequence[Column]) -> Iterator[str]:
    """A warning if no row is found that satisfies all rules. It names a smallest set of rules for which this holds."""
    null_columns = _null_columns(rules.values())
    values = [listed for column in columns if (listed := _values(column)) is not None]
    if len(values) < len(columns) or math.prod(map(len, values)) > ROWS:
        whole = [
            column if column.name in null_columns else dataclasses.replace(column, nullable=False) for column in columns
        ]
        if not _random_rows(tuple(rules.values()), whole).any():
            titles = _smallest(
                list(rules), lambda some: not _random_rows([rules[title] for title in some], whole).any()
            )
            yield (
                f"none of {ROWS:,} random rows satisfies {join_titles(titles, inside=True)}. If no row does, no "
                "synthetic row can be made: check the rules, and the declared categories and bounds."
            )
        return
    rows = pa.table(list(zip(*itertools.product(*values), strict=True)), [column.name for column in columns])
    typed = reexpress(Schema(columns=tuple(columns), rules=tuple(rules.values()))).read(rows)
    satisfied = {title: ~rule.broken(typed) for title, rule in rules.items()}

    def is_contradiction(titles: Sequence[str]) -> bool:
        return not np.logical_and.reduce([satisfied[title] for title in titles]).any()

    if is_contradiction(list(rules)):
        titles = _smallest(list(rules), is_contradiction)
        raise _contradiction(titles, rules[titles[0]].columns)
    for name in set(rows.column_names) - null_columns:
        has_value = rows.column(name).is_valid().to_numpy()
        satisfied = {title: mask & has_value for title, mask in satisfied.items()}
    if is_contradiction(list(rules)):
        titles = _smallest(list(rules), is_contradiction)
        yield f"only rows with a null satisfy {join_titles(titles, inside=True)}. Check the rules."


def _null_columns(rules: Iterable[Rule]) -> set[str]:
    """The columns in which a rule may require a null."""
    names: set[str] = set()
    for rule in rules:
        rows = rule.listed if isinstance(rule, Combinations) else rule.table if isinstance(rule, Determines) else ()
        mentioned = any(None in row for row in rows) or any("null" in text.lower() for text in rule.conditions)
        if mentioned or isinstance(rule, Skip):
            names |= set(rule.columns)
    return names


def _values(column: Column) -> list[Category | date | None] | None:
    """All values of the declared domain; None: too many."""
    values: list[Category | date | None]
    if column.kind == "boolean":
        values = [False, True]
    elif column.listed is not None:
        values = list(column.listed)
    elif column.kind not in ("integer", "date"):
        return None
    else:
        lower, upper = map(int, bound_numbers(column))
        if upper - lower >= ROWS:
            return None
        numbers = np.arange(lower, upper + 1)
        values = from_numbers(numbers, np.zeros(len(numbers), dtype=bool), column.kind).to_pylist()
    return [*dict.fromkeys([*values, None] if column.nullable else values)]


def _random_rows(rules: Sequence[Rule], columns: Sequence[Column]) -> Bool[np.ndarray, " rows"]:
    """Which random rows satisfy the rules. Rules that can hold by construction do, as in every synthetic row."""
    used = {name for rule in rules for name in rule.columns}
    schema = Schema(columns=tuple(column for column in columns if column.name in used), rules=tuple(rules))
    codec, generator = declared_codec(schema, ROWS), np.random.default_rng(0)
    # In some rows all codes are low or all are high: a sum, or many differences, may allow only such rows.
    skewness = generator.choice([1 / 3, 1.0, 3.0, 9.0], size=(ROWS, 1))
    sizes = np.array([column.size for column in codec.columns])
    codes = (generator.random((ROWS, len(sizes))) ** skewness * sizes).astype(np.int64)
    nullable = np.array([column.nullable for column in codec.columns])
    nulls = nullable & (generator.random(codes.shape) < NULL_FRACTION)
    rows = codec.decode(np.where(nulls, sizes - 1, codes), key=jax.random.key(0))
    typed = codec.reexpression.read(rows)
    broken = np.logical_or.reduce([rule.broken(typed) for rule in rules])
    return np.asarray(codec.reexpression.within_bounds(rows) & ~broken)


def _smallest(titles: Sequence[str], is_contradiction: Callable[[Sequence[str]], bool]) -> list[str]:
    """A set of contradictory rules of which none can be left out, from one of which some can.

    >>> _smallest(["a", "b", "c"], lambda titles: "a" in titles and "c" in titles)
    ['a', 'c']
    """
    needed = list(titles)
    for title in titles:
        fewer = [other for other in needed if other != title]
        if fewer and is_contradiction(fewer):
            needed = fewer
    return needed


def _contradiction(titles: Sequence[str], columns: Sequence[str]) -> SchemaError:
    """The error for rules that no row satisfies."""
    if len(titles) == 1:
        return SchemaError(
            f"{titles[0]}: no row satisfies this rule with the declared values of {', '.join(columns)}."
            " Correct the rule, or the declared categories and bounds.",
            column=columns[0],
        )
    return SchemaError(
        f"{join_titles(titles)} contradict each other: no row satisfies {'both' if len(titles) == 2 else 'them all'}."
        " Correct or remove one of them.",
        column=columns[0],
    )
