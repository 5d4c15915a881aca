"""Columns re-expressed so that a rule holds by construction: a difference instead of a date, a share instead of a part.

A step replaces some columns of a table, its outputs, by columns that are modelled in their place. It is public, works
on each row by itself, and never fails, whatever the values. `clean` moves a row that breaks the rule to one that
satisfies it and leaves every other row as it is; `express` and `restore` lead from clean rows to what is modelled
and back. Here are the steps on numbers; those on lists of values are in `lookups.py`.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.encoding.arrow import as_numbers, bound_numbers, from_numbers
from understudy.rules.comparison import plain_array
from understudy.rules.rules import MAX_NUMBER
from understudy.schema import BOUNDED, Column
from understudy.tables.cast import as_declared_type, normalize_column

Arrays: TypeAlias = dict[str, pa.Array]
Rows: TypeAlias = Mapping[str, pa.Array]
"""Columns of a table in the types of their declared kinds."""

MAX_INTEGER = 2**58
"""Numbers are clamped to this, so that no sum or difference of a few of them overflows."""

_RANGES: dict[str, tuple[int | float, int | float]] = {
    "integer": (-MAX_INTEGER, MAX_INTEGER),
    "real": (-MAX_NUMBER, MAX_NUMBER),
    "date": (-719_162, 2_932_896),  # the years 1 to 9999
    "datetime": (-62_135_596_800_000_000, 253_402_300_799_999_999),
}


class Step(abc.ABC):
    """How some columns are rebuilt from those modelled in their place, and from other columns.

    Without a `modelled` column the outputs are computed, in clean rows as in synthetic ones.
    """

    @property
    @abc.abstractmethod
    def outputs(self) -> tuple[str, ...]:
        """The columns that it rebuilds."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The other columns that it needs for that."""
        return ()

    @property
    def modelled(self) -> tuple[Column, ...]:
        """The columns that are modelled in place of the outputs."""
        return ()

    def clean(self, rows: Rows) -> Arrays:
        """The outputs of rows that satisfy the rule; those that already do are unchanged."""
        return self.restore(rows)

    def express(self, rows: Rows) -> Arrays:
        """The modelled columns of clean rows."""
        return {}

    @abc.abstractmethod
    def restore(self, rows: Rows) -> Arrays:
        """The outputs, from the inputs and the modelled columns."""


@dataclasses.dataclass(frozen=True)
class OneColumn(Step):
    """A step that rebuilds one column."""

    column: Column

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.column.name,)


def integer_column(column: Column, bounds: tuple[int, int], *, name: str | None = None, cyclic: bool = False) -> Column:
    """An integer that is modelled in place of a column."""
    return Column(
        name=column.name if name is None else name,
        kind="integer",
        bounds=bounds,
        nullable=column.nullable,
        per_unit=column.per_unit,
        cyclic=cyclic,
    )


def read_integers(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a modelled integer, and which of them are not null."""
    return as_numbers(pa.chunked_array([values]), "integer")


def is_known(values: pa.Array) -> np.ndarray:
    """Which values are not null."""
    return np.asarray(pc.is_valid(values))


def in_declared_type(values: pa.ChunkedArray | pa.Array, column: Column) -> pa.Array:
    """A column in the type of its kind; what cannot be read as such is null."""
    chunked = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    return plain_array(as_declared_type(normalize_column(chunked), column))


# ------------------------------------------------------------------------------------------------------------- numbers


@dataclasses.dataclass(frozen=True)
class Scale:
    """The numbers of one column: its declared bounds, and its smallest difference."""

    column: Column

    @property
    def is_real(self) -> bool:
        return self.column.kind == "real"

    @property
    def bounds(self) -> tuple[int | float, int | float]:
        """The declared bounds as numbers; without them, those of all numbers."""
        return _RANGES[self.column.kind] if self.column.bounds is None else bound_numbers(self.column)

    @property
    def unit(self) -> int | float | None:
        """The smallest difference between two different values; None if there is none."""
        if not self.is_real:
            return 1
        return None if self.column.decimals is None else 10.0**-self.column.decimals

    def read(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """The numbers, clamped to the bounds, and which of them are not null."""
        numbers, known = as_numbers(pa.chunked_array([rows[self.column.name]]), self.column.kind)
        return self.inside(numbers), known

    def inside(self, numbers: np.ndarray, *, clamp: bool = True) -> np.ndarray:
        """Numbers rounded to the decimals and clamped to the bounds; without `clamp`, to all values of the kind."""
        lower, upper = self.bounds if clamp else _RANGES[self.column.kind]
        if not self.is_real:
            return np.asarray(np.clip(np.clip(numbers, -MAX_INTEGER, MAX_INTEGER), lower, upper), dtype=np.int64)
        numbers = np.clip(np.nan_to_num(numbers, nan=0.0), lower, upper)  # infinities become the largest floats first
        if self.column.decimals is None:
            return numbers
        is_whole = np.abs(numbers) >= 2.0**53  # rounding could overflow, and that would show
        rounded = np.round(np.where(is_whole, 0.0, numbers), self.column.decimals)
        return np.clip(np.where(is_whole, numbers, rounded), lower, upper)

    def write(self, numbers: np.ndarray, known: np.ndarray, *, clamp: bool = True) -> pa.Array:
        """Numbers inside the bounds as an array; unknown ones as nulls, or as the lower bound if there are none."""
        numbers = self.inside(numbers, clamp=clamp)
        null = ~known if self.column.nullable else np.zeros(len(known), dtype=bool)
        if not self.column.nullable:
            numbers = np.where(known, numbers, self.inside(np.zeros_like(numbers)))
        return from_numbers(np.where(null, numbers.dtype.type(0), numbers), null, self.column.kind)


def inside_domain(values: pa.Array, column: Column) -> pa.Array:
    """Numbers inside the declared bounds, and no nulls where the column has none, as rows are encoded."""
    values = fill_nulls(values, column)
    if column.kind not in BOUNDED:
        return values
    scale = Scale(column)
    return scale.write(*scale.read({column.name: values})).cast(values.type)


def fill_nulls(values: pa.Array, column: Column) -> pa.Array:
    """Without nulls where the column has none: the value that a null becomes by the schema."""
    if column.nullable:
        return values
    if column.kind in BOUNDED:
        if column.bounds is None:
            return pc.fill_null(values, pa.scalar(0, pa.int32() if column.kind == "date" else None).cast(values.type))
        instead: object = column.bounds[0]
    elif column.kind == "boolean":
        instead = False
    else:
        instead = column.replacement if column.categories is not None else "other"
    return (
        values
        if instead is None
        else pc.fill_null(values, pa.scalar(str(instead) if pa.types.is_string(values.type) else instead, values.type))
    )


# ---------------------------------------------------------------------------------------------------------------- order


@dataclasses.dataclass(frozen=True)
class Term:
    """A lower limit: the sum of some columns, and a constant. With `strict`, the limit itself is excluded."""

    columns: tuple[str, ...]
    offset: int | float = 0
    strict: bool = False


@dataclasses.dataclass(frozen=True)
class Difference(OneColumn):
    """A number or date that is at least (or, `below`, at most) as large as others: modelled as the difference.

    Where no limit is known the value itself is modelled, in a column of its own, which exists only if this can happen.
    """

    terms: tuple[Term, ...]
    limits: tuple[Column, ...]
    """The columns of the terms."""
    below: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.limits)

    @property
    def label(self) -> str:
        """The difference in words."""
        limits = " or ".join(" + ".join(term.columns) for term in self.terms)
        return f"{limits} minus {self.column.name}" if self.below else f"{self.column.name} minus {limits}"

    @property
    def free_name(self) -> str:
        """The name of the column for rows without a limit."""
        return f"{self.column.name} without {' and '.join(self.inputs)}"

    @property
    def can_be_free(self) -> bool:
        """Whether a row can have a value and no limit: every term has a column that may be null."""
        by_name = {column.name: column for column in self.limits}
        return all(any(by_name[name].nullable for name in term.columns) for term in self.terms)

    @property
    def modelled(self) -> tuple[Column, ...]:
        real = self.column.kind == "real"
        nullable = self.column.nullable or self.can_be_free
        difference = Column(
            name=self.column.name,
            kind="real" if real else "integer",
            bounds=self._bounds(),
            nullable=nullable,
            decimals=self.column.decimals,
        )
        if not self.can_be_free:
            return (difference,)
        free = dataclasses.replace(self.column, name=self.free_name, nullable=True, per_unit=False, missing=None)
        return difference, free

    def _bounds(self) -> tuple[int | float, int | float] | None:
        """The bounds of the difference, from declared ones; None if they are estimated privately."""
        if any(column.bounds is None for column in (self.column, *self.limits)):
            return None
        scales = {column.name: Scale(column) for column in self.limits}
        lower, upper = Scale(self.column).bounds
        side = 1 if self.below else 0
        ends = [sum(scales[name].bounds[side] for name in term.columns) + term.offset for term in self.terms]
        least = self._least()
        longest = min(ends) - lower if self.below else upper - max(ends)
        return least, max(longest, least + 1)

    def _least(self) -> int | float:
        """The smallest difference."""
        return 1 if self.column.kind != "real" and all(term.strict for term in self.terms) else 0

    def _limit(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """The limit of each row, and which rows have one."""
        scales = {column.name: Scale(column) for column in self.limits}
        real = self.column.kind == "real"
        size = len(next(iter(rows.values())))
        worst = -np.inf if real else -MAX_INTEGER
        limit, has = np.full(size, worst, dtype=float if real else np.int64), np.zeros(size, dtype=bool)
        for term in self.terms:
            read = [scales[name].read(rows) for name in term.columns]
            known = np.all([known for _, known in read], axis=0)
            value = np.sum([numbers for numbers, _ in read], axis=0) + term.offset
            value = -value if self.below else value
            if term.strict and real:
                unit = Scale(self.column).unit
                value = np.nextafter(value, np.inf) if unit is None else value + unit
            elif term.strict and not self._least():
                value = value + 1
            limit = np.where(known, np.maximum(limit, value), limit)
            has |= known
        return np.where(has, limit, 0), has

    def _read(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        numbers, known = Scale(self.column).read(rows)
        return -numbers if self.below else numbers, known

    def _write(self, numbers: np.ndarray, known: np.ndarray, *, clamp: bool = True) -> pa.Array:
        return Scale(self.column).write(-numbers if self.below else numbers, known, clamp=clamp)

    def clean(self, rows: Rows) -> Arrays:
        numbers, known = self._read(rows)
        limit, has = self._limit(rows)
        return {
            self.column.name: self._write(np.where(has, np.maximum(numbers, limit + self._least()), numbers), known)
        }

    def express(self, rows: Rows) -> Arrays:
        numbers, known = self._read(rows)
        limit, has = self._limit(rows)
        main, *free = self.modelled
        arrays = {main.name: Scale(main).write(numbers - limit, known & has)}
        for column in free:
            arrays[column.name] = Scale(column).write(-numbers if self.below else numbers, known & ~has)
        return arrays

    def restore(self, rows: Rows) -> Arrays:
        main, *free = self.modelled
        difference, known = Scale(main).read(rows)
        limit, has = self._limit(rows)
        # A model may leave the difference null beside a limit: without nulls, it is the smallest one.
        numbers = limit + np.where(known, np.maximum(difference, self._least()), self._least())
        known = known & has if self.column.nullable else has
        for column in free:
            own, own_known = Scale(column).read(rows)
            numbers = np.where(has, numbers, -own if self.below else own)
            known = np.where(has, known, own_known)
        # Not clamped, which would heap values at a bound: rows beyond the bounds are drawn again.
        return {self.column.name: self._write(numbers, known, clamp=False)}


# ----------------------------------------------------------------------------------------------------------------- sums


@dataclasses.dataclass(frozen=True)
class Total(OneColumn):
    """A column that is the sum of others: not modelled, but computed."""

    parts: tuple[Column, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts)

    def restore(self, rows: Rows) -> Arrays:
        read = [Scale(part).read(rows) for part in self.parts]
        known = np.all([known for _, known in read], axis=0)
        return {self.column.name: Scale(self.column).write(np.sum([numbers for numbers, _ in read], axis=0), known)}


@dataclasses.dataclass(frozen=True)
class Shares(Step):
    """Parts of a number: each but the first is modelled as its share of what the parts before it leave.

    With `exact` they add up to the number, and the last one is what is left; otherwise to the number or less. A row
    with a null part is not constrained: its parts are then shares of their own ranges.
    """

    parts: tuple[Column, ...]
    """With declared bounds."""
    total: int | float
    exact: bool

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts)

    @property
    def modelled(self) -> tuple[Column, ...]:
        first, *others = self.parts[:-1] if self.exact else self.parts
        shares = [Column(name=c.name, kind="real", bounds=(0.0, 1.0), nullable=c.nullable) for c in others]
        return (dataclasses.replace(first, per_unit=False, missing=None), *shares)

    def _ranges(self, at: int, left: np.ndarray, bound: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest value of a part, given what is left."""
        lower, upper = Scale(self.parts[at]).bounds
        later = [Scale(part).bounds for part in self.parts[at + 1 :]]
        high = np.minimum(upper, left - sum(low for low, _ in later))
        low = np.maximum(lower, left - sum(high for _, high in later)) if self.exact else np.full_like(left, lower)
        high = np.maximum(high, low)
        return np.where(bound, low, lower), np.where(bound, high, upper)

    def _bound(self, rows: Rows) -> np.ndarray:
        """Which rows have no null among the modelled parts."""
        return np.asarray(np.all([is_known(rows[column.name]) for column in self.modelled], axis=0))

    def _walk(self, rows: Rows, values: Sequence[np.ndarray] | None) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Parts and shares: shares of given values, or, without any, the values that the modelled shares stand for."""
        bound = self._bound(rows)
        left = np.full(len(bound), float(self.total))
        parts, shares = [], []
        for at, part in enumerate(self.parts):
            scale = Scale(part)
            low, high = self._ranges(at, left, bound)
            if at == len(self.parts) - 1 and self.exact:
                value, share = np.where(bound, left, low), np.zeros(len(bound))
            elif values is not None:
                value = np.clip(values[at].astype(float), low, high)
                share = _share_of(value, low, high, scale.unit)
            elif at == 0:
                value, share = np.clip(scale.read(rows)[0].astype(float), low, high), np.zeros(len(bound))
            else:
                share = as_numbers(pa.chunked_array([rows[part.name]]), "real")[0]
                value = _value_at(share, low, high, scale.unit)
            value = value if scale.unit is None else np.round(np.round(value / scale.unit) * scale.unit, 12)
            left = left - value
            parts.append(value)
            shares.append(share)
        return parts, shares

    def _write(self, parts: Sequence[np.ndarray], rows: Rows) -> Arrays:
        """A null stays null; the last of exact parts is null where another part is."""
        bound = self._bound(rows)
        arrays = {}
        for at, (part, values) in enumerate(zip(self.parts, parts, strict=True)):
            known = bound if self.exact and at == len(self.parts) - 1 else is_known(rows[part.name])
            numbers = values if part.kind == "real" else np.round(values).astype(np.int64)
            arrays[part.name] = Scale(part).write(numbers, known)
        return arrays

    def clean(self, rows: Rows) -> Arrays:
        values = [Scale(part).read(rows)[0] for part in self.parts]
        return self._write(self._walk(rows, values)[0], rows)

    def express(self, rows: Rows) -> Arrays:
        values = [Scale(part).read(rows)[0] for part in self.parts]
        _, shares = self._walk(rows, values)
        first, *others = self.modelled
        written = {
            column.name: Scale(column).write(share, is_known(rows[column.name]))
            for column, share in zip(others, shares[1:], strict=False)
        }
        return {first.name: rows[first.name], **written}

    def restore(self, rows: Rows) -> Arrays:
        return self._write(self._walk(rows, None)[0], rows)


def _share_of(values: np.ndarray, low: np.ndarray, high: np.ndarray, unit: int | float | None) -> np.ndarray:
    """Where a value lies between two others, from 0 to 1; one of n possible values is at the middle of an n-th."""
    if unit is None:
        return np.asarray(np.clip((values - low) / np.maximum(high - low, 1e-300), 0.0, 1.0))
    return np.asarray((np.round((values - low) / unit) + 0.5) / (np.floor((high - low) / unit + 1e-9) + 1))


def _value_at(shares: np.ndarray, low: np.ndarray, high: np.ndarray, unit: int | float | None) -> np.ndarray:
    """The inverse of `_share_of`."""
    shares = np.clip(shares, 0.0, 1.0)
    if unit is None:
        return np.asarray(low + shares * (high - low))
    count = np.floor((high - low) / unit + 1e-9) + 1
    return np.asarray(low + np.minimum(np.floor(shares * count), count - 1) * unit)
