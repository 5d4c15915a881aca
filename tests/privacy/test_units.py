"""Which rows of a unit may be used: a rule that depends on that unit alone."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.privacy.units import rows_within_units

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
