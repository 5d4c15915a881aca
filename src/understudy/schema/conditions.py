"""SQL conditions over the columns of a table, which can do nothing but read them."""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple, cast

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import ConditionError
from understudy.schema.sql import sandbox

Constant = str | int | float | bool | date | datetime | None


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

    >>> filter_where(pa.table({"age": [17, 70, None]}), "age >= 18").tolist()
    [False, True, False]
    """
    names = table.column_names
    tree = _parse_condition(expression, names)
    used = _columns_of(tree)
    numbered = _rename_columns(tree, {name: f"c{i}" for i, name in enumerate(used)})
    sql = f"SELECT {_sql_of(numbered)} AS met, row FROM t"
    columns = {f"c{i}": _to_sql_type(table.column(name)) for i, name in enumerate(used)}
    rows = pa.table({**columns, "row": np.arange(table.num_rows)})
    try:
        found = _run_sql(rows.slice(0, 0), sql)
    except duckdb.Error as error:
        raise _condition_error(expression, _first_line(error), names) from None
    if not pa.types.is_boolean(found.schema.field("met").type):
        raise ConditionError(
            f"{expression!r} has type {found.schema.field('met').type}, expected a condition that is true or false,"
            f" such as {names[0]} IS NOT NULL."
        )
    try:
        met = _run_sql(rows, sql)
    except duckdb.Error:
        raise _condition_error(expression, _failure_reason(rows, sql), names) from None
    mask = np.zeros(table.num_rows, dtype=bool)
    mask[met.column("row").to_numpy()] = pc.fill_null(met.column("met"), False).to_numpy()
    return mask


def _run_sql(rows: pa.Table, sql: str) -> pa.Table:
    with sandbox() as connection:
        connection.register("t", rows)
        return connection.sql(sql).to_arrow_table()


def _failure_reason(rows: pa.Table, sql: str) -> str:
    """DuckDB's message if a row of nulls fails too, so that the condition is at fault; else a fixed text."""
    nulls = pa.table([pa.nulls(1, field.type) for field in rows.schema], schema=rows.schema)
    try:
        _run_sql(nulls, sql)
    except duckdb.Error as error:
        return _first_line(error)
    return "it fails on a value of the table, which is not shown; TRY_CAST returns null instead"


def where_columns(expression: str, names: Sequence[str]) -> list[Conjunct]:
    """The parts of a condition that are joined by AND, with the columns of each.

    >>> first, second = where_columns("age BETWEEN 18 AND 65 AND lower(city) = 'rome'", ["age", "city"])
    >>> first.columns, first.operator, first.constants
    (('age',), 'between', (18, 65))
    >>> second.columns, second.operator
    (('city',), None)
    """
    parts = _conjuncts(_parse_condition(expression, names))
    return [Conjunct(_sql_of(part), _columns_of(part), *_comparison(part)) for part in parts]


_Tree = dict[str, object]

_ALLOWED_NODES = {"COMPARISON", "CONJUNCTION", "CONSTANT", "COLUMN_REF", "FUNCTION", "OPERATOR"} | {
    *("BETWEEN", "CASE", "CAST", "COLLATE", "TYPE")
}
_ALLOWED_MACROS = frozenset(["nullif", "fmod", "fdiv", "split_part", "days_in_month", "date_add", "if", "now", "today"])


def _parse_condition(expression: str, names: Sequence[str]) -> _Tree:
    """The syntax tree of an expression that only reads columns, with their exact names."""
    statement = _statement(f"SELECT 1 FROM t WHERE (\n{expression}\n)")
    if isinstance(statement, str):
        raise _condition_error(expression, statement, names)
    alone = _statement(f"SELECT 1 FROM t WHERE\n{expression}\n")
    if isinstance(alone, str) and expression.strip():  # such as "a) OR (b", which closes the parenthesis above
        raise _condition_error(expression, "its parentheses do not match", names)
    tree = cast(_Tree, cast(_Tree, statement["node"]).pop("where_clause", None))
    frame = cast(_Tree, _statement("SELECT 1 FROM t WHERE (true)"))
    cast(_Tree, frame["node"]).pop("where_clause")
    if _without_positions(statement) != _without_positions(frame):
        raise _condition_error(expression, "it is more than one expression", names)
    exact = {}
    for node in _nodes(tree):
        kind = node["class"]
        if kind not in _ALLOWED_NODES:
            raise _condition_error(expression, f"{str(kind).lower().replace('_', ' ')} is not allowed here", names)
        if kind == "FUNCTION" and str(node["function_name"]).lower() not in _pure_functions():
            raise _condition_error(
                expression, f"the function {node['function_name']} is not allowed here, or unknown", names
            )
        if kind == "COLUMN_REF":
            path = cast(list[str], node["column_names"])
            exact[".".join(path)] = _exact_name(path, expression, names)
    return _rename_columns(tree, exact)


def _exact_name(path: list[str], expression: str, names: Sequence[str]) -> str:
    """The table's own spelling of a column: SQL names ignore case."""
    written = ".".join(path)
    if written in names:
        return written
    alike = [name for name in names if name.lower() == written.lower()]
    if len(alike) == 1:
        return alike[0]
    raise _condition_error(
        expression, f"there is no column {written!r}; strings are written in single quotes", names, column=written
    )


def _condition_error(
    expression: str, reason: str, names: Sequence[str], *, column: str | None = None
) -> ConditionError:
    shown = ", ".join(names[:30]) + (f" and {len(names) - 30} more" if len(names) > 30 else "")
    return ConditionError(
        f"Cannot use the condition {expression!r}: {reason.rstrip('.')}. Write SQL over the columns {shown}.",
        column=column,
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def _statement(sql: str) -> _Tree | str:
    """The syntax tree of one SELECT, or the reason why it has none."""
    with sandbox() as connection:
        answer = json.loads(connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0])
    if answer["error"]:
        return _first_line(answer["error_message"])
    return answer["statements"][0] if len(answer["statements"]) == 1 else "it is more than one statement"


def _nodes(tree: object) -> Iterator[_Tree]:
    """All expressions in a tree."""
    if isinstance(tree, dict):
        if "class" in tree:
            yield tree
        for value in tree.values():
            yield from _nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _nodes(value)


def _without_positions(tree: object) -> object:
    if isinstance(tree, dict):
        return {key: _without_positions(value) for key, value in tree.items() if not key.startswith("query_location")}
    return [_without_positions(value) for value in tree] if isinstance(tree, list) else tree


def _rename_columns(tree: object, names: Mapping[str, str]) -> _Tree:
    """A copy of the tree with other column names."""
    copy = json.loads(json.dumps(tree))
    for node in _nodes(copy):
        if node["class"] == "COLUMN_REF":
            node["column_names"] = [names[".".join(cast(list[str], node["column_names"]))]]
    return copy


def _columns_of(tree: _Tree) -> tuple[str, ...]:
    found = [cast(list[str], node["column_names"])[0] for node in _nodes(tree) if node["class"] == "COLUMN_REF"]
    return tuple(dict.fromkeys(found))


@functools.cache
def _pure_functions() -> frozenset[str]:
    """Functions whose value depends on their arguments alone: not on files, settings, time or random numbers."""
    with sandbox() as connection:
        rows = connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions()"
            " WHERE function_type = 'scalar' AND stability = 'CONSISTENT'"
        ).fetchall()
    names = {name.lower() for (name,) in rows if not name.startswith("__")}
    return frozenset(names - {"current_setting", "getvariable", "getenv", "json_serialize_plan"} | _ALLOWED_MACROS)


def _sql_of(tree: _Tree) -> str:
    """A tree as SQL text."""
    with sandbox() as connection:
        statement = json.loads(connection.execute("SELECT json_serialize_sql('SELECT 1')").fetchall()[0][0])
        statement["statements"][0]["node"]["select_list"] = [tree]
        text = connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(statement)]).fetchall()[0][0]
    return text.removeprefix("SELECT ")


def _conjuncts(tree: _Tree) -> list[_Tree]:
    if tree["type"] != "CONJUNCTION_AND":
        return [tree]
    return [part for child in cast(list[_Tree], tree["children"]) for part in _conjuncts(child)]


_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_OPERATORS = {
    "COMPARE_IN": "in",
    "COMPARE_NOT_IN": "not in",
    "OPERATOR_IS_NULL": "is null",
    "OPERATOR_IS_NOT_NULL": "is not null",
}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITES = {"=": "<>", "<": ">=", ">": "<=", "in": "not in", "between": "not between", "is null": "is not null"}
_NEGATED = _OPPOSITES | {after: before for before, after in _OPPOSITES.items()}

_Test = tuple[str | None, tuple[Constant, ...]]


def _comparison(tree: _Tree) -> _Test:
    """Operator and constants, if the tree compares one column with constants."""
    kind, children = str(tree["type"]), cast(list[_Tree], tree.get("children", []))
    if kind == "OPERATOR_NOT":
        operator, constants = _comparison(children[0])
        return (_NEGATED[operator], constants) if operator else (None, ())
    if kind in _COMPARISONS:
        left, right, operator = cast(_Tree, tree["left"]), cast(_Tree, tree["right"]), _COMPARISONS[kind]
        if left["type"] != "COLUMN_REF":
            left, right, operator = right, left, _MIRRORED[operator]
        return _against(left, operator, [right])
    if kind == "COMPARE_BETWEEN":
        return _against(cast(_Tree, tree["input"]), "between", [cast(_Tree, tree["lower"]), cast(_Tree, tree["upper"])])
    if kind in _OPERATORS:
        return _against(children[0], _OPERATORS[kind], children[1:])
    return None, ()


def _against(column: _Tree, operator: str, others: Sequence[_Tree]) -> _Test:
    if column["type"] != "COLUMN_REF" or not all(_is_constant(other) for other in others):
        return None, ()
    constants = tuple(_constant(other) for other in others)
    return (None, ()) if None in constants else (operator, constants)


def _is_constant(tree: _Tree) -> bool:
    """Whether the tree is a literal, perhaps signed or with its type before it."""
    return all(
        node["class"] in ("CONSTANT", "CAST", "TYPE")
        or (node["class"] == "FUNCTION" and node["function_name"] in ("+", "-"))
        for node in _nodes(tree)
    )


def _constant(tree: _Tree) -> Constant:
    with sandbox() as connection:
        try:
            value = connection.sql(f"SELECT {_sql_of(tree)} AS v").to_arrow_table().column(0)[0].as_py()
        except duckdb.Error as error:
            raise ConditionError(f"Cannot read the constant {_sql_of(tree)}: {_first_line(error)}") from None
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else float(value)
    return value


def _to_sql_type(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(values.type):
        return values.cast(values.type.value_type)
    return values.cast(pa.float64()) if pa.types.is_decimal256(values.type) else values


@functools.lru_cache(maxsize=1024)
def condition_columns(expression: str) -> tuple[str, ...]:
    """The columns of a condition as it spells them, each once.

    >>> condition_columns("discharged >= admitted")
    ('discharged', 'admitted')
    """
    statement = _statement(f"SELECT 1 FROM t WHERE (\n{expression}\n)")
    if isinstance(statement, str):
        raise ConditionError(
            f"Cannot use the condition {expression!r}: {statement.rstrip('.')}. Write an SQL condition."
        )
    tree = cast(_Tree, statement["node"]).get("where_clause")
    paths = [cast(list[str], node["column_names"]) for node in _nodes(tree) if node["class"] == "COLUMN_REF"]
    return tuple(dict.fromkeys(".".join(path) for path in paths))
