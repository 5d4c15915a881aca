"""Contingency tables: accuracy over all cells of the joint marginal of a few columns."""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from understudy.errors import ConfigError
from understudy.evaluation.counting import Grid, frequencies, row_counts, total_variation
from understudy.evaluation.scores import Result, Score, no_scores
from understudy.evaluation.table import ColumnSpec, EncodedTable, Layout
from understudy.schema.values import format_list

MOST_CELLS = 10_000_000
DEFAULT_CELLS = 10_000
"""The most cells of the table that `cell_accuracy` chooses by default."""


def cell_accuracy(
    real: EncodedTable, synthetic: EncodedTable, columns: Sequence[str] | None = None, *, bins: int = 20
) -> Result:
    """The mean over all cells of a joint table, empty ones included, of 1 - |real frequency - synthetic frequency|.

    Cells are those that the layout allows: categories or bins, and nulls where real rows have them. Rows elsewhere
    (unlisted values, unexpected nulls) are in no cell, but count in the total variation. `columns` defaults to
    `default_cells`.
    """
    columns = default_cells(real.layout) if columns is None else columns
    settings = {**row_counts(real, synthetic), "columns": list(columns), "bins": bins}
    if not columns:
        why = f"No discrete column has at most {DEFAULT_CELLS} categories."
        return no_scores("cell_accuracy", why, settings=settings)
    _check_columns(real.layout, columns)
    specs = [real.layout[name] for name in columns]
    total = math.prod(_cell_sizes(specs, bins))
    if total > MOST_CELLS:
        return no_scores("cell_accuracy", _too_many(total), settings=settings)
    cells, *counts = Grid.of(real, synthetic, bins, columns).occupied_cells()
    allowed = _allowed(cells, specs, bins)
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
    real: EncodedTable, synthetics: Mapping[str, EncodedTable], columns: Sequence[str] | None = None, *, bins: int = 20
) -> dict[str, object]:
    """In how many cells of a joint table each synthetic table is closest to the real frequency.

    The first listed wins a tie; cells where several are closest, such as empty ones, are also counted as ties. Without
    columns or tables, or with too many cells, nothing is counted and "why" says so.
    """
    columns = default_cells(real.layout) if columns is None else columns
    if not columns or not synthetics:
        return {"won": {}, "ties": 0, "cells": 0, "why": "There are no columns or no tables to compare."}
    _check_columns(real.layout, columns)
    specs = [real.layout[name] for name in columns]
    total = math.prod(_cell_sizes(specs, bins))
    if total > MOST_CELLS:
        return {"won": {}, "ties": 0, "cells": total, "why": _too_many(total)}
    errors = np.stack([_cell_errors(real, each, specs, bins) for each in synthetics.values()])
    best = np.argmin(errors, axis=0)
    ties = (errors == errors.min(axis=0)).sum(axis=0) > 1
    won = np.bincount(best, minlength=len(synthetics)).tolist()
    return {"won": dict(zip(synthetics, won, strict=True)), "ties": int(ties.sum()), "cells": total}


def _cell_errors(
    real: EncodedTable, synthetic: EncodedTable, specs: Sequence[ColumnSpec], bins: int
) -> Float[np.ndarray, " cells"]:
    """|real frequency - synthetic frequency| of every cell, times the number of real rows, without rounding."""
    cells, *counts = Grid.of(real, synthetic, bins, [spec.name for spec in specs]).occupied_cells()
    allowed = _allowed(cells, specs, bins)
    sizes = _cell_sizes(specs, bins)
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
        size = _cell_sizes([spec], 1)[0]
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


def _cell_sizes(specs: Sequence[ColumnSpec], bins: int) -> tuple[int, ...]:
    return tuple((bins if spec.is_numeric else len(spec.categories)) + spec.has_nulls for spec in specs)


def _allowed(cells: np.ndarray, specs: Sequence[ColumnSpec], bins: int) -> np.ndarray:
    """Which occupied cells are cells of the layout: the codes of nulls and unlisted values come last."""
    return np.all(cells < np.array(_cell_sizes(specs, bins)), axis=1)


def _too_many(cells: int) -> str:
    return f"The columns have {cells:,} joint cells, more than {MOST_CELLS:,}. Use fewer columns or bins."


def _check_columns(layout: Layout, columns: Sequence[str]) -> None:
    if not columns or len(set(columns)) < len(columns):
        raise ConfigError(f"columns must be one or more distinct names, found {format_list(list(columns)) or 'none'}.")
    for name in columns:
        layout[name]
