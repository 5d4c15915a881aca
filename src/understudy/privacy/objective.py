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

from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting import Pure
from understudy.privacy.device_noise import normals, word_pairs
from understudy.privacy.ledger import Ledger, Look
from understudy.privacy.mechanisms import RowEncoder, Rows, check_units
from understudy.privacy.statistics import label_and_inputs

CURVATURE = 0.25
"""The logistic loss has a second derivative of at most this, and a slope of at most one."""
EXACT = 1e-9
"""The proof is for the minimiser itself: a gradient of at most this norm counts as zero."""
ITERATIONS = 100


class Minimisers(NamedTuple):
    """One vector of coefficients for each problem, and the penalty that was used."""

    coefficients: Float[np.ndarray, "problems inputs"]
    penalty: float


def noisy_minimisers(
    rows: Rows,
    layout: RowEncoder,
    positives: Sequence[int],
    look: Look,
    ledger: Ledger,
    *,
    penalty: float,
    class_weights: Float[np.ndarray, " classes"],
) -> Minimisers:
    """For each positive class, the minimiser of (sum of w loss + b . f) / n + penalty / 2 |f|^2 against all others.

    The layout gives each row's inputs, held to norm one, and its class. n is the public number of rows.

    Formal guarantee: the price of `look`, a `Pure` with one round for each problem, under add/remove of one unit. For
    every f there is one b for which it is the minimiser, b(f) = -(sum of w loss' + n penalty f). A row moves b(f) by at
    most w, and the determinant of its derivative, of which all eigenvalues are at least n penalty, by a factor within
    1 + w / (4 n penalty). So with a density proportional to exp(-beta |b|), that of f changes within a factor of
    exp(k (beta w + log(1 + w / (4 n penalty)))) for k rows of a unit, and beta is what makes this the price. The
    penalty is raised where it would leave less than half of the price to beta. Without the exact minimiser there is no
    answer. Not covered: low-order bits of floating-point arithmetic, timing, memory.
    """
    event = look.event
    assert isinstance(event, Pure)
    if len(positives) > event.rounds:
        raise BudgetExceeded(f"'{look.what}' is priced for {event.rounds} problems, not for {len(positives)}.")
    check_units(rows, ledger)
    ledger.charge(look)
    most = float(np.max(class_weights))
    size, unit = rows.domain.num_rows, rows.max_rows_per_unit
    private = ledger.guarantee.is_private
    beta = math.inf
    if private:
        penalty = max(penalty, least_penalty(event.epsilon, size, unit, most))
        beta = rate_of_term(event.epsilon, penalty, size, unit, most)
    chunks = list(label_and_inputs(rows, layout, ledger))
    inputs = np.concatenate([x for x, _ in chunks])
    codes = np.concatenate([label for _, label in chunks])
    known = ~np.isnan(codes)
    inputs, labels = inputs[known], codes[known].astype(np.int64)
    found = []
    for positive in positives:
        term = random_term(inputs.shape[1], beta, ledger.noise.key()) if private else np.zeros(inputs.shape[1])
        signs = np.where(labels == positive, 1.0, -1.0)
        found.append(minimiser(inputs, signs, class_weights[labels], term, size=size, penalty=penalty))
    return Minimisers(np.stack(found), penalty)


def least_penalty(epsilon: float, num_rows: int, rows_per_unit: int = 1, most_weight: float = 1.0) -> float:
    """The penalty with which the determinant takes half of the price."""
    return CURVATURE * most_weight / (num_rows * math.expm1(epsilon / (2 * rows_per_unit)))


def rate_of_term(
    epsilon: float, penalty: float, num_rows: int, rows_per_unit: int = 1, most_weight: float = 1.0
) -> float:
    """beta: what the determinant leaves of the price, for each row of a unit and each unit of weight."""
    determinant = math.log1p(CURVATURE * most_weight / (num_rows * penalty))
    return (epsilon / rows_per_unit - determinant) / most_weight


def random_term(size: int, beta: float, key: PRNGKeyArray) -> Float[np.ndarray, " inputs"]:
    """A vector with density proportional to exp(-beta |b|): an even direction, and a gamma length."""
    direction_key, length_key = jax.random.split(key)
    direction = np.asarray(normals(direction_key, size), dtype=np.float64)
    high, low = (np.asarray(words, dtype=np.float64) for words in word_pairs(length_key, size))
    uniforms = (high + (low + 0.5) * 2.0**-32) * 2.0**-32
    length = -np.log(uniforms).sum() / beta  # a gamma variable of a whole shape is a sum of exponential ones
    return direction * (length / np.linalg.norm(direction))


def minimiser(
    inputs: Float[np.ndarray, "rows inputs"],
    signs: Float[np.ndarray, " rows"],
    weights: Float[np.ndarray, " rows"],
    term: Float[np.ndarray, " inputs"],
    *,
    size: int,
    penalty: float,
) -> Float[np.ndarray, " inputs"]:
    """By Newton's method with halved steps; refused unless the gradient vanishes."""
    signed = inputs * signs[:, None]

    def value(at: np.ndarray) -> float:
        return float((weights @ np.logaddexp(0.0, -(signed @ at)) + term @ at) / size + penalty / 2 * at @ at)

    def gradient(at: np.ndarray) -> np.ndarray:
        return (term - signed.T @ (weights * special.expit(-(signed @ at)))) / size + penalty * at

    at = np.zeros(inputs.shape[1])
    for _ in range(ITERATIONS):
        slope = gradient(at)
        if np.linalg.norm(slope) <= EXACT / 10:
            break
        share = special.expit(signed @ at)
        curve = (inputs.T * (weights * share * (1 - share))) @ inputs / size + penalty * np.eye(len(at))
        step = np.linalg.solve(curve, slope)
        length, before = 1.0, value(at)
        while length > 1e-6 and value(at - length * step) > before - 1e-4 * length * float(slope @ step):
            length /= 2
        # Near the end values no longer tell points apart; a whole step of Newton's is right there.
        at = at - (length if length > 1e-6 else 1.0) * step
    if not np.linalg.norm(gradient(at)) <= EXACT:
        raise ConfigError(
            "The exact minimum was not reached, and only it is private: nothing is released. Raise the penalty, or use "
            'method="sgd".'
        )
    return at
