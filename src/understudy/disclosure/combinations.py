"""Rare combinations of quasi-identifiers, and how many synthetic rows have one."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from understudy.disclosure.membership import Copies, measure_copies
from understudy.disclosure.rates import Rate
from understudy.evaluation.table import EncodedTable
from understudy.evaluation.validity import fingerprints

MIN_CELL = 5
"""Default: combinations that fewer training rows have are small cells."""


@dataclasses.dataclass(frozen=True)
class SmallCells:
    """Combinations that only a few training rows have."""

    most_rows: int
    """Of the training table, in one combination."""
    combinations: int
    training_rows: int
    synthetic: Rate
    """Synthetic rows with such a combination."""
    held_out: Rate
    """Held-out rows with such a combination."""
    expected: float
    expected_low: float
    expected_high: float
    """The number of synthetic rows expected from the held-out rows, and its interval."""


@dataclasses.dataclass(frozen=True)
class Combinations:
    """Figures about declared quasi-identifiers."""

    columns: tuple[str, ...]
    num_combinations: int
    """In the training table."""
    unique: SmallCells
    small: SmallCells
    once: Copies
    """The fraction of combinations of one row among all real rows that the synthetic table has."""


def measure_combinations(
    real: EncodedTable, holdout: EncodedTable, synthetic: EncodedTable, columns: Sequence[str], min_cell: int
) -> Combinations:
    """Count rare combinations in the training table, and the synthetic and held-out rows that have one."""
    tables = [_select(table, columns) for table in (real, holdout, synthetic)]
    distinct, counts = np.unique(fingerprints(tables[0]), return_counts=True)
    unique, small = (_small_cells(distinct, counts, tables[1], tables[2], most) for most in (1, min_cell - 1))
    return Combinations(tuple(columns), len(distinct), unique, small, measure_copies(tables[0], tables[1], tables[2]))


def _small_cells(
    distinct: np.ndarray, counts: np.ndarray, holdout: EncodedTable, synthetic: EncodedTable, most_rows: int
) -> SmallCells:
    few = counts <= most_rows
    held_out, matched = (
        Rate.of(int(np.isin(fingerprints(table), distinct[few]).sum()), table.num_rows)
        for table in (holdout, synthetic)
    )
    expected = [synthetic.num_rows * rate for rate in (held_out.value, held_out.low, held_out.high)]
    return SmallCells(most_rows, int(few.sum()), int(counts[few].sum()), matched, held_out, *expected)


def _select(table: EncodedTable, columns: Sequence[str]) -> EncodedTable:
    layout = dataclasses.replace(table.layout, columns=tuple(table.layout[name] for name in columns))
    return EncodedTable(layout, {name: table[name] for name in columns})
