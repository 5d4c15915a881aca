"""Synthetic tables that no method should make, and some do: each metric has a number, or a reason why not."""

import dataclasses
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import understudy as us
from tests.benchmark.scored import FAST, OTHER, SCHEMA, TEST, TRAIN, replace, score
from tests.builders import raises
from understudy.benchmark.metrics import METRICS
from understudy.benchmark.scoring import Reference, _Cell, _Part, _run
from understudy.evaluation.scores import Result


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference.of(TRAIN, TEST, schema=SCHEMA, classifiers=FAST)


NULLS = pa.nulls(50)
DEGENERATE = {
    "one class": replace(OTHER, buys=["no"] * 800),
    "one row": OTHER.slice(0, 1),
    "two rows": OTHER.slice(0, 2),
    "constant": pa.table({"age": [40] * 50, "income": [50.0] * 50, "city": ["a"] * 50, "buys": ["no"] * 50}),
    "constant features": pa.table(
        {"age": [40] * 50, "income": [50.0] * 50, "city": ["a"] * 50, "buys": ["no", "yes"] * 25}
    ),
    "all null": pa.table(dict.fromkeys(TRAIN.column_names, NULLS)),
    "null target": replace(OTHER, buys=pa.nulls(800, pa.string())),
    "missing categories": replace(OTHER, city=["b"] * 800),
    "outside the domain": replace(
        OTHER,
        age=np.where(np.arange(800) % 2, 10**12, -5),
        income=np.where(np.arange(800) % 2, math.inf, 1e300),
        city=["elsewhere"] * 800,
        buys=["maybe"] * 800,
    ),
    "one class of one row": replace(OTHER, buys=["yes"] + ["no"] * 799),
    "texts for numbers": replace(OTHER, age=["forty"] * 800, income=["50.5"] * 800),
    "floats for integers": replace(OTHER, age=OTHER["age"].cast(pa.float64())),
    "no rows": OTHER.slice(0, 0),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_tables_give_numbers_or_reasons(name: str, reference: Reference) -> None:
    found = score(DEGENERATE[name], *METRICS, reference=reference)
    missing = found.details["missing"]
    assert isinstance(missing, dict)
    assert set(found.metrics) | set(missing) == set(METRICS)
    assert not set(found.metrics) & set(missing)
    assert all(math.isfinite(value) for value in found.metrics.values())
    assert all(reason.endswith(".") and "\n" not in reason for reason in missing.values())
    assert not any("cannot be computed" in reason for reason in missing.values()), missing
    json.dumps(dataclasses.asdict(found), allow_nan=False)


def test_one_class_is_predicted_everywhere(reference: Reference) -> None:
    """The positive class is the rarer one. Always predicted, its F1 is 2p / (1 + p); never predicted, 0. AUC is 1/2."""
    found = score(DEGENERATE["one class"], "f1", "auc", reference=reference)
    assert found.details["settings"]["positive"] == "yes"  # type: ignore[index]  # JSON, typed as objects
    assert found.metrics == {"f1": 0.0, "auc": 0.5}
    always = score(replace(OTHER, buys=["yes"] * 800), "f1", reference=reference)
    fraction = TEST["buys"].to_pylist().count("yes") / TEST.num_rows
    assert always.metrics["f1"] == pytest.approx(2 * fraction / (1 + fraction))


def test_floats_for_integers_score_as_integers(reference: Reference) -> None:
    names = ("tvd2", "f1")
    theirs = score(DEGENERATE["floats for integers"], *names, reference=reference).metrics
    assert theirs == score(OTHER, *names, reference=reference).metrics


def test_a_table_without_a_column_is_refused(reference: Reference) -> None:
    with raises(us.SchemaError, column="city"):
        score(OTHER.drop_columns(["city"]), "tvd1", reference=reference)


def test_an_undefined_metric_leaves_the_others() -> None:
    """Test rows of one class: AUC is undefined, F1 is not."""
    test = TEST.filter(pc.equal(TEST["buys"], "no"))
    found = score(OTHER, "f1", "auc", "tvd1", test=test)
    assert set(found.metrics) == {"f1", "tvd1"}
    assert "only one class" in found.details["missing"]["auc"]  # type: ignore[index]  # JSON, typed as objects


def test_a_part_that_fails_gives_its_reason_in_one_line(reference: Reference) -> None:
    def fail(cell: _Cell) -> Result:
        raise ValueError("The matrix is singular.\nMore about it.")

    cell = _Cell(reference=reference, table=reference.train, metrics=("tvd1",), is_copy=False, seed=0)
    found = _run(_Part(fail, {"tvd1": "tv1"}), cell).scores["tv1"]
    assert found.why == "It cannot be computed for this table: The matrix is singular."
