"""The number of rows as noisy marginals tell it: post-processing of answers that were charged for other reasons.

Every marginal counts each row once, so the sum of its noisy cells estimates the number of rows. A declared number that
these sums contradict is a mistake of whoever declared it; shares must then be taken of the measured number.
"""

import math

CONTRADICTED = 4.0
"""A declared size further off than so many standard deviations is not believed: by chance once in 16,000 runs."""
LEAST_VARIANCE = 1.0
"""Of a sum, in squared rows: runs without noise count to the row, and a row more or less is no contradiction."""


class Totals:
    """The noisy totals of one run, for all parts of its rows together."""

    def __init__(self, declared: int | None):
        self._declared = declared
        self._weighted, self._precision = 0.0, 0.0

    def note(self, noisy_total: float, variance: float, *, fraction: float = 1.0, spread: float = 0.0) -> None:
        """One marginal's sum, over a random `fraction` of the rows whose size has the variance `spread`."""
        weight = fraction**2 / (max(variance, LEAST_VARIANCE) + spread)
        self._weighted += weight * noisy_total / fraction
        self._precision += weight

    @property
    def measured(self) -> float:
        """The number of rows by all marginals together, each weighted by its precision; NaN before the first."""
        return self._weighted / self._precision if self._precision else math.nan

    @property
    def contradicted(self) -> bool:
        """Whether the declared size is too far from the measured one; never where none is declared."""
        if self._declared is None or not self._precision:
            return False
        return abs(self.measured - self._declared) * math.sqrt(self._precision) > CONTRADICTED

    @property
    def warning(self) -> str | None:
        """What readers of the run and of its certificate should know; None: nothing."""
        if not self.contradicted or self._declared is None:
            return None
        digits = max(0, math.floor(math.log10(math.sqrt(self._precision) * max(self.measured, 1.0))))
        about = float(f"{max(self.measured, 0.0):.{digits}e}")
        return (
            f"the declared number of rows ({self._declared:,}) contradicts the measured totals (about {about:,.0f}). "
            "Fractions were computed with the measured totals. Correct rows in the schema."
        )
