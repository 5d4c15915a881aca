"""The number of rows as estimated from noisy marginals: post-processing of answers that are charged anyway.

Every marginal counts each row once, so the sum of its noisy cells estimates the number of rows. A declared number that
these sums contradict was declared by mistake; fractions of the rows are then computed with the measured number.
"""

import math

CONTRADICTED = 4.0
"""A declared size that is off by more standard deviations is contradicted: by chance once in 16,000 runs."""
MIN_VARIANCE = 1.0
"""Of a sum, in squared rows: without noise sums are exact, and a single row more or less is no contradiction."""


class Totals:
    """The noisy totals of one run, over all partitions of its rows."""

    def __init__(self, declared: int | None):
        self._declared = declared
        self._weighted, self._precision = 0.0, 0.0
        self._declared_variance = 0.0
        """Of the true size around the declared one, in squared rows: not 0 if units were held out at random."""

    def expect_spread(self, variance: float) -> None:
        """States how far the true size may lie from the declared one by chance: a public number."""
        self._declared_variance = variance

    def note(self, noisy_total: float, variance: float, *, fraction: float = 1.0, spread: float = 0.0) -> None:
        """Adds the sum of one marginal over a random `fraction` of the rows, whose number has variance `spread`."""
        weight = fraction**2 / (max(variance, MIN_VARIANCE) + spread)
        self._weighted += weight * noisy_total / fraction
        self._precision += weight

    @property
    def measured(self) -> float:
        """The number of rows as estimated by all marginals, weighted by their precision; NaN before the first one."""
        return self._weighted / self._precision if self._precision else math.nan

    @property
    def contradicted(self) -> bool:
        """Whether the declared size is too far from the measured one; never where none is declared."""
        if self._declared is None or not self._precision:
            return False
        return abs(self.measured - self._declared) * math.sqrt(self._precision) > CONTRADICTED

    @property
    def warning(self) -> str | None:
        """What readers of the run and its certificate should know; None if there is nothing.

        What chance explains in a table from which units were held out is no mistake of a person.
        """
        if not self.contradicted or self._declared is None:
            return None
        if abs(self.measured - self._declared) <= CONTRADICTED * math.sqrt(
            1 / self._precision + self._declared_variance
        ):
            return None
        digits = max(0, math.floor(math.log10(math.sqrt(self._precision) * max(self.measured, 1.0))))
        about = float(f"{max(self.measured, 0.0):.{digits}e}")
        return (
            f"the declared number of rows ({self._declared:,}) contradicts the measured totals (about {about:,.0f}). "
            "Fractions of the rows were computed with the measured totals; the declared number is only the default "
            "size of synthetic tables. Declare a published number, or leave it out: it is then estimated privately."
        )
