"""Rejection sampling: rows are proposed until enough of them meet a condition, or too few do.

The rows that are kept have the distribution of the proposals given the condition.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import jax
import numpy as np
from jaxtyping import Bool, Int, PRNGKeyArray

from understudy.errors import ConditionError
from understudy.models.protocol import Allowed, Sample, concatenate

BATCH_SIZE = 8192
"""Rows a network generates in one call: one compiled shape for every number of rows."""
MAX_BATCH_SIZE = 1_000_000
MIN_BATCH_SIZE = 1000
DRAWS_PER_ROW = 2000
"""The most proposals for each row that is wanted, and at least MIN_DRAWS in all."""
MIN_DRAWS = 100_000

Rows = TypeVar("Rows")


class TooRare(ConditionError):
    """Too few rows meet a condition."""


def propose_until(
    num_rows: int,
    propose: Callable[[int, PRNGKeyArray], tuple[Rows, int]],
    *,
    key: PRNGKeyArray,
    batch_size: int | None = None,
    condition: str = "the condition",
    met: str = "met",
) -> list[Rows]:
    """Batches of accepted rows, `num_rows` or more in all. Raises ConditionError if the condition is too rare.

    Args:
        propose: draws this many rows with this key, and returns those that meet the condition and their number.
        batch_size: proposals per call; None: `num_rows`, then as many as the acceptance rate so far suggests.
        condition, met: the words for these in the error message.
    """
    accepted: list[Rows] = []
    num_met = drawn = 0
    limit, size = max(MIN_DRAWS, DRAWS_PER_ROW * num_rows), batch_size or num_rows
    while num_met < num_rows:
        # At this rate, all proposals that are allowed would yield less than half of the rows.
        is_hopeless = drawn >= MIN_DRAWS and 2 * num_met * limit < num_rows * drawn
        if drawn >= limit or is_hopeless:
            raise TooRare(
                f"Only {num_met} of {num_rows} rows {met} {condition} in {drawn:,} draws. "
                f"{'Ask for fewer rows, or loosen' if num_met else 'Loosen'} {condition}."
            )
        key, batch_key = jax.random.split(key)
        size = min(size, limit - drawn)
        rows, count = propose(size, batch_key)
        accepted.append(rows)
        num_met, drawn = num_met + count, drawn + size
        expected = int(1.2 * (num_rows - num_met) * drawn / max(num_met, 1))
        size = batch_size or min(max(expected, MIN_BATCH_SIZE), MAX_BATCH_SIZE)
    return accepted


def sample_allowed(
    draw: Callable[[int, PRNGKeyArray], Sample],
    names: tuple[str, ...],
    allowed: Allowed | None,
    num_rows: int,
    *,
    key: PRNGKeyArray,
    batch_size: int = BATCH_SIZE,
) -> Sample:
    """`num_rows` of the rows that `draw` makes; with `allowed`, of those whose codes are."""
    if not allowed:
        return draw(num_rows, key)
    check_satisfiable(allowed)

    def propose(size: int, batch_key: PRNGKeyArray) -> tuple[Sample, int]:
        sample = draw(size, batch_key)
        met = meets(names, sample.codes, allowed)
        return sample.take(met), int(met.sum())

    return concatenate(propose_until(num_rows, propose, key=key, batch_size=batch_size), num_rows)


def check_satisfiable(allowed: Allowed) -> None:
    """Refuses a condition that leaves a column no code."""
    if not all(np.any(mask) for mask in allowed.values()):
        raise ConditionError("No row can meet the condition: it excludes every value of some column.")


def meets(
    names: tuple[str, ...], codes: Int[np.ndarray, "rows columns"], allowed: Mapping[str, np.ndarray]
) -> Bool[np.ndarray, " rows"]:
    """Which rows every column's condition allows."""
    met = np.ones(len(codes), dtype=bool)
    for name, mask in allowed.items():
        met &= np.asarray(mask, dtype=bool)[codes[:, names.index(name)]]
    return met
