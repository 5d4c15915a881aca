"""Privacy filters: budgets that are charged at once and spent inside by methods that set their noise as they go.

Counts of the Gaussian filter get discrete Gaussian noise on steps so fine that a standard deviation s has 2^20 of them
and more. At k standard deviations its probability and that of a continuous Gaussian, rounded, differ by a factor of
1 + (k^2 - 1) / (24 s^2) (the second term of the integral over a step): less than 1e-11 for any k below 14, where no
draw ever falls, and 1e-6 for the product over a hundred million cells. So the exact Gaussian curve accounts for them.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Real

from understudy.errors import BudgetExceeded
from understudy.privacy.accounting.events import ZCDP, Gaussian
from understudy.privacy.accounting.ledger import Ledger, Query
from understudy.privacy.accounting.marginal_noise import MarginalRecorder
from understudy.privacy.gradients.charges import check_query, event_of
from understudy.privacy.mechanisms.counts import count_with_noise
from understudy.privacy.mechanisms.selection import MAX_EXPECTED, Candidates, select_candidates
from understudy.privacy.noise.source import fine_steps, with_noise
from understudy.privacy.rows.rows import Clique, PrivateRows

MAX_NOISE = 2.0**40
"""Larger standard deviations are refused: draws must be whole numbers that a float holds exactly."""
MIN_COUNT_NOISE = 2.0**-9
"""The smallest noise of counts: a row is then at most 2^29 steps, and the steps of 2^33 rows fit 62 bits."""
MIN_ERROR_NOISE = 1 / 8
"""The smallest noise of errors: a row is then at most 2^23 steps, and the steps of 2^35 rows fit 64 bits."""
ROOM = 1e-9
"""Precisions are sums of floats: the noise grows by this, and they may pass the charged sum by half of it."""


def charge_zcdp(rows: PrivateRows, query: Query, ledger: Ledger) -> "ZCDPFilter":
    """Charges a zCDP budget at once, and returns the filter that spends it at costs that are set as it goes.

    Formal guarantee: the budget's rho in all, whatever the method does with it: each query first adds its own rho to a
    running sum, and is refused if the sum would pass the budget (a privacy filter; valid for fully adaptive zCDP).
    """
    event = event_of(query, ZCDP)
    check_query(rows, query, ledger)
    ledger.charge(query)
    return ZCDPFilter(rows, event, ledger, ledger._recorder(query))


class ZCDPFilter:
    """Spends a charged zCDP budget, and refuses a query that would exceed it."""

    def __init__(self, rows: PrivateRows, event: ZCDP, ledger: Ledger, record: MarginalRecorder):
        self._private, self._ledger, self._record = rows, ledger, record
        self.rho, self.used = event.rho, 0.0

    @property
    def remaining(self) -> float:
        return max(0.0, self.rho - self.used)

    def noisy_counts(self, clique: Clique, stddev: float) -> np.ndarray:
        """One marginal with discrete Gaussian noise, at rho = rows per unit^2 / (2 stddev^2)."""
        stddev = float(stddev)
        self._spend(self._private.max_rows_per_unit**2 / (2 * stddev**2))
        if len(clique) == 1:  # a method that asks for one column asks for the others too
            self._private._count_ahead(self._private.domain.one_way)
        return count_with_noise(self._private, clique, stddev, self._ledger, self._record)

    def noisy_selection(self, candidates: Candidates, epsilon: float) -> int:
        """One selection by the exponential mechanism, at rho = epsilon^2 / 8 (bounded range)."""
        epsilon = float(epsilon)
        self._spend(epsilon**2 / 8)
        return select_candidates(self._private, candidates, epsilon, self._ledger)[0]

    def _spend(self, rho: float) -> None:
        if not rho > 0 or self.used + rho > self.rho:
            raise BudgetExceeded(
                f"A query at rho {rho:g} exceeds the {self.remaining:g} left of the budget. This query was not made.",
                needed=rho,
                left=self.remaining,
            )
        self.used = math.nextafter(self.used + rho, math.inf)  # rounded up: no spend is too small to count


def charge_marginals(rows: PrivateRows, query: Query, ledger: Ledger) -> "GaussianFilter":
    """Charges for marginals whose noise is allocated later, and returns the filter that counts them.

    Formal guarantee: the cost of `query`, a `Gaussian`, under add/remove of one unit of at most max_rows_per_unit = k
    rows. A row is in one cell of each marginal, so a unit changes a marginal by at most k in L2 norm, and its L1
    distance from expected counts by at most k; with standard deviations s_j all answers together are one Gaussian query
    with noise multiplier (sum_j (k / s_j)^2)^(-1/2). That sum stays within 1 / noise_multiplier^2 of `query`: an answer
    that would exceed it is refused before a row is read. Queries and their noise may depend on earlier answers: the sum
    is a filter for Gaussian privacy (Smith and Thakurta 2022). Other charged queries may happen between answers:
    interactive queries compose like others (Vadhan and Zhang 2023). Not covered: timing, memory.
    """
    event = event_of(query, Gaussian)
    check_query(rows, query, ledger)
    ledger.charge(query)  # before the query: a refused one must not happen
    return GaussianFilter(rows, event, ledger, ledger._recorder(query))


class GaussianFilter:
    """What is left of a charged bundle, as precision: the sum of 1 / s^2 that may still be used, for one row a unit."""

    def __init__(self, rows: PrivateRows, event: Gaussian, ledger: Ledger, record: MarginalRecorder):
        self._private, self._ledger, self._record = rows, ledger, record
        self.precision = event.count / event.noise_multiplier**2 / rows.max_rows_per_unit**2
        """Of the whole bundle: marginals with standard deviations s_j fit if their 1 / s_j^2 sum to this or less."""
        self._used = 0.0

    @property
    def public_num_rows(self) -> int:
        """The public number of rows; if the noisy totals contradict the declared number, their estimate."""
        return self._private.public_num_rows

    @property
    def left(self) -> float:
        return max(0.0, self.precision - self._used)

    def noisy_counts(self, queries: Sequence[Clique], stddevs: Sequence[float]) -> list[Float[np.ndarray, "..."]]:
        """The cells of each marginal with noise of its own standard deviation; without privacy, as they are.

        A standard deviation below `MIN_COUNT_NOISE` is raised to it.
        """
        stddevs = [float(stddev) for stddev in stddevs]  # in another precision, sums would fall short
        for query in queries:
            self._private.domain.shape(query)  # refuses unknown columns
        if len(queries) != len(stddevs) or not all(0 < stddev <= MAX_NOISE for stddev in stddevs):
            raise BudgetExceeded(
                f"Each marginal needs a standard deviation above 0 and up to {MAX_NOISE:g}. This query was not made."
            )
        self._spend(math.fsum(stddev**-2 for stddev in stddevs))
        ahead = self._private._counted_ahead(queries)
        return [self._count(query, stddev) for query, stddev in zip(ahead, stddevs, strict=True)]

    def noisy_errors(
        self, cliques: Sequence[Clique], expected: Sequence[Real[np.ndarray, "..."]], stddev: float
    ) -> Float[np.ndarray, " cliques"]:
        """The L1 distance of each marginal from its expected counts, all with noise of one standard deviation.

        Without privacy, they have no noise. A standard deviation below `MIN_ERROR_NOISE` is raised to it.

        A unit of k rows changes each of n distances by at most k, by the triangle inequality, and so all of them by at
        most k sqrt(n) in L2 norm: they use precision n / stddev^2. Expected counts are rounded to the steps of the
        noise, so distances are whole numbers of steps and their sums are exact.
        """
        stddev = float(stddev)
        expected = [np.asarray(counts, dtype=np.float64) for counts in expected]  # half precision would overflow
        if len(cliques) != len(expected) or not 0 < stddev <= MAX_NOISE:
            raise BudgetExceeded(
                f"Errors need expected counts for each marginal, and a standard deviation above 0 and up to "
                f"{MAX_NOISE:g}. This query was not made."
            )
        for clique, counts in zip(cliques, expected, strict=True):
            # Counts of another shape would be broadcast, and a row would count several times.
            same = np.shape(counts) == self._private.shape_of(clique)
            if not same or not np.min(counts) >= 0 or not np.sum(counts) <= MAX_EXPECTED:
                raise BudgetExceeded(
                    f"The expected counts of {clique} must have the shape of its marginal, be at least 0 and sum to "
                    f"{MAX_EXPECTED:g} or less. This query was not made."
                )
        stddev = max(stddev, MIN_ERROR_NOISE)
        self._spend(len(cliques) * stddev**-2)
        steps = fine_steps(stddev)
        ahead = self._private._counted_ahead(cliques)
        errors = [self._exact_error(clique, counts, steps) for clique, counts in zip(ahead, expected, strict=True)]
        exact = np.asarray(errors, dtype=np.int64)
        if not self._ledger.guarantee.is_private:
            return exact / steps
        return with_noise(exact, stddev * (1 + ROOM) * steps, self._ledger.noise) / steps

    def _exact_error(self, clique: Clique, expected: np.ndarray, steps: int) -> int:
        """The L1 distance in whole steps."""
        whole = np.rint(expected * steps).astype(np.int64)
        return int(np.abs(self._private._exact_counts(clique) * steps - whole).sum())

    def _spend(self, precision: float) -> None:
        if self._used + precision > self.precision * (1 + ROOM / 2):
            raise BudgetExceeded("These marginals cost more than is left of their budget. This query was not made.")
        self._used = math.nextafter(self._used + precision, math.inf)  # rounded up: no answer is too noisy to count

    def _count(self, query: Clique, stddev: float) -> np.ndarray:
        exact = self._private._exact_counts(query)
        stddev = max(stddev, MIN_COUNT_NOISE)
        self._record(query, exact.size, stddev)
        if not self._ledger.guarantee.is_private:
            self._private._note_total(exact, 0.0)
            return exact.astype(float)
        steps = fine_steps(stddev)  # a power of two: dividing by it is exact
        noisy = with_noise(exact * steps, stddev * (1 + ROOM) * steps, self._ledger.noise) / steps
        self._private._note_total(noisy, stddev)
        return noisy
