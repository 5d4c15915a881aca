"""Boosting of a GAN of any package: what it charges, what it improves, what it says and what it refuses."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import raises
from understudy import certificate
from understudy.privacy.accounting.ledger import spent_by
from understudy.run.failure import FailedRun
from understudy.synthesizers.boosted import external as boosting

GENERATOR = np.random.default_rng(0)
REAL = (GENERATOR.random((4000, 2)) < [0.7, 0.2]).astype(float)
SAMPLES = [(GENERATOR.random((500, 2)) < share).astype(float) for share in ([0.1, 0.1], [0.5, 0.5], [0.9, 0.6])]
DISCRIMINATORS = [lambda row: row[0], lambda row: 1 - row[0], lambda row: row[1], lambda row: 1 - row[1]]
SIZES: dict[str, Any] = {"num_rows": 4000, "rounds": 200}


def boosted(**changes: Any) -> us.BoostedSamples:
    given = {"discriminators": DISCRIMINATORS, "epsilon": 2.0, "seed": 0, **SIZES, **changes}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", us.UnderstudyWarning)
        return us.boost(given.pop("real", REAL), given.pop("samples", SAMPLES), **given)


def scored(rows: np.ndarray) -> np.ndarray:
    return np.stack([rows[:, 0], 1 - rows[:, 0], rows[:, 1], 1 - rows[:, 1]], axis=1)


def test_weighted_rows_are_nearer_to_the_real_ones() -> None:
    pool = np.concatenate(SAMPLES)
    found = boosted()
    before, after = (
        np.abs(weights @ pool - REAL.mean(axis=0)).max() for weights in (np.ones(1500) / 1500, found.weights)
    )
    assert after < 0.05 < 0.15 < before
    rows = found.sample(5000, seed=1)
    assert rows.shape == (5000, 2)
    assert np.abs(rows.mean(axis=0) - found.weights @ pool).max() < 0.03
    odds = found.mixture / (1 - found.mixture)
    np.testing.assert_allclose(found.rejected_weights, found.weights * odds / (found.weights * odds).sum())


def test_functions_and_scores_are_the_same_game() -> None:
    by_scores = boosted(real=scored(REAL), discriminators=None, scores=[scored(each) for each in SAMPLES])
    np.testing.assert_allclose(by_scores.weights, boosted().weights, rtol=1e-5)
    raised = [7 * scored(each) - 2 for each in SAMPLES]
    wide = boosted(real=7 * scored(REAL) - 2, discriminators=None, scores=raised, score_range=(-2, 5))
    np.testing.assert_allclose(wide.weights, by_scores.weights, rtol=1e-4)


def test_what_is_charged_is_what_was_planned() -> None:
    plan = us.plan_boost(num_samples=1500, num_discriminators=4, epsilon=2.0, **SIZES)
    statement = boosted().statement
    assert statement.queries == plan.queries
    assert 1.99 < spent_by(plan, us.Guarantee(2.0, statement.delta)).epsilon <= 2.0
    assert statement.epsilon <= 2.0
    assert statement.seeded
    assert boosted(seed=None).statement.is_private


def test_the_certificate_covers_the_selections_alone() -> None:
    statement = boosted(seed=None).statement
    text = certificate.to_markdown(statement)
    assert "covers the selections alone" in text
    assert "made under differential privacy, they can reveal real rows" in text
    assert "Everything in this release" not in text
    assert "How accurate the answers are" in text
    assert "the duality gap" in text
    again = certificate.from_json(certificate.to_json(statement))
    assert again == statement


def test_the_gap_shown_is_the_bound_of_public_numbers() -> None:
    from understudy.synthesizers.boosted.game import promised_gap

    plan = us.plan_boost(num_samples=1500, num_discriminators=4, epsilon=2.0, **SIZES)
    event: Any = plan["selections"].event
    gap = promised_gap(1500, 5, 200, event.epsilon * 4000)
    (shown,) = (note.text for note in plan.notes)
    assert f"within {math.ceil(gap * 1000) / 1000:.2g}"[:10] in shown
    other = boosted(real=1 - REAL)
    assert other.statement.accuracy == boosted().statement.accuracy == (shown,)


def test_frames_come_back_as_frames() -> None:
    frames = [pd.DataFrame(each, columns=["a", "b"]) for each in SAMPLES]
    found = boosted(real=scored(REAL), samples=frames, discriminators=None, scores=[scored(each) for each in SAMPLES])
    rows = found.sample(7, seed=0)
    assert isinstance(rows, pd.DataFrame)
    assert list(rows.columns) == ["a", "b"]
    assert len(rows) == 7


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"discriminators": None}, "discriminators"),
        ({"scores": [scored(each) for each in SAMPLES]}, "discriminators"),
        ({"samples": []}, "samples"),
        ({"discriminators": []}, "discriminators"),
        ({"samples": [SAMPLES[0], SAMPLES[1][:, :1]]}, "samples"),
        ({"real": REAL[:, :1]}, "real"),
        ({"real": REAL[:, 0]}, "real"),
        ({"samples": [np.asarray([["a", "b"]] * 3)]}, "samples"),
        ({"samples": [SAMPLES[0][:1]]}, "samples"),
        ({"discriminators": None, "scores": [scored(SAMPLES[0])]}, "scores"),
        ({"discriminators": None, "scores": [scored(each)[1:] for each in SAMPLES]}, "scores"),
        ({"score_range": (1.0, 0.0)}, "score_range"),
        ({"score_range": 3}, "score_range"),
        ({"score_range": (-1.7e308, 1.7e308)}, "score_range"),  # its length is infinite
        ({"num_rows": 10**14}, "num_rows"),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"rounds": 0}, "rounds"),
        ({"num_rows": 0}, "num_rows"),
        ({"epsilon": None}, "epsilon"),
        ({"discriminators": [lambda row: jnp.stack([row, row])]}, None),
    ],
)
def test_bad_input_is_refused_before_anything_is_charged(changes: dict[str, Any], setting: str | None) -> None:
    with raises(us.ConfigError, setting=setting) as found:
        boosted(**changes)
    assert "4000" not in str(found.value).replace(",", "")


def nullable(kind: str) -> Callable[[bool], Any]:
    """A frame of two columns of this kind, with or without a null."""

    def make(has_null: bool) -> Any:
        values: list[Any] = [1, None if has_null else 0] * 50
        flags = [None if value is None else bool(value) for value in values]
        if kind == "arrow":
            return pa.table({"a": pa.array(values, pa.int64()), "b": pa.array(flags, pa.bool_())})
        if kind == "polars":
            return pl.DataFrame({"a": values, "b": flags}, schema={"a": pl.Int64, "b": pl.Boolean})
        values = flags if "bool" in kind else values
        return pd.DataFrame({name: pd.array(values, dtype=kind) for name in "ab"})

    return make


@pytest.mark.parametrize(
    "kind", ["Int64", "Float64", "boolean", "int64[pyarrow]", "double[pyarrow]", "bool[pyarrow]", "arrow", "polars"]
)
def test_a_null_does_not_decide_whether_a_run_is_refused(kind: str) -> None:
    """It counts as NaN: one half."""
    for has_null in (True, False):
        assert boosted(real=nullable(kind)(has_null)).statement.epsilon <= 2


@pytest.mark.parametrize("large", [2**53 + 1, 2**63 - 1])
def test_a_large_integer_does_not_decide_whether_a_run_is_refused(large: int) -> None:
    for frame in (pa.table, pl.DataFrame, pd.DataFrame):
        assert boosted(real=frame({"a": [1, large], "b": [0, 1]})).statement.epsilon <= 2


@pytest.mark.parametrize(
    "real",
    [
        np.zeros((4, 2), dtype=object),
        np.zeros((4, 2), dtype=complex),
        [[1.0, 0.0]],
        [],
        pd.DataFrame({"a": [1, 2], "b": pd.Series([1, 2], dtype=object)}),
        pl.DataFrame({"a": [1, 2], "b": ["1", "2"]}),
        pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]),
    ],
)
def test_types_that_may_hold_anything_are_refused_whatever_they_hold(real: Any) -> None:
    with raises(us.ConfigError, setting="real"):
        boosted(real=real)


def test_real_rows_are_no_samples() -> None:
    """They would be released."""
    for samples in ([SAMPLES[0], REAL], [REAL[10:500]]):
        with raises(us.ConfigError, setting="samples"):
            boosted(samples=samples)


@pytest.mark.parametrize("value", ["Alice", 10**400, [1, 2]])
def test_an_error_quotes_no_value_of_a_private_row(value: object) -> None:
    real = np.zeros((4, 2), dtype=object)
    real[1, 1] = value
    with raises(us.ConfigError, setting="real") as found:
        boosted(real=real)
    assert found.value.__context__ is None


def test_a_large_value_causes_no_warning() -> None:
    """Python would show the warning, and it would follow from a row."""
    real = REAL.copy()
    real[0, 0] = 1e300
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        boosted(real=real, seed=None)


def test_private_rows_that_do_not_fit_in_memory_do_not_show_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> np.ndarray:
        raise MemoryError("Unable to allocate an array with shape (4000, 2)")

    monkeypatch.setattr(boosting, "_private_array", exhausted)
    with pytest.raises(FailedRun, match="does not fit in memory") as found:
        boosted()
    assert "4000" not in str(found.value)
    assert found.value.__context__ is None


def test_a_plan_for_more_rows_than_can_be_summed_is_refused() -> None:
    sizes: dict[str, Any] = {"num_samples": 100, "num_discriminators": 3, "epsilon": 1, "rounds": 2}
    us.plan_boost(num_rows=2**32, **sizes)
    with raises(us.ConfigError, setting="num_rows"):
        us.plan_boost(num_rows=2**32 + 1, **sizes)
