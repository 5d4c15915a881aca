"""Steps on lists of values: columns that a formula or a public table gives, columns modelled as one, and ranks."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.encoding.arrow import as_numbers, from_numbers
from understudy.encoding.reexpression.steps import (
    Arrays,
    OneColumn,
    Rows,
    Scale,
    Step,
    fill_nulls,
    in_declared_type,
    integer_column,
    read_integers,
)
from understudy.rules.comparison import as_strings, as_text, match_lookup
from understudy.rules.conditions import compute
from understudy.schema import BOUNDED, Category, Column, Schema
from understudy.tables.cast import declared_type

COMPARED = 2**22
"""Pairs of combinations that are compared at once."""

MAX_CODES = 32
"""An ordinal column with more categories than this is modelled by ranks, so that rare neighbours share a code."""


@dataclasses.dataclass(frozen=True)
class Formula(OneColumn):
    """A column that an SQL expression gives: not modelled, but computed. A null in its inputs makes it null."""

    expression: str
    inputs: tuple[str, ...] = ()

    def restore(self, rows: Rows) -> Arrays:
        inputs = pa.table({name: rows[name] for name in self.inputs})
        computed = compute(inputs, self.expression, declared_type(self.column))
        if self.column.kind in BOUNDED:
            numbers, known = as_numbers(pa.chunked_array([computed]), self.column.kind)
            return {self.column.name: Scale(self.column).write(numbers, known)}
        return {self.column.name: fill_nulls(in_declared_type(computed, self.column), self.column)}


@dataclasses.dataclass(frozen=True)
class Lookup(Step):
    """Columns that a public table gives: not modelled, but filled in. A null key makes them null.

    A single key is modelled with the keys of the table as categories; several keys are modelled as a `Joint`.
    """

    keys: tuple[Column, ...]
    given: tuple[Column, ...]
    table: tuple[tuple[Category | None, ...], ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        names = tuple(column.name for column in self.given)
        return (self.keys[0].name, *names) if self.owns_key else names

    @property
    def owns_key(self) -> bool:
        """Whether the key is modelled with the keys of the table as categories."""
        return len(self.keys) == 1 and self.keys[0].kind != "boolean"

    @property
    def inputs(self) -> tuple[str, ...]:
        return () if self.owns_key else tuple(column.name for column in self.keys)

    @property
    def modelled(self) -> tuple[Column, ...]:
        if not self.owns_key:
            return ()
        key = self.keys[0]
        listed = tuple(dict.fromkeys(text for row in self.table if (text := as_text(row[0])) is not None))
        return (Column(name=key.name, kind="categorical", categories=listed, closed=True, nullable=key.nullable),)

    def _find(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        table = pa.table({column.name: rows[column.name] for column in self.keys})
        return match_lookup(table, table.column_names, [row[: len(self.keys)] for row in self.table])

    def clean(self, rows: Rows) -> Arrays:
        if not self.owns_key:
            return self._fill(rows)
        key = self.keys[0]
        known, found = self._find(rows)
        strings = pa.array([as_text(row[0]) for row in self.table] + [None], pa.string())
        instead = len(self.table) if key.nullable else 0
        index = np.where(known & (found >= 0), found, instead)
        cleaned = in_declared_type(strings.take(pa.array(index)), key)
        return {key.name: cleaned, **self._fill({**rows, key.name: cleaned})}

    def express(self, rows: Rows) -> Arrays:
        return {self.keys[0].name: as_strings(rows[self.keys[0].name])} if self.owns_key else {}

    def restore(self, rows: Rows) -> Arrays:
        if not self.owns_key:
            return self._fill(rows)
        key = self.keys[0]
        value = in_declared_type(rows[key.name], key)
        return {key.name: value, **self._fill({**rows, key.name: value})}

    def _fill(self, rows: Rows) -> Arrays:
        known, found = self._find(rows)
        index = pa.array(np.where(known & (found >= 0), found, len(self.table)))
        filled = {}
        for at, column in enumerate(self.given, start=len(self.keys)):
            strings = pa.array([*(as_text(row[at]) for row in self.table), None], pa.string())
            filled[column.name] = fill_nulls(in_declared_type(strings.take(index), column), column)
        return filled


@dataclasses.dataclass(frozen=True)
class Joint(Step):
    """Columns of which only some combinations are allowed: modelled as one column with a category for each.

    `rows` has every allowed combination, those with nulls too.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[str | None, ...], ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def name(self) -> str:
        return ", ".join(self.outputs)

    @property
    def labels(self) -> tuple[str, ...]:
        """One category for each combination: its number, which no value can be mistaken for."""
        return tuple(str(number) for number in range(len(self.rows)))

    @property
    def modelled(self) -> tuple[Column, ...]:
        per_unit = all(column.per_unit for column in self.columns)
        return (
            Column(
                name=self.name,
                kind="categorical",
                categories=self.labels,
                closed=True,
                nullable=False,
                per_unit=per_unit,
            ),
        )

    @property
    def _listed(self) -> Arrays:
        """The combinations, column by column."""
        return {name: pa.array([row[at] for row in self.rows], pa.string()) for at, name in enumerate(self.outputs)}

    def _places(self, rows: Rows) -> np.ndarray:
        """The index of each row's values in the list of each column; -1 for those that are not in it."""
        places = []
        for name, listed in self._listed.items():
            index = pc.index_in(as_strings(rows[name]), value_set=listed.unique(), skip_nulls=False)
            places.append(pc.fill_null(index, -1).to_numpy(zero_copy_only=False))
        return np.stack(places, axis=1)

    def _nearest(self, rows: Rows) -> np.ndarray:
        """The combination of each row: its own if allowed, else the first of those that agree in most columns."""
        listed = self._places(self._listed)
        codes, inverse = np.unique(self._places(rows), axis=0, return_inverse=True)
        nulls = np.asarray([sum(value is None for value in row) for row in self.rows])
        nearest = np.zeros(len(codes), dtype=np.int64)
        step = max(1, COMPARED // len(listed))  # so that memory does not grow with the number of different rows
        for start in range(0, len(codes), step):
            agreement = (codes[start : start + step, None, :] == listed[None]).sum(axis=2)
            score = agreement * (len(self.columns) + 1) - nulls[None]  # among equals, as few nulls as possible
            nearest[start : start + step] = np.argmax(score, axis=1)
        return nearest[inverse.ravel()]

    def _take(self, index: np.ndarray) -> Arrays:
        return {
            column.name: in_declared_type(self._listed[column.name].take(pa.array(index)), column)
            for column in self.columns
        }

    def clean(self, rows: Rows) -> Arrays:
        return self._take(self._nearest(rows))

    def express(self, rows: Rows) -> Arrays:
        return {self.name: pa.array(self.labels, pa.string()).take(pa.array(self._nearest(rows)))}

    def restore(self, rows: Rows) -> Arrays:
        index = pc.index_in(as_strings(rows[self.name]), value_set=pa.array(self.labels, pa.string()))
        return self._take(pc.fill_null(index, 0).to_numpy(zero_copy_only=False))


@dataclasses.dataclass(frozen=True)
class Ranks(OneColumn):
    """An ordinal column as the rank of its category: an integer, whose bins are neighbouring categories."""

    @property
    def modelled(self) -> tuple[Column, ...]:
        return (integer_column(self.column, (0, len(self._strings) - 1)),)

    @property
    def _strings(self) -> pa.Array:
        return pa.array([as_text(category) for category in self.column.categories or ()], pa.string())

    def _ranks(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """The rank of each row, and which rows have one; undeclared categories are replaced by the schema's rule."""
        strings = as_strings(rows[self.column.name])
        ranks = pc.fill_null(pc.index_in(strings, value_set=self._strings), -1).to_numpy(zero_copy_only=False)
        instead = self.column.replacement
        if instead is not None:
            rank = self._strings.to_pylist().index(as_text(instead))
            is_null = pc.is_null(strings).to_numpy(zero_copy_only=False) & self.column.nullable
            ranks = np.where((ranks < 0) & ~is_null, rank, ranks)
        return np.maximum(ranks, 0).astype(np.int64), ranks >= 0

    def _values(self, ranks: np.ndarray, known: np.ndarray) -> Arrays:
        at = pa.array(np.clip(ranks, 0, len(self._strings) - 1), mask=~known)
        return {self.column.name: in_declared_type(self._strings.take(at), self.column)}

    def clean(self, rows: Rows) -> Arrays:
        return self._values(*self._ranks(rows))

    def express(self, rows: Rows) -> Arrays:
        ranks, known = self._ranks(rows)
        return {self.column.name: from_numbers(ranks, ~known, "integer")}

    def restore(self, rows: Rows) -> Arrays:
        ranks, known = read_integers(rows[self.column.name])
        return self._values(ranks, known | (not self.column.nullable))


def rank_steps(schema: Schema) -> tuple[Ranks, ...]:
    """One step for each long ordinal column. The target, and columns that rules are about, stay as they are."""
    ruled = {name for rule in schema.rules for name in rule.columns}
    return tuple(
        Ranks(column)
        for column in schema.modelled
        if column.ordinal
        and len(column.categories or ()) > MAX_CODES
        and column.name != schema.target
        and column.name not in ruled
    )
