"""Which rows may be used: a bounded number of each privacy unit."""

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.tables.cast import as_text


def rows_within_units(
    unit_ids: pa.ChunkedArray | pa.Array, max_rows_per_unit: int, order_in_unit: np.ndarray | None = None
) -> np.ndarray:
    """Marks the first `max_rows_per_unit` rows of each unit; rows without a unit id are left out.

    The first by `order_in_unit`, and of rows that are equal there, or without it, in the order of the table.

    Ids of fractional types are compared as texts, in which 7.0 is "7", as it is in a column of texts or objects.

    Formal guarantee: which rows of a unit are kept depends on that unit's rows alone, so adding or removing a unit adds
    or removes at most `max_rows_per_unit` marked rows and moves no other mark. With the order of `content_order` it
    depends on the content of the rows, and not on where they are in the table.
    """
    unit_ids = _plain_ids(unit_ids)
    known = pc.is_valid(unit_ids).to_numpy(zero_copy_only=False)
    codes = unit_numbers(unit_ids)
    order = np.argsort(codes, kind="stable") if order_in_unit is None else np.lexsort((order_in_unit, codes))
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, dtype=int)
    rank = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.r_[starts, len(ordered)]))
    kept = np.zeros(len(codes), dtype=bool)
    kept[order] = rank < max_rows_per_unit
    return kept & known


def content_order(rows: pa.Table, columns: Sequence[str]) -> np.ndarray:
    """A number for each row by which the rows of a unit are ordered: a hash of its values, so equal rows are alike.

    Which of many rows of a unit are used then follows from their content: a table that is read in parts, in another
    order or on a cluster gives the same rows.
    """
    state = np.zeros(rows.num_rows, dtype=np.uint64)
    for name in columns:
        values = pa.concat_arrays([*rows.column(name).chunks, pa.nulls(0, rows.column(name).type)])
        known = pc.is_valid(values).to_numpy(zero_copy_only=False)
        state = _mix(state ^ np.where(known, _mix(_bits_of(values)), np.uint64(0)))
    return state


def _bits_of(values: pa.Array) -> np.ndarray:
    """64 bits of each value: of a number its own, of anything else a hash of its text."""
    types, kind = pa.types, values.type
    if types.is_dictionary(kind):
        values, kind = values.dictionary_decode(), kind.value_type
    if types.is_integer(kind) or types.is_timestamp(kind) or types.is_date(kind) or types.is_boolean(kind):
        plain = values.cast(pa.int32()) if types.is_date32(kind) else values
        return plain.cast(pa.int64(), safe=False).fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
    if types.is_floating(kind):
        return (values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0).view(np.uint64)
    found = pa.concat_arrays(
        [*as_text(pa.chunked_array([values])).chunks, pa.nulls(0, pa.string())]
    ).dictionary_encode()
    hashes = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in found.dictionary.to_pylist()]
    listed = np.frombuffer(b"".join([*hashes, bytes(8)]), dtype="<u8")
    return listed[found.indices.fill_null(len(hashes)).to_numpy(zero_copy_only=False)]


def _mix(state: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele, Lea and Flood, 2014)."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (state ^ (state >> np.uint64(31))) + np.uint64(0x9E3779B97F4A7C15)


def choose_units(
    unit_ids: pa.ChunkedArray | pa.Array | None, num_rows: int, probability: float, coins: np.random.Generator
) -> np.ndarray:
    """Marks all rows of units that are chosen, each by a coin of its own; a row without a unit id is a unit of its own.

    Formal guarantee: whether a unit is chosen does not depend on any other unit. So adding or removing a unit adds or
    removes this unit's rows among the marked or among the other rows, and the law of all other marks stays the same: a
    mechanism that is run on either part keeps its guarantee.
    """
    if unit_ids is None:
        return coins.random(num_rows) < probability
    numbers = unit_numbers(unit_ids).astype(np.int64)
    alone = numbers < 0
    numbers[alone] = numbers.max(initial=-1) + 1 + np.arange(np.count_nonzero(alone))
    return (coins.random(numbers.max(initial=-1) + 1) < probability)[numbers]


def unit_numbers(unit_ids: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """The number of each row's unit; -1 without a unit id. Never leaves the machine."""
    indices = _plain_ids(unit_ids).dictionary_encode().indices
    return indices.fill_null(-1).to_numpy(zero_copy_only=False)


def _plain_ids(unit_ids: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(unit_ids, pa.ChunkedArray):
        unit_ids = unit_ids.combine_chunks()
    # A dictionary may list one id twice, or a null; floats may be NaN, which is no id, or zeros of two signs.
    if pa.types.is_dictionary(unit_ids.type):
        unit_ids = unit_ids.dictionary_decode()
    if pa.types.is_floating(unit_ids.type) or pa.types.is_decimal(unit_ids.type):
        unit_ids = pa.chunked_array([unit_ids]) if isinstance(unit_ids, pa.Array) else unit_ids
        unit_ids = pa.concat_arrays([*as_text(unit_ids).chunks, pa.nulls(0, pa.string())])
    return unit_ids
