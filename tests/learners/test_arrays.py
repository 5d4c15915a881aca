"""X and y of any kind: no value is refused, quoted, or read differently because of another."""

import math
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

import understudy as us
from tests.learners.people import OPEN
from understudy.learners.arrays import as_floats
from understudy.run.sources import read_private_table
from understudy.schema import Column, Schema

READINGS = {
    "floats as texts, and a text": (["0", "1"], [1.0, 0.0, 1.0], "x"),
    "floats as whole numbers, and a text": ([1, 0], [1.0, 0.0, 1.0], "x"),
    "booleans as texts, and a whole number": (["True", "False"], [True, False, True], 2),
    "booleans, and a text": ([True, False], [True, False, True], "x"),
    "great whole numbers, and a missing one": ([2**53 + 1, 2**53], [2**53 + 1, 2**53, 2**53 + 1], math.nan),
    "whole numbers, and a null": ([1, 0], [1, 0, 1], None),
    "texts, and a number": (["a", "b"], ["a", "b", "a"], 3),
    "texts, and no plain value": (["a", "b"], ["a", "b", "a"], {"a": 1}),
    "whole numbers, and one beyond all floats": ([1, 0], [1, 0, 1], 10**330),
}


@pytest.mark.parametrize("case", READINGS)
@pytest.mark.parametrize("given", ["list", "objects", "series", "beside a frame"])
def test_no_label_changes_how_another_is_read(case: str, given: str) -> None:
    """One more row, whatever is in it: the others keep their codes."""
    classes, labels, extra = cast(tuple[Any, Any, Any], READINGS[case])
    schema = None
    if given == "beside a frame":
        column = Column(name="y", kind="categorical", nullable=False, categories=tuple(classes), closed=True)
        schema = Schema(columns=(Column(name="x", kind="real", bounds=(0, 1)), column), target="y", rows=9)
    learner = us.learners.ClassPrior(guarantee=OPEN, bounds=(0, 1), classes=classes, num_rows=9, schema=schema)
    read = []
    for y in (labels, [*labels, extra]):
        x: Any = pd.DataFrame({"x": np.full(len(y), 0.5)}) if schema else np.full((len(y), 1), 0.5)
        shown: Any = y
        if given == "objects":
            shown = np.empty(len(y), dtype=object)
            shown[:] = y
        elif given == "series":
            shown = pd.Series(y, dtype=object)
        declared = learner._declared_schema(x, shown)
        table = read_private_table(learner._read(x, shown, declared), declared).table._table
        column_type = table.schema.field("y").type
        read.append((column_type, table.column("y").to_pylist()))
    assert read[0][0] == read[1][0]
    assert read[0][1] == read[1][1][:3]
    assert len(set(read[0][1])) == 2


def test_codes_of_labels_follow_their_own_values() -> None:
    """The whole way, through a fit: 500 times the same label, and one stray row."""
    for y in ([1.0] * 500, [1.0] * 500 + ["x"]):
        prior = us.learners.ClassPrior(guarantee=OPEN, bounds=(0, 1), classes=["0", "1"], num_rows=500)
        assert prior.fit([[0.5]] * len(y), y).predict_proba([[0.5]])[0, 1] > 0.99


@pytest.mark.parametrize(
    "stray", ["secret-name", None, 10**400, 10**330, 1j, {"a": 1}, pd.Timestamp("2020-01-01"), True]
)
@pytest.mark.parametrize("given", ["list", "objects", "frame"])
def test_no_input_is_refused_or_changes_another(stray: Any, given: str) -> None:
    cells = [[0.25, 0.5], [0.75, 0.5], [0.5, stray]]
    x: Any = cells
    if given == "objects":
        x = np.empty((3, 2), dtype=object)
        x[:] = cells
    elif given == "frame":
        x = pd.DataFrame({"a": [0.25, 0.75, 0.5], "b": pd.Series([0.5, 0.5, stray], dtype=object)})
    array = as_floats(x)
    assert array.dtype == np.float64
    assert np.array_equal(array[:, 0], [0.25, 0.75, 0.5])
    assert np.array_equal(array[:2, 1], [0.5, 0.5])
    known: dict[Any, float] = {True: 1.0, 10**400: math.inf, 10**330: math.inf}
    expected = known.get(stray if isinstance(stray, int) else None, math.nan)
    assert array[2, 1] == pytest.approx(expected, nan_ok=True)
    learner = us.learners.ClassPrior(guarantee=OPEN, bounds=(0, 1), classes=[0, 1], num_rows=3)
    assert learner.fit(x, [0, 1, 1]).predict(x).shape == (3,)


def test_refusals_of_shapes_quote_no_value() -> None:
    learner = us.learners.ClassPrior(guarantee=OPEN, bounds=(0, 1), classes=[0, 1], num_rows=3)
    for x, y in (
        ([0.73629, 0.73629], [0, 1]),
        (np.full(2, 0.73629), [0, 1]),
        ([[0.73629], [0.73629, 0.5]], [0, 1]),
        ([[0.5], [0.5]], [[0.73629, 0.5], [0.5, 0.5]]),
        ([["0.73629"]], [0, 1]),
    ):
        with pytest.raises(ValueError, match=r"array|samples") as refusal:
            learner.fit(x, y)
        assert "73629" not in str(refusal.value)


def test_a_wrong_number_of_labels_tells_no_number_of_rows() -> None:
    learner = us.learners.ClassPrior(guarantee=OPEN, bounds=(0, 1), classes=[0, 1], num_rows=9)
    with pytest.raises(ValueError, match="inconsistent numbers of samples") as caught:
        learner.fit(np.full((1237, 1), 0.5), [0] * 1236)
    assert "123" not in str(caught.value)
