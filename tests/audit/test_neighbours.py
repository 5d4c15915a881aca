"""Pairs of tables that differ in one unit, and the cells that attacks count."""

from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from understudy.audit.neighbours import CANARIES, NUM_ROWS, ROWS_PER_UNIT, make_neighbours
from understudy.audit.observation import EDGES, Cells
from understudy.schema import as_schema
from understudy.tables import read_table


@pytest.mark.parametrize("canary", CANARIES)
def test_tables_differ_in_one_unit(canary: str, tmp_path: Path) -> None:
    pair = make_neighbours(canary)
    schema = as_schema(pair.schema)
    without, with_canary = (
        read_table(pair.write(tmp_path, with_canary=each), schema=schema)[0].to_pylist() for each in (False, True)
    )
    assert len(without) == NUM_ROWS
    assert with_canary[:NUM_ROWS] == without
    added = with_canary[NUM_ROWS:]
    assert len({str(row) for row in added}) == 1
    if schema.unit is None:
        assert len(added) == 1
    else:
        assert schema.max_rows_per_unit == ROWS_PER_UNIT < len(added)
        assert {row[schema.unit] for row in added}.isdisjoint(row[schema.unit] for row in without)


def test_the_canary_is_what_its_name_says() -> None:
    def others(name: str, column: str) -> set:
        return {row[column] for row in make_neighbours(name).rows}

    def value(name: str, column: str) -> object:
        return make_neighbours(name).added[0][column]

    assert value("category", "group") not in others("category", "group")
    for column in ("group", "amount", "city"):
        assert value("row", column) not in others("row", column)
    pair = make_neighbours("combination")
    for first, second in combinations(pair.columns, 2):
        assert all((row[first], row[second]) != (pair.added[0][first], pair.added[0][second]) for row in pair.rows)
        assert pair.added[0][first] in others("combination", first)
    lower, upper = make_neighbours("bound").schema["columns"]["amount"]["bounds"]
    assert value("bound", "amount") == upper > max(others("bound", "amount"))
    assert value("outside", "amount") > upper
    assert lower < min(others("outside", "amount"))


def test_the_open_schema_declares_kinds_alone() -> None:
    schema = as_schema(make_neighbours("domain").schema)
    assert schema.rows is None
    assert all(column.categories is None and column.bounds is None for column in schema.columns)


@pytest.mark.parametrize("canary", CANARIES)
def test_cells_are_counted(canary: str) -> None:
    """Against a count of tuples; the rows of the canary move its own cells and no others."""
    pair = make_neighbours(canary)
    cells = Cells(pair)
    before, after = (cells.count(pair.table(with_canary=each)) for each in (False, True))
    assert len(before) == cells.size

    def code(name: str, value: object) -> object:
        return sum(value >= edge for edge in EDGES) if name == "amount" else str(value)  # type: ignore[operator]  # the amount is a number

    for clique in [*((name,) for name in pair.columns), *combinations(pair.columns, 2)]:
        slow = Counter(tuple(code(name, row[name]) for name in clique) for row in pair.rows)
        assert sorted(slow.values()) == sorted(_cells_of(before, clique, pair.columns, cells))
    moved = after - before
    at = {*cells.canary, cells.size - 1}
    if canary == "outside":  # a codec would clamp it: the cell that is looked at is that of the bound
        return
    assert {int(index) for index in moved.nonzero()[0]} == at
    assert set(moved[sorted(at)]) == {len(pair.added)}


def _cells_of(counts: np.ndarray, clique: tuple[str, ...], columns: tuple[str, ...], cells: Cells) -> list[int]:
    cliques = [*((i,) for i in range(len(columns))), *combinations(range(len(columns)), 2)]
    start = 0
    for each in cliques:
        size = cells._num_cells(each)
        if tuple(columns[i] for i in each) == clique:
            return [int(count) for count in counts[start : start + size] if count]
        start += size
    raise AssertionError(clique)


def test_unknown_values_and_nulls_have_a_cell() -> None:
    pair = make_neighbours("category")
    odd = pa.table({"group": ["unheard of", None], "amount": [None, 50], "flag": [None, True], "city": ["u", "v"]})
    counts = Cells(pair).count(odd)
    assert counts[: len(("a", "b", "rare", "other"))].tolist() == [0, 0, 0, 2]
