"""Noisy counts of private rows: marginals, boxes of cells, and the number of rows.

Exact counts leave `privacy/` only with noise, or as a selection (`selection.py`).
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa

from understudy.errors import BudgetExceeded
from understudy.privacy.accounting.events import DiscreteGaussian, LaplaceMarginals
from understudy.privacy.accounting.ledger import Ledger, Query
from understudy.privacy.accounting.marginal_noise import MarginalRecorder
from understudy.privacy.gradients.charges import check_query, check_table_query, event_of
from understudy.privacy.noise.source import with_laplace_noise, with_noise
from understudy.privacy.rows.batches import add_arrays
from understudy.privacy.rows.rows import Box, Clique, PrivateRows
from understudy.privacy.rows.table import PrivateTable


def noisy_counts(rows: PrivateRows, cliques: Sequence[Clique], query: Query, ledger: Ledger) -> list[np.ndarray]:
    """Marginals of these cliques, each cell with discrete Gaussian noise: one bundle, charged once.

    Formal guarantee: the cost of `query`, a `DiscreteGaussian` with one vector for each clique, under add/remove of
    one unit: its rows move each marginal by at most `max_rows_per_unit` in L2 norm. Not covered: timing, memory.
    """
    event = event_of(query, DiscreteGaussian)
    if len(cliques) > event.count or rows.max_rows_per_unit > event.sensitivity:
        raise BudgetExceeded(
            f"'{query.what}' is planned for {event.count} marginals and {event.sensitivity} rows per unit, not for "
            f"{len(cliques)} and {rows.max_rows_per_unit}. This query was not made.",
            query=query.what,
        )
    check_query(rows, query, ledger)
    ledger.charge(query)  # before the draw: a refused release must not exist
    record = ledger._recorder(query)
    return [count_with_noise(rows, clique, event.stddev, ledger, record) for clique in rows._counted_ahead(cliques)]


def count_with_noise(
    rows: PrivateRows,
    query: Clique | Box,
    stddev: float,
    ledger: Ledger,
    record: MarginalRecorder,
    laplace_scale: Fraction | None = None,
) -> np.ndarray:
    """One charged answer, with Laplace noise where a scale is given. For callers that have charged for it, or counted
    it against what they charged."""
    exact = rows._exact_counts(query)
    if laplace_scale is None:
        noisy = with_noise(exact, stddev, ledger.noise).astype(float)
    else:
        noisy = with_laplace_noise(exact, laplace_scale, ledger.noise).astype(float)
    if not isinstance(query, Box):  # a box is a single count, so it is not listed among marginals
        rows._note_total(noisy, stddev)
        record(query, noisy.size, stddev)
    return noisy


def noisy_answers(rows: PrivateRows, query: Query, ledger: Ledger) -> "ChargedAnswers":
    """Charges for all marginals or boxes of `query` at once, and returns the function that counts them one by one.

    Formal guarantee: the cost of `query`, a `DiscreteGaussian` or `LaplaceMarginals`, under add/remove of one unit: at
    most its number of answers, each of which a unit moves by at most `max_rows_per_unit` in L1 norm, and so in L2 norm.
    What is counted may depend on earlier answers; the cost does not.
    """
    event = event_of(query, DiscreteGaussian, LaplaceMarginals)
    if rows.max_rows_per_unit > event.sensitivity:
        raise BudgetExceeded(
            f"'{query.what}' is planned for {event.sensitivity} rows per unit, not for {rows.max_rows_per_unit}. This "
            "query was not made.",
            query=query.what,
        )
    check_query(rows, query, ledger)
    ledger.charge(query)
    record = ledger._recorder(query)
    if isinstance(event, DiscreteGaussian):
        return ChargedAnswers(rows, event.stddev, event.count, ledger, record)
    # The quotient of two floats, exactly: rounded, noise could be slightly less than was charged.
    scale = event.sensitivity / Fraction(event.epsilon)
    return ChargedAnswers(rows, event.stddev, event.rounds, ledger, record, scale)


class ChargedAnswers:
    """Noisy answers that were charged: a fixed number, each with noise of the same standard deviation."""

    def __init__(
        self,
        rows: PrivateRows,
        stddev: float,
        count: int,
        ledger: Ledger,
        record: MarginalRecorder,
        laplace_scale: Fraction | None = None,
    ):
        self._private, self._ledger, self._record, self._laplace_scale = rows, ledger, record, laplace_scale
        self.stddev, self.left = stddev, count

    def __call__(self, query: Clique | Box) -> np.ndarray:
        if self.left == 0:
            raise BudgetExceeded("All charged answers have been given. This query was not made.")
        self.left -= 1
        return count_with_noise(self._private, query, self.stddev, self._ledger, self._record, self._laplace_scale)


def noisy_size(table: PrivateTable, query: Query, ledger: Ledger) -> int:
    """The number of rows of a private table with discrete Gaussian noise, at least one.

    Formal guarantee: the cost of `query` under add/remove of one unit, which moves the count by at most the event's
    sensitivity. Provided that the table comes from `limit_units`.
    """
    event = event_of(query, DiscreteGaussian)
    check_table_query(query)
    ledger.charge(query)
    known = table._batches._num_rows
    exact = table._batches.fold(_num_rows, add_arrays) if known is None else np.array([known])
    return max(1, int(with_noise(exact, event.stddev, ledger.noise)[0]))


def _num_rows(batch: pa.Table) -> np.ndarray:
    return np.asarray([batch.num_rows], dtype=np.int64)
