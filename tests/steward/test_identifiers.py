"""Identifiers and privacy units that a schema does not declare are named to the steward, whatever their type."""

import numpy as np
import pyarrow as pa
import pytest

from understudy.schema import Column, Schema
from understudy.steward.identifiers import _last_word, find_identifiers

DRAW = np.random.default_rng(0)
NUM_ROWS = 2000


def found(values: object, name: str = "x", **keys: object) -> list[str]:
    """What is said of one column of a drafted kind."""
    table = pa.table({name: values})
    column = Schema.draft(table.schema)[name]
    schema = Schema(columns=(Column(**{"name": name, "kind": column.kind, **keys}),))  # type: ignore[arg-type]  # keywords of several types
    return [finding.message for finding in find_identifiers(schema, table)]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("x", np.arange(NUM_ROWS)),  # a running number
        ("x", DRAW.integers(0, 10**12, NUM_ROWS)),
        ("x", 5000 + DRAW.integers(0, 1800, NUM_ROWS)),  # a number by person, with repeats
        ("patient_no", DRAW.choice(10**9, 100)[DRAW.integers(0, 100, NUM_ROWS)]),  # many rows per person
        ("caseId", DRAW.choice(10**9, 500)[DRAW.integers(0, 500, NUM_ROWS)].astype(float)),
        ("x", [f"p{number}" for number in range(NUM_ROWS)]),
        ("MRN", pa.array([f"p{number % 700}" for number in range(NUM_ROWS)]).dictionary_encode()),
    ],
)
def test_identifiers_are_named_for_numbers_as_for_text(name: str, values: object) -> None:
    (message,) = found(values, name)
    assert message.startswith("It looks like an identifier (")
    assert message.endswith(f'. If it identifies a person, set unit = "{name}" in [table]; otherwise set kind = "id".')


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("age", DRAW.integers(0, 100, NUM_ROWS)),
        ("income", np.round(DRAW.lognormal(10, 1, NUM_ROWS)).astype(int)[DRAW.integers(0, 1400, NUM_ROWS)]),
        ("weight", DRAW.normal(70, 10, NUM_ROWS)),
        ("town", [f"town {number % 300}" for number in range(NUM_ROWS)]),
        ("room_no", np.arange(NUM_ROWS) % 15),
        ("member", [True, False] * (NUM_ROWS // 2)),
        ("small", np.arange(25)),
        ("empty", pa.nulls(5, pa.int64())),
    ],
)
def test_quantities_and_categories_are_not(name: str, values: object) -> None:
    assert found(values, name) == []


def test_a_declared_list_is_no_identifier_and_bounds_do_not_hide_a_name() -> None:
    numbers = np.arange(NUM_ROWS)
    assert found(numbers, "x", bounds=(0, NUM_ROWS)) == []
    assert found(numbers, "patient_no", bounds=(0, NUM_ROWS)) != []
    texts = [f"p{number}" for number in range(NUM_ROWS)]
    assert found(texts, "id", categories=tuple(texts)) == []
    assert found(texts, "id", drop=True) == []


def test_an_identifier_that_repeats_may_be_the_unit() -> None:
    who = np.arange(NUM_ROWS) // 4
    (message,) = found(who, "patient", kind="id")
    assert message == (
        'It repeats: 500 values in 2,000 rows. If it identifies a person, set unit = "patient" in [table]; without '
        "it, each row is protected separately."
    )
    assert found(np.arange(NUM_ROWS), "patient", kind="id") == []


def test_with_a_unit_other_identifiers_are_only_that() -> None:
    table = pa.table({"patient": np.arange(NUM_ROWS) // 4, "stay_id": np.arange(NUM_ROWS)})
    columns = (Column(name="patient", kind="integer"), Column(name="stay_id", kind="integer"))
    (finding,) = find_identifiers(Schema(columns=columns, unit="patient", max_rows_per_unit=4), table)
    assert (finding.column, finding.topic, finding.level) == ("stay_id", "identifier", "warning")
    assert finding.message.endswith('(2,000 values in 2,000 rows). If it is one, set kind = "id".')


def test_last_words() -> None:
    names = ["patient_no", "patientId", "Case Number", "ID2", "id", "personUUID", "Fall-Nr.", "7", ""]
    assert [_last_word(name) for name in names] == ["no", "id", "number", "id", "id", "uuid", "nr", "", ""]
