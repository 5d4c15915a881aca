"""Passes over private batches: parts are added in their order, and little is held."""

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from understudy.encoding.reexpression import reexpress
from understudy.errors import ConfigError
from understudy.privacy.mechanisms.discovery import _add_value_counts, _count_values
from understudy.privacy.rows import rows as rows_module
from understudy.privacy.rows.batches import LocalBatches, PrivateBatches, _Marked, add_arrays, add_each
from understudy.privacy.rows.rows import PrivateRows
from understudy.privacy.rows.table import PrivateTable
from understudy.schema import Domain, as_schema
from understudy.schema.grid import Grid


def sizes_of(values: np.ndarray) -> np.ndarray:
    return np.bincount(values, minlength=5)


@given(st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=9))
def test_a_fold_counts_every_row_once(batches: list[list[int]]) -> None:
    arrays = [np.array(batch, dtype=np.int64) for batch in batches]
    folded = LocalBatches(arrays).fold(sizes_of, add_arrays)
    np.testing.assert_array_equal(folded, np.bincount(np.concatenate(arrays), minlength=5))
    both = LocalBatches(arrays).map(lambda values: values % 2).fold(lambda v: (sizes_of(v), sizes_of(v)), add_each)
    np.testing.assert_array_equal(both[0], np.bincount(np.concatenate(arrays) % 2, minlength=5))


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=5), min_size=1, max_size=20))
def test_values_are_counted_in_the_order_in_which_they_first_occur(batches: list[list[str]]) -> None:
    """Noise is drawn in this order, so it must not depend on the batches."""
    source = LocalBatches([{"x": pa.array(batch, pa.string())} for batch in batches])
    (counted,) = source.fold(lambda batch: _count_values(batch, ["x"]), _add_value_counts)
    values = list(itertools.chain(*batches))
    assert counted.column("value").to_pylist() == list(dict.fromkeys(values))
    assert counted.column("count").to_pylist() == [values.count(each) for each in dict.fromkeys(values)]


def test_large_parts_are_added_at_once_and_small_ones_together() -> None:
    calls: list[int] = []

    def add(parts: Sequence[np.ndarray]) -> np.ndarray:
        calls.append(len(parts))
        return add_arrays(list(parts))

    total = LocalBatches([np.ones(8, dtype=np.int64)] * 50).fold(np.copy, add)
    assert total.tolist() == [50] * 8
    assert set(calls) == {2}, "parts as large as their sum must not wait"
    calls.clear()

    def join(parts: Sequence[np.ndarray]) -> np.ndarray:
        calls.append(len(parts))
        return np.concatenate(parts)

    joined = LocalBatches(list(np.arange(200)[:, None])).fold(np.copy, join)
    assert joined.tolist() == list(range(200))
    assert len(calls) < 20, "parts that add up must be joined a few times only"


def test_marks_follow_the_rows_through_the_batches() -> None:
    batches = [pa.table({"x": [0, 1, 2]}), pa.table({"x": [3]}), pa.table({"x": [4, 5]})]
    kept = _Marked(batches, np.array([True, False, True, False, False, True]))
    assert [batch.column("x").to_pylist() for batch in kept] == [[0, 2], [], [5]]
    assert [batch.num_rows for batch in kept] == [2, 0, 1], "batches can be read again"


class RemoteCodes:
    """Codes that count the passes made over them, and hand out no row."""

    def __init__(self, codes: np.ndarray):
        self._here, self.passes = PrivateRows(codes, DOMAIN)._held, 0

    def count(self, workload: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> np.ndarray:
        self.passes += 1
        return self._here.count(workload, sizes)

    def only(self, at: Sequence[int]) -> "RemoteCodes":
        raise AssertionError

    def part(self, kept: np.ndarray) -> "RemoteCodes":
        raise AssertionError

    @property
    def array(self) -> np.ndarray:
        raise ConfigError("rows stay where they are")


DOMAIN = Domain(names=("a", "b", "c"), sizes=(2, 3, 4), num_rows=9)
PAIRS = list(itertools.combinations(DOMAIN.names, 2))


def test_one_pass_counts_a_whole_workload() -> None:
    codes = RemoteCodes(np.random.default_rng(0).integers(0, DOMAIN.sizes, (50, 3)))
    rows = PrivateRows(codes, DOMAIN)
    counted = [rows._exact_counts(clique) for clique in rows._counted_ahead(PAIRS)]
    assert codes.passes == 1
    here = PrivateRows(codes._here, DOMAIN)
    for clique, counts in zip(PAIRS, counted, strict=True):
        np.testing.assert_array_equal(counts, here._exact_counts(clique))
        np.testing.assert_array_equal(rows._exact_counts(clique), counts)
    assert codes.passes == 1, "counts are kept"
    assert rows._exact_counts(("b", "a")).shape == (3, 2)


def test_a_long_workload_takes_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "PASS_CELLS", 10)  # pairs have 6, 8 and 12 cells
    codes = RemoteCodes(np.zeros((5, 3), dtype=np.int64))
    assert list(PrivateRows(codes, DOMAIN)._counted_ahead(PAIRS)) == PAIRS
    assert codes.passes == 2


def test_kept_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are dropped and counted again; a table that is larger than the bound alone is kept."""
    codes = RemoteCodes(np.zeros((5, 3), dtype=np.int64))
    rows = PrivateRows(codes, DOMAIN)
    monkeypatch.setattr(rows_module, "CACHE_BYTES", 14)  # one byte for each cell
    for clique in PAIRS:
        rows._exact_counts(clique)
    assert [clique in rows._cache for clique in PAIRS] == [False, False, True]
    assert rows._exact_counts(PAIRS[0]).dtype == np.int64
    assert codes.passes == 4
    monkeypatch.setattr(rows_module, "CACHE_BYTES", 1)
    assert rows._exact_counts(("a", "b", "c")).sum() == 5


def test_a_table_says_whether_its_rows_are_here() -> None:
    table = PrivateTable(pa.table({"x": [1]}))
    assert isinstance(table._batches, PrivateBatches)
    assert not table.is_remote


def test_what_runs_in_a_pass_can_be_sent_to_a_cluster() -> None:
    """By cloudpickle, as Spark sends functions: no open file or connection is among what they hold."""
    cloudpickle = pytest.importorskip("cloudpickle")
    schema = as_schema(
        {
            "columns": {
                "town": {"kind": "categorical", "categories": ["a", "b"]},
                "age": {"kind": "integer", "bounds": [0, 90]},
                "start": {"kind": "integer", "bounds": [0, 90]},
            },
            "rules": [{"keep": "start <= age"}],
        }
    )
    rows = pa.table({"town": ["a", "b"], "age": [40, 7], "start": [3, 9]})
    release = us.fit(rows, "independent", epsilon=1, schema=schema)
    sent = cloudpickle.loads(cloudpickle.dumps((reexpress(schema).express, release.codec.encode_modelled, Grid.cells)))
    np.testing.assert_array_equal(
        sent[1](sent[0](rows)), release.codec.encode_modelled(reexpress(schema).express(rows))
    )
