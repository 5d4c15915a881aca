"""Errors carry fields, and keep them when they are copied."""

import copy

import pytest

from understudy.errors import (
    BookError,
    BudgetExceeded,
    ConditionError,
    ConfigError,
    Diverged,
    SchemaError,
    TableError,
    TrainingError,
    did_you_mean,
)


@pytest.mark.parametrize(
    "error",
    [
        SchemaError("text", column="age", key="bounds"),
        TableError("text", column="age", line=3),
        BudgetExceeded("text", query="size", needed=0.2, left=0.1),
        ConditionError("text", column="age"),
        BookError("text", reason="edited"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_fields_survive_a_copy(error: Exception) -> None:
    again = copy.copy(error)
    assert (str(again), vars(again)) == ("text", vars(error))
    assert None not in vars(error).values()


def test_the_file_comes_before_the_message() -> None:
    error = SchemaError("no kind.", column="age", key="kind").in_file("people.toml")
    assert (str(error), error.column, error.key) == ("people.toml: no kind.", "age", "kind")


def test_diverged_training_is_a_training_error() -> None:
    assert issubclass(Diverged, TrainingError)
    assert issubclass(TrainingError, ConfigError)


@pytest.mark.parametrize(
    ("found", "known", "hint"),
    [
        ("agee", ["age", "sex"], " Did you mean 'age'?"),
        (" AGE", ["age", "Age "], " Did you mean 'age'?"),
        ("zzz", ["age"], ""),
        (3, ["age"], ""),
        ("3", [3], ""),
    ],
)
def test_did_you_mean(found: object, known: list[object], hint: str) -> None:
    assert did_you_mean(found, known) == hint
