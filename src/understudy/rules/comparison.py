"""Values of rows and of public lists, compared by rules: as strings and as floats, whatever their types."""

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.rules.keys import LookupRow
from understudy.rules.values import Category

Mask: TypeAlias = np.ndarray


def match_lookup(table: pa.Table, columns: Sequence[str], listed: Sequence[LookupRow]) -> tuple[Mask, np.ndarray]:
    """Which rows have a value in all of the columns; and the index of each row in the list, or -1."""
    known = ~np.any([is_null(table.column(name)) for name in columns], axis=0)
    keys = _join_strings([pa.array([as_text(row[at]) for row in listed], pa.string()) for at in range(len(columns))])
    index = pc.index_in(_join_strings([as_strings(table.column(name)) for name in columns]), value_set=keys)
    return known, pc.fill_null(index, -1).to_numpy(zero_copy_only=False).astype(np.int64)


def _join_strings(columns: Sequence[pa.Array]) -> pa.Array:
    """One string for each row, with the length of each part, so that different rows have different strings."""
    parts = [each for strings in columns for each in (pc.binary_length(strings).cast(pa.string()), strings)]
    return parts[1] if len(columns) == 1 else pc.binary_join_element_wise(*parts, ":")


def as_strings(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Values as strings in which 1, 1.0 and "1" are equal, so that lists match columns of any type."""
    array = plain_array(values)
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
    """One value of a list as a string, in the form of `as_strings`."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)  # of any size, unlike those of Arrow
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if 1e-4 <= abs(value) < 1e10:  # as Arrow writes it, but faster
        return repr(value)
    return str(as_strings(pa.array([value]))[0])


def equal_to_listed(values: pa.ChunkedArray, listed: Sequence[Category | None], index: np.ndarray) -> tuple[Mask, Mask]:
    """Which rows have a value where the list has one, and which of them the same as the list at their index."""
    strings = pa.array([*(as_text(value) for value in listed), None], pa.string())
    expected = strings.take(pa.array(np.where(index < 0, len(listed), index)))
    same = pc.fill_null(pc.equal(as_strings(values), expected), False).to_numpy(zero_copy_only=False)
    return ~is_null(values) & pc.is_valid(expected).to_numpy(zero_copy_only=False), same


def as_floats(values: pa.ChunkedArray) -> np.ndarray:
    """Values as floats; NaN for nulls and for what is not a number."""
    array = plain_array(values)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        from understudy.rules.conditions import compute

        array = compute(pa.table({"v": array}), "TRY_CAST(v AS DOUBLE)", pa.float64())
    try:
        return np.asarray(array.cast(pa.float64(), safe=False).fill_null(math.nan))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return np.full(len(array), math.nan)


def is_null(values: pa.ChunkedArray) -> Mask:
    """Which values are null; NaN is a null."""
    return np.asarray(pc.is_null(plain_array(values), nan_is_null=True))


def plain_array(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array, without a dictionary."""
    array = values
    if isinstance(values, pa.ChunkedArray):
        array = pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, values.type)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
