"""Which rows may be used: a bounded number of each privacy unit."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int64, Integer, UInt64

from understudy.tables.cast import as_text


def rows_within_units(
    batches: Iterable[pa.Table], unit: str, columns: Sequence[str], max_rows_per_unit: int
) -> tuple[Bool[np.ndarray, " rows"], Integer[np.ndarray, " rows"]]:
    """Marks `max_rows_per_unit` rows of each unit and none without a unit id; and the number of each row's unit.

    Of a larger unit those rows are marked whose `content_hashes` are the smallest. Rows with equal values in `columns`
    have equal hashes: which of them is marked makes no difference. The batches are read once for its unit ids, and once
    more if there are larger units, for the hashes of their rows. Held in memory: the unit ids, 5 bytes for each row,
    and about 40 for each row of a larger unit.

    Formal guarantee: which rows of a unit are marked depends on the values of that unit's rows alone, and not on where
    they are in the table. So adding or removing a unit adds or removes at most `max_rows_per_unit` marked rows and
    moves no other mark.

    >>> table = pa.table({"who": [1, 1, 1, 2, None], "x": [7, 5, 6, 5, 5]})
    >>> rows_within_units([table], "who", ["x"], 2)[0].tolist()
    [False, True, True, True, False]
    """
    ids = [chunk for batch in batches for chunk in batch.column(unit).chunks]
    numbers = unit_numbers(pa.chunked_array(ids) if ids else pa.nulls(0))
    kept = numbers >= 0
    size = np.bincount(numbers[kept], minlength=1)
    larger = kept & (size[numbers] > max_rows_per_unit)
    if larger.any():
        at = np.flatnonzero(larger)
        hashes = np.concatenate(list(_hashes_of_marked(batches, larger, unit, columns)), axis=1)
        order = np.lexsort((*hashes, numbers[at]))
        rank = _rank_in_runs(numbers[at][order])
        kept[at[order[rank >= max_rows_per_unit]]] = False
    return kept, numbers


def _hashes_of_marked(
    batches: Iterable[pa.Table], marks: np.ndarray, unit: str, columns: Sequence[str]
) -> Iterable[UInt64[np.ndarray, "2 marked"]]:
    start = 0
    for batch in batches:
        marked = pa.array(marks[start : start + batch.num_rows])
        yield content_hashes(batch.filter(marked), unit, columns)
        start += batch.num_rows


def _rank_in_runs(ordered: np.ndarray) -> np.ndarray:
    """For each entry, how many equal ones are directly before it."""
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    return np.arange(len(ordered)) - np.repeat(starts, np.diff(np.r_[starts, len(ordered)]))


def content_hashes(rows: pa.Table, unit: str | None, columns: Sequence[str]) -> UInt64[np.ndarray, "2 rows"]:
    """A number of 128 bits for each row, from its unit id and its values in these columns; the low half first. It gives
    the order of the rows of a unit.

    They depend on nothing else, so a table that is read in other batches, in another order or on a cluster gives the
    same rows. The unit id is among them because the same values would be preferred in every unit otherwise. The rule is
    public and fixed: a unit can foresee which of its rows will be used, and no guarantee relies on that being random.
    """
    state = np.empty((2, rows.num_rows), dtype=np.uint64)
    state[:] = [[1], [2]]
    ids = [] if unit is None else [_plain_ids(rows.column(unit))]
    for values in [*ids, *(rows.column(name) for name in columns)]:
        known, bits = _bits_of(values)
        state = _mix(state ^ np.where(known, bits, _mix(state)))
    return state


def _bits_of(values: pa.ChunkedArray | pa.Array) -> tuple[Bool[np.ndarray, " rows"], UInt64[np.ndarray, "2 rows"]]:
    """Which values are known, and 128 bits that distinguish them: those of a number, or a hash of the text.

    An integer and the text that spells it have the same bits: whether a column of ids holds integers or strings can
    depend on a single row of the table.
    """
    types, kind = pa.types, values.type
    if types.is_dictionary(kind):
        return _bits_of(values.cast(kind.value_type))
    known = pc.is_valid(values).to_numpy(zero_copy_only=False)
    if types.is_floating(kind):
        reals = values.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
        known = ~np.isnan(reals)
        return known, np.broadcast_to((np.where(known, reals, 0.0) + 0.0).view(np.uint64), (2, len(reals)))  # no -0.0
    if types.is_date(kind) or types.is_timestamp(kind) or types.is_boolean(kind):
        values = (values.cast(pa.int32()) if types.is_date32(kind) else values).cast(pa.int64())
    if types.is_integer(values.type):
        integers = values.fill_null(0).to_numpy(zero_copy_only=False)
        # Compared by NumPy: Arrow converts both sides to one type, which no 64-bit number may fail to fit.
        if ((integers > -_LIMIT) & (integers < _LIMIT)).all():
            return known, np.broadcast_to(integers.astype(np.int64).view(np.uint64), (2, len(integers)))
    return known, _bits_of_strings(values)


_LIMIT = 10**18
"""Integers of fewer digits stand for themselves, larger ones for their text."""


def _bits_of_strings(values: pa.ChunkedArray | pa.Array) -> UInt64[np.ndarray, "2 rows"]:
    """Each distinct text is hashed once."""
    chunks = [values] if isinstance(values, pa.Array) else values.chunks
    found = pa.concat_arrays([*as_text(pa.chunked_array(chunks, values.type)).chunks, pa.nulls(0, pa.string())])
    encoded = found.dictionary_encode()
    strings = encoded.dictionary
    spelled = pc.match_substring_regex(strings, "^(0|-?[1-9][0-9]{0,17})$")
    integers = pc.if_else(spelled, strings, "0").cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64)
    hashes = b"".join(hashlib.blake2b(text.encode(), digest_size=16).digest() for text in strings.to_pylist())
    hashed = np.frombuffer(hashes + bytes(16), dtype="<u8").reshape(-1, 2).T
    bits = np.where(spelled.to_numpy(zero_copy_only=False), integers, hashed[:, :-1])
    return np.c_[bits, hashed[:, -1:]][:, encoded.indices.fill_null(len(strings)).to_numpy(zero_copy_only=False)]


def _mix(state: UInt64[np.ndarray, "2 rows"]) -> UInt64[np.ndarray, "2 rows"]:
    """A step of SplitMix64 (Steele, Lea and Flood, 2014): one to one, and each bit depends on all bits."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@runtime_checkable
class RemoteUnits(Protocol):
    """The units of rows that stay on a cluster."""

    def count_sizes(self, bins: int) -> Int64[np.ndarray, " bins"]:
        """How many units own 1, 2, ... `bins` (or more) rows. Exact: noise must follow."""


def count_unit_sizes(units: np.ndarray | RemoteUnits, bins: int) -> Int64[np.ndarray, " bins"]:
    """How many units own 1, 2, ... `bins` (or more) rows, by the number of each row's unit. Exact: noise must follow.

    >>> count_unit_sizes(np.array([0, 1, 0, 2, 0]), 2).tolist()
    [2, 1]
    """
    if not isinstance(units, np.ndarray):
        return units.count_sizes(bins)
    return np.bincount(np.minimum(np.bincount(units), bins), minlength=bins + 1)[1:]


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


def unit_keys(unit_ids: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A hash of 128 bits of each id, by which a cluster groups rows: its files then hold no id. Equal for equal ids of
    any type.

    Units with the same hash would be limited as one. Among a billion ids, some two have the same hash with probability
    1e-21.

    >>> keys = unit_keys(pa.array([7, 8, 7])).to_pylist()
    >>> keys[0] == keys[2] != keys[1], keys == unit_keys(pa.array(["7", "8", "7"])).to_pylist()
    (True, True)
    """
    strings = as_text(pa.chunked_array([_plain_ids(unit_ids)])).chunks
    encoded = pa.concat_arrays([*strings, pa.nulls(0, pa.string())]).dictionary_encode()
    hashes = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in encoded.dictionary.to_pylist()]
    return pa.array(hashes, pa.binary()).take(encoded.indices)


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
