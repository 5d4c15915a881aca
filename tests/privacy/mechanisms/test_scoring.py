"""Functions of one row from users, whatever they try, and selections by scores of private rows."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import RowsRead, over_budget
from tests.examples import scaled
from tests.synthesizers.boosted.test_external import ExactLaw, book
from understudy.errors import BudgetExceeded, ConfigError
from understudy.privacy.accounting.events import Selections
from understudy.privacy.accounting.ledger import Query
from understudy.privacy.mechanisms.scoring import PrivateScores, noisy_score_selections, trace_scores, unit_scores
from understudy.privacy.mechanisms.selection import CHUNK, STEPS

PAIR = jax.ShapeDtypeStruct((2,), jnp.float32)
ROWS = np.random.default_rng(0).random((50, 2)).astype(np.float32)
RANGE = (-1.0, 3.0)


# --------------------------------------------------------------------------------------------------- functions of a row


def by_order() -> Callable[[Any], Any]:
    """A function that counts its calls, and would give each row another value."""
    calls = itertools.count()
    return lambda row: row[0] + 1000.0 * next(calls)


def by_memory() -> Callable[[Any], Any]:
    """A function that remembers all rows that it was shown."""
    seen: list[Any] = []

    def score(row: Any) -> Any:
        seen.append(row)
        return jnp.stack(seen).sum()

    return score


@pytest.mark.parametrize("hostile", [by_order, by_memory, lambda: lambda row: jnp.sum(row)])
def test_the_value_of_a_row_depends_on_that_row_alone(hostile: Callable[[], Callable[[Any], Any]]) -> None:
    """One by one, together, and in another order: the same to the last bit, since the function is traced once."""
    scored = trace_scores([hostile()], PAIR)
    together = scored(ROWS)
    np.testing.assert_array_equal(together, np.concatenate([scored(ROWS[at : at + 1]) for at in range(len(ROWS))]))
    np.testing.assert_array_equal(together[::-1], scored(ROWS[::-1]))
    np.testing.assert_array_equal(scored(ROWS), together)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda row: row, "found an array of shape"),
        (lambda row: (row[0], row[1]), "found one value, one value"),
        (lambda row: None, "found nothing"),
        (lambda row: float(row[0]), "JAX can trace"),
        (lambda row: row[0] if row[1] > 0 else row[1], "JAX can trace"),
        (lambda row: np.asarray(row).sum(), "JAX can trace"),
        (lambda row: jax.pure_callback(np.sum, jax.ShapeDtypeStruct((), jnp.float32), row), "no effects"),
        (lambda row: jax.jit(lambda x: jax.pure_callback(np.sum, PAIR.update(shape=()), x))(row), "no effects"),
        (lambda row: jax.lax.cond(row[0] > 0, lambda: _printed(row), lambda: row[0]), "no effects"),
        (lambda row: jax.lax.rng_uniform(0.0, row[0], ()), "no effects"),
        (lambda row: jax.ffi.ffi_call("counter", PAIR.update(shape=()))(row), "no effects"),
        (lambda row: jax.lax.while_loop(lambda x: x < row[0], lambda x: x + 1, 0.0), "may never end"),
        (lambda row: jax.lax.fori_loop(0, row[0].astype(int), lambda _, x: x + 1, 0.0), "may never end"),
        (lambda row: jax.jit(lambda x: jax.lax.while_loop(lambda y: y < x, lambda y: y, x))(row[0]), "may never end"),
        (3, "a function of one row, found int"),
    ],
)
def test_what_is_not_one_number_of_one_row_is_refused(function: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        trace_scores([function], PAIR)


def test_loops_of_a_fixed_length_are_allowed() -> None:
    doubled = trace_scores([lambda row: jax.lax.fori_loop(0, 3, lambda _, x: 2 * x, row[0])], PAIR)
    np.testing.assert_array_equal(doubled(ROWS)[:, 0], 8 * ROWS[:, 0])


def test_what_a_function_holds_is_copied() -> None:
    """Otherwise a change between two chunks of rows would give them different functions."""
    held = np.ones(2, dtype=np.float32)
    scored = trace_scores([lambda row: jnp.sum(row * held)], PAIR)
    held[:] = 9.0
    for count in (1, 2, 50):  # each is compiled by itself
        np.testing.assert_allclose(scored(ROWS[:count])[:, 0], ROWS[:count].sum(axis=1), rtol=1e-6)


def _printed(row: Any) -> Any:
    jax.debug.print("{}", row)
    return row[0]


def test_scores_are_clamped_to_a_public_range() -> None:
    wild = np.asarray([np.nan, 1e9, -1e9, np.inf, -np.inf, 1.0])
    np.testing.assert_array_equal(unit_scores(wild, RANGE), [0.5, 1, 0, 1, 0, 0.5])
    wild_functions = trace_scores([lambda row: row[0] * jnp.nan, lambda row: row[0] + 1e9], PAIR)
    private = PrivateScores(ROWS, 50, RANGE, wild_functions)
    np.testing.assert_array_equal(private._exact_sums() / STEPS, [25, 50, 25])


def test_a_run_does_not_fail_by_the_score_of_a_row() -> None:
    """Not even while JAX is told to stop at NaN and infinity."""
    scored = trace_scores([lambda row: jnp.log(row[0])], PAIR)
    with jax.debug_nans(True), jax.debug_infs(True):
        found = scored(np.asarray([[-1, 0], [0, 0], [1, 0]], np.float32))
    np.testing.assert_array_equal(found[:, 0], [np.nan, -np.inf, 0])


# ----------------------------------------------------------------------------------------------- scores of private rows


def scores_of(values: np.ndarray, num_rows: int = 20) -> PrivateScores:
    return PrivateScores(values, num_rows, RANGE)


def law(values: np.ndarray, public: np.ndarray, epsilon: float) -> np.ndarray:
    noise = ExactLaw(0)
    noisy_score_selections(scores_of(values), Query("s", "s", Selections(epsilon)), book(noise))(public)
    return noise.log_law


rows_of_scores = st.lists(
    st.tuples(*[st.floats(allow_nan=True, allow_infinity=True, width=32)] * 3), min_size=0, max_size=8
)


@settings(max_examples=scaled(60))
@given(rows=rows_of_scores, row=st.tuples(*[st.floats(width=32)] * 3), epsilon=st.sampled_from([0.01, 0.5, 4.0]))
def test_a_row_moves_the_log_odds_within_a_range_of_epsilon(rows: list, row: tuple, epsilon: float) -> None:
    """Whatever its scores are, NaN and infinity among them."""
    public = np.asarray([0.2, 0.4, 0.6, 0.5])
    without, with_row = (law(np.reshape(each, (-1, 3)), public, epsilon) for each in (rows, [*rows, row]))
    change = with_row - without
    assert change.max() - change.min() <= epsilon * (1 + 1e-9) + 1e-9


def test_the_range_of_epsilon_is_reached() -> None:
    """One discriminator scores the row highest, another lowest: a smaller claim would be false."""
    public = np.zeros(4)
    change = law(np.asarray([[3.0, -1.0, 0.0]]), public, 0.3) - law(np.zeros((0, 3)), public, 0.3)
    assert change.max() - change.min() == pytest.approx(0.3, rel=1e-6)


def test_sums_are_over_every_row_of_every_chunk() -> None:
    """Functions and given scores agree, on more rows than a chunk has."""
    rows = np.random.default_rng(1).random((CHUNK + 77, 2)).astype(np.float32)
    functions = trace_scores([lambda row: row[0], lambda row: 2 * row[1]], PAIR)
    found = PrivateScores(rows, 100, RANGE, functions)._exact_sums()
    given_scores = scores_of(np.stack([rows[:, 0], 2 * rows[:, 1]], axis=1), 100)._exact_sums()
    np.testing.assert_array_equal(found, given_scores)
    expected = ((np.stack([rows[:, 0], 2 * rows[:, 1]]).astype(float) + 1) / 4).sum(axis=1)
    np.testing.assert_allclose(found / STEPS, [*expected, 50], rtol=1e-6)


class Untouchable(PrivateScores):
    def _exact_sums(self) -> np.ndarray:
        raise RowsRead


def test_selections_are_charged_before_the_scores_are_read() -> None:
    dear = Query("s", "s", Selections(1.0, 50))
    with over_budget("s"):
        noisy_score_selections(Untouchable(np.zeros((3, 1)), 3, RANGE), dear, book(epsilon=0.1))


def test_no_more_selections_than_were_charged() -> None:
    select = noisy_score_selections(scores_of(np.zeros((3, 2))), Query("s", "s", Selections(1.0)), book())
    select(np.zeros(3))
    with pytest.raises(BudgetExceeded):
        select(np.zeros(3))
    assert "Private" in repr(scores_of(np.zeros((3, 2))))
