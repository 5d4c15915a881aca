"""Attribute inference: how well the synthetic table lets one guess a secret value of a training row.

The same guesses are made for held-out rows, about which the table cannot disclose anything: what succeeds there follows
from the population. Only the difference is disclosure (Giomi, Boenisch, Wehmeyer and Tasnádi 2023).
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from understudy.disclosure.attacks import project
from understudy.disclosure.rates import Difference, Rate, difference, excess_p_value
from understudy.evaluation.table import ColumnSpec, EncodedTable
from understudy.evaluation.validity import nearest_rows

MAX_GUESSED, MAX_SEARCHED = 4_000, 20_000
"""The most rows of each kind whose values are guessed, and the most synthetic rows that are searched."""
TOLERANCE = 0.05
"""A guessed number is correct within this fraction of the range from the 5th to the 95th percentile."""


@dataclasses.dataclass(frozen=True)
class SecretColumn:
    """Guesses of one column from others, using the nearest synthetic row."""

    column: str
    tolerance: float | None
    """The largest error of a correct guess of a number; None: the category must be the same."""
    training: Rate
    control: Rate
    difference: Difference
    p_value: float
    """Of the hypothesis that training rows are guessed no better than held-out rows."""


def measure_attributes(
    real: EncodedTable,
    holdout: EncodedTable,
    synthetic: EncodedTable,
    secrets: Sequence[str],
    known: Sequence[str],
    *,
    seed: int,
) -> tuple[SecretColumn, ...]:
    """Guess each secret column from the known columns other than itself.

    Columns without values in one of the tables, or without another column to guess from, are left out.
    """
    sampled = [table.at_most(MAX_GUESSED, seed=seed) for table in (real, holdout)]
    sampled.append(synthetic.at_most(MAX_SEARCHED, seed=seed))
    found = []
    for secret in secrets:
        ours, theirs, searched = (table.take(has_values(table, secret)) for table in sampled)
        columns = [name for name in known if name != secret]
        if columns and ours.num_rows and theirs.num_rows and searched.num_rows:
            found.append(_guess(ours, theirs, searched, real.layout[secret], columns, seed))
    return tuple(found)


def has_values(table: EncodedTable, name: str) -> np.ndarray:
    """Which rows have a value in this column."""
    spec, values = table.layout[name], table[name]
    return ~np.isnan(values) if spec.is_numeric else values != len(spec.categories)


def _guess(
    real: EncodedTable,
    holdout: EncodedTable,
    synthetic: EncodedTable,
    secret: ColumnSpec,
    columns: Sequence[str],
    seed: int,
) -> SecretColumn:
    searched, *asked = project((synthetic, real, holdout), seed, columns)
    truth = [table[secret.name] for table in (real, holdout)]
    tolerance = _tolerance(np.concatenate(truth)) if secret.is_numeric else None
    rates = []
    for values, features in zip(truth, asked, strict=True):
        guess = synthetic[secret.name][nearest_rows(searched, features, 1)[:, 0]]
        right = guess == values if tolerance is None else np.abs(guess - values) <= tolerance
        rates.append(Rate.of(int(right.sum()), len(values)))
    training, control = rates
    return SecretColumn(
        secret.name, tolerance, training, control, difference(training, control), excess_p_value(training, control)
    )


def _tolerance(values: np.ndarray) -> float:
    low, high = np.quantile(values, [0.05, 0.95])
    return float(TOLERANCE * (high - low))
