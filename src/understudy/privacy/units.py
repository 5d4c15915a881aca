"""Which rows may be used: a bounded number of each privacy unit."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.tables.cast import as_text


def rows_within_units(unit_ids: pa.ChunkedArray | pa.Array, max_rows_per_unit: int) -> np.ndarray:
    """Marks the first `max_rows_per_unit` rows of each unit; rows without a unit id are left out.

    Ids of fractional types are compared as texts, in which 7.0 is "7", as it is in a column of texts or objects.

    Formal guarantee: which rows of a unit are kept depends on that unit's rows alone (their order in the table), so
    adding or removing a unit adds or removes at most `max_rows_per_unit` marked rows and moves no other mark.
    """
    unit_ids = _plain_ids(unit_ids)
    known = pc.is_valid(unit_ids).to_numpy(zero_copy_only=False)
    codes = unit_numbers(unit_ids)
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, dtype=int)
    rank = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.r_[starts, len(ordered)]))
    kept = np.zeros(len(codes), dtype=bool)
    kept[order] = rank < max_rows_per_unit
    return kept & known


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
