"""Reads those checks of pandera schemas and Great Expectations suites that apply to every single row."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime

from understudy.errors import SchemaError
from understudy.schema.column import Column
from understudy.schema.import_sql import sql_in, sql_literal, sql_name, without_parentheses
from understudy.schema.imported import (
    NO_COUNTERPART,
    NO_EFFECT,
    WHOLE_TABLE,
    Draft,
    Entry,
    entries,
    entry_list,
    text_list,
    unknown_type,
)
from understudy.schema.values import format_value

# Types of both tools in lower case. The first pattern that matches the name of a type counts.

_TYPE_KINDS = (
    (r"^(datetime|timestamp|smalldatetime)", "datetime"),
    (r"^date", "date"),
    (r"^(timedelta|duration|interval|time\b|time64|time32)", "text"),
    (r"^(u?int|integer|bigint|smallint|tinyint|hugeint|long|short|byte)", "integer"),
    (r"^(float|double|decimal|numeric|real|number|complex)", "real"),
    (r"^bool", "boolean"),
    (r"^(str|string|object|categor|enum|utf8|varchar|char|nvarchar|text|large_string)", "categorical"),
)


_EXAMPLES_OF_TYPES = (
    *("int64", "float64", "decimal", "bool", "str", "object", "category", "date", "datetime64[ns]", "timedelta64[ns]"),
    "and their names in SQL, Arrow and polars",
)


def _kind_of(type_name: object) -> str | None:
    """The kind that the name of a type suggests; None if it suggests none."""
    if not isinstance(type_name, str):
        return None
    plain = re.sub(r"^.*[.:]", "", re.sub(r"[\[(].*$", "", type_name.strip())).lower().removesuffix("type")
    return next((kind for pattern, kind in _TYPE_KINDS if re.search(pattern, plain)), None)


def _kind_of_value(value: object) -> str | None:
    """The kind of a column that is compared with this value."""
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "real"
        case datetime():
            return "datetime"
        case date():
            return "date"
        case str():
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                return "categorical"
            return "date" if len(value) <= len("2024-01-31") and moment.time() == moment.min.time() else "datetime"
    return None


# pandera: {"schema_type": "dataframe", "columns": {"age": {"dtype": "int64", "nullable": false, "checks": {"in_range":
# {"min_value": 0, "max_value": 120}}}}}. Later versions list the checks, each with its name in options.check_name, or
# write them next to dtype.


def is_pandera(content: Entry) -> bool:
    return str(content.get("schema_type", "")).lower().startswith(("dataframe", "polars", "pyspark", "ibis"))


_PANDERA_FACTS = frozenset(
    (
        "dtype",
        "pandas_dtype",
        "nullable",
        "checks",
        "unique",
        "allow_duplicates",
        "coerce",
        "required",
        "regex",
        "title",
    )
) | {"description", "default", "metadata", "parsers", "report_duplicates", "drop_invalid_rows", "name"}

_PANDERA_ALIASES = {
    "gt": "greater_than",
    "ge": "greater_than_or_equal_to",
    "lt": "less_than",
    "le": "less_than_or_equal_to",
    "eq": "equal_to",
    "ne": "not_equal_to",
    "between": "in_range",
}

_PANDERA_LIMITS = {
    "greater_than": (">", "min_value"),
    "greater_than_or_equal_to": (">=", "min_value"),
    "less_than": ("<", "max_value"),
    "less_than_or_equal_to": ("<=", "max_value"),
    "equal_to": ("=", "value"),
    "not_equal_to": ("<>", "value"),
}


_INFERRED = "infer_schema of pandera writes such checks from the data"


def _is_inferred(entry: Entry) -> bool:
    """Whether the checks of a column have the form that `infer_schema` writes: both ends of a range, or the list of a
    categorical dtype. A person can write the same checks; the file does not show who wrote them."""
    beside = {key: value for key, value in entry.items() if key not in _PANDERA_FACTS}
    checks = {check for check, _ in [*_pandera_checks(entry.get("checks")), *_pandera_checks(beside)]}
    if {"greater_than_or_equal_to", "less_than_or_equal_to"} <= checks:
        return True
    return "isin" in checks and str(entry.get("dtype", "")).lower().startswith("category")


def read_pandera(content: Entry, draft: Draft) -> None:
    columns = entries(content.get("columns"))
    found = [name for name, entry in columns.items() if _is_inferred(entry)]
    trusted = {name: name not in found or draft.trusts(name, _INFERRED) for name in columns}
    if not all(trusted.values()):
        draft.leave_out("pandera nullable", "infer_schema writes what it finds in the data; set nullable = false")
    for name, entry in columns.items():
        if entry.get("regex") is True:
            draft.leave_out(f"columns that match {format_value(name)}", "a schema names every column")
        else:
            _declare_pandera(name, entry, content.get("dtype"), draft)
    for name, entry in columns.items():
        if entry.get("regex") is not True:
            _read_pandera_column(name, entry, draft, trusted[name], nullable_is_declared=all(trusted.values()))
    for check, given in _pandera_checks(content.get("checks")):
        for name in draft.names:  # a check of the frame is one of all its columns
            _read_pandera_check(name, check, given, draft, of_frame=True)
    if content.get("unique"):
        draft.leave_out("pandera unique", WHOLE_TABLE)
    for index in entry_list(content.get("index")):
        if index.get("name") is not None:
            draft.leave_out(f"index {format_value(index['name'])}", "only columns are read; make it a column first")


def _declare_pandera(name: str, entry: Entry, frame_dtype: object, draft: Draft) -> None:
    dtype = entry.get("dtype", entry.get("pandas_dtype")) or frame_dtype
    kind = _kind_of(dtype)
    if kind is None:
        values = [value for _, given in _pandera_checks(entry.get("checks")) for value in _constants(given)]
        if dtype is not None:
            raise unknown_type(name, dtype, _EXAMPLES_OF_TYPES)
        kind = next((found for value in values if (found := _kind_of_value(value))), "categorical")
        draft.guess(name, kind, "the file does not say its type")
    elif kind == "text":
        draft.leave_unmodelled(name, f"{dtype} has no kind")
    elif draft.kind(name) is None:
        draft.declare(Column(name=name, kind=kind))


def _read_pandera_column(
    name: str, entry: Entry, draft: Draft, is_trusted: bool, *, nullable_is_declared: bool
) -> None:
    if draft.kind(name) is None:
        return
    if entry.get("default") is not None:
        draft.default(name, entry["default"])
    if entry.get("nullable", False) is False and nullable_is_declared:
        draft.not_null(name, f"pandera nullable of {format_value(name)}")
    if entry.get("unique") is True or entry.get("allow_duplicates") is False:
        draft.leave_out(f"pandera unique of {format_value(name)}", WHOLE_TABLE)
    beside = {key: value for key, value in entry.items() if key not in _PANDERA_FACTS}
    for check, given in [*_pandera_checks(entry.get("checks")), *_pandera_checks(beside)]:
        if is_trusted or check not in ("greater_than_or_equal_to", "less_than_or_equal_to", "isin"):
            _read_pandera_check(name, check, given, draft)


def _pandera_checks(checks: object) -> Iterator[tuple[str, dict[str, object]]]:
    """Names and arguments of checks in any of the three forms; a lone argument is called `value`."""
    if isinstance(checks, Mapping):
        for name, given in checks.items():
            yield str(name), dict(given) if isinstance(given, Mapping) else {"value": given}
    for entry in entry_list(checks):
        options = entry.get("options")
        name = options.get("check_name") if isinstance(options, Mapping) else entry.get("check_name")
        yield str(name), dict(entry)


def _constants(given: Mapping[str, object]) -> list[object]:
    values = [value for key, value in given.items() if key != "options"]
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def _read_pandera_check(
    name: str, check: str, given: Mapping[str, object], draft: Draft, *, of_frame: bool = False
) -> None:
    check = _PANDERA_ALIASES.get(check, check)
    what = f"pandera {check} of {'the frame, column' if of_frame else 'column'} {format_value(name)}"
    options = given.get("options")
    if isinstance(options, Mapping) and options.get("raise_warning") is True:
        draft.leave_out(what, "it only warns")
    elif isinstance(options, Mapping) and options.get("groupby") is not None:
        draft.leave_out(what, WHOLE_TABLE)
    elif check in _PANDERA_LIMITS:
        operator, key = _PANDERA_LIMITS[check]
        value = given.get(key, given.get("value"))
        if operator in ("=", "<>"):
            draft.compare(name, operator, value, what)
        else:
            draft.limit(name, operator, value, what)
    elif check == "in_range":
        draft.limit(name, ">" if given.get("include_min") is False else ">=", given.get("min_value"), what)
        draft.limit(name, "<" if given.get("include_max") is False else "<=", given.get("max_value"), what)
    elif check == "isin":
        draft.choices(name, given.get("allowed_values", given.get("value")), what)
    elif check == "notin":
        draft.among(name, given.get("forbidden_values", given.get("value")), what, negated=True)
    elif check.startswith("str_"):
        draft.leave_out(what, NO_EFFECT)
    else:
        draft.leave_out(what, WHOLE_TABLE if check == "unique_values_eq" else NO_COUNTERPART)


# Great Expectations: {"expectations": [{"expectation_type": "expect_column_values_to_be_between", "kwargs": {...}}]},
# with "type" for "expectation_type" since version 1


def is_great_expectations(content: Entry) -> bool:
    found = entry_list(content.get("expectations"))
    return any(isinstance(entry.get("kwargs"), Mapping) and _expectation_name(entry) for entry in found)


def read_great_expectations(content: Entry, draft: Draft) -> None:
    found = []
    from_profiler = _names_profiler(content.get("meta"))
    for entry in entry_list(content.get("expectations")):
        kwargs = entry.get("kwargs")
        given = dict(kwargs) if isinstance(kwargs, Mapping) else {}
        is_profiled = _is_profiled(entry, given) or (from_profiler and bool(_OF_DATA & given.keys()))
        if is_profiled and not all(draft.trusts(name, _PROFILED) for name in _expected_columns(given)):
            given = {key: value for key, value in given.items() if key.startswith("column")}
            found.append(("expect_column_to_exist", given))
        else:
            found.append((_expectation_name(entry), given))
    if draft.names == ():
        _declare_expected(found, draft)
    for name, given in found:
        _read_expectation(name, given, draft)


_PROFILED = "a profiler of Great Expectations wrote these expectations from the data"
_OF_DATA = {"min_value", "max_value", "value_set", "value_pairs_set"}
"""What a profiler reads off the data."""


def _names_profiler(meta: object) -> bool:
    """Whether the notes on a suite name a profiler: as a key, or in a citation."""
    if isinstance(meta, Mapping):
        return any("profiler" in str(key).lower() or _names_profiler(value) for key, value in meta.items())
    if isinstance(meta, list):
        return any(map(_names_profiler, meta))
    return isinstance(meta, str) and "profiler" in meta.lower()


def _is_profiled(entry: Entry, given: Mapping[str, object]) -> bool:
    """Whether an expectation says that its values come from the data."""
    meta = entry.get("meta")
    return given.get("auto") is True or (isinstance(meta, Mapping) and "profiler_details" in meta)


def _expectation_name(entry: Entry) -> str:
    name = entry.get("type", entry.get("expectation_type"))
    return name.lower() if isinstance(name, str) else ""


def _declare_expected(found: list[tuple[str, dict[str, object]]], draft: Draft) -> None:
    """Columns, in the order of the table if the suite has it, with the kinds that types or else values suggest."""
    typed: dict[str, str] = {}
    suggested: dict[str, str | None] = {}
    formats: dict[str, str] = {}
    for name, given in sorted(found, key=lambda each: each[0] != "expect_table_columns_to_match_ordered_list"):
        for each in _expected_columns(given):
            suggested.setdefault(each, None)
        column = given.get("column")
        if not isinstance(column, str):
            continue
        types = [given.get("type_"), *text_list(given.get("type_list"))]
        if kind := next((kind for each in types if (kind := _kind_of(each))), None):
            typed.setdefault(column, kind)
        elif any(each is not None for each in types):
            raise unknown_type(column, next(each for each in types if each is not None), _EXAMPLES_OF_TYPES)
        if name == "expect_column_values_to_match_strftime_format" and isinstance(given.get("strftime_format"), str):
            formats[column] = str(given["strftime_format"])
        values = [given.get("min_value"), given.get("max_value"), *_value_list(given.get("value_set"))]
        if suggested[column] is None and ("values_to_be_between" in name or "_in_set" in name):
            suggested[column] = next((kind for value in values if (kind := _kind_of_value(value))), None)
    for column, kind in suggested.items():
        if column in formats:
            has_time = re.search(r"%-?[HIMSfpcXTRsz]", formats[column])
            try:
                kind = "datetime" if has_time else "date"
                draft.declare(Column(name=column, kind=kind, format=formats[column]))
                continue
            except SchemaError as error:
                draft.leave_out(f"the format of column {format_value(column)}", str(error))
        if column in typed:
            draft.declare(Column(name=column, kind=typed[column]))
        else:
            draft.guess(column, kind or "categorical", "the suite does not say its type")


def _expected_columns(given: Mapping[str, object]) -> list[str]:
    lists = [text_list(given.get(key)) for key in ("column_list", "column_set")]
    alone = [given.get(key) for key in ("column", "column_A", "column_B")]
    return [*(name for names in lists for name in names), *(name for name in alone if isinstance(name, str))]


def _value_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


_ABOUT_COLUMNS = frozenset(
    ("expect_column_to_exist", "expect_table_columns_to_match_ordered_list", "expect_table_columns_to_match_set")
) | {
    "expect_column_values_to_be_of_type",
    "expect_column_values_to_be_in_type_list",
    "expect_column_values_to_match_strftime_format",
}
"""Expectations that only name columns and their types."""

_PAIRS = "expect_column_pair_values_"


def _read_expectation(name: str, given: Mapping[str, object], draft: Draft) -> None:
    columns = _expected_columns(given)
    what = f"{name or 'expectation'} ({', '.join(columns[:5])})" if columns else name or "expectation"
    mostly = given.get("mostly")
    if name in _ABOUT_COLUMNS:
        return
    if isinstance(mostly, int | float) and mostly < 1:
        draft.leave_out(what, f"it need not hold for every row (mostly = {mostly})")
    elif any(isinstance(value, Mapping) and "$PARAMETER" in value for value in given.values()):
        draft.leave_out(what, "it has a parameter that is known only when the suite is run")
    elif given.get("row_condition"):
        _read_conditional(name, given, what, draft)
    else:
        _read_unconditional(name, given, what, draft)


def _read_unconditional(name: str, given: Mapping[str, object], what: str, draft: Draft) -> None:
    column, low, high = given.get("column"), given.get("min_value"), given.get("max_value")
    match name:
        case "expect_column_values_to_be_between":
            if low is not None:
                draft.limit(column, ">" if given.get("strict_min") is True else ">=", low, what)
            if high is not None:
                draft.limit(column, "<" if given.get("strict_max") is True else "<=", high, what)
        case "expect_column_values_to_be_in_set" | "expect_column_distinct_values_to_be_in_set":
            draft.choices(column, given.get("value_set"), what)
        case "expect_column_values_to_not_be_null":
            draft.not_null(column, what)
        case "expect_column_pair_values_to_be_in_set":
            pairs = [list(pair) for pair in _value_list(given.get("value_pairs_set")) if isinstance(pair, list | tuple)]
            names = [given.get("column_A"), given.get("column_B")]
            draft.rule({"combinations": names, "allowed": pairs}, what)
        case "expect_multicolumn_sum_to_equal":
            draft.rule({"sum": given.get("column_list"), "equals": given.get("sum_total")}, what)
        case _:
            _apply(lambda: draft.keep(_as_condition(name, given), what), what, draft)


def _read_conditional(name: str, given: Mapping[str, object], what: str, draft: Draft) -> None:
    """An expectation about some rows: a rule with when and then."""
    when, parser = given["row_condition"], str(given.get("condition_parser") or "")

    def read() -> None:
        draft.rule({"when": _row_condition(when, parser), "then": _as_condition(name, given)}, what)

    _apply(read, what, draft)


def _apply(read: Callable[[], None], what: str, draft: Draft) -> None:
    """Runs a reader; what it cannot express is left out."""
    try:
        read()
    except SchemaError as error:
        draft.leave_out(what, str(error))


def _as_condition(name: str, given: Mapping[str, object]) -> str:
    """An expectation about single rows as an SQL condition. Raises SchemaError for any other."""
    column, low, high = given.get("column"), given.get("min_value"), given.get("max_value")
    one, other = given.get("column_A"), given.get("column_B")
    if name.startswith(_PAIRS) and isinstance(one, str) and isinstance(other, str):
        sign = ">=" if given.get("or_equal") is True else ">"
        operator = {f"{_PAIRS}a_to_be_greater_than_b": sign, f"{_PAIRS}to_be_equal": "="}.get(name)
        if operator is not None:
            return f"{sql_name(one)} {operator} {sql_name(other)}"
    if isinstance(column, str):
        match name:
            case "expect_column_values_to_not_be_null":
                return f"{sql_name(column)} IS NOT NULL"
            case "expect_column_values_to_be_null":
                return f"{sql_name(column)} IS NULL"
            case "expect_column_values_to_be_between" if low is not None or high is not None:
                above = f"{sql_name(column)} {'>' if given.get('strict_min') is True else '>='} "
                below = f"{sql_name(column)} {'<' if given.get('strict_max') is True else '<='} "
                limits = [(above, low), (below, high)]
                return " AND ".join(text + sql_literal(value) for text, value in limits if value is not None)
            case "expect_column_values_to_be_in_set" | "expect_column_values_to_not_be_in_set":
                if values := [value for value in _value_list(given.get("value_set")) if value is not None]:
                    return sql_in(column, values, negated="not_be_in" in name)
    whole = re.search(r"unique|distinct|_table_|increasing|decreasing|_(mean|median|min|max|sum|stdev|quantile)_", name)
    texts = re.search(r"regex|length|like_pattern|dateutil|json|strftime", name)
    raise SchemaError(NO_EFFECT if texts else WHOLE_TABLE if whole else NO_COUNTERPART)


_OPERATORS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def _row_condition(condition: object, parser: str) -> str:
    """A condition on rows as SQL: an object of version 1, or a text for pandas or for the tool's own parser."""
    if isinstance(condition, Mapping):
        return _condition_object(condition)
    if not isinstance(condition, str):
        raise SchemaError("its row_condition cannot be read.")
    if parser in ("spark", "spark_sql", "sql"):
        return condition
    parts = re.split(r"\s+(?:and|&)\s+", without_parentheses(condition.strip()))
    return " AND ".join(_simple_condition(without_parentheses(part.strip()).strip()) for part in parts)


_NAME = r"(?:col\(\s*[\"'](?P<quoted>[^\"']+)[\"']\s*\)|`(?P<ticked>[^`]+)`|(?P<plain>[A-Za-z_]\w*))"
_SIMPLE = re.compile(
    _NAME + r"\s*(?P<operator>==|!=|<=|>=|<|>)\s*(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<number>[-+.\deE]+)|"
    r"(?P<boolean>True|False|true|false))"
)
_NULLITY = re.compile(_NAME + r"\.(?P<test>notnull|notna|isnull|isna)\(\)", re.IGNORECASE)


def _simple_condition(text: str) -> str:
    """A comparison with a constant, or a test for null. Anything else could mean something else in SQL."""
    if found := _NULLITY.fullmatch(text):
        return f"{_matched_name(found)} IS {'NOT ' if found['test'].lower().startswith('not') else ''}NULL"
    found = _SIMPLE.fullmatch(text)
    if found is None:
        raise SchemaError("its row_condition is not a simple comparison; write the rule with when and then.")
    value: object = found["double"] if found["double"] is not None else found["single"]
    if found["number"] is not None:
        try:
            value = float(found["number"]) if re.search(r"[.eE]", found["number"]) else int(found["number"])
        except ValueError:
            raise SchemaError("its row_condition cannot be read.") from None
    if found["boolean"] is not None:
        value = found["boolean"].lower() == "true"
    return f"{_matched_name(found)} {_OPERATORS[found['operator']]} {sql_literal(value)}"


def _matched_name(found: re.Match[str]) -> str:
    return sql_name(found["quoted"] or found["ticked"] or found["plain"])


def _condition_object(condition: Entry) -> str:
    column = condition.get("column")
    name = column.get("name") if isinstance(column, Mapping) else column
    operator, value, inner = condition.get("operator"), condition.get("parameter"), condition.get("conditions")
    if isinstance(inner, list) and inner and all(isinstance(each, Mapping) for each in inner):
        word = {"and": " AND ", "or": " OR "}.get(str(condition.get("type")).lower())
        if word is not None:
            return word.join(f"({_condition_object(each)})" for each in inner)
    if isinstance(name, str) and isinstance(condition.get("is_null"), bool):
        return f"{sql_name(name)} IS {'' if condition['is_null'] else 'NOT '}NULL"
    if isinstance(name, str) and str(operator) in _OPERATORS:
        return f"{sql_name(name)} {_OPERATORS[str(operator)]} {sql_literal(value)}"
    if (
        isinstance(name, str)
        and str(operator).lower() in ("in", "not_in", "not in")
        and isinstance(value, list)
        and value
    ):
        return sql_in(name, value, negated=str(operator).lower() != "in")
    raise SchemaError("its row_condition is not a simple comparison; write the rule with when and then.")
