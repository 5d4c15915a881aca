"""Noisy sums over all rows, from which learners are made: moments of inputs and label, counts and sums by class.

Every row's part is held within its bound here, whatever made it, and rounded towards zero to whole steps; so sums are
whole numbers that do not depend on the order of the rows, and a unit moves them by what is claimed, exactly. The noise
is discrete Gaussian on the same steps, with a standard deviation s of 10^4 of them and more, and is charged as a
continuous Gaussian, rounded: for a draw k of m cells the two laws have a ratio of exp((|k|^2 / s^2 - m) / (24 s^2)),
but for terms of order s^-4. With s = 10^4 and a million cells this is within 1e-5 of one for all but 1e-30 of the mass:
epsilon, and delta in relative terms, are those of the continuous distribution to 1e-5. Most sums here have far finer
steps.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting.events import Gaussian
from understudy.privacy.accounting.ledger import Ledger, Query
from understudy.privacy.gradients.charges import check_query, event_of
from understudy.privacy.noise.source import MAX_SUM, check_stddev, with_noise
from understudy.privacy.rows.rows import PrivateRows, RowEncoder
from understudy.schema import Domain, NumericDomain

STEPS = 2.0**18
"""An input is rounded to this part of one. Products have the square of it: exact in a float64 up to CHUNK rows, then
summed as whole numbers of any size, so that no number of rows is too great."""
CHUNK = 4096
ROOM = 1e-9
"""Weights are floats: the sum of their squares may pass one by this, and the noise grows by it."""


def exact_examples(
    rows: PrivateRows, layout: RowEncoder, ledger: Ledger, *, labelled: bool = True
) -> Iterator[tuple[Float[np.ndarray, "rows inputs"], Float[np.ndarray, " rows"]]]:
    """Inputs of norm one at most, and labels (the last number of a row, or zeros if rows are not `labelled`), chunk by
    chunk; rows that are no numbers have neither. Exact: noise must follow. Used inside `privacy/` alone."""
    key = ledger.noise.key()
    for start in range(0, max(1, len(rows._codes)), CHUNK):  # shapes do not reveal an empty table
        at = slice(start, start + CHUNK)
        own_key = jax.random.fold_in(key, start)  # no two rows share their randomness
        encoded = np.asarray(
            layout.encode(rows._codes[at].astype(np.int32), rows._positions[at], own_key), dtype=np.float64
        )
        usable = np.asarray(np.isfinite(encoded).all(axis=1))
        encoded = np.where(usable[:, None], encoded, 0.0)
        inputs, label = (encoded[:, :-1], encoded[:, -1]) if labelled else (encoded, np.zeros(len(encoded)))
        norms = np.linalg.norm(inputs, axis=1, keepdims=True)
        yield inputs / np.maximum(norms * (1 + 1e-12), 1.0), np.where(usable, label, np.nan)


# ------------------------------------------------------------------------------------------------------------- moments


@dataclasses.dataclass(frozen=True)
class Moments:
    """Sums of products over the rows, with noise, and its standard deviations."""

    gram: Float[np.ndarray, "inputs inputs"]
    cross: Float[np.ndarray, " inputs"]
    square: float | None
    gram_stddev: float
    """Of a diagonal cell; the others have this over the square root of two."""
    cross_stddev: float


def noisy_moments(
    rows: PrivateRows,
    layout: RowEncoder,
    query: Query,
    ledger: Ledger,
    *,
    weights: tuple[float, float, float],
    absent: Bool[np.ndarray, "inputs inputs"],
) -> Moments:
    """X^T X, X^T y and, where its weight is not zero, y^T y over all rows, with Gaussian noise.

    The layout gives each row's inputs and, last, its label, clipped to [-1, 1]; rows without a label are left out.
    `weights` share the noise: a part of weight w has that of the query over w. Cells that are `absent`, because public
    facts say that such products are zero, are not queried.

    Formal guarantee: the cost of `query`, a `Gaussian`, under add/remove of one unit. One row has |x| <= 1 and
    |y| <= 1, so x x^T moves by at most 1 in Frobenius norm (each cell above the diagonal stands for two of it: its
    noise is smaller by the square root of two), x y by 1 and y^2 by 1; weights have squares that sum to one at most.
    The noise grows with max_rows_per_unit. Not covered: timing, memory, layouts that mix rows.
    """
    stddev = _charged_stddevs(rows, query, ledger, weights, STEPS**2)
    exact_gram, exact_cross, exact_square = _exact_moments(rows, layout, ledger)
    upper = np.triu(~absent)
    np.fill_diagonal(upper, False)
    gram = np.zeros(exact_gram.shape)
    gram[upper] = _with_noise(exact_gram[upper], stddev[0] / math.sqrt(2), STEPS**2, ledger)
    gram = gram + gram.T + np.diag(_with_noise(np.diag(exact_gram), stddev[0], STEPS**2, ledger))
    cross = _with_noise(exact_cross, stddev[1], STEPS**2, ledger)
    square = None
    if weights[2]:
        square = float(_with_noise(np.asarray([exact_square], dtype=object), stddev[2], STEPS**2, ledger)[0])
    shown = stddev if ledger.guarantee.is_private else (0.0, 0.0, 0.0)
    return Moments(gram, cross, square, shown[0], shown[1])


def _exact_moments(
    rows: PrivateRows, layout: RowEncoder, ledger: Ledger, *, labelled: bool = True
) -> tuple[np.ndarray, np.ndarray, int]:
    """In whole steps, squared, as Python's whole numbers."""
    gram: np.ndarray | int = 0
    cross: np.ndarray | int = 0
    square = 0
    for inputs, label in exact_examples(rows, layout, ledger, labelled=labelled):
        known = ~np.isnan(label)
        x = np.trunc(inputs[known] * STEPS)
        y = np.trunc(np.clip(label[known], -1.0, 1.0) * STEPS)
        gram = gram + _whole(x.T @ x)
        cross = cross + _whole(x.T @ y)
        square += int(y @ y)
    return np.asarray(gram), np.asarray(cross), square


def noisy_gram(
    rows: PrivateRows, layout: RowEncoder, query: Query, ledger: Ledger
) -> Float[np.ndarray, "inputs inputs"]:
    """X^T X over all rows, each row's inputs clipped to norm one, with Gaussian noise; symmetric.

    Formal guarantee: the cost of `query`, a `Gaussian`, under add/remove of one unit. One row has |x| <= 1, so x x^T
    moves by at most 1 in Frobenius norm, and by no more on and above the diagonal, where the noise is drawn. The noise
    grows with max_rows_per_unit. Not covered: timing, memory, layouts that mix rows.
    """
    (stddev,) = _charged_stddevs(rows, query, ledger, (1.0,), STEPS**2)
    exact_gram, _, _ = _exact_moments(rows, layout, ledger, labelled=False)
    upper = np.triu_indices(len(exact_gram))
    noisy = np.zeros(exact_gram.shape)
    noisy[upper] = _with_noise(exact_gram[upper], stddev, STEPS**2, ledger)
    return noisy + np.triu(noisy, 1).T


# ------------------------------------------------------------------------------------------------------------ by class


@dataclasses.dataclass(frozen=True)
class ClassBlock:
    """One table of sums by class: what of which column, and in how many cells."""

    what: str
    """classes, levels, known, sums or squares."""
    column: str
    cells: int


def class_blocks(
    domain: Domain, scales: Sequence[NumericDomain | None], target: str, levels: Sequence[str], numbers: Sequence[str]
) -> tuple[ClassBlock, ...]:
    """The tables that a naive Bayes learner needs: public facts alone."""
    (size,) = domain.shape((target,))
    blocks = [ClassBlock("classes", target, size)]
    blocks += [ClassBlock("levels", name, domain.size((target, name))) for name in levels]
    for name in numbers:
        scale = scales[domain.index(name)]
        if scale is not None and scale.nullable:
            blocks.append(ClassBlock("known", name, size))
        blocks += [ClassBlock("sums", name, size), ClassBlock("squares", name, size)]
    return tuple(blocks)


def block_weights(blocks: Sequence[ClassBlock]) -> tuple[float, ...]:
    """Weights whose squares sum to one, for the least total variance of the noise.

    Minimises sum_j d_j / w_j^2, with d_j cells, over sum_j w_j^2 = 1: w_j^2 is proportional to the square root of d_j.
    """
    roots = np.sqrt([float(block.cells) for block in blocks])
    return tuple(np.sqrt(roots / roots.sum()).tolist())


def noisy_class_sums(
    rows: PrivateRows,
    target: str,
    blocks: Sequence[ClassBlock],
    query: Query,
    ledger: Ledger,
    *,
    weights: Sequence[float],
) -> Mapping[tuple[str, str], tuple[np.ndarray, float]]:
    """For each block its sums by class with Gaussian noise, and the noise's standard deviation.

    A number counts as it lies between its bounds, from -1 to 1; `known` counts the rows in which it is there.

    Formal guarantee: the cost of `query`, a `Gaussian`, under add/remove of one unit. One row has one class and in each
    block touches one cell of it, by at most 1; the noise of a block is that of the query over its weight, and the
    squares of the weights sum to one at most. The noise grows with max_rows_per_unit. Not covered: timing, memory.
    """
    stddevs = _charged_stddevs(rows, query, ledger, weights, STEPS)
    rows._count_ahead([(target,), *((target, block.column) for block in blocks if block.what == "levels")])
    answers = {}
    for block, stddev in zip(blocks, stddevs, strict=True):
        noisy = _with_noise(_exact_class_sums(rows, target, block), stddev, STEPS, ledger)
        if block.what in ("classes", "levels"):
            rows._note_total(noisy, stddev if ledger.guarantee.is_private else 0.0)
        answers[block.what, block.column] = (noisy, stddev if ledger.guarantee.is_private else 0.0)
    return answers


def _exact_class_sums(rows: PrivateRows, target: str, block: ClassBlock) -> Int[np.ndarray, "..."]:
    """In whole steps: exact up to 2^35 rows, more than any memory has."""
    if block.what in ("classes", "levels"):
        clique = (target,) if block.what == "classes" else (target, block.column)
        return rows._exact_counts(clique) * int(STEPS)
    positions = rows._positions[:, rows.domain.index(block.column)]
    number = 2 * np.clip(np.nan_to_num(positions, nan=0.5), 0.0, 1.0) - 1
    number = {"known": np.ones_like(number), "sums": number, "squares": number**2}[block.what]
    steps = np.where(np.isnan(positions), 0.0, np.trunc(number * STEPS))
    (size,) = rows.domain.shape((target,))
    summed = np.bincount(rows._codes[:, rows.domain.index(target)], weights=steps, minlength=size)
    return summed.astype(np.int64)


# --------------------------------------------------------------------------------------------------------------- noise


def _charged_stddevs(
    rows: PrivateRows, query: Query, ledger: Ledger, weights: Sequence[float], steps: float
) -> tuple[float, ...]:
    """The noise of each part of a sum on these steps, once it is charged. All refusals are by public numbers."""
    event = event_of(query, Gaussian)
    if event.count != 1 or sum(weight**2 for weight in weights) > 1 + ROOM:
        raise BudgetExceeded(
            f"'{query.what}' is planned for one sum of weights whose squares add up to 1, not for this one.",
            query=query.what,
        )
    check_query(rows, query, ledger)
    check_rows(rows.domain, steps)
    unit = event.noise_multiplier * rows.max_rows_per_unit * (1 + ROOM)
    stddevs = tuple(unit / weight if weight else math.inf for weight in weights)
    if ledger.guarantee.is_private:
        for stddev, weight in zip(stddevs, weights, strict=True):
            check_stddev(stddev * steps if weight else 0.0)  # a part without weight is not queried
    ledger.charge(query)  # before the query: a refused one must not happen
    return stddevs


def check_rows(domain: Domain, steps: float = STEPS**2) -> None:
    """Refuses sums over more declared rows than 64 bits can hold, already in the plan, before any query.

    An estimated number of rows is a noisy answer and causes no refusal: sums beyond 64 bits are clamped.
    """
    if domain.declared_rows is not None and domain.declared_rows * steps > MAX_SUM:
        raise ConfigError(
            f"These sums support at most {int(MAX_SUM / steps):,} rows, but {domain.declared_rows:,} are declared. "
            "Use another learner, or another encoder.",
            setting="rows",
        )


def _whole(sums: Float[np.ndarray, "..."]) -> np.ndarray:
    """Python's whole numbers, which never wrap around: sums of 64 bits would, by the private number of rows."""
    return sums.astype(np.int64).astype(object)


def _with_noise(exact: np.ndarray, stddev: float, steps: float, ledger: Ledger) -> Float[np.ndarray, "..."]:
    """Sums in whole steps as numbers, with noise of this standard deviation; without privacy, as they are."""
    if not ledger.guarantee.is_private:
        return exact.astype(np.float64) / steps
    return with_noise(exact, stddev * steps, ledger.noise) / steps
