"""Which rows of a unit may be used: a rule that depends on that unit alone."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.privacy.table import PrivateTable, hold_out
from understudy.privacy.units import choose_units, rows_within_units

units = st.lists(st.one_of(st.none(), st.sampled_from("abcde")), max_size=25)


@settings(max_examples=60)
@given(ids=units, k=st.integers(1, 4), gone=st.sampled_from("abcde"))
def test_removing_a_unit_moves_no_other_mark(ids: list[str | None], k: int, gone: str) -> None:
    """At most k rows of a unit are marked, and the marks of all other units stay where they are."""
    kept = rows_within_units(pa.array(ids, pa.string()), k)
    assert not kept[[each is None for each in ids]].any()
    for unit in "abcde":
        mine = np.array([each == unit for each in ids], dtype=bool)
        assert kept[mine].sum() == min(k, mine.sum())
        assert kept[mine][:k].all()
    stay = np.array([each != gone for each in ids], dtype=bool)
    without = rows_within_units(pa.array([each for each in ids if each != gone], pa.string()), k)
    assert np.array_equal(without, kept[stay])


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
    assert rows_within_units(ids, 1).tolist() == [bool(mark) for mark in kept]


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
