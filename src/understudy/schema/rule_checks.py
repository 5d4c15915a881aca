"""Refuses rules that do not fit the columns or each other, from public facts alone and before anything is charged."""

import dataclasses
import functools
import graphlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import NamedTuple

import pyarrow as pa

from understudy.errors import ConditionError, SchemaError, did_you_mean
from understudy.rules.comparison import as_text
from understudy.rules.conditions import check_condition, condition_columns, parts, where_columns
from understudy.rules.keys import LookupRow
from understudy.rules.rules import Combinations, Determines, Keep, Rule, Skip, Sum, WhenThen, rule_title
from understudy.rules.values import Category, format_list, format_value
from understudy.schema.column import Column
from understudy.schema.rule_cells import comparisons, naive

LISTABLE = ("categorical", "integer", "boolean", "date")
"""The kinds whose values can be listed in combinations."""

KEYS = ("categorical", "integer", "boolean")
"""The kinds that can determine other columns."""


def checked_rules(rules: Sequence[Rule], columns: Sequence[Column]) -> tuple[Rule, ...]:
    """The rules with what the columns add to them. Raises SchemaError for the first that no table can satisfy.

    Values of lists and lookup tables get the type of their column; sums get the decimals of theirs.
    """
    by_name = {column.name: column for column in columns}
    for number, rule in enumerate(rules, start=1):
        _check_columns(rule, rule_title(rule, number), by_name)
    used = {name for rule in rules for name in rule.columns}
    facts = _SameObjects((*rules, *(column for column in columns if column.name in used)))
    return _checked_once(facts, tuple(by_name))


class _SameObjects:
    """A key by identity: 1, 1.0 and true are equal, but not as categories or in lists."""

    def __init__(self, items: tuple[Rule | Column, ...]) -> None:
        self.items = items

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.items)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _SameObjects)
            and len(self.items) == len(other.items)
            and all(a is b for a, b in zip(self.items, other.items, strict=True))
        )


@functools.lru_cache(maxsize=16)
def _checked_once(facts: _SameObjects, names: tuple[str, ...]) -> tuple[Rule, ...]:
    """Cached, since every changed copy of a schema checks its rules again."""
    rules = [item for item in facts.items if isinstance(item, Rule)]
    columns = {item.name: item for item in facts.items if isinstance(item, Column)}
    types = arrow_schema(columns.values())
    checked = [
        _checked_rule(rule, rule_title(rule, number), columns, types) for number, rule in enumerate(rules, start=1)
    ]
    _check_conflicts(checked, types)
    return tuple(checked)


def _checked_rule(rule: Rule, title: str, columns: Mapping[str, Column], types: pa.Schema) -> Rule:
    """The rule with what the columns add to it, if it can be satisfied alone."""
    try:
        for condition in rule.conditions:
            check_condition(condition, types)
            _check_literals(condition, columns)
        _check_clamp(rule, types)
        match rule:
            case Combinations():
                return _checked_combinations(rule, columns)
            case Determines():
                return _checked_dependency(rule, columns)
            case Sum():
                return _checked_sum(rule, columns)
            case Skip():
                _check_skip(rule, columns)
    except (SchemaError, ConditionError) as error:
        raise SchemaError(f"{title}: {error}", column=error.column, key=getattr(error, "key", None)) from None
    return rule


def _check_columns(rule: Rule, title: str, columns: Mapping[str, Column]) -> None:
    """Every column must be modelled."""
    try:
        names = rule.columns
    except ConditionError as error:
        raise SchemaError(f"{title}: {error}", column=error.column) from None
    for name in names:
        if name not in columns:
            quoted = " Strings are written in single quotes." if rule.conditions else ""
            raise SchemaError(
                f"{title}: there is no column {name!r} in the schema.{did_you_mean(name, columns)}{quoted}"
                f" The columns are {format_list(list(columns))}.",
                column=name,
            )
        if not columns[name].modelled:
            raise SchemaError(
                f"{title}: column {name!r} {columns[name].why_not_modelled}. Remove the rule, or give the column "
                "another kind.",
                column=name,
            )
    if not names:
        raise SchemaError(f"{title}: expected a condition over columns, but it uses none. Remove the rule.")


# ----------------------------------------------------------------------------------------------------------- conditions


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow types in which conditions see the values of columns."""
    types = {"integer": pa.int64(), "real": pa.float64(), "boolean": pa.bool_(), "date": pa.date32()}
    of_categories = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    fields = []
    for column in columns:
        if column.kind == "categorical":
            first = column.categories[0] if column.categories else ""
            arrow_type = of_categories.get(type(first), pa.string())
        else:
            arrow_type = types.get(column.kind, pa.timestamp("us"))
        fields.append(pa.field(column.name, arrow_type))
    return pa.schema(fields)


def _check_literals(condition: str, columns: Mapping[str, Column]) -> None:
    """A value compared with a column of listed categories must be one of them, else the comparison is never true."""
    for comparison in comparisons(condition, tuple(columns)):
        listed = columns[comparison.column].listed
        if comparison.operator not in ("=", "in") or listed is None:
            continue
        for value in comparison.constants:
            is_text = isinstance(value, str)
            if not isinstance(value, str | int | float) or any(isinstance(known, str) != is_text for known in listed):
                continue  # SQL converts one to the type of the other
            if as_text(value) not in map(as_text, listed):
                raise SchemaError(
                    f"column {comparison.column!r} is never {format_value(value)}: its categories are "
                    f"{format_list(listed)}.{did_you_mean(value, listed)} Correct the value, or add the category.",
                    column=comparison.column,
                )


def _check_clamp(rule: Rule, types: pa.Schema) -> None:
    """Clamping needs one nearest row that satisfies the rule."""
    if rule.on_break != "clamp":
        return
    if isinstance(rule, Keep):
        possible = all(part.order or part.assignment for part in parts(rule.keep, types))
        form = 'comparisons of two columns ("a >= b + 7") and assignments ("a = b + c")'
    elif isinstance(rule, WhenThen):
        conjuncts = where_columns(rule.then, types.names)
        is_assignment = len(conjuncts) == 1 and conjuncts[0].operator == "="
        possible = is_assignment and conjuncts[0].columns[0] not in condition_columns(rule.when)
        form = "then = \"column = 'value'\" with a column that is not in when"
    else:
        return
    if not possible:
        raise SchemaError(f'on_break = "clamp" is possible only for {form}. Write on_break = "drop".', key="on_break")


# ---------------------------------------------------------------------------------------------------- lists and lookups


def _checked_combinations(rule: Combinations, columns: Mapping[str, Column]) -> Combinations:
    for name in rule.combinations:
        _check_kind(columns[name], LISTABLE, "cannot be listed in combinations", "Write a keep rule instead.")
    fit = _fitter([columns[name] for name in rule.combinations])
    key = "forbidden" if rule.allowed is None else "allowed"
    fitted = tuple(fit(row, key) for row in rule.listed)
    if _is_same(fitted, rule.listed):
        return rule
    return dataclasses.replace(rule, **{key: fitted})  # type: ignore[arg-type]  # the rows of the key


def _checked_dependency(rule: Determines, columns: Mapping[str, Column]) -> Determines:
    for name in rule.determines:
        _check_kind(columns[name], KEYS, "cannot determine others", "Write a keep rule instead.")
    num_keys = len(rule.determines)
    fit_key = _fitter([columns[name] for name in rule.determines])
    fit_given = _fitter([columns[name] for name in rule.gives])
    fitted, keys = [], []
    for row in rule.table:
        try:
            key = fit_key(row[:num_keys], "table")
        except SchemaError:  # a public table may have more keys than the column has categories
            fitted.append(row)
            continue
        keys.append(key)
        fitted.append((*key, *fit_given(row[num_keys:], "table")))
    if not keys:
        raise SchemaError(
            f"no key of the table is a value of {', '.join(rule.determines)}. Check the keys in the"
            " table, or declare them as categories.",
            column=rule.determines[0],
            key="table",
        )
    for at, name in enumerate(rule.determines):
        declared = (False, True) if columns[name].kind == "boolean" else columns[name].categories or ()
        values = {as_text(key[at]) for key in keys}
        if missing := [category for category in declared if as_text(category) not in values]:
            raise SchemaError(
                f"the table has no row for {format_list(missing)} of {name!r}. Add the rows, or remove the categories.",
                column=name,
                key="table",
            )
    return rule if _is_same(fitted, rule.table) else dataclasses.replace(rule, table=tuple(fitted))


def _is_same(fitted: Sequence[LookupRow], rows: Sequence[LookupRow]) -> bool:
    """Equality in which the types count."""
    pairs = zip(fitted, rows, strict=True)
    return all(type(a) is type(b) and a == b for new, old in pairs for a, b in zip(new, old, strict=True))


def _fitter(columns: Sequence[Column]) -> Callable[[LookupRow, str], LookupRow]:
    """A function that gives the values of a row the types of these columns, or raises SchemaError."""
    fitted: list[dict[tuple[type, Category | None], Category | None]] = [{} for _ in columns]
    by_text = [{as_text(value): value for value in column.listed or () if value is not None} for column in columns]

    def fit(row: LookupRow, key: str) -> LookupRow:
        values = []
        for column, known, categories, value in zip(columns, fitted, by_text, row, strict=True):
            if (type(value), value) not in known:
                try:
                    known[type(value), value] = _fit_value(value, column, categories)
                except SchemaError as error:
                    found = "an empty value" if value in (None, "") else format_value(value)
                    raise SchemaError(
                        f"{key} has {found} for column {column.name!r}: {error}", column=column.name, key=key
                    ) from None
            values.append(known[type(value), value])
        return tuple(values)

    return fit


def _fit_value(value: Category | None, column: Column, categories: Mapping[str | None, Category]) -> Category | None:
    """The value in the type of its column; dates as ISO text."""
    if value is None:
        if not column.nullable:
            raise SchemaError("expected a value, since it has nullable = false. Fill it in, or remove that line.")
        return None
    if column.kind == "categorical":
        if not categories:
            return value
        if (text := as_text(value)) not in categories:
            raise SchemaError(
                f"expected one of its categories {format_list(list(categories.values()))}."
                f"{did_you_mean(value, categories.values())} Correct the value, or add the category."
            )
        return categories[text]
    try:
        fitted = _PARSERS[column.kind](value, column)
    except (ValueError, OverflowError):
        example = {"integer": "12", "real": "1.5", "boolean": "true", "date": "2024-01-31"}
        raise SchemaError(
            f"expected a value of kind {column.kind}, such as {example.get(column.kind, '2024-01-31T12:00:00')}."
        ) from None
    if column.bounds is not None and not naive(column.bounds[0]) <= fitted <= naive(column.bounds[1]):
        lower, upper = column.bounds
        raise SchemaError(f"expected a value within its bounds, {lower} to {upper}. Correct it, or widen the bounds.")
    if isinstance(fitted, datetime):
        return fitted.isoformat(timespec="microseconds")
    return fitted.isoformat() if isinstance(fitted, date) else fitted


def _to_integer(value: Category, column: Column) -> int:
    if isinstance(value, bool):
        raise ValueError
    if isinstance(value, str):
        value = int(value) if value.lstrip("+-").isdecimal() else float(value)
    if value != int(value):
        raise ValueError
    return int(value)


def _to_real(value: Category, column: Column) -> float:
    number = float(value)
    decimals = 15 if column.decimals is None else column.decimals
    if isinstance(value, bool) or not math.isfinite(number) or (column.decimals and round(number, decimals) != number):
        raise ValueError
    return number


def _to_boolean(value: Category, column: Column) -> bool:
    if isinstance(value, bool):
        return value
    text = (as_text(value) or "").lower()
    words = [word.lower() for word in column.format.split("/")] if column.format else []
    for answer, own in ((False, ("false", "f", "no", "n", "0")), (True, ("true", "t", "yes", "y", "1"))):
        if text == words[answer] if words else text in own:
            return answer
    raise ValueError


def _to_date(value: Category, column: Column) -> date:
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        return datetime.strptime(str(value), column.format or "%Y-%m-%d").date()


def _to_datetime(value: Category, column: Column) -> datetime:
    try:
        moment: datetime = naive(datetime.fromisoformat(str(value)))
    except ValueError:
        moment = naive(datetime.strptime(str(value), column.format or "%Y-%m-%d"))
    return moment


_PARSERS: dict[str, Callable[[Category, Column], int | float | bool | date]] = {
    "integer": _to_integer,
    "real": _to_real,
    "boolean": _to_boolean,
    "date": _to_date,
    "datetime": _to_datetime,
}


def _check_kind(column: Column, kinds: Sequence[str], problem: str, remedy: str) -> None:
    if column.kind not in kinds:
        raise SchemaError(
            f"column {column.name!r} of kind {column.kind!r} {problem}; expected {', '.join(kinds[:-1])} or "
            f"{kinds[-1]}. {remedy}",
            column=column.name,
        )


# -------------------------------------------------------------------------------------------------- sums, skip patterns


def _checked_sum(rule: Sum, columns: Mapping[str, Column]) -> Sum:
    for name in rule.columns:
        _check_kind(columns[name], ("integer", "real"), "cannot be added up", "Remove it from the rule.")
    decimals = [0 if columns[name].kind == "integer" else columns[name].decimals for name in rule.columns]
    known = [places for places in decimals if places is not None]
    # Parts are added exactly; a total with fewer decimals is their rounded sum.
    compared = decimals[-1] if rule.is_exact and isinstance(rule.total, str) else max(known, default=None)
    compared = compared if len(known) == len(decimals) else None
    total = rule.total
    if compared is not None and not isinstance(total, str) and round(total, max(known)) != total:
        raise SchemaError(
            f"{total} has more decimals than the columns ({max(known)}). Round it.",
            key="equals" if rule.at_most is None else "at_most",
        )
    return rule if rule.decimals == compared else dataclasses.replace(rule, decimals=compared)


def _check_skip(rule: Skip, columns: Mapping[str, Column]) -> None:
    if not columns[rule.skip].nullable:
        raise SchemaError(
            f"it makes column {rule.skip!r} null, which has nullable = false. Remove that line.", column=rule.skip
        )
    if rule.skip in condition_columns(rule.when):
        raise SchemaError(
            f"when must not use {rule.skip!r} itself. Name the columns that decide whether it is skipped.",
            column=rule.skip,
        )


# ------------------------------------------------------------------------------------------------------ several rules


def _check_conflicts(rules: Sequence[Rule], types: pa.Schema) -> None:
    """Refuses rules that give one column its values twice or in a cycle: no order of computing them satisfies all.

    Other contradictions are looked for among rows of the declared domain, in `encoding/contradictions.py`.
    """
    numbered = [(rule, rule_title(rule, number)) for number, rule in enumerate(rules, start=1)]
    _check_dependencies(
        numbered, [assignment for rule, title in numbered for assignment in _assignments(rule, title, types)]
    )
    _check_skips(numbered)


class _Assignment(NamedTuple):
    """A rule that gives a column its value."""

    title: str
    rule: Rule
    column: str
    inputs: tuple[str, ...]


def _check_dependencies(numbered: Sequence[tuple[Rule, str]], assignments: Sequence[_Assignment]) -> None:
    """At most one lookup table or formula gives a column, and no column depends on itself."""
    for one, two in itertools.combinations(assignments, 2):
        if one.column == two.column and one.rule != two.rule and not isinstance(two.rule, Sum):
            raise SchemaError(
                f"{one.title} and {_inner(two.title)} both give column {one.column!r}. Remove one of them.",
                column=one.column,
            )
    if cycle := _find_cycle(assignments):
        used = {assignment.title for assignment in cycle}
        titles = [title for _, title in numbered if title in used]
        chain = ", ".join(
            f"{' and '.join(given.inputs)} {'gives' if len(given.inputs) == 1 else 'give'} {given.column}"
            for given in cycle
        )
        raise SchemaError(
            f"{join_titles(titles)} {'is' if len(titles) == 1 else 'are'} circular: {chain}. Remove one, or list the"
            " combinations that are allowed.",
            column=cycle[0].column,
        )


def _assignments(rule: Rule, title: str, types: pa.Schema) -> Iterator[_Assignment]:
    """Sums come last: a total may be that of several sums, or be given by a table."""
    if isinstance(rule, Determines):
        yield from (_Assignment(title, rule, name, rule.determines) for name in rule.gives)
    for part in parts(rule.keep, types) if isinstance(rule, Keep) else ():
        if part.assignment is not None:
            yield _Assignment(title, rule, part.assignment.column, part.assignment.inputs)
    if isinstance(rule, Sum) and rule.at_most is None and isinstance(rule.total, str):
        yield _Assignment(title, rule, rule.total, rule.sum)


def _find_cycle(assignments: Sequence[_Assignment]) -> list[_Assignment]:
    """The assignments of columns that depend on each other in a cycle, in order; empty if there is none."""
    sorter: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for assignment in assignments:
        sorter.add(assignment.column, *assignment.inputs)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        steps = itertools.pairwise(error.args[1])
        return [next(g for g in assignments if g.column == column and name in g.inputs) for name, column in steps]
    return []


def _check_skips(numbered: Sequence[tuple[Rule, str]]) -> None:
    skips = [(rule, title) for rule, title in numbered if isinstance(rule, Skip)]
    for (one, title), (two, other) in itertools.combinations(skips, 2):
        if one.skip == two.skip and one != two:
            raise SchemaError(
                f"{title} and {_inner(other)} both say when {one.skip!r} is null. Combine them with OR in one rule.",
                column=one.skip,
            )


def join_titles(titles: Sequence[str], *, inside: bool = False) -> str:
    """Titles of rules as a list in words, at the start of a sentence or inside one."""
    *first, last = [titles[0], *map(_inner, titles[1:])]
    joined = f"{', '.join(first)} and {last}" if first else last
    return _inner(joined) if inside else joined


def _inner(title: str) -> str:
    """A title inside a sentence."""
    return title[0].lower() + title[1:]
