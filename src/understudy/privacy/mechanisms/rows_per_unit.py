"""How many rows a privacy unit owns: one noisy histogram, from which synthetic units draw their number of rows."""

import numpy as np
from jaxtyping import Float, Int

from understudy.privacy.accounting.events import UnitHistogram
from understudy.privacy.accounting.ledger import Budget, Ledger, Query
from understudy.privacy.gradients.charges import check_table_query, event_of
from understudy.privacy.noise.source import with_noise
from understudy.privacy.rows.table import PrivateTable
from understudy.privacy.rows.units import count_unit_sizes
from understudy.schema import Schema

BUDGET_FRACTION = 0.1
"""Of epsilon. Costs compose by their squares (zCDP), so this is less than 2% of the budget: the noise of all other
queries grows by less than 1%."""
MAX_BINS = 1000
"""Units with more rows are counted with those that have this many, so that the histogram stays small."""


def num_bins(schema: Schema) -> int:
    """The number of bins: units with 1, 2, ... rows. One bin says nothing, so there is no query."""
    return min(schema.max_rows_per_unit, MAX_BINS) if schema.links_rows else 1


def plan_rows_per_unit(schema: Schema, budget: Budget) -> tuple[Query, ...]:
    """The query of `noisy_rows_per_unit`, calibrated alone to its fraction of the budget; none where rows are not
    linked."""
    bins = num_bins(schema)
    if bins == 1:
        return ()
    assert schema.unit is not None
    stddev = budget.fraction(BUDGET_FRACTION).calibrate(lambda noise: [UnitHistogram(noise)])
    what = f"number of units with 1 to {bins} rows"
    return (Query("rows_per_unit", what, UnitHistogram(stddev), (schema.unit,), path=("discovery",)),)


def noisy_rows_per_unit(table: PrivateTable, bins: int, query: Query, ledger: Ledger) -> Int[np.ndarray, " bins"]:
    """How many units own 1, 2, ... `bins` (or more) of the rows that are used, with discrete Gaussian noise.

    Formal guarantee: the cost of `query`, a `UnitHistogram`, under add/remove of one unit. Which rows of a unit are
    used depends on its own rows alone (`rows_within_units`). A unit of which c >= 1 rows are used adds one to bin
    min(c, bins) and nothing to any other bin; a unit of which none is used adds nothing. So adding or removing a unit
    moves at most one bin, by one: the L1 and the L2 sensitivity are 1, whatever `max_rows_per_unit` is. Provided that
    the table comes from `limit_units`. Not covered: timing.
    """
    event = event_of(query, UnitHistogram)
    check_table_query(query)
    ledger.charge(query)
    assert table._unit_ids is not None, "the units of rows must be known where they may own several"
    exact = count_unit_sizes(table._unit_ids, bins)
    return with_noise(exact, event.stddev, ledger.noise)


def to_probabilities(noisy_counts: Int[np.ndarray, " bins"]) -> Float[np.ndarray, " bins"]:
    """The nearest histogram without negative counts and with the same total, as probabilities. Post-processing.

    Setting negative counts to zero instead would add units: noise in empty bins would only ever count as more rows. If
    noise leaves no unit at all, every unit owns one row.

    >>> to_probabilities(np.array([50, 52, -2])).tolist()
    [0.49, 0.51, 0.0]
    """
    total = float(noisy_counts.sum())
    if total <= 0:
        return np.eye(len(noisy_counts))[0]
    descending = np.sort(noisy_counts)[::-1].astype(float)
    # Counts above the threshold are lowered by it; it is the largest at which they keep the total.
    thresholds = (np.cumsum(descending) - total) / np.arange(1, len(descending) + 1)
    threshold = thresholds[np.flatnonzero(descending > thresholds)[-1]]
    return np.maximum(noisy_counts - threshold, 0.0) / total
