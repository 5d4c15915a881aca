"""Which combinations of declared values keep a rule. If none does, the rule, or the set of rules, is impossible.

The values of each column are split into cells: one per category, and for numbers and times one per constant of a rule
and one between each two. The answer is conservative: a cell that may keep a rule counts as one that does.
"""

import dataclasses
import functools
import itertools
import math
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import SchemaError
from understudy.schema.column import Column
from understudy.schema.conditions import where_columns
from understudy.schema.outcomes import CodeValues, Outcomes, outcomes
from understudy.schema.rule_values import as_text
from understudy.schema.rules import TOLERANCE, Combinations, Determines, Keep, Rule, Skip, Sum, WhenThen
from understudy.schema.satisfiability import find_row
from understudy.schema.syntax import (
    COMPARISONS,
    Constant,
    Tree,
    arguments,
    column_uses,
    columns_of,
    is_column,
    is_literal,
    literal_value,
    nodes,
    operands,
    parse_condition,
)
from understudy.schema.values import is_among

MAX_CELLS = 20_000
"""Rules with more combinations of cells are not decided."""

_Number = Any
"""A number, date or time, in the type of its column."""


class Possible(NamedTuple):
    """In which cells a rule can be true, and in which it can be unbroken, with one axis per column.

    The two differ in nulls, which leave a rule unknown.
    """

    columns: tuple[str, ...]
    cells: np.ndarray
    unbroken: np.ndarray


def check_cells(
    numbered: Sequence[tuple[Rule, str]], columns: Mapping[str, Column], types: pa.Schema, given: Collection[str]
) -> None:
    """Raises SchemaError for a rule, then for a pair, then for a set of rules, that no declared values keep.

    `given`: the columns that other rules give their values.
    """
    codes = _split_columns([rule for rule, _ in numbered], columns, types)
    possible = {title: found for rule, title in numbered if (found := _possible(rule, codes)) is not None}
    for title, found in possible.items():
        if not found.cells.any():
            raise SchemaError(
                f"{title}: no row keeps this rule with the declared values of {', '.join(found.columns)}."
                " Correct the rule, or the declared categories and bounds.",
                column=found.columns[0],
            )
    for rule, title in numbered:
        if isinstance(rule, Keep) and title in possible:
            _check_drawn(title, possible[title], [columns[name] for name in rule.columns if name not in given], codes)
    for (title, one), (other, two) in itertools.combinations(possible.items(), 2):
        if not _meet(one, two):
            raise SchemaError(
                f"{title} and {other[0].lower()}{other[1:]} contradict each other: no row keeps both. Correct or remove"
                " one of them.",
                column=next(name for name in one.columns if name in two.columns),
            )
    _check_together(possible)


def _check_drawn(title: str, found: Possible, columns: Sequence[Column], codes: Mapping[str, CodeValues]) -> None:
    """Raises SchemaError if a rule leaves a real column only single values, of which none is ever drawn exactly."""
    for column in columns:
        others = tuple(axis for axis, name in enumerate(found.columns) if name != column.name)
        kept, own = np.asarray(found.unbroken.any(axis=others)), codes[column.name]
        is_single = np.asarray(pc.fill_null(pc.equal(own.lower, own.upper), True))
        if column.kind == "real" and column.decimals is None and not kept[~is_single].any():
            raise SchemaError(
                f"{title}: it leaves column {column.name!r} single values only, but a real column without decimals is"
                " never exactly one of them. Declare decimals, or another kind.",
                column=column.name,
            )


def _check_together(possible: Mapping[str, Possible]) -> None:
    """Raises SchemaError for rules that every row breaks one of, by the smallest set that is found by leaving out."""
    tables = {title: (found.columns, found.unbroken) for title, found in possible.items()}
    if not find_row(list(tables.values())).is_contradiction:
        return
    for title in possible:
        fewer = {other: table for other, table in tables.items() if other != title}
        if find_row(list(fewer.values())).is_contradiction:
            tables = fewer
    first, *others, last = [title if at == 0 else f"{title[0].lower()}{title[1:]}" for at, title in enumerate(tables)]
    raise SchemaError(
        f"{', '.join([first, *others])} and {last} contradict each other: no row keeps them all. Correct or remove one"
        " of them.",
        column=next(iter(tables.values()))[0][0],
    )


def _meet(one: Possible, two: Possible) -> bool:
    """Whether a cell may keep both, or there are too many to tell."""
    if not set(one.columns) & set(two.columns):
        return True
    columns = tuple(dict.fromkeys((*one.columns, *two.columns)))
    first, second = (_align(each.cells, each.columns, columns) for each in (one, two))
    shape = np.broadcast_shapes(first.shape, second.shape)
    return math.prod(shape) > MAX_CELLS or bool((first & second).any())


def _align(cells: np.ndarray, own: tuple[str, ...], columns: tuple[str, ...]) -> np.ndarray:
    """Cells of their own columns over more columns, as axes of length one."""
    order = [own.index(name) for name in columns if name in own]
    added = tuple(axis for axis, name in enumerate(columns) if name not in own)
    return np.expand_dims(cells.transpose(order), added)


# ---------------------------------------------------------------------------------------------------------------- rules


def _possible(rule: Rule, codes: Mapping[str, CodeValues]) -> Possible | None:
    """In which cells the rule can be true or unbroken; None if that cannot be decided."""
    if any(name not in codes for name in rule.columns):
        return None
    if math.prod(codes[name].size for name in rule.columns) > MAX_CELLS:
        return None
    match rule:
        case Keep():
            return _of_condition(rule, codes)
        case WhenThen():
            return _of_implication(rule, codes)
        case Skip():
            cells = _of_skip(rule, codes)
            return Possible(rule.columns, cells, cells)
        case Sum():
            return _or_null(rule, _of_sum(rule, codes), codes)
        case Combinations():
            return _or_null(rule, _of_list(rule, codes), codes)
        case Determines():
            return _or_null(rule, _of_table(rule, codes), codes)
    return None


def _or_null(rule: Rule, cells: np.ndarray, codes: Mapping[str, CodeValues]) -> Possible:
    """A rule that a null in any of its columns may leave unbroken."""
    nulls = [_axis(_is_null(codes[name]), at, len(rule.columns)) for at, name in enumerate(rule.columns)]
    return Possible(rule.columns, cells, functools.reduce(np.logical_or, nulls, cells))


def _is_null(codes: CodeValues) -> np.ndarray:
    return codes.lower.is_null().to_numpy(zero_copy_only=False)


def _outcomes(condition: str, codes: Mapping[str, CodeValues]) -> Outcomes:
    found = outcomes(condition, codes, MAX_CELLS)
    assert found is not None, "fewer cells than the whole rule has"
    return found


def _of_condition(rule: Keep, codes: Mapping[str, CodeValues]) -> Possible:
    found = _outcomes(rule.keep, codes)
    return Possible(found.columns, found.can_be_true, found.can_be_true | found.can_be_null)


def _of_implication(rule: WhenThen, codes: Mapping[str, CodeValues]) -> Possible:
    when, then = _outcomes(rule.when, codes), _outcomes(rule.then, codes)
    need_not = _align(when.can_be_false | when.can_be_null, when.columns, rule.columns)
    cells, unknown = (_align(mask, then.columns, rule.columns) for mask in (then.can_be_true, then.can_be_null))
    return Possible(rule.columns, need_not | cells, need_not | cells | unknown)


def _of_skip(rule: Skip, codes: Mapping[str, CodeValues]) -> np.ndarray:
    when = _outcomes(rule.when, codes)
    is_true, is_false, is_null = (_align(mask, when.columns, rule.columns) for mask in when[1:])
    skipped = _align(_is_null(codes[rule.skip]), (rule.skip,), rule.columns)
    return (is_true & skipped) | (is_false & ~skipped) | is_null


def _of_sum(rule: Sum, codes: Mapping[str, CodeValues]) -> np.ndarray:
    """The nearest corner of a cell decides: further inside, the excess grows faster than the tolerance."""
    num_axes = len(rule.columns)

    def excess(parts_end: str, total_end: str) -> tuple[np.ndarray, np.ndarray]:
        """By how much the parts exceed the total, and how much of that is tolerated."""
        ends = [_floats(getattr(codes[name], parts_end)) for name in rule.sum]
        is_column = isinstance(rule.total, str)
        ends.append(_floats(getattr(codes[str(rule.total)], total_end)) if is_column else np.array([float(rule.total)]))
        *parts, total = [_axis(each, at, max(num_axes, len(ends))) for at, each in enumerate(ends)]
        size = functools.reduce(np.add, map(np.abs, (*parts, total)))
        slack = TOLERANCE * np.maximum(1.0, size) if rule.decimals is None else 0.6 * 10.0**-rule.decimals + 0 * size
        return functools.reduce(np.add, parts) - total, slack

    with np.errstate(invalid="ignore", over="ignore"):
        (least, tolerated), (most, tolerated_below) = excess("lower", "upper"), excess("upper", "lower")
        cells = ~(least > tolerated) & ~np.isnan(least)
        if rule.at_most is None:
            cells &= ~(most < -tolerated_below)
    return cells.reshape([codes[name].size for name in rule.columns])


def _floats(values: pa.Array) -> np.ndarray:
    return np.array([math.nan if value is None else float(value) for value in values.to_pylist()])


def _axis(values: np.ndarray, at: int, num_axes: int) -> np.ndarray:
    return values.reshape([-1 if axis == at else 1 for axis in range(num_axes)])


def _of_list(rule: Combinations, codes: Mapping[str, CodeValues]) -> np.ndarray:
    places = [_places(codes[name]) for name in rule.columns]
    cells = np.zeros([codes[name].size for name in rule.columns], dtype=bool)
    if rule.allowed is None:
        cells[np.ix_(*(~_is_null(codes[name]) for name in rule.columns))] = True
    for row in rule.listed:
        at = [place.get(as_text(value)) for place, value in zip(places, row, strict=True)]
        if None not in at:
            cells[tuple(at)] = rule.allowed is not None
    return cells


def _of_table(rule: Determines, codes: Mapping[str, CodeValues]) -> np.ndarray:
    """A given column may also be null, and may have any value where the table is empty."""
    cells = np.zeros([codes[name].size for name in rule.columns], dtype=bool)
    places = [_places(codes[name]) for name in rule.columns]
    nulls = [_is_null(codes[name]) for name in rule.columns]
    for row in rule.table:
        chosen = []
        for name, value, place, null in zip(rule.columns, row, places, nulls, strict=True):
            mask = null.copy() if name in rule.gives else np.zeros_like(null)
            if value is None:
                mask[:] = True
            elif as_text(value) in place:
                mask[place[as_text(value)]] = True
            chosen.append(mask)
        cells[np.ix_(*chosen)] = True
    return cells


def _places(codes: CodeValues) -> dict[str | None, int]:
    """The cell of each listed value: lists split columns at their values."""
    ends = zip(codes.lower.to_pylist(), codes.upper.to_pylist(), strict=True)
    return {_text(low): at for at, (low, high) in enumerate(ends) if low is not None and low == high}


def _text(value: Constant) -> str | None:
    """A value of a cell in the form used in lists."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    return value.isoformat() if isinstance(value, date) else as_text(value)


# ---------------------------------------------------------------------------------------------------------------- cells


class Comparison(NamedTuple):
    """One column compared with constants, anywhere in a condition."""

    column: str
    operator: str
    constants: tuple[Constant, ...]


@functools.lru_cache(maxsize=512)
def comparisons(condition: str, names: tuple[str, ...]) -> tuple[Comparison, ...]:
    """All comparisons of one column with constants, at any depth of a condition.

    >>> for found in comparisons("a > 3 OR NOT b IN ('x', 'y')", ("a", "b")):
    ...     print(found.column, found.operator, found.constants)
    a > (3,)
    b in ('x', 'y')
    """
    found = []
    for node in nodes(parse_condition(condition, names, of_rule=True)):
        operator, sides = _sides(node)
        compared = [side for side in sides if is_column(side)]
        constants = [literal_value(side) for side in sides if is_literal(side)] if len(compared) == 1 else []
        if constants and None not in constants:
            found.append(Comparison(columns_of(compared[0])[0], operator, tuple(constants)))
    return tuple(found)


def _sides(tree: Tree) -> tuple[str, Sequence[Tree]]:
    kind = str(tree["type"])
    if kind in COMPARISONS:
        return COMPARISONS[kind], operands(tree)
    if kind == "COMPARE_BETWEEN":
        return "between", [cast(Tree, tree[key]) for key in ("input", "lower", "upper")]
    if kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
        return "in" if kind == "COMPARE_IN" else "not in", arguments(tree)
    return "", []


def _split_columns(rules: Sequence[Rule], columns: Mapping[str, Column], types: pa.Schema) -> dict[str, CodeValues]:
    """The cells of each column whose values are declared, or bounded by their type."""
    constants: dict[str, set[Constant]] = {name: set() for name in columns}
    has_other_uses = {name for rule in rules if isinstance(rule, Sum) for name in rule.columns}
    for rule in rules:
        for condition in rule.conditions:
            uses = Counter(column_uses(parse_condition(condition, tuple(columns), of_rule=True)))
            for comparison in comparisons(condition, tuple(columns)):
                constants[comparison.column].update(comparison.constants)
                uses[comparison.column] -= 1
            has_other_uses |= set(+uses)
        if isinstance(rule, Combinations | Determines):
            rows = rule.listed if isinstance(rule, Combinations) else rule.table
            for at, name in enumerate(rule.columns):
                constants[name].update(row[at] for row in rows[:MAX_CELLS])
    split = {
        name: _split(column, constants[name], types.field(name).type, each_integer=name in has_other_uses)
        for name, column in columns.items()
        if len(constants[name]) < MAX_CELLS
    }
    return {name: codes for name, codes in split.items() if codes is not None}


def _split(
    column: Column, constants: Iterable[Constant], arrow_type: pa.DataType, *, each_integer: bool
) -> CodeValues | None:
    """One cell per category, integer (if these are few) or constant and between each two constants; one for nulls."""
    null = [None] if column.nullable else []
    if column.kind == "boolean":
        return CodeValues.categories([False, True, *null], arrow_type)
    if column.kind == "categorical":
        listed = column.listed
        return None if listed is None else CodeValues.categories([*dict.fromkeys([*listed, *null])], arrow_type)
    kind = _KINDS[column.kind]
    lower, upper = (kind.lowest, kind.highest) if column.bounds is None else map(_naive, column.bounds)
    lower, upper = max(lower, kind.lowest), min(upper, kind.highest)
    points = sorted({point for value in constants for point in kind.points(value) if lower <= point <= upper})
    if each_integer and column.kind == "integer" and upper - lower < _MAX_INTEGERS:
        points = list(range(lower, upper + 1))
    cells = []
    for point in points:
        if lower < point:
            cells.append((lower, kind.step(point, -1)))
        cells.append((point, point))
        if point == upper:
            break
        lower = kind.step(point, 1)
    else:
        cells.append((lower, upper))
    lowers, uppers = zip(*cells, strict=True)
    return CodeValues.bins(lowers, uppers, null=column.nullable, type=arrow_type)


_MAX_INTEGERS = 50
"""A column of at most this many integers has a cell for each, if it is not only compared with constants."""


class _Kind(NamedTuple):
    """How the values of a kind are split: the widest bounds, the next value up or down, and where a constant splits."""

    lowest: _Number
    highest: _Number
    step: Callable[[_Number, int], _Number]
    points: Callable[[Constant], Sequence[_Number]]


def _integer_points(value: Constant) -> Sequence[int]:
    number = _to_float(value)
    return () if number is None else (math.floor(number), math.ceil(number))


def _real_points(value: Constant) -> Sequence[float]:
    number = _to_float(value)
    return () if number is None else (number,)


def _to_float(value: Constant) -> int | float | None:
    """The number that SQL compares with a column of numbers."""
    try:
        number = value if isinstance(value, int) else float(value)  # type: ignore[arg-type]
        return number if math.isfinite(number) else None
    except (TypeError, ValueError, OverflowError):
        return None


def _moment_points(value: Constant) -> Sequence[datetime]:
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
    except ValueError:
        return ()
    if isinstance(value, datetime):
        return (_naive(value),)
    return (datetime(value.year, value.month, value.day),) if isinstance(value, date) else ()


def _date_points(value: Constant) -> Sequence[date]:
    return [day for moment in _moment_points(value) for day in (moment.date(), _next_day(moment.date()))]


def _next_day(day: date) -> date:
    return day if day == date.max else day + timedelta(days=1)


def _naive(end: _Number) -> _Number:
    """The time in UTC, as columns have it."""
    is_zoned = isinstance(end, datetime) and end.tzinfo is not None
    return end.astimezone(UTC).replace(tzinfo=None) if is_zoned else end


_KINDS = {
    "integer": _Kind(-(2**63), 2**63 - 1, lambda value, sign: value + sign, _integer_points),
    "real": _Kind(
        -sys.float_info.max,
        sys.float_info.max,
        lambda value, sign: math.nextafter(value, sign * math.inf),
        _real_points,
    ),
    "date": _Kind(date.min, date.max, lambda value, sign: value + sign * timedelta(days=1), _date_points),
    "datetime": _Kind(
        datetime.min, datetime.max, lambda value, sign: value + sign * timedelta(microseconds=1), _moment_points
    ),
}


# ---------------------------------------------------------------------------------------------- rules on one column


def narrow(column: Column, conditions: Sequence[str], arrow_type: pa.DataType) -> Column:
    """The column with only values that conditions on it alone can keep: within these bounds, or of this list.

    A declared list stays as it is, and bounds stay open if an end is set neither by a bound nor by a condition.

    >>> narrow(Column(name="age", kind="integer", bounds=(0, 120)), ["age >= 18"], pa.int64()).bounds
    (18, 120)
    >>> narrow(Column(name="city", kind="categorical"), ["city IN ('Rome', 'Paris')"], pa.string()).categories
    ('Rome', 'Paris')
    """
    if column.kind == "categorical":
        listed = [text for text in keep_list(column, conditions) or () if not is_among(text, column.missing or ())]
        if column.categories is not None or not listed:
            return column
        return dataclasses.replace(column, categories=tuple(listed), closed=True)
    if column.kind not in _KINDS:
        return column
    lower, upper = keep_limits(column, conditions, arrow_type)
    if lower is None or upper is None or (lower, upper) == column.bounds:
        return column
    if not lower < upper:  # one value: bounds need two
        step = _steps(column)
        if step is None:
            return column
        lower, upper = (
            (lower, upper + step) if column.bounds is None or upper < column.bounds[1] else (lower - step, upper)
        )
    return dataclasses.replace(column, bounds=(lower, upper))


def _steps(column: Column) -> _Number:
    """The distance of neighbouring values; None for reals without decimals."""
    if column.kind == "real":
        return None if column.decimals is None else 10.0**-column.decimals
    return {"integer": 1, "date": timedelta(days=1), "datetime": timedelta(microseconds=1)}[column.kind]


def keep_limits(column: Column, conditions: Sequence[str], arrow_type: pa.DataType) -> tuple[_Number, _Number]:
    """The least and the greatest value of a numeric column that conditions on it alone can keep.

    None instead of an end: no bound or condition sets one.

    >>> age = Column(name="age", kind="integer", nullable=False)
    >>> keep_limits(age, ["age > 17", "age < 66 OR age = 70"], pa.int64())
    (18, 70)
    >>> keep_limits(age, ["age > 17"], pa.int64())
    (18, None)
    """
    found = [comparison for condition in conditions for comparison in comparisons(condition, (column.name,))]
    codes = _split(column, [value for each in found for value in each.constants], arrow_type, each_integer=True)
    assert codes is not None, "numbers can always be split"
    kept = ~_is_null(codes)
    for condition in conditions:
        kept = kept & _outcomes(condition, {column.name: codes}).can_be_true
    kind, declared = _KINDS[column.kind], column.bounds or (None, None)
    if not kept.any():
        return declared
    at = np.flatnonzero(kept)
    lower, upper = codes.lower[int(at[0])].as_py(), codes.upper[int(at[-1])].as_py()
    if column.decimals is not None:
        lower, upper = (
            _round(end, column.decimals, way) for end, way in ((lower, ROUND_CEILING), (upper, ROUND_FLOOR))
        )
    return (
        declared[0] if lower == kind.lowest else _like(lower, declared[0]),
        declared[1] if upper == kind.highest else _like(upper, declared[1]),
    )


def keep_list(column: Column, conditions: Sequence[str]) -> tuple[str, ...] | None:
    """The texts that conditions on a categorical column alone list, each by = or IN; None if none does.

    >>> keep_list(Column(name="city", kind="categorical"), ["city IN ('Rome', 'Paris')", "city <> 'Paris' OR true"])
    ('Rome', 'Paris')
    """
    listed: tuple[str, ...] | None = None
    for condition in conditions:
        (part, *others) = where_columns(condition, [column.name])
        texts = tuple(dict.fromkeys(value for value in part.constants if isinstance(value, str)))
        if others or part.operator not in ("=", "in") or len(texts) < len(set(part.constants)):
            continue
        listed = texts if listed is None else tuple(text for text in listed if text in texts)
    return listed or None


def _round(end: float, decimals: int, way: str) -> float:
    """The nearest number with this many decimals inside a range; the widest bounds stay."""
    if abs(end) == sys.float_info.max:
        return end
    return float(Decimal(repr(end)).quantize(Decimal(1).scaleb(-decimals), way, _PRECISE))


_PRECISE = Context(prec=400)


def _like(end: _Number, declared: _Number) -> _Number:
    """The end of a range with a time zone if the declared bound has one."""
    is_zoned = isinstance(declared, datetime) and declared.tzinfo is not None
    return end.replace(tzinfo=UTC) if is_zoned else end
