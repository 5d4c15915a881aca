"""Steps on lists of values: columns that a formula or a public table gives, and columns modelled as one."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.encoding.arrow import as_numbers
from understudy.encoding.steps import Arrays, Rows, Scale, fill_nulls, in_declared_type
from understudy.schema import BOUNDED, Category, Column
from understudy.schema.rule_values import as_text, as_texts, match_lookup
from understudy.tables.cast import declared_type

COMPARED = 2**22
"""Pairs of combinations that are compared at once."""


@dataclasses.dataclass(frozen=True)
class Formula:
    """A column that an SQL expression gives: not modelled, but computed. A null in its inputs makes it null."""

    column: Column
    expression: str
    inputs: tuple[str, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.column.name,)

    @property
    def modelled(self) -> tuple[Column, ...]:
        return ()

    def clean(self, rows: Rows) -> Arrays:
        return self.restore(rows)

    def express(self, rows: Rows) -> Arrays:
        return {}

    def restore(self, rows: Rows) -> Arrays:
        from understudy.schema.conditions import compute

        inputs = pa.table({name: rows[name] for name in self.inputs})
        found = compute(inputs, self.expression, declared_type(self.column))
        if self.column.kind in BOUNDED:
            numbers, known = as_numbers(pa.chunked_array([found]), self.column.kind)
            return {self.column.name: Scale(self.column).write(numbers, known)}
        return {self.column.name: fill_nulls(in_declared_type(found, self.column), self.column)}


@dataclasses.dataclass(frozen=True)
class Lookup:
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
        texts = pa.array([as_text(row[0]) for row in self.table] + [None], pa.string())
        instead = len(self.table) if key.nullable else 0
        index = np.where(known & (found >= 0), found, instead)
        cleaned = in_declared_type(texts.take(pa.array(index)), key)
        return {key.name: cleaned, **self._fill({**rows, key.name: cleaned})}

    def express(self, rows: Rows) -> Arrays:
        return {self.keys[0].name: as_texts(rows[self.keys[0].name])} if self.owns_key else {}

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
            texts = pa.array([*(as_text(row[at]) for row in self.table), None], pa.string())
            filled[column.name] = fill_nulls(in_declared_type(texts.take(index), column), column)
        return filled


@dataclasses.dataclass(frozen=True)
class Joint:
    """Columns of which only some combinations are allowed: modelled as one column with a category for each.

    `rows` has every allowed combination, those with nulls too.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[str | None, ...], ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def inputs(self) -> tuple[str, ...]:
        return ()

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

    def _places(self, rows: Rows) -> np.ndarray:
        """The index of each row's values in the list of each column; -1 for those that are not in it."""
        found = []
        for at, column in enumerate(self.columns):
            texts = as_texts(rows[column.name])
            words = pa.array([row[at] for row in self.rows], pa.string()).unique()
            index = pc.fill_null(pc.index_in(texts, value_set=words, skip_nulls=False), -1)
            found.append(index.to_numpy(zero_copy_only=False))
        return np.stack(found, axis=1)

    def _nearest(self, rows: Rows) -> np.ndarray:
        """The combination of each row: its own if allowed, else the first of those that agree in most columns."""
        listed = self._places(
            {c.name: pa.array([row[at] for row in self.rows], pa.string()) for at, c in enumerate(self.columns)}
        )
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
            column.name: in_declared_type(
                pa.array([row[at] for row in self.rows], pa.string()).take(pa.array(index)), column
            )
            for at, column in enumerate(self.columns)
        }

    def clean(self, rows: Rows) -> Arrays:
        return self._take(self._nearest(rows))

    def express(self, rows: Rows) -> Arrays:
        return {self.name: pa.array(self.labels, pa.string()).take(pa.array(self._nearest(rows)))}

    def restore(self, rows: Rows) -> Arrays:
        index = pc.index_in(as_texts(rows[self.name]), value_set=pa.array(self.labels, pa.string()))
        return self._take(pc.fill_null(index, 0).to_numpy(zero_copy_only=False))
