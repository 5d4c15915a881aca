"""Values of rows and of public lists, compared by rules: as texts and as floats, whatever their types."""

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.schema.lookup import LookupRow
from understudy.schema.values import Category

Mask: TypeAlias = np.ndarray


def match_lookup(table: pa.Table, columns: Sequence[str], listed: Sequence[LookupRow]) -> tuple[Mask, np.ndarray]:
    """Which rows have a value in all of the columns; and the index of each row in the list, or -1."""
    known = np.ones(table.num_rows, dtype=bool)
    row_key = np.zeros(table.num_rows, dtype=np.int64)
    list_key = np.zeros(len(listed), dtype=np.int64)
    for at, name in enumerate(columns):
        known &= ~is_null(table.column(name))
        values = as_texts(table.column(name))
        own = pa.array([as_text(row[at]) for row in listed], pa.string())
        words = own.unique()
        size = len(words) + 1
        found = pc.fill_null(pc.index_in(values, value_set=words), size - 1).to_numpy(zero_copy_only=False)
        row_key = row_key * size + found
        list_key = list_key * size + pc.index_in(own, value_set=words).to_numpy(zero_copy_only=False)
        # Keys are renumbered after each column, so that they stay small.
        distinct = np.unique(list_key)
        place = np.minimum(np.searchsorted(distinct, row_key), max(len(distinct) - 1, 0))
        is_listed = distinct[place] == row_key if len(distinct) else np.zeros(table.num_rows, dtype=bool)
        row_key = np.where(is_listed, place, len(distinct))
        list_key = np.searchsorted(distinct, list_key)
    index = np.full(len(listed) + 1, -1, dtype=np.int64)
    index[list_key[::-1]] = np.arange(len(listed))[::-1]  # the first of equal rows
    return known, index[np.minimum(row_key, len(listed))] if len(listed) else np.full(table.num_rows, -1)


def as_texts(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Values as texts in which 1, 1.0 and "1" are equal, so that lists match columns of any type."""
    array = _plain(values)
    if pa.types.is_boolean(array.type):
        return pc.if_else(array, "true", "false")
    if pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
        floats = array.cast(pa.float64(), safe=False)
        limit = 2.0**53
        whole = pc.and_(pc.equal(floats, pc.round(floats)), pc.less(pc.abs(floats), limit))
        whole = pc.fill_null(whole, False)
        as_whole = pc.if_else(whole, floats, None).cast(pa.int64()).cast(pa.string())
        return pc.if_else(whole, as_whole, floats.cast(pa.string()))
    if pa.types.is_timestamp(array.type):
        return pc.strftime(array.cast(pa.timestamp("us"), safe=False), "%Y-%m-%dT%H:%M:%S")
    try:
        return array.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(array), pa.string())


def as_text(value: Category | None) -> str | None:
    """One value of a list as a text, in the form of `as_texts`."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)  # of any size, unlike those of Arrow
    if 1e-4 <= abs(value) < 1e15:  # as Arrow writes it, but faster
        return str(int(value)) if value.is_integer() else repr(value)
    return as_texts(pa.array([value]))[0].as_py()


def equal_to_listed(values: pa.ChunkedArray, listed: Sequence[Category | None], index: np.ndarray) -> tuple[Mask, Mask]:
    """Which rows have a value where the list has one, and which of them the same as the list at their index."""
    texts = pa.array([*(as_text(value) for value in listed), None], pa.string())
    expected = texts.take(pa.array(np.where(index < 0, len(listed), index)))
    same = pc.fill_null(pc.equal(as_texts(values), expected), False).to_numpy(zero_copy_only=False)
    return ~is_null(values) & pc.is_valid(expected).to_numpy(zero_copy_only=False), same


def as_floats(values: pa.ChunkedArray) -> np.ndarray:
    """Values as floats; NaN for nulls and for what is not a number."""
    array = _plain(values)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        from understudy.schema.conditions import compute

        array = compute(pa.table({"v": array}), "TRY_CAST(v AS DOUBLE)", pa.float64())
    try:
        return array.cast(pa.float64(), safe=False).fill_null(math.nan).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return np.full(len(array), math.nan)


def is_null(values: pa.ChunkedArray) -> Mask:
    """Which values are null; NaN is a null."""
    return pc.is_null(_plain(values), nan_is_null=True).to_numpy(zero_copy_only=False)


def _plain(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array without a dictionary."""
    array = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) and values.num_chunks else values
    if isinstance(array, pa.ChunkedArray):
        array = pa.nulls(0, array.type)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
