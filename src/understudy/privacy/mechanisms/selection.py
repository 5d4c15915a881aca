"""Selections by the private rows: the exponential mechanism among marginals, and among functions of a row.

Of marginals a model expects counts, and the score of one is its error. Functions of a row have values in [0, 1]. Their
sums over all rows are taken once, in whole numbers, and stay in this file. A unit of k rows that is added or removed
moves every sum in the same direction, by 0 to k, so the odds exp(epsilon * sum / k) change within a range of epsilon:
half the noise of the general bound, and the accountant's bounded range.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting.events import Selections
from understudy.privacy.accounting.ledger import Ledger, Query
from understudy.privacy.gradients.charges import UnitRows, check_query, event_of
from understudy.privacy.rows.rows import Clique, Counted, PrivateRows, RowEncoder
from understudy.schema import Domain, NumericDomain

STEPS = 2.0**20
"""A value is rounded to this part of one: sums of whole numbers do not depend on their order, and below 2^33 rows they
are exact in a float."""
MAX_ROWS = 2**32
"""The largest public number of rows for selections among functions: with more, sums would not be exact."""
CHUNK = 8192
"""The number of rows that functions are evaluated on at a time; the last chunk is padded."""

ROUNDING = 1 + 2.0**-16
"""Errors of marginals are whole multiples of 1 / STEPS, summed as integers, and below 2^34, since tables have up to
2^33 rows. Turning one into a float, subtracting an offset and weighting rounds it by less than 2^-17; offsets may be
larger, and are rounded by a fraction of themselves:"""
OFFSET_ROUNDING = 2.0**-50
MAX_EXPECTED = 2.0**34
"""Expected counts that sum to more are refused: this is twice the largest number of rows of a table."""


# ----------------------------------------------------------------------------------------------------- among marginals


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Marginals or boxes to select from, with what a model expects of each: score = weight * (L1 error - offset)."""

    cliques: Sequence[Counted]
    expected: Sequence[np.ndarray]
    weights: np.ndarray
    offsets: np.ndarray

    def __post_init__(self) -> None:
        assert len(self.cliques) == len(self.expected) == len(self.weights) == len(self.offsets) > 0


def noisy_selections(rows: PrivateRows, query: Query, ledger: Ledger) -> "MarginalSelector":
    """Charges for all rounds of `query` at once, and returns the function that makes them one by one.

    Formal guarantee: the cost of `query`, a `Selections`: at most its `rounds` selections, each by the exponential
    mechanism of its `epsilon`. The scores of one selection move by at most max(weights) * max_rows_per_unit when a unit
    is added or removed, since an L1 norm moves by no more than its argument.
    """
    event = event_of(query, Selections)
    check_query(rows, query, ledger)
    ledger.charge(query)
    return MarginalSelector(rows, event.epsilon, event.rounds, ledger)


class MarginalSelector:
    """Selections that were charged, made one by one."""

    def __init__(self, rows: PrivateRows, epsilon: float, rounds: int, ledger: Ledger):
        self._private, self._epsilon, self._left, self._ledger = rows, epsilon, rounds, ledger

    def __call__(self, candidates: Candidates) -> int:
        return self.several(candidates, 1)[0]

    def several(self, candidates: Candidates, count: int) -> list[int]:
        """`count` different candidates, each a selection of its own among those that earlier ones left."""
        if count > min(self._left, len(candidates.cliques)):
            raise BudgetExceeded("All charged selections have been made. This query was not made.")
        self._left -= count
        return select_candidates(self._private, candidates, self._epsilon, self._ledger, count)


def select_candidates(
    rows: PrivateRows, candidates: Candidates, epsilon: float, ledger: Ledger, count: int = 1
) -> list[int]:
    """Exponential mechanism by Gumbel-max: fresh noise of scale 2 * sensitivity / epsilon on each score, each time.

    The exact scores are computed once and never shown; a selection leaves the choice of those after it. For callers
    that have charged.
    """
    for clique, expected in zip(candidates.cliques, candidates.expected, strict=True):
        # Another shape would be broadcast, and a row would count several times.
        assert np.shape(expected) == rows.shape_of(clique), "expected counts have another shape than their query"
        assert np.abs(expected).sum() <= MAX_EXPECTED, "expected counts of more rows than a table can have"
    moved = rows.max_rows_per_unit * ROUNDING + OFFSET_ROUNDING * float(np.max(np.abs(candidates.offsets)))
    sensitivity = float(np.max(np.abs(candidates.weights))) * moved
    exact_scores = [
        _exact_score(rows._exact_counts(clique), expected, weight, offset)
        for clique, expected, weight, offset in zip(
            rows._counted_ahead(candidates.cliques),
            candidates.expected,
            candidates.weights,
            candidates.offsets,
            strict=True,
        )
    ]
    left, chosen = list(range(len(exact_scores))), []
    for _ in range(count):
        scores = np.asarray([exact_scores[at] for at in left])
        chosen.append(left.pop(ledger.noise.noisy_argmax(scores, 2 * sensitivity / epsilon)))
    return chosen


def _exact_score(exact_counts: np.ndarray, expected: np.ndarray, weight: float | np.integer, offset: float) -> float:
    """weight * (L1 error - offset). The error is a sum of whole steps: floats would round that of many rows."""
    steps = np.abs(exact_counts.astype(np.int64) * int(STEPS) - np.rint(expected * STEPS).astype(np.int64))
    return float(weight * (int(steps.sum()) / STEPS - offset))


# ---------------------------------------------------------------------------------------------- among functions of rows


@dataclasses.dataclass(frozen=True)
class RowFunctions:
    """Functions of one row with values in [0, 1], numbered in the order of the fields."""

    values: Callable[[np.ndarray], Float[np.ndarray, "rows functions"]] | None = None
    """From a chunk of rows to the values of `count` functions. The values of a row must depend on that row alone."""
    count: int = 0
    cliques: tuple[Clique, ...] = ()
    """For each marginal the indicators of its cells, in C order, then the complements of all of them."""
    constant: bool = False
    """Whether the constant 1/2 is one more function. Its mean is public, so it costs nothing."""
    layout: RowEncoder | None = None
    """What `values` sees of a row: features made of its codes, positions and randomness of its own; None: its codes.
    Each row is encoded once, so all functions and all selections see the same features."""

    def size(self, domain: Domain) -> int:
        return self.count + sum(2 * domain.size(clique) for clique in self.cliques) + self.constant


def noisy_function_selections(
    rows: PrivateRows, functions: RowFunctions, query: Query, ledger: Ledger
) -> "FunctionSelector":
    """Charges for all selections of `query` at once, and returns the function that makes them one by one.

    Formal guarantee: the cost of `query`, `Selections`, under add/remove of one unit: at most its `rounds` selections,
    each with odds exp(epsilon * (sum - public part) / max_rows_per_unit). Sums are over every row, of values that are
    held within [0, 1] and rounded, so a unit moves all of them by 0 to max_rows_per_unit, exactly. Where a layout draws
    (a row's component), it does so independently for each row: for every outcome of the draws of the rows that stay,
    that bound holds, so it holds for the law of a selection. Not covered: timing, and functions or layouts whose value
    for one row depends on others; those that do so on a public probe are refused.
    """
    event = event_of(query, Selections)
    check_num_rows(rows.public_num_rows)
    _check_rowwise(functions, rows)
    check_query(rows, query, ledger)
    ledger.charge(query)  # before the query: a refused one must not happen
    key = None if functions.layout is None else ledger.noise.key()
    return FunctionSelector(_exact_sums(rows, functions, key), event, rows, ledger)


def check_num_rows(num_rows: int) -> None:
    """Refuses a public number of rows with which sums would be rounded, or not fit 64 bits."""
    if num_rows > MAX_ROWS:
        raise ConfigError(
            f"Selections among functions of a row are exact up to {MAX_ROWS:,} rows, found {num_rows:,}. "
            "This query was not made.",
            setting="num_rows",
        )


class FunctionSelector:
    """Selections that were charged. The sums inside are exact and never shown."""

    def __init__(self, exact_sums: Int[np.ndarray, " functions"], event: Selections, rows: UnitRows, ledger: Ledger):
        self._exact_sums, self._left, self._ledger = exact_sums, event.rounds, ledger
        self._num_rows = rows.public_num_rows
        self._scale = math.nextafter(rows.max_rows_per_unit / event.epsilon, math.inf)

    def __call__(self, public_means: Float[np.ndarray, " functions"]) -> int:
        """One selection: large where the rows' mean, over the public number of rows, is above the public mean.

        Odds exp(c (mean_j - public_j)) with c = epsilon * public rows / rows per unit; without privacy the largest.
        """
        public = np.rint(np.asarray(public_means, dtype=np.float64) * self._num_rows * STEPS).astype(np.int64)
        return self._select(np.arange(len(public)), self._exact_sums - public)

    def top(self, count: int) -> list[int]:
        """`count` different functions with the largest sums, best first.

        Selections without replacement: the same law as the largest sums after one vector of Gumbel noise.
        """
        left, found = np.arange(len(self._exact_sums)), []
        for _ in range(count):
            found.append(self._select(left, self._exact_sums[left]))
            left = left[left != found[-1]]
        return found

    def _select(self, candidates: np.ndarray, exact_scores: np.ndarray) -> int:
        if self._left == 0:
            raise BudgetExceeded("All charged selections have been made. This query was not made.")
        self._left -= 1
        if not self._ledger.guarantee.is_private:
            return int(candidates[np.argmax(exact_scores)])
        return int(candidates[self._ledger.noise.noisy_argmax(exact_scores / STEPS, self._scale)])


def noisy_closest(
    rows: PrivateRows,
    cliques: Sequence[Clique],
    candidates: Sequence[Sequence[Float[np.ndarray, "..."]]],
    query: Query,
    ledger: Ledger,
) -> list[int]:
    """The candidates whose marginals, given as fractions for each clique, are nearest to those of the rows.

    Formal guarantee: the cost of `query`, `Selections` with one round for each candidate that is selected. The score is
    minus half the L1 distance of counts, averaged over cliques: it moves by at most half a row for each row of a unit,
    up or down, so it has a range of max_rows_per_unit.
    """
    event = event_of(query, Selections)
    check_num_rows(rows.public_num_rows)
    check_query(rows, query, ledger)
    ledger.charge(query)
    rows._count_ahead(cliques)
    exact_scores = np.asarray(
        [
            -np.mean([_half_distance(rows, *pair) for pair in zip(cliques, marginals, strict=True)])
            for marginals in candidates
        ]
    )
    whole = np.rint(exact_scores * STEPS).astype(np.int64)
    # Distances are rounded sums of floats: slightly more noise covers that.
    scale = rows.max_rows_per_unit * ROUNDING + 2 / STEPS
    selector = FunctionSelector(
        whole, dataclasses.replace(event, epsilon=event.epsilon * rows.max_rows_per_unit / scale), rows, ledger
    )
    return selector.top(event.rounds)


def _half_distance(rows: PrivateRows, clique: Clique, fractions: Float[np.ndarray, "..."]) -> float:
    """Half the L1 distance of a marginal's exact counts from these fractions of the public number of rows."""
    exact_counts = rows._exact_counts(clique)
    assert fractions.shape == exact_counts.shape, "broadcasting would count a row several times"
    return 0.5 * np.abs(exact_counts - rows.public_num_rows * fractions).sum()


def _exact_sums(rows: PrivateRows, functions: RowFunctions, key: PRNGKeyArray | None) -> Int[np.ndarray, " functions"]:
    """The sum of every function over all rows, in whole steps."""
    parts = [_summed_values(rows, functions, key)] if functions.values is not None else []
    for clique in rows._counted_ahead(functions.cliques):
        counts = rows._exact_counts(clique).reshape(-1)
        parts += [counts * int(STEPS), (counts.sum() - counts) * int(STEPS)]
    if functions.constant:
        parts.append(np.asarray([round(0.5 * rows.public_num_rows * STEPS)]))
    return np.concatenate(parts).astype(np.int64)


def _summed_values(rows: PrivateRows, functions: RowFunctions, key: PRNGKeyArray | None) -> np.ndarray:
    total = np.zeros(functions.count, dtype=np.int64)
    for start in range(0, len(rows._codes), CHUNK):
        at = slice(start, start + CHUNK)
        part = rows._codes[at].astype(np.int32)
        if functions.layout is not None:
            assert key is not None
            own_key = jax.random.fold_in(key, start)  # so no two rows share their randomness
            part = functions.layout.encode(part, rows._positions[at], own_key)
        padded = np.zeros((CHUNK, part.shape[1]), dtype=part.dtype)
        padded[: len(part)] = part
        total += _whole_steps(functions, padded)[: len(part)].sum(axis=0)
    return total


def _whole_steps(functions: RowFunctions, shown: np.ndarray) -> np.ndarray:
    """Values clipped to [0, 1]; NaN becomes one half."""
    assert functions.values is not None
    values = np.asarray(functions.values(shown), dtype=np.float64)
    if values.shape != (len(shown), functions.count):
        raise ConfigError(
            f"The functions must give {functions.count} values for each of {len(shown)} rows, found an array of shape "
            f"{values.shape}."
        )
    return np.rint(np.clip(np.where(np.isnan(values), 0.5, values), 0.0, 1.0) * STEPS).astype(np.int64)


def _check_rowwise(functions: RowFunctions, rows: PrivateRows) -> None:
    """Refuses functions whose value for a row depends on its neighbours or its index, on made-up rows.

    Of `rows` only what is public is used. A layout must give a row the same features whatever the others are.
    """
    if functions.values is None:
        return
    generator, layout = np.random.default_rng(0), functions.layout
    kept = generator.random(CHUNK) < 0.5
    (public, positions), (changed, others) = (
        _made_up(rows.domain.sizes, () if layout is None else rows.scales, generator) for _ in range(2)
    )
    changed[kept], others[kept] = public[kept], positions[kept]
    if layout is not None:
        key = jax.random.key(0)
        public, changed = layout.encode(public, positions, key), layout.encode(changed, others, key)
    # Every row shifted by one, as if a row were inserted before it, and half of them exchanged at random.
    moved, stay = np.roll(public, 1, axis=0), np.roll(kept, 1)
    moved[~stay] = np.roll(changed, 1, axis=0)[~stay]
    before, after = (_whole_steps(functions, shown) for shown in (public, moved))
    same = np.array_equal(public[kept], changed[kept], equal_nan=public.dtype.kind == "f")
    if not same or not np.array_equal(np.roll(before, 1, axis=0)[stay], after[stay]):
        raise ConfigError(
            "These functions mix rows: the value for a row depends on other rows or on its index, so one unit would "
            "change the sums by more than was charged. Use critics without batch normalisation or packing."
        )


def _made_up(
    sizes: Sequence[int], scales: Sequence[NumericDomain | None], generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Codes and positions of a chunk of made-up rows: random values within the public facts."""
    codes = generator.integers(sizes, size=(CHUNK, len(sizes)), dtype=np.int32)
    positions = np.full(codes.shape, np.nan)
    for at, scale in enumerate(scales):
        if scale is not None:
            missing = scale.nullable & (codes[:, at] == sizes[at] - 1)
            positions[:, at] = np.where(missing, np.nan, generator.random(CHUNK))
    return codes, positions
