"""Which rows of a unit may be used: a rule that depends on that unit alone."""

import collections
import hashlib
import itertools
import random
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.examples import scaled
from understudy.privacy.rows.table import PrivateTable, hold_out
from understudy.privacy.rows.units import choose_units, content_hashes, rows_within_units

units = st.lists(st.one_of(st.none(), st.sampled_from("abcde")), max_size=25)


def kept_rows(ids: pa.Array | pa.ChunkedArray, k: int, **columns: object) -> np.ndarray:
    table = pa.table({"who": ids, **columns})
    return rows_within_units([table], "who", list(columns), k)[0]


@settings(max_examples=scaled(60))
@given(ids=units, k=st.integers(1, 4), gone=st.sampled_from("abcde"), draw=st.randoms(use_true_random=False))
def test_removing_a_unit_moves_no_other_mark(ids: list[str | None], k: int, gone: str, draw: random.Random) -> None:
    """At most k rows of a unit are marked, and the marks of all other units stay where they are."""
    x = [draw.randrange(5) for _ in ids]
    kept = kept_rows(pa.array(ids, pa.string()), k, x=pa.array(x, pa.int64()))
    assert not kept[[each is None for each in ids]].any()
    for unit in "abcde":
        mine = np.array([each == unit for each in ids], dtype=bool)
        assert kept[mine].sum() == min(k, mine.sum())
    stay = np.array([each != gone for each in ids], dtype=bool)
    fewer = [value for value, stays in zip(x, stay, strict=True) if stays]
    without = kept_rows(pa.array([i for i in ids if i != gone], pa.string()), k, x=pa.array(fewer, pa.int64()))
    assert np.array_equal(without, kept[stay])


# Which rows of a larger unit


def visits(num_rows: int = 300) -> pa.Table:
    """Rows of 20 units, with values of every type and nulls among them."""
    draw = np.random.default_rng(3)
    known = draw.random(num_rows) < 0.8
    whole = draw.integers(-3, 3, num_rows)
    columns: dict[str, pa.Array] = {
        "text": pa.array(np.array(["x", "y", "17"])[whole % 3], mask=~known),
        "whole": pa.array(whole, mask=~known),
        "real": pa.array(np.array([0.0, -0.0, 1.5, 2.5])[whole % 4], mask=~known),
        "flag": pa.array(whole > 0, mask=~known),
        "day": pa.array(whole.astype("datetime64[D]"), mask=~known),
        "time": pa.array(whole.astype("datetime64[us]"), mask=~known),
    }
    who = [None if number % 31 == 0 else f"p{number}" for number in draw.integers(0, 20, num_rows)]
    return pa.table({"who": who, **columns})


def contents(table: pa.Table, marks: np.ndarray) -> collections.Counter:
    return collections.Counter(str(row) for row in table.filter(pa.array(marks)).to_pylist())


@settings(max_examples=scaled(30))
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, 300), max_size=5), k=st.integers(1, 9))
def test_the_rows_that_are_used_follow_from_their_content(seed: int, cuts: list[int], k: int) -> None:
    """Not from their order in the table, nor from the batches in which it is read."""
    table, names = visits(), ["text", "whole", "real", "flag", "day", "time"]
    expected = contents(table, rows_within_units([table], "who", names, k)[0])
    moved = table.take(np.random.default_rng(seed).permutation(table.num_rows))
    edges = [0, *sorted(cuts), table.num_rows]
    batches = [moved.slice(start, stop - start) for start, stop in itertools.pairwise(edges)]
    assert contents(moved, rows_within_units(batches, "who", names, k)[0]) == expected


def test_no_value_is_preferred() -> None:
    """Each of a unit's rows is used equally often over the units, whatever its value, and so is each pair of rows.

    Two-sided: the statistics have chi-square laws, and each false alarm a probability of 1e-6. Without the unit id in
    the hash, or by order in the table, the same rows would be used in every unit.
    """
    num_units, per_unit, k = 4000, 6, 3
    who, value = np.repeat(np.arange(num_units), per_unit), np.tile(np.arange(per_unit), num_units)
    for ids, values in ((who, value), (who.astype(str), np.char.add("v", value.astype(str))), (who, value * 0.25)):
        kept = kept_rows(pa.array(ids), k, x=pa.array(values)).reshape(num_units, per_unit)
        sums = kept.sum(axis=0)
        spread = num_units * (k / per_unit) * (1 - k / per_unit)
        # Uniform over subsets: counts of values have a covariance with n - 1 equal eigenvalues.
        statistic = np.sum((sums - num_units * k / per_unit) ** 2) / spread * (per_unit - 1) / per_unit
        assert stats.chi2.sf(statistic, per_unit - 1) > 1e-6
        assert stats.chi2.cdf(statistic, per_unit - 1) > 1e-6
        subsets = np.unique(kept @ (1 << np.arange(per_unit)), return_counts=True)[1]
        assert len(subsets) == 20
        assert stats.chisquare(subsets).pvalue > 1e-6


@pytest.mark.parametrize("odd", ["x", "1.5", str(2**70)])
def test_a_text_among_the_ids_does_not_change_which_rows_of_others_are_used(odd: str) -> None:
    """Whether a column of ids is read as integers or as texts can depend on one row."""
    for ids in (
        np.array([3, -4, 0, 10**18 - 1]),
        np.array([3, 10**18, -(2**63)]),
        np.array([3, 2**63 + 77, 2**64 - 1], dtype=np.uint64),
    ):
        who = np.repeat(ids, 9)
        x = np.arange(len(who)) % 9
        numbers = kept_rows(pa.array(who), 2, x=pa.array(x))
        texts = kept_rows(pa.array([*map(str, who.tolist()), odd]), 2, x=pa.array([*x, 1]))
        assert texts.tolist() == [*numbers.tolist(), True]


def test_values_that_differ_have_other_hashes() -> None:
    """Of every type, nulls included; zeros of two signs, dictionaries and chunks make no difference."""
    words = [0, 1, -1, None, 10**18, -(10**18), 2**63 - 1]
    for values in (
        pa.array(words),
        pa.array([0, 1, None, 10**18, 2**63 - 1, 2**63, 2**64 - 1], pa.uint64()),
        pa.array(["", "0", "00", "-0", "+1", "1", "1 ", " 1", "é", "1" * 18, "1" * 19, None]),
        pa.array([0.0, 0.5, -1.0, None, 1e300, float("inf")]),
        pa.array([True, False, None]),
        pa.array([0, 1, None], pa.date32()),
        pa.array([0, 1, None], pa.timestamp("us", "UTC")),
    ):
        hashes = content_hashes(pa.table({"who": ["a"] * len(values), "x": values}), "who", ["x"])
        assert len(set(map(tuple, hashes.T.tolist()))) == len(values)
        for half in hashes:
            assert len(set(half.tolist())) == len(values)
    one = content_hashes(pa.table({"who": [1, 1], "x": [0.0, 2.0]}), "who", ["x"])
    same = pa.chunked_array([pa.array([-0.0]).dictionary_encode(), pa.array([2.0]).dictionary_encode()])
    assert np.array_equal(one, content_hashes(pa.table({"who": [1, 1], "x": same}), "who", ["x"]))
    assert not np.array_equal(one, content_hashes(pa.table({"who": [2, 2], "x": [0.0, 2.0]}), "who", ["x"]))


def test_hashes_are_fixed() -> None:
    """A release can be made again with the rows of another version: computed by the definition, row by row."""

    def mixed(state: int) -> int:
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
        return state ^ state >> 31

    digest = hashlib.blake2b(b"north", digest_size=16).digest()
    rows = pa.table({"who": ["7"], "town": ["north"], "age": [-2], "pay": [2.5], "none": pa.nulls(1, pa.int64())})
    for number, found in enumerate(content_hashes(rows, "who", ["town", "age", "pay", "none"])[:, 0].tolist()):
        town = int.from_bytes(digest[8 * number : 8 * number + 8], "little")
        state = number + 1
        for bits in (7, town, 2**64 - 2, int.from_bytes(struct.pack("<d", 2.5), "little")):
            state = mixed(state ^ bits)
        assert found == mixed(state ^ mixed(state))


NAN = float("nan")


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        (pa.array([7, 7, None, 8, 7]), [1, 0, 0, 1, 0]),
        (pa.chunked_array([["a", "b"], ["b", "a", "c"]]), [1, 1, 0, 0, 1]),
        (
            pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", "a"]).dictionary_encode()]),
            [1, 1, 0, 0],
        ),
        # A dictionary may list one id twice, or hold a null that no index shows.
        (pa.DictionaryArray.from_arrays([0, 1, 0, 1], ["a", "a"]), [1, 0, 0, 0]),
        (pa.DictionaryArray.from_arrays([0, 1, 1], pa.array(["a", None])), [1, 0, 0]),
        # NaN is no id: two people without one must not share a unit.
        (pa.array([1.0, NAN, 1.0, NAN, 2.0, None]), [1, 0, 0, 0, 1, 0]),
        (pa.array([0.0, -0.0]), [1, 0]),
        (pa.nulls(3), [0, 0, 0]),
        (pa.array([], pa.string()), []),
        (pa.chunked_array([], pa.int64()), []),
    ],
    ids=[
        "null",
        "chunks",
        "dictionary",
        "twice listed",
        "null listed",
        "nan",
        "zeros",
        "all null",
        "empty",
        "no chunk",
    ],
)
def test_ids_of_every_make(ids: pa.Array | pa.ChunkedArray, kept: list[int]) -> None:
    assert kept_rows(ids, 1).tolist() == [bool(mark) for mark in kept]


# Units that are held out


def test_a_coin_decides_about_all_rows_of_a_unit_and_no_other() -> None:
    """Two-sided: the fraction of units, and the correlation of two units, over many splits."""
    ids = pa.array(["a", "b", "a", "c", None, None])
    coins = np.random.default_rng(0)
    marks = np.array([choose_units(ids, 6, 0.3, coins) for _ in range(20_000)])
    assert (marks[:, 0] == marks[:, 2]).all()
    units = marks[:, [0, 1, 3, 4, 5]]  # rows without an id have coins of their own
    assert units.mean(axis=0) == pytest.approx(0.3, abs=0.015)
    correlations = np.corrcoef(units.T)[np.triu_indices(5, 1)]
    assert np.abs(correlations).max() < 0.035


def test_removing_a_unit_leaves_the_law_of_all_other_marks() -> None:
    """Over many splits, the others are chosen together as often with the unit as without it."""
    ids, fewer = pa.array(["x", "a", "b", "a"]), pa.array(["a", "b", "a"])
    coins = np.random.default_rng(0)
    with_x = np.array([choose_units(ids, 4, 0.4, coins)[1:] for _ in range(20_000)])
    without = np.array([choose_units(fewer, 3, 0.4, coins) for _ in range(20_000)])
    for pattern in ([0, 0, 0], [1, 0, 1], [0, 1, 0], [1, 1, 1]):
        frequencies = [(marks == pattern).all(axis=1).mean() for marks in (with_x, without)]
        assert frequencies[0] == pytest.approx(frequencies[1], abs=0.02)
    assert with_x.any(axis=1).mean() == pytest.approx(1 - 0.6**2, abs=0.015)


def test_rows_without_units_have_independent_coins() -> None:
    marks = choose_units(None, 50_000, 0.2, np.random.default_rng(0))
    assert marks.mean() == pytest.approx(0.2, abs=0.01)
    assert np.corrcoef(marks[1:], marks[:-1])[0, 1] == pytest.approx(0.0, abs=0.02)
    assert len(choose_units(pa.array([], pa.string()), 0, 0.5, np.random.default_rng(0))) == 0


def test_held_out_units_are_not_in_the_table_to_fit() -> None:
    table = pa.table({"person": [1, 1, 2, 3, 4], "x": [1, 2, 3, 4, 5]})
    rest, held = hold_out(PrivateTable(table), "person", 0.5, np.random.default_rng(0))
    assert sorted([*rest._table["x"].to_pylist(), *held["x"].to_pylist()]) == [1, 2, 3, 4, 5]
    assert not set(rest._table["person"].to_pylist()) & set(held["person"].to_pylist())
