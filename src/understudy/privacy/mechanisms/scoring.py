"""Functions of one row that come from users, and selections by the scores of private rows.

A function that a user writes may look at other rows, keep a state, or return anything. Here it is traced by JAX once,
with a placeholder for the values of a single row, and never called again. What runs on private rows is the traced
program: it has no other input and no state, and runs for one row at a time. Its values are clamped to a public range.
This protects against mistakes, not against hostile code: whoever writes the function runs Python in this process. What
the function holds (constants, weights, data that it refers to) is part of the program, and taken as public.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import Array, Float, Int, Num, PyTree

from understudy.errors import ConfigError
from understudy.privacy.accounting.events import Selections
from understudy.privacy.accounting.ledger import Ledger, Partition, Query
from understudy.privacy.gradients.charges import check_query, event_of
from understudy.privacy.mechanisms.selection import CHUNK, STEPS, FunctionSelector, check_num_rows

RowScore = Callable[[PyTree], Array]
"""From the values of one row to one number. Written with `jax.numpy`."""
Range = tuple[float, float]
WITH_STATE = {"ffi_call", "rng_uniform"}
"""Operations that may have a state although JAX declares no effect: foreign functions, and XLA's own random numbers."""
ENDLESS = "while"
"""A loop whose length depends on a row: for some row it may never end. Loops of fixed length are scans."""


def trace_scores(
    functions: Sequence[RowScore], row: PyTree[jax.ShapeDtypeStruct]
) -> Callable[[PyTree], Float[np.ndarray, "rows functions"]]:
    """Functions of one row as one function of many, to which each row is known alone.

    `row` has the shapes and types of the values of one row; the returned function takes the same with a leading axis.

    Formal guarantee: the values of a row depend on that row and on what the functions hold, which is copied here: not
    on other rows, on their number or order, or on what was computed before. Each function is traced once, with
    placeholders; a program that would call back into Python, has another effect, or has a loop that a row may prolong
    is refused, and rows go through it one by one. No private row is used here. Not covered: functions that are written
    to deceive, such as operations of their own with hidden effects, or that hold private data.

    >>> of_rows = trace_scores([lambda row: row[0], lambda row: row.sum()], jax.ShapeDtypeStruct((2,), jnp.float32))
    >>> of_rows(np.asarray([[1, 2], [3, 4]], dtype=np.float32)).tolist()
    [[1.0, 3.0], [3.0, 7.0]]
    """
    traced = [_trace(function, row) for function in functions]
    cpu = jax.devices("cpu")[0]

    def of_one(values: PyTree) -> Float[Array, " functions"]:
        leaves = jax.tree_util.tree_leaves(values)
        return jnp.stack([core.jaxpr_as_fun(each)(*leaves)[0].astype(jnp.float32) for each in traced])

    program = jax.jit(lambda rows: jax.lax.map(of_one, rows))

    def of_rows(rows: PyTree) -> Float[np.ndarray, "rows functions"]:
        # Under JAX's own checks a NaN or an infinity of one row would end the run.
        with jax.default_device(cpu), jax.debug_nans(False), jax.debug_infs(False):
            return np.asarray(program(jax.device_put(rows, cpu)))

    return of_rows


def _trace(function: RowScore, row: PyTree[jax.ShapeDtypeStruct]) -> core.ClosedJaxpr:
    if not callable(function):
        raise ConfigError(f"A score must be a function of one row, found {type(function).__name__}.")
    try:
        traced = jax.make_jaxpr(function)(row)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        raise ConfigError(
            f"A score must be a function of one row that JAX can trace ({type(error).__name__}). Write it with "
            "jax.numpy, without if or float() on values of the row."
        ) from None
    shapes = [aval.shape for aval in traced.out_avals]
    if shapes != [()] or not _is_number(traced.out_avals[0].dtype):
        found = ", ".join(f"an array of shape {shape}" if shape else "one value" for shape in shapes) or "nothing"
        raise ConfigError(f"A score must be one number for one row, found {found}. Return a scalar.")
    names = set(_primitives(traced.jaxpr))
    if traced.effects or any("callback" in name or name in WITH_STATE for name in names):
        raise ConfigError("A score must have no effects and call nothing outside JAX: its value would have a state.")
    if ENDLESS in names:
        raise ConfigError(
            "A score must not loop until a condition on the row holds: the loop may never end. Use a fixed number of "
            "steps, as in jax.lax.fori_loop(0, 10, ...)."
        )
    return core.ClosedJaxpr(traced.jaxpr, [_copy(each) for each in traced.consts])


def _copy(constant: Any) -> Any:
    """NumPy arrays are held by reference, so a later change of one would change the scores."""
    return constant.copy() if isinstance(constant, np.ndarray) else constant


def _is_number(dtype: np.dtype) -> bool:
    return any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_))


def _primitives(jaxpr: Any) -> Iterator[str]:
    """The names of all operations of a program, those inside of loops and branches included."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in jax.tree_util.tree_leaves(
            tuple(equation.params.values()), is_leaf=lambda each: hasattr(each, "eqns") or hasattr(each, "jaxpr")
        ):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _primitives(inner)


# ----------------------------------------------------------------------------------------------- scores of private rows


class PrivateScores:
    """Private rows of which a run knows only scores. Opaque: what they hold is used in this file alone.

    Either the rows as an array, together with functions of one row, or the scores themselves, a column for each
    discriminator. Every row is a unit of its own.
    """

    def __init__(
        self,
        rows: Num[np.ndarray, "rows values"],
        num_rows: int,
        score_range: Range,
        functions: Callable[[PyTree], Float[np.ndarray, "rows functions"]] | None = None,
    ):
        self._rows, self._range, self._functions = rows, score_range, functions
        self._partition: Partition | None = None  # all units
        self.max_rows_per_unit = 1
        self.public_num_rows = num_rows
        """The declared number of rows."""

    def __repr__(self) -> str:
        return "PrivateScores(...)"

    def _exact_sums(self) -> Int[np.ndarray, " discriminators"]:
        """Of every discriminator over all rows, in whole steps, and of the constant 1/2."""
        constant = round(0.5 * self.public_num_rows * STEPS)
        if self._functions is None:
            return np.append(whole_steps(self._rows, self._range).sum(axis=0), constant)
        total: np.ndarray | int = 0
        for start in range(0, max(1, len(self._rows)), CHUNK):
            part = self._rows[start : start + CHUNK]
            padded = np.zeros((CHUNK, *part.shape[1:]), dtype=part.dtype)  # one shape for every number of rows
            padded[: len(part)] = part
            total = total + whole_steps(self._functions(padded), self._range)[: len(part)].sum(axis=0)
        return np.append(total, constant)


def unit_scores(scores: Num[np.ndarray, "*any"], score_range: Range) -> Float[np.ndarray, "*any"]:
    """Scores from 0 to 1: clamped to a public range and scaled; one half for NaN.

    >>> unit_scores(np.asarray([-5.0, 0.0, np.nan, 1e9]), (-1.0, 1.0)).tolist()
    [0.0, 0.5, 0.5, 1.0]
    """
    low, high = score_range
    assert 0 < high - low < math.inf, "a range whose length is infinite would turn scores to NaN after the clamp"
    held = np.clip(np.asarray(scores, dtype=np.float64), low, high)
    return np.where(np.isnan(held), 0.5, (held - low) / (high - low))


def whole_steps(scores: Num[np.ndarray, "rows functions"], score_range: Range) -> Int[np.ndarray, "rows functions"]:
    """The same in whole steps, whose sums do not depend on their order."""
    return np.rint(np.clip(unit_scores(scores, score_range), 0.0, 1.0) * STEPS).astype(np.int64)


def noisy_score_selections(scores: PrivateScores, query: Query, ledger: Ledger) -> FunctionSelector:
    """Charges for all selections of `query` at once, and returns the function that makes them one by one.

    The discriminators are numbered in their order; the constant 1/2 is the last one.

    Formal guarantee: the cost of `query`, `Selections`, under add/remove of one row: at most its `rounds` selections,
    each with odds exp(epsilon * (sum - public part)). Scores are clamped to the declared range and scaled to [0, 1], so
    a row moves every sum in the same direction, by 0 to 1, exactly. With functions, `trace_scores` has the rest: the
    scores of a row depend on that row alone. Not covered: running time; given scores that were computed from other rows
    as well; and the discriminators themselves with all that they hold, which are taken as public or private by a
    guarantee of their own.
    """
    event = event_of(query, Selections)
    check_num_rows(scores.public_num_rows)
    check_query(scores, query, ledger)
    ledger.charge(query)  # before the scores are read: a refused query must not happen
    return FunctionSelector(scores._exact_sums(), event, scores, ledger)
