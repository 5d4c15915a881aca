"""Structural zeros: combinations of codes that the rules of a schema make impossible, whatever values they hold."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from jaxtyping import Bool

from understudy.encoding.arrow import from_numbers
from understudy.encoding.columns import CategoricalCodec, ColumnCodec
from understudy.encoding.reexpression.reexpression import Reexpression
from understudy.errors import ConditionError
from understudy.rules.conditions import condition_columns, parts
from understudy.rules.outcomes import CodeValues, outcomes
from understudy.rules.rules import Combinations, Keep, Rule, Skip, WhenThen
from understudy.schema import Category
from understudy.schema.domain import StructuralZeros
from understudy.schema.rule_checks import arrow_schema

Cells: TypeAlias = Bool[np.ndarray, "..."]

MAX_CELLS = 50_000
"""The most combinations of codes examined for one rule. Above this, rows that break it are drawn again."""


def structural_zeros(reexpression: Reexpression, columns: Sequence[ColumnCodec]) -> tuple[StructuralZeros, ...]:
    """What the rules not satisfied by construction make impossible, among columns that are modelled as they are."""
    usable = {column.name: column for column in columns if column.name not in reexpression.replaced}
    zeros = []
    for rule in reexpression.remaining:
        for names, possible in _possible_cells(rule, usable, arrow_schema(reexpression.schema.modelled)):
            if possible.any() and not possible.all():
                zeros.append(StructuralZeros(names, possible))
    return tuple(zeros)


def _possible_cells(
    rule: Rule, columns: Mapping[str, ColumnCodec], types: pa.Schema
) -> Iterator[tuple[tuple[str, ...], Cells]]:
    """For each part of a rule, its columns and the combinations of their codes that some row satisfying it can have."""
    match rule:
        case Keep():
            for part in parts(rule.keep, types):
                if _fits(part.columns, columns):
                    yield part.columns, ~_only(False, part.sql, part.columns, columns)
        case WhenThen() if _fits(rule.columns, columns):
            broken = _only(True, rule.when, rule.columns, columns) & _only(False, rule.then, rule.columns, columns)
            yield rule.columns, ~broken
        case Skip() if _fits(rule.columns, columns):
            null = _null_codes(columns[rule.skip]).reshape(-1, *[1] * (len(rule.columns) - 1))
            must, must_not = (_only(outcome, rule.when, rule.columns, columns) for outcome in (True, False))
            yield rule.columns, ~((must & ~null) | (must_not & null))
        case Combinations() if _fits(rule.columns, columns):
            listed = [column for name in rule.columns if isinstance(column := columns[name], CategoricalCodec)]
            if len(listed) == len(rule.columns):
                yield rule.columns, ~_broken_combinations(rule, listed)


def _fits(names: Sequence[str], columns: Mapping[str, ColumnCodec]) -> bool:
    if not names or not all(name in columns for name in names):
        return False
    return math.prod(columns[name].size for name in names) <= MAX_CELLS


def _only(outcome: bool, condition: str, names: Sequence[str], columns: Mapping[str, ColumnCodec]) -> Cells:
    """Where a condition is true (or false) for every row with these codes, over the codes of all named columns."""
    shape = [columns[name].size for name in names]
    used = condition_columns(condition)
    try:
        possible = outcomes(condition, {name: _code_values(columns[name]) for name in used}, MAX_CELLS)
    except ConditionError:  # an estimated list may have another type than the condition expects
        possible = None
    if possible is None:
        return np.zeros(shape, dtype=bool)
    # From the order of the condition's columns to that of the named ones; the others do not matter.
    order = sorted(range(len(possible.columns)), key=lambda at: names.index(possible.columns[at]))
    otherwise = possible.can_be_false if outcome else possible.can_be_true
    cells = np.transpose(~otherwise & ~possible.can_be_null, order)
    return np.broadcast_to(cells.reshape([columns[n].size if n in possible.columns else 1 for n in names]), shape)


def _code_values(column: ColumnCodec) -> CodeValues:
    """The values that each code of a column can stand for."""
    if isinstance(column, CategoricalCodec):
        return CodeValues.categories(_values(column))
    known = np.zeros(column.num_bins, dtype=bool)
    lower, upper = (from_numbers(edges, known, column.kind) for edges in column.bin_edges())
    return CodeValues.bins(lower, upper, null=column.nullable)


def _values(column: CategoricalCodec) -> list[Category | None]:
    return [*column.categories, None] if column.nullable else list(column.categories)


def _null_codes(column: ColumnCodec) -> Bool[np.ndarray, " codes"]:
    if isinstance(column, CategoricalCodec):
        return np.asarray([value is None for value in _values(column)])
    return np.arange(column.size) >= column.num_bins


def _broken_combinations(rule: Combinations, columns: Sequence[CategoricalCodec]) -> Cells:
    """Which combinations of codes break the rule, each checked as a row of a table."""
    values = [_values(column) for column in columns]
    cells = np.indices([len(each) for each in values]).reshape(len(values), -1)
    rows = {
        column.name: pa.array(own).take(pa.array(codes))
        for column, own, codes in zip(columns, values, cells, strict=True)
    }
    return rule.broken(pa.table(rows)).reshape([len(each) for each in values])
