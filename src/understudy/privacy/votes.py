"""Teachers over disjoint parts of the units, and their noisy votes: the query of PATE at the rows.

A unit's rows are all in one part, assigned once by a coin of the unit's own, so a unit that comes or goes changes one
teacher, whatever that teacher does with its rows. Of a vote it then moves the count by one at most. `noisy_votes` is
the only place where teachers meet, and everything after it is post-processing.

Needs nothing but NumPy, JAX and Equinox. What is charged for it is in `mechanisms.pay_for_votes`.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from understudy.privacy.device_noise import normals, word_pairs

LAWS = ("gaussian", "laplace")


class Parts(eqx.Module):
    """Rows in the order of their teachers, whose stretches may have any length: shapes follow from totals alone."""

    rows: Float[Array, "rows features"] | Int[Array, "rows columns"]
    """Features, or the codes of one-hot blocks."""
    first: Int[Array, " teachers"]
    """Where each teacher's rows begin."""
    size: Int[Array, " teachers"]
    """How many they are; a teacher may have none."""


def parted(
    rows: np.ndarray, unit_of_row: np.ndarray | None, num_teachers: int, *, key: PRNGKeyArray
) -> tuple[Parts, Int[np.ndarray, " rows"]]:
    """Rows by teacher, and each row's teacher. A unit draws its teacher evenly; None: every row is a unit.

    Formal guarantee: each unit's teacher is a draw of its own, independent of all rows and of all other units, and all
    of its rows go there: when a unit comes or goes, the parts of all other teachers have the same law as before. (With
    one key they differ, for coins go by position; no guarantee is about one key.)
    """
    if unit_of_row is None:
        unit_of_row = np.arange(len(rows))
    numbers, unit_of_row = np.unique(unit_of_row, return_inverse=True)
    teacher_of_unit = np.asarray(jax.random.randint(key, (max(1, len(numbers)),), 0, num_teachers))
    teacher_of_row = teacher_of_unit[unit_of_row] if len(rows) else np.zeros(0, dtype=int)
    return arranged(rows, teacher_of_row, num_teachers), teacher_of_row


def arranged(rows: np.ndarray, teacher_of_row: Int[np.ndarray, " rows"], num_teachers: int) -> Parts:
    """Rows in the order of their teachers, and of their own within each."""
    size = np.bincount(teacher_of_row, minlength=num_teachers)
    first = np.cumsum(size) - size
    ordered = rows[np.argsort(teacher_of_row, kind="stable")]
    if not len(rows):  # a run with nobody in it must look like any other
        ordered = np.zeros((1, rows.shape[1]), dtype=rows.dtype)
    return Parts(jnp.asarray(ordered), jnp.asarray(first, jnp.int32), jnp.asarray(size, jnp.int32))


def noisy_votes(
    says: Bool[Array, "teachers queries"],
    size: Int[Array, " teachers"],
    *,
    scale: Float[Array, ""] | float,
    law: str,
    key: PRNGKeyArray,
) -> Float[Array, " queries"]:
    """How many teachers say yes to each query, with noise of this scale: a standard deviation, or that of a Laplace
    law.

    Formal guarantee: for each query a Gaussian query of sensitivity one and noise multiplier `scale`, or a Laplace one
    of pure epsilon 1 / `scale`, provided that what a teacher says is a function of its own part, of earlier noisy
    votes and of randomness that no other part has touched. A teacher without rows votes no, so it is as if it were not
    there. `key` serves nothing else.
    """
    exact_votes = jnp.sum(says & (size > 0)[:, None], axis=0)
    draw = normals if law == "gaussian" else laplaces
    # A count is whole, so noise that is rounded first is the rounded noisy count: its low bits tell nothing.
    return exact_votes + jnp.rint(scale * draw(key, exact_votes.shape[0]))


def laplaces(key: PRNGKeyArray, count: int) -> Float[Array, " count"]:
    """Laplace numbers of scale one: an exponential from 63 bits, which ends at 44, and a fair sign."""
    first, second = word_pairs(key, count)
    below, half = (first >> 31) == 1, first & np.uint32(0x7FFFFFFF)
    rest = (second.astype(jnp.float32) + np.float32(0.5)) * np.float32(2**-32)
    size = -jnp.log((half.astype(jnp.float32) + rest) * np.float32(2**-31))
    return jnp.where(below, -size, size)


def scale_of(noise_multiplier: float, num_queries: int) -> float:
    """Standard deviation of each of so many Gaussian votes that cost one Gaussian query of this multiplier together."""
    return noise_multiplier * math.sqrt(num_queries)
