"""Accuracy over the cells of a contingency table, against slow counts."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from tests.evaluation.encoded import encode, slow_counts, slow_l1, slow_tv, some_pair
from understudy.evaluation import cells
from understudy.evaluation.cells import cell_accuracy, cells_won, default_cells
from understudy.evaluation.table import EncodedTable, Layout


@pytest.fixture(scope="module")
def pair() -> tuple[EncodedTable, EncodedTable]:
    return some_pair()


def test_cell_accuracy_of_550_cells_includes_the_empty_ones() -> None:
    """Race, Hispanic origin and sex of a census: 11 x 25 x 2 cells, most of them empty."""
    sizes = {"race": 11, "hispanic": 25, "sex": 2}
    columns = tuple(
        us.Column(name=n, kind="categorical", categories=tuple(range(k)), nullable=False, closed=True)
        for n, k in sizes.items()
    )
    draw = np.random.default_rng(0)
    tables = [{n: (k * draw.random(rows) ** 4).astype(int) for n, k in sizes.items()} for rows in (300, 200)]
    real, fake = encode(*tables, schema=us.Schema(columns=columns))
    result = cell_accuracy(real, fake)
    assert result.details["cells"] == 550
    assert result.settings["columns"] == ["race", "hispanic", "sex"]
    counts = [slow_counts(table, ("race", "hispanic", "sex"), 20) for table in (real, fake)]
    every = itertools.product(*(range(k) for k in sizes.values()))
    accuracy = np.mean([1 - abs(counts[0][cell] / 300 - counts[1][cell] / 200) for cell in every])
    assert result["cell_accuracy"] == pytest.approx(accuracy, abs=1e-12)
    assert result["cell_tv"] == pytest.approx(slow_l1(*counts) / 2)
    assert result["cell_accuracy"] == pytest.approx(1 - 2 * result["cell_tv"] / 550, abs=1e-12)


def test_cells_are_levels_and_nulls_where_real_rows_have_them(pair: tuple[EncodedTable, EncodedTable]) -> None:
    result = cell_accuracy(*pair, ["degree", "city", "income"])
    assert result.details["cells"] == (3 + 1) * 4 * (20 + 1)
    assert result.details["outside"] == [0.0, pytest.approx(9 / 450)]  # the unlisted city
    assert result["cell_tv"] == pytest.approx(slow_tv(*pair, ("degree", "city", "income"), 20))


def test_too_many_cells_are_refused(pair: tuple[EncodedTable, EncodedTable], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "MAX_CELLS", 400)
    result = cell_accuracy(*pair, ["age", "income"])
    assert not result.scores["cell_accuracy"].is_defined
    assert "joint cells" in result.scores["cell_tv"].why
    won = cells_won(pair[0], {"one": pair[1]}, ["age", "income"])
    assert won["won"] == {}
    assert "joint cells" in str(won["why"])


@pytest.mark.parametrize(
    "sizes",
    [
        {"a": 30, "b": 300, "c": 40, "d": 7, "e": 2, "f": 300, "g": 7, "h": 12_000},
        {"a": 2, "b": 20, "c": 20, "d": 3, "e": 20, "f": 20},
    ],
)
def test_default_cells_are_the_largest_table_that_is_allowed(sizes: dict[str, int]) -> None:
    columns = tuple(
        us.Column(name=n, kind="categorical", categories=tuple(range(k)), nullable=False, closed=True)
        for n, k in sizes.items()
    )
    layout = Layout.of(pa.table({name: [0] for name in sizes}), us.Schema(columns=columns))
    products = {
        names: math.prod(sizes[n] for n in names) for k in (1, 2, 3) for names in itertools.combinations(sizes, k)
    }
    best = max(size for size in products.values() if size <= 10_000)
    chosen = default_cells(layout)
    assert math.prod(sizes[name] for name in chosen) == best
    assert tuple(chosen) == next(names for names, size in products.items() if size == best)


def test_cells_won_counts_ties_apart() -> None:
    real, first, second = encode(
        {"x": ["a", "b", "c", "d", "d", "d"]},
        {"x": ["a", "b", "c", "c", "d", "d"]},  # right in a and b, one too many in c
        {"x": ["a", "c", "c", "d", "d", "d"]},  # right in a and d, one too many in c
    )
    found = cells_won(real, {"first": first, "second": second}, ["x"])
    assert found == {"won": {"first": 3, "second": 1}, "ties": 2, "cells": 4}
    assert cells_won(real, {"second": second, "first": first}, ["x"])["won"] == {"second": 3, "first": 1}
    twice = second.take(np.tile(np.arange(6), 7))  # the same shares of 42 rows
    assert cells_won(real, {"one": second, "other": twice}, ["x"])["ties"] == 4
    assert cells_won(real, {"one": first}, ["x"]) == {"won": {"one": 4}, "ties": 0, "cells": 4}
