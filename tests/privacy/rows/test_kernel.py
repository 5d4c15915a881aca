"""The counting kernel: the same counts however cliques are joined and rows are divided."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.privacy.rows import kernel as counting
from understudy.privacy.rows.codes import ArrayCodes, code_type
from understudy.privacy.rows.device_kernel import count_on_device
from understudy.privacy.rows.kernel import Columns, count_workload, join_cliques, split_counts

CODE_TYPE = code_type((9,))


@st.composite
def tables(draw: st.DrawFn) -> tuple[np.ndarray, tuple[int, ...], list[Columns]]:
    """Codes, the number of codes of each column, and a workload."""
    sizes = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=5)))
    rows = draw(st.lists(st.tuples(*(st.integers(0, size - 1) for size in sizes)), max_size=30))
    cliques = st.lists(st.sampled_from(range(len(sizes))), max_size=3, unique=True).map(tuple)
    codes = np.array(rows, dtype=CODE_TYPE).reshape(len(rows), len(sizes))
    return np.asfortranarray(codes) if draw(st.booleans()) else codes, sizes, draw(st.lists(cliques, max_size=8))


def counts_one_by_one(codes: np.ndarray, workload: list[Columns], sizes: tuple[int, ...]) -> list[np.ndarray]:
    """The definition: every row adds one to its cell of every marginal."""
    found = [np.zeros([sizes[column] for column in clique], dtype=np.int64) for clique in workload]
    for row in codes.tolist():
        for table, clique in zip(found, workload, strict=True):
            table[tuple(row[column] for column in clique)] += 1
    return found


def check(codes: np.ndarray, workload: list[Columns], sizes: tuple[int, ...], found: np.ndarray) -> None:
    assert found.dtype == np.int64
    expected = counts_one_by_one(codes, workload, sizes)
    for table, own in zip(split_counts(found, workload, sizes), expected, strict=True):
        assert table.shape == own.shape
        np.testing.assert_array_equal(table, own)


@given(tables())
def test_counts_are_the_definition(case: tuple[np.ndarray, tuple[int, ...], list[Columns]]) -> None:
    codes, sizes, workload = case
    check(codes, workload, sizes, count_workload(codes, workload, sizes))


@given(tables(), st.integers(1, 8), st.sampled_from([1, 4, 100]), st.integers(1, 30), st.integers(1, 4))
def test_parts_threads_and_joint_cliques_change_nothing(
    case: tuple[np.ndarray, tuple[int, ...], list[Columns]], at_once: int, joint: int, cells: int, threads: int
) -> None:
    codes, sizes, workload = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "ROWS_AT_ONCE", at_once)
        patch.setattr(counting, "JOINT_CELLS", joint)
        patch.setattr(counting, "CELLS_AT_ONCE", cells)
        check(codes, workload, sizes, count_workload(codes, workload, sizes, threads=threads))


def test_a_device_counts_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the device is the processor; the program is that of a GPU."""
    monkeypatch.setattr("understudy.privacy.rows.device_kernel.PART_ROWS", 64)
    draw = np.random.default_rng(0)
    sizes = (3, 300, 7, 1)
    workload: list[Columns] = [(1, 0), (0,), (2, 3, 0), (), (0, 1)]
    for num_rows in (0, 1, 64, 200):
        codes = draw.integers(0, sizes, (num_rows, 4)).astype(np.uint16)
        here = count_workload(codes, workload, sizes)
        np.testing.assert_array_equal(count_workload(codes, workload, sizes, on_device=True), here)
        check(codes, workload, sizes, here)
        assert all(each.dtype == np.int64 for each in count_on_device(codes, workload, sizes))


def test_codes_at_the_end_of_their_type() -> None:
    """Cells are computed in 16 bits where they fit, and in 64 where they do not."""
    sizes = (256, 256, 2)
    codes = np.array([[255, 255, 1], [0, 0, 0], [255, 0, 1]], dtype=np.uint8)
    workload: list[Columns] = [(0, 1), (0, 1, 2)]
    check(codes, workload, sizes, count_workload(codes, workload, sizes))


@given(st.lists(st.integers(1, 40), min_size=2, max_size=7), st.integers(1, 3000))
def test_joint_cliques_hold_their_cliques_within_the_limit(sizes: list[int], most: int) -> None:
    workload = tuple(itertools.combinations(range(len(sizes)), 2))
    for clique, group in join_cliques(workload, tuple(sizes), most).items():
        assert set(clique) <= set(group)
        assert group == clique or math.prod(sizes[column] for column in group) <= most


def test_joint_cliques_save_passes() -> None:
    workload = tuple(itertools.combinations(range(10), 2))
    assert len(set(join_cliques(workload, (32,) * 10, 2**15).values())) <= 20
    assert len(set(join_cliques(workload, (2,) * 10, 2**15).values())) == 1


@given(tables(), st.data())
def test_chosen_columns_are_counted_where_they_stand(
    case: tuple[np.ndarray, tuple[int, ...], list[Columns]], data: st.DataObject
) -> None:
    codes, sizes, _ = case
    at = data.draw(st.lists(st.sampled_from(range(len(sizes))), min_size=1, unique=True))
    chosen = ArrayCodes(codes).only(at)
    workload: list[Columns] = [tuple(range(len(at))), (len(at) - 1,)]
    own_sizes = tuple(sizes[column] for column in at)
    check(codes[:, at], workload, own_sizes, chosen.count(workload, own_sizes))
    np.testing.assert_array_equal(chosen.array, codes[:, at])
    again = chosen.only([len(at) - 1])
    np.testing.assert_array_equal(again.array, codes[:, [at[-1]]])


@pytest.mark.parametrize("size", [255, 256, 257, 65_535, 65_536, 65_537])
def test_cells_fit_into_their_type(size: int) -> None:
    """At the ends of the narrow types, beside a column of a single code."""
    codes = np.array([[0, 0], [0, size - 1], [0, size - 1]], dtype=code_type((1, size)))
    for clique in ((0, 1), (1, 0), (1,)):
        counts = count_workload(codes, [clique], (1, size))
        assert (counts[0], counts[-1], counts.sum()) == (1, 2, 3)
