"""A schema in the making: what an importer has read so far, and what it could not carry over.

Readers of other formats declare columns, and state limits, lists and rules about them. Whatever the checks of a schema
refuse is left out with the reason, so that one unsupported constraint does not make the import fail.
"""

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from understudy.errors import ConditionError, SchemaError, did_you_mean
from understudy.importers.values import (
    Limit,
    as_bound,
    as_one_type,
    attained,
    is_number,
    ordered,
    sql_in,
    sql_literal,
    sql_name,
    tightest,
    without_parentheses,
)
from understudy.rules.rules import Combinations, Determines, Rule, rule_from_dict, rule_title
from understudy.rules.values import format_list, format_value
from understudy.run.atomic import write_file
from understudy.schema.column import BOUNDED, Column
from understudy.schema.schema import Schema

FROM_DATA = "its list comes from the training data, which is private; write combinations with a public list"
WHOLE_TABLE = "it is about the whole table, and a rule is about single rows"
OTHER_TABLES = "it relates several tables, and a schema describes one"
NO_COUNTERPART = "it has no counterpart in a schema"
NO_EFFECT = "it only checks the form of strings"


@dataclasses.dataclass(frozen=True)
class ImportedSchema:
    """A schema imported from another tool, and what could not be carried over."""

    schema: Schema
    left_out: tuple[str, ...] = ()
    """One line for each thing that was not carried over, with the reason."""
    comments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What the file says about columns and a schema has no key for, such as the labels of codes, by column."""

    def to_toml(self) -> str:
        """The schema file, with what was left out in comments at its end."""
        text = self.schema.to_toml(self.comments)
        if not self.left_out:
            return text
        return "\n".join([text, "# Not carried over:", *(f"# - {line}" for line in self.left_out), ""])

    def write(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes the schema file, whole or not at all. An existing file is replaced only with `force`."""
        write_file(path, self.to_toml().encode(), force=force)


class Draft:
    """Collects columns, limits and rules; `finish` makes a schema of those that pass its checks.

    With a `base` schema the columns and their declarations are those of the base, and the file only adds rules.
    """

    def __init__(
        self,
        base: Schema | None = None,
        lookups: Mapping[str, str] | None = None,
        *,
        table: str | None = None,
        trust_ranges: bool = False,
    ) -> None:
        self.lookups = dict(lookups or {})
        self._table, self._table_is_used = table, False
        self._trust_ranges = trust_ranges
        self.table_keys: dict[str, object] = {}
        """Fields of the schema other than columns and rules."""
        self._base = base
        self._columns: dict[str, Column] = {} if base is None else {column.name: column for column in base.columns}
        self._limits: dict[str, list[Limit]] = {}
        self._rules: list[tuple[Rule, str]] = []
        self._left_out: list[str] = []
        self._found: dict[str, dict[str, None]] = {}
        self._comments: dict[str, str] = {}
        self._defaults: list[tuple[str, object]] = []

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def kind(self, name: str) -> str | None:
        """The kind of a column; None: there is no such column."""
        return self._columns[name].kind if name in self._columns else None

    def leave_out(self, what: str, why: str) -> None:
        """Lists something that is not carried over. Control characters would not be valid in a TOML comment."""
        line = one_line(f"{what}: {why.strip().rstrip('.')}.")
        if line not in self._left_out:
            self._left_out.append(line)

    def comment(self, name: str, text: str) -> None:
        """Adds a comment to a column: what the file says and a schema has no key for."""
        said = self._comments.get(name)
        self._comments[name] = one_line(text if said is None else f"{said}; {text}")

    def trusts(self, name: str, source: str) -> bool:
        """Whether a range or list that `source` may have found in the data is used. If not, the column is named."""
        if not self._trust_ranges:
            self._found.setdefault(source, {})[name] = None
        return self._trust_ranges

    @property
    def has_table(self) -> bool:
        """Whether the caller named a table."""
        return self._table is not None

    def choose_table(self, names: Iterable[str]) -> str:
        """The name of the table that is imported: the named one, or the only one."""
        listed = list(names)
        self._table_is_used = True
        if self._table is not None:
            if self._table not in listed:
                raise SchemaError(
                    f"It has no table {self._table!r}.{did_you_mean(self._table, listed)} The tables are"
                    f" {format_list(listed)}."
                )
            return self._table
        if not listed:
            raise SchemaError("It describes 0 tables, expected at least one. Check that it is the right file.")
        if len(listed) > 1:
            raise SchemaError(
                f"It describes {len(listed)} tables ({', '.join(listed[:10])}{', ...' * (len(listed) > 10)}), and a"
                " schema describes one. Choose it with --table NAME, or table= in Python."
            )
        return listed[0]

    # ------------------------------------------------------------------------------------------------------- columns

    def declare(self, column: Column) -> None:
        """Adds a column. A base schema keeps its declarations, and gets no further columns."""
        if self._base is None:
            if column.name in self._columns:
                raise duplicate_column(column.name)
            self._columns[column.name] = column
        elif column.name not in self._columns:
            self.leave_out(
                f"column {format_value(column.name)}", f"the schema does not have it{self._hint(column.name)}"
            )

    def leave_unmodelled(self, name: str, why: str) -> None:
        """Adds a column of a type that has no kind, as text: it is not in the synthetic table."""
        if self._base is None:
            self.leave_out(of_column("the values", name), f"{why}; it is declared as text, and left out")
        self.declare(Column(name=name, kind="text"))

    def guess(self, name: str, kind: str, why: str = "the file does not say its kind") -> None:
        """Adds a column with a kind that a person must confirm."""
        if self._base is None:
            self.table_keys["drafted"] = True
            self.leave_out(of_column("the kind", name), f"{why}; drafted as {kind}: confirm it")
        self.declare(Column(name=name, kind=kind))

    def refine(self, name: object, what: str, **keys: object) -> bool:
        """Changes keys of a column. If the checks of a column refuse them, they are left out, and False is returned.

        The columns of a base schema stay as they are.
        """
        column = self._find(name, what)
        if column is None or self._base is not None:
            return column is not None
        try:
            self._columns[column.name] = dataclasses.replace(column, **keys)  # type: ignore[arg-type]  # checked there
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
        listed = as_one_type(values)
        if not listed:
            self.leave_out(what, "expected a list of strings, numbers or booleans")
        elif column.kind == "boolean" and set(map(type, listed)) == {bool} and len(listed) == 2:
            return
        elif self._base is None and column.kind in ("categorical", "integer", "real") and column.categories is None:
            self._columns[column.name] = Column(
                name=column.name, kind="categorical", nullable=column.nullable, missing=column.missing, drop=column.drop
            )
            if not self.refine(name, what, categories=listed, closed=True):
                self._columns[column.name] = column
        else:
            self.among(column.name, listed, what)

    def codes(self, name: str, labelled: Sequence[tuple[object, str | None]], *, closed: bool = True) -> None:
        """The codes of a code book with their labels. The data have the codes; labels become a comment."""
        codes = [code for code, _ in labelled]
        check_codes(name, codes)
        what = of_column("the codes", name)
        self.choices(name, codes, what)
        if not closed and self._base is None and self._columns[name].categories is not None:
            self.refine(name, what, closed=False)
        said = [f"{code} = {label}" for code, label in labelled if label]
        if said:
            self.comment(name, ", ".join(said))

    def leave_out_other_table(self, what: str, about: object, chosen: object) -> bool:
        """Whether something is about another table than the chosen one: then it is left out."""
        is_other = about is not None and chosen is not None and about != chosen
        if is_other:
            self.leave_out(what, f"it is about another table, {format_value(about)}")
        return is_other

    def default(self, name: str, value: object) -> None:
        """The value that a column has where none is given: not in a schema, but it must not contradict it."""
        self._defaults.append((name, value))

    def limit(self, name: object, operator: str, value: object, what: str) -> None:
        """The column compared with a constant by <, <=, > or >=. Two limits of a numeric column become its bounds."""
        column = self._find(name, what)
        if column is None:
            return
        limits = self._limits.setdefault(column.name, [])
        if self._base is None and is_number(value) and column.categories and is_number(column.categories[0]):
            limits.append(Limit(operator, value, what))
        elif column.kind not in BOUNDED:
            self.compare(column.name, operator, value, what)
        elif (bound := as_bound(column, value)) is None:
            self.leave_out(what, f"{format_value(value)} is not a bound for a column of kind {column.kind}")
        else:
            limits.append(attained(column, Limit(operator, bound, what)))

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
        from understudy.rules.conditions import where_columns

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
        if self._table is not None and not self._table_is_used:
            raise SchemaError("It does not name tables, so none can be chosen. Leave out --table, or table=.")
        for source, names in self._found.items():
            self.leave_out(
                f"ranges and lists of values of column{'s' * (len(names) > 1)} {', '.join(map(format_value, names))}",
                f"{source}, so they are not declared. Declare those that are public, or import with --trust-ranges",
            )
        for name, limits in self._limits.items():
            self._settle_limits(name, *tightest(limits))
        for name, value in self._defaults:
            self._check_default(name, value)
        # With the rows of lookup tables, not the paths of their files: it may be written to another folder.
        rules = tuple(
            dataclasses.replace(rule, source=None) if isinstance(rule, Combinations | Determines) else rule
            for rule in (() if self._base is None else self._base.rules)
        )
        try:
            schema = self._build((*rules, *(rule for rule, _ in self._rules)))
        except (SchemaError, ConditionError):
            schema = self._build(rules)  # an error that no rule causes is raised here
            fit_alone = [each for each in self._rules if self._try_rules((), *each)]
            try:
                schema = self._build((*rules, *(rule for rule, _ in fit_alone)))
            except (SchemaError, ConditionError):  # rules contradict each other: the first ones stay
                for rule, what in fit_alone:
                    schema = self._try_rules(schema.rules, rule, what) or schema
        comments = {name: text for name, text in self._comments.items() if name in schema.names}
        return ImportedSchema(schema, tuple(self._left_out), comments)

    def _try_rules(self, others: Sequence[Rule], rule: Rule, what: str) -> Schema | None:
        """The schema with a rule next to others; None if its checks refuse the rule, which is then left out."""
        try:
            return self._build((*others, rule))
        except (SchemaError, ConditionError) as error:
            self.leave_out(what, _reason(error, rule, len(others) + 1))
            return None

    def _build(self, rules: Sequence[Rule]) -> Schema:
        unique = tuple(dict.fromkeys(rules))
        if self._base is not None:
            return dataclasses.replace(self._base, rules=unique)
        columns = tuple(self._columns.values())
        return Schema(columns=columns, rules=unique, **self.table_keys)  # type: ignore[arg-type]  # checked there

    def _settle_limits(self, name: str, lower: Limit | None, upper: Limit | None) -> None:
        """Two limits become bounds if none are declared; limits that the bounds do not imply become rules."""
        column = self._columns[name]
        limits = [limit for limit in (lower, upper) if limit is not None]
        if lower and upper and ordered(lower.value) > ordered(upper.value):
            raise column_error(
                name,
                f"the lower limit {format_value(lower.value)} ({lower.what}) is above the upper limit"
                f" {format_value(upper.value)} ({upper.what}). Correct the file.",
            )
        if column.categories is not None and self._base is None:
            for number in filter(is_number, column.categories):
                if not all(limit.allows(number) for limit in limits):
                    raise column_error(
                        name,
                        f"the category {format_value(number)} is outside the limits that the file states for it."
                        " Correct the file.",
                    )
            return
        if self._base is None and column.kind in BOUNDED and column.bounds is None and lower and upper:
            try:
                column = dataclasses.replace(column, bounds=(lower.value, upper.value))
                self._columns[name] = column
            except SchemaError:
                pass  # such as a single value: rules say the same
        for limit in limits:
            if column.bounds is None or not limit.allows(column.bounds[0 if limit.is_lower else 1]):
                self.compare(name, limit.operator, limit.value, limit.what)

    def _check_default(self, name: str, value: object) -> None:
        """Refuses a default that the column cannot have."""
        column = self._columns.get(name)
        if column is None or value is None:
            return
        fits = True
        if column.categories is not None:
            fits = type(value) is not type(column.categories[0]) or value in column.categories
        elif column.bounds is not None and (bound := as_bound(column, value)) is not None:
            lower, upper = column.bounds
            fits = ordered(lower) <= ordered(bound) <= ordered(upper)
        if not fits:
            said = f"the default {format_value(value)} is not among the values that the file allows"
            raise column_error(name, f"{said}. Correct the file.")

    def _find(self, name: object, what: str) -> Column | None:
        if isinstance(name, str) and name in self._columns:
            return self._columns[name]
        self.leave_out(what, f"there is no column {format_value(name)}{self._hint(name)}")
        return None

    def _hint(self, name: object) -> str:
        return did_you_mean(name, self._columns).replace(" Did", "; did").rstrip("?")


# --------------------------------------------------------------------------------------------------------------- values


def of_column(what: str, name: str) -> str:
    """The name of something that is left out, with the column that it is about."""
    return f"{what} of column {format_value(name)}"


def column_error(name: str, reason: str) -> SchemaError:
    """The error for a mistake about a column in the file."""
    return SchemaError(f"Column {name!r}: {reason}", column=name)


def duplicate_column(name: str) -> SchemaError:
    return SchemaError(f"Duplicate column names: {format_value(name)}. Rename one.", column=name)


def check_codes(name: str, codes: Iterable[object]) -> None:
    """Raises if a code of a column is listed twice."""
    twice = [code for code, count in Counter(map(repr, codes)).items() if count > 1]
    if twice:
        raise column_error(name, f"the code {twice[0]} is listed more than once. Keep one.")


def unknown_type(name: str, found: object, known: Sequence[str]) -> SchemaError:
    """A column whose type is not known is an error: as text it would be lost silently."""
    others = f" and {len(known) - 15} more" * (len(known) > 15)
    return SchemaError(
        f"Column {name!r} has the type {format_value(found)}, which is unknown.{did_you_mean(found, known)} Known types"
        f" are {', '.join(known[:15])}{others}. Correct it, or remove the column here and declare it in the schema.",
        column=name,
    )


def one_line(text: str) -> str:
    """Text that a TOML comment and an error message can hold."""
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text).encode("utf-8", "replace").decode()


Entry = Mapping[str, object]


def entries(section: object) -> dict[str, Entry]:
    """The subsections of a section, empty ones included."""
    if not isinstance(section, Mapping):
        return {}
    return {str(name): entry or {} for name, entry in section.items() if entry is None or isinstance(entry, Mapping)}


def entry_list(value: object) -> list[Entry]:
    """The mappings in a list."""
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def name_list(value: object) -> list[str]:
    """One name or a list of names; empty if it is anything else."""
    listed = [value] if isinstance(value, str) else value
    return list(listed) if isinstance(listed, list) and all(isinstance(name, str) for name in listed) else []


def _reason(error: Exception, rule: Rule, number: int) -> str:
    """The message about a rule without its number and text, which mean nothing outside the import."""
    text = str(error).partition(" The columns are")[0]
    for prefix in (rule_title(rule, number), f"Rule {number}"):
        if text.startswith(prefix):
            rest = text.removeprefix(prefix)
            return rest.removeprefix(":").strip() if rest.startswith(":") else f"it {rest.strip()}"
    return text
