"""Tables made by published recipes. Everything about them is public, so their moments and bounds may be declared."""

import numpy as np
import pyarrow as pa

from understudy.schema import Column, Schema

MEANS_SEED = 2018
"""Draws the means of x11 to x40, once: they are part of the recipe."""
REACH = 4.0
"""The distance of declared bounds from the mean, in standard deviations."""
JUMP = 2.5
"""Where y leaves its polynomial in x10."""
NAMES = ("y", *(f"x{number}" for number in range(1, 41)))


def montgomery_olivella(num_rows: int = 500, *, seed: int) -> pa.Table:
    """The generating process of Montgomery and Olivella, "Tree-based models for political science data" (2018).

    41 columns: y, and x1 to x40. y is a polynomial of x1, x2 and x10 below a jump of x10, a line of x10 above it; x6 to
    x8 say which of three groups a row is in; x9 and x10 are correlated, all else is independent.
    """
    draw = np.random.default_rng(seed)
    x: dict[int, np.ndarray] = {1: draw.gamma(8.0, 1 / 2, num_rows), 2: draw.gamma(10.0, 1.0, num_rows)}
    for number, mean, variance in ((3, 2.0, 1.5), (4, 3.0, 0.5), (5, 6.0, 3.3)):
        x[number] = mean + np.sqrt(variance) * draw.standard_normal(num_rows)
    group = draw.integers(0, 3, num_rows)
    x |= {6 + number: (group == number).astype(np.int64) for number in range(3)}
    first, second = draw.standard_normal((2, num_rows))
    x[9] = -0.3 + np.sqrt(1.5) * first
    x[10] = 2.0 + 0.685 / np.sqrt(1.5) * first + np.sqrt(5.5 - 0.685**2 / 1.5) * second
    for number, mean in zip(range(11, 41), _means(), strict=True):
        x[number] = mean + draw.standard_normal(num_rows)
    return pa.table({"y": outcome(x[1], x[2], x[10]), **{f"x{number}": x[number] for number in range(1, 41)}})


def outcome(x1: np.ndarray, x2: np.ndarray, x10: np.ndarray) -> np.ndarray:
    """y, which has no noise of its own."""
    below = x1 - x1**2 - x2**2 - 15 * x1 * x2 * x10 + 10 * x10 - 5 * x10**2 + 0.9 * x10**3
    return np.where(x10 < JUMP, below, 1750 + 350 * x10)


def _means() -> np.ndarray:
    return np.random.default_rng(MEANS_SEED).integers(2, 11, 30)


def montgomery_olivella_schema(rows: int | None = 500) -> Schema:
    """Kinds and bounds from the recipe alone: no row is read. The bounds of y are quantiles of its distribution."""
    bounds = {1: (0.0, 12.0), 2: (0.0, 28.0)}
    moments = {3: (2.0, 1.5), 4: (3.0, 0.5), 5: (6.0, 3.3), 9: (-0.3, 1.5), 10: (2.0, 5.5)}
    moments |= {number: (float(mean), 1.0) for number, mean in zip(range(11, 41), _means(), strict=True)}
    for number, (mean, variance) in moments.items():
        reach = REACH * variance**0.5
        bounds[number] = (round(mean - reach, 3), round(mean + reach, 3))
    columns = [Column(name="y", kind="real", bounds=(-11_000.0, 8_000.0), nullable=False)]
    for number in range(1, 41):
        if number in (6, 7, 8):
            columns.append(Column(name=f"x{number}", kind="integer", bounds=(0, 1), nullable=False))
        else:
            columns.append(Column(name=f"x{number}", kind="real", bounds=bounds[number], nullable=False))
    return Schema(columns=tuple(columns), rows=rows)
