"""Marginals of any sizes under one price: how the noise is shared among them does not move it.

Counts get discrete Gaussian noise on steps so fine that a standard deviation s has 2^20 of them and more. At k standard
deviations its probability and that of a continuous Gaussian, rounded, differ by a factor of 1 + (k^2 - 1) / (24 s^2)
(the second term of the integral over a step): less than 1e-11 for any k below 14, where no draw ever falls, and 1e-6
for the product over a hundred million cells. So the exact Gaussian curve prices them.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from understudy.errors import BudgetExceeded
from understudy.privacy.events import Gaussian
from understudy.privacy.ledger import Ledger, Query
from understudy.privacy.mechanisms import Clique, Grouped, Rows, check_units

FINE = 2**20
"""Steps in a standard deviation, at least."""
MOST_NOISE = 2.0**40
"""Larger standard deviations are refused: draws must be whole numbers that a float holds exactly."""
ROOM = 1e-9
"""Precisions are sums of floats: the noise grows by this, and they may pass the price by half of it."""


def pay_for_marginals(rows: Rows, query: Query, ledger: Ledger) -> "Purse":
    """Pays for marginals whose noise is shared among them later, and returns what counts them.

    Formal guarantee: the price of `query`, a `Gaussian`, under add/remove of one unit of at most max_rows_per_unit = k
    rows. A row is in one cell of each marginal, so a unit moves one by k at most in L2 norm; with standard deviations
    s_j the bundle is one Gaussian look of multiplier (sum_j (k / s_j)^2)^(-1/2). That sum stays within 1 / multiplier^2
    of the look: what would pass it is refused before a row is read. What is asked, and its noise, may depend on earlier
    answers: the sum is a filter for Gaussian privacy (Smith and Thakurta 2022). Other paid queries may happen between
    answers: interactive queries compose like others (Vadhan and Zhang 2023). Not covered: timing, memory.
    """
    event = query.event
    assert isinstance(event, Gaussian)
    check_units(rows, ledger)
    ledger.charge(query)  # before the query: a refused one must not happen
    return Purse(rows, event, ledger)


class Purse:
    """What is left of a paid bundle, as precision: the sum of 1 / s^2 that may still be drawn, for one row a unit."""

    def __init__(self, rows: Rows, event: Gaussian, ledger: Ledger):
        self._rows, self._ledger = rows, ledger
        self.precision = event.count / event.noise_multiplier**2 / rows.max_rows_per_unit**2
        """Of the whole bundle: marginals with standard deviations s_j fit if their 1 / s_j^2 sum to this or less."""
        self._used = 0.0

    @property
    def public_num_rows(self) -> int:
        """The public number of rows; if the noisy totals contradict the declared number, their estimate."""
        return self._rows.public_num_rows

    @property
    def left(self) -> float:
        return max(0.0, self.precision - self._used)

    def noisy_counts(
        self, queries: Sequence[Clique | Grouped], stddevs: Sequence[float]
    ) -> list[Float[np.ndarray, "..."]]:
        """The cells of each marginal with noise of its own standard deviation; without privacy, as they are."""
        if len(queries) != len(stddevs) or not all(0 < stddev <= MOST_NOISE for stddev in stddevs):
            raise BudgetExceeded(
                f"Each marginal needs a standard deviation above 0 and up to {MOST_NOISE:g}. This query was not made."
            )
        wanted = math.fsum(stddev**-2 for stddev in stddevs)
        if self._used + wanted > self.precision * (1 + ROOM / 2):
            raise BudgetExceeded("These marginals cost more than is left of their budget. This query was not made.")
        self._used = math.nextafter(self._used + wanted, math.inf)  # rounded up: no answer is too noisy to count
        return [self._with_noise(query, stddev) for query, stddev in zip(queries, stddevs, strict=True)]

    def _with_noise(self, query: Clique | Grouped, stddev: float) -> np.ndarray:
        exact = self._rows._exact_answer(query)
        if not self._ledger.guarantee.is_private:
            self._rows._note_total(exact, 0.0)
            return exact.astype(float)
        steps = 2.0 ** max(0, math.ceil(math.log2(FINE / stddev)))  # a power of two: dividing by it is exact
        noise = self._ledger.noise.discrete_gaussian(stddev * (1 + ROOM) * steps, exact.shape)
        noisy = exact + noise / steps  # correctly rounded, so a function of the noisy sum alone
        self._rows._note_total(noisy, stddev)
        return noisy
