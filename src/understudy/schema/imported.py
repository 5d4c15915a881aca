"""A schema in the making: what an importer has read so far, and what it could not carry over.

Readers of other formats declare columns, and state limits, lists and rules about them. Whatever the checks of a schema
refuse is left out with the reason, so that one unsupported constraint does not make the import fail.
"""

import dataclasses
import functools
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from understudy.errors import ConditionError, SchemaError, did_you_mean
from understudy.run.atomic import atomic_write
from understudy.schema.column import BOUNDED, Column
from understudy.schema.rules import Combinations, Determines, Rule, rule_from_dict, rule_title
from understudy.schema.schema import Schema
from understudy.schema.values import Bound, Category, format_value

FROM_DATA = "its list comes from the training data, which is private; write combinations with a public list"
WHOLE_TABLE = "it is about the whole table, and a rule is about single rows"
OTHER_TABLES = "it relates several tables, and a schema describes one"
NO_COUNTERPART = "it has no counterpart in a schema"
NO_EFFECT = "it only checks the form of texts"


def _inlined(rule: Rule) -> Rule:
    """The rule with its rows instead of the path of their file: the new schema may be written to another folder."""
    has_file = isinstance(rule, Combinations | Determines) and rule.source is not None
    return dataclasses.replace(rule, source=None) if has_file else rule  # type: ignore[call-arg]


@dataclasses.dataclass(frozen=True)
class ImportedSchema:
    """A schema imported from another tool, and what could not be carried over."""

    schema: Schema
    left_out: tuple[str, ...] = ()
    """One line for each thing that was not carried over, with the reason."""

    def to_toml(self) -> str:
        """The schema file, with what was left out in comments at its end."""
        if not self.left_out:
            return self.schema.to_toml()
        return "\n".join([self.schema.to_toml(), "# Not carried over:", *(f"# - {line}" for line in self.left_out), ""])

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes the schema file, whole or not at all. An existing file is replaced only with `force`."""
        with atomic_write(path, force=force) as file:
            file.write(self.to_toml().encode())


class _Limit(NamedTuple):
    """A bound that the file states, and how to name it if it is left out."""

    value: Bound
    strict: bool
    what: str


class Draft:
    """Collects columns, limits and rules; `finish` makes a schema of those that pass its checks.

    With a `base` schema the columns and their declarations are those of the base, and the file only adds rules.

    >>> draft = Draft()
    >>> draft.declare(Column(name="age", kind="integer"))
    >>> draft.limit("age", ">=", 0, "Positive")
    >>> draft.limit("age", "<=", 120, "ScalarInequality")
    >>> draft.keep("age <> 13", "a check")
    >>> draft.keep("agee <> 13", "another check")
    >>> imported = draft.finish()
    >>> imported.schema["age"].bounds, [rule.text for rule in imported.schema.rules]
    ((0, 120), ['age <> 13'])
    >>> imported.left_out[0][:40]
    "another check: there is no column 'agee'"
    """

    def __init__(self, base: Schema | None = None, lookups: Mapping[str, str] | None = None) -> None:
        self.lookups = dict(lookups or {})
        self.table_keys: dict[str, object] = {}
        """Fields of the schema other than columns and rules."""
        self._base = base
        self._columns: dict[str, Column] = {} if base is None else {column.name: column for column in base.columns}
        self._lower: dict[str, list[_Limit]] = {}
        self._upper: dict[str, list[_Limit]] = {}
        self._rules: list[tuple[Rule, str]] = []
        self._left_out: list[str] = []

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def kind(self, name: str) -> str | None:
        """The kind of a column; None: there is no such column."""
        return self._columns[name].kind if name in self._columns else None

    def leave_out(self, what: str, why: str) -> None:
        """Lists something that is not carried over. Control characters would not be valid in a TOML comment."""
        line = re.sub(r"[\x00-\x1f\x7f]+", " ", f"{what}: {why.strip().rstrip('.')}.")
        line = line.encode("utf-8", "replace").decode()
        if line not in self._left_out:
            self._left_out.append(line)

    # ------------------------------------------------------------------------------------------------------- columns

    def declare(self, column: Column) -> None:
        """Adds a column. A base schema keeps its declarations, and gets no further columns."""
        if self._base is None:
            if column.name in self._columns:
                raise SchemaError(
                    f"Duplicate column names: {format_value(column.name)}. Rename one.", column=column.name
                )
            self._columns[column.name] = column
        elif column.name not in self._columns:
            self.leave_out(
                f"column {format_value(column.name)}", f"the schema does not have it{self._hint(column.name)}"
            )

    def guess(self, name: str, kind: str, why: str = "the file does not say its kind") -> None:
        """Adds a column with a kind that a person must confirm."""
        if self._base is None:
            self.table_keys["drafted"] = True
            self.leave_out(f"the kind of column {format_value(name)}", f"{why}; drafted as {kind}: confirm it")
        self.declare(Column(name=name, kind=kind))

    def refine(self, name: object, what: str, **keys: object) -> bool:
        """Changes keys of a column. If the checks of a column refuse them, they are left out, and False is returned.

        The columns of a base schema stay as they are.
        """
        column = self._find(name, what)
        if column is None or self._base is not None:
            return column is not None
        try:
            self._columns[column.name] = dataclasses.replace(column, **keys)  # type: ignore[arg-type]
        except SchemaError as error:
            self.leave_out(what, str(error))
            return False
        return True

    def not_null(self, name: object, what: str) -> None:
        """The column has no nulls."""
        column = self._find(name, what)
        if column is not None and self._base is None:
            self.refine(name, what, nullable=False)
        elif column is not None and column.nullable:
            self.keep(f"{sql_name(column.name)} IS NOT NULL", what)

    def choices(self, name: object, values: object, what: str) -> None:
        """The column has no values but these: they become its categories, unless it already has some."""
        column = self._find(name, what)
        if column is None:
            return
        listed = _one_type(values)
        if not listed:
            self.leave_out(what, "expected a list of texts, numbers or booleans")
        elif column.kind == "boolean" and set(map(type, listed)) == {bool} and len(listed) == 2:
            return
        elif self._base is None and column.kind in ("categorical", "integer", "real") and column.categories is None:
            kept = {"nullable": column.nullable, "missing": column.missing, "drop": column.drop}
            self._columns[column.name] = Column(name=column.name, kind="categorical", **kept)  # type: ignore[arg-type]
            if not self.refine(name, what, categories=listed, closed=True):
                self._columns[column.name] = column
        else:
            self.among(column.name, listed, what)

    def limit(self, name: object, operator: str, value: object, what: str) -> None:
        """The column compared with a constant by <, <=, > or >=. Two limits of a numeric column become its bounds."""
        column = self._find(name, what)
        if column is None:
            return
        if column.kind not in BOUNDED:
            self.compare(column.name, operator, value, what)
            return
        bound = _as_bound(column, value)
        if bound is None:
            self.leave_out(what, f"{format_value(value)} is not a bound for a column of kind {column.kind}")
            return
        side = self._lower if operator.startswith(">") else self._upper
        side.setdefault(column.name, []).append(_attained(column, operator, bound, what))

    # --------------------------------------------------------------------------------------------------------- rules

    def compare(self, name: str, operator: str, value: object, what: str) -> None:
        """A rule that compares a column with a constant."""
        try:
            self.keep(f"{sql_name(name)} {operator} {sql_literal(value)}", what)
        except SchemaError as error:
            self.leave_out(what, str(error))

    def among(self, name: str, values: object, what: str, *, negated: bool = False) -> None:
        """A rule that a column has one of the values, or none of them."""
        try:
            if not isinstance(values, list) or not values:
                raise SchemaError(f"expected a list of values, found {format_value(values)}.")
            self.keep(sql_in(name, values, negated=negated), what)
        except SchemaError as error:
            self.leave_out(what, str(error))

    def order(self, low: object, high: object, what: str, *, strict: bool = False) -> None:
        """A rule that one column is never above the other."""
        if not isinstance(low, str) or not isinstance(high, str):
            self.leave_out(what, "expected the names of two columns")
            return
        self.keep(f"{sql_name(high)} {'>' if strict else '>='} {sql_name(low)}", what)

    def keep(self, condition: str, what: str) -> None:
        self.rule({"keep": condition}, what)

    def rule(self, entry: Mapping[str, object], what: str) -> None:
        """A rule from its keys in a schema file, with lists instead of files."""
        try:
            self._rules.append((rule_from_dict(entry), what))
        except (SchemaError, ConditionError) as error:
            self.leave_out(what, str(error).removeprefix("Rule 1: "))

    def condition(self, expression: str, what: str) -> None:
        """An SQL condition of another tool. Limits and lists of one column declare it; the rest becomes rules."""
        from understudy.schema.conditions import where_columns

        try:
            parts = where_columns(expression, self.names)
        except ConditionError as error:
            said = str(error).removeprefix(f"Cannot use the condition {expression!r}: ")
            self.leave_out(what, said.partition(" Write SQL over")[0])
            return
        for part in parts:
            match part.operator, part.constants:
                case ("<" | "<=" | ">" | ">=") as operator, (value,):
                    self.limit(part.columns[0], operator, value, what)
                case "between", (lower, upper):
                    self.limit(part.columns[0], ">=", lower, what)
                    self.limit(part.columns[0], "<=", upper, what)
                case "in", values:
                    self.choices(part.columns[0], list(values), what)
                case "not in", values:
                    self.among(part.columns[0], list(values), what, negated=True)
                case "is not null", ():
                    self.not_null(part.columns[0], what)
                case _:
                    self.keep(without_parentheses(part.sql), what)

    # ------------------------------------------------------------------------------------------------------- schema

    def finish(self) -> ImportedSchema:
        """The schema of all that passes its checks."""
        for name in [*self._lower, *(name for name in self._upper if name not in self._lower)]:
            self._settle_limits(name)
        rules = () if self._base is None else tuple(map(_inlined, self._base.rules))
        fields = self.table_keys if self._base is None else {}
        build: Callable[[Sequence[Rule]], Schema] = functools.partial(self._build, fields)
        added = self._rules
        try:
            schema = build((*rules, *(rule for rule, _ in added)))
        except (SchemaError, ConditionError):
            schema = build(rules)  # an error that no rule causes is raised here
            added = [(rule, what) for rule, what in added if self._accepts(build, (), rule, what)]
            try:
                schema = build((*rules, *(rule for rule, _ in added)))
            except (SchemaError, ConditionError):  # rules contradict each other: the first ones stay
                for rule, what in added:
                    if self._accepts(build, rules, rule, what):
                        rules = (*rules, rule)
                schema = build(rules)
        return ImportedSchema(schema, tuple(self._left_out))

    def _accepts(
        self, build: Callable[[Sequence[Rule]], Schema], others: Sequence[Rule], rule: Rule, what: str
    ) -> bool:
        """Whether the checks of a schema accept a rule next to the others; if not, it is left out."""
        try:
            build((*others, rule))
        except (SchemaError, ConditionError) as error:
            self.leave_out(what, _reason(error, rule, len(others) + 1))
            return False
        return True

    def _build(self, fields: Mapping[str, object], rules: Sequence[Rule]) -> Schema:
        columns, unique = tuple(self._columns.values()), tuple(dict.fromkeys(rules))
        if self._base is not None:
            return dataclasses.replace(self._base, rules=unique)
        return Schema(columns=columns, rules=unique, **fields)  # type: ignore[arg-type]

    def _settle_limits(self, name: str) -> None:
        """Two limits become bounds if none are declared; limits that the bounds do not imply become rules."""
        column = self._columns[name]
        lower, upper = _tightest(self._lower.get(name, []), 1), _tightest(self._upper.get(name, []), -1)
        if self._base is None and column.kind in BOUNDED and column.bounds is None and lower and upper:
            try:
                column = dataclasses.replace(column, bounds=(lower.value, upper.value))
                self._columns[name] = column
            except SchemaError:
                pass  # such as a single value: rules say the same
        for limit, sign, at in ((lower, ">", 0), (upper, "<", 1)):
            if limit is not None and not (column.bounds is not None and _implied(limit, sign, column.bounds[at])):
                self.compare(name, sign if limit.strict else f"{sign}=", limit.value, limit.what)

    def _find(self, name: object, what: str) -> Column | None:
        if isinstance(name, str) and name in self._columns:
            return self._columns[name]
        self.leave_out(what, f"there is no column {format_value(name)}{self._hint(name)}")
        return None

    def _hint(self, name: object) -> str:
        return did_you_mean(name, self._columns).replace(" Did", "; did").rstrip("?")


# ------------------------------------------------------------------------------------------------------------------ SQL


def sql_name(name: str) -> str:
    """A column in a condition, quoted where SQL needs it."""
    from understudy.schema.sql import quote_name

    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.lower() not in _reserved_words()
    return name if plain else quote_name(name)


@functools.cache
def _reserved_words() -> frozenset[str]:
    from understudy.schema.sql import sandbox

    with sandbox() as connection:
        rows = connection.execute(
            "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
        ).fetchall()
    return frozenset(word.lower() for (word,) in rows)


def sql_literal(value: object) -> str:
    """A constant in a condition."""
    from understudy.schema.sql import quote_text

    match value:
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case datetime():
            return f"{'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'} {quote_text(value.isoformat(sep=' '))}"
        case date():
            return f"DATE {quote_text(value.isoformat())}"
        case str():
            return quote_text(value)
    raise SchemaError(f"expected a text, a number, a boolean or a date, found {format_value(value)}.")


def sql_in(name: str, values: Iterable[object], *, negated: bool = False) -> str:
    """The condition that a column has one of the values, or none of them."""
    return f"{sql_name(name)} {'NOT ' * negated}IN ({', '.join(map(sql_literal, values))})"


def without_parentheses(sql: str) -> str:
    """A condition without the parentheses around it, if they match each other."""
    inner = sql[1:-1]
    depth = 0
    for character in re.sub(r"'[^']*'|\"[^\"]*\"", "", inner):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return sql
    return inner if sql.startswith("(") and sql.endswith(")") else sql


# --------------------------------------------------------------------------------------------------------------- values


Entry = Mapping[str, object]


def entries(section: object) -> dict[str, Entry]:
    """The subsections of a section, empty ones included."""
    if not isinstance(section, Mapping):
        return {}
    return {str(name): entry or {} for name, entry in section.items() if entry is None or isinstance(entry, Mapping)}


def entry_list(value: object) -> list[Entry]:
    """The mappings in a list."""
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def text_list(value: object) -> list[str]:
    """A list of names; empty if it is anything else."""
    return list(value) if isinstance(value, list) and all(isinstance(name, str) for name in value) else []


def _one_type(values: object) -> list[Category]:
    """Each value once and without nulls, integers among floats as floats. Empty if it is not a list of values."""
    if not isinstance(values, list):
        return []
    given = [value for value in values if value is not None]
    if not all(isinstance(value, str | int | float | bool) for value in given):
        return []
    types = set(map(type, given))
    if types == {int, float}:
        try:
            given = [float(value) for value in given]
        except OverflowError:
            return []
    return list(dict.fromkeys(given)) if bool not in types or len(types) == 1 else given


def _as_bound(column: Column, value: object) -> Bound | None:
    """A bound in the type of the column's kind. Texts of dates are read in the column's format, else as ISO dates."""
    if isinstance(value, bool):
        return None
    try:
        if column.kind in ("integer", "real"):
            number = float(value) if isinstance(value, str) else value
            if not isinstance(number, int | float) or not math.isfinite(number):
                return None
            return float(number) if column.kind == "real" else number
        if isinstance(value, str):
            value = datetime.strptime(value, column.format) if column.format else datetime.fromisoformat(value)
        if column.kind == "date" and isinstance(value, date):
            return value.date() if isinstance(value, datetime) else value
        if isinstance(value, date):
            return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    except (ValueError, OverflowError):
        pass
    return None


def _attained(column: Column, operator: str, value: Bound, what: str) -> _Limit:
    """A limit. For integers, dates and decimals a strict one becomes the next value, which is not strict."""
    lower, strict = operator.startswith(">"), operator in (">", "<")
    step = 1 if lower else -1
    if column.kind == "integer" and isinstance(value, int | float):
        rounded = math.ceil(value) if lower else math.floor(value)
        return _Limit(rounded + step * (strict and rounded == value), False, what)
    if column.decimals and strict and isinstance(value, int | float) and round(value, column.decimals) == value:
        return _Limit(round(value + step * 10.0**-column.decimals, column.decimals), False, what)
    if column.kind == "date" and strict and isinstance(value, date) and date.min < value < date.max:
        return _Limit(value + timedelta(days=step), False, what)
    return _Limit(value, strict, what)


def _tightest(limits: Sequence[_Limit], sign: int) -> _Limit | None:
    """The limit that implies the others: the greatest lower one (sign 1), the least upper one (sign -1)."""

    def implies(one: _Limit, other: _Limit) -> bool:
        distance = _order(one.value, other.value) * sign
        return distance > 0 or (distance == 0 and one.strict)

    return functools.reduce(lambda one, other: one if implies(one, other) else other, limits) if limits else None


def _order(one: Bound, other: Bound) -> int:
    """-1, 0 or 1, as the first is below, equal to or above the other. Times without a zone are in UTC."""
    first, second = (
        value.replace(tzinfo=value.tzinfo or UTC) if isinstance(value, datetime) else value for value in (one, other)
    )
    return (first > second) - (first < second)  # type: ignore[operator]


def _implied(limit: _Limit, sign: str, bound: Bound) -> bool:
    """Whether a declared bound implies a limit."""
    distance = _order(bound, limit.value) * (1 if sign == ">" else -1)
    return distance > 0 or (distance == 0 and not limit.strict)


def _reason(error: Exception, rule: Rule, number: int) -> str:
    """The message about a rule without its number and text, which mean nothing outside the import."""
    text = str(error).partition(" The columns are")[0]
    for prefix in (rule_title(rule, number), f"Rule {number}"):
        if text.startswith(prefix):
            rest = text.removeprefix(prefix)
            return rest.removeprefix(":").strip() if rest.startswith(":") else f"it {rest.strip()}"
    return text
