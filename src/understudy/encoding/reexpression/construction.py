"""Which steps satisfy the rules of a schema by construction. All of this follows from the schema."""

import itertools
import math
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TypeAlias

from understudy.encoding.arrow import bound_numbers
from understudy.encoding.reexpression.lookups import Formula, Joint, Lookup
from understudy.encoding.reexpression.steps import MAX_INTEGER, Difference, Shares, Step, Term, Total
from understudy.rules.comparison import as_text
from understudy.rules.conditions import Order, parts
from understudy.rules.rules import Combinations, Determines, Keep, Rule, Sum
from understudy.schema import BOUNDED, Category, Column, Schema
from understudy.schema.rule_checks import arrow_schema

MAX_JOINT = 100
"""The most categories of a joint column. Longer lists become structural zeros."""


_Order: TypeAlias = tuple[Rule, tuple[str, ...], str, bool, int | float]
"""A rule, the columns whose sum is the smaller side, the larger column, whether it is strict, and a constant."""


def construct(schema: Schema, declared: Sequence[Step]) -> tuple[tuple[Step, ...], tuple[Rule, ...]]:
    """The steps that satisfy rules by construction, in their order, and the rules that no step satisfies.

    `declared` are the steps of the columns themselves: a rule gets a step only if none of them rebuilds its columns.
    """
    builder = _Builder(schema)
    builder.steps.extend(declared)
    # Rules that leave a column out of the model come first.
    priority: dict[type[Rule], int] = {Determines: 0, Sum: 1, Combinations: 2}
    for rule in sorted(schema.rules, key=lambda rule: priority.get(type(rule), 3)):
        builder.add(rule)
    builder.add_orders()
    steps = _in_order(builder.steps)
    assert steps is not None
    return steps, tuple(rule for rule in schema.rules if rule in builder.remaining)


class _Builder:
    """Collects steps, each only if no other one rebuilds the same column and no column depends on itself."""

    def __init__(self, schema: Schema):
        self.schema = schema
        self.steps: list[Step] = []
        self.remaining: list[Rule] = []
        self._orders: list[_Order] = []

    def add(self, rule: Rule) -> None:
        """Adds the steps of a rule; those of order rules come last, since several may be about one column."""
        match rule:
            case Determines():
                kept = self._add_lookup(rule)
            case Combinations():
                kept = rule.allowed is not None and self._add_joint(rule.combinations, rule.allowed)
            case Sum():
                kept = self._add_sum(rule)
            case Keep():
                kept = self._add_parts(rule)
            case _:
                kept = False
        if not kept and rule not in self.remaining:
            self.remaining.append(rule)

    def _add_lookup(self, rule: Determines) -> bool:
        keys, given = self._columns(rule.determines), self._columns(rule.gives)
        lookup = Lookup(keys, given, rule.table)
        if not self._fits(lookup) or (len(keys) > 1 and not self._add_joint(rule.determines, rule.keys)):
            return False
        return self._try(lookup)

    def _add_joint(self, names: Sequence[str], allowed: Sequence[Sequence[Category | None]]) -> bool:
        columns = self._columns(names)
        if any(column.kind not in ("categorical", "boolean", "integer") for column in columns):
            return False
        if self.schema.target in names or len({column.per_unit for column in columns}) > 1:
            return False
        rows = _all_combinations(columns, allowed)
        return rows is not None and self._try(Joint(columns, rows))

    def _add_sum(self, rule: Sum) -> bool:
        parts = self._columns(rule.sum)
        if not isinstance(rule.total, str):
            declared = all(part.bounds is not None for part in parts)
            return declared and self._try(Shares(parts, rule.total, exact=rule.is_exact))
        total = self.schema[rule.total]
        if rule.is_exact:
            return self._try(Total(total, parts))
        if len({column.kind for column in (total, *parts)}) > 1:
            return False
        self._orders.append((rule, rule.sum, rule.total, False, 0))
        return True

    def _add_parts(self, rule: Keep) -> bool:
        """Whether every part of the condition is satisfied by a step, as far as order rules have been seen."""
        kept = True
        for part in parts(rule.keep, arrow_schema(self.schema.modelled)):
            order = part.order
            kinds = set() if order is None else {self.schema[name].kind for name in (order.greater, order.lesser)}
            if order is not None and len(kinds) == 1 and kinds <= set(BOUNDED):
                offset = _offset(order.offset, *kinds)
                if offset is not None:
                    if not self._always_holds(order, offset):
                        self._orders.append((rule, (order.lesser,), order.greater, order.strict, offset))
                    continue
            if part.assignment is not None:
                given = part.assignment
                formula = Formula(self.schema[given.column], given.expression_sql, given.inputs)
                if self.schema[given.column].modelled and self._has_its_decimals(formula) and self._try(formula):
                    continue
            kept = False
        return kept

    def _has_its_decimals(self, formula: Formula) -> bool:
        """Whether a result has no more decimals than its column: rounded to these, it would break the rule."""
        decimals, expression = formula.column.decimals, formula.expression.lower()
        if decimals is None or "round" in expression:
            return True
        inputs = [self.schema[name] for name in formula.inputs]
        exact = all(
            column.kind == "integer" or (column.decimals is not None and column.decimals <= decimals)
            for column in inputs
        )
        return exact and not set(expression) & set("*/")

    def _always_holds(self, order: Order, offset: int | float) -> bool:
        """Whether the declared bounds leave no row that breaks an order rule."""
        small, large = self.schema[order.lesser], self.schema[order.greater]
        if small.bounds is None or large.bounds is None:
            return False
        highest, lowest = bound_numbers(small)[1] + offset, bound_numbers(large)[0]
        return highest < lowest if order.strict else highest <= lowest

    def add_orders(self) -> None:
        """One difference for each column that is above others; below others, where that is the only way or cheaper."""
        above: dict[str, list[_Order]] = {}
        for rule, lesser, greater, strict, offset in self._orders:
            if self._prefers_below(lesser, greater):
                self._add_difference([(rule, lesser, greater, strict, offset)], below=True)
            else:
                above.setdefault(greater, []).append((rule, lesser, greater, strict, offset))
        for orders in above.values():
            self._add_difference(orders, below=False)

    def _prefers_below(self, lesser: tuple[str, ...], greater: str) -> bool:
        """Whether the smaller column should be the difference, rather than the larger one."""
        if len(lesser) != 1 or self._is_output(lesser[0]) or lesser[0] == self.schema.target:
            return False
        if any(lesser[0] == each[2] for each in self._orders) or sum(lesser == each[1] for each in self._orders) > 1:
            return False  # it is above or below others too
        small, large = self.schema[lesser[0]], self.schema[greater]
        if greater == self.schema.target or self._is_output(greater):
            return True
        # The column that stays as it is keeps its distribution best: the narrower one, such as a date of admission.
        if small.bounds is not None and large.bounds is not None and _width(small) != _width(large):
            return _width(small) > _width(large)
        return small.nullable and not large.nullable

    def _add_difference(self, orders: list[_Order], *, below: bool) -> None:
        names = [order[1][0] if below else order[2] for order in orders]
        column = self.schema[names[0]]
        while orders:
            limits = [(order[2],) if below else order[1] for order in orders]
            terms = tuple(
                Term(limit, -offset if below else offset, strict)
                for limit, (_, _, _, strict, offset) in zip(limits, orders, strict=True)
            )
            used = self._columns(dict.fromkeys(name for limit in limits for name in limit))
            step = Difference(column, terms, used, below)
            if column.name != self.schema.target and self._try(step):
                return
            last = orders.pop()  # it may work without the last rule
            if last[0] not in self.remaining:
                self.remaining.append(last[0])

    def _columns(self, names: Iterable[str]) -> tuple[Column, ...]:
        return tuple(self.schema[name] for name in names)

    def _is_output(self, name: str) -> bool:
        return any(name in step.outputs for step in self.steps)

    def _fits(self, step: Step) -> bool:
        if any(self._is_output(name) for name in step.outputs):
            return False
        return _in_order([*self.steps, step]) is not None

    def _try(self, step: Step) -> bool:
        if not self._fits(step):
            return False
        self.steps.append(step)
        return True


def _in_order(steps: Sequence[Step]) -> tuple[Step, ...] | None:
    """The steps so that each comes after those that rebuild its inputs; None: a column would depend on itself."""
    waiting, ordered, ready = list(steps), [], set()
    outputs = {name for step in steps for name in step.outputs}
    while waiting:
        free = [step for step in waiting if all(name not in outputs or name in ready for name in step.inputs)]
        if not free:
            return None
        for step in free:
            ordered.append(step)
            waiting.remove(step)
        ready |= {name for step in free for name in step.outputs}
    return tuple(ordered)


def _all_combinations(
    columns: Sequence[Column], allowed: Sequence[Sequence[Category | None]]
) -> tuple[tuple[str | None, ...], ...] | None:
    """The allowed combinations and those with a null, as strings; None: too many."""
    listed = [tuple(as_text(value) for value in row) for row in allowed]
    values = [_values_of(column, [row[at] for row in listed]) for at, column in enumerate(columns)]
    sizes = [(len(each), int(column.nullable)) for each, column in zip(values, columns, strict=True)]
    with_nulls = math.prod(size + null for size, null in sizes) - math.prod(size for size, _ in sizes)
    if len(listed) + with_nulls > MAX_JOINT:
        return None
    partly: list[tuple[str | None, ...]] = []
    for nulls in itertools.product(*([False, True] if column.nullable else [False] for column in columns)):
        if any(nulls):
            partly += itertools.product(*([None] if null else each for null, each in zip(nulls, values, strict=True)))
    return tuple(dict.fromkeys([*listed, *partly]))


def _values_of(column: Column, listed: Sequence[str | None]) -> Sequence[str]:
    """The values that a column can have beside a null in another one: without a declared domain, the listed ones."""
    if column.kind == "boolean":
        return ("false", "true")
    values = [as_text(value) for value in column.listed or () if value is not None]
    if column.kind == "integer" and column.bounds is not None:
        lower, upper = bound_numbers(column)
        largest = int(min(upper, lower + MAX_JOINT))  # more values are too many
        values = [str(value) for value in range(int(lower), largest + 1)]
    return tuple(dict.fromkeys(value for value in (*values, *listed) if value is not None))


def _width(column: Column) -> int | float:
    """The distance between the declared bounds."""
    lower, upper = bound_numbers(column)
    return upper - lower


def _offset(offset: int | float | timedelta, kind: str) -> int | float | None:
    """The constant of an order rule in the column's numbers; None: it does not fit the kind."""
    if isinstance(offset, timedelta):
        microseconds = round(offset.total_seconds() * 1e6)
        if kind == "datetime":
            return microseconds
        days, rest = divmod(microseconds, 86_400_000_000)
        return days if kind == "date" and not rest else None
    if kind == "datetime":
        return None if offset else 0
    if abs(offset) > MAX_INTEGER:
        return None
    if kind == "real":
        return float(offset)
    return int(offset) if float(offset).is_integer() else None
