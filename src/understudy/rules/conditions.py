"""SQL conditions over the columns of one row, which can do nothing but read them.

A filter that a user gives (`filter_where`) may fail on a value, with an error. A rule must not: it is applied to
private rows, and an error would reveal that a row has such a value. `truth` and `compute` therefore treat each row by
itself, and what cannot be computed is null.
"""

import functools
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, cast

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import ConditionError
from understudy.rules.comparison import plain_array
from understudy.rules.sql import sandbox
from understudy.rules.syntax import (
    COMPARISONS,
    MIRRORED,
    NEGATED,
    Constant,
    Tree,
    arguments,
    columns_of,
    compare,
    compared,
    condition_error,
    difference_value,
    first_line,
    is_column,
    is_literal,
    literal_value,
    operands,
    parse_condition,
    rename_columns,
    split_between,
    sql_of,
)

# -------------------------------------------------------------------------------------------------------------- filters


class Conjunct(NamedTuple):
    """One of the parts of a condition that are joined by AND."""

    sql: str
    columns: tuple[str, ...]
    operator: str | None = None
    """The comparison of one column with constants: =, <>, <, <=, >, >=, between, not between, in, not in, is null,
    is not null. None: anything else."""
    constants: tuple[Constant, ...] = ()


def filter_where(table: pa.Table, expression: str) -> np.ndarray:
    """Which rows meet an SQL condition over the columns; null counts as false.

    A message of DuckDB may quote a value, so it is shown only if no row was read.
    """
    names = table.column_names
    tree = parse_condition(expression, names)
    used = columns_of(tree)
    sql = f"SELECT {sql_of(_number_columns(tree))} AS met, row FROM t"
    columns = {f"c{i}": _to_sql_type(table.column(name)) for i, name in enumerate(used)}
    rows = pa.table({**columns, "row": np.arange(table.num_rows)})
    try:
        empty = _run_sql(rows.slice(0, 0), sql)
    except duckdb.Error as error:
        raise condition_error(expression, first_line(error), names) from None
    _check_boolean(expression, empty.schema.field("met").type, names)
    try:
        met = _run_sql(rows, sql)
    except duckdb.Error:
        raise condition_error(expression, _failure_reason(rows, sql), names) from None
    mask = np.zeros(table.num_rows, dtype=bool)
    mask[met.column("row").to_numpy()] = pc.fill_null(met.column("met"), False).to_numpy()
    return mask


def _number_columns(tree: Tree) -> Tree:
    """The tree over the columns c0, c1, ...: any name is safe, even if it differs from another only in case."""
    return rename_columns(tree, {name: f"c{i}" for i, name in enumerate(columns_of(tree))})


def _check_boolean(expression: str, found: pa.DataType, names: Sequence[str]) -> None:
    if not pa.types.is_boolean(found):
        raise ConditionError(
            f"{expression!r} has type {found}, expected a condition that is true or false,"
            f" such as {names[0] if names else 'age'} IS NOT NULL."
        )


def _run_sql(rows: pa.Table, sql: str, *, optimized: bool = True) -> pa.Table:
    """The result of a query over `t`. A fatal error counts if a new engine has it too: the old one may be at fault."""
    try:
        return _run_once(rows, sql, optimized=optimized)
    except duckdb.FatalException:
        return _run_once(rows, sql, optimized=optimized)


def _run_once(rows: pa.Table, sql: str, *, optimized: bool) -> pa.Table:
    with sandbox(optimized=optimized) as connection:
        connection.register("t", rows)
        return connection.sql(sql).to_arrow_table()


def _failure_reason(rows: pa.Table, sql: str) -> str:
    """DuckDB's message if a row of nulls fails too, so that the condition is at fault; else a fixed text."""
    try:
        _run_sql(_nulls(rows.schema), sql)
    except duckdb.Error as error:
        return first_line(error)
    return "it fails on a value of the table, which is not shown; TRY_CAST returns null instead"


def _nulls(schema: pa.Schema) -> pa.Table:
    return pa.table([pa.nulls(1, field.type) for field in schema], schema=schema)


def where_columns(expression: str, names: Sequence[str]) -> list[Conjunct]:
    """The parts of a condition that are joined by AND, with the columns of each."""
    parts = _conjuncts(parse_condition(expression, names))
    return [Conjunct(sql_of(part), columns_of(part), *_comparison(part)) for part in parts]


def _conjuncts(tree: Tree) -> list[Tree]:
    is_and = tree["type"] == "CONJUNCTION_AND"
    return [part for child in arguments(tree) for part in _conjuncts(child)] if is_and else [tree]


_Test = tuple[str | None, tuple[Constant, ...]]


def _comparison(tree: Tree) -> _Test:
    """Operator and constants, if the tree compares one column with constants."""
    if tree["type"] == "OPERATOR_NOT":
        operator, constants = _comparison(arguments(tree)[0])
        return (NEGATED[operator], constants) if operator else (None, ())
    operator, sides = compared(tree)
    if operator in MIRRORED and not is_column(sides[0]):
        operator, sides = MIRRORED[operator], sides[::-1]
    if not sides or not is_column(sides[0]) or not all(map(is_literal, sides[1:])):
        return None, ()
    constants = tuple(map(literal_value, sides[1:]))
    return (None, ()) if None in constants else (operator, constants)


# -------------------------------------------------------------------------------------------------- conditions of rules


@functools.lru_cache(maxsize=2048)
def condition_columns(expression: str) -> tuple[str, ...]:
    """The columns of a rule's condition or expression as they are written there, in order of first use."""
    return columns_of(parse_condition(expression, None, of_rule=True))


def check_condition(expression: str, schema: pa.Schema) -> None:
    """Raise an error unless a rule's condition is true, false or null for any row of these types. Reads no row.

    Functions of the current time are refused: what a release keeps must not depend on the day.
    """
    _compile(expression, tuple(schema.names), tuple(schema.types), boolean=True)


def truth(table: pa.Table, expression: str) -> tuple[np.ndarray, np.ndarray]:
    """For which rows a condition is true, and for which it is false; for the others it is null.

    The answer of a row depends on its values alone, and no value raises an error: a comparison that fails, such as one
    with a string that is not a number, is null. NaN is null.
    """
    query = _compile(expression, tuple(table.column_names), tuple(table.schema.types), boolean=True)
    return _masks(_values(table, query))


def compute(table: pa.Table, expression: str, type: pa.DataType | None = None) -> pa.Array:
    """The value of an SQL expression for each row, in the given Arrow type; null where it fails or does not fit."""
    query = _compile(expression, tuple(table.column_names), tuple(table.schema.types), boolean=False, into=type)
    values = _values(table, query)
    return values if type is None else values.cast(type, safe=False)


def evaluate(table: pa.Table, tree: Tree) -> tuple[np.ndarray, np.ndarray]:
    """`truth` of a parsed condition. Raises an error of DuckDB if it does not fit the types."""
    used = columns_of(tree)
    query = _Query(total_sql(_number_columns(tree)), used, pa.bool_())
    rows = _numbered(table.select(used).slice(0, 0))
    _run_sql(rows, f"SELECT {query.sql} AS value FROM t", optimized=False)
    return _masks(_values(table, query))


def fails(table: pa.Table, tree: Tree) -> bool:
    """Whether a parsed condition fails on a value of the table."""
    rows = _numbered(table.select(columns_of(tree)))
    try:
        _run_sql(rows, f"SELECT {sql_of(_number_columns(tree))} AS value FROM t", optimized=False)
    except duckdb.Error:
        return True
    return False


class _Query(NamedTuple):
    """An SQL expression over the columns c0, c1, ... that is null where it fails."""

    sql: str
    columns: tuple[str, ...]
    type: pa.DataType


@functools.lru_cache(maxsize=512)
def _compile(
    expression: str,
    names: tuple[str, ...],
    types: tuple[pa.DataType, ...],
    *,
    boolean: bool,
    into: pa.DataType | None = None,
) -> _Query:
    """The query of an expression, checked with a row of nulls of these types."""
    tree = parse_condition(expression, names, of_rule=True)
    used, numbered = columns_of(tree), _number_columns(tree)
    typed = dict(zip(names, types, strict=True))
    rows = _numbered(pa.schema({name: typed[name] for name in used}).empty_table())
    sql = total_sql(numbered) if boolean else f"TRY({sql_of(numbered)})"
    try:
        plain = f"SELECT {sql_of(numbered)} AS value FROM t"
        computed = _run_sql(_nulls(rows.schema), plain)  # fails for constants of a wrong type
        if into is not None:
            names_type = "SELECT typeof(value) AS name FROM t"
            into_sql = _run_sql(pa.table({"value": pa.nulls(1, into)}), names_type).column(0)[0]
            sql = f"TRY_CAST({sql} AS {into_sql})"
        evaluated = _run_sql(_nulls(rows.schema), f"SELECT {sql} AS value FROM t", optimized=False)
    except (duckdb.Error, pa.ArrowNotImplementedError) as error:
        raise condition_error(expression, first_line(error), names) from None
    if boolean:
        _check_boolean(expression, computed.schema.field("value").type, names)
    return _Query(sql, used, evaluated.schema.field("value").type)


def total_sql(tree: Tree) -> str:
    """A condition as SQL that never fails: comparisons that would fail are null, as AND, OR and NOT then see them.

    With TRY around the whole condition, one failing comparison would hide that another is false.
    """
    kind, children = tree["type"], arguments(tree)
    if kind in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
        return "(" + f" {str(kind).removeprefix('CONJUNCTION_')} ".join(total_sql(child) for child in children) + ")"
    if kind == "OPERATOR_NOT":
        return f"(NOT {total_sql(children[0])})"
    return f"TRY(CAST({sql_of(tree)} AS BOOLEAN))"


def _numbered(table: pa.Table) -> pa.Table:
    """Columns c0, c1, ..., in types that DuckDB reads, and the number of each row."""
    columns = {}
    for i, values in enumerate(map(_to_sql_type, table.columns)):
        is_float = pa.types.is_floating(values.type)
        columns[f"c{i}"] = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values) if is_float else values
    return pa.table({**columns, "row": np.arange(table.num_rows)})


def _values(table: pa.Table, query: _Query) -> pa.Array:
    """The value of each row, in order."""
    if not query.columns:  # a selection of no columns would have no rows
        one = _run_rows(pa.table({"row": [0]}), query)
        return one.column("value").combine_chunks().take(pa.array(np.zeros(table.num_rows, dtype=np.int64)))
    computed = _run_rows(_numbered(table.select(query.columns)), query)
    order = np.argsort(computed.column("row").to_numpy(), kind="stable")
    return plain_array(computed.column("value").take(pa.array(order)))


def _run_rows(rows: pa.Table, query: _Query) -> pa.Table:
    """Value and number of each row. Where DuckDB fails in spite of TRY, such as on a time it cannot hold, the rows are
    halved until the one at fault is alone and null: whether it fails says nothing about the others. A row on which the
    engine itself fails has failed alone on a new engine too (`_run_sql`)."""
    run = _run_sql if rows.num_rows == 1 else _run_once
    try:
        computed = run(rows, f"SELECT {query.sql} AS value, row FROM t", optimized=False)
        return pa.table({"value": computed.column("value").cast(query.type), "row": computed.column("row")})
    except (duckdb.Error, pa.ArrowException):
        if rows.num_rows == 1:
            return pa.table({"value": pa.nulls(1, query.type), "row": rows.column("row")})
        half = rows.num_rows // 2
        return pa.concat_tables([_run_rows(rows.slice(0, half), query), _run_rows(rows.slice(half), query)])


def _masks(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    is_true = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    is_false = pc.fill_null(pc.invert(values), False).to_numpy(zero_copy_only=False)
    return is_true, is_false


def _to_sql_type(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(values.type):
        return values.cast(values.type.value_type)
    return values.cast(pa.float64()) if pa.types.is_decimal256(values.type) else values


# ---------------------------------------------------------------------------------------------------------------- parts


class Order(NamedTuple):
    """`greater` is at least `lesser` plus `offset`, or more than that if strict.

    Exact for whole numbers, dates and times. Of real numbers with an offset, the sum may be rounded.
    """

    greater: str
    lesser: str
    strict: bool = False
    offset: int | float | timedelta = 0
    """A number; between dates, of days. A length of time was written as an INTERVAL."""


class Assignment(NamedTuple):
    """A column is equal to an expression over other columns."""

    column: str
    expression_sql: str
    inputs: tuple[str, ...]


class Part(NamedTuple):
    """One of the conditions that a condition joins by AND."""

    sql: str
    columns: tuple[str, ...]
    order: Order | None = None
    assignment: Assignment | None = None


def parts(expression: str, names: Sequence[str] | pa.Schema) -> list[Part]:
    """The conditions that a rule's condition joins by AND; it is false where one of them is.

    NOT is moved inwards and BETWEEN is split where it compares columns. With a schema the types are known, and
    `date_diff('day', b, a) >= 7` is recognised as an order of dates: between times it would count midnights.
    """
    dates: set[str] = set()
    if isinstance(names, pa.Schema):
        dates = {name for name, type in zip(names.names, names.types, strict=True) if pa.types.is_date(type)}
        names = names.names
    tree = parse_condition(expression, cast(Sequence[str], names), of_rule=True)
    return [
        Part(sql_of(part), columns_of(part), order=_order(part, dates), assignment=_assignment(part))
        for part in _inner_conjuncts(tree)
    ]


def _inner_conjuncts(tree: Tree, negation: Tree | None = None) -> list[Tree]:
    """Conjuncts of a tree, or of its negation, for which an outer NOT is given."""
    kind, children = str(tree["type"]), arguments(tree)
    if kind == "OPERATOR_NOT":
        return _inner_conjuncts(children[0], None if negation else tree)
    if kind == ("CONJUNCTION_OR" if negation else "CONJUNCTION_AND"):
        return [part for child in children for part in _inner_conjuncts(child, negation)]
    if negation and kind in COMPARISONS:
        left, right = operands(tree)
        return [compare(left, NEGATED[COMPARISONS[kind]], right)]
    if negation:
        return [{**negation, "children": [tree]}]
    if kind == "CONJUNCTION_OR" and (comparison := _without_null_tests(children)) is not None:
        return _inner_conjuncts(comparison)
    if kind == "COMPARE_BETWEEN" and (columns_of(cast(Tree, tree["lower"])) or columns_of(cast(Tree, tree["upper"]))):
        return list(split_between(tree))
    return [tree]


def _without_null_tests(children: Sequence[Tree]) -> Tree | None:
    """The comparison in `a IS NULL OR b IS NULL OR a >= b`, which is not false where one of its columns is null."""
    tests = [child for child in children if child["type"] == "OPERATOR_IS_NULL"]
    others = [child for child in children if child["type"] != "OPERATOR_IS_NULL"]
    if len(others) != 1 or others[0]["type"] not in COMPARISONS:
        return None
    tested = {name for child in tests for name in columns_of(child)}
    plain = all(is_column(arguments(child)[0]) for child in tests)
    sides = {name for side in operands(others[0]) if is_column(side) for name in columns_of(side)}
    return others[0] if tests and plain and tested <= sides else None


def _assignment(tree: Tree) -> Assignment | None:
    if tree["type"] != "COMPARE_EQUAL":
        return None
    left, right = operands(tree)
    for side, other in ((left, right), (right, left)):
        inputs = columns_of(other)
        if is_column(side) and inputs and columns_of(side)[0] not in inputs:
            return Assignment(columns_of(side)[0], sql_of(other), inputs)
    return None


def _order(tree: Tree, dates: set[str]) -> Order | None:
    operator = COMPARISONS.get(str(tree["type"]), "")
    if operator not in ("<", "<=", ">", ">="):
        return None
    left, right = operands(tree)
    if operator in ("<", "<="):
        left, right, operator = right, left, MIRRORED[operator]
    larger, smaller = _sum_of(left, dates), _sum_of(right, dates)
    if larger is None or smaller is None:
        return None
    difference = larger.minus(smaller)
    offset = _total(difference.offsets)
    if len(difference.plus) != 1 or len(difference.less) != 1 or difference.plus == difference.less or offset is None:
        return None
    return Order(difference.plus[0], difference.less[0], operator == ">", offset)


_Offset = int | float | timedelta


class _Sum(NamedTuple):
    """Columns, added and subtracted, and constants on the other side of the comparison."""

    plus: tuple[str, ...] = ()
    less: tuple[str, ...] = ()
    offsets: tuple[_Offset, ...] = ()

    def minus(self, other: "_Sum") -> "_Sum":
        offsets = (*self.offsets, *(-value for value in other.offsets))
        return _Sum(self.plus + other.less, self.less + other.plus, offsets)


def _sum_of(tree: Tree, dates: set[str]) -> _Sum | None:
    if is_column(tree):
        return _Sum(plus=columns_of(tree))
    if not columns_of(tree):
        value = difference_value(tree)
        return None if value is None else _Sum(offsets=(-value,))
    if tree["type"] != "FUNCTION":
        return None
    name, children = str(tree["function_name"]).lower(), arguments(tree)
    if name in ("date_diff", "datediff") and len(children) == 3:
        start, end = children[1:]
        both_dates = all(is_column(side) and columns_of(side)[0] in dates for side in (start, end))
        is_days = is_literal(children[0]) and str(literal_value(children[0])).lower() in ("day", "days")
        return _Sum(plus=columns_of(end), less=columns_of(start)) if both_dates and is_days else None
    sums = [_sum_of(child, dates) for child in children]
    if name not in ("+", "-") or any(each is None for each in sums):
        return None
    first, *rest = cast(list[_Sum], sums) if len(sums) == 2 else [_Sum(), *cast(list[_Sum], sums)]
    return first.minus(rest[0]) if name == "-" else first.minus(_Sum().minus(rest[0]))


def _total(offsets: Sequence[_Offset]) -> _Offset | None:
    """Their sum, if all are numbers or all are lengths of time."""
    times = [value for value in offsets if isinstance(value, timedelta)]
    numbers = [value for value in offsets if not isinstance(value, timedelta)]
    if times and numbers:
        return None
    return sum(times, timedelta()) if times else sum(numbers)
