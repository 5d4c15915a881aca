"""Objective perturbation: the exact minimiser of a regularised logistic loss with a random linear term.

Chaudhuri, Monteleoni and Sarwate, "Differentially private empirical risk minimization", 2011, for two classes.
Deviation: their noise is for one row replaced by another; here it is for one added or removed, which is half of it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy import special

from understudy.errors import BudgetExceeded, TrainingError
from understudy.privacy.accounting.events import Pure
from understudy.privacy.accounting.ledger import Ledger, Query
from understudy.privacy.gradients.charges import check_query, event_of
from understudy.privacy.mechanisms.moments import exact_examples
from understudy.privacy.noise.device import word_pairs
from understudy.privacy.rows.rows import PrivateRows, RowEncoder

CURVATURE = 0.25
"""The logistic loss has a second derivative of at most this, and a slope of at most one."""
FINEST = 2.0**-20
"""Coefficients are released on a grid of this or a coarser public width."""
COARSE = 2.0**-32
"""The grid is at least this part of the scale of the coefficients, of which float64 rounds off 2^-53."""
EXACT = 2.0**-8
"""The proof is for the minimiser itself: what is found is within this part of the grid, and one more step follows."""
ITERATIONS = 100
MAX_INPUTS = 2**14
"""Of more, the finite range of the random term, of two numbers for each, would add more to delta than is charged."""


class Minimisers(NamedTuple):
    """One vector of coefficients for each problem, and the penalty that was used."""

    coefficients: Float[np.ndarray, "problems inputs"]
    penalty: float


def noisy_minimisers(
    rows: PrivateRows,
    layout: RowEncoder,
    positives: Sequence[int],
    query: Query,
    ledger: Ledger,
    *,
    penalty: float,
    class_weights: Float[np.ndarray, " classes"],
) -> Minimisers:
    """For each positive class, the minimiser of (sum of w loss + b . f) / n + penalty / 2 |f|^2 against all others.

    The layout gives each row's inputs, clipped to norm one, and its class. n is the public number of rows.

    Formal guarantee: the cost of `query`, a `Pure` with one round for each problem, under add/remove of one unit. For
    every f there is one b for which it is the minimiser, b(f) = -(sum of w loss' + n penalty f). A row moves b(f) by at
    most w, and the determinant of its derivative, of which all eigenvalues are at least n penalty, by a factor within
    1 + w / (4 n penalty). So with a density proportional to exp(-beta |b|), that of f changes within a factor of
    exp(k (beta w + log(1 + w / (4 n penalty)))) for k rows of a unit, and beta is what makes this the cost. The
    penalty is raised where it would leave less than half of the cost to beta. What is released is the minimiser
    rounded to a public grid. It is found to 2^-8 of the grid, then one more step of Newton's squares that error, down
    to the rounding of float64: 2^-18 of the grid or so, as are the steps of the random term. Both move the odds of a
    cell of the grid by a fraction of about 1e-5 for each input. Where no such minimum is found there is no answer; that
    takes rows in far greater number than the public one. Not covered: that refusal, timing, memory.
    """
    event = event_of(query, Pure)
    if len(positives) > event.rounds:
        raise BudgetExceeded(
            f"'{query.what}' is planned for {event.rounds} problems, not for {len(positives)}.", query=query.what
        )
    check_query(rows, query, ledger)
    ledger.charge(query)
    most = float(np.max(class_weights))
    size, unit = rows.domain.num_rows, rows.max_rows_per_unit
    private = ledger.guarantee.is_private
    beta = math.inf
    if private:
        penalty = max(penalty, least_penalty(event.epsilon, size, unit, most))
        beta = rate_of_term(event.epsilon, penalty, size, unit, most)
    chunks = list(exact_examples(rows, layout, ledger))  # the first reading of a row: all above is public
    inputs = np.concatenate([x for x, _ in chunks])
    codes = np.concatenate([label for _, label in chunks])
    known = ~np.isnan(codes)
    inputs, labels = inputs[known], codes[known].astype(np.int64)
    grid = public_grid(inputs.shape[1], beta, penalty, size, most)
    found = []
    for positive in positives:
        term = random_term(inputs.shape[1], beta, ledger.noise.key()) if private else np.zeros(inputs.shape[1])
        signs = np.where(labels == positive, 1.0, -1.0)
        exact = minimiser(inputs, signs, class_weights[labels], term, size=size, penalty=penalty, grid=grid)
        found.append(np.rint(exact / grid) * grid + 0.0)  # a zero has no sign
    return Minimisers(np.stack(found), penalty)


def least_penalty(epsilon: float, num_rows: int, rows_per_unit: int = 1, most_weight: float = 1.0) -> float:
    """The penalty with which the determinant takes half of the cost."""
    return CURVATURE * most_weight / (num_rows * math.expm1(epsilon / (2 * rows_per_unit)))


def rate_of_term(
    epsilon: float, penalty: float, num_rows: int, rows_per_unit: int = 1, most_weight: float = 1.0
) -> float:
    """beta: what the determinant leaves of the cost, for each row of a unit and each unit of weight."""
    determinant = math.log1p(CURVATURE * most_weight / (num_rows * penalty))
    return (epsilon / rows_per_unit - determinant) / most_weight


def public_grid(num_inputs: int, beta: float, penalty: float, num_rows: int, most_weight: float = 1.0) -> float:
    """The width of the grid of released coefficients, a power of two.

    Coefficients are at most (sum of weights + |b|) / (n penalty), and float64 rounds them in proportion.
    """
    scale = max(most_weight, num_inputs / (beta * num_rows)) / penalty
    return max(FINEST, COARSE * 2.0 ** math.ceil(math.log2(scale)))


def random_term(size: int, beta: float, key: PRNGKeyArray) -> Float[np.ndarray, " inputs"]:
    """A vector with density proportional to exp(-beta |b|): an even direction, and a gamma length.

    All of it in float64 from 64 bits a number. In float32 the term would lie on a coarse lattice, and whoever has a
    table in mind could tell by it whether the released answer came from that table.
    """
    assert size <= MAX_INPUTS, "refused when the run was planned"
    direction_key, length_key = jax.random.split(key)
    high, low = _words(direction_key, size)
    below = high >= 2.0**31  # one bit for the side, and 63 for the tail, where a float64 is finest
    tails = (high - np.where(below, 2.0**31, 0.0) + (low + 0.5) * 2.0**-32) * 2.0**-32
    direction = np.where(below, 1.0, -1.0) * special.ndtri(tails)
    high, low = _words(length_key, size)
    uniforms = (high + (low + 0.5) * 2.0**-32) * 2.0**-32
    length = -np.log(uniforms).sum() / beta  # a gamma variable of a whole shape is a sum of exponential ones
    return direction * (length / np.linalg.norm(direction))


def _words(key: PRNGKeyArray, count: int) -> tuple[np.ndarray, np.ndarray]:
    high, low = word_pairs(key, count)
    return np.asarray(high, dtype=np.float64), np.asarray(low, dtype=np.float64)


def minimiser(
    inputs: Float[np.ndarray, "rows inputs"],
    signs: Float[np.ndarray, " rows"],
    weights: Float[np.ndarray, " rows"],
    term: Float[np.ndarray, " inputs"],
    *,
    size: int,
    penalty: float,
    grid: float,
) -> Float[np.ndarray, " inputs"]:
    """By Newton's method with halved steps, to within EXACT grids and then by one more step; else refused."""
    small = EXACT * grid * penalty  # a gradient of this norm is within EXACT grids of the minimum
    signed = inputs * signs[:, None]

    def value(at: np.ndarray) -> float:
        return float((weights @ np.logaddexp(0.0, -(signed @ at)) + term @ at) / size + penalty / 2 * at @ at)

    def gradient(at: np.ndarray) -> np.ndarray:
        return (term - signed.T @ (weights * special.expit(-(signed @ at)))) / size + penalty * at

    at = np.zeros(inputs.shape[1])
    for _ in range(ITERATIONS):
        slope = gradient(at)
        near = bool(np.linalg.norm(slope) <= small)
        share = special.expit(signed @ at)
        curve = (inputs.T * (weights * share * (1 - share))) @ inputs / size + penalty * np.eye(len(at))
        step = np.linalg.solve(curve, slope)
        length, before = 1.0, value(at)
        while not near and length > 1e-6 and value(at - length * step) > before - 1e-4 * length * float(slope @ step):
            length /= 2
        # Near the end values no longer tell points apart; a whole step of Newton's is right there.
        at = at - (length if length > 1e-6 else 1.0) * step
        if near:
            break
    if not np.linalg.norm(gradient(at)) <= small:
        raise TrainingError(
            "The exact minimum was not reached. Only the exact minimum is private, so nothing is released. Raise the "
            "penalty, or use sgd"
        )
    return at
