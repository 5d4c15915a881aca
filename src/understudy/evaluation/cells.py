"""Contingency tables: accuracy over all cells of the joint marginal of a few columns."""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from understudy.errors import ConfigError
from understudy.evaluation.counting import Grid, frequencies, total_variation
from understudy.evaluation.scores import Result, Score, echo_settings, no_scores
from understudy.evaluation.table import EncodedTable, Layout
from understudy.rules.values import format_list

BINS = 20
"""The number of bins of a numeric column."""
MAX_CELLS = 10_000_000
DEFAULT_CELLS = 10_000
"""The most cells of the table that `cell_accuracy` chooses by default."""


@echo_settings
def cell_accuracy(real: EncodedTable, synthetic: EncodedTable, columns: Sequence[str] | None = None) -> Result:
    """The mean over all cells of a joint table, empty ones included, of 1 - |real frequency - synthetic frequency|.

    Cells are those that the layout allows: categories or bins, and nulls where real rows have them. Rows elsewhere
    (unlisted values, unexpected nulls) are in no cell, but count in the total variation. `columns` defaults to
    `default_cells`.
    """
    columns = default_cells(real.layout) if columns is None else columns
    settings = {"columns": list(columns), "bins": BINS}
    if why := _why_none(real.layout, columns):
        return no_scores("cell_accuracy", why, settings=settings)
    sizes = _cell_sizes(real.layout, columns)
    total = math.prod(sizes)
    cells, *counts = Grid.of(real, synthetic, BINS, columns).occupied_cells()
    allowed = _allowed(cells, sizes)
    p, q = map(frequencies, counts)
    return Result(
        scores={
            "cell_accuracy": Score(1 - float(np.abs(p - q)[allowed].sum()) / total),
            "cell_tv": Score(total_variation(p, q)),
        },
        settings=settings,
        details={
            "columns": list(columns),
            "cells": total,
            "occupied": int(allowed.sum()),
            "outside": [float(p[~allowed].sum()), float(q[~allowed].sum())],
        },
    )


def cells_won(
    real: EncodedTable, synthetics: Mapping[str, EncodedTable], columns: Sequence[str] | None = None
) -> dict[str, object]:
    """In how many cells of a joint table each synthetic table is closest to the real frequency.

    The first listed wins a tie; cells where several are closest, such as empty ones, are also counted as ties. If there
    are no columns, or too many cells, nothing is counted and "why" says so.
    """
    columns = default_cells(real.layout) if columns is None else columns
    if why := _why_none(real.layout, columns):
        return {"won": {}, "ties": 0, "cells": 0, "why": why}
    errors = np.stack([_cell_errors(real, each, columns) for each in synthetics.values()])
    best = np.argmin(errors, axis=0)
    ties = (errors == errors.min(axis=0)).sum(axis=0) > 1
    won = np.bincount(best, minlength=len(synthetics)).tolist()
    return {"won": dict(zip(synthetics, won, strict=True)), "ties": int(ties.sum()), "cells": len(best)}


def _cell_errors(real: EncodedTable, synthetic: EncodedTable, columns: Sequence[str]) -> Float[np.ndarray, " cells"]:
    """|real frequency - synthetic frequency| of every cell, times the number of real rows, without rounding."""
    cells, *counts = Grid.of(real, synthetic, BINS, columns).occupied_cells()
    sizes = _cell_sizes(real.layout, columns)
    allowed = _allowed(cells, sizes)
    errors = np.zeros(math.prod(sizes))
    # Integers until the last division: frequencies of tables of different sizes would differ by rounding.
    difference = np.abs(counts[0] * synthetic.num_rows - counts[1] * real.num_rows) / synthetic.num_rows
    errors[np.ravel_multi_index(tuple(cells[allowed].T), sizes)] = difference[allowed]
    return errors


def default_cells(layout: Layout) -> list[str]:
    """At most three discrete columns whose joint table has the most cells, up to 10,000.

    Ties go to the columns that come first. Depends on the layout alone.
    """
    candidates, seen = [], dict[int, int]()
    for spec in layout.discrete:
        (size,) = _cell_sizes(layout, [spec.name])
        seen[size] = seen.get(size, 0) + 1
        if seen[size] <= 3:  # later columns of the same size would only repeat these
            candidates.append((spec.name, size))
    best, best_cells = [], 0
    for number in (1, 2, 3):
        for chosen in itertools.combinations(candidates, number):
            cells = math.prod(size for _, size in chosen)
            if best_cells < cells <= DEFAULT_CELLS:
                best, best_cells = [name for name, _ in chosen], cells
    return best


def _cell_sizes(layout: Layout, columns: Sequence[str]) -> tuple[int, ...]:
    specs = [layout[name] for name in columns]
    return tuple((BINS if spec.is_numeric else len(spec.categories)) + spec.has_nulls for spec in specs)


def _allowed(cells: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Which occupied cells are cells of the layout: the codes of nulls and unlisted values come last."""
    return np.all(cells < np.array(sizes), axis=1)


def _why_none(layout: Layout, columns: Sequence[str]) -> str:
    """Why no cells of these columns are counted; empty if they are."""
    if not columns:
        return f"No discrete column has at most {DEFAULT_CELLS} categories."
    if len(set(columns)) < len(columns):
        raise ConfigError(f"columns must be distinct names, found {format_list(list(columns))}.")
    if (cells := math.prod(_cell_sizes(layout, columns))) <= MAX_CELLS:
        return ""
    return f"The columns have {cells:,} joint cells, more than {MAX_CELLS:,}. Use fewer columns."
