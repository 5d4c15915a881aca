"""Which columns are modelled so that the rules of a schema hold by construction, and how rows are converted back.

Each rule is split into parts. What a step can express exactly is satisfied by construction (`construction.py`): its
columns are not modelled as they are, but as differences, shares or one joint column, or not at all if they follow from
others.
The rest is left to structural zeros and to the check of every synthetic row. All of this follows from the schema.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool

from understudy.encoding.arrow import as_numbers, bound_numbers, optional_number
from understudy.encoding.locations import Located, location_steps
from understudy.encoding.reexpression.construction import construct
from understudy.encoding.reexpression.lookups import Joint, rank_steps
from understudy.encoding.reexpression.parts import part_steps
from understudy.encoding.reexpression.steps import (
    Arrays,
    Difference,
    Rows,
    Step,
    fill_nulls,
    in_declared_type,
    inside_domain,
)
from understudy.notes import Note
from understudy.rules.comparison import as_text
from understudy.rules.conditions import condition_columns, parts, truth, where_columns
from understudy.rules.rules import Combinations, Keep, Rule, Skip, WhenThen
from understudy.schema import Column, Schema
from understudy.schema.rule_cells import keep_limits, narrow
from understudy.tables.cast import declared_type

Limits: TypeAlias = tuple[int | float | None, int | float | None]
"""The least and the greatest number that rules leave a column; None: they leave any."""


class Move(NamedTuple):
    """How rows that break a rule are moved to rows that satisfy it."""

    columns: tuple[str, ...]
    apply: Callable[[Rows], Arrays]


@dataclasses.dataclass(frozen=True)
class Reexpression:
    """How rows of a schema are modelled: a public function of each row. Without rules and steps, as they are."""

    schema: Schema
    modelled: Schema
    """The columns that are modelled, in place of those of `schema`. It has no rules."""
    steps: tuple[Step, ...]
    """In the order in which the columns are rebuilt."""
    constructed: tuple[Rule, ...]
    """The rules that hold by construction."""
    remaining: tuple[Rule, ...]
    """All others: satisfied by structural zeros and by checking every synthetic row."""

    @property
    def replaced(self) -> frozenset[str]:
        """The columns that are not modelled as they are."""
        return frozenset(name for step in self.steps for name in step.outputs)

    @property
    def derived(self) -> frozenset[str]:
        """Those of them that follow from other columns, or from one column with others."""
        modelled = {column.name for step in self.steps for column in step.modelled}
        return self.replaced - modelled

    @property
    def is_identity(self) -> bool:
        """Whether rows are modelled as they are."""
        return not self.steps and not self.schema.rules

    @property
    def curves(self) -> frozenset[str]:
        """The modelled columns that number the points of a region: an order, but no scale."""
        return frozenset(step.location.name for step in self.steps if isinstance(step, Located))

    def kept_rows(self, table: pa.Table) -> Bool[np.ndarray, " rows"]:
        """Which rows of a real table are used: all but those that break a rule and are dropped, or cannot be moved.

        A function of each row alone, which no value makes fail.
        """
        kept = np.ones(table.num_rows, dtype=bool)
        dropping = [rule for rule in self.schema.rules if on_break(rule, self.schema) == "drop"]
        for rules, rows in ((dropping, self._typed), (self.schema.rules, self._clean)):
            if rules:
                typed = pa.table(rows(table))
                for rule in rules:
                    kept &= ~rule.broken(typed)
        return kept

    def label(self, name: str) -> str:
        """What a modelled column is, for people."""
        for step in self.steps:
            if isinstance(step, Difference) and name == step.column.name:
                return step.label
        return name

    def within_bounds(self, table: pa.Table) -> Bool[np.ndarray, " rows"]:
        """Which rebuilt rows are inside the declared bounds: the sum of a date and a difference may not be."""
        inside = np.ones(table.num_rows, dtype=bool)
        for name in self.replaced:
            column = self.schema[name]
            if column.bounds is not None:
                lower, upper = bound_numbers(column)
                numbers, known = as_numbers(table.column(name), column.kind)
                inside &= ~known | ((numbers >= lower) & (numbers <= upper))
        return inside

    def read(self, table: pa.Table) -> pa.Table:
        """The columns of rules as their declared kinds, whatever types and formats they have in a table."""
        return pa.table(self._typed(table))

    def clean(self, table: pa.Table) -> pa.Table:
        """Rows that break a rule moved to rows that satisfy it, where the rule says how; other rows unchanged.

        Nulls that a rule determines are filled in.
        """
        cleaned = self._clean(table)
        for name, values in cleaned.items():
            if name in self._moved:
                table = table.set_column(table.column_names.index(name), name, values)
        return table

    def express(self, table: pa.Table) -> pa.Table:
        """The modelled columns of a table; all columns that are not modelled stay."""
        if self.is_identity:
            return table
        rows = self._clean(table)
        arrays: Arrays = {}
        for step in self.steps:
            arrays |= step.express(rows)
        for name in self._moved - self.replaced:
            arrays[name] = rows[name]
        kept = {name: table.column(name) for name in table.column_names if name not in self.replaced}
        return pa.table({**kept, **arrays})

    def restore(self, table: pa.Table) -> pa.Table:
        """The columns of the schema, from modelled ones."""
        if not self.steps:
            return table
        rows: Arrays = {
            column.name: in_declared_type(table.column(column.name), column) for column in self.modelled.modelled
        }
        restored: Arrays = {}
        for step in self.steps:
            needed = {**{name: rows[name] for name in rows if name not in step.outputs}, **restored}
            own = {column.name: rows[column.name] for column in step.modelled}
            restored |= step.restore({**needed, **own})
        kept = {column.name for column in self.modelled.columns} - {c.name for s in self.steps for c in s.modelled}
        columns = {name: table.column(name) for name in table.column_names if name in kept}
        columns |= restored
        return pa.table({name: columns[name] for name in self.schema.names if name in columns})

    @functools.cached_property
    def limits(self) -> dict[str, Limits]:
        """What `keep` rules on one column leave of those whose bounds are estimated."""
        single = _single_conditions(self.schema)
        limits = {
            column.name: keep_limits(column, single[column.name], declared_type(column))
            for column in self.modelled.modelled
            if column.estimated == "bounds" and column.name in single and column.name not in self.replaced
        }
        return {name: (optional_number(lower), optional_number(upper)) for name, (lower, upper) in limits.items()}

    @functools.cached_property
    def _ruled(self) -> frozenset[str]:
        """The columns that some rule or some step is about."""
        return frozenset(name for rule in self.schema.rules for name in rule.columns) | self.replaced

    @functools.cached_property
    def _located(self) -> frozenset[str]:
        return frozenset(name for step in self.steps if isinstance(step, Located) for name in step.outputs)

    @functools.cached_property
    def _moved(self) -> frozenset[str]:
        """The columns in which rows that break a rule are moved."""
        return self.replaced | frozenset(name for move in self._moves for name in move.columns)

    @functools.cached_property
    def _moves(self) -> tuple[Move, ...]:
        moves = [_move(rule, self.schema) for rule in self.remaining]
        return tuple(move for move in moves if move is not None)

    def _typed(self, table: pa.Table) -> Arrays:
        """The columns of rules in the types of their kinds."""
        return {name: in_declared_type(table.column(name), self.schema[name]) for name in sorted(self._ruled)}

    def _clean(self, table: pa.Table) -> Arrays:
        rows = {
            name: values if name in self._located else inside_domain(values, self.schema[name])
            for name, values in self._typed(table).items()
        }
        for step in self.steps:
            rows |= step.clean(rows)
        for move in self._moves:
            rows |= move.apply(rows)
        return rows


def reexpress(schema: Schema) -> Reexpression:
    """How the rows of this schema are modelled. Computed once for each schema, and kept with it."""
    # Not by a cache that compares schemas: in Python 1 equals True, and such schemas are not the same.
    known: Reexpression | None = vars(schema).get("_reexpression")
    if known is None:
        known = vars(schema)["_reexpression"] = _reexpress(schema)
    return known


def _reexpress(schema: Schema) -> Reexpression:
    declared: tuple[Step, ...] = (*location_steps(schema), *rank_steps(schema), *part_steps(schema))
    if not schema.rules and not declared:
        return Reexpression(
            schema, dataclasses.replace(schema, locations=()) if schema.locations else schema, (), (), ()
        )
    steps, remaining = construct(schema, declared)
    constructed = tuple(rule for rule in schema.rules if rule not in remaining)
    return Reexpression(schema, _modelled_schema(schema, steps), steps, constructed, remaining)


def on_break(rule: Rule, schema: Schema) -> str:
    """What happens to a real row that breaks the rule: declared, or "clamp" where the rule says how, else "drop"."""
    if rule.on_break is not None:
        return rule.on_break
    known = reexpress(schema)
    return "clamp" if rule in known.constructed or _move(rule, schema) is not None else "drop"


def rule_notes(schema: Schema, *, draws_per_row: int, least_draws: int) -> tuple[Note, ...]:
    """How each rule and location will be satisfied, for the reader of a plan or run. Public facts alone."""
    known = reexpress(schema)
    again = (
        "by structural zeros and, where these do not decide, by drawing rows again: at most "
        f"{draws_per_row:,} draws per row or {least_draws:,} in all, whichever is more, then as many again with repair"
    )
    moved = {"clamp": "moved to one that satisfies it, or left out if none is found (clamp)", "drop": "left out (drop)"}
    notes = [
        f"Rule {number} ({rule.text}) is satisfied {'by construction' if rule in known.constructed else again}. "
        f"A real row that breaks it is {moved[on_break(rule, schema)]}."
        for number, rule in enumerate(schema.rules, start=1)
    ]
    return tuple(map(Note, (*notes, *_step_notes(known))))


def _step_notes(known: Reexpression) -> Iterator[str]:
    """Which columns need two columns in the model, since others may be null; and where points of a location may lie."""
    for step in known.steps:
        if isinstance(step, Difference) and step.can_be_free:
            inputs = " or ".join(map(repr, step.inputs))
            yield (
                f"{step.column.name!r} is modelled as two columns, since a row may have a value there but none in "
                f"{inputs}. If that cannot happen, declare nullable = false for {inputs}."
            )
    for step in known.steps:
        if isinstance(step, Located):
            yield (
                f"{step.location.name!r} is a location in the declared region ({step.location.region.summary}). A real "
                "point outside is moved to the nearest point inside; every synthetic point is inside."
            )


def _modelled_schema(schema: Schema, steps: Sequence[Step]) -> Schema:
    """The schema of what is modelled: new columns stand where the first column that they replace stood."""
    place: dict[str, tuple[Column, ...]] = {}
    for step in steps:
        first = min(step.outputs, key=schema.names.index)
        place |= dict.fromkeys(step.outputs, ()) | {first: step.modelled}
    narrowed = _narrowed(schema)
    columns = tuple(new for column in narrowed for new in place.get(column.name, (column,)))
    target = schema.target if schema.target in {c.name for c in columns} and schema.target not in place else None
    return dataclasses.replace(
        schema,
        columns=columns,
        rules=(),
        locations=(),
        target=target,
        positive=None if target is None else schema.positive,
    )


def _narrowed(schema: Schema) -> tuple[Column, ...]:
    """The columns with only the values that `keep` rules on one column leave. Rows with others are left out anyway."""
    single = _single_conditions(schema)
    return tuple(
        narrow(column, single[column.name], declared_type(column)) if column.name in single else column
        for column in schema.columns
    )


def _single_conditions(schema: Schema) -> dict[str, list[str]]:
    """The parts of `keep` rules that are about one column, by column."""
    conditions: dict[str, list[str]] = {}
    for rule in schema.rules:
        for part in parts(rule.keep, schema.names) if isinstance(rule, Keep) else ():
            if len(part.columns) == 1:
                conditions.setdefault(part.columns[0], []).append(part.sql)
    return conditions


def _move(rule: Rule, schema: Schema) -> Move | None:
    """How rows that break a rule which no step satisfies are moved: if the rule says so, in modelled columns."""
    move = _move_of(rule, schema)
    if move is None or reexpress(schema).derived & set(move.columns):  # a step would rebuild what was moved
        return None
    return move


def _move_of(rule: Rule, schema: Schema) -> Move | None:
    match rule:
        case Skip():
            return Move((rule.skip,), functools.partial(_set_null, rule))
        case WhenThen():
            conjuncts = where_columns(rule.then, schema.names)
            if len(conjuncts) != 1 or conjuncts[0].operator != "=":
                return None
            column = schema[conjuncts[0].columns[0]]
            if column.name in condition_columns(rule.when):
                return None
            return Move((column.name,), functools.partial(_set_value, rule, column, conjuncts[0].constants[0]))
        case Combinations() if rule.allowed is not None:
            columns = tuple(schema[name] for name in rule.combinations)
            rows = tuple(tuple(as_text(value) for value in row) for row in rule.allowed)
            return Move(rule.combinations, functools.partial(_set_combination, rule, Joint(columns, rows)))
    return None


def _set_null(rule: Skip, rows: Rows) -> Arrays:
    """Nulls where the condition is true."""
    is_true, _ = truth(pa.table(dict(rows)), rule.when)
    values = rows[rule.skip]
    return {rule.skip: pc.if_else(pa.array(is_true), pa.scalar(None, values.type), values)}


def _set_value(rule: WhenThen, column: Column, constant: object, rows: Rows) -> Arrays:
    """The constant of `then` where the rule is broken."""
    values = rows[column.name]
    new = in_declared_type(pa.array([constant]), column)[0]
    broken = rule.broken(pa.table(dict(rows)))
    return {column.name: fill_nulls(pc.if_else(pa.array(broken), new, values), column)}


def _set_combination(rule: Combinations, joint: Joint, rows: Rows) -> Arrays:
    """The nearest allowed combination where the rule is broken."""
    broken = pa.array(rule.broken(pa.table({name: rows[name] for name in joint.outputs})))
    return {name: pc.if_else(broken, new, rows[name]) for name, new in joint.clean(rows).items()}
