"""The syntax trees of SQL conditions, as DuckDB parses them: checked, so that they do nothing but read columns."""

import functools
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import duckdb
import pyarrow as pa

from understudy.errors import ConditionError, did_you_mean
from understudy.rules.sql import sandbox

Constant = str | int | float | bool | date | datetime | None

Tree = dict[str, object]

_ALLOWED_NODES = {"COMPARISON", "CONJUNCTION", "CONSTANT", "COLUMN_REF", "FUNCTION", "OPERATOR"} | {
    *("BETWEEN", "CASE", "CAST", "COLLATE", "TYPE")
}
_ALLOWED_MACROS = frozenset(["nullif", "fmod", "fdiv", "split_part", "days_in_month", "date_add", "if", "now", "today"])
_TIME_FUNCTIONS = {
    *("now", "today", "current_date", "current_time", "current_timestamp", "current_localtime"),
    *("current_localtimestamp", "localtime", "localtimestamp", "get_current_time", "get_current_timestamp"),
    "transaction_timestamp",
}
_RULE_WORDS = {
    "operators": """+ - * / // % ** ^ @ & | ~ << >> || ^@ ~~ !~~ ~~* !~~* ~~~ like_escape not_like_escape ilike_escape
        not_ilike_escape list_value array_extract array_slice""",
    "numbers": """abs ceil ceiling floor round trunc sign mod fmod fdiv sqrt cbrt exp ln log log2 log10 pow power pi
        greatest least isnan isinf isfinite sin cos tan asin acos atan atan2 degrees radians""",
    "nulls": "if nullif coalesce ifnull",
    "strings": """lower upper lcase ucase trim ltrim rtrim length len char_length character_length strlen substr
        substring left right concat concat_ws contains starts_with ends_with prefix suffix position strpos instr replace
        reverse split_part regexp_matches regexp_full_match regexp_extract regexp_replace ascii chr""",
    "times": """year quarter month week day hour minute second millisecond microsecond dayofmonth dayofweek dayofyear
        weekday isodow isoyear weekofyear yearweek decade century dayname monthname last_day days_in_month epoch
        date_part datepart date_trunc datetrunc date_diff datediff date_sub datesub date_add age make_date make_time
        strftime strptime try_strptime timezone to_years to_quarters to_months to_weeks to_days to_hours to_minutes
        to_seconds to_milliseconds to_microseconds to_decades to_centuries""",
}
_RULE_FUNCTIONS = frozenset(word for words in _RULE_WORDS.values() for word in words.split())
"""What a rule may apply. A value must not be able to make any result larger than memory, which would end the run; and
the fewer there are, the fewer can fail for good on a value."""
_RULE_CATEGORIES = frozenset(["NUMERIC", "STRING", "DATETIME", "BOOLEAN"])
_MAX_NESTING = 320
"""Of the brackets in a syntax tree as JSON, which is about 100 nested operations: the trees are walked recursively."""


def parse_condition(expression: str, names: Sequence[str] | None, *, of_rule: bool = False) -> Tree:
    """The syntax tree of an expression that only reads columns, with their exact names (None: as written).

    The condition of a rule must also mean the same on any day, and be computable for any values.
    """
    statement = _statement(f"SELECT 1 FROM t WHERE (\n{expression}\n)")
    if isinstance(statement, str):
        raise condition_error(expression, statement, names)
    alone = _statement(f"SELECT 1 FROM t WHERE\n{expression}\n")
    if isinstance(alone, str) and expression.strip():  # such as "a) OR (b", which closes the parenthesis above
        raise condition_error(expression, "its parentheses do not match", names)
    tree = cast(Tree, cast(Tree, statement["node"]).pop("where_clause", None))
    frame = cast(Tree, _statement("SELECT 1 FROM t WHERE (true)"))
    cast(Tree, frame["node"]).pop("where_clause")
    if _without_positions(statement) != _without_positions(frame):
        raise condition_error(expression, "it is more than one expression", names)
    exact = {}
    for node in nodes(tree):
        kind = node["class"]
        if kind not in _ALLOWED_NODES:
            raise condition_error(expression, f"{str(kind).lower().replace('_', ' ')} is not allowed here", names)
        if kind == "FUNCTION":
            _check_function(node, expression, names, of_rule=of_rule)
        if kind == "TYPE" and of_rule and str(node["type_name"]).lower() not in _rule_types():
            reason = "is not allowed in a rule, only numbers, strings, booleans, dates and times"
            raise condition_error(expression, f"the type {node['type_name']} {reason}", names)
        if kind == "COLUMN_REF":
            path = cast(list[str], node["column_names"])
            exact[".".join(path)] = _exact_name(path, expression, names, of_rule=of_rule)
    return rename_columns(tree, exact)


def _check_function(node: Tree, expression: str, names: Sequence[str] | None, *, of_rule: bool) -> None:
    name = str(node["function_name"]).lower()
    if of_rule and (name in _TIME_FUNCTIONS or (name == "age" and len(arguments(node)) == 1)):
        raise condition_error(expression, _time_reason(name), names)
    if of_rule and name not in _RULE_FUNCTIONS:
        functions = sorted(_RULE_FUNCTIONS.difference(_RULE_WORDS["operators"].split()))
        known = did_you_mean(name, functions, cutoff=0.75) or f" Known functions are {', '.join(functions)}."
        raise condition_error(
            expression, f"the function {node['function_name']} is not allowed in a rule.{known}", names
        )
    if name not in _pure_functions():
        raise condition_error(
            expression, f"the function {node['function_name']} is not allowed here, or unknown", names
        )


def _time_reason(name: str) -> str:
    return f"{name} changes with time, and a rule must not; write a fixed date, such as DATE '2025-12-31'"


def _exact_name(path: list[str], expression: str, names: Sequence[str] | None, *, of_rule: bool) -> str:
    """The table's own spelling of a column: SQL names ignore case."""
    written = ".".join(path)
    if names is None and not (of_rule and written.lower() in _TIME_FUNCTIONS):
        return written
    if names is not None and written in names:
        return written
    alike = [name for name in names or () if name.lower() == written.lower()]
    if len(alike) == 1:
        return alike[0]
    if of_rule and written.lower() in _TIME_FUNCTIONS:
        raise condition_error(expression, _time_reason(written), names)
    raise condition_error(
        expression, f"there is no column {written!r}; strings are written in single quotes", names, column=written
    )


def condition_error(
    expression: str, reason: str, names: Sequence[str] | None, *, column: str | None = None
) -> ConditionError:
    """An error about a condition: the reason, and what to write instead."""
    if names is None:
        advice = "Write SQL over the columns of the table."
    else:
        shown = ", ".join(names[:30]) + (f" and {len(names) - 30} more" if len(names) > 30 else "")
        advice = f"Write SQL over the columns {shown}."
    reason = reason if reason.endswith("?") else reason.rstrip(".") + "."
    return ConditionError(f"Cannot use the condition {expression!r}: {reason} {advice}", column=column)


def first_line(error: Exception | str) -> str:
    """The first line of a message of DuckDB."""
    return str(error).strip().split("\n")[0]


def _statement(sql: str) -> Tree | str:
    """The syntax tree of one SELECT, or the reason why it has none."""
    serialized = _serialized(sql)
    if _nesting(serialized) > _MAX_NESTING:
        return "it is nested too deeply; at most about 100 operations may stand inside each other"
    answer = json.loads(serialized)
    if answer["error"]:
        return first_line(answer["error_message"])
    return answer["statements"][0] if len(answer["statements"]) == 1 else "it is more than one statement"


@functools.lru_cache(maxsize=2048)
def _serialized(sql: str) -> str:
    """The syntax tree as JSON. Cached: a schema of twenty rules parses each condition many times."""
    with sandbox() as connection:
        return str(connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0])


@functools.lru_cache(maxsize=2048)
def _nesting(serialized: str) -> int:
    """How deep the brackets of a JSON text are nested. Does not recurse, so that no depth is too much."""
    brackets = re.sub(r'"(?:[^"\\]|\\.)*"|[^][{}"]+', "", serialized)
    return max(itertools.accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0)


@functools.cache
def _rule_types() -> frozenset[str]:
    """Types that a rule may use, in lower case: plain ones, without JSON and the like."""
    with sandbox() as connection:
        rows = connection.execute("SELECT type_name, type_category FROM duckdb_types()").fetchall()
    return frozenset(name.lower() for name, category in rows if category in _RULE_CATEGORIES) - {"json"}


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


# ---------------------------------------------------------------------------------------------------------------- trees


def nodes(tree: object) -> Iterator[Tree]:
    """All expressions in a tree."""
    if isinstance(tree, dict):
        if "class" in tree:
            yield tree
        for value in tree.values():
            yield from nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from nodes(value)


def _without_positions(tree: object) -> object:
    if isinstance(tree, dict):
        return {key: _without_positions(value) for key, value in tree.items() if not key.startswith("query_location")}
    return [_without_positions(value) for value in tree] if isinstance(tree, list) else tree


def rename_columns(tree: object, names: Mapping[str, str]) -> Tree:
    """A copy of the tree with other column names."""
    copy: Tree = json.loads(json.dumps(tree))
    for node in nodes(copy):
        if node["class"] == "COLUMN_REF":
            node["column_names"] = [names[".".join(cast(list[str], node["column_names"]))]]
    return copy


def column_uses(tree: Tree) -> list[str]:
    """The columns of a tree, each as often as it occurs."""
    return [cast(list[str], node["column_names"])[0] for node in nodes(tree) if node["class"] == "COLUMN_REF"]


def columns_of(tree: Tree) -> tuple[str, ...]:
    """The columns of a tree, in order of first use."""
    return tuple(dict.fromkeys(column_uses(tree)))


def is_column(tree: Tree) -> bool:
    """Whether the tree is a column and nothing else."""
    return tree["type"] == "COLUMN_REF"


def arguments(tree: Tree) -> list[Tree]:
    """What a function or an operator is applied to."""
    children = cast(list[Tree], tree.get("arguments") or tree.get("children") or [])
    return [cast(Tree, child["expression"]) if "class" not in child else child for child in children]


def sql_of(tree: Tree) -> str:
    """A tree as SQL text."""
    statement = json.loads(_serialized("SELECT 1"))
    statement["statements"][0]["node"]["select_list"] = [tree]
    return _deserialized(json.dumps(statement)).removeprefix("SELECT ")


@functools.lru_cache(maxsize=2048)
def _deserialized(statement: str) -> str:
    with sandbox() as connection:
        return str(connection.execute("SELECT json_deserialize_sql(?::JSON)", [statement]).fetchall()[0][0])


# ---------------------------------------------------------------------------------------------------------- comparisons


COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
COMPARISON_TYPES = {operator: kind for kind, operator in COMPARISONS.items()}
OPERATORS = {
    "COMPARE_IN": "in",
    "COMPARE_NOT_IN": "not in",
    "OPERATOR_IS_NULL": "is null",
    "OPERATOR_IS_NOT_NULL": "is not null",
}
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITES = {"=": "<>", "<": ">=", ">": "<=", "in": "not in", "between": "not between", "is null": "is not null"}
NEGATED = _OPPOSITES | {after: before for before, after in _OPPOSITES.items()}


def operands(tree: Tree) -> tuple[Tree, Tree]:
    """Both sides of a comparison."""
    return cast(Tree, tree["left"]), cast(Tree, tree["right"])


def compared(tree: Tree) -> tuple[str, list[Tree]]:
    """The operator of a test and what it compares, in order; nothing for any other tree."""
    kind = str(tree["type"])
    if kind in COMPARISONS:
        return COMPARISONS[kind], [*operands(tree)]
    if kind == "COMPARE_BETWEEN":
        return "between", [cast(Tree, tree[key]) for key in ("input", "lower", "upper")]
    return (OPERATORS[kind], arguments(tree)) if kind in OPERATORS else ("", [])


def compare(left: Tree, operator: str, right: Tree) -> Tree:
    """The tree of a comparison."""
    kind = COMPARISON_TYPES[operator]
    return {"class": "COMPARISON", "type": kind, "alias": "", "query_location": 0, "left": left, "right": right}


def split_between(tree: Tree) -> tuple[Tree, Tree]:
    """BETWEEN as two comparisons that are joined by AND."""
    value = cast(Tree, tree["input"])
    return compare(value, ">=", cast(Tree, tree["lower"])), compare(value, "<=", cast(Tree, tree["upper"]))


def is_literal(tree: Tree) -> bool:
    """Whether the tree is a literal, perhaps signed or with its type before it."""
    return all(
        node["class"] in ("CONSTANT", "CAST", "TYPE")
        or (node["class"] == "FUNCTION" and node["function_name"] in ("+", "-"))
        for node in nodes(tree)
    )


def literal_value(tree: Tree) -> Constant:
    """The value of a literal."""
    with sandbox() as connection:
        try:
            value = connection.sql(f"SELECT {sql_of(tree)} AS v").to_arrow_table().column(0)[0]
        except duckdb.Error as error:
            raise ConditionError(f"Cannot read the constant {sql_of(tree)}: {first_line(error)}") from None
    constant: Constant = _without_decimals(value.as_py())
    return constant


def difference_value(tree: Tree) -> int | float | timedelta | None:
    """The number or the length of time that an expression without columns stands for; None if it is neither."""
    with sandbox(optimized=False) as connection:
        try:
            found = connection.sql(f"SELECT TRY({sql_of(tree)}) AS v").to_arrow_table().column(0)[0]
        except duckdb.Error:
            return None
    value = _without_decimals(found.as_py())
    if isinstance(found, pa.MonthDayNanoIntervalScalar) and value is not None:
        exact = value.months == 0 and value.nanoseconds % 1000 == 0
        return timedelta(days=value.days, microseconds=value.nanoseconds // 1000) if exact else None
    return value if isinstance(value, int | float | timedelta) and not isinstance(value, bool) else None


def _without_decimals(value: Any) -> Any:
    """SQL reads 1.5 as a decimal: here it is a float, or an integer if it has no decimals."""
    if not isinstance(value, Decimal):
        return value
    return int(value) if value.as_tuple().exponent == 0 else float(value)
