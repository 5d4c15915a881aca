"""Which truth values a condition can have, given the codes of the columns: a cell where it must be false is impossible.

For codes that stand for one value each, the condition is evaluated. For bins the answer is conservative: an outcome
that occurs is always found, but one that is found may not occur.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.rules.conditions import evaluate, fails
from understudy.rules.syntax import (
    COMPARISONS,
    Constant,
    Tree,
    arguments,
    column_uses,
    columns_of,
    compare,
    is_column,
    is_literal,
    operands,
    parse_condition,
    split_between,
)


@dataclasses.dataclass(frozen=True, eq=False)
class CodeValues:
    """The values that each code of a column stands for: from `lower` to `upper`, both included; null for a null."""

    lower: pa.Array
    upper: pa.Array

    @classmethod
    def categories(cls, values: Sequence[Constant], type: pa.DataType | None = None) -> "CodeValues":
        """One value per code, or None for a null."""
        array = pa.array(values, type)
        return cls(array, array)

    @classmethod
    def bins(
        cls,
        lower: Sequence[Constant] | np.ndarray | pa.Array,
        upper: Sequence[Constant] | np.ndarray | pa.Array,
        *,
        null: bool = False,
        type: pa.DataType | None = None,
    ) -> "CodeValues":
        """One bin of numbers, dates or times per code, and perhaps a code for nulls after them."""
        ends = [end if isinstance(end, pa.Array) else pa.array(end, type) for end in (lower, upper)]
        if null:
            ends = [pa.concat_arrays([end, pa.nulls(1, end.type)]) for end in ends]
        return cls(*ends)

    @property
    def size(self) -> int:
        """The number of codes."""
        return len(self.lower)

    @functools.cached_property
    def exact(self) -> bool:
        """Whether each code stands for one value."""
        return self.lower is self.upper or bool(pc.all(pc.fill_null(pc.equal(self.lower, self.upper), True)).as_py())


class Outcomes(NamedTuple):
    """Which truth values a condition can have in each cell: a combination of codes of its columns, in their order."""

    columns: tuple[str, ...]
    can_be_true: np.ndarray
    can_be_false: np.ndarray
    can_be_null: np.ndarray


def outcomes(expression: str, columns: Mapping[str, CodeValues], max_cells: int) -> Outcomes | None:
    """Which truth values a rule's condition can have in each cell; None if there are more than `max_cells` of them."""
    tree = parse_condition(expression, tuple(columns), of_rule=True)
    used = columns_of(tree)
    shape = tuple(columns[name].size for name in used)
    if math.prod(shape) > max_cells:
        return None
    possible = _possible(tree, columns)
    return Outcomes(used, *(np.broadcast_to(mask, shape).copy() for mask in _align(possible, used)[1:]))


def _possible(tree: Tree, codes: Mapping[str, CodeValues]) -> Outcomes:
    kind, children = str(tree["type"]), arguments(tree)
    if all(codes[name].exact for name in columns_of(tree)):
        return _at_corners(tree, codes)
    if kind == "CONJUNCTION_AND":
        return _all_of([_possible(child, codes) for child in children])
    if kind == "CONJUNCTION_OR":
        return _any_of([_possible(child, codes) for child in children])
    if kind == "OPERATOR_NOT":
        return _negate(_possible(children[0], codes))
    if kind == "COMPARE_BETWEEN":
        return _all_of([_possible(part, codes) for part in split_between(tree)])
    if kind == "COMPARE_IN":
        value, *others = children
        return _any_of([_possible(compare(value, "=", other), codes) for other in others])
    if kind in COMPARISONS and _is_monotone(tree, codes):
        return _compared(tree, codes)
    if kind in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL") and is_column(children[0]):
        return _at_corners(tree, codes)
    return _anything(columns_of(tree))


def _compared(tree: Tree, codes: Mapping[str, CodeValues]) -> Outcomes:
    """A comparison of monotone sides. Equality is not monotone, but whether one side can be less or greater is."""
    here = _at_corners(tree, codes)
    operator, (left, right) = COMPARISONS[str(tree["type"])], operands(tree)
    if operator not in ("=", "<>"):
        return here
    less, greater = (_at_corners(compare(left, relation, right), codes) for relation in ("<", ">"))
    differ = less.can_be_true | greater.can_be_true
    met = here.can_be_true if operator == "=" else here.can_be_false
    meet = met | (less.can_be_true & greater.can_be_true)
    is_true, is_false = (meet, differ) if operator == "=" else (differ, meet)
    return Outcomes(here.columns, is_true, is_false, here.can_be_null | less.can_be_null | greater.can_be_null)


_MAX_BINNED = 6


def _at_corners(tree: Tree, codes: Mapping[str, CodeValues]) -> Outcomes:
    """The truth values at all corners of each cell: the lower and upper ends of its bins.

    Where the tree is monotone in each binned column, they are all that the cell has: along one column at a time, the
    truth value at any point is that at one of the two ends.
    """
    used = columns_of(tree)
    binned = [name for name in used if not codes[name].exact]
    if len(binned) > _MAX_BINNED:
        return _anything(used)
    shape = tuple(codes[name].size for name in used)
    cells = [pa.array(codes_of_column.ravel()) for codes_of_column in np.indices(shape)] if used else []
    outcomes = Outcomes(used, *(np.zeros(shape, dtype=bool) for _ in range(3)))
    for ends in itertools.product(("lower", "upper"), repeat=len(binned)):
        end = dict(zip(binned, ends, strict=True))
        values = {
            name: (codes[name].upper if end.get(name) == "upper" else codes[name].lower).take(cell)
            for name, cell in zip(used, cells, strict=True)
        }
        corner = pa.table(values) if used else pa.table({"": [0]})
        try:
            is_true, is_false = (mask.reshape(shape) for mask in evaluate(corner, tree))
        except duckdb.Error:  # a condition over other types than these
            return _anything(used)
        is_null = ~is_true & ~is_false
        outcomes.can_be_true[...] |= is_true
        outcomes.can_be_false[...] |= is_false
        outcomes.can_be_null[...] |= is_null
        if binned and is_null.any() and fails(corner, tree):  # null at a corner, but perhaps not inside
            for mask in outcomes[1:]:
                mask[is_null] = True
    return outcomes


_MONOTONE_FUNCTIONS = {"+", "-", "*", "floor", "ceil", "ceiling", "year", "date_trunc", "date_diff", "datediff"}
"""Rising or falling in each argument that can be a bin, whatever the others are; null only if an argument is."""
_MONOTONE_CASTS = {"DATE", "TIMESTAMP", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE"}


def _is_monotone(tree: Tree, codes: Mapping[str, CodeValues]) -> bool:
    """Whether a comparison, or one of its sides, is monotone in each of its binned columns: each stands there once."""
    binned = [name for name in column_uses(tree) if not codes[name].exact]
    if len(binned) != len(set(binned)):
        return False
    if not binned or is_column(tree):
        return True
    children = arguments(tree)
    if tree["type"] in COMPARISONS:
        children = list(operands(tree))
    elif tree["class"] == "CAST":
        target = cast(Tree, tree.get("type_expr") or tree.get("cast_type") or {})
        children = [cast(Tree, tree["child"])]
        if tree.get("try_cast") or str(target.get("type_name") or target.get("id")) not in _MONOTONE_CASTS:
            return False
    elif tree["type"] == "FUNCTION" and str(tree["function_name"]) == "/":
        return is_literal(children[-1]) and _is_monotone(children[0], codes)
    elif tree["type"] != "FUNCTION" or str(tree["function_name"]).lower() not in _MONOTONE_FUNCTIONS:
        return False
    return all(_is_monotone(child, codes) for child in children)


# ------------------------------------------------------------------------------------------------- sets of truth values


def _anything(columns: tuple[str, ...]) -> Outcomes:
    everywhere = np.ones((1,) * len(columns), dtype=bool)
    return Outcomes(columns, everywhere, everywhere, everywhere)


def _negate(outcomes: Outcomes) -> Outcomes:
    return Outcomes(outcomes.columns, outcomes.can_be_false, outcomes.can_be_true, outcomes.can_be_null)


def _any_of(parts: Sequence[Outcomes]) -> Outcomes:
    return _negate(_all_of([_negate(part) for part in parts]))


def _all_of(parts: Sequence[Outcomes]) -> Outcomes:
    columns = tuple(dict.fromkeys(name for part in parts for name in part.columns))
    aligned = [_align(part, columns) for part in parts]
    not_false = functools.reduce(np.logical_and, [part.can_be_true | part.can_be_null for part in aligned])
    return Outcomes(
        columns,
        functools.reduce(np.logical_and, [part.can_be_true for part in aligned]),
        functools.reduce(np.logical_or, [part.can_be_false for part in aligned]),
        not_false & functools.reduce(np.logical_or, [part.can_be_null for part in aligned]),
    )


def _align(outcomes: Outcomes, columns: tuple[str, ...]) -> Outcomes:
    """The same over more columns, as axes of length one."""
    shared = [name for name in columns if name in outcomes.columns]
    order = [outcomes.columns.index(name) for name in shared]
    added = tuple(axis for axis, name in enumerate(columns) if name not in outcomes.columns)
    return Outcomes(columns, *(np.expand_dims(mask.transpose(order), added) for mask in outcomes[1:]))
